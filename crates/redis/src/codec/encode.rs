//! Replies as a server sends them, and commands as a client does.

use crate::parse;
use txn::{Blob, Reply};

/// A connection's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Protocol {
    /// RESP2: until HELLO says otherwise.
    #[default]
    Resp2,
    /// RESP3.
    Resp3,
}

/// Where an encoded reply goes.
pub trait Sink {
    /// The bytes to which the next ones are appended.
    fn bytes(&mut self) -> &mut Vec<u8>;

    /// Appends a value. A sink may keep a reference to a long value instead of a copy.
    #[inline]
    fn value(&mut self, value: &Blob) {
        self.bytes().extend_from_slice(value);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        self
    }
}

/// Appends a reply. RESP2 sees maps and pairs flattened, sets as arrays, truth values as integers, and other
/// scalars as strings.
pub fn encode<S: Sink>(reply: &Reply, protocol: Protocol, sink: &mut S) {
    let out = sink.bytes();
    let resp3 = protocol == Protocol::Resp3;
    match reply {
        Reply::Bulk(value) => {
            if value.len() <= SHORT_BYTES {
                out.reserve(value.len() + 16);
            }
            header(out, b'$', value.len() as i64);
            sink.value(value);
            sink.bytes().extend_from_slice(b"\r\n");
        }
        Reply::Status(text) if text == "OK" => out.extend_from_slice(b"+OK\r\n"),
        Reply::Status(text) => line(out, b'+', text),
        Reply::Error(text) => line(out, b'-', text),
        Reply::Integer(value) => header(out, b':', *value),
        Reply::Nil | Reply::NilArray if resp3 => out.extend_from_slice(b"_\r\n"),
        Reply::Nil => out.extend_from_slice(b"$-1\r\n"),
        Reply::NilArray => out.extend_from_slice(b"*-1\r\n"),
        Reply::Double(value) if resp3 => line(out, b',', &parse::float_text(*value)),
        Reply::Double(value) => bulk(out, parse::float_text(*value).as_bytes()),
        Reply::Decimal(value) if resp3 => line(out, b',', &parse::plain_float_text(*value)),
        Reply::Decimal(value) => bulk(out, parse::plain_float_text(*value).as_bytes()),
        Reply::Boolean(value) if resp3 => out.extend_from_slice(if *value { b"#t\r\n" } else { b"#f\r\n" }),
        Reply::Boolean(value) => header(out, b':', i64::from(*value)),
        Reply::BigNumber(digits) if resp3 => line(out, b'(', &String::from_utf8_lossy(digits)),
        Reply::BigNumber(digits) => bulk(out, digits),
        Reply::Verbatim(format, text) if resp3 => {
            header(out, b'=', (format.len() + 1 + text.len()) as i64);
            out.extend_from_slice(format.as_bytes());
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        }
        Reply::Verbatim(_, text) => bulk(out, text),
        Reply::Array(items) => sequence(sink, b'*', items, protocol),
        Reply::Told(told) => encode(&told.reply, protocol, sink),
        Reply::Set(items) => sequence(sink, if resp3 { b'~' } else { b'*' }, items, protocol),
        Reply::Push(items) => sequence(sink, if resp3 { b'>' } else { b'*' }, items, protocol),
        Reply::Map(pairs) | Reply::Pairs(pairs) | Reply::PairMap(pairs) => {
            let is_map = resp3 && !matches!(reply, Reply::Pairs(_));
            let nested = match reply {
                Reply::Map(_) => false,
                Reply::Pairs(_) => resp3,
                _ => !resp3,
            };
            match (is_map, nested) {
                (true, _) => header(out, b'%', pairs.len() as i64),
                (_, true) => header(out, b'*', pairs.len() as i64),
                _ => header(out, b'*', 2 * pairs.len() as i64),
            }
            for (key, value) in pairs {
                if nested {
                    header(sink.bytes(), b'*', 2);
                }
                encode(key, protocol, sink);
                encode(value, protocol, sink);
            }
        }
    }
}

/// Appends a command as an array of its words.
pub fn encode_command<W: AsRef<[u8]>>(words: &[W], out: &mut Vec<u8>) {
    header(out, b'*', words.len() as i64);
    for word in words {
        bulk(out, word.as_ref());
    }
}

/// Room is made at once for a value up to this length; a longer one is not copied, perhaps.
const SHORT_BYTES: usize = 4096;

fn header(out: &mut Vec<u8>, mark: u8, value: i64) {
    out.push(mark);
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 16);
    header(out, b'$', bytes.len() as i64);
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}

/// A text up to the line's end: its own line ends would break the protocol and become spaces.
fn line(out: &mut Vec<u8>, mark: u8, text: &str) {
    out.push(mark);
    out.extend(text.bytes().map(|byte| if byte == b'\r' || byte == b'\n' { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

fn sequence<S: Sink>(sink: &mut S, mark: u8, items: &[Reply], protocol: Protocol) {
    header(sink.bytes(), mark, items.len() as i64);
    for item in items {
        encode(item, protocol, sink);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(reply: Reply, resp2: &str, resp3: &str) {
        for (protocol, want) in [(Protocol::Resp2, resp2), (Protocol::Resp3, resp3)] {
            let mut out = Vec::new();
            encode(&reply, protocol, &mut out);
            assert_eq!(String::from_utf8_lossy(&out), want);
        }
    }

    #[test]
    fn every_kind_has_both_forms() {
        check(Reply::OK, "+OK\r\n", "+OK\r\n");
        check(Reply::error("ERR a\r\nb"), "-ERR a  b\r\n", "-ERR a  b\r\n");
        check(Reply::Integer(-7), ":-7\r\n", ":-7\r\n");
        check(Reply::Nil, "$-1\r\n", "_\r\n");
        check(Reply::NilArray, "*-1\r\n", "_\r\n");
        check(Reply::Double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
        check(Reply::Decimal(0.5), "$3\r\n0.5\r\n", ",0.5\r\n");
        check(Reply::Double(f64::INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
        check(Reply::Boolean(true), ":1\r\n", "#t\r\n");
        check(Reply::BigNumber("123".into()), "$3\r\n123\r\n", "(123\r\n");
        check(Reply::bulk("a\r\nb"), "$4\r\na\r\nb\r\n", "$4\r\na\r\nb\r\n");
        check(Reply::Verbatim("txt", "hi".into()), "$2\r\nhi\r\n", "=6\r\ntxt:hi\r\n");
        check(Reply::Array(vec![Reply::Nil, Reply::OK]), "*2\r\n$-1\r\n+OK\r\n", "*2\r\n_\r\n+OK\r\n");
        check(Reply::Set(vec![Reply::Integer(1)]), "*1\r\n:1\r\n", "~1\r\n:1\r\n");
        check(Reply::Push(vec![]), "*0\r\n", ">0\r\n");
        check(
            Reply::Map(vec![(Reply::bulk("k"), Reply::Integer(1))]),
            "*2\r\n$1\r\nk\r\n:1\r\n",
            "%1\r\n$1\r\nk\r\n:1\r\n",
        );
        check(
            Reply::Pairs(vec![(Reply::bulk("k"), Reply::Integer(1))]),
            "*2\r\n$1\r\nk\r\n:1\r\n",
            "*1\r\n*2\r\n$1\r\nk\r\n:1\r\n",
        );
        check(
            Reply::PairMap(vec![(Reply::bulk("k"), Reply::Integer(1))]),
            "*1\r\n*2\r\n$1\r\nk\r\n:1\r\n",
            "%1\r\n$1\r\nk\r\n:1\r\n",
        );
    }
}
