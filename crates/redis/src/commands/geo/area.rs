//! Areas that are searched, and the cells that cover them.

use super::cell::{Cell, Position, STEPS_MAX};
use super::sphere::{EARTH_METERS, cos, degrees, distance, latitude_distance, radians};

/// What is searched around a place, in units of so many meters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub center: Position,
    pub shape: Shape,
    pub unit_meters: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    Circle { radius: f64 },
    Box { width: f64, height: f64 },
}

/// The outermost degrees of an area.
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

impl Area {
    /// How far a place is from the center, if it is in the area.
    pub(super) fn distance_within(&self, place: Position) -> Option<f64> {
        match self.shape {
            Shape::Circle { radius } => {
                let distance = distance(self.center, place);
                (distance <= radius * self.unit_meters).then_some(distance)
            }
            Shape::Box { width, height } => {
                let (width, height) = (width * self.unit_meters, height * self.unit_meters);
                let north = latitude_distance(place.latitude, self.center.latitude);
                if north > height / 2.0 {
                    return None;
                }
                let below = Position { latitude: place.latitude, ..self.center };
                let is_within = distance(place, below) <= width / 2.0;
                is_within.then(|| distance(self.center, place))
            }
        }
    }

    /// The meters from the center to the farthest point.
    fn reach_meters(&self) -> f64 {
        let reach = match self.shape {
            Shape::Circle { radius } => radius,
            Shape::Box { width, height } => {
                let (east, north) = (width / 2.0, height / 2.0);
                (east * east + north * north).sqrt()
            }
        };
        reach * self.unit_meters
    }

    fn bounds(&self) -> Bounds {
        let (east, north) = match self.shape {
            Shape::Circle { radius } => (radius, radius),
            Shape::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Position { longitude, latitude } = self.center;
        let latitudes = degrees(self.unit_meters * north / EARTH_METERS);
        // Degrees of longitude are shortest at the side that is nearer to a pole.
        let side = match latitude < 0.0 {
            true => latitude - latitudes,
            false => latitude + latitudes,
        };
        let longitudes = degrees(self.unit_meters * east / EARTH_METERS / cos(radians(side)));
        Bounds {
            west: longitude - longitudes,
            east: longitude + longitudes,
            south: latitude - latitudes,
            north: latitude + latitudes,
        }
    }

    /// Up to nine cells that cover the area, the one of the center first: the same ones in the same order as
    /// Redis, because where ANY ends a search, the order decides what is found.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let mut steps = steps_for(self.reach_meters(), self.center.latitude);
        let mut middle = Cell::at(self.center, steps);
        if steps > 1 && !bounds.are_near(middle) {
            steps -= 1;
            middle = Cell::at(self.center, steps);
        }
        // Where a cell goes beyond the area, nothing behind it is needed. In the grid of four cells, what is
        // beyond one edge is within the other, too.
        let extent = middle.extent();
        let is_beyond = |beyond: bool| steps >= 2 && beyond;
        let south = !is_beyond(*extent.latitudes.start() < bounds.south);
        let north = !is_beyond(*extent.latitudes.end() > bounds.north);
        let west = !is_beyond(*extent.longitudes.start() < bounds.west);
        let east = !is_beyond(*extent.longitudes.end() > bounds.east);
        let directions = [
            (0, 0, true),
            (0, 1, north),
            (0, -1, south),
            (1, 0, east),
            (-1, 0, west),
            (1, 1, north && east),
            (-1, 1, north && west),
            (1, -1, south && east),
            (-1, -1, south && west),
        ];
        let mut cells = Vec::with_capacity(directions.len());
        for (columns, rows, counts) in directions {
            let cell = middle.neighbour(columns, rows);
            if counts && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
        cells
    }
}

impl Bounds {
    /// Whether the neighbours of a cell reach as far.
    fn are_near(&self, cell: Cell) -> bool {
        let (north, south) = (cell.neighbour(0, 1).extent(), cell.neighbour(0, -1).extent());
        let (east, west) = (cell.neighbour(1, 0).extent(), cell.neighbour(-1, 0).extent());
        let is_beyond = *north.latitudes.end() < self.north
            || *south.latitudes.start() > self.south
            || *east.longitudes.end() < self.east
            || *west.longitudes.start() > self.west;
        !is_beyond
    }
}

/// How fine a grid's cells may be that nine of them cover so many meters around a latitude: Redis's estimate.
fn steps_for(meters: f64, latitude: f64) -> u32 {
    /// Half the equator, as Mercator's projection has it.
    const MERCATOR_METERS: f64 = 20_037_726.37;
    if meters == 0.0 {
        return STEPS_MAX;
    }
    let mut doublings = 0;
    let mut meters = meters;
    while meters < MERCATOR_METERS {
        meters *= 2.0;
        doublings += 1;
    }
    // Cells are narrower near the poles.
    let narrower = match latitude.abs() {
        latitude if latitude > 80.0 => 2,
        latitude if latitude > 66.0 => 1,
        _ => 0,
    };
    (doublings - 1 - narrower).clamp(1, STEPS_MAX as i32) as u32
}
