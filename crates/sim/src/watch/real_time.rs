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
    pub fn reached(self) -> Position {
        match self {
            Place::At(position) | Place::Snapshot(position) => position,
            Place::Nowhere => Position::NONE,
        }
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
    fn an_overtaken_command_is_found() {
        let mut order = ConnectionOrder::default();
        order.next(Place::At(Position(7))).unwrap();
        order.next(Place::Nowhere).unwrap();
        assert!(order.next(Place::Snapshot(Position(6))).is_err());
        order.next(Place::Snapshot(Position(9))).unwrap();
        assert!(order.next(Place::At(Position(8))).is_err());
    }
}
