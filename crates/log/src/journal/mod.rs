//! The journal: the one log in which a process keeps what its consensus groups must not forget.
//!
//! Every round, all groups of a process say what they want [kept](Kept): entries, a term and a vote, a new
//! base. The journal writes all of it as one record with one write, and one sync makes it durable for all of
//! them. Records are numbered from 1; a *position* of the journal is the number of a record.
//!
//! A start reads the journal from its oldest segment on and gives for each group what it had kept: its newest
//! hard state and base, and the entries behind the base ([`GroupImage`]). Nothing is taken for granted:
//! entries must follow each other, what is agreed must be there, and each record tells which records the
//! state is made of, so that a missing older segment is noticed.
//!
//! A group's *base* covers entries by a checkpoint. When all groups' bases are in later segments, the older
//! ones are [removed](Journal::truncation).
//!
//! Invariants:
//! 1. What is read back is the state after some record; none before the last durable one.
//! 2. A base is written together with its group's hard state. So a group without news pins no segment before
//!    its newest base.
//! 3. A segment is removed only when the state after the last durable record, and after every later one, can
//!    be read without it, and only after the removal of the ones before it is durable.

mod encoding;
mod image;
mod needs;

pub(crate) use image::Images;
pub use image::{GroupImage, GroupImages};

use crate::disk::Disk;
use crate::error::OpenError;
use crate::kept::{Base, Kept};
use crate::record::{Draft, RECORD_BYTES_MAX};
use crate::recover::read_back;
use crate::report::Report;
use crate::segments::{Appended, Log, LogStatus, Preparer, SyncTicket, Synced, Truncated, Truncation};
use needs::{Needs, Plan};
use std::io;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{PartitionId, Position};

/// A buffer that grew beyond this for a large record is given back.
const BUFFER_BYTES_KEPT: usize = 4 << 20;

/// A journal that is open for appending. One owner; [`SyncTicket`]s, [`Preparer`]s and [`Truncation`]s work
/// on other threads.
pub struct Journal<D: Disk> {
    log: Log<D>,
    needs: Needs,
    /// The record that is written, for its memory.
    buffer: Vec<u8>,
}

impl<D: Disk> Journal<D> {
    /// Opens the journal on a disk, or makes one, and reads back what the groups had kept. `boot_id` is a
    /// number that nobody else can guess and that differs at every start: it seeds the checksums. A record
    /// that does not fit into `segment_bytes` makes its file longer. Refuses a damaged journal, one that lost
    /// its beginning, and what an older version wrote; nothing is changed then.
    ///
    /// Whoever expects groups must look at [`Report::created`]: a node that lost its journal must not come
    /// back as itself.
    pub fn open(
        disk: Arc<D>,
        segment_bytes: u64,
        boot_id: u64,
    ) -> Result<(Journal<D>, GroupImages, Report), OpenError> {
        Journal::open_if(disk, segment_bytes, boot_id, &|_, _| true)
    }

    /// [`Journal::open`], if `accepts` accepts each group that the journal has, by its base. Else it is
    /// [`OpenError::NotAccepted`], and nothing is changed: not even a torn tail is cut.
    pub fn open_if(
        disk: Arc<D>,
        segment_bytes: u64,
        boot_id: u64,
        accepts: &dyn Fn(PartitionId, &Base) -> bool,
    ) -> Result<(Journal<D>, GroupImages, Report), OpenError> {
        let mut images = Images::default();
        let (log, report) = Log::open(disk, segment_bytes, boot_id, &mut images, accepts)?;
        let needs = Needs::of(&images, log.tail.last());
        debug_assert!(images.agree_with(&needs));
        let journal = Journal { needs, log, buffer: Vec::new() };
        Ok((journal, images.finish(), report))
    }

    /// Reads back what groups had kept, as [`Journal::open`] does, and changes nothing. A torn tail is left
    /// out, and stays. Nobody may write to the journal meanwhile. Where there is no journal there are no
    /// groups ([`Report::created`]), and none is made.
    pub fn read(disk: &D) -> Result<(GroupImages, Report), OpenError> {
        let mut images = Images::default();
        let report = read_back(disk, &mut images)?;
        Ok((images.finish(), report))
    }

    /// Writes what groups want kept: one record, one write. What is of one group takes effect in this order.
    /// Nothing is written if they want nothing. It is not durable yet. After an error nothing of it is kept,
    /// and the same can be appended again. Only if the disk also refuses to overwrite what it had taken of
    /// the record, a crash before the next append may bring it back.
    ///
    /// Refuses ([`io::ErrorKind::InvalidInput`]) what does not follow: entries that leave a gap, or that
    /// replace what is agreed; a base before the one that is there; a commit index behind the last entry. One
    /// below the base is raised to it.
    pub fn append(&mut self, kept: &[Kept]) -> io::Result<Appended> {
        let kept: Vec<&Kept> = kept.iter().filter(|kept| !kept.is_empty() || kept.reset).collect();
        if kept.is_empty() {
            return Ok(Appended { position: self.log.tail.last(), rotated: false });
        }
        let plan = self.needs.plan(&kept, self.log.tail.next).map_err(|problem| {
            let text = format!(
                "what groups want kept does not follow what the journal has: {problem}: a bug, please \
                 report it"
            );
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        self.write(&kept, plan)
    }

    fn write(&mut self, kept: &[&Kept], plan: Plan) -> io::Result<Appended> {
        self.buffer.clear();
        self.buffer.shrink_to(BUFFER_BYTES_KEPT);
        let mut draft = Draft::begin(&mut self.buffer);
        let payload = draft.payload();
        encoding::put_front(payload, plan.oldest, kept.len());
        for (kept, hard_state) in kept.iter().zip(&plan.hard_states) {
            encoding::put_kept(payload, kept, *hard_state);
        }
        let bytes = draft.len_bytes();
        if bytes > RECORD_BYTES_MAX {
            let text = format!(
                "a record of {bytes} bytes cannot be kept (the limit is {RECORD_BYTES_MAX}): keep it in parts"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let appended = self.log.append(draft)?;
        self.needs.written(plan);
        Ok(appended)
    }

    /// Whether what an append refused with this error may be appended again, later: a disk may have room
    /// then, but a failed sync is final, and what does not follow never will.
    pub fn takes_again(&self, error: &io::Error) -> bool {
        !self.is_closed() && error.kind() != io::ErrorKind::InvalidInput
    }

    /// Writes a marker if the disk has records that no record claims to be durable: then a later damage to
    /// them is known for what it is, even if nothing else is ever appended. For idle times and shutdown;
    /// returns whether it wrote one (which takes effect with the next sync).
    pub fn write_marker(&mut self) -> io::Result<bool> {
        self.log.write_marker()
    }

    /// What must be synced so that everything appended so far is durable; `None` if it is.
    pub fn sync_ticket(&self) -> Option<SyncTicket<D>> {
        self.log.sync_ticket()
    }

    /// Notes what a ticket made durable. Tickets may come back in any order.
    pub fn synced(&mut self, synced: Synced) {
        self.log.synced(synced);
        self.needs.synced(self.log.status().durable);
    }

    /// Syncs on this thread. Returns the last record.
    pub fn sync(&mut self) -> io::Result<Position> {
        if let Some(ticket) = self.sync_ticket() {
            let synced = ticket.sync()?;
            self.synced(synced);
        }
        self.log.sync()
    }

    /// Sizes and places, in records.
    pub fn status(&self) -> LogStatus {
        self.log.status()
    }

    /// Whether a sync has failed: nothing can be written before the journal is opened again.
    pub fn is_closed(&self) -> bool {
        self.log.is_closed()
    }

    /// The names of the files that a start reads, oldest first; the last one is written.
    pub fn segment_names(&self) -> Vec<String> {
        self.log.segment_names()
    }

    /// Goes on in a new segment, because somebody has removed the file of the current one. A start then finds
    /// what is needed only if a base of every group was appended since. A failure leaves the journal in the
    /// removed file.
    pub fn leave_removed(&mut self) -> io::Result<()> {
        self.log.leave_removed()
    }

    /// A handle that prepares segments on another thread.
    pub fn preparer(&self) -> Preparer<D> {
        self.log.preparer()
    }

    /// The segments that no group needs, whatever a crash may take; `None` if there are none. Worth asking
    /// for when a base has become durable.
    pub fn truncation(&self) -> Option<Truncation<D>> {
        let needed = match is_active(Mutant::TruncateTooFar) {
            true => self.log.status().last,
            false => self.needs.oldest_durable(),
        };
        self.log.truncation(needed)
    }

    /// Notes what a truncation removed.
    pub fn truncated(&mut self, truncated: Truncated) {
        self.log.truncated(truncated);
    }

    /// The group that holds the oldest segments back: a new base of it lets them go.
    pub fn pinned_by(&self) -> Option<PartitionId> {
        self.needs.pinned_by()
    }
}

/// What groups keep by a record with this payload. `None` if no record has it.
pub(crate) fn kept_of(payload: &[u8]) -> Option<Vec<Kept>> {
    encoding::take(payload).map(|payload| payload.parts)
}

/// Reads a payload as recovery does, for fuzzers. Returns how many groups and entries it holds.
pub(crate) fn fuzz_payload(payload: &[u8]) -> usize {
    let parts = kept_of(payload).unwrap_or_default();
    parts.iter().map(|kept| 1 + kept.entries.len()).sum()
}
