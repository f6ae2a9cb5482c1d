//! Whole systems of sites, judged by what their clients saw; and each deliberate defect is found.

mod judge;
mod world;

use judge::judge;
use std::panic::{AssertUnwindSafe, catch_unwind};
use txn::mutant::{Mutant, with};
use world::World;

/// Each defect is found within so many seeds.
const SEEDS_PER_MUTANT: u64 = 1_000;

/// What is wrong with a seed's run. A panic is a finding like any other.
fn finding(seed: u64) -> Option<String> {
    let ran = catch_unwind(AssertUnwindSafe(|| World::run(seed).and_then(|world| judge(&world))));
    ran.unwrap_or_else(|_| Err("a panic".into())).err()
}

#[test]
fn every_seed_keeps_the_promises() {
    let seeds = std::env::var("ORDO_PCSI_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    for seed in 0..seeds {
        assert_eq!(finding(seed), None, "seed {seed}");
    }
}

#[test]
fn transactions_commit_in_spite_of_the_faults() {
    let acknowledged = |seed| {
        let world = World::run(seed).expect("it settles");
        world.attempts.iter().filter(|attempt| attempt.is_acknowledged && attempt.writes).count()
    };
    let all: usize = (0..20).map(acknowledged).sum();
    assert!(all >= 200, "of 20 seeds, only {all} transactions with writes were acknowledged");
}

#[test]
fn every_defect_is_found() {
    for mutant in Mutant::OF_PCSI {
        let found = with(mutant, || (0..SEEDS_PER_MUTANT).find(|&seed| finding(seed).is_some()));
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} passes {SEEDS_PER_MUTANT} seeds");
    }
}
