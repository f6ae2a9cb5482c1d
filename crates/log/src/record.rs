//! One record of the journal: its bytes, written and read.
//!
//! A record is a head of [`HEAD_BYTES`] and a payload, together a multiple of 8 bytes. Two checksums: the
//! head's covers the head, and so the payload's checksum in it. A head that checks is trusted on its own,
//! even where its payload is torn: it tells its length and, in its durability claim, what was on the disk
//! when it was written.

use crate::error::Problem;
use txn::Position;
use txn::hash::{hash_bytes, mix};
use txn::mutant::{Mutant, is_active};

/// The length of a record's head.
pub(crate) const HEAD_BYTES: usize = 72;
/// Records start at multiples of this, from the file's start.
pub(crate) const ALIGNMENT: usize = 8;
/// The most bytes that a record may have. The leaders' batches are far smaller.
pub const RECORD_BYTES_MAX: usize = 1 << 30;

const _: () =
    assert!(HEAD_BYTES.is_multiple_of(ALIGNMENT), "a marker is a bare head, and the next record follows it");
const _: () = assert!(RECORD_BYTES_MAX <= u32::MAX as usize, "a record's length has four bytes");

const KIND_MARKER: u32 = 2;
const KIND_GROUPS: u32 = 3;

/// A place in the journal: a segment, by its first record, and a byte offset in its file. Ordered as the
/// journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The number of the segment's first record, which is in its file's name.
    pub segment: Position,
    /// The offset in the file.
    pub offset: u64,
}

/// The end of a row of records: where the next record continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The next record's number.
    pub next: Position,
    /// The chained digest of all records so far.
    pub digest: u64,
}

impl Tail {
    /// Before the first record.
    pub const ORIGIN: Tail = Tail { next: Position::FIRST, digest: 0 };

    /// The last record's number.
    pub fn last(&self) -> Position {
        self.next.prev()
    }
}

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What consensus groups keep. Takes a number.
    Groups,
    /// A statement about the journal: where it stands, and what is durable. Opens every segment.
    Marker,
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The whole record, head included.
    pub length: u32,
    pub payload_crc: u32,
    pub kind: Kind,
    /// The record's own number; of a marker, the next record's.
    pub number: Position,
    /// Everything before this address was on the disk when the record was written.
    pub durable: Address,
    /// The chained digest, the record's own payload included.
    pub digest: u64,
}

impl Head {
    /// A marker that tells where the journal stands.
    pub fn marker(tail: Tail, durable: Address) -> Head {
        Head {
            length: HEAD_BYTES as u32,
            payload_crc: crc32fast::hash(&[]),
            kind: Kind::Marker,
            number: tail.next,
            durable,
            digest: tail.digest,
        }
    }

    /// Where the journal stands after this record.
    pub fn tail(&self) -> Tail {
        let next = match self.kind {
            Kind::Groups => Position(self.number.0.saturating_add(1)),
            Kind::Marker => self.number,
        };
        Tail { next, digest: self.digest }
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let (kind, count, newest) = match self.kind {
            Kind::Groups => (KIND_GROUPS, 1, self.number.0),
            Kind::Marker => (KIND_MARKER, 0, self.number.0.saturating_sub(1)),
        };
        let mut bytes = [0; HEAD_BYTES];
        put_u32(&mut bytes, 4, self.length);
        put_u32(&mut bytes, 8, self.payload_crc);
        put_u32(&mut bytes, 12, kind);
        put_u32(&mut bytes, 16, count);
        put_u64(&mut bytes, 24, newest);
        put_u64(&mut bytes, 32, self.number.0);
        put_u64(&mut bytes, 48, self.durable.segment.0);
        put_u64(&mut bytes, 56, self.durable.offset);
        put_u64(&mut bytes, 64, self.digest);
        bytes
    }

    /// The head as the bytes of a record at `place`.
    pub fn sealed(&self, place: Place) -> [u8; HEAD_BYTES] {
        let mut bytes = self.encode();
        let crc = place.crc(&bytes);
        put_u32(&mut bytes, 0, crc);
        bytes
    }

    /// Reads the fields that are needed, without looking at the head's checksum. Whether [`Head::encode`]
    /// would give the same bytes, and so whether there is such a kind, [`read`] asks.
    fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let head = Head {
            length: get_u32(bytes, 4),
            payload_crc: get_u32(bytes, 8),
            kind: if get_u32(bytes, 12) == KIND_MARKER { Kind::Marker } else { Kind::Groups },
            number: Position(get_u64(bytes, 32)),
            durable: Address { segment: Position(get_u64(bytes, 48)), offset: get_u64(bytes, 56) },
            digest: get_u64(bytes, 64),
        };
        let length = head.length as usize;
        (length >= HEAD_BYTES && length.is_multiple_of(ALIGNMENT)).then_some(head)
    }

    /// Reads and checks the head of a record at `place`. The payload may still be bad.
    pub fn read(bytes: &[u8], place: Place) -> Option<Head> {
        let bytes: &[u8; HEAD_BYTES] = bytes.first_chunk()?;
        // The cheap test first: a scan for heads asks this at every eighth byte.
        let length = get_u32(bytes, 4) as usize;
        if length < HEAD_BYTES || !length.is_multiple_of(ALIGNMENT) || get_u32(bytes, 0) != place.crc(bytes) {
            return None;
        }
        Head::decode(bytes)
    }
}

/// What a record's checksum is seeded with, beside its bytes: the boot that wrote the segment, and where it
/// lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub boot_id: u64,
    pub address: Address,
}

impl Place {
    pub fn crc(&self, head: &[u8; HEAD_BYTES]) -> u32 {
        let seed = mix(self.boot_id ^ mix(self.address.segment.0)) ^ mix(self.address.offset);
        let mut hasher = crc32fast::Hasher::new_with_initial((seed ^ (seed >> 32)) as u32);
        hasher.update(&head[4..]);
        hasher.finalize()
    }
}

/// The digest of the record behind `previous`, chained with all records before it.
fn chain(previous: Tail, payload: &[u8]) -> u64 {
    let mut digest = mix(previous.digest ^ hash_bytes(payload));
    // The format has three fields here, of which a journal's record uses one: twice its number, and no time.
    for part in [previous.next.0, previous.next.0, 0] {
        digest = mix(digest ^ part);
    }
    digest
}

/// A record while it is being encoded in a buffer of its own.
pub(crate) struct Draft<'a>(&'a mut Vec<u8>);

impl<'a> Draft<'a> {
    pub fn begin(buffer: &'a mut Vec<u8>) -> Draft<'a> {
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        Draft(buffer)
    }

    /// Where the payload goes: behind what is there.
    pub fn payload(&mut self) -> &mut Vec<u8> {
        self.0
    }

    pub fn len_bytes(&self) -> usize {
        self.0.len().next_multiple_of(ALIGNMENT)
    }

    /// Fills the head in, for a record behind `previous` at `place`. Returns the whole record, and where it
    /// ends.
    pub fn finish(self, previous: Tail, place: Place, durable: Address) -> (&'a [u8], Tail) {
        let length = self.len_bytes();
        self.0.resize(length, 0);
        let (front, payload) = self.0.split_at_mut(HEAD_BYTES);
        let head = Head {
            length: length as u32,
            payload_crc: crc32fast::hash(payload),
            kind: Kind::Groups,
            number: previous.next,
            durable,
            digest: chain(previous, payload),
        };
        front.copy_from_slice(&head.sealed(place));
        (self.0, head.tail())
    }
}

/// What is found where a record should start.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A whole record, which continues the journal.
    Record(Head, &'a [u8]),
    /// Nothing: a zero length, or no room for a record.
    Nothing,
    /// Bytes that are no record: a torn tail, or corruption.
    Bad(Problem),
    /// A record that checks and yet cannot be here: corruption, however the rest looks.
    Foreign(Problem),
}

/// Reads the record at the front of `bytes`, which must continue the journal at `tail`.
pub(crate) fn read(bytes: &[u8], place: Place, tail: Tail) -> Found<'_> {
    let Some(front) = bytes.first_chunk::<HEAD_BYTES>() else {
        return Found::Nothing;
    };
    if get_u32(front, 4) == 0 {
        return Found::Nothing;
    }
    let Some(head) = Head::read(bytes, place) else {
        return Found::Bad(Problem::Head);
    };
    let Some(payload) = bytes.get(HEAD_BYTES..head.length as usize) else {
        return Found::Bad(Problem::Short);
    };
    let unchecked = is_active(Mutant::AcceptTornRecord);
    if crc32fast::hash(payload) != head.payload_crc && !unchecked {
        return Found::Bad(Problem::Payload);
    }
    if head.encode()[4..] != front[4..] {
        return Found::Foreign(Problem::Fields);
    }
    let follows = match head.kind {
        Kind::Marker => head.tail() == tail && payload.is_empty(),
        Kind::Groups => head.number == tail.next && head.number.0 < u64::MAX,
    };
    if !follows {
        return Found::Foreign(Problem::Gap);
    }
    if head.kind == Kind::Groups && chain(tail, payload) != head.digest && !unchecked {
        return Found::Foreign(Problem::Digest);
    }
    Found::Record(head, payload)
}

/// Puts the digest and the checksums of the record at the front of `bytes` right, for fuzzers: whatever its
/// fields say. Returns its length, `None` if that makes no sense.
pub(crate) fn reseal(bytes: &mut [u8], place: Place, tail: &mut Option<Tail>) -> Option<usize> {
    let length = get_u32(bytes.first_chunk::<HEAD_BYTES>()?, 4) as usize;
    let (front, payload) = bytes.get_mut(..length)?.split_first_chunk_mut::<HEAD_BYTES>()?;
    put_u32(front, 8, crc32fast::hash(payload));
    let head = Head::decode(front)?;
    if let (Some(tail), Kind::Groups) = (*tail, head.kind) {
        put_u64(front, 64, chain(tail, payload));
    }
    let crc = place.crc(front);
    put_u32(front, 0, crc);
    *tail = Some(Head::decode(front)?.tail());
    Some(length)
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}
pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from(get_u32(bytes, at)) | u64::from(get_u32(bytes, at + 4)) << 32
}
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}
