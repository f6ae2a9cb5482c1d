//! EXEC after WATCH: a block runs if, and only if, nothing that it watches has changed.
//!
//! The specification runs the same procedures as the engines, so it would forget the comparison with them. Here it is
//! made once more, against the specification's records.

use crate::oracle::Oracle;
use redis_surface::Block;
use txn::{Outcome, Position, Reply, Request};

/// Checks how a block ended that saw everything up to `upto`, at the time `now_ms`. Other transactions pass.
pub fn check(
    oracle: &Oracle,
    request: &Request,
    upto: Position,
    now_ms: u64,
    outcome: &Outcome,
) -> Result<(), String> {
    if request.procedure.name() != "redis.block" {
        return Ok(());
    }
    let (Some(block), Ok(reply)) = (Block::from_args(&request.args), outcome) else {
        return Ok(());
    };
    let changed = block.watched.iter().find(|watched| {
        let found = oracle.read_at(&watched.key, upto);
        let present = found.entry.is_some_and(|entry| !entry.expired(now_ms));
        (watched.version, watched.present) != (found.version, present)
    });
    let ran = *reply != Reply::NilArray;
    match changed {
        Some(watched) if ran => Err(format!(
            "a block at the state of {upto:?} ran ({reply:?}), but what it watches has changed: {watched:?}"
        )),
        None if !ran => Err(format!(
            "a block at the state of {upto:?} did not run, but nothing that it watches has changed: {:?}",
            block.watched
        )),
        _ => Ok(()),
    }
}
