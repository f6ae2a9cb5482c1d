//! What a node knows of its cluster, for those who answer clients.

use super::ClusterStatus;
use crate::peers::PeerStats;
use agree::Delivery;
use order::PartitionMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{NodeId, PartitionId};

/// The cluster as this node sees it now.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The partition map.
    pub map: Arc<PartitionMap>,
    /// The map that the cluster was founded with.
    pub first_map: Arc<PartitionMap>,
    /// This node.
    pub me: NodeId,
    /// Who leads each partition, where that is known.
    pub leaders: BTreeMap<PartitionId, NodeId>,
    /// The nodes from which nothing was heard for a while.
    pub unreachable: Vec<NodeId>,
    /// The last epoch that this node has executed.
    pub epoch: u64,
    /// The last epoch that the engines of this node were given: `epoch <= epoch_delivered`.
    pub epoch_delivered: u64,
    /// How long ago, in milliseconds, this node last knew to have executed everything that was agreed. What a
    /// READONLY connection reads may be as old.
    pub staleness_ms: u64,
    /// The links to the other nodes.
    pub peers: PeerStats,
    /// What this node has done since it started.
    pub counters: ClusterCounters,
    /// What ORDO.CLUSTER STATUS replies.
    pub status: Arc<ClusterStatus>,
}

/// What a node has done since its process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterCounters {
    /// Epochs that were confirmed.
    pub epochs: u64,
    /// Times that epochs were taken back, because another leader's batch replaced one.
    pub retracted: u64,
    /// How groups agree.
    pub delivery: Delivery,
    /// Batches that came ahead of their group's log.
    pub opt_batches: u64,
    /// How often batches ahead of a log became void, because another leader ordered otherwise.
    pub reorders: u64,
    /// Epochs that were delivered before they were agreed on, and confirmed since.
    pub epochs_ahead: u64,
    /// For how long these had been delivered before, in sum.
    pub overlap_ms: u64,
    /// Transactions that final-committed here, in all partitions that the node keeps. Counts from the
    /// checkpoint that the node started from.
    pub transactions: u64,
    /// Of those, the ones that had speculatively committed when their epoch was confirmed.
    pub speculated_before_confirmation: u64,
    /// Incarnations of transactions that were thrown away.
    pub restarts: u64,
    /// Rounds in which a partition had something to say to siblings at another node: see
    /// [`node::cluster::Said`].
    pub sibling_rounds: u64,
    /// Messages that took it there.
    pub sibling_frames: u64,
    /// What was said.
    pub sibling_notes: u64,
    /// How often another node was told no more of a group, because more waited for it than there is room for.
    pub feeds_lapsed: u64,
    /// Bytes of batches that wait to be given to the engines.
    pub backlog_bytes: u64,
    /// How often that was too much, so that no more was taken from others for a while.
    pub backlog_full: u64,
    /// State digests of other replicas that were compared with those of this node.
    pub states_compared: u64,
    /// Of those, the ones that differed: a replica has diverged.
    pub states_differing: u64,
    /// The newest epoch of which digests were compared.
    pub states_epoch: u64,
    /// Messages that were sent to other nodes.
    pub messages_sent: u64,
    /// Their bytes.
    pub message_bytes_sent: u64,
    /// Messages of other nodes.
    pub messages_received: u64,
    /// Their bytes.
    pub message_bytes_received: u64,
}
