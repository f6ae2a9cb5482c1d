//! Calvin: deterministic locking by one scheduler (as sections 2 and 5 of the Sparkle paper describe and
//! measure it).
//!
//! One worker, the *scheduler*, goes through the confirmed order and requests, for each transaction, all of
//! its locks before the next one's: shared for keys that it reads, exclusive for keys that it writes. Every
//! key has a queue of requests, so its locks are granted in the final order. A transaction that has all its
//! locks is *ready*; the other workers, the *executors*, run ready transactions to their end, install what
//! they wrote, and hand them back to the scheduler, which releases their locks. Only the scheduler touches
//! the lock table, so the table has no latches, and the scheduler's speed bounds the engine's. With one
//! worker it does both jobs.
//!
//! Where all workers run at the same time, worker 0 is the scheduler. It executes nothing while there are
//! executors, as in the published code, with one exception: a heavy request that an executor declined because
//! its step may not run such. A server has more threads that may step than run at the same time
//! ([`Assignment::at_once`]), and nobody knows which of them comes next: there the worker that steps is the
//! scheduler first, unless another one is, and then an executor. How a transaction runs that may run is told
//! in `conservative`.
//!
//! # Key sets
//! Locks before execution need the keys before execution. A request names them in its footprint, because its
//! procedure could tell or because its submitter found them by reconnaissance ([`reconnoitre`]: a dry run at
//! final snapshots). They are re-validated: a transaction that touches another key, writes a key that it
//! named as read only, scans, counts or clears, ends with [`txn::Stop::Undeclared`] and leaves nothing
//! behind. Its submitter finds the keys again and submits it again, as another attempt, at a new position.
//! That outcome is a function of the order alone, like every other.
//!
//! Keys that nobody touches without also touching a named one need no locks of their own: a request whose
//! sets say [`txn::KeySets::covers_inserts`] may write them (but not read them) beside its keys. That is how
//! a TPC-C NewOrder, whose order number is known only while it runs, is no dependent transaction here, as it
//! is none in the paper.
//!
//! A request that names no keys gets the lock of the whole partition: it waits until all before it have
//! ended, and all after it wait. In it everything is allowed.
//!
//! # Several partitions
//! A request over several partitions names the keys of all of them. Each locks those that are its own, at the
//! transaction's place in its own order. A sub-transaction that has its locks
//! 1. reads *all* keys that were named of its partition, written ones too, and tells its siblings in one
//!    message (of the system's space, which all have, the first sibling reads all, and each locks what it
//!    writes);
//! 2. runs the procedure, which is parked, without a worker, where it needs what a sibling has not told yet;
//! 3. installs its own partition's part of the writes, and only then gives its locks back.
//!
//! So a transaction whose keys are known costs one exchange of messages, while it keeps its locks, and needs
//! no confirmation: what is told is final. (Calvin's participants that write nothing are done when they have
//! told. Here all run to the end: each owes the transaction's outcome to its own replica's clients. And
//! Calvin reads no key that is only written; key sets here don't tell those from what is read and written.)
//!
//! *Dependent* transactions, whose keys are known only while they run, take what Calvin calls optimistic lock
//! location prediction. Their submitter runs them dry over the snapshots of all partitions; what it finds is
//! the request's key sets *and its partitions*. No two snapshots need to be of one moment: it is a guess, and
//! is treated as one. Whether it was right each participant decides by itself: it runs the whole procedure,
//! on the same values as its siblings, and asks of every key, its own or not, whether the *request* named it,
//! before anybody waits for what it holds. So all end with [`txn::Stop::Undeclared`], or none does, and
//! nobody needs to be told. What follows is not the engine's: the submitter, who gets that outcome like any
//! other, makes a new dry run and submits the request again through the order, perhaps with other partitions.
//! No engine restarts a transaction at its old position, where its new locks would come too late at some
//! partition. A transaction may have to try several times while others move what it depends on: that is
//! Calvin's price.
//!
//! A request over several partitions that names no keys has the whole of each of them. Its reads are then
//! told one by one, as the procedure comes to them. (That is what a cluster gives dependent transactions
//! today: key sets are not in the log, [`txn::Request::footprint`]. Whoever wants reconnaissance there has to
//! log what it found.)
//!
//! # Commit
//! Executions end out of order. A transaction final-commits when all before it have ended too: its outcome
//! waits in the committer until then, so that a reply never leaves before the final position covers it.
//! Versions that were installed beyond the final position are invisible to snapshots.
//!
//! Nothing is speculative. A delivered transaction that is not confirmed has only been queued, so a
//! retraction forgets it.
//!
//! # Invariants
//! - `final <= scheduled <= confirmed <= delivered`.
//! - Requests stand in a key's queue in the order of their positions; the granted ones are a prefix: either
//!   one exclusive request, or shared ones.
//! - A transaction waits only for earlier ones and for its siblings, so there is no deadlock
//!   (`conservative`).
//! - An execution is handed back to the scheduler after the committer has its outcome: whoever gets a lock,
//!   or the whole partition, finds everything before it installed and counted.

mod execution;
mod locks;
mod reconnaissance;
mod schedule;

pub use reconnaissance::reconnoitre;

use crate::conservative::{Committer, Execution, Finals, Order};
use crate::engine::{Assignment, Budget, Effects, Engine, Progress, Siblings, Status, Waiting, WorkerId};
use crate::exclusive::Exclusive;
use crate::kind::EngineKind;
use crate::siblings::Message;
use execution::{Executor, Takes, Work};
use schedule::Scheduler;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Partition, View};
use txn::{Batch, Epoch, PartitionId, Position};

/// What the workers share.
pub(super) struct Shared {
    pub(super) partition: Arc<Partition<()>>,
    /// Delivered and not yet scheduled.
    order: Order,
    finals: Arc<Finals>,
    /// Transactions that have all their locks.
    ready: Mutex<Ready>,
    /// Those that wait for their siblings.
    parked: Mutex<BTreeMap<Position, Execution>>,
    /// Executed, their locks not yet released.
    executed: Mutex<Vec<Position>>,
    committer: Committer,
    /// An executor found only heavy work in a step that may not run such.
    heavy_declined: AtomicBool,
    /// Transactions that wait for locks: the scheduler's own count, made known.
    lockless: AtomicU64,
    suspensions: AtomicU64,
}

#[derive(Default)]
struct Ready {
    light: VecDeque<Work>,
    heavy: VecDeque<Work>,
}

/// The Calvin engine.
pub struct Calvin {
    shared: Arc<Shared>,
    scheduler: Exclusive<Scheduler>,
    /// Whether any worker may be the scheduler, one at a time; or else worker 0 is.
    is_anybody_scheduler: bool,
    executors: Vec<Mutex<Executor>>,
}

impl Calvin {
    /// An engine over an empty store, for `workers` workers, the scheduler included.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn new(workers: usize) -> Calvin {
        Calvin::of(Assignment::alone(workers))
    }

    /// The engine over an empty store that an assignment asks for.
    ///
    /// # Panics
    /// If there is no worker.
    pub fn of(made_for: Assignment) -> Calvin {
        let Assignment { workers, at_once, partition, .. } = made_for;
        assert!(workers > 0, "an engine needs a worker");
        let shared = Arc::new(Shared {
            partition: Arc::new(Partition::new()),
            order: Order::default(),
            finals: Arc::new(Finals::new(partition)),
            ready: Mutex::default(),
            parked: Mutex::default(),
            executed: Mutex::default(),
            committer: Committer::default(),
            heavy_declined: AtomicBool::new(false),
            lockless: AtomicU64::new(0),
            suspensions: AtomicU64::new(0),
        });
        Calvin {
            scheduler: Exclusive::new(Scheduler::default()),
            is_anybody_scheduler: at_once < workers,
            executors: (0..workers).map(|_| Mutex::new(Executor::new(shared.clone()))).collect(),
            shared,
        }
    }
}

impl Calvin {
    /// Whether a worker may be the scheduler, and whether it may be an executor of light work.
    fn roles(&self, worker: WorkerId) -> (bool, bool) {
        let both = self.is_anybody_scheduler || self.executors.len() == 1;
        (both || worker.0 == 0, both || worker.0 > 0)
    }

    /// Whether heavy work waits that an executor may not do.
    fn heavy_declined(&self) -> bool {
        self.shared.heavy_declined.load(Ordering::SeqCst)
    }
}

impl Engine for Calvin {
    fn kind(&self) -> EngineKind {
        EngineKind::Calvin
    }

    fn deliver(&self, batch: Batch) {
        self.shared.order.deliver(batch, &self.shared.finals);
    }
    fn confirm(&self, upto: Position) {
        self.shared.order.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.shared.order.retract(from, &self.shared.finals);
    }

    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        let mut left = budget.operations;
        let mut worked = false;
        let (schedules, executes) = self.roles(worker);
        if schedules {
            worked |= self.scheduler.step(|scheduler| scheduler.step(&self.shared, &mut left));
        }
        if let Some(mut executor) = self.executors[worker.0].try_lock() {
            let takes = Takes { light: executes, heavy: budget.heavy && (executes || self.heavy_declined()) };
            worked |= executor.step(&mut left, takes, effects);
        }
        if worked { Progress::Worked } else { Progress::Idle }
    }

    fn finish(&self, worker: WorkerId, effects: &mut dyn Effects) {
        if let Some(mut executor) = self.executors[worker.0].try_lock() {
            executor.finish(effects);
        }
    }

    fn siblings(&self) -> Option<&dyn Siblings> {
        Some(self)
    }
    fn waiting(&self) -> Waiting {
        let unscheduled = self.shared.order.confirmed();
        let executed = self.shared.executed.lock().len();
        let ready = self.shared.ready.lock();
        Waiting {
            light: unscheduled + (executed + ready.light.len()) as u64,
            heavy: ready.heavy.len() as u64,
        }
    }

    fn status(&self) -> Status {
        let parked = self.shared.parked.lock().len() as u64;
        Status {
            suspensions: self.shared.suspensions.load(Ordering::Relaxed),
            parked: self.shared.lockless.load(Ordering::Relaxed) + parked,
            ..self.shared.order.status(&self.shared.partition)
        }
    }

    fn workers(&self) -> usize {
        self.executors.len()
    }
    fn view(&self) -> &dyn View {
        &*self.shared.partition
    }
}

impl Siblings for Calvin {
    fn receive(&self, from: PartitionId, message: Message) {
        let wake = |position| self.shared.wake(position);
        self.shared.finals.receive(from, message, wake);
    }
    fn tell_again(&self, to: PartitionId, behind: Epoch, _: Epoch) {
        self.shared.finals.tell_again(to, behind);
    }
    fn heard(&self, from: PartitionId) -> Epoch {
        self.shared.finals.heard(from)
    }
    fn forget(&self, upto: Epoch) {
        self.shared.finals.forget(upto);
    }
    fn messages(&self) -> Vec<(PartitionId, Message)> {
        self.shared.finals.messages()
    }
}
