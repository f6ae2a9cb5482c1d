//! The `ordo` binary: `ordo serve`, `ordo cluster`, `ordo admin`, `ordo backup`, `ordo restore`,
//! `ordo export`, `ordo import`, `ordo bench`, `ordo sim` and `ordo reproduce`.

#![allow(clippy::disallowed_methods, reason = "this crate measures: `ordo sim calibrate` and progress")]

mod admin;
mod backup;
mod bench;
mod cluster;
mod export;
mod import;
mod nodes;
mod reproduce;
mod serve;
mod simulate;

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Args, Command, FromArgMatches, Subcommand};
use server::memory::Counting;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: Counting<mimalloc::MiMalloc> = Counting(mimalloc::MiMalloc);

/// Takes every word after the subcommand as it is: the settings' own table says what they mean.
fn words() -> Arg {
    Arg::new("words").num_args(0..).trailing_var_arg(true).allow_hyphen_values(true).action(ArgAction::Append)
}

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
    let command = Command::new("ordo")
        .version(env!("CARGO_PKG_VERSION"))
        .about("A transactional in-memory store that speaks the Redis protocol")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("serve")
                .about("Serves Redis clients (--help lists all settings)")
                .disable_help_flag(true)
                .arg(words()),
        )
        // What is said of them here comes after their arguments, which bring a text of their own.
        .subcommand(
            cluster::Cluster::augment_subcommands(
                Command::new("cluster").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Runs a cluster on this machine, to try out"),
        )
        .subcommand(admin::command())
        .subcommand(
            backup::Backup::augment_args(Command::new("backup").arg_required_else_help(true))
                .about("Copies a running server or cluster, and then its order, to a directory or to S3")
                .long_about(None),
        )
        .subcommand(
            backup::Restore::augment_args(Command::new("restore").arg_required_else_help(true))
                .about("Makes a new database of a backup, as it was at any moment")
                .long_about(None),
        )
        .subcommand(
            export::Export::augment_args(Command::new("export"))
                .about("Tells what transactions change, in their order, as lines of JSON")
                .long_about(None),
        )
        .subcommand(
            import::Import::augment_args(Command::new("import").arg_required_else_help(true))
                .about(
                    "Imports a snapshot of a Redis or a Valkey, or follows a running one until the cut-over",
                )
                .long_about(None),
        )
        .subcommand(
            bench::Bench::augment_subcommands(
                Command::new("bench").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Measures engines, and servers that speak the Redis protocol"),
        )
        .subcommand(
            reproduce::Reproduce::augment_subcommands(
                Command::new("reproduce").subcommand_required(true).arg_required_else_help(true),
            )
            .about("Makes the figures of papers again, and a page of them"),
        )
        .subcommand(
            simulate::Sim::augment_args(Command::new("sim").arg_required_else_help(true))
                .about("Runs whole nodes, clients, a network and faults in virtual time, and judges them")
                .long_about(None),
        );
    let matches = command.try_get_matches().unwrap_or_else(|error| without_far_fetched_advice(error).exit());
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
        Some(("export", matches)) => {
            let export = export::Export::from_arg_matches(matches).map_err(|error| error.exit());
            match export.and_then(export::run) {
                Ok(code) => return code,
                Err(error) => Err(error),
            }
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
