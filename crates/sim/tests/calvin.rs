//! Calvin equals the serial specification, with declared keys and without.
//!
//! `ORDO_SEEDS=n` runs more seeds, `ORDO_SEED=s` runs one again, `ORDO_TRACE=1` prints its events.

use execute::calvin::reconnoitre;
use execute::{Budget, Calvin, Committed, Engine, Progress, Serial, WorkerId};
use ordo_sim::draw::{Draw, seeds};
use ordo_sim::program::Shape;
use ordo_sim::scenario::{ProgramSource, Source};
use ordo_sim::threads;
use ordo_sim::workers::{self, Report};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{
    Args, Batch, Call, Epoch, FnProcedure, Footprint, KeySets, Outcome, Position, Reply, Request, ScanRange,
    Space, Stop, Tx,
};

fn calvin(workers: usize, _draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(Calvin::new(workers))
}

fn any_programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::draw(draw))
}

/// Nearly all name their keys, so that they run beside each other.
fn declared_programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::new(Shape { declared_percent: 95, ..Shape::draw(draw) }))
}

#[test]
fn calvin_equals_the_specification_on_virtual_workers() {
    let mut report = Report::default();
    for seed in seeds(300) {
        for programs in [any_programs, declared_programs] {
            let run =
                workers::run(&calvin, &programs, seed, 60).unwrap_or_else(|failure| panic!("{failure}"));
            report.add(&run);
        }
    }
    println!("{report:?}");
    // The runs must be interesting: locks were waited for, and the order was retracted.
    assert!(report.suspensions > 0 && report.retractions > 0 && report.snapshot_reads > 0);
}

#[test]
fn calvin_equals_the_specification_on_real_threads() {
    let mut report = Report::default();
    for seed in seeds(20) {
        for programs in [any_programs, declared_programs] {
            let threads = 2 + seed as usize % 3;
            let run = threads::run(&calvin, &programs, seed, 400, threads)
                .unwrap_or_else(|failure| panic!("{failure}"));
            report.add(&run);
        }
    }
    println!("{report:?}");
    assert!(report.suspensions > 0 && report.retractions > 0);
}

/// Whether a transaction that touches what `fresh` names may run with what `declared` names.
fn permits(declared: &Footprint, fresh: &Footprint) -> bool {
    let (Some(declared), fresh) = (&declared.keys, &fresh.keys) else {
        return true;
    };
    let Some(fresh) = fresh else {
        return false;
    };
    let reads = |key| declared.reads.contains(key) || declared.writes.contains(key);
    let KeySets { reads: fresh_reads, writes: fresh_writes, .. } = &**fresh;
    fresh_reads.iter().all(reads) && fresh_writes.iter().all(|key| declared.writes.contains(key))
}

fn one(position: Position, request: Arc<Request>) -> Batch {
    Batch {
        epoch: Epoch(position.0),
        time_ms: 1_000 + position.0,
        first: position,
        requests: vec![request],
        groups: Vec::new(),
        digest: 0,
    }
}

fn run_serially(serial: &Arc<dyn Engine>, position: Position, request: Arc<Request>) -> Outcome {
    let mut committed = Vec::new();
    serial.deliver(one(position, request));
    serial.confirm(position);
    while serial.step(WorkerId(0), Budget::UNBOUNDED, &mut committed) == Progress::Worked {}
    committed.remove(0).outcome
}

/// Key sets that are out of date give `Undeclared` exactly where the serial execution touches something else,
/// and what ends so leaves nothing behind.
#[test]
fn outdated_key_sets_are_noticed() {
    let (mut noticed, mut passed) = (0, 0);
    for seed in seeds(60) {
        let mut draw = Draw::new(seed);
        let mut source = declared_programs(&mut draw);
        let workers = draw.between(1, 4) as usize;
        let calvin: Arc<dyn Engine> = Arc::new(Calvin::new(workers));
        let serial: Arc<dyn Engine> = Arc::new(Serial::new());
        let engines = std::slice::from_ref(&serial);
        let nothing = Arc::new(FnProcedure::new("nothing", |_: Tx, _: Call| async { Ok(Reply::Nil) }));
        let mut expected: BTreeMap<Position, Outcome> = BTreeMap::new();
        let mut waiting: Vec<Arc<Request>> = Vec::new();
        let mut position = Position::FIRST;
        for sequence in 1..=300 {
            // Found now, ordered later: up to 20 transactions come between.
            let mut request = (*source.request(sequence, &mut draw)).clone();
            request.footprint =
                reconnoitre(engines, &Arc::new(request.clone()), 1_000 + position.0).footprint;
            waiting.push(Arc::new(request));
            if waiting.len() < 20 {
                continue;
            }
            let request = waiting.swap_remove(draw.below(20) as usize);
            let fresh = reconnoitre(engines, &request, 1_000 + position.0).footprint;
            let outcome = if permits(&request.footprint, &fresh) {
                passed += 1;
                run_serially(&serial, position, request.clone())
            } else {
                noticed += 1;
                let place_holder = Request::new(request.id, nothing.clone(), Args::new());
                run_serially(&serial, position, Arc::new(place_holder)).and(Err(Stop::Undeclared(None)))
            };
            expected.insert(position, outcome);
            calvin.deliver(one(position, request));
            position = position.next();
        }
        calvin.confirm(position.prev());
        let mut committed: Vec<Committed> = Vec::new();
        let mut steps = 0;
        while calvin.status().final_committed < position.prev() {
            let worker = WorkerId(draw.below(workers as u64) as usize);
            calvin.step(worker, Budget::ONE, &mut committed);
            steps += 1;
            assert!(steps < 10_000_000, "seed {seed}: no end, {:?}", calvin.status());
        }
        for committed in committed {
            let right = match (&expected[&committed.position], &committed.outcome) {
                // What a panic says is the engine's own.
                (Err(Stop::Abort(_)), Err(Stop::Abort(_))) => true,
                (expected, actual) => expected == actual,
            };
            assert!(
                right,
                "seed {seed}: {:?} {:?} ended {:?} and not {:?}",
                committed.position, committed.request, committed.outcome, expected[&committed.position]
            );
        }
        for space in [Space::User, Space::System] {
            let range = ScanRange::of(space, 0, usize::MAX);
            let listed = [&calvin, &serial].map(|engine| {
                let snapshot = engine.view().open();
                let page = engine.view().scan_at(&snapshot, range);
                let count = engine.view().count_at(&snapshot);
                engine.view().close(snapshot);
                (page, count)
            });
            assert_eq!(listed[0], listed[1], "seed {seed}");
        }
    }
    assert!(noticed > 100 && passed > 100, "{noticed} noticed, {passed} passed");
}
