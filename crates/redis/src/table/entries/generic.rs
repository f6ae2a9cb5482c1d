//! Keys of any type.

use super::*;
use crate::commands::{dump, expiry, keys, listing, pure, sort};

const fn generic(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Generic, run)
}

const RM_ALL: &[KeySpec] = &[range(1, -1, 1, &["RM", "delete"])];

/// The categories of what SORT sorts.
const SORTED: &[&str] = &["list", "set", "sortedset", "dangerous"];
/// What SORT's patterns of BY and GET name.
const PATTERNS: KeySpec = KeySpec { places: KeyPlaces::Patterns, flags: &["RO", "access"] };
const SORT_STORE: KeySpec = KeySpec { places: KeyPlaces::SortStore, flags: &["OW", "update"] };

const OBJECT: &[Command] = &[
    generic("object|encoding", 3, data!(keys::object_encoding)).readonly().keys(RO_SECOND).about(
        "2.2.3",
        "O(1)",
        "Replies the name of the form that a value has.",
    ),
    generic("object|freq", 3, data!(keys::object_freq)).readonly().keys(RO_SECOND).about(
        "4.0.0",
        "O(1)",
        "Replies how often a key is used.",
    ),
    generic("object|help", 2, Run::Pure(object_help)).always().about("6.2.0", "O(1)", "Explains OBJECT."),
    generic("object|idletime", 3, data!(keys::object_idletime)).readonly().keys(RO_SECOND).about(
        "2.2.3",
        "O(1)",
        "Replies how long a key was not used.",
    ),
    generic("object|refcount", 3, data!(keys::object_refcount)).readonly().keys(RO_SECOND).about(
        "2.2.3",
        "O(1)",
        "Replies how often a value is referred to.",
    ),
];

fn object_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "OBJECT",
        &[
            "ENCODING <key>",
            "    The name of the form that the value has.",
            "FREQ <key>",
            "    How often the key is used.",
            "IDLETIME <key>",
            "    How many seconds the key was not used.",
            "REFCOUNT <key>",
            "    How often the value is referred to.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    generic("del", -2, data!(keys::del)).write().keys(RM_ALL).about(
        "1.0.0",
        "O(N) in the number of keys",
        "Deletes keys.",
    ),
    generic("unlink", -2, data!(keys::del)).write().fast().keys(RM_ALL).about(
        "4.0.0",
        "O(N) in the number of keys",
        "Deletes keys.",
    ),
    generic("exists", -2, data!(keys::exists)).readonly().fast().keys(RO_ALL).about(
        "1.0.0",
        "O(N) in the number of keys",
        "Counts how many of some keys exist.",
    ),
    generic("touch", -2, data!(keys::exists)).readonly().fast().keys(RO_ALL).about(
        "3.2.1",
        "O(N) in the number of keys",
        "Counts how many of some keys exist.",
    ),
    generic("type", 2, data!(keys::type_of)).readonly().fast().keys(RO).about(
        "1.0.0",
        "O(1)",
        "Replies the type of a value.",
    ),
    generic("keys", 2, data!(listing::keys)).readonly().flags(Flags::HEAVY).dangerous().about(
        "1.0.0",
        "O(N) in the number of keys",
        "Lists all keys that match a pattern.",
    ),
    generic("scan", -2, data!(listing::scan)).readonly().about(
        "2.8.0",
        "O(1) a call, O(N) for all",
        "Lists keys in pages.",
    ),
    generic("randomkey", 1, data!(listing::randomkey)).readonly().flags(Flags::ORDERED).about(
        "1.0.0",
        "O(1)",
        "Replies a random key.",
    ),
    generic("rename", 3, data!(keys::rename))
        .write()
        .keys(&[range(1, 1, 1, &["RW", "access", "delete"]), range(2, 2, 1, &["OW", "update"])])
        .about("1.0.0", "O(1)", "Moves a value to another key, whatever that held."),
    generic("renamenx", 3, data!(keys::renamenx))
        .write()
        .fast()
        .keys(&[range(1, 1, 1, &["RW", "access", "delete"]), range(2, 2, 1, &["OW", "insert"])])
        .about("1.0.0", "O(1)", "Moves a value to another key if that does not exist."),
    generic("copy", -3, data!(keys::copy))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["RO", "access"]), range(2, 2, 1, &["OW", "update"])])
        .about("6.2.0", "O(1)", "Copies a value to another key."),
    generic("expire", -3, data!(expiry::expire)).write().fast().keys(RW_UPDATE).about(
        "1.0.0",
        "O(1)",
        "Lets a key expire after some seconds.",
    ),
    generic("pexpire", -3, data!(expiry::pexpire)).write().fast().keys(RW_UPDATE).about(
        "2.6.0",
        "O(1)",
        "Lets a key expire after some milliseconds.",
    ),
    generic("expireat", -3, data!(expiry::expireat)).write().fast().keys(RW_UPDATE).about(
        "1.2.0",
        "O(1)",
        "Lets a key expire at a time in seconds.",
    ),
    generic("pexpireat", -3, data!(expiry::pexpireat)).write().fast().keys(RW_UPDATE).about(
        "2.6.0",
        "O(1)",
        "Lets a key expire at a time in milliseconds.",
    ),
    generic("ttl", 2, data!(expiry::ttl)).readonly().fast().flags(Flags::ORDERED).keys(RO_ACCESS).about(
        "1.0.0",
        "O(1)",
        "Replies in how many seconds a key expires.",
    ),
    generic("pttl", 2, data!(expiry::pttl)).readonly().fast().flags(Flags::ORDERED).keys(RO_ACCESS).about(
        "2.6.0",
        "O(1)",
        "Replies in how many milliseconds a key expires.",
    ),
    generic("expiretime", 2, data!(expiry::expiretime)).readonly().fast().keys(RO_ACCESS).about(
        "7.0.0",
        "O(1)",
        "Replies when a key expires, in seconds.",
    ),
    generic("pexpiretime", 2, data!(expiry::pexpiretime)).readonly().fast().keys(RO_ACCESS).about(
        "7.0.0",
        "O(1)",
        "Replies when a key expires, in milliseconds.",
    ),
    generic("persist", 2, data!(expiry::persist)).write().fast().keys(RW_UPDATE).about(
        "2.2.0",
        "O(1)",
        "Lets a key never expire.",
    ),
    generic("dump", 2, data!(dump::dump)).readonly().keys(RO_ACCESS).about(
        "2.6.0",
        "O(N) in the size of the value",
        "Replies a value in the form that RESTORE takes.",
    ),
    generic("restore", -4, data!(dump::restore)).write().denyoom().dangerous().keys(OW_UPDATE).about(
        "2.6.0",
        "O(N log N) in the size of the value",
        "Makes a key of a value that DUMP replied.",
    ),
    Command::new("sort", -2, Group::Sort, data!(sort::sort))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .categories(SORTED)
        .keys(&[range(1, 1, 1, &["RO", "access"]), PATTERNS, SORT_STORE])
        .about(
            "1.0.0",
            "O(N log N) in the size of the collection",
            "Sorts a list, a set or a sorted set, and replies or stores the elements or what keys named \
             after them hold.",
        ),
    Command::new("sort_ro", -2, Group::Sort, data!(sort::sort_ro))
        .readonly()
        .flags(Flags::MOVABLEKEYS)
        .categories(SORTED)
        .keys(&[range(1, 1, 1, &["RO", "access"]), PATTERNS])
        .about(
            "7.0.0",
            "O(N log N) in the size of the collection",
            "Sorts a list, a set or a sorted set, and replies the elements or what keys named after them \
             hold.",
        ),
    generic("object", -2, Run::Container(OBJECT)).about("2.2.3", "", "Tells about the form of a value."),
];
