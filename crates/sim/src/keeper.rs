//! A simulated process's journal, on its machine's disk. A sync takes virtual time: the disk may do it when
//! it is asked to, or only just before it says so, and what is written meanwhile is covered by chance only.

use crate::world::{Address, Core, MortalDisk, System};
use log::{GroupImages, Journal, Kept, OpenError, SyncTicket, Synced};
use node::host::{CountedJournal, HostEvent, Recorded};
use std::io;
use txn::Position;

enum Syncing {
    Asked(SyncTicket<MortalDisk>),
    Done(io::Result<Synced>),
}

/// See the module's head.
pub(crate) struct Keeper {
    pub records: CountedJournal<MortalDisk>,
    syncing: Option<Syncing>,
    preparing: bool,
    /// At which tick the oldest record was written that may not be durable.
    pub unsynced_since_tick: Option<u64>,
}

impl Keeper {
    /// Opens the journal on a host's disk.
    pub fn open<S: System>(
        core: &mut Core<S>,
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

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.records.journal.status().last == Position::NONE
    }

    /// Whether a sync has failed, even if nobody was told yet.
    pub fn is_closed(&self) -> bool {
        self.records.journal.is_closed()
    }

    /// Whether a sync is on its way.
    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Writes a record.
    pub fn append(&mut self, kept: &[Kept], now_tick: u64) -> Recorded {
        let appended = self.records.append(kept);
        if matches!(appended, Recorded::Written { .. }) {
            self.unsynced_since_tick.get_or_insert(now_tick);
        }
        appended
    }

    /// Begins a sync, which ends with [`Keeper::end_sync`]; or what the node is told where all is durable.
    pub fn begin_sync(&mut self, asked: impl FnOnce() -> bool) -> Option<HostEvent> {
        let ticket = match self.records.begin_sync() {
            Ok(ticket) => ticket,
            Err(durable) => return Some(durable),
        };
        self.syncing = Some(if asked() { Syncing::Asked(ticket) } else { Syncing::Done(ticket.sync()) });
        None
    }

    /// Ends a sync, if one is on its way: what the node is told.
    pub fn end_sync(&mut self, now_tick: u64) -> Option<HostEvent> {
        let synced = match self.syncing.take()? {
            Syncing::Asked(ticket) => ticket.sync(),
            Syncing::Done(synced) => synced,
        };
        let event = self.records.end_sync(synced);
        if matches!(event, HostEvent::Synced(_)) {
            let status = self.records.journal.status();
            // What was written during the sync is younger than the sync.
            self.unsynced_since_tick = (status.durable < status.last).then_some(now_tick);
        }
        Some(event)
    }

    /// Whether the next segment is to be made, which nobody does yet: [`Keeper::prepared`] ends it.
    pub fn begin_to_prepare(&mut self) -> bool {
        !std::mem::replace(&mut self.preparing, true)
    }

    /// Makes the next segment. Where that fails it shows when the file is needed, and a node that waits for
    /// room asks again.
    pub fn prepared(&mut self) -> Option<HostEvent> {
        self.preparing = false;
        let made = self.records.journal.preparer().prepare_next();
        made.is_ok().then_some(HostEvent::RoomMade)
    }

    /// The journal is idle: then it may say what is durable.
    pub fn mark(&mut self) -> Option<HostEvent> {
        match self.records.journal.write_marker() {
            Ok(_) => None,
            // Nothing needs it; the next record shows what is wrong.
            Err(_) if !self.is_closed() => None,
            Err(error) => Some(HostEvent::JournalFailed(error.to_string())),
        }
    }
}
