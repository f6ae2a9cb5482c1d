//! What a node knows of the others: whether they live, how they are, and what their clocks show.

use std::collections::BTreeMap;
use txn::NodeId;

/// A wall clock is judged by the best of what was heard in so many ticks: frames that waited somewhere make
/// it look late.
const WALL_WINDOW_TICKS: u64 = 20;

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
    /// What its wall clock shows, once it has told.
    wall: Option<Wall>,
    /// How far its epoch time is ahead of our steady time, at least, if it has told: nothing if it has none.
    epoch_lead_ms: Option<Option<i64>>,
    /// It says that it hears the leaders of all groups.
    hears_all: bool,
    condition: Condition,
    /// It has told its clock, and not yet behind it how it is.
    may_be_well: bool,
}

/// How far a wall clock is ahead of our steady time, at least: the best of this window, and of the one
/// before.
#[derive(Clone, Copy, Debug)]
struct Wall {
    lead_ms: i64,
    lead_before_ms: i64,
    since_tick: u64,
}

/// All others of which something was heard.
#[derive(Debug, Default)]
pub(super) struct Peers(BTreeMap<NodeId, Peer>);

fn lead(time_ms: u64, now_ms: u64) -> i64 {
    time_ms.cast_signed().wrapping_sub(now_ms.cast_signed())
}

impl Peers {
    /// A frame has arrived. A sender that has not yet looked at its clock says 0.
    pub fn heard(&mut self, node: NodeId, wall_ms: u64, now_ms: u64, now_tick: u64) {
        let peer = self.0.entry(node).or_insert(Peer {
            heard_tick: now_tick,
            wall: None,
            epoch_lead_ms: None,
            hears_all: false,
            condition: Condition::Well,
            may_be_well: false,
        });
        peer.heard_tick = now_tick;
        if wall_ms == 0 {
            return;
        }
        let lead_ms = lead(wall_ms, now_ms);
        let wall = peer.wall.get_or_insert(Wall { lead_ms, lead_before_ms: lead_ms, since_tick: now_tick });
        if now_tick >= wall.since_tick + WALL_WINDOW_TICKS {
            (wall.lead_before_ms, wall.lead_ms) = (wall.lead_ms, lead_ms);
            wall.since_tick = now_tick;
        }
        wall.lead_ms = wall.lead_ms.max(lead_ms);
    }

    /// A node tells its epoch time, or that it has none.
    pub fn tells_time(&mut self, node: NodeId, epoch_ms: Option<u64>, now_ms: u64) {
        if let Some(peer) = self.0.get_mut(&node) {
            peer.epoch_lead_ms = Some(epoch_ms.map(|epoch_ms| lead(epoch_ms, now_ms)));
        }
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
            peer.may_be_well = false;
        }
    }

    /// A node tells its clock. Behind that one that is not well says how it is: who said nothing since the
    /// last time is well.
    pub fn tells_clock(&mut self, node: NodeId) {
        if let Some(peer) = self.0.get_mut(&node)
            && std::mem::replace(&mut peer.may_be_well, true)
        {
            peer.condition = Condition::Well;
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
        self.live(node, since_tick).is_some()
    }

    fn live(&self, node: NodeId, since_tick: u64) -> Option<&Peer> {
        let peer = self.0.get(&node);
        peer.filter(|peer| peer.heard_tick >= since_tick)
    }

    /// Those that were heard since `since_tick`, and how far their wall clocks are ahead of our steady time,
    /// at least.
    pub fn wall_leads(&self, since_tick: u64) -> impl Iterator<Item = (NodeId, i64)> + '_ {
        let live = self.0.iter();
        let live = live.filter(move |(_, peer)| peer.heard_tick >= since_tick);
        live.filter_map(|(&node, peer)| {
            let wall = peer.wall?;
            Some((node, wall.lead_ms.max(wall.lead_before_ms)))
        })
    }

    /// How far the epoch time of a node that was heard since `since_tick` is ahead of our steady time, at
    /// least. `Some(None)` if it says that it has none.
    pub fn epoch_lead_ms(&self, node: NodeId, since_tick: u64) -> Option<Option<i64>> {
        self.live(node, since_tick)?.epoch_lead_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_out_is_not_well_between_two_of_its_frames() {
        let node = NodeId(2);
        let out = || Condition::Out("its disk is full".to_owned());
        let mut peers = Peers::default();
        peers.heard(node, 0, 0, 1);
        for _ in 0..3 {
            peers.tells_clock(node);
            peers.is_in(node, out());
            assert_eq!(*peers.condition(node), out());
            peers.tells_clock(node);
            assert_eq!(*peers.condition(node), out(), "it has more to say");
            peers.is_in(node, out());
        }
        // It starts anew, and has nothing to say.
        peers.tells_clock(node);
        assert_eq!(*peers.condition(node), out());
        peers.tells_clock(node);
        assert_eq!(*peers.condition(node), Condition::Well);
    }
}
