//! EXEC after WATCH: a block runs if, and only if, nothing that it watches has changed.
//!
//! The specification runs the same procedures as the engines, so it would forget the comparison with them.
//! Here it is made once more, against the specification's records.

use crate::oracle::Oracle;
use redis_surface::Block;
use txn::tx::Read;
use txn::{Key, Outcome, Position, Reply, Request};

/// Checks how a block ended that saw everything up to `upto`, at the time `now_ms`. Other transactions pass.
pub fn check(
    oracle: &Oracle,
    request: &Request,
    upto: Position,
    now_ms: u64,
    outcome: &Outcome,
) -> Result<(), String> {
    let read = |key: &Key| oracle.read_at(key, upto);
    check_by(read, request, now_ms, outcome).map_err(|text| format!("at the state of {upto:?}, {text}"))
}

/// The same for a block whose keys are read like this.
pub fn check_by(
    read: impl Fn(&Key) -> Read,
    request: &Request,
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
        let found = read(&watched.key);
        let present = found.entry.is_some_and(|entry| !entry.expired(now_ms));
        (watched.version, watched.present) != (found.version, present)
    });
    let ran = *reply != Reply::NilArray;
    match changed {
        Some(watched) if ran => {
            Err(format!("a block ran ({reply:?}), but what it watches has changed: {watched:?}"))
        }
        None if !ran => {
            Err(format!("a block did not run, but nothing that it watches has changed: {:?}", block.watched))
        }
        _ => Ok(()),
    }
}
