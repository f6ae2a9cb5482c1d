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
    config("config|get", -3, C::ConfigGet),
    server("config|help", 2, help!("CONFIG")).always(),
    config("config|resetstat", 2, C::ConfigResetStat),
    config("config|rewrite", 2, C::ConfigRewrite),
    config("config|set", -4, C::ConfigSet),
];

const MODULE: &[Command] = &[
    server("module|help", 2, help!("MODULE")).always(),
    server("module|list", 2, Run::Pure(module_list)).admin().noscript(),
];

fn module_list(_: &[txn::Blob]) -> txn::Reply {
    txn::Reply::Array(Vec::new())
}

const COMMAND: &[Command] = &[
    about_commands("command|count", 2, Run::Pure(introspect::count)),
    about_commands("command|docs", -2, Run::Pure(introspect::docs)),
    about_commands("command|getkeys", -4, Run::Pure(introspect::getkeys)),
    about_commands("command|getkeysandflags", -4, Run::Pure(introspect::getkeysandflags)),
    about_commands("command|help", 2, help!("COMMAND")),
    about_commands("command|info", -2, Run::Pure(introspect::info)),
    about_commands("command|list", -2, Run::Pure(introspect::list)),
];

/// FLUSHALL and FLUSHDB.
const fn flush(name: &'static str) -> Command {
    server(name, -1, data!(keys::flush)).write().categories(&["keyspace", "dangerous"])
}

pub(super) const COMMANDS: &[Command] = &[
    server("acl", -2, Run::Container(acl::ACL)),
    server("bgrewriteaof", 1, Run::Connection(C::BgRewriteAof))
        .admin()
        .noscript()
        .flags(Flags::NO_ASYNC_LOADING),
    server("bgsave", -1, Run::Connection(C::BgSave)).admin().noscript().flags(Flags::NO_ASYNC_LOADING),
    about_commands("command", -1, Run::Container(COMMAND)),
    server("config", -2, Run::Container(CONFIG)),
    server("dbsize", 1, data!(keys::dbsize)).readonly().fast().categories(&["keyspace"]),
    flush("flushall"),
    flush("flushdb"),
    server("info", -1, Run::Connection(C::Info)).always().dangerous(),
    server("lastsave", 1, Run::Connection(C::LastSave)).categories(&["admin", "dangerous"]).always().fast(),
    server("lolwut", -1, Run::Pure(pure::lolwut)).readonly().fast(),
    server("module", -2, Run::Container(MODULE)),
    server("role", 1, Run::Connection(C::Role))
        .always()
        .noscript()
        .fast()
        .categories(&["admin", "dangerous"]),
    server("save", 1, Run::Connection(C::Save))
        .admin()
        .noscript()
        .flags(Flags::NO_ASYNC_LOADING.with(Flags::NO_MULTI)),
    server("shutdown", -1, Run::Connection(C::Shutdown))
        .admin()
        .noscript()
        .always()
        .flags(Flags::NO_MULTI.with(Flags::ALLOW_BUSY)),
    server("time", 1, data!(keys::time)).always().fast(),
];
