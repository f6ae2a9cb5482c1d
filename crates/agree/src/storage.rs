//! A group's log in memory: what the consensus library reads. What is on the disk is the journal's.

use super::Base;
use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{GetEntriesContext, RaftState, StorageError};
use std::collections::VecDeque;

/// A log in memory. `floor.0 <= base.index`; entries follow `floor` without gaps.
pub(super) struct Storage {
    hard_state: HardState,
    base: Base,
    /// The index and term before the first entry.
    floor: (u64, u64),
    entries: VecDeque<Entry>,
    bytes: u64,
    /// How many bytes an entry's data stands for, beside its own.
    more: fn(&[u8]) -> u64,
    /// Entries before the base are kept, for replicas that are a little behind, while the log has at most so
    /// many bytes.
    trail_bytes_max: u64,
}

impl Storage {
    /// What was read back from the disk.
    pub fn new(base: Base, entries: Vec<Entry>, mut hard_state: HardState, trail_bytes_max: u64) -> Storage {
        // A checkpoint is of agreed entries.
        hard_state.commit = hard_state.commit.max(base.index);
        let floor = (base.index, base.term);
        let entries = entries.into();
        let mut storage =
            Storage { hard_state, floor, base, entries, bytes: 0, more: |_| 0, trail_bytes_max };
        storage.weigh(|_| 0);
        storage
    }

    /// The data of an entry stands for so many bytes beside its own.
    pub fn weigh(&mut self, more: fn(&[u8]) -> u64) {
        self.more = more;
        self.bytes = self.entries.iter().map(|entry| self.bytes_of(entry)).sum();
    }

    /// About what an entry takes.
    fn bytes_of(&self, entry: &Entry) -> u64 {
        entry_bytes(entry) + (self.more)(&entry.data)
    }

    pub fn base(&self) -> &Base {
        &self.base
    }

    pub fn entry(&self, index: u64) -> Option<&Entry> {
        let place = index.checked_sub(self.floor.0 + 1)?;
        self.entries.get(place as usize)
    }

    pub fn set_hard_state(&mut self, hard_state: HardState) {
        self.hard_state = hard_state;
    }

    /// Takes entries, which replace those at their indices and all later ones.
    pub fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else { return };
        let kept = first.index.saturating_sub(self.floor.0 + 1) as usize;
        while self.entries.len() > kept
            && let Some(dropped) = self.entries.pop_back()
        {
            self.bytes -= self.bytes_of(&dropped);
        }
        self.bytes += entries.iter().map(|entry| self.bytes_of(entry)).sum::<u64>();
        self.entries.extend(entries.iter().cloned());
    }

    /// The term and the vote.
    pub fn hard_state(&self) -> (u64, u64) {
        (self.hard_state.term, self.hard_state.vote)
    }

    /// Notes that a checkpoint covers more. Drops old entries, `applied` ones, as far as memory asks for it.
    pub fn rebase(&mut self, base: Base, applied: u64) {
        self.base = base;
        let upto = self.base.index.min(applied);
        while self.bytes > self.trail_bytes_max
            && let Some(entry) = self.entries.pop_front_if(|entry| entry.index <= upto)
        {
            self.bytes -= self.bytes_of(&entry);
            self.floor = (entry.index, entry.term);
        }
    }

    pub fn conf_state(base: &Base) -> ConfState {
        let numbers = |nodes: &[txn::NodeId]| nodes.iter().map(|node| u64::from(node.0)).collect();
        let members = &base.members;
        ConfState {
            voters: numbers(&members.voters),
            voters_outgoing: numbers(&members.voters_outgoing),
            learners: numbers(&members.learners),
            learners_next: numbers(&members.learners_next),
            auto_leave: members.auto_leave,
        }
    }
}

/// About what an entry takes by itself.
fn entry_bytes(entry: &Entry) -> u64 {
    64 + entry.data.len() as u64
}

impl raft::Storage for Storage {
    fn initial_state(&self) -> raft::Result<RaftState> {
        let conf_state = Storage::conf_state(&self.base);
        Ok(RaftState::new(self.hard_state.clone(), conf_state))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        let first = self.floor.0 + 1;
        if low < first {
            return Err(StorageError::Compacted.into());
        }
        let (from, to) = ((low - first) as usize, (high - first) as usize);
        if to > self.entries.len() {
            return Err(StorageError::Unavailable.into());
        }
        let max_bytes = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let fits = |entry: &&Entry| {
            // At least one, however large.
            let is_first = bytes == 0;
            bytes += entry_bytes(entry);
            is_first || bytes <= max_bytes
        };
        let range = self.entries.range(from..to);
        Ok(range.take_while(fits).cloned().collect())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.floor.0 {
            return Ok(self.floor.1);
        }
        if index < self.floor.0 {
            return Err(StorageError::Compacted.into());
        }
        match self.entry(index) {
            Some(entry) => Ok(entry.term),
            None => Err(StorageError::Unavailable.into()),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.floor.0 + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.floor.0 + self.entries.len() as u64)
    }

    fn snapshot(&self, request_index: u64, _: u64) -> raft::Result<Snapshot> {
        if self.base.index < request_index || self.base.index == 0 {
            return Err(StorageError::SnapshotTemporarilyUnavailable.into());
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = self.base.index;
        metadata.term = self.base.term;
        metadata.set_conf_state(Storage::conf_state(&self.base));
        snapshot.data = self.base.state.clone();
        Ok(snapshot)
    }
}
