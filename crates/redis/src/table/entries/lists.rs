//! Lists.

use super::*;
use crate::commands::{blocking, list_elements as elements, lists};

const fn list(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::List, run)
}

const COUNTED: &[KeySpec] =
    &[KeySpec { places: KeyPlaces::Counted { at: 1 }, flags: &["RW", "access", "delete"] }];

pub(super) const COMMANDS: &[Command] = &[
    list("lpush", -3, data!(lists::lpush)).write().denyoom().fast().keys(RW_INSERT).about(
        "1.0.0",
        "O(N) in the number of elements pushed",
        "Puts elements before the first of a list.",
    ),
    list("rpush", -3, data!(lists::rpush)).write().denyoom().fast().keys(RW_INSERT).about(
        "1.0.0",
        "O(N) in the number of elements pushed",
        "Puts elements behind the last of a list.",
    ),
    list("lpushx", -3, data!(lists::lpushx)).write().denyoom().fast().keys(RW_INSERT).about(
        "2.2.0",
        "O(N) in the number of elements pushed",
        "Puts elements before the first of a list that exists.",
    ),
    list("rpushx", -3, data!(lists::rpushx)).write().denyoom().fast().keys(RW_INSERT).about(
        "2.2.0",
        "O(N) in the number of elements pushed",
        "Puts elements behind the last of a list that exists.",
    ),
    list("lpop", -2, data!(lists::lpop)).write().fast().keys(RW_ACCESS_DELETE).about(
        "1.0.0",
        "O(N) in the number of elements popped",
        "Takes elements from the start of a list.",
    ),
    list("rpop", -2, data!(lists::rpop)).write().fast().keys(RW_ACCESS_DELETE).about(
        "1.0.0",
        "O(N) in the number of elements popped",
        "Takes elements from the end of a list.",
    ),
    list("lmpop", -4, data!(lists::lmpop)).write().flags(Flags::MOVABLEKEYS).keys(COUNTED).about(
        "7.0.0",
        "O(N+M) in the numbers of keys and of elements popped",
        "Takes elements from the first of some lists that exists.",
    ),
    list("lmove", 5, data!(lists::lmove)).write().denyoom().keys(MOVE).about(
        "6.2.0",
        "O(log N) in the lengths of the lists",
        "Moves an element from an end of a list to an end of another.",
    ),
    list("rpoplpush", 3, data!(lists::rpoplpush)).write().denyoom().keys(MOVE).about(
        "1.2.0",
        "O(log N) in the lengths of the lists",
        "Moves the last element of a list to the start of another.",
    ),
    list("blpop", -3, data!(blocking::blpop)).write().blocking().keys(ALL_BUT_LAST).about(
        "2.0.0",
        "O(N) in the number of keys",
        "Takes the first element of the first of some lists that exists, and waits for one if none does.",
    ),
    list("brpop", -3, data!(blocking::brpop)).write().blocking().keys(ALL_BUT_LAST).about(
        "2.0.0",
        "O(N) in the number of keys",
        "Takes the last element of the first of some lists that exists, and waits for one if none does.",
    ),
    list("blmove", 6, data!(blocking::blmove)).write().denyoom().blocking().keys(MOVE).about(
        "6.2.0",
        "O(log N) in the lengths of the lists",
        "Moves an element from an end of a list to an end of another, and waits for one if there is none.",
    ),
    list("brpoplpush", 4, data!(blocking::brpoplpush)).write().denyoom().blocking().keys(MOVE).about(
        "2.2.0",
        "O(log N) in the lengths of the lists",
        "Moves the last element of a list to the start of another, and waits for one if there is none.",
    ),
    list("blmpop", -5, data!(blocking::blmpop))
        .write()
        .blocking()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[KeySpec { places: KeyPlaces::Counted { at: 2 }, flags: &["RW", "access", "delete"] }])
        .about(
            "7.0.0",
            "O(N+M) in the numbers of keys and of elements popped",
            "Takes elements from the first of some lists that exists, and waits for one if none does.",
        ),
    list("llen", 2, data!(elements::llen)).readonly().fast().keys(RO).about(
        "1.0.0",
        "O(1)",
        "Replies the length of a list.",
    ),
    list("lindex", 3, data!(elements::lindex)).readonly().keys(RO_ACCESS).about(
        "1.0.0",
        "O(log N) in the length of the list",
        "Replies the element at a place of a list.",
    ),
    list("lrange", 4, data!(elements::lrange)).readonly().keys(RO_ACCESS).about(
        "1.0.0",
        "O(log N) in the length of the list, O(M) in the number of elements replied",
        "Replies the elements between two places of a list.",
    ),
    list("lset", 4, data!(elements::lset)).write().denyoom().keys(RW_UPDATE).about(
        "1.0.0",
        "O(log N) in the length of the list",
        "Replaces the element at a place of a list.",
    ),
    list("linsert", 5, data!(elements::linsert)).write().denyoom().keys(RW_INSERT).about(
        "2.2.0",
        "O(N) in the number of elements before the pivot",
        "Puts an element before or behind another in a list.",
    ),
    list("lrem", 4, data!(elements::lrem)).write().keys(RW_DELETE).about(
        "1.0.0",
        "O(N) in the length of the list",
        "Removes elements of a list that equal one.",
    ),
    list("ltrim", 4, data!(elements::ltrim)).write().keys(RW_DELETE).about(
        "1.0.0",
        "O(N) in the number of elements removed",
        "Removes the elements of a list that are not between two places.",
    ),
    list("lpos", -3, data!(elements::lpos)).readonly().keys(RO_ACCESS).about(
        "6.0.6",
        "O(N) in the number of elements compared",
        "Replies the places of an element in a list.",
    ),
];
