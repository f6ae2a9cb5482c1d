//! Which slots move, so that all partitions have about as many keys.
//!
//! A move stops its two partitions for as long as one of them takes to look through its keys and the other
//! one to write those that it gets, so it should be neither one of many small ones nor a single large one.
//! Slots move from the end of a range, so that the ranges stay few.

use std::collections::{BTreeMap, BTreeSet};

/// About how many keys one move takes along at most.
const MOVE_KEYS_MAX: u64 = 20_000;
/// A partition that has this much more than its share, of a hundred, keeps it: evening it out would move more
/// than it mends.
const TOLERANCE_PERCENT: u64 = 2;

/// A partition, as the plan sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its slots: first and last of each range.
    pub slots: Vec<(u16, u16)>,
    /// How many keys its slots have, those that have any.
    pub keys: BTreeMap<u16, u64>,
}

/// A move: first and last slot, from whom, to whom, and about how many keys go along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// The first slot.
    pub first: u16,
    /// The last slot.
    pub last: u16,
    /// Who has them.
    pub from: u16,
    /// Who gets them.
    pub to: u16,
    /// How many keys they have now.
    pub keys: u64,
}

impl Holding {
    /// Its slots, from the last one to the first.
    fn backwards(&self) -> impl Iterator<Item = u16> + '_ {
        let ranges = self.slots.iter().rev();
        ranges.flat_map(|&(first, last)| (first..=last).rev())
    }

    fn keys_of(&self, slot: u16) -> u64 {
        self.keys.get(&slot).copied().unwrap_or(0)
    }
}

/// The moves that give all partitions, by their numbers, about as many keys; and about as many slots if there
/// are no keys.
pub fn plan(holdings: &[Holding]) -> Vec<Move> {
    let has_keys = holdings.iter().any(|holding| !holding.keys.is_empty());
    let weight = |holding: &Holding, slot| match has_keys {
        true => holding.keys_of(slot),
        false => 1,
    };
    let mut loads: Vec<u64> =
        holdings.iter().map(|holding| holding.backwards().map(|slot| weight(holding, slot)).sum()).collect();
    let share = loads.iter().sum::<u64>() / holdings.len().max(1) as u64;
    let tolerance = share * TOLERANCE_PERCENT / 100;
    let mut moves: Vec<Move> = Vec::new();
    let mut settled = BTreeSet::new();
    // Who has most gives to who has least, one after the other.
    loop {
        let open = (0..loads.len()).filter(|at| !settled.contains(at));
        let Some(from) = open.max_by_key(|&at| loads[at]) else {
            return moves;
        };
        settled.insert(from);
        let holding = &holdings[from];
        let mut taker = None;
        for slot in holding.backwards() {
            if loads[from] <= share + tolerance {
                break;
            }
            let weight = weight(holding, slot);
            // One gets all that it lacks before the next one does: in few ranges.
            let least = || (0..loads.len()).min_by_key(|&at| loads[at]);
            taker = taker.filter(|&to: &usize| loads[to] < share).or_else(least);
            // What nobody could take without having more than the giver stays.
            let fits = |&to: &usize| to != from && loads[to] + weight < loads[from];
            let Some(to) = taker.filter(fits) else {
                continue;
            };
            loads[from] -= weight;
            loads[to] += weight;
            add(&mut moves, slot, (from as u16, to as u16), holding.keys_of(slot));
        }
    }
}

/// Adds a slot to the last move, if it goes on there, or else as a move by itself.
fn add(moves: &mut Vec<Move>, slot: u16, (from, to): (u16, u16), keys: u64) {
    if let Some(last) = moves.last_mut()
        && (last.from, last.to) == (from, to)
        && slot.checked_add(1) == Some(last.first)
        && last.keys + keys <= MOVE_KEYS_MAX
    {
        last.first = slot;
        last.keys += keys;
        return;
    }
    moves.push(Move { first: slot, last: slot, from, to, keys });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holding(slots: &[(u16, u16)], keys: impl IntoIterator<Item = (u16, u64)>) -> Holding {
        Holding { slots: slots.to_vec(), keys: keys.into_iter().collect() }
    }

    /// How many keys, or slots if there are none, each partition has after the moves.
    fn after(holdings: &[Holding], moves: &[Move]) -> Vec<u64> {
        let has_keys = holdings.iter().any(|holding| !holding.keys.is_empty());
        let mut owner = BTreeMap::new();
        for (at, holding) in holdings.iter().enumerate() {
            owner.extend(holding.backwards().map(|slot| (slot, at as u16)));
        }
        for moved in moves {
            let mut keys = 0;
            for slot in moved.first..=moved.last {
                assert_eq!(owner.insert(slot, moved.to), Some(moved.from));
                keys += holdings[usize::from(moved.from)].keys_of(slot);
            }
            assert_eq!(keys, moved.keys, "{moved:?}");
        }
        let mut loads = vec![0; holdings.len()];
        for (slot, owner) in owner {
            let keys: u64 = holdings.iter().map(|holding| holding.keys_of(slot)).sum();
            loads[usize::from(owner)] += if has_keys { keys } else { 1 };
        }
        loads
    }

    #[test]
    fn what_is_even_stays() {
        let even = [
            holding(&[(0, 99)], (0..100).map(|slot| (slot, 10))),
            holding(&[(100, 199)], (100..200).map(|slot| (slot, 10))),
        ];
        assert_eq!(plan(&even), []);
        assert_eq!(plan(&[holding(&[(0, 9)], [(1, 5)])]), []);
        assert_eq!(plan(&[]), []);
    }

    #[test]
    fn an_empty_partition_gets_its_share_in_few_ranges() {
        let three = [
            holding(&[(0, 499)], (0..500).map(|slot| (slot, 4))),
            holding(&[(500, 999)], (500..1000).map(|slot| (slot, 4))),
            Holding::default(),
        ];
        let moves = plan(&three);
        assert!(moves.len() <= 3, "{moves:?}");
        let loads = after(&three, &moves);
        let spread = loads.iter().max().unwrap_or(&0) - loads.iter().min().unwrap_or(&0);
        assert!(spread <= 4_000 / 3 * 6 / 100, "{loads:?}");
    }

    #[test]
    fn without_keys_slots_are_evened_out() {
        let two = [holding(&[(0, 16_383)], []), Holding::default()];
        let loads = after(&two, &plan(&two));
        assert!(loads[0].abs_diff(loads[1]) <= 400, "{loads:?}");
    }

    #[test]
    fn no_move_is_large_and_a_slot_that_is_too_large_for_everybody_stays() {
        let heavy =
            [holding(&[(0, 9)], (0..10).map(|slot| (slot, 15_000))), holding(&[(10, 10)], [(10, 100)])];
        let moves = plan(&heavy);
        assert!(moves.iter().all(|moved| moved.keys <= MOVE_KEYS_MAX), "{moves:?}");
        assert_eq!(after(&heavy, &moves), [75_000, 75_100]);
        let single = [holding(&[(0, 9)], [(5, 1_000_000)]), holding(&[(10, 19)], [])];
        assert!(plan(&single).iter().all(|moved| !(moved.first..=moved.last).contains(&5)));
    }
}
