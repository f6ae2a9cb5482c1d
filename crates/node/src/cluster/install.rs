//! Catching up by a checkpoint: what a replica does whose leader no longer has the entries that it lacks.
//!
//! The leader says so ([`Frame::Behind`](super::Frame)), and the replica fetches the checkpoints of all its partitions at one
//! epoch, piece by piece, while it goes on as well as it can. It asks for each piece, so the transfer needs no more memory
//! than a piece, and lost frames cost some ticks: how many is learnt from how long pieces take, because asking again before
//! a slow link has delivered fills that link with what nobody needs, and then nothing comes in time. When all files are there it writes new bases into its journal, in one record,
//! and starts anew: a process that begins behind a checkpoint is something that every start does.

use super::checkpoint::{file_name, unfinished_name};
use bytes::Bytes;
use order::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use txn::{Epoch, NodeId, PartitionId};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// A piece that has not come is asked for again after so many ticks, at least and at most.
const PATIENCE_TICKS: RangeInclusive<u64> = 4..=256;

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

/// The files that are being fetched.
#[derive(Debug)]
pub(super) struct Install {
    pub epoch: Epoch,
    /// What is still to be fetched, the first one next.
    wanted: Vec<PartitionId>,
    offset: u64,
    /// The group's base at the checkpoint, as the source gave it.
    pub bases: BTreeMap<PartitionId, Bytes>,
    /// The node that said that this one is behind.
    pub source: NodeId,
    asked_tick: Option<u64>,
    /// The next piece was asked for more than once.
    asked_again: bool,
    patience_ticks: u64,
    /// A piece is being written.
    writing: bool,
}

impl Install {
    pub fn new(epoch: Epoch, source: NodeId, wanted: Vec<PartitionId>) -> Install {
        Install {
            epoch,
            wanted,
            offset: 0,
            bases: BTreeMap::new(),
            source,
            asked_tick: None,
            asked_again: false,
            patience_ticks: *PATIENCE_TICKS.start(),
            writing: false,
        }
    }

    /// Goes on with what was learnt of the link.
    pub fn with_patience_of(self, before: &Install) -> Install {
        Install {
            patience_ticks: before.patience_ticks,
            ..self
        }
    }

    /// The piece that is to be asked for now, if one is.
    pub fn next(&mut self, now_tick: u64) -> Option<Piece> {
        let patient = self
            .asked_tick
            .is_some_and(|asked| now_tick < asked + self.patience_ticks);
        if self.writing || patient {
            return None;
        }
        let &partition = self.wanted.first()?;
        if self.asked_tick.replace(now_tick).is_some() {
            self.asked_again = true;
            self.patience_ticks = (self.patience_ticks * 2).min(*PATIENCE_TICKS.end());
        }
        Some(Piece {
            partition,
            epoch: self.epoch,
            offset: self.offset,
        })
    }

    /// Whether a piece that has come is the one that is waited for. It is being written then.
    pub fn takes(&mut self, piece: Piece, now_tick: u64) -> bool {
        let awaited = self.wanted.first() == Some(&piece.partition)
            && (self.epoch, self.offset) == (piece.epoch, piece.offset)
            && !self.writing;
        self.writing |= awaited;
        // Which of several questions was answered nobody knows.
        if awaited
            && !self.asked_again
            && let Some(asked) = self.asked_tick
        {
            let twice = 2 * now_tick.saturating_sub(asked);
            self.patience_ticks = twice
                .max(self.patience_ticks / 2)
                .clamp(*PATIENCE_TICKS.start(), *PATIENCE_TICKS.end());
        }
        awaited
    }

    /// A piece is on the disk. `last`: so is the whole file.
    pub fn written(&mut self, piece: Piece, bytes: u64, last: bool) {
        self.writing = false;
        self.asked_tick = None;
        self.asked_again = false;
        if last {
            self.wanted
                .retain(|&partition| partition != piece.partition);
            self.offset = 0;
        } else {
            self.offset = piece.offset + bytes;
        }
    }

    /// Whether everything is there.
    pub fn is_complete(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// Reads a piece of a checkpoint, for another node: the size of the whole file, and what it has there.
pub fn read_piece<D: Disk>(disk: &D, piece: Piece) -> io::Result<(u64, Vec<u8>)> {
    let file = disk.open(&file_name(piece.partition, piece.epoch))?;
    let total = file.len_bytes()?;
    let left = total.saturating_sub(piece.offset).min(PIECE_BYTES as u64);
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

/// Writes a piece of a checkpoint that another node gave. With the last one the file is complete and durable.
pub fn write_piece<D: Disk>(disk: &D, piece: Piece, bytes: &[u8], last: bool) -> io::Result<()> {
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
    if last {
        file.sync()?;
        disk.rename(&unfinished, &file_name(piece.partition, piece.epoch))?;
        disk.sync_dir()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_asked_for_in_turn_and_again_when_they_do_not_come() {
        let both = vec![PartitionId(0), PartitionId(3)];
        let mut install = Install::new(Epoch(7), NodeId(1), both);
        let piece = |partition, offset| Piece {
            partition: PartitionId(partition),
            epoch: Epoch(7),
            offset,
        };
        assert_eq!(install.next(10), Some(piece(0, 0)));
        assert_eq!(install.next(11), None);
        assert_eq!(install.next(14), Some(piece(0, 0)), "asked again");
        assert!(!install.takes(piece(0, 5), 14) && !install.takes(piece(3, 0), 14));
        assert!(install.takes(piece(0, 0), 14));
        assert!(!install.takes(piece(0, 0), 14), "it came twice");
        assert_eq!(install.next(30), None, "it is being written");
        install.written(piece(0, 0), 5, false);
        assert_eq!(install.next(31), Some(piece(0, 5)));
        assert!(install.takes(piece(0, 5), 14));
        install.written(piece(0, 5), 2, true);
        assert_eq!(install.next(32), Some(piece(3, 0)));
        assert!(!install.is_complete() && install.takes(piece(3, 0), 14));
        install.written(piece(3, 0), 0, true);
        assert!(install.is_complete());
    }

    /// How often each of 20 pieces is asked for where the source's link needs `piece_ticks` for each.
    fn questions(piece_ticks: u64, loses: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut install = Install::new(Epoch(7), NodeId(1), vec![PartitionId(0)]);
        let (mut link_free_tick, mut questions) = (0, vec![0; 20]);
        let mut answers: Vec<(u64, Piece)> = Vec::new();
        for tick in 0..100_000 {
            while let Some(place) = answers.iter().position(|&(due, _)| due <= tick) {
                let (_, piece) = answers.remove(place);
                if install.takes(piece, tick) {
                    install.written(piece, 1, piece.offset == 19);
                }
            }
            if install.is_complete() {
                return questions;
            }
            if let Some(piece) = install.next(tick) {
                questions[piece.offset as usize] += 1;
                if !loses(questions[piece.offset as usize]) {
                    link_free_tick = tick.max(link_free_tick) + piece_ticks;
                    answers.push((link_free_tick, piece));
                }
            }
        }
        panic!("not even a tick a thousand times over is enough: {questions:?}");
    }

    #[test]
    fn a_slow_link_is_not_filled_with_pieces_that_were_asked_for_too_early() {
        for piece_ticks in [0, 1, 3, 4, 7, 20, 100] {
            let questions = questions(piece_ticks, |_| false);
            let wasted = questions.iter().sum::<u64>() - 20;
            assert!(wasted <= 8, "{piece_ticks}: {questions:?}");
            assert!(
                questions[10..].iter().all(|&asked| asked == 1),
                "{piece_ticks}: {questions:?}"
            );
        }
    }

    #[test]
    fn a_link_that_loses_every_first_answer_still_brings_everything() {
        assert_eq!(questions(1, |asked| asked == 1), vec![2; 20]);
    }
}
