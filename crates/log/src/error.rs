//! What can be wrong with a journal.

use crate::record::Address;
use crate::segment::segment_name;
use std::io;
use txn::{PartitionId, Position};

/// What is wrong at a place of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// A segment's header.
    #[error("the segment's header does not match its checksum")]
    Header,
    /// A file that lost its end.
    #[error("the file is shorter than it was made: its end was cut off")]
    Shortened,
    /// A segment's first record.
    #[error("the segment's opening record is missing or does not belong here")]
    Opening,
    /// A record's head.
    #[error("the record's head does not match its checksum")]
    Head,
    /// A record's payload.
    #[error("the record's payload does not match its checksum")]
    Payload,
    /// A record that ends behind the end of its file.
    #[error("the record is longer than the rest of the file")]
    Short,
    /// A record should be here.
    #[error("there is no record, though there are later ones")]
    Missing,
    /// The record checks, but belongs elsewhere.
    #[error("the record's number does not follow the previous record's")]
    Gap,
    /// The record checks, but follows other records than those in the journal.
    #[error("the record's digest does not follow the previous record's")]
    Digest,
    /// The record checks, but this program writes no such head.
    #[error("the record's head is of a kind or form that this program does not write")]
    Fields,
    /// The payload is not what a journal writes.
    #[error("the payload does not hold what consensus groups keep")]
    Groups,
    /// What a group kept does not make a whole.
    #[error("what is kept of {0} has a gap, or counts entries as agreed that are not there")]
    Gapped(PartitionId),
}

/// What to do about a journal that is damaged or incomplete. What a replica promised to its group must not be
/// forgotten, so a journal is never to be shortened.
const ADVICE: &str = "Restore exactly these files, and start again. Or, in a cluster, replace this node: \
    remove it, and add it under a new number with an empty directory; never start it with a part of its \
    journal, because its groups would forget whom they voted for and what they acknowledged";

/// Why a journal could not be opened. Nothing was changed then.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk refused.
    #[error("the log could not be opened: {action}: {cause}")]
    Io {
        /// What was tried.
        action: String,
        /// What the disk said.
        cause: io::Error,
    },
    /// Something that had been made durable is damaged or gone.
    #[error(
        "log file {} is damaged at byte {} (record {record}): {problem}. The log had been durable beyond \
         that place, so this is not the trace of a crash, and nothing was changed. {ADVICE}",
        segment_name(address.segment), address.offset
    )]
    Corrupt {
        /// Where.
        address: Address,
        /// The number of the first record that cannot be read.
        record: Position,
        /// What is wrong.
        problem: Problem,
    },
    /// The journal begins too late.
    #[error(
        "the journal begins with record {found}, and the records from {wanted} on are needed: older \
         log-*.ordo files are gone. {ADVICE}"
    )]
    BeginsTooLate {
        /// The oldest record that must be there; [`Position::FIRST`] where not even that is known.
        wanted: Position,
        /// The first record of the oldest segment.
        found: Position,
    },
    /// Whoever opened it does not want the journal of such a group.
    #[error("the journal has {partition}, which is not of this node: nothing was changed")]
    NotAccepted {
        /// The group's partition.
        partition: PartitionId,
    },
    /// The directory is that of a server that stood alone with an older version, which kept no journal.
    #[error(
        "log file {name} belongs to an older version of Ordo, of a server that stands alone, and this start \
         needs a node's journal: nothing was changed. Start with the directory that this node used before, \
         with an empty one, or with the version of Ordo that wrote it"
    )]
    Older {
        /// The file.
        name: String,
    },
    /// The segment was written by a program that knows a later format.
    #[error(
        "log file {name} has format version {version}, and this program reads version {known}: start the \
         version of Ordo that wrote it"
    )]
    Version {
        /// The file.
        name: String,
        /// Its version.
        version: u32,
        /// The version that this program reads.
        known: u32,
    },
}

impl OpenError {
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> OpenError {
        let action = action.into();
        move |cause| OpenError::Io { action, cause }
    }
}
