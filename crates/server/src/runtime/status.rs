//! What INFO and metrics tell of a node.

use crate::observe::DurationCounts;
use log::LogStatus;
use std::sync::Arc;
use txn::{Epoch, PartitionId, Position};

/// Counters and places of a node. Positions are those of all partitions that it keeps, added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberStatus {
    /// The last positions that the engines were given.
    pub delivered: Position,
    /// The last positions that are final.
    pub confirmed: Position,
    /// The last final-committed positions.
    pub final_committed: Position,
    /// Epochs that were confirmed since the start.
    pub epochs: u64,
    /// Bytes of requests of this node's clients that are not known to be in the order.
    pub in_flight_bytes: u64,
    /// Syncs of the journal that succeeded since the start.
    pub syncs: u64,
    /// Writes of the journal that failed since the start.
    pub write_failures: u64,
    /// Syncs of the journal that failed since the start.
    pub sync_failures: u64,
    /// Bytes of log since the last checkpoint.
    pub log_bytes_since_checkpoint: u64,
    /// Whether a checkpoint is being written.
    pub checkpoint_in_progress: bool,
    /// The epoch of the newest checkpoint that a start finds.
    pub checkpoint: Epoch,
    /// When the last checkpoint was written, in milliseconds since 1970; 0 if not by this process.
    pub last_checkpoint_at_ms: u64,
    /// The size of the last checkpoint's files; 0 if none was written by this process.
    pub last_checkpoint_bytes: u64,
    /// Checkpoints that were written since the start.
    pub checkpoints: u64,
    /// Checkpoints that could not be written since the start.
    pub checkpoints_failed: u64,
    /// Why the last attempt to write a checkpoint failed.
    pub checkpoint_error: Option<String>,
    /// Why requests are refused, if they are.
    pub refused: Option<Arc<str>>,
}

/// Counters and places of a running node.
#[derive(Clone, Debug)]
pub struct RuntimeStatus {
    /// The node: positions, epochs, syncs, failures, checkpoints, why requests are refused.
    pub node: MemberStatus,
    /// The engine: restarts, suspensions, the speculation window. Of the first partition if there are
    /// several.
    pub engine: execute::Status,
    /// The engines of all partitions that the node keeps.
    pub engines: Vec<(PartitionId, execute::Status)>,
    /// How long the syncs of the log took since the start.
    pub log_syncs: DurationCounts,
    /// The journal: segments and places.
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
