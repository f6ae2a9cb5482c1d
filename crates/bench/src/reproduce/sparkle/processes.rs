//! Three real processes beside their model: how much of what the other figures say of clusters is seen on
//! this machine.
//!
//! Three processes of one zone keep one partition each, as the model's nodes do, so a transaction over two
//! partitions is one of two processes that tell each other what they read over TCP. (Nothing is replicated:
//! the paper's cluster is not either.) The load is the shape of the synthetic workload as a Lua script: five
//! records are read and five are written, all of one partition or half of two. Clients, processes and kernel
//! share this machine's cores, and parse, log, and run Lua. So the model's steps are made to take as long as
//! gives the same throughput without transactions over partitions; what is compared is what becomes of it
//! with them.

use super::super::figure::{Axis, Claim, Panel, Point, Sample, Source, ratios};
use super::super::lab::{add_point, series};
use super::{Found, Place, SPARKLE, Study, check, found, synthetic};
use crate::faults::processes::{Processes, Setting};
use crate::redis::load_script;
use crate::report::Spread;
use anyhow::{Context, Result, anyhow, bail};
use server::client::{Answer, Client};
use server::cluster::Delivery;
use sim::scale::Report;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use txn::Key;
use txn::hash::mix;
use txn::key::partition_of_slot;

/// Processes, and partitions.
const PROCESSES: u16 = 3;
/// The shares of transactions over two partitions, in percent.
const SHARES: [u32; 4] = [0, 10, 50, 100];
/// Connections of each process, and commands that each has on its way.
const CONNECTIONS: usize = 2;
const PIPELINE: usize = 32;
/// Records of a partition.
const RECORDS: u64 = 20_000;
/// Records that a transaction touches at each of two partitions, or twice at one.
const HALF: usize = 5;
/// Processes that are not up by then will not be.
const START_MAX: Duration = Duration::from_secs(60);
/// A client that waits longer for an answer has lost it.
const PATIENCE: Duration = Duration::from_secs(30);

const SCRIPT: &str = "local sum = 0 \
     for i = 1, 10, 2 do sum = sum + (tonumber(redis.call('GET', KEYS[i])) or 0) end \
     for i = 2, 10, 2 do redis.call('SET', KEYS[i], sum % 1000 + i) end \
     return 'done'";

/// A client's transactions.
struct Calls {
    state: u64,
    sha: String,
    /// A hash tag of each partition.
    tags: Vec<String>,
    share: u32,
}

impl Calls {
    fn draw(&mut self, below: u64) -> u64 {
        self.state = self.state.wrapping_add(1);
        mix(self.state) % below
    }

    fn next(&mut self) -> Vec<String> {
        let partitions = self.tags.len() as u64;
        let first = self.draw(partitions);
        let second = match self.draw(100) < u64::from(self.share) {
            true => (first + 1 + self.draw(partitions - 1)) % partitions,
            false => first,
        };
        let mut words = vec!["EVALSHA".to_owned(), self.sha.clone(), (2 * HALF).to_string()];
        for at in [first, second] {
            for _ in 0..HALF {
                let record = self.draw(RECORDS);
                words.push(format!("{{{}}}{record}", self.tags[at as usize]));
            }
        }
        words
    }
}

/// A hash tag for each partition.
fn tags() -> Vec<String> {
    let tag_of = |partition: u16| {
        let mut tags = (0..).map(|number| format!("t{number}"));
        let is_there = |tag: &String| {
            let slot = Key::new(format!("{{{tag}}}").as_bytes()).slot();
            partition_of_slot(slot, PROCESSES).0 == partition
        };
        tags.find(is_there).unwrap_or_default()
    };
    (0..PROCESSES).map(tag_of).collect()
}

/// What clients of all processes get done in a second, with this share.
fn throughput(addresses: &[SocketAddr], sha: &str, share: u32, seed: u64, time: Duration) -> Result<f64> {
    let run = |number: usize, address: SocketAddr| -> Result<(u64, Duration)> {
        let mut client = Client::open(&address.to_string(), PATIENCE)?;
        let mut calls = Calls {
            state: mix(seed ^ (number as u64) << 32 ^ u64::from(share)),
            sha: sha.to_owned(),
            tags: tags(),
            share,
        };
        let (started, mut done) = (Instant::now(), 0);
        let commands = std::iter::from_fn(|| (started.elapsed() < time).then(|| calls.next()));
        client.pipeline(commands, PIPELINE, |answer| match answer {
            Answer::Text(_) => {
                done += 1;
                Ok(())
            }
            other => bail!("a process answered {other:?}"),
        })?;
        Ok((done, started.elapsed()))
    };
    let clients = (0..CONNECTIONS).flat_map(|_| addresses.iter().copied());
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            clients.enumerate().map(|(number, address)| scope.spawn(move || run(number, address))).collect();
        let mut sum = 0.0;
        for client in clients {
            let ended = client.join().map_err(|_| anyhow!("a client panicked"))?;
            let (done, elapsed) = ended?;
            sum += done as f64 / elapsed.as_secs_f64();
        }
        Ok(sum)
    })
}

impl Study {
    /// What real processes do: for each share, in each round.
    fn real_processes(&self) -> Result<Vec<Vec<f64>>> {
        let directory = tempfile::tempdir()?;
        let setting = Setting {
            ordo: std::env::current_exe().context("finding this program")?,
            nodes: usize::from(PROCESSES),
            zones: 1,
            partitions: PROCESSES,
            delivery: Delivery::Raft,
            appendfsync: "no".to_owned(),
            arguments: Vec::new(),
            directory: directory.path().to_owned(),
            faketime: None,
        };
        let mut processes = Processes::started(setting, START_MAX)?;
        let addresses = processes.addresses();
        let mut sha = String::new();
        for address in &addresses {
            sha = load_script(&mut Client::open(&address.to_string(), PATIENCE)?, SCRIPT)?;
        }
        let rounds = self.lab.repeats as u64;
        let mut found = vec![Vec::new(); SHARES.len()];
        // The first round warms up.
        for round in 0..=rounds {
            for (place, &share) in SHARES.iter().enumerate() {
                let time = Duration::from_secs_f64(self.lab.seconds);
                let seed = self.lab.seed + round;
                let got = throughput(&addresses, &sha, share, seed, time)?;
                if round > 0 {
                    found[place].push(got);
                }
            }
            processes.hold_alive()?;
        }
        Ok(found)
    }

    /// Three processes, modelled and measured.
    pub(super) fn processes(&mut self) -> Result<Found> {
        let calibrated = self.measure(&[SPARKLE], synthetic("low", 0, 0))?;
        let measured = self.real_processes()?;
        let job = |study: &Study, place: usize, step_ns: Option<u64>| {
            let place_of = Place {
                panel: 0,
                series: "three processes".to_owned(),
                x: place as f64,
                name: format!("{} %", SHARES[place]),
            };
            let settings = synthetic("low", 0, SHARES[place]);
            let mut job = study.job(place_of, SPARKLE, (&settings, &calibrated), (PROCESSES, 1))?;
            if let Some(step_ns) = step_ns {
                let factor = step_ns.max(1) / job.options.costs.step_ns.max(1);
                job.options.costs.step_ns = step_ns;
                job.options.clients = (job.options.clients / factor.max(1) as usize).max(super::CLIENTS_MIN);
            }
            Ok::<_, anyhow::Error>(job)
        };
        // Steps that take as long as gives what was measured without transactions over partitions.
        let plain = job(self, 0, None)?;
        let step_ns = plain.options.costs.step_ns as f64;
        let reports = self.lab.run("three processes, to scale", &[plain])?;
        let factor = reports[0][0].throughput_per_s() / Spread::of(&measured[0]).median.max(1.0);
        let step_ns = (step_ns * factor).max(1.0) as u64;
        let jobs = (0..SHARES.len()).map(|place| job(self, place, Some(step_ns)));
        let jobs = jobs.collect::<Result<Vec<_>>>()?;
        let reports = self.lab.run("three processes", &jobs)?;
        let mut all = series(0, &jobs, &reports, Report::throughput_per_s);
        for (place, rounds) in measured.iter().enumerate() {
            let samples = (self.lab.seed + 1..).zip(rounds);
            let samples = samples.map(|(seed, &y)| Sample { seed, y, run: serde_json::Value::Null });
            let point = Point::of(place as f64, format!("{} %", SHARES[place]), samples.collect());
            add_point(&mut all, "three processes", Source::Measured, point);
        }
        let title = "Three processes: throughput by the share of transactions over two of them";
        let labels = ("multi-partition transactions", "transactions/s");
        let panel = Panel::new(title, labels, Axis::Names, all);
        let mut claims = Vec::new();
        for (place, share) in SHARES.iter().enumerate().skip(1) {
            let left = |source: Source| {
                let at = |place: usize| panel.samples_of("three processes", source, place as f64);
                ratios(&at(place), &at(0))
            };
            let ratio = ratios(&left(Source::Modelled), &left(Source::Measured));
            let about = format!(
                "modelled / measured, three processes: throughput at {share} % multi-partition by that at 0 %"
            );
            claims.push(Claim::new(about, &ratio).bar(check::BAR.0, Some(check::BAR.1)));
        }
        let differences = vec![
            "No figure of the paper: three real processes of one zone with one partition each on this \
             machine, to see whether the model says of them what they do."
                .to_owned(),
            format!(
                "The model's step takes {step_ns} ns here, so that it has the measured throughput at 0 %: \
                 a real process also parses commands, writes its log and runs Lua, and three of them \
                 and their clients share this machine's cores, where a modelled node has a worker to \
                 itself."
            ),
            "Measured: a Lua script reads five records and writes five, out of 20,000 of a partition; \
             commands in pipelines of 32, two connections to each process, appendfsync no. Modelled: \
             the synthetic workload, three nodes of one worker."
                .to_owned(),
        ];
        Ok(found("three processes, modelled and measured", vec![panel], claims, differences))
    }
}
