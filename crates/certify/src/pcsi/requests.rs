//! Exactly once at one site: which transaction of each session has committed last.
//!
//! A client that hears nothing asks to commit again, of the same site, also after a crash of it. The record
//! of a commit has the request, so the site answers as it did the first time. A session's number says behind
//! which commit of the site the session was opened ([`crate::session_opened`]). The site forgets a session
//! when it has committed [`super::SiteOptions::session_horizon`] transactions since the session's last one.
//! An attempt of a session that was opened before that, and that the site does not know, has no effect, and
//! its client hears [`Answer::Unknown`]: an earlier attempt may have committed.
//!
//! A crash can take commits back that are not durable, and then the site's last number may be lower than
//! that of a session's opening. An unknown session whose opening is above the last number commits nothing,
//! and its client hears [`Answer::Unknown`], too. So each session's commit has a higher number than its
//! opening, and the site forgets the session only where it answers [`Answer::Unknown`].

use super::Update;
use super::region::Written;
use crate::Answer;
use crate::sessions::opening_of;
use std::collections::BTreeMap;
use txn::mutant::{Mutant, is_active};
use txn::{PartitionId, Position, RequestId, SessionId};

/// The last commit of a session.
#[derive(Debug)]
struct Newest {
    id: RequestId,
    number: u64,
    partitions: Box<[PartitionId]>,
}

/// Each number of `by_number` has its session's entry in `newest`, and the other way round.
#[derive(Debug, Default)]
pub(super) struct Requests {
    newest: BTreeMap<SessionId, Newest>,
    by_number: BTreeMap<u64, SessionId>,
}

impl Requests {
    /// A request has committed with this update of its site.
    pub fn committed(&mut self, id: RequestId, update: &Update, horizon: u64) {
        let (number, partitions) = (update.number, update.stamps.keys().copied().collect());
        if let Some(earlier) = self.newest.insert(id.session, Newest { id, number, partitions }) {
            self.by_number.remove(&earlier.number);
        }
        self.by_number.insert(number, id.session);
        let horizon = if is_active(Mutant::ForgetRequestsEarly) { 0 } else { horizon };
        while let Some(oldest) = self.by_number.first_entry() {
            if oldest.key() + horizon >= number {
                break;
            }
            self.newest.remove(&oldest.remove());
        }
    }

    /// The answer for a transaction that has committed, or may have.
    pub fn answer(&self, id: RequestId, last_number: u64, horizon: u64) -> Option<Answer> {
        match self.newest.get(&id.session).map(|newest| newest.id) {
            Some(newest) if newest == id => Some(Answer::Committed),
            Some(newest) if newest.sequence == id.sequence => Some(Answer::CommittedBefore),
            Some(newest) => (newest.sequence > id.sequence).then_some(Answer::Unknown),
            None => {
                let opened = opening_of(id.session).0;
                (opened > last_number || opened + horizon < last_number).then_some(Answer::Unknown)
            }
        }
    }

    /// The number of the last commit of a request's session.
    pub fn number_of(&self, id: RequestId) -> Option<u64> {
        self.newest.get(&id.session).map(|newest| newest.number)
    }

    /// The writes of a request, if it is its session's last commit.
    pub fn written(&self, id: RequestId) -> Option<Written> {
        let newest = self.newest.get(&id.session).filter(|newest| newest.id == id)?;
        Some(Written::new(Position(newest.number), newest.partitions.iter().copied().collect()))
    }

    /// The number of sessions.
    pub fn len(&self) -> usize {
        self.newest.len()
    }
}
