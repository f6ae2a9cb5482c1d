//! Who still reads where.
//!
//! A reader must be able to open a snapshot at the final position without a lock, and a collector must never
//! take a version from under it. The two meet in three variables:
//!
//! - a reader reads the final position `s`, stores `s` into a slot of its own, and then loads `candidate`: if
//!   that is above `s`, a collector may have missed the slot, so the reader starts again with the newer final
//!   position;
//! - a collector raises `candidate` to the final position, then looks at all slots, and only then raises
//!   `watermark` to the least position that it found. Versions are pruned by `watermark`.
//!
//! All are sequentially consistent. If the reader's load saw a candidate at or below `s`, every collector
//! with a higher candidate raised it later, looks at the slots later still, and finds `s`. The reader's
//! retries end because a candidate never exceeds the final position.

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use txn::Position;

/// Snapshots that can be open at once without the overflow's mutex.
const SLOTS: usize = 64;

/// The registered readers, and the watermark that protects what they see.
#[derive(Debug)]
pub struct Snapshots {
    /// 0: free; else the position plus one.
    slots: Box<[CachePadded<AtomicU64>]>,
    /// How many slots were ever in use: collectors look no further.
    used: AtomicUsize,
    /// Positions of readers that found no slot, with their number.
    overflow: Mutex<BTreeMap<u64, usize>>,
    candidate: AtomicU64,
    watermark: AtomicU64,
}

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            slots: (0..SLOTS).map(|_| CachePadded::default()).collect(),
            used: AtomicUsize::new(0),
            overflow: Mutex::default(),
            candidate: AtomicU64::new(0),
            watermark: AtomicU64::new(0),
        }
    }
}

impl Snapshots {
    /// Registers a reader at a position that `newest` gives; returns its slot and what `newest` gave last.
    pub fn open<F: Copy>(&self, newest: impl Fn() -> F, position: impl Fn(F) -> Position) -> (usize, F) {
        let mut found = newest();
        for (slot, cell) in self.slots.iter().enumerate() {
            if cell.load(Ordering::Relaxed) != 0
                || cell
                    .compare_exchange(0, position(found).0 + 1, Ordering::SeqCst, Ordering::SeqCst)
                    .is_err()
            {
                continue;
            }
            if self.used.load(Ordering::SeqCst) <= slot {
                self.used.fetch_max(slot + 1, Ordering::SeqCst);
                // A collector that read the old length may have missed this slot: claim it again from the
                // start.
                found = newest();
                cell.store(position(found).0 + 1, Ordering::SeqCst);
            }
            while self.candidate.load(Ordering::SeqCst) > position(found).0 {
                found = newest();
                cell.store(position(found).0 + 1, Ordering::SeqCst);
            }
            return (slot, found);
        }
        let mut overflow = self.overflow.lock();
        found = newest();
        // The collector takes the mutex after it raised the candidate, so whatever is newest now is not below
        // it.
        *overflow.entry(position(found).0).or_insert(0) += 1;
        (SLOTS, found)
    }
    /// Takes a reader off the books.
    pub fn close(&self, slot: usize, position: Position) {
        if let Some(cell) = self.slots.get(slot) {
            cell.store(0, Ordering::SeqCst);
            return;
        }
        let mut overflow = self.overflow.lock();
        if let Some(count) = overflow.get_mut(&position.0) {
            *count -= 1;
            if *count == 0 {
                overflow.remove(&position.0);
            }
        }
    }
    /// The watermark as it was last raised.
    #[inline]
    pub fn watermark(&self) -> Position {
        Position(self.watermark.load(Ordering::Relaxed))
    }
    /// Raises the watermark as far as the readers allow, at most to `final_position`.
    pub fn raise(&self, final_position: Position) -> Position {
        self.candidate.fetch_max(final_position.0, Ordering::SeqCst);
        let mut least = final_position.0;
        for cell in &self.slots[..self.used.load(Ordering::SeqCst)] {
            let held = cell.load(Ordering::SeqCst);
            if held != 0 {
                least = least.min(held - 1);
            }
        }
        if let Some((&held, _)) = self.overflow.lock().first_key_value() {
            least = least.min(held);
        }
        let before = self.watermark.fetch_max(least, Ordering::SeqCst);
        Position(before.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_stops_at_the_oldest_reader() {
        let snapshots = Snapshots::default();
        let (slot, at) = snapshots.open(|| 5, Position);
        assert_eq!(at, 5);
        let many: Vec<_> = (0..SLOTS + 3).map(|_| snapshots.open(|| 7, Position)).collect();
        assert_eq!(snapshots.raise(Position(9)), Position(5));
        snapshots.close(slot, Position(5));
        assert_eq!(snapshots.raise(Position(9)), Position(7));
        // The candidate is 9 now: a reader that still believes in 8 must look again.
        let answers = std::cell::Cell::new(7);
        let (slot, at) = snapshots.open(
            || {
                answers.set(answers.get() + 1);
                answers.get()
            },
            Position,
        );
        assert!(at >= 9 || slot == SLOTS);
        for (slot, at) in many {
            snapshots.close(slot, Position(at));
        }
        snapshots.close(slot, Position(at));
        assert_eq!(snapshots.raise(Position(12)), Position(12));
    }
}
