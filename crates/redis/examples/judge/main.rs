//! The judge of what scripts may take: it counts the basic blocks that run, and looks for the programs that
//! have the most of them for each step that they are charged.
//!
//! A script's limit of steps bounds its time only as far as whatever it can do is charged in proportion. A
//! list of what is not can't be complete, so this looks for more: it makes programs by a grammar
//! ([`grammar`]), changes those that reached new places or cost much, and asserts a bound ([`campaign`]).
//! Programs run in a process of their own ([`worker`]), since they may crash or hang it, over given
//! collections ([`store`]). `programs.lua` has what was found before.
//!
//! `tests/script-judge` builds it with blocks counted, and runs it. Without that build, blocks are 0, and
//! only `time` tells something.
//!
//! - `judge search [--seconds N] [--seed S] [--runs N] [--bound B]` judges `programs.lua`, searches, and
//!   prints the most expensive programs, shrunk. It fails if one is above the bound, and, whether there is a
//!   bound or not, if one crashes, hangs or panics.
//! - `judge list [--bound B]` judges `programs.lua` only, tells each, and fails as the search does.
//! - `judge time [FILE]` runs the programs of a file (`programs.lua`) with the limits that apply by default,
//!   and tells the processor time.

#![allow(clippy::disallowed_methods, reason = "it measures, and waits for another process")]

mod campaign;
mod grammar;
mod store;
mod worker;

use campaign::{Campaign, Judged, blocks_max};
use grammar::Grammar;
use ordo_redis::script::Limits;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use worker::{Ended, Worker};

const PROGRAMS: &str = include_str!("programs.lua");
/// What programs may use here: enough for what every run takes to matter little.
const LIMITS: Limits = Limits { steps_max: 500_000, memory_bytes_max: 64 << 20 };
/// Blocks for each step after which a run is stopped.
const STOPPED_AT: u64 = 150;
/// The expensive programs that are told.
const TOLD: usize = 12;

/// The programs of a text: each begins after a line with its name.
fn programs(text: &str) -> Vec<(String, String)> {
    let mut programs: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("-- "), programs.last_mut()) {
            (Some(name), _) => programs.push((name.to_owned(), String::new())),
            (None, Some((_, body))) if !line.is_empty() => {
                body.push_str(line);
                body.push('\n');
            }
            _ => {}
        }
    }
    programs
}

struct Options {
    seconds: u64,
    seed: u64,
    runs: u64,
    bound: f64,
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let mut options = Options { seconds: 60, seed: now.as_secs(), runs: u64::MAX, bound: f64::INFINITY };
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a number"))?;
        let number: u64 = value.parse().map_err(|_| format!("{name}: '{value}' is no number"))?;
        match name.as_str() {
            "--seconds" => options.seconds = number,
            "--seed" => options.seed = number,
            "--runs" => options.runs = number,
            "--bound" => options.bound = number as f64,
            _ => {
                return Err(format!("unknown option {name}: give --seconds, --seed, --runs or --bound"));
            }
        }
    }
    Ok(options)
}

/// Judges `programs.lua`. Returns those that are failures.
fn list(campaign: &mut Campaign<'_>, bound: f64, tells_all: bool) -> Vec<(String, Judged)> {
    let mut judged: Vec<(String, Judged)> = Vec::new();
    for (name, body) in programs(PROGRAMS) {
        judged.push((name, campaign.judge(body)));
    }
    judged.sort_by(|(_, a), (_, b)| b.judgement.cost().total_cmp(&a.judgement.cost()));
    println!("programs.lua:");
    for (name, judged) in judged.iter().take(if tells_all { usize::MAX } else { 5 }) {
        println!("{} {name}", judged.line());
    }
    judged.retain(|(_, judged)| judged.judgement.is_failure(bound));
    judged
}

/// Tells what is wrong, and returns whether there is nothing.
fn verdict(bound: f64, failures: &[(String, Judged)]) -> ExitCode {
    let wrong = match bound.is_finite() {
        true => format!("ends or hangs its process, or has more than {bound} blocks a step"),
        false => "ends or hangs its process".to_owned(),
    };
    if failures.is_empty() {
        println!("no program {wrong}");
        return ExitCode::SUCCESS;
    }
    for (name, judged) in failures {
        println!("-- {name}: {}\n{}", judged.line().trim(), judged.body);
    }
    println!("FAILED: each of these {wrong}: {} programs", failures.len());
    ExitCode::FAILURE
}

fn search(options: &Options, searches: bool) -> ExitCode {
    let grammar = Grammar::new();
    let worker = Worker::new(LIMITS, blocks_max(LIMITS.steps_max, STOPPED_AT));
    let mut campaign = Campaign::new(worker, &grammar, options.seed);
    let mut failures = list(&mut campaign, options.bound, !searches);
    if searches {
        println!("--seed {}", options.seed);
        campaign.search(Duration::from_secs(options.seconds), options.runs, options.bound);
        let runs = campaign.runs;
        let worst = campaign.worst(TOLD, options.bound);
        println!("the most expensive of {runs} programs:");
        for judged in &worst {
            println!("{}\n    {}", judged.line(), judged.body);
        }
        if let Some(slowest) = &campaign.slowest {
            println!("the most time for a step: {}\n    {}", slowest.line(), slowest.body);
        }
        let found = worst.into_iter().filter(|judged| judged.judgement.is_failure(options.bound));
        failures.extend(found.map(|judged| ("found by chance".to_owned(), judged)));
    }
    verdict(options.bound, &failures)
}

/// Tells how long programs take with the limits that apply by default.
fn time(file: Option<String>) -> ExitCode {
    let text = match file.as_deref().map(std::fs::read_to_string) {
        None => PROGRAMS.to_owned(),
        Some(Ok(text)) => text,
        Some(Err(error)) => {
            eprintln!("can't read the programs: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut worker = Worker::new(Limits::DEFAULT, u64::MAX);
    let mut taken: Vec<(f64, String)> = Vec::new();
    for (name, body) in programs(&text) {
        let (seconds, line) = match worker.run(body.as_bytes()) {
            Ended::Taken(taken) => {
                let seconds = taken.cpu_ns as f64 / 1e9;
                (seconds, format!("{seconds:8.3} s {:12} steps  {name}", taken.steps))
            }
            ended => (f64::INFINITY, format!("{ended:?}  {name}")),
        };
        taken.push((seconds, line));
    }
    taken.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    for (_, line) in taken {
        println!("{line}");
    }
    ExitCode::SUCCESS
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    match command.as_str() {
        "worker" => {
            let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(u64::MAX);
            let (steps_max, bytes_max, blocks_max) = (number(), number(), number());
            let limits = Limits { steps_max, memory_bytes_max: bytes_max as usize };
            worker::serve(limits, blocks_max);
            ExitCode::SUCCESS
        }
        "time" => time(words.next()),
        "search" | "list" => match options(words) {
            Ok(options) => search(&options, command == "search"),
            Err(text) => {
                eprintln!("{text}");
                ExitCode::FAILURE
            }
        },
        other => {
            eprintln!("unknown command '{other}': give search, list or time");
            ExitCode::FAILURE
        }
    }
}
