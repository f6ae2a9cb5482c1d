//! A node under the runtime's lock: its state machine, its journal, and its peers if it has any.

use super::core::{Hands, Outcome};
use super::host::RealHost;
use super::leaders::{LeadersTold, NodesTold};
use super::port::Replies;
use super::routing::SharedRouting;
use super::status::MemberStatus;
use super::{Inner, Membership};
use crate::clock::wall_ms;
use crate::cluster::{
    ChangeAnswer, ChangeTicket, ClusterChange, ClusterCounters, ClusterStatus, ClusterView, NodeStatus,
    PartitionStatus, ReplicaStatus, SlotKeys, called,
};
use crate::disk::RealDisk;
use crate::peers::{PeerEvents, PeerStats, Peers};
use agree::Role;
use bytes::Bytes;
use execute::siblings::Sent;
use execute::snapshot::panic_text;
use execute::{Engine, Progress};
use log::{Journal, Synced};
use node::Refused;
use node::cluster::{Answered, ClusterEffects, ClusterEvent, ClusterNode, Condition, TRANSFER_KEPT_MS};
use node::host::{CountedJournal, HostEvent, drive};
use order::{Control, PartitionMap};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use store::View;
use txn::{Epoch, NodeId, PartitionId, Request, RequestId, ScanRange, SessionId, Space, Stop};

/// The protocol that this build speaks with its peers.
pub(super) const PROTOCOL: u16 = 1;

/// What a node tells those who do not take the runtime's lock.
#[derive(Clone)]
pub(super) struct Outside {
    /// Set once the transport is up; what is to be sent before that is lost.
    pub peers: Arc<OnceLock<Peers>>,
    /// When this node last knew to have executed everything that was agreed.
    pub fresh_ms: Arc<AtomicU64>,
    /// It takes no part: its log can't be written or synced.
    pub is_out: Arc<AtomicBool>,
    /// Whose the slots are.
    pub routing: Arc<SharedRouting>,
}

/// A node. See the module's head.
pub(super) struct Member {
    pub node: ClusterNode,
    pub records: CountedJournal<RealDisk>,
    pub me: NodeId,
    /// The cluster's name.
    pub name: String,
    /// It stands alone.
    alone: bool,
    effects: ClusterEffects,
    outside: Outside,
    /// Frames by receiver, for their memory.
    outgoing: BTreeMap<NodeId, Vec<u8>>,
    /// Changes that operators ask for, by the strict read which tells when this node's map is new enough to
    /// judge them.
    asked: BTreeMap<RequestId, (ClusterChange, ChangeAnswer)>,
    /// The last strict read's number.
    asked_last: u64,
    /// Changes of the map that somebody waits for, and since when.
    changes: Vec<(Control, ChangeAnswer, u64)>,
    leaders_told: LeadersTold,
    nodes_told: NodesTold,
    /// Why this node is out, as the operator was told.
    out_told: Option<String>,
    /// The map with which this process started: newer than its own while it follows the log from far behind.
    known: Arc<PartitionMap>,
    /// The behaviour in force that the log was told of.
    level_told: u32,
    /// The map that the transport knows.
    pub peers_of: u32,
    /// What the ports know of it.
    is_spread: bool,
    checkpoint_in_progress: bool,
    checkpoints: u64,
    checkpoints_failed: u64,
    /// The epoch of the one that was written last.
    last_checkpoint: Epoch,
    last_checkpoint_at_ms: u64,
    last_checkpoint_bytes: u64,
    checkpoint_error: Option<String>,
}

impl Member {
    pub fn new(
        node: ClusterNode,
        journal: Journal<RealDisk>,
        me: NodeId,
        name: String,
        outside: Outside,
        known: Arc<PartitionMap>,
    ) -> Member {
        Member {
            alone: node.is_alone(),
            is_spread: node.is_spread(),
            node,
            records: CountedJournal::new(journal),
            me,
            name,
            effects: ClusterEffects::default(),
            outside,
            outgoing: BTreeMap::new(),
            asked: BTreeMap::new(),
            asked_last: 0,
            changes: Vec::new(),
            leaders_told: LeadersTold::default(),
            nodes_told: NodesTold::default(),
            out_told: None,
            level_told: known.level,
            known,
            peers_of: 0,
            checkpoint_in_progress: false,
            checkpoints: 0,
            checkpoints_failed: 0,
            last_checkpoint: Epoch(0),
            last_checkpoint_at_ms: 0,
            last_checkpoint_bytes: 0,
            checkpoint_error: None,
        }
    }

    /// The newest map that this process knows.
    pub fn newest_map(&self) -> &Arc<PartitionMap> {
        let own = self.node.map();
        if self.known.version > own.version { &self.known } else { own }
    }

    /// Tells the operator that another behaviour is in force.
    pub fn tell_level(&mut self) {
        let level = self.node.map().level;
        if level > self.level_told {
            self.level_told = level;
            tracing::info!(
                "behaviour {level} is in force: all nodes know it, and older versions of Ordo are refused \
                 from now on"
            );
        }
    }

    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        hands: Option<&Hands>,
        now_ms: u64,
    ) -> Result<Outcome, Refused> {
        self.node.submit(requests, now_ms, &mut self.effects)?;
        Ok(self.drive(hands, now_ms))
    }

    pub fn handle(&mut self, event: impl Into<ClusterEvent>, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        let event = event.into();
        match &event {
            ClusterEvent::Host(HostEvent::CheckpointWritten { epoch, bytes }) => {
                self.checkpoint_in_progress = false;
                self.checkpoints += 1;
                self.last_checkpoint = *epoch;
                self.last_checkpoint_at_ms = wall_ms();
                self.last_checkpoint_bytes = *bytes;
                self.checkpoint_error = None;
            }
            ClusterEvent::Host(HostEvent::CheckpointFailed(error)) => {
                self.checkpoint_in_progress = false;
                self.checkpoints_failed += 1;
                self.checkpoint_error = Some(error.clone());
            }
            _ => {}
        }
        let is_tick = matches!(event, ClusterEvent::Host(HostEvent::Tick { .. }));
        self.node.handle(event, now_ms, &mut self.effects);
        let mut outcome = self.drive(hands, now_ms);
        if is_tick {
            self.tell_leaders(now_ms);
            self.give_up_changes(now_ms);
        }
        // Who steps an engine may end when another is about to, and that one too. The next confirmation has
        // it stepped again; but a node that catches up takes no more epochs while its engines are too far
        // behind, so that none would come.
        outcome.step |= is_tick && self.is_behind();
        outcome
    }

    /// Tells the operator who leads, when that changes.
    fn tell_leaders(&mut self, now_ms: u64) {
        let changed = self.node.take_leaders_changed();
        if self.alone {
            return;
        }
        let node = &self.node;
        let look = |partition| {
            let leader = node.leader(partition)?;
            Some((leader, node.leader_term(partition)))
        };
        let map = node.map();
        if let Some(text) = self.leaders_told.news(map, changed, now_ms, look) {
            tracing::info!("{text}");
        }
        // A node that is out hears nothing, and has said why.
        if node.out().is_some() {
            return;
        }
        self.nodes_told.look(map, |other| node.condition(other));
        let unheard = |other| !node.is_live(other);
        self.leaders_told.look_for_lost(map, now_ms, look, unheard);
    }

    /// Whoever waits for a change that is not agreed to for long is told so.
    fn give_up_changes(&mut self, now_ms: u64) {
        let is_late = |since_ms: u64| now_ms >= since_ms + CHANGE_MS_MAX;
        while let Some(place) = self.changes.iter().position(|(_, _, since)| is_late(*since)) {
            let (_, answer, _) = self.changes.remove(place);
            let seconds = CHANGE_MS_MAX / 1_000;
            answer.answer(Err(format!(
                "no majority of the replicas of {CHANGES_IN}, which orders changes, has agreed to this \
                 within {seconds} s, or it waits until a node has what an earlier change has given to it. \
                 It may still come into force, as soon as they can talk to each other: 'ordo admin status' \
                 tells whether it has; look there before another try"
            )));
        }
    }

    /// Whether an engine has not yet final-committed all that is confirmed.
    fn is_behind(&self) -> bool {
        self.node.engines().any(|(_, engine)| engine.view().final_position() < engine.status().confirmed)
    }

    pub fn read(
        &mut self,
        reads: &mut Vec<(RequestId, PartitionId)>,
        hands: Option<&Hands>,
        now_ms: u64,
    ) -> Outcome {
        self.node.read(reads.drain(..), now_ms, &mut self.effects);
        self.drive(hands, now_ms)
    }

    pub fn executed(&mut self, answered: Vec<Answered>, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        self.node.executed(answered, now_ms, &mut self.effects);
        self.drive(hands, now_ms)
    }

    pub fn say(&mut self, sent: Vec<Sent>, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        self.node.say(sent, now_ms, &mut self.effects);
        self.drive(hands, now_ms)
    }

    pub fn synced(&mut self, synced: io::Result<Synced>, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        let event = self.records.end_sync(synced);
        self.handle(event, hands, now_ms)
    }

    /// Does what the node wants, until it wants nothing more.
    fn drive(&mut self, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        loop {
            let Member { node, effects, records, outgoing, outside, checkpoint_in_progress, .. } = self;
            let peers = &outside.peers;
            let mut host = RealHost { records, hands, outgoing, peers, checkpoint_in_progress };
            drive(node, effects, now_ms, &mut host);
            if self.asked.is_empty() || !self.look_at_asked(now_ms) {
                break;
            }
        }
        self.flush();
        self.tell_out();
        let effects = &mut self.effects;
        for warning in effects.warnings.drain(..) {
            tracing::warn!("{warning}");
        }
        for news in effects.news.drain(..) {
            tracing::info!("{news}");
        }
        if self.node.is_current() {
            self.outside.fresh_ms.store(now_ms, Ordering::Relaxed);
        }
        self.outside.routing.follow(self.node.map());
        self.answer_changes();
        let effects = &mut self.effects;
        let confirmed = std::mem::take(&mut effects.confirmed);
        let delivered = std::mem::take(&mut effects.delivered);
        let booted = effects.boot.take().is_some();
        let recovered = std::mem::take(&mut effects.recovered);
        let ended = effects.ended.take();
        if let Some(known) = effects.known.take() {
            self.known = known;
        }
        let restart = std::mem::take(&mut effects.restart);
        let is_spread = self.node.is_spread();
        let is_spread = (std::mem::replace(&mut self.is_spread, is_spread) != is_spread).then_some(is_spread);
        Outcome {
            step: confirmed || delivered,
            notify_all: booted || recovered,
            waits_for_room: self.node.waits_for_room(),
            refused: std::mem::take(&mut effects.refused),
            answered: std::mem::take(&mut effects.answered),
            is_spread,
            readable: std::mem::take(&mut effects.readable),
            ended,
            restart: restart.then(|| self.node.map().clone()),
        }
    }

    /// Tells the operator, and those who do not take the lock, that this node is out.
    fn tell_out(&mut self) {
        let out = self.node.out();
        if out == self.out_told.as_deref() {
            return;
        }
        self.out_told = out.map(str::to_owned);
        // Where there are no other nodes, this one goes on serving reads.
        self.outside.is_out.store(out.is_some() && !self.alone, Ordering::Relaxed);
        let Some(cause) = out else { return };
        match self.records.journal.is_closed() {
            true if self.alone => tracing::error!("{cause}: writes are refused until a restart"),
            false if self.alone => {
                tracing::error!("{cause}: writes are refused until there is room for another log segment")
            }
            true => tracing::error!(
                "this node takes no part in its cluster any more, and serves nobody: {cause}. Check the \
                 disk, then restart this node"
            ),
            false => tracing::error!(
                "this node takes no part in its cluster for the time being, and serves nobody: {cause}. It \
                 comes back by itself once there is room for another log segment"
            ),
        }
    }

    /// Hands the frames to the transport.
    fn flush(&mut self) {
        let Some(peers) = self.outside.peers.get() else {
            self.outgoing.clear();
            return;
        };
        for (&to, out) in &mut self.outgoing {
            if !out.is_empty() {
                peers.send(to, PROTOCOL, out);
                out.clear();
            }
        }
    }

    fn answer_changes(&mut self) {
        for (control, changed) in self.effects.changed.drain(..) {
            let waiting = self.changes.iter().position(|(wanted, ..)| *wanted == control);
            let Some(place) = waiting else { continue };
            let (_, answer, _) = self.changes.remove(place);
            let map = self.node.map();
            answer.answer(match changed {
                order::Changed::Nothing => {
                    Err("the map of the cluster has changed meanwhile: look at 'ordo admin status', and \
                     ask again"
                        .to_owned())
                }
                _ => Ok(match control {
                    Control::Drain { node, .. } => {
                        let node = called(map, node);
                        format!(
                            "OK: what {node} keeps goes to other nodes of its zone, and then it leaves. \
                             'ordo admin status' tells how far that is; the process of {node} ends by \
                             itself"
                        )
                    }
                    Control::AddNode { name, .. } => {
                        let added = map.nodes.iter().find(|(_, entry)| entry.name == name);
                        let number = added.map_or(String::new(), |(node, _)| format!(", as {node}"));
                        format!("OK: '{name}' belongs to the cluster now{number}; it keeps nothing yet")
                    }
                    _ => format!("OK: {control}"),
                }),
            });
        }
    }

    /// What INFO tells.
    pub fn status(&self) -> MemberStatus {
        let sum =
            |pick: fn(&execute::Status) -> u64| -> u64 { engines_status(&self.node).iter().map(pick).sum() };
        let status = self.node.status();
        MemberStatus {
            delivered: txn::Position(sum(|status| status.delivered.0)),
            confirmed: txn::Position(sum(|status| status.confirmed.0)),
            final_committed: txn::Position(sum(|status| status.final_committed.0)),
            epochs: status.epochs,
            in_flight_bytes: status.waiting_bytes,
            syncs: status.syncs,
            write_failures: status.write_failures,
            sync_failures: status.sync_failures,
            log_bytes_since_checkpoint: status.log_bytes_since_checkpoint,
            checkpoint_in_progress: self.checkpoint_in_progress,
            checkpoints: self.checkpoints,
            checkpoints_failed: self.checkpoints_failed,
            last_checkpoint_bytes: self.last_checkpoint_bytes,
            checkpoint: status.newest_checkpoint,
            last_checkpoint_at_ms: self.last_checkpoint_at_ms,
            checkpoint_error: self.checkpoint_error.clone(),
            refused: status.stopped.map(Into::into),
        }
    }

    /// The cluster as this node sees it.
    fn view(&self, now_ms: u64) -> ClusterView {
        let map = self.node.map();
        // A node that is out does not hear who leads.
        let knows = self.node.out().is_none();
        let leaders: BTreeMap<PartitionId, NodeId> = map
            .partition_ids()
            .filter(|_| knows)
            .filter_map(|partition| Some((partition, self.node.leader(partition)?)))
            .collect();
        let live = |node: NodeId| self.node.is_live(node);
        let status = self.node.status();
        let peers = self.outside.peers.get().map(|peers| peers.stats()).unwrap_or_default();
        ClusterView {
            status: Arc::new(self.cluster_status(map, &leaders)),
            map: map.clone(),
            first_map: self.node.first_map().clone(),
            me: self.me,
            leaders,
            unreachable: map.nodes.keys().copied().filter(|&node| !live(node)).collect(),
            epoch: status.confirmed.0,
            epoch_delivered: status.delivered.0,
            staleness_ms: now_ms.saturating_sub(self.outside.fresh_ms.load(Ordering::Relaxed)),
            counters: self.counters(&peers),
            peers,
        }
    }

    fn counters(&self, peers: &PeerStats) -> ClusterCounters {
        let status = self.node.status();
        let mut counters = ClusterCounters {
            epochs: status.epochs,
            retracted: status.retracted,
            delivery: self.node.delivery(),
            opt_batches: status.ahead,
            reorders: status.ahead_void,
            epochs_ahead: status.epochs_ahead,
            overlap_ms: status.overlap_ms,
            sibling_rounds: status.said.rounds,
            sibling_frames: status.said.frames,
            sibling_notes: status.said.notes,
            feeds_lapsed: status.said.lapsed,
            backlog_bytes: status.backlog_bytes,
            backlog_full: status.backlog_full,
            states_compared: status.compared.digests,
            states_differing: status.compared.differences,
            states_epoch: status.compared.epoch.0,
            ..ClusterCounters::default()
        };
        for engine in engines_status(&self.node) {
            counters.transactions += engine.final_committed.0;
            counters.speculated_before_confirmation += engine.speculated_before_confirmation;
            counters.restarts += engine.restarts;
        }
        for peer in peers.peers.values() {
            counters.messages_sent += peer.sent_frames;
            counters.message_bytes_sent += peer.sent_bytes;
            counters.messages_received += peer.received_frames;
            counters.message_bytes_received += peer.received_bytes;
        }
        counters
    }

    fn cluster_status(&self, map: &PartitionMap, leaders: &BTreeMap<PartitionId, NodeId>) -> ClusterStatus {
        let nodes = map.nodes.iter().map(|(&node, entry)| NodeStatus {
            id: node.0,
            name: entry.name.clone(),
            zone: map.zones.get(&entry.zone).cloned().unwrap_or_default(),
            peer_address: entry.peer_address.clone(),
            client_address: entry.client_address.clone(),
            boot: entry.boot.0,
            level: entry.level,
            reachable: self.node.is_heard(node),
            out: match self.node.condition(node) {
                Condition::Out(cause) => Some(cause),
                Condition::Well | Condition::Ending => self.node.diverged(node).map(|partition| {
                    format!(
                        "its replica of {partition} has diverged: a majority of the replicas has another \
                         state digest"
                    )
                }),
            },
            // Who asks is seen by those who answer.
            waiting: false,
            leaving: entry.leaving,
            clock_ahead_ms: self.node.wrong_clock_ms(node),
        });
        let partitions = map.partition_ids().map(|partition| {
            let entry = map.partition(partition);
            let group = self.node.group_status(partition);
            let leader = leaders.get(&partition).copied();
            let members = group.as_ref().map(|group| &group.members);
            let is_voter = |node: &NodeId| members.is_none_or(|members| members.voters.contains(node));
            let others: Vec<NodeId> = members
                .map(|members| members.voters.iter().chain(&members.voters_outgoing))
                .into_iter()
                .flatten()
                .copied()
                .filter(|node| !entry.replicas.values().any(|wanted| wanted == node))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let replicas = entry.replicas.values().chain(&others).map(|&node| {
                let learner = group.as_ref().is_some_and(|group| group.members.learners.contains(&node));
                let role = match () {
                    () if leader == Some(node) => "leader",
                    () if learner => "learner",
                    () if others.contains(&node) => "leaving",
                    () if !is_voter(&node) => "expected",
                    () => "follower",
                };
                ReplicaStatus {
                    node: node.0,
                    role: role.to_owned(),
                    lag: (group.as_ref().filter(|_| self.node.out().is_none()))
                        .and_then(|group| group.lag(node)),
                }
            });
            PartitionStatus {
                id: partition.0,
                slots: entry.slots.clone(),
                leader: leader.map(|leader| leader.0),
                term: group.as_ref().map_or_else(|| self.node.leader_term(partition), |group| group.term),
                replicas: replicas.collect(),
            }
        });
        ClusterStatus {
            cluster: self.name.clone(),
            map_version: map.version,
            level: map.level,
            epoch: self.node.status().confirmed.0,
            me: self.me.0,
            nodes: nodes.collect(),
            partitions: partitions.collect(),
        }
    }

    /// Takes a change. The node judges it once its map has every change that was answered anywhere before, so
    /// that an operator who asks another node sees what the first one did.
    fn change(
        &mut self,
        change: ClusterChange,
        hands: Option<&Hands>,
        now_ms: u64,
    ) -> Result<(ChangeTicket, Outcome), String> {
        if let Some(text) = self.node.status().stopped {
            return Err(text);
        }
        self.has_leader()?;
        // A strict read of any partition will do: an epoch is acknowledged only once all groups have agreed
        // on it.
        let Some((partition, _)) = self.node.engines().next() else {
            return Err(
                "this node keeps no partition yet, so it can't tell whether its map is the newest one: ask \
                 another node"
                    .to_owned(),
            );
        };
        let (ticket, answer) = ChangeTicket::open();
        self.asked_last += 1;
        let id = RequestId { session: SessionId::INTERNAL, sequence: self.asked_last, attempt: 0 };
        self.asked.insert(id, (change, answer));
        self.node.read([(id, partition)], now_ms, &mut self.effects);
        Ok((ticket, self.drive(hands, now_ms)))
    }

    /// Begins the changes whose strict reads are answered. Says whether there were any.
    fn look_at_asked(&mut self, now_ms: u64) -> bool {
        let asked = &mut self.asked;
        let effects = &mut self.effects;
        let mut ready = Vec::new();
        effects.readable.retain(|(id, ..)| match asked.remove(id) {
            Some(change) => {
                ready.push(change);
                false
            }
            None => true,
        });
        effects.refused.retain_mut(|(id, outcome)| match asked.remove(id) {
            Some((_, answer)) => {
                let why = match outcome {
                    Err(Stop::Abort(why)) => why.to_string(),
                    _ => "no majority answered in time".to_owned(),
                };
                answer.answer(Err(format!("nothing was changed: {why}")));
                false
            }
            None => true,
        });
        let any = !ready.is_empty();
        for (change, answer) in ready {
            self.begin_change(&change, answer, now_ms);
        }
        any
    }

    /// Judges a change by the newest map, and starts it.
    fn begin_change(&mut self, change: &ClusterChange, answer: ChangeAnswer, now_ms: u64) {
        let map = self.node.map().clone();
        if let Some(done) = change.done_already(&map) {
            return answer.answer(Ok(done));
        }
        if let Err(why) = change.check(&map) {
            return answer.answer(Err(why));
        }
        let version = map.version;
        let control = match change {
            ClusterChange::TransferLeader { partition, to } => {
                return answer.answer(self.transfer(&map, *partition, *to, now_ms));
            }
            ClusterChange::AddNode { name, zone, peer_address, client_address } => {
                let zone = map.zones.iter().find(|(_, known)| *known == zone);
                Control::AddNode {
                    version,
                    name: name.clone(),
                    zone: zone.map(|(&zone, _)| zone).unwrap_or_default(),
                    peer_address: peer_address.clone(),
                    client_address: client_address.clone(),
                }
            }
            ClusterChange::MoveSlots { slots, to } => Control::MoveSlots { version, slots: *slots, to: *to },
            ClusterChange::PlaceReplicas { places } => {
                Control::PlaceReplicas { version, places: places.clone() }
            }
            ClusterChange::RemoveNode { node } => Control::Drain { version, node: *node },
        };
        self.changes.push((control.clone(), answer, now_ms));
        let event = ClusterEvent::ChangeWanted(control);
        self.node.handle(event, now_ms, &mut self.effects);
    }

    /// Asks a replica to lead a partition that this node leads.
    fn transfer(
        &mut self,
        map: &PartitionMap,
        partition: PartitionId,
        to: NodeId,
        now_ms: u64,
    ) -> Result<String, String> {
        let leads = self.node.group_status(partition).is_some_and(|group| group.role == Role::Leader);
        if !leads {
            return Err(match self.node.leader(partition) {
                Some(leader) => {
                    let entry = map.nodes.get(&leader);
                    let at = entry.map_or("", |entry| entry.client_address.as_str());
                    let leader = called(map, leader);
                    format!("{leader} leads {partition}: send this to it, at {at}")
                }
                None => format!("{partition} has no leader at present: try again"),
            });
        }
        let usual = self.node.preferred_leader(partition);
        let usual = usual.filter(|_| self.node.has_preferred_leaders());
        let event = ClusterEvent::TransferWanted { partition, to };
        self.node.handle(event, now_ms, &mut self.effects);
        Ok(transfer_begun(map, partition, to, usual))
    }

    /// Refuses a change that nobody could order now.
    fn has_leader(&self) -> Result<(), String> {
        match self.node.leader(CHANGES_IN) {
            Some(_) => Ok(()),
            None => Err(format!(
                "{CHANGES_IN}, which orders changes, has no leader at present, so nothing was changed: it \
                 gets one once a majority of its replicas can talk to each other. 'ordo admin status' \
                 shows who is there; try again"
            )),
        }
    }
}

/// The partition whose group orders changes of the map.
const CHANGES_IN: PartitionId = PartitionId(0);
/// Whoever waits for a change longer than this learns that nobody knows. In a cluster that is well, it takes
/// milliseconds.
const CHANGE_MS_MAX: u64 = 5_000;

/// What is answered when a transfer has begun: where it can be seen, and how long it holds if another node
/// usually leads.
fn transfer_begun(map: &PartitionMap, partition: PartitionId, to: NodeId, usual: Option<NodeId>) -> String {
    let mut text = format!(
        "OK: {} is asked to lead {partition}; 'ordo admin status' tells when it does",
        called(map, to)
    );
    if let Some(usual) = usual.filter(|&usual| usual != to) {
        text += &format!(
            ". After {} minutes {} leads it again, where the description of the cluster wants its leader",
            TRANSFER_KEPT_MS / 60_000,
            called(map, usual)
        );
    }
    text
}

fn engines_status(node: &ClusterNode) -> Vec<execute::Status> {
    node.engines().map(|(_, engine)| engine.status()).collect()
}

/// What to expect of a checkpoint that somebody asked for.
#[derive(Debug)]
pub(super) enum Awaited {
    /// It is being written.
    Writing,
    /// The order has not come to it yet.
    Ordered,
    /// Another was written, of an epoch before the wish: ask again.
    Early,
    /// It is on the disk, and a start finds it.
    Written(Epoch),
    /// There is none.
    Failed(String),
}

/// A wish for a checkpoint: what there was when it was made.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// The least epoch that is wanted.
    epoch: Epoch,
    checkpoints: u64,
    failed: u64,
}

impl Member {
    /// Notes what there is now.
    pub fn wish(&self) -> Wish {
        Wish {
            epoch: self.node.status().confirmed,
            checkpoints: self.checkpoints,
            failed: self.checkpoints_failed,
        }
    }

    /// What has become of a wish.
    pub fn awaited(&self, wish: &mut Wish) -> Awaited {
        let status = self.node.status();
        // Where files of the log were removed, it counts once the log begins behind it.
        let counts = status.newest_checkpoint >= self.last_checkpoint && !status.has_lost_log;
        if self.checkpoints > wish.checkpoints && counts {
            wish.checkpoints = self.checkpoints;
            return if self.last_checkpoint >= wish.epoch {
                Awaited::Written(self.last_checkpoint)
            } else {
                Awaited::Early
            };
        }
        match (&self.checkpoint_error, status.stopped) {
            (Some(error), _) if self.checkpoints_failed > wish.failed => Awaited::Failed(error.clone()),
            (_, Some(stopped)) => Awaited::Failed(stopped),
            _ if self.checkpoint_in_progress || self.checkpoints > wish.checkpoints => Awaited::Writing,
            _ => Awaited::Ordered,
        }
    }
}

/// What the transport tells.
pub(super) struct FromPeers(pub Arc<Inner>);

impl FromPeers {
    fn pass(&self, events: impl Iterator<Item = HostEvent>) {
        let inner = &*self.0;
        if inner.halted.get().is_some() {
            return;
        }
        let passed = catch_unwind(AssertUnwindSafe(|| {
            let now_ms = inner.now_ms();
            let outcome = inner.core.lock().turn(|member, hands| {
                let mut outcome = Outcome::default();
                for event in events {
                    outcome.add(member.handle(event, hands, now_ms));
                }
                outcome
            });
            if let Some(outcome) = outcome {
                inner.follow_peer(outcome);
            }
        }));
        if let Err(panic) = passed {
            inner.halt(&format!("what a peer sent made its thread panic: {}", panic_text(&*panic)));
        }
    }
}

impl PeerEvents for FromPeers {
    fn frames(&self, from: NodeId, _: u16, frames: &mut Vec<Bytes>) {
        self.pass(frames.drain(..).map(|bytes| HostEvent::Frame { from, bytes }));
    }
    fn connected(&self, peer: NodeId, _: u16) {
        self.pass([HostEvent::Connected(peer)].into_iter());
    }
    fn disconnected(&self, peer: NodeId) {
        self.pass([HostEvent::Disconnected(peer)].into_iter());
    }
}

impl Inner {
    /// Sees to what peers made possible. Their thread steps the engines itself if nobody else waits to.
    fn follow_peer(&self, mut outcome: Outcome) {
        let step = std::mem::take(&mut outcome.step);
        self.follow(outcome, None);
        if !step || self.ports.notify_waiting() {
            return;
        }
        let Some(mut replies) = self.peer_worker.try_lock() else {
            // Another peer's thread is at it, and looks again before it ends; an executor makes sure.
            self.parking.wake(1);
            return;
        };
        self.step_as_peer(&mut replies);
    }

    pub(super) fn step_as_peer(&self, replies: &mut Replies) {
        let worker = execute::WorkerId(self.workers + self.ports.count() + 1);
        for _ in 0..super::HELP_STEPS_MAX {
            let progress = self.engines.step(worker, super::HELP, replies);
            self.after_step(replies, None);
            if progress == Progress::Idle {
                self.wake_executors();
                return;
            }
            self.wake_for_heavy();
        }
        // Its next step may be long in coming, and others can go on with what it has at hand only now.
        self.engines.finish(worker, replies);
        self.after_step(replies, None);
        self.parking.wake(1);
    }
}

/// Counts the keys of each slot at the newest final snapshots, page by page.
fn count_slot_keys(engines: &[(PartitionId, Arc<dyn Engine>)]) -> Result<String, String> {
    const PAGE_KEYS: usize = 4_096;
    let mut all = SlotKeys::default();
    for (partition, engine) in engines {
        let view = engine.view();
        let snapshot = view.open();
        let counts = all.partitions.entry(partition.0).or_default();
        let mut from = Some(0);
        while let Some(from_hash) = from {
            let range = ScanRange::of(Space::User, from_hash, PAGE_KEYS);
            let page = view.scan_at(&snapshot, range);
            for (key, _) in &page.entries {
                *counts.entry(key.slot()).or_default() += 1;
            }
            from = page.next_hash;
        }
        view.close(snapshot);
    }
    serde_json::to_string(&all).map_err(|error| error.to_string())
}

impl Membership for Inner {
    fn view(&self) -> Arc<ClusterView> {
        Arc::new(self.core.lock().member.view(self.now_ms()))
    }

    fn change(&self, change: ClusterChange) -> Result<ChangeTicket, String> {
        let (ticket, outcome) = {
            let mut core = self.core.lock();
            core.turn(|member, hands| member.change(change, hands, self.now_ms()))
                .unwrap_or_else(|| Err("this node takes no part in a cluster".to_owned()))?
        };
        self.follow(outcome, None);
        Ok(ticket)
    }

    fn slot_keys(&self) -> ChangeTicket {
        let (ticket, answer) = ChangeTicket::open();
        let engines: Vec<_> =
            self.engines.with_partitions().map(|(partition, engine)| (partition, engine.clone())).collect();
        // It walks through all that the node has. A thread that cannot be had drops the answer, which then
        // says so.
        let counted = std::thread::Builder::new()
            .name("count".to_owned())
            .spawn(move || answer.answer(count_slot_keys(&engines)));
        if let Err(error) = counted {
            tracing::warn!("the keys of slots cannot be counted: {error}");
        }
        ticket
    }

    fn store_of_slot(&self, slot: u16) -> Option<&dyn View> {
        let partition = self.core.lock().member.node.map().partition_of_slot(slot);
        self.engines.of(partition).map(|engine| engine.view())
    }
}
