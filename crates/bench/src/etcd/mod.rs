//! etcd and Ordo side by side: what each acknowledges when every write is agreed among three nodes and on
//! their disks.
//!
//! Both run on this machine's loopback interface, start with nothing and keep what they are told with an
//! fsync at every node (etcd always does; Ordo with `appendfsync always`). The writes are alike: keys of 16
//! bytes drawn from as many, values of 16 bytes, one write under way per client. In each round one cluster is
//! started, warmed up, measured and killed, then the other; the order alternates.
//!
//! The load must not be what is measured. Each cluster is driven by one thread, which speaks gRPC ([`http2`])
//! or RESP with prebuilt requests, and how much processor time that thread took is reported beside the
//! figures, and the servers'.

mod http2;
mod load;
mod members;

use crate::child::interruption;
use crate::engine::load_average;
use crate::faults::processes::{Processes, Setting};
use crate::progress::Progress;
use crate::redis::load::{Class, Measured, Target, Until};
use crate::redis::template::{Part, Template};
use crate::report::{self, Spread, rate};
use anyhow::{Context, Result, bail};
use comfy_table::Table;
use load::Puts;
use members::Members;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use server::cluster::Delivery;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The ratio wanted of three nodes.
const BAR: f64 = 3.0;
/// A cluster that is not up by then will not be.
const START_MAX: Duration = Duration::from_secs(30);

/// A comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// etcd's server program.
    pub etcd: PathBuf,
    /// Ordo's program.
    pub ordo: PathBuf,
    /// Nodes of each cluster.
    pub nodes: usize,
    /// Rounds: in each, both clusters are measured.
    pub rounds: usize,
    /// The length of a measurement.
    pub duration: Duration,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// Writes under way at all times.
    pub clients: usize,
    /// Connections to etcd that the clients share; to Ordo, each client has its own.
    pub etcd_connections: usize,
    /// Keys to draw from.
    pub keys: u64,
    /// Whether clients connect to the leaders only, or to all nodes in turn.
    pub leader_only: bool,
    /// The contenders wanted; both if empty.
    pub only: Vec<Contender>,
    /// Where the nodes keep their data.
    pub directory: PathBuf,
    /// The seed of the keys drawn.
    pub seed: u64,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contender {
    /// etcd.
    Etcd,
    /// Ordo.
    Ordo,
}

impl std::str::FromStr for Contender {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Contender> {
        match name {
            "etcd" => Ok(Contender::Etcd),
            "ordo" => Ok(Contender::Ordo),
            other => bail!("'{other}': etcd or ordo"),
        }
    }
}

/// What a contender did, over the rounds.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Who.
    pub contender: Contender,
    /// Acknowledged writes per second.
    pub throughput_per_s: Spread,
    /// The median latency of a round.
    pub p50_us: Spread,
    /// 99 of 100 writes of a round took at most this.
    pub p99_us: Spread,
    /// Processor time of the thread that makes the load, by the time it ran: near 1, it is what is measured.
    pub load_processors: Spread,
    /// Processor time of all nodes, by the time that the load ran.
    pub server_processors: Spread,
}

/// A comparison's outcome.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// One for each contender.
    pub records: Vec<Record>,
    /// Ordo by etcd, round by round; none if only one of them ran.
    pub ratio: Option<Spread>,
    /// The least ratio wanted; none unless there are three nodes.
    pub bar: Option<f64>,
    /// Whether the median ratio meets the bar.
    pub met: Option<bool>,
    /// Nodes of each cluster.
    pub nodes: usize,
    /// Writes under way at all times.
    pub clients: usize,
    /// Connections to etcd.
    pub etcd_connections: usize,
    /// Whether clients connected to the leaders only.
    pub leader_only: bool,
    /// Keys that were drawn from.
    pub keys: u64,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The seed of the keys drawn.
    pub seed: u64,
    /// The machine's load at the end.
    pub load_average: String,
}

/// One measurement.
struct Figures {
    throughput_per_s: f64,
    p50_us: f64,
    p99_us: f64,
    load_processors: f64,
    server_processors: f64,
}

/// Runs the comparison.
pub fn run(options: &Options) -> Result<Report> {
    if options.rounds == 0 || options.nodes == 0 || options.clients == 0 || options.keys == 0 {
        bail!("--rounds, --nodes, --clients and --keys must be at least 1");
    }
    let wanted = |contender: &Contender| options.only.is_empty() || options.only.contains(contender);
    let contenders: Vec<Contender> = [Contender::Etcd, Contender::Ordo].into_iter().filter(wanted).collect();
    let progress = Progress::new((options.rounds * contenders.len()) as u64);
    let mut found: Vec<Vec<Figures>> = contenders.iter().map(|_| Vec::new()).collect();
    let interrupted = interruption()?;
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            if interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let contender = contenders[index];
            progress.say(format!("round {}: {contender:?}", round + 1));
            let directory = options.directory.join(format!("{contender:?}-{round}").to_lowercase());
            let figures = match contender {
                Contender::Etcd => measure_etcd(options, &directory)?,
                Contender::Ordo => measure_ordo(options, &directory)?,
            };
            found[index].push(figures);
            // The next one finds the disk as this one did.
            std::fs::remove_dir_all(&directory)
                .with_context(|| format!("could not remove {}", directory.display()))?;
            progress.advance();
        }
    }
    let column = |figures: &[Figures], of: fn(&Figures) -> f64| figures.iter().map(of).collect::<Vec<f64>>();
    let ratio = (found.len() == 2).then(|| {
        let throughput = |index: usize| column(&found[index], |figures| figures.throughput_per_s);
        Spread::of_ratios(&throughput(1), &throughput(0))
    });
    let bar = (options.nodes == 3 && ratio.is_some()).then_some(BAR);
    let records = contenders.iter().zip(&found).map(|(&contender, figures)| {
        let spread = |of| Spread::of(&column(figures, of));
        Record {
            contender,
            throughput_per_s: spread(|figures| figures.throughput_per_s),
            p50_us: spread(|figures| figures.p50_us),
            p99_us: spread(|figures| figures.p99_us),
            load_processors: spread(|figures| figures.load_processors),
            server_processors: spread(|figures| figures.server_processors),
        }
    });
    Ok(Report {
        records: records.collect(),
        ratio,
        bar,
        met: bar.zip(ratio).map(|(bar, ratio)| ratio.median >= bar),
        nodes: options.nodes,
        clients: options.clients,
        etcd_connections: options.etcd_connections,
        leader_only: options.leader_only,
        keys: options.keys,
        seconds: options.duration.as_secs_f64(),
        rounds: options.rounds,
        seed: options.seed,
        load_average: load_average(),
    })
}

fn measure_etcd(options: &Options, directory: &Path) -> Result<Figures> {
    let members = Members::start(&options.etcd, options.nodes, directory)?;
    let addresses = if options.leader_only { vec![members.leader()?] } else { members.addresses() };
    let puts = Puts {
        members: &addresses,
        clients: options.clients,
        connections: options.etcd_connections.min(options.clients),
        keys: options.keys,
        warm_up: options.warm_up,
        duration: options.duration,
        seed: options.seed,
    };
    figures(&members.processes(), || load::run(&puts))
}

fn measure_ordo(options: &Options, directory: &Path) -> Result<Figures> {
    let setting = Setting {
        ordo: options.ordo.clone(),
        nodes: options.nodes,
        zones: options.nodes,
        partitions: 1,
        delivery: Delivery::Raft,
        appendfsync: "always".to_owned(),
        arguments: Vec::new(),
        directory: directory.to_owned(),
        faketime: None,
    };
    let processes = Processes::started(setting, START_MAX)?;
    let mut addresses = processes.addresses();
    if options.leader_only {
        addresses = vec![addresses[processes.leader(0)?]];
    }
    let targets: Vec<Target> = addresses.into_iter().map(Target::from).collect();
    let key = [Part::Text("key:"), Part::Number { digits: 12, bound: options.keys, fresh: false }];
    let args: [&[Part<'_>]; 3] = [&[Part::Text("SET")], &key, &[Part::Text("0123456789abcdef")]];
    let template = |client: usize| Template::new(&args, 1, options.seed ^ (client as u64) << 32);
    let class = || Class { templates: (0..options.clients).map(template).collect(), pipeline: 1 };
    figures(&processes.ids(), || {
        let until = Until::Elapsed(options.duration);
        let mut measured = crate::redis::load::run(&targets, vec![class()], options.warm_up, until)?;
        let measured = measured.remove(0);
        if let Some(error) = &measured.error {
            bail!("Ordo answered {} requests with an error, the first was: {error}", measured.tally.errors);
        }
        Ok(measured)
    })
}

/// Runs a load against processes.
fn figures(processes: &[u32], load: impl FnOnce() -> Result<Measured>) -> Result<Figures> {
    let (started, load_before) = (Instant::now(), thread_seconds());
    let servers_before: f64 = processes.iter().copied().map(process_seconds).sum();
    let measured = load()?;
    let servers: f64 = processes.iter().copied().map(process_seconds).sum();
    let elapsed = started.elapsed().as_secs_f64();
    let latency = measured.latencies.summary();
    Ok(Figures {
        throughput_per_s: measured.tally.replies as f64 / measured.elapsed.as_secs_f64(),
        p50_us: latency.p50,
        p99_us: latency.p99,
        load_processors: (thread_seconds() - load_before) / elapsed,
        server_processors: (servers - servers_before) / elapsed,
    })
}

/// Processor time of this thread.
pub(crate) fn thread_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Processor time of a process with all its threads.
pub(crate) fn process_seconds(process: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name, in parentheses, may contain anything. User time and system time are fields 14 and 15, the one
    // behind the name is field 3.
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let ticks: u64 =
        behind.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    ticks as f64 / rustix::param::clock_ticks_per_second() as f64
}

/// The records as a table.
pub fn table(report: &Report) -> Table {
    let rows = report.records.iter().map(|record| {
        let spread =
            |spread: Spread| format!("{} ({} - {})", rate(spread.median), rate(spread.min), rate(spread.max));
        vec![
            format!("{:?}", record.contender).to_lowercase(),
            spread(record.throughput_per_s),
            spread(record.p50_us),
            spread(record.p99_us),
            format!("{:.2}", record.load_processors.median),
            format!("{:.2}", record.server_processors.median),
        ]
    });
    let header = ["contender", "writes/s", "p50 us", "p99 us", "processors of the load", "of the nodes"];
    report::table(&header, rows.collect())
}

/// The outcome in words.
pub fn summary(report: &Report) -> String {
    let Some(ratio) = report.ratio else {
        return "One contender only: no ratio.".to_owned();
    };
    let bar = report.bar.map_or(String::new(), |bar| {
        let met = if report.met == Some(true) { "met" } else { "NOT met" };
        format!("; wanted: at least {bar}, {met}")
    });
    format!(
        "ordo / etcd: {:.2} ({:.2} - {:.2}) in {} rounds{bar}",
        ratio.median, ratio.min, ratio.max, report.rounds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_counted() {
        let (thread, process) = (thread_seconds(), process_seconds(std::process::id()));
        let started = Instant::now();
        let mut number = 1_u64;
        // Ticks of the process are 10 ms.
        while thread_seconds() < thread + 0.05 {
            number = txn::hash::mix(number);
        }
        assert!(number != 0 && started.elapsed() >= Duration::from_millis(50));
        assert!(process_seconds(std::process::id()) >= process + 0.03);
    }
}
