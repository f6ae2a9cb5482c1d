//! Strings.

use super::options::{self, TimeKind};
use crate::errors;
use crate::table::per_key::{PerKeyResult, Plan};
use crate::work;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use txn::fragments::{self, Done, FragmentValues};
use txn::value::LongString;
use txn::{
    Blob, Entry, FragmentContext, FragmentKind, FragmentValue, Intent, Key, Note, Outcome, Reply, Stop, Tx,
    Value, told,
};

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

/// The string at a key, of which a part is wanted. The inner error is the reply to a value of another type.
pub(super) async fn text(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
) -> Result<Result<Option<Found<Text>>, Reply>, Stop> {
    Ok(text_of(tx.read(key, intent).await?.entry))
}

/// The string in a record, of which a part is wanted. The error is the reply to a value of another type.
pub(super) fn text_in(context: &FragmentContext<'_>) -> Result<Option<Found<Text>>, Reply> {
    text_of(context.found.cloned())
}

/// The string in a record, and when it expires. The error is the reply to a value of another type.
pub(super) fn string_in(context: &FragmentContext<'_>) -> Result<Option<Found>, Reply> {
    let found = text_in(context)?;
    Ok(found.map(|found| Found { value: found.value.into_blob(), expires_at_ms: found.expires_at_ms }))
}

/// The string in a record, to reply it.
fn string_to_reply(context: &FragmentContext<'_>) -> Result<FragmentValue, Reply> {
    let Some(entry) = context.found else {
        return Ok(FragmentValue::NIL);
    };
    work::long_bytes(entry.value.string_len().ok_or(errors::WRONG_TYPE)?);
    Ok(FragmentValue::of_string(&entry.value))
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
    pub(super) fn into_head(self, len_max: usize) -> Blob {
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

/// Puts a string that expires at a time (0: never) into a record.
pub(super) fn stored(value: impl Into<Value>, expires_at_ms: u64, reply: Reply) -> Done {
    Done::put(Entry { value: value.into(), expires_at_ms }, reply)
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

fn forever(value: &Blob) -> Entry {
    Entry::new(value.clone())
}

/// GET key
pub fn get(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(Done::read(string_to_reply(context)?))
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

    /// Whether the record matters.
    fn reads(&self) -> bool {
        self.only_absent || self.only_present || self.reply_old || self.keep_ttl
    }
}

/// The plan of SET.
pub fn set_plan(args: &[Blob]) -> Result<Plan, Reply> {
    if args.len() == 2 {
        return Ok(Plan::of(FragmentKind::Put));
    }
    let options = SetOptions::parse(&args[2..]).ok_or(errors::SYNTAX)?;
    let kind = if options.reads() { FragmentKind::Update } else { FragmentKind::Put };
    let takes_date = options.expiry.is_some_and(|(kind, _)| kind.is_date());
    Ok(Plan { takes_date, ..Plan::of(kind) })
}

/// SET key value [NX | XX] [GET] [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | KEEPTTL]
pub fn set(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    if args.len() == 2 {
        return Ok(Done::put(forever(&args[1]), Reply::OK));
    }
    let options = SetOptions::parse(&args[2..]).ok_or(errors::SYNTAX)?;
    let mut expires_at_ms = match options.expiry {
        Some((kind, time)) => options::expiry_ms(context, kind, time, "set")?,
        None => 0,
    };
    let old = context.found;
    let mut reply = Reply::OK.into();
    if options.reply_old {
        if old.is_some_and(|old| old.value.string_len().is_none()) {
            return Err(errors::WRONG_TYPE);
        }
        reply = old.map_or(FragmentValue::NIL, |old| FragmentValue::of_string(&old.value));
    }
    if (options.only_absent && old.is_some()) || (options.only_present && old.is_none()) {
        return Ok(Done::read(if options.reply_old { reply } else { FragmentValue::NIL }));
    }
    if options.keep_ttl {
        expires_at_ms = old.map_or(0, |old| old.expires_at_ms);
        told::note(|| Note::Named("set".into()));
    }
    Ok(Done::put(Entry { value: Value::String(args[1].clone()), expires_at_ms }, reply))
}

/// SETNX key value
pub fn setnx(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(match context.found {
        Some(_) => Done::read(Reply::Integer(0)),
        None => Done::put(forever(&args[1]), Reply::Integer(1)),
    })
}

fn set_for(
    args: &[Blob],
    context: &FragmentContext<'_>,
    kind: TimeKind,
    command: &'static str,
) -> PerKeyResult {
    let expires_at_ms = options::expiry_ms(context, kind, &args[1], command)?;
    Ok(stored(args[2].clone(), expires_at_ms, Reply::OK))
}

/// SETEX key seconds value
pub fn setex(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    set_for(args, context, TimeKind::Seconds, "setex")
}

/// PSETEX key milliseconds value
pub fn psetex(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    set_for(args, context, TimeKind::Milliseconds, "psetex")
}

/// GETSET key value
pub fn getset(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(Done::put(forever(&args[1]), string_to_reply(context)?))
}

/// GETDEL key
pub fn getdel(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let old = string_to_reply(context)?;
    Ok(match context.found {
        Some(_) => Done::delete(old),
        None => Done::read(old),
    })
}

/// What GETEX does to the time to live.
enum NewExpiry<'a> {
    Same,
    Never,
    At(TimeKind, &'a Blob),
}

impl NewExpiry<'_> {
    fn parse(mut words: &[Blob]) -> Option<NewExpiry<'_>> {
        let mut new = NewExpiry::Same;
        while let [word, rest @ ..] = words {
            (new, words) = match (TimeKind::of_option(word), rest) {
                (None, rest) if !matches!(new, NewExpiry::At(..)) && options::is(word, "PERSIST") => {
                    (NewExpiry::Never, rest)
                }
                // As in Redis, the same word may come again.
                (Some(kind), [time, rest @ ..]) => match new {
                    NewExpiry::Never => return None,
                    NewExpiry::At(other, _) if other != kind => return None,
                    _ => (NewExpiry::At(kind, time), rest),
                },
                _ => return None,
            };
        }
        Some(new)
    }
}

/// The plan of GETEX.
pub fn getex_plan(args: &[Blob]) -> Result<Plan, Reply> {
    let new = NewExpiry::parse(&args[1..]).ok_or(errors::SYNTAX)?;
    let takes_date = matches!(new, NewExpiry::At(kind, _) if kind.is_date());
    Ok(Plan { takes_date, ..Plan::of(FragmentKind::Update) })
}

/// GETEX key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST]
pub fn getex(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let reply = string_to_reply(context)?;
    let Some(old) = context.found else {
        return Ok(Done::read(reply));
    };
    let expires_at_ms = match NewExpiry::parse(&args[1..]).ok_or(errors::SYNTAX)? {
        NewExpiry::At(kind, time) => options::expiry_ms(context, kind, time, "getex")?,
        NewExpiry::Never => 0,
        NewExpiry::Same => old.expires_at_ms,
    };
    Ok(if expires_at_ms != 0 && expires_at_ms <= context.now_ms {
        Done::delete(reply)
    } else if expires_at_ms != old.expires_at_ms {
        Done::put(Entry { expires_at_ms, ..old.clone() }, reply)
    } else {
        Done::read(reply)
    })
}

/// MGET key [key ...]
pub fn mget(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let value = context.found.map_or(FragmentValue::NIL, |entry| {
        work::bytes(entry.value.string_len().unwrap_or(0));
        FragmentValue::of_string(&entry.value)
    });
    Ok(Done::read(value))
}

/// The reply of MGET.
pub fn mget_reply(args: &[Blob], values: FragmentValues) -> Reply {
    // Each is put together for the reply, also what takes less where it is kept.
    let len = |value: &FragmentValue| match value {
        FragmentValue::Reply(Reply::Bulk(bytes)) => bytes.len(),
        FragmentValue::Reply(_) => 0,
        FragmentValue::Long(string) => string.len(),
    };
    match values.iter().map(len).sum::<usize>() > STRING_BYTES_MAX {
        true => errors::MGET_TOO_LONG,
        false => fragments::all(args, values),
    }
}

/// The plan of MSET.
pub fn mset_plan(args: &[Blob]) -> Result<Plan, Reply> {
    match args.len() % 2 {
        0 => Ok(Plan::of(FragmentKind::Put)),
        _ => Err(errors::wrong_arity_of("mset")),
    }
}

/// MSET key value [key value ...]
pub fn mset(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(Done::put(forever(&args[2 * context.place + 1]), FragmentValue::NIL))
}

/// The reply of MSET.
pub fn mset_reply(_: &[Blob], _: FragmentValues) -> Reply {
    Reply::OK
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
pub fn append(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let (value, expires_at_ms) = match text_in(context)? {
        None => (Text::Blob(args[1].clone()), 0),
        Some(Found { mut value, expires_at_ms }) => {
            if value.len() + args[1].len() > STRING_BYTES_MAX {
                return Err(errors::STRING_TOO_LONG);
            }
            value.write(value.len(), &args[1]);
            (value, expires_at_ms)
        }
    };
    let len = value.len() as i64;
    Ok(stored(value, expires_at_ms, Reply::Integer(len)))
}

/// STRLEN key
pub fn strlen(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = text_in(context)?;
    Ok(Done::read(Reply::Integer(found.map_or(0, |found| found.value.len() as i64))))
}

/// GETRANGE key start end; SUBSTR is its old name.
pub fn getrange(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let start = options::integer(&args[1])?;
    let end = options::integer(&args[2])?;
    let found = text_in(context)?;
    let Some(found) = found.filter(|_| start >= 0 || end >= 0 || start <= end) else {
        return Ok(Done::read(Reply::bulk(&[])));
    };
    let places = span(found.value.len(), start, end);
    Ok(Done::read(Reply::bulk(&*found.value.part(places))))
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
pub fn setrange(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let offset = options::integer(&args[1])?;
    let offset = usize::try_from(offset).map_err(|_| errors::OFFSET_OUT_OF_RANGE)?;
    let (mut value, expires_at_ms) = to_change(text_in(context)?);
    let patch = args[2].as_bytes();
    if patch.is_empty() {
        return Ok(Done::read(Reply::Integer(value.len() as i64)));
    }
    let end = offset.saturating_add(patch.len());
    if end > STRING_BYTES_MAX {
        return Err(errors::STRING_TOO_LONG);
    }
    value.write(offset, patch);
    let len = value.len() as i64;
    Ok(stored(value, expires_at_ms, Reply::Integer(len)))
}
