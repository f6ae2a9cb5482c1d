//! Final commit in order, and the undoing of what was retracted.

use super::TentativeOrder;
use crate::conservative::{Ended, Finals, Installed, final_commit};
use crate::engine::Committed;
use crate::exclusive::Exclusive;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Meta, Partition, RecordRef, View};
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// A worker that has left more records than this for later looks at them before it does anything else.
pub(crate) const SUPERSEDED_MAX: usize = 1024;

/// The slots of the transactions that were taken.
pub(crate) trait Executed {
    /// What the engine keeps in each record.
    type Meta: Meta;
    /// Whether a transaction that was taken has ended.
    fn is_executed(&self, position: Position) -> bool;
    /// Whether it may commit as well, if it is confirmed: it has its outcome.
    fn may_commit(&self, position: Position) -> bool {
        self.is_executed(position)
    }
    /// Takes out what a transaction that has ended leaves: none, or anything, if it was void.
    fn take_ended(&self, position: Position) -> Option<Ended<Self::Meta>>;
    /// Takes out the records that a transaction has written which is undone; none if it was void.
    fn take_undone(&self, position: Position) -> Installed<Self::Meta> {
        self.take_ended(position).map(|ended| ended.installed).unwrap_or_default()
    }
    /// A transaction is undone: its position may be taken again.
    fn free(&self, position: Position);
}

/// How transactions leave their slots.
pub(crate) struct Retirement<M> {
    committer: Exclusive<()>,
    undo: Exclusive<Undo<M>>,
    /// Something is undone, and not everything.
    is_undoing: AtomicBool,
    /// Transactions that had been executed before they were confirmed.
    speculated: AtomicU64,
}

impl<M> Default for Retirement<M> {
    fn default() -> Retirement<M> {
        Retirement {
            committer: Exclusive::default(),
            undo: Exclusive::new(Undo::default()),
            is_undoing: AtomicBool::new(false),
            speculated: AtomicU64::new(0),
        }
    }
}

/// How far the undoing of a retraction has come.
struct Undo<M> {
    /// Up to here every transaction that was taken has ended.
    ended: Position,
    /// From here on everything is undone, but for `records`; none if the undoing has not begun.
    undone: Option<Position>,
    /// Written at `undone`, where the versions are to be removed.
    records: Installed<M>,
}

impl<M> Default for Undo<M> {
    fn default() -> Undo<M> {
        Undo { ended: Position::NONE, undone: None, records: Installed::new() }
    }
}

/// What a step of [`Retirement`] works on.
pub(crate) struct Ground<'a, T, S: Executed> {
    pub(crate) partition: &'a Partition<S::Meta>,
    pub(crate) finals: &'a Finals,
    pub(crate) order: &'a TentativeOrder<T>,
    pub(crate) slots: &'a S,
}

impl<T, S: Executed> Ground<'_, T, S> {
    /// Whether the position behind the final one can final-commit.
    pub(crate) fn is_committable(&self) -> bool {
        let next = self.partition.final_position().next();
        next <= self.order.committable_upto() && self.slots.may_commit(next)
    }

    fn remove_version(&self, mut record: RecordRef<S::Meta>, position: Position) {
        if !is_active(Mutant::KeepRetracted) {
            self.partition.with(&mut record, |cell| cell.remove(position));
        }
    }

    /// Drops the versions that nobody needs any more behind those that have final-committed; whether there
    /// were records to look at.
    pub(crate) fn collect(&self, superseded: &mut Vec<RecordRef<S::Meta>>, left: &mut u32) -> bool {
        let before = superseded.len();
        let watermark = self.partition.snapshots().watermark();
        while *left > 0
            && let Some(mut record) = superseded.pop()
        {
            *left -= 1;
            self.partition.with(&mut record, |cell| cell.prune(watermark));
        }
        superseded.len() < before
    }
}

impl<M: Meta> Retirement<M> {
    /// Final-commits what can be; whether there was any. Adds to `superseded` the records in which there may
    /// be versions that nobody needs any more, for [`Ground::collect`].
    pub(crate) fn commit<T, S: Executed<Meta = M>>(
        &self,
        ground: &Ground<'_, T, S>,
        left: &mut u32,
        committed: &mut Vec<Committed>,
        superseded: &mut Vec<RecordRef<M>>,
    ) -> bool {
        let Ground { partition, finals, order, slots } = ground;
        *left > 0
            && ground.is_committable()
            && self.committer.step(|()| {
                let upto = order.committable_upto();
                let mut early = 0;
                let next = |at: Position| {
                    let next = at.next();
                    if *left == 0 || at >= upto || !slots.may_commit(next) {
                        return None;
                    }
                    // A confirmed one may have been taken back since, but it was so before it ended.
                    if order.is_void(next) {
                        return None;
                    }
                    let ended = slots.take_ended(at.next())?;
                    *left -= 1;
                    Some(ended)
                };
                let worked = final_commit(partition, finals, next, |ended| {
                    early += u64::from(ended.was_early);
                    committed.push(ended.committed);
                    superseded.extend(ended.installed);
                });
                self.speculated.fetch_add(early, Ordering::Relaxed);
                worked
            })
    }

    /// Undoes void transactions, once all that were taken have ended; whether it did anything. `resume` is
    /// told the last position that is left, before anything is taken behind it.
    pub(crate) fn undo<T, S: Executed<Meta = M>>(
        &self,
        ground: &Ground<'_, T, S>,
        left: &mut u32,
        resume: impl Fn(Position),
    ) -> bool {
        ground.order.has_void()
            && self.undo.step(|undo| {
                let worked = undo.step(ground, left, &resume);
                self.is_undoing.store(undo.undone.is_some(), Ordering::SeqCst);
                worked
            })
    }

    /// How many transactions had been executed before they were confirmed.
    pub(crate) fn speculated(&self) -> u64 {
        self.speculated.load(Ordering::Relaxed)
    }

    /// Whether there is something void, and nothing to be done before it can be undone.
    pub(crate) fn is_undo_due<T, S: Executed<Meta = M>>(&self, ground: &Ground<'_, T, S>) -> bool {
        let Ground { partition, order, slots, .. } = ground;
        let have_ended = || {
            let first = partition.final_position().next();
            (first.0..=order.taken().0).all(|position| slots.is_executed(Position(position)))
        };
        order.has_void() && (self.is_undoing.load(Ordering::SeqCst) || have_ended())
    }
}

impl<M: Meta> Undo<M> {
    fn step<T, S: Executed<Meta = M>>(
        &mut self,
        ground: &Ground<'_, T, S>,
        left: &mut u32,
        resume: &impl Fn(Position),
    ) -> bool {
        let Ground { partition, order, slots, .. } = ground;
        if !order.has_void() {
            return false;
        }
        // To be read after that: nothing is taken while there is something void.
        let taken = order.taken();
        let mut undone = match self.undone {
            Some(undone) => undone,
            None => {
                self.ended = self.ended.max(partition.final_position());
                while self.ended < taken && slots.is_executed(self.ended.next()) {
                    self.ended = self.ended.next();
                }
                if self.ended < taken {
                    return false;
                }
                taken.next()
            }
        };
        while *left > 0 {
            *left -= 1;
            if let Some(record) = self.records.pop() {
                ground.remove_version(record, undone);
                continue;
            }
            if order.is_void(undone.prev()) {
                undone = undone.prev();
                self.records = slots.take_undone(undone);
                slots.free(undone);
                continue;
            }
            // More may have become void meanwhile.
            if order.resume(undone, || resume(undone.prev())) {
                *self = Undo::default();
                return true;
            }
        }
        self.undone = Some(undone);
        true
    }
}
