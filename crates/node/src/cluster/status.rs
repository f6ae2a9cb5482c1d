//! What operators are told of a node.

use super::compare::Compared;
use super::feeds::Said;
use txn::Epoch;

/// Counters and places of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The last delivered epoch.
    pub delivered: Epoch,
    /// The last confirmed epoch.
    pub confirmed: Epoch,
    /// Epochs that were confirmed since the start.
    pub epochs: u64,
    /// Epochs that were taken back since the start.
    pub retracted: u64,
    /// Batches that came ahead of their group's log.
    pub ahead: u64,
    /// How often batches ahead of a log became void.
    pub ahead_void: u64,
    /// Epochs that were delivered before they were agreed on, and confirmed since.
    pub epochs_ahead: u64,
    /// For how long these had been delivered before, in sum.
    pub overlap_ms: u64,
    /// What siblings here have said to those of other nodes.
    pub said: Said,
    /// Requests of this process's clients that are not known to be in the order.
    pub waiting: u64,
    /// What was compared with other replicas' states.
    pub compared: Compared,
    /// Strict reads that wait.
    pub reads_waiting: usize,
    /// Their bytes.
    pub waiting_bytes: u64,
    /// Bytes of batches that wait to be given to the engines.
    pub backlog_bytes: u64,
    /// How often that was too much, so that no more was taken from others.
    pub backlog_full: u64,
    /// Bytes of agreed batches since the last checkpoint was ordered.
    pub log_bytes_since_checkpoint: u64,
    /// The epoch of the newest checkpoint that counts: a start finds it. 0 if there is none.
    pub newest_checkpoint: Epoch,
    /// Behind which epoch the logs on the disk begin.
    pub log_begin: Epoch,
    /// Part of the log is gone, and no checkpoint has yet what it held.
    pub has_lost_log: bool,
    /// Syncs of the journal that went well since the start.
    pub syncs: u64,
    /// Syncs of the journal that failed since the start.
    pub sync_failures: u64,
    /// Writes of the journal that failed since the start.
    pub write_failures: u64,
    /// Why this node takes no part, if it does not: what clients are told.
    pub stopped: Option<String>,
    /// Whether that is for good.
    pub is_over: bool,
}
