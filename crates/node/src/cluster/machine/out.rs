//! Goes out when the journal takes nothing, and comes back ([`crate::cluster::out`]).

use super::{ClusterEffects, ClusterNode};
use crate::cluster::frames::Frame;
use crate::cluster::out::{Cause, Out};
use crate::cluster::peers::Condition;
use agree::Input;
use log::Kept;
use txn::Stop;

impl ClusterNode {
    /// Why this node is out, for operators, if it is.
    pub fn out(&self) -> Option<&str> {
        self.out.as_ref().map(Out::cause)
    }

    /// What clients are told while this node is out.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.out.as_ref().map(Out::refusal)
    }

    pub(super) fn is_mute(&self) -> bool {
        self.out.as_ref().is_some_and(Out::is_mute)
    }

    /// Whether a sync has failed: nothing is written and synced any more.
    pub fn is_closed(&self) -> bool {
        self.out.as_ref().is_some_and(Out::is_closed)
    }

    /// How this node is, as the others are told.
    pub(super) fn own_condition(&self) -> Condition {
        match &self.out {
            Some(out) => Condition::Out(out.cause().to_owned()),
            None if self.ending_tick.is_some() => Condition::Ending,
            None => Condition::Well,
        }
    }

    /// Nothing of the record that was to be written is in the journal: it waits in the effects.
    pub(super) fn journal_unwritten(&mut self, error: &str, effects: &mut ClusterEffects) {
        let unwritten = std::mem::take(&mut effects.host.kept);
        self.counters.write_failures += 1;
        let (operators, clients) = match self.options.alone {
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
        let cause = Cause { operators, clients };
        match &mut self.out {
            Some(out) => out.unwritten_again(cause, unwritten),
            None => self.go_out(cause, Some(unwritten), effects),
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
        let (operators, clients) = match self.options.alone {
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
        self.go_out(Cause { operators, clients }, None, effects);
    }

    fn go_out(&mut self, cause: Cause, unwritten: Option<Vec<Kept>>, effects: &mut ClusterEffects) {
        for id in self.reads.give_up(u64::MAX) {
            effects.refused.push((id, Err(Stop::abort(cause.clients.clone()))));
        }
        match &mut self.out {
            Some(out) => out.closed(cause),
            None => {
                let now = (self.ticks, self.now_ms);
                self.out = Some(Out::new(cause, unwritten, now, self.options.tick_ms));
            }
        }
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
        let wish = out.tick(self.ticks, is_done);
        effects.host.make_room |= wish.make_room;
        if wish.give_up {
            let cause = out.cause().to_owned();
            self.give_up_all(&cause, effects);
        }
    }

    fn is_handed_over_and_answered(&self) -> bool {
        self.has_handed_over() && self.gateway.awaited() == 0 && self.sources.unanswered_count() == 0
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
        let foreign = self.sources.give_up(u64::MAX);
        let given_up = self.gateway.give_up(u64::MAX).into_iter().chain(foreign);
        let refused = given_up.map(|id| (id, Err(Stop::abort(unknown.clone()))));
        effects.refused.extend(refused);
    }

    /// The disk has room for another segment: what could not be written is written again.
    pub(super) fn write_again(&mut self, effects: &mut ClusterEffects) {
        if let Some(unwritten) = self.out.as_mut().and_then(Out::take_unwritten) {
            effects.host.kept = unwritten;
        }
    }

    /// What could not be written is in the journal: this node takes part again, as after a pause.
    pub(super) fn come_back(&mut self, effects: &mut ClusterEffects) {
        let Some(out) = self.out.take_if(|out| !out.is_closed()) else {
            return;
        };
        let out_ms = self.now_ms.saturating_sub(out.since_ms());
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
