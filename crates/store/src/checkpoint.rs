//! The checkpoint format: a snapshot of a partition as a stream of bytes.
//!
//! ```text
//! header   magic "ORDOCKP1" · u32 header length · header fields · u32 crc of all before
//! block*   u32 length (> 0) · u32 crc of the payload · payload: images, each: varint version · u8 has-entry · key · [entry]
//! footer   u32 0 · u64 number of images · u32 crc over the footer's first 12 bytes and all blocks' crcs
//! ```
//! Integers are little-endian; keys and entries are in the form of [`txn::codec`]. A reader trusts nothing: a
//! stream is valid only if it ends with its footer and the number of images agrees, so that a cut or damaged
//! file is never loaded as a smaller one. `docs/checkpoint-format.md` has the fields byte by byte.

use crate::view::Image;
use std::io::{self, Read, Write};
use txn::codec::{Reader, put_entry, put_key, put_varint, take_entry, take_key};
use txn::{Epoch, Position};

const MAGIC: &[u8; 8] = b"ORDOCKP1";
/// A block is written once it has this many bytes.
const BLOCK_BYTES: usize = 64 * 1024;
/// No valid block is longer: an image is at most a value (512 MiB, Redis's bound) and change.
const BLOCK_BYTES_MAX: usize = 1 << 30;

/// What a checkpoint says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The snapshot's position: replay starts after it.
    pub position: Position,
    /// The epoch of that position.
    pub epoch: Epoch,
    /// The epoch's time.
    pub time_ms: u64,
    /// The chained digest of the order up to there.
    pub digest: u64,
    /// The boot that wrote it.
    pub boot: u64,
    /// The range tombstones up to there.
    pub clears: Vec<Position>,
}

/// Why a checkpoint can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file could not be read or written.
    #[error("reading the checkpoint failed: {0}")]
    Io(io::Error),
    /// The bytes are not a whole checkpoint.
    #[error("the checkpoint is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

// By hand: a derived one would make the error its own cause's parent, and whoever prints the chain would
// print it twice.
impl From<io::Error> for CheckpointError {
    fn from(cause: io::Error) -> CheckpointError {
        CheckpointError::Io(cause)
    }
}

/// Writes a checkpoint.
pub struct Writer<W> {
    out: W,
    block: Vec<u8>,
    images: u64,
    digest: crc32fast::Hasher,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn new(mut out: W, header: &Header) -> io::Result<Writer<W>> {
        let mut fields = Vec::new();
        for value in [header.position.0, header.epoch.0, header.time_ms, header.digest, header.boot] {
            fields.extend_from_slice(&value.to_le_bytes());
        }
        put_varint(&mut fields, header.clears.len() as u64);
        for clear in &header.clears {
            put_varint(&mut fields, clear.0);
        }
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&fields);
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        out.write_all(&bytes)?;
        Ok(Writer {
            out,
            block: Vec::with_capacity(BLOCK_BYTES * 2),
            images: 0,
            digest: crc32fast::Hasher::new(),
        })
    }
    /// Adds a record.
    pub fn push(&mut self, image: &Image) -> io::Result<()> {
        put_varint(&mut self.block, image.version.0);
        self.block.push(u8::from(image.entry.is_some()));
        put_key(&mut self.block, &image.key);
        if let Some(entry) = &image.entry {
            put_entry(&mut self.block, entry);
        }
        self.images += 1;
        if self.block.len() >= BLOCK_BYTES { self.end_block() } else { Ok(()) }
    }
    fn end_block(&mut self) -> io::Result<()> {
        if self.block.is_empty() {
            return Ok(());
        }
        let crc = crc32fast::hash(&self.block).to_le_bytes();
        self.digest.update(&crc);
        self.out.write_all(&(self.block.len() as u32).to_le_bytes())?;
        self.out.write_all(&crc)?;
        self.out.write_all(&self.block)?;
        self.block.clear();
        Ok(())
    }
    /// Writes the footer; gives back the output and the number of records. The caller syncs it.
    pub fn finish(mut self) -> io::Result<(W, u64)> {
        self.end_block()?;
        let mut footer = 0u32.to_le_bytes().to_vec();
        footer.extend_from_slice(&self.images.to_le_bytes());
        self.digest.update(&footer);
        footer.extend_from_slice(&self.digest.finalize().to_le_bytes());
        self.out.write_all(&footer)?;
        self.out.flush()?;
        Ok((self.out, self.images))
    }
}

/// Reads a whole checkpoint; hands each record to `load`.
///
/// Records reach `load` before the footer is checked: on an error, throw away what was loaded.
pub fn read<R: Read>(input: R, mut load: impl FnMut(Image)) -> Result<Header, CheckpointError> {
    let mut input = Counted { input, offset: 0 };
    let mut head = [0; 12];
    input.exact(&mut head, "the header is cut")?;
    let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]) as usize;
    if &head[..8] != MAGIC {
        return Err(input.damaged("it does not start with the magic of a checkpoint of this version"));
    }
    let fields = input.bytes(length, "the header is cut")?;
    let crc = input.u32("the header is cut")?;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&head);
    hasher.update(&fields);
    if hasher.finalize() != crc {
        return Err(input.damaged("the header's checksum is wrong"));
    }
    let header = take_header(&fields).ok_or_else(|| input.damaged("the header's fields are malformed"))?;
    let mut images = 0u64;
    let mut digest = crc32fast::Hasher::new();
    loop {
        let length = input.u32("the file ends before its footer")?;
        if length == 0 {
            break;
        }
        if length as usize > BLOCK_BYTES_MAX {
            return Err(input.damaged("a block's length is out of bounds"));
        }
        let crc = input.u32("a block is cut")?;
        let block = input.bytes(length as usize, "a block is cut")?;
        if crc32fast::hash(&block) != crc {
            return Err(input.damaged("a block's checksum is wrong"));
        }
        digest.update(&crc.to_le_bytes());
        let mut reader = Reader::new(&block);
        while !reader.is_empty() {
            load(take_image(&mut reader).ok_or_else(|| input.damaged("a record is malformed"))?);
            images += 1;
        }
    }
    let mut count = [0; 8];
    input.exact(&mut count, "the footer is cut")?;
    digest.update(&0u32.to_le_bytes());
    digest.update(&count);
    if input.u32("the footer is cut")? != digest.finalize() {
        return Err(input.damaged("the footer's checksum is wrong"));
    }
    if u64::from_le_bytes(count) != images {
        return Err(input.damaged("the number of records is not what the footer says"));
    }
    let mut more = [0; 1];
    if input.input.read(&mut more)? != 0 {
        return Err(input.damaged("there are bytes after the footer"));
    }
    Ok(header)
}

fn take_header(fields: &[u8]) -> Option<Header> {
    let mut reader = Reader::new(fields);
    let mut header = Header {
        position: Position(reader.u64()?),
        epoch: Epoch(reader.u64()?),
        time_ms: reader.u64()?,
        digest: reader.u64()?,
        boot: reader.u64()?,
        clears: Vec::new(),
    };
    for _ in 0..reader.varint()? {
        header.clears.push(Position(reader.varint()?));
    }
    reader.is_empty().then_some(header)
}

fn take_image(reader: &mut Reader<'_>) -> Option<Image> {
    let version = Position(reader.varint()?);
    let has_entry = reader.u8()?;
    let key = take_key(reader)?;
    let entry = match has_entry {
        0 => None,
        1 => Some(take_entry(reader)?),
        _ => return None,
    };
    Some(Image { key, version, entry })
}

struct Counted<R> {
    input: R,
    offset: u64,
}

impl<R: Read> Counted<R> {
    fn damaged(&self, what: &'static str) -> CheckpointError {
        CheckpointError::Damaged { offset: self.offset, what }
    }
    fn exact(&mut self, buffer: &mut [u8], what: &'static str) -> Result<(), CheckpointError> {
        match self.input.read_exact(buffer) {
            Ok(()) => {
                self.offset += buffer.len() as u64;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(self.damaged(what)),
            Err(error) => Err(error.into()),
        }
    }
    fn u32(&mut self, what: &'static str) -> Result<u32, CheckpointError> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }
    /// Reads `length` bytes; allocates no more than are there.
    fn bytes(&mut self, length: usize, what: &'static str) -> Result<Vec<u8>, CheckpointError> {
        let mut bytes = Vec::new();
        let read = (&mut self.input).take(length as u64).read_to_end(&mut bytes)?;
        if read < length {
            return Err(self.damaged(what));
        }
        self.offset += length as u64;
        Ok(bytes)
    }
}

/// The fuzzers' and property tests' way in: reads any bytes, and must only ever return.
pub fn fuzz_reader(bytes: &[u8]) -> Option<u64> {
    let mut images = 0;
    read(bytes, |_| images += 1).ok().map(|_| images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use txn::{Entry, Key};

    fn sample(images: usize) -> (Header, Vec<Image>, Vec<u8>) {
        let header = Header {
            position: Position(77),
            epoch: Epoch(9),
            time_ms: 1234,
            digest: 42,
            boot: 3,
            clears: vec![Position(5)],
        };
        let images: Vec<Image> = (0..images)
            .map(|i| Image {
                key: Key::new(format!("key:{i}").as_bytes()),
                version: Position(i as u64 + 1),
                entry: (i % 7 != 0)
                    .then(|| Entry { value: "v".repeat(i % 50).as_str().into(), expires_at_ms: i as u64 }),
            })
            .collect();
        let mut writer = Writer::new(Vec::new(), &header).unwrap();
        for image in &images {
            writer.push(image).unwrap();
        }
        let (bytes, count) = writer.finish().unwrap();
        assert_eq!(count, images.len() as u64);
        (header, images, bytes)
    }

    #[test]
    fn what_was_written_is_read() {
        for count in [0, 1, 10_000] {
            let (header, images, bytes) = sample(count);
            let mut loaded = Vec::new();
            assert_eq!(read(&bytes[..], |image| loaded.push(image)).unwrap(), header);
            assert_eq!(loaded, images);
        }
    }

    #[test]
    fn every_truncation_and_every_flipped_bit_is_noticed() {
        let (_, _, bytes) = sample(20);
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], |_| ()).is_err(), "cut at {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged[..], |_| ()).is_err(), "bit {bit}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(fuzz_reader(&bytes), None);
        }
    }
}
