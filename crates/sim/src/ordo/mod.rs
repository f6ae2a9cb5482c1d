//! Ordo in the world: real nodes with their logs and engines, and clients that talk to them.
//!
//! A host runs one node: the real state machine ([`node::Node`]), the real log on the host's disk, a real
//! engine whose workers are virtual, and connections that route commands as the server's sessions do
//! ([`node::route`]). A client has one connection to one host, keeps a number of commands on their way, and
//! opens another connection when it breaks.
//!
//! Until nodes replicate each other, each is a database of its own: several of them are several independent
//! worlds that share a clock, a network and a draw, and every client stays with one.

mod client;
mod process;

use crate::cost::CostTable;
use crate::history::Operation;
use crate::judge;
use crate::traffic::{Draft, Population};
use crate::watch::invariant;
use crate::watch::leak;
use crate::watch::order::OrderWatch;
use crate::watch::real_time::{Place, RealTime};
use crate::world::{Address, Core, End, Input, Start, System, Traffic, Violation};
use client::Client;
use execute::Engine;
use execute::sparkle::Mutant;
use node::{FsyncPolicy, Limits};
use process::Process;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use store::{Snapshot, View};
use txn::{Outcome, Position, Registry};

/// The engine of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// Sparkle.
    Sparkle,
    /// Calvin.
    Calvin,
    /// One transaction after the other.
    Serial,
}

impl EngineKind {
    /// All of them.
    pub const ALL: [EngineKind; 3] = [EngineKind::Sparkle, EngineKind::Calvin, EngineKind::Serial];

    /// The name, as `--engine` takes it.
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Sparkle => "sparkle",
            EngineKind::Calvin => "calvin",
            EngineKind::Serial => "serial",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for EngineKind {
    type Err = String;
    fn from_str(text: &str) -> Result<EngineKind, String> {
        EngineKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = EngineKind::ALL.map(EngineKind::name).join(", ");
            format!("'{text}' is no engine of the simulator: use one of {names}")
        })
    }
}

/// What the nodes and clients of a run are like.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The engine.
    pub engine: EngineKind,
    /// Virtual workers of a node.
    pub workers: u16,
    /// The engine's slots for transactions on their way (Sparkle).
    pub capacity: usize,
    /// A deliberate defect of Sparkle, to test the oracles. The other crates' are chosen for a thread
    /// ([`txn::mutant`]).
    pub mutant: Option<Mutant>,
    /// When a batch counts as durable.
    pub fsync: FsyncPolicy,
    /// Bounds of a node.
    pub limits: Limits,
    /// A checkpoint after so many bytes of log.
    pub checkpoint_bytes: u64,
    /// The size of a segment of the log.
    pub segment_bytes: u64,
    /// Hosts, each with a node.
    pub hosts: u16,
    /// Clients.
    pub clients: u16,
    /// Commands of a client.
    pub operations: u64,
    /// How many of them are on their way at once.
    pub pipeline: u64,
    /// How long a client thinks between two commands, at most.
    pub think_us: u64,
    /// How long a client waits for a reply before it opens another connection.
    pub timeout_ms: u64,
    /// What computing costs.
    pub costs: CostTable,
    /// Whether costs vary widely, so that workers meet in every way. If not, each is the table's.
    pub jitter: bool,
    /// Whether every reply and state is compared with the specification. Without it, the run is a model of
    /// speed.
    pub judged: bool,
}

/// What travels between clients and nodes.
#[derive(Clone)]
pub enum Frame {
    /// A command: the `number`th of this connection, from 1.
    Command {
        /// The client's connection, from 1.
        connection: u32,
        /// Which command.
        number: u64,
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
        outcome: Outcome,
        /// Where it was decided, and by which process: for oracles only.
        place: Place,
        /// Which of its host's.
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
            Frame::Command { connection, number, draft } => write!(f, "{connection}.{number} {draft}"),
            Frame::Reply { connection, number, outcome, place, .. } => {
                write!(f, "{connection}.{number} {outcome:?} ({place:?})")
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
    /// Commands that have arrived are taken in.
    Round,
    /// The node's clock.
    Tick,
    /// A sync is done.
    Synced,
    /// A checkpoint is written.
    Checkpointed,
    /// The next segment is made.
    Prepared,
    /// A snapshot is opened, or looked at and closed.
    Look,
    /// A long read of this client is done.
    Read(u16),
    /// A client goes on.
    Go,
    /// A client looks whether its oldest command is answered.
    Timeout {
        /// Its connection.
        connection: u32,
        /// Which command.
        number: u64,
    },
}

/// One host's share of what the oracles know.
struct Watched {
    order: OrderWatch,
    time: RealTime,
}

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ordered transactions that were answered.
    pub committed: u64,
    /// Of those, the ones that rolled back by their own logic.
    pub rolled_back: u64,
    /// Those that ran at several partitions.
    pub shared: u64,
    /// Those that came again because they touched partitions that they had not named, or because slots had
    /// moved.
    pub widened: u64,
    /// Moves of slots to other partitions.
    pub moved: u64,
    /// Reads at snapshots.
    pub snapshot_reads: u64,
    /// Commands that were refused.
    pub refused: u64,
    /// Commands whose outcome their client never learned.
    pub unknown: u64,
    /// Processes that ended.
    pub ends: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Starts from a checkpoint.
    pub recovered_from_checkpoint: u64,
    /// Checkpoints that were fetched from another node.
    pub installed: u64,
    /// Processes of clusters that were refused because their disk was lost.
    pub disks_refused: u64,
    /// Changes of the map that the operator ordered.
    pub changes: u64,
    /// Moves of a replica to another node that the operator ordered.
    pub placed: u64,
    /// Processes that ended because their node had left the cluster.
    pub left: u64,
    /// Nodes in whose place others are.
    pub replaced: u64,
    /// Incarnations of transactions that were thrown away.
    pub restarts: u64,
    /// Times that a transaction was parked.
    pub suspensions: u64,
    /// Transactions of which a replica's engine learned that they are final, in clusters.
    pub executed: u64,
    /// Of those, the ones that the engine had speculatively committed before.
    pub speculated: u64,
    /// Single-key operations of all workers.
    pub operations: u64,
    /// The sum of the times from sending a command to its reply, refusals left out.
    pub latency_ns: u64,
    /// The longest of them.
    pub latency_max_ns: u64,
    /// Of that, the share of ordered transactions, initial records left out.
    pub ordered_latency_ns: u64,
    /// How many those are.
    pub ordered: u64,
    /// When the first command was sent.
    pub first_ns: u64,
    /// When the last reply arrived.
    pub last_ns: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.rolled_back += other.rolled_back;
        self.shared += other.shared;
        self.widened += other.widened;
        self.moved += other.moved;
        self.snapshot_reads += other.snapshot_reads;
        self.refused += other.refused;
        self.unknown += other.unknown;
        self.ends += other.ends;
        self.checkpoints += other.checkpoints;
        self.recovered_from_checkpoint += other.recovered_from_checkpoint;
        self.installed += other.installed;
        self.disks_refused += other.disks_refused;
        self.changes += other.changes;
        self.placed += other.placed;
        self.left += other.left;
        self.replaced += other.replaced;
        self.restarts += other.restarts;
        self.suspensions += other.suspensions;
        self.executed += other.executed;
        self.speculated += other.speculated;
        self.operations += other.operations;
        self.latency_ns += other.latency_ns;
        self.latency_max_ns = self.latency_max_ns.max(other.latency_max_ns);
        self.ordered_latency_ns += other.ordered_latency_ns;
        self.ordered += other.ordered;
    }
}

/// Nodes, clients and oracles.
pub struct Ordo {
    plan: Plan,
    population: Population,
    registry: Registry,
    watched: Vec<Watched>,
    clients: Vec<Client>,
    /// Clients that still load the initial records of their host; the others wait.
    loading: u16,
    /// Where each host's initial records end.
    loaded: Vec<Position>,
    /// What clients saw, if the workload is one for the checker of histories.
    history: Vec<Operation>,
    /// Whether a history of this run can be checked: nothing acknowledged was allowed to vanish.
    checkable: bool,
    /// What happened.
    pub tally: Tally,
}

impl Ordo {
    /// Nodes and clients that follow a plan.
    pub fn new(plan: Plan, population: Population) -> Ordo {
        let always = plan.fsync == FsyncPolicy::Always;
        // Whole states are compared where they are small.
        let states = population.workload().is_none();
        let watched = (0..plan.hosts)
            .map(|_| Watched { order: OrderWatch::new(always, states), time: RealTime::default() })
            .collect();
        let clients: Vec<Client> =
            (0..plan.clients).map(|number| Client::new(number, &plan, &population)).collect();
        let loading = clients.iter().filter(|client| client.loads()).count() as u16;
        Ordo {
            registry: population.registry(),
            watched,
            clients,
            loading,
            loaded: vec![Position::NONE; usize::from(plan.hosts)],
            history: Vec::new(),
            checkable: true,
            tally: Tally::default(),
            population,
            plan,
        }
    }

    /// Compares a snapshot of a host's store with the specification, or with what the workload knows of its
    /// state.
    fn check_snapshot(&self, host: usize, view: &dyn View, snapshot: &Snapshot) -> Result<(), Violation> {
        let oracle = self.watched[host].order.oracle();
        match self.population.workload() {
            None => {
                judge::check_snapshot(view, snapshot, oracle).map_err(|text| Violation::new("serial", text))
            }
            // Nothing is known before the initial records are complete.
            Some(_) if self.loaded[host] == Position::NONE => Ok(()),
            Some(workload) => {
                let first = self.loaded[host].next();
                invariant::check(&**workload, view, snapshot, oracle, first)
                    .map_err(|text| Violation::new("invariant", text))
            }
        }
    }

    fn watch(&mut self, host: u16) -> &mut Watched {
        &mut self.watched[usize::from(host)]
    }
}

impl System for Ordo {
    type Frame = Frame;
    type Timer = Timer;
    type Node = Process;

    fn frame_bytes(frame: &Frame) -> u64 {
        match frame {
            Frame::Command { draft, .. } => 20 + draft.bytes(),
            Frame::Reply { .. } => 40,
            Frame::Closed { .. } => 10,
        }
    }

    fn traffic(_: Address, _: Address) -> Traffic {
        Traffic::Stream
    }

    fn start(&mut self, host: u16, core: &mut Core<Self>) -> Result<Start<Process>, Violation> {
        Process::start(self, host, core)
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
        mut node: Option<Process>,
        end: End,
        _: &mut Core<Self>,
    ) -> Result<(), Violation> {
        self.tally.ends += 1;
        if let Some(node) = &mut node {
            node.close_snapshot();
            let status = node.engine().status();
            self.tally.restarts += status.restarts;
            self.tally.suspensions += status.suspensions;
            // What was retracted after a failed sync has left nothing, before the restart forgets it.
            if node.is_poisoned() && node.is_idle() && self.plan.judged {
                node.settle()?;
                let order = &self.watch(host).order;
                leak::check_versions(&**node.engine(), order.oracle(), order.last())
                    .map_err(|text| Violation::new("leak", text))?;
            }
        }
        let written = node.map(|node| node.written());
        self.watch(host).order.ended(end, written);
        Ok(())
    }

    fn client(
        &mut self,
        client: u16,
        input: Input<Frame, Timer>,
        core: &mut Core<Self>,
    ) -> Result<(), Violation> {
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
        self.clients.iter().all(Client::is_done)
            && nodes.iter_mut().all(|node| node.as_mut().is_some_and(|node| node.is_idle()))
    }

    fn check_end(&mut self, nodes: &mut [Option<Process>], _: &mut Core<Self>) -> Result<(), Violation> {
        for (host, node) in nodes.iter_mut().enumerate() {
            let Some(node) = node else { continue };
            node.close_snapshot();
            node.settle()?;
            let engine = node.engine();
            let status = engine.status();
            self.tally.restarts += status.restarts;
            self.tally.suspensions += status.suspensions;
            if !self.plan.judged {
                continue;
            }
            let view = engine.view();
            let snapshot = view.open();
            let order = &self.watched[host].order;
            let checked = self.check_snapshot(host, view, &snapshot).and_then(|()| {
                judge::check_snapshot(view, &snapshot, order.oracle())
                    .map_err(|text| Violation::new("serial", text))
            });
            view.close(snapshot);
            checked?;
            leak::check(&**engine, order.oracle(), order.last(), engine.last_delivered())
                .map_err(|text| Violation::new("leak", text))?;
        }
        if self.checkable && !self.history.is_empty() {
            crate::history::check(&self.history)
                .map_err(|anomaly| Violation::new("history", anomaly.to_string()))?;
        }
        Ok(())
    }

    fn needs_restart(&self, node: &Process) -> bool {
        node.is_poisoned()
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
                None => waiting.push(format!("host {host} is down")),
                Some(node) => waiting.push(format!("host {host}: {}", node.describe())),
            }
        }
        waiting.join("; ")
    }
}
