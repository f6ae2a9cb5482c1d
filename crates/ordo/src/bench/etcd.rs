//! `ordo bench compare-etcd`.

use super::{duration, new_directory, program};
use anyhow::Result;
use bench::{etcd, report};
use clap::Args;
use std::path::PathBuf;

/// `ordo bench compare-etcd`.
#[derive(Args)]
pub struct EtcdArgs {
    /// etcd's server program.
    #[arg(long, default_value = "etcd")]
    etcd: PathBuf,
    /// Ordo's program: this one if not given.
    #[arg(long)]
    ordo: Option<PathBuf>,
    /// Nodes of each cluster.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Rounds: in each, both clusters are measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 8.0)]
    seconds: f64,
    /// Seconds before each measurement.
    #[arg(long, default_value_t = 2.0)]
    warm_up_seconds: f64,
    /// Writes under way at all times.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Connections to etcd that the clients share: one for each client if not given.
    #[arg(long)]
    etcd_connections: Option<usize>,
    /// Keys to draw from.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Connects clients to the leaders only, instead of all nodes in turn.
    #[arg(long)]
    leader_only: bool,
    /// Only this contender: etcd or ordo.
    #[arg(long, value_delimiter = ',')]
    only: Vec<etcd::Contender>,
    /// Where the nodes keep their data: a new directory under the system's if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs the comparison.
pub fn run(args: EtcdArgs) -> Result<()> {
    let directory = new_directory("ordo-etcd-")?;
    let options = etcd::Options {
        etcd: args.etcd,
        ordo: program(args.ordo)?,
        nodes: args.nodes,
        rounds: args.rounds,
        duration: duration(args.seconds)?,
        warm_up: duration(args.warm_up_seconds)?,
        clients: args.clients,
        etcd_connections: args.etcd_connections.unwrap_or(args.clients),
        keys: args.keys,
        leader_only: args.leader_only,
        only: args.only,
        directory: args.dir.unwrap_or_else(|| directory.path().to_owned()),
        seed: args.seed,
    };
    let found = etcd::run(&options)?;
    if args.json {
        report::print_json(&found);
    } else {
        println!("{}", etcd::table(&found));
        println!("{}", etcd::summary(&found));
    }
    Ok(())
}
