//! OrderStatus, clause 2.6: a customer's balance and the lines of the customer's newest order. Read-only.
//!
//! As fragments, a call has one for each row. Reconnaissance finds the numbers of the customer, the order and
//! its lines ([`super::guess`]), and the rows that name them find out whether these still hold. NewOrder
//! inserts an order's rows when the last-order record's turn comes, so that the order's fragment needs that
//! record's, and the lines' need the order's.

use super::guess::{Guess, confirm};
use super::payment::{Named, customer_number};
use super::rows::{Column, customer, index_number, key, middle_customer, order, order_line, row};
use crate::{MISSING, Native, malformed, missing_value};
use txn::fragments::{Done, FragmentList, FragmentOutcome, FragmentPlan, FragmentValues};
use txn::{
    Args, Blob, Call, Footprint, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments, Outcome,
    Reply, Request, Stop, Tx,
};

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
    fragments,
    run: |tx, call| Box::pin(run(tx, call)),
};

/// The places of the fragments.
const CUSTOMER_PLACE: usize = 0;
const LAST_ORDER_PLACE: usize = 1;
const ORDER_PLACE: usize = 2;
const LINES_PLACE: usize = 3;

/// The fragments of a call whose numbers reconnaissance has found. The index of names comes last, if the
/// customer is named by last name.
#[derive(Debug)]
struct Status {
    customer: u32,
    order: u32,
    lines: u8,
}

fn fragments(request: &Request) -> Option<Fragments> {
    let bytes = request.args.first().filter(|bytes| bytes.len() == BYTES)?;
    let (warehouse, district) = (WAREHOUSE.get(bytes), DISTRICT.get(bytes));
    let named = Named::decode(NAMED.get(bytes), CUSTOMER.get(bytes));
    let guess = Guess::of(request)?;
    let customer = match named {
        Named::Number(number) => number,
        Named::LastName(_) => guess.number(&key::customer(warehouse, district, 0))?,
    };
    let order = guess.number(&key::order(warehouse, district, 0))?;
    let lines = guess.lines_by_order(&key::order_line(warehouse, district, 0, 0));
    let lines = lines.get(&order).copied().unwrap_or(0);
    let at = |key| Fragment::independent(key, FragmentKind::Read);
    let mut list = FragmentList::with_capacity(LINES_PLACE + usize::from(lines) + 1);
    list.push(at(key::customer(warehouse, district, customer)));
    list.push(at(key::last_order(warehouse, district, customer)).aborting());
    list.push(at(key::order(warehouse, district, order)).needing([LAST_ORDER_PLACE as u16]).aborting());
    for line in 1..=lines {
        let key = key::order_line(warehouse, district, order, line);
        list.push(at(key).needing([ORDER_PLACE as u16]));
    }
    if let Named::LastName(name) = named {
        list.push(at(key::customers_by_name(warehouse, district, name)).aborting());
    }
    Fragments::planned(list, Status { customer, order, lines })
}

impl FragmentPlan for Status {
    fn execute(&self, _: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        match self.step(&context) {
            // A row that must be there is not: an error, as the procedure's abort is one.
            Err(Stop::Abort(_)) => Ok(missing_value()),
            done => done,
        }
    }

    fn reply(&self, _: &[Blob], values: FragmentValues) -> Reply {
        if values.iter().any(FragmentValue::is_error) {
            return Reply::error(MISSING);
        }
        let bytes_of = |place: usize| match &values[place] {
            FragmentValue::Reply(Reply::Bulk(bytes)) => bytes.as_bytes(),
            _ => &[],
        };
        let balance = match &values[CUSTOMER_PLACE] {
            FragmentValue::Reply(Reply::Integer(balance)) => *balance,
            _ => 0,
        };
        let lines = (0..usize::from(self.lines)).map(|line| bytes_of(LINES_PLACE + line));
        Reply::bulk(screen(balance, self.order, bytes_of(ORDER_PLACE), lines))
    }
}

impl Status {
    fn step(&self, context: &FragmentContext<'_>) -> FragmentOutcome {
        let found = context.found.map(|entry| entry.value.clone());
        let lines_end = LINES_PLACE + usize::from(self.lines);
        Ok(match context.place {
            CUSTOMER_PLACE => {
                let row = row::<{ customer::BYTES }>(found)?;
                Done::read(Reply::Integer(customer::BALANCE.get(&row)))
            }
            LAST_ORDER_PLACE => {
                confirm(index_number(found)? == self.order)?;
                Done::read(FragmentValue::NIL)
            }
            ORDER_PLACE => {
                let row = row::<{ order::BYTES }>(found)?;
                confirm(order::LINES.get(&row) == self.lines)?;
                Done::read(Reply::Bulk(row))
            }
            place if place < lines_end => Done::read(Reply::Bulk(row::<{ order_line::BYTES }>(found)?)),
            _ => {
                confirm(middle_customer(found)? == self.customer)?;
                Done::read(FragmentValue::NIL)
            }
        })
    }
}

/// What a terminal would show: balance (8 bytes), order number (4), the order row, and of each line all but
/// the district's information.
fn screen<'a>(balance: i64, number: u32, order: &[u8], lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut reply = Vec::with_capacity(12 + order::BYTES + lines.size_hint().0 * LINE_SHOWN_BYTES);
    reply.extend(balance.to_le_bytes());
    reply.extend(number.to_le_bytes());
    reply.extend_from_slice(order);
    lines.for_each(|line| reply.extend_from_slice(&line[..LINE_SHOWN_BYTES]));
    reply
}

const LINE_SHOWN_BYTES: usize = order_line::BYTES - 24;

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

    let balance = customer::BALANCE.get(&row_of_customer);
    drop(row_of_customer);
    let mut rows: Vec<Blob> = Vec::with_capacity(lines.into());
    let lines = (1..=lines).map(|line| key::order_line(warehouse, district, number, line));
    for key in tx.expecting(lines) {
        let line = tx.get(&key).await?;
        rows.push(row::<{ order_line::BYTES }>(line)?);
    }
    Ok(Reply::bulk(screen(balance, number, &order, rows.iter().map(Blob::as_bytes))))
}
