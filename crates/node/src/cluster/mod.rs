//! One node of a cluster as a state machine: a replica of some partitions, and a gateway to all of them.
//!
//! [`ClusterNode`] owns no thread, no file, no clock and no socket. Frames of other nodes, requests of
//! clients, the journal's completions and the clock's ticks come in ([`ClusterEvent`]); frames, records for
//! the journal and answers go out ([`ClusterEffects`]). A [`Host`](crate::host::Host) performs them, in one
//! loop ([`drive`](crate::host::drive)).
//!
//! # The life of a request
//!
//! 1. The node that accepted it is its *gateway*: it gives it a number in the stream of its home group and
//!    passes it to that group's leader ([`gateway`]), again and again until the group has it.
//! 2. The *leader* puts it into the batch of the next epoch ([`lead`]). A leader makes a batch when it has
//!    requests, and also, were it empty, when it hears that another group has begun an epoch: all groups go
//!    in lock-step.
//! 3. Every replica of the group appends the batch to its log. When a node holds the batches of all groups
//!    for an epoch, it *delivers* the epoch to its engines, which execute it at once, while agreement is
//!    under way.
//! 4. When all groups have agreed on their batches the epoch is *confirmed*, and the engines final-commit. If
//!    a leader fell and a batch was replaced, everything from that epoch on is *retracted* first.
//! 5. The gateway's own replica answers its clients: every node executes every transaction of its partitions.
//!    What it does not keep a neighbour executes for it ([`feeds`]), which also tells it of the groups that
//!    it has no part in.
//!
//! # Order of a connection
//!
//! All requests of a connection that are on their way at the same time have the same home, so they keep their
//! order whatever partitions they involve ([`txn::PartitionRoute`]).
//!
//! # Exactly once
//!
//! Streams have no gaps: a group's log is itself the record of what it has ([`order::Streams`]). A new leader
//! reads it there, so a request that is passed to it again gets no second place.
//!
//! # What is promised, and when
//!
//! All groups share one journal. What a turn of a group wants kept goes into one record with what the others
//! want, and what the turn promises (a vote, "I have this entry") leaves when the record is durable: always
//! for votes, and for entries under `always`; under `everysec` and `no` a written entry counts, as
//! `appendfsync` means it, and under `everysec` it is on its way to the disk within a second. What promises
//! nothing (an answer to a heartbeat, a question for a read index) leaves at once, unless its term is not
//! durable yet.
//!
//! # Checkpoints
//!
//! The order says at the end of which epochs they are taken ([`checkpoint`]). A replica whose leader no
//! longer has the entries that it lacks fetches one, and starts anew behind it ([`install`]).
//!
//! # Members
//!
//! The map, which is part of the order, says who should keep a replica of what. Each leader leads its group's
//! members there ([`members`]); a node of which nothing is left ends, and one that keeps something remembers
//! what it had promised elsewhere ([`retired`]). How a cluster begins, and why a founder without its data is
//! refused, is in [`bootstrap`].
//!
//! # Builds of several versions
//!
//! What the order means to a replica changes with a record of the order, once all nodes know the new meaning
//! ([`levels`]).
//!
//! # Failures
//!
//! * A node whose journal cannot be written or synced is out ([`out`]): it promises nothing, hands over what
//!   it leads, and tells the others. It comes back by itself once a write goes well again; a failed sync
//!   needs a restart.
//! * A frame that no node of the cluster can have sent is not used, and its sender loses its link
//!   ([`Host::sever`](crate::host::Host::sever)): see [`shape`]. Within the protocol peers are believed.
//! * A replica whose state digest differs from that of a majority of its partition's replicas ends its node
//!   ([`compare`]).
//! * A wall clock that is set, or wrong, moves no stamp: see [`crate::clock`].
//!
//! # Invariants
//!
//! 1. `final-committed <= confirmed <= delivered` at every engine; what is confirmed is agreed in all groups.
//! 2. A request of a live gateway is in its group's log at most once, and in the order of its stream.
//! 3. What another node needs is decided by what that node says of itself: maps differ while they change.
//! 4. What waits is bounded: requests by [`Limits`](crate::Limits), epochs by
//!    [`ClusterOptions::epochs_in_flight_max`].

mod bootstrap;
pub mod checkpoint;
mod clocks;
mod compare;
mod feeds;
mod frames;
mod gateway;
mod install;
mod lead;
mod leaders;
pub mod levels;
mod machine;
mod members;
mod out;
mod peers;
mod reads;
mod recover;
mod retired;
mod shape;
pub mod survivor;

pub use bootstrap::{IDENTITY, Nonces, Standing, is_group_of_alone, joined_record, stands_alone};
pub use checkpoint::{ClusterCheckpoint, LoadError, Written};
pub use compare::{COMPARED_EVERY, Compared, StateReport};
pub use feeds::{Answered, Fed, Item, Part, Said};
pub use frames::{Frame, FrameError, describe};
pub use install::{Piece, Whole, serve_piece, store_piece};
pub use leaders::TRANSFER_KEPT_MS;
pub use levels::LEVEL;
pub use machine::{ClusterEffects, ClusterEvent, ClusterNode, ClusterStatus};
pub use peers::Condition;
pub use recover::{ClusterRecoverError, ClusterStart, LoadedEngines, load_engines};

use crate::clock::BOUND_MS;
use crate::options::{CHECKPOINT_BYTES_DEFAULT, FsyncPolicy, Limits};
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

impl ClusterOptions {
    /// The defaults for a node.
    pub fn new(me: NodeId) -> ClusterOptions {
        ClusterOptions {
            me,
            alone: false,
            seed: 0,
            fsync: FsyncPolicy::Always,
            limits: Limits::default(),
            tick_ms: 50,
            checkpoint_bytes: CHECKPOINT_BYTES_DEFAULT,
            trail_bytes_max: 32 << 20,
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
