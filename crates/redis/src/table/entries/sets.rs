//! Sets.

use super::*;
use crate::commands::{set_algebra as algebra, sets};

const fn set(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Set, run)
}

const COUNTED: &[KeySpec] = &[KeySpec { places: KeyPlaces::Counted { at: 1 }, flags: &["RO", "access"] }];
const RO_ACCESS_FROM_SECOND: KeySpec = range(2, -1, 1, &["RO", "access"]);

pub(super) const COMMANDS: &[Command] = &[
    set("sadd", -3, data!(sets::sadd)).write().denyoom().fast().keys(RW_INSERT).about(
        "1.0.0",
        "O(N) in the number of members added",
        "Adds members to a set.",
    ),
    set("srem", -3, data!(sets::srem)).write().fast().keys(RW_DELETE).about(
        "1.0.0",
        "O(N) in the number of members removed",
        "Removes members of a set.",
    ),
    set("smove", 4, data!(sets::smove)).write().fast().keys(MOVE).about(
        "1.0.0",
        "O(log N) in the sizes of the sets",
        "Moves a member from a set to another.",
    ),
    set("sismember", 3, data!(sets::sismember)).readonly().fast().keys(RO).about(
        "1.0.0",
        "O(1)",
        "Tells whether a member is in a set.",
    ),
    set("smismember", -3, data!(sets::smismember)).readonly().fast().keys(RO_ACCESS).about(
        "6.2.0",
        "O(N) in the number of members asked for",
        "Tells which of some members are in a set.",
    ),
    set("smembers", 2, data!(sets::smembers)).readonly().keys(RO_ACCESS).about(
        "1.0.0",
        "O(N) in the size of the set",
        "Replies all members of a set.",
    ),
    set("scard", 2, data!(sets::scard)).readonly().fast().keys(RO).about(
        "1.0.0",
        "O(1)",
        "Replies the number of members of a set.",
    ),
    set("sscan", -3, data!(sets::sscan)).readonly().keys(RO_ACCESS).about(
        "2.8.0",
        "O(1) a call, O(N) for all",
        "Lists the members of a set in pages.",
    ),
    set("srandmember", -2, data!(sets::srandmember)).readonly().flags(Flags::ORDERED).keys(RO_ACCESS).about(
        "1.0.0",
        "O(N) in the number of members replied",
        "Replies random members of a set.",
    ),
    set("spop", -2, data!(sets::spop)).write().fast().keys(RW_ACCESS_DELETE).about(
        "1.0.0",
        "O(N) in the number of members popped",
        "Takes random members from a set.",
    ),
    set("sinter", -2, data!(algebra::sinter)).readonly().keys(RO_ACCESS_ALL).about(
        "1.0.0",
        "O(N*M) in the size of the smallest set and the number of sets",
        "Replies the members that several sets have in common.",
    ),
    set("sinterstore", -3, data!(algebra::sinterstore))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["RW", "update"]), RO_ACCESS_FROM_SECOND])
        .about(
            "1.0.0",
            "O(N*M) in the size of the smallest set and the number of sets",
            "Makes a set of the members that several sets have in common.",
        ),
    set("sintercard", -3, data!(algebra::sintercard))
        .readonly()
        .flags(Flags::MOVABLEKEYS)
        .keys(COUNTED)
        .about(
            "7.0.0",
            "O(N*M) in the size of the smallest set and the number of sets",
            "Counts the members that several sets have in common.",
        ),
    set("sunion", -2, data!(algebra::sunion)).readonly().keys(RO_ACCESS_ALL).about(
        "1.0.0",
        "O(N) in the sizes of all sets",
        "Replies the members of several sets together.",
    ),
    set("sunionstore", -3, data!(algebra::sunionstore))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["OW", "update"]), RO_ACCESS_FROM_SECOND])
        .about(
            "1.0.0",
            "O(N) in the sizes of all sets but the largest",
            "Makes a set of the members of several sets together.",
        ),
    set("sdiff", -2, data!(algebra::sdiff)).readonly().keys(RO_ACCESS_ALL).about(
        "1.0.0",
        "O(N) in the sizes of all sets",
        "Replies the members of a set that others do not have.",
    ),
    set("sdiffstore", -3, data!(algebra::sdiffstore))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["OW", "update"]), RO_ACCESS_FROM_SECOND])
        .about(
            "1.0.0",
            "O(N) in the sizes of all sets but the first",
            "Makes a set of the members of a set that others do not have.",
        ),
];
