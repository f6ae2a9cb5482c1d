//! Redis and Ordo side by side: starts both, drives them in turn, and prints the ratios.
//!
//! Both keep a log without waiting for the disk (`appendfsync no`), except where the row says otherwise;
//! Redis without any log is shown beside it. All servers of a comparison are up at the same time with the
//! same data, and all but the measured one are stopped (`SIGSTOP`), so that a round measures each within
//! seconds of the others and none disturbs another. The order alternates from round to round.
//!
//! Servers die with this process: they are killed when it ends or fails, and by the kernel if it is killed
//! itself.

mod server;

use crate::child::interruption;
use crate::engine::{load_average, resident_bytes_of};
use crate::progress::Progress;
use crate::redis::load::Until;
use crate::redis::{self, Kind as Command, Workload};
use crate::report::{self, Spread, rate};
use anyhow::{Context, Result, bail};
use comfy_table::Table;
use serde::Serialize;
use server::{Kind, Server};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Commands that a pipelining client sends at once.
const PIPELINE: usize = 16;
/// Keys of the row that waits for the disk: they need no loading.
const ALWAYS_KEYS: u64 = 100_000;
/// How long the computing scripts take, on Redis.
const SCRIPT: Duration = Duration::from_micros(50);
const LONG_SCRIPT: Duration = Duration::from_millis(200);

/// A comparison.
#[derive(Clone, Debug)]
pub struct Options {
    /// Redis's server program.
    pub redis_server: PathBuf,
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
    /// Less is better.
    P99Us,
    /// Less is better.
    ResidentBytes,
}

/// A row of the comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name, as `--only` takes it (the two of `longscript` have a suffix).
    pub row: String,
    /// What is compared.
    pub measure: Measure,
    /// Redis, over the rounds.
    pub redis: Spread,
    /// Redis without a log, where it was measured.
    pub redis_without_log: Option<Spread>,
    /// Ordo, over the rounds.
    pub ordo: Spread,
    /// Ordo by Redis, round by round.
    pub ratio: Spread,
    /// The least ratio wanted (the largest, where less is better); none if the row is for information.
    pub bar: Option<f64>,
    /// Whether the median ratio meets the bar.
    pub met: Option<bool>,
    /// Connections.
    pub clients: usize,
    /// Seconds of each measurement.
    pub seconds: f64,
    /// Rounds.
    pub rounds: usize,
    /// The seed of the keys drawn.
    pub seed: u64,
    /// The machine's load when the row was done.
    pub load_average: String,
}

/// A workload that all servers of a group run in turn.
#[derive(Clone, Copy)]
struct Test {
    name: &'static str,
    workload: Workload,
    pipeline: usize,
    /// Redis without a log runs it too.
    without_log: bool,
    bar: Option<f64>,
}

const TESTS: [Test; 14] = [
    Test { name: "get", workload: Workload::Get, pipeline: 1, without_log: true, bar: Some(0.8) },
    Test { name: "set", workload: Workload::Set, pipeline: 1, without_log: true, bar: Some(0.8) },
    Test {
        name: "get-pipelined",
        workload: Workload::Get,
        pipeline: PIPELINE,
        without_log: true,
        bar: Some(0.7),
    },
    Test {
        name: "set-pipelined",
        workload: Workload::Set,
        pipeline: PIPELINE,
        without_log: true,
        bar: Some(0.5),
    },
    Test {
        name: "lpush",
        workload: Workload::Command(Command::Lpush),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "sadd",
        workload: Workload::Command(Command::Sadd),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "hset",
        workload: Workload::Command(Command::Hset),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "zadd",
        workload: Workload::Command(Command::Zadd),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "xadd",
        workload: Workload::Command(Command::Xadd),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "lrange",
        workload: Workload::Command(Command::Lrange),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test {
        name: "mset",
        workload: Workload::Command(Command::Mset),
        pipeline: 1,
        without_log: false,
        bar: Some(0.7),
    },
    Test { name: "transfer", workload: Workload::Transfer, pipeline: 1, without_log: false, bar: Some(0.8) },
    Test {
        name: "script50us",
        workload: Workload::Script50us,
        pipeline: 1,
        without_log: false,
        bar: Some(1.3),
    },
    Test {
        name: "longscript",
        workload: Workload::LongScript,
        pipeline: 1,
        without_log: false,
        bar: Some(0.05),
    },
];
const ALWAYS: Test =
    Test { name: "set-always", workload: Workload::Set, pipeline: 1, without_log: false, bar: Some(0.8) };
const MEMORY: &str = "memory";
const MEMORY_BAR: f64 = 2.0;

/// Runs the comparison.
pub fn run(options: &Options) -> Result<Vec<Row>> {
    let names: Vec<&str> = TESTS.iter().map(|test| test.name).chain([ALWAYS.name, MEMORY]).collect();
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(&name.as_str())) {
        bail!("--only {unknown}: the rows are {}", names.join(", "));
    }
    if options.rounds == 0 || options.keys == 0 {
        bail!("--rounds and --keys must be at least 1");
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    let interrupted = interruption()?;
    let tests: Vec<Test> = TESTS.into_iter().filter(|test| wanted(test.name)).collect();
    let directory = Directory::new(options.dir.as_deref())?;
    let mut comparison = Comparison {
        options,
        directory: directory.path(),
        progress: Progress::new(((tests.len() + usize::from(wanted(ALWAYS.name))) * options.rounds) as u64),
        interrupted,
        rows: Vec::new(),
    };
    if !tests.is_empty() || wanted(MEMORY) {
        comparison.without_fsync(&tests, wanted(MEMORY))?;
    }
    if wanted(ALWAYS.name) {
        let mut servers = comparison.start(&[Kind::RedisAlways, Kind::OrdoAlways])?;
        comparison.test(ALWAYS, &mut servers, ALWAYS_KEYS)?;
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
    fn start(&self, kinds: &[Kind]) -> Result<Vec<Server>> {
        let mut servers = Vec::new();
        for &kind in kinds {
            self.progress.say(format!("starting {}", kind.label()));
            let mut server = Server::start(kind, self.options, self.directory)?;
            server.stop()?;
            servers.push(server);
        }
        Ok(servers)
    }

    fn without_fsync(&mut self, tests: &[Test], memory: bool) -> Result<()> {
        let mut servers = self.start(&[Kind::Redis, Kind::Ordo, Kind::RedisWithoutLog])?;
        let mut resident = Vec::new();
        for server in &mut servers {
            self.progress.say(format!("loading {} keys into {}", self.options.keys, server.kind().label()));
            server.go_on()?;
            redis::run(&self.run_options(server, Workload::Fill, 1, self.options.keys))?;
            resident.push(resident_bytes_of(&server.process().to_string()) as f64);
            server.stop()?;
        }
        if memory {
            let (redis, ordo, without_log) = (&resident[..1], &resident[1..2], Some(&resident[2..]));
            self.row(MEMORY.into(), Measure::ResidentBytes, redis, ordo, without_log, Some(MEMORY_BAR), 1);
        }
        for &test in tests {
            self.test(test, &mut servers, self.options.keys)?;
        }
        Ok(())
    }

    fn test(&mut self, test: Test, servers: &mut [Server], keys: u64) -> Result<()> {
        // Both run the same computation: what takes the time wanted on Redis.
        let iterations = match test.workload {
            Workload::Script50us => Some(SCRIPT),
            Workload::LongScript => Some(LONG_SCRIPT),
            _ => None,
        };
        let iterations = match iterations {
            Some(duration) => {
                servers[0].go_on()?;
                let iterations = redis::calibrate(&servers[0].target(), duration)?;
                servers[0].stop()?;
                Some(iterations)
            }
            None => None,
        };
        // By record of the workload, by server, by round.
        let mut found: Vec<Vec<Vec<f64>>> = Vec::new();
        for round in 0..self.options.rounds {
            let mut order: Vec<usize> = (0..servers.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for index in order {
                if self.interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                let server = &mut servers[index];
                if server.kind() == Kind::RedisWithoutLog && !test.without_log {
                    continue;
                }
                self.progress.say(format!("{}: {}", test.name, server.kind().label()));
                server.go_on()?;
                let mut options = self.run_options(server, test.workload, test.pipeline, keys);
                options.iterations = iterations;
                options.load = round == 0 && test.workload == Workload::Transfer;
                let records = redis::run(&options).with_context(|| server.error("could not be measured"))?;
                server.stop()?;
                found.resize_with(records.len(), || vec![Vec::new(); servers.len()]);
                for (found, record) in found.iter_mut().zip(&records) {
                    found[index].push(match test.workload {
                        Workload::LongScript => record.latency_us.p99,
                        _ => record.throughput_per_s,
                    });
                }
            }
            self.progress.advance();
        }
        // The script of the long-script workload is no contestant: what it gets is not compared.
        let suffixes: &[&str] = if test.workload == Workload::LongScript { &[".get", ".set"] } else { &[""] };
        for (suffix, found) in suffixes.iter().zip(&found) {
            let measure =
                if test.workload == Workload::LongScript { Measure::P99Us } else { Measure::ThroughputPerS };
            let bar = if *suffix == ".set" { None } else { test.bar };
            let without_log = found.get(2).filter(|found| !found.is_empty()).map(Vec::as_slice);
            let name = format!("{}{suffix}", test.name);
            self.row(name, measure, &found[0], &found[1], without_log, bar, self.options.rounds);
        }
        Ok(())
    }

    fn run_options(&self, server: &Server, workload: Workload, pipeline: usize, keys: u64) -> redis::Options {
        redis::Options {
            target: server.target(),
            label: server.kind().label().to_owned(),
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

    #[allow(clippy::too_many_arguments, reason = "a row has that many columns")]
    fn row(
        &mut self,
        row: String,
        measure: Measure,
        redis: &[f64],
        ordo: &[f64],
        without_log: Option<&[f64]>,
        bar: Option<f64>,
        rounds: usize,
    ) {
        let ratio = Spread::of_ratios(ordo, redis);
        let met = bar.map(|bar| match measure {
            Measure::ThroughputPerS => ratio.median >= bar,
            Measure::P99Us | Measure::ResidentBytes => ratio.median <= bar,
        });
        self.rows.push(Row {
            row,
            measure,
            redis: Spread::of(redis),
            redis_without_log: without_log.map(Spread::of),
            ordo: Spread::of(ordo),
            ratio,
            bar,
            met,
            clients: self.options.clients,
            seconds: self.options.duration.as_secs_f64(),
            rounds,
            seed: self.options.seed,
            load_average: load_average(),
        });
    }
}

/// The rows as a table.
pub fn table(rows: &[Row]) -> Table {
    let spread =
        |spread: &Spread| format!("{} ({} - {})", rate(spread.median), rate(spread.min), rate(spread.max));
    let rows = rows
        .iter()
        .map(|row| {
            let unit = match row.measure {
                Measure::ThroughputPerS => "per s",
                Measure::P99Us => "p99 us",
                Measure::ResidentBytes => "bytes",
            };
            let limit = if row.measure == Measure::ThroughputPerS { ">=" } else { "<=" };
            vec![
                row.row.clone(),
                unit.to_owned(),
                spread(&row.redis),
                row.redis_without_log.as_ref().map_or("-".to_owned(), spread),
                spread(&row.ordo),
                format!("{:.3} ({:.3} - {:.3})", row.ratio.median, row.ratio.min, row.ratio.max),
                row.bar.map_or("-".to_owned(), |bar| format!("{limit} {bar}")),
                row.met.map_or("-", |met| if met { "yes" } else { "no" }).to_owned(),
            ]
        })
        .collect();
    report::table(&["row", "unit", "redis", "redis, no log", "ordo", "ordo / redis", "bar", "met"], rows)
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
