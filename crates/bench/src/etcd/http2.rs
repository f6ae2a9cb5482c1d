//! Just enough gRPC over HTTP/2 to put keys into etcd, for less processor time than a library takes: the load
//! and the server share a small machine, and what the load takes, the server lacks.
//!
//! A [`Channel`] is one connection without its socket. All requests have the same headers: the first one puts
//! them into the server's table of headers (RFC 7541), the others name them there, in six bytes. Of a reply,
//! only this counts: a server sends a message if and only if the call succeeded, and a stream that ends
//! without one is a failure. So no header that arrives is ever decoded.

use anyhow::{Result, bail};

/// What a connection begins with (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADER: usize = 9;
/// The longest frame that a peer may send us unless we allow more.
const FRAME_MAX: usize = 1 << 14;
/// What the windows begin with, and the largest one.
const WINDOW: u32 = 65_535;
const WINDOW_MAX: u32 = (1 << 31) - 1;
/// When the connection's window for what we receive is opened again.
const REOPEN_AT: u32 = 1 << 30;
const STREAM_MAX: u32 = (1 << 31) - 2;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;

/// Settings by number: what we refuse (pushes), and how much a stream may send us.
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// `:method POST`, `:scheme http`, then the four headers that the first request put into the table, newest
/// first.
const SAME_HEADERS: [u8; 6] = [0x83, 0x86, 0xc1, 0xc0, 0xbf, 0xbe];

/// A call that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its stream.
    pub stream: u32,
    /// Whether it succeeded.
    pub succeeded: bool,
}

/// A connection: bytes to send collect in [`Channel::output`], bytes that arrived go into
/// [`Channel::receive`].
pub struct Channel {
    /// What is to be sent.
    pub output: Vec<u8>,
    first_headers: Option<Vec<u8>>,
    next_stream: u32,
    /// How many bytes of messages the server takes now.
    window: i64,
    /// How many bytes of messages came since our window was opened.
    received: u32,
    /// Open streams whose message has come.
    answered: Vec<u32>,
}

impl Channel {
    /// A connection for calls of one method. `path` is `/package.Service/Method`, `authority` the server's
    /// host and port.
    pub fn new(path: &str, authority: &str) -> Channel {
        let mut output = PREFACE.to_vec();
        let settings = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_MAX)];
        put_frame_header(&mut output, settings.len() * 6, SETTINGS, 0, 0);
        for (setting, value) in settings {
            output.extend(setting.to_be_bytes());
            output.extend(value.to_be_bytes());
        }
        put_window_update(&mut output, WINDOW_MAX - WINDOW);
        // Literals that the server's table takes up; the names are in the static one, but for the last.
        let mut headers = vec![0x83, 0x86];
        for (name, value) in [(4, path), (1, authority), (31, "application/grpc")] {
            headers.push(0x40 | name);
            put_text(&mut headers, value);
        }
        headers.push(0x40);
        put_text(&mut headers, "te");
        put_text(&mut headers, "trailers");
        Channel {
            output,
            first_headers: Some(headers),
            next_stream: 1,
            window: i64::from(WINDOW),
            received: 0,
            answered: Vec::new(),
        }
    }

    /// Calls with a message of protobuf. `None` if the server takes no more bytes now.
    pub fn call(&mut self, message: &[u8]) -> Result<Option<u32>> {
        let length = message.len() + 5;
        if length > FRAME_MAX || self.next_stream > STREAM_MAX {
            bail!("a message of {length} bytes on stream {}: too much for a load", self.next_stream);
        }
        if self.window < length as i64 {
            return Ok(None);
        }
        self.window -= length as i64;
        let stream = self.next_stream;
        self.next_stream += 2;
        let first = self.first_headers.take();
        let headers = first.as_deref().unwrap_or(&SAME_HEADERS);
        put_frame_header(&mut self.output, headers.len(), HEADERS, END_HEADERS, stream);
        self.output.extend_from_slice(headers);
        put_frame_header(&mut self.output, length, DATA, END_STREAM, stream);
        // Not compressed, and so long.
        self.output.push(0);
        self.output.extend((message.len() as u32).to_be_bytes());
        self.output.extend_from_slice(message);
        Ok(Some(stream))
    }

    /// Takes in what arrived and says how much of it was whole frames; the rest must come again with what
    /// follows it.
    pub fn receive(&mut self, input: &[u8], ended: &mut Vec<Ended>) -> Result<usize> {
        let mut used = 0;
        while let Some((header, rest)) = input[used..].split_first_chunk::<HEADER>() {
            let [a, b, c, kind, flags, stream @ ..] = *header;
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if length > FRAME_MAX {
                bail!("a frame of {length} bytes: this is no HTTP/2, or no server that keeps to it");
            }
            let Some(payload) = rest.get(..length) else {
                break;
            };
            self.frame(kind, flags, u32::from_be_bytes(stream) & WINDOW_MAX, payload, ended)?;
            used += HEADER + length;
        }
        Ok(used)
    }

    fn frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
        ended: &mut Vec<Ended>,
    ) -> Result<()> {
        match kind {
            DATA => {
                self.received += payload.len() as u32;
                if self.received >= REOPEN_AT {
                    put_window_update(&mut self.output, self.received);
                    self.received = 0;
                }
                // A message may be cut into several frames, and one may be empty.
                if !payload.is_empty() && !self.answered.contains(&stream) {
                    self.answered.push(stream);
                }
            }
            SETTINGS if flags & ACK == 0 => put_frame_header(&mut self.output, 0, SETTINGS, ACK, 0),
            PING if flags & ACK == 0 => {
                put_frame_header(&mut self.output, payload.len(), PING, ACK, 0);
                self.output.extend_from_slice(payload);
            }
            WINDOW_UPDATE if stream == 0 => {
                let Some(increment) = payload.first_chunk() else { bail!("a cut WINDOW_UPDATE") };
                self.window += i64::from(u32::from_be_bytes(*increment) & WINDOW_MAX);
            }
            RST_STREAM => {
                self.answered.retain(|&answered| answered != stream);
                ended.push(Ended { stream, succeeded: false });
            }
            GOAWAY => {
                let why = String::from_utf8_lossy(payload.get(8..).unwrap_or_default());
                bail!("the server ended the connection: {why}");
            }
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            let answered = self.answered.iter().position(|&answered| answered == stream);
            if let Some(index) = answered {
                self.answered.swap_remove(index);
            }
            ended.push(Ended { stream, succeeded: answered.is_some() });
        }
        Ok(())
    }
}

fn put_frame_header(output: &mut Vec<u8>, length: usize, kind: u8, flags: u8, stream: u32) {
    output.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    output.extend([kind, flags]);
    output.extend(stream.to_be_bytes());
}

fn put_window_update(output: &mut Vec<u8>, increment: u32) {
    put_frame_header(output, 4, WINDOW_UPDATE, 0, 0);
    output.extend(increment.to_be_bytes());
}

/// A text of a header, as it is. Ours are shorter than 127 bytes.
fn put_text(headers: &mut Vec<u8>, text: &str) {
    headers.push(text.len() as u8);
    headers.extend_from_slice(text.as_bytes());
}

/// Appends a field of bytes as protobuf has it. Ours are shorter than 128 bytes.
pub fn put_bytes_field(message: &mut Vec<u8>, field: u8, bytes: &[u8]) {
    message.extend([field << 3 | 2, bytes.len() as u8]);
    message.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_frame_header(&mut bytes, payload.len(), kind, flags, stream);
        bytes.extend_from_slice(payload);
        bytes
    }
    fn channel() -> Channel {
        let mut channel = Channel::new("/a.B/C", "h:1");
        channel.output.clear();
        channel
    }

    #[test]
    fn headers_are_sent_once_and_then_named() {
        let mut channel = channel();
        assert_eq!(channel.call(b"xy").expect("sent"), Some(1));
        let headers = b"\x83\x86\x44\x06/a.B/C\x41\x03h:1\x5f\x10application/grpc\x40\x02te\x08trailers";
        let data = frame(DATA, END_STREAM, 1, b"\0\0\0\0\x02xy");
        assert_eq!(channel.output, [frame(HEADERS, END_HEADERS, 1, headers), data].concat());
        channel.output.clear();
        assert_eq!(channel.call(b"xy").expect("sent"), Some(3));
        assert!(channel.output.starts_with(&frame(HEADERS, END_HEADERS, 3, b"\x83\x86\xc1\xc0\xbf\xbe")));
    }

    #[test]
    fn a_call_succeeds_if_a_message_came() {
        let input = [
            frame(HEADERS, END_HEADERS, 1, b"\x88"),
            frame(DATA, 0, 1, b"\0\0\0\0\0"),
            frame(HEADERS, END_HEADERS | END_STREAM, 3, b"\x88"),
            frame(DATA, 0, 1, b""),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, b"\x88"),
            frame(RST_STREAM, 0, 5, b"\0\0\0\x08"),
        ]
        .concat();
        let expected =
            [(3, false), (1, true), (5, false)].map(|(stream, succeeded)| Ended { stream, succeeded });
        // Whatever the pieces that it comes in.
        for piece in 1..=input.len() {
            let (mut channel, mut ended, mut pending) = (channel(), Vec::new(), Vec::new());
            for bytes in input.chunks(piece) {
                pending.extend_from_slice(bytes);
                let used = channel.receive(&pending, &mut ended).expect("frames");
                pending.drain(..used);
            }
            assert_eq!(ended, expected);
            assert!(pending.is_empty() && channel.output.is_empty());
        }
    }

    #[test]
    fn what_the_server_asks_for_is_done() {
        let mut channel = channel();
        let mut ended = Vec::new();
        let asked = [
            frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64"),
            frame(PING, 0, 0, b"12345678"),
            frame(PING, ACK, 0, b"87654321"),
        ];
        channel.receive(&asked.concat(), &mut ended).expect("frames");
        assert_eq!(channel.output, [frame(SETTINGS, ACK, 0, b""), frame(PING, ACK, 0, b"12345678")].concat());
        // Its window is kept to, and opens.
        let message = [7; 16_000];
        for _ in 0..4 {
            assert!(channel.call(&message).expect("room").is_some());
        }
        assert_eq!(channel.call(&message).expect("no error"), None);
        channel.receive(&frame(WINDOW_UPDATE, 0, 9, &[0, 1, 0, 0]), &mut ended).expect("another's window");
        assert_eq!(channel.call(&message).expect("no error"), None);
        channel.receive(&frame(WINDOW_UPDATE, 0, 0, &[0, 1, 0, 0]), &mut ended).expect("a frame");
        assert!(channel.call(&message).expect("room").is_some());
        assert!(channel.receive(&frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0too many"), &mut ended).is_err());
        assert!(channel.receive(b"HTTP/1.1 400 Bad Request\r\n", &mut ended).is_err());
    }
}
