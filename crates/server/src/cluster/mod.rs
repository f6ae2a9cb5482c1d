//! A node of a cluster, for real: its peers, and what it tells of the cluster.

pub mod config;
pub mod local;
mod status;
mod view;

pub use config::{ClusterConfig, ClusterConfigError, ClusterNode, Leaders, Secret};
pub use status::{ClusterStatus, NodeStatus, PartitionStatus, ReplicaStatus};
pub use view::ClusterView;
