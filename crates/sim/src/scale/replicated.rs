//! Full replication (Archie, sections 3 and 6): the leader that orders, beside the one replica that the model
//! executes.
//!
//! All replicas execute the same order, so the model has one engine. The leader is one thread. It takes each
//! request, closes an *opt-batch* when [`BATCH_BYTES_MAX`] bytes wait or [`BATCH_NS`] are gone, and sends the
//! opt-batch to each replica.
//!
//! - **MiMoX**: opt-batches leave at once. A *final-batch* of [`OPT_BATCHES`] names, or of what came in
//!   [`FINAL_NS`], goes through the agreement (the paper's rule; `agree::mimox` closes one earlier where no
//!   final-batch is undecided).
//! - **Raft**: each batch is itself what is agreed on.
//!
//! A replica promises only what it holds: an agreement takes three messages, and it begins behind the
//! opt-batches on the leader's wire. The replica hears of a decision as any follower does.

use super::{Costs, Times};
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use txn::{Position, Request};

/// An opt-batch has at most so many bytes of requests.
pub const BATCH_BYTES_MAX: u64 = 12_000;
/// The opt-batches of a final-batch.
pub const OPT_BATCHES: usize = 5;
/// A final-batch waits for its opt-batches at most so long.
pub const FINAL_NS: u64 = 10_000_000;
/// An opt-batch that does not fill is closed after its share of the final-batch's time.
pub const BATCH_NS: u64 = FINAL_NS / OPT_BATCHES as u64;
/// The leader looks so often whether there is something to close.
const LOOK_NS: u64 = 50_000;
/// A name in a final-batch: a digest and a length, as `agree::mimox` encodes it.
pub const NAME_BYTES: u64 = 18;
/// What a message has beside what it carries.
const HEADER_BYTES: u64 = 40;

/// How replicas agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Delivery {
    /// On batches.
    Raft,
    /// On names of batches that were sent ahead.
    Mimox,
}

/// When the engine gets a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Feed {
    /// When the batch comes: its place may still change.
    Optimistic,
    /// When its place is agreed on.
    Final,
}

/// A cluster whose nodes all have all records.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Replication {
    /// Replicas, the leader included.
    pub replicas: u16,
    /// How they agree.
    pub delivery: Delivery,
    /// When the engine gets a batch.
    pub feed: Feed,
    /// Threads of a replica that execute read-only calls, beside its engine's workers.
    pub readers: usize,
    /// The bytes of a request.
    pub request_bytes: u64,
    /// What a request takes the leader's thread.
    pub request_ns: u64,
    /// What a batch takes it.
    pub batch_ns: u64,
}

/// What was found of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OrderReport {
    /// From a batch's optimistic delivery to its final one, on average.
    pub overlap_ns: f64,
    /// Requests of an opt-batch, on average.
    pub opt_batch_requests: f64,
    /// Opt-batches of a final-batch, on average.
    pub final_batch_names: f64,
    /// The bytes of the largest proposal that was agreed on.
    pub proposal_bytes_max: u64,
    /// Requests that were ordered in a second.
    pub ordered_per_s: f64,
    /// The share of the executed transactions that had committed speculatively when they were confirmed.
    pub speculated: f64,
}

/// A batch on its way.
#[derive(Clone)]
pub(super) struct OnItsWay {
    pub(super) requests: Vec<Arc<Request>>,
    pub(super) arrives_ns: u64,
}

/// What became final.
pub(super) struct Agreed {
    pub(super) at_ns: u64,
    /// Opt-batches, from the oldest open one on.
    pub(super) batches: usize,
}

/// What is counted since the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OrderCounts {
    pub(super) requests: u64,
    pub(super) opt_batches: u64,
    pub(super) final_batches: u64,
    pub(super) decided: u64,
    pub(super) overlap_ns: u64,
    pub(super) speculated: u64,
    pub(super) executed: u64,
}

/// The leader's thread and wire.
pub(super) struct Leader {
    replication: Replication,
    times: Times,
    costs: Costs,
    closed_ns: u64,
    thread_until_ns: u64,
    wire_until_ns: u64,
    /// When the opt-batches of the open final-batch came to the replica.
    open: Vec<u64>,
    open_since_ns: u64,
    /// The last decision: final-batches are decided in their order.
    decided_ns: u64,
    pub(super) proposal_bytes_max: u64,
    pub(super) counts: OrderCounts,
}

impl Leader {
    pub(super) fn new(replication: Replication, times: Times, costs: Costs) -> Leader {
        Leader {
            replication,
            times,
            costs,
            closed_ns: 0,
            thread_until_ns: 0,
            wire_until_ns: 0,
            open: Vec::new(),
            open_since_ns: 0,
            decided_ns: 0,
            proposal_bytes_max: 0,
            counts: OrderCounts::default(),
        }
    }

    fn followers(&self) -> u64 {
        u64::from(self.replication.replicas.saturating_sub(1))
    }

    /// Sends the same to each follower. Returns when the last one's bytes are on the wire.
    fn send(&mut self, bytes: u64) -> u64 {
        self.thread_until_ns += self.followers() * self.costs.message_ns;
        let wire_ns = (self.followers() * (bytes + HEADER_BYTES)) as f64 * self.costs.byte_ns;
        self.wire_until_ns = self.wire_until_ns.max(self.thread_until_ns) + wire_ns as u64;
        self.wire_until_ns
    }

    /// Takes what waits, if it is time for that: the batch that leaves, what is proposed, and when the leader
    /// looks again.
    pub(super) fn look(
        &mut self,
        waiting: &mut Vec<Arc<Request>>,
        now_ns: u64,
    ) -> (Option<OnItsWay>, Option<Agreed>, u64) {
        self.thread_until_ns = self.thread_until_ns.max(now_ns);
        let bytes_each = self.replication.request_bytes.max(1);
        let full = (BATCH_BYTES_MAX / bytes_each).max(1) as usize;
        let is_old = now_ns - self.closed_ns >= BATCH_NS;
        let mut sent = None;
        if waiting.len() >= full || is_old && !waiting.is_empty() {
            let rest = waiting.split_off(full.min(waiting.len()));
            let requests = std::mem::replace(waiting, rest);
            self.closed_ns = now_ns;
            let count = requests.len() as u64;
            self.thread_until_ns += self.replication.batch_ns + count * self.replication.request_ns;
            let arrives_ns = self.send(count * bytes_each) + self.times.latency_ns;
            if self.open.is_empty() {
                self.open_since_ns = now_ns;
            }
            self.open.push(arrives_ns);
            self.counts.requests += count;
            self.counts.opt_batches += 1;
            if self.replication.delivery == Delivery::Raft {
                self.proposal_bytes_max = self.proposal_bytes_max.max(count * bytes_each);
            }
            sent = Some(OnItsWay { requests, arrives_ns });
        }
        let agreed = self.is_proposable(now_ns).then(|| self.agree());
        (sent, agreed, self.thread_until_ns.max(now_ns + LOOK_NS))
    }

    fn is_proposable(&self, now_ns: u64) -> bool {
        match self.replication.delivery {
            Delivery::Raft => !self.open.is_empty(),
            Delivery::Mimox => {
                let is_old = now_ns - self.open_since_ns >= FINAL_NS;
                self.open.len() >= OPT_BATCHES || is_old && !self.open.is_empty()
            }
        }
    }

    fn agree(&mut self) -> Agreed {
        let open = std::mem::take(&mut self.open);
        let batches = open.len();
        let sent_ns = match self.replication.delivery {
            // The batch was the proposal.
            Delivery::Raft => self.wire_until_ns,
            Delivery::Mimox => {
                let bytes = batches as u64 * NAME_BYTES;
                self.proposal_bytes_max = self.proposal_bytes_max.max(bytes);
                self.send(bytes)
            }
        };
        // The leader takes each promise.
        self.thread_until_ns += self.followers() * self.costs.message_ns;
        let last_ns = open.last().copied().unwrap_or(0);
        // A promise is given once all named batches are held; then the leader hears it, and tells of it.
        let promised_ns = (sent_ns + self.times.latency_ns).max(last_ns);
        let at_ns =
            (promised_ns + 2 * self.times.latency_ns + 2 * self.costs.message_ns).max(self.decided_ns);
        self.decided_ns = at_ns;
        self.counts.final_batches += 1;
        self.counts.decided += batches as u64;
        self.counts.overlap_ns += open.iter().map(|arrived_ns| at_ns - arrived_ns).sum::<u64>();
        Agreed { at_ns, batches }
    }

    /// What was found since `before`.
    pub(super) fn report(&self, before: &OrderCounts, measured_ns: u64) -> OrderReport {
        let now = &self.counts;
        let part = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        let opt_batches = now.opt_batches - before.opt_batches;
        let decided = now.decided - before.decided;
        OrderReport {
            overlap_ns: part(now.overlap_ns - before.overlap_ns, decided),
            opt_batch_requests: part(now.requests - before.requests, opt_batches),
            final_batch_names: part(decided, now.final_batches - before.final_batches),
            proposal_bytes_max: self.proposal_bytes_max,
            ordered_per_s: part(now.requests - before.requests, measured_ns) * 1e9,
            speculated: part(now.speculated - before.speculated, now.executed - before.executed),
        }
    }
}

/// The leader and its wire without any engine. `rate_per_s` requests come in a second; without a rate a
/// request of each client waits, or is on its way.
pub fn order_alone(
    replication: Replication,
    (times, costs): (Times, Costs),
    request: &Arc<Request>,
    (clients, rate_per_s): (usize, Option<f64>),
) -> OrderReport {
    let mut leader = Leader::new(replication, times, costs);
    let (mut now_ns, mut came) = (0, 0_u64);
    let mut waiting: Vec<Arc<Request>> = Vec::new();
    // Of closed loops: requests that come again, by when.
    let mut back: VecDeque<(u64, usize)> = VecDeque::new();
    let mut open: VecDeque<usize> = VecDeque::new();
    if rate_per_s.is_none() {
        back.push_back((0, clients));
    }
    let mut before = None;
    while now_ns < times.warm_up_ns + times.measured_ns {
        if now_ns >= times.warm_up_ns && before.is_none() {
            before = Some((leader.counts, now_ns));
        }
        let mut more = 0;
        if let Some(rate) = rate_per_s {
            let due = (now_ns as f64 * rate / 1e9) as u64;
            more += (due - came) as usize;
            came = due;
        }
        while let Some((_, count)) = back.pop_front_if(|(at_ns, _)| *at_ns <= now_ns) {
            more += count;
        }
        waiting.extend(std::iter::repeat_n(request, more).cloned());
        let (sent, agreed, next_ns) = leader.look(&mut waiting, now_ns);
        open.extend(sent.map(|sent| sent.requests.len()));
        if let (Some(agreed), None) = (agreed, rate_per_s) {
            let count = open.drain(..agreed.batches).sum();
            back.push_back((agreed.at_ns, count));
        }
        now_ns = next_ns;
    }
    let (before, since_ns) = before.unwrap_or_default();
    leader.report(&before, now_ns - since_ns)
}

/// Batches that the replica knows and the agreement does not yet: with the position behind each, once the
/// engine has it.
#[derive(Default)]
pub(super) struct Undecided {
    pub(super) ends: VecDeque<Position>,
    /// What waits for its final delivery.
    pub(super) kept: VecDeque<Vec<Arc<Request>>>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{RequestId, SessionId};

    fn replication(delivery: Delivery, request_bytes: u64) -> Replication {
        Replication {
            replicas: 19,
            delivery,
            feed: Feed::Optimistic,
            readers: 4,
            request_bytes,
            request_ns: 60,
            batch_ns: 250,
        }
    }

    fn requests(count: u64) -> Vec<Arc<Request>> {
        let workload = workloads::Bank::default();
        let mut generator = workloads::Workload::generator(&workload, 1, workloads::Client::ONLY);
        let request = |sequence| {
            let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
            Arc::new(generator.next().into_request(id, false))
        };
        (1..=count).map(request).collect()
    }

    /// A leader with so many requests in every 2 ms: it, and all agreements with what arrived when.
    fn lead(delivery: Delivery, bytes: u64, each: u64) -> (Leader, Vec<Agreed>, Vec<u64>) {
        let mut leader = Leader::new(replication(delivery, bytes), Times::default(), Costs::default());
        let (mut now_ns, mut all, mut arrived) = (0, Vec::new(), Vec::new());
        let mut waiting = Vec::new();
        let some = requests(each);
        let mut fed_ns = 0;
        while now_ns < 100_000_000 {
            while fed_ns <= now_ns {
                waiting.extend(some.iter().cloned());
                fed_ns += BATCH_NS;
            }
            let (sent, agreed, next_ns) = leader.look(&mut waiting, now_ns);
            arrived.extend(sent.map(|sent| sent.arrives_ns));
            all.extend(agreed);
            now_ns = next_ns;
        }
        (leader, all, arrived)
    }

    #[test]
    fn a_final_batch_has_names_only_whatever_the_requests_are() {
        for bytes in [10, 20, 50] {
            let (leader, _, _) = lead(Delivery::Mimox, bytes, 200);
            assert_eq!(leader.proposal_bytes_max, OPT_BATCHES as u64 * NAME_BYTES);
            let (leader, _, _) = lead(Delivery::Raft, bytes, 200);
            assert!(leader.proposal_bytes_max >= 200 * bytes);
        }
    }

    #[test]
    fn nothing_is_agreed_on_before_the_replica_holds_it_and_mimox_leaves_more_time() {
        let mut overlaps = Vec::new();
        for delivery in [Delivery::Raft, Delivery::Mimox] {
            let (leader, all, arrived) = lead(delivery, 10, 200);
            let mut arrived = arrived.into_iter();
            for agreed in &all {
                for arrives_ns in arrived.by_ref().take(agreed.batches) {
                    assert!(arrives_ns < agreed.at_ns, "{delivery:?}");
                }
            }
            let report = leader.report(&OrderCounts::default(), 100_000_000);
            assert!((190.0..=210.0).contains(&report.opt_batch_requests), "{report:?}");
            overlaps.push(report.overlap_ns);
        }
        assert!(overlaps[1] > 10.0 * overlaps[0], "{overlaps:?}");
    }

    #[test]
    fn full_batches_leave_at_once() {
        let (leader, _, _) = lead(Delivery::Mimox, 50, 1_000);
        let report = leader.report(&OrderCounts::default(), 100_000_000);
        assert!((200.0..=240.0).contains(&report.opt_batch_requests), "{report:?}");
        assert_eq!(report.final_batch_names, OPT_BATCHES as f64);
    }
}
