//! Hashes.

use super::*;
use crate::commands::{hash_fields as fields, hashes};

const fn hash(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Hash, run)
}

pub(super) const COMMANDS: &[Command] = &[
    hash("hset", -4, per_key!(CHANGE, hashes::hset)).stores().fast().keys(RW_UPDATE),
    hash("hmset", -4, per_key!(CHANGE, hashes::hmset)).stores().fast().keys(RW_UPDATE),
    hash("hsetnx", 4, per_key!(CHANGE, hashes::hsetnx)).stores().fast().keys(RW_INSERT),
    hash("hget", 3, per_key!(READ, fields::hget)).readonly().fast().keys(RO_ACCESS),
    hash("hmget", -3, per_key!(READ, fields::hmget)).readonly().fast().keys(RO_ACCESS),
    hash("hgetall", 2, data!(fields::hgetall)).readonly().keys(RO_ACCESS),
    hash("hdel", -3, per_key!(CHANGE, hashes::hdel)).write().fast().keys(RW_DELETE),
    hash("hlen", 2, per_key!(READ, fields::hlen)).readonly().fast().keys(RO),
    hash("hexists", 3, per_key!(READ, fields::hexists)).readonly().fast().keys(RO),
    hash("hkeys", 2, data!(fields::hkeys)).readonly().keys(RO_ACCESS),
    hash("hvals", 2, data!(fields::hvals)).readonly().keys(RO_ACCESS),
    hash("hincrby", 4, per_key!(CHANGE, hashes::hincrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    hash("hincrbyfloat", 4, per_key!(UPDATE, hashes::hincrbyfloat)).stores().fast().keys(RW_ACCESS_UPDATE),
    hash("hstrlen", 3, per_key!(READ, fields::hstrlen)).readonly().fast().keys(RO),
    hash("hrandfield", -2, data!(fields::hrandfield)).readonly().flags(Flags::ORDERED).keys(RO_ACCESS),
    hash("hscan", -3, data!(fields::hscan)).readonly().keys(RO_ACCESS),
];
