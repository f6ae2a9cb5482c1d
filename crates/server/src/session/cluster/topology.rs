//! Who is what, in Redis's words.
//!
//! Redis Cluster's node is the primary of its slots or the replica of one primary. A node of Ordo may lead
//! some partitions and follow in others. Clients know a node by one role, and what a reply says of it last
//! (redis-py: first) counts: so one that leads anything is a primary, with the slots that it leads, and
//! nowhere a replica. Where a reply is about slots (SLOTS, SHARDS), each partition is a shard of its own, and
//! another node a replica in all that it keeps; where it is about nodes (NODES), of whoever leads the first
//! of them.

use crate::cluster::{ClusterView, PartitionStatus, ReplicaStatus};
use order::NodeEntry;
use txn::hash::mix;
use txn::{NodeId, PartitionId};

/// A view with the primaries found.
pub(in crate::session) struct Topology<'a> {
    pub view: &'a ClusterView,
    /// By the partitions' numbers.
    primaries: Vec<Option<NodeId>>,
}

impl<'a> Topology<'a> {
    /// The primary of a partition is its leader, or while that is unknown who should lead it.
    pub fn of(view: &'a ClusterView) -> Topology<'a> {
        let map = &view.map;
        let primary = |partition| {
            let leader = view.leaders.get(&partition).copied();
            leader.or_else(|| map.preferred_leader(partition)).filter(|node| map.nodes.contains_key(node))
        };
        Topology { view, primaries: map.partition_ids().map(primary).collect() }
    }

    /// The nodes with their entries.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &'a NodeEntry)> {
        self.view.map.nodes.iter().map(|(&node, entry)| (node, entry))
    }

    /// The node that has this name, if there is one.
    pub fn node_named(&self, name: &[u8]) -> Option<NodeId> {
        self.nodes()
            .map(|(node, _)| node)
            .find(|&node| self.view.map.node_name(node).as_bytes().eq_ignore_ascii_case(name))
    }

    /// All partitions, those with the lowest slots first.
    pub fn partitions(&self) -> Vec<PartitionId> {
        let mut partitions: Vec<PartitionId> = self.view.map.partition_ids().collect();
        partitions.sort_by_key(|&partition| {
            let slots = &self.view.map.partition(partition).slots;
            slots.first().map_or(u16::MAX, |&(first, _)| first)
        });
        partitions
    }

    /// A partition's primary.
    pub fn primary(&self, partition: PartitionId) -> Option<NodeId> {
        self.primaries[usize::from(partition.0)]
    }

    /// A partition's replicas that are the primary of nothing.
    pub fn replicas(&self, partition: PartitionId) -> impl Iterator<Item = NodeId> {
        let replicas = &self.view.map.partition(partition).replicas;
        replicas
            .values()
            .copied()
            .filter(|&node| self.led_by(node).next().is_none() && self.view.map.nodes.contains_key(&node))
    }

    /// The partitions that a node is the primary of.
    pub fn led_by(&self, node: NodeId) -> impl Iterator<Item = PartitionId> {
        let map = &self.view.map;
        map.partition_ids().filter(move |&partition| self.primary(partition) == Some(node))
    }

    /// Whose replica a node is; `None` if it is a primary, or keeps nothing.
    pub fn primary_of(&self, node: NodeId) -> Option<NodeId> {
        if self.led_by(node).next().is_some() {
            return None;
        }
        let kept = self.view.map.kept_by(node).next()?;
        self.primary(kept)
    }

    /// The slots that a node is the primary of, in order.
    pub fn slots_of(&self, node: NodeId) -> Vec<(u16, u16)> {
        let mut slots: Vec<(u16, u16)> = self
            .led_by(node)
            .flat_map(|partition| self.view.map.partition(partition).slots.clone())
            .collect();
        slots.sort_unstable();
        slots.dedup_by(|next, last| {
            let adjacent = u32::from(last.1) + 1 == u32::from(next.0);
            if adjacent {
                last.1 = next.1;
            }
            adjacent
        });
        slots
    }

    /// Whether this node hears from a node.
    pub fn reachable(&self, node: NodeId) -> bool {
        !self.view.unreachable.contains(&node)
    }

    fn status(&self, partition: PartitionId) -> Option<&'a PartitionStatus> {
        let mut partitions = self.view.status.partitions.iter();
        partitions.find(|status| status.id == partition.0)
    }

    /// What is known of a replica.
    pub fn replica_status(&self, partition: PartitionId, node: NodeId) -> Option<&'a ReplicaStatus> {
        let mut replicas = self.status(partition)?.replicas.iter();
        replicas.find(|replica| replica.node == node.0)
    }

    /// Whether a replica can serve: one that is still learning can't.
    pub fn serves(&self, partition: PartitionId, node: NodeId) -> bool {
        let learns = self.replica_status(partition, node).is_some_and(|replica| replica.role == "learner");
        self.reachable(node) && !learns
    }

    fn term(&self, partition: PartitionId) -> u64 {
        self.status(partition).map_or(0, |status| status.term)
    }

    /// What Redis calls a node's configuration epoch: the newest term in which it, or its primary, leads. It
    /// grows when leaders change, which is what clients compare it for.
    pub fn config_epoch(&self, node: NodeId) -> u64 {
        let primary = self.primary_of(node).unwrap_or(node);
        let terms = self.led_by(primary).map(|partition| self.term(partition));
        terms.max().unwrap_or(0)
    }

    /// The newest of all terms.
    pub fn current_epoch(&self) -> u64 {
        let partitions = self.view.map.partition_ids();
        partitions.map(|partition| self.term(partition)).max().unwrap_or(0)
    }

    /// Forty hexadecimal digits that name the first shard of a node: the first partition that it leads, or
    /// keeps.
    pub fn shard_name(&self, node: NodeId) -> String {
        let map = &self.view.map;
        let first = self.led_by(node).next().or_else(|| map.kept_by(node).next());
        // A node that keeps nothing is a shard of its own.
        let salt = first.map_or(u64::from(node.0) << 32, |partition| u64::from(partition.0));
        let mut seed = mix(map.cluster.rotate_left(32) ^ mix(salt));
        let mut name = String::new();
        for _ in 0..5 {
            seed = mix(seed);
            name.push_str(&format!("{:08x}", seed as u32));
        }
        name
    }
}

/// The host and the port of an address, which is split at its last colon. An address of IPv6 loses its
/// brackets.
pub(in crate::session) fn split_address(address: &str) -> (&str, u16) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    (bare.unwrap_or(host), port.parse().unwrap_or(0))
}
