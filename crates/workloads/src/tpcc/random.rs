//! Non-uniform numbers, last names and texts: clauses 2.1.6, 4.3.2.

use super::rows::Number;
use crate::dice::Dice;

/// The constants C of NURand, one for each use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// For last names, in the initial population.
    pub name_loaded: u32,
    /// For last names, in calls.
    pub name_called: u32,
    /// For customer numbers.
    pub customer: u32,
    /// For item numbers.
    pub item: u32,
}

const NAME_A: u32 = 255;
const CUSTOMER_A: u32 = 1_023;
const ITEM_A: u32 = 8_191;
/// The constant of the loaded names. Fixed, so that calls can be drawn with another seed than the
/// population's.
const NAME_LOADED: u32 = 123;

impl Constants {
    /// Draws the constants of a run so that clause 2.1.6.1 holds: those of loaded and called last names
    /// differ by 65 to 119, except 96 and 112.
    pub fn new(seed: u64) -> Constants {
        let mut dice = Dice::new(seed, u64::MAX);
        let name_called = loop {
            let candidate = dice.between(0, NAME_A);
            let delta = candidate.abs_diff(NAME_LOADED);
            if (65..=119).contains(&delta) && delta != 96 && delta != 112 {
                break candidate;
            }
        };
        let (customer, item) = (dice.between(0, CUSTOMER_A), dice.between(0, ITEM_A));
        Constants { name_loaded: NAME_LOADED, name_called, customer, item }
    }
    /// The number of a last name below `names`, in the initial population.
    pub fn loaded_name(&self, dice: &mut Dice, names: u32) -> u16 {
        nurand(dice, NAME_A, self.name_loaded, 0, names - 1) as u16
    }
    /// The number of a last name below `names`, in a call.
    pub fn called_name(&self, dice: &mut Dice, names: u32) -> u16 {
        nurand(dice, NAME_A, self.name_called, 0, names - 1) as u16
    }
    /// A customer of `1..=customers`.
    pub fn customer(&self, dice: &mut Dice, customers: u32) -> u32 {
        nurand(dice, CUSTOMER_A, self.customer, 1, customers)
    }
    /// An item of `1..=items`.
    pub fn item(&self, dice: &mut Dice, items: u32) -> u32 {
        nurand(dice, ITEM_A, self.item, 1, items)
    }
}

/// NURand(A, low, high) with constant `c`.
fn nurand(dice: &mut Dice, a: u32, c: u32, low: u32, high: u32) -> u32 {
    ((dice.between(0, a) | dice.between(low, high)) + c) % (high - low + 1) + low
}

const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// The last name with a number of 0..=999: three syllables, one for each digit.
pub fn last_name(number: u16, out: &mut [u8]) {
    let mut length = 0;
    for digit in [number / 100, number / 10 % 10, number % 10] {
        let syllable = SYLLABLES[usize::from(digit % 10)].as_bytes();
        out[length..length + syllable.len()].copy_from_slice(syllable);
        length += syllable.len();
    }
}

const LETTERS: &[u8; 64] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-.";

/// Fills the front of `out` with `shortest` letters or more, up to its length. Returns how many.
pub fn letters(dice: &mut Dice, shortest: usize, out: &mut [u8]) -> usize {
    let length = dice.between(shortest as u32, out.len() as u32) as usize;
    for chunk in out[..length].chunks_mut(10) {
        let mut bits = dice.bits();
        for letter in chunk {
            *letter = LETTERS[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    length
}

/// Fills `out` with digits.
pub fn digits(dice: &mut Dice, out: &mut [u8]) {
    for digit in out {
        *digit = b'0' + dice.below(10) as u8;
    }
}

/// The mark of brand goods.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Brand information: 26 letters or more, with [`ORIGINAL`] somewhere in one of ten.
pub fn brand(dice: &mut Dice, out: &mut [u8]) {
    let length = letters(dice, 26, out);
    if dice.percent(10) {
        let start = dice.below((length - ORIGINAL.len() + 1) as u64) as usize;
        out[start..start + ORIGINAL.len()].copy_from_slice(ORIGINAL);
    }
}

/// Whether brand information has the mark of brand goods. Compares whole words and never stops early: this
/// runs for every order line, and takes half the time of a search.
pub fn is_brand(data: &[u8]) -> bool {
    let mark = u64::from_le_bytes(*ORIGINAL);
    data.windows(ORIGINAL.len()).fold(false, |found, window| found | (u64::read(window) == mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nurand_is_the_specifications_formula() {
        // With A = 0 and c = 0 the formula is the identity shifted into the range, whatever is drawn.
        let mut dice = Dice::new(1, 0);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[nurand(&mut dice, 0, 0, 0, 9) as usize] += 1;
        }
        assert!(seen.iter().all(|&count| (800..1_200).contains(&count)), "{seen:?}");
    }

    /// The exact probability of each number, by enumeration of both draws.
    fn exact(a: u32, c: u32, low: u32, high: u32) -> Vec<f64> {
        let size = high - low + 1;
        let mut weights = vec![0.0; size as usize];
        for first in 0..=a {
            for second in low..=high {
                weights[(((first | second) + c) % size) as usize] +=
                    1.0 / (f64::from(a + 1) * f64::from(size));
            }
        }
        weights
    }

    #[test]
    fn nurand_has_the_frequencies_that_enumeration_gives() {
        for (a, c, low, high) in [(255, 37, 0, 999), (1_023, 900, 1, 3_000)] {
            let weights = exact(a, c, low, high);
            let mut counts = vec![0.0; weights.len()];
            let (mut dice, draws) = (Dice::new(3, 0), 400_000);
            for _ in 0..draws {
                counts[(nurand(&mut dice, a, c, low, high) - low) as usize] += 1.0;
            }
            let statistic: f64 = counts
                .iter()
                .zip(&weights)
                .filter(|(_, weight)| **weight > 0.0)
                .map(|(count, weight)| {
                    (count - weight * f64::from(draws)).powi(2) / (weight * f64::from(draws))
                })
                .sum();
            let per_degree = statistic / (weights.len() as f64 - 1.0);
            assert!((0.8..1.2).contains(&per_degree), "A = {a}: {per_degree}");
            let hottest = weights.iter().fold(0.0, |max: f64, w| max.max(*w));
            assert!(hottest * weights.len() as f64 > 5.0, "far from uniform");
        }
    }

    #[test]
    fn constants_keep_their_distance() {
        for seed in 0..500 {
            let constants = Constants::new(seed);
            let delta = constants.name_called.abs_diff(constants.name_loaded);
            assert!((65..=119).contains(&delta) && delta != 96 && delta != 112);
        }
    }

    #[test]
    fn last_names_are_three_syllables() {
        let mut name = [0; 16];
        last_name(371, &mut name);
        assert_eq!(&name, b"PRICALLYOUGHT\0\0\0");
        for number in 0..1_000 {
            last_name(number, &mut [0; 16]);
        }
    }

    #[test]
    fn one_in_ten_is_brand_goods() {
        let mut dice = Dice::new(5, 0);
        let brands = (0..10_000)
            .filter(|_| {
                let mut data = [0; 50];
                brand(&mut dice, &mut data);
                is_brand(&data)
            })
            .count();
        assert!((850..1_150).contains(&brands), "{brands}");
    }
}
