//! A connection's replies, in the order of its commands.
//!
//! A command that was answered at once has its reply encoded immediately; a submitted one is *awaited*.
//! Replies to awaited requests arrive in any order, so the queue keeps one [`Awaited`] per unfinished
//! request, found by its sequence number without a search, and sends the answered prefix. What was answered
//! at once behind an unfinished request waits with it, already encoded.
//!
//! Invariant: the awaited requests have consecutive sequence numbers, `first_sequence` being that of the
//! front.

use crate::hub::Push;
use crate::net::Output;
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
    /// How many requests behind it were ordered together with it, and have their outcomes in its own.
    riders: usize,
    call: Option<Call>,
    share: Share,
    /// Replies to later commands that were answered at once.
    after: Option<Box<Output>>,
}

/// The share of an awaited request in the bounds of its connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Share {
    /// The bytes of its arguments.
    pub bytes: usize,
    /// About how long it takes: a short command is 1 (see [`super::gathering`]).
    pub work: usize,
    /// Whether its reply may be large.
    pub bulky: bool,
}

/// The reply queue of a connection.
#[derive(Debug, Default)]
pub struct Replies {
    /// Encoded replies that may be sent.
    output: Output,
    awaited: VecDeque<Awaited>,
    first_sequence: u64,
    /// The sums of all shares.
    awaited_bytes: usize,
    awaited_work: usize,
    /// How many awaited requests may have a large reply.
    awaited_bulky: usize,
    /// Bytes in all `after`s.
    held_bytes: usize,
    /// Bytes of pushes that were appended since all was sent, and how many of those are in the output's own
    /// buffers.
    pushed_bytes: usize,
    pushed_own_bytes: usize,
    /// A guess at the length of such a reply, from those that came last.
    bulky_bytes: usize,
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
    /// Its reply may be large.
    pub bulky: bool,
    /// The call that it is about.
    pub call: Option<Call>,
}

/// About as many bytes of large replies may be awaited at once, as far as they can be guessed.
const AWAITED_BULKY_BYTES: usize = 4 << 20;

impl Replies {
    /// An empty queue whose first awaited request will have sequence number 1.
    pub fn new() -> Replies {
        Replies { first_sequence: 1, bulky_bytes: AWAITED_BULKY_BYTES / 2, ..Replies::default() }
    }

    /// Appends the reply of a command that was answered at once.
    pub fn push(&mut self, reply: &Reply, protocol: Protocol) {
        match self.awaited.back_mut() {
            None => encode(reply, protocol, &mut self.output),
            Some(last) => {
                let after = last.after.get_or_insert_default();
                let before = after.unsent_bytes();
                encode(reply, protocol, &mut **after);
                self.held_bytes += after.unsent_bytes() - before;
            }
        }
    }

    /// Appends what is no reply, ahead of all replies that still wait.
    pub fn push_at_once(&mut self, push: &Reply, protocol: Protocol) {
        let before = self.output.unsent_bytes();
        encode(push, protocol, &mut self.output);
        let bytes = self.output.unsent_bytes() - before;
        self.pushed_bytes += bytes;
        self.pushed_own_bytes += bytes;
    }

    /// The same, where other connections may get it as well.
    pub fn share_at_once(&mut self, push: &Push, protocol: Protocol) {
        match push.encoded(protocol) {
            Some(encoded) => {
                self.output.message(encoded);
                self.pushed_bytes += encoded.len();
            }
            None => self.push_at_once(push.reply(), protocol),
        }
    }

    /// Appends an awaited request, and gives it its sequence number.
    pub fn expect(
        &mut self,
        treatment: Treatment,
        protocol: Protocol,
        share: Share,
        call: Option<Call>,
    ) -> u64 {
        let sequence = self.next_sequence();
        self.awaited.push_back(Awaited {
            treatment,
            protocol,
            outcome: None,
            riders: 0,
            call,
            share,
            after: None,
        });
        self.awaited_bytes += share.bytes;
        self.awaited_work += share.work;
        self.awaited_bulky += usize::from(share.bulky);
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

    /// The last awaited request rides with another one: its outcome is a part of that one's.
    pub fn ride(&mut self, leader: u64) {
        if let Some(leader) = self.awaited_at(leader) {
            leader.riders += 1;
        }
    }

    fn awaited_at(&mut self, sequence: u64) -> Option<&mut Awaited> {
        let index = sequence.checked_sub(self.first_sequence)?;
        self.awaited.get_mut(usize::try_from(index).ok()?)
    }

    /// Takes the outcome of an awaited request, and of those that ride with it. False if no such request is
    /// awaited.
    pub fn arrived(&mut self, sequence: u64, outcome: Outcome) -> bool {
        let riders = self.awaited_at(sequence).map_or(0, |leader| std::mem::take(&mut leader.riders));
        if riders == 0 {
            return self.arrived_alone(sequence, outcome);
        }
        match outcome {
            Ok(Reply::Array(replies)) if replies.len() == riders + 1 => {
                for (sequence, reply) in (sequence..).zip(replies) {
                    self.arrived_alone(sequence, Ok(reply));
                }
            }
            // The transaction failed as a whole.
            outcome => {
                for sequence in (sequence..).take(riders + 1) {
                    self.arrived_alone(sequence, outcome.clone());
                }
            }
        }
        true
    }

    fn arrived_alone(&mut self, sequence: u64, outcome: Outcome) -> bool {
        match self.awaited_at(sequence) {
            Some(awaited) if awaited.outcome.is_none() => {
                awaited.outcome = Some(outcome);
                true
            }
            _ => false,
        }
    }

    /// Takes the front request off the queue if it was answered. The caller encodes its reply with
    /// [`Replies::complete`], and then calls [`Replies::release`] with what is returned beside it.
    pub fn next_answered(&mut self) -> Option<(Answered, Option<Box<Output>>)> {
        self.awaited.front()?.outcome.as_ref()?;
        let Awaited { treatment, protocol, outcome, call, share, after, .. } = self.awaited.pop_front()?;
        let Share { bytes, work, bulky } = share;
        self.first_sequence += 1;
        self.awaited_bytes -= bytes;
        self.awaited_work -= work;
        self.awaited_bulky -= usize::from(bulky);
        Some((Answered { treatment, protocol, outcome: outcome?, bulky, call }, after))
    }

    /// Appends the reply of a request taken by [`Replies::next_answered`], ahead of everything that still
    /// waits.
    pub fn complete(&mut self, reply: &Reply, protocol: Protocol, bulky: bool) {
        let before = self.output.unsent_bytes();
        encode(reply, protocol, &mut self.output);
        if bulky {
            let bytes = self.output.unsent_bytes() - before;
            self.bulky_bytes = bytes.max(self.bulky_bytes - self.bulky_bytes / 8);
        }
    }

    /// Appends what had waited behind a completed request.
    pub fn release(&mut self, after: Option<Box<Output>>) {
        if let Some(after) = after {
            self.held_bytes -= after.unsent_bytes();
            self.output.append(*after);
        }
    }

    /// Whether one more request may be awaited whose reply may be large, where `max` may be awaited at most.
    /// Replies that are on their way can't be stopped, so the number of such requests is what bounds them.
    pub fn takes_bulky(&self, max: usize) -> bool {
        let fit = AWAITED_BULKY_BYTES / self.bulky_bytes.max(1);
        self.awaited_bulky < fit.clamp(1, max)
    }

    /// Whether requests are awaited.
    pub fn awaits(&self) -> bool {
        !self.awaited.is_empty()
    }
    /// How many requests are awaited.
    pub fn awaited_count(&self) -> usize {
        self.awaited.len()
    }
    /// The work of awaited requests: see [`Share`].
    pub fn awaited_work(&self) -> usize {
        self.awaited_work
    }
    /// The bytes of the arguments of awaited requests.
    pub fn awaited_bytes(&self) -> usize {
        self.awaited_bytes
    }
    /// Encoded bytes that wait behind awaited requests.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }
    /// Bytes that may be sent now. More may follow them.
    pub fn ready(&self) -> &[u8] {
        self.output.ready()
    }
    /// All bytes that the client has not taken.
    #[inline]
    pub fn unsent_bytes(&self) -> usize {
        self.output.unsent_bytes() + self.held_bytes
    }
    /// The memory that the replies take for themselves.
    pub fn own_bytes(&self) -> usize {
        self.output.own_bytes() + self.held_bytes
    }
    /// See [`Output::value_bytes`]. Values among the held bytes count there.
    pub fn value_bytes(&self) -> usize {
        self.output.value_bytes()
    }
    /// How many of the unsent bytes are pushes, at most, and how many of the bytes that the replies take for
    /// themselves.
    pub fn pushed_bytes(&self) -> (usize, usize) {
        (self.pushed_bytes.min(self.unsent_bytes()), self.pushed_own_bytes.min(self.own_bytes()))
    }
    /// The first `count` bytes of [`Replies::ready`] were sent.
    pub fn sent(&mut self, count: usize) {
        self.output.sent(count);
        if self.output.unsent_bytes() == 0 {
            (self.pushed_bytes, self.pushed_own_bytes) = (0, 0);
        }
    }
}

/// The reply that stands for an outcome.
pub fn reply_of(outcome: Outcome) -> Reply {
    match outcome {
        Ok(reply) => reply,
        Err(Stop::Abort(reason)) => {
            let coded = reason.split(' ').next().is_some_and(|word| {
                word.len() >= 2 && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            });
            if coded { Reply::Error(reason) } else { Reply::error_owned(format!("ERR {reason}")) }
        }
        Err(stop) => Reply::error_owned(format!("ERR {stop}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(bytes: usize, bulky: bool) -> Share {
        Share { bytes, work: 1, bulky }
    }

    /// Answers the queue's front as a connection does.
    fn send_answered(replies: &mut Replies) {
        while let Some((answered, after)) = replies.next_answered() {
            let reply = reply_of(answered.outcome);
            replies.complete(&reply, answered.protocol, answered.bulky);
            replies.release(after);
        }
    }

    #[test]
    fn replies_leave_in_the_order_of_the_commands() {
        let mut replies = Replies::new();
        replies.push(&Reply::Integer(0), Protocol::Resp2);
        let first = replies.expect(Treatment::Send, Protocol::Resp2, share(10, false), None);
        replies.push(&Reply::Integer(2), Protocol::Resp2);
        let second = replies.expect(Treatment::Send, Protocol::Resp2, share(10, false), None);
        replies.push(&Reply::Integer(4), Protocol::Resp2);
        assert_eq!((first, second, replies.awaited_bytes()), (1, 2, 20));
        assert!(replies.arrived(second, Ok(Reply::Integer(3))));
        send_answered(&mut replies);
        assert_eq!(replies.ready(), b":0\r\n", "nothing overtakes the first request");
        assert!(replies.arrived(first, Ok(Reply::Integer(1))));
        assert!(!replies.arrived(first, Ok(Reply::Integer(9))), "a request is answered once");
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
    fn what_rides_has_its_part_of_the_leaders_outcome() {
        let awaiting_three = || {
            let mut replies = Replies::new();
            let mut expect = || replies.expect(Treatment::Send, Protocol::Resp2, share(1, false), None);
            let (leader, _, behind) = (expect(), expect(), expect());
            assert_eq!((leader, behind), (1, 3));
            replies.ride(leader);
            replies
        };
        let own = Reply::Array(vec![Reply::Integer(7), Reply::error("ERR no")]);
        let about_all = Reply::error("ERR all");
        for (outcome, sent) in [
            (Ok(own), ":7\r\n-ERR no\r\n"),
            (Ok(about_all), "-ERR all\r\n-ERR all\r\n"),
            (Err(Stop::Abort("it ended".into())), "-ERR it ended\r\n-ERR it ended\r\n"),
        ] {
            let mut replies = awaiting_three();
            assert!(replies.arrived(1, outcome));
            send_answered(&mut replies);
            assert_eq!(replies.ready(), sent.as_bytes());
            assert!(!replies.arrived(2, Ok(Reply::Nil)), "it was answered with its leader");
            assert!(replies.arrived(3, Ok(Reply::Integer(3))), "this one was ordered by itself");
        }
    }

    #[test]
    fn large_replies_are_awaited_one_by_one() {
        let mut replies = Replies::new();
        let mut awaited = Vec::new();
        while replies.takes_bulky(16) {
            awaited.push(replies.expect(Treatment::Send, Protocol::Resp2, share(1, true), None));
        }
        assert_eq!(awaited.len(), 2, "nothing is known of its replies yet");
        let large = || Reply::Array(vec![Reply::bulk("x".repeat(1000)); 5000]);
        for sequence in awaited {
            assert!(replies.arrived(sequence, Ok(large())));
        }
        send_answered(&mut replies);
        assert!(replies.takes_bulky(16));
        let one = replies.expect(Treatment::Send, Protocol::Resp2, share(1, true), None);
        assert!(!replies.takes_bulky(16), "the last ones were large");
        assert!(replies.arrived(one, Ok(Reply::OK)));
        for _ in 0..100 {
            send_answered(&mut replies);
            let one = replies.expect(Treatment::Send, Protocol::Resp2, share(1, true), None);
            assert!(replies.arrived(one, Ok(Reply::OK)));
        }
        send_answered(&mut replies);
        replies.expect(Treatment::Send, Protocol::Resp2, share(1, true), None);
        assert!(replies.takes_bulky(16), "the last ones were short");
    }

    #[test]
    fn a_stop_becomes_an_error_with_a_code() {
        assert_eq!(reply_of(Err(Stop::abort("no stock"))), Reply::error("ERR no stock"));
        assert_eq!(reply_of(Err(Stop::abort("OOM too much"))), Reply::error("OOM too much"));
    }
}
