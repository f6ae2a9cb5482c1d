//! The entries of partitions' groups, and their bytes.

use crate::WriteSet;
use crate::codec::{put_bool, put_id, put_writes, take_bool, take_id, take_writes};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::{Key, PartitionId, Position, RequestId};

/// What a transaction has read and written at one partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Used {
    /// Records with the versions that it has read.
    pub reads: BTreeMap<Key, Position>,
    /// What it writes.
    pub writes: WriteSet,
}

impl Used {
    /// All of its keys; one that is read and written comes twice.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.reads.keys().chain(self.writes.records.keys())
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.reads.len() as u64);
        for (key, version) in &self.reads {
            put_key(out, key);
            put_varint(out, version.0);
        }
        put_writes(out, &self.writes);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Used> {
        let mut reads = BTreeMap::new();
        for _ in 0..reader.varint()? {
            let is_new = reads.insert(take_key(reader)?, Position(reader.varint()?)).is_none();
            is_new.then_some(())?;
        }
        Some(Used { reads, writes: take_writes(reader)? })
    }
}

/// A transaction asks for a partition's vote.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    /// The attempt.
    pub id: RequestId,
    /// The last entry of the partition that the coordinator had been given.
    pub behind: Position,
    /// The partitions that vote.
    pub participants: BTreeSet<PartitionId>,
    /// What it has used at the partition that is asked.
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

    pub(super) fn take(reader: &mut Reader<'_>) -> Option<Prepare> {
        let (id, behind) = (take_id(reader)?, Position(reader.varint()?));
        let mut participants = BTreeSet::new();
        for _ in 0..reader.varint()? {
            participants.insert(take_group(reader)?).then_some(())?;
        }
        Some(Prepare { id, behind, participants, used: Used::take(reader)? })
    }
}

/// See the head of [`super`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogEntry {
    Whole {
        id: RequestId,
        used: Used,
    },
    Prepare(Prepare),
    /// Commits if there are votes, each with the number of its entry; aborts if there is none.
    Decide {
        id: RequestId,
        votes: BTreeMap<PartitionId, Position>,
    },
    Finish {
        id: RequestId,
        is_commit: bool,
    },
    Forget {
        id: RequestId,
    },
}

const WHOLE: u8 = 1;
const PREPARE: u8 = 2;
const DECIDE: u8 = 3;
const FINISH: u8 = 4;
const FORGET: u8 = 5;

impl LogEntry {
    pub fn id(&self) -> RequestId {
        match self {
            LogEntry::Prepare(prepare) => prepare.id,
            LogEntry::Whole { id, .. }
            | LogEntry::Decide { id, .. }
            | LogEntry::Finish { id, .. }
            | LogEntry::Forget { id } => *id,
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            LogEntry::Whole { id, used } => {
                out.push(WHOLE);
                put_id(&mut out, *id);
                used.put(&mut out);
            }
            LogEntry::Prepare(prepare) => {
                out.push(PREPARE);
                prepare.put(&mut out);
            }
            LogEntry::Decide { id, votes } => {
                out.push(DECIDE);
                put_id(&mut out, *id);
                put_votes(&mut out, votes);
            }
            LogEntry::Finish { id, is_commit } => {
                out.push(FINISH);
                put_id(&mut out, *id);
                put_bool(&mut out, *is_commit);
            }
            LogEntry::Forget { id } => {
                out.push(FORGET);
                put_id(&mut out, *id);
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<LogEntry> {
        let reader = &mut Reader::new(bytes);
        let entry = match reader.u8()? {
            WHOLE => LogEntry::Whole { id: take_id(reader)?, used: Used::take(reader)? },
            PREPARE => LogEntry::Prepare(Prepare::take(reader)?),
            DECIDE => LogEntry::Decide { id: take_id(reader)?, votes: take_votes(reader)? },
            FINISH => LogEntry::Finish { id: take_id(reader)?, is_commit: take_bool(reader)? },
            FORGET => LogEntry::Forget { id: take_id(reader)? },
            _ => return None,
        };
        reader.is_empty().then_some(entry)
    }
}

fn take_group(reader: &mut Reader<'_>) -> Option<PartitionId> {
    u16::try_from(reader.varint()?).ok().map(PartitionId)
}

pub(super) fn put_votes(out: &mut Vec<u8>, votes: &BTreeMap<PartitionId, Position>) {
    put_varint(out, votes.len() as u64);
    for (group, at) in votes {
        put_varint(out, u64::from(group.0));
        put_varint(out, at.0);
    }
}

pub(super) fn take_votes(reader: &mut Reader<'_>) -> Option<BTreeMap<PartitionId, Position>> {
    let mut votes = BTreeMap::new();
    for _ in 0..reader.varint()? {
        votes.insert(take_group(reader)?, Position(reader.varint()?)).is_none().then_some(())?;
    }
    Some(votes)
}
