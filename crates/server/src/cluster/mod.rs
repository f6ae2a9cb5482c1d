//! A node of a cluster, for real: its peers, what it tells of the cluster, and what operators change.

mod change;
pub mod config;
pub mod geo;
pub mod hierarchy;
pub mod identity;
pub mod join;
mod joiners;
pub mod local;
mod problems;
mod status;
#[cfg(test)]
pub(crate) mod tests;
mod view;

pub use agree::Delivery;
pub(crate) use change::called;
pub use change::{ChangeAnswer, ChangeOutcome, ChangeTicket, ClusterChange, Ticket, TicketAnswer};
pub use config::{
    ClusterConfig, ClusterConfigError, ClusterNode, HeldOpen, Leaders, Protocol, Secret, Sites, Validator,
    Validators,
};
pub use joiners::Joiners;
pub use problems::{Problem, Severity, Verdict, problems, verdict};
pub use status::{ClusterStatus, NodeStatus, PartitionStatus, ReplicaStatus, SlotKeys};
pub use view::{ClusterCounters, ClusterView};
