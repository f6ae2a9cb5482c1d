//! Batches, and the sequencer that makes them.

use crate::record;
use std::sync::Arc;
use txn::codec::put_request;
use txn::{Epoch, Group, Position, Request};

/// The most bytes that an encoded batch may have. Admission bounds batches far below.
pub const BATCH_BYTES_MAX: usize = 1 << 30;

/// Requests that share an epoch and its time, at consecutive positions.
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

impl Batch {
    /// The place after this batch.
    pub fn tail(&self) -> Tail {
        let next = self.first.advanced(self.requests.len() as u64);
        Tail { epoch: self.epoch, next, time_ms: self.time_ms, digest: self.digest }
    }
}

/// The end of a sequence of batches: where the next batch continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The last epoch.
    pub epoch: Epoch,
    /// The next position.
    pub next: Position,
    /// The last epoch's time.
    pub time_ms: u64,
    /// The chained digest of everything so far.
    pub digest: u64,
}

impl Tail {
    /// Before the first batch.
    pub const ORIGIN: Tail = Tail { epoch: Epoch(0), next: Position::FIRST, time_ms: 0, digest: 0 };

    /// The last position that was given out.
    pub fn last(&self) -> Position {
        self.next.prev()
    }
}

impl Default for Tail {
    fn default() -> Tail {
        Tail::ORIGIN
    }
}

/// Gives requests their place in the order.
///
/// Guarantees: epochs and positions of successive batches are consecutive; times never go back; the digest of
/// a batch depends on every batch before it.
#[derive(Debug)]
pub struct Sequencer {
    tail: Tail,
}

/// A batch whose encoding is larger than [`BATCH_BYTES_MAX`]. It took no place in the order.
#[derive(Debug, thiserror::Error)]
#[error(
    "a batch of {bytes} bytes cannot be logged (the limit is {BATCH_BYTES_MAX}): submit it in smaller batches"
)]
pub struct BatchTooLarge {
    /// What was submitted.
    pub requests: Vec<Arc<Request>>,
    /// How large its encoding is.
    pub bytes: usize,
}

impl Sequencer {
    /// Continues at `tail`: where [`crate::Log::open`] found the end, or where an abandoned batch had begun.
    pub fn new(tail: Tail) -> Sequencer {
        Sequencer { tail }
    }

    /// Where the next batch continues.
    pub fn tail(&self) -> Tail {
        self.tail
    }

    /// Makes the next batch of `requests` (which may be empty: then only time moves) at the time `now_ms`,
    /// and appends its record to `records`, for [`crate::Log::append`].
    pub fn sequence(
        &mut self,
        requests: Vec<Arc<Request>>,
        now_ms: u64,
        records: &mut Vec<u8>,
    ) -> Result<Batch, BatchTooLarge> {
        let start = records.len();
        let mut draft = record::Draft::begin(records, record::Kind::Batch);
        for request in &requests {
            put_request(draft.payload(), request);
        }
        let bytes = draft.len_bytes();
        if bytes > BATCH_BYTES_MAX || u32::try_from(requests.len()).is_err() {
            records.truncate(start);
            return Err(BatchTooLarge { requests, bytes });
        }
        let time_ms = now_ms.max(self.tail.time_ms);
        let digest = draft.finish(self.tail, time_ms, requests.len() as u32);
        let batch = Batch {
            epoch: Epoch(self.tail.epoch.0 + 1),
            time_ms,
            first: self.tail.next,
            requests,
            groups: Vec::new(),
            digest,
        };
        self.tail = batch.tail();
        Ok(batch)
    }
}
