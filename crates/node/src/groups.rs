//! The groups of a node, and the records of the journal that they share: the substrate of both families.
//!
//! A group's turn says what is to be kept, and what may be said once it is kept. All that the groups of a
//! round want kept goes into one record. [`Groups`] counts the records, and gives back what waited for one
//! when it is as durable as it had to be, in the order in which it was written.
//!
//! ```text
//!   handle ──► next_turn ──► the machine makes a record ──► promise / wait_for
//!                                                                 │ written, synced
//!                  group.kept, and its messages ◄── next_kept ◄───┘
//! ```
//!
//! Invariants ([`Groups::check_invariants`]):
//! 1. `synced <= written <= records`.
//! 2. What waits, waits for growing records, or for none that will ever be written.

use agree::{Group, Input, Refusal, Turn};
use bytes::Bytes;
use log::Base;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Deref;
use txn::{NodeId, PartitionId};

/// No record has this number.
const NEVER: u64 = u64::MAX;

/// See the module's head. `T` is what may wait for a record beside the groups' promises.
pub(crate) struct Groups<T> {
    groups: BTreeMap<PartitionId, Box<dyn Group>>,
    /// Groups whose next turn was not yet asked for.
    dirty: BTreeSet<PartitionId>,
    /// What waits for a record, oldest first.
    unkept: VecDeque<Unkept<T>>,
    /// Records that this process has begun, written, and synced.
    records: u64,
    written: u64,
    synced: u64,
    syncing: bool,
    sync_tick: u64,
    /// A sync has failed.
    closed: bool,
}

struct Unkept<T> {
    /// The record that must be kept, or 0 if nothing had to be written.
    record: u64,
    /// Whether it must be durable for that.
    must_sync: bool,
    then: Then<T>,
}

enum Then<T> {
    Promise { partition: PartitionId, turn: u64, messages: Vec<(NodeId, Bytes)> },
    Other(T),
}

/// What may follow now that a record is kept.
pub(crate) enum NowKept<T> {
    /// A group's messages may leave.
    Messages(PartitionId, Vec<(NodeId, Bytes)>),
    /// What [`Groups::wait_for`] was called for.
    Other(T),
}

/// Read-only: inputs go through [`Groups::handle`].
impl<T> Deref for Groups<T> {
    type Target = BTreeMap<PartitionId, Box<dyn Group>>;

    fn deref(&self) -> &Self::Target {
        &self.groups
    }
}

impl<T> Groups<T> {
    pub fn new(groups: BTreeMap<PartitionId, Box<dyn Group>>) -> Groups<T> {
        Groups {
            dirty: groups.keys().copied().collect(),
            groups,
            unkept: VecDeque::new(),
            records: 0,
            written: 0,
            synced: 0,
            syncing: false,
            sync_tick: 0,
            closed: false,
        }
    }

    /// Gives a group an input. A node that has no such group does not take part in it.
    ///
    /// # Errors
    /// As [`Group::handle`]. What a group refuses has no effect: it has no turn because of it.
    pub fn handle(&mut self, partition: PartitionId, input: Input) -> Result<(), Refusal> {
        let Some(group) = self.groups.get_mut(&partition) else {
            return Err(Refusal::NotLeader);
        };
        group.handle(input)?;
        self.dirty.insert(partition);
        Ok(())
    }

    /// Gives all groups an input that those without use for it ignore.
    pub fn tell_all(&mut self, input: &Input) {
        for (&partition, group) in &mut self.groups {
            let _ = group.handle(input.clone());
            self.dirty.insert(partition);
        }
    }

    /// All groups may have something to say.
    pub fn wake_all(&mut self) {
        self.dirty.extend(self.groups.keys());
    }

    /// Whether some group was not asked for its next turn.
    pub fn has_turns(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// The next turn, and whose it is; `None` beside a group that has no further one for now.
    pub fn next_turn(&mut self) -> Option<(PartitionId, Option<Turn>)> {
        let &partition = self.dirty.first()?;
        let turn = self.groups.get_mut(&partition).and_then(|group| group.turn());
        if turn.is_none() {
            self.dirty.remove(&partition);
        }
        Some((partition, turn))
    }

    /// A group's log begins behind this base.
    pub fn rebase(&mut self, partition: PartitionId, base: Base) {
        if let Some(group) = self.groups.get_mut(&partition) {
            group.rebase(base);
        }
    }

    /// Puts another replica in the place of a group's, which began anew. What the earlier one had to promise
    /// is not said any more.
    pub fn replace(&mut self, partition: PartitionId, group: Box<dyn Group>) {
        let is_of = |then: &Then<T>| matches!(then, Then::Promise { partition: of, .. } if *of == partition);
        self.unkept.retain(|unkept| !is_of(&unkept.then));
        self.groups.insert(partition, group);
        self.dirty.insert(partition);
    }

    /// The number of the record that was begun last.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Up to this record everything is durable.
    pub fn synced_record(&self) -> u64 {
        self.synced
    }

    /// A record is begun.
    pub fn begin_record(&mut self) {
        self.records += 1;
    }

    /// A turn's messages leave once the record that was begun last is kept. `is_kept`: it has what the turn
    /// wants kept.
    pub fn promise(
        &mut self,
        partition: PartitionId,
        turn: u64,
        messages: Vec<(NodeId, Bytes)>,
        is_kept: bool,
        must_sync: bool,
    ) {
        // What is not kept any more holds back all that comes behind it.
        let record = if self.closed && is_kept { NEVER } else { self.records };
        let then = Then::Promise { partition, turn, messages };
        self.unkept.push_back(Unkept { record, must_sync, then });
    }

    /// This follows once the record that was begun last is durable.
    pub fn wait_for(&mut self, then: T) {
        let record = if self.closed { NEVER } else { self.records };
        self.unkept.push_back(Unkept { record, must_sync: true, then: Then::Other(then) });
    }

    /// The journal has this record.
    ///
    /// # Panics
    /// This process has begun no such record: whoever drives it counts wrongly.
    pub fn written(&mut self, record: u64) {
        self.check_number(record);
        self.written = record;
    }

    /// The disk has everything up to this record.
    ///
    /// # Panics
    /// As [`Groups::written`].
    pub fn synced(&mut self, record: u64) {
        self.check_number(record);
        self.syncing = false;
        self.synced = self.synced.max(record);
    }

    fn check_number(&self, record: u64) {
        assert!(
            record <= self.records,
            "the journal has {record} records of this process, which wrote {}",
            self.records
        );
    }

    /// A sync has failed: nothing is kept any more.
    pub fn close(&mut self) {
        self.closed = true;
    }

    /// What is kept by now, one after the other; its group may have a next turn then.
    pub fn next_kept(&mut self) -> Option<NowKept<T>> {
        let (written, synced) = (self.written, self.synced);
        let unkept = self.unkept.pop_front_if(|unkept| {
            let enough = if unkept.must_sync { synced } else { written };
            unkept.record <= enough
        })?;
        Some(match unkept.then {
            Then::Promise { partition, turn, messages } => {
                if let Some(group) = self.groups.get_mut(&partition) {
                    group.kept(turn);
                    self.dirty.insert(partition);
                }
                NowKept::Messages(partition, messages)
            }
            Then::Other(then) => NowKept::Other(then),
        })
    }

    /// Whether nothing waits for a record.
    pub fn has_kept_all(&self) -> bool {
        self.unkept.is_empty()
    }

    /// Whether a sync is to be started now: something waits for one, or `after_ticks` have gone by since the
    /// last one and something was written.
    pub fn begin_sync(&mut self, now_tick: u64, after_ticks: Option<u64>) -> bool {
        let waits = self.unkept.iter().any(|unkept| unkept.must_sync);
        let due = after_ticks.is_some_and(|ticks| now_tick - self.sync_tick >= ticks);
        let begins = (waits || due) && !self.syncing && !self.closed && self.synced < self.written;
        if begins {
            self.syncing = true;
            self.sync_tick = now_tick;
        }
        begins
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        assert!(self.synced <= self.written && self.written <= self.records);
        let records = self.unkept.iter().map(|unkept| unkept.record);
        debug_assert!(records.take_while(|&record| record != NEVER).is_sorted());
    }
}
