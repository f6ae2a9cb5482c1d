//! The one effects loop: [`drive`] has a [`Host`] perform the effects of a [`Machine`], and tells the machine
//! what came of them.
//!
//! A machine is a node's state, of either family of protocols:
//! [`ClusterNode`](crate::cluster::ClusterNode) orders requests, [`Site`](crate::site::Site) certifies
//! transactions. The server performs effects for real, the simulator in virtual time, and a test by hand.
//! Hosts differ in their methods only: the order of the effects, and what a machine must hear before anything
//! else, is written here once. So what ships is what is simulated.
//!
//! # Order
//!
//! A record is written, and its machine told, before every other effect: frames and syncs may be meant for
//! after it. [`Host::send`] is called before [`Host::sync`]. An event that a host returns goes to the
//! machine, and the loop begins again, until the effects hold nothing for a host.
//!
//! What concerns clients and operators (replies, warnings, changes of the map) stays in the machine's
//! effects for the caller: it waits for nothing, and no event comes back.

use crate::cluster::checkpoint::{ClusterCheckpoint, Needed};
use crate::cluster::pieces::{Piece, Whole, read_piece, write_piece};
use bytes::Bytes;
use log::{Disk, Journal, Kept, SyncTicket, Synced};
use std::collections::VecDeque;
use std::io;
use txn::{Epoch, NodeId, Position};

/// A node's state machine. It owns no thread, no file, no clock and no socket.
pub trait Machine {
    /// What it wants done, by a [`Host`] and by its caller.
    type Effects: AsMut<HostEffects>;

    /// Takes an event.
    fn react(&mut self, event: HostEvent, now_ms: u64, effects: &mut Self::Effects);
}

/// What happens to a machine.
#[derive(Debug)]
pub enum HostEvent {
    /// A frame of another node.
    Frame {
        /// Who sent it.
        from: NodeId,
        /// The frame.
        bytes: Bytes,
    },
    /// What was sent to this node before may be lost; what is sent now arrives.
    Connected(NodeId),
    /// What is sent to this node does not arrive.
    Disconnected(NodeId),
    /// The record is in the journal ([`Host::append`]). Counts from 1.
    Written(u64),
    /// Everything up to this record is on the disk.
    Synced(u64),
    /// The record could not be written. Nothing of it is in the journal, and the same may be tried again
    /// ([`log::Journal::takes_again`]).
    JournalUnwritten(String),
    /// The journal could not be synced: nothing is promised any more.
    JournalFailed(String),
    /// There is room for the journal's next segment, as [`Host::make_room`] made it.
    RoomMade,
    /// Time passes: a tick of the options' `tick_ms`.
    Tick {
        /// What this machine's clock shows, in milliseconds since 1970.
        wall_ms: u64,
    },
    /// The checkpoint that was wanted is on the disk.
    CheckpointWritten {
        /// Its epoch.
        epoch: Epoch,
        /// The size of its files.
        bytes: u64,
    },
    /// It could not be written.
    CheckpointFailed(String),
    /// A piece of a checkpoint was read for another node.
    PieceRead {
        /// For whom.
        to: NodeId,
        /// Which piece.
        piece: Piece,
        /// The size of the whole file.
        total: u64,
        /// What it has there.
        bytes: Vec<u8>,
    },
    /// A piece of a checkpoint that another node gave is in its file. The whole file is durable if it was the
    /// last one.
    PieceWritten {
        /// Which piece.
        piece: Piece,
        /// How many bytes.
        bytes: u64,
        /// Whether it was the last.
        last: bool,
    },
    /// The file that ended with this piece is not the checkpoint that it should be, and is gone.
    PieceSpoilt {
        /// Which piece.
        piece: Piece,
        /// What is wrong.
        cause: String,
    },
    /// A piece that another node gave could not be written: this node asks for it again.
    PieceUnwritten {
        /// Which piece.
        piece: Piece,
        /// Why.
        error: String,
    },
}

/// What a [`Host`] is to do. Only [`drive`] takes anything out: no other loop can be written.
#[derive(Default)]
pub struct HostEffects {
    /// Append this to the journal as one record, if not empty. [`HostEvent::Written`],
    /// [`HostEvent::JournalUnwritten`] or [`HostEvent::JournalFailed`] comes *before anything else*.
    pub(crate) kept: Vec<Kept>,
    /// Make the journal's next segment, on a thread that may wait.
    pub(crate) make_room: bool,
    /// Start a sync of everything that was written.
    pub(crate) sync: bool,
    /// Frames for other nodes, in order for each of them.
    pub(crate) frames: Vec<(NodeId, Vec<u8>)>,
    /// Drop the links of these nodes, because of what they have sent: the text says it.
    pub(crate) severed: Vec<(NodeId, String)>,
    /// Write checkpoints, on a thread that may wait.
    pub(crate) checkpoint: Option<ClusterCheckpoint>,
    /// Only these checkpoints and newer ones are needed any more.
    pub(crate) prune: Option<Needed>,
    /// Read pieces of checkpoints, for other nodes.
    pub(crate) read: VecDeque<(NodeId, Piece)>,
    /// Write a piece of a checkpoint: its bytes, and what the file must be if it is the last.
    pub(crate) write: Option<(Piece, Bytes, Option<Whole>)>,
}

/// Performs a node's effects. A method that needs time begins its work, and the event is passed to the node
/// at the end; one that is done at once returns the event.
pub trait Host {
    /// Writes a record to the journal.
    fn append(&mut self, kept: &[Kept]) -> Recorded;

    /// Starts a sync of everything that was written, which ends with [`HostEvent::Synced`] or
    /// [`HostEvent::JournalFailed`].
    fn sync(&mut self) -> Option<HostEvent>;

    /// Sends a frame, now or once [`drive`] has returned. Frames to one node arrive in this order, or do not
    /// arrive.
    fn send(&mut self, to: NodeId, frame: Vec<u8>);

    /// Drops the link of a node, because of what it has sent.
    fn sever(&mut self, peer: NodeId, why: &str);

    /// Makes the journal's next segment: [`HostEvent::RoomMade`] tells that there is one. A failure has
    /// no event: the node asks again.
    fn make_room(&mut self) -> Option<HostEvent>;

    /// Writes checkpoints, which ends with [`HostEvent::CheckpointWritten`] or
    /// [`HostEvent::CheckpointFailed`].
    fn checkpoint(&mut self, job: ClusterCheckpoint);

    /// Removes what is not needed any more: older checkpoints ([`crate::cluster::checkpoint::prune`]), and of
    /// the journal what [`Journal::truncation`] leaves.
    fn prune(&mut self, needed: Needed);

    /// Reads a piece of a checkpoint for another node ([`serve_piece`]). A failure has no
    /// event: the other node asks again.
    fn read_piece(&mut self, to: NodeId, piece: Piece) -> Option<HostEvent>;

    /// Writes a piece of a checkpoint that another node gave, and checks the file if it is the last
    /// ([`store_piece`]).
    fn write_piece(&mut self, piece: Piece, bytes: Bytes, whole: Option<Whole>) -> Option<HostEvent>;
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

/// Does what a machine wants, until it wants nothing more that a [`Host`] does.
pub fn drive<M: Machine>(machine: &mut M, all: &mut M::Effects, now_ms: u64, host: &mut impl Host) {
    loop {
        let effects = all.as_mut();
        if !effects.kept.is_empty() {
            let event = match host.append(&effects.kept) {
                Recorded::Written { record, .. } => HostEvent::Written(record),
                Recorded::Unwritten(why) => HostEvent::JournalUnwritten(why),
                Recorded::Failed(why) => HostEvent::JournalFailed(why),
            };
            let is_kept_back = matches!(event, HostEvent::JournalUnwritten(_));
            if !is_kept_back {
                effects.kept.clear();
            }
            machine.react(event, now_ms, all);
            // Otherwise the same would be tried without end: the machine takes the record back until there is
            // room.
            debug_assert!(!is_kept_back || all.as_mut().kept.is_empty());
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
            machine.react(event, now_ms, all);
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
    pub fn begin_sync(&self) -> Result<SyncTicket<D>, HostEvent> {
        let durable = self.journal.status().durable;
        self.journal.sync_ticket().ok_or_else(|| HostEvent::Synced(self.number(durable)))
    }

    /// Notes what a sync achieved. Returns what the node is told.
    pub fn end_sync(&mut self, synced: io::Result<Synced>) -> HostEvent {
        match synced {
            Ok(synced) => {
                self.journal.synced(synced);
                HostEvent::Synced(self.number(synced.position))
            }
            Err(error) => HostEvent::JournalFailed(error.to_string()),
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

/// Reads a piece of a checkpoint for another node, and returns the event for this one.
///
/// # Errors
/// The disk fails, or the file is gone.
pub fn serve_piece<D: Disk>(disk: &D, to: NodeId, piece: Piece) -> io::Result<HostEvent> {
    read_piece(disk, piece).map(|(total, bytes)| HostEvent::PieceRead { to, piece, total, bytes })
}

/// Writes a piece of a checkpoint that another node gave, and returns the event for this one. With the last
/// piece the file is complete and durable, or it is not the checkpoint that it should be, and is removed.
pub fn store_piece<D: Disk>(disk: &D, piece: Piece, bytes: &[u8], whole: Option<Whole>) -> HostEvent {
    match write_piece(disk, piece, bytes, whole) {
        Ok(()) => HostEvent::PieceWritten { piece, bytes: bytes.len() as u64, last: whole.is_some() },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            HostEvent::PieceSpoilt { piece, cause: error.to_string() }
        }
        Err(error) => HostEvent::PieceUnwritten { piece, error: error.to_string() },
    }
}
