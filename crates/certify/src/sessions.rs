//! Exactly once: what was decided of each session's newest transaction. A part of the replicated state.
//!
//! A site proposes an entry again until it is decided, and a client runs its transaction again at another
//! site when it hears nothing. So a group's log may have one entry several times, and entries of several
//! attempts of one transaction. Of each session the state knows the newest attempt that was certified, and
//! whether it has committed:
//!
//! * An entry of a transaction that has committed has no further effect, and its client is told that the
//!   transaction has committed, and whether by this attempt.
//! * An entry of an attempt that was refused, or of one before it, has no effect for ever: its client may
//!   have been told so.
//!
//! * An attempt that writes nothing needs no place in the order only if no other attempt can write
//!   ([`is_unordered`]). Otherwise an earlier one, at a site that is slow, could read something else later,
//!   write, and commit, after the client has been told that the transaction wrote nothing. Ordered, the later
//!   attempt voids the earlier one.
//!
//! # How long a session is known
//!
//! A group forgets a session when [`Sessions::horizon`] entries have been decided since the session's newest
//! one. The number of a session says behind which entry its client opened it ([`session_opened`]). So the
//! group can tell a new session from a forgotten one: every entry of a session lies behind the session's
//! opening, and the group still knows a session that has an entry within the horizon.
//!
//! * A session that the group does not know, and that was opened within the horizon, has no certified entry.
//! * A session that the group does not know, and that was opened earlier, may have had one. The group gives
//!   its entries no effect, and answers [`Answer::Unknown`]: an earlier attempt may have committed, and the
//!   transaction never takes effect again. The client opens another session.
//!
//! A client that opens a new session when half the horizon has passed and nothing of its old one is under way
//! never hears `Unknown` while all goes well.

use crate::codec::{put_bool, put_id, take_bool, take_id};
use crate::{Answer, Conflict, WriteSet};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{PartitionId, Position, RequestId, SessionId};

/// A group knows a session for so many decided entries after the session's newest one, unless it is told
/// otherwise.
pub const SESSION_HORIZON: u64 = 1 << 20;
/// The low bits of a session's number tell sessions apart that were opened behind the same entry.
const NUMBER_BITS: u32 = 16;

/// The session that a client opens behind an entry that its site was given: any such entry will do, but the
/// group forgets the session earlier if the entry is old. `number` tells it from others behind that entry.
pub fn session_opened(behind: Position, number: u16) -> SessionId {
    SessionId(behind.0 << NUMBER_BITS | u64::from(number))
}

/// What tells a session from others that were opened behind the same entry.
fn number_of(session: SessionId) -> u16 {
    session.0 as u16
}

/// The partition that knows a session, where a protocol has several. It follows from the number of
/// [`session_opened`] alone, because the client opens the session behind an entry of
/// this very partition.
pub fn home_of(session: SessionId, partitions: u16) -> PartitionId {
    PartitionId(number_of(session) % partitions.max(1))
}

/// Behind which entry a session was opened.
pub(crate) fn opening_of(session: SessionId) -> Position {
    Position(session.0 >> NUMBER_BITS)
}

/// Whether an attempt may end without an entry.
pub(crate) fn is_unordered(id: RequestId, is_read_only: bool, writes: &WriteSet) -> bool {
    writes.is_empty() && (is_read_only || id.attempt == 0 || is_active(Mutant::EndUnordered))
}

/// The newest certified attempt of each session that had one within the horizon.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Sessions {
    /// Not part of the state: an option of the protocol, the same at all sites.
    horizon: u64,
    newest: BTreeMap<SessionId, Certified>,
    /// The same sessions by the position of their newest entry.
    by_age: BTreeSet<(Position, SessionId)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Certified {
    id: RequestId,
    has_committed: bool,
    at: Position,
}

impl Sessions {
    /// Sessions that are known for so many entries.
    pub(crate) fn known_for(horizon: u64) -> Sessions {
        Sessions { horizon, newest: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    /// For how many entries a session is known.
    pub(crate) fn horizon(&self) -> u64 {
        self.horizon
    }

    /// What is known of a session at a position. That does not depend on how long ago others were certified.
    fn known(&self, session: SessionId, at: Position) -> Option<&Certified> {
        self.newest.get(&session).filter(|newest| newest.at.0.saturating_add(self.horizon) > at.0)
    }

    /// The sessions that have a newest attempt.
    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.newest.keys().copied()
    }

    /// Whether entries of this session have no effect from the entry at `at` on, because the group may have
    /// forgotten the session.
    pub(crate) fn is_forgotten(&self, session: SessionId, at: Position) -> bool {
        let is_old = opening_of(session).0.saturating_add(self.horizon) <= at.0;
        is_old && self.known(session, at).is_none() && !is_active(Mutant::TakeForgottenForNew)
    }

    /// What a transaction's client is told if the transaction has committed.
    pub(crate) fn committed(&self, id: RequestId) -> Option<Answer> {
        let newest = self.newest.get(&id.session).filter(|newest| newest.id.sequence == id.sequence)?;
        let by_this = newest.id.attempt == id.attempt || is_active(Mutant::MistakeAttempts);
        let answer = if by_this { Answer::Committed } else { Answer::CommittedBefore };
        (newest.has_committed && !is_active(Mutant::CertifyTwice)).then_some(answer)
    }

    /// What an attempt's client is told if its entry, the one at `at`, must have no effect because of what
    /// was certified before it.
    pub(crate) fn settled(&self, id: RequestId, at: Position) -> Option<Answer> {
        if self.is_forgotten(id.session, at) {
            return Some(Answer::Unknown);
        }
        let newest = self.known(id.session, at)?;
        let is_superseded = (id.sequence, id.attempt) <= (newest.id.sequence, newest.id.attempt);
        let superseded = is_superseded && !is_active(Mutant::CertifyTwice);
        self.committed(id).or(superseded.then_some(Answer::Conflict(Conflict::Superseded)))
    }

    /// An attempt that was not settled has been certified at a position.
    pub(crate) fn certified(&mut self, id: RequestId, has_committed: bool, at: Position) {
        if let Some(before) = self.newest.insert(id.session, Certified { id, has_committed, at }) {
            self.by_age.remove(&(before.at, id.session));
        }
        self.by_age.insert((at, id.session));
        while let Some(&(oldest, session)) = self.by_age.first()
            && oldest.0.saturating_add(self.horizon) <= at.0
        {
            self.by_age.pop_first();
            self.newest.remove(&session);
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let sessions = match is_active(Mutant::ForgetSessions) {
            true => &BTreeMap::new(),
            false => &self.newest,
        };
        put_varint(out, sessions.len() as u64);
        for certified in sessions.values() {
            put_id(out, certified.id);
            put_bool(out, certified.has_committed);
            put_varint(out, certified.at.0);
        }
    }

    /// Sessions that are known for so many entries, none of them newer than `last`.
    pub(crate) fn take(reader: &mut Reader<'_>, horizon: u64, last: Position) -> Option<Sessions> {
        let mut sessions = Sessions::known_for(horizon);
        for _ in 0..reader.varint()? {
            let (id, has_committed) = (take_id(reader)?, take_bool(reader)?);
            let at = Position(reader.varint()?);
            if at == Position::NONE || at > last {
                return None;
            }
            sessions.newest.insert(id.session, Certified { id, has_committed, at });
            sessions.by_age.insert((at, id.session));
        }
        (sessions.newest.len() == sessions.by_age.len()).then_some(sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(session: u64, sequence: u64, attempt: u32) -> RequestId {
        RequestId { session: SessionId(session), sequence, attempt }
    }

    #[test]
    fn an_entry_is_settled_by_what_was_certified_before() {
        let superseded = Some(Answer::Conflict(Conflict::Superseded));
        for (newest, has_committed, entry, expected) in [
            (id(1, 2, 3), true, id(1, 2, 3), Some(Answer::Committed)),
            (id(1, 2, 3), true, id(1, 2, 2), Some(Answer::CommittedBefore)),
            (id(1, 2, 3), true, id(1, 2, 4), Some(Answer::CommittedBefore)),
            (id(1, 2, 3), true, id(1, 1, 9), superseded.clone()),
            (id(1, 2, 3), true, id(1, 3, 0), None),
            (id(1, 2, 3), true, id(2, 2, 3), None),
            (id(1, 2, 3), false, id(1, 2, 3), superseded.clone()),
            (id(1, 2, 3), false, id(1, 2, 2), superseded.clone()),
            (id(1, 2, 3), false, id(1, 2, 4), None),
            (id(1, 2, 3), false, id(1, 1, 9), superseded),
            (id(1, 2, 3), false, id(1, 3, 0), None),
        ] {
            let mut sessions = Sessions::known_for(SESSION_HORIZON);
            sessions.certified(newest, has_committed, Position(1));
            assert_eq!(
                sessions.settled(entry, Position(2)),
                expected,
                "{entry:?} behind {newest:?}, {has_committed}"
            );
        }
    }

    #[test]
    fn a_session_is_forgotten_behind_the_horizon_and_not_before() {
        let mut sessions = Sessions::known_for(SESSION_HORIZON);
        sessions.certified(id(1, 1, 0), true, Position(1));
        sessions.certified(id(2, 1, 0), true, Position(2));
        sessions.certified(id(1, 2, 0), true, Position(3));
        for (at, known) in [
            (SESSION_HORIZON + 1, vec![1, 2, 9]),
            (SESSION_HORIZON + 2, vec![1, 9]),
            (SESSION_HORIZON + 3, vec![9]),
        ] {
            sessions.certified(id(9, at, 0), true, Position(at));
            let sessions: Vec<u64> = sessions.newest.keys().map(|session| session.0).collect();
            assert_eq!(sessions, known, "at {at}");
        }
    }

    #[test]
    fn a_forgotten_session_is_told_from_a_new_one_by_its_opening() {
        let mut sessions = Sessions::known_for(10);
        let opened = |behind, sequence| id(session_opened(Position(behind), 7).0, sequence, 0);
        for at in 21..=24 {
            sessions.certified(id(session_opened(Position(20), 1).0, at, 0), true, Position(at));
        }
        for (entry, at, expected) in [
            (opened(20, 1), 29, None),
            (opened(20, 1), 30, Some(Answer::Unknown)),
            (opened(0, 1), 9, None),
            (opened(0, 1), 10, Some(Answer::Unknown)),
            (opened(u64::MAX, 1), 30, None),
        ] {
            assert_eq!(sessions.settled(entry, Position(at)), expected, "{entry:?} at {at}");
        }
        let known = |sequence| id(session_opened(Position(20), 1).0, sequence, 0);
        assert_eq!(sessions.settled(known(25), Position(33)), None, "it is as old, but known");
        assert_eq!(sessions.settled(known(24), Position(33)), Some(Answer::Committed));
    }

    #[test]
    fn sessions_read_back() {
        let mut sessions = Sessions::known_for(SESSION_HORIZON);
        sessions.certified(id(1, 2, 3), true, Position(4));
        sessions.certified(id(2, 1, 0), false, Position(5));
        let mut out = Vec::new();
        sessions.put(&mut out);
        let take =
            |bytes: &[u8], last| Sessions::take(&mut Reader::new(bytes), SESSION_HORIZON, Position(last));
        assert_eq!(take(&out, 4), None, "a session that is newer than the last entry");
        assert_eq!(take(&out, 5), Some(sessions));
        for cut in 0..out.len() {
            assert_eq!(take(&out[..cut], 5), None, "{cut}");
        }
    }
}
