//! Sorted sets.

use super::*;
use crate::commands::blocking;
use crate::commands::sorted_sets::{add, combine, pop, ranges, read, remove};

const fn sorted(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::SortedSet, run)
}

const SOURCES: KeySpec = counted(1, &["RO", "access"]);
const STORES: &[KeySpec] = &[range(1, 1, 1, &["OW", "update"]), counted(2, &["RO", "access"])];

const BZMPOP_KEYS: &[KeySpec] = &[counted(2, &["RW", "access", "delete"])];
const ZRANGESTORE_KEYS: &[KeySpec] = &[range(1, 1, 1, &["OW", "update"]), range(2, 2, 1, &["RO", "access"])];

pub(super) const COMMANDS: &[Command] = &[
    sorted("zadd", -4, per_key!(CHANGE, add::zadd)).stores().fast().keys(RW_UPDATE),
    sorted("zincrby", 4, per_key!(CHANGE, add::zincrby)).stores().fast().keys(RW_ACCESS_UPDATE),
    sorted("zrem", -3, per_key!(CHANGE, remove::zrem)).write().fast().keys(RW_DELETE),
    sorted("zremrangebyrank", 4, data!(remove::zremrangebyrank)).write().keys(RW_DELETE),
    sorted("zremrangebyscore", 4, data!(remove::zremrangebyscore)).write().keys(RW_DELETE),
    sorted("zremrangebylex", 4, data!(remove::zremrangebylex)).write().keys(RW_DELETE),
    sorted("zpopmin", -2, data!(pop::zpopmin)).write().fast().keys(RW_ACCESS_DELETE),
    sorted("zpopmax", -2, data!(pop::zpopmax)).write().fast().keys(RW_ACCESS_DELETE),
    sorted("zmpop", -4, data!(pop::zmpop)).write().movable().keys(&[counted(1, &["RW", "access", "delete"])]),
    sorted("bzpopmin", -3, data!(blocking::bzpopmin)).write().fast().blocking().keys(ALL_BUT_LAST),
    sorted("bzpopmax", -3, data!(blocking::bzpopmax)).write().fast().blocking().keys(ALL_BUT_LAST),
    sorted("bzmpop", -5, data!(blocking::bzmpop)).write().blocking().movable().keys(BZMPOP_KEYS),
    sorted("zscore", 3, per_key!(READ, read::zscore)).readonly().fast().keys(RO_ACCESS),
    sorted("zmscore", -3, per_key!(READ, read::zmscore)).readonly().fast().keys(RO_ACCESS),
    sorted("zcard", 2, per_key!(READ, read::zcard)).readonly().fast().keys(RO),
    // From Redis 7.2 on they have WITHSCORE, and with it this arity.
    sorted("zrank", -3, data!(read::zrank)).readonly().fast().keys(RO_ACCESS),
    sorted("zrevrank", -3, data!(read::zrevrank)).readonly().fast().keys(RO_ACCESS),
    sorted("zrandmember", -2, data!(read::zrandmember)).readonly().flags(Flags::ORDERED).keys(RO_ACCESS),
    sorted("zscan", -3, data!(read::zscan)).readonly().keys(RO_ACCESS),
    sorted("zcount", 4, data!(ranges::zcount)).readonly().fast().keys(RO_ACCESS),
    sorted("zlexcount", 4, data!(ranges::zlexcount)).readonly().fast().keys(RO_ACCESS),
    sorted("zrange", -4, data!(ranges::zrange)).readonly().keys(RO_ACCESS),
    sorted("zrangestore", -5, data!(ranges::zrangestore)).stores().keys(ZRANGESTORE_KEYS),
    sorted("zrevrange", -4, data!(ranges::zrevrange)).readonly().keys(RO_ACCESS),
    sorted("zrangebyscore", -4, data!(ranges::zrangebyscore)).readonly().keys(RO_ACCESS),
    sorted("zrevrangebyscore", -4, data!(ranges::zrevrangebyscore)).readonly().keys(RO_ACCESS),
    sorted("zrangebylex", -4, data!(ranges::zrangebylex)).readonly().keys(RO_ACCESS),
    sorted("zrevrangebylex", -4, data!(ranges::zrevrangebylex)).readonly().keys(RO_ACCESS),
    sorted("zunion", -3, data!(combine::zunion)).readonly().movable().keys(&[SOURCES]),
    sorted("zunionstore", -4, data!(combine::zunionstore)).stores().movable().keys(STORES),
    sorted("zinter", -3, data!(combine::zinter)).readonly().movable().keys(&[SOURCES]),
    sorted("zinterstore", -4, data!(combine::zinterstore)).stores().movable().keys(STORES),
    sorted("zintercard", -3, data!(combine::zintercard)).readonly().movable().keys(&[SOURCES]),
    sorted("zdiff", -3, data!(combine::zdiff)).readonly().movable().keys(&[SOURCES]),
    sorted("zdiffstore", -4, data!(combine::zdiffstore)).stores().movable().keys(STORES),
];
