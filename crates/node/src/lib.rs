//! One replica as a state machine: requests, disk completions and the clock's ticks come in; log writes,
//! syncs, checkpoints and refusals go out.
//!
//! [`Node`] owns no thread, no file and no clock: `server` drives it with real ones, `sim` with virtual ones.
//! Its job is to keep three things in step: the [`order::Sequencer`], which gives requests their place; the
//! input log, which makes them durable; and the [`execute::Engine`], which runs them.
//!
//! # The life of a batch
//!
//! ```text
//!            Node::submit            LogWritten             LogSynced
//! requests ───────────────► delivered ─────────► written ───────────► synced
//!                               │                  └──── confirmed ────┘
//!                               ▼                  here (everysec, no), or here (always)
//!                     the engine speculates                │
//!                                                          ▼
//!                                         the engine final-commits; replies leave
//! ```
//!
//! Everything that is submitted in one round becomes one batch at once: an idle node adds no delay, a busy
//! one groups what its clients sent meanwhile. Under `always` one sync is on its way at a time, and what was
//! written meanwhile shares the next one, so that syncs group by themselves too. Execution overlaps with
//! both.
//!
//! # When the disk fails
//!
//! * A failed *write* (a full disk) leaves the log as it was. The batch is retracted from the engine as if it
//!   had never been there, its clients are told so, and the node refuses writes but keeps serving reads. It
//!   tries an empty batch every second and resumes by itself. (The failed write may have left the batch on
//!   the disk: a crash before the next write that succeeds can bring it back.)
//! * After a failed *sync* nobody knows what is on the disk. What was not confirmed is retracted, its clients
//!   are told that the outcome is unknown (the batch may be found in the log at the next start), and writes
//!   are refused until a restart.
//!
//! # Recovery
//!
//! [`recover()`] loads the newest valid checkpoint and replays the log behind it through the engine.
//! Checkpoints are written from a snapshot while writers go on ([`CheckpointJob`]); the two newest are kept,
//! and the log from the older one on, so that a damaged checkpoint costs time and not data. `schedule` says
//! when one is due.
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
//!
//! # Invariants
//!
//! 1. `final-committed <= confirmed <= written <= delivered`, and `synced <= written`.
//! 2. A reply leaves only after final commit, which needs confirmation; so what is acknowledged is in the log
//!    as far as the fsync policy promises.
//! 3. What is on its way between admission and final commit is bounded ([`Limits`]).
//! 4. Session ids never repeat within the life of a log ([`session`]).

mod checkpoint;
pub mod clock;
pub mod cluster;
mod expiry;
pub mod flights;
pub mod listing;
mod machine;
mod options;
mod recover;
mod route;
mod schedule;
pub mod session;

pub use checkpoint::{CheckpointFailed, CheckpointJob, CheckpointWritten};
pub use machine::{Effects, Event, Node, Refused, Status};
pub use options::{CHECKPOINT_BYTES_DEFAULT, FsyncPolicy, Limits, NodeOptions, UnknownFsyncPolicy};
pub use recover::{RecoverError, Recovered, RecoveryProgress, RecoveryReport, recover};
pub use route::{Asker, Route, route};
