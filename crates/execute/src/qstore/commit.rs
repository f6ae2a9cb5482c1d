//! Final commit in order, and the undoing of what was retracted.

use super::{NOTHING_VOID, Shared};
use crate::conservative::LiveChange;
use crate::engine::Committed;
use smallvec::SmallVec;
use store::sync::atomic::Ordering;
use store::{Final, View};
use txn::mutant::{Mutant, is_active};
use txn::{Key, Position};

/// How far the undoing of a retraction has come.
#[derive(Default)]
pub(super) struct Undo {
    /// Up to here every planned transaction has ended.
    ended: Position,
    /// From here on everything is undone; none if the undoing has not begun.
    undone: Option<Position>,
    /// Written by the position before, and to be removed.
    keys: SmallVec<[Key; 2]>,
}

impl Shared {
    /// The last position that may final-commit.
    fn committable_upto(&self) -> Position {
        // In this order: see `void_from`.
        let confirmed = self.confirmed.load(Ordering::SeqCst);
        Position(confirmed.min(self.void_from.load(Ordering::SeqCst).saturating_sub(1)))
    }

    /// Whether the position behind the final one can final-commit.
    pub(super) fn is_committable(&self) -> bool {
        let next = self.partition.final_position().next();
        next <= self.committable_upto() && self.slots.is_executed(next)
    }

    /// Final-commits what can be; whether there was any.
    pub(super) fn commit(&self, left: &mut u32, committed: &mut Vec<Committed>) -> bool {
        *left > 0
            && self.is_committable()
            && self.committer.step(|()| {
                let upto = self.committable_upto();
                let mut at = self.partition.published();
                let before = at.position;
                let mut digest = self.partition.digests().run();
                while *left > 0
                    && at.position < upto
                    && self.slots.is_executed(at.position.next())
                    && let Some(ended) = self.slots.take_ended(at.position.next())
                {
                    *left -= 1;
                    let live = match ended.live {
                        LiveChange::By(change) => at.live + change,
                        LiveChange::To(live) => live,
                    };
                    digest.add(ended.committed.position, ended.terms);
                    at = Final { position: ended.committed.position, time_ms: ended.now_ms, live };
                    if let Some(member) = &ended.member {
                        self.finals.settle(member);
                    }
                    committed.push(ended.committed);
                }
                drop(digest);
                if at.position != before {
                    self.partition.publish(at);
                    self.partition.snapshots().raise(at.position);
                }
                at.position != before
            })
    }

    /// Whether there is something void, and nothing to be done before it can be undone.
    pub(super) fn is_undo_due(&self) -> bool {
        self.void_from.load(Ordering::SeqCst) != NOTHING_VOID
            && self.slots.is_executed(Position(self.planned.load(Ordering::SeqCst)))
    }

    /// Undoes void transactions, once all planned ones have ended; whether it did anything.
    pub(super) fn undo(&self, left: &mut u32) -> bool {
        self.void_from.load(Ordering::SeqCst) != NOTHING_VOID
            && self.undo.step(|undo| self.undo_some(undo, left))
    }

    fn undo_some(&self, undo: &mut Undo, left: &mut u32) -> bool {
        if self.void_from.load(Ordering::SeqCst) == NOTHING_VOID {
            return false;
        }
        // To be read after that: nothing is planned while there is something void.
        let planned = Position(self.planned.load(Ordering::SeqCst));
        let mut undone = match undo.undone {
            Some(undone) => undone,
            None => {
                undo.ended = undo.ended.max(self.partition.final_position());
                while undo.ended < planned && self.slots.is_executed(undo.ended.next()) {
                    undo.ended = undo.ended.next();
                }
                if undo.ended < planned {
                    return false;
                }
                planned.next()
            }
        };
        while *left > 0 {
            *left -= 1;
            if let Some(key) = undo.keys.pop() {
                self.remove_version(&key, undone);
                continue;
            }
            if undone.0 > self.void_from.load(Ordering::SeqCst) {
                undone = undone.prev();
                undo.keys = self.slots.take_ended(undone).map(|ended| ended.installed).unwrap_or_default();
                self.slots.free(undone);
                continue;
            }
            let _planning = self.planning.lock();
            // It may have been lowered meanwhile.
            if undone.0 == self.void_from.load(Ordering::SeqCst) {
                self.planned.store(undone.prev().0, Ordering::SeqCst);
                self.void_from.store(NOTHING_VOID, Ordering::SeqCst);
                *undo = Undo::default();
                return true;
            }
        }
        undo.undone = Some(undone);
        true
    }

    fn remove_version(&self, key: &Key, position: Position) {
        if is_active(Mutant::KeepRetracted) {
            return;
        }
        if let Some(mut record) = self.partition.get(key) {
            self.partition.with(&mut record, |cell| cell.versions.remove(position));
        }
    }
}
