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
//! A session is forgotten when [`SESSION_HORIZON`] entries have been decided since its newest one. A protocol
//! must refuse an entry whose snapshot is as old. A client that has heard nothing for so long must not run
//! its transaction again, because that might take effect twice. Nothing prevents that yet where a site itself
//! runs the transaction again ([`crate::call`]): a site that was cut off for so long does not know whether
//! the earlier attempt committed.

use crate::codec::{put_bool, put_id, take_bool, take_id};
use crate::{Answer, Conflict, WriteSet};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{Position, RequestId, SessionId};

/// For so many decided entries a session is known after its newest one.
pub(crate) const SESSION_HORIZON: u64 = 1 << 20;

/// Whether an attempt may end without an entry.
pub(crate) fn is_unordered(id: RequestId, is_read_only: bool, writes: &WriteSet) -> bool {
    writes.is_empty() && (is_read_only || id.attempt == 0 || is_active(Mutant::EndUnordered))
}

/// The newest certified attempt of each session.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sessions {
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
    /// What a transaction's client is told if the transaction has committed.
    pub(crate) fn committed(&self, id: RequestId) -> Option<Answer> {
        let newest = self.newest.get(&id.session).filter(|newest| newest.id.sequence == id.sequence)?;
        let by_this = newest.id.attempt == id.attempt || is_active(Mutant::MistakeAttempts);
        let answer = if by_this { Answer::Committed } else { Answer::CommittedBefore };
        (newest.has_committed && !is_active(Mutant::CertifyTwice)).then_some(answer)
    }

    /// What an attempt's client is told if its entry must have no effect, because of what was certified
    /// before it.
    pub(crate) fn settled(&self, id: RequestId) -> Option<Answer> {
        let newest = self.newest.get(&id.session)?;
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
            && oldest.0 + SESSION_HORIZON <= at.0
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

    pub(crate) fn take(reader: &mut Reader<'_>) -> Option<Sessions> {
        let mut sessions = Sessions::default();
        for _ in 0..reader.varint()? {
            let (id, has_committed) = (take_id(reader)?, take_bool(reader)?);
            let at = Position(reader.varint()?);
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
            let mut sessions = Sessions::default();
            sessions.certified(newest, has_committed, Position(1));
            assert_eq!(sessions.settled(entry), expected, "{entry:?} behind {newest:?}, {has_committed}");
        }
    }

    #[test]
    fn a_session_is_forgotten_behind_the_horizon_and_not_before() {
        let mut sessions = Sessions::default();
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
    fn sessions_read_back() {
        let mut sessions = Sessions::default();
        sessions.certified(id(1, 2, 3), true, Position(4));
        sessions.certified(id(2, 1, 0), false, Position(5));
        let mut out = Vec::new();
        sessions.put(&mut out);
        assert_eq!(Sessions::take(&mut Reader::new(&out)), Some(sessions));
        for cut in 0..out.len() {
            assert_eq!(Sessions::take(&mut Reader::new(&out[..cut])), None, "{cut}");
        }
    }
}
