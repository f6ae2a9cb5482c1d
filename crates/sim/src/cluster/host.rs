//! A simulated node's effects, performed in virtual time: its journal on its machine's disk, whose syncs take
//! their time; its frames; its checkpoints.

use super::process::Turn;
use super::site::host_at;
use super::{Cluster, Frame, Timer};
use crate::world::{Address, Core, MortalDisk, Violation};
use bytes::Bytes;
use log::{GroupImages, Journal, Kept, OpenError, SyncTicket, Synced};
use node::FsyncPolicy;
use node::cluster::checkpoint::{self, Needed};
use node::cluster::{ClusterCheckpoint, Piece, Whole, Written, joined_record, serve_piece, store_piece};
use node::host::{CountedJournal, Host, HostEvent, Recorded};
use order::PartitionMap;
use std::io;
use std::sync::Arc;
use txn::{NodeId, Position};

/// A sync: the disk may do it when it is asked to, or only just before it says so. What is written meanwhile
/// is covered by chance only.
enum Syncing {
    Asked(SyncTicket<MortalDisk>),
    Done(io::Result<Synced>),
}

/// See the module's head.
pub(super) struct Keeper {
    records: CountedJournal<MortalDisk>,
    syncing: Option<Syncing>,
    preparing: bool,
    /// At which tick the oldest record was written that may not be durable.
    unsynced_since_tick: Option<u64>,
}

/// Making a segment's file takes so many syncs' time,
const PREPARE_SYNCS: u64 = 3;
/// and so does writing a checkpoint.
const CHECKPOINT_SYNCS: u64 = 3;
/// Under `everysec`, what is written is on its way to the disk after so long.
const EVERYSEC_MS: u64 = 1_000;

impl Keeper {
    /// Opens the journal on a host's disk.
    pub fn open(
        core: &mut Core<Cluster>,
        host: u16,
        segment_bytes: u64,
    ) -> Result<(Keeper, GroupImages), OpenError> {
        let boot_id = core.draw.bits();
        let disk = core.host(host).process_disk();
        let (journal, images, report) = Journal::open(disk, segment_bytes, boot_id)?;
        core.note(Address::Host(host), || report.to_string());
        let keeper = Keeper {
            records: CountedJournal::new(journal),
            syncing: None,
            preparing: false,
            unsynced_since_tick: None,
        };
        Ok((keeper, images))
    }

    /// Makes the journal of a node that joins one that can be told from a lost one.
    pub fn mark_joined(&mut self) -> io::Result<()> {
        let journal = &mut self.records.journal;
        journal.append(&[joined_record()])?;
        journal.sync()?;
        self.records.count_from_here();
        Ok(())
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.journal.status().last == Position::NONE
    }

    /// Whether a sync has failed, even if nobody was told yet.
    pub fn is_closed(&self) -> bool {
        self.records.journal.is_closed()
    }
}

/// The [`Host`] of a simulated node: what takes time ends with a timer.
pub(super) struct VirtualHost<'a> {
    pub system: &'a mut Cluster,
    pub core: &'a mut Core<Cluster>,
    pub keeper: &'a mut Keeper,
    pub checkpoint: &'a mut Option<ClusterCheckpoint>,
    pub host: u16,
    pub me: NodeId,
    pub now_tick: u64,
    /// The other nodes' addresses, as of the beginning of the pass: the server, too, tells its transport of
    /// a newer map behind it.
    pub map: Arc<PartitionMap>,
    /// The first act of a node that none of this cluster may do.
    pub violation: Option<Violation>,
}

impl VirtualHost<'_> {
    /// What a disk operation that usually takes `ns` takes now.
    fn disk_time(&mut self, ns: u64) -> u64 {
        let factor = self.core.disk_factor(self.host);
        let jitter = if self.system.plan.jitter { self.core.draw.pick(&[1, 1, 2, 10]) } else { 1 };
        ns * factor * jitter
    }

    /// A timer goes off once the disk has had the time of so many syncs.
    fn after_syncs(&mut self, syncs: u64, timer: Timer) {
        let after_ns = self.disk_time(self.system.plan.costs.sync_ns * syncs);
        self.core.set_timer(Address::Host(self.host), after_ns, timer);
    }

    fn disk(&self) -> Arc<MortalDisk> {
        self.core.host(self.host).process_disk()
    }

    /// The next segment is made ahead of need, on a thread of its own.
    pub fn prepare_soon(&mut self) {
        if !std::mem::replace(&mut self.keeper.preparing, true) {
            self.after_syncs(PREPARE_SYNCS, Timer::Prepared);
        }
    }
}

impl Host for VirtualHost<'_> {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        let appended = self.keeper.records.append(kept);
        if let Recorded::Written { rotated, .. } = appended {
            self.keeper.unsynced_since_tick.get_or_insert(self.now_tick);
            if let Some(alone) = &mut self.system.alone {
                alone.written(self.keeper.records.journal.status().last, kept);
            }
            if rotated {
                self.prepare_soon();
            }
        }
        appended
    }

    fn sync(&mut self) -> Option<HostEvent> {
        let ticket = match self.keeper.records.begin_sync() {
            Ok(ticket) => ticket,
            Err(durable) => return Some(durable),
        };
        self.keeper.syncing = Some(if self.core.draw.percent(50) {
            Syncing::Asked(ticket)
        } else {
            Syncing::Done(ticket.sync())
        });
        self.after_syncs(1, Timer::Synced);
        None
    }

    fn send(&mut self, to: NodeId, frame: Vec<u8>) {
        let entry = self.map.nodes.get(&to);
        let host = entry.and_then(|entry| host_at(&entry.peer_address));
        if let Some(host) = host.filter(|&host| host != self.host) {
            let frame = Frame::Peer { from: self.me, to, bytes: frame.into() };
            self.core.send(Address::Host(self.host), Address::Host(host), frame);
        }
    }

    fn sever(&mut self, peer: NodeId, why: &str) {
        let text = format!("node {} refuses a frame that {peer} has sent: {why}", self.host);
        self.violation.get_or_insert(Violation::new("peers", text));
    }

    fn make_room(&mut self) -> Option<HostEvent> {
        self.prepare_soon();
        None
    }

    fn checkpoint(&mut self, job: ClusterCheckpoint) {
        *self.checkpoint = Some(job);
        self.after_syncs(CHECKPOINT_SYNCS, Timer::Checkpointed);
    }

    fn prune(&mut self, needed: Needed) {
        // What cannot be removed now is removed after the next checkpoint.
        let _ = checkpoint::prune(&*self.disk(), &needed);
        self.keeper.records.truncate();
    }

    fn read_piece(&mut self, to: NodeId, piece: Piece) -> Option<HostEvent> {
        // What is gone by now is asked for again, or a newer one is.
        serve_piece(&*self.disk(), to, piece).ok()
    }

    fn write_piece(&mut self, piece: Piece, bytes: Bytes, whole: Option<Whole>) -> Option<HostEvent> {
        let event = store_piece(&*self.disk(), piece, &bytes, whole);
        if let HostEvent::PieceSpoilt { cause, .. } = &event {
            let text = format!("a node of this cluster gives a checkpoint that is none: {cause}");
            self.violation.get_or_insert(Violation::new("peers", text));
        }
        Some(event)
    }
}

impl Turn<'_> {
    /// A sync is done.
    pub(super) fn synced(&mut self) -> Result<(), Violation> {
        let now_tick = self.process.ticks;
        let keeper = &mut self.process.keeper;
        let synced = match keeper.syncing.take() {
            None => return Ok(()),
            Some(Syncing::Asked(ticket)) => ticket.sync(),
            Some(Syncing::Done(synced)) => synced,
        };
        let is_done = synced.is_ok();
        let event = keeper.records.end_sync(synced);
        if is_done {
            let status = keeper.records.journal.status();
            // What was written during the sync is younger than the sync.
            keeper.unsynced_since_tick = (status.durable < status.last).then_some(now_tick);
            if let Some(alone) = &mut self.system.alone {
                alone.synced(status.durable);
            }
        }
        self.handle(event)
    }

    /// The journal is idle from time to time: then it may say what is durable.
    pub(super) fn mark(&mut self) -> Result<(), Violation> {
        match self.process.keeper.records.journal.write_marker() {
            Ok(_) => Ok(()),
            // Nothing needs it; the next record shows what is wrong.
            Err(_) if !self.process.keeper.is_closed() => Ok(()),
            Err(error) => self.handle(HostEvent::JournalFailed(error.to_string())),
        }
    }

    pub(super) fn prepared(&mut self) -> Result<(), Violation> {
        self.process.keeper.preparing = false;
        match self.process.keeper.records.journal.preparer().prepare_next() {
            Ok(_) => self.handle(HostEvent::RoomMade),
            // It shows when the file is needed; a node that waits for room asks again.
            Err(_) => Ok(()),
        }
    }

    /// Under `everysec`, nothing that is written stays behind for long. A process that is frozen does not
    /// tick.
    pub(super) fn check_everysec(&self) -> Result<(), Violation> {
        let plan = &self.system.plan;
        let keeper = &self.process.keeper;
        let since_tick = keeper.unsynced_since_tick;
        let late_ticks = EVERYSEC_MS * 1_000_000 / plan.tick_ns + 4;
        if plan.fsync == FsyncPolicy::Everysec
            && keeper.syncing.is_none()
            && !self.process.is_stopped()
            && since_tick.is_some_and(|since_tick| self.process.ticks > since_tick + late_ticks)
        {
            let text = "what was written more than a second ago is not on its way to the disk";
            return Err(Violation::new("durability", text));
        }
        Ok(())
    }

    /// A checkpoint has had its time.
    pub(super) fn checkpointed(&mut self) -> Result<(), Violation> {
        let Some(job) = self.process.checkpoint.take() else {
            return Ok(());
        };
        let disk = self.core.host(self.host).process_disk();
        let epoch = job.epoch();
        let event = match job.write(&*disk) {
            Ok(Written { records, bytes }) => {
                self.system.tally.checkpoints += 1;
                self.core.note(Address::Host(self.host), || {
                    format!("has written a checkpoint of epoch {}: {records} records", epoch.0)
                });
                HostEvent::CheckpointWritten { epoch, bytes }
            }
            Err(error) => HostEvent::CheckpointFailed(error.to_string()),
        };
        self.handle(event)
    }
}
