//! What is sent to connections that did not ask for it (messages, MONITOR's lines, invalidations), and how
//! much of it may wait.
//!
//! Two bounds hold, and both are checked when a push is queued, on the thread of whoever caused it:
//!
//! - for one connection, the hard limit of class `pubsub` in `client-output-buffer-limit`, whatever the class
//!   of its replies is;
//! - for all connections together, [`TOTAL_BYTES_MAX`]. Above it, a connection is closed once it has more
//!   than the mean.
//!
//! A message that many connections get is one allocation ([`Push`], [`Encoded`]), and the total counts it
//! once. An invalidation is short, and counts for each connection. Replies count nowhere here, however much
//! of them a connection has not read.

use redis_surface::codec::{Protocol, encode};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use txn::Reply;

/// All pushes of a node that wait have at most about as many bytes.
pub const TOTAL_BYTES_MAX: usize = 256 << 20;
/// What a push takes beside its bytes.
const PUSH_BYTES: usize = 128;
/// From this length on a push is encoded once for all who get it.
const SHARED_BYTES_MIN: usize = 64 << 10;

/// The pushes of all connections of a node.
#[derive(Debug, Default)]
pub struct PushBudget {
    /// Bytes that pushes take, wherever they wait.
    total_bytes: AtomicUsize,
    /// Connections that may have some.
    connections: AtomicUsize,
    /// The hard limit for one connection; 0: none.
    hard_bytes: AtomicU64,
}

impl PushBudget {
    /// Sets the limit for one connection.
    pub fn set_hard_limit(&self, bytes: u64) {
        self.hard_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes that pushes take.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// Whether a connection for which so many bytes wait has too many.
    fn is_too_much(&self, waiting_bytes: usize) -> bool {
        let hard_bytes = self.hard_bytes.load(Ordering::Relaxed);
        let mean_bytes = TOTAL_BYTES_MAX / self.connections.load(Ordering::Relaxed).max(1);
        hard_bytes > 0 && waiting_bytes as u64 > hard_bytes
            || waiting_bytes > mean_bytes && self.total_bytes() > TOTAL_BYTES_MAX
    }
}

/// Bytes that count against a budget as long as this exists.
#[derive(Debug)]
struct Counted {
    bytes: usize,
    budget: Arc<PushBudget>,
}

impl Counted {
    fn new(bytes: usize, budget: &Arc<PushBudget>) -> Counted {
        budget.total_bytes.fetch_add(bytes, Ordering::Relaxed);
        Counted { bytes, budget: budget.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.budget.total_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A push, for any number of connections.
#[derive(Debug)]
pub struct Push {
    reply: Reply,
    /// For RESP2 and for RESP3, if a connection has needed it.
    encoded: [OnceLock<Arc<Encoded>>; 2],
    counted: Counted,
}

impl Push {
    /// A push whose texts have about so many bytes.
    pub fn new(reply: Reply, text_bytes: usize, budget: &Arc<PushBudget>) -> Push {
        let counted = Counted::new(text_bytes + PUSH_BYTES, budget);
        Push { reply, encoded: Default::default(), counted }
    }

    /// The bytes that it counts for with each connection.
    pub fn bytes(&self) -> usize {
        self.counted.bytes
    }

    /// It, to be encoded.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// Its encoded form, if it is so long that connections share that.
    pub fn encoded(&self, protocol: Protocol) -> Option<&Arc<Encoded>> {
        let place = usize::from(protocol == Protocol::Resp3);
        (self.bytes() >= SHARED_BYTES_MIN).then(|| {
            self.encoded[place].get_or_init(|| {
                let mut bytes = Vec::with_capacity(self.bytes());
                encode(&self.reply, protocol, &mut bytes);
                let _counted = Counted::new(bytes.len(), &self.counted.budget);
                Arc::new(Encoded { bytes: bytes.into(), _counted })
            })
        })
    }
}

/// A push as it is sent.
#[derive(Debug)]
pub struct Encoded {
    bytes: Box<[u8]>,
    _counted: Counted,
}

impl Deref for Encoded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The pushes of one connection.
#[derive(Debug, Default)]
pub struct PushQueue {
    budget: Arc<PushBudget>,
    /// Bytes of pushes that its thread has not taken yet.
    waiting_bytes: AtomicUsize,
    /// Of these, what only this connection counts in the budget's total.
    waiting_own_bytes: AtomicUsize,
    /// Bytes of pushes that the connection has to send.
    unsent_bytes: AtomicUsize,
    /// Of these, what counts in the budget's total.
    counted_bytes: AtomicUsize,
    overrun: AtomicBool,
}

impl PushQueue {
    /// The queue of a new connection.
    pub fn new(budget: &Arc<PushBudget>) -> PushQueue {
        budget.connections.fetch_add(1, Ordering::Relaxed);
        let mut queue = PushQueue::default();
        queue.budget = budget.clone();
        queue
    }

    /// Admits a push of so many bytes, which the total knows already if others have it as well. False if too
    /// much waits: the connection is to be closed.
    pub(super) fn admit(&self, bytes: usize, is_shared: bool) -> bool {
        if self.is_overrun() {
            return false;
        }
        if !is_shared {
            self.waiting_own_bytes.fetch_add(bytes, Ordering::Relaxed);
            self.budget.total_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        let waiting = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let is_admitted = !self.budget.is_too_much(waiting + self.unsent_bytes.load(Ordering::Relaxed));
        if !is_admitted {
            self.taken(bytes, is_shared);
            self.overrun.store(true, Ordering::SeqCst);
        }
        is_admitted
    }

    /// The connection's thread has taken an admitted push.
    pub fn taken(&self, bytes: usize, is_shared: bool) {
        self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if !is_shared {
            self.waiting_own_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.budget.total_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The connection has so many bytes of pushes to send, of which its output takes `own_bytes` for itself.
    pub fn note_output(&self, unsent_bytes: usize, own_bytes: usize) {
        self.unsent_bytes.store(unsent_bytes, Ordering::Relaxed);
        let before = self.counted_bytes.load(Ordering::Relaxed);
        if before != own_bytes {
            self.counted_bytes.store(own_bytes, Ordering::Relaxed);
            // Wraps where there is less than before.
            self.budget.total_bytes.fetch_add(own_bytes.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// Bytes of pushes that its thread has not taken yet.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Whether more was pushed than may wait.
    pub fn is_overrun(&self) -> bool {
        self.overrun.load(Ordering::Relaxed)
    }
}

impl Drop for PushQueue {
    fn drop(&mut self) {
        self.note_output(0, 0);
        let waiting = self.waiting_own_bytes.load(Ordering::Relaxed);
        self.budget.total_bytes.fetch_sub(waiting, Ordering::Relaxed);
        // A queue of no node has a budget of its own, in which it was never counted.
        let connections = &self.budget.connections;
        let less = |count: usize| Some(count.saturating_sub(1));
        let _ = connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_counts_once_and_each_connection_is_bounded() {
        let budget = Arc::new(PushBudget::default());
        budget.set_hard_limit(1 << 20);
        let queues: Vec<PushQueue> = (0..3).map(|_| PushQueue::new(&budget)).collect();
        let text = 300 << 10;
        let push = Push::new(Reply::bulk("x".repeat(text)), text, &budget);
        assert_eq!(budget.total_bytes(), push.bytes());
        for queue in &queues {
            let admitted = (0..10).filter(|_| queue.admit(push.bytes(), true)).count();
            assert_eq!(admitted, 3);
            assert!(queue.is_overrun());
            assert_eq!(queue.waiting_bytes(), 3 * push.bytes());
        }
        assert_eq!(budget.total_bytes(), push.bytes(), "once");
        let encoded = push.encoded(Protocol::Resp2).expect("it is long").clone();
        drop(push);
        assert_eq!(budget.total_bytes(), encoded.len(), "an output has it still");
        drop(encoded);
        assert_eq!(budget.total_bytes(), 0);
    }

    #[test]
    fn above_the_total_those_are_closed_that_have_more_than_the_mean() {
        let budget = Arc::new(PushBudget::default());
        let queues: Vec<PushQueue> = (0..4).map(|_| PushQueue::new(&budget)).collect();
        queues[0].note_output(TOTAL_BYTES_MAX, TOTAL_BYTES_MAX);
        assert!(queues[0].admit(1, true), "there is no other limit");
        queues[1].note_output(1000, 1000);
        assert!(queues[1].admit(1, true), "it has less than the mean");
        assert!(!queues[0].admit(1, true));
        queues[0].note_output(0, 0);
        queues[1].note_output(TOTAL_BYTES_MAX / 2, TOTAL_BYTES_MAX / 2);
        assert!(queues[1].admit(1, true));
        drop(queues);
        assert_eq!(budget.total_bytes(), 0);
        assert_eq!(budget.connections.load(Ordering::Relaxed), 0);
    }
    #[test]
    fn what_only_one_connection_gets_counts_until_it_is_taken_or_gone() {
        let budget = Arc::new(PushBudget::default());
        let queues: Vec<PushQueue> = (0..2).map(|_| PushQueue::new(&budget)).collect();
        let third = TOTAL_BYTES_MAX / 3;
        assert!(queues[0].admit(third, false) && queues[1].admit(third, false));
        assert_eq!(budget.total_bytes(), 2 * third);
        assert!(!queues[0].admit(2 * third, false), "more than the mean");
        assert_eq!(budget.total_bytes(), 2 * third, "it was not admitted");
        queues[1].taken(third, false);
        assert_eq!(budget.total_bytes(), third);
        drop(queues);
        assert_eq!(budget.total_bytes(), 0);
    }
}
