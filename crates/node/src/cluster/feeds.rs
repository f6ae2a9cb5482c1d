//! What a node gets of groups of which it keeps no replica, and who executes for its clients there: dispatch inside a zone.
//!
//! A zone has one replica of every partition, spread over its nodes, and the order is made of the batches of all groups. So
//! a node follows each group that it has no part in through a node that has one: its neighbour in the zone, or, while that
//! is gone, one of another zone. The one that is followed sends each batch as soon as its own log has it, cut down to what
//! the follower executes, and how far the group has agreed. What is told before it is agreed may be replaced later, exactly
//! as in a log; the merge treats both alike.
//!
//! Whoever is followed also answers: it sends the follower the outcomes of its clients' requests that were executed here.
//! A follower that comes anew names the requests that it waits for and gets their outcomes again, so an outcome is lost
//! only if its replica and all that it remembered are gone; the client is then told that nobody knows.
//!
//! And it is the way by which the partitions that the follower keeps hear from the group's partition of transactions that they
//! share ([`execute::siblings`]): one frame for each follower and round has all of it. A follower that comes anew is told again what
//! its partitions have not final-committed. Whoever has forgotten some of that tells it to fetch a checkpoint instead.
//!
//! A frame may not be of any size, and a link not hold any number of them. So what is too large for one frame goes in parts, which may
//! come in any order; and a follower that has not said to have heard what it was sent is told little more than that there is something.
//!
//! A subscription numbers its frames. One that comes too early waits for those before it, a little while: then they are lost, and
//! that ends the subscription. The follower begins another behind what is confirmed. One that has not begun in time is not waited for, but is taken if
//! it begins before a later one: over a slow link, what is told may take longer than anybody's patience.
//!
//! Invariants:
//! 1. A follower is never told that something is agreed before it was sent the batch, under the same subscription.
//! 2. A follower is sent all that it executes, whichever map either of the two has.
//! 3. A follower never confirms what its group has not agreed on, whomever it follows, and however often that changes.

use super::frames::{Frame, decode_answered, encode_answered};
use super::machine::{ClusterEffects, ClusterNode};
use crate::session;
use bytes::Bytes;
use execute::siblings::{Message, Sent, Twins};
use order::GroupBatch;
use order::merge::{Content, Held};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::mutant::{Mutant, is_active};
use txn::{BootId, Epoch, NodeId, Outcome, PartitionId, Position, RequestId};

/// About how many bytes of batches go into one frame, and of outcomes.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// What has come in parts, but not whole, is given up when no part has come for so many ticks.
const PARTS_TICKS: u64 = 600;
/// A frame with at least this share of what may be on its way counts as on its way.
const HEAVY: u64 = 1 << 10;
/// A follower hears of every group at least once in so many ticks.
const FEED_TICKS: u64 = 4;
/// One that has not heard of a group for so many ticks follows it through another node.
const PATIENCE_TICKS: u64 = 12;
/// So many ticks a frame waits for those before it, and so many frames.
const EARLY_TICKS: u64 = 4;
const EARLY_MAX: usize = 64;
/// A node that does not follow its neighbour looks every so many ticks whether it can.
const NEIGHBOUR_TICKS: u64 = 40;
/// So many outcomes are remembered for those who come anew, of at most so many bytes in all.
const RECENT_MAX: usize = 16 << 10;
const RECENT_BYTES_MAX: usize = 8 << 20;

/// A batch on its way to a follower.
#[derive(Clone, Debug)]
pub struct Fed {
    /// Its epoch.
    pub epoch: Epoch,
    /// The entry's index in the group's log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The digest of its bytes.
    pub digest: u64,
    /// The bytes that it has there.
    pub bytes: u64,
    /// The last number that the whole batch has of the follower; 0 if none.
    pub noted: u64,
    /// What the follower needs of it, as bytes.
    pub part: Bytes,
}

/// The outcome of a request that was executed for another node's client.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Which request.
    pub id: RequestId,
    /// Who executed it.
    pub partition: PartitionId,
    /// At which position.
    pub position: Position,
    /// How it ended.
    pub outcome: Outcome,
}

impl Answered {
    /// About what it takes to remember it.
    fn bytes(&self) -> usize {
        64 + self.outcome.as_ref().map_or(0, txn::Reply::bytes)
    }
}

/// What a part is one of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// The outcome of a request.
    Answer,
    /// What the group's partition has to say to this one.
    Message(PartitionId),
}

/// A part of something that is too large for one frame.
#[derive(Clone, Debug)]
pub struct Part {
    /// What it is one of.
    pub item: Item,
    /// Names the whole: the sender says nothing else under this number.
    pub number: u64,
    /// The bytes of the whole.
    pub total: u64,
    /// Where the part begins.
    pub offset: u64,
    /// Its bytes.
    pub bytes: Bytes,
}

/// What is left to send of something that goes in parts.
#[derive(Clone, Debug)]
struct Large {
    item: Item,
    number: u64,
    total: u64,
    rest: Bytes,
}

/// What has come of something that comes in parts.
#[derive(Clone, Debug)]
struct Assembly {
    /// By where they begin.
    parts: BTreeMap<u64, Bytes>,
    left: u64,
    news_tick: u64,
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
struct Follower {
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
    answers: Vec<Answered>,
    /// What the group's partition has to say to its partitions, as bytes of messages.
    messages: VecDeque<(PartitionId, Bytes)>,
    /// What is left of what goes to it in parts.
    large: VecDeque<Large>,
    /// Frames that it has not said to have heard: their numbers, and about how many bytes of news are in each.
    unheard: VecDeque<(u64, u64)>,
}

impl Follower {
    /// It is to be told an outcome.
    fn answer(&mut self, answered: Answered, part_bytes: usize, number: &mut u64) {
        match answered.bytes() > part_bytes {
            true => self.part(Item::Answer, encode_answered(&answered).into(), number),
            false => self.answers.push(answered),
        }
    }

    /// One of its partitions is to be told something.
    fn say(&mut self, to: PartitionId, message: Bytes, part_bytes: usize, number: &mut u64) {
        match message.len() > part_bytes {
            true => self.part(Item::Message(to), message, number),
            false => self.messages.push_back((to, message)),
        }
    }

    fn part(&mut self, item: Item, rest: Bytes, number: &mut u64) {
        *number += 1;
        self.large.push_back(Large {
            item,
            number: *number,
            total: rest.len() as u64,
            rest,
        });
    }

    /// The part that goes into the next frame.
    fn next_part(&mut self, part_bytes: usize) -> Option<Part> {
        let large = self.large.front_mut()?;
        let part = Part {
            item: large.item,
            number: large.number,
            total: large.total,
            offset: large.total - large.rest.len() as u64,
            bytes: large.rest.split_to(part_bytes.clamp(1, large.rest.len())),
        };
        if large.rest.is_empty() {
            self.large.pop_front();
        }
        Some(part)
    }

    /// Whether it can be told more, if so many bytes may be on their way.
    fn has_room(&self, window_bytes: u64) -> bool {
        let unheard: u64 = self.unheard.iter().map(|(_, bytes)| bytes).sum();
        unheard < window_bytes
    }

    /// Whether something waits to be told that takes room.
    fn has_more(&self) -> bool {
        !self.answers.is_empty() || !self.messages.is_empty() || !self.large.is_empty()
    }

    /// The answers that go into the next frame.
    fn next_answers(&mut self) -> Vec<Answered> {
        let mut bytes = 0;
        let fits = self.answers.iter().take_while(|answered| {
            let has_room = bytes < FRAME_BYTES_MAX;
            bytes += answered.bytes() as u64;
            has_room
        });
        let count = fits.count();
        self.answers.drain(..count).collect()
    }

    /// The messages that go into the next frame.
    fn next_messages(&mut self) -> Vec<(PartitionId, Bytes)> {
        let mut bytes = 0;
        let fits = self.messages.iter().take_while(|(_, message)| {
            let has_room = bytes < FRAME_BYTES_MAX;
            bytes += message.len() as u64;
            has_room
        });
        let count = fits.count();
        self.messages.drain(..count).collect()
    }
}

/// How a node wants to follow a group.
pub(super) struct Wish {
    pub subscription: u64,
    pub boot: BootId,
    pub after: Epoch,
    pub waits: Vec<RequestId>,
    pub kept: Vec<PartitionId>,
    pub settled: Epoch,
    pub heard: Epoch,
}

/// News of a group.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub batches: Vec<Fed>,
    pub held: Epoch,
    pub agreed: u64,
    pub leader: Option<(NodeId, u64)>,
    pub answers: Vec<Answered>,
    pub messages: Vec<(PartitionId, Bytes)>,
    pub part: Option<Part>,
}

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

/// Both sides of dispatch. See the module's head.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    followers: BTreeMap<(PartitionId, NodeId), Follower>,
    followed: BTreeMap<PartitionId, Followed>,
    subscriptions: u64,
    /// Outcomes for nodes that do not execute what their clients ask for.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// Requests of this process's clients that other nodes execute: where, and since when.
    unanswered: BTreeMap<RequestId, (PartitionId, u64)>,
    /// Whether a follower keeps a partition that this node keeps too.
    twins: Twins,
    /// The last number of what was sent in parts.
    large: u64,
    /// What comes in parts, by group, sender and number.
    assemblies: BTreeMap<(PartitionId, NodeId, u64), Assembly>,
}

impl Feeds {
    /// Nothing yet. The names of subscriptions differ from those of processes with another nonce.
    pub fn new(nonce: u64) -> Feeds {
        Feeds {
            subscriptions: (nonce & 0xff_ffff_ffff) << 20,
            large: (nonce & 0xff_ffff_ffff) << 20,
            ..Feeds::default()
        }
    }

    /// A group's log has other batches behind this epoch than it had.
    pub fn rewind(&mut self, group: PartitionId, to: Epoch) {
        for (_, follower) in self.of_group(group) {
            if follower.told > to && !is_active(Mutant::FeedWithoutRewind) {
                follower.told = to;
                follower.index = 0;
            }
        }
    }

    fn of_group(
        &mut self,
        group: PartitionId,
    ) -> impl Iterator<Item = (&(PartitionId, NodeId), &mut Follower)> {
        self.followers
            .range_mut((group, NodeId(0))..=(group, NodeId(u16::MAX)))
    }

    /// What was sent to a node may be lost, and what it sent.
    pub fn lost(&mut self, node: NodeId) {
        self.followers.retain(|&(_, follower), _| follower != node);
        for followed in self.followed.values_mut() {
            followed.through.take_if(|(through, ..)| *through == node);
            followed.asked.take_if(|(asked, ..)| *asked == node);
        }
    }

    /// A follower has heard a frame.
    pub fn heard(&mut self, group: PartitionId, node: NodeId, subscription: u64, number: u64) {
        let follower = self.followers.get_mut(&(group, node));
        if let Some(follower) = follower.filter(|known| known.subscription == subscription) {
            // What was sent before has come, or is lost, and that ends the subscription.
            follower.unheard.retain(|(sent, _)| *sent > number);
        }
    }

    /// Epochs were taken back here, and with them what was said of their transactions.
    pub fn retell(&mut self) {
        self.followed
            .values_mut()
            .for_each(|followed| followed.retell = true);
    }

    /// Who asks groups of other nodes has another name now: they are asked anew.
    pub fn renew(&mut self) {
        for followed in self.followed.values_mut() {
            *followed = Followed {
                over: self.subscriptions,
                ..Followed::default()
            };
        }
    }

    /// How many requests of this process's clients other nodes execute.
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// What this process's clients wait for that is executed by a group's replicas.
    fn waiting(&self, group: PartitionId) -> Vec<RequestId> {
        let waiting = self.unanswered.iter();
        let of_group = waiting.filter(|(_, (partition, _))| *partition == group);
        of_group.map(|(&id, _)| id).collect()
    }

    /// A client's request is executed elsewhere.
    pub fn expect(&mut self, id: RequestId, partition: PartitionId, now_tick: u64) {
        self.unanswered.insert(id, (partition, now_tick));
    }

    /// The client of a request was told something else.
    pub fn forget(&mut self, id: RequestId) {
        self.unanswered.remove(&id);
    }

    /// Requests that wait since before `older_than_tick`, which are not waited for any more.
    pub fn give_up(&mut self, older_than_tick: u64) -> Vec<RequestId> {
        let late = |(_, since): &(PartitionId, u64)| *since < older_than_tick;
        let found = self.unanswered.iter().filter(|(_, waits)| late(waits));
        let given_up: Vec<RequestId> = found.map(|(&id, _)| id).collect();
        for id in &given_up {
            self.unanswered.remove(id);
        }
        given_up
    }

    fn remember(&mut self, recent: Recent) {
        self.recent_bytes += recent.answered.bytes();
        self.recent.push_back(recent);
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let oldest = self.recent.pop_front();
            self.recent_bytes -= oldest.map_or(0, |oldest| oldest.answered.bytes());
        }
    }

    /// The outcomes that a node lacks which waited for these requests when it had confirmed an epoch. What it was asked
    /// for later is in a later epoch, and may have been executed before its wish came.
    fn lacking(
        &self,
        node: NodeId,
        group: PartitionId,
        waits: &[RequestId],
        after: Epoch,
    ) -> Vec<Answered> {
        let waits: BTreeSet<&RequestId> = waits.iter().collect();
        let of_node = self.recent.iter().filter(|recent| {
            recent.node == node
                && recent.answered.partition == group
                && (recent.confirmed > after || waits.contains(&recent.answered.id))
        });
        of_node.map(|recent| recent.answered.clone()).collect()
    }
}

impl ClusterNode {
    /// Whether outcomes of other nodes' requests are wanted: see [`ClusterNode::executed`].
    pub fn is_spread(&self) -> bool {
        self.is_spread
    }

    /// Requests of other nodes' clients have final-committed here.
    pub fn executed(
        &mut self,
        answered: impl IntoIterator<Item = Answered>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) {
        self.now_ms = now_ms;
        if self.is_stopped() {
            return;
        }
        let confirmed = self.merge.confirmed().epoch;
        for answered in answered {
            let (boot, _) = session::boot_and_port(answered.id.session);
            let Some(node) = self.map().node_of_boot(BootId(boot)) else {
                continue;
            };
            if node == self.options.me {
                continue;
            }
            let follower = self.feeds.followers.get_mut(&(answered.partition, node));
            match follower {
                Some(follower) if follower.kept.contains(&answered.partition) => continue,
                Some(follower) => {
                    let part_bytes = self.options.feed_part_bytes;
                    follower.answer(answered.clone(), part_bytes, &mut self.feeds.large);
                }
                None => {}
            }
            self.feeds.remember(Recent {
                node,
                confirmed,
                answered,
            });
        }
        self.feed(effects);
    }

    /// Local partitions have something to say to others.
    pub fn say(
        &mut self,
        sent: impl IntoIterator<Item = Sent>,
        now_ms: u64,
        effects: &mut ClusterEffects,
    ) {
        self.now_ms = now_ms;
        if self.is_stopped() {
            return;
        }
        for Sent { from, to, message } in sent {
            let part_bytes = self.options.feed_part_bytes;
            let pieces = message.encode_in_pieces(part_bytes);
            let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
            // It stays in memory as long as the log that makes it: until the next checkpoint.
            let bytes = pieces.iter().map(|piece| piece.len() as u64);
            self.checkpoints.note_bytes(bytes.sum());
            let mut large = self.feeds.large;
            let followers = self.feeds.of_group(from);
            for (_, follower) in followers.filter(|(_, follower)| follower.kept.contains(&to)) {
                for piece in &pieces {
                    follower.say(to, piece.clone(), part_bytes, &mut large);
                }
            }
            self.feeds.large = large;
        }
        self.feed(effects);
    }

    /// A node wants to follow a group through this one.
    pub(super) fn follow(
        &mut self,
        from: NodeId,
        group: PartitionId,
        wish: Wish,
        effects: &mut ClusterEffects,
    ) {
        let Wish {
            subscription,
            boot,
            after,
            waits,
            kept,
            settled,
            heard,
        } = wish;
        // One who has less than the follower is no help.
        if !self.groups.contains_key(&group) || self.merge.held(group) < after {
            return;
        }
        let older = self.feeds.followers.get(&(group, from));
        if older.is_some_and(|older| older.subscription >= subscription && older.boot == boot) {
            return;
        }
        // What was read there its partitions will need, and can't have.
        if !kept.is_empty() && settled < self.forgotten {
            if self.checkpoints.newest() < self.forgotten {
                self.want_checkpoint();
            }
            return self.tell_behind(group, from, effects);
        }
        if let Some(engine) = self.engine(group) {
            if self.is_twin(&kept) {
                self.feeds.twins.store(true, Ordering::SeqCst);
            }
            for &partition in &kept {
                engine.tell_again(partition, settled, heard);
            }
            // Whoever steps the engines next takes it from them.
            effects.delivered = true;
        }
        let mut follower = Follower {
            messages: VecDeque::new(),
            large: VecDeque::new(),
            unheard: VecDeque::new(),
            answers: Vec::new(),
            kept,
            subscription,
            boot,
            number: 0,
            told: after,
            index: 0,
            agreed: 0,
            leader: None,
            told_tick: 0,
        };
        for answered in self.feeds.lacking(from, group, &waits, after) {
            let part_bytes = self.options.feed_part_bytes;
            follower.answer(answered, part_bytes, &mut self.feeds.large);
        }
        self.feeds.followers.insert((group, from), follower);
    }

    /// A node follows a group no more.
    pub(super) fn unfollow(&mut self, from: NodeId, group: PartitionId) {
        self.feeds.followers.remove(&(group, from));
    }

    /// Tells followers what is new.
    pub(super) fn feed(&mut self, effects: &mut ClusterEffects) {
        if self.feeds.followers.is_empty() {
            self.feeds.twins.store(false, Ordering::SeqCst);
            return;
        }
        let mut followers = std::mem::take(&mut self.feeds.followers);
        followers.retain(|&(group, node), follower| {
            loop {
                match self.feed_one(group, node, follower, effects) {
                    Some(true) => {}
                    Some(false) => return true,
                    None => return false,
                }
            }
        });
        let has_twins = followers
            .values()
            .any(|follower| self.is_twin(&follower.kept));
        self.feeds.twins.store(has_twins, Ordering::SeqCst);
        self.feeds.followers = followers;
    }

    /// Whether a node that keeps these partitions keeps one that this node keeps too.
    fn is_twin(&self, kept: &[PartitionId]) -> bool {
        kept.iter()
            .any(|&partition| self.engine(partition).is_some())
    }

    /// Whether what local partitions say to each other is for other nodes too.
    pub fn twins(&self) -> &Twins {
        &self.feeds.twins
    }

    /// Sends one frame, if there is anything to say. Whether there is more; `None` if the follower needs what is gone.
    fn feed_one(
        &mut self,
        group: PartitionId,
        node: NodeId,
        follower: &mut Follower,
        effects: &mut ClusterEffects,
    ) -> Option<bool> {
        let kept: Vec<PartitionId> = match is_active(Mutant::FeedByOwnMap) {
            true => self.map().kept_by(node).collect(),
            false => follower.kept.clone(),
        };
        let boot = follower.boot;
        // What this build cannot read ends it when it is to be delivered.
        let fed = |held: &Held| {
            let batch = held.batch.read(&self.registry).ok()?;
            Some(Fed {
                epoch: held.epoch,
                index: held.index,
                term: held.term,
                digest: held.digest,
                bytes: held.bytes,
                noted: batch.last_of(boot),
                part: batch.part_for(&kept).encode().into(),
            })
        };
        let mut batches: Vec<Fed> = Vec::new();
        let mut bytes = 0;
        let mut is_full = false;
        let window_bytes = self.options.feed_window_bytes / self.map().partitions.len() as u64;
        let has_room = follower.has_room(window_bytes.max(1));
        if !has_room {
            // It is told of what it lacks when it has heard what is on its way.
        } else if follower.told >= self.merge.confirmed().epoch {
            for held in self.merge.held_behind(group, follower.told) {
                if bytes >= FRAME_BYTES_MAX {
                    is_full = true;
                    break;
                }
                bytes += held.bytes;
                let Some(fed) = fed(held) else { break };
                batches.push(fed);
            }
        } else {
            // What is confirmed is only in the log.
            let Some(first) = self.index_behind(group, follower) else {
                self.tell_behind(group, node, effects);
                return None;
            };
            for index in first..=self.merge.group(group).1.0 {
                if bytes >= FRAME_BYTES_MAX {
                    break;
                }
                let entry = self.groups.get(&group)?.entry(index)?;
                // It was read before, and is in the order.
                let Ok(Some(held)) = super::recover::held(&entry) else {
                    continue;
                };
                bytes += held.bytes;
                let Some(fed) = fed(&held) else {
                    continue;
                };
                batches.push(fed);
            }
            is_full = true;
        }
        if let Some(last) = batches.last() {
            follower.told = last.epoch;
            follower.index = last.index;
        }
        let mut agreed = self.merge.agreed_upto(group);
        if !is_active(Mutant::FeedAgreedAhead) {
            agreed = agreed.min(follower.index);
        }
        let leader = self.leaders.get(&group).copied();
        let is_late = self.ticks >= follower.told_tick + FEED_TICKS;
        let has_news = agreed > follower.agreed
            || leader != follower.leader
            || has_room && follower.has_more();
        if batches.is_empty() && !has_news && !is_late && follower.number > 0 {
            return Some(false);
        }
        let has_more = is_full && !batches.is_empty();
        follower.number += 1;
        follower.agreed = agreed;
        follower.leader = leader;
        follower.told_tick = self.ticks;
        let (mut answers, mut messages, mut part) = (Vec::new(), Vec::new(), None);
        if has_room {
            answers = follower.next_answers();
            messages = follower.next_messages();
            part = follower.next_part(self.options.feed_part_bytes);
        }
        let answered = answers.iter().map(|answered| answered.bytes() as u64);
        let said = messages.iter().map(|(_, message)| message.len() as u64);
        let parted = part.iter().map(|part| part.bytes.len() as u64);
        bytes += answered.chain(said).chain(parted).sum::<u64>();
        if bytes * HEAVY >= window_bytes {
            follower.unheard.push_back((follower.number, bytes));
        }
        let frame = Frame::Feed {
            partition: group,
            subscription: follower.subscription,
            number: follower.number,
            batches,
            held: self.merge.held(group),
            agreed,
            leader,
            answers,
            messages,
            part,
            // Asked for with every frame until it is heard: what is said of one says it of those before.
            asks: !follower.unheard.is_empty(),
        };
        self.send(node, &frame, effects);
        Some(follower.has_room(window_bytes.max(1)) && (has_more || follower.has_more()))
    }

    /// The index of the first batch behind what a follower was told, which is confirmed here. `None` if it is gone.
    fn index_behind(&self, group: PartitionId, follower: &Follower) -> Option<u64> {
        if follower.index > 0 {
            return Some(follower.index + 1);
        }
        let log = self.groups.get(&group)?;
        let mut first = self.merge.group(group).1.0;
        while first > 0 {
            let entry = log.entry(first)?;
            match GroupBatch::epoch_of(&entry.data) {
                Some(epoch) if epoch <= follower.told => break,
                Some(epoch) if epoch.0 == follower.told.0 + 1 => return Some(first),
                _ => first -= 1,
            }
        }
        Some(first + 1)
    }

    /// News of a group that this node follows.
    pub(super) fn fed(
        &mut self,
        from: NodeId,
        group: PartitionId,
        subscription: u64,
        number: u64,
        mut news: News,
        effects: &mut ClusterEffects,
    ) {
        let now = self.ticks;
        let newest = self.feeds.subscriptions;
        if !self.feeds.followed.contains_key(&group) {
            return;
        }
        // These may come in any order, and from anybody: only what is lost matters, and that is what subscriptions see to. Over a
        // slow link they would come too late for theirs again and again.
        for (to, message) in news.messages.drain(..) {
            if !self.hear(group, to, &message, effects) {
                effects.warnings.push(format!(
                    "{from} says something of {group} to {to} that this node cannot read"
                ));
                return self.lose_feed(group, effects);
            }
        }
        if let Some(part) = news.part.take()
            && !self.part_came(from, group, part, effects)
        {
            effects.warnings.push(format!(
                "{from} says something of {group} that this node cannot read"
            ));
            return self.lose_feed(group, effects);
        }
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return;
        };
        if number == 1
            && (followed.over + 1..=newest).contains(&subscription)
            && news.held >= self.merge.confirmed().epoch
        {
            followed.over = subscription;
            followed.asked.take_if(|(_, name, _)| *name <= subscription);
            followed.early.clear();
            let before = followed.through.replace((from, subscription, 1));
            if let Some((before, ..)) = before.filter(|&(before, ..)| before != from) {
                self.send(before, &Frame::Unfollow { partition: group }, effects);
            }
        }
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return;
        };
        let next = match followed.through {
            Some((through, name, next)) if (through, name) == (from, subscription) => next,
            _ => return,
        };
        if number > next {
            if followed.early.is_empty() {
                followed.early_since = now;
            }
            followed.early.insert(number, news);
            if followed.early.len() > EARLY_MAX {
                self.lose_feed(group, effects);
            }
            return;
        }
        if number < next && !is_active(Mutant::FeedOutOfTurn) {
            return;
        }
        self.take_news(group, number.max(next), news, effects);
        while let Some(followed) = self.feeds.followed.get_mut(&group)
            && let Some((.., next)) = followed.through
            && let Some(news) = followed.early.remove(&next)
        {
            followed.early_since = now;
            self.take_news(group, next, news, effects);
        }
    }

    /// A part has come, perhaps the last one that was missing. False if the whole cannot be read.
    fn part_came(
        &mut self,
        from: NodeId,
        group: PartitionId,
        part: Part,
        effects: &mut ClusterEffects,
    ) -> bool {
        let Part {
            item,
            number,
            total,
            offset,
            bytes,
        } = part;
        let key = (group, from, number);
        let known = self
            .feeds
            .assemblies
            .entry(key)
            .or_insert_with(|| Assembly {
                parts: BTreeMap::new(),
                left: total,
                news_tick: 0,
            });
        known.news_tick = self.ticks;
        let length = bytes.len() as u64;
        if known.parts.insert(offset, bytes).is_none() {
            known.left = known.left.saturating_sub(length);
        }
        if known.left > 0 {
            return true;
        }
        let Some(Assembly { parts, .. }) = self.feeds.assemblies.remove(&key) else {
            return true;
        };
        let mut whole = Vec::new();
        for (offset, bytes) in parts {
            if offset != whole.len() as u64 {
                return false;
            }
            whole.extend_from_slice(&bytes);
        }
        match item {
            Item::Answer => {
                let Some(answered) = decode_answered(&whole) else {
                    return false;
                };
                if self.feeds.unanswered.remove(&answered.id).is_some() {
                    effects.answered.push(answered);
                }
                true
            }
            Item::Message(to) => self.hear(group, to, &whole, effects),
        }
    }

    /// A partition hears something of another one. False if it cannot be read.
    fn hear(
        &self,
        from: PartitionId,
        to: PartitionId,
        message: &[u8],
        effects: &mut ClusterEffects,
    ) -> bool {
        let Some(message) = Message::decode(message) else {
            return false;
        };
        if let Some(engine) = self.engine(to) {
            engine.receive(from, message);
            effects.delivered = true;
        }
        true
    }

    /// Takes the next news of a group that this node follows.
    fn take_news(
        &mut self,
        group: PartitionId,
        number: u64,
        news: News,
        effects: &mut ClusterEffects,
    ) {
        let now = self.ticks;
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return;
        };
        let Some((from, _, next)) = &mut followed.through else {
            return;
        };
        *next = number + 1;
        let from = *from;
        followed.heard_tick = now;
        if !news.batches.is_empty() {
            followed.news_tick = now;
        }
        for answered in news.answers {
            if self.feeds.unanswered.remove(&answered.id).is_some() {
                effects.answered.push(answered);
            }
        }
        self.leader_is(group, news.leader);
        let boot = self.boot;
        for fed in news.batches {
            let epoch = fed.epoch;
            if epoch <= self.merge.confirmed().epoch {
                continue;
            }
            let batch = GroupBatch::decode(&fed.part, &self.registry);
            let Some(batch) = batch
                .ok()
                .filter(|batch| batch.epoch == epoch && epoch.0 <= self.merge.held(group).0 + 1)
            else {
                // Behind something that this node does not know, or not to be read: it begins anew.
                effects.warnings.push(format!(
                    "{from} tells of epoch {} of {group}, which this node cannot use",
                    epoch.0
                ));
                return self.lose_feed(group, effects);
            };
            let held = Held {
                epoch,
                index: fed.index,
                term: fed.term,
                digest: fed.digest,
                bytes: fed.bytes,
                batch: Content::Read(Arc::new(batch)),
                noted: (boot, fed.noted),
            };
            match self.merge.told(group, held) {
                Ok(None) => {}
                Ok(Some(retraction)) => self.retract(group, &retraction, effects),
                Err(_) => {
                    effects.warnings.push(format!(
                        "{from} has another epoch {} of {group} than was agreed on: it is not followed",
                        epoch.0
                    ));
                    return self.lose_feed(group, effects);
                }
            }
        }
        self.merge.agreed(group, news.agreed);
    }

    /// What this node hears of a group is not whole: it asks anew.
    fn lose_feed(&mut self, group: PartitionId, effects: &mut ClusterEffects) {
        if let Some(followed) = self.feeds.followed.get_mut(&group) {
            followed.through = None;
            followed.early.clear();
        }
        self.look_at_feeds(effects);
    }

    /// Sees to it that this node follows every group that it has no part in.
    pub(super) fn look_at_feeds(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        let now = self.ticks;
        let me = self.options.me;
        let zone = map.nodes.get(&me).map(|entry| entry.zone);
        let old = now.saturating_sub(PARTS_TICKS);
        let assemblies = &mut self.feeds.assemblies;
        assemblies.retain(|_, assembly| assembly.news_tick >= old);
        let silent = self.feeds.followers.keys().map(|&(_, node)| node);
        let silent: BTreeSet<NodeId> = silent.filter(|&node| !self.is_live(node)).collect();
        self.feeds
            .followers
            .retain(|(_, node), _| !silent.contains(node));
        for group in map.partition_ids() {
            if self.groups.contains_key(&group) {
                self.feeds.followed.remove(&group);
                continue;
            }
            let replicas = &map.partition(group).replicas;
            let neighbour = zone.and_then(|zone| replicas.get(&zone)).copied();
            let neighbour = neighbour.filter(|&node| self.is_live(node));
            let is_missed = self.merge.held(group) < self.merge.newest();
            let known = self.feeds.followed.get_mut(&group);
            let (through, asked, heard_tick, retell) =
                known.map_or((None, None, now, false), |known| {
                    if !is_missed {
                        known.news_tick = now;
                    }
                    if !known.early.is_empty() && now >= known.early_since + EARLY_TICKS {
                        // What they wait for is lost.
                        known.through = None;
                        known.early.clear();
                    }
                    let heard_tick = known.heard_tick.min(known.news_tick);
                    (known.through, known.asked, heard_tick, known.retell)
                });
            let is_heard = through
                .is_some_and(|(node, ..)| self.is_live(node) && now < heard_tick + PATIENCE_TICKS);
            let waits = asked.is_some_and(|(_, _, tick)| now < tick + PATIENCE_TICKS);
            let through = through.map(|(node, ..)| node);
            let better = neighbour
                .filter(|&node| Some(node) != through && now.is_multiple_of(NEIGHBOUR_TICKS));
            if waits || is_heard && better.is_none() && !retell {
                continue;
            }
            // Whoever was asked in vain, or has fallen silent, is asked again last.
            let tried = [asked.map(|(node, ..)| node), through.filter(|_| !is_heard)];
            let leader = self.leader(group).into_iter();
            let all = neighbour
                .into_iter()
                .chain(leader)
                .chain(replicas.values().copied());
            let able: Vec<NodeId> = all
                .filter(|&node| node != me && self.is_live(node))
                .collect();
            let fresh = able.iter().find(|&&node| !tried.contains(&Some(node)));
            let Some(&node) = better.as_ref().or(fresh).or(able.first()) else {
                continue;
            };
            self.feeds.subscriptions += 1;
            let subscription = self.feeds.subscriptions;
            let followed = self.feeds.followed.entry(group).or_insert(Followed {
                over: subscription - 1,
                ..Followed::default()
            });
            followed.asked = Some((node, subscription, now));
            followed.retell = false;
            followed.news_tick = now;
            let frame = Frame::Follow {
                partition: group,
                subscription,
                boot: self.boot,
                after: self.merge.confirmed().epoch,
                waits: self.feeds.waiting(group),
                kept: self.engines().map(|(partition, _)| partition).collect(),
                settled: self.settled(),
                heard: self.heard_of(group),
            };
            self.send(node, &frame, effects);
        }
    }

    /// Whether this node hears of every group that it has no part in.
    pub(super) fn hears_all(&self) -> bool {
        let has_source = |group: PartitionId| {
            let followed = self.feeds.followed.get(&group);
            followed.is_some_and(|followed| {
                let heard = self.ticks < followed.heard_tick + PATIENCE_TICKS;
                followed.through.is_some() && heard
            })
        };
        let mut groups = self.map().partition_ids();
        groups.all(|group| self.groups.contains_key(&group) || has_source(group))
    }
}
