//! What a node tells a backup: see [`crate::backup`].

use super::Runtime;
use crate::backup::{BackupPlace, ChangesPlace, FilePart, GroupNews, LogPart, PART_BYTES};
use crate::cluster::Ticket;
use log::{ReadFrom, read_records};
use node::cluster::{Piece, read_piece_of};
use txn::{Epoch, Position};

/// What a backup wants to read of a node's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupRead {
    /// Part of a checkpoint's file: a [`FilePart`].
    File(Piece),
    /// What the journal has of the order: a [`LogPart`].
    Log {
        /// From here on; from the oldest record that is there if none.
        from: Option<ReadFrom>,
        /// Up to this record, of which [`BackupPlace::record`] has told.
        until: Position,
        /// Of batches, only those of later epochs.
        behind: Epoch,
    },
}

/// Why a node tells nothing.
const STOPPED: &str = "this node stopped because of a bug";

impl Runtime {
    /// Where this node is, for a backup. The error is for people.
    pub fn backup_place(&self) -> Result<BackupPlace, String> {
        let mut core = self.inner.core.lock();
        core.turn(|member, _| {
            let map = member.node.map();
            let end = member.node.confirmed();
            let agreed = member.node.agreed_in_journal().into_iter();
            BackupPlace {
                name: member.name.clone(),
                cluster: format!("{:016x}", map.cluster),
                alone: member.node.is_alone(),
                node: member.me.0,
                partitions: map.partitions.len() as u16,
                epoch: end.epoch.0,
                time_ms: end.time_ms,
                digest: format!("{:016x}", end.digest),
                skips: self.inner.skips.iter().map(|(name, _)| name.to_string()).collect(),
                checkpoint: member.node.status().newest_checkpoint.0,
                record: member.records.journal.status().last.0,
                agreed: agreed.map(|(partition, index)| (partition.0, index)).collect(),
                addresses: map.nodes.values().map(|entry| entry.client_address.clone()).collect(),
            }
        })
        .ok_or_else(|| STOPPED.to_owned())
    }

    /// From which epochs on this node can tell of changes. The error is for people.
    pub fn changes_place(&self) -> Result<ChangesPlace, String> {
        let mut core = self.inner.core.lock();
        let place = core.turn(|member, _| {
            let end = member.node.confirmed();
            let (epoch, time_ms) = (end.epoch.0, end.time_ms);
            let checkpoints = member.node.followed_checkpoints().into_iter();
            ChangesPlace { checkpoints: checkpoints.map(|epoch| epoch.0).collect(), epoch, time_ms }
        });
        place.ok_or_else(|| STOPPED.to_owned())
    }

    /// Reads files for a backup, on a thread of its own. The ticket gives the bytes, or says why there are
    /// none: begins with `GONE` if this node no longer has them, or never had.
    pub fn backup_read(&self, read: BackupRead) -> Ticket<Vec<u8>> {
        let (ticket, answer) = Ticket::open();
        let inner = self.inner.clone();
        let work = move || answer.answer(read_for_backup(&inner, read));
        // A thread that cannot be had drops the answer, which then says so.
        if let Err(error) = std::thread::Builder::new().name("ordo-backup".to_owned()).spawn(work) {
            tracing::warn!("nothing can be read for a backup: {error}");
        }
        ticket
    }
}

fn read_for_backup(inner: &super::Inner, read: BackupRead) -> Result<Vec<u8>, String> {
    match read {
        BackupRead::File(piece) => {
            let Piece { partition, epoch, .. } = piece;
            let asked = |member: &mut super::member::Member| member.node.copied_checkpoint(partition, epoch);
            let base = inner.core.lock().turn(|member, _| asked(member)).flatten();
            let gone = || format!("GONE this node has no checkpoint of {partition} at epoch {}", epoch.0);
            let base = base.ok_or_else(gone)?;
            let (total, bytes) = read_piece_of(&*inner.disk, piece, PART_BYTES)
                .map_err(|error| format!("a checkpoint's file cannot be read: {error}"))?;
            Ok(FilePart { total, base, bytes: bytes.into() }.encode())
        }
        BackupRead::Log { from, until, behind } => {
            let last = inner.core.lock().turn(|member, _| member.records.journal.status().last);
            let until = until.min(last.unwrap_or(Position::NONE));
            let mut news = Vec::new();
            let read = read_records(&*inner.disk, from, until, PART_BYTES as u64, &mut |kept| {
                news.extend(GroupNews::of(kept, behind));
            });
            match read {
                Ok((next, reached)) => Ok(LogPart { next, reached, news }.encode()),
                Err(error @ (log::ReadError::Gone(_) | log::ReadError::NoRecord { .. })) => {
                    Err(format!("GONE {error}"))
                }
                Err(error) => Err(format!("the journal cannot be read: {error}")),
            }
        }
    }
}
