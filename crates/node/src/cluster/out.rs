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

use super::frames::Frame;
use super::machine::{ClusterEffects, ClusterNode};
use super::peers::Condition;
use agree::Input;
use log::Kept;
use txn::Stop;
use txn::mutant::{Mutant, is_active};

/// For so long a node that is out hands over.
const HANDING_OVER_MS: u64 = 500;
/// A node that is out tries to write again after this time.
const RETRY_MS: u64 = 1_000;
/// It keeps so many bytes of entries for that; more, and it hears nothing any more.
const UNWRITTEN_BYTES_MAX: usize = 16 << 20;
/// Of a cause, others are told so many bytes.
pub(super) const CAUSE_BYTES_MAX: usize = 400;

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
    unwritten_bytes: usize,
    retry_tick: u64,
    is_mute: bool,
}

impl Out {
    /// The record that waits to be written; `None` if nothing is written any more.
    pub fn unwritten(&self) -> Option<&Vec<Kept>> {
        self.unwritten.as_ref()
    }

    /// Adds to the record that waits to be written.
    pub fn keep(&mut self, parts: Vec<Kept>) {
        let entries = parts.iter().flat_map(|kept| &kept.entries);
        self.unwritten_bytes += entries.map(|entry| entry.data.len()).sum::<usize>();
        self.unwritten.get_or_insert_default().extend(parts);
    }
}

impl ClusterNode {
    /// Why this node is out, for operators, if it is.
    pub fn out(&self) -> Option<&str> {
        self.out.as_ref().map(|out| out.cause.as_str())
    }

    /// What clients are told while this node is out.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.out.as_ref().map(|out| out.refusal.as_str())
    }

    pub(super) fn is_mute(&self) -> bool {
        self.out.as_ref().is_some_and(|out| out.is_mute)
    }

    /// Whether a sync has failed: nothing is written and synced any more.
    pub fn is_closed(&self) -> bool {
        let out = self.out.as_ref();
        out.is_some_and(|out| out.unwritten.is_none())
    }

    /// How this node is, as the others are told.
    pub(super) fn own_condition(&self) -> Condition {
        match &self.out {
            Some(out) => Condition::Out(out.cause.clone()),
            None if self.ending_tick.is_some() => Condition::Ending,
            None => Condition::Well,
        }
    }

    /// Nothing of the record that was to be written is in the journal: it waits in the effects.
    pub(super) fn journal_unwritten(&mut self, error: &str, effects: &mut ClusterEffects) {
        let unwritten = std::mem::take(&mut effects.host.kept);
        self.counters.write_failures += 1;
        let (cause, refusal) = match self.options.alone {
            true => (
                format!("the log cannot be written ({error})"),
                format!(
                    "MISCONF the log cannot be written ({error}): writes are refused until there is space on \
                     the disk again; they resume by themselves then"
                ),
            ),
            false => {
                let cause = format!("its log cannot be written ({error})");
                let refusal = format!(
                    "MISCONF this node takes no part in its cluster, because {cause}: connect to another \
                     node. It comes back by itself once its disk has room again"
                );
                (cause, refusal)
            }
        };
        match &mut self.out {
            Some(out) if out.unwritten.is_none() => {}
            Some(out) => {
                // What was wanted since the try began goes into the same record.
                let since = out.unwritten.replace(unwritten);
                out.unwritten.get_or_insert_default().extend(since.into_iter().flatten());
                (out.cause, out.refusal) = (shortened(cause), refusal);
            }
            None => {
                let unwritten = Some(unwritten);
                self.go_out(cause, refusal, unwritten, effects);
            }
        }
    }

    /// A sync of the journal failed.
    pub(super) fn journal_failed(&mut self, error: &str, effects: &mut ClusterEffects) {
        effects.host.kept.clear();
        if self.is_closed() {
            return;
        }
        self.groups.close();
        self.counters.sync_failures += 1;
        let (cause, refusal) = match self.options.alone {
            true => (
                format!("the log could not be synced to the disk ({error})"),
                format!(
                    "MISCONF the log could not be synced to the disk ({error}), so nobody knows what is on \
                     it: writes are refused until the server is restarted; check the disk first"
                ),
            ),
            false => {
                let cause = format!("its log could not be synced ({error})");
                let refusal = format!(
                    "MISCONF this node takes no part in its cluster any more, because {cause}: connect to \
                     another node. Check the disk of this one, then restart it"
                );
                (cause, refusal)
            }
        };
        self.go_out(cause, refusal, None, effects);
    }

    fn go_out(
        &mut self,
        cause: String,
        refusal: String,
        unwritten: Option<Vec<Kept>>,
        effects: &mut ClusterEffects,
    ) {
        for id in self.reads.give_up(u64::MAX) {
            effects.refused.push((id, Err(Stop::abort(refusal.clone()))));
        }
        let since = self.out.as_ref();
        self.out = Some(Out {
            cause: shortened(cause),
            refusal,
            since_tick: since.map_or(self.ticks, |out| out.since_tick),
            since_ms: since.map_or(self.now_ms, |out| out.since_ms),
            is_mute: since.is_some_and(|out| out.is_mute),
            unwritten,
            unwritten_bytes: 0,
            retry_tick: self.ticks + RETRY_MS / self.options.tick_ms.max(1),
        });
        self.hand_over();
        self.tell_condition(effects);
    }

    /// Time passes while this node is out.
    pub(super) fn tick_out(&mut self, effects: &mut ClusterEffects) {
        self.ticks += 1;
        if !self.is_mute() && self.bootstrap.takes_part() {
            self.groups.tell_all(&Input::Tick);
            self.hand_over();
        }
        self.settle();
        self.tell_clock(effects);
        let is_done = self.is_handed_over_and_answered();
        let Some(out) = &mut self.out else { return };
        let over_tick = out.since_tick + HANDING_OVER_MS / self.options.tick_ms.max(1);
        let is_over = self.ticks >= over_tick || is_done || out.unwritten_bytes > UNWRITTEN_BYTES_MAX;
        if is_over && !std::mem::replace(&mut out.is_mute, true) {
            let cause = out.cause.clone();
            self.give_up_all(&cause, effects);
        }
        if let Some(out) = &mut self.out
            && out.unwritten.is_some()
            && self.ticks >= out.retry_tick
            && !is_active(Mutant::StayOut)
        {
            out.retry_tick = self.ticks + RETRY_MS / self.options.tick_ms.max(1);
            effects.host.make_room = true;
        }
    }

    fn is_handed_over_and_answered(&self) -> bool {
        self.has_handed_over() && self.gateway.awaited() == 0 && self.feeds.unanswered_count() == 0
    }

    /// Whoever waits for a request learns that nobody here will know how it ends.
    pub(super) fn give_up_all(&mut self, cause: &str, effects: &mut ClusterEffects) {
        let unknown = match (self.options.alone, self.is_closed()) {
            (false, _) => format!(
                "ORDOUNKNOWN this node went out while the command was on its way, because {cause}: what it \
                 writes may or may not take effect; send it through ORDO.IDEMPOTENT where that matters, and \
                 again at another node"
            ),
            (true, false) => format!(
                "ORDOUNKNOWN {cause}: this write takes effect once there is space on the disk again, unless \
                 the server is restarted before"
            ),
            (true, true) => format!(
                "ORDOUNKNOWN {cause}: the outcome of this write is unknown, it may or may not be there after \
                 the restart that is needed now"
            ),
        };
        let foreign = self.feeds.give_up(u64::MAX);
        let given_up = self.gateway.give_up(u64::MAX).into_iter().chain(foreign);
        let refused = given_up.map(|id| (id, Err(Stop::abort(unknown.clone()))));
        effects.refused.extend(refused);
    }

    /// The disk has room for another segment: what could not be written is written again.
    pub(super) fn write_again(&mut self, effects: &mut ClusterEffects) {
        if let Some(out) = &mut self.out
            && let Some(unwritten) = out.unwritten.replace(Vec::new())
        {
            effects.host.kept = unwritten;
        }
    }

    /// What could not be written is in the journal: this node takes part again, as after a pause.
    pub(super) fn come_back(&mut self, effects: &mut ClusterEffects) {
        let Some(out) = self.out.take_if(|out| out.unwritten.is_some()) else {
            return;
        };
        let out_ms = self.now_ms.saturating_sub(out.since_ms);
        let what_now = match self.options.alone {
            true => "writes are taken",
            false => "this node takes part in its cluster again",
        };
        effects.news.push(format!("the log can be written again after {out_ms} ms: {what_now}"));
        effects.recovered = true;
        self.groups.wake_all();
        self.tell_condition(effects);
    }

    /// Tells all others how this node is.
    pub(super) fn tell_condition(&self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        let frame = Frame::Condition(self.own_condition());
        for &node in map.nodes.keys().filter(|&&node| node != self.options.me) {
            self.send(node, &frame, effects);
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
