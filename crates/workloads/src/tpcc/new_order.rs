//! NewOrder, clause 2.4: enters an order of 5 to 15 lines.
//!
//! Locks are taken in the order of their heat: the district row, which every NewOrder and Payment of the
//! district updates, comes first, so that whoever follows waits before it has done work. The warehouse row is
//! only read (its tax rate, though Payment updates the row) and comes last, when payments that precede have
//! most likely written it.
//!
//! Items are read in the home warehouse's partition, which is that of most lines.

use super::random::is_brand;
use super::rows::{Column, customer, district, item, key, order, order_line, patched, row, stock, warehouse};
use crate::{Native, malformed};
use std::sync::Arc;
use txn::{Args, Blob, Call, Footprint, KeySets, Outcome, Reply, Stop, Tx, Weight};

/// The most lines that an order has.
pub const LINES_MAX: usize = 15;
/// The reason of the 1 % of calls that name an item which does not exist.
pub const UNUSED_ITEM: &str = "Item number is not valid";

const WAREHOUSE: Column<u32> = Column::at(0);
const DISTRICT: Column<u8> = Column::at(WAREHOUSE.end());
const CUSTOMER: Column<u32> = Column::at(DISTRICT.end());
const HEAD_BYTES: usize = CUSTOMER.end();
const ITEM: Column<u32> = Column::at(0);
const SUPPLIER: Column<u32> = Column::at(ITEM.end());
const QUANTITY: Column<u8> = Column::at(SUPPLIER.end());
const LINE_BYTES: usize = QUANTITY.end();

/// One line of the order that a call asks for.
#[derive(Clone, Copy, Default)]
pub struct Line {
    /// The item.
    pub item: u32,
    /// The warehouse that supplies it.
    pub supplier: u32,
    /// How many.
    pub quantity: u8,
}

/// The arguments of a call.
pub fn arguments(warehouse: u32, district: u8, customer: u32, lines: &[Line]) -> Args {
    let mut bytes = [0; HEAD_BYTES + LINES_MAX * LINE_BYTES];
    WAREHOUSE.set(&mut bytes, warehouse);
    DISTRICT.set(&mut bytes, district);
    CUSTOMER.set(&mut bytes, customer);
    for (bytes, line) in bytes[HEAD_BYTES..].chunks_exact_mut(LINE_BYTES).zip(lines) {
        ITEM.set(bytes, line.item);
        SUPPLIER.set(bytes, line.supplier);
        QUANTITY.set(bytes, line.quantity);
    }
    Args::one(&bytes[..HEAD_BYTES + lines.len() * LINE_BYTES])
}

/// Arguments whose length was checked.
struct Order<'a> {
    head: &'a [u8],
    lines: &'a [u8],
}

impl<'a> Order<'a> {
    fn decode(args: &'a Args) -> Result<Order<'a>, Stop> {
        let bytes = args.first().ok_or_else(malformed)?.as_bytes();
        let (head, lines) = bytes.split_at_checked(HEAD_BYTES).ok_or_else(malformed)?;
        if lines.len() % LINE_BYTES != 0 || lines.len() > LINES_MAX * LINE_BYTES {
            return Err(malformed());
        }
        Ok(Order { head, lines })
    }
    fn warehouse(&self) -> u32 {
        WAREHOUSE.get(self.head)
    }
    fn district(&self) -> u8 {
        DISTRICT.get(self.head)
    }
    fn customer(&self) -> u32 {
        CUSTOMER.get(self.head)
    }
    fn line_count(&self) -> u8 {
        (self.lines.len() / LINE_BYTES) as u8
    }
    fn line(&self, index: usize) -> Line {
        let bytes = &self.lines[index * LINE_BYTES..];
        Line { item: ITEM.get(bytes), supplier: SUPPLIER.get(bytes), quantity: QUANTITY.get(bytes) }
    }
}

/// The procedure.
pub(super) const PROCEDURE: Native =
    Native { name: "tpcc.new_order", footprint, run: |tx, call| Box::pin(run(tx, call)) };

/// The rows that the arguments name. Order, new-order and order-line rows get their names from the district
/// row; their other users are the read-only profiles, which find the order through the district row or the
/// customer's last-order record, and Delivery, which finds it through the district's oldest-new-order record.
/// All three are locked here, so the inserts are covered; the oldest-new-order record is named for that
/// reason only.
fn footprint(args: &Args) -> Footprint {
    let Ok(order) = Order::decode(args) else {
        return Footprint::unknown();
    };
    let (home, district, customer) = (order.warehouse(), order.district(), order.customer());
    let count = usize::from(order.line_count());
    let mut reads = Vec::with_capacity(2 + count);
    let mut writes = Vec::with_capacity(3 + count);
    reads.extend([key::warehouse(home), key::customer(home, district, customer)]);
    writes.extend([
        key::district(home, district),
        key::last_order(home, district, customer),
        key::oldest_new_order(home, district),
    ]);
    for index in 0..count {
        let Line { item, supplier, .. } = order.line(index);
        reads.push(key::item(home, item));
        writes.push(key::stock(supplier, item));
    }
    let keys = KeySets { reads, writes, covers_inserts: true, ..KeySets::default() };
    Footprint { keys: Some(Arc::new(keys)), read_only: false, weight: Weight::Light }
}

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let order = Order::decode(&call)?;
    let (home, district, customer) = (order.warehouse(), order.district(), order.customer());

    let key = key::district(home, district);
    let old = row::<{ district::BYTES }>(tx.get_for_update(&key).await?)?;
    let number = district::NEXT_ORDER.get(&old);
    let district_tax = district::TAX.get(&old);
    let new = patched::<{ district::BYTES }>(&old, |row| district::NEXT_ORDER.set(row, number + 1));
    drop(old);
    tx.put(&key, new).await?;

    let mut sum = 0;
    let mut brands = 0u8;
    let mut all_local = true;
    let mut unused_item = false;
    for index in 0..order.line_count() {
        let line = order.line(usize::from(index));
        all_local &= line.supplier == home;
        let Some(item) = tx.get(&key::item(home, line.item)).await? else {
            // Clause 2.4.2.3: the rest of the profile is executed before the rollback.
            unused_item = true;
            continue;
        };
        let item = row::<{ item::BYTES }>(Some(item))?;
        let amount = u32::from(line.quantity) * item::PRICE.get(&item);
        sum += i64::from(amount);

        let key = key::stock(line.supplier, line.item);
        let old = row::<{ stock::BYTES }>(tx.get_for_update(&key).await?)?;
        brands += u8::from(is_brand(item::DATA.get(&item)) && is_brand(stock::DATA.get(&old)));
        let inserted = order_line_row(line, amount, stock::district_info(&old, district));
        let new = supplied(&old, line, line.supplier != home);
        drop((item, old));
        tx.put(&key, new).await?;
        tx.put(&key::order_line(home, district, number, index + 1), inserted).await?;
    }

    let inserted = order_row(customer, tx.now_ms(), order.line_count(), all_local);
    tx.put(&key::order(home, district, number), inserted).await?;
    tx.put(&key::new_order(home, district, number), Blob::EMPTY).await?;
    tx.put(&key::last_order(home, district, customer), super::rows::index_record(number)).await?;

    let customer = row::<{ customer::BYTES }>(tx.get(&key::customer(home, district, customer)).await?)?;
    let warehouse = row::<{ warehouse::BYTES }>(tx.get(&key::warehouse(home)).await?)?;
    if unused_item {
        return Err(Stop::abort(UNUSED_ITEM));
    }
    let tax = i64::from(warehouse::TAX.get(&warehouse) + district_tax);
    let discount = i64::from(customer::DISCOUNT.get(&customer));
    let total = sum * (10_000 - discount) * (10_000 + tax) / 100_000_000;
    Ok(Reply::Bulk(reply(number, total, brands)))
}

/// The stock row after it supplied a line: clause 2.4.2.2.
fn supplied(old: &Blob, line: Line, remote: bool) -> Blob {
    patched::<{ stock::BYTES }>(old, |row| {
        let (quantity, ordered) = (stock::QUANTITY.get(row), i32::from(line.quantity));
        let refill = if quantity >= ordered + 10 { 0 } else { 91 };
        stock::QUANTITY.set(row, quantity - ordered + refill);
        stock::YTD.update(row, |value| value + u32::from(line.quantity));
        stock::ORDERS.update(row, |value| value + 1);
        stock::REMOTE_ORDERS.update(row, |value| value + u32::from(remote));
    })
}

fn order_line_row(line: Line, amount: u32, info: &[u8]) -> Blob {
    let mut row = [0; order_line::BYTES];
    order_line::ITEM.set(&mut row, line.item);
    order_line::SUPPLIER.set(&mut row, line.supplier);
    order_line::QUANTITY.set(&mut row, line.quantity);
    order_line::AMOUNT.set(&mut row, amount);
    order_line::DISTRICT_INFO.set(&mut row, info);
    Blob::new(&row)
}

fn order_row(customer: u32, entry_ms: u64, lines: u8, all_local: bool) -> Blob {
    let mut row = [0; order::BYTES];
    order::CUSTOMER.set(&mut row, customer);
    order::ENTRY.set(&mut row, entry_ms);
    order::LINES.set(&mut row, lines);
    order::ALL_LOCAL.set(&mut row, u8::from(all_local));
    Blob::new(&row)
}

/// The order's number (4 bytes), its total in cents (8) and how many of its lines are brand goods (1).
fn reply(number: u32, total: i64, brands: u8) -> Blob {
    let mut bytes = [0; 13];
    bytes[..4].copy_from_slice(&number.to_le_bytes());
    bytes[4..12].copy_from_slice(&total.to_le_bytes());
    bytes[12] = brands;
    Blob::new(&bytes)
}
