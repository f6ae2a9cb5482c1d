//! Batches, as engines get them.

use std::sync::Arc;
use txn::{Epoch, Group, Position, Request};

/// One partition's requests of an epoch, at consecutive positions.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The epoch: one more than the previous batch's.
    pub epoch: Epoch,
    /// The epoch's time in milliseconds since 1970, never less than the previous epoch's.
    pub time_ms: u64,
    /// The position of the first request: the one after the previous batch's last. An empty batch (which
    /// moves only the time) takes no position.
    pub first: Position,
    /// The requests, in order.
    pub requests: Vec<Arc<Request>>,
    /// The groups of multi-partition transactions among them: none where there is one partition.
    pub groups: Vec<Group>,
    /// The chained digest: of this batch and of every batch before it.
    pub digest: u64,
}
