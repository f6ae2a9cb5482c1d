//! Range tombstones.

use crate::TOMBSTONE_HORIZON;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use txn::Position;

/// The positions at which the whole user space was cleared, oldest first.
///
/// There is hardly ever one, so the common question ("is there a clear above this version?") is one atomic
/// load.
///
/// `Ordering::SeqCst` throughout: a transaction that clears inserts its position and then dooms every later
/// transaction that has begun, while a beginning transaction marks itself as begun and then reads with these
/// clears; either it sees the clear or the clear sees it.
#[derive(Debug, Default)]
pub struct Clears {
    newest: AtomicU64,
    positions: Mutex<Vec<Position>>,
}

impl Clears {
    /// Adds a clear.
    pub fn insert(&self, position: Position) {
        let mut positions = self.positions.lock();
        let index = positions.partition_point(|&other| other < position);
        if positions.get(index) != Some(&position) {
            positions.insert(index, position);
        }
        self.newest.store(positions.last().map_or(0, |last| last.0), Ordering::SeqCst);
    }
    /// Takes a clear back.
    pub fn remove(&self, position: Position) {
        let mut positions = self.positions.lock();
        positions.retain(|&other| other != position);
        self.newest.store(positions.last().map_or(0, |last| last.0), Ordering::SeqCst);
    }
    /// The newest clear at or below `upto`.
    #[inline]
    pub fn newest_upto(&self, upto: Position) -> Position {
        let newest = self.newest.load(Ordering::SeqCst);
        if newest <= upto.0 {
            return Position(newest);
        }
        let positions = self.positions.lock();
        let index = positions.partition_point(|&position| position <= upto);
        if index == 0 { Position::NONE } else { positions[index - 1] }
    }
    /// The version that a reader at `upto` is told for an absent key whose newest version is `version`.
    pub fn tombstone(&self, version: Position, upto: Position) -> Position {
        let removed = version.max(self.newest_upto(upto));
        // A reader "at upto" is a transaction at upto + 1.
        if removed != Position::NONE && upto.0 + 1 - removed.0 < TOMBSTONE_HORIZON {
            removed
        } else {
            Position::NONE
        }
    }
    /// Forgets the clears that are superseded behind `watermark`: of those at or below it only the newest
    /// matters.
    pub fn prune(&self, watermark: Position) {
        if self.newest.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut positions = self.positions.lock();
        let kept = positions.partition_point(|&position| position <= watermark);
        if kept > 1 {
            positions.drain(..kept - 1);
        }
    }
    /// All of them, oldest first: a checkpoint keeps them.
    pub fn all_upto(&self, upto: Position) -> Vec<Position> {
        self.positions.lock().iter().copied().filter(|&position| position <= upto).collect()
    }
}
