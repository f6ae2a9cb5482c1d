//! Delivery, clause 2.7: delivers the oldest new order of each district of a warehouse, in one transaction.
//!
//! The oldest-new-order record names the candidate; if NEW-ORDER has no such row, nothing is to be delivered
//! in the district (order numbers have no gaps, for a NewOrder that rolls back takes its number back too).
//! Only deliveries touch the record, so that they do not conflict with the NewOrders that enter orders
//! meanwhile.

use super::rows::{
    Column, DISTRICTS, customer, index_number, index_record, key, order, order_line, patched, row,
};
use crate::{Native, malformed};
use txn::{Args, Call, Footprint, Outcome, Reply, Tx};

const WAREHOUSE: Column<u32> = Column::at(0);
const CARRIER: Column<u8> = Column::at(WAREHOUSE.end());
const BYTES: usize = CARRIER.end();

/// The arguments of a call.
pub fn arguments(warehouse: u32, carrier: u8) -> Args {
    let mut bytes = [0; BYTES];
    WAREHOUSE.set(&mut bytes, warehouse);
    CARRIER.set(&mut bytes, carrier);
    Args::one(&bytes)
}

/// The procedure.
pub(super) const PROCEDURE: Native = Native {
    name: "tpcc.delivery",
    footprint: |_| Footprint::unknown(),
    fragments: |_| None,
    run: |tx, call| Box::pin(run(tx, call)),
};

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let bytes = call.first().filter(|bytes| bytes.len() == BYTES).ok_or_else(malformed)?;
    let (warehouse, carrier) = (WAREHOUSE.get(bytes), CARRIER.get(bytes));
    let now_ms = tx.now_ms();
    // The number of the order that was delivered in each district, 0 if there was none.
    let mut delivered = [0; 4 * DISTRICTS as usize];

    for district in 1..=DISTRICTS {
        let oldest_key = key::oldest_new_order(warehouse, district);
        let number = index_number(tx.get_for_update(&oldest_key).await?)?;
        let new_order_key = key::new_order(warehouse, district, number);
        if tx.get(&new_order_key).await?.is_none() {
            continue;
        }
        tx.delete(&new_order_key).await?;
        tx.put(&oldest_key, index_record(number + 1)).await?;

        let key = key::order(warehouse, district, number);
        let old = row::<{ order::BYTES }>(tx.get_for_update(&key).await?)?;
        let (customer, lines) = (order::CUSTOMER.get(&old), order::LINES.get(&old));
        let new = patched::<{ order::BYTES }>(&old, |row| order::CARRIER.set(row, carrier));
        tx.put(&key, new).await?;

        let mut sum = 0;
        for line in 1..=lines {
            let key = key::order_line(warehouse, district, number, line);
            let old = row::<{ order_line::BYTES }>(tx.get_for_update(&key).await?)?;
            sum += i64::from(order_line::AMOUNT.get(&old));
            let new = patched::<{ order_line::BYTES }>(&old, |row| order_line::DELIVERY.set(row, now_ms));
            drop(old);
            tx.put(&key, new).await?;
        }

        let key = key::customer(warehouse, district, customer);
        let old = row::<{ customer::BYTES }>(tx.get_for_update(&key).await?)?;
        let new = patched::<{ customer::BYTES }>(&old, |row| {
            customer::BALANCE.update(row, |value| value + sum);
            customer::DELIVERIES.update(row, |value| value + 1);
        });
        drop(old);
        tx.put(&key, new).await?;
        let place = 4 * (usize::from(district) - 1);
        delivered[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    Ok(Reply::bulk(&delivered))
}
