//! The transactions that are planned and have not final-committed: a ring of slots by position.
//!
//! ```text
//!   free ──prepare──► planned ──the last fragment is resolved──► ready ──take──► executing ──end──► executed
//!     ▲                                                            └──────────── void ────────────────┘ │
//!     └────────────────────────── final-committed, or undone ───────────────────────────────────────────┘
//! ```

use super::split::Split;
use crate::conservative::{Ended, Installed, Job};
use crate::tentative::Executed;
use smallvec::SmallVec;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use txn::{Outcome, Position, Weight};

/// The bit of [`Slot::unresolved`] that says that the transaction is heavy.
const HEAVY: u32 = 1 << 31;

/// What waits for a transaction that writes the same record.
pub(super) enum Waiter {
    /// A fragment of the transaction that has this position, which is executed as a whole.
    Whole(Position),
    /// A fragment of a split transaction, by its place among those of all ranges.
    Fragment(Arc<Split>, u16),
}

impl Waiter {
    /// Whether it can be executed again, and so need not wait for what is settled.
    pub(super) fn may_speculate(&self) -> bool {
        match self {
            Waiter::Whole(_) => false,
            Waiter::Fragment(split, _) => split.member().is_none(),
        }
    }
}

pub(super) type Waiters = SmallVec<[Waiter; 4]>;

struct Slot {
    /// Fragments that are not resolved, and [`HEAVY`].
    unresolved: AtomicU32,
    /// The last position that was executed in this slot, as far as it was not undone.
    executed: AtomicU64,
    /// Whether there is [`Body::unanswered`].
    is_unanswered: AtomicBool,
    body: Mutex<Body>,
}

#[derive(Default)]
struct Body {
    /// From `prepare` to `take`.
    job: Option<Job>,
    waiters: Waiters,
    /// From `end` to the final commit; none if the transaction was void.
    ended: Option<Ended>,
    /// From `end` to `answer`, if its siblings are to tell what its outcome is made of.
    unanswered: Option<Arc<Split>>,
    /// A split transaction that is unsettled, or was when it ended: from its first write that others may read
    /// to the final commit. If it has ended, its outcome is still to be made.
    unsettled: Option<Arc<Split>>,
}

/// How a transaction has ended.
pub(super) enum End {
    /// It was void before it began.
    Void,
    /// With this.
    Settled(Ended),
    /// All of its fragments were executed, and some may be executed again.
    Unsettled(Arc<Split>),
}

/// The ring.
pub(super) struct Slots(Box<[Slot]>);

impl Slots {
    /// Room for so many positions: a power of two.
    pub(super) fn new(capacity: usize) -> Slots {
        let slot = |_| Slot {
            unresolved: AtomicU32::new(0),
            executed: AtomicU64::new(0),
            is_unanswered: AtomicBool::new(false),
            body: Mutex::default(),
        };
        Slots((0..capacity).map(slot).collect())
    }

    fn at(&self, position: Position) -> &Slot {
        &self.0[position.0 as usize & (self.0.len() - 1)]
    }

    /// Takes in a transaction that has so many fragments.
    pub(super) fn prepare(&self, job: Job, fragments: u32) {
        let slot = self.at(job.context.position);
        let heavy = if job.request.footprint.weight == Weight::Heavy { HEAVY } else { 0 };
        slot.unresolved.store(fragments | heavy, Ordering::Relaxed);
        // The latch makes the counter known to whoever finds the fragments.
        slot.body.lock().job = Some(job);
    }

    pub(super) fn weight(&self, position: Position) -> Weight {
        weight_of(self.at(position).unresolved.load(Ordering::Relaxed))
    }

    /// One fragment of a transaction is resolved. The transaction's weight, if it was the last one.
    pub(super) fn resolve(&self, position: Position) -> Option<Weight> {
        let before = self.at(position).unresolved.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & !HEAVY > 0, "{position} has no unresolved fragment");
        (before & !HEAVY == 1).then(|| weight_of(before))
    }

    /// Has a fragment wait for an earlier transaction. False if that one has executed.
    pub(super) fn wait(&self, writer: Position, waiter: impl FnOnce() -> Waiter) -> bool {
        if self.is_executed(writer) {
            return false;
        }
        let mut body = self.at(writer).body.lock();
        let waits = !self.is_executed(writer);
        if waits {
            body.waiters.push(waiter());
        }
        waits
    }

    /// Takes out a transaction that is ready, if it `may` begin.
    pub(super) fn take(&self, position: Position, may: impl FnOnce(&Job) -> bool) -> Option<Job> {
        self.at(position).body.lock().job.take_if(|job| may(job))
    }

    /// A transaction has ended. It does not commit before `unanswered` has its outcome. Returns
    /// the waiters of the transaction.
    pub(super) fn end(&self, position: Position, end: End, unanswered: Option<Arc<Split>>) -> Waiters {
        let slot = self.at(position);
        let mut body = slot.body.lock();
        (body.ended, body.unsettled) = match end {
            End::Void => (None, None),
            End::Settled(ended) => (Some(ended), None),
            End::Unsettled(split) => (None, Some(split)),
        };
        slot.is_unanswered.store(unanswered.is_some(), Ordering::SeqCst);
        body.unanswered = unanswered;
        let waiters = std::mem::take(&mut body.waiters);
        slot.executed.store(position.0, Ordering::SeqCst);
        waiters
    }
}

impl Slots {
    /// Others may read from now on what a transaction has written, which is unsettled.
    pub(super) fn show_unsettled(&self, split: &Arc<Split>) {
        self.at(split.position()).body.lock().unsettled = Some(split.clone());
    }

    /// The transaction at a position, if others may read what it has written, and it is unsettled.
    pub(super) fn unsettled(&self, position: Position) -> Option<Arc<Split>> {
        let split = self.at(position).body.lock().unsettled.clone();
        split.filter(|split| split.position() == position && split.is_unsettled())
    }

    /// Takes out what a transaction that has ended leaves. A transaction that was unsettled gets its outcome
    /// now, unless it is void.
    fn take_out(&self, position: Position, is_void: bool) -> Option<Ended> {
        let mut body = self.at(position).body.lock();
        let (ended, unsettled) = (body.ended.take(), body.unsettled.take());
        drop(body);
        ended.or_else(|| unsettled.map(|split| split.end(is_void)))
    }

    /// Whether a split transaction has ended, is not undone, and has no outcome.
    pub(super) fn is_unanswered(&self, split: &Arc<Split>) -> bool {
        let body = self.at(split.position()).body.lock();
        body.unanswered.as_ref().is_some_and(|unanswered| Arc::ptr_eq(unanswered, split))
    }

    /// A split transaction has its outcome; nothing happens if it was undone.
    pub(super) fn answer(&self, split: &Arc<Split>, outcome: Outcome) {
        let slot = self.at(split.position());
        let mut body = slot.body.lock();
        let is_it = |unanswered: &mut Arc<Split>| Arc::ptr_eq(unanswered, split);
        if body.unanswered.take_if(is_it).is_some()
            && let Some(ended) = &mut body.ended
        {
            ended.committed.outcome = outcome;
            slot.is_unanswered.store(false, Ordering::SeqCst);
        }
    }
}

impl Executed for Slots {
    type Meta = ();

    fn may_commit(&self, position: Position) -> bool {
        self.is_executed(position) && !self.at(position).is_unanswered.load(Ordering::SeqCst)
    }

    fn is_executed(&self, position: Position) -> bool {
        self.at(position).executed.load(Ordering::SeqCst) >= position.0
    }
    fn take_ended(&self, position: Position) -> Option<Ended> {
        // All transactions before this one have final-committed: nothing changes its values any more.
        self.take_out(position, false)
    }
    fn take_undone(&self, position: Position) -> Installed<()> {
        // A repair may have taken back what the transaction has read, so that no outcome may be made of it.
        self.take_out(position, true).map(|ended| ended.installed).unwrap_or_default()
    }
    fn free(&self, position: Position) {
        self.at(position).body.lock().unanswered = None;
        // Not below what the slot's earlier positions had reached.
        self.at(position).executed.store(position.prev().0, Ordering::SeqCst);
    }
}

fn weight_of(unresolved: u32) -> Weight {
    if unresolved & HEAVY == 0 { Weight::Light } else { Weight::Heavy }
}
