//! What ORDO.CLUSTER STATUS replies, as JSON: what operators and tools read.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What ORDO.CLUSTER SLOTKEYS replies: how many keys each slot has, of the partitions that a node keeps.
/// Slots without any are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotKeys {
    /// By partition and slot.
    pub partitions: BTreeMap<u16, BTreeMap<u16, u64>>,
}

/// The cluster as one node sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: String,
    /// The version of the partition map.
    pub map_version: u32,
    /// The behaviour that is in force.
    pub level: u32,
    /// The last epoch that this node has executed.
    pub epoch: u64,
    /// The node that answers.
    pub me: u16,
    /// The nodes.
    pub nodes: Vec<NodeStatus>,
    /// The partitions.
    pub partitions: Vec<PartitionStatus>,
}

/// A node, as another sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub id: u16,
    /// Its name.
    pub name: String,
    /// Its zone's name.
    pub zone: String,
    /// Where other nodes reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
    /// Its newest process; 0 if none has ever started.
    pub boot: u32,
    /// The newest behaviour that it knows.
    pub level: u32,
    /// Whether the node that answers hears from it.
    pub reachable: bool,
    /// Why it takes no part in the cluster, if it has said so last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out: Option<String>,
    /// Whether it runs and has not joined yet, because it waits for something to keep: the node that answers
    /// was asked by it.
    #[serde(default)]
    pub waiting: bool,
    /// Whether it is about to leave for good.
    #[serde(default)]
    pub leaving: bool,
    /// By how many milliseconds its clock is ahead of the time of day that the answering node goes by, if
    /// that is more than `clock_ahead_ms_max`, and else 0. Negative if it is behind.
    #[serde(default)]
    pub clock_ahead_ms: i64,
}

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionStatus {
    /// Its number.
    pub id: u16,
    /// Its slots: first and last of each range.
    pub slots: Vec<(u16, u16)>,
    /// The node that leads it, if the one that answers knows.
    pub leader: Option<u16>,
    /// The leader's term; 0 if the one that answers does not know it.
    pub term: u64,
    /// Its replicas.
    pub replicas: Vec<ReplicaStatus>,
}

/// A replica of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaStatus {
    /// Who keeps it.
    pub node: u16,
    /// `leader`, `follower`, `learner` (it gets the data, and does not count yet), `expected` (it is to keep
    /// a replica, and has none), or `leaving` (it still has one that it is not to keep).
    pub role: String,
    /// How many entries of the group's log it does not have, as far as its leader (if that is the node that
    /// answers) knows: a leader that was just elected has heard of nobody.
    pub lag: Option<u64>,
}
