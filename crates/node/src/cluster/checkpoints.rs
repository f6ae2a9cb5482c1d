//! Checkpoints of a cluster's node: all its partitions at the end of one epoch.
//!
//! Which epoch that is the order says ([`order::Control::Checkpoint`]), so every node takes its checkpoints
//! at the same places. Snapshots are opened before the epoch is confirmed and moved to its end when the
//! engines are there, so that writers go on. When one is due [`Schedule`] says; who orders it goes by the
//! size of its own files. When the files are on the disk, the groups' logs get new bases, in one record; when
//! that is durable, older files and older segments of the journal go. A crash in between leaves either the
//! old bases with the old files, or the new with the new.
//!
//! Where a node keeps some partitions only, the others' batches are needed by nodes that have no other way to
//! them than these logs: a partition whose replicas all stand before an epoch must find it there. So a log is
//! cut behind an epoch only once a majority of the replicas of *every* partition have a checkpoint of it.
//! Until then the bases wait ([`CANDIDATES`]): a process that starts goes on behind those of its logs, or
//! behind the newest checkpoint if it was fetched for that.
//!
//! A node that stands alone starts behind its newest checkpoint, and its log begins behind the one before: so
//! one that is damaged costs time and no data. Its checkpoint counts once the journal tells of it.
//!
//! ```text
//!         engines are there            files are there            journal has its bases
//! pinned ──────────────────► writing ──────────────────► recording ─────────────────────► taken
//!    │                          │            (where every node keeps everything: at once)    ▲ │ newest that is safe
//!    └── fetched from others    └── failed                      fetched from others ─────────┘ ▼
//!                                                                               logs begin behind it
//! ```
//!
//! Invariants ([`Checkpoints::check_invariants`]):
//! 1. One is pinned or being written at a time.
//! 2. Logs begin behind one that is taken, or at the beginning, and never behind one that is newer than what
//!    they will begin behind: `durable_base <= base`.
//! 3. Those that are taken are of growing epochs.

use super::base::BaseState;
use super::candidates::Taken;
use super::checkpoint::{ClusterCheckpoint, Needed, Part};
use crate::schedule::Schedule;
use execute::Engine;
use log::{Base, Kept};
use order::{PartitionMap, Streams, merge::EpochEnd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::checkpoint::Header;
use store::{Noted, Snapshot};
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, NodeId, PartitionId, Position};

/// A checkpoint that somebody has asked for stays for so many ticks.
const FETCH_TICKS: u64 = 600;
/// So many checkpoints stay at most, whoever asks for them.
const TAKEN_MAX: usize = 8;

/// An epoch at whose end a checkpoint is taken, until the engines are there.
pub(super) struct Pinned {
    pub end: EpochEnd,
    /// Open since before the epoch was confirmed: one for each local partition.
    pub snapshots: Vec<(PartitionId, Arc<dyn Engine>, Snapshot)>,
    /// Each local partition's state digest at the epoch's end.
    pub digests: BTreeMap<PartitionId, Noted>,
    /// For each local group: which requests its log has up to there, and the entry's index and term.
    pub groups: BTreeMap<PartitionId, (Streams, (u64, u64))>,
}

impl Pinned {
    /// Whether every engine has final-committed the epoch whole.
    pub fn is_reached(&self) -> bool {
        self.snapshots
            .iter()
            .zip(&self.end.next)
            .all(|((_, engine, _), next)| engine.view().final_position() >= next.prev())
    }

    /// What a group's log begins with behind the checkpoint.
    pub fn state(&self, partition: PartitionId, next: Position) -> Option<(BaseState, (u64, u64))> {
        let (streams, place) = self.groups.get(&partition)?;
        let state = BaseState {
            epoch: self.end.epoch,
            time_ms: self.end.time_ms,
            digest: self.end.digest,
            next,
            streams: streams.clone(),
            map: (*self.end.map).clone(),
            state_digest: self.digests.get(&partition).and_then(Noted::digest),
        };
        Some((state, *place))
    }

    /// The job that writes the files.
    pub fn into_job(self) -> ClusterCheckpoint {
        let EpochEnd { epoch, time_ms, digest, next, .. } = self.end;
        let parts = self.snapshots.into_iter().zip(next);
        let parts = parts.map(|((partition, engine, mut snapshot), next)| {
            snapshot.advance(next.prev(), time_ms);
            let mut clears = engine.view().clears_at(&snapshot);
            if is_active(Mutant::CheckpointWithoutClears) {
                clears.clear();
            }
            let header = Header { position: next.prev(), epoch, time_ms, digest, boot: 0, clears };
            Part { partition, engine, header, snapshot: Some(snapshot) }
        });
        ClusterCheckpoint::new(epoch, parts.collect())
    }

    /// Gives it up.
    pub fn close(self) {
        for (_, engine, snapshot) in self.snapshots {
            engine.view().close(snapshot);
        }
    }
}

/// When a checkpoint that is written counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Counts {
    AtOnce,
    /// `start`: a process starts behind it.
    OnceRecorded {
        start: bool,
    },
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// One whose epoch the engines have not yet reached.
    pinned: Option<Pinned>,
    /// One that is being written.
    writing: Option<Taken>,
    /// One of which the journal is to hold the bases before it counts.
    recording: VecDeque<Taken>,
    /// Those that are on the disk, oldest first. Behind the first of them or a later one the logs begin.
    taken: VecDeque<Taken>,
    /// Behind which the logs begin, or will once that is durable.
    base: Epoch,
    /// Behind which the logs that are on the disk begin: its files stay until others do.
    durable_base: Epoch,
    /// The newest that other nodes have, as they say.
    others: BTreeMap<NodeId, Epoch>,
    /// Bytes of agreed batches, and of what partitions told those of other nodes, since the last one was
    /// ordered, and when that was: 0, long ago, if this process has seen none.
    bytes: u64,
    since_ms: u64,
    schedule: Schedule,
    /// The journal has a candidate, which must not keep its older records from going.
    has_candidate: bool,
    /// It has one of this epoch that could not be used, and what it has in that place never goes back.
    unusable: Option<Epoch>,
    /// Part of the log is gone, up to this epoch at most.
    lost: Option<Epoch>,
}

impl Checkpoints {
    /// Those of a process that has just started: at this epoch, or none if that is 0; and perhaps a newer
    /// one, or one that cannot be used.
    pub fn new(
        begin: (Epoch, BTreeMap<PartitionId, Base>),
        base: Epoch,
        candidate: Option<(Epoch, BTreeMap<PartitionId, Base>)>,
        unusable: Option<Epoch>,
        schedule: Schedule,
    ) -> Checkpoints {
        let has_candidate = candidate.is_some();
        let epoch = begin.0;
        let newer = candidate.filter(|(candidate, _)| *candidate > epoch);
        let taken = [(epoch > Epoch(0)).then_some(begin), newer];
        let taken = taken.into_iter().flatten().map(|(epoch, bases)| Taken {
            epoch,
            bases,
            start: false,
            asked_tick: None,
        });
        Checkpoints {
            taken: taken.collect(),
            base,
            durable_base: base,
            has_candidate,
            unusable,
            schedule,
            ..Checkpoints::default()
        }
    }

    /// Behind which epoch the logs on the disk begin.
    pub fn durable_base(&self) -> Epoch {
        self.durable_base
    }

    /// Whether part of the log is gone that no checkpoint has.
    pub fn has_lost_log(&self) -> bool {
        self.lost.is_some()
    }

    /// Up to which epoch a log may be cut that nobody else needs: behind the checkpoint before the newest.
    pub fn safe_alone(&self) -> Epoch {
        let newest = self.taken.iter().rev();
        let before = usize::from(self.lost.is_none());
        newest.map(|taken| taken.epoch).nth(before).unwrap_or(Epoch(0))
    }

    /// Whether one is on its way.
    pub fn are_taken(&self) -> bool {
        self.pinned.is_some() || self.writing.is_some()
    }

    /// Whether one is on its way, or the journal does not yet know of it.
    pub fn is_one_coming(&self) -> bool {
        self.are_taken() || !self.recording.is_empty()
    }

    /// Whether a checkpoint is taken at the end of an epoch where the order says that one is due. `fetches`:
    /// others' files of it are on their way, under the same names.
    pub fn is_due_at(&mut self, epoch: Epoch, fetches: bool, now_ms: u64) -> bool {
        self.begin(now_ms);
        // The last one is still being written: this one is left out. Or it was taken before this process
        // began, which reads again what lies before it.
        !self.are_taken() && !fetches && epoch > self.newest()
    }

    /// One is taken at the end of an epoch, once the engines are there.
    pub fn pin(&mut self, pinned: Pinned) {
        self.pinned = Some(pinned);
    }

    /// The engines are there, and the groups' logs are applied up to where `applied` says: what is pinned is
    /// to be written.
    pub fn take_reached(&mut self, applied: impl Fn(PartitionId, u64) -> bool) -> Option<Pinned> {
        self.pinned.take_if(|pinned| {
            let groups = pinned.groups.iter();
            pinned.is_reached()
                && groups
                    .map(|(&partition, (_, place))| (partition, place.0))
                    .all(|(partition, index)| applied(partition, index))
        })
    }

    /// The files of one are being written.
    pub fn write(&mut self, epoch: Epoch, bases: BTreeMap<PartitionId, Base>) {
        self.writing = Some(Taken { epoch, bases, start: false, asked_tick: None });
    }

    /// Whether it is time to order one. It is ordered then.
    pub fn take_due(&mut self, now_ms: u64) -> bool {
        let since_ms = now_ms.saturating_sub(self.since_ms);
        let due = self.schedule.is_due(self.bytes, since_ms) && !self.are_taken();
        if due {
            self.begin(now_ms);
        }
        due
    }

    /// The files of one are on the disk. It counts at once, or once the journal has its bases: then `start`
    /// says whether a process starts behind it. False if it is not the one that was being written.
    pub fn written(&mut self, epoch: Epoch, bytes: u64, counts: Counts) -> bool {
        let Some(taken) = self.writing.take_if(|taken| taken.epoch == epoch) else {
            return false;
        };
        self.schedule.written(bytes);
        match counts {
            Counts::AtOnce => self.taken.push_back(taken),
            Counts::OnceRecorded { start } => self.recording.push_back(Taken { start, ..taken }),
        }
        true
    }

    /// The journal is to hold the bases of a checkpoint that was fetched, behind which this process is to
    /// start.
    pub fn record_fetched(&mut self, epoch: Epoch, bases: BTreeMap<PartitionId, Base>) {
        self.recording.push_back(Taken { epoch, bases, start: true, asked_tick: None });
    }

    /// The journal holds the bases of a checkpoint: others may count on it.
    pub fn recorded(&mut self, epoch: Epoch) {
        let recorded = self.recording.pop_front();
        self.taken.extend(recorded.filter(|taken| taken.epoch == epoch));
    }

    /// What the journal is to hold beside logs from now on.
    pub fn take_candidate(&mut self) -> Option<Kept> {
        self.has_candidate = true;
        self.candidate_again()
    }

    /// What the journal holds beside logs, for a record that lets its older ones go.
    pub fn candidate_again(&self) -> Option<Kept> {
        let newest = self.recording.back().or(self.taken.back())?;
        if self.unusable >= Some(newest.epoch) {
            return None;
        }
        self.has_candidate.then(|| newest.kept())
    }

    /// The next process is to start behind the newest checkpoint. False if the logs begin there anyway.
    pub fn start_behind_newest(&mut self) -> bool {
        let newest = self.taken.back_mut().filter(|taken| taken.epoch > self.base);
        newest.map(|newest| newest.start = true).is_some()
    }

    /// Part of the log is gone, up to this epoch at most.
    pub fn lose(&mut self, upto: Epoch) {
        self.lost = Some(upto);
    }

    /// The newest one behind which the logs may begin, where they do not yet, if nobody needs what they have
    /// up to `safe`. They begin there from now on.
    pub fn take_cut(&mut self, safe: Epoch) -> Option<(Epoch, BTreeMap<PartitionId, Base>)> {
        let newest = self.taken.iter().rfind(|taken| taken.epoch <= safe)?;
        if newest.epoch <= self.base {
            return None;
        }
        self.base = newest.epoch;
        Some((newest.epoch, newest.bases.clone()))
    }

    /// The logs on the disk begin behind this one. Gives up to where what was lost of them lay, if that is
    /// made good.
    pub fn rebased(&mut self, epoch: Epoch) -> Option<Epoch> {
        self.durable_base = epoch;
        self.lost.take_if(|lost| *lost <= epoch)
    }

    /// The epochs of those that are on the disk and behind which the logs have everything.
    pub fn followed(&self) -> impl Iterator<Item = Epoch> + '_ {
        self.taken.iter().map(|taken| taken.epoch).filter(|&epoch| epoch >= self.base)
    }

    /// What this node has itself of the checkpoint of an epoch.
    pub fn bases_of(&self, epoch: Epoch) -> Option<&BTreeMap<PartitionId, Base>> {
        let found = self.taken.iter().find(|taken| taken.epoch == epoch);
        found.map(|taken| &taken.bases)
    }

    /// Another node asks for one: whether it is here. It stays for a while then.
    pub fn asked(&mut self, partition: PartitionId, epoch: Epoch, now_tick: u64) -> bool {
        let mut taken = self.taken.iter_mut();
        let found = taken.find(|taken| taken.epoch == epoch && taken.bases.contains_key(&partition));
        found.map(|taken| taken.asked_tick = Some(now_tick)).is_some()
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        assert!(self.durable_base <= self.base);
        debug_assert!(self.pinned.is_none() || self.writing.is_none());
        debug_assert!(self.taken.iter().map(|taken| taken.epoch).is_sorted());
    }

    /// The one that was being written could not be.
    pub fn failed(&mut self) {
        self.writing = None;
    }

    /// The node stops.
    pub fn close(&mut self) {
        if let Some(pinned) = self.pinned.take() {
            pinned.close();
        }
    }

    /// What comes from here on is behind a checkpoint.
    fn begin(&mut self, now_ms: u64) {
        (self.bytes, self.since_ms) = (0, now_ms);
    }

    /// Batches were agreed, or partitions told each other something.
    pub fn note_bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Bytes of agreed batches, and of what partitions told those of other nodes, since the last one was
    /// ordered.
    pub fn log_bytes(&self) -> u64 {
        self.bytes
    }

    /// Another node has one of this epoch, and none that is newer.
    pub fn heard(&mut self, node: NodeId, epoch: Epoch) {
        self.others.insert(node, epoch);
    }

    /// The newest one that is on the disk; epoch 0 if none is.
    pub fn newest(&self) -> Epoch {
        self.taken.back().map_or(Epoch(0), |taken| taken.epoch)
    }

    /// The newest one that is not yet on the disk, or of which the journal does not yet know.
    pub fn newest_unkept(&self) -> Option<Epoch> {
        let unkept = self.recording.iter().chain(&self.writing);
        unkept.map(|taken| taken.epoch).max()
    }

    /// Whether the files of the one of this epoch are being written.
    pub fn is_writing(&self, epoch: Epoch) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|taken| taken.epoch == epoch)
    }

    /// The one of this epoch comes from elsewhere: the engines are not waited for.
    pub fn is_fetched(&mut self, epoch: Epoch) {
        let pinned = self.pinned.take_if(|pinned| pinned.end.epoch == epoch);
        if let Some(pinned) = pinned {
            pinned.close();
        }
    }

    /// Up to which epoch no node needs what the logs have: a majority of the replicas of each partition has
    /// it in a checkpoint.
    pub fn safe(&self, me: NodeId, map: &PartitionMap) -> Epoch {
        let of = |&node: &NodeId| match node == me {
            true => self.newest(),
            false => self.others.get(&node).copied().unwrap_or(Epoch(0)),
        };
        let majority = |partition| {
            let replicas = &map.partition(partition).replicas;
            let mut epochs: Vec<Epoch> = replicas.values().map(of).collect();
            epochs.sort();
            epochs[(epochs.len() - 1) / 2]
        };
        map.partition_ids().map(majority).min().unwrap_or(Epoch(0))
    }

    /// Lets go of those that nobody needs, but for one that is being fetched. Gives those that stay.
    pub fn needed(&mut self, now_tick: u64, fetched: Option<Epoch>) -> Needed {
        let is_fetched = |taken: &Taken| taken.asked_tick.is_some_and(|asked| now_tick < asked + FETCH_TICKS);
        // The one before the newest stays for those who have just been told of it.
        while self.taken.len() > 2 {
            let mut older = 0..self.taken.len() - 2;
            let is_covered = |taken: &Taken| taken.epoch < self.base;
            let unneeded = older.find(|&place| {
                let taken = &self.taken[place];
                is_covered(taken) && !is_fetched(taken)
            });
            // Where there are many, whoever fetches one does not begin again for those that nobody fetches.
            // The oldest is the one behind which the logs can begin first.
            let one_of_many = || {
                let may_go = |taken: &Taken| !is_fetched(taken) && taken.epoch != self.base;
                let newer = (1..self.taken.len() - 2).find(|&place| may_go(&self.taken[place]));
                newer.unwrap_or(usize::from(!is_covered(&self.taken[0])))
            };
            let are_many = self.taken.len() > TAKEN_MAX;
            let Some(place) = unneeded.or_else(|| are_many.then(one_of_many)) else { break };
            self.taken.remove(place);
        }
        let all = self.taken.iter().chain(&self.recording);
        let mut epochs: BTreeSet<Epoch> =
            all.chain(&self.writing).map(|taken| taken.epoch).chain(fetched).collect();
        epochs.extend(self.pinned.as_ref().map(|pinned| pinned.end.epoch));
        epochs.insert(self.durable_base);
        let upto = self.newest();
        Needed { epochs, upto }
    }
}

#[cfg(test)]
pub(super) mod tests;
