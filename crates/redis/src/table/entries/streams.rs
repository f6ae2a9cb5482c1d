//! Streams.

use super::*;
use crate::commands::streams::{add, claim, groups, info, read};

const fn stream(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Stream, run)
}

const fn streams_from(start: usize) -> KeySpec {
    KeySpec { places: KeyPlaces::Word { word: "STREAMS", start, half: true }, flags: &["RO", "access"] }
}

const READ: &[KeySpec] = &[streams_from(1)];
const READ_GROUP: &[KeySpec] = &[streams_from(4)];
const SECOND_ACCESS: &[KeySpec] = &[range(2, 2, 1, &["RO", "access"])];
const SECOND_UPDATE: &[KeySpec] = &[range(2, 2, 1, &["RW", "update"])];
const SECOND_INSERT: &[KeySpec] = &[range(2, 2, 1, &["RW", "insert"])];
const SECOND_DELETE: &[KeySpec] = &[range(2, 2, 1, &["RW", "delete"])];
/// Ordered because of the time: see [`Flags::ORDERED`].
const READ_AT_A_TIME: Flags = Flags::READONLY.with(Flags::ORDERED);
const WAITS: Flags = Flags::BLOCKING.with(Flags::MOVABLEKEYS);

const XGROUP: &[Command] = &[
    stream("xgroup|create", -5, data!(groups::create)).stores().keys(SECOND_INSERT),
    stream("xgroup|createconsumer", 5, data!(groups::create_consumer)).stores().keys(SECOND_INSERT),
    stream("xgroup|delconsumer", 5, data!(groups::delete_consumer)).write().keys(SECOND_DELETE),
    stream("xgroup|destroy", 4, data!(groups::destroy)).write().keys(SECOND_DELETE),
    stream("xgroup|help", 2, help!("XGROUP")).always(),
    stream("xgroup|setid", -5, data!(groups::set_id)).write().keys(SECOND_UPDATE),
];

const XINFO: &[Command] = &[
    stream("xinfo|consumers", 4, data!(info::consumers)).flags(READ_AT_A_TIME).keys(SECOND_ACCESS),
    stream("xinfo|groups", 3, data!(info::groups)).readonly().keys(SECOND_ACCESS),
    stream("xinfo|help", 2, help!("XINFO")).always(),
    stream("xinfo|stream", -3, data!(info::of_stream)).readonly().keys(SECOND_ACCESS),
];

pub(super) const COMMANDS: &[Command] = &[
    stream("xadd", -5, per_key!(add::xadd_plan, add::xadd)).stores().fast().keys(RW_UPDATE),
    stream("xtrim", -4, data!(add::xtrim)).write().keys(RW_DELETE),
    stream("xdel", -3, data!(add::xdel)).write().fast().keys(RW_DELETE),
    stream("xlen", 2, data!(add::xlen)).readonly().fast().keys(RO),
    stream("xsetid", -3, data!(add::xsetid)).stores().fast().keys(RW_UPDATE),
    stream("xrange", -4, data!(read::xrange)).readonly().keys(RO_ACCESS),
    stream("xrevrange", -4, data!(read::xrevrange)).readonly().keys(RO_ACCESS),
    stream("xread", -4, data!(read::xread)).readonly().flags(WAITS).keys(READ),
    stream("xreadgroup", -7, data!(read::xreadgroup)).write().flags(WAITS).keys(READ_GROUP),
    stream("xack", -4, data!(groups::xack)).write().fast().keys(RW_UPDATE),
    stream("xpending", -3, data!(groups::xpending)).flags(READ_AT_A_TIME).keys(RO_ACCESS),
    stream("xclaim", -6, data!(claim::xclaim)).write().fast().keys(RW_UPDATE),
    stream("xautoclaim", -6, data!(claim::xautoclaim)).write().fast().keys(RW_DELETE),
    stream("xgroup", -2, Run::Container(XGROUP)),
    stream("xinfo", -2, Run::Container(XINFO)),
];
