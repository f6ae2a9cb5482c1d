//! Checkpoints of a cluster's node: all its partitions at the end of one epoch.
//!
//! Which epoch that is the order says ([`order::Control::Checkpoint`]), so every node takes its checkpoints at the same places.
//! Snapshots are opened before the epoch is confirmed and moved to its end when the engines are there, so that writers go on.
//! When the files are on the disk, the groups' logs get new bases, in one record; when that is durable, older files and older
//! segments of the journal go. A crash in between leaves either the old bases with the old files, or the new with the new.

use super::recover::BaseState;
use crate::checkpoint::{read_file, write_images};
use execute::Engine;
use order::consensus::Base;
use order::merge::EpochEnd;
use order::{Disk, Streams};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use store::Snapshot;
use store::checkpoint::{CheckpointError, Header};
use txn::{Epoch, PartitionId, Position};

/// The name of a partition's checkpoint.
pub(super) fn file_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("checkpoint-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// The name under which a checkpoint is written or fetched until it is complete.
pub(super) fn unfinished_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("unfinished-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// The epoch of a checkpoint's file, complete or not.
fn epoch_of_name(name: &str) -> Option<Epoch> {
    let numbers = name
        .strip_prefix("checkpoint-")
        .or_else(|| name.strip_prefix("unfinished-"))?;
    let (partition, epoch) = numbers.strip_suffix(".ordo")?.split_once('-')?;
    let partition = PartitionId(partition.parse().ok()?);
    let epoch = Epoch(epoch.parse().ok()?);
    let is_ours = [file_name, unfinished_name].map(|name| name(partition, epoch));
    is_ours.iter().any(|ours| ours == name).then_some(epoch)
}

/// Removes the checkpoints of all epochs but these, what was begun of them included.
pub fn prune<D: Disk>(disk: &D, keep: &[Epoch]) -> io::Result<()> {
    for name in disk.list()? {
        if epoch_of_name(&name).is_some_and(|epoch| !keep.contains(&epoch)) {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir()
}

/// An epoch at whose end a checkpoint is taken, until the engines are there.
pub(super) struct Pinned {
    pub end: EpochEnd,
    /// Open since before the epoch was confirmed: one for each local partition.
    pub snapshots: Vec<(PartitionId, Arc<dyn Engine>, Snapshot)>,
    /// For each local group: which requests its log has up to there, and the entry's index and term.
    pub groups: BTreeMap<PartitionId, (Streams, (u64, u64))>,
}

impl Pinned {
    /// Whether every engine has final-committed the epoch whole.
    pub fn is_reached(&self) -> bool {
        self.snapshots
            .iter()
            .zip(&self.end.next)
            .all(|((_, engine, _), next)| engine.view().final_position() >= next.prev())
    }

    /// What a group's log begins with behind the checkpoint.
    pub fn state(&self, partition: PartitionId, next: Position) -> Option<(BaseState, (u64, u64))> {
        let (streams, place) = self.groups.get(&partition)?;
        let state = BaseState {
            epoch: self.end.epoch,
            time_ms: self.end.time_ms,
            digest: self.end.digest,
            next,
            streams: streams.clone(),
            map: (*self.end.map).clone(),
        };
        Some((state, *place))
    }

    /// The job that writes the files.
    pub fn into_job(self) -> ClusterCheckpoint {
        let EpochEnd {
            epoch,
            time_ms,
            digest,
            next,
            ..
        } = self.end;
        let parts = self.snapshots.into_iter().zip(next);
        let parts = parts.map(|((partition, engine, mut snapshot), next)| {
            snapshot.advance(next.prev(), time_ms);
            let header = Header {
                position: next.prev(),
                epoch,
                time_ms,
                digest,
                boot: 0,
                clears: engine.view().clears_at(&snapshot),
            };
            Part {
                partition,
                engine,
                header,
                snapshot: Some(snapshot),
            }
        });
        ClusterCheckpoint {
            epoch,
            parts: parts.collect(),
        }
    }

    /// Gives it up.
    pub fn close(self) {
        for (_, engine, snapshot) in self.snapshots {
            engine.view().close(snapshot);
        }
    }
}

/// Checkpoints that are to be written: one for each local partition. Dropping it closes the snapshots.
pub struct ClusterCheckpoint {
    epoch: Epoch,
    parts: Vec<Part>,
}

struct Part {
    partition: PartitionId,
    engine: Arc<dyn Engine>,
    header: Header,
    snapshot: Option<Snapshot>,
}

impl Part {
    fn close(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.view().close(snapshot);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.close();
    }
}

impl ClusterCheckpoint {
    /// The epoch at whose end they are taken.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Writes the files. They are complete and durable when this returns the number of records.
    pub fn write<D: Disk>(mut self, disk: &D) -> io::Result<u64> {
        let mut records = 0;
        for part in &mut self.parts {
            let unfinished = unfinished_name(part.partition, self.epoch);
            let Some(snapshot) = &part.snapshot else {
                continue;
            };
            let written = write_images(
                disk,
                &unfinished,
                part.engine.view(),
                snapshot,
                &part.header,
            );
            if written.is_err() {
                // Gives the space back. The next checkpoint removes it otherwise.
                let _ = disk.remove(&unfinished);
            }
            records += written?.0;
            part.close();
            disk.rename(&unfinished, &file_name(part.partition, self.epoch))?;
        }
        disk.sync_dir()?;
        Ok(records)
    }
}

/// Loads the checkpoint that a group's base tells of into an engine.
pub(super) fn load<D: Disk>(
    disk: &D,
    partition: PartitionId,
    base: &Base,
    engine: &Arc<dyn Engine>,
) -> Result<(), LoadError> {
    let state = BaseState::decode(&base.state).ok_or(LoadError::Base(partition))?;
    let name = file_name(partition, state.epoch);
    let view = engine.view();
    let header =
        read_file(disk, &name, |image| view.load(image)).map_err(|cause| LoadError::File {
            name: name.clone(),
            cause,
        })?;
    if (header.position.next(), header.digest) != (state.next, state.digest) {
        return Err(LoadError::Foreign { name });
    }
    view.loaded(header.position, header.time_ms, &header.clears);
    Ok(())
}

/// Why a checkpoint could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// What the journal says of it cannot be read.
    #[error(
        "what the journal says of the checkpoint of {0} cannot be read: start the version that wrote it"
    )]
    Base(PartitionId),
    /// The file is damaged or missing.
    #[error(
        "{name} cannot be used: {cause}. Restore it from a backup of this node, or replace the node: add one under a new name, \
         and remove this one"
    )]
    File {
        /// Its name.
        name: String,
        /// Why.
        cause: CheckpointError,
    },
    /// The file is of another history.
    #[error(
        "{name} was not made from this journal: files of two nodes are mixed in one directory. Restore both from one backup, \
         or replace the node"
    )]
    Foreign {
        /// Its name.
        name: String,
    },
}
