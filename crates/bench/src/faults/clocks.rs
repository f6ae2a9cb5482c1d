//! Machines' clocks that are set while nodes run, and what must hold whatever they show.
//!
//! The nodes run under libfaketime, which shows each of them a date that is off by what a file says, and
//! leaves the monotonic clock alone. What is judged:
//!
//! * a key with a time to live that has not passed is there, at every node, with what is left of it;
//! * a key whose time to live has passed is gone: time goes on.

use super::processes::name;
use crate::redis::template::SplitMix;
use anyhow::{Context, Result};
use server::client::{Answer, Client};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The steps that are drawn from, in seconds.
const STEPS_S: [i64; 8] = [-3_600, -600, -30, -3, 3, 30, 600, 3_600];
/// What a time to live may be off by: its length, and the time that frames take.
const OFF_PER: u128 = 100;
const OFF_MS: u128 = 500;
/// A time to live that no round outlasts, though every step of an hour would.
const LONG: Duration = Duration::from_secs(900);
/// One that ends within a round.
const SHORT: Duration = Duration::from_millis(500);
/// What has ended must be gone by then.
const SHORT_GONE: Duration = Duration::from_secs(5);
/// How often something is looked at that does not tell when it changes.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Where a library is found that sets processes' clocks.
pub fn library() -> Result<PathBuf> {
    let places = ["x86_64-linux-gnu/", "aarch64-linux-gnu/", ""]
        .map(|place| format!("/usr/lib/{place}faketime/libfaketimeMT.so.1"));
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    found.context(
        "--clock-steps needs libfaketime, which is not where Debian has it: 'apt-get install faketime', or \
         say where it is with --faketime",
    )
}

/// The clock of one machine.
#[derive(Clone, Debug)]
pub struct Clock {
    library: PathBuf,
    file: PathBuf,
}

impl Clock {
    /// A clock that is right, whose file is in a directory.
    pub fn new(library: &Path, directory: &Path) -> Result<Clock> {
        let clock = Clock { library: library.to_owned(), file: directory.join("clock") };
        clock.set(0)?;
        Ok(clock)
    }

    /// Has a process see this clock, with every look.
    pub fn show_to(&self, command: &mut Command) {
        let mut preloaded = self.library.clone().into_os_string();
        // What lets disks fail is preloaded, too.
        let before = command.get_envs().find(|(name, _)| *name == "LD_PRELOAD");
        if let Some((_, Some(others))) = before {
            preloaded.push(":");
            preloaded.push(others);
        }
        command
            .env("LD_PRELOAD", preloaded)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("DONT_FAKE_MONOTONIC", "1");
    }

    /// Sets it so far ahead of the true time.
    pub fn set(&self, ahead_s: i64) -> Result<()> {
        // It is read at any moment: it must be there, and whole.
        let new = self.file.with_extension("new");
        std::fs::write(&new, format!("{ahead_s:+}"))
            .and_then(|()| std::fs::rename(&new, &self.file))
            .with_context(|| format!("could not set the clock {}", self.file.display()))
    }
}

/// A step, in seconds.
pub fn step(random: &mut SplitMix) -> i64 {
    STEPS_S[random.below(STEPS_S.len() as u64) as usize]
}

/// Keys with times to live that were acknowledged in a round.
pub struct Probes {
    prefix: String,
    addresses: Vec<SocketAddr>,
    patience: Duration,
    long: Vec<(String, Instant, Instant)>,
}

impl Probes {
    /// Those of a round, none yet.
    pub fn new(round: usize, addresses: &[SocketAddr], patience: Duration) -> Probes {
        Probes {
            prefix: format!("probe:{round}:"),
            addresses: addresses.to_vec(),
            patience,
            long: Vec::new(),
        }
    }

    fn client(&self, node: usize) -> Result<Client> {
        Ok(Client::open(&self.addresses[node].to_string(), self.patience)?)
    }

    /// Writes a key that is to stay.
    pub fn add(&mut self, node: usize) -> Result<()> {
        let key = format!("{}{}", self.prefix, self.long.len());
        let began = Instant::now();
        let set = ["SET", &key, "v", "EX", &LONG.as_secs().to_string()];
        self.client(node)?.call(&set)?.text("SET")?;
        self.long.push((key, began, Instant::now()));
        Ok(())
    }

    /// What is wrong: keys that are gone, or have the wrong time left, at any node; and time that stands
    /// still.
    pub fn judge(&mut self, problems: &mut Vec<String>) -> Result<()> {
        for node in 0..self.addresses.len() {
            self.add(node)?;
        }
        for node in 0..self.addresses.len() {
            let mut client = self.client(node)?;
            for (key, began, ended) in &self.long {
                let asked = Instant::now();
                let answer = client.call(&["PTTL", key])?.text("PTTL")?;
                let left_ms: i64 = answer.parse().context("PTTL replies no number")?;
                let left = LONG.saturating_sub(began.elapsed())..=LONG.saturating_sub(asked - *ended);
                let (least_ms, most_ms) = (left.start().as_millis(), left.end().as_millis());
                let off_ms = began.elapsed().as_millis() / OFF_PER + OFF_MS;
                let is_right = u128::try_from(left_ms)
                    .is_ok_and(|left_ms| left_ms + off_ms >= least_ms && left_ms <= most_ms + off_ms);
                if !is_right {
                    problems.push(format!(
                        "{key} has {left_ms} ms left at {}, where {least_ms} to {most_ms} ms should be",
                        name(node)
                    ));
                }
            }
        }
        for node in 0..self.addresses.len() {
            if !self.ends(node)? {
                problems.push(format!(
                    "a key with a time to live of {SHORT:?} is there after {SHORT_GONE:?} at {}: time \
                     stands still",
                    name(node)
                ));
            }
        }
        Ok(())
    }

    /// Whether a short time to live ends.
    fn ends(&self, node: usize) -> Result<bool> {
        let key = format!("{}short:{node}", self.prefix);
        let mut client = self.client(node)?;
        let set = ["SET", &key, "v", "PX", &SHORT.as_millis().to_string()];
        client.call(&set)?.text("SET")?;
        let until = Instant::now() + SHORT_GONE;
        while Instant::now() < until {
            if client.call(&["GET", &key])? == Answer::Nil {
                return Ok(true);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }
}
