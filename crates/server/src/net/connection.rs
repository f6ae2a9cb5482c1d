//! A socket with its session.

use crate::session::{Desk, Session};
use crate::tls::{Complaint, HANDSHAKE_MAX, Stream, Tls};
use redis_surface::codec::{Limits, RequestDecoder};
use std::io::{ErrorKind, Write};
use std::sync::atomic::Ordering;
use txn::Reply;

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does.
    Open,
    /// It is over: close it.
    Over,
}

/// A client's connection. Belongs to one I/O thread.
pub struct Connection {
    stream: Stream,
    decoder: RequestDecoder,
    /// What was received and not yet decoded.
    input: Vec<u8>,
    session: Session,
    /// The socket may have bytes for us.
    readable: bool,
    /// The other side has announced that it sends nothing more.
    ended: bool,
    /// The socket may take bytes.
    writable: bool,
    /// Decoding stopped although there may be a whole command: the session took no more.
    backlog: bool,
    /// In its thread's list of connections to look at.
    pub listed: bool,
    /// In its thread's list of connections with replies to send.
    pub dirty: bool,
    /// Under which time it is in its thread's list of deadlines.
    pub deadline_ms: Option<u64>,
    /// Since when the output exceeds the soft limit, in milliseconds since 1970.
    over_soft_limit_since_ms: Option<u64>,
}

/// An input buffer beyond this is given back when it becomes empty.
const INPUT_BYTES_KEPT: usize = 64 << 10;

impl Connection {
    /// The connection of an accepted socket.
    pub fn new(stream: Stream, session: Session) -> Connection {
        Connection {
            stream,
            decoder: RequestDecoder::default(),
            input: Vec::new(),
            session,
            readable: true,
            ended: false,
            writable: true,
            backlog: false,
            listed: false,
            dirty: false,
            deadline_ms: None,
            over_soft_limit_since_ms: None,
        }
    }

    /// The connection of a socket from which something was read already: `input` was not yet decoded.
    pub fn with_input(
        stream: Stream,
        session: Session,
        decoder: RequestDecoder,
        input: Vec<u8>,
    ) -> Connection {
        Connection {
            decoder,
            backlog: !input.is_empty(),
            input,
            ..Connection::new(stream, session)
        }
    }

    /// The stream.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }
    /// The session.
    pub fn session(&mut self) -> &mut Session {
        &mut self.session
    }
    /// The socket has something for us: bytes, or its end (`ended`), or both.
    pub fn became_readable(&mut self, ended: bool) {
        self.readable = true;
        self.ended |= ended;
    }
    /// The socket can take bytes again.
    pub fn became_writable(&mut self) {
        self.writable = true;
    }
    /// Whether there is something to send.
    pub fn wants_to_send(&mut self) -> bool {
        !self.session.replies().ready().is_empty() || self.stream.pends()
    }

    /// Whether there is something to do without waiting for an event: bytes to read or commands to decode, and nothing
    /// that forbids it.
    pub fn wants_attention(&self) -> bool {
        self.session.resumable()
            || (self.session.takes_commands() && (self.readable || self.backlog))
    }

    /// Goes on where it was held, decodes what is buffered, and reads once.
    ///
    /// At most one `scratch` is read in a round, so that one busy client can't keep the others waiting.
    pub fn serve(&mut self, desk: &mut Desk<'_>, scratch: &mut [u8]) -> Fate {
        self.session.resume(desk);
        self.decoder.limits = Limits {
            bulk_bytes_max: desk.config.proto_max_bulk_len,
            unauthenticated: self.session.stranger(desk.shared),
        };
        if self.backlog {
            desk.tally.tick();
            let input = std::mem::take(&mut self.input);
            let used = self.decode(desk, &input);
            self.input = input;
            self.forget_input(used);
        }
        if self.readable && self.session.takes_commands() && self.read(desk, scratch) == Fate::Over
        {
            return Fate::Over;
        }
        let held_bytes = self.input.len() + self.decoder.held_bytes();
        if held_bytes as u64 > desk.config.client_query_buffer_limit {
            desk.counters.query_limit_closed.add(1);
            tracing::warn!(
                "closing client {}: its unfinished command has {held_bytes} bytes, more than client-query-buffer-limit",
                self.session.client().address
            );
            return Fate::Over;
        }
        self.session
            .client()
            .input_bytes
            .store(held_bytes, Ordering::Relaxed);
        desk.settle();
        Fate::Open
    }

    fn read(&mut self, desk: &mut Desk<'_>, scratch: &mut [u8]) -> Fate {
        match self.stream.receive(scratch) {
            Ok(got) if got.bytes == 0 => {
                // Finish what is under way: a client may send its last commands and close its half.
                self.readable = false;
                self.session.close_after_replies();
            }
            Ok(got) => {
                let count = got.bytes;
                // Where there is no more, the next bytes come with an event of their own. The socket's end does not, if that was
                // announced together with these bytes.
                self.readable = got.more || self.ended;
                desk.counters.input_bytes.add(count as u64);
                desk.tally.tick();
                let client = self.session.client();
                client.active_ms.store(desk.now_ms, Ordering::Relaxed);
                let buffered = self.input.len() + count;
                client.input_bytes.store(buffered, Ordering::Relaxed);
                let bytes = &scratch[..count];
                if self.input.is_empty() {
                    let used = self.decode(desk, bytes);
                    if used < bytes.len() {
                        let wanted = self
                            .decoder
                            .wanted_bytes()
                            .min(desk.config.proto_max_bulk_len as usize + 2);
                        self.input
                            .reserve(wanted.clamp(bytes.len() - used, 1 << 20));
                        self.input.extend_from_slice(&bytes[used..]);
                    }
                } else {
                    self.input.extend_from_slice(bytes);
                    let input = std::mem::take(&mut self.input);
                    let used = self.decode(desk, &input);
                    self.input = input;
                    self.forget_input(used);
                }
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let address = self.session.client().address;
                desk.shared.tls.note_failure(address, &error);
                return Fate::Over;
            }
        }
        Fate::Open
    }

    /// Runs the commands in `bytes`, as far as the session takes them. Returns how many bytes were used.
    fn decode(&mut self, desk: &mut Desk<'_>, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while self.session.takes_commands() {
            match self.decoder.next(&mut rest) {
                Ok(Some(argv)) => {
                    self.session.command(desk, argv);
                    self.decoder.limits.unauthenticated = self.session.stranger(desk.shared);
                }
                Ok(None) => break,
                Err(error) => {
                    self.session.refuse_input(desk, &error.reply());
                    rest = &[];
                }
            }
        }
        if self.session.closing() {
            // Nothing that follows will be looked at.
            rest = &[];
        }
        self.backlog = !rest.is_empty() && !self.session.takes_commands();
        bytes.len() - rest.len()
    }

    fn forget_input(&mut self, used: usize) {
        if used < self.input.len() {
            self.input.drain(..used);
        } else if self.input.capacity() > INPUT_BYTES_KEPT {
            self.input = Vec::new();
        } else {
            self.input.clear();
        }
    }

    /// Sends what can be sent, and closes clients that do not read.
    pub fn flush(&mut self, desk: &Desk<'_>) -> Fate {
        while self.writable && self.wants_to_send() {
            match self.stream.send(self.session.replies().ready()) {
                Ok(sent) => {
                    desk.counters.output_bytes.add(sent.bytes as u64);
                    self.writable = !sent.full;
                    self.session.replies().sent(sent.bytes);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Fate::Over,
            }
        }
        if self.session.closing() && self.session.idle() && !self.wants_to_send() {
            return Fate::Over;
        }
        self.check_output_limit(desk)
    }

    /// Applies `client-output-buffer-limit`.
    pub fn check_output_limit(&mut self, desk: &Desk<'_>) -> Fate {
        let unsent = self.session.replies().unsent_bytes() as u64;
        let limits = desk.config.client_output_buffer_limit;
        let limit = match self.session.listens() {
            true => limits.pubsub,
            false => limits.normal,
        };
        self.session
            .client()
            .output_bytes
            .store(unsent as usize, Ordering::Relaxed);
        let buffer_bytes = self.session.replies().capacity_bytes();
        let client = self.session.client();
        client.buffer_bytes.store(buffer_bytes, Ordering::Relaxed);
        let over = |bytes: u64| bytes > 0 && unsent > bytes;
        let since_ms = match self.over_soft_limit_since_ms {
            _ if !over(limit.soft_bytes) => None,
            None => Some(desk.now_ms),
            since => since,
        };
        self.over_soft_limit_since_ms = since_ms;
        let too_long = since_ms.is_some_and(|since_ms| {
            desk.now_ms.saturating_sub(since_ms) > limit.soft_seconds * 1000
        });
        if over(limit.hard_bytes) || too_long {
            desk.counters.output_limit_closed.add(1);
            tracing::warn!(
                "closing client {}: it has not read {unsent} bytes of its replies, more than client-output-buffer-limit \
                 allows",
                self.session.client().address
            );
            return Fate::Over;
        }
        Fate::Open
    }

    /// Whether the client was killed, or has been idle for `timeout_ms` (0: never) with nothing under way.
    pub fn expired(&mut self, now_ms: u64, timeout_ms: u64) -> bool {
        let listens = self.session.listens() || self.session.monitors();
        let waits = listens || self.session.is_waiting();
        let client = self.session.client();
        let idle_ms = now_ms.saturating_sub(client.active_ms.load(Ordering::Relaxed));
        client.killed.load(Ordering::Relaxed)
            || (timeout_ms > 0 && !waits && idle_ms > timeout_ms && self.session.idle())
    }

    /// Whether its handshake takes longer than any may.
    pub fn is_overdue(&mut self, now_ms: u64) -> bool {
        let age_ms = now_ms.saturating_sub(self.session.client().connected_ms);
        self.stream.is_handshaking() && u128::from(age_ms) > HANDSHAKE_MAX.as_millis()
    }

    /// Says why a connection is not served, as well as that goes without waiting.
    pub fn turn_away(stream: Stream, reply: &Reply, tls: &Tls) {
        let mut socket = match stream {
            Stream::Plain(socket) => socket,
            Stream::Secured(_) => {
                // There is no handshake yet, and so nothing can be said that the client would believe.
                if let (Reply::Error(why), Ok(address)) = (reply, stream.socket().peer_addr()) {
                    tls.complain(Complaint::TurnedAway, address, why);
                }
                return;
            }
        };
        let mut bytes = Vec::new();
        redis_surface::codec::encode(reply, redis_surface::codec::Protocol::Resp2, &mut bytes);
        // A full socket buffer at this point means a client that does not listen anyway.
        let _ = socket.write(&bytes);
    }
}
