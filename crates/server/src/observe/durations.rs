//! How long things took, in a histogram of fixed bounds that any thread may read while others add to it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the histogram's buckets, in nanoseconds: 50 µs to 10 s. What took longer is counted
/// without a bound.
pub const BOUNDS_NS: [u64; 16] = [
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

/// How often something took how long, at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DurationCounts {
    /// For each of [`BOUNDS_NS`], how many took no longer and longer than the bound before; then those that
    /// took longer than all.
    pub buckets: [u64; BOUNDS_NS.len() + 1],
    /// How long all took together, in seconds.
    pub sum_s: f64,
}

/// The same while it grows.
#[derive(Default)]
pub struct Durations {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Durations {
    /// Something took so long.
    pub fn add(&self, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|&bound_ns| bound_ns < ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// What was added so far.
    pub fn counts(&self) -> DurationCounts {
        DurationCounts {
            buckets: std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed)),
            sum_s: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket() {
        let durations = Durations::default();
        for ns in [0, 50_000, 50_001, 10_000_000_000, 10_000_000_001] {
            durations.add(Duration::from_nanos(ns));
        }
        let counts = durations.counts();
        assert_eq!(
            (counts.buckets[0], counts.buckets[1], counts.buckets[15], counts.buckets[16]),
            (2, 1, 1, 1)
        );
        assert!((counts.sum_s - 20.000_100_002).abs() < 1e-9, "{}", counts.sum_s);
    }
}
