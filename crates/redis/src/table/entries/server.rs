//! The server, and the commands about commands.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::{keys, pure};
use crate::introspect;

const fn server(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Server, run)
}
const fn config(name: &'static str, arity: i16, command: ConnectionCommand) -> Command {
    server(name, arity, Run::Connection(command)).admin().noscript().always()
}
/// Its commands are of the server's family in the documentation, and of the connection's among the ACL
/// categories.
const fn about_commands(name: &'static str, arity: i16, run: Run) -> Command {
    server(name, arity, run).always().categories(&["connection"])
}

const CONFIG: &[Command] = &[
    config("config|get", -3, C::ConfigGet).about(
        "2.0.0",
        "O(N) in the number of settings",
        "Replies settings.",
    ),
    server("config|help", 2, Run::Pure(config_help)).always().about("5.0.0", "O(1)", "Explains CONFIG."),
    config("config|resetstat", 2, C::ConfigResetStat).about(
        "2.0.0",
        "O(1)",
        "Sets the statistics of INFO to 0.",
    ),
    config("config|rewrite", 2, C::ConfigRewrite).about(
        "2.8.0",
        "O(1)",
        "Writes the present settings into their file.",
    ),
    config("config|set", -4, C::ConfigSet).about(
        "2.0.0",
        "O(N) in the number of settings",
        "Changes settings.",
    ),
];

const MODULE: &[Command] = &[
    server("module|help", 2, Run::Pure(module_help)).always().about("5.0.0", "O(1)", "Explains MODULE."),
    server("module|list", 2, Run::Pure(module_list)).admin().noscript().about(
        "4.0.0",
        "O(1)",
        "Replies the modules that are loaded: none.",
    ),
];

fn module_help(_: &[txn::Blob]) -> txn::Reply {
    let lines = &["LIST", "    The modules that are loaded. There are none."];
    pure::help("MODULE", lines)
}

fn module_list(_: &[txn::Blob]) -> txn::Reply {
    txn::Reply::Array(Vec::new())
}

fn config_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "CONFIG",
        &[
            "GET <pattern> [<pattern> ...]",
            "    The settings that match, with their values.",
            "SET <setting> <value> [<setting> <value> ...]",
            "    Changes settings.",
            "RESETSTAT",
            "    Sets the statistics of INFO to 0.",
            "REWRITE",
            "    Writes the present settings into the file that they were read from.",
        ],
    )
}

const COMMAND: &[Command] = &[
    about_commands("command|count", 2, Run::Pure(introspect::count)).about(
        "2.8.13",
        "O(1)",
        "Counts the commands.",
    ),
    about_commands("command|docs", -2, Run::Pure(introspect::docs)).about(
        "7.0.0",
        "O(N) in the number of commands asked for",
        "Explains commands.",
    ),
    about_commands("command|getkeys", -4, Run::Pure(introspect::getkeys)).about(
        "2.8.13",
        "O(N) in the number of arguments",
        "Replies the keys of a command.",
    ),
    about_commands("command|getkeysandflags", -4, Run::Pure(introspect::getkeysandflags)).about(
        "7.0.0",
        "O(N) in the number of arguments",
        "Replies the keys of a command and what it does with them.",
    ),
    about_commands("command|help", 2, Run::Pure(introspect::help)).about(
        "5.0.0",
        "O(1)",
        "Explains COMMAND.",
    ),
    about_commands("command|info", -2, Run::Pure(introspect::info)).about(
        "2.8.13",
        "O(N) in the number of commands asked for",
        "Tells the properties of commands.",
    ),
    about_commands("command|list", -2, Run::Pure(introspect::list)).about(
        "7.0.0",
        "O(N) in the number of commands",
        "Lists the names of commands.",
    ),
];

/// FLUSHALL and FLUSHDB.
const fn flush(name: &'static str) -> Command {
    server(name, -1, data!(keys::flush)).write().categories(&["keyspace", "dangerous"])
}

pub(super) const COMMANDS: &[Command] = &[
    server("acl", -2, Run::Container(acl::ACL)).about("6.0.0", "", "Tells about users and categories."),
    server("bgrewriteaof", 1, Run::Connection(C::BgRewriteAof))
        .admin()
        .noscript()
        .flags(Flags::NO_ASYNC_LOADING)
        .about("1.0.0", "O(1)", "Starts a checkpoint, behind which the log is cut."),
    server("bgsave", -1, Run::Connection(C::BgSave)).admin().noscript().flags(Flags::NO_ASYNC_LOADING).about(
        "1.0.0",
        "O(1)",
        "Starts a checkpoint.",
    ),
    about_commands("command", -1, Run::Container(COMMAND)).about("2.8.13", "", "Tells about all commands."),
    server("config", -2, Run::Container(CONFIG)).about("2.0.0", "", "Reads and changes settings."),
    server("dbsize", 1, data!(keys::dbsize)).readonly().fast().categories(&["keyspace"]).about(
        "1.0.0",
        "O(1)",
        "Counts the keys.",
    ),
    flush("flushall").about("1.0.0", "O(1)", "Deletes all keys."),
    flush("flushdb").about("1.0.0", "O(1)", "Deletes all keys of the database."),
    server("info", -1, Run::Connection(C::Info)).always().dangerous().about(
        "1.0.0",
        "O(1)",
        "Tells about the server.",
    ),
    server("lastsave", 1, Run::Connection(C::LastSave))
        .categories(&["admin", "dangerous"])
        .always()
        .fast()
        .about("1.0.0", "O(1)", "Replies the time of the newest checkpoint."),
    server("lolwut", -1, Run::Pure(pure::lolwut)).readonly().fast().about(
        "5.0.0",
        "O(1)",
        "Draws, and replies the version.",
    ),
    server("module", -2, Run::Container(MODULE)).about("4.0.0", "", "Tells about modules."),
    server("role", 1, Run::Connection(C::Role))
        .always()
        .noscript()
        .fast()
        .categories(&["admin", "dangerous"])
        .about("2.8.12", "O(1)", "Replies whom this server follows, and who follows it."),
    server("save", 1, Run::Connection(C::Save))
        .admin()
        .noscript()
        .flags(Flags::NO_ASYNC_LOADING.with(Flags::NO_MULTI))
        .about("1.0.0", "O(N) in the number of keys", "Takes a checkpoint."),
    server("shutdown", -1, Run::Connection(C::Shutdown))
        .admin()
        .noscript()
        .always()
        .flags(Flags::NO_MULTI.with(Flags::ALLOW_BUSY))
        .about("1.0.0", "O(1)", "Stops the server."),
    server("time", 1, data!(keys::time)).always().fast().about("2.6.0", "O(1)", "Replies the time."),
];
