//! What a node sees of the clocks of its groups, and what it has ordered about them.

use super::{ClusterEffects, ClusterNode};
use crate::clock::{Sight, agreed, reached};
use crate::cluster::frames::Frame;
use crate::cluster::levels::CORRECTS_CLOCK;
use agree::Role;
use order::Control;
use std::collections::BTreeMap;
use txn::{BootId, NodeId, PartitionId, clock};

impl ClusterNode {
    /// Brings the clock up to date, and has the date corrected where this node leads partition 0.
    pub(super) fn look_at_clocks(&mut self, wall_ms: u64, effects: &mut ClusterEffects) {
        let now_ms = self.now_ms;
        self.clock.reach(self.merge.delivered().time_ms, now_ms);
        let sight = self.sight(wall_ms.cast_signed().wrapping_sub(now_ms.cast_signed()));
        let news = self.clock.tick(now_ms, wall_ms, self.clock_offset_ms(), &sight);
        effects.warnings.extend(news);
        if self.map().level < CORRECTS_CLOCK {
            return;
        }
        if let Some(lead) = self.leads.get_mut(&PartitionId(0))
            && let Some((before_ms, offset_ms)) = self.clock.take_correction()
        {
            lead.change(Control::CorrectClock { before_ms, offset_ms });
        }
    }

    /// The offset that is in force, at the newest snapshot of any local partition.
    fn clock_offset_ms(&self) -> i64 {
        let Some((_, engine)) = self.engines().next() else {
            return 0;
        };
        let view = engine.view();
        let snapshot = view.open();
        let read = view.read_at(&snapshot, &clock::offset_key());
        view.close(snapshot);
        clock::offset_ms(read.entry.as_ref())
    }

    fn sight(&self, own_lead_ms: i64) -> Sight {
        let me = self.options.me;
        let since = self.silent_since();
        let others: Vec<(NodeId, i64)> = self.peers.wall_leads(since).collect();
        let mut walls: BTreeMap<NodeId, i64> = others.iter().copied().collect();
        walls.insert(me, own_lead_ms);
        let mut epochs: BTreeMap<NodeId, i64> = BTreeMap::new();
        for &node in self.map().nodes.keys().filter(|&&node| node != me) {
            if let Some(Some(lead_ms)) = self.peers.epoch_lead_ms(node, since) {
                epochs.insert(node, lead_ms);
            }
        }
        let known_ms = epochs.values().min().copied();
        if self.clock.is_set() {
            epochs.insert(me, self.clock.lead_ms());
        }
        let (mut replays, mut follows) = (false, false);
        // Below that level nobody corrects a date: the offset is known.
        if !self.clock.is_set() && self.map().level >= CORRECTS_CLOCK {
            replays = self.is_behind_the_order();
            let mut statuses = self.groups.values().map(|group| group.status());
            follows = !statuses.any(|group| group.role == Role::Leader && group.committed == group.last);
        }
        // A node that stands alone waits for nobody: at its first tick it has not begun with its log, whose
        // end alone tells the level and the offset.
        if !self.clock.is_set() && self.options.alone {
            let is_read = self.merge.confirmed().epoch == self.merge.newest();
            replays = !is_read || self.is_behind_the_order();
        }
        let mut sight = Sight { known_ms, none_knows: true, replays, follows, others, ..Sight::default() };
        let mut is_first = true;
        // The majorities of all groups that this node has a replica of must have reached a time.
        for group in self.groups.values() {
            let voters = group.members().voters;
            let of = |leads: &BTreeMap<NodeId, i64>| -> Vec<i64> {
                let known = voters.iter().filter_map(|node| leads.get(node));
                known.copied().collect()
            };
            let bound_ms = self.options.clock_bound_ms.cast_signed();
            let wall_ms = reached(of(&walls), voters.len());
            let epoch_ms = reached(of(&epochs), voters.len());
            let agreed_ms = agreed(of(&walls), voters.len(), bound_ms);
            if is_first {
                (sight.reached_ms, sight.epoch_ms, sight.agreed_ms) = (wall_ms, epoch_ms, agreed_ms);
            } else {
                let least = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.min(b));
                sight.reached_ms = least(sight.reached_ms, wall_ms);
                sight.epoch_ms = least(sight.epoch_ms, epoch_ms);
                sight.agreed_ms = sight.agreed_ms.filter(|_| agreed_ms.is_some());
            }
            is_first = false;
            let tells = |&node: &NodeId| node == me || self.peers.epoch_lead_ms(node, since) == Some(None);
            sight.none_knows &= voters.iter().all(tells);
        }
        sight
    }

    /// By how much a node's clock is ahead of the time of day that this node knows, if that is more than a
    /// right clock may be; else 0.
    pub fn wrong_clock_ms(&self, node: NodeId) -> i64 {
        if node == self.options.me {
            let status = self.clock.status();
            return if status.is_wrong { status.ahead_ms } else { 0 };
        }
        let mut walls = self.peers.wall_leads(self.silent_since());
        let found = walls.find(|&(other, _)| other == node);
        found.map_or(0, |(_, lead_ms)| self.clock.wrong_ms(lead_ms))
    }

    /// Tells a node the epoch time.
    pub(super) fn tell_time(&self, to: NodeId, effects: &mut ClusterEffects) {
        let entry = self.map().nodes.get(&to);
        // An older build does not know the frame.
        if entry.is_some_and(|entry| entry.boot != BootId(0) && entry.level < CORRECTS_CLOCK) {
            return;
        }
        let epoch_ms = self.clock.is_set().then(|| self.clock.epoch_ms(self.now_ms));
        self.send(to, &Frame::Time(epoch_ms), effects);
    }
}
