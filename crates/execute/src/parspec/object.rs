//! What ParSpec keeps of a record: the wait-flag and the readers-array (Archie, section 4).

use store::Meta;
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// Positions that a readers-array has room for: the largest MaxSpec.
pub(super) const READERS_MAX: u64 = u64::BITS as u64;

/// The wait-flag and the readers-array of a record.
#[derive(Debug, Default)]
pub(super) struct Object {
    /// The wait-flag and its order: the active transaction that is going to write the record, or
    /// [`Position::NONE`]. That transaction's x-commit clears it.
    pub(super) writer: Position,
    /// The latest reader's position, or one behind it.
    latest: Position,
    /// Bit `i` tells that `latest - i` has read the record. So a position needs no place of its own, and
    /// nobody has to clear a bit before its place is used again, as the paper's array by position modulo
    /// MaxSpec demands: active transactions are less than [`READERS_MAX`] apart, and what is further behind
    /// is shifted out.
    readers: u64,
}

impl Object {
    /// The wait-flag's transaction, if it is earlier than `position`.
    pub(super) fn writer_before(&self, position: Position) -> Option<Position> {
        (self.writer != Position::NONE && self.writer < position).then_some(self.writer)
    }

    /// Notes a read of an active transaction.
    pub(super) fn read_by(&mut self, reader: Position) {
        if is_active(Mutant::ForgetReader) {
            return;
        }
        if reader > self.latest {
            let distance = reader.0 - self.latest.0;
            self.readers = if distance < READERS_MAX { self.readers << distance } else { 0 };
            (self.latest, self.readers) = (reader, self.readers | 1);
            return;
        }
        let behind = self.latest.0 - reader.0;
        if behind < READERS_MAX {
            self.readers |= 1 << behind;
            return;
        }
        // The latest one was retracted: an active one is not so far from another. Those may be active that
        // are less than a window behind this one.
        let beyond = behind - (READERS_MAX - 1);
        self.latest.0 -= beyond;
        self.readers = if beyond < READERS_MAX { self.readers >> beyond } else { 0 };
        self.readers |= 1 << (READERS_MAX - 1);
    }

    /// Takes out the readers later than `writer`.
    pub(super) fn take_readers_behind(&mut self, writer: Position, mut take: impl FnMut(Position)) {
        let later = self.latest.0.saturating_sub(writer.0);
        let mask = if later < READERS_MAX { (1 << later) - 1 } else { u64::MAX };
        let mut found = self.readers & mask;
        self.readers &= !mask;
        while found != 0 {
            take(Position(self.latest.0 - u64::from(found.trailing_zeros())));
            found &= found - 1;
        }
    }
}

impl Meta for Object {
    fn collect(&mut self, final_position: Position) -> bool {
        if self.latest <= final_position || self.readers == 0 {
            (self.latest, self.readers) = (Position::NONE, 0);
        }
        self.writer == Position::NONE && self.readers == 0
    }
    fn weight(&self) -> u64 {
        u64::from(self.writer != Position::NONE) + u64::from(self.readers.count_ones())
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    fn behind(object: &mut Object, writer: u64) -> Vec<u64> {
        let mut found = Vec::new();
        object.take_readers_behind(Position(writer), |reader| found.push(reader.0));
        found.sort_unstable();
        found
    }

    #[test]
    fn readers_of_a_window_are_told_apart_wherever_the_window_is() {
        for first in [1, 63, 64, 65, 1_000_000] {
            let mut object = Object::default();
            for offset in [5, 0, 63, 17, 5] {
                object.read_by(Position(first + offset));
            }
            assert_eq!(behind(&mut object, first + 5), [first + 17, first + 63]);
            assert_eq!(behind(&mut object, first + 5), []);
            assert_eq!(behind(&mut object, first.saturating_sub(1)), [first, first + 5]);
        }
    }

    #[test]
    fn what_is_behind_the_window_is_forgotten_and_what_was_retracted_too() {
        let mut object = Object::default();
        object.read_by(Position(10));
        object.read_by(Position(11));
        object.read_by(Position(74));
        assert_eq!(behind(&mut object, 9), [11, 74]);
        object.read_by(Position(200));
        // All from 120 on was retracted.
        object.read_by(Position(120));
        object.read_by(Position(125));
        assert_eq!(behind(&mut object, 120), [125]);
        assert_eq!(object.weight(), 1);
        assert!(!object.collect(Position(119)) && object.collect(Position(183)));
        // An active one that is 63 before the retracted one, and one more before that.
        object.read_by(Position(265));
        object.read_by(Position(202));
        object.read_by(Position(201));
        assert_eq!(behind(&mut object, 200), [201, 202]);
    }
}
