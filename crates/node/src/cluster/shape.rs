//! What a frame must be like before anything of it is used.
//!
//! A peer has proved that it belongs to the cluster, and may still be broken, or lie. So a frame is held
//! against the cluster here, once: the partitions that it names, what it says of others, and lists that go
//! together. What a frame says of a group's log or of a checkpoint is held against these where they are known
//! ([`agree::Group::examine`], [`read_entries`], [`super::transfer`]). A frame that cannot be costs its
//! sender the link ([`Host::sever`](crate::host::Host::sever)), and has no other effect.

use super::compare::{COMPARED_EVERY, StateReport, TOLD_MAX};
use super::feeds::{Answered, Fed, Item, Part};
use super::frames::{Frame, FrameError};
use super::out::CAUSE_BYTES_MAX;
use super::peers::Condition;
use agree::Contradiction;
use log::{Entry, EntryKind};
use order::merge::{Content, Held};
use order::{GroupBatch, PartitionMap, digest_of};
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

/// A batch that came with an entry, read: the entry's index and term, and the batch.
pub(super) type ReadAhead = Vec<(u64, u64, Arc<GroupBatch>)>;

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

/// Reads the batches of entries that a group's log is about to get from its leader, and holds them against
/// the cluster and the epoch of what the log has before them.
pub(super) fn read_entries(
    partition: PartitionId,
    entries: &[Entry],
    mut epoch: Epoch,
    own: &PartitionMap,
    registry: &Registry,
) -> Result<ReadAhead, BadFrame> {
    let mut read = ReadAhead::new();
    for entry in entries {
        if entry.kind != EntryKind::Data || entry.data.is_empty() {
            continue;
        }
        let batch = GroupBatch::decode(&entry.data, registry);
        let batch = batch.map_err(|error| match error {
            RequestError::Malformed => BadFrame("it has an entry that is no batch".to_owned()),
            RequestError::UnknownProcedure(_) => BadFrame(format!(
                "entry {} of {partition} means nothing to this build of Ordo ({error}): run the \
                 version here that the other nodes run",
                entry.index
            )),
        })?;
        epoch.0 += 1;
        if batch.epoch != epoch {
            return Err(BadFrame(format!(
                "it has the batch of epoch {} in the place of epoch {} of {partition}",
                batch.epoch.0, epoch.0
            )));
        }
        batch.check(partition, own.partitions.len() as u16)?;
        read.push((entry.index, entry.term, Arc::new(batch)));
    }
    Ok(read)
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
    if entry.kind != EntryKind::Data || entry.data.is_empty() {
        return Ok(None);
    }
    let epoch = GroupBatch::epoch_of(&entry.data).ok_or(RequestError::Malformed)?;
    Ok(Some(Held {
        epoch,
        index: entry.index,
        term: entry.term,
        digest: digest_of(&entry.data),
        bytes: entry.data.len() as u64,
        batch: Content::Unread(entry.data.clone()),
        noted: Default::default(),
    }))
}
