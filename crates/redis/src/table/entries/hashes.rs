//! Hashes.

use super::*;
use crate::commands::{hash_fields as fields, hashes};

const fn hash(name: &'static str, arity: i16, run: Run) -> Command {
    let mut command = Command::new(name, arity, Group::Hash, run);
    command.since = "2.0.0";
    command
}

pub(super) const COMMANDS: &[Command] = &[
    hash("hset", -4, data!(hashes::hset)).write().denyoom().fast().keys(RW_UPDATE).about(
        "2.0.0",
        "O(N) in the number of fields set",
        "Sets fields of a hash.",
    ),
    hash("hmset", -4, data!(hashes::hmset)).write().denyoom().fast().keys(RW_UPDATE).about(
        "2.0.0",
        "O(N) in the number of fields set",
        "Sets fields of a hash: the old form of HSET.",
    ),
    hash("hsetnx", 4, data!(hashes::hsetnx)).write().denyoom().fast().keys(RW_INSERT).about(
        "2.0.0",
        "O(1)",
        "Sets a field of a hash if it does not exist.",
    ),
    hash("hget", 3, data!(fields::hget)).readonly().fast().keys(RO_ACCESS).about(
        "2.0.0",
        "O(1)",
        "Replies the value of a field.",
    ),
    hash("hmget", -3, data!(fields::hmget)).readonly().fast().keys(RO_ACCESS).about(
        "2.0.0",
        "O(N) in the number of fields asked for",
        "Replies the values of several fields.",
    ),
    hash("hgetall", 2, data!(fields::hgetall)).readonly().keys(RO_ACCESS).about(
        "2.0.0",
        "O(N) in the size of the hash",
        "Replies all fields with their values.",
    ),
    hash("hdel", -3, data!(hashes::hdel)).write().fast().keys(RW_DELETE).about(
        "2.0.0",
        "O(N) in the number of fields removed",
        "Removes fields of a hash.",
    ),
    hash("hlen", 2, data!(fields::hlen)).readonly().fast().keys(RO).about(
        "2.0.0",
        "O(1)",
        "Replies the number of fields.",
    ),
    hash("hexists", 3, data!(fields::hexists)).readonly().fast().keys(RO).about(
        "2.0.0",
        "O(1)",
        "Tells whether a field exists.",
    ),
    hash("hkeys", 2, data!(fields::hkeys)).readonly().keys(RO_ACCESS).about(
        "2.0.0",
        "O(N) in the size of the hash",
        "Replies all fields.",
    ),
    hash("hvals", 2, data!(fields::hvals)).readonly().keys(RO_ACCESS).about(
        "2.0.0",
        "O(N) in the size of the hash",
        "Replies all values.",
    ),
    hash("hincrby", 4, data!(hashes::hincrby)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "2.0.0",
        "O(1)",
        "Adds to an integer in a field.",
    ),
    hash("hincrbyfloat", 4, data!(hashes::hincrbyfloat))
        .write()
        .denyoom()
        .fast()
        .keys(RW_ACCESS_UPDATE)
        .about("2.6.0", "O(1)", "Adds to a number with a fraction in a field."),
    hash("hstrlen", 3, data!(fields::hstrlen)).readonly().fast().keys(RO).about(
        "3.2.0",
        "O(1)",
        "Replies the length of a field's value.",
    ),
    hash("hrandfield", -2, data!(fields::hrandfield)).readonly().flags(Flags::ORDERED).keys(RO_ACCESS).about(
        "6.2.0",
        "O(N) in the number of fields replied",
        "Replies random fields.",
    ),
    hash("hscan", -3, data!(fields::hscan)).readonly().keys(RO_ACCESS).about(
        "2.8.0",
        "O(1) a call, O(N) for all",
        "Lists the fields of a hash in pages.",
    ),
];
