//! Whether this node leads: when it stands for election, and when it hands over.

use super::{ClusterEffects, ClusterNode, SILENCE_TICKS};
use crate::cluster::feeds::DOUBT_TICKS;
use crate::cluster::frames::Frame;
use crate::cluster::peers::Condition;
use agree::{ELECTION_TICKS, Input};
use std::collections::BTreeSet;
use txn::{NodeId, PartitionId, Stop};

/// A leader that is late with its batch is told so after so many ticks: what was begun may not have reached
/// it.
const BEGUN_TICKS: u64 = 2;
/// A node that is about to end waits so long for others to take over, and for a majority that does not
/// answer.
const ENDING_MS: u64 = 500;

impl ClusterNode {
    /// Whether this node hears the leaders of all groups, and stays: then it can lead.
    pub(in crate::cluster) fn would_lead(&self) -> bool {
        let mut groups = self.map().partition_ids();
        self.ending_tick.is_none()
            && self.out.is_none()
            && !self.backlog.is_full()
            && groups.all(|group| {
                let leader = self.leader(group);
                leader.is_some_and(|leader| self.is_live(leader))
            })
    }

    /// Groups wait for each other. Where two leaders do not hear each other, those who hear both pass on that
    /// an epoch was begun, and a leader that gets no further hands over to somebody who hears all.
    pub(super) fn look_for_progress(&mut self, effects: &mut ClusterEffects) {
        if self.backlog.is_slow(self.now_ms) && self.ticks.is_multiple_of(DOUBT_TICKS) {
            self.hand_over();
        }
        let confirmed = self.merge.confirmed().epoch;
        if self.progress.0 != confirmed || self.merge.newest() == confirmed {
            self.progress = (confirmed, self.ticks);
            return;
        }
        let stuck = self.ticks - self.progress.1;
        if stuck >= BEGUN_TICKS && stuck.is_multiple_of(BEGUN_TICKS) {
            let newest = self.merge.newest();
            let mut late: BTreeSet<NodeId> = BTreeSet::new();
            for (group, leader) in self.leaders.all() {
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
            let able = |node: &NodeId| self.may_lead(*node) && self.peers.hears_all(*node);
            if let Some(to) = others.find(|node| *node != self.options.me && able(node)) {
                self.transfer(partition, to);
            }
        }
    }

    /// When a whole cluster starts, nobody has to be waited for: those who hear a majority stand for election
    /// in turn, and again while nobody leads, since each starts when it has read its own journal.
    pub(super) fn campaign(&mut self) {
        if self.ticks > ELECTION_TICKS || !self.bootstrap.takes_part() {
            return;
        }
        let mut due = Vec::new();
        for (&partition, group) in &*self.groups {
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
            if is_due && heard > voters.len() / 2 && self.leader(partition).is_none() {
                due.push(partition);
            }
        }
        for partition in due {
            // One that has heard a leader meanwhile stays as it is.
            let _ = self.groups.handle(partition, Input::Campaign);
        }
    }

    pub(in crate::cluster) fn transfer(&mut self, partition: PartitionId, to: NodeId) {
        // A replica that does not lead has nothing to hand over.
        let _ = self.groups.handle(partition, Input::TransferLeader(to));
    }

    /// Hands over what this node leads, because it is about to end.
    pub(super) fn begin_to_end(&mut self, effects: &mut ClusterEffects) {
        self.ending_tick.get_or_insert(self.ticks);
        self.hand_over();
        // Nobody is to hand over to it: where several nodes end at once, they would hand over to each other.
        self.tell_condition(effects);
    }

    /// Time passes while this node is about to end.
    pub(super) fn go_on_ending(&mut self, effects: &mut ClusterEffects) {
        // Somebody may have been too far behind, or unheard, a moment ago.
        self.hand_over();
        if !self.ends_in_vain() {
            return;
        }
        let text = "ORDOUNKNOWN this node ends, and no majority has answered: what this command writes may \
                    or may not take effect; send it through ORDO.IDEMPOTENT where that matters, and again";
        let foreign = self.sources.give_up(u64::MAX);
        for id in self.gateway.give_up(u64::MAX).into_iter().chain(foreign) {
            effects.refused.push((id, Err(Stop::abort(text))));
        }
        for id in self.reads.give_up(u64::MAX) {
            let text = "CLUSTERDOWN this node ends, and no majority has answered: nothing was read; try \
                        again at another node";
            effects.refused.push((id, Err(Stop::abort(text))));
        }
    }

    /// Whether this node is about to end for so long that its groups have no leaders for another reason: then
    /// nothing that it waits for comes.
    fn ends_in_vain(&self) -> bool {
        let mut groups = self.map().partition_ids();
        self.is_ending_for_long()
            && !groups.all(|group| self.leader(group).is_some_and(|leader| self.is_live(leader)))
    }

    fn is_ending_for_long(&self) -> bool {
        let since = self.ending_tick.unwrap_or(self.ticks);
        (self.ticks - since) * self.options.tick_ms >= ENDING_MS
    }

    /// Whether another node is heard, takes part and stays: then it can lead.
    fn may_lead(&self, node: NodeId) -> bool {
        self.is_live(node) && *self.peers.condition(node) == Condition::Well
    }

    /// Hands over what this node leads, because it is too slow or about to end: without it, the others would
    /// notice only when nothing has been heard of it for a while, and nothing would be written until then.
    pub(in crate::cluster) fn hand_over(&mut self) {
        let leads: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in leads {
            if let Some(to) = self.successor(partition) {
                self.transfer(partition, to);
            }
        }
    }

    /// Who could lead a group in this node's place at once: of those who are heard, the one that has the most
    /// of its log.
    pub(super) fn successor(&self, partition: PartitionId) -> Option<NodeId> {
        let status = self.groups.get(&partition)?.status();
        let matched = |node: NodeId| {
            let found = status.matched.iter().find(|&&(other, _)| other == node);
            found.map_or(0, |&(_, matched)| matched)
        };
        let others = status.members.voters.iter().copied();
        others
            .filter(|&node| node != self.options.me && self.may_lead(node))
            .max_by_key(|&node| matched(node))
    }

    /// Whether nobody waits for this node any more once it was told to stop. What others have on their way
    /// does not matter: under load there is always something.
    pub fn is_drained(&self) -> bool {
        self.waits_in_vain()
            || self.gateway.awaited() == 0
                && self.reads.count() == 0
                && (self.has_handed_over() || self.is_ending_for_long())
    }

    /// Whether nothing that anybody waits for here comes any more.
    pub fn waits_in_vain(&self) -> bool {
        self.is_mute() || self.ends_in_vain()
    }

    /// Whether others lead what this node has led, as far as there are others: then it may end without
    /// delaying anybody.
    pub fn has_handed_over(&self) -> bool {
        self.groups.keys().all(|&partition| {
            let leader = self.leader(partition);
            leader.is_some_and(|leader| leader != self.options.me) || self.successor(partition).is_none()
        })
    }
}
