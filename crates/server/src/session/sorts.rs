//! Which commands a session treats apart.

use super::is_word;
use redis_surface::table::{AclCommand, ClusterCommand, Command, ConnectionCommand, Flags, Run};
use txn::Args;

/// Whether a line is of an HTTP request: a browser sends such to whatever port a web page names, and commands
/// of that page's choice in its body.
pub(super) fn speaks_http(argv: &Args) -> bool {
    argv.first().is_some_and(|word| is_word(word, "post") || is_word(word, "host:"))
}

pub(super) fn may_write(command: &Command) -> bool {
    command.is(Flags::WRITE)
        || matches!(command.run, Run::Script(_))
        || matches!(command.run, Run::Connection(ConnectionCommand::Exec))
}

/// Commands that CLIENT PAUSE WRITE holds, also inside a block: those that are ordered for what they do,
/// which for publishing is to tell others.
pub(super) fn waits_for_writers(command: &Command) -> bool {
    match command.run {
        Run::Script(_) => !command.footprint_without_keys(&[]).read_only,
        Run::Connection(_) => false,
        _ => command.is(Flags::WRITE) || command.is(Flags::PUBSUB),
    }
}

/// Commands that CLIENT PAUSE does not hold: an operator ends the pause with them, or the server.
pub(super) fn during_pause(command: &Command) -> bool {
    let container = command.name.split('|').next();
    let goes_on = ["client", "ordo.backup", "ordo.changes", "ordo.cluster", "shutdown"];
    container.is_some_and(|container| goes_on.contains(&container))
}

/// Commands that an open block does not queue.
pub(super) fn ends_block(command: &Command) -> bool {
    matches!(
        command.run,
        Run::Connection(
            ConnectionCommand::Exec
                | ConnectionCommand::Discard
                | ConnectionCommand::Multi
                | ConnectionCommand::Watch
                | ConnectionCommand::Quit
                | ConnectionCommand::Reset
        )
    )
}

/// Whether a command gives a password to show who its client is.
pub(super) fn authenticates(command: &Command, argv: &Args) -> bool {
    match command.run {
        Run::Connection(ConnectionCommand::Auth) => true,
        Run::Connection(ConnectionCommand::Hello) => argv.iter().skip(2).any(|word| is_word(word, "auth")),
        _ => false,
    }
}

/// Commands that may set a password, or have a command inside that does.
pub(super) fn may_set_passwords(command: &Command) -> bool {
    matches!(
        command.run,
        Run::Acl(AclCommand::SetUser | AclCommand::DryRun)
            | Run::Connection(ConnectionCommand::ConfigSet)
            | Run::Idempotent
    )
}

/// Commands of the connection that must see what the connection wrote before them.
pub(super) fn looks_at_data(command: ConnectionCommand) -> bool {
    use ConnectionCommand as C;
    matches!(
        command,
        C::Watch
            | C::Info
            | C::Save
            | C::BgSave
            | C::BgRewriteAof
            | C::Shutdown
            | C::Wait
            | C::WaitAof
            | C::Subscribe
            | C::Unsubscribe
            | C::PSubscribe
            | C::PUnsubscribe
            | C::SSubscribe
            | C::SUnsubscribe
            | C::ClientTracking
            | C::Cluster(ClusterCommand::CountKeysInSlot | ClusterCommand::GetKeysInSlot)
            | C::OrdoCluster(_)
    )
}

/// How many such commands of a connection may be on their way at once, if their replies may be large, or what
/// they make at once; `None` if they are not.
pub(super) fn bulky_max(command: &Command, argv: &Args) -> Option<usize> {
    const READS: usize = 8;
    // Limits of their own bound what a script or a block replies.
    const PROGRAMS: usize = 128;
    // Each may put together half a gigabyte that took nothing where it was kept.
    let reads_much = ["sort", "xreadgroup", "xclaim", "xautoclaim", "spop", "getdel", "getset", "getex"];
    match command.run {
        _ if makes_much(command) => Some(1),
        _ if command.name == "set" => {
            let gets = argv.len() > 3 && argv[3..].iter().any(|word| is_word(word, "get"));
            gets.then_some(READS)
        }
        Run::Script(_) | Run::Connection(ConnectionCommand::Exec) => Some(PROGRAMS),
        _ if command.is(Flags::READONLY) && !command.is(Flags::FAST) => Some(READS),
        _ => reads_much.contains(&command.name).then_some(READS),
    }
}

/// Whether a command of a few words may make a value of half a gigabyte: memory is looked at before each.
pub(super) fn makes_much(command: &Command) -> bool {
    command.name == "bitop"
}
