//! Records and their versions.

use crate::clears::Clears;
use crate::sync::{Mutex, MutexGuard};
use crate::usage::Usage;
use thin_vec::ThinVec;
use triomphe::Arc;
use txn::tx::Read;
use txn::{Entry, Key, Position, Value};

/// What a transaction left of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The transaction that wrote it.
    pub position: Position,
    /// What it wrote; `None` is a tombstone.
    pub entry: Option<Entry>,
}

/// The versions of one key.
///
/// Guarantees: positions are distinct; the newest is in place, so that a key with one version costs no
/// allocation; there are no versions iff the newest has position [`Position::NONE`].
#[derive(Debug)]
pub struct Versions {
    newest: Version,
    /// Ascending; all below `newest`.
    older: ThinVec<Version>,
}

impl Default for Versions {
    fn default() -> Versions {
        Versions { newest: Version { position: Position::NONE, entry: None }, older: ThinVec::new() }
    }
}

/// The position of the newest "version" of a record that was removed from the index. In the place of a flag,
/// because a flag would cost every record eight bytes. No reader's position reaches it.
const DEAD: Position = Position(u64::MAX);

impl Versions {
    /// Marks the record as removed from the index: look the key up again.
    pub(crate) fn kill(&mut self) {
        self.newest = Version { position: DEAD, entry: None };
    }
    /// Drops the last version, where [`Versions::is_forgettable`] says that it tells nothing any more.
    pub(crate) fn forget(&mut self) {
        *self = Versions::default();
    }
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.newest.position == DEAD
    }
    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(!self.is_empty()) + self.older.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest.position == Position::NONE
    }
    /// The newest version.
    pub fn newest(&self) -> Option<&Version> {
        (!self.is_empty()).then_some(&self.newest)
    }
    /// The newest version's string, if it is one.
    pub(crate) fn newest_bytes(&self) -> &[u8] {
        match self.newest.entry.as_ref().map(|entry| &entry.value) {
            Some(Value::String(bytes)) => bytes.as_bytes(),
            _ => &[],
        }
    }
    /// The newest version at or below `upto`, clears not considered.
    #[inline]
    pub fn at(&self, upto: Position) -> Option<&Version> {
        if self.newest.position <= upto {
            return self.newest();
        }
        let upto = self.older.partition_point(|version| version.position <= upto);
        self.older.get(upto.checked_sub(1)?)
    }
    /// The oldest version above `position`.
    pub fn above(&self, position: Position) -> Option<&Version> {
        if self.newest.position <= position {
            return None;
        }
        self.older.iter().find(|version| version.position > position).or_else(|| self.newest())
    }
    /// What a reader that sees versions up to `upto` finds.
    #[inline]
    pub fn entry(&self, upto: Position, clears: &Clears) -> Option<&Entry> {
        let version = self.at(upto)?;
        let entry = version.entry.as_ref()?;
        (version.position >= clears.newest_upto(upto)).then_some(entry)
    }
    /// What a reader that sees versions up to `upto` gets (a transaction at `p` passes `p - 1`).
    #[inline]
    pub fn read(&self, upto: Position, clears: &Clears) -> Read {
        let Some(version) = self.at(upto) else {
            return Read { entry: None, version: clears.tombstone(Position::NONE, upto) };
        };
        let floor = clears.newest_upto(upto);
        match &version.entry {
            Some(entry) if version.position >= floor => {
                Read { entry: Some(entry.clone()), version: version.position }
            }
            _ => Read { entry: None, version: clears.tombstone(version.position, upto) },
        }
    }
    /// Whether a reader that sees versions up to `upto` finds an entry.
    pub fn live(&self, upto: Position, clears: &Clears) -> bool {
        self.entry(upto, clears).is_some()
    }
    /// Adds a version.
    pub fn insert(&mut self, version: Version) {
        debug_assert!(version.position > Position::NONE);
        if version.position > self.newest.position {
            let below = std::mem::replace(&mut self.newest, version);
            if below.position != Position::NONE {
                if self.older.capacity() == 0 {
                    self.older.reserve_exact(1);
                }
                self.older.push(below);
            }
            return;
        }
        let index = self.older.partition_point(|older| older.position < version.position);
        self.older.insert(index, version);
    }
    /// Replaces everything by one version: for engines that keep no old versions.
    pub fn replace(&mut self, version: Version) {
        self.newest = version;
        self.older.clear();
    }
    /// Removes the version of a transaction; whether there was one.
    pub fn remove(&mut self, position: Position) -> bool {
        if self.newest.position == position {
            self.newest = self.older.pop().unwrap_or(Version { position: Position::NONE, entry: None });
            return true;
        }
        match self.older.binary_search_by_key(&position, |version| version.position) {
            Ok(index) => {
                self.older.remove(index);
                true
            }
            Err(_) => false,
        }
    }
    /// Drops the versions that no reader at or beyond `watermark` can see: all below the newest one at or
    /// below it.
    pub fn prune(&mut self, watermark: Position) {
        if self.older.is_empty() {
            return;
        }
        if self.newest.position <= watermark {
            self.older = ThinVec::new();
            return;
        }
        let kept = self.older.partition_point(|version| version.position <= watermark);
        if kept > 1 {
            self.older.drain(..kept - 1);
        }
    }
    /// Whether, behind `watermark`, nothing is left to say of this key: there is no version, or a lone
    /// tombstone (or a cleared entry) beyond the horizon.
    pub fn is_forgettable(&self, watermark: Position, clears: &Clears) -> bool {
        if !self.older.is_empty() {
            return false;
        }
        match self.newest() {
            None => true,
            Some(version) if version.position > watermark => false,
            Some(version) => {
                let floor = clears.newest_upto(watermark);
                // What a clear covers, it tells: it is remembered apart, so the record may go at once. So may
                // the delete of a transaction that cleared as well; a checkpoint leaves that out, too.
                version.position < floor
                    || version.entry.is_none()
                        && (version.position == floor
                            || clears.tombstone(version.position, watermark) == Position::NONE)
            }
        }
    }
    /// All versions, newest first.
    pub fn iter(&self) -> impl Iterator<Item = &Version> {
        self.newest().into_iter().chain(self.older.iter().rev())
    }
}

/// What an engine keeps per record, beside the versions.
pub trait Meta: Default + Send + 'static {
    /// Drops what concerns only transactions up to `final_position`; whether nothing is left.
    fn collect(&mut self, final_position: Position) -> bool;
    /// Locks, waiters and read dependencies held, for leak checks.
    fn weight(&self) -> u64;
}

impl Meta for () {
    fn collect(&mut self, _: Position) -> bool {
        true
    }
    fn weight(&self) -> u64 {
        0
    }
}

/// What the latch of a record protects.
#[derive(Debug, Default)]
pub struct RecordCell<M> {
    /// The key's versions.
    pub versions: Versions,
    /// The engine's part.
    pub meta: M,
}

/// A key with its versions.
#[derive(Debug)]
pub struct Record<M> {
    key: Key,
    /// In the eight bytes that a count of weak references would take: [`RecordRef`] has none.
    usage: Usage,
    cell: Mutex<RecordCell<M>>,
}

/// A shared record.
pub type RecordRef<M> = Arc<Record<M>>;

impl<M: Meta> Record<M> {
    pub(crate) fn new(key: Key) -> Record<M> {
        Record { key, usage: Usage::default(), cell: Mutex::new(RecordCell::default()) }
    }
    /// The key.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }
    #[inline]
    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }
    /// Latches a record that can't have been removed, because the caller holds something in it: a lock, a
    /// version above the watermark, or a place among the waiters.
    #[inline]
    pub fn latch_held(&self) -> MutexGuard<'_, RecordCell<M>> {
        let cell = self.cell.lock();
        debug_assert!(!cell.versions.is_dead(), "a record with something in it was removed");
        cell
    }
    /// Latches the record if nobody else does.
    pub(crate) fn try_latch(&self) -> Option<MutexGuard<'_, RecordCell<M>>> {
        self.cell.try_lock()
    }
    #[inline]
    pub(crate) fn latch_any(&self) -> MutexGuard<'_, RecordCell<M>> {
        self.cell.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(position: u64, value: Option<&str>) -> Version {
        Version { position: Position(position), entry: value.map(Entry::new) }
    }

    fn positions(versions: &Versions) -> Vec<u64> {
        versions.iter().map(|version| version.position.0).collect()
    }

    #[test]
    fn versions_stay_sorted_whatever_the_order_of_insertion() {
        let mut versions = Versions::default();
        for position in [5, 2, 9, 7, 1] {
            versions.insert(version(position, Some("x")));
        }
        assert_eq!(positions(&versions), [9, 7, 5, 2, 1]);
        assert_eq!(versions.at(Position(6)).unwrap().position, Position(5));
        assert_eq!(versions.above(Position(5)).unwrap().position, Position(7));
        assert_eq!(versions.above(Position(7)).unwrap().position, Position(9));
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
            let mut versions = Versions::default();
            for position in [2, 5, 9] {
                versions.insert(version(position, Some("x")));
            }
            versions.prune(Position(watermark));
            assert_eq!(positions(&versions), kept, "watermark {watermark}");
        }
    }

    #[test]
    fn clears_and_the_horizon_define_what_is_absent() {
        let clears = Clears::default();
        let mut versions = Versions::default();
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
            let mut versions = Versions::default();
            versions.insert(version(deleted, None));
            assert_eq!(versions.is_forgettable(Position(12), &clears), forgettable, "deleted at {deleted}");
            let forgotten = Versions::default().read(Position(12), &clears);
            assert_eq!(versions.read(Position(12), &clears) == forgotten, forgettable);
        }
    }
}
