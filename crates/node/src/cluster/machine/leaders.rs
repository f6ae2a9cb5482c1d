//! Hands over the groups that others should lead ([`crate::cluster::leaders`]).

use super::{ClusterEffects, ClusterNode};
use crate::cluster::frames::Frame;
use crate::cluster::leaders::{Placement, TRANSFER_KEPT_MS};
use txn::{NodeId, PartitionId};

impl ClusterNode {
    /// Whether some group has another leader than when this was asked last.
    pub fn take_leaders_changed(&mut self) -> bool {
        self.leaders.take_changed()
    }

    /// In which term a group's leader leads, as far as this node knows; 0 if it does not.
    pub fn leader_term(&self, partition: PartitionId) -> u64 {
        self.leaders.of(partition).map_or(0, |(_, term)| term)
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
            self.leaders.wish(partition, to, self.ticks.saturating_add(ticks));
        }
    }

    /// Hands groups to those who should lead them.
    pub(super) fn balance(&mut self, effects: &mut ClusterEffects) {
        if !self.has_preferred_leaders() {
            return;
        }
        let placement = |partition| Placement {
            replicas: self.map().partition(partition).replicas.values().copied().collect(),
            preferred: self.preferred_leader(partition),
        };
        let may_take_over = |partition, node| self.may_take_over(partition, node);
        let led = self.leads.keys().copied();
        let due = self.leaders.handovers(self.options.me, led, self.ticks, placement, may_take_over);
        for handover in due {
            let (partition, to) = (handover.partition, handover.to);
            if let Some(ticks) = handover.wished_ticks {
                self.tell_wish(to, partition, to, ticks, effects);
            }
            self.transfer(partition, to);
        }
    }

    /// Whether a node could lead a group that this node leads, at once.
    fn may_take_over(&self, partition: PartitionId, node: NodeId) -> bool {
        let status = self.groups[&partition].status();
        let has_all = status.has_nearly_all(node);
        has_all && self.peers.hears_all(node) && status.members.voters.contains(&node) && self.is_live(node)
    }
}
