//! The time of the order and the time of day.
//!
//! An epoch has a time ([`Tx::now_ms`](crate::Tx::now_ms)). It never goes back and never jumps while nodes
//! run, so that a time to live of ten seconds is ten seconds, whatever anybody does to a machine's clock. The
//! time of day is the epoch's time less an *offset*, a record in every partition's system space. The offset
//! is 0 until a majority's clocks show that the order's time is wrong; then a [`CorrectClock`] in the order
//! changes it.
//!
//! Deadlines of entries are epoch times. A command that takes or shows a date (TIME, EXPIREAT, PEXPIRETIME)
//! goes by the offset at its own place in the order. So a correction changes no time to live: an entry that
//! was to expire at a date expires when as much time has passed as the command that said so had found between
//! its own time of day and the date.

use crate::request::{Footprint, Request, RequestId};
use crate::{Args, Call, Entry, Key, Outcome, Procedure, ProcedureFuture, Reply, SessionId, Stop};
use crate::{Tx, Value};
use std::sync::Arc;

/// The record that holds the offset: absent while it is 0.
pub fn offset_key() -> Key {
    Key::system(b"clock")
}

/// The offset that a record of [`offset_key`] tells: the epoch's time less the time of day.
pub fn offset_ms(entry: Option<&Entry>) -> i64 {
    let bytes = entry.and_then(|entry| entry.value.as_string());
    let bytes = bytes.and_then(|bytes| bytes.as_bytes().try_into().ok());
    bytes.map_or(0, i64::from_le_bytes)
}

/// The time of day at an epoch's time.
pub fn date_ms(epoch_ms: u64, offset_ms: i64) -> u64 {
    epoch_ms.saturating_add_signed(offset_ms.saturating_neg())
}

impl Tx {
    /// The epoch's time less the time of day: see the [module's head](self).
    pub async fn clock_offset_ms(&mut self) -> Result<i64, Stop> {
        Ok(offset_ms(self.entry(&offset_key()).await?.as_ref()))
    }
    /// The time of day at the transaction's place in the order, in milliseconds since 1970.
    pub async fn date_ms(&mut self) -> Result<u64, Stop> {
        let offset_ms = self.clock_offset_ms().await?;
        Ok(date_ms(self.now_ms(), offset_ms))
    }
}

/// Changes the offset, if it still is what it was when somebody decided on the change.
#[derive(Clone, Copy, Debug)]
pub struct CorrectClock;

/// The procedure's name.
pub const CORRECT_CLOCK: &str = "ordo.correct_clock";

impl CorrectClock {
    /// The request that changes the offset from `before_ms` to `offset_ms`. Its sequence number is the
    /// caller's.
    pub fn request(sequence: u64, before_ms: i64, offset_ms: i64) -> Request {
        let id = RequestId { session: SessionId::INTERNAL, sequence, attempt: 0 };
        let args: Args =
            [before_ms, offset_ms].map(i64::to_le_bytes).iter().map(|bytes| &bytes[..]).collect();
        Request::new(id, Arc::new(CorrectClock), args)
    }
}

impl Procedure for CorrectClock {
    fn name(&self) -> &str {
        CORRECT_CLOCK
    }
    fn footprint(&self, _: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), vec![offset_key()])
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(async move {
            let number = |place: usize| {
                let bytes = call.get(place).map(|arg| arg.as_bytes().try_into());
                bytes.and_then(Result::ok).map(i64::from_le_bytes)
            };
            let (Some(before_ms), Some(wanted_ms)) = (number(0), number(1)) else {
                return Err(Stop::abort("ERR the clock is corrected by two numbers of eight bytes"));
            };
            let found = tx.entry_for_update(&offset_key()).await?;
            if offset_ms(found.as_ref()) == before_ms {
                tx.put(&offset_key(), Value::from(&wanted_ms.to_le_bytes()[..])).await?;
            }
            let outcome: Outcome = Ok(Reply::OK);
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_what_its_record_says() {
        assert_eq!(offset_ms(None), 0);
        for wanted_ms in [-3_600_000, 0, 17, i64::MAX] {
            let entry = Entry::new(Value::from(&i64::to_le_bytes(wanted_ms)[..]));
            assert_eq!(offset_ms(Some(&entry)), wanted_ms);
        }
        assert_eq!((date_ms(5_000, 2_000), date_ms(5_000, -2_000)), (3_000, 7_000));
        assert_eq!((date_ms(5, 9), date_ms(5, i64::MIN)), (0, i64::MAX as u64 + 5));
    }
}
