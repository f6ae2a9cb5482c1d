//! A leaf validator and its data node: what the sites of one partition agree on.

use super::attempts::{Attempts, Note};
use super::keys::Keys;
use super::{Control, PREPARED_MAX};
use crate::codec::take_last;
use crate::prepare::Prepare;
use crate::times::{Range, Timestamp};
use crate::{Answer, Conflict};
use std::collections::BTreeMap;
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{Key, PartitionId, Position, RequestId};

/// With timestamps a vote lets a transaction commit at so many timestamps of each leaf. So another leaf may
/// decide about as many others between this vote and its own, however many leaves there are.
const ROOM_ROUNDS: u64 = 1 << 10;

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

/// What a request finds at a leaf, as far as it depends on the transaction's session and keys alone. The
/// requests of other sessions on other keys change nothing of it, so threads can look at several at a time.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Found {
    /// The leaf has the reply already, or will never have one.
    Known(Reply),
    /// It refuses the transaction.
    Refused(Conflict),
    /// It lets the transaction commit above this timestamp, if there is room.
    Valid(Timestamp),
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
    pub attempts: Attempts,
    /// For how many entries a session is known, and a vote.
    horizon: u64,
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
            attempts: Attempts::known_for(horizon),
            horizon,
        }
    }

    pub fn next_entry(&mut self) {
        self.decided = self.decided.next();
    }

    /// The first timestamp above another one that this leaf may give.
    fn next_timestamp(&self, above: Timestamp) -> Timestamp {
        match self.control {
            _ if is_active(Mutant::ReuseTimestamp) && above == self.clock && above != Timestamp::NONE => {
                above
            }
            Control::Locks => above.next(),
            Control::Timestamps => {
                let (leaves, own) = (u64::from(self.leaves), u64::from(self.group.0) + 1);
                let rounds = (above.next().0.saturating_sub(own)).div_ceil(leaves);
                Timestamp(own + rounds * leaves).min(Timestamp::MAX)
            }
        }
    }

    /// Validates what a transaction has read and writes: see [`Keys::validate`].
    ///
    /// # Errors
    /// The transaction would be refused.
    pub fn validate(&self, prepare: &Prepare) -> Result<Timestamp, Conflict> {
        let above = self.keys.validate(&prepare.used, self.control)?;
        Ok(above.max(prepare.used.timestamp))
    }

    /// The timestamps at which the leaf lets a transaction commit that asks now, and must come behind
    /// `above`.
    fn range_above(&self, above: Timestamp) -> Result<Range, Conflict> {
        let range = self.range_from(self.next_timestamp(above.max(self.clock)));
        if range.is_empty() { Err(Conflict::Timestamp) } else { Ok(range) }
    }

    /// The timestamps of a vote whose first one is `lower`.
    fn range_from(&self, lower: Timestamp) -> Range {
        match self.control {
            Control::Locks => Range::from(lower),
            Control::Timestamps => Range::from(lower).first(ROOM_ROUNDS * u64::from(self.leaves)),
        }
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

    /// What a request finds that stands at a position of the log. `is_home` tells that the session is at home
    /// here.
    pub fn look(&self, prepare: &Prepare, is_home: bool, at: Position) -> Found {
        let id = prepare.id;
        if self.tentative.contains_key(&id) {
            return Found::Known(Reply::Replied);
        }
        if is_home && let Some(answer) = self.settled(id, at) {
            return Found::Known(Reply::Settled(answer));
        }
        let is_old = prepare.behind.0.saturating_add(self.horizon) <= at.0;
        match self.attempts.vote(id, at) {
            Some(false) => return Found::Known(Reply::No(Conflict::Superseded)),
            // At the home a vote for the transaction is tentative or settled.
            None if is_old && is_home => return Found::Refused(Conflict::Superseded),
            None if is_old => return Found::Known(Reply::Replied),
            Some(true) => return Found::Known(Reply::Replied),
            None => {}
        }
        if is_home && self.has_other_attempt(id) && !is_active(Mutant::VoteForTwoAttempts) {
            return Found::Refused(Conflict::Superseded);
        }
        match self.validate(prepare) {
            Ok(above) => Found::Valid(above),
            Err(conflict) => Found::Refused(conflict),
        }
    }

    /// Replies to a request by what it has found. The clock goes on; the change to what is known of attempts,
    /// and the timestamps of a commit, are given back.
    pub fn decide(
        &mut self,
        id: RequestId,
        found: Found,
        is_home: bool,
        is_alone: bool,
        at: Position,
    ) -> (Reply, Option<Note>, Range) {
        let above = match found {
            Found::Known(reply) => return (reply, None, Range::EMPTY),
            Found::Refused(conflict) => return self.refuse(id, conflict, is_home, at),
            Found::Valid(above) => above,
        };
        let range = match self.range_above(above) {
            Ok(range) if self.tentative.len() < PREPARED_MAX => range,
            Ok(_) => return self.refuse(id, Conflict::Snapshot, is_home, at),
            Err(conflict) => return self.refuse(id, conflict, is_home, at),
        };
        self.clock = self.clock.max(range.lower);
        let note = Note { id, at, vote: true, end: is_alone.then_some(true) };
        let reply = if is_alone { Reply::Settled(Answer::Committed) } else { Reply::Yes };
        (reply, Some(note), range)
    }

    fn refuse(
        &self,
        id: RequestId,
        conflict: Conflict,
        is_home: bool,
        at: Position,
    ) -> (Reply, Option<Note>, Range) {
        let ends = is_home && !self.has_other_attempt(id) && self.settled(id, at).is_none();
        (Reply::No(conflict), Some(Note { id, at, vote: false, end: ends.then_some(false) }), Range::EMPTY)
    }

    /// Replies to a request, where it stands in the log.
    pub fn request(&mut self, prepare: Prepare, is_home: bool) -> Reply {
        let (id, at) = (prepare.id, self.decided);
        let is_alone = prepare.participants.len() == 1;
        let found = self.look(&prepare, is_home, at);
        let (reply, note, range) = self.decide(id, found, is_home, is_alone, at);
        note.into_iter().for_each(|note| self.attempts.note(note));
        match reply {
            Reply::Yes => {
                self.keys.enter(&prepare, range);
                self.tentative.insert(id, Tentative { prepare, vote: at, range });
            }
            Reply::Settled(Answer::Committed) if !range.is_empty() => self.apply(prepare, range.lower),
            Reply::Settled(_) | Reply::No(_) | Reply::Replied => {}
        }
        reply
    }

    /// An attempt is aborted, and its session is at home here. While another attempt is tentative, the
    /// session waits for that one: it may be an earlier one, and commit.
    fn note_abort(&mut self, id: RequestId) {
        if !self.has_other_attempt(id) && self.settled(id, self.decided).is_none() {
            self.attempts.end(id, false, self.decided);
        }
    }

    /// What the client of an attempt is told, if this leaf is the home of its session, and knows.
    pub fn end_of(&self, id: RequestId) -> Option<Answer> {
        if self.tentative.contains_key(&id) {
            return None;
        }
        let is_refused = self.attempts.vote(id, self.decided) == Some(false);
        let refused = is_refused.then_some(Answer::Conflict(Conflict::Superseded));
        self.settled(id, self.decided).or(refused)
    }

    /// What an attempt's client is told if its entry, the one at `at`, must have no effect because of what
    /// was certified before it. A session with a tentative attempt is not forgotten.
    fn settled(&self, id: RequestId, at: Position) -> Option<Answer> {
        let settled = self.attempts.settled(id, at);
        settled.filter(|answer| *answer != Answer::Unknown || !self.has_other_attempt(id))
    }

    fn apply(&mut self, prepare: Prepare, at: Timestamp) {
        for (key, entry) in prepare.used.writes.records {
            self.keys.write(key, entry, self.decided, at);
        }
    }

    /// A validator above has decided. An abort counts also for a request that is still on its way.
    pub fn finish(&mut self, id: RequestId, at: Option<Timestamp>, is_home: bool) {
        let tentative = self.tentative.remove(&id);
        let may_ask = tentative.is_none() && at.is_none() && self.attempts.vote(id, self.decided).is_none();
        if may_ask {
            self.attempts.note(Note { id, at: self.decided, vote: false, end: None });
        }
        match at {
            Some(_) if is_home && tentative.is_some() => self.attempts.end(id, true, self.decided),
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
        let has_replied =
            vote.is_some_and(|vote| vote <= self.decided) || self.attempts.vote(id, self.decided).is_some();
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
                !is_home(id) || !self.has_other_attempt(id) || is_active(Mutant::VoteForTwoAttempts),
                "{}: two attempts of a session are tentative at its home: {id:?}",
                self.group
            );
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        debug_assert!(
            self.keys.greatest() <= self.clock || is_active(Mutant::SkipClockPush),
            "{}: the clock is behind a version",
            self.group
        );
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
        self.attempts.put(&mut out);
        out
    }

    /// A state of the same leaf as this one. `in_group` says which keys it may have, and `home_of` gives the
    /// leaf at which a transaction's session is at home.
    pub fn decode(
        &self,
        bytes: &[u8],
        in_group: impl Fn(&Key) -> bool,
        home_of: impl Fn(RequestId) -> PartitionId,
    ) -> Option<Leaf> {
        let reader = &mut Reader::new(bytes);
        let mut leaf = Leaf::new(self.group, self.leaves, self.control, self.horizon);
        leaf.decided = take_last(reader)?;
        let last = leaf.decided;
        leaf.clock = Timestamp::take(reader)?;
        leaf.keys = Keys::take(reader, last, &in_group)?;
        (leaf.keys.greatest() <= leaf.clock || is_active(Mutant::SkipClockPush)).then_some(())?;
        for _ in 0..reader.varint()? {
            let prepare = Prepare::take(reader)?;
            let (vote, range) = (Position(reader.varint()?), Range::take(reader)?);
            let id = prepare.id;
            let participants = &prepare.participants;
            let is_shared = participants.len() > 1 && participants.contains(&home_of(id));
            let is_here = participants.contains(&self.group) && prepare.used.keys().all(&in_group);
            let is_past = vote != Position::NONE && vote <= last && range.lower <= leaf.clock;
            let is_given =
                range == leaf.range_from(leaf.next_timestamp(Timestamp(range.lower.0.checked_sub(1)?)));
            let is_first = home_of(id) != self.group
                || !leaf.has_other_attempt(id)
                || is_active(Mutant::VoteForTwoAttempts);
            let is_beside = leaf.keys.lets_in(&prepare, range, self.control);
            (is_shared && is_here && is_past && is_given && is_first && is_beside).then_some(())?;
            leaf.keys.enter(&prepare, range);
            leaf.tentative.insert(id, Tentative { prepare, vote, range }).is_none().then_some(())?;
        }
        leaf.attempts = Attempts::take(reader, self.horizon, last)?;
        let has_refused = |id: &RequestId| leaf.attempts.vote(*id, last) == Some(false);
        (reader.is_empty() && !leaf.tentative.keys().any(has_refused)).then_some(leaf)
    }
}
