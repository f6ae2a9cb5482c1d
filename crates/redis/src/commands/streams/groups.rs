//! Consumer groups.

use super::{count, id, id_reply, ids, interval, no_group, no_group_there};
use crate::commands::collections::{find, put, to_change};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::errors;
use crate::work;
use std::sync::Arc;
use txn::value::{StreamGroup, StreamId, StreamValue};
use txn::{Blob, Intent, Key, Outcome, Reply, Tx};

const NO_KEY: Reply = Reply::error(
    "ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to use the \
     MKSTREAM option to create an empty stream automatically.",
);

/// The words of XGROUP CREATE and of XGROUP SETID, from the subcommand on, with all options once.
const CREATE_WORDS_MAX: usize = 7;
const SET_ID_WORDS_MAX: usize = 6;

fn wrong(args: &[Blob]) -> Reply {
    errors::subcommand_syntax("XGROUP", &args[0])
}

/// The options of XGROUP CREATE and SETID. As in Redis, that an option stands there twice is looked at after
/// the key.
fn group_options(args: &[Blob], creates: bool) -> Result<(bool, Option<u64>), Reply> {
    let (mut make_stream, mut entries_read) = (false, None);
    let mut rest = &args[4..];
    loop {
        rest = match rest {
            [] => return Ok((make_stream, entries_read)),
            [word, rest @ ..] if creates && options::is(word, "MKSTREAM") => {
                make_stream = true;
                rest
            }
            [word, value, rest @ ..] if options::is(word, "ENTRIESREAD") => {
                entries_read = match options::integer(value)? {
                    -1 => None,
                    read => Some(
                        u64::try_from(read)
                            .map_err(|_| Reply::error("ERR value for ENTRIESREAD must be positive or -1"))?,
                    ),
                };
                rest
            }
            _ => return Err(wrong(args)),
        };
    }
}

/// XGROUP CREATE key group id | $ [MKSTREAM] [ENTRIESREAD entries-read]
pub async fn create(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let (make_stream, entries_read) = argument!(group_options(args, true));
    let key = Key::from(&args[1]);
    let found = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update));
    if found.is_none() && !make_stream {
        return Ok(NO_KEY);
    }
    if args.len() > CREATE_WORDS_MAX {
        return Ok(wrong(args));
    }
    let (stream, expires_at_ms) = to_change(found);
    let mut stream = Arc::<StreamValue>::unwrap_or_clone(stream);
    let last_id = match args[3].as_bytes() {
        b"$" => stream.last_id,
        text => argument!(id(text, 0)),
    };
    if !stream.add_group(args[2].clone(), StreamGroup::new(last_id, entries_read)) {
        return Ok(Reply::error("BUSYGROUP Consumer Group name already exists"));
    }
    put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    Ok(Reply::OK)
}

/// Binds a copy of the stream with the time at which it expires, if it and the group are there; else replies
/// what is wrong.
macro_rules! with_group {
    ($tx:expr, $key:expr, $args:expr) => {
        match found!(find::<Arc<StreamValue>>($tx, $key, Intent::Update)) {
            None => return Ok(NO_KEY),
            Some((stream, _)) if stream.group(&$args[2]).is_none() => {
                return Ok(no_group_there(&$args[1], &$args[2]));
            }
            Some((stream, expires_at_ms)) => (StreamValue::clone(&stream), expires_at_ms),
        }
    };
}

/// XGROUP SETID key group id | $ [ENTRIESREAD entries-read]
pub async fn set_id(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let (_, entries_read) = argument!(group_options(args, false));
    let key = Key::from(&args[1]);
    let (mut stream, expires_at_ms) = with_group!(tx, &key, args);
    if args.len() > SET_ID_WORDS_MAX {
        return Ok(wrong(args));
    }
    let last_id = match args[3].as_bytes() {
        b"$" => stream.last_id,
        b"-" => StreamId::MIN,
        b"+" => StreamId::MAX,
        text => argument!(id(text, 0)),
    };
    stream.update_group(&args[2], |group| {
        group.last_id = last_id;
        group.entries_read = entries_read;
    });
    put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    Ok(Reply::OK)
}

/// XGROUP DESTROY key group
pub async fn destroy(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[1]);
    let Some((old, expires_at_ms)) = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update)) else {
        return Ok(NO_KEY);
    };
    let mut stream = StreamValue::clone(&old);
    let removed = stream.remove_group(&args[2]);
    if removed {
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Integer(i64::from(removed)))
}

/// XGROUP CREATECONSUMER key group consumer
pub async fn create_consumer(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[1]);
    let (mut stream, expires_at_ms) = with_group!(tx, &key, args);
    let group = stream.group(&args[2]);
    if group.is_some_and(|group| group.consumer(&args[3]).is_some()) {
        return Ok(Reply::Integer(0));
    }
    let now_ms = tx.now_ms();
    stream.update_group(&args[2], |group| group.see(&args[3], now_ms));
    put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    Ok(Reply::Integer(1))
}

/// XGROUP DELCONSUMER key group consumer
pub async fn delete_consumer(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[1]);
    let (mut stream, expires_at_ms) = with_group!(tx, &key, args);
    let group = stream.group(&args[2]);
    if group.is_none_or(|group| group.consumer(&args[3]).is_none()) {
        return Ok(Reply::Integer(0));
    }
    let pending = stream.update_group(&args[2], |group| group.remove_consumer(&args[3]));
    work::members(pending.unwrap_or(0));
    put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    Ok(Reply::Integer(pending.unwrap_or(0) as i64))
}

/// XACK key group id [id ...]
pub async fn xack(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    if old.group(&args[1]).is_none() {
        return Ok(Reply::Integer(0));
    }
    let ids = argument!(ids(&args[2..]));
    let mut stream = StreamValue::clone(&old);
    let acknowledged = stream.update_group(&args[1], |group| {
        let ids = ids.into_iter();
        ids.filter(|&id| group.acknowledge(id).is_some()).count()
    });
    let acknowledged = acknowledged.unwrap_or(0);
    if acknowledged > 0 {
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Integer(acknowledged as i64))
}

/// How much each consumer of a group has pending, with the ends of it all.
fn summary(group: &StreamGroup) -> Reply {
    let pending = group.pending();
    let (Some(first), Some(last)) = (pending.first(), pending.last()) else {
        return Reply::Array(vec![Reply::Integer(0), Reply::Nil, Reply::Nil, Reply::NilArray]);
    };
    work::elements(group.consumers().len());
    let consumers = group.consumers().iter();
    let busy = consumers.filter(|consumer| !consumer.pending().is_empty());
    let busy = busy.map(|consumer| {
        let count = consumer.pending().len().to_string();
        Reply::Array(vec![Reply::Bulk(consumer.name.clone()), Reply::bulk(count)])
    });
    Reply::Array(vec![
        Reply::Integer(pending.len() as i64),
        id_reply(first.id),
        id_reply(last.id),
        Reply::Array(busy.collect()),
    ])
}

/// XPENDING key group [[IDLE min-idle-time] start end count [consumer]]
pub async fn xpending(tx: &mut Tx, args: &[Blob]) -> Outcome {
    /// All that may be asked.
    const WORDS_MAX: usize = 8;
    let mut least_idle_ms = 0;
    let wanted = match &args[2..] {
        [] => None,
        [word, idle_ms, rest @ ..] if args.len() >= 5 && options::is(word, "IDLE") => {
            least_idle_ms = argument!(options::integer(idle_ms)).max(0) as u64;
            Some(rest)
        }
        rest => Some(rest),
    };
    let range = match wanted {
        None => None,
        // As in Redis, what may follow a consumer is not looked at.
        Some([from, to, limit, consumer @ ..]) if args.len() <= WORDS_MAX => {
            let limit = argument!(count(limit));
            Some((argument!(interval(from, to)), limit, consumer.first()))
        }
        Some(_) => return Ok(errors::SYNTAX),
    };
    let found = found!(find::<Arc<StreamValue>>(tx, &Key::from(&args[0]), Intent::Read));
    let Some(group) = found.as_ref().and_then(|(stream, _)| stream.group(&args[1])) else {
        return Ok(no_group(&args[0], &args[1], ""));
    };
    let Some((ids, limit, consumer)) = range else {
        return Ok(summary(group));
    };
    let now_ms = tx.now_ms();
    let idle_ms = |delivered_ms: u64| now_ms.saturating_sub(delivered_ms);
    let first = group.count_pending_before(*ids.start());
    let mut pending: Box<dyn Iterator<Item = _> + Send> = match consumer {
        None => Box::new(group.pending().range(first..usize::MAX)),
        Some(name) => match group.consumer(name) {
            None => return Ok(Reply::Array(Vec::new())),
            Some(consumer) => {
                let own = consumer.pending();
                let first = own.partition_point(|id| id < ids.start());
                let own = own.range(first..usize::MAX);
                Box::new(own.filter_map(|&id| group.pending_of(id)))
            }
        },
    };
    let pending = pending
        .by_ref()
        .take_while(|pending| pending.id <= *ids.end())
        .inspect(|_| work::elements(1))
        .filter(|pending| idle_ms(pending.delivered_ms) >= least_idle_ms)
        .take(limit);
    let replies = pending.map(|pending| {
        Reply::Array(vec![
            id_reply(pending.id),
            Reply::Bulk(pending.consumer.clone()),
            Reply::Integer(idle_ms(pending.delivered_ms) as i64),
            Reply::Integer(pending.deliveries as i64),
        ])
    });
    Ok(Reply::Array(replies.collect()))
}
