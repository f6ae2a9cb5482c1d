//! Records: a key, its versions, and what an engine keeps of it.

use crate::clears::Clears;
use crate::packed::Packed;
use crate::sync::{Mutex, MutexGuard};
use crate::usage::Usage;
use crate::versions::{Version, Versions};
use std::sync::Arc as SharedBytes;
use triomphe::Arc;
use txn::tx::Read;
use txn::{Blob, Key, Position, Space};

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

/// What the latch of a record protects: the key's versions and the engine's part.
#[derive(Debug)]
pub struct RecordCell<M> {
    /// The engine's part.
    pub meta: M,
    versions: Held,
}

/// Most keys have one version, which is packed, or none.
#[derive(Debug)]
enum Held {
    One(Packed),
    /// At least two.
    Several(Box<Versions>),
}

impl<M: Default> Default for RecordCell<M> {
    fn default() -> RecordCell<M> {
        RecordCell { meta: M::default(), versions: Held::One(Packed::None) }
    }
}

impl<M: Meta> RecordCell<M> {
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.versions, Held::One(Packed::Dead))
    }
    /// Marks the record as removed from the index: look the key up again.
    pub(crate) fn kill(&mut self) {
        self.versions = Held::One(Packed::Dead);
    }
    /// Drops the last version, where [`RecordCell::is_forgettable`] says that it tells nothing any more.
    pub(crate) fn forget(&mut self) {
        self.versions = Held::One(Packed::None);
    }
    /// How many versions there are.
    pub fn len(&self) -> usize {
        match &self.versions {
            Held::One(newest) => usize::from(newest.position() != Position::NONE),
            Held::Several(versions) => versions.len(),
        }
    }
    /// Whether there is no version.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The newest version.
    pub fn newest(&self) -> Option<Version> {
        match &self.versions {
            Held::One(newest) => (newest.position() != Position::NONE).then(|| newest.clone().into()),
            Held::Several(versions) => Some(versions.newest().clone().into()),
        }
    }
    /// Whether the newest version is an entry, clears not considered.
    pub fn is_present(&self) -> bool {
        match &self.versions {
            Held::One(newest) => newest.is_present(),
            Held::Several(versions) => versions.newest().is_present(),
        }
    }
    /// See [`Packed::load`]. A record with several versions was touched lately.
    pub(crate) fn load(&self) -> usize {
        match &self.versions {
            Held::One(newest) => newest.load(),
            Held::Several(_) => 0,
        }
    }
    /// The position of the newest version at or below `upto`; [`Position::NONE`] if there is none.
    #[inline]
    pub fn position_at(&self, upto: Position) -> Position {
        match &self.versions {
            Held::One(newest) => Some(newest.position()).filter(|position| *position <= upto),
            Held::Several(versions) => versions.at(upto).map(Packed::position),
        }
        .unwrap_or(Position::NONE)
    }
    /// The position of the oldest version above `position`.
    pub fn position_above(&self, position: Position) -> Option<Position> {
        match &self.versions {
            Held::One(newest) => Some(newest.position()).filter(|other| *other > position),
            Held::Several(versions) => versions.above(position).map(Packed::position),
        }
    }
    /// What a reader that sees versions up to `upto` gets (a transaction at `p` passes `p - 1`).
    #[inline]
    pub fn read(&self, upto: Position, clears: &Clears) -> Read {
        match &self.versions {
            Held::One(newest) if newest.position() <= upto => newest.seen(upto, clears),
            Held::One(_) => Packed::None.seen(upto, clears),
            Held::Several(versions) => versions.read(upto, clears),
        }
    }
    /// Of the entry that a reader finds who sees versions up to `upto`: the position of its write, when it
    /// expires (0: never), and the heap bytes of its value.
    pub(crate) fn outline(&self, upto: Position, clears: &Clears) -> Option<(Position, u64, usize)> {
        match &self.versions {
            Held::One(newest) if newest.position() <= upto && newest.is_live(upto, clears) => {
                newest.outline().map(|(expires_at_ms, bytes)| (newest.position(), expires_at_ms, bytes))
            }
            Held::One(_) => None,
            Held::Several(versions) => {
                let Read { entry, version } = versions.read(upto, clears);
                entry.map(|entry| (version, entry.expires_at_ms, entry.value.heap_bytes()))
            }
        }
    }
    /// Whether a reader that sees versions up to `upto` finds an entry.
    pub fn live(&self, upto: Position, clears: &Clears) -> bool {
        match &self.versions {
            Held::One(newest) => newest.position() <= upto && newest.is_live(upto, clears),
            Held::Several(versions) => versions.live(upto, clears),
        }
    }
    /// Adds a version, and drops those that no reader at or beyond `watermark` can see.
    pub fn supersede(&mut self, version: Version, watermark: Position) {
        // Those that are left are not packed first, only to be unpacked.
        if let Held::Several(versions) = &mut self.versions {
            versions.prune(watermark);
        }
        self.insert(version);
    }
    /// Adds a version.
    pub fn insert(&mut self, version: Version) {
        debug_assert!(!self.is_dead() && version.position > Position::NONE);
        debug_assert!(self.position_at(version.position) < version.position, "positions are distinct");
        match &mut self.versions {
            Held::One(newest @ Packed::None) => *newest = version.into(),
            Held::One(newest) => {
                let mut versions = Versions::of(std::mem::take(newest));
                versions.insert(version.into());
                self.versions = Held::Several(Box::new(versions));
            }
            Held::Several(versions) => versions.insert(version.into()),
        }
    }
    /// Replaces everything by one version: for engines that keep no old versions.
    pub fn replace(&mut self, version: Version) {
        self.versions = Held::One(version.into());
    }
    /// Removes the version of a transaction; whether there was one.
    pub fn remove(&mut self, position: Position) -> bool {
        match &mut self.versions {
            Held::One(newest) => {
                let found = newest.position() == position;
                if found {
                    *newest = Packed::None;
                }
                found
            }
            Held::Several(versions) => {
                let found = versions.remove(position);
                self.pack();
                found
            }
        }
    }
    /// Drops the versions that no reader at or beyond `watermark` can see: all below the newest one at or
    /// below it.
    #[inline]
    pub fn prune(&mut self, watermark: Position) {
        if let Held::Several(versions) = &mut self.versions {
            versions.prune(watermark);
            self.pack();
        }
    }
    /// Packs the version that is alone.
    fn pack(&mut self) {
        if let Held::Several(versions) = &mut self.versions
            && let Some(newest) = versions.take_only()
        {
            self.versions = Held::One(newest);
        }
    }
    /// Whether, behind `watermark`, nothing is left to say of this key: there is no version, or a lone
    /// tombstone (or a cleared entry) beyond the horizon.
    pub fn is_forgettable(&self, watermark: Position, clears: &Clears) -> bool {
        let Held::One(newest) = &self.versions else { return false };
        let (position, is_present) = (newest.position(), newest.is_present());
        if position == Position::NONE || position > watermark {
            return position == Position::NONE;
        }
        let floor = clears.newest_upto(watermark);
        // What a clear covers, it tells: it is remembered apart, so the record may go at once. So may the
        // delete of a transaction that cleared as well; a checkpoint leaves that out, too.
        position < floor
            || !is_present && (position == floor || clears.tombstone(position, watermark) == Position::NONE)
    }
}

/// The longest key that a record has in place.
const KEY_BYTES_MAX: usize = 17;

/// A key, with the word of its record's usage in the room that a [`Key`] would leave.
#[derive(Debug)]
enum RecordKey {
    Short { space: Space, length: u8, bytes: [u8; KEY_BYTES_MAX], usage: Usage },
    Long { space: Space, usage: Usage, bytes: SharedBytes<[u8]> },
}

const _: () = assert!(
    size_of::<RecordKey>() == 24,
    "a record without an engine's part is 64 bytes with its count: docs/memory.md"
);

impl RecordKey {
    fn new(key: &Key) -> RecordKey {
        let (space, usage, name) = (key.space(), Usage::default(), key.as_bytes());
        if name.len() > KEY_BYTES_MAX {
            return RecordKey::Long { space, usage, bytes: key.to_blob().into_shared() };
        }
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name);
        RecordKey::Short { space, length: name.len() as u8, bytes, usage }
    }
    #[inline]
    fn as_bytes(&self) -> &[u8] {
        match self {
            RecordKey::Short { length, bytes, .. } => &bytes[..usize::from(*length)],
            RecordKey::Long { bytes, .. } => bytes,
        }
    }
    #[inline]
    fn space(&self) -> Space {
        match self {
            RecordKey::Short { space, .. } | RecordKey::Long { space, .. } => *space,
        }
    }
}

/// A key with its versions.
#[derive(Debug)]
pub struct Record<M> {
    key: RecordKey,
    cell: Mutex<RecordCell<M>>,
}

// The model checker's latches are larger.
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(
    size_of::<Record<()>>() == 56,
    "with its reference count a record without an engine's part is 64 bytes: one cache line"
);

/// A shared record.
pub type RecordRef<M> = Arc<Record<M>>;

impl<M: Meta> Record<M> {
    pub(crate) fn new(key: &Key) -> Record<M> {
        Record { key: RecordKey::new(key), cell: Mutex::new(RecordCell::default()) }
    }
    /// The key.
    #[inline]
    pub fn key(&self) -> Key {
        match &self.key {
            RecordKey::Short { space, .. } => Key::in_space(*space, self.key.as_bytes()),
            RecordKey::Long { space, bytes, .. } => Key::of_blob(*space, Blob::from(bytes.clone())),
        }
    }
    /// Whether the record is this key's.
    #[inline]
    pub fn is_of(&self, key: &Key) -> bool {
        self.key.as_bytes() == key.as_bytes() && self.key.space() == key.space()
    }
    /// The key's space.
    #[inline]
    pub fn space(&self) -> Space {
        self.key.space()
    }
    #[inline]
    pub(crate) fn usage(&self) -> &Usage {
        match &self.key {
            RecordKey::Short { usage, .. } | RecordKey::Long { usage, .. } => usage,
        }
    }
    /// Latches a record that can't have been removed, because the caller holds something in it: a lock, a
    /// version above the watermark, or a place among the waiters.
    #[inline]
    pub fn latch_held(&self) -> MutexGuard<'_, RecordCell<M>> {
        let cell = self.cell.lock();
        debug_assert!(!cell.is_dead(), "a record with something in it was removed");
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

    #[test]
    fn a_record_has_the_key_that_it_was_made_for_whatever_its_length() {
        for length in 0..40 {
            for space in [Space::User, Space::System] {
                let key = Key::in_space(space, &vec![7; length]);
                let record: Record<()> = Record::new(&key);
                assert_eq!((record.key(), record.space(), record.is_of(&key)), (key, space, true));
            }
        }
    }
}
