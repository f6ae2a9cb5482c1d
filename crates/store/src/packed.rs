//! A version of a key, packed: what a record has in place while nobody needs older ones.

use crate::clears::Clears;
use crate::versions::Version;
use std::sync::Arc;
use txn::tx::Read;
use txn::value::{HashValue, ListValue, LongString, SetValue, SortedSetValue, StreamValue};
use txn::{Blob, Entry, Position, Value};

/// The longest string that a record has in place.
const SHORT_BYTES_MAX: usize = 16;

/// A position in six bytes. An engine's ticket has no more room for one either.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position48([u8; 6]);

impl Position48 {
    fn new(position: Position) -> Option<Position48> {
        let [low @ .., sixth, seventh] = position.0.to_le_bytes();
        (sixth == 0 && seventh == 0).then_some(Position48(low))
    }
    fn get(self) -> Position {
        let [a, b, c, d, e, f] = self.0;
        Position(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    }
}

/// A version in 24 bytes: its position, and its value in place or shared.
#[derive(Clone, Debug, Default)]
pub(crate) enum Packed {
    /// There is no version.
    #[default]
    None,
    /// The record was removed from the index: look the key up again. It reads as if there were no version.
    Dead,
    Tombstone(Position),
    Short {
        length: u8,
        position: Position48,
        bytes: [u8; SHORT_BYTES_MAX],
    },
    String(Position48, Arc<[u8]>),
    LongString(Position48, Arc<LongString>),
    Hash(Position48, HashValue),
    List(Position48, ListValue),
    Set(Position48, SetValue),
    SortedSet(Position48, SortedSetValue),
    Stream(Position48, Arc<StreamValue>),
    /// An entry that expires, or one at a position of more than 48 bits.
    Whole(Box<Version>),
}

const _: () = assert!(
    size_of::<Packed>() == 24,
    "a record without an engine's part is 64 bytes with its count: docs/memory.md"
);

impl From<Version> for Packed {
    fn from(version: Version) -> Packed {
        let Version { position, entry } = version;
        let Some(entry) = entry else {
            return if position == Position::NONE { Packed::None } else { Packed::Tombstone(position) };
        };
        let Some(at) = Position48::new(position).filter(|_| entry.expires_at_ms == 0) else {
            return Packed::Whole(Box::new(Version { position, entry: Some(entry) }));
        };
        match entry.value {
            Value::String(blob) if blob.len() <= SHORT_BYTES_MAX => {
                let mut bytes = [0; SHORT_BYTES_MAX];
                bytes[..blob.len()].copy_from_slice(&blob);
                Packed::Short { length: blob.len() as u8, position: at, bytes }
            }
            Value::String(blob) => Packed::String(at, blob.into_shared()),
            Value::LongString(value) => Packed::LongString(at, value),
            Value::Hash(value) => Packed::Hash(at, value),
            Value::List(value) => Packed::List(at, value),
            Value::Set(value) => Packed::Set(at, value),
            Value::SortedSet(value) => Packed::SortedSet(at, value),
            Value::Stream(value) => Packed::Stream(at, value),
        }
    }
}

impl From<Packed> for Version {
    fn from(packed: Packed) -> Version {
        let (position, value) = match packed {
            Packed::None | Packed::Dead => return Version { position: Position::NONE, entry: None },
            Packed::Tombstone(position) => return Version { position, entry: None },
            Packed::Whole(version) => return *version,
            Packed::Short { length, position, bytes } => {
                (position, Value::String(Blob::new(&bytes[..usize::from(length)])))
            }
            Packed::String(position, bytes) => (position, Value::String(Blob::from(bytes))),
            Packed::LongString(position, value) => (position, Value::LongString(value)),
            Packed::Hash(position, value) => (position, Value::Hash(value)),
            Packed::List(position, value) => (position, Value::List(value)),
            Packed::Set(position, value) => (position, Value::Set(value)),
            Packed::SortedSet(position, value) => (position, Value::SortedSet(value)),
            Packed::Stream(position, value) => (position, Value::Stream(value)),
        };
        Version { position: position.get(), entry: Some(Entry { value, expires_at_ms: 0 }) }
    }
}

impl Packed {
    /// Its position; [`Position::NONE`] if there is no version.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        match self {
            Packed::None | Packed::Dead => Position::NONE,
            Packed::Whole(version) => version.position,
            Packed::Tombstone(position) => *position,
            Packed::Short { position, .. }
            | Packed::String(position, _)
            | Packed::LongString(position, _)
            | Packed::Hash(position, _)
            | Packed::List(position, _)
            | Packed::Set(position, _)
            | Packed::SortedSet(position, _)
            | Packed::Stream(position, _) => position.get(),
        }
    }
    /// Whether it is a version with an entry.
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self, Packed::None | Packed::Dead | Packed::Tombstone(_))
    }
    /// What a reader up to `upto` gets, who sees this version and no later one.
    #[inline]
    pub(crate) fn seen(&self, upto: Position, clears: &Clears) -> Read {
        let position = self.position();
        match self.is_live(upto, clears) {
            true => Read { entry: self.entry(), version: position },
            false => Read { entry: None, version: clears.tombstone(position, upto) },
        }
    }
    /// Whether it is an entry to such a reader.
    #[inline]
    pub(crate) fn is_live(&self, upto: Position, clears: &Clears) -> bool {
        self.is_present() && self.position() >= clears.newest_upto(upto)
    }
    /// The entry, if there is one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry> {
        if let Packed::Whole(version) = self {
            return version.entry.clone();
        }
        Version::from(self.clone()).entry
    }
    /// Of the entry, if there is one: when it expires (0: never), and the heap bytes of its value. Long
    /// strings are not touched for that.
    pub(crate) fn outline(&self) -> Option<(u64, usize)> {
        match self {
            Packed::Whole(version) => {
                version.entry.as_ref().map(|entry| (entry.expires_at_ms, entry.value.heap_bytes()))
            }
            Packed::String(_, bytes) => Some((0, bytes.len() + Blob::SHARED_BYTES)),
            _ => self.entry().map(|entry| (0, entry.value.heap_bytes())),
        }
    }
    /// Reads what whoever clones or reads the value needs first. Gives something made of it.
    pub(crate) fn load(&self) -> usize {
        match self {
            Packed::None | Packed::Dead | Packed::Tombstone(_) | Packed::Short { .. } => 0,
            Packed::String(_, bytes) => {
                [bytes.first(), bytes.last()].into_iter().flatten().map(|byte| usize::from(*byte)).sum()
            }
            Packed::LongString(_, value) => value.len(),
            Packed::Hash(_, value) => value.len(),
            Packed::List(_, value) => value.len(),
            Packed::Set(_, value) => value.len(),
            Packed::SortedSet(_, value) => value.len(),
            Packed::Stream(_, value) => value.len(),
            Packed::Whole(version) => usize::from(version.entry.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_same_behind_its_packed_form() {
        let positions = [1, 2, (1 << 48) - 1, 1 << 48, u64::MAX - 1].map(Position);
        for position in positions {
            let strings = (0..40).map(|length| Some(Entry::new(vec![7; length])));
            let expiring = Entry { expires_at_ms: 9, ..Entry::new("x") };
            let others = [None, Some(expiring), Some(Entry::new(HashValue::new()))];
            for entry in strings.chain(others) {
                let version = Version { position, entry };
                let packed = Packed::from(version.clone());
                assert_eq!((packed.position(), packed.is_present()), (position, version.entry.is_some()));
                assert_eq!(packed.entry(), version.entry);
                assert_eq!(Version::from(packed), version);
            }
        }
    }
}
