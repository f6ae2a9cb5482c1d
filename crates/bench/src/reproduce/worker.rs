//! What one real worker takes for a workload's transactions, in processor time.

use execute::{Budget, Committed, Engine, Progress, ReadOutcome, SnapshotReader, WorkerId};
use rustix::time::{ClockId, clock_gettime};
use sim::scale::Contender;
use std::sync::Arc;
use store::Image;
use txn::{Batch, Epoch, PartitionId, Position, Request, RequestId, SessionId, Stop};
use workloads::{Client, Workload};

/// Requests of a batch.
const BATCH: usize = 64;
/// Batches between two looks at the clock.
const BATCHES: usize = 16;
/// Operations of a step, as the server has them.
const STEP: Budget = Budget { operations: 512, heavy: true };
const LOADED_AT_MS: u64 = 1_700_000_000_000;

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Worker {
    /// What the engine takes for a transaction, on average over those too that bypass it.
    pub engine_ns: f64,
    /// What it takes to look at a record at a snapshot; 0 if nothing did.
    pub read_ns: f64,
}

/// The processor time of this thread in nanoseconds.
fn processor_ns() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
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

/// Measures a contender on a workload for so many seconds of processor time.
pub fn measure(contender: Contender, workload: &dyn Workload, seed: u64, seconds: f64) -> Worker {
    let engine = contender.engine(PartitionId(0), 1, 1);
    for part in 0..workload.parts() {
        workload.load(seed, part, &mut |key, entry| {
            engine.view().load(Image { key, version: Position::FIRST, entry: Some(entry) });
        });
    }
    engine.view().loaded(Position::FIRST, LOADED_AT_MS, &[]);
    let mut reader = SnapshotReader::new(engine.clone());
    let mut generator = workload.generator(seed, Client::ONLY);
    let mut order = Order { engine, next: Position::FIRST.next(), epoch: 0, committed: Vec::new() };
    let (mut engine_ns, mut reads_ns) = (0.0, 0.0);
    let (mut ended, mut looks, mut sequence) = (0, 0, 0);
    let mut again: Vec<Arc<Request>> = Vec::new();
    let mut is_warm = false;
    while engine_ns + reads_ns < seconds * 1e9 {
        let (mut batches, mut reads) = (Vec::new(), Vec::new());
        for _ in 0..BATCHES {
            let mut batch = std::mem::take(&mut again);
            while batch.len() < BATCH {
                sequence += 1;
                let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
                let draw = generator.next();
                if draw.read_only && contender.reads_at_snapshots() {
                    reads.push(Arc::new(draw.into_request(id, false)));
                    continue;
                }
                let request = Arc::new(draw.into_request(id, contender.needs().declared_keys));
                batch.push(with_keys(contender, &order.engine, request));
            }
            batches.push(batch);
        }
        let begun_ns = processor_ns();
        let mut here = 0;
        for batch in batches {
            let (count, given_back) = order.run(batch);
            here += count;
            again.extend(given_back);
        }
        let executed_ns = processor_ns();
        let mut looked = 0;
        for request in &reads {
            if let ReadOutcome::Done(_) = reader.run(request, LOADED_AT_MS + order.epoch) {
                here += 1;
                looked += reader.looks();
            }
        }
        let read_ns = processor_ns();
        again = again
            .into_iter()
            .map(|request| {
                let mut request = (*request).clone();
                request.id.attempt += 1;
                request.footprint.keys = None;
                with_keys(contender, &order.engine, Arc::new(request))
            })
            .collect();
        order.engine.view().collect(64);
        // The first round warms up.
        if std::mem::replace(&mut is_warm, true) {
            engine_ns += executed_ns - begun_ns;
            reads_ns += read_ns - executed_ns;
            ended += here;
            looks += looked;
        }
    }
    Worker {
        engine_ns: engine_ns / ended.max(1) as f64,
        read_ns: match looks {
            0 => 0.0,
            looks => reads_ns / looks as f64,
        },
    }
}

/// A request as its contender wants it.
fn with_keys(contender: Contender, engine: &Arc<dyn Engine>, request: Arc<Request>) -> Arc<Request> {
    if !contender.needs().declared_keys || request.footprint.keys.is_some() {
        return request;
    }
    let engines = std::slice::from_ref(engine);
    let found = execute::calvin::reconnoitre(engines, &request, LOADED_AT_MS);
    let mut request = (*request).clone();
    request.footprint = found.footprint;
    Arc::new(request)
}
