//! NO-WAIT: locks, shared by readers and exclusive for writers, and whoever meets one is refused.
//!
//! A neighbour that reads has the shared lock of the key, and a neighbour that writes has the exclusive one.
//! A transaction must have read the newest version, because it had no lock when it read. No transaction ever
//! waits for a lock, and so there are no deadlocks. (Harding et al. lock at each access. Here the locks come
//! with the vote, because a lock that must survive a crash is an entry.)
//!
//! From the last vote to the decision all reads of a transaction are the newest versions at once, and nobody
//! else writes what it writes. So transactions are strictly serializable in the order of these moments: each
//! lies between the transaction's beginning and its answer. Timestamps play no part.

use super::KeyView;
use crate::times::Range;
use txn::Position;

pub(super) fn read(key: &KeyView<'_>, version: Position, range: Range) -> Range {
    let is_newest = key.newest().position == version;
    if is_newest && key.writers().next().is_none() { range } else { Range::EMPTY }
}

pub(super) fn write(key: &KeyView<'_>, range: Range) -> Range {
    if key.neighbours.is_empty() { range } else { Range::EMPTY }
}
