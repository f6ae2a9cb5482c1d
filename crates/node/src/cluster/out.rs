//! A node whose journal takes nothing: it says so, hands over, and comes back by itself if it can.
//!
//! ```text
//!            a write or a sync of the journal fails             HANDING_OVER_MS
//!   in ────────────────────────────────────────► handing over ───────────────────► mute
//!    ▲                                                                               │
//!    └────── a write goes well, at a try every RETRY_MS (never after a failed sync) ─┘
//! ```
//!
//! A write that failed left the journal as it was, so the node keeps the record and writes it again when the
//! disk has room for another segment. A sync that failed left nobody knowing what is on the disk: only a
//! restart helps.
//!
//! Clients are refused from the first moment on, with the cause. While the node hands over, everything else
//! goes on as with a disk that hangs: a group's turn promises nothing before its record is durable, whatever
//! the node sends meanwhile. So leaders can bring their successors up to date and tell them to take over,
//! what clients wait for is passed on to them and may still end well, and nobody has to notice a silence
//! first. After that the node is mute: its groups neither hear nor say anything, as in a process that is
//! frozen. It only tells the others, again and again, that it is out, and why.
//!
//! A node that stands alone has nobody to hand over to. It goes on serving reads, and what clients wait for
//! when it goes out is written first when it comes back.

use log::Kept;
use txn::mutant::{Mutant, is_active};

/// For so long a node that is out hands over.
const HANDING_OVER_MS: u64 = 500;
/// A node that is out tries to write again after this time.
const RETRY_MS: u64 = 1_000;
/// It keeps so many bytes of entries for that; more, and it hears nothing any more.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;
/// Of a cause, others are told so many bytes.
pub(super) const CAUSE_BYTES_MAX: usize = 400;

/// Why a node is out.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    pub operators: String,
    pub clients: String,
}

/// A node that is out. See the module's head.
#[derive(Debug)]
pub(super) struct Out {
    /// Why, for operators.
    cause: String,
    /// Why, for clients.
    refusal: String,
    since_tick: u64,
    since_ms: u64,
    /// What is written once that is possible again: one record. `None` after a failed sync.
    unwritten: Option<Vec<Kept>>,
    /// Of the entries that were added to it since it could not be written.
    unwritten_bytes: usize,
    retry_tick: u64,
    is_mute: bool,
    ticks: Ticks,
}

/// How many ticks the times take.
#[derive(Clone, Copy, Debug)]
struct Ticks {
    handing_over: u64,
    retry: u64,
}

/// What a node that is out does now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OutWish {
    /// It is mute from now on, so whoever waits for a request learns that nobody here knows how it ends.
    pub give_up: bool,
    /// Room for the record that waits is to be made.
    pub make_room: bool,
}

impl Out {
    /// A node that goes out now. `unwritten` is the record that could not be written, unless a sync failed.
    pub fn new(cause: Cause, unwritten: Option<Vec<Kept>>, now: (u64, u64), tick_ms: u64) -> Out {
        let of = |ms: u64| ms / tick_ms.max(1);
        let ticks = Ticks { handing_over: of(HANDING_OVER_MS), retry: of(RETRY_MS) };
        let (now_tick, now_ms) = now;
        Out {
            cause: shortened(cause.operators),
            refusal: cause.clients,
            since_tick: now_tick,
            since_ms: now_ms,
            unwritten,
            unwritten_bytes: 0,
            retry_tick: now_tick + ticks.retry,
            is_mute: false,
            ticks,
        }
    }

    /// Why, for operators.
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Why, for clients.
    pub fn refusal(&self) -> &str {
        &self.refusal
    }

    /// Since when.
    pub fn since_ms(&self) -> u64 {
        self.since_ms
    }

    /// Whether its groups neither hear nor say anything.
    pub fn is_mute(&self) -> bool {
        self.is_mute
    }

    /// Whether a sync has failed: nothing is written and synced any more.
    pub fn is_closed(&self) -> bool {
        self.unwritten.is_none()
    }

    /// The try to write failed again. What was wanted since it began goes into the same record.
    pub fn unwritten_again(&mut self, cause: Cause, record: Vec<Kept>) {
        if self.is_closed() {
            return;
        }
        let since = self.unwritten.replace(record);
        self.unwritten.get_or_insert_default().extend(since.into_iter().flatten());
        (self.cause, self.refusal) = (shortened(cause.operators), cause.clients);
    }

    /// A sync failed, in a node that was out before because of a write.
    pub fn closed(&mut self, cause: Cause) {
        self.unwritten = None;
        (self.cause, self.refusal) = (shortened(cause.operators), cause.clients);
    }

    /// Time passes. `is_done`: all that it led is led by others, and nobody waits for an answer.
    pub fn tick(&mut self, now_tick: u64, is_done: bool) -> OutWish {
        let over_tick = self.since_tick + self.ticks.handing_over;
        let is_over = now_tick >= over_tick || is_done || self.unwritten_bytes > UNWRITTEN_BYTES_MAX;
        let give_up = is_over && !std::mem::replace(&mut self.is_mute, true);
        let make_room = !self.is_closed() && now_tick >= self.retry_tick && !is_active(Mutant::StayOut);
        if make_room {
            self.retry_tick = now_tick + self.ticks.retry;
        }
        OutWish { give_up, make_room }
    }

    /// There is room: the record that waits is written now. What is wanted meanwhile waits behind it.
    pub fn take_unwritten(&mut self) -> Option<Vec<Kept>> {
        self.unwritten.as_mut().map(std::mem::take)
    }

    /// The record that waits to be written; `None` if nothing is written any more.
    pub fn unwritten(&self) -> Option<&Vec<Kept>> {
        self.unwritten.as_ref()
    }

    /// Adds to the record that waits to be written.
    pub fn keep(&mut self, parts: Vec<Kept>) {
        if let Some(unwritten) = &mut self.unwritten {
            let entries = parts.iter().flat_map(|kept| &kept.entries);
            self.unwritten_bytes += entries.map(|entry| entry.data.len()).sum::<usize>();
            unwritten.extend(parts);
        }
    }
}

/// A text of a bounded length.
fn shortened(mut text: String) -> String {
    if text.len() > CAUSE_BYTES_MAX {
        let end = (0..=CAUSE_BYTES_MAX).rfind(|&end| text.is_char_boundary(end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

#[cfg(test)]
mod tests;
