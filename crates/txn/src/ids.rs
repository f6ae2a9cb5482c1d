//! Identities and positions.

use std::fmt;

/// The place of a transaction in a partition's final order. Positions are consecutive and start at 1.
///
/// A position is also the version number of what the transaction writes. 0 ([`Position::NONE`]) is before everything: the
/// version of a key that was never written.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Position(pub u64);

impl Position {
    /// Before every transaction.
    pub const NONE: Position = Position(0);
    /// The first transaction's position.
    pub const FIRST: Position = Position(1);

    /// The next position.
    #[inline]
    pub fn next(self) -> Position {
        Position(self.0 + 1)
    }
    /// The previous position ([`Position::NONE`] has none and stays).
    #[inline]
    pub fn prev(self) -> Position {
        Position(self.0.saturating_sub(1))
    }
    /// `count` positions later.
    #[inline]
    pub fn advanced(self, count: u64) -> Position {
        Position(self.0 + count)
    }
}

impl fmt::Debug for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The number of a merged batch. All transactions of an epoch share its time. Starts at 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

/// A partition of the key space (one, until there is a cluster).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PartitionId(pub u16);

/// A client connection, or an embedded caller. Never reused within the life of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The server's own requests: expiry, time.
    pub const INTERNAL: SessionId = SessionId(0);
}
