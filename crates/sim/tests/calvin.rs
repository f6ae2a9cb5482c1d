//! Calvin equals the serial specification, with declared keys and without.
//!
//! `ORDO_SEEDS=n` runs more seeds, `ORDO_SEED=s` runs one again, `ORDO_TRACE=1` prints its events.

use execute::{Calvin, Engine};
use ordo_sim::draw::{Draw, seeds};
use ordo_sim::program::Shape;
use ordo_sim::scenario::{ProgramSource, Source};
use ordo_sim::threads;
use ordo_sim::workers::{self, Report};
use std::sync::Arc;

fn calvin(workers: usize, _draw: &mut Draw) -> Arc<dyn Engine> {
    Arc::new(Calvin::new(workers))
}

fn any_programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::draw(draw))
}

/// Nearly all name their keys, so that they run beside each other.
fn declared_programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::new(Shape {
        declared_percent: 95,
        ..Shape::draw(draw)
    }))
}

#[test]
fn calvin_equals_the_specification_on_virtual_workers() {
    let mut report = Report::default();
    for seed in seeds(300) {
        for programs in [any_programs, declared_programs] {
            let run = workers::run(&calvin, &programs, seed, 60)
                .unwrap_or_else(|failure| panic!("{failure}"));
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
