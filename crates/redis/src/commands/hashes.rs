//! Hashes as a whole, and setting their fields.

use super::collections::{find, put, to_change};
use super::counters::float_error;
use super::options;
use super::strings::{argument, found};
use crate::work;
use crate::{errors, parse};
use txn::value::HashValue;
use txn::{Blob, Intent, Key, Outcome, Reply, Stop, Tx};

/// Sets fields and gives the number of new ones, or an error reply.
async fn set_fields(tx: &mut Tx, args: &[Blob], command: &'static str) -> Result<Result<i64, Reply>, Stop> {
    let (pairs, []) = args[1..].as_chunks::<2>() else {
        return Ok(Err(errors::wrong_arity_of(command)));
    };
    let key = Key::from(&args[0]);
    let (mut fields, expires_at_ms) = match find::<HashValue>(tx, &key, Intent::Update).await? {
        Ok(found) => to_change(found),
        Err(error) => return Ok(Err(error)),
    };
    work::members(pairs.len());
    let mut new = 0;
    for [field, value] in pairs {
        new += i64::from(fields.insert(field.clone(), value.clone()).is_none());
    }
    put(tx, &key, fields, expires_at_ms).await?;
    Ok(Ok(new))
}

/// HSET key field value [field value ...]
pub async fn hset(tx: &mut Tx, args: &[Blob]) -> Outcome {
    Ok(Reply::Integer(argument!(set_fields(tx, args, "hset").await?)))
}

/// HMSET key field value [field value ...]
pub async fn hmset(tx: &mut Tx, args: &[Blob]) -> Outcome {
    argument!(set_fields(tx, args, "hmset").await?);
    Ok(Reply::OK)
}

/// HSETNX key field value
pub async fn hsetnx(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let found = found!(find::<HashValue>(tx, &key, Intent::Update));
    if found.as_ref().is_some_and(|(fields, _)| fields.get(&args[1]).is_some()) {
        return Ok(Reply::Integer(0));
    }
    let (mut fields, expires_at_ms) = to_change(found);
    fields.insert(args[1].clone(), args[2].clone());
    put(tx, &key, fields, expires_at_ms).await?;
    Ok(Reply::Integer(1))
}

/// HDEL key field [field ...]
pub async fn hdel(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    let Some((old, expires_at_ms)) = found!(find::<HashValue>(tx, &key, Intent::Update)) else {
        return Ok(Reply::Integer(0));
    };
    if args[1..].iter().all(|field| old.get(field).is_none()) {
        return Ok(Reply::Integer(0));
    }
    let mut fields = HashValue::clone(&old);
    let removed = args[1..].iter().filter(|field| fields.remove(field).is_some()).count();
    put(tx, &key, fields, expires_at_ms).await?;
    Ok(Reply::Integer(removed as i64))
}

/// HINCRBY key field increment
pub async fn hincrby(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let increment = argument!(options::integer(&args[2]));
    let key = Key::from(&args[0]);
    let (mut fields, expires_at_ms) = to_change(found!(find::<HashValue>(tx, &key, Intent::Update)));
    let old = match fields.get(&args[1]) {
        None => 0,
        Some(value) => argument!(parse::integer(value).ok_or(errors::HASH_VALUE_NOT_AN_INTEGER)),
    };
    let Some(new) = old.checked_add(increment) else {
        return Ok(errors::OVERFLOW);
    };
    fields.insert(args[1].clone(), parse::integer_text(new));
    put(tx, &key, fields, expires_at_ms).await?;
    Ok(Reply::Integer(new))
}

/// HINCRBYFLOAT key field increment
pub async fn hincrbyfloat(tx: &mut Tx, args: &[Blob]) -> Outcome {
    match parse::term(&args[2]) {
        None => return Ok(errors::NOT_A_FLOAT),
        Some(increment) if increment.is_infinite() => return Ok(errors::INFINITE_INCREMENT),
        Some(_) => {}
    }
    let key = Key::from(&args[0]);
    let (mut fields, expires_at_ms) = to_change(found!(find::<HashValue>(tx, &key, Intent::Update)));
    let old = fields.get(&args[1]).cloned().unwrap_or(Blob::new(b"0"));
    if parse::term(&old).is_none() {
        return Ok(errors::HASH_VALUE_NOT_A_FLOAT);
    }
    let sum = Blob::from(argument!(parse::float_sum(&old, &args[2]).map_err(float_error)));
    fields.insert(args[1].clone(), sum.clone());
    put(tx, &key, fields, expires_at_ms).await?;
    Ok(Reply::Bulk(sum))
}
