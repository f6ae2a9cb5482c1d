//! One record of the log: its bytes, written and read.
//!
//! A record is a head of [`HEAD_BYTES`] and a payload, together a multiple of 8 bytes. Two checksums: the
//! head's covers the head, and so the payload's checksum in it. A head that checks is trusted on its own,
//! even where its payload is torn: it tells its length and, in its durability claim, what was on the disk
//! when it was written.

use crate::batch::{BATCH_BYTES_MAX, Tail};
use crate::error::Problem;
use std::fmt;
use txn::hash::{hash_bytes, mix};
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, Position};

/// The length of a record's head.
pub(crate) const HEAD_BYTES: usize = 72;
/// Records start at multiples of this, from the file's start.
pub(crate) const ALIGNMENT: usize = 8;

const _: () =
    assert!(HEAD_BYTES.is_multiple_of(ALIGNMENT), "a marker is a bare head, and the next record follows it");
const _: () = assert!(BATCH_BYTES_MAX <= u32::MAX as usize, "a record's length has four bytes");

const KIND_BATCH: u32 = 1;
const KIND_MARKER: u32 = 2;
const KIND_GROUPS: u32 = 3;

/// A place in the log: a segment, by its first position, and a byte offset in its file. Ordered as the log
/// is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The segment's first position, which is in its file's name.
    pub segment: Position,
    /// The offset in the file.
    pub offset: u64,
}

/// What a log holds. Its segments' headers tell it, so that one is never taken for the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Batches: the input log of a node on its own.
    Batches,
    /// What the consensus groups of a process keep: its [journal](crate::Journal).
    Groups,
}

impl Content {
    /// The kind of its records, markers aside.
    pub(crate) fn kind(self) -> Kind {
        match self {
            Content::Batches => Kind::Batch,
            Content::Groups => Kind::Groups,
        }
    }

    /// What its positions count.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Content::Batches => "position",
            Content::Groups => "record",
        }
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Content::Batches => "an older version of Ordo, of a server that stands alone",
            Content::Groups => "a node's journal",
        })
    }
}

/// What kind of record it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An epoch with its requests.
    Batch,
    /// What consensus groups keep, in bytes of their own. Takes one position.
    Groups,
    /// A statement about the log: where it stands, and what is durable. Opens every segment.
    Marker,
}

/// A record's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The whole record, head included.
    pub length: u32,
    pub payload_crc: u32,
    pub kind: Kind,
    /// How many positions it takes: the requests in the payload.
    pub count: u32,
    /// A batch's own epoch, or a record's number; the last one before a marker.
    pub epoch: Epoch,
    /// A batch's first position; the next one after a marker.
    pub first: Position,
    pub time_ms: u64,
    /// Everything before this address was on the disk when the record was written.
    pub durable: Address,
    /// The chained digest, a batch's own payload included.
    pub digest: u64,
}

impl Head {
    /// A marker that tells where the log stands.
    pub fn marker(tail: Tail, durable: Address) -> Head {
        Head {
            length: HEAD_BYTES as u32,
            payload_crc: crc32fast::hash(&[]),
            kind: Kind::Marker,
            count: 0,
            epoch: tail.epoch,
            first: tail.next,
            time_ms: tail.time_ms,
            durable,
            digest: tail.digest,
        }
    }

    /// Where the log stands after this record.
    pub fn tail(&self) -> Tail {
        let next = Position(self.first.0.saturating_add(u64::from(self.count)));
        Tail { epoch: self.epoch, next, time_ms: self.time_ms, digest: self.digest }
    }

    fn encode(&self) -> [u8; HEAD_BYTES] {
        let kind = match self.kind {
            Kind::Batch => KIND_BATCH,
            Kind::Groups => KIND_GROUPS,
            Kind::Marker => KIND_MARKER,
        };
        let mut bytes = [0; HEAD_BYTES];
        put_u32(&mut bytes, 4, self.length);
        put_u32(&mut bytes, 8, self.payload_crc);
        put_u32(&mut bytes, 12, kind);
        put_u32(&mut bytes, 16, self.count);
        put_u64(&mut bytes, 24, self.epoch.0);
        put_u64(&mut bytes, 32, self.first.0);
        put_u64(&mut bytes, 40, self.time_ms);
        put_u64(&mut bytes, AT_DURABLE, self.durable.segment.0);
        put_u64(&mut bytes, AT_DURABLE + 8, self.durable.offset);
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

    /// Reads fields without looking at the head's checksum: for records that were never on a disk.
    pub fn decode(bytes: &[u8; HEAD_BYTES]) -> Option<Head> {
        let kind = match get_u32(bytes, 12) {
            KIND_BATCH => Kind::Batch,
            KIND_GROUPS => Kind::Groups,
            KIND_MARKER => Kind::Marker,
            _ => return None,
        };
        let head = Head {
            length: get_u32(bytes, 4),
            payload_crc: get_u32(bytes, 8),
            kind,
            count: get_u32(bytes, 16),
            epoch: Epoch(get_u64(bytes, 24)),
            first: Position(get_u64(bytes, 32)),
            time_ms: get_u64(bytes, 40),
            durable: Address {
                segment: Position(get_u64(bytes, AT_DURABLE)),
                offset: get_u64(bytes, AT_DURABLE + 8),
            },
            digest: get_u64(bytes, 64),
        };
        let length = head.length as usize;
        (length >= HEAD_BYTES && length.is_multiple_of(ALIGNMENT) && get_u32(bytes, 20) == 0).then_some(head)
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

const AT_DURABLE: usize = 48;

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

/// The digest of a batch or of a journal's record, chained with the previous one's.
fn chain(previous: Tail, time_ms: u64, payload: &[u8]) -> u64 {
    let mut digest = mix(previous.digest ^ hash_bytes(payload));
    for part in [previous.epoch.0.wrapping_add(1), previous.next.0, time_ms] {
        digest = mix(digest ^ part);
    }
    digest
}

/// A record while it is being encoded at the end of a buffer. Its durability claim and its place are unknown
/// until [`seal`].
pub(crate) struct Draft<'a> {
    records: &'a mut Vec<u8>,
    kind: Kind,
    start: usize,
}

impl<'a> Draft<'a> {
    pub fn begin(records: &'a mut Vec<u8>, kind: Kind) -> Draft<'a> {
        let start = records.len();
        records.resize(start + HEAD_BYTES, 0);
        Draft { records, kind, start }
    }

    /// Where the requests go, or what groups keep.
    pub fn payload(&mut self) -> &mut Vec<u8> {
        self.records
    }

    pub fn len_bytes(&self) -> usize {
        (self.records.len() - self.start).next_multiple_of(ALIGNMENT)
    }

    /// Fills the head in. Returns the chained digest.
    pub fn finish(self, previous: Tail, time_ms: u64, count: u32) -> u64 {
        let length = self.len_bytes();
        self.records.resize(self.start + length, 0);
        let (head, payload) = self.records[self.start..].split_at_mut(HEAD_BYTES);
        let digest = chain(previous, time_ms, payload);
        let fields = Head {
            length: length as u32,
            payload_crc: crc32fast::hash(payload),
            kind: self.kind,
            count,
            epoch: Epoch(previous.epoch.0 + 1),
            first: previous.next,
            time_ms,
            durable: Address { segment: Position::NONE, offset: 0 },
            digest,
        };
        head.copy_from_slice(&fields.encode());
        digest
    }
}

/// Checks that a group of drafted records, all of one kind, continues at `tail`. Returns where it ends.
pub(crate) fn follow(mut tail: Tail, mut group: &[u8], kind: Kind) -> Option<Tail> {
    while !group.is_empty() {
        let head = Head::decode(group.first_chunk()?)?;
        if head.kind != kind || head.epoch.0 != tail.epoch.0 + 1 || head.first != tail.next {
            return None;
        }
        tail = head.tail();
        group = group.get(head.length as usize..)?;
    }
    Some(tail)
}

/// Stamps a group of drafted records, which [`follow`] accepted, with the durability claim and their
/// checksums.
pub(crate) fn seal(group: &mut [u8], mut place: Place, durable: Address) {
    let mut rest = group;
    while let Some(head) = rest.first_chunk_mut::<HEAD_BYTES>() {
        put_u64(head, AT_DURABLE, durable.segment.0);
        put_u64(head, AT_DURABLE + 8, durable.offset);
        let crc = place.crc(head);
        put_u32(head, 0, crc);
        let length = get_u32(head, 4) as usize;
        place.address.offset += length as u64;
        rest = rest.get_mut(length..).unwrap_or_default();
    }
}

/// What is found where a record should start.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    /// A whole record, which continues the log.
    Record(Head, &'a [u8]),
    /// Nothing: a zero length, or no room for a record.
    Nothing,
    /// Bytes that are no record: a torn tail, or corruption.
    Bad(Problem),
    /// A record that checks and yet cannot be here: corruption, however the rest looks.
    Foreign(Problem),
}

/// Reads the record at the front of `bytes`, which must continue a log with this content at `tail`.
pub(crate) fn read(bytes: &[u8], place: Place, tail: Tail, content: Content) -> Found<'_> {
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
    if head.kind != Kind::Marker && head.kind != content.kind() {
        return Found::Foreign(Problem::Kind);
    }
    let follows = match head.kind {
        Kind::Marker => head.tail() == tail && payload.is_empty(),
        Kind::Batch | Kind::Groups => {
            head.epoch.0.checked_sub(1) == Some(tail.epoch.0)
                && head.first == tail.next
                && head.first.0.checked_add(u64::from(head.count)).is_some()
                && head.time_ms >= tail.time_ms
                && (head.kind == Kind::Batch || head.count == 1 && head.time_ms == 0)
        }
    };
    if !follows {
        return Found::Foreign(Problem::Gap);
    }
    let chained = head.kind != Kind::Marker;
    if chained && chain(tail, head.time_ms, payload) != head.digest && !unchecked {
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
    if let (Some(tail), Kind::Batch | Kind::Groups) = (*tail, head.kind) {
        put_u64(front, 64, chain(tail, head.time_ms, payload));
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
