//! Runs nodes for real: sockets, files, clocks and threads.
#![allow(
    clippy::disallowed_methods,
    reason = "clocks and threads belong to this crate"
)]

pub mod disk;
pub mod runtime;
