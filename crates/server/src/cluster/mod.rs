//! A node of a cluster, for real: its peers, and what it tells of the cluster.

mod status;
mod view;

pub use status::{ClusterStatus, NodeStatus, PartitionStatus, ReplicaStatus};
pub use view::ClusterView;
