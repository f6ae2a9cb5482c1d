//! Clients that mean harm, and one that does not: what the first can do to the second.
//!
//! Hostile clients ([`attack`]) send random commands, blocks and scripts whose numbers and sizes are at
//! limits, in pipelines that they do not read, in frames that they do not finish, while they listen, monitor,
//! wait for keys and change settings. Beside them a well-behaved client at each node ([`witness`]) sends
//! short commands and measures how long each takes. A server that stands still counts for each command that
//! would have been sent meanwhile. The run fails if
//!
//! * a node ends, or says that it panicked;
//! * a well-behaved client gets a wrong reply, or none for [`PATIENCE`];
//! * a hostile client is neither answered nor closed for as long;
//! * the resident memory of a node exceeds its bound.
//!
//! The seed decides what is sent. How it falls together in time is the machine's affair.

mod attack;
mod witness;
mod words;

use crate::child::interruption;
use crate::faults::processes::{Processes, Setting};
use anyhow::{Context, Result, bail};
use attack::{Attacker, Shared};
use serde::Serialize;
use server::client::{Answer, Client};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use witness::Witness;

/// How long a reply may take before the server counts as hanging.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nodes may take to start.
const START_MAX: Duration = Duration::from_secs(60);
/// How often memory is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The words of a panic in a node's output.
const PANIC: &str = "panicked at";

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// What runs, and where.
    pub setting: Setting,
    /// Commands that hostile clients send in all.
    pub commands: u64,
    /// Hostile clients that work at once. Each holds some connections open that it does not read.
    pub clients: u64,
    /// The bound of each node's resident memory, in bytes.
    pub resident_max: u64,
    /// The seed.
    pub seed: u64,
}

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// Nodes.
    pub nodes: usize,
    /// Commands that hostile clients sent.
    pub commands: u64,
    /// Connections that they made.
    pub connections: u64,
    /// Connections that they left unread.
    pub unread: u64,
    /// Bytes that they sent.
    pub sent_bytes: u64,
    /// Bytes that they received.
    pub received_bytes: u64,
    /// Seconds that it took.
    pub seconds: f64,
    /// Commands of the well-behaved clients.
    pub witnessed: u64,
    /// What they took, in milliseconds.
    pub p50_ms: f64,
    /// The same.
    pub p99_ms: f64,
    /// The same.
    pub p999_ms: f64,
    /// The same.
    pub max_ms: f64,
    /// Resident memory of the largest node before the attack, in bytes.
    pub resident_before: u64,
    /// The most that it had, in bytes.
    pub resident_most: u64,
    /// Its bound.
    pub resident_max: u64,
    /// The calls that took longest, as SLOWLOG has them.
    pub slow: Vec<String>,
    /// What must not be. Empty if all is well.
    pub problems: Vec<String>,
}

/// Starts the nodes, attacks them, and tells what came of it.
pub fn run(options: &Options) -> Result<Report> {
    if options.clients == 0 || options.setting.nodes == 0 {
        bail!("without a node and a hostile client nothing is tried: give at least one of each");
    }
    let interrupted = interruption()?;
    let mut processes = Processes::started(options.setting.clone(), START_MAX)?;
    let addresses = processes.addresses();
    let shared = Shared::new(options.commands, &addresses)?;
    let resident =
        |processes: &Processes| -> u64 { processes.ids().into_iter().map(resident_bytes).max().unwrap_or(0) };
    let resident_before = resident(&processes);
    let mut resident_most = resident_before;
    let mut problems = Vec::new();
    let over = AtomicBool::new(false);
    let started = Instant::now();
    let witnesses: Vec<Witness> = std::thread::scope(|scope| -> Result<_> {
        let over = &over;
        let shared = &shared;
        let witnesses: Vec<_> = addresses
            .iter()
            .enumerate()
            .map(|(node, &address)| scope.spawn(move || witness::run(node, address, over)))
            .collect();
        let attackers: Vec<_> = (0..options.clients)
            .map(|number| scope.spawn(move || Attacker::new(shared, options.seed, number).run(over)))
            .collect();
        let watched = (|| -> Result<()> {
            while !attackers.iter().all(|attacker| attacker.is_finished()) {
                if interrupted.load(Ordering::Relaxed) {
                    bail!("interrupted");
                }
                processes.hold_alive()?;
                resident_most = resident_most.max(resident(&processes));
                std::thread::sleep(LOOK_EVERY);
            }
            Ok(())
        })();
        over.store(true, Ordering::SeqCst);
        if let Err(error) = watched {
            problems.push(format!("{error:#}"));
        }
        for attacker in attackers {
            match attacker.join() {
                Ok(found) => problems.extend(found),
                Err(_) => bail!("a hostile client of this program panicked"),
            }
        }
        let mut done = Vec::new();
        for witness in witnesses {
            match witness.join() {
                Ok(witness) => done.push(witness),
                Err(_) => bail!("a well-behaved client of this program panicked"),
            }
        }
        Ok(done)
    })?;
    let seconds = started.elapsed().as_secs_f64();
    if resident_most > options.resident_max {
        problems.push(format!(
            "a node had {resident_most} resident bytes, more than its bound, {}",
            options.resident_max
        ));
    }
    let mut latency = witness::histogram();
    for witness in &witnesses {
        latency.add(&witness.latency).context("histograms have one form")?;
        problems.extend(witness.problems.iter().cloned());
    }
    if let Err(error) = processes.hold_alive() {
        problems.push(format!("{error:#}"));
    }
    for node in 0..options.setting.nodes {
        problems.extend(panics_of(&processes.output(node))?);
    }
    let ms = |us: u64| us as f64 / 1000.0;
    let counts = shared.counts();
    Ok(Report {
        seed: options.seed,
        nodes: options.setting.nodes,
        commands: counts.commands,
        connections: counts.connections,
        unread: counts.unread,
        sent_bytes: counts.sent_bytes,
        received_bytes: counts.received_bytes,
        seconds,
        witnessed: latency.len(),
        p50_ms: ms(latency.value_at_quantile(0.5)),
        p99_ms: ms(latency.value_at_quantile(0.99)),
        p999_ms: ms(latency.value_at_quantile(0.999)),
        max_ms: ms(latency.max()),
        resident_before,
        resident_most,
        resident_max: options.resident_max,
        slow: addresses.iter().flat_map(|&address| slow_calls(address)).collect(),
        problems,
    })
}

/// The calls of a node that took longest, of those that it remembers.
fn slow_calls(address: SocketAddr) -> Vec<String> {
    const SHOWN: usize = 5;
    let asked = Client::open(&address.to_string(), PATIENCE)
        .and_then(|mut client| client.call(&["SLOWLOG", "GET", "-1"]));
    let Ok(Answer::List(entries)) = asked else {
        return Vec::new();
    };
    let entries = entries.into_iter().filter_map(|entry| {
        let Answer::List(fields) = entry else {
            return None;
        };
        let (Answer::Text(us), Answer::List(words)) = (fields.get(2)?, fields.get(3)?) else {
            return None;
        };
        let words = words.iter().map(|word| match word {
            Answer::Text(text) => text.chars().take(40).collect(),
            other => format!("{other:?}"),
        });
        Some((us.parse::<u64>().ok()?, words.take(6).collect::<Vec<String>>().join(" ")))
    });
    let mut entries: Vec<(u64, String)> = entries.collect();
    entries.sort();
    entries.iter().rev().take(SHOWN).map(|(us, words)| format!("{} ms: {words}", us / 1000)).collect()
}

/// The lines of a node's output that tell of a panic.
fn panics_of(output: &Path) -> Result<Vec<String>> {
    let text = std::fs::read(output).with_context(|| format!("could not read {}", output.display()))?;
    let text = String::from_utf8_lossy(&text);
    Ok(text.lines().filter(|line| line.contains(PANIC)).map(str::to_owned).collect())
}

/// The resident memory of a process; 0 if it is gone.
fn resident_bytes(process: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}

/// What was found, for people.
pub fn summary(report: &Report) -> String {
    const MIB: u64 = 1 << 20;
    format!(
        "{} hostile commands in {:.1} s over {} connections, {} of them left unread ({} MiB sent, {} MiB \
         received), {} node(s), seed {}\n\
         well-behaved clients: {} commands, p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms, longest {:.0} ms\n\
         resident memory of the largest node: {} MiB before, {} MiB at most, bound {} MiB\n\
         longest calls:{}\n\
         problems: {}",
        report.commands,
        report.seconds,
        report.connections,
        report.unread,
        report.sent_bytes / MIB,
        report.received_bytes / MIB,
        report.nodes,
        report.seed,
        report.witnessed,
        report.p50_ms,
        report.p99_ms,
        report.p999_ms,
        report.max_ms,
        report.resident_before / MIB,
        report.resident_most / MIB,
        report.resident_max / MIB,
        report.slow.iter().map(|call| format!("\n  {}", call.escape_debug())).collect::<String>(),
        match report.problems.is_empty() {
            true => "none".to_owned(),
            false => format!("\n  {}", report.problems.join("\n  ")),
        }
    )
}
