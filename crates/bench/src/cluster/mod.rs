//! Drives a cluster over the network, and tells what agreement costs it.
//!
//! The cluster is started here, on the loopback interface, or is there already. The load is that
//! of [`crate::redis`]: one thread, prebuilt requests, connections dealt out to the nodes in turn, each in a
//! closed loop ([`work`]). Around every slice of it each node is asked for its counters ([`counters`]):
//! messages and bytes between nodes, epochs, how many transactions had speculatively committed when they were
//! confirmed.
//!
//! With [`Options::against_single`] a server by itself gets the same load, slice by slice in turn with the
//! cluster, so that their ratio is of one run. Whoever is not being measured is idle meanwhile. It is not
//! stopped: a cluster that is would elect leaders when it goes on. A first round warms up and does not count.

mod counters;
mod work;

pub use work::Work;

use crate::child::interruption;
use crate::engine::{load_average, resident_bytes_of};
use crate::etcd::{process_seconds, thread_seconds};
use crate::faults::processes::{Processes, Setting};
use crate::progress::Progress;
use crate::redis::load::{self, Measured, Target, Until};
use crate::report::{self, Latencies, Record, Spread};
use anyhow::{Result, bail};
use comfy_table::Table;
use counters::Counters;
use serde::Serialize;
use server::client::Client;
use server::cluster::Delivery;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use work::Prepared;

/// Replicated by single that is aimed for, of three nodes that share a machine with their load: SET,
/// pipelines of 16, no fsync.
const AIM: f64 = 0.3;
/// A cluster that is not up by then will not be.
const START_MAX: Duration = Duration::from_secs(30);

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which cluster.
    pub place: Place,
    /// Whether a server by itself gets the same load in turn. Only with [`Place::Here`].
    pub against_single: bool,
    /// What the clients do, one after the other.
    pub works: Vec<Work>,
    /// Connections, dealt out to the nodes.
    pub clients: usize,
    /// Commands that a client sends at once.
    pub pipeline: usize,
    /// Keys to draw from.
    pub keys: u64,
    /// Measured rounds.
    pub rounds: usize,
    /// The length of a slice: each contender has one in every round.
    pub duration: Duration,
    /// Whether keys and accounts must be loaded first.
    pub load: bool,
    /// The seed of the keys drawn.
    pub seed: u64,
}

/// Where the cluster is.
#[derive(Clone, Debug)]
pub enum Place {
    /// It is started here, and ends with the run.
    Here {
        /// Ordo's program.
        ordo: PathBuf,
        /// Nodes.
        nodes: usize,
        /// Zones to which they are dealt: with fewer than nodes, each keeps some of the partitions only.
        zones: usize,
        /// Partitions.
        partitions: u16,
        /// How the replicas of a partition agree. With several, a cluster for each, in turn.
        deliveries: Vec<Delivery>,
        /// When a write counts as kept: `always`, `everysec` or `no`.
        appendfsync: String,
        /// Where the nodes keep their data.
        directory: PathBuf,
    },
    /// Its nodes run already.
    There(Vec<Target>),
}

/// What a contender did: the fields of `bench engine`, and what only a cluster has.
#[derive(Clone, Debug, Serialize)]
pub struct ClusterRecord {
    /// The record.
    #[serde(flatten)]
    pub record: Record,
    /// What agreement took; none for a server by itself.
    pub cluster: Option<ClusterFigures>,
}

/// What agreement took, over all slices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClusterFigures {
    /// Nodes that were asked.
    pub nodes: usize,
    /// Partitions.
    pub partitions: u64,
    /// Messages between nodes for each command that was answered.
    pub messages_per_transaction: f64,
    /// Bytes between nodes for each command that was answered.
    pub message_bytes_per_transaction: f64,
    /// Epochs that were confirmed in a second.
    pub epochs_per_s: f64,
    /// Ordered transactions in an epoch. Reads need no place in the order.
    pub transactions_per_epoch: f64,
    /// Of the transactions that replicas executed, the share that had speculatively committed when it was
    /// confirmed.
    pub speculated_share: f64,
    /// Epochs that were taken back.
    pub epochs_retracted: u64,
    /// Of transactions over several partitions: messages by which a partition told another node's what it had
    /// to say in a round. One, whatever the number of transactions; less where rounds went together; 0 if all
    /// was said within nodes.
    pub messages_per_round: f64,
    /// Reads, anchors and confirmations in such a message.
    pub notes_per_message: f64,
}

/// What a run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The works, and for each of them the server by itself, if it ran, and the cluster.
    pub records: Vec<ClusterRecord>,
    /// Of each work: what by what, contenders by the first one, and the ratio.
    pub ratios: Vec<(Work, String, Spread)>,
    /// The least ratio aimed for of SET, if the run is one that an aim was set for.
    pub aim: Option<f64>,
}

/// Runs the works.
pub fn run(options: &Options) -> Result<Report> {
    if options.clients == 0 || options.pipeline == 0 || options.keys == 0 || options.rounds == 0 {
        bail!("--clients, --pipeline, --keys and --rounds must be at least 1");
    }
    if options.works.is_empty() {
        bail!("--workload names no workload");
    }
    let mut contenders = Contender::all(options)?;
    let interrupted = interruption()?;
    let steps = options.works.len() * contenders.len() * (options.rounds + 1);
    let progress = Progress::new(steps as u64);
    let mut report = Report { records: Vec::new(), ratios: Vec::new(), aim: None };
    for &work in &options.works {
        let mut prepared = Vec::new();
        for contender in &contenders {
            progress.say(format!("{}: loading {}", contender.name, work.name()));
            prepared.push(Prepared::new(work, options, &contender.targets)?);
        }
        let mut slices: Vec<Vec<Slice>> = contenders.iter().map(|_| Vec::new()).collect();
        for round in 0..=options.rounds {
            let mut order: Vec<usize> = (0..contenders.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                if interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                let contender = &mut contenders[index];
                progress.say(format!("{}: {}", contender.name, work.name()));
                let slice = contender.slice(options, &mut prepared[index], round)?;
                // The first round warms up.
                if round > 0 {
                    slices[index].push(slice);
                }
                progress.advance();
            }
        }
        for (contender, prepared) in contenders.iter().zip(prepared) {
            prepared.check(&contender.targets)?;
        }
        let throughputs: Vec<Vec<f64>> =
            slices.iter().map(|slices| slices.iter().map(Slice::throughput_per_s).collect()).collect();
        for (index, contender) in contenders.iter().enumerate() {
            let ratio = Spread::of_ratios(&throughputs[index], &throughputs[0]);
            let record = contender.record(options, work, &slices[index], ratio);
            if index > 0 {
                report.ratios.push((work, format!("{} / {}", contender.name, contenders[0].name), ratio));
            }
            report.records.push(record);
        }
    }
    report.aim = options.aim();
    Ok(report)
}

impl Options {
    fn aim(&self) -> Option<f64> {
        match &self.place {
            Place::Here { nodes: 3, appendfsync, .. }
                if appendfsync == "no" && self.pipeline == 16 && self.works.contains(&Work::Set) =>
            {
                self.against_single.then_some(AIM)
            }
            _ => None,
        }
    }

    fn partitions(&self) -> u16 {
        match self.place {
            Place::Here { partitions, .. } => partitions,
            // Nobody has said, so it may be any number.
            Place::There(_) => u16::MAX,
        }
    }
}

/// A cluster, or a server by itself.
struct Contender {
    name: String,
    targets: Vec<Target>,
    processes: Option<Processes>,
}

/// What happened in a slice.
struct Slice {
    measured: Measured,
    /// Counters of a cluster's nodes, after it and before it, and the time between.
    counters: Option<(Counters, Duration)>,
    load_processors: f64,
    node_processors: f64,
}

impl Slice {
    fn seconds(&self) -> f64 {
        self.measured.elapsed.as_secs_f64()
    }
    fn committed(&self) -> u64 {
        self.measured.tally.replies - self.measured.tally.zeros
    }
    fn throughput_per_s(&self) -> f64 {
        self.committed() as f64 / self.seconds()
    }
}

impl Contender {
    /// Ratios are to the first.
    fn all(options: &Options) -> Result<Vec<Contender>> {
        let Place::Here { ordo, nodes, zones, partitions, deliveries, appendfsync, directory } =
            &options.place
        else {
            let Place::There(targets) = &options.place else { unreachable!("there are two places") };
            if options.against_single {
                bail!("--against-single starts both itself: leave out --addresses");
            }
            return Ok(vec![Contender {
                name: "cluster".to_owned(),
                targets: targets.clone(),
                processes: None,
            }]);
        };
        if *nodes < 2 {
            bail!("--nodes {nodes}: a cluster has at least 2 nodes; `ordo bench redis` drives one");
        }
        if deliveries.is_empty() {
            bail!("--delivery names none");
        }
        let setting = |nodes: usize, partitions: u16, delivery: Delivery, name: &str| Setting {
            ordo: ordo.clone(),
            nodes,
            zones: nodes.min(*zones),
            partitions,
            delivery,
            appendfsync: appendfsync.clone(),
            arguments: Vec::new(),
            directory: directory.join(name),
            faketime: None,
        };
        let mut contenders = Vec::new();
        if options.against_single {
            contenders.push(Contender::start("single", setting(1, 1, Delivery::Raft, "single"))?);
        }
        for &delivery in deliveries {
            let name = match deliveries.len() {
                1 => "cluster",
                _ => delivery.name(),
            };
            contenders.push(Contender::start(name, setting(*nodes, *partitions, delivery, name))?);
        }
        Ok(contenders)
    }

    fn start(name: &str, setting: Setting) -> Result<Contender> {
        let processes = Processes::started(setting, START_MAX)?;
        Ok(Contender {
            name: name.to_owned(),
            targets: processes.addresses().into_iter().map(Target::from).collect(),
            processes: Some(processes),
        })
    }

    fn slice(&mut self, options: &Options, prepared: &mut Prepared, round: usize) -> Result<Slice> {
        let classes = vec![prepared.class(options, round)];
        let before = Counters::of_all(&self.targets)?;
        let (started, load_before) = (Instant::now(), thread_seconds());
        let nodes_before = self.process_seconds();
        let until = Until::Elapsed(options.duration);
        let mut measured = load::run(&self.targets, classes, Duration::ZERO, until)?;
        let elapsed = started.elapsed();
        let load_processors = (thread_seconds() - load_before) / elapsed.as_secs_f64();
        let node_processors = (self.process_seconds() - nodes_before) / elapsed.as_secs_f64();
        let after = Counters::of_all(&self.targets)?;
        if let Some(processes) = &mut self.processes {
            processes.hold_alive()?;
        }
        let measured = measured.remove(0);
        if let Some(error) = &measured.error {
            bail!(
                "the {} answered {} requests with an error, the first was: {error}",
                self.name,
                measured.tally.errors
            );
        }
        prepared.note(options, &measured);
        let counters =
            after.zip(before).map(|(after, before)| Ok::<_, anyhow::Error>((after.since(&before)?, elapsed)));
        Ok(Slice { measured, counters: counters.transpose()?, load_processors, node_processors })
    }

    fn ids(&self) -> Vec<u32> {
        self.processes.as_ref().map(Processes::ids).unwrap_or_default()
    }

    fn process_seconds(&self) -> f64 {
        self.ids().into_iter().map(process_seconds).sum()
    }

    fn memory_bytes(&self) -> u64 {
        if self.processes.is_some() {
            let of = |process: u32| resident_bytes_of(&process.to_string());
            return self.ids().into_iter().map(of).sum();
        }
        let of = |target: &Target| {
            let client = Client::connect(&target.host, target.port, target.password.as_deref());
            client.map_or(0, |mut client| crate::redis::memory_bytes(&mut client))
        };
        self.targets.iter().map(of).sum()
    }

    fn record(&self, options: &Options, work: Work, slices: &[Slice], ratio: Spread) -> ClusterRecord {
        let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>();
        let throughputs: Vec<f64> = slices.iter().map(Slice::throughput_per_s).collect();
        let seconds: f64 = slices.iter().map(Slice::seconds).sum();
        let committed = sum(Slice::committed);
        let mut latencies = Latencies::default();
        let mut counters = Counters::default();
        let mut counted = Duration::ZERO;
        for slice in slices {
            latencies.merge(&slice.measured.latencies);
            if let Some((of_slice, elapsed)) = &slice.counters {
                counters.add(of_slice);
                counted += *elapsed;
            }
        }
        let answered_per_s = sum(|slice| slice.measured.tally.replies) as f64 / seconds;
        let cluster =
            (!counted.is_zero()).then(|| counters.figures(self.targets.len(), counted, answered_per_s));
        let processors = |of: fn(&Slice) -> f64| {
            let all: Vec<f64> = slices.iter().map(of).collect();
            format!("{:.2}", Spread::of(&all).median)
        };
        let mut shown = BTreeMap::from([
            ("pipeline", options.pipeline.to_string()),
            ("keys", options.keys.to_string()),
            ("nodes", self.targets.len().to_string()),
            ("rounds", options.rounds.to_string()),
            ("load-processors", processors(|slice| slice.load_processors)),
            ("load-average", load_average()),
        ]);
        if let Place::Here { appendfsync, .. } = &options.place {
            shown.insert("appendfsync", appendfsync.clone());
            let nodes = processors(|slice| slice.node_processors);
            shown.insert("node-processors", nodes);
        }
        let record = Record {
            engine: self.name.clone(),
            workload: work.name().to_owned(),
            workers: options.clients,
            seconds,
            committed,
            aborted_by_logic: sum(|slice| slice.measured.tally.zeros),
            restarts: counters.restarts,
            throughput_per_s: committed as f64 / seconds,
            latency_us: latencies.summary(),
            processor_us: None,
            memory_bytes: self.memory_bytes(),
            seed: options.seed,
            ratio_to_first: ratio.median,
            ratio_spread: ratio,
            throughput_spread: Spread::of(&throughputs),
            undisturbed_spread: None,
            options: shown.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        };
        ClusterRecord { record, cluster }
    }
}

/// What agreement took, as a table.
pub fn table(report: &Report) -> Table {
    let rows = report.records.iter().filter_map(|record| {
        let figures = record.cluster?;
        let option = |name: &str| record.record.options.get(name).cloned();
        Some(vec![
            record.record.engine.clone(),
            record.record.workload.clone(),
            format!("{:.3}", figures.messages_per_transaction),
            format!("{:.0}", figures.message_bytes_per_transaction),
            report::rate(figures.epochs_per_s),
            format!("{:.1}", figures.transactions_per_epoch),
            format!("{:.1} %", figures.speculated_share * 100.0),
            figures.epochs_retracted.to_string(),
            format!("{:.3}", figures.messages_per_round),
            format!("{:.1}", figures.notes_per_message),
            option("load-processors").unwrap_or_default(),
            option("node-processors").unwrap_or_default(),
        ])
    });
    let header = [
        "cluster",
        "workload",
        "messages/transaction",
        "bytes/transaction",
        "epochs/s",
        "transactions/epoch",
        "speculated at confirmation",
        "epochs retracted",
        "siblings' messages/destination and round",
        "notes/message",
        "processors of the load",
        "of the nodes",
    ];
    report::table(&header, rows.collect())
}

/// The ratios in words, one a line; nothing if there are none.
pub fn summary(report: &Report) -> String {
    let line = |(work, what, ratio): &(Work, String, Spread)| {
        let aim = match report.aim {
            Some(aim) if *work == Work::Set => {
                let met = if ratio.median >= aim { "met" } else { "NOT met" };
                format!("; aim: {aim}, {met}")
            }
            _ => String::new(),
        };
        format!("{}, {what}: {:.3} ({:.3} - {:.3}){aim}", work.name(), ratio.median, ratio.min, ratio.max)
    };
    let lines: Vec<String> = report.ratios.iter().map(line).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests;
