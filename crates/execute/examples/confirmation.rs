//! Searches the confirmation protocol whole: every schedule of every scenario. Prints a line for each, and
//! every minute how far the one at work has come.
//!
//! `cargo run --release --package ordo-execute --example confirmation [part of the line] [states at most]`:
//! all searches, or those whose line has this, such as `"pair; any order; Crash"`.

#[path = "../tests/confirmation/scenarios.rs"]
mod scenarios;
#[path = "../tests/confirmation/world.rs"]
mod world;

use scenarios::{ALL, FAILURES, scenario};
use stateright::{Checker, HasDiscoveries, Model};
use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;
use world::GOAL;

#[allow(clippy::disallowed_macros, clippy::print_stdout, reason = "a program that prints what it found")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next().unwrap_or_default();
    let most: Option<usize> = arguments.next().and_then(|text| text.parse().ok());
    let mut code = ExitCode::SUCCESS;
    for name in ALL {
        for in_order in [true, false] {
            for failure in FAILURES {
                let order = if in_order { "in order" } else { "any order" };
                let line = format!("{name}; {order}; {failure:?}");
                if !line.contains(&wanted) {
                    continue;
                }
                let mut scenario = scenario(name);
                scenario.in_order = in_order;
                scenario.failure = failure;
                let checker = scenario.checker().threads(2);
                let checker = checker.finish_when(HasDiscoveries::AnyFailures);
                let checker = match most {
                    Some(most) => checker.target_state_count(most),
                    None => checker,
                };
                let checker = join(&line, checker.spawn_dfs());
                let states = checker.unique_state_count();
                let is_whole = most.is_none_or(|most| checker.state_count() < most);
                let whole = if is_whole { "complete" } else { "NOT COMPLETE" };
                println!("{line}: {states} states, {whole}");
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

/// Waits until a search has ended, and tells its progress meanwhile.
#[allow(clippy::disallowed_macros, clippy::print_stderr, reason = "a program that prints how far it is")]
fn join<M: Model, C: Checker<M> + Sync>(line: &str, mut checker: C) -> C {
    let workers = checker.handles();
    let (ended, end) = channel::<()>();
    thread::scope(|scope| {
        let checker = &checker;
        scope.spawn(move || {
            while end.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{line}: {} states so far", checker.unique_state_count());
            }
        });
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        drop(ended);
    });
    checker
}
