//! The transactions between their start and their final commit: a ring of slots by position.
//!
//! ```text
//!              ┌────────── doomed: starts over ───────────┐
//!              ▼                                          │
//!   free ──► active ──procedure returned, not doomed──► finished ──turn──► x-committing ──► executed
//!     ▲                                                                                        │
//!     └─────────────────────────── final-committed, or undone ─────────────────────────────────┘
//! ```

use super::execution::Execution;
use super::object::Object;
use crate::conservative::Ended;
use crate::tentative::Executed;
use smallvec::SmallVec;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use txn::{Position, Weight};

const ACTIVE: u32 = 0;
const FINISHED: u32 = 1;
const X_COMMITTING: u32 = 2;
/// Its bit of the paper's abort-array.
const DOOMED: u32 = 4;

#[repr(align(64))]
struct Slot {
    /// One of the above, with [`DOOMED`] or not.
    stage: AtomicU32,
    is_heavy: AtomicBool,
    /// The last position that has x-committed in this slot, as far as it was not undone.
    executed: AtomicU64,
    body: Mutex<Body>,
}

#[derive(Default)]
struct Body {
    /// Unless a worker has it.
    execution: Option<Execution>,
    /// Positions that are parked until this one has x-committed.
    waiters: Waiters,
    /// From the x-commit to the final commit, or the undoing; none if its procedure did not return.
    ended: Option<Ended<Object>>,
}

/// Positions that wait for another one.
pub(super) type Waiters = SmallVec<[Position; 4]>;

/// The ring.
pub(super) struct Slots(Box<[Slot]>);

impl Slots {
    /// Room for so many positions: a power of two.
    pub(super) fn new(capacity: usize) -> Slots {
        let slot = |_| Slot {
            stage: AtomicU32::new(ACTIVE),
            is_heavy: AtomicBool::new(false),
            executed: AtomicU64::new(0),
            body: Mutex::default(),
        };
        Slots((0..capacity).map(slot).collect())
    }

    /// Drops all executions.
    pub(super) fn clear(&self) {
        self.0.iter().for_each(|slot| slot.body.lock().execution = None);
    }

    fn at(&self, position: Position) -> &Slot {
        &self.0[position.0 as usize & (self.0.len() - 1)]
    }

    /// A transaction takes its slot.
    pub(super) fn begin(&self, position: Position, weight: Weight) {
        self.at(position).is_heavy.store(weight == Weight::Heavy, Ordering::Relaxed);
        self.activate(position);
    }

    pub(super) fn weight(&self, position: Position) -> Weight {
        match self.at(position).is_heavy.load(Ordering::Relaxed) {
            true => Weight::Heavy,
            false => Weight::Light,
        }
    }

    /// A transaction starts over: what doomed its last incarnation does not concern the next one.
    pub(super) fn activate(&self, position: Position) {
        self.at(position).stage.store(ACTIVE, Ordering::SeqCst);
    }

    pub(super) fn is_doomed(&self, position: Position) -> bool {
        self.at(position).stage.load(Ordering::SeqCst) & DOOMED != 0
    }

    /// Dooms a transaction that ran too early. True if it has finished: then the caller must make it ready,
    /// so that it starts over.
    pub(super) fn doom(&self, position: Position) -> bool {
        self.at(position).stage.fetch_or(DOOMED, Ordering::SeqCst) == FINISHED
    }

    /// Keeps an execution that waits for something.
    pub(super) fn keep(&self, execution: Execution) {
        let mut body = self.at(execution.position()).body.lock();
        debug_assert!(body.execution.is_none(), "a slot has one execution");
        body.execution = Some(execution);
    }

    /// Takes out the execution that is kept at a place of the ring.
    pub(super) fn take_kept(&self, place: Position) -> Option<Execution> {
        self.at(place).body.lock().execution.take()
    }

    /// An execution has finished. It comes back if it is doomed.
    pub(super) fn finish(&self, execution: Execution) -> Option<Execution> {
        let position = execution.position();
        self.keep(execution);
        let stage = &self.at(position).stage;
        match stage.compare_exchange(ACTIVE, FINISHED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => None,
            Err(_) => self.take_kept(position),
        }
    }

    pub(super) fn is_finished(&self, position: Position) -> bool {
        self.at(position).stage.load(Ordering::SeqCst) == FINISHED
    }

    /// Begins the x-commit of a transaction, if it has finished and is not doomed. For whoever x-commits.
    pub(super) fn begin_x_commit(&self, position: Position, ignores_doom: bool) -> Option<Execution> {
        let stage = &self.at(position).stage;
        let begin =
            |from| stage.compare_exchange(from, X_COMMITTING, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if begin(FINISHED) || ignores_doom && begin(FINISHED | DOOMED) {
            return self.take_kept(position);
        }
        None
    }

    /// Has a transaction wait until an earlier one has x-committed. False if that one has.
    pub(super) fn wait(&self, earlier: Position, waiter: Position) -> bool {
        let mut body = self.at(earlier).body.lock();
        let waits = !self.is_executed(earlier);
        if waits {
            body.waiters.push(waiter);
        }
        waits
    }

    /// A transaction has x-committed. Returns those that have waited for it.
    pub(super) fn end(&self, position: Position, ended: Option<Ended<Object>>) -> Waiters {
        let slot = self.at(position);
        let mut body = slot.body.lock();
        body.ended = ended;
        slot.executed.store(position.0, Ordering::SeqCst);
        std::mem::take(&mut body.waiters)
    }
}

impl Executed for Slots {
    type Meta = Object;

    fn is_executed(&self, position: Position) -> bool {
        self.at(position).executed.load(Ordering::SeqCst) >= position.0
    }
    fn take_ended(&self, position: Position) -> Option<Ended<Object>> {
        self.at(position).body.lock().ended.take()
    }
    fn free(&self, position: Position) {
        // Not below what the slot's earlier positions had reached.
        self.at(position).executed.store(position.prev().0, Ordering::SeqCst);
    }
}
