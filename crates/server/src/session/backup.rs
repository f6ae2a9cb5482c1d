//! ORDO.BACKUP and ORDO.CHANGES: what `ordo backup` and `ordo export` ask of a node.

use super::{Hold, Session, ThreadContext};
use crate::runtime::BackupRead;
use node::cluster::Piece;
use redis_surface::table::OrdoBackupCommand;
use redis_surface::{errors, parse};
use txn::{Args, Blob, Epoch, PartitionId, Position, Reply};

impl Session {
    /// ORDO.BACKUP FILE and LOG: answered once the files are read.
    pub(super) fn read_for_backup(
        &mut self,
        thread: &ThreadContext<'_>,
        command: OrdoBackupCommand,
        argv: &Args,
    ) -> Option<Reply> {
        let Some(read) = parse_read(command, &argv[2..]) else {
            return Some(errors::SYNTAX);
        };
        self.hold = Some(Hold::Backup(thread.shared.runtime.backup_read(read)));
        None
    }
}

/// ORDO.BACKUP WHERE.
pub(super) fn place(thread: &ThreadContext<'_>) -> Reply {
    let place = thread.shared.runtime.backup_place();
    let json = place.and_then(|place| serde_json::to_vec(&place).map_err(|error| error.to_string()));
    read_outcome(json)
}

/// ORDO.CHANGES.
pub(super) fn changes(thread: &ThreadContext<'_>) -> Reply {
    let place = thread.shared.runtime.changes_place();
    let json = place.and_then(|place| serde_json::to_vec(&place).map_err(|error| error.to_string()));
    read_outcome(json)
}

/// What a read for a backup answers.
pub(super) fn read_outcome(outcome: Result<Vec<u8>, String>) -> Reply {
    match outcome {
        Ok(bytes) => Reply::bulk(bytes),
        Err(why) if why.starts_with("GONE") => Reply::error_owned(why),
        Err(why) => Reply::error_owned(format!("ERR {why}")),
    }
}

fn parse_read(command: OrdoBackupCommand, args: &[Blob]) -> Option<BackupRead> {
    let number = |word: &Blob| u64::try_from(parse::integer(word)?).ok();
    match (command, args) {
        (OrdoBackupCommand::File, [partition, epoch, offset]) => Some(BackupRead::File(Piece {
            partition: PartitionId(u16::try_from(number(partition)?).ok()?),
            epoch: Epoch(number(epoch)?),
            offset: number(offset)?,
        })),
        (OrdoBackupCommand::Log, [until, behind, from @ ..]) if from.len() <= 1 => {
            let from = match from.first() {
                Some(place) => Some(std::str::from_utf8(place).ok()?.parse().ok()?),
                None => None,
            };
            Some(BackupRead::Log { from, until: Position(number(until)?), behind: Epoch(number(behind)?) })
        }
        _ => None,
    }
}
