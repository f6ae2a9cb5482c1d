//! Searches the confirmation protocol whole: every schedule of every scenario. Prints a line for each.
//!
//! `cargo run --release --package ordo-execute --example confirmation [part of a name] [seconds]`

#[path = "../tests/confirmation/scenarios.rs"]
mod scenarios;
#[path = "../tests/confirmation/world.rs"]
mod world;

use scenarios::{ALL, FAILURES, scenario};
use stateright::{Checker, HasDiscoveries, Model};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use world::GOAL;

#[allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program that measures and prints"
)]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let mut code = ExitCode::SUCCESS;
    for name in ALL.into_iter().filter(|name| name.contains(&wanted)) {
        for in_order in [true, false] {
            for failure in FAILURES {
                let mut scenario = scenario(name);
                scenario.in_order = in_order;
                scenario.failure = failure;
                let start = Instant::now();
                let checker = scenario.checker().threads(2);
                let checker = checker.finish_when(HasDiscoveries::AnyFailures);
                let checker = match seconds {
                    Some(seconds) => checker.timeout(Duration::from_secs(seconds)),
                    None => checker,
                };
                let checker = checker.spawn_dfs().join();
                let order = if in_order { "in order" } else { "any order" };
                let states = checker.unique_state_count();
                let took = start.elapsed().as_secs_f64();
                let is_whole = seconds.is_none_or(|seconds| took < seconds as f64);
                let whole = if is_whole { "complete" } else { "NOT COMPLETE" };
                println!("{name}; {order}; {failure:?}: {states} states, {whole}, {took:.1} s");
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
