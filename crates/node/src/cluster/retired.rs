//! What is left of a replica that has moved to another node: what it had promised.
//!
//! A node whose replica of a partition moved away, and that keeps others, starts anew without it. It must not
//! forget that it has acknowledged the group's entries up to some index: should the replica move back, and
//! begin with less than that, then it could vote for a node that lacks entries which were agreed on with its
//! help. So the group's log is replaced in the journal by a base at its last entry that has no members and
//! tells of no state, and keeps its term and its vote. A replica that comes back begins behind a checkpoint
//! that covers that entry.
//!
//! A node may have been told that a group goes on without it before the order tells it why. It says behind
//! which map, and until then the node's own map is no reason to take the replica back.

use agree::Group;
use log::{Base, GroupImages, Kept, Members};
use std::collections::BTreeMap;
use txn::PartitionId;
use txn::codec::{Reader, put_varint};

/// See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Retired {
    /// The last entry that the replica had, and its term; zeros if it had none.
    last: (u64, u64),
    /// The version of the map that gave the replica to another node.
    version: u32,
}

impl Retired {
    /// A group's replica that the map of a version gives to another node.
    pub fn of(group: &dyn Group, version: u32) -> Retired {
        let last = group.status().last;
        let term = match group.entry(last) {
            Some(entry) => entry.term,
            None => group.base().term,
        };
        Retired { last: (last, term), version }
    }

    /// What a base says of a replica that has moved away; `None` if it is another one's.
    fn read(base: &Base) -> Option<Retired> {
        if base.state.is_empty() || base.members != Members::default() {
            return None;
        }
        let mut reader = Reader::new(&base.state);
        let version = u32::try_from(reader.varint()?).ok()?;
        reader.is_empty().then_some(Retired { last: (base.index, base.term), version })
    }

    /// What the journal holds of it.
    pub fn kept(&self, partition: PartitionId) -> Kept {
        let mut state = Vec::new();
        put_varint(&mut state, u64::from(self.version));
        let (index, term) = self.last;
        Kept {
            base: Some(Base { index, term, members: Members::default(), state: state.into() }),
            ..Kept::nothing(partition)
        }
    }

    /// Whether the map of this version does not yet tell that the replica has moved.
    pub fn is_newer_than(&self, version: u32) -> bool {
        self.version > version
    }

    /// Whether a replica that begins behind an entry has all that this one had promised to have.
    pub fn is_covered_by(&self, index: u64) -> bool {
        self.last.0 <= index
    }
}

/// The replicas that a journal knows to have moved away.
pub(super) fn retired(images: &GroupImages) -> BTreeMap<PartitionId, Retired> {
    let read = |(&partition, image): (&PartitionId, &log::GroupImage)| {
        Retired::read(&image.base).map(|retired| (partition, retired))
    };
    images.iter().filter_map(read).collect()
}
