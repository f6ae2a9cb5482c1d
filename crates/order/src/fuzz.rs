//! An entry point for fuzzers: the reader of segments must be total.

use crate::record::{Found, Kind};
use crate::segment::{HEADER_BYTES, OpeningError, SegmentReader, decode_batch};
use txn::{Position, Registry};

/// Reads bytes as a segment that starts at position 1, to its end, as [`crate::Log::open`] would, and then searches them
/// for durability claims. Never panics, and allocates no more than a small multiple of the input's length.
/// Returns how many batches it could read.
pub fn fuzz_log_reader(bytes: &[u8]) -> usize {
    let mut reader = match SegmentReader::open(bytes, Position::FIRST) {
        Ok(reader) => reader,
        Err(OpeningError::Opening(reader)) => {
            reader.proves_durable(reader.address());
            return 0;
        }
        Err(OpeningError::Header(_)) => return 0,
    };
    let registry = Registry::new();
    let mut batches = 0;
    while let Found::Record(head, payload) = reader.next() {
        // Requests of unknown procedures are decoded before they are refused.
        let decoded = head.kind == Kind::Batch && decode_batch(&head, payload, &registry).is_ok();
        batches += usize::from(decoded);
    }
    assert!(reader.offset >= HEADER_BYTES && reader.offset <= bytes.len());
    reader.proves_durable(reader.address());
    batches
}
