//! Listing streams and reading what is new in them.

use super::{count, entry_reply, id, id_reply, interval, no_group_to_read, place_ever};
use crate::commands::collections::{find, put};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::errors;
use std::sync::Arc;
use txn::value::{Pending, StreamId, StreamValue};
use txn::{Blob, Intent, Key, Note, Outcome, Reply, Stop, Tx};

const UNBALANCED: Reply = Reply::error(
    "ERR Unbalanced 'xread' list of streams: for each stream key an ID or '$' must be specified.",
);
const UNBALANCED_IN_GROUP: Reply = Reply::error(
    "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must be specified.",
);

/// XRANGE and XREVRANGE, from their ends on.
async fn list(tx: &mut Tx, args: &[Blob], from: &Blob, to: &Blob, reverse: bool) -> Outcome {
    let ids = argument!(interval(from, to));
    let mut limit = None;
    let mut rest = &args[3..];
    while let [word, value, more @ ..] = rest {
        if !options::is(word, "COUNT") {
            return Ok(errors::SYNTAX);
        }
        limit = Some(argument!(count(value)));
        rest = more;
    }
    if !rest.is_empty() {
        return Ok(errors::SYNTAX);
    }
    let Some((stream, _)) = found!(find::<Arc<StreamValue>>(tx, &Key::from(&args[0]), Intent::Read)) else {
        return Ok(Reply::Array(Vec::new()));
    };
    if limit == Some(0) {
        return Ok(Reply::NilArray);
    }
    let limit = limit.unwrap_or(usize::MAX);
    let entries = stream.range(ids);
    Ok(Reply::Array(match reverse {
        false => entries.take(limit).map(entry_reply).collect(),
        true => entries.rev().take(limit).map(entry_reply).collect(),
    }))
}

/// XRANGE key start end [COUNT count]
pub async fn xrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    list(tx, args, &args[1], &args[2], false).await
}

/// XREVRANGE key end start [COUNT count]
pub async fn xrevrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    list(tx, args, &args[2], &args[1], true).await
}

/// What XREAD and XREADGROUP are asked for.
pub(crate) struct Question<'a> {
    /// 0: all.
    limit: usize,
    /// For how many milliseconds to wait, 0 for ever.
    pub(crate) block_ms: Option<u64>,
    /// The group, and the consumer.
    pub(crate) group: Option<(&'a Blob, &'a Blob)>,
    no_ack: bool,
    /// The last words are the keys, and as many ids behind them.
    pub(crate) keys: &'a [Blob],
    pub(crate) ids: &'a [Blob],
}

impl<'a> Question<'a> {
    pub(crate) fn parse(args: &'a [Blob], in_group: bool) -> Result<Question<'a>, Reply> {
        let mut question =
            Question { limit: 0, block_ms: None, group: None, no_ack: false, keys: &[], ids: &[] };
        let only_in_group = |option: &str| {
            Reply::error_owned(format!(
                "ERR The {option} option is only supported by XREADGROUP. You called XREAD instead."
            ))
        };
        let mut rest = args;
        loop {
            rest = match rest {
                [word, value, rest @ ..] if options::is(word, "BLOCK") => {
                    question.block_ms = Some(options::timeout_ms(value)?);
                    rest
                }
                [word, value, rest @ ..] if options::is(word, "COUNT") => {
                    question.limit = count(value)?;
                    rest
                }
                [word, rest @ ..] if options::is(word, "STREAMS") && !rest.is_empty() => {
                    if !rest.len().is_multiple_of(2) {
                        return Err(match in_group {
                            false => UNBALANCED,
                            true => UNBALANCED_IN_GROUP,
                        });
                    }
                    (question.keys, question.ids) = rest.split_at(rest.len() / 2);
                    break;
                }
                [word, group, consumer, rest @ ..] if options::is(word, "GROUP") => {
                    if !in_group {
                        return Err(only_in_group("GROUP"));
                    }
                    question.group = Some((group, consumer));
                    rest
                }
                [word, rest @ ..] if options::is(word, "NOACK") => {
                    if !in_group {
                        return Err(only_in_group("NOACK"));
                    }
                    question.no_ack = true;
                    rest
                }
                _ => return Err(errors::SYNTAX),
            };
        }
        match in_group && question.group.is_none() {
            true => Err(Reply::error("ERR Missing GROUP option for XREADGROUP")),
            false => Ok(question),
        }
    }

    fn limit(&self) -> usize {
        match self.limit {
            0 => usize::MAX,
            limit => limit,
        }
    }
}

/// Streams with their entries, or nothing at all.
fn streams_reply(streams: Vec<(Reply, Reply)>) -> Reply {
    match streams.is_empty() {
        true => Reply::NilArray,
        false => Reply::PairMap(streams),
    }
}

/// XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...], as far as it can be answered
/// at once.
pub async fn xread(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let question = argument!(Question::parse(args, false));
    let mut wanted = Vec::with_capacity(question.keys.len());
    for (key, text) in question.keys.iter().zip(question.ids) {
        let stream =
            found!(find::<Arc<StreamValue>>(tx, &Key::from(key), Intent::Read)).map(|(stream, _)| stream);
        let after = match text.as_bytes() {
            b"$" => stream.as_ref().map_or(StreamId::MIN, |stream| stream.last_id),
            b">" => {
                return Ok(Reply::error(
                    "ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
                     <consumer> option.",
                ));
            }
            text => argument!(id(text, 0)),
        };
        wanted.push((key, stream, after));
    }
    let mut streams = Vec::new();
    for (key, stream, after) in wanted {
        let (Some(stream), Some(first)) = (stream, after.next()) else {
            continue;
        };
        let entries = stream.range(first..=StreamId::MAX).take(question.limit());
        let entries: Vec<Reply> = entries.map(entry_reply).collect();
        if !entries.is_empty() {
            streams.push((Reply::Bulk(key.clone()), Reply::Array(entries)));
        }
    }
    Ok(streams_reply(streams))
}

/// XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id
/// ...], as far as it can be answered at once.
pub async fn xreadgroup(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let question = argument!(Question::parse(args, true));
    let Some((group, _)) = question.group else {
        return Ok(errors::SYNTAX);
    };
    // Nothing is delivered if anything is wrong.
    let mut wanted = Vec::with_capacity(question.keys.len());
    for (name, text) in question.keys.iter().zip(question.ids) {
        let found = found!(find::<Arc<StreamValue>>(tx, &Key::from(name), Intent::Update));
        if found.is_none_or(|(stream, _)| stream.group(group).is_none()) {
            return Ok(no_group_to_read(name, group));
        }
        wanted.push(match text.as_bytes() {
            b">" => None,
            b"$" => {
                return Ok(Reply::error(
                    "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
                     history of this consumer by specifying a proper ID, or use the > ID to get new \
                     messages. The $ ID would just return an empty result set.",
                ));
            }
            // As in Redis, the largest id is another word for `>`.
            text => Some(argument!(id(text, 0))).filter(|&after| after != StreamId::MAX),
        });
    }
    let mut streams = Vec::new();
    for (name, after) in question.keys.iter().zip(wanted) {
        if let Some(entries) = deliver(tx, &question, name, after).await? {
            streams.push((Reply::Bulk(name.clone()), Reply::Array(entries)));
        }
    }
    Ok(streams_reply(streams))
}

/// The last ids of the streams at some keys.
pub(crate) async fn ends(tx: &mut Tx, names: &[Blob]) -> Outcome {
    let mut ends = Vec::with_capacity(names.len());
    for name in names {
        let stream = found!(find::<Arc<StreamValue>>(tx, &Key::from(name), Intent::Read));
        let end = stream.map_or(StreamId::MIN, |(stream, _)| stream.last_id);
        ends.push(id_reply(end));
    }
    Ok(Reply::Array(ends))
}

/// Gives a consumer what a stream has for it: of what is new, or of what it has pending after an id. `None`
/// if nothing is new.
async fn deliver(
    tx: &mut Tx,
    question: &Question<'_>,
    name: &Blob,
    after: Option<StreamId>,
) -> Result<Option<Vec<Reply>>, Stop> {
    let key = Key::from(name);
    let (Ok(Some((old, expires_at_ms))), Some((group, consumer))) =
        (find::<Arc<StreamValue>>(tx, &key, Intent::Update).await?, question.group)
    else {
        return Ok(None);
    };
    let mut stream = StreamValue::clone(&old);
    let now_ms = tx.now_ms();
    let is_new = stream.update_group(group, |group| group.see(consumer, now_ms));
    if is_new == Some(true) {
        tx.note(|| Note::Named("xgroup-createconsumer".into()));
    }
    let Some(after) = after else {
        // What is written if nothing is new is when the consumer last asked.
        let entries = news(&mut stream, question, now_ms);
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
        return Ok(entries);
    };
    let (entries, delivered) = history(&mut stream, group, consumer, after, question.limit(), now_ms);
    // As in Redis, who watches the key does not mind who asks for nothing.
    if delivered > 0 || is_new == Some(true) {
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Some(entries))
}

/// What a consumer has pending after an id, and how many entries of that are delivered once more.
fn history(
    stream: &mut StreamValue,
    group: &Blob,
    consumer: &Blob,
    after: StreamId,
    limit: usize,
    now_ms: u64,
) -> (Vec<Reply>, usize) {
    let pending: Vec<StreamId> =
        stream.group(group).and_then(|group| group.consumer(consumer)).map_or_else(Vec::new, |consumer| {
            let pending = consumer.pending();
            let first = pending.partition_point_by(|id| id.cmp(&after), |id| *id <= after);
            let pending = pending.range(first..usize::MAX);
            pending.take(limit).copied().collect()
        });
    let mut entries = Vec::with_capacity(pending.len());
    let mut delivered = 0;
    for id in pending {
        let Some(entry) = stream.get(id) else {
            entries.push(Reply::Array(vec![id_reply(id), Reply::NilArray]));
            continue;
        };
        entries.push(entry_reply(entry));
        delivered += 1;
        stream.update_group(group, |group| {
            if let Some(pending) = group.pending_of(id).cloned() {
                group.give(Pending { delivered_ms: now_ms, deliveries: pending.deliveries + 1, ..pending });
            }
        });
    }
    (entries, delivered)
}

/// What no consumer of the group got yet.
fn news(stream: &mut StreamValue, question: &Question<'_>, now_ms: u64) -> Option<Vec<Reply>> {
    let (group_name, consumer) = question.group?;
    let group = stream.group(group_name)?;
    let first = group.last_id.next()?;
    let entries = stream.range(first..=StreamId::MAX).take(question.limit());
    let (mut replies, mut ids) = (Vec::new(), Vec::new());
    let mut entries_read = group.entries_read;
    for entry in entries {
        entries_read = match entries_read {
            Some(read) if !super::has_gap_behind(stream, entry.id) => Some(read + 1),
            _ => place_ever(stream, entry.id),
        };
        replies.push(entry_reply(entry));
        ids.push(entry.id);
    }
    let last_id = *ids.last()?;
    stream.update_group(group_name, |group| {
        group.last_id = last_id;
        group.entries_read = entries_read;
        group.activate(consumer, now_ms);
        if !question.no_ack {
            for id in ids {
                group.give(Pending { id, consumer: consumer.clone(), delivered_ms: now_ms, deliveries: 1 });
            }
        }
    });
    Some(replies)
}
