//! A new database out of an old one's checkpoint and of the order behind it (`ordo restore`).
//!
//! [`Replay`] executes the order as every replica does: the same merge, and an engine for each partition that
//! the old database had. So transactions over several partitions, changes of the map and corrections of the
//! clock mean what they meant, and where the checkpoint knows the state digest, the digest at any later epoch
//! is that of every replica.
//!
//! [`write_node`] makes data directories of what the engines hold, for any other number of nodes and
//! partitions: a checkpoint for each partition that a node keeps, and a journal of one record whose bases
//! stand behind it. An ordinary start reads them. What belongs to which partition follows from the slots of
//! the keys; of the system's space, what has no slot is in every partition.
//!
//! The new database goes on with the next epoch and with the old time, so that no time to live changes. It
//! has a number of its own, and no process that has written to the old one is known to it.
//!
//! [`Replay::execute_for_changes`] also gives what each transaction has changed, for `ordo export`.
//! [`Replay::execute_and_trace`] shows one of them, for `ordo replay`, which finds the order of a stopped
//! node in a [`KeptOrder`].

mod changes;
mod kept;
mod trace;

pub use changes::{ChangedKey, Removal, ReplayedTransaction};
pub use kept::{KeptError, KeptOrder};
pub use trace::{Execution, Looked, Trace, TracedEpoch, Wanted, Write};

use super::base::{BadBase, BaseState};
use super::bootstrap::founding_record;
use super::checkpoint::{LoadError, file_name, unfinished_name};
use super::levels::{COMPARES_STATES, LEVEL, TooOld, check_level};
use super::shape::held_batch;
use bytes::Bytes;
use execute::siblings::{Twins, exchange};
use execute::{Assignment, Budget, Committed, Effects, Engine, EngineKind, Progress, WorkerId};
use log::{Base, Disk, DiskFile, FileWriter, HardState, Journal, Kept, Members, OpenError};
use order::merge::{EpochEnd, Merge, Start, Unreadable};
use order::{PartitionMap, Skips};
use std::collections::BTreeSet;
use std::io::{self, BufWriter, Read};
use std::sync::Arc;
use store::checkpoint::{CheckpointError, Header, Writer};
use store::{Image, Noted, View, digest};
use txn::codec::RequestError;
use txn::hash::mix;
use txn::{Batch, BootId, Epoch, Key, NodeId, PartitionId, Position, Registry, RequestName, Space, slots};

/// The worker that executes: there is one.
const WORKER: WorkerId = WorkerId(0);
/// Behind every so many epochs, so many records are looked at for old versions.
const COLLECT_EPOCHS: u64 = 128;
const COLLECT_RECORDS: usize = 1 << 16;
const IMAGES_PER_STEP: usize = 512;
const BUFFER_BYTES: usize = 256 << 10;

/// What a checkpoint's base says of the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointState {
    /// The epoch at whose end the checkpoint is.
    pub epoch: Epoch,
    /// That epoch's time, in milliseconds since 1970.
    pub time_ms: u64,
    /// The order's chained digest.
    pub digest: u64,
    /// The partition's next position.
    pub next: Position,
    /// The partition's state digest, if it is known.
    pub state_digest: Option<u64>,
    /// The map.
    pub map: PartitionMap,
}

impl From<BaseState> for CheckpointState {
    fn from(state: BaseState) -> CheckpointState {
        let BaseState { epoch, time_ms, digest, next, map, state_digest, .. } = state;
        CheckpointState { epoch, time_ms, digest, next, state_digest, map }
    }
}

impl CheckpointState {
    /// What a base of a partition says.
    ///
    /// # Errors
    /// Another version of Ordo wrote it.
    pub fn of(partition: PartitionId, base: &Base) -> Result<CheckpointState, BadBase> {
        BaseState::decode(&base.state).map(CheckpointState::from).ok_or(BadBase(partition))
    }
}

/// Why an order cannot be executed again.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The checkpoint cannot be used.
    #[error(transparent)]
    Base(#[from] BadBase),
    /// A checkpoint's file is damaged.
    #[error("the checkpoint of {0} cannot be used: {1}")]
    Checkpoint(PartitionId, CheckpointError),
    /// A checkpoint in a data directory cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Files of several checkpoints are mixed.
    #[error("the checkpoint of {0} is of another place in the order than the others")]
    Uneven(PartitionId),
    /// The database goes by something that this build does not know.
    #[error(transparent)]
    Level(#[from] TooOld),
    /// A batch cannot be read.
    #[error(
        "a batch of {partition} at epoch {} cannot be read: {cause}: use the version of Ordo that wrote it",
        epoch.0
    )]
    Batch {
        /// Of which group.
        partition: PartitionId,
        /// Of which epoch.
        epoch: Epoch,
        /// Why.
        cause: RequestError,
    },
    /// A batch of another epoch than the next one, or a wrong number of batches.
    #[error("the order has a gap behind epoch {}", .0.0)]
    Gap(Epoch),
    /// The engines stand still.
    #[error("the transactions of epoch {} do not end: a bug of Ordo, please report it", .0.0)]
    Stuck(Epoch),
    /// The partitions have put the epoch's transactions into orders that contradict each other.
    #[error("the transactions of epoch {} are in no order: a bug of Ordo, please report it", .0.0)]
    NoOrder(Epoch),
    /// A transaction that is different at each of its partitions.
    #[error("the request {0} moves the records of slots to another partition: only its place can be shown")]
    NotShown(RequestName),
    /// A transaction tells that it wrote a key of a partition in which it was not executed.
    #[error("the request {0} wrote a key outside of its partitions: a bug of Ordo, please report it")]
    Misplaced(RequestName),
}

/// An order that is executed again.
pub struct Replay {
    merge: Merge,
    registry: Registry,
    engines: Vec<(PartitionId, Arc<dyn Engine>)>,
    twins: Twins,
}

/// What a replayed transaction replied is nobody's any more.
struct NoReplies;

impl Effects for NoReplies {
    fn committed(&mut self, _: Committed) {}
}

impl Replay {
    /// Begins behind a checkpoint of all partitions: their bases, in order. `open` gives the bytes of a
    /// partition's file.
    pub fn begin<R: Read>(
        bases: &[Base],
        registry: Registry,
        skips: Arc<Skips>,
        open: &mut dyn FnMut(PartitionId) -> io::Result<R>,
    ) -> Result<Replay, ReplayError> {
        let mut states = Vec::new();
        for (partition, base) in (0..).map(PartitionId).zip(bases) {
            states.push(BaseState::decode(&base.state).ok_or(BadBase(partition))?);
        }
        Replay::behind(states, registry, skips, |partition, state, engine| {
            let view = engine.view();
            let input = open(partition).map_err(|error| ReplayError::Checkpoint(partition, error.into()))?;
            let header = store::checkpoint::read(input, |image| view.load(image))
                .map_err(|error| ReplayError::Checkpoint(partition, error))?;
            if (header.epoch, header.position.next(), header.digest)
                != (state.epoch, state.next, state.digest)
            {
                return Err(ReplayError::Uneven(partition));
            }
            view.loaded(header.position, header.time_ms, &header.clears);
            view.digests().load(header.position, state.state_digest);
            Ok(())
        })
    }

    /// Begins behind these states of all partitions, in order. `load` loads each into an empty engine.
    fn behind(
        states: Vec<BaseState>,
        registry: Registry,
        skips: Arc<Skips>,
        mut load: impl FnMut(PartitionId, &BaseState, &Arc<dyn Engine>) -> Result<(), ReplayError>,
    ) -> Result<Replay, ReplayError> {
        let first = states.first().cloned().ok_or(BadBase(PartitionId(0)))?;
        check_level(&first.map, LEVEL)?;
        if first.map.partitions.len() != states.len() {
            return Err(ReplayError::Uneven(PartitionId(0)));
        }
        let of = states.len() as u16;
        let mut engines = Vec::new();
        for (partition, state) in (0..).map(PartitionId).zip(&states) {
            if (state.epoch, state.digest) != (first.epoch, first.digest) {
                return Err(ReplayError::Uneven(partition));
            }
            let made_for = Assignment { workers: 1, at_once: 1, partition, of, era: 1 << 16 };
            let engine = EngineKind::Sparkle.make(made_for);
            load(partition, state, &engine)?;
            engines.push((partition, engine));
        }
        let end = EpochEnd {
            epoch: first.epoch,
            time_ms: first.time_ms,
            digest: first.digest,
            next: states.iter().map(|state| state.next).collect(),
            map: Arc::new(first.map),
            changes: Vec::new(),
        };
        let merge = Merge::new(Start {
            local: engines.iter().map(|(partition, _)| *partition).collect(),
            groups: states.into_iter().map(|state| (state.streams, (end.epoch.0, 1))).collect(),
            end,
            skips,
        });
        Ok(Replay { merge, registry, engines, twins: Twins::default() })
    }

    /// Where it stands.
    pub fn end(&self) -> &EpochEnd {
        self.merge.confirmed()
    }

    /// The requests that are not executed.
    pub fn skips(&self) -> &Skips {
        self.merge.skips()
    }

    /// From the next epoch on, this request is not executed, either.
    pub fn skip(&mut self, name: RequestName) {
        self.merge.skip(name);
    }

    /// Each partition's state digest here, where it is known.
    pub fn state_digests(&self) -> Vec<Option<u64>> {
        let digest = |((_, engine), next): (&(PartitionId, Arc<dyn Engine>), &Position)| {
            let noted: Noted = engine.view().digests().note_at(next.prev());
            noted.digest()
        };
        self.engines.iter().zip(&self.end().next).map(digest).collect()
    }

    /// Executes the next epoch: the batches of all groups, in the order of the groups.
    ///
    /// # Errors
    /// They are not the next ones, or this build cannot read them.
    pub fn execute(&mut self, batches: &[Bytes]) -> Result<(), ReplayError> {
        let epoch = self.begin_epoch(batches)?;
        self.step_to_end(epoch, None)?;
        self.end_epoch(epoch);
        Ok(())
    }

    /// Hands the next epoch to the engines, and confirms it.
    fn begin_epoch(&mut self, batches: &[Bytes]) -> Result<Epoch, ReplayError> {
        let epoch = self.deliver(batches, &mut |_, _| {})?;
        self.confirm_upto(&self.end().next);
        Ok(epoch)
    }

    /// Hands the next epoch to the engines, which may execute it, and not yet final-commit it. `see` sees
    /// what each partition gets.
    fn deliver(
        &mut self,
        batches: &[Bytes],
        see: &mut dyn FnMut(PartitionId, &Batch),
    ) -> Result<Epoch, ReplayError> {
        let epoch = Epoch(self.end().epoch.0 + 1);
        if batches.len() != self.engines.len() {
            return Err(ReplayError::Gap(self.end().epoch));
        }
        for (partition, data) in (0..).map(PartitionId).zip(batches) {
            // An epoch has one entry, so its number is as good a place as the entry's.
            let held = held_batch((epoch.0, 1), data);
            let held = held.map_err(|cause| ReplayError::Batch { partition, epoch, cause })?;
            if held.epoch != epoch {
                return Err(ReplayError::Gap(self.end().epoch));
            }
            self.merge.appended(partition, held);
            self.merge.agreed(partition, epoch.0);
        }
        self.merge.read_next(&self.registry).map_err(|Unreadable { group, cause, .. }| {
            ReplayError::Batch { partition: group, epoch, cause }
        })?;
        let delivery = self.merge.deliver(BootId(0)).ok_or(ReplayError::Gap(epoch))?;
        let level_before = self.end().map.level;
        let confirmation = self.merge.confirm().ok_or(ReplayError::Gap(epoch))?;
        let begins_digest = level_before < COMPARES_STATES && confirmation.end.map.level >= COMPARES_STATES;
        for (partition, batch) in delivery.batches {
            see(partition, &batch);
            self.engines[usize::from(partition.0)].1.deliver(batch);
        }
        if begins_digest {
            for ((_, engine), next) in self.engines.iter().zip(&confirmation.end.next) {
                engine.view().digests().begin_at(next.prev());
            }
        }
        Ok(epoch)
    }

    /// Lets the engines final-commit what is before these positions, one for each partition.
    fn confirm_upto(&self, next: &[Position]) {
        for ((_, engine), next) in self.engines.iter().zip(next) {
            if next.prev() > engine.status().confirmed {
                engine.confirm(next.prev());
            }
        }
    }

    /// Executes the epoch that the engines have. `commits` gets what each engine has committed, in the order
    /// of the engines.
    fn step_to_end(&self, epoch: Epoch, commits: Option<&mut [Vec<Committed>]>) -> Result<(), ReplayError> {
        self.step_until_idle(commits);
        let mut ends = self.engines.iter().zip(&self.end().next);
        match ends.all(|((_, engine), next)| engine.view().final_position() == next.prev()) {
            true => Ok(()),
            false => Err(ReplayError::Stuck(epoch)),
        }
    }

    /// Executes whatever the engines can, and final-commits what is confirmed.
    fn step_until_idle(&self, mut commits: Option<&mut [Vec<Committed>]>) {
        let mut sent = Vec::new();
        loop {
            let mut worked = false;
            for (place, (_, engine)) in self.engines.iter().enumerate() {
                let effects: &mut dyn Effects = match &mut commits {
                    Some(commits) => &mut commits[place],
                    None => &mut NoReplies,
                };
                worked |= engine.step(WORKER, Budget::UNBOUNDED, effects) == Progress::Worked;
            }
            worked |= exchange(&self.engines, &self.twins, &mut sent);
            if !worked {
                return;
            }
        }
    }

    /// Lets go of what an epoch needed while it was executed.
    fn end_epoch(&self, epoch: Epoch) {
        for (_, engine) in &self.engines {
            if let Some(siblings) = engine.siblings() {
                siblings.forget(epoch);
            }
            if epoch.0.is_multiple_of(COLLECT_EPOCHS) {
                engine.view().collect(COLLECT_RECORDS);
            }
        }
    }

    /// A digest of all users' entries, their times to live included: the same for the same entries, whatever
    /// the partitions, and however they came about.
    pub fn content_digest(&self) -> u64 {
        let mut sum = 0_u64;
        for (_, engine) in &self.engines {
            let add = &mut |image: Image| {
                if image.key.space() == Space::User && image.entry.is_some() {
                    let term = digest::of_write(&image.key, Position::NONE, image.entry.as_ref());
                    sum = sum.wrapping_add(term);
                }
                Ok(())
            };
            // Nothing is written, so nothing fails.
            let _ = each_image(engine.view(), add);
        }
        sum
    }
}

/// Hands over all records of a partition, at its final position.
fn each_image(view: &dyn View, take: &mut dyn FnMut(Image) -> io::Result<()>) -> io::Result<()> {
    let snapshot = view.open();
    let mut images = Vec::new();
    let mut shard = Some(0);
    let mut taken = Ok(());
    while let Some(from) = shard.filter(|_| taken.is_ok()) {
        shard = view.images_at(&snapshot, from, IMAGES_PER_STEP, &mut images);
        taken = images.drain(..).try_for_each(&mut *take);
    }
    view.close(snapshot);
    taken
}

/// Makes the first map of a new database, with the nodes and partitions of `layout`, that goes on where
/// `end` stands. All who make it of the same get the same, and nodes that have made it of something else, by
/// the digest of what they hold ([`Replay::content_digest`]), belong to another cluster.
pub fn first_map(mut layout: PartitionMap, end: &EpochEnd, content: u64) -> PartitionMap {
    // A server that stands alone has a number that says so.
    if layout.cluster != PartitionMap::alone().cluster {
        layout.cluster = mix(layout.cluster ^ mix(content ^ mix(end.digest ^ mix(end.epoch.0))));
    }
    (layout.level, layout.checkpoint) = (end.map.level, end.epoch);
    layout
}

/// Why a data directory could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] OpenError),
}

/// Writes the files of a node of a new database, whose first map this is, into an empty directory: all that
/// a replay holds. `nonce`, the number of its disk, and `log_boot_id` are numbers that no other directory
/// has. Gives how many records there are.
///
/// Nothing of it counts before the journal has its record, which is written last.
pub fn write_node<D: Disk>(
    disk: &Arc<D>,
    replay: &Replay,
    map: &PartitionMap,
    me: NodeId,
    nonce: u64,
    log_boot_id: u64,
) -> Result<u64, WriteError> {
    let end = replay.end();
    let next = end.next.iter().copied().max().unwrap_or(Position::FIRST);
    let mut kept = vec![founding_record(nonce)];
    let mut records = 0;
    for partition in map.kept_by(me) {
        let header = Header {
            position: next.prev(),
            epoch: end.epoch,
            time_ms: end.time_ms,
            digest: end.digest,
            boot: 0,
            clears: Vec::new(),
        };
        let (state_digest, count) = write_partition(&**disk, replay, map, partition, &header)?;
        records += count;
        let state = BaseState {
            epoch: end.epoch,
            time_ms: end.time_ms,
            digest: end.digest,
            next,
            streams: Default::default(),
            map: map.clone(),
            state_digest: (map.level >= COMPARES_STATES).then_some(state_digest),
        };
        let mut voters: Vec<NodeId> = map.partition(partition).replicas.values().copied().collect();
        voters.sort();
        let base = Base {
            index: end.epoch.0,
            term: 1,
            members: Members { voters, ..Members::default() },
            state: state.encode().into(),
        };
        kept.push(Kept {
            base: Some(base),
            reset: true,
            hard_state: Some(HardState { term: 1, vote: 0, commit: end.epoch.0 }),
            ..Kept::nothing(partition)
        });
    }
    disk.sync_dir()?;
    let (mut journal, ..) = Journal::open(disk.clone(), log::SEGMENT_BYTES_DEFAULT, log_boot_id)?;
    journal.append(&kept)?;
    journal.sync()?;
    Ok(records)
}

/// Writes the checkpoint of a partition of a new database. Gives its state digest, and the number of records.
fn write_partition<D: Disk>(
    disk: &D,
    replay: &Replay,
    map: &PartitionMap,
    partition: PartitionId,
    header: &Header,
) -> io::Result<(u64, u64)> {
    let unfinished = unfinished_name(partition, header.epoch);
    let file = disk.create(&unfinished, 0)?;
    let mut writer = Writer::new(BufWriter::with_capacity(BUFFER_BYTES, FileWriter::new(&file)), header)?;
    let old = &replay.end().map;
    let mut digest = 0_u64;
    let mut everywhere = BTreeSet::new();
    for (source, engine) in &replay.engines {
        each_image(engine.view(), &mut |image| {
            let is_here = image.entry.is_some()
                && match place_of(&image.key) {
                    Belongs::Nowhere => false,
                    Belongs::Everywhere => everywhere.insert(image.key.clone()),
                    Belongs::Slot(slot) => {
                        old.partition_of_slot(slot) == *source && map.partition_of_slot(slot) == partition
                    }
                };
            if !is_here {
                return Ok(());
            }
            let term = digest::of_write(&image.key, image.version, image.entry.as_ref());
            digest = digest.wrapping_add(term);
            writer.push(&image)
        })?;
    }
    let (out, records) = writer.finish()?;
    out.into_inner().map_err(|error| error.into_error())?;
    file.sync()?;
    disk.rename(&unfinished, &file_name(partition, header.epoch))?;
    Ok((digest, records))
}

/// Where a record of a database belongs in one with other partitions.
enum Belongs {
    /// It tells of the old partitions.
    Nowhere,
    /// To each partition: scripts, libraries of functions, users, the clock.
    Everywhere,
    /// To the partition of a slot.
    Slot(u16),
}

fn place_of(key: &Key) -> Belongs {
    match key.space() {
        Space::User => Belongs::Slot(key.slot()),
        Space::System if *key == slots::version_key() => Belongs::Nowhere,
        Space::System => slots::of_system_key(key).map_or(Belongs::Everywhere, Belongs::Slot),
    }
}
