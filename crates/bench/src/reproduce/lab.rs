//! Runs of the model side by side, and what a step costs on this machine.

use super::figure::{Point, Sample, Series, Source};
use super::worker::{self, Round, Stand};
use crate::engine::{self, Contender as RealContender, Executor, Reads, Settings};
use crate::progress::Progress;
use crate::report::{Record, Spread};
use anyhow::{Result, anyhow, bail};
use parking_lot::Mutex;
use serde::Serialize;
use sim::scale::{self, Contender, Costs, Report, Times};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The epochs of a model of one worker: so short that it never waits for one.
const ALONE_EPOCH_NS: u64 = 50_000;
/// Epochs of work that clients have under way.
const EPOCHS_AHEAD: f64 = 1.6;
/// Workers that one scheduler keeps busy, itself included: about as many as in the paper.
const SCHEDULED_MAX: usize = 8;
/// The bounds of the number of a node's clients.
const CLIENTS: (f64, f64) = (200.0, 60_000.0);

/// Requests of a batch, and those that are delivered and not yet final-committed, of real engines.
const BATCH: usize = 32;
/// See [`BATCH`].
pub const RUN_AHEAD: usize = 128;
/// Rounds in which contenders are measured in turns.
const ROUNDS: usize = 5;

/// A run of the model, with where its result belongs.
#[derive(Clone)]
pub struct Job {
    /// The plot's number among those of the figure.
    pub panel: usize,
    /// The series.
    pub series: String,
    /// The place.
    pub x: f64,
    /// The place's name.
    pub name: String,
    /// What to run.
    pub options: scale::Options,
}

/// Where a run belongs, and what it is of.
pub struct Place {
    /// The plot's number among those of the figure.
    pub panel: usize,
    /// The series.
    pub series: String,
    /// The place.
    pub x: f64,
    /// The place's name.
    pub name: String,
}

/// What a contender's work costs a worker.
#[derive(Clone, Debug, Serialize)]
pub struct Prices {
    /// What a call takes a real worker, in nanoseconds of processor time: the median of the rounds. Zero if
    /// nothing was measured.
    pub worker_ns: f64,
    /// What a step costs, if that is true.
    pub step_ns: u64,
    /// What it costs to look at a record.
    pub read_ns: u64,
    /// What it costs to make a call.
    pub call_ns: u64,
    /// What was measured, round by round.
    pub rounds: Vec<Round>,
}

/// What transactions of a contender are made of, and what that costs.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Steps of a transaction that goes through the order, in the model.
    pub steps: f64,
    /// Records that a call looks at beside the order, on average.
    pub looks: f64,
    /// The share of the calls that go through the order.
    pub ordered_share: f64,
    /// If one worker works while this machine's other processors rest.
    pub alone: Prices,
    /// If all processors work, each at an engine of its own: they share memory and caches, but no records.
    /// For all models of several workers.
    pub busy: Prices,
}

impl Measured {
    /// The prices where so many workers work.
    pub fn prices(&self, workers: usize) -> &Prices {
        if workers > 1 { &self.busy } else { &self.alone }
    }
}

/// Who runs models and engines.
pub struct Lab {
    /// The first seed, and that of what runs with one seed only.
    pub seed: u64,
    /// How many seeds each run is repeated with.
    pub repeats: usize,
    /// What takes how long.
    pub times: Times,
    /// What costs how much; of steps and reads, where nothing was measured.
    pub costs: Costs,
    /// Whether steps and reads are measured on this machine.
    pub calibrated: bool,
    /// Seconds of a real measurement.
    pub seconds: f64,
    /// Models that run at the same time.
    pub threads: usize,
    /// By contender and workload.
    pub measured: BTreeMap<(String, String), Measured>,
}

/// A workload's settings as a name.
pub fn name_of(settings: &Settings) -> String {
    let options = settings.shown();
    let options = options.iter().map(|(name, value)| format!(" --{name} {value}"));
    settings.workload.clone() + &options.collect::<String>()
}

impl Lab {
    /// The seeds of all runs.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        (self.seed..).take(self.repeats)
    }

    /// Runs real engines in turns, on as many threads as they have workers, once with each seed.
    pub fn real(&self, settings: &Settings, contenders: &[(Contender, usize)]) -> Result<Vec<Vec<Record>>> {
        let mut all = vec![Vec::new(); contenders.len()];
        for seed in self.seeds() {
            let (count, what) = (contenders.len(), name_of(settings));
            eprintln!("running {count} real engines, {what}: seed {seed}");
            for (records, record) in all.iter_mut().zip(self.real_once(settings, contenders, seed)?) {
                records.push(record);
            }
        }
        Ok(all)
    }

    fn real_once(
        &self,
        settings: &Settings,
        contenders: &[(Contender, usize)],
        seed: u64,
    ) -> Result<Vec<Record>> {
        let contenders = contenders.iter().map(|&(contender, workers)| {
            let executor = Executor::Engine(contender.kind().map_err(|wrong| anyhow!(wrong))?);
            Ok(RealContender { executor, workers: Some(workers), is_fed_final: false, qstore_mode: None })
        });
        let options = engine::Options {
            contenders: contenders.collect::<Result<_>>()?,
            workers: vec![1],
            settings: settings.clone(),
            duration: Duration::from_secs_f64(self.seconds),
            slice: Duration::from_millis(250),
            seed,
            batch: BATCH,
            run_ahead: RUN_AHEAD,
            reads: Reads::Design,
            confirm_lag: Duration::ZERO,
            reorder_percent: 0,
            rate: None,
            max_spec: None,
            qstore_mode: None,
        };
        let found = engine::run(&options)?;
        if !found.violations.is_empty() {
            bail!("the final state is wrong:\n  {}", found.violations.join("\n  "));
        }
        Ok(found.records)
    }

    /// A model of one worker at these costs: what a transaction is made of. As many calls are on their way as
    /// where its steps are measured, so that what reconnaissance found is as old.
    fn alone(&self, contender: Contender, settings: &Settings) -> Result<Report> {
        let options = scale::Options {
            nodes: 1,
            workers: 1,
            contender,
            workload: settings.workload()?,
            clients: worker::BATCH,
            times: Times {
                warm_up_ns: 10_000_000,
                measured_ns: 40_000_000,
                epoch_ns: ALONE_EPOCH_NS,
                ..self.times
            },
            costs: self.costs,
            seed: self.seed,
            judged: false,
            replication: None,
        };
        scale::run(&options).map_err(|wrong| anyhow!(wrong))
    }

    /// Finds what a step of each contender costs, and what a read beside the order does: from the processor
    /// time that one real worker takes for the same transactions, alone, and with all processors busy.
    /// Contenders take turns, so that what else runs on this machine hits them alike; the medians of the
    /// rounds count.
    pub fn calibrate(&mut self, contenders: &[Contender], settings: &Settings) -> Result<()> {
        let unknown: Vec<Contender> =
            contenders.iter().copied().filter(|&contender| !self.knows(contender, settings)).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let workload = settings.workload()?;
        let mut rounds = vec![(Vec::new(), Vec::new()); unknown.len()];
        if self.calibrated {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let load = |&contender: &Contender| {
                let stand = |_| Stand::load(contender, &*workload, self.seed);
                (0..processors).map(stand).collect::<Result<Vec<_>>>()
            };
            let mut stands: Vec<Vec<Stand>> = unknown.iter().map(load).collect::<Result<_>>()?;
            let seconds = self.seconds / ROUNDS as f64;
            // The first round warms up.
            for round in 0..=ROUNDS {
                let names: Vec<String> = unknown.iter().map(Contender::to_string).collect();
                let (names, what) = (names.join(", "), name_of(settings));
                eprintln!("measuring {names}, {what}: round {round} of {ROUNDS}");
                for (stands, (alone, busy)) in stands.iter_mut().zip(&mut rounds) {
                    let found = worker::measure(&mut stands[..1], seconds);
                    let found_busy = worker::measure(stands, seconds);
                    if round > 0 {
                        alone.push(found);
                        busy.push(found_busy);
                    }
                }
            }
        }
        for (contender, (alone, busy)) in unknown.into_iter().zip(rounds) {
            let measured = self.priced(contender, settings, alone, busy)?;
            self.measured.insert((contender.to_string(), name_of(settings)), measured);
        }
        Ok(())
    }

    /// What a contender's steps cost if a real worker took what these rounds say.
    fn priced(
        &self,
        contender: Contender,
        settings: &Settings,
        alone: Vec<Round>,
        busy: Vec<Round>,
    ) -> Result<Measured> {
        let report = self.alone(contender, settings)?;
        let ended = (report.committed + report.rolled_back).max(1) as f64;
        let steps = report.steps as f64 / report.ordered().max(1) as f64;
        let mut unmeasured_ns = self.costs.step_ns as f64;
        if contender.needs().whole_transactions {
            // Its step costs as much as all the steps that another takes.
            let sparkle = self.alone(Contender::SPARKLE, settings)?;
            unmeasured_ns *= sparkle.steps as f64 / sparkle.ordered().max(1) as f64 / steps;
        }
        let prices = |rounds: Vec<Round>| {
            let median =
                |of: fn(&Round) -> f64| Spread::of(&rounds.iter().map(of).collect::<Vec<_>>()).median;
            let reads: Vec<f64> = rounds.iter().filter_map(|round| round.read_ns).collect();
            let whole = |ns: f64| ns.round().max(1.0) as u64;
            let step_ns = if rounds.is_empty() { unmeasured_ns } else { median(|r| r.engine_ns) / steps };
            Prices {
                worker_ns: median(|round| round.each_ns),
                step_ns: whole(step_ns),
                read_ns: if reads.is_empty() { self.costs.read_ns } else { whole(Spread::of(&reads).median) },
                call_ns: median(|round| round.call_ns).round() as u64,
                rounds,
            }
        };
        Ok(Measured {
            steps,
            looks: report.looks as f64 / ended,
            ordered_share: report.ordered() as f64 / ended,
            alone: prices(alone),
            busy: prices(busy),
        })
    }

    /// Whether a contender's steps on a workload have a price.
    pub fn knows(&self, contender: Contender, settings: &Settings) -> bool {
        let key = (contender.to_string(), name_of(settings));
        self.measured.contains_key(&key)
    }

    /// What was found of a contender on a workload, or else of Sparkle.
    fn found(&self, contender: Contender, settings: &Settings) -> Option<&Measured> {
        let of = |contender: Contender| self.measured.get(&(contender.to_string(), name_of(settings)));
        of(contender).or_else(|| of(Contender::SPARKLE))
    }

    /// The costs of a contender's steps on a workload where so many workers work. What was not measured costs
    /// what Sparkle's do there.
    pub fn costs_of(&self, contender: Contender, settings: &Settings, workers: usize) -> Costs {
        let prices = self.found(contender, settings).map(|measured| measured.prices(workers));
        Costs {
            step_ns: prices.map_or(self.costs.step_ns, |prices| prices.step_ns),
            read_ns: prices.map_or(self.costs.read_ns, |prices| prices.read_ns),
            ..self.costs
        }
    }

    /// What making a call costs a worker that makes its own.
    pub fn call_ns(&self, contender: Contender, settings: &Settings, workers: usize) -> u64 {
        self.found(contender, settings).map_or(0, |measured| measured.prices(workers).call_ns)
    }

    /// Clients that keep so many workers busy.
    pub fn clients(&self, contender: Contender, settings: &Settings, workers: usize) -> usize {
        let costs = self.costs_of(contender, settings, workers);
        let (steps, looks) = self
            .found(contender, settings)
            .map_or((40.0, 0.0), |found| (found.steps * found.ordered_share, found.looks));
        let each_ns = steps * costs.step_ns as f64 + looks * costs.read_ns as f64;
        // Calls that wait for a scheduler keep no worker busy: they only grow old.
        let workers = if contender.has_scheduler() { workers.min(SCHEDULED_MAX) } else { workers };
        let clients = EPOCHS_AHEAD * self.times.epoch_ns as f64 * workers as f64 / each_ns;
        clients.clamp(CLIENTS.0, CLIENTS.1) as usize
    }

    /// Runs all jobs with each seed, several at a time. Results are in the order of the jobs, and for each in
    /// the order of the seeds.
    pub fn run(&self, what: &str, jobs: &[Job]) -> Result<Vec<Vec<Report>>> {
        let seeds: Vec<u64> = self.seeds().collect();
        let runs: Vec<scale::Options> = jobs
            .iter()
            .flat_map(|job| seeds.iter().map(|&seed| scale::Options { seed, ..job.options.clone() }))
            .collect();
        let reports = side_by_side(what, self.threads, &runs, scale::run)?;
        Ok(reports.chunks(seeds.len().max(1)).map(<[Report]>::to_vec).collect())
    }

    /// What all figures were made with.
    pub fn parameters(&self) -> serde_json::Value {
        let priced = self.measured.iter().map(|((contender, workload), measured)| {
            serde_json::json!({ "contender": contender, "workload": workload, "measured": measured })
        });
        serde_json::json!({
            "seeds": self.seeds().collect::<Vec<_>>(),
            "times": self.times,
            "costs": self.costs,
            "contenders": priced.collect::<Vec<_>>(),
        })
    }
}

/// Runs models, several at a time. Results are in the order of the runs.
pub fn side_by_side<T: Sync, R: Send>(
    what: &str,
    threads: usize,
    runs: &[T],
    run: impl Fn(&T) -> Result<R, String> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<usize, Result<R, String>>> = Mutex::default();
    let progress = Mutex::new(Progress::new(runs.len() as u64));
    progress.lock().say(what);
    eprintln!("modelling {what}: {} runs", runs.len());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(runs.len()) {
            scope.spawn(|| {
                while let Some((place, options)) = {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    runs.get(place).map(|options| (place, options))
                } {
                    let result = run(options);
                    results.lock().insert(place, result);
                    progress.lock().advance();
                }
            });
        }
    });
    let results = results.into_inner().into_values();
    results.map(|result| result.map_err(|wrong| anyhow!("{what}: {wrong}"))).collect()
}

/// The modelled series of a panel.
pub fn series(
    panel: usize,
    jobs: &[Job],
    reports: &[Vec<Report>],
    value: impl Fn(&Report) -> f64,
) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (job, reports) in jobs.iter().zip(reports) {
        if job.panel != panel {
            continue;
        }
        let samples = (job.options.seed..).zip(reports).map(|(seed, report)| Sample {
            seed,
            y: value(report),
            run: serde_json::json!({
                "nodes": job.options.nodes,
                "workers": job.options.workers,
                "clients_per_node": job.options.clients,
                "costs": job.options.costs,
                "times": job.options.times,
                "found": report,
            }),
        });
        add_point(&mut all, &job.series, Source::Modelled, Point::of(job.x, &job.name, samples.collect()));
    }
    all
}

/// Adds a point to its series, which may be new.
pub fn add_point(all: &mut Vec<Series>, name: &str, source: Source, point: Point) {
    match all.iter_mut().find(|series| series.name == name && series.source == source) {
        Some(series) => series.points.push(point),
        None => all.push(Series { name: name.to_owned(), source, points: vec![point] }),
    }
}
