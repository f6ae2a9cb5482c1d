//! Appending to streams, trimming them, deleting from them.

use super::{id, id_reply, ids};
use crate::commands::collections::{FoundIn, find, found_in, put, stored, taken};
use crate::commands::options;
use crate::commands::strings::{argument, found};
use crate::table::per_key::{PerKeyResult, Plan, date_offset_ms};
use crate::work;
use crate::{errors, parse};
use std::sync::Arc;
use txn::fragments::Done;
use txn::value::{StreamEntry, StreamId, StreamValue};
use txn::{Blob, FragmentContext, Intent, Key, Note, Outcome, Reply, Tx, clock, told};

const EXHAUSTED: Reply =
    Reply::error("ERR The stream has exhausted the last possible ID, unable to add more items");
const ZERO_ID: Reply = Reply::error("ERR The ID specified in XADD must be greater than 0-0");
const SMALL_ID: Reply =
    Reply::error("ERR The ID specified in XADD is equal or smaller than the target stream top item");
/// What trimming with `~` removes at once unless LIMIT says otherwise: Redis's hundred nodes of a hundred
/// entries.
const ABOUT_LIMIT: u64 = 10_000;

/// What to trim a stream to.
enum Threshold {
    MaxLen(u64),
    MinId(StreamId),
}

/// How to trim a stream. Redis's `~` spares it work that whole nodes do not need; there are no nodes here, so
/// it only bounds how much goes at once.
struct Trim {
    threshold: Threshold,
    /// 0: none.
    limit: u64,
}

impl Trim {
    /// Trims, and gives the number of entries that went.
    fn apply(&self, stream: &mut StreamValue) -> usize {
        let surplus = match self.threshold {
            Threshold::MaxLen(len) => {
                let len = usize::try_from(len).unwrap_or(usize::MAX);
                stream.len().saturating_sub(len)
            }
            Threshold::MinId(id) => stream.count_before(id),
        };
        let limit = usize::try_from(self.limit).ok().filter(|&limit| limit > 0);
        let trimmed = surplus.min(limit.unwrap_or(usize::MAX));
        work::members(trimmed);
        stream.trim(trimmed);
        trimmed
    }
}

/// An id that XADD is given.
enum NewId {
    /// `*`
    Any,
    /// `ms-*`
    At(u64),
    This(StreamId),
}

/// The words between the key and the fields, or the end.
#[derive(Default)]
struct Words {
    trim: Option<Trim>,
    no_stream: bool,
    id: Option<NewId>,
    /// How many words that were.
    taken: usize,
}

fn new_id(word: &Blob) -> Result<NewId, Reply> {
    if word.as_bytes() == b"*" {
        return Ok(NewId::Any);
    }
    match word.strip_suffix(b"-*") {
        Some(ms) => parse::unsigned(ms).map(NewId::At).ok_or(super::INVALID_ID),
        None => id(word, 0).map(NewId::This),
    }
}

/// Reads the options of XADD, up to its id, or those of XTRIM.
fn words(args: &[Blob], adds: bool) -> Result<Words, Reply> {
    let mut words = Words::default();
    let (mut threshold, mut about, mut limit) = (None, false, None);
    let mut at = 0;
    while at < args.len() {
        let (word, more) = (&args[at], args.len() - 1 - at);
        let is_max_len = options::is(word, "MAXLEN");
        at += 1;
        if adds && word.as_bytes() == b"*" {
            words.id = Some(NewId::Any);
            break;
        } else if (is_max_len || options::is(word, "MINID")) && more > 0 {
            if threshold.is_some() {
                return Err(Reply::error(
                    "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
                ));
            }
            about = more >= 2 && args[at].as_bytes() == b"~";
            at += usize::from(about || more >= 2 && args[at].as_bytes() == b"=");
            threshold = Some(match is_max_len {
                true => {
                    let len = options::integer(&args[at])?;
                    let len = u64::try_from(len)
                        .map_err(|_| Reply::error("ERR The MAXLEN argument must be >= 0."))?;
                    Threshold::MaxLen(len)
                }
                false => Threshold::MinId(id(&args[at], 0)?),
            });
            at += 1;
        } else if options::is(word, "LIMIT") && more > 0 {
            let value = options::integer(&args[at])?;
            limit =
                Some(u64::try_from(value).map_err(|_| Reply::error("ERR The LIMIT argument must be >= 0."))?);
            at += 1;
        } else if adds && options::is(word, "NOMKSTREAM") {
            words.no_stream = true;
        } else if adds {
            words.id = Some(new_id(word)?);
            break;
        } else {
            return Err(errors::SYNTAX);
        }
    }
    words.taken = at;
    match (&threshold, limit) {
        (None, Some(1..)) => {
            return Err(Reply::error(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        (None, _) if !adds => {
            return Err(Reply::error("ERR syntax error, XTRIM must be called with a trimming strategy"));
        }
        (_, Some(_)) if !about => {
            return Err(Reply::error("ERR syntax error, LIMIT cannot be used without the special ~ option"));
        }
        _ => {}
    }
    let limit = limit.unwrap_or(if about { ABOUT_LIMIT } else { 0 });
    words.trim = threshold.map(|threshold| Trim { threshold, limit });
    Ok(words)
}

/// The id of the entry behind the last one of a stream.
fn next_id(wanted: &NewId, last: StreamId, now_ms: u64) -> Result<StreamId, Reply> {
    let Some(after) = last.next() else {
        return Err(EXHAUSTED);
    };
    let first_of = |ms| StreamId { ms, sequence: 0 };
    let id = match *wanted {
        NewId::Any if now_ms > last.ms => first_of(now_ms),
        NewId::Any => after,
        NewId::At(ms) if ms == last.ms && after.ms == ms => after,
        NewId::At(ms) => first_of(ms),
        NewId::This(id) => id,
    };
    if id > last { Ok(id) } else { Err(SMALL_ID) }
}

/// XADD's id and other options, and the entry's fields.
fn addition(args: &[Blob]) -> Result<(NewId, Words, &[Blob]), Reply> {
    let mut words = words(&args[1..], true)?;
    let fields = &args[1 + words.taken..];
    let are_pairs = !fields.is_empty() && fields.len().is_multiple_of(2);
    match words.id.take().filter(|_| are_pairs) {
        Some(NewId::This(StreamId::MIN)) => Err(ZERO_ID),
        Some(id) => Ok((id, words, fields)),
        None => Err(errors::wrong_arity_of("xadd")),
    }
}

/// The plan of XADD.
pub fn xadd_plan(args: &[Blob]) -> Result<Plan, Reply> {
    let (id, ..) = addition(args)?;
    Ok(Plan { takes_date: matches!(id, NewId::Any), ..Plan::of_change() })
}

/// XADD key [NOMKSTREAM] [MAXLEN | MINID [= | ~] threshold [LIMIT count]] * | id field value [field value
/// ...]
pub fn xadd(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let (id, words, fields) = addition(args)?;
    let found = found_in::<Arc<StreamValue>>(context)?;
    if found.is_none() && words.no_stream {
        return Ok(Done::read(Reply::Nil));
    }
    let last = found.as_ref().and_then(FoundIn::look).map_or(StreamId::MIN, |stream| stream.last_id);
    let id = next_id(&id, last, clock::date_ms(context.now_ms, date_offset_ms(context)))?;
    let (mut stream, expires_at_ms) = taken(found);
    let changed = Arc::make_mut(&mut stream);
    changed.append(StreamEntry { id, fields: Arc::from(fields) });
    let trimmed = words.trim.map_or(0, |trim| trim.apply(changed));
    if trimmed > 0 {
        // Others are told of one write twice: as an addition here, and as a trim where the write is noted.
        let (key, expires) = (Key::from(&args[0]), expires_at_ms != 0);
        told::note(|| Note::Wrote { key, is_present: true, expires });
        told::note(|| Note::Named("xtrim".into()));
    }
    Ok(stored(stream, expires_at_ms, id_reply(id)))
}

/// XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count]
pub async fn xtrim(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let words = argument!(words(&args[1..], false));
    let key = Key::from(&args[0]);
    let (Some((old, expires_at_ms)), Some(trim)) =
        (found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update)), words.trim)
    else {
        return Ok(Reply::Integer(0));
    };
    let mut stream = StreamValue::clone(&old);
    let trimmed = trim.apply(&mut stream);
    if trimmed > 0 {
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Integer(trimmed as i64))
}

/// XDEL key id [id ...]
pub async fn xdel(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    let ids = argument!(ids(&args[1..]));
    let mut stream = StreamValue::clone(&old);
    let deleted = ids.into_iter().filter(|&id| stream.delete(id)).count();
    if deleted > 0 {
        put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    }
    Ok(Reply::Integer(deleted as i64))
}

/// XLEN key
pub async fn xlen(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let found = found!(find::<Arc<StreamValue>>(tx, &Key::from(&args[0]), Intent::Read));
    Ok(Reply::Integer(found.map_or(0, |(stream, _)| stream.len() as i64)))
}

/// XSETID key last-id [ENTRIESADDED entries-added] [MAXDELETEDID max-deleted-id]
pub async fn xsetid(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let last_id = argument!(id(&args[1], 0));
    let (mut entries_added, mut max_deleted_id) = (None, None);
    let mut rest = &args[2..];
    while let [word, value, more @ ..] = rest {
        rest = more;
        if options::is(word, "ENTRIESADDED") {
            let added = argument!(options::integer(value));
            let added = u64::try_from(added);
            entries_added =
                Some(argument!(added.map_err(|_| Reply::error("ERR entries_added must be positive"))));
        } else if options::is(word, "MAXDELETEDID") {
            let deleted = argument!(id(value, 0));
            if last_id < deleted {
                return Ok(Reply::error(
                    "ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                ));
            }
            max_deleted_id = Some(deleted);
        } else {
            return Ok(errors::SYNTAX);
        }
    }
    if !rest.is_empty() {
        return Ok(errors::SYNTAX);
    }
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<Arc<StreamValue>>(tx, &key, Intent::Update)) else {
        return Ok(errors::NO_SUCH_KEY);
    };
    let mut stream = StreamValue::clone(&old);
    if last_id < stream.max_deleted_id {
        return Ok(Reply::error(
            "ERR The ID specified in XSETID is smaller than current max_deleted_entry_id",
        ));
    }
    if let Some(last) = stream.last() {
        if last_id < last.id {
            return Ok(Reply::error(
                "ERR The ID specified in XSETID is smaller than the target stream top item",
            ));
        }
        if entries_added.is_some_and(|added| added < stream.len() as u64) {
            return Ok(Reply::error(
                "ERR The entries_added specified in XSETID is smaller than the target stream length",
            ));
        }
    }
    stream.last_id = last_id;
    stream.entries_added = entries_added.unwrap_or(stream.entries_added);
    if let Some(deleted) = max_deleted_id.filter(|&deleted| deleted != StreamId::MIN) {
        stream.max_deleted_id = deleted;
    }
    put(tx, &key, Arc::new(stream), expires_at_ms).await?;
    Ok(Reply::OK)
}
