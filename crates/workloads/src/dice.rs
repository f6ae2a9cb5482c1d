//! Seeded randomness for generators and loaders.

use rand::{Rng, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use txn::hash::mix;

/// A stream of random draws: the same seed and stream number give the same draws on every machine.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// The stream number `stream` of `seed`. Streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(mix(
            seed ^ mix(stream.wrapping_add(1))
        )))
    }
    /// 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A uniform number below `bound`, which is not 0. The bias is below `bound / 2^64`.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        debug_assert!(bound > 0, "there is no number below 0");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
    /// A uniform number of `low..=high`.
    #[inline]
    pub fn between(&mut self, low: u32, high: u32) -> u32 {
        debug_assert!(low <= high, "an empty range has no numbers");
        low + self.below(u64::from(high - low) + 1) as u32
    }
    /// True with a probability of `percent` in 100.
    #[inline]
    pub fn percent(&mut self, percent: u32) -> bool {
        self.below(100) < u64::from(percent)
    }
    /// Fills `out` with different numbers below `bound`, which is at least the length of `out`.
    pub fn distinct(&mut self, bound: u64, out: &mut [u32]) {
        debug_assert!(
            bound >= out.len() as u64,
            "too few numbers to be all different"
        );
        for filled in 0..out.len() {
            out[filled] = loop {
                let candidate = self.below(bound) as u32;
                if !out[..filled].contains(&candidate) {
                    break candidate;
                }
            };
        }
    }
    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Numbers below a bound whose frequency falls with their rank: number `r` is drawn in proportion to `1 / (r + 1)^theta`.
#[derive(Clone, Copy, Debug)]
pub enum Skew {
    /// `theta` is 0.
    Uniform(u64),
    /// Any other `theta`.
    Zipf(Zipf<f64>),
}

impl Skew {
    /// The distribution over `bound` numbers. `None` if there are no numbers, or if `theta` is negative or infinite.
    pub fn new(bound: u64, theta: f64) -> Option<Skew> {
        if bound == 0 || !theta.is_finite() {
            return None;
        }
        if theta == 0.0 {
            return Some(Skew::Uniform(bound));
        }
        Zipf::new(bound as f64, theta).ok().map(Skew::Zipf)
    }
    /// One number.
    #[inline]
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        match self {
            Skew::Uniform(bound) => dice.below(*bound),
            Skew::Zipf(zipf) => zipf.sample(&mut dice.0) as u64 - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pearson's statistic per degree of freedom: about 1 if `counts` were drawn with `weights`.
    fn misfit(counts: &[u64], weights: &[f64]) -> f64 {
        let draws = counts.iter().sum::<u64>() as f64;
        let total: f64 = weights.iter().sum();
        let statistic: f64 = counts
            .iter()
            .zip(weights)
            .map(|(&count, weight)| {
                let expected = draws * weight / total;
                (count as f64 - expected).powi(2) / expected
            })
            .sum();
        statistic / (counts.len() - 1) as f64
    }

    #[test]
    fn zipf_frequencies_fall_with_the_rank_as_theta_says() {
        const BOUND: usize = 100;
        for theta in [0.0, 0.5, 0.9, 0.99, 1.0, 1.2] {
            let skew = Skew::new(BOUND as u64, theta).expect("valid parameters");
            let mut dice = Dice::new(7, 0);
            let mut counts = vec![0; BOUND];
            for _ in 0..200_000 {
                counts[skew.draw(&mut dice) as usize] += 1;
            }
            let weights =
                |theta: f64| -> Vec<f64> { (1..=BOUND).map(|r| (r as f64).powf(-theta)).collect() };
            let fit = misfit(&counts, &weights(theta));
            assert!(
                fit < 1.6,
                "theta {theta}: misfit {fit} for a statistic that is about 1"
            );
            assert!(
                misfit(&counts, &weights(theta + 0.05)) > 3.0,
                "the statistic tells theta {theta} from its neighbour"
            );
        }
        assert!(Skew::new(0, 0.5).is_none() && Skew::new(10, -1.0).is_none());
    }

    #[test]
    fn numbers_below_a_bound_are_uniform_and_streams_differ() {
        let mut dice = Dice::new(1, 0);
        let mut counts = vec![0; 37];
        for _ in 0..100_000 {
            counts[dice.below(37) as usize] += 1;
        }
        assert!(misfit(&counts, &[1.0; 37]) < 2.0);
        assert_ne!(Dice::new(1, 0).bits(), Dice::new(1, 1).bits());
        assert_ne!(Dice::new(1, 0).bits(), Dice::new(2, 0).bits());
    }

    #[test]
    fn distinct_numbers_are_distinct_even_if_all_are_needed() {
        let mut out = [0; 8];
        Dice::new(3, 0).distinct(8, &mut out);
        out.sort_unstable();
        assert_eq!(out, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
