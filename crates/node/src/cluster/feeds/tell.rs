//! The side that is followed: what each follower is told, and when.
//!
//! ```text
//!           a wish comes                     more waits than there is room for
//!   unknown ────────────► following ───────────────────────────────────────────► lapsed
//!      ▲                      │                                                     │
//!      └── it goes to another, is lost, or needs what is gone                       │
//!      └── all that waited is sent ─────────────────────────────────────────────────┘
//! ```
//!
//! Invariants ([`Followers::check_invariants`]):
//! 1. What waits for a follower is what there was to tell when it came anew, [`BACKLOG_WINDOWS`] of its
//!    windows, and one item, at most. (All that there was, because it would come anew for the rest, and be
//!    told the same again.)
//! 2. Outcomes that may be asked for again are bounded in number and in bytes.

use super::parts::{Item, Large, Part};
use super::told::{Answered, Fed, Said, Wish};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use txn::mutant::{Mutant, is_active};
use txn::{BootId, Epoch, NodeId, PartitionId, RequestId};

/// So many outcomes are remembered for those who come anew, of at most so many bytes in all.
const RECENT_MAX: usize = 16 << 10;
const RECENT_BYTES_MAX: usize = 8 << 20;
/// A frame with at least this share of what may be on its way counts as on its way.
const HEAVY: u64 = 1 << 10;
/// About how many bytes of batches go into one frame, of outcomes, and of messages, if as many may be on
/// their way.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// A follower hears of every group at least once in so many ticks.
const FEED_TICKS: u64 = 4;
/// So many times what may be on its way to a follower may wait to be sent.
const BACKLOG_WINDOWS: u64 = 4;
/// What a follower is told in so many ticks after it came is what there was to tell.
const FRESH_TICKS: u64 = 20;

/// How much a follower of a group is told at once.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Room {
    /// So many bytes may be on their way to it.
    pub window_bytes: u64,
    /// What is larger goes in parts of so many bytes.
    pub part_bytes: usize,
}

impl Default for Room {
    fn default() -> Room {
        Room { window_bytes: 1, part_bytes: 1 }
    }
}

impl Room {
    /// How many bytes go into a frame, but for the last item.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_BYTES_MAX.min(self.window_bytes.max(1))
    }

    /// How many bytes may wait for a follower.
    fn backlog_bytes(&self) -> u64 {
        BACKLOG_WINDOWS * self.window_bytes
    }
}

/// An outcome that may be asked for again.
#[derive(Clone, Debug)]
struct Recent {
    /// Whose client waits.
    node: NodeId,
    /// An epoch that was confirmed when the request was executed: not before the request's own.
    confirmed: Epoch,
    answered: Answered,
}

/// A node that follows a group through this one.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Follower {
    /// What it executes. It says so itself: this node's map may be older than its, or newer.
    kept: Vec<PartitionId>,
    subscription: u64,
    boot: BootId,
    /// Frames that were sent.
    number: u64,
    /// The last epoch that it was told of, and where the log has that.
    told: Epoch,
    index: u64,
    /// What it was told to be agreed, and who leads.
    agreed: u64,
    leader: Option<(NodeId, u64)>,
    told_tick: u64,
    /// What its clients wait for, and it was not yet sent.
    answers: VecDeque<Answered>,
    /// What the group's partition has to say to its partitions, as bytes of messages.
    messages: VecDeque<(PartitionId, Bytes)>,
    /// What is left of what goes to it in parts.
    large: VecDeque<Large>,
    /// The bytes of all three, and how many of them there were when it came.
    waiting_bytes: u64,
    since_tick: u64,
    fresh_bytes: u64,
    /// More would have waited than there is room for: nothing joins what waits, and then it is over.
    lapsed: bool,
    unheard: Unheard,
    /// It takes no further batches, as it said last.
    is_full: bool,
}

/// What a follower was sent and has not said to have heard.
#[derive(Clone, Debug, Default)]
struct Unheard {
    /// The frames' numbers, and about how many bytes of news are in each.
    frames: VecDeque<(u64, u64)>,
    /// The sum of those.
    bytes: u64,
}

impl Unheard {
    /// A frame is on its way.
    fn sent(&mut self, number: u64, bytes: u64) {
        self.frames.push_back((number, bytes));
        self.bytes += bytes;
    }

    /// A frame was heard. What was sent before it has come too, or is lost, and that ends the subscription.
    fn heard(&mut self, number: u64) {
        while let Some((_, bytes)) = self.frames.pop_front_if(|(sent, _)| *sent <= number) {
            self.bytes -= bytes;
        }
    }

    /// Whether there is room for more if so many bytes may be on their way.
    fn has_room(&self, window_bytes: u64) -> bool {
        self.bytes < window_bytes.max(1)
    }

    fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }
}

/// What there is to tell a follower of its group.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Pending {
    /// Batches behind those that it was told of, if there is room.
    pub batches: Vec<Fed>,
    /// There are more.
    pub has_more: bool,
    /// Up to which index the group has agreed.
    pub agreed: u64,
    /// Who leads it.
    pub leader: Option<(NodeId, u64)>,
}

/// What a follower is told in one frame.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Told {
    pub subscription: u64,
    pub number: u64,
    pub batches: Vec<Fed>,
    pub agreed: u64,
    pub leader: Option<(NodeId, u64)>,
    pub answers: Vec<Answered>,
    pub messages: Vec<(PartitionId, Bytes)>,
    pub part: Option<Part>,
    /// It is to say that it has heard it.
    pub asks: bool,
    /// There is more, and room for it.
    pub has_more: bool,
}

impl Told {
    /// Whether partitions are told something.
    pub fn says(&self) -> bool {
        let says = |part: &Part| matches!(part.item, Item::Message(_));
        !self.messages.is_empty() || self.part.as_ref().is_some_and(says)
    }
}

impl Follower {
    fn new(wish: Wish, now_tick: u64) -> Follower {
        Follower {
            kept: wish.kept,
            subscription: wish.subscription,
            boot: wish.boot,
            number: 0,
            told: wish.after,
            index: 0,
            agreed: 0,
            leader: None,
            told_tick: 0,
            answers: VecDeque::new(),
            messages: VecDeque::new(),
            large: VecDeque::new(),
            waiting_bytes: 0,
            since_tick: now_tick,
            fresh_bytes: 0,
            lapsed: false,
            unheard: Unheard::default(),
            is_full: false,
        }
    }

    /// What it executes.
    pub fn kept(&self) -> &[PartitionId] {
        &self.kept
    }

    /// The process that follows.
    pub fn boot(&self) -> BootId {
        self.boot
    }

    /// The last epoch that it was told of, and where the log has that; 0 where that must be looked for.
    pub fn place(&self) -> (Epoch, u64) {
        (self.told, self.index)
    }

    /// Whether it may be told of further batches.
    pub fn takes_batches(&self, room: Room) -> bool {
        !self.is_full && self.has_room(room)
    }

    /// Whether it may be sent more before it says that it has heard something.
    fn has_room(&self, room: Room) -> bool {
        self.unheard.has_room(room.window_bytes)
    }

    /// Whether it is not to be told anything any more.
    pub fn is_over(&self) -> bool {
        self.lapsed && !self.has_more()
    }

    fn rewind(&mut self, to: Epoch) {
        if self.told > to && !is_active(Mutant::FeedWithoutRewind) {
            self.told = to;
            self.index = 0;
        }
    }

    /// Whether something of so many bytes may wait for it. If not, it lapses.
    fn admits(&mut self, bytes: usize, room: Room, now_tick: u64) -> bool {
        if now_tick < self.since_tick + FRESH_TICKS {
            self.fresh_bytes = self.waiting_bytes + bytes as u64;
        }
        self.lapsed |= self.waiting_bytes > self.fresh_bytes + room.backlog_bytes();
        if !self.lapsed {
            self.waiting_bytes += bytes as u64;
        }
        !self.lapsed
    }

    /// It is to be told an outcome.
    fn answer(&mut self, answered: Answered, room: Room, number: &mut u64, now_tick: u64) {
        let bytes = answered.bytes();
        if bytes > room.part_bytes {
            let mut whole = Vec::new();
            answered.put(&mut whole);
            self.part(Item::Answer, whole.into(), room, number, now_tick);
        } else if self.admits(bytes, room, now_tick) {
            self.answers.push_back(answered);
        }
    }

    /// One of its partitions is to be told something.
    fn say(&mut self, to: PartitionId, message: Bytes, room: Room, number: &mut u64, now_tick: u64) {
        if message.len() > room.part_bytes {
            self.part(Item::Message(to), message, room, number, now_tick);
        } else if self.admits(message.len(), room, now_tick) {
            self.messages.push_back((to, message));
        }
    }

    fn part(&mut self, item: Item, whole: Bytes, room: Room, number: &mut u64, now_tick: u64) {
        if self.admits(whole.len(), room, now_tick) {
            *number += 1;
            self.large.push_back(Large::new(item, *number, whole));
        }
    }

    /// Whether something waits to be told that takes room.
    fn has_more(&self) -> bool {
        !self.answers.is_empty() || !self.messages.is_empty() || !self.large.is_empty()
    }

    /// What goes into the next frame; `None` if there is nothing to say.
    pub fn tell(&mut self, pending: Pending, room: Room, now_tick: u64) -> Option<Told> {
        let Pending { batches, has_more, mut agreed, leader } = pending;
        if let Some(last) = batches.last() {
            self.told = last.epoch;
            self.index = last.index;
        }
        if !is_active(Mutant::FeedAgreedAhead) {
            agreed = agreed.min(self.index);
        }
        let has_room = self.has_room(room);
        let is_late = now_tick >= self.told_tick + FEED_TICKS;
        let has_news = agreed > self.agreed || leader != self.leader || has_room && self.has_more();
        if batches.is_empty() && !has_news && !is_late && self.number > 0 {
            return None;
        }
        let has_more = has_more && !batches.is_empty();
        self.number += 1;
        (self.agreed, self.leader, self.told_tick) = (agreed, leader, now_tick);
        let (mut answers, mut messages, mut part) = (Vec::new(), Vec::new(), None);
        let mut bytes: u64 = 0;
        if has_room {
            let bytes_max = room.frame_bytes();
            answers = first_of(&mut self.answers, bytes_max, |answered| answered.bytes() as u64);
            messages = first_of(&mut self.messages, bytes_max, |(_, message)| message.len() as u64);
            part = self.large.front_mut().map(|large| large.next(room.part_bytes));
            self.large.pop_front_if(|large| large.is_sent());
            let answered = answers.iter().map(|answered| answered.bytes() as u64);
            let said = messages.iter().map(|(_, message)| message.len() as u64);
            let parted = part.iter().map(|part| part.bytes.len() as u64);
            bytes = answered.chain(said).chain(parted).sum();
            self.waiting_bytes -= bytes;
            self.fresh_bytes = self.fresh_bytes.min(self.waiting_bytes);
        }
        bytes += batches.iter().map(|fed| fed.bytes).sum::<u64>();
        if bytes * HEAVY >= room.window_bytes {
            self.unheard.sent(self.number, bytes);
        }
        Some(Told {
            subscription: self.subscription,
            number: self.number,
            batches,
            agreed,
            leader,
            answers,
            messages,
            part,
            // Asked for with every frame until it is heard: what is said of one says it of those before.
            asks: !self.unheard.is_empty() || self.is_full,
            has_more: self.has_room(room) && (has_more || self.has_more()),
        })
    }
}

/// Takes the first of some items, until they have so many bytes.
fn first_of<T>(items: &mut VecDeque<T>, bytes_max: u64, bytes_of: impl Fn(&T) -> u64) -> Vec<T> {
    let mut bytes = 0;
    let fits = items.iter().take_while(|item| {
        let has_room = bytes < bytes_max;
        bytes += bytes_of(item);
        has_room
    });
    let count = fits.count();
    items.drain(..count).collect()
}

/// What a partition has to say to another one: its bytes, in pieces, and how many notes they are.
#[derive(Clone, Debug)]
pub(in crate::cluster) struct Saying {
    pub from: PartitionId,
    pub to: PartitionId,
    pub pieces: Vec<Bytes>,
    pub notes: u64,
}

/// See the module's head.
#[derive(Debug, Default)]
pub(in crate::cluster) struct Followers {
    followers: BTreeMap<(PartitionId, NodeId), Follower>,
    room: Room,
    /// Outcomes for nodes that do not execute what their clients ask for.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// What was said to partitions of other nodes.
    said: Said,
    /// The last number of what was sent in parts.
    large: u64,
}

impl Followers {
    /// Nobody yet. What goes in parts has other names than those of processes with another nonce.
    pub fn new(nonce: u64, room: Room) -> Followers {
        Followers { room, large: (nonce & 0xff_ffff_ffff) << 20, ..Followers::default() }
    }

    /// How much a follower is told at once.
    pub fn room(&self) -> Room {
        self.room
    }

    /// What was said to partitions of other nodes.
    pub fn said(&self) -> Said {
        self.said
    }

    /// A group's log has other batches behind this epoch than it had.
    pub fn rewind(&mut self, group: PartitionId, to: Epoch) {
        for (_, follower) in self.of_group(group) {
            follower.rewind(to);
        }
    }

    fn of_group(
        &mut self,
        group: PartitionId,
    ) -> impl Iterator<Item = (&(PartitionId, NodeId), &mut Follower)> {
        self.followers.range_mut((group, NodeId(0))..=(group, NodeId(u16::MAX)))
    }

    /// What was sent to a node may be lost.
    pub fn lost(&mut self, node: NodeId) {
        self.followers.retain(|&(_, follower), _| follower != node);
    }

    /// Those that are not heard of come anew.
    pub fn keep_live(&mut self, is_live: impl Fn(NodeId) -> bool) {
        self.followers.retain(|&(_, node), _| is_live(node));
    }

    /// A follower has heard a frame, and takes no further batches for now if it is full.
    pub fn heard(&mut self, group: PartitionId, node: NodeId, name: u64, number: u64, is_full: bool) {
        let follower = self.followers.get_mut(&(group, node));
        if let Some(follower) = follower.filter(|follower| follower.subscription == name) {
            follower.unheard.heard(number);
            follower.is_full = is_full;
        }
    }

    /// A request of a node's client was executed here, when an epoch was confirmed that is not before its
    /// own.
    pub fn answer(&mut self, node: NodeId, confirmed: Epoch, answered: Answered, now_tick: u64) {
        match self.followers.get_mut(&(answered.partition, node)) {
            Some(follower) if follower.kept.contains(&answered.partition) => return,
            Some(follower) => follower.answer(answered.clone(), self.room, &mut self.large, now_tick),
            None => {}
        }
        self.remember(Recent { node, confirmed, answered });
    }

    /// Local partitions have something to say to others.
    pub fn say(&mut self, all: &[Saying], now_tick: u64) {
        let mut told: BTreeSet<(PartitionId, NodeId)> = BTreeSet::new();
        let (room, mut large) = (self.room, self.large);
        let (mut notes, mut lapsed) = (0, 0);
        for saying in all {
            let followers = self.of_group(saying.from);
            for (place, follower) in followers.filter(|(_, follower)| follower.kept.contains(&saying.to)) {
                told.insert(*place);
                notes += saying.notes;
                let before = follower.lapsed;
                for piece in &saying.pieces {
                    follower.say(saying.to, piece.clone(), room, &mut large, now_tick);
                }
                lapsed += u64::from(follower.lapsed && !before);
            }
        }
        self.large = large;
        self.said.notes += notes;
        self.said.lapsed += lapsed;
        self.said.rounds += told.len() as u64;
    }

    /// Whether a node's subscription is newer than the one that is known.
    pub fn is_new(&self, group: PartitionId, node: NodeId, wish: &Wish) -> bool {
        let older = self.followers.get(&(group, node));
        !older.is_some_and(|older| older.subscription >= wish.subscription && older.boot == wish.boot)
    }

    /// A node follows a group through this one from now on.
    pub fn follow(&mut self, group: PartitionId, node: NodeId, wish: Wish, now_tick: u64) {
        let lacking = self.lacking(node, group, &wish.waits, wish.after);
        let mut follower = Follower::new(wish, now_tick);
        for answered in lacking {
            follower.answer(answered, self.room, &mut self.large, now_tick);
        }
        self.followers.insert((group, node), follower);
    }

    /// A subscription is over.
    pub fn unfollow(&mut self, group: PartitionId, node: NodeId, subscription: u64) {
        let known = self.followers.get(&(group, node));
        if known.is_some_and(|known| known.subscription == subscription) {
            self.followers.remove(&(group, node));
        }
    }

    /// All followers, to be told something and given back ([`Followers::put_back`]).
    pub fn take(&mut self) -> BTreeMap<(PartitionId, NodeId), Follower> {
        std::mem::take(&mut self.followers)
    }

    /// Those that still follow, and in how many frames partitions were told something.
    pub fn put_back(&mut self, followers: BTreeMap<(PartitionId, NodeId), Follower>, frames: u64) {
        self.followers = followers;
        self.said.frames += frames;
    }

    /// The module's invariants.
    pub fn check_invariants(&self) {
        assert!(self.recent.len() <= RECENT_MAX);
        debug_assert!(self.followers.values().all(|follower| follower.fresh_bytes <= follower.waiting_bytes));
        debug_assert!(
            self.followers.values().all(|follower| follower.has_more() || follower.waiting_bytes == 0)
        );
    }

    fn remember(&mut self, recent: Recent) {
        self.recent_bytes += recent.answered.bytes();
        self.recent.push_back(recent);
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let oldest = self.recent.pop_front();
            self.recent_bytes -= oldest.map_or(0, |oldest| oldest.answered.bytes());
        }
    }

    /// The outcomes that a node lacks which waited for these requests when it had confirmed an epoch. What it
    /// was asked for later is in a later epoch, and may have been executed before its wish came.
    fn lacking(&self, node: NodeId, group: PartitionId, waits: &[RequestId], after: Epoch) -> Vec<Answered> {
        let waits: BTreeSet<&RequestId> = waits.iter().collect();
        let of_node = self.recent.iter().filter(|recent| {
            recent.node == node
                && recent.answered.partition == group
                && (recent.confirmed > after || waits.contains(&recent.answered.id))
        });
        of_node.map(|recent| recent.answered.clone()).collect()
    }
}

#[cfg(test)]
mod tests;
