//! Long byte strings as persistent values.

use crate::blob::Blob;
use crate::sequence::Sequence;
use std::ops::Range;
use std::sync::Arc;

/// All chunks but the last one have so many bytes. Copying one is what a small update costs.
const CHUNK_BYTES: usize = 2048;

/// A byte string in chunks: writing a part of it costs the part and O(log n), with structural sharing. What
/// is grown by zeros shares one chunk of them.
///
/// Invariant: all chunks have [`CHUNK_BYTES`], but the last, which has some.
#[derive(Clone, Debug, Default)]
pub struct LongString {
    chunks: Sequence<Arc<[u8]>>,
    len: usize,
}

impl LongString {
    /// From here on a string that is updated in part is better kept in chunks.
    pub const BYTES_MIN: usize = 16 << 10;

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The bytes at these places, as far as there are any, in pieces.
    pub fn pieces(&self, places: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let end = places.end.min(self.len);
        let start = places.start.min(end);
        let first = start / CHUNK_BYTES;
        let chunks = self.chunks.range(first..end.div_ceil(CHUNK_BYTES));
        let numbered = (first..).zip(chunks);
        numbered.map(move |(number, chunk)| {
            let before = number * CHUNK_BYTES;
            let end = (end - before).min(chunk.len());
            &chunk[start.saturating_sub(before).min(end)..end]
        })
    }
    /// A copy of the bytes at these places, as far as there are any.
    pub fn copy(&self, places: Range<usize>) -> Vec<u8> {
        let end = places.end.min(self.len);
        let mut copy = Vec::with_capacity(end.saturating_sub(places.start));
        self.pieces(places).for_each(|piece| copy.extend_from_slice(piece));
        copy
    }
    /// Adds bytes at the end.
    pub fn append(&mut self, mut bytes: &[u8]) {
        self.fill_last(&mut bytes);
        self.len += bytes.len();
        self.chunks.extend(bytes.chunks(CHUNK_BYTES).map(Arc::<[u8]>::from));
    }
    /// Adds zeros at the end until there are so many bytes.
    fn grow(&mut self, len: usize) {
        let missing = len.saturating_sub(self.len);
        let zeros: Arc<[u8]> = Arc::from([0; CHUNK_BYTES]);
        let of_last = missing.min(self.len.next_multiple_of(CHUNK_BYTES) - self.len);
        self.fill_last(&mut &zeros[..of_last]);
        let missing = missing - of_last;
        self.len += missing;
        let whole = std::iter::repeat_n(&zeros, missing / CHUNK_BYTES);
        self.chunks.extend(whole.cloned());
        if !missing.is_multiple_of(CHUNK_BYTES) {
            self.chunks.push_back(Arc::from(&zeros[..missing % CHUNK_BYTES]));
        }
    }
    /// Moves the first of these bytes to the last chunk, as far as there is room in it.
    fn fill_last(&mut self, bytes: &mut &[u8]) {
        let room = self.len.next_multiple_of(CHUNK_BYTES) - self.len;
        let (first, rest) = bytes.split_at(room.min(bytes.len()));
        let extend = |last: &mut Arc<[u8]>| *last = [last, first].concat().into();
        if !first.is_empty() && self.chunks.update(self.len / CHUNK_BYTES, extend).is_some() {
            self.len += first.len();
            *bytes = rest;
        }
    }
    /// Puts bytes in the place of those from `at` on; zeros come between them and a shorter string.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.grow(at);
        let (mut inside, behind) = bytes.split_at(bytes.len().min(self.len - at));
        let mut at = at;
        while !inside.is_empty() {
            let place = at % CHUNK_BYTES;
            let (first, rest) = inside.split_at(inside.len().min(CHUNK_BYTES - place));
            self.chunks.update(at / CHUNK_BYTES, |chunk| {
                Arc::make_mut(chunk)[place..place + first.len()].copy_from_slice(first);
            });
            (inside, at) = (rest, at + first.len());
        }
        self.append(behind);
    }
    /// An estimate of the heap bytes that this string keeps alive: as if it were in one piece, so that it
    /// depends on nothing but its contents.
    pub fn heap_bytes(&self) -> usize {
        self.len + Blob::SHARED_BYTES
    }
}

impl From<&[u8]> for LongString {
    fn from(bytes: &[u8]) -> LongString {
        LongString { chunks: bytes.chunks(CHUNK_BYTES).map(Arc::<[u8]>::from).collect(), len: bytes.len() }
    }
}

impl From<&LongString> for Blob {
    fn from(string: &LongString) -> Blob {
        Blob::from(string.copy(0..string.len()))
    }
}

impl PartialEq for LongString {
    fn eq(&self, other: &LongString) -> bool {
        // What is shared is equal: versions of one string differ in few chunks.
        let same = |(a, b): (&Arc<[u8]>, &Arc<[u8]>)| Arc::ptr_eq(a, b) || a == b;
        self.len == other.len && self.chunks.iter().zip(other.chunks.iter()).all(same)
    }
}
impl Eq for LongString {}

impl PartialEq<[u8]> for LongString {
    fn eq(&self, other: &[u8]) -> bool {
        let chunks = self.chunks.iter().zip(other.chunks(CHUNK_BYTES));
        self.len == other.len() && chunks.into_iter().all(|(a, b)| **a == *b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever is written where, the bytes are those of a plain string, and a clone made before stays as
        /// it was.
        #[test]
        fn equals_a_plain_string(
            first in 0..10_000usize,
            writes in prop::collection::vec((0..20_000usize, 0..7_000usize, any::<u8>()), 0..12),
            part in (0..30_000usize, 0..30_000usize),
        ) {
            let mut plain: Vec<u8> = (0..first).map(|place| place as u8).collect();
            let mut long = LongString::from(&plain[..]);
            for (at, len, byte) in writes {
                let before = (long.clone(), plain.clone());
                let bytes = vec![byte; len];
                if len > 0 {
                    plain.resize(plain.len().max(at + len), 0);
                    plain[at..at + len].copy_from_slice(&bytes);
                }
                long.write(at, &bytes);
                prop_assert_eq!(long.len(), plain.len());
                prop_assert!(long == plain[..] && before.0 == before.1[..]);
                prop_assert_eq!(&long, &LongString::from(&plain[..]));
                prop_assert_eq!(long == before.0, plain == before.1);
                long.append(&bytes);
                plain.extend(&bytes);
                prop_assert!(long == plain[..]);
            }
            let blob = Blob::from(&long);
            prop_assert_eq!(blob.as_bytes(), &plain[..]);
            let (start, end) = (part.0.min(plain.len()), part.1.min(plain.len()));
            prop_assert_eq!(long.copy(part.0..part.1), &plain[start.min(end)..end]);
            let full = plain.len() / CHUNK_BYTES;
            prop_assert!(long.chunks.iter().take(full).all(|chunk| chunk.len() == CHUNK_BYTES));
            prop_assert_eq!(long.chunks.len(), plain.len().div_ceil(CHUNK_BYTES));
        }
    }

    #[test]
    fn zeros_take_little_and_bytes_are_those_of_the_contents() {
        let mut long = LongString::default();
        long.write(100 << 20, b"x");
        let zeros = long.chunks.get(0).expect("there is a chunk");
        assert!(Arc::strong_count(zeros) > 50_000);
        long = LongString::default();
        long.write(30_000, b"x");
        assert_eq!(long.heap_bytes(), Blob::from(&long).heap_bytes());
    }
}
