//! The byte form of replies, exact for every kind: what RESP2 would show in the same way stays apart.
//!
//! A tag, then the number, the length-prefixed bytes, or the count and the items.

use super::{Reader, put_bytes, put_varint};
use crate::reply::Reply;
use std::borrow::Cow;

/// How deeply a decoded reply may nest. More than any procedure makes: a script's reply ends a thousand
/// levels down.
pub const REPLY_DEPTH_MAX: usize = 1100;

const TAG_NIL: u8 = 1;
const TAG_NIL_ARRAY: u8 = 2;
const TAG_STATUS: u8 = 3;
const TAG_ERROR: u8 = 4;
const TAG_INTEGER: u8 = 5;
const TAG_DOUBLE: u8 = 6;
const TAG_FALSE: u8 = 7;
const TAG_TRUE: u8 = 8;
const TAG_BIG_NUMBER: u8 = 9;
const TAG_BULK: u8 = 10;
const TAG_VERBATIM: u8 = 11;
const TAG_ARRAY: u8 = 12;
const TAG_MAP: u8 = 13;
const TAG_SET: u8 = 14;
const TAG_PUSH: u8 = 15;
const TAG_PAIRS: u8 = 16;
const TAG_PAIR_MAP: u8 = 17;
const TAG_DECIMAL: u8 = 18;

/// The formats that a text may have.
const FORMATS: [&str; 2] = ["txt", "mkd"];

/// Appends a reply.
pub fn put_reply(out: &mut Vec<u8>, reply: &Reply) {
    match reply {
        Reply::Nil => out.push(TAG_NIL),
        Reply::NilArray => out.push(TAG_NIL_ARRAY),
        Reply::Boolean(false) => out.push(TAG_FALSE),
        Reply::Boolean(true) => out.push(TAG_TRUE),
        Reply::Status(text) => tagged(out, TAG_STATUS, text.as_bytes()),
        Reply::Error(text) => tagged(out, TAG_ERROR, text.as_bytes()),
        Reply::BigNumber(digits) => tagged(out, TAG_BIG_NUMBER, digits),
        Reply::Bulk(bytes) => tagged(out, TAG_BULK, bytes),
        Reply::Integer(value) => {
            out.push(TAG_INTEGER);
            out.extend_from_slice(&value.to_le_bytes());
        }
        Reply::Double(value) => {
            out.push(TAG_DOUBLE);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Reply::Decimal(value) => {
            out.push(TAG_DECIMAL);
            out.extend_from_slice(&value.to_bits().to_le_bytes());
        }
        Reply::Verbatim(format, text) => {
            tagged(out, TAG_VERBATIM, format.as_bytes());
            put_bytes(out, text);
        }
        Reply::Array(items) => sequence(out, TAG_ARRAY, items),
        Reply::Set(items) => sequence(out, TAG_SET, items),
        Reply::Push(items) => sequence(out, TAG_PUSH, items),
        Reply::Map(pairs) => put_pairs(out, TAG_MAP, pairs),
        Reply::Pairs(pairs) => put_pairs(out, TAG_PAIRS, pairs),
        Reply::PairMap(pairs) => put_pairs(out, TAG_PAIR_MAP, pairs),
        // What others are told is not part of what is kept.
        Reply::Told(told) => put_reply(out, &told.reply),
    }
}

fn tagged(out: &mut Vec<u8>, tag: u8, bytes: &[u8]) {
    out.push(tag);
    put_bytes(out, bytes);
}

fn sequence(out: &mut Vec<u8>, tag: u8, items: &[Reply]) {
    out.push(tag);
    put_varint(out, items.len() as u64);
    for item in items {
        put_reply(out, item);
    }
}

fn put_pairs(out: &mut Vec<u8>, tag: u8, pairs: &[(Reply, Reply)]) {
    out.push(tag);
    put_varint(out, pairs.len() as u64);
    for (key, value) in pairs {
        put_reply(out, key);
        put_reply(out, value);
    }
}

/// Reads a reply.
pub fn take_reply(reader: &mut Reader<'_>) -> Option<Reply> {
    take(reader, REPLY_DEPTH_MAX)
}

fn take(reader: &mut Reader<'_>, depth: usize) -> Option<Reply> {
    let depth = depth.checked_sub(1)?;
    Some(match reader.u8()? {
        TAG_NIL => Reply::Nil,
        TAG_NIL_ARRAY => Reply::NilArray,
        TAG_FALSE => Reply::Boolean(false),
        TAG_TRUE => Reply::Boolean(true),
        TAG_STATUS => Reply::Status(text(reader)?),
        TAG_ERROR => Reply::Error(text(reader)?),
        TAG_BIG_NUMBER => Reply::BigNumber(reader.blob()?),
        TAG_BULK => Reply::Bulk(reader.blob()?),
        TAG_INTEGER => Reply::Integer(reader.u64()?.cast_signed()),
        TAG_DOUBLE => Reply::Double(f64::from_bits(reader.u64()?)),
        TAG_DECIMAL => Reply::Decimal(f64::from_bits(reader.u64()?)),
        TAG_VERBATIM => {
            let format = reader.bytes()?;
            let format = FORMATS.into_iter().find(|known| known.as_bytes() == format)?;
            Reply::Verbatim(format, reader.blob()?)
        }
        TAG_ARRAY => Reply::Array(items(reader, depth)?),
        TAG_SET => Reply::Set(items(reader, depth)?),
        TAG_PUSH => Reply::Push(items(reader, depth)?),
        TAG_MAP => Reply::Map(pairs(reader, depth)?),
        TAG_PAIRS => Reply::Pairs(pairs(reader, depth)?),
        TAG_PAIR_MAP => Reply::PairMap(pairs(reader, depth)?),
        _ => return None,
    })
}

fn text(reader: &mut Reader<'_>) -> Option<Cow<'static, str>> {
    Some(Cow::Owned(String::from_utf8(reader.bytes()?.to_vec()).ok()?))
}

fn items(reader: &mut Reader<'_>, depth: usize) -> Option<Vec<Reply>> {
    let mut items = Vec::new();
    for _ in 0..reader.varint()? {
        items.push(take(reader, depth)?);
    }
    Some(items)
}

fn pairs(reader: &mut Reader<'_>, depth: usize) -> Option<Vec<(Reply, Reply)>> {
    let mut pairs = Vec::new();
    for _ in 0..reader.varint()? {
        pairs.push((take(reader, depth)?, take(reader, depth)?));
    }
    Some(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Blob;

    fn encoded(reply: &Reply) -> Vec<u8> {
        let mut out = Vec::new();
        put_reply(&mut out, reply);
        out
    }

    #[test]
    fn every_kind_round_trips_and_truncations_are_refused() {
        let reply = Reply::Array(vec![
            Reply::Nil,
            Reply::NilArray,
            Reply::OK,
            Reply::Status("with\r\nline ends".into()),
            Reply::error("ERR no"),
            Reply::Integer(i64::MIN),
            Reply::Double(-0.1),
            Reply::Decimal(13.25),
            Reply::Double(f64::INFINITY),
            Reply::Boolean(true),
            Reply::Boolean(false),
            Reply::BigNumber(Blob::from("12345678901234567890123")),
            Reply::bulk(&b"\0\xff"[..]),
            Reply::Verbatim("txt", Blob::from("a")),
            Reply::Verbatim("mkd", Blob::EMPTY),
            Reply::Map(vec![(
                Reply::bulk("k"),
                Reply::Array(vec![Reply::Set(vec![Reply::Integer(1)]), Reply::Nil]),
            )]),
            Reply::Pairs(vec![(Reply::bulk("m"), Reply::Double(1.5))]),
            Reply::PairMap(vec![(Reply::bulk("s"), Reply::Array(Vec::new()))]),
            Reply::Set(Vec::new()),
            Reply::Push(vec![Reply::Array(Vec::new())]),
        ]);
        let bytes = encoded(&reply);
        let mut reader = Reader::new(&bytes);
        assert_eq!(take_reply(&mut reader), Some(reply));
        assert!(reader.is_empty());
        for len in 0..bytes.len() {
            assert_eq!(take_reply(&mut Reader::new(&bytes[..len])), None, "{len}");
        }
        let nan = encoded(&Reply::Double(f64::NAN));
        assert!(matches!(take_reply(&mut Reader::new(&nan)), Some(Reply::Double(value)) if value.is_nan()));
    }

    #[test]
    fn nonsense_is_refused_and_depth_is_bounded() {
        for bytes in [
            &[0][..],
            &[18],
            &[TAG_STATUS, 1, 0xff],
            &[TAG_VERBATIM, 3, b'x', b'y', b'z', 0],
            &[TAG_ARRAY, 0xff, 0xff, 0xff, 0x7f],
        ] {
            assert_eq!(take_reply(&mut Reader::new(bytes)), None, "{bytes:?}");
        }
        let nested = |depth: usize| (1..depth).fold(Reply::Nil, |inner, _| Reply::Array(vec![inner]));
        let fits = nested(REPLY_DEPTH_MAX);
        assert_eq!(take_reply(&mut Reader::new(&encoded(&fits))), Some(fits));
        let deep = encoded(&nested(REPLY_DEPTH_MAX + 1));
        assert_eq!(take_reply(&mut Reader::new(&deep)), None);
    }
}
