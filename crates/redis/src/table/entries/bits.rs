//! Strings as bits.

use super::*;
use crate::commands::{bitfield, bits};

const fn bitmap(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Bitmap, run)
}

pub(super) const COMMANDS: &[Command] = &[
    bitmap("setbit", 4, data!(bits::setbit)).write().denyoom().keys(RW_ACCESS_UPDATE).about(
        "2.2.0",
        "O(1)",
        "Sets or clears a bit.",
    ),
    bitmap("getbit", 3, data!(bits::getbit)).readonly().fast().keys(RO_ACCESS).about(
        "2.2.0",
        "O(1)",
        "Replies a bit.",
    ),
    bitmap("bitcount", -2, data!(bits::bitcount)).readonly().keys(RO_ACCESS).about(
        "2.6.0",
        "O(N) in the length of the part",
        "Counts the bits that are set in a part of a string.",
    ),
    bitmap("bitpos", -3, data!(bits::bitpos)).readonly().keys(RO_ACCESS).about(
        "2.8.7",
        "O(N) in the length of the part",
        "Finds the first bit of a part that is set, or that is clear.",
    ),
    bitmap("bitop", -4, data!(bits::bitop))
        .write()
        .denyoom()
        .keys(&[range(2, 2, 1, &["OW", "update"]), range(3, -1, 1, &["RO", "access"])])
        .about(
            "2.6.0",
            "O(N) in the length of the strings",
            "Combines strings bit by bit and stores the result.",
        ),
    bitmap("bitfield", -2, data!(bitfield::bitfield))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["RW", "access", "update", "variable_flags"])])
        .about(
            "3.2.0",
            "O(1) for each operation",
            "Reads, sets and increments integers of any width inside a string.",
        ),
    bitmap("bitfield_ro", -2, data!(bitfield::bitfield_ro)).readonly().fast().keys(RO_ACCESS).about(
        "6.0.0",
        "O(1) for each operation",
        "Reads integers of any width inside a string.",
    ),
];
