//! Transactions over several partitions equal the serial execution of the one order.

use execute::sparkle::{Options, Sparkle, Variant};
use ordo_sim::draw::{one_seed, seeds};
use ordo_sim::siblings::{Factory, Report, run};
use std::panic::catch_unwind;
use std::sync::Arc;
use txn::mutant::{Mutant, with};

fn one(variant: Variant, seed: u64) -> Result<Report, String> {
    let make: Factory<'_> = &|partition, workers, draw| {
        // Small capacities make positions share slots.
        let capacity = draw.pick(&[32, 64, 4096]);
        Arc::new(Sparkle::new(Options {
            capacity,
            partition,
            variant,
            ..Options::new(workers)
        }))
    };
    run(make, seed, 12)
}

fn check(variant: Variant, default_seeds: u64) {
    let mut report = Report::default();
    for seed in seeds(default_seeds) {
        match one(variant, seed) {
            Ok(one) => report.add(&one),
            Err(wrong) => panic!("{variant:?}: {wrong}"),
        }
    }
    println!("{report:?}");
    // The runs must be interesting.
    assert!(
        one_seed()
            || report.shared > report.committed / 2
                && report.rolled_back > 0
                && report.restarts > 0
                && report.retractions > 0
    );
}

#[test]
fn speculative_confirmation_is_the_specification() {
    check(Variant::SpeculativeConfirmation, 300);
}

#[test]
fn conservative_confirmation_is_the_specification() {
    check(Variant::ConservativeConfirmation, 150);
}

#[test]
fn conservative_execution_is_the_specification() {
    check(Variant::Conservative, 150);
}

/// The defects of the protocol's book are found by whole engines too (one that takes a crash at a certain moment is left to
/// the model in `execute`).
#[test]
fn defects_of_the_protocol_are_found() {
    for mutant in [
        Mutant::BelieveAnyNumber,
        Mutant::BelieveAnyExecution,
        Mutant::BelieveAnyValue,
        Mutant::KeepOldValues,
        Mutant::DropLaterNumbers,
    ] {
        let found = (1..2_000).find(|&seed| {
            let one = catch_unwind(|| with(mutant, || one(Variant::default(), seed)));
            one.is_err() || one.is_ok_and(|one| one.is_err())
        });
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "nothing notices {mutant:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in seeds(10) {
        let variant = Variant::SpeculativeConfirmation;
        let (first, second) = (one(variant, seed), one(variant, seed));
        assert!(first.is_ok(), "{first:?}");
        assert_eq!(first, second, "seed {seed}");
    }
}
