//! The entries of partitions' groups, and their bytes.

use super::times::Timestamp;
use crate::WriteSet;
use crate::codec::{put_bool, put_id, put_writes, take_bool, take_id, take_writes};
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

    fn put(&self, out: &mut Vec<u8>) {
        self.timestamp.put(out);
        put_varint(out, self.reads.len() as u64);
        for (key, version) in &self.reads {
            put_key(out, key);
            put_varint(out, version.0);
        }
        put_writes(out, &self.writes);
    }

    fn take(reader: &mut Reader<'_>) -> Option<Used> {
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

    pub(super) fn take(reader: &mut Reader<'_>) -> Option<Prepare> {
        let (id, behind) = (take_id(reader)?, Position(reader.varint()?));
        let mut participants = BTreeSet::new();
        for _ in 0..reader.varint()? {
            participants.insert(take_group(reader)?).then_some(())?;
        }
        Some(Prepare { id, behind, participants, used: Used::take(reader)? })
    }
}

/// What is decided of a transaction: a commit, or, without votes, an abort.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// A timestamp in the range of every vote.
    pub at: Timestamp,
    /// Where each participant's vote stands in its log.
    pub votes: BTreeMap<PartitionId, Position>,
}

impl Decision {
    /// An abort.
    pub fn abort() -> Decision {
        Decision::default()
    }

    /// Whether it is an abort.
    pub fn is_abort(&self) -> bool {
        self.votes.is_empty()
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        self.at.put(out);
        put_varint(out, self.votes.len() as u64);
        for (group, at) in &self.votes {
            put_varint(out, u64::from(group.0));
            put_varint(out, at.0);
        }
    }

    pub(super) fn take(reader: &mut Reader<'_>) -> Option<Decision> {
        let (at, mut votes) = (Timestamp::take(reader)?, BTreeMap::new());
        for _ in 0..reader.varint()? {
            votes.insert(take_group(reader)?, Position(reader.varint()?)).is_none().then_some(())?;
        }
        Some(Decision { at, votes })
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
    Decide {
        id: RequestId,
        decision: Decision,
    },
    /// Aborts if there is no timestamp.
    Finish {
        id: RequestId,
        at: Option<Timestamp>,
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
            LogEntry::Decide { id, decision } => {
                out.push(DECIDE);
                put_id(&mut out, *id);
                decision.put(&mut out);
            }
            LogEntry::Finish { id, at } => {
                out.push(FINISH);
                put_id(&mut out, *id);
                put_bool(&mut out, at.is_some());
                at.iter().for_each(|at| at.put(&mut out));
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
            DECIDE => LogEntry::Decide { id: take_id(reader)?, decision: Decision::take(reader)? },
            FINISH => LogEntry::Finish { id: take_id(reader)?, at: take_end(reader)? },
            FORGET => LogEntry::Forget { id: take_id(reader)? },
            _ => return None,
        };
        reader.is_empty().then_some(entry)
    }
}

fn take_group(reader: &mut Reader<'_>) -> Option<PartitionId> {
    u16::try_from(reader.varint()?).ok().map(PartitionId)
}

fn take_end(reader: &mut Reader<'_>) -> Option<Option<Timestamp>> {
    match take_bool(reader)? {
        true => Timestamp::take(reader).map(Some),
        false => Some(None),
    }
}
