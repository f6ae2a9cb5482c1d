//! ParSpec: speculative execution in parallel, committed speculatively in the order of delivery (Archie,
//! section 4).
//!
//! Up to MaxSpec transactions are *active*: the engine executes them in parallel. An active transaction keeps
//! its writes to itself until it *x-commits* (commits speculatively). Transactions x-commit one after the
//! other in the order of their positions (the paper's *rule-comp*). So a reader needs one speculative version
//! of a record only, the newest one, and no speculative transaction can abort one that has x-committed. When
//! the order is confirmed, its transactions have x-committed as a rule, and their versions are installed: the
//! final commit makes the versions visible by moving one timestamp.
//!
//! # What can go wrong, and what finds it
//! Each record has a *wait-flag*, the active transaction that is going to write it, and a *readers-array*,
//! the active transactions that have read it ([`object`]).
//! 1. *A reader was too early*: whoever announces a write dooms all later ones that have read the record.
//!    From then on later readers find the wait-flag of an earlier transaction, and wait for its x-commit
//!    (sections 4.1 and 4.2).
//! 2. *Two writers of one record*: the later one waits for the earlier one's x-commit. If the later one was
//!    first, it loses the wait-flag and is doomed.
//!
//! A doomed transaction starts over as soon as a worker comes to it, also when it has finished and waits for
//! its turn; a parked one does when it is woken. It cannot be doomed any more when everything before it has
//! x-committed, and then it needs no readers-array either. Until it is doomed it may see what never was (some
//! of an earlier transaction's writes), and even go round on it for ever: whoever executes it makes way for
//! earlier ones.
//!
//! # The x-commit
//! Transactions that have finished wait for their turn. A worker that finds the next one finished x-commits
//! it, and goes on until the next one has not finished; others that come leave a note and do something else
//! ([`x_commit`]). No transaction is woken for its turn. The paper's steps:
//! - *A* installs the versions and lets the wait-flags go, so that later transactions may see them.
//! - *B* moves `x_committed` (its SCTS and LastX-committedTx), and has those go on who waited.
//! - *C* has nothing left to do. The record keeps its newest version in place and the others in a list, so
//!   that it need not be copied from a `spec-version` into the list of versions: a snapshot of the final
//!   position does not see it before the final commit. Afterwards a worker collects the superseded versions.
//!
//! A worker computes the transaction's terms of the state digest when the procedure has returned, not in the
//! transaction's turn.
//!
//! # Where this engine leaves the paper
//! 1. *Nobody spins* where the paper spins (at wait-flags, and for the turn): such a transaction is parked,
//!    its future in its slot, and the worker takes another one.
//! 2. *A sliding window.* The paper activates the next MaxSpec transactions when all of the last ones have
//!    "finished their execution" (which must mean x-committed, section 4.3, step A), since a readers-array
//!    has one bit for each position modulo MaxSpec. Here a bit is counted from the last reader ([`object`]),
//!    so each x-commit lets the next transaction begin. MaxSpec adapts ([`crate::window`]) between two for
//!    each worker that runs and 64, unless it is fixed.
//! 3. *A restarted transaction keeps its wait-flags*: it will most likely write the same, and whoever is
//!    behind it would only be doomed again. The x-commit also lets those wait-flags go whose records the
//!    transaction did not write after all.
//! 4. *An order that differs* comes as a retraction: what was retracted is undone and executed again where it
//!    is delivered again. The paper validates each such transaction, and keeps what has read the same. Here
//!    what it computes may depend on its position and on its batch's time too, which differ then.
//! 5. *The final commit* moves one timestamp for as many transactions as have been confirmed, and then hands
//!    out the reply of each, adds it to the state digest, and leaves its records to be looked at for versions
//!    that nobody needs any more, when the worker has nothing better to do. No client waits for these.
//! 6. *A read for update* announces the write at once, instead of taking a place in the readers-array first.
//! 7. *No read-set*: nothing validates it (see 4).
//!
//! Scans of the whole key space wait for their turn, so that everything before them is there. Counts and
//! clears wait, besides, until everything before them has final-committed and they are confirmed themselves.
//! (A clear dooms every later transaction that has begun.) Read-only transactions at the final snapshot are
//! [`crate::snapshot`]'s, for all engines.
//!
//! # Retraction
//! [`crate::tentative`] tells how what is retracted is undone. A void transaction takes its turn like any
//! other, without a procedure and without writes.
//!
//! # Invariants
//! - `x_committed <= taken <= x_committed + 64`.
//! - Only active transactions hold wait-flags. A transaction that has announced a write and does not hold the
//!   wait-flag is doomed: an earlier transaction has taken the wait-flag.
//! - Waiting goes from later to earlier transactions, so there is no deadlock; the one behind `x_committed`
//!   waits for nobody but, before it counts or clears, the final commit.

mod execution;
mod object;
mod schedule;
mod slots;
mod x_commit;

use crate::conservative::Finals;
use crate::engine::{Assignment, Budget, Effects, Engine, Progress, Status, Waiting, WorkerId};
use crate::kind::EngineKind;
use crate::ready::ReadySet;
use crate::tentative::{Ground, Retirement, TentativeOrder};
use crate::window::{Controller, Window};
use crossbeam_utils::CachePadded;
use object::{Object, READERS_MAX};
use schedule::Worker;
use slots::Slots;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicU64, Ordering};
use store::{Partition, View};
use txn::mutant::{Mutant, is_active};
use txn::{Batch, PartitionId, Position, Weight};
use x_commit::XCommitter;

/// How a [`ParSpec`] engine is built.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Workers that may step the engine: ids from 0.
    pub workers: usize,
    /// About how many of them run at the same time.
    pub at_once: usize,
    /// Transactions that can be between their start and their final commit; more wait in a queue. A power of
    /// two.
    pub capacity: usize,
    /// The paper's MaxSpec, from 1 to 64: how many transactions are active at the same time. `None` adapts
    /// it.
    pub max_spec: Option<u64>,
}

impl Options {
    /// The defaults for what an engine is made for.
    pub fn of(made_for: Assignment) -> Options {
        Options { workers: made_for.workers, at_once: made_for.at_once, capacity: 4096, max_spec: None }
    }
}

/// The state that all workers share.
struct Shared {
    partition: Arc<Partition<Object>>,
    /// For transactions over several partitions. This engine gets none.
    finals: Finals,
    capacity: u64,
    order: TentativeOrder<()>,
    slots: Slots,
    /// Up to here everything has x-committed: the paper's SCTS and LastX-committedTx.
    x_committed: CachePadded<AtomicU64>,
    x_committer: CachePadded<XCommitter>,
    /// Active transactions that can go on.
    light: CachePadded<ReadySet>,
    heavy: CachePadded<ReadySet>,
    /// The one that waits until everything before it has final-committed; 0 if there is none.
    waits_for_all: CachePadded<AtomicU64>,
    retirement: CachePadded<Retirement<Object>>,
    max_spec: Option<u64>,
    window: CachePadded<Window>,
    controller: CachePadded<Mutex<Controller>>,
    counts: CachePadded<Counts>,
}

/// What [`Status`] tells.
#[derive(Default)]
struct Counts {
    restarts: AtomicU64,
    suspensions: AtomicU64,
    parked: AtomicU64,
}

impl Shared {
    fn ground(&self) -> Ground<'_, (), Slots> {
        Ground { partition: &self.partition, finals: &self.finals, order: &self.order, slots: &self.slots }
    }

    /// Up to here everything has x-committed.
    fn x_committed(&self) -> Position {
        // A loaded store begins behind what it holds.
        Position(self.x_committed.load(Ordering::SeqCst)).max(self.partition.final_position())
    }

    /// The last position that may be active.
    fn active_upto(&self) -> Position {
        let max_spec = match is_active(Mutant::OutgrowReaders) {
            true => self.capacity,
            false => self.max_spec.unwrap_or_else(|| self.window.size()),
        };
        let room = self.partition.final_position().advanced(self.capacity);
        self.x_committed().advanced(max_spec).min(room)
    }

    /// Whether an active transaction was doomed or retracted.
    fn is_doomed(&self, position: Position) -> bool {
        self.slots.is_doomed(position) || self.order.is_void(position)
    }

    /// An earlier transaction has found out that an active one ran too early.
    fn doom(&self, position: Position) {
        if self.slots.doom(position) {
            self.make_ready(position);
        }
    }

    /// An active transaction, whose execution is in its slot, can go on.
    fn make_ready(&self, position: Position) {
        match self.slots.weight(position) {
            Weight::Light => self.light.insert(position),
            Weight::Heavy => self.heavy.insert(position),
        }
    }

    /// Takes the earliest transaction that can go on; its place in the ring.
    fn take_ready(&self, may_be_heavy: bool) -> Option<u64> {
        let head = self.x_committed().next();
        let end = head.advanced(self.capacity);
        if may_be_heavy && self.heavy.len() > 0 {
            let before = self.light.first_before(head, end).unwrap_or(end);
            if let Some(place) = self.heavy.take_before(head, before) {
                return Some(place);
            }
        }
        self.light.take_before(head, end)
    }

    /// Whether an earlier transaction than one that is executing waits for a worker. A procedure may go round
    /// for ever on a state that never was, until the earlier one dooms it.
    fn has_earlier(&self, position: Position, may_be_heavy: bool) -> bool {
        let head = self.x_committed().next();
        self.light.has_before(head, position)
            || may_be_heavy && self.heavy.has_before(head, position)
            || self.waited_for_all().is_some()
    }

    /// Whether a transaction may look at the whole key space: everything before it is final, and so is it.
    fn may_see_all(&self, position: Position) -> bool {
        self.partition.final_position().next() == position && self.order.is_confirmed(position)
    }

    /// The transaction that has waited for everything before it, and need not any more.
    fn waited_for_all(&self) -> Option<Position> {
        let position = Position(self.waits_for_all.load(Ordering::SeqCst));
        let need_not = || self.may_see_all(position) || self.order.is_void(position);
        (position != Position::NONE && need_not()).then_some(position)
    }

    /// Takes the waiting transaction out. False if another worker has.
    fn leaves_waiting_for_all(&self, position: Position) -> bool {
        self.waits_for_all.compare_exchange(position.0, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
}

/// The ParSpec engine.
pub struct ParSpec {
    shared: Arc<Shared>,
    workers: Box<[Mutex<Worker>]>,
}

impl ParSpec {
    /// An engine over an empty store.
    ///
    /// # Panics
    /// If there is no worker, the capacity is not a power of two, or MaxSpec is not from 1 to 64.
    pub fn new(options: Options) -> ParSpec {
        let Options { workers, at_once, capacity, max_spec } = options;
        assert!(workers > 0, "an engine needs a worker");
        assert!(capacity.is_power_of_two(), "the capacity must be a power of two");
        assert!(
            max_spec.is_none_or(|max_spec| (1..=READERS_MAX).contains(&max_spec)),
            "MaxSpec must be from 1 to {READERS_MAX}"
        );
        let shared = Arc::new(Shared {
            partition: Arc::new(Partition::new()),
            finals: Finals::new(PartitionId(0)),
            capacity: capacity as u64,
            order: TentativeOrder::default(),
            slots: Slots::new(capacity),
            x_committed: CachePadded::default(),
            x_committer: CachePadded::default(),
            light: CachePadded::new(ReadySet::new(capacity)),
            heavy: CachePadded::new(ReadySet::new(capacity)),
            waits_for_all: CachePadded::default(),
            retirement: CachePadded::default(),
            max_spec,
            window: CachePadded::new(Window::new(at_once, 0, READERS_MAX as usize)),
            controller: CachePadded::default(),
            counts: CachePadded::default(),
        });
        let workers = (0..workers).map(|_| Mutex::default()).collect();
        ParSpec { shared, workers }
    }
}

impl Drop for ParSpec {
    fn drop(&mut self) {
        // An execution's access has its share of what the slots are in.
        self.shared.slots.clear();
        self.shared.forget_x_commit();
    }
}

impl Engine for ParSpec {
    fn kind(&self) -> EngineKind {
        EngineKind::ParSpec
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
        let Some(mut worker) = self.workers[worker.0].try_lock() else {
            return Progress::Idle;
        };
        match worker.step(&self.shared, budget, effects) {
            true => Progress::Worked,
            false => Progress::Idle,
        }
    }
    fn finish(&self, worker: WorkerId, _: &mut dyn Effects) {
        if let Some(mut worker) = self.workers[worker.0].try_lock() {
            worker.finish(&self.shared);
        }
    }
    fn waiting(&self) -> Waiting {
        let shared = &self.shared;
        let ground = shared.ground();
        let others = [
            shared.is_x_commit_due(),
            shared.waited_for_all().is_some(),
            ground.is_committable(),
            shared.retirement.is_undo_due(&ground),
        ];
        let others = others.into_iter().filter(|&is_due| is_due).count() as u64;
        let takeable = shared.order.takeable(shared.active_upto());
        Waiting { light: shared.light.len() + takeable + others, heavy: shared.heavy.len() }
    }
    fn status(&self) -> Status {
        let shared = &self.shared;
        Status {
            restarts: shared.counts.restarts.load(Ordering::Relaxed),
            suspensions: shared.counts.suspensions.load(Ordering::Relaxed),
            speculated_before_confirmation: shared.retirement.speculated(),
            window: shared.max_spec.unwrap_or_else(|| shared.window.size()),
            parked: shared.counts.parked.load(Ordering::Relaxed),
            ready: shared.light.len() + shared.heavy.len(),
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
