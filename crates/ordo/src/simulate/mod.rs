//! `ordo sim`.

/// `println!` for output that is piped into `head` or `less`: who stops reading ends the program quietly.
macro_rules! say {
    ($($part:tt)*) => {
        $crate::simulate::say_line(format_args!($($part)*))
    };
}

mod agreement;
mod calibrate;

use anyhow::{Context, Result, bail};
use bench::report::{ratio, shown_ratio};
use clap::{Args, Subcommand};
use comfy_table::{CellAlignment, Table, presets};
use execute::EngineKind;
use indicatif::{ProgressBar, ProgressStyle};
use sim::cluster::{Model, run_model};
use sim::cost::CostTable;
use sim::minimize::minimize;
use sim::options::{Options, SystemKind, Wishes};
use sim::run::{Report, run};
use sim::tally::Tally;
use sim::trace::Trace;
use sim::traffic::WorkloadKind;
use sim::world::{Latency, Violation};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn say_line(line: std::fmt::Arguments<'_>) {
    let Err(error) = writeln!(std::io::stdout(), "{line}") else {
        return;
    };
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    eprintln!("ordo: standard output can't be written: {error}");
    std::process::exit(1);
}

/// `ordo sim`.
#[derive(Args)]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub struct Sim {
    #[command(subcommand)]
    command: Option<SimCommand>,
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    wishes: WishArgs,
    /// With --seeds: worlds that run at once.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: u16,
    /// One JSON object per run instead of text.
    #[arg(long)]
    json: bool,
    /// With one run: writes down what happened, as text to standard output, or as a page with a sequence
    /// diagram to FILE.html (or FILE.svg).
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "seeds")]
    trace: Option<PathBuf>,
    /// Events that a trace keeps: the last ones.
    #[arg(long, default_value_t = 2_000)]
    trace_events: usize,
    /// With one run: if it fails, shrinks it and saves it as a scenario.
    #[arg(long, value_name = "FILE", num_args = 0..=1, conflicts_with = "seeds")]
    #[arg(default_missing_value = "minimized.toml")]
    minimize: Option<PathBuf>,
    /// Runs that --minimize may take.
    #[arg(long, default_value_t = 2_000)]
    minimize_runs: u64,
    /// A table of costs, as `ordo sim calibrate` prints it, instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
}

/// What else there is.
#[derive(Subcommand)]
enum SimCommand {
    /// Measures what computing costs on this machine, and prints the table for --costs.
    Calibrate(calibrate::CalibrateArgs),
    /// Models how many nodes of many processors perform: virtual time, no faults, nothing is judged.
    Model(ModelArgs),
}

/// Which runs.
#[derive(Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The seed of one run.
    #[arg(long)]
    seed: Option<u64>,
    /// The seeds of many runs: A..B, both included; or a number of them, from a random one on.
    #[arg(long, value_name = "A..B")]
    seeds: Option<String>,
    /// A file with options and faults.
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
}

/// Options that are drawn from the seed unless they are given.
#[derive(Args)]
#[command(next_help_heading = "Options that are otherwise drawn from the seed")]
struct WishArgs {
    /// ordo (a node that stands alone), cluster (nodes that replicate partitions), register (a replicated
    /// register, the smallest certified protocol), dur (deferred update replication, certified, too),
    /// two-phase commit between partitions with one of its rules: no-wait, timestamp, mvcc or maat; a tree of
    /// validators: hierarchy-locks or hierarchy-timestamps; or pcsi (sites in several regions that commit
    /// alone).
    #[arg(long)]
    system: Option<SystemKind>,
    /// Hosts. With --system ordo there is one.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    nodes: Option<u16>,
    /// Zones to which the nodes of a cluster are dealt: as many as nodes, unless given.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    zones: Option<u16>,
    /// Partitions of a cluster.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: Option<u16>,
    /// Whether the partitions of a cluster share one key space, so that transactions go over several of them.
    /// If not, each has records of its own.
    #[arg(long, value_parser = ["on", "off"])]
    across: Option<String>,
    /// programs, redis, append, bank or tpcc.
    #[arg(long)]
    workload: Option<WorkloadKind>,
    /// serial, calvin, qstore, parspec, ssmr or sparkle.
    #[arg(long, value_parser = EngineKind::correct_of)]
    engine: Option<EngineKind>,
    /// How the groups of a cluster agree: raft or mimox.
    #[arg(long)]
    delivery: Option<agree::Delivery>,
    /// Virtual workers of a node.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    workers: Option<u16>,
    /// always, everysec or no.
    #[arg(long)]
    fsync: Option<node::FsyncPolicy>,
    /// Clients.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    clients: Option<u16>,
    /// Commands of a client.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Commands of a client that are on their way at once.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pipeline: Option<u64>,
    /// Whether anything may go wrong.
    #[arg(long, value_parser = ["on", "off"])]
    faults: Option<String>,
}

impl WishArgs {
    fn wishes(&self) -> Wishes {
        Wishes {
            system: self.system,
            nodes: self.nodes,
            zones: self.zones,
            partitions: self.partitions,
            across: self.across.as_deref().map(|word| word == "on"),
            workload: self.workload,
            engine: self.engine,
            delivery: self.delivery,
            workers: self.workers,
            fsync: self.fsync,
            clients: self.clients,
            operations: self.operations,
            pipeline: self.pipeline,
            faults: self.faults.as_deref().map(|word| word == "on"),
        }
    }
}

/// Runs the command.
pub fn run_command(sim: &Sim) -> Result<()> {
    match &sim.command {
        Some(SimCommand::Calibrate(arguments)) => return calibrate::run(arguments),
        Some(SimCommand::Model(arguments)) => return model(arguments),
        None => {}
    }
    let costs = sim.costs.as_deref().map(read_costs).transpose()?;
    let wishes = sim.wishes.wishes();
    if let Some(seeds) = &sim.what.seeds {
        return many(sim, &wishes, costs, parse_seeds(seeds)?);
    }
    let mut options = match (&sim.what.scenario, sim.what.seed) {
        (Some(path), _) => {
            if !wishes.to_flags().is_empty() {
                bail!("a scenario file says what a run is like: leave out{}", wishes.to_flags());
            }
            let text =
                std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            Options::from_toml(&text)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("{} is no scenario", path.display()))?
        }
        (None, seed) => Options::draw(seed.unwrap_or(1), &wishes),
    };
    options.costs = costs.unwrap_or(options.costs);
    options.check().map_err(anyhow::Error::msg)?;
    one(sim, &wishes, &options)
}

fn read_costs(path: &Path) -> Result<CostTable> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text)
        .with_context(|| format!("{} is no table of costs: `ordo sim calibrate` prints one", path.display()))
}

fn parse_seeds(text: &str) -> Result<RangeInclusive<u64>> {
    let number = |text: &str| {
        text.parse::<u64>()
            .with_context(|| format!("--seeds takes A..B or a number, and '{text}' is no number"))
    };
    match text.split_once("..") {
        Some((first, last)) => {
            let range = number(first)?..=number(last.trim_start_matches('='))?;
            if range.is_empty() {
                bail!("--seeds {text} names no seed: the first must not be larger than the last");
            }
            Ok(range)
        }
        None => {
            let count = number(text)?;
            if count == 0 {
                bail!("--seeds 0 names no seed: give how many");
            }
            let first = u64::from(std::process::id()) << 32
                | std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .map_or(0, |since| u64::from(since.subsec_nanos()));
            Ok(first..=first + count - 1)
        }
    }
}

/// The command that replays a run.
fn replay(sim: &Sim, wishes: &Wishes, options: &Options) -> String {
    let costs = sim.costs.as_ref().map_or(String::new(), |path| format!(" --costs {}", path.display()));
    match &sim.what.scenario {
        Some(path) => format!("ordo sim --scenario {}{costs}", path.display()),
        None => format!("ordo sim --seed {}{}{costs}", options.seed, wishes.to_flags()),
    }
}

/// One run, with all that one may want to know of it.
fn one(sim: &Sim, wishes: &Wishes, options: &Options) -> Result<()> {
    if !sim.json {
        say!("{options}\n  {}", sim::run::describe(options));
        if options.costs != CostTable::DEFAULT {
            say!("  {:?}", options.costs);
        }
    }
    let outcome = run(options, sim.trace.is_some().then(|| Trace::new(sim.trace_events)));
    let command = replay(sim, wishes, options);
    if let (Some(path), Some(trace)) = (&sim.trace, &outcome.trace) {
        write_trace(path, trace, options, &command)?;
    }
    if sim.json {
        say!("{}", to_json(options, &outcome.report, outcome.violation.as_ref()));
    } else {
        print_report(&outcome.report);
    }
    let Some(violation) = outcome.violation else {
        if !sim.json {
            say!("no oracle has found anything");
        }
        if sim.minimize.is_some() {
            eprintln!("the run did not fail: there is nothing to shrink, and no file was written");
        }
        return Ok(());
    };
    if let Some(path) = &sim.minimize {
        let bar = ProgressBar::new_spinner();
        let minimized = minimize(options, &violation, sim.minimize_runs, &mut |runs, best| {
            bar.set_message(format!(
                "{runs} runs; {} faults, {} clients with {} commands",
                best.faults.len(),
                best.clients,
                best.operations
            ));
            bar.tick();
        });
        bar.finish_and_clear();
        let text = format!(
            "# A failing run, shrunk from: {command}\n# {}\n{}",
            minimized.violation.to_string().replace('\n', "\n# "),
            minimized.options.to_toml()
        );
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
        eprintln!(
            "shrunk in {} runs to:\n{}\n{}\nsaved; replay it: ordo sim --scenario {}",
            minimized.runs,
            minimized.options,
            minimized.violation,
            path.display()
        );
    }
    bail!("{violation}\nreplay it: {command}")
}

fn write_trace(path: &Path, trace: &Trace, options: &Options, command: &str) -> Result<()> {
    if path == Path::new("-") {
        say!("{}", trace.text());
        return Ok(());
    }
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => {
            trace.html(&format!("ordo sim, seed {}", options.seed), &format!("{options}\n{command}"))
        }
        Some("svg") => trace.svg(),
        _ => trace.text(),
    };
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    eprintln!("what happened is in {}", path.display());
    Ok(())
}

fn print_report(report: &Report) {
    let Report { account, tally } = report;
    say!(
        "digest {:016x}; {} events and {} operations in {:.3} s of virtual time; {} frames",
        account.digest,
        account.events,
        tally.operations,
        account.virtual_ns as f64 / 1e9,
        account.frames
    );
    let Tally {
        committed,
        rolled_back,
        shared,
        widened,
        moved,
        snapshot_reads,
        refused,
        unknown,
        ends,
        checkpoints,
        restarts,
        executed,
        speculated,
        disks_refused,
        replaced,
        placed,
        left,
        ..
    } = tally;
    say!(
        "{committed} ordered transactions ({rolled_back} rolled back), {snapshot_reads} reads at \
         snapshots, {refused} refused, {unknown} of unknown outcome; {ends} processes ended, {checkpoints} \
         checkpoints, {restarts} incarnations thrown away"
    );
    if *shared > 0 {
        say!(
            "{shared} of them ran at several partitions; slots moved {moved} times; {widened} came again \
             because they touched partitions that they had not named, or because slots had moved"
        );
    }
    if *placed > 0 {
        say!("replicas moved to another node {placed} times");
    }
    if *replaced > 0 {
        say!(
            "{replaced} nodes were replaced: {left} processes ended as they should, {disks_refused} were \
             refused because their disk was lost"
        );
    }
    if *executed > 0 {
        say!(
            "{speculated} of {executed} executions at replicas ({} %) were speculatively committed when \
             their epoch was confirmed",
            speculated * 100 / executed
        );
    }
}

fn to_json(options: &Options, report: &Report, violation: Option<&Violation>) -> serde_json::Value {
    let Report { account, tally } = report;
    serde_json::json!({
        "seed": options.seed,
        "options": options,
        "digest": format!("{:016x}", account.digest),
        "events": account.events,
        "operations": tally.operations,
        "virtual_ms": account.virtual_ns / 1_000_000,
        "frames": account.frames,
        "committed": tally.committed,
        "rolled_back": tally.rolled_back,
        "over_several_partitions": tally.shared,
        "widened": tally.widened,
        "moved": tally.moved,
        "snapshot_reads": tally.snapshot_reads,
        "refused": tally.refused,
        "unknown": tally.unknown,
        "processes_ended": tally.ends,
        "checkpoints": tally.checkpoints,
        "restarts": tally.restarts,
        "disks_refused": tally.disks_refused,
        "replicas_placed": tally.placed,
        "nodes_left": tally.left,
        "nodes_replaced": tally.replaced,
        "executed": tally.executed,
        "speculated": tally.speculated,
        "oracle": violation.map(|violation| violation.oracle),
        "violation": violation.map(|violation| violation.text.clone()),
    })
}

/// What many runs have found.
#[derive(Default)]
struct Findings {
    runs: u64,
    twice: u64,
    tally: Tally,
    virtual_ns: u64,
    failed: BTreeMap<u64, Violation>,
}

/// Of so many seeds one is run twice: it must give the same run.
const TWICE_EVERY: u64 = 10;
/// Failures that are told in full.
const TOLD_MAX: usize = 10;

fn many(sim: &Sim, wishes: &Wishes, costs: Option<CostTable>, seeds: RangeInclusive<u64>) -> Result<()> {
    let (first, last) = (*seeds.start(), *seeds.end());
    // What is asked for may be impossible, whatever the seed.
    Options::draw(first, wishes).check().map_err(anyhow::Error::msg)?;
    if !sim.json {
        say!("seeds {first}..{last}{}", wishes.to_flags());
    }
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let findings = Mutex::new(Findings::default());
    let bar = ProgressBar::new(last - first + 1).with_style(
        ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {per_sec}, {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > last || seed < first {
                return;
            }
            let mut options = Options::draw(seed, wishes);
            options.costs = costs.unwrap_or(options.costs);
            let outcome = run(&options, None);
            let mut violation = outcome.violation;
            let mut twice = 0;
            if violation.is_none() && seed.is_multiple_of(TWICE_EVERY) {
                twice = 1;
                let again = run(&options, None);
                if again.report.account != outcome.report.account {
                    violation = Some(Violation::new(
                        "determinism",
                        format!(
                            "the seed gave {:?} and then {:?}",
                            outcome.report.account, again.report.account
                        ),
                    ));
                }
            }
            if sim.json {
                say!("{}", to_json(&options, &outcome.report, violation.as_ref()));
            }
            let mut findings = findings.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            findings.runs += 1;
            findings.twice += twice;
            findings.tally.add(&outcome.report.tally);
            findings.virtual_ns += outcome.report.account.virtual_ns;
            if let Some(violation) = violation {
                let place = findings.failed.len();
                if place < TOLD_MAX && !sim.json {
                    bar.suspend(|| {
                        say!("{options}\n{violation}\nreplay it: {}\n", replay(sim, wishes, &options));
                    });
                }
                findings.failed.insert(seed, violation);
            }
            bar.set_message(format!("{} failed", findings.failed.len()));
            bar.inc(1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..sim.jobs {
            scope.spawn(work);
        }
    });
    bar.finish_and_clear();
    let findings = findings.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let elapsed_s = started.elapsed().as_secs_f64();
    if !sim.json {
        print_findings(&findings, elapsed_s, sim.jobs);
    }
    if findings.failed.is_empty() {
        return Ok(());
    }
    let seeds: Vec<String> = findings.failed.keys().map(u64::to_string).collect();
    bail!("{} of {} seeds failed: {}", findings.failed.len(), findings.runs, seeds.join(", "))
}

fn print_findings(findings: &Findings, elapsed_s: f64, jobs: u16) {
    let Findings { runs, twice, tally, virtual_ns, failed } = findings;
    let transactions = tally.committed + tally.snapshot_reads;
    say!(
        "{runs} seeds in {elapsed_s:.1} s ({:.0} a second; {twice} of them run twice): {transactions} \
         transactions ({:.0} a wall second and job), {} over several partitions, {} rolled back, {} \
         refused, {} of unknown outcome; {} processes ended, {} checkpoints; {:.0} s of virtual time",
        *runs as f64 / elapsed_s,
        transactions as f64 / elapsed_s / f64::from(jobs),
        tally.shared,
        tally.rolled_back,
        tally.refused,
        tally.unknown,
        tally.ends,
        tally.checkpoints,
        *virtual_ns as f64 / 1e9
    );
    let mut oracles: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for (seed, violation) in failed {
        oracles.entry(violation.oracle).or_default().push(*seed);
    }
    for (oracle, seeds) in oracles {
        say!("{oracle}: {} seeds, the first is {}", seeds.len(), seeds[0]);
    }
    if failed.is_empty() {
        say!("no oracle has found anything");
    }
}

/// `ordo sim model`.
#[derive(Args)]
struct ModelArgs {
    /// ordo: a node that stands alone. cluster: one cluster, with and without execution during agreement.
    #[arg(long, default_value = "ordo", value_parser = model_system)]
    system: SystemKind,
    /// Of a cluster: how many nodes, 3 if left out. With several numbers, one model each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    nodes: Vec<u16>,
    /// Virtual processors of a node: 1, 2, 4, 8 and 16 if left out, 8 of a cluster's. With several numbers,
    /// one model each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    workers: Vec<u16>,
    /// serial, calvin, qstore, parspec, ssmr or sparkle. With several, one model each.
    #[arg(long, default_value = "sparkle", value_delimiter = ',', value_parser = EngineKind::correct_of)]
    engine: Vec<EngineKind>,
    /// How the groups of a cluster agree: raft or mimox.
    #[arg(long, default_value_t)]
    delivery: agree::Delivery,
    /// bank, tpcc, redis, programs or append.
    #[arg(long, default_value = "bank")]
    workload: WorkloadKind,
    /// Warehouses of TPC-C.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    warehouses: u32,
    /// Clients: 32 for each processor if left out. Too few of them are all that is measured. Of a cluster: in
    /// all, 1, 8 and 64 if left out; with several numbers, one model each.
    #[arg(long, value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..))]
    clients: Vec<u16>,
    /// Commands of each client: 50 if left out, 200 with a cluster.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Commands of a client that are on their way at once: 16 if left out, 1 with a cluster.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pipeline: Option<u64>,
    /// always, everysec or no.
    #[arg(long, default_value = "always")]
    fsync: node::FsyncPolicy,
    /// Base latency inside a zone, in microseconds.
    #[arg(long, default_value_t = Latency::STEADY.zone_us)]
    latency_us: u64,
    /// Of a cluster: partitions.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: u16,
    /// Of a cluster: latency between zones, one way, in microseconds. With several numbers, one model each.
    #[arg(long, default_value = "2000,1000", value_delimiter = ',')]
    between_zones_us: Vec<u64>,
    /// Of a cluster: what executing a transaction takes a processor, in microseconds.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    work_us: u64,
    /// Seed of the calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A table of costs, as `ordo sim calibrate` prints it, instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// One JSON object per model instead of a table.
    #[arg(long)]
    json: bool,
}

/// Certified protocols have no model.
fn model_system(name: &str) -> Result<SystemKind, String> {
    match name.parse::<SystemKind>()? {
        system if system.is_certified() => Err("ordo and cluster have a model".to_owned()),
        system => Ok(system),
    }
}

fn model(arguments: &ModelArgs) -> Result<()> {
    if arguments.system == SystemKind::Cluster {
        return agreement::run(arguments);
    }
    let clients = match arguments.clients[..] {
        [] => None,
        [clients] => Some(clients),
        _ => bail!("--clients takes several numbers only with --system cluster"),
    };
    if !arguments.nodes.is_empty() {
        bail!("--nodes is for --system cluster: a node that stands alone is one");
    }
    let workers = match &arguments.workers[..] {
        [] => &[1, 2, 4, 8, 16],
        given => given,
    };
    let operations = arguments.operations.unwrap_or(50);
    let pipeline = arguments.pipeline.unwrap_or(16);
    let (costs, calibration) = match &arguments.costs {
        Some(path) => (read_costs(path)?, format!("calibrated: {}", path.display())),
        None => (CostTable::DEFAULT, "the built-in table of costs".to_owned()),
    };
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "engine",
        "workers",
        "modelled tx/s",
        "a worker",
        "a worker, to the first",
        "mean us",
        "max us",
        "restarts",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for &engine in &arguments.engine {
        let mut first_per_worker: Option<f64> = None;
        for &workers in workers {
            let clients = clients.unwrap_or(workers.saturating_mul(32));
            let wishes = Wishes {
                system: Some(SystemKind::Ordo),
                nodes: None,
                zones: None,
                partitions: None,
                across: Some(false),
                workload: Some(arguments.workload),
                engine: Some(engine),
                delivery: None,
                workers: Some(workers),
                fsync: Some(arguments.fsync),
                clients: Some(clients),
                operations: Some(operations),
                pipeline: Some(pipeline),
                faults: Some(false),
            };
            let options = Options {
                capacity: 4_096,
                in_flight: 65_536,
                checkpoint_bytes: 0,
                segment_bytes: 1 << 20,
                think_us: 0,
                timeout_ms: 60_000,
                zones: 1,
                jitter: false,
                warehouses: arguments.warehouses,
                latency: Latency { zone_us: arguments.latency_us, ..Latency::STEADY },
                costs,
                ..Options::draw(arguments.seed, &wishes)
            };
            let started = Instant::now();
            let (outcome, _) = run_model(&options, Model { speculate: true, work_ns: 0 });
            if let Some(violation) = outcome.violation {
                bail!("{options}\n{violation}");
            }
            let tally = outcome.report.tally;
            let transactions = tally.committed + tally.snapshot_reads;
            let seconds = (tally.last_ns - tally.first_ns) as f64 / 1e9;
            let per_s = ratio(transactions as f64, seconds).unwrap_or(0.0);
            let per_worker = per_s / f64::from(workers);
            let base = *first_per_worker.get_or_insert(per_worker);
            let to_first = ratio(per_worker, base);
            let mean_us = ratio(tally.latency_ns as f64, transactions as f64).unwrap_or(0.0) / 1e3;
            if arguments.json {
                say!(
                    "{}",
                    serde_json::json!({
                        "modelled": true, "calibration": calibration, "costs": costs,
                        "engine": engine.name(), "workers": workers,
                        "workload": arguments.workload.name(), "seed": arguments.seed,
                        "transactions": transactions, "throughput_per_s": per_s,
                        "throughput_per_s_and_worker": per_worker,
                        "ratio_to_first_per_worker": to_first,
                        "latency_us": {"mean": mean_us, "max": tally.latency_max_ns / 1_000},
                        "restarts": tally.restarts, "virtual_s": seconds,
                        "wall_s": started.elapsed().as_secs_f64(),
                    })
                );
                continue;
            }
            table.add_row([
                engine.name().to_owned(),
                workers.to_string(),
                format!("{per_s:.0}"),
                format!("{per_worker:.0}"),
                shown_ratio(to_first),
                format!("{mean_us:.0}"),
                (tally.latency_max_ns / 1_000).to_string(),
                tally.restarts.to_string(),
            ]);
        }
    }
    if !arguments.json {
        say!("{table}");
        say!(
            "modelled, not measured: virtual time; {calibration}; {} us inside a zone, {} Gbit/s a link; a \
             command costs {} ns to take in, a batch {} ns, a request {} ns, an operation of sparkle {} \
             ns, a sync {} us; a batch is what arrives while the one before is taken in; {} clients keep {} \
             commands on their way each",
            arguments.latency_us,
            Latency::STEADY.bytes_per_us as f64 / 125.0,
            costs.command_ns,
            costs.batch_ns,
            costs.request_ns,
            costs.sparkle_operation_ns,
            costs.sync_ns / 1_000,
            clients.map_or("32 times its workers".to_owned(), |clients| clients.to_string()),
            pipeline
        );
    }
    Ok(())
}
