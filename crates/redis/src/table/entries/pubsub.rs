//! Publishing and subscribing.

use super::*;
use crate::commands::messages;

const fn entry(name: &'static str, arity: i16, run: Run) -> Command {
    Command::new(name, arity, Group::PubSub, run).flags(Flags::PUBSUB)
}

/// A command of whoever subscribes.
const fn own(name: &'static str, arity: i16, command: ConnectionCommand) -> Command {
    entry(name, arity, Run::Connection(command)).noscript().always()
}

const fn about_channels(name: &'static str, arity: i16, command: PubSubCommand) -> Command {
    entry(name, arity, Run::Connection(ConnectionCommand::PubSub(command))).always()
}

const SHARD_CHANNELS: &[KeySpec] = &[range(1, -1, 1, &["not_key"])];
const SHARD_CHANNEL: &[KeySpec] = &[range(1, 1, 1, &["not_key"])];

const PUBSUB: &[Command] = &[
    about_channels("pubsub|channels", -2, PubSubCommand::Channels),
    about_channels("pubsub|numpat", 2, PubSubCommand::NumPat),
    about_channels("pubsub|numsub", -2, PubSubCommand::NumSub),
    about_channels("pubsub|shardchannels", -2, PubSubCommand::ShardChannels),
    about_channels("pubsub|shardnumsub", -2, PubSubCommand::ShardNumSub),
    // It is not of the category `pubsub`, as in Redis.
    Command::new("pubsub|help", 2, Group::PubSub, help!("PUBSUB")).always(),
];

pub(super) const COMMANDS: &[Command] = &[
    entry("publish", 3, data!(messages::global)).always().fast(),
    entry("spublish", 3, data!(messages::sharded)).always().fast().keys(SHARD_CHANNEL),
    own("subscribe", -2, ConnectionCommand::Subscribe),
    own("unsubscribe", -1, ConnectionCommand::Unsubscribe),
    own("psubscribe", -2, ConnectionCommand::PSubscribe),
    own("punsubscribe", -1, ConnectionCommand::PUnsubscribe),
    own("ssubscribe", -2, ConnectionCommand::SSubscribe).keys(SHARD_CHANNELS),
    own("sunsubscribe", -1, ConnectionCommand::SUnsubscribe).keys(SHARD_CHANNELS),
    Command::new("pubsub", -2, Group::PubSub, Run::Container(PUBSUB)),
];
