//! The entries.

use super::command::{Command, Flags, Group, KeyPlaces, KeySpec, Run};
use crate::commands::strings;

macro_rules! data {
    ($function:path) => {
        Run::Data(|mut tx, args| Box::pin(async move { $function(&mut tx, &args).await }))
    };
}

const fn keys(first: usize, last: isize, step: usize, flags: &'static [&'static str]) -> KeySpec {
    KeySpec { places: KeyPlaces::Range { first, last, step }, flags }
}

/// All commands.
pub const COMMANDS: &[Command] = &[Command {
    name: "get",
    arity: 2,
    run: data!(strings::get),
    flags: Flags::READONLY.with(Flags::FAST),
    group: Group::String,
    categories: &[],
    keys: &[keys(1, 1, 1, &["RO", "access"])],
    since: "1.0.0",
    complexity: "O(1)",
    summary: "Replies the string at a key.",
}];
