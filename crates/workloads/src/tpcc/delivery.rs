//! Delivery, clause 2.7: delivers the oldest new order of each district of a warehouse, in one transaction.
//!
//! The oldest-new-order record names the candidate; if NEW-ORDER has no such row, nothing is to be delivered
//! in the district (order numbers have no gaps, for a NewOrder that rolls back takes its number back too).
//! Only deliveries touch the record, so that they do not conflict with the NewOrders that enter orders
//! meanwhile.
//!
//! As fragments, a call has those of the ten districts: the oldest-new-order record, then the NEW-ORDER and
//! ORDER rows, the lines, and the customer, who gets the sum of the lines. Reconnaissance finds the numbers
//! ([`super::guess`]); the fragments of the first three rows find out whether these still hold. NewOrder
//! inserts an order's rows when the oldest-new-order record's turn comes, so that every fragment behind it
//! needs that record's fragment.

use super::guess::{Guess, confirm};
use super::rows::{
    Column, DISTRICTS, customer, index_number, index_record, key, order, order_line, patched, row,
};
use crate::{MISSING, Native, malformed, missing_value};
use txn::fragments::{Done, FragmentList, FragmentOutcome, FragmentPlan, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments,
    Outcome, Reply, Request, Stop, Tx,
};

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
    fragments,
    run: |tx, call| Box::pin(run(tx, call)),
};

/// What a fragment of a call does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Counts the oldest-new-order record on, if the order with this number is there to be delivered.
    Oldest { number: u32, is_there: bool },
    /// Deletes the NEW-ORDER row, if it is there.
    NewOrder { is_there: bool },
    /// Gives the order its carrier, if it has this customer and so many lines.
    Order { customer: u32, lines: u8 },
    /// Dates a line.
    Line,
    /// Adds the sum of the lines to the customer's balance.
    Customer,
}

/// The fragments of a call whose numbers reconnaissance has found.
#[derive(Debug)]
struct Delivered {
    carrier: u8,
    /// By place.
    steps: Vec<Step>,
    /// The call's reply, if the numbers hold.
    reply: Blob,
}

fn fragments(request: &Request) -> Option<Fragments> {
    let bytes = request.args.first().filter(|bytes| bytes.len() == BYTES)?;
    let (warehouse, carrier) = (WAREHOUSE.get(bytes), CARRIER.get(bytes));
    let guess = Guess::of(request)?;
    let mut list = FragmentList::new();
    let mut steps = Vec::new();
    let mut delivered = [0; 4 * DISTRICTS as usize];
    for district in 1..=DISTRICTS {
        let number = guess.number(&key::new_order(warehouse, district, 0))?;
        let new_order_key = key::new_order(warehouse, district, number);
        let is_there = guess.writes(&new_order_key);
        let kind = if is_there { FragmentKind::Update } else { FragmentKind::Read };
        let mut add = |step: Step, fragment: Fragment| {
            list.push(fragment);
            steps.push(step);
            (list.len() - 1) as u16
        };
        let at = |key| Fragment::independent(key, FragmentKind::Update);
        let oldest = Fragment::independent(key::oldest_new_order(warehouse, district), kind).aborting();
        let oldest = add(Step::Oldest { number, is_there }, oldest);
        let new_order = Fragment::independent(new_order_key, kind).needing([oldest]).aborting();
        add(Step::NewOrder { is_there }, new_order);
        if !is_there {
            continue;
        }
        let customer = guess.number(&key::customer(warehouse, district, 0))?;
        let lines = guess.lines_by_order(&key::order_line(warehouse, district, 0, 0));
        let lines = lines.get(&number).copied().unwrap_or(0);
        let order = at(key::order(warehouse, district, number)).needing([oldest]).aborting();
        let order = add(Step::Order { customer, lines }, order);
        for line in 1..=lines {
            add(Step::Line, at(key::order_line(warehouse, district, number, line)).needing([order]));
        }
        let sum_of = order + 1..order + 1 + u16::from(lines);
        add(Step::Customer, at(key::customer(warehouse, district, customer)).needing(sum_of));
        let place = 4 * (usize::from(district) - 1);
        delivered[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    Fragments::planned(list, Delivered { carrier, steps, reply: Blob::new(&delivered) })
}

impl FragmentPlan for Delivered {
    fn execute(&self, _: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
        match self.step(&context) {
            // What the code cannot do without is missing: an error, as the procedure's abort is one.
            Err(Stop::Abort(_)) => Ok(missing_value()),
            done => done,
        }
    }

    fn reply(&self, _: &[Blob], values: FragmentValues) -> Reply {
        match values.iter().any(FragmentValue::is_error) {
            true => Reply::error(MISSING),
            false => Reply::Bulk(self.reply.clone()),
        }
    }
}

impl Delivered {
    fn step(&self, context: &FragmentContext<'_>) -> FragmentOutcome {
        let found = context.found.map(|entry| entry.value.clone());
        let put = |row: Blob, value: Reply| Ok(Done::put(Entry::new(row), value));
        match self.steps[context.place] {
            Step::Oldest { number, is_there } => {
                confirm(index_number(found)? == number)?;
                match is_there {
                    true => put(index_record(number + 1), Reply::Nil),
                    false => Ok(Done::read(FragmentValue::NIL)),
                }
            }
            Step::NewOrder { is_there } => {
                confirm(found.is_some() == is_there)?;
                match is_there {
                    true => Ok(Done::delete(FragmentValue::NIL)),
                    false => Ok(Done::read(FragmentValue::NIL)),
                }
            }
            Step::Order { customer, lines } => {
                let old = row::<{ order::BYTES }>(found)?;
                confirm(order::CUSTOMER.get(&old) == customer && order::LINES.get(&old) == lines)?;
                put(carried(&old, self.carrier), Reply::Nil)
            }
            Step::Line => {
                let old = row::<{ order_line::BYTES }>(found)?;
                let amount = Reply::Integer(order_line::AMOUNT.get(&old).into());
                put(dated(&old, context.now_ms), amount)
            }
            Step::Customer => {
                let amount = |value: &FragmentValue| match value {
                    FragmentValue::Reply(Reply::Integer(amount)) => *amount,
                    _ => 0,
                };
                let sum = context.inputs.iter().map(amount).sum();
                put(credited(&row::<{ customer::BYTES }>(found)?, sum), Reply::Nil)
            }
        }
    }
}

/// The ORDER row once it has a carrier.
fn carried(old: &Blob, carrier: u8) -> Blob {
    patched::<{ order::BYTES }>(old, |row| order::CARRIER.set(row, carrier))
}

/// The line once it is delivered.
fn dated(old: &Blob, now_ms: u64) -> Blob {
    patched::<{ order_line::BYTES }>(old, |row| order_line::DELIVERY.set(row, now_ms))
}

/// The customer once an order of this sum is delivered.
fn credited(old: &Blob, sum: i64) -> Blob {
    patched::<{ customer::BYTES }>(old, |row| {
        customer::BALANCE.update(row, |value| value + sum);
        customer::DELIVERIES.update(row, |value| value + 1);
    })
}

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
        tx.put(&key, carried(&old, carrier)).await?;

        let mut sum = 0;
        let lines = (1..=lines).map(|line| key::order_line(warehouse, district, number, line));
        for key in tx.expecting(lines) {
            let old = row::<{ order_line::BYTES }>(tx.get_for_update(&key).await?)?;
            sum += i64::from(order_line::AMOUNT.get(&old));
            let new = dated(&old, now_ms);
            drop(old);
            tx.put(&key, new).await?;
        }

        let key = key::customer(warehouse, district, customer);
        let old = row::<{ customer::BYTES }>(tx.get_for_update(&key).await?)?;
        let new = credited(&old, sum);
        drop(old);
        tx.put(&key, new).await?;
        let place = 4 * (usize::from(district) - 1);
        delivered[place..place + 4].copy_from_slice(&number.to_le_bytes());
    }
    Ok(Reply::bulk(&delivered))
}
