//! Keys and the slots that they fall into.

use crate::blob::Blob;
use crate::hash::{hash_bytes, mix};
use crate::ids::PartitionId;
use std::cmp::Ordering;
use std::fmt;

/// Which family of keys a key belongs to. Keys of different spaces never meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// The users' keys: what DBSIZE counts, SCAN lists and FLUSHALL removes.
    User = 0,
    /// What the store itself must keep in the order: script bodies, configuration.
    System = 1,
}

/// The name of a record: a byte string in a space, 24 bytes, in place up to 21.
#[derive(Clone, Eq)]
pub struct Key(Blob);

/// Redis Cluster's number of slots.
pub const SLOTS: u16 = 16_384;

/// The first slot of a partition, where slots are dealt evenly to so many.
pub fn first_slot(partition: u16, partitions: u16) -> u16 {
    (u32::from(partition) * u32::from(SLOTS) / u32::from(partitions.max(1))) as u16
}

/// Whose a slot is, where slots are dealt evenly to so many partitions.
pub fn partition_of_slot(slot: u16, partitions: u16) -> PartitionId {
    let about = (u32::from(slot) * u32::from(partitions) / u32::from(SLOTS)) as u16;
    // A range begins at a whole slot: the one behind may begin here.
    let next = about + 1;
    let is_next = next < partitions && first_slot(next, partitions) <= slot;
    PartitionId(about + u16::from(is_next))
}

const CRC16: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_XMODEM);

impl Key {
    /// A user's key.
    #[inline]
    pub fn new(bytes: &[u8]) -> Key {
        Key(Blob::new(bytes))
    }
    /// A key of the store itself.
    pub fn system(bytes: &[u8]) -> Key {
        Key(Blob::marked(Space::System as u8, bytes))
    }
    /// A key in a space.
    pub fn in_space(space: Space, bytes: &[u8]) -> Key {
        Key(Blob::marked(space as u8, bytes))
    }
    /// A key in a space, without copying.
    pub fn of_blob(space: Space, blob: Blob) -> Key {
        Key(blob.with_mark(space as u8))
    }
    /// The bytes of the name.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
    /// The name as a blob, to reply with.
    pub fn to_blob(&self) -> Blob {
        self.0.clone().with_mark(0)
    }
    /// The space.
    #[inline]
    pub fn space(&self) -> Space {
        if self.0.mark() == Space::User as u8 { Space::User } else { Space::System }
    }
    /// The hash that indexes and SCAN order use. The same on every machine.
    #[inline]
    pub fn hash64(&self) -> u64 {
        let hash = hash_bytes(self.as_bytes());
        if self.0.mark() == 0 { hash } else { mix(hash) }
    }
    /// Redis Cluster's slot: CRC16 of the `{hash tag}`, or of the whole name if there is none.
    pub fn slot(&self) -> u16 {
        let bytes = self.as_bytes();
        let tag = bytes.iter().position(|&b| b == b'{').and_then(|open| {
            let rest = &bytes[open + 1..];
            rest.iter().position(|&b| b == b'}').filter(|&len| len > 0).map(|len| &rest[..len])
        });
        CRC16.checksum(tag.unwrap_or(bytes)) % SLOTS
    }
    /// Bytes of heap that this key keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl From<Blob> for Key {
    /// A user's key, without copying.
    fn from(blob: Blob) -> Key {
        Key(blob.with_mark(0))
    }
}
impl From<&Blob> for Key {
    fn from(blob: &Blob) -> Key {
        Key(blob.clone().with_mark(0))
    }
}
impl From<&str> for Key {
    fn from(text: &str) -> Key {
        Key::new(text.as_bytes())
    }
}
impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key::new(bytes)
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Key) -> bool {
        self.0.mark() == other.0.mark() && self.0 == other.0
    }
}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        self.0.mark().cmp(&other.0.mark()).then_with(|| self.0.cmp(&other.0))
    }
}
impl std::hash::Hash for Key {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
        state.write_u8(self.0.mark());
    }
}
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.space() == Space::System {
            f.write_str("system:")?;
        }
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_redis_clusters() {
        // Values from Redis's CLUSTER KEYSLOT.
        assert_eq!(Key::from("somekey").slot(), 11058);
        assert_eq!(Key::from("foo{hash_tag}").slot(), Key::from("hash_tag").slot());
        assert_eq!(Key::from("foo{}{bar}").slot(), CRC16.checksum(b"foo{}{bar}") % SLOTS);
        assert_eq!(Key::from("foo").slot(), 12182);
    }

    #[test]
    fn slots_are_dealt_evenly_and_completely() {
        for partitions in [1, 2, 3, 7, 100, 256] {
            let mut last = 0;
            for slot in 0..SLOTS {
                let PartitionId(partition) = partition_of_slot(slot, partitions);
                assert!(partition < partitions && (last..=last + 1).contains(&partition));
                assert!(first_slot(partition, partitions) <= slot);
                last = partition;
            }
            assert_eq!(last, partitions - 1);
        }
    }

    #[test]
    fn spaces_never_meet() {
        assert_ne!(Key::from("a"), Key::system(b"a"));
        assert_ne!(Key::from("a").hash64(), Key::system(b"a").hash64());
        assert_eq!(Key::system(b"a").to_blob(), Blob::new(b"a"));
    }
}
