//! A node that stands alone: what it may lose, and what nobody may hold against it then.
//!
//! In a cluster nothing that was confirmed is ever lost. Where there is one node, a loss of power takes what
//! it had not synced, which under `everysec` and `no` may have been answered; and a flipped bit may take what
//! looks like a torn tail. So whenever a process begins:
//!
//! 1. *durability*: it has everything that was written, after a kill; everything that was synced, after a
//!    loss of power. Of what is damaged by a flipped bit, it has what some record that is left claims to be
//!    durable. Under `always` nothing final-commits before it is synced.
//! 2. *checkpoints*: it begins behind the newest one that counted, or a newer one. One that is damaged by a
//!    flipped bit is no reason not to begin: the one before it is there.
//! 3. What it lacks is *void*: the other oracles forget it, and what clients were told of it counts as if
//!    their connection had broken.

use crate::watch::real_time::Place;
use crate::world::{End, Violation};
use log::{Entry, EntryKind, Kept};
use order::GroupBatch;
use std::collections::{BTreeMap, VecDeque};
use txn::{Epoch, Position};

/// See the module's head.
pub(super) struct Alone {
    /// What is acknowledged is synced.
    always: bool,
    /// The newest epoch in the log with each record that is not known to be durable, oldest first.
    unsynced: VecDeque<(Position, Epoch)>,
    /// The newest epoch that was written.
    written: Epoch,
    /// The newest epoch that is known to be durable.
    synced: Epoch,
    /// What the record of an epoch says to be durable.
    claims: BTreeMap<Epoch, Epoch>,
    /// What the next process must have.
    floor: Epoch,
    /// The newest checkpoint that counted when the last process ended.
    checkpoint: Epoch,
    /// A bit of some file had flipped before, and a process began nevertheless.
    damaged: bool,
    /// The present process, and how far its log went when it began.
    process: u32,
    recovered: Position,
}

/// The epoch of the last batch among entries, if one is.
pub(super) fn last_epoch_of<'a>(
    entries: impl IntoIterator<Item = &'a Entry, IntoIter: DoubleEndedIterator>,
) -> Option<Epoch> {
    let mut batches = entries.into_iter().rev().filter(|entry| entry.kind == EntryKind::Data);
    batches.find_map(|entry| GroupBatch::epoch_of(&entry.data))
}

impl Alone {
    pub fn new(always: bool) -> Alone {
        Alone {
            always,
            unsynced: VecDeque::new(),
            written: Epoch(0),
            synced: Epoch(0),
            claims: BTreeMap::new(),
            floor: Epoch(0),
            checkpoint: Epoch(0),
            damaged: false,
            process: 0,
            recovered: Position::NONE,
        }
    }

    /// A record was written.
    pub fn written(&mut self, record: Position, kept: &[Kept]) {
        let entries: Vec<&Entry> = kept.iter().flat_map(|kept| &kept.entries).collect();
        let Some(epoch) = last_epoch_of(entries) else { return };
        self.written = epoch;
        self.unsynced.push_back((record, epoch));
        self.claims.insert(epoch, self.synced);
        // The one before may be all that a loss of power leaves.
        while self.claims.keys().nth(1).is_some_and(|&second| second <= self.synced) {
            self.claims.pop_first();
        }
    }

    /// All records up to this one are durable.
    pub fn synced(&mut self, record: Position) {
        while let Some((_, epoch)) = self.unsynced.pop_front_if(|(unsynced, _)| *unsynced <= record) {
            self.synced = epoch;
        }
    }

    /// Something of an epoch has final-committed.
    pub fn committed(&self, epoch: Epoch) -> Result<(), Violation> {
        if self.always && epoch > self.synced {
            let text = format!("{epoch:?} is acknowledged, and only {:?} is on the disk", self.synced);
            return Err(Violation::new("durability", text));
        }
        Ok(())
    }

    /// A process has ended whose newest checkpoint is told; or one that was about to begin.
    pub fn ended(&mut self, end: End, checkpoint: Option<Epoch>) {
        self.checkpoint = match end {
            End::DiskLost => Epoch(0),
            _ => checkpoint.unwrap_or(self.checkpoint),
        };
        self.floor = match end {
            End::Killed if checkpoint.is_some() => self.written,
            End::Killed => self.floor,
            End::PowerLost => self.synced,
            End::DiskLost => Epoch(0),
        };
        self.unsynced.clear();
    }

    /// A process begins behind a checkpoint, and its log goes up to an epoch. `flipped`: a bit of its files
    /// had flipped.
    pub fn begins(&mut self, began: Epoch, last: Epoch, flipped: bool) -> Result<(), Violation> {
        let mut floor = self.floor;
        self.damaged |= flipped;
        if !flipped && began < self.checkpoint {
            let text = format!("the checkpoint of {:?} counted, and it begins at {began:?}", self.checkpoint);
            return Err(Violation::new("checkpoints", text));
        }
        if flipped {
            let there = self.claims.range(..=self.floor).next_back();
            floor = floor.min(there.map_or(Epoch(0), |(_, &claim)| claim));
        }
        if last < floor {
            let text = format!("{floor:?} must have survived, and the log ends with {last:?}");
            return Err(Violation::new("durability", text));
        }
        // What a client can read from now on must not vanish at the next start.
        (self.written, self.synced, self.floor) = (last, last, last);
        self.claims = BTreeMap::from([(last, last)]);
        Ok(())
    }

    /// A process does not begin, because a bit of this file has flipped.
    pub fn refused(&self, flipped: &str, text: &str) -> Result<(), Violation> {
        if flipped.starts_with("checkpoint-") && !self.damaged {
            let text = format!("only {flipped} is damaged, and no process begins: {text}");
            return Err(Violation::new("checkpoints", text));
        }
        Ok(())
    }

    /// It is this process of its host, and the order went so far when it began.
    pub fn runs(&mut self, process: u32, recovered: Position) {
        (self.process, self.recovered) = (process, recovered);
    }

    /// Whether a reply of a process of the host is about what is void by now.
    pub fn is_void(&self, process: u32, place: Place) -> bool {
        process != self.process && place.reached() > self.recovered
    }
}
