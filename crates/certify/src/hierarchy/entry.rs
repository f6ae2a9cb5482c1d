//! The entries of validators' groups, and their bytes. Those that one validator sends another are batches.

use super::tree::Tree;
use crate::codec::{put_bool, put_id, take_bool, take_id};
use crate::prepare::{Prepare, take_group};
use crate::times::{Range, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::{PartitionId, Position, RequestId};

/// What a subtree says to its parent of a transaction: the paper's partial validation result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Partial {
    pub id: RequestId,
    /// All leaves that the transaction uses.
    pub participants: BTreeSet<PartitionId>,
    /// `None` if the subtree has refused the transaction.
    pub vote: Option<SubtreeVote>,
}

/// A subtree lets a transaction commit.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SubtreeVote {
    /// The timestamps that all participants of the subtree have in common.
    pub range: Range,
    /// Where the vote of each participant of the subtree stands in its log.
    pub votes: BTreeMap<PartitionId, Position>,
}

/// What is decided of a transaction: a commit at a timestamp, or an abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub id: RequestId,
    pub at: Option<Timestamp>,
}

/// See the head of [`super`].
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LogEntry {
    /// Of a leaf: a client's site asks.
    Request(Prepare),
    /// Of a leaf: a validator above has decided.
    Verdicts { from: PartitionId, verdicts: Vec<Verdict> },
    /// Of a leaf: a snapshot is read at this timestamp.
    Push { to: Timestamp },
    /// Of an inner validator: what a child says. `behind` is the last entry of the inner validator of which
    /// the child's speaker knew.
    Partials { from: PartitionId, behind: Position, partials: Vec<Partial> },
    /// Of an inner validator: it waits for the other children no longer.
    GiveUp { id: RequestId },
    /// Of an inner validator: no participant has these any more.
    Forget { ids: Vec<RequestId> },
}

const REQUEST: u8 = 1;
const VERDICTS: u8 = 2;
const PUSH: u8 = 3;
const PARTIALS: u8 = 4;
const GIVE_UP: u8 = 5;
const FORGET: u8 = 6;

impl LogEntry {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            LogEntry::Request(prepare) => {
                out.push(REQUEST);
                prepare.put(&mut out);
            }
            LogEntry::Verdicts { from, verdicts } => {
                out.push(VERDICTS);
                put_varint(&mut out, u64::from(from.0));
                put_varint(&mut out, verdicts.len() as u64);
                verdicts.iter().for_each(|verdict| verdict.put(&mut out));
            }
            LogEntry::Push { to } => {
                out.push(PUSH);
                to.put(&mut out);
            }
            LogEntry::Partials { from, behind, partials } => {
                out.push(PARTIALS);
                put_varint(&mut out, u64::from(from.0));
                put_varint(&mut out, behind.0);
                put_varint(&mut out, partials.len() as u64);
                partials.iter().for_each(|partial| partial.put(&mut out));
            }
            LogEntry::GiveUp { id } => {
                out.push(GIVE_UP);
                put_id(&mut out, *id);
            }
            LogEntry::Forget { ids } => {
                out.push(FORGET);
                put_varint(&mut out, ids.len() as u64);
                ids.iter().for_each(|&id| put_id(&mut out, id));
            }
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Option<LogEntry> {
        let reader = &mut Reader::new(bytes);
        let entry = match reader.u8()? {
            REQUEST => LogEntry::Request(Prepare::take(reader)?),
            VERDICTS => {
                LogEntry::Verdicts { from: take_group(reader)?, verdicts: take_all(reader, Verdict::take)? }
            }
            PUSH => LogEntry::Push { to: Timestamp::take(reader)? },
            PARTIALS => LogEntry::Partials {
                from: take_group(reader)?,
                behind: Position(reader.varint()?),
                partials: take_all(reader, Partial::take)?,
            },
            GIVE_UP => LogEntry::GiveUp { id: take_id(reader)? },
            FORGET => LogEntry::Forget { ids: take_all(reader, take_id)? },
            _ => return None,
        };
        reader.is_empty().then_some(entry)
    }
}

impl Verdict {
    pub fn put(&self, out: &mut Vec<u8>) {
        put_id(out, self.id);
        put_bool(out, self.at.is_some());
        self.at.iter().for_each(|at| at.put(out));
    }

    fn take(reader: &mut Reader<'_>) -> Option<Verdict> {
        let id = take_id(reader)?;
        let at = if take_bool(reader)? { Some(Timestamp::take(reader)?) } else { None };
        Some(Verdict { id, at })
    }
}

impl Partial {
    pub fn put(&self, out: &mut Vec<u8>) {
        put_id(out, self.id);
        put_groups(out, &self.participants);
        put_bool(out, self.vote.is_some());
        self.vote.iter().for_each(|vote| vote.put(out));
    }

    fn take(reader: &mut Reader<'_>) -> Option<Partial> {
        let (id, participants) = (take_id(reader)?, take_groups(reader)?);
        let vote = if take_bool(reader)? { Some(SubtreeVote::take(reader)?) } else { None };
        Some(Partial { id, participants, vote })
    }
}

impl SubtreeVote {
    /// Whether exactly the participants below a validator have voted, each in an entry.
    pub fn is_of(&self, tree: &Tree, validator: PartitionId, participants: &BTreeSet<PartitionId>) -> bool {
        let below = participants.intersection(tree.leaves_below(validator));
        self.votes.keys().eq(below) && self.votes.values().all(|&vote| vote != Position::NONE)
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        self.range.put(out);
        put_varint(out, self.votes.len() as u64);
        for (group, at) in &self.votes {
            put_varint(out, u64::from(group.0));
            put_varint(out, at.0);
        }
    }

    pub fn take(reader: &mut Reader<'_>) -> Option<SubtreeVote> {
        let (range, mut votes) = (Range::take(reader)?, BTreeMap::new());
        for _ in 0..reader.varint()? {
            votes.insert(take_group(reader)?, Position(reader.varint()?)).is_none().then_some(())?;
        }
        Some(SubtreeVote { range, votes })
    }
}

pub(super) fn put_groups(out: &mut Vec<u8>, groups: &BTreeSet<PartitionId>) {
    put_varint(out, groups.len() as u64);
    groups.iter().for_each(|group| put_varint(out, u64::from(group.0)));
}

pub(super) fn take_groups(reader: &mut Reader<'_>) -> Option<BTreeSet<PartitionId>> {
    let mut groups = BTreeSet::new();
    for _ in 0..reader.varint()? {
        groups.insert(take_group(reader)?).then_some(())?;
    }
    Some(groups)
}

fn take_all<T>(reader: &mut Reader<'_>, take: fn(&mut Reader<'_>) -> Option<T>) -> Option<Vec<T>> {
    let mut all = Vec::new();
    for _ in 0..reader.varint()? {
        all.push(take(reader)?);
    }
    Some(all)
}
