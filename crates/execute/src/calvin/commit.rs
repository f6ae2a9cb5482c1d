//! Final commit in order.

use super::Shared;
use crate::engine::Committed;
use std::collections::VecDeque;
use store::Final;

/// What a transaction does to the number of live entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LiveChange {
    /// Adds this many.
    By(i64),
    /// Leaves this many: it cleared the rest.
    To(i64),
}

/// An execution that has ended.
pub(super) struct Ended {
    pub(super) committed: Committed,
    pub(super) now_ms: u64,
    pub(super) live: LiveChange,
}

/// Executions that have ended and wait for those before them.
#[derive(Default)]
pub(super) struct Committer {
    /// From the final position's successor on.
    ended: VecDeque<Option<Ended>>,
}

impl Shared {
    /// Takes an execution that has ended, and final-commits all that can be.
    pub(super) fn end(&self, ended: Ended, committed: &mut Vec<Committed>) {
        let mut committer = self.committer.lock();
        let mut at = self.partition.published();
        let index = (ended.committed.position.0 - at.position.0 - 1) as usize;
        if committer.ended.len() <= index {
            committer.ended.resize_with(index + 1, || None);
        }
        committer.ended[index] = Some(ended);
        let before = at.position;
        while let Some(Some(_)) = committer.ended.front()
            && let Some(Some(ended)) = committer.ended.pop_front()
        {
            let live = match ended.live {
                LiveChange::By(change) => at.live + change,
                LiveChange::To(live) => live,
            };
            at = Final {
                position: ended.committed.position,
                time_ms: ended.now_ms,
                live,
            };
            committed.push(ended.committed);
        }
        if at.position != before {
            self.partition.publish(at);
            self.partition.snapshots().raise(at.position);
        }
    }
}
