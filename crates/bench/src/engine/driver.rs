//! Drives one engine: the threads of a slice generate calls, deliver them in batches, and step the engine.
//!
//! There is no network, no log and no thread beside the measured ones: what an engine saves or wastes shows.
//! Every worker draws calls from its own generator into a private buffer, and appends it to the order
//! ([`super::order`]) as a batch when it is full. So all engines pay the same for their input. What is
//! delivered and not final-committed is bounded by the run-ahead.
//!
//! Invariant: `outstanding` counts requests that were delivered and did not end yet. A request that an engine
//! gave back because of undeclared keys stays counted until it ends, so that `outstanding == 0` means that
//! nothing is owed.

use super::order::{Decisions, Order};
use crate::report::Latencies;
use crossbeam_utils::{Backoff, CachePadded};
use execute::{
    Assignment, Budget, Committed, Effects, Engine, EngineKind, ParSpec, Progress, QStore, ReadOutcome,
    SnapshotReader, WorkerId, parspec, qstore,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use store::{Image, View};
use txn::{Footprint, Key, Position, Request, RequestId, SessionId, Stop};
use workloads::{Client, Draw, Generator, State, Tally, Workload};

/// One of so many positions has its latency taken.
pub(super) const SAMPLED: u64 = 32;
/// Read-only transactions that a worker runs at snapshots before it looks at the engine again.
const READS_AT_ONCE: usize = 8;
/// Operations of one step.
const STEP: Budget = Budget { operations: 512, heavy: true };
/// Records that an idle worker offers for collection at once.
pub(super) const COLLECTED_AT_ONCE: usize = 64;
/// A request that comes again has its keys found by reconnaissance so often at most.
const ATTEMPTS_GUESSED_MAX: u32 = 4;
/// How long a worker with nothing to do rests, once it has looked often.
pub(super) const REST: Duration = Duration::from_micros(50);
/// How often it looks before.
pub(super) const LOOKS: u32 = 100;
/// The epoch time of the loaded records: any time will do, and a fixed one keeps runs alike.
pub(super) const LOADED_AT_MS: u64 = 1_700_000_000_000;

/// How a driver feeds its engine.
#[derive(Clone, Copy, Debug)]
pub struct Feeding {
    /// Requests in a batch.
    pub batch: usize,
    /// Requests that may be delivered and not yet final-committed.
    pub run_ahead: usize,
    /// Read-only transactions run at a final snapshot instead of passing through the order.
    pub reads_at_snapshots: bool,
    /// How batches become final.
    pub decisions: Decisions,
    /// Calls that arrive in a second, whatever has become of those before; if it is not given, as many as the
    /// run-ahead has room for.
    pub rate: Option<f64>,
    /// ParSpec's MaxSpec, unless it adapts.
    pub max_spec: Option<u64>,
    /// Q-Store's mode; its default if it is not given.
    pub qstore_mode: Option<qstore::Mode>,
}

/// An engine with its store and its callers.
pub struct Driver {
    core: Core,
    workers: Vec<Worker>,
}

/// What the workers share.
struct Core {
    engine: Arc<dyn Engine>,
    feeding: Feeding,
    started: Instant,
    order: Order,
    outstanding: CachePadded<AtomicI64>,
    /// Workers, each of which draws calls.
    callers: usize,
    /// When sampled positions were delivered, in nanoseconds since `started`.
    stamps: Vec<AtomicU64>,
}

struct Worker {
    id: WorkerId,
    generator: Box<dyn Generator>,
    reader: SnapshotReader,
    sequence: u64,
    pending: Vec<Arc<Request>>,
    /// When each of the pending calls has arrived, where calls have a rate; in nanoseconds since the start.
    arrived_ns: Vec<u64>,
    /// When the next call arrives, where calls have a rate.
    next_arrival_ns: f64,
    sink: Sink,
}

/// What one worker saw its engine commit.
#[derive(Default)]
struct Sink {
    /// Since the start: what the workload's check needs.
    tally: Tally,
    /// Since the slice began.
    latencies: Latencies,
    /// Ended in this step.
    ended: i64,
    /// Positions of this step whose latency is to be taken.
    sampled: Vec<Position>,
    /// To be submitted again with other key sets.
    undeclared: Vec<Arc<Request>>,
    undeclared_total: u64,
}

impl Effects for Sink {
    fn committed(&mut self, committed: Committed) {
        if matches!(committed.outcome, Err(Stop::Undeclared(_))) {
            self.undeclared.push(committed.request);
            self.undeclared_total += 1;
            return;
        }
        self.tally.add(&committed.outcome);
        self.ended += 1;
        if committed.position.0.is_multiple_of(SAMPLED) {
            self.sampled.push(committed.position);
        }
    }
}

/// What an engine did in a slice.
#[derive(Clone, Default)]
pub struct Slice {
    /// From the first call until the last one ended.
    pub elapsed: Duration,
    /// For how much of it a worker waited for a processor, on average: other processes had it.
    pub waited: Option<Duration>,
    /// Transactions that took effect.
    pub committed: u64,
    /// Transactions that rolled back by their own logic.
    pub aborted_by_logic: u64,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Sampled latencies from delivery to final commit.
    pub latencies: Latencies,
}

impl Slice {
    /// Committed transactions per second.
    pub fn throughput_per_s(&self) -> f64 {
        self.committed as f64 / self.elapsed.as_secs_f64()
    }
    /// Committed transactions per second of the time for which workers had a processor if they wanted one.
    /// Nothing where the system does not tell, or where they had none.
    pub fn undisturbed_per_s(&self) -> Option<f64> {
        let had = self.elapsed.saturating_sub(self.waited?);
        (!had.is_zero()).then(|| self.committed as f64 / had.as_secs_f64())
    }
}

/// Loads the workload's records, in parallel.
pub(super) fn load(view: &dyn View, workload: &dyn Workload, seed: u64) {
    let next_part = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let part = next_part.fetch_add(1, Ordering::Relaxed);
                    if part >= workload.parts() {
                        return;
                    }
                    workload.load(seed, part, &mut |key, entry| {
                        view.load(Image { key, version: Position::FIRST, entry: Some(entry) });
                    });
                }
            });
        }
    });
    view.loaded(Position::FIRST, LOADED_AT_MS, &[]);
}

/// Whether the final state is one that a serial execution could have left.
pub(super) fn check(view: &dyn View, workload: &dyn Workload, tally: &Tally) -> Result<(), String> {
    let snapshot = view.open();
    let mut state = FinalState { view, snapshot };
    let verdict = workload.check(&mut state, tally);
    view.close(state.snapshot);
    verdict
}

/// What a run compares: data with an executor and its callers.
pub(super) trait Driven: Send {
    /// Runs for about `duration`, until all that was begun has ended.
    fn slice(&mut self, duration: Duration) -> Slice;
    /// Whether the final state is one that a serial execution could have left.
    fn check(&self, workload: &dyn Workload) -> Result<(), String>;
    /// The records and versions that the store holds now.
    fn census(&self) -> store::Census;
    /// How much of what has committed had been executed before it was confirmed, in percent; `None` where
    /// nothing is executed after the order.
    fn early_percent(&self) -> Option<f64>;
}

impl Driver {
    /// Creates the engine and loads the workload's records, in parallel.
    pub fn load(
        kind: EngineKind,
        workers: usize,
        workload: &dyn Workload,
        seed: u64,
        feeding: Feeding,
    ) -> Driver {
        let assignment = Assignment::alone(workers);
        let engine: Arc<dyn Engine> = match (kind, feeding.max_spec, feeding.qstore_mode) {
            (EngineKind::ParSpec, max_spec @ Some(_), _) => {
                Arc::new(ParSpec::new(parspec::Options { max_spec, ..parspec::Options::of(assignment) }))
            }
            (EngineKind::QStore, _, Some(mode)) => {
                Arc::new(QStore::new(qstore::Options { mode, ..qstore::Options::of(assignment) }))
            }
            _ => kind.make(assignment),
        };
        load(engine.view(), workload, seed);
        let stamps = (feeding.run_ahead + workers * feeding.batch) as u64 / SAMPLED + 2;
        let workers: Vec<_> = (0..workers)
            .map(|index| Worker {
                id: WorkerId(index),
                generator: workload.generator(seed, Client { index, count: workers }),
                reader: SnapshotReader::new(engine.clone()),
                sequence: 0,
                pending: Vec::new(),
                arrived_ns: Vec::new(),
                next_arrival_ns: 0.0,
                sink: Sink::default(),
            })
            .collect();
        let core = Core {
            engine,
            feeding,
            started: Instant::now(),
            order: Order::behind(Position::FIRST, feeding.decisions, seed),
            outstanding: CachePadded::default(),
            callers: workers.len(),
            stamps: (0..stamps * 2).map(|_| AtomicU64::new(0)).collect(),
        };
        Driver { core, workers }
    }

    fn tally(&self) -> Tally {
        let mut total = Tally::default();
        for worker in &self.workers {
            total.merge(&worker.sink.tally);
        }
        total
    }

    fn restarts(&self) -> u64 {
        let resubmitted: u64 = self.workers.iter().map(|worker| worker.sink.undeclared_total).sum();
        self.core.engine.status().restarts + resubmitted
    }
}

impl Driven for Driver {
    fn slice(&mut self, duration: Duration) -> Slice {
        let tally_before = self.tally();
        let restarts_before = self.restarts();
        for worker in &mut self.workers {
            worker.sink.latencies.reset();
        }
        let feeders = AtomicUsize::new(self.workers.len());
        let started = Instant::now();
        let waited = on_threads(&mut self.workers, |worker| {
            worker.run(&self.core, started + duration, &feeders);
        });
        let elapsed = started.elapsed();
        let tally = self.tally();
        let mut slice = Slice {
            elapsed,
            waited,
            committed: tally.committed - tally_before.committed,
            aborted_by_logic: tally.aborted_by_logic - tally_before.aborted_by_logic,
            restarts: self.restarts() - restarts_before,
            latencies: Latencies::default(),
        };
        for worker in &self.workers {
            slice.latencies.merge(&worker.sink.latencies);
        }
        slice
    }

    fn check(&self, workload: &dyn Workload) -> Result<(), String> {
        check(self.core.engine.view(), workload, &self.tally())
    }

    fn census(&self) -> store::Census {
        self.core.engine.view().census()
    }

    fn early_percent(&self) -> Option<f64> {
        let early = self.core.engine.status().speculated_before_confirmation;
        let all = (self.tally().committed + self.tally().aborted_by_logic).max(1);
        Some(100.0 * early as f64 / all as f64)
    }
}

impl Core {
    fn now_ns(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    fn now_ms(&self) -> u64 {
        LOADED_AT_MS + self.started.elapsed().as_millis() as u64
    }

    fn stamp(&self, position: Position) -> &AtomicU64 {
        &self.stamps[(position.0 / SAMPLED) as usize % self.stamps.len()]
    }

    /// Appends requests to the order, which have arrived at these times, or now.
    fn append(&self, requests: Vec<Arc<Request>>, arrived_ns: &[u64]) {
        self.order.append(&*self.engine, requests, self.now_ms(), |first, end| {
            let now_ns = self.now_ns();
            let mut sampled = Position(first.0.next_multiple_of(SAMPLED));
            while sampled < end {
                let arrived_ns = arrived_ns.get((sampled.0 - first.0) as usize).copied();
                self.stamp(sampled).store(arrived_ns.unwrap_or(now_ns), Ordering::Relaxed);
                sampled = sampled.advanced(SAMPLED);
            }
        });
    }
}

impl Worker {
    fn run(&mut self, core: &Core, until: Instant, feeders: &AtomicUsize) {
        let mut feeding = true;
        self.next_arrival_ns = core.now_ns() as f64;
        let mut looks = 0;
        let backoff = Backoff::new();
        loop {
            if feeding && Instant::now() >= until {
                feeding = false;
                self.flush(core);
                feeders.fetch_sub(1, Ordering::SeqCst);
            }
            core.order.decide(&*core.engine);
            let progress = core.engine.step(self.id, STEP, &mut self.sink);
            self.settle(core);
            let outstanding = core.outstanding.load(Ordering::Relaxed);
            if feeding && outstanding < core.feeding.run_ahead as i64 {
                let has_fed = self.feed(core);
                // Half a batch is better than an engine that waits for it.
                if self.pending.len() >= core.feeding.batch || outstanding < core.feeding.batch as i64 {
                    self.flush(core);
                }
                if has_fed {
                    looks = 0;
                    continue;
                }
            }
            if progress == Progress::Worked {
                looks = 0;
                backoff.reset();
                continue;
            }
            if feeders.load(Ordering::SeqCst) == 0 && core.outstanding.load(Ordering::SeqCst) == 0 {
                return;
            }
            looks += 1;
            if looks < LOOKS {
                backoff.snooze();
            } else {
                core.engine.view().collect(COLLECTED_AT_ONCE);
                std::thread::park_timeout(REST);
            }
        }
    }

    /// When the next call has arrived, where calls have a rate; none if it has not.
    fn arrival(&mut self, core: &Core) -> Option<u64> {
        let Some(rate) = core.feeding.rate else {
            return Some(0);
        };
        let arrived_ns = self.next_arrival_ns;
        if arrived_ns > core.now_ns() as f64 {
            return None;
        }
        self.next_arrival_ns += 1e9 * core.callers as f64 / rate;
        Some(arrived_ns as u64)
    }

    /// A call waits for its batch.
    fn push(&mut self, core: &Core, request: Arc<Request>, arrived_ns: u64) {
        self.pending.push(request);
        if core.feeding.rate.is_some() {
            self.arrived_ns.push(arrived_ns);
        }
    }

    /// Draws calls until there is a batch of them, or no more have arrived; whether there was any. Read-only
    /// ones run at once, if they need no place in the order.
    fn feed(&mut self, core: &Core) -> bool {
        let needs_keys = core.engine.needs().declared_keys;
        let mut reads = 0;
        let mut has_fed = false;
        while self.pending.len() < core.feeding.batch
            && reads < READS_AT_ONCE
            && let Some(arrived_ns) = self.arrival(core)
        {
            has_fed = true;
            let draw = self.generator.next();
            self.sequence += 1;
            let id =
                RequestId { session: SessionId(self.id.0 as u64 + 1), sequence: self.sequence, attempt: 0 };
            if draw.read_only && core.feeding.reads_at_snapshots {
                reads += 1;
                self.read(core, draw, id, arrived_ns);
                continue;
            }
            let mut request = draw.into_request(id, needs_keys);
            if needs_keys && request.footprint.keys.is_none() {
                request.footprint = reconnoitre(core, &request);
            }
            self.push(core, Arc::new(request), arrived_ns);
        }
        has_fed
    }

    fn read(&mut self, core: &Core, draw: Draw, id: RequestId, arrived_ns: u64) {
        let request = Arc::new(draw.into_request(id, false));
        let sampled = id.sequence.is_multiple_of(SAMPLED).then(Instant::now);
        match self.reader.run(&request, core.now_ms()) {
            ReadOutcome::Done(outcome) => self.sink.tally.add(&outcome),
            ReadOutcome::MustOrder | ReadOutcome::Interrupted => {
                self.push(core, request, arrived_ns);
            }
        }
        if let Some(started) = sampled {
            self.sink.latencies.record(started.elapsed(), 1);
        }
    }

    fn flush(&mut self, core: &Core) {
        if self.pending.is_empty() {
            return;
        }
        let batch = std::mem::replace(&mut self.pending, Vec::with_capacity(core.feeding.batch));
        core.outstanding.fetch_add(batch.len() as i64, Ordering::SeqCst);
        core.append(batch, &self.arrived_ns);
        self.arrived_ns.clear();
    }

    /// Accounts for what a step ended, and submits again what it gave back.
    fn settle(&mut self, core: &Core) {
        if !self.sink.sampled.is_empty() {
            let now_ns = core.now_ns();
            for position in self.sink.sampled.drain(..) {
                let delivered_ns = core.stamp(position).load(Ordering::Relaxed);
                self.sink.latencies.record(Duration::from_nanos(now_ns.saturating_sub(delivered_ns)), 1);
            }
        }
        if !self.sink.undeclared.is_empty() {
            let again = self.sink.undeclared.drain(..).map(|request| {
                let mut request = (*request).clone();
                request.id.attempt += 1;
                request.footprint = match request.id.attempt <= ATTEMPTS_GUESSED_MAX {
                    true => reconnoitre(core, &request),
                    // Without keys it runs behind everything before it, and cannot fail again.
                    false => Footprint { keys: None, ..request.footprint },
                };
                Arc::new(request)
            });
            core.append(again.collect(), &[]);
        }
        if self.sink.ended > 0 {
            core.outstanding.fetch_sub(std::mem::take(&mut self.sink.ended), Ordering::SeqCst);
        }
    }
}

/// Runs each worker on a thread of its own. For how long they were ready to run and had no processor, on
/// average; nothing where the system does not tell.
pub(super) fn on_threads<W: Send>(workers: &mut [W], run: impl Fn(&mut W) + Sync) -> Option<Duration> {
    let run = &run;
    let waits: Option<Vec<Duration>> = std::thread::scope(|scope| {
        let start = |worker| {
            scope.spawn(move || {
                run(worker);
                waited_for_processor()
            })
        };
        let threads: Vec<_> = workers.iter_mut().map(start).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|wait| wait.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    waits.map(|waits| waits.iter().sum::<Duration>() / waits.len().max(1) as u32)
}

/// For how long this thread was ready to run and had no processor; nothing where the system does not tell.
fn waited_for_processor() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
}

/// The footprint that a dry run at the newest final snapshot finds.
fn reconnoitre(core: &Core, request: &Request) -> Footprint {
    let (engine, request) = (&core.engine, Arc::new(request.clone()));
    execute::calvin::reconnoitre(std::slice::from_ref(engine), &request, core.now_ms()).footprint
}

struct FinalState<'a> {
    view: &'a dyn View,
    snapshot: store::Snapshot,
}

impl State for FinalState<'_> {
    fn get(&mut self, key: &Key) -> Option<txn::Entry> {
        self.view.read_at(&self.snapshot, key).entry
    }
    fn count(&mut self) -> u64 {
        self.view.count_at(&self.snapshot)
    }
}
