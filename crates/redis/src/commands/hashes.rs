//! Hashes as a whole, and setting their fields.

use super::collections::{FoundIn, found_in, stored, taken};
use super::counters::float_error;
use super::options;
use crate::table::per_key::PerKeyResult;
use crate::work;
use crate::{errors, parse};
use txn::fragments::Done;
use txn::value::HashValue;
use txn::{Blob, BlobRef, FragmentContext, Reply};

/// Sets fields, and replies by the number of new ones.
fn set_fields(
    args: &[Blob],
    context: &FragmentContext<'_>,
    command: &'static str,
    reply: impl FnOnce(i64) -> Reply,
) -> PerKeyResult {
    let (pairs, []) = args[1..].as_chunks::<2>() else {
        return Err(errors::wrong_arity_of(command));
    };
    let (mut fields, expires_at_ms) = taken(found_in::<HashValue>(context)?);
    work::members(pairs.len());
    let pairs = pairs.iter().map(|[field, value]| (field.clone(), value.clone()));
    let new = match fields.is_empty() {
        true => {
            fields = pairs.collect();
            fields.len()
        }
        false => pairs.filter(|(field, value)| fields.insert(field.clone(), value.clone())).count(),
    };
    Ok(stored(fields, expires_at_ms, reply(new as i64)))
}

/// HSET key field value [field value ...]
pub fn hset(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    set_fields(args, context, "hset", Reply::Integer)
}

/// HMSET key field value [field value ...]
pub fn hmset(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    set_fields(args, context, "hmset", |_| Reply::OK)
}

/// HSETNX key field value
pub fn hsetnx(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = found_in::<HashValue>(context)?;
    if found.as_ref().and_then(FoundIn::look).is_some_and(|fields| fields.contains(&args[1])) {
        return Ok(Done::read(Reply::Integer(0)));
    }
    let (mut fields, expires_at_ms) = taken(found);
    fields.insert(args[1].clone(), args[2].clone());
    Ok(stored(fields, expires_at_ms, Reply::Integer(1)))
}

/// HDEL key field [field ...]
pub fn hdel(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let found = found_in::<HashValue>(context)?;
    let old = found.as_ref().and_then(FoundIn::look);
    if !old.is_some_and(|fields| args[1..].iter().any(|field| fields.contains(field))) {
        return Ok(Done::read(Reply::Integer(0)));
    }
    let (mut fields, expires_at_ms) = taken(found);
    let removed = args[1..].iter().filter(|field| fields.remove(field)).count();
    work::members(removed);
    Ok(stored(fields, expires_at_ms, Reply::Integer(removed as i64)))
}

/// HINCRBY key field increment
pub fn hincrby(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let increment = options::integer(&args[2])?;
    let found = found_in::<HashValue>(context)?;
    let old = match found.as_ref().and_then(FoundIn::look).and_then(|fields| fields.get(&args[1])) {
        None => 0,
        Some(value) => parse::integer(&value).ok_or(errors::HASH_VALUE_NOT_AN_INTEGER)?,
    };
    let new = old.checked_add(increment).ok_or(errors::OVERFLOW)?;
    let (mut fields, expires_at_ms) = taken(found);
    fields.insert(args[1].clone(), parse::integer_text(new));
    Ok(stored(fields, expires_at_ms, Reply::Integer(new)))
}

/// HINCRBYFLOAT key field increment
pub fn hincrbyfloat(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    match parse::term(&args[2]) {
        None => return Err(errors::NOT_A_FLOAT),
        Some(increment) if increment.is_infinite() => return Err(errors::INFINITE_INCREMENT),
        Some(_) => {}
    }
    let (mut fields, expires_at_ms) = taken(found_in::<HashValue>(context)?);
    let old = fields.get(&args[1]).map_or(Blob::new(b"0"), BlobRef::to_blob);
    if parse::term(&old).is_none() {
        return Err(errors::HASH_VALUE_NOT_A_FLOAT);
    }
    let sum = Blob::from(parse::float_sum(&old, &args[2]).map_err(float_error)?);
    fields.insert(args[1].clone(), sum.clone());
    Ok(stored(fields, expires_at_ms, Reply::Bulk(sum)))
}
