//! Sorted sets.

use super::*;
use crate::commands::blocking;
use crate::commands::sorted_sets::{add, combine, pop, ranges, read, remove};

const fn sorted(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::SortedSet, run)
}

const SOURCES: KeySpec = KeySpec { places: KeyPlaces::Counted { at: 1 }, flags: &["RO", "access"] };
const DESTINATION_AND_SOURCES: &[KeySpec] = &[
    range(1, 1, 1, &["OW", "update"]),
    KeySpec { places: KeyPlaces::Counted { at: 2 }, flags: &["RO", "access"] },
];

pub(super) const COMMANDS: &[Command] = &[
    sorted("zadd", -4, data!(add::zadd)).write().denyoom().fast().keys(RW_UPDATE).about(
        "1.2.0",
        "O(log N) for each member",
        "Gives members of a sorted set their scores.",
    ),
    sorted("zincrby", 4, data!(add::zincrby)).write().denyoom().fast().keys(RW_ACCESS_UPDATE).about(
        "1.2.0",
        "O(log N)",
        "Adds to the score of a member.",
    ),
    sorted("zrem", -3, data!(remove::zrem)).write().fast().keys(RW_DELETE).about(
        "1.2.0",
        "O(log N) for each member",
        "Removes members of a sorted set.",
    ),
    sorted("zremrangebyrank", 4, data!(remove::zremrangebyrank)).write().keys(RW_DELETE).about(
        "2.0.0",
        "O(log N) for each member removed",
        "Removes the members of some ranks.",
    ),
    sorted("zremrangebyscore", 4, data!(remove::zremrangebyscore)).write().keys(RW_DELETE).about(
        "1.2.0",
        "O(log N) for each member removed",
        "Removes the members of some scores.",
    ),
    sorted("zremrangebylex", 4, data!(remove::zremrangebylex)).write().keys(RW_DELETE).about(
        "2.8.9",
        "O(log N) for each member removed",
        "Removes the members of some names, where scores are equal.",
    ),
    sorted("zpopmin", -2, data!(pop::zpopmin)).write().fast().keys(RW_ACCESS_DELETE).about(
        "5.0.0",
        "O(log N) for each member",
        "Removes and replies the members of the lowest scores.",
    ),
    sorted("zpopmax", -2, data!(pop::zpopmax)).write().fast().keys(RW_ACCESS_DELETE).about(
        "5.0.0",
        "O(log N) for each member",
        "Removes and replies the members of the highest scores.",
    ),
    sorted("zmpop", -4, data!(pop::zmpop))
        .write()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[KeySpec { places: KeyPlaces::Counted { at: 1 }, flags: &["RW", "access", "delete"] }])
        .about(
            "7.0.0",
            "O(K) + O(log N) for each member, of K keys",
            "Removes and replies members of the first of several sorted sets that has any.",
        ),
    sorted("bzpopmin", -3, data!(blocking::bzpopmin)).write().fast().blocking().keys(ALL_BUT_LAST).about(
        "5.0.0",
        "O(log N)",
        "Takes the member of the lowest score of the first of some sorted sets that exists, and waits \
             for one if none does.",
    ),
    sorted("bzpopmax", -3, data!(blocking::bzpopmax)).write().fast().blocking().keys(ALL_BUT_LAST).about(
        "5.0.0",
        "O(log N)",
        "Takes the member of the highest score of the first of some sorted sets that exists, and waits \
             for one if none does.",
    ),
    sorted("bzmpop", -5, data!(blocking::bzmpop))
        .write()
        .blocking()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[KeySpec { places: KeyPlaces::Counted { at: 2 }, flags: &["RW", "access", "delete"] }])
        .about(
            "7.0.0",
            "O(K) + O(log N) for each member, of K keys",
            "Takes members of the first of some sorted sets that exists, and waits for one if none does.",
        ),
    sorted("zscore", 3, data!(read::zscore)).readonly().fast().keys(RO_ACCESS).about(
        "1.2.0",
        "O(log N)",
        "Replies the score of a member.",
    ),
    sorted("zmscore", -3, data!(read::zmscore)).readonly().fast().keys(RO_ACCESS).about(
        "6.2.0",
        "O(log N) for each member",
        "Replies the scores of several members.",
    ),
    sorted("zcard", 2, data!(read::zcard)).readonly().fast().keys(RO).about(
        "1.2.0",
        "O(1)",
        "Replies the number of members.",
    ),
    // From Redis 7.2 on they have WITHSCORE, and with it this arity.
    sorted("zrank", -3, data!(read::zrank)).readonly().fast().keys(RO_ACCESS).about(
        "2.0.0",
        "O(log N)",
        "Replies how many members have lower scores than one.",
    ),
    sorted("zrevrank", -3, data!(read::zrevrank)).readonly().fast().keys(RO_ACCESS).about(
        "2.0.0",
        "O(log N)",
        "Replies how many members have higher scores than one.",
    ),
    sorted("zrandmember", -2, data!(read::zrandmember))
        .readonly()
        .flags(Flags::ORDERED)
        .keys(RO_ACCESS)
        .about("6.2.0", "O(log N) for each member replied", "Replies random members."),
    sorted("zscan", -3, data!(read::zscan)).readonly().keys(RO_ACCESS).about(
        "2.8.0",
        "O(1) a call, O(N) for all",
        "Lists the members of a sorted set in pages.",
    ),
    sorted("zcount", 4, data!(ranges::zcount)).readonly().fast().keys(RO_ACCESS).about(
        "2.0.0",
        "O(log N)",
        "Counts the members of some scores.",
    ),
    sorted("zlexcount", 4, data!(ranges::zlexcount)).readonly().fast().keys(RO_ACCESS).about(
        "2.8.9",
        "O(log N)",
        "Counts the members of some names, where scores are equal.",
    ),
    sorted("zrange", -4, data!(ranges::zrange)).readonly().keys(RO_ACCESS).about(
        "1.2.0",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some ranks, scores or names.",
    ),
    sorted("zrangestore", -5, data!(ranges::zrangestore))
        .write()
        .denyoom()
        .keys(&[range(1, 1, 1, &["OW", "update"]), range(2, 2, 1, &["RO", "access"])])
        .about(
            "6.2.0",
            "O(log N) + O(M log M), of M members stored",
            "Stores the members of some ranks, scores or names.",
        ),
    sorted("zrevrange", -4, data!(ranges::zrevrange)).readonly().keys(RO_ACCESS).about(
        "1.2.0",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some ranks, counted from the highest score.",
    ),
    sorted("zrangebyscore", -4, data!(ranges::zrangebyscore)).readonly().keys(RO_ACCESS).about(
        "1.0.5",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some scores.",
    ),
    sorted("zrevrangebyscore", -4, data!(ranges::zrevrangebyscore)).readonly().keys(RO_ACCESS).about(
        "2.2.0",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some scores, the highest first.",
    ),
    sorted("zrangebylex", -4, data!(ranges::zrangebylex)).readonly().keys(RO_ACCESS).about(
        "2.8.9",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some names, where scores are equal.",
    ),
    sorted("zrevrangebylex", -4, data!(ranges::zrevrangebylex)).readonly().keys(RO_ACCESS).about(
        "2.8.9",
        "O(log N) + O(M), of M members replied",
        "Replies the members of some names, the last first, where scores are equal.",
    ),
    sorted("zunion", -3, data!(combine::zunion)).readonly().flags(Flags::MOVABLEKEYS).keys(&[SOURCES]).about(
        "6.2.0",
        "O(N) + O(M log M), of M members replied",
        "Replies the members of any of several sets.",
    ),
    sorted("zunionstore", -4, data!(combine::zunionstore))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .keys(DESTINATION_AND_SOURCES)
        .about(
            "2.0.0",
            "O(N) + O(M log M), of M members stored",
            "Stores the members of any of several sets.",
        ),
    sorted("zinter", -3, data!(combine::zinter)).readonly().flags(Flags::MOVABLEKEYS).keys(&[SOURCES]).about(
        "6.2.0",
        "O(N K) + O(M log M), of K sets, the smallest of N members",
        "Replies the members that several sets have in common.",
    ),
    sorted("zinterstore", -4, data!(combine::zinterstore))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .keys(DESTINATION_AND_SOURCES)
        .about(
            "2.0.0",
            "O(N K) + O(M log M), of K sets, the smallest of N members",
            "Stores the members that several sets have in common.",
        ),
    sorted("zintercard", -3, data!(combine::zintercard))
        .readonly()
        .flags(Flags::MOVABLEKEYS)
        .keys(&[SOURCES])
        .about(
            "7.0.0",
            "O(N K), of K sets, the smallest of N members",
            "Counts the members that several sets have in common.",
        ),
    sorted("zdiff", -3, data!(combine::zdiff)).readonly().flags(Flags::MOVABLEKEYS).keys(&[SOURCES]).about(
        "6.2.0",
        "O(N K) at most, of K sets, the first of N members",
        "Replies the members that the first of several sets has alone.",
    ),
    sorted("zdiffstore", -4, data!(combine::zdiffstore))
        .write()
        .denyoom()
        .flags(Flags::MOVABLEKEYS)
        .keys(DESTINATION_AND_SOURCES)
        .about(
            "6.2.0",
            "O(N K) at most, of K sets, the first of N members",
            "Stores the members that the first of several sets has alone.",
        ),
];
