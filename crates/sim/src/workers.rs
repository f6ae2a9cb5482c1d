//! Virtual workers: an engine's whole concurrency on one thread, decided by a seed.
//!
//! Each tick draws either an event of the order (a delivery, a confirmation, a retraction), a reader (a
//! snapshot opened, checked or closed, a read-only transaction), a collection, or a worker that takes one
//! step. Steps have a budget of one single-key operation (most runs) or a few, so workers meet inside
//! commits, aborts and retractions too, in every order that the draw can think of: uniform, in bursts, with a
//! starved worker, in strict priority. Once the order is complete, everything must final-commit within a
//! bounded number of steps, and leave nothing behind.
//!
//! The engine's races live between its single-key operations, each of which is atomic under a record's latch;
//! what happens inside one is the subject of the `shuttle` tests and of [`crate::threads`].

use crate::draw::{Draw, tracing};
use crate::judge::{Fault, Judge, check_end, check_snapshot, check_status};
use crate::scenario::{Options, Scenario, Source};
use execute::{Budget, Committed, Engine, Progress, ReadOutcome, SnapshotReader, WorkerId};
use std::fmt;
use std::sync::Arc;
use store::Snapshot;
use txn::hash::{hash_bytes, mix};

/// Makes an engine for a number of workers, with options of its own that a draw decides.
pub type Factory<'a> = &'a dyn Fn(usize, &mut Draw) -> Arc<dyn Engine>;

/// Makes the requests of a run from a draw.
pub type MakeSource<'a> = &'a dyn Fn(&mut Draw) -> Box<dyn Source>;

/// Who steps next.
#[derive(Clone, Debug)]
enum Schedule {
    Uniform,
    /// The same worker for about this many steps.
    Bursts {
        length: u64,
    },
    /// One worker hardly ever steps.
    Starved {
        worker: usize,
    },
    /// The first worker that has something to do.
    Priority,
}

/// How a run's workers behave. Drawn per run.
#[derive(Clone, Debug)]
struct Behaviour {
    workers: usize,
    schedule: Schedule,
    /// Operations of a step: the worker's budget is one of these.
    operations: &'static [u32],
    /// The first worker that takes no heavy requests (all before it do).
    light_only_from: usize,
    /// Ticks out of 1000 that are an event of the order.
    order_permille: u32,
    /// Ticks out of 1000 that are a reader or a collection.
    reader_permille: u32,
}

impl Behaviour {
    fn draw(draw: &mut Draw) -> Behaviour {
        let workers = draw.pick(&[1, 2, 2, 3, 4, 8, 16]);
        Behaviour {
            workers,
            schedule: match draw.below(5) {
                0 | 1 => Schedule::Uniform,
                2 => Schedule::Bursts { length: draw.pick(&[3, 20, 100]) },
                3 => Schedule::Starved { worker: draw.below(workers as u64) as usize },
                _ => Schedule::Priority,
            },
            operations: draw.pick(&[&[1u32] as &'static [u32], &[1], &[1], &[1, 2, 7], &[1, u32::MAX]]),
            light_only_from: if draw.percent(70) {
                workers
            } else {
                draw.between(1, workers as u64) as usize
            },
            order_permille: draw.pick(&[10, 50, 200]),
            reader_permille: draw.pick(&[0, 5, 50]),
        }
    }
}

/// What a run was like: that the interesting things happen at all is tested too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The hash of every event: the same seed gives the same digest.
    pub digest: u64,
    /// Steps that all workers took.
    pub steps: u64,
    /// Transactions that ended in a reply.
    pub replied: u64,
    /// Transactions that rolled back by their own logic.
    pub rolled_back: u64,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Times that an incarnation was parked.
    pub suspensions: u64,
    /// Transactions that were executed fragment by fragment.
    pub split: u64,
    /// Retractions.
    pub retractions: u64,
    /// Read-only transactions at snapshots.
    pub snapshot_reads: u64,
}

impl Report {
    /// Adds another run's.
    pub fn add(&mut self, other: &Report) {
        self.digest = mix(self.digest ^ other.digest);
        self.steps += other.steps;
        self.replied += other.replied;
        self.rolled_back += other.rolled_back;
        self.restarts += other.restarts;
        self.suspensions += other.suspensions;
        self.split += other.split;
        self.retractions += other.retractions;
        self.snapshot_reads += other.snapshot_reads;
    }
}

/// A run that went wrong.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// Everything that was drawn.
    pub drawn: String,
    /// What went wrong.
    pub fault: Fault,
    /// After how many ticks.
    pub tick: u64,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { seed, drawn, fault, tick } = self;
        write!(
            f,
            "seed {seed}: run this test again with ORDO_SEED={seed}, and ORDO_TRACE=1 for every event\n\
             {drawn}\n"
        )?;
        write!(f, "at tick {tick}: {fault}")
    }
}

/// Runs one seed of a scenario of about `transactions` transactions on a fresh engine.
pub fn run(
    make: Factory<'_>,
    source: MakeSource<'_>,
    seed: u64,
    transactions: u64,
) -> Result<Report, Box<Failure>> {
    let mut draw = Draw::new(seed);
    let behaviour = Behaviour::draw(&mut draw);
    let options = Options::draw(&mut draw, transactions);
    let source = source(&mut draw);
    let mut scenario = Scenario::new(options, source, Draw::new(draw.bits()));
    let engine = make(behaviour.workers, &mut draw);
    let drawn = format!("{}: {behaviour:?}, {}", engine.name(), scenario.describe());
    if tracing() {
        eprintln!("seed {seed}: {drawn}");
    }
    scenario.preload(engine.view());
    let mut run = Run {
        reader: SnapshotReader::new(engine.clone()),
        engine,
        behaviour,
        scenario,
        draw,
        judge: Judge::default(),
        open: Vec::new(),
        report: Report::default(),
        current: 0,
        idle: Vec::new(),
        tick: 0,
    };
    let result = run.all(make);
    // Snapshots must be closed whatever happened: an engine may check that on drop.
    for snapshot in run.open.drain(..) {
        run.engine.view().close(snapshot);
    }
    result.map_err(|fault| Box::new(Failure { seed, drawn, fault, tick: run.tick }))?;
    Ok(run.report)
}

struct Run {
    engine: Arc<dyn Engine>,
    reader: SnapshotReader,
    behaviour: Behaviour,
    scenario: Scenario,
    draw: Draw,
    judge: Judge,
    open: Vec<Snapshot>,
    report: Report,
    /// The worker of the current burst.
    current: usize,
    /// Whether each worker was idle at its last step, since when nothing happened.
    idle: Vec<bool>,
    tick: u64,
}

impl Run {
    fn all(&mut self, make: Factory<'_>) -> Result<(), Fault> {
        self.idle = vec![false; self.behaviour.workers];
        // The order must end even if the draw dislikes it: after this many ticks it takes no more accidents.
        let accidents_until = 400 * self.scenario.options.transactions;
        while !self.scenario.is_complete() {
            self.tick += 1;
            let everyone_idle = self.idle.iter().all(|&idle| idle);
            if everyone_idle || self.draw.permille(self.behaviour.order_permille) {
                self.order(self.tick < accidents_until)?;
            } else if self.draw.permille(self.behaviour.reader_permille) {
                self.read()?;
            } else {
                self.step()?;
            }
        }
        self.drain()?;
        let status = self.engine.status();
        (self.report.restarts, self.report.suspensions) = (status.restarts, status.suspensions);
        self.report.split = status.split;
        let (replied, rolled_back) = self.scenario.oracle.tally();
        (self.report.replied, self.report.rolled_back) = (replied as u64, rolled_back as u64);
        for snapshot in std::mem::take(&mut self.open) {
            let checked = check_snapshot(self.engine.view(), &snapshot, &self.scenario.oracle);
            self.engine.view().close(snapshot);
            checked?;
        }
        self.settle()?;
        check_end(&*self.engine, &*make(1, &mut self.draw), &self.scenario, &self.judge)
    }

    /// Steps until everything is committed: no later than a bounded number of steps, and never with all
    /// workers idle.
    fn drain(&mut self) -> Result<(), Fault> {
        // The first uncommitted transaction can't be aborted any more, so each position costs at most a few
        // of its own incarnations, diluted by what the other workers do meanwhile.
        let mut left = 5_000 * (1 + self.scenario.end().0 - self.engine.status().final_committed.0);
        while self.engine.status().final_committed < self.scenario.end() {
            self.tick += 1;
            left -= 1;
            if left == 0 || self.idle.iter().all(|&idle| idle) {
                return Err(format!(
                    "{}: all is confirmed, and the commits stop at {:?}",
                    if left == 0 { "no end" } else { "all workers are idle" },
                    self.engine.status()
                ));
            }
            if self.draw.permille(self.behaviour.reader_permille) { self.read()? } else { self.step()? }
        }
        Ok(())
    }

    /// Steps until the workers have nothing left to do: old versions to collect, retracted work to undo.
    fn settle(&mut self) -> Result<(), Fault> {
        self.idle.fill(false);
        let mut left = 20_000;
        while !self.idle.iter().all(|&idle| idle) {
            left -= 1;
            if left == 0 {
                return Err("the workers never become idle after the last commit".to_owned());
            }
            self.step()?;
        }
        Ok(())
    }

    fn note(&mut self, what: impl fmt::Display) {
        let text = what.to_string();
        if tracing() {
            eprintln!("{:>6} {text}", self.tick);
        }
        self.report.digest = mix(self.report.digest.rotate_left(5) ^ hash_bytes(text.as_bytes()));
    }

    /// An event of the order.
    fn order(&mut self, accidents: bool) -> Result<(), Fault> {
        self.idle.fill(false);
        let event = self.draw.below(100) as u32;
        if accidents && event < self.scenario.options.retract_percent {
            if let Some(from) = self.scenario.retract() {
                self.note(format_args!("retract from {from:?}"));
                self.engine.retract(from);
                self.report.retractions += 1;
            }
        } else if event.is_multiple_of(2) || !self.deliver() {
            if let Some(upto) = self.scenario.confirm() {
                self.note(format_args!("confirm {upto:?}"));
                self.engine.confirm(upto);
            } else {
                self.deliver();
            }
        }
        check_status(self.engine.status(), &self.scenario)
    }

    fn deliver(&mut self) -> bool {
        let Some(batch) = self.scenario.deliver() else {
            return false;
        };
        self.note(format_args!("deliver {:?} at {}: {:?}", batch.first, batch.time_ms, batch.requests));
        self.engine.deliver(batch);
        true
    }

    fn next_worker(&mut self) -> usize {
        let workers = self.behaviour.workers;
        let any = self.draw.below(workers as u64) as usize;
        match self.behaviour.schedule {
            // Whatever the schedule, idle workers are asked now and then: they must notice new work.
            _ if self.idle[self.current] || self.draw.permille(20) => any,
            Schedule::Uniform => any,
            Schedule::Bursts { length } => {
                if self.draw.below(length) == 0 {
                    any
                } else {
                    self.current
                }
            }
            Schedule::Starved { worker } => {
                if any == worker && workers > 1 {
                    (worker + 1) % workers
                } else {
                    any
                }
            }
            Schedule::Priority => self.idle.iter().position(|idle| !idle).unwrap_or(any),
        }
    }

    fn step(&mut self) -> Result<(), Fault> {
        let worker = self.next_worker();
        self.current = worker;
        let budget = Budget {
            operations: self.draw.pick(self.behaviour.operations),
            heavy: worker < self.behaviour.light_only_from,
        };
        let mut committed: Vec<Committed> = Vec::new();
        let progress = self.engine.step(WorkerId(worker), budget, &mut committed);
        self.report.steps += 1;
        self.note(format_args!("worker {worker} {progress:?} {committed:?}"));
        match progress {
            Progress::Worked => self.idle.fill(false),
            Progress::Idle => self.idle[worker] = true,
        }
        for committed in &committed {
            self.judge.judge(&self.scenario, committed)?;
        }
        check_status(self.engine.status(), &self.scenario)
    }

    /// A reader at a final snapshot, or a collection.
    fn read(&mut self) -> Result<(), Fault> {
        let engine = self.engine.clone();
        let view = engine.view();
        match self.draw.below(8) {
            0 => {
                view.collect(self.draw.between(1, 200) as usize);
            }
            1 | 2 if self.open.len() < 4 => self.open.push(view.open()),
            1..=3 if !self.open.is_empty() => {
                let index = self.draw.below(self.open.len() as u64) as usize;
                let snapshot = self.open.swap_remove(index);
                let checked = check_snapshot(view, &snapshot, &self.scenario.oracle);
                view.close(snapshot);
                checked?;
            }
            _ => self.read_only()?,
        }
        Ok(())
    }

    fn read_only(&mut self) -> Result<(), Fault> {
        let request = self.scenario.read_only();
        let (position, time_ms) = (self.engine.view().final_position(), self.engine.view().final_time_ms());
        let now_ms = time_ms + if self.draw.percent(30) { self.draw.below(60) } else { 0 };
        let outcome = match self.reader.run(&request, now_ms) {
            ReadOutcome::MustOrder if now_ms > time_ms => return Ok(()),
            ReadOutcome::MustOrder => {
                return Err(format!("{request:?} at a snapshot must be ordered for no reason"));
            }
            ReadOutcome::Done(outcome) => outcome,
            ReadOutcome::Interrupted => {
                return Err(format!("{request:?} was interrupted by nobody"));
            }
        };
        self.report.snapshot_reads += 1;
        let expected = self.scenario.oracle.read_only(&request, position, now_ms);
        if expected.admits(&outcome) {
            return Ok(());
        }
        Err(format!(
            "{request:?} at a snapshot of {position:?} ended\n  {outcome:?} and must end\n  {expected:?}"
        ))
    }
}
