//! The byte forms of values, requests and replies, shared by the input log, checkpoints and (later) peers.
//!
//! Integers are little-endian; lengths are LEB128 varints. Every decoder is total: it returns `None` on any
//! input that an encoder did not produce, and allocates no more than the input's own length.

use crate::blob::Blob;
use crate::ids::SessionId;
use crate::key::{Key, Space};
use crate::procedure::{ProcedureId, Registry};
use crate::request::{Args, Request, RequestId};
use crate::value::{Entry, HashValue, ListValue, ScoredRef, SetValue, SortedSetValue, Value};

mod reply;
mod stream;
pub use reply::{REPLY_DEPTH_MAX, put_reply, take_reply};

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length and the bytes.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads a buffer from its front.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }
    /// What was not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
    /// Whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }
    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }
    /// A byte.
    pub fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }
    /// A 32-bit integer.
    pub fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    /// A 64-bit integer.
    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    /// A varint in its shortest form.
    pub fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return (byte != 0 || shift == 0).then_some(value);
            }
        }
        None
    }
    /// A length and its bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.varint()?).ok()?;
        self.take(len)
    }
    /// A length and its bytes, as a blob.
    pub fn blob(&mut self) -> Option<Blob> {
        self.bytes().map(Blob::new)
    }
}

/// Appends a key.
pub fn put_key(out: &mut Vec<u8>, key: &Key) {
    out.push(key.space() as u8);
    put_bytes(out, key.as_bytes());
}

/// Reads a key.
pub fn take_key(reader: &mut Reader<'_>) -> Option<Key> {
    let space = match reader.u8()? {
        0 => Space::User,
        1 => Space::System,
        _ => return None,
    };
    Some(Key::in_space(space, reader.bytes()?))
}

const TAG_STRING: u8 = 1;
const TAG_HASH: u8 = 2;
const TAG_LIST: u8 = 3;
const TAG_SET: u8 = 4;
const TAG_SORTED_SET: u8 = 5;
const TAG_STREAM: u8 = 6;

/// Appends an entry.
pub fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_varint(out, entry.expires_at_ms);
    match &entry.value {
        Value::String(blob) => {
            out.push(TAG_STRING);
            put_bytes(out, blob);
        }
        Value::LongString(string) => {
            out.push(TAG_STRING);
            put_varint(out, string.len() as u64);
            // Else the room would double many times, and copy what it has each time.
            out.reserve(string.len());
            let pieces = string.pieces(0..string.len());
            pieces.for_each(|piece| out.extend_from_slice(piece));
        }
        Value::Hash(hash) => {
            out.push(TAG_HASH);
            put_varint(out, hash.len() as u64);
            for (field, value) in hash.iter() {
                put_bytes(out, &field);
                put_bytes(out, &value);
            }
        }
        Value::List(list) => {
            out.push(TAG_LIST);
            put_varint(out, list.len() as u64);
            list.iter().for_each(|element| put_bytes(out, &element));
        }
        Value::Set(set) => {
            out.push(TAG_SET);
            put_varint(out, set.len() as u64);
            set.names().for_each(|member| put_bytes(out, &member));
        }
        Value::SortedSet(set) => {
            out.push(TAG_SORTED_SET);
            put_varint(out, set.len() as u64);
            for ScoredRef { score, member } in set.iter() {
                out.extend_from_slice(&score.to_bits().to_le_bytes());
                put_bytes(out, &member);
            }
        }
        Value::Stream(value) => {
            out.push(TAG_STREAM);
            stream::put(out, value);
        }
    }
}

/// Reads an entry.
pub fn take_entry(reader: &mut Reader<'_>) -> Option<Entry> {
    let expires_at_ms = reader.varint()?;
    let value = match reader.u8()? {
        TAG_STRING => Value::String(reader.blob()?),
        TAG_HASH => {
            let len = reader.varint()?;
            let fields: Option<HashValue> = (0..len).map(|_| reader.blob().zip(reader.blob())).collect();
            Value::from(fields?)
        }
        TAG_LIST => {
            let len = reader.varint()?;
            let elements: Option<ListValue> = (0..len).map(|_| reader.blob()).collect();
            Value::from(elements?)
        }
        TAG_SET => {
            let len = reader.varint()?;
            let members: Option<SetValue> = (0..len).map(|_| reader.blob()).collect();
            Value::from(members?)
        }
        TAG_SORTED_SET => {
            let len = reader.varint()?;
            let member = |_| {
                let score = Some(f64::from_bits(reader.u64()?)).filter(|score| !score.is_nan())?;
                Some((reader.blob()?, score))
            };
            let members: Option<SortedSetValue> = (0..len).map(member).collect();
            Value::from(members?)
        }
        TAG_STREAM => Value::from(stream::take(reader)?),
        _ => return None,
    };
    Some(Entry { value, expires_at_ms })
}

/// Appends a request: what must be known to run it again, and to recognise a re-proposal.
pub fn put_request(out: &mut Vec<u8>, request: &Request) {
    out.extend_from_slice(&ProcedureId::of(request.procedure.name()).0.to_le_bytes());
    put_varint(out, request.id.session.0);
    put_varint(out, request.id.sequence);
    put_varint(out, u64::from(request.id.attempt));
    put_varint(out, u64::from(request.slots_version));
    put_varint(out, request.args.len() as u64);
    for arg in request.args.iter() {
        put_bytes(out, arg);
    }
}

/// Why a request could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Not what [`put_request`] writes.
    #[error("the bytes are not a request")]
    Malformed,
    /// A procedure that the registry does not have.
    #[error(
        "procedure {0:#010x} is not registered: start the version (or register the procedure) that wrote it"
    )]
    UnknownProcedure(u32),
}

/// Reads a request.
pub fn take_request(reader: &mut Reader<'_>, registry: &Registry) -> Result<Request, RequestError> {
    let id = reader.u32().ok_or(RequestError::Malformed)?;
    let (request_id, slots_version, args) = take_request_body(reader).ok_or(RequestError::Malformed)?;
    let procedure = registry.by_id(ProcedureId(id)).ok_or(RequestError::UnknownProcedure(id))?.clone();
    let mut request = Request::new(request_id, procedure, args);
    request.slots_version = slots_version;
    Ok(request)
}

fn take_request_body(reader: &mut Reader<'_>) -> Option<(RequestId, u32, Args)> {
    let session = SessionId(reader.varint()?);
    let sequence = reader.varint()?;
    let attempt = u32::try_from(reader.varint()?).ok()?;
    let slots_version = u32::try_from(reader.varint()?).ok()?;
    let count = reader.varint()?;
    let mut args = Args::new();
    for _ in 0..count {
        args.0.push(reader.blob()?);
    }
    Some((RequestId { session, sequence, attempt }, slots_version, args))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::LongString;

    #[test]
    fn varints_round_trip_in_their_shortest_form_only() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Some(value));
            assert!(reader.is_empty());
        }
        assert_eq!(Reader::new(&[0x80, 0x00]).varint(), None);
        assert_eq!(Reader::new(&[0xff; 10]).varint(), None);
        assert_eq!(Reader::new(&[0x80]).varint(), None);
    }

    #[test]
    fn entries_round_trip_and_truncations_are_refused() {
        let hash: HashValue =
            (0..100).map(|i| (Blob::from(format!("f{i}")), Blob::from(format!("v{i}")))).collect();
        let name = |i: i32| Blob::from(format!("{i:040}"));
        let list: ListValue = (0..100).map(name).collect();
        let set: SetValue = (0..100).map(name).collect();
        let sorted: SortedSetValue = (0..100).map(|i| (name(i), f64::from(i % 7))).collect();
        for entry in [
            Entry::new("x"),
            Entry::new(LongString::from(&[7; 5000][..])),
            Entry::new(list),
            Entry::new(set),
            Entry::new(sorted),
            Entry { value: Value::from(hash), expires_at_ms: 1_700_000_000_000 },
        ] {
            let mut out = Vec::new();
            put_entry(&mut out, &entry);
            assert_eq!(take_entry(&mut Reader::new(&out)), Some(entry));
            for len in 0..out.len() {
                assert_eq!(take_entry(&mut Reader::new(&out[..len])), None);
            }
        }
        let mut not_a_number = vec![0, TAG_SORTED_SET, 1];
        not_a_number.extend_from_slice(&f64::NAN.to_bits().to_le_bytes());
        put_bytes(&mut not_a_number, b"member");
        assert_eq!(take_entry(&mut Reader::new(&not_a_number)), None);
    }
}
