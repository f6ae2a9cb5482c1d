//! `ordo sim model --system cluster`: what executing transactions while they are being agreed on saves.
//!
//! Every load is modelled twice, with the same seed: once as nodes are, and once with nodes that deliver an
//! epoch to their engines only when it is confirmed. `--work-us` is what every incarnation of a transaction
//! computes, beside the engine's operations, which cost what the table says.

use super::{ModelArgs, read_costs};
use anyhow::{Result, bail};
use bench::report::ratio;
use comfy_table::{CellAlignment, Table, presets};
use execute::EngineKind;
use serde::Serialize;
use sim::cluster::{Model, run_model};
use sim::cost::CostTable;
use sim::options::{Options, SystemKind, Wishes};
use sim::tally::Tally;
use sim::world::Latency;
use std::collections::BTreeMap;

/// How much lower the latency is to be, in the setting of [`has_bar`].
const BAR: f64 = 0.2;

/// A load, modelled both ways.
#[derive(Debug, Serialize)]
struct Comparison {
    modelled: bool,
    system: &'static str,
    engine: &'static str,
    workload: &'static str,
    nodes: u16,
    partitions: u16,
    workers: u16,
    clients: u16,
    pipeline: u64,
    seed: u64,
    /// A message's way from one zone to another, in microseconds.
    between_zones_one_way_us: u64,
    /// What an incarnation of a transaction computes, in microseconds.
    work_us: u64,
    during_agreement: Figures,
    after_confirmation: Figures,
    /// 0.25: a quarter less than after confirmation. Nothing if no call has a latency.
    latency_lower_by: Option<f64>,
    /// The same of the clients of the node where it is lowest: their leader's.
    latency_lower_by_at_leader: Option<f64>,
    /// The least that is wanted, where something is.
    bar: Option<f64>,
    met: Option<bool>,
}

/// What one model gave.
#[derive(Debug, Serialize)]
struct Figures {
    /// Ordered transactions, initial records left out.
    transactions: u64,
    throughput_per_s: f64,
    mean_latency_us: f64,
    /// The same of the clients of each node that has any.
    mean_latency_us_by_node: BTreeMap<u16, f64>,
    /// Of the transactions that were executed, at all replicas, the share that had speculatively committed
    /// when it was confirmed.
    speculated_share: f64,
    restarts: u64,
}

impl Figures {
    fn of(tally: &Tally, by_node: &[(u64, u64)]) -> Figures {
        let part = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        Figures {
            transactions: tally.ordered,
            throughput_per_s: part(tally.ordered, tally.last_ns - tally.first_ns) * 1e9,
            mean_latency_us: part(tally.ordered_latency_ns, tally.ordered) / 1e3,
            mean_latency_us_by_node: (1..)
                .zip(by_node)
                .filter(|(_, (count, _))| *count > 0)
                .map(|(node, &(count, sum_ns))| (node, part(sum_ns, count) / 1e3))
                .collect(),
            speculated_share: part(tally.speculated, tally.executed),
            restarts: tally.restarts,
        }
    }

    /// The mean of the node whose clients wait the least.
    fn least_us(&self) -> f64 {
        let all = self.mean_latency_us_by_node.values().copied();
        all.fold(f64::INFINITY, f64::min)
    }
}

/// Runs the models and prints them.
pub(super) fn run(arguments: &ModelArgs) -> Result<()> {
    let costs = arguments.costs.as_deref().map(read_costs).transpose()?;
    let costs = costs.unwrap_or(CostTable::DEFAULT);
    let or = |given: &[u16], default: &[u16]| match given {
        [] => default.to_vec(),
        given => given.to_vec(),
    };
    let mut all = Vec::new();
    for &engine in &arguments.engine {
        for workers in or(&arguments.workers, &[8]) {
            for nodes in or(&arguments.nodes, &[3]) {
                for &between_zones_us in &arguments.between_zones_us {
                    for clients in or(&arguments.clients, &[1, 8, 64]) {
                        let setting =
                            Setting { arguments, engine, workers, nodes, clients, between_zones_us, costs };
                        let comparison = setting.compare()?;
                        if arguments.json {
                            say!("{}", serde_json::to_string(&comparison)?);
                        }
                        all.push(comparison);
                    }
                }
            }
        }
    }
    if !arguments.json {
        say!("{}", table(&all));
        say!(
            "modelled, not measured: virtual time, {} us of work a transaction, a sync of {} us, {} us \
             inside a zone, {} partitions; every node is a zone; clients are dealt out to the nodes in \
             turn, those of the leader's node wait for no message but the agreement's. '... if after': \
             executed once the epoch is confirmed. 'Speculated': the share that had speculatively \
             committed when it was confirmed. Wanted: at least {:.0} % lower",
            arguments.work_us,
            costs.sync_ns / 1_000,
            arguments.latency_us,
            arguments.partitions,
            BAR * 100.0,
        );
    }
    let missed = all.iter().filter(|found| found.met == Some(false)).count();
    if missed > 0 {
        bail!("{missed} of {} models missed the bar: {:.0} % lower", all.len(), BAR * 100.0);
    }
    Ok(())
}

struct Setting<'a> {
    arguments: &'a ModelArgs,
    engine: EngineKind,
    workers: u16,
    nodes: u16,
    clients: u16,
    between_zones_us: u64,
    costs: CostTable,
}

impl Setting<'_> {
    fn compare(&self) -> Result<Comparison> {
        let options = self.options();
        let during_agreement = self.figures(&options, true)?;
        let after_confirmation = self.figures(&options, false)?;
        let lower = |during: f64, after: f64| ratio(during, after).map(|ratio| 1.0 - ratio);
        let latency_lower_by = lower(during_agreement.mean_latency_us, after_confirmation.mean_latency_us);
        let at_leader = lower(during_agreement.least_us(), after_confirmation.least_us());
        let bar = self.has_bar().then_some(BAR);
        Ok(Comparison {
            modelled: true,
            system: "cluster",
            engine: self.engine.name(),
            workload: self.arguments.workload.name(),
            nodes: self.nodes,
            partitions: self.arguments.partitions,
            workers: self.workers,
            clients: options.clients,
            pipeline: options.pipeline,
            seed: self.arguments.seed,
            between_zones_one_way_us: self.between_zones_us,
            work_us: self.arguments.work_us,
            during_agreement,
            after_confirmation,
            latency_lower_by,
            latency_lower_by_at_leader: at_leader,
            bar,
            met: bar.map(|bar| latency_lower_by.is_some_and(|lower_by| lower_by >= bar)),
        })
    }

    /// Three nodes, 2 ms between zones (there, or there and back), and 1 ms of work.
    fn has_bar(&self) -> bool {
        self.engine == EngineKind::Sparkle
            && self.nodes == 3
            && [1_000, 2_000].contains(&self.between_zones_us)
            && self.arguments.work_us == 1_000
    }

    fn figures(&self, options: &Options, speculate: bool) -> Result<Figures> {
        let model = Model { speculate, work_ns: self.arguments.work_us * 1_000 };
        let (outcome, by_node) = run_model(options, model);
        if let Some(violation) = outcome.violation {
            bail!("{options}\n{violation}");
        }
        Ok(Figures::of(&outcome.report.tally, &by_node))
    }

    fn options(&self) -> Options {
        let arguments = self.arguments;
        // Whoever loads the initial records of a partition is a client.
        let clients = self.clients.max(arguments.partitions);
        let wishes = Wishes {
            system: Some(SystemKind::Cluster),
            nodes: Some(self.nodes),
            zones: None,
            partitions: Some(arguments.partitions),
            across: Some(false),
            workload: Some(arguments.workload),
            engine: Some(self.engine),
            delivery: Some(arguments.delivery),
            workers: Some(self.workers),
            fsync: Some(arguments.fsync),
            clients: Some(clients),
            operations: Some(arguments.operations.unwrap_or(200)),
            pipeline: Some(arguments.pipeline.unwrap_or(1)),
            faults: Some(false),
        };
        Options {
            // A draw has one for each node at least.
            clients,
            capacity: 4_096,
            in_flight: 65_536,
            checkpoint_bytes: 0,
            segment_bytes: 1 << 20,
            think_us: 0,
            timeout_ms: 60_000,
            zones: self.nodes,
            jitter: false,
            warehouses: arguments.warehouses,
            latency: Latency {
                zone_us: arguments.latency_us,
                between_zones_us: self.between_zones_us,
                // What is given is what a message takes.
                jitter_percent: 0,
                ..Latency::STEADY
            },
            costs: self.costs,
            ..Options::draw(arguments.seed, &wishes)
        }
    }
}

fn table(all: &[Comparison]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "engine",
        "nodes",
        "workers",
        "one way us",
        "clients",
        "modelled tx/s",
        "tx/s if after",
        "mean us",
        "mean us if after",
        "lower by",
        "lower by at the leader",
        "speculated",
        "restarts",
    ]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for found in all {
        let (during, after) = (&found.during_agreement, &found.after_confirmation);
        let met = match found.met {
            Some(true) => " met",
            Some(false) => " NOT met",
            None => "",
        };
        table.add_row([
            found.engine.to_owned(),
            found.nodes.to_string(),
            found.workers.to_string(),
            found.between_zones_one_way_us.to_string(),
            found.clients.to_string(),
            format!("{:.0}", during.throughput_per_s),
            format!("{:.0}", after.throughput_per_s),
            format!("{:.0}", during.mean_latency_us),
            format!("{:.0}", after.mean_latency_us),
            format!("{}{met}", percent(found.latency_lower_by)),
            percent(found.latency_lower_by_at_leader),
            format!("{:.1} %", during.speculated_share * 100.0),
            during.restarts.to_string(),
        ]);
    }
    table
}

/// A share in a table.
fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "base is 0".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: ModelArgs,
    }

    fn compare(words: &str) -> Comparison {
        let words = format!("model --system cluster --operations 40 {words}");
        let line = Line::try_parse_from(words.split(' ')).expect("they parse");
        let arguments = &line.arguments;
        let setting = Setting {
            arguments,
            engine: arguments.engine[0],
            workers: 8,
            nodes: 3,
            clients: 3,
            between_zones_us: arguments.between_zones_us[0],
            costs: CostTable::DEFAULT,
        };
        setting.compare().expect("a model")
    }

    #[test]
    fn execution_during_agreement_takes_its_time_from_the_latency() {
        let found = compare("--between-zones-us 1000");
        let (during, after) = (&found.during_agreement, &found.after_confirmation);
        let saved_us = after.mean_latency_us - during.mean_latency_us;
        assert!((950.0..1_050.0).contains(&saved_us), "{found:?}");
        assert!(during.speculated_share > 0.9, "{found:?}");
        assert_eq!(after.speculated_share, 0.0, "{found:?}");
        assert_eq!(found.met, found.latency_lower_by.map(|lower_by| lower_by >= BAR));
        assert_eq!(during.mean_latency_us_by_node.len(), 3);
        let json = serde_json::to_value(&found).expect("JSON");
        assert_eq!(json["between_zones_one_way_us"], 1_000);
        assert_eq!(json["during_agreement"]["transactions"], during.transactions);
    }

    #[test]
    fn without_work_there_is_no_bar_and_little_to_save() {
        let found = compare("--between-zones-us 1000 --work-us 1");
        assert_eq!((found.bar, found.met), (None, None));
        assert!(found.latency_lower_by.is_some_and(|lower_by| lower_by < 0.02), "{found:?}");
    }
}
