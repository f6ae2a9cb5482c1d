//! What a transaction asks a partition for: its vote on what it has read and written there.

use crate::WriteSet;
use crate::codec::{put_id, put_writes, take_id, take_writes};
use crate::times::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::{Key, PartitionId, Position, RequestId};

/// What a transaction has read and written at one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// The transaction's timestamp, where it has one when it begins. With MaaT, the first one at which it may
    /// commit as far as its coordinator knows.
    pub timestamp: Timestamp,
    /// The keys that the transaction has read, each with the version that it saw.
    pub reads: BTreeMap<Key, Position>,
    /// The writes of the transaction.
    pub writes: WriteSet,
}

impl Used {
    /// The keys that it names; a key that it has read and writes comes twice.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.reads.keys().chain(self.writes.records.keys())
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        self.timestamp.put(out);
        put_varint(out, self.reads.len() as u64);
        for (key, version) in &self.reads {
            put_key(out, key);
            put_varint(out, version.0);
        }
        put_writes(out, &self.writes);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Used> {
        let timestamp = Timestamp::take(reader)?;
        let mut reads = BTreeMap::new();
        for _ in 0..reader.varint()? {
            let is_new = reads.insert(take_key(reader)?, Position(reader.varint()?)).is_none();
            is_new.then_some(())?;
        }
        Some(Used { timestamp, reads, writes: take_writes(reader)? })
    }
}

/// A transaction asks for a partition's vote.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The attempt that asks.
    pub id: RequestId,
    /// The last entry of the partition that the coordinator had been given.
    pub behind: Position,
    /// All partitions that must vote yes.
    pub participants: BTreeSet<PartitionId>,
    /// What it has read and written here.
    pub used: Used,
}

impl Prepare {
    /// Appends its encoding.
    pub fn put(&self, out: &mut Vec<u8>) {
        put_id(out, self.id);
        put_varint(out, self.behind.0);
        put_varint(out, self.participants.len() as u64);
        self.participants.iter().for_each(|group| put_varint(out, u64::from(group.0)));
        self.used.put(out);
    }

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Prepare> {
        let (id, behind) = (take_id(reader)?, Position(reader.varint()?));
        let mut participants = BTreeSet::new();
        for _ in 0..reader.varint()? {
            participants.insert(take_group(reader)?).then_some(())?;
        }
        Some(Prepare { id, behind, participants, used: Used::take(reader)? })
    }
}

pub(crate) fn take_group(reader: &mut Reader<'_>) -> Option<PartitionId> {
    u16::try_from(reader.varint()?).ok().map(PartitionId)
}
