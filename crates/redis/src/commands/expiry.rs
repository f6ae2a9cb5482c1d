//! Times to live.

use super::options::{self, TimeKind};
use crate::errors;
use crate::table::per_key::{PerKeyResult, date_offset_ms};
use txn::clock::date_ms;
use txn::fragments::Done;
use txn::{Blob, Entry, FragmentContext, Reply};

/// When EXPIRE and its like take effect.
#[derive(Clone, Copy, Default)]
struct Condition {
    without_expiry: bool,
    with_expiry: bool,
    later: bool,
    sooner: bool,
}

impl Condition {
    fn parse(words: &[Blob]) -> Result<Condition, Reply> {
        let mut condition = Condition::default();
        for word in words {
            match word {
                word if options::is(word, "NX") => condition.without_expiry = true,
                word if options::is(word, "XX") => condition.with_expiry = true,
                word if options::is(word, "GT") => condition.later = true,
                word if options::is(word, "LT") => condition.sooner = true,
                word => return Err(errors::unsupported_option(word)),
            }
        }
        if condition.without_expiry && (condition.with_expiry || condition.later || condition.sooner) {
            return Err(errors::EXPIRE_NX_WITH_OTHERS);
        }
        if condition.later && condition.sooner {
            return Err(errors::EXPIRE_GT_WITH_LT);
        }
        Ok(condition)
    }
    /// Whether an entry that expires at `old_ms` (0: never) may expire at `new_ms` instead.
    fn allows(self, old_ms: u64, new_ms: i64) -> bool {
        let old = i64::try_from(old_ms).unwrap_or(i64::MAX);
        let endless = old_ms == 0;
        !(self.without_expiry && !endless
            || self.with_expiry && endless
            || self.later && (endless || new_ms <= old)
            || self.sooner && !endless && new_ms >= old)
    }
}

fn expire_at(
    args: &[Blob],
    context: &FragmentContext<'_>,
    kind: TimeKind,
    command: &'static str,
) -> PerKeyResult {
    let condition = Condition::parse(&args[2..])?;
    let value = options::integer(&args[1])?;
    let at_ms = kind.to_ms(value, context).ok_or_else(|| errors::invalid_expire(command))?;
    let Some(entry) = context.found.filter(|entry| condition.allows(entry.expires_at_ms, at_ms)) else {
        return Ok(Done::read(Reply::Integer(0)));
    };
    Ok(match u64::try_from(at_ms) {
        Ok(expires_at_ms) if expires_at_ms > context.now_ms => {
            Done::put(Entry { expires_at_ms, ..entry.clone() }, Reply::Integer(1))
        }
        _ => Done::delete(Reply::Integer(1)),
    })
}

/// EXPIRE key seconds [NX | XX | GT | LT]
pub fn expire(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    expire_at(args, context, TimeKind::Seconds, "expire")
}
/// PEXPIRE key milliseconds [NX | XX | GT | LT]
pub fn pexpire(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    expire_at(args, context, TimeKind::Milliseconds, "pexpire")
}
/// EXPIREAT key seconds [NX | XX | GT | LT]
pub fn expireat(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    expire_at(args, context, TimeKind::AtSeconds, "expireat")
}
/// PEXPIREAT key milliseconds [NX | XX | GT | LT]
pub fn pexpireat(args: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    expire_at(args, context, TimeKind::AtMilliseconds, "pexpireat")
}

/// What the TTL family replies: -2 without a key, -1 without an expiry, else a time made of the expiry.
fn time_of(context: &FragmentContext<'_>, time: impl Fn(u64) -> u64) -> PerKeyResult {
    Ok(Done::read(Reply::Integer(match context.found {
        None => -2,
        Some(entry) if entry.expires_at_ms == 0 => -1,
        Some(entry) => i64::try_from(time(entry.expires_at_ms)).unwrap_or(i64::MAX),
    })))
}

/// TTL key
pub fn ttl(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    time_of(context, |at_ms| at_ms.saturating_sub(context.now_ms).saturating_add(500) / 1000)
}
/// PTTL key
pub fn pttl(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    time_of(context, |at_ms| at_ms.saturating_sub(context.now_ms))
}
/// EXPIRETIME key
pub fn expiretime(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let offset_ms = date_offset_ms(context);
    time_of(context, |at_ms| date_ms(at_ms, offset_ms).saturating_add(500) / 1000)
}
/// PEXPIRETIME key
pub fn pexpiretime(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    let offset_ms = date_offset_ms(context);
    time_of(context, |at_ms| date_ms(at_ms, offset_ms))
}

/// PERSIST key
pub fn persist(_: &[Blob], context: &FragmentContext<'_>) -> PerKeyResult {
    Ok(match context.found {
        Some(entry) if entry.expires_at_ms != 0 => {
            Done::put(Entry { expires_at_ms: 0, ..entry.clone() }, Reply::Integer(1))
        }
        _ => Done::read(Reply::Integer(0)),
    })
}
