//! The side that is followed: what each follower is told, and when.

use super::parts::{Item, Large, Part};
use super::{Answered, Fed, Recent, Wish};
use crate::cluster::frames::{Frame, encode_answered};
use crate::cluster::machine::{ClusterEffects, ClusterNode};
use crate::cluster::shape;
use crate::session;
use bytes::Bytes;
use execute::siblings::{Sent, Twins};
use order::{GroupBatch, merge::Held};
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::Ordering;
use txn::mutant::{Mutant, is_active};
use txn::{BootId, Epoch, NodeId, PartitionId};

/// A frame with at least this share of what may be on its way counts as on its way.
const HEAVY: u64 = 1 << 10;
/// About how many bytes of batches go into one frame, of outcomes, and of messages, if as many may be on
/// their way.
const FRAME_BYTES_MAX: u64 = 1 << 20;
/// A follower hears of every group at least once in so many ticks.
const FEED_TICKS: u64 = 4;

/// A node that follows a group through this one.
#[derive(Clone, Debug)]
pub(super) struct Follower {
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
    unheard: Unheard,
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

impl Follower {
    /// The group's log has other batches behind this epoch than it had.
    pub fn rewind(&mut self, to: Epoch) {
        if self.told > to && !is_active(Mutant::FeedWithoutRewind) {
            self.told = to;
            self.index = 0;
        }
    }

    /// It has heard a frame of a subscription.
    pub fn heard(&mut self, subscription: u64, number: u64) {
        if self.subscription == subscription {
            self.unheard.heard(number);
        }
    }

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

    fn part(&mut self, item: Item, whole: Bytes, number: &mut u64) {
        *number += 1;
        self.large.push_back(Large::new(item, *number, whole));
    }

    /// The part that goes into the next frame.
    fn next_part(&mut self, part_bytes: usize) -> Option<Part> {
        let large = self.large.front_mut()?;
        let part = large.next(part_bytes);
        if large.is_sent() {
            self.large.pop_front();
        }
        Some(part)
    }

    /// Whether something waits to be told that takes room.
    fn has_more(&self) -> bool {
        !self.answers.is_empty() || !self.messages.is_empty() || !self.large.is_empty()
    }

    /// The answers that go into the next frame.
    fn next_answers(&mut self, bytes_max: u64) -> Vec<Answered> {
        let mut bytes = 0;
        let fits = self.answers.iter().take_while(|answered| {
            let has_room = bytes < bytes_max;
            bytes += answered.bytes() as u64;
            has_room
        });
        let count = fits.count();
        self.answers.drain(..count).collect()
    }

    /// The messages that go into the next frame.
    fn next_messages(&mut self, bytes_max: u64) -> Vec<(PartitionId, Bytes)> {
        let mut bytes = 0;
        let fits = self.messages.iter().take_while(|(_, message)| {
            let has_room = bytes < bytes_max;
            bytes += message.len() as u64;
            has_room
        });
        let count = fits.count();
        self.messages.drain(..count).collect()
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
            self.feeds.remember(Recent { node, confirmed, answered });
        }
        self.feed(effects);
    }

    /// Local partitions have something to say to others.
    pub fn say(&mut self, sent: impl IntoIterator<Item = Sent>, now_ms: u64, effects: &mut ClusterEffects) {
        self.now_ms = now_ms;
        if self.is_stopped() {
            return;
        }
        let mut told: BTreeSet<(PartitionId, NodeId)> = BTreeSet::new();
        for Sent { from, to, message } in sent {
            let notes = message.notes() as u64;
            let part_bytes = self.options.feed_part_bytes;
            let pieces = message.encode_in_pieces(part_bytes);
            let pieces: Vec<Bytes> = pieces.into_iter().map(Bytes::from).collect();
            // It stays in memory as long as the log that makes it: until the next checkpoint.
            let bytes = pieces.iter().map(|piece| piece.len() as u64);
            self.checkpoints.note_bytes(bytes.sum());
            let mut large = self.feeds.large;
            let followers = self.feeds.of_group(from);
            let mut notes_said = 0;
            for (place, follower) in followers.filter(|(_, follower)| follower.kept.contains(&to)) {
                told.insert(*place);
                notes_said += notes;
                for piece in &pieces {
                    follower.say(to, piece.clone(), part_bytes, &mut large);
                }
            }
            self.feeds.large = large;
            self.feeds.said.notes += notes_said;
        }
        self.feeds.said.rounds += told.len() as u64;
        self.feed(effects);
    }

    /// A node wants to follow a group through this one.
    pub(in crate::cluster) fn follow(
        &mut self,
        from: NodeId,
        group: PartitionId,
        wish: Wish,
        effects: &mut ClusterEffects,
    ) {
        let Wish { subscription, boot, after, waits, kept, settled, heard } = wish;
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
            unheard: Unheard::default(),
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

    /// A subscription is over.
    pub(in crate::cluster) fn unfollow(&mut self, from: NodeId, group: PartitionId, subscription: u64) {
        let known = self.feeds.followers.get(&(group, from));
        if known.is_some_and(|known| known.subscription == subscription) {
            self.feeds.followers.remove(&(group, from));
        }
    }

    /// Tells followers what is new.
    pub(in crate::cluster) fn feed(&mut self, effects: &mut ClusterEffects) {
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
        let has_twins = followers.values().any(|follower| self.is_twin(&follower.kept));
        self.feeds.twins.store(has_twins, Ordering::SeqCst);
        self.feeds.followers = followers;
    }

    /// Whether a node that keeps these partitions keeps one that this node keeps too.
    fn is_twin(&self, kept: &[PartitionId]) -> bool {
        kept.iter().any(|&partition| self.engine(partition).is_some())
    }

    /// Whether what local partitions say to each other is for other nodes too.
    pub fn twins(&self) -> &Twins {
        &self.feeds.twins
    }

    /// Sends one frame, if there is anything to say. Whether there is more; `None` if the follower needs what
    /// is gone.
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
        let has_room = follower.unheard.has_room(window_bytes);
        let bytes_max = FRAME_BYTES_MAX.min(window_bytes.max(1));
        if !has_room {
            // It is told of what it lacks when it has heard what is on its way.
        } else if follower.told >= self.merge.confirmed().epoch {
            for held in self.merge.held_behind(group, follower.told) {
                if bytes >= bytes_max {
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
                if bytes >= bytes_max {
                    break;
                }
                let entry = self.groups.get(&group)?.entry(index)?;
                // It was read before, and is in the order.
                let Ok(Some(held)) = shape::held(&entry) else {
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
        let leader = self.leaders.of(group);
        let is_late = self.ticks >= follower.told_tick + FEED_TICKS;
        let has_news =
            agreed > follower.agreed || leader != follower.leader || has_room && follower.has_more();
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
            answers = follower.next_answers(bytes_max);
            messages = follower.next_messages(bytes_max);
            part = follower.next_part(self.options.feed_part_bytes);
        }
        let answered = answers.iter().map(|answered| answered.bytes() as u64);
        let said = messages.iter().map(|(_, message)| message.len() as u64);
        let parted = part.iter().map(|part| part.bytes.len() as u64);
        bytes += answered.chain(said).chain(parted).sum::<u64>();
        let says = |part: &Part| matches!(part.item, Item::Message(_));
        if !messages.is_empty() || part.as_ref().is_some_and(says) {
            self.feeds.said.frames += 1;
        }
        if bytes * HEAVY >= window_bytes {
            follower.unheard.sent(follower.number, bytes);
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
        Some(follower.unheard.has_room(window_bytes) && (has_more || follower.has_more()))
    }

    /// The index of the first batch behind what a follower was told, which is confirmed here. `None` if it is
    /// gone.
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
}
