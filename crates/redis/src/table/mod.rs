//! The command table: a line for each command, from which everything else derives.
//!
//! Adding a command is a line in [`entries`] with its function, and what its users read in `commands.txt`
//! (see [`documentation`]). Arity checks, the read-only property, key extraction, ACL categories, COMMAND's
//! replies and the registration of its procedure follow from the two.

mod command;
mod documentation;
mod entries;
mod keys;
mod kinds;
mod lookup;
mod number;
pub mod per_key;
mod syntax;
mod unsupported;

pub use command::{CATEGORIES, Command, Data, FLAG_NAMES, Flags, Group, KeyPlaces, KeySpec, Run};
pub use documentation::{Documentation, help};
pub use entries::COMMANDS;
pub(crate) use keys::normalize;
pub use kinds::{
    AclCommand, ClusterCommand, ConnectionCommand, FunctionCommand, LatencyCommand, MemoryCommand,
    OrdoBackupCommand, OrdoClusterCommand, PubSubCommand, ScriptCommand, SlowLogCommand,
};
pub use lookup::place_of;
pub use number::{COMMANDS_COUNT, CommandNumber};
pub(crate) use syntax::arguments_of;
pub use unsupported::ABSENT;

use crate::errors;
use crate::execute::Caller;
use txn::{Blob, Reply};

/// A command as found by its words.
#[derive(Clone, Copy)]
pub struct Resolved {
    /// The command; the subcommand if its words name one.
    pub command: &'static Command,
    /// Its place in [`COMMANDS`] (the container's).
    pub place: usize,
    /// Its place among the container's subcommands.
    pub subplace: Option<usize>,
}

impl Resolved {
    /// The number of the command, or of the subcommand.
    #[inline]
    pub fn number(&self) -> CommandNumber {
        CommandNumber::of_place(self.place, self.subplace)
    }
}

/// Why words name no command.
#[derive(Clone, Copy)]
pub enum ResolveError {
    /// No command has that name.
    Unknown,
    /// The container has no such subcommand.
    UnknownSubcommand(&'static Command),
    /// The number of words is wrong.
    Arity(Resolved),
}

impl ResolveError {
    /// The error reply for `argv`, in the words that Redis has for the caller. Behind them, it tells of a
    /// command that Redis has and Ordo does not, and why.
    pub fn reply(self, argv: &[Blob], caller: Caller) -> Reply {
        let reply = match (self, caller) {
            (ResolveError::Arity(_), Caller::Script { .. }) => errors::ARITY_IN_SCRIPT,
            (_, Caller::Script { .. }) => errors::UNKNOWN_IN_SCRIPT,
            (ResolveError::Unknown, _) => errors::unknown_command(argv),
            (ResolveError::UnknownSubcommand(container), _) => {
                errors::unknown_subcommand(container, &argv[1])
            }
            (ResolveError::Arity(resolved), _) => errors::wrong_arity(resolved.command),
        };
        match self.reason(argv) {
            Some(reason) => errors::not_supported(reply, reason),
            None => reply,
        }
    }

    /// Why Ordo does not have the command that `argv` names, if Redis has it.
    fn reason(self, argv: &[Blob]) -> Option<&'static str> {
        match self {
            ResolveError::Unknown => argv.first().and_then(|name| unsupported::reason(name)),
            ResolveError::UnknownSubcommand(container) => {
                unsupported::reason(&[container.name.as_bytes(), b"|", &argv[1]].concat())
            }
            ResolveError::Arity(_) => None,
        }
    }
}

/// The command with a name, whatever its case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    lookup::place_of(name).map(|place| &COMMANDS[place])
}

/// The command or subcommand (`container|subcommand`) with a name, whatever its case.
pub fn find_number(name: &[u8]) -> Option<CommandNumber> {
    let Some(bar) = name.iter().position(|&byte| byte == b'|') else {
        return lookup::place_of(name).map(|place| CommandNumber::of_place(place, None));
    };
    let place = lookup::place_of(&name[..bar])?;
    let is_it = |sub: &Command| sub.name.as_bytes().eq_ignore_ascii_case(name);
    let subplace = COMMANDS[place].subcommands().iter().position(is_it)?;
    Some(CommandNumber::of_place(place, Some(subplace)))
}

/// Finds the command of `argv` (its name first) and checks the number of its words.
pub fn resolve(argv: &[Blob]) -> Result<Resolved, ResolveError> {
    let name = argv.first().ok_or(ResolveError::Unknown)?;
    let place = lookup::place_of(name).ok_or(ResolveError::Unknown)?;
    let mut command = &COMMANDS[place];
    let mut subplace = None;
    if let (Run::Container(subcommands), Some(word)) = (command.run, argv.get(1)) {
        let found = subcommands
            .iter()
            .position(|subcommand| subcommand.own_name().as_bytes().eq_ignore_ascii_case(word))
            .ok_or(ResolveError::UnknownSubcommand(command))?;
        subplace = Some(found);
        command = &subcommands[found];
    }
    let resolved = Resolved { command, place, subplace };
    match command.arity_fits(argv.len()) {
        true => Ok(resolved),
        false => Err(ResolveError::Arity(resolved)),
    }
}
