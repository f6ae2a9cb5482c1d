//! The simulator: real engines and real nodes in a world where time, workers and disks are virtual.
//!
//! Everything here is drawn from one seed, and the same seed gives the same run, byte for byte. A run is
//! judged by an [`oracle`] that shares nothing with the engines but the vocabulary of `txn`: it runs the
//! final order serially, one transaction at a time, over a sorted map. That is the specification; every
//! engine must produce the same replies, the same aborts and the same final state, for any number of workers,
//! any interleaving, any confirmation delay and any retraction.
//!
//! There are two stages. On the first, an engine alone meets a drawn order ([`workers`], [`threads`]). On the
//! second, whole nodes live in a [`world`] with clients, a network, disks and clocks, and everything goes
//! wrong that can.
//!
//! Reading order:
//! - [`draw`]: seeded choices, and the seeds that a test runs;
//! - [`program`]: random transactions whose values carry their history, so that any wrong read shows;
//! - [`redis`]: random commands, blocks and scripts;
//! - [`oracle`]: the naive serial executor;
//! - [`scenario`]: an order with its accidents: batches, confirmations, retractions and what is delivered
//!   instead;
//! - [`workers`]: N virtual workers on one thread, with an interleaving point at every single-key operation;
//! - [`threads`]: the same scenarios on real threads;
//! - [`siblings`]: engines of several partitions, and transactions over them;
//! - [`scale`]: the same with virtual cores and a network that take time: how fast a cluster would be;
//! - [`disk`]: a disk that loses and tears what was not synced;
//! - [`world`]: hosts, clients, network and faults in virtual time, whatever runs in them;
//! - [`certified`]: sites of a certified protocol that live there;
//! - [`pcsi`]: sites of PCSI, which agrees on no order, and so has a judge of its own;
//! - [`cluster`]: nodes and clients that do; [`traffic`]: what the clients ask for; [`cost`]: what
//!   computing costs;
//! - [`watch`]: the oracles, one promise each; [`history`]: the checker of what clients saw;
//! - [`options`], [`run`]: a run, from its seed or from a scenario file; [`minimize`]: the smallest run that
//!   still fails;
//! - [`trace`]: an account of a run, as a text and as a sequence diagram.

pub mod draw;
pub mod fragments;
pub mod judge;
pub mod leak;
pub mod oracle;
#[cfg(feature = "worlds")]
pub mod pcsi;
pub mod program;
pub mod scenario;

#[cfg(feature = "worlds")]
pub mod certified;
#[cfg(feature = "worlds")]
pub mod cluster;
#[cfg(feature = "worlds")]
pub mod cost;
#[cfg(feature = "worlds")]
mod delivery;
#[cfg(feature = "worlds")]
pub mod disk;
#[cfg(feature = "worlds")]
mod engine;
#[cfg(feature = "worlds")]
pub mod history;
#[cfg(feature = "worlds")]
mod keeper;
#[cfg(feature = "worlds")]
pub mod minimize;
#[cfg(feature = "worlds")]
pub mod options;
#[cfg(feature = "worlds")]
pub mod redis;
#[cfg(feature = "worlds")]
pub mod run;
#[cfg(feature = "worlds")]
pub mod scale;
#[cfg(feature = "worlds")]
pub mod siblings;
#[cfg(feature = "worlds")]
pub mod tally;
#[cfg(feature = "worlds")]
pub mod threads;
#[cfg(feature = "worlds")]
pub mod trace;
#[cfg(feature = "worlds")]
pub mod traffic;
#[cfg(feature = "worlds")]
pub mod watch;
#[cfg(feature = "worlds")]
pub mod workers;
#[cfg(feature = "worlds")]
pub mod world;
