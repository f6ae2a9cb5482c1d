//! Every engine equals the serial specification: random programs, random orders, random interleavings.

use execute::{Engine, Serial};
use ordo_sim::draw::{Draw, seeds};
use ordo_sim::scenario::{ProgramSource, Source};
use ordo_sim::workers::{self, Factory, Report};
use std::sync::Arc;

fn programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::draw(draw))
}

/// Runs the seeds on an engine's virtual workers, and returns what the runs were like.
fn check(make: Factory<'_>, default_seeds: u64) -> Report {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        match workers::run(make, &programs, seed, 60) {
            Ok(one) => report.add(&one),
            Err(failure) => panic!("{failure}"),
        }
    }
    report
}

fn serial(_workers: usize) -> Arc<dyn Engine> {
    Arc::new(Serial::new())
}

#[test]
fn the_serial_engine_is_the_specification() {
    let report = check(&serial, 300);
    println!("{report:?}");
}
