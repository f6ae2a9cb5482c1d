//! Leads the members of groups to the map, and leaves those that go on without this node.

use super::{ClusterEffects, ClusterNode};
use crate::cluster::frames::Frame;
use crate::cluster::members::{Leaver, Situation, Step, has_part, has_vote, is_settled, next_step};
use crate::cluster::transfer::Begin;
use agree::Input;
use order::Control;
use std::collections::BTreeSet;
use txn::{BootId, Epoch, NodeId, PartitionId};

/// Leaders look at their groups' members every so many ticks.
const MEMBERS_TICKS: u64 = 4;
impl ClusterNode {
    fn wanted(&self, partition: PartitionId) -> BTreeSet<NodeId> {
        let entry = self.map().partition(partition);
        entry.replicas.values().copied().collect()
    }

    /// Looks now and then at who keeps what, and at which behaviour all nodes know.
    pub(super) fn look_at_members(&mut self, effects: &mut ClusterEffects) {
        if self.ticks.is_multiple_of(MEMBERS_TICKS) {
            self.lead_members(effects);
            self.lead_level();
            self.keep_more(effects);
        }
    }

    /// Leads the members of the groups that this node leads to the map.
    fn lead_members(&mut self, effects: &mut ClusterEffects) {
        self.notice_leaving(effects);
        if self.is_stopped() || self.transfer.is_ending() {
            return;
        }
        let led: Vec<PartitionId> = self.leads.keys().copied().collect();
        for partition in led {
            let wanted = self.wanted(partition);
            let status = self.groups[&partition].status();
            let members = &status.members;
            let nodes = &self.map().nodes;
            let started = |node: &NodeId| {
                let entry = nodes.get(node);
                members.voters.contains(node) || entry.is_some_and(|entry| entry.boot != BootId(0))
            };
            let known = status.matched.iter().map(|&(node, _)| node);
            let ready = known.filter(|&node| status.has_nearly_all(node)).filter(started).collect();
            let live = wanted.iter().copied().filter(|&node| self.is_live(node)).collect();
            let situation =
                Situation { me: self.options.me, wanted: &wanted, members, live: &live, ready: &ready };
            if is_settled(&wanted, members) {
                self.tell_followed(partition, effects);
            }
            match next_step(&situation) {
                Some(Step::Transfer(to)) => self.transfer(partition, to),
                Some(Step::Change(change)) => {
                    // What is refused is tried again.
                    let _ = self.groups.handle(partition, Input::ChangeMembers(change));
                }
                // Who has left a group does not see how the map goes on, and so cannot lead another one to
                // it.
                None if self.membership.is_leaving() => {
                    let other = live.intersection(&ready).find(|&&node| node != self.options.me);
                    if let Some(&to) = other {
                        self.transfer(partition, to);
                    }
                }
                None => {}
            }
        }
        if self.leads.contains_key(&PartitionId(0)) {
            self.finish_leaving(effects);
        }
    }

    /// A node that knows itself that a group goes on without it is not told so: it asks for no votes. Nor is
    /// one that only learns, which is not missed: a map that does not want it is enough.
    fn notice_leaving(&mut self, effects: &mut ClusterEffects) {
        let me = self.options.me;
        // Its own may be from before it came.
        let map = self.newest_map().clone();
        let kept: BTreeSet<PartitionId> = map.kept_by(me).collect();
        let mut left = Vec::new();
        for (&partition, group) in &*self.groups {
            if !kept.contains(&partition) && !has_vote(&group.members(), me) {
                left.push(partition);
            }
        }
        for partition in left {
            self.left(partition, map.version, effects);
        }
    }

    /// Asks those who keep a group, by the newest map, whether it goes on without this node. Those whom this
    /// node takes for its members, and asks for their votes, may all be gone or have left it as well.
    pub(super) fn ask_whether_it_belongs(&self, effects: &mut ClusterEffects) {
        let me = self.options.me;
        let map = self.newest_map();
        for &partition in self.groups.keys() {
            let Some(entry) = map.partitions.get(usize::from(partition.0)) else {
                continue;
            };
            let is_wanted = entry.replicas.values().any(|&node| node == me);
            if !is_wanted && self.leader(partition).is_none() {
                for &node in entry.replicas.values() {
                    self.send(node, &Frame::Belongs { partition }, effects);
                }
            }
        }
    }

    /// A group's members are as this node's map wants them.
    fn tell_followed(&mut self, partition: PartitionId, effects: &mut ClusterEffects) {
        let version = self.map().version;
        match self.leader(PartitionId(0)) {
            Some(leader) if leader == self.options.me => self.membership.followed(partition, version),
            Some(leader) => {
                self.send(leader, &Frame::Followed { partition, version }, effects);
            }
            None => {}
        }
    }

    /// Takes nodes out of the map that are to leave, once no group needs them and their processes have ended.
    fn finish_leaving(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        match self.membership.leaver(self.options.me, &map, |node| self.is_live(node)) {
            Some(Leaver::Tell(node)) => {
                for partition in map.partition_ids() {
                    let version = map.version;
                    self.send(node, &Frame::Left { partition, version }, effects);
                }
            }
            Some(Leaver::Remove(node)) => {
                if let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
                    lead.change(Control::RemoveNode { version: map.version, node });
                }
            }
            None => {}
        }
    }

    /// Whether a node that takes itself for a member of a group is none any more: then it is told.
    pub(super) fn is_stranger(
        &self,
        from: NodeId,
        partition: PartitionId,
        effects: &mut ClusterEffects,
    ) -> bool {
        let map = self.map();
        // Who is behind does not know who is new.
        if self.newest_map().version > map.version {
            return false;
        }
        let Some(entry) = map.partitions.get(usize::from(partition.0)) else {
            return false;
        };
        // The usual case, and the cheap question, first.
        if entry.replicas.values().any(|&node| node == from) {
            return false;
        }
        // Whoever knows no leader itself knows too little to judge.
        if !self.leader(partition).is_some_and(|leader| leader != from && self.is_live(leader)) {
            return false;
        }
        let group = self.groups.get(&partition);
        if group.is_none_or(|group| has_part(&group.members(), from)) {
            return false;
        }
        let version = map.version;
        self.send(from, &Frame::Left { partition, version }, effects);
        true
    }

    /// Another node says that a group goes on without this one. What its map wants the node must have heard
    /// of as well, from that node or from others: it asks, and is told again.
    pub(super) fn told_to_leave(
        &mut self,
        from: NodeId,
        partition: PartitionId,
        version: u32,
        effects: &mut ClusterEffects,
    ) {
        let newest = self.newest_map();
        if newest.version < version {
            return self.send(from, &Frame::MapWanted, effects);
        }
        let mut replicas = newest.partition(partition).replicas.values();
        if !replicas.any(|&node| node == self.options.me) {
            self.left(partition, version, effects);
        }
    }

    /// A group goes on without this node, says one who has the map of a version. If all do, it has left; the
    /// files stay as they are. If it keeps others, it goes on with those ([`Self::retire`]). One that is to
    /// leave waits for the last one.
    ///
    /// (A node that is to keep something has it before the last goes that it had: see
    /// [`Membership::comes_too_early`](crate::cluster::members::Membership::comes_too_early).)
    pub(super) fn left(&mut self, partition: PartitionId, version: u32, effects: &mut ClusterEffects) {
        let map = self.map();
        let Some(entry) = map.partitions.get(usize::from(partition.0)) else {
            return;
        };
        let is_wanted = entry.replicas.values().any(|&node| node == self.options.me);
        if is_wanted && version <= map.version || !self.groups.contains_key(&partition) {
            return;
        }
        let nodes = &self.newest_map().nodes;
        let is_to_leave = nodes.get(&self.options.me).is_none_or(|entry| entry.leaving);
        self.membership.leave(partition);
        let mut kept = self.groups.keys();
        if kept.any(|&partition| !self.membership.has_left(partition)) {
            // What is being written is what it starts from.
            if !is_to_leave && !self.checkpoints.is_one_coming() {
                self.retire(version, effects);
            }
        } else {
            let text = "this node has left the cluster: its replicas are with other nodes. Stop it for \
                        good; its directory is not needed any more, and must not be started again under \
                        this name";
            self.end(text.to_owned(), effects);
        }
    }

    /// Sees to it that this node keeps all that the map wants it to: with logs that begin at the beginning,
    /// if its own do, and otherwise behind one checkpoint of everything, so that all its partitions stand at
    /// the end of the same epoch.
    pub(super) fn keep_more(&mut self, effects: &mut ClusterEffects) {
        let kept = self.kept();
        self.membership.is_wanted(&kept);
        let missing = kept.iter().find(|partition| !self.groups.contains_key(partition));
        let Some(&missing) = missing.filter(|_| !self.transfer.is_installing()) else {
            return;
        };
        match self.checkpoints.newest() {
            // What it had promised there counts: it can't begin at the beginning.
            Epoch(0) if self.retired.contains_key(&missing) => self.want_checkpoint(),
            // A log that begins at the beginning does not go with the first checkpoint, which may count any
            // moment.
            Epoch(0) if self.checkpoints.is_one_coming() => {}
            Epoch(0) => self.start_anew(effects),
            epoch => {
                if let Some(&source) = self.who_has(missing, None).first()
                    && !self.transfer.pauses(self.ticks)
                {
                    self.begin_transfer(Begin::new(epoch, source));
                }
            }
        }
    }
}
