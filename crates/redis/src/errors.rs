//! Redis's error texts.

use crate::table::Command;
use std::fmt::Write;
use txn::{Blob, Reply};

/// A command met a value of another type.
pub const WRONG_TYPE: Reply = Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
/// An option is unknown or contradicts another.
pub const SYNTAX: Reply = Reply::error("ERR syntax error");
/// A number that should be an integer is not, or does not fit.
pub const NOT_AN_INTEGER: Reply = Reply::error("ERR value is not an integer or out of range");
/// A number that should be a float is not.
pub const NOT_A_FLOAT: Reply = Reply::error("ERR value is not a valid float");
/// An increment leaves the range of integers.
pub const OVERFLOW: Reply = Reply::error("ERR increment or decrement would overflow");
/// A float increment gives no number.
pub const NAN_OR_INFINITY: Reply = Reply::error("ERR increment would produce NaN or Infinity");
/// An offset before the string's start.
pub const OFFSET_OUT_OF_RANGE: Reply = Reply::error("ERR offset is out of range");
/// A string would become too long.
pub const STRING_TOO_LONG: Reply = Reply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
/// RENAME of a key that does not exist.
pub const NO_SUCH_KEY: Reply = Reply::error("ERR no such key");
/// A cursor that SCAN did not give.
pub const INVALID_CURSOR: Reply = Reply::error("ERR invalid cursor");
/// A script calls a command that is not for scripts.
pub const NOT_IN_SCRIPT: Reply = Reply::error("ERR This Redis command is not allowed from script");
/// A read-only script calls a command that writes.
pub const WRITE_IN_READ_ONLY_SCRIPT: Reply = Reply::error("ERR Write commands are not allowed from read-only scripts.");
/// A script calls a command that does not exist.
pub const UNKNOWN_IN_SCRIPT: Reply = Reply::error("ERR Unknown Redis command called from script");
/// A script calls a command with a wrong number of arguments.
pub const ARITY_IN_SCRIPT: Reply = Reply::error("ERR Wrong number of args calling Redis command from script");
/// A block holds a command that only a connection can run.
pub const NOT_IN_BLOCK: Reply = Reply::error("ERR Command not allowed inside a transaction");

/// The bytes of `text` that a reply line can carry: line ends become spaces.
fn push_line(out: &mut String, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
        out.push(if c == '\r' || c == '\n' { ' ' } else { c });
    }
}

/// A number of arguments that a command does not take.
pub fn wrong_arity(command: &Command) -> Reply {
    Reply::error_owned(format!("ERR wrong number of arguments for '{}' command", command.name))
}

/// A command that does not exist, with the start of its arguments.
pub fn unknown_command(argv: &[Blob]) -> Reply {
    const SHOWN_BYTES: usize = 128;
    let clipped = |word: &Blob, bytes: usize| word.as_bytes()[..word.len().min(bytes)].to_vec();
    let mut shown = String::new();
    for word in argv.iter().skip(1) {
        if shown.len() >= SHOWN_BYTES {
            break;
        }
        shown.push('\'');
        let bytes = clipped(word, SHOWN_BYTES - shown.len());
        push_line(&mut shown, &bytes);
        shown.push_str("' ");
    }
    let mut text = String::from("ERR unknown command '");
    if let Some(name) = argv.first() {
        push_line(&mut text, &clipped(name, SHOWN_BYTES));
    }
    let _ = write!(text, "', with args beginning with: {shown}");
    Reply::error_owned(text)
}

/// A subcommand that its container does not have.
pub fn unknown_subcommand(container: &Command, subcommand: &[u8]) -> Reply {
    const SHOWN_BYTES: usize = 128;
    let mut text = String::from("ERR unknown subcommand '");
    push_line(&mut text, &subcommand[..subcommand.len().min(SHOWN_BYTES)]);
    let _ = write!(text, "'. Try {} HELP.", container.name.to_ascii_uppercase());
    Reply::error_owned(text)
}

/// An expiry that is not in the future of the calendar.
pub fn invalid_expire(command: &str) -> Reply {
    Reply::error_owned(format!("ERR invalid expire time in '{command}' command"))
}
