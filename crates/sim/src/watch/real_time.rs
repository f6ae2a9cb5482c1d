//! Strict serializability, read off positions: real time, and each connection's own order.
//!
//! Every reply carries, for the simulator only, the position at which it was decided: an ordered
//! transaction's own, or that of the snapshot that a read used. What was answered before another command was
//! sent must come before it.

use crate::world::Violation;
use txn::Position;

/// Where a command was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It has this position in the order.
    At(Position),
    /// It read at the snapshot of this position.
    Snapshot(Position),
    /// It was refused: it has no place.
    Nowhere,
}

impl Place {
    /// What is certainly visible to whoever asks after this was answered.
    fn reached(self) -> Position {
        match self {
            Place::At(position) | Place::Snapshot(position) => position,
            Place::Nowhere => Position::NONE,
        }
    }
}

/// What clients of one host have been told.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealTime {
    reached: Position,
    /// The present process, and where its order began.
    process: u32,
    recovered: Position,
}

impl RealTime {
    /// What a command that is sent now must at least see.
    pub fn invoked(&self) -> Position {
        self.reached
    }

    /// A command that was sent when `floor` was reached is answered, by this process of the host. False if
    /// the answer is void: it is about what a power cut was allowed to take since.
    pub fn answered(&mut self, floor: Position, place: Place, process: u32) -> Result<bool, Violation> {
        if process != self.process && place.reached() > self.recovered {
            return Ok(false);
        }
        let right = match place {
            Place::At(position) => position > floor,
            Place::Snapshot(position) => position >= floor,
            Place::Nowhere => true,
        };
        if !right {
            return Err(Violation::new(
                "real time",
                format!(
                    "a command was decided at {place:?}, but {floor:?} had been answered before it was sent"
                ),
            ));
        }
        self.reached = self.reached.max(place.reached());
        Ok(true)
    }

    /// A process has recovered, and its order ends at `last`: a power cut may have been allowed to take more.
    /// Returns whether it took something that had been answered.
    pub fn recovered(&mut self, last: Position, process: u32) -> bool {
        let lost = self.reached > last;
        self.reached = self.reached.min(last);
        (self.recovered, self.process) = (last, process);
        lost
    }
}

/// The order of one connection's commands.
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnectionOrder {
    reached: Position,
}

impl ConnectionOrder {
    /// The connection's next command (in the order sent) was decided here.
    pub fn next(&mut self, place: Place) -> Result<(), Violation> {
        let right = match place {
            Place::At(position) => position > self.reached,
            Place::Snapshot(position) => position >= self.reached,
            Place::Nowhere => true,
        };
        if !right {
            return Err(Violation::new(
                "connection order",
                format!(
                    "a command was decided at {place:?}, but one that its connection sent before it at {:?}",
                    self.reached
                ),
            ));
        }
        self.reached = self.reached.max(place.reached());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_read_and_an_overtaken_write_are_found() {
        let mut time = RealTime::default();
        let early = time.invoked();
        let mut answered = |floor, place| time.answered(floor, place, 0);
        answered(early, Place::At(Position(5))).unwrap();
        answered(early, Place::Snapshot(Position(3))).unwrap();
        let late = Position(5);
        answered(late, Place::Snapshot(Position(5))).unwrap();
        assert!(answered(late, Place::Snapshot(Position(4))).is_err());
        assert!(answered(late, Place::At(Position(5))).is_err());
        assert_eq!(time.invoked(), late);
        assert!(time.recovered(Position(2), 1));
        assert!(!time.answered(early, Place::At(Position(5)), 0).unwrap());
        assert_eq!(time.invoked(), Position(2), "what is lost is not reached");
        time.answered(time.invoked(), Place::At(Position(3)), 1).unwrap();

        let mut order = ConnectionOrder::default();
        order.next(Place::At(Position(7))).unwrap();
        order.next(Place::Nowhere).unwrap();
        assert!(order.next(Place::Snapshot(Position(6))).is_err());
        order.next(Place::Snapshot(Position(9))).unwrap();
        assert!(order.next(Place::At(Position(8))).is_err());
    }
}
