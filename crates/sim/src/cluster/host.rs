//! A simulated node's effects, performed in virtual time: its journal on its machine's disk, whose syncs take
//! their time; its frames; its checkpoints.

use super::process::Turn;
use super::site::host_at;
use super::{Cluster, Frame, Timer};
use crate::keeper::Keeper;
use crate::world::{Address, Core, MortalDisk, Violation};
use bytes::Bytes;
use log::Kept;
use node::FsyncPolicy;
use node::cluster::checkpoint::{self, Needed};
use node::cluster::{ClusterCheckpoint, Piece, Whole, Written, joined_record};
use node::host::{Host, HostEvent, Recorded, serve_piece, store_piece};
use order::PartitionMap;
use std::io;
use std::sync::Arc;
use txn::NodeId;

/// Making a segment's file takes so many syncs' time,
const PREPARE_SYNCS: u64 = 3;
/// and so does writing a checkpoint.
const CHECKPOINT_SYNCS: u64 = 3;
/// Under `everysec`, what is written is on its way to the disk after so long.
const EVERYSEC_MS: u64 = 1_000;

impl Keeper {
    /// Makes the journal of a node that joins one that can be told from a lost one.
    pub fn mark_joined(&mut self) -> io::Result<()> {
        let journal = &mut self.records.journal;
        journal.append(&[joined_record()])?;
        journal.sync()?;
        self.records.count_from_here();
        Ok(())
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
        if self.keeper.begin_to_prepare() {
            self.after_syncs(PREPARE_SYNCS, Timer::Prepared);
        }
    }
}

impl Host for VirtualHost<'_> {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        let appended = self.keeper.append(kept, self.now_tick);
        if let Recorded::Written { rotated, .. } = appended {
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
        let draw = &mut self.core.draw;
        if let Some(durable) = self.keeper.begin_sync(|| draw.percent(50)) {
            return Some(durable);
        }
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
        let Some(event) = keeper.end_sync(now_tick) else { return Ok(()) };
        if let (HostEvent::Synced(_), Some(alone)) = (&event, &mut self.system.alone) {
            alone.synced(keeper.records.journal.status().durable);
        }
        self.handle(event)
    }

    /// The journal is idle from time to time: then it may say what is durable.
    pub(super) fn mark(&mut self) -> Result<(), Violation> {
        self.process.keeper.mark().map_or(Ok(()), |event| self.handle(event))
    }

    pub(super) fn prepared(&mut self) -> Result<(), Violation> {
        self.process.keeper.prepared().map_or(Ok(()), |event| self.handle(event))
    }

    /// Under `everysec`, nothing that is written stays behind for long. A process that is frozen does not
    /// tick.
    pub(super) fn check_everysec(&self) -> Result<(), Violation> {
        let plan = &self.system.plan;
        let keeper = &self.process.keeper;
        let since_tick = keeper.unsynced_since_tick;
        let late_ticks = EVERYSEC_MS * 1_000_000 / plan.tick_ns + 4;
        if plan.fsync == FsyncPolicy::Everysec
            && !keeper.is_syncing()
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
