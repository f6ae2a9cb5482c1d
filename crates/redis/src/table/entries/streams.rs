//! Streams.

use super::*;
use crate::commands::pure;
use crate::commands::streams::{add, claim, groups, info, read};

const fn stream(name: &'static str, arity: i16, run: Run) -> Command {
    let mut command = Command::new(name, arity, Group::Stream, run);
    command.since = "5.0.0";
    command
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
    stream("xgroup|create", -5, data!(groups::create)).write().denyoom().keys(SECOND_INSERT).about(
        "5.0.0",
        "O(log N)",
        "Makes a consumer group.",
    ),
    stream("xgroup|createconsumer", 5, data!(groups::create_consumer))
        .write()
        .denyoom()
        .keys(SECOND_INSERT)
        .about("6.2.0", "O(log N)", "Makes a consumer in a group."),
    stream("xgroup|delconsumer", 5, data!(groups::delete_consumer)).write().keys(SECOND_DELETE).about(
        "5.0.0",
        "O(N log M) in the number of entries that it has pending",
        "Removes a consumer from a group.",
    ),
    stream("xgroup|destroy", 4, data!(groups::destroy)).write().keys(SECOND_DELETE).about(
        "5.0.0",
        "O(log N)",
        "Removes a consumer group.",
    ),
    stream("xgroup|help", 2, Run::Pure(xgroup_help)).always().about("5.0.0", "O(1)", "Explains XGROUP."),
    stream("xgroup|setid", -5, data!(groups::set_id)).write().keys(SECOND_UPDATE).about(
        "5.0.0",
        "O(log N)",
        "Sets which entry a group was given last.",
    ),
];

fn xgroup_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "XGROUP",
        &[
            "CREATE <key> <groupname> <id|$> [option]",
            "    Make a new consumer group. Options are:",
            "    * MKSTREAM",
            "      Make an empty stream if there is none.",
            "    * ENTRIESREAD entries_read",
            "      Set the group's entries_read counter.",
            "CREATECONSUMER <key> <groupname> <consumer>",
            "    Make a new consumer in the group.",
            "DELCONSUMER <key> <groupname> <consumer>",
            "    Remove the consumer.",
            "DESTROY <key> <groupname>",
            "    Remove the group.",
            "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
            "    Set the group's last id and entries_read counter.",
        ],
    )
}

const XINFO: &[Command] = &[
    stream("xinfo|consumers", 4, data!(info::consumers)).flags(READ_AT_A_TIME).keys(SECOND_ACCESS).about(
        "5.0.0",
        "O(N) in the number of consumers",
        "Tells about the consumers of a group.",
    ),
    stream("xinfo|groups", 3, data!(info::groups)).readonly().keys(SECOND_ACCESS).about(
        "5.0.0",
        "O(N) in the number of groups",
        "Tells about the groups of a stream.",
    ),
    stream("xinfo|help", 2, Run::Pure(xinfo_help)).always().about("5.0.0", "O(1)", "Explains XINFO."),
    stream("xinfo|stream", -3, data!(info::of_stream)).readonly().keys(SECOND_ACCESS).about(
        "5.0.0",
        "O(1), or O(N) in what FULL lists",
        "Tells about a stream.",
    ),
];

fn xinfo_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "XINFO",
        &[
            "CONSUMERS <key> <groupname>",
            "    The consumers of the group.",
            "GROUPS <key>",
            "    The groups of the stream.",
            "STREAM <key> [FULL [COUNT <count>]",
            "    The stream itself.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    stream("xadd", -5, data!(add::xadd)).write().denyoom().fast().keys(RW_UPDATE).about(
        "5.0.0",
        "O(log N), and O(log N) for each entry trimmed",
        "Adds an entry to a stream.",
    ),
    stream("xtrim", -4, data!(add::xtrim)).write().keys(RW_DELETE).about(
        "5.0.0",
        "O(log N) for each entry trimmed",
        "Removes the oldest entries of a stream.",
    ),
    stream("xdel", -3, data!(add::xdel)).write().fast().keys(RW_DELETE).about(
        "5.0.0",
        "O(log N) for each entry",
        "Deletes entries of a stream.",
    ),
    stream("xlen", 2, data!(add::xlen)).readonly().fast().keys(RO).about(
        "5.0.0",
        "O(1)",
        "Replies the number of entries.",
    ),
    stream("xsetid", -3, data!(add::xsetid)).write().denyoom().fast().keys(RW_UPDATE).about(
        "5.0.0",
        "O(log N)",
        "Sets the last id of a stream.",
    ),
    stream("xrange", -4, data!(read::xrange)).readonly().keys(RO_ACCESS).about(
        "5.0.0",
        "O(log N + M) with M entries replied",
        "Replies the entries between two ids.",
    ),
    stream("xrevrange", -4, data!(read::xrevrange)).readonly().keys(RO_ACCESS).about(
        "5.0.0",
        "O(log N + M) with M entries replied",
        "Replies the entries between two ids, the last one first.",
    ),
    stream("xread", -4, data!(read::xread)).readonly().flags(WAITS).keys(READ).about(
        "5.0.0",
        "O(log N + M) for each stream with M entries replied",
        "Replies what streams have behind given ids.",
    ),
    stream("xreadgroup", -7, data!(read::xreadgroup)).write().flags(WAITS).keys(READ_GROUP).about(
        "5.0.0",
        "O(M log N) for each stream with M entries replied",
        "Gives a consumer what nobody of its group has, or what it has pending.",
    ),
    stream("xack", -4, data!(groups::xack)).write().fast().keys(RW_UPDATE).about(
        "5.0.0",
        "O(log N) for each id",
        "Acknowledges entries, so that they are pending no more.",
    ),
    stream("xpending", -3, data!(groups::xpending)).flags(READ_AT_A_TIME).keys(RO_ACCESS).about(
        "5.0.0",
        "O(log N + M) with M entries looked at",
        "Replies what a group has pending.",
    ),
    stream("xclaim", -6, data!(claim::xclaim)).write().fast().keys(RW_UPDATE).about(
        "5.0.0",
        "O(log N) for each id",
        "Gives pending entries to another consumer.",
    ),
    stream("xautoclaim", -6, data!(claim::xautoclaim)).write().fast().keys(RW_DELETE).about(
        "6.2.0",
        "O(log N) for each entry looked at",
        "Gives entries that were pending for long to another consumer.",
    ),
    stream("xgroup", -2, Run::Container(XGROUP)).about("5.0.0", "", "Commands on consumer groups."),
    stream("xinfo", -2, Run::Container(XINFO)).about("5.0.0", "", "Commands that tell of streams."),
];
