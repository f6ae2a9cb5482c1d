//! A leaf validator and its data node: what the sites of one partition agree on.

use super::keys::Keys;
use super::{Control, PREPARED_MAX};
use crate::codec::{put_bool, put_id, take_bool, take_id, take_last};
use crate::prepare::Prepare;
use crate::recent::Recent;
use crate::sessions::Sessions;
use crate::times::{Range, Timestamp};
use crate::{Answer, Conflict};
use std::collections::BTreeMap;
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{Key, PartitionId, Position, RequestId};

/// A leaf's reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Reply {
    /// It lets the transaction commit, and keeps its writes as tentative versions.
    Yes,
    /// It lets the transaction never commit.
    No(Conflict),
    /// It knows what became of the transaction, or has decided that itself.
    Settled(Answer),
    /// It has replied before, or may have.
    Replied,
}

/// A transaction that the leaf lets commit, and that is not decided.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tentative {
    pub prepare: Prepare,
    /// Where the leaf's vote stands in its log.
    pub vote: Position,
    /// The timestamps at which the leaf lets it commit.
    pub range: Range,
}

/// The state of a leaf, a function of its entries.
///
/// Invariants, which are checked with each entry and each snapshot:
/// 1. `clock` is at least every timestamp that was committed here, voted for, or read at by a transaction
///    that is not validated. So what is validated from here on commits above all of these.
/// 2. At the home of a session at most one attempt of it is tentative.
#[derive(Debug, PartialEq)]
pub(super) struct Leaf {
    group: PartitionId,
    /// The number of leaves, for the timestamps that this one may give.
    leaves: u16,
    control: Control,
    /// Entries that were decided.
    pub decided: Position,
    pub clock: Timestamp,
    pub keys: Keys,
    pub tentative: BTreeMap<RequestId, Tentative>,
    /// Whether the last replies let the transaction commit.
    votes: Recent<RequestId, bool>,
    /// Of the sessions that are at home here.
    pub sessions: Sessions,
}

impl Leaf {
    pub fn new(group: PartitionId, leaves: u16, control: Control, horizon: u64) -> Leaf {
        Leaf {
            group,
            leaves,
            control,
            decided: Position::NONE,
            clock: Timestamp::NONE,
            keys: Keys::default(),
            tentative: BTreeMap::new(),
            votes: Recent::known_for(horizon),
            sessions: Sessions::known_for(horizon),
        }
    }

    pub fn next_entry(&mut self) {
        self.decided = self.decided.next();
    }

    /// The first timestamp above another one that this leaf may give.
    fn next_timestamp(&self, above: Timestamp) -> Timestamp {
        match self.control {
            Control::Locks => above.next(),
            Control::Timestamps => {
                let (leaves, own) = (u64::from(self.leaves), u64::from(self.group.0) + 1);
                let rounds = (above.next().0.saturating_sub(own)).div_ceil(leaves);
                Timestamp(own + rounds * leaves).min(Timestamp::MAX)
            }
        }
    }

    /// The timestamps at which the leaf lets a transaction commit that asks now.
    pub fn validate(&self, prepare: &Prepare) -> Result<Range, Conflict> {
        let above = self.keys.validate(&prepare.used, self.control)?;
        let lower = self.next_timestamp(above.max(self.clock).max(prepare.used.timestamp));
        let range = Range::from(lower);
        let range = if self.control == Control::Timestamps { range.bounded() } else { range };
        if range.is_empty() { Err(Conflict::Timestamp) } else { Ok(range) }
    }

    /// Whether an attempt of a session before this one is tentative here, at the session's home.
    pub fn is_in_doubt(&self, id: RequestId) -> bool {
        let first = RequestId { session: id.session, sequence: 0, attempt: 0 };
        self.tentative.range(first..id).next().is_some()
    }

    /// Whether another attempt of a session is tentative.
    pub fn has_other_attempt(&self, id: RequestId) -> bool {
        let first = RequestId { session: id.session, sequence: 0, attempt: 0 };
        let last = RequestId { session: id.session, sequence: u64::MAX, attempt: u32::MAX };
        let mut of_session = self.tentative.range(first..=last).filter(|(other, _)| **other != id);
        of_session.next().is_some()
    }

    /// Replies to a request, where it stands in the log. `is_home` tells that the session is at home here.
    pub fn request(&mut self, prepare: Prepare, is_home: bool) -> Reply {
        let id = prepare.id;
        if self.tentative.contains_key(&id) {
            return Reply::Replied;
        }
        if is_home && let Some(answer) = self.sessions.settled(id, self.decided) {
            return Reply::Settled(answer);
        }
        let horizon = self.sessions.horizon();
        let is_old = prepare.behind.0.saturating_add(horizon) <= self.decided.0;
        match self.votes.get(id) {
            Some(false) => return Reply::No(Conflict::Superseded),
            // At the home a vote for the transaction is tentative or settled.
            None if is_old && is_home => return self.refuse(id, Conflict::Superseded, true),
            None if is_old => return Reply::Replied,
            Some(true) => return Reply::Replied,
            None => {}
        }
        let validated = match is_home && self.has_other_attempt(id) && !is_active(Mutant::VoteForTwoAttempts)
        {
            true => Err(Conflict::Superseded),
            false => self.validate(&prepare),
        };
        let range = match validated {
            Ok(range) if self.tentative.len() < PREPARED_MAX => range,
            Ok(_) => return self.refuse(id, Conflict::Snapshot, is_home),
            Err(conflict) => return self.refuse(id, conflict, is_home),
        };
        self.clock = self.clock.max(range.lower);
        self.votes.insert(id, true, self.decided);
        if prepare.participants.len() == 1 {
            self.sessions.certified(id, true, self.decided);
            self.apply(prepare, range.lower);
            return Reply::Settled(Answer::Committed);
        }
        self.keys.enter(&prepare, range);
        self.tentative.insert(id, Tentative { prepare, vote: self.decided, range });
        Reply::Yes
    }

    fn refuse(&mut self, id: RequestId, conflict: Conflict, is_home: bool) -> Reply {
        self.votes.insert(id, false, self.decided);
        if is_home {
            self.note_abort(id);
        }
        Reply::No(conflict)
    }

    /// An attempt is aborted, and its session is at home here. While another attempt is tentative, the
    /// session waits for that one: it may be an earlier one, and commit.
    fn note_abort(&mut self, id: RequestId) {
        if !self.has_other_attempt(id) && self.sessions.settled(id, self.decided).is_none() {
            self.sessions.certified(id, false, self.decided);
        }
    }

    /// What the client of an attempt is told, if this leaf is the home of its session, and knows.
    pub fn end_of(&self, id: RequestId) -> Option<Answer> {
        if self.tentative.contains_key(&id) {
            return None;
        }
        let is_refused = self.votes.get(id) == Some(&false);
        let refused = is_refused.then_some(Answer::Conflict(Conflict::Superseded));
        self.sessions.settled(id, self.decided).or(refused)
    }

    fn apply(&mut self, prepare: Prepare, at: Timestamp) {
        for (key, entry) in prepare.used.writes.records {
            self.keys.write(key, entry, self.decided, at);
        }
    }

    /// A validator above has decided. An abort counts also for a request that is still on its way.
    pub fn finish(&mut self, id: RequestId, at: Option<Timestamp>, is_home: bool) {
        let tentative = self.tentative.remove(&id);
        let may_ask = tentative.is_none() && at.is_none() && self.votes.get(id).is_none();
        if may_ask {
            self.votes.insert(id, false, self.decided);
        }
        match at {
            Some(_) if is_home && tentative.is_some() => self.sessions.certified(id, true, self.decided),
            None if is_home && (tentative.is_some() || may_ask) => self.note_abort(id),
            _ => {}
        }
        let Some(Tentative { prepare, range, .. }) = tentative else { return };
        self.keys.leave(&prepare);
        let Some(at) = at else { return };
        debug_assert!(
            range.overlaps(Range::at(at)) || is_active(Mutant::SkipSecondCheck),
            "{}: {id:?} commits at {at:?}, not in {range:?}",
            self.group
        );
        if !is_active(Mutant::SkipClockPush) {
            self.clock = self.clock.max(at);
        }
        self.apply(prepare, at);
    }

    /// Whether a transaction, for which this leaf has voted at `vote` if it has, can never be tentative here
    /// again.
    pub fn is_over(&self, id: RequestId, vote: Option<Position>) -> bool {
        let has_replied = vote.is_some_and(|vote| vote <= self.decided) || self.votes.get(id).is_some();
        has_replied && !self.tentative.contains_key(&id)
    }

    /// A snapshot is read at this timestamp: whatever is validated from here on commits above it.
    pub fn push(&mut self, to: Timestamp) {
        self.clock = self.clock.max(to);
    }

    /// # Panics
    /// An invariant does not hold.
    pub fn check_invariants(&self, is_home: impl Fn(RequestId) -> bool) {
        for (&id, Tentative { range, .. }) in &self.tentative {
            assert!(range.lower <= self.clock, "{}: {id:?} may commit above the clock", self.group);
            assert!(
                !is_home(id) || !self.has_other_attempt(id),
                "{}: two attempts of a session are tentative at its home: {id:?}",
                self.group
            );
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(self.keys.greatest() <= self.clock, "{}: the clock is behind a version", self.group);
        let mut out = Vec::new();
        put_varint(&mut out, self.decided.0);
        self.clock.put(&mut out);
        self.keys.put(&mut out);
        let tentative = match is_active(Mutant::ForgetPrepared) {
            true => &BTreeMap::new(),
            false => &self.tentative,
        };
        put_varint(&mut out, tentative.len() as u64);
        for Tentative { prepare, vote, range } in tentative.values() {
            prepare.put(&mut out);
            put_varint(&mut out, vote.0);
            range.put(&mut out);
        }
        self.votes.put(&mut out, |out, id, &is_yes| {
            put_id(out, id);
            put_bool(out, is_yes);
        });
        self.sessions.put(&mut out);
        out
    }

    /// A state of the same leaf as this one. `in_group` says which keys it may have.
    pub fn decode(&self, bytes: &[u8], in_group: impl Fn(&Key) -> bool) -> Option<Leaf> {
        let reader = &mut Reader::new(bytes);
        let horizon = self.sessions.horizon();
        let mut leaf = Leaf::new(self.group, self.leaves, self.control, horizon);
        leaf.decided = take_last(reader)?;
        let last = leaf.decided;
        leaf.clock = Timestamp::take(reader)?;
        leaf.keys = Keys::take(reader, last, &in_group)?;
        (leaf.keys.greatest() <= leaf.clock).then_some(())?;
        for _ in 0..reader.varint()? {
            let prepare = Prepare::take(reader)?;
            let (vote, range) = (Position(reader.varint()?), Range::take(reader)?);
            let is_here = prepare.participants.contains(&self.group) && prepare.used.keys().all(&in_group);
            let is_past = vote != Position::NONE && vote <= last && range.lower <= leaf.clock;
            (is_here && is_past).then_some(())?;
            leaf.keys.enter(&prepare, range);
            let id = prepare.id;
            leaf.tentative.insert(id, Tentative { prepare, vote, range }).is_none().then_some(())?;
        }
        leaf.votes =
            Recent::take(reader, horizon, last, |reader| Some((take_id(reader)?, take_bool(reader)?)))?;
        leaf.sessions = Sessions::take(reader, horizon, last)?;
        reader.is_empty().then_some(leaf)
    }
}
