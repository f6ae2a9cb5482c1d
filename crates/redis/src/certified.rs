//! What is not served where transactions are certified: by a tree of validators, or by sites that commit
//! alone.

use crate::commands::sites;
use crate::table::{Command, ConnectionCommand, Flags, Run};
use txn::Reply;

const LISTS: &str = "transactions are certified key by key, and list none: keep the names in a set or a hash";
const CLEARS: &str = "transactions are certified key by key: delete them by name";
const MESSAGES: &str = "nodes tell each other of no messages: use a stream, or an ordered cluster";
const COPIES: &str = "nodes tell each other of no writes: use an ordered cluster";
const SCRIPTS: &str = "nobody lists keys, so a node cannot find all scripts that were loaded";
const SAVES: &str = "the journal has what was acknowledged: stop the node to copy its files";
const CHANGES: &str = "there is no one order of which an exporter could tell the changes";
const BACKUPS: &str = "there is no one order to back up or to export: stop all nodes to copy their files";
const IDEMPOTENT: &str =
    "nobody removes the records of ids there: write the id's key in the same transaction";
const PAST: &str = "nodes keep no old versions";
const LOG: &str = "appendfsync says when a reply means that the disk has it";

/// Why a command is refused there, and what to do instead; `None` if it is served.
pub fn refusal(command: &Command) -> Option<&'static str> {
    let is_of_channels = matches!(
        command.run,
        Run::Connection(
            ConnectionCommand::Subscribe
                | ConnectionCommand::PSubscribe
                | ConnectionCommand::SSubscribe
                | ConnectionCommand::PubSub(_)
        )
    );
    match command.name {
        "keys" | "scan" | "randomkey" => Some(LISTS),
        "flushall" | "flushdb" => Some(CLEARS),
        "client|tracking" => Some(COPIES),
        "script|flush" => Some(SCRIPTS),
        "save" | "bgsave" | "bgrewriteaof" | "lastsave" => Some(SAVES),
        "ordo.backup|where" | "ordo.backup|file" | "ordo.backup|log" => Some(BACKUPS),
        "ordo.changes" => Some(CHANGES),
        "ordo.at" => Some(PAST),
        "waitaof" => Some(LOG),
        _ if is_of_channels || command.is(Flags::PUBSUB) => Some(MESSAGES),
        _ => None,
    }
}

/// Why a command is refused where sites commit alone, although a tree of validators serves it.
pub fn refusal_of_sites(command: &Command) -> Option<&'static str> {
    (command.name == "ordo.idempotent").then_some(IDEMPOTENT)
}

/// Why a command is refused where a tree of validators certifies, although sites serve it.
pub fn refusal_of_validators(command: &Command) -> Option<&'static str> {
    sites::NAMES.contains(&command.name).then_some(sites::NO_SITES)
}

/// Why no command waits for a key there.
pub const WAITS: &str = "no command waits for a key: ask again after a while, or use an ordered cluster";

/// What a refused command replies where this is the protocol.
pub fn refused(command: &Command, protocol: &str, why: &str) -> Reply {
    let name = command.name.to_uppercase().replace('|', " ");
    Reply::error_owned(format!("ERR {name} is not served with protocol = \"{protocol}\": {why}"))
}
