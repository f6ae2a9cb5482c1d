//! Sparkle: speculative deterministic concurrency control (Sparkle, section 4, Algorithms 1 to 3).
//!
//! Transactions run out of order and in parallel; what goes wrong is found at run time and run again, so that
//! the result is that of the order. A transaction's position is its timestamp. Every key has versions tagged
//! with their writers' positions; a transaction at `p` reads the newest version below `p`.
//!
//! # What can go wrong, and what finds it
//!
//! 1. *A reader was too early*: `r` read a version below `w`'s, and `w < r` writes the key afterwards. Every
//!    read leaves the reader's name on the record, which is the paper's *read dependency*; absent keys have
//!    placeholder records for that. When `w` installs its version it dooms each later reader that has read an
//!    earlier one (Algorithm 2, lines 33-34): those up to the writer of the next later version, for the
//!    readers behind that one have read it, or a later one, or are doomed already. So the record need not say
//!    which version a reader has read, as the paper's does.
//! 2. *A version vanished*: `w` is doomed after it installed its versions. Removing a version dooms every
//!    reader that has read it, which are the same, and so on transitively (lines 25-26).
//! 3. *A read-modify-write was overtaken*: reading for update takes the record's *timestamped lock*. An
//!    earlier transaction preempts the lock and dooms its holder (lines 6-8); a later one waits, as do later
//!    readers, because the holder's version is about to come (lines 2-4 and 11-13). The lock is taken at the
//!    read, not at the write as in Algorithm 1: reading first and locking later invites an abort at every hot
//!    key.
//!
//! Blind writes take no lock: versions are ordered by position, so nobody minds in which order they arrive,
//! and their late arrival is case 1. Scans, counts and clears of the whole key space wait until every earlier
//! transaction has final-committed; nothing before them can change any more, so they need no dependencies. (A
//! clear is a range tombstone, and dooms every later transaction that has begun.)
//!
//! # The life of a transaction
//! [`status`] has the state diagram. It is *started* in order, inside the speculation window; it may be
//! *parked* at a lock (its future stays in its slot, no thread is held) and made *ready* when the lock is
//! handed to it; when its procedure has returned, its versions are installed and it is *speculatively
//! committed*; if it is doomed, at any of these points, its versions and places are undone and the next
//! *incarnation* starts. It is *final-committed* when every earlier transaction is (nobody is left who could
//! doom it), its order is confirmed and it is not doomed. Only then are its reply, or its abort by its own
//! logic, or even its panic, anybody's business.
//!
//! # Transactions over several partitions
//! They run whole at each of their partitions, as siblings. A read of the partition's own keys is told to the
//! siblings, a read of another's keys waits (parked) until it was told, and a write of another's keys is that
//! one's work. [`crate::siblings`] has the protocol by which they know that what they were told is final;
//! [`siblings`] keeps its books. To the rest of the engine a sub-transaction differs in three things: whoever
//! dooms it opens its book first; one that starts over because a sibling's value was wrong keeps its
//! incarnation, and so its read dependencies; and at the head it final-commits only when it is settled.
//! Scans, counts and clears of the whole key space are such transactions over all partitions.
//!
//! # Bounding the work that is thrown away
//! - The speculation window adapts ([`crate::window`]): it shrinks when restarts cost more than speculation
//!   gains. What it leaves out then is not resumed, undone (its versions and locks stay) or executed again
//!   until the head has come closer.
//! - An undone transaction keeps the locks of what it had written: it will most likely write that again, so
//!   later readers wait for it instead of reading what is about to change.
//! - A lock is handed on in order, to its earliest waiters, instead of waking everybody. Ready transactions
//!   run before new ones, earliest first (of those that the worker may take).
//!
//! # Invariants
//! - `final_committed <= confirmed`, `final_committed < head <= started <= filled` (positions; the last does
//!   not hold during a retraction: see [`Shared`]).
//! - Waiting goes from later to earlier transactions only, so there is no deadlock; the earliest unfinished
//!   one waits for nobody of its partition.
//! - A doomed transaction never final-commits: only earlier transactions and siblings' values doom; all of
//!   the former have final-committed, and all of the latter are final.
//! - Between partitions, waiting goes from later to earlier transactions too, or to the siblings of the same
//!   one: the earliest unfinished one is at the head of all its partitions.
//! - A lock, a place among the waiters, an installed version above the watermark: each keeps its record in
//!   the index.
//!
//! The latch of one record is the largest critical section on the path of a transaction of one partition
//! (siblings have the latches of their books and of what is to be said, and filling slots that of the
//! backlog, which a delivery holds); the committer's latch is taken by whoever finds the head committable,
//! and by whoever counts many restarts; only a count of the whole space waits for it, and a delivery to an
//! engine that has nothing to do.

mod commit;
mod execution;
mod keystate;
mod mutant;
mod schedule;
mod shared;
mod siblings;
mod slot;
mod status;

pub use mutant::Mutant;

use crate::conflicts::Conflicts;
use crate::engine::{Assignment, Budget, Effects, Engine, Progress, Siblings, Status, Waiting, WorkerId};
use crate::kind::EngineKind;
use crate::siblings::Message;
use keystate::KeyState;
use schedule::Worker;
use shared::Shared;
use std::sync::Arc;
use store::sync::Mutex;
use store::{Partition, View};
use txn::{Batch, Epoch, PartitionId, Position};

/// The speculation window where transactions have siblings, unless most is thrown away: what workers do while
/// these are waited for. (In the scale model 16 nodes are 0.63 of what they should be without, and 0.99 with
/// it.)
pub const WINDOW_MIN_ACROSS: usize = 512;

/// How a [`Sparkle`] engine is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Workers that may step the engine: ids from 0.
    pub workers: usize,
    /// About how many of them run at the same time.
    pub at_once: usize,
    /// Transactions that can be between delivery and final commit inside the engine; more wait in a queue. A
    /// power of two.
    pub capacity: usize,
    /// The speculation window gets smaller only where more is thrown away than final-commits: what keeps
    /// workers busy while siblings' messages are on their way. Two for each that runs at the same time if it
    /// is less than that.
    pub window_min: usize,
    /// A deliberate defect, to test the tests.
    pub mutant: Option<Mutant>,
    /// Which partition it executes.
    pub partition: PartitionId,
    /// How the siblings of multi-partition transactions confirm each other.
    pub variant: Variant,
    /// What its abort numbers begin with: that of no other process. Counts on with each retraction.
    pub era: u64,
}

/// How siblings confirm each other: what Sparkle's Fig. 9 compares. (Its fourth variant differs in how an
/// epoch is arranged.) All partitions of a cluster must have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Variant {
    /// What is read is told only when it is final: no transaction over several partitions is executed on what
    /// may be wrong.
    Conservative,
    /// It is told at once, and confirmed when everything before it is final.
    ConservativeConfirmation,
    /// It is told at once, and confirmed speculatively.
    #[default]
    SpeculativeConfirmation,
}

impl Variant {
    fn confirms_speculatively(self) -> bool {
        self == Variant::SpeculativeConfirmation
    }
}

impl Options {
    /// The defaults for a number of workers.
    pub fn new(workers: usize) -> Options {
        Options::of(Assignment::alone(workers))
    }

    /// The defaults for what an engine is made for.
    pub fn of(assignment: Assignment) -> Options {
        Options {
            workers: assignment.workers,
            at_once: assignment.at_once,
            capacity: 4096,
            window_min: match assignment.of {
                0 | 1 => 0,
                _ => WINDOW_MIN_ACROSS,
            },
            mutant: None,
            partition: assignment.partition,
            variant: Variant::default(),
            era: assignment.era,
        }
    }
}

/// The Sparkle engine.
pub struct Sparkle {
    shared: Arc<Shared>,
    workers: Box<[Mutex<Worker>]>,
}

impl Sparkle {
    /// An engine over an empty store.
    ///
    /// # Panics
    /// If the capacity is not a power of two, or there is no worker.
    pub fn new(options: Options) -> Sparkle {
        assert!(options.capacity.is_power_of_two(), "the capacity must be a power of two");
        assert!(options.workers > 0, "an engine needs a worker");
        let shared = Arc::new(Shared::new(options));
        let workers = (0..options.workers).map(|_| Mutex::new(Worker::new(shared.clone()))).collect();
        Sparkle { shared, workers }
    }

    /// The partition, for tests that look inside.
    pub fn partition(&self) -> &Partition<impl store::Meta> {
        let partition: &Partition<KeyState> = &self.shared.partition;
        partition
    }
}

impl Engine for Sparkle {
    fn kind(&self) -> EngineKind {
        EngineKind::Sparkle
    }
    fn deliver(&self, batch: Batch) {
        self.shared.deliver(batch);
    }
    fn confirm(&self, upto: Position) {
        self.shared.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.shared.retract(from);
    }
    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        match self.workers[worker.0].try_lock() {
            Some(mut worker) => worker.step(budget, effects),
            None => Progress::Idle,
        }
    }
    fn finish(&self, worker: WorkerId, _: &mut dyn Effects) {
        if let Some(mut worker) = self.workers[worker.0].try_lock() {
            worker.finish();
        }
    }
    fn siblings(&self) -> Option<&dyn Siblings> {
        Some(self)
    }
    fn waiting(&self) -> Waiting {
        self.shared.waiting()
    }
    fn status(&self) -> Status {
        self.shared.status()
    }
    fn conflicts(&self) -> Conflicts {
        self.shared.conflicts.report()
    }
    fn workers(&self) -> usize {
        self.workers.len()
    }
    fn view(&self) -> &dyn View {
        &self.shared.partition
    }
}

impl Siblings for Sparkle {
    fn receive(&self, from: PartitionId, message: Message) {
        self.shared.receive(from, message);
    }
    fn tell_again(&self, to: PartitionId, behind: Epoch, heard: Epoch) {
        self.shared.tell_again(to, behind, heard);
    }
    fn heard(&self, from: PartitionId) -> Epoch {
        self.shared.siblings.groups.heard(from)
    }
    fn forget(&self, upto: Epoch) {
        self.shared.siblings.groups.forget(upto);
    }
    fn messages(&self) -> Vec<(PartitionId, Message)> {
        self.shared.siblings.groups.take()
    }
}
