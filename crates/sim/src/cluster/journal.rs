//! A process's journal on its host's disk: writes, syncs that take their time, segments made ahead of need.

use super::process::Turn;
use super::{Cluster, Timer};
use crate::world::{Address, Core, MortalDisk, Violation};
use node::FsyncPolicy;
use node::cluster::{ClusterEvent, joined_record};
use order::consensus::Kept;
use order::{GroupImages, Journal, OpenError, SyncTicket, Synced};
use std::io;
use txn::Position;

/// A sync: the disk may do it when it is asked to, or only just before it says so. What is written meanwhile
/// is covered by chance only.
enum Syncing {
    Asked(SyncTicket<MortalDisk>),
    Done(io::Result<Synced>),
}

/// See the module's head.
pub(super) struct Keeper {
    journal: Journal<MortalDisk>,
    /// Where the journal ended when the process began: its node counts records from there.
    before: Position,
    syncing: Option<Syncing>,
    preparing: bool,
    /// At which tick the oldest record was written that may not be durable.
    unsynced_since_tick: Option<u64>,
}

/// Making a segment's file takes so many syncs' time.
const PREPARE_SYNCS: u64 = 3;
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
            before: journal.status().last,
            journal,
            syncing: None,
            preparing: false,
            unsynced_since_tick: None,
        };
        Ok((keeper, images))
    }

    /// Makes the journal of a node that joins one that can be told from a lost one.
    pub fn mark_joined(&mut self) -> io::Result<()> {
        self.journal.append(&[joined_record()])?;
        self.journal.sync()?;
        self.before = self.journal.status().last;
        Ok(())
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.journal.status().last == Position::NONE
    }

    /// Whether a sync has failed, even if nobody was told yet.
    pub fn is_closed(&self) -> bool {
        self.journal.is_closed()
    }

    /// A position of the journal as a number of the node's.
    fn record(&self, position: Position) -> u64 {
        position.0.saturating_sub(self.before.0)
    }
}

impl Turn<'_> {
    /// Writes a record. Returns what the node is told of it.
    pub(super) fn write(&mut self, kept: &[Kept]) -> ClusterEvent {
        let now_tick = self.process.ticks;
        let keeper = &mut self.process.keeper;
        match keeper.journal.append(kept) {
            Ok(appended) => {
                let record = keeper.record(appended.position);
                keeper.unsynced_since_tick.get_or_insert(now_tick);
                if let Some(alone) = &mut self.system.alone {
                    alone.written(appended.position, kept);
                }
                if appended.rotated {
                    self.prepare_soon();
                }
                ClusterEvent::Written(record)
            }
            Err(error) if keeper.journal.takes_again(&error) => {
                ClusterEvent::JournalUnwritten(error.to_string())
            }
            Err(error) => ClusterEvent::JournalFailed(error.to_string()),
        }
    }

    /// Starts a sync of all that is written. Returns what the node is told if there is nothing to do.
    pub(super) fn start_sync(&mut self) -> Option<ClusterEvent> {
        let keeper = &mut self.process.keeper;
        let Some(ticket) = keeper.journal.sync_ticket() else {
            let durable = keeper.journal.status().durable;
            return Some(ClusterEvent::Synced(keeper.record(durable)));
        };
        keeper.syncing = Some(if self.core.draw.percent(50) {
            Syncing::Asked(ticket)
        } else {
            Syncing::Done(ticket.sync())
        });
        let after_ns = self.disk_time(self.system.plan.costs.sync_ns);
        self.core.set_timer(self.me(), after_ns, Timer::Synced);
        None
    }

    /// A sync is done.
    pub(super) fn synced(&mut self) -> Result<(), Violation> {
        let now_tick = self.process.ticks;
        let keeper = &mut self.process.keeper;
        let synced = match keeper.syncing.take() {
            None => return Ok(()),
            Some(Syncing::Asked(ticket)) => ticket.sync(),
            Some(Syncing::Done(synced)) => synced,
        };
        let event = match synced {
            Ok(synced) => {
                keeper.journal.synced(synced);
                let status = keeper.journal.status();
                // What was written during the sync is younger than the sync.
                keeper.unsynced_since_tick = (status.durable < status.last).then_some(now_tick);
                if let Some(alone) = &mut self.system.alone {
                    alone.synced(status.durable);
                }
                ClusterEvent::Synced(keeper.record(status.durable))
            }
            Err(error) => ClusterEvent::JournalFailed(error.to_string()),
        };
        self.handle(event)
    }

    /// The journal is idle from time to time: then it may say what is durable.
    pub(super) fn mark(&mut self) -> Result<(), Violation> {
        match self.process.keeper.journal.write_marker() {
            Ok(_) => Ok(()),
            // Nothing needs it; the next record shows what is wrong.
            Err(_) if !self.process.keeper.is_closed() => Ok(()),
            Err(error) => self.handle(ClusterEvent::JournalFailed(error.to_string())),
        }
    }

    /// Removes what checkpoints cover.
    pub(super) fn truncate(&mut self) {
        let journal = &mut self.process.keeper.journal;
        // What cannot be removed now is removed after the next checkpoint.
        if let Some(Ok(truncated)) = journal.truncation().map(|truncation| truncation.run()) {
            journal.truncated(truncated);
        }
    }

    /// The next segment is made ahead of need, on a thread of its own.
    pub(super) fn prepare_soon(&mut self) {
        if !std::mem::replace(&mut self.process.keeper.preparing, true) {
            let after_ns = self.disk_time(self.system.plan.costs.sync_ns * PREPARE_SYNCS);
            self.core.set_timer(self.me(), after_ns, Timer::Prepared);
        }
    }

    pub(super) fn prepared(&mut self) -> Result<(), Violation> {
        self.process.keeper.preparing = false;
        match self.process.keeper.journal.preparer().prepare_next() {
            Ok(_) => self.handle(ClusterEvent::RoomMade),
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
}
