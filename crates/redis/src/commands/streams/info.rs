//! What streams tell about themselves.

use super::{entry_reply, id_reply, lag, no_group_there};
use crate::commands::collections::find;
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::errors;
use std::sync::Arc;
use txn::value::{Consumer, StreamGroup, StreamValue};
use txn::{Blob, Intent, Key, Outcome, Reply, Tx, clock};

/// Entries that Redis keeps in a node of its tree: what the numbers of nodes are reckoned from.
const NODE_ENTRIES: usize = 100;
/// What XINFO STREAM FULL lists of everything unless COUNT says otherwise.
const FULL_COUNT: usize = 10;

fn field(name: &'static str, value: Reply) -> (Reply, Reply) {
    (Reply::bulk(name), value)
}
fn number(value: usize) -> Reply {
    Reply::Integer(value as i64)
}
fn number_or_nil(value: Option<u64>) -> Reply {
    value.map_or(Reply::Nil, |value| Reply::Integer(value as i64))
}

/// Binds the stream at the key in the second argument, or replies that there is none.
macro_rules! stream_at {
    ($tx:expr, $args:expr) => {
        match found!(find::<Arc<StreamValue>>($tx, &Key::from(&$args[1]), Intent::Read)) {
            Some((stream, _)) => stream,
            None => return Ok(errors::NO_SUCH_KEY),
        }
    };
}

/// XINFO CONSUMERS key group
pub async fn consumers(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let stream = stream_at!(tx, args);
    let Some(group) = stream.group(&args[2]) else {
        return Ok(no_group_there(&args[1], &args[2]));
    };
    let now_ms = tx.now_ms();
    let since = |ms: u64| Reply::Integer(now_ms.saturating_sub(ms) as i64);
    let consumers = group.consumers().iter().map(|consumer| {
        Reply::Map(vec![
            field("name", Reply::Bulk(consumer.name.clone())),
            field("pending", number(consumer.pending().len())),
            field("idle", since(consumer.seen_ms)),
            field("inactive", consumer.active_ms.map_or(Reply::Integer(-1), since)),
        ])
    });
    Ok(Reply::Array(consumers.collect()))
}

/// XINFO GROUPS key
pub async fn groups(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let stream = stream_at!(tx, args);
    let groups = stream.groups().map(|(name, group)| {
        Reply::Map(vec![
            field("name", Reply::Bulk(name.clone())),
            field("consumers", number(group.consumers().len())),
            field("pending", number(group.pending().len())),
            field("last-delivered-id", id_reply(group.last_id)),
            field("entries-read", number_or_nil(group.entries_read)),
            field("lag", lag(&stream, group).map_or(Reply::Nil, Reply::Integer)),
        ])
    });
    Ok(Reply::Array(groups.collect()))
}

/// XINFO STREAM key [FULL [COUNT count]]
pub async fn of_stream(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let stream = stream_at!(tx, args);
    let full = match &args[2..] {
        [] => None,
        [word] if options::is(word, "FULL") => Some(FULL_COUNT),
        [word, option, count] if options::is(word, "FULL") && options::is(option, "COUNT") => {
            let count = argument!(options::integer(count));
            Some(match usize::try_from(count) {
                Ok(0) => usize::MAX,
                Ok(count) => count,
                Err(_) => FULL_COUNT,
            })
        }
        _ => return Ok(errors::subcommand_syntax("XINFO", &args[0])),
    };
    let nodes = stream.len().div_ceil(NODE_ENTRIES);
    let first_id = stream.first().map(|entry| entry.id);
    let mut map = vec![
        field("length", number(stream.len())),
        field("radix-tree-keys", number(nodes)),
        field("radix-tree-nodes", number(nodes + 1)),
        field("last-generated-id", id_reply(stream.last_id)),
        field("max-deleted-entry-id", id_reply(stream.max_deleted_id)),
        field("entries-added", number(stream.entries_added as usize)),
        field("recorded-first-entry-id", id_reply(first_id.unwrap_or_default())),
    ];
    match full {
        None => {
            let or_nil = |entry| Option::map_or(entry, Reply::Nil, entry_reply);
            map.push(field("groups", number(stream.groups().len())));
            map.push(field("first-entry", or_nil(stream.first())));
            map.push(field("last-entry", or_nil(stream.last())));
        }
        Some(limit) => {
            let offset_ms = tx.clock_offset_ms().await?;
            let date = |epoch_ms| clock::date_ms(epoch_ms, offset_ms).cast_signed();
            let entries = stream.iter().take(limit).map(entry_reply);
            map.push(field("entries", Reply::Array(entries.collect())));
            let groups = stream.groups().map(|(name, group)| full_group(&stream, name, group, limit, &date));
            map.push(field("groups", Reply::Array(groups.collect())));
        }
    }
    Ok(Reply::Map(map))
}

fn full_group(
    stream: &StreamValue,
    name: &Blob,
    group: &StreamGroup,
    limit: usize,
    date: &dyn Fn(u64) -> i64,
) -> Reply {
    let pending = group.pending().iter().take(limit).map(|pending| {
        Reply::Array(vec![
            id_reply(pending.id),
            Reply::Bulk(pending.consumer.clone()),
            Reply::Integer(date(pending.delivered_ms)),
            Reply::Integer(pending.deliveries as i64),
        ])
    });
    let consumers = group.consumers().iter();
    let consumers = consumers.map(|consumer| full_consumer(group, consumer, limit, date));
    Reply::Map(vec![
        field("name", Reply::Bulk(name.clone())),
        field("last-delivered-id", id_reply(group.last_id)),
        field("entries-read", number_or_nil(group.entries_read)),
        field("lag", lag(stream, group).map_or(Reply::Nil, Reply::Integer)),
        field("pel-count", number(group.pending().len())),
        field("pending", Reply::Array(pending.collect())),
        field("consumers", Reply::Array(consumers.collect())),
    ])
}

fn full_consumer(group: &StreamGroup, consumer: &Consumer, limit: usize, date: &dyn Fn(u64) -> i64) -> Reply {
    let pending = consumer.pending().iter().take(limit);
    let pending = pending.filter_map(|&id| group.pending_of(id)).map(|pending| {
        Reply::Array(vec![
            id_reply(pending.id),
            Reply::Integer(date(pending.delivered_ms)),
            Reply::Integer(pending.deliveries as i64),
        ])
    });
    let active_ms = consumer.active_ms.map_or(-1, date);
    Reply::Map(vec![
        field("name", Reply::Bulk(consumer.name.clone())),
        field("seen-time", Reply::Integer(date(consumer.seen_ms))),
        field("active-time", Reply::Integer(active_ms)),
        field("pel-count", number(consumer.pending().len())),
        field("pending", Reply::Array(pending.collect())),
    ])
}
