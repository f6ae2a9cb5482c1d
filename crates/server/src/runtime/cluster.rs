//! What a runtime tells those who ask for the cluster that its node is part of.

use super::{Routing, Runtime};
use crate::cluster::{ChangeTicket, ClusterChange, ClusterView};
use execute::conflicts::Conflicts;
use order::PartitionMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use store::{Keeping, View};
use txn::{Key, PartitionId, Position, Slots};

/// A node's part in its cluster, as sessions need it. Nothing here waits.
pub trait Membership: Send + Sync {
    /// The cluster as this node sees it now.
    fn view(&self) -> Arc<ClusterView>;
    /// Starts a change of the cluster. The ticket tells how it ends; the error, why it was not even started.
    fn change(&self, change: ClusterChange) -> Result<ChangeTicket, String>;
    /// Counts the keys of each slot, of the partitions that this node keeps: see
    /// [`crate::cluster::SlotKeys`]. The ticket gives it as JSON.
    fn slot_keys(&self) -> ChangeTicket;
    /// The records of a slot's partition; `None` if this node keeps no replica of it.
    fn store_of_slot(&self, slot: u16) -> Option<&dyn View>;
}

impl Runtime {
    /// Makes the node part of a cluster, before it is asked anything. False if it is part of one already.
    pub fn join(&self, membership: Arc<dyn Membership>) -> bool {
        self.membership.set(membership).is_ok()
    }

    /// The cluster as this node sees it now; `None` if the node is by itself.
    pub fn cluster_view(&self) -> Option<Arc<ClusterView>> {
        self.membership.get().map(|membership| membership.view())
    }

    /// Over how many partitions the keys are dealt.
    pub fn partitions_count(&self) -> usize {
        match self.certified.get() {
            Some(certified) => usize::from(certified.partitions()),
            None => self.inner.partitions_count,
        }
    }

    /// Whether there are nodes that do not keep all partitions.
    pub fn is_spread(&self) -> bool {
        self.inner.ports.is_spread()
    }

    /// As if there were nodes that do not keep all partitions.
    #[cfg(test)]
    pub(crate) fn seem_spread(&self) {
        self.inner.ports.set_spread(true);
    }

    /// Whether this node executes what writes a key: then it tells of that.
    pub fn keeps(&self, key: &Key) -> bool {
        self.end_for(key).is_some()
    }

    /// How far this node has committed in the partition that has a key, if it keeps that: whatever reads the
    /// key from now on, in any way, sees all of it.
    pub fn end_for(&self, key: &Key) -> Option<(PartitionId, Position)> {
        let partition = |map: &PartitionMap| map.slots().partition_of_key(key);
        let partition = self.inner.outside.routing.with(partition);
        let engine = self.inner.engines.of(partition)?;
        Some((partition, engine.view().final_position()))
    }

    /// By which version of the slots commands are routed.
    pub fn slots_version(&self) -> u32 {
        self.inner.outside.routing.with(|map| map.slots_version)
    }

    /// Brings what a session knows of the slots up to date.
    pub fn refresh_routing(&self, copy: &mut Routing) {
        if let Some(certified) = self.certified.get() {
            let partitions = certified.partitions();
            if copy.slots.of() != partitions {
                *copy = Routing { version: 0, slots: Slots::even(partitions) };
            }
            return;
        }
        self.inner.outside.routing.refresh(copy);
    }

    /// Whether what this node has is as new as READONLY connections are promised.
    pub fn is_fresh(&self, now_ms: u64) -> bool {
        let fresh_ms = self.inner.outside.fresh_ms.load(Ordering::Relaxed);
        now_ms.saturating_sub(fresh_ms) <= self.inner.staleness_ms_max
    }

    /// Why this node takes no part in its cluster, as clients are told; `None` if it does, or is by itself.
    pub fn out(&self) -> Option<Arc<str>> {
        if let Some(certified) = self.certified.get() {
            return certified.silence().map(|why| format!("MISCONF {why}").into());
        }
        let is_out = self.inner.outside.is_out.load(Ordering::Relaxed);
        is_out.then(|| self.inner.core.lock().status().0.refused).flatten()
    }

    /// How old what READONLY connections read may be, in milliseconds.
    pub fn staleness_ms_max(&self) -> u64 {
        self.inner.staleness_ms_max
    }

    /// Starts a change of the cluster: see [`Membership::change`].
    pub fn cluster_change(&self, change: ClusterChange) -> Result<ChangeTicket, String> {
        match self.membership.get() {
            Some(membership) => membership.change(change),
            None => Err(format!("this node is not part of a cluster, so it can't be that {change}")),
        }
    }

    /// How many keys each slot has: see [`Membership::slot_keys`]. `None` if the node is by itself.
    pub fn slot_keys(&self) -> Option<ChangeTicket> {
        self.membership.get().map(|membership| membership.slot_keys())
    }

    /// The partitions whose records this node is to keep an eye on: those that it leads, of those that it
    /// has. A node by itself leads its own.
    pub fn led(&self) -> Vec<(PartitionId, &dyn View)> {
        let cluster = self.cluster_view();
        let leads = |partition: PartitionId| match &cluster {
            Some(view) => view.leaders.get(&partition) == Some(&view.me),
            None => true,
        };
        let engines = self.inner.engines.with_partitions();
        engines
            .filter(|&(partition, _)| leads(partition))
            .map(|(partition, engine)| (partition, engine.view()))
            .collect()
    }

    /// The records of each partition that this node keeps.
    pub fn kept(&self) -> impl Iterator<Item = &dyn View> {
        self.inner.engines.iter().map(|engine| engine.view())
    }

    /// Over which keys transactions conflict, by the engines of the partitions that this node keeps.
    pub fn conflicts(&self) -> Conflicts {
        Conflicts::merged(self.inner.engines.iter().map(|engine| engine.conflicts()))
    }

    /// Looks through so many records of each partition for what nobody needs any more: sooner than the
    /// executors would in passing.
    pub fn collect(&self, records: usize) {
        for engine in self.inner.engines.iter() {
            engine.view().collect(records);
        }
    }

    /// Says what is kept from now on of how records are used, and the time: see [`View::keep_usage`].
    pub fn keep_usage(&self, keeping: Keeping, now_ms: u64) {
        for engine in self.inner.engines.iter() {
            engine.view().keep_usage(keeping, now_ms);
        }
    }

    /// The records of a slot: see [`Membership::store_of_slot`]. A node by itself has those of all slots.
    pub fn store_of_slot(&self, slot: u16) -> Option<&dyn View> {
        match self.membership.get() {
            Some(membership) => membership.store_of_slot(slot),
            None => Some(self.engine().view()),
        }
    }
}
