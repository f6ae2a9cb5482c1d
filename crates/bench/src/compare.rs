//! Ordo and its rivals side by side: starts all, drives them in turn, and prints the ratios.
//!
//! Ordo keeps a log without waiting for the disk (`appendfsync no`). Each rival, a server program that takes
//! the options of `redis-server`, runs twice: with its append-only file, and *bare*, without one. The rows
//! named `*-always` wait for the disk at each write, and have no bare rivals. All servers of a comparison are
//! up at the same time with the same data, and all but the measured one are stopped (`SIGSTOP`), so that a
//! round measures each within seconds of the others and none disturbs another. The order alternates from
//! round to round.
//!
//! Ratios are Ordo's figure by the rival's in the same round. The bar is for the ratio to the *best* rival of
//! each round, whichever that is.
//!
//! Servers die with this process: they are killed when it ends or fails, and by the kernel if it is killed
//! itself.

mod rows;
mod server;

use crate::child::interruption;
use crate::engine::{load_average, resident_bytes_of};
use crate::progress::Progress;
use crate::redis::load::Until;
use crate::redis::{self, Workload};
use crate::report::{self, Record, Spread, rate};
use anyhow::{Context, Result, bail};
use comfy_table::Table;
use rows::{ALWAYS, LONG_SCRIPT, MEMORY, Memory, TESTS, Test};
pub use rows::{Bar, names};
use serde::Serialize;
use server::{Contender, Log, Server};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keys of the rows that wait for the disk: they need no loading.
const ALWAYS_KEYS: u64 = 100_000;
/// How long the computing scripts take, on the first rival.
const SHORT_SCRIPT_TIME: Duration = Duration::from_micros(50);
const LONG_SCRIPT_TIME: Duration = Duration::from_millis(200);

/// A server that Ordo is compared with, which takes the options of `redis-server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// The rival's name in the report.
    pub name: String,
    /// Its program.
    pub program: PathBuf,
}

impl FromStr for Rival {
    type Err = anyhow::Error;
    /// `NAME=PROGRAM`.
    fn from_str(text: &str) -> Result<Rival> {
        match text.split_once('=') {
            Some((name, program)) if !name.is_empty() && !program.is_empty() => {
                Ok(Rival { name: name.to_owned(), program: program.into() })
            }
            _ => bail!("'{text}': give a name and a program, as in redis7=/usr/bin/redis-server"),
        }
    }
}

/// A comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom Ordo is compared with.
    pub rivals: Vec<Rival>,
    /// Ordo's program.
    pub ordo: PathBuf,
    /// Worker threads of Ordo.
    pub workers: usize,
    /// Rounds: in each, every server is measured.
    pub rounds: usize,
    /// The length of a measurement.
    pub duration: Duration,
    /// Keys that are loaded.
    pub keys: u64,
    /// Connections.
    pub clients: usize,
    /// The rows wanted; all if empty.
    pub only: Vec<String>,
    /// Where the servers keep their data; a new directory under the system's if not given.
    pub dir: Option<PathBuf>,
    /// The seed of the keys drawn.
    pub seed: u64,
}

/// What a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// More is better.
    ThroughputPerS,
    /// Processor time of the server for a request; less is better.
    ProcessorUs,
    /// Less is better.
    P99Us,
    /// Resident memory of a server that was filled, by the number of its keys; less is better.
    BytesPerKey,
}

impl Measure {
    fn unit(self) -> &'static str {
        match self {
            Measure::ThroughputPerS => "per s",
            Measure::ProcessorUs => "processor us",
            Measure::P99Us => "p99 us",
            Measure::BytesPerKey => "bytes a key",
        }
    }
    fn is_more_better(self) -> bool {
        self == Measure::ThroughputPerS
    }
    /// The figure in a record, if the record has one.
    fn of(self, record: &Record) -> Option<f64> {
        match self {
            Measure::ThroughputPerS => Some(record.throughput_per_s),
            Measure::ProcessorUs => record.processor_us,
            Measure::P99Us => Some(record.latency_us.p99),
            Measure::BytesPerKey => None,
        }
    }
    fn shown(self, value: f64) -> String {
        match self {
            Measure::ProcessorUs => format!("{value:.2}"),
            _ => rate(value),
        }
    }
}

/// One contender's part of a row.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name; `bare` says that it kept no log.
    pub contender: String,
    /// Over the rounds.
    pub value: Spread,
    /// Ordo by it, round by round.
    pub ratio: Spread,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name, as `--only` takes it (the two of `longscript` have a suffix).
    pub row: String,
    /// What is compared.
    pub measure: Measure,
    /// Ordo, over the rounds.
    pub ordo: Spread,
    /// The rivals that were measured.
    pub rivals: Vec<Figure>,
    /// Ordo by the best rival of each round.
    pub ratio_to_best: Spread,
    /// The bar that Ordo is held to; none if the row is for information.
    pub bar: Option<Bar>,
    /// Whether the median meets the bar.
    pub met: Option<bool>,
    /// Connections.
    pub clients: usize,
    /// Commands that a client sends at once.
    pub pipeline: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The seed of the keys drawn.
    pub seed: u64,
    /// The machine's load when the row was done.
    pub load_average: String,
}

/// Runs the comparison.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    if let Some(unknown) = options.only.iter().find(|only| names().all(|name| name != only.as_str())) {
        bail!("--only {unknown}: the rows are {}", names().collect::<Vec<_>>().join(", "));
    }
    if options.rounds == 0 || options.keys == 0 {
        bail!("--rounds and --keys must be at least 1");
    }
    if options.rivals.is_empty() {
        bail!("--with: name at least one server to compare with");
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let tests: Vec<Test> = TESTS.into_iter().chain([LONG_SCRIPT]).filter(|test| wanted(test.name)).collect();
    let always: Vec<Test> = ALWAYS.into_iter().filter(|test| wanted(test.name)).collect();
    let memory: Vec<Memory> = MEMORY.into_iter().filter(|memory| wanted(memory.name)).collect();
    let directory = Directory::new(options.dir.as_deref())?;
    let steps = (tests.len() + always.len()) * options.rounds + memory.len();
    let mut comparison = Comparison {
        options,
        directory: directory.path(),
        progress: Progress::new(steps as u64),
        interrupted: interruption()?,
        rows: Vec::new(),
    };
    for memory in memory {
        comparison.fill(&memory)?;
    }
    if !tests.is_empty() {
        let mut servers = comparison.start(&[Log::Lazy, Log::None])?;
        let has_keys =
            |test: &Test| matches!(test.workload, Workload::Get | Workload::Set | Workload::LongScript);
        if tests.iter().any(has_keys) {
            comparison.load(&mut servers)?;
        }
        for test in tests {
            comparison.test(test, &mut servers, options.keys)?;
        }
    }
    if !always.is_empty() {
        let mut servers = comparison.start(&[Log::Always])?;
        for test in always {
            comparison.test(test, &mut servers, ALWAYS_KEYS)?;
        }
    }
    Ok(comparison.rows)
}

struct Comparison<'a> {
    options: &'a Options,
    directory: &'a Path,
    progress: Progress,
    interrupted: Arc<AtomicBool>,
    rows: Vec<Row>,
}

impl Comparison<'_> {
    /// Starts Ordo, with the first of the logs, and behind it each rival with each log, and stops them all.
    fn start(&self, logs: &[Log]) -> Result<Vec<Server>> {
        let mut contenders = vec![Contender { rival: None, log: logs[0] }];
        for rival in &self.options.rivals {
            contenders.extend(logs.iter().map(|&log| Contender { rival: Some(rival.clone()), log }));
        }
        let mut servers = Vec::new();
        for contender in contenders {
            servers.push(self.start_one(contender)?);
        }
        Ok(servers)
    }

    fn start_one(&self, contender: Contender) -> Result<Server> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        self.progress.say(format!("starting {}", contender.label()));
        let mut server = Server::start(contender, self.options, self.directory)?;
        server.stop()?;
        Ok(server)
    }

    /// Runs a workload on a server alone.
    fn drive(&self, server: &mut Server, options: &redis::Options) -> Result<Vec<Record>> {
        if self.interrupted.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        server.go_on()?;
        let records = redis::run(options).with_context(|| server.error("could not be measured"))?;
        server.stop()?;
        Ok(records)
    }

    fn load(&self, servers: &mut [Server]) -> Result<()> {
        for server in servers {
            self.progress.say(format!(
                "loading {} keys into {}",
                self.options.keys,
                server.contender().label()
            ));
            self.drive(server, &self.run_options(server, Workload::Fill, 1, self.options.keys))?;
        }
        Ok(())
    }

    /// Fills Ordo, and each rival without a log, one after the other, and tells what they take.
    fn fill(&mut self, memory: &Memory) -> Result<()> {
        let rivals = self.options.rivals.iter().map(|rival| Some(rival.clone()));
        let mut labels = Vec::new();
        let mut found = Vec::new();
        for rival in std::iter::once(None).chain(rivals) {
            let log = if rival.is_none() { Log::Lazy } else { Log::None };
            let mut server = self.start_one(Contender { rival, log })?;
            self.progress.say(format!("{}: {}", memory.name, server.contender().label()));
            let options = self.run_options(&server, memory.workload, 1, self.options.keys);
            self.drive(&mut server, &options)?;
            labels.push(server.contender().label());
            let resident = resident_bytes_of(&server.process().to_string()) as f64;
            found.push(vec![resident / self.options.keys as f64]);
        }
        self.progress.advance();
        self.row(memory.name.into(), Measure::BytesPerKey, &labels, &found, memory.bar, 1);
        Ok(())
    }

    fn test(&mut self, test: Test, servers: &mut [Server], keys: u64) -> Result<()> {
        // All run the same computation: what takes the time wanted on the first rival.
        let computed = match test.workload {
            Workload::Script50us => Some(SHORT_SCRIPT_TIME),
            Workload::LongScript => Some(LONG_SCRIPT_TIME),
            _ => None,
        };
        let iterations = match computed {
            Some(duration) => {
                servers[1].go_on()?;
                let iterations = redis::calibrate(&servers[1].target(), duration)?;
                servers[1].stop()?;
                Some(iterations)
            }
            None => None,
        };
        // By record of the workload, by server, by round.
        let mut found: Vec<Vec<Vec<Record>>> = Vec::new();
        for round in 0..self.options.rounds {
            let mut order: Vec<usize> = (0..servers.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                let server = &mut servers[index];
                self.progress.say(format!("{}: {}", test.name, server.contender().label()));
                let mut options = self.run_options(server, test.workload, test.pipeline, keys);
                options.iterations = iterations;
                options.load = round == 0 && test.workload == Workload::Transfer;
                let records = self.drive(server, &options)?;
                found.resize_with(records.len(), || vec![Vec::new(); servers.len()]);
                for (found, record) in found.iter_mut().zip(records) {
                    found[index].push(record);
                }
            }
            self.progress.advance();
        }
        let labels: Vec<String> = servers.iter().map(|server| server.contender().label()).collect();
        // The script of the long-script workload is no contestant: what it gets is not compared.
        let suffixes: &[&str] = if test.workload == Workload::LongScript { &[".get", ".set"] } else { &[""] };
        let measures = [
            (Measure::ThroughputPerS, test.throughput),
            (Measure::ProcessorUs, test.processor),
            (Measure::P99Us, test.p99),
        ];
        for (suffix, found) in suffixes.iter().zip(&found) {
            for (measure, bar) in measures {
                // Of GET and SET beside a long script, only how long they wait is compared; GET has the bar.
                let is_long = test.workload == Workload::LongScript;
                if is_long && measure != Measure::P99Us {
                    continue;
                }
                let bar = bar.filter(|_| *suffix != ".set").map(Bar::RatioToBest);
                let values: Vec<Vec<f64>> = found
                    .iter()
                    .map(|records| records.iter().filter_map(|record| measure.of(record)).collect())
                    .collect();
                self.row(format!("{}{suffix}", test.name), measure, &labels, &values, bar, test.pipeline);
            }
        }
        Ok(())
    }

    fn run_options(&self, server: &Server, workload: Workload, pipeline: usize, keys: u64) -> redis::Options {
        redis::Options {
            target: server.target(),
            label: server.contender().label(),
            workload,
            clients: self.options.clients,
            pipeline,
            keys,
            until: Until::Elapsed(self.options.duration),
            warm_up: Duration::from_millis(500),
            seed: self.options.seed,
            iterations: None,
            load: false,
        }
    }

    /// Adds a row: the values of Ordo, which is first, and of its rivals, by contender and round.
    fn row(
        &mut self,
        row: String,
        measure: Measure,
        labels: &[String],
        values: &[Vec<f64>],
        bar: Option<Bar>,
        pipeline: usize,
    ) {
        let ordo = &values[0];
        let ratio_to_best = Spread::of_ratios(ordo, &best(measure, &values[1..]));
        let rivals = labels[1..].iter().zip(&values[1..]).map(|(label, values)| Figure {
            contender: label.clone(),
            value: Spread::of(values),
            ratio: Spread::of_ratios(ordo, values),
        });
        let rivals = rivals.collect();
        let ordo = Spread::of(ordo);
        let met = bar.map(|bar| match bar {
            Bar::RatioToBest(bar) if measure.is_more_better() => ratio_to_best.median >= bar,
            Bar::RatioToBest(bar) => ratio_to_best.median <= bar,
            Bar::Figure(bar) => ordo.median <= bar,
        });
        self.rows.push(Row {
            row,
            measure,
            ordo,
            rivals,
            ratio_to_best,
            bar,
            met,
            clients: self.options.clients,
            pipeline,
            seconds: self.options.duration.as_secs_f64(),
            rounds: self.options.rounds,
            seed: self.options.seed,
            load_average: load_average(),
        });
    }
}

/// The best of several rivals' figures in each round.
fn best(measure: Measure, rivals: &[Vec<f64>]) -> Vec<f64> {
    let rounds = rivals.iter().map(Vec::len).min().unwrap_or(0);
    let of_round = |round: usize| rivals.iter().map(move |values| values[round]);
    (0..rounds)
        .map(|round| match measure.is_more_better() {
            true => of_round(round).fold(0.0, f64::max),
            false => of_round(round).fold(f64::INFINITY, f64::min),
        })
        .collect()
}

/// The rows as a table. Behind each rival's figure stands the ratio of Ordo's to it.
pub fn table(rows: &[Row]) -> Table {
    let mut header = vec!["row", "unit", "ordo"];
    let mut rivals: Vec<&str> = Vec::new();
    for figure in rows.iter().flat_map(|row| &row.rivals) {
        if !rivals.contains(&figure.contender.as_str()) {
            rivals.push(&figure.contender);
        }
    }
    header.extend(&rivals);
    header.extend(["ordo / best", "bar", "met"]);
    let lines = rows.iter().map(|row| {
        let mut cells =
            vec![row.row.clone(), row.measure.unit().to_owned(), row.measure.shown(row.ordo.median)];
        cells.extend(rivals.iter().map(|rival| {
            row.rivals.iter().find(|figure| figure.contender == *rival).map_or("-".to_owned(), |figure| {
                format!("{} ({:.2})", row.measure.shown(figure.value.median), figure.ratio.median)
            })
        }));
        let Spread { median, min, max } = row.ratio_to_best;
        let limit = if row.measure.is_more_better() { ">=" } else { "<=" };
        cells.extend([
            format!("{median:.2} ({min:.2} - {max:.2})"),
            row.bar.map_or("-".to_owned(), |bar| match bar {
                Bar::RatioToBest(bar) => format!("{limit} {bar}"),
                Bar::Figure(bar) => format!("{limit} {bar} itself"),
            }),
            row.met.map_or("-", |met| if met { "yes" } else { "no" }).to_owned(),
        ]);
        cells
    });
    report::table(&header, lines.collect())
}

/// The servers' directory. One that was made here is removed at the end.
enum Directory {
    Own(PathBuf),
    Given(PathBuf),
}

impl Directory {
    fn new(given: Option<&Path>) -> Result<Directory> {
        match given {
            Some(path) => {
                std::fs::create_dir_all(path)
                    .with_context(|| format!("could not make {}", path.display()))?;
                Ok(Directory::Given(path.to_owned()))
            }
            None => {
                let path = std::env::temp_dir().join(format!("ordo-compare-{}", std::process::id()));
                std::fs::create_dir_all(&path)
                    .with_context(|| format!("could not make {}", path.display()))?;
                Ok(Directory::Own(path))
            }
        }
    }
    fn path(&self) -> &Path {
        match self {
            Directory::Own(path) | Directory::Given(path) => path,
        }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Directory::Own(path) = self
            && let Err(error) = std::fs::remove_dir_all(&*path)
        {
            eprintln!("could not remove {}: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_are_named_with_their_programs() {
        let rival: Rival = "redis7=/usr/bin/redis-server".parse().expect("a name and a program");
        assert_eq!((rival.name.as_str(), rival.program.to_str()), ("redis7", Some("/usr/bin/redis-server")));
        for text in ["redis7", "=program", "name="] {
            assert!(text.parse::<Rival>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_best_rival_of_a_round_is_another_one_in_each() {
        let rivals = [vec![3.0, 1.0], vec![2.0, 5.0]];
        assert_eq!(best(Measure::ThroughputPerS, &rivals), [3.0, 5.0]);
        assert_eq!(best(Measure::P99Us, &rivals), [2.0, 1.0]);
    }

    #[test]
    fn rows_have_different_names() {
        let mut all: Vec<&str> = names().collect();
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
