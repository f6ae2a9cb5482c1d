//! Tells followers of groups, and takes what is told of others ([`crate::cluster::feeds`]).

use super::{ClusterEffects, ClusterNode};
use crate::cluster::feeds::{
    Answered, Fed, Follower, Item, News, Part, Pending, Place, Room, Saying, View, Wish,
};
use crate::cluster::frames::Frame;
use crate::cluster::levels::TELLS_MORE;
use crate::cluster::shape::{BadFrame, check_answer, held};
use crate::session;
use bytes::Bytes;
use execute::siblings::{Message, Sent, Twins};
use order::GroupBatch;
use order::merge::{Content, Held};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use txn::mutant::{Mutant, is_active};
use txn::{BootId, NodeId, PartitionId, Stop};

fn unreadable(group: PartitionId) -> BadFrame {
    BadFrame(format!("it says something of {group} that this node cannot read"))
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
        if self.is_stopped() || self.is_mute() {
            return;
        }
        let confirmed = self.merge.confirmed().epoch;
        let names_missing = self.map().level >= TELLS_MORE;
        for mut answered in answered {
            if let Err(Stop::Undeclared(missing)) = &mut answered.outcome {
                // An older build does not know that.
                missing.take_if(|_| !names_missing);
            }
            let (boot, _) = session::boot_and_port(answered.id.session);
            let node = self.map().node_of_boot(BootId(boot));
            if let Some(node) = node.filter(|&node| node != self.options.me) {
                self.followers.answer(node, confirmed, answered, self.ticks);
            }
        }
        self.feed(effects);
    }

    /// Local partitions have something to say to others.
    pub fn say(&mut self, sent: impl IntoIterator<Item = Sent>, now_ms: u64, effects: &mut ClusterEffects) {
        self.now_ms = now_ms;
        if self.is_stopped() || self.is_mute() {
            return;
        }
        let part_bytes = self.options.feed_part_bytes;
        let saying = |Sent { from, to, message }: Sent| {
            let notes = message.notes() as u64;
            let pieces = message.encode_in_pieces(part_bytes).into_iter().map(Bytes::from).collect();
            Saying { from, to, pieces, notes }
        };
        let said: Vec<Saying> = sent.into_iter().map(saying).collect();
        // It stays in memory as long as the log that makes it: until the next checkpoint.
        let bytes = said.iter().flat_map(|saying| &saying.pieces).map(|piece| piece.len() as u64);
        self.checkpoints.note_bytes(bytes.sum());
        self.followers.say(&said, self.ticks);
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
        // One who has less than the follower is no help.
        if !self.groups.contains_key(&group) || self.merge.logged(group) < wish.after {
            return;
        }
        if !self.followers.is_new(group, from, &wish) {
            return;
        }
        // What was read there its partitions will need, and can't have.
        if !wish.kept.is_empty() && wish.settled < self.forgotten {
            if self.checkpoints.newest() < self.forgotten {
                self.want_checkpoint();
            }
            return self.tell_behind(group, from, effects);
        }
        if let Some(engine) = self.siblings_of(group) {
            if self.is_twin(&wish.kept) {
                self.twins.store(true, Ordering::SeqCst);
            }
            for &partition in &wish.kept {
                engine.tell_again(partition, wish.settled, wish.heard);
            }
            // Whoever steps the engines next takes it from them.
            effects.delivered = true;
        }
        self.followers.follow(group, from, wish, self.ticks);
    }

    /// Tells followers what is new.
    pub(super) fn feed(&mut self, effects: &mut ClusterEffects) {
        let mut followers = self.followers.take();
        let mut frames = 0;
        followers.retain(|&(group, node), follower| {
            loop {
                match self.feed_one(group, node, follower, &mut frames, effects) {
                    Some(true) => {}
                    Some(false) => return !follower.is_over(),
                    None => return false,
                }
            }
        });
        let has_twins = followers.values().any(|follower| self.is_twin(follower.kept()));
        self.twins.store(has_twins, Ordering::SeqCst);
        self.followers.put_back(followers, frames);
    }

    /// Whether a node that keeps these partitions keeps one that this node keeps too.
    fn is_twin(&self, kept: &[PartitionId]) -> bool {
        kept.iter().any(|&partition| self.engine(partition).is_some())
    }

    /// Whether what local partitions say to each other is for other nodes too.
    pub fn twins(&self) -> &Twins {
        &self.twins
    }

    /// Sends one frame, if there is anything to say. Whether there is more; `None` if the follower needs what
    /// is gone.
    fn feed_one(
        &mut self,
        group: PartitionId,
        node: NodeId,
        follower: &mut Follower,
        frames: &mut u64,
        effects: &mut ClusterEffects,
    ) -> Option<bool> {
        let room = self.followers.room();
        let (batches, has_more) = match follower.takes_batches(room) {
            // It is told of what it lacks when it has heard what is on its way, and has room for it.
            false => (Vec::new(), false),
            true if follower.place().0 >= self.merge.confirmed().epoch => {
                self.unconfirmed_for(group, node, follower, room)
            }
            true => {
                let Some(batches) = self.confirmed_for(group, node, follower, room) else {
                    self.tell_behind(group, node, effects);
                    return None;
                };
                (batches, true)
            }
        };
        let agreed = self.merge.agreed_upto(group);
        let pending = Pending { batches, has_more, agreed, leader: self.leaders.of(group) };
        let Some(told) = follower.tell(pending, room, self.ticks) else {
            return Some(false);
        };
        *frames += u64::from(told.says());
        let has_more = told.has_more;
        let frame = Frame::Feed {
            partition: group,
            subscription: told.subscription,
            number: told.number,
            batches: told.batches,
            held: self.merge.logged(group),
            agreed: told.agreed,
            leader: told.leader,
            answers: told.answers,
            messages: told.messages,
            part: told.part,
            asks: told.asks,
        };
        self.send(node, &frame, effects);
        Some(has_more)
    }

    /// A batch, cut down to what a follower needs. `None` if this build cannot read it: that ends it when it
    /// is to be delivered.
    fn fed(&self, held: &Held, node: NodeId, follower: &Follower) -> Option<Fed> {
        let batch = held.batch.read(&self.registry).ok()?;
        let part = match is_active(Mutant::FeedByOwnMap) {
            true => batch.part_for(&self.map().kept_by(node).collect::<Vec<_>>()),
            false => batch.part_for(follower.kept()),
        };
        Some(Fed {
            epoch: held.epoch,
            index: held.index,
            term: held.term,
            digest: held.digest,
            bytes: held.bytes,
            noted: batch.last_of(follower.boot()),
            part: part.encode().into(),
        })
    }

    /// The next batches for a follower that has all that is confirmed, and whether there are more.
    fn unconfirmed_for(
        &self,
        group: PartitionId,
        node: NodeId,
        follower: &Follower,
        room: Room,
    ) -> (Vec<Fed>, bool) {
        let mut batches = Vec::new();
        let mut bytes = 0;
        for held in self.merge.logged_behind(group, follower.place().0) {
            if bytes >= room.frame_bytes() {
                return (batches, true);
            }
            bytes += held.bytes;
            let Some(fed) = self.fed(held, node, follower) else {
                break;
            };
            batches.push(fed);
        }
        (batches, false)
    }

    /// The next batches for a follower that lacks what is confirmed, which is only in the log. `None` if the
    /// log does not have it any more.
    fn confirmed_for(
        &self,
        group: PartitionId,
        node: NodeId,
        follower: &Follower,
        room: Room,
    ) -> Option<Vec<Fed>> {
        let mut batches = Vec::new();
        let mut bytes = 0;
        for index in self.index_behind(group, follower)?..=self.merge.group(group).1.0 {
            if bytes >= room.frame_bytes() {
                break;
            }
            let entry = self.groups.get(&group)?.entry(index)?;
            // It was read before, and is in the order.
            let Ok(Some(held)) = held(&entry) else {
                continue;
            };
            bytes += held.bytes;
            batches.extend(self.fed(&held, node, follower));
        }
        Some(batches)
    }

    /// The index of the first batch behind what a follower was told, which is confirmed here. `None` if it is
    /// gone.
    fn index_behind(&self, group: PartitionId, follower: &Follower) -> Option<u64> {
        let (told, index) = follower.place();
        if index > 0 {
            return Some(index + 1);
        }
        let log = self.groups.get(&group)?;
        let mut first = self.merge.group(group).1.0;
        while first > 0 {
            let entry = log.entry(first)?;
            match GroupBatch::epoch_of(&entry.data) {
                Some(epoch) if epoch <= told => break,
                Some(epoch) if epoch.0 == told.0 + 1 => return Some(first),
                _ => first -= 1,
            }
        }
        Some(first + 1)
    }

    /// News of a group that this node follows.
    pub(super) fn fed_by(
        &mut self,
        place: Place,
        mut news: News,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let Place { group, from, subscription, .. } = place;
        if !self.sources.follows(group) {
            self.unfollow(from, group, subscription, effects);
            return Ok(());
        }
        let is_told_something = !news.messages.is_empty() || news.part.is_some();
        // These and outcomes may come in any order, and from anybody: only what is lost matters, and that is
        // what subscriptions see to. Over a slow link they would come too late for theirs again and again.
        for answered in news.answers.drain(..) {
            self.answer_came(answered, effects);
        }
        let mut is_readable =
            news.messages.drain(..).all(|(to, message)| self.hear(group, to, &message, effects));
        if let Some(part) = news.part.take() {
            is_readable = is_readable && self.part_came(from, group, part, effects);
        }
        if !is_readable {
            self.sources.lose(group);
            return Err(unreadable(group));
        }
        let known = (self.merge.confirmed().epoch, self.merge.newest());
        let ends = self.sources.came(place, news, is_told_something, known, self.ticks);
        if let Some((node, name)) = ends {
            self.unfollow(node, group, name, effects);
        }
        while let Some((from, news)) = self.sources.next(group, self.ticks) {
            self.take_news(group, from, news, effects)?;
        }
        Ok(())
    }

    /// A node is to tell nothing more under a subscription.
    fn unfollow(&self, through: NodeId, group: PartitionId, subscription: u64, effects: &mut ClusterEffects) {
        let frame = Frame::Unfollow { partition: group, subscription };
        self.send(through, &frame, effects);
    }

    /// It is heard how a request ended.
    fn answer_came(&mut self, answered: Answered, effects: &mut ClusterEffects) {
        if self.sources.forget(answered.id) {
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
        let whole = match self.sources.part(group, from, part, self.ticks) {
            Err(_) => return false,
            Ok(None) => return true,
            Ok(Some(whole)) => whole,
        };
        match item {
            Item::Answer => {
                let answered = Answered::decode(&whole);
                let answered = answered.filter(|answered| check_answer(answered, self.map()).is_ok());
                let is_readable = answered.is_some();
                answered.into_iter().for_each(|answered| self.answer_came(answered, effects));
                is_readable
            }
            Item::Message(to) => self.hear(group, to, &whole, effects),
        }
    }

    /// A partition hears something of another one. False if it cannot be read.
    fn hear(&self, from: PartitionId, to: PartitionId, message: &[u8], effects: &mut ClusterEffects) -> bool {
        let Some(message) = Message::decode(message) else {
            return false;
        };
        if let Some(engine) = self.siblings_of(to) {
            engine.receive(from, message);
            effects.delivered = true;
        }
        true
    }

    /// Takes the next news of a group that this node follows.
    fn take_news(
        &mut self,
        group: PartitionId,
        from: NodeId,
        news: News,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
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
                self.sources.lose(group);
                return Ok(());
            };
            if let Err(why) = batch.check(group, self.map().partitions.len() as u16) {
                self.sources.lose(group);
                return Err(why.into());
            }
            let held = Held {
                epoch,
                index: fed.index,
                term: fed.term,
                digest: fed.digest,
                bytes: fed.bytes,
                batch: match self.waits_for_long(self.merge.held(group)) {
                    true => Content::Unread(fed.part),
                    false => Content::Read(Arc::new(batch)),
                },
                noted: (boot, fed.noted),
            };
            self.backlog.took(group);
            match self.merge.told(group, held) {
                Ok(None) => {}
                Ok(Some(retraction)) => self.retract(group, &retraction, effects),
                Err(_) => {
                    effects.warnings.push(format!(
                        "{from} has another epoch {} of {group} than was agreed on: it is not followed",
                        epoch.0
                    ));
                    self.sources.lose(group);
                    return Ok(());
                }
            }
        }
        // More than it has told nobody can say to be agreed.
        self.merge.agreed(group, news.agreed.min(self.merge.last_index(group)));
        Ok(())
    }

    /// Sees to it that this node follows every group that it has no part in.
    pub(super) fn look_at_feeds(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        let me = self.options.me;
        let zone = map.nodes.get(&me).map(|entry| entry.zone);
        self.sources.tick(self.ticks);
        let mut followers = std::mem::take(&mut self.followers);
        followers.keep_live(|node| self.is_live(node));
        self.followers = followers;
        let doubtful = self.sources.doubtful(self.ticks);
        for group in map.partition_ids() {
            if self.groups.contains_key(&group) {
                self.sources.keep(group);
                continue;
            }
            let replicas = &map.partition(group).replicas;
            let neighbour = zone.and_then(|zone| replicas.get(&zone)).copied();
            let neighbour = neighbour.filter(|&node| self.is_live(node));
            // This node's own map may be of a time when others kept it, who have given it away.
            let newest = &self.newest_map().partition(group).replicas;
            let all = neighbour
                .into_iter()
                .chain(self.leader(group))
                .chain(replicas.values().copied())
                .chain(newest.values().copied());
            let mut able: Vec<NodeId> = Vec::new();
            for node in all.filter(|&node| node != me && self.is_live(node)) {
                if !able.contains(&node) {
                    able.push(node);
                }
            }
            // A full node is told no batches, by nobody.
            let is_full = self.backlog.refuses(self.merge.agreed_epoch(group), self.merge.delivered().epoch);
            let view = View {
                neighbour,
                able,
                is_missed: !is_full && self.merge.held(group) < self.merge.newest(),
                doubt: doubtful.get(&group).copied(),
            };
            let mut sources = std::mem::take(&mut self.sources);
            let asks = sources.ask(group, &view, |node| self.is_live(node), self.ticks);
            self.sources = sources;
            let Some((node, subscription)) = asks else {
                continue;
            };
            let frame = Frame::Follow {
                partition: group,
                subscription,
                boot: self.boot,
                after: self.merge.confirmed().epoch,
                waits: self.sources.waiting(group),
                kept: self.engines().map(|(partition, _)| partition).collect(),
                settled: self.settled,
                heard: self.heard_of(group),
            };
            self.send(node, &frame, effects);
        }
    }

    /// Whether this node hears of every group that it has no part in.
    pub(super) fn hears_all(&self) -> bool {
        let mut groups = self.map().partition_ids();
        groups.all(|group| self.groups.contains_key(&group) || self.sources.hears(group, self.ticks))
    }
}
