//! The estimate of a cardinality from a histogram of runs: the improved raw estimator (algorithm 6) of Otmar
//! Ertl, "New cardinality estimation algorithms for HyperLogLog sketches", arXiv:1702.01284.
//!
//! The order of the operations is Redis's, so that equal sketches have equal estimates to the last digit.

use super::sketch::{HASH_BITS, Histogram, REGISTERS};

/// 1 / (2 ln 2).
const ALPHA_INFINITE: f64 = 0.721_347_520_444_481_7;

/// The paper's sigma: of the registers that no element reached.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if before == z {
            return z;
        }
    }
}

/// The paper's tau: of the registers that can't grow any more.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if before == z {
            return z / 3.0;
        }
    }
}

/// How many distinct elements gave these runs.
pub(super) fn cardinality(histogram: &Histogram) -> i64 {
    let m = REGISTERS as f64;
    let of_run = |run: usize| f64::from(histogram[run]);
    let mut z = m * tau((m - of_run(HASH_BITS + 1)) / m);
    for run in (1..=HASH_BITS).rev() {
        z += of_run(run);
        z *= 0.5;
    }
    z += m * sigma(of_run(0) / m);
    let estimate = (ALPHA_INFINITE * m * m / z).round();
    // Registers that no element can make give no number: C's conversion of what is too large.
    if estimate >= i64::MAX as f64 {
        return i64::MIN;
    }
    estimate as i64
}
