//! Vector clocks and commit stamps (section III-A).

use super::Incarnation;
use super::codec::{Form, Input};
use std::collections::{BTreeMap, BTreeSet};
use txn::{NodeId, PartitionId, Position};

/// The number that a replica's site has given to a transaction in a partition. A site has two sequences in
/// each partition and incarnation. Its own transactions' numbers start above [`super::Incarnation::base`].
/// The numbers that it grants to transactions of other sites start above [`CommitStamp::granted_base`].
/// Neither sequence has gaps, except where a granter has lost its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitStamp {
    /// The replica's site.
    pub site: NodeId,
    /// In an incarnation 0, from 1.
    pub sequence: u64,
}

/// The numbers of an incarnation that have this bit are granted ones.
const GRANTED: u64 = 1 << 39;

impl CommitStamp {
    /// The number before the first one that an incarnation grants.
    pub const fn granted_base(incarnation: Incarnation) -> u64 {
        incarnation.base() | GRANTED
    }

    /// The last number that an incarnation may give to an update of its own: those with a higher one would
    /// be taken for granted ones.
    pub(super) const fn own_last(incarnation: Incarnation) -> u64 {
        CommitStamp::granted_base(incarnation) - 1
    }

    /// The incarnation of the stamp's site that has given the number.
    pub fn incarnation(self) -> Incarnation {
        Incarnation::of(self.sequence)
    }

    /// Whether a site has given the number to a transaction of another site (`grant.rs`).
    pub fn is_granted(self) -> bool {
        self.sequence & GRANTED != 0
    }

    /// Whether an incarnation can have granted the number.
    pub(super) fn is_of_a_grant(self) -> bool {
        let incarnation = self.incarnation();
        CommitStamp::granted_base(incarnation) < self.sequence && self.sequence <= incarnation.last()
    }

    /// A number that no other version of a key has. Positions of versions by different sites have no order.
    pub(super) fn position(self) -> Position {
        Position(u64::from(self.site.0) << 48 | self.sequence)
    }
}

const _: () = assert!(
    Incarnation(u8::MAX).last() < 1 << 48,
    "the number of an update has room beside that of its site"
);

/// The updates that are counted in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorClock {
    /// The number of each site's own updates: these are counted in order.
    counts: BTreeMap<NodeId, u64>,
    /// The numbers that sites have granted, as the first and the last one of each run: these are counted in
    /// any order. No two runs touch, and no map is empty.
    granted: BTreeMap<NodeId, BTreeMap<u64, u64>>,
}

impl VectorClock {
    /// The number of a site's own updates.
    pub fn at(&self, site: NodeId) -> u64 {
        self.counts.get(&site).copied().unwrap_or(0)
    }

    /// The highest number counted that a site has granted; 0 if there is none.
    pub fn last_granted(&self, site: NodeId) -> u64 {
        self.runs(site).next_back().map_or(0, |(_, &last)| last)
    }

    fn runs(&self, site: NodeId) -> impl DoubleEndedIterator<Item = (&u64, &u64)> {
        self.granted.get(&site).into_iter().flatten()
    }

    /// Whether this run of granted numbers is counted.
    fn has_run(&self, site: NodeId, (first, last): (u64, u64)) -> bool {
        let runs = self.granted.get(&site);
        let before = runs.and_then(|runs| runs.range(..=first).next_back());
        before.is_some_and(|(_, &end)| end >= last)
    }

    /// Whether this update is counted.
    pub fn sees(&self, stamp: CommitStamp) -> bool {
        match stamp.is_granted() {
            true => self.has_run(stamp.site, (stamp.sequence, stamp.sequence)),
            false => self.at(stamp.site) >= stamp.sequence,
        }
    }

    /// Whether all that the other clock counts is counted.
    pub fn covers(&self, other: &VectorClock) -> bool {
        self.missing(other).next().is_none()
    }

    /// The last number of each site's own updates, and of each granted run, of the other clock in which some
    /// number is not counted.
    pub(super) fn missing<'a>(&'a self, other: &'a VectorClock) -> impl Iterator<Item = CommitStamp> + 'a {
        let own = other.counts.iter().map(|(&site, &sequence)| CommitStamp { site, sequence });
        let granted = other.granted.iter().flat_map(move |(&site, runs)| {
            let missing = runs.iter().filter(move |&(&first, &last)| !self.has_run(site, (first, last)));
            missing.map(move |(_, &sequence)| CommitStamp { site, sequence })
        });
        own.filter(|last| self.at(last.site) < last.sequence).chain(granted)
    }

    /// The last number counted of each site's own updates, and of each run that a site has granted.
    pub(super) fn lasts(&self) -> impl Iterator<Item = CommitStamp> {
        let own = self.counts.iter().map(|(&site, &sequence)| CommitStamp { site, sequence });
        let granted = self
            .granted
            .iter()
            .flat_map(|(&site, runs)| runs.values().map(move |&sequence| CommitStamp { site, sequence }));
        own.chain(granted)
    }

    /// Counts this update; if its number is one of its site's own, also those before it.
    pub fn count(&mut self, stamp: CommitStamp) {
        if stamp.is_granted() {
            return self.add_run(stamp.site, (stamp.sequence, stamp.sequence));
        }
        let sequence = self.counts.entry(stamp.site).or_default();
        *sequence = (*sequence).max(stamp.sequence);
    }

    fn add_run(&mut self, site: NodeId, (mut first, mut last): (u64, u64)) {
        let runs = self.granted.entry(site).or_default();
        while let Some((&start, &end)) = runs.range(..=last.saturating_add(1)).next_back() {
            if end.saturating_add(1) < first {
                break;
            }
            (first, last) = (first.min(start), last.max(end));
            runs.remove(&start);
        }
        runs.insert(first, last);
    }

    /// Counts all numbers that a site has granted before an incarnation, except these.
    pub(super) fn count_granted_before(
        &mut self,
        site: NodeId,
        incarnation: Incarnation,
        except: &BTreeSet<u64>,
    ) {
        for earlier in (0..incarnation.0).map(Incarnation) {
            let mut first = CommitStamp::granted_base(earlier) + 1;
            for &sequence in except.range(first..=earlier.last()) {
                if first < sequence {
                    self.add_run(site, (first, sequence - 1));
                }
                first = sequence + 1;
            }
            if first <= earlier.last() {
                self.add_run(site, (first, earlier.last()));
            }
        }
    }

    /// Counts all that the other clock counts.
    pub fn merge(&mut self, other: &VectorClock) {
        other.counts.iter().for_each(|(&site, &sequence)| self.count(CommitStamp { site, sequence }));
        for (&site, runs) in &other.granted {
            runs.iter().for_each(|(&first, &last)| self.add_run(site, (first, last)));
        }
    }

    /// Counts this update and those with lower numbers of its sequence that another clock counts. So this
    /// clock has no more runs than the other one.
    pub(super) fn count_among(&mut self, stamp: CommitStamp, counted: &VectorClock) {
        self.count(stamp);
        for (&first, &last) in counted.runs(stamp.site).filter(|(first, _)| **first <= stamp.sequence) {
            self.add_run(stamp.site, (first, last.min(stamp.sequence)));
        }
    }

    /// A deliberate defect: the site's last number counts as free.
    pub(super) fn step_back(&mut self, site: NodeId) {
        self.counts.entry(site).and_modify(|sequence| *sequence = sequence.saturating_sub(1));
    }
}

impl Form for VectorClock {
    fn put(&self, out: &mut Vec<u8>) {
        self.counts.put(out);
        self.granted.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<VectorClock> {
        let counts: BTreeMap<NodeId, u64> = Form::take(input)?;
        let granted: BTreeMap<NodeId, BTreeMap<u64, u64>> = Form::take(input)?;
        let last = Incarnation(u8::MAX).last();
        let are_runs = granted.iter().all(|(&site, runs)| {
            let mut after = 0;
            let is_run = |(&first, &end): (&u64, &u64)| {
                let is_next = first > after && first <= end && end <= last;
                let is_granted = |sequence| CommitStamp { site, sequence }.is_granted();
                after = end.saturating_add(1);
                is_next && is_granted(first) && is_granted(end)
            };
            !runs.is_empty() && runs.iter().all(is_run)
        });
        let is_own = |(&site, &sequence): (&NodeId, &u64)| {
            sequence <= last && !CommitStamp { site, sequence }.is_granted()
        };
        (are_runs && counts.iter().all(is_own)).then_some(VectorClock { counts, granted })
    }
}

/// Counts in the clock of a partition all that another clock counts.
pub(super) fn merge_into(
    clocks: &mut BTreeMap<PartitionId, VectorClock>,
    partition: PartitionId,
    clock: &VectorClock,
) {
    clocks.entry(partition).or_default().merge(clock);
}
