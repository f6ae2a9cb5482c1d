//! Seeded choices, and which seeds a randomized test runs.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A stream of choices that depends on its seed only.
#[derive(Clone, Debug)]
pub struct Draw(Xoshiro256PlusPlus);

impl Draw {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(Xoshiro256PlusPlus::seed_from_u64(seed))
    }
    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A number below `bound` (0 if `bound` is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product: biased by less than 2^-32 for the small bounds of a test.
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }
    /// True in `percent` of 100 cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }
    /// True in `permille` of 1000 cases.
    pub fn permille(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }
    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
    /// An index, each as likely as its weight.
    pub fn weighted(&mut self, weights: impl Iterator<Item = u32> + Clone) -> usize {
        let total: u64 = weights.clone().map(u64::from).sum();
        let mut left = self.below(total);
        for (index, weight) in weights.enumerate() {
            if left < u64::from(weight) {
                return index;
            }
            left -= u64::from(weight);
        }
        0
    }
}

/// The seeds of a randomized test: `ORDO_SEED` alone if it is set; else `ORDO_SEEDS` of them, or
/// `default_count`, counted from `ORDO_FIRST_SEED` (1).
pub fn seeds(default_count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("ORDO_SEED") {
        return seed..seed + 1;
    }
    let first = number("ORDO_FIRST_SEED").unwrap_or(1);
    first..first + number("ORDO_SEEDS").unwrap_or(default_count)
}

/// Whether `ORDO_SEED` asks for one seed only: then a test can't expect to meet everything that it is about.
pub fn one_seed() -> bool {
    std::env::var_os("ORDO_SEED").is_some()
}

/// Whether `ORDO_TRACE` asks for every event of a run on stderr.
pub fn tracing() -> bool {
    std::env::var_os("ORDO_TRACE").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_fixes_the_stream_and_bounds_hold() {
        let (mut a, mut b) = (Draw::new(7), Draw::new(7));
        for bound in 1..500 {
            assert_eq!(a.below(bound), b.below(bound));
            assert!(a.between(3, 3 + bound) <= 3 + b.below(1) + bound);
            b = a.clone();
        }
        let counts = (0..3000).fold([0; 3], |mut counts, _| {
            counts[a.weighted([1, 0, 2].into_iter())] += 1;
            counts
        });
        assert!(counts[1] == 0 && counts[0] > 800 && counts[2] > 1700, "{counts:?}");
    }
}
