//! Catching up by a checkpoint: what a replica does whose leader no longer has the entries that it lacks.
//!
//! The leader says so ([`Frame::Behind`](super::Frame::Behind)), and the replica fetches the checkpoints of
//! all its partitions at one epoch, piece by piece, while it goes on as well as it can. It asks for each
//! piece, so the transfer needs no more memory than a piece, and lost frames cost some ticks: how many is
//! learnt from how long pieces take, because asking again before a slow link has delivered fills that link
//! with what nobody needs, and then nothing comes in time. When all files are there it writes new bases into
//! its journal, in one record, and starts anew: a process that begins behind a checkpoint is something that
//! every start does.
//!
//! Where nodes keep different partitions, whoever says so may have a checkpoint that nobody who is left has
//! of another partition. Then an older one does, of which that has logs: a replica that waited for the newer
//! one might be the very one without which there never will be another.
//!
//! ```text
//!            behind, and not pausing                     all files are there, and their bases
//!   idle ───────────────────────────────► fetching ──────────────────────────────────────────► ending
//!    ▲  ▲                                │   │   ▲ │                                      the process starts anew
//!    │  └── it came another way ─────────┘   │   └─┘ a newer one, or an older that somebody has
//!    └── pausing ◄── nobody has what would help
//! ```
//!
//! Invariants ([`Transfer::check_invariants`]):
//! 1. One file is fetched at a time, from one node, and one piece is written at a time.
//! 2. Of a file that is being fetched, what is before the offset is on the disk, in order, from that node.
//! 3. Nothing is fetched while an installed checkpoint is being made durable.

use super::base::BaseState;
use super::pieces::{Piece, Whole};
use super::shape::BadFrame;
use bytes::Bytes;
use log::Base;
use order::{PartitionMap, TIME_MS_END};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use txn::codec::Reader;
use txn::{Epoch, NODES_MAX, NodeId, PartitionId};

/// A piece that has not come is asked for again after so many ticks, at least and at most.
const PATIENCE_TICKS: RangeInclusive<u64> = 4..=256;

/// One who was asked for a piece so often has no part in it any more.
const REPEATS_MAX: u32 = 4;
/// So often everybody refuses a file before it is given up: whoever is late may just be writing it.
const ROUNDS_MAX: u32 = 3;
/// What nobody has is not asked for again for so many ticks, at least and at most.
const PAUSE_TICKS: RangeInclusive<u64> = 8..=128;

/// The files that are being fetched.
#[derive(Debug)]
struct Install {
    epoch: Epoch,
    /// Everything that is fetched, or was.
    all: BTreeSet<PartitionId>,
    /// What is still to be fetched, the first one next.
    wanted: Vec<PartitionId>,
    offset: u64,
    /// The size of the file that is being fetched, once something of it has come.
    total: Option<u64>,
    /// The group's base at the checkpoint, as the source gave it.
    bases: BTreeMap<PartitionId, (Base, BaseState)>,
    /// The node that said that this one is behind.
    source: NodeId,
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
    fn new(begin: Begin, wanted: Vec<PartitionId>) -> Install {
        let Begin { epoch, source, unavailable } = begin;
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
            unavailable,
            asked_tick: None,
            repeats: 0,
            patience_ticks: *PATIENCE_TICKS.start(),
            writing: None,
            is_stale: false,
        }
    }

    /// Goes on with what was learnt of the link, once what is being written for the one before is on the
    /// disk.
    fn in_place_of(self, before: &Install) -> Install {
        Install {
            patience_ticks: before.patience_ticks,
            writing: before.writing,
            is_stale: before.writing.is_some(),
            ..self
        }
    }

    /// These are needed, too.
    fn want(&mut self, more: impl IntoIterator<Item = PartitionId>) {
        for partition in more {
            if self.all.insert(partition) {
                self.wanted.push(partition);
            }
        }
    }

    /// The bases that came, if there is one for everything that was wanted; otherwise whose is missing.
    fn read_bases(&self) -> Result<BTreeMap<PartitionId, Base>, PartitionId> {
        let read = |&partition: &PartitionId| {
            let base = self.bases.get(&partition);
            let base = base.map(|(base, _)| (partition, base.clone()));
            base.ok_or(partition)
        };
        self.all.iter().map(read).collect()
    }

    /// The piece that is to be asked for now, if one is.
    fn next(&mut self, now_tick: u64) -> Option<Piece> {
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
    fn takes(&mut self, piece: Piece, now_tick: u64) -> bool {
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
    fn written(&mut self, piece: Piece, bytes: u64, last: bool) {
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
    fn unwritten(&mut self, piece: Piece) {
        if self.writing.take_if(|writing| *writing == piece).is_some() {
            self.is_stale = false;
            self.offset = 0;
        }
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
    fn is_complete(&self) -> bool {
        self.wanted.is_empty()
    }
}

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Transfer {
    install: Option<Install>,
    /// The epoch of the checkpoint that was fetched last, or is being fetched.
    fetched: Option<Epoch>,
    /// An installed checkpoint is being made durable: nothing else happens.
    ending: bool,
    /// Nothing that would help was to be had: until when nothing is begun, and how long that is.
    pause: (u64, u64),
}

/// What a node has itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    /// Up to which epoch it has all that it keeps.
    pub reached: Epoch,
    /// It keeps all that the map wants it to.
    pub keeps_all: bool,
    /// Its newest checkpoint that counts.
    pub newest: Epoch,
    /// Its newest one that is about to count.
    pub unkept: Option<Epoch>,
}

/// The checkpoint of an epoch is to be fetched, because of what a node said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begin {
    pub epoch: Epoch,
    pub source: NodeId,
    /// Those up to this one that are newer are known not to be had.
    unavailable: Epoch,
}

impl Begin {
    /// What is to be had is not known.
    pub fn new(epoch: Epoch, source: NodeId) -> Begin {
        Begin { epoch, source, unavailable: Epoch(0) }
    }
}

/// What is to be done next to get a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A node is to be asked for a piece.
    Ask(NodeId, Piece),
    /// Another checkpoint is to be fetched in its place.
    Begin(Begin),
    /// All that was wanted is there: see [`Transfer::ready`].
    Install(Epoch),
}

/// Whether what was fetched can be installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ready {
    /// Not now.
    No,
    /// The node's own one, which is newer, is to be completed instead: all partitions are to stand at one
    /// epoch.
    Begin(Begin),
    /// More is needed than what was wanted when it began: that is fetched now.
    More,
    /// What was fetched, with its bases.
    Bases(BTreeMap<PartitionId, Base>),
    /// A file came without a base.
    Lacks(PartitionId),
}

/// A piece that is to be written, and what its file must be if it is whole with that.
pub(super) type Taken = (Piece, Bytes, Option<Whole>);

impl Transfer {
    /// Whether an installed checkpoint is being made durable: nothing else happens.
    pub fn is_ending(&self) -> bool {
        self.ending
    }

    /// What is recorded now is made durable, and nothing else happens before this process ends.
    pub fn end(&mut self) {
        self.install = None;
        self.ending = true;
    }

    /// Whether this process is to end behind a checkpoint of others.
    pub fn is_installing(&self) -> bool {
        self.ending || self.install.is_some()
    }

    /// The epoch of the checkpoint that is being fetched.
    pub fn fetching(&self) -> Option<Epoch> {
        self.install.as_ref().map(|install| install.epoch)
    }

    /// What is being fetched, or was and is about to be installed, is no less needed than what is there.
    pub fn fetched(&self) -> Option<Epoch> {
        self.fetched
    }

    /// Whether it is too early to begin again.
    pub fn pauses(&self, now_tick: u64) -> bool {
        now_tick < self.pause.0
    }

    /// A node says that this one lacks entries, which it no longer has, before its checkpoint of an epoch.
    /// What is here is known up to `known`.
    pub fn behind(&self, source: NodeId, epoch: Epoch, known: Epoch, now_tick: u64) -> Option<Begin> {
        let begins = self.install.is_none() && epoch > known && !self.pauses(now_tick);
        begins.then(|| Begin::new(epoch, source))
    }

    /// A node has no checkpoint of the epoch that is being fetched, but one of this.
    pub fn newest_is(&mut self, from: NodeId, epoch: Epoch, own: Own) -> Option<Begin> {
        let install = self.install.as_mut().filter(|install| install.from == Some(from))?;
        if epoch > install.epoch.max(install.unavailable) {
            // Not behind what this node has itself by now.
            return Some(Begin::new(epoch.max(own.newest), from));
        }
        install.refused(epoch);
        None
    }

    /// Fetches these partitions' files of a checkpoint.
    pub fn begin(&mut self, begin: Begin, wanted: Vec<PartitionId>) {
        let install = Install::new(begin, wanted);
        self.install = Some(match &self.install {
            Some(before) => install.in_place_of(before),
            None => install,
        });
        self.fetched = Some(begin.epoch);
    }

    /// What is to be done now. `able` gives those who may have a partition's file and are heard, this node
    /// first.
    pub fn next(
        &mut self,
        own: Own,
        now_tick: u64,
        is_live: impl Fn(NodeId) -> bool,
        able: impl Fn(PartitionId, NodeId) -> Vec<NodeId>,
    ) -> Option<Wish> {
        let install = self.install.as_mut()?;
        if own.keeps_all && own.reached >= install.epoch {
            // It came another way.
            self.install = None;
            return None;
        }
        if install.is_complete() {
            return Some(Wish::Install(install.epoch));
        }
        let piece = install.next(now_tick)?;
        let known = install.from.filter(|_| install.repeats < REPEATS_MAX);
        if let Some(from) = known.filter(|&from| is_live(from)) {
            return Some(Wish::Ask(from, piece));
        }
        // Whoever said so has the partitions that it keeps; others have the rest. A file comes from one node.
        let mut able = able(piece.partition, install.source);
        if !able.is_empty() && able.iter().all(|node| install.refused.contains(node)) {
            if install.asks_again(now_tick) {
                return None;
            }
            let unavailable = install.unavailable.max(install.epoch);
            // This node may have begun behind an older one than it has by now.
            let older = install.older.max(own.newest);
            if older > own.reached && older != install.epoch {
                return Some(Wish::Begin(Begin { epoch: older, source: install.source, unavailable }));
            }
            // Whoever says again that this node is behind may have more by then.
            self.give_up(now_tick);
            return None;
        }
        able.retain(|node| !install.refused.contains(node));
        let &from = able.get(install.turn % able.len().max(1))?;
        Some(Wish::Ask(from, install.begin_file_from(from, piece.partition, now_tick)))
    }

    /// A piece has come, of a file of `total` bytes. `read` reads the base that comes with the first one.
    ///
    /// # Errors
    /// It cannot be: it is wanted of another node.
    pub fn came(
        &mut self,
        from: NodeId,
        piece: Piece,
        total: u64,
        bytes: Bytes,
        now_tick: u64,
        read: impl FnOnce() -> Result<(Base, BaseState), BadFrame>,
    ) -> Result<Option<Taken>, BadFrame> {
        let Some(install) = &mut self.install else {
            return Ok(None);
        };
        if install.from != Some(from) || !install.takes(piece, now_tick) {
            return Ok(None);
        }
        let checked = match install.fits(piece, total, &bytes) {
            false => Err("a piece does not go with those before it".into()),
            true if piece.offset > 0 => Ok(None),
            true => read().map(Some),
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
        let whole = base.filter(|_| is_last).map(|(_, state)| Whole::of(state));
        Ok(Some((piece, bytes, whole)))
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

    /// All that was wanted is there. `needed` is what the map wants by now, without what this node has of
    /// that epoch itself.
    pub fn ready(&mut self, own: Own, needed: impl IntoIterator<Item = PartitionId>) -> Ready {
        let Some(install) = &mut self.install else {
            return Ready::No;
        };
        if own.unkept.is_some_and(|epoch| epoch >= install.epoch) {
            // One of this node's own is about to be there: what counts in the journal does not go back.
            return Ready::No;
        }
        if own.newest > install.epoch {
            return Ready::Begin(Begin::new(own.newest, install.source));
        }
        install.want(needed);
        if !install.is_complete() {
            return Ready::More;
        }
        let bases = install.read_bases();
        self.install = None;
        match bases {
            Ok(bases) => Ready::Bases(bases),
            Err(partition) => Ready::Lacks(partition),
        }
    }

    /// The module's invariants, as far as they show.
    pub fn check_invariants(&self) {
        let Some(install) = &self.install else { return };
        debug_assert!(!self.ending);
        debug_assert!(install.wanted.iter().all(|partition| install.all.contains(partition)));
        debug_assert!(install.offset == 0 || install.from.is_some() && install.total.is_some());
        debug_assert!(install.total.is_none_or(|total| install.offset < total));
        debug_assert_eq!(self.fetched, Some(install.epoch));
    }

    /// Gives up: nobody has what is wanted. That may take long to change.
    fn give_up(&mut self, now_tick: u64) {
        self.install = None;
        let ticks = (2 * self.pause.1).clamp(*PAUSE_TICKS.start(), *PAUSE_TICKS.end());
        self.pause = (now_tick + ticks, ticks);
    }
}

/// Reads the base that comes with a checkpoint, and holds it against the cluster, of which this node has that
/// map: it is to begin behind it.
pub(super) fn read_base(
    epoch: Epoch,
    bytes: &[u8],
    own: &PartitionMap,
) -> Result<(Base, BaseState), BadFrame> {
    const NUMBERS_END: u64 = 1 << 61;
    let mut reader = Reader::new(bytes);
    let base = Base::take(&mut reader).filter(|_| reader.is_empty());
    let base = base.ok_or("a checkpoint's base cannot be read")?;
    let state = BaseState::decode(&base.state).ok_or("a checkpoint's base cannot be read")?;
    let members = &base.members;
    let mut named = (members.voters.iter()).chain(&members.voters_outgoing);
    let is_node = |node: &NodeId| (1..=NODES_MAX).contains(&node.0);
    let numbers = [base.index, base.term, state.epoch.0, state.next.0];
    match () {
        () if state.epoch != epoch => Err("a checkpoint's base is of another epoch".into()),
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

#[cfg(test)]
mod tests;
