//! The executors: run transactions that have all their locks.

use super::Shared;
use crate::conservative::{Advanced, Awaited, Execution, FinalAccess, Job, Member};
use crate::engine::{Committed, Effects};
use crate::siblings::{Asked, Told};
use std::sync::Arc;
use store::sync::atomic::Ordering;
use txn::mutant::{Mutant, is_active};
use txn::{KeySets, Position, Weight};

/// Accesses that an executor keeps for the transactions to come.
const SPARE_MAX: usize = 8;

/// A worker's execution.
pub(super) struct Executor {
    shared: Arc<Shared>,
    current: Option<Execution>,
    #[allow(clippy::vec_box, reason = "accesses move between executions as pointers")]
    spare: Vec<Box<FinalAccess>>,
    committed: Vec<Committed>,
}

/// What an executor can go on with.
pub(super) enum Work {
    /// A transaction that has all its locks.
    Locked(Job),
    /// One that has what it waited for.
    Resumed(Execution),
}

impl Work {
    fn weight(&self) -> Weight {
        match self {
            Work::Locked(job) => job.request.footprint.weight,
            Work::Resumed(execution) => execution.weight(),
        }
    }
}

/// What an executor may begin in a step.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    pub(super) light: bool,
    pub(super) heavy: bool,
}

enum Taken {
    Work(Work),
    /// There is only heavy work, which this step may not do: made known to those who may.
    Declined,
    Nothing,
}

impl Executor {
    pub(super) fn new(shared: Arc<Shared>) -> Executor {
        Executor { shared, current: None, spare: Vec::new(), committed: Vec::new() }
    }

    /// Executes for up to `left` operations; whether it did anything.
    pub(super) fn step(&mut self, left: &mut u32, takes: Takes, effects: &mut dyn Effects) -> bool {
        let mut worked = false;
        while *left > 0 {
            let execution = match self.current.take() {
                Some(execution) => execution,
                None => match self.take(takes) {
                    Taken::Work(Work::Locked(job)) => self.begin(job),
                    Taken::Work(Work::Resumed(execution)) => execution,
                    Taken::Declined => {
                        // Somebody else has something to do now.
                        worked = true;
                        break;
                    }
                    Taken::Nothing => break,
                },
            };
            worked = true;
            self.advance(execution, left);
        }
        for committed in self.committed.drain(..) {
            effects.committed(committed);
        }
        worked
    }

    /// Goes on with the transaction at hand until it has ended, or waits for its siblings.
    pub(super) fn finish(&mut self, effects: &mut dyn Effects) {
        while let Some(execution) = self.current.take() {
            let mut left = u32::MAX;
            self.advance(execution, &mut left);
        }
        for committed in self.committed.drain(..) {
            effects.committed(committed);
        }
    }

    fn take(&self, takes: Takes) -> Taken {
        if !takes.light && !takes.heavy {
            return Taken::Nothing;
        }
        let mut ready = self.shared.ready.lock();
        if takes.light
            && let Some(work) = ready.light.pop_front()
        {
            return Taken::Work(work);
        }
        if !takes.heavy {
            let declined =
                !ready.heavy.is_empty() && !self.shared.heavy_declined.swap(true, Ordering::SeqCst);
            return if declined { Taken::Declined } else { Taken::Nothing };
        }
        let work = ready.heavy.pop_front();
        if ready.heavy.is_empty() {
            self.shared.heavy_declined.store(false, Ordering::SeqCst);
        }
        work.map_or(Taken::Nothing, Taken::Work)
    }

    fn begin(&mut self, job: Job) -> Execution {
        if is_active(Mutant::ReleaseLocksEarly) {
            self.shared.executed.lock().push(job.context.position);
        }
        let access = self.spare.pop().unwrap_or_else(|| {
            let (partition, finals) = (self.shared.partition.clone(), self.shared.finals.clone());
            Box::new(FinalAccess::new(partition, finals))
        });
        let declared = job.request.footprint.certain_keys().cloned();
        Execution::begin(job, declared, access)
    }

    /// Goes on until the execution has ended, waits, or the budget has ended.
    fn advance(&mut self, execution: Execution, left: &mut u32) {
        match execution.advance(left) {
            Advanced::Spent(execution) => self.current = Some(execution),
            Advanced::Waits(execution, member, awaited) => {
                self.shared.park(execution, &member, awaited);
            }
            Advanced::Ended(ended, access) => {
                if self.spare.len() < SPARE_MAX {
                    self.spare.push(access);
                }
                let position = ended.committed.position;
                let shared = &self.shared;
                shared.committer.end(&shared.partition, &shared.finals, ended, &mut self.committed);
                if !is_active(Mutant::ReleaseLocksEarly) {
                    shared.executed.lock().push(position);
                }
            }
        }
    }
}

impl Shared {
    /// Transactions can go on. Those that have been parked go first: others wait for their locks.
    pub(super) fn make_ready(&self, work: impl ExactSizeIterator<Item = Work>) {
        if work.len() == 0 {
            return;
        }
        let mut ready = self.ready.lock();
        for work in work {
            let queue = match work.weight() {
                Weight::Light => &mut ready.light,
                Weight::Heavy => &mut ready.heavy,
            };
            match work {
                Work::Locked(_) => queue.push_back(work),
                Work::Resumed(_) => queue.push_front(work),
            }
        }
    }

    /// What no Calvin does: tells what the keys of a transaction hold before it has their locks.
    pub(super) fn tell_unlocked(&self, job: &Job, keys: Option<&KeySets>) {
        if let (Some(member), Some(keys)) = (&job.member, keys) {
            let upto = job.context.position.prev();
            let all = keys.reads.iter().chain(&keys.writes);
            let read = all.map(|key| {
                let told = Told::Record(self.partition.read(upto, key));
                (Asked::Key(key.clone()), told)
            });
            self.finals.tell(member, read.collect());
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
            self.make_ready(std::iter::once(Work::Resumed(execution)));
        }
    }

    /// A parked transaction has what it waited for.
    pub(super) fn wake(&self, position: Position) {
        let execution = self.parked.lock().remove(&position);
        if let Some(execution) = execution {
            self.make_ready(std::iter::once(Work::Resumed(execution)));
        }
    }
}
