//! INFO's errorstats: error replies by their codes.
//!
//! A code is the first word of an error (`ERR`, `WRONGTYPE`). Scripts can make up as many as they like, so
//! only the first [`CODES_MAX`] have counts of their own; what comes later is counted together as
//! [`OVERFLOW`]. Each thread counts for itself, under a lock that only INFO and CONFIG RESETSTAT ask for as
//! well; which codes have counts is decided for all threads together.
//!
//! Locks are taken in one order: the counts of threads, then the codes.

use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::Reply;

/// How many codes have counts of their own.
pub const CODES_MAX: usize = 128;
/// Stands for all other codes. Redis calls it so.
pub const OVERFLOW: &str = "ERRORSTATS_OVERFLOW";

type Codes = Mutex<BTreeSet<Box<str>>>;

/// The counts of one thread.
#[derive(Default)]
pub struct ErrorCounts {
    counts: Mutex<BTreeMap<Box<str>, u64>>,
    /// The codes that have counts of their own, of all threads.
    codes: Arc<Codes>,
}

impl ErrorCounts {
    /// The counts of so many threads.
    pub fn of_threads(count: usize) -> Vec<ErrorCounts> {
        let codes: Arc<Codes> = Arc::default();
        let own = |_| ErrorCounts { counts: Mutex::default(), codes: codes.clone() };
        (0..count).map(own).collect()
    }

    /// Counts a reply if it is an error, and the errors that it consists of if it is the reply of a block or
    /// a script. Returns how many errors that is.
    #[inline]
    pub fn count(&self, reply: &Reply) -> u64 {
        match reply {
            Reply::Error(text) => {
                self.add(code_of(text));
                1
            }
            Reply::Array(items) => items
                .iter()
                .filter(|item| matches!(item, Reply::Error(_) | Reply::Array(_)))
                .map(|item| self.count(item))
                .sum(),
            _ => 0,
        }
    }

    fn add(&self, code: &str) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(code) {
            *count += 1;
            return;
        }
        let mut codes = self.codes.lock();
        let code = if codes.contains(code) {
            code
        } else if codes.len() < CODES_MAX {
            codes.insert(code.into());
            code
        } else {
            OVERFLOW
        };
        *counts.entry(code.into()).or_default() += 1;
    }
}

/// Sums over threads.
pub fn totals<'a>(threads: impl Iterator<Item = &'a ErrorCounts>) -> BTreeMap<Box<str>, u64> {
    let mut totals = BTreeMap::new();
    for thread in threads {
        for (code, count) in &*thread.counts.lock() {
            *totals.entry(code.clone()).or_default() += count;
        }
    }
    totals
}

/// Starts all threads' counts, and the choice of codes, again.
pub fn reset<'a>(threads: impl Iterator<Item = &'a ErrorCounts>) {
    // All at once: a count that outlived its code would let more than the allowed codes in.
    let mut held: Vec<_> = threads.map(|thread| (thread.counts.lock(), &thread.codes)).collect();
    for (counts, codes) in &mut held {
        counts.clear();
        codes.lock().clear();
    }
}

/// The first word of an error, as Redis finds it: what has no word of reasonable length in front counts as
/// `ERR`.
fn code_of(text: &str) -> &str {
    const CODE_BYTES_MAX: usize = 30;
    match text.find(' ') {
        Some(end @ 1..=CODE_BYTES_MAX) => &text[..end],
        _ => "ERR",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> Reply {
        Reply::error_owned(text.to_owned())
    }

    fn shown(threads: &[ErrorCounts]) -> String {
        let totals = totals(threads.iter());
        let shown = totals.iter().map(|(code, count)| format!("{code}={count}"));
        shown.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn errors_are_counted_by_their_first_word() {
        let threads = ErrorCounts::of_threads(2);
        assert_eq!(threads[0].count(&error("ERR syntax error")), 1);
        assert_eq!(threads[1].count(&error("ERR no such key")), 1);
        assert_eq!(threads[1].count(&error("oneword")), 1);
        let long = format!("{} and more", "X".repeat(31));
        assert_eq!(threads[1].count(&error(&long)), 1);
        assert_eq!(threads[1].count(&Reply::OK), 0);
        let nested = Reply::Array(vec![error("WRONGTYPE x"), Reply::Nil, error("NOAUTH y")]);
        assert_eq!(threads[0].count(&Reply::Array(vec![nested, error("WRONGTYPE z")])), 3);
        assert_eq!(shown(&threads), "ERR=4 NOAUTH=1 WRONGTYPE=2");
        reset(threads.iter());
        assert_eq!(shown(&threads), "");
    }

    #[test]
    fn only_so_many_codes_are_told_apart_whatever_the_thread() {
        let threads = ErrorCounts::of_threads(3);
        for round in 0..2 {
            for number in 0..CODES_MAX + 50 {
                threads[(number + round) % 3].count(&error(&format!("E{number:04} made up")));
            }
        }
        let counted = totals(threads.iter());
        assert_eq!(counted.len(), CODES_MAX + 1);
        assert_eq!(counted[OVERFLOW], 100);
        assert_eq!(counted["E0127"], 2);
        assert_eq!(counted.values().sum::<u64>(), 2 * (CODES_MAX as u64 + 50));
        // Whatever filled them up, the codes that matter can be had again.
        reset(threads.iter());
        threads[2].count(&error("ERR again"));
        assert_eq!(shown(&threads), "ERR=1");
    }
}
