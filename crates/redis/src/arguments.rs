//! What a command's function gets besides its transaction.

use std::ops::Deref;
use txn::{Args, Blob, Call};

/// The arguments after the command's name, wherever they live: in the request that the order carries, or in a
/// block or script that runs the command inside its own transaction.
///
/// Owned and `'static`, because a command may be parked; two words, because it is part of every command's
/// future.
pub enum Arguments {
    /// The request is the command.
    Call(Call),
    /// The command is one of several of its transaction.
    Owned(Box<Args>),
}

impl Arguments {
    /// The arguments of a whole command: `argv` without its first word.
    pub fn of_argv(mut argv: Args) -> Arguments {
        if !argv.is_empty() {
            argv.0.remove(0);
        }
        Arguments::Owned(Box::new(argv))
    }
}

impl Deref for Arguments {
    type Target = [Blob];
    fn deref(&self) -> &[Blob] {
        match self {
            Arguments::Call(call) => call,
            Arguments::Owned(args) => args,
        }
    }
}
