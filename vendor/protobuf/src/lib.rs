//! What `raft` knows of a message beside its fields. See `vendor/README.md`.

use std::fmt;

/// Bytes that are no message.
#[derive(Debug)]
pub struct ProtobufError;

impl fmt::Display for ProtobufError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes are not the message that they should be")
    }
}

impl std::error::Error for ProtobufError {}

/// What reading or writing a message gives.
pub type ProtobufResult<T> = Result<T, ProtobufError>;

/// A message. Those that are only passed on have a size, and no bytes.
pub trait Message {
    /// About how many bytes it takes.
    fn compute_size(&self) -> u32;
    /// Its bytes.
    fn write_to_bytes(&self) -> ProtobufResult<Vec<u8>> {
        Err(ProtobufError)
    }
    /// Takes its fields from bytes.
    fn merge_from_bytes(&mut self, _: &[u8]) -> ProtobufResult<()> {
        Err(ProtobufError)
    }
}
