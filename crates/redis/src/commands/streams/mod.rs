//! Streams.
//!
//! [`add`] appends, trims and deletes, [`read`] lists and reads, [`groups`] has consumer groups and [`claim`]
//! what moves pending entries between consumers, [`info`] tells about all that. A stream stays when its last
//! entry goes.

pub mod add;
pub mod claim;
pub mod groups;
pub mod info;
pub mod read;

pub(crate) use read::ends;

use super::options;
use crate::parse;
use std::ops::RangeInclusive;
use txn::value::{StreamEntry, StreamGroup, StreamId, StreamValue};
use txn::{Blob, Reply};

const INVALID_ID: Reply = Reply::error("ERR Invalid stream ID specified as stream command argument");

/// A part of an id: C's `strtoull` reads it, which takes spaces and a `+` before it.
fn part(text: &[u8]) -> Option<u64> {
    let text = parse::without_spaces(text);
    parse::unsigned(text.strip_prefix(b"+").unwrap_or(text))
}

/// An id as a client writes it: `ms-sequence`, or `ms` with a sequence number that the command has for that.
fn id(text: &[u8], missing_sequence: u64) -> Result<StreamId, Reply> {
    let (ms, sequence) = match text.iter().position(|&byte| byte == b'-') {
        Some(dash) => (&text[..dash], part(&text[dash + 1..])),
        None => (text, Some(missing_sequence)),
    };
    match (part(ms), sequence) {
        (Some(ms), Some(sequence)) => Ok(StreamId { ms, sequence }),
        _ => Err(INVALID_ID),
    }
}

/// Ids as a client writes them.
fn ids(texts: &[Blob]) -> Result<Vec<StreamId>, Reply> {
    texts.iter().map(|text| id(text, 0)).collect()
}

/// One end of an interval: an id, `-`, `+`, or an id behind `(` that is not meant itself.
fn end_of_interval(text: &Blob, missing_sequence: u64) -> Result<(StreamId, bool), Reply> {
    match text.as_bytes() {
        b"-" => Ok((StreamId::MIN, false)),
        b"+" => Ok((StreamId::MAX, false)),
        [b'(', rest @ ..] => Ok((id(rest, missing_sequence)?, true)),
        text => Ok((id(text, missing_sequence)?, false)),
    }
}

/// The start of an interval.
fn start(text: &Blob) -> Result<StreamId, Reply> {
    match end_of_interval(text, 0)? {
        (start, false) => Ok(start),
        (start, true) => start.next().ok_or(Reply::error("ERR invalid start ID for the interval")),
    }
}

/// The end of an interval.
fn end(text: &Blob) -> Result<StreamId, Reply> {
    match end_of_interval(text, u64::MAX)? {
        (end, false) => Ok(end),
        (end, true) => end.previous().ok_or(Reply::error("ERR invalid end ID for the interval")),
    }
}

/// An interval; an empty one if its start is behind its end.
fn interval(from: &Blob, to: &Blob) -> Result<RangeInclusive<StreamId>, Reply> {
    Ok(start(from)?..=end(to)?)
}

/// A count that is 0 if it is negative.
fn count(text: &Blob) -> Result<usize, Reply> {
    Ok(options::integer(text)?.max(0) as usize)
}

fn id_reply(id: StreamId) -> Reply {
    Reply::bulk(id.to_string())
}

fn entry_reply(entry: &StreamEntry) -> Reply {
    let fields = entry.fields.iter().map(|field| Reply::Bulk(field.clone()));
    Reply::Array(vec![id_reply(entry.id), Reply::Array(fields.collect())])
}

/// The sequence number of an entry among all that a stream ever had, if that can be known: of the last one,
/// of the first one that is there, and of what is before that, while nothing behind it was deleted.
pub(super) fn place_ever(stream: &StreamValue, id: StreamId) -> Option<u64> {
    if stream.entries_added == 0 {
        return Some(0);
    }
    let Some(first) = stream.first().map(|entry| entry.id) else {
        return (id <= stream.last_id).then_some(stream.entries_added);
    };
    if id >= stream.last_id {
        return (id == stream.last_id).then_some(stream.entries_added);
    }
    let before_first = stream.entries_added.saturating_sub(stream.len() as u64);
    let is_whole = stream.max_deleted_id == StreamId::MIN || stream.max_deleted_id < first;
    match is_whole {
        true if id < first => Some(before_first),
        true if id == first => Some(before_first + 1),
        _ => None,
    }
}

/// Whether an entry behind an id was deleted.
fn has_gap_behind(stream: &StreamValue, id: StreamId) -> bool {
    let deleted = stream.max_deleted_id;
    let first = stream.first().map(|entry| entry.id);
    deleted != StreamId::MIN && first.is_some_and(|first| first <= deleted) && id <= deleted
}

/// How many entries a group has not delivered, if that can be known.
fn lag(stream: &StreamValue, group: &StreamGroup) -> Option<i64> {
    if stream.entries_added == 0 {
        return Some(0);
    }
    let counted = group.entries_read.filter(|_| !has_gap_behind(stream, group.last_id));
    let read = counted.or_else(|| place_ever(stream, group.last_id))?;
    // As in Redis, below 0 if a client has said that more were read than were ever added.
    Some(stream.entries_added.wrapping_sub(read).cast_signed())
}

/// No such key, or no such group there.
fn no_group(key: &Blob, group: &Blob, rest: &str) -> Reply {
    let text = |bytes: &Blob| String::from_utf8_lossy(bytes).into_owned();
    Reply::error_owned(format!(
        "NOGROUP No such key '{}' or consumer group '{}'{rest}",
        text(key),
        text(group)
    ))
}

/// What XREADGROUP says then.
pub(crate) fn no_group_to_read(key: &Blob, group: &Blob) -> Reply {
    no_group(key, group, " in XREADGROUP with GROUP option")
}

/// The key is there, but no such group.
fn no_group_there(key: &Blob, group: &Blob) -> Reply {
    let text = |bytes: &Blob| String::from_utf8_lossy(bytes).into_owned();
    Reply::error_owned(format!(
        "NOGROUP No such consumer group '{}' for key name '{}'",
        text(group),
        text(key)
    ))
}
