//! Calvin: deterministic locking by one scheduler (as sections 2 and 5 of the Sparkle paper describe and measure it).
//!
//! One worker, the *scheduler*, goes through the confirmed order and requests, for each transaction, all of its locks before
//! the next one's: shared for keys that it reads, exclusive for keys that it writes. Every key has a queue of requests,
//! so its locks are granted in the final order. A transaction that has all its locks is *ready*; the other workers, the
//! *executors*, run ready transactions to their end, install what they wrote, and hand them back to the scheduler, which releases
//! their locks. Only the scheduler touches the lock table, so the table has no latches, and the scheduler's speed bounds the
//! engine's. With one worker it does both jobs.
//!
//! Worker 0 is the scheduler. It executes nothing while there are executors, as in the published code, with one
//! exception: a heavy request that an executor declined because its step may not run such.
//!
//! # Key sets
//! Locks before execution need the keys before execution. A request names them in its footprint, because its procedure
//! could tell or because its submitter found them by reconnaissance ([`reconnoitre`]: a dry run at a final snapshot). They
//! are re-validated: a transaction that touches another key, writes a key that it named as read only, scans, counts or
//! clears, ends with [`txn::Stop::Undeclared`] and leaves nothing behind. Its submitter finds the keys again and submits it
//! again, at a new position. That outcome is a function of the order alone, like every other.
//!
//! Keys that nobody touches without also touching a named one need no locks of their own: a request whose sets say
//! [`txn::KeySets::covers_inserts`] may write them (but not read them) beside its keys. That is how a TPC-C NewOrder, whose order
//! number is known only while it runs, is no dependent transaction here, as it is none in the paper.
//!
//! A request that names no keys gets the lock of the whole partition: it waits until all before it have ended, and all
//! after it wait. In it everything is allowed.
//!
//! # Commit
//! Executions end out of order. A transaction final-commits when all before it have ended too: its outcome waits in the
//! committer until then, so that a reply never leaves before the final position covers it. Versions that were
//! installed beyond the final position are invisible to snapshots.
//!
//! Nothing is speculative. A delivered transaction that is not confirmed has only been queued, so a retraction forgets it.
//!
//! # Invariants
//! - `final <= scheduled <= confirmed <= delivered`.
//! - Requests stand in a key's queue in the order of their positions; the granted ones are a prefix: either one exclusive
//!   request, or shared ones.
//! - A transaction waits only for earlier ones, so there is no deadlock.
//! - An execution is handed back to the scheduler after the committer has its outcome: whoever gets a lock, or the whole
//!   partition, finds everything before it installed and counted.

mod commit;
mod execution;
mod locks;
mod reconnaissance;
mod schedule;

pub use reconnaissance::reconnoitre;

use crate::engine::{Batch, Budget, Effects, Engine, Progress, Status, Waiting, WorkerId};
use commit::Committer;
use execution::{Executor, Takes};
use schedule::Scheduler;
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Partition, View};
use txn::mutant::{Mutant, is_active};
use txn::{Position, Request, TxContext};

/// A transaction with its place in the order.
pub(super) struct Job {
    pub(super) context: TxContext,
    pub(super) request: Arc<Request>,
}

/// What the workers share.
pub(super) struct Shared {
    pub(super) partition: Arc<Partition<()>>,
    /// Delivered and not yet scheduled.
    incoming: Mutex<Incoming>,
    /// Transactions that have all their locks.
    ready: Mutex<Ready>,
    /// Executed, their locks not yet released.
    executed: Mutex<Vec<Position>>,
    committer: Mutex<Committer>,
    /// An executor found only heavy work in a step that may not run such.
    heavy_declined: AtomicBool,
    /// Transactions that wait for locks: the scheduler's own count, made known.
    parked: AtomicU64,
    suspensions: AtomicU64,
}

#[derive(Default)]
struct Incoming {
    queue: VecDeque<Job>,
    delivered: Position,
    confirmed: Position,
}

#[derive(Default)]
pub(super) struct Ready {
    light: VecDeque<Job>,
    heavy: VecDeque<Job>,
}

/// The Calvin engine.
pub struct Calvin {
    shared: Arc<Shared>,
    scheduler: Mutex<Scheduler>,
    executors: Vec<Mutex<Executor>>,
}

impl Calvin {
    /// An engine over an empty store, for `workers` workers, the scheduler included.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn new(workers: usize) -> Calvin {
        assert!(workers > 0, "an engine needs a worker");
        let shared = Arc::new(Shared {
            partition: Arc::new(Partition::new()),
            incoming: Mutex::default(),
            ready: Mutex::default(),
            executed: Mutex::default(),
            committer: Mutex::default(),
            heavy_declined: AtomicBool::new(false),
            parked: AtomicU64::new(0),
            suspensions: AtomicU64::new(0),
        });
        Calvin {
            scheduler: Mutex::new(Scheduler::default()),
            executors: (0..workers)
                .map(|_| Mutex::new(Executor::new(shared.clone())))
                .collect(),
            shared,
        }
    }
}

impl Calvin {
    /// Whether heavy work waits that an executor may not do.
    fn heavy_declined(&self) -> bool {
        self.shared.heavy_declined.load(Ordering::SeqCst)
    }
}

impl Engine for Calvin {
    fn name(&self) -> &'static str {
        "calvin"
    }

    fn deliver(&self, batch: Batch) {
        let mut incoming = self.shared.incoming.lock();
        incoming.delivered = batch.end().prev();
        for (offset, request) in batch.requests.into_iter().enumerate() {
            let context =
                TxContext::of(&request, batch.first.advanced(offset as u64), batch.time_ms);
            incoming.queue.push_back(Job { context, request });
        }
    }

    fn confirm(&self, upto: Position) {
        let mut incoming = self.shared.incoming.lock();
        incoming.confirmed = incoming.confirmed.max(upto);
    }

    fn retract(&self, from: Position) {
        let mut incoming = self.shared.incoming.lock();
        incoming.queue.retain(|job| job.context.position < from);
        incoming.delivered = incoming.delivered.min(from.prev());
    }

    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        let mut left = budget.operations;
        let mut worked = false;
        if worker.0 == 0
            && let Some(mut scheduler) = self.scheduler.try_lock()
        {
            worked |= scheduler.step(&self.shared, &mut left);
        }
        if let Some(mut executor) = self.executors[worker.0].try_lock() {
            let takes = Takes {
                light: worker.0 > 0 || self.executors.len() == 1,
                heavy: budget.heavy
                    && (worker.0 > 0 || self.executors.len() == 1 || self.heavy_declined()),
            };
            worked |= executor.step(&mut left, takes, effects);
        }
        if worked {
            Progress::Worked
        } else {
            Progress::Idle
        }
    }

    fn finish(&self, worker: WorkerId, effects: &mut dyn Effects) {
        if let Some(mut executor) = self.executors[worker.0].try_lock() {
            executor.finish(effects);
        }
    }

    fn waiting(&self) -> Waiting {
        let unscheduled = {
            let incoming = self.shared.incoming.lock();
            let confirmed = incoming.confirmed.next().0;
            let front = incoming.queue.front();
            let confirmed = front.map_or(0, |job| confirmed.saturating_sub(job.context.position.0));
            confirmed.min(incoming.queue.len() as u64)
        };
        let executed = self.shared.executed.lock().len();
        let ready = self.shared.ready.lock();
        Waiting {
            light: unscheduled + (executed + ready.light.len()) as u64,
            heavy: ready.heavy.len() as u64,
        }
    }

    fn status(&self) -> Status {
        let incoming = self.shared.incoming.lock();
        let final_committed = self.shared.partition.final_position();
        // A loaded store starts with everything delivered, confirmed and committed.
        let delivered = incoming.delivered.max(final_committed);
        Status {
            delivered,
            confirmed: incoming.confirmed.min(delivered).max(final_committed),
            final_committed,
            suspensions: self.shared.suspensions.load(Ordering::Relaxed),
            parked: self.shared.parked.load(Ordering::Relaxed),
            ..Status::default()
        }
    }

    fn workers(&self) -> usize {
        self.executors.len()
    }
    fn view(&self) -> &dyn View {
        &*self.shared.partition
    }
}

impl Shared {
    /// Moves confirmed transactions, in order, at most `count` of them.
    pub(super) fn take_confirmed(&self, count: usize, taken: &mut VecDeque<Job>) {
        let mut incoming = self.incoming.lock();
        let confirmed = if is_active(Mutant::RunUnconfirmed) {
            incoming.delivered
        } else {
            incoming.confirmed
        };
        while taken.len() < count
            && incoming
                .queue
                .front()
                .is_some_and(|job| job.context.position <= confirmed)
            && let Some(job) = incoming.queue.pop_front()
        {
            taken.push_back(job);
        }
    }
}
