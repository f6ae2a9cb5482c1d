//! `ordo backup --to`: copies a checkpoint, and follows the order.

use super::chains::{Chain, chains};
use super::format::{
    ChainProgress, FileEntry, LogObject, Manifest, Tip, log_name, manifest_name, piece_name, progress_name,
    to_hexadecimal,
};
use super::nodes::{BackupNodes, FollowError, PAUSE, Refused, Watch, take_checkpoint};
use super::objects::{Damaged, Objects, Put};
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use log::Base;
use node::cluster::restore::CheckpointState;
use server::client::Access;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::PartitionId;

/// An object of the log is written once it has about so many bytes, however new it is.
const LOG_BYTES: usize = 8 << 20;
/// How long nodes may be out of reach before `--once` gives up.
const ONCE_PATIENCE: Duration = Duration::from_secs(60);

/// What to do.
pub struct Wishes {
    /// Where nodes answer.
    pub addresses: Vec<String>,
    /// What it takes to be let in.
    pub access: Access,
    /// End once there is a checkpoint and the order up to now.
    pub once: bool,
    /// What is newer than this may be lost with the cluster.
    pub loss_max: Duration,
    /// How old a checkpoint gets before another one is copied.
    pub checkpoint_every: Duration,
    /// About how many bytes an object of a checkpoint has.
    pub piece_bytes: usize,
    /// How often to say how far the backup is.
    pub tell_every: Duration,
    /// Somebody wants the end.
    pub stop: Arc<AtomicBool>,
}

/// A checkpoint that is being copied.
struct Copying {
    epoch: u64,
    time_ms: u64,
    digest: u64,
    bases: Vec<Base>,
    /// The files' lengths in bytes.
    totals: Vec<u64>,
    /// Files that are whole.
    files: Vec<FileEntry>,
    /// Where the parts of the file at hand begin that are copied.
    offsets: Vec<u64>,
    /// Which node gives it.
    node: u16,
    /// The next byte.
    offset: u64,
    /// What the node gave from there on.
    ahead: Bytes,
    /// What an earlier process had copied already.
    found: BTreeMap<String, u64>,
}

/// A backup that is being made.
struct Backup<'a> {
    objects: &'a mut Objects,
    wishes: &'a Wishes,
    chain: u32,
    /// Up to where batches are taken: in the objects, or in `buffer`.
    tip: Tip,
    /// Before the first batch in `buffer`.
    stored: Tip,
    buffer: Vec<Vec<Bytes>>,
    buffer_bytes: usize,
    /// When the first of them came.
    buffered_at: Instant,
    copying: Option<Copying>,
    /// The epochs of the chain's checkpoints that are whole, or were once.
    checkpoints: BTreeSet<u64>,
    /// The time of the newest checkpoint that is whole, in milliseconds since 1970.
    checkpoint_ms: u64,
    watch: Watch,
    told_at: Instant,
    told_bytes: u64,
}

/// Makes a backup until it is to end.
pub fn run(objects: &mut Objects, wishes: &Wishes) -> Result<()> {
    let mut avoid = BTreeSet::new();
    let mut resume = true;
    let mut failing_since: Option<Instant> = None;
    // Where nodes answer, as far as they have told.
    let mut addresses = wishes.addresses.clone();
    let mut lagging = BTreeSet::new();
    while !wishes.stop.load(Ordering::Relaxed) {
        let avoided: BTreeSet<String> = avoid.union(&lagging).cloned().collect();
        let Err(lost) = attempt(objects, wishes, &mut addresses, resume, &avoided, &mut failing_since) else {
            return Ok(());
        };
        resume = true;
        match lost {
            // Another node may have more of the order.
            FollowError::Order { address, why } if !avoided.contains(&address) => {
                eprintln!("{address} does not have what follows any more: {why}. Another node may");
                avoid.insert(address);
            }
            FollowError::Lags(address) => {
                eprintln!("{address} lags behind the others: another node is asked");
                lagging.insert(address);
            }
            // A node that lags may have it, and is asked again.
            FollowError::Order { .. } if !lagging.is_empty() => {
                (lagging, avoid) = (BTreeSet::new(), BTreeSet::new());
                std::thread::sleep(PAUSE * 5);
            }
            FollowError::Order { .. } | FollowError::Past(_) => {
                eprintln!("{lost}: a new checkpoint is taken");
                (resume, avoid) = (false, BTreeSet::new());
            }
            FollowError::Node(error) => {
                (lagging, avoid) = (BTreeSet::new(), BTreeSet::new());
                let is_first = failing_since.is_none();
                let since = *failing_since.get_or_insert_with(Instant::now);
                let gives_up = wishes.once && since.elapsed() > ONCE_PATIENCE;
                if gives_up || error.is::<Fatal>() || error.is::<Refused>() {
                    return Err(error);
                }
                if is_first {
                    eprintln!("{error:#}: trying again");
                }
                std::thread::sleep(PAUSE * 5);
            }
        }
    }
    Ok(())
}

/// What trying again does not mend.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Fatal(String);

fn attempt(
    objects: &mut Objects,
    wishes: &Wishes,
    addresses: &mut Vec<String>,
    resume: bool,
    avoid: &BTreeSet<String>,
    failing_since: &mut Option<Instant>,
) -> Result<(), FollowError> {
    let names = objects.list()?;
    let known = chains(&names);
    let last = known.values().next_back().cloned().unwrap_or_default();
    let mut nodes = BackupNodes::connect(addresses, &wishes.access, avoid)?;
    let ends = match resume && !last.logs.is_empty() {
        true => last.end(objects),
        false => Ok(None),
    };
    let (end, resume) = match ends {
        Err(error) if error.is::<Damaged>() => {
            eprintln!("{error:#}: a new checkpoint is taken");
            (None, false)
        }
        ends => (ends?, resume),
    };
    let mut backup = match (end, last.checkpoints.last()) {
        (Some(tip), Some(&epoch)) => {
            let checkpoint_ms = last.tip_of(objects, epoch)?.time_ms;
            let checkpoints = last.checkpoints_ever(objects)?;
            Backup { checkpoint_ms, ..Backup::at(objects, wishes, last.number, tip, checkpoints) }
        }
        // Nothing has come behind the checkpoint yet, as far as the backup knows.
        (None, Some(&epoch)) if resume && is_still_there(objects, &last, epoch, &mut nodes)? => {
            let tip = last.tip_of(objects, epoch)?;
            let checkpoints = last.checkpoints_ever(objects)?;
            Backup::at(objects, wishes, last.number, tip, checkpoints)
        }
        _ => Backup::begin(objects, wishes, &last, end, &names, &mut nodes, resume)?,
    };
    *failing_since = None;
    backup.follow(&mut nodes, end)
}

/// Whether the nodes have the checkpoint with which a chain begins.
fn is_still_there(
    objects: &Objects,
    chain: &Chain,
    epoch: u64,
    nodes: &mut BackupNodes,
) -> Result<bool, FollowError> {
    let tip = chain.tip_of(objects, epoch)?;
    let known = Copying::begin(nodes, epoch, &BTreeMap::new())?;
    Ok(known.is_some_and(|known| known.tip() == tip))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl<'a> Backup<'a> {
    fn at(
        objects: &'a mut Objects,
        wishes: &'a Wishes,
        chain: u32,
        tip: Tip,
        checkpoints: BTreeSet<u64>,
    ) -> Backup<'a> {
        let now = Instant::now();
        Backup {
            told_bytes: objects.written_bytes,
            objects,
            wishes,
            chain,
            tip,
            stored: tip,
            buffer: Vec::new(),
            buffer_bytes: 0,
            buffered_at: now,
            copying: None,
            checkpoints,
            checkpoint_ms: tip.time_ms,
            watch: Watch::at(&tip),
            told_at: now,
        }
    }

    /// Begins a chain, or goes on with one of which the first checkpoint is not complete. `end`: there it
    /// ends, if it has a log.
    fn begin(
        objects: &'a mut Objects,
        wishes: &'a Wishes,
        last: &Chain,
        end: Option<Tip>,
        names: &BTreeMap<String, u64>,
        nodes: &mut BackupNodes,
        resume: bool,
    ) -> Result<Backup<'a>, FollowError> {
        // What an earlier process had begun to copy may still be there.
        let begun = last.pieces.last().filter(|_| resume && last.checkpoints.is_empty());
        let follows = |epoch: u64| last.logs.first().is_none_or(|&first| first == epoch + 1);
        let (chain, copying) = match begun {
            Some(&epoch) if follows(epoch) => (last.number, Copying::begin(nodes, epoch, names)?),
            _ => (last.number + 1, None),
        };
        let (chain, copying, tip) = match copying {
            Some(copying) => {
                let tip = end.unwrap_or(copying.tip());
                (chain, copying, tip)
            }
            None => {
                // Before the nodes write all that they have for nothing.
                if !objects.keeps_what_is_there()? {
                    let text = "the store replaces an object that it should keep (If-None-Match), so two \
                                backups \
                                could mix what they write: use another store";
                    return Err(FollowError::Node(anyhow!(Fatal(text.to_owned()))));
                }
                let copying = Copying::of_new(nodes, wishes)?;
                let tip = copying.tip();
                (last.number + 1, copying, tip)
            }
        };
        let copying = Some(copying);
        Ok(Backup { copying, ..Backup::at(objects, wishes, chain, tip, BTreeSet::new()) })
    }

    /// Follows the order, and copies the checkpoint at hand meanwhile. `end` is that of the chain, which is
    /// held against the nodes first.
    fn follow(&mut self, nodes: &mut BackupNodes, end: Option<Tip>) -> Result<(), FollowError> {
        match end {
            // A chain that has begun anew has no log.
            Some(end) if end == self.tip => self.check_past(nodes)?,
            _ => nodes.begin_behind(self.tip.epoch),
        }
        // With `--once`, the order is followed up to where the nodes are when the checkpoint is complete.
        let mut until: Option<u64> = None;
        loop {
            let stops = self.wishes.stop.load(Ordering::Relaxed);
            let was_read = nodes.is_read();
            if was_read {
                nodes.look()?;
                self.watch.look(nodes, &self.tip, &self.wishes.access)?;
            }
            nodes.read(&self.tip)?;
            let takes = self.take_batches(nodes)?;
            let ends = stops || until.is_some_and(|until| self.tip.epoch >= until);
            let mut stored = self.store(ends)?;
            let copies = self.copying.is_some();
            stored |= self.copy(nodes)?;
            if stored {
                self.store_progress(nodes)?;
            }
            if self.copying.is_none() && until.is_none() && self.wishes.once {
                nodes.look()?;
                until = nodes.nodes.iter().map(|node| node.place.epoch).max();
            }
            self.tell(ends);
            if ends {
                return Ok(());
            }
            if !copies && was_read && !takes {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Goes on behind the end of the chain, if the nodes had the same there.
    fn check_past(&mut self, nodes: &mut BackupNodes) -> Result<(), FollowError> {
        let chains = chains(&self.objects.list()?);
        let chain = chains.get(&self.chain).context("the chain is gone")?;
        let first = *chain.logs.last().context("the chain's log is gone")?;
        let object = chain.log(self.objects, first)?;
        let mut before = Tip { epoch: first - 1, time_ms: 0, digest: object.digest_before };
        for batches in object.epochs.iter().take(object.epochs.len() - 1) {
            before = before.after(batches)?;
        }
        nodes.begin_behind_known(&before, &self.tip)
    }

    /// Takes what all groups have agreed on. Whether there was anything.
    fn take_batches(&mut self, nodes: &mut BackupNodes) -> Result<bool, FollowError> {
        let before = self.tip.epoch;
        while self.buffer_bytes < LOG_BYTES
            && let Some(batches) = nodes.next(&self.tip)
        {
            if self.buffer.is_empty() {
                self.buffered_at = Instant::now();
            }
            self.tip = self.tip.after(&batches)?;
            self.buffer_bytes += batches.iter().map(Bytes::len).sum::<usize>();
            self.buffer.push(batches);
        }
        let has_moved = self.tip.epoch > before;
        if has_moved {
            self.watch.moved();
        }
        Ok(has_moved)
    }

    /// Writes the batches at hand, if it is time. Whether it was.
    fn store(&mut self, now: bool) -> Result<bool, FollowError> {
        let is_due = self.buffer_bytes >= LOG_BYTES || self.buffered_at.elapsed() >= self.wishes.loss_max;
        if self.buffer.is_empty() || !is_due && !now {
            return Ok(false);
        }
        let first = self.stored.epoch + 1;
        let epochs = std::mem::take(&mut self.buffer);
        let object = LogObject { digest_before: self.stored.digest, first, epochs };
        let name = log_name(self.chain, first);
        if self.objects.put_new(&name, &object.encode())? == Put::Before {
            let text = format!("{name} is there already: another process makes a backup to the same place");
            return Err(FollowError::Node(anyhow!(Fatal(text))));
        }
        (self.stored, self.buffer_bytes) = (self.tip, 0);
        Ok(true)
    }

    fn store_progress(&mut self, nodes: &BackupNodes) -> Result<()> {
        let skips: BTreeSet<&String> = nodes.nodes.iter().flat_map(|node| &node.place.skips).collect();
        let progress = ChainProgress {
            epoch: self.stored.epoch,
            time_ms: self.stored.time_ms,
            digest: self.stored.digest_text(),
            skips: skips.into_iter().cloned().collect(),
            checkpoints: self.checkpoints.iter().copied().collect(),
        };
        self.objects.replace(&progress_name(self.chain), &serde_json::to_vec(&progress)?)
    }

    /// Copies a part of the checkpoint at hand, or begins another one when it is time. Whether the checkpoint
    /// is complete with that.
    fn copy(&mut self, nodes: &mut BackupNodes) -> Result<bool, FollowError> {
        let age_ms = u128::from(now_ms().saturating_sub(self.checkpoint_ms));
        if self.copying.is_none() && age_ms >= self.wishes.checkpoint_every.as_millis() {
            self.copying = Some(Copying::of_new(nodes, self.wishes)?);
        }
        let Some(copying) = &mut self.copying else { return Ok(false) };
        if copying.files.len() < nodes.partitions() {
            copying.copy_piece(self.chain, nodes, self.objects, self.wishes.piece_bytes)?;
            return Ok(false);
        }
        // No checkpoint is newer than the order that leads to it.
        let epoch = copying.epoch;
        if epoch > self.stored.epoch {
            return self.store(epoch <= self.tip.epoch);
        }
        let manifest = Manifest {
            version: 1,
            name: nodes.nodes[0].place.name.clone(),
            epoch: copying.epoch,
            time_ms: copying.time_ms,
            digest: copying.tip().digest_text(),
            files: std::mem::take(&mut copying.files),
        };
        let json = serde_json::to_vec(&manifest).context("a manifest cannot be written")?;
        self.objects.put_new(&manifest_name(self.chain, manifest.epoch), &json)?;
        self.checkpoints.insert(manifest.epoch);
        (self.copying, self.checkpoint_ms) = (None, manifest.time_ms.max(now_ms()));
        Ok(true)
    }

    /// Says how far the backup is, if it is time.
    fn tell(&mut self, now: bool) {
        let elapsed = self.told_at.elapsed();
        if elapsed < self.wishes.tell_every && !now {
            return;
        }
        let bytes = self.objects.written_bytes - self.told_bytes;
        let speed = bytes as f64 / 1e6 / elapsed.as_secs_f64().max(1e-3);
        // Epochs since the stored one that nobody has changed anything in are no loss.
        let behind_s = match (self.stored.epoch >= self.watch.newest.0, self.buffer.is_empty()) {
            (true, _) => 0.0,
            (false, false) => self.buffered_at.elapsed().as_secs_f64(),
            (false, true) => now_ms().saturating_sub(self.stored.time_ms) as f64 / 1e3,
        };
        let copied = match &self.copying {
            Some(copying) if !self.checkpoints.is_empty() => {
                format!(", copying the checkpoint of epoch {}", copying.epoch)
            }
            Some(copying) => format!(
                ", copying the checkpoint of epoch {}, before which nothing of this chain can be restored",
                copying.epoch
            ),
            None => String::new(),
        };
        eprintln!(
            "chain {}: epoch {} of {} is safe, {behind_s:.1} s would be lost; {speed:.1} MB/s{copied}",
            self.chain, self.stored.epoch, self.watch.newest.0
        );
        (self.told_at, self.told_bytes) = (Instant::now(), self.objects.written_bytes);
    }
}

impl Copying {
    /// The place of the checkpoint.
    fn tip(&self) -> Tip {
        Tip { epoch: self.epoch, time_ms: self.time_ms, digest: self.digest }
    }

    /// Has a checkpoint taken, and begins to copy it.
    fn of_new(nodes: &mut BackupNodes, wishes: &Wishes) -> Result<Copying, FollowError> {
        let address = nodes.nodes[0].address.clone();
        let epoch = take_checkpoint(&address, &wishes.access)?;
        let began = Instant::now();
        // The other nodes write theirs at the same time.
        loop {
            if let Some(copying) = Copying::begin(nodes, epoch, &BTreeMap::new())? {
                return Ok(copying);
            }
            if began.elapsed() > ONCE_PATIENCE {
                return Err(FollowError::Node(anyhow!("not all nodes have the checkpoint of epoch {epoch}")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Begins to copy the checkpoint of an epoch, if the nodes have it. `found` are objects that are there.
    fn begin(
        nodes: &mut BackupNodes,
        epoch: u64,
        found: &BTreeMap<String, u64>,
    ) -> Result<Option<Copying>, FollowError> {
        let (mut bases, mut totals) = (Vec::new(), Vec::new());
        let mut state = None;
        for partition in 0..nodes.partitions() as u16 {
            let Some(part) = nodes.teller(partition).file(partition, epoch, 0)? else {
                return Ok(None);
            };
            let of = CheckpointState::of(PartitionId(partition), &part.base).map_err(anyhow::Error::from)?;
            state = Some(of);
            bases.push(part.base);
            totals.push(part.total);
        }
        let Some(CheckpointState { time_ms, digest, .. }) = state else { return Ok(None) };
        Ok(Some(Copying {
            epoch,
            time_ms,
            digest,
            bases,
            totals,
            files: Vec::new(),
            offsets: Vec::new(),
            node: 0,
            offset: 0,
            ahead: Bytes::new(),
            found: found.clone(),
        }))
    }

    /// Copies the next part of the file at hand.
    fn copy_piece(
        &mut self,
        chain: u32,
        nodes: &mut BackupNodes,
        objects: &mut Objects,
        piece_bytes: usize,
    ) -> Result<(), FollowError> {
        let partition = self.files.len() as u16;
        let node = nodes.teller(partition);
        let of = node.place.node;
        if self.node != of {
            // Two nodes' files of one checkpoint have the same records in different orders.
            (self.node, self.offset) = (of, 0);
            (self.offsets, self.ahead) = (Vec::new(), Bytes::new());
        }
        let name = piece_name(chain, self.epoch, partition, of, self.offset);
        let total = self.totals[usize::from(partition)];
        let length = match self.found.get(&name).copied().filter(|&known| known > 0) {
            Some(known) => {
                self.ahead.clear();
                known
            }
            None => {
                let mut bytes = Vec::new();
                let wanted = piece_bytes.min((total - self.offset) as usize);
                while bytes.len() < wanted {
                    if self.ahead.is_empty() {
                        let part = node.file(partition, self.epoch, self.offset + bytes.len() as u64)?;
                        let part = part.filter(|part| part.total == total && !part.bytes.is_empty());
                        let gone = || FollowError::Order {
                            address: node.address.clone(),
                            why: "its checkpoint is gone",
                        };
                        self.ahead = part.ok_or_else(gone)?.bytes;
                    }
                    let count = self.ahead.len().min(wanted - bytes.len());
                    bytes.extend_from_slice(&self.ahead.split_to(count));
                }
                objects.put_new(&name, &bytes)?;
                bytes.len() as u64
            }
        };
        self.offsets.push(self.offset);
        self.offset += length;
        if self.offset >= total {
            let mut base = Vec::new();
            self.bases[usize::from(partition)].encode(&mut base);
            self.files.push(FileEntry {
                node: of,
                bytes: total,
                offsets: std::mem::take(&mut self.offsets),
                base: to_hexadecimal(&base),
            });
            (self.node, self.offset, self.ahead) = (0, 0, Bytes::new());
        }
        Ok(())
    }
}
