//! Segments: their names, their header, and a reader over their bytes.

use crate::record::{
    self, Address, Found, HEAD_BYTES, Head, Kind, Place, Tail, get_u32, get_u64, put_u32, put_u64,
};
use txn::Position;

/// The header fills the first 4 KiB, so that no write of a record touches its block.
pub(crate) const HEADER_BYTES: usize = 4096;
/// The format that this program writes and reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

const MAGIC: [u8; 8] = *b"ORDOJNL\0";
/// What older versions wrote for a server that stands alone begins so.
const MAGIC_OLDER: [u8; 8] = *b"ORDOLOG\0";
const PREPARED: &str = "prepared-";
const SUFFIX: &str = ".ordo";

/// The file name of the segment whose first record is `first`.
pub(crate) fn segment_name(first: Position) -> String {
    format!("log-{:020}{SUFFIX}", first.0)
}

/// The file name of the `number`th segment that a process prepared.
pub(crate) fn prepared_name(number: u64) -> String {
    format!("{PREPARED}{number:020}{SUFFIX}")
}

/// The first record of a segment with this name, if it is a segment's.
pub(crate) fn first_of_name(name: &str) -> Option<Position> {
    let digits = name.strip_prefix("log-")?.strip_suffix(SUFFIX)?;
    let first = Position(digits.parse().ok()?);
    (segment_name(first) == name).then_some(first)
}

/// Whether a file is a prepared segment: one that holds nothing yet.
pub(crate) fn is_prepared(name: &str) -> bool {
    name.starts_with(PREPARED) && name.ends_with(SUFFIX)
}

/// A segment's header. It is durable before the file gets a segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub boot_id: u64,
    /// The length with which the file was made. It only ever grows, so a shorter file has lost its end.
    pub len_bytes: u64,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        put_u32(&mut bytes, 8, FORMAT_VERSION);
        put_u64(&mut bytes, 16, self.boot_id);
        put_u64(&mut bytes, 24, self.len_bytes);
        let crc = header_crc(&bytes);
        put_u32(&mut bytes, 12, crc);
        bytes
    }

    pub fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        let bytes: &[u8; HEADER_BYTES] = bytes.first_chunk().ok_or(HeaderError::Damaged)?;
        let is_older = bytes.starts_with(&MAGIC_OLDER);
        if !is_older && !bytes.starts_with(&MAGIC) || get_u32(bytes, 12) != header_crc(bytes) {
            return Err(HeaderError::Damaged);
        }
        match get_u32(bytes, 8) {
            _ if is_older => Err(HeaderError::Older),
            FORMAT_VERSION => Ok(Header { boot_id: get_u64(bytes, 16), len_bytes: get_u64(bytes, 24) }),
            version => Err(HeaderError::Version(version)),
        }
    }
}

/// Why a header is not a journal's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Damaged,
    /// It is sound, and an older version of Ordo wrote it for a server that stands alone.
    Older,
    /// It is sound, and of this version.
    Version(u32),
}

fn header_crc(bytes: &[u8; HEADER_BYTES]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&bytes[..12]);
    hasher.update(&bytes[16..]);
    hasher.finalize()
}

/// Walks over the records of one segment's bytes.
pub(crate) struct SegmentReader<'a> {
    bytes: &'a [u8],
    boot_id: u64,
    segment: Position,
    /// Where the next record starts.
    pub offset: usize,
    /// Where the journal stands before it.
    pub tail: Tail,
    /// The last record's durability claim.
    pub claimed: Address,
}

impl<'a> SegmentReader<'a> {
    /// Checks the header and the opening record of the segment whose first record is `segment`. The reader
    /// stands before the opening record.
    pub fn open(bytes: &'a [u8], segment: Position) -> Result<SegmentReader<'a>, OpeningError<'a>> {
        let header = Header::read(bytes).map_err(OpeningError::Header)?;
        if (bytes.len() as u64) < header.len_bytes {
            return Err(OpeningError::Shortened);
        }
        let mut reader = SegmentReader {
            bytes,
            boot_id: header.boot_id,
            segment,
            offset: HEADER_BYTES,
            tail: Tail::ORIGIN,
            claimed: Address { segment: Position::NONE, offset: 0 },
        };
        match Head::read(reader.rest(), reader.place()) {
            Some(head)
                if head.length as usize == HEAD_BYTES
                    && head.kind == Kind::Marker
                    && head.number == segment =>
            {
                reader.tail = head.tail();
                reader.claimed = head.durable;
                Ok(reader)
            }
            _ => Err(OpeningError::Opening(reader)),
        }
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.offset..).unwrap_or_default()
    }

    /// The boot that wrote the segment.
    pub fn boot_id(&self) -> u64 {
        self.boot_id
    }

    /// Where the next record starts.
    pub fn address(&self) -> Address {
        Address { segment: self.segment, offset: self.offset as u64 }
    }

    fn place(&self) -> Place {
        Place { boot_id: self.boot_id, address: self.address() }
    }

    /// Reads the next record and steps behind it.
    pub fn next(&mut self) -> Found<'a> {
        let found = record::read(self.rest(), self.place(), self.tail);
        if let Found::Record(head, _) = &found {
            self.offset += head.length as usize;
            self.tail = head.tail();
            self.claimed = head.durable;
        }
        found
    }

    /// Looks through everything from here on for a head that claims that the disk already had what lies at
    /// `bad`. Blocks reach the disk in any order, so heads may follow anywhere.
    pub fn proves_durable(&self, bad: Address) -> bool {
        let mut offset = self.offset;
        let used = self.used_bytes();
        while offset < used {
            let place = Place {
                boot_id: self.boot_id,
                address: Address { segment: self.segment, offset: offset as u64 },
            };
            match Head::read(&self.bytes[offset..], place) {
                Some(head) if head.durable > bad => return true,
                // A head that checks tells where the next one starts, whatever its payload looks like.
                Some(head) => offset += head.length as usize,
                None => offset += record::ALIGNMENT,
            }
        }
        false
    }

    /// See [`used_bytes`].
    pub fn used_bytes(&self) -> usize {
        used_bytes(self.bytes)
    }
}

/// How many bytes of a segment are not the zeros behind its end; at least the header's.
pub(crate) fn used_bytes(bytes: &[u8]) -> usize {
    // Without a way out in the middle of a chunk, which would make it a loop over bytes.
    let is_zero = |chunk: &&[u8]| chunk.iter().fold(0, |all, &byte| all | byte) == 0;
    let zeros: usize = bytes.rchunks(4096).take_while(is_zero).map(<[u8]>::len).sum();
    let used = bytes[..bytes.len() - zeros].iter().rposition(|&byte| byte != 0);
    used.map_or(0, |last| last + 1).max(HEADER_BYTES)
}

/// Why a segment cannot be read at all.
pub(crate) enum OpeningError<'a> {
    /// The header, which was durable before the segment existed.
    Header(HeaderError),
    /// The file is shorter than it was made.
    Shortened,
    /// The opening record, which is synced only with the first record behind it. The reader stands before it.
    Opening(SegmentReader<'a>),
}
