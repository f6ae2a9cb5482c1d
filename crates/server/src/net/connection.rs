//! A socket with its session.

use super::intake::Intake;
use crate::session::{Session, ThreadContext};
use crate::tls::{Complaint, Got, HANDSHAKE_MAX, Stream, Tls};
use redis_surface::codec::RequestDecoder;
use std::io::{self, ErrorKind, Write};
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
    intake: Intake,
    session: Session,
    /// What receiving ahead of its turn has come to; its bytes are with its thread.
    received: Option<io::Result<Got>>,
    /// The socket may have bytes for us.
    readable: bool,
    /// The other side has announced that it sends nothing more.
    ended: bool,
    /// The socket may take bytes.
    writable: bool,
    /// The client has sent all that it sends, and some of that is still to be decoded.
    ended_ahead: bool,
    /// In its thread's list of connections to look at.
    pub listed: bool,
    /// In its thread's list of connections with replies to send.
    pub dirty: bool,
    /// Under which time it is in its thread's list of deadlines.
    pub deadline_ms: Option<u64>,
    /// Since when the output exceeds the soft limit, in milliseconds since 1970.
    over_soft_limit_since_ms: Option<u64>,
    /// Since when commands wait for its client to read, and it has read nothing.
    stuck_since_ms: Option<u64>,
    /// It is to be closed because its client has not read.
    is_over_limit: bool,
}

/// A client that must still authenticate may leave no more bytes of replies unread.
const STRANGER_UNREAD_MAX: usize = 64 << 10;
/// A client whose commands wait because it reads nothing is closed after so long: it waits for the server,
/// perhaps, as the server for it.
const STUCK_SECONDS_MAX: u64 = 60;

impl Connection {
    /// The connection of an accepted socket.
    pub fn new(stream: Stream, session: Session) -> Connection {
        Connection {
            stream,
            intake: Intake::default(),
            session,
            received: None,
            readable: true,
            ended: false,
            writable: true,
            ended_ahead: false,
            listed: false,
            dirty: false,
            deadline_ms: None,
            over_soft_limit_since_ms: None,
            stuck_since_ms: None,
            is_over_limit: false,
        }
    }

    /// The connection of a socket from which something was read already: `input` was not yet decoded.
    pub fn with_input(
        stream: Stream,
        session: Session,
        decoder: RequestDecoder,
        input: Vec<u8>,
    ) -> Connection {
        Connection { intake: Intake::with_input(decoder, input), ..Connection::new(stream, session) }
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

    /// Whether there is something to do without waiting for an event: bytes to read or commands to decode,
    /// and nothing that forbids it.
    pub fn wants_attention(&self) -> bool {
        let takes_commands = self.session.takes_commands();
        self.session.resumable()
            || takes_commands && (self.readable || self.intake.has_backlog())
            || self.readable && self.intake.reads_ahead(&self.session)
    }

    /// Receives ahead of its turn what it will decode first, where that is sure. Gives the bytes.
    /// [`Connection::serve`] or [`Connection::keep_received`] comes next, with the same `room`.
    pub fn receive_ahead<'b>(&mut self, room: &'b mut [u8]) -> &'b [u8] {
        let is_sure = self.readable && self.intake.held_bytes() == 0 && self.session.takes_commands();
        if !is_sure || self.received.is_some() {
            return &[];
        }
        let received = self.stream.receive(room);
        let bytes = received.as_ref().map_or(0, |got| got.bytes);
        self.received = Some(received);
        &room[..bytes]
    }

    /// Keeps what was received ahead for a later turn: `room` is needed. The end of the socket and its errors
    /// need none.
    pub fn keep_received(&mut self, room: &[u8]) {
        match self.received.take() {
            Some(Ok(got)) if got.bytes > 0 => {
                self.readable = got.more || self.ended;
                self.intake.keep(&room[..got.bytes]);
            }
            // What comes from now on has an event of its own, which comes before the next turn.
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Some(Err(error)) if error.kind() == ErrorKind::Interrupted => {}
            other => self.received = other,
        }
    }

    /// Goes on where it was held, decodes what is buffered, and reads once: what was received ahead is in
    /// `ahead`, or no more than one `scratch`. No more is decoded than fits into `turn_ns`, so that one busy
    /// client can't keep the others waiting.
    pub fn serve(
        &mut self,
        thread: &mut ThreadContext<'_>,
        (ahead, scratch): (&[u8], &mut [u8]),
        turn_ns: u64,
    ) -> Fate {
        let unread_max = match self.session.stranger(thread.shared) {
            true => STRANGER_UNREAD_MAX,
            false => thread.shared.clients.unread_max(),
        };
        self.session.limit_output(unread_max);
        self.intake.go_on(&mut self.session, thread, turn_ns, unread_max);
        let may_read = self.session.takes_commands() || self.intake.reads_ahead(&self.session);
        let fate = match self.received.take() {
            Some(received) => match self.take(thread, received, ahead) {
                // The room was too small for what the client has sent.
                Fate::Open if self.session.takes_commands() => self.read(thread, scratch),
                fate => fate,
            },
            None if may_read => self.read(thread, scratch),
            None => Fate::Open,
        };
        if fate == Fate::Over {
            return Fate::Over;
        }
        if self.ended_ahead && !self.intake.has_backlog() {
            self.session.close_after_replies();
        }
        if self.ended && self.session.is_waiting() {
            // It began to wait when its client was gone already: nothing will tell of that again.
            if !self.session.tries() {
                return Fate::Over;
            }
            self.session.close_after_replies();
        }
        let held_bytes = self.intake.held_bytes();
        if held_bytes as u64 > thread.config.client_query_buffer_limit {
            thread.counters.query_limit_closed.add(1);
            tracing::warn!(
                "closing client {}: its unfinished command has {held_bytes} bytes, more than \
                 client-query-buffer-limit",
                self.session.client().address
            );
            return Fate::Over;
        }
        self.session.client().input_bytes.store(held_bytes, Ordering::Relaxed);
        thread.settle();
        self.check_output_limit(thread)
    }

    /// Reads once, if there may be something and the turn lasts.
    fn read(&mut self, thread: &mut ThreadContext<'_>, scratch: &mut [u8]) -> Fate {
        if !self.readable || self.intake.turn_is_over() {
            return Fate::Open;
        }
        let received = self.stream.receive(scratch);
        self.take(thread, received, scratch)
    }

    /// Takes what was received into `room`.
    fn take(&mut self, thread: &mut ThreadContext<'_>, received: io::Result<Got>, room: &[u8]) -> Fate {
        match received {
            Ok(got) if got.bytes == 0 => {
                // Finish what is under way: a client may send its last commands and close its half.
                self.readable = false;
                self.ended_ahead = self.intake.has_backlog();
                if !self.ended_ahead {
                    self.session.close_after_replies();
                }
            }
            Ok(got) => {
                // Where there is no more, the next bytes come with an event of their own. The socket's end
                // does not, if that was announced together with these bytes.
                self.readable = got.more || self.ended;
                self.intake.take(&mut self.session, thread, &room[..got.bytes]);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                let address = self.session.client().address;
                thread.shared.tls.note_failure(address, &error);
                return Fate::Over;
            }
        }
        Fate::Open
    }

    /// Sends what can be sent, and closes clients that do not read.
    pub fn flush(&mut self, thread: &ThreadContext<'_>) -> Fate {
        if self.check_output_limit(thread) == Fate::Over {
            return Fate::Over;
        }
        while self.writable && self.wants_to_send() {
            match self.stream.send(self.session.replies().ready()) {
                Ok(sent) => {
                    thread.counters.output_bytes.add(sent.bytes as u64);
                    self.writable = !sent.full;
                    self.session.replies().sent(sent.bytes);
                    self.stuck_since_ms = None;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Fate::Over,
            }
        }
        if self.session.closing() && self.session.idle() && !self.wants_to_send() {
            return Fate::Over;
        }
        self.check_output_limit(thread)
    }

    /// Tells others what it has to send and what memory it takes, and applies `client-output-buffer-limit`.
    pub fn check_output_limit(&mut self, thread: &ThreadContext<'_>) -> Fate {
        let unsent = self.session.replies().unsent_bytes();
        let own_bytes = self.session.replies().own_bytes();
        let value_bytes = self.session.replies().value_bytes();
        let (pushed, pushed_own) = self.session.replies().pushed_bytes();
        let client = self.session.client();
        client.output_bytes.store(unsent, Ordering::Relaxed);
        client.buffer_bytes.store(own_bytes, Ordering::Relaxed);
        client.value_bytes.store(value_bytes, Ordering::Relaxed);
        client.pushes.note_output(pushed, pushed_own);
        let input_bytes = self.intake.memory_bytes();
        let memory_bytes = own_bytes + value_bytes + input_bytes + self.session.held_bytes();
        thread.shared.clients.note_memory(client, memory_bytes);
        let limit = self.session.output_limit(thread.config);
        let over = |bytes: u64| bytes > 0 && unsent as u64 > bytes;
        self.over_soft_limit_since_ms = match self.over_soft_limit_since_ms {
            _ if !over(limit.soft_bytes) => None,
            None => Some(thread.now_ms),
            since => since,
        };
        self.stuck_since_ms = match self.stuck_since_ms {
            _ if !self.session.waits_for_reader() => None,
            None => Some(thread.now_ms),
            since => since,
        };
        let lasts = |since_ms: Option<u64>, seconds: u64| {
            since_ms.is_some_and(|since_ms| thread.now_ms.saturating_sub(since_ms) > seconds * 1000)
        };
        let is_over = over(limit.hard_bytes)
            || lasts(self.over_soft_limit_since_ms, limit.soft_seconds)
            || lasts(self.stuck_since_ms, STUCK_SECONDS_MAX);
        if self.is_over_limit {
            return Fate::Over;
        }
        if is_over || self.session.client().pushes.is_overrun() {
            self.is_over_limit = true;
            thread.counters.output_limit_closed.add(1);
            let waiting = unsent + self.session.client().pushes.waiting_bytes();
            tracing::warn!(
                "closing client {}: it has not read {waiting} bytes of what it was sent, more than \
                 client-output-buffer-limit allows, or has not read any for too long",
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
