//! The files of checkpoints, and the job that writes them.

use super::base::{BadBase, BaseState};
use crate::checkpoint::{file_bytes, read_file, write_images};
use execute::Engine;
use log::{Base, Disk};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use store::checkpoint::{CheckpointError, Header};
use store::{Image, Snapshot};
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, PartitionId};

/// The name of a partition's checkpoint.
pub(super) fn file_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("checkpoint-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// The name under which a checkpoint is written or fetched until it is complete.
pub(super) fn unfinished_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("unfinished-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// Whether a directory has a checkpoint, of any version.
pub fn is_any<D: Disk>(disk: &D) -> io::Result<bool> {
    let is_one = |name: &String| name.starts_with("checkpoint-") && name.ends_with(".ordo");
    Ok(disk.list()?.iter().any(is_one))
}

/// The epoch of a checkpoint's file, complete or not.
pub(super) fn epoch_of_name(name: &str) -> Option<Epoch> {
    let numbers = name.strip_prefix("checkpoint-").or_else(|| name.strip_prefix("unfinished-"))?;
    let (partition, epoch) = numbers.strip_suffix(".ordo")?.split_once('-')?;
    let partition = PartitionId(partition.parse().ok()?);
    let epoch = Epoch(epoch.parse().ok()?);
    let is_ours = [file_name, unfinished_name].map(|name| name(partition, epoch));
    is_ours.iter().any(|ours| ours == name).then_some(epoch)
}

/// Which checkpoints a node needs. It may be followed later, while newer ones are written or fetched: those
/// stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// These stay.
    pub(super) epochs: BTreeSet<Epoch>,
    /// What is newer than this is not spoken of.
    pub(super) upto: Epoch,
}

impl Needed {
    /// Every checkpoint.
    pub(crate) fn all() -> Needed {
        Needed { epochs: BTreeSet::new(), upto: Epoch(0) }
    }
}

/// Removes the checkpoints that are not needed, what was begun of them included.
pub fn prune<D: Disk>(disk: &D, needed: &Needed) -> io::Result<()> {
    let is_needed = |epoch| epoch > needed.upto || needed.epochs.contains(&epoch);
    remove_unless(disk, is_needed)
}

/// Keeps the files of a checkpoint that could not be used out of the way, for whoever wants to know why.
pub(super) fn put_aside<D: Disk>(disk: &D, partitions: &BTreeSet<PartitionId>, epoch: Epoch) {
    for &partition in partitions {
        let name = file_name(partition, epoch);
        // One that is missing can't be kept.
        let _ = disk.rename(&name, &format!("damaged-{name}"));
    }
}

/// Keeps complete checkpoints that are newer than the end of the log out of the way: where part of the log
/// was removed, they are all that is left of it. Gives the epoch of the newest.
pub(super) fn put_newer_aside<D: Disk>(disk: &D, end: Epoch) -> io::Result<Option<Epoch>> {
    let mut newest = None;
    for name in disk.list()? {
        let newer = epoch_of_name(&name).filter(|epoch| *epoch > end && name.starts_with("checkpoint-"));
        if newer.is_some() {
            disk.rename(&name, &format!("newer-{name}"))?;
            newest = newest.max(newer);
        }
    }
    Ok(newest)
}

/// Removes the checkpoints of all epochs but these: what newer ones an ended process has left has no base in
/// its journal.
pub(super) fn prune_at_start<D: Disk>(disk: &D, keep: &BTreeSet<Epoch>) -> io::Result<()> {
    remove_unless(disk, |epoch| keep.contains(&epoch))
}

fn remove_unless<D: Disk>(disk: &D, is_needed: impl Fn(Epoch) -> bool) -> io::Result<()> {
    for name in disk.list()? {
        if epoch_of_name(&name).is_some_and(|epoch| !is_needed(epoch)) {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir()
}

/// Checkpoints that are to be written: one for each local partition. Dropping it closes the snapshots.
pub struct ClusterCheckpoint {
    epoch: Epoch,
    parts: Vec<Part>,
}

pub(super) struct Part {
    pub partition: PartitionId,
    pub engine: Arc<dyn Engine>,
    pub header: Header,
    /// Open until the file is written.
    pub snapshot: Option<Snapshot>,
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

/// What was written, in all files of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub records: u64,
    /// The size of the files.
    pub bytes: u64,
}

impl ClusterCheckpoint {
    pub(super) fn new(epoch: Epoch, parts: Vec<Part>) -> ClusterCheckpoint {
        ClusterCheckpoint { epoch, parts }
    }

    /// The epoch at whose end they are taken.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Writes the files. They are complete and durable when this returns how much there is in them.
    pub fn write<D: Disk>(mut self, disk: &D) -> io::Result<Written> {
        let mut sum = Written::default();
        for part in &mut self.parts {
            let unfinished = unfinished_name(part.partition, self.epoch);
            if is_active(Mutant::CheckpointLaterThanSaid) {
                part.close();
                part.snapshot = Some(part.engine.view().open());
            }
            let Some(snapshot) = &part.snapshot else {
                continue;
            };
            let written = write_images(disk, &unfinished, part.engine.view(), snapshot, &part.header);
            if written.is_err() {
                // Gives the space back. The next checkpoint removes it otherwise.
                let _ = disk.remove(&unfinished);
            }
            let (records, bytes) = written?;
            sum.records += records;
            sum.bytes += bytes;
            part.close();
            disk.rename(&unfinished, &file_name(part.partition, self.epoch))?;
        }
        disk.sync_dir()?;
        Ok(sum)
    }
}

/// Loads the checkpoint that a group's base tells of into an engine, and calls `tell` for each record. Gives
/// the size of its file.
pub(super) fn load<D: Disk>(
    disk: &D,
    partition: PartitionId,
    base: &Base,
    engine: &Arc<dyn Engine>,
    tell: &mut dyn FnMut(),
) -> Result<u64, LoadError> {
    let view = engine.view();
    let (header, bytes) = read(disk, partition, base, |image| {
        view.load(image);
        tell();
    })?;
    view.loaded(header.position, header.time_ms, &header.clears);
    let state = BaseState::decode(&base.state).ok_or(BadBase(partition))?;
    view.digests().load(header.position, state.state_digest);
    Ok(bytes)
}

/// Reads the checkpoint that a group's base tells of, and hands each record to `load`. Gives its header and
/// the size of its file.
pub(super) fn read<D: Disk>(
    disk: &D,
    partition: PartitionId,
    base: &Base,
    load: impl FnMut(Image),
) -> Result<(Header, u64), LoadError> {
    let state = BaseState::decode(&base.state).ok_or(BadBase(partition))?;
    let name = file_name(partition, state.epoch);
    let file = |cause| LoadError::File { name: name.clone(), cause };
    let header = read_file(disk, &name, load).map_err(file)?;
    let bytes = file_bytes(disk, &name).map_err(|error| file(error.into()))?;
    if (header.position.next(), header.digest) != (state.next, state.digest) {
        return Err(LoadError::Foreign { name });
    }
    Ok((header, bytes))
}

/// Why a checkpoint could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// What the journal says of it cannot be read.
    #[error(transparent)]
    Base(#[from] BadBase),
    /// The file is damaged or missing.
    #[error(
        "{name} cannot be used: {cause}. Restore it from a backup of this node; or, in a cluster, replace \
         the node: add one under a new name, and remove this one"
    )]
    File {
        /// Its name.
        name: String,
        /// Why.
        cause: CheckpointError,
    },
    /// A log begins at another epoch than the others, and there is no checkpoint of all.
    #[error(
        "the journal has all logs from the checkpoint of epoch {} on, but that of {partition}, whose \
         checkpoint is missing. Restore the directory from a backup; or, in a cluster, replace the node: \
         add one under a new name, and remove this one",
        epoch.0
    )]
    Uneven {
        /// Whose log.
        partition: PartitionId,
        /// The others' epoch.
        epoch: Epoch,
    },
    /// The file is of another history.
    #[error(
        "{name} was not made from this journal: files of two nodes are mixed in one directory. Restore \
         both from one backup; or, in a cluster, replace the node"
    )]
    Foreign {
        /// Its name.
        name: String,
    },
}
