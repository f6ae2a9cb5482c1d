//! Writing values: strings as they are, and collections element by element.

use super::read::kind;
use super::streams;
use txn::Value;

/// The length of what follows: 6, 14, 32 or 64 bits, and how many in the first byte.
pub(crate) fn put_len(out: &mut Vec<u8>, len: usize) {
    match len {
        0..0x40 => out.push(len as u8),
        0x40..0x4000 => out.extend((0x4000 | len as u16).to_be_bytes()),
        len => match u32::try_from(len) {
            Ok(len) => {
                out.push(0x80);
                out.extend(len.to_be_bytes());
            }
            Err(_) => {
                out.push(0x81);
                out.extend((len as u64).to_be_bytes());
            }
        },
    }
}

/// A string as it is, behind its length.
pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// The type and the value.
pub(super) fn value(value: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        Value::String(bytes) => {
            out.reserve(bytes.len() + 16);
            out.push(kind::STRING);
            put_string(&mut out, bytes);
        }
        Value::LongString(string) => {
            out.reserve(string.len() + 16);
            out.push(kind::STRING);
            put_len(&mut out, string.len());
            let pieces = string.pieces(0..string.len());
            pieces.for_each(|piece| out.extend_from_slice(piece));
        }
        Value::List(list) => {
            out.push(kind::LIST);
            put_len(&mut out, list.len());
            list.iter().for_each(|element| put_string(&mut out, &element));
        }
        Value::Set(set) => {
            out.push(kind::SET);
            put_len(&mut out, set.len());
            set.names().for_each(|member| put_string(&mut out, &member));
        }
        Value::Hash(hash) => {
            out.push(kind::HASH);
            put_len(&mut out, hash.len());
            for (field, value) in hash.iter() {
                put_string(&mut out, &field);
                put_string(&mut out, &value);
            }
        }
        Value::SortedSet(set) => {
            out.push(kind::SORTED_SET_2);
            put_len(&mut out, set.len());
            // The largest first, as Redis: it inserts each before the others at once.
            for one in set.iter().rev() {
                put_string(&mut out, &one.member);
                out.extend(one.score.to_le_bytes());
            }
        }
        Value::Stream(stream) => {
            streams::put(&mut out, stream);
        }
    }
    out
}
