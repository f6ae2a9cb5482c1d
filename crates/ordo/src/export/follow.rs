//! Follows the order, executes it again, and writes the changes.

use super::cursor::{Cursor, Origin};
use super::lines::{Line, Lines};
use super::output::Output;
use crate::backup::format::Tip;
use crate::backup::moment::{Moment, RestorePoint, find};
use crate::backup::nodes::{BackupNodes, FollowError, PAUSE, Refused, Watch, take_checkpoint};
use crate::backup::objects::Objects;
use crate::backup::restore;
use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use node::cluster::restore::{CheckpointState, Replay, ReplayError};
use server::backup::FilePart;
use server::client::Access;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use txn::{PartitionId, Registry, RequestName};

/// How long nodes may be out of reach before `--once` gives up.
const ONCE_PATIENCE: Duration = Duration::from_secs(60);
/// How long nodes may take to come to the epoch of a consumer's cursor.
const CURSOR_PATIENCE: Duration = Duration::from_secs(10);
/// How often what was written to a file is brought to the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// What to do.
pub struct Wishes {
    /// Where nodes answer.
    pub addresses: Vec<String>,
    /// What it takes to be let in.
    pub access: Access,
    /// A backup of the same database, which has more of the order than the nodes.
    pub backup: Option<String>,
    /// End once the changes up to now are told.
    pub once: bool,
    /// After so long without a line, one tells how far the order is.
    pub mark_every: Duration,
    /// Somebody wants the end.
    pub stop: Arc<AtomicBool>,
}

/// What follows the consumer's place cannot be had any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0}. The changes in between cannot be told: begin again with --from start (and another --to), which \
     tells all keys first, or go on with --backup, if a backup has them"
)]
pub struct Gone(String);

/// Why an attempt has ended before its time.
enum Failure {
    /// The nodes: another attempt may do better.
    Follow(FollowError),
    /// For good.
    End(anyhow::Error),
}

impl From<FollowError> for Failure {
    fn from(error: FollowError) -> Failure {
        Failure::Follow(error)
    }
}
impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Follow(FollowError::Node(error))
    }
}
impl From<ReplayError> for Failure {
    fn from(error: ReplayError) -> Failure {
        Failure::End(error.into())
    }
}
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::End(error.into())
    }
}

/// An execution of the order up to a place.
struct Execution {
    replay: Replay,
    /// The epoch of the checkpoint behind which it began.
    from: u64,
    /// The end of the last epoch that was executed.
    tip: Tip,
    /// The end of the one before, if this process has executed it.
    before: Option<Tip>,
}

/// Changes that are being told.
struct Exporter<'a> {
    origin: Origin,
    wishes: &'a Wishes,
    lines: Lines,
    output: &'a mut Output,
    execution: Option<Execution>,
    /// The number of the cluster that tells the order, once one does.
    cluster: Option<String>,
    /// The requests that nodes have said they do not execute.
    skips: BTreeSet<RequestName>,
    /// The consumer has all up to here.
    seen: Option<Cursor>,
    /// Nothing is told of epochs up to this one.
    silent_until: u64,
    /// The epoch up to whose end all is told.
    told_epoch: u64,
    /// When the last line was written, and when lines were last brought to the disk.
    told_at: Instant,
    synced_at: Instant,
}

/// Writes changes until it is to end.
pub fn run(origin: Origin, wishes: &Wishes, lines: Lines, output: &mut Output) -> Result<()> {
    // Procedures tell which keys they write, as long as this lives.
    let _wanted = redis_surface::telling::want();
    let mut exporter = Exporter {
        origin,
        wishes,
        lines,
        output,
        execution: None,
        cluster: None,
        skips: BTreeSet::new(),
        seen: None,
        silent_until: 0,
        told_epoch: 0,
        told_at: Instant::now(),
        synced_at: Instant::now(),
    };
    let mut addresses = wishes.addresses.clone();
    let (mut avoid, mut lagging) = (BTreeSet::new(), BTreeSet::new());
    let mut failing_since: Option<Instant> = None;
    let mut has_backup = wishes.backup.is_some();
    while !wishes.stop.load(Ordering::Relaxed) {
        let avoided: BTreeSet<String> = avoid.union(&lagging).cloned().collect();
        let failure = match exporter.attempt(&mut addresses, &avoided, &mut failing_since) {
            Ok(()) => break,
            Err(failure) => failure,
        };
        match failure {
            Failure::End(error) if is_broken_pipe(&error) => return Ok(()),
            Failure::End(error) => return Err(error),
            // Another node may have more of the order.
            Failure::Follow(FollowError::Order { address, why }) if !avoided.contains(&address) => {
                eprintln!("{address} does not have what follows: {why}. Another node may");
                avoid.insert(address);
            }
            Failure::Follow(FollowError::Lags(address)) => {
                eprintln!("{address} lags behind the others: another node is asked");
                lagging.insert(address);
            }
            // A node that lags may have it, and is asked again.
            Failure::Follow(FollowError::Order { .. }) if !lagging.is_empty() => {
                (lagging, avoid) = (BTreeSet::new(), BTreeSet::new());
                std::thread::sleep(PAUSE * 5);
            }
            // The backup leads to where the nodes go on.
            Failure::Follow(FollowError::Order { .. }) if exporter.execution.is_none() && has_backup => {
                has_backup = false;
                match exporter.execute_backup() {
                    Ok(()) => avoid.clear(),
                    Err(Failure::Follow(lost @ FollowError::Past(_))) => {
                        return Err(Gone(lost.to_string()).into());
                    }
                    Err(Failure::Follow(error)) => return Err(error.into()),
                    Err(Failure::End(error)) if is_broken_pipe(&error) => return Ok(()),
                    Err(Failure::End(error)) => return Err(error),
                }
            }
            Failure::Follow(lost @ (FollowError::Order { .. } | FollowError::Past(_))) => {
                return Err(Gone(lost.to_string()).into());
            }
            Failure::Follow(FollowError::Node(error)) => {
                (lagging, avoid) = (BTreeSet::new(), BTreeSet::new());
                let since = *failing_since.get_or_insert_with(Instant::now);
                if wishes.once && since.elapsed() > ONCE_PATIENCE || error.is::<Refused>() {
                    return Err(error);
                }
                eprintln!("{error:#}: trying again");
                std::thread::sleep(PAUSE * 5);
            }
        }
    }
    exporter.output.sync().or_else(|error| match error.kind() {
        ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error.into()),
    })
}

/// The consumer has closed its end: it wants nothing more.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

impl Exporter<'_> {
    fn attempt(
        &mut self,
        addresses: &mut Vec<String>,
        avoid: &BTreeSet<String>,
        failing_since: &mut Option<Instant>,
    ) -> Result<(), Failure> {
        let mut nodes = BackupNodes::connect(addresses, &self.wishes.access, avoid)?;
        let cluster = &nodes.nodes[0].place.cluster;
        if self.cluster.get_or_insert_with(|| cluster.clone()) != cluster {
            return Err(FollowError::Past(self.tip().epoch).into());
        }
        if self.lines.source.is_empty() {
            let place = &nodes.nodes[0].place;
            let name = if place.name.is_empty() { "alone" } else { &place.name };
            self.lines.source = format!("/ordo/{name}/{}", place.cluster);
        }
        self.take_skips(&nodes)?;
        let tip = match &mut self.execution {
            Some(Execution { tip, before, .. }) => {
                match before {
                    Some(before) => nodes.begin_behind_known(before, tip)?,
                    None => nodes.begin_behind(tip.epoch),
                }
                *tip
            }
            none => {
                let mut execution = begin(self.origin, &mut nodes, &self.wishes.access)?;
                self.skips.iter().for_each(|&name| execution.replay.skip(name));
                nodes.begin_behind(execution.tip.epoch);
                let tip = none.insert(execution).tip;
                self.tell_beginning(&nodes)?;
                tip
            }
        };
        let began = Instant::now();
        let mut watch = Watch::at(&tip);
        let mut until: Option<u64> = None;
        loop {
            let stops = self.wishes.stop.load(Ordering::Relaxed);
            let was_read = nodes.is_read();
            if was_read {
                nodes.look()?;
                self.take_skips(&nodes)?;
                watch.look(&nodes, &self.tip(), &self.wishes.access)?;
            }
            if until.is_none() && self.wishes.once {
                let told = nodes.nodes.iter().map(|node| node.place.epoch).max();
                let elsewhere = nodes.newest_elsewhere(&self.wishes.access).map(|(epoch, _)| epoch);
                until = told.max(elsewhere);
            }
            let before = self.tip().epoch;
            nodes.read(&self.tip())?;
            while let Some(batches) = nodes.next(&self.tip()) {
                self.execute(&batches)?;
                if self.wishes.stop.load(Ordering::Relaxed) {
                    break;
                }
            }
            let tip = self.tip();
            let moves = tip.epoch > before;
            if moves {
                watch.moved();
            }
            let ends = stops || until.is_some_and(|until| tip.epoch >= until);
            let misses = self.seen.filter(|seen| seen.epoch > tip.epoch);
            match misses {
                // A wait, and no proof of another past: the execution tells that at the cursor's epoch.
                Some(seen) if was_read && !moves && began.elapsed() > CURSOR_PATIENCE => {
                    return Err(nodes.not_yet(seen.epoch).into());
                }
                Some(_) if !stops => {}
                _ => self.mark(ends)?,
            }
            if misses.is_none() {
                *failing_since = None;
            }
            self.output.flush()?;
            if self.synced_at.elapsed() >= SYNC_EVERY {
                self.output.sync()?;
                self.synced_at = Instant::now();
            }
            if ends && (stops || misses.is_none()) {
                return Ok(());
            }
            if was_read && !moves {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Skips what the nodes skip. An operator may add to that while an exporter runs.
    fn take_skips(&mut self, nodes: &BackupNodes) -> Result<(), Failure> {
        for text in nodes.nodes.iter().flat_map(|node| &node.place.skips) {
            let name: RequestName = text.parse().map_err(|_| anyhow!("'{text}' is no name of a request"))?;
            self.skips.insert(name);
            let Some(Execution { replay, from, tip, .. }) = &mut self.execution else { continue };
            if replay.skips().iter().any(|(known, _)| known == name) {
                continue;
            }
            // A checkpoint was made with all that the nodes skipped before it.
            if (*from + 1..=tip.epoch).contains(&name.epoch.0) {
                let text =
                    format!("the servers do not execute the request {name} any more, and this exporter has");
                return Err(Failure::End(Gone(text).into()));
            }
            replay.skip(name);
        }
        Ok(())
    }

    /// The end of what is executed.
    fn tip(&self) -> Tip {
        self.execution.as_ref().map_or(Tip { epoch: 0, time_ms: 0, digest: 0 }, |execution| execution.tip)
    }

    /// Says what comes before the first change.
    fn tell_beginning(&mut self, nodes: &BackupNodes) -> Result<(), Failure> {
        let Some(Execution { replay, tip, .. }) = &self.execution else { return Ok(()) };
        let tip = *tip;
        match self.origin {
            Origin::Behind(cursor) => {
                check_cursor(&cursor, &tip)?;
                self.seen = Some(cursor);
                self.told_epoch = cursor.epoch;
            }
            Origin::Now => {
                let newest = nodes.nodes.iter().map(|node| node.place.epoch).max();
                self.silent_until = newest.unwrap_or(0).max(tip.epoch);
            }
            Origin::Start => {
                self.output.write(&self.lines.line(&Line::SnapshotBegin, &tip, None))?;
                let mut number = 0;
                replay.each_user_entry(&mut |key, entry| {
                    if self.wishes.stop.load(Ordering::Relaxed) {
                        return Err(io::Error::new(ErrorKind::Interrupted, "the snapshot is not complete"));
                    }
                    number += 1;
                    let line = Line::Snapshot { number, key, entry };
                    self.output.write(&self.lines.line(&line, &tip, None))
                })?;
                self.write(&Line::SnapshotEnd, whole(&tip))?;
                self.told_epoch = tip.epoch;
            }
        }
        Ok(())
    }

    /// Executes the order of the backup from before the consumer's place to its end, and tells what the
    /// consumer does not have.
    fn execute_backup(&mut self) -> Result<(), Failure> {
        let (Origin::Behind(cursor), Some(url)) = (self.origin, &self.wishes.backup) else { return Ok(()) };
        let objects = Objects::open(url, None)?;
        let RestorePoint { chain, from, .. } = find(&objects, Moment::Epoch(cursor.checkpoint_max()), None)?;
        eprintln!("the order behind epoch {} comes from the backup", from.epoch);
        let mut replay = restore::begin(&objects, &chain, from.epoch)?;
        self.skips.iter().for_each(|&name| replay.skip(name));
        check_cursor(&cursor, &from)?;
        self.execution = Some(Execution { replay, from: from.epoch, tip: from, before: None });
        self.seen = Some(cursor);
        self.told_epoch = cursor.epoch;
        let mut failure = None;
        let stop = self.wishes.stop.clone();
        chain.walk(&objects, from, &mut |_, batches| {
            failure = self.execute(batches).err();
            Ok(failure.is_none() && !stop.load(Ordering::Relaxed))
        })?;
        failure.map_or(Ok(()), Err)
    }

    /// Executes the next epoch, and tells what it has changed.
    fn execute(&mut self, batches: &[Bytes]) -> Result<(), Failure> {
        let Some(execution) = &mut self.execution else { return Ok(()) };
        let tip = execution.tip.after(batches)?;
        let changes = execution.replay.execute_for_changes(batches)?;
        (execution.before, execution.tip) = (Some(execution.tip), tip);
        let mut skipped = if tip.epoch <= self.silent_until { changes.len() as u64 } else { 0 };
        match self.seen {
            Some(seen) if seen.epoch > tip.epoch => return Ok(()),
            Some(seen) if seen.epoch == tip.epoch => {
                if seen.digest != tip.digest {
                    return Err(FollowError::Past(tip.epoch).into());
                }
                skipped = if seen.place == 0 { changes.len() as u64 } else { seen.place };
            }
            _ => {}
        }
        let last = changes.len() as u64;
        for (place, transaction) in (1..).zip(&changes).skip(skipped as usize) {
            let cursor = Cursor { place: if place == last { 0 } else { place }, ..whole(&tip) };
            self.write(&Line::Transaction { place, transaction }, cursor)?;
            self.told_epoch = tip.epoch;
        }
        Ok(())
    }

    /// Says how far the order is, if it is time.
    fn mark(&mut self, now: bool) -> Result<(), Failure> {
        let tip = self.tip();
        // Whether this is the past of the consumer's cursor is not known before the cursor's epoch.
        if self.seen.is_some_and(|seen| seen.epoch > tip.epoch) {
            return Ok(());
        }
        // The first one tells the consumer that changes are told from now on.
        let is_first = self.told_epoch == 0;
        let has_moved = tip.epoch > self.told_epoch;
        // An order that rests is told again: else nobody could tell it from an export that hangs.
        let is_due = self.told_at.elapsed() >= self.wishes.mark_every && (has_moved || !is_first);
        if tip.epoch >= self.silent_until && (is_due || has_moved && (is_first || now)) {
            self.write(&Line::Mark, whole(&tip))?;
            self.told_epoch = tip.epoch;
        }
        Ok(())
    }

    fn write(&mut self, line: &Line<'_>, cursor: Cursor) -> io::Result<()> {
        self.told_at = Instant::now();
        self.output.write(&self.lines.line(line, &self.tip(), Some(cursor)))
    }
}

/// The place behind all changes of an epoch.
fn whole(tip: &Tip) -> Cursor {
    Cursor { epoch: tip.epoch, place: 0, digest: tip.digest }
}

/// Holds a cursor against a checkpoint. No epoch is executed that would tell the difference, if the
/// checkpoint is exactly at the cursor.
fn check_cursor(cursor: &Cursor, tip: &Tip) -> Result<(), FollowError> {
    match (cursor.epoch, cursor.place) == (tip.epoch, 0) && cursor.digest != tip.digest {
        true => Err(FollowError::Past(tip.epoch)),
        false => Ok(()),
    }
}

/// Begins behind the newest checkpoint that the nodes have all of, and that is not behind the origin.
fn begin(origin: Origin, nodes: &mut BackupNodes, access: &Access) -> Result<Execution, Failure> {
    let mut common: Option<BTreeSet<u64>> = None;
    for node in &mut nodes.nodes {
        let epochs: BTreeSet<u64> = node.changes_place()?.checkpoints.into_iter().collect();
        if let Origin::Behind(cursor) = origin
            && epochs.range(..=cursor.checkpoint_max()).next().is_none()
        {
            let address = node.address.clone();
            return Err(FollowError::Order { address, why: "its checkpoints are newer" }.into());
        }
        common = Some(match common {
            Some(common) => common.intersection(&epochs).copied().collect(),
            None => epochs,
        });
    }
    let common = common.unwrap_or_default();
    if let Origin::Behind(cursor) = origin {
        let Some(&epoch) = common.range(..=cursor.checkpoint_max()).next_back() else {
            let address = nodes.nodes[0].address.clone();
            return Err(FollowError::Order { address, why: "the others have other checkpoints" }.into());
        };
        return load(nodes, epoch);
    }
    if let Some(&epoch) = common.last() {
        return load(nodes, epoch);
    }
    let address = nodes.nodes[0].address.clone();
    let epoch = take_checkpoint(&address, access)?;
    let began = Instant::now();
    // The other nodes write theirs at the same time.
    loop {
        match load(nodes, epoch) {
            Err(Failure::Follow(FollowError::Order { .. })) if began.elapsed() < ONCE_PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            loaded => return loaded,
        }
    }
}

/// Loads the checkpoint of an epoch.
fn load(nodes: &mut BackupNodes, epoch: u64) -> Result<Execution, Failure> {
    let mut bases = Vec::new();
    for partition in 0..nodes.partitions() as u16 {
        let node = nodes.teller(partition);
        let part = node.file(partition, epoch, 0)?;
        let gone = || FollowError::Order { address: node.address.clone(), why: "its checkpoint is gone" };
        bases.push(part.ok_or_else(gone)?.base);
    }
    let state = bases.first().context("there are no partitions")?;
    let CheckpointState { time_ms, digest, .. } =
        CheckpointState::of(PartitionId(0), state).map_err(|error| Failure::End(error.into()))?;
    let mut registry = Registry::new();
    redis_surface::register(&mut registry).map_err(|error| Failure::End(error.into()))?;
    let nodes = RefCell::new(nodes);
    let mut open = |partition: PartitionId| -> io::Result<FileReader<'_, '_>> {
        Ok(FileReader { nodes: &nodes, partition, epoch, offset: 0, ahead: Bytes::new() })
    };
    match Replay::begin(&bases, registry, Arc::default(), &mut open) {
        Ok(replay) => {
            Ok(Execution { replay, from: epoch, tip: Tip { epoch, time_ms, digest }, before: None })
        }
        // A node that did not answer, as far as is known here.
        Err(error @ ReplayError::Checkpoint(..)) => Err(anyhow::Error::from(error).into()),
        Err(error) => Err(error.into()),
    }
}

/// The bytes of a checkpoint's file, as a node gives them part by part.
struct FileReader<'a, 'n> {
    nodes: &'a RefCell<&'n mut BackupNodes>,
    partition: PartitionId,
    epoch: u64,
    /// Behind what is in `ahead`.
    offset: u64,
    ahead: Bytes,
}

impl Read for FileReader<'_, '_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.ahead.is_empty() {
            let mut nodes = self.nodes.borrow_mut();
            let node = nodes.teller(self.partition.0);
            let part = node.file(self.partition.0, self.epoch, self.offset);
            let part = part.map_err(|error| io::Error::other(format!("{error:#}")))?;
            let gone = || io::Error::other(format!("{} no longer has it", node.address));
            let FilePart { total, bytes, .. } = part.ok_or_else(gone)?;
            if bytes.is_empty() && self.offset < total {
                return Err(io::Error::other(format!("{} gave a part without bytes", node.address)));
            }
            self.offset += bytes.len() as u64;
            self.ahead = bytes;
        }
        let count = room.len().min(self.ahead.len());
        room[..count].copy_from_slice(&self.ahead.split_to(count));
        Ok(count)
    }
}
