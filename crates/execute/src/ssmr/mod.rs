//! S-SMR: scalable state machine replication (Bezerra, Pedone and van Renesse, DSN 2014, as sections 2 and 5
//! of the Sparkle paper describe and measure it).
//!
//! One thread for each partition executes the confirmed order, one transaction after the other. That needs no
//! concurrency control at all; more cores are used by making more partitions. A transaction over several
//! partitions runs whole at each of them: when it reads something of its own partition it tells the others,
//! and when it reads something of another one it *waits*, and the thread waits with it: nothing else is
//! executed at the partition meanwhile. So reads are exchanged one by one, in the order in which the
//! procedure comes to them, and each exchange costs the partition a message's latency.
//!
//! On one partition this is the serial execution, with what [`crate::conservative`] does of its own: it tells
//! how transactions run, and what holds over several partitions.
//!
//! Key sets are not looked at; only the partitions of a request are. (S-SMR has an oracle that says which
//! those are: here it is whoever made the request. One that was wrong ends with [`txn::Stop::Undeclared`]
//! everywhere, and is submitted again.)
//!
//! (S-SMR's partitions also signal each other before they answer, lest a client sees one partition's part of
//! a transaction before another partition has ordered it. Here the order itself sees to that: an epoch is
//! agreed at all partitions before any of them confirms it.)
//!
//! # Invariants
//! - `final <= executing <= confirmed <= delivered`, and `executing` is `final` or the position behind it.
//! - The thread waits only for siblings' reads of the transaction at hand.

use crate::conservative::{Advanced, Committer, Execution, FinalAccess, Finals, Job, Order};
use crate::engine::{Budget, Committed, Effects, Engine, Progress, Siblings, Status, Waiting, WorkerId};
use crate::exclusive::Exclusive;
use crate::kind::EngineKind;
use crate::siblings::Message;
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Partition, View};
use txn::{Batch, Epoch, PartitionId, Position, Weight};

/// Confirmed transactions that are taken from the queue at once.
const TAKEN_MAX: usize = 32;

/// The S-SMR engine.
pub struct Ssmr {
    partition: Arc<Partition<()>>,
    order: Order,
    finals: Arc<Finals>,
    committer: Committer,
    thread: Exclusive<Thread>,
    /// The thread waits for a sibling.
    blocked: Mutex<bool>,
    /// Transactions that the thread has taken and not ended.
    taken: AtomicU64,
    /// The next transaction is heavy, and the step that came to it may not run such.
    declined_heavy: AtomicBool,
    suspensions: AtomicU64,
}

/// What the executing thread has at hand. Any worker may be it, one at a time.
#[derive(Default)]
struct Thread {
    current: Option<Execution>,
    taken: VecDeque<Job>,
    spare: Option<Box<FinalAccess>>,
    committed: Vec<Committed>,
}

impl Default for Ssmr {
    fn default() -> Ssmr {
        Ssmr::new()
    }
}

impl Ssmr {
    /// An engine over an empty store.
    pub fn new() -> Ssmr {
        Ssmr::of(PartitionId(0))
    }

    /// The engine of one of several partitions.
    pub fn of(partition: PartitionId) -> Ssmr {
        Ssmr {
            partition: Arc::new(Partition::new()),
            order: Order::default(),
            finals: Arc::new(Finals::new(partition)),
            committer: Committer::default(),
            thread: Exclusive::default(),
            blocked: Mutex::default(),
            taken: AtomicU64::new(0),
            declined_heavy: AtomicBool::new(false),
            suspensions: AtomicU64::new(0),
        }
    }

    /// Whether a transaction is left to a worker that may run heavy ones.
    fn declines(&self, weight: Weight, may_be_heavy: bool) -> bool {
        let declines = weight == Weight::Heavy && !may_be_heavy;
        self.declined_heavy.store(declines, Ordering::Relaxed);
        declines
    }

    /// The next transaction.
    fn begin(&self, thread: &mut Thread, may_be_heavy: bool) -> Option<Execution> {
        if thread.taken.is_empty() {
            self.order.take_confirmed(TAKEN_MAX, &mut thread.taken);
            let taken = thread.taken.len() as u64;
            self.taken.store(taken, Ordering::Relaxed);
        }
        let next = thread.taken.front()?;
        if self.declines(next.request.footprint.weight, may_be_heavy) {
            return None;
        }
        let job = thread.taken.pop_front()?;
        let access = thread.spare.take().unwrap_or_else(|| {
            let (partition, finals) = (self.partition.clone(), self.finals.clone());
            Box::new(FinalAccess::new(partition, finals))
        });
        Some(Execution::begin(job, None, access))
    }

    /// Executes for up to `left` operations; whether it did anything.
    fn advance(&self, thread: &mut Thread, left: &mut u32, may_be_heavy: bool) -> bool {
        let mut worked = false;
        while *left > 0 && !*self.blocked.lock() {
            if let Some(current) = &thread.current
                && self.declines(current.weight(), may_be_heavy)
            {
                break;
            }
            let current = thread.current.take();
            let Some(execution) = current.or_else(|| self.begin(thread, may_be_heavy)) else {
                break;
            };
            worked = true;
            match execution.advance(left) {
                Advanced::Spent(execution) => thread.current = Some(execution),
                Advanced::Waits(execution, member, awaited) => {
                    thread.current = Some(execution);
                    // Whoever wakes the thread waits for this latch.
                    let mut blocked = self.blocked.lock();
                    *blocked = self.finals.wait(&member, awaited);
                    self.suspensions.fetch_add(u64::from(*blocked), Ordering::Relaxed);
                }
                Advanced::Ended(ended, access) => {
                    thread.spare = Some(access);
                    self.taken.fetch_sub(1, Ordering::Relaxed);
                    self.committer.end(&self.partition, &self.finals, ended, &mut thread.committed);
                }
            }
        }
        worked
    }
}

impl Engine for Ssmr {
    fn kind(&self) -> EngineKind {
        EngineKind::Ssmr
    }

    fn deliver(&self, batch: Batch) {
        self.order.deliver(batch, &self.finals);
    }
    fn confirm(&self, upto: Position) {
        self.order.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.order.retract(from, &self.finals);
    }

    fn step(&self, _worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        // One thread, whichever worker it is.
        let mut left = budget.operations;
        let mut committed = Vec::new();
        let worked = self.thread.step(|thread| {
            let worked = self.advance(thread, &mut left, budget.heavy);
            committed.append(&mut thread.committed);
            worked
        });
        for committed in committed {
            effects.committed(committed);
        }
        match worked {
            true => Progress::Worked,
            false => Progress::Idle,
        }
    }

    fn siblings(&self) -> Option<&dyn Siblings> {
        Some(self)
    }
    fn waiting(&self) -> Waiting {
        if *self.blocked.lock() {
            return Waiting::default();
        }
        if self.declined_heavy.load(Ordering::Relaxed) {
            // Requests behind the heavy one wait for it.
            return Waiting { light: 0, heavy: 1 };
        }
        Waiting { light: self.taken.load(Ordering::Relaxed) + self.order.confirmed(), heavy: 0 }
    }

    fn status(&self) -> Status {
        Status {
            suspensions: self.suspensions.load(Ordering::Relaxed),
            parked: u64::from(*self.blocked.lock()),
            ..self.order.status(&self.partition)
        }
    }

    fn workers(&self) -> usize {
        1
    }
    fn view(&self) -> &dyn View {
        &*self.partition
    }
}

impl Siblings for Ssmr {
    fn receive(&self, from: PartitionId, message: Message) {
        let wake = |_| *self.blocked.lock() = false;
        self.finals.receive(from, message, wake);
    }
    fn tell_again(&self, to: PartitionId, behind: Epoch, _: Epoch) {
        self.finals.tell_again(to, behind);
    }
    fn heard(&self, from: PartitionId) -> Epoch {
        self.finals.heard(from)
    }
    fn forget(&self, upto: Epoch) {
        self.finals.forget(upto);
    }
    fn messages(&self) -> Vec<(PartitionId, Message)> {
        self.finals.messages()
    }
}
