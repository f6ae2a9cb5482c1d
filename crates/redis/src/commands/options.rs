//! Options that several commands share.

use crate::chance::REPEATED_MAX;
use crate::errors;
use crate::parse;
use crate::table::per_key::date_offset_ms;
use std::ops::Range;
use txn::{Blob, FragmentContext, Reply};

/// Whether an argument is this word, whatever its case.
pub fn is(argument: &Blob, word: &str) -> bool {
    argument.eq_ignore_ascii_case(word.as_bytes())
}

/// An integer argument.
pub fn integer(argument: &Blob) -> Result<i64, Reply> {
    parse::integer(argument).ok_or(errors::NOT_AN_INTEGER)
}

/// A number of at least `least`, or else this error.
pub fn count(argument: &Blob, least: i64, otherwise: Reply) -> Result<usize, Reply> {
    let count = parse::integer(argument).filter(|&count| count >= least);
    count.and_then(|count| usize::try_from(count).ok()).ok_or(otherwise)
}

/// A timeout in milliseconds.
pub fn timeout_ms(argument: &Blob) -> Result<u64, Reply> {
    let timeout_ms = parse::integer(argument).ok_or(errors::TIMEOUT_NOT_AN_INTEGER)?;
    u64::try_from(timeout_ms).map_err(|_| errors::NEGATIVE_TIMEOUT)
}

/// An integer argument whose opposite is one, too.
pub fn with_opposite(argument: &Blob) -> Result<i64, Reply> {
    let value = integer(argument)?;
    value.checked_neg().ok_or(errors::NO_OPPOSITE)?;
    Ok(value)
}

/// How many members a client wants at random: several times the same if it is negative.
pub fn draws(argument: &Blob) -> Result<i64, Reply> {
    let count = with_opposite(argument)?;
    if count < -REPEATED_MAX {
        return Err(errors::OUT_OF_RANGE);
    }
    Ok(count)
}

/// The places from `start` to `end`, both included, in a collection of `len` members; negative ones count
/// from its end.
pub fn places(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    let from_start = |at: i64| if at < 0 { len + at } else { at };
    let (start, end) = (from_start(start).max(0), from_start(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

/// The unit and the origin of a time argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// EX: seconds from now.
    Seconds,
    /// PX: milliseconds from now.
    Milliseconds,
    /// EXAT: seconds since 1970.
    AtSeconds,
    /// PXAT: milliseconds since 1970.
    AtMilliseconds,
}

impl TimeKind {
    /// The kind that an option word names.
    pub fn of_option(word: &Blob) -> Option<TimeKind> {
        Some(match word {
            word if is(word, "EX") => TimeKind::Seconds,
            word if is(word, "PX") => TimeKind::Milliseconds,
            word if is(word, "EXAT") => TimeKind::AtSeconds,
            word if is(word, "PXAT") => TimeKind::AtMilliseconds,
            _ => return None,
        })
    }
    /// Whether the argument is a date.
    pub fn is_date(self) -> bool {
        matches!(self, TimeKind::AtSeconds | TimeKind::AtMilliseconds)
    }

    /// The epoch time that an argument means; `None` if that is beyond what fits. May be negative.
    pub fn to_ms(self, value: i64, context: &FragmentContext<'_>) -> Option<i64> {
        let value_ms = match self {
            TimeKind::Seconds | TimeKind::AtSeconds => value.checked_mul(1000)?,
            TimeKind::Milliseconds | TimeKind::AtMilliseconds => value,
        };
        let origin_ms = match self.is_date() {
            true => date_offset_ms(context),
            false => context.now_ms.cast_signed(),
        };
        value_ms.checked_add(origin_ms)
    }
}

/// The time from which the entry of `command` expires: it must be positive as given and as a date.
pub fn expiry_ms(
    context: &FragmentContext<'_>,
    kind: TimeKind,
    argument: &Blob,
    command: &'static str,
) -> Result<u64, Reply> {
    let value = integer(argument)?;
    let at_ms = if value > 0 { kind.to_ms(value, context) } else { None };
    // A date before the first epoch is past, and 0 is no expiry.
    let at_ms = at_ms.map(|at_ms| at_ms.max(1).cast_unsigned());
    at_ms.ok_or_else(|| errors::invalid_expire(command))
}
