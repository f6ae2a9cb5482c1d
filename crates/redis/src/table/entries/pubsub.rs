//! Publishing and subscribing.

use super::*;
use crate::commands::{messages, pure};

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
    about_channels("pubsub|channels", -2, PubSubCommand::Channels).about(
        "2.8.0",
        "O(N) in the number of channels",
        "Lists the channels that somebody listens to.",
    ),
    about_channels("pubsub|numpat", 2, PubSubCommand::NumPat).about(
        "2.8.0",
        "O(1)",
        "Counts the patterns that somebody listens to.",
    ),
    about_channels("pubsub|numsub", -2, PubSubCommand::NumSub).about(
        "2.8.0",
        "O(N) in the number of channels",
        "Counts the listeners of channels.",
    ),
    about_channels("pubsub|shardchannels", -2, PubSubCommand::ShardChannels).about(
        "7.0.0",
        "O(N) in the number of channels",
        "Lists the shard channels that somebody listens to.",
    ),
    about_channels("pubsub|shardnumsub", -2, PubSubCommand::ShardNumSub).about(
        "7.0.0",
        "O(N) in the number of channels",
        "Counts the listeners of shard channels.",
    ),
    // It is not of the category `pubsub`, as in Redis.
    Command::new("pubsub|help", 2, Group::PubSub, Run::Pure(help)).always().about(
        "6.2.0",
        "O(1)",
        "Tells about PUBSUB's subcommands.",
    ),
];

fn help(_: &[txn::Blob]) -> txn::Reply {
    pure::help(
        "PUBSUB",
        &[
            "CHANNELS [<pattern>]",
            "    The channels that connections of this node listen to.",
            "NUMPAT",
            "    The number of patterns that they listen to.",
            "NUMSUB [<channel> ...]",
            "    The numbers of these channels' listeners.",
            "SHARDCHANNELS [<pattern>]",
            "    The shard channels that connections of this node listen to.",
            "SHARDNUMSUB [<channel> ...]",
            "    The numbers of these shard channels' listeners.",
        ],
    )
}

pub(super) const COMMANDS: &[Command] = &[
    entry("publish", 3, data!(messages::global)).always().fast().about(
        "2.0.0",
        "O(N+M) in the numbers of the channel's listeners and of patterns",
        "Sends a message to whoever listens to a channel.",
    ),
    entry("spublish", 3, data!(messages::sharded)).always().fast().keys(SHARD_CHANNEL).about(
        "7.0.0",
        "O(N) in the number of the channel's listeners",
        "Sends a message to whoever listens to a shard channel.",
    ),
    own("subscribe", -2, ConnectionCommand::Subscribe).about(
        "2.0.0",
        "O(N) in the number of channels",
        "Listens to channels.",
    ),
    own("unsubscribe", -1, ConnectionCommand::Unsubscribe).about(
        "2.0.0",
        "O(N) in the number of channels",
        "Listens to channels no more.",
    ),
    own("psubscribe", -2, ConnectionCommand::PSubscribe).about(
        "2.0.0",
        "O(N) in the number of patterns",
        "Listens to channels whose names match patterns.",
    ),
    own("punsubscribe", -1, ConnectionCommand::PUnsubscribe).about(
        "2.0.0",
        "O(N) in the number of patterns",
        "Listens to patterns no more.",
    ),
    own("ssubscribe", -2, ConnectionCommand::SSubscribe).keys(SHARD_CHANNELS).about(
        "7.0.0",
        "O(N) in the number of channels",
        "Listens to shard channels.",
    ),
    own("sunsubscribe", -1, ConnectionCommand::SUnsubscribe).keys(SHARD_CHANNELS).about(
        "7.0.0",
        "O(N) in the number of channels",
        "Listens to shard channels no more.",
    ),
    Command::new("pubsub", -2, Group::PubSub, Run::Container(PUBSUB)).about(
        "2.8.0",
        "Depends on the subcommand",
        "Tells about channels and their listeners.",
    ),
];
