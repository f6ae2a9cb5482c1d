//! Replies as a client receives them.

use crate::parse;
use txn::{Blob, Reply};

/// How deep replies may nest: a peer can't exhaust the stack.
pub const DEPTH_MAX: usize = 64;
const LINE_BYTES_MAX: usize = 64 * 1024;
const BULK_BYTES_MAX: i64 = 512 * 1024 * 1024;

/// Why a server's bytes are no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// A byte that starts no kind of reply.
    #[error("a reply starts with the byte {0:#04x}: the peer does not speak RESP")]
    UnknownKind(u8),
    /// A length or number that is none, or is beyond the limits.
    #[error("a reply holds a number or length that is none: the peer does not speak RESP")]
    InvalidNumber,
    /// Nested too deeply.
    #[error("a reply nests more than {DEPTH_MAX} levels deep")]
    TooDeep,
}

/// The first reply of `input` with the number of bytes it takes; `None` if it is not complete.
///
/// An incomplete reply is decoded from its start again next time: meant for clients and tests.
pub fn decode_reply(input: &[u8]) -> Result<Option<(Reply, usize)>, ReplyError> {
    let mut rest = input;
    match value(&mut rest, 0) {
        Ok(reply) => Ok(Some((reply, input.len() - rest.len()))),
        Err(Halt::Incomplete) => Ok(None),
        Err(Halt::Error(error)) => Err(error),
    }
}

enum Halt {
    Incomplete,
    Error(ReplyError),
}

impl From<ReplyError> for Halt {
    fn from(error: ReplyError) -> Halt {
        Halt::Error(error)
    }
}

fn value(rest: &mut &[u8], depth: usize) -> Result<Reply, Halt> {
    if depth > DEPTH_MAX {
        return Err(ReplyError::TooDeep.into());
    }
    let (&kind, tail) = rest.split_first().ok_or(Halt::Incomplete)?;
    *rest = tail;
    Ok(match kind {
        b'+' => Reply::Status(text(rest)?.into()),
        b'-' => Reply::Error(text(rest)?.into()),
        b':' => Reply::Integer(integer(rest)?),
        b'_' => {
            line(rest)?;
            Reply::Nil
        }
        b'#' => Reply::Boolean(line(rest)? == b"t"),
        b',' => Reply::Double(text(rest)?.parse().map_err(|_| ReplyError::InvalidNumber)?),
        b'(' => Reply::BigNumber(Blob::new(line(rest)?)),
        b'$' => bulk(rest)?.map_or(Reply::Nil, Reply::bulk),
        b'!' => Reply::Error(String::from_utf8_lossy(bulk(rest)?.unwrap_or_default()).into_owned().into()),
        b'=' => {
            let bytes = bulk(rest)?.unwrap_or_default();
            let text = bytes.get(4..).unwrap_or_default();
            Reply::Verbatim(if bytes.starts_with(b"mkd:") { "mkd" } else { "txt" }, Blob::new(text))
        }
        b'*' => match count(rest)? {
            None => Reply::NilArray,
            Some(count) => Reply::Array(items(rest, count, depth)?),
        },
        b'~' => {
            let count = count(rest)?.unwrap_or(0);
            Reply::Set(items(rest, count, depth)?)
        }
        b'>' => {
            let count = count(rest)?.unwrap_or(0);
            Reply::Push(items(rest, count, depth)?)
        }
        b'%' => {
            let count = count(rest)?.unwrap_or(0);
            Reply::Map(pairs(rest, count, depth)?)
        }
        b'|' => {
            // Attributes say something about the reply that follows; nobody here asks for them.
            let count = count(rest)?.unwrap_or(0);
            pairs(rest, count, depth)?;
            value(rest, depth + 1)?
        }
        other => return Err(ReplyError::UnknownKind(other).into()),
    })
}

fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Halt> {
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|&b| b == b'\r') else {
        return Err(if rest.len() >= LINE_BYTES_MAX {
            ReplyError::InvalidNumber.into()
        } else {
            Halt::Incomplete
        });
    };
    let (line, tail) = rest.split_at(end);
    *rest = tail.get(2..).ok_or(Halt::Incomplete)?;
    Ok(line)
}

fn text(rest: &mut &[u8]) -> Result<String, Halt> {
    Ok(String::from_utf8_lossy(line(rest)?).into_owned())
}

fn integer(rest: &mut &[u8]) -> Result<i64, Halt> {
    let digits = line(rest)?;
    Ok(parse::integer(digits.strip_prefix(b"+").unwrap_or(digits)).ok_or(ReplyError::InvalidNumber)?)
}

/// A length of items; `None` for the null array.
fn count(rest: &mut &[u8]) -> Result<Option<usize>, Halt> {
    match integer(rest)? {
        -1 => Ok(None),
        count @ 0..=0x7fff_ffff => Ok(Some(count as usize)),
        _ => Err(ReplyError::InvalidNumber.into()),
    }
}

fn bulk<'a>(rest: &mut &'a [u8]) -> Result<Option<&'a [u8]>, Halt> {
    let len = match integer(rest)? {
        -1 => return Ok(None),
        len @ 0..=BULK_BYTES_MAX => len as usize,
        _ => return Err(ReplyError::InvalidNumber.into()),
    };
    let (bytes, tail) = rest.split_at_checked(len + 2).ok_or(Halt::Incomplete)?;
    *rest = tail;
    Ok(Some(&bytes[..len]))
}

fn items(rest: &mut &[u8], count: usize, depth: usize) -> Result<Vec<Reply>, Halt> {
    // An item takes at least three bytes.
    let mut items = Vec::with_capacity(count.min(rest.len() / 3));
    for _ in 0..count {
        items.push(value(rest, depth + 1)?);
    }
    Ok(items)
}

fn pairs(rest: &mut &[u8], count: usize, depth: usize) -> Result<Vec<(Reply, Reply)>, Halt> {
    let mut pairs = Vec::with_capacity(count.min(rest.len() / 6));
    for _ in 0..count {
        pairs.push((value(rest, depth + 1)?, value(rest, depth + 1)?));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Protocol, encode};

    #[test]
    fn what_is_encoded_decodes_and_truncations_wait() {
        let reply = Reply::Array(vec![
            Reply::OK,
            Reply::error("ERR no"),
            Reply::Integer(i64::MIN),
            Reply::Nil,
            Reply::Boolean(false),
            Reply::Double(-2.5),
            Reply::BigNumber("12345678901234567890".into()),
            Reply::bulk("a\r\nb"),
            Reply::Verbatim("mkd", "# hi".into()),
            Reply::Map(vec![(Reply::bulk("k"), Reply::Set(vec![Reply::Integer(1)]))]),
            Reply::Push(vec![Reply::Array(vec![])]),
        ]);
        let mut out = Vec::new();
        encode(&reply, Protocol::Resp3, &mut out);
        assert_eq!(decode_reply(&out), Ok(Some((reply, out.len()))));
        for len in 0..out.len() {
            assert_eq!(decode_reply(&out[..len]), Ok(None), "{len}");
        }
        assert_eq!(decode_reply(b"*-1\r\n"), Ok(Some((Reply::NilArray, 5))));
        assert_eq!(decode_reply(b"|1\r\n+a\r\n+b\r\n:1\r\n"), Ok(Some((Reply::Integer(1), 16))));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        assert_eq!(decode_reply(b"?"), Err(ReplyError::UnknownKind(b'?')));
        assert_eq!(decode_reply(b":x\r\n"), Err(ReplyError::InvalidNumber));
        assert_eq!(decode_reply(b"$-2\r\n"), Err(ReplyError::InvalidNumber));
        assert_eq!(decode_reply(b"*99999999999\r\n"), Err(ReplyError::InvalidNumber));
        assert_eq!(decode_reply("*1\r\n".repeat(100_000).as_bytes()), Err(ReplyError::TooDeep));
    }
}
