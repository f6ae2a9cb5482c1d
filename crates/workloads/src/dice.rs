//! Seeded randomness for generators and loaders.

use rand::{Rng, SeedableRng};
use rand_distr::Distribution;
use rand_distr::weighted::WeightedAliasIndex;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use txn::hash::mix;

/// A stream of random draws: the same seed and stream number give the same draws on every machine.
#[derive(Clone, Debug)]
pub struct Dice(Xoshiro256PlusPlus);

impl Dice {
    /// The stream number `stream` of `seed`. Streams of one seed are independent.
    pub fn new(seed: u64, stream: u64) -> Dice {
        Dice(Xoshiro256PlusPlus::seed_from_u64(mix(seed ^ mix(stream.wrapping_add(1)))))
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
        debug_assert!(bound >= out.len() as u64, "too few numbers to be all different");
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

/// How many of the hottest numbers [`Skew`] draws from a table.
const HEAD: u64 = 1 << 14;

/// Numbers below a bound whose frequency falls with their rank: number `r` is drawn in proportion to
/// `1 / (r + 1)^theta`.
///
/// The hottest numbers, and "any other", come out of an alias table in constant time; another number is then
/// found by inverting the integral of `x^-theta`, each number standing for the unit interval around its rank.
/// There the integral over the interval and the density in its middle differ by
/// `theta * (theta + 1) / 24 / HEAD^2` of their size, which is below one in a hundred million for any theta
/// that is used: less than what a test can tell. (Rejection sampling, `rand_distr::Zipf`, is exact and took
/// ten times as long: more than executing the transaction.)
#[derive(Clone, Debug)]
pub enum Skew {
    /// `theta` is 0.
    Uniform(u64),
    /// Any other `theta`.
    Zipf(Arc<ZipfTable>),
}

/// The precomputed part of a skewed distribution.
#[derive(Debug)]
pub struct ZipfTable {
    head: WeightedAliasIndex<f64>,
    head_size: u64,
    bound: u64,
    tail: Tail,
}

/// The distribution of the ranks beyond the table, between `low` and `low + span` on the scale of the
/// integral.
#[derive(Clone, Copy, Debug)]
enum Tail {
    /// The integral is `x^exponent / exponent`.
    Power { exponent: f64, low: f64, span: f64 },
    /// The integral is `ln x`.
    Logarithm { low: f64, span: f64 },
}

impl Tail {
    /// The ranks from `first` to `last`, which are the middles of unit intervals.
    fn new(first: u64, last: u64, theta: f64) -> Tail {
        let (from, to) = (first as f64 - 0.5, last as f64 + 0.5);
        let exponent = 1.0 - theta;
        if exponent.abs() < 1e-9 {
            return Tail::Logarithm { low: from.ln(), span: (to / from).ln() };
        }
        let low = from.powf(exponent);
        Tail::Power { exponent, low, span: to.powf(exponent) - low }
    }
    /// The sum of the weights of all ranks.
    fn weight(&self) -> f64 {
        match *self {
            Tail::Power { exponent, span, .. } => span / exponent,
            Tail::Logarithm { span, .. } => span,
        }
    }
    fn draw(&self, unit: f64) -> f64 {
        match *self {
            Tail::Power { exponent, low, span } => (low + unit * span).powf(1.0 / exponent),
            Tail::Logarithm { low, span } => (low + unit * span).exp(),
        }
    }
}

impl Skew {
    /// The distribution over `bound` numbers. `None` if there are no numbers, or if `theta` is negative or
    /// not finite.
    pub fn new(bound: u64, theta: f64) -> Option<Skew> {
        if bound == 0 || !theta.is_finite() || theta < 0.0 {
            return None;
        }
        if theta == 0.0 {
            return Some(Skew::Uniform(bound));
        }
        let head_size = bound.min(HEAD);
        let mut weights: Vec<f64> = (1..=head_size).map(|rank| (rank as f64).powf(-theta)).collect();
        let tail = Tail::new(head_size + 1, bound.max(head_size + 1), theta);
        if bound > head_size {
            weights.push(tail.weight());
        }
        let head = WeightedAliasIndex::new(weights).ok()?;
        Some(Skew::Zipf(Arc::new(ZipfTable { head, head_size, bound, tail })))
    }
    /// One number.
    #[inline]
    pub fn draw(&self, dice: &mut Dice) -> u64 {
        match self {
            Skew::Uniform(bound) => dice.below(*bound),
            Skew::Zipf(table) => table.draw(dice),
        }
    }
}

impl ZipfTable {
    fn draw(&self, dice: &mut Dice) -> u64 {
        let number = self.head.sample(&mut dice.0) as u64;
        if number < self.head_size {
            return number;
        }
        let unit = (dice.bits() >> 11) as f64 / (1u64 << 53) as f64;
        let rank = self.tail.draw(unit).round() as u64;
        rank.clamp(self.head_size + 1, self.bound) - 1
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
            let weights = |theta: f64| -> Vec<f64> { (1..=BOUND).map(|r| (r as f64).powf(-theta)).collect() };
            let fit = misfit(&counts, &weights(theta));
            assert!(fit < 1.6, "theta {theta}: misfit {fit} for a statistic that is about 1");
            assert!(
                misfit(&counts, &weights(theta + 0.05)) > 3.0,
                "the statistic tells theta {theta} from its neighbour"
            );
        }
        assert!(Skew::new(0, 0.5).is_none() && Skew::new(10, -1.0).is_none());
    }

    #[test]
    fn frequencies_fall_beyond_the_table_as_they_do_in_it() {
        // Ranks beyond the table are put into bins that are equally likely if the weights are right.
        const BOUND: u64 = 10 * HEAD;
        const BINS: usize = 64;
        for theta in [0.3, 0.99, 1.0, 1.5] {
            let weights: Vec<f64> = (1..=BOUND).map(|rank| (rank as f64).powf(-theta)).collect();
            let total: f64 = weights.iter().sum();
            let mut below = 0.0;
            let bin_of: Vec<usize> = weights
                .iter()
                .map(|weight| {
                    below += weight / total;
                    ((below * BINS as f64) as usize).min(BINS - 1)
                })
                .collect();
            let mut expected = vec![0.0; BINS];
            for (&bin, weight) in bin_of.iter().zip(&weights) {
                expected[bin] += weight;
            }
            let skew = Skew::new(BOUND, theta).expect("valid parameters");
            let mut dice = Dice::new(9, 0);
            let mut counts = vec![0; BINS];
            let mut beyond = 0;
            for _ in 0..300_000 {
                let number = skew.draw(&mut dice);
                counts[bin_of[number as usize]] += 1;
                beyond += u64::from(number >= HEAD);
            }
            let drawn: Vec<(u64, f64)> =
                counts.into_iter().zip(expected).filter(|(_, weight)| *weight > 0.0).collect();
            let (counts, expected): (Vec<u64>, Vec<f64>) = drawn.into_iter().unzip();
            assert!(beyond > 1_000, "theta {theta} leaves the table");
            let fit = misfit(&counts, &expected);
            assert!(fit < 1.8, "theta {theta}: misfit {fit} for a statistic that is about 1");
        }
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
