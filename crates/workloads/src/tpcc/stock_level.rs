//! StockLevel, clause 2.8: how many items of a district's last 20 orders are low in stock. Read-only.

use super::rows::{Column, district, index_number, key, order, order_line, row, stock};
use crate::{Native, malformed};
use txn::{Args, Call, Footprint, Outcome, Reply, Tx};

const ORDERS: u32 = 20;

const WAREHOUSE: Column<u32> = Column::at(0);
const DISTRICT: Column<u8> = Column::at(WAREHOUSE.end());
const THRESHOLD: Column<i32> = Column::at(DISTRICT.end());
const BYTES: usize = THRESHOLD.end();

/// The arguments of a call.
pub fn arguments(warehouse: u32, district: u8, threshold: i32) -> Args {
    let mut bytes = [0; BYTES];
    WAREHOUSE.set(&mut bytes, warehouse);
    DISTRICT.set(&mut bytes, district);
    THRESHOLD.set(&mut bytes, threshold);
    Args::one(&bytes)
}

/// The procedure.
pub(super) const PROCEDURE: Native = Native {
    name: "tpcc.stock_level",
    footprint: |_| Footprint::read_only(),
    fragments: |_| None,
    run: |tx, call| Box::pin(run(tx, call)),
};

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let bytes = call.first().filter(|bytes| bytes.len() == BYTES).ok_or_else(malformed)?;
    let (warehouse, district) = (WAREHOUSE.get(bytes), DISTRICT.get(bytes));
    let threshold = THRESHOLD.get(bytes);

    // Its turn is that of the orders which are looked at: a NewOrder inserts them when this one's comes.
    index_number(tx.get(&key::oldest_new_order(warehouse, district)).await?)?;
    let home = row::<{ district::BYTES }>(tx.get(&key::district(warehouse, district)).await?)?;
    let next = district::NEXT_ORDER.get(&home);
    drop(home);
    let mut items = Vec::with_capacity(15 * ORDERS as usize);
    for number in next.saturating_sub(ORDERS).max(1)..next {
        let order = row::<{ order::BYTES }>(tx.get(&key::order(warehouse, district, number)).await?)?;
        for line in 1..=order::LINES.get(&order) {
            let line = tx.get(&key::order_line(warehouse, district, number, line)).await?;
            items.push(order_line::ITEM.get(&row::<{ order_line::BYTES }>(line)?));
        }
    }
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    for item in items {
        let stock = row::<{ stock::BYTES }>(tx.get(&key::stock(warehouse, item)).await?)?;
        low += i64::from(stock::QUANTITY.get(&stock) < threshold);
    }
    Ok(Reply::Integer(low))
}
