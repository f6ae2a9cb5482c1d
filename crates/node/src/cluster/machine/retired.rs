//! What this node keeps, and what it notes of replicas that have moved away ([`crate::cluster::retired`]).

use super::{ClusterEffects, ClusterNode, Then};
use crate::cluster::retired::Retired;
use log::Kept;
use std::collections::BTreeSet;
use txn::PartitionId;

impl ClusterNode {
    /// What the map wants this node to keep, without what it has given away under a newer map than its own.
    pub(super) fn kept(&self) -> BTreeSet<PartitionId> {
        let map = self.map();
        let has_moved = |partition: &PartitionId| {
            let retired = self.retired.get(partition);
            retired.is_some_and(|retired| retired.is_newer_than(map.version))
        };
        let kept = map.kept_by(self.options.me);
        kept.filter(|partition| !has_moved(partition)).collect()
    }

    /// Groups go on without this node, which keeps others: it notes what it has promised there, and starts
    /// anew without them.
    pub(super) fn retire(&mut self, version: u32, effects: &mut ClusterEffects) {
        let left: Vec<PartitionId> = self.membership.left().collect();
        for partition in left {
            let Some(group) = self.groups.get(&partition) else {
                continue;
            };
            let retired = Retired::of(&**group, version);
            let kept = retired.kept(partition);
            self.retired.insert(partition, retired);
            self.record(kept, effects);
            let text = format!("{partition} has moved to another node: starts anew without it");
            effects.warnings.push(text);
        }
        if self.is_spread {
            self.start_behind_newest(effects);
        }
        self.groups.wait_for(Then::Installed);
        self.transfer.end();
    }

    /// What the journal holds of replicas that have moved away, for a record that lets its older ones go.
    pub(super) fn retired_again(&self) -> impl Iterator<Item = Kept> {
        let retired = self.retired.iter();
        retired.map(|(&partition, retired)| retired.kept(partition))
    }
}
