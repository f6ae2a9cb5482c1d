//! A client that does nothing but short commands, one every two milliseconds.

use super::PATIENCE;
use hdrhistogram::Histogram;
use server::client::{Answer, Client};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two commands.
const EVERY: Duration = Duration::from_millis(2);
/// The longest latency that is told from longer ones.
const LATENCY_US_MAX: u64 = 600_000_000;
/// Keys that it uses.
const KEYS: u64 = 100;
/// Problems that are kept.
const PROBLEMS_MAX: usize = 10;

/// What a well-behaved client has seen.
pub(super) struct Witness {
    /// Microseconds from command to reply; also of commands that were not sent in time because an earlier one
    /// had no reply yet.
    pub(super) latency: Histogram<u64>,
    pub(super) problems: Vec<String>,
}

pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3).expect("the bounds are valid")
}

/// Sends until it is over.
pub(super) fn run(node: usize, address: SocketAddr, over: &AtomicBool) -> Witness {
    let mut witness = Witness { latency: histogram(), problems: Vec::new() };
    let (mut client, mut number) = (None, 0);
    let mut due = Instant::now();
    while !over.load(Ordering::Relaxed) && witness.problems.len() < PROBLEMS_MAX {
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            std::thread::sleep(early);
        }
        let sent = Instant::now();
        match step(&mut client, node, address, number) {
            Ok(()) => {
                let us = u64::try_from(sent.elapsed().as_micros()).unwrap_or(u64::MAX);
                // Those that would have been sent meanwhile have waited, too.
                let every_us = EVERY.as_micros() as u64;
                let us = us.clamp(1, LATENCY_US_MAX);
                witness.latency.record_correct(us, every_us).expect("it is within the bounds");
            }
            Err(problem) => {
                witness.problems.push(format!("a well-behaved client at {address}: {problem}"));
                client = None;
            }
        }
        number += 1;
        due = (due + EVERY).max(Instant::now());
    }
    witness
}

/// One command, with the reply that it must have.
fn step(client: &mut Option<Client>, node: usize, address: SocketAddr, number: u64) -> Result<(), String> {
    let client = match client {
        Some(client) => client,
        None => {
            let opened = Client::open(&address.to_string(), PATIENCE);
            client.insert(opened.map_err(|error| error.to_string())?)
        }
    };
    let key = format!("witness:{node}:{}", number / 2 % KEYS);
    let value = format!("value of {key}");
    let words: &[&str] = match number % 2 {
        0 => &["SET", &key, &value],
        _ => &["GET", &key],
    };
    let answer = client.call(words).map_err(|error| error.to_string())?;
    let is_right = match (&answer, words[0]) {
        (Answer::Text(text), "SET") => text == "OK",
        (Answer::Text(text), _) => *text == value,
        // It may have been evicted, or flushed.
        (Answer::Nil, "GET") => true,
        // Hostile clients fill the memory, and nothing of theirs may go at times.
        (Answer::Error(text), "SET") => text.starts_with("OOM "),
        _ => false,
    };
    match is_right {
        true => Ok(()),
        false => Err(format!("{} was answered {answer:?}", words.join(" "))),
    }
}
