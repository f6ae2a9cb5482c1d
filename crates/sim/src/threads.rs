//! The same scenarios on real threads.
//!
//! Only the scenario is reproducible here: which interleaving the machine picks is its own affair. What the
//! virtual workers can't reach, the races inside single-key operations, happens here.
//!
//! No clock tells a stuck engine from a slow machine: a run is stuck if all is confirmed and every worker
//! finds nothing to do over and over, or if the workers are busy without end.

use crate::draw::Draw;
use crate::judge::{Fault, Judge, check_end, check_snapshot, check_status};
use crate::leak;
use crate::scenario::{Options, Scenario};
use crate::workers::{Factory, Failure, MakeSource, Report};
use execute::{Budget, Committed, Engine, Progress, ReadOutcome, SnapshotReader, WorkerId};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A worker that found nothing to do so many times in a row, after the last event, never will.
const IDLE_STEPS_MAX: u64 = 20_000;
/// Steps of all workers after the last event: far more than any schedule needs.
const STEPS_MAX: u64 = 50_000_000;

/// Waits a little. Not by yielding: a scheduler with deadlines puts a thread that yields all the time behind
/// everybody else's work, and a busy machine would make a run take minutes.
fn pass_time() {
    for _ in 0..100 {
        std::hint::spin_loop();
    }
}

/// What the worker threads and the controlling thread share.
struct Shared {
    engine: Arc<dyn Engine>,
    committed: Mutex<Vec<Committed>>,
    panicked: Mutex<Option<Fault>>,
    stop: AtomicBool,
    /// By worker: idle steps in a row.
    idle: Vec<AtomicU64>,
    /// Steps since the last event of the order.
    steps: AtomicU64,
}

impl Shared {
    /// The idle steps in a row of each worker, if all have had many.
    fn all_idle(&self) -> Option<Vec<u64>> {
        let idle: Vec<u64> = self.idle.iter().map(|idle| idle.load(Ordering::Acquire)).collect();
        idle.iter().all(|&idle| idle > IDLE_STEPS_MAX).then_some(idle)
    }
}

/// Runs one seed of a scenario of `transactions` transactions with `threads` workers on a fresh engine.
pub fn run(
    make: Factory<'_>,
    source: MakeSource<'_>,
    seed: u64,
    transactions: u64,
    threads: usize,
) -> Result<Report, Box<Failure>> {
    let mut draw = Draw::new(seed);
    let mut options = Options::draw(&mut draw, transactions);
    options.unconfirmed_max = draw.pick(&[8, 50, 300]);
    let source = source(&mut draw);
    let operations = draw.pick(&[1, 10, u32::MAX]);
    let mut scenario = Scenario::new(options, source, Draw::new(draw.bits()));
    let engine = make(threads, &mut draw);
    let drawn =
        format!("{} on {threads} threads, budget {operations}: {}", engine.name(), scenario.describe());
    scenario.preload(engine.view());
    let shared = Shared {
        engine,
        committed: Mutex::default(),
        panicked: Mutex::default(),
        stop: AtomicBool::new(false),
        idle: (0..threads).map(|_| AtomicU64::new(0)).collect(),
        steps: AtomicU64::new(0),
    };
    let mut control = Control {
        reader: SnapshotReader::new(shared.engine.clone()),
        shared: &shared,
        scenario,
        draw,
        judge: Judge::default(),
        report: Report::default(),
        tick: 0,
        idle_since: None,
    };
    let result = std::thread::scope(|scope| {
        for worker in 0..threads {
            let shared = &shared;
            // A worker of two takes no heavy requests, as a server's I/O threads don't.
            let budget = Budget { operations, heavy: worker == 0 || seed.is_multiple_of(2) };
            scope.spawn(move || work(shared, WorkerId(worker), budget));
        }
        let result = control.all();
        shared.stop.store(true, Ordering::Release);
        result
    });
    result
        .and_then(|()| control.end(make))
        .map_err(|fault| Box::new(Failure { seed, drawn, fault, tick: control.tick }))
}

fn work(shared: &Shared, worker: WorkerId, budget: Budget) {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let mut committed = Vec::new();
        // Works on after the last commit until nothing is left to clean up.
        loop {
            let stop = shared.stop.load(Ordering::Acquire);
            let progress = shared.engine.step(worker, budget, &mut committed);
            if !committed.is_empty() {
                shared.committed.lock().unwrap_or_else(PoisonError::into_inner).append(&mut committed);
            }
            shared.steps.fetch_add(1, Ordering::Relaxed);
            let idle = &shared.idle[worker.0];
            if progress == Progress::Worked {
                idle.store(0, Ordering::Release);
            } else {
                idle.fetch_add(1, Ordering::AcqRel);
                if stop {
                    return;
                }
                pass_time();
            }
        }
    }));
    if let Err(panic) = result {
        let text = execute::snapshot::panic_text(&*panic).to_owned();
        *shared.panicked.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(format!("{worker:?} panicked: {text}"));
    }
}

/// The thread that owns the order.
struct Control<'a> {
    shared: &'a Shared,
    reader: SnapshotReader,
    scenario: Scenario,
    draw: Draw,
    judge: Judge,
    report: Report,
    tick: u64,
    /// What [`Shared::all_idle`] was when it first said that all are idle.
    idle_since: Option<Vec<u64>>,
}

impl Control<'_> {
    fn all(&mut self) -> Result<(), Fault> {
        while self.shared.engine.status().final_committed < self.scenario.end() {
            self.tick += 1;
            if !self.scenario.is_complete() {
                self.shared.steps.store(0, Ordering::Relaxed);
                self.shared.idle.iter().for_each(|idle| idle.store(0, Ordering::Release));
            } else if self.is_stuck() && self.shared.engine.status().final_committed < self.scenario.end() {
                return Err(format!(
                    "all is confirmed, and the commits stop: {:?}",
                    self.shared.engine.status()
                ));
            }
            if let Some(fault) = self.shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take() {
                return Err(fault);
            }
            self.event()?;
            check_status(self.shared.engine.status(), &self.scenario)?;
            self.judge()?;
            // Lets the workers get some way between two events; how far is chance.
            for _ in 0..self.draw.below(8) {
                pass_time();
            }
        }
        Ok(())
    }

    /// Whether nothing will ever happen again. A worker may be in the middle of a long step while its count
    /// is old, so each must have begun and ended an idle step since all were first found idle.
    fn is_stuck(&mut self) -> bool {
        let now = self.shared.all_idle();
        let stuck = match (&self.idle_since, &now) {
            (Some(before), Some(now)) => before.iter().zip(now).all(|(before, now)| *now >= before + 2),
            _ => false,
        };
        if now.is_none() || self.idle_since.is_none() {
            self.idle_since = now;
        }
        stuck || self.shared.steps.load(Ordering::Relaxed) > STEPS_MAX
    }

    fn event(&mut self) -> Result<(), Fault> {
        let engine = &*self.shared.engine;
        let accidents = self.tick < 20 * self.scenario.options.transactions;
        match self.draw.below(100) as u32 {
            event if accidents && event < self.scenario.options.retract_percent => {
                if let Some(from) = self.scenario.retract() {
                    engine.retract(from);
                    self.report.retractions += 1;
                }
            }
            event if event < 70 => match self.scenario.deliver() {
                Some(batch) => engine.deliver(batch),
                None => self.confirm(),
            },
            event if event < 90 => self.confirm(),
            event if event < 92 => {
                engine.view().collect(50);
            }
            event if event < 95 => {
                let snapshot = engine.view().open();
                let checked = check_snapshot(engine.view(), &snapshot, &self.scenario.oracle);
                engine.view().close(snapshot);
                checked?;
            }
            _ => self.read_only()?,
        }
        Ok(())
    }

    fn confirm(&mut self) {
        if let Some(upto) = self.scenario.confirm() {
            self.shared.engine.confirm(upto);
        }
    }

    /// A read-only transaction answers for one of the positions that were final while it ran.
    fn read_only(&mut self) -> Result<(), Fault> {
        let request = self.scenario.read_only();
        let view = self.shared.engine.view();
        let before = view.final_position();
        let ReadOutcome::Done(outcome) = self.reader.run(&request, 0) else {
            return Err(format!("{request:?} at a snapshot must be ordered for no reason"));
        };
        self.report.snapshot_reads += 1;
        let mut position = before;
        while position <= view.final_position() {
            let time_ms = self.scenario.oracle.time_ms(position).unwrap_or(0);
            if self.scenario.oracle.read_only(&request, position, time_ms).admits(&outcome) {
                return Ok(());
            }
            position = position.next();
        }
        Err(format!("{request:?} at a snapshot from {before:?} on ended like none of them: {outcome:?}"))
    }

    fn judge(&mut self) -> Result<(), Fault> {
        let committed =
            std::mem::take(&mut *self.shared.committed.lock().unwrap_or_else(PoisonError::into_inner));
        committed.iter().try_for_each(|committed| self.judge.judge(&self.scenario, committed))
    }

    fn end(&mut self, make: Factory<'_>) -> Result<Report, Fault> {
        // A worker that found nothing to do left; another may have made work for it afterwards, such as locks
        // to release.
        leak::settle(
            &*self.shared.engine,
            &mut self.shared.committed.lock().unwrap_or_else(PoisonError::into_inner),
            STEPS_MAX,
        );
        self.judge()?;
        if let Some(fault) = self.shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(fault);
        }
        check_end(&*self.shared.engine, &*make(1, &mut self.draw), &self.scenario, &self.judge)?;
        let (status, tally) = (self.shared.engine.status(), self.scenario.oracle.tally());
        (self.report.restarts, self.report.suspensions) = (status.restarts, status.suspensions);
        self.report.split = status.split;
        (self.report.replied, self.report.rolled_back) = (tally.0 as u64, tally.1 as u64);
        Ok(self.report)
    }
}
