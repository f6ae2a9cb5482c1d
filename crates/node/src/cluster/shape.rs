//! What a frame must be like before anything of it is used.
//!
//! A peer has proved that it belongs to the cluster, and may still be broken, or lie. So a frame is held
//! against the cluster here, once: the partitions that it names, what it says of others, and lists that go
//! together. What a frame says of a group's log or of a checkpoint is held against these where they are known
//! ([`agree::Group::examine`], [`read_batches`], [`super::transfer`]). A frame that cannot be costs its
//! sender the link ([`Host::sever`](crate::host::Host::sever)), and has no other effect.

use super::compare::{COMPARED_EVERY, StateReport, TOLD_MAX};
use super::feeds::{Answered, Fed, Item, Part};
use super::frames::{Frame, FrameError};
use super::out::CAUSE_BYTES_MAX;
use super::peers::Condition;
use agree::Contradiction;
use bytes::Bytes;
use log::{Entry, EntryKind};
use order::merge::{Content, Held};
use order::{GroupBatch, PartitionMap, digest_of};
use std::fmt;
use std::sync::Arc;
use txn::codec::RequestError;
use txn::{BootId, Epoch, PartitionId, Registry, Stop};

/// Why a frame is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct BadFrame(pub String);

impl From<&str> for BadFrame {
    fn from(text: &str) -> BadFrame {
        BadFrame(text.to_owned())
    }
}

impl From<FrameError> for BadFrame {
    fn from(error: FrameError) -> BadFrame {
        BadFrame(error.to_string())
    }
}

impl From<Contradiction> for BadFrame {
    fn from(contradiction: Contradiction) -> BadFrame {
        BadFrame(contradiction.to_string())
    }
}

/// The batches of a message, read.
pub(super) type ReadAhead = Vec<Arc<GroupBatch>>;

/// The partition that a frame is about, if it is about one.
fn partition_of(frame: &Frame) -> Option<PartitionId> {
    match frame {
        Frame::Consensus { partition, .. }
        | Frame::Submit { partition, .. }
        | Frame::Expect { partition, .. }
        | Frame::Elsewhere { partition, .. }
        | Frame::Behind { partition, .. }
        | Frame::Follow { partition, .. }
        | Frame::Unfollow { partition, .. }
        | Frame::Feed { partition, .. }
        | Frame::Heard { partition, .. }
        | Frame::Followed { partition, .. }
        | Frame::Left { partition, .. }
        | Frame::Belongs { partition }
        | Frame::Wish { partition, .. } => Some(*partition),
        Frame::Fetch(piece) | Frame::Piece { piece, .. } => Some(piece.partition),
        Frame::Begun(_)
        | Frame::Change(_)
        | Frame::Newest(_)
        | Frame::Clock { .. }
        | Frame::Condition(_)
        | Frame::Time(_)
        | Frame::States(_)
        | Frame::MapWanted
        | Frame::Map(_) => None,
    }
}

/// Holds a frame against the cluster.
pub(super) fn check_frame(frame: &Frame, own: &PartitionMap) -> Result<(), BadFrame> {
    let partitions = own.partitions.len() as u16;
    let is_known = |partition: PartitionId| partition.0 < partitions;
    if let Some(partition) = partition_of(frame).filter(|&partition| !is_known(partition)) {
        return Err(BadFrame(format!("it names {partition}, and the cluster has {partitions} partitions")));
    }
    match frame {
        Frame::Submit { submissions, .. } => {
            for submission in submissions {
                submission.check(partitions)?;
                if submission.boot == BootId(0) {
                    return Err("it submits a request that no process has taken".into());
                }
            }
        }
        Frame::Follow { kept, .. } => {
            let is_sorted = kept.is_sorted_by(|a, b| a < b);
            if !is_sorted || !kept.iter().all(|&kept| is_known(kept)) {
                return Err("it keeps partitions that the cluster has not".into());
            }
        }
        Frame::Feed { batches, answers, messages, part, .. } => {
            check_batches(batches)?;
            if !messages.iter().all(|(to, _)| is_known(*to)) {
                return Err("it tells of partitions that the cluster has not".into());
            }
            for answered in answers {
                check_answer(answered, own)?;
            }
            if let Some(part) = part {
                check_part(part, is_known)?;
            }
        }
        Frame::Condition(Condition::Out(cause)) if cause.len() > CAUSE_BYTES_MAX => {
            return Err("it says at length why it is out".into());
        }
        Frame::States(reports) => {
            let is_real = |report: &StateReport| {
                let is_compared = report.epoch.0 > 0 && report.epoch.0.is_multiple_of(COMPARED_EVERY);
                is_known(report.partition) && is_compared
            };
            let is_sorted = reports.is_sorted_by_key(|report| (report.partition, report.epoch));
            let are_many = reports.len() > TOLD_MAX * usize::from(partitions);
            if are_many || !is_sorted || !reports.iter().all(is_real) {
                return Err("it tells of states that are not compared".into());
            }
        }
        Frame::Map(map) if (map.cluster != own.cluster || map.partitions.len() != own.partitions.len()) => {
            return Err("its map is that of another cluster".into());
        }
        _ => {}
    }
    Ok(())
}

/// Holds what was heard of a request's end against the cluster.
pub(super) fn check_answer(answered: &Answered, own: &PartitionMap) -> Result<(), BadFrame> {
    let missing = match &answered.outcome {
        Err(Stop::Undeclared(missing)) => *missing,
        _ => None,
    };
    let named = [Some(answered.partition), missing];
    match named.into_iter().flatten().all(|partition| usize::from(partition.0) < own.partitions.len()) {
        true => Ok(()),
        false => Err("it tells of partitions that the cluster has not".into()),
    }
}

/// The batches of entries, with the entries' indices.
pub(super) fn batches_of(entries: &[Entry]) -> impl Iterator<Item = (u64, &Bytes)> {
    let batches = entries.iter().filter(|entry| entry.kind == EntryKind::Data && !entry.data.is_empty());
    batches.map(|entry| (entry.index, &entry.data))
}

/// Reads the batches that a group is about to get from its leader, and holds them against the cluster and the
/// epoch of what the group has before them.
pub(super) fn read_batches<'a>(
    partition: PartitionId,
    batches: impl Iterator<Item = (u64, &'a Bytes)>,
    mut epoch: Epoch,
    own: &PartitionMap,
    registry: &Registry,
) -> Result<ReadAhead, BadFrame> {
    let mut read = ReadAhead::new();
    for placed in batches {
        let batch = read_batch(partition, placed, own, registry)?;
        epoch.0 += 1;
        if batch.epoch != epoch {
            return Err(BadFrame(format!(
                "it has the batch of epoch {} in the place of epoch {} of {partition}",
                batch.epoch.0, epoch.0
            )));
        }
        read.push(Arc::new(batch));
    }
    Ok(read)
}

/// Reads a batch, and holds it against the cluster.
pub(super) fn read_batch(
    partition: PartitionId,
    (index, data): (u64, &Bytes),
    own: &PartitionMap,
    registry: &Registry,
) -> Result<GroupBatch, BadFrame> {
    let batch = GroupBatch::decode(data, registry).map_err(|error| match error {
        RequestError::Malformed => BadFrame("it has an entry that is no batch".to_owned()),
        RequestError::UnknownProcedure(_) => BadFrame(format!(
            "{} of {partition} means nothing to this build of Ordo ({error}): run the version here that the \
             other nodes run",
            Place(index)
        )),
    })?;
    batch.check(partition, own.partitions.len() as u16)?;
    Ok(batch)
}

/// Where a group has a batch, for a text.
pub(super) struct Place(pub u64);

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Held::AHEAD => f.write_str("a batch ahead of the log"),
            index => write!(f, "entry {index} of the log"),
        }
    }
}

/// Batches are of epochs that follow each other, from places of a log that do.
fn check_batches(batches: &[Fed]) -> Result<(), BadFrame> {
    let follows = |(before, fed): (&Fed, &Fed)| {
        fed.epoch.0 == before.epoch.0 + 1 && fed.index > before.index && fed.term >= before.term
    };
    let are_real = batches.iter().all(|fed| fed.index > 0 && fed.epoch.0 > 0);
    match are_real && batches.iter().zip(batches.iter().skip(1)).all(follows) {
        true => Ok(()),
        false => Err("its batches do not follow each other".into()),
    }
}

/// A part lies within the whole, and is something.
fn check_part(part: &Part, is_known: impl Fn(PartitionId) -> bool) -> Result<(), BadFrame> {
    if let Item::Message(to) = part.item
        && !is_known(to)
    {
        return Err("it tells of partitions that the cluster has not".into());
    }
    let end = part.offset.checked_add(part.bytes.len() as u64);
    match end {
        Some(end) if end > part.offset && end <= part.total => Ok(()),
        _ => Err("a part does not lie within its whole".into()),
    }
}

/// What an entry brings to the merge, unread; `None` if it is not a batch.
pub(super) fn held(entry: &Entry) -> Result<Option<Held>, RequestError> {
    let batch = batches_of(std::slice::from_ref(entry)).next();
    batch.map(|(index, data)| held_batch((index, entry.term), data)).transpose()
}

/// What a batch at an index and a term of the log brings to the merge, unread.
pub(super) fn held_batch((index, term): (u64, u64), data: &Bytes) -> Result<Held, RequestError> {
    Ok(Held {
        epoch: GroupBatch::epoch_of(data).ok_or(RequestError::Malformed)?,
        index,
        term,
        digest: digest_of(data),
        bytes: data.len() as u64,
        batch: Content::Unread(data.clone()),
        noted: Default::default(),
    })
}
