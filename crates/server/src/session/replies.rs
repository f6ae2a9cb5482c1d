//! A connection's replies, in the order of its commands.
//!
//! A command that was answered at once has its reply encoded immediately; a submitted one is *awaited*. Replies to
//! awaited requests arrive in any order, so the queue keeps one [`Awaited`] per unfinished request, found by its
//! sequence number without a search, and sends the answered prefix. What was answered at once behind an unfinished
//! request waits with it, already encoded.
//!
//! Invariant: the awaited requests have consecutive sequence numbers, `first_sequence` being that of the front.

use crate::observe::Call;
use redis_surface::codec::{Protocol, encode};
use std::collections::VecDeque;
use txn::{Outcome, Reply, Stop};

/// What to do with the reply of a request.
#[derive(Debug)]
pub enum Treatment {
    /// Send it.
    Send,
    /// Drop it: CLIENT REPLY OFF or SKIP.
    Drop,
    /// It is one of a transaction command, which the session completes.
    Complete {
        /// What to do.
        completion: Box<super::Completion>,
        /// Whether to send the reply that comes out.
        speaks: bool,
    },
}

/// A submitted request whose reply has not been sent.
#[derive(Debug)]
struct Awaited {
    treatment: Treatment,
    protocol: Protocol,
    outcome: Option<Outcome>,
    call: Option<Call>,
    /// The bytes of the request's arguments.
    bytes: usize,
    /// Replies to later commands that were answered at once.
    after: Vec<u8>,
}

/// The reply queue of a connection.
#[derive(Debug, Default)]
pub struct Replies {
    /// Encoded replies that may be sent.
    output: Vec<u8>,
    /// How much of `output` was sent.
    sent: usize,
    awaited: VecDeque<Awaited>,
    first_sequence: u64,
    /// The sum of all `bytes`.
    awaited_bytes: usize,
    /// Bytes in all `after`s.
    held_bytes: usize,
}

/// An answered request at the front of the queue.
#[derive(Debug)]
pub struct Answered {
    /// What to do with it.
    pub treatment: Treatment,
    /// The protocol in which its client asked.
    pub protocol: Protocol,
    /// How it ended.
    pub outcome: Outcome,
    /// The call that it is about.
    pub call: Option<Call>,
}

/// A buffer beyond this is given back when it becomes empty.
const OUTPUT_BYTES_KEPT: usize = 64 << 10;

impl Replies {
    /// An empty queue whose first awaited request will have sequence number 1.
    pub fn new() -> Replies {
        Replies {
            first_sequence: 1,
            ..Replies::default()
        }
    }

    /// Appends the reply of a command that was answered at once.
    pub fn push(&mut self, reply: &Reply, protocol: Protocol) {
        match self.awaited.back_mut() {
            None => encode(reply, protocol, &mut self.output),
            Some(last) => {
                let before = last.after.len();
                encode(reply, protocol, &mut last.after);
                self.held_bytes += last.after.len() - before;
            }
        }
    }

    /// Appends what is no reply, ahead of all replies that still wait.
    pub fn push_at_once(&mut self, push: &Reply, protocol: Protocol) {
        encode(push, protocol, &mut self.output);
    }

    /// Appends an awaited request, whose arguments have `bytes`, and gives it its sequence number.
    pub fn expect(
        &mut self,
        treatment: Treatment,
        protocol: Protocol,
        bytes: usize,
        call: Option<Call>,
    ) -> u64 {
        let sequence = self.next_sequence();
        self.awaited.push_back(Awaited {
            treatment,
            protocol,
            outcome: None,
            call,
            bytes,
            after: Vec::new(),
        });
        self.awaited_bytes += bytes;
        sequence
    }

    /// The sequence number that the next awaited request will have.
    pub fn next_sequence(&self) -> u64 {
        self.first_sequence + self.awaited.len() as u64
    }

    /// The sequence number of the first request whose reply has not been sent.
    pub fn first_sequence(&self) -> u64 {
        self.first_sequence
    }

    /// Takes the outcome of an awaited request. False if no such request is awaited.
    pub fn arrived(&mut self, sequence: u64, outcome: Outcome) -> bool {
        let Some(index) = sequence.checked_sub(self.first_sequence) else {
            return false;
        };
        match self.awaited.get_mut(index as usize) {
            Some(awaited) if awaited.outcome.is_none() => {
                awaited.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    /// Takes the front request off the queue if it was answered. The caller encodes its reply with
    /// [`Replies::complete`], and then calls [`Replies::release`] with what is returned beside it.
    pub fn next_answered(&mut self) -> Option<(Answered, Vec<u8>)> {
        self.awaited.front()?.outcome.as_ref()?;
        let Awaited {
            treatment,
            protocol,
            outcome,
            call,
            bytes,
            after,
        } = self.awaited.pop_front()?;
        self.first_sequence += 1;
        self.awaited_bytes -= bytes;
        Some((
            Answered {
                treatment,
                protocol,
                outcome: outcome?,
                call,
            },
            after,
        ))
    }

    /// Appends the reply of a request taken by [`Replies::next_answered`], ahead of everything that still waits.
    pub fn complete(&mut self, reply: &Reply, protocol: Protocol) {
        encode(reply, protocol, &mut self.output);
    }

    /// Appends what had waited behind a completed request.
    pub fn release(&mut self, after: Vec<u8>) {
        if !after.is_empty() {
            self.held_bytes -= after.len();
            self.output.extend_from_slice(&after);
        }
    }

    /// Whether requests are awaited.
    pub fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }
    /// How many requests are awaited.
    pub fn awaited_count(&self) -> usize {
        self.awaited.len()
    }
    /// The bytes of the arguments of awaited requests.
    pub fn awaited_bytes(&self) -> usize {
        self.awaited_bytes
    }
    /// Encoded bytes that wait behind awaited requests.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }
    /// Bytes that may be sent now.
    pub fn ready(&self) -> &[u8] {
        &self.output[self.sent..]
    }
    /// All bytes that the client has not taken.
    pub fn unsent_bytes(&self) -> usize {
        self.output.len() - self.sent + self.held_bytes
    }
    /// The size of the output buffer.
    pub fn capacity_bytes(&self) -> usize {
        self.output.capacity()
    }
    /// `count` more bytes were sent.
    pub fn sent(&mut self, count: usize) {
        self.sent += count;
        if self.sent == self.output.len() {
            self.sent = 0;
            if self.output.capacity() > OUTPUT_BYTES_KEPT {
                self.output = Vec::new();
            } else {
                self.output.clear();
            }
        } else if self.sent > OUTPUT_BYTES_KEPT && self.sent > self.output.len() / 2 {
            // Moves less than it frees, so that a slow reader's buffer does not keep what it has read.
            self.output.drain(..self.sent);
            self.sent = 0;
        }
    }
}

/// The reply that stands for an outcome.
pub fn reply_of(outcome: Outcome) -> Reply {
    match outcome {
        Ok(reply) => reply,
        Err(Stop::Abort(reason)) => {
            let coded = reason.split(' ').next().is_some_and(|word| {
                word.len() >= 2
                    && word
                        .bytes()
                        .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            });
            if coded {
                Reply::Error(reason)
            } else {
                Reply::error_owned(format!("ERR {reason}"))
            }
        }
        Err(stop) => Reply::error_owned(format!("ERR {stop}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers the queue's front as a connection does.
    fn send_answered(replies: &mut Replies) {
        while let Some((answered, after)) = replies.next_answered() {
            let reply = reply_of(answered.outcome);
            replies.complete(&reply, answered.protocol);
            replies.release(after);
        }
    }

    #[test]
    fn replies_leave_in_the_order_of_the_commands() {
        let mut replies = Replies::new();
        replies.push(&Reply::Integer(0), Protocol::Resp2);
        let first = replies.expect(Treatment::Send, Protocol::Resp2, 10, None);
        replies.push(&Reply::Integer(2), Protocol::Resp2);
        let second = replies.expect(Treatment::Send, Protocol::Resp2, 10, None);
        replies.push(&Reply::Integer(4), Protocol::Resp2);
        assert_eq!((first, second, replies.awaited_bytes()), (1, 2, 20));
        assert!(replies.arrived(second, Ok(Reply::Integer(3))));
        send_answered(&mut replies);
        assert_eq!(
            replies.ready(),
            b":0\r\n",
            "nothing overtakes the first request"
        );
        assert!(replies.arrived(first, Ok(Reply::Integer(1))));
        assert!(
            !replies.arrived(first, Ok(Reply::Integer(9))),
            "a request is answered once"
        );
        send_answered(&mut replies);
        assert_eq!(replies.ready(), b":0\r\n:1\r\n:2\r\n:3\r\n:4\r\n");
        assert_eq!((replies.held_bytes(), replies.awaited_bytes()), (0, 0));
        assert!(!replies.awaits());
        replies.sent(4);
        assert_eq!(replies.ready(), b":1\r\n:2\r\n:3\r\n:4\r\n");
        replies.sent(16);
        assert_eq!(replies.unsent_bytes(), 0);
        assert!(!replies.arrived(7, Ok(Reply::Nil)), "nobody asked");
    }

    #[test]
    fn a_stop_becomes_an_error_with_a_code() {
        assert_eq!(
            reply_of(Err(Stop::abort("no stock"))),
            Reply::error("ERR no stock")
        );
        assert_eq!(
            reply_of(Err(Stop::abort("OOM too much"))),
            Reply::error("OOM too much")
        );
    }
}
