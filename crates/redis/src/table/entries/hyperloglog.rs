//! Strings as sketches of sets.

use super::*;
use crate::commands::hyperloglog;

const fn sketch(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::HyperLogLog, run)
}

const PFMERGE_KEYS: &[KeySpec] =
    &[range(1, 1, 1, &["RW", "access", "insert"]), range(2, -1, 1, &["RO", "access"])];
const PFDEBUG_KEYS: &[KeySpec] = &[range(2, 2, 1, &["RW", "access"])];

pub(super) const COMMANDS: &[Command] = &[
    sketch("pfadd", -2, data!(hyperloglog::pfadd)).stores().fast().keys(RW_INSERT),
    // Redis keeps the estimate in the key; a read-only command writes nothing here.
    sketch("pfcount", -2, data!(hyperloglog::pfcount)).readonly().keys(&[range(1, -1, 1, &["RW", "access"])]),
    sketch("pfmerge", -2, data!(hyperloglog::pfmerge)).stores().keys(PFMERGE_KEYS),
    sketch("pfselftest", 1, Run::Pure(hyperloglog::pfselftest)).admin(),
    sketch("pfdebug", 3, data!(hyperloglog::pfdebug)).stores().admin().keys(PFDEBUG_KEYS),
];
