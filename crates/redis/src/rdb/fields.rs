//! Forms of hashes that RESTORE does not read, changed into the plain one.
//!
//! ```text
//! zipmap            fields (1)  { length  field  length  unused (1)  value  unused bytes }  255
//!                   a length is a byte, or 254 and 4 bytes, little endian
//! Valkey 9          fields  { field  value  when it expires (8, -1 for never) }
//! Redis 7.4         when the first expires (8)  fields  { time  field  value }
//!                   a time is when the field expires, less that of the first, plus 1; 0 for never
//!                   when the first expires (8)  listpack of { field  value  when it expires, 0 for never }
//! ```
//!
//! The release candidates of Redis 7.4 have no time of the first, and the others in full.

use super::{VALKEY_VERSIONS, foreign};
use crate::commands::dump::{Cursor, Strings, kind, listpack, put_len, put_string};
use crate::parse;
use txn::Blob;

/// A hash in the plain form.
pub(super) struct PlainHash {
    /// Empty if no field is left.
    pub payload: Vec<u8>,
    /// Fields that expire by themselves, and are among those of `payload`.
    pub expiring: u64,
    /// Fields that had expired.
    pub expired: u64,
}

/// A field, its value, and when it expires in milliseconds since 1970; 0 for never.
type Field = (Blob, Blob, u64);

/// The plain form of a payload that has another one; `None` if RESTORE reads it. The inner `None`: it makes
/// no sense.
pub(super) fn plain(payload: &[u8], version: u32, now_ms: u64) -> Option<Option<PlainHash>> {
    let (&kind, body) = payload.split_first()?;
    let fields = match kind {
        foreign::HASH_ZIPMAP => zipmap(body),
        foreign::HASH_2_OR_METADATA_CANDIDATE if VALKEY_VERSIONS.contains(&version) => valkey(body),
        foreign::HASH_2_OR_METADATA_CANDIDATE => table(body, None),
        foreign::HASH_METADATA => with_first(body).and_then(|(first_ms, body)| table(body, Some(first_ms))),
        foreign::HASH_LISTPACK_CANDIDATE => packed(body),
        foreign::HASH_LISTPACK_EXPIRING => with_first(body).and_then(|(_, body)| packed(body)),
        _ => return None,
    };
    Some(fields.map(|fields| written(fields, now_ms)))
}

fn written(mut fields: Vec<Field>, now_ms: u64) -> PlainHash {
    let all = fields.len();
    fields.retain(|&(_, _, at_ms)| at_ms == 0 || at_ms > now_ms);
    let mut payload = Vec::new();
    if !fields.is_empty() {
        payload.push(kind::HASH);
        put_len(&mut payload, fields.len());
    }
    for (field, value, _) in &fields {
        put_string(&mut payload, field);
        put_string(&mut payload, value);
    }
    let expiring = fields.iter().filter(|&&(_, _, at_ms)| at_ms != 0).count() as u64;
    PlainHash { payload, expiring, expired: (all - fields.len()) as u64 }
}

/// Splits off when the first field expires.
fn with_first(body: &[u8]) -> Option<(u64, &[u8])> {
    let (first_ms, body) = body.split_first_chunk()?;
    Some((u64::from_le_bytes(*first_ms), body))
}

fn valkey(body: &[u8]) -> Option<Vec<Field>> {
    let mut rest = Strings::new(body);
    let mut fields = Vec::new();
    for _ in 0..rest.number()? {
        let (field, value) = (rest.string()?, rest.string()?);
        let at_ms = rest.time_ms()?;
        fields.push((field, value, if at_ms == u64::MAX { 0 } else { at_ms }));
    }
    Some(fields)
}

/// Fields with their times before them: in full, or relative to the first one.
fn table(body: &[u8], first_ms: Option<u64>) -> Option<Vec<Field>> {
    let mut rest = Strings::new(body);
    let mut fields = Vec::new();
    for _ in 0..rest.number()? {
        let time = rest.number()? as u64;
        let (field, value) = (rest.string()?, rest.string()?);
        let at_ms = match first_ms {
            Some(first_ms) if time > 0 => first_ms.checked_add(time - 1)?,
            _ => time,
        };
        fields.push((field, value, at_ms));
    }
    Some(fields)
}

fn packed(body: &[u8]) -> Option<Vec<Field>> {
    let elements = listpack(&Strings::new(body).string()?)?;
    let (triples, []) = elements.as_chunks::<3>() else {
        return None;
    };
    let field = |[field, value, time]: &[Blob; 3]| {
        let at_ms = u64::try_from(parse::integer(time)?).ok()?;
        Some((field.clone(), value.clone(), at_ms))
    };
    triples.iter().map(field).collect()
}

fn zipmap(body: &[u8]) -> Option<Vec<Field>> {
    const END: u8 = 255;
    const LONG: u8 = 254;
    let bytes = Strings::new(body).string()?;
    let mut rest = Cursor(&bytes);
    let _fields = rest.byte()?;
    let length = |first: u8, rest: &mut Cursor<'_>| match first {
        END => None,
        LONG => usize::try_from(u32::from_le_bytes(rest.array()?)).ok(),
        short => Some(usize::from(short)),
    };
    let mut fields = Vec::new();
    loop {
        let first = rest.byte()?;
        if first == END {
            return rest.is_empty().then_some(fields);
        }
        let len = length(first, &mut rest)?;
        let field = Blob::new(rest.take(len)?);
        let first = rest.byte()?;
        let len = length(first, &mut rest)?;
        let unused = usize::from(rest.byte()?);
        let value = Blob::new(rest.take(len)?);
        rest.take(unused)?;
        fields.push((field, value, 0));
    }
}
