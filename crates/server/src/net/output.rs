//! The bytes that a connection has to send.
//!
//! Most replies are short: they are encoded one behind the other into one buffer. A long value is not copied:
//! the output keeps a reference to it, as the store does, so that 3,000 replies with the same value of a
//! megabyte take a megabyte. A message to subscribers is encoded once, and all their outputs refer to it.
//!
//! The store may let go of a value before the output has sent it, or may keep it in a shorter form (a string
//! that SETRANGE made long). The output alone keeps such a value, so an output tells the length of its values
//! ([`Output::value_bytes`]) beside what its own buffers take. Messages count in [`crate::hub::PushBudget`].

use crate::hub::Encoded;
use redis_surface::codec::Sink;
use std::collections::VecDeque;
use std::sync::Arc;
use txn::Blob;

/// A value of this length is referred to rather than copied. Below, a copy costs less than a write of its
/// own.
const SHARED_BYTES_MIN: usize = 64 << 10;
/// A buffer of this length is left as it is, and a new one is begun: no large buffer is ever copied to grow.
const CHUNK_BYTES: usize = 1 << 20;
/// An empty buffer beyond this is given back.
const BYTES_KEPT: usize = 64 << 10;

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Value(Blob),
    Message(Arc<Encoded>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Own(bytes) => bytes,
            Chunk::Value(value) => value,
            Chunk::Message(bytes) => bytes,
        }
    }

    fn own_bytes(&self) -> usize {
        match self {
            Chunk::Own(bytes) => bytes.capacity(),
            Chunk::Value(_) | Chunk::Message(_) => 0,
        }
    }

    fn value_bytes(&self) -> usize {
        match self {
            Chunk::Value(value) => value.len(),
            Chunk::Own(_) | Chunk::Message(_) => 0,
        }
    }
}

/// See the module's head.
///
/// Invariant: `chunk_bytes` is the length of all chunks, `chunk_own_bytes` what the buffers among them take,
/// `value_bytes` the length of the values among them, and `sent` is less than the length of the first chunk,
/// or, where there is none, at most that of the tail.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Chunk>,
    /// What follows the chunks.
    tail: Vec<u8>,
    /// How much of the first chunk was sent; of the tail if there is no chunk.
    sent: usize,
    chunk_bytes: usize,
    chunk_own_bytes: usize,
    value_bytes: usize,
}

impl Output {
    fn put(&mut self, chunk: Chunk) {
        self.chunk_bytes += chunk.bytes().len();
        self.chunk_own_bytes += chunk.own_bytes();
        self.value_bytes += chunk.value_bytes();
        self.chunks.push_back(chunk);
    }

    fn end_tail(&mut self) {
        if self.sent == self.tail.len() && self.chunks.is_empty() {
            self.tail.clear();
            self.sent = 0;
        }
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.put(Chunk::Own(tail));
        }
    }

    /// Appends a message that other outputs have, too.
    pub fn message(&mut self, message: &Arc<Encoded>) {
        self.end_tail();
        self.put(Chunk::Message(message.clone()));
    }

    /// Appends all of another output, of which nothing was sent.
    pub fn append(&mut self, other: Output) {
        if !other.chunks.is_empty() {
            self.end_tail();
            other.chunks.into_iter().for_each(|chunk| self.put(chunk));
        }
        if self.tail.is_empty() && self.sent == 0 && other.tail.len() > BYTES_KEPT {
            self.tail = other.tail;
        } else {
            self.bytes().extend_from_slice(&other.tail);
        }
    }

    /// What is to be sent next.
    pub fn ready(&self) -> &[u8] {
        let first = self.chunks.front().map_or(&self.tail[..], Chunk::bytes);
        &first[self.sent..]
    }

    /// The first `count` bytes of [`Output::ready`] were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        if let Some(first) = self.chunks.front() {
            let length = first.bytes().len();
            if self.sent == length {
                self.chunk_bytes -= length;
                self.chunk_own_bytes -= first.own_bytes();
                self.value_bytes -= first.value_bytes();
                self.chunks.pop_front();
                self.sent = 0;
            }
        } else if self.sent == self.tail.len() {
            self.sent = 0;
            if self.tail.capacity() > BYTES_KEPT {
                self.tail = Vec::new();
            } else {
                self.tail.clear();
            }
        } else if self.sent > BYTES_KEPT && self.sent > self.tail.len() / 2 {
            // Moves less than it frees, so that a slow reader's buffer does not keep what it has read.
            self.tail.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// How much is to be sent.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.chunk_bytes + self.tail.len() - self.sent
    }

    /// The memory that this output takes for itself.
    pub fn own_bytes(&self) -> usize {
        self.chunk_own_bytes + self.tail.capacity() + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// The length of the values that this output refers to. A value counts as often as the output has it, and
    /// until its last byte is sent.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }
}

impl Sink for Output {
    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        if self.tail.len() >= CHUNK_BYTES {
            self.end_tail();
        }
        &mut self.tail
    }

    #[inline]
    fn value(&mut self, value: &Blob) {
        if value.len() < SHARED_BYTES_MIN {
            self.tail.extend_from_slice(value);
        } else {
            self.end_tail();
            self.put(Chunk::Value(value.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::Push;
    use redis_surface::codec::{Protocol, encode};
    use txn::Reply;

    /// Sends all of an output in pieces of at most `piece` bytes.
    fn send(output: &mut Output, piece: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while !output.ready().is_empty() {
            let count = output.ready().len().min(piece);
            all.extend_from_slice(&output.ready()[..count]);
            let before = output.unsent_bytes();
            output.sent(count);
            assert_eq!(output.unsent_bytes(), before - count);
        }
        assert_eq!(output.unsent_bytes(), 0);
        all
    }

    #[test]
    fn bytes_leave_in_their_order_whoever_owns_them() {
        for piece in [1, 7, 4096, 100_000, usize::MAX] {
            let long = Blob::from("v".repeat(SHARED_BYTES_MIN));
            let replies = [
                Reply::Integer(1),
                Reply::Bulk(long.clone()),
                Reply::Bulk(Blob::from("short")),
                Reply::Array(vec![Reply::Bulk(long.clone()), Reply::Bulk(long.clone())]),
                Reply::Array(vec![Reply::bulk("x".repeat(1000)); 3 * CHUNK_BYTES / 1000]),
                Reply::Integer(2),
            ];
            let text = "m".repeat(SHARED_BYTES_MIN);
            let push = Push::new(Reply::bulk(text), SHARED_BYTES_MIN, &Arc::default());
            let message = push.encoded(Protocol::Resp2).expect("it is long");
            let (mut output, mut want) = (Output::default(), Vec::new());
            for reply in &replies {
                encode(reply, Protocol::Resp2, &mut output);
                encode(reply, Protocol::Resp2, &mut want);
                output.message(message);
                want.extend_from_slice(message);
                let mut more = Output::default();
                encode(reply, Protocol::Resp2, &mut more);
                encode(reply, Protocol::Resp2, &mut want);
                output.append(more);
                if piece > 4096 {
                    let count = output.ready().len() / 2;
                    assert_eq!(output.ready()[..count], want[..count]);
                    want.drain(..count);
                    output.sent(count);
                }
            }
            assert_eq!(output.unsent_bytes(), want.len());
            assert!(send(&mut output, piece) == want, "pieces of {piece}");
            assert!(output.own_bytes() < 4096, "{}", output.own_bytes());
            assert_eq!(output.value_bytes(), 0);
        }
    }

    #[test]
    fn a_long_value_is_not_copied_and_counts_until_it_is_sent() {
        let long = Reply::bulk("v".repeat(1 << 20));
        let mut output = Output::default();
        for _ in 0..1000 {
            encode(&long, Protocol::Resp2, &mut output);
        }
        assert!(output.unsent_bytes() > 1000 << 20);
        assert!(output.own_bytes() < 1 << 20, "{}", output.own_bytes());
        assert_eq!(output.value_bytes(), 1000 << 20);
        let head = output.ready().len();
        output.sent(head);
        output.sent((1 << 20) - 1);
        assert_eq!(output.value_bytes(), 1000 << 20, "the last byte keeps the value");
        output.sent(1);
        assert_eq!(output.value_bytes(), 999 << 20);
    }
}
