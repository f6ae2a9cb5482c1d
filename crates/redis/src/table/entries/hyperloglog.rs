//! Strings as sketches of sets.

use super::*;
use crate::commands::hyperloglog;

const fn sketch(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::HyperLogLog, run)
}

pub(super) const COMMANDS: &[Command] = &[
    sketch("pfadd", -2, data!(hyperloglog::pfadd)).write().denyoom().fast().keys(RW_INSERT).about(
        "2.8.9",
        "O(1) for each element",
        "Tells elements to a HyperLogLog.",
    ),
    // Redis keeps the estimate in the key; a read-only command writes nothing here.
    sketch("pfcount", -2, data!(hyperloglog::pfcount))
        .readonly()
        .keys(&[range(1, -1, 1, &["RW", "access"])])
        .about(
            "2.8.9",
            "O(1) for each key",
            "Estimates how many distinct elements some HyperLogLogs were told together.",
        ),
    sketch("pfmerge", -2, data!(hyperloglog::pfmerge))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["RW", "access", "insert"]), range(2, -1, 1, &["RO", "access"])])
        .about("2.8.9", "O(1) for each key", "Tells a HyperLogLog what others were told."),
    sketch("pfselftest", 1, Run::Pure(hyperloglog::pfselftest)).admin().about(
        "2.8.9",
        "O(1)",
        "Looks whether HyperLogLogs estimate as they should.",
    ),
    sketch("pfdebug", 3, data!(hyperloglog::pfdebug))
        .write()
        .denyoom()
        .admin()
        .keys(&[range(2, 2, 1, &["RW", "access"])])
        .about("2.8.9", "O(1)", "Shows how a HyperLogLog is written, for debugging."),
];
