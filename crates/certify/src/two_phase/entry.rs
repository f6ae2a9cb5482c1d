//! The entries of partitions' groups, and their bytes.

use crate::codec::{put_bool, put_id, take_bool, take_id};
use crate::prepare::{Prepare, Used, take_group};
use crate::times::Timestamp;
use std::collections::BTreeMap;
use txn::codec::{Reader, put_varint};
use txn::{PartitionId, Position, RequestId};

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

fn take_end(reader: &mut Reader<'_>) -> Option<Option<Timestamp>> {
    match take_bool(reader)? {
        true => Timestamp::take(reader).map(Some),
        false => Some(None),
    }
}
