//! Whose each slot is.

use crate::ids::PartitionId;
use crate::key::{Key, SLOTS, Space, partition_of_slot};
use crate::value::{Entry, Value};
use std::fmt;
use std::sync::Arc;

/// Which partition each slot belongs to.
///
/// Slots are dealt evenly when a cluster begins, and then this is nothing but the number of partitions; once
/// some have moved it shares a table. Cheap to copy either way.
#[derive(Clone, PartialEq, Eq)]
pub struct Slots {
    of: u16,
    /// The partition of each slot, unless they are dealt evenly.
    table: Option<Arc<[PartitionId]>>,
}

impl Slots {
    /// Dealt evenly to so many partitions.
    pub const fn even(of: u16) -> Slots {
        Slots { of, table: None }
    }

    /// Whose the slots of each range (first and last) are, among so many partitions. What no range has is
    /// partition 0's.
    pub fn of_ranges(of: u16, ranges: impl IntoIterator<Item = (PartitionId, u16, u16)>) -> Slots {
        let mut table = vec![PartitionId(0); usize::from(SLOTS)];
        for (partition, first, last) in ranges {
            let slots = table.iter_mut().take(usize::from(last) + 1);
            slots.skip(usize::from(first)).for_each(|slot| *slot = partition);
        }
        let is_even = (0..SLOTS).all(|slot| table[usize::from(slot)] == partition_of_slot(slot, of));
        Slots { of, table: (!is_even).then(|| table.into()) }
    }

    /// How many partitions there are.
    #[inline]
    pub fn of(&self) -> u16 {
        self.of
    }

    /// Whether all slots are where they were when the cluster began.
    pub fn is_even(&self) -> bool {
        self.table.is_none()
    }

    /// Whose a slot is.
    #[inline]
    pub fn partition_of(&self, slot: u16) -> PartitionId {
        match &self.table {
            None => partition_of_slot(slot, self.of),
            Some(table) => table[usize::from(slot % SLOTS)],
        }
    }

    /// Whose a user's key is.
    #[inline]
    pub fn partition_of_key(&self, key: &Key) -> PartitionId {
        if self.of <= 1 {
            return PartitionId(0);
        }
        self.partition_of(key.slot())
    }

    /// Whether both are the same table, and not only equal ones.
    pub fn is_same(&self, other: &Slots) -> bool {
        self.of == other.of
            && match (&self.table, &other.table) {
                (None, None) => true,
                (Some(own), Some(others)) => Arc::ptr_eq(own, others),
                _ => false,
            }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_even() {
            true => write!(f, "dealt evenly to {}", self.of),
            false => write!(f, "dealt to {}, some moved", self.of),
        }
    }
}

/// The record, in every partition's system space, that tells under which version of the slots the partition
/// last got or gave some: absent as long as it has what it began with. So a reader at a snapshot knows whose
/// keys it sees there.
pub fn version_key() -> Key {
    Key::system(b"slots")
}

/// What the record of [`version_key`] holds.
pub fn version_value(version: u32) -> Value {
    Value::from(&version.to_le_bytes()[..])
}

/// The version that a record of [`version_key`] tells.
pub fn version_of(entry: Option<&Entry>) -> u32 {
    let bytes = entry.and_then(|entry| entry.value.as_string());
    let bytes = bytes.and_then(|bytes| bytes.as_bytes().try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// The slot of a key of the system's space, if it has one: its name then is `what:{tag}` and whatever
/// follows. Every partition that a transaction has keeps a copy of such a record, and the copy of the slot's
/// partition is the one that counts. The others belong to no slot.
pub fn of_system_key(key: &Key) -> Option<u16> {
    let bytes = key.as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    (bytes.get(colon + 1) == Some(&b'{')).then(|| key.slot())
}

/// A range of slots: the first and the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl SlotRange {
    /// All slots.
    pub const ALL: SlotRange = SlotRange { first: 0, last: SLOTS - 1 };

    /// Whether a key's slot is one of these; of the system's space, they have what has a slot.
    #[inline]
    pub fn has(&self, key: &Key) -> bool {
        let slot = match key.space() {
            _ if *self == SlotRange::ALL => return true,
            Space::User => Some(key.slot()),
            Space::System => of_system_key(key),
        };
        slot.is_some_and(|slot| (self.first..=self.last).contains(&slot))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_whose_their_range_says_and_an_even_deal_needs_no_table() {
        let moved = Slots::of_ranges(2, [(PartitionId(0), 0, 8_000), (PartitionId(1), 8_001, SLOTS - 1)]);
        assert!(!moved.is_even());
        assert_eq!(moved.partition_of(8_000), PartitionId(0));
        assert_eq!(moved.partition_of(8_001), PartitionId(1));
        assert_eq!(Slots::even(2).partition_of(8_001), PartitionId(0));
        let halves = [(PartitionId(1), 8_192, SLOTS - 1), (PartitionId(0), 0, 8_191)];
        assert!(Slots::of_ranges(2, halves).is_same(&Slots::even(2)));
        assert!(!moved.is_same(&Slots::even(2)) && moved.is_same(&moved.clone()));
    }

    #[test]
    fn a_version_is_read_as_it_was_written() {
        assert_eq!(version_of(None), 0);
        for version in [1, 256, u32::MAX] {
            let entry = Entry::new(version_value(version));
            assert_eq!(version_of(Some(&entry)), version);
        }
    }

    #[test]
    fn a_range_has_the_keys_of_its_slots() {
        let key = Key::from("foo");
        let has = |first, last| SlotRange { first, last }.has(&key);
        assert!(has(12_182, 12_182) && !has(0, 12_181) && !has(12_183, SLOTS - 1));
        assert!(SlotRange::ALL.has(&key));
    }

    #[test]
    fn some_keys_of_the_system_have_a_slot() {
        let slot = |name: &str| of_system_key(&Key::system(name.as_bytes()));
        assert_eq!(slot("idempotent:{foo}:an id"), Some(12_182));
        for name in ["idempotent::{foo}", "slots", "script:", "a{foo}:", "a:b:{foo}"] {
            assert_eq!(slot(name), None, "{name}");
        }
        let range = SlotRange { first: 12_182, last: 12_182 };
        assert!(range.has(&Key::system(b"idempotent:{foo}:an id")));
        assert!(!range.has(&Key::system(b"foo")) && range.has(&Key::from("foo")));
    }
}
