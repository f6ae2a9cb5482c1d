//! Random choices that every replica and every incarnation makes alike.

use std::collections::BTreeSet;
use txn::Tx;
use txn::hash::mix;

/// Up to this size, all places are shuffled, however few are wanted.
const SHUFFLED_MAX: usize = 64;

/// The most that one call may draw with repetition. Redis allows as many as its memory holds; a transaction
/// that every replica runs must be shorter.
pub const REPEATED_MAX: i64 = 1 << 20;

/// Collects draws: at most `count`. The list does not grow step by step, which would
/// move a million draws twenty times.
pub fn collected<T>(count: usize, draws: impl Iterator<Item = T>) -> Vec<T> {
    let mut list = Vec::with_capacity(count);
    list.extend(draws);
    list
}

/// A generator seeded by the transaction.
pub struct Chance {
    state: u64,
}

impl Chance {
    /// The generator of a transaction.
    pub fn of(tx: &Tx) -> Chance {
        Chance { state: tx.seed() }
    }
    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        // SplitMix64: `mix` adds the increment itself.
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits
    }
    /// Places of a collection of `len`, which must not be 0: `count` distinct ones, or all in order if there
    /// are not more; or, if it is negative, as many as its absolute says, some perhaps several times.
    pub fn places(&mut self, len: usize, count: i64) -> Vec<usize> {
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        if count < 0 {
            return (0..wanted).map(|_| self.below(len)).collect();
        }
        if wanted >= len {
            return (0..len).collect();
        }
        if wanted * 3 > len || len <= SHUFFLED_MAX {
            let mut all: Vec<usize> = (0..len).collect();
            for at in 0..wanted {
                let other = at + self.below(len - at);
                all.swap(at, other);
            }
            all.truncate(wanted);
            return all;
        }
        let mut seen = BTreeSet::new();
        let drawn = std::iter::repeat_with(|| self.below(len));
        drawn.filter(|&place| seen.insert(place)).take(wanted).collect()
    }
    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}
