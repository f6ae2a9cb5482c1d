//! The keys that reconnaissance has found for a call whose arguments do not tell them.
//!
//! Delivery, OrderStatus and StockLevel follow numbers from row to row. A fragment's place in the execution
//! queues is its key's, and a planner has no values, so the numbers must be known before: a request that has
//! come through reconnaissance declares the keys that a dry run has touched, and their names hold the
//! numbers. The fragments look at the rows once more when their turn comes. A number that has changed
//! meanwhile ends the transaction with [`Stop::Undeclared`], and its driver looks again.

use std::collections::BTreeMap;
use txn::{Key, KeySets, Request, Stop};

/// The declared keys of a request.
#[derive(Clone, Copy)]
pub(super) struct Guess<'a>(&'a KeySets);

/// The bytes of the number that ends a key.
const NUMBER_BYTES: usize = 4;

impl<'a> Guess<'a> {
    /// The guess that came with a request, if there is one.
    pub(super) fn of(request: &'a Request) -> Option<Guess<'a>> {
        request.footprint.keys.as_deref().map(Guess)
    }

    /// Whether the dry run has written the record.
    pub(super) fn writes(self, key: &Key) -> bool {
        self.0.writes.contains(key)
    }

    /// The number of the record whose key differs from `like` in its last number only.
    pub(super) fn number(self, like: &Key) -> Option<u32> {
        let bytes = like.as_bytes();
        let prefix = &bytes[..bytes.len() - NUMBER_BYTES];
        self.behind(prefix).find_map(|rest| Some(u32::from_be_bytes(rest.try_into().ok()?)))
    }

    /// How many lines each order has: `like` is the key of a line of the district.
    pub(super) fn lines_by_order(self, like: &Key) -> BTreeMap<u32, u8> {
        let bytes = like.as_bytes();
        let prefix = &bytes[..bytes.len() - NUMBER_BYTES - 1];
        let mut lines = BTreeMap::new();
        for rest in self.behind(prefix) {
            if let Some((number, &[line])) = rest.split_first_chunk() {
                let count = lines.entry(u32::from_be_bytes(*number)).or_default();
                *count = line.max(*count);
            }
        }
        lines
    }

    /// The last numbers of all records whose keys differ from `like` in these only, from the smallest on.
    pub(super) fn numbers(self, like: &Key) -> Vec<u32> {
        let bytes = like.as_bytes();
        let prefix = &bytes[..bytes.len() - NUMBER_BYTES];
        let numbers = self.behind(prefix).filter_map(|rest| Some(u32::from_be_bytes(rest.try_into().ok()?)));
        let mut numbers: Vec<u32> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The ends of the keys that begin like this.
    fn behind(self, prefix: &[u8]) -> impl Iterator<Item = &'a [u8]> {
        let keys = self.0.writes.iter().chain(&self.0.reads);
        keys.filter_map(move |key| key.as_bytes().strip_prefix(prefix))
    }
}

/// A guess was wrong.
pub(super) fn outdated() -> Stop {
    Stop::Undeclared(None)
}

/// Checks what was guessed.
pub(super) fn confirm(is_so: bool) -> Result<(), Stop> {
    if is_so { Ok(()) } else { Err(outdated()) }
}
