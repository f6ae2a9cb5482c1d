//! The one effects loop: [`drive`] has a [`Host`] perform a node's effects, and tells the node what came of
//! them.
//!
//! The server performs them for real, the simulator in virtual time, and a test by hand. Hosts differ in
//! their methods only: the order of the effects, and what a node must hear before anything else, is written
//! here once. So what ships is what is simulated.
//!
//! # Order
//!
//! A record is written, and its node told, before every other effect: frames and syncs may be meant for after
//! it. [`Host::send`] is called before [`Host::sync`]. An event that a host returns goes to the node, and the
//! loop begins again, until the effects hold nothing for a host.
//!
//! What concerns clients and operators (replies, warnings, changes of the map) stays in the
//! [`ClusterEffects`] for the caller: it waits for nothing, and no event comes back.

use super::checkpoint::{ClusterCheckpoint, Needed};
use super::install::{Piece, Whole};
use super::machine::{ClusterEffects, ClusterEvent, ClusterNode};
use bytes::Bytes;
use log::{Disk, Journal, Kept, SyncTicket, Synced};
use std::io;
use txn::{NodeId, Position};

/// Performs a node's effects. A method that needs time begins its work, and the event is passed to the node
/// at the end; one that is done at once returns the event.
pub trait Host {
    /// Writes a record to the journal.
    fn append(&mut self, kept: &[Kept]) -> Recorded;

    /// Starts a sync of everything that was written, which ends with [`ClusterEvent::Synced`] or
    /// [`ClusterEvent::JournalFailed`].
    fn sync(&mut self) -> Option<ClusterEvent>;

    /// Sends a frame, now or once [`drive`] has returned. Frames to one node arrive in this order, or do not
    /// arrive.
    fn send(&mut self, to: NodeId, frame: Vec<u8>);

    /// Drops the link of a node, because of what it has sent.
    fn sever(&mut self, peer: NodeId, why: &str);

    /// Makes the journal's next segment: [`ClusterEvent::RoomMade`] tells that there is one. A failure has
    /// no event: the node asks again.
    fn make_room(&mut self) -> Option<ClusterEvent>;

    /// Writes checkpoints, which ends with [`ClusterEvent::CheckpointWritten`] or
    /// [`ClusterEvent::CheckpointFailed`].
    fn checkpoint(&mut self, job: ClusterCheckpoint);

    /// Removes what is not needed any more: older checkpoints ([`super::checkpoint::prune`]), and of the
    /// journal what [`Journal::truncation`] leaves.
    fn prune(&mut self, needed: Needed);

    /// Reads a piece of a checkpoint for another node ([`super::serve_piece`]). A failure has no event: the
    /// other node asks again.
    fn read_piece(&mut self, to: NodeId, piece: Piece) -> Option<ClusterEvent>;

    /// Writes a piece of a checkpoint that another node gave, and checks the file if it is the last
    /// ([`super::store_piece`]).
    fn write_piece(&mut self, piece: Piece, bytes: Bytes, whole: Option<Whole>) -> Option<ClusterEvent>;
}

/// What became of a record.
#[derive(Debug)]
pub enum Recorded {
    /// It is in the journal, not yet durable.
    Written {
        /// Its number, counted from 1 at the process's start.
        record: u64,
        /// A segment was begun for it: time for the host to prepare the next one.
        rotated: bool,
    },
    /// Nothing of it is in the journal, and the same may be tried again.
    Unwritten(String),
    /// The journal takes nothing more.
    Failed(String),
}

/// Does what a node wants, until it wants nothing more that a [`Host`] does.
pub fn drive(node: &mut ClusterNode, effects: &mut ClusterEffects, now_ms: u64, host: &mut impl Host) {
    loop {
        if !effects.kept.is_empty() {
            let event = match host.append(&effects.kept) {
                Recorded::Written { record, .. } => ClusterEvent::Written(record),
                Recorded::Unwritten(why) => ClusterEvent::JournalUnwritten(why),
                Recorded::Failed(why) => ClusterEvent::JournalFailed(why),
            };
            let is_kept_back = matches!(event, ClusterEvent::JournalUnwritten(_));
            if !is_kept_back {
                effects.kept.clear();
            }
            node.handle(event, now_ms, effects);
            // Otherwise the same would be tried without end: the node takes the record back until there is
            // room.
            debug_assert!(!is_kept_back || effects.kept.is_empty());
            continue;
        }
        for (to, frame) in effects.frames.drain(..) {
            host.send(to, frame);
        }
        for (peer, why) in effects.severed.drain(..) {
            host.sever(peer, &why);
        }
        if let Some(needed) = effects.prune.take() {
            host.prune(needed);
        }
        if let Some(job) = effects.checkpoint.take() {
            host.checkpoint(job);
        }
        let told = if std::mem::take(&mut effects.sync) {
            host.sync()
        } else if std::mem::take(&mut effects.make_room) {
            host.make_room()
        } else if let Some((to, piece)) = effects.read.pop_front() {
            host.read_piece(to, piece)
        } else if let Some((piece, bytes, whole)) = effects.write.take() {
            host.write_piece(piece, bytes, whole)
        } else {
            return;
        };
        if let Some(event) = told {
            node.handle(event, now_ms, effects);
        }
    }
}

/// A journal whose records are counted as a node does: from 1 at the process's start.
pub struct CountedJournal<D: Disk> {
    /// The journal.
    pub journal: Journal<D>,
    /// Its last record before the process's first.
    before: Position,
}

impl<D: Disk> CountedJournal<D> {
    /// Counts from the journal's end.
    pub fn new(journal: Journal<D>) -> CountedJournal<D> {
        CountedJournal { before: journal.status().last, journal }
    }

    /// Begins to count here: what was written before is not the node's.
    pub fn count_from_here(&mut self) {
        self.before = self.journal.status().last;
    }

    /// Writes a record: [`Host::append`].
    pub fn append(&mut self, kept: &[Kept]) -> Recorded {
        match self.journal.append(kept) {
            Ok(appended) => {
                Recorded::Written { record: self.number(appended.position), rotated: appended.rotated }
            }
            Err(error) if self.journal.takes_again(&error) => Recorded::Unwritten(error.to_string()),
            Err(error) => Recorded::Failed(error.to_string()),
        }
    }

    /// A sync to be made on a thread that may wait, or what the node is told where all is durable:
    /// [`Host::sync`].
    pub fn begin_sync(&self) -> Result<SyncTicket<D>, ClusterEvent> {
        let durable = self.journal.status().durable;
        self.journal.sync_ticket().ok_or_else(|| ClusterEvent::Synced(self.number(durable)))
    }

    /// Notes what a sync achieved. Returns what the node is told.
    pub fn end_sync(&mut self, synced: io::Result<Synced>) -> ClusterEvent {
        match synced {
            Ok(synced) => {
                self.journal.synced(synced);
                ClusterEvent::Synced(self.number(synced.position))
            }
            Err(error) => ClusterEvent::JournalFailed(error.to_string()),
        }
    }

    /// Removes the segments that no group needs. One that cannot be removed now goes with the next.
    pub fn truncate(&mut self) {
        if let Some(Ok(truncated)) = self.journal.truncation().map(|truncation| truncation.run()) {
            self.journal.truncated(truncated);
        }
    }

    /// A position as a number of the node's; 0 before the process's first.
    fn number(&self, position: Position) -> u64 {
        position.0.saturating_sub(self.before.0)
    }
}
