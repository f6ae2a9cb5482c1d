//! NewOrder, clause 2.4: enters an order of 5 to 15 lines.
//!
//! Locks are taken in the order of their heat: the district row, which every NewOrder and Payment of the
//! district updates, comes first, so that whoever follows waits before it has done work. The warehouse row is
//! only read (its tax rate, though Payment updates the row) and comes last, when payments that precede have
//! most likely written it.
//!
//! Items are read in the home warehouse's partition, which is that of most lines.
//!
//! As fragments, a call has one for each row that its arguments name: the items' may abort, and the one of
//! the customer's last order needs all others' values, and inserts the order with its lines. The fragment of
//! the oldest-new-order record writes nothing: it stands for the inserts' turn before Delivery and
//! StockLevel.

use super::random::is_brand;
use super::rows::{Column, customer, district, item, key, order, order_line, patched, row, stock, warehouse};
use crate::{MISSING, Native, malformed, missing_value};
use std::sync::Arc;
use txn::fragments::{Done, FragmentList, FragmentOutcome, FragmentPlan, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments,
    KeySets, Outcome, Reply, Request, Stop, Tx, Weight,
};

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
    fn decode(args: &'a [Blob]) -> Result<Order<'a>, Stop> {
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
    Native { name: "tpcc.new_order", footprint, fragments, run: |tx, call| Box::pin(run(tx, call)) };

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

    let lines = (0..order.line_count()).map(|index| order.line(usize::from(index)));
    let known = [key::customer(home, district, customer), key::warehouse(home)].into_iter();
    let touched = lines.flat_map(|line| [key::item(home, line.item), key::stock(line.supplier, line.item)]);
    tx.expect(known.chain(touched).map(|key| key.hash64()));

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
    Ok(Reply::Bulk(reply(number, total(sum, discount, tax), brands)))
}

/// Where the fragments of a call are that do not have a fixed place.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    /// By line: its item's and its stock's, which several lines may share.
    items: [u16; LINES_MAX],
    stocks: [u16; LINES_MAX],
    /// The first that is no item's.
    district: u16,
    /// The first that is no stock's.
    last_order: u16,
}

const WAREHOUSE_PLACE: u16 = 0;
const CUSTOMER_PLACE: u16 = 1;
const ITEMS_PLACE: u16 = 2;

/// Adds a fragment unless there is one for its record; its place.
fn add(list: &mut FragmentList, fragment: Fragment) -> u16 {
    let place = list.iter().position(|other| other.key == fragment.key).unwrap_or(list.len());
    if place == list.len() {
        list.push(fragment);
    }
    place as u16
}

fn fragments(request: &Request) -> Option<Fragments> {
    let order = Order::decode(&request.args).ok()?;
    let (home, district, customer) = (order.warehouse(), order.district(), order.customer());
    let at = |key, kind| Fragment::independent(key, kind);
    let mut list = FragmentList::with_capacity(6 + 2 * LINES_MAX);
    let mut places = Places::default();
    list.push(at(key::warehouse(home), FragmentKind::Read));
    list.push(at(key::customer(home, district, customer), FragmentKind::Read));
    let lines = || (0..usize::from(order.line_count())).map(|index| (index, order.line(index)));
    for (index, Line { item, .. }) in lines() {
        places.items[index] = add(&mut list, at(key::item(home, item), FragmentKind::Read).aborting());
    }
    places.district = list.len() as u16;
    list.push(at(key::district(home, district), FragmentKind::Update));
    for (index, Line { item, supplier, .. }) in lines() {
        places.stocks[index] = add(&mut list, at(key::stock(supplier, item), FragmentKind::Update));
    }
    places.last_order = list.len() as u16;
    let last_order = at(key::last_order(home, district, customer), FragmentKind::Put);
    list.push(last_order.needing(ITEMS_PLACE..places.last_order).inserting());
    let oldest = at(key::oldest_new_order(home, district), FragmentKind::Put);
    list.push(oldest.needing([places.last_order]));
    Fragments::planned(list, places)
}

impl FragmentPlan for Places {
    fn execute(&self, args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        let order = Order::decode(args)?;
        let place = context.place as u16;
        match place {
            _ if place > self.last_order => Ok(Done::read(FragmentValue::NIL)),
            _ if place == self.last_order => Ok(self.insert(&order, &context)),
            _ if (ITEMS_PLACE..self.district).contains(&place) => {
                let item = context.found.ok_or(Stop::abort(UNUSED_ITEM))?;
                let item = row::<{ item::BYTES }>(Some(item.value.clone()))?;
                let is_brand = i64::from(is_brand(item::DATA.get(&item)));
                Ok(Done::read(Reply::Integer(i64::from(item::PRICE.get(&item)) << 1 | is_brand)))
            }
            _ => Ok(self.at_row(&order, &context).unwrap_or_else(|_| missing_value())),
        }
    }

    fn reply(&self, args: &[Blob], mut values: FragmentValues) -> Reply {
        let Ok(order) = Order::decode(args) else {
            return Reply::error(MISSING);
        };
        if let Some(wrong) = values.iter().position(FragmentValue::is_error) {
            return values.swap_remove(wrong).into_reply();
        }
        let number_at = |place: u16| number_of(&values[usize::from(place)]);
        let (number, district_tax) = district_value(number_at(self.district));
        let (mut sum, mut brands) = (0, 0);
        for index in 0..order.line_count() {
            let item = number_at(self.items[usize::from(index)]);
            sum += i64::from(amount(order.line(usize::from(index)), item));
            let info = bytes_of(&values[usize::from(self.stocks[usize::from(index)])]);
            brands += u8::from(item & 1 == 1 && info[DISTRICT_INFO_BYTES] == 1);
        }
        let tax = number_at(WAREHOUSE_PLACE) + i64::from(district_tax);
        Reply::Bulk(reply(number, total(sum, number_at(CUSTOMER_PLACE), tax), brands))
    }
}

/// The bytes of a stock's information for a district, behind which a stock's value says whether it is of
/// brand goods.
const DISTRICT_INFO_BYTES: usize = 24;

/// The number that a value is; 0 if it is none, which the code of the fragments excludes.
fn number_of(value: &FragmentValue) -> i64 {
    match value {
        FragmentValue::Reply(Reply::Integer(number)) => *number,
        _ => 0,
    }
}

/// The value of a stock's fragment.
fn bytes_of(value: &FragmentValue) -> [u8; DISTRICT_INFO_BYTES + 1] {
    match value {
        FragmentValue::Reply(Reply::Bulk(bytes)) => bytes.as_bytes().try_into().unwrap_or_default(),
        _ => Default::default(),
    }
}

/// The number of the order and the tax, from the value of the district's fragment.
fn district_value(value: i64) -> (u32, u32) {
    ((value >> 32) as u32, value as u32)
}

/// The amount of a line whose item has this value.
fn amount(line: Line, item: i64) -> u32 {
    u32::from(line.quantity) * (item >> 1) as u32
}

impl Places {
    /// What is done to a row that is neither an item's nor the last order's.
    fn at_row(&self, order: &Order<'_>, context: &FragmentContext<'_>) -> Result<Done, Stop> {
        let found = context.found.map(|entry| entry.value.clone());
        let place = context.place as u16;
        if place == WAREHOUSE_PLACE {
            let warehouse = row::<{ warehouse::BYTES }>(found)?;
            return Ok(Done::read(Reply::Integer(warehouse::TAX.get(&warehouse).into())));
        }
        if place == CUSTOMER_PLACE {
            let customer = row::<{ customer::BYTES }>(found)?;
            return Ok(Done::read(Reply::Integer(customer::DISCOUNT.get(&customer).into())));
        }
        if place == self.district {
            let old = row::<{ district::BYTES }>(found)?;
            let number = district::NEXT_ORDER.get(&old);
            let value = i64::from(number) << 32 | i64::from(district::TAX.get(&old));
            let new = patched::<{ district::BYTES }>(&old, |row| district::NEXT_ORDER.set(row, number + 1));
            return Ok(Done::put(Entry::new(new), Reply::Integer(value)));
        }
        let mut stock = row::<{ stock::BYTES }>(found)?;
        let mut value = [0; DISTRICT_INFO_BYTES + 1];
        let (info, brand) = value.split_at_mut(DISTRICT_INFO_BYTES);
        info.copy_from_slice(stock::district_info(&stock, order.district()));
        brand[0] = u8::from(is_brand(stock::DATA.get(&stock)));
        for index in (0..usize::from(order.line_count())).filter(|&index| self.stocks[index] == place) {
            let line = order.line(index);
            stock = supplied(&stock, line, line.supplier != order.warehouse());
        }
        Ok(Done::put(Entry::new(stock), Reply::bulk(&value[..])))
    }

    /// The rows of the order, once its number, its items and its stocks are known.
    fn insert(&self, order: &Order<'_>, context: &FragmentContext<'_>) -> Done {
        if context.inputs.iter().any(FragmentValue::is_error) {
            return missing_value();
        }
        let (home, district, count) = (order.warehouse(), order.district(), order.line_count());
        let value_at = |place: u16| &context.inputs[usize::from(place - ITEMS_PLACE)];
        let (number, _) = district_value(number_of(value_at(self.district)));
        let mut inserts = Vec::with_capacity(2 + usize::from(count));
        let mut all_local = true;
        for index in 0..usize::from(count) {
            let line = order.line(index);
            all_local &= line.supplier == home;
            let amount = amount(line, number_of(value_at(self.items[index])));
            let info = bytes_of(value_at(self.stocks[index]));
            let inserted = order_line_row(line, amount, &info[..DISTRICT_INFO_BYTES]);
            let key = key::order_line(home, district, number, index as u8 + 1);
            inserts.push((key, Entry::new(inserted)));
        }
        let inserted = order_row(order.customer(), context.now_ms, count, all_local);
        inserts.push((key::order(home, district, number), Entry::new(inserted)));
        inserts.push((key::new_order(home, district, number), Entry::new(Blob::EMPTY)));
        Done::put(Entry::new(super::rows::index_record(number)), FragmentValue::NIL).inserting(inserts)
    }
}

/// What the order costs in cents: the sum of its lines with a discount and taxes in ten-thousandths.
fn total(sum: i64, discount: i64, tax: i64) -> i64 {
    sum * (10_000 - discount) * (10_000 + tax) / 100_000_000
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
