//! The order as the data directory of a stopped node has it: checkpoints, and the batches behind them.
//!
//! Of a node that stands alone, all that its journal has counts. Of a node of a cluster, what the journal
//! says to be agreed counts, in all groups: a batch behind that may have been replaced since. A node that
//! keeps some of the partitions only has not the whole order, and is refused.

use super::super::base::{BadBase, BaseState, first_base};
use super::super::candidates::{candidate, log_begin_bases};
use super::super::checkpoint::{LoadError, load};
use super::super::stands_alone;
use super::{CheckpointState, Replay, ReplayError};
use bytes::Bytes;
use log::{Base, Disk, GroupImages};
use order::{GroupBatch, PartitionMap, Skips};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{Epoch, PartitionId, Registry};

/// Why a directory has no order that could be executed again.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// It has a part of the partitions.
    #[error(
        "this node keeps no log of {}, and an order is executed again with all partitions: use the directory \
         of a node that keeps all, or a backup", list(.0)
    )]
    Partial(Vec<PartitionId>),
    /// The journal names checkpoints that cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] LoadError),
    /// A log has a gap.
    #[error("the log of {partition} has no batch of epoch {}: a bug of Ordo, please report it", epoch.0)]
    Gap {
        /// The group whose log it is.
        partition: PartitionId,
        /// The first epoch that is missing.
        epoch: Epoch,
    },
}

impl From<BadBase> for KeptError {
    fn from(error: BadBase) -> KeptError {
        KeptError::Checkpoint(error.into())
    }
}

fn list(partitions: &[PartitionId]) -> String {
    let all: Vec<String> = partitions.iter().map(PartitionId::to_string).collect();
    all.join(", ")
}

/// The part of the order that a directory has.
///
/// Guarantees: (1) the epochs of `batches` follow each other, and each has a batch of every group; (2) they
/// begin behind the first of `checkpoints`, and no checkpoint is behind the last of them.
#[derive(Debug)]
pub struct KeptOrder {
    /// Oldest first: at least one.
    checkpoints: Vec<Checkpoint>,
    batches: Vec<Vec<Bytes>>,
    unagreed: u64,
}

/// A checkpoint of all partitions. That of epoch 0 is the empty database, and has no files.
#[derive(Debug)]
struct Checkpoint {
    bases: BTreeMap<PartitionId, Base>,
    /// In the order of the partitions.
    states: Vec<BaseState>,
}

impl Checkpoint {
    fn of(
        epoch: Epoch,
        bases: BTreeMap<PartitionId, Base>,
        first: &PartitionMap,
    ) -> Result<Checkpoint, KeptError> {
        let known = bases.first_key_value().map(|(&partition, base)| read_state(partition, base));
        let map = known.transpose()?.map_or_else(|| first.clone(), |state| state.map);
        let is_missing = |partition: &PartitionId| epoch > Epoch(0) && !bases.contains_key(partition);
        let missing: Vec<PartitionId> = map.partition_ids().filter(is_missing).collect();
        if !missing.is_empty() {
            return Err(KeptError::Partial(missing));
        }
        let state = |partition| match bases.get(&partition) {
            Some(base) => read_state(partition, base),
            None => Ok(first_base(first, partition).1),
        };
        let states = map.partition_ids().map(state).collect::<Result<_, _>>()?;
        Ok(Checkpoint { bases, states })
    }

    fn epoch(&self) -> Epoch {
        self.states.first().map_or(Epoch(0), |state| state.epoch)
    }
}

fn read_state(partition: PartitionId, base: &Base) -> Result<BaseState, BadBase> {
    BaseState::decode(&base.state).ok_or(BadBase(partition))
}

/// The part of a group's log that the journal has.
struct Log {
    /// The batches of the epochs behind the first checkpoint.
    batches: Vec<Bytes>,
    /// How many of them are agreed.
    agreed: usize,
}

impl Log {
    fn of(images: &GroupImages, partition: PartitionId, begin: Epoch, alone: bool) -> Result<Log, KeptError> {
        let image = images.get(&partition).ok_or_else(|| KeptError::Partial(vec![partition]))?;
        let mut log = Log { batches: Vec::new(), agreed: 0 };
        for entry in &image.entries {
            // Entries that are no batches have no epoch, and those of older epochs are in the checkpoint.
            let Some(found) = GroupBatch::epoch_of(&entry.data).filter(|&epoch| epoch > begin) else {
                continue;
            };
            let epoch = Epoch(begin.0 + 1 + log.batches.len() as u64);
            if found != epoch {
                return Err(KeptError::Gap { partition, epoch });
            }
            log.batches.push(entry.data.clone());
            if alone || entry.index <= image.hard_state.commit {
                log.agreed = log.batches.len();
            }
        }
        Ok(log)
    }
}

impl KeptOrder {
    /// Reads what the journal has. `first` is the map that the cluster was founded with.
    pub fn of(images: &GroupImages, first: &PartitionMap) -> Result<KeptOrder, KeptError> {
        let alone = stands_alone(images);
        let begin = log_begin_bases(images)?;
        let newest = candidate(images).filter(|(epoch, _)| *epoch > begin.epoch);
        let mut checkpoints = vec![Checkpoint::of(begin.epoch, begin.bases, first)?];
        if let Some((epoch, bases)) = newest {
            checkpoints.push(Checkpoint::of(epoch, bases, first)?);
        }
        let mut logs = Vec::new();
        for partition in (0..).map(PartitionId).take(checkpoints[0].states.len()) {
            logs.push(Log::of(images, partition, begin.epoch, alone)?);
        }
        let agreed = logs.iter().map(|log| log.agreed).min().unwrap_or(0);
        let held = logs.iter().map(|log| log.batches.len()).min().unwrap_or(0);
        let batches = (0..agreed).map(|place| logs.iter().map(|log| log.batches[place].clone()).collect());
        let batches: Vec<Vec<Bytes>> = batches.collect();
        let end = begin.epoch.0 + agreed as u64;
        checkpoints.retain(|checkpoint| checkpoint.epoch().0 <= end);
        Ok(KeptOrder { checkpoints, batches, unagreed: (held - agreed) as u64 })
    }

    /// What each checkpoint says of the partitions, in their order; the oldest checkpoint first. That of
    /// epoch 0 is the empty database.
    pub fn checkpoints(&self) -> impl Iterator<Item = Vec<CheckpointState>> {
        let all = self.checkpoints.iter();
        all.map(|checkpoint| checkpoint.states.iter().cloned().map(CheckpointState::from).collect())
    }

    /// How many epochs are left out at the end, because the journal of a node of a cluster does not say that
    /// they are agreed.
    pub fn unagreed(&self) -> u64 {
        self.unagreed
    }

    /// The batches of all groups of each epoch behind this one, which is not before the first checkpoint.
    pub fn behind(&self, epoch: Epoch) -> impl Iterator<Item = &[Bytes]> {
        let skipped = epoch.0.saturating_sub(self.checkpoints[0].epoch().0);
        self.batches.iter().skip(skipped as usize).map(Vec::as_slice)
    }

    /// Loads the checkpoint of an epoch.
    ///
    /// # Errors
    /// There is none, or its files cannot be used.
    pub fn begin<D: Disk>(
        &self,
        disk: &D,
        epoch: Epoch,
        registry: Registry,
        skips: Arc<Skips>,
    ) -> Result<Replay, ReplayError> {
        let found = self.checkpoints.iter().find(|checkpoint| checkpoint.epoch() == epoch);
        let Checkpoint { bases, states } = found.ok_or(ReplayError::Gap(epoch))?;
        Replay::behind(states.clone(), registry, skips, |partition, _, engine| {
            if let Some(base) = bases.get(&partition) {
                load(disk, partition, base, engine, &mut || {})?;
            }
            Ok(())
        })
    }
}
