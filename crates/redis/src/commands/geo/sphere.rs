//! Distances on a sphere, by the haversine formula.
//!
//! The sine of a C library differs in its last digits from platform to platform, and even between processors.
//! Most replies round that away, but STOREDIST stores distances with all digits, and at the edge of an area a
//! digit decides what is in it. So the few functions that are needed are computed here, from operations that
//! IEEE 754 rounds exactly: every replica gets the same bits, and Redis the same but for the last one or two.

use super::cell::Position;
use std::f64::consts::{FRAC_PI_2, PI, TAU};

/// The earth's quadratic mean radius.
pub(super) const EARTH_METERS: f64 = 6_372_797.560_856;

const DEGREE: f64 = PI / 180.0;

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

pub(super) fn degrees(radians: f64) -> f64 {
    radians / DEGREE
}

/// The meters between two places.
pub(super) fn distance(from: Position, to: Position) -> f64 {
    let east = sin((radians(to.longitude) - radians(from.longitude)) / 2.0);
    if east == 0.0 {
        return latitude_distance(from.latitude, to.latitude);
    }
    let (from_latitude, to_latitude) = (radians(from.latitude), radians(to.latitude));
    let north = sin((to_latitude - from_latitude) / 2.0);
    let haversine = north * north + cos(from_latitude) * cos(to_latitude) * east * east;
    2.0 * EARTH_METERS * arcsin(haversine.sqrt())
}

/// The meters between two latitudes.
pub(super) fn latitude_distance(from: f64, to: f64) -> f64 {
    EARTH_METERS * (radians(to) - radians(from)).abs()
}

/// The terms of the power series of sine and cosine, as far as they count up to an eighth of a turn.
const SINE: [f64; 8] = [
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
    -1.0 / 1_307_674_368_000.0,
    1.0 / 355_687_428_096_000.0,
];
const COSINE: [f64; 8] = [
    1.0 / 24.0,
    -1.0 / 720.0,
    1.0 / 40_320.0,
    -1.0 / 3_628_800.0,
    1.0 / 479_001_600.0,
    -1.0 / 87_178_291_200.0,
    1.0 / 20_922_789_888_000.0,
    -1.0 / 6_402_373_705_728_000.0,
];

fn series(terms: &[f64], square: f64) -> f64 {
    let sum = |sum: f64, term: &f64| sum * square + term;
    terms.iter().rev().fold(0.0, sum)
}

fn sin_of_small(x: f64) -> f64 {
    let square = x * x;
    x + x * (square * series(&SINE, square))
}

fn cos_of_small(x: f64) -> f64 {
    let square = x * x;
    1.0 - (square * 0.5 - square * square * series(&COSINE, square))
}

/// An angle as a number of quarters of a turn, of which four are none, and a rest of at most an eighth.
fn quarters(x: f64) -> (i64, f64) {
    /// The first bits of a quarter: products with small numbers are exact.
    const HIGH: f64 = f64::from_bits(FRAC_PI_2.to_bits() & !0xf_ffff);
    const MIDDLE: f64 = FRAC_PI_2 - HIGH;
    /// What a quarter has beyond the bits of a float.
    const LOW: f64 = 6.123_233_995_736_766e-17;
    /// Beyond, angles make no sense here: they come from areas that are larger than the earth.
    const LARGE: f64 = 1e5;
    let x = if x.abs() > LARGE { x % TAU } else { x };
    let count = (x / FRAC_PI_2).round();
    let rest = x - count * HIGH - count * MIDDLE - count * LOW;
    (count as i64 & 3, rest)
}

fn sin(x: f64) -> f64 {
    match quarters(x) {
        (0, rest) => sin_of_small(rest),
        (1, rest) => cos_of_small(rest),
        (2, rest) => -sin_of_small(rest),
        (_, rest) => -cos_of_small(rest),
    }
}

pub(super) fn cos(x: f64) -> f64 {
    match quarters(x) {
        (0, rest) => cos_of_small(rest),
        (1, rest) => -sin_of_small(rest),
        (2, rest) => -cos_of_small(rest),
        (_, rest) => sin_of_small(rest),
    }
}

/// The angle up to a quarter whose sine is `x`, which is not negative; what is beyond 1 by a rounding error
/// is 1.
fn arcsin(x: f64) -> f64 {
    /// Not more than the sine of an eighth of a turn.
    const SMALL: f64 = 0.7;
    if x > SMALL {
        let half = ((1.0 - x.min(1.0)) / 2.0).sqrt();
        return FRAC_PI_2 - 2.0 * arcsin(half);
    }
    // Newton's method doubles the number of right digits at each step, and begins with one.
    let step = |angle: f64, _| angle - (sin_of_small(angle) - x) / cos_of_small(angle);
    (0..5).fold(x, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the functions of this machine's library, whose last digits may differ.
    #[test]
    fn functions_are_right_to_the_last_digits() {
        let near = |a: f64, b: f64, what: &str, x: f64| {
            assert!((a - b).abs() <= 6e-16 * b.abs().max(1e-3), "{what}({x}) = {a}, not {b}");
        };
        for i in -40_000..=40_000_i32 {
            let x = f64::from(i) * 1.7e-4;
            near(sin(x), x.sin(), "sin", x);
            near(cos(x), x.cos(), "cos", x);
        }
        for i in 0..=40_000_i32 {
            let x = f64::from(i) / 40_000.0;
            near(arcsin(x), x.asin(), "arcsin", x);
        }
        assert_eq!(arcsin(1.0 + 1e-15), FRAC_PI_2);
        for x in [1e300, -1e300] {
            assert!(sin(x).abs() <= 1.0 && cos(x).abs() <= 1.0);
        }
        assert!(sin(f64::INFINITY).is_nan() && cos(f64::NAN).is_nan());
    }

    #[test]
    fn opposite_places_are_half_a_turn_apart() {
        let place = |longitude, latitude| Position { longitude, latitude };
        for latitude in [-85.0, -33.3, 0.0, 12.345_678, 85.05] {
            for longitude in [-180.0, -1.5, 0.0, 77.7] {
                let far = distance(place(longitude, latitude), place(longitude + 180.0, -latitude));
                assert!((far - EARTH_METERS * PI).abs() < 1.0, "{far}");
            }
        }
    }
}
