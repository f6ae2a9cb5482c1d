//! Where an order is executed again from: the data directory of a stopped node, or a backup.

use crate::backup::chains::Chain;
use crate::backup::format::Tip;
use crate::backup::moment::{Moment, find, shown};
use crate::backup::objects::Objects;
use crate::backup::restore::{self, OtherOrder, states_of};
use anyhow::{Context, Result, bail};
use bytes::Bytes;
use log::Journal;
use node::cluster::restore::{CheckpointState, KeptOrder, Replay};
use order::{PartitionMap, Skips};
use server::cluster::identity::Identity;
use server::disk::{DirectoryError, RealDisk};
use server::skips;
use std::path::Path;
use std::sync::Arc;
use txn::{Epoch, Registry};

/// Checkpoints, and the order behind the first of them.
pub struct Source {
    /// What each says of the partitions, in their order; the oldest checkpoint first. There is at least one.
    /// That of epoch 0 is the empty database.
    pub checkpoints: Vec<Vec<CheckpointState>>,
    /// The end of the order.
    pub end: Tip,
    /// Epochs behind the end that a node has and does not know to be agreed.
    pub unagreed: u64,
    order: Order,
}

enum Order {
    Directory { disk: RealDisk, kept: KeptOrder, skips: Arc<Skips> },
    Backup { objects: Objects, chain: Chain },
}

/// The place of a checkpoint in the order.
pub fn tip_of(states: &[CheckpointState]) -> Tip {
    let first = states.first();
    first.map_or(Tip { epoch: 0, time_ms: 0, digest: 0 }, |state| Tip {
        epoch: state.epoch.0,
        time_ms: state.time_ms,
        digest: state.digest,
    })
}

impl Source {
    /// A data directory, in which nothing is changed. While the source lives, no process can write there.
    pub fn of_directory(dir: &Path) -> Result<Source> {
        let disk = match RealDisk::open_to_read(dir) {
            Err(error @ DirectoryError::InUse { .. }) => {
                return Err(error).context(
                    "a log that a server appends to is not read: stop the server, or replay from a backup \
                     (--from)",
                );
            }
            opened => opened?,
        };
        let (images, report) = Journal::read(&disk)?;
        if report.created {
            bail!("{} has no log: give the data directory of a node (--dir)", dir.display());
        }
        if let Some(cut) = &report.cut {
            eprintln!("the last {} bytes of the log were never synced, and are left out", cut.bytes);
        }
        let first = Identity::load(dir)?.map_or_else(PartitionMap::alone, |identity| identity.first);
        let kept = KeptOrder::of(&images, &first)?;
        let checkpoints: Vec<Vec<CheckpointState>> = kept.checkpoints().collect();
        let mut end = tip_of(&checkpoints[0]);
        for batches in kept.behind(Epoch(end.epoch)) {
            end = end.after(batches)?;
            let here = checkpoints.iter().map(|states| tip_of(states)).find(|tip| tip.epoch == end.epoch);
            if here.is_some_and(|here| here.digest != end.digest) {
                return Err(OtherOrder(end.epoch).into());
            }
        }
        let (unagreed, skips) = (kept.unagreed(), Arc::new(skips::load(dir)?));
        Ok(Source { checkpoints, end, unagreed, order: Order::Directory { disk, kept, skips } })
    }

    /// A chain of a backup: the one of this number, or the last one that leads to a moment.
    pub fn of_backup(url: &str, moment: Moment, number: Option<u32>) -> Result<Source> {
        let objects = Objects::open(url, None)?;
        let chain = find(&objects, moment, number)?.chain;
        let mut checkpoints = Vec::new();
        for &epoch in &chain.checkpoints {
            checkpoints.push(states_of(&chain.manifest(&objects, epoch)?)?);
        }
        let end = chain.end(&objects)?.context("the chain of the backup is empty")?;
        Ok(Source { checkpoints, end, unagreed: 0, order: Order::Backup { objects, chain } })
    }

    /// Loads the checkpoint of an epoch.
    pub fn begin(&self, epoch: u64) -> Result<Replay> {
        match &self.order {
            Order::Directory { disk, kept, skips } => {
                let mut registry = Registry::new();
                redis_surface::register(&mut registry)?;
                Ok(kept.begin(disk, Epoch(epoch), registry, skips.clone())?)
            }
            Order::Backup { objects, chain } => restore::begin(objects, chain, epoch),
        }
    }

    /// Walks over the order behind a checkpoint. `take` gets each epoch's end and batches, until it says that
    /// it has enough.
    pub fn walk(&self, from: Tip, take: &mut dyn FnMut(&Tip, &[Bytes]) -> Result<bool>) -> Result<()> {
        match &self.order {
            Order::Directory { kept, .. } => {
                let mut tip = from;
                for batches in kept.behind(Epoch(from.epoch)) {
                    tip = tip.after(batches)?;
                    if !take(&tip, batches)? {
                        break;
                    }
                }
                Ok(())
            }
            Order::Backup { objects, chain } => chain.walk(objects, from, take).map(|_| ()),
        }
    }

    /// Holds the order and the state digest against the checkpoint of the same epoch, if there is one; and
    /// the entries, if that is wanted. Says whether the state is known to be that of the checkpoint.
    pub fn check(&self, replay: &Replay, with_entries: bool) -> Result<bool> {
        let epoch = replay.end().epoch;
        let here = self.checkpoints.iter().find(|states| states.iter().any(|state| state.epoch == epoch));
        let Some(states) = here else { return Ok(false) };
        let is_known = restore::hold_against(replay, states)?;
        if with_entries && self.begin(epoch.0)?.content_digest() != replay.content_digest() {
            bail!("the checkpoint of epoch {} has other entries than the order leads to", epoch.0);
        }
        Ok(is_known || with_entries)
    }

    /// The last epoch that is not behind a moment.
    ///
    /// # Errors
    /// The order does not have it.
    pub fn epoch_at(&self, moment: Moment) -> Result<u64> {
        let epoch = match moment {
            Moment::Newest => self.end.epoch,
            Moment::Epoch(epoch) => epoch,
            Moment::Time(time_ms) => {
                let tips = self.checkpoints.iter().rev().map(|states| tip_of(states));
                let Some(from) = tips.into_iter().find(|tip| tip.time_ms <= time_ms) else {
                    bail!("nothing is known of {}: {}", shown(time_ms), self.extent());
                };
                let mut last = from.epoch;
                self.walk(from, &mut |tip, _| {
                    let is_in = tip.time_ms <= time_ms;
                    if is_in {
                        last = tip.epoch;
                    }
                    Ok(is_in)
                })?;
                last
            }
        };
        if epoch > self.end.epoch {
            bail!("epoch {epoch} is behind the end of the order: {}", self.extent());
        }
        if epoch <= tip_of(&self.checkpoints[0]).epoch {
            bail!("epoch {epoch} is not behind the oldest checkpoint that is kept: {}", self.extent());
        }
        Ok(epoch)
    }

    /// The epochs that can be executed again, in words.
    pub fn extent(&self) -> String {
        let checkpoints: Vec<Tip> = self.checkpoints.iter().map(|states| tip_of(states)).collect();
        let (first, end) = (checkpoints[0], self.end);
        let names: Vec<String> = checkpoints
            .iter()
            .map(|tip| match tip.epoch {
                0 => "the empty database of epoch 0".to_owned(),
                epoch => epoch.to_string(),
            })
            .collect();
        let mut text = match end.epoch > first.epoch {
            true => {
                format!("epochs {} to {} (until {}) are here", first.epoch + 1, end.epoch, shown(end.time_ms))
            }
            false => "no epoch is here".to_owned(),
        };
        text.push_str(&format!("; checkpoints: {}", names.join(", ")));
        if let Order::Backup { chain, .. } = &self.order {
            text.push_str(&format!(
                "; this is chain {} of the backup: 'ordo backup list' shows all, and --chain names one",
                chain.number
            ));
        }
        if self.unagreed > 0 {
            text.push_str(&format!(
                "; {} more epochs are left out, because this node's log does not say that a majority has \
                 them",
                self.unagreed
            ));
        }
        text
    }
}
