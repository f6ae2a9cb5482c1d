//! A part of the order, as engines get it.

use crate::{Epoch, Group, Position, Request};
use std::sync::Arc;

/// One partition's requests of an epoch, merged from all groups: at consecutive positions.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The epoch.
    pub epoch: Epoch,
    /// The epoch's time in milliseconds since 1970, never less than the previous epoch's.
    pub time_ms: u64,
    /// The position of the first request. The first batch starts at the store's final position plus one.
    pub first: Position,
    /// The requests, in order.
    pub requests: Vec<Arc<Request>>,
    /// The groups of multi-partition transactions among them, in order: none where there is one partition.
    pub groups: Vec<Group>,
    /// The chained digest of the order up to this epoch's end: siblings know each other by it.
    pub digest: u64,
}

impl Batch {
    /// The position after the last request.
    pub fn end(&self) -> Position {
        self.first.advanced(self.requests.len() as u64)
    }
}
