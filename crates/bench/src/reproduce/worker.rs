//! What one real worker takes for a workload's transactions, in processor time.

use anyhow::{Result, anyhow};
use execute::{Budget, Committed, Engine, Progress, ReadOutcome, SnapshotReader, WorkerId};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sim::scale::Contender;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::Image;
use txn::{Batch, Epoch, PartitionId, Position, Request, RequestId, SessionId, Stop};
use workloads::{Client, Generator, Workload};

/// Requests of a batch, whose keys are found together before it is executed. The clock is read a few times
/// for each.
pub const BATCH: usize = 64;
/// Records that are offered for collection after a batch.
const COLLECTED_AT_ONCE: usize = 4;
/// Operations of a step, as the server has them.
const STEP: Budget = Budget { operations: 512, heavy: true };
/// How much longer than asked for a stand measures because others do, at most.
const LONGER_MAX: f64 = 4.0;
const LOADED_AT_MS: u64 = 1_700_000_000_000;

/// What was found in a round.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Round {
    /// What the engine takes for a transaction that goes through the order.
    pub engine_ns: f64,
    /// What it takes to look at a record at a snapshot: for reads, or for reconnaissance. Nothing if no call
    /// needs either.
    pub read_ns: Option<f64>,
    /// What it takes to make a call.
    pub call_ns: f64,
    /// What a call takes with all of this, on average.
    pub each_ns: f64,
}

/// The processor time of this thread in nanoseconds.
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn processor_ns() -> f64 {
    thread_ns() as f64
}

/// The order that one worker executes.
struct Order {
    engine: Arc<dyn Engine>,
    next: Position,
    epoch: u64,
    committed: Vec<Committed>,
}

impl Order {
    /// Executes a batch to its end. Returns how many transactions ended, and what must be submitted again.
    fn run(&mut self, requests: Vec<Arc<Request>>) -> (usize, Vec<Arc<Request>>) {
        self.epoch += 1;
        let batch = Batch {
            epoch: Epoch(self.epoch),
            time_ms: LOADED_AT_MS + self.epoch,
            first: self.next,
            requests,
            groups: Vec::new(),
            digest: 0,
        };
        self.next = batch.end();
        self.engine.deliver(batch);
        self.engine.confirm(self.next.prev());
        while self.engine.step(WorkerId(0), STEP, &mut self.committed) == Progress::Worked {}
        let all = self.committed.len();
        let given_back = self.committed.drain(..).filter_map(|committed| {
            let is_undeclared = matches!(committed.outcome, Err(Stop::Undeclared(_)));
            is_undeclared.then_some(committed.request)
        });
        let again: Vec<_> = given_back.collect();
        (all - again.len(), again)
    }
}

/// Has all of them measure at the same time, each on its own thread. Their rounds are averaged.
pub fn measure(stands: &mut [Stand], seconds: f64) -> Round {
    let unfinished = AtomicUsize::new(stands.len());
    let rounds: Vec<Round> = std::thread::scope(|scope| {
        let measure = |stand: &'_ mut Stand| stand.measure(seconds, &unfinished);
        let threads: Vec<_> = stands.iter_mut().map(|stand| scope.spawn(move || measure(stand))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|round| round.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mean = |of: fn(&Round) -> f64| rounds.iter().map(of).sum::<f64>() / rounds.len().max(1) as f64;
    let reads: Option<Vec<f64>> = rounds.iter().map(|round| round.read_ns).collect();
    Round {
        engine_ns: mean(|round| round.engine_ns),
        read_ns: reads.map(|reads| reads.iter().sum::<f64>() / reads.len().max(1) as f64),
        call_ns: mean(|round| round.call_ns),
        each_ns: mean(|round| round.each_ns),
    }
}

/// An engine with a workload's records and calls, which one worker executes.
pub struct Stand {
    contender: Contender,
    order: Order,
    reader: SnapshotReader,
    generator: Box<dyn Generator>,
    sequence: u64,
    again: Vec<Arc<Request>>,
}

impl Stand {
    /// Loads the records.
    ///
    /// # Errors
    /// The contender is none with an engine.
    pub fn load(contender: Contender, workload: &dyn Workload, seed: u64) -> Result<Stand> {
        let engine = contender.engine(PartitionId(0), 1, 1).map_err(|wrong| anyhow!(wrong))?;
        for part in 0..workload.parts() {
            workload.load(seed, part, &mut |key, entry| {
                engine.view().load(Image { key, version: Position::FIRST, entry: Some(entry) });
            });
        }
        engine.view().loaded(Position::FIRST, LOADED_AT_MS, &[]);
        Ok(Stand {
            contender,
            reader: SnapshotReader::new(engine.clone()),
            generator: workload.generator(seed, Client::ONLY),
            order: Order { engine, next: Position::FIRST.next(), epoch: 0, committed: Vec::new() },
            sequence: 0,
            again: Vec::new(),
        })
    }

    /// Executes for so many seconds of processor time, and on until those who measure at the same time have
    /// done that, too. The time of other processes on this machine is no part of what it finds, but what they
    /// do to the caches is.
    pub fn measure(&mut self, seconds: f64, unfinished: &AtomicUsize) -> Round {
        let mut is_finished = false;
        let (mut engine_ns, mut reads_ns, mut calls_ns) = (0.0, 0.0, 0.0);
        let (mut calls, mut ordered, mut looks) = (0_u64, 0_u64, 0_u64);
        loop {
            let took_s = (engine_ns + reads_ns + calls_ns) / 1e9;
            if took_s >= seconds && !std::mem::replace(&mut is_finished, true) {
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
            let is_alone = unfinished.load(Ordering::Relaxed) == 0;
            if is_finished && (is_alone || took_s >= LONGER_MAX * seconds) {
                break;
            }
            let begun_ns = processor_ns();
            let mut reads = Vec::new();
            let batch = self.calls(&mut reads, &mut calls);
            let made_ns = processor_ns();
            let batch = batch.into_iter().map(|request| self.with_keys(request, &mut looks)).collect();
            let found_ns = processor_ns();
            let (count, given_back) = self.order.run(batch);
            ordered += count as u64;
            self.again.extend(given_back);
            let executed_ns = processor_ns();
            for request in &reads {
                if let ReadOutcome::Done(_) = self.reader.run(request, LOADED_AT_MS + self.order.epoch) {
                    looks += self.reader.looks();
                }
            }
            let read_ns = processor_ns();
            self.order.engine.view().collect(COLLECTED_AT_ONCE);
            calls_ns += made_ns - begun_ns;
            engine_ns += executed_ns - found_ns;
            reads_ns += found_ns - made_ns + read_ns - executed_ns;
        }
        let each = |ns: f64, count: u64| ns / count.max(1) as f64;
        Round {
            engine_ns: each(engine_ns, ordered),
            read_ns: (looks > 0).then(|| each(reads_ns, looks)),
            call_ns: each(calls_ns, calls),
            each_ns: each(engine_ns + reads_ns + calls_ns, calls),
        }
    }

    /// Makes the calls of a batch. Reads beside the order go to `reads`.
    fn calls(&mut self, reads: &mut Vec<Arc<Request>>, calls: &mut u64) -> Vec<Arc<Request>> {
        let again = std::mem::take(&mut self.again).into_iter().map(|request| {
            let mut request = (*request).clone();
            request.id.attempt += 1;
            request.footprint.keys = None;
            Arc::new(request)
        });
        let mut batch: Vec<_> = again.collect();
        while batch.len() < BATCH {
            self.sequence += 1;
            *calls += 1;
            let id = RequestId { session: SessionId(1), sequence: self.sequence, attempt: 0 };
            let draw = self.generator.next();
            if draw.read_only && self.contender.reads_at_snapshots() {
                reads.push(Arc::new(draw.into_request(id, false)));
                continue;
            }
            batch.push(Arc::new(draw.into_request(id, self.contender.needs().declared_keys)));
        }
        batch
    }

    /// A request as its contender wants it.
    fn with_keys(&self, request: Arc<Request>, looks: &mut u64) -> Arc<Request> {
        if !self.contender.needs().declared_keys || request.footprint.keys.is_some() {
            return request;
        }
        let engines = std::slice::from_ref(&self.order.engine);
        let found = execute::calvin::reconnoitre(engines, &request, LOADED_AT_MS);
        let keys = found.footprint.keys.as_ref();
        *looks += keys.map_or(1, |keys| keys.reads.len() + keys.writes.len()) as u64;
        let mut request = (*request).clone();
        request.footprint = found.footprint;
        Arc::new(request)
    }
}
