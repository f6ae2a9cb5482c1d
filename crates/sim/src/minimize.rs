//! Shrinks a failing run while it still fails.
//!
//! A failure counts as the same if the same oracle finds it. Every simplification is tried by running the
//! world; what fails as before is kept, and it goes on from there until nothing simpler fails. Faults go
//! first, by halves and then one by one (delta debugging: Zeller & Hildebrandt, TSE 2002), then clients,
//! nodes, workers and operations, and whatever else makes a run harder to read.

use crate::options::Options;
use crate::run::run;
use crate::world::{Latency, Violation};

/// The smallest failing run that was found.
pub struct Minimized {
    /// Its options.
    pub options: Options,
    /// What it fails with.
    pub violation: Violation,
    /// Worlds that were run to find it.
    pub runs: u64,
}

struct Search<'a> {
    best: Options,
    violation: Violation,
    runs: u64,
    runs_max: u64,
    progress: &'a mut dyn FnMut(u64, &Options),
}

impl Search<'_> {
    /// Tries a simpler run; keeps it if it fails in the same way.
    fn try_with(&mut self, change: impl FnOnce(&mut Options)) -> bool {
        let mut simpler = self.best.clone();
        change(&mut simpler);
        if simpler == self.best || simpler.check().is_err() || self.runs >= self.runs_max {
            return false;
        }
        self.runs += 1;
        let fails = match run(&simpler, None).violation {
            Some(violation) if violation.oracle == self.violation.oracle => {
                (self.best, self.violation) = (simpler, violation);
                true
            }
            _ => false,
        };
        (self.progress)(self.runs, &self.best);
        fails
    }

    fn faults(&mut self) {
        let mut size = self.best.faults.len().max(1);
        loop {
            let mut from = 0;
            while from < self.best.faults.len() {
                let until = (from + size).min(self.best.faults.len());
                if !self.try_with(|options| drop(options.faults.drain(from..until))) {
                    from = until;
                }
            }
            if size == 1 {
                return;
            }
            size = size.div_ceil(2);
        }
    }

    /// Makes a number as small as it can be: by halves, and then by one.
    fn number(&mut self, least: u64, get: fn(&Options) -> u64, set: fn(&mut Options, u64)) {
        loop {
            let now = get(&self.best);
            if now <= least {
                return;
            }
            let half = (now / 2).max(least);
            if !self.try_with(|options| set(options, half)) && !self.try_with(|options| set(options, now - 1))
            {
                return;
            }
        }
    }

    fn all(&mut self) {
        self.faults();
        self.number(0, |o| u64::from(o.moves), |o, n| o.moves = n as u16);
        self.number(1, |o| u64::from(o.clients), |o, n| o.clients = n as u16);
        self.number(1, |o| u64::from(o.workers), |o, n| o.workers = n as u16);
        self.number(1, |o| o.pipeline, |o, n| o.pipeline = n);
        self.number(1, |o| o.operations, |o, n| o.operations = n);
        self.try_with(|options| options.think_us = 0);
        self.try_with(|options| options.zones = 1);
        self.try_with(|options| options.jitter = false);
        self.try_with(|options| options.latency = Latency::STEADY);
        self.try_with(|options| options.checkpoint_bytes = 0);
        self.try_with(|options| options.segment_bytes = 65_536);
        self.try_with(|options| options.in_flight = 10_000);
        self.try_with(|options| options.capacity = 4_096);
        self.try_with(|options| options.warehouses = 1);
    }
}

/// Shrinks `options`, whose run fails with `violation`, in at most `runs_max` runs. `progress` is told after
/// each.
pub fn minimize(
    options: &Options,
    violation: &Violation,
    runs_max: u64,
    progress: &mut dyn FnMut(u64, &Options),
) -> Minimized {
    let mut search =
        Search { best: options.clone(), violation: violation.clone(), runs: 0, runs_max, progress };
    loop {
        let before = search.best.clone();
        search.all();
        if search.best == before || search.runs >= runs_max {
            break;
        }
    }
    Minimized { options: search.best, violation: search.violation, runs: search.runs }
}
