//! `ordo bench model`: runs of the scale model, one for each engine and variant.

use super::WorkloadArgs;
use crate::reproduce::ModelArgs;
use anyhow::{Result, anyhow};
use bench::report;
use clap::Args;
use serde::Serialize;
use sim::scale::{self, Contender, Report, SparkleVariant};

/// `ordo bench model`.
#[derive(Args)]
pub struct ModelCommand {
    /// Contenders, one run of the model for each: the engines sparkle, calvin, qstore, ssmr, or, with
    /// `--nodes 1` only, serial and nocc (no concurrency control), and the rules of two-phase commit:
    /// no-wait, timestamp, mvcc, maat. Ratios are to the first. docs/benchmarks.md tells what they are.
    #[arg(
        long,
        default_value = "sparkle",
        value_delimiter = ',',
        value_name = "serial|nocc|calvin|qstore|ssmr|sparkle|no-wait|timestamp|mvcc|maat"
    )]
    engine: Vec<Contender>,
    /// When a partition tells the others of a transaction what they need from it (Fig. 9 of the Sparkle
    /// paper): `cons` once it can't be wrong any more, `cc` at once, and confirms it once all before it is
    /// final, `sc` at once, and confirms it while that is still speculative, `sc-schedule` likewise, with the
    /// transactions of several partitions grouped in the order, as a real cluster has it. With several,
    /// sparkle runs with each.
    #[arg(long, default_value = "sc-schedule", value_delimiter = ',', value_name = "cons|cc|sc|sc-schedule")]
    sparkle_variant: Vec<SparkleVariant>,
    /// What clients call: tpcc, new-order-payment, synthetic or ycsb; with `--nodes 1` also bank and
    /// vacation.
    #[arg(long)]
    workload: String,
    /// Nodes of the modelled cluster. Each has one partition, and nobody else has a replica of it.
    #[arg(long, default_value_t = 8)]
    nodes: u16,
    /// Threads of each node that execute. They are modelled, too: this machine needs no such number of cores.
    #[arg(long, default_value_t = 5)]
    workers: usize,
    /// Clients of each node. Each waits for the result of its call before it sends the next.
    #[arg(long, default_value_t = 20_000)]
    clients: usize,
    /// Seed of records, calls and network: the same seed and options give the same run.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Afterwards executes all calls again, one after the other, and fails unless that gives the same
    /// records. Slow: for small runs, as in the example of docs/benchmarks.md.
    #[arg(long)]
    judged: bool,
    /// One JSON object per run instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    options: WorkloadArgs,
}

/// What is printed of a run.
#[derive(Serialize)]
struct Row {
    engine: String,
    nodes: u16,
    workers: usize,
    throughput_per_s: f64,
    report: Report,
}

/// Runs the model.
pub fn run(args: ModelCommand) -> Result<()> {
    let mut contenders = Vec::new();
    for &contender in &args.engine {
        match contender {
            Contender::SPARKLE => {
                contenders.extend(args.sparkle_variant.iter().copied().map(Contender::sparkle));
            }
            other => contenders.push(other),
        }
    }
    let (times, costs) = (args.model.times(true)?, args.model.costs()?);
    let workload = args.options.settings(args.workload).spread(args.nodes)?;
    let mut rows: Vec<Row> = Vec::new();
    for contender in contenders {
        let options = scale::Options {
            nodes: args.nodes,
            workers: args.workers,
            contender,
            workload: workload.clone(),
            clients: args.clients,
            times,
            costs,
            seed: args.seed,
            judged: args.judged,
            replication: None,
        };
        let report = scale::run(&options).map_err(|wrong| anyhow!("{contender}: {wrong}"))?;
        rows.push(Row {
            engine: contender.to_string(),
            nodes: args.nodes,
            workers: contender.workers(args.workers),
            throughput_per_s: report.throughput_per_s(),
            report,
        });
    }
    if args.json {
        rows.iter().for_each(report::print_json);
        return Ok(());
    }
    let base = rows.first().map_or(0.0, |row| row.throughput_per_s);
    let shown = rows.iter().map(|row| {
        let Row { report: found, .. } = row;
        let each = |count: u64| count as f64 / found.committed.max(1) as f64;
        vec![
            row.engine.clone(),
            report::rate(row.throughput_per_s),
            report::shown_ratio(report::ratio(row.throughput_per_s, base)),
            format!("{:.1} %", 100.0 * each(found.multi_partition)),
            format!("{:.1} %", 100.0 * found.abort_rate()),
            format!("{:.0} %", 100.0 * found.busy),
            format!("{:.2}", each(found.messages)),
            format!("{:.1} ms", found.latency_p50_ns as f64 / 1e6),
        ]
    });
    let header = [
        "engine",
        "transactions/s",
        "ratio",
        "multi-partition",
        "thrown away",
        "busy",
        "messages each",
        "median",
    ];
    println!("{}", report::table(&header, shown.collect()));
    Ok(())
}
