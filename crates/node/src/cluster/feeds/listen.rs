//! The side that follows: through whom, and what becomes of the news.
//!
//! ```text
//!         asked of a node           its first frame, in time
//!   none ────────────────► asked ─────────────────────────────► followed through it
//!    ▲                      │ ▲                                     │     │  ▲
//!    └── nothing came ──────┘ └── a neighbour is there again, a ────┘     └──┘ the next frame, or early ones
//!    ▲                            client waits for long                   │
//!    └── a frame is missed, the link is lost, nothing new was heard ──────┘
//! ```
//!
//! Invariants ([`Sources::check_invariants`]):
//! 1. News are taken in the order of their numbers, and of one subscription at a time.
//! 2. Frames that came too early are bounded in number and in bytes; what is more ends the subscription.
//! 3. A subscription has a name that none had before.

use super::parts::{Assemblies, Part};
use super::told::News;
use std::collections::BTreeMap;
use txn::mutant::{Mutant, is_active};
use txn::{Epoch, NodeId, PartitionId, RequestId};

/// One that has not heard of a group for so many ticks follows it through another node.
const PATIENCE_TICKS: u64 = 12;
/// So many ticks a frame waits for those before it, and so many frames: as many as a window of small parts
/// has.
const EARLY_TICKS: u64 = 4;
const EARLY_MAX: usize = 4096;
/// A node that does not follow its neighbour looks every so many ticks whether it can.
const NEIGHBOUR_TICKS: u64 = 40;
/// What a leader was sent is doubted after so many ticks, and whether it will be heard how a request ended.
pub(in crate::cluster) const DOUBT_TICKS: u64 = 20;

/// A group that this node follows.
#[derive(Clone, Debug, Default)]
struct Followed {
    /// Whom it follows: the subscription, and the number of the next frame.
    through: Option<(NodeId, u64, u64)>,
    heard_tick: u64,
    /// When it last heard something new, or needed nothing.
    news_tick: u64,
    /// Whom it has asked last, and when.
    asked: Option<(NodeId, u64, u64)>,
    /// Frames that have overtaken others, by their numbers, and since when the first of those is missed.
    early: BTreeMap<u64, News>,
    early_since: u64,
    /// What it was told of transactions has gone with the books of a retracted epoch.
    retell: bool,
    /// Subscriptions up to this one are over, or were asked for by another process, or under another name.
    over: u64,
}

impl Followed {
    /// Subscriptions up to this one are over, and nobody was asked since.
    fn after(over: u64) -> Followed {
        Followed { over, ..Followed::default() }
    }

    /// What a node has sent may be lost.
    fn lost(&mut self, node: NodeId) {
        self.through.take_if(|(through, ..)| *through == node);
        self.asked.take_if(|(asked, ..)| *asked == node);
    }

    /// What it was told of transactions has gone.
    fn retell(&mut self) {
        self.retell = true;
    }
}

/// Which subscription a frame is of, and its place there.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Place {
    pub group: PartitionId,
    pub from: NodeId,
    pub subscription: u64,
    pub number: u64,
}

/// Whom a node could follow a group through, and what it lacks of that.
#[derive(Clone, Debug, Default)]
pub(in crate::cluster) struct View {
    /// Who keeps the group in this node's zone, if it is heard.
    pub neighbour: Option<NodeId>,
    /// All that may have the group, and are heard, the best first.
    pub able: Vec<NodeId>,
    /// The group is behind others here.
    pub is_missed: bool,
    /// A client has waited for long for what its replicas execute, and how often that was so before.
    pub doubt: Option<u32>,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Sources {
    followed: BTreeMap<PartitionId, Followed>,
    subscriptions: u64,
    /// So many bytes of a group wait at most for what was before them.
    waiting_bytes_max: u64,
    /// Requests of this process's clients that other nodes execute: where, and since when.
    unanswered: BTreeMap<RequestId, (PartitionId, u64)>,
    /// What comes in parts.
    assemblies: Assemblies,
}

impl Sources {
    /// Nothing is followed. The names of subscriptions differ from those of processes with another nonce.
    /// `window_bytes` is what may be on its way to a node of a group.
    pub fn new(nonce: u64, window_bytes: u64) -> Sources {
        let subscriptions = (nonce & 0xff_ffff_ffff) << 20;
        Sources { subscriptions, waiting_bytes_max: 2 * window_bytes, ..Sources::default() }
    }

    /// What was sent by a node may be lost.
    pub fn lost(&mut self, node: NodeId) {
        self.followed.values_mut().for_each(|followed| followed.lost(node));
    }

    /// Epochs were taken back here, and with them what was said of their transactions.
    pub fn retell(&mut self) {
        self.followed.values_mut().for_each(Followed::retell);
    }

    /// Who asks groups of other nodes has another name now: they are asked anew.
    pub fn renew(&mut self) {
        for followed in self.followed.values_mut() {
            *followed = Followed::after(self.subscriptions);
        }
    }

    /// This node keeps a replica of a group.
    pub fn keep(&mut self, group: PartitionId) {
        self.followed.remove(&group);
    }

    /// Whether a group is followed.
    pub fn follows(&self, group: PartitionId) -> bool {
        self.followed.contains_key(&group)
    }

    /// Whether news of a group have come lately.
    pub fn hears(&self, group: PartitionId, now_tick: u64) -> bool {
        let followed = self.followed.get(&group);
        followed.is_some_and(|followed| {
            followed.through.is_some() && now_tick < followed.heard_tick + PATIENCE_TICKS
        })
    }

    /// News of a group have come: [`Sources::next`] gives what can be taken. `is_told_something`: so has
    /// something else with them. Here `confirmed` is confirmed, and `newest` known of some group. Gives whose
    /// subscription is to end, and its name.
    pub fn came(
        &mut self,
        place: Place,
        news: News,
        is_told_something: bool,
        (confirmed, newest): (Epoch, Epoch),
        now_tick: u64,
    ) -> Option<(NodeId, u64)> {
        let Place { group, from, subscription, number } = place;
        let mut ends = None;
        let last = self.subscriptions;
        let Some(followed) = self.followed.get_mut(&group) else {
            return Some((from, subscription));
        };
        if number == 1 && (followed.over + 1..=last).contains(&subscription) && news.held >= confirmed {
            followed.over = subscription;
            followed.asked.take_if(|(_, name, _)| *name <= subscription);
            followed.early.clear();
            let before = followed.through.replace((from, subscription, 1));
            ends = before.filter(|&(before, ..)| before != from).map(|(before, name, _)| (before, name));
        }
        let next = match followed.through {
            Some((through, name, next)) if (through, name) == (from, subscription) => next,
            // It does not know that another is followed now, under a later name. As long as none is, what it
            // still has to say to this node's partitions is of use.
            Some((through, ..)) if through != from && subscription <= followed.over => {
                return Some((from, subscription));
            }
            _ => return None,
        };
        if is_told_something && news.held >= newest {
            // Batches have to wait while that takes the room on the link: but a source that lacks them itself
            // has none that wait.
            followed.news_tick = now_tick;
        }
        if number < next && !is_active(Mutant::FeedOutOfTurn) {
            return ends;
        }
        if number > next && followed.early.is_empty() {
            followed.early_since = now_tick;
        }
        followed.early.insert(number.max(next), news);
        let bytes = followed.early.values().flat_map(|news| &news.batches);
        let bytes: u64 = bytes.map(|fed| fed.part.len() as u64).sum();
        if number > next && (followed.early.len() > EARLY_MAX || bytes > self.waiting_bytes_max) {
            self.lose(group);
        }
        ends
    }

    /// The next news of a group, and who told them.
    pub fn next(&mut self, group: PartitionId, now_tick: u64) -> Option<(NodeId, News)> {
        let followed = self.followed.get_mut(&group)?;
        let (from, _, next) = followed.through.as_mut()?;
        let news = followed.early.remove(next)?;
        *next += 1;
        followed.early_since = now_tick;
        followed.heard_tick = now_tick;
        if !news.batches.is_empty() {
            followed.news_tick = now_tick;
        }
        Some((*from, news))
    }

    /// A part of something has come, perhaps the last one that was missing: the whole. `Err` if it can't be
    /// one.
    pub fn part(
        &mut self,
        group: PartitionId,
        from: NodeId,
        part: Part,
        now_tick: u64,
    ) -> Result<Option<Vec<u8>>, NotWhole> {
        let taken = self.assemblies.take(group, from, part, self.waiting_bytes_max, now_tick);
        let taken = taken.ok_or(NotWhole)?;
        if taken.lost {
            self.lose(group);
        }
        Ok(taken.whole)
    }

    /// What this node hears of a group is not whole: it asks anew with the next tick. (Not at once: what
    /// comes then may be no better.)
    pub fn lose(&mut self, group: PartitionId) {
        if let Some(followed) = self.followed.get_mut(&group) {
            followed.through = None;
            followed.early.clear();
        }
    }

    /// Whom this node is to ask for a group that it has no part in, and under which name, if anybody.
    pub fn ask(
        &mut self,
        group: PartitionId,
        view: &View,
        is_live: impl Fn(NodeId) -> bool,
        now_tick: u64,
    ) -> Option<(NodeId, u64)> {
        let known = self.followed.get_mut(&group);
        let (through, asked, heard_tick, retell) = known.map_or((None, None, now_tick, false), |known| {
            if !view.is_missed {
                known.news_tick = now_tick;
            }
            if !known.early.is_empty() && now_tick >= known.early_since + EARLY_TICKS {
                // What they wait for is lost.
                known.through = None;
                known.early.clear();
            }
            let heard_tick = known.heard_tick.min(known.news_tick);
            (known.through, known.asked, heard_tick, known.retell)
        });
        let is_heard =
            through.is_some_and(|(node, ..)| is_live(node) && now_tick < heard_tick + PATIENCE_TICKS);
        let waits = asked.is_some_and(|(_, _, tick)| now_tick < tick + PATIENCE_TICKS);
        let through = through.map(|(node, ..)| node);
        let is_due = now_tick.is_multiple_of(NEIGHBOUR_TICKS);
        let better = view.neighbour.filter(|&node| Some(node) != through && is_due);
        if waits || is_heard && better.is_none() && !retell && view.doubt.is_none() {
            return None;
        }
        // In turn, behind whoever was asked in vain. Whoever has fallen silent, or does not say how a request
        // ended, is asked if there is nobody else.
        let vain = through.filter(|_| !is_heard || view.doubt.is_some());
        let mut able = view.able.clone();
        if able.iter().any(|&node| Some(node) != vain) {
            able.retain(|&node| Some(node) != vain);
        }
        let last = asked.map(|(node, ..)| node);
        let turn = able.iter().position(|&node| Some(node) == last);
        let next = match view.doubt {
            Some(times) => times as usize,
            None => turn.map_or(0, |turn| turn + 1),
        };
        let in_turn = able.get(next % able.len().max(1)).copied();
        let node = better.filter(|_| view.doubt.is_none()).or(in_turn)?;
        self.subscriptions += 1;
        let subscription = self.subscriptions;
        let followed = self.followed.entry(group);
        let followed = followed.or_insert_with(|| Followed::after(subscription - 1));
        followed.asked = Some((node, subscription, now_tick));
        followed.retell = false;
        followed.news_tick = now_tick;
        Some((node, subscription))
    }

    /// Time passes.
    pub fn tick(&mut self, now_tick: u64) {
        self.assemblies.give_up(now_tick);
    }

    /// How many requests of this process's clients other nodes execute.
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// What this process's clients wait for that is executed by a group's replicas.
    pub fn waiting(&self, group: PartitionId) -> Vec<RequestId> {
        let waiting = self.unanswered.iter();
        let of_group = waiting.filter(|(_, (partition, _))| *partition == group);
        of_group.map(|(&id, _)| id).collect()
    }

    /// The groups of which this process's clients have waited for so long that others of their replicas are
    /// to be asked, and how often that was so before.
    pub fn doubtful(&self, now_tick: u64) -> BTreeMap<PartitionId, u32> {
        let mut oldest: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for &(partition, since) in self.unanswered.values() {
            let oldest = oldest.entry(partition).or_insert(since);
            *oldest = since.min(*oldest);
        }
        let doubts = |(partition, since): (PartitionId, u64)| {
            let age = now_tick - since;
            let times = age / DOUBT_TICKS;
            let is_due = age.is_multiple_of(DOUBT_TICKS) && times.is_power_of_two();
            is_due.then_some((partition, times.trailing_zeros()))
        };
        oldest.into_iter().filter_map(doubts).collect()
    }

    /// A client's request is executed elsewhere.
    pub fn expect(&mut self, id: RequestId, partition: PartitionId, now_tick: u64) {
        self.unanswered.insert(id, (partition, now_tick));
    }

    /// It is heard how a request ended, or its client was told something else. Whether it was waited for.
    pub fn forget(&mut self, id: RequestId) -> bool {
        self.unanswered.remove(&id).is_some()
    }

    /// Requests that wait since before `older_than_tick`, which are not waited for any more.
    pub fn give_up(&mut self, older_than_tick: u64) -> Vec<RequestId> {
        let late = |_: &RequestId, (_, since): &mut (PartitionId, u64)| *since < older_than_tick;
        self.unanswered.extract_if(.., late).map(|(id, _)| id).collect()
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        for followed in self.followed.values() {
            debug_assert!(followed.over <= self.subscriptions);
            debug_assert!(followed.early.len() <= EARLY_MAX);
            let next = followed.through.map(|(.., next)| next);
            debug_assert!(followed.early.keys().next().is_none_or(|&first| Some(first) > next));
        }
    }
}

/// What came in parts is nothing whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cluster) struct NotWhole;

#[cfg(test)]
mod tests;
