//! Everything that a run of a world depends on.
//!
//! Options are drawn from the seed; whoever asks for some of them overrides the draw, and the rest stays as
//! it is. Written down as TOML, options and faults together are a *scenario*: a file that a person can write
//! and read, and what a minimized failure is saved as.

use crate::cost::CostTable;
use crate::draw::Draw;
use crate::traffic::WorkloadKind;
use crate::world::fault::{Fault, Stage, draw_faults, full_disks, lost_disk, outage};
use crate::world::{Latency, TimedFault};
use agree::Delivery;
use certify::hierarchy::Control;
use certify::two_phase::Rule;
use execute::EngineKind;
use node::FsyncPolicy;
use serde::{Deserialize, Serialize};
use std::fmt;
use txn::hash::mix;

/// What runs in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SystemKind {
    /// A node of Ordo that stands alone.
    Ordo,
    /// A cluster of Ordo's nodes.
    Cluster,
    /// Sites of a certified protocol: a replicated register.
    Register,
    /// Sites of a certified protocol: deferred update replication.
    Dur,
    /// Sites of a certified protocol: two-phase commit between partitions, with NO-WAIT.
    NoWait,
    /// The same, with basic timestamp ordering.
    Timestamp,
    /// The same, with multi-version timestamp ordering.
    Mvcc,
    /// The same, with ranges of timestamps.
    Maat,
    /// Sites of a certified protocol: a tree of validators, with locks.
    HierarchyLocks,
    /// The same, with timestamps.
    HierarchyTimestamps,
    /// Sites in several regions that commit alone: partitioned causal snapshot isolation.
    Pcsi,
}

impl SystemKind {
    /// All of them.
    pub const ALL: [SystemKind; 11] = [
        SystemKind::Ordo,
        SystemKind::Cluster,
        SystemKind::Register,
        SystemKind::Dur,
        SystemKind::NoWait,
        SystemKind::Timestamp,
        SystemKind::Mvcc,
        SystemKind::Maat,
        SystemKind::HierarchyLocks,
        SystemKind::HierarchyTimestamps,
        SystemKind::Pcsi,
    ];

    /// The name, as `--system` takes it.
    pub fn name(self) -> &'static str {
        match self {
            SystemKind::Ordo => "ordo",
            SystemKind::Cluster => "cluster",
            SystemKind::Register => "register",
            SystemKind::Dur => "dur",
            SystemKind::NoWait => Rule::NoWait.name(),
            SystemKind::Timestamp => Rule::Timestamp.name(),
            SystemKind::Mvcc => Rule::Mvcc.name(),
            SystemKind::Maat => Rule::Maat.name(),
            SystemKind::HierarchyLocks => "hierarchy-locks",
            SystemKind::HierarchyTimestamps => "hierarchy-timestamps",
            SystemKind::Pcsi => "pcsi",
        }
    }

    /// The rule of concurrency control, if it is two-phase commit between partitions.
    pub fn rule(self) -> Option<Rule> {
        match self {
            SystemKind::NoWait => Some(Rule::NoWait),
            SystemKind::Timestamp => Some(Rule::Timestamp),
            SystemKind::Mvcc => Some(Rule::Mvcc),
            SystemKind::Maat => Some(Rule::Maat),
            _ => None,
        }
    }

    /// How leaves validate, if it is a tree of validators.
    pub fn control(self) -> Option<Control> {
        match self {
            SystemKind::HierarchyLocks => Some(Control::Locks),
            SystemKind::HierarchyTimestamps => Some(Control::Timestamps),
            _ => None,
        }
    }

    /// Whether it is a certified protocol.
    pub fn is_certified(self) -> bool {
        !matches!(self, SystemKind::Ordo | SystemKind::Cluster)
    }
}

impl fmt::Display for SystemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for SystemKind {
    type Err = String;
    fn from_str(text: &str) -> Result<SystemKind, String> {
        SystemKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = SystemKind::ALL.map(SystemKind::name).join(", ");
            format!("'{text}' is no system of the simulator: use one of {names}")
        })
    }
}

/// In so many of 100 seeds with faults the disks of all nodes of a cluster are full for a while.
const FULL_DISKS_PERCENT: u32 = 15;
/// Of a hundred clusters that can bear it, how many lose a disk.
const LOST_DISK_PERCENT: u32 = 12;
/// How many clusters deliver by MiMoX.
const MIMOX_PERCENT: u32 = 30;
/// Of a hundred clusters, in how many a node is replaced that has nothing.
const REPLACEMENT_PERCENT: u32 = 8;

/// A run's options. What is missing in a scenario file is drawn from its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The seed of everything that these options leave open.
    pub seed: u64,
    /// What runs.
    pub system: SystemKind,
    /// Hosts.
    pub nodes: u16,
    /// Partitions of a cluster.
    pub partitions: u16,
    /// Whether they share one key space, so that transactions go over several of them.
    #[serde(default)]
    pub across: bool,
    /// How often slots move from one to another then.
    #[serde(default)]
    pub moves: u16,
    /// What clients do.
    pub workload: WorkloadKind,
    /// The engine.
    #[serde(with = "crate::engine")]
    pub engine: EngineKind,
    /// How the groups of a cluster agree.
    #[serde(default, with = "crate::delivery")]
    pub delivery: Delivery,
    /// Virtual workers of a node.
    pub workers: u16,
    /// The engine's slots for transactions on their way.
    pub capacity: usize,
    /// `always`, `everysec` or `no`.
    pub fsync: String,
    /// Transactions of a node on their way, at most.
    pub in_flight: u64,
    /// A checkpoint after so many bytes of log; 0 for none.
    pub checkpoint_bytes: u64,
    /// The size of a segment of the log.
    pub segment_bytes: u64,
    /// Clients.
    pub clients: u16,
    /// Commands of a client.
    pub operations: u64,
    /// Commands of a client that are on their way at once.
    pub pipeline: u64,
    /// How long a client thinks between two commands, at most.
    pub think_us: u64,
    /// How long a client waits for a reply.
    pub timeout_ms: u64,
    /// Warehouses of TPC-C.
    pub warehouses: u32,
    /// Zones to which hosts and clients are dealt.
    pub zones: u16,
    /// Whether costs vary widely.
    pub jitter: bool,
    /// How long frames fly.
    pub latency: Latency,
    /// What computing costs.
    pub costs: CostTable,
    /// What goes wrong.
    #[serde(default)]
    pub faults: Vec<TimedFault>,
}

/// Options that somebody asks for.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// What runs.
    pub system: Option<SystemKind>,
    /// Hosts.
    pub nodes: Option<u16>,
    /// Zones to which the nodes of a cluster are dealt.
    pub zones: Option<u16>,
    /// Partitions of a cluster.
    pub partitions: Option<u16>,
    /// Whether they share one key space.
    pub across: Option<bool>,
    /// What clients do.
    pub workload: Option<WorkloadKind>,
    /// The engine.
    pub engine: Option<EngineKind>,
    /// How the groups of a cluster agree.
    pub delivery: Option<Delivery>,
    /// Virtual workers of a node.
    pub workers: Option<u16>,
    /// When a batch counts as durable.
    pub fsync: Option<FsyncPolicy>,
    /// Clients.
    pub clients: Option<u16>,
    /// Commands of a client.
    pub operations: Option<u64>,
    /// Commands of a client that are on their way at once.
    pub pipeline: Option<u64>,
    /// Whether anything goes wrong.
    pub faults: Option<bool>,
}

impl Wishes {
    /// As words of the command line, each with a space before it.
    pub fn to_flags(&self) -> String {
        let mut flags = String::new();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                flags.push_str(&format!(" --{name} {value}"));
            }
        };
        add("system", self.system.map(|value| value.to_string()));
        add("nodes", self.nodes.map(|value| value.to_string()));
        add("zones", self.zones.map(|value| value.to_string()));
        add("partitions", self.partitions.map(|value| value.to_string()));
        let switch = |value| if value { "on" } else { "off" };
        add("across", self.across.map(|value| switch(value).to_owned()));
        add("workload", self.workload.map(|value| value.to_string()));
        add("engine", self.engine.map(|value| value.to_string()));
        add("delivery", self.delivery.map(|value| value.to_string()));
        add("workers", self.workers.map(|value| value.to_string()));
        add("fsync", self.fsync.map(|value| value.to_string()));
        add("clients", self.clients.map(|value| value.to_string()));
        add("operations", self.operations.map(|value| value.to_string()));
        add("pipeline", self.pipeline.map(|value| value.to_string()));
        add("faults", self.faults.map(|value| switch(value).to_owned()));
        flags
    }
}

impl Options {
    /// The options of a seed.
    pub fn draw(seed: u64, wishes: &Wishes) -> Options {
        // A stream of their own: what a run draws does not depend on how many options there are.
        let mut draw = Draw::new(mix(seed ^ 0x6F70_7469_6F6E));
        let drawn = draw.pick(&[
            SystemKind::Ordo,
            SystemKind::Ordo,
            SystemKind::Cluster,
            SystemKind::Cluster,
            SystemKind::Register,
        ]);
        // By a draw of its own: most seeds go on meaning the same.
        let is_dur = drawn == SystemKind::Register && Draw::new(mix(seed ^ 0x6475_7264)).percent(50);
        let drawn = if is_dur { SystemKind::Dur } else { drawn };
        let is_two_phase = drawn.is_certified() && Draw::new(mix(seed ^ 0x3270_6863)).percent(33);
        let mut rules = Draw::new(mix(seed ^ 0x7275_6C65));
        let drawn = match is_two_phase {
            true => {
                rules.pick(&[SystemKind::NoWait, SystemKind::Timestamp, SystemKind::Mvcc, SystemKind::Maat])
            }
            false => drawn,
        };
        let mut hierarchies = Draw::new(mix(seed ^ 0x7472_6565));
        let drawn = match drawn.is_certified() && hierarchies.percent(33) {
            true => hierarchies.pick(&[SystemKind::HierarchyLocks, SystemKind::HierarchyTimestamps]),
            false => drawn,
        };
        let is_pcsi = drawn.is_certified() && Draw::new(mix(seed ^ 0x6765_6F00)).percent(25);
        let drawn = if is_pcsi { SystemKind::Pcsi } else { drawn };
        let system = wishes.system.unwrap_or(drawn);
        let drawn = draw.pick(&[
            WorkloadKind::Programs,
            WorkloadKind::Programs,
            WorkloadKind::Redis,
            WorkloadKind::Redis,
            WorkloadKind::Append,
            WorkloadKind::Bank,
            WorkloadKind::Tpcc,
        ]);
        let workload = wishes.workload.unwrap_or(drawn);
        let drawn = draw.pick(&[
            EngineKind::Sparkle,
            EngineKind::Sparkle,
            EngineKind::Sparkle,
            EngineKind::Sparkle,
            EngineKind::Calvin,
            EngineKind::Serial,
        ]);
        // By a draw of its own: most seeds go on meaning the same.
        let is_ssmr = drawn == EngineKind::Serial && Draw::new(mix(seed ^ 0x7373_6D72)).percent(50);
        let drawn = if is_ssmr { EngineKind::Ssmr } else { drawn };
        let is_qstore = drawn == EngineKind::Calvin && Draw::new(mix(seed ^ 0x7173_746F)).percent(50);
        let drawn = if is_qstore { EngineKind::QStore } else { drawn };
        let is_parspec = drawn == EngineKind::Sparkle && Draw::new(mix(seed ^ 0x7061_7273)).percent(15);
        let drawn = if is_parspec { EngineKind::ParSpec } else { drawn };
        let engine = wishes.engine.unwrap_or(drawn);
        let drawn = match system {
            SystemKind::Ordo => 1,
            SystemKind::Cluster => draw.pick(&[3, 3, 3, 5]),
            _ => draw.pick(&[3, 3, 5]),
        };
        let mut nodes = wishes.nodes.unwrap_or(drawn).max(1);
        let drawn =
            draw.pick(&[FsyncPolicy::Always, FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No]);
        // A workload whose initial records may vanish is another workload.
        let keeps = matches!(workload, WorkloadKind::Bank | WorkloadKind::Tpcc);
        let fsync = match wishes.fsync {
            Some(fsync) => fsync,
            None if keeps => FsyncPolicy::Always,
            None => drawn,
        };
        let partitions = match (system, wishes.partitions) {
            (SystemKind::Cluster, None) => {
                let drawn = draw.pick(&[1, 1, 2, 3, 4]);
                match wishes.across {
                    Some(true) => 2 + seed as u16 % 5,
                    _ => drawn,
                }
            }
            (SystemKind::Cluster, Some(partitions)) => partitions.max(1),
            _ => 1,
        };
        // As many zones as replicas; some have several nodes, each with some of the partitions.
        let mut zones = wishes.zones.unwrap_or(nodes).clamp(1, nodes);
        let is_spread = system == SystemKind::Cluster && partitions > 1 && draw.percent(40);
        if is_spread && wishes.nodes.is_none() && wishes.zones.is_none() {
            nodes = draw.pick(&[4, 5, 6, 6]);
            zones = 3;
        }
        let drawn = draw.pick(&[1, 2, 4, 8]);
        let clients = wishes.clients.unwrap_or(drawn).max(nodes);
        let clients = clients.max(partitions);
        let drawn = draw.pick(&[20, 60, 150]);
        let operations = wishes.operations.unwrap_or(drawn);
        let drawn = draw.pick(&[1, 1, 4, 20]);
        let pipeline = wishes.pipeline.unwrap_or(drawn).max(1);
        let drawn = draw.pick(&[1, 2, 3, 4, 8]);
        let workers = wishes.workers.unwrap_or(drawn).max(1);
        let stage =
            Stage { hosts: nodes, clients, until_ms: draw.pick(&[20, 200, 2_000]), disks_may_go: false };
        let think_us = draw.pick(&[0, 100, 2_000, stage.until_ms * 1_000 / operations.max(1) * 2]);
        let mut options = Options {
            seed,
            system,
            nodes,
            partitions,
            across: false,
            moves: 0,
            workload,
            engine,
            delivery: Delivery::Raft,
            workers,
            capacity: draw.pick(&[32, 64, 4096]),
            fsync: fsync.to_string(),
            in_flight: draw.pick(&[5, 50, 10_000]),
            checkpoint_bytes: draw.pick(&[0, 2_000, 20_000]),
            segment_bytes: draw.pick(&[4_300, 16_384, 65_536]),
            clients,
            operations,
            pipeline,
            think_us,
            timeout_ms: draw.pick(&[300, 2_000]),
            warehouses: draw.pick(&[1, 2]),
            zones: draw.pick(&[1, 3]),
            jitter: draw.percent(90),
            latency: Latency::draw(&mut draw),
            costs: CostTable::DEFAULT,
            faults: Vec::new(),
        };
        if system.is_certified() && !seed.is_multiple_of(4) {
            // Its operations are short: most runs spread them over the time in which things go wrong.
            let spread_us = stage.until_ms * 1_000 * pipeline / operations.max(1) * 2;
            options.think_us = options.think_us.max(spread_us);
        }
        if wishes.faults != Some(false) {
            options.faults = draw_faults(&mut draw, stage);
        }
        if system == SystemKind::Cluster {
            let drawn = Draw::new(mix(seed ^ 0x6D69_6D6F)).percent(MIMOX_PERCENT);
            let drawn = if drawn { Delivery::Mimox } else { Delivery::Raft };
            options.delivery = wishes.delivery.unwrap_or(drawn);
            // A stream of their own, as above: seeds stay what they were.
            let drawn = Draw::new(mix(seed ^ 0x6163_726F_7373)).percent(40);
            let may_span = wishes.engine.is_none_or(|kind| kind.needs().spans_partitions);
            options.across = partitions > 1 && wishes.across.unwrap_or(drawn && may_span);
            if options.across {
                // By a draw of its own, and most have the engine that clusters have by default.
                let drawn = Draw::new(mix(seed ^ 0x7370_616E)).pick(&[
                    EngineKind::Sparkle,
                    EngineKind::Sparkle,
                    EngineKind::Sparkle,
                    EngineKind::Sparkle,
                    EngineKind::Sparkle,
                    EngineKind::Sparkle,
                    EngineKind::Calvin,
                    EngineKind::Ssmr,
                ]);
                let is_qstore = drawn == EngineKind::Calvin && Draw::new(mix(seed ^ 0x7173_706E)).percent(50);
                let drawn = if is_qstore { EngineKind::QStore } else { drawn };
                options.engine = wishes.engine.unwrap_or(drawn);
                options.moves = Draw::new(mix(seed ^ 0x6D6F_7665)).pick(&[0, 0, 1, 2, 5]);
            }
            options.zones = zones;
            // Operations are spread over the time in which things go wrong.
            let spread_us = stage.until_ms * 1_000 / operations.max(1) * 2;
            options.think_us = options.think_us.max(spread_us);
            // Answers take several flights.
            let answer_ms = options.latency.flight_us() * 12 / 1_000;
            options.timeout_ms = options.timeout_ms.max(answer_ms);
            if !options.faults.is_empty() && draw.percent(30) {
                let at_ms = draw.below(stage.until_ms);
                options.faults.extend(outage(&mut draw, options.nodes, at_ms));
                options.faults.sort_by_key(|timed| timed.at_ms);
            }
            // By a draw of its own: most seeds go on meaning the same.
            let mut full = Draw::new(mix(seed ^ 0xf011));
            if !options.faults.is_empty() && full.percent(FULL_DISKS_PERCENT) {
                let at_ms = full.below(stage.until_ms);
                let disks = full_disks(&mut full, options.nodes, at_ms);
                options.faults.extend(disks);
                options.faults.sort_by_key(|timed| timed.at_ms);
            }
            for timed in &mut options.faults {
                timed.fault.spare_promises(fsync);
            }
            if wishes.faults != Some(false) {
                let at_ms = draw.below(stage.until_ms);
                if draw.percent(LOST_DISK_PERCENT)
                    && !options.faults.is_empty()
                    && options.disks_lost_max() > 0
                {
                    let fault = lost_disk(&mut draw, options.nodes, at_ms);
                    options.faults.push(fault);
                }
                // Also where nothing is wrong.
                if draw.percent(REPLACEMENT_PERCENT) {
                    let host = draw.below(u64::from(options.nodes)) as u16;
                    let at_ms = draw.below(stage.until_ms);
                    let fault = Fault::Replace { host };
                    options.faults.push(TimedFault { at_ms, fault });
                }
                options.faults.sort_by_key(|timed| timed.at_ms);
            }
        }
        if system == SystemKind::Pcsi {
            crate::pcsi::adjust(&mut options, wishes);
        }
        options
    }

    /// How many hosts may lose their disks: every group must keep a majority of replicas that know what they
    /// promised. A node that promises what it has only written may have forgotten some of it, beside the lost
    /// disks.
    fn disks_lost_max(&self) -> usize {
        if self.fsync != FsyncPolicy::Always.to_string() {
            return 0;
        }
        usize::from(self.zones.saturating_sub(1) / 2)
    }

    /// Reads a scenario.
    pub fn from_toml(text: &str) -> Result<Options, String> {
        #[derive(Deserialize)]
        struct Drawn {
            seed: Option<u64>,
            system: Option<SystemKind>,
        }
        let Drawn { seed, system } = toml::from_str(text).map_err(|error| error.to_string())?;
        let drawn = Options::draw(seed.unwrap_or(1), &Wishes { system, ..Wishes::default() });
        // What the file leaves out is drawn; but no fault that it does not name.
        let mut table = toml::Table::try_from(Options { faults: Vec::new(), ..drawn })
            .map_err(|error| error.to_string())?;
        let given: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
        for (name, value) in given {
            if !table.contains_key(&name) && name != "faults" {
                let known: Vec<&str> = table.keys().map(String::as_str).collect();
                return Err(format!(
                    "'{name}' is no option of a scenario: there are {}, and faults",
                    known.join(", ")
                ));
            }
            match (table.get_mut(&name), value) {
                (Some(toml::Value::Table(inner)), toml::Value::Table(given)) => inner.extend(given),
                (_, value) => {
                    table.insert(name, value);
                }
            }
        }
        // Each by itself, so that an error tells which.
        if let Some(toml::Value::Array(faults)) = table.get("faults") {
            for (place, fault) in faults.iter().enumerate() {
                let read: Result<TimedFault, toml::de::Error> = fault.clone().try_into();
                if let Err(error) = read {
                    let at_ms = fault.get("at_ms").and_then(toml::Value::as_integer);
                    let at = at_ms.map_or(String::new(), |at_ms| format!(" (at {at_ms} ms)"));
                    return Err(format!("fault {}{at} of the file: {}", place + 1, error.message()));
                }
            }
        }
        let options: Options = table.try_into().map_err(|error: toml::de::Error| error.to_string())?;
        options.check()?;
        Ok(options)
    }

    /// Why a world cannot be like this, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        self.policy()?;
        crate::pcsi::check(self)?;
        let spanned = if self.across { self.partitions } else { 1 };
        self.engine.check(spanned).map_err(|error| format!("engine: {error}"))?;
        if [u64::from(self.warehouses), self.timeout_ms, self.in_flight].contains(&0) {
            return Err("warehouses, timeout_ms and in_flight must be at least 1".to_owned());
        }
        if [self.operations, self.pipeline, self.checkpoint_bytes, self.segment_bytes]
            .iter()
            .any(|&number| number > 1 << 30)
        {
            return Err(
                "operations, pipeline, checkpoint_bytes and segment_bytes must not exceed 2^30".to_owned()
            );
        }
        if self.nodes == 0 || self.workers == 0 || self.pipeline == 0 || self.capacity < 8 {
            return Err("nodes, workers and pipeline must be at least 1, and capacity at least 8".to_owned());
        }
        if self.system == SystemKind::Ordo && self.nodes != 1 {
            return Err(format!(
                "{} nodes cannot stand alone together: leave nodes out, or ask for system cluster",
                self.nodes
            ));
        }
        if self.system == SystemKind::Ordo && (self.partitions != 1 || self.across) {
            return Err(
                "a node that stands alone has one partition: leave partitions and across out, or ask \
                        for system cluster"
                    .to_owned(),
            );
        }
        if self.clients < self.nodes {
            return Err(format!(
                "{} clients are too few for {} nodes: every node needs one",
                self.clients, self.nodes
            ));
        }
        if self.segment_bytes < 4_200 {
            return Err("segment_bytes must be at least 4200: a header and a record".to_owned());
        }
        if self.moves > 0 && !(self.across && self.partitions > 1) {
            return Err(
                "moves is how often slots move between partitions: it needs across = true, and partitions \
                 of at least 2"
                    .to_owned(),
            );
        }
        if self.partitions > order::PARTITIONS_MAX {
            return Err(format!(
                "{} partitions are too many: a cluster has {} at most",
                self.partitions,
                order::PARTITIONS_MAX
            ));
        }
        let in_a_zone = self.nodes.div_ceil(self.zones.max(1));
        if self.system == SystemKind::Cluster && in_a_zone > self.partitions {
            return Err(format!(
                "a zone with {in_a_zone} nodes needs as many partitions, not {}: give --partitions, or \
                 more --zones",
                self.partitions
            ));
        }
        let lost = self.faults.iter().filter(|timed| timed.fault.loses_disk());
        let (lost, lost_max) = (lost.count(), self.disks_lost_max());
        if self.system == SystemKind::Cluster && lost > lost_max {
            return Err(format!(
                "{lost} disks are lost, and this cluster bears {lost_max}: a minority of the zones, where \
                 fsync is always"
            ));
        }
        for timed in &self.faults {
            timed
                .fault
                .check(self.nodes, self.clients)
                .map_err(|text| format!("the fault at {} ms: {text}", timed.at_ms))?;
        }
        Ok(())
    }

    /// The fsync policy.
    pub fn policy(&self) -> Result<FsyncPolicy, String> {
        self.fsync.parse().map_err(|error: node::UnknownFsyncPolicy| error.to_string())
    }

    /// The scenario of these options.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# {error}\n"))
    }
}

/// So many of something.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { seed, system, nodes, clients, operations, pipeline, .. } = self;
        write!(
            f,
            "seed {seed}: {system}, {}, {} with {operations} commands each, {pipeline} at once",
            count(u64::from(*nodes), "node"),
            count(u64::from(*clients), "client"),
        )?;
        match system {
            SystemKind::Ordo | SystemKind::Cluster => write!(
                f,
                "; {} with {} and {} slots, workload {}, fsync {}, {} in flight, segments of {} bytes, \
                 checkpoints after {} bytes",
                self.engine,
                count(u64::from(self.workers), "worker"),
                self.capacity,
                self.workload,
                self.fsync,
                self.in_flight,
                self.segment_bytes,
                self.checkpoint_bytes
            )
            .and_then(|()| match self.workload {
                WorkloadKind::Tpcc => {
                    write!(f, ", {}", count(u64::from(self.warehouses), "warehouse"))
                }
                _ => Ok(()),
            })
            .and_then(|()| match self.delivery {
                Delivery::Raft => Ok(()),
                other => write!(f, ", delivery {other}"),
            })?,
            _ => {}
        }
        let jitter = if self.jitter { "varying" } else { "steady" };
        write!(
            f,
            "; think {} us, timeout {} ms, {}, {jitter} costs, {}",
            self.think_us,
            self.timeout_ms,
            count(u64::from(self.zones), "zone"),
            self.latency
        )?;
        for timed in &self.faults {
            write!(f, "\n  at {} ms {}", timed.at_ms, timed.fault)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scenario_reads_back_and_may_leave_things_out() {
        for seed in 0..100 {
            let options = Options::draw(seed, &Wishes::default());
            options.check().unwrap();
            let text = options.to_toml();
            assert_eq!(Options::from_toml(&text).unwrap(), options, "{text}");
        }
        let text = "seed = 7\nworkers = 3\nlatency = { zone_us = 9 }\n\
                    [[faults]]\nat_ms = 5\nfault = \"crash\"\nhost = 0\npower = true\ndown_ms = 30\n";
        let options = Options::from_toml(text).unwrap();
        let drawn = Options::draw(7, &Wishes::default());
        assert_eq!((options.workers, options.latency.zone_us), (3, 9));
        assert_eq!(options.latency.bytes_per_us, drawn.latency.bytes_per_us);
        assert_eq!((options.clients, options.faults.len()), (drawn.clients, 1));

        for (text, expected) in [
            ("seed = 1\nworker = 3\n", "'worker' is no option"),
            ("fsync = \"often\"\n", "not an fsync policy"),
            ("[[faults]]\nat_ms = 5\nfault = \"pause\"\nhost = 70\nfor_ms = 1\n", "there is no host 70"),
            (
                "[[faults]]\nat_ms = 5\nfault = \"explode\"\n",
                "fault 1 (at 5 ms) of the file: unknown variant",
            ),
            (
                "[[faults]]\nat_ms = 1\nfault = \"disconnect\"\nclient = 0\n[[faults]]\nfault = \"crash\"\n\
                 host = 0\n",
                "fault 2 of the file: missing field",
            ),
            ("system = \"cluster\"\npartitions = 257\n", "257 partitions are too many"),
            ("engine = \"nocc\"\n", "has no concurrency control"),
            (
                "system = \"cluster\"\nengine = \"serial\"\npartitions = 2\nacross = true\n",
                "'serial' executes one partition, and there are 2",
            ),
            ("system = \"ordo\"\npartitions = 2\n", "a node that stands alone has one partition"),
        ] {
            let error = Options::from_toml(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn options_are_shown_in_words() {
        let options = Options {
            nodes: 1,
            clients: 2,
            zones: 1,
            latency: Latency::STEADY,
            ..Options::draw(7, &Wishes::default())
        };
        let shown = options.to_string();
        for want in
            [", 1 node, 2 clients with ", ", 1 zone, ", ", 50 us inside a zone, 500 us between zones, "]
        {
            assert!(shown.contains(want), "no '{want}' in {shown}");
        }
        assert!(!shown.contains('{'), "{shown}");
    }

    #[test]
    fn a_wish_changes_nothing_else() {
        for seed in 0..50 {
            let drawn = Options::draw(seed, &Wishes::default());
            let wished = Options::draw(seed, &Wishes { workers: Some(5), ..Wishes::default() });
            assert_eq!(wished, Options { workers: 5, ..drawn });
        }
    }
}
