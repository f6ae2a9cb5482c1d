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

use super::bootstrap::kept_aside;
use super::frames::Frame;
use super::install::Piece;
use super::machine::{ClusterEffects, ClusterNode, Then};
use super::recover::BaseState;
use super::retired::retired;
use crate::checkpoint::{file_bytes, read_file, write_images};
use crate::schedule::Schedule;
use bytes::Bytes;
use execute::Engine;
use log::{Base, Disk, GroupImage, GroupImages, Kept};
use order::{Control, PartitionMap, Streams, merge::EpochEnd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use store::checkpoint::{CheckpointError, Header};
use store::{Image, Noted, Snapshot};
use txn::codec::{Reader, put_bytes, put_varint};
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, NodeId, PartitionId, Position};

/// Under which number the journal keeps the bases of a checkpoint behind which its logs do not yet begin.
pub const CANDIDATES: PartitionId = PartitionId(u16::MAX - 1);
/// A checkpoint that somebody has asked for stays for so many ticks.
const FETCH_TICKS: u64 = 600;
/// So many checkpoints stay at most, whoever asks for them.
const TAKEN_MAX: usize = 8;

/// The name of a partition's checkpoint.
pub(super) fn file_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("checkpoint-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// The name under which a checkpoint is written or fetched until it is complete.
pub(super) fn unfinished_name(partition: PartitionId, epoch: Epoch) -> String {
    format!("unfinished-{:05}-{:020}.ordo", partition.0, epoch.0)
}

/// Whether a directory has a checkpoint, of any version.
pub fn is_any<D: Disk>(disk: &D) -> io::Result<bool> {
    let is_one = |name: &String| name.starts_with("checkpoint-") && name.ends_with(".ordo");
    Ok(disk.list()?.iter().any(is_one))
}

/// The epoch of a checkpoint's file, complete or not.
fn epoch_of_name(name: &str) -> Option<Epoch> {
    let numbers = name.strip_prefix("checkpoint-").or_else(|| name.strip_prefix("unfinished-"))?;
    let (partition, epoch) = numbers.strip_suffix(".ordo")?.split_once('-')?;
    let partition = PartitionId(partition.parse().ok()?);
    let epoch = Epoch(epoch.parse().ok()?);
    let is_ours = [file_name, unfinished_name].map(|name| name(partition, epoch));
    is_ours.iter().any(|ours| ours == name).then_some(epoch)
}

/// Which checkpoints a node needs. It may be followed later, while newer ones are written or fetched: those
/// stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needed {
    /// These stay.
    epochs: BTreeSet<Epoch>,
    /// What is newer than this is not spoken of.
    upto: Epoch,
}

impl Needed {
    /// Every checkpoint.
    pub(crate) fn all() -> Needed {
        Needed { epochs: BTreeSet::new(), upto: Epoch(0) }
    }
}

/// Removes the checkpoints that are not needed, what was begun of them included.
pub fn prune<D: Disk>(disk: &D, needed: &Needed) -> io::Result<()> {
    let is_needed = |epoch| epoch > needed.upto || needed.epochs.contains(&epoch);
    remove_unless(disk, is_needed)
}

/// Keeps the files of a checkpoint that could not be used out of the way, for whoever wants to know why.
pub(super) fn put_aside<D: Disk>(disk: &D, partitions: &BTreeSet<PartitionId>, epoch: Epoch) {
    for &partition in partitions {
        let name = file_name(partition, epoch);
        // One that is missing can't be kept.
        let _ = disk.rename(&name, &format!("damaged-{name}"));
    }
}

/// Keeps complete checkpoints that are newer than the end of the log out of the way: where part of the log
/// was removed, they are all that is left of it. Gives the epoch of the newest.
pub(super) fn put_newer_aside<D: Disk>(disk: &D, end: Epoch) -> io::Result<Option<Epoch>> {
    let mut newest = None;
    for name in disk.list()? {
        let newer = epoch_of_name(&name).filter(|epoch| *epoch > end && name.starts_with("checkpoint-"));
        if newer.is_some() {
            disk.rename(&name, &format!("newer-{name}"))?;
            newest = newest.max(newer);
        }
    }
    Ok(newest)
}

/// Removes the checkpoints of all epochs but these: what newer ones an ended process has left has no base in
/// its journal.
pub(super) fn prune_at_start<D: Disk>(disk: &D, keep: &BTreeSet<Epoch>) -> io::Result<()> {
    remove_unless(disk, |epoch| keep.contains(&epoch))
}

fn remove_unless<D: Disk>(disk: &D, is_needed: impl Fn(Epoch) -> bool) -> io::Result<()> {
    for name in disk.list()? {
        if epoch_of_name(&name).is_some_and(|epoch| !is_needed(epoch)) {
            disk.remove(&name)?;
        }
    }
    disk.sync_dir()
}

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
        ClusterCheckpoint { epoch, parts: parts.collect() }
    }

    /// Gives it up.
    pub fn close(self) {
        for (_, engine, snapshot) in self.snapshots {
            engine.view().close(snapshot);
        }
    }
}

/// Checkpoints that are to be written: one for each local partition. Dropping it closes the snapshots.
pub struct ClusterCheckpoint {
    epoch: Epoch,
    parts: Vec<Part>,
}

struct Part {
    partition: PartitionId,
    engine: Arc<dyn Engine>,
    header: Header,
    snapshot: Option<Snapshot>,
}

impl Part {
    fn close(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.view().close(snapshot);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.close();
    }
}

/// What was written, in all files of a checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records.
    pub records: u64,
    /// The size of the files.
    pub bytes: u64,
}

impl ClusterCheckpoint {
    /// The epoch at whose end they are taken.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Writes the files. They are complete and durable when this returns how much there is in them.
    pub fn write<D: Disk>(mut self, disk: &D) -> io::Result<Written> {
        let mut sum = Written::default();
        for part in &mut self.parts {
            let unfinished = unfinished_name(part.partition, self.epoch);
            if is_active(Mutant::CheckpointLaterThanSaid) {
                part.close();
                part.snapshot = Some(part.engine.view().open());
            }
            let Some(snapshot) = &part.snapshot else {
                continue;
            };
            let written = write_images(disk, &unfinished, part.engine.view(), snapshot, &part.header);
            if written.is_err() {
                // Gives the space back. The next checkpoint removes it otherwise.
                let _ = disk.remove(&unfinished);
            }
            let (records, bytes) = written?;
            sum.records += records;
            sum.bytes += bytes;
            part.close();
            disk.rename(&unfinished, &file_name(part.partition, self.epoch))?;
        }
        disk.sync_dir()?;
        Ok(sum)
    }
}

/// Loads the checkpoint that a group's base tells of into an engine, and calls `tell` for each record. Gives
/// the size of its file.
pub(super) fn load<D: Disk>(
    disk: &D,
    partition: PartitionId,
    base: &Base,
    engine: &Arc<dyn Engine>,
    tell: &mut dyn FnMut(),
) -> Result<u64, LoadError> {
    let view = engine.view();
    let (header, bytes) = read(disk, partition, base, |image| {
        view.load(image);
        tell();
    })?;
    view.loaded(header.position, header.time_ms, &header.clears);
    let state = BaseState::decode(&base.state).ok_or(LoadError::Base(partition))?;
    view.digests().load(header.position, state.state_digest);
    Ok(bytes)
}

/// Reads the checkpoint that a group's base tells of, and hands each record to `load`. Gives its header and
/// the size of its file.
pub(super) fn read<D: Disk>(
    disk: &D,
    partition: PartitionId,
    base: &Base,
    load: impl FnMut(Image),
) -> Result<(Header, u64), LoadError> {
    let state = BaseState::decode(&base.state).ok_or(LoadError::Base(partition))?;
    let name = file_name(partition, state.epoch);
    let file = |cause| LoadError::File { name: name.clone(), cause };
    let header = read_file(disk, &name, load).map_err(file)?;
    let bytes = file_bytes(disk, &name).map_err(|error| file(error.into()))?;
    if (header.position.next(), header.digest) != (state.next, state.digest) {
        return Err(LoadError::Foreign { name });
    }
    Ok((header, bytes))
}

/// Why a checkpoint could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// What the journal says of it cannot be read.
    #[error("what the journal says of the checkpoint of {0} cannot be read: start the version that wrote it")]
    Base(PartitionId),
    /// The file is damaged or missing.
    #[error(
        "{name} cannot be used: {cause}. Restore it from a backup of this node; or, in a cluster, replace \
         the node: add one under a new name, and remove this one"
    )]
    File {
        /// Its name.
        name: String,
        /// Why.
        cause: CheckpointError,
    },
    /// A log begins at another epoch than the others, and there is no checkpoint of all.
    #[error(
        "the journal has all logs from the checkpoint of epoch {} on, but that of {partition}, whose \
         checkpoint is missing. Restore the directory from a backup; or, in a cluster, replace the node: \
         add one under a new name, and remove this one",
        epoch.0
    )]
    Uneven {
        /// Whose log.
        partition: PartitionId,
        /// The others' epoch.
        epoch: Epoch,
    },
    /// The file is of another history.
    #[error(
        "{name} was not made from this journal: files of two nodes are mixed in one directory. Restore \
         both from one backup; or, in a cluster, replace the node"
    )]
    Foreign {
        /// Its name.
        name: String,
    },
}

/// A checkpoint that is on the disk.
#[derive(Clone, Debug)]
pub(super) struct Taken {
    epoch: Epoch,
    /// What each group's log begins with behind it.
    bases: BTreeMap<PartitionId, Base>,
    /// This process is to end, and the next one to start behind it.
    start: bool,
    asked_tick: Option<u64>,
}

impl Taken {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, self.epoch.0);
        out.push(u8::from(self.start));
        for (partition, base) in &self.bases {
            put_varint(&mut out, u64::from(partition.0));
            let mut bytes = Vec::new();
            base.encode(&mut bytes);
            put_bytes(&mut out, &bytes);
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Taken> {
        let mut reader = Reader::new(bytes);
        let epoch = Epoch(reader.varint()?);
        let start = reader.u8()? == 1;
        let mut bases = BTreeMap::new();
        while !reader.is_empty() {
            let partition = PartitionId(u16::try_from(reader.varint()?).ok()?);
            bases.insert(partition, Base::take(&mut Reader::new(reader.bytes()?))?);
        }
        Some(Taken { epoch, bases, start, asked_tick: None })
    }
}

/// Behind what a process starts: an epoch, and the bases at its end. A group that has none can't take part in
/// a process that starts behind an epoch; at epoch 0 it begins at the beginning, as all others do.
pub(super) struct Begin {
    pub epoch: Epoch,
    pub bases: BTreeMap<PartitionId, Base>,
    /// Replicas that have moved away: they begin nowhere.
    retired: BTreeSet<PartitionId>,
}

impl Begin {
    /// Whether a partition can be executed from there on.
    pub fn has(&self, partition: PartitionId) -> bool {
        (self.epoch == Epoch(0) || self.bases.contains_key(&partition)) && !self.retired.contains(&partition)
    }
}

/// The newest checkpoint of a journal, if its logs begin before it.
pub(super) fn candidate(images: &GroupImages) -> Option<(Epoch, BTreeMap<PartitionId, Base>)> {
    let taken = Taken::decode(&images.get(&CANDIDATES)?.base.state)?;
    Some((taken.epoch, taken.bases))
}

/// What the journal holds in the place of its candidate, with other bases; nothing if it has none.
pub(super) fn candidate_with(
    images: &GroupImages,
    change: impl Fn(PartitionId, &Base) -> Result<Base, LoadError>,
) -> Result<Option<Kept>, LoadError> {
    let Some(image) = images.get(&CANDIDATES) else {
        return Ok(None);
    };
    let mut taken = Taken::decode(&image.base.state).ok_or(LoadError::Base(CANDIDATES))?;
    for (&partition, base) in &mut taken.bases {
        *base = change(partition, base)?;
    }
    Ok(Some(kept_aside(CANDIDATES, image.base.index, taken.encode())))
}

/// Behind which epoch a start executes the log: that of the newest checkpoint; or of the one before it, if a
/// node that stands alone cannot use that. 0 if there is none.
pub(crate) fn begin_of_start<D: Disk>(
    disk: &D,
    images: &GroupImages,
    alone: bool,
) -> Result<Epoch, LoadError> {
    let begin = newest_bases(images)?;
    let is_usable = |(&partition, base): (&PartitionId, &Base)| read(disk, partition, base, |_| {}).is_ok();
    if alone && starts_behind_candidate(images) && !begin.bases.iter().all(is_usable) {
        return log_begin_bases(images).map(|older| older.epoch);
    }
    Ok(begin.epoch)
}

/// Whether a process starts behind a checkpoint that is newer than where its logs begin.
pub(super) fn starts_behind_candidate(images: &GroupImages) -> bool {
    let newer = newest_bases(images).map(|begin| begin.epoch);
    let older = log_begin_bases(images).map(|begin| begin.epoch);
    matches!((newer, older), (Ok(newer), Ok(older)) if older < newer)
}

/// Behind the bases of the journal's logs, whatever newer checkpoints there are.
pub(super) fn log_begin_bases(images: &GroupImages) -> Result<Begin, LoadError> {
    bases(images, None)
}

/// Where a process starts: behind the bases of its journal; or behind a checkpoint that is newer and has
/// every group that they have, if it was made or fetched for that, or the bases are not all of one epoch.
///
/// (Not behind its own newest one: partitions need from each other what was read since the oldest checkpoint
/// behind which any of them starts, and after a loss of power nobody knows that but who reads it again.)
pub(super) fn newest_bases(images: &GroupImages) -> Result<Begin, LoadError> {
    let decode = |image: &GroupImage| Taken::decode(&image.base.state).ok_or(LoadError::Base(CANDIDATES));
    bases(images, images.get(&CANDIDATES).map(decode).transpose()?)
}

fn bases(images: &GroupImages, candidate: Option<Taken>) -> Result<Begin, LoadError> {
    let retired: BTreeSet<PartitionId> = retired(images).into_keys().collect();
    let groups = || {
        let groups = images.iter();
        groups.filter(|(id, _)| **id < CANDIDATES && !retired.contains(id))
    };
    let mut begun = BTreeMap::new();
    for (&partition, image) in groups().filter(|(_, image)| image.base.index > 0) {
        let state = BaseState::decode(&image.base.state).ok_or(LoadError::Base(partition))?;
        begun.insert(partition, (state.epoch, image.base.clone()));
    }
    let epoch = begun.values().map(|&(epoch, _)| epoch).max();
    let epoch = epoch.unwrap_or(Epoch(0));
    let candidate = candidate.filter(|candidate| {
        let has = |partition| candidate.bases.contains_key(partition);
        candidate.epoch >= epoch && begun.keys().all(has)
    });
    // What a log has was promised: it is not left out.
    let left = |begin: &Begin| {
        let mut left = groups().filter(|&(&partition, image)| {
            !begin.has(partition) && (image.base.index > 0 || !image.entries.is_empty())
        });
        left.next().map(|(&partition, _)| partition)
    };
    let mut begin = Begin {
        epoch,
        bases: begun
            .into_iter()
            .filter(|&(_, (of, _))| of == epoch)
            .map(|(partition, (_, base))| (partition, base))
            .collect(),
        retired: retired.clone(),
    };
    if let Some(candidate) = candidate.filter(|taken| taken.start || left(&begin).is_some()) {
        begin.epoch = candidate.epoch;
        begin.bases = candidate.bases;
        begin.bases.retain(|partition, _| !retired.contains(partition));
    }
    match left(&begin) {
        Some(partition) => Err(LoadError::Uneven { partition, epoch: begin.epoch }),
        None => Ok(begin),
    }
}

/// The epochs behind which the logs of a journal begin.
pub(super) fn log_bases(images: &GroupImages) -> BTreeSet<Epoch> {
    let groups = images.iter().filter(|(id, _)| **id < CANDIDATES);
    groups.filter_map(|(_, image)| BaseState::decode(&image.base.state)).map(|state| state.epoch).collect()
}

/// A node's checkpoints, from their order to their end.
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
    fn safe_alone(&self) -> Epoch {
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
    fn safe(&self, me: NodeId, map: &PartitionMap) -> Epoch {
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
    fn prune(&mut self, now_tick: u64, fetched: Option<Epoch>) -> Needed {
        // The one before the newest stays for those who have just been told of it.
        while self.taken.len() > 2 {
            let oldest = &self.taken[0];
            let is_fetched = oldest.asked_tick.is_some_and(|asked| now_tick < asked + FETCH_TICKS);
            let are_many = self.taken.len() > TAKEN_MAX;
            if oldest.epoch < self.base && (are_many || !is_fetched) {
                self.taken.pop_front();
            } else if are_many {
                // The oldest is the one behind which the logs can begin first.
                self.taken.remove(1);
            } else {
                break;
            }
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

impl ClusterNode {
    /// A checkpoint is due at the end of this epoch, which no engine has heard to be confirmed.
    pub(super) fn pin(&mut self, end: &EpochEnd) {
        self.checkpoints.begin(self.now_ms);
        if self.checkpoints.are_taken() {
            // The last one is still being written: this one is left out.
            return;
        }
        if self.installs.fetches(end.epoch) {
            // Others' files of it are on their way, under the same names.
            return;
        }
        if end.epoch <= self.checkpoints.newest() {
            // It was taken before this process began, which reads again what lies before it.
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
        self.checkpoints.pinned = Some(Pinned {
            end: end.clone(),
            snapshots: self.engines().map(open).collect(),
            digests,
            groups: self.groups.keys().map(group).collect(),
        });
    }

    /// Starts writing a checkpoint when the engines have come to its place, and orders one when it is time.
    pub(super) fn look_at_checkpoint(&mut self, effects: &mut ClusterEffects) {
        let applied = |(partition, (_, place)): (&PartitionId, &(Streams, (u64, u64)))| {
            let group = self.groups.get(partition);
            group.is_some_and(|group| group.status().applied >= place.0)
        };
        let is_ready = |pinned: &Pinned| pinned.is_reached() && pinned.groups.iter().all(applied);
        if self.checkpoints.pinned.as_ref().is_some_and(is_ready)
            && let Some(pinned) = self.checkpoints.pinned.take()
        {
            let mut bases = BTreeMap::new();
            let engines: Vec<PartitionId> = self.engines().map(|(partition, _)| partition).collect();
            for (partition, next) in engines.into_iter().zip(&pinned.end.next) {
                if let Some((state, (index, term))) = pinned.state(partition, *next)
                    && let Some(group) = self.groups.get(&partition)
                {
                    let base =
                        Base { index, term, members: group.members_at(index), state: state.encode().into() };
                    bases.insert(partition, base);
                }
            }
            self.checkpoints.writing =
                Some(Taken { epoch: pinned.end.epoch, bases, start: false, asked_tick: None });
            effects.host.checkpoint = Some(pinned.into_job());
        }
        let Checkpoints { schedule, bytes, since_ms, .. } = self.checkpoints;
        let since_ms = self.now_ms.saturating_sub(since_ms);
        let due = schedule.is_due(bytes, since_ms) && !self.checkpoints.are_taken();
        if due && let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
            let after = self.merge.delivered().map.checkpoint;
            // Ordered once: what was ordered already counts from there.
            if after == self.merge.confirmed().map.checkpoint {
                self.checkpoints.begin(self.now_ms);
                lead.change(Control::Checkpoint { after });
            }
        }
    }

    /// The files of a checkpoint are on the disk.
    pub(super) fn checkpoint_written(&mut self, epoch: Epoch, bytes: u64, effects: &mut ClusterEffects) {
        let Some(taken) = self.checkpoints.writing.take_if(|taken| taken.epoch == epoch) else {
            return;
        };
        self.checkpoints.schedule.written(bytes);
        if self.is_spread || self.options.alone {
            let taken = Taken { start: self.options.alone, ..taken };
            self.checkpoints.recording.push_back(taken);
            self.record_candidate(effects);
            return self.groups.wait_for(Then::Candidate(epoch));
        }
        self.checkpoints.taken.push_back(taken);
        self.rebase(epoch, effects);
    }

    /// The journal holds the bases of a checkpoint: others may count on it.
    pub(super) fn candidate(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        let recorded = self.checkpoints.recording.pop_front();
        self.checkpoints.taken.extend(recorded.filter(|taken| taken.epoch == epoch));
        self.look_at_files(effects);
        self.cut_logs(effects);
    }

    /// Somebody has removed files of the log.
    pub(super) fn log_lost(&mut self) {
        self.checkpoints.lost = Some(self.merge.newest());
        self.want_checkpoint();
    }

    /// Lets the logs begin behind the newest checkpoint that allows it.
    pub(super) fn cut_logs(&mut self, effects: &mut ClusterEffects) {
        if self.installs.is_ending() {
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
        let taken = self.checkpoints.taken.iter().rev();
        let epoch = taken.map(|taken| taken.epoch).find(|&epoch| epoch <= safe);
        if let Some(epoch) = epoch.filter(|&epoch| epoch > self.checkpoints.base) {
            self.rebase(epoch, effects);
        }
    }

    /// Lets the logs begin behind a checkpoint.
    fn rebase(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        let found = self.checkpoints.taken.iter().find(|taken| taken.epoch == epoch);
        let Some(taken) = found.cloned() else { return };
        self.checkpoints.base = epoch;
        for (partition, base) in taken.bases {
            if self.groups.contains_key(&partition) {
                self.groups.rebase(partition, base.clone());
                let kept = Kept { base: Some(base), ..Kept::nothing(partition) };
                self.record(kept, effects);
            }
        }
        self.groups.wait_for(Then::Rebased(epoch));
    }

    fn record_candidate(&mut self, effects: &mut ClusterEffects) {
        self.checkpoints.has_candidate = true;
        if let Some(kept) = self.candidate_again() {
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
        self.checkpoints.recording.push_back(Taken { epoch, bases, start: true, asked_tick: None });
        self.record_candidate(effects);
    }

    /// The next process is to start behind this node's newest checkpoint, if it has one that logs do not
    /// begin behind.
    pub(super) fn start_behind_newest(&mut self, effects: &mut ClusterEffects) {
        let newest = self.checkpoints.taken.back_mut();
        let Some(newest) = newest.filter(|taken| taken.epoch > self.checkpoints.base) else {
            return;
        };
        newest.start = true;
        self.record_candidate(effects);
    }

    /// What this node has itself of the checkpoint of an epoch.
    pub(super) fn own_bases(&self, epoch: Epoch) -> BTreeMap<PartitionId, Base> {
        let mut taken = self.checkpoints.taken.iter();
        let found = taken.find(|taken| taken.epoch == epoch);
        found.map(|taken| taken.bases.clone()).unwrap_or_default()
    }

    /// What the journal holds beside logs, for a record that lets its older ones go.
    pub(super) fn candidate_again(&self) -> Option<Kept> {
        let newest = self.checkpoints.recording.back().or(self.checkpoints.taken.back())?;
        if self.checkpoints.unusable >= Some(newest.epoch) {
            return None;
        }
        self.checkpoints.has_candidate.then(|| kept_aside(CANDIDATES, newest.epoch.0, newest.encode()))
    }

    /// The logs begin behind the checkpoint of this epoch.
    pub(super) fn rebased(&mut self, epoch: Epoch, effects: &mut ClusterEffects) {
        self.checkpoints.durable_base = epoch;
        self.look_at_files(effects);
        if let Some(lost) = self.checkpoints.lost.take_if(|lost| *lost <= epoch) {
            effects.news.push(format!(
                "the checkpoint of epoch {} has what the removed log files held, up to epoch {} at most: a \
                 start finds everything again",
                epoch.0, lost.0
            ));
        }
    }

    /// Lets the files go that nobody needs.
    fn look_at_files(&mut self, effects: &mut ClusterEffects) {
        let fetched = self.installs.fetched();
        effects.host.prune = Some(self.checkpoints.prune(self.ticks, fetched));
    }

    /// A replica lacks entries that this node no longer has.
    pub(super) fn tell_behind(&mut self, partition: PartitionId, node: NodeId, effects: &mut ClusterEffects) {
        self.behind.insert((partition, node), self.ticks);
        let epoch = self.checkpoints.newest();
        if epoch > Epoch(0) {
            self.send(node, &Frame::Behind { partition, epoch }, effects);
        }
    }

    /// Another node wants a piece of a checkpoint.
    pub(super) fn wanted_by(&mut self, from: NodeId, piece: Piece, effects: &mut ClusterEffects) {
        let now = self.ticks;
        let mut taken = self.checkpoints.taken.iter_mut();
        let has =
            |taken: &&mut Taken| taken.epoch == piece.epoch && taken.bases.contains_key(&piece.partition);
        if let Some(taken) = taken.find(has) {
            taken.asked_tick = Some(now);
            effects.host.read.push_back((from, piece));
            return;
        }
        let newest = self.checkpoints.newest();
        self.send(from, &Frame::Newest(newest), effects);
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
        let mut taken = self.checkpoints.taken.iter();
        let taken = taken.find(|taken| taken.epoch == piece.epoch);
        let Some(base) = taken.and_then(|taken| taken.bases.get(&piece.partition)) else {
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
pub(super) mod tests;
