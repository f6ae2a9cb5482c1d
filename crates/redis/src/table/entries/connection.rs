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
    client("client|getname", 2, C::ClientGetName).about("2.6.9", "O(1)", "Replies the connection's name."),
    connection("client|help", 2, Run::Pure(client_help)).always().about("5.0.0", "O(1)", "Explains CLIENT."),
    client("client|id", 2, C::ClientId).about("5.0.0", "O(1)", "Replies the connection's number."),
    client("client|info", 2, C::ClientInfo).about("6.2.0", "O(1)", "Tells about the connection."),
    client("client|kill", -3, C::ClientKill).admin().about(
        "2.4.0",
        "O(N) in the number of connections",
        "Closes connections.",
    ),
    client("client|list", -2, C::ClientList).admin().about(
        "2.4.0",
        "O(N) in the number of connections",
        "Tells about all connections.",
    ),
    client("client|no-evict", 3, C::ClientNoEvict).admin().about(
        "7.0.0",
        "O(1)",
        "Spares the connection when memory is short.",
    ),
    client("client|no-touch", 3, C::ClientNoTouch).about("7.2.0", "O(1)", "Leaves access times alone."),
    client("client|pause", -3, C::ClientPause).admin().about("3.0.0", "O(1)", "Holds commands for a while."),
    client("client|reply", 3, C::ClientReply).about("3.2.0", "O(1)", "Turns replies on or off."),
    client("client|setinfo", 4, C::ClientSetInfo).about("7.2.0", "O(1)", "Names the client's library."),
    client("client|setname", 3, C::ClientSetName).about("2.6.9", "O(1)", "Names the connection."),
    client("client|caching", 3, C::ClientCaching).about(
        "6.0.0",
        "O(1)",
        "Says whether the keys of the next command are to be remembered for invalidation.",
    ),
    client("client|getredir", 2, C::ClientGetRedir).about(
        "6.0.0",
        "O(1)",
        "Replies which connection gets this one's invalidations.",
    ),
    // What a block reads behind it would not be tracked: the commands of the connection itself run last.
    client("client|tracking", -3, C::ClientTracking).flags(Flags::NO_MULTI).about(
        "6.0.0",
        "O(1)",
        "Has the server tell which keys that the client has read were written.",
    ),
    client("client|trackinginfo", 2, C::ClientTrackingInfo).about(
        "6.2.0",
        "O(1)",
        "Tells how the connection's keys are tracked.",
    ),
    client("client|unblock", -3, C::ClientUnblock).admin().about(
        "5.0.0",
        "O(1)",
        "Wakes a client that waits.",
    ),
    client("client|unpause", 2, C::ClientUnpause).admin().about("6.2.0", "O(1)", "Ends a CLIENT PAUSE."),
];

fn client_help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "CLIENT",
        &[
            "CACHING (YES|NO)",
            "    Whether the keys of the next command are remembered for invalidation (OPTIN, OPTOUT).",
            "GETNAME",
            "    The connection's name.",
            "GETREDIR",
            "    Which connection gets this one's invalidations.",
            "ID",
            "    The connection's number.",
            "INFO",
            "    All about the connection.",
            "KILL <ip:port>",
            "    Closes a connection.",
            "KILL <filter> <value> [<filter> <value> ...]",
            "    Closes connections. Filters: ID, TYPE (NORMAL|MASTER|REPLICA|PUBSUB), USER, ADDR, LADDR, \
             SKIPME (YES|NO), MAXAGE.",
            "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <id> ...]",
            "    All about these connections, or about all.",
            "NO-EVICT (ON|OFF), NO-TOUCH (ON|OFF)",
            "    Taken for compatibility.",
            "PAUSE <milliseconds> [WRITE|ALL]",
            "    Holds commands.",
            "REPLY (ON|OFF|SKIP)",
            "    Whether commands are answered.",
            "SETINFO (LIB-NAME|LIB-VER) <text>",
            "    Names the client's library.",
            "SETNAME <name>",
            "    Names the connection.",
            "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> ...] [OPTIN] [OPTOUT] [NOLOOP]",
            "    Whether the client is told when keys that it has read are written.",
            "TRACKINGINFO",
            "    How the connection's keys are tracked.",
            "UNBLOCK <id> [TIMEOUT|ERROR]",
            "    Ends the wait of a connection.",
            "UNPAUSE",
            "    Ends CLIENT PAUSE.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    connection("auth", -2, Run::Connection(C::Auth)).noscript().always().fast().flags(BEFORE_AUTH).about(
        "1.0.0",
        "O(1)",
        "Authenticates the connection.",
    ),
    connection("client", -2, Run::Container(CLIENT)).about("2.4.0", "", "Tells about connections."),
    connection("echo", 2, Run::Pure(pure::echo)).always().fast().about(
        "1.0.0",
        "O(1)",
        "Replies its argument.",
    ),
    connection("hello", -1, Run::Connection(C::Hello)).noscript().always().fast().flags(BEFORE_AUTH).about(
        "6.0.0",
        "O(1)",
        "Chooses the protocol.",
    ),
    connection("ping", -1, Run::Pure(pure::ping)).fast().about(
        "1.0.0",
        "O(1)",
        "Replies PONG, or its argument.",
    ),
    connection("quit", -1, Run::Connection(C::Quit)).noscript().always().fast().flags(BEFORE_AUTH).about(
        "1.0.0",
        "O(1)",
        "Closes the connection.",
    ),
    connection("reset", 1, Run::Connection(C::Reset)).noscript().always().fast().flags(BEFORE_AUTH).about(
        "6.2.0",
        "O(1)",
        "Gives the connection the state of a new one.",
    ),
    connection("select", 2, Run::Pure(pure::select)).always().fast().about(
        "1.0.0",
        "O(1)",
        "Chooses the database: there is number 0 only.",
    ),
    connection("wait", 3, Run::Connection(C::Wait)).about(
        "3.0.0",
        "O(1)",
        "Replies how many replicas have the connection's writes.",
    ),
    connection("waitaof", 4, Run::Connection(C::WaitAof)).about(
        "7.2.0",
        "O(1)",
        "Replies on how many nodes the connection's writes are on disk: this one, and replicas.",
    ),
    transaction("discard", 1, C::Discard).fast().flags(ALLOW_BUSY).about(
        "2.0.0",
        "O(1)",
        "Forgets the block.",
    ),
    transaction("exec", 1, C::Exec).flags(Flags::SKIP_SLOWLOG).about(
        "1.2.0",
        "",
        "Runs the block, as one transaction.",
    ),
    transaction("multi", 1, C::Multi).fast().flags(ALLOW_BUSY).about("1.2.0", "O(1)", "Starts a block."),
    transaction("unwatch", 1, C::Unwatch).fast().flags(ALLOW_BUSY).about(
        "2.2.0",
        "O(1)",
        "Forgets the watched keys.",
    ),
    transaction("watch", -2, C::Watch).fast().flags(ALLOW_BUSY).keys(RO_ALL).about(
        "2.2.0",
        "O(N) in the number of keys",
        "Lets the next block fail if one of some keys changes before it.",
    ),
];
