//! What those engines share that execute delivered transactions before they are confirmed, each in a slot of
//! its own, and undo all at once what is retracted: [`crate::qstore`] and [`crate::parspec`].
//!
//! Workers *take* transactions from the delivered part of the order ([`TentativeOrder`]). `retract(from)`
//! makes those that were taken from `from` on *void*. Nothing is taken while there are void ones. A void
//! transaction ends like any other, but its procedure does not run any more, and it leaves nothing. When
//! every transaction that was taken has ended, a worker undoes the void ones, from the last position on
//! backwards, and workers take what was delivered meanwhile ([`Retirement`]). So nothing that refers to a
//! void transaction (a counter, a waiter, a place in a queue) needs repair.
//!
//! # Invariants
//! - `final <= confirmed`, and `final <= executed prefix <= taken <= delivered`, but for what is void.
//! - A slot is used again only when its position has final-committed or was undone.

mod retirement;

pub(crate) use retirement::{Executed, Ground, Retirement, SUPERSEDED_MAX};

use crate::conservative::{Finals, Job, Order};
use crate::engine::Status;
use crossbeam_utils::CachePadded;
use std::collections::VecDeque;
use std::ops::Range;
use store::sync::Mutex;
use store::sync::atomic::{AtomicU64, Ordering};
use store::{Meta, Partition};
use txn::mutant::{Mutant, is_active};
use txn::{Batch, Position};

/// No position is void.
const NOTHING_VOID: u64 = u64::MAX;

/// The order as it was delivered: how far it is taken and confirmed, and what of it is void.
///
/// `T` is what an engine decides while it takes.
#[derive(Default)]
pub(crate) struct TentativeOrder<T> {
    /// Delivered and not yet taken.
    order: Order,
    delivered: CachePadded<AtomicU64>,
    /// The last position that was taken. Changed under the latch of `taking`.
    taken: CachePadded<AtomicU64>,
    confirmed: CachePadded<AtomicU64>,
    /// The first void position. Changed under the latch of `taking`. Readers read `confirmed` first:
    /// `confirm` may name a new batch while the void one at its positions is not undone yet.
    void_from: CachePadded<VoidFrom>,
    taking: CachePadded<Mutex<T>>,
}

/// A position, or [`NOTHING_VOID`].
struct VoidFrom(AtomicU64);

impl Default for VoidFrom {
    fn default() -> VoidFrom {
        VoidFrom(AtomicU64::new(NOTHING_VOID))
    }
}

impl<T> TentativeOrder<T> {
    pub(crate) fn deliver(&self, batch: Batch, finals: &Finals) {
        let (first, last) = (batch.first, batch.end().prev());
        self.order.deliver(batch, finals);
        if [&self.delivered, &self.taken].iter().all(|position| position.load(Ordering::SeqCst) == 0) {
            // The first batch ever: the store may have been loaded.
            self.taken.store(first.prev().0, Ordering::SeqCst);
        }
        self.delivered.store(last.0, Ordering::SeqCst);
    }

    /// All positions up to this one are final.
    pub(crate) fn confirm(&self, upto: Position) {
        self.order.confirm(upto);
        self.confirmed.fetch_max(upto.0, Ordering::SeqCst);
    }

    pub(crate) fn retract(&self, from: Position, finals: &Finals) {
        let _taking = self.taking.lock();
        self.order.retract(from, finals);
        self.delivered.fetch_min(from.prev().0, Ordering::SeqCst);
        if from <= self.taken() {
            self.void_from.0.fetch_min(from.0, Ordering::SeqCst);
        }
    }

    /// Whether a position is final, so that no retraction can reach it.
    pub(crate) fn is_confirmed(&self, position: Position) -> bool {
        position.0 <= self.confirmed.load(Ordering::SeqCst) && !self.is_void(position)
    }

    /// Whether a position that was taken has been retracted.
    pub(crate) fn is_void(&self, position: Position) -> bool {
        position.0 >= self.void_from.0.load(Ordering::SeqCst)
    }

    /// Whether there is something void.
    pub(crate) fn has_void(&self) -> bool {
        self.void_from.0.load(Ordering::SeqCst) != NOTHING_VOID
    }

    /// The last position that may final-commit.
    fn committable_upto(&self) -> Position {
        // In this order: see `void_from`.
        let confirmed = match is_active(Mutant::CommitUnconfirmed) {
            true => self.taken().0,
            false => self.confirmed.load(Ordering::SeqCst),
        };
        Position(confirmed.min(self.void_from.0.load(Ordering::SeqCst).saturating_sub(1)))
    }

    /// The last position that was taken.
    pub(crate) fn taken(&self) -> Position {
        Position(self.taken.load(Ordering::SeqCst))
    }

    /// How many delivered transactions can be taken now, up to a position.
    pub(crate) fn takeable(&self, upto: Position) -> u64 {
        if self.has_void() {
            return 0;
        }
        self.delivered.load(Ordering::SeqCst).min(upto.0).saturating_sub(self.taken().0)
    }

    /// Takes some transactions, in order. `count` is told how many there are, and says how many at most;
    /// `fits` may refuse one, and with it all behind it. `decide` is called once, before another worker takes
    /// any, and is told what was taken.
    pub(crate) fn take<R>(
        &self,
        jobs: &mut VecDeque<Job>,
        upto: impl Fn() -> Position,
        count: impl FnOnce(u64) -> usize,
        fits: impl FnMut(usize, &mut Job) -> bool,
        decide: impl FnOnce(&mut T, &VecDeque<Job>) -> R,
    ) -> Option<R> {
        if self.takeable(upto()) == 0 {
            return None;
        }
        let mut taking = self.taking.lock();
        // An undoing that ended meanwhile may have lowered it.
        let takeable = self.takeable(upto());
        self.order.take_delivered(count(takeable).min(takeable as usize), jobs, fits);
        let last = jobs.back()?.context.position;
        self.taken.store(last.0, Ordering::SeqCst);
        Some(decide(&mut taking, jobs))
    }

    /// Takes back what was taken from a position on, to be undone and taken again: the transaction there has
    /// turned out to be another than it was taken for. `jobs` gives what was taken and is not void; it is
    /// told which positions these are. Nothing happens if the position is void already.
    pub(crate) fn take_back(
        &self,
        from: Position,
        jobs: impl FnOnce(&mut T, Range<Position>) -> VecDeque<Job>,
    ) {
        let mut taking = self.taking.lock();
        let void_from = self.void_from.0.load(Ordering::SeqCst);
        if from.0 >= void_from {
            return;
        }
        let end = Position(void_from.min(self.taken().next().0));
        self.order.put_back(jobs(&mut taking, from..end));
        self.void_from.0.store(from.0, Ordering::SeqCst);
    }

    /// Everything from a position on is undone, and `resume` is called: then taking goes on there. False if
    /// more has become void.
    fn resume(&self, undone: Position, resume: impl FnOnce()) -> bool {
        let _taking = self.taking.lock();
        if undone.0 != self.void_from.0.load(Ordering::SeqCst) {
            return false;
        }
        resume();
        self.taken.store(undone.prev().0, Ordering::SeqCst);
        self.void_from.0.store(NOTHING_VOID, Ordering::SeqCst);
        true
    }

    /// How far the order has come.
    pub(crate) fn status(&self, partition: &Partition<impl Meta>) -> Status {
        self.order.status(partition)
    }
}
