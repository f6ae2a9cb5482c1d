//! `ordo bench cluster`.

use super::{duration, new_directory, program};
use anyhow::{Context, Result};
use bench::cluster::{self, Place, Work};
use bench::redis::load::Target;
use bench::report;
use clap::Args;
use std::path::PathBuf;

/// `ordo bench cluster`.
#[derive(Args)]
pub struct ClusterArgs {
    /// Workloads, one after the other: get, set, incr, transfer, transfer-across.
    #[arg(long, default_value = "set", value_delimiter = ',')]
    workload: Vec<Work>,
    /// Nodes to start.
    #[arg(long, default_value_t = 3)]
    nodes: usize,
    /// Zones to which they are dealt, one for each node if not given. With fewer, each node keeps some of the
    /// partitions only.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    zones: Option<u16>,
    /// Partitions of the cluster.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    partitions: u16,
    /// How the replicas of a partition agree: raft, mimox. With several, a cluster for each is driven in
    /// turn.
    #[arg(long, default_value = "raft", value_delimiter = ',')]
    delivery: Vec<agree::Delivery>,
    /// always, everysec or no.
    #[arg(long, default_value = "always", value_parser = ["always", "everysec", "no"])]
    appendfsync: String,
    /// Nodes of a cluster that runs already, instead of starting one: host:port of each.
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "HOST:PORT",
        value_parser = address,
        conflicts_with_all = [
            "nodes",
            "zones",
            "partitions",
            "delivery",
            "appendfsync",
            "ordo",
            "dir",
            "against_single"
        ]
    )]
    addresses: Vec<Target>,
    /// The password of the nodes that run already.
    #[arg(long, requires = "addresses")]
    password: Option<String>,
    /// Drives a server by itself too, in turn with the cluster, and prints replicated by single.
    #[arg(long)]
    against_single: bool,
    /// Connections, dealt out to the nodes in turn.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Commands that a client sends at once.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Keys of get, set and incr.
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
    /// Rounds: in each, everybody is measured once. One more, before them, does not count.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Does not load keys or accounts first: they are there already.
    #[arg(long)]
    no_load: bool,
    /// Ordo's program: this one if not given.
    #[arg(long)]
    ordo: Option<PathBuf>,
    /// Where the nodes keep their data: a new directory under the system's if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per workload and contender instead of tables.
    #[arg(long)]
    json: bool,
}

/// The port is behind the last colon; an IPv6 address may stand in brackets.
fn address(text: &str) -> Result<Target> {
    let target = text.rsplit_once(':').and_then(|(host, port)| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = port.parse().ok()?;
        (!host.is_empty()).then(|| Target { host: host.to_owned(), port, password: None, process: None })
    });
    target.with_context(|| format!("'{text}': give host:port"))
}

/// Runs it.
pub fn run(args: ClusterArgs) -> Result<()> {
    let directory = new_directory("ordo-cluster-")?;
    let place = if args.addresses.is_empty() {
        Place::Here {
            ordo: program(args.ordo)?,
            nodes: args.nodes,
            zones: args.zones.map_or(args.nodes, usize::from),
            partitions: args.partitions,
            deliveries: args.delivery,
            appendfsync: args.appendfsync,
            directory: args.dir.unwrap_or_else(|| directory.path().to_owned()),
        }
    } else {
        let password = args.password;
        let with_password = |target: Target| Target { password: password.clone(), ..target };
        Place::There(args.addresses.into_iter().map(with_password).collect())
    };
    let options = cluster::Options {
        place,
        against_single: args.against_single,
        works: args.workload,
        clients: args.clients,
        pipeline: args.pipeline,
        keys: args.keys,
        rounds: args.rounds,
        duration: duration(args.seconds)?,
        load: !args.no_load,
        seed: args.seed,
    };
    let found = cluster::run(&options)?;
    if args.json {
        found.records.iter().for_each(report::print_json);
        return Ok(());
    }
    let records: Vec<report::Record> = found.records.iter().map(|record| record.record.clone()).collect();
    println!("{}", report::records_table(&records, "clients"));
    println!("{}", cluster::table(&found));
    let summary = cluster::summary(&found);
    if !summary.is_empty() {
        println!("{summary}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ClusterArgs,
    }

    fn parse(words: &[&str]) -> Result<ClusterArgs, String> {
        let words = std::iter::once("cluster").chain(words.iter().copied());
        Line::try_parse_from(words).map(|line| line.args).map_err(|error| error.to_string())
    }

    #[test]
    fn a_running_cluster_is_named_by_its_addresses() {
        let args =
            parse(&["--addresses", "a:7001,[::1]:7002", "--workload", "set,incr"]).expect("they parse");
        let found: Vec<(&str, u16)> =
            args.addresses.iter().map(|target| (target.host.as_str(), target.port)).collect();
        assert_eq!(found, [("a", 7001), ("::1", 7002)]);
        assert_eq!(args.workload, [Work::Set, Work::Incr]);
        for wrong in ["a", "a:", ":1", "a:70000"] {
            let error = parse(&["--addresses", wrong]).err().expect("no address");
            assert!(error.contains("host:port"), "{error}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for words in [
            &["--addresses", "a:1", "--against-single"][..],
            &["--addresses", "a:1", "--nodes", "3"],
            &["--password", "x"],
            &["--appendfsync", "sometimes"],
            &["--workload", "del"],
            &["--partitions", "0"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
    }
}
