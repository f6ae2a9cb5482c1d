//! A cluster on one machine: a process per node, each in a zone of its own.
//!
//! [`LocalCluster::prepare`] makes (or finds) the directory with the cluster's description,
//! [`Processes::start`] starts what [`Launch`]es say and waits until everybody answers, and [`supervise`]
//! tells what happens to them until it is told to stop them. The last two know nothing of clusters: they keep
//! any processes that speak RESP.
//!
//! A node's death is what a local cluster is for trying out, so it ends nothing: it is reported, with the
//! command that starts the node again.

mod plan;
mod processes;
mod supervise;

pub use certify::hierarchy::Control;
pub use plan::{
    LOCAL_NODES_MAX, LOCAL_SITES_MAX, LocalCluster, LocalProtocol, LocalTree, PORT_DEFAULT, Wishes,
};
pub use processes::{Ended, Launch, Processes};
pub use supervise::{Event, supervise};

use super::ClusterConfigError;
use crate::launcher::ProcessError;
use std::io;

/// Why there is no local cluster.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// What is there describes no cluster.
    #[error(transparent)]
    Config(#[from] ClusterConfigError),
    /// What was asked for cannot be, or not together with what is there.
    #[error("{0}")]
    Wish(String),
    /// A file or a directory cannot be used.
    #[error("{path} cannot be {what}: {cause}")]
    File {
        /// Which.
        path: String,
        /// Read, written or made.
        what: &'static str,
        /// Why.
        cause: io::Error,
    },
    /// A node did not come up. The others were stopped.
    #[error(transparent)]
    NotUp(#[from] ProcessError),
    /// It was told to stop before everybody was up.
    #[error("stopped before every node was up")]
    Interrupted,
    /// All nodes have ended.
    #[error("no node runs any more: the same command starts them all again, with their data")]
    NoneLeft,
    /// Nobody can be told what happens.
    #[error("the output cannot be written: {0}")]
    Output(io::Error),
}

// By hand: whoever prints the chain of a derived one would print its cause twice.
impl From<io::Error> for LocalError {
    fn from(cause: io::Error) -> LocalError {
        LocalError::Output(cause)
    }
}
