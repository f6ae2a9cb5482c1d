//! Who should lead which group, and who does.
//!
//! Leaders are spread over the zones
//! ([`PartitionMap::preferred_leader`](order::PartitionMap::preferred_leader)), or all in one zone, if the
//! description says so: a leader that is not the preferred one hands over to it as soon as it can take over.
//! An operator's wish counts more, for [`TRANSFER_KEPT_MS`]. It is no part of the order, because it is worth
//! no agreement: the leader that takes it tells the other replicas, and each counts the time by its own
//! ticks. A replica that was not told, because it was down, would hand over to the preferred node once more;
//! so whoever hands over for the sake of a wish tells it along.

use super::frames::Frame;
use super::machine::{ClusterEffects, ClusterNode};
use std::collections::BTreeMap;
use txn::{NodeId, PartitionId};

/// For so long a group stays with the node to which an operator has handed it, if the leaders are spread
/// otherwise.
pub const TRANSFER_KEPT_MS: u64 = 600_000;
/// Who lacks more entries than that is not handed a group for the sake of the spread.
const ENTRIES_BEHIND_MAX: u64 = 8;

/// So often within a tick this node follows those who say that another node leads a group. Then it waits for
/// better news.
const REDIRECTS_MAX: u32 = 4;

/// What operators wish, and what there is to be told.
#[derive(Debug, Default)]
pub(super) struct Leaders {
    /// Whom an operator wants to lead, and up to which tick.
    wishes: BTreeMap<PartitionId, (NodeId, u64)>,
    /// Some group has another leader than when this was asked for last.
    changed: bool,
    /// How often nodes have named others as a group's leader within a tick: they may name each other.
    redirected: BTreeMap<PartitionId, (u64, u32)>,
}

impl Leaders {
    /// Whether another node is to be asked at once, since a node that was taken for a group's leader names
    /// it.
    pub fn redirects(&mut self, partition: PartitionId, now_tick: u64) -> bool {
        let (tick, times) = self.redirected.entry(partition).or_default();
        if *tick != now_tick {
            (*tick, *times) = (now_tick, 0);
        }
        *times += 1;
        *times <= REDIRECTS_MAX
    }

    /// The node that an operator wants to lead a group now, and for how many ticks more.
    fn wish(&self, partition: PartitionId, now_tick: u64) -> Option<(NodeId, u64)> {
        let &(node, until) = self.wishes.get(&partition)?;
        (now_tick < until).then(|| (node, until - now_tick))
    }
}

impl ClusterNode {
    /// Whether some group has another leader than when this was asked last.
    pub fn take_leaders_changed(&mut self) -> bool {
        std::mem::take(&mut self.placement.changed)
    }

    /// In which term a group's leader leads, as far as this node knows; 0 if it does not.
    pub fn leader_term(&self, partition: PartitionId) -> u64 {
        self.leaders.get(&partition).map_or(0, |&(_, term)| term)
    }

    /// Who should lead a group if no operator wants it otherwise: who keeps it in the zone of the leaders, or
    /// else so that the leaders are spread over the zones.
    pub fn preferred_leader(&self, partition: PartitionId) -> Option<NodeId> {
        let map = self.map();
        let name = self.options.leaders_in.as_ref();
        let zone = map.zones.iter().find(|(_, zone)| Some(*zone) == name);
        let in_zone = zone.and_then(|(zone, _)| map.partition(partition).replicas.get(zone));
        in_zone.copied().or_else(|| map.preferred_leader(partition))
    }

    /// Whether it matters who leads: a single group cannot be spread.
    pub fn has_preferred_leaders(&self) -> bool {
        self.options.leaders_in.is_some() || self.map().partitions.len() > 1
    }

    /// Notes who leads a group. Whether that is news.
    pub(super) fn leader_is(&mut self, partition: PartitionId, leader: Option<(NodeId, u64)>) -> bool {
        let before = match leader {
            Some(leader) => self.leaders.insert(partition, leader),
            None => self.leaders.remove(&partition),
        };
        let node = |leader: Option<(NodeId, u64)>| leader.map(|(node, _)| node);
        self.placement.changed |= node(before) != node(leader);
        before != leader
    }

    /// An operator wants another node to lead a group that this node leads.
    pub(super) fn transfer_wanted(
        &mut self,
        partition: PartitionId,
        to: NodeId,
        effects: &mut ClusterEffects,
    ) {
        if !self.leads.contains_key(&partition) {
            return;
        }
        let ticks = TRANSFER_KEPT_MS / self.options.tick_ms.max(1);
        self.wished(partition, to, ticks);
        let map = self.map().clone();
        for &node in map.partition(partition).replicas.values() {
            if node != self.options.me {
                self.tell_wish(node, partition, to, ticks, effects);
            }
        }
        self.transfer(partition, to);
    }

    fn tell_wish(
        &self,
        node: NodeId,
        partition: PartitionId,
        to: NodeId,
        ticks: u64,
        effects: &mut ClusterEffects,
    ) {
        let frame = Frame::Wish { partition, to, left_ms: ticks * self.options.tick_ms };
        self.send(node, &frame, effects);
    }

    /// An operator wants a node to lead a group, for so many ticks from now on.
    pub(super) fn wished(&mut self, partition: PartitionId, to: NodeId, ticks: u64) {
        if self.map().partitions.len() > usize::from(partition.0) {
            let until = self.ticks.saturating_add(ticks);
            self.placement.wishes.insert(partition, (to, until));
        }
    }

    /// Hands groups to those who should lead them: whom an operator wants, or else so that leaders are spread
    /// over the zones.
    pub(super) fn balance(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        if !self.has_preferred_leaders() {
            return;
        }
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            let replicas = &map.partition(partition).replicas;
            let wish = self.placement.wish(partition, self.ticks);
            let wish = wish.filter(|(to, _)| replicas.values().any(|node| node == to));
            let wanted = wish.map(|(to, _)| to);
            let Some(preferred) = wanted.or_else(|| self.preferred_leader(partition)) else {
                continue;
            };
            if preferred == self.options.me || !self.may_take_over(partition, preferred) {
                continue;
            }
            if let Some((to, ticks)) = wish {
                self.tell_wish(to, partition, to, ticks, effects);
            }
            self.transfer(partition, preferred);
        }
    }

    /// Whether a node could lead a group that this node leads, at once.
    fn may_take_over(&self, partition: PartitionId, node: NodeId) -> bool {
        let status = self.groups[&partition].status();
        let has_all = status
            .matched
            .iter()
            .any(|&(other, matched)| other == node && matched + ENTRIES_BEHIND_MAX >= status.last);
        has_all && self.peers.hears_all(node) && status.members.voters.contains(&node) && self.is_live(node)
    }
}
