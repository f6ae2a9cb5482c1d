//! Every engine equals the serial specification: random programs, random orders, random interleavings.
//!
//! `ORDO_SEEDS=n` runs more seeds, `ORDO_SEED=s` runs one again, `ORDO_TRACE=1` prints its events.

use execute::sparkle::{Options, Sparkle};
use execute::{
    Assignment, Budget, Calvin, Engine, NoCc, ParSpec, Progress, QStore, Serial, Ssmr, WorkerId, parspec,
    qstore,
};
use ordo_sim::draw::{Draw, one_seed, seeds};
use ordo_sim::fragments::FragmentSource;
use ordo_sim::judge::Judge;
use ordo_sim::program::Shape;
use ordo_sim::redis::RedisSource;
use ordo_sim::scenario::{Options as ScenarioOptions, ProgramSource, Scenario, Source};
use ordo_sim::threads;
use ordo_sim::workers::{self, Factory, MakeSource, Report};
use std::sync::Arc;
use txn::Position;

fn programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::draw(draw))
}

/// Runs the seeds on an engine's virtual workers, and returns what the runs were like.
fn check(make: Factory<'_>, default_seeds: u64) -> Report {
    check_source(make, &programs, default_seeds)
}

fn check_source(make: Factory<'_>, source: MakeSource<'_>, default_seeds: u64) -> Report {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        // A longer run now and then: windows adapt, slots are reused, garbage piles up.
        let transactions = if seed.is_multiple_of(20) { 400 } else { 60 };
        match workers::run(make, source, seed, transactions) {
            Ok(one) => report.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{report:?}");
    report
}

/// Runs the seeds on real threads.
fn check_threads(make: Factory<'_>, source: MakeSource<'_>, default_seeds: u64) -> Report {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        let threads = 2 + seed as usize % 3;
        match threads::run(make, source, seed, 400, threads) {
            Ok(one) => report.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{report:?}");
    report
}

fn fragments(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(FragmentSource::draw(draw))
}

fn redis(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(RedisSource::draw(draw, 1))
}

fn serial(_workers: usize, _draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(Serial::new())
}

fn sparkle(workers: usize, draw: &mut Draw) -> Arc<dyn Engine> {
    // Small capacities make positions share slots.
    let capacity = draw.pick(&[32, 64, 4096]);
    Arc::new(Sparkle::new(Options {
        capacity,
        window_min: draw.pick(&[0, 0, 16, 512]),
        ..Options::new(workers)
    }))
}

fn calvin(workers: usize, _draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(Calvin::new(workers))
}

fn qstore(workers: usize, draw: &mut Draw) -> Arc<dyn Engine> {
    // Small rings make positions share slots, and few buckets make keys share them.
    Arc::new(QStore::new(qstore::Options {
        capacity: draw.pick(&[32, 64, 4096]),
        ranges: draw.pick(&[1, 2, 8, 64]),
        slice_max: draw.pick(&[1, 3, 128]),
        buckets: draw.pick(&[1, 4, 1024]),
        mode: draw.pick(&qstore::Mode::ALL),
        ..qstore::Options::of(Assignment::alone(workers))
    }))
}

fn parspec(workers: usize, draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(ParSpec::new(parspec::Options {
        // Small capacities make positions share slots.
        capacity: draw.pick(&[32, 64, 4096]),
        max_spec: draw.pick(&[None, None, Some(1), Some(7), Some(64)]),
        ..parspec::Options::of(Assignment::alone(workers))
    }))
}

fn ssmr(_workers: usize, _draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(Ssmr::new())
}

#[test]
fn ssmr_equals_the_specification_on_virtual_workers() {
    let report = check(&ssmr, 200);
    assert!(one_seed() || report.retractions > 0 && report.snapshot_reads > 0);
}

#[test]
fn ssmr_equals_the_specification_on_real_threads() {
    check_threads(&ssmr, &programs, 10);
}

#[test]
fn calvin_equals_the_specification_on_virtual_workers() {
    let report = check(&calvin, 200);
    assert!(one_seed() || report.suspensions > 0 && report.retractions > 0 && report.snapshot_reads > 0);
}

#[test]
fn calvin_equals_the_specification_on_real_threads() {
    check_threads(&calvin, &programs, 15);
}

#[test]
fn parspec_equals_the_specification_on_virtual_workers() {
    let report = check(&parspec, 500);
    assert!(one_seed() || report.restarts > 0 && report.suspensions > 0, "{report:?}");
}

#[test]
fn parspec_equals_the_specification_on_real_threads() {
    check_threads(&parspec, &programs, 30);
}

#[test]
fn qstore_equals_the_specification_on_virtual_workers() {
    let report = check(&qstore, 300);
    let has_happened = [report.suspensions, report.retractions, report.snapshot_reads, report.restarts];
    assert!(one_seed() || has_happened.iter().all(|&times| times > 0), "{report:?}");
}

#[test]
fn qstore_equals_the_specification_on_real_threads() {
    check_threads(&qstore, &programs, 30);
}

#[test]
fn calls_in_fragments_equal_the_specification() {
    let report = check_source(&qstore, &fragments, 500);
    assert!(one_seed() || report.rolled_back > 0 && report.suspensions > 0 && report.retractions > 0);
    assert!(one_seed() || report.split > 0 && report.split < report.replied, "{report:?}");
    let speculative = |workers: usize, draw: &mut Draw| -> Arc<dyn Engine> {
        let (capacity, mode) = (draw.pick(&[32, 4096]), qstore::Mode::Speculative);
        let defaults = qstore::Options::of(Assignment::alone(workers));
        Arc::new(QStore::new(qstore::Options { capacity, mode, ..defaults }))
    };
    // Where no program guesses its keys, only a cascade restarts a transaction.
    let certain = |draw: &mut Draw| -> Box<dyn Source> {
        let shape = Shape { guess_percent: 0, ..Shape::draw(draw) };
        Box::new(FragmentSource::of(shape, draw))
    };
    let report = check_source(&speculative, &certain, 100);
    assert!(one_seed() || report.restarts > 0, "no transaction has read what an abort took back: {report:?}");
    check_threads(&qstore, &fragments, 20);
    check_source(&sparkle, &fragments, 50);
}

#[test]
fn the_serial_engine_is_the_specification() {
    let report = check(&serial, 300);
    assert!(
        one_seed()
            || report.replied > 0
                && report.rolled_back > 0
                && report.retractions > 0
                && report.snapshot_reads > 0
    );
}

#[test]
fn sparkle_equals_the_specification_on_virtual_workers() {
    let report = check(&sparkle, 300);
    // The runs must be interesting: conflicts, parking and retractions all happened.
    assert!(
        one_seed()
            || report.restarts > 0
                && report.suspensions > 0
                && report.retractions > 0
                && report.snapshot_reads > 0
    );
}

#[test]
fn sparkle_equals_the_specification_on_real_threads() {
    let report = check_threads(&sparkle, &programs, 30);
    assert!(one_seed() || report.restarts > 0 && report.retractions > 0 && report.snapshot_reads > 0);
}

#[test]
fn the_serial_engine_equals_the_specification_on_real_threads() {
    check_threads(&serial, &programs, 10);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in seeds(20) {
        let run =
            || workers::run(&sparkle, &programs, seed, 60).unwrap_or_else(|failure| panic!("{failure}"));
        let (first, second) = (run(), run());
        assert_eq!(first, second, "seed {seed}");
        if seed > 1 {
            let other =
                workers::run(&sparkle, &programs, seed - 1, 60).unwrap_or_else(|failure| panic!("{failure}"));
            assert_ne!(first.digest, other.digest, "seeds {seed} and {} give one run", seed - 1);
        }
    }
}

/// One worker makes no conflicts, so even the engine without concurrency control must agree (on all but
/// versions).
#[test]
fn one_worker_without_concurrency_control_equals_the_specification() {
    for seed in seeds(100) {
        let mut draw = Draw::new(seed);
        let shape = Shape { versions: false, ..Shape::draw(&mut draw) };
        let options = ScenarioOptions { start: Position::NONE, ..ScenarioOptions::draw(&mut draw, 60) };
        let mut scenario = Scenario::new(options, Box::new(ProgramSource::new(shape)), draw);
        let (engine, mut judge) = (NoCc::new(1), Judge::default());
        while !scenario.is_complete() {
            if let Some(batch) = scenario.deliver() {
                engine.deliver(batch);
            }
            engine.confirm(scenario.confirm_all());
            let mut committed = Vec::new();
            while engine.step(WorkerId(0), Budget::ONE, &mut committed) == Progress::Worked {}
            for committed in committed {
                judge.judge(&scenario, &committed).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
            }
        }
        assert_eq!(judge.committed(), 60, "seed {seed}");
    }
}

#[test]
fn redis_traffic_on_sparkle_equals_the_specification() {
    let report = check_source(&sparkle, &redis, 20);
    assert!(one_seed() || report.restarts > 0 && report.suspensions > 0 && report.snapshot_reads > 0);
}

#[test]
fn redis_traffic_on_the_other_engines_equals_the_specification() {
    check_source(&calvin, &redis, 20);
    let report = check_source(&qstore, &redis, 40);
    assert!(one_seed() || report.split > 500 && report.replied > report.split + 500, "{report:?}");
    check_source(&parspec, &redis, 40);
    check_source(&ssmr, &redis, 20);
    check_source(&serial, &redis, 20);
}

#[test]
fn redis_traffic_on_real_threads_equals_the_specification() {
    check_threads(&sparkle, &redis, 5);
    let report = check_threads(&qstore, &redis, 10);
    assert!(one_seed() || report.split > 500, "{report:?}");
}
