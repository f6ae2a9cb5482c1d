//! What a node knows of the others: whether they live, how they are, and what their clocks show.

use std::collections::BTreeMap;
use txn::NodeId;

/// A clock is judged by the best of what was heard in so many ticks: frames that waited somewhere make it look late.
const CLOCK_WINDOW_TICKS: u64 = 40;

/// How a node is, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// It takes part.
    #[default]
    Well,
    /// It is about to end: it still takes part, and is not to lead.
    Ending,
    /// It takes no part, for this reason.
    Out(String),
}

/// Another node.
#[derive(Clone, Debug)]
struct Peer {
    heard_tick: u64,
    /// How far its clock is ahead of ours, at least: the best of this window, and of the one before.
    ahead_ms: i64,
    ahead_before_ms: i64,
    window_tick: u64,
    /// It says that it hears the leaders of all groups.
    hears_all: bool,
    condition: Condition,
}

/// All others of which something was heard.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<NodeId, Peer>);

impl Peers {
    /// A frame has arrived.
    pub fn heard(&mut self, node: NodeId, clock_ms: u64, now_ms: u64, now_tick: u64) {
        let ahead_ms = clock_ms.cast_signed().wrapping_sub(now_ms.cast_signed());
        let peer = self.0.entry(node).or_insert(Peer {
            heard_tick: now_tick,
            ahead_ms,
            ahead_before_ms: ahead_ms,
            window_tick: now_tick,
            hears_all: false,
            condition: Condition::Well,
        });
        peer.heard_tick = now_tick;
        if now_tick >= peer.window_tick + CLOCK_WINDOW_TICKS {
            peer.ahead_before_ms = peer.ahead_ms;
            peer.ahead_ms = ahead_ms;
            peer.window_tick = now_tick;
        }
        peer.ahead_ms = peer.ahead_ms.max(ahead_ms);
    }

    /// A node says whether it hears the leaders of all groups.
    pub fn says(&mut self, node: NodeId, hears_all: bool) {
        if let Some(peer) = self.0.get_mut(&node) {
            peer.hears_all = hears_all;
        }
    }

    /// Whether a node hears the leaders of all groups, as it said last.
    pub fn hears_all(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|peer| peer.hears_all)
    }

    /// A node says how it is.
    pub fn is_in(&mut self, node: NodeId, condition: Condition) {
        if let Some(peer) = self.0.get_mut(&node) {
            peer.condition = condition;
        }
    }

    /// How a node is, as it said last.
    pub fn condition(&self, node: NodeId) -> &Condition {
        const WELL: &Condition = &Condition::Well;
        self.0.get(&node).map_or(WELL, |peer| &peer.condition)
    }

    /// Whether something was heard of a node since `since_tick`, and it takes part.
    pub fn is_live(&self, node: NodeId, since_tick: u64) -> bool {
        self.is_heard(node, since_tick) && !matches!(self.condition(node), Condition::Out(_))
    }

    /// Whether something was heard of a node since `since_tick`.
    pub fn is_heard(&self, node: NodeId, since_tick: u64) -> bool {
        self.0
            .get(&node)
            .is_some_and(|peer| peer.heard_tick >= since_tick)
    }

    /// How far a node's clock is ahead of ours, at least; 0 if nothing was heard of it.
    pub fn is_ahead_ms(&self, node: NodeId) -> i64 {
        let peer = self.0.get(&node);
        peer.map_or(0, |peer| peer.ahead_ms.max(peer.ahead_before_ms))
    }

    /// How far our clock is ahead of those of these nodes that were heard since `since_tick`, at most, for each.
    pub fn ahead_of(&self, nodes: &[NodeId], since_tick: u64) -> Vec<i64> {
        let live = nodes.iter().filter_map(|node| self.0.get(node));
        live.filter(|peer| peer.heard_tick >= since_tick)
            .map(|peer| -peer.ahead_ms.max(peer.ahead_before_ms))
            .collect()
    }
}
