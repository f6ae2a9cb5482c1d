//! OrderStatus, clause 2.6: a customer's balance and the lines of the customer's newest order. Read-only.

use super::payment::{Named, customer_number};
use super::rows::{Column, customer, index_number, key, order, order_line, row};
use crate::{Native, malformed};
use txn::{Args, Call, Footprint, Outcome, Reply, Tx};

const WAREHOUSE: Column<u32> = Column::at(0);
const DISTRICT: Column<u8> = Column::at(WAREHOUSE.end());
const NAMED: Column<u8> = Column::at(DISTRICT.end());
const CUSTOMER: Column<u32> = Column::at(NAMED.end());
const BYTES: usize = CUSTOMER.end();

/// The arguments of a call.
pub fn arguments(warehouse: u32, district: u8, customer: Named) -> Args {
    let mut bytes = [0; BYTES];
    let (flag, number) = customer.encode();
    WAREHOUSE.set(&mut bytes, warehouse);
    DISTRICT.set(&mut bytes, district);
    NAMED.set(&mut bytes, flag);
    CUSTOMER.set(&mut bytes, number);
    Args::one(&bytes)
}

/// The procedure.
pub(super) const PROCEDURE: Native = Native {
    name: "tpcc.order_status",
    footprint: |_| Footprint::read_only(),
    fragments: |_| None,
    run: |tx, call| Box::pin(run(tx, call)),
};

async fn run(mut tx: Tx, call: Call) -> Outcome {
    let bytes = call.first().filter(|bytes| bytes.len() == BYTES).ok_or_else(malformed)?;
    let (warehouse, district) = (WAREHOUSE.get(bytes), DISTRICT.get(bytes));
    let named = Named::decode(NAMED.get(bytes), CUSTOMER.get(bytes));

    let customer = customer_number(&mut tx, warehouse, district, named).await?;
    let row_of_customer =
        row::<{ customer::BYTES }>(tx.get(&key::customer(warehouse, district, customer)).await?)?;
    let number = index_number(tx.get(&key::last_order(warehouse, district, customer)).await?)?;
    let order = row::<{ order::BYTES }>(tx.get(&key::order(warehouse, district, number)).await?)?;
    let lines = order::LINES.get(&order);

    // Balance (8 bytes), order number (4), the order row, and of each line all but the district's
    // information.
    const LINE_BYTES: usize = order_line::BYTES - 24;
    let mut reply = Vec::with_capacity(12 + order::BYTES + usize::from(lines) * LINE_BYTES);
    reply.extend(customer::BALANCE.get(&row_of_customer).to_le_bytes());
    reply.extend(number.to_le_bytes());
    reply.extend_from_slice(&order);
    drop((row_of_customer, order));
    for line in 1..=lines {
        let line = tx.get(&key::order_line(warehouse, district, number, line)).await?;
        reply.extend_from_slice(&row::<{ order_line::BYTES }>(line)?[..LINE_BYTES]);
    }
    Ok(Reply::bulk(reply))
}
