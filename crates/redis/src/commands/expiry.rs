//! Times to live.

use super::options::{self, TimeKind};
use super::strings::argument;
use crate::errors;
use txn::clock::date_ms;
use txn::{Blob, Entry, Key, Outcome, Reply, Tx};

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

async fn expire_at(tx: &mut Tx, args: &[Blob], kind: TimeKind, command: &'static str) -> Outcome {
    let condition = argument!(Condition::parse(&args[2..]));
    let value = argument!(options::integer(&args[1]));
    let Some(at_ms) = kind.to_ms(value, tx).await? else {
        return Ok(errors::invalid_expire(command));
    };
    let key = Key::from(&args[0]);
    let Some(entry) = tx.entry_for_update(&key).await? else {
        return Ok(Reply::Integer(0));
    };
    if !condition.allows(entry.expires_at_ms, at_ms) {
        return Ok(Reply::Integer(0));
    }
    match u64::try_from(at_ms) {
        Ok(expires_at_ms) if expires_at_ms > tx.now_ms() => {
            tx.put_entry(&key, Entry { expires_at_ms, ..entry }).await?;
        }
        _ => tx.delete(&key).await?,
    }
    Ok(Reply::Integer(1))
}

/// EXPIRE key seconds [NX | XX | GT | LT]
pub async fn expire(tx: &mut Tx, args: &[Blob]) -> Outcome {
    expire_at(tx, args, TimeKind::Seconds, "expire").await
}
/// PEXPIRE key milliseconds [NX | XX | GT | LT]
pub async fn pexpire(tx: &mut Tx, args: &[Blob]) -> Outcome {
    expire_at(tx, args, TimeKind::Milliseconds, "pexpire").await
}
/// EXPIREAT key seconds [NX | XX | GT | LT]
pub async fn expireat(tx: &mut Tx, args: &[Blob]) -> Outcome {
    expire_at(tx, args, TimeKind::AtSeconds, "expireat").await
}
/// PEXPIREAT key milliseconds [NX | XX | GT | LT]
pub async fn pexpireat(tx: &mut Tx, args: &[Blob]) -> Outcome {
    expire_at(tx, args, TimeKind::AtMilliseconds, "pexpireat").await
}

/// What the TTL family replies: -2 without a key, -1 without an expiry, else a time made of the expiry.
async fn time_of(tx: &mut Tx, name: &Blob, time: impl Fn(u64) -> u64) -> Outcome {
    Ok(Reply::Integer(match tx.entry(&Key::from(name)).await? {
        None => -2,
        Some(entry) if entry.expires_at_ms == 0 => -1,
        Some(entry) => i64::try_from(time(entry.expires_at_ms)).unwrap_or(i64::MAX),
    }))
}

/// TTL key
pub async fn ttl(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let now_ms = tx.now_ms();
    time_of(tx, &args[0], |at_ms| at_ms.saturating_sub(now_ms).saturating_add(500) / 1000).await
}
/// PTTL key
pub async fn pttl(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let now_ms = tx.now_ms();
    time_of(tx, &args[0], |at_ms| at_ms.saturating_sub(now_ms)).await
}
/// EXPIRETIME key
pub async fn expiretime(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let offset_ms = tx.clock_offset_ms().await?;
    time_of(tx, &args[0], |at_ms| date_ms(at_ms, offset_ms).saturating_add(500) / 1000).await
}
/// PEXPIRETIME key
pub async fn pexpiretime(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let offset_ms = tx.clock_offset_ms().await?;
    time_of(tx, &args[0], |at_ms| date_ms(at_ms, offset_ms)).await
}

/// PERSIST key
pub async fn persist(tx: &mut Tx, args: &[Blob]) -> Outcome {
    let key = Key::from(&args[0]);
    match tx.entry_for_update(&key).await? {
        Some(entry) if entry.expires_at_ms != 0 => {
            tx.put_entry(&key, Entry { expires_at_ms: 0, ..entry }).await?;
            Ok(Reply::Integer(1))
        }
        _ => Ok(Reply::Integer(0)),
    }
}
