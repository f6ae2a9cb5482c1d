//! The state machine: what happens to it, what it wants done, and the round in which the one leads to the
//! other.

mod begin;
mod checkpoints;
mod clocks;
mod compare;
mod deliver;
mod leaders;
mod levels;
mod members;
mod out;
mod propose;
mod retired;
mod stand;
mod transfer;
mod turns;

use super::bootstrap::Bootstrap;
use super::checkpoints::Checkpoints;
use super::compare::{Compared, Comparison};
use super::feeds::{Answered, Feeds, News, Said, Wish};
use super::frames::Frame;
use super::gateway::Gateway;
use super::lead::Lead;
use super::leaders::Leaders;
use super::members::Membership;
use super::options::ClusterOptions;
use super::out::Out;
use super::peers::{Condition, Peers};
use super::reads::{Read, Reads};
use super::retired::Retired;
use super::shape::{BadFrame, ReadAhead, check_frame, read_entries};
use super::transfer::Transfer;
use crate::clock::{Clock, ClockStatus};
use crate::expiry::ExpiryScan;
use crate::groups::Groups;
use crate::host::{HostEffects, HostEvent, Machine};
use crate::refused::Refused;
use agree::{Group, GroupStatus, Input};
use bytes::Bytes;
use execute::Engine;
use order::merge::{EpochEnd, Merge};
use order::{Changed, Control, PartitionMap};
use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use txn::{BootId, Epoch, NodeId, Outcome, PartitionId, Position, Registry, Request, RequestId, Stop};

/// A node of which nothing was heard for so many ticks is taken for gone.
const SILENCE_TICKS: u64 = 10;
/// What a leader was sent is doubted after so many ticks, and whether it will be heard how a request ended.
pub(super) const DOUBT_TICKS: u64 = 20;
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
    /// What siblings here have said to those of other nodes.
    pub said: Said,
    /// Requests of this process's clients that are not known to be in the order.
    pub waiting: u64,
    /// What was compared with other replicas' states.
    pub compared: Compared,
    /// Strict reads that wait.
    pub reads_waiting: usize,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Bytes of agreed batches since the last checkpoint was ordered.
    pub log_bytes_since_checkpoint: u64,
    /// The epoch of the newest checkpoint that counts: a start finds it. 0 if there is none.
    pub newest_checkpoint: Epoch,
    /// Behind which epoch the logs on the disk begin.
    pub log_begin: Epoch,
    /// Part of the log is gone, and no checkpoint has yet what it held.
    pub has_lost_log: bool,
    /// Syncs of the journal that went well since the start.
    pub syncs: u64,
    /// Syncs of the journal that failed since the start.
    pub sync_failures: u64,
    /// Writes of the journal that failed since the start.
    pub write_failures: u64,
    /// Why this node takes no part, if it does not: what clients are told.
    pub stopped: Option<String>,
    /// Whether that is for good.
    pub is_over: bool,
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
    pub(super) groups: Groups<Then>,
    executors: BTreeMap<PartitionId, Executor>,
    pub(super) gateway: Gateway,
    pub(super) leads: BTreeMap<PartitionId, Lead>,
    pub(super) leaders: Leaders,
    pub(super) reads: Reads,
    pub(super) peers: Peers,
    /// Changes that this node wants, until they are in the order.
    wanted: Vec<Control>,
    /// The newest map of others that this node knows: it may be ahead of its own.
    known: Arc<PartitionMap>,
    /// The newest epoch that another node has begun.
    begun: Epoch,
    /// The steady time: see [`crate::clock`].
    pub(super) now_ms: u64,
    pub(super) clock: Clock,
    pub(super) ticks: u64,
    pub(super) checkpoints: Checkpoints,
    transfer: Transfer,
    /// Replicas that were told to fetch a checkpoint, and when.
    pub(super) behind: BTreeMap<(PartitionId, NodeId), u64>,
    /// Epochs that are confirmed, and where the local partitions stand behind them: some has not
    /// final-committed it.
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
    /// Since when this process is about to end.
    pub(super) ending_tick: Option<u64>,
    /// Why this node takes no part at present.
    pub(super) out: Option<Out>,
    pub(super) counters: ClusterStatus,
    pub(super) bootstrap: Bootstrap,
    pub(super) membership: Membership,
    /// Replicas of this node that have moved away.
    pub(super) retired: BTreeMap<PartitionId, Retired>,
    pub(super) feeds: Feeds,
    pub(super) is_spread: bool,
    pub(super) comparison: Comparison,
    /// The map that the cluster was founded with.
    first_map: Arc<PartitionMap>,
    /// Batches of the frame at hand, which were read to be checked.
    read_ahead: ReadAhead,
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
            unsettled: VecDeque::new(),
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
            feeds: Feeds::new(nonce),
            is_spread,
            comparison,
            first_map: Arc::new(first_map),
            read_ahead: ReadAhead::new(),
        }
    }

    /// Whether this node stands alone.
    pub fn is_alone(&self) -> bool {
        self.options.alone
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

    /// The map that the cluster was founded with: where a node begins that joins and follows the log from its
    /// beginning.
    pub fn first_map(&self) -> &Arc<PartitionMap> {
        &self.first_map
    }

    /// This process's boot id; 0 until the order has given it one.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// Who leads a group, as far as this node knows.
    pub fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        self.leaders.of(partition).map(|(node, _)| node)
    }

    /// The epoch time, less the steady time that drivers tell: see [`crate::clock`].
    pub fn epoch_lead_ms(&self) -> i64 {
        self.clock.lead_ms()
    }

    /// What is known of this node's clock.
    pub fn clock(&self) -> ClockStatus {
        self.clock.status()
    }

    /// Where the local replica of a group stands.
    pub fn group_status(&self, partition: PartitionId) -> Option<GroupStatus> {
        self.groups.get(&partition).map(|group| group.status())
    }

    /// The local partitions' engines.
    pub fn engines(&self) -> impl Iterator<Item = (PartitionId, &Arc<dyn Engine>)> {
        self.executors.iter().map(|(&partition, executor)| (partition, &executor.engine))
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

    /// Whether something was heard of a node lately, and it takes part.
    pub fn is_live(&self, node: NodeId) -> bool {
        match node == self.options.me {
            true => self.out.is_none(),
            false => self.peers.is_live(node, self.silent_since()),
        }
    }

    /// Whether something was heard of a node lately.
    pub fn is_heard(&self, node: NodeId) -> bool {
        node == self.options.me || self.peers.is_heard(node, self.silent_since())
    }

    /// How a node is, as it said last.
    pub fn condition(&self, node: NodeId) -> Condition {
        match node == self.options.me {
            true => self.own_condition(),
            false => self.peers.condition(node).clone(),
        }
    }

    /// Counters and places.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            delivered: self.merge.delivered().epoch,
            confirmed: self.merge.confirmed().epoch,
            waiting: self.gateway.load().0,
            waiting_bytes: self.gateway.load().1,
            newest_checkpoint: self.checkpoints.newest(),
            log_begin: self.checkpoints.durable_base(),
            has_lost_log: self.checkpoints.has_lost_log(),
            said: self.feeds.said(),
            compared: self.comparison.compared(),
            reads_waiting: self.reads.count(),
            log_bytes_since_checkpoint: self.checkpoints.log_bytes(),
            stopped: self.refusal_text().map(str::to_owned),
            is_over: self.is_stopped(),
            ..self.counters.clone()
        }
    }

    /// What was compared with other replicas' states.
    pub fn compared(&self) -> Compared {
        self.comparison.compared()
    }

    /// Whether nothing that this node has taken, written or been told of is on its way.
    pub fn is_idle(&self) -> bool {
        self.out.is_none()
            && self.gateway.load().0 == 0
            && self.feeds.unanswered_count() == 0
            && self.reads.count() == 0
            && self.wanted.is_empty()
            && self.groups.has_kept_all()
            && !self.checkpoints.are_taken()
            && !self.transfer.is_installing()
            && self.merge.confirmed().epoch == self.merge.newest()
            && self.leads.values().all(|lead| !lead.has_work())
            && self
                .executors
                .values()
                .all(|executor| executor.engine.view().final_position() >= executor.next.prev())
    }

    /// Whether this node has executed all that it knows of, and hears from the leaders of all its groups.
    pub fn is_current(&self) -> bool {
        self.out.is_none()
            && self.merge.confirmed().epoch == self.merge.newest()
            && self.hears_all()
            && self
                .groups
                .keys()
                .all(|&partition| self.leader(partition).is_some_and(|leader| self.is_live(leader)))
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

    /// Whether something is agreed here that the local engines have not final-committed.
    pub(super) fn is_behind_the_order(&self) -> bool {
        self.waits_for_room
            || self.engines().any(|(_, engine)| engine.view().final_position() < engine.status().confirmed)
    }

    /// Who was heard since this tick is not taken for gone.
    pub(super) fn silent_since(&self) -> u64 {
        self.ticks.saturating_sub(SILENCE_TICKS)
    }

    /// Why requests are refused: this node is out, or it has ended.
    fn refusal_text(&self) -> Option<&str> {
        let ended = self.counters.stopped.as_deref();
        ended.or_else(|| self.refusal())
    }

    /// Whether requests would be taken now.
    pub fn admission(&self) -> Result<(), Refused> {
        if let Some(text) = self.refusal_text() {
            return Err(Refused::ReadOnly(text.into()));
        }
        if self.stopping || self.transfer.is_ending() || self.membership.is_leaving() {
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
        let refusal = self.refusal_text().map(str::to_owned);
        for (id, partition) in reads {
            if let Some(text) = &refusal {
                effects.refused.push((id, Err(Stop::abort(text.clone()))));
                continue;
            }
            if !self.executors.contains_key(&partition) {
                // There is nothing to be read here: it is told so at once.
                effects.readable.push((id, partition, Position::NONE));
                continue;
            }
            self.reads.add(Read { id, partition, since_tick: self.ticks });
        }
        self.pump(effects);
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
                self.feeds.lost(node);
                self.look_at_feeds(effects);
            }
            HostEvent::Disconnected(node) => {
                self.gateway.lost(node);
                self.feeds.lost(node);
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
        let given_up = self.feeds.give_up(u64::MAX);
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

    pub(super) fn send(&self, to: NodeId, frame: &Frame, effects: &mut ClusterEffects) {
        let wall_ms = self.clock.wall_ms(self.now_ms);
        effects.host.frames.push((to, frame.encode(wall_ms)));
    }

    /// Takes a frame, or drops the link of the node that sent it.
    fn frame(&mut self, from: NodeId, bytes: &Bytes, effects: &mut ClusterEffects) {
        if let Err(BadFrame(why)) = self.take_frame(from, bytes, effects) {
            effects.host.severed.push((from, why));
        }
    }

    fn take_frame(
        &mut self,
        from: NodeId,
        bytes: &Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let (wall_ms, frame) = Frame::decode(bytes, &self.registry)?;
        check_frame(&frame, self.map())?;
        self.peers.heard(from, wall_ms, self.now_ms, self.ticks);
        let is_about_nodes =
            matches!(frame, Frame::Clock { .. } | Frame::Condition(_) | Frame::MapWanted | Frame::Map(_));
        if self.is_mute() && !is_about_nodes {
            return Ok(());
        }
        match frame {
            Frame::Consensus { .. } if !self.bootstrap.takes_part() => {}
            Frame::Consensus { partition, message } => {
                self.group_hears(from, partition, message, effects)?;
            }
            Frame::Submit { partition, submissions } => self.submitted(from, partition, submissions, effects),
            Frame::Expect { partition, boot, sequence } => {
                if boot == self.boot {
                    self.gateway.expected(partition, sequence);
                }
            }
            Frame::Elsewhere { partition, leader } => {
                if self.leader(partition) == Some(from)
                    && !self.groups.contains_key(&partition)
                    && self.leaders.redirects(partition, self.ticks)
                {
                    self.leaders.learn(partition, leader.map(|leader| (leader, 0)));
                }
            }
            Frame::Behind { partition, epoch } => self.fall_behind(from, partition, epoch),
            Frame::Fetch(piece) => self.wanted_by(from, piece, effects),
            Frame::Piece { piece, total, base, bytes } => {
                self.piece_came(from, piece, total, base, bytes, effects)?
            }
            Frame::Newest(epoch) => self.newest_is(from, epoch),
            Frame::Begun(epoch) => self.hear_begun(epoch),
            Frame::Change(control) => self.take_change(control),
            Frame::Follow { partition, subscription, boot, after, waits, kept, settled, heard } => {
                let wish = Wish { subscription, boot, after, waits, kept, settled, heard };
                self.follow(from, partition, wish, effects);
            }
            Frame::Unfollow { partition, subscription } => self.unfollow(from, partition, subscription),
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
                    let heard = Frame::Heard { partition, subscription, number };
                    self.send(from, &heard, effects);
                }
                let news = News { batches, held, agreed, leader, answers, messages, part };
                self.fed(from, partition, subscription, number, news, effects)?;
            }
            Frame::Heard { partition, subscription, number } => {
                self.feeds.heard(partition, from, subscription, number)
            }
            Frame::Clock { standing, checkpoint, hears_all, map_version } => {
                self.checkpoints.heard(from, checkpoint);
                self.peers.says(from, hears_all);
                self.peers.tells_clock(from);
                if map_version > self.newest_map().version {
                    self.send(from, &Frame::MapWanted, effects);
                }
                if let Some(standing) = standing {
                    self.heard(from, standing, effects)?;
                }
            }
            Frame::Condition(condition) => self.peers.is_in(from, condition),
            Frame::Time(epoch_ms) => self.peers.tells_time(from, epoch_ms, self.now_ms),
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
            Frame::Followed { partition, version } => self.membership.followed(partition, version),
            Frame::Left { partition, version } => self.told_to_leave(from, partition, version, effects),
            Frame::Belongs { partition } => {
                self.is_stranger(from, partition, effects);
            }
            Frame::States(reports) => self.hear_states(from, &reports, effects),
            Frame::Wish { partition, to, left_ms } => {
                self.wished(partition, to, left_ms / self.options.tick_ms.max(1))
            }
        }
        Ok(())
    }

    /// A group's replica here gets a message of another one.
    fn group_hears(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        message: Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let Some(group) = self.groups.get(&partition) else {
            return Ok(());
        };
        let examined = group.examine(from, &message)?;
        if examined.asks_for_vote && self.is_stranger(from, partition, effects) {
            return Ok(());
        }
        if let Some(first) = examined.appends.first() {
            let epoch = self.merge.epoch_at(partition, first.index.saturating_sub(1));
            self.read_ahead = read_entries(partition, &examined.appends, epoch, self.map(), &self.registry)?;
        }
        // What it refuses counts as lost.
        let _ = self.groups.handle(partition, Input::Message(message));
        // A leader must know its whole log before it takes anything.
        self.turns(effects);
        self.read_ahead.clear();
        Ok(())
    }

    /// Another node says that an epoch was begun. None can be far ahead of what some group has here: an epoch
    /// is confirmed only with the batches of all groups, and few are begun behind it.
    fn hear_begun(&mut self, epoch: Epoch) {
        let latest = Epoch(self.merge.newest().0 + BEGUN_AHEAD_MAX);
        self.begun = self.begun.max(epoch.min(latest));
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
        given_up.iter().for_each(|&id| self.feeds.forget(id));
        given_up.extend(self.feeds.give_up(late));
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
