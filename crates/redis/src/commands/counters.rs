//! Strings that count.

use super::options;
use super::strings::{argument, found, short_string, string};
use crate::{errors, parse};
use txn::{Blob, Entry, Intent, Key, Outcome, Reply, Tx, Value};

/// No integer has more digits, with its sign.
const INTEGER_BYTES_MAX: usize = 20;

async fn add(tx: &mut Tx, name: &Blob, increment: i64) -> Outcome {
    let key = Key::from(name);
    let old = short_string(tx, &key, Intent::Update, INTEGER_BYTES_MAX);
    let (old, expires_at_ms) = match found!(old) {
        None => (0, 0),
        Some(found) => (argument!(options::integer(&found.value)), found.expires_at_ms),
    };
    let Some(new) = old.checked_add(increment) else {
        return Ok(errors::OVERFLOW);
    };
    tx.put_entry(&key, Entry { value: Value::String(parse::integer_text(new)), expires_at_ms }).await?;
    Ok(Reply::Integer(new))
}

/// INCR key
pub async fn incr(tx: &mut Tx, args: &[Blob]) -> Outcome {
    add(tx, &args[0], 1).await
}

/// DECR key
pub async fn decr(tx: &mut Tx, args: &[Blob]) -> Outcome {
    add(tx, &args[0], -1).await
}

/// INCRBY key increment
pub async fn incrby(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let increment = argument!(options::integer(&args[1]));
    add(tx, &args[0], increment).await
}

/// DECRBY key decrement
pub async fn decrby(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let decrement = argument!(options::integer(&args[1]));
    match decrement.checked_neg() {
        Some(increment) => add(tx, &args[0], increment).await,
        None => Ok(errors::DECREMENT_OVERFLOW),
    }
}

/// The reply to a float increment that has no result.
pub(super) fn float_error(error: parse::FloatSumError) -> Reply {
    match error {
        parse::FloatSumError::NotAFloat => errors::NOT_A_FLOAT,
        parse::FloatSumError::NotFinite => errors::NAN_OR_INFINITY,
    }
}

/// INCRBYFLOAT key increment
pub async fn incrbyfloat(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let (old, expires_at_ms) = match found!(string(tx, &key, Intent::Update)) {
        None => (Blob::new(b"0"), 0),
        Some(found) => (found.value, found.expires_at_ms),
    };
    let sum = Blob::from(argument!(parse::float_sum(&old, &args[1]).map_err(float_error)));
    tx.put_entry(&key, Entry { value: Value::String(sum.clone()), expires_at_ms }).await?;
    Ok(Reply::Bulk(sum))
}
