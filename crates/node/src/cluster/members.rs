//! How a group's members are led to what the map wants.
//!
//! The map says who should keep a replica; the group's members are who has one. Each leader compares the two
//! now and then and takes one step: a wanted node becomes a learner; once all wanted nodes have nearly
//! everything, one joint change makes them voters and lets the others go; a change that its leader did not
//! end is ended by the next one. Every step is a function of what is, so nothing is lost with a leader that
//! falls in the middle. Where no voter is to leave, each wanted node becomes one as soon as it can: that is
//! so only behind the loss of a majority ([`survivor`](super::survivor)).
//!
//! Invariants:
//! 1. A node becomes a voter only once the order has given a process of it its boot id. From then on a
//!    directory without data cannot be taken for a new node's, so a voter never forgets a vote unnoticed.
//! 2. No step is taken towards voters of whom no majority is heard.

use super::frames::Frame;
use super::machine::{ClusterEffects, ClusterNode};
use agree::{Input, MemberChange};
use log::Members;
use order::Control;
use std::collections::{BTreeMap, BTreeSet};
use txn::{BootId, Epoch, NodeId, PartitionId};

/// Leaders look at their groups' members every so many ticks.
pub(super) const MEMBERS_TICKS: u64 = 4;
/// Who is at most so many entries behind has nearly everything.
const ENTRIES_BEHIND_MAX: u64 = 8;

/// What a node knows of the members of groups, beside the groups themselves.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Which map each group's members had followed, as their leaders say. Only the leader of partition 0
    /// needs it.
    followed: BTreeMap<PartitionId, u32>,
    /// Groups that go on without this node.
    left: BTreeSet<PartitionId>,
}

impl Membership {
    /// Groups that go on without this node.
    pub fn left(&self) -> impl Iterator<Item = PartitionId> {
        self.left.iter().copied()
    }
}

/// What a leader knows of its group when it looks for the next step.
pub(super) struct Situation<'a> {
    /// The leader.
    pub me: NodeId,
    /// Who should keep a replica.
    pub wanted: &'a BTreeSet<NodeId>,
    /// Who has one.
    pub members: &'a Members,
    /// Of whom something was heard lately; the leader itself is one of them.
    pub live: &'a BTreeSet<NodeId>,
    /// Who has nearly all entries, and has started under the present map.
    pub ready: &'a BTreeSet<NodeId>,
}

/// What a leader does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It changes the members.
    Change(MemberChange),
    /// It leaves, and hands over first.
    Transfer(NodeId),
}

/// Whether the members are exactly those who are wanted, and no change is under way.
pub(super) fn is_settled(wanted: &BTreeSet<NodeId>, members: &Members) -> bool {
    members.voters_outgoing.is_empty()
        && members.learners.is_empty()
        && members.learners_next.is_empty()
        && members.voters.len() == wanted.len()
        && members.voters.iter().all(|node| wanted.contains(node))
}

/// Whether a node has a vote in a group.
fn has_vote(members: &Members, node: NodeId) -> bool {
    let mut voters = members.voters.iter().chain(&members.voters_outgoing);
    voters.any(|&voter| voter == node)
}

/// Whether a node has any part in a group.
pub(super) fn has_part(members: &Members, node: NodeId) -> bool {
    [&members.voters, &members.voters_outgoing, &members.learners, &members.learners_next]
        .iter()
        .any(|nodes| nodes.contains(&node))
}

/// The next step; `None` if there is none, or it must wait.
pub(super) fn next_step(situation: &Situation<'_>) -> Option<Step> {
    let Situation { me, wanted, members, live, ready } = *situation;
    if wanted.is_empty() {
        return None;
    }
    if !members.voters_outgoing.is_empty() {
        // With the change done, a leader that leaves would lead a group that it is no part of.
        let successor = || {
            let mut voters = members.voters.iter();
            voters.find(|node| live.contains(node) && ready.contains(node))
        };
        return match members.voters.contains(&me) {
            true => Some(Step::Change(MemberChange::Finish)),
            false => successor().map(|&to| Step::Transfer(to)),
        };
    }
    let is_voter = |node: &NodeId| members.voters.contains(node);
    if let Some(&missing) = wanted.iter().find(|node| !is_voter(node) && !members.learners.contains(node)) {
        return Some(Step::Change(MemberChange::AddLearner(missing)));
    }
    let able = |node: &&NodeId| live.contains(node) && ready.contains(node);
    // Where no voter is to leave, nobody has to be waited for: a cluster that goes on with one survivor gets
    // its voters back one by one.
    let all_stay = members.voters.iter().all(|node| wanted.contains(node));
    let newcomers: Vec<NodeId> =
        wanted.iter().copied().filter(|node| !is_voter(node) && (!all_stay || able(&node))).collect();
    if !newcomers.iter().all(|node| able(&node)) {
        return None;
    }
    let heard = wanted.intersection(live).count();
    if heard < wanted.len() / 2 + 1 {
        return None;
    }
    if !wanted.contains(&me) {
        let mut successors = wanted.iter().filter(|node| is_voter(node)).peekable();
        // Without any voter that stays, the newcomers must become voters first.
        if successors.peek().is_some() {
            let successor = successors.find(able)?;
            return Some(Step::Transfer(*successor));
        }
    }
    let leavers: Vec<NodeId> = members
        .voters
        .iter()
        .chain(&members.learners)
        .copied()
        .filter(|node| !wanted.contains(node))
        .collect();
    if newcomers.is_empty() && leavers.is_empty() {
        return None;
    }
    Some(Step::Change(MemberChange::Replace { voters: newcomers, leavers }))
}

impl ClusterNode {
    fn wanted(&self, partition: PartitionId) -> BTreeSet<NodeId> {
        let entry = self.map().partition(partition);
        entry.replicas.values().copied().collect()
    }

    /// Leads the members of the groups that this node leads to the map.
    pub(super) fn lead_members(&mut self, effects: &mut ClusterEffects) {
        self.notice_leaving(effects);
        if self.is_stopped() || self.installs.is_ending() {
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
            let near =
                status.matched.iter().filter(|(_, matched)| matched + ENTRIES_BEHIND_MAX >= status.last);
            let ready = near.map(|&(node, _)| node).filter(started).collect();
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
                None if !self.membership.left.is_empty() => {
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
            Some(leader) if leader == self.options.me => self.followed(partition, version),
            Some(leader) => {
                self.send(leader, &Frame::Followed { partition, version }, effects);
            }
            None => {}
        }
    }

    /// A group's leader says that its members are as the map of a version wants them.
    pub(super) fn followed(&mut self, partition: PartitionId, version: u32) {
        let known = self.membership.followed.entry(partition).or_default();
        *known = version.max(*known);
    }

    /// Whether a change has to wait: it would take from a node all that it keeps, before it has what an
    /// earlier one has given to it. If that node is down meanwhile, it would take itself for one that has
    /// left.
    pub(super) fn comes_too_early(&self, control: &Control) -> bool {
        let Control::PlaceReplicas { version, places } = control else {
            return false;
        };
        let map = self.map();
        if *version != map.version {
            // The order refuses it, and whoever wants it hears of that.
            return false;
        }
        let has_followed = |partition: &PartitionId| {
            let followed = self.membership.followed.get(partition);
            followed.is_some_and(|&version| version >= map.version)
        };
        let taken = |node: NodeId, partition: PartitionId| {
            let zone = map.nodes.get(&node).map(|entry| entry.zone);
            places
                .iter()
                .any(|&(given, to)| given == partition && map.nodes.get(&to).map(|entry| entry.zone) == zone)
        };
        map.nodes.keys().any(|&node| {
            let kept: Vec<PartitionId> = map.kept_by(node).collect();
            let (given, left): (Vec<_>, Vec<_>) =
                kept.into_iter().partition(|&partition| taken(node, partition));
            !given.is_empty() && !left.iter().any(has_followed)
        })
    }

    /// Takes nodes out of the map that are to leave, once no group needs them and their processes have ended.
    fn finish_leaving(&mut self, effects: &mut ClusterEffects) {
        let map = self.map().clone();
        let has_followed = |partition| {
            let followed = self.membership.followed.get(&partition);
            followed.is_some_and(|&version| version >= map.version)
        };
        if !map.partition_ids().all(has_followed) {
            return;
        }
        let mut leaving = map.nodes.iter().filter(|&(&node, entry)| {
            entry.leaving && node != self.options.me && map.kept_by(node).next().is_none()
        });
        let Some((&node, _)) = leaving.next() else {
            return;
        };
        if self.is_live(node) {
            // Out of the map, nobody would talk to it any more: it is to know before.
            for partition in map.partition_ids() {
                let version = map.version;
                self.send(node, &Frame::Left { partition, version }, effects);
            }
        } else if let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
            lead.change(Control::RemoveNode { version: map.version, node });
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
    /// [`ClusterNode::comes_too_early`].)
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
        self.membership.left.insert(partition);
        let mut kept = self.groups.keys();
        if kept.any(|partition| !self.membership.left.contains(partition)) {
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

    /// Whether groups go on without this node, so that it executes no further.
    pub(super) fn is_leaving(&self) -> bool {
        !self.membership.left.is_empty()
    }

    /// Sees to it that this node keeps all that the map wants it to: with logs that begin at the beginning,
    /// if its own do, and otherwise behind one checkpoint of everything, so that all its partitions stand at
    /// the end of the same epoch.
    pub(super) fn keep_more(&mut self, effects: &mut ClusterEffects) {
        let kept = self.kept();
        self.membership.left.retain(|partition| !kept.contains(partition));
        let missing = kept.iter().find(|partition| !self.groups.contains_key(partition));
        let Some(&missing) = missing.filter(|_| !self.is_installing()) else {
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
                    && !self.installs.pauses(self.ticks)
                {
                    self.begin_install(epoch, source);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::checkpoint::tests::node;

    fn nodes(numbers: &[u16]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    /// A row: the leader, whom the map wants, voters, outgoing voters, learners, who is live, who is ready.
    type Row =
        (u16, &'static [u16], &'static [u16], &'static [u16], &'static [u16], &'static [u16], &'static [u16]);

    fn step(row: Row) -> Option<Step> {
        let (me, wanted, voters, outgoing, learners, live, ready) = row;
        next_step(&Situation {
            me: NodeId(me),
            wanted: &nodes(wanted).into_iter().collect(),
            members: &Members {
                voters: nodes(voters),
                voters_outgoing: nodes(outgoing),
                learners: nodes(learners),
                ..Members::default()
            },
            live: &nodes(live).into_iter().collect(),
            ready: &nodes(ready).into_iter().collect(),
        })
    }

    fn replace(voters: &[u16], leavers: &[u16]) -> Option<Step> {
        Some(Step::Change(MemberChange::Replace { voters: nodes(voters), leavers: nodes(leavers) }))
    }

    fn add(node: u16) -> Option<Step> {
        Some(Step::Change(MemberChange::AddLearner(NodeId(node))))
    }

    fn transfer(node: u16) -> Option<Step> {
        Some(Step::Transfer(NodeId(node)))
    }

    #[test]
    fn each_situation_has_one_next_step() {
        const ALL: &[u16] = &[1, 2, 3, 4, 5];
        let finish = || Some(Step::Change(MemberChange::Finish));
        let table: &[(&str, Row, Option<Step>)] = &[
            ("all is as it should be", (1, &[1, 2, 3], &[1, 2, 3], &[], &[], ALL, ALL), None),
            ("one is missing", (2, &[2, 3, 4], &[1, 2, 3], &[], &[], ALL, ALL), add(4)),
            ("it may be down now", (2, &[2, 3, 4], &[1, 2, 3], &[], &[], &[1, 2, 3], &[]), add(4)),
            ("the second is missing", (2, &[2, 4, 5], &[1, 2, 3], &[], &[4], ALL, ALL), add(5)),
            ("it has not caught up", (2, &[2, 3, 4], &[1, 2, 3], &[], &[4], ALL, &[1, 2, 3]), None),
            ("it is not heard", (2, &[2, 3, 4], &[1, 2, 3], &[], &[4], &[1, 2, 3], ALL), None),
            (
                "one survivor is left, and waits for others",
                (1, &[1, 2, 3], &[1], &[], &[2, 3], &[1], &[1]),
                None,
            ),
            (
                "one of two that were lost is replaced",
                (1, &[1, 3, 4], &[1], &[], &[2, 3, 4], &[1, 4], &[1, 4]),
                replace(&[4], &[2]),
            ),
            ("it takes over", (2, &[2, 3, 4], &[1, 2, 3], &[], &[4], ALL, ALL), replace(&[4], &[1])),
            (
                "whom it replaces is gone",
                (2, &[2, 3, 4], &[1, 2, 3], &[], &[4], &[2, 3, 4], &[2, 3, 4]),
                replace(&[4], &[1]),
            ),
            ("two at once", (2, &[2, 4, 5], &[1, 2, 3], &[], &[4, 5], ALL, ALL), replace(&[4, 5], &[1, 3])),
            (
                "too few of the new voters are heard",
                (1, &[1, 2, 3, 4, 5], &[1, 2, 3], &[], &[4, 5], &[1, 4], ALL),
                None,
            ),
            (
                "a voter goes and leaves too few of those who are heard",
                (1, &[1, 2], &[1, 2, 3], &[], &[], &[1, 3], ALL),
                None,
            ),
            (
                "the leader leaves: it hands over to a voter that stays",
                (1, &[2, 3, 4], &[1, 2, 3], &[], &[4], &[1, 3, 4], ALL),
                transfer(3),
            ),
            (
                "but not before the newcomer is ready",
                (1, &[2, 3, 4], &[1, 2, 3], &[], &[4], ALL, &[2, 3]),
                None,
            ),
            ("nor to one that is behind", (1, &[2, 3, 4], &[1, 2, 3], &[], &[4], ALL, &[4]), None),
            (
                "no voter stays: the newcomer must be one first",
                (1, &[4], &[1], &[], &[4], ALL, ALL),
                replace(&[4], &[1]),
            ),
            ("and then the leader hands over", (1, &[4], &[4], &[], &[], ALL, ALL), transfer(4)),
            (
                "another leader's change is ended first",
                (2, &[2, 3, 5], &[2, 3, 4], &[1, 2, 3], &[], ALL, ALL),
                finish(),
            ),
            (
                "one that leaves leads in the middle of a change: another one ends it",
                (1, &[2, 3, 4], &[2, 3, 4], &[1, 2, 3], &[], ALL, &[1, 3, 4]),
                transfer(3),
            ),
            (
                "a learner is not wanted any more",
                (1, &[1, 2, 3], &[1, 2, 3], &[], &[4], ALL, ALL),
                replace(&[], &[4]),
            ),
            ("a map that wants nobody is no map", (1, &[], &[1], &[], &[], ALL, ALL), None),
        ];
        for (name, row, expected) in table {
            assert_eq!(step(*row), *expected, "{name}: {row:?}");
        }
    }

    #[test]
    fn every_way_from_any_members_to_any_wish_ends() {
        let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = seed.unwrap_or(7);
        let all: BTreeSet<NodeId> = (1..=5).map(NodeId).collect();
        for case in 0..2000 {
            let draw = |what: u64, below: u64| txn::hash::mix(txn::hash::mix(seed ^ case) ^ what) % below;
            let pick = |what: u64| -> BTreeSet<NodeId> {
                let bits = 1 + draw(what, 31);
                (0..5u16).filter(|bit| bits >> bit & 1 == 1).map(|bit| NodeId(bit + 1)).collect()
            };
            let wanted = pick(1);
            let mut voters = pick(2);
            let mut learners: BTreeSet<NodeId> = pick(3).difference(&voters).copied().collect();
            let mut me = *voters.iter().nth(draw(4, voters.len() as u64) as usize).expect("one");
            let mut steps = 0;
            loop {
                let members = Members {
                    voters: voters.iter().copied().collect(),
                    learners: learners.iter().copied().collect(),
                    ..Members::default()
                };
                let situation = Situation { me, wanted: &wanted, members: &members, live: &all, ready: &all };
                match next_step(&situation) {
                    None => break,
                    Some(Step::Transfer(to)) => {
                        assert!(voters.contains(&to), "seed {seed}, case {case}");
                        me = to;
                    }
                    Some(Step::Change(MemberChange::AddLearner(node))) => {
                        assert!(!voters.contains(&node) && learners.insert(node));
                    }
                    Some(Step::Change(MemberChange::Replace { voters: come, leavers })) => {
                        for node in come {
                            assert!(learners.remove(&node), "seed {seed}, case {case}");
                            voters.insert(node);
                        }
                        for node in leavers {
                            assert!(voters.remove(&node) || learners.remove(&node));
                        }
                    }
                    Some(Step::Change(MemberChange::Finish)) => unreachable!("nothing is joint"),
                }
                steps += 1;
                assert!(steps < 12, "seed {seed}, case {case}: no end");
            }
            assert_eq!((voters, learners), (wanted.clone(), BTreeSet::new()));
            assert!(wanted.contains(&me), "seed {seed}, case {case}");
        }
    }

    #[test]
    fn nobody_gives_its_last_replica_away_before_it_has_what_it_was_given() {
        let (p0, p1) = (PartitionId(0), PartitionId(1));
        // Of its zone it keeps 0 and 1, the other one the rest.
        let mut node = node(0, &[p0], &[p0, p1]);
        let version = node.map().version;
        let place = |partition, to| Control::PlaceReplicas { version, places: vec![(partition, NodeId(to))] };
        assert!(node.comes_too_early(&place(p0, 2)));
        node.followed(p0, version);
        assert!(node.comes_too_early(&place(p0, 2)), "it may not have 1");
        assert!(!node.comes_too_early(&place(p1, 2)), "it has 0");
        let outdated = Control::PlaceReplicas { version: version - 1, places: vec![(p0, NodeId(2))] };
        assert!(!node.comes_too_early(&outdated), "it is to be refused");
        node.followed(p1, version);
        assert!(!node.comes_too_early(&place(p0, 2)));
    }
}
