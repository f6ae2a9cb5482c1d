//! One replica as a state machine: requests, frames of other nodes, disk completions and the clock's ticks
//! come in; records of the journal, syncs, frames, checkpoints and refusals go out.
//!
//! [`ClusterNode`](cluster::ClusterNode) owns no thread, no file, no clock and no socket: `server` drives it
//! with real ones, `sim` with virtual ones. Its job is to keep three things in step: the groups, which give
//! requests their places and agree on them; the journal, which makes that durable; and the
//! [`execute::Engine`]s, which run them. [`cluster`] tells it all.
//!
//! # A node that stands alone
//!
//! It is a cluster of one: the same machine, with one group that agrees with nobody
//! ([`agree::SoloGroup`]), no peers, and a map of one node. What is special about it is named by
//! [`ClusterOptions::alone`](cluster::ClusterOptions::alone), and little:
//!
//! * Whoever reads at its newest snapshot has everything that was acknowledged: nobody has to be asked.
//! * A checkpoint that is damaged is nobody else's to give: it starts behind the newest, and keeps the one
//!   before it and the log from there on ([`cluster::checkpoint`]).
//! * When its log takes nothing it serves reads, since nobody else can ([`cluster`], "Failures").
//!
//! # What comes again
//!
//! In a cluster of several partitions a request may turn out to belong elsewhere: [`flights`] submits it
//! again, in the order of its connection.
//!
//! # Time
//!
//! What drivers tell as `now_ms` is a *steady* time, which nobody can set. The date comes with each tick. How
//! both become the time that batches are stamped with is told in [`clock`].

mod checkpoint;
pub mod clock;
pub mod cluster;
mod expiry;
pub mod flights;
pub mod geo;
mod groups;
pub mod host;
pub mod listing;
mod options;
mod refused;
mod route;
mod schedule;
pub mod session;
pub mod site;

pub use options::{CHECKPOINT_BYTES_DEFAULT, FsyncPolicy, Limits, UnknownFsyncPolicy};
pub use refused::Refused;
pub use route::{Asker, Route, route};
