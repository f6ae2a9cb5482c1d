//! The versions of a key that has several.

use crate::clears::Clears;
use crate::packed::Packed;
use smallvec::{SmallVec, smallvec};
use txn::tx::Read;
use txn::{Entry, Position};

/// What a transaction left of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The transaction that wrote it.
    pub position: Position,
    /// What it wrote; `None` is a tombstone.
    pub entry: Option<Entry>,
}

/// Up to so many versions are moved for a single one that goes.
const MANY: usize = 32;

/// The versions of one key: at least one, at distinct positions, ascending.
#[derive(Debug)]
pub(crate) struct Versions(SmallVec<[Packed; 2]>);

const _: () = assert!(size_of::<Versions>() == 64, "a record with two versions takes one cache line more");

impl Versions {
    pub(crate) fn of(version: Packed) -> Versions {
        Versions(smallvec![version])
    }
    /// Takes the newest version, if there is no other.
    pub(crate) fn take_only(&mut self) -> Option<Packed> {
        if self.len() == 1 { self.0.pop() } else { None }
    }
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    /// The newest version.
    #[inline]
    pub(crate) fn newest(&self) -> &Packed {
        &self.0[self.0.len() - 1]
    }
    /// Where the versions above `upto` begin.
    #[inline]
    fn place_above(&self, upto: Position) -> usize {
        if self.newest().position() <= upto {
            return self.0.len();
        }
        self.0.partition_point(|version| version.position() <= upto)
    }
    /// The newest version at or below `upto`, clears not considered.
    #[inline]
    pub(crate) fn at(&self, upto: Position) -> Option<&Packed> {
        self.0.get(self.place_above(upto).checked_sub(1)?)
    }
    /// The oldest version above `position`.
    pub(crate) fn above(&self, position: Position) -> Option<&Packed> {
        self.0.get(self.place_above(position))
    }
    /// What a reader that sees versions up to `upto` gets (a transaction at `p` passes `p - 1`).
    #[inline]
    pub(crate) fn read(&self, upto: Position, clears: &Clears) -> Read {
        match self.at(upto) {
            Some(version) => version.seen(upto, clears),
            None => Packed::None.seen(upto, clears),
        }
    }
    /// Whether a reader that sees versions up to `upto` finds an entry.
    pub(crate) fn live(&self, upto: Position, clears: &Clears) -> bool {
        self.at(upto).is_some_and(|version| version.is_live(upto, clears))
    }
    /// Adds a version.
    pub(crate) fn insert(&mut self, version: Packed) {
        self.0.insert(self.place_above(version.position()), version);
    }
    /// Removes the version of a transaction, which is not the only one; whether there was one.
    pub(crate) fn remove(&mut self, position: Position) -> bool {
        let found = self.0.binary_search_by_key(&position, Packed::position);
        found.map(|place| self.0.remove(place)).is_ok()
    }
    /// Drops the versions that no reader at or beyond `watermark` can see: all below the newest one at or
    /// below it. Of many versions it drops none before half of them can go: those that stay are moved, which
    /// costs no more than a move for each version that goes.
    pub(crate) fn prune(&mut self, watermark: Position) {
        let gone = self.place_above(watermark).saturating_sub(1);
        if gone == 0 || gone * 2 < self.len() && self.len() > MANY {
            return;
        }
        self.0.drain(..gone);
        if self.0.capacity() > MANY && self.0.capacity() > 4 * self.len() {
            self.0.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::RecordCell;

    fn version(position: u64, value: Option<&str>) -> Version {
        Version { position: Position(position), entry: value.map(Entry::new) }
    }

    fn packed(position: u64, value: Option<&str>) -> Packed {
        version(position, value).into()
    }

    fn positions(versions: &Versions) -> Vec<u64> {
        versions.0.iter().rev().map(|version| version.position().0).collect()
    }

    #[test]
    fn versions_stay_sorted_whatever_the_order_of_insertion() {
        let mut versions = Versions::of(packed(5, Some("x")));
        for position in [2, 9, 7, 1] {
            versions.insert(packed(position, Some("x")));
        }
        assert_eq!(positions(&versions), [9, 7, 5, 2, 1]);
        assert_eq!(versions.at(Position(6)).unwrap().position(), Position(5));
        assert_eq!(versions.above(Position(5)).unwrap().position(), Position(7));
        assert_eq!(versions.above(Position(7)).unwrap().position(), Position(9));
        assert!(versions.above(Position(9)).is_none());
        assert!(versions.at(Position(0)).is_none());
        assert!(
            versions.remove(Position(9)) && versions.remove(Position(2)) && !versions.remove(Position(4))
        );
        assert_eq!(positions(&versions), [7, 5, 1]);
    }

    #[test]
    fn pruning_keeps_what_the_watermark_can_see() {
        for (watermark, kept) in
            [(0, vec![9, 5, 2]), (4, vec![9, 5, 2]), (5, vec![9, 5]), (8, vec![9, 5]), (9, vec![9])]
        {
            let mut versions = Versions::of(packed(2, Some("x")));
            for position in [5, 9] {
                versions.insert(packed(position, Some("x")));
            }
            versions.prune(Position(watermark));
            assert_eq!(positions(&versions), kept, "watermark {watermark}");
        }
    }

    #[test]
    fn of_many_versions_half_go_at_a_time_and_those_that_are_needed_stay() {
        let mut versions = Versions::of(packed(1, Some("x")));
        (2..=1_000).for_each(|position| versions.insert(packed(position, Some("x"))));
        // Each removal moves what stays: so there are few of them, and at most twice as many versions.
        let mut removals = 0;
        for watermark in 1..=1_000 {
            let before = versions.len();
            versions.prune(Position(watermark));
            removals += usize::from(versions.len() < before);
            let needed = 1_001 - watermark as usize;
            assert!(versions.len() >= needed && versions.len() <= (2 * needed).max(MANY), "at {watermark}");
            assert!((watermark..=1_000).all(|upto| {
                versions.at(Position(upto)).is_some_and(|version| version.position() == Position(upto))
            }));
        }
        assert_eq!(positions(&versions), [1_000]);
        assert!(removals <= 2 * MANY, "{removals} removals");
        assert!(versions.0.capacity() <= MANY, "{} versions have room", versions.0.capacity());
    }

    #[test]
    fn clears_and_the_horizon_define_what_is_absent() {
        let clears = Clears::default();
        let mut versions = RecordCell::<()>::default();
        versions.insert(version(3, Some("x")));
        clears.insert(Position(10));
        assert!(versions.live(Position(9), &clears));
        assert!(!versions.live(Position(10), &clears));
        assert_eq!(versions.read(Position(12), &clears), Read { entry: None, version: Position(10) });
        versions.insert(version(11, None));
        assert_eq!(versions.read(Position(12), &clears).version, Position(11));
        let far = Position(11 + crate::TOMBSTONE_HORIZON);
        assert_eq!(versions.read(far.prev().prev(), &clears).version, Position(11));
        assert_eq!(versions.read(far, &clears).version, Position::NONE);
        versions.prune(far);
        assert!(versions.is_forgettable(far, &clears) && !versions.is_forgettable(Position(12), &clears));
    }

    #[test]
    fn a_delete_is_forgotten_with_the_clear_of_its_own_transaction_and_reads_the_same() {
        let clears = Clears::default();
        clears.insert(Position(10));
        for (deleted, forgettable) in [(9, true), (10, true), (11, false)] {
            let mut versions = RecordCell::<()>::default();
            versions.insert(version(deleted, None));
            assert_eq!(versions.is_forgettable(Position(12), &clears), forgettable, "deleted at {deleted}");
            let forgotten = RecordCell::<()>::default().read(Position(12), &clears);
            assert_eq!(versions.read(Position(12), &clears) == forgotten, forgettable);
        }
    }
}
