//! What the sites of one partition agree on: its records, what is prepared, votes and decisions.

use super::entry::Decision;
use super::records::Records;
use super::rule::{KeyView, Neighbour, Rule};
use super::{PREPARED_MAX, is_clearable};
use crate::codec::{put_bool, put_id, take_bool, take_id, take_last};
use crate::prepare::{Prepare, Used};
use crate::recent::Recent;
use crate::sessions::Sessions;
use crate::times::{Range, Timestamp};
use crate::{Answer, Conflict};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, PartitionId, Position, RequestId, SessionId};

/// A partition's answer to a `Prepare`.
#[derive(Clone, Debug, PartialEq)]
pub enum Vote {
    /// The transaction is prepared here, and may commit at these timestamps.
    Yes(Range),
    /// It has no effect.
    No(Conflict),
    /// The partition has voted before, or may have: what became of it the home knows.
    Unknown,
}

/// What the home knows of a transaction's part at a participant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Undecided,
    /// The participant has to make the writes at this timestamp.
    Committed(Timestamp),
    /// The participant has to drop them.
    Aborted,
}

/// A transaction to which a partition has voted yes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prepared {
    pub prepare: Prepare,
    /// Where the vote stands in the partition's log.
    pub at: Position,
    /// The timestamps at which this partition lets it commit.
    pub range: Range,
}

/// One partition's replicated state, and what its entries do to it. See the module's head.
///
/// Whoever keeps a partition calls [`Partition::next_entry`] at each entry of its log, and then what the
/// entry stands for: [`Partition::vote`], [`Partition::finish`] and so on.
#[derive(Debug, PartialEq)]
pub struct Partition {
    group: PartitionId,
    rule: Rule,
    /// Entries that were decided.
    pub(super) decided: Position,
    /// The greatest timestamp that an entry has had.
    greatest: Timestamp,
    records: Records,
    pub(super) prepared: BTreeMap<RequestId, Prepared>,
    /// Whether the votes of the last entries were yes.
    votes: Recent<RequestId, bool>,
    /// Of the sessions that are at home here.
    pub(super) sessions: Sessions,
    /// The timestamps of those sessions' last commits.
    commits: Recent<SessionId, Timestamp>,
    /// The greatest timestamp that `commits` has forgotten.
    forgotten_commit: Timestamp,
    /// Of those sessions, the committed transactions that a participant may not have finished.
    pub(super) unfinished: BTreeMap<RequestId, Decision>,
    /// The prepared transactions that name a key: a function of what is prepared.
    users: BTreeMap<Key, BTreeSet<RequestId>>,
    /// Those of the prepared transactions that clear.
    clearing: BTreeSet<RequestId>,
}

impl Partition {
    /// A partition without data that knows sessions, and votes, for so many entries.
    pub fn new(group: PartitionId, rule: Rule, horizon: u64) -> Partition {
        Partition {
            group,
            rule,
            decided: Position::NONE,
            greatest: Timestamp::NONE,
            records: Records::of(rule),
            prepared: BTreeMap::new(),
            votes: Recent::known_for(horizon),
            sessions: Sessions::known_for(horizon),
            commits: Recent::known_for(horizon),
            forgotten_commit: Timestamp::NONE,
            unfinished: BTreeMap::new(),
            users: BTreeMap::new(),
            clearing: BTreeSet::new(),
        }
    }

    /// The partition is given the next entry of its log. Gives the entry's position.
    pub fn next_entry(&mut self) -> Position {
        self.decided = self.decided.next();
        self.decided
    }

    /// A record that is there before all transactions. It is as if the first entry had written it.
    pub fn load(&mut self, key: Key, entry: Entry) {
        let at = if self.rule == Rule::NoWait { Timestamp::NONE } else { Timestamp::NONE.next() };
        self.decided = self.decided.max(Position::FIRST);
        self.greatest = self.greatest.max(at);
        self.records.write(key, Some(entry), Position::FIRST, at);
    }

    /// How many keys have a record.
    pub fn count(&self) -> u64 {
        self.records.keys().filter(|key| self.newest(key).entry.is_some()).count() as u64
    }

    /// The greatest timestamp that an entry of the log has had. A coordinator takes a greater one.
    pub fn greatest_timestamp(&self) -> Timestamp {
        self.greatest
    }

    /// What a key holds, and which entry wrote it.
    pub fn newest(&self, key: &Key) -> Read {
        let version = self.records.versions(key).last();
        version.map_or_else(Read::default, |version| Read {
            entry: version.entry.clone(),
            version: version.position,
        })
    }

    /// What a transaction that has begun at a timestamp reads of a key.
    ///
    /// # Errors
    /// A prepared transaction is in the way, or the version is not kept any more.
    pub fn read(&self, key: &Key, timestamp: Timestamp) -> Result<Read, Conflict> {
        let view = self.view(key);
        let version = self.rule.visible(&view, timestamp).ok_or(Conflict::Snapshot)?;
        match self.rule.read(&view, version.position, self.rule.range(timestamp)).is_empty() {
            true => Err(Conflict::Key(key.clone())),
            false => Ok(Read { entry: version.entry.clone(), version: version.position }),
        }
    }

    fn view(&self, key: &Key) -> KeyView<'_> {
        let users = self.users.get(key);
        let is_other = |id: &&RequestId| is_clearable(key) && users.is_none_or(|users| !users.contains(*id));
        let clearing = self.clearing.iter().filter(is_other);
        let neighbour = |id: &RequestId| {
            let Prepared { prepare, range, .. } = self.prepared.get(id)?;
            let Used { reads, writes, .. } = &prepare.used;
            let writes = writes.records.contains_key(key) || writes.clears && is_clearable(key);
            Some(Neighbour { range: *range, read: reads.get(key).copied(), writes })
        };
        KeyView {
            versions: self.records.versions(key),
            neighbours: users.into_iter().flatten().chain(clearing).filter_map(neighbour).collect(),
            write_floor: self.records.write_floor(key),
        }
    }

    /// All clearable keys of which nothing is known.
    fn view_of_others(&self) -> KeyView<'_> {
        let prepared = self.clearing.iter().filter_map(|id| self.prepared.get(id));
        let neighbour = |prepared: &Prepared| Neighbour { range: prepared.range, read: None, writes: true };
        KeyView {
            versions: self.records.initial(),
            neighbours: prepared.map(neighbour).collect(),
            write_floor: self.records.clear_floor(),
        }
    }

    /// The timestamps at which a transaction that asks for a vote now could commit.
    ///
    /// # Errors
    /// There is none, because of others' use of a key.
    pub fn range(&self, used: &Used) -> Result<Range, Conflict> {
        let mut range = self.rule.range(used.timestamp);
        let left = |range: Range, key: &Key| match range.is_empty() {
            true => Err(Conflict::Key(key.clone())),
            false => Ok(range),
        };
        for (key, &version) in &used.reads {
            let view = self.view(key);
            let version = match self.rule.visible(&view, used.timestamp) {
                Some(visible) if is_active(Mutant::CertifyNothing) => visible.position,
                _ => version,
            };
            range = left(self.rule.read(&view, version, range), key)?;
        }
        for key in used.writes.records.keys() {
            range = left(self.rule.write(&self.view(key), range), key)?;
        }
        if used.writes.clears {
            let known = self.records.keys().chain(self.users.keys());
            for key in known.filter(|key| is_clearable(key)) {
                range = left(self.rule.write(&self.view(key), range), key)?;
            }
            range = self.rule.write(&self.view_of_others(), range);
        }
        if range.is_empty() { Err(Conflict::Listing) } else { Ok(range) }
    }

    /// The first timestamp at which a transaction of a session that is at home here may commit: a session's
    /// transactions are in the order of their timestamps.
    pub fn first_of(&self, session: SessionId) -> Timestamp {
        match self.commits.get(session).copied().unwrap_or(self.forgotten_commit) {
            last if last == Timestamp::NONE || is_active(Mutant::ForgetSessionOrder) => Timestamp::NONE,
            last => last.next(),
        }
    }

    /// The commit timestamp of a transaction that is at home here, and whose votes have this range in common.
    /// If it is none, the transaction is to be aborted.
    pub fn choose(&self, id: RequestId, range: Range) -> Option<Timestamp> {
        let range = range.and(Range::from(self.first_of(id.session)));
        (!range.is_empty()).then_some(range.lower)
    }

    /// A transaction that is at home here is committed.
    fn note_commit(&mut self, id: RequestId, at: Timestamp) {
        if at > Timestamp::NONE {
            self.greatest = self.greatest.max(at);
            let forgotten = self.commits.insert(id.session, at, self.decided);
            self.forgotten_commit = forgotten.into_iter().fold(self.forgotten_commit, Timestamp::max);
        }
    }

    /// A transaction that uses this partition only, and is at home here: vote, decision and end.
    pub fn whole(&mut self, id: RequestId, used: Used) -> Answer {
        self.greatest = self.greatest.max(used.timestamp);
        if let Some(answer) = self.sessions.settled(id, self.decided) {
            return answer;
        }
        let range = self.range(&used);
        let at = range.and_then(|range| self.choose(id, range).ok_or(Conflict::Timestamp));
        self.sessions.certified(id, at.is_ok(), self.decided);
        match at {
            Err(conflict) => Answer::Conflict(conflict),
            Ok(at) => {
                self.note_commit(id, at);
                self.apply(used, at);
                Answer::Committed
            }
        }
    }

    /// Votes, where the `Prepare` stands in the log. A vote is given once.
    pub fn vote(&mut self, prepare: Prepare, is_home: bool) -> Vote {
        let id = prepare.id;
        self.greatest = self.greatest.max(prepare.used.timestamp);
        if let Some(prepared) = self.prepared.get(&id) {
            return Vote::Yes(prepared.range);
        }
        let horizon = self.sessions.horizon();
        match self.votes.get(id) {
            Some(false) => return Vote::No(Conflict::Superseded),
            Some(true) => return Vote::Unknown,
            None if prepare.behind.0.saturating_add(horizon) <= self.decided.0 => return Vote::Unknown,
            None => {}
        }
        let mut range = self.range(&prepare.used);
        if self.prepared.len() >= PREPARED_MAX {
            range = range.and(Err(Conflict::Snapshot));
        }
        if is_home && self.sessions.settled(id, self.decided).is_some() {
            range = Err(Conflict::Superseded);
        }
        let at = self.decided;
        self.votes.insert(id, range.is_ok(), at);
        match range {
            Err(conflict) => Vote::No(conflict),
            Ok(range) => {
                let range = range.bounded();
                self.enter(&prepare);
                self.prepared.insert(id, Prepared { prepare, at, range });
                Vote::Yes(range)
            }
        }
    }

    /// Makes a transaction the neighbour of others.
    fn enter(&mut self, prepare: &Prepare) {
        if is_active(Mutant::UnlockAtVote) {
            return;
        }
        if prepare.used.writes.clears {
            self.clearing.insert(prepare.id);
        }
        for key in prepare.used.keys() {
            self.users.entry(key.clone()).or_default().insert(prepare.id);
        }
    }

    fn leave(&mut self, prepare: &Prepare) {
        self.clearing.remove(&prepare.id);
        for key in prepare.used.keys() {
            if let Some(users) = self.users.get_mut(key) {
                users.remove(&prepare.id);
                if users.is_empty() {
                    self.users.remove(key);
                }
            }
        }
    }

    /// A transaction is committed here.
    fn apply(&mut self, used: Used, at: Timestamp) {
        let position = self.decided;
        for (key, &version) in &used.reads {
            self.records.raise(key, version, at);
        }
        if used.writes.clears {
            self.records.clear(position, at);
        }
        for (key, entry) in used.writes.records {
            self.records.write(key, entry, position, at);
        }
    }

    /// The end of a transaction here: a commit at a timestamp, or an abort.
    pub fn finish(&mut self, id: RequestId, at: Option<Timestamp>) {
        let Some(Prepared { prepare, .. }) = self.prepared.remove(&id) else { return };
        self.leave(&prepare);
        if let Some(at) = at {
            self.greatest = self.greatest.max(at);
            self.apply(prepare.used, at);
        }
    }

    /// The decision on a transaction that is at home here: the first one counts. Gives what the transaction's
    /// client is told.
    pub fn decide(&mut self, id: RequestId, mut decision: Decision) -> Answer {
        if let Some(answer) = self.sessions.settled(id, self.decided) {
            // It may be prepared here, if a later attempt of it has been certified.
            self.finish(id, None);
            return answer;
        }
        let is_commit = !decision.is_abort() && decision.at >= self.first_of(id.session);
        self.sessions.certified(id, is_commit, self.decided);
        self.finish(id, is_commit.then_some(decision.at));
        if !is_commit {
            return Answer::Conflict(Conflict::Superseded);
        }
        self.note_commit(id, decision.at);
        decision.votes.remove(&self.group);
        if !decision.votes.is_empty() && !is_active(Mutant::ForgetDecision) {
            self.unfinished.insert(id, decision);
        }
        Answer::Committed
    }

    /// What has become, at a participant, of a transaction that is at home here.
    pub(super) fn fate(&self, id: RequestId, participant: PartitionId) -> Fate {
        match self.unfinished.get(&id) {
            Some(decision) if decision.votes.contains_key(&participant) => Fate::Committed(decision.at),
            None if self.sessions.settled(id, self.decided).is_none() => Fate::Undecided,
            _ => Fate::Aborted,
        }
    }

    /// Whether a committed transaction, for which this partition has voted at `vote`, is finished here.
    pub(super) fn has_finished(&self, id: RequestId, vote: Position) -> bool {
        self.decided >= vote && !self.prepared.contains_key(&id)
    }

    /// All participants have finished a transaction that is at home here and has committed.
    pub fn forget(&mut self, id: RequestId) {
        self.unfinished.remove(&id);
    }

    /// All keys that were written, with their versions.
    #[cfg(test)]
    pub(super) fn versions(&self) -> Vec<(Key, Position)> {
        let version = |key: &Key| (key.clone(), self.newest(key).version);
        self.records.keys().map(version).filter(|(_, version)| *version != Position::NONE).collect()
    }

    /// What contradicts the invariants of what is prepared, in the head of [`super`].
    fn flaw(&self) -> Option<String> {
        let absent = |id: &&RequestId| !self.prepared.contains_key(id);
        if let Some(id) = self.users.values().flatten().chain(&self.clearing).find(absent) {
            return Some(format!("{id:?} has locks, and is not prepared"));
        }
        let views = self.users.keys().map(|key| self.view(key)).chain([self.view_of_others()]);
        for KeyView { neighbours, .. } in views {
            for (place, one) in neighbours.iter().enumerate() {
                let meets =
                    |other: &&Neighbour| (one.writes || other.writes) && one.range.overlaps(other.range);
                if let Some(other) = neighbours[place + 1..].iter().find(meets) {
                    return Some(format!("{one:?} and {other:?} use a key"));
                }
            }
        }
        None
    }

    /// The invariants of the records are checked with each snapshot: they are many.
    ///
    /// # Panics
    /// An invariant of what is prepared does not hold.
    pub fn check_invariants(&self) {
        if let Some(flaw) = self.flaw() {
            panic!("{}: {flaw}", self.group);
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.decided.0);
        self.greatest.put(&mut out);
        self.records.put(&mut out);
        let prepared = match is_active(Mutant::ForgetPrepared) {
            true => &BTreeMap::new(),
            false => &self.prepared,
        };
        put_varint(&mut out, prepared.len() as u64);
        for Prepared { prepare, at, range } in prepared.values() {
            prepare.put(&mut out);
            put_varint(&mut out, at.0);
            range.put(&mut out);
        }
        self.votes.put(&mut out, |out, id, &is_yes| {
            put_id(out, id);
            put_bool(out, is_yes);
        });
        self.commits.put(&mut out, |out, session, at| {
            put_varint(out, session.0);
            at.put(out);
        });
        self.forgotten_commit.put(&mut out);
        put_varint(&mut out, self.unfinished.len() as u64);
        for (&id, decision) in &self.unfinished {
            put_id(&mut out, id);
            decision.put(&mut out);
        }
        self.sessions.put(&mut out);
        out
    }

    /// A state of the same partition as this one. `in_group` says which keys it may have.
    pub(super) fn decode(&self, bytes: &[u8], in_group: impl Fn(&Key) -> bool) -> Option<Partition> {
        let reader = &mut Reader::new(bytes);
        let horizon = self.sessions.horizon();
        let mut state = Partition::new(self.group, self.rule, horizon);
        state.decided = take_last(reader)?;
        let last = state.decided;
        state.greatest = Timestamp::take(reader)?;
        state.records = Records::take(reader, self.rule, last, &in_group)?;
        for _ in 0..reader.varint()? {
            let prepare = Prepare::take(reader)?;
            let at = Position(reader.varint()?);
            let range = Range::take(reader)?;
            let is_here = prepare.participants.contains(&self.group) && prepare.used.keys().all(&in_group);
            (is_here && at != Position::NONE && at <= last).then_some(())?;
            state.enter(&prepare);
            state.prepared.insert(prepare.id, Prepared { prepare, at, range }).is_none().then_some(())?;
        }
        state.votes =
            Recent::take(reader, horizon, last, |reader| Some((take_id(reader)?, take_bool(reader)?)))?;
        state.commits = Recent::take(reader, horizon, last, |reader| {
            Some((SessionId(reader.varint()?), Timestamp::take(reader)?))
        })?;
        state.forgotten_commit = Timestamp::take(reader)?;
        for _ in 0..reader.varint()? {
            let id = take_id(reader)?;
            state.unfinished.insert(id, Decision::take(reader)?).is_none().then_some(())?;
        }
        state.sessions = Sessions::take(reader, horizon, last)?;
        (reader.is_empty() && state.flaw().is_none()).then_some(state)
    }
}
