//! Tells state digests, and ends this node if it has diverged ([`crate::cluster::compare`]).

use super::{ClusterEffects, ClusterNode};
use crate::cluster::compare::{Noting, StateReport, Verdict};
use crate::cluster::frames::Frame;
use crate::cluster::levels::COMPARES_STATES;
use crate::cluster::peers::Condition;
use order::merge::EpochEnd;
use txn::{Epoch, NodeId, PartitionId};

impl ClusterNode {
    /// An epoch is confirmed, and no engine has heard of it: has the engines note what is compared.
    pub(super) fn note_states(&mut self, end: &EpochEnd) {
        let Noting { begins, compares } = self.comparison.at_end(end.epoch, end.map.level);
        if !begins && !compares {
            return;
        }
        for (executor, next) in self.executors.iter().zip(&end.next) {
            let (&partition, executor) = executor;
            let digests = executor.engine.view().digests();
            if begins {
                digests.begin_at(next.prev());
            }
            if compares && !self.options.alone {
                self.comparison.awaits(partition, end.epoch, digests.note_at(next.prev()));
            }
        }
    }

    /// Compares what this node's replicas hold where they have come, and tells the others.
    pub(super) fn tell_states(&mut self, effects: &mut ClusterEffects) {
        for StateReport { partition, epoch, .. } in self.comparison.collect() {
            let replicas: Vec<NodeId> = self.map().partition(partition).replicas.values().copied().collect();
            for node in replicas {
                let (me, map) = (self.options.me, self.map().clone());
                if let Some(verdict) = self.comparison.judge(me, &map, partition, node, epoch) {
                    self.conclude(partition, epoch, node, verdict, effects);
                }
                if self.is_stopped() {
                    return;
                }
            }
        }
        let told = self.comparison.told();
        if told.is_empty() {
            return;
        }
        let map = self.map().clone();
        for (&node, entry) in map.nodes.iter().filter(|&(&node, _)| node != self.options.me) {
            // An older build does not know the frame.
            if entry.level < COMPARES_STATES {
                continue;
            }
            let is_shared = |report: &&StateReport| {
                map.partition(report.partition).replicas.values().any(|&replica| replica == node)
            };
            let reports: Vec<StateReport> = told.iter().filter(is_shared).copied().collect();
            if !reports.is_empty() {
                self.send(node, &Frame::States(reports), effects);
            }
        }
    }

    /// Another node says what its replicas hold.
    pub(super) fn hear_states(
        &mut self,
        from: NodeId,
        reports: &[StateReport],
        effects: &mut ClusterEffects,
    ) {
        let map = self.map().clone();
        for &report in reports {
            let StateReport { partition, epoch, .. } = report;
            let is_replica = map.partition(partition).replicas.values().any(|&replica| replica == from);
            if !is_replica || self.engine(partition).is_none() {
                continue;
            }
            for (node, verdict) in self.comparison.heard(self.options.me, &map, from, report) {
                self.conclude(partition, epoch, node, verdict, effects);
                if self.is_stopped() {
                    return;
                }
            }
        }
        self.comparison.forget_former(&map);
    }

    /// The replica of a partition at a node differs from that of this node.
    fn conclude(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        node: NodeId,
        verdict: Verdict,
        effects: &mut ClusterEffects,
    ) {
        match verdict {
            Verdict::IsMinority { own, majority } => {
                self.end_diverged(partition, epoch, (own, majority), effects);
            }
            Verdict::Differs { own, other, other_is_minority: true } => effects.warnings.push(format!(
                "the replica of {partition} at {node} has diverged: at the end of epoch {} its state digest \
                 is {other:016x}, and that of this node and of a majority of the replicas is {own:016x}. It \
                 halts by itself; stop {node} if it does not, remove its data directory, and replace it",
                epoch.0
            )),
            Verdict::Differs { own, other, other_is_minority: false } => effects.warnings.push(format!(
                "the replicas of {partition} differ: at the end of epoch {} the state digest of this node \
                 is {own:016x}, and that of {node} is {other:016x}. No majority says which one is wrong, so \
                 both go on: compare their data, and replace the node that is wrong",
                epoch.0
            )),
        }
    }

    /// A majority of the replicas of a partition holds something else than this node: the second digest.
    fn end_diverged(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        (own, majority): (u64, u64),
        effects: &mut ClusterEffects,
    ) {
        let cause = format!(
            "its replica of {partition} has diverged: at the end of epoch {} its state digest is {own:016x}, \
             and a majority of the replicas has {majority:016x}",
            epoch.0
        );
        let text = format!(
            "this node holds something else than the others: {cause}. It serves nobody any more. Keep a copy \
             of its data directory for a report of this bug, remove the directory, and replace this node: \
             add one under a new name, and remove this one. If it is started with its data again, it may \
             serve what is wrong until it halts again"
        );
        self.end(text, effects);
        let map = self.map().clone();
        let frame = Frame::Condition(Condition::Out(cause));
        for &node in map.nodes.keys().filter(|&&node| node != self.options.me) {
            self.send(node, &frame, effects);
        }
    }

    /// Which partition's replica at a node is known to have diverged: a majority of the replicas differs from
    /// it.
    pub fn diverged(&self, node: NodeId) -> Option<PartitionId> {
        self.comparison.diverged(node)
    }
}
