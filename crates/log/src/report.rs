//! What opening a journal found, for its owner and in words.

use crate::error::Problem;
use crate::record::Address;
use crate::segment::segment_name;
use std::fmt;
use txn::Position;

/// What opening a journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Segments that were read.
    pub segments: u64,
    /// Records that were read.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The last record's number: the journal goes on behind it.
    pub last: Position,
    /// The torn tail, if there was one.
    pub cut: Option<Cut>,
    /// There was no journal at all: a first start, or somebody removed it.
    pub created: bool,
}

impl Report {
    /// There was no journal; a new one goes on behind the record `last`.
    pub(crate) fn of_none(last: Position) -> Report {
        Report { segments: 0, records: 0, bytes: 0, last, cut: None, created: true }
    }
}

/// A torn tail that was cut off: written, and not synced, when the machine stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where it began.
    pub address: Address,
    /// The first record that could not be read. None of the records from here on was durable.
    pub record: Position,
    /// How many bytes were cut, in this and later segments.
    pub bytes: u64,
    /// What was wrong with the first of them.
    pub problem: Problem,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { segments, records, last, .. } = self;
        match self.created {
            true => write!(f, "began a new journal at record {}", last.next())?,
            false => write!(
                f,
                "replayed {records} records from {segments} journal segments; the journal ends at record \
                 {last}"
            )?,
        }
        if let Some(cut) = &self.cut {
            let name = segment_name(cut.address.segment);
            write!(f, "; cut a torn tail of {} bytes at byte {} of {name}: ", cut.bytes, cut.address.offset)?;
            write!(
                f,
                "from record {} on nothing is known to have been synced when the machine stopped",
                cut.record
            )?;
        }
        Ok(())
    }
}
