//! Access control lists: users, the rules that make them, and the check of a command against them, as in
//! Redis 7.0.
//!
//! A [`User`] is made by rules (`on`, `>password`, `+@read`, `~cache:*`, ...), which ACL SETUSER applies one
//! after the other. It has at least one [`Selector`], and may do what one of its selectors allows alone:
//! commands, keys and channels together. What is kept of the rules is what they come to, so a description
//! ([`User::description`]) is the shortest list of rules that Redis finds for the same permissions, and not
//! the list that was given.
//!
//! # Where users live
//!
//! In one record of every partition's system space ([`directory`]), written by ordered transactions: they are
//! part of checkpoints, and equal at every replica. As long as nobody has changed the user `default`, the
//! record does not have it, and it is what each node's settings make it (`requirepass`).
//!
//! # Passwords
//!
//! Of a password its SHA-256 is all that is kept, as in Redis. A session puts it in the password's place
//! ([`secrets`]) before a command enters a block or the order: no log has a password. Rules with a password
//! (`>password`) are understood here all the same.
//!
//! # Where commands are checked
//!
//! Where they arrive, against the newest users that the node knows final: that is the only check of a command
//! by itself. Another node's change takes effect here when it is final here. What consists of commands, a
//! block or a script, is checked again where the order puts it: its request goes as `redis.acting`
//! ([`acting`]) and carries the *name* of the user, whose permissions it reads in its own transaction. So all
//! replicas decide alike, and a right that was withdrawn before a transaction in the order is not used by it.
//! Whoever may do everything sends plain requests, which read nothing more.
//!
//! Commands within a script are checked one by one (their keys, too), as in Redis, and so are those of a
//! block when it runs.

mod absent;
pub mod acting;
pub mod check;
mod commands;
pub(crate) mod commands_of_users;
pub mod directory;
pub mod file;
mod password;
pub mod secrets;
mod selector;
#[cfg(test)]
mod tests;
mod universe;
mod user;

pub use acting::{Acting, ActingProcedure, Actor, Context, Deed, Denial, Done, ReadUsersProcedure};
pub use check::{Denied, check};
pub use directory::{Directory, Member};
pub use password::PasswordHash;
pub(crate) use selector::KeyAccess;
pub use selector::Selector;
pub use user::{DEFAULT_USER, RulesError, User};

/// Why a rule is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// It is none, or has letters that it may not have.
    Syntax,
    /// It names a command or a category that does not exist.
    UnknownCommand,
    /// It names an argument of a subcommand.
    ArgumentOfSubcommand,
    /// It adds keys to all keys.
    KeyAfterAll,
    /// It adds channels to all channels.
    ChannelAfterAll,
    /// It removes a password that is not there.
    NoSuchPassword,
    /// It has something else where a hash should be.
    BadHash,
}

impl RuleError {
    /// Redis's words for it.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::UnknownCommand => "Unknown command or category name in ACL",
            RuleError::ArgumentOfSubcommand => "Allowing first-arg of a subcommand is not supported",
            RuleError::KeyAfterAll => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not \
                 have any effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::ChannelAfterAll => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does \
                 not have any effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => "The password you are trying to remove from the user does not exist",
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal \
                 characters"
            }
        }
    }
}

/// Whether a name has spaces or zero bytes, which descriptions could not have.
pub fn has_spaces(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b' ' | b'\t'..=b'\r' | 0))
}
