//! Order-then-execute engines.
//!
//! An engine takes requests in their final order and produces what running them one at a time in that order
//! would: the same replies, the same aborts, the same state. [`engine::Engine`] is the contract that they
//! share; a node drives whichever it was given, with real threads or with virtual ones.
//!
//! | engine | how it runs the order |
//! |---|---|
//! | [`serial`] | one confirmed transaction at a time: the specification |
//! | [`nocc`] | in parallel without any concurrency control: the bound that the others are measured against, wrong under conflicts |
//! | [`calvin`] | in parallel behind one scheduler that locks every transaction's keys, in order, before it runs |
//! | [`qstore`] | in parallel: planners put declared keys into execution queues, executors resolve these in order, and what is resolved runs (Q-Store, section 4) |
//! | [`parspec`] | in parallel and speculatively; transactions commit speculatively in the order of delivery, so that a confirmation makes visible what is there (Archie, section 4) |
//! | [`ssmr`] | one confirmed transaction at a time, which waits for its siblings at other partitions |
//! | [`sparkle`] | in parallel and speculatively; timestamped locks and read dependencies detect what ran out of order (Sparkle, section 4.1) |
//!
//! Transactions over several partitions run at each of these; [`siblings`] is how their parts agree on what
//! was read. Sparkle speculates on it; `calvin`, `qstore` and `ssmr` wait for what is final (`conservative`);
//! `serial`, `nocc` and `parspec` execute one partition.
//!
//! [`kind::EngineKind`] is the one list of them, with what each needs from those who run it.
//!
//! All share the store ([`store::Partition`]) and the way a procedure is polled; each keeps its own
//! per-record state.

pub mod calvin;
pub mod conflicts;
mod conservative;
pub mod engine;
mod exclusive;
pub mod kind;
pub mod nocc;
pub mod parspec;
pub mod qstore;
mod ready;
mod running;
mod scan;
pub mod serial;
pub mod siblings;
pub mod snapshot;
pub mod sparkle;
pub mod ssmr;
mod tentative;
mod window;

pub use calvin::Calvin;
pub use engine::{
    Assignment, Budget, Committed, Effects, Engine, Progress, Siblings, Status, Waiting, WorkerId,
};
pub use kind::{EngineError, EngineKind, Needs};
pub use nocc::NoCc;
pub use parspec::ParSpec;
pub use qstore::QStore;
pub use running::{Witness, watch, watch_no_more};
pub use scan::unite;
pub use serial::Serial;
pub use snapshot::{Interrupt, Lookups, Pause, ReadOutcome, SnapshotReader, run_read_only};
pub use sparkle::Sparkle;
pub use ssmr::Ssmr;
