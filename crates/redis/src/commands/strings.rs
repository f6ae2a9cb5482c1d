//! Strings.

use super::options::{self, TimeKind};
use crate::errors;
use crate::work;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use txn::value::LongString;
use txn::{Blob, Entry, Intent, Key, Note, Outcome, Reply, Stop, Tx, Value};

/// The longest string that a command makes.
pub const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A string with the time at which it expires (0: never).
pub(super) struct Found<S = Blob> {
    pub value: S,
    pub expires_at_ms: u64,
}

/// The string at a key. The inner error is the reply to a value of another type.
pub(super) async fn string(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
) -> Result<Result<Option<Found>, Reply>, Stop> {
    let found = text_of(tx.read(key, intent).await?.entry);
    Ok(found.map(|found| {
        found.map(|found| Found { value: found.value.into_blob(), expires_at_ms: found.expires_at_ms })
    }))
}

/// The string at a key, for a command that takes none longer than `len_max`: of a longer one there are
/// `len_max + 1` bytes. The inner error is the reply to a value of another type.
pub(super) async fn short_string(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
    len_max: usize,
) -> Result<Result<Option<Found>, Reply>, Stop> {
    let found = text_of(tx.read(key, intent).await?.entry);
    Ok(found.map(|found| {
        found.map(|found| Found { value: found.value.into_head(len_max), expires_at_ms: found.expires_at_ms })
    }))
}

/// The string at a key, of which a part is wanted. The inner error is the reply to a value of another type.
pub(super) async fn text(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
) -> Result<Result<Option<Found<Text>>, Reply>, Stop> {
    Ok(text_of(tx.read(key, intent).await?.entry))
}

fn text_of(entry: Option<Entry>) -> Result<Option<Found<Text>>, Reply> {
    let Some(entry) = entry else {
        return Ok(None);
    };
    let value = match entry.value {
        Value::String(blob) => Text::Blob(blob),
        Value::LongString(string) => Text::Long(string),
        _ => return Err(errors::WRONG_TYPE),
    };
    Ok(Some(Found { value, expires_at_ms: entry.expires_at_ms }))
}

/// A string to read in part, or to write in part: which is cheap however long it is once it has been done
/// before.
#[derive(Clone)]
pub(super) enum Text {
    Blob(Blob),
    Long(Arc<LongString>),
}

impl Text {
    pub const EMPTY: Text = Text::Blob(Blob::EMPTY);

    pub fn len(&self) -> usize {
        match self {
            Text::Blob(blob) => blob.len(),
            Text::Long(string) => string.len(),
        }
    }

    pub fn into_blob(self) -> Blob {
        work::long_bytes(self.len());
        match self {
            Text::Blob(blob) => blob,
            Text::Long(string) => Blob::from(&*string),
        }
    }

    /// The string, or of a longer one so many bytes and one more, for who takes none that is longer. It is
    /// charged as the whole.
    fn into_head(self, len_max: usize) -> Blob {
        match self {
            Text::Long(string) if string.len() > len_max => {
                work::long_bytes(string.len());
                Blob::from(string.copy(0..len_max + 1))
            }
            other => other.into_blob(),
        }
    }

    /// The bytes at these places, as far as there are any.
    pub fn part(&self, places: Range<usize>) -> Cow<'_, [u8]> {
        match self {
            Text::Blob(blob) => {
                let end = places.end.min(blob.len());
                Cow::Borrowed(&blob[places.start.min(end)..end])
            }
            Text::Long(string) => Cow::Owned(string.copy(places)),
        }
    }

    /// The bytes at these places, as far as there are any, in pieces.
    pub fn pieces(&self, places: Range<usize>) -> impl Iterator<Item = &[u8]> {
        let (whole, pieces) = match self {
            Text::Blob(blob) => {
                let end = places.end.min(blob.len());
                (Some(&blob[places.start.min(end)..end]), None)
            }
            Text::Long(string) => (None, Some(string.pieces(places))),
        };
        whole.into_iter().chain(pieces.into_iter().flatten())
    }

    /// Adds zeros at the end until there are so many bytes.
    pub fn grow(&mut self, len: usize) {
        if len > self.len() {
            self.write(len - 1, &[0]);
        }
    }

    /// Puts bytes in the place of those from `at` on; zeros come between them and a shorter string.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        /// Zeros share their chunks.
        const ZEROS_PER_STEP: usize = 128;
        let end = at + bytes.len();
        work::steps(end.saturating_sub(self.len()) / ZEROS_PER_STEP);
        // A longer one may be in chunks at one replica and not at another: that it is put in chunks is free,
        // and so happens once.
        if self.len() < LongString::BYTES_MIN {
            work::bytes(self.len());
        }
        match self {
            Text::Long(string) => Arc::make_mut(string).write(at, bytes),
            Text::Blob(blob) => {
                if end.max(blob.len()) < LongString::BYTES_MIN {
                    let mut copy = grown(blob, end);
                    copy[at..end].copy_from_slice(bytes);
                    *blob = Blob::from(copy);
                } else {
                    let mut string = LongString::from(&**blob);
                    string.write(at, bytes);
                    *self = Text::Long(Arc::new(string));
                }
            }
        }
    }
}

impl From<Text> for Value {
    fn from(text: Text) -> Value {
        match text {
            Text::Blob(blob) => Value::String(blob),
            Text::Long(string) => Value::LongString(string),
        }
    }
}

/// What was found, to change it, and when it expires.
pub(super) fn to_change(found: Option<Found<Text>>) -> (Text, u64) {
    found.map_or((Text::EMPTY, 0), |found| (found.value, found.expires_at_ms))
}

/// Sets a key to a string that expires at a time (0: never).
pub(super) async fn put(
    tx: &mut Tx,
    key: &Key,
    value: impl Into<Value>,
    expires_at_ms: u64,
) -> Result<(), Stop> {
    tx.put_entry(key, Entry { value: value.into(), expires_at_ms }).await
}

/// A copy of at least `len` bytes: zeros follow a shorter string.
fn grown(bytes: &[u8], len: usize) -> Vec<u8> {
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
                // As in Redis, the same word may come again.
                let may_come = |kind: &TimeKind| {
                    let other = options.expiry.filter(|(other, _)| other != kind);
                    !options.keep_ttl && other.is_none()
                };
                let kind = TimeKind::of_option(word).filter(may_come)?;
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
        Some((kind, time)) => argument!(options::expiry_ms(tx, kind, time, "set").await?),
        None => 0,
    };
    let mut reply = Reply::OK;
    if options.only_absent || options.only_present || options.reply_old || options.keep_ttl {
        let old = tx.read(&key, Intent::Update).await?.entry;
        if options.reply_old {
            reply = match old.as_ref().map(|old| old.value.as_string()) {
                None => Reply::Nil,
                Some(Some(value)) => Reply::Bulk(value),
                Some(None) => return Ok(errors::WRONG_TYPE),
            };
        }
        if (options.only_absent && old.is_some()) || (options.only_present && old.is_none()) {
            return Ok(if options.reply_old { reply } else { Reply::Nil });
        }
        if options.keep_ttl {
            expires_at_ms = old.map_or(0, |old| old.expires_at_ms);
            tx.note(|| Note::Named("set"));
        }
    }
    tx.put_entry(&key, Entry { value: Value::String(args[1].clone()), expires_at_ms }).await?;
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
    let expires_at_ms = argument!(options::expiry_ms(tx, kind, &args[1], command).await?);
    tx.put_entry(&Key::from(&args[0]), Entry { value: Value::String(args[2].clone()), expires_at_ms })
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
    let (mut expiry, mut persists) = (None, false);
    let mut words = &args[1..];
    while let [word, rest @ ..] = words {
        words = match (TimeKind::of_option(word), rest) {
            (None, rest) if expiry.is_none() && options::is(word, "PERSIST") => {
                persists = true;
                rest
            }
            // As in Redis, the same word may come again.
            (Some(kind), [time, rest @ ..]) if !persists && expiry.is_none_or(|(other, _)| other == kind) => {
                expiry = Some((kind, time));
                rest
            }
            _ => return Ok(errors::SYNTAX),
        };
    }
    let key = Key::from(&args[0]);
    let Some(found) = found!(text(tx, &key, Intent::Update)) else {
        return Ok(Reply::Nil);
    };
    let expires_at_ms = match expiry {
        Some((kind, time)) => argument!(options::expiry_ms(tx, kind, time, "getex").await?),
        None if persists => 0,
        None => found.expires_at_ms,
    };
    if expires_at_ms != 0 && expires_at_ms <= tx.now_ms() {
        tx.delete(&key).await?;
    } else if expires_at_ms != found.expires_at_ms {
        put(tx, &key, found.value.clone(), expires_at_ms).await?;
    }
    Ok(Reply::Bulk(found.value.into_blob()))
}

/// MGET key [key ...]
pub async fn mget(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut values = Vec::with_capacity(args.len());
    let mut reply_bytes = 0;
    for name in args {
        let value = tx.get(&Key::from(name)).await?;
        let len = value.as_ref().and_then(Value::string_len).unwrap_or(0);
        work::bytes(len);
        if work::is_spent() {
            break;
        }
        // Each is put together for the reply, also what takes less where it is kept.
        reply_bytes += len;
        if reply_bytes > STRING_BYTES_MAX {
            return Ok(errors::MGET_TOO_LONG);
        }
        values.push(bulk_or_nil(value.and_then(|value| value.as_string())));
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
    let (value, expires_at_ms) = match found!(text(tx, &key, Intent::Update)) {
        None => (Text::Blob(args[1].clone()), 0),
        Some(Found { mut value, expires_at_ms }) => {
            if value.len() + args[1].len() > STRING_BYTES_MAX {
                return Ok(errors::STRING_TOO_LONG);
            }
            value.write(value.len(), &args[1]);
            (value, expires_at_ms)
        }
    };
    let len = value.len();
    put(tx, &key, value, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}

/// STRLEN key
pub async fn strlen(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let found = found!(text(tx, &Key::from(&args[0]), Intent::Read));
    Ok(Reply::Integer(found.map_or(0, |found| found.value.len() as i64)))
}

/// GETRANGE key start end; SUBSTR is its old name.
pub async fn getrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let start = argument!(options::integer(&args[1]));
    let end = argument!(options::integer(&args[2]));
    let found = found!(text(tx, &Key::from(&args[0]), Intent::Read));
    let Some(found) = found.filter(|_| start >= 0 || end >= 0 || start <= end) else {
        return Ok(Reply::bulk(&[]));
    };
    let places = span(found.value.len(), start, end);
    Ok(Reply::bulk(&*found.value.part(places)))
}

/// The places from `start` to `end`, both included, of `len` ones; negative ones count from the end, and what
/// is before the first is the first.
pub(super) fn span(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    let from_start = |at: i64| {
        if at < 0 { (len + at.max(-len)).max(0) } else { at }
    };
    let (start, end) = (from_start(start), from_start(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// SETRANGE key offset value
pub async fn setrange(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let offset = argument!(options::integer(&args[1]));
    let Ok(offset) = usize::try_from(offset) else {
        return Ok(errors::OFFSET_OUT_OF_RANGE);
    };
    let key = Key::from(&args[0]);
    let (mut value, expires_at_ms) = to_change(found!(text(tx, &key, Intent::Update)));
    let patch = args[2].as_bytes();
    if patch.is_empty() {
        return Ok(Reply::Integer(value.len() as i64));
    }
    let end = offset.saturating_add(patch.len());
    if end > STRING_BYTES_MAX {
        return Ok(errors::STRING_TOO_LONG);
    }
    value.write(offset, patch);
    let len = value.len();
    put(tx, &key, value, expires_at_ms).await?;
    Ok(Reply::Integer(len as i64))
}
