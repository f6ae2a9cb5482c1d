//! Strings.

use super::options::{self, TimeKind};
use crate::errors;
use std::ops::Range;
use txn::{Blob, Entry, Intent, Key, Outcome, Reply, Stop, Tx, Value};

/// The longest string that a command makes.
pub const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A string with the time at which it expires (0: never).
pub(super) struct Found {
    pub value: Blob,
    pub expires_at_ms: u64,
}

/// The string at a key. The inner error is the reply to a value of another type.
pub(super) async fn string(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
) -> Result<Result<Option<Found>, Reply>, Stop> {
    Ok(match tx.read(key, intent).await?.entry {
        None => Ok(None),
        Some(Entry {
            value: Value::String(value),
            expires_at_ms,
        }) => Ok(Some(Found {
            value,
            expires_at_ms,
        })),
        Some(_) => Err(errors::WRONG_TYPE),
    })
}

/// Sets a key to a string that expires at a time (0: never).
pub(super) async fn put(
    tx: &mut Tx,
    key: &Key,
    value: impl Into<Blob>,
    expires_at_ms: u64,
) -> Result<(), Stop> {
    let value = Value::String(value.into());
    tx.put_entry(
        key,
        Entry {
            value,
            expires_at_ms,
        },
    )
    .await
}

/// A copy of at least `len` bytes: zeros follow a shorter string.
pub(super) fn grown(bytes: &[u8], len: usize) -> Vec<u8> {
    let len = len.max(bytes.len());
    let mut copy = Vec::with_capacity(len);
    copy.extend_from_slice(bytes);
    copy.resize(len, 0);
    copy
}

/// Unwraps what [`string`] and its like give: replies with the error if there is one.
macro_rules! found {
    ($lookup:expr) => {
        match $lookup.await? {
            Ok(found) => found,
            Err(error) => return Ok(error),
        }
    };
}
pub(super) use found;

/// Unwraps an argument's value, or replies with the error.
macro_rules! argument {
    ($parsed:expr) => {
        match $parsed {
            Ok(value) => value,
            Err(error) => return Ok(error),
        }
    };
}
pub(super) use argument;

fn bulk_or_nil(value: Option<Blob>) -> Reply {
    value.map_or(Reply::Nil, Reply::Bulk)
}

fn forever(value: &Blob) -> Entry {
    Entry::new(value.clone())
}

/// GET key
pub async fn get(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let found = found!(string(tx, &Key::from(&args[0]), Intent::Read));
    Ok(bulk_or_nil(found.map(|found| found.value)))
}

/// The options of SET.
#[derive(Default)]
struct SetOptions<'a> {
    only_absent: bool,
    only_present: bool,
    reply_old: bool,
    keep_ttl: bool,
    expiry: Option<(TimeKind, &'a Blob)>,
}

impl SetOptions<'_> {
    fn parse(mut words: &[Blob]) -> Option<SetOptions<'_>> {
        let mut options = SetOptions::default();
        while let [word, rest @ ..] = words {
            words = rest;
            if options::is(word, "NX") && !options.only_present {
                options.only_absent = true;
            } else if options::is(word, "XX") && !options.only_absent {
                options.only_present = true;
            } else if options::is(word, "GET") {
                options.reply_old = true;
            } else if options::is(word, "KEEPTTL") && options.expiry.is_none() {
                options.keep_ttl = true;
            } else {
                let kind = TimeKind::of_option(word)
                    .filter(|_| !options.keep_ttl && options.expiry.is_none())?;
                let (time, rest) = words.split_first()?;
                options.expiry = Some((kind, time));
                words = rest;
            }
        }
        Some(options)
    }
}

/// SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | KEEPTTL]
pub async fn set(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    if args.len() == 2 {
        tx.put_entry(&key, forever(&args[1])).await?;
        return Ok(Reply::OK);
    }
    let Some(options) = SetOptions::parse(&args[2..]) else {
        return Ok(errors::SYNTAX);
    };
    let mut expires_at_ms = match options.expiry {
        Some((kind, time)) => argument!(options::expiry_ms(tx, kind, time, "set")),
        None => 0,
    };
    let mut reply = Reply::OK;
    if options.only_absent || options.only_present || options.reply_old || options.keep_ttl {
        let old = tx.read(&key, Intent::Update).await?.entry;
        if options.reply_old {
            reply = match &old {
                None => Reply::Nil,
                Some(Entry {
                    value: Value::String(value),
                    ..
                }) => Reply::Bulk(value.clone()),
                Some(_) => return Ok(errors::WRONG_TYPE),
            };
        }
        if (options.only_absent && old.is_some()) || (options.only_present && old.is_none()) {
            return Ok(if options.reply_old { reply } else { Reply::Nil });
        }
        if options.keep_ttl {
            expires_at_ms = old.map_or(0, |old| old.expires_at_ms);
        }
    }
    tx.put_entry(
        &key,
        Entry {
            value: Value::String(args[1].clone()),
            expires_at_ms,
        },
    )
    .await?;
    Ok(reply)
}

/// SETNX key value
pub async fn setnx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    if tx.entry_for_update(&key).await?.is_some() {
        return Ok(Reply::Integer(0));
    }
    tx.put_entry(&key, forever(&args[1])).await?;
    Ok(Reply::Integer(1))
}

async fn set_for(tx: &mut Tx, args: &[Blob], kind: TimeKind, command: &'static str) -> Outcome {
    let expires_at_ms = argument!(options::expiry_ms(tx, kind, &args[1], command));
    tx.put_entry(
        &Key::from(&args[0]),
        Entry {
            value: Value::String(args[2].clone()),
            expires_at_ms,
        },
    )
    .await?;
    Ok(Reply::OK)
}

/// SETEX key seconds value
pub async fn setex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    set_for(tx, args, TimeKind::Seconds, "setex").await
}

/// PSETEX key milliseconds value
pub async fn psetex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    set_for(tx, args, TimeKind::Milliseconds, "psetex").await
}

/// GETSET key value
pub async fn getset(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let old = found!(string(tx, &key, Intent::Update));
    tx.put_entry(&key, forever(&args[1])).await?;
    Ok(bulk_or_nil(old.map(|old| old.value)))
}

/// GETDEL key
pub async fn getdel(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let old = found!(string(tx, &key, Intent::Update));
    if old.is_some() {
        tx.delete(&key).await?;
    }
    Ok(bulk_or_nil(old.map(|old| old.value)))
}

/// GETEX key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST]
pub async fn getex(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let expiry = match &args[1..] {
        [] => None,
        [word] if options::is(word, "PERSIST") => None,
        [word, time] => match TimeKind::of_option(word) {
            Some(kind) => Some((kind, time)),
            None => return Ok(errors::SYNTAX),
        },
        _ => return Ok(errors::SYNTAX),
    };
    let key = Key::from(&args[0]);
    let Some(found) = found!(string(tx, &key, Intent::Update)) else {
        return Ok(Reply::Nil);
    };
    let expires_at_ms = match expiry {
        Some((kind, time)) => argument!(options::expiry_ms(tx, kind, time, "getex")),
        None if args.len() > 1 => 0,
        None => found.expires_at_ms,
    };
    if expires_at_ms != 0 && expires_at_ms <= tx.now_ms() {
        tx.delete(&key).await?;
    } else if expires_at_ms != found.expires_at_ms {
        tx.put_entry(
            &key,
            Entry {
                value: Value::String(found.value.clone()),
                expires_at_ms,
            },
        )
        .await?;
    }
    Ok(Reply::Bulk(found.value))
}

/// MGET key [key ...]
pub async fn mget(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut values = Vec::with_capacity(args.len());
    for name in args {
        values.push(match tx.get(&Key::from(name)).await? {
            Some(Value::String(value)) => Reply::Bulk(value),
            _ => Reply::Nil,
        });
    }
    Ok(Reply::Array(values))
}

/// MSET key value [key value ...]
pub async fn mset(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let (pairs, []) = args.as_chunks::<2>() else {
        return Ok(errors::wrong_arity_of("mset"));
    };
    for [name, value] in pairs {
        tx.put_entry(&Key::from(name), forever(value)).await?;
    }
    Ok(Reply::OK)
}

/// MSETNX key value [key value ...]
pub async fn msetnx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let (pairs, []) = args.as_chunks::<2>() else {
        return Ok(errors::wrong_arity_of("msetnx"));
    };
    for [name, _] in pairs {
        if tx.entry_for_update(&Key::from(name)).await?.is_some() {
            return Ok(Reply::Integer(0));
        }
    }
    for [name, value] in pairs {
        tx.put_entry(&Key::from(name), forever(value)).await?;
    }
    Ok(Reply::Integer(1))
}

/// APPEND key value
pub async fn append(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let (value, expires_at_ms) = match found!(string(tx, &key, Intent::Update)) {
        None => (args[1].clone(), 0),
        Some(found) => {
            if found.value.len() + args[1].len() > STRING_BYTES_MAX {
                return Ok(errors::STRING_TOO_LONG);
            }
            (
                Blob::from([found.value.as_bytes(), args[1].as_bytes()].concat()),
                found.expires_at_ms,
            )
        }
    };
    let len = value.len();
    put(tx, &key, value, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}

/// STRLEN key
pub async fn strlen(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let found = found!(string(tx, &Key::from(&args[0]), Intent::Read));
    Ok(Reply::Integer(
        found.map_or(0, |found| found.value.len() as i64),
    ))
}

/// GETRANGE key start end; SUBSTR is its old name.
pub async fn getrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let start = argument!(options::integer(&args[1]));
    let end = argument!(options::integer(&args[2]));
    let found = found!(string(tx, &Key::from(&args[0]), Intent::Read));
    let bytes = found
        .as_ref()
        .map_or(&[][..], |found| found.value.as_bytes());
    Ok(Reply::bulk(range(bytes, start, end)))
}

/// The part from `start` to `end`, both included; negative ones count from the end.
fn range(bytes: &[u8], start: i64, end: i64) -> &[u8] {
    if start < 0 && end < 0 && start > end {
        return &[];
    }
    &bytes[span(bytes.len(), start, end)]
}

/// The places from `start` to `end`, both included, of `len` ones; negative ones count from the end, and what is before the
/// first is the first.
pub(super) fn span(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    let from_start = |at: i64| {
        if at < 0 {
            (len + at.max(-len)).max(0)
        } else {
            at
        }
    };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end {
        0..0
    } else {
        start as usize..end as usize + 1
    }
}

/// SETRANGE key offset value
pub async fn setrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let offset = argument!(options::integer(&args[1]));
    let Ok(offset) = usize::try_from(offset) else {
        return Ok(errors::OFFSET_OUT_OF_RANGE);
    };
    let key = Key::from(&args[0]);
    let found = found!(string(tx, &key, Intent::Update));
    let (old, expires_at_ms) =
        found.map_or((Blob::EMPTY, 0), |found| (found.value, found.expires_at_ms));
    let patch = args[2].as_bytes();
    if patch.is_empty() {
        return Ok(Reply::Integer(old.len() as i64));
    }
    let end = offset.saturating_add(patch.len());
    if end > STRING_BYTES_MAX {
        return Ok(errors::STRING_TOO_LONG);
    }
    let mut bytes = grown(&old, end);
    bytes[offset..end].copy_from_slice(patch);
    let len = bytes.len();
    put(tx, &key, bytes, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}
