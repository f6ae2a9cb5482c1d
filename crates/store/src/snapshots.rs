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
//!
//! A *floor* keeps the versions of the past for readers that may come ([`Snapshots::keep_from`]): no
//! collector raises the watermark above it. It only rises while there is one. A reader of the past stores its
//! position into a slot and then loads the floor: if that is above its position, it was too late. A collector
//! loads the floor before it looks at the slots: so if it has loaded one above the position, and has missed
//! the slot, the reader's load comes later and finds that floor, or a higher one. And it loads the floor
//! behind the slots once more: the caller that sets the first floor protects it by an ordinary snapshot until
//! it is set.

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
    /// [`NO_FLOOR`], or the oldest position at which readers may open a snapshot.
    floor: AtomicU64,
}

const NO_FLOOR: u64 = u64::MAX;

impl Default for Snapshots {
    fn default() -> Snapshots {
        Snapshots {
            slots: (0..SLOTS).map(|_| CachePadded::default()).collect(),
            used: AtomicUsize::new(0),
            overflow: Mutex::default(),
            candidate: AtomicU64::new(0),
            watermark: AtomicU64::new(0),
            floor: AtomicU64::new(NO_FLOOR),
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
    /// Registers a reader at a position of the past; returns its slot. `None` if no version is kept for it.
    pub fn open_at(&self, position: Position) -> Option<usize> {
        let slot = self.register(position);
        if self.floor.load(Ordering::SeqCst) > position.0 {
            self.close(slot, position);
            return None;
        }
        Some(slot)
    }
    fn register(&self, position: Position) -> usize {
        let held = position.0 + 1;
        for (slot, cell) in self.slots.iter().enumerate() {
            if cell.load(Ordering::Relaxed) == 0
                && cell.compare_exchange(0, held, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            {
                self.used.fetch_max(slot + 1, Ordering::SeqCst);
                return slot;
            }
        }
        *self.overflow.lock().entry(position.0).or_insert(0) += 1;
        SLOTS
    }
    /// Keeps what readers at a position and behind it need, whether there are any; or nothing for readers
    /// that there are not. The first position is protected by a snapshot until this returns, and later ones
    /// are not below the one before: callers take turns.
    pub fn keep_from(&self, position: Option<Position>) {
        self.floor.store(position.map_or(NO_FLOOR, |position| position.0), Ordering::SeqCst);
    }
    /// Where [`Snapshots::keep_from`] keeps versions from.
    pub(crate) fn floor(&self) -> Option<Position> {
        let floor = self.floor.load(Ordering::SeqCst);
        (floor != NO_FLOOR).then_some(Position(floor))
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
        let mut least = final_position.0.min(self.floor.load(Ordering::SeqCst));
        for cell in &self.slots[..self.used.load(Ordering::SeqCst)] {
            let held = cell.load(Ordering::SeqCst);
            if held != 0 {
                least = least.min(held - 1);
            }
        }
        if let Some((&held, _)) = self.overflow.lock().first_key_value() {
            least = least.min(held);
        }
        least = least.min(self.floor.load(Ordering::SeqCst));
        let before = self.watermark.fetch_max(least, Ordering::SeqCst);
        Position(before.max(least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermark_stops_at_the_floor_and_readers_below_it_come_too_late() {
        let snapshots = Snapshots::default();
        assert_eq!(snapshots.open_at(Position(3)), None, "no past is kept");
        snapshots.keep_from(Some(Position(5)));
        assert_eq!(snapshots.raise(Position(9)), Position(5));
        assert_eq!(snapshots.open_at(Position(4)), None);
        let readers: Vec<usize> =
            (0..SLOTS + 2).map(|_| snapshots.open_at(Position(6)).expect("it is kept")).collect();
        snapshots.keep_from(Some(Position(8)));
        assert_eq!(snapshots.raise(Position(9)), Position(6), "readers hold what they had");
        readers.iter().for_each(|&slot| snapshots.close(slot, Position(6)));
        assert_eq!(snapshots.raise(Position(9)), Position(8));
        snapshots.keep_from(None);
        assert_eq!(snapshots.raise(Position(9)), Position(9));
    }

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
