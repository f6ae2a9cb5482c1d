//! WAIT and WAITAOF: who has what this connection has written.
//!
//! An acknowledged write is in the logs of a majority of its partition's replicas, so that is answered at
//! once: the replicas of a majority beside one of them are certain, whichever they are. That more of them
//! have it by now may be so; nobody waits for it. Whether the logs are on disk is a matter of `appendfsync`:
//! under `always` they are, otherwise this node's is synced for the asking, and nothing is said of the
//! others.

use super::{Hold, Session, ThreadContext};
use crate::cluster::{ChangeTicket, ReplicaStatus};
use redis_surface::commands::options;
use txn::{Blob, Reply};

const LOCAL: Reply = Reply::error("ERR value is out of range, must be between 0 and 1");
const REPLICAS: Reply = Reply::error("ERR value is out of range, must be positive");

/// A WAITAOF that waits for this node's disk.
#[derive(Debug)]
pub(super) struct Syncing {
    ticket: ChangeTicket,
    /// When it is answered in any case, by the wall clock in milliseconds.
    until_ms: u64,
}

/// Until when a command waits that says so: 0 is for ever.
fn until_ms(word: &Blob, now_ms: u64) -> Result<u64, Reply> {
    Ok(match options::timeout_ms(word)? {
        0 => u64::MAX,
        timeout_ms => now_ms.saturating_add(timeout_ms),
    })
}

/// How many replicas beside one are certain to have what was acknowledged.
fn certain(thread: &ThreadContext<'_>) -> i64 {
    let Some(view) = thread.shared.runtime.cluster_view() else {
        return 0;
    };
    // Replicas without a vote have no part in what is acknowledged.
    let votes = |replica: &&ReplicaStatus| !["learner", "expected"].contains(&&*replica.role);
    let partitions = view.status.partitions.iter();
    let voters = partitions.map(|found| found.replicas.iter().filter(votes).count());
    (voters.min().unwrap_or(0) / 2) as i64
}

fn durable(local: i64, replicas: i64) -> Reply {
    Reply::Array(vec![Reply::Integer(local), Reply::Integer(replicas)])
}

/// WAIT numreplicas timeout
pub(super) fn wait(thread: &ThreadContext<'_>, args: &[Blob]) -> Reply {
    if let Err(error) = options::integer(&args[0]) {
        return error;
    }
    match until_ms(&args[1], thread.now_ms) {
        Ok(_) => Reply::Integer(certain(thread)),
        Err(error) => error,
    }
}

/// What WAITAOF asks for: whether of this node's disk, and until when it waits.
fn asked(thread: &ThreadContext<'_>, args: &[Blob]) -> Result<(bool, u64), Reply> {
    let wants_local = match options::integer(&args[0])? {
        local @ (0 | 1) => local == 1,
        _ => return Err(LOCAL),
    };
    if options::integer(&args[1])? < 0 {
        return Err(REPLICAS);
    }
    Ok((wants_local, until_ms(&args[2], thread.now_ms)?))
}

/// WAITAOF in a block, which waits for nothing.
pub(super) fn synced_now(thread: &ThreadContext<'_>, args: &[Blob]) -> Reply {
    match asked(thread, args) {
        Ok(_) if thread.config.appendfsync == node::FsyncPolicy::Always => durable(1, certain(thread)),
        Ok(_) => durable(0, 0),
        Err(error) => error,
    }
}

impl Session {
    /// WAITAOF numlocal numreplicas timeout
    pub(super) fn wait_for_disk(&mut self, thread: &ThreadContext<'_>, args: &[Blob]) -> Option<Reply> {
        let (wants_local, until_ms) = match asked(thread, args) {
            Ok(asked) => asked,
            Err(error) => return Some(error),
        };
        if thread.config.appendfsync == node::FsyncPolicy::Always {
            return Some(durable(1, certain(thread)));
        }
        match thread.shared.runtime.sync_log() {
            None => Some(durable(1, 0)),
            Some(_) if !wants_local => Some(durable(0, 0)),
            Some(ticket) => {
                self.hold = Some(Hold::Sync(Syncing { ticket, until_ms }));
                None
            }
        }
    }

    /// Looks whether the log is on disk that a WAITAOF waits for.
    pub(super) fn look_at_disk(&mut self, thread: &mut ThreadContext<'_>, syncing: Syncing) {
        match syncing.ticket.try_take() {
            Some(Ok(_)) => self.answer(thread, &durable(1, 0)),
            Some(Err(error)) => self.answer(thread, &Reply::error_owned(format!("ERR {error}"))),
            None if syncing.until_ms <= thread.now_ms => self.answer(thread, &durable(0, 0)),
            None => self.hold = Some(Hold::Sync(syncing)),
        }
    }
}
