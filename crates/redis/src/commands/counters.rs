//! Strings that count.

use super::options;
use super::strings::{stored, string_in, text_in};
use crate::table::per_key::PerKeyResult;
use crate::{errors, parse};
use txn::{Blob, FragmentContext, Reply};

/// No integer has more digits, with its sign.
const INTEGER_BYTES_MAX: usize = 20;

fn add(context: &FragmentContext<'_>, increment: i64) -> PerKeyResult {
    let (old, expires_at_ms) = match text_in(context)? {
        None => (0, 0),
        Some(found) => (options::integer(&found.value.into_head(INTEGER_BYTES_MAX))?, found.expires_at_ms),
    };
    let new = old.checked_add(increment).ok_or(errors::OVERFLOW)?;
    Ok(stored(parse::integer_text(new), expires_at_ms, Reply::Integer(new)))
}

/// INCR key
pub fn incr(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    add(context, 1)
}

/// DECR key
pub fn decr(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    add(context, -1)
}

/// INCRBY key increment
pub fn incrby(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    add(context, options::integer(&args[1])?)
}

/// DECRBY key decrement
pub fn decrby(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let decrement = options::integer(&args[1])?;
    add(context, decrement.checked_neg().ok_or(errors::DECREMENT_OVERFLOW)?)
}

/// The reply to a float increment that has no result.
pub(super) fn float_error(error: parse::FloatSumError) -> Reply {
    match error {
        parse::FloatSumError::NotAFloat => errors::NOT_A_FLOAT,
        parse::FloatSumError::NotFinite => errors::NAN_OR_INFINITY,
    }
}

/// INCRBYFLOAT key increment
pub fn incrbyfloat(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let (old, expires_at_ms) = match string_in(context)? {
        None => (Blob::new(b"0"), 0),
        Some(found) => (found.value, found.expires_at_ms),
    };
    let sum = Blob::from(parse::float_sum(&old, &args[1]).map_err(float_error)?);
    Ok(stored(sum.clone(), expires_at_ms, Reply::Bulk(sum)))
}
