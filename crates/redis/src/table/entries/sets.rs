//! Sets.

use super::*;
use crate::commands::{set_algebra as algebra, sets};

const fn set(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Set, run)
}

const COUNTED: &[KeySpec] = &[counted(1, &["RO", "access"])];
const RO_ACCESS_FROM_SECOND: KeySpec = range(2, -1, 1, &["RO", "access"]);

const SINTERSTORE_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RW", "update"]), RO_ACCESS_FROM_SECOND];
const SUNIONSTORE_KEYS: &[KeySpec] = &[range(1, 1, 1, &["OW", "update"]), RO_ACCESS_FROM_SECOND];

pub(super) const COMMANDS: &[Command] = &[
    set("sadd", -3, per_key!(CHANGE, sets::sadd)).stores().fast().keys(RW_INSERT),
    set("srem", -3, per_key!(CHANGE, sets::srem)).write().fast().keys(RW_DELETE),
    set("smove", 4, data!(sets::smove)).write().fast().keys(MOVE),
    set("sismember", 3, per_key!(READ, sets::sismember)).readonly().fast().keys(RO),
    set("smismember", -3, per_key!(READ, sets::smismember)).readonly().fast().keys(RO_ACCESS),
    set("smembers", 2, data!(sets::smembers)).readonly().keys(RO_ACCESS),
    set("scard", 2, per_key!(READ, sets::scard)).readonly().fast().keys(RO),
    set("sscan", -3, data!(sets::sscan)).readonly().keys(RO_ACCESS),
    set("srandmember", -2, data!(sets::srandmember)).readonly().flags(Flags::ORDERED).keys(RO_ACCESS),
    set("spop", -2, data!(sets::spop)).write().fast().keys(RW_ACCESS_DELETE),
    set("sinter", -2, data!(algebra::sinter)).readonly().keys(RO_ACCESS_ALL),
    set("sinterstore", -3, data!(algebra::sinterstore)).stores().keys(SINTERSTORE_KEYS),
    set("sintercard", -3, data!(algebra::sintercard)).readonly().movable().keys(COUNTED),
    set("sunion", -2, data!(algebra::sunion)).readonly().keys(RO_ACCESS_ALL),
    set("sunionstore", -3, data!(algebra::sunionstore)).stores().keys(SUNIONSTORE_KEYS),
    set("sdiff", -2, data!(algebra::sdiff)).readonly().keys(RO_ACCESS_ALL),
    set("sdiffstore", -3, data!(algebra::sdiffstore)).stores().keys(SUNIONSTORE_KEYS),
];
