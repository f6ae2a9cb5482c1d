//! Commands whose replies depend on nothing but their arguments.

use super::options;
use crate::errors;
use txn::{Blob, Reply};

/// PING [message]
pub fn ping(args: &[Blob]) -> Reply {
    match args {
        [] => Reply::Status("PONG".into()),
        [message] => Reply::Bulk(message.clone()),
        _ => errors::wrong_arity_of("ping"),
    }
}

/// ECHO message
pub fn echo(args: &[Blob]) -> Reply {
    Reply::Bulk(args[0].clone())
}

/// SELECT index: there is one database, number 0.
pub fn select(args: &[Blob]) -> Reply {
    match options::integer(&args[0]) {
        Ok(0) => Reply::OK,
        Ok(_) => errors::DB_OUT_OF_RANGE,
        Err(error) => error,
    }
}

/// Lines of help, as HELP subcommands reply them.
pub fn help(container: &str, lines: &[&str]) -> Reply {
    let first = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = std::iter::once(first).chain(lines.iter().map(|line| (*line).to_owned()));
    let tail = ["HELP", "    Prints this help."].map(str::to_owned);
    Reply::Array(
        lines
            .chain(tail)
            .map(|line| Reply::Status(line.into()))
            .collect(),
    )
}
