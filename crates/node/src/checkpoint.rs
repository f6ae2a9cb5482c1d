//! Checkpoint files: written from a snapshot while writers go on, and found again at the start.

use execute::Engine;
use order::{Disk, DiskFile, FileReader, FileWriter};
use std::io::{self, BufReader, BufWriter};
use std::sync::Arc;
use store::checkpoint::{CheckpointError, Header, Writer};
use store::{Image, Snapshot, View};
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// How many checkpoints are kept. The older one is for the day on which the newer is damaged.
pub(crate) const KEPT: usize = 2;
const TEMPORARY: &str = "checkpoint-unfinished.ordo";
const BUFFER_BYTES: usize = 256 * 1024;
/// Records that are copied out of the store at a time.
const IMAGES_PER_STEP: usize = 512;

/// The file name of the checkpoint at `position`.
pub(crate) fn file_name(position: Position) -> String {
    format!("checkpoint-{:020}.ordo", position.0)
}

fn position_of_name(name: &str) -> Option<Position> {
    let digits = name.strip_prefix("checkpoint-")?.strip_suffix(".ordo")?;
    let position = Position(digits.parse().ok()?);
    (file_name(position) == name).then_some(position)
}

/// The positions of all checkpoints on the disk, newest first.
pub(crate) fn list<D: Disk>(disk: &D) -> io::Result<Vec<Position>> {
    let mut positions: Vec<Position> =
        disk.list()?.iter().filter_map(|name| position_of_name(name)).collect();
    positions.sort_by(|a, b| b.cmp(a));
    Ok(positions)
}

/// Reads the checkpoint at `position`, handing each record to `load`.
pub(crate) fn read<D: Disk>(
    disk: &D,
    position: Position,
    load: impl FnMut(Image),
) -> Result<Header, CheckpointError> {
    let header = read_file(disk, &file_name(position), load)?;
    if header.position != position {
        return Err(CheckpointError::Damaged {
            offset: 0,
            what: "the file's name and its header name different positions",
        });
    }
    Ok(header)
}

/// Writes the records at a snapshot into a new file, and syncs it. Returns how many there are, and the file's
/// size.
pub(crate) fn write_images<D: Disk>(
    disk: &D,
    name: &str,
    view: &dyn View,
    snapshot: &Snapshot,
    header: &Header,
) -> io::Result<(u64, u64)> {
    let file = disk.create(name, 0)?;
    let out = BufWriter::with_capacity(BUFFER_BYTES, FileWriter::new(&file));
    let mut writer = Writer::new(out, header)?;
    let mut images = Vec::new();
    let mut shard = Some(0);
    while let Some(from) = shard {
        shard = view.images_at(snapshot, from, IMAGES_PER_STEP, &mut images);
        if is_active(Mutant::CheckpointWithoutTombstones) {
            images.retain(|image| image.entry.is_some());
        }
        for image in images.drain(..) {
            writer.push(&image)?;
        }
    }
    let (_, records) = writer.finish()?;
    if !is_active(Mutant::SkipSyncOfCheckpoint) {
        file.sync()?;
    }
    Ok((records, file.len_bytes()?))
}

/// Reads a checkpoint file, handing each record to `load`.
pub(crate) fn read_file<D: Disk>(
    disk: &D,
    name: &str,
    load: impl FnMut(Image),
) -> Result<Header, CheckpointError> {
    let file = disk.open(name)?;
    store::checkpoint::read(BufReader::with_capacity(BUFFER_BYTES, FileReader::new(&file)), load)
}

/// The size of a file.
pub(crate) fn file_bytes<D: Disk>(disk: &D, name: &str) -> io::Result<u64> {
    disk.open(name)?.len_bytes()
}

/// Removes all but the newest checkpoints, and what an interrupted one left. What cannot be removed stays.
pub(crate) fn prune<D: Disk>(disk: &D) -> io::Result<()> {
    for position in list(disk)?.into_iter().skip(KEPT) {
        disk.remove(&file_name(position))?;
    }
    if disk.list()?.iter().any(|name| name == TEMPORARY) {
        disk.remove(TEMPORARY)?;
    }
    disk.sync_dir()
}

/// A checkpoint that is to be written: an open snapshot and what the file's header says.
///
/// While it is held no version that it needs is collected; dropping it closes the snapshot.
pub struct CheckpointJob {
    engine: Arc<dyn Engine>,
    header: Header,
    snapshot: Option<Snapshot>,
}

/// A checkpoint that is on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointWritten {
    /// Its position.
    pub position: Position,
    /// Records in it.
    pub records: u64,
    /// The size of its file.
    pub bytes: u64,
}

/// A checkpoint that could not be written. The older ones are untouched.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint at position {position} could not be written: {cause}")]
pub struct CheckpointFailed {
    /// Its position.
    pub position: Position,
    /// What the disk said.
    pub cause: io::Error,
}

impl CheckpointJob {
    pub(crate) fn new(engine: Arc<dyn Engine>, snapshot: Snapshot, header: Header) -> CheckpointJob {
        CheckpointJob { engine, header, snapshot: Some(snapshot) }
    }

    /// The snapshot's position.
    pub fn position(&self) -> Position {
        self.header.position
    }

    /// Writes the file, under a name of its own until it is complete and durable. `sync_log` makes the log
    /// durable up to the snapshot's position at least: a checkpoint must not survive what it was made of.
    pub fn write<D: Disk>(
        mut self,
        disk: &D,
        sync_log: impl FnOnce() -> io::Result<()>,
    ) -> Result<CheckpointWritten, CheckpointFailed> {
        let position = self.position();
        let result = self.write_file(disk, sync_log);
        if result.is_err() {
            // Gives the space back. The next checkpoint removes it otherwise.
            let _ = disk.remove(TEMPORARY);
        }
        result.map_err(|cause| CheckpointFailed { position, cause })
    }

    fn write_file<D: Disk>(
        &mut self,
        disk: &D,
        sync_log: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<CheckpointWritten> {
        prune(disk)?;
        if is_active(Mutant::CheckpointWithoutClears) {
            self.header.clears.clear();
        }
        if is_active(Mutant::CheckpointLaterThanSaid) {
            self.close();
            self.snapshot = Some(self.engine.view().open());
        }
        let Some(snapshot) = &self.snapshot else {
            return Err(io::Error::other("the checkpoint's snapshot is closed"));
        };
        let (records, bytes) = write_images(disk, TEMPORARY, self.engine.view(), snapshot, &self.header)?;
        self.close();
        sync_log()?;
        disk.rename(TEMPORARY, &file_name(self.header.position))?;
        disk.sync_dir()?;
        prune(disk)?;
        Ok(CheckpointWritten { position: self.header.position, records, bytes })
    }

    fn close(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.view().close(snapshot);
        }
    }
}

impl Drop for CheckpointJob {
    fn drop(&mut self) {
        self.close();
    }
}
