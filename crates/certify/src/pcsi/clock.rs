//! Vector clocks and commit stamps (section III-A).

use super::Incarnation;
use super::codec::{Form, Input};
use std::collections::BTreeMap;
use txn::{NodeId, PartitionId, Position};

/// The number that a replica's site has given to a transaction in a partition. The numbers of a site's
/// incarnation in a partition start above [`super::Incarnation::base`] and have no gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CommitStamp {
    /// The replica's site.
    pub site: NodeId,
    /// In an incarnation 0, from 1.
    pub sequence: u64,
}

impl CommitStamp {
    /// A number that no other version of a key has. Positions of versions by different sites have no order.
    pub(super) fn position(self) -> Position {
        Position(u64::from(self.site.0) << 48 | self.sequence)
    }
}

const _: () = assert!(
    Incarnation(u8::MAX).last() < 1 << 48,
    "the number of an update has room beside that of its site"
);

/// How many updates of each site are counted in one partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VectorClock(BTreeMap<NodeId, u64>);

impl VectorClock {
    /// The number of a site's updates.
    pub fn at(&self, site: NodeId) -> u64 {
        self.0.get(&site).copied().unwrap_or(0)
    }

    /// Whether this update is counted.
    pub fn sees(&self, stamp: CommitStamp) -> bool {
        self.at(stamp.site) >= stamp.sequence
    }

    /// Whether all that the other clock counts is counted.
    pub fn covers(&self, other: &VectorClock) -> bool {
        other.0.iter().all(|(&site, &sequence)| self.at(site) >= sequence)
    }

    /// Counts this update, and those of its site before it.
    pub fn count(&mut self, stamp: CommitStamp) {
        let sequence = self.0.entry(stamp.site).or_default();
        *sequence = (*sequence).max(stamp.sequence);
    }

    /// Counts all that the other clock counts.
    pub fn merge(&mut self, other: &VectorClock) {
        other.0.iter().for_each(|(&site, &sequence)| self.count(CommitStamp { site, sequence }));
    }

    /// A deliberate defect: the site's last number counts as free.
    pub(super) fn step_back(&mut self, site: NodeId) {
        self.0.entry(site).and_modify(|sequence| *sequence = sequence.saturating_sub(1));
    }
}

impl Form for VectorClock {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<VectorClock> {
        let counts: BTreeMap<NodeId, u64> = Form::take(input)?;
        let are_counts = counts.values().all(|&count| count <= Incarnation(u8::MAX).last());
        are_counts.then_some(VectorClock(counts))
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
