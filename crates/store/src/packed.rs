//! The only version of a key, packed: what a record has in place while nobody needs older ones.

use crate::versions::Version;
use std::sync::Arc;
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

/// The newest version, in 24 bytes: its position, and its value in place or shared.
#[derive(Clone, Debug, Default)]
pub(crate) enum Newest {
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
    size_of::<Newest>() == 24,
    "a record without an engine's part is 64 bytes with its count: docs/memory.md"
);

impl From<Version> for Newest {
    fn from(version: Version) -> Newest {
        let Version { position, entry } = version;
        let Some(entry) = entry else {
            return if position == Position::NONE { Newest::None } else { Newest::Tombstone(position) };
        };
        let Some(at) = Position48::new(position).filter(|_| entry.expires_at_ms == 0) else {
            return Newest::Whole(Box::new(Version { position, entry: Some(entry) }));
        };
        match entry.value {
            Value::String(blob) if blob.len() <= SHORT_BYTES_MAX => {
                let mut bytes = [0; SHORT_BYTES_MAX];
                bytes[..blob.len()].copy_from_slice(&blob);
                Newest::Short { length: blob.len() as u8, position: at, bytes }
            }
            Value::String(blob) => Newest::String(at, blob.into_shared()),
            Value::LongString(value) => Newest::LongString(at, value),
            Value::Hash(value) => Newest::Hash(at, value),
            Value::List(value) => Newest::List(at, value),
            Value::Set(value) => Newest::Set(at, value),
            Value::SortedSet(value) => Newest::SortedSet(at, value),
            Value::Stream(value) => Newest::Stream(at, value),
        }
    }
}

impl From<Newest> for Version {
    fn from(newest: Newest) -> Version {
        let (position, value) = match newest {
            Newest::None | Newest::Dead => return Version { position: Position::NONE, entry: None },
            Newest::Tombstone(position) => return Version { position, entry: None },
            Newest::Whole(version) => return *version,
            Newest::Short { length, position, bytes } => {
                (position, Value::String(Blob::new(&bytes[..usize::from(length)])))
            }
            Newest::String(position, bytes) => (position, Value::String(Blob::from(bytes))),
            Newest::LongString(position, value) => (position, Value::LongString(value)),
            Newest::Hash(position, value) => (position, Value::Hash(value)),
            Newest::List(position, value) => (position, Value::List(value)),
            Newest::Set(position, value) => (position, Value::Set(value)),
            Newest::SortedSet(position, value) => (position, Value::SortedSet(value)),
            Newest::Stream(position, value) => (position, Value::Stream(value)),
        };
        Version { position: position.get(), entry: Some(Entry { value, expires_at_ms: 0 }) }
    }
}

impl Newest {
    /// Its position; [`Position::NONE`] if there is no version.
    #[inline]
    pub(crate) fn position(&self) -> Position {
        match self {
            Newest::None | Newest::Dead => Position::NONE,
            Newest::Whole(version) => version.position,
            Newest::Tombstone(position) => *position,
            Newest::Short { position, .. }
            | Newest::String(position, _)
            | Newest::LongString(position, _)
            | Newest::Hash(position, _)
            | Newest::List(position, _)
            | Newest::Set(position, _)
            | Newest::SortedSet(position, _)
            | Newest::Stream(position, _) => position.get(),
        }
    }
    /// Whether it is a version with an entry.
    #[inline]
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self, Newest::None | Newest::Dead | Newest::Tombstone(_))
    }
    /// The entry, if there is one.
    #[inline]
    pub(crate) fn entry(&self) -> Option<Entry> {
        if let Newest::Whole(version) = self {
            return version.entry.clone();
        }
        Version::from(self.clone()).entry
    }
    /// Reads what whoever clones or reads the value needs first. Gives something made of it.
    pub(crate) fn load(&self) -> usize {
        match self {
            Newest::None | Newest::Dead | Newest::Tombstone(_) | Newest::Short { .. } => 0,
            Newest::String(_, bytes) => {
                [bytes.first(), bytes.last()].into_iter().flatten().map(|byte| usize::from(*byte)).sum()
            }
            Newest::LongString(_, value) => value.len(),
            Newest::Hash(_, value) => value.len(),
            Newest::List(_, value) => value.len(),
            Newest::Set(_, value) => value.len(),
            Newest::SortedSet(_, value) => value.len(),
            Newest::Stream(_, value) => value.len(),
            Newest::Whole(version) => usize::from(version.entry.is_some()),
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
                let newest = Newest::from(version.clone());
                assert_eq!((newest.position(), newest.is_present()), (position, version.entry.is_some()));
                assert_eq!(newest.entry(), version.entry);
                assert_eq!(Version::from(newest), version);
            }
        }
    }
}
