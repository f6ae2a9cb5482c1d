//! The same on real threads: what virtual workers can't reach, the races inside an operation and between a
//! message and whoever waits for it.
//!
//! All epochs are delivered and confirmed at once; every partition's workers carry its messages themselves.

use super::{Report, Run, Told, World, siblings_of};
use execute::{Budget, Committed, Engine, Progress, WorkerId};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use txn::{PartitionId, Position};

/// Steps in a row in which no worker of any partition found anything to do: nobody ever will. Many, because
/// the one who has something to do may have no processor.
const IDLE_STEPS_MAX: u64 = 20_000_000;

/// What the threads share.
struct Shared {
    engines: Vec<Arc<dyn Engine>>,
    ends: Vec<Position>,
    committed: Vec<Mutex<Vec<Committed>>>,
    /// Idle steps since anybody did anything.
    idle: AtomicU64,
}

impl Shared {
    fn is_over(&self) -> bool {
        let mut engines = self.engines.iter().zip(&self.ends);
        let is_done = |(engine, end): (&Arc<dyn Engine>, &Position)| engine.status().final_committed == *end;
        engines.all(is_done)
    }

    fn is_stuck(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > IDLE_STEPS_MAX
    }

    fn carry(&self, at: usize) {
        for (to, message) in siblings_of(&*self.engines[at]).messages() {
            let to = usize::from(to.0);
            siblings_of(&*self.engines[to]).receive(PartitionId(at as u16), message);
            // What it hears may make it say something.
            self.carry(to);
        }
    }

    fn work(&self, at: usize, worker: WorkerId, budget: Budget) {
        while !self.is_over() && !self.is_stuck() {
            let mut committed = Vec::new();
            let progress = self.engines[at].step(worker, budget, &mut committed);
            self.carry(at);
            let mut all = self.committed[at].lock().unwrap_or_else(PoisonError::into_inner);
            all.append(&mut committed);
            drop(all);
            match progress {
                Progress::Worked => self.idle.store(0, Ordering::Relaxed),
                Progress::Idle => {
                    self.idle.fetch_add(1, Ordering::Relaxed);
                    // Not by yielding: see `crate::threads`.
                    (0..100).for_each(|_| std::hint::spin_loop());
                }
            }
        }
    }
}

/// Runs a seed's epochs on real threads: one for each worker of each partition.
///
/// # Errors
/// What is wrong, with the seed.
pub fn run_on_threads(world: World<'_>, seed: u64, epochs: usize) -> Result<Report, String> {
    let mut run = Run::new(world, seed, epochs);
    for epoch in 0..epochs {
        let planned = run.make();
        let digest = planned.digest;
        run.plan.push(planned);
        run.tell(Told::Deliver(epoch, digest));
        run.tell(Told::Confirm(epoch));
    }
    for at in 0..run.partitions.len() {
        while !run.partitions[at].inbox.is_empty() {
            run.told(at);
        }
    }
    // What deliveries made them say.
    while !run.network.is_empty() {
        run.carry();
    }
    let budget = Budget { operations: run.draw.pick(&[1, 10, u32::MAX]), heavy: true };
    let partitions = &run.partitions;
    let shared = Shared {
        engines: partitions.iter().map(|at| at.engine.clone()).collect(),
        ends: partitions.iter().map(|at| at.next().prev()).collect(),
        committed: partitions.iter().map(|_| Mutex::default()).collect(),
        idle: AtomicU64::new(0),
    };
    std::thread::scope(|scope| {
        for (at, partition) in partitions.iter().enumerate() {
            for worker in 0..partition.place.workers {
                let shared = &shared;
                scope.spawn(move || shared.work(at, WorkerId(worker), budget));
            }
        }
    });
    if shared.is_stuck() {
        let status = shared.engines.iter().map(|engine| engine.status());
        let status: Vec<_> = status.collect();
        return Err(format!("seed {seed}, on threads: stuck at {status:#?}"));
    }
    for (at, committed) in shared.committed.into_iter().enumerate() {
        let committed = committed.into_inner();
        run.ended(at, committed.unwrap_or_else(PoisonError::into_inner));
    }
    let report = run.check().map(|()| run.report);
    report.map_err(|wrong| format!("seed {seed}, on threads: {wrong}"))
}
