//! From a connection's bytes to its session's commands, without a socket.
//!
//! An intake keeps the bytes that its client has sent and the session has not taken. It decodes as long as
//! the session takes commands and the *turn* lasts: a turn is bounded in time and in bytes of replies, so
//! that one busy client cannot keep the others waiting. Bytes that remain are the *backlog*.

use crate::session::{Session, ThreadContext};
use redis_surface::codec::{Limits, RequestDecoder};
use std::sync::atomic::Ordering;
use txn::tx::EXPECTED_MAX;

/// An input buffer beyond this is given back when it becomes empty.
const INPUT_BYTES_KEPT: usize = 64 << 10;
/// A turn is over when it has made so many bytes of replies.
const TURN_BYTES: usize = 256 << 10;
/// In a turn the clock is read after so many commands; commands that may take long read it themselves.
const COMMANDS_PER_LOOK: u32 = 32;
/// Of what a client may leave unread this share (1 / it) is what it may send ahead.
const AHEAD_SHARE: usize = 4;

/// See the module's head.
#[derive(Default)]
pub struct Intake {
    decoder: RequestDecoder,
    input: Input,
    /// Decoding stopped although there may be a whole command: the session took no more, or the turn was
    /// over.
    backlog: bool,
    turn: Turn,
    /// So many bytes are read ahead of the commands that wait.
    ahead_max: usize,
}

/// What was received and not yet decoded.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    /// So many of them were decoded.
    used: usize,
}

impl Input {
    fn rest(&self) -> &[u8] {
        &self.bytes[self.used..]
    }
    fn len(&self) -> usize {
        self.bytes.len() - self.used
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn append(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
    /// Some more were decoded.
    fn forget(&mut self, count: usize) {
        self.used += count;
        if self.used < self.bytes.len() {
            // Moves less than it frees.
            if self.used > self.bytes.len() / 2 {
                self.bytes.drain(..self.used);
                self.used = 0;
            }
        } else {
            self.used = 0;
            if self.bytes.capacity() > INPUT_BYTES_KEPT {
                self.bytes = Vec::new();
            } else {
                self.bytes.clear();
            }
        }
    }
}

/// How long a connection is served before others are.
#[derive(Default)]
struct Turn {
    /// By the tally's clock.
    ends_ns: u64,
    /// The replies that were unsent when it began.
    unsent_bytes: usize,
    is_over: bool,
}

impl Intake {
    /// An intake that has received `input`, which `decoder` has not seen yet.
    pub fn with_input(decoder: RequestDecoder, input: Vec<u8>) -> Intake {
        Intake {
            decoder,
            backlog: !input.is_empty(),
            input: Input { bytes: input, used: 0 },
            ..Intake::default()
        }
    }

    /// Whether bytes remain in which there may be a whole command.
    pub fn has_backlog(&self) -> bool {
        self.backlog
    }
    /// Whether the turn that began last is over.
    pub fn turn_is_over(&self) -> bool {
        self.turn.is_over
    }
    /// The bytes of commands that are not whole, or that the session has not taken.
    pub fn held_bytes(&self) -> usize {
        self.input.len() + self.decoder.held_bytes()
    }
    /// The memory that these take.
    pub fn memory_bytes(&self) -> usize {
        self.input.bytes.capacity() + self.decoder.held_bytes()
    }

    /// Whether to read what no command is taken from yet. A client that sends all its commands before it
    /// reads a reply would wait for ever if the server did not read either, so the server takes some more of
    /// them: commands are short beside their replies.
    pub fn reads_ahead(&self, session: &Session) -> bool {
        session.waits_for_reader() && self.input.len() < self.ahead_max
    }

    /// Begins a turn of `turn_ns`: the session goes on where it was held, and takes what is decoded from the
    /// backlog. Its client may leave `unread_max` bytes of replies unread.
    pub fn go_on(
        &mut self,
        session: &mut Session,
        thread: &mut ThreadContext<'_>,
        turn_ns: u64,
        unread_max: usize,
    ) {
        self.ahead_max = unread_max / AHEAD_SHARE;
        self.turn = Turn {
            ends_ns: thread.tally.read_ns() + turn_ns,
            unsent_bytes: session.replies().unsent_bytes(),
            is_over: false,
        };
        session.resume(thread);
        self.decoder.limits = Limits {
            bulk_bytes_max: thread.config.proto_max_bulk_len,
            unauthenticated: session.stranger(thread.shared),
        };
        if self.backlog {
            self.decode_input(session, thread);
        }
    }

    /// Takes bytes that the client has sent.
    pub fn take(&mut self, session: &mut Session, thread: &mut ThreadContext<'_>, bytes: &[u8]) {
        thread.counters.input_bytes.add(bytes.len() as u64);
        thread.tally.tick();
        let client = session.client();
        client.active_ms.store(thread.now_ms, Ordering::Relaxed);
        client.input_bytes.store(self.input.len() + bytes.len(), Ordering::Relaxed);
        if !session.takes_commands() {
            self.keep(bytes);
        } else if self.input.is_empty() {
            let used = self.decode(session, thread, bytes);
            if used < bytes.len() {
                let wanted = self.decoder.wanted_bytes().min(thread.config.proto_max_bulk_len as usize + 2);
                self.input.bytes.reserve(wanted.clamp(bytes.len() - used, 1 << 20));
                self.input.append(&bytes[used..]);
            }
        } else {
            self.input.append(bytes);
            self.decode_input(session, thread);
        }
    }

    /// Keeps bytes that the client has sent for a later turn.
    pub fn keep(&mut self, bytes: &[u8]) {
        self.input.append(bytes);
        self.backlog = true;
    }

    fn decode_input(&mut self, session: &mut Session, thread: &mut ThreadContext<'_>) {
        let mut input = std::mem::take(&mut self.input);
        let used = self.decode(session, thread, input.rest());
        input.forget(used);
        self.input = input;
    }

    /// Runs the commands in `bytes`, as far as the session takes them and the turn lasts. Returns how many
    /// bytes were used.
    fn decode(&mut self, session: &mut Session, thread: &mut ThreadContext<'_>, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut commands = 0_u32;
        while session.takes_commands() && !self.turn.is_over {
            if commands.is_multiple_of(EXPECTED_MAX as u32) {
                session.look_ahead(thread, rest);
            }
            match self.decoder.next(&mut rest) {
                Ok(Some(argv)) => {
                    session.command(thread, argv);
                    self.decoder.limits.unauthenticated = session.stranger(thread.shared);
                    commands += 1;
                    if commands.is_multiple_of(COMMANDS_PER_LOOK) {
                        thread.tally.tick();
                    }
                    let unsent_bytes = session.replies().unsent_bytes();
                    self.turn.is_over = thread.tally.now_ns() >= self.turn.ends_ns
                        || unsent_bytes.saturating_sub(self.turn.unsent_bytes) >= TURN_BYTES
                        || session.is_over_hard_limit(thread.config);
                }
                Ok(None) => break,
                Err(error) => {
                    session.refuse_input(thread, &error.reply());
                    rest = &[];
                }
            }
        }
        if session.closing() {
            // Nothing that follows will be looked at.
            rest = &[];
        }
        let stopped = !session.takes_commands() || self.turn.is_over;
        self.backlog = !rest.is_empty() && stopped;
        bytes.len() - rest.len()
    }
}
