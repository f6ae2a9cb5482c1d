//! A worker: what it does next, one operation at a time.

use super::Mutant;
use super::commit;
use super::execution::{Execution, Pause};
use super::keystate::KeyState;
use super::shared::Shared;
use super::slot::Body;
use super::status::{DOOMED, EMPTY, HEAD, RETRACTED, Ticket, Word};
use crate::conflicts::Cause;
use crate::engine::{Budget, Committed, Effects, Progress};
use crate::running;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use store::sync::atomic::Ordering;
use store::{Final, RecordRef, View, digest};
use txn::{Position, Stop};

/// A worker never gives back the room for this number of records with old versions. Its list is longer while
/// a past is kept.
const GARBAGE_SPARE: usize = 1 << 12;

/// What a worker is in the middle of. The transaction's body is in the worker's [`Execution`] unless this is
/// `Nothing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// Its procedure runs.
    Executing,
    /// Its procedure waits: park it, with these flags. Apart from `Executing` only so that the simulator can
    /// let a wake-up come in between.
    Parking(u64),
    /// Its procedure has returned; writes from this one on are to be installed.
    Installing(usize),
    /// Its incarnation is doomed; writes from this one on are to be undone.
    Undoing {
        next_write: usize,
        next: Option<Ticket>,
    },
}

/// Final-committed transactions that one hold of the committer's latch takes along.
const COMMIT_RUN_MAX: usize = 64;
/// What a worker that leaves does with the transaction at hand before it hands it to others.
const FINISH_OPERATIONS: u32 = 4096;
/// Superseded records that a busy worker lets lie before it collects their old versions: few, so that near
/// caches have them still.
const GARBAGE_MAX: usize = 64;

/// A worker's state between steps.
pub(super) struct Worker {
    shared: Arc<Shared>,
    doing: Doing,
    /// Its thread is about to do something else.
    leaving: bool,
    execution: Option<Box<Execution>>,
    /// A body to put into the execution when its transaction leaves.
    idle_body: Option<Box<Body>>,
    #[allow(clippy::vec_box, reason = "bodies move between slots as pointers")]
    finished: Vec<Box<Body>>,
    /// Bodies on their way back to those who fill slots.
    #[allow(clippy::vec_box, reason = "bodies move between slots as pointers")]
    spare: Vec<Box<Body>>,
    /// Records whose older versions nobody needs once the position is behind the watermark; ascending.
    garbage: VecDeque<(Position, RecordRef<KeyState>)>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Worker {
        Worker {
            execution: Some(Box::new(Execution::new(shared.clone()))),
            shared,
            doing: Doing::Nothing,
            leaving: false,
            idle_body: Some(Box::default()),
            finished: Vec::new(),
            spare: Vec::new(),
            garbage: VecDeque::new(),
        }
    }

    fn execution(&mut self) -> &mut Execution {
        self.execution.as_mut().expect("the execution is lent only during a poll")
    }
    fn body(&mut self) -> &mut Body {
        &mut self.execution().body
    }

    pub(super) fn step(&mut self, budget: Budget, effects: &mut dyn Effects) -> Progress {
        self.execution().budget = budget.operations;
        let mut progress = Progress::Idle;
        if self.doing != Doing::Nothing && self.shared.committable() {
            // What is at hand may wait for just that, as long as it likes.
            self.final_commit(effects);
        }
        loop {
            if self.execution().budget == 0 {
                return Progress::Worked;
            }
            if !self.go_on() && !self.choose(budget.heavy, effects) {
                return progress;
            }
            progress = Progress::Worked;
        }
    }

    /// Goes on with the transaction at hand; whether there was any.
    fn go_on(&mut self) -> bool {
        match self.doing {
            Doing::Executing => self.execute(),
            Doing::Parking(flags) => self.park(flags),
            Doing::Installing(next_write) => self.install(next_write),
            Doing::Undoing { next_write, next } => self.undo(next_write, next),
            Doing::Nothing => return false,
        }
        true
    }

    /// Goes on with the transaction at hand until it is in its slot again: for good, or for others to go on
    /// with it if that takes longer than a usual step, as it may on a state that never was.
    pub(super) fn finish(&mut self) {
        self.leaving = true;
        while self.doing != Doing::Nothing {
            self.execution().budget = FINISH_OPERATIONS;
            self.go_on();
        }
        self.leaving = false;
    }

    /// Finds something to do, the most urgent first; whether it found anything.
    fn choose(&mut self, heavy: bool, effects: &mut dyn Effects) -> bool {
        if self.shared.commit_is_due() && self.final_commit(effects) {
            return true;
        }
        if let Some((body, word)) = self.shared.resume(heavy) {
            self.adopt(body);
            self.count_step();
            if word.has(DOOMED) {
                self.begin_undo()
            } else {
                self.doing = Doing::Executing
            }
            return true;
        }
        if self.garbage.len() > GARBAGE_MAX && self.collect() {
            return true;
        }
        if let Some(body) = self.shared.start(heavy) {
            self.adopt(body);
            self.count_step();
            self.doing = Doing::Executing;
            return true;
        }
        self.shared.committable() && self.final_commit(effects) || self.shared.fill() || self.collect()
    }

    fn adopt(&mut self, body: Box<Body>) {
        let idle = std::mem::replace(&mut self.execution().body, body);
        self.idle_body = Some(idle);
    }
    /// Counts a change of state as an operation, so that the simulator can interleave there too.
    fn count_step(&mut self) {
        let execution = self.execution();
        execution.budget = execution.budget.saturating_sub(1);
    }
    /// Puts the transaction back into its slot; `leave` then changes the slot's status, or says that the
    /// worker must keep it.
    fn put_back(&mut self, leave: impl FnOnce(&Shared, Position) -> bool) -> bool {
        let position = self.body().position();
        let idle = self.idle_body.take().unwrap_or_default();
        let body = std::mem::replace(&mut self.execution().body, idle);
        let slot = self.shared.slot(position);
        *slot.body.lock() = Some(body);
        if leave(&self.shared, position) {
            self.doing = Doing::Nothing;
            return true;
        }
        // The status still says RUNNING, so nobody took it.
        let body = slot.body.lock().take().unwrap_or_default();
        self.adopt(body);
        false
    }

    /// Polls the procedure once: it runs until it returns, parks, or has spent the budget.
    fn execute(&mut self) {
        let body = self.body();
        let future = match body.future.take() {
            Some(future) => Ok(future),
            None => match &body.request {
                Some(request) => running::start(request, body.context),
                None => Err(Stop::abort("ERR the request was lost")),
            },
        };
        let mut future = match future {
            Ok(future) => future,
            Err(stop) => return self.returned(Err(stop)),
        };
        let Some(mut access) = self.execution.take() else {
            return;
        };
        access.head = self.shared.head();
        let (access, polled) = running::poll(access, &mut future);
        self.execution = Some(access);
        match polled {
            Poll::Ready(outcome) => {
                drop(future);
                self.returned(outcome);
            }
            Poll::Pending => {
                self.body().future = Some(future);
                match self.execution().pause.take() {
                    Some(Pause::Budget) => self.make_way(),
                    Some(Pause::Lock | Pause::Sibling) => self.doing = Doing::Parking(0),
                    Some(Pause::Head) => {
                        self.doing = Doing::Parking(HEAD);
                        self.count_step();
                    }
                    None => {
                        self.body().future = None;
                        self.returned(Err(Stop::abort(
                            "ERR the procedure waited for something other than its transaction",
                        )));
                    }
                }
            }
        }
    }

    /// Leaves the worker to an earlier transaction, if one waits for any, or to whatever its thread does
    /// next. A procedure may loop over a state that never was for as long as nobody tells it better, and who
    /// would do that is always before it.
    fn make_way(&mut self) {
        let position = self.body().position();
        if !self.leaving && !self.shared.has_ready_before(position) {
            return;
        }
        if self.put_back(|shared, position| shared.slot(position).status.give_back()) {
            self.shared.make_ready(position);
        } else {
            self.begin_undo();
        }
    }

    /// The procedure has returned. Whatever it returned counts only if the incarnation is not doomed.
    fn returned(&mut self, outcome: txn::Outcome) {
        if self.is_doomed() && !self.shared.has(Mutant::IgnoreDoomAtCommit) {
            return self.begin_undo();
        }
        let Some(execution) = &mut self.execution else {
            return;
        };
        // A procedure may have dropped a read that it did not wait for: nobody will resume it for that.
        execution.pause = None;
        let (shared, body) = (&self.shared, &mut *execution.body);
        body.stop_waiting();
        let outcome = outcome.map_err(|stop| match stop {
            // Not doomed, so not from the engine.
            Stop::Restart => Stop::abort("ERR the procedure asked for a restart that nobody wanted"),
            other => other,
        });
        if outcome.is_err() && !shared.has(Mutant::KeepWritesOfAborted) {
            body.cleared = false;
            for write in &mut body.writes.list {
                write.written = false;
                write.entry = None;
            }
        }
        body.outcome = Some(outcome);
        if body.cleared {
            let position = body.position();
            shared.partition.clears().insert(position);
            if !shared.has(Mutant::SkipDoomOnClear) {
                shared.doom_all_after(position, Cause::Cleared);
            }
        }
        self.doing = Doing::Installing(0);
    }

    fn is_doomed(&mut self) -> bool {
        let position = self.body().position();
        self.shared.slot(position).status.load().has(DOOMED)
    }

    fn park(&mut self, flags: u64) {
        self.shared.counters.parked.fetch_add(1, Ordering::Relaxed);
        let parked = self.put_back(|shared, position| shared.slot(position).status.park(flags));
        if parked {
            self.shared.counters.suspensions.fetch_add(1, Ordering::Relaxed);
            if flags == HEAD && !self.shared.has(Mutant::LoseHeadWakeUp) {
                // The head may have come before the transaction was parked, and then found nobody to wake.
                self.shared.wake_head(self.shared.head());
            }
            return;
        }
        self.shared.counters.parked.fetch_sub(1, Ordering::Relaxed);
        if self.is_doomed() {
            self.begin_undo();
        } else {
            self.doing = Doing::Executing;
        }
    }

    fn install(&mut self, next_write: usize) {
        if self.is_doomed() && !self.shared.has(Mutant::IgnoreDoomAtCommit) {
            return self.begin_undo();
        }
        let Some(execution) = &mut self.execution else {
            return;
        };
        let body = &mut *execution.body;
        for place in next_write..body.writes.list.len() {
            if execution.budget == 0 {
                self.doing = Doing::Installing(place);
                return;
            }
            execution.budget -= 1;
            let write = &mut body.writes.list[place];
            let me = (body.context.position, body.request.as_deref());
            match commit::install(&self.shared, me, write, body.cleared) {
                Ok(term) => body.terms = body.terms.wrapping_add(term),
                Err(commit::Preempted) => return self.begin_undo(),
            }
        }
        let ignore_doom = self.shared.has(Mutant::IgnoreDoomAtCommit);
        let member = self.body().member.clone();
        let committed = self.put_back(|shared, position| match &member {
            Some(member) => shared.commit_member(member, position, ignore_doom),
            None => shared.slot(position).status.commit(ignore_doom),
        });
        if !committed {
            self.begin_undo();
        }
    }

    fn begin_undo(&mut self) {
        let position = self.body().position();
        let word = match self.body().member.clone() {
            Some(member) => self.shared.begin_undo_member(&member, position),
            None => self.shared.slot(position).status.begin_undo(false),
        };
        let next = (!word.has(RETRACTED)).then(|| Ticket::new(position, word.incarnation()));
        let Some(execution) = &mut self.execution else {
            return;
        };
        if next.is_some() {
            self.shared.count_restart(&execution.body);
        }
        let (shared, body) = (&self.shared, &mut *execution.body);
        body.future = None;
        body.outcome = None;
        body.terms = 0;
        body.elsewhere.clear();
        if body.cleared {
            body.cleared = false;
            if !shared.has(Mutant::RetractKeepsVersions) {
                shared.partition.clears().remove(position);
            }
            shared.doom_all_after(position, Cause::Withdrawn);
        }
        body.stop_waiting();
        self.doing = Doing::Undoing { next_write: 0, next };
    }

    fn undo(&mut self, next_write: usize, next: Option<Ticket>) {
        let Some(execution) = &mut self.execution else {
            return;
        };
        let position = execution.body.position();
        for place in next_write..execution.body.writes.list.len() {
            if execution.budget == 0 {
                self.doing = Doing::Undoing { next_write: place, next };
                return;
            }
            execution.budget -= 1;
            let Body { writes, request, .. } = &mut *execution.body;
            let write = &mut writes.list[place];
            commit::undo(&self.shared, (position, request.as_deref()), next, write);
        }
        let body = &mut execution.body;
        body.writes.list.retain(|write| write.locked);
        body.writes.reindex();
        // Nothing of the transaction is installed, so nobody changes this any more.
        self.shared.slot(position).live.store(0, Ordering::Relaxed);
        match next {
            Some(next) => {
                body.ticket = next;
                if self.put_back(|shared, position| shared.slot(position).status.give_back()) {
                    self.shared.make_ready(position);
                } else {
                    // Doomed again, or retracted.
                    self.begin_undo();
                }
            }
            None => {
                body.clear();
                self.put_back(|shared, position| {
                    let status = &shared.slot(position).status;
                    let ticket = Ticket::new(position, status.load().incarnation());
                    status.store(Word::new(ticket, EMPTY));
                    true
                });
            }
        }
    }

    /// Final-commits from the head on, unless another worker is at it; whether it did any, or could now.
    fn final_commit(&mut self, effects: &mut dyn Effects) -> bool {
        let shared = &self.shared;
        let Some(mut committer) = shared.committer.try_lock() else {
            return false;
        };
        let before = committer.at.position;
        let mut digest_run = shared.partition.digests().run();
        while self.finished.len() < COMMIT_RUN_MAX && shared.committable() {
            let position = shared.head();
            let slot = shared.slot(position);
            if !slot.status.finalize(position) {
                break;
            }
            let Some(body) = slot.body.lock().take() else {
                break;
            };
            let mut terms = body.terms;
            if body.cleared {
                committer.at.live = 0;
                terms = terms.wrapping_add(digest::of_clear(position));
            }
            if let (Some(request), Some(outcome)) = (&body.request, &body.outcome) {
                terms = terms.wrapping_add(running::outcome_term(request, position, outcome));
            }
            digest_run.add(position, terms);
            let live = slot.live.load(Ordering::Relaxed);
            if live != 0 {
                committer.at.live += live;
                slot.live.store(0, Ordering::Relaxed);
            }
            let (time_ms, live) = (body.context.now_ms, committer.at.live);
            shared.partition.note_past(committer.at, time_ms);
            committer.at = Final { position, time_ms, live };
            if body.member.is_some() {
                shared.settle_member(position);
            }
            self.finished.push(body);
            slot.status.store(Word::new(Ticket::new(position, 0), EMPTY));
            shared.advance_head(position.next());
        }
        drop(digest_run);
        if committer.at.position == before {
            drop(committer);
            // Whoever made the head committable meanwhile may have found the latch taken, and have gone.
            return shared.committable() && !shared.has(Mutant::LeaveCommittable);
        }
        shared.partition.publish(committer.at);
        let restarts = shared.counters.restarts.load(Ordering::Relaxed);
        shared.window.committed(&mut committer.controller, self.finished.len() as u64, restarts);
        drop(committer);

        self.count_step();
        let mut finished = std::mem::take(&mut self.finished);
        for body in &mut finished {
            let position = body.position();
            let mut writes = usize::from(body.cleared);
            for write in body.writes.list.drain(..) {
                writes += usize::from(write.written);
                if write.superseding {
                    self.garbage.push_back((position, write.record));
                }
            }
            if let (Some(request), Some(outcome)) = (body.request.take(), body.outcome.take()) {
                let writes = if outcome.is_ok() { writes } else { 0 };
                effects.committed(Committed { position, request, outcome, writes, is_split: false });
            }
            body.clear();
        }
        self.spare.append(&mut finished);
        self.finished = finished;
        if self.spare.len() >= COMMIT_RUN_MAX {
            self.shared.recycle(&mut self.spare);
        }
        self.shared.fill();
        true
    }

    /// Collects old versions behind the watermark; whether there were any.
    fn collect(&mut self) -> bool {
        if self.garbage.is_empty() {
            return false;
        }
        let watermark = self.shared.partition.snapshots().raise(self.shared.partition.final_position());
        let mut collected = false;
        while self.execution().budget > 0
            && self.garbage.front().is_some_and(|(position, _)| *position <= watermark)
            && let Some((_, record)) = self.garbage.pop_front()
        {
            self.execution().budget -= 1;
            record.latch_held().prune(watermark);
            collected = true;
        }
        if self.garbage.is_empty() && self.garbage.capacity() > GARBAGE_SPARE {
            self.garbage.shrink_to(GARBAGE_SPARE);
        }
        collected
    }
}
