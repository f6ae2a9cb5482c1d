//! Redis's snapshot files (RDB), read value by value: for `ordo import`.
//!
//! ```text
//! "REDIS" version (4 digits), or "VALKEY" version (3 digits)
//! { opcode with what it says of the file, of the database or of the next key  |  type  key  value }
//! 255  CRC64 of all before (8 bytes, little endian; since version 5; 0 if none was computed)
//! ```
//!
//! A value stands in a file as it stands in a payload of DUMP, before the footer. So nothing is decoded here
//! that RESTORE decodes: [`RdbReader`] finds where a value ends and hands out its bytes, and
//! [`restorable`] puts RESTORE's footer behind them. The forms that RESTORE does not read are changed into
//! the plain form of a hash ([`fields`]): zipmaps of Redis 2.4, and hashes whose fields expire by themselves
//! (Redis 7.4 and Valkey 9), which Ordo has not. Values of modules are passed over and named.
//!
//! # Opcodes
//!
//! | opcode | what follows |
//! |---|---|
//! | 244 | a slot of a cluster: its number, its keys, how many of them expire |
//! | 245 | the code of a library of functions (246: of Redis 7.0's release candidates) |
//! | 247 | what a module keeps beside the keys |
//! | 248, 249 | how long the next key was idle, or how often it was used: not kept |
//! | 250 | a name and a text about the file |
//! | 251 | how many keys the database has, and how many of them expire |
//! | 252, 253 | when the next key expires: milliseconds (8 bytes), or seconds (4 bytes) since 1970 |
//! | 254 | the number of the database that follows |
//! | 255 | the end |
//!
//! # Damaged files
//!
//! No number of a file sizes anything: bytes are read as they come, and only then counted. An error tells at
//! which byte of the file it was found. The reader takes no byte behind the end, so that it can read what a
//! server sends to its replica, where commands follow.

mod fields;
mod pieces;
mod same;

pub use pieces::{Emit, in_pieces};
pub use same::is_same;

use crate::commands::dump::{
    FOOTER_BYTES, Strings, checksum_behind, kind, value as decode_value, with_footer,
};
use std::io::{self, BufRead, Read};
use txn::{Blob, Value};

/// The newest version of Redis's files that is known: of Redis 7.4 to 8.2.
const REDIS_VERSION_MAX: u32 = 12;
/// The versions of Valkey's own files: of Valkey 9. Valkey 8 writes Redis's version 11.
const VALKEY_VERSIONS: std::ops::RangeInclusive<u32> = 80..=81;
/// Since this version a file ends with its checksum.
const CHECKSUM_VERSION_MIN: u32 = 5;

/// The types of values that RESTORE does not read.
mod foreign {
    pub(super) const MODULE: u8 = 6;
    pub(super) const MODULE_2: u8 = 7;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    /// In Valkey's files a hash with expiring fields, in Redis's one of a release candidate of 7.4.
    pub(super) const HASH_2_OR_METADATA_CANDIDATE: u8 = 22;
    pub(super) const HASH_LISTPACK_CANDIDATE: u8 = 23;
    pub(super) const HASH_METADATA: u8 = 24;
    pub(super) const HASH_LISTPACK_EXPIRING: u8 = 25;
}

/// Why a file can't be read further.
#[derive(Debug, thiserror::Error)]
pub enum RdbError {
    /// It ends too early, or the disk or the link fails.
    #[error("byte {offset}: {cause}")]
    Input {
        /// How many bytes were read before.
        offset: u64,
        /// Why.
        cause: io::Error,
    },
    /// What stands there can't be.
    #[error("byte {offset}: {problem}: the snapshot is damaged")]
    Damaged {
        /// How many bytes were read before it was found.
        offset: u64,
        /// What is wrong.
        problem: String,
    },
    /// It is none, or of a newer version.
    #[error("byte {offset}: {problem}")]
    Unknown {
        /// How many bytes were read before it was found.
        offset: u64,
        /// What is not known.
        problem: String,
    },
}

/// A key with its value.
#[derive(Debug, PartialEq, Eq)]
pub struct RdbKey {
    /// The number of its database.
    pub database: u64,
    /// Its name.
    pub key: Blob,
    /// When it expires, in milliseconds since 1970.
    pub expires_at_ms: Option<u64>,
    /// The value, as [`restorable`] and [`value`] take it. Empty where no field of a hash is left.
    pub payload: Vec<u8>,
    /// How many fields of a hash expire by themselves, and are in `payload` without that.
    pub expiring_fields: u64,
    /// How many fields of a hash had expired, and are not in `payload`.
    pub expired_fields: u64,
}

/// What a file has next.
#[derive(Debug, PartialEq, Eq)]
pub enum RdbItem {
    /// A key.
    Key(RdbKey),
    /// The code of a library of functions, as FUNCTION LOAD takes it.
    Library(Blob),
    /// A key whose value is a module's.
    Module {
        /// The number of its database.
        database: u64,
        /// Its name.
        key: Blob,
        /// The name of the module's type.
        module: String,
    },
    /// The end, and the checksum is right.
    End,
}

/// What a length says: a number, or how the string is written that follows.
enum Length {
    Of(u64),
    Integer { bytes: u64 },
    Compressed,
}

/// Reads a file from its start to its end.
pub struct RdbReader<R> {
    input: R,
    /// How many bytes were read.
    offset: u64,
    /// The checksum of these.
    crc: u64,
    version: u32,
    /// Fields of hashes that expire before this time have expired: milliseconds since 1970.
    now_ms: u64,
    database: u64,
}

impl<R: BufRead> RdbReader<R> {
    /// Reads the head of a file. `now_ms`: fields of hashes that expire before have expired.
    ///
    /// # Errors
    /// It is no snapshot, or of an unknown version.
    pub fn new(input: R, now_ms: u64) -> Result<RdbReader<R>, RdbError> {
        let mut reader = RdbReader { input, offset: 0, crc: 0, version: 0, now_ms, database: 0 };
        let head: [u8; 9] = reader.array()?;
        let number = |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
        let (name, version): (&str, Option<u32>) = match &head {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => ("Redis", number(digits)),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => ("Valkey", number(digits)),
            _ => ("", None),
        };
        let Some(version) = version else {
            return Err(reader.unknown("this is no snapshot of Redis or Valkey"));
        };
        let is_known = match name {
            "Redis" => (1..=REDIS_VERSION_MAX).contains(&version),
            _ => VALKEY_VERSIONS.contains(&version),
        };
        if !is_known {
            return Err(reader.unknown(&format!(
                "the snapshot is of {name}'s version {version}, which is newer than what is known here \
                 (Redis {REDIS_VERSION_MAX}, Valkey {}): use a newer `ordo`",
                VALKEY_VERSIONS.end()
            )));
        }
        reader.version = version;
        Ok(reader)
    }

    /// How many bytes were read.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What was read from, behind what was read.
    pub fn into_input(self) -> R {
        self.input
    }

    /// What the file has next. After the end, or an error, it must not be called again.
    ///
    /// # Errors
    /// The input fails, or what stands there is damaged or not known.
    #[allow(clippy::should_implement_trait, reason = "the end is an item, and an error ends it too")]
    pub fn next(&mut self) -> Result<RdbItem, RdbError> {
        let mut expires_at_ms = None;
        let mut unread = Vec::new();
        loop {
            unread.clear();
            let [opcode] = self.array()?;
            match opcode {
                244 => self.numbers(3)?,
                245 => return self.text().map(RdbItem::Library),
                246 => return self.library_of_candidate(),
                247 => {
                    self.numbers(3)?;
                    self.module_fields()?;
                }
                248 => self.numbers(1)?,
                249 => self.copy(1, &mut unread)?,
                250 => {
                    self.copy_string(&mut unread)?;
                    self.copy_string(&mut unread)?;
                }
                251 => self.numbers(2)?,
                252 => expires_at_ms = Some(u64::from_le_bytes(self.array()?)),
                253 => expires_at_ms = Some(u64::from(u32::from_le_bytes(self.array()?)) * 1000),
                254 => self.database = self.number()?,
                255 => return self.end(),
                kind => {
                    // 0 stands for no expiry.
                    let expires_at_ms = expires_at_ms.map(|at_ms| at_ms.max(1));
                    return self.key(kind, expires_at_ms);
                }
            }
        }
    }

    fn damaged(&self, problem: &str) -> RdbError {
        RdbError::Damaged { offset: self.offset, problem: problem.to_owned() }
    }

    fn unknown(&self, problem: &str) -> RdbError {
        RdbError::Unknown { offset: self.offset, problem: problem.to_owned() }
    }

    fn end(&mut self) -> Result<RdbItem, RdbError> {
        if self.version >= CHECKSUM_VERSION_MIN {
            let computed = self.crc;
            let written = u64::from_le_bytes(self.array()?);
            // 0: the server was told to compute none.
            if written != 0 && written != computed {
                return Err(self.damaged("the checksum of the whole is wrong"));
            }
        }
        Ok(RdbItem::End)
    }

    fn key(&mut self, kind: u8, expires_at_ms: Option<u64>) -> Result<RdbItem, RdbError> {
        // A type that is not known is told before what follows is taken for a name.
        if !is_type(kind) {
            return Err(self.unknown(&format!(
                "{kind} is no type or opcode that is known here: the snapshot is damaged, or of a newer \
                 version"
            )));
        }
        let key = self.text()?;
        let database = self.database;
        match kind {
            foreign::MODULE => {
                return Err(self.unknown(&format!(
                    "the key {} has a module's value in the form of before Redis 4.0, which only the module \
                     reads: delete the key at the source, or load the snapshot into a newer Redis with the \
                     module and save it",
                    quoted(&key)
                )));
            }
            foreign::MODULE_2 => {
                let module = module_name(self.number()?);
                self.module_fields()?;
                return Ok(RdbItem::Module { database, key, module });
            }
            _ => {}
        }
        let mut payload = vec![kind];
        self.copy_value(kind, &mut payload)?;
        let key = RdbKey { database, key, expires_at_ms, payload, expiring_fields: 0, expired_fields: 0 };
        match fields::plain(&key.payload, self.version, self.now_ms) {
            None => Ok(RdbItem::Key(key)),
            Some(Some(hash)) => Ok(RdbItem::Key(RdbKey {
                payload: hash.payload,
                expiring_fields: hash.expiring,
                expired_fields: hash.expired,
                ..key
            })),
            Some(None) => {
                Err(self.damaged(&format!("the hash of the key {} makes no sense", quoted(&key.key))))
            }
        }
    }

    /// Copies a value of a type that is known.
    fn copy_value(&mut self, kind: u8, out: &mut Vec<u8>) -> Result<(), RdbError> {
        match kind {
            kind::LIST | kind::SET | kind::LIST_QUICKLIST => self.copy_strings(1, out),
            kind::HASH => self.copy_strings(2, out),
            kind::SORTED_SET => self.copy_each(out, |reader, out| {
                reader.copy_string(out)?;
                let start = out.len();
                reader.copy(1, out)?;
                match out[start] {
                    // Not a number, and both infinities.
                    253..=255 => Ok(()),
                    len => reader.copy(u64::from(len), out),
                }
            }),
            kind::SORTED_SET_2 => self.copy_each(out, |reader, out| {
                reader.copy_string(out)?;
                reader.copy(8, out)
            }),
            kind::LIST_QUICKLIST_2 => self.copy_each(out, |reader, out| {
                reader.copy_number(out)?;
                reader.copy_string(out)
            }),
            kind::STREAM | kind::STREAM_2 | kind::STREAM_3 => self.copy_stream(kind, out),
            foreign::HASH_2_OR_METADATA_CANDIDATE if VALKEY_VERSIONS.contains(&self.version) => self
                .copy_each(out, |reader, out| {
                    reader.copy_string(out)?;
                    reader.copy_string(out)?;
                    reader.copy(8, out)
                }),
            foreign::HASH_2_OR_METADATA_CANDIDATE | foreign::HASH_METADATA => {
                if kind == foreign::HASH_METADATA {
                    self.copy(8, out)?;
                }
                self.copy_each(out, |reader, out| {
                    reader.copy_number(out)?;
                    reader.copy_string(out)?;
                    reader.copy_string(out)
                })
            }
            foreign::HASH_LISTPACK_EXPIRING => {
                self.copy(8, out)?;
                self.copy_string(out)
            }
            // One string: itself, or a collection that is packed into it.
            _ => self.copy_string(out),
        }
    }

    fn copy_stream(&mut self, kind: u8, out: &mut Vec<u8>) -> Result<(), RdbError> {
        const ID_BYTES: u64 = 16;
        const TIME_BYTES: u64 = 8;
        let is_since_7_0 = kind != kind::STREAM;
        self.copy_strings(2, out)?;
        // Its length and its last id; the first id, the largest deleted one, and how many were ever added.
        for _ in 0..if is_since_7_0 { 8 } else { 3 } {
            self.copy_number(out)?;
        }
        self.copy_each(out, |reader, out| {
            reader.copy_string(out)?;
            for _ in 0..if is_since_7_0 { 3 } else { 2 } {
                reader.copy_number(out)?;
            }
            reader.copy_each(out, |reader, out| {
                reader.copy(ID_BYTES + TIME_BYTES, out)?;
                reader.copy_number(out).map(drop)
            })?;
            reader.copy_each(out, |reader, out| {
                reader.copy_string(out)?;
                let times = if kind == kind::STREAM_3 { 2 } else { 1 };
                reader.copy(times * TIME_BYTES, out)?;
                reader.copy_each(out, |reader, out| reader.copy(ID_BYTES, out))
            })
        })
    }

    /// Copies a number, and as many of what `copy` copies.
    fn copy_each(
        &mut self,
        out: &mut Vec<u8>,
        copy: impl Fn(&mut Self, &mut Vec<u8>) -> Result<(), RdbError>,
    ) -> Result<(), RdbError> {
        for _ in 0..self.copy_number(out)? {
            copy(self, out)?;
        }
        Ok(())
    }

    fn copy_strings(&mut self, per_element: usize, out: &mut Vec<u8>) -> Result<(), RdbError> {
        self.copy_each(out, |reader, out| (0..per_element).try_for_each(|_| reader.copy_string(out)))
    }

    /// Copies a string as it is written.
    fn copy_string(&mut self, out: &mut Vec<u8>) -> Result<(), RdbError> {
        match self.copy_length(out)? {
            Length::Of(bytes) | Length::Integer { bytes } => self.copy(bytes, out),
            Length::Compressed => {
                let bytes = self.copy_number(out)?;
                self.copy_number(out)?;
                self.copy(bytes, out)
            }
        }
    }

    /// Copies a length that is a number, and gives that.
    fn copy_number(&mut self, out: &mut Vec<u8>) -> Result<u64, RdbError> {
        match self.copy_length(out)? {
            Length::Of(number) => Ok(number),
            _ => Err(self.damaged("a string's form stands where a number should")),
        }
    }

    fn copy_length(&mut self, out: &mut Vec<u8>) -> Result<Length, RdbError> {
        let mut bytes = |reader: &mut Self, count: usize| {
            let start = out.len();
            reader.copy(count as u64, out)?;
            Ok(out[start..].iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
        };
        let first = bytes(self, 1)?;
        let low = first & 0x3f;
        match (first >> 6, low) {
            (0, _) => Ok(Length::Of(low)),
            (1, _) => Ok(Length::Of(low << 8 | bytes(self, 1)?)),
            (2, 0) => bytes(self, 4).map(Length::Of),
            (2, 1) => bytes(self, 8).map(Length::Of),
            (3, 0..=2) => Ok(Length::Integer { bytes: 1 << low }),
            (3, 3) => Ok(Length::Compressed),
            _ => Err(self.damaged("a length has an unknown form")),
        }
    }

    /// Copies bytes: as many as there are, before it is found that some are missing.
    fn copy(&mut self, len: u64, out: &mut Vec<u8>) -> Result<(), RdbError> {
        let start = out.len();
        let read = self.input.by_ref().take(len).read_to_end(out);
        self.crc = checksum_behind(self.crc, &out[start..]);
        let copied = (out.len() - start) as u64;
        self.offset += copied;
        match read {
            Ok(_) if copied == len => Ok(()),
            Ok(_) => {
                let cause = io::Error::new(io::ErrorKind::UnexpectedEof, "it ends here, too early");
                Err(RdbError::Input { offset: self.offset, cause })
            }
            Err(cause) => Err(RdbError::Input { offset: self.offset, cause }),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RdbError> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes).map_err(|cause| {
            let cause = match cause.kind() {
                io::ErrorKind::UnexpectedEof => io::Error::new(cause.kind(), "it ends here, too early"),
                _ => cause,
            };
            RdbError::Input { offset: self.offset, cause }
        })?;
        self.crc = checksum_behind(self.crc, &bytes);
        self.offset += N as u64;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<u64, RdbError> {
        self.copy_number(&mut Vec::new())
    }

    /// Passes over numbers.
    fn numbers(&mut self, count: usize) -> Result<(), RdbError> {
        (0..count).try_for_each(|_| self.number().map(drop))
    }

    /// A string as it is meant.
    fn text(&mut self) -> Result<Blob, RdbError> {
        let mut written = Vec::new();
        self.copy_string(&mut written)?;
        let text = Strings::new(&written).string();
        text.ok_or_else(|| self.damaged("a compressed string makes no sense"))
    }

    fn library_of_candidate(&mut self) -> Result<RdbItem, RdbError> {
        let (name, engine) = (self.text()?, self.text()?);
        if self.number()? != 0 {
            self.text()?;
        }
        let code = self.text()?;
        let parts = [b"#!", &engine[..], b" name=", &name, b"\n", &code];
        Ok(RdbItem::Library(Blob::from(parts.concat())))
    }

    /// Passes over what a module has written, up to its end.
    fn module_fields(&mut self) -> Result<(), RdbError> {
        let mut unread = Vec::new();
        loop {
            unread.clear();
            match self.number()? {
                0 => return Ok(()),
                1 | 2 => self.numbers(1)?,
                3 => self.copy(4, &mut unread)?,
                4 => self.copy(8, &mut unread)?,
                5 => self.copy_string(&mut unread)?,
                _ => return Err(self.damaged("a module's value has a part of an unknown form")),
            }
        }
    }
}

fn is_type(kind: u8) -> bool {
    // 8 was never given away.
    kind <= foreign::HASH_LISTPACK_EXPIRING && kind != 8
}

/// A name as people read it.
pub fn quoted(name: &[u8]) -> String {
    const BYTES_MAX: usize = 200;
    let more = if name.len() > BYTES_MAX { "..." } else { "" };
    format!("\"{}\"{more}", name[..name.len().min(BYTES_MAX)].escape_ascii())
}

/// The name in a module's number: nine letters of 6 bits each, above ten bits with a version.
fn module_name(number: u64) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |at: u32| char::from(LETTERS[(number >> (10 + 6 * (8 - at)) & 0x3f) as usize]);
    (0..9).map(letter).collect()
}

/// What RESTORE takes for a value.
pub fn restorable(payload: Vec<u8>) -> Vec<u8> {
    with_footer(payload)
}

/// The value that [`RdbKey::payload`] describes; `None` if it makes no sense.
pub fn value(payload: &[u8]) -> Option<Value> {
    decode_value(payload)
}

/// Whether what a Redis or a Valkey replies to DUMP is a module's value.
pub fn is_module(dumped: &[u8]) -> bool {
    matches!(dumped.first(), Some(&(foreign::MODULE | foreign::MODULE_2)))
}

/// The value of what a Redis or a Valkey of any version replies to DUMP, without what expires in it; `None`
/// if it makes no sense, or if no field of a hash is left at `now_ms`.
pub fn dumped_value(dumped: &[u8], now_ms: u64) -> Option<Value> {
    value(&plain_dump(dumped, now_ms)?)
}

/// What RESTORE takes for what a Redis or a Valkey of any version takes, without what expires in it; `None`
/// if it makes no sense, or if no field of a hash is left at `now_ms`.
pub fn restorable_dump(dumped: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    plain_dump(dumped, now_ms).map(restorable)
}

/// The payload of a reply to DUMP. Its footer's checksum is not looked at: it came over a link that has its
/// own.
fn plain_dump(dumped: &[u8], now_ms: u64) -> Option<Vec<u8>> {
    let (payload, footer) = dumped.split_at_checked(dumped.len().checked_sub(FOOTER_BYTES)?)?;
    let version = u16::from_le_bytes([footer[0], footer[1]]);
    match fields::plain(payload, u32::from(version), now_ms) {
        None => Some(payload.to_vec()),
        Some(hash) => Some(hash?.payload).filter(|payload| !payload.is_empty()),
    }
}

#[cfg(test)]
mod tests;
