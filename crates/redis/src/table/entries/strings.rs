//! Strings.

use super::*;
use crate::commands::{counters, lcs, strings};

const fn string(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::String, run)
}

pub(super) const COMMANDS: &[Command] = &[
    string("get", 2, data!(strings::get)).readonly().fast().keys(RO_ACCESS).about(
        "1.0.0",
        "O(1)",
        "Replies the string at a key.",
    ),
    string("set", -3, data!(strings::set))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["RW", "access", "update", "variable_flags"])])
        .about(
            "1.0.0",
            "O(1)",
            "Sets a key to a string, whatever it held, perhaps under a condition or for a time.",
        ),
    string("setnx", 3, data!(strings::setnx)).write().denyoom().fast().keys(OW_INSERT).about(
        "1.0.0",
        "O(1)",
        "Sets a key to a string if it does not exist.",
    ),
    string("setex", 4, data!(strings::setex)).write().denyoom().keys(OW_UPDATE).about(
        "2.0.0",
        "O(1)",
        "Sets a key to a string that expires after some seconds.",
    ),
    string("psetex", 4, data!(strings::psetex)).write().denyoom().keys(OW_UPDATE).about(
        "2.6.0",
        "O(1)",
        "Sets a key to a string that expires after some milliseconds.",
    ),
    string("getset", 3, data!(strings::getset)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Sets a key to a string and replies what it held.",
    ),
    string("getdel", 2, data!(strings::getdel)).write().fast().keys(RW_ACCESS_DELETE).about(
        "6.2.0",
        "O(1)",
        "Deletes a key and replies the string that it held.",
    ),
    string("getex", -2, data!(strings::getex)).write().fast().keys(RW_ACCESS_UPDATE).about(
        "6.2.0",
        "O(1)",
        "Replies the string at a key and changes its expiry.",
    ),
    string("mget", -2, data!(strings::mget)).readonly().fast().keys(RO_ACCESS_ALL).about(
        "1.0.0",
        "O(N) in the number of keys",
        "Replies the strings at several keys, of one moment.",
    ),
    string("mset", -3, data!(strings::mset))
        .write()
        .denyoom()
        .keys(&[range(1, -1, 2, &["OW", "update"])])
        .about("1.0.1", "O(N) in the number of keys", "Sets several keys to strings, at one moment."),
    string("msetnx", -3, data!(strings::msetnx))
        .write()
        .denyoom()
        .keys(&[range(1, -1, 2, &["OW", "insert"])])
        .about("1.0.1", "O(N) in the number of keys", "Sets several keys to strings if none of them exists."),
    string("append", 3, data!(strings::append)).write().denyoom().fast().keys(RW_INSERT).about(
        "2.0.0",
        "O(N) in the length of the new string",
        "Adds to the end of a string.",
    ),
    string("strlen", 2, data!(strings::strlen)).readonly().fast().keys(RO).about(
        "2.2.0",
        "O(1)",
        "Replies the length of a string.",
    ),
    string("getrange", 4, data!(strings::getrange)).readonly().keys(RO_ACCESS).about(
        "2.4.0",
        "O(N) in the length of the reply",
        "Replies a part of a string.",
    ),
    string("substr", 4, data!(strings::getrange)).readonly().keys(RO_ACCESS).about(
        "1.0.0",
        "O(N) in the length of the reply",
        "The old name of GETRANGE.",
    ),
    string("setrange", 4, data!(strings::setrange)).write().denyoom().keys(RW_UPDATE).about(
        "2.2.0",
        "O(N) in the length of the new string",
        "Overwrites a part of a string.",
    ),
    string("lcs", -3, data!(lcs::lcs)).readonly().keys(&[range(1, 2, 1, &["RO", "access"])]).about(
        "7.0.0",
        "O(N*M) in the lengths of the strings",
        "Finds the longest common subsequence of two strings.",
    ),
    string("incr", 2, data!(counters::incr)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Adds one to an integer.",
    ),
    string("decr", 2, data!(counters::decr)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Subtracts one from an integer.",
    ),
    string("incrby", 3, data!(counters::incrby)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Adds to an integer.",
    ),
    string("decrby", 3, data!(counters::decrby)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Subtracts from an integer.",
    ),
    string("incrbyfloat", 3, data!(counters::incrbyfloat))
        .write()
        .denyoom()
        .fast()
        .keys(RW_ACCESS_UPDATE)
        .about("2.6.0", "O(1)", "Adds to a number with a fraction."),
];
