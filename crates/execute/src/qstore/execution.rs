//! The workers: execute what is ready, look at fragments, plan, commit.

use super::Mode;
use super::Shared;
use super::plan::Planner;
use super::queues::Found;
use super::slots::{End, Waiter};
use super::split::{Share, Split};
use crate::conservative::{Advanced, Awaited, Execution, FinalAccess, Known, Member};
use crate::engine::{Budget, Committed, Effects, WorkerId};
use crate::tentative::{Executed, SUPERSEDED_MAX};
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicU64, Ordering};
use store::{RecordRef, View};
use txn::mutant::{Mutant, is_active};
use txn::{Key, Position, Request, Stop, Weight};

/// Accesses that a worker keeps for the transactions to come.
const SPARE_MAX: usize = 8;
/// Ready transactions that a worker keeps for itself.
const OWN_MAX: usize = 32;

/// What a worker can go on with.
pub(super) enum Work {
    /// A transaction whose fragments are resolved.
    Ready(Position),
    /// A fragment of a split transaction, which has waited for the earlier transaction at this position.
    Fragment(Arc<Split>, u16, Position),
    /// A split transaction, whose siblings have told something.
    Answer(Arc<Split>),
    /// One that has what it waited for.
    Resumed(Execution),
}

/// Work for any worker.
#[derive(Default)]
pub(super) struct Ready {
    light: Pool,
    heavy: Pool,
}

#[derive(Default)]
struct Pool {
    work: Mutex<VecDeque<Work>>,
    /// How much there is: spares the latch, since mostly there is none.
    count: AtomicU64,
}

impl Pool {
    fn pop(&self) -> Option<Work> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let work = self.work.lock().pop_front();
        if work.is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
        work
    }
}

impl Ready {
    fn pool(&self, weight: Weight) -> &Pool {
        match weight {
            Weight::Light => &self.light,
            Weight::Heavy => &self.heavy,
        }
    }

    /// Adds some. Transactions that have been parked go first: others wait for them.
    pub(super) fn push(&self, work: Work, weight: Weight) {
        let pool = self.pool(weight);
        let mut queue = pool.work.lock();
        match work {
            Work::Ready(_) => queue.push_back(work),
            Work::Fragment(..) | Work::Answer(_) | Work::Resumed(_) => queue.push_front(work),
        }
        pool.count.fetch_add(1, Ordering::SeqCst);
    }

    /// How much there is, light and heavy.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.light.count.load(Ordering::SeqCst), self.heavy.count.load(Ordering::SeqCst))
    }
}

/// What a worker keeps between steps.
pub(super) struct Worker {
    /// Executing, when the budget was spent.
    current: Option<Execution>,
    /// Light work of its own.
    own: VecDeque<Work>,
    planner: Planner,
    #[allow(clippy::vec_box, reason = "accesses move between executions as pointers")]
    spare: Vec<Box<FinalAccess>>,
    committed: Vec<Committed>,
    superseded: Vec<RecordRef<()>>,
}

impl Worker {
    pub(super) fn new(ranges: usize) -> Worker {
        Worker {
            current: None,
            own: VecDeque::new(),
            planner: Planner::new(ranges),
            spare: Vec::new(),
            committed: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// Works for up to the budget's operations; whether there was anything to do.
    pub(super) fn step(
        &mut self,
        shared: &Shared,
        worker: WorkerId,
        budget: Budget,
        effects: &mut dyn Effects,
    ) -> bool {
        let mut left = budget.operations;
        let mut worked = self.superseded.len() > SUPERSEDED_MAX
            && shared.ground().collect(&mut self.superseded, &mut left);
        worked |= self.commit(shared, &mut left);
        while left > 0 && self.work(shared, worker, budget.heavy, &mut left) {
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

    /// Does what is most urgent.
    fn work(&mut self, shared: &Shared, worker: WorkerId, may_be_heavy: bool, left: &mut u32) -> bool {
        if let Some(execution) = self.current.take() {
            self.advance(shared, execution, left);
            return true;
        }
        // All later slices wait for it.
        if self.planner.publish(shared) {
            *left -= 1;
            return true;
        }
        let own = self.own.pop_front().or_else(|| shared.ready.light.pop());
        match own.or_else(|| if may_be_heavy { shared.ready.heavy.pop() } else { None }) {
            Some(Work::Ready(position)) => {
                self.begin(shared, position, left);
                return true;
            }
            Some(Work::Fragment(split, index, before)) => {
                *left -= 1;
                let mut share = Share::default();
                let gate = shared.enter_gate(worker);
                let behind = shared.unsettled(before);
                shared.execute_fragment(&split, index, behind, &mut share);
                drop(gate);
                shared.repair_if_due(&split, &mut share, left);
                if shared.add_share(&split, share) {
                    self.end_split(shared, &split);
                }
                return true;
            }
            Some(Work::Answer(split)) => {
                *left -= 1;
                shared.answer(&split);
                return true;
            }
            Some(Work::Resumed(execution)) => {
                self.advance(shared, execution, left);
                return true;
            }
            None => {}
        }
        let worked = shared.resolve_some(worker, left, |found| match found {
            Found::Ready(position) => self.own.push_back(Work::Ready(position)),
            Found::Ended(split) => self.end_split(shared, &split),
        });
        worked
            || shared.begin_barrier()
            || self.planner.step(shared, left)
            || shared.retirement.undo(&shared.ground(), left, |last| shared.frontier.lower(last))
            || shared.ground().collect(&mut self.superseded, left)
    }

    /// Ends the transaction at hand, or has it wait for its siblings; publishes what is planned; and leaves
    /// the rest to anybody.
    pub(super) fn finish(&mut self, shared: &Shared) {
        // The store's own collection comes there.
        self.superseded.clear();
        while let Some(execution) = self.current.take() {
            let mut left = u32::MAX;
            self.advance(shared, execution, &mut left);
        }
        self.planner.publish(shared);
        for work in self.own.drain(..) {
            shared.ready.push(work, Weight::Light);
        }
    }

    fn begin(&mut self, shared: &Shared, position: Position, left: &mut u32) {
        let is_confirmed = shared.order.is_confirmed(position);
        if shared.order.is_void(position) {
            let known = shared.slots.take(position, |_| true).map(|job| job.known);
            *left = left.saturating_sub(1);
            self.end(shared, position, End::Void, None, known == Some(Known::Nothing));
            return;
        }
        // What a sibling is told must be final.
        let may_tell = is_confirmed || is_active(Mutant::RunUnconfirmed);
        let Some(job) = shared.slots.take(position, |job| job.member.is_none() || may_tell) else {
            shared.await_confirmation(position);
            return;
        };
        let access = self.spare.pop().unwrap_or_else(|| {
            let (partition, finals) = (shared.partition.clone(), shared.finals.clone());
            Box::new(FinalAccess::new(partition, finals))
        });
        let declared = job.declared().cloned();
        let execution = Execution::begin(job, declared, access).noting_installed();
        self.advance(shared, execution, left);
    }

    /// Goes on until the execution has ended, waits, or the budget has ended.
    fn advance(&mut self, shared: &Shared, execution: Execution, left: &mut u32) {
        let is_guess = matches!(execution.known(), Known::Guess(_));
        let is_alone = *execution.known() == Known::Nothing;
        match execution.advance(left) {
            Advanced::Spent(execution) => self.current = Some(execution),
            Advanced::Waits(execution, member, awaited) => shared.park(execution, &member, awaited),
            Advanced::Ended(ended, mut access) => {
                let strayed_to = access.strayed_to();
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(access);
                }
                let Committed { position, request, outcome, .. } = &ended.committed;
                let position = *position;
                if is_guess && matches!(outcome, Err(Stop::Undeclared(_))) {
                    shared.take_back(position, request, strayed_to);
                }
                self.end(shared, position, End::Settled(ended), None, is_alone);
            }
        }
    }

    /// The last fragment of a split transaction was executed.
    fn end_split(&mut self, shared: &Shared, split: &Arc<Split>) {
        // A transaction that is not void by now has executed all of its fragments.
        let is_void = shared.order.is_void(split.position());
        let is_early = !shared.order.is_confirmed(split.position());
        split.was_early.store(is_early, Ordering::Relaxed);
        let is_unsettled = shared.options.mode == Mode::Speculative && !is_void && split.is_unsettled();
        let end = match is_unsettled && !is_active(Mutant::AnswerUnsettled) {
            true => End::Unsettled(split.clone()),
            false => End::Settled(split.end(is_void)),
        };
        let answers = shared.answers(split);
        shared.tell_or_keep(split);
        let unanswered = answers.then(|| split.clone());
        self.end(shared, split.position(), end, unanswered, false);
        if answers {
            shared.answer(split);
        }
    }

    /// A transaction has ended, and so those are resolved that waited for it.
    fn end(
        &mut self,
        shared: &Shared,
        position: Position,
        mut end: End,
        unanswered: Option<Arc<Split>>,
        is_barrier: bool,
    ) {
        if let End::Settled(ended) = &mut end {
            ended.was_early = !shared.order.is_confirmed(position);
        }
        let is_unsettled = matches!(end, End::Unsettled(_));
        for waiter in shared.slots.end(position, end, unanswered) {
            let waiter = match waiter.may_speculate() || !is_unsettled {
                true => waiter,
                false => match shared.frontier.wait(position, waiter) {
                    Some(waiter) => waiter,
                    None => continue,
                },
            };
            self.release(shared, position, waiter);
        }
        if shared.options.mode == Mode::Speculative {
            let last_final = shared.partition.final_position();
            let is_executed = |position| shared.slots.is_executed(position);
            for (before, waiter) in shared.frontier.advance(position, last_final, is_executed) {
                self.release(shared, before, waiter);
            }
        }
        if is_barrier {
            shared.end_barrier();
        }
    }

    /// Lets a waiter of the transaction at a position go on.
    fn release(&mut self, shared: &Shared, position: Position, waiter: Waiter) {
        let (work, weight) = match waiter {
            Waiter::Whole(waiter) => match shared.slots.resolve(waiter) {
                Some(weight) => (Work::Ready(waiter), weight),
                None => return,
            },
            Waiter::Fragment(split, index) => (Work::Fragment(split, index, position), Weight::Light),
        };
        if weight == Weight::Light && self.own.len() < OWN_MAX {
            self.own.push_front(work);
        } else {
            shared.ready.push(work, weight);
        }
    }
}

impl Shared {
    /// A transaction has touched other keys than it was planned with. It, and what was planned behind it, is
    /// undone and planned again.
    fn take_back(&self, position: Position, request: &Request, strayed_to: Option<Key>) {
        if is_active(Mutant::KeepStrayed) {
            return;
        }
        self.strays.note(request, strayed_to);
        self.taken_back.fetch_add(1, Ordering::Relaxed);
        self.order.take_back(position, |planning, range| planning.take_back(range));
        self.end_unconfirmed(position);
    }

    /// Keeps a transaction that is ready until it is confirmed, or void.
    fn await_confirmation(&self, position: Position) {
        // Whoever confirms or retracts it waits for this latch.
        let mut unconfirmed = self.unconfirmed.lock();
        if self.order.is_confirmed(position) || self.order.is_void(position) {
            drop(unconfirmed);
            self.ready.push(Work::Ready(position), self.slots.weight(position));
        } else {
            unconfirmed.insert(position);
        }
    }

    /// Parks a transaction until a sibling has told what it needs.
    fn park(&self, execution: Execution, member: &Member, awaited: Awaited) {
        // Whoever wakes it waits for this latch.
        let mut parked = self.parked.lock();
        if self.finals.wait(member, awaited) {
            parked.insert(execution.position(), execution);
            self.suspensions.fetch_add(1, Ordering::Relaxed);
        } else {
            drop(parked);
            let weight = execution.weight();
            self.ready.push(Work::Resumed(execution), weight);
        }
    }

    /// A parked transaction has what it waited for.
    pub(super) fn wake(&self, position: Position) {
        let execution = self.parked.lock().remove(&position);
        if let Some(execution) = execution {
            let weight = execution.weight();
            self.ready.push(Work::Resumed(execution), weight);
        } else {
            self.wake_unanswered(position);
        }
    }
}
