//! Searches the confirmation protocol whole: every schedule of every scenario. Prints a line for each.
//!
//! `cargo run --release --package ordo-execute --example confirmation [part of a name] [states at most]`

#[path = "../tests/confirmation/scenarios.rs"]
mod scenarios;
#[path = "../tests/confirmation/world.rs"]
mod world;

use scenarios::{ALL, FAILURES, scenario};
use stateright::{Checker, HasDiscoveries, Model};
use std::process::ExitCode;
use world::GOAL;

#[allow(
    clippy::disallowed_macros,
    clippy::print_stdout,
    reason = "a program that prints what it found"
)]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let most: Option<usize> = arguments.next().and_then(|text| text.parse().ok());
    let mut code = ExitCode::SUCCESS;
    for name in ALL.into_iter().filter(|name| name.contains(&wanted)) {
        for in_order in [true, false] {
            for failure in FAILURES {
                let mut scenario = scenario(name);
                scenario.in_order = in_order;
                scenario.failure = failure;
                let checker = scenario.checker().threads(2);
                let checker = checker.finish_when(HasDiscoveries::AnyFailures);
                let checker = match most {
                    Some(most) => checker.target_state_count(most),
                    None => checker,
                };
                let checker = checker.spawn_dfs().join();
                let order = if in_order { "in order" } else { "any order" };
                let states = checker.unique_state_count();
                let is_whole = most.is_none_or(|most| checker.state_count() < most);
                let whole = if is_whole { "complete" } else { "NOT COMPLETE" };
                println!("{name}; {order}; {failure:?}: {states} states, {whole}");
                for (property, path) in checker.discoveries() {
                    if property != GOAL {
                        println!("  VIOLATED: {property}, after {:?}", path.into_actions());
                        code = ExitCode::FAILURE;
                    }
                }
            }
        }
    }
    code
}
