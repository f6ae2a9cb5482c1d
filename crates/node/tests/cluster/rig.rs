//! Nodes of a cluster in memory: their frames, their journals, and their clocks, all in one thread.
//!
//! Everything that is sent within a round arrives in it, in the order sent, and every sync ends with it; then
//! all clocks tick. A crash takes what was not synced. A node of the map that is not running is started by
//! [`Rig::start`], with what `ordo serve` would know: its journal, or, the first time, the newest map of a
//! peer.

use bytes::Bytes;
use execute::sparkle::{Options, Sparkle};
use execute::{Assignment, Budget, Committed, Engine, Serial, WorkerId, siblings};
use log::{GroupImage, GroupImages, Kept};
use order::{Changed, Control, Described, PartitionMap};
use ordo_node::cluster::checkpoint::Needed;
use ordo_node::cluster::{
    Answered, ClusterCheckpoint, ClusterEffects, ClusterEvent, ClusterNode, ClusterOptions,
    ClusterRecoverError, ClusterStart, Frame, LEVEL, Piece, Whole, describe,
};
use ordo_node::host::{HostEvent, Recorded, drive};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use txn::{
    Args, Call, FnProcedure, Key, NodeId, Outcome, PartitionId, PartitionRoute, Procedure, Registry, Reply,
    Request, RequestId, SessionId, Tx, Value, ZoneId,
};

const TICK_MS: u64 = 50;

/// What a host's disk holds of its node's journal: records, and how many of them a crash leaves.
#[derive(Default)]
struct Journal {
    records: Vec<Vec<Kept>>,
    synced: usize,
}

impl Journal {
    fn images(&self) -> GroupImages {
        let mut images = GroupImages::new();
        for kept in self.records.iter().flatten() {
            let image: &mut GroupImage = images.entry(kept.partition).or_default();
            if let Some(base) = &kept.base {
                image.base = base.clone();
                let is_behind = |index| index > base.index && !kept.reset;
                image.entries.retain(|entry| is_behind(entry.index));
            }
            if let Some(first) = kept.entries.first() {
                image.entries.retain(|entry| entry.index < first.index);
                image.entries.extend(kept.entries.iter().cloned());
            }
            image.hard_state = kept.hard_state.unwrap_or(image.hard_state);
        }
        images
    }
}

/// Performs a node's effects.
struct RigHost<'a> {
    journal: &'a mut Journal,
    /// How many records the journal had at the process's start.
    before: u64,
    is_full: bool,
    syncing: &'a mut bool,
    frames: Vec<(NodeId, Vec<u8>)>,
    severed: Vec<(NodeId, String)>,
}

impl ordo_node::host::Host for RigHost<'_> {
    fn append(&mut self, kept: &[Kept]) -> Recorded {
        if self.is_full {
            return Recorded::Unwritten("no room".to_owned());
        }
        self.journal.records.push(kept.to_vec());
        Recorded::Written { record: self.journal.records.len() as u64 - self.before, rotated: false }
    }

    fn sync(&mut self) -> Option<HostEvent> {
        *self.syncing = true;
        None
    }

    fn send(&mut self, to: NodeId, frame: Vec<u8>) {
        self.frames.push((to, frame));
    }

    fn sever(&mut self, peer: NodeId, why: &str) {
        self.severed.push((peer, why.to_owned()));
    }

    fn make_room(&mut self) -> Option<HostEvent> {
        (!self.is_full).then_some(HostEvent::RoomMade)
    }

    // There are no files here, and no checkpoints.
    fn checkpoint(&mut self, _: ClusterCheckpoint) {}

    fn prune(&mut self, _: Needed) {}

    fn read_piece(&mut self, _: NodeId, _: Piece) -> Option<HostEvent> {
        None
    }

    fn write_piece(&mut self, _: Piece, _: Bytes, _: Option<Whole>) -> Option<HostEvent> {
        None
    }
}

/// A process.
struct Process {
    node: ClusterNode,
    effects: ClusterEffects,
    engines: BTreeMap<PartitionId, Arc<dyn Engine>>,
    /// What the node calls its records begins behind this one of the journal.
    records_before: u64,
    syncing: bool,
    /// What each partition's counter shows.
    sums: BTreeMap<PartitionId, i64>,
    sequence: u64,
    changed: Vec<(Control, Changed)>,
    /// What was refused after it had been taken.
    refused: Vec<(RequestId, Outcome)>,
    /// Reads that may run.
    readable: usize,
    warnings: Vec<String>,
}

/// A host: what outlives its processes.
#[derive(Default)]
struct Host {
    journal: Journal,
    /// What its processes keep.
    kept: Vec<PartitionId>,
    process: Option<Process>,
    ended: Option<String>,
    /// Its disk has no room.
    is_full: bool,
    /// Its next sync fails.
    fails: bool,
}

/// What is between the nodes. A link's frames arrive in the order sent, but feeds may be slow.
#[derive(Default)]
pub struct Wire {
    /// How many bytes of feeds a link takes in a tick; 0 if any.
    pub feed_bytes_per_tick: u64,
    /// How many ticks it takes a node's wish to follow a group to arrive.
    pub follow_ticks: u64,
    /// From whom to whom no feeds arrive.
    pub feeds_lost: Vec<(NodeId, NodeId)>,
    /// So many of the next feeds that tell outcomes do not arrive.
    pub answers_lost: usize,
    /// How often a node was told that it is not followed any more.
    pub unfollows: usize,
    /// How many outcomes feeds have told.
    pub answers: usize,
    /// How many feeds were sent, from whom to whom.
    pub feeds: BTreeMap<(NodeId, NodeId), u64>,
    /// The longest feed, in bytes.
    pub feed_bytes: usize,
    tick: u64,
    frames: VecDeque<(NodeId, NodeId, Vec<u8>)>,
    /// What arrives at a later tick.
    late: Vec<(u64, NodeId, NodeId, Vec<u8>)>,
    /// Until when links are busy with feeds, in bytes since the start.
    busy: BTreeMap<(NodeId, NodeId), u64>,
}

impl Wire {
    fn send(&mut self, from: NodeId, to: NodeId, bytes: Vec<u8>, registry: &Registry) {
        let frame = Frame::decode(&bytes.clone().into(), registry);
        let (_, frame) = frame.expect("what a node sends can be read");
        let arrives = match frame {
            Frame::Feed { answers, .. } => {
                self.answers += answers.len();
                *self.feeds.entry((from, to)).or_default() += 1;
                self.feed_bytes = self.feed_bytes.max(bytes.len());
                if self.feeds_lost.contains(&(from, to)) {
                    return;
                }
                if !answers.is_empty() && self.answers_lost > 0 {
                    self.answers_lost -= 1;
                    return;
                }
                self.feed_arrives((from, to), bytes.len() as u64)
            }
            Frame::Follow { .. } => self.tick + self.follow_ticks,
            Frame::Unfollow { .. } => {
                self.unfollows += 1;
                self.tick
            }
            _ => self.tick,
        };
        if arrives <= self.tick {
            self.frames.push_back((from, to, bytes));
        } else {
            self.late.push((arrives, from, to, bytes));
        }
    }

    /// At which tick a feed arrives that is sent now.
    fn feed_arrives(&mut self, link: (NodeId, NodeId), bytes: u64) -> u64 {
        if self.feed_bytes_per_tick == 0 {
            return self.tick;
        }
        let busy = self.busy.entry(link).or_default();
        *busy = (*busy).max(self.tick * self.feed_bytes_per_tick) + bytes;
        *busy / self.feed_bytes_per_tick
    }

    fn tick(&mut self) {
        self.tick += 1;
        let due = self.late.extract_if(.., |late| late.0 <= self.tick);
        self.frames.extend(due.map(|(_, from, to, bytes)| (from, to, bytes)));
    }
}

/// Sees a frame before it arrives: from whom, to whom, and what the receiver is. Gives what arrives before it
/// at the same node, and from whom.
pub type Tap = Box<dyn FnMut((NodeId, NodeId), &[u8], &ClusterNode) -> Vec<(NodeId, Vec<u8>)>>;

/// A cluster.
pub struct Rig {
    first: PartitionMap,
    pub registry: Registry,
    add: Arc<dyn Procedure>,
    pair: Arc<dyn Procedure>,
    hosts: BTreeMap<NodeId, Host>,
    pub wire: Wire,
    now_ms: u64,
    /// How far machines' clocks were set.
    pub set_ms: BTreeMap<NodeId, i64>,
    nonces: u64,
    /// Additions that were answered, by partition.
    pub answered: BTreeMap<PartitionId, i64>,
    /// Additions that were sent.
    pub sent: BTreeMap<PartitionId, i64>,
    /// What the builds know that nodes are started with, where it is not what this one knows.
    pub levels: BTreeMap<NodeId, u32>,
    /// The zone in which leaders should be.
    pub leaders_in: Option<String>,
    /// Between which nodes nothing arrives.
    pub cut: Vec<(NodeId, NodeId)>,
    /// What every outcome weighs that a node tells another, if not what it is.
    pub outcome_bytes: usize,
    /// Who knows no outcome of what other nodes' clients wanted, as if it had begun behind a checkpoint that
    /// has them.
    pub forgetful: Option<NodeId>,
    /// Whether transactions over several partitions are executed, and so partitions talk to each other.
    pub is_parallel: bool,
    /// What peers say that they should not.
    pub tap: Option<Tap>,
    /// Whose links were dropped by whom, and why.
    pub severed: Vec<(NodeId, NodeId, String)>,
    /// Processes whose node has ended stay, for a look at it.
    pub keeps_ended: bool,
    /// Nodes that wanted to start again.
    pub restarted: Vec<NodeId>,
    /// The engines of this node execute nothing.
    pub frozen: Option<NodeId>,
    /// But for so many steps of its engines.
    pub frozen_steps: u64,
    /// For nodes that start.
    pub backlog_bytes_max: u64,
    pub feed_window_bytes: u64,
}

async fn pair(mut tx: Tx, call: Call) -> Outcome {
    for argument in call.iter() {
        let key = Key::from(argument);
        let count = tx.get_for_update(&key).await?;
        let count = count.and_then(|value| value.as_string().map(|text| text.len()));
        tx.put(&key, Value::from(&vec![b'x'; count.unwrap_or(0) + 1][..])).await?;
    }
    Ok(Reply::Integer(0))
}

async fn add(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::from(&call[0]);
    let before = tx.get_for_update(&key).await?;
    let before = before.map_or(0, |value| {
        let text = String::from_utf8(value.as_string().expect("a number").to_vec());
        text.expect("digits").parse::<i64>().expect("digits")
    });
    let text = (before + 1).to_string();
    tx.put(&key, Value::from(text.as_str())).await?;
    Ok(Reply::Integer(before + 1))
}

impl Rig {
    /// A cluster with a node in each of these zones, none of which has started.
    pub fn new(zones: &[&str], partitions: u16) -> Rig {
        let described: Vec<Described> = zones
            .iter()
            .enumerate()
            .map(|(number, zone)| Described {
                name: format!("n{}", number + 1),
                zone: zone.to_string(),
                peer_address: format!("n{}:7001", number + 1),
                client_address: format!("n{}:6379", number + 1),
            })
            .collect();
        let first = PartitionMap::new("rig", &described, partitions).expect("a map");
        let add: Arc<dyn Procedure> = Arc::new(FnProcedure::new("add", add));
        let mut registry = Registry::new();
        registry.register(add.clone()).expect("one of this name");
        let pair: Arc<dyn Procedure> = Arc::new(FnProcedure::new("pair", pair));
        registry.register(pair.clone()).expect("one of this name");
        Rig {
            first,
            registry,
            add,
            pair,
            hosts: BTreeMap::new(),
            wire: Wire::default(),
            now_ms: 1_700_000_000_000,
            set_ms: BTreeMap::new(),
            nonces: 0,
            answered: BTreeMap::new(),
            sent: BTreeMap::new(),
            levels: BTreeMap::new(),
            leaders_in: None,
            cut: Vec::new(),
            outcome_bytes: 0,
            forgetful: None,
            is_parallel: false,
            tap: None,
            severed: Vec::new(),
            keeps_ended: false,
            restarted: Vec::new(),
            frozen: None,
            frozen_steps: 0,
            backlog_bytes_max: 64 << 20,
            feed_window_bytes: 16 << 20,
        }
    }

    /// A cluster whose nodes run and whose groups have leaders.
    pub fn running(zones: &[&str], partitions: u16) -> Rig {
        let mut rig = Rig::new(zones, partitions);
        rig.start_all();
        rig
    }

    /// Starts all founders, and waits for them.
    pub fn start_all(&mut self) {
        let rig = self;
        for node in rig.first.nodes.clone().into_keys() {
            rig.start(node);
        }
        rig.until("all have started", |rig| rig.first.nodes.keys().all(|&node| rig.has_booted(node)));
    }

    /// Starts a process.
    pub fn start(&mut self, node: NodeId) {
        let newest = self.map();
        let host = self.hosts.entry(node).or_default();
        assert!(host.process.is_none(), "{node} runs");
        host.ended = None;
        if host.kept.is_empty() {
            let map = newest.as_ref().filter(|map| map.nodes.contains_key(&node));
            host.kept = map.unwrap_or(&self.first).kept_by(node).collect();
        }
        assert!(!host.kept.is_empty(), "{node} has nothing to keep yet");
        self.nonces += 1;
        let (of, era) = (self.first.partitions.len() as u16, self.nonces << 16);
        let engine = |&partition: &PartitionId| -> (PartitionId, Arc<dyn Engine>) {
            let engine: Arc<dyn Engine> = match self.is_parallel {
                false => Arc::new(Serial::new()),
                true => Arc::new(Sparkle::new(Options::of(Assignment {
                    partition,
                    of,
                    era,
                    ..Assignment::alone(1)
                }))),
            };
            (partition, engine)
        };
        let engines: BTreeMap<_, _> = host.kept.iter().map(engine).collect();
        let start = ClusterStart {
            map: self.first.clone(),
            known: Arc::new(self.first.clone()),
            images: host.journal.images(),
            engines: engines.clone(),
            checkpoint_bytes: 0,
            unusable: false,
            nonce: self.nonces,
        };
        let options = ClusterOptions {
            seed: 1,
            tick_ms: TICK_MS,
            leaders_in: self.leaders_in.clone(),
            backlog_bytes_max: self.backlog_bytes_max,
            feed_window_bytes: self.feed_window_bytes,
            level: self.levels.get(&node).copied().unwrap_or(LEVEL),
            ..ClusterOptions::new(node)
        };
        let recovered = ClusterNode::recover(options, self.registry.clone(), start);
        let recovered = match recovered {
            Ok(node) => node,
            Err(error @ ClusterRecoverError::Level { .. }) => {
                host.ended = Some(error.to_string());
                return;
            }
            Err(error) => panic!("its journal can be used: {error}"),
        };
        host.process = Some(Process {
            node: recovered,
            effects: ClusterEffects::default(),
            engines,
            records_before: host.journal.records.len() as u64,
            syncing: false,
            sums: BTreeMap::new(),
            sequence: 0,
            changed: Vec::new(),
            refused: Vec::new(),
            readable: 0,
            warnings: Vec::new(),
        });
    }

    /// Fills a host's disk, or makes room.
    pub fn fill(&mut self, node: NodeId, is_full: bool) {
        self.hosts.get_mut(&node).expect("a host").is_full = is_full;
    }

    /// Has a host's next sync fail.
    pub fn break_sync(&mut self, node: NodeId) {
        self.hosts.get_mut(&node).expect("a host").fails = true;
    }

    /// What a node's clients were told instead of an outcome.
    pub fn refused(&self, node: NodeId) -> Vec<String> {
        let text = |(_, outcome): &(RequestId, Outcome)| match outcome {
            Err(txn::Stop::Abort(text)) => text.to_string(),
            other => panic!("refused with {other:?}"),
        };
        let process = self.process(node).expect("it runs");
        process.refused.iter().map(text).collect()
    }

    /// How many strict reads of a node may run.
    pub fn readable(&self, node: NodeId) -> usize {
        self.process(node).expect("it runs").readable
    }

    /// A strict read through a node.
    pub fn read(&mut self, at: NodeId, partition: PartitionId) {
        let now_ms = self.now_ms;
        let host = self.hosts.get_mut(&at).expect("a host");
        let process = host.process.as_mut().expect("it runs");
        process.sequence += 1;
        let id = RequestId {
            session: ordo_node::session::compose(process.node.boot().0, 0, 0),
            sequence: process.sequence,
            attempt: 0,
        };
        let reads = [(id, partition)];
        process.node.read(reads, now_ms, &mut process.effects);
        self.drive(at);
    }

    /// Ends a process. What was not synced is lost, and what is on its way from it stays so.
    pub fn crash(&mut self, node: NodeId) {
        let host = self.hosts.get_mut(&node).expect("a host");
        host.process = None;
        host.journal.records.truncate(host.journal.synced);
    }

    /// Puts an empty disk into a host that does not run.
    pub fn wipe(&mut self, node: NodeId) {
        let host = self.hosts.get_mut(&node).expect("a host");
        assert!(host.process.is_none());
        host.journal = Journal::default();
    }

    fn process(&self, node: NodeId) -> Option<&Process> {
        self.hosts.get(&node)?.process.as_ref()
    }

    pub fn node(&self, node: NodeId) -> &ClusterNode {
        &self.process(node).expect("it runs").node
    }

    /// What a node's operator was told.
    pub fn warnings(&self, node: NodeId) -> &[String] {
        &self.process(node).expect("it runs").warnings
    }

    /// True time, which everybody's steady clock shows.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Time passes without ticks.
    pub fn wait_ms(&mut self, ms: u64) {
        self.now_ms += ms;
    }

    pub fn is_running(&self, node: NodeId) -> bool {
        self.process(node).is_some()
    }

    /// What a process that ended by itself said.
    pub fn ended(&self, node: NodeId) -> Option<&str> {
        self.hosts.get(&node)?.ended.as_deref()
    }

    pub fn has_booted(&self, node: NodeId) -> bool {
        self.process(node).is_some_and(|process| process.node.boot().0 != 0)
    }

    fn processes(&self) -> impl Iterator<Item = (NodeId, &Process)> {
        let hosts = self.hosts.iter();
        hosts.filter_map(|(&node, host)| Some((node, host.process.as_ref()?)))
    }

    /// The newest map that a running node has.
    pub fn map(&self) -> Option<PartitionMap> {
        let maps = self.processes().map(|(_, process)| process.node.map());
        maps.max_by_key(|map| map.version).map(|map| PartitionMap::clone(map))
    }

    /// Who leads a group, and knows it.
    pub fn leader(&self, partition: PartitionId) -> Option<NodeId> {
        let mut leaders = self
            .processes()
            .filter_map(|(node, process)| {
                let status = process.node.group_status(partition)?;
                (status.role == agree::Role::Leader).then_some((status.term, node))
            })
            .collect::<Vec<_>>();
        leaders.sort();
        leaders.pop().map(|(_, node)| node)
    }

    /// The voters of a group as its leader knows them, and whether nothing is under way.
    pub fn voters(&self, partition: PartitionId) -> Option<Vec<u16>> {
        let members = self.node(self.leader(partition)?).group_status(partition)?.members;
        let is_still = members.voters_outgoing.is_empty() && members.learners.is_empty();
        is_still.then(|| members.voters.iter().map(|node| node.0).collect())
    }

    /// Asks a node for a change of the map.
    pub fn change(&mut self, at: NodeId, control: Control) {
        self.handle(at, ClusterEvent::ChangeWanted(control));
    }

    /// What became of a change that was asked for at a node.
    pub fn changed(&self, at: NodeId, control: &Control) -> Option<Changed> {
        let changed = &self.process(at)?.changed;
        let found = changed.iter().find(|(found, _)| found == control);
        found.map(|&(_, changed)| changed)
    }

    /// Has a node added to a zone, and waits for it.
    pub fn add_node(&mut self, at: NodeId, name: &str, zone: u16) -> NodeId {
        let control = Control::AddNode {
            version: self.map().expect("a map").version,
            name: name.to_owned(),
            zone: ZoneId(zone),
            peer_address: format!("{name}:7001"),
            client_address: format!("{name}:6379"),
        };
        self.change(at, control.clone());
        self.until("the node is added", |rig| rig.changed(at, &control) == Some(Changed::Map));
        self.map().expect("a map").last_node
    }

    /// Has a node handed over what it keeps, and waits until that is ordered.
    pub fn drain(&mut self, at: NodeId, node: NodeId) {
        let control = Control::Drain { version: self.map().expect("a map").version, node };
        self.change(at, control.clone());
        self.until("the node leaves", |rig| rig.changed(at, &control) == Some(Changed::Map));
    }

    /// Adds 1 to the counter of a partition, through a node. False if it takes nothing now.
    pub fn add(&mut self, at: NodeId, partition: PartitionId) -> bool {
        self.add_by(at, partition, partition)
    }

    /// The same, ordered in the log of another group, as a pipeline over several partitions is.
    pub fn add_by(&mut self, at: NodeId, partition: PartitionId, home: PartitionId) -> bool {
        let now_ms = self.now_ms;
        let add = self.add.clone();
        let Some(process) = self.hosts.get_mut(&at).and_then(|host| host.process.as_mut()) else {
            return false;
        };
        process.sequence += 1;
        let id = RequestId {
            session: ordo_node::session::compose(process.node.boot().0, 0, 0),
            sequence: process.sequence,
            attempt: 0,
        };
        let mut request = Request::new(id, add, Args::from_iter(["counter"]));
        request.route = PartitionRoute::single(partition);
        request.route.home = home;
        let mut requests = vec![Arc::new(request)];
        let taken = process.node.submit(&mut requests, now_ms, &mut process.effects);
        if taken.is_ok() {
            *self.sent.entry(partition).or_default() += 1;
        }
        self.drive(at);
        taken.is_ok()
    }

    /// Writes a key of each of these partitions in one transaction.
    pub fn add_pair(&mut self, at: NodeId, partitions: &[PartitionId]) -> bool {
        let (now_ms, pair) = (self.now_ms, self.pair.clone());
        let Some(process) = self.hosts.get_mut(&at).and_then(|host| host.process.as_mut()) else {
            return false;
        };
        process.sequence += 1;
        let id = RequestId {
            session: ordo_node::session::compose(process.node.boot().0, 0, 0),
            sequence: process.sequence,
            attempt: 0,
        };
        let map = process.node.map().clone();
        let key = |partition: &PartitionId| {
            let mut names = (0..).map(|number| format!("key{number}"));
            names.find(|name| map.partition_of_key(&Key::from(name.as_str())) == *partition)
        };
        let keys: Vec<String> = partitions.iter().filter_map(key).collect();
        let mut request = Request::new(id, pair, keys.iter().map(String::as_str).collect());
        request.route = PartitionRoute::over(partitions.iter().copied(), map.slots());
        request.slots_version = map.slots_version;
        let mut requests = vec![Arc::new(request)];
        let taken = process.node.submit(&mut requests, now_ms, &mut process.effects);
        self.drive(at);
        taken.is_ok()
    }

    pub fn handle(&mut self, node: NodeId, event: impl Into<ClusterEvent>) {
        let now_ms = self.now_ms;
        if let Some(process) = self.hosts.get_mut(&node).and_then(|host| host.process.as_mut()) {
            process.node.handle(event, now_ms, &mut process.effects);
            self.drive(node);
        }
    }

    /// Does what a node wants.
    fn drive(&mut self, node: NodeId) {
        let now_ms = self.now_ms;
        let Some(host) = self.hosts.get_mut(&node) else {
            return;
        };
        let Some(process) = &mut host.process else {
            return;
        };
        let mut hands = RigHost {
            journal: &mut host.journal,
            before: process.records_before,
            is_full: host.is_full,
            syncing: &mut process.syncing,
            frames: Vec::new(),
            severed: Vec::new(),
        };
        drive(&mut process.node, &mut process.effects, now_ms, &mut hands);
        process.refused.append(&mut process.effects.refused);
        process.readable += process.effects.readable.drain(..).count();
        process.changed.append(&mut process.effects.changed);
        for answered in process.effects.answered.drain(..) {
            if let Err(txn::Stop::Undeclared(Some(missing))) = answered.outcome {
                assert!(
                    usize::from(missing.0) < self.first.partitions.len(),
                    "a session would go to {missing}"
                );
            }
            *self.answered.entry(answered.partition).or_default() += 1;
        }
        let mut foreign = Vec::new();
        let mut committed: Vec<Committed> = Vec::new();
        let mut engines: Vec<_> = process.engines.clone().into_iter().collect();
        let mut steps_left = u64::MAX;
        if self.frozen == Some(node) {
            steps_left = std::mem::take(&mut self.frozen_steps);
        }
        if steps_left == 0 {
            engines.clear();
        }
        let mut sent = Vec::new();
        loop {
            for &(partition, ref engine) in &engines {
                while steps_left > 0
                    && engine.step(WorkerId(0), Budget::ONE, &mut committed) == execute::Progress::Worked
                {
                    steps_left -= 1;
                }
                for committed in committed.drain(..) {
                    if committed.request.id.session == SessionId::INTERNAL {
                        continue;
                    }
                    let Ok(Reply::Integer(sum)) = committed.outcome else {
                        assert!(self.tap.is_some(), "no sum");
                        continue;
                    };
                    if committed.request.procedure.name() == "pair" {
                        continue;
                    }
                    process.sums.insert(partition, sum);
                    let (boot, _) = ordo_node::session::boot_and_port(committed.request.id.session);
                    if boot == process.node.boot().0 {
                        *self.answered.entry(partition).or_default() += 1;
                    } else if process.node.is_spread() && self.forgetful != Some(node) {
                        foreign.push(Answered {
                            id: committed.request.id,
                            partition,
                            position: committed.position,
                            outcome: match self.outcome_bytes {
                                0 => committed.outcome,
                                bytes => Ok(Reply::Bulk(vec![0; bytes].into())),
                            },
                        });
                    }
                }
            }
            if !siblings::exchange(&engines, process.node.twins(), &mut sent) {
                break;
            }
        }
        process.node.say(sent, now_ms, &mut process.effects);
        process.node.executed(foreign, now_ms, &mut process.effects);
        drive(&mut process.node, &mut process.effects, now_ms, &mut hands);
        for (to, bytes) in hands.frames {
            self.wire.send(node, to, bytes, &self.registry);
        }
        self.severed.extend(hands.severed.into_iter().map(|(peer, why)| (node, peer, why)));
        process.warnings.append(&mut process.effects.warnings);
        let restarts = std::mem::take(&mut process.effects.restart);
        assert!(!restarts || self.tap.is_some(), "{node} is to start again");
        if restarts {
            self.restarted.push(node);
            host.process = None;
            return;
        }
        if let Some(text) = process.effects.ended.take() {
            host.ended = Some(text);
            host.process.take_if(|_| !self.keeps_ended);
        }
    }

    /// Has arrive what comes before a frame.
    fn lie(&mut self, link: (NodeId, NodeId), bytes: &[u8]) {
        let Some(mut tap) = self.tap.take() else {
            return;
        };
        let lies = match self.process(link.1) {
            Some(process) => tap(link, bytes, &process.node),
            None => Vec::new(),
        };
        self.tap = Some(tap);
        for (from, bytes) in lies {
            let bytes = bytes.into();
            self.handle(link.1, HostEvent::Frame { from, bytes });
        }
    }

    /// A tick of all clocks, and what follows from it.
    pub fn round(&mut self) {
        self.now_ms += TICK_MS;
        self.wire.tick();
        let nodes: Vec<NodeId> = self.hosts.keys().copied().collect();
        for &node in &nodes {
            let set_ms = self.set_ms.get(&node).copied().unwrap_or(0);
            let wall_ms = self.now_ms.saturating_add_signed(set_ms);
            self.handle(node, HostEvent::Tick { wall_ms });
        }
        let mut left = 20_000;
        loop {
            while let Some((from, to, bytes)) = self.wire.frames.pop_front() {
                left -= 1;
                let said = || describe(&bytes.clone().into());
                assert!(left > 0, "nodes talk without end: {from} to {to}: {}", said());
                let is_cut = self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
                if !is_cut {
                    self.lie((from, to), &bytes);
                    let bytes = bytes.into();
                    self.handle(to, HostEvent::Frame { from, bytes });
                }
            }
            let mut any = false;
            for &node in &nodes {
                let host = self.hosts.get_mut(&node).expect("a host");
                let Some(process) = &mut host.process else {
                    continue;
                };
                if std::mem::take(&mut process.syncing) {
                    any = true;
                    if std::mem::take(&mut host.fails) {
                        let text = "no sync".to_owned();
                        self.handle(node, HostEvent::JournalFailed(text));
                        continue;
                    }
                    host.journal.synced = host.journal.records.len();
                    let record = host.journal.synced as u64 - process.records_before;
                    self.handle(node, HostEvent::Synced(record));
                }
            }
            if !any && self.wire.frames.is_empty() {
                break;
            }
        }
    }

    /// Rounds until something is so.
    #[track_caller]
    pub fn until(&mut self, what: &str, is_so: impl Fn(&Rig) -> bool) {
        for _ in 0..600 {
            if is_so(self) {
                return;
            }
            self.round();
        }
        panic!("not so: {what}\n{}", self.describe());
    }

    /// What everybody thinks.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (node, process) in self.processes() {
            let status = process.node.status();
            text.push_str(&format!("{node}: map {}, {status:?}\n", process.node.map().version));
            for partition in process.engines.keys() {
                let group = process.node.group_status(*partition);
                text.push_str(&format!("    {partition}: {group:?}\n"));
            }
        }
        text
    }

    /// Waits until all who run have executed everything, and compares them with each other and with what was
    /// answered.
    pub fn check(&mut self) {
        self.until("everything is executed", |rig| {
            rig.processes().all(|(_, process)| process.node.is_idle() && process.node.is_current())
        });
        for (&partition, &answered) in &self.answered {
            let sent = self.sent.get(&partition).copied().unwrap_or(0);
            let sums: BTreeMap<NodeId, i64> = self
                .processes()
                .filter(|(_, process)| process.engines.contains_key(&partition))
                .map(|(node, process)| (node, process.sums.get(&partition).copied().unwrap_or(0)))
                .collect();
            let first = sums.values().next().copied().expect("somebody keeps it");
            assert!(sums.values().all(|&sum| sum == first), "{partition}: {sums:?}");
            assert!(
                (answered..=sent).contains(&first),
                "{partition}: {first} is in the order, {answered} were answered, {sent} sent"
            );
        }
    }
}
