//! Records: a key, its versions, and what an engine keeps of it.

use crate::clears::Clears;
use crate::newest::Newest;
use crate::sync::{Mutex, MutexGuard};
use crate::usage::Usage;
use crate::versions::{Version, Versions, seen};
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
///
/// ```text
///           a second version, or the engine's part
///   Idle ─────────────────────────────────────────▶ Busy
///    ▲                    collect                    │
///    └───────────────────────────────────────────────┘
/// ```
/// Invariant: an idle record has at most one version, and nothing of an engine.
#[derive(Debug)]
pub struct RecordCell<M>(State<M>);

#[derive(Debug)]
enum State<M> {
    Idle(Newest),
    Busy(Box<Busy<M>>),
}

#[derive(Debug)]
struct Busy<M> {
    versions: Versions,
    meta: M,
}

impl<M> Default for RecordCell<M> {
    fn default() -> RecordCell<M> {
        RecordCell(State::Idle(Newest::None))
    }
}

impl<M: Meta> RecordCell<M> {
    fn busy(&mut self) -> &mut Busy<M> {
        if let State::Idle(newest) = &mut self.0 {
            let versions = Versions::from(Version::from(std::mem::take(newest)));
            self.0 = State::Busy(Box::new(Busy { versions, meta: M::default() }));
        }
        match &mut self.0 {
            State::Busy(busy) => busy,
            State::Idle(_) => unreachable!("it was made busy"),
        }
    }
    /// The engine's part, if there is one.
    #[inline]
    pub fn meta(&self) -> Option<&M> {
        match &self.0 {
            State::Idle(_) => None,
            State::Busy(busy) => Some(&busy.meta),
        }
    }
    /// The engine's part to be changed, if there is one.
    #[inline]
    pub fn meta_mut(&mut self) -> Option<&mut M> {
        match &mut self.0 {
            State::Idle(_) => None,
            State::Busy(busy) => Some(&mut busy.meta),
        }
    }
    /// The engine's part, which takes memory until [`RecordCell::collect`] finds nothing in it.
    #[inline]
    pub fn meta_or_default(&mut self) -> &mut M {
        &mut self.busy().meta
    }
    /// Whether collection may give memory back.
    pub fn is_busy(&self) -> bool {
        matches!(self.0, State::Busy(_))
    }
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        matches!(self.0, State::Idle(Newest::Dead))
    }
    /// Marks the record as removed from the index: look the key up again.
    pub(crate) fn kill(&mut self) {
        self.0 = State::Idle(Newest::Dead);
    }
    /// Drops the last version, where [`RecordCell::is_forgettable`] says that it tells nothing any more.
    pub(crate) fn forget(&mut self) {
        match &mut self.0 {
            State::Idle(newest) => *newest = Newest::None,
            State::Busy(busy) => busy.versions = Versions::default(),
        }
    }
    /// How many versions there are.
    pub fn len(&self) -> usize {
        match &self.0 {
            State::Idle(newest) => usize::from(newest.position() != Position::NONE),
            State::Busy(busy) => busy.versions.len(),
        }
    }
    /// Whether there is no version.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The newest version.
    pub fn newest(&self) -> Option<Version> {
        match &self.0 {
            State::Idle(newest) => (newest.position() != Position::NONE).then(|| newest.clone().into()),
            State::Busy(busy) => busy.versions.newest().cloned(),
        }
    }
    /// Whether the newest version is an entry, clears not considered.
    pub fn is_present(&self) -> bool {
        match &self.0 {
            State::Idle(newest) => newest.is_present(),
            State::Busy(busy) => busy.versions.newest().is_some_and(|version| version.entry.is_some()),
        }
    }
    /// The newest version's string, if it is one.
    pub(crate) fn newest_bytes(&self) -> &[u8] {
        match &self.0 {
            State::Idle(newest) => newest.bytes(),
            State::Busy(busy) => busy.versions.newest_bytes(),
        }
    }
    /// The position of the newest version at or below `upto`; [`Position::NONE`] if there is none.
    #[inline]
    pub fn position_at(&self, upto: Position) -> Position {
        match &self.0 {
            State::Idle(newest) => Some(newest.position()).filter(|position| *position <= upto),
            State::Busy(busy) => busy.versions.at(upto).map(|version| version.position),
        }
        .unwrap_or(Position::NONE)
    }
    /// The position of the oldest version above `position`.
    pub fn position_above(&self, position: Position) -> Option<Position> {
        match &self.0 {
            State::Idle(newest) => Some(newest.position()).filter(|other| *other > position),
            State::Busy(busy) => busy.versions.above(position).map(|version| version.position),
        }
    }
    /// What a reader that sees versions up to `upto` gets (a transaction at `p` passes `p - 1`).
    #[inline]
    pub fn read(&self, upto: Position, clears: &Clears) -> Read {
        match &self.0 {
            State::Idle(newest) if newest.position() <= upto => {
                seen(newest.position(), newest.is_present(), || newest.entry(), upto, clears)
            }
            State::Idle(_) => seen(Position::NONE, false, || None, upto, clears),
            State::Busy(busy) => busy.versions.read(upto, clears),
        }
    }
    /// Whether a reader that sees versions up to `upto` finds an entry.
    pub fn live(&self, upto: Position, clears: &Clears) -> bool {
        match &self.0 {
            State::Idle(newest) => {
                newest.is_present()
                    && newest.position() <= upto
                    && newest.position() >= clears.newest_upto(upto)
            }
            State::Busy(busy) => busy.versions.live(upto, clears),
        }
    }
    /// Adds a version.
    pub fn insert(&mut self, version: Version) {
        match &mut self.0 {
            State::Idle(newest @ Newest::None) => *newest = version.into(),
            _ => self.busy().versions.insert(version),
        }
    }
    /// Replaces everything by one version: for engines that keep no old versions.
    pub fn replace(&mut self, version: Version) {
        match &mut self.0 {
            State::Idle(newest) => *newest = version.into(),
            State::Busy(busy) => busy.versions.replace(version),
        }
    }
    /// Removes the version of a transaction; whether there was one.
    pub fn remove(&mut self, position: Position) -> bool {
        match &mut self.0 {
            State::Idle(newest) => {
                let found = newest.position() == position;
                if found {
                    *newest = Newest::None;
                }
                found
            }
            State::Busy(busy) => busy.versions.remove(position),
        }
    }
    /// Drops the versions that no reader at or beyond `watermark` can see: all below the newest one at or
    /// below it.
    #[inline]
    pub fn prune(&mut self, watermark: Position) {
        if let State::Busy(busy) = &mut self.0 {
            busy.versions.prune(watermark);
        }
    }
    /// Prunes, and drops what the engine keeps of transactions up to `final_position`. Whether nothing is
    /// left of the engine's part: the record is idle then if it has but one version.
    pub fn collect(&mut self, watermark: Position, final_position: Position) -> bool {
        let State::Busy(busy) = &mut self.0 else { return true };
        busy.versions.prune(watermark);
        let is_idle = busy.meta.collect(final_position);
        if is_idle && let Some(newest) = busy.versions.take_only() {
            self.0 = State::Idle(newest.into());
        }
        is_idle
    }
    /// Whether, behind `watermark`, nothing is left to say of this key: there is no version, or a lone
    /// tombstone (or a cleared entry) beyond the horizon.
    pub fn is_forgettable(&self, watermark: Position, clears: &Clears) -> bool {
        let (position, is_present) = match &self.0 {
            State::Idle(newest) => (newest.position(), newest.is_present()),
            State::Busy(busy) if busy.versions.len() > 1 => return false,
            State::Busy(_) => (self.position_at(Position(u64::MAX)), self.is_present()),
        };
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

const _: () = assert!(size_of::<RecordKey>() == 24, "a record is 64 bytes with its count: docs/memory.md");

impl RecordKey {
    fn new(key: &Key) -> RecordKey {
        let (space, usage, name) = (key.space(), Usage::default(), key.as_bytes());
        if name.len() > KEY_BYTES_MAX {
            return RecordKey::Long { space, usage, bytes: key.to_blob().to_shared() };
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
    "with its reference count a record is 64 bytes: an allocator's size class and one cache line"
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
