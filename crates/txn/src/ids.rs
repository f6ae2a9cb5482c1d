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

/// A partition of the key space, and the consensus group of its replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PartitionId(pub u16);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {}", self.0)
    }
}

/// A node of a cluster: a process with its disk. From 1; never given to another node, so that a lost disk's promises are
/// not taken for the new one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A zone: what fails together. It holds one replica of every partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ZoneId(pub u16);

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zone {}", self.0)
    }
}

/// One run of a process: the boot number in the ids of its sessions. In a cluster the order gives them out, and none is
/// given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootId(pub u32);

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot {}", self.0)
    }
}

/// A client connection, or an embedded caller. Never reused within the life of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The server's own requests: expiry, time.
    pub const INTERNAL: SessionId = SessionId(0);
}
