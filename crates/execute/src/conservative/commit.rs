//! Final commit in order.

use super::siblings::{Finals, Member};
use crate::engine::Committed;
use smallvec::SmallVec;
use std::collections::VecDeque;
use store::sync::Mutex;
use store::{Final, Meta, Partition, RecordRef, View};
use txn::Position;

/// What a transaction does to the number of live entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LiveChange {
    /// Adds this many.
    By(i64),
    /// Leaves this many: it cleared the rest.
    To(i64),
}

/// An execution that has ended, over records with an engine's `M` in each.
pub(crate) struct Ended<M = ()> {
    pub(crate) committed: Committed,
    pub(crate) now_ms: u64,
    pub(crate) live: LiveChange,
    /// What it adds to the state digest.
    pub(crate) terms: u64,
    /// Its book, if it has siblings.
    pub(crate) member: Option<Member>,
    /// The records in which it has installed versions, where the engine wants to know.
    pub(crate) installed: Installed<M>,
    /// It has ended before it was confirmed.
    pub(crate) was_early: bool,
}

/// Records in which a transaction has installed versions.
pub(crate) type Installed<M> = SmallVec<[RecordRef<M>; 2]>;

/// Executions that have ended and wait for those before them: from the final position's successor on.
#[derive(Default)]
pub(crate) struct Committer(Mutex<VecDeque<Option<Ended>>>);

impl Committer {
    /// Takes an execution that has ended, and final-commits all that can be.
    pub(crate) fn end(
        &self,
        partition: &Partition<()>,
        finals: &Finals,
        ended: Ended,
        committed: &mut Vec<Committed>,
    ) {
        let mut waiting = self.0.lock();
        let index = (ended.committed.position.0 - partition.final_position().0 - 1) as usize;
        if waiting.len() <= index {
            waiting.resize_with(index + 1, || None);
        }
        waiting[index] = Some(ended);
        final_commit(
            partition,
            finals,
            |_| waiting.pop_front_if(|first| first.is_some()).flatten(),
            |ended| committed.push(ended.committed),
        );
    }
}

/// Final-commits, in order, the executions that `next` gives, which is told the final position; whether there
/// was any. One caller at a time.
pub(crate) fn final_commit<M: Meta>(
    partition: &Partition<M>,
    finals: &Finals,
    mut next: impl FnMut(Position) -> Option<Ended<M>>,
    mut take: impl FnMut(Ended<M>),
) -> bool {
    let mut at = partition.published();
    let before = at.position;
    let mut digest = partition.digests().run();
    while let Some(ended) = next(at.position) {
        let live = match ended.live {
            LiveChange::By(change) => at.live + change,
            LiveChange::To(live) => live,
        };
        digest.add(ended.committed.position, ended.terms);
        partition.note_past(at, ended.now_ms);
        at = Final { position: ended.committed.position, time_ms: ended.now_ms, live };
        if let Some(member) = &ended.member {
            finals.settle(member);
        }
        take(ended);
    }
    drop(digest);
    if at.position != before {
        partition.publish(at);
        partition.snapshots().raise(at.position);
    }
    at.position != before
}
