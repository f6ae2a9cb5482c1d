//! Whether this node leads: when it stands for election, and when it hands over.

use super::{ClusterEffects, ClusterNode, DOUBT_TICKS, SILENCE_TICKS};
use crate::cluster::frames::Frame;
use order::consensus::{ELECTION_TICKS, Input};
use std::collections::BTreeSet;
use txn::{NodeId, PartitionId};

/// A leader that is late with its batch is told so after so many ticks: what was begun may not have reached it.
const BEGUN_TICKS: u64 = 2;

impl ClusterNode {
    /// Whether this node hears the leaders of all groups, and stays: then it can lead.
    pub(in crate::cluster) fn would_lead(&self) -> bool {
        let mut groups = self.map().partition_ids();
        !self.stopping
            && groups.all(|group| {
                let leader = self.leader(group);
                leader.is_some_and(|leader| self.is_live(leader))
            })
    }

    /// Groups wait for each other. Where two leaders do not hear each other, those who hear both pass on that an epoch was begun,
    /// and a leader that gets no further hands over to somebody who hears all.
    pub(super) fn look_for_progress(&mut self, effects: &mut ClusterEffects) {
        let confirmed = self.merge.confirmed().epoch;
        if self.progress.0 != confirmed || self.merge.newest() == confirmed {
            self.progress = (confirmed, self.ticks);
            return;
        }
        let stuck = self.ticks - self.progress.1;
        if stuck >= BEGUN_TICKS && stuck.is_multiple_of(BEGUN_TICKS) {
            let newest = self.merge.newest();
            let mut late: BTreeSet<NodeId> = BTreeSet::new();
            for (&group, &(leader, _)) in &self.leaders {
                if self.merge.held(group) < newest && leader != self.options.me {
                    late.insert(leader);
                }
            }
            for leader in late {
                self.send(leader, &Frame::Begun(newest), effects);
            }
        }
        if stuck < DOUBT_TICKS || !stuck.is_multiple_of(DOUBT_TICKS) || self.would_lead() {
            return;
        }
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            let members = self.groups[&partition].members();
            let mut others = members.voters.into_iter();
            let able = |node: &NodeId| self.is_live(*node) && self.peers.hears_all(*node);
            if let Some(to) = others.find(|node| *node != self.options.me && able(node)) {
                self.transfer(partition, to);
            }
        }
    }

    /// When a whole cluster starts, nobody has to be waited for: those who hear a majority stand for election in turn, and again
    /// while nobody leads, since each starts when it has read its own journal.
    pub(super) fn campaign(&mut self) {
        if self.ticks > ELECTION_TICKS || !self.bootstrap.takes_part() {
            return;
        }
        for (&partition, group) in &mut self.groups {
            let voters = group.members().voters;
            let Some(rank) = voters.iter().position(|&node| node == self.options.me) else {
                continue;
            };
            let since = self.ticks.saturating_sub(SILENCE_TICKS);
            let live = |node: &&NodeId| self.peers.is_live(**node, since);
            let heard = 1 + voters.iter().filter(live).count();
            let turn = (rank + usize::from(partition.0)) % voters.len();
            let since_turn = self.ticks.checked_sub(2 + 2 * turn as u64);
            let round_ticks = 2 * voters.len() as u64;
            let is_due = since_turn.is_some_and(|ticks| ticks.is_multiple_of(round_ticks));
            if is_due && heard > voters.len() / 2 && !self.leaders.contains_key(&partition) {
                // One that has heard a leader meanwhile stays as it is.
                let _ = group.handle(Input::Campaign);
                self.dirty.insert(partition);
            }
        }
    }

    /// A leader whose clock is ahead of a majority's hands over to one that is not.
    pub(super) fn look_at_clocks(&mut self) {
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            if self.ahead_ms(partition) <= self.options.clock_ahead_ms_max.cast_signed() {
                continue;
            }
            let me = self.options.me;
            let members = self.groups[&partition].members();
            let others = members.voters.iter().copied().filter(|&node| node != me);
            if let Some(to) = others.into_iter().find(|&node| self.is_live(node)) {
                self.transfer(partition, to);
            }
        }
    }

    /// How far this node's clock is ahead of those of a majority of a group, at most.
    pub(super) fn ahead_ms(&self, partition: PartitionId) -> i64 {
        let me = self.options.me;
        let voters = self.groups[&partition].members().voters;
        let others: Vec<NodeId> = voters.iter().copied().filter(|&node| node != me).collect();
        let mut ahead = self.peers.ahead_of(&others, self.silent_since());
        // A majority that this node is no member of is one of the others; whom it does not hear is not ahead of.
        let majority = voters.len() / 2 + 1;
        ahead.sort_by(|a, b| b.cmp(a));
        ahead.get(majority.saturating_sub(1)).copied().unwrap_or(0)
    }

    /// Whether another node's clock is near this one's, or behind: one that is ahead would hand over again what it got.
    pub(in crate::cluster) fn is_clock_right(&self, node: NodeId) -> bool {
        self.peers.is_ahead_ms(node) <= self.options.clock_ahead_ms_max.cast_signed() / 2
    }

    pub(in crate::cluster) fn transfer(&mut self, partition: PartitionId, to: NodeId) {
        if let Some(group) = self.groups.get_mut(&partition) {
            // One that does not lead has nothing to hand over.
            let _ = group.handle(Input::TransferLeader(to));
            self.dirty.insert(partition);
        }
    }

    /// Admits nothing more, and hands over what it leads.
    pub(super) fn stop(&mut self) {
        self.stopping = true;
        self.hand_over();
    }

    /// Hands over what this node leads, because it is about to end: without it, the others would notice only when nothing has
    /// been heard of it for a while, and nothing would be written until then.
    pub(super) fn hand_over(&mut self) {
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            if let Some(to) = self.successor(partition) {
                self.transfer(partition, to);
            }
        }
    }

    /// Who could lead a group in this node's place at once: of those who are heard, the one that has the most of its log.
    pub(super) fn successor(&self, partition: PartitionId) -> Option<NodeId> {
        let status = self.groups.get(&partition)?.status();
        let matched = |node: NodeId| {
            let found = status.matched.iter().find(|&&(other, _)| other == node);
            found.map_or(0, |&(_, matched)| matched)
        };
        let others = status.members.voters.iter().copied();
        others
            .filter(|&node| node != self.options.me && self.is_live(node))
            .max_by_key(|&node| matched(node))
    }

    /// Whether nobody waits for this node any more once it was told to stop. What others have on their way does not matter: under
    /// load there is always something.
    pub fn is_drained(&self) -> bool {
        self.gateway.load().0 == 0 && self.reads.count() == 0 && self.has_handed_over()
    }

    /// Whether others lead what this node has led, as far as there are others: then it may end without delaying anybody.
    pub fn has_handed_over(&self) -> bool {
        self.groups.keys().all(|&partition| {
            let leader = self.leader(partition);
            leader.is_some_and(|leader| leader != self.options.me)
                || self.successor(partition).is_none()
        })
    }
}
