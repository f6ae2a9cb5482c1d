//! Random choices that every replica and every incarnation makes alike.

use txn::Tx;
use txn::hash::mix;

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
    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.bits()) * bound as u128) >> 64) as usize
    }
}
