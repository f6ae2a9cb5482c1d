//! What opening a log found, for its owner and in words.

use crate::batch::Tail;
use crate::error::Problem;
use crate::record::{Address, Content};
use crate::segment::segment_name;
use std::fmt;
use txn::Position;

/// What opening a log or a journal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What the log holds.
    pub content: Content,
    /// Segments that were read. Older ones are behind the checkpoint.
    pub segments: u64,
    /// Batches that were replayed, or a journal's records.
    pub batches: u64,
    /// Requests in these batches; 0 in a journal.
    pub requests: u64,
    /// Bytes of the records that hold them.
    pub bytes: u64,
    /// Where the log goes on.
    pub tail: Tail,
    /// The torn tail, if there was one.
    pub cut: Option<Cut>,
    /// There was no log at all: a first start, or somebody removed it.
    pub created: bool,
    /// The log ended at this position, before the checkpoint's end (its last part had never been synced), and
    /// was begun anew behind the checkpoint.
    pub ended_before_checkpoint: Option<Position>,
}

/// A torn tail that was cut off: written, and not synced, when the machine stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Where it began.
    pub address: Address,
    /// The first position that could not be read. None of the positions from here on was durable.
    pub position: Position,
    /// How many bytes were cut, in this and later segments.
    pub bytes: u64,
    /// What was wrong with the first of them.
    pub problem: Problem,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = self.content.unit();
        let Report { segments, batches, requests, .. } = self;
        match self.content {
            _ if self.created => write!(f, "began a new log at {unit} {}", self.tail.next)?,
            Content::Batches => write!(
                f,
                "replayed {requests} requests in {batches} batches from {segments} log segments; the log \
                 ends at position {}",
                self.tail.last()
            )?,
            Content::Groups => write!(
                f,
                "replayed {batches} records from {segments} journal segments; the journal ends at record {}",
                self.tail.last()
            )?,
        }
        if let Some(cut) = &self.cut {
            let name = segment_name(cut.address.segment);
            write!(f, "; cut a torn tail of {} bytes at byte {} of {name}: ", cut.bytes, cut.address.offset)?;
            write!(
                f,
                "from {unit} {} on nothing is known to have been synced when the machine stopped",
                cut.position
            )?;
        }
        if let Some(last) = self.ended_before_checkpoint {
            write!(
                f,
                "; the log ended at position {last}, before the checkpoint, and was begun anew behind it"
            )?;
        }
        Ok(())
    }
}

impl Report {
    pub(crate) fn new(content: Content, tail: Tail, created: bool) -> Report {
        Report {
            content,
            segments: 0,
            batches: 0,
            requests: 0,
            bytes: 0,
            tail,
            cut: None,
            created,
            ended_before_checkpoint: None,
        }
    }
}
