//! What the sites of one partition agree on: its records, locks, votes and decisions.

use super::entry::{Prepare, Used, put_votes, take_votes};
use super::{PREPARED_MAX, is_clearable};
use crate::codec::{put_bool, put_id, put_value, take_bool, take_id, take_last, take_value};
use crate::sessions::Sessions;
use crate::{Answer, Conflict, WriteSet};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, PartitionId, Position, RequestId};

/// A partition's answer to a `Prepare`.
#[derive(Clone, Debug, PartialEq)]
pub enum Vote {
    /// The transaction is prepared, and holds its locks.
    Yes,
    /// This is in its way.
    No(Conflict),
    /// The partition has voted before, or may have: what became of it the home knows.
    Unknown,
}

/// What the home knows of a transaction's part at a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Undecided,
    /// The participant has to make the writes.
    Committed,
    /// The participant has to unlock.
    Aborted,
}

/// A transaction to which a partition has voted yes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prepared {
    pub prepare: Prepare,
    /// Where the vote stands in the partition's log.
    pub at: Position,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Lock {
    holders: BTreeSet<RequestId>,
    is_exclusive: bool,
}

/// What the sites of one partition agree on, as a state machine: a function of the calls of `whole`, `vote`,
/// `decide`, `finish` and `forget`, each of which stands for an entry, which the caller counts first
/// ([`Partition::decided`]).
#[derive(Debug, PartialEq)]
pub struct Partition {
    group: PartitionId,
    /// Entries that were decided, the present one included.
    pub decided: Position,
    /// What is there, and which entry wrote it. A deleted key keeps its version.
    keys: BTreeMap<Key, Read>,
    pub(super) prepared: BTreeMap<RequestId, Prepared>,
    /// The votes of the last entries: where each stands, and whether it was yes.
    votes: BTreeMap<RequestId, (Position, bool)>,
    votes_by_age: BTreeSet<(Position, RequestId)>,
    /// Of the sessions that are at home here.
    pub(super) sessions: Sessions,
    /// Of those sessions, the committed transactions that a participant may not have finished, and where the
    /// votes stand.
    pub(super) unfinished: BTreeMap<RequestId, BTreeMap<PartitionId, Position>>,
    /// A function of what is prepared.
    locks: BTreeMap<Key, Lock>,
    /// Those of the prepared transactions that clear.
    clearing: BTreeSet<RequestId>,
}

impl Partition {
    /// A partition without records, which knows sessions and votes for so many entries.
    pub fn new(group: PartitionId, horizon: u64) -> Partition {
        Partition {
            group,
            decided: Position::NONE,
            keys: BTreeMap::new(),
            prepared: BTreeMap::new(),
            votes: BTreeMap::new(),
            votes_by_age: BTreeSet::new(),
            sessions: Sessions::known_for(horizon),
            unfinished: BTreeMap::new(),
            locks: BTreeMap::new(),
            clearing: BTreeSet::new(),
        }
    }

    /// A record that is there before all transactions. It is as if the first entry had written it.
    pub fn load(&mut self, key: Key, entry: Entry) {
        self.decided = self.decided.max(Position::FIRST);
        self.keys.insert(key, Read { entry: Some(entry), version: Position::FIRST });
    }

    /// How many keys have a record.
    pub fn count(&self) -> u64 {
        self.keys.values().filter(|read| read.entry.is_some()).count() as u64
    }

    /// What is committed of a key.
    pub fn read(&self, key: &Key) -> Read {
        self.keys.get(key).cloned().unwrap_or_default()
    }

    /// Whether a prepared transaction writes a key.
    pub fn is_being_written(&self, key: &Key) -> bool {
        self.locks.get(key).is_some_and(|lock| lock.is_exclusive)
            || is_clearable(key) && self.is_being_cleared()
    }

    fn is_being_cleared(&self) -> bool {
        !self.clearing.is_empty()
    }

    /// What is in the way of a transaction here.
    pub fn conflict(&self, used: &Used) -> Option<Conflict> {
        for (key, &version) in &used.reads {
            let is_newest = self.keys.get(key).map_or(Position::NONE, |read| read.version) == version;
            if !is_newest && !is_active(Mutant::CertifyNothing) || self.is_being_written(key) {
                return Some(Conflict::Key(key.clone()));
            }
        }
        for key in used.writes.records.keys() {
            if self.locks.contains_key(key) || is_clearable(key) && self.is_being_cleared() {
                return Some(Conflict::Key(key.clone()));
            }
        }
        let is_cleared = |key: &Key| used.writes.clears && is_clearable(key);
        let locked = self.locks.keys().find(|key| is_cleared(key)).cloned().map(Conflict::Key);
        locked.or((used.writes.clears && self.is_being_cleared()).then_some(Conflict::Listing))
    }

    /// A transaction that uses this partition only, and is at home here.
    pub fn whole(&mut self, id: RequestId, used: Used) -> Answer {
        if let Some(answer) = self.sessions.settled(id, self.decided) {
            return answer;
        }
        let conflict = self.conflict(&used);
        self.sessions.certified(id, conflict.is_none(), self.decided);
        match conflict {
            Some(conflict) => Answer::Conflict(conflict),
            None => {
                self.write(used.writes);
                Answer::Committed
            }
        }
    }

    /// Votes, where the `Prepare` stands in the log. A vote is given once.
    pub fn vote(&mut self, prepare: Prepare, is_home: bool) -> Vote {
        let id = prepare.id;
        if self.prepared.contains_key(&id) {
            return Vote::Yes;
        }
        let horizon = self.sessions.horizon();
        match self.votes.get(&id) {
            Some((_, false)) => return Vote::No(Conflict::Superseded),
            Some((_, true)) => return Vote::Unknown,
            None if prepare.behind.0.saturating_add(horizon) <= self.decided.0 => return Vote::Unknown,
            None => {}
        }
        let mut conflict = self.conflict(&prepare.used);
        if self.prepared.len() >= PREPARED_MAX {
            conflict = conflict.or(Some(Conflict::Snapshot));
        }
        if is_home && self.sessions.settled(id, self.decided).is_some() {
            conflict = Some(Conflict::Superseded);
        }
        let at = self.decided;
        self.remember(id, at, conflict.is_none());
        match conflict {
            Some(conflict) => Vote::No(conflict),
            None => {
                self.lock(&prepare);
                self.prepared.insert(id, Prepared { prepare, at });
                Vote::Yes
            }
        }
    }

    fn remember(&mut self, id: RequestId, at: Position, is_yes: bool) {
        if let Some((before, _)) = self.votes.insert(id, (at, is_yes)) {
            self.votes_by_age.remove(&(before, id));
        }
        self.votes_by_age.insert((at, id));
        while let Some(&(oldest, id)) = self.votes_by_age.first()
            && oldest.0.saturating_add(self.sessions.horizon()) <= at.0
        {
            self.votes_by_age.pop_first();
            self.votes.remove(&id);
        }
    }

    fn lock(&mut self, prepare: &Prepare) {
        if is_active(Mutant::UnlockAtVote) {
            return;
        }
        if prepare.used.writes.clears {
            self.clearing.insert(prepare.id);
        }
        let writes = &prepare.used.writes.records;
        for key in prepare.used.keys() {
            let lock = self.locks.entry(key.clone()).or_default();
            lock.holders.insert(prepare.id);
            lock.is_exclusive |= writes.contains_key(key);
        }
    }

    fn unlock(&mut self, prepare: &Prepare) {
        self.clearing.remove(&prepare.id);
        for key in prepare.used.keys() {
            if let Some(lock) = self.locks.get_mut(key) {
                lock.holders.remove(&prepare.id);
                if lock.holders.is_empty() {
                    self.locks.remove(key);
                }
            }
        }
    }

    fn write(&mut self, writes: WriteSet) {
        let version = self.decided;
        if writes.clears {
            let cleared = self.keys.iter_mut().filter(|(key, _)| is_clearable(key));
            cleared.for_each(|(_, read)| *read = Read { entry: None, version });
        }
        for (key, entry) in writes.records {
            self.keys.insert(key, Read { entry, version });
        }
    }

    /// The end of a transaction here.
    pub fn finish(&mut self, id: RequestId, is_commit: bool) {
        let Some(Prepared { prepare, .. }) = self.prepared.remove(&id) else { return };
        self.unlock(&prepare);
        if is_commit {
            self.write(prepare.used.writes);
        }
    }

    /// The decision on a transaction that is at home here: the first one counts. Gives what the transaction's
    /// client is told.
    pub fn decide(&mut self, id: RequestId, mut votes: BTreeMap<PartitionId, Position>) -> Answer {
        if let Some(answer) = self.sessions.settled(id, self.decided) {
            // What it still holds here it has locked after it was decided.
            self.finish(id, false);
            return answer;
        }
        let is_commit = !votes.is_empty();
        self.sessions.certified(id, is_commit, self.decided);
        self.finish(id, is_commit);
        votes.remove(&self.group);
        if !votes.is_empty() && !is_active(Mutant::ForgetDecision) {
            self.unfinished.insert(id, votes);
        }
        if is_commit { Answer::Committed } else { Answer::Conflict(Conflict::Superseded) }
    }

    /// What has become, at a participant, of a transaction that is at home here.
    pub(super) fn fate(&self, id: RequestId, participant: PartitionId) -> Fate {
        match self.unfinished.get(&id) {
            Some(votes) if votes.contains_key(&participant) => Fate::Committed,
            None if self.sessions.settled(id, self.decided).is_none() => Fate::Undecided,
            _ => Fate::Aborted,
        }
    }

    /// Whether a committed transaction, for which this partition has voted at `vote`, is finished here.
    pub(super) fn has_finished(&self, id: RequestId, vote: Position) -> bool {
        self.decided >= vote && !self.prepared.contains_key(&id)
    }

    /// All keys with their versions.
    #[cfg(test)]
    pub(super) fn versions(&self) -> Vec<(Key, Position)> {
        self.keys.iter().map(|(key, read)| (key.clone(), read.version)).collect()
    }

    /// All participants have finished a transaction that is at home here and has committed.
    pub fn forget(&mut self, id: RequestId) {
        self.unfinished.remove(&id);
    }

    /// Looks at the locks.
    ///
    /// # Panics
    /// An invariant of the head of [`super`] does not hold.
    pub fn check_invariants(&self) {
        for (key, lock) in &self.locks {
            assert!(!lock.is_exclusive || lock.holders.len() == 1, "{key:?} has {:?}", lock.holders);
        }
        let mut holders = self.locks.values().flat_map(|lock| &lock.holders);
        assert!(holders.all(|id| self.prepared.contains_key(id)), "a lock without a holder");
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.decided.0);
        put_varint(&mut out, self.keys.len() as u64);
        for (key, read) in &self.keys {
            put_key(&mut out, key);
            put_varint(&mut out, read.version.0);
            put_value(&mut out, read.entry.as_ref());
        }
        let prepared = match is_active(Mutant::ForgetPrepared) {
            true => &BTreeMap::new(),
            false => &self.prepared,
        };
        put_varint(&mut out, prepared.len() as u64);
        for Prepared { prepare, at } in prepared.values() {
            prepare.put(&mut out);
            put_varint(&mut out, at.0);
        }
        put_varint(&mut out, self.votes.len() as u64);
        for (&id, &(at, is_yes)) in &self.votes {
            put_id(&mut out, id);
            put_varint(&mut out, at.0);
            put_bool(&mut out, is_yes);
        }
        put_varint(&mut out, self.unfinished.len() as u64);
        for (&id, votes) in &self.unfinished {
            put_id(&mut out, id);
            put_votes(&mut out, votes);
        }
        self.sessions.put(&mut out);
        out
    }

    /// A state of which `in_group` says which keys it may have.
    pub(super) fn decode(
        group: PartitionId,
        bytes: &[u8],
        horizon: u64,
        in_group: impl Fn(&Key) -> bool,
    ) -> Option<Partition> {
        let reader = &mut Reader::new(bytes);
        let mut state = Partition::new(group, horizon);
        state.decided = take_last(reader)?;
        let last = state.decided;
        let is_position = |at: Position| (at != Position::NONE && at <= last).then_some(at);
        for _ in 0..reader.varint()? {
            let key = take_key(reader).filter(|key| in_group(key))?;
            let version = is_position(Position(reader.varint()?))?;
            let read = Read { version, entry: take_value(reader)? };
            state.keys.insert(key, read).is_none().then_some(())?;
        }
        for _ in 0..reader.varint()? {
            let prepare = Prepare::take(reader)?;
            let at = is_position(Position(reader.varint()?))?;
            let is_here = prepare.participants.contains(&group) && prepare.used.keys().all(&in_group);
            let is_free = |key: &Key| match state.locks.get(key) {
                Some(lock) => !lock.is_exclusive && !prepare.used.writes.records.contains_key(key),
                None => true,
            };
            (is_here && prepare.used.keys().all(is_free)).then_some(())?;
            state.lock(&prepare);
            state.prepared.insert(prepare.id, Prepared { prepare, at }).is_none().then_some(())?;
        }
        for _ in 0..reader.varint()? {
            let id = take_id(reader)?;
            let at = is_position(Position(reader.varint()?))?;
            state.votes.insert(id, (at, take_bool(reader)?)).is_none().then_some(())?;
            state.votes_by_age.insert((at, id));
        }
        for _ in 0..reader.varint()? {
            let id = take_id(reader)?;
            state.unfinished.insert(id, take_votes(reader)?).is_none().then_some(())?;
        }
        state.sessions = Sessions::take(reader, horizon, last)?;
        reader.is_empty().then_some(state)
    }
}
