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

use agree::MemberChange;
use log::Members;
use order::{Control, PartitionMap};
use std::collections::{BTreeMap, BTreeSet};
use txn::{NodeId, PartitionId};

/// What a node knows of the members of groups, beside the groups themselves.
#[derive(Debug, Default)]
pub(super) struct Membership {
    /// Which map each group's members had followed, as their leaders say. Only the leader of partition 0
    /// needs it.
    followed: BTreeMap<PartitionId, u32>,
    /// Groups that go on without this node.
    left: BTreeSet<PartitionId>,
}

/// A node that is to leave, and that no group needs any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaver {
    /// Out of the map, nobody would talk to it any more: it is to know before.
    Tell(NodeId),
    /// Its process has ended: the map goes on without it.
    Remove(NodeId),
}

impl Membership {
    /// A group's leader says that its members are as the map of a version wants them.
    pub fn followed(&mut self, partition: PartitionId, version: u32) {
        let known = self.followed.entry(partition).or_default();
        *known = version.max(*known);
    }

    fn has_followed(&self, partition: PartitionId, version: u32) -> bool {
        self.followed.get(&partition).is_some_and(|&followed| followed >= version)
    }

    /// Whether a change has to wait: it would take from a node all that it keeps, before it has what an
    /// earlier one has given to it. If that node is down meanwhile, it would take itself for one that has
    /// left.
    pub fn comes_too_early(&self, control: &Control, map: &PartitionMap) -> bool {
        let Control::PlaceReplicas { version, places } = control else {
            return false;
        };
        if *version != map.version {
            // The order refuses it, and whoever wants it hears of that.
            return false;
        }
        let taken = |node: NodeId, partition: PartitionId| {
            let zone = map.nodes.get(&node).map(|entry| entry.zone);
            places
                .iter()
                .any(|&(given, to)| given == partition && map.nodes.get(&to).map(|entry| entry.zone) == zone)
        };
        map.nodes.keys().any(|&node| {
            let (given, left): (Vec<_>, Vec<_>) =
                map.kept_by(node).partition(|&partition| taken(node, partition));
            !given.is_empty() && !left.iter().any(|&partition| self.has_followed(partition, map.version))
        })
    }

    /// The next node to be taken out of the map, once all groups are as the map wants them.
    pub fn leaver(&self, me: NodeId, map: &PartitionMap, is_live: impl Fn(NodeId) -> bool) -> Option<Leaver> {
        if !map.partition_ids().all(|partition| self.has_followed(partition, map.version)) {
            return None;
        }
        let mut leaving = map
            .nodes
            .iter()
            .filter(|&(&node, entry)| entry.leaving && node != me && map.kept_by(node).next().is_none());
        let (&node, _) = leaving.next()?;
        Some(if is_live(node) { Leaver::Tell(node) } else { Leaver::Remove(node) })
    }

    /// A group goes on without this node.
    pub fn leave(&mut self, partition: PartitionId) {
        self.left.insert(partition);
    }

    /// The map wants this node to keep these.
    pub fn is_wanted(&mut self, kept: &BTreeSet<PartitionId>) {
        self.left.retain(|partition| !kept.contains(partition));
    }

    /// Whether a group goes on without this node.
    pub fn has_left(&self, partition: PartitionId) -> bool {
        self.left.contains(&partition)
    }

    /// Whether groups go on without this node, so that it executes no further.
    pub fn is_leaving(&self) -> bool {
        !self.left.is_empty()
    }

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
pub(super) fn has_vote(members: &Members, node: NodeId) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::fixtures::map;

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
        // Of its zone node 1 keeps 0 and 1, node 2 the rest.
        let map = map(&[p0, p1]);
        let mut membership = Membership::default();
        let place = |version, partition, to| Control::PlaceReplicas {
            version,
            places: vec![(partition, NodeId(to))],
        };
        let version = map.version;
        assert!(membership.comes_too_early(&place(version, p0, 2), &map));
        membership.followed(p0, version);
        assert!(membership.comes_too_early(&place(version, p0, 2), &map), "it may not have 1");
        assert!(!membership.comes_too_early(&place(version, p1, 2), &map), "it has 0");
        assert!(!membership.comes_too_early(&place(version - 1, p0, 2), &map), "it is to be refused");
        membership.followed(p1, version);
        assert!(!membership.comes_too_early(&place(version, p0, 2), &map));
    }
}
