//! Frames of other nodes: which part takes what.

use super::{BEGUN_AHEAD_MAX, ClusterEffects, ClusterNode};
use crate::cluster::feeds::{News, Place, Wish};
use crate::cluster::frames::Frame;
use crate::cluster::levels::TELLS_MORE;
use crate::cluster::shape::{BadFrame, batches_of, check_frame, read_batch, read_batches};
use agree::Input;
use bytes::Bytes;
use order::merge::Held;
use std::sync::Arc;
use txn::{Epoch, NodeId, PartitionId};

impl ClusterNode {
    pub(super) fn send(&self, to: NodeId, frame: &Frame, effects: &mut ClusterEffects) {
        let wall_ms = self.clock.wall_ms(self.now_ms);
        effects.host.frames.push((to, frame.encode(wall_ms)));
    }

    /// Takes a frame, or drops the link of the node that sent it.
    pub(super) fn frame(&mut self, from: NodeId, bytes: &Bytes, effects: &mut ClusterEffects) {
        if let Err(BadFrame(why)) = self.take_frame(from, bytes, effects) {
            effects.host.severed.push((from, why));
        }
    }

    fn take_frame(
        &mut self,
        from: NodeId,
        bytes: &Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let (wall_ms, frame) = Frame::decode(bytes, &self.registry)?;
        check_frame(&frame, self.map())?;
        self.peers.heard(from, wall_ms, self.now_ms, self.ticks);
        let is_about_nodes =
            matches!(frame, Frame::Clock { .. } | Frame::Condition(_) | Frame::MapWanted | Frame::Map(_));
        if self.is_mute() && !is_about_nodes {
            return Ok(());
        }
        match frame {
            Frame::Consensus { .. } if !self.bootstrap.takes_part() => {}
            Frame::Consensus { partition, message } => {
                self.group_hears(from, partition, message, effects)?;
            }
            Frame::Submit { partition, submissions } => self.submitted(from, partition, submissions, effects),
            Frame::Expect { partition, boot, sequence } => {
                if boot == self.boot {
                    self.gateway.expected(partition, sequence);
                }
            }
            Frame::Elsewhere { partition, leader } => {
                if self.leader(partition) == Some(from)
                    && !self.groups.contains_key(&partition)
                    && self.leaders.redirects(partition, self.ticks)
                {
                    self.leaders.learn(partition, leader.map(|leader| (leader, 0)));
                }
            }
            Frame::Behind { partition, epoch } => self.fall_behind(from, partition, epoch),
            Frame::Fetch(piece) => self.wanted_by(from, piece, effects),
            Frame::Piece { piece, total, base, bytes } => {
                self.piece_came(from, piece, total, base, bytes, effects)?
            }
            Frame::Newest(epoch) => self.newest_is(from, epoch),
            Frame::Begun(epoch) => self.hear_begun(epoch),
            Frame::Change(control) => self.take_change(control),
            Frame::Follow { partition, subscription, boot, after, waits, kept, settled, heard } => {
                let wish = Wish { subscription, boot, after, waits, kept, settled, heard };
                self.follow(from, partition, wish, effects);
            }
            Frame::Unfollow { partition, subscription } => {
                self.followers.unfollow(partition, from, subscription);
            }
            Frame::Feed {
                partition,
                subscription,
                number,
                batches,
                held,
                agreed,
                leader,
                answers,
                messages,
                part,
                asks,
            } => {
                if asks {
                    let source = self.map().nodes.get(&from);
                    let knows_it = source.is_some_and(|source| source.level >= TELLS_MORE);
                    let is_full = knows_it && self.refuses_batches(partition, effects);
                    let heard = Frame::Heard { partition, subscription, number, is_full };
                    self.send(from, &heard, effects);
                }
                let news = News { batches, held, agreed, leader, answers, messages, part };
                let place = Place { group: partition, from, subscription, number };
                self.fed_by(place, news, effects)?;
            }
            Frame::Heard { partition, subscription, number, is_full } => {
                self.followers.heard(partition, from, subscription, number, is_full);
            }
            Frame::Clock { standing, checkpoint, hears_all, map_version } => {
                self.checkpoints.heard(from, checkpoint);
                self.peers.says(from, hears_all);
                self.peers.tells_clock(from);
                if map_version > self.newest_map().version {
                    self.send(from, &Frame::MapWanted, effects);
                }
                if let Some(standing) = standing {
                    self.heard(from, standing, effects)?;
                }
            }
            Frame::Condition(condition) => self.peers.is_in(from, condition),
            Frame::Time(epoch_ms) => self.peers.tells_time(from, epoch_ms, self.now_ms),
            Frame::MapWanted => {
                let map = Frame::Map(Box::new((**self.map()).clone()));
                self.send(from, &map, effects);
            }
            Frame::Map(map) => {
                if map.version > self.newest_map().version {
                    self.known = Arc::from(map);
                    effects.known = Some(self.known.clone());
                }
            }
            Frame::Followed { partition, version } => self.membership.followed(partition, version),
            Frame::Left { partition, version } => self.told_to_leave(from, partition, version, effects),
            Frame::Belongs { partition } => {
                self.is_stranger(from, partition, effects);
            }
            Frame::States(reports) => self.hear_states(from, &reports, effects),
            Frame::Wish { partition, to, left_ms } => {
                self.wished(partition, to, left_ms / self.options.tick_ms.max(1))
            }
        }
        Ok(())
    }

    /// A group's replica here gets a message of another one.
    fn group_hears(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        message: Bytes,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        let Some(group) = self.groups.get(&partition) else {
            return Ok(());
        };
        let examined = group.examine(from, &message)?;
        if examined.asks_for_vote && self.is_stranger(from, partition, effects) {
            return Ok(());
        }
        let brings = examined.is_append || examined.ahead.is_some() || !examined.loose.is_empty();
        if brings && self.refuses_batches(partition, effects) {
            // As if it were lost: it is sent again.
            return Ok(());
        }
        let map = self.map().clone();
        if let Some(first) = examined.appends.first() {
            let logged = self.merge.epoch_at(partition, first.index.saturating_sub(1));
            let epoch = Epoch(logged.0 + examined.known as u64);
            let batches = batches_of(&examined.appends).skip(examined.known);
            self.read_ahead = read_batches(partition, batches, epoch, &map, &self.registry)?;
        } else if let Some(ahead) = &examined.ahead {
            let epoch = Epoch(self.merge.logged(partition).0 + ahead.stays as u64);
            let batches = ahead.batches.iter().map(|data| (Held::AHEAD, data));
            self.read_ahead = read_batches(partition, batches, epoch, &map, &self.registry)?;
        }
        for data in &examined.loose {
            // The batch's epoch is looked at when an entry names it.
            read_batch(partition, (Held::AHEAD, data), &map, &self.registry)?;
        }
        if brings {
            self.backlog.took(partition);
        }
        // What it refuses counts as lost.
        let _ = self.groups.handle(partition, Input::Message(message));
        // A leader must know its whole log before it takes anything.
        self.turns(effects);
        self.read_ahead.clear();
        Ok(())
    }

    /// Messages that waited for what they name are handled.
    pub(super) fn hear_waited(&mut self, effects: &mut ClusterEffects) {
        while let Some((from, partition, message)) = self.waited.pop_front() {
            if let Err(BadFrame(why)) = self.group_hears(from, partition, message, effects) {
                effects.host.severed.push((from, why));
            }
        }
    }

    /// Another node says that an epoch was begun. None can be far ahead of what some group has here: an epoch
    /// is confirmed only with the batches of all groups, and few are begun behind it.
    fn hear_begun(&mut self, epoch: Epoch) {
        let latest = Epoch(self.merge.newest().0 + BEGUN_AHEAD_MAX);
        self.begun = self.begun.max(epoch.min(latest));
    }
}
