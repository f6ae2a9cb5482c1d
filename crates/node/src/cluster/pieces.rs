//! Checkpoint files in pieces: as they are read for other nodes, and as those of others are written.

use super::base::BaseState;
use super::checkpoint::{file_name, unfinished_name};
use log::{Disk, DiskFile, FileReader};
use std::io;
use store::checkpoint::CheckpointError;
use txn::{Epoch, PartitionId, Position};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;

/// Part of a file that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of which partition's checkpoint.
    pub partition: PartitionId,
    /// At the end of which epoch.
    pub epoch: Epoch,
    /// From which byte on.
    pub offset: u64,
}

/// What a file must be of when it is whole: the position behind it, and the digest of the order up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    next: Position,
    digest: u64,
}

impl Whole {
    /// What the base says that comes with the file.
    pub(super) fn of(state: &BaseState) -> Whole {
        Whole { next: state.next, digest: state.digest }
    }
}

/// The size of the whole file, and the bytes of the piece.
pub(crate) fn read_piece<D: Disk>(disk: &D, piece: Piece) -> io::Result<(u64, Vec<u8>)> {
    read_piece_of(disk, piece, PIECE_BYTES)
}

/// The size of the whole file of a checkpoint, and up to so many bytes of it from the piece's offset on.
pub fn read_piece_of<D: Disk>(disk: &D, piece: Piece, bytes_max: usize) -> io::Result<(u64, Vec<u8>)> {
    let file = disk.open(&file_name(piece.partition, piece.epoch))?;
    let total = file.len_bytes()?;
    let left = total.saturating_sub(piece.offset).min(bytes_max as u64);
    let mut bytes = vec![0; left as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(piece.offset + done as u64, &mut bytes[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok((total, bytes))
}

/// Fails with [`io::ErrorKind::InvalidData`] if the file is whole and is not the checkpoint that it should
/// be.
pub(crate) fn write_piece<D: Disk>(
    disk: &D,
    piece: Piece,
    bytes: &[u8],
    whole: Option<Whole>,
) -> io::Result<()> {
    let unfinished = unfinished_name(piece.partition, piece.epoch);
    let file = if piece.offset == 0 {
        if disk.list()?.contains(&unfinished) {
            disk.remove(&unfinished)?;
        }
        disk.create(&unfinished, 0)?
    } else {
        disk.open(&unfinished)?
    };
    file.write_at(piece.offset, bytes)?;
    if let Some(whole) = whole {
        if let Err(why) = check_whole(&file, whole) {
            disk.remove(&unfinished)?;
            return Err(why);
        }
        file.sync()?;
        disk.rename(&unfinished, &file_name(piece.partition, piece.epoch))?;
        disk.sync_dir()?;
    }
    Ok(())
}

/// Reads a file that is to be loaded at the next start: then it would be too late to fetch another one.
fn check_whole<F: DiskFile>(file: &F, whole: Whole) -> io::Result<()> {
    let read = store::checkpoint::read(io::BufReader::new(FileReader::new(file)), |_| ());
    let header = read.map_err(|error| match error {
        CheckpointError::Io(error) => error,
        damaged => io::Error::new(io::ErrorKind::InvalidData, damaged),
    })?;
    match (header.position.0.checked_add(1), header.digest) == (Some(whole.next.0), whole.digest) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not of the place in the order that its base tells of",
        )),
    }
}

#[cfg(test)]
mod tests;
