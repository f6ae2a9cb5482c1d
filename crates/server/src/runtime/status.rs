//! What INFO and metrics tell of a node.

use order::LogStatus;

/// Counters and places of a running node.
#[derive(Clone, Debug)]
pub struct RuntimeStatus {
    /// The node: positions, batches, syncs, failures, checkpoints, why writes are refused.
    pub node: node::Status,
    /// The engine: restarts, suspensions, the speculation window.
    pub engine: execute::Status,
    /// The log: segments and places.
    pub log: LogStatus,
    /// When the fsync policy counts a write as durable.
    pub fsync: node::FsyncPolicy,
    /// The name of the engine.
    pub engine_name: &'static str,
    /// Executor threads.
    pub workers: usize,
    /// Records written that no checkpoint has yet.
    pub changes_since_checkpoint: u64,
}
