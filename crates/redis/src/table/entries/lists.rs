//! Lists.

use super::*;
use crate::commands::{blocking, list_elements as elements, lists};

const fn list(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::List, run)
}

const COUNTED: &[KeySpec] = &[counted(1, &["RW", "access", "delete"])];

const BLMPOP_KEYS: &[KeySpec] = &[counted(2, &["RW", "access", "delete"])];

pub(super) const COMMANDS: &[Command] = &[
    list("lpush", -3, per_key!(CHANGE, lists::lpush)).stores().fast().keys(RW_INSERT),
    list("rpush", -3, per_key!(CHANGE, lists::rpush)).stores().fast().keys(RW_INSERT),
    list("lpushx", -3, per_key!(CHANGE, lists::lpushx)).stores().fast().keys(RW_INSERT),
    list("rpushx", -3, per_key!(CHANGE, lists::rpushx)).stores().fast().keys(RW_INSERT),
    list("lpop", -2, per_key!(CHANGE, lists::lpop)).write().fast().keys(RW_ACCESS_DELETE),
    list("rpop", -2, per_key!(CHANGE, lists::rpop)).write().fast().keys(RW_ACCESS_DELETE),
    list("lmpop", -4, data!(lists::lmpop)).write().movable().keys(COUNTED),
    list("lmove", 5, data!(lists::lmove)).stores().keys(MOVE),
    list("rpoplpush", 3, data!(lists::rpoplpush)).stores().keys(MOVE),
    list("blpop", -3, data!(blocking::blpop)).write().blocking().keys(ALL_BUT_LAST),
    list("brpop", -3, data!(blocking::brpop)).write().blocking().keys(ALL_BUT_LAST),
    list("blmove", 6, data!(blocking::blmove)).stores().blocking().keys(MOVE),
    list("brpoplpush", 4, data!(blocking::brpoplpush)).stores().blocking().keys(MOVE),
    list("blmpop", -5, data!(blocking::blmpop)).write().blocking().movable().keys(BLMPOP_KEYS),
    list("llen", 2, per_key!(READ, elements::llen)).readonly().fast().keys(RO),
    list("lindex", 3, per_key!(READ, elements::lindex)).readonly().keys(RO_ACCESS),
    list("lrange", 4, data!(elements::lrange)).readonly().keys(RO_ACCESS),
    list("lset", 4, per_key!(UPDATE, elements::lset)).stores().keys(RW_UPDATE),
    list("linsert", 5, data!(elements::linsert)).stores().keys(RW_INSERT),
    list("lrem", 4, data!(elements::lrem)).write().keys(RW_DELETE),
    list("ltrim", 4, data!(elements::ltrim)).write().keys(RW_DELETE),
    list("lpos", -3, data!(elements::lpos)).readonly().keys(RO_ACCESS),
];
