//! Cells of a grid over the globe, and the scores that they are.
//!
//! A grid of `steps` steps halves both spans that often: it has `2^steps` columns from west to east and as
//! many rows from south to north. A cell's number has the bits of its row and of its column in turn, the
//! column's first, so that the cells of a finer grid that lie in a cell are a range of numbers. Members stand
//! in cells of [`STEPS_MAX`] steps, whose 52 bits a score holds exactly. All of this is exact or correctly
//! rounded arithmetic: the same scores as Redis's, everywhere.

use crate::commands::sorted_sets::ScoreBounds;
use std::ops::RangeInclusive;

/// The finest grid, which scores are of.
pub(super) const STEPS_MAX: u32 = 26;

const _: () = assert!(2 * STEPS_MAX < f64::MANTISSA_DIGITS, "a score is a number of a cell, exactly");

/// A place, in degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Position {
    pub longitude: f64,
    pub latitude: f64,
}

/// The part of the earth that a grid is over.
pub(super) struct Globe {
    longitudes: Span,
    latitudes: Span,
}

struct Span {
    min: f64,
    max: f64,
}

impl Span {
    fn size(&self) -> f64 {
        self.max - self.min
    }
    /// In which of `2^steps` parts a value is; one more at the end itself.
    fn part_of(&self, value: f64, steps: u32) -> u32 {
        let share = (value - self.min) / self.size();
        (share * parts(steps)) as u32
    }
    /// Where a part starts and ends.
    fn part(&self, index: u32, steps: u32) -> RangeInclusive<f64> {
        let border = |index: u32| self.min + f64::from(index) / parts(steps) * self.size();
        border(index)..=border(index.wrapping_add(1))
    }
    fn middle(&self, part: &RangeInclusive<f64>) -> f64 {
        ((part.start() + part.end()) / 2.0).clamp(self.min, self.max)
    }
}

fn parts(steps: u32) -> f64 {
    (1_u64 << steps) as f64
}

impl Globe {
    /// What scores are of: as far as Mercator's projection is a square.
    pub(super) const SCORES: Globe = Globe {
        longitudes: Span { min: -180.0, max: 180.0 },
        latitudes: Span { min: -85.051_128_78, max: 85.051_128_78 },
    };
    /// What the texts of geohash.org are of.
    const WHOLE: Globe =
        Globe { longitudes: Span { min: -180.0, max: 180.0 }, latitudes: Span { min: -90.0, max: 90.0 } };

    /// Whether a place is within.
    pub(super) fn has(&self, position: Position) -> bool {
        let within = |span: &Span, value| (span.min..=span.max).contains(&value);
        within(&self.longitudes, position.longitude) && within(&self.latitudes, position.latitude)
    }

    fn cell(&self, position: Position, steps: u32) -> Cell {
        Cell {
            column: self.longitudes.part_of(position.longitude, steps),
            row: self.latitudes.part_of(position.latitude, steps),
            steps,
        }
    }
}

/// A cell of the grid of some number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    column: u32,
    row: u32,
    steps: u32,
}

/// What a cell covers, in degrees.
pub(super) struct Extent {
    pub longitudes: RangeInclusive<f64>,
    pub latitudes: RangeInclusive<f64>,
}

/// How the bits of a number are moved apart: each group of them by so many places, and which places they have
/// then.
const GROUPS: [(u32, u64); 5] = [
    (16, 0x0000_ffff_0000_ffff),
    (8, 0x00ff_00ff_00ff_00ff),
    (4, 0x0f0f_0f0f_0f0f_0f0f),
    (2, 0x3333_3333_3333_3333),
    (1, 0x5555_5555_5555_5555),
];

/// The bits of a number, each with an empty one above it.
fn spread(number: u32) -> u64 {
    let apart = |bits: u64, (by, places): (u32, u64)| (bits | bits << by) & places;
    GROUPS.into_iter().fold(u64::from(number), apart)
}

/// Every other bit of a number, from the lowest on: what [`spread`] has spread.
fn gather(number: u64) -> u32 {
    let together = |bits: u64, (by, places): (u32, u64)| {
        let bits = bits & places;
        bits | bits >> by
    };
    // The upper half has what the last step left behind.
    GROUPS.into_iter().rev().fold(number, together) as u32
}

impl Cell {
    /// The cell of a place in a grid of scores.
    pub(super) fn at(position: Position, steps: u32) -> Cell {
        Globe::SCORES.cell(position, steps)
    }
    /// The one whose score a member at a place has.
    pub(super) fn smallest_at(position: Position) -> Cell {
        Cell::at(position, STEPS_MAX)
    }
    fn number(self) -> u64 {
        spread(self.row) | spread(self.column) << 1
    }
    /// The first score of the cell; of the smallest, its only one.
    pub(super) fn score(self) -> f64 {
        (self.number() << (2 * (STEPS_MAX - self.steps))) as f64
    }
    /// All scores of the cell.
    pub(super) fn scores(self) -> ScoreBounds {
        let end = (self.number() + 1) << (2 * (STEPS_MAX - self.steps));
        ScoreBounds::half_open(self.score(), end as f64)
    }
    pub(super) fn extent(self) -> Extent {
        Extent {
            longitudes: Globe::SCORES.longitudes.part(self.column, self.steps),
            latitudes: Globe::SCORES.latitudes.part(self.row, self.steps),
        }
    }
    /// The cell so many columns to the east and rows to the north; the grid's edges are joined.
    pub(super) fn neighbour(self, east: i32, north: i32) -> Cell {
        let shift = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & ((1 << self.steps) - 1),
        };
        Cell { column: shift(self.column, east), row: shift(self.row, north), steps: self.steps }
    }
}

impl Position {
    /// The middle of the smallest cell of a score. Any score is of some place.
    pub(super) fn of_score(score: f64) -> Position {
        // Negative scores are 0 then, too large ones the largest.
        let number = score as u64;
        let cell = Cell { column: gather(number >> 1), row: gather(number), steps: STEPS_MAX };
        let extent = cell.extent();
        Position {
            longitude: Globe::SCORES.longitudes.middle(&extent.longitudes),
            latitude: Globe::SCORES.latitudes.middle(&extent.latitudes),
        }
    }
}

/// The text of a place as geohash.org has it: eleven characters of five bits. There are 52 bits only, so the
/// last is always 0.
pub(super) fn public_text(position: Position) -> String {
    const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
    let number = Globe::WHOLE.cell(position, STEPS_MAX).number();
    let digits = (1..=10).map(|at| (number >> (2 * STEPS_MAX - 5 * at)) & 31);
    let digits = digits.chain([0]);
    digits.map(|digit| char::from(DIGITS[digit as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_spread_and_gathered() {
        let mut number = 7_u64;
        for _ in 0..1_000 {
            number = txn::hash::mix(number);
            let (row, column) = (number as u32, (number >> 32) as u32);
            let mixed = spread(row) | spread(column) << 1;
            let slow = (0..32).fold(0, |bits, at| {
                let bit = |of: u32, to: u32| u64::from(of >> at & 1) << to;
                bits | bit(row, 2 * at) | bit(column, 2 * at + 1)
            });
            assert_eq!(mixed, slow);
            assert_eq!((gather(mixed), gather(mixed >> 1)), (row, column));
        }
    }

    #[test]
    fn a_place_is_in_its_cell_of_any_grid() {
        let mut number = 7_u64;
        for _ in 0..1_000 {
            number = txn::hash::mix(number);
            let share = |bits: u64| (bits & 0xffff_ffff) as f64 / f64::from(u32::MAX);
            let position = Position {
                longitude: share(number) * 360.0 - 180.0,
                latitude: share(number >> 32) * 170.0 - 85.0,
            };
            for steps in 1..=STEPS_MAX {
                let cell = Cell::at(position, steps);
                let extent = cell.extent();
                assert!(extent.longitudes.contains(&position.longitude));
                assert!(extent.latitudes.contains(&position.latitude));
                for (east, north) in [(1, 0), (-1, 1), (0, -1)] {
                    let other = cell.neighbour(east, north);
                    assert_eq!(other.neighbour(-east, -north), cell);
                }
            }
            let smallest = Cell::smallest_at(position);
            let middle = Position::of_score(smallest.score());
            assert_eq!(Cell::smallest_at(middle), smallest);
        }
    }
}
