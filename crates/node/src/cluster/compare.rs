//! Replicas compare what they hold: one that has diverged is noticed, and halts.
//!
//! Every replica of a partition executes the same order, so all of them should hold the same. Whether they
//! do, each of them finds out: at the end of every epoch that is a multiple of [`COMPARED_EVERY`], a replica
//! notes its state digest ([`store::digest`]), which covers exactly the transactions up to there, and tells
//! the other replicas' nodes in the rhythm of the clock frames. It says the newest digests again with every
//! frame, so a lost frame costs nothing.
//!
//! ```text
//!                       all known digests of an epoch agree
//!                    ┌──────────────────────────────────────┐
//!                    │                                      │
//!   own digest ──► compared ── more than half of the partition's replicas ──► the node ends
//!   of an epoch      │          agree with each other, and not with this one
//!                    │
//!                    └─ another replica's differs, and no majority ──► a warning, and the node goes on
//!                       is against this one
//! ```
//!
//! A digest never recovers, so a replica that has diverged differs at every later epoch, too: to miss one
//! does not matter. Where a partition has two replicas, nobody can know which of them is wrong.
//!
//! The sum begins with 0 behind the epoch that brings the behaviour into force ([`COMPARES_STATES`]), and
//! travels with checkpoints ([`super::base::BaseState`]): a replica that begins behind one goes on with
//! the sum of the replica that wrote it. So a node that is started again with a diverged checkpoint halts
//! again, as soon as an epoch was compared. Until then it serves: an operator must remove its data.
//!
//! # Invariants
//! 1. A digest is told only if the engine noted it at the epoch's end: see [`Noted`].
//! 2. Of each replica at most [`KEPT_MAX`] digests are kept, the newest.
//! 3. Nobody halts but by the reports of a majority of its partition's replicas in the map that is in force.

use super::levels::COMPARES_STATES;
use order::PartitionMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use store::Noted;
use txn::{Epoch, NodeId, PartitionId};

/// Replicas compare their state at the ends of the epochs that are multiples of this.
pub const COMPARED_EVERY: u64 = 64;
/// So many digests of a replica are kept, own ones included.
const KEPT_MAX: usize = 32;
/// So many of a partition's digests go into a frame: the newest.
pub(super) const TOLD_MAX: usize = 8;
const _: () = assert!(TOLD_MAX <= KEPT_MAX, "what is told is kept");

/// What a replica holds at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateReport {
    /// Of which partition.
    pub partition: PartitionId,
    /// At the end of which epoch: a multiple of [`COMPARED_EVERY`].
    pub epoch: Epoch,
    /// The state digest there.
    pub digest: u64,
}

/// The digests of one replica, by epoch.
type Reports = BTreeMap<Epoch, u64>;

/// Keeps a report. Whether it is news.
fn keep(reports: &mut Reports, epoch: Epoch, digest: u64) -> bool {
    let is_news = reports.insert(epoch, digest) != Some(digest);
    while reports.len() > KEPT_MAX {
        reports.pop_first();
    }
    is_news && reports.contains_key(&epoch)
}

/// Counters of what was compared since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Digests of other replicas that were held against own ones.
    pub digests: u64,
    /// Of those, the ones that differed.
    pub differences: u64,
    /// The newest epoch of which a digest was compared.
    pub epoch: Epoch,
}

/// See the module's head.
#[derive(Default)]
pub(super) struct Comparison {
    /// The behaviour is in force: engines sum.
    has_begun: bool,
    /// Digests that the engines come to.
    awaited: VecDeque<(PartitionId, Epoch, Noted)>,
    own: BTreeMap<PartitionId, Reports>,
    others: BTreeMap<(PartitionId, NodeId), Reports>,
    /// Other replicas whose last digest differed, and whether a majority has that of this node.
    differing: BTreeMap<(PartitionId, NodeId), bool>,
    compared: Compared,
}

/// What comparing a report led to. `own` is the digest of this node's replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The replica of this node differs from a majority.
    IsMinority { own: u64, majority: u64 },
    /// Another replica differs: for the first time in a row, or now with a majority against it.
    Differs {
        own: u64,
        other: u64,
        /// A majority has the digest of this node.
        other_is_minority: bool,
    },
}

/// What the engines do at the end of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Noting {
    /// The sums begin there.
    pub begins: bool,
    /// The digest there is noted, to be compared.
    pub compares: bool,
}

impl Comparison {
    /// Where a process begins: with this map in force.
    pub fn new(map: &PartitionMap) -> Comparison {
        Comparison { has_begun: map.level >= COMPARES_STATES, ..Comparison::default() }
    }

    /// What was compared since the start.
    pub fn compared(&self) -> Compared {
        self.compared
    }

    /// An epoch is confirmed, with this behaviour in force behind it: what the engines do at its end.
    pub fn at_end(&mut self, epoch: Epoch, level: u32) -> Noting {
        let begins = !self.has_begun && level >= COMPARES_STATES;
        self.has_begun |= begins;
        Noting { begins, compares: self.has_begun && epoch.0.is_multiple_of(COMPARED_EVERY) }
    }

    /// An engine comes to this digest.
    pub fn awaits(&mut self, partition: PartitionId, epoch: Epoch, noted: Noted) {
        self.awaited.push_back((partition, epoch, noted));
        // One that executes a long log has no use for what the others have forgotten.
        if self.awaited.iter().filter(|(of, ..)| *of == partition).count() > KEPT_MAX {
            let oldest = self.awaited.iter().position(|(of, ..)| *of == partition);
            oldest.and_then(|oldest| self.awaited.remove(oldest));
        }
    }

    /// The newest digests of this node's replicas.
    pub fn told(&self) -> Vec<StateReport> {
        let of = |(&partition, reports): (&PartitionId, &Reports)| {
            let newest = reports.iter().rev().take(TOLD_MAX);
            let newest: Vec<StateReport> =
                newest.map(|(&epoch, &digest)| StateReport { partition, epoch, digest }).collect();
            newest.into_iter().rev()
        };
        self.own.iter().flat_map(of).collect()
    }

    /// Takes the digests that the engines have come to.
    pub fn collect(&mut self) -> Vec<StateReport> {
        let mut found = Vec::new();
        self.awaited.retain(|(partition, epoch, noted)| {
            let digest = noted.digest();
            found.extend(digest.map(|digest| StateReport { partition: *partition, epoch: *epoch, digest }));
            !noted.is_reached()
        });
        found.retain(|report| {
            keep(self.own.entry(report.partition).or_default(), report.epoch, report.digest)
        });
        found
    }

    /// Another node says what its replica holds: what that leads to, of which replicas. Its word may make the
    /// majority against one that was heard before.
    pub fn heard(
        &mut self,
        me: NodeId,
        map: &PartitionMap,
        from: NodeId,
        report: StateReport,
    ) -> Vec<(NodeId, Verdict)> {
        let StateReport { partition, epoch, digest } = report;
        if !keep(self.others.entry((partition, from)).or_default(), epoch, digest) {
            return Vec::new();
        }
        let mut nodes = self.undecided(partition);
        nodes.retain(|&node| node != from);
        nodes.insert(0, from);
        let judged = |node| Some((node, self.judge(me, map, partition, node, epoch)?));
        nodes.into_iter().filter_map(judged).collect()
    }

    /// The replicas of a partition that differ, without a majority that is known to be against them.
    fn undecided(&self, partition: PartitionId) -> Vec<NodeId> {
        let undecided =
            self.differing.iter().filter(|&(&(of, _), &is_minority)| of == partition && !is_minority);
        undecided.map(|(&(_, node), _)| node).collect()
    }

    /// Forgets the replicas that are none by this map.
    pub fn forget_former(&mut self, map: &PartitionMap) {
        let is_replica = |partition: PartitionId, node: NodeId| {
            map.partition(partition).replicas.values().any(|&replica| replica == node)
        };
        self.others.retain(|&(partition, node), _| is_replica(partition, node));
        self.differing.retain(|&(partition, node), _| is_replica(partition, node));
    }

    /// The partition of which the replica at a node differs from a majority.
    pub fn diverged(&self, node: NodeId) -> Option<PartitionId> {
        let mut differing = self.differing.iter();
        let found = differing.find(|&(&(_, other), &is_minority)| other == node && is_minority);
        found.map(|(&(partition, _), _)| partition)
    }

    /// Holds another replica's digest of an epoch against that of this node. `None` if they are the same, or
    /// one is not known, or that was said before.
    pub fn judge(
        &mut self,
        me: NodeId,
        map: &PartitionMap,
        partition: PartitionId,
        node: NodeId,
        epoch: Epoch,
    ) -> Option<Verdict> {
        let own = *self.own.get(&partition)?.get(&epoch)?;
        let other = *self.others.get(&(partition, node))?.get(&epoch)?;
        let replicas: BTreeSet<NodeId> = map.partition(partition).replicas.values().copied().collect();
        if !replicas.contains(&me) || !replicas.contains(&node) {
            return None;
        }
        self.compared.digests += 1;
        self.compared.epoch = self.compared.epoch.max(epoch);
        if own == other {
            self.differing.remove(&(partition, node));
            return None;
        }
        self.compared.differences += 1;
        let of = |replica: &NodeId| match *replica == me {
            true => Some(own),
            false => self.others.get(&(partition, *replica))?.get(&epoch).copied(),
        };
        let is_majority = |digest: u64| {
            let having = replicas.iter().filter(|replica| of(replica) == Some(digest));
            having.count() * 2 > replicas.len()
        };
        if is_majority(other) {
            return Some(Verdict::IsMinority { own, majority: other });
        }
        let before = self.differing.get(&(partition, node)).copied();
        let other_is_minority = before == Some(true) || is_majority(own);
        self.differing.insert((partition, node), other_is_minority);
        (before != Some(other_is_minority)).then_some(Verdict::Differs { own, other, other_is_minority })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use order::Described;

    const ME: NodeId = NodeId(1);
    const P0: PartitionId = PartitionId(0);

    fn map(replicas: usize) -> PartitionMap {
        let described = |number: usize| Described {
            name: format!("n{number}"),
            zone: format!("z{number}"),
            peer_address: format!("n{number}:7001"),
            client_address: format!("n{number}:6379"),
        };
        let described: Vec<Described> = (1..=replicas).map(described).collect();
        PartitionMap::new("test", &described, 1).expect("a map")
    }

    /// What the last of these reports leads to, where this node's digest is 1: the digests of nodes 2, 3, ...
    fn verdict(replicas: usize, digests: &[u64]) -> Option<Verdict> {
        let map = map(replicas);
        let mut comparison = Comparison::new(&map);
        let epoch = Epoch(COMPARED_EVERY);
        keep(comparison.own.entry(P0).or_default(), epoch, 1);
        let mut last = None;
        for (place, &digest) in digests.iter().enumerate() {
            let node = NodeId(place as u16 + 2);
            let report = StateReport { partition: P0, epoch, digest };
            last = comparison.heard(ME, &map, node, report).pop().map(|(_, verdict)| verdict);
        }
        last
    }

    #[test]
    fn only_a_majority_without_this_replica_halts_it() {
        let differs = |other, other_is_minority| Some(Verdict::Differs { own: 1, other, other_is_minority });
        let is_minority = Some(Verdict::IsMinority { own: 1, majority: 2 });
        assert_eq!(verdict(2, &[1]), None);
        assert_eq!(verdict(2, &[2]), differs(2, false));
        assert_eq!(verdict(3, &[2]), differs(2, false));
        assert_eq!(verdict(3, &[2, 2]), is_minority);
        assert_eq!(verdict(3, &[2, 3]), differs(3, false));
        assert_eq!(verdict(3, &[1, 2]), differs(2, true));
        assert_eq!(verdict(3, &[2, 1]), differs(2, true), "node 3 makes the majority against node 2");
        assert_eq!(verdict(4, &[2, 1]), None, "said before");
        assert_eq!(verdict(4, &[2, 1, 1]), differs(2, true));
        assert_eq!(verdict(4, &[2, 2]), differs(2, false));
        assert_eq!(verdict(4, &[2, 2, 2]), is_minority);
        assert_eq!(verdict(5, &[2, 2, 3]), differs(3, false));
        assert_eq!(verdict(5, &[2, 2, 3, 2]), is_minority);
        assert_eq!(verdict(3, &[1, 1, 7]), None, "node 4 has no replica");
    }

    #[test]
    fn of_each_replica_the_newest_digests_are_kept_and_fewer_are_told() {
        let mut comparison = Comparison::default();
        let epochs = |from: u64, to: u64| (from..=to).map(|number| Epoch(number * COMPARED_EVERY));
        for epoch in epochs(1, 100) {
            assert!(keep(comparison.own.entry(P0).or_default(), epoch, epoch.0));
            assert!(!keep(comparison.own.entry(P0).or_default(), epoch, epoch.0));
        }
        assert!(!keep(comparison.own.entry(P0).or_default(), Epoch(COMPARED_EVERY), 1), "too old");
        assert_eq!(comparison.own[&P0].len(), KEPT_MAX);
        let told: Vec<Epoch> = comparison.told().iter().map(|report| report.epoch).collect();
        assert_eq!(told, epochs(93, 100).collect::<Vec<_>>());
    }
}
