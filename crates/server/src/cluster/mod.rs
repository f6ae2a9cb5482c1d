//! A node of a cluster, for real: its peers, what it tells of the cluster, and what operators change.

mod change;
mod status;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use change::{ChangeAnswer, ChangeOutcome, ChangeTicket, ClusterChange};
pub use status::{ClusterStatus, NodeStatus, PartitionStatus, ReplicaStatus};
pub use view::ClusterView;
