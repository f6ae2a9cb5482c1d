//! Runs of the model side by side, and what a step costs on this machine.

use super::figure::{Point, Series};
use super::worker;
use crate::engine::{self, Contender as RealContender, Reads, Settings};
use crate::progress::Progress;
use crate::report::Record;
use anyhow::{Result, anyhow, bail};
use parking_lot::Mutex;
use serde::Serialize;
use sim::scale::{self, Contender, Costs, Report, Times};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Epochs of work that clients have under way.
const EPOCHS_AHEAD: f64 = 1.6;
/// The bounds of the number of a node's clients.
const CLIENTS: (f64, f64) = (200.0, 60_000.0);

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

/// What one transaction of a contender takes with one worker.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// What it takes a real worker, in nanoseconds of processor time.
    pub worker_ns: f64,
    /// Steps of a transaction, in the model.
    pub steps: f64,
    /// Records that it looks at beside the order.
    pub looks: f64,
    /// What a step costs, if all of this is true.
    pub step_ns: u64,
    /// What it costs to look at a record.
    pub read_ns: u64,
}

/// Who runs models and engines.
pub struct Lab {
    /// The seed of everything.
    pub seed: u64,
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
    /// Runs real engines in turns, on as many threads as they have workers.
    pub fn real(&self, settings: &Settings, contenders: &[(Contender, usize)]) -> Result<Vec<Record>> {
        let contenders = contenders.iter().map(|&(contender, workers)| RealContender {
            kind: contender.kind,
            workers: Some(workers),
            is_fed_final: false,
        });
        let options = engine::Options {
            contenders: contenders.collect(),
            workers: vec![1],
            settings: settings.clone(),
            duration: Duration::from_secs_f64(self.seconds),
            slice: Duration::from_millis(250),
            seed: self.seed,
            batch: 32,
            run_ahead: 128,
            reads: Reads::Design,
            confirm_lag: Duration::ZERO,
            reorder_percent: 0,
            rate: None,
            max_spec: None,
        };
        let found = engine::run(&options)?;
        if !found.violations.is_empty() {
            bail!("the final state is wrong:\n  {}", found.violations.join("\n  "));
        }
        Ok(found.records)
    }

    /// A model of one worker at these costs: what a transaction is made of.
    fn alone(&self, contender: Contender, settings: &Settings) -> Result<Report> {
        let options = scale::Options {
            nodes: 1,
            workers: 1,
            contender,
            workload: settings.workload()?,
            clients: 2_000,
            times: Times {
                warm_up_ns: 10_000_000,
                measured_ns: 40_000_000,
                epoch_ns: 2_000_000,
                ..self.times
            },
            costs: self.costs,
            seed: self.seed,
            judged: false,
        };
        scale::run(&options).map_err(|wrong| anyhow!(wrong))
    }

    /// Finds what a step of a contender costs, and what a read beside the order does: from the processor time
    /// that one real worker takes for the same transactions. The time of other processes on this machine is
    /// no part of it.
    pub fn calibrate(&mut self, contender: Contender, settings: &Settings) -> Result<()> {
        let report = self.alone(contender, settings)?;
        let committed = report.committed.max(1) as f64;
        let (steps, looks) = (report.steps as f64 / committed, report.looks as f64 / committed);
        let mut measured = Measured {
            worker_ns: 0.0,
            steps,
            looks,
            step_ns: self.costs.step_ns,
            read_ns: self.costs.read_ns,
        };
        if self.calibrated {
            let worker = worker::measure(contender, &*settings.workload()?, self.seed, self.seconds);
            measured.worker_ns = worker.engine_ns + worker.read_ns * looks;
            measured.step_ns = (worker.engine_ns / steps).round().max(1.0) as u64;
            if worker.read_ns > 0.0 {
                measured.read_ns = worker.read_ns.round().max(1.0) as u64;
            }
        } else if contender.needs().whole_transactions {
            // Its step costs as much as all the steps that another takes.
            let sparkle = self.alone(Contender::SPARKLE, settings)?;
            let operations = sparkle.steps as f64 / sparkle.committed.max(1) as f64;
            measured.step_ns = (self.costs.step_ns as f64 * operations / steps).round() as u64;
        }
        self.measured.insert((contender.to_string(), name_of(settings)), measured);
        Ok(())
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

    /// The costs of a contender's steps on a workload. What was not measured costs what Sparkle's do there.
    pub fn costs_of(&self, contender: Contender, settings: &Settings) -> Costs {
        let measured = self.found(contender, settings);
        Costs {
            step_ns: measured.map_or(self.costs.step_ns, |measured| measured.step_ns),
            read_ns: measured.map_or(self.costs.read_ns, |measured| measured.read_ns),
            ..self.costs
        }
    }

    /// Clients that keep so many workers busy.
    pub fn clients(&self, contender: Contender, settings: &Settings, workers: usize) -> usize {
        let costs = self.costs_of(contender, settings);
        let (steps, looks) =
            self.found(contender, settings).map_or((40.0, 0.0), |found| (found.steps, found.looks));
        let each_ns = steps * costs.step_ns as f64 + looks * costs.read_ns as f64;
        let clients = EPOCHS_AHEAD * self.times.epoch_ns as f64 * workers as f64 / each_ns;
        clients.clamp(CLIENTS.0, CLIENTS.1) as usize
    }

    /// Runs all jobs, several at a time. Results are in the order of the jobs.
    pub fn run(&self, what: &str, jobs: &[Job]) -> Result<Vec<Report>> {
        let next = AtomicUsize::new(0);
        let results: Mutex<BTreeMap<usize, Result<Report, String>>> = Mutex::default();
        let progress = Mutex::new(Progress::new(jobs.len() as u64));
        progress.lock().say(what);
        std::thread::scope(|scope| {
            for _ in 0..self.threads.min(jobs.len()) {
                scope.spawn(|| {
                    while let Some((place, job)) = {
                        let place = next.fetch_add(1, Ordering::Relaxed);
                        jobs.get(place).map(|job| (place, job))
                    } {
                        let result = scale::run(&job.options);
                        results.lock().insert(place, result);
                        progress.lock().advance();
                    }
                });
            }
        });
        let results = results.into_inner().into_values();
        results.map(|result| result.map_err(|wrong| anyhow!("{what}: {wrong}"))).collect()
    }
}

/// The series of a panel.
pub fn series(panel: usize, jobs: &[Job], reports: &[Report], value: impl Fn(&Report) -> f64) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for (job, report) in jobs.iter().zip(reports) {
        if job.panel != panel {
            continue;
        }
        let point = Point {
            x: job.x,
            name: job.name.clone(),
            y: value(report),
            run: serde_json::json!({
                "nodes": job.options.nodes,
                "workers": job.options.workers,
                "clients_per_node": job.options.clients,
                "costs": job.options.costs,
                "times": job.options.times,
                "found": report,
            }),
        };
        match all.iter_mut().find(|series| series.name == job.series) {
            Some(series) => series.points.push(point),
            None => all.push(Series { name: job.series.clone(), points: vec![point] }),
        }
    }
    all
}
