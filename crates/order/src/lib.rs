//! The order: how the batches of all partitions become the one total order that every replica executes.
//!
//! Ordo orders requests first and executes them deterministically afterwards, so the order is the database:
//! a node that executes it from the start, or from a checkpoint on, reaches the same state. The replicas of a
//! partition agree on entries whose content they do not know (crate `agree`). In the ordered family an entry
//! is a batch of requests and of changes of the map ([`GroupBatch`]). [`merge`] makes the one total order of
//! the batches of all partitions, [`arrange`] orders the requests of an epoch, and [`PartitionMap`], itself
//! part of the replicated state, says which node keeps which partition. The crate is pure: time comes in as
//! an argument.

pub mod arrange;
mod group;
mod map;
pub mod merge;
pub mod moves;
pub mod skip;

pub use group::{
    Admission, GroupBatch, Streams, Submission, TIME_MS_END, digest_of, put_submission, take_submission,
};
pub use map::{
    Changed, Control, Described, LEVEL_FIRST, MapError, NodeEntry, PARTITIONS_MAX, PartitionEntry,
    PartitionMap, PlaceError,
};
pub use skip::Skips;
