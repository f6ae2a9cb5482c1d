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
//! travels with checkpoints ([`super::recover::BaseState`]): a replica that begins behind one goes on with
//! the sum of the replica that wrote it. So a node that is started again with a diverged checkpoint halts
//! again, as soon as an epoch was compared. Until then it serves: an operator must remove its data.
//!
//! # Invariants
//! 1. A digest is told only if the engine noted it at the epoch's end: see [`Noted`].
//! 2. Of each replica at most [`KEPT_MAX`] digests are kept, the newest.
//! 3. Nobody halts but by the reports of a majority of its partition's replicas in the map that is in force.

use super::frames::Frame;
use super::levels::COMPARES_STATES;
use super::machine::{ClusterEffects, ClusterNode};
use super::peers::Condition;
use order::PartitionMap;
use order::merge::EpochEnd;
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
    pub compared: Compared,
}

/// What comparing a report led to.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Agreed,
    /// The replica of this node differs from a majority, which has this digest.
    IsMinority(u64),
    Differs {
        /// A majority has the digest of this node.
        other_is_minority: bool,
        is_first: bool,
    },
}

impl Comparison {
    /// Where a process begins: with this map in force.
    pub fn new(map: &PartitionMap) -> Comparison {
        Comparison { has_begun: map.level >= COMPARES_STATES, ..Comparison::default() }
    }

    /// The newest digests of this node's replicas.
    fn told(&self) -> Vec<StateReport> {
        let of = |(&partition, reports): (&PartitionId, &Reports)| {
            let newest = reports.iter().rev().take(TOLD_MAX);
            let newest: Vec<StateReport> =
                newest.map(|(&epoch, &digest)| StateReport { partition, epoch, digest }).collect();
            newest.into_iter().rev()
        };
        self.own.iter().flat_map(of).collect()
    }

    /// Takes the digests that the engines have come to.
    fn collect(&mut self) -> Vec<StateReport> {
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

    /// Holds another replica's digest of an epoch against that of this node. `None` if one is not known.
    fn judge(
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
            return Some(Verdict::Agreed);
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
            return Some(Verdict::IsMinority(other));
        }
        let other_is_minority = is_majority(own);
        let before = self.differing.insert((partition, node), other_is_minority);
        Some(Verdict::Differs { other_is_minority, is_first: before.is_none() })
    }
}

impl ClusterNode {
    /// An epoch is confirmed, and no engine has heard of it: has the engines note what is compared.
    pub(super) fn note_states(&mut self, end: &EpochEnd) {
        let begins = !self.comparison.has_begun && end.map.level >= COMPARES_STATES;
        self.comparison.has_begun |= begins;
        let compares = self.comparison.has_begun && end.epoch.0.is_multiple_of(COMPARED_EVERY);
        if !begins && !compares {
            return;
        }
        let engines: Vec<_> = self.engines().map(|(partition, engine)| (partition, engine.clone())).collect();
        for ((partition, engine), next) in engines.into_iter().zip(&end.next) {
            let digests = engine.view().digests();
            if begins {
                digests.begin_at(next.prev());
            }
            if compares && !self.options.alone {
                let noted = digests.note_at(next.prev());
                self.comparison.awaited.push_back((partition, end.epoch, noted));
            }
        }
        // One that executes a long log has no use for what the others have forgotten.
        let excess = self.comparison.awaited.len().saturating_sub(KEPT_MAX * usize::from(self.partitions()));
        self.comparison.awaited.drain(..excess);
    }

    /// Compares what this node's replicas hold where they have come, and tells the others.
    pub(super) fn tell_states(&mut self, effects: &mut ClusterEffects) {
        for StateReport { partition, epoch, .. } in self.comparison.collect() {
            let replicas: Vec<NodeId> = self.map().partition(partition).replicas.values().copied().collect();
            for node in replicas {
                self.compare_state(partition, node, epoch, effects);
                if self.is_stopped() {
                    return;
                }
            }
        }
        let told = self.comparison.told();
        if told.is_empty() {
            return;
        }
        let map = self.map().clone();
        for (&node, entry) in map.nodes.iter().filter(|&(&node, _)| node != self.options.me) {
            // An older build does not know the frame.
            if entry.level < COMPARES_STATES {
                continue;
            }
            let is_shared = |report: &&StateReport| {
                map.partition(report.partition).replicas.values().any(|&replica| replica == node)
            };
            let reports: Vec<StateReport> = told.iter().filter(is_shared).copied().collect();
            if !reports.is_empty() {
                self.send(node, &Frame::States(reports), effects);
            }
        }
    }

    /// Another node says what its replicas hold.
    pub(super) fn hear_states(
        &mut self,
        from: NodeId,
        reports: &[StateReport],
        effects: &mut ClusterEffects,
    ) {
        let map = self.map().clone();
        for &StateReport { partition, epoch, digest } in reports {
            let is_replica = map.partition(partition).replicas.values().any(|&replica| replica == from);
            if !is_replica || self.engine(partition).is_none() {
                continue;
            }
            let kept = self.comparison.others.entry((partition, from)).or_default();
            if keep(kept, epoch, digest) {
                self.compare_state(partition, from, epoch, effects);
            }
            if self.is_stopped() {
                return;
            }
        }
        let is_replica = |partition: PartitionId, node: NodeId| {
            map.partition(partition).replicas.values().any(|&replica| replica == node)
        };
        self.comparison.others.retain(|&(partition, node), _| is_replica(partition, node));
        self.comparison.differing.retain(|&(partition, node), _| is_replica(partition, node));
    }

    fn compare_state(
        &mut self,
        partition: PartitionId,
        node: NodeId,
        epoch: Epoch,
        effects: &mut ClusterEffects,
    ) {
        let (me, map) = (self.options.me, self.map().clone());
        let verdict = self.comparison.judge(me, &map, partition, node, epoch);
        let of = |reports: Option<&Reports>| reports.and_then(|reports| reports.get(&epoch)).copied();
        let own = of(self.comparison.own.get(&partition)).unwrap_or_default();
        let other = of(self.comparison.others.get(&(partition, node))).unwrap_or_default();
        match verdict {
            None | Some(Verdict::Agreed) => {}
            Some(Verdict::IsMinority(majority)) => {
                self.end_diverged(partition, epoch, (own, majority), effects);
            }
            Some(Verdict::Differs { is_first: false, .. }) => {}
            Some(Verdict::Differs { other_is_minority: true, .. }) => effects.warnings.push(format!(
                "the replica of {partition} at {node} has diverged: at the end of epoch {} its state digest \
                 is {other:016x}, and that of this node and of a majority of the replicas is {own:016x}. It \
                 halts by itself; stop {node} if it does not, remove its data directory, and replace it",
                epoch.0
            )),
            Some(Verdict::Differs { other_is_minority: false, .. }) => effects.warnings.push(format!(
                "the replicas of {partition} differ: at the end of epoch {} the state digest of this node \
                 is {own:016x}, and that of {node} is {other:016x}. No majority says which one is wrong, so \
                 both go on: compare their data, and replace the node that is wrong",
                epoch.0
            )),
        }
    }

    /// A majority of the replicas of a partition holds something else than this node: the second digest.
    fn end_diverged(
        &mut self,
        partition: PartitionId,
        epoch: Epoch,
        (own, majority): (u64, u64),
        effects: &mut ClusterEffects,
    ) {
        let cause = format!(
            "its replica of {partition} has diverged: at the end of epoch {} its state digest is {own:016x}, \
             and a majority of the replicas has {majority:016x}",
            epoch.0
        );
        let text = format!(
            "this node holds something else than the others: {cause}. It serves nobody any more. Keep a copy \
             of its data directory for a report of this bug, remove the directory, and replace this node: \
             add one under a new name, and remove this one. If it is started with its data again, it may \
             serve what is wrong until it halts again"
        );
        self.end(text, effects);
        let map = self.map().clone();
        let frame = Frame::Condition(Condition::Out(cause));
        for &node in map.nodes.keys().filter(|&&node| node != self.options.me) {
            self.send(node, &frame, effects);
        }
    }

    /// Which partition's replica at a node is known to have diverged: a majority of the replicas differs from
    /// it.
    pub fn diverged(&self, node: NodeId) -> Option<PartitionId> {
        let mut differing = self.comparison.differing.iter();
        let found = differing.find(|&(&(_, other), &is_minority)| other == node && is_minority);
        found.map(|(&(partition, _), _)| partition)
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
            keep(comparison.others.entry((P0, node)).or_default(), epoch, digest);
            last = comparison.judge(ME, &map, P0, node, epoch);
        }
        last
    }

    #[test]
    fn only_a_majority_without_this_replica_halts_it() {
        let differs = |other_is_minority| Some(Verdict::Differs { other_is_minority, is_first: true });
        assert_eq!(verdict(2, &[1]), Some(Verdict::Agreed));
        assert_eq!(verdict(2, &[2]), differs(false));
        assert_eq!(verdict(3, &[2]), differs(false));
        assert_eq!(verdict(3, &[2, 2]), Some(Verdict::IsMinority(2)));
        assert_eq!(verdict(3, &[2, 3]), differs(false));
        assert_eq!(verdict(3, &[1, 2]), differs(true));
        assert_eq!(verdict(4, &[2, 2]), differs(false));
        assert_eq!(verdict(4, &[2, 2, 2]), Some(Verdict::IsMinority(2)));
        assert_eq!(verdict(5, &[2, 2, 3]), differs(false));
        assert_eq!(verdict(5, &[2, 2, 3, 2]), Some(Verdict::IsMinority(2)));
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
