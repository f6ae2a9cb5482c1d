//! The tests of the tests: each deliberate defect of an engine must be caught, within a bounded number of
//! seeds.

use execute::sparkle::{Mutant, Options, Sparkle};
use execute::{Assignment, Engine, ParSpec, QStore, parspec, qstore};
use ordo_sim::draw::Draw;
use ordo_sim::fragments::FragmentSource;
use ordo_sim::program::{Kind, Shape};
use ordo_sim::scenario::{ProgramSource, Source};
use ordo_sim::workers;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use txn::mutant;

/// The oracle has this many runs to find a defect.
const SEEDS_MAX: u64 = 3_000;

fn fragments(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(FragmentSource::draw(draw))
}

fn programs(draw: &mut Draw) -> Box<dyn Source> {
    Box::new(ProgramSource::draw(draw))
}

/// Programs that clear, lock and abort more than they do anything else, over one key.
fn clears(draw: &mut Draw) -> Box<dyn Source> {
    let mut shape = Shape::draw(draw);
    (shape.hot_keys, shape.hot_percent, shape.operations_max) = (1, 100, 4);
    (shape.read_only_percent, shape.big_permille, shape.declared_percent) = (0, 0, 0);
    for (weight, kind) in shape.weights.iter_mut().zip(Kind::ALL) {
        *weight = match kind {
            Kind::Clear | Kind::Write => 20,
            Kind::ReadForUpdate | Kind::AbortIf => 30,
            _ => 1,
        };
    }
    Box::new(ProgramSource::new(shape))
}

/// The first seed that finds a defect of Sparkle, and what it found.
fn find(mutant: Mutant) -> Option<(u64, String)> {
    let make = |workers: usize, draw: &mut Draw| -> Arc<dyn Engine> {
        let capacity = draw.pick(&[32, 64, 4096]);
        Arc::new(Sparkle::new(Options {
            capacity,
            window_min: draw.pick(&[0, 0, 16, 512]),
            mutant: Some(mutant),
            ..Options::new(workers)
        }))
    };
    let source = if mutant == Mutant::LockInSilence { clears } else { programs };
    find_in(&make, &source, 60)
}

fn find_in(
    make: workers::Factory<'_>,
    source: workers::MakeSource<'_>,
    transactions: u64,
) -> Option<(u64, String)> {
    (1..=SEEDS_MAX).find_map(|seed| {
        match catch_unwind(AssertUnwindSafe(|| workers::run(make, source, seed, transactions))) {
            Ok(Ok(_)) => None,
            Ok(Err(failure)) => Some((seed, failure.fault)),
            // An engine's own assertion is as good a find.
            Err(panic) => Some((seed, execute::snapshot::panic_text(&*panic).to_owned())),
        }
    })
}

#[test]
fn every_mutant_of_sparkle_is_caught() {
    let mut survivors = Vec::new();
    for mutant in Mutant::ALL {
        match find(mutant) {
            Some((seed, fault)) => {
                println!("{mutant:?}: seed {seed}: {:.150}", fault.replace('\n', " "))
            }
            None => survivors.push(mutant),
        }
    }
    assert!(survivors.is_empty(), "these defects were not found in {SEEDS_MAX} seeds: {survivors:?}");
}

/// Each of these is found in what an engine does.
fn find_each<const N: usize>(
    mutants: [mutant::Mutant; N],
    make: workers::Factory<'_>,
    source: workers::MakeSource<'_>,
) {
    for mutant in mutants {
        // A readers-array is outgrown by more than it has room for only.
        let transactions = if mutant == mutant::Mutant::OutgrowReaders { 400 } else { 60 };
        let found = mutant::with(mutant, || find_in(make, source, transactions));
        let Some((seed, fault)) = found else {
            panic!("{mutant:?} was not found in {SEEDS_MAX} seeds");
        };
        println!("{mutant:?}: seed {seed}: {:.150}", fault.replace('\n', " "));
    }
}

#[test]
fn the_mutants_of_parspec_are_caught() {
    let make = |workers: usize, draw: &mut Draw| -> Arc<dyn Engine> {
        let capacity = draw.pick(&[32, 64, 4096]);
        let max_spec = draw.pick(&[None, Some(8), Some(64)]);
        let defaults = parspec::Options::of(Assignment::alone(workers));
        Arc::new(ParSpec::new(parspec::Options { capacity, max_spec, ..defaults }))
    };
    let mutants = [
        mutant::Mutant::ForgetReader,
        mutant::Mutant::PassWaitFlag,
        mutant::Mutant::OutgrowReaders,
        mutant::Mutant::XCommitDoomed,
        mutant::Mutant::ClearInSilence,
        mutant::Mutant::LoseXCommitWake,
        mutant::Mutant::CommitUnconfirmed,
        mutant::Mutant::KeepRetracted,
    ];
    find_each(mutants, &make, &programs);
}

#[test]
fn the_mutants_of_qstore_are_caught() {
    let make = |mode: qstore::Mode| {
        move |workers: usize, draw: &mut Draw| -> Arc<dyn Engine> {
            let defaults = qstore::Options::of(Assignment::alone(workers));
            let capacity = draw.pick(&[32, 64, 4096]);
            Arc::new(QStore::new(qstore::Options { capacity, mode, ..defaults }))
        }
    };
    let (speculative, conservative) = (make(qstore::Mode::Speculative), make(qstore::Mode::Conservative));
    let mutants = [
        mutant::Mutant::IgnorePriority,
        mutant::Mutant::ForgetWriter,
        mutant::Mutant::CommitUnconfirmed,
        mutant::Mutant::KeepRetracted,
        mutant::Mutant::PassBarrier,
        mutant::Mutant::KeepStrayed,
    ];
    find_each(mutants, &speculative, &programs);
    find_each(mutants, &conservative, &programs);
    let mutants = [mutant::Mutant::LoseFragmentValue, mutant::Mutant::AnyAbortDecides];
    find_each(mutants, &speculative, &fragments);
    find_each(mutants, &conservative, &fragments);
    find_each([mutant::Mutant::WriteUndecided, mutant::Mutant::PassKeptWrite], &conservative, &fragments);
    find_each([mutant::Mutant::PassKeptWrite], &speculative, &fragments);
    let mutants = [mutant::Mutant::AbortWithoutCascade, mutant::Mutant::AnswerUnsettled];
    find_each(mutants, &speculative, &fragments);
}
