//! `ordo restore`, and the execution of a backup's order that `ordo backup verify` shares with it.

use super::chains::Chain;
use super::format::{FileEntry, Manifest, Tip, piece_name, progress_name};
use super::moment::{Moment, RestorePoint, find, shown};
use super::objects::Objects;
use crate::admin::unguessable;
use anyhow::{Context, Result, bail};
use log::Base;
use node::cluster::restore::{CheckpointState, Replay, first_map, write_node};
use order::{PartitionMap, Skips};
use server::cluster::config::ClusterConfig;
use server::cluster::identity::Identity;
use server::disk::RealDisk;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use txn::{NodeId, PartitionId, Registry};

/// Whose directory is written.
pub enum RestoreTarget {
    /// A server by itself.
    Alone,
    /// A node of a cluster, by the cluster's description and the node's name.
    Node(PathBuf, String),
}

/// Makes a data directory of a backup.
pub fn run(
    objects: &Objects,
    at: Moment,
    chain: Option<u32>,
    dir: &Path,
    target: &RestoreTarget,
) -> Result<()> {
    let dir = &new_directory(dir)?;
    let (layout, me) = match target {
        RestoreTarget::Alone => (PartitionMap::alone(), NodeId(1)),
        RestoreTarget::Node(path, name) => {
            let Moment::Epoch(_) = at else {
                bail!(
                    "the nodes of a cluster need the same moment: give all of them one epoch's number with \
                     --at ('ordo backup list' has the epochs)"
                );
            };
            let config = ClusterConfig::load(path)?;
            let map = config.map()?;
            let found = map.nodes.iter().find(|(_, entry)| entry.name == *name).map(|(node, _)| *node);
            let me = found.with_context(|| format!("{} has no founder '{name}'", path.display()))?;
            (map, me)
        }
    };
    let found = find(objects, at, chain)?;
    let mut replay = begin(objects, &found.chain, found.from.epoch)?;
    let tip = go_on(objects, &found, &mut replay)?;
    let end = replay.end();
    if (end.epoch.0, end.digest) != (tip.epoch, tip.digest) {
        bail!("the order that was executed is not the one of the backup: a bug of Ordo, please report it");
    }
    check_state(objects, &found.chain, &replay)?;
    let content = replay.content_digest();
    let map = first_map(layout, end, content);
    // A restore that is interrupted leaves nothing that a server would start with.
    let mut unfinished = dir.as_os_str().to_owned();
    unfinished.push(".unfinished-restore");
    let unfinished = PathBuf::from(unfinished);
    if unfinished.exists() {
        std::fs::remove_dir_all(&unfinished)
            .with_context(|| format!("what an interrupted restore left in {}", unfinished.display()))?;
    }
    let disk = Arc::new(RealDisk::open(&unfinished)?);
    let (nonce, log_boot_id) = (unguessable(), unguessable());
    let records = write_node(&disk, &replay, &map, me, nonce, log_boot_id)?;
    drop(disk);
    if let RestoreTarget::Node(..) = target {
        Identity { node: me, first: map.clone(), map }.save(&unfinished)?;
    }
    std::fs::rename(&unfinished, dir)
        .with_context(|| format!("{} cannot become {}", unfinished.display(), dir.display()))?;
    println!(
        "{}: {records} records, as they were at the end of epoch {} ({}); content digest {:016x}",
        dir.display(),
        tip.epoch,
        shown(tip.time_ms),
        content
    );
    Ok(())
}

/// The directory that is to be made, without a slash at its end.
///
/// # Errors
/// It cannot be: something is there.
fn new_directory(dir: &Path) -> Result<PathBuf> {
    let dir: PathBuf = dir.components().collect();
    let Ok(there) = std::fs::symlink_metadata(&dir) else { return Ok(dir) };
    if !there.is_dir() {
        bail!("{} is no directory: give the path of a new one", dir.display());
    }
    // What is written beside it takes its place at the end.
    if there.dev() != std::fs::metadata(dir.join(".."))?.dev() {
        bail!("{} is a mount point: give a directory below it", dir.display());
    }
    if std::fs::read_dir(&dir)?.next().is_some() {
        bail!("{} is not empty: a database is restored into a new directory", dir.display());
    }
    Ok(dir)
}

/// An execution behind a checkpoint of a chain.
pub fn begin(objects: &Objects, chain: &Chain, epoch: u64) -> Result<Replay> {
    let mut registry = Registry::new();
    redis_surface::register(&mut registry)?;
    let manifest = chain.manifest(objects, epoch)?;
    let bases: Vec<Base> = manifest.files.iter().map(FileEntry::base).collect::<Result<_>>()?;
    let mut skips = Skips::default();
    let progress = chain.progress(objects)?;
    if progress.is_none() {
        let name = progress_name(chain.number);
        eprintln!("{name} is missing: requests that the servers did not execute are not known, and executed");
    }
    for name in progress.map(|progress| progress.skips).unwrap_or_default() {
        skips.add(name.parse().map_err(|_| anyhow::anyhow!("'{name}' is no name of a request"))?);
    }
    let mut open = |partition: PartitionId| -> io::Result<PieceReader<'_>> {
        let file = manifest.files[usize::from(partition.0)].clone();
        Ok(PieceReader {
            objects,
            chain: chain.number,
            epoch,
            partition,
            file,
            next: 0,
            bytes: Vec::new(),
            at: 0,
        })
    };
    Ok(Replay::begin(&bases, registry, Arc::new(skips), &mut open)?)
}

/// Executes the order of a chain up to a moment. Gives the place.
fn go_on(objects: &Objects, found: &RestorePoint, replay: &mut Replay) -> Result<Tip> {
    let mut last = found.from;
    let end = found.chain.walk(objects, found.from, &mut |tip, batches| {
        if found.until.is_before(tip) {
            return Ok(false);
        }
        replay.execute(batches)?;
        last = *tip;
        Ok(true)
    })?;
    if let Moment::Epoch(epoch) = found.until
        && last.epoch < epoch
    {
        bail!("the backup ends with epoch {} ({}), before epoch {epoch}", end.epoch, shown(end.time_ms));
    }
    if let Moment::Time(time_ms) = found.until
        && end.time_ms < time_ms
        && last.epoch == end.epoch
    {
        bail!(
            "the backup ends with epoch {} ({}), before that time: ask for an earlier one, or for 'newest'",
            end.epoch,
            shown(end.time_ms)
        );
    }
    Ok(last)
}

/// Holds the state against what replicas had, where a checkpoint tells it of this place.
pub fn check_state(objects: &Objects, chain: &Chain, replay: &Replay) -> Result<()> {
    let epoch = replay.end().epoch.0;
    if !chain.checkpoints.contains(&epoch) {
        return Ok(());
    }
    let manifest = chain.manifest(objects, epoch)?;
    if manifest.digest != format!("{:016x}", replay.end().digest) {
        return Err(OtherOrder(epoch).into());
    }
    hold_against(replay, &states_of(&manifest)?).map(|_| ())
}

/// The states of all partitions in the checkpoint of a manifest, in their order.
pub fn states_of(manifest: &Manifest) -> Result<Vec<CheckpointState>> {
    let files = (0..).map(PartitionId).zip(&manifest.files);
    files.map(|(partition, file)| Ok(CheckpointState::of(partition, &file.base()?)?)).collect()
}

/// A checkpoint does not follow what was executed before it.
#[derive(Debug, thiserror::Error)]
#[error("the checkpoint of epoch {0} is of another order than the one that leads to it")]
pub struct OtherOrder(pub u64);

/// Holds the state against what a checkpoint of the same epoch says that the replicas had. Says whether it
/// tells the state of all partitions.
pub fn hold_against(replay: &Replay, states: &[CheckpointState]) -> Result<bool> {
    let mut is_known = true;
    let epoch = replay.end().epoch.0;
    for ((partition, state), digest) in (0..).map(PartitionId).zip(states).zip(replay.state_digests()) {
        if (state.epoch.0, state.digest) != (epoch, replay.end().digest) {
            return Err(OtherOrder(epoch).into());
        }
        if let (Some(said), Some(found)) = (state.state_digest, digest)
            && said != found
        {
            bail!(
                "the state of {partition} at epoch {epoch} has the digest {found:016x}, and its replicas had \
                 {said:016x}: a bug of Ordo, please report it"
            );
        }
        is_known &= state.state_digest.is_some() && digest.is_some();
    }
    Ok(is_known)
}

/// The bytes of a file of a checkpoint, object by object.
struct PieceReader<'a> {
    objects: &'a Objects,
    chain: u32,
    epoch: u64,
    partition: PartitionId,
    file: FileEntry,
    /// The next part.
    next: usize,
    bytes: Vec<u8>,
    at: usize,
}

impl Read for PieceReader<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        while self.at == self.bytes.len() {
            let Some(&offset) = self.file.offsets.get(self.next) else { return Ok(0) };
            let name = piece_name(self.chain, self.epoch, self.partition.0, self.file.node, offset);
            self.bytes = self.objects.get(&name).map_err(|error| io::Error::other(format!("{error:#}")))?;
            let end = self.file.offsets.get(self.next + 1).copied().unwrap_or(self.file.bytes);
            if offset + self.bytes.len() as u64 != end {
                return Err(io::Error::other(format!("{name} has another length than the manifest says")));
            }
            (self.next, self.at) = (self.next + 1, 0);
        }
        let count = room.len().min(self.bytes.len() - self.at);
        room[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
