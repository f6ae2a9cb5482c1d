//! `ordo bench`.

mod cluster;
mod etcd;
mod faults;
mod hostile;
mod model;

use anyhow::{Context, Result, bail};
use bench::engine::{Contender, Reads, Settings};
use bench::redis::load::{Target, Until};
use bench::{compare, engine, redis, report};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::time::Duration;

/// What to measure.
#[derive(Subcommand)]
pub enum Bench {
    /// Compares engines in one process, without a network.
    Engine(Box<EngineArgs>),
    /// Drives a server that speaks the Redis protocol.
    Redis(Box<RedisArgs>),
    /// Starts Ordo, Redis and other servers of its protocol, drives them in turn, and prints the ratios.
    CompareRedis(CompareArgs),
    /// Starts a cluster, or takes one that runs, drives it, and tells what agreement takes.
    Cluster(Box<cluster::ClusterArgs>),
    /// Starts an etcd cluster and an Ordo cluster in turn and prints the ratio of their writes.
    CompareEtcd(etcd::EtcdArgs),
    /// Kills, freezes and cuts off real nodes under load, and judges what their clients saw.
    Faults(faults::FaultsArgs),
    /// Attacks real nodes with random commands at limits, and measures what well-behaved clients see of it.
    Hostile(hostile::HostileArgs),
    /// Models a cluster of more nodes and cores than this machine has: real engines in virtual time.
    Model(Box<model::ModelCommand>),
}

/// `ordo bench engine`.
#[derive(Args)]
pub struct EngineArgs {
    /// Engines: serial, nocc, calvin, qstore, parspec, ssmr, sparkle; `sparkle@1` has one worker, and
    /// `parspec+final` gets batches only when they are final. dur is a site of deferred update replication.
    /// Ratios are to the first.
    #[arg(
        long,
        required = true,
        value_delimiter = ',',
        value_name = "serial|nocc|calvin|qstore|parspec|ssmr|sparkle[+final][@WORKERS]|dur[@WORKERS]"
    )]
    engine: Vec<Contender>,
    /// tpcc, new-order-payment, synthetic, ycsb, bank or vacation.
    #[arg(long)]
    workload: String,
    /// Worker threads. With several numbers, each engine runs with each. Calvin's include its scheduler.
    #[arg(long, default_value = "2", value_delimiter = ',')]
    workers: Vec<usize>,
    /// Measured seconds of each engine.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seed of the records and of the calls.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per engine instead of a table.
    #[arg(long)]
    json: bool,
    /// Length of a slice: engines take turns after each.
    #[arg(long, default_value_t = 500)]
    slice_ms: u64,
    /// Requests in a batch.
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Requests that are delivered and not yet final-committed, at most; of dur, transactions that have begun
    /// and are not certified.
    #[arg(long, default_value_t = 128)]
    run_ahead: usize,
    /// Where read-only transactions run: design (snapshots for sparkle, parspec and nocc, the order for the
    /// rest), snapshot, order.
    #[arg(long, default_value = "design")]
    reads: String,
    /// From the delivery of a batch to its confirmation, and from a proposal of dur to its certification:
    /// what agreement takes in a cluster.
    #[arg(long, default_value_t = 0.0)]
    confirm_lag_ms: f64,
    /// How many batches in 100 are decided in another order than they were delivered.
    #[arg(long, default_value_t = 0)]
    reorder_percent: u32,
    /// Calls that arrive in a second; latencies count from then. Without it, as many as the run-ahead has
    /// room for.
    #[arg(long)]
    rate: Option<f64>,
    /// parspec: transactions that execute speculatively at the same time, from 1 to 64; adapted if not given.
    #[arg(long)]
    max_spec: Option<u64>,
    /// qstore: speculative or conservative, where an engine of the list does not say it (as
    /// qstore+speculative does).
    #[arg(long)]
    qstore_mode: Option<execute::qstore::Mode>,
    #[command(flatten)]
    options: WorkloadArgs,
}

/// Options of workloads.
#[derive(Args)]
#[command(next_help_heading = "Workload options")]
struct WorkloadArgs {
    /// tpcc, new-order-payment: warehouses (12).
    #[arg(long)]
    warehouses: Option<String>,
    /// tpcc: percentage of updates: 10, 50 or 90 in the Sparkle paper (90).
    #[arg(long)]
    update_percent: Option<String>,
    /// new-order-payment: percentage of Payment (50).
    #[arg(long)]
    payment_percent: Option<String>,
    /// tpcc, new-order-payment: percentage of NewOrders that roll back (1); ycsb: percentage of calls whose
    /// last operation aborts them (without it, none may).
    #[arg(long)]
    abort_percent: Option<String>,
    /// tpcc, new-order-payment: off makes clients call disjoint warehouses only, without conflicts (on).
    #[arg(long)]
    remote: Option<String>,
    /// tpcc, new-order-payment: full is the specification's, small is for quick tries (full).
    #[arg(long)]
    scale: Option<String>,
    /// synthetic: low or medium (low).
    #[arg(long)]
    contention: Option<String>,
    /// synthetic: percentage of calls whose keys are known only while they run (0).
    #[arg(long)]
    dependent_percent: Option<String>,
    /// synthetic, ycsb: percentage of calls that touch several partitions, where there are several (0);
    /// new-order-payment: of those that touch another warehouse (as the specification has it).
    #[arg(long)]
    multi_partition_percent: Option<String>,
    /// ycsb: partitions that such a call touches; those of synthetic touch two (2).
    #[arg(long)]
    partitions_per_transaction: Option<String>,
    /// ycsb, synthetic: records, of each partition (1,000,000).
    #[arg(long)]
    keys: Option<String>,
    /// ycsb: records that a call touches (16).
    #[arg(long)]
    operations: Option<String>,
    /// ycsb: percentage of operations that only read (50); bank: percentage of audits (10).
    #[arg(long)]
    read_percent: Option<String>,
    /// ycsb: skew; 0 is uniform (0).
    #[arg(long)]
    theta: Option<String>,
    /// bank: accounts (5,000).
    #[arg(long)]
    accounts: Option<String>,
    /// vacation: cars, as many flights, rooms and customers (1,000).
    #[arg(long)]
    relations: Option<String>,
    /// vacation: relations that a call queries or updates, at most (4).
    #[arg(long)]
    queries: Option<String>,
    /// vacation: percentage of the relations that calls query or update at all (60).
    #[arg(long)]
    queried_percent: Option<String>,
    /// vacation: percentage of reservations (90).
    #[arg(long)]
    user_percent: Option<String>,
}

/// `ordo bench redis`.
#[derive(Args)]
pub struct RedisArgs {
    /// The server's address.
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The server's port.
    #[arg(long, default_value_t = 6379)]
    port: u16,
    /// The server's password.
    #[arg(long)]
    password: Option<String>,
    /// get, set, incr, hset, hset-many, fill-hashes, transfer, ...; an unknown one lists them all.
    #[arg(long)]
    workload: redis::Workload,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Commands that a client sends at once.
    #[arg(long, default_value_t = 1)]
    pipeline: usize,
    /// Keys of get, set, incr and of what fills.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Measured seconds.
    #[arg(long, default_value_t = 5.0, conflicts_with = "requests")]
    seconds: f64,
    /// Ends after so many replies instead.
    #[arg(long)]
    requests: Option<u64>,
    /// Loop count of the computing scripts; found on the server if not given.
    #[arg(long)]
    iterations: Option<u64>,
    /// Does not load keys or accounts first: they are there already.
    #[arg(long)]
    no_load: bool,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What to call the server in reports.
    #[arg(long, default_value = "server")]
    label: String,
    /// JSON instead of a table.
    #[arg(long)]
    json: bool,
}

/// `ordo bench compare-redis`.
#[derive(Args)]
pub struct CompareArgs {
    /// The servers to compare with, each with its program, which takes the options of redis-server.
    #[arg(long, value_delimiter = ',', value_name = "NAME=PROGRAM", default_value = "redis=redis-server")]
    with: Vec<compare::Rival>,
    /// Ordo's program: this one if not given.
    #[arg(long)]
    ordo: Option<PathBuf>,
    /// Worker threads of Ordo.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Rounds: in each, all servers are measured.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Keys of GET, SET and INCR, and keys or collections of the memory comparison.
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Connections.
    #[arg(long, default_value_t = 50)]
    clients: usize,
    /// Only these rows: get, set-pipelined, memory-hashes, ...; an unknown one lists them all.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where the servers keep their data: a new directory under the system's if not given.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Seed of the keys drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object per row instead of a table.
    #[arg(long)]
    json: bool,
}

/// Runs a benchmark.
pub fn run(bench: Bench) -> Result<()> {
    match bench {
        Bench::Engine(args) => run_engine(*args),
        Bench::Redis(args) => run_redis(*args),
        Bench::CompareRedis(args) => run_compare(args),
        Bench::Cluster(args) => cluster::run(*args),
        Bench::CompareEtcd(args) => etcd::run(args),
        Bench::Faults(args) => faults::run(args),
        Bench::Hostile(args) => hostile::run(args),
        Bench::Model(args) => model::run(*args),
    }
}

fn duration(seconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .with_context(|| format!("--seconds {seconds}: give a positive number"))
}

/// At most a second: what is delivered and not decided is bounded by the run-ahead anyway.
fn lag(milliseconds: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(milliseconds / 1_000.0)
        .ok()
        .filter(|lag| *lag <= Duration::from_secs(1))
        .with_context(|| format!("--confirm-lag-ms {milliseconds}: choose from 0 to 1000"))
}

fn run_engine(args: EngineArgs) -> Result<()> {
    let reads = match args.reads.as_str() {
        "design" => Reads::Design,
        "snapshot" => Reads::Snapshot,
        "order" => Reads::Order,
        other => bail!("--reads {other}: design, snapshot or order"),
    };
    let options = engine::Options {
        contenders: args.engine,
        workers: args.workers,
        settings: args.options.settings(args.workload),
        duration: duration(args.seconds)?,
        slice: Duration::from_millis(args.slice_ms),
        seed: args.seed,
        batch: args.batch,
        run_ahead: args.run_ahead,
        reads,
        confirm_lag: lag(args.confirm_lag_ms)?,
        reorder_percent: args.reorder_percent,
        rate: args.rate,
        max_spec: args.max_spec,
        qstore_mode: args.qstore_mode,
    };
    let found = engine::run(&options)?;
    show(&found.records, "workers", args.json);
    for note in &found.notes {
        eprintln!("note: {note}");
    }
    if !found.violations.is_empty() {
        bail!("the final state is wrong:\n  {}", found.violations.join("\n  "));
    }
    Ok(())
}

impl WorkloadArgs {
    fn settings(self, workload: String) -> Settings {
        let mut settings = Settings::new(workload);
        let given = [
            ("warehouses", self.warehouses),
            ("abort-percent", self.abort_percent),
            ("update-percent", self.update_percent),
            ("payment-percent", self.payment_percent),
            ("remote", self.remote),
            ("scale", self.scale),
            ("contention", self.contention),
            ("dependent-percent", self.dependent_percent),
            ("multi-partition-percent", self.multi_partition_percent),
            ("partitions-per-transaction", self.partitions_per_transaction),
            ("keys", self.keys),
            ("operations", self.operations),
            ("read-percent", self.read_percent),
            ("theta", self.theta),
            ("accounts", self.accounts),
            ("relations", self.relations),
            ("queries", self.queries),
            ("queried-percent", self.queried_percent),
            ("user-percent", self.user_percent),
        ];
        for (name, value) in given {
            if let Some(value) = value {
                settings.set(name, value);
            }
        }
        settings
    }
}

fn run_redis(args: RedisArgs) -> Result<()> {
    let until = match args.requests {
        Some(requests) => Until::Replies(requests),
        None => Until::Elapsed(duration(args.seconds)?),
    };
    let options = redis::Options {
        target: Target { host: args.host, port: args.port, password: args.password, process: None },
        label: args.label,
        workload: args.workload,
        clients: args.clients,
        pipeline: args.pipeline,
        keys: args.keys,
        until,
        warm_up: Duration::from_millis(500),
        seed: args.seed,
        iterations: args.iterations,
        load: !args.no_load,
    };
    show(&redis::run(&options)?, "clients", args.json);
    Ok(())
}

fn run_compare(args: CompareArgs) -> Result<()> {
    let ordo = program(args.ordo)?;
    let json = args.json;
    let options = compare::Options {
        rivals: args.with,
        ordo,
        workers: args.workers,
        rounds: args.rounds,
        duration: duration(args.seconds)?,
        keys: args.keys,
        clients: args.clients,
        only: args.only,
        dir: args.dir,
        seed: args.seed,
    };
    let rows = compare::run(&options)?;
    if json {
        rows.iter().for_each(report::print_json);
    } else {
        println!("{}", compare::table(&rows));
    }
    Ok(())
}

/// Ordo's program: this one unless another is given.
fn program(given: Option<PathBuf>) -> Result<PathBuf> {
    match given {
        Some(ordo) => Ok(ordo),
        None => std::env::current_exe().context("could not find this program: give --ordo"),
    }
}

/// A directory that goes at the end.
fn new_directory(prefix: &str) -> Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix(prefix).tempdir().context("could not make a directory for the nodes")
}

fn show(records: &[report::Record], driven_by: &str, json: bool) {
    if json {
        records.iter().for_each(report::print_json);
    } else {
        println!("{}", report::records_table(records, driven_by));
    }
}
