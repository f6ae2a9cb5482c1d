//! Strings.

use super::*;
use crate::commands::{counters, lcs, strings};

const fn string(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::String, run)
}

const SET_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "update", "variable_flags"])];
const MSETNX_KEYS: &[KeySpec] = &[range(1, -1, 2, &["OW", "insert"])];

const MSET: Run = per_key!(strings::mset_plan, strings::mset, strings::mset_reply);

pub(super) const COMMANDS: &[Command] = &[
    string("get", 2, per_key!(READ, strings::get)).readonly().fast().keys(RO_ACCESS),
    string("set", -3, per_key!(strings::set_plan, strings::set)).stores().keys(SET_KEYS),
    string("setnx", 3, per_key!(UPDATE, strings::setnx)).stores().fast().keys(OW_INSERT),
    string("setex", 4, per_key!(PUT, strings::setex)).stores().keys(OW_UPDATE),
    string("psetex", 4, per_key!(PUT, strings::psetex)).stores().keys(OW_UPDATE),
    string("getset", 3, per_key!(UPDATE, strings::getset)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("getdel", 2, per_key!(UPDATE, strings::getdel)).write().fast().keys(RW_ACCESS_DELETE),
    string("getex", -2, per_key!(strings::getex_plan, strings::getex)).write().fast().keys(RW_ACCESS_UPDATE),
    string("mget", -2, per_key!(READ, strings::mget, strings::mget_reply))
        .readonly()
        .fast()
        .keys(RO_ACCESS_ALL),
    string("mset", -3, MSET).stores().keys(&[range(1, -1, 2, &["OW", "update"])]),
    string("msetnx", -3, data!(strings::msetnx)).stores().keys(MSETNX_KEYS),
    string("append", 3, per_key!(UPDATE, strings::append)).stores().fast().keys(RW_INSERT),
    string("strlen", 2, per_key!(READ, strings::strlen)).readonly().fast().keys(RO),
    string("getrange", 4, per_key!(READ, strings::getrange)).readonly().keys(RO_ACCESS),
    string("substr", 4, per_key!(READ, strings::getrange)).readonly().keys(RO_ACCESS),
    string("setrange", 4, per_key!(UPDATE, strings::setrange)).stores().keys(RW_UPDATE),
    string("lcs", -3, data!(lcs::lcs)).readonly().flags(Flags::HEAVY).keys(&[range(
        1,
        2,
        1,
        &["RO", "access"],
    )]),
    string("incr", 2, per_key!(UPDATE, counters::incr)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("decr", 2, per_key!(UPDATE, counters::decr)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("incrby", 3, per_key!(UPDATE, counters::incrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("decrby", 3, per_key!(UPDATE, counters::decrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("incrbyfloat", 3, per_key!(UPDATE, counters::incrbyfloat)).stores().fast().keys(RW_ACCESS_UPDATE),
];
