//! Keys of any type.

use super::options;
use super::strings::argument;
use crate::work;
use crate::{errors, parse};
use txn::{Blob, Key, Outcome, Reply, Stop, Tx, Value};

/// Deletes a key, and tells whether it was there: a key that was not is not written.
pub(super) async fn delete(tx: &mut Tx, key: &Key) -> Result<bool, Stop> {
    let is_there = tx.entry_for_update(key).await?.is_some();
    if is_there {
        tx.delete(key).await?;
    }
    Ok(is_there)
}

/// DEL key [key ...]; UNLINK too: memory is collected behind the order either way.
pub async fn del(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut deleted = 0;
    for name in args {
        deleted += i64::from(delete(tx, &Key::from(name)).await?);
    }
    Ok(Reply::Integer(deleted))
}

/// EXISTS key [key ...]; TOUCH too.
pub async fn exists(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let mut found = 0;
    for name in args {
        found += i64::from(tx.entry(&Key::from(name)).await?.is_some());
    }
    Ok(Reply::Integer(found))
}

/// TYPE key
pub async fn type_of(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let value = tx.get(&Key::from(&args[0])).await?;
    Ok(Reply::Status(
        value.map_or("none", |value| value.type_name()).into(),
    ))
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
    Ok(if move_entry(tx, args, false).await?.is_some() {
        Reply::OK
    } else {
        errors::NO_SUCH_KEY
    })
}

/// RENAMENX key newkey
pub async fn renamenx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let moved = move_entry(tx, args, true).await?;
    Ok(moved.map_or(errors::NO_SUCH_KEY, |moved| {
        Reply::Integer(i64::from(moved))
    }))
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
    Ok(Reply::Integer(
        i64::try_from(tx.count().await?).unwrap_or(i64::MAX),
    ))
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

/// TIME: the time of the transaction's epoch, the only clock there is.
pub async fn time(tx: &mut Tx, _args: &[Blob]) -> Outcome {
    let part = |value: u64| Reply::bulk(itoa::Buffer::new().format(value));
    Ok(Reply::Array(vec![
        part(tx.now_ms() / 1000),
        part(tx.now_ms() % 1000 * 1000),
    ]))
}

/// The name that Redis 7.2 has for the form in which it would hold a value that was made at once, with its default bounds.
fn encoding(value: &Value) -> &'static str {
    const EMBEDDED_BYTES_MAX: usize = 44;
    const LISTPACK_LIST_BYTES_MAX: usize = 8192;
    const LISTPACK_SET_MEMBERS_MAX: usize = 128;
    const LISTPACK_FIELDS_MAX: usize = 512;
    const LISTPACK_MEMBERS_MAX: usize = 128;
    const LISTPACK_BYTES_MAX: usize = 64;
    const INTSET_MEMBERS_MAX: usize = 512;
    // What is looked at counts; a long value ends the search.
    let short = |bytes: &Blob| {
        work::steps(1);
        bytes.len() <= LISTPACK_BYTES_MAX
    };
    let is_integer = |bytes: &Blob| {
        work::steps(1);
        parse::integer(bytes).is_some()
    };
    match value {
        Value::String(bytes) if parse::integer(bytes).is_some() => "int",
        Value::String(bytes) if bytes.len() <= EMBEDDED_BYTES_MAX => "embstr",
        Value::String(_) | Value::LongString(_) => "raw",
        Value::Hash(hash) => {
            let packed =
                hash.len() <= LISTPACK_FIELDS_MAX && hash.iter().all(|(f, v)| short(f) && short(v));
            if packed { "listpack" } else { "hashtable" }
        }
        Value::List(list) => {
            let mut bytes = LISTPACK_EMPTY_BYTES;
            let mut elements = list.iter();
            let packed = elements.all(|element| {
                work::steps(1);
                bytes += listpack_bytes(element);
                bytes <= LISTPACK_LIST_BYTES_MAX
            });
            if packed { "listpack" } else { "quicklist" }
        }
        Value::Set(set) if set.len() <= INTSET_MEMBERS_MAX && set.names().all(is_integer) => {
            "intset"
        }
        Value::Set(set) => {
            let packed = set.len() <= LISTPACK_SET_MEMBERS_MAX && set.names().all(short);
            if packed { "listpack" } else { "hashtable" }
        }
        Value::Stream(_) => "stream",
        Value::SortedSet(set) => {
            let mut members = set.iter().map(|one| &one.member);
            let packed = set.len() <= LISTPACK_MEMBERS_MAX && members.all(short);
            if packed { "listpack" } else { "skiplist" }
        }
    }
}

/// A listpack's header and its end.
const LISTPACK_EMPTY_BYTES: usize = 7;

/// What an element takes in a listpack: its form, its bytes, and the length of both for those who come from behind.
fn listpack_bytes(element: &Blob) -> usize {
    let (form, bytes) = match parse::integer(element) {
        Some(0..=0x7f) => (1, 0),
        Some(-0x1000..=0xfff) => (1, 1),
        Some(-0x8000..=0x7fff) => (1, 2),
        Some(-0x80_0000..=0x7f_ffff) => (1, 3),
        Some(-0x8000_0000..=0x7fff_ffff) => (1, 4),
        Some(_) => (1, 8),
        None if element.len() < 64 => (1, element.len()),
        None if element.len() < 4096 => (2, element.len()),
        None => (5, element.len()),
    };
    let entry = form + bytes;
    entry + if entry < 128 { 1 } else { 2 }
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
    /// What a record costs beside its key's and value's own heap: index, version, entry.
    const RECORD_BYTES: usize = 112;
    let key = Key::from(&args[1]);
    let value = tx.get(&key).await?;
    Ok(value.map_or(Reply::Nil, |value| {
        Reply::Integer((RECORD_BYTES + key.heap_bytes() + value.heap_bytes()) as i64)
    }))
}
