//! The state machine: what happens to it, what it wants done, and the round in which the one leads to the
//! other.

mod backup;
mod begin;
mod checkpoints;
mod clients;
mod clocks;
mod compare;
mod deliver;
mod feeds;
mod frames;
mod leaders;
mod levels;
mod members;
mod out;
mod propose;
mod retired;
mod stand;
mod status;
mod transfer;
mod turns;

use super::backlog::Backlog;
use super::bootstrap::Bootstrap;
use super::checkpoints::Checkpoints;
use super::compare::Comparison;
use super::feeds::{Answered, DOUBT_TICKS, Followers, Room, Sources};
use super::gateway::Gateway;
use super::lead::Lead;
use super::leaders::Leaders;
use super::members::Membership;
use super::options::ClusterOptions;
use super::out::Out;
use super::peers::Peers;
use super::reads::Reads;
use super::retired::Retired;
use super::shape::ReadAhead;
use super::status::ClusterStatus;
use super::transfer::Transfer;
use crate::clock::Clock;
use crate::expiry::ExpiryScan;
use crate::groups::Groups;
use crate::host::{HostEffects, HostEvent, Machine};
use agree::{Group, Input};
use bytes::Bytes;
use execute::Engine;
use execute::siblings::Twins;
use order::merge::Merge;
use order::{Changed, Control, PartitionMap};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use txn::{BootId, Epoch, NodeId, Outcome, PartitionId, Position, Registry, RequestId, Stop};

/// A node of which nothing was heard for so many ticks is taken for gone.
const SILENCE_TICKS: u64 = 10;
/// A question for an index is asked again after so many ticks.
const QUESTION_TICKS: u64 = 2;
/// So often a leader looks for expired entries.
const EXPIRY_MS: u64 = 100;
/// A replica that was told to fetch a checkpoint has had time to do so after so many ticks.
const BEHIND_TICKS: u64 = 20;
/// Every so many ticks nodes tell each other their clocks.
pub(super) const CLOCK_TICKS: u64 = 4;
/// So many epochs may be begun behind the last one of which this node has a batch: more than any node has
/// begun at once.
const BEGUN_AHEAD_MAX: u64 = 64;
/// Where files of the log were removed, a checkpoint that could not be written is tried again so often.
const LOST_LOG_TICKS: u64 = 20;
/// A leader that is not the preferred one looks every so many ticks whether that one could take over.
const BALANCE_TICKS: u64 = 40;

/// What happens to a node of a cluster, apart from requests.
#[derive(Debug)]
pub enum ClusterEvent {
    /// The host has done something, or something has reached it.
    Host(HostEvent),
    /// Somebody has removed files of the journal of a node that stands alone. What they held is executed, or
    /// will be, and goes on in a new file: a checkpoint of it is taken, and the log begins behind that.
    LogLost,
    /// The engines have got on where [`ClusterNode::waits_for_room`]. A tick does as well, later.
    Room,
    /// A checkpoint is wanted now, of the whole cluster.
    CheckpointWanted,
    /// A change of the map is wanted.
    ChangeWanted(Control),
    /// A group's leader should hand over, and the group is to stay there for a while
    /// ([`super::TRANSFER_KEPT_MS`]). Only the leader hears it.
    TransferWanted {
        /// Of which group.
        partition: PartitionId,
        /// To whom.
        to: NodeId,
    },
    /// This process ends soon: hand over, and keep nobody waiting in vain. Requests are still taken.
    Ending,
    /// Admit nothing more.
    Stop,
}

impl From<HostEvent> for ClusterEvent {
    fn from(event: HostEvent) -> ClusterEvent {
        ClusterEvent::Host(event)
    }
}

/// What a node wants done. Reused between calls. [`drive`](crate::host::drive()) takes out what a
/// [`Host`](crate::host::Host) performs; the rest is for its caller.
#[derive(Default)]
pub struct ClusterEffects {
    pub(super) host: HostEffects,
    /// Requests are taken again that were refused because this node was out.
    pub recovered: bool,
    /// Requests that were taken and are answered with an error.
    pub refused: Vec<(RequestId, Outcome)>,
    /// Requests that were taken and were executed by other nodes.
    pub answered: Vec<Answered>,
    /// Strict reads that may run at a snapshot, once the partition's engine has final-committed up to the
    /// position.
    pub readable: Vec<(RequestId, PartitionId, Position)>,
    /// Something became final: stepping the engines may final-commit now.
    pub confirmed: bool,
    /// Something was delivered: stepping the engines may execute it.
    pub delivered: bool,
    /// The order gave this process its boot id: requests are taken from now on.
    pub boot: Option<BootId>,
    /// Changes of the map that this node had wanted, and what they did.
    pub changed: Vec<(Control, Changed)>,
    /// A newer map than this node's own, from another node: where the others are. Who was down while nodes
    /// were replaced needs it, because the leader from whom it would learn of them may be one of them.
    pub known: Option<Arc<PartitionMap>>,
    /// What an operator should read.
    pub warnings: Vec<String>,
    /// What an operator may read: something is well again.
    pub news: Vec<String>,
    /// End this process and start it again: it goes on behind the checkpoint that was installed, or keeps
    /// other partitions, as [`ClusterNode::map`] says.
    pub restart: bool,
    /// This node is no part of the cluster any more, and its process is to end: what to tell its operator.
    pub ended: Option<String>,
}

/// What may follow once a record is kept, beside what groups promise.
pub(super) enum Then {
    /// Nothing: it is only to be durable.
    Nothing,
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
    options: ClusterOptions,
    registry: Registry,
    nonce: u64,
    boot: BootId,
    merge: Merge,
    groups: Groups<Then>,
    executors: BTreeMap<PartitionId, Executor>,
    gateway: Gateway,
    leads: BTreeMap<PartitionId, Lead>,
    leaders: Leaders,
    reads: Reads,
    peers: Peers,
    /// Changes that this node wants, until they are in the order.
    wanted: Vec<Control>,
    /// The newest map of others that this node knows: it may be ahead of its own.
    known: Arc<PartitionMap>,
    /// The newest epoch that another node has begun.
    begun: Epoch,
    /// The steady time: see [`crate::clock`].
    now_ms: u64,
    clock: Clock,
    ticks: u64,
    checkpoints: Checkpoints,
    transfer: Transfer,
    /// Replicas that were told to fetch a checkpoint, and when.
    behind: BTreeMap<(PartitionId, NodeId), u64>,
    backlog: Backlog,
    /// All local partitions have final-committed everything up to this epoch.
    settled: Epoch,
    /// What was read for transactions over several partitions up to this epoch is not known any more.
    forgotten: Epoch,
    /// The last confirmed epoch that was looked at, and since when it is that one while others are begun.
    progress: (Epoch, u64),
    /// Wanted changes are passed on again.
    remind: bool,
    /// What could be delivered waits until the engines have got on.
    waits_for_room: bool,
    stopping: bool,
    /// Since when this process is about to end.
    ending_tick: Option<u64>,
    /// Why this node takes no part at present.
    out: Option<Out>,
    counters: ClusterStatus,
    bootstrap: Bootstrap,
    membership: Membership,
    /// Replicas of this node that have moved away.
    retired: BTreeMap<PartitionId, Retired>,
    followers: Followers,
    sources: Sources,
    /// Whether a follower keeps a partition that this node keeps too.
    twins: Twins,
    is_spread: bool,
    comparison: Comparison,
    /// The map that the cluster was founded with.
    first_map: Arc<PartitionMap>,
    /// Batches of the frame at hand, which were read to be checked.
    read_ahead: ReadAhead,
    /// Messages of groups that waited for what they name, and can be handled now.
    waited: VecDeque<(NodeId, PartitionId, Bytes)>,
    /// For each epoch that is delivered and not confirmed: since when, if it was not agreed on yet.
    ahead_since_ms: VecDeque<Option<u64>>,
}

impl AsMut<HostEffects> for ClusterEffects {
    fn as_mut(&mut self) -> &mut HostEffects {
        &mut self.host
    }
}

impl Machine for ClusterNode {
    type Effects = ClusterEffects;

    fn react(&mut self, event: HostEvent, now_ms: u64, effects: &mut ClusterEffects) {
        self.take(event.into(), now_ms, effects);
    }
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
        let Beginning { nonce, bootstrap, first_map, known, checkpoints, retired } = beginning;
        let next = merge.confirmed().next.clone();
        let is_spread = merge.confirmed().map.is_spread();
        let clock = Clock::new(merge.confirmed().time_ms, options.clock_bound_ms);
        let settled = merge.confirmed().epoch;
        let comparison = Comparison::new(&merge.confirmed().map);
        let backlog = Backlog::new(options.backlog_bytes_max);
        let room = Room {
            window_bytes: options.feed_window_bytes / merge.confirmed().map.partitions.len() as u64,
            part_bytes: options.feed_part_bytes,
        };
        let executors = engines
            .into_iter()
            .zip(next)
            .map(|((partition, engine), next)| {
                let expiry = ExpiryScan::default();
                (partition, Executor { engine, next, expiry })
            })
            .collect();
        ClusterNode {
            options,
            registry,
            nonce,
            boot: BootId(0),
            merge,
            groups: Groups::new(groups),
            executors,
            gateway: Gateway::default(),
            leads: BTreeMap::new(),
            leaders: Leaders::default(),
            reads: Reads::new(nonce),
            peers: Peers::default(),
            wanted: Vec::new(),
            known,
            begun: Epoch(0),
            now_ms: 0,
            clock,
            ticks: 0,
            checkpoints,
            transfer: Transfer::default(),
            behind: BTreeMap::new(),
            backlog,
            settled,
            // Nobody has told this process.
            forgotten: settled,
            progress: (Epoch(0), 0),
            remind: false,
            waits_for_room: false,
            stopping: false,
            ending_tick: None,
            out: None,
            counters: ClusterStatus::default(),
            bootstrap,
            membership: Membership::default(),
            retired,
            followers: Followers::new(nonce, room),
            sources: Sources::new(nonce, room.window_bytes),
            twins: Twins::default(),
            is_spread,
            comparison,
            first_map: Arc::new(first_map),
            read_ahead: ReadAhead::new(),
            waited: VecDeque::new(),
            ahead_since_ms: VecDeque::new(),
        }
    }

    /// Nothing is taken any more, and this is why.
    pub(super) fn stop_because(&mut self, text: &str) {
        self.counters.stopped = Some(text.to_owned());
    }

    /// Takes an event.
    pub fn handle(&mut self, event: impl Into<ClusterEvent>, now_ms: u64, effects: &mut ClusterEffects) {
        self.take(event.into(), now_ms, effects);
    }

    fn take(&mut self, event: ClusterEvent, now_ms: u64, effects: &mut ClusterEffects) {
        self.now_ms = now_ms;
        let matters = matches!(
            event,
            ClusterEvent::Host(
                HostEvent::Written(_)
                    | HostEvent::Synced(_)
                    | HostEvent::JournalUnwritten(_)
                    | HostEvent::JournalFailed(_)
            )
        ) || self.out.is_some();
        if self.counters.stopped.is_some() || self.transfer.is_ending() && !matters {
            effects.host.kept.clear();
            return;
        }
        match event {
            ClusterEvent::Host(event) => {
                if self.host_says(event, effects).is_break() {
                    return;
                }
            }
            ClusterEvent::LogLost => self.log_lost(),
            ClusterEvent::Room => {}
            ClusterEvent::CheckpointWanted => self.want_checkpoint(),
            ClusterEvent::ChangeWanted(control) => {
                self.wanted.push(control);
                self.remind = true;
            }
            ClusterEvent::TransferWanted { partition, to } => {
                self.transfer_wanted(partition, to, effects);
            }
            ClusterEvent::Ending => self.begin_to_end(effects),
            ClusterEvent::Stop => {
                self.stopping = true;
                self.begin_to_end(effects);
            }
        }
        self.pump(effects);
    }

    /// Takes a host's event. Breaks where nothing may come before the next effect.
    fn host_says(&mut self, event: HostEvent, effects: &mut ClusterEffects) -> ControlFlow<()> {
        match event {
            HostEvent::Frame { from, bytes } => self.frame(from, &bytes, effects),
            HostEvent::Connected(node) => {
                self.gateway.lost(node);
                self.followers.lost(node);
                self.sources.lost(node);
                self.look_at_feeds(effects);
            }
            HostEvent::Disconnected(node) => {
                self.gateway.lost(node);
                self.followers.lost(node);
                self.sources.lost(node);
                self.groups.tell_all(&Input::Unreachable(node));
            }
            HostEvent::Written(record) => {
                self.groups.written(record);
                if self.out.is_none() {
                    // What else could be done was done before the write.
                    self.flush(effects);
                    return ControlFlow::Break(());
                }
                self.come_back(effects);
                self.release(effects);
            }
            // A sync that goes well behind one that failed says nothing.
            HostEvent::Synced(_) if self.is_closed() => {}
            HostEvent::Synced(record) => {
                self.counters.syncs += 1;
                self.groups.synced(record);
                self.release(effects);
            }
            HostEvent::JournalUnwritten(error) => self.journal_unwritten(&error, effects),
            HostEvent::JournalFailed(error) => self.journal_failed(&error, effects),
            HostEvent::RoomMade => {
                self.write_again(effects);
                return ControlFlow::Break(());
            }
            HostEvent::Tick { .. } if self.out.is_some() => self.tick_out(effects),
            HostEvent::Tick { wall_ms } => self.tick(wall_ms, effects),
            HostEvent::CheckpointWritten { epoch, bytes } => self.checkpoint_written(epoch, bytes, effects),
            HostEvent::CheckpointFailed(error) => {
                self.checkpoints.failed();
                effects.warnings.push(format!(
                    "a checkpoint could not be written: {error}; the older one and the journal are untouched"
                ));
            }
            HostEvent::PieceRead { to, piece, total, bytes } => {
                self.piece_read(to, piece, total, bytes.into(), effects)
            }
            HostEvent::PieceWritten { piece, bytes, last } => self.transfer.written(piece, bytes, last),
            HostEvent::PieceSpoilt { piece, cause } => {
                if let Some(from) = self.transfer.spoilt(piece) {
                    let why = format!("the checkpoint of {} that it gave is none: {cause}", piece.partition);
                    effects.host.severed.push((from, why));
                }
            }
            HostEvent::PieceUnwritten { piece, error } => {
                self.transfer.unwritten(piece);
                effects.warnings.push(format!(
                    "a checkpoint that this node needs could not be written ({error}): it is fetched again \
                     until there is room on the disk"
                ));
            }
        }
        ControlFlow::Continue(())
    }

    /// This node can't go on, or is no part of the cluster any more: it says and takes nothing from now on.
    pub(super) fn end(&mut self, text: String, effects: &mut ClusterEffects) {
        let (unknown, refusal) = match self.options.alone {
            true => {
                (format!("MISCONF the outcome of this command is unknown: {text}"), format!("MISCONF {text}"))
            }
            false => (
                format!("CLUSTERDOWN the outcome of this command is unknown, ask another node: {text}"),
                format!("CLUSTERDOWN {text}"),
            ),
        };
        let given_up = self.sources.give_up(u64::MAX);
        for id in self.gateway.give_up(u64::MAX).into_iter().chain(given_up) {
            effects.refused.push((id, Err(Stop::abort(unknown.clone()))));
        }
        for id in self.reads.give_up(u64::MAX) {
            effects.refused.push((id, Err(Stop::abort(refusal.clone()))));
        }
        effects.host.kept.clear();
        effects.host.frames.clear();
        self.checkpoints.close();
        self.counters.stopped = Some(refusal);
        effects.ended = Some(text);
    }

    fn tick(&mut self, wall_ms: u64, effects: &mut ClusterEffects) {
        self.ticks += 1;
        self.look_at_clocks(wall_ms, effects);
        if self.bootstrap.takes_part() {
            self.groups.tell_all(&Input::Tick);
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
        given_up.iter().for_each(|&id| _ = self.sources.forget(id));
        given_up.extend(self.sources.give_up(late));
        for id in given_up {
            let text = "ORDOUNKNOWN no majority answered in time: what this command writes may or may not \
                        take effect; send it through ORDO.IDEMPOTENT where that matters, and again";
            effects.refused.push((id, Err(Stop::abort(text))));
        }
        for id in self.reads.give_up(late) {
            let text = "CLUSTERDOWN no majority answered in time: nothing was read; try again";
            effects.refused.push((id, Err(Stop::abort(text))));
        }
        self.settle();
        self.campaign();
        self.look_for_progress(effects);
        self.look_at_feeds(effects);
        if self.ending_tick.is_some() {
            self.go_on_ending(effects);
        } else if self.ticks.is_multiple_of(BALANCE_TICKS) {
            self.balance(effects);
        }
        self.behind.retain(|&(partition, node), told| {
            let waits = now < *told + BEHIND_TICKS;
            if !waits {
                // Only a leader has use for it.
                let _ = self.groups.handle(partition, Input::TryAgain(node));
            }
            waits
        });
        self.tell_clock(effects);
        if self.bootstrap.takes_part() && self.ticks.is_multiple_of(CLOCK_TICKS) {
            self.tell_states(effects);
            if self.is_stopped() {
                return;
            }
        }
        self.look_at_members(effects);
        if self.ticks.is_multiple_of((EXPIRY_MS / self.options.tick_ms.max(1)).max(1)) {
            self.expire();
        }
        let lacks = self.checkpoints.has_lost_log() && !self.checkpoints.is_one_coming();
        if lacks && self.ticks.is_multiple_of(LOST_LOG_TICKS) {
            self.want_checkpoint();
        }
    }

    /// Does what has become possible, until nothing more has.
    fn pump(&mut self, effects: &mut ClusterEffects) {
        if self.counters.stopped.is_some() {
            return;
        }
        if self.is_mute() {
            return self.flush(effects);
        }
        self.begin(effects);
        if self.counters.stopped.is_some() {
            return;
        }
        while !self.transfer.is_ending() {
            self.turns(effects);
            self.hear_waited(effects);
            self.settle();
            self.execute(effects);
            if self.counters.stopped.is_some() {
                return;
            }
            self.release_reads(effects);
            if self.out.is_none() {
                self.look_at_checkpoint(effects);
                self.fetch(effects);
            }
            self.pass_on(effects);
            if self.reads.wants_question() {
                let question = self.reads.ask(self.ticks);
                self.ask(question);
            }
            if !self.propose(effects) && !self.groups.has_turns() {
                break;
            }
        }
        self.feed(effects);
        self.flush(effects);
        self.check_invariants();
    }

    /// The invariants of the parts: after every round, the cheap ones also in release builds.
    fn check_invariants(&self) {
        self.groups.check_invariants();
        self.merge.check_invariants();
        debug_assert!(self.groups.iter().all(|(&partition, group)| {
            let ahead = self.merge.held(partition).0 - self.merge.logged(partition).0;
            self.is_stopped() || ahead == group.ahead() as u64
        }));
        self.backlog.check_invariants();
        self.followers.check_invariants();
        self.sources.check_invariants();
        self.transfer.check_invariants();
        self.checkpoints.check_invariants();
        self.reads.check_invariants();
    }

    /// Wants a boot id for this process.
    fn ask_for_boot(&mut self) {
        let me = self.options.me;
        let is_own = |control: &Control| matches!(control, Control::Boot { node, .. } if *node == me);
        self.wanted.retain(|control| !is_own(control));
        // A process that fetches a checkpoint ends before it could use a boot id.
        if self.boot != BootId(0) || self.transfer.is_installing() {
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
}
