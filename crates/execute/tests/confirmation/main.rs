//! An exhaustive search of the confirmation protocol ([`ordo_execute::siblings`]): every schedule, every
//! order of delivery, a crash at any point. What is too long for a test is searched by
//! `cargo run --release --package ordo-execute --example confirmation`.

mod scenarios;
mod world;

use scenarios::{FAILURES, scenario};
use stateright::{Checker, HasDiscoveries, Model, UniformChooser};
use txn::mutant::Mutant;
use world::{Failure, GOAL, Scenario};

/// Those that are searched whole in a moment.
const SHORT: [&str; 5] =
    ["pair", "one, then dependent", "dependent both ways", "one, then to and fro", "round"];

/// The properties that a search found violated.
fn violated(checker: &impl Checker<Scenario>) -> Vec<&'static str> {
    let found = checker.discoveries().into_keys();
    found.filter(|name| *name != GOAL).collect()
}

/// Looks at every state; how many there are.
fn search(scenario: Scenario, what: &str) -> usize {
    let stop = HasDiscoveries::AnyFailures;
    let checker = scenario.checker().threads(2).finish_when(stop).spawn_dfs().join();
    let violated = violated(&checker);
    assert!(violated.is_empty(), "{what}: {violated:?}");
    let discoveries = checker.discoveries();
    assert!(discoveries.contains_key(GOAL), "{what}: nothing came to its end");
    checker.unique_state_count()
}

/// Takes random schedules until one violates a property, or so many states were seen.
fn wander(scenario: Scenario, states: usize, seed: u64) -> Vec<&'static str> {
    let checker = scenario.checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.target_state_count(states);
    violated(&checker.spawn_simulation(seed, UniformChooser).join())
}

#[test]
fn every_schedule_of_short_scenarios_is_right() {
    let mut total = 0;
    for name in SHORT {
        for failure in FAILURES {
            // A crash multiplies the states by some fifty.
            let is_long = matches!(failure, Failure::Crash(_)) && name != "one, then dependent";
            for speculative in [true, false] {
                let mut scenario = scenario(name);
                scenario.speculative = speculative;
                scenario.in_order = true;
                scenario.failure = failure;
                if !is_long {
                    total += search(scenario, &format!("{name}, {failure:?}, {speculative}"));
                }
            }
        }
    }
    assert!(total > 300_000, "only {total} states were looked at");
}

#[test]
fn every_order_of_delivery_is_right() {
    for name in ["pair", "one, then dependent", "dependent both ways"] {
        for failure in [Failure::Nothing, Failure::Loss(0)] {
            let mut scenario = scenario(name);
            scenario.failure = failure;
            search(scenario, &format!("{name}, {failure:?}, any order"));
        }
    }
}

#[test]
fn random_schedules_of_long_scenarios_are_right() {
    for (seed, name) in scenarios::ALL.into_iter().enumerate() {
        for failure in FAILURES {
            let mut scenario = scenario(name);
            scenario.failure = failure;
            let violated = wander(scenario, 20_000, seed as u64);
            assert!(violated.is_empty(), "{name}, {failure:?}, seed {seed}: {violated:?}");
        }
    }
}

#[test]
fn every_defect_is_found() {
    for mutant in Mutant::OF_SIBLINGS {
        let (name, failure) = match mutant {
            Mutant::ForgetCascade => ("one, then to and fro", Failure::Nothing),
            Mutant::AnchorOnlyFirst => ("one, then pair", Failure::Nothing),
            Mutant::BelieveAnyExecution => ("one, then pair", Failure::Nothing),
            Mutant::MixEras => ("one, then three in a row", Failure::Crash(0)),
            _ => ("pair", Failure::Nothing),
        };
        let mut scenario = scenario(name);
        scenario.in_order = true;
        scenario.failure = failure;
        scenario.mutant = Some(mutant);
        let violated = wander(scenario, 3_000_000, 7);
        assert!(!violated.is_empty(), "nothing notices {mutant:?} in {name:?}");
    }
}
