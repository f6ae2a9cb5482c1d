//! Split transactions over several partitions.
//!
//! Each partition executes its own fragments, and has ended with that: it tells the first of the
//! transaction's partitions what they came to, and that one makes the outcome when it knows that of all. What
//! is told must be final, so it is told when the position is confirmed. What the fragments read is final
//! then, too: it depends on the order before the position, and on nothing else.
//!
//! If others may want to be told of the transaction ([`txn::told`]), every partition tells all, and each has
//! the outcome: whether somebody wants to know is different from node to node, and may change meanwhile.

use super::Shared;
use super::execution::Work;
use super::split::{AnsweredAt, Split};
use crate::conservative::Awaited;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::sync::Mutex;
use txn::mutant::{Mutant, is_active};
use txn::{Position, Weight};

/// What waits for others.
#[derive(Default)]
pub(super) struct Across {
    /// Executed here, and to be told when they are confirmed.
    untold: Mutex<BTreeMap<Position, Arc<Split>>>,
    /// Executed here, and without an outcome until all siblings have told what they have.
    unanswered: Mutex<BTreeMap<Position, Arc<Split>>>,
}

impl Across {
    /// How many wait for their siblings.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.lock().len()
    }

    /// Everything from a position on is void.
    pub(super) fn retract(&self, from: Position) {
        for waiting in [&self.untold, &self.unanswered] {
            waiting.lock().split_off(&from);
        }
    }
}

impl Shared {
    /// Whether a transaction's outcome is made here, of what its siblings tell.
    pub(super) fn answers(&self, split: &Split) -> bool {
        match split.answered_at() {
            AnsweredAt::Alone => false,
            AnsweredAt::Everywhere => true,
            AnsweredAt::One(partition) => partition == self.options.partition,
        }
    }

    /// Tells what was executed here, now or when it is confirmed. To be called before the position counts as
    /// executed, so that nothing else can have taken it.
    pub(super) fn tell_or_keep(&self, split: &Arc<Split>) {
        let position = split.position();
        let is_final = || self.order.is_confirmed(position) || is_active(Mutant::RunUnconfirmed);
        if split.member().is_none() {
            return;
        }
        if is_final() {
            return self.tell(split);
        }
        // Whoever confirms or retracts it waits for this latch.
        let mut untold = self.across.untold.lock();
        if is_final() {
            drop(untold);
            self.tell(split);
        } else if !self.order.is_void(position) {
            untold.insert(position, split.clone());
        }
    }

    fn tell(&self, split: &Split) {
        let to = match split.answered_at() {
            AnsweredAt::Alone => return,
            AnsweredAt::Everywhere => None,
            AnsweredAt::One(partition) if partition == self.options.partition => return,
            AnsweredAt::One(partition) => Some(partition),
        };
        if let Some(member) = split.member() {
            self.finals.tell_fragments(member, to, split.results());
        }
    }

    /// All positions up to this one are final.
    pub(super) fn tell_confirmed(&self, upto: Position) {
        let confirmed = {
            let mut untold = self.across.untold.lock();
            let later = untold.split_off(&upto.next());
            std::mem::replace(&mut *untold, later)
        };
        confirmed.values().for_each(|split| self.tell(split));
    }

    /// Makes the outcome of a transaction that was executed here, or has it wait for its siblings.
    pub(super) fn answer(&self, split: &Arc<Split>) {
        let Some(member) = split.member() else { return };
        let must_wait = || {
            // Whoever wakes it waits for this latch.
            let mut unanswered = self.across.unanswered.lock();
            let waits = self.finals.wait(member, Awaited::Fragments);
            // In this order: what is void may be undone between the questions, and then has an answer.
            if waits && !self.order.is_void(split.position()) && self.slots.is_unanswered(split) {
                unanswered.insert(split.position(), split.clone());
            }
            waits
        };
        if is_active(Mutant::AnswerWithoutSiblings) || !must_wait() {
            let told = self.finals.take_fragments(member);
            let outcome = split.outcome(told);
            self.slots.answer(split, outcome);
        }
    }

    /// A transaction that waits for its siblings has what it waited for, if there is one at a position.
    pub(super) fn wake_unanswered(&self, position: Position) {
        let split = self.across.unanswered.lock().remove(&position);
        if let Some(split) = split {
            self.ready.push(Work::Answer(split), Weight::Light);
        }
    }
}
