//! Waits for sites of other regions: a client asks that sites of its choice have what it has written.
//!
//! The client's writes have been acknowledged by then, as [`super::SiteOptions::sites_to_write_min`] and
//! [`super::SiteOptions::regions_to_write_min`] say. A site counts once it has acknowledged all updates up to
//! the client's last one: by then, they are in its log (`witness.rs`). The client hears [`Answer::Committed`]
//! when, in each group of sites that it names, enough sites of each partition that it has written count. It
//! hears [`Answer::Unknown`] if its time is up, or if too many of the sites are fenced: its writes may yet be
//! lost with the sites that have them. The wait ends within [`super::SiteOptions::sites_ticks_max`] ticks.

use super::{Pcsi, SiteEffects};
use crate::Answer;
use std::collections::BTreeSet;
use txn::{NodeId, PartitionId, Position, RequestId};

/// The writes of a client at its site: up to this commit of the site, in these partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    number: u64,
    partitions: BTreeSet<PartitionId>,
}

impl Written {
    /// The writes of a client up to this commit of its site, in these partitions.
    pub fn new(last: Position, partitions: BTreeSet<PartitionId>) -> Written {
        Written { number: last.0, partitions }
    }

    /// The client has written more.
    pub fn add(&mut self, later: Written) {
        self.number = self.number.max(later.number);
        self.partitions.extend(later.partitions);
    }
}

/// The sites that must have a client's writes: of each of these groups at least this number, as far as each
/// partition that the client has written is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Such as the sites of each region.
    pub groups: Vec<BTreeSet<NodeId>>,
    /// At least 1.
    pub sites_min: usize,
}

/// A client that waits.
#[derive(Debug)]
pub(super) struct RegionWait {
    pub id: RequestId,
    written: Written,
    demand: Demand,
    until_tick: u64,
}

const TOO_FEW_SITES: &str = "ERR a partition that the connection has written has fewer sites there: ask for \
                             fewer sites, or for another region";

impl Pcsi {
    /// The writes of a transaction of this site that has committed; `None` if it has not, has written
    /// nothing, or is no more the last one of its session.
    pub fn written(&self, id: RequestId) -> Option<Written> {
        self.requests.written(id)
    }

    /// A client waits for this number of ticks until other sites have its writes. The answer is
    /// [`Answer::Committed`], [`Answer::Unknown`], [`Answer::Refused`] where the partitions do not have so
    /// many sites, or [`Answer::Unavailable`] if too many clients wait.
    pub fn wait_for_sites(
        &mut self,
        id: RequestId,
        (written, demand): (Written, Demand),
        ticks: u64,
        effects: &mut SiteEffects,
    ) {
        if !self.meets(&written, &demand, |_| true) {
            return effects.answers.push((id, Answer::Refused(TOO_FEW_SITES.into())));
        }
        if self.region_waits.len() >= self.options.open_max {
            return effects.answers.push((id, Answer::Unavailable));
        }
        let until_tick = self.ticks + ticks.min(self.options.sites_ticks_max);
        self.region_waits.push(RegionWait { id, written, demand, until_tick });
        self.end_region_waits(effects);
    }

    /// Whether enough of the sites that a client demands are of this kind.
    fn meets(&self, written: &Written, demand: &Demand, is_one: impl Fn(NodeId) -> bool) -> bool {
        let is_enough = |of: &PartitionId, group: &BTreeSet<NodeId>| {
            let having = self.options.sites.sites(*of).iter();
            having.filter(|site| group.contains(site) && is_one(**site)).count() >= demand.sites_min
        };
        written.partitions.iter().all(|of| demand.groups.iter().all(|group| is_enough(of, group)))
    }

    /// Tells the clients whose wait is over.
    pub(super) fn end_region_waits(&mut self, effects: &mut SiteEffects) {
        let mut waits = std::mem::take(&mut self.region_waits);
        waits.retain(|RegionWait { id, written, demand, until_tick }| {
            let is_own = |site: NodeId| site == self.options.me;
            let has_it = |site| is_own(site) || self.outgoing.is_at(site, written.number);
            let is_here = |site| is_own(site) || !self.fences.excluded.contains(&site);
            let answer = if self.meets(written, demand, has_it) {
                Answer::Committed
            } else if self.ticks >= *until_tick || !self.meets(written, demand, is_here) {
                Answer::Unknown
            } else {
                return true;
            };
            effects.answers.push((*id, answer));
            false
        });
        self.region_waits = waits;
    }
}
