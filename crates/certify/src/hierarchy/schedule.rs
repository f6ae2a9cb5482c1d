//! When a site looks again at what is under way at the validators that it speaks for.

use std::collections::{BTreeMap, BTreeSet};
use txn::{PartitionId, RequestId};

/// A speaker says again what has had no effect after so many ticks, and then after twice as many.
pub(super) const AGAIN_TICKS: u64 = 20;
/// At last it says it again at this interval.
pub(super) const AGAIN_TICKS_MAX: u64 = 4 * AGAIN_TICKS;

/// A transaction at a validator.
pub(super) type Place = (PartitionId, RequestId);

/// The transactions to look at, by the tick of the next look.
///
/// Invariant: `by_tick` has the places of `dues`, each at its `tick`.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    dues: BTreeMap<Place, Due>,
    by_tick: BTreeSet<(u64, Place)>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    since_tick: u64,
    tick: u64,
    wait_ticks: u64,
}

impl Schedule {
    /// A transaction is under way from now on, unless it was before.
    pub fn add(&mut self, place: Place, now_tick: u64) {
        self.dues.entry(place).or_insert_with(|| {
            let tick = now_tick + AGAIN_TICKS;
            self.by_tick.insert((tick, place));
            Due { since_tick: now_tick, tick, wait_ticks: AGAIN_TICKS }
        });
    }

    /// The next place to look at, if it is time, and for how many ticks the transaction has been under way
    /// there. The place is due again later.
    pub fn next(&mut self, now_tick: u64) -> Option<(Place, u64)> {
        let &(tick, place) = self.by_tick.first().filter(|(tick, _)| *tick <= now_tick)?;
        self.by_tick.remove(&(tick, place));
        let due = self.dues.get_mut(&place)?;
        due.wait_ticks = (2 * due.wait_ticks).min(AGAIN_TICKS_MAX);
        due.tick = now_tick + due.wait_ticks;
        self.by_tick.insert((due.tick, place));
        Some((place, now_tick - due.since_tick))
    }

    /// A transaction is over.
    pub fn remove(&mut self, place: Place) {
        if let Some(due) = self.dues.remove(&place) {
            self.by_tick.remove(&(due.tick, place));
        }
    }

    /// This site speaks for a validator no longer, or anew.
    pub fn remove_all_of(&mut self, validator: PartitionId) {
        self.dues.retain(|(of, _), _| *of != validator);
        self.by_tick.retain(|(_, (of, _))| *of != validator);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_looked_at_at_longer_intervals_up_to_a_bound() {
        let mut schedule = Schedule::default();
        let place = (PartitionId(1), RequestId::default());
        schedule.add(place, 3);
        let mut looks = Vec::new();
        for tick in 3..400 {
            schedule.add(place, tick);
            while let Some((at, for_ticks)) = schedule.next(tick) {
                assert_eq!((at, for_ticks), (place, tick - 3));
                looks.push(for_ticks);
            }
        }
        assert_eq!(looks, [20, 60, 140, 220, 300, 380]);
        schedule.remove(place);
        assert_eq!(schedule.next(1_000), None);
        schedule.add(place, 1_000);
        schedule.remove_all_of(PartitionId(1));
        assert_eq!(schedule.next(2_000), None);
    }
}
