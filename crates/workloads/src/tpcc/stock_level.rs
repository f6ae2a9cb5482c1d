//! StockLevel, clause 2.8: how many items of a district's last 20 orders are low in stock. Read-only.
//!
//! As fragments, a call has one for each row. Reconnaissance finds the orders, their lines and their items
//! ([`super::guess`]), and the rows that name them find out whether these still hold. NewOrder inserts an
//! order's rows when the oldest-new-order record's turn comes, so that the orders' fragments need that
//! record's, and the lines' need their order's.

use super::guess::{Guess, confirm, outdated};
use super::rows::{Column, district, index_number, key, order, order_line, row, stock};
use crate::{MISSING, Native, malformed, missing_value};
use txn::fragments::{Done, FragmentList, FragmentOutcome, FragmentPlan, FragmentValues};
use txn::{
    Args, Blob, Call, Footprint, Fragment, FragmentContext, FragmentKind, FragmentValue, Fragments, Outcome,
    Reply, Request, Stop, Tx,
};

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
    fragments,
    run: |tx, call| Box::pin(run(tx, call)),
};

/// The orders that a call looks at, if the next one will have this number.
fn looked_at(next: u32) -> std::ops::Range<u32> {
    next.saturating_sub(ORDERS).max(1)..next
}

/// What a fragment of a call does.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Compares the number of the district's next order.
    District { next: u32 },
    /// Waits for the turn of the orders.
    Oldest,
    /// Compares the number of an order's lines.
    Order { lines: u8 },
    /// Reads a line's item.
    Line,
    /// Looks whether a stock is low.
    Stock,
}

/// The fragments of a call whose numbers reconnaissance has found.
#[derive(Debug)]
struct Looked {
    threshold: i32,
    /// By place.
    steps: Vec<Step>,
    /// The items whose stocks are the last fragments, from the smallest on.
    items: Vec<u32>,
}

fn fragments(request: &Request) -> Option<Fragments> {
    let bytes = request.args.first().filter(|bytes| bytes.len() == BYTES)?;
    let (warehouse, district) = (WAREHOUSE.get(bytes), DISTRICT.get(bytes));
    let guess = Guess::of(request)?;
    let lines = guess.lines_by_order(&key::order_line(warehouse, district, 0, 0));
    let next = guess.numbers(&key::order(warehouse, district, 0)).last()? + 1;
    let items = guess.numbers(&key::stock(warehouse, 0));
    let mut list = FragmentList::new();
    let mut steps = Vec::new();
    let mut add = |step: Step, fragment: Fragment| {
        list.push(fragment);
        steps.push(step);
        (list.len() - 1) as u16
    };
    let at = |key| Fragment::independent(key, FragmentKind::Read);
    let first = add(Step::District { next }, at(key::district(warehouse, district)).aborting());
    let oldest = add(Step::Oldest, at(key::oldest_new_order(warehouse, district)));
    for number in looked_at(next) {
        let lines = lines.get(&number).copied().unwrap_or(0);
        let order = at(key::order(warehouse, district, number)).needing([first, oldest]).aborting();
        let order = add(Step::Order { lines }, order);
        for line in 1..=lines {
            let line = at(key::order_line(warehouse, district, number, line)).needing([order]);
            add(Step::Line, line.aborting());
        }
    }
    for &item in &items {
        add(Step::Stock, at(key::stock(warehouse, item)));
    }
    Fragments::planned(list, Looked { threshold: THRESHOLD.get(bytes), steps, items })
}

impl FragmentPlan for Looked {
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
        let number_of = |value: &FragmentValue| match value {
            FragmentValue::Reply(Reply::Integer(number)) => Some(*number),
            _ => None,
        };
        let (of_orders, of_stocks) = values.split_at(values.len() - self.items.len());
        // The dry run may have read stocks that the orders do not name any more.
        let mut items: Vec<i64> = of_orders.iter().filter_map(number_of).collect();
        items.sort_unstable();
        let is_named = |item: u32| items.binary_search(&item.into()).is_ok();
        let stocks = self.items.iter().zip(of_stocks).filter(|&(&item, _)| is_named(item));
        Reply::Integer(stocks.filter_map(|(_, value)| number_of(value)).sum())
    }
}

impl Looked {
    fn step(&self, context: &FragmentContext<'_>) -> FragmentOutcome {
        let found = context.found.map(|entry| entry.value.clone());
        let number = |number: i64| Ok(Done::read(Reply::Integer(number)));
        match self.steps[context.place] {
            Step::District { next } => {
                let row = row::<{ district::BYTES }>(found)?;
                confirm(district::NEXT_ORDER.get(&row) == next)?;
            }
            Step::Oldest => {
                index_number(found)?;
            }
            Step::Order { lines } => {
                let row = row::<{ order::BYTES }>(found)?;
                confirm(order::LINES.get(&row) == lines)?;
            }
            Step::Line => {
                let item = order_line::ITEM.get(&row::<{ order_line::BYTES }>(found)?);
                self.items.binary_search(&item).map_err(|_| outdated())?;
                return number(item.into());
            }
            Step::Stock => {
                let row = row::<{ stock::BYTES }>(found)?;
                return number((stock::QUANTITY.get(&row) < self.threshold).into());
            }
        }
        Ok(Done::read(FragmentValue::NIL))
    }
}

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
    for number in looked_at(next) {
        let order = row::<{ order::BYTES }>(tx.get(&key::order(warehouse, district, number)).await?)?;
        let lines =
            (1..=order::LINES.get(&order)).map(|line| key::order_line(warehouse, district, number, line));
        for key in tx.expecting(lines) {
            let line = tx.get(&key).await?;
            items.push(order_line::ITEM.get(&row::<{ order_line::BYTES }>(line)?));
        }
    }
    items.sort_unstable();
    items.dedup();
    let mut low = 0;
    let stocks = items.into_iter().map(|item| key::stock(warehouse, item));
    for key in tx.expecting(stocks) {
        let stock = row::<{ stock::BYTES }>(tx.get(&key).await?)?;
        low += i64::from(stock::QUANTITY.get(&stock) < threshold);
    }
    Ok(Reply::Integer(low))
}
