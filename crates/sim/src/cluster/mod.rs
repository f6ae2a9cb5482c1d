//! A cluster in the world: real replicas that agree with each other, and clients that go from node to node.
//! Or a node that stands alone, the smallest of them ([`alone`]).
//!
//! A host runs one node of the cluster: the real state machine ([`node::cluster::ClusterNode`]), the real
//! consensus groups, a journal on the host's disk, and for every partition a real engine with virtual
//! workers. A client is connected to one node at a time. Either every command goes to a partition of its
//! choice, which executes it on records of its own; or the partitions share a key space, and a command goes
//! to those of its keys: to all, once it turns out to touch others.
//!
//! Frames between nodes travel as datagrams: they may be lost, come twice, or overtake each other. The map
//! says at which host a node is; a host can come back as another node ([`site`]). Where a fault takes a disk
//! for good or wants a node replaced, an [`operator`] sees to it.
//!
//! The oracles ([`watch`], [`epochs`]): all replicas of a partition confirm the same transactions at the same
//! positions and times; all nodes confirm the same epochs; the order has no request twice; every replica
//! final-commits what the serial specification says; nothing that was answered is missing, overtaken, or read
//! late; no replica's state digest differs from another's; once nothing is wrong any more, everything is
//! answered and all replicas end alike.

mod alone;
mod client;
mod epochs;
mod host;
mod operator;
mod process;
mod site;
mod watch;
mod work;

use crate::cost::CostTable;
use crate::draw::Draw;
use crate::history::Operation;
use crate::options::{Options, SystemKind};
use crate::run::{Outcome, Report, population, setting};
use crate::tally::Tally;
use crate::trace::Trace;
use crate::traffic::{Draft, Population};
use crate::watch::real_time::Place;
use crate::world::{
    Address, Core, End, Input, Limits as WorldLimits, Setting, Start, System, Traffic, Violation, World,
};
use agree::Delivery;
use alone::Alone;
use client::Client;
use epochs::Epochs;
use execute::EngineKind;
use execute::sparkle::{Mutant, WINDOW_MIN_ACROSS};
use node::cluster::ClusterOptions;
use node::{FsyncPolicy, Limits};
use operator::Operator;
use order::{Changed, Control, Described, PartitionMap};
use process::Process;
use site::{Post, Site};
use std::fmt;
use std::sync::Arc;
use txn::hash::mix;
use txn::{Entry, Epoch, Key, NodeId, PartitionId, Position, Registry, RequestId, Space};
use watch::PartitionWatch;
use work::Work;

/// What the nodes and clients of a run are like.
struct Plan {
    seed: u64,
    /// There is one node, which stands alone.
    alone: bool,
    engine: EngineKind,
    delivery: Delivery,
    /// A deliberate defect of Sparkle, to test the oracles. The other crates' are chosen for a thread
    /// ([`txn::mutant`]).
    mutant: Option<Mutant>,
    workers: u16,
    capacity: usize,
    /// The least speculation window of an engine (Sparkle).
    window_min: usize,
    fsync: FsyncPolicy,
    limits: Limits,
    hosts: u16,
    partitions: u16,
    /// They share one key space.
    across: bool,
    /// How often slots move.
    moves: u16,
    clients: u16,
    operations: u64,
    pipeline: u64,
    think_us: u64,
    timeout_ms: u64,
    /// A node's unit of time.
    tick_ns: u64,
    /// The longest way of a frame that is not late.
    flight_ns: u64,
    epochs_in_flight_max: usize,
    request_timeout_ms: u64,
    checkpoint_bytes: u64,
    trail_bytes_max: u64,
    feed_part_bytes: usize,
    feed_window_bytes: u64,
    backlog_bytes_max: u64,
    segment_bytes: u64,
    speculate: bool,
    costs: CostTable,
    jitter: bool,
    judged: bool,
}

/// Where a cluster has [`Mutant::LoseWrite`]: at this host only, whose state the others must notice.
const DIVERGING_HOST: u16 = 1;

impl Plan {
    /// The defect of a host's engines.
    fn mutant_at(&self, host: u16) -> Option<Mutant> {
        let is_elsewhere = !self.alone && host != DIVERGING_HOST;
        self.mutant.filter(|&mutant| mutant != Mutant::LoseWrite || !is_elsewhere)
    }

    /// Whether the oracles look at what a host executes. Where one is to diverge, the other nodes are to find
    /// that, not the oracles.
    fn is_judged_at(&self, host: u16) -> bool {
        let diverges = self.mutant == Some(Mutant::LoseWrite) && !self.alone && host == DIVERGING_HOST;
        self.judged && !diverges
    }

    fn draw(options: &Options, fsync: FsyncPolicy, judged: bool, draw: &mut Draw) -> Plan {
        let flight_us = options.latency.flight_us();
        let mut plan = Plan {
            seed: options.seed,
            alone: options.system == SystemKind::Ordo,
            mutant: None,
            engine: options.engine,
            delivery: options.delivery,
            workers: options.workers,
            capacity: options.capacity,
            // By a draw of its own: seeds go on meaning the same otherwise.
            window_min: Draw::new(options.seed ^ 0x77).pick(&[0, 16, WINDOW_MIN_ACROSS]),
            fsync,
            limits: Limits {
                in_flight_requests_max: options.in_flight,
                in_flight_bytes_max: options.in_flight * 200,
            },
            hosts: options.nodes,
            partitions: options.partitions,
            across: options.across,
            moves: options.moves,
            clients: options.clients,
            operations: options.operations,
            pipeline: options.pipeline,
            think_us: options.think_us,
            timeout_ms: options.timeout_ms,
            // An election takes a vote's way there and back, so a timeout must be longer than that.
            tick_ns: (flight_us / 3).max(4_000).div_ceil(1_000) * 1_000_000 * draw.pick(&[1, 1, 2]),
            flight_ns: flight_us * 1_000,
            epochs_in_flight_max: draw.pick(&[1, 2, 4, 16]),
            request_timeout_ms: REQUEST_TIMEOUT_MS,
            checkpoint_bytes: options.checkpoint_bytes,
            trail_bytes_max: draw.pick(&[0, 500, 5_000, 1 << 30]),
            feed_part_bytes: [256 << 10, 256 << 10, 2_000, 400][(mix(options.seed) % 4) as usize],
            feed_window_bytes: [256 << 10, 256 << 10, 128 << 10, 64 << 10]
                [(mix(options.seed) >> 2 & 3) as usize],
            backlog_bytes_max: [64 << 20, 64 << 20, 20_000, 1_000][(mix(options.seed) >> 4 & 3) as usize],
            segment_bytes: options.segment_bytes,
            speculate: true,
            costs: options.costs,
            jitter: options.jitter,
            judged,
        };
        if plan.alone {
            let defaults = ClusterOptions::alone();
            plan.tick_ns = defaults.tick_ms * 1_000_000;
            plan.request_timeout_ms = defaults.request_timeout_ms;
        }
        plan
    }
}

/// What travels.
#[derive(Clone)]
pub enum Frame {
    /// What nodes say to each other.
    Peer {
        /// Who says it.
        from: NodeId,
        /// To whom: another node may have taken over the host.
        to: NodeId,
        /// What.
        bytes: bytes::Bytes,
    },
    /// The operator asks for the map.
    Ask,
    /// A node's newest map.
    Told {
        /// The map.
        map: Arc<PartitionMap>,
    },
    /// The operator wants the map changed.
    Order {
        /// How.
        control: Control,
    },
    /// That was ordered, and this came of it.
    Ordered {
        /// What.
        changed: Changed,
    },
    /// A command: the `number`th of this connection, from 1.
    Command {
        /// The client's connection, from 1.
        connection: u32,
        /// Which command.
        number: u64,
        /// Where it is executed.
        partition: PartitionId,
        /// The command.
        draft: Arc<Draft>,
    },
    /// Its reply.
    Reply {
        /// The connection.
        connection: u32,
        /// Which command.
        number: u64,
        /// How it ended.
        outcome: txn::Outcome,
        /// Which partition has decided it, and where: for oracles only.
        partition: PartitionId,
        /// Where it was decided there.
        place: Place,
        /// By which process of its host.
        process: u32,
    },
    /// There is no such connection.
    Closed {
        /// Which.
        connection: u32,
    },
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Peer { bytes, .. } => f.write_str(&node::cluster::describe(bytes)),
            Frame::Ask => f.write_str("asks for the map"),
            Frame::Told { map } => write!(f, "map {}", map.version),
            Frame::Order { control } => write!(f, "wants {control:?}"),
            Frame::Ordered { changed } => write!(f, "ordered: {changed:?}"),
            Frame::Command { connection, number, partition, draft } => {
                write!(f, "{connection}.{number} to {partition}: {draft}")
            }
            Frame::Reply { connection, number, outcome, partition, place, .. } => {
                write!(f, "{connection}.{number} {outcome:?} ({partition} {place:?})")
            }
            Frame::Closed { connection } => write!(f, "no connection {connection}"),
        }
    }
}

/// What hosts and clients remind themselves of.
#[derive(Clone, Copy, Debug)]
pub enum Timer {
    /// A worker steps.
    Worker(u16),
    /// What has arrived is taken in.
    Round,
    /// The node's clock.
    Tick,
    /// A sync is done.
    Synced,
    /// A checkpoint is written.
    Checkpointed,
    /// The next segment is made.
    Prepared,
    /// A long read of a node that stands alone is done.
    Read {
        /// Whose.
        client: u16,
        /// Which.
        id: RequestId,
    },
    /// Snapshots are opened, or looked at and closed.
    Look,
    /// A client goes on.
    Go,
    /// The operator looks at a map.
    Operate,
    /// A client looks whether its oldest command is answered.
    Timeout {
        /// Its connection.
        connection: u32,
        /// Which command.
        number: u64,
    },
}

/// Nodes, clients and oracles.
pub struct Cluster {
    plan: Plan,
    population: Population,
    work: Work,
    registry: Registry,
    /// The first map.
    map: Arc<PartitionMap>,
    /// What is to run at each host: the founders' hosts, and then spare ones.
    sites: Vec<Site>,
    operator: Operator,
    partitions: Vec<PartitionWatch>,
    epochs: Epochs,
    /// Of a node that stands alone.
    alone: Option<Alone>,
    /// Whether what clients saw can be explained at all: nothing of it was lost.
    checkable: bool,
    /// Which hosts accept connections: their processes run, and the cluster knows them.
    open: Vec<bool>,
    clients: Vec<Client>,
    /// Clients that still load the initial records of a partition; the others wait.
    loading: u16,
    /// Processes that were started.
    processes: u64,
    history: Vec<Operation>,
    tally: Tally,
    /// Ordered transactions of each host's clients, and the sum of their latencies.
    latencies: Vec<(u64, u64)>,
}

/// How long a replacement may take, beside so many flights of frames.
const REPLACEMENT_MS: u64 = 20_000;
const REPLACEMENT_FLIGHTS: u64 = 400;
/// How long everything may take once nothing is wrong any more, beside what commands and replacements take.
const SETTLE_MS: u64 = 20_000;
/// When a node tells a client that nobody knows: soon enough to be seen within a run.
const REQUEST_TIMEOUT_MS: u64 = SETTLE_MS * 3 / 4;

/// How many nodes are to be replaced, at most, and one that may join beside them where an operator moves
/// things: so many spare hosts there are.
fn spares(options: &Options) -> u16 {
    let faults = options.faults.iter();
    let replaced = faults.filter(|timed| timed.fault.replaces_node()).count();
    let spares = replaced + usize::from(options.moves > 0);
    spares.try_into().unwrap_or(u16::MAX)
}

/// Bounds of a run: a client's commands may all be left when the faults are over, and each takes some
/// flights.
fn limits(options: &Options) -> WorldLimits {
    let each_us = options.think_us + options.latency.flight_us() * 10;
    // A node that is replaced has to be missed, to fetch what the others have, and to be let go.
    let replacements = u64::from(spares(options));
    let replacement_ms = replacements * REPLACEMENT_FLIGHTS * options.latency.flight_us() / 1_000;
    WorldLimits {
        settle_ms: SETTLE_MS
            + options.operations * each_us / 1_000
            + replacements * REPLACEMENT_MS
            + replacement_ms,
        events: 5_000_000,
    }
}

/// Runs a cluster, or a node that stands alone, against all oracles; with a deliberate defect of its engines,
/// if they are Sparkle's.
pub fn run(options: &Options, mutant: Option<Mutant>, trace: Option<Trace>) -> Outcome {
    run_plan(options, mutant, trace, None).0
}

/// How a model of a cluster differs from a run that is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Whether epochs are executed while they are being agreed on; if not, once they are confirmed.
    pub speculate: bool,
    /// What every incarnation of a procedure of the workload (not of a Redis command) costs its worker,
    /// beside its operations.
    pub work_ns: u64,
}

/// Runs a cluster as a model of speed: no oracles, and the defaults of nodes where a run draws them. Gives
/// for each host how many ordered transactions its clients had, initial records left out, and the sum of
/// their latencies in nanoseconds.
pub fn run_model(options: &Options, model: Model) -> (Outcome, Vec<(u64, u64)>) {
    run_plan(options, None, None, Some(model))
}

fn run_plan(
    options: &Options,
    mutant: Option<Mutant>,
    trace: Option<Trace>,
    model: Option<Model>,
) -> (Outcome, Vec<(u64, u64)>) {
    let mut draw = Draw::new(mix(options.seed));
    let population = population(options, &mut draw);
    let fsync = match options.policy() {
        Ok(fsync) => fsync,
        Err(text) => {
            let outcome = Outcome {
                report: Report::default(),
                violation: Some(Violation::new("options", text)),
                trace,
            };
            return (outcome, Vec::new());
        }
    };
    let mut plan = Plan::draw(options, fsync, model.is_none(), &mut draw);
    plan.mutant = mutant;
    if let Some(model) = model {
        let defaults = match plan.alone {
            true => ClusterOptions::alone(),
            false => ClusterOptions::new(NodeId(1)),
        };
        plan.tick_ns = defaults.tick_ms * 1_000_000;
        plan.epochs_in_flight_max = defaults.epochs_in_flight_max;
        plan.speculate = model.speculate;
    }
    let work = Work::new(model.map_or(0, |model| model.work_ns));
    let spares = spares(options);
    let system = Cluster::new(plan, population, work, options.zones, spares);
    let setting = Setting {
        hosts: options.nodes + spares,
        // One more: the operator.
        clients: options.clients + u16::from(spares > 0 || options.moves > 0),
        limits: limits(options),
        ..setting(options)
    };
    let mut world = World::new(setting, system, draw, trace);
    let (account, result) = world.run();
    let (system, trace) = world.into_parts();
    let outcome = Outcome { report: Report { account, tally: system.tally }, violation: result.err(), trace };
    (outcome, system.latencies)
}

impl Cluster {
    fn new(plan: Plan, population: Population, work: Work, zones: u16, spares: u16) -> Cluster {
        let described: Vec<Described> = (0..plan.hosts)
            .map(|host| Described {
                name: format!("n{host}"),
                zone: format!("zone-{}", host % zones),
                peer_address: format!("n{host}:1"),
                client_address: format!("n{host}:2"),
            })
            .collect();
        let (map, zones) = match plan.alone {
            true => (PartitionMap::alone(), 1),
            false => {
                let map = PartitionMap::new("world", &described, plan.partitions);
                (map.expect("a run has hosts and partitions"), zones)
            }
        };
        let clients: Vec<Client> =
            (0..plan.clients).map(|number| Client::new(number, &plan, &population)).collect();
        let loading = clients.iter().filter(|client| client.loads()).count() as u16;
        let founders = (1..=plan.hosts).map(|number| Post::Founder(NodeId(number)));
        let vacant = (0..spares).map(|_| Post::Vacant);
        let sites: Vec<Site> = founders.chain(vacant).map(Site::new).collect();
        Cluster {
            registry: population.registry_of(|procedure| work.on(procedure)),
            work,
            map: Arc::new(map),
            operator: Operator::new((spares > 0 || plan.moves > 0).then_some(plan.clients), plan.moves),
            partitions: (0..plan.partitions).map(|at| PartitionWatch::new(PartitionId(at))).collect(),
            epochs: Epochs::new(zones),
            alone: plan.alone.then(|| Alone::new(plan.fsync == FsyncPolicy::Always)),
            checkable: true,
            open: vec![false; sites.len()],
            clients,
            loading,
            processes: 0,
            history: Vec::new(),
            tally: Tally::default(),
            latencies: vec![(0, 0); sites.len()],
            sites,
            population,
            plan,
        }
    }

    /// Checks what a workload knows of its state, once everything is over. No moment of the run has a state
    /// of all partitions that a node could look at; in the end all replicas are as the specification is.
    fn check_workload(&self) -> Result<(), Violation> {
        let (Some(workload), Some(first)) = (self.population.workload(), self.partitions[0].first()) else {
            return Ok(());
        };
        let mut tally = workloads::Tally::default();
        for (at, watch) in self.partitions.iter().enumerate() {
            // Nothing of the workload is before the last load.
            let from = if at == 0 { first.prev() } else { Position::NONE };
            for outcome in watch.answers(PartitionId(at as u16), from) {
                tally.add(outcome);
            }
        }
        let mut state = AtEnd(&self.partitions);
        workload.check(&mut state, &tally).map_err(|text| Violation::new("invariant", text))
    }

    /// A process of a node that stands alone begins behind a checkpoint, with a log up to `last`: what lies
    /// behind that is void.
    fn begins_alone(
        &mut self,
        host: u16,
        began: Epoch,
        last: Epoch,
        core: &Core<Cluster>,
    ) -> Result<(), Violation> {
        let Some(alone) = &mut self.alone else { return Ok(()) };
        let there = core.host(host);
        alone.begins(began, last, there.has_flipped_bit())?;
        for watch in &mut self.partitions {
            self.checkable &= !watch.void_behind(last);
        }
        self.epochs.void_behind(last);
        let ends: Vec<Position> = self.partitions.iter().map(PartitionWatch::last).collect();
        client::void_behind(&mut self.clients, &ends, last);
        alone.runs(there.incarnation(), ends[0]);
        watch::advance(&mut self.partitions)
    }

    fn partition(&mut self, partition: PartitionId) -> &mut PartitionWatch {
        &mut self.partitions[usize::from(partition.0)]
    }
}

/// The specification's records in the end.
struct AtEnd<'a>(&'a [PartitionWatch]);

impl workloads::State for AtEnd<'_> {
    fn get(&mut self, key: &Key) -> Option<Entry> {
        // Slots may have moved; who does not have it any more has deleted it.
        let mut oracles = self.0.iter().map(PartitionWatch::oracle);
        oracles.find_map(|oracle| oracle.read_at(key, oracle.last()).entry)
    }
    fn count(&mut self) -> u64 {
        let oracles = self.0.iter().map(PartitionWatch::oracle);
        let lists = oracles.map(|oracle| oracle.list_at(Space::User, oracle.last()));
        lists.map(|list| list.len() as u64).sum()
    }
}

impl System for Cluster {
    type Frame = Frame;
    type Timer = Timer;
    type Node = Process;

    fn frame_bytes(frame: &Frame) -> u64 {
        match frame {
            Frame::Peer { bytes, .. } => 4 + bytes.len() as u64,
            Frame::Ask | Frame::Ordered { .. } => 10,
            Frame::Told { .. } | Frame::Order { .. } => 500,
            Frame::Command { draft, .. } => 20 + draft.bytes(),
            Frame::Reply { .. } => 40,
            Frame::Closed { .. } => 10,
        }
    }

    fn traffic(from: Address, to: Address) -> Traffic {
        match (from, to) {
            (Address::Host(_), Address::Host(_)) => Traffic::Datagram,
            _ => Traffic::Stream,
        }
    }

    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Process>, Violation> {
        let flipped = core.host(host).flipped_file().map(str::to_owned);
        let started = Process::start(self, host, core)?;
        if let (Start::Refused(text), Some(alone), Some(flipped)) = (&started, &self.alone, flipped) {
            alone.refused(&flipped, text)?;
        }
        Ok(started)
    }

    fn host(
        &mut self,
        host: u16,
        node: &mut Process,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        process::Turn { system: self, process: node, core, host }.take(input)
    }

    fn ended(
        &mut self,
        host: u16,
        node: Option<Process>,
        end: End,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        self.tally.ends += 1;
        self.open[usize::from(host)] = false;
        let site = &mut self.sites[usize::from(host)];
        (site.runs, site.knows_time) = (false, false);
        if let Some(alone) = &mut self.alone {
            alone.ended(end, node.as_ref().map(Process::newest_checkpoint));
        } else if end == End::DiskLost {
            site.lose_disk();
            if site.has_forgotten && matches!(site.post, Post::Joins { .. }) {
                // It asks for the map, which says that it has run.
                site.rests = true;
            }
        }
        if end == End::Killed {
            // The host's kernel tells the other ends of its connections.
            for (client, connection) in client::connected(&self.clients, host) {
                let closed = Frame::Closed { connection };
                core.send(Address::Host(host), Address::Client(client), closed);
            }
        }
        if let Some(node) = node {
            node.close_snapshots();
            node.count(&mut self.tally);
        }
        Ok(())
    }

    fn client(
        &mut self,
        client: u16,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
        if self.operator.me == Some(client) {
            self.operate(input, core);
            return Ok(());
        }
        client::take(self, client, input, core)
    }

    fn disconnect(&mut self, client: u16, core: &mut Core<Self>) -> Result<(), Violation> {
        client::disconnect(self, client, core);
        Ok(())
    }

    fn first_timer(&self, _: u16) -> Timer {
        Timer::Go
    }

    fn settled(&self, nodes: &mut [Option<Process>]) -> bool {
        let alike = |process: &Process| {
            process.is_idle()
                && process.has_booted()
                && process.positions().all(|(partition, position)| {
                    // A model does not follow the order.
                    !self.plan.judged || position == self.partitions[usize::from(partition.0)].last()
                })
        };
        self.clients.iter().all(Client::is_done)
            && self.operator.is_done()
            && nodes.iter().zip(&self.sites).all(|(node, site)| match node {
                Some(process) => site.is_taken() && alike(process),
                None => !site.is_taken(),
            })
    }

    fn check_end(&mut self, nodes: &mut [Option<Process>], _: &mut Core<Self>) -> Result<(), Violation> {
        for node in nodes.iter_mut().flatten() {
            node.close_snapshots();
            node.count(&mut self.tally);
            if self.plan.judged {
                node.check_end(&self.partitions)?;
            }
        }
        // Each at two of them.
        self.tally.moved = self.partitions.iter().map(PartitionWatch::moves).sum::<u64>() / 2;
        if self.plan.judged {
            watch::check_orders(&self.partitions)?;
        }
        if self.plan.judged && self.plan.across {
            self.check_workload()?;
        }
        if self.checkable && !self.history.is_empty() {
            crate::history::check(&self.history)
                .map_err(|anomaly| Violation::new("history", anomaly.to_string()))?;
        }
        Ok(())
    }

    fn replace(&mut self, host: u16, core: &mut Core<Self>) {
        Cluster::replace(self, host, core);
    }

    fn needs_restart(&self, node: &Process) -> bool {
        node.needs_restart()
    }

    fn may_lose_power(&self) -> bool {
        self.plan.alone || self.plan.fsync == FsyncPolicy::Always
    }

    fn waiting(&self, nodes: &mut [Option<Process>]) -> String {
        let mut waiting = Vec::new();
        for client in &self.clients {
            if !client.is_done() {
                waiting.push(client.to_string());
            }
        }
        for (host, node) in nodes.iter().enumerate() {
            match node {
                None if !self.sites[host].is_taken() => {}
                None => waiting.push(format!("host {host} is down")),
                Some(node) => waiting.push(format!("host {host}: {}", node.describe())),
            }
        }
        waiting.push(self.operator.to_string());
        let lasts: Vec<Position> = self.partitions.iter().map(PartitionWatch::last).collect();
        waiting.push(format!("the orders end at {lasts:?}"));
        waiting.join("; ")
    }
}
