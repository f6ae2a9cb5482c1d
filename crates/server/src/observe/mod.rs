//! What operators look at: how often commands are called and how long they take, which of them were slow, and
//! what clients send.
//!
//! # What is measured
//!
//! A call lasts from its admission to its reply: waiting for its place in the order and for the disk is part
//! of it, waiting for a key (BLPOP) is not. The clock is read for each batch of commands that a socket yields
//! and for each batch of replies, not for each command: what is done together begins and ends together. Only
//! commands of which one may take long by itself (those that Redis does not call fast) and that are answered
//! at once have readings of their own, so that they do not count for their neighbours.
//!
//! # What it costs
//!
//! Each I/O thread has a [`Tally`] that nobody else sees, with the calls that have ended since the last
//! reading; with the reading they go into the thread's [`CallCounts`], under a lock that only INFO, LATENCY
//! and CONFIG RESETSTAT ask for as well. What is slow goes on to the [`SlowLog`] and to the
//! [`LatencyEvents`]. While nobody monitors, [`Monitors`] cost one look at a number.

mod calls;
mod durations;
mod latency;
mod monitor;
mod slowlog;
mod tally;

pub use calls::{CallCount, CallCounts};
pub use durations::{BOUNDS_NS, DurationCounts, Durations};
pub use latency::{CHECKPOINT, FSYNC, FSYNC_ALWAYS, LatencyEvents, Samples};
pub use monitor::Monitors;
pub use slowlog::{SlowEntry, SlowLog, shown_words};
pub use tally::{Books, Call, GatheredCalls, Subject, Tally};

use txn::{Key, Space};

/// A key is shown up to here.
const KEY_BYTES_MAX: usize = 100;

/// A key for people: what is not printable is escaped, and what is long is cut.
pub fn shown_key(key: &Key) -> String {
    let bytes = key.as_bytes();
    let shown = bytes[..bytes.len().min(KEY_BYTES_MAX)].escape_ascii();
    let ends = if bytes.len() > KEY_BYTES_MAX { "..." } else { "" };
    match key.space() {
        Space::User => format!("{shown}{ends}"),
        Space::System => format!("(Ordo's own) {shown}{ends}"),
    }
}
