//! `ordo bench hostile`.

use super::faults::{at_least_one, drawn_seed};
use super::{new_directory, program};
use anyhow::{Result, bail};
use bench::faults::processes::Setting;
use bench::{hostile, report};
use clap::Args;
use server::cluster::Delivery;
use std::path::PathBuf;

const MIB: u64 = 1 << 20;

/// `ordo bench hostile`.
#[derive(Args)]
pub struct HostileArgs {
    /// Nodes: one server of its own, or a cluster.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    nodes: usize,
    /// Partitions of the cluster.
    #[arg(long, default_value_t = 1)]
    partitions: u16,
    /// Commands that the hostile clients send in all.
    #[arg(long, default_value_t = 100_000)]
    commands: u64,
    /// Hostile clients that work at once.
    #[arg(long, default_value_t = 2)]
    clients: u64,
    /// maxmemory of each node, in MiB; any entry may be evicted.
    #[arg(long, default_value_t = 256)]
    maxmemory_mib: u64,
    /// maxmemory-clients of each node, in MiB.
    #[arg(long, default_value_t = 256)]
    maxmemory_clients_mib: u64,
    /// The bound of each node's resident memory, in MiB.
    #[arg(long, default_value_t = 2048)]
    resident_mib: u64,
    /// Ordo's program: this one if not given.
    #[arg(long)]
    ordo: Option<PathBuf>,
    /// Where the nodes keep data and output: a new directory under the system's if not given, which stays
    /// after a failure.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of what is sent; drawn if not given.
    #[arg(long)]
    seed: Option<u64>,
    /// JSON instead of a text.
    #[arg(long)]
    json: bool,
}

/// Runs the attack.
pub fn run(args: HostileArgs) -> Result<()> {
    let seed = args.seed.unwrap_or_else(drawn_seed);
    eprintln!("seed {seed}: --seed {seed} repeats what is sent, though not the machine's timing");
    let directory = new_directory("ordo-hostile-")?;
    let given = args.dir.is_some();
    let settings = [
        ("--maxmemory", args.maxmemory_mib * MIB),
        ("--maxmemory-clients", args.maxmemory_clients_mib * MIB),
    ];
    let policy = ["--maxmemory-policy", "allkeys-random"];
    let settings = settings.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]);
    let options = hostile::Options {
        setting: Setting {
            ordo: program(args.ordo)?,
            nodes: args.nodes,
            zones: args.nodes,
            partitions: args.partitions,
            delivery: Delivery::Raft,
            appendfsync: "everysec".to_owned(),
            faketime: None,
            arguments: settings.chain(policy.map(str::to_owned)).collect(),
            directory: args.dir.unwrap_or_else(|| directory.path().to_owned()),
        },
        commands: args.commands,
        clients: args.clients,
        resident_max: args.resident_mib * MIB,
        seed,
    };
    let found = hostile::run(&options);
    if found.as_ref().map_or(true, |report| !report.problems.is_empty()) {
        if !given {
            // Whoever looks for the reason needs the data.
            let _ = directory.keep();
        }
        eprintln!("the nodes' data and output are in {}", options.setting.directory.display());
    }
    let found = found?;
    if args.json {
        report::print_json(&found);
    } else {
        println!("{}", hostile::summary(&found));
    }
    match found.problems.len() {
        0 => Ok(()),
        count => bail!("{count} problems were found"),
    }
}
