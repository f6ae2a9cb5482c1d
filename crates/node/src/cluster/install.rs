//! Catching up by a checkpoint: what a replica does whose leader no longer has the entries that it lacks.
//!
//! The leader says so ([`Frame::Behind`](super::Frame)), and the replica fetches the checkpoints of all its
//! partitions at one epoch, piece by piece, while it goes on as well as it can. It asks for each piece, so
//! the transfer needs no more memory than a piece, and lost frames cost some ticks: how many is learnt from
//! how long pieces take, because asking again before a slow link has delivered fills that link with what
//! nobody needs, and then nothing comes in time. When all files are there it writes new bases into its
//! journal, in one record, and starts anew: a process that begins behind a checkpoint is something that every
//! start does.
//!
//! Where nodes keep different partitions, whoever says so may have a checkpoint that nobody who is left has
//! of another partition. Then an older one does, of which that has logs: a replica that waited for the newer
//! one might be the very one without which there never will be another.

use super::checkpoint::{file_name, unfinished_name};
use super::frames::Frame;
use super::machine::{ClusterEffects, ClusterNode, Then};
use super::recover::BaseState;
use super::shape::BadFrame;
use crate::host::HostEvent;
use bytes::Bytes;
use log::{Base, Disk, DiskFile, FileReader, Kept};
use order::TIME_MS_END;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::RangeInclusive;
use store::checkpoint::CheckpointError;
use txn::NODES_MAX;
use txn::codec::Reader;
use txn::{Epoch, NodeId, PartitionId, Position};

/// Bytes of a piece.
const PIECE_BYTES: usize = 256 << 10;
/// A piece that has not come is asked for again after so many ticks, at least and at most.
const PATIENCE_TICKS: RangeInclusive<u64> = 4..=256;

/// One who was asked for a piece so often has no part in it any more.
const REPEATS_MAX: u32 = 4;
/// So often everybody refuses a file before it is given up: whoever is late may just be writing it.
const ROUNDS_MAX: u32 = 3;
/// What nobody has is not asked for again for so many ticks, at least and at most.
const PAUSE_TICKS: RangeInclusive<u64> = 8..=128;
/// What is told to whoever asks a node that is about to start anew.
const RESTARTING: &str = "LOADING this node has fetched a checkpoint and starts anew: connect again";

/// Part of a file that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of which partition's checkpoint.
    pub partition: PartitionId,
    /// At the end of which epoch.
    pub epoch: Epoch,
    /// From which byte on.
    pub offset: u64,
}

/// What a file must be of when it is whole: the position behind it, and the digest of the order up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    next: Position,
    digest: u64,
}

/// The files that are being fetched.
#[derive(Debug)]
pub(super) struct Install {
    pub epoch: Epoch,
    /// Everything that is fetched, or was.
    all: BTreeSet<PartitionId>,
    /// What is still to be fetched, the first one next.
    wanted: Vec<PartitionId>,
    offset: u64,
    /// The size of the file that is being fetched, once something of it has come.
    total: Option<u64>,
    /// The group's base at the checkpoint, as the source gave it.
    pub bases: BTreeMap<PartitionId, (Base, BaseState)>,
    /// The node that said that this one is behind.
    pub source: NodeId,
    /// Who gives the file that is being fetched: two nodes' files of one checkpoint say the same in different
    /// bytes.
    from: Option<NodeId>,
    /// How many files were asked for.
    turn: usize,
    /// Who has said not to have the file that is being fetched, and the newest older checkpoint that one of
    /// them has.
    refused: BTreeSet<NodeId>,
    older: Epoch,
    /// How often all have said so.
    rounds: u32,
    /// Those up to this one that are newer are not to be had whole.
    unavailable: Epoch,
    asked_tick: Option<u64>,
    /// How often the next piece was asked for again.
    repeats: u32,
    patience_ticks: u64,
    /// The piece that is being written, perhaps one that nobody waits for any more: they are written one by
    /// one.
    writing: Option<Piece>,
    /// What is being written does not count: its file was begun anew.
    is_stale: bool,
}

impl Install {
    pub fn new(epoch: Epoch, source: NodeId, wanted: Vec<PartitionId>) -> Install {
        Install {
            epoch,
            all: wanted.iter().copied().collect(),
            wanted,
            offset: 0,
            total: None,
            bases: BTreeMap::new(),
            source,
            from: None,
            turn: 0,
            refused: BTreeSet::new(),
            older: Epoch(0),
            rounds: 0,
            unavailable: Epoch(0),
            asked_tick: None,
            repeats: 0,
            patience_ticks: *PATIENCE_TICKS.start(),
            writing: None,
            is_stale: false,
        }
    }

    /// Goes on with what was learnt of the link, once what is being written for the one before is on the
    /// disk.
    pub fn in_place_of(self, before: &Install) -> Install {
        Install {
            patience_ticks: before.patience_ticks,
            writing: before.writing,
            is_stale: before.writing.is_some(),
            ..self
        }
    }

    /// These are needed, too.
    pub fn want(&mut self, more: impl IntoIterator<Item = PartitionId>) {
        for partition in more {
            if self.all.insert(partition) {
                self.wanted.push(partition);
            }
        }
    }

    /// The bases that came, if there is one for everything that was wanted; otherwise whose is missing.
    pub fn read_bases(&self) -> Result<BTreeMap<PartitionId, Base>, PartitionId> {
        let read = |&partition: &PartitionId| {
            let base = self.bases.get(&partition);
            let base = base.map(|(base, _)| (partition, base.clone()));
            base.ok_or(partition)
        };
        self.all.iter().map(read).collect()
    }

    /// The piece that is to be asked for now, if one is.
    pub fn next(&mut self, now_tick: u64) -> Option<Piece> {
        let patient = self.asked_tick.is_some_and(|asked| now_tick < asked + self.patience_ticks);
        if self.writing.is_some() || patient {
            return None;
        }
        let &partition = self.wanted.first()?;
        if self.asked_tick.replace(now_tick).is_some() {
            self.repeats += 1;
            self.patience_ticks = (self.patience_ticks * 2).min(*PATIENCE_TICKS.end());
        }
        Some(Piece { partition, epoch: self.epoch, offset: self.offset })
    }

    /// Whether a piece that has come is the one that is waited for. It is being written then.
    pub fn takes(&mut self, piece: Piece, now_tick: u64) -> bool {
        let awaited = self.wanted.first() == Some(&piece.partition)
            && (self.epoch, self.offset) == (piece.epoch, piece.offset)
            && self.writing.is_none();
        if awaited {
            self.writing = Some(piece);
        }
        // Which of several questions was answered nobody knows.
        if awaited
            && self.repeats == 0
            && let Some(asked) = self.asked_tick
        {
            let twice = 2 * now_tick.saturating_sub(asked);
            self.patience_ticks =
                twice.max(self.patience_ticks / 2).clamp(*PATIENCE_TICKS.start(), *PATIENCE_TICKS.end());
        }
        awaited
    }

    /// A piece is on the disk. `last`: so is the whole file. Counts only if it is the one that is waited for.
    pub fn written(&mut self, piece: Piece, bytes: u64, last: bool) {
        if self.writing.take_if(|writing| *writing == piece).is_none() {
            return;
        }
        if std::mem::take(&mut self.is_stale) {
            return;
        }
        self.asked_tick = None;
        self.repeats = 0;
        if last {
            self.wanted.retain(|&partition| partition != piece.partition);
            self.offset = 0;
            self.total = None;
            self.from = None;
            self.turn = 0;
            self.refused.clear();
            self.older = Epoch(0);
            self.rounds = 0;
        } else {
            self.offset = piece.offset + bytes;
        }
    }

    /// A piece could not be written: its file is begun anew, once this is asked for again.
    pub fn unwritten(&mut self, piece: Piece) {
        if self.writing.take_if(|writing| *writing == piece).is_some() {
            self.is_stale = false;
            self.offset = 0;
        }
    }

    fn is_from(&self, node: NodeId) -> bool {
        self.from == Some(node)
    }

    /// The node that is asked has not got the file; its newest checkpoint is of this epoch. Another node may
    /// have it.
    fn refused(&mut self, newest: Epoch) {
        self.refused.extend(self.from.take());
        if newest < self.epoch {
            self.older = self.older.max(newest);
        }
        self.asked_tick = None;
        self.offset = 0;
        self.total = None;
        self.is_stale = self.writing.is_some();
    }

    /// Whether a piece of the file that is being fetched goes with those before it: of a file of the same
    /// size, within that, and something of it. (A checkpoint is never empty.)
    fn fits(&self, piece: Piece, total: u64, bytes: &Bytes) -> bool {
        let ends = piece.offset.saturating_add(bytes.len() as u64);
        let is_same = piece.offset == 0 || self.total == Some(total);
        is_same && !bytes.is_empty() && ends <= total
    }

    /// All have refused: whether they are to be asked once more, after a while.
    fn asks_again(&mut self, now_tick: u64) -> bool {
        self.rounds += 1;
        self.refused.clear();
        self.asked_tick = Some(now_tick);
        self.rounds < ROUNDS_MAX
    }

    /// Asks a node for a file, from its beginning on.
    fn begin_file_from(&mut self, from: NodeId, partition: PartitionId, now_tick: u64) -> Piece {
        self.from = Some(from);
        self.turn += 1;
        self.offset = 0;
        self.total = None;
        self.repeats = 0;
        self.asked_tick = Some(now_tick);
        Piece { partition, epoch: self.epoch, offset: 0 }
    }

    /// Whether everything is there.
    pub fn is_complete(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// What a node does about checkpoints of others.
#[derive(Debug, Default)]
pub(super) struct Installs {
    install: Option<Install>,
    /// The epoch of the checkpoint that was fetched last, or is being fetched.
    fetched: Option<Epoch>,
    /// An installed checkpoint is being made durable: nothing else happens.
    ending: bool,
    /// Nothing that would help was to be had: until when nothing is begun, and how long that is.
    pause: (u64, u64),
}

impl Installs {
    /// Whether an installed checkpoint is being made durable: nothing else happens.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// What is recorded now is made durable, and nothing else happens before this process ends.
    pub fn end(&mut self) {
        self.install = None;
        self.ending = true;
    }

    /// Whether the checkpoint of this epoch is being fetched.
    pub fn fetches(&self, epoch: Epoch) -> bool {
        let install = self.install.as_ref();
        install.is_some_and(|install| install.epoch == epoch)
    }

    /// Gives up: nobody has what is wanted. That may take long to change.
    fn give_up(&mut self, now_tick: u64) {
        self.install = None;
        let ticks = (2 * self.pause.1).clamp(*PAUSE_TICKS.start(), *PAUSE_TICKS.end());
        self.pause = (now_tick + ticks, ticks);
    }

    /// Whether it is too early to begin again.
    pub fn pauses(&self, now_tick: u64) -> bool {
        now_tick < self.pause.0
    }

    /// What is being fetched, or was and is about to be installed, is no less needed than what is there.
    pub fn fetched(&self) -> Option<Epoch> {
        self.fetched
    }

    /// A piece could not be written.
    pub fn unwritten(&mut self, piece: Piece) {
        if let Some(install) = &mut self.install {
            install.unwritten(piece);
        }
    }

    /// A piece is on the disk. `last`: so is the whole file.
    pub fn written(&mut self, piece: Piece, bytes: u64, last: bool) {
        if let Some(install) = &mut self.install {
            install.written(piece, bytes, last);
        }
    }

    /// A file came whole, and is no checkpoint: it is wanted of another node. Who gave it.
    pub fn spoilt(&mut self, piece: Piece) -> Option<NodeId> {
        let install = self.install.as_mut()?;
        install.writing.take_if(|writing| *writing == piece)?;
        if std::mem::take(&mut install.is_stale) {
            return None;
        }
        let from = install.from;
        install.refused(Epoch(0));
        from
    }
}

impl ClusterNode {
    /// This node lacks entries that others no longer have.
    pub(super) fn fall_behind(&mut self, source: NodeId, partition: PartitionId, epoch: Epoch) {
        // Of a group of others this node may lack what was read, and not the batches.
        let known = match self.groups.contains_key(&partition) {
            true => self.merge.held(partition),
            false => self.merge.held(partition).min(self.settled()),
        };
        if self.installs.install.is_none() && epoch > known && !self.installs.pauses(self.ticks) {
            self.begin_install(epoch, source);
        }
    }

    /// A node has no checkpoint of the epoch that is being fetched, but one of this.
    pub(super) fn newest_is(&mut self, from: NodeId, epoch: Epoch) {
        let install = self.installs.install.as_mut();
        let Some(install) = install.filter(|install| install.is_from(from)) else {
            return;
        };
        if epoch > install.epoch.max(install.unavailable) {
            // Not behind what this node has itself by now.
            let epoch = epoch.max(self.checkpoints.newest());
            self.begin_install(epoch, from);
        } else {
            install.refused(epoch);
        }
    }

    /// Fetches the checkpoint of an epoch, of everything that this node keeps or is to keep.
    pub(super) fn begin_install(&mut self, epoch: Epoch, source: NodeId) {
        if self.checkpoints.is_writing(epoch) {
            // Into the same files. Once they are there, less is to be fetched.
            return;
        }
        // This node's own one waits for engines that may never come to its place, because what they would
        // read is gone.
        self.checkpoints.is_fetched(epoch);
        let mut wanted = self.kept();
        wanted.extend(self.groups.keys());
        let own = self.own_bases(epoch);
        wanted.retain(|partition| !own.contains_key(partition));
        let wanted = wanted.into_iter().collect();
        let install = Install::new(epoch, source, wanted);
        self.installs.install = Some(match &self.installs.install {
            Some(before) => install.in_place_of(before),
            None => install,
        });
        self.installs.fetched = Some(epoch);
    }

    /// Whether this process is to end behind a checkpoint of others.
    pub(super) fn is_installing(&self) -> bool {
        self.installs.ending || self.installs.install.is_some()
    }

    /// This process is to end, and to start again.
    pub(super) fn start_anew(&mut self, effects: &mut ClusterEffects) {
        self.stop_because(RESTARTING);
        effects.restart = true;
    }

    /// Whether this node keeps all that the map wants it to.
    fn keeps_all(&self) -> bool {
        let kept = self.kept();
        kept.iter().all(|partition| self.groups.contains_key(partition))
    }

    /// Who may have a partition's checkpoint, and is heard: this one first, then the replicas that the map
    /// knows, then those that are members while the map wants others.
    pub(super) fn who_has(&self, partition: PartitionId, first: Option<NodeId>) -> Vec<NodeId> {
        let map = self.map();
        let mut nodes: Vec<NodeId> = first.into_iter().collect();
        nodes.extend(map.partition(partition).replicas.values());
        if let Some(group) = self.groups.get(&partition) {
            let members = group.members();
            nodes.extend(members.voters.iter().chain(&members.voters_outgoing));
        }
        nodes.extend(self.leader(partition));
        let mut known = BTreeSet::from([self.options.me]);
        nodes.retain(|&node| known.insert(node) && self.is_live(node));
        if nodes.is_empty() {
            // Who kept it before the map changed does so until somebody else does.
            let others = map.nodes.keys().copied();
            nodes.extend(others.filter(|&node| node != self.options.me && self.is_live(node)));
        }
        nodes
    }

    /// Asks for the next piece of a checkpoint; starts anew when all are there.
    pub(super) fn fetch(&mut self, effects: &mut ClusterEffects) {
        let Some(install) = &mut self.installs.install else {
            return;
        };
        let (epoch, source, is_complete) = (install.epoch, install.source, install.is_complete());
        // What is confirmed may be stuck for want of what other partitions have read.
        let reached = match self.map().partitions.len() {
            1 => self.merge.confirmed().epoch,
            _ => self.settled(),
        };
        if self.keeps_all() && reached >= epoch {
            // It came another way.
            self.installs.install = None;
            return;
        }
        if is_complete {
            return self.install(effects);
        }
        let Some(install) = &mut self.installs.install else {
            return;
        };
        let Some(piece) = install.next(self.ticks) else {
            return;
        };
        let known = install.from.filter(|_| install.repeats < REPEATS_MAX);
        if let Some(from) = known.filter(|&from| self.is_live(from)) {
            return self.send(from, &Frame::Fetch(piece), effects);
        }
        // Whoever said so has the partitions that it keeps; others have the rest. A file comes from one node.
        let able = self.who_has(piece.partition, Some(source));
        let Some(install) = &mut self.installs.install else {
            return;
        };
        let refused = |node: &NodeId| install.refused.contains(node);
        if !able.is_empty() && able.iter().all(refused) {
            if install.asks_again(self.ticks) {
                return;
            }
            let unavailable = install.unavailable.max(epoch);
            // This node may have begun behind an older one than it has by now.
            let older = install.older.max(self.checkpoints.newest());
            if older > reached && older != epoch {
                self.begin_install(older, source);
                if let Some(install) = &mut self.installs.install {
                    install.unavailable = unavailable;
                }
            } else {
                // Whoever says again that this node is behind may have more by then.
                self.installs.give_up(self.ticks);
            }
            return;
        }
        let able: Vec<NodeId> = able.into_iter().filter(|node| !refused(node)).collect();
        if let Some(&from) = able.get(install.turn % able.len().max(1)) {
            let piece = install.begin_file_from(from, piece.partition, self.ticks);
            self.send(from, &Frame::Fetch(piece), effects);
        }
    }

    /// A piece of a checkpoint has come.
    pub(super) fn piece_came(
        &mut self,
        from: NodeId,
        piece: Piece,
        total: u64,
        base: Bytes,
        bytes: Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let now = self.ticks;
        let Some(install) = &mut self.installs.install else {
            return Ok(());
        };
        if !install.is_from(from) || !install.takes(piece, now) {
            return Ok(());
        }
        let checked = match install.fits(piece, total, &bytes) {
            false => Err("a piece does not go with those before it".into()),
            true if piece.offset > 0 => Ok(None),
            true => self.base_of(piece, &base).map(Some),
        };
        let Some(install) = &mut self.installs.install else {
            return Ok(());
        };
        match checked {
            Err(bad) => {
                // Nothing of it is written.
                install.writing = None;
                install.refused(Epoch(0));
                return Err(bad);
            }
            Ok(None) => {}
            Ok(Some(base)) => {
                install.total = Some(total);
                install.bases.insert(piece.partition, base);
            }
        }
        let is_last = piece.offset + bytes.len() as u64 == total;
        let base = install.bases.get(&piece.partition);
        let whole =
            base.filter(|_| is_last).map(|(_, state)| Whole { next: state.next, digest: state.digest });
        effects.host.write = Some((piece, bytes, whole));
        Ok(())
    }

    /// Reads the base that comes with a checkpoint, and holds it against the cluster: this node is to begin
    /// behind it.
    fn base_of(&self, piece: Piece, bytes: &[u8]) -> Result<(Base, BaseState), BadFrame> {
        const NUMBERS_END: u64 = 1 << 61;
        let mut reader = Reader::new(bytes);
        let base = Base::take(&mut reader).filter(|_| reader.is_empty());
        let base = base.ok_or("a checkpoint's base cannot be read")?;
        let state = BaseState::decode(&base.state).ok_or("a checkpoint's base cannot be read")?;
        let own = self.map();
        let members = &base.members;
        let mut named = (members.voters.iter()).chain(&members.voters_outgoing);
        let is_node = |node: &NodeId| (1..=NODES_MAX).contains(&node.0);
        let numbers = [base.index, base.term, state.epoch.0, state.next.0];
        match () {
            () if state.epoch != piece.epoch => Err("a checkpoint's base is of another epoch".into()),
            () if state.map.cluster != own.cluster || state.map.partitions.len() != own.partitions.len() => {
                Err("a checkpoint's base is of another cluster".into())
            }
            () if members.voters.is_empty() || !named.all(is_node) => {
                Err("a checkpoint's base names no members".into())
            }
            () if !numbers.iter().all(|number| (1..NUMBERS_END).contains(number))
                || state.time_ms >= TIME_MS_END =>
            {
                Err("a checkpoint's base is at no place of the order".into())
            }
            () => Ok((base, state)),
        }
    }

    /// All files are there: the groups' logs begin behind them, and the process starts anew.
    fn install(&mut self, effects: &mut ClusterEffects) {
        let unkept = self.checkpoints.newest_unkept();
        let own = self.checkpoints.newest();
        let Some(install) = &mut self.installs.install else {
            return;
        };
        if unkept.is_some_and(|epoch| epoch >= install.epoch) {
            // One of this node's own is about to be there: what counts in the journal does not go back.
            return;
        }
        let (epoch, source) = (install.epoch, install.source);
        if own > epoch {
            // This node has taken one of its own meanwhile: all partitions are to stand at one epoch.
            return self.begin_install(own, source);
        }
        // The map may want more than it did when this began.
        let mut all = self.kept();
        all.extend(self.groups.keys());
        // What this node has of that epoch itself counts as fetched.
        let mut bases = self.own_bases(epoch);
        bases.retain(|partition, _| all.contains(partition));
        all.retain(|partition| !bases.contains_key(partition));
        let Some(install) = &mut self.installs.install else {
            return;
        };
        install.want(all);
        if !install.is_complete() {
            return self.fetch(effects);
        }
        let fetched = install.read_bases();
        self.installs.install = None;
        match fetched {
            Ok(fetched) => bases.extend(fetched),
            Err(partition) => {
                effects.warnings.push(format!(
                    "the checkpoint of {partition} came without a base of epoch {}: it is fetched again",
                    epoch.0
                ));
                return;
            }
        }
        let lacks = |(partition, base): &(&PartitionId, &Base)| {
            let retired = self.retired.get(partition);
            retired.is_some_and(|retired| !retired.is_covered_by(base.index))
        };
        if bases.iter().any(|found| lacks(&found)) {
            // It had promised to have more: it comes back behind a newer one.
            return self.want_checkpoint();
        }
        for (&partition, base) in &bases {
            // What follows the checkpoint in a log may be promised, and others may need what is before: it
            // stays if it is of the same history.
            let has_all = self.groups.get(&partition).is_some_and(|group| {
                let entry = group.entry(base.index);
                group.base().index >= base.index || entry.is_some_and(|entry| entry.term == base.term)
            });
            if has_all && self.is_spread {
                continue;
            }
            let known = self.groups.get(&partition);
            if known.is_some_and(|group| group.base().index >= base.index) {
                continue;
            }
            let kept = Kept { reset: !has_all, base: Some(base.clone()), ..Kept::nothing(partition) };
            self.record(kept, effects);
        }
        if self.is_spread {
            self.record_fetched(epoch, bases, effects);
        }
        effects
            .warnings
            .push(format!("has fetched the checkpoint of epoch {}: starts anew behind it", epoch.0));
        self.groups.wait_for(Then::Installed);
        self.installs.end();
    }
}

/// Reads a piece of a checkpoint for another node, and returns the event for this one.
///
/// # Errors
/// The disk fails, or the file is gone.
pub fn serve_piece<D: Disk>(disk: &D, to: NodeId, piece: Piece) -> io::Result<HostEvent> {
    read_piece(disk, piece).map(|(total, bytes)| HostEvent::PieceRead { to, piece, total, bytes })
}

/// Writes a piece of a checkpoint that another node gave, and returns the event for this one. With the last
/// piece the file is complete and durable, or it is not the checkpoint that it should be, and is removed.
pub fn store_piece<D: Disk>(disk: &D, piece: Piece, bytes: &[u8], whole: Option<Whole>) -> HostEvent {
    match write_piece(disk, piece, bytes, whole) {
        Ok(()) => HostEvent::PieceWritten { piece, bytes: bytes.len() as u64, last: whole.is_some() },
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            HostEvent::PieceSpoilt { piece, cause: error.to_string() }
        }
        Err(error) => HostEvent::PieceUnwritten { piece, error: error.to_string() },
    }
}

/// The size of the whole file, and the bytes of the piece.
fn read_piece<D: Disk>(disk: &D, piece: Piece) -> io::Result<(u64, Vec<u8>)> {
    let file = disk.open(&file_name(piece.partition, piece.epoch))?;
    let total = file.len_bytes()?;
    let left = total.saturating_sub(piece.offset).min(PIECE_BYTES as u64);
    let mut bytes = vec![0; left as usize];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(piece.offset + done as u64, &mut bytes[done..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok((total, bytes))
}

/// Fails with [`io::ErrorKind::InvalidData`] if the file is whole and is not the checkpoint that it should
/// be.
fn write_piece<D: Disk>(disk: &D, piece: Piece, bytes: &[u8], whole: Option<Whole>) -> io::Result<()> {
    let unfinished = unfinished_name(piece.partition, piece.epoch);
    let file = if piece.offset == 0 {
        if disk.list()?.contains(&unfinished) {
            disk.remove(&unfinished)?;
        }
        disk.create(&unfinished, 0)?
    } else {
        disk.open(&unfinished)?
    };
    file.write_at(piece.offset, bytes)?;
    if let Some(whole) = whole {
        if let Err(why) = check_whole(&file, whole) {
            disk.remove(&unfinished)?;
            return Err(why);
        }
        file.sync()?;
        disk.rename(&unfinished, &file_name(piece.partition, piece.epoch))?;
        disk.sync_dir()?;
    }
    Ok(())
}

/// Reads a file that is to be loaded at the next start: then it would be too late to fetch another one.
fn check_whole<F: DiskFile>(file: &F, whole: Whole) -> io::Result<()> {
    let read = store::checkpoint::read(io::BufReader::new(FileReader::new(file)), |_| ());
    let header = read.map_err(|error| match error {
        CheckpointError::Io(error) => error,
        damaged => io::Error::new(io::ErrorKind::InvalidData, damaged),
    })?;
    match (header.position.0.checked_add(1), header.digest) == (Some(whole.next.0), whole.digest) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is not of the place in the order that its base tells of",
        )),
    }
}

#[cfg(test)]
mod tests;
