//! What is done with the records that recovery reads back.

use crate::batch::Batch;
use crate::error::OpenError;
use crate::record::{Address, Head};
use crate::segment::{PayloadError, decode_batch};
use txn::{Position, Registry};

/// Takes the records of a log, in order. After an error it is of no use any more.
pub(crate) trait Replay {
    /// Takes one. Returns how many requests were in it.
    fn record(&mut self, head: &Head, payload: &[u8]) -> Result<u64, PayloadError>;

    /// Judges whether what was taken is all that is needed, before anything on the disk is changed: the log's
    /// oldest segment begins at `oldest`, and the log ends at `end`, before the position `next`.
    fn end(&mut self, oldest: Position, end: Address, next: Position) -> Result<(), OpenError>;
}

/// Decodes batches and hands them on.
pub(crate) struct ReplayBatches<'a> {
    pub registry: &'a Registry,
    pub replay: &'a mut dyn FnMut(Batch),
}

impl Replay for ReplayBatches<'_> {
    fn record(&mut self, head: &Head, payload: &[u8]) -> Result<u64, PayloadError> {
        let batch = decode_batch(head, payload, self.registry)?;
        let requests = batch.requests.len() as u64;
        (self.replay)(batch);
        Ok(requests)
    }

    /// A checkpoint tells where replaying must begin, so nothing is left to be judged.
    fn end(&mut self, _: Position, _: Address, _: Position) -> Result<(), OpenError> {
        Ok(())
    }
}
