//! What a node of a cluster is told at its start.

use super::levels::LEVEL;
use crate::clock::BOUND_MS;
use crate::options::{CHECKPOINT_BYTES_DEFAULT, FsyncPolicy, Limits};
use agree::{Delivery, OPT_BATCHES_MAX};
use order::Skips;
use std::sync::Arc;
use txn::{NodeId, Procedure};

/// What a node of a cluster is told at its start.
#[derive(Clone)]
pub struct ClusterOptions {
    /// Which node it is.
    pub me: NodeId,
    /// It stands alone: no other node is part of its cluster, or ever will be.
    pub alone: bool,
    /// Decides when replicas stand for election, beside their numbers.
    pub seed: u64,
    /// How groups agree: the same at all nodes.
    pub delivery: Delivery,
    /// When an entry counts as kept.
    pub fsync: FsyncPolicy,
    /// Bounds on what is on its way.
    pub limits: Limits,
    /// How long a tick is.
    pub tick_ms: u64,
    /// A checkpoint is ordered after as many bytes of log as the last one has, and this many at least. 0
    /// means only on demand.
    pub checkpoint_bytes: u64,
    /// A group's entries that a checkpoint covers are kept in memory, for replicas that are a little behind,
    /// while its log has at most so many bytes.
    pub trail_bytes_max: u64,
    /// How many bytes of batches may wait to be executed before this node takes no more of them from others.
    pub backlog_bytes_max: u64,
    /// How many epochs a group may have begun that are not confirmed.
    pub epochs_in_flight_max: usize,
    /// Whether epochs are executed while they are being agreed on. If not, they are delivered when they are
    /// confirmed: only to measure what that costs.
    pub speculate: bool,
    /// What nodes tell each other of groups, and is larger than this, travels in parts of so many bytes.
    pub feed_part_bytes: usize,
    /// How much a node is told of groups, in all, that it has not said to have heard.
    pub feed_window_bytes: u64,
    /// By how much a clock may be off before it counts as wrong, and the cluster's date before it is
    /// corrected.
    pub clock_bound_ms: u64,
    /// When a client is told that nobody knows how its request ended.
    pub request_timeout_ms: u64,
    /// The newest behaviour that this process knows: [`LEVEL`], but in tests of upgrades.
    pub level: u32,
    /// The name of the zone whose nodes should lead, as long as they can. None spreads the leaders over the
    /// zones.
    pub leaders_in: Option<String>,
    /// Removes the keys that are its arguments if they have expired.
    pub expire: Option<Arc<dyn Procedure>>,
    /// The same for keys of the system's space, which its arguments name.
    pub expire_system: Option<Arc<dyn Procedure>>,
    /// What is not executed: the same at all nodes.
    pub skips: Arc<Skips>,
}

/// How many epochs a group may have begun that are not confirmed, where it sends batches ahead: one
/// final-batch is being agreed on while the next one is filled.
const EPOCHS_IN_FLIGHT_MIMOX: usize = 16;
const _: () = assert!(EPOCHS_IN_FLIGHT_MIMOX >= 2 * OPT_BATCHES_MAX, "a final-batch could never be full");

impl ClusterOptions {
    /// The same, with groups that agree like this.
    pub fn delivering_by(self, delivery: Delivery) -> ClusterOptions {
        let epochs_in_flight_max = match delivery {
            Delivery::Raft => self.epochs_in_flight_max,
            Delivery::Mimox => EPOCHS_IN_FLIGHT_MIMOX,
        };
        ClusterOptions { delivery, epochs_in_flight_max, ..self }
    }

    /// The defaults for a node.
    pub fn new(me: NodeId) -> ClusterOptions {
        ClusterOptions {
            me,
            alone: false,
            seed: 0,
            delivery: Delivery::default(),
            fsync: FsyncPolicy::Always,
            limits: Limits::default(),
            tick_ms: 50,
            checkpoint_bytes: CHECKPOINT_BYTES_DEFAULT,
            trail_bytes_max: 32 << 20,
            backlog_bytes_max: 64 << 20,
            epochs_in_flight_max: 4,
            speculate: true,
            feed_part_bytes: 256 << 10,
            feed_window_bytes: 16 << 20,
            clock_bound_ms: BOUND_MS,
            request_timeout_ms: 10_000,
            level: LEVEL,
            leaders_in: None,
            expire: None,
            expire_system: None,
            skips: Arc::default(),
        }
    }

    /// The defaults for a node that stands alone, in [`order::PartitionMap::alone`].
    pub fn alone() -> ClusterOptions {
        ClusterOptions {
            alone: true,
            tick_ms: 100,
            // One sync is on its way at a time, and what comes meanwhile shares the next one.
            epochs_in_flight_max: 256,
            // Nobody else could have an answer sooner than the disk.
            request_timeout_ms: u64::MAX,
            ..ClusterOptions::new(NodeId(1))
        }
    }
}
