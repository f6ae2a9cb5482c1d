//! Strings as bits.

use super::*;
use crate::commands::{bitfield, bits};

const fn bitmap(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Bitmap, run)
}

const BITOP_KEYS: &[KeySpec] = &[range(2, 2, 1, &["OW", "update"]), range(3, -1, 1, &["RO", "access"])];
const BITFIELD_KEYS: &[KeySpec] = &[range(1, 1, 1, &["RW", "access", "update", "variable_flags"])];

pub(super) const COMMANDS: &[Command] = &[
    bitmap("setbit", 4, data!(bits::setbit)).stores().keys(RW_ACCESS_UPDATE),
    bitmap("getbit", 3, data!(bits::getbit)).readonly().fast().keys(RO_ACCESS),
    bitmap("bitcount", -2, data!(bits::bitcount)).readonly().keys(RO_ACCESS),
    bitmap("bitpos", -3, data!(bits::bitpos)).readonly().keys(RO_ACCESS),
    bitmap("bitop", -4, data!(bits::bitop)).stores().keys(BITOP_KEYS),
    bitmap("bitfield", -2, data!(bitfield::bitfield)).stores().keys(BITFIELD_KEYS),
    bitmap("bitfield_ro", -2, data!(bitfield::bitfield_ro)).readonly().fast().keys(RO_ACCESS),
];
