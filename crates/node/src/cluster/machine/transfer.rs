//! Fetches checkpoints of others, and starts anew behind them ([`crate::cluster::transfer`]).

use super::{ClusterEffects, ClusterNode, Then};
use crate::cluster::frames::Frame;
use crate::cluster::pieces::Piece;
use crate::cluster::shape::BadFrame;
use crate::cluster::transfer::{Begin, Own, Ready, Wish, read_base};
use bytes::Bytes;
use log::{Base, Kept};
use std::collections::{BTreeMap, BTreeSet};
use txn::{Epoch, NodeId, PartitionId};

/// What is told to whoever asks a node that is about to start anew.
const RESTARTING: &str = "LOADING this node has fetched a checkpoint and starts anew: connect again";

impl ClusterNode {
    /// What this node has itself.
    fn own(&self) -> Own {
        Own {
            // What is confirmed may be stuck for want of what other partitions have read.
            reached: match self.map().partitions.len() {
                1 => self.merge.confirmed().epoch,
                _ => self.settled,
            },
            keeps_all: self.kept().iter().all(|partition| self.groups.contains_key(partition)),
            newest: self.checkpoints.newest(),
            unkept: self.checkpoints.newest_unkept(),
        }
    }

    /// This node lacks entries that others no longer have.
    pub(super) fn fall_behind(&mut self, source: NodeId, partition: PartitionId, epoch: Epoch) {
        // Of a group of others this node may lack what was read, and not the batches.
        let known = match self.groups.contains_key(&partition) {
            true => self.merge.agreed_epoch(partition),
            false => self.merge.held(partition).min(self.settled),
        };
        if let Some(begin) = self.transfer.behind(source, epoch, known, self.ticks) {
            self.begin_transfer(begin);
        }
    }

    /// A node has no checkpoint of the epoch that is being fetched, but one of this.
    pub(super) fn newest_is(&mut self, from: NodeId, epoch: Epoch) {
        let own = self.own();
        if let Some(begin) = self.transfer.newest_is(from, epoch, own) {
            self.begin_transfer(begin);
        }
    }

    /// Fetches the checkpoint of an epoch, of everything that this node keeps or is to keep.
    pub(super) fn begin_transfer(&mut self, begin: Begin) {
        let epoch = begin.epoch;
        if self.checkpoints.is_writing(epoch) {
            // Into the same files. Once they are there, less is to be fetched.
            return;
        }
        // This node's own one waits for engines that may never come to its place, because what they would
        // read is gone.
        self.checkpoints.is_fetched(epoch);
        let wanted = self.needed_of(epoch);
        self.transfer.begin(begin, wanted.into_iter().collect());
    }

    /// Of which partitions this node needs the checkpoint of an epoch, and has none itself.
    fn needed_of(&self, epoch: Epoch) -> BTreeSet<PartitionId> {
        let mut all = self.kept();
        all.extend(self.groups.keys());
        let own = self.checkpoints.bases_of(epoch);
        all.retain(|partition| own.is_none_or(|own| !own.contains_key(partition)));
        all
    }

    /// This process is to end, and to start again.
    pub(super) fn start_anew(&mut self, effects: &mut ClusterEffects) {
        self.stop_because(RESTARTING);
        effects.restart = true;
    }

    /// Who may have a partition's checkpoint, and is heard: this one first, then the replicas that the map
    /// knows, then those that are members while the map wants others.
    pub(super) fn who_has(&self, partition: PartitionId, first: Option<NodeId>) -> Vec<NodeId> {
        let map = self.map();
        let mut nodes: Vec<NodeId> = first.into_iter().collect();
        nodes.extend(map.partition(partition).replicas.values());
        if let Some(group) = self.groups.get(&partition) {
            let members = group.members();
            nodes.extend(members.voters.iter().chain(&members.voters_outgoing));
        }
        nodes.extend(self.leader(partition));
        let mut known = BTreeSet::from([self.options.me]);
        nodes.retain(|&node| known.insert(node) && self.is_live(node));
        if nodes.is_empty() {
            // Who kept it before the map changed does so until somebody else does.
            let others = map.nodes.keys().copied();
            nodes.extend(others.filter(|&node| node != self.options.me && self.is_live(node)));
        }
        nodes
    }

    /// Asks for the next piece of a checkpoint; starts anew when all are there.
    pub(super) fn fetch(&mut self, effects: &mut ClusterEffects) {
        if !self.transfer.is_installing() {
            return;
        }
        let own = self.own();
        let mut transfer = std::mem::take(&mut self.transfer);
        let able = |partition, source| self.who_has(partition, Some(source));
        let wish = transfer.next(own, self.ticks, |node| self.is_live(node), able);
        self.transfer = transfer;
        match wish {
            Some(Wish::Ask(from, piece)) => self.send(from, &Frame::Fetch(piece), effects),
            Some(Wish::Begin(begin)) => self.begin_transfer(begin),
            Some(Wish::Install(epoch)) => self.install(epoch, effects),
            None => {}
        }
    }

    /// A piece of a checkpoint has come.
    pub(super) fn piece_came(
        &mut self,
        from: NodeId,
        piece: Piece,
        total: u64,
        base: Bytes,
        bytes: Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let map = self.merge.confirmed().map.clone();
        let read = || read_base(piece.epoch, &base, &map);
        if let Some(taken) = self.transfer.came(from, piece, total, bytes, self.ticks, read)? {
            effects.host.write = Some(taken);
        }
        Ok(())
    }

    /// All files of a checkpoint are there: the groups' logs begin behind them, and the process starts anew.
    fn install(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        // The map may want more than it did when this began.
        let (own, needed) = (self.own(), self.needed_of(epoch));
        match self.transfer.ready(own, needed) {
            Ready::No => {}
            Ready::Begin(begin) => self.begin_transfer(begin),
            Ready::More => self.fetch(effects),
            Ready::Lacks(partition) => effects.warnings.push(format!(
                "the checkpoint of {partition} came without a base of epoch {}: it is fetched again",
                epoch.0
            )),
            Ready::Bases(fetched) => self.begin_behind(epoch, fetched, effects),
        }
    }

    fn begin_behind(
        &mut self,
        epoch: Epoch,
        mut bases: BTreeMap<PartitionId, Base>,
        effects: &mut ClusterEffects,
    ) {
        // What this node has of that epoch itself counts as fetched.
        if let Some(own) = self.checkpoints.bases_of(epoch) {
            let kept = self.kept();
            let is_needed =
                |partition: &PartitionId| kept.contains(partition) || self.groups.contains_key(partition);
            let own = own.iter().filter(|(partition, _)| is_needed(partition));
            bases.extend(own.map(|(&partition, base)| (partition, base.clone())));
        }
        let lacks = |(partition, base): &(&PartitionId, &Base)| {
            let retired = self.retired.get(partition);
            retired.is_some_and(|retired| !retired.is_covered_by(base.index))
        };
        if bases.iter().any(|found| lacks(&found)) {
            // It had promised to have more: it comes back behind a newer one.
            return self.want_checkpoint();
        }
        for (&partition, base) in &bases {
            // What follows the checkpoint in a log may be promised, and others may need what is before: it
            // stays if it is of the same history.
            let has_all = self.groups.get(&partition).is_some_and(|group| {
                let entry = group.entry(base.index);
                group.base().index >= base.index || entry.is_some_and(|entry| entry.term == base.term)
            });
            if has_all && self.is_spread {
                continue;
            }
            let known = self.groups.get(&partition);
            if known.is_some_and(|group| group.base().index >= base.index) {
                continue;
            }
            let kept = Kept { reset: !has_all, base: Some(base.clone()), ..Kept::nothing(partition) };
            self.record(kept, effects);
        }
        if self.is_spread {
            self.record_fetched(epoch, bases, effects);
        }
        effects
            .warnings
            .push(format!("has fetched the checkpoint of epoch {}: starts anew behind it", epoch.0));
        self.groups.wait_for(Then::Installed);
        self.transfer.end();
    }
}

#[cfg(test)]
mod tests;
