//! Q-Store: plan a part of the order into execution queues, then execute the queues (Q-Store, sections 3
//! and 4).
//!
//! # The two phases
//! *Planning* (section 4.1). A planner takes a *slice*: the next positions of the delivered order. Slices are
//! numbered in the order of their positions, and a slice's number is the priority of its planner. For each
//! key that a transaction declares, the planner appends a *fragment* to the execution queue of the key's
//! *range*: a range is a part of the hash space, and a slice has one queue for each range. Planners share
//! nothing while they plan, so all workers may plan at once ([`plan`]). Afterwards a slice is *published*:
//! its queues are appended to those of their ranges, slice after slice in the order of priorities
//! ([`queues`]).
//!
//! *Execution* (section 4.2). A range has one executor at a time, who takes the range's fragments in their
//! order and finds the conflict dependency of each: the range has a table of the last writer of each bucket
//! of keys, which nobody else looks at, so that no lock table is needed ([`queues`]). A fragment whose last
//! writer has executed is *resolved* at once. Else it is noted with that writer, and resolved when the writer
//! ends; the executor goes on with the next fragment and never stalls.
//!
//! Workers take whichever role has work: they finish what is ready first, then fragments, then slices. Phases
//! overlap: the next slices are planned and published while fragments of earlier ones wait. No barrier stands
//! between the phases or between slices.
//!
//! # Two kinds of transactions
//! A *split* transaction has declared fragments ([`txn::fragments`]). Most of Redis's commands on one key,
//! and blocks of them, are such transactions. Each fragment is executed on the record itself when it is
//! resolved: no future, no list of writes. The worker that executes the last one ends the transaction
//! ([`split`]).
//!
//! Fragments of one transaction may depend on each other, and may abort it ([`dependent`]). Such a fragment
//! is executed when it is resolved and has its inputs. The [`Mode`] says what becomes of its write while the
//! transaction may still abort:
//! - *conservative* (section 4.3): the write is kept back, and fragments of later transactions wait for it.
//! - *speculative* (section 4.2): the write is installed at once, and later transactions go on with it. If
//!   the transaction aborts, those that have read its writes are executed again ([`speculation`]).
//!
//! The throughput of the speculative mode by that of the conservative one, over interleaved slices (median,
//! least and greatest ratio; `ordo bench engine`, 2 workers on 2 cores that other processes used, too, which
//! is why the ratios spread so widely):
//!
//! | calls that abort | 0 % | 1 % | 10 % |
//! |---|---|---|---|
//! | NewOrder and Payment, 2 small warehouses | 0.84 (0.22 - 2.51) | 1.12 (0.63 - 2.36) | 0.90 (0.09 - 2.39) |
//! | YCSB, 10 operations, theta 0.99 | 1.26 (0.28 - 5.60) | 1.13 (0.32 - 3.10) | 0.66 (0.00 - 3.32) |
//! | YCSB, 10 operations, uniform | 1.26 (0.68 - 1.84) | 1.09 (0.67 - 1.73) | 1.28 (0.34 - 2.23) |
//!
//! The percentage of NewOrder and Payment is that of the NewOrders. With 10 % on hot records the speculative
//! mode executes about as many transactions again as it commits. The conservative mode executes nothing
//! twice, and is the default. No command of Redis has abortable fragments, so a server has no use for the
//! other one.
//! A least ratio of 0.00 is a slice in which the speculative mode has committed next to nothing. We suspect
//! the gates ([`speculation`]), and do not understand these slices. The table is older than the flag that
//! lets a repair through to the gates.
//!
//! A split transaction whose fragments depend on nothing may have them at several partitions, each of which
//! executes its own, when their records' turn comes there, and waits for no other one to do so. Each tells
//! what its fragments came to, and the first of them makes the outcome of it; of commands of which others may
//! be told, all do ([`across`]). The final commit waits for the outcome where that is made.
//!
//! A *whole* transaction has declared keys only (scripts do), or fragments at several partitions that depend
//! on each other. It counts its unresolved fragments (the paper's batch metadata, [`slots`]), and its
//! procedure runs when there is none left: as one logic fragment over all of its records.
//!
//! # Where this engine leaves the paper
//! 1. *Out of the queue's order.* In the paper a queue is executed first in, first out, and its order is the
//!    conflict dependency (Eq. 5; a smaller number of a slice is a higher priority here). Here a fragment
//!    that must wait leaves the queue, and those behind it that do not depend on it go on: this is what the
//!    table of last writers is for. Phases and slices overlap, where all plan and then all execute in section
//!    3.
//! 2. *Data dependencies over several partitions* make a transaction whole, and so do abortable fragments
//!    there. The paper sends values from executor to executor.
//! 3. *Both modes end in the serial result.* The paper's speculative mode aborts what has read the writes of
//!    an aborted transaction; here that is executed again. In the conservative mode only those transactions
//!    wait that touch the same records, and no queue stalls. A whole transaction never reads what an abort
//!    may still take back. In both modes there is another speculation, about the *order*: delivered
//!    transactions execute before they are confirmed, and a retraction undoes them, whole transactions as
//!    well.
//! 4. *Versions.* The store keeps several versions of a record, tagged with positions, and a transaction at
//!    `p` reads the newest below `p`. So a writer does not wait for the readers before it: only the last
//!    *writer* of a key is a dependency. (The paper's queues order readers, too.)
//! 5. *Latches.* The store's record latches stay. Executors of different ranges never meet at one; a whole
//!    transaction may meet a later writer there, and both may meet snapshot readers and the collection of old
//!    versions.
//! 6. *Buckets instead of records.* Two keys of one bucket count as one record: a false dependency delays,
//!    and changes no result.
//! 7. *Commit* is not at the end of a batch. The transaction behind the final position commits as soon as it
//!    is executed and confirmed: nothing before it can abort any more, so that this holds in both modes.
//! 8. *Several partitions.* The paper sends execution queues to the servers that own the records, each
//!    of which acknowledges a queue when it is through. Here the order is what is sent: every partition
//!    has the transaction in its own order, and plans the keys that are its own. Of a split transaction
//!    it tells what its fragments came to, in the next message to whoever makes the outcome; of a whole
//!    one it tells all siblings what it read, and they run the procedure, too
//!    ([`crate::conservative`]). What is told must be final, so a whole transaction over several
//!    partitions waits, besides, until its position is confirmed.
//! 9. *Not here:* the read-committed mode (section 4.5), ranges that are split by weight, a queue of its own
//!    for a hot record, batch metadata without a latch (each slot has one).
//!
//! # Transactions that do not declare their keys
//! Such a transaction is a *barrier*: a slice of its own. Nothing behind it is published before it has ended,
//! and it begins when everything before it has final-committed and its own position is confirmed. It may
//! touch, scan, count and clear whatever it likes. A transaction that touches a key which it did not declare
//! ends with [`txn::Stop::Undeclared`], as in [`crate::calvin`], and comes again at a new position: the dry
//! run that finds its keys is [`crate::calvin::reconnoitre`].
//!
//! # Guessed keys
//! A script names keys, and may touch others ([`txn::KeySets::may_stray`]). Where there is one partition, it
//! is planned by the keys that it names and by those that such scripts have read besides ([`strays`]). If it
//! touches another one all the same, then it and everything that was taken behind it are undone, as if they
//! had been retracted, and are taken again, and now it is a barrier. None of them has final-committed, so
//! nobody has seen their outcomes. Over several partitions it is a barrier from the beginning: what siblings
//! were told is not taken back. (The paper has no such transactions; the notes ask for reconnaissance and
//! re-validation. Here the guess is the reconnaissance, and each access is validated.)
//!
//! # Retraction
//! [`crate::tentative`] tells how what is retracted is undone. A void transaction goes through its queues
//! like any other; from then on neither its procedure runs nor do its fragments ([`slots`] calls it executed
//! in the end, too).
//!
//! # Invariants
//! - Fragments stand in the queue of a range in the order of their positions.
//! - Of two transactions that touch one bucket, the later one executes behind every earlier one that writes
//!   there: each writer waits for the last one before it, and each reader for the last writer.
//! - A transaction waits only for earlier ones, for its confirmation and for its siblings, so there is no
//!   deadlock. No worker spins. In the speculative mode a worker blocks at its gate while another one
//!   repairs, and a worker that repairs blocks until all others have left their gates. A worker takes the
//!   latches in this order: `repair`, the gates by their numbers, those of transactions, slots and records.

mod across;
mod dependent;
mod execution;
mod plan;
mod queues;
mod slots;
mod speculation;
mod split;
mod strays;

use crate::conservative::{Execution, Finals};
use crate::engine::{Assignment, Budget, Effects, Engine, Progress, Siblings, Status, Waiting, WorkerId};
use crate::kind::EngineKind;
use crate::siblings::Message;
use crate::tentative::{Ground, Retirement, TentativeOrder};
use across::Across;
use crossbeam_utils::CachePadded;
use execution::{Ready, Work, Worker};
use plan::Planning;
use queues::{Publisher, Range};
use slots::Slots;
use speculation::{Frontier, Gates};
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicU64, Ordering};
use store::{Partition, View};
use strays::Strays;
use txn::{Batch, Epoch, PartitionId, Position};

/// Ranges for each worker that runs at the same time: a worker that finds another one in a range has others.
const RANGES_PER_WORKER: usize = 2;
/// More ranges than this only make queues short.
const RANGES_MAX: usize = 64;

/// Whether transactions read what an earlier one has written that may still abort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Later transactions read its writes, and are executed again if it aborts ([`speculation`]).
    Speculative,
    /// Later transactions wait until it cannot abort any more ([`dependent`]).
    #[default]
    Conservative,
}

impl Mode {
    /// Every mode, for settings and tests.
    pub const ALL: [Mode; 2] = [Mode::Speculative, Mode::Conservative];

    /// The name, as `--qstore-mode` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Speculative => "speculative",
            Mode::Conservative => "conservative",
        }
    }
}

impl FromStr for Mode {
    type Err = String;
    fn from_str(text: &str) -> Result<Mode, String> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| format!("'{text}' is no mode of qstore: choose speculative or conservative"))
    }
}

/// How a [`QStore`] engine is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Workers that may step the engine: ids from 0.
    pub workers: usize,
    /// Transactions that can be between planning and final commit; more wait in a queue. A power of two.
    pub capacity: usize,
    /// Execution queues of a slice: parts of the hash space. A power of two.
    pub ranges: usize,
    /// Transactions of a slice, at most.
    pub slice_max: usize,
    /// Keys of a range that are told apart: a power of two.
    pub buckets: usize,
    /// Which partition it executes.
    pub partition: PartitionId,
    /// Whether transactions read the writes of others that may still abort.
    pub mode: Mode,
}

impl Options {
    /// The defaults for what an engine is made for.
    pub fn of(made_for: Assignment) -> Options {
        let ranges = (made_for.at_once.max(1) * RANGES_PER_WORKER).next_power_of_two().min(RANGES_MAX);
        Options {
            workers: made_for.workers,
            capacity: 4096,
            ranges,
            slice_max: 128,
            buckets: 131_072 / ranges,
            partition: made_for.partition,
            mode: Mode::default(),
        }
    }
}

/// What the workers share.
struct Shared {
    options: Options,
    partition: Arc<Partition<()>>,
    finals: Arc<Finals>,
    order: TentativeOrder<Planning>,
    slots: Slots,
    publisher: CachePadded<Mutex<Publisher>>,
    /// The barrier that is published and has not begun; 0 if there is none.
    barrier: CachePadded<AtomicU64>,
    ranges: Box<[CachePadded<Range>]>,
    ready: Ready,
    /// Positions that have all they need but their confirmation.
    unconfirmed: Mutex<BTreeSet<Position>>,
    /// Those that wait for their siblings.
    parked: Mutex<BTreeMap<Position, Execution>>,
    across: Across,
    retirement: CachePadded<Retirement<()>>,
    strays: Strays,
    gates: Gates,
    frontier: Frontier,
    /// Transactions that were executed again because an earlier one has aborted.
    cascaded: AtomicU64,
    suspensions: AtomicU64,
    /// Transactions that were undone because their guess was wrong.
    taken_back: AtomicU64,
    /// Transactions that were planned to be executed fragment by fragment.
    split: AtomicU64,
}

impl Shared {
    fn ground(&self) -> Ground<'_, Planning, Slots> {
        Ground { partition: &self.partition, finals: &self.finals, order: &self.order, slots: &self.slots }
    }

    fn confirm(&self, upto: Position) {
        self.order.confirm(upto);
        let confirmed = {
            let mut unconfirmed = self.unconfirmed.lock();
            let later = unconfirmed.split_off(&upto.next());
            std::mem::replace(&mut *unconfirmed, later)
        };
        self.make_ready_again(confirmed);
        self.tell_confirmed(upto);
    }

    fn retract(&self, from: Position) {
        self.order.retract(from, &self.finals);
        self.across.retract(from);
        self.end_unconfirmed(from);
    }

    /// What is void waits for its confirmation no longer.
    fn end_unconfirmed(&self, from: Position) {
        let void = self.unconfirmed.lock().split_off(&from);
        self.make_ready_again(void);
    }

    fn make_ready_again(&self, positions: BTreeSet<Position>) {
        for position in positions {
            self.ready.push(Work::Ready(position), self.slots.weight(position));
        }
    }
}

/// The Q-Store engine.
pub struct QStore {
    shared: Shared,
    workers: Box<[Mutex<Worker>]>,
}

impl QStore {
    /// An engine over an empty store.
    ///
    /// # Panics
    /// If there is no worker, or a slice has no room, or the capacity, the ranges or the buckets are not
    /// powers of two.
    pub fn new(options: Options) -> QStore {
        let Options { workers, capacity, ranges, buckets, slice_max, .. } = options;
        assert!(workers > 0 && slice_max > 0, "an engine needs a worker, and a slice a transaction");
        let are_powers = [capacity, ranges, buckets].into_iter().all(usize::is_power_of_two);
        assert!(are_powers, "capacity, ranges and buckets must be powers of two");
        let shared = Shared {
            options,
            partition: Arc::new(Partition::new()),
            finals: Arc::new(Finals::new(options.partition)),
            order: TentativeOrder::default(),
            slots: Slots::new(capacity),
            publisher: CachePadded::default(),
            barrier: CachePadded::default(),
            ranges: (0..ranges).map(|_| CachePadded::new(Range::new(buckets))).collect(),
            ready: Ready::default(),
            unconfirmed: Mutex::default(),
            parked: Mutex::default(),
            across: Across::default(),
            retirement: CachePadded::default(),
            strays: Strays::default(),
            gates: Gates::new(workers),
            frontier: Frontier::default(),
            cascaded: AtomicU64::new(0),
            suspensions: AtomicU64::new(0),
            taken_back: AtomicU64::new(0),
            split: AtomicU64::new(0),
        };
        let workers = (0..workers).map(|_| Mutex::new(Worker::new(ranges))).collect();
        QStore { shared, workers }
    }
}

impl Engine for QStore {
    fn kind(&self) -> EngineKind {
        EngineKind::QStore
    }

    fn deliver(&self, batch: Batch) {
        self.shared.order.deliver(batch, &self.shared.finals);
    }
    fn confirm(&self, upto: Position) {
        self.shared.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.shared.retract(from);
    }

    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        let Some(mut of_worker) = self.workers[worker.0].try_lock() else {
            return Progress::Idle;
        };
        match of_worker.step(&self.shared, worker, budget, effects) {
            true => Progress::Worked,
            false => Progress::Idle,
        }
    }

    fn finish(&self, worker: WorkerId, _: &mut dyn Effects) {
        if let Some(mut worker) = self.workers[worker.0].try_lock() {
            worker.finish(&self.shared);
        }
    }

    fn siblings(&self) -> Option<&dyn Siblings> {
        Some(self)
    }
    fn waiting(&self) -> Waiting {
        let shared = &self.shared;
        let (light, heavy) = shared.ready.counts();
        let fragments: u64 = shared.ranges.iter().map(|range| range.pending()).sum();
        let ground = shared.ground();
        let is_undo_due = shared.retirement.is_undo_due(&ground);
        let others = [ground.is_committable(), shared.is_barrier_due(), is_undo_due];
        let others = others.into_iter().filter(|&is_due| is_due).count() as u64;
        Waiting { light: light + fragments + shared.plannable() + others, heavy }
    }

    fn status(&self) -> Status {
        let shared = &self.shared;
        let parked = shared.parked.lock().len() + shared.unconfirmed.lock().len();
        let parked = parked + shared.across.unanswered();
        Status {
            restarts: shared.taken_back.load(Ordering::Relaxed) + shared.cascaded.load(Ordering::Relaxed),
            suspensions: shared.suspensions.load(Ordering::Relaxed),
            speculated_before_confirmation: shared.retirement.speculated(),
            parked: parked as u64,
            split: shared.split.load(Ordering::Relaxed),
            ..shared.order.status(&shared.partition)
        }
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }
    fn view(&self) -> &dyn View {
        &*self.shared.partition
    }
}

impl Siblings for QStore {
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
