//! What clients are told of commands: COMMAND DOCS, and the replies of the HELP subcommands.
//!
//! `commands.txt` has an entry for each command, in the order of their names:
//!
//! ```text
//! NAME SINCE [COMPLEXITY] SUMMARY
//!   WORDS, as `syntax` reads them; no such line if the command takes none
//! ```
//!
//! `help.txt` has what each container's HELP replies, behind the container's name.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use txn::Reply;

const COMMANDS: &str = include_str!("commands.txt");
const HELP: &str = include_str!("help.txt");

/// What is documented of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Documentation {
    /// Redis's version that introduced it.
    pub since: &'static str,
    /// How its time grows; empty for a container.
    pub complexity: &'static str,
    /// What it does, in a sentence.
    pub summary: &'static str,
    /// The words that it takes.
    pub(super) syntax: &'static str,
}

static BY_NAME: LazyLock<BTreeMap<&str, Documentation>> = LazyLock::new(|| {
    let mut lines = COMMANDS.lines().peekable();
    let mut all = BTreeMap::new();
    while let Some(line) = lines.next() {
        let syntax = lines.next_if(|line| line.starts_with(' ')).unwrap_or_default().trim_start();
        let entry = line.split_once(' ').and_then(|(name, rest)| {
            let (since, rest) = rest.split_once(" [")?;
            let (complexity, summary) = rest.split_once("] ")?;
            Some((name, Documentation { since, complexity, summary, syntax }))
        });
        debug_assert!(entry.is_some(), "{line}: NAME SINCE [COMPLEXITY] SUMMARY");
        all.extend(entry);
    }
    all
});

/// What is documented of the command with a name in lower case.
pub(super) fn of(name: &str) -> Documentation {
    let absent = Documentation { since: "", complexity: "", summary: "", syntax: "" };
    BY_NAME.get(name).copied().unwrap_or(absent)
}

/// What a container's HELP replies.
pub fn help(container: &str) -> Reply {
    let first = format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:");
    let lines = HELP.lines().skip_while(|line| *line != container).skip(1);
    let lines = lines.map_while(|line| line.strip_prefix("  ")).map(str::to_owned);
    let tail = ["HELP", "    Prints this help."].map(str::to_owned);
    let all = std::iter::once(first).chain(lines).chain(tail);
    Reply::Array(all.map(|line| Reply::Status(line.into())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn every_command_has_one_entry_in_the_order_of_the_names() {
        let names: Vec<&str> = COMMANDS
            .lines()
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let all =
            table::COMMANDS.iter().flat_map(|command| std::iter::once(command).chain(command.subcommands()));
        let mut known: Vec<&str> = all.map(|command| command.name).collect();
        known.sort_unstable();
        assert_eq!(names, known);
        for (name, documentation) in &*BY_NAME {
            assert!(!documentation.since.is_empty() && documentation.summary.ends_with('.'), "{name}");
        }
    }

    #[test]
    fn every_container_that_helps_has_lines() {
        for container in table::COMMANDS.iter().filter(|command| !command.subcommands().is_empty()) {
            let helps = container.subcommands().iter().any(|command| command.own_name() == "help");
            let Reply::Array(lines) = help(&container.name.to_ascii_uppercase()) else { panic!("lines") };
            assert_eq!(helps, lines.len() > 3, "{}", container.name);
        }
    }
}
