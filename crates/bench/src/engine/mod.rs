//! Drives engines in one process, without a network, and compares them.
//!
//! Every contender (an engine with a number of workers) has its own store, loaded once with the workload's
//! records, and its own callers ([`driver`]). The run is cut into rounds; in each round every contender has a
//! slice, in an order that turns and reverses from round to round. A first round warms up and does not count.
//!
//! **Read-only transactions.** `sparkle` and `nocc` run them at a final snapshot, beside the order, as
//! Sparkle's section 4.4 says. `calvin` runs them through its lock scheduler like all others, as Calvin's
//! published code does, and `ssmr` and `serial` in order, as S-SMR and the specification are. `--reads`
//! overrides it for all engines of a run.
//!
//! **Key sets.** Requests of `calvin` name their keys; where the arguments don't tell them, the caller finds
//! them by reconnaissance, on the measured threads. Resubmissions count as restarts.
//!
//! **`dur`** is no engine: it executes before the order, and gives the order what it has read and written
//! ([`certified`]). The order decides its entries after the same lag.
//!
//! **Decisions.** `--confirm-lag-ms` and `--reorder-percent` say when and how batches become final
//! ([`order`]).
//!
//! **The check.** After the run, the workload's consistency conditions must hold in every contender's final
//! state, and the replies must add up. `nocc` has no concurrency control, so that its violations are reported
//! and do not fail a run.

mod certified;
mod driver;
mod order;
mod settings;

pub use order::Decisions;
pub use settings::{Settings, WORKLOADS};

use crate::progress::Progress;
use crate::report::{Latencies, Record, Spread};
use anyhow::{Context, Result, bail};
use certified::CertifiedDriver;
use driver::{Driven, Driver, Feeding, Slice};
use execute::{EngineKind, qstore};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What executes the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// An engine, behind the order.
    Engine(EngineKind),
    /// A site of deferred update replication, before the order.
    Dur,
}

impl FromStr for Executor {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Executor> {
        match text {
            "dur" => Ok(Executor::Dur),
            name => match name.parse() {
                Ok(kind) => Ok(Executor::Engine(kind)),
                Err(error) => bail!("{error}; or compare them with dur, a certified protocol"),
            },
        }
    }
}

impl fmt::Display for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Executor::Engine(kind) => write!(f, "{kind}"),
            Executor::Dur => f.write_str("dur"),
        }
    }
}

/// An executor with a number of workers: `sparkle`, `sparkle@1`, `parspec+final@2`, `qstore+speculative`, or
/// `dur`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// The engine, or what else executes.
    pub executor: Executor,
    /// Its workers, if they are not those of the run.
    pub workers: Option<usize>,
    /// It gets batches only when they are decided, as Archie-FD does.
    pub is_fed_final: bool,
    /// Its mode, if it is Q-Store and the mode is not that of the run.
    pub qstore_mode: Option<qstore::Mode>,
}

impl FromStr for Contender {
    type Err = anyhow::Error;
    fn from_str(text: &str) -> Result<Contender> {
        let (name, workers) = match text.split_once('@') {
            Some((name, workers)) => {
                let workers = workers.parse().ok().filter(|&workers| workers > 0);
                (name, Some(workers.with_context(|| format!("'{text}': after @ comes a number of workers"))?))
            }
            None => (text, None),
        };
        let (name, is_fed_final) = name.strip_suffix("+final").map_or((name, false), |name| (name, true));
        let (name, qstore_mode) = match name.split_once('+') {
            Some((name @ "qstore", mode)) => (name, Some(mode.parse().map_err(anyhow::Error::msg)?)),
            _ => (name, None),
        };
        let executor = name.parse()?;
        if is_fed_final && executor == Executor::Dur {
            bail!("'{text}': dur gives its entries to the order, and is fed nothing from there");
        }
        Ok(Contender { executor, workers, is_fed_final, qstore_mode })
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.executor)?;
        if let Some(mode) = self.qstore_mode {
            write!(f, "+{}", mode.name())?;
        }
        f.write_str(if self.is_fed_final { "+final" } else { "" })
    }
}

impl Contender {
    /// Whether read-only transactions bypass the order, as its design says.
    fn reads_at_snapshots(self) -> bool {
        match self.executor {
            Executor::Engine(kind) => {
                matches!(kind, EngineKind::NoCc | EngineKind::Sparkle | EngineKind::ParSpec)
            }
            Executor::Dur => true,
        }
    }
}

/// Where read-only transactions run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// Where each engine's design says.
    Design,
    /// At final snapshots, for all engines.
    Snapshot,
    /// Through the order, for all engines.
    Order,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The engines; ratios are to the first.
    pub contenders: Vec<Contender>,
    /// Worker threads: with several counts, every engine runs with each.
    pub workers: Vec<usize>,
    /// The workload with its options.
    pub settings: Settings,
    /// The measured time of each contender.
    pub duration: Duration,
    /// The length of a slice.
    pub slice: Duration,
    /// The seed of records and calls.
    pub seed: u64,
    /// Requests in a batch.
    pub batch: usize,
    /// Requests that may be delivered and not yet final-committed.
    pub run_ahead: usize,
    /// Where read-only transactions run.
    pub reads: Reads,
    /// From a batch's delivery to its confirmation.
    pub confirm_lag: Duration,
    /// How many batches in 100 are decided otherwise than they were delivered.
    pub reorder_percent: u32,
    /// Calls that arrive in a second, whatever has become of those before.
    pub rate: Option<f64>,
    /// How many transactions are active at the same time in `parspec`; adapted if it is not given.
    pub max_spec: Option<u64>,
    /// The mode of `qstore`, where the contender names none.
    pub qstore_mode: Option<qstore::Mode>,
}

/// What a run found.
#[derive(Debug)]
pub struct Report {
    /// One record per contender.
    pub records: Vec<Record>,
    /// What the checks of engines that must be correct found wrong.
    pub violations: Vec<String>,
    /// What is to be known beside the figures.
    pub notes: Vec<String>,
}

struct Entrant {
    contender: Contender,
    workers: usize,
    driver: Box<dyn Driven>,
    memory_bytes: i64,
    slices: Vec<Slice>,
    reads_at_snapshots: bool,
}

/// An entrant that has run: its verdict and its figures.
struct Ended {
    executor: Executor,
    verdict: Result<(), String>,
    early_percent: Option<f64>,
    record: Record,
}

/// Runs the contenders side by side.
pub fn run(options: &Options) -> Result<Report> {
    if options.workers.is_empty() || options.workers.contains(&0) {
        bail!("--workers must be at least 1");
    }
    if options.batch == 0 || options.run_ahead == 0 || options.slice.is_zero() {
        bail!("--batch, --run-ahead and --slice-ms must be at least 1");
    }
    if let Some(rate) = options.rate
        && !(rate.is_finite() && rate > 0.0)
    {
        bail!("--rate {rate}: give a positive number of calls a second");
    }
    if let Some(max_spec) = options.max_spec
        && !(1..=64).contains(&max_spec)
    {
        bail!("--max-spec {max_spec}: choose from 1 to 64");
    }
    if options.reorder_percent > 100 {
        bail!("--reorder-percent {}: choose from 0 to 100", options.reorder_percent);
    }
    let workload = options.settings.workload()?;
    let pairs: Vec<(Contender, usize)> = match options
        .contenders
        .iter()
        .any(|contender| contender.workers.is_some())
    {
        true if options.workers.len() > 1 => {
            bail!("give either several --workers or engine@workers, not both")
        }
        _ => options
            .contenders
            .iter()
            .flat_map(|&contender| {
                options.workers.iter().map(move |&workers| (contender, contender.workers.unwrap_or(workers)))
            })
            .collect(),
    };
    if pairs.is_empty() {
        bail!("--engine names no engine");
    }
    let rounds = ((options.duration.as_secs_f64() / options.slice.as_secs_f64()).round() as usize).max(1);
    let progress = Progress::new((pairs.len() * (rounds + 2)) as u64);

    let mut entrants = Vec::new();
    for (contender, workers) in pairs {
        progress.say(format!("loading {} for {contender}", workload.name()));
        let reads_at_snapshots = match options.reads {
            Reads::Design => contender.reads_at_snapshots(),
            Reads::Snapshot => true,
            Reads::Order => false,
        };
        let decisions = Decisions {
            lag: options.confirm_lag,
            reorder_percent: options.reorder_percent,
            are_delivered_final: contender.is_fed_final,
        };
        let feeding = Feeding {
            batch: options.batch,
            run_ahead: options.run_ahead,
            reads_at_snapshots,
            decisions,
            rate: options.rate,
            max_spec: options.max_spec,
            qstore_mode: contender.qstore_mode.or(options.qstore_mode),
        };
        let before = resident_bytes();
        let driver: Box<dyn Driven> = match contender.executor {
            Executor::Engine(kind) => {
                Box::new(Driver::load(kind, workers, &*workload, options.seed, feeding))
            }
            Executor::Dur => Box::new(CertifiedDriver::load(workers, &*workload, options.seed, feeding)?),
        };
        let memory_bytes = resident_bytes() - before;
        entrants.push(Entrant {
            contender,
            workers,
            driver,
            memory_bytes,
            slices: Vec::new(),
            reads_at_snapshots,
        });
        progress.advance();
    }

    for round in 0..=rounds {
        for index in turn(entrants.len(), round) {
            let entrant = &mut entrants[index];
            progress.say(format!("{} with {} workers", entrant.contender, entrant.workers));
            let before = resident_bytes();
            let slice = entrant.driver.slice(options.slice);
            entrant.memory_bytes += resident_bytes() - before;
            // The first round warms up.
            if round > 0 {
                entrant.slices.push(slice);
            }
            progress.advance();
        }
    }

    let mut report = Report { records: Vec::new(), violations: Vec::new(), notes: Vec::new() };
    let first: Vec<f64> = entrants[0].slices.iter().map(Slice::throughput_per_s).collect();
    progress.say("checking the final states");
    // Walking through millions of records takes seconds, and so does freeing them: each entrant on its own
    // thread.
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let checks: Vec<_> = entrants
            .into_iter()
            .map(|entrant| {
                let (workload, first) = (&workload, &first);
                scope.spawn(move || {
                    let verdict = entrant.driver.check(&**workload);
                    let early_percent = entrant.driver.early_percent();
                    let executor = entrant.contender.executor;
                    Ended { executor, verdict, early_percent, record: entrant.record(options, first) }
                })
            })
            .collect();
        checks
            .into_iter()
            .map(|check| check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    for Ended { executor, verdict, early_percent, record } in ended {
        if executor == Executor::Dur {
            report.notes.push(format!(
                "dur, {} workers: its only site executes every transaction before the order has it, and \
                 certifies it once; a latency is that of a call with all its attempts. The engines' figures \
                 are those of a replica that executes everything",
                record.workers
            ));
        }
        if let Some(early_percent) = early_percent.filter(|_| !options.confirm_lag.is_zero()) {
            let text = "of its transactions had been executed before they were confirmed";
            report
                .notes
                .push(format!("{}, {} workers: {early_percent:.1} % {text}", record.engine, record.workers));
        }
        if let Err(violation) = verdict {
            let text = format!("{}, {} workers: {violation}", record.engine, record.workers);
            match executor {
                Executor::Engine(kind) if !kind.needs().correct => {
                    report.notes.push(format!("{text} ({kind} has no concurrency control: no failure)"));
                }
                Executor::Engine(_) | Executor::Dur => report.violations.push(text),
            }
        }
        report.records.push(record);
    }
    Ok(report)
}

/// The order of a round: it turns every second round and is reversed every other one, so that nobody always
/// follows the same neighbour.
fn turn(count: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(round / 2 % count);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

impl Entrant {
    fn record(&self, options: &Options, first: &[f64]) -> Record {
        let throughputs: Vec<f64> = self.slices.iter().map(Slice::throughput_per_s).collect();
        let undisturbed: Option<Vec<f64>> = self.slices.iter().map(Slice::undisturbed_per_s).collect();
        let seconds: f64 = self.slices.iter().map(|slice| slice.elapsed.as_secs_f64()).sum();
        let committed: u64 = self.slices.iter().map(|slice| slice.committed).sum();
        let mut latencies = Latencies::default();
        for slice in &self.slices {
            latencies.merge(&slice.latencies);
        }
        let ratio_spread = Spread::of_ratios(&throughputs, first);
        let census = self.driver.census();
        let mut shown: BTreeMap<String, String> = options.settings.shown();
        let reads = if self.reads_at_snapshots { "snapshot" } else { "order" };
        shown.extend(
            [
                ("batch", options.batch.to_string()),
                ("run-ahead", options.run_ahead.to_string()),
                ("slice-ms", options.slice.as_millis().to_string()),
                ("reads", reads.to_owned()),
                ("confirm-lag-us", options.confirm_lag.as_micros().to_string()),
                ("rate", options.rate.map_or("closed loop".to_owned(), |rate| rate.to_string())),
                ("reorder-percent", options.reorder_percent.to_string()),
                (
                    "early-percent",
                    self.driver.early_percent().map_or("-".to_owned(), |percent| format!("{percent:.1}")),
                ),
                ("load-average", load_average()),
                ("records", census.records.to_string()),
                ("versions", census.versions.to_string()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        Record {
            engine: self.contender.to_string(),
            workload: options.settings.workload.clone(),
            workers: self.workers,
            seconds,
            committed,
            aborted_by_logic: self.slices.iter().map(|slice| slice.aborted_by_logic).sum(),
            restarts: self.slices.iter().map(|slice| slice.restarts).sum(),
            throughput_per_s: committed as f64 / seconds,
            latency_us: latencies.summary(),
            processor_us: None,
            memory_bytes: self.memory_bytes.max(0) as u64,
            seed: options.seed,
            ratio_to_first: ratio_spread.median,
            ratio_spread,
            throughput_spread: Spread::of(&throughputs),
            undisturbed_spread: undisturbed.as_deref().map(Spread::of),
            options: shown,
        }
    }
}

/// Resident memory of this process; 0 where the system does not tell.
fn resident_bytes() -> i64 {
    resident_bytes_of("self") as i64
}

/// Resident memory of a process by its number; 0 where the system does not tell.
pub(crate) fn resident_bytes_of(process: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let kilobytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    kilobytes.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// The machine's load over the last minute: other work falsifies figures.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contenders_parse() {
        let contender: Contender = "sparkle@2".parse().unwrap();
        let want = Contender {
            executor: Executor::Engine(EngineKind::Sparkle),
            workers: Some(2),
            is_fed_final: false,
            qstore_mode: None,
        };
        assert_eq!(contender, want);
        let contender: Contender = "parspec+final@3".parse().unwrap();
        assert!(contender.is_fed_final && contender.workers == Some(3));
        assert_eq!(contender.to_string(), "parspec+final");
        let contender: Contender = "qstore+speculative@2".parse().unwrap();
        assert_eq!(contender.qstore_mode, Some(qstore::Mode::Speculative));
        assert_eq!(contender.to_string(), "qstore+speculative");
        assert!(
            "qstore+bold".parse::<Contender>().is_err()
                && "sparkle+speculative".parse::<Contender>().is_err()
        );
        assert!("sparkle@0".parse::<Contender>().is_err());
        let contender: Contender = "dur@4".parse().unwrap();
        assert_eq!((contender.executor, contender.workers), (Executor::Dur, Some(4)));
        assert!("dur+final".parse::<Contender>().is_err());
        let error = format!("{:#}", "sparkl".parse::<Contender>().unwrap_err());
        assert!(
            error.starts_with("'sparkl' is no engine: choose from serial, nocc, calvin, qstore,"),
            "{error}"
        );
        assert!(error.contains("parspec, ssmr, sparkle; or compare them with dur, a certified"), "{error}");
    }

    #[test]
    fn turns_are_fair() {
        for count in 1..5 {
            let mut places = vec![vec![0; count]; count];
            for round in 0..2 * count {
                for (place, entrant) in turn(count, round).into_iter().enumerate() {
                    places[entrant][place] += 1;
                }
            }
            assert!(places.iter().flatten().all(|&times| times == 2), "{count}: {places:?}");
        }
    }
}
