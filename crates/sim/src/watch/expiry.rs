//! What has expired is decided by the order's time alone.
//!
//! The specification takes a read's clock as it is told, and runs the same procedures as the engines. What it
//! cannot see is looked at here: a read at a snapshot that decides by its own clock what no epoch has
//! decided, and a removal of what has not expired.

use crate::oracle::Oracle;
use std::sync::Arc;
use txn::{Key, Position, Request, Space};

/// Checks a read that was answered at the snapshot of `position`, whose time is `snapshot_ms`, with the clock
/// `now_ms`.
pub fn check_read(
    oracle: &Oracle,
    request: &Arc<Request>,
    position: Position,
    snapshot_ms: u64,
    now_ms: u64,
) -> Result<(), String> {
    let expiries = oracle.expiries_met(request, position, now_ms);
    match expiries.iter().find(|&&expiry| snapshot_ms < expiry && expiry <= now_ms) {
        Some(expiry) => Err(format!(
            "{request:?} at the snapshot of {position:?} decided alone that what expires at {expiry} has \
             expired: the snapshot's time is {snapshot_ms}, the reader's {now_ms}"
        )),
        None => Ok(()),
    }
}

/// Checks the server's own removal of what has expired, at `position` and its epoch's time. Other
/// transactions pass.
pub fn check_removal(
    oracle: &Oracle,
    request: &Request,
    position: Position,
    time_ms: u64,
) -> Result<(), String> {
    let space = match request.procedure.name() {
        "redis.expire-due" => Space::User,
        "redis.expire-system-due" => Space::System,
        _ => return Ok(()),
    };
    for key in (request.args.iter()).map(|name| Key::in_space(space, name)) {
        let before = oracle.read_at(&key, position.prev()).entry;
        let after = oracle.read_at(&key, position).entry;
        if let (Some(before), None) = (before, after)
            && !before.expired(time_ms)
        {
            return Err(format!(
                "{position:?} removes {key:?} as expired at {time_ms}, but it is {before:?}"
            ));
        }
    }
    Ok(())
}
