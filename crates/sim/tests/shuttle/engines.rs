//! Engines against the serial oracle, while threads of the model checker step them. These tests look for
//! races of the record latch with the removal of records, of parking with waking, of the commit of the head
//! with its doom, and of readers with collectors.

use execute::sparkle::{Mutant, Options as SparkleOptions, Sparkle};
use execute::{
    Assignment, Budget, Committed, Engine, ParSpec, Progress, QStore, Siblings, WorkerId, parspec, qstore,
};
use ordo_sim::draw::{Draw, seeds};
use ordo_sim::fragments::{self, FragmentSource, Mix};
use ordo_sim::judge::{Judge, check_end};
use ordo_sim::oracle::Oracle;
use ordo_sim::program::Shape;
use ordo_sim::scenario::{Options, ProgramSource, Scenario, Source};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Schedule, Scheduler, Task, TaskId};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc as ShuttleArc, Condvar, Mutex};
use shuttle::thread;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use store::{Partition, Version, View};
use txn::key::partition_of_slot;
use txn::mutant::{self, with};
use txn::{
    Batch, Entry, Epoch, Group, Key, PartitionId, PartitionRoute, Position, Request, RequestId, SessionId,
    Slots,
};

/// Goes on with one thread for a while, and then with another: some are left where they are while others do
/// much.
///
/// (A random choice at each step holds nobody back for long, and priorities change at too few of a run's many
/// steps to do so twice within a few of them.)
struct Bursts {
    draw: Draw,
    iterations: usize,
    /// One in how many steps is of another thread, in this run.
    one_in: u64,
}

impl Bursts {
    fn new(seed: u64, iterations: usize) -> Bursts {
        Bursts { draw: Draw::new(seed), iterations, one_in: 1 }
    }
}

impl Scheduler for Bursts {
    fn new_execution(&mut self) -> Option<Schedule> {
        self.iterations = self.iterations.checked_sub(1)?;
        self.one_in = self.draw.pick(&[4, 16, 64]);
        Some(Schedule::new(0))
    }
    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let stays = !is_yielding && self.draw.below(self.one_in) != 0;
        let (now, others): (Vec<_>, Vec<_>) =
            runnable.iter().map(|task| task.id()).partition(|id| Some(*id) == current);
        match now.first() {
            Some(&now) if stays || others.is_empty() => Some(now),
            _ => Some(others[self.draw.below(others.len() as u64) as usize]),
        }
    }
    fn next_u64(&mut self) -> u64 {
        self.draw.bits()
    }
}

pub(crate) fn run<S: Scheduler + 'static>(scheduler: S, model: impl Fn() + Send + Sync + 'static) {
    let mut config = shuttle::Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
    config.silence_warnings = true;
    shuttle::Runner::new(scheduler, config).run(model);
}

/// Runs `model` under schedules of each seed: random ones, by priorities, and in bursts.
fn explore(default_seeds: u64, iterations: usize, model: impl Fn(u64) + Clone + Send + Sync + 'static) {
    for seed in seeds(default_seeds) {
        println!("seed {seed}");
        let (random, pct, bursts) = (model.clone(), model.clone(), model.clone());
        run(RandomScheduler::new_from_seed(seed, iterations), move || random(seed));
        run(PctScheduler::new_from_seed(seed, 3, iterations), move || pct(seed));
        run(Bursts::new(seed, iterations), move || bursts(seed));
    }
}

/// An engine that is explored.
#[derive(Clone, Copy)]
enum Kind {
    Sparkle(Option<Mutant>),
    ParSpec,
    QStore(qstore::Mode),
}

impl Kind {
    fn make(self, workers: usize) -> Arc<dyn Engine> {
        match self {
            Kind::Sparkle(mutant) => {
                let options = SparkleOptions { capacity: 32, mutant, ..SparkleOptions::new(workers) };
                Arc::new(Sparkle::new(options))
            }
            Kind::ParSpec => {
                let defaults = parspec::Options::of(Assignment::alone(workers));
                Arc::new(ParSpec::new(parspec::Options { capacity: 32, ..defaults }))
            }
            Kind::QStore(mode) => {
                let defaults = qstore::Options::of(Assignment::alone(workers));
                let options = qstore::Options { capacity: 32, ranges: 2, buckets: 4, mode, ..defaults };
                Arc::new(QStore::new(options))
            }
        }
    }
}

/// A handful of transactions over one or two keys, with everything that programs can do.
fn scenario(seed: u64, kind: Kind) -> Scenario {
    let mut draw = Draw::new(seed);
    // Fragments, too, where they are executed apart.
    let in_fragments = matches!(kind, Kind::QStore(_)) && draw.percent(50);
    let shape = Shape {
        hot_keys: draw.pick(&[1, 2]),
        cold_keys: 2,
        pairs: 1,
        hot_percent: 80,
        operations_max: draw.pick(&[1, 2, 3]),
        big_permille: 0,
        ..Shape::draw(&mut draw)
    };
    let transactions = draw.between(2, 5);
    let options =
        Options { unconfirmed_max: 8, start: Position::NONE, ..Options::draw(&mut draw, transactions) };
    let source: Box<dyn Source> = match in_fragments {
        true => Box::new(FragmentSource::of(shape, &mut draw)),
        false => Box::new(ProgramSource::new(shape)),
    };
    Scenario::new(options, source, Draw::new(draw.bits()))
}

/// The engine on two threads while a third delivers, retracts, delivers again and confirms.
fn engine_model(seed: u64, kind: Kind) {
    const WORKERS: usize = 2;
    let mut scenario = scenario(seed, kind);
    let mut draw = Draw::new(seed ^ 1);
    let engine = kind.make(WORKERS);
    scenario.preload(engine.view());
    let committed: ShuttleArc<Mutex<Vec<Committed>>> = ShuttleArc::new(Mutex::new(Vec::new()));
    let stop = ShuttleArc::new(AtomicBool::new(false));
    let operations = draw.pick(&[1, u32::MAX]);
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (engine, committed, stop) = (engine.clone(), committed.clone(), stop.clone());
            thread::spawn(move || {
                loop {
                    let stopping = stop.load(Ordering::SeqCst);
                    let mut done = Vec::new();
                    let progress =
                        engine.step(WorkerId(worker), Budget { operations, heavy: true }, &mut done);
                    committed.lock().unwrap().append(&mut done);
                    if progress == Progress::Idle {
                        if stopping {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let mut accidents = 3;
    while !scenario.is_complete() {
        match draw.below(8) {
            0 if accidents > 0 => {
                accidents -= 1;
                if let Some(from) = scenario.retract() {
                    engine.retract(from);
                }
            }
            1..=4 => {
                if let Some(batch) = scenario.deliver() {
                    engine.deliver(batch);
                }
            }
            5 | 6 => {
                if let Some(upto) = scenario.confirm() {
                    engine.confirm(upto);
                }
            }
            _ => {
                engine.view().collect(10);
            }
        }
    }
    while engine.status().final_committed < scenario.end() {
        thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.join().unwrap();
    }
    let mut judge = Judge::default();
    for committed in committed.lock().unwrap().drain(..) {
        judge.judge(&scenario, &committed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
    }
    check_end(&*engine, &*kind.make(1), &scenario, &judge)
        .unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
}

#[test]
fn sparkle_equals_the_specification_under_every_explored_schedule() {
    explore(100, 20, |seed| engine_model(seed, Kind::Sparkle(None)));
}

#[test]
fn parspec_equals_the_specification_under_every_explored_schedule() {
    explore(100, 20, |seed| engine_model(seed, Kind::ParSpec));
}

#[test]
fn qstore_equals_the_specification_under_every_explored_schedule() {
    for mode in qstore::Mode::ALL {
        explore(100, 20, move |seed| engine_model(seed, Kind::QStore(mode)));
    }
}

/// The partitions of [`across_model`].
const PARTITIONS: u16 = 2;

/// An epoch of calls in fragments, most over both partitions: behind so many positions of each.
fn epoch_across(
    epoch: u64,
    sequence: u64,
    behind: [Position; PARTITIONS as usize],
    draw: &mut Draw,
) -> (Vec<Arc<Request>>, Vec<Batch>) {
    let key = |number: u64| Key::new(format!("key{number}").as_bytes());
    let of = |key: &Key| partition_of_slot(key.slot(), PARTITIONS);
    let keys: Vec<Vec<Key>> = (0..PARTITIONS)
        .map(|at| (0..).map(key).filter(|key| of(key) == PartitionId(at)).take(2).collect())
        .collect();
    let mut requests = Vec::new();
    let mut batches: Vec<Batch> = behind
        .into_iter()
        .map(|behind| Batch {
            epoch: Epoch(epoch),
            time_ms: epoch,
            first: behind.next(),
            requests: Vec::new(),
            groups: Vec::new(),
            digest: sequence,
        })
        .collect();
    for number in 0..draw.between(1, 3) {
        let mut chosen: Vec<&Key> = Vec::new();
        let from = draw.below(3);
        for at in 0..u64::from(PARTITIONS) {
            // One in three is of one partition only.
            if from == 0 && at == number % 2 {
                continue;
            }
            chosen.extend(&keys[at as usize][..draw.between(1, 2) as usize]);
        }
        let mix = if draw.percent(90) { Mix::Independent } else { Mix::Named };
        let (procedure, args) = fragments::call(chosen.iter().copied(), mix, draw);
        let sequence = sequence + number;
        let id = RequestId { session: SessionId(sequence), sequence, attempt: 0 };
        let mut request = Request::new(id, procedure, args);
        request.route = PartitionRoute::of_keys(chosen, &Slots::even(PARTITIONS));
        let request = Arc::new(request);
        for &at in &request.route.partitions {
            let batch = &mut batches[usize::from(at.0)];
            if request.route.partitions.len() > 1 {
                let part = number as u32;
                batch.groups.push(Group { first: batch.requests.len(), members: 1, part });
            }
            batch.requests.push(request.clone());
        }
        requests.push(request);
    }
    (requests, batches)
}

/// Two partitions, which tell each other what their fragments come to, on three threads, while a fourth
/// delivers, retracts, delivers something else in its place, and confirms.
fn across_model(seed: u64) {
    let mut draw = Draw::new(seed);
    let mode = Draw::new(seed ^ 3).pick(&qstore::Mode::ALL);
    let engines: Vec<Arc<QStore>> = (0..PARTITIONS)
        .map(|at| {
            let made_for = Assignment { partition: PartitionId(at), ..Assignment::alone(2) };
            let defaults = qstore::Options::of(made_for);
            Arc::new(QStore::new(qstore::Options { capacity: 32, ranges: 2, buckets: 4, mode, ..defaults }))
        })
        .collect();
    let committed: ShuttleArc<Mutex<Vec<(usize, Committed)>>> = ShuttleArc::new(Mutex::new(Vec::new()));
    let stop = ShuttleArc::new(AtomicBool::new(false));
    let operations = draw.pick(&[1, u32::MAX]);
    let threads: Vec<_> = [(0, 0), (0, 1), (1, 0)]
        .into_iter()
        .map(|(at, worker): (usize, usize)| {
            let (engines, committed, stop) = (engines.clone(), committed.clone(), stop.clone());
            thread::spawn(move || {
                loop {
                    let stopping = stop.load(Ordering::SeqCst);
                    let mut done = Vec::new();
                    let budget = Budget { operations, heavy: true };
                    let progress = engines[at].step(WorkerId(worker), budget, &mut done);
                    committed.lock().unwrap().extend(done.into_iter().map(|done| (at, done)));
                    for (to, message) in engines[at].messages() {
                        engines[usize::from(to.0)].receive(PartitionId(at as u16), message);
                    }
                    if progress == Progress::Idle {
                        if stopping {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    // By partition: what it is told, in order. A retraction comes before anything of the epoch is confirmed.
    let (first, batches) = epoch_across(1, 1, [Position::NONE; 2], &mut draw);
    let ends = [0, 1].map(|at: usize| batches[at].end().prev());
    let (_, void) = epoch_across(2, 101, ends, &mut draw);
    let (second, last) = epoch_across(2, 201, ends, &mut draw);
    let is_retracted = draw.percent(70);
    let mut told = [0, 1].map(|at: usize| {
        let mut told: VecDeque<Box<dyn FnOnce(&QStore)>> = VecDeque::new();
        let (batch, end) = (batches[at].clone(), ends[at]);
        told.push_back(Box::new(move |engine| engine.deliver(batch)));
        if is_retracted {
            let batch = void[at].clone();
            told.push_back(Box::new(move |engine| engine.deliver(batch)));
            told.push_back(Box::new(move |engine| engine.retract(end.next())));
        }
        let place = draw.between(1, told.len() as u64) as usize;
        told.insert(place, Box::new(move |engine| engine.confirm(end)));
        let batch = last[at].clone();
        let end = batch.end().prev();
        told.push_back(Box::new(move |engine| engine.deliver(batch)));
        told.push_back(Box::new(move |engine| engine.confirm(end)));
        told
    });
    while told.iter().any(|told| !told.is_empty()) {
        let at = draw.below(2) as usize;
        if let Some(tell) = told[at].pop_front() {
            tell(&engines[at]);
        }
        thread::yield_now();
    }
    let is_over = || (0..2).all(|at| engines[at].status().final_committed == last[at].end().prev());
    while !is_over() {
        thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    for thread in threads {
        thread.join().unwrap();
    }
    for engine in &engines {
        assert_eq!(engine.status().parked, 0, "seed {seed}: something waits for ever");
    }
    let mut oracle = Oracle::new();
    for (requests, time_ms) in [(&first, 1), (&second, 2)] {
        for request in requests {
            oracle.run(request, time_ms);
            let expected = oracle.expected(oracle.last()).expect("it was run");
            let committed = committed.lock().unwrap();
            let of_it: Vec<_> = committed.iter().filter(|(_, done)| done.request.id == request.id).collect();
            assert_eq!(of_it.len(), request.route.partitions.len(), "seed {seed}: {request:?}");
            for (at, done) in of_it {
                let is_answering = request.route.partitions[0] == PartitionId(*at as u16);
                let is_right = !is_answering && done.is_split || expected.admits(&done.outcome);
                assert!(is_right, "seed {seed}: {done:?} at {at} instead of {expected:?}");
            }
        }
    }
    for key in oracle.keys() {
        let engine = &engines[usize::from(partition_of_slot(key.slot(), PARTITIONS).0)];
        let snapshot = engine.view().open();
        let found = engine.view().read_at(&snapshot, key).entry;
        assert_eq!(found, oracle.read_at(key, oracle.last()).entry, "seed {seed}: {key:?}");
        engine.view().close(snapshot);
    }
}

#[test]
fn qstore_over_partitions_equals_the_specification_under_every_explored_schedule() {
    explore(60, 20, across_model);
}

#[test]
fn an_answer_without_the_siblings_is_caught_by_the_model_checker() {
    let caught = seeds(30).any(|seed| {
        let run = || run(RandomScheduler::new_from_seed(seed, 20), move || across_model(seed));
        catch_unwind(AssertUnwindSafe(|| with(mutant::Mutant::AnswerWithoutSiblings, run))).is_err()
    });
    assert!(caught);
}

/// Where workers sleep.
#[derive(Default)]
struct Bell {
    state: Mutex<Sleepers>,
    changed: Condvar,
}

#[derive(Default)]
struct Sleepers {
    /// Deliveries, confirmations and retractions so far.
    events: u64,
    asleep: usize,
    stop: bool,
}

impl Bell {
    fn ring(&self) {
        let mut sleepers = self.state.lock().unwrap();
        sleepers.events += 1;
        // Who was woken and has not run yet is not asleep.
        sleepers.asleep = 0;
        drop(sleepers);
        self.changed.notify_all();
    }
}

/// Who finds nothing to do sleeps until the order says something: what one worker makes possible for others,
/// it or one who is awake must do itself. (All other tests step again and again, and so find whatever was
/// forgotten.)
///
/// If `at_once`, the order has said everything before anybody wakes: what is forgotten then, no later event
/// makes good.
fn sleepers_model(seed: u64, at_once: bool, kind: Kind) {
    const WORKERS: usize = 3;
    let mut scenario = scenario(seed, kind);
    let mut draw = Draw::new(seed ^ 2);
    let engine = kind.make(WORKERS);
    let bell = ShuttleArc::new(Bell::default());
    let operations = draw.pick(&[1, u32::MAX]);
    let work = || {
        let worker = |worker| {
            let (engine, bell) = (engine.clone(), bell.clone());
            thread::spawn(move || {
                loop {
                    let seen = bell.state.lock().unwrap().events;
                    let budget = Budget { operations, heavy: true };
                    let mut done = Vec::new();
                    while engine.step(WorkerId(worker), budget, &mut done) == Progress::Worked {}
                    let mut sleepers = bell.state.lock().unwrap();
                    if sleepers.events == seen {
                        sleepers.asleep += 1;
                        bell.changed.notify_all();
                    }
                    while sleepers.events == seen && !sleepers.stop {
                        sleepers = bell.changed.wait(sleepers).unwrap();
                    }
                    if sleepers.stop {
                        return;
                    }
                }
            })
        };
        (0..WORKERS).map(worker).collect()
    };
    let mut workers: Vec<_> = if at_once { Vec::new() } else { work() };
    while !scenario.is_complete() {
        match draw.below(8) {
            0 => scenario.retract().into_iter().for_each(|from| engine.retract(from)),
            1..=4 => scenario.deliver().into_iter().for_each(|batch| engine.deliver(batch)),
            _ => scenario.confirm().into_iter().for_each(|upto| engine.confirm(upto)),
        }
        bell.ring();
    }
    if at_once {
        workers = work();
    }
    let mut sleepers = bell.state.lock().unwrap();
    while sleepers.asleep < WORKERS {
        sleepers = bell.changed.wait(sleepers).unwrap();
    }
    let (status, waiting) = (engine.status(), engine.waiting());
    sleepers.stop = true;
    drop(sleepers);
    bell.changed.notify_all();
    for worker in workers {
        worker.join().unwrap();
    }
    assert_eq!(status.final_committed, scenario.end(), "seed {seed}: all sleep at {status:?}, {waiting:?}");
}

#[test]
fn nobody_sleeps_over_what_can_be_done() {
    let of_qstore = qstore::Mode::ALL.map(Kind::QStore);
    for kind in [Kind::Sparkle(None), Kind::ParSpec].into_iter().chain(of_qstore) {
        explore(100, 20, move |seed| sleepers_model(seed, false, kind));
        explore(50, 40, move |seed| sleepers_model(seed, true, kind));
    }
    // Three have to meet in a few steps each.
    let caught = catch_unwind(|| {
        for seed in seeds(300) {
            let kind = Kind::Sparkle(Some(Mutant::LeaveCommittable));
            let model = move || sleepers_model(seed, true, kind);
            run(Bursts::new(seed, 3_000), model);
        }
    });
    assert!(caught.is_err(), "what nobody commits was not noticed");
}

/// The test of the test: defects that only show in a race are found here too.
#[test]
fn mutants_are_caught_by_the_model_checker() {
    for mutant in [Mutant::SkipDoomOnInstall, Mutant::DoomMissesCommitted, Mutant::LoseWakeUp] {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            explore(60, 20, move |seed| engine_model(seed, Kind::Sparkle(Some(mutant))))
        }));
        assert!(caught.is_err(), "{mutant:?} was not found");
    }
}

/// A reader opens snapshots while a writer publishes new versions and collects old ones.
fn snapshot_model(_seed: u64) {
    let partition: Arc<Partition<()>> = Arc::new(Partition::new());
    let key = Key::from("k");
    let writer = {
        let (partition, key) = (partition.clone(), key.clone());
        thread::spawn(move || {
            for position in (1..5).map(Position) {
                let mut record = partition.get_or_insert(&key);
                partition.with(&mut record, |cell| {
                    cell.insert(Version { position, entry: Some(Entry::new(&position.0.to_le_bytes()[..])) });
                });
                partition.publish(store::Final { position, time_ms: 10 * position.0, live: 1 });
                partition.collect(usize::MAX);
            }
        })
    };
    for _ in 0..3 {
        let snapshot = partition.open();
        assert_eq!(snapshot.time_ms, 10 * snapshot.position.0, "position and time are published together");
        for _ in 0..2 {
            let read = partition.read_at(&snapshot, &key);
            assert_eq!(read.version, snapshot.position, "a collector took what an open snapshot sees");
        }
        partition.close(snapshot);
    }
    writer.join().unwrap();
}

#[test]
fn collectors_take_nothing_from_open_snapshots() {
    explore(3, 100, snapshot_model);
}

/// Two threads write to a key that a collector keeps forgetting: the record that they latch may have been
/// removed.
fn removal_model(_seed: u64) {
    let partition: Arc<Partition<()>> = Arc::new(Partition::new());
    let key = Key::from("k");
    let collector = {
        let partition = partition.clone();
        thread::spawn(move || {
            for _ in 0..3 {
                partition.collect(usize::MAX);
            }
        })
    };
    let writers: Vec<_> = (1..3)
        .map(|position| {
            let (partition, key) = (partition.clone(), key.clone());
            thread::spawn(move || {
                // The placeholder may die between the look-up and the latch.
                let mut record = partition.get_or_insert(&key);
                partition.with(&mut record, |cell| {
                    cell.insert(Version { position: Position(position), entry: Some(Entry::new("v")) });
                });
            })
        })
        .collect();
    for thread in writers.into_iter().chain([collector]) {
        thread.join().unwrap();
    }
    partition.publish(store::Final { position: Position(2), time_ms: 0, live: 1 });
    let positions = partition.get(&key).map(|mut record| partition.with(&mut record, |cell| cell.len()));
    // The watermark was 0 all the time, so both versions must be there.
    assert_eq!(positions, Some(2));
}

#[test]
fn a_removed_record_is_looked_up_again() {
    explore(3, 200, removal_model);
}

/// Two threads insert keys of one shard, so that its segments are split, and a collector removes the
/// placeholders among them, so that they are merged, while a reader looks for a key that is always there.
fn splits_model(_seed: u64) {
    let partition: Arc<Partition<()>> = Arc::new(Partition::new());
    // The model checker's index has four shards.
    let names = (0..).map(|number: u32| Key::new(&number.to_le_bytes()));
    let keys: Arc<Vec<Key>> = Arc::new(names.filter(|key| key.hash64() >> 62 == 0).take(9).collect());
    let version = |position| Version { position, entry: Some(Entry::new("v")) };
    let write = move |partition: &Partition<()>, key: &Key| {
        let mut record = partition.get_or_insert(key);
        partition.with(&mut record, |cell| cell.insert(version(Position(1))));
    };
    write(&partition, &keys[0]);
    // Of nine keys six are placeholders: a third is left, which is few enough for segments to be merged.
    let writers = [1, 5].map(|first| {
        let (partition, keys) = (partition.clone(), keys.clone());
        thread::spawn(move || {
            for key in &keys[first..first + 3] {
                partition.get_or_insert(key);
            }
            write(&partition, &keys[first + 3]);
        })
    });
    let collector = {
        let partition = partition.clone();
        thread::spawn(move || {
            partition.collect(usize::MAX);
        })
    };
    for _ in 0..3 {
        let found = partition.get(&keys[0]).map(|record| record.is_of(&keys[0]));
        assert_eq!(found, Some(true), "a key is found while others come and go");
    }
    for thread in writers.into_iter().chain([collector]) {
        thread.join().unwrap();
    }
    partition.collect(usize::MAX);
    for (place, key) in keys.iter().enumerate() {
        let is_written = place.is_multiple_of(4);
        assert_eq!(partition.get(key).is_some(), is_written, "{place}");
    }
    assert_eq!(partition.census().versions, 3);
}

#[test]
fn keys_are_found_while_segments_of_the_index_are_split_and_merged() {
    explore(3, 100, splits_model);
}
