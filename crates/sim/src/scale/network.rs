//! What messages between nodes take.

use super::Costs;
use crate::draw::Draw;
use std::collections::BTreeMap;
use txn::PartitionId;
use txn::hash::mix;

/// A message on its way out.
pub(super) struct Sent<M> {
    pub(super) to: PartitionId,
    pub(super) message: M,
    /// The things that it tells.
    pub(super) notes: u64,
    /// When its last byte is on the wire.
    pub(super) left_ns: u64,
}

/// A node's wire, and the thread that receives.
pub(super) struct Wire {
    wire_until_ns: u64,
    receiver_until_ns: u64,
    costs: Costs,
}

impl Wire {
    pub(super) fn new(costs: Costs) -> Wire {
        Wire { wire_until_ns: 0, receiver_until_ns: 0, costs }
    }

    fn handling_ns(&self, notes: u64) -> u64 {
        self.costs.message_ns + notes * self.costs.note_ns
    }

    /// The sender takes a message at `at_ns`, which becomes the time at which it has done so. Returns when
    /// the message's last byte is on the wire.
    pub(super) fn send(&mut self, notes: u64, bytes: u64, at_ns: &mut u64) -> u64 {
        *at_ns += self.handling_ns(notes);
        let wire_ns = (bytes as f64 * self.costs.byte_ns) as u64;
        self.wire_until_ns = self.wire_until_ns.max(*at_ns) + wire_ns;
        self.wire_until_ns
    }

    /// When a message that arrives now has been taken.
    pub(super) fn taken_ns(&mut self, notes: u64, now_ns: u64) -> u64 {
        let begins_ns = self.receiver_until_ns.max(now_ns);
        self.receiver_until_ns = begins_ns + self.handling_ns(notes);
        self.receiver_until_ns
    }
}

/// The ways between nodes, which keep the order.
pub(super) struct Links {
    draw: Draw,
    /// When the last message of a link arrives.
    last_ns: BTreeMap<(PartitionId, PartitionId), u64>,
}

impl Links {
    pub(super) fn new(seed: u64) -> Links {
        Links { draw: Draw::new(mix(seed)), last_ns: BTreeMap::new() }
    }

    /// When a message arrives whose last byte is on the wire at `left_ns`, and which takes `latency_ns` and
    /// at most `jitter_ns` longer. `link` names its sender and its receiver.
    pub(super) fn arrives_ns(
        &mut self,
        link: (PartitionId, PartitionId),
        left_ns: u64,
        (latency_ns, jitter_ns): (u64, u64),
    ) -> u64 {
        let jitter_ns = self.draw.below(jitter_ns + 1);
        let last_ns = self.last_ns.entry(link).or_default();
        *last_ns = (*last_ns).max(left_ns + latency_ns + jitter_ns);
        *last_ns
    }
}

/// When a sender begins its next round, whose last one was from `now_ns` to `done_ns`.
pub(super) fn next_round_ns(now_ns: u64, done_ns: u64, round_ns: u64) -> u64 {
    // A sender that never rested would be as fast as its receivers, and their queues would grow.
    let rested_ns = done_ns + (done_ns - now_ns) / 2;
    rested_ns.max(now_ns + round_ns)
}
