//! Keys of any type.

use super::compact;
use super::options;
use super::strings::argument;
use crate::table::per_key::PerKeyResult;
use crate::work;
use crate::{errors, parse};
use txn::fragments::{Done, FragmentValues};
use txn::{Blob, FragmentContext, FragmentValue, Key, Outcome, Reply, Stop, Tx, Value};

/// What a record costs beside its key's and value's own heap: 80 bytes, and its place in the index,
/// which is 14 in the mean.
pub const RECORD_BYTES: usize = 94;

/// Deletes a key, and tells whether it was there: a key that was not is not written.
pub(super) async fn delete(tx: &mut Tx, key: &Key) -> Result<bool, Stop> {
    let is_there = tx.entry_for_update(key).await?.is_some();
    if is_there {
        tx.delete(key).await?;
    }
    Ok(is_there)
}

/// DEL key [key ...]; UNLINK too: memory is collected behind the order either way. A key that was not there
/// is not written.
pub fn del(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(match context.found {
        Some(_) => Done::delete(Reply::Integer(1)),
        None => Done::read(FragmentValue::NIL),
    })
}

/// EXISTS key [key ...]; TOUCH too.
pub fn exists(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(Done::read(context.found.map_or(Reply::Nil, |_| Reply::Integer(1))))
}

/// The reply of commands that count keys: how many have a value.
pub fn count_reply(_: &[Blob], values: FragmentValues) -> Reply {
    Reply::Integer(values.iter().filter(|value| **value != FragmentValue::NIL).count() as i64)
}

/// TYPE key
pub fn type_of(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(Done::read(Reply::Status(context.found.map_or("none", |entry| entry.value.type_name()).into())))
}

/// Moves an entry with its expiry; `None` if there is nothing at the source.
async fn move_entry(tx: &mut Tx, args: &[Blob], only_absent: bool) -> Result<Option<bool>, Stop> {
    let (source, destination) = (Key::from(&args[0]), Key::from(&args[1]));
    let Some(entry) = tx.entry_for_update(&source).await? else {
        return Ok(None);
    };
    if source == destination {
        return Ok(Some(!only_absent));
    }
    if only_absent && tx.entry_for_update(&destination).await?.is_some() {
        return Ok(Some(false));
    }
    tx.delete(&source).await?;
    tx.put_entry(&destination, entry).await?;
    Ok(Some(true))
}

/// RENAME key newkey
pub async fn rename(tx: &mut Tx, args: &[Blob]) -> Outcome {
    Ok(if move_entry(tx, args, false).await?.is_some() { Reply::OK } else { errors::NO_SUCH_KEY })
}

/// RENAMENX key newkey
pub async fn renamenx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let moved = move_entry(tx, args, true).await?;
    Ok(moved.map_or(errors::NO_SUCH_KEY, |moved| Reply::Integer(i64::from(moved))))
}

/// COPY source destination [DB 0] [REPLACE]
pub async fn copy(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut replace = false;
    let mut words = &args[2..];
    loop {
        words = match words {
            [] => break,
            [word, rest @ ..] if options::is(word, "REPLACE") => {
                replace = true;
                rest
            }
            [word, database, rest @ ..] if options::is(word, "DB") => {
                if argument!(options::integer(database)) != 0 {
                    return Ok(errors::DB_OUT_OF_RANGE);
                }
                rest
            }
            _ => return Ok(errors::SYNTAX),
        };
    }
    let (source, destination) = (Key::from(&args[0]), Key::from(&args[1]));
    if source == destination {
        return Ok(errors::SAME_OBJECT);
    }
    let Some(entry) = tx.entry(&source).await? else {
        return Ok(Reply::Integer(0));
    };
    if let Value::String(_) | Value::LongString(_) = entry.value {
        // The first who writes a part of it puts the copy in chunks.
        work::bytes(entry.value.heap_bytes());
    }
    if !replace && tx.entry_for_update(&destination).await?.is_some() {
        return Ok(Reply::Integer(0));
    }
    tx.put_entry(&destination, entry).await?;
    Ok(Reply::Integer(1))
}

/// DBSIZE
pub async fn dbsize(tx: &mut Tx, _args: &[Blob]) -> Outcome {
    work::own_writes();
    Ok(Reply::Integer(i64::try_from(tx.count().await?).unwrap_or(i64::MAX)))
}

/// FLUSHALL [ASYNC | SYNC]; FLUSHDB too: there is one database.
pub async fn flush(tx: &mut Tx, args: &[Blob]) -> Outcome {
    match args {
        [] => {}
        [word] if options::is(word, "ASYNC") || options::is(word, "SYNC") => {}
        _ => return Ok(errors::SYNTAX),
    }
    tx.clear().await?;
    Ok(Reply::OK)
}

/// TIME: the time of day at the transaction's epoch, the only clock there is.
pub async fn time(tx: &mut Tx, _args: &[Blob]) -> Outcome {
    let part = |value: u64| Reply::bulk(itoa::Buffer::new().format(value));
    let date_ms = tx.date_ms().await?;
    Ok(Reply::Array(vec![part(date_ms / 1000), part(date_ms % 1000 * 1000)]))
}

/// The name that Redis 7.2 has for the form in which it would hold a value that was made at once, with its
/// default bounds.
fn encoding(value: &Value) -> &'static str {
    const EMBEDDED_BYTES_MAX: usize = 44;
    let either = |is_compact, compact, other| if is_compact { compact } else { other };
    match value {
        Value::String(bytes) if parse::integer(bytes).is_some() => "int",
        Value::String(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Value::String(_) | Value::LongString(_) => "raw",
        Value::Hash(hash) => either(compact::is_hash(hash), "listpack", "hashtable"),
        Value::List(list) => either(compact::is_list(list), "listpack", "quicklist"),
        Value::Set(set) if compact::is_integers(set) => "intset",
        Value::Set(set) => either(compact::is_set(set), "listpack", "hashtable"),
        Value::Stream(_) => "stream",
        Value::SortedSet(set) => either(compact::is_sorted_set(set), "listpack", "skiplist"),
    }
}

/// OBJECT ENCODING key
pub async fn object_encoding(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let value = tx.get(&Key::from(&args[1])).await?;
    Ok(value.map_or(Reply::Nil, |value| Reply::bulk(encoding(&value))))
}

/// OBJECT REFCOUNT key: as in Redis, where small integers are shared by all.
pub async fn object_refcount(tx: &mut Tx, args: &[Blob]) -> Outcome {
    const SHARED_INTEGERS: std::ops::Range<i64> = 0..10_000;
    let value = tx.get(&Key::from(&args[1])).await?;
    Ok(value.map_or(Reply::Nil, |value| {
        let integer = match &value {
            Value::String(bytes) => parse::integer(bytes),
            // One that is kept in chunks is too long.
            _ => None,
        };
        let shared = integer.is_some_and(|value| SHARED_INTEGERS.contains(&value));
        Reply::Integer(if shared { i64::from(i32::MAX) } else { 1 })
    }))
}

/// OBJECT IDLETIME key: access times are no part of the state, so every key was just used.
pub async fn object_idletime(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let value = tx.get(&Key::from(&args[1])).await?;
    Ok(value.map_or(Reply::Nil, |_| Reply::Integer(0)))
}

/// OBJECT FREQ key
pub async fn object_freq(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let value = tx.get(&Key::from(&args[1])).await?;
    Ok(value.map_or(Reply::Nil, |_| errors::NO_LFU))
}

/// MEMORY USAGE key [SAMPLES count]
pub async fn memory_usage(tx: &mut Tx, args: &[Blob]) -> Outcome {
    match &args[2..] {
        [] => {}
        [word, samples] if options::is(word, "SAMPLES") => {
            if argument!(options::integer(samples)) < 0 {
                return Ok(errors::SYNTAX);
            }
        }
        _ => return Ok(errors::SYNTAX),
    }
    let key = Key::from(&args[1]);
    let value = tx.get(&key).await?;
    Ok(value.map_or(Reply::Nil, |value| {
        Reply::Integer((RECORD_BYTES + key.heap_bytes() + value.heap_bytes()) as i64)
    }))
}
