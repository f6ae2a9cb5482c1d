//! The state machine.

use super::ClusterOptions;
use super::bootstrap::Bootstrap;
use super::checkpoint::{CANDIDATES, Checkpoints, ClusterCheckpoint, Needed};
use super::feeds::{Answered, Feeds, News, Wish};
use super::frames::Frame;
use super::gateway::Gateway;
use super::install::{Installs, Piece};
use super::lead::Lead;
use super::leaders::Leaders;
use super::members::{MEMBERS_TICKS, Membership};
use super::peers::Peers;
use super::reads::{Read, Reads};
use super::recover::held;
use super::retired::Retired;
use crate::expiry::ExpiryScan;
use crate::machine::Refused;
use crate::options::FsyncPolicy;
use bytes::Bytes;
use execute::Engine;
use order::arrange::Place;
use order::consensus::{
    ELECTION_TICKS, Entry, EntryKind, Group, GroupStatus, Input, Kept, Turn, asks_for_vote,
};
use order::merge::{Confirmation, Content, EpochEnd, Held, Merge, Retraction, Unreadable};
use order::{Changed, Control, PartitionMap, Submission, digest_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::codec::RequestError;
use txn::mutant::{Mutant, is_active};
use txn::{
    Args, BootId, Epoch, NodeId, Outcome, PartitionId, PartitionRoute, Position, Registry, Request,
    RequestId, SessionId, Space, Stop,
};

/// A node of which nothing was heard for so many ticks is taken for gone.
const SILENCE_TICKS: u64 = 10;
/// A leader that is late with its batch is told so after so many ticks: what was begun may not have reached it.
const BEGUN_TICKS: u64 = 2;
/// What a leader was sent is doubted after so many ticks.
const DOUBT_TICKS: u64 = 20;
/// A question for an index is asked again after so many ticks.
const QUESTION_TICKS: u64 = 2;
/// A leader looks for expired entries every so many ticks.
const EXPIRY_TICKS: u64 = 2;
/// A replica that was told to fetch a checkpoint has had time to do so after so many ticks.
const BEHIND_TICKS: u64 = 20;
/// Every so many ticks nodes tell each other their clocks.
pub(super) const CLOCK_TICKS: u64 = 4;
/// A leader that is not the preferred one looks every so many ticks whether that one could take over.
const BALANCE_TICKS: u64 = 40;
/// Under `everysec`, what was written is synced after this time.
const EVERYSEC_MS: u64 = 1_000;

/// What happens to a node of a cluster, apart from requests.
#[derive(Debug)]
pub enum ClusterEvent {
    /// A frame of another node.
    Frame {
        /// Who sent it.
        from: NodeId,
        /// The frame.
        bytes: Bytes,
    },
    /// What was sent to this node before may be lost; what is sent now arrives.
    Connected(NodeId),
    /// What is sent to this node does not arrive.
    Disconnected(NodeId),
    /// What [`ClusterEffects::kept`] held is in the journal. Counts records from 1.
    Written(u64),
    /// Everything up to this record is on the disk.
    Synced(u64),
    /// The journal could not be written or synced: nothing is promised any more.
    JournalFailed(String),
    /// Time passes: a tick of [`ClusterOptions::tick_ms`].
    Tick,
    /// The engines have got on where [`ClusterNode::waits_for_room`]. A tick does as well, later.
    Room,
    /// The checkpoint of [`ClusterEffects::checkpoint`] is on the disk.
    CheckpointWritten {
        /// Its epoch.
        epoch: Epoch,
        /// The size of its files.
        bytes: u64,
    },
    /// It could not be written.
    CheckpointFailed(String),
    /// A checkpoint is wanted now, of the whole cluster.
    CheckpointWanted,
    /// What [`ClusterEffects::read`] asked for.
    PieceRead {
        /// For whom.
        to: NodeId,
        /// Which piece.
        piece: Piece,
        /// The size of the whole file.
        total: u64,
        /// What it has there.
        bytes: Vec<u8>,
    },
    /// What [`ClusterEffects::write`] held is in its file; the whole file is durable if it was the last piece.
    PieceWritten {
        /// Which piece.
        piece: Piece,
        /// How many bytes.
        bytes: u64,
        /// Whether it was the last.
        last: bool,
    },
    /// A change of the map is wanted.
    ChangeWanted(Control),
    /// A group's leader should hand over, and the group is to stay there for a while ([`super::TRANSFER_KEPT_MS`]). Only the leader
    /// hears it.
    TransferWanted {
        /// Of which group.
        partition: PartitionId,
        /// To whom.
        to: NodeId,
    },
    /// Admit nothing more.
    Stop,
}

/// What a node wants done. Reused between calls: the driver takes out what it does.
#[derive(Default)]
pub struct ClusterEffects {
    /// Append this to the journal as one record, if not empty. The driver does so, clears it, and reports
    /// [`ClusterEvent::Written`] or [`ClusterEvent::JournalFailed`] *before it passes anything else* to the node.
    pub kept: Vec<Kept>,
    /// Start a sync of everything that was written.
    pub sync: bool,
    /// Frames for other nodes, in order for each of them.
    pub frames: Vec<(NodeId, Vec<u8>)>,
    /// Requests that were taken and are answered with an error.
    pub refused: Vec<(RequestId, Outcome)>,
    /// Requests that were taken and were executed by other nodes.
    pub answered: Vec<Answered>,
    /// Strict reads that may run at a snapshot, once the partition's engine has final-committed up to the position.
    pub readable: Vec<(RequestId, PartitionId, Position)>,
    /// Write checkpoints, on a thread that may wait.
    pub checkpoint: Option<ClusterCheckpoint>,
    /// Only these checkpoints and newer ones are needed any more ([`super::checkpoint::prune`]), and of the journal what
    /// [`order::Journal::truncation`] leaves.
    pub prune: Option<Needed>,
    /// Read pieces of checkpoints, for other nodes.
    pub read: Vec<(NodeId, Piece)>,
    /// Write a piece of a checkpoint: its bytes, and whether it is the last ([`super::write_piece`]).
    pub write: Option<(Piece, Bytes, bool)>,
    /// Something became final: stepping the engines may final-commit now.
    pub confirmed: bool,
    /// Something was delivered: stepping the engines may execute it.
    pub delivered: bool,
    /// The order gave this process its boot id: requests are taken from now on.
    pub boot: Option<BootId>,
    /// Changes of the map that this node had wanted, and what they did.
    pub changed: Vec<(Control, Changed)>,
    /// A newer map than this node's own, from another node: where the others are. Who was down while nodes were replaced
    /// needs it, because the leader from whom it would learn of them may be one of them.
    pub known: Option<Arc<PartitionMap>>,
    /// What an operator should read.
    pub warnings: Vec<String>,
    /// End this process and start it again: it goes on behind the checkpoint that was installed, or keeps other
    /// partitions, as [`ClusterNode::map`] says.
    pub restart: bool,
    /// This node is no part of the cluster any more, and its process is to end: what to tell its operator.
    pub ended: Option<String>,
}

/// What was written, and what follows once it is kept.
struct Unkept {
    /// The record that must be durable, or 0 if nothing had to be written.
    record: u64,
    must_sync: bool,
    then: Then,
}

/// What follows once a record is kept.
pub(super) enum Then {
    /// Nothing: it is only to be durable.
    Nothing,
    /// A group's turn is over.
    Promise {
        partition: PartitionId,
        turn: u64,
        promises: Vec<(NodeId, Bytes)>,
    },
    /// The bases of this epoch's checkpoint are kept.
    Candidate(Epoch),
    /// The groups' logs begin behind the checkpoint of this epoch.
    Rebased(Epoch),
    /// A checkpoint is installed, or replicas are given up: the process starts anew.
    Installed,
}

/// A partition's engine, and how far it was told.
struct Executor {
    engine: Arc<dyn Engine>,
    /// The next position to be delivered.
    next: Position,
    expiry: ExpiryScan,
}

/// Counters and places of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The last delivered epoch.
    pub delivered: Epoch,
    /// The last confirmed epoch.
    pub confirmed: Epoch,
    /// Epochs that were confirmed since the start.
    pub epochs: u64,
    /// Epochs that were taken back since the start.
    pub retracted: u64,
    /// Requests of this process's clients that are not known to be in the order.
    pub waiting: u64,
    /// Strict reads that wait.
    pub reads_waiting: usize,
    /// Bytes of agreed batches since the last checkpoint was ordered.
    pub log_bytes_since_checkpoint: u64,
    /// Why this node takes no part, if it does not.
    pub stopped: Option<String>,
}

/// What a process begins with, beside what its files hold of the order.
pub(super) struct Beginning {
    /// What no other process has.
    pub nonce: u64,
    pub bootstrap: Bootstrap,
    /// The map that the cluster was founded with.
    pub first_map: PartitionMap,
    /// The newest map that this node had heard of.
    pub known: Arc<PartitionMap>,
    pub checkpoints: Checkpoints,
    /// Replicas of this node that have moved away.
    pub retired: BTreeMap<PartitionId, Retired>,
}

/// See the [module's head](super).
pub struct ClusterNode {
    pub(super) options: ClusterOptions,
    pub(super) registry: Registry,
    nonce: u64,
    pub(super) boot: BootId,
    pub(super) merge: Merge,
    pub(super) groups: BTreeMap<PartitionId, Box<dyn Group>>,
    /// Groups whose next turn was not yet asked for.
    pub(super) dirty: BTreeSet<PartitionId>,
    executors: BTreeMap<PartitionId, Executor>,
    gateway: Gateway,
    pub(super) leads: BTreeMap<PartitionId, Lead>,
    /// Who leads each group, and in which term, as far as this node knows.
    pub(super) leaders: BTreeMap<PartitionId, (NodeId, u64)>,
    pub(super) placement: Leaders,
    reads: Reads,
    pub(super) peers: Peers,
    /// Changes that this node wants, until they are in the order.
    wanted: Vec<Control>,
    /// The newest map of others that this node knows: it may be ahead of its own.
    known: Arc<PartitionMap>,
    /// The newest epoch that another node has begun.
    begun: Epoch,
    /// What is written, and not yet kept, oldest first.
    unkept: VecDeque<Unkept>,
    pub(super) records: u64,
    written: u64,
    pub(super) synced: u64,
    syncing: bool,
    /// When the last sync was begun.
    sync_tick: u64,
    pub(super) now_ms: u64,
    pub(super) ticks: u64,
    pub(super) checkpoints: Checkpoints,
    pub(super) installs: Installs,
    /// Replicas that were told to fetch a checkpoint, and when.
    pub(super) behind: BTreeMap<(PartitionId, NodeId), u64>,
    /// Epochs that are confirmed, and where the local partitions stand behind them: some has not final-committed it.
    unsettled: VecDeque<(Epoch, Vec<Position>)>,
    /// All local partitions have final-committed everything up to this epoch.
    settled: Epoch,
    /// What was read for transactions over several partitions up to this epoch is not known any more.
    pub(super) forgotten: Epoch,
    /// The last confirmed epoch that was looked at, and since when it is that one while others are begun.
    progress: (Epoch, u64),
    /// Wanted changes are passed on again.
    remind: bool,
    /// What could be delivered waits until the engines have got on.
    waits_for_room: bool,
    stopping: bool,
    counters: ClusterStatus,
    pub(super) bootstrap: Bootstrap,
    pub(super) membership: Membership,
    /// Replicas of this node that have moved away.
    pub(super) retired: BTreeMap<PartitionId, Retired>,
    pub(super) feeds: Feeds,
    pub(super) is_spread: bool,
    /// The map that the cluster was founded with.
    first_map: Arc<PartitionMap>,
}

impl ClusterNode {
    pub(super) fn new(
        options: ClusterOptions,
        registry: Registry,
        merge: Merge,
        groups: BTreeMap<PartitionId, Box<dyn Group>>,
        engines: BTreeMap<PartitionId, Arc<dyn Engine>>,
        beginning: Beginning,
    ) -> ClusterNode {
        let Beginning {
            nonce,
            bootstrap,
            first_map,
            known,
            checkpoints,
            retired,
        } = beginning;
        let next = merge.confirmed().next.clone();
        let is_spread = merge.confirmed().map.is_spread();
        let settled = merge.confirmed().epoch;
        let executors = engines
            .into_iter()
            .zip(next)
            .map(|((partition, engine), next)| {
                let expiry = ExpiryScan::default();
                (
                    partition,
                    Executor {
                        engine,
                        next,
                        expiry,
                    },
                )
            })
            .collect();
        ClusterNode {
            options,
            registry,
            nonce,
            boot: BootId(0),
            merge,
            dirty: groups.keys().copied().collect(),
            groups,
            executors,
            gateway: Gateway::default(),
            leads: BTreeMap::new(),
            leaders: BTreeMap::new(),
            placement: Leaders::default(),
            reads: Reads::new(nonce),
            peers: Peers::default(),
            wanted: Vec::new(),
            known,
            begun: Epoch(0),
            unkept: VecDeque::new(),
            records: 0,
            written: 0,
            synced: 0,
            syncing: false,
            sync_tick: 0,
            now_ms: 0,
            ticks: 0,
            checkpoints,
            installs: Installs::default(),
            behind: BTreeMap::new(),
            unsettled: VecDeque::new(),
            settled,
            // Nobody has told this process.
            forgotten: settled,
            progress: (Epoch(0), 0),
            remind: false,
            waits_for_room: false,
            stopping: false,
            counters: ClusterStatus::default(),
            bootstrap,
            membership: Membership::default(),
            retired,
            feeds: Feeds::new(nonce),
            is_spread,
            first_map: Arc::new(first_map),
        }
    }

    /// The map that is in force.
    pub fn map(&self) -> &Arc<PartitionMap> {
        &self.merge.confirmed().map
    }

    /// The newest map that this node knows: its own, or one of others, which is ahead of it.
    pub(super) fn newest_map(&self) -> &Arc<PartitionMap> {
        match self.known.version > self.map().version {
            true => &self.known,
            false => self.map(),
        }
    }

    /// Where the order stands, as far as this node knows it to be final.
    pub fn confirmed(&self) -> &EpochEnd {
        self.merge.confirmed()
    }

    /// The map that the cluster was founded with: where a node begins that joins and follows the log from its beginning.
    pub fn first_map(&self) -> &Arc<PartitionMap> {
        &self.first_map
    }

    /// This process's boot id; 0 until the order has given it one.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// Who leads a group, as far as this node knows.
    pub fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.leaders.get(&partition).map(|&(node, _)| node)
    }

    /// Where the local replica of a group stands.
    pub fn group_status(&self, partition: PartitionId) -> Option<GroupStatus> {
        self.groups.get(&partition).map(|group| group.status())
    }

    /// The local partitions' engines.
    pub fn engines(&self) -> impl Iterator<Item = (PartitionId, &Arc<dyn Engine>)> {
        self.executors
            .iter()
            .map(|(&partition, executor)| (partition, &executor.engine))
    }

    /// A local partition's engine.
    pub(super) fn engine(&self, partition: PartitionId) -> Option<&Arc<dyn Engine>> {
        let executor = self.executors.get(&partition);
        executor.map(|executor| &executor.engine)
    }

    /// Up to which epoch all local partitions have final-committed everything.
    pub(super) fn settled(&self) -> Epoch {
        self.settled
    }

    /// Up to which epoch local partitions have heard from another one.
    pub(super) fn heard_of(&self, partition: PartitionId) -> Epoch {
        let engines = self.engines();
        let heard = engines.map(|(_, engine)| engine.heard(partition)).max();
        heard.unwrap_or_default()
    }

    /// Whether something was heard of a node lately.
    pub fn is_live(&self, node: NodeId) -> bool {
        node == self.options.me || self.peers.is_live(node, self.silent_since())
    }

    /// Counters and places.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            delivered: self.merge.delivered().epoch,
            confirmed: self.merge.confirmed().epoch,
            waiting: self.gateway.load().0,
            reads_waiting: self.reads.count(),
            log_bytes_since_checkpoint: self.checkpoints.log_bytes(),
            ..self.counters.clone()
        }
    }

    /// Whether nothing that this node has taken, written or been told of is on its way.
    pub fn is_idle(&self) -> bool {
        self.gateway.load().0 == 0
            && self.feeds.unanswered_count() == 0
            && self.reads.count() == 0
            && self.wanted.is_empty()
            && self.unkept.is_empty()
            && !self.checkpoints.are_taken()
            && !self.is_installing()
            && self.merge.confirmed().epoch == self.merge.newest()
            && self.leads.values().all(|lead| !lead.has_work())
            && self
                .executors
                .values()
                .all(|executor| executor.engine.view().final_position() >= executor.next.prev())
    }

    /// Whether this node has executed all that it knows of, and hears from the leaders of all its groups.
    pub fn is_current(&self) -> bool {
        self.merge.confirmed().epoch == self.merge.newest()
            && self.hears_all()
            && self.groups.keys().all(|&partition| {
                self.leader(partition)
                    .is_some_and(|leader| self.is_live(leader))
            })
            && self
                .executors
                .values()
                .all(|executor| executor.engine.view().final_position() >= executor.next.prev())
    }

    /// Whether what is held waits until the engines are less far behind: a node that starts, or catches up.
    /// [`ClusterEvent::Room`] tells it that they are.
    pub fn waits_for_room(&self) -> bool {
        self.waits_for_room
    }

    /// Nothing is taken any more, and this is why.
    pub(super) fn stop_because(&mut self, text: &str) {
        self.counters.stopped = Some(text.to_owned());
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.counters.stopped.is_some()
    }

    /// Who was heard since this tick is not taken for gone.
    fn silent_since(&self) -> u64 {
        self.ticks.saturating_sub(SILENCE_TICKS)
    }

    /// Whether requests would be taken now.
    pub fn admission(&self) -> Result<(), Refused> {
        if let Some(text) = &self.counters.stopped {
            return Err(Refused::ReadOnly(text.as_str().into()));
        }
        if self.stopping || self.installs.is_ending() || self.is_leaving() {
            return Err(Refused::ShuttingDown);
        }
        let limits = self.options.limits;
        let (requests, bytes) = self.gateway.load();
        let requests = requests.max(self.feeds.unanswered_count() as u64);
        if self.boot == BootId(0)
            || requests >= limits.in_flight_requests_max
            || bytes >= limits.in_flight_bytes_max
        {
            return Err(Refused::Busy);
        }
        Ok(())
    }

    /// Takes requests, which keep their order, and empties `requests`; on `Err` they stay with the caller.
    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) -> Result<(), Refused> {
        self.now_ms = now_ms;
        self.admission()?;
        for request in requests.drain(..) {
            let executor = request.route.partitions.first().copied();
            if let Some(elsewhere) = executor.filter(|first| !self.executors.contains_key(first)) {
                self.feeds.expect(request.id, elsewhere, self.ticks);
            }
            self.gateway.take(request, self.ticks);
        }
        self.pump(effects);
        Ok(())
    }

    /// Takes strict reads of local partitions: [`ClusterEffects::readable`] tells when they may run.
    pub fn read(
        &mut self,
        reads: impl IntoIterator<Item = (RequestId, PartitionId)>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) {
        self.now_ms = now_ms;
        for (id, partition) in reads {
            if !self.executors.contains_key(&partition) {
                // There is nothing to be read here: it is told so at once.
                effects.readable.push((id, partition, Position::NONE));
                continue;
            }
            self.reads.add(Read {
                id,
                partition,
                since_tick: self.ticks,
            });
        }
        self.pump(effects);
    }

    /// Takes an event.
    pub fn handle(&mut self, event: ClusterEvent, now_ms: u64, effects: &mut ClusterEffects) {
        self.now_ms = now_ms;
        let matters = matches!(
            event,
            ClusterEvent::Written(_) | ClusterEvent::Synced(_) | ClusterEvent::JournalFailed(_)
        );
        if self.counters.stopped.is_some() || self.installs.is_ending() && !matters {
            return;
        }
        match event {
            ClusterEvent::Frame { from, bytes } => self.frame(from, &bytes, effects),
            ClusterEvent::Connected(node) => {
                self.gateway.lost(node);
                self.feeds.lost(node);
                self.look_at_feeds(effects);
            }
            ClusterEvent::Disconnected(node) => {
                self.gateway.lost(node);
                self.feeds.lost(node);
                for (&partition, group) in &mut self.groups {
                    // Only a leader has use for it.
                    let _ = group.handle(Input::Unreachable(node));
                    self.dirty.insert(partition);
                }
            }
            ClusterEvent::Written(record) => {
                self.written = record;
                self.release(effects);
            }
            ClusterEvent::Synced(record) => {
                self.syncing = false;
                self.synced = self.synced.max(record);
                self.release(effects);
            }
            ClusterEvent::JournalFailed(error) => return self.fail(&error, effects),
            ClusterEvent::Tick => self.tick(effects),
            ClusterEvent::Room => {}
            ClusterEvent::CheckpointWritten { epoch, bytes } => {
                self.checkpoint_written(epoch, bytes, effects);
            }
            ClusterEvent::CheckpointFailed(error) => {
                self.checkpoints.failed();
                effects.warnings.push(format!(
                    "a checkpoint could not be written: {error}; the older one and the journal are untouched"
                ));
            }
            ClusterEvent::CheckpointWanted => self.want_checkpoint(),
            ClusterEvent::PieceRead {
                to,
                piece,
                total,
                bytes,
            } => self.piece_read(to, piece, total, bytes.into(), effects),
            ClusterEvent::PieceWritten { piece, bytes, last } => {
                self.installs.written(piece, bytes, last);
            }
            ClusterEvent::ChangeWanted(control) => {
                self.wanted.push(control);
                self.remind = true;
            }
            ClusterEvent::TransferWanted { partition, to } => {
                self.transfer_wanted(partition, to, effects);
            }
            ClusterEvent::Stop => self.stop(),
        }
        self.pump(effects);
    }

    /// The journal failed: what it holds is unknown, so nothing more is said. Clients learn that nobody knows.
    fn fail(&mut self, error: &str, effects: &mut ClusterEffects) {
        let text = format!(
            "MISCONF this node's journal failed ({error}), and it takes no part in the cluster any more: connect to another \
             node; repair the disk and restart this one"
        );
        let unknown = format!(
            "MISCONF this node's journal failed ({error}): the outcome of this command is unknown; ask another node"
        );
        // Without the code that clients get, and before it: this is for the log.
        effects.warnings.push(format!(
            "this node's journal failed ({error}), and it takes no part in the cluster any more: repair the disk and restart it"
        ));
        self.halt(text, unknown, effects);
    }

    /// This node is no part of the cluster any more: it says and takes nothing from now on.
    pub(super) fn end(&mut self, text: String, effects: &mut ClusterEffects) {
        let unknown =
            format!("CLUSTERDOWN the outcome of this command is unknown, ask another node: {text}");
        self.halt(format!("CLUSTERDOWN {text}"), unknown, effects);
        effects.ended = Some(text);
    }

    fn halt(&mut self, text: String, unknown: String, effects: &mut ClusterEffects) {
        let given_up = self.feeds.give_up(u64::MAX);
        for id in self.gateway.give_up(u64::MAX).into_iter().chain(given_up) {
            effects
                .refused
                .push((id, Err(Stop::abort(unknown.clone()))));
        }
        for id in self.reads.give_up(u64::MAX) {
            effects.refused.push((id, Err(Stop::abort(text.clone()))));
        }
        effects.kept.clear();
        effects.frames.clear();
        self.checkpoints.close();
        self.counters.stopped = Some(text);
    }

    pub(super) fn send(&self, to: NodeId, frame: &Frame, effects: &mut ClusterEffects) {
        effects.frames.push((to, frame.encode(self.now_ms)));
    }

    fn frame(&mut self, from: NodeId, bytes: &Bytes, effects: &mut ClusterEffects) {
        let (clock_ms, frame) = match Frame::decode(bytes, &self.registry) {
            Ok(frame) => frame,
            Err(error) => {
                effects.warnings.push(format!("{from}: {error}"));
                return;
            }
        };
        self.peers.heard(from, clock_ms, self.now_ms, self.ticks);
        match frame {
            Frame::Consensus { .. } if !self.bootstrap.takes_part() => {}
            Frame::Consensus { partition, message }
                if asks_for_vote(&message) && self.is_stranger(from, partition, effects) => {}
            Frame::Consensus { partition, message } => {
                if let Some(group) = self.groups.get_mut(&partition) {
                    // What it refuses counts as lost.
                    let _ = group.handle(Input::Message(message));
                    self.dirty.insert(partition);
                    // A leader must know its whole log before it takes anything.
                    self.turns(effects);
                }
            }
            Frame::Submit {
                partition,
                submissions,
            } => self.submitted(from, partition, submissions, effects),
            Frame::Expect {
                partition,
                boot,
                sequence,
            } => {
                if boot == self.boot {
                    self.gateway.expected(partition, sequence);
                }
            }
            Frame::Elsewhere { partition, leader } => {
                if self.leader(partition) == Some(from) && !self.groups.contains_key(&partition) {
                    self.leader_is(partition, leader.map(|leader| (leader, 0)));
                }
            }
            Frame::Behind { partition, epoch } => self.fall_behind(from, partition, epoch),
            Frame::Fetch(piece) => self.wanted_by(from, piece, effects),
            Frame::Piece {
                piece,
                total,
                base,
                bytes,
            } => self.piece_came(from, piece, total, base, bytes, effects),
            Frame::Newest(epoch) => self.newest_is(from, epoch),
            Frame::Begun(epoch) => self.begun = self.begun.max(epoch),
            Frame::Change(control) => self.take_change(control),
            Frame::Follow {
                partition,
                subscription,
                boot,
                after,
                waits,
                kept,
                settled,
                heard,
            } => {
                let wish = Wish {
                    subscription,
                    boot,
                    after,
                    waits,
                    kept,
                    settled,
                    heard,
                };
                self.follow(from, partition, wish, effects);
            }
            Frame::Unfollow { partition } => self.unfollow(from, partition),
            Frame::Feed {
                partition,
                subscription,
                number,
                batches,
                held,
                agreed,
                leader,
                answers,
                messages,
                part,
                asks,
            } => {
                if asks {
                    let heard = Frame::Heard {
                        partition,
                        subscription,
                        number,
                    };
                    self.send(from, &heard, effects);
                }
                let news = News {
                    batches,
                    held,
                    agreed,
                    leader,
                    answers,
                    messages,
                    part,
                };
                self.fed(from, partition, subscription, number, news, effects);
            }
            Frame::Heard {
                partition,
                subscription,
                number,
            } => self.feeds.heard(partition, from, subscription, number),
            Frame::Clock {
                standing,
                checkpoint,
                hears_all,
                map_version,
            } => {
                self.checkpoints.heard(from, checkpoint);
                self.peers.says(from, hears_all);
                if map_version > self.newest_map().version {
                    self.send(from, &Frame::MapWanted, effects);
                }
                if let Some(standing) = standing {
                    self.heard(from, standing, effects);
                }
            }
            Frame::MapWanted => {
                let map = Frame::Map(Box::new((**self.map()).clone()));
                self.send(from, &map, effects);
            }
            Frame::Map(map) => {
                if map.version > self.newest_map().version {
                    self.known = Arc::from(map);
                    effects.known = Some(self.known.clone());
                }
            }
            Frame::Followed { partition, version } => self.followed(partition, version),
            Frame::Left { partition, version } => self.left(partition, version, effects),
            Frame::Belongs { partition } => {
                self.is_stranger(from, partition, effects);
            }
            Frame::Wish {
                partition,
                to,
                left_ms,
            } => self.wished(partition, to, left_ms / self.options.tick_ms.max(1)),
        }
    }

    /// Another gateway's requests.
    fn submitted(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        submissions: Vec<Submission>,
        effects: &mut ClusterEffects,
    ) {
        let Some(lead) = self.leads.get_mut(&partition) else {
            let leader = self.leader(partition).filter(|&leader| leader != from);
            return self.send(from, &Frame::Elsewhere { partition, leader }, effects);
        };
        let map = &self.merge.delivered().map;
        for submission in submissions {
            let boot = submission.boot;
            // A process that has ended has nobody who waits. One that this node has not yet heard of comes again.
            if map.node_of_boot(boot) != Some(from) {
                continue;
            }
            if let Err(sequence) = lead.take(submission) {
                let frame = Frame::Expect {
                    partition,
                    boot,
                    sequence,
                };
                return self.send(from, &frame, effects);
            }
        }
    }

    fn tick(&mut self, effects: &mut ClusterEffects) {
        self.ticks += 1;
        if self.bootstrap.takes_part() {
            for (&partition, group) in &mut self.groups {
                // A tick is never refused.
                let _ = group.handle(Input::Tick);
                self.dirty.insert(partition);
            }
        }
        self.ask_for_boot();
        self.remind = self.ticks.is_multiple_of(QUESTION_TICKS);
        let now = self.ticks;
        let before = |ticks: u64| now.saturating_sub(ticks);
        let doubtful = before(DOUBT_TICKS);
        if self.ticks.is_multiple_of(DOUBT_TICKS) {
            self.gateway.doubt(doubtful);
            self.ask_whether_it_belongs(effects);
        }
        let again = self.reads.ask_again(before(QUESTION_TICKS), self.ticks);
        for question in again {
            self.ask(question);
        }
        let late = before(self.options.request_timeout_ms / self.options.tick_ms.max(1));
        let mut given_up = self.gateway.give_up(late);
        given_up.iter().for_each(|&id| self.feeds.forget(id));
        given_up.extend(self.feeds.give_up(late));
        for id in given_up {
            let text = "ORDOUNKNOWN no majority answered in time: this command may or may not take effect; send it through \
                        ORDO.IDEMPOTENT where that matters, and again";
            effects.refused.push((id, Err(Stop::abort(text))));
        }
        for id in self.reads.give_up(late) {
            let text = "CLUSTERDOWN no majority answered in time: nothing was read; try again";
            effects.refused.push((id, Err(Stop::abort(text))));
        }
        self.settle();
        self.campaign();
        self.look_for_progress(effects);
        self.look_at_clocks();
        self.look_at_feeds(effects);
        if self.stopping {
            // Somebody may have been too far behind, or unheard, a moment ago.
            self.hand_over();
        } else if self.ticks.is_multiple_of(BALANCE_TICKS) {
            self.balance(effects);
        }
        self.behind.retain(|&(partition, node), told| {
            let waits = now < *told + BEHIND_TICKS;
            if !waits && let Some(group) = self.groups.get_mut(&partition) {
                // Only a leader has use for it.
                let _ = group.handle(Input::TryAgain(node));
                self.dirty.insert(partition);
            }
            waits
        });
        self.tell_clock(effects);
        if self.ticks.is_multiple_of(MEMBERS_TICKS) {
            self.lead_members(effects);
            self.lead_level();
            self.keep_more(effects);
        }
        if self.ticks.is_multiple_of(EXPIRY_TICKS) {
            self.expire();
        }
    }

    /// Whether this node hears the leaders of all groups, and stays: then it can lead.
    pub(super) fn would_lead(&self) -> bool {
        let mut groups = self.map().partition_ids();
        !self.stopping
            && groups.all(|group| {
                let leader = self.leader(group);
                leader.is_some_and(|leader| self.is_live(leader))
            })
    }

    /// Groups wait for each other. Where two leaders do not hear each other, those who hear both pass on that an epoch was begun,
    /// and a leader that gets no further hands over to somebody who hears all.
    fn look_for_progress(&mut self, effects: &mut ClusterEffects) {
        let confirmed = self.merge.confirmed().epoch;
        if self.progress.0 != confirmed || self.merge.newest() == confirmed {
            self.progress = (confirmed, self.ticks);
            return;
        }
        let stuck = self.ticks - self.progress.1;
        if stuck >= BEGUN_TICKS && stuck.is_multiple_of(BEGUN_TICKS) {
            let newest = self.merge.newest();
            let mut late: BTreeSet<NodeId> = BTreeSet::new();
            for (&group, &(leader, _)) in &self.leaders {
                if self.merge.held(group) < newest && leader != self.options.me {
                    late.insert(leader);
                }
            }
            for leader in late {
                self.send(leader, &Frame::Begun(newest), effects);
            }
        }
        if stuck < DOUBT_TICKS || !stuck.is_multiple_of(DOUBT_TICKS) || self.would_lead() {
            return;
        }
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            let members = self.groups[&partition].members();
            let mut others = members.voters.into_iter();
            let able = |node: &NodeId| self.is_live(*node) && self.peers.hears_all(*node);
            if let Some(to) = others.find(|node| *node != self.options.me && able(node)) {
                self.transfer(partition, to);
            }
        }
    }

    /// When a whole cluster starts, nobody has to be waited for: those who hear a majority stand for election in turn, and again
    /// while nobody leads, since each starts when it has read its own journal.
    fn campaign(&mut self) {
        if self.ticks > ELECTION_TICKS || !self.bootstrap.takes_part() {
            return;
        }
        for (&partition, group) in &mut self.groups {
            let voters = group.members().voters;
            let Some(rank) = voters.iter().position(|&node| node == self.options.me) else {
                continue;
            };
            let since = self.ticks.saturating_sub(SILENCE_TICKS);
            let live = |node: &&NodeId| self.peers.is_live(**node, since);
            let heard = 1 + voters.iter().filter(live).count();
            let turn = (rank + usize::from(partition.0)) % voters.len();
            let since_turn = self.ticks.checked_sub(2 + 2 * turn as u64);
            let round_ticks = 2 * voters.len() as u64;
            let is_due = since_turn.is_some_and(|ticks| ticks.is_multiple_of(round_ticks));
            if is_due && heard > voters.len() / 2 && !self.leaders.contains_key(&partition) {
                // One that has heard a leader meanwhile stays as it is.
                let _ = group.handle(Input::Campaign);
                self.dirty.insert(partition);
            }
        }
    }

    /// Wants a checkpoint, of the whole cluster.
    pub(super) fn want_checkpoint(&mut self) {
        let after = self.map().checkpoint;
        let wanted = Control::Checkpoint { after };
        if !self.wanted.contains(&wanted) {
            self.wanted.push(wanted);
            self.remind = true;
        }
    }

    /// Wants a boot id for this process.
    fn ask_for_boot(&mut self) {
        let me = self.options.me;
        let is_own =
            |control: &Control| matches!(control, Control::Boot { node, .. } if *node == me);
        self.wanted.retain(|control| !is_own(control));
        // A process that fetches a checkpoint ends before it could use a boot id.
        if self.boot != BootId(0) || self.is_installing() {
            return;
        }
        let Some(entry) = self.merge.confirmed().map.nodes.get(&me) else {
            return;
        };
        self.wanted.push(Control::Boot {
            node: me,
            after: entry.boot,
            nonce: self.nonce,
            peer_address: entry.peer_address.clone(),
            client_address: entry.client_address.clone(),
            level: self.options.level,
        });
    }

    /// A leader whose clock is ahead of a majority's hands over to one that is not.
    fn look_at_clocks(&mut self) {
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            if self.ahead_ms(partition) <= self.options.clock_ahead_ms_max.cast_signed() {
                continue;
            }
            let me = self.options.me;
            let members = self.groups[&partition].members();
            let others = members.voters.iter().copied().filter(|&node| node != me);
            if let Some(to) = others.into_iter().find(|&node| self.is_live(node)) {
                self.transfer(partition, to);
            }
        }
    }

    /// How far this node's clock is ahead of those of a majority of a group, at most.
    fn ahead_ms(&self, partition: PartitionId) -> i64 {
        let me = self.options.me;
        let voters = self.groups[&partition].members().voters;
        let others: Vec<NodeId> = voters.iter().copied().filter(|&node| node != me).collect();
        let mut ahead = self.peers.ahead_of(&others, self.silent_since());
        // A majority that this node is no member of is one of the others; whom it does not hear is not ahead of.
        let majority = voters.len() / 2 + 1;
        ahead.sort_by(|a, b| b.cmp(a));
        ahead.get(majority.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// Whether another node's clock is near this one's, or behind: one that is ahead would hand over again what it got.
    pub(super) fn is_clock_right(&self, node: NodeId) -> bool {
        self.peers.is_ahead_ms(node) <= self.options.clock_ahead_ms_max.cast_signed() / 2
    }

    pub(super) fn transfer(&mut self, partition: PartitionId, to: NodeId) {
        if let Some(group) = self.groups.get_mut(&partition) {
            // One that does not lead has nothing to hand over.
            let _ = group.handle(Input::TransferLeader(to));
            self.dirty.insert(partition);
        }
    }

    /// Looks for expired entries of the partitions that this node leads, and orders their removal.
    fn expire(&mut self) {
        let (users, system) = (&self.options.expire, &self.options.expire_system);
        if users.is_none() && system.is_none() {
            return;
        }
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            let Some(executor) = self.executors.get_mut(&partition) else {
                continue;
            };
            let view = executor.engine.view();
            if view.final_position() < executor.next.prev() {
                continue;
            }
            let look = executor.expiry.look(view, self.now_ms);
            let procedure = match look.space {
                Space::User => users.clone(),
                Space::System => system.clone(),
            };
            let Some(procedure) = procedure.filter(|_| !look.expired.is_empty()) else {
                continue;
            };
            let args: Args = look.expired.iter().map(|key| key.to_blob()).collect();
            let id = RequestId {
                session: SessionId::INTERNAL,
                sequence: executor.next.0,
                attempt: 0,
            };
            let mut request = Request::new(id, procedure, args);
            request.route = PartitionRoute::single(partition);
            let submission = Submission {
                boot: BootId(0),
                sequence: 0,
                request: Arc::new(request),
                place: Place::default(),
            };
            if let Some(lead) = self.leads.get_mut(&partition) {
                // Unnumbered: always taken.
                let _ = lead.take(submission);
            }
        }
    }

    /// Admits nothing more, and hands over what it leads.
    fn stop(&mut self) {
        self.stopping = true;
        self.hand_over();
    }

    /// Hands over what this node leads, because it is about to end: without it, the others would notice only when nothing has
    /// been heard of it for a while, and nothing would be written until then.
    fn hand_over(&mut self) {
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            if let Some(to) = self.successor(partition) {
                self.transfer(partition, to);
            }
        }
    }

    /// Who could lead a group in this node's place at once: of those who are heard, the one that has the most of its log.
    fn successor(&self, partition: PartitionId) -> Option<NodeId> {
        let status = self.groups.get(&partition)?.status();
        let matched = |node: NodeId| {
            let found = status.matched.iter().find(|&&(other, _)| other == node);
            found.map_or(0, |&(_, matched)| matched)
        };
        let others = status.members.voters.iter().copied();
        others
            .filter(|&node| node != self.options.me && self.is_live(node))
            .max_by_key(|&node| matched(node))
    }

    /// Whether nobody waits for this node any more once it was told to stop. What others have on their way does not matter: under
    /// load there is always something.
    pub fn is_drained(&self) -> bool {
        self.gateway.load().0 == 0 && self.reads.count() == 0 && self.has_handed_over()
    }

    /// Whether others lead what this node has led, as far as there are others: then it may end without delaying anybody.
    pub fn has_handed_over(&self) -> bool {
        self.groups.keys().all(|&partition| {
            let leader = self.leader(partition);
            leader.is_some_and(|leader| leader != self.options.me)
                || self.successor(partition).is_none()
        })
    }

    /// Does what has become possible, until nothing more has.
    fn pump(&mut self, effects: &mut ClusterEffects) {
        if self.counters.stopped.is_some() {
            return;
        }
        self.begin(effects);
        if self.counters.stopped.is_some() {
            return;
        }
        while !self.installs.is_ending() {
            self.turns(effects);
            self.execute(effects);
            if self.counters.stopped.is_some() {
                return;
            }
            self.release_reads(effects);
            self.look_at_checkpoint(effects);
            self.fetch(effects);
            self.pass_on(effects);
            if self.reads.wants_question() {
                let question = self.reads.ask(self.ticks);
                self.ask(question);
            }
            if !self.propose(effects) && self.dirty.is_empty() {
                break;
            }
        }
        self.feed(effects);
        self.flush(effects);
    }

    /// Takes the turns of all groups.
    fn turns(&mut self, effects: &mut ClusterEffects) {
        while let Some(partition) = self.dirty.pop_first() {
            loop {
                let group = self.groups.get_mut(&partition);
                let Some(turn) = group.and_then(|group| group.turn()) else {
                    break;
                };
                self.turn(partition, turn, effects);
            }
            self.notice(partition);
        }
    }

    /// Takes notice of who leads a group.
    fn notice(&mut self, partition: PartitionId) {
        let Some(group) = self.groups.get(&partition) else {
            return;
        };
        let leads = group.leads();
        if self.leads.get(&partition).map(|lead| lead.term) != leads {
            match leads {
                None => _ = self.leads.remove(&partition),
                Some(term) => {
                    let streams = if is_active(Mutant::ForgetUnconfirmedStreams) {
                        self.merge.group(partition).0.clone()
                    } else {
                        self.merge.streams_to_the_end(partition, &self.registry)
                    };
                    self.leads.insert(partition, Lead::new(term, streams));
                }
            }
        }
        let status = group.status();
        let known = status.leader.map(|leader| (leader, status.term));
        if self.leader_is(partition, known) {
            // It has not heard what this node wants.
            self.remind |= known.is_some() && partition == PartitionId(0);
            // Nobody answers the questions of an earlier leader.
            let again = self.reads.ask_again(u64::MAX, self.ticks);
            for question in again {
                self.ask(question);
            }
        }
    }

    fn turn(&mut self, partition: PartitionId, turn: Turn, effects: &mut ClusterEffects) {
        for (to, message) in turn.messages {
            self.send(to, &Frame::Consensus { partition, message }, effects);
        }
        self.appended(partition, &turn.kept, effects);
        if self.is_stopped() {
            return;
        }
        self.merge.agreed(partition, turn.committed);
        for (question, index) in turn.indices {
            self.reads.learn(question, partition, index);
        }
        for (question, index) in self.reads.reached(partition, turn.committed) {
            let epoch = self.merge.epoch_at(partition, index);
            self.reads.answer(question, epoch);
        }
        let always = self.options.fsync == FsyncPolicy::Always;
        let must_sync = turn.is_promise || turn.must_sync && always;
        self.record(turn.kept, effects);
        self.unkept.push_back(Unkept {
            record: self.records,
            must_sync: must_sync && !is_active(Mutant::PromiseBeforeSync),
            then: Then::Promise {
                partition,
                turn: turn.number,
                promises: turn.promises,
            },
        });
        for node in turn.behind {
            self.tell_behind(partition, node, effects);
        }
    }

    /// Puts something into the record that is made now.
    pub(super) fn record(&mut self, kept: Kept, effects: &mut ClusterEffects) {
        if kept.is_empty() {
            return;
        }
        if effects.kept.is_empty() {
            self.records += 1;
        }
        // A base lets older records of the journal go: what this disk is goes along, once.
        let is_base = |kept: &Kept| kept.base.is_some() && kept.partition < CANDIDATES;
        if is_base(&kept) && !effects.kept.iter().any(is_base) {
            effects.kept.extend(self.bootstrap.keep_again());
            effects.kept.extend(self.candidate_again());
            effects.kept.extend(self.retired_again());
        }
        effects.kept.push(kept);
    }

    /// Has the record that is made now synced: then this follows.
    pub(super) fn wait_for(&mut self, then: Then) {
        self.unkept.push_back(Unkept {
            record: self.records,
            must_sync: true,
            then,
        });
    }

    /// A group's log has further entries, perhaps in the place of others.
    fn appended(&mut self, partition: PartitionId, kept: &Kept, effects: &mut ClusterEffects) {
        let Some(first) = kept.entries.first() else {
            return;
        };
        if let Some(retraction) = self.merge.replaced(partition, first.index) {
            self.retract(partition, &retraction, effects);
        }
        self.feeds.rewind(partition, self.merge.held(partition));
        for entry in &kept.entries {
            let own = self.leads.get_mut(&partition).and_then(|lead| {
                let epoch = Epoch(self.merge.held(partition).0 + 1);
                (entry.kind == EntryKind::Batch && !entry.data.is_empty())
                    .then(|| lead.take_proposed(entry.term, epoch))
                    .flatten()
            });
            let found = match own {
                Some(batch) => Ok(Some(Held {
                    epoch: batch.epoch,
                    index: entry.index,
                    term: entry.term,
                    digest: digest_of(&entry.data),
                    bytes: entry.data.len() as u64,
                    batch: Content::Read(batch),
                    noted: Default::default(),
                })),
                None => self.read_entry(entry),
            };
            match found {
                Ok(Some(held)) => self.merge.appended(partition, held),
                Ok(None) => {}
                Err(error) => return self.end_unread(partition, entry.index, &error, effects),
            }
        }
    }

    /// What a new entry brings to the merge. It is read at once: what means nothing to this build must not be promised.
    fn read_entry(&self, entry: &Entry) -> Result<Option<Held>, RequestError> {
        let held = held(entry)?;
        held.map(|held| {
            let batch = Content::Read(held.batch.read(&self.registry)?);
            Ok(Held { batch, ..held })
        })
        .transpose()
    }

    /// What is in the order was made by a build that knew it: this one is too old.
    fn end_unread(
        &mut self,
        partition: PartitionId,
        index: u64,
        error: &RequestError,
        effects: &mut ClusterEffects,
    ) {
        let text = format!(
            "entry {index} of the log of {partition} means nothing to this build of Ordo ({error}): start this node \
             with the version that the other nodes run; its data is untouched"
        );
        self.end(text, effects);
    }

    /// Reads what is delivered next. False if this build cannot.
    fn read_next(&mut self, effects: &mut ClusterEffects) -> bool {
        let read = self.merge.read_next(&self.registry);
        if let Err(Unreadable {
            group,
            index,
            cause,
        }) = &read
        {
            self.end_unread(*group, *index, cause, effects);
        }
        read.is_ok()
    }

    pub(super) fn retract(
        &mut self,
        group: PartitionId,
        retraction: &Retraction,
        effects: &mut ClusterEffects,
    ) {
        self.counters.retracted += 1;
        effects.warnings.push(format!(
            "another leader's batch replaces epoch {} and what followed it",
            retraction.epoch.0
        ));
        if is_active(Mutant::IgnoreRetraction) {
            return;
        }
        for &(partition, from) in &retraction.from {
            if is_active(Mutant::RetractOnePartition) && partition != group {
                continue;
            }
            if let Some(executor) = self.executors.get_mut(&partition)
                && from < executor.next
            {
                executor.engine.retract(from);
                executor.next = from;
            }
        }
        self.feeds.retell();
    }

    /// Tells the engines of epochs that are delivered and confirmed.
    fn execute(&mut self, effects: &mut ClusterEffects) {
        let in_flight_max = self.options.limits.in_flight_requests_max;
        let room = |executor: &Executor| {
            let behind = executor.next.prev().0 - executor.engine.view().final_position().0;
            behind < in_flight_max
        };
        while self.executors.values().all(room)
            && (self.options.speculate || self.merge.is_next_agreed())
            && self.read_next(effects)
            && let Some(delivery) = self.merge.deliver(self.boot)
        {
            for (partition, batch) in delivery.batches {
                let Some(executor) = self.executors.get_mut(&partition) else {
                    continue;
                };
                executor.next = batch.first.advanced(batch.requests.len() as u64);
                executor.engine.deliver(execute::Batch {
                    epoch: batch.epoch,
                    time_ms: batch.time_ms,
                    first: batch.first,
                    requests: batch.requests,
                    groups: batch.groups,
                    digest: batch.digest,
                });
                effects.delivered = true;
            }
        }
        self.waits_for_room = !self.executors.values().all(room) && self.merge.is_next_held();
        while self.counters.stopped.is_none()
            && let Some(confirmation) = self.merge.confirm()
        {
            self.take_confirmation(&confirmation, effects);
            self.look_at_level(effects);
        }
    }

    fn take_confirmation(&mut self, confirmation: &Confirmation, effects: &mut ClusterEffects) {
        self.counters.epochs += 1;
        let end = &confirmation.end;
        if end.map.partitions.len() > 1 {
            self.unsettled.push_back((end.epoch, end.next.clone()));
        }
        self.checkpoints.note_bytes(confirmation.bytes);
        let has_checkpoint = |(_, change): &(Control, Changed)| {
            [Changed::Checkpoint, Changed::Placed].contains(change)
        };
        if end.changes.iter().any(has_checkpoint) {
            self.pin(end);
        }
        for (executor, next) in self.executors.values_mut().zip(&end.next) {
            if next.prev() > executor.engine.status().confirmed {
                executor.engine.confirm(next.prev());
                effects.confirmed = true;
            }
        }
        for (control, change) in &end.changes {
            let before = self.wanted.len();
            self.wanted.retain(|wanted| wanted != control);
            if self.wanted.len() < before {
                effects.changed.push((control.clone(), *change));
            }
            if let Changed::Boot {
                node, nonce, boot, ..
            } = *change
                && node == self.options.me
                && (nonce == self.nonce || is_active(Mutant::TakeOldBoot))
            {
                self.boot = boot;
                self.gateway.begin(boot);
                self.feeds.renew();
                effects.boot = Some(boot);
            }
        }
        if !end.changes.is_empty() {
            self.is_spread = end.map.is_spread();
        }
        for partition in self.gateway.groups() {
            let agreed = self.merge.group(partition).0.last(self.boot);
            self.gateway.agreed(partition, agreed);
        }
    }

    /// Looks how far the local partitions are, and forgets what nobody needs any more.
    fn settle(&mut self) {
        let finals: Vec<Position> = self
            .executors
            .values()
            .map(|executor| executor.engine.view().final_position())
            .collect();
        while let Some((epoch, _)) = self.unsettled.pop_front_if(|(_, next)| {
            let mut both = finals.iter().zip(next.iter());
            both.all(|(&reached, next)| reached >= next.prev())
        }) {
            self.settled = epoch;
        }
        // Where logs are cut, nobody begins any more. Where every node keeps all partitions, they begin together.
        let upto = match self.is_spread {
            true => self.checkpoints.durable_base().min(self.settled),
            false => self.settled,
        };
        if upto > self.forgotten {
            self.forgotten = upto;
            for executor in self.executors.values() {
                executor.engine.forget(upto);
            }
        }
    }

    /// Lets the reads go whose epoch is confirmed.
    fn release_reads(&mut self, effects: &mut ClusterEffects) {
        let end = self.merge.confirmed();
        for read in self.reads.confirmed(end.epoch) {
            let local = self.executors.keys().zip(&end.next);
            let upto = local
                .filter(|&(&partition, _)| partition == read.partition)
                .map(|(_, next)| next.prev())
                .next();
            effects
                .readable
                .push((read.id, read.partition, upto.unwrap_or_default()));
        }
    }

    /// Passes requests and changes on to the leaders of their groups.
    fn pass_on(&mut self, effects: &mut ClusterEffects) {
        for partition in self.gateway.groups() {
            let Some(&(leader, term)) = self.leaders.get(&partition) else {
                continue;
            };
            loop {
                let submissions = self.gateway.next_for(partition, leader, term);
                if submissions.is_empty() {
                    break;
                }
                if leader != self.options.me {
                    let frame = Frame::Submit {
                        partition,
                        submissions,
                    };
                    self.send(leader, &frame, effects);
                    continue;
                }
                let Some(lead) = self.leads.get_mut(&partition) else {
                    break;
                };
                for submission in submissions {
                    if let Err(expected) = lead.take(submission) {
                        self.gateway.expected(partition, expected);
                        break;
                    }
                }
            }
        }
        if self.wanted.is_empty() || !std::mem::take(&mut self.remind) {
            return;
        }
        match self.leader(PartitionId(0)) {
            Some(leader) if leader == self.options.me => {
                for control in self.wanted.clone() {
                    self.take_change(control);
                }
            }
            Some(leader) => {
                for control in &self.wanted {
                    self.send(leader, &Frame::Change(control.clone()), effects);
                }
            }
            None => {}
        }
    }

    /// A change is wanted of the one who leads group 0. Who wants it asks again until it is ordered.
    fn take_change(&mut self, control: Control) {
        if self.comes_too_early(&control) {
            return;
        }
        if let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
            lead.change(control);
        }
    }

    /// Asks a question for an index.
    fn ask(&mut self, question: u64) {
        // A group that this node leads answers without a way there and back; any other knows as much.
        let led = self.leads.keys().next().copied();
        if led.is_some() && is_active(Mutant::ReadWithoutIndex) {
            let epoch = self.merge.confirmed().epoch;
            return self.reads.answer(question, epoch);
        }
        let known = || {
            let mut local = self.groups.keys().copied();
            local.find(|partition| self.leaders.contains_key(partition))
        };
        if let Some(partition) = led.or_else(known)
            && let Some(group) = self.groups.get_mut(&partition)
        {
            // A question that is refused is asked again at a later tick.
            let _ = group.handle(Input::AskIndex { question });
            self.dirty.insert(partition);
        }
    }

    /// Makes the batches that are due in the groups that this node leads. Whether it made any.
    fn propose(&mut self, effects: &mut ClusterEffects) -> bool {
        let mut any = false;
        let begun = self.begun.max(self.merge.newest());
        let in_flight_max = self.options.epochs_in_flight_max;
        let led: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in led {
            let held = self.merge.held(partition);
            let in_flight = self.merge.unconfirmed(partition);
            let stamp_ms = self.stamp_ms(partition);
            let (Some(lead), Some(group)) = (
                self.leads.get_mut(&partition),
                self.groups.get_mut(&partition),
            ) else {
                continue;
            };
            let wanted = lead.has_work() && in_flight < in_flight_max;
            if held >= begun && !wanted {
                continue;
            }
            let epoch = Epoch(held.0 + 1);
            let batch = lead.batch(epoch, stamp_ms);
            match group.handle(Input::Propose(batch.encode().into())) {
                Ok(()) => {
                    lead.proposed(batch);
                    any = true;
                    self.dirty.insert(partition);
                    self.turns(effects);
                }
                Err(_) => lead.put_back(batch),
            }
        }
        let newest = self.merge.newest();
        if newest > self.begun {
            self.begun = newest;
            self.tell_begun(effects);
        }
        any
    }

    /// What a batch is stamped with: this node's clock, unless that is ahead of a majority's.
    fn stamp_ms(&self, partition: PartitionId) -> u64 {
        let beyond_ms = self.ahead_ms(partition) - self.options.clock_ahead_ms_max.cast_signed();
        self.now_ms.saturating_sub(beyond_ms.max(0).cast_unsigned())
    }

    /// Tells leaders of groups of which this node keeps no replica that an epoch was begun: they have no other way to know.
    fn tell_begun(&self, effects: &mut ClusterEffects) {
        let elsewhere: BTreeSet<NodeId> = self
            .leaders
            .iter()
            .filter(|(partition, _)| !self.groups.contains_key(partition))
            .map(|(_, &(leader, _))| leader)
            .collect();
        for leader in elsewhere {
            self.send(leader, &Frame::Begun(self.begun), effects);
        }
    }

    /// Lets go what is kept.
    fn release(&mut self, effects: &mut ClusterEffects) {
        while let Some(unkept) = self.unkept.pop_front_if(|unkept| {
            let enough = if unkept.must_sync {
                self.synced
            } else {
                self.written
            };
            unkept.record <= enough
        }) {
            match unkept.then {
                Then::Nothing => {}
                Then::Promise {
                    partition,
                    turn,
                    promises,
                } => {
                    for (to, message) in promises {
                        self.send(to, &Frame::Consensus { partition, message }, effects);
                    }
                    if let Some(group) = self.groups.get_mut(&partition) {
                        group.kept(turn);
                        self.dirty.insert(partition);
                    }
                }
                Then::Candidate(epoch) => self.candidate(epoch, effects),
                Then::Rebased(epoch) => self.rebased(epoch, effects),
                Then::Installed => self.start_anew(effects),
            }
        }
    }

    /// What needs no record is kept at once; what needs a sync gets one.
    fn flush(&mut self, effects: &mut ClusterEffects) {
        if effects.kept.is_empty() {
            let before = self.unkept.len();
            self.release(effects);
            if self.unkept.len() < before {
                return self.pump(effects);
            }
            let waits = self.unkept.iter().any(|unkept| unkept.must_sync);
            let due = self.options.fsync == FsyncPolicy::Everysec
                && !is_active(Mutant::SkipEverySecond)
                && (self.ticks - self.sync_tick) * self.options.tick_ms >= EVERYSEC_MS;
            if (waits || due) && !self.syncing && self.synced < self.written {
                self.syncing = true;
                self.sync_tick = self.ticks;
                effects.sync = true;
            }
        }
    }
}
