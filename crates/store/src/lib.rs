//! The records of one partition, in many versions.
//!
//! A [`Partition`] maps a key to a [`Record`]; a record holds its key's versions, each tagged with the
//! position of the transaction that wrote it, and, under the same latch, whatever its engine keeps per key
//! (`M`: locks, read dependencies). So an engine does each step of its protocol on one key atomically
//! (Sparkle, Algorithm 2: "all following operations are atomic per key entry"), and all engines share one
//! store.
//!
//! # Visibility
//! A transaction at position `p` sees, of each key, the newest version below `p`. A version whose entry is
//! `None` is a *tombstone*. [`Partition::clear`] is a *range tombstone*: versions below a clear's position
//! are invisible from there on, whether their records still exist or not ([`Clears`]).
//!
//! The version that an absent key reports (WATCH compares it) must not depend on when memory is collected. So
//! it is defined by positions alone: a delete (or clear) at `t` is reported to a reader at `p` while `p - t`
//! is below [`TOMBSTONE_HORIZON`]; after that the key reads as never written. Collection only removes
//! tombstones beyond the horizon.
//!
//! # Final state, snapshots, watermark
//! The engine publishes the final position, its epoch time and the number of live entries together
//! ([`Partition::publish`]). A reader opens a [`Snapshot`] there and registers it. The *watermark* is the
//! oldest position that a registered snapshot, or the final position itself, still needs: of the versions at
//! or below it only the newest of each key is kept ([`snapshots`] tells why a reader can never lose a version
//! to a racing collector).
//!
//! If somebody wants the past ([`View::keep_history`]), the watermark does not pass the oldest moment that is
//! kept, and snapshots can be opened at moments of the past ([`View::open_at`]).
//!
//! # Collection
//! Versions are collected when their key is written again, by the worker that made them garbage once they are
//! behind the watermark, and by [`View::collect`], which also removes tombstones beyond the horizon, entries
//! that a clear covers, and placeholders (records that exist only because somebody read an absent key). A
//! record that an engine still keeps something in becomes such a placeholder. A removed record is marked
//! *dead* under its latch; who finds a dead record looks its key up again.
//!
//! # State digest
//! Each final commit adds to the partition's state digest, which replicas compare ([`digest`]).
//!
//! # Usage
//! Each record can tell when or how often it was used by transactions and reads of this process
//! ([`Keeping`]), for eviction ([`View::candidates`]). That is no part of the state, and nothing here is
//! decided by it.
//!
//! This crate knows no engine, no thread, no clock and no file.

pub mod checkpoint;
mod clears;
pub mod digest;
mod history;
mod index;
mod packed;
mod partition;
mod publish;
mod record;
mod shard;
pub mod snapshots;
pub mod sync;
mod usage;
mod versions;
pub mod view;

pub use clears::Clears;
pub use digest::{Digests, Noted};
pub use history::NoPast;
pub use index::SHARDS;
pub use partition::Partition;
pub use publish::Final;
pub use record::{Meta, Record, RecordCell, RecordRef};
pub use usage::Keeping;
pub use versions::Version;
pub use view::{Candidate, Census, Image, Snapshot, View};

/// For how many positions a delete is reported as the key's version. See the crate's head.
pub const TOMBSTONE_HORIZON: u64 = 65_536;
