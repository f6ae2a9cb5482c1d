//! Transactions over several partitions equal the serial execution of the one order.
//!
//! `ORDO_SEEDS=n` runs more seeds, `ORDO_SEED=s` runs one again, `ORDO_TRACE=1` prints its events.

use execute::sparkle::{Options, Sparkle, Variant};
use execute::{Assignment, Engine, EngineKind, QStore, qstore};
use ordo_sim::draw::{Draw, one_seed, seeds};
use ordo_sim::siblings::{Place, Report, World, run, run_on_threads};
use std::panic::catch_unwind;
use std::sync::Arc;
use txn::hash::mix;
use txn::mutant::{Mutant, with};

/// Which engine all partitions of a world have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sparkle(Variant),
    Other(EngineKind),
}

const CALVIN: Kind = Kind::Other(EngineKind::Calvin);
const QSTORE: Kind = Kind::Other(EngineKind::QStore);
const SSMR: Kind = Kind::Other(EngineKind::Ssmr);

/// Which way a seed is run.
type Way = fn(World<'_>, u64, usize) -> Result<Report, String>;

fn one(kind: Kind, seed: u64) -> Result<Report, String> {
    one_way(run, kind, seed)
}

fn one_way(way: Way, kind: Kind, seed: u64) -> Result<Report, String> {
    let make = |place: Place, draw: &mut Draw| -> Arc<dyn Engine> {
        match kind {
            Kind::Sparkle(variant) => Arc::new(Sparkle::new(Options {
                // Small capacities make positions share slots.
                capacity: draw.pick(&[32, 64, 4096]),
                window_min: draw.pick(&[0, 16, 512]),
                partition: place.partition,
                variant,
                // In no order.
                era: mix(place.boot) << 16,
                ..Options::new(place.workers)
            })),
            Kind::Other(kind) => {
                let Place { partition, workers, .. } = place;
                let made_for = Assignment { partition, ..Assignment::alone(workers) };
                match kind {
                    EngineKind::QStore => {
                        let mode = draw.pick(&qstore::Mode::ALL);
                        Arc::new(QStore::new(qstore::Options { mode, ..qstore::Options::of(made_for) }))
                    }
                    _ => kind.make(made_for),
                }
            }
        }
    };
    let names_keys = match kind {
        Kind::Sparkle(_) => false,
        Kind::Other(kind) => kind.needs().declared_keys,
    };
    let world = World { make: &make, names_keys, crashes: true };
    way(world, seed, 12)
}

fn check(kind: Kind, default_seeds: u64) {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        match one(kind, seed) {
            Ok(one) => report.add(&one),
            Err(wrong) => panic!("{kind:?}: {wrong}"),
        }
    }
    println!("{report:?}");
    // The runs must be interesting.
    assert!(
        one_seed()
            || report.shared > report.committed / 2
                && report.rolled_back > 0
                && report.undeclared > 0
                && report.retractions > 0
                && report.crashes > 0
    );
    assert!(one_seed() || (report.split > report.shared / 20) == (kind == QSTORE));
    let restarts = matches!(kind, Kind::Sparkle(_));
    assert!(one_seed() || (report.restarts > 0) == restarts);
}

#[test]
fn speculative_confirmation_is_the_specification() {
    check(Kind::Sparkle(Variant::SpeculativeConfirmation), 150);
}

#[test]
fn conservative_confirmation_is_the_specification() {
    check(Kind::Sparkle(Variant::ConservativeConfirmation), 150);
}

#[test]
fn conservative_execution_is_the_specification() {
    check(Kind::Sparkle(Variant::Conservative), 150);
}

#[test]
fn calvin_over_partitions_is_the_specification() {
    check(CALVIN, 150);
}

#[test]
fn qstore_over_partitions_is_the_specification() {
    check(QSTORE, 150);
}

#[test]
fn ssmr_over_partitions_is_the_specification() {
    check(SSMR, 150);
}

#[test]
fn real_threads_give_the_specification_too() {
    for kind in [Kind::Sparkle(Variant::default()), CALVIN, QSTORE, SSMR] {
        for seed in seeds(8) {
            if let Err(wrong) = one_way(run_on_threads, kind, seed) {
                panic!("{kind:?}: {wrong}");
            }
        }
    }
}

fn find(mutant: Mutant, kind: Kind) {
    let found = (1..2_000).find(|&seed| {
        let one = catch_unwind(|| with(mutant, || one(kind, seed)));
        one.is_err() || one.is_ok_and(|one| one.is_err())
    });
    println!("{mutant:?} of {kind:?}: {found:?}");
    assert!(found.is_some(), "nothing notices {mutant:?} of {kind:?}");
}

/// The defects of the protocol are found in whole engines too (those that take a crash or a cascade at a
/// certain moment are left to the model in `execute`).
#[test]
fn defects_of_the_protocol_are_found() {
    for mutant in [
        Mutant::BelieveAnyNumber,
        Mutant::BelieveAnyExecution,
        Mutant::BelieveAnyValue,
        Mutant::KeepOldValues,
        Mutant::DropLaterNumbers,
        Mutant::ForgetRaised,
        Mutant::AnchorOnlyFirst,
        Mutant::CommitUnsettled,
        Mutant::RaiseOnStartOver,
        Mutant::VoidDependencies,
    ] {
        find(mutant, Kind::Sparkle(Variant::default()));
    }
}

#[test]
fn defects_of_engines_that_wait_are_found() {
    for mutant in [
        Mutant::RunUnconfirmed,
        Mutant::LoseSiblingWake,
        Mutant::DropEarlyMessages,
        Mutant::TellOpenGroupsOnly,
    ] {
        find(mutant, SSMR);
        find(mutant, CALVIN);
        find(mutant, QSTORE);
    }
    find(Mutant::AnswerWithoutSiblings, QSTORE);
    for mutant in [
        Mutant::TellBeforeLocked,
        Mutant::ReleaseLocksEarly,
        Mutant::ShareWriteLocks,
        Mutant::JudgeOwnKeysOnly,
    ] {
        find(mutant, CALVIN);
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for kind in [Kind::Sparkle(Variant::default()), CALVIN, QSTORE, SSMR] {
        for seed in seeds(10) {
            let (first, second) = (one(kind, seed), one(kind, seed));
            assert!(first.is_ok(), "{first:?}");
            assert_eq!(first, second, "seed {seed}");
        }
    }
}
