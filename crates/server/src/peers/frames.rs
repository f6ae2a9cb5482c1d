//! Frames: a length (four bytes, little-endian, of what follows) and so many bytes.

use bytes::{Bytes, BytesMut};

/// The longest frame, without its length. Who sends a longer one is disconnected.
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The bytes of a frame's length.
const HEAD_BYTES: usize = 4;
/// How much memory a connection reads into at once.
const CHUNK_BYTES: usize = 128 << 10;
/// It gets new memory when there is less room than this.
const ROOM_BYTES_MIN: usize = 16 << 10;

/// Appends a frame whose bytes `write` appends.
pub fn put_frame(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let head = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    write(out);
    let len = out.len() - head - HEAD_BYTES;
    // A length that does not fit four bytes is far above the longest: whoever sends it refuses it, whatever
    // is written.
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    out[head..head + HEAD_BYTES].copy_from_slice(&len.to_le_bytes());
}

/// A length that no frame may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong(pub usize);

/// The length, head included, of the frame that begins with these bytes; none if they do not hold its head.
fn frame_bytes(bytes: &[u8]) -> Result<Option<usize>, TooLong> {
    let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*head) as usize {
        len if len <= FRAME_BYTES_MAX => Ok(Some(HEAD_BYTES + len)),
        len => Err(TooLong(len)),
    }
}

/// How many frames the bytes are; none unless they are whole frames, each within the bound.
pub(super) fn count(mut bytes: &[u8]) -> Option<u64> {
    let mut frames = 0;
    while !bytes.is_empty() {
        let len = frame_bytes(bytes).ok()??;
        bytes = bytes.get(len..)?;
        frames += 1;
    }
    Some(frames)
}

/// Takes the frames above the bound out, and tells how many bytes that were; none, and nothing is changed, if
/// the bytes are not whole frames.
pub(super) fn take_long(out: &mut Vec<u8>) -> Option<usize> {
    let mut kept = Vec::new();
    let mut rest = &out[..];
    while !rest.is_empty() {
        let (len, is_long) = match frame_bytes(rest) {
            Ok(len) => (len?, false),
            Err(TooLong(len)) => (HEAD_BYTES.checked_add(len)?, true),
        };
        let (frame, behind) = rest.split_at_checked(len)?;
        if !is_long {
            kept.extend_from_slice(frame);
        }
        rest = behind;
    }
    let taken_bytes = out.len() - kept.len();
    *out = kept;
    Some(taken_bytes)
}

/// What was read from a connection and is not a whole frame yet.
///
/// Frames are handed over as slices of the memory that they were read into, which is used again once all of
/// them are dropped, and else left to them.
#[derive(Default)]
pub(super) struct Inbox {
    /// Its first `filled` bytes were read; the others are zeros, or what was there before.
    buffer: BytesMut,
    filled: usize,
    /// The length of the frame that has begun, as far as that is known.
    wanted: usize,
}

impl Inbox {
    /// Where to read to. Never empty.
    pub fn room(&mut self) -> &mut [u8] {
        let missing = self.wanted.saturating_sub(self.filled);
        if self.buffer.len() - self.filled < missing.max(ROOM_BYTES_MIN) {
            self.buffer.truncate(self.filled);
            let bytes = CHUNK_BYTES.max(self.filled + missing + ROOM_BYTES_MIN);
            self.buffer.resize(bytes, 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// Takes note of so many bytes that were read to [`Inbox::room`], and appends the frames that are whole
    /// now.
    ///
    /// # Errors
    /// A frame claims to be longer than the bound. The frames before it are appended.
    pub fn note_read(&mut self, bytes: usize, frames: &mut Vec<Bytes>) -> Result<(), TooLong> {
        self.filled += bytes;
        let mut whole = 0;
        let next = loop {
            match frame_bytes(&self.buffer[whole..self.filled]) {
                Ok(Some(len)) if len <= self.filled - whole => whole += len,
                other => break other,
            }
        };
        if whole > 0 {
            let read = self.buffer.split_to(whole).freeze();
            self.filled -= whole;
            if whole > CHUNK_BYTES {
                // The memory of a large frame goes with it.
                self.buffer = BytesMut::from(&self.buffer[..self.filled]);
            }
            let mut at = 0;
            while let Ok(Some(len)) = frame_bytes(&read[at..]) {
                frames.push(read.slice(at + HEAD_BYTES..at + len));
                at += len;
            }
        }
        self.wanted = next?.unwrap_or(HEAD_BYTES);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds bytes in pieces of the given lengths, in turn.
    fn feed(bytes: &[u8], pieces: &[usize]) -> (Vec<Bytes>, Result<(), TooLong>) {
        let (mut inbox, mut frames) = (Inbox::default(), Vec::new());
        let mut rest = bytes;
        for piece in pieces.iter().cycle() {
            let room = inbox.room();
            let len = rest.len().min(*piece).min(room.len());
            room[..len].copy_from_slice(&rest[..len]);
            rest = &rest[len..];
            if let Err(error) = inbox.note_read(len, &mut frames) {
                return (frames, Err(error));
            }
            if rest.is_empty() {
                break;
            }
        }
        (frames, Ok(()))
    }

    #[test]
    fn frames_survive_any_division_of_their_bytes() {
        let bodies: Vec<Vec<u8>> = [0, 1, 3, 4, 5, 200, 0, 0, CHUNK_BYTES - 4, 7, 3 * CHUNK_BYTES, 9]
            .iter()
            .enumerate()
            .map(|(place, len)| (0..*len).map(|at| (at * 7 + place) as u8).collect())
            .collect();
        let mut bytes = Vec::new();
        for body in &bodies {
            put_frame(&mut bytes, |out| out.extend_from_slice(body));
        }
        assert_eq!(count(&bytes), Some(bodies.len() as u64));
        for pieces in [&[1][..], &[3, 1, 5], &[4096, 1], &[usize::MAX], &[65_536, 2]] {
            let (frames, end) = feed(&bytes, pieces);
            assert_eq!(end, Ok(()));
            assert!(frames == bodies, "other frames, in pieces of {pieces:?}");
        }
    }

    #[test]
    fn a_frame_above_the_bound_is_refused_behind_those_before_it() {
        let mut bytes = Vec::new();
        put_frame(&mut bytes, |out| out.extend_from_slice(b"one"));
        let good = bytes.len();
        bytes.extend_from_slice(&(FRAME_BYTES_MAX as u32 + 1).to_le_bytes());
        for pieces in [&[usize::MAX][..], &[1]] {
            let (frames, end) = feed(&bytes, pieces);
            assert_eq!(frames, ["one"]);
            assert_eq!(end, Err(TooLong(FRAME_BYTES_MAX + 1)));
        }
        assert_eq!(count(&bytes), None);
        assert_eq!(count(&bytes[..good]), Some(1));
        assert_eq!(count(&bytes[..good - 1]), None);
        assert_eq!(count(&bytes[..2]), None);
    }

    #[test]
    fn a_frame_above_the_bound_is_taken_out_from_between_others() {
        let mut bytes = Vec::new();
        for len in [3, FRAME_BYTES_MAX + 1, FRAME_BYTES_MAX, 5] {
            put_frame(&mut bytes, |out| out.resize(out.len() + len, 1));
        }
        let whole = bytes.len();
        assert_eq!(take_long(&mut bytes), Some(4 + FRAME_BYTES_MAX + 1));
        assert_eq!(bytes.len(), whole - (4 + FRAME_BYTES_MAX + 1));
        assert_eq!(count(&bytes), Some(3));
        assert_eq!(take_long(&mut bytes), Some(0));
        bytes.pop();
        let before = bytes.len();
        assert_eq!(take_long(&mut bytes), None);
        assert_eq!(bytes.len(), before);
    }

    #[test]
    fn memory_is_used_again_once_its_frames_are_dropped() {
        let mut inbox = Inbox::default();
        let mut bytes = Vec::new();
        put_frame(&mut bytes, |out| out.resize(1000, 1));
        let mut frames = Vec::new();
        let mut places = std::collections::BTreeSet::new();
        for _ in 0..10_000 {
            let room = inbox.room();
            places.insert(room.as_ptr() as usize / (CHUNK_BYTES * 2));
            room[..bytes.len()].copy_from_slice(&bytes);
            inbox.note_read(bytes.len(), &mut frames).expect("a frame");
            frames.clear();
        }
        assert!(places.len() <= 2, "memory in {} places", places.len());
    }
}
