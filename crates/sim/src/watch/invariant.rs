//! What a workload knows of its own state, checked at any snapshot.

use crate::oracle::{Expected, Oracle};
use store::{Snapshot, View};
use txn::{Entry, Key, Position};
use workloads::{State, Tally, Workload};

/// A store's records at a snapshot.
struct AtSnapshot<'a> {
    view: &'a dyn View,
    snapshot: &'a Snapshot,
}

impl State for AtSnapshot<'_> {
    fn get(&mut self, key: &Key) -> Option<Entry> {
        self.view.read_at(self.snapshot, key).entry
    }
    fn count(&mut self) -> u64 {
        self.view.count_at(self.snapshot)
    }
}

/// Checks a snapshot of a store. `first` is the position of the first call of the workload: what is before
/// has loaded its records, and a snapshot that lies there is not checked.
pub fn check(
    workload: &dyn Workload,
    view: &dyn View,
    snapshot: &Snapshot,
    oracle: &Oracle,
    first: Position,
) -> Result<(), String> {
    if snapshot.position < first {
        return Ok(());
    }
    let mut tally = Tally::default();
    let mut position = first;
    while position <= snapshot.position {
        if let Some(Expected::Outcome(outcome)) = oracle.expected(position) {
            tally.add(outcome);
        }
        position = position.next();
    }
    let mut state = AtSnapshot { view, snapshot };
    workload
        .check(&mut state, &tally)
        .map_err(|text| format!("at the snapshot of {}: {text}", snapshot.position))
}
