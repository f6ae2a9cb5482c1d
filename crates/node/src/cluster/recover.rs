//! From what the journal and the checkpoints hold to a running node.

use super::base::{BadBase, CANDIDATES, IDENTITY, first_base, read_base};
use super::bootstrap::Bootstrap;
use super::candidates::{self, log_begin_bases, newest_bases};
use super::checkpoint::{self, LoadError};
use super::checkpoints::Checkpoints;
use super::levels::{TooOld, check_level};
use super::machine::{Beginning, ClusterNode};
use super::options::ClusterOptions;
use super::retired::retired;
use super::shape::held;
use crate::schedule::Schedule;
use agree::{Group, SoloGroup};
use execute::Engine;
use log::{Disk, GroupImages};
use order::merge::{EpochEnd, Merge, Start};
use order::{GroupBatch, PartitionMap};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::codec::RequestError;
use txn::{Epoch, PartitionId, Registry, RequestName};

/// Between two words on the progress of loading so many records go by.
const TOLD_EVERY: u64 = 4096;

/// What a node starts from.
pub struct ClusterStart {
    /// The cluster's first map: what counts if nothing was kept.
    pub map: PartitionMap,
    /// The newest map that this node has heard of, or the first one: by it it knows what it keeps.
    pub known: Arc<PartitionMap>,
    /// What the journal has of each group.
    pub images: GroupImages,
    /// An engine for each partition of which this node keeps a replica, loaded from its checkpoint if there
    /// is one: what [`load_engines`] makes.
    pub engines: BTreeMap<PartitionId, Arc<dyn Engine>>,
    /// The size of the checkpoint that they were loaded from; 0 without one.
    pub checkpoint_bytes: u64,
    /// The newest checkpoint that the journal tells of could not be used, and is left out.
    pub unusable: bool,
    /// What no other process has.
    pub nonce: u64,
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ClusterRecoverError {
    /// The log of a group cannot be used.
    #[error("{0}: restore the directory from a backup, or replace this node by a new one")]
    Group(String),
    /// An entry cannot be read.
    #[error(
        "entry {index} of the log of {partition} cannot be read: {cause}: start the version of Ordo that \
         wrote it, or a newer one"
    )]
    Entry {
        /// Whose.
        partition: PartitionId,
        /// Which.
        index: u64,
        /// Why.
        cause: RequestError,
    },
    /// What a base says of the state cannot be read.
    #[error(transparent)]
    Base(#[from] BadBase),
    /// The cluster goes by something that this build does not know.
    #[error(transparent)]
    Level(#[from] TooOld),
    /// What the journal says of checkpoints cannot be used.
    #[error("{0}")]
    Checkpoint(LoadError),
    /// A request is to be skipped that was executed.
    #[error("{}", skips_too_late(.0))]
    SkipsTooLate(RequestName),
    /// What the journal says of its disk cannot be read.
    #[error("what the journal says of its own disk cannot be read: start the version that wrote it")]
    Identity,
}

/// Why a request cannot be skipped any more.
fn skips_too_late(name: &RequestName) -> String {
    format!(
        "request {name} cannot be skipped: the checkpoint in this directory was made behind it, so this \
         node has executed it. Nothing was changed. Start without it (leave --skip out); a request that \
         ends the process that executes it is behind the newest checkpoint, and 'ordo admin requests' \
         lists those. If other nodes of the cluster skip it, this node must be replaced by a new one"
    )
}

/// The engines of a process that starts.
pub struct LoadedEngines {
    /// One for each partition of which the node keeps a replica.
    pub engines: BTreeMap<PartitionId, Arc<dyn Engine>>,
    /// The size of the checkpoint that they were loaded from; 0 without one.
    pub checkpoint_bytes: u64,
    /// Why the newest checkpoint was left out, if a node that stands alone fell back on the one before it.
    pub unusable: Option<LoadError>,
    /// The newest checkpoint that is newer than the end of the log of a node that stands alone, and was put
    /// aside, and that end.
    pub newer: Option<(Epoch, Epoch)>,
}

/// Makes an engine for each partition that a node is to keep, and for each of which the journal knows
/// something, loaded from the checkpoint that the journal tells of; removes what older processes left.
///
/// Where there is a checkpoint, a partition that is not in it gets no engine: it would begin before the
/// others. The node fetches it once it runs. Nor does one whose replica has moved away.
///
/// A node that stands alone keeps its log from the checkpoint before the newest on: if that one cannot be
/// used, it begins behind the older one, and executes more of the log.
///
/// `make_engine` makes an empty engine; it is called again if a damaged checkpoint was half loaded. `tell` is
/// told now and then how many records were loaded.
pub fn load_engines<D: Disk>(
    disk: &D,
    mut kept: BTreeSet<PartitionId>,
    images: &GroupImages,
    alone: bool,
    make_engine: &dyn Fn(PartitionId) -> Arc<dyn Engine>,
    tell: &mut dyn FnMut(u64),
) -> Result<LoadedEngines, LoadError> {
    kept.extend(images.keys().filter(|&&partition| partition < CANDIDATES));
    let begin = newest_bases(images)?;
    let mut began = begin.epoch;
    let mut unusable = None;
    let (engines, checkpoint_bytes) = match load_behind(disk, &kept, &begin, make_engine, tell) {
        Err(error @ LoadError::File { .. }) if alone && candidates::starts_behind_candidate(images) => {
            let older = log_begin_bases(images)?;
            let loaded = load_behind(disk, &kept, &older, make_engine, tell)?;
            checkpoint::put_aside(disk, &kept, began);
            (began, unusable) = (older.epoch, Some(error));
            loaded
        }
        loaded => loaded?,
    };
    let mut newer = None;
    if alone {
        let entries = images.range(..CANDIDATES).flat_map(|(_, image)| &image.entries);
        let end = entries.filter_map(|entry| GroupBatch::epoch_of(&entry.data)).max();
        let end = end.unwrap_or_default().max(begin.epoch);
        // What cannot be put aside now is removed.
        let newest = checkpoint::put_newer_aside(disk, end).unwrap_or_default();
        newer = newest.map(|newest| (newest, end));
    }
    let mut needed = candidates::log_bases(images);
    needed.insert(began);
    if unusable.is_none() {
        needed.extend(candidates::candidate(images).map(|(epoch, _)| epoch));
    }
    // What cannot be removed now is removed later.
    let _ = checkpoint::prune_at_start(disk, &needed);
    Ok(LoadedEngines { engines, checkpoint_bytes, unusable, newer })
}

type Loaded = BTreeMap<PartitionId, Arc<dyn Engine>>;

/// Engines that hold what a checkpoint does, and the size of its files.
fn load_behind<D: Disk>(
    disk: &D,
    kept: &BTreeSet<PartitionId>,
    begin: &candidates::Begin,
    make_engine: &dyn Fn(PartitionId) -> Arc<dyn Engine>,
    tell: &mut dyn FnMut(u64),
) -> Result<(Loaded, u64), LoadError> {
    let mut engines = Loaded::new();
    let mut checkpoint_bytes = 0;
    let mut records = 0;
    let kept = kept.iter().chain(begin.bases.keys()).copied();
    for partition in kept.filter(|&kept| begin.has(kept)).collect::<BTreeSet<_>>() {
        let engine = make_engine(partition);
        if let Some(base) = begin.bases.get(&partition) {
            let tell = &mut || {
                records += 1;
                if records % TOLD_EVERY == 0 {
                    tell(records);
                }
            };
            checkpoint_bytes += checkpoint::load(disk, partition, base, &engine, tell)?;
        }
        engines.insert(partition, engine);
    }
    Ok((engines, checkpoint_bytes))
}

impl ClusterNode {
    /// A node that goes on where its files end. What was agreed is executed again; the rest is known once a
    /// leader says so.
    pub fn recover(
        options: ClusterOptions,
        registry: Registry,
        mut start: ClusterStart,
    ) -> Result<ClusterNode, ClusterRecoverError> {
        let me = options.me;
        let identity = start.images.remove(&IDENTITY);
        let has_groups = !start.images.is_empty();
        let bootstrap = Bootstrap::recover(me, &start.map, identity, has_groups, start.nonce)
            .ok_or(ClusterRecoverError::Identity)?;
        let begin = match start.unusable {
            true => log_begin_bases(&start.images),
            false => newest_bases(&start.images),
        };
        let begin = begin.map_err(ClusterRecoverError::Checkpoint)?;
        if let Some(&partition) = start.engines.keys().find(|&&kept| !begin.has(kept)) {
            let epoch = begin.epoch;
            let uneven = LoadError::Uneven { partition, epoch };
            return Err(ClusterRecoverError::Checkpoint(uneven));
        }
        let (began, bases) = (begin.epoch, begin.bases);
        let found = candidates::candidate(&start.images);
        let unusable = found.as_ref().filter(|_| start.unusable).map(|(epoch, _)| *epoch);
        let candidate = found.filter(|_| !start.unusable);
        let retired = retired(&start.images);
        start.images.remove(&CANDIDATES);
        let mut log_begin = Epoch(u64::MAX);
        let mut groups: BTreeMap<PartitionId, Box<dyn Group>> = BTreeMap::new();
        let mut states = BTreeMap::new();
        let mut logs = BTreeMap::new();
        for &partition in start.engines.keys() {
            let image = start.images.remove(&partition).unwrap_or_default();
            let (base, begin) = read_base(&start.map, partition, Some(&image.base))?;
            let (newest, state) = read_base(&start.map, partition, bases.get(&partition))?;
            log_begin = log_begin.min(begin.epoch);
            states.insert(partition, (state, (newest.index, newest.term)));
            let commit = image.hard_state.commit;
            if options.alone {
                let last = image.entries.last().map_or(base.index, |entry| entry.index);
                let group = SoloGroup::new(me, partition, base, last, image.hard_state);
                groups.insert(partition, Box::new(group));
                logs.insert(partition, (image.entries, commit));
                continue;
            }
            logs.insert(partition, (image.entries.clone(), commit));
            let (entries, hard_state) = (image.entries, image.hard_state);
            let (seed, trail_bytes_max) = (options.seed, options.trail_bytes_max);
            let delivery = options.delivery;
            let group = delivery.group(me, partition, base, entries, hard_state, seed, trail_bytes_max);
            groups.insert(partition, group.map_err(ClusterRecoverError::Group)?);
        }
        // They are of one epoch: they are kept in one record.
        let (first, _) = states.values().next().cloned().unwrap_or_else(|| {
            let (_, state) = first_base(&start.map, PartitionId(0));
            (state, (0, 0))
        });
        let map = first.map.clone();
        check_level(&map, options.level)?;
        // Also behind a checkpoint that others may ask for, and that this process does not begin with.
        let taken = candidate.as_ref().map_or(first.epoch, |(epoch, _)| first.epoch.max(*epoch));
        if let Some(name) = options.skips.too_late(taken) {
            return Err(ClusterRecoverError::SkipsTooLate(name));
        }
        let end = EpochEnd {
            epoch: first.epoch,
            time_ms: first.time_ms,
            digest: first.digest,
            next: states.values().map(|(state, _)| state.next).collect(),
            map: Arc::new(map.clone()),
            changes: Vec::new(),
        };
        let mut merge = Merge::new(Start {
            local: start.engines.keys().copied().collect(),
            end,
            groups: map
                .partition_ids()
                .map(|partition| {
                    let known = states.get(&partition);
                    known.map_or_else(Default::default, |(state, place)| (state.streams.clone(), *place))
                })
                .collect(),
            skips: options.skips.clone(),
        });
        for (partition, (entries, commit)) in logs {
            for entry in entries {
                if let Some(held) = held(&entry).map_err(|cause| {
                    let index = entry.index;
                    ClusterRecoverError::Entry { partition, index, cause }
                })? && held.epoch > merge.confirmed().epoch
                {
                    merge.appended(partition, held);
                }
            }
            merge.agreed(partition, commit);
        }
        let epoch = merge.confirmed().epoch;
        let log_begin = log_begin.min(epoch);
        let schedule = Schedule::new(options.checkpoint_bytes, start.checkpoint_bytes);
        let checkpoints = Checkpoints::new((began, bases), log_begin, candidate, unusable, schedule);
        Ok(ClusterNode::new(
            options,
            registry,
            merge,
            groups,
            start.engines,
            Beginning {
                nonce: start.nonce,
                bootstrap,
                first_map: start.map,
                known: start.known,
                checkpoints,
                retired,
            },
        ))
    }
}
