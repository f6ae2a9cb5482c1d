//! What a leaf knows of attempts: its replies, and the sessions that are at home there.

use crate::Answer;
use crate::codec::{put_bool, put_id, take_bool, take_id};
use crate::recent::Recent;
use crate::sessions::Sessions;
use txn::codec::Reader;
use txn::hash::mix;
use txn::{Position, RequestId, SessionId};

/// The parts of this state. What is known of a session is in one of them, so several threads can change it.
pub(super) const PARTS: usize = 16;

/// The part of a session.
pub(super) fn part_of(session: SessionId) -> usize {
    (mix(session.0) % PARTS as u64) as usize
}

/// What a reply changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub id: RequestId,
    /// Where the request stands in the leaf's log.
    pub at: Position,
    /// Whether the leaf lets the transaction commit.
    pub vote: bool,
    /// At the session's home, if the transaction is over: whether it has committed.
    pub end: Option<bool>,
}

/// One part.
#[derive(Debug, PartialEq)]
pub(super) struct Part {
    /// Whether the last replies let the transaction commit.
    votes: Recent<RequestId, bool>,
    sessions: Sessions,
}

impl Part {
    fn known_for(horizon: u64) -> Part {
        Part { votes: Recent::known_for(horizon), sessions: Sessions::known_for(horizon) }
    }

    /// The leaf has replied.
    pub fn note(&mut self, note: Note) {
        self.votes.insert(note.id, note.vote, note.at);
        if let Some(has_committed) = note.end {
            self.sessions.certified(note.id, has_committed, note.at);
        }
    }
}

/// All parts.
#[derive(Debug, PartialEq)]
pub(super) struct Attempts {
    pub parts: Vec<Part>,
}

impl Attempts {
    pub fn known_for(horizon: u64) -> Attempts {
        Attempts { parts: (0..PARTS).map(|_| Part::known_for(horizon)).collect() }
    }

    fn part(&self, id: RequestId) -> &Part {
        &self.parts[part_of(id.session)]
    }

    fn part_mut(&mut self, id: RequestId) -> &mut Part {
        &mut self.parts[part_of(id.session)]
    }

    /// The leaf's vote, as far as it is known at a position.
    pub fn vote(&self, id: RequestId, at: Position) -> Option<bool> {
        self.part(id).votes.known(id, at).copied()
    }

    /// See [`Sessions::settled`].
    pub fn settled(&self, id: RequestId, at: Position) -> Option<Answer> {
        self.part(id).sessions.settled(id, at)
    }

    /// See [`Sessions::committed`].
    pub fn committed(&self, id: RequestId) -> Option<Answer> {
        self.part(id).sessions.committed(id)
    }

    /// See [`Sessions::is_forgotten`].
    pub fn is_forgotten(&self, id: RequestId, at: Position) -> bool {
        self.part(id).sessions.is_forgotten(id.session, at)
    }

    pub fn note(&mut self, note: Note) {
        self.part_mut(note.id).note(note);
    }

    /// The transaction of a session that is at home here is over.
    pub fn end(&mut self, id: RequestId, has_committed: bool, at: Position) {
        self.part_mut(id).sessions.certified(id, has_committed, at);
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        for part in &self.parts {
            part.votes.put(out, |out, id, &is_yes| {
                put_id(out, id);
                put_bool(out, is_yes);
            });
            part.sessions.put(out);
        }
    }

    pub fn take(reader: &mut Reader<'_>, horizon: u64, last: Position) -> Option<Attempts> {
        let take = |reader: &mut Reader<'_>| Some((take_id(reader)?, take_bool(reader)?));
        let mut parts = Vec::new();
        for number in 0..PARTS {
            let votes = Recent::take(reader, horizon, last, take)?;
            let sessions = Sessions::take(reader, horizon, last)?;
            let is_here = |session: SessionId| part_of(session) == number;
            let is_of_part = votes.keys().all(|id| is_here(id.session)) && sessions.ids().all(is_here);
            is_of_part.then_some(())?;
            parts.push(Part { votes, sessions });
        }
        Some(Attempts { parts })
    }
}
