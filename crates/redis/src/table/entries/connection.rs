//! The connection and its blocks.

use super::ConnectionCommand as C;
use super::*;
use crate::commands::pure;

const fn connection(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::Connection, run)
}
const fn transaction(name: &'static str, arity: i16, command: ConnectionCommand) -> Command {
    Command::new(name, arity, Group::Transactions, Run::Connection(command)).noscript().always()
}
const fn client(name: &'static str, arity: i16, command: ConnectionCommand) -> Command {
    connection(name, arity, Run::Connection(command)).noscript().always()
}

const ALLOW_BUSY: Flags = Flags::ALLOW_BUSY;
const BEFORE_AUTH: Flags = Flags::NO_AUTH.with(Flags::ALLOW_BUSY);

const CLIENT: &[Command] = &[
    client("client|getname", 2, C::ClientGetName),
    connection("client|help", 2, help!("CLIENT")).always(),
    client("client|id", 2, C::ClientId),
    client("client|info", 2, C::ClientInfo),
    client("client|kill", -3, C::ClientKill).admin(),
    client("client|list", -2, C::ClientList).admin(),
    client("client|no-evict", 3, C::ClientNoEvict).admin(),
    client("client|no-touch", 3, C::ClientNoTouch),
    client("client|pause", -3, C::ClientPause).admin(),
    client("client|reply", 3, C::ClientReply),
    client("client|setinfo", 4, C::ClientSetInfo),
    client("client|setname", 3, C::ClientSetName),
    client("client|caching", 3, C::ClientCaching),
    client("client|getredir", 2, C::ClientGetRedir),
    // What a block reads behind it would not be tracked: the commands of the connection itself run last.
    client("client|tracking", -3, C::ClientTracking).flags(Flags::NO_MULTI),
    client("client|trackinginfo", 2, C::ClientTrackingInfo),
    client("client|unblock", -3, C::ClientUnblock).admin(),
    client("client|unpause", 2, C::ClientUnpause).admin(),
];

pub(super) const COMMANDS: &[Command] = &[
    connection("auth", -2, Run::Connection(C::Auth)).noscript().always().fast().flags(BEFORE_AUTH),
    connection("client", -2, Run::Container(CLIENT)),
    connection("echo", 2, Run::Pure(pure::echo)).always().fast(),
    connection("hello", -1, Run::Connection(C::Hello)).noscript().always().fast().flags(BEFORE_AUTH),
    connection("ping", -1, Run::Pure(pure::ping)).fast(),
    connection("quit", -1, Run::Connection(C::Quit)).noscript().always().fast().flags(BEFORE_AUTH),
    connection("reset", 1, Run::Connection(C::Reset)).noscript().always().fast().flags(BEFORE_AUTH),
    connection("select", 2, Run::Pure(pure::select)).always().fast(),
    connection("wait", 3, Run::Connection(C::Wait)),
    connection("waitaof", 4, Run::Connection(C::WaitAof)),
    transaction("discard", 1, C::Discard).fast().flags(ALLOW_BUSY),
    transaction("exec", 1, C::Exec).flags(Flags::SKIP_SLOWLOG),
    transaction("multi", 1, C::Multi).fast().flags(ALLOW_BUSY),
    transaction("unwatch", 1, C::Unwatch).fast().flags(ALLOW_BUSY),
    transaction("watch", -2, C::Watch).fast().flags(ALLOW_BUSY).keys(RO_ALL),
];
