//! Redis's error texts.

use crate::table::Command;
use std::fmt::Write;
use txn::{Blob, Reply};

/// A command met a value of another type.
pub const WRONG_TYPE: Reply =
    Reply::error("WRONGTYPE Operation against a key holding the wrong kind of value");
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
/// HINCRBYFLOAT by something infinite.
pub const INFINITE_INCREMENT: Reply = Reply::error("ERR value is NaN or Infinity");
/// An offset before the string's start.
pub const OFFSET_OUT_OF_RANGE: Reply = Reply::error("ERR offset is out of range");
/// A string would become too long.
pub const STRING_TOO_LONG: Reply =
    Reply::error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
/// RENAME of a key that does not exist.
pub const NO_SUCH_KEY: Reply = Reply::error("ERR no such key");
/// A cursor that SCAN did not give.
pub const INVALID_CURSOR: Reply = Reply::error("ERR invalid cursor");
/// A decrement that has no increment.
pub const DECREMENT_OVERFLOW: Reply = Reply::error("ERR decrement would overflow");
/// A count beyond what a reply may hold.
pub const OUT_OF_RANGE: Reply = Reply::error("ERR value is out of range");
/// A count that should not be negative is, or is no integer.
pub const NOT_POSITIVE: Reply = Reply::error("ERR value is out of range, must be positive");
/// The one integer that has no opposite.
pub const NO_OPPOSITE: Reply = Reply::error(
    "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807",
);
/// A place that a list does not have.
pub const INDEX_OUT_OF_RANGE: Reply = Reply::error("ERR index out of range");
/// LPOS of match number 0.
pub const RANK_ZERO: Reply = Reply::error(
    "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to \
     start from the end of the list",
);
/// LPOS with a negative count.
pub const COUNT_NEGATIVE: Reply = Reply::error("ERR COUNT can't be negative");
/// LPOS with a negative length.
pub const MAXLEN_NEGATIVE: Reply = Reply::error("ERR MAXLEN can't be negative");
/// SINTERCARD or ZINTERCARD with a negative limit.
pub const LIMIT_NEGATIVE: Reply = Reply::error("ERR LIMIT can't be negative");
/// A number of keys that is none.
pub const NO_KEYS: Reply = Reply::error("ERR numkeys should be greater than 0");
/// A number of keys beyond the arguments.
pub const TOO_MANY_KEYS: Reply = Reply::error("ERR Number of keys can't be greater than number of args");
/// LMPOP or ZMPOP of nothing.
pub const COUNT_ZERO: Reply = Reply::error("ERR count should be greater than 0");
/// A field that should count does not.
pub const HASH_VALUE_NOT_AN_INTEGER: Reply = Reply::error("ERR hash value is not an integer");
/// A field that should be a number is not.
pub const HASH_VALUE_NOT_A_FLOAT: Reply = Reply::error("ERR hash value is not a float");
/// A database other than number 0.
pub const DB_OUT_OF_RANGE: Reply = Reply::error("ERR DB index is out of range");
/// COPY of a key onto itself.
pub const SAME_OBJECT: Reply = Reply::error("ERR source and destination objects are the same");
/// EXPIRE with options that exclude each other.
pub const EXPIRE_NX_WITH_OTHERS: Reply =
    Reply::error("ERR NX and XX, GT or LT options at the same time are not compatible");
/// EXPIRE with options that exclude each other.
pub const EXPIRE_GT_WITH_LT: Reply =
    Reply::error("ERR GT and LT options at the same time are not compatible");
/// A time to wait that is no number of milliseconds.
pub const TIMEOUT_NOT_AN_INTEGER: Reply = Reply::error("ERR timeout is not an integer or out of range");
/// A time to wait that was over before it began.
pub const NEGATIVE_TIMEOUT: Reply = Reply::error("ERR timeout is negative");
/// OBJECT FREQ: nobody counts accesses.
pub const NO_LFU: Reply = Reply::error(
    "ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when \
     switching between policies at runtime LRU and LFU data will take some time to adjust.",
);
/// LCS of something else than strings.
pub const LCS_WRONG_TYPE: Reply = Reply::error("ERR The specified keys must contain string values");
/// LCS with options that exclude each other.
pub const LCS_LEN_AND_IDX: Reply =
    Reply::error("ERR If you want both the length and indexes, please just use IDX.");
/// LCS of strings whose table would not fit.
pub const LCS_TOO_LONG: Reply = Reply::error("ERR String too long for LCS");
/// ZADD with options that exclude each other.
pub const ZADD_NX_WITH_XX: Reply = Reply::error("ERR XX and NX options at the same time are not compatible");
/// ZADD with options that exclude each other.
pub const ZADD_GT_LT_NX: Reply =
    Reply::error("ERR GT, LT, and/or NX options at the same time are not compatible");
/// ZADD of several increments.
pub const ZADD_INCR_OF_MANY: Reply = Reply::error("ERR INCR option supports a single increment-element pair");
/// An increment of a score gives no number.
pub const SCORE_NOT_A_NUMBER: Reply = Reply::error("ERR resulting score is not a number (NaN)");
/// A range of scores whose ends are none.
pub const BOUNDS_NOT_FLOATS: Reply = Reply::error("ERR min or max is not a float");
/// A range of names whose ends don't say whether they are in it.
pub const BOUNDS_NOT_NAMES: Reply = Reply::error("ERR min or max not valid string range item");
/// ZRANGE by ranks, but only so many.
pub const LIMIT_OF_RANKS: Reply =
    Reply::error("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX");
/// ZRANGE by names, with scores.
pub const SCORES_BY_NAME: Reply =
    Reply::error("ERR syntax error, WITHSCORES not supported in combination with BYLEX");
/// ZUNION with a weight that is no number.
pub const WEIGHT_NOT_A_FLOAT: Reply = Reply::error("ERR weight value is not a float");
/// A unit of distances that Redis does not have.
pub const UNKNOWN_UNIT: Reply = Reply::error("ERR unsupported unit provided. please use M, KM, FT, MI");
/// A radius that is no number.
pub const RADIUS_NOT_A_FLOAT: Reply = Reply::error("ERR need numeric radius");
/// A negative radius.
pub const RADIUS_NEGATIVE: Reply = Reply::error("ERR radius cannot be negative");
/// The width of a box is no number.
pub const WIDTH_NOT_A_FLOAT: Reply = Reply::error("ERR need numeric width");
/// The height of a box is no number.
pub const HEIGHT_NOT_A_FLOAT: Reply = Reply::error("ERR need numeric height");
/// A box of negative width or height.
pub const BOX_NEGATIVE: Reply = Reply::error("ERR height or width cannot be negative");
/// A search around a member that does not exist.
pub const UNKNOWN_PLACE: Reply = Reply::error("ERR could not decode requested zset member");
/// A search for no places.
pub const GEO_COUNT_ZERO: Reply = Reply::error("ERR COUNT must be > 0");
/// A search for any places, however many.
pub const ANY_WITHOUT_COUNT: Reply = Reply::error("ERR the ANY argument requires COUNT argument");
/// GEORADIUS that stores, and replies more than names.
pub const GEORADIUS_STORE_WITH: Reply = Reply::error(
    "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
);
/// GEOSEARCHSTORE with what only replies have.
pub const SEARCHSTORE_WITH: Reply =
    Reply::error("ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options");
/// A bit's place that is none, or beyond the longest string.
pub const BIT_OFFSET: Reply = Reply::error("ERR bit offset is not an integer or out of range");
/// A bit to set that is neither 0 nor 1.
pub const BIT_VALUE: Reply = Reply::error("ERR bit is not an integer or out of range");
/// A bit to look for that is neither 0 nor 1.
pub const BIT_WANTED: Reply = Reply::error("ERR The bit argument must be 1 or 0.");
/// BITOP NOT of several strings.
pub const BITOP_NOT: Reply = Reply::error("ERR BITOP NOT must be called with a single source key.");
/// BITFIELD with a type that does not exist.
pub const BITFIELD_TYPE: Reply = Reply::error(
    "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.",
);
/// BITFIELD with an overflow behaviour that does not exist.
pub const BITFIELD_OVERFLOW: Reply = Reply::error("ERR Invalid OVERFLOW type specified");
/// RESTORE to a key that exists.
pub const BUSY_KEY: Reply = Reply::error("BUSYKEY Target key name already exists.");
/// RESTORE with a negative time to live.
pub const RESTORE_TTL: Reply = Reply::error("ERR Invalid TTL value, must be >= 0");
/// RESTORE with a negative time without access.
pub const RESTORE_IDLETIME: Reply = Reply::error("ERR Invalid IDLETIME value, must be >= 0");
/// RESTORE with a frequency that does not fit.
pub const RESTORE_FREQ: Reply = Reply::error("ERR Invalid FREQ value, must be >= 0 and <= 255");
/// RESTORE of something that DUMP did not write, or a newer one.
pub const RESTORE_FOOTER: Reply = Reply::error("ERR DUMP payload version or checksum are wrong");
/// RESTORE of a value that makes no sense.
pub const RESTORE_DATA: Reply = Reply::error("ERR Bad data format");
/// SORT of what has no order of numbers.
pub const SORT_NOT_A_NUMBER: Reply = Reply::error("ERR One or more scores can't be converted into double");
/// BITFIELD_RO that would write.
pub const BITFIELD_READ_ONLY: Reply = Reply::error("ERR BITFIELD_RO only supports the GET subcommand");
/// COMMAND GETKEYS of something that is no command.
pub const GETKEYS_UNKNOWN: Reply = Reply::error("ERR Invalid command specified");
/// COMMAND GETKEYS of a command with a wrong number of arguments.
pub const GETKEYS_ARITY: Reply = Reply::error("ERR Invalid number of arguments specified for command");
/// COMMAND GETKEYS of a command that has no keys.
pub const GETKEYS_NO_KEYS: Reply = Reply::error("ERR The command has no key arguments");
/// COMMAND GETKEYS of a command whose arguments don't tell the keys.
pub const GETKEYS_INVALID: Reply = Reply::error("ERR Invalid arguments specified for command");
/// The table and the procedures disagree.
pub const NO_PROCEDURE: Reply =
    Reply::error("ERR this command has no procedure: a bug in the server, please report it");
/// A script or function that may write is called as one that does not.
pub const WRITING_SCRIPT_READ_ONLY: Reply =
    Reply::error("ERR Can not execute a script with write flag using *_ro command.");
/// A script calls a command that is not for scripts.
pub const NOT_IN_SCRIPT: Reply = Reply::error("ERR This Redis command is not allowed from script");
/// A read-only script calls a command that writes.
pub const WRITE_IN_READ_ONLY_SCRIPT: Reply =
    Reply::error("ERR Write commands are not allowed from read-only scripts.");
/// A script calls a command that does not exist.
pub const UNKNOWN_IN_SCRIPT: Reply = Reply::error("ERR Unknown Redis command called from script");
/// A script calls a command with a wrong number of arguments.
pub const ARITY_IN_SCRIPT: Reply = Reply::error("ERR Wrong number of args calling Redis command from script");
/// A command that a connection sent touches a key that its user may not touch so.
pub const NO_PERMISSION_KEY: Reply =
    Reply::error("NOPERM this user has no permissions to access one of the keys used as arguments");
/// A command that a connection sent names a channel that its user may not use.
pub const NO_PERMISSION_CHANNEL: Reply =
    Reply::error("NOPERM this user has no permissions to access one of the channels used as arguments");
/// A command was allowed when it was queued.
pub const NO_PERMISSION_COMMAND_ANY_MORE: Reply = Reply::error(
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
     command is no longer allowed for the following reason: no permission to execute the command or \
     subcommand",
);
/// Its keys were.
pub const NO_PERMISSION_KEY_ANY_MORE: Reply = Reply::error(
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
     command is no longer allowed for the following reason: no permission to touch the specified keys",
);
/// Its channels were.
pub const NO_PERMISSION_CHANNEL_ANY_MORE: Reply = Reply::error(
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This \
     command is no longer allowed for the following reason: no permission to access one of the channels \
     used as arguments",
);
/// A script calls a command that its user may not run.
pub const SCRIPT_MAY_NOT_RUN: Reply =
    Reply::error("ERR The user executing the script can't run this command or subcommand");
/// A script touches a key that its user may not touch so.
pub const SCRIPT_MAY_NOT_TOUCH: Reply = Reply::error(
    "ERR The user executing the script can't access at least one of the keys mentioned in the command \
     arguments",
);
/// A script names a channel that its user may not use.
pub const SCRIPT_MAY_NOT_PUBLISH: Reply =
    Reply::error("ERR The user executing the script can't publish to the channel mentioned in the command");
/// SORT by keys that its user may not read.
pub const SORT_BY_DENIED: Reply =
    Reply::error("ERR BY option of SORT denied due to insufficient ACL permissions.");
/// MGET of more than a reply may have.
pub const MGET_TOO_LONG: Reply =
    Reply::error("ERR the values have more than 512 MiB together: ask for fewer keys in one command");
/// SORT that replies keys that its user may not read.
pub const SORT_GET_DENIED: Reply =
    Reply::error("ERR GET option of SORT denied due to insufficient ACL permissions.");
/// ACL SETUSER with a name that descriptions could not have.
pub const USER_NAME_WITH_SPACES: Reply =
    Reply::error("ERR Usernames can't contain spaces or null characters");
/// ACL DELUSER of the user that new connections have.
pub const DEFAULT_USER_STAYS: Reply = Reply::error("ERR The 'default' user cannot be removed");
/// A command may take memory of which its node is short.
pub const OUT_OF_MEMORY: Reply = Reply::error("OOM command not allowed when used memory > 'maxmemory'.");
/// A block holds a command that only a connection can run.
pub const NOT_IN_BLOCK: Reply = Reply::error("ERR Command not allowed inside a transaction");

/// The bytes of `text` that a reply line can carry: line ends become spaces.
pub(crate) fn push_line(out: &mut String, text: &[u8]) {
    for c in String::from_utf8_lossy(text).chars() {
        out.push(if c == '\r' || c == '\n' { ' ' } else { c });
    }
}

/// A number of arguments that a command does not take.
pub fn wrong_arity(command: &Command) -> Reply {
    wrong_arity_of(command.name)
}

/// A number of arguments that the command of this name does not take.
pub fn wrong_arity_of(name: &str) -> Reply {
    Reply::error_owned(format!("ERR wrong number of arguments for '{name}' command"))
}

/// An option that EXPIRE and its like don't have.
pub fn unsupported_option(word: &[u8]) -> Reply {
    let mut text = String::from("ERR Unsupported option ");
    push_line(&mut text, word);
    Reply::error_owned(text)
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
        let bytes = clipped(word, SHOWN_BYTES - shown.len());
        shown.push('\'');
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

/// The error about a command that does not exist, for one that Redis has: whoever misses it should not look
/// for a slip.
pub fn not_supported(unknown: Reply, reason: &str) -> Reply {
    let Reply::Error(text) = unknown else {
        return unknown;
    };
    let space = if text.ends_with(' ') { "" } else { " " };
    Reply::error_owned(format!("{text}{space}(Ordo does not have this command of Redis: {reason})"))
}

/// A subcommand that its container does not have.
pub fn unknown_subcommand(container: &Command, subcommand: &[u8]) -> Reply {
    const SHOWN_BYTES: usize = 128;
    let mut text = String::from("ERR unknown subcommand '");
    push_line(&mut text, &subcommand[..subcommand.len().min(SHOWN_BYTES)]);
    let _ = write!(text, "'. Try {} HELP.", container.name.to_ascii_uppercase());
    Reply::error_owned(text)
}

/// A subcommand with arguments that it does not take.
pub fn subcommand_syntax(container: &str, subcommand: &[u8]) -> Reply {
    let mut text = String::from("ERR unknown subcommand or wrong number of arguments for '");
    push_line(&mut text, subcommand);
    let _ = write!(text, "'. Try {container} HELP.");
    Reply::error_owned(text)
}

/// A subcommand that PFDEBUG does not have.
pub fn unknown_pfdebug(subcommand: &[u8]) -> Reply {
    let mut text = String::from("ERR Unknown PFDEBUG subcommand '");
    push_line(&mut text, subcommand);
    text.push('\'');
    Reply::error_owned(text)
}

/// An ACL category that does not exist.
pub fn unknown_category(category: &[u8]) -> Reply {
    let mut text = String::from("ERR Unknown category '");
    push_line(&mut text, category);
    text.push('\'');
    Reply::error_owned(text)
}

/// A number of source keys that is none.
pub fn no_input_key(command: &str) -> Reply {
    Reply::error_owned(format!("ERR at least 1 input key is needed for '{command}' command"))
}

/// A place that is not on the map.
pub fn invalid_position(longitude: f64, latitude: f64) -> Reply {
    Reply::error_owned(format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}"))
}

/// A search that says no place around which to search.
pub fn search_from_nowhere(command: &str) -> Reply {
    Reply::error_owned(format!("ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for {command}"))
}

/// A search that says no shape of its area.
pub fn search_of_no_shape(command: &str) -> Reply {
    Reply::error_owned(format!("ERR exactly one of BYRADIUS and BYBOX can be specified for {command}"))
}

/// An expiry that is not in the future of the calendar.
pub fn invalid_expire(command: &str) -> Reply {
    Reply::error_owned(format!("ERR invalid expire time in '{command}' command"))
}
