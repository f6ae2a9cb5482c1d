//! What a node knows of its cluster, for those who answer clients.

use super::ClusterStatus;
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
    /// How long ago, in milliseconds, this node last knew to have executed everything that was agreed. What a READONLY
    /// connection reads may be as old.
    pub staleness_ms: u64,
    /// What ORDO.CLUSTER STATUS replies.
    pub status: Arc<ClusterStatus>,
}
