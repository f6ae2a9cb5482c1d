//! The `ordo` binary: `ordo serve`, `ordo cluster`, `ordo admin`, `ordo backup`, `ordo restore`,
//! `ordo export`, `ordo replay`, `ordo import`, `ordo doctor`, `ordo bench`, `ordo sim`, `ordo reproduce`,
//! `ordo completions` and `ordo man`.

#![allow(clippy::disallowed_methods, reason = "this crate measures: `ordo sim calibrate` and progress")]

mod admin;
mod backup;
mod bench;
mod cluster;
mod command;
mod doctor;
mod export;
mod import;
mod nodes;
mod replay;
mod reproduce;
mod serve;
mod simulate;

use clap::FromArgMatches;
use clap::error::{ContextKind, ContextValue};
use server::memory::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// Leaves out a suggestion that has only letters in common with what was meant: `bench` for `nosuch`.
fn without_far_fetched_advice(mut error: clap::Error) -> clap::Error {
    let first = |value: Option<&ContextValue>| match value {
        Some(ContextValue::String(word)) => word.chars().next(),
        Some(ContextValue::Strings(words)) => words.first().and_then(|word| word.chars().next()),
        _ => None,
    };
    let meant = first(error.get(ContextKind::InvalidSubcommand));
    let suggested = first(error.get(ContextKind::SuggestedSubcommand));
    if meant != suggested {
        error.remove(ContextKind::SuggestedSubcommand);
    }
    error
}

fn main() -> ExitCode {
    let matches =
        command::command().try_get_matches().unwrap_or_else(|error| without_far_fetched_advice(error).exit());
    let result = match matches.subcommand() {
        Some(("serve", matches)) => {
            serve::run(matches.get_many::<String>("words").unwrap_or_default().cloned().collect())
        }
        Some(("cluster", matches)) => {
            cluster::Cluster::from_arg_matches(matches).map_err(|error| error.exit()).and_then(cluster::run)
        }
        Some(("admin", matches)) => {
            let admin = admin::Admin::from_arg_matches(matches).map_err(|error| error.exit());
            match admin.and_then(|admin| admin::run(&admin)) {
                Ok(code) => return code,
                Err(error) => Err(error),
            }
        }
        Some(("backup", matches)) => backup::Backup::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(|backup| backup::run(&backup)),
        Some(("restore", matches)) => backup::Restore::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(|restore| backup::run_restore(&restore)),
        Some(("doctor", matches)) => {
            match doctor::run(matches.get_many::<String>("words").unwrap_or_default().cloned().collect()) {
                Ok(code) => return code,
                Err(error) => Err(error),
            }
        }
        Some(("export", matches)) => {
            let export = export::Export::from_arg_matches(matches).map_err(|error| error.exit());
            match export.and_then(export::run) {
                Ok(code) => return code,
                Err(error) => Err(error),
            }
        }
        Some(("replay", matches)) => replay::Replay::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(|command| replay::run(&command)),
        Some(("completions", matches)) => command::Completions::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(|completions| completions.print()),
        Some(("man", matches)) => {
            command::Man::from_arg_matches(matches).map_err(|error| error.exit()).and_then(|man| man.write())
        }
        Some(("import", matches)) => {
            import::Import::from_arg_matches(matches).map_err(|error| error.exit()).and_then(import::run)
        }
        Some(("bench", matches)) => {
            bench::Bench::from_arg_matches(matches).map_err(|error| error.exit()).and_then(bench::run)
        }
        Some(("reproduce", matches)) => reproduce::Reproduce::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(reproduce::run),
        Some(("sim", matches)) => simulate::Sim::from_arg_matches(matches)
            .map_err(|error| error.exit())
            .and_then(|sim| simulate::run_command(&sim)),
        _ => Ok(()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ordo: {error:#}");
            let start = error.downcast_ref::<server::server::StartError>();
            start.map_or(ExitCode::FAILURE, |error| ExitCode::from(error.exit_code()))
        }
    }
}
