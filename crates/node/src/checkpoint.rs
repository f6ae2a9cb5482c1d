//! Checkpoint files: records at a snapshot, written while writers go on.

use log::{Disk, DiskFile, FileReader, FileWriter};
use std::io::{self, BufReader, BufWriter};
use store::checkpoint::{CheckpointError, Header, Writer};
use store::{Image, Snapshot, View};
use txn::mutant::{Mutant, is_active};

const BUFFER_BYTES: usize = 256 * 1024;
/// Records that are copied out of the store at a time.
const IMAGES_PER_STEP: usize = 512;

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
