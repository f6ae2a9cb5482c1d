//! Identities and positions.

use std::fmt;
use std::str::FromStr;

/// The place of a transaction in a partition's final order. Positions are consecutive and start at 1.
///
/// A position is also the version number of what the transaction writes. 0 ([`Position::NONE`]) is before
/// everything: the version of a key that was never written.
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

/// The most nodes that a cluster can ever name.
pub const NODES_MAX: u16 = 1024;

/// A node of a cluster: a process with its disk. From 1; never given to another node, so that a lost disk's
/// promises are not taken for the new one's.
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

/// One run of a process: the boot number in the ids of its sessions. In a cluster the order gives them out,
/// and none is given out twice.
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

/// What people call a request of the order by: `EPOCH:SESSION:SEQUENCE`. The same at every partition and
/// every replica, where positions differ; and no two requests that clients sent have the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RequestName {
    /// The epoch whose batch has it.
    pub epoch: Epoch,
    /// Who sent it.
    pub session: SessionId,
    /// Its number among the requests of the session.
    pub sequence: u64,
}

impl fmt::Display for RequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.epoch.0, self.session.0, self.sequence)
    }
}

/// A text that names no request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoRequestName(String);

impl fmt::Display for NoRequestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}' names no request: it must be EPOCH:SESSION:SEQUENCE, three whole numbers, as the \
             server's log and 'ordo admin requests' tell it",
            self.0
        )
    }
}
impl std::error::Error for NoRequestName {}

impl FromStr for RequestName {
    type Err = NoRequestName;

    fn from_str(text: &str) -> Result<RequestName, NoRequestName> {
        let numbers: Option<Vec<u64>> = text.split(':').map(|word| word.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[epoch, session, sequence]) if epoch > 0 => {
                Ok(RequestName { epoch: Epoch(epoch), session: SessionId(session), sequence })
            }
            _ => Err(NoRequestName(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_name_that_people_can_write() {
        let name: RequestName = "7:1099511627777:3".parse().expect("a name");
        assert_eq!(name.epoch, Epoch(7));
        assert_eq!(name.to_string(), "7:1099511627777:3");
        for text in ["", "7:1", "7:1:3:4", "0:1:3", "7:-1:3", "seven:1:3"] {
            let error = text.parse::<RequestName>().expect_err(text).to_string();
            assert!(error.contains("EPOCH:SESSION:SEQUENCE"), "{error}");
        }
    }
}
