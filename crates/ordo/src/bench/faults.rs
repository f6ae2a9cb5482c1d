//! `ordo bench faults`.

use super::{new_directory, program};
use anyhow::{Result, bail};
use bench::faults::clocks::library;
use bench::faults::network::Network;
use bench::faults::processes::Setting;
use bench::faults::script::Fault;
use bench::{faults, report};
use clap::Args;
use std::path::PathBuf;

/// `ordo bench faults`.
#[derive(Args)]
pub struct FaultsArgs {
    /// Nodes: one server of its own, or a cluster.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Zones to which they are dealt [default: as many]. With fewer, each node keeps some of the partitions
    /// only.
    #[arg(long, value_parser = at_least_one)]
    zones: Option<usize>,
    /// Partitions of the cluster.
    #[arg(long, default_value_t = 1)]
    partitions: u16,
    /// How the replicas of a partition agree: raft or mimox.
    #[arg(long, default_value_t)]
    delivery: agree::Delivery,
    /// Rounds: one fault in each.
    #[arg(long, default_value_t = 10, value_parser = at_least_one)]
    rounds: usize,
    /// Only these faults; all that are possible if not given. An unknown name lists them.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Set the nodes' clocks by up to an hour, and judge times to live. Only that, unless --faults says
    /// otherwise. Needs libfaketime (Debian: apt-get install faketime), which the nodes run under; it leaves
    /// the monotonic clock as it is.
    #[arg(long)]
    clock_steps: bool,
    /// Where libfaketimeMT.so.1 is, if not where Debian has it.
    #[arg(long, requires = "clock_steps")]
    faketime: Option<PathBuf>,
    /// namespaces gives each node a network of its own and needs root; loopback can cut no links.
    #[arg(long, default_value = "namespaces", value_parser = ["namespaces", "loopback"])]
    network: String,
    /// Connections.
    #[arg(long, default_value_t = 12)]
    clients: u64,
    /// always, everysec or no. A killed process loses nothing with any of them.
    #[arg(long, default_value = "always")]
    appendfsync: String,
    /// Ordo's program: this one if not given.
    #[arg(long)]
    ordo: Option<PathBuf>,
    /// Where the nodes keep data and output: a new directory under the system's if not given, which stays
    /// after a failure.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of the faults, their instants and the clients' work; drawn if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("without a round nothing is tried: give at least 1".to_owned()),
        Ok(number) => Ok(number),
        Err(_) => Err("it is not a number".to_owned()),
    }
}

/// Runs the script.
pub fn run(args: FaultsArgs) -> Result<()> {
    let namespaces = args.network == "namespaces";
    if namespaces && let Some(missing) = Network::missing() {
        bail!("{missing}; --network loopback works without, and leaves out faults of links");
    }
    let faketime = match (args.clock_steps, args.faketime) {
        (false, _) => None,
        (true, Some(library)) => Some(library),
        (true, None) => Some(library()?),
    };
    let seed = args.seed.unwrap_or_else(drawn_seed);
    eprintln!("seed {seed}: --seed {seed} repeats the script, though not the machine's timing");
    let directory = new_directory("ordo-faults-")?;
    let given = args.dir.is_some();
    let options = faults::Options {
        setting: Setting {
            ordo: program(args.ordo)?,
            nodes: args.nodes,
            zones: args.zones.unwrap_or(args.nodes),
            partitions: args.partitions,
            delivery: args.delivery,
            appendfsync: args.appendfsync,
            arguments: Vec::new(),
            faketime,
            directory: args.dir.unwrap_or_else(|| directory.path().to_owned()),
        },
        namespaces,
        rounds: args.rounds,
        clients: args.clients,
        only: args.faults,
        seed,
    };
    let found = faults::run(&options);
    let failed = found.as_ref().map_or(true, |report| report.failed > 0);
    // What was refused before any node was started leaves nothing to look at.
    let left =
        std::fs::read_dir(&options.setting.directory).is_ok_and(|mut entries| entries.next().is_some());
    if failed && left {
        if !given {
            // Whoever looks for the reason needs the data.
            let _ = directory.keep();
        }
        let kept = options.setting.directory.display();
        eprintln!("the nodes' data and output are in {kept}");
    }
    let found = found?;
    if args.json {
        report::print_json(&found);
    } else {
        println!("{}", faults::table(&found));
        println!("{}", faults::summary(&found));
    }
    if let Some(round) = found.rounds.iter().find(|round| !round.problems.is_empty()) {
        bail!("round {} ({}) went wrong:\n  {}", round.round, round.what, round.problems.join("\n  "));
    }
    Ok(())
}

/// A seed that nobody chose.
pub(super) fn drawn_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos())) ^ u64::from(std::process::id()) << 32
}
