//! The definition itself, by exhaustive search: is there a serial order that explains the history?

use ordo_sim::history::{Operation, Order, Outcome, Step};
use std::collections::BTreeMap;

type Lists = BTreeMap<u64, Vec<u64>>;

/// Whether some order of the committed operations, and of any of the unknown ones, gives every read its
/// values and respects each client's order, and real time if `order` says so. Exponential.
pub fn explains(history: &[Operation], order: Order) -> bool {
    place(history, order, &mut vec![false; history.len()], &Lists::new())
}

fn place(history: &[Operation], order: Order, placed: &mut Vec<bool>, lists: &Lists) -> bool {
    let waits = |index: &usize| !placed[*index] && history[*index].outcome == Outcome::Committed;
    let waiting: Vec<usize> = (0..history.len()).filter(waits).collect();
    if waiting.is_empty() {
        return true;
    }
    for index in 0..history.len() {
        if placed[index]
            || history[index].outcome == Outcome::Aborted
            || waiting.iter().any(|&other| before(history, order, other, index))
        {
            continue;
        }
        if let Some(lists) = execute(&history[index], lists) {
            placed[index] = true;
            if place(history, order, placed, &lists) {
                return true;
            }
            placed[index] = false;
        }
    }
    false
}

/// Whether a committed operation must come before another.
fn before(history: &[Operation], order: Order, first: usize, second: usize) -> bool {
    let (one, other) = (&history[first], &history[second]);
    first != second
        && (order == Order::RealTime && one.completed_ns.is_some_and(|ns| ns < other.invoked_ns)
            || one.client == other.client && (one.invoked_ns, first) < (other.invoked_ns, second))
}

/// The lists after an operation, if it read what it says.
fn execute(operation: &Operation, lists: &Lists) -> Option<Lists> {
    let mut lists = lists.clone();
    for step in &operation.steps {
        match step {
            Step::Append { key, value } => lists.entry(*key).or_default().push(*value),
            Step::Read { key, values } => {
                let list = lists.get(key).map_or(&[][..], Vec::as_slice);
                if operation.outcome == Outcome::Committed && list != values {
                    return None;
                }
            }
        }
    }
    Some(lists)
}
