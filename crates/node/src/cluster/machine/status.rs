//! What this node is, and how far: for its host, and for operators.

use super::{ClusterNode, SILENCE_TICKS};
use crate::clock::ClockStatus;
use crate::cluster::compare::Compared;
use crate::cluster::peers::Condition;
use crate::cluster::status::ClusterStatus;
use agree::Delivery;
use agree::GroupStatus;
use execute::{Engine, Siblings};
use order::PartitionMap;
use order::merge::EpochEnd;
use std::sync::Arc;
use txn::{BootId, Epoch, NodeId, PartitionId};

impl ClusterNode {
    /// Whether this node stands alone.
    pub fn is_alone(&self) -> bool {
        self.options.alone
    }

    /// How groups agree.
    pub fn delivery(&self) -> Delivery {
        self.options.delivery
    }

    /// The map that is in force.
    pub fn map(&self) -> &Arc<PartitionMap> {
        &self.merge.confirmed().map
    }

    /// The newest map that this node knows: its own, or one of others, which is ahead of it.
    pub(super) fn newest_map(&self) -> &Arc<PartitionMap> {
        match self.known.version > self.map().version {
            true => &self.known,
            false => self.map(),
        }
    }

    /// Where the order stands, as far as this node knows it to be final.
    pub fn confirmed(&self) -> &EpochEnd {
        self.merge.confirmed()
    }

    /// The map that the cluster was founded with: where a node begins that joins and follows the log from its
    /// beginning.
    pub fn first_map(&self) -> &Arc<PartitionMap> {
        &self.first_map
    }

    /// This process's boot id; 0 until the order has given it one.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// Who leads a group, as far as this node knows.
    pub fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.leaders.of(partition).map(|(node, _)| node)
    }

    /// The epoch time, less the steady time that drivers tell: see [`crate::clock`].
    pub fn epoch_lead_ms(&self) -> i64 {
        self.clock.lead_ms()
    }

    /// What is known of this node's clock.
    pub fn clock(&self) -> ClockStatus {
        self.clock.status()
    }

    /// Where the local replica of a group stands.
    pub fn group_status(&self, partition: PartitionId) -> Option<GroupStatus> {
        self.groups.get(&partition).map(|group| group.status())
    }

    /// The local partitions' engines.
    pub fn engines(&self) -> impl Iterator<Item = (PartitionId, &Arc<dyn Engine>)> {
        self.executors.iter().map(|(&partition, executor)| (partition, &executor.engine))
    }

    /// A local partition's engine.
    pub(super) fn engine(&self, partition: PartitionId) -> Option<&Arc<dyn Engine>> {
        let executor = self.executors.get(&partition);
        executor.map(|executor| &executor.engine)
    }

    /// What a local partition's engine says to other partitions and hears of them.
    pub(super) fn siblings_of(&self, partition: PartitionId) -> Option<&dyn Siblings> {
        self.engine(partition)?.siblings()
    }

    /// Up to which epoch local partitions have heard from another one.
    pub(super) fn heard_of(&self, partition: PartitionId) -> Epoch {
        let engines = self.engines();
        let heard = engines.filter_map(|(_, engine)| Some(engine.siblings()?.heard(partition))).max();
        heard.unwrap_or_default()
    }

    /// Whether something was heard of a node lately, and it takes part.
    pub fn is_live(&self, node: NodeId) -> bool {
        match node == self.options.me {
            true => self.out.is_none(),
            false => self.peers.is_live(node, self.silent_since()),
        }
    }

    /// Whether something was heard of a node lately.
    pub fn is_heard(&self, node: NodeId) -> bool {
        node == self.options.me || self.peers.is_heard(node, self.silent_since())
    }

    /// How a node is, as it said last.
    pub fn condition(&self, node: NodeId) -> Condition {
        match node == self.options.me {
            true => self.own_condition(),
            false => self.peers.condition(node).clone(),
        }
    }

    /// Counters and places.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            delivered: self.merge.delivered().epoch,
            confirmed: self.merge.confirmed().epoch,
            waiting: self.gateway.load().0,
            waiting_bytes: self.gateway.load().1,
            newest_checkpoint: self.checkpoints.newest(),
            log_begin: self.checkpoints.durable_base(),
            has_lost_log: self.checkpoints.has_lost_log(),
            said: self.followers.said(),
            compared: self.comparison.compared(),
            reads_waiting: self.reads.count(),
            log_bytes_since_checkpoint: self.checkpoints.log_bytes(),
            backlog_bytes: self.merge.undelivered_bytes(),
            backlog_full: self.backlog.times(),
            stopped: self.refusal_text().map(str::to_owned),
            is_over: self.is_stopped(),
            ..self.counters.clone()
        }
    }

    /// What was compared with other replicas' states.
    pub fn compared(&self) -> Compared {
        self.comparison.compared()
    }

    /// Whether nothing that this node has taken, written or been told of is on its way.
    pub fn is_idle(&self) -> bool {
        self.out.is_none()
            && self.gateway.load().0 == 0
            && self.sources.unanswered_count() == 0
            && self.reads.count() == 0
            && self.wanted.is_empty()
            && self.groups.has_kept_all()
            && !self.checkpoints.are_taken()
            && !self.transfer.is_installing()
            && self.merge.confirmed().epoch == self.merge.newest()
            && self.leads.values().all(|lead| !lead.has_work())
            && self
                .executors
                .values()
                .all(|executor| executor.engine.view().final_position() >= executor.next.prev())
    }

    /// Whether this node has executed all that it knows of, and hears from the leaders of all its groups.
    pub fn is_current(&self) -> bool {
        self.out.is_none()
            && !self.backlog.has_missed()
            && self.merge.confirmed().epoch == self.merge.newest()
            && self.hears_all()
            && self
                .groups
                .keys()
                .all(|&partition| self.leader(partition).is_some_and(|leader| self.is_live(leader)))
            && self
                .executors
                .values()
                .all(|executor| executor.engine.view().final_position() >= executor.next.prev())
    }

    /// Whether what is held waits until the engines are less far behind: a node that starts, or catches up.
    /// [`ClusterEvent::Room`] tells it that they are.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.counters.stopped.is_some()
    }

    /// Whether something is agreed here that the local engines have not final-committed.
    pub(super) fn is_behind_the_order(&self) -> bool {
        self.waits_for_room
            || self.engines().any(|(_, engine)| engine.view().final_position() < engine.status().confirmed)
    }

    /// Who was heard since this tick is not taken for gone.
    pub(super) fn silent_since(&self) -> u64 {
        self.ticks.saturating_sub(SILENCE_TICKS)
    }
}
