//! What a backup asks of a node.

use super::ClusterNode;
use log::Base;
use txn::{Epoch, PartitionId};

impl ClusterNode {
    /// A backup copies a partition's file of the checkpoint of an epoch: the base that goes with the file.
    /// `None` if this node does not have the file, or no longer. The file stays for a while from now on.
    pub fn copied_checkpoint(&mut self, partition: PartitionId, epoch: Epoch) -> Option<Base> {
        if !self.checkpoints.asked(partition, epoch, self.ticks) {
            return None;
        }
        self.checkpoints.bases_of(epoch)?.get(&partition).cloned()
    }

    /// The epochs of the checkpoints that this node has and behind which its log has the order, oldest
    /// first.
    pub fn followed_checkpoints(&self) -> Vec<Epoch> {
        self.checkpoints.followed().collect()
    }

    /// Up to which index each group of this node has agreed on entries that are in the journal.
    pub fn agreed_in_journal(&self) -> Vec<(PartitionId, u64)> {
        let agreed = self.groups.iter().map(|(&partition, group)| {
            let status = group.status();
            (partition, status.committed.min(status.persisted))
        });
        agreed.collect()
    }
}
