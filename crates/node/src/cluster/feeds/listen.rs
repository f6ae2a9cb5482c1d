//! The side that follows: through whom, and what becomes of the news.

use super::parts::{Item, Part};
use super::{Answered, News};
use crate::cluster::frames::{Frame, decode_answered};
use crate::cluster::machine::{ClusterEffects, ClusterNode};
use crate::cluster::shape::BadFrame;
use execute::siblings::Message;
use order::GroupBatch;
use order::merge::{Content, Held};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::mutant::{Mutant, is_active};
use txn::{NodeId, PartitionId};

/// One that has not heard of a group for so many ticks follows it through another node.
const PATIENCE_TICKS: u64 = 12;
/// So many ticks a frame waits for those before it, and so many frames: as many as a window of small parts
/// has.
const EARLY_TICKS: u64 = 4;
const EARLY_MAX: usize = 4096;
/// A node that does not follow its neighbour looks every so many ticks whether it can.
const NEIGHBOUR_TICKS: u64 = 40;

/// A group that this node follows.
#[derive(Clone, Debug, Default)]
pub(super) struct Followed {
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
    pub fn after(over: u64) -> Followed {
        Followed { over, ..Followed::default() }
    }

    /// What a node has sent may be lost.
    pub fn lost(&mut self, node: NodeId) {
        self.through.take_if(|(through, ..)| *through == node);
        self.asked.take_if(|(asked, ..)| *asked == node);
    }

    /// What it was told of transactions has gone.
    pub fn retell(&mut self) {
        self.retell = true;
    }
}

fn unreadable(group: PartitionId) -> BadFrame {
    BadFrame(format!("it says something of {group} that this node cannot read"))
}

impl ClusterNode {
    /// News of a group that this node follows.
    pub(in crate::cluster) fn fed(
        &mut self,
        from: NodeId,
        group: PartitionId,
        subscription: u64,
        number: u64,
        mut news: News,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let now = self.ticks;
        let newest = self.feeds.subscriptions;
        if !self.feeds.followed.contains_key(&group) {
            self.stop_following(from, group, subscription, effects);
            return Ok(());
        }
        let is_told_something = !news.messages.is_empty() || news.part.is_some();
        // These and outcomes may come in any order, and from anybody: only what is lost matters, and that is
        // what subscriptions see to. Over a slow link they would come too late for theirs again and again.
        for answered in news.answers.drain(..) {
            self.answer_came(answered, effects);
        }
        for (to, message) in news.messages.drain(..) {
            if !self.hear(group, to, &message, effects) {
                self.lose_feed(group);
                return Err(unreadable(group));
            }
        }
        if let Some(part) = news.part.take()
            && !self.part_came(from, group, part, effects)
        {
            self.lose_feed(group);
            return Err(unreadable(group));
        }
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return Ok(());
        };
        if number == 1
            && (followed.over + 1..=newest).contains(&subscription)
            && news.held >= self.merge.confirmed().epoch
        {
            followed.over = subscription;
            followed.asked.take_if(|(_, name, _)| *name <= subscription);
            followed.early.clear();
            let before = followed.through.replace((from, subscription, 1));
            if let Some((before, name, _)) = before.filter(|&(before, ..)| before != from) {
                self.stop_following(before, group, name, effects);
            }
        }
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return Ok(());
        };
        let next = match followed.through {
            Some((through, name, next)) if (through, name) == (from, subscription) => next,
            // It does not know that another is followed now, under a later name. As long as none is, what it
            // still has to say to this node's partitions is of use.
            Some((through, ..)) if through != from && subscription <= followed.over => {
                self.stop_following(from, group, subscription, effects);
                return Ok(());
            }
            _ => return Ok(()),
        };
        if is_told_something {
            // Batches have to wait while that takes the room on the link.
            followed.news_tick = now;
        }
        if number > next {
            if followed.early.is_empty() {
                followed.early_since = now;
            }
            followed.early.insert(number, news);
            let bytes = followed.early.values().flat_map(|news| &news.batches);
            let bytes: u64 = bytes.map(|fed| fed.part.len() as u64).sum();
            if followed.early.len() > EARLY_MAX || bytes > 2 * self.options.feed_window_bytes {
                self.lose_feed(group);
            }
            return Ok(());
        }
        if number < next && !is_active(Mutant::FeedOutOfTurn) {
            return Ok(());
        }
        self.take_news(group, number.max(next), news, effects)?;
        while let Some(followed) = self.feeds.followed.get_mut(&group)
            && let Some((.., next)) = followed.through
            && let Some(news) = followed.early.remove(&next)
        {
            followed.early_since = now;
            self.take_news(group, next, news, effects)?;
        }
        Ok(())
    }

    /// A node is to tell nothing more under a subscription.
    fn stop_following(
        &mut self,
        through: NodeId,
        group: PartitionId,
        subscription: u64,
        effects: &mut ClusterEffects,
    ) {
        let frame = Frame::Unfollow { partition: group, subscription };
        self.send(through, &frame, effects);
    }

    /// It is heard how a request ended.
    fn answer_came(&mut self, answered: Answered, effects: &mut ClusterEffects) {
        if self.feeds.unanswered.remove(&answered.id).is_some() {
            effects.answered.push(answered);
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
        let item = part.item;
        // As what waits for frames before it.
        let bytes_max = 2 * self.options.feed_window_bytes;
        let assemblies = &mut self.feeds.assemblies;
        let Some(taken) = assemblies.take(group, from, part, bytes_max, self.ticks) else {
            return false;
        };
        if taken.lost {
            self.lose_feed(group);
        }
        let Some(whole) = taken.whole else {
            return true;
        };
        match item {
            Item::Answer => {
                let Some(answered) = decode_answered(&whole) else {
                    return false;
                };
                self.answer_came(answered, effects);
                true
            }
            Item::Message(to) => self.hear(group, to, &whole, effects),
        }
    }

    /// A partition hears something of another one. False if it cannot be read.
    fn hear(&self, from: PartitionId, to: PartitionId, message: &[u8], effects: &mut ClusterEffects) -> bool {
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
    ) -> Result<(), BadFrame> {
        let now = self.ticks;
        let Some(followed) = self.feeds.followed.get_mut(&group) else {
            return Ok(());
        };
        let Some((from, _, next)) = &mut followed.through else {
            return Ok(());
        };
        *next = number + 1;
        let from = *from;
        followed.heard_tick = now;
        if !news.batches.is_empty() {
            followed.news_tick = now;
        }
        self.leaders.learn(group, news.leader);
        let boot = self.boot;
        for fed in news.batches {
            let epoch = fed.epoch;
            if epoch <= self.merge.confirmed().epoch {
                continue;
            }
            let batch = GroupBatch::decode(&fed.part, &self.registry);
            let Some(batch) =
                batch.ok().filter(|batch| batch.epoch == epoch && epoch.0 <= self.merge.held(group).0 + 1)
            else {
                // Behind something that this node does not know, or not to be read: it begins anew.
                effects.warnings.push(format!(
                    "{from} tells of epoch {} of {group}, which this node cannot use",
                    epoch.0
                ));
                self.lose_feed(group);
                return Ok(());
            };
            if let Err(why) = batch.check(group, self.map().partitions.len() as u16) {
                self.lose_feed(group);
                return Err(why.into());
            }
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
                    self.lose_feed(group);
                    return Ok(());
                }
            }
        }
        // More than it has told nobody can say to be agreed.
        self.merge.agreed(group, news.agreed.min(self.merge.last_index(group)));
        Ok(())
    }

    /// What this node hears of a group is not whole: it asks anew with the next tick. (Not at once: what
    /// comes then may be no better.)
    fn lose_feed(&mut self, group: PartitionId) {
        if let Some(followed) = self.feeds.followed.get_mut(&group) {
            followed.through = None;
            followed.early.clear();
        }
    }

    /// Sees to it that this node follows every group that it has no part in.
    pub(in crate::cluster) fn look_at_feeds(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        let now = self.ticks;
        let me = self.options.me;
        let zone = map.nodes.get(&me).map(|entry| entry.zone);
        self.feeds.assemblies.give_up(now);
        let silent = self.feeds.followers.keys().map(|&(_, node)| node);
        let silent: BTreeSet<NodeId> = silent.filter(|&node| !self.is_live(node)).collect();
        self.feeds.followers.retain(|(_, node), _| !silent.contains(node));
        let doubtful = self.feeds.doubtful(now);
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
            let (through, asked, heard_tick, retell) = known.map_or((None, None, now, false), |known| {
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
            let is_heard =
                through.is_some_and(|(node, ..)| self.is_live(node) && now < heard_tick + PATIENCE_TICKS);
            let waits = asked.is_some_and(|(_, _, tick)| now < tick + PATIENCE_TICKS);
            let through = through.map(|(node, ..)| node);
            let better =
                neighbour.filter(|&node| Some(node) != through && now.is_multiple_of(NEIGHBOUR_TICKS));
            let doubt = doubtful.get(&group);
            if waits || is_heard && better.is_none() && !retell && doubt.is_none() {
                continue;
            }
            let leader = self.leader(group).into_iter();
            // This node's own map may be of a time when others kept it, who have given it away.
            let newest = &self.newest_map().partition(group).replicas;
            let all = neighbour
                .into_iter()
                .chain(leader)
                .chain(replicas.values().copied())
                .chain(newest.values().copied());
            let mut able: Vec<NodeId> = Vec::new();
            for node in all.filter(|&node| node != me && self.is_live(node)) {
                if !able.contains(&node) {
                    able.push(node);
                }
            }
            // In turn, behind whoever was asked in vain. Whoever has fallen silent, or does not say how a
            // request ended, is asked if there is nobody else.
            let vain = through.filter(|_| !is_heard || doubt.is_some());
            if able.iter().any(|&node| Some(node) != vain) {
                able.retain(|&node| Some(node) != vain);
            }
            let last = asked.map(|(node, ..)| node);
            let turn = able.iter().position(|&node| Some(node) == last);
            let next = match doubt {
                Some(&times) => times as usize,
                None => turn.map_or(0, |turn| turn + 1),
            };
            let in_turn = able.get(next % able.len().max(1));
            let better = better.as_ref().filter(|_| doubt.is_none());
            let Some(&node) = better.or(in_turn) else {
                continue;
            };
            self.feeds.subscriptions += 1;
            let subscription = self.feeds.subscriptions;
            let followed = self.feeds.followed.entry(group);
            let followed = followed.or_insert_with(|| Followed::after(subscription - 1));
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
    pub(in crate::cluster) fn hears_all(&self) -> bool {
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
