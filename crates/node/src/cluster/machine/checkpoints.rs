//! Has checkpoints taken, lets logs begin behind them, and gives them to others
//! ([`crate::cluster::checkpoints`]).

use super::{ClusterEffects, ClusterNode, Then};
use crate::cluster::checkpoints::{Counts, Pinned};
use crate::cluster::frames::Frame;
use crate::cluster::pieces::Piece;
use bytes::Bytes;
use execute::Engine;
use log::{Base, Kept};
use order::{Control, merge::EpochEnd};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, NodeId, PartitionId};

impl ClusterNode {
    /// A checkpoint is due at the end of this epoch, which no engine has heard to be confirmed.
    pub(super) fn pin(&mut self, end: &EpochEnd) {
        let fetches = self.transfer.fetching() == Some(end.epoch);
        if !self.checkpoints.is_due_at(end.epoch, fetches, self.now_ms) {
            return;
        }
        let open = |(partition, engine): (PartitionId, &Arc<dyn Engine>)| {
            let snapshot = engine.view().open();
            (partition, engine.clone(), snapshot)
        };
        let own = self.engines().zip(&end.next);
        let digests = own.map(|((partition, engine), next)| {
            let digests = engine.view().digests();
            (partition, digests.note_at(next.prev()))
        });
        let digests = digests.collect();
        let group = |&partition: &PartitionId| {
            let (streams, place) = self.merge.group(partition);
            (partition, (streams.clone(), place))
        };
        let snapshots = self.engines().map(open).collect();
        let groups = self.groups.keys().map(group).collect();
        self.checkpoints.pin(Pinned { end: end.clone(), snapshots, digests, groups });
    }

    /// Starts writing a checkpoint when the engines have come to its place, and orders one when it is time.
    pub(super) fn look_at_checkpoint(&mut self, effects: &mut ClusterEffects) {
        let groups = &self.groups;
        let applied = |partition, index| {
            let group = groups.get(&partition);
            group.is_some_and(|group| group.status().applied >= index)
        };
        if let Some(pinned) = self.checkpoints.take_reached(applied) {
            let mut bases = BTreeMap::new();
            for (&partition, next) in self.executors.keys().zip(&pinned.end.next) {
                if let Some((state, (index, term))) = pinned.state(partition, *next)
                    && let Some(group) = self.groups.get(&partition)
                {
                    let base =
                        Base { index, term, members: group.members_at(index), state: state.encode().into() };
                    bases.insert(partition, base);
                }
            }
            self.checkpoints.write(pinned.end.epoch, bases);
            effects.host.checkpoint = Some(pinned.into_job());
        }
        let after = self.merge.delivered().map.checkpoint;
        // Ordered once: what was ordered already counts from there.
        if let Some(lead) = self.leads.get_mut(&PartitionId(0))
            && after == self.merge.confirmed().map.checkpoint
            && self.checkpoints.take_due(self.now_ms)
        {
            lead.change(Control::Checkpoint { after });
        }
    }

    /// The files of a checkpoint are on the disk.
    pub(super) fn checkpoint_written(&mut self, epoch: Epoch, bytes: u64, effects: &mut ClusterEffects) {
        let counts = match self.is_spread || self.options.alone {
            true => Counts::OnceRecorded { start: self.options.alone },
            false => Counts::AtOnce,
        };
        if !self.checkpoints.written(epoch, bytes, counts) {
            return;
        }
        match counts {
            Counts::OnceRecorded { .. } => {
                self.record_candidate(effects);
                self.groups.wait_for(Then::Candidate(epoch));
            }
            Counts::AtOnce => self.cut_logs(effects),
        }
    }

    /// The journal holds the bases of a checkpoint: others may count on it.
    pub(super) fn candidate(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        self.checkpoints.recorded(epoch);
        self.look_at_files(effects);
        self.cut_logs(effects);
    }

    /// Somebody has removed files of the log.
    pub(super) fn log_lost(&mut self) {
        self.checkpoints.lose(self.merge.newest());
        self.want_checkpoint();
    }

    /// Wants a checkpoint, of the whole cluster.
    pub(in crate::cluster) fn want_checkpoint(&mut self) {
        let after = self.map().checkpoint;
        let wanted = Control::Checkpoint { after };
        if !self.wanted.contains(&wanted) {
            self.wanted.push(wanted);
            self.remind = true;
        }
    }

    /// Lets the logs begin behind the newest checkpoint that allows it.
    pub(super) fn cut_logs(&mut self, effects: &mut ClusterEffects) {
        if self.transfer.is_ending() {
            // The journal has the bases of a newer one, that another node has made.
            return;
        }
        let safe = match () {
            () if self.options.alone => self.checkpoints.safe_alone(),
            () if self.is_spread && !is_active(Mutant::CutLogsAlone) => {
                self.checkpoints.safe(self.options.me, self.map())
            }
            () => self.checkpoints.newest(),
        };
        let Some((epoch, bases)) = self.checkpoints.take_cut(safe) else {
            return;
        };
        for (partition, base) in bases {
            if self.groups.contains_key(&partition) {
                self.groups.rebase(partition, base.clone());
                let kept = Kept { base: Some(base), ..Kept::nothing(partition) };
                self.record(kept, effects);
            }
        }
        self.groups.wait_for(Then::Rebased(epoch));
    }

    /// The journal is to hold which checkpoint there is, behind which the logs do not yet begin.
    fn record_candidate(&mut self, effects: &mut ClusterEffects) {
        if let Some(kept) = self.checkpoints.take_candidate() {
            self.record(kept, effects);
        }
    }

    /// Notes the bases of a checkpoint that was fetched, behind which this process is to start.
    pub(super) fn record_fetched(
        &mut self,
        epoch: Epoch,
        bases: BTreeMap<PartitionId, Base>,
        effects: &mut ClusterEffects,
    ) {
        self.checkpoints.record_fetched(epoch, bases);
        self.record_candidate(effects);
    }

    /// The next process is to start behind this node's newest checkpoint, if it has one that logs do not
    /// begin behind.
    pub(super) fn start_behind_newest(&mut self, effects: &mut ClusterEffects) {
        if self.checkpoints.start_behind_newest() {
            self.record_candidate(effects);
        }
    }

    /// The logs begin behind the checkpoint of this epoch.
    pub(super) fn rebased(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        let made_good = self.checkpoints.rebased(epoch);
        self.look_at_files(effects);
        if let Some(lost) = made_good {
            effects.news.push(format!(
                "the checkpoint of epoch {} has what the removed log files held, up to epoch {} at most: a \
                 start finds everything again",
                epoch.0, lost.0
            ));
        }
    }

    /// Lets the files go that nobody needs.
    fn look_at_files(&mut self, effects: &mut ClusterEffects) {
        let fetched = self.transfer.fetched();
        effects.host.prune = Some(self.checkpoints.needed(self.ticks, fetched));
    }

    /// A replica lacks entries that this node no longer has.
    pub(in crate::cluster) fn tell_behind(
        &mut self,
        partition: PartitionId,
        node: NodeId,
        effects: &mut ClusterEffects,
    ) {
        self.behind.insert((partition, node), self.ticks);
        let epoch = self.checkpoints.newest();
        if epoch > Epoch(0) {
            self.send(node, &Frame::Behind { partition, epoch }, effects);
        }
    }

    /// Another node wants a piece of a checkpoint.
    pub(super) fn wanted_by(&mut self, from: NodeId, piece: Piece, effects: &mut ClusterEffects) {
        if self.checkpoints.asked(piece.partition, piece.epoch, self.ticks) {
            effects.host.read.push_back((from, piece));
        } else {
            let newest = self.checkpoints.newest();
            self.send(from, &Frame::Newest(newest), effects);
        }
    }

    /// A piece of a checkpoint was read.
    pub(super) fn piece_read(
        &mut self,
        to: NodeId,
        piece: Piece,
        total: u64,
        bytes: Bytes,
        effects: &mut ClusterEffects,
    ) {
        let bases = self.checkpoints.bases_of(piece.epoch);
        let Some(base) = bases.and_then(|bases| bases.get(&piece.partition)) else {
            return;
        };
        let mut encoded = Vec::new();
        if piece.offset == 0 {
            base.encode(&mut encoded);
        }
        let frame = Frame::Piece { piece, total, base: encoded.into(), bytes };
        self.send(to, &frame, effects);
    }
}

#[cfg(test)]
mod tests;
