//! Strings.

use super::*;
use crate::commands::{counters, lcs, strings};

const fn string(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::String, run)
}

const SET_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "update", "variable_flags"])];
const MSETNX_KEYS: &[KeySpec] = &[range(1, -1, 2, &["OW", "insert"])];

pub(super) const COMMANDS: &[Command] = &[
    string("get", 2, data!(strings::get)).readonly().fast().keys(RO_ACCESS),
    string("set", -3, data!(strings::set)).stores().keys(SET_KEYS),
    string("setnx", 3, data!(strings::setnx)).stores().fast().keys(OW_INSERT),
    string("setex", 4, data!(strings::setex)).stores().keys(OW_UPDATE),
    string("psetex", 4, data!(strings::psetex)).stores().keys(OW_UPDATE),
    string("getset", 3, data!(strings::getset)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("getdel", 2, data!(strings::getdel)).write().fast().keys(RW_ACCESS_DELETE),
    string("getex", -2, data!(strings::getex)).write().fast().keys(RW_ACCESS_UPDATE),
    string("mget", -2, data!(strings::mget)).readonly().fast().keys(RO_ACCESS_ALL),
    string("mset", -3, data!(strings::mset)).stores().keys(&[range(1, -1, 2, &["OW", "update"])]),
    string("msetnx", -3, data!(strings::msetnx)).stores().keys(MSETNX_KEYS),
    string("append", 3, data!(strings::append)).stores().fast().keys(RW_INSERT),
    string("strlen", 2, data!(strings::strlen)).readonly().fast().keys(RO),
    string("getrange", 4, data!(strings::getrange)).readonly().keys(RO_ACCESS),
    string("substr", 4, data!(strings::getrange)).readonly().keys(RO_ACCESS),
    string("setrange", 4, data!(strings::setrange)).stores().keys(RW_UPDATE),
    string("lcs", -3, data!(lcs::lcs)).readonly().keys(&[range(1, 2, 1, &["RO", "access"])]),
    string("incr", 2, data!(counters::incr)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("decr", 2, data!(counters::decr)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("incrby", 3, data!(counters::incrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("decrby", 3, data!(counters::decrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    string("incrbyfloat", 3, data!(counters::incrbyfloat)).stores().fast().keys(RW_ACCESS_UPDATE),
];
