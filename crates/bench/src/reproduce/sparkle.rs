//! `ordo reproduce sparkle`: section 5 of the Sparkle paper.
//!
//! Figs 6a and 6b (one node, more and more cores) run for real as far as this machine has cores, and in the
//! scale model ([`sim::scale`]) up to 50 workers. Figs 7 to 10 (clusters) are modelled; three real processes
//! show what the model is worth ([`processes`]). What a step of an engine costs is measured here first, with
//! one real worker, on each workload.

mod processes;

use super::figure::{Axis, Claim, Figure, Panel, Point, Series};
use super::lab::{Job, Lab, Measured, series};
use crate::engine::Settings;
use anyhow::Result;
use execute::EngineKind;
use sim::scale::{self, Contender, Costs, Report, SparkleVariant, Times};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What to reproduce, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the report goes.
    pub dir: PathBuf,
    /// Fewer points and shorter runs.
    pub quick: bool,
    /// The figures wanted: 6a, 6b, 7, 8, 9, 10, 3p; none means all.
    pub only: Vec<String>,
    /// The seed of everything.
    pub seed: u64,
    /// What the model takes for granted, as options of the command.
    pub model: String,
    /// What takes how long in the model.
    pub times: Times,
    /// What costs how much in the model.
    pub costs: Costs,
    /// Whether steps and reads are measured on this machine first.
    pub calibrated: bool,
}

/// The figures.
pub const FIGURES: [&str; 7] = ["6a", "6b", "7", "8", "9", "10", "3p"];

const SPARKLE: Contender = Contender::SPARKLE;
const CALVIN: Contender = Contender::of(EngineKind::Calvin);
const SSMR: Contender = Contender::of(EngineKind::Ssmr);
const NOCC: Contender = Contender::of(EngineKind::NoCc);
/// Nodes and workers of Figs 7 to 9.
const NODES: u16 = 8;
const WORKERS: usize = 5;
/// The least clients of a node.
const CLIENTS_MIN: usize = 200;
/// Keys of a partition; the paper has a million.
const KEYS: u32 = 200_000;
/// Warehouses of a node of Figs 8 and 10.
const WAREHOUSES: u32 = 12;
/// The least epoch of Fig. 10. The paper says 5 to 10 ms. With 40 nodes a partition has a group with each of
/// 39 others in every epoch, however short that is.
const FIG_10_EPOCH_NS: u64 = 10_000_000;

/// What the figures share.
struct Study {
    lab: Lab,
    quick: bool,
}

/// Runs what is wanted, and writes it. Returns the page, and the claims for which there are bars.
pub fn run(options: &Options) -> Result<(PathBuf, Vec<Claim>)> {
    let wanted = |id: &str| options.only.is_empty() || options.only.iter().any(|only| only == id);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut study = Study {
        lab: Lab {
            seed: options.seed,
            times: options.times,
            costs: options.costs,
            calibrated: options.calibrated,
            seconds: if options.quick { 1.0 } else { 3.0 },
            threads,
            measured: BTreeMap::new(),
        },
        quick: options.quick,
    };
    let quick = if options.quick { " --quick" } else { "" };
    let head = head(options);
    let title = "Sparkle's evaluation, reproduced";
    let mut figures: Vec<Figure> = Vec::new();
    for id in FIGURES.into_iter().filter(|id| wanted(id)) {
        let mut figure = study.figure(id)?;
        let seed = options.seed;
        let model = &options.model;
        figure.command = format!("ordo reproduce sparkle --only {id} --seed {seed}{quick}{model}");
        if figure.parameters.is_empty() {
            study.lab.tell(&mut figure.parameters);
        }
        figures.push(figure);
        // What there is so far: a reader need not wait for the rest.
        let page = super::write(&options.dir, title, &head, &figures)?;
        eprintln!("figure {id} is in {}", page.display());
    }
    let claims = figures.into_iter().flat_map(|figure| figure.claims);
    let claims = claims.filter(|claim| claim.bar.is_some()).collect();
    Ok((options.dir.join("index.html"), claims))
}

/// What the page says first.
fn head(options: &Options) -> Vec<String> {
    vec![
        "Sparkle (VLDB 2019), section 5, reproduced with Ordo's engines. The paper's figures are images \
         that we do not have: what stands under \"the paper\" is what its text says."
            .to_owned(),
        "\"Real\" figures are measured on this machine's cores. \"Modelled\" figures come from the scale \
         model: real engines, stepped one operation at a time (nocc: one transaction) by virtual workers \
         in virtual time. Each step takes what one real worker takes on average; caches, memory bandwidth \
         and latches between cores cost nothing in the model, and the network has no losses. Ratios \
         between engines in one figure mean more than absolute figures."
            .to_owned(),
        format!(
            "Seed {}. The same seed and costs give the same modelled run; measured costs differ from \
             machine to machine.{}",
            options.seed,
            if options.quick { " A quick run: few points, short, small." } else { "" }
        ),
    ]
}

/// Sparkle's synthetic workload; percentages of dependent and multi-partition transactions.
fn synthetic(contention: &str, dependent: u32, multi: u32) -> Settings {
    let mut settings = Settings::new("synthetic");
    settings.set("contention", contention);
    settings.set("dependent-percent", dependent);
    settings.set("multi-partition-percent", multi);
    settings.set("keys", KEYS);
    settings
}

fn tpcc(warehouses: u32, updates: u32) -> Settings {
    let mut settings = Settings::new("tpcc");
    settings.set("warehouses", warehouses);
    settings.set("update-percent", updates);
    settings.set("scale", "small");
    settings
}

/// Where a run belongs, and what it is of.
struct Place {
    panel: usize,
    series: String,
    x: f64,
    name: String,
}

impl Study {
    /// A modelled run. Its steps cost what was measured on `calibrated`.
    fn job(
        &self,
        place: Place,
        contender: Contender,
        (settings, calibrated): (&Settings, &Settings),
        (nodes, workers): (u16, usize),
    ) -> Result<Job> {
        let lab = &self.lab;
        Ok(Job {
            panel: place.panel,
            series: place.series,
            x: place.x,
            name: place.name,
            options: scale::Options {
                nodes,
                workers,
                contender,
                workload: settings.spread(nodes)?,
                clients: lab.clients(contender, calibrated, workers),
                times: lab.times,
                costs: lab.costs_of(contender, calibrated),
                seed: lab.seed,
                judged: false,
            },
        })
    }

    /// Makes a figure.
    fn figure(&mut self, id: &'static str) -> Result<Figure> {
        match id {
            "6a" => self.one_node(false),
            "6b" => self.one_node(true),
            "7" => self.synthetic(),
            "8" => self.tpcc(),
            "9" => self.variants(),
            "3p" => self.processes(),
            _ => self.nodes(),
        }
    }

    /// Finds what a contender's steps cost on a workload, unless that was done.
    fn measure(&mut self, contender: Contender, settings: Settings) -> Result<Settings> {
        if !self.lab.knows(contender, &settings) {
            self.lab.calibrate(contender, &settings)?;
        }
        Ok(settings)
    }

    /// The same for all that execute transactions over several partitions.
    fn measure_all(&mut self, settings: Settings) -> Result<Settings> {
        over_partitions().try_fold(settings, |settings, contender| self.measure(contender, settings))
    }

    /// Figs 6a and 6b: one node with more and more workers.
    fn one_node(&mut self, high_conflict: bool) -> Result<Figure> {
        let mut settings = tpcc(if high_conflict { 1 } else { 100 }, 90);
        if !high_conflict {
            settings.set("remote", "off");
        }
        let contenders: &[Contender] = match high_conflict {
            true => &[SPARKLE, CALVIN],
            false => &[NOCC, SPARKLE, CALVIN],
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let real_workers: Vec<usize> = [1, 2].into_iter().filter(|&n| n <= cores).collect();
        let pairs: Vec<(Contender, usize)> = contenders
            .iter()
            .flat_map(|&contender| real_workers.iter().map(move |&workers| (contender, workers)))
            .collect();
        for &contender in contenders {
            settings = self.measure(contender, settings)?;
        }
        let records = self.lab.real(&settings, &pairs)?;
        let mut real: Vec<Series> = Vec::new();
        for (&(contender, workers), record) in pairs.iter().zip(&records) {
            let point = Point {
                x: workers as f64,
                name: workers.to_string(),
                y: record.throughput_per_s,
                run: serde_json::to_value(record)?,
            };
            let name = format!("{contender}, real");
            match real.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => real.push(Series { name, points: vec![point] }),
            }
        }
        let steps: &[usize] = match self.quick {
            true => &[1, 2, 5, 20, 50],
            false => &[1, 2, 5, 10, 20, 30, 40, 50],
        };
        let mut jobs = Vec::new();
        for &contender in contenders {
            for &workers in steps {
                let place = Place {
                    panel: 0,
                    series: contender.to_string(),
                    x: workers as f64,
                    name: workers.to_string(),
                };
                jobs.push(self.job(place, contender, (&settings, &settings), (1, workers))?);
            }
        }
        let id = if high_conflict { "6b" } else { "6a" };
        let reports = self.lab.run(&format!("figure {id}"), &jobs)?;
        let mut all = series(0, &jobs, &reports, Report::throughput_per_s);
        all.extend(real);
        let panel = Panel {
            title: format!("Figure {id}: throughput by workers, modelled and real"),
            x_label: "workers",
            y_label: "transactions/s",
            axis: Axis::Numbers,
            series: all,
        };
        let mut claims = Vec::new();
        let ratio = |series: &str, base: &str, x: f64| {
            panel.ratio(series, base, x).map_or("not run".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        if high_conflict {
            claims.push(Claim::told(
                "sparkle / calvin at 50 workers, one warehouse",
                "up to about 6",
                ratio("sparkle", "calvin", 50.0),
            ));
        } else {
            claims.push(Claim::told(
                "sparkle / nocc at 20 workers, no conflicts",
                "about 1 up to 30 threads",
                ratio("sparkle", "nocc", 20.0),
            ));
            claims.push(Claim::told(
                "sparkle / nocc at 50 workers",
                "more than 0.8",
                ratio("sparkle", "nocc", 50.0),
            ));
        }
        claims.push(Claim::told(
            "calvin, 50 workers / 5 workers",
            "about 1: its scheduler is the limit from 5 threads on",
            match (panel.at("calvin", 50.0), panel.at("calvin", 5.0)) {
                (Some(many), Some(few)) if few > 0.0 => format!("{:.2}", many / few),
                _ => "not run".to_owned(),
            },
        ));
        for &contender in contenders {
            let (name, measured) = (contender.to_string(), format!("{contender}, real"));
            let ratio = |workers: usize| {
                let (real, model) = (panel.at(&measured, workers as f64), panel.at(&name, workers as f64));
                match (real, model) {
                    (Some(real), Some(model)) => format!("{:.2}", model / real),
                    _ => "not run".to_owned(),
                }
            };
            claims.push(Claim::told(
                format!(
                    "{name}: modelled / real at 1 and at 2 workers (real workers also make their own \
                     calls, and share the machine with whatever runs on it)"
                ),
                "-",
                format!("{} and {}", ratio(1), ratio(2)),
            ));
        }
        let title = match high_conflict {
            true => "one node, TPC-C with 90 % updates, one warehouse",
            false => "one node, TPC-C with 90 % updates, 100 warehouses that nobody shares",
        };
        let mut differences = vec![
            "Small tables: 1,000 items (the specification: 100,000), 120 customers of a district \
             (3,000)."
                .to_owned(),
            "TPC-C as specified: NewOrder and Payment meet, customers are named by last name, 1 % of the \
             NewOrders roll back; the paper's does not."
                .to_owned(),
            "Sparkle and nocc run read-only transactions at snapshots, Calvin through its scheduler. \
             Calvin's workers include the scheduler."
                .to_owned(),
            "S-SMR has one thread for each partition, so it would need a partition for each worker: it is \
             in figures 7 and 8 only."
                .to_owned(),
        ];
        if !high_conflict {
            differences.push("100 warehouses instead of 200: twice as many as workers.".to_owned());
        }
        Ok(figure(id, title, vec![panel], claims, differences))
    }

    /// Fig. 7: the synthetic workload on 8 nodes.
    fn synthetic(&mut self) -> Result<Figure> {
        let multis: &[u32] = if self.quick { &[0, 10, 50] } else { &[0, 1, 10, 50] };
        let dependents: &[u32] = match self.quick {
            true => &[0, 10, 100],
            false => &[0, 1, 10, 50, 100],
        };
        let contentions: &[&str] = if self.quick { &["low"] } else { &["low", "medium"] };
        let calibrated = self.measure_all(synthetic("low", 0, 0))?;
        let mut jobs = Vec::new();
        for (panel, &multi) in multis.iter().enumerate() {
            for &contention in contentions {
                for (x, &dependent) in dependents.iter().enumerate() {
                    let settings = synthetic(contention, dependent, multi);
                    for contender in over_partitions() {
                        if contender == SSMR && contention != "low" {
                            // One transaction at a time: contention is nothing to it.
                            continue;
                        }
                        let short = if contention == "low" { "LC" } else { "MC" };
                        let place = Place {
                            panel,
                            series: format!("{contender} {short}"),
                            x: x as f64,
                            name: format!("{dependent} %"),
                        };
                        let of = (&settings, &calibrated);
                        jobs.push(self.job(place, contender, of, (NODES, WORKERS))?);
                    }
                }
            }
        }
        let reports = self.lab.run("figure 7", &jobs)?;
        let mut panels = Vec::new();
        for (panel, multi) in multis.iter().enumerate() {
            panels.push(Panel {
                title: format!("Figure 7, {multi} % multi-partition transactions: throughput"),
                x_label: "dependent transactions",
                y_label: "transactions/s",
                axis: Axis::Names,
                series: series(panel, &jobs, &reports, Report::throughput_per_s),
            });
        }
        for (panel, multi) in multis.iter().enumerate() {
            panels.push(Panel {
                title: format!("Figure 7, {multi} % multi-partition transactions: abort rate"),
                x_label: "dependent transactions",
                y_label: "executions thrown away, share",
                axis: Axis::Names,
                series: series(panel, &jobs, &reports, Report::abort_rate),
            });
        }
        let mut claims = Vec::new();
        let last = multis.len() - 1;
        if let (Some(none), Some(half)) =
            (panels[0].at("sparkle LC", 0.0), panels[last].at("sparkle LC", 0.0))
        {
            claims.push(Claim::told(
                "sparkle LC, 50 % / 0 % multi-partition, 0 % dependent",
                "reduced, but not as S-SMR's, which drops by about 40",
                format!("{:.2}", half / none),
            ));
        }
        let ends =
            (panels[0].at("sparkle LC", 0.0), panels[0].at("sparkle LC", dependents.len() as f64 - 1.0));
        if let (Some(none), Some(all)) = ends {
            claims.push(Claim::told(
                "sparkle LC, 100 % / 0 % dependent, no multi-partition transactions",
                "not affected (about 1); here a dependent transaction updates 5 keys instead of 10",
                format!("{:.2}", all / none),
            ));
        }
        let against = |other: &str, multi: u32, dependent: u32| {
            let panel = multis.iter().position(|&of| of == multi)?;
            let x = dependents.iter().position(|&of| of == dependent)?;
            panels[panel].ratio("sparkle LC", &format!("{other} LC"), x as f64)
        };
        for (other, multi, dependent, told, bar) in [
            ("ssmr", 50, 0, "S-SMR's throughput drops by about 40, sparkle's much less", 10.0),
            ("calvin", 10, 10, "more than one order of magnitude, on average over the MPT ratios", 2.0),
            ("calvin", 50, 0, "about 0.7: Calvin is 30 % faster", 1.0),
        ] {
            let Some(ratio) = against(other, multi, dependent) else {
                continue;
            };
            let about = format!(
                "sparkle / {other}, {multi} % multi-partition, {dependent} % dependent, low contention"
            );
            claims.push(Claim::at_least(about, told, ratio, bar));
        }
        let differences = vec![
            format!(
                "{KEYS} keys of a partition, index keys included, instead of a million. Index keys as in \
                 the paper: 50,000 (LC) and 1,000 (MC)."
            ),
            "Calvin's workers include its scheduler. S-SMR uses one worker of each node, as in the paper."
                .to_owned(),
            "Calvin's reconnaissance asks other nodes without a message and at once.".to_owned(),
        ];
        let title = "8 nodes of 5 workers, synthetic workload";
        Ok(figure("7", title, panels, claims, differences))
    }

    /// Fig. 8: TPC-C on 8 nodes.
    fn tpcc(&mut self) -> Result<Figure> {
        let calibrated = self.measure_all(tpcc(WAREHOUSES, 90))?;
        let mut jobs = Vec::new();
        for (x, updates) in [10, 50, 90].into_iter().enumerate() {
            let settings = tpcc(WAREHOUSES, updates);
            for contender in over_partitions() {
                let place = Place {
                    panel: 0,
                    series: contender.to_string(),
                    x: x as f64,
                    name: format!("{updates} %"),
                };
                let of = (&settings, &calibrated);
                jobs.push(self.job(place, contender, of, (NODES, WORKERS))?);
            }
        }
        let reports = self.lab.run("figure 8", &jobs)?;
        let panels = vec![
            Panel {
                title: "Figure 8: throughput".to_owned(),
                x_label: "updates",
                y_label: "transactions/s",
                axis: Axis::Names,
                series: series(0, &jobs, &reports, Report::throughput_per_s),
            },
            Panel {
                title: "Figure 8: abort rate".to_owned(),
                x_label: "updates",
                y_label: "executions thrown away, share",
                axis: Axis::Names,
                series: series(0, &jobs, &reports, Report::abort_rate),
            },
        ];
        let share = |place: usize| {
            let report = &reports[place];
            100.0 * report.multi_partition as f64 / report.committed.max(1) as f64
        };
        let best = |other: &str| {
            let ratios = (0..3).filter_map(|x| panels[0].ratio("sparkle", other, f64::from(x)));
            format!("{:.2}", ratios.fold(0.0, f64::max))
        };
        let claims = vec![
            Claim::told(
                "multi-partition transactions at 10 % and 90 % updates",
                "about 1 % and 10 %",
                format!("{:.1} % and {:.1} %", share(0), share(jobs.len() - 1)),
            ),
            Claim::told("sparkle / calvin, at most", "about 3", best("calvin")),
            Claim::told("sparkle / ssmr, at most", "about 4", best("ssmr")),
        ];
        let title = "8 nodes of 5 workers, TPC-C with 12 warehouses a node";
        let mut differences = tpcc_differences();
        differences
            .push("Calvin's reconnaissance asks other nodes without a message and at once.".to_owned());
        Ok(figure("8", title, panels, claims, differences))
    }

    /// Fig. 9: what speculative confirmation and scheduling are worth.
    fn variants(&mut self) -> Result<Figure> {
        let calibrated = self.measure(SPARKLE, synthetic("low", 0, 0))?;
        let multis: &[u32] = if self.quick { &[10, 50] } else { &[1, 10, 50, 100] };
        let mut jobs = Vec::new();
        for (x, &multi) in multis.iter().enumerate() {
            let settings = synthetic("low", 0, multi);
            for variant in SparkleVariant::ALL {
                let place = Place {
                    panel: 0,
                    series: variant.name().to_owned(),
                    x: x as f64,
                    name: format!("{multi} %"),
                };
                let contender = Contender::sparkle(variant);
                let of = (&settings, &calibrated);
                jobs.push(self.job(place, contender, of, (NODES, WORKERS))?);
            }
        }
        // The same at 50 %, if steps took longer.
        let factors: &[u64] = if self.quick { &[1, 30] } else { &[1, 3, 10, 30, 100] };
        for (x, &factor) in factors.iter().enumerate() {
            let settings = synthetic("low", 0, 50);
            let step_ns = self.lab.costs_of(SPARKLE, &calibrated).step_ns * factor;
            for variant in SparkleVariant::ALL {
                let place = Place {
                    panel: 1,
                    series: variant.name().to_owned(),
                    x: x as f64,
                    name: format!("{} us", step_ns as f64 / 1e3),
                };
                let contender = Contender::sparkle(variant);
                let of = (&settings, &calibrated);
                let mut job = self.job(place, contender, of, (NODES, WORKERS))?;
                job.options.costs.step_ns = step_ns;
                job.options.clients = (job.options.clients / factor as usize).max(CLIENTS_MIN);
                jobs.push(job);
            }
        }
        let reports = self.lab.run("figure 9", &jobs)?;
        let throughput = Panel {
            title: "Figure 9: throughput".to_owned(),
            x_label: "multi-partition transactions",
            y_label: "transactions/s",
            axis: Axis::Names,
            series: series(0, &jobs, &reports, Report::throughput_per_s),
        };
        let slower = Panel {
            title: "Figure 9 at 50 % multi-partition transactions, if steps took longer: throughput"
                .to_owned(),
            x_label: "a step",
            series: series(1, &jobs, &reports, Report::throughput_per_s),
            ..throughput.clone()
        };
        let mut normalized = by_cons(&throughput);
        normalized.title = "Figure 9: throughput, by that of cons".to_owned();
        let mut slower_normalized = by_cons(&slower);
        slower_normalized.title =
            "Figure 9 at 50 % multi-partition transactions, if steps took longer, by that of cons".to_owned();
        let slowest = factors.len() as f64 - 1.0;
        let at_slowest = slower.ratio("sc-schedule", "cons", slowest).unwrap_or(0.0);
        let half = multis.iter().position(|&multi| multi == 50).unwrap_or(0) as f64;
        let ratio = |one: &str, other: &str| throughput.ratio(one, other, half).unwrap_or(0.0);
        let claims = vec![
            Claim::at_least(
                "sc-schedule / cons, 50 % multi-partition, low contention, 8 nodes of 5 workers",
                "up to about 3",
                ratio("sc-schedule", "cons"),
                2.5,
            ),
            Claim::told(
                format!("the same, if a step took {} times as long", factors[factors.len() - 1]),
                "-",
                format!("{at_slowest:.2}"),
            ),
            Claim::told(
                "sc / cc, 50 % multi-partition",
                "almost identical",
                format!("{:.2}", ratio("sc", "cc")),
            ),
            Claim::told(
                "sc-schedule / cc, 50 % multi-partition",
                "up to 2",
                format!("{:.2}", ratio("sc-schedule", "cc")),
            ),
        ];
        let differences = vec![
            format!("{KEYS} keys of a partition instead of a million; 50,000 index keys as in the paper."),
            "Without scheduling, groups are runs of transactions over the same partitions that stand \
             together at all of these in the merged order."
                .to_owned(),
            "A step here takes a fraction of what it took on the paper's machines, and the network about \
             as long, so that variants which wait for the network lose more than there. The plots with \
             longer steps show how much of it that is."
                .to_owned(),
        ];
        let title = "variants of Sparkle, synthetic workload at low contention";
        let panels = vec![normalized, throughput, slower_normalized, slower];
        Ok(figure("9", title, panels, claims, differences))
    }

    /// Fig. 10: TPC-C from 4 to 40 nodes.
    fn nodes(&mut self) -> Result<Figure> {
        let counts: &[u16] = if self.quick { &[4, 40] } else { &[4, 8, 16, 24, 32, 40] };
        let mixes: &[u32] = if self.quick { &[90] } else { &[10, 50, 90] };
        let calibrated = self.measure(SPARKLE, tpcc(WAREHOUSES, 90))?;
        let times = with_epochs_of(FIG_10_EPOCH_NS, self.lab.times);
        let standard = std::mem::replace(&mut self.lab.times, times);
        let mut jobs = Vec::new();
        for &updates in mixes {
            let settings = tpcc(WAREHOUSES, updates);
            for &nodes in counts {
                let place = Place {
                    panel: 0,
                    series: format!("{updates} % updates"),
                    x: f64::from(nodes),
                    name: nodes.to_string(),
                };
                let of = (&settings, &calibrated);
                let job = self.job(place, SPARKLE, of, (nodes, WORKERS))?;
                jobs.push(job);
            }
        }
        let mut parameters = BTreeMap::new();
        self.lab.tell(&mut parameters);
        self.lab.times = standard;
        let reports = self.lab.run("figure 10", &jobs)?;
        let panel = Panel {
            title: "Figure 10: throughput by nodes".to_owned(),
            x_label: "nodes",
            y_label: "transactions/s",
            axis: Axis::Numbers,
            series: series(0, &jobs, &reports, Report::throughput_per_s),
        };
        let (first, last) = (counts[0], counts[counts.len() - 1]);
        let claims = mixes.iter().map(|updates| {
            let name = format!("{updates} % updates");
            let at = |nodes: u16| panel.at(&name, f64::from(nodes)).unwrap_or(0.0);
            let linear = at(first) * f64::from(last) / f64::from(first);
            let ratio = at(last) / linear.max(f64::MIN_POSITIVE);
            let about = format!("{name}: {last} nodes / linear from {first}");
            match updates {
                90 => Claim::at_least(about, "linear", ratio, 0.9),
                _ => Claim::told(about, "linear", format!("{ratio:.2}")),
            }
        });
        let claims = claims.collect();
        let title = "TPC-C with 12 warehouses a node, 4 to 40 nodes of 5 workers";
        let mut differences = tpcc_differences();
        differences.push(format!(
            "Epochs of {} ms for all numbers of nodes (the paper: \"5-10 msecs\", and not which here). A \
             partition's siblings settle one group after the other, at a message's way each, and with 40 \
             nodes every epoch has 39 pairs of each partition, however short it is.",
            times.epoch_ns as f64 / 1e6
        ));
        let mut figure = figure("10", title, vec![panel], claims, differences);
        figure.parameters = parameters;
        Ok(figure)
    }
}

fn tpcc_differences() -> Vec<String> {
    vec![
        "Small tables: 1,000 items (the specification: 100,000), 120 customers of a district \
         (3,000)."
            .to_owned(),
        "TPC-C as specified: NewOrder and Payment meet, customers are named by last name, 1 % of the \
         NewOrders roll back; the paper's does not. Each line of a NewOrder may be of another \
         partition."
            .to_owned(),
        "Read-only transactions are of one partition, and run at snapshots.".to_owned(),
    ]
}

/// The same with epochs of at least this, and as many of them.
fn with_epochs_of(epoch_ns: u64, times: Times) -> Times {
    let epoch_ns = times.epoch_ns.max(epoch_ns);
    let longer = |ns: u64| ns / times.epoch_ns * epoch_ns;
    Times { epoch_ns, warm_up_ns: longer(times.warm_up_ns), measured_ns: longer(times.measured_ns), ..times }
}

/// A panel of Fig. 9 as it is in the paper.
fn by_cons(throughput: &Panel) -> Panel {
    let mut normalized = throughput.clone();
    normalized.y_label = "cons = 1";
    for series in &mut normalized.series {
        for point in &mut series.points {
            let base = throughput.at("cons", point.x).unwrap_or(0.0);
            point.y /= base.max(f64::MIN_POSITIVE);
            point.run = serde_json::Value::Null;
        }
    }
    normalized
}

/// The contenders that execute transactions over several partitions.
fn over_partitions() -> impl Iterator<Item = Contender> {
    [SPARKLE, CALVIN, SSMR].into_iter()
}

fn figure(
    id: &'static str,
    title: &str,
    panels: Vec<Panel>,
    claims: Vec<Claim>,
    differences: Vec<String>,
) -> Figure {
    Figure {
        id,
        title: title.to_owned(),
        command: String::new(),
        parameters: BTreeMap::new(),
        differences,
        panels,
        claims,
    }
}

impl Lab {
    /// What all figures were made with.
    fn tell(&self, parameters: &mut BTreeMap<String, String>) {
        let Times {
            epoch_ns,
            order_ns,
            confirm_ns,
            latency_ns,
            jitter_ns,
            round_ns,
            warm_up_ns,
            measured_ns,
        } = self.times;
        let us = |ns: u64| format!("{} us", ns as f64 / 1e3);
        let costs = &self.costs;
        let mut tell = |name: &str, value: String| {
            parameters.insert(name.to_owned(), value);
        };
        tell("seed", self.seed.to_string());
        tell("epoch", us(epoch_ns));
        tell("delay of the order (latencies only)", us(order_ns));
        tell("delivery to confirmation", us(confirm_ns));
        tell("network, one way", format!("{} and up to {} more", us(latency_ns), us(jitter_ns)));
        tell("round of siblings' messages", us(round_ns));
        tell("warm-up", us(warm_up_ns));
        tell("measured", us(measured_ns));
        tell("a message, to send and to receive", format!("{} ns each", costs.message_ns));
        tell("a thing that it tells", format!("{} ns each", costs.note_ns));
        tell("a byte on the wire", format!("{} ns", costs.byte_ns));
        for ((contender, workload), measured) in &self.measured {
            let Measured { worker_ns, steps, looks, step_ns, read_ns } = measured;
            tell(
                &format!("a step of {contender} on {workload}"),
                format!(
                    "{step_ns} ns, a read at a snapshot {read_ns} ns ({steps:.1} and {looks:.1} of them a \
                     transaction; a real worker takes {worker_ns:.0} ns for all)"
                ),
            );
        }
    }
}
