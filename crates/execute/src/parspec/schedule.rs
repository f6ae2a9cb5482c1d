//! The workers: what they do next, and when a transaction is parked.

use super::Shared;
use super::execution::{Advanced, Execution, Speculation};
use super::object::{Object, READERS_MAX};
use crate::conservative::Job;
use crate::engine::{Budget, Committed, Effects};
use crate::tentative::SUPERSEDED_MAX;
use crate::window::ROUND;
use std::collections::VecDeque;
use std::sync::Arc;
use store::RecordRef;
use store::sync::atomic::Ordering;
use txn::{Position, Weight};

/// Accesses that a worker keeps for the transactions to come.
const SPARE_MAX: usize = READERS_MAX as usize;

/// What a worker keeps between steps.
#[derive(Default)]
pub(super) struct Worker {
    /// Executing, when the budget was spent.
    current: Option<Execution>,
    taken: VecDeque<Job>,
    #[allow(clippy::vec_box, reason = "accesses move between executions as pointers")]
    pub(super) spare: Vec<Box<Speculation>>,
    committed: Vec<Committed>,
    superseded: Vec<RecordRef<Object>>,
    /// X-commits that the worker has not told the window.
    x_commits: u64,
}

impl Worker {
    /// Works for up to the budget's operations; whether there was anything to do.
    pub(super) fn step(&mut self, shared: &Arc<Shared>, budget: Budget, effects: &mut dyn Effects) -> bool {
        let mut left = budget.operations;
        let mut worked = self.superseded.len() > SUPERSEDED_MAX && self.collect(shared, &mut left);
        worked |= self.commit(shared, &mut left);
        while left > 0 && self.work(shared, budget.heavy, &mut left) {
            worked = true;
        }
        worked |= self.commit(shared, &mut left);
        for committed in self.committed.drain(..) {
            effects.committed(committed);
        }
        worked
    }

    /// Final-commits what can be; whether there was any.
    fn commit(&mut self, shared: &Shared, left: &mut u32) -> bool {
        shared.retirement.commit(&shared.ground(), left, &mut self.committed, &mut self.superseded)
    }

    /// Tells the window how many transactions have x-committed, and how many incarnations were thrown away.
    pub(super) fn count_x_commits(&mut self, shared: &Shared, x_commits: u64) {
        self.x_commits += x_commits;
        if let Some(mut controller) = shared.controller.try_lock() {
            // Read behind the latch, so that it never goes back.
            let restarts = shared.counts.restarts.load(Ordering::Relaxed);
            shared.window.committed(&mut controller, std::mem::take(&mut self.x_commits), restarts);
        }
    }

    /// Does what is most urgent.
    fn work(&mut self, shared: &Arc<Shared>, may_be_heavy: bool, left: &mut u32) -> bool {
        if self.x_commit(shared, left) {
            return true;
        }
        if let Some(execution) = self.current.take() {
            let position = execution.position();
            let may_go_on = may_be_heavy || execution.weight() == Weight::Light;
            if may_go_on && !shared.has_earlier(position, may_be_heavy) {
                self.advance(shared, execution, left);
                return true;
            }
            shared.slots.keep(execution);
            shared.make_ready(position);
        }
        if let Some(position) = shared.waited_for_all()
            && shared.leaves_waiting_for_all(position)
        {
            *left -= 1;
            self.go_on(shared, position, may_be_heavy, left);
            return true;
        }
        if let Some(place) = shared.take_ready(may_be_heavy) {
            *left -= 1;
            self.go_on(shared, Position(place), may_be_heavy, left);
            return true;
        }
        self.begin(shared, may_be_heavy, left) || self.undo(shared, left) || self.collect(shared, left)
    }

    /// Takes the next transaction of the order.
    fn begin(&mut self, shared: &Arc<Shared>, may_be_heavy: bool, left: &mut u32) -> bool {
        let fits = |_: usize, _: &mut Job| true;
        let taken = shared.order.take(&mut self.taken, || shared.active_upto(), |_| 1, fits, |(), _| ());
        if taken.is_none() {
            return false;
        }
        while let Some(job) = self.taken.pop_front() {
            *left -= 1;
            let access = self.spare.pop().unwrap_or_else(|| Box::new(Speculation::new(shared.clone())));
            let execution = Execution::new(job, access);
            shared.slots.begin(execution.position(), execution.weight());
            self.start(shared, execution, may_be_heavy, left);
        }
        true
    }

    /// Goes on with a transaction that was kept.
    fn go_on(&mut self, shared: &Shared, place: Position, may_be_heavy: bool, left: &mut u32) {
        let Some(execution) = shared.slots.take_kept(place) else {
            debug_assert!(false, "what is ready is kept");
            return;
        };
        let position = execution.position();
        if shared.order.is_void(position) {
            self.end_void(shared, execution);
        } else if execution.weight() == Weight::Heavy && !may_be_heavy {
            shared.slots.keep(execution);
            shared.make_ready(position);
        } else if execution.is_under_way() && !shared.is_doomed(position) {
            self.advance(shared, execution, left);
        } else {
            self.start(shared, execution, may_be_heavy, left);
        }
    }

    /// Starts an incarnation, here or where heavy ones run.
    fn start(&mut self, shared: &Shared, mut execution: Execution, may_be_heavy: bool, left: &mut u32) {
        let position = execution.position();
        if shared.order.is_void(position) {
            self.end_void(shared, execution);
            return;
        }
        if execution.weight() == Weight::Heavy && !may_be_heavy {
            execution.stop();
            shared.slots.keep(execution);
            shared.make_ready(position);
            return;
        }
        if execution.was_started {
            let restarts = shared.counts.restarts.fetch_add(1, Ordering::Relaxed) + 1;
            if restarts.is_multiple_of(ROUND) {
                self.count_x_commits(shared, 0);
            }
            // What dooms it from here on concerns what it reads from here on.
            shared.slots.activate(position);
        }
        execution.start();
        self.advance(shared, execution, left);
    }

    /// A retracted transaction takes its turn without its procedure.
    fn end_void(&mut self, shared: &Shared, mut execution: Execution) {
        execution.stop();
        let position = execution.position();
        shared.slots.activate(position);
        if let Some(execution) = shared.slots.finish(execution) {
            // Somebody still dooms it.
            shared.slots.keep(execution);
            shared.make_ready(position);
        }
    }

    /// Goes on until the procedure has returned, the transaction must wait, or the budget is spent.
    fn advance(&mut self, shared: &Shared, mut execution: Execution, left: &mut u32) {
        loop {
            match execution.advance(left) {
                Advanced::Spent(execution) => {
                    self.current = Some(execution);
                    return;
                }
                Advanced::WaitsFor(waiting, writer) => match self.park(shared, waiting, writer) {
                    Some(back) => execution = back,
                    None => return,
                },
                Advanced::WaitsForTurn(waiting) => {
                    let before = waiting.position().prev();
                    match self.park(shared, waiting, before) {
                        Some(back) => execution = back,
                        None => return,
                    }
                }
                Advanced::WaitsForAll(waiting) => {
                    let position = waiting.position();
                    if shared.x_committed().next() != position {
                        match self.park(shared, waiting, position.prev()) {
                            Some(back) => execution = back,
                            None => return,
                        }
                        continue;
                    }
                    shared.counts.suspensions.fetch_add(1, Ordering::Relaxed);
                    shared.slots.keep(waiting);
                    shared.waits_for_all.store(position.0, Ordering::SeqCst);
                    return;
                }
                Advanced::Returned(mut returned) => {
                    let position = returned.position();
                    if !shared.is_doomed(position) {
                        returned.conclude();
                    }
                    if let Some(doomed) = shared.slots.finish(returned) {
                        shared.slots.keep(doomed);
                        shared.make_ready(position);
                    }
                    return;
                }
            }
            if *left == 0 {
                self.current = Some(execution);
                return;
            }
        }
    }

    /// Has a transaction wait for the x-commit of an earlier one. It comes back if that one has.
    fn park(&mut self, shared: &Shared, execution: Execution, earlier: Position) -> Option<Execution> {
        let position = execution.position();
        shared.slots.keep(execution);
        // First: whoever wakes it takes it back.
        shared.counts.parked.fetch_add(1, Ordering::Relaxed);
        if !shared.slots.wait(earlier, position) {
            shared.counts.parked.fetch_sub(1, Ordering::Relaxed);
            return shared.slots.take_kept(position);
        }
        shared.counts.suspensions.fetch_add(1, Ordering::Relaxed);
        None
    }

    fn undo(&mut self, shared: &Shared, left: &mut u32) -> bool {
        shared.retirement.undo(&shared.ground(), left, |last| shared.forget_x_commits_behind(last))
    }

    /// Drops the versions that nobody needs any more; whether there may have been any.
    fn collect(&mut self, shared: &Shared, left: &mut u32) -> bool {
        shared.ground().collect(&mut self.superseded, left)
    }

    /// Takes back an access.
    pub(super) fn recycle(&mut self, access: Box<Speculation>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(access);
        }
    }

    /// Leaves the transaction at hand to anybody.
    pub(super) fn finish(&mut self, shared: &Shared) {
        // The store's own collection comes there.
        self.superseded.clear();
        if let Some(execution) = self.current.take() {
            let position = execution.position();
            shared.slots.keep(execution);
            shared.make_ready(position);
        }
    }
}

impl Shared {
    /// Whether the next transaction can x-commit.
    pub(super) fn is_x_commit_due(&self) -> bool {
        self.x_committer.is_under_way() || self.slots.is_finished(self.x_committed().next())
    }
}
