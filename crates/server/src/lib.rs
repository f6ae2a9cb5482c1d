//! Runs nodes for real: sockets, files, clocks and threads.
//!
//! [`server::Server`] puts a node ([`runtime`], on a directory of [`disk`]) behind sockets ([`net`]); a
//! connection's bytes become commands, and its [`session`] turns commands into requests for the node. The
//! nodes of a cluster reach each other as [`peers`]. What connections hear of each other (messages, elements
//! that they waited for) goes through the [`hub`]; [`evict`] keeps what is used below its limit, and what
//! operators look at is in [`observe`], the numbers that INFO and metrics share are in [`stats`], `http`
//! serves monitors, and `service_manager` tells systemd whether the server lives and is ready
//! ([`readiness`]). Streams are encrypted in [`tls`]. [`config`] is the one table of settings, [`cluster`]
//! what a node knows of the others, and [`client`] the other end of a connection. [`launcher`] starts server
//! processes, for a cluster on one machine, benchmarks and tests. Files that this crate creates are for its
//! own user alone (`private`). This is the only crate of the house that owns sockets, files, clocks and
//! threads.
#![allow(clippy::disallowed_methods, reason = "clocks and threads belong to this crate")]

pub mod acl;
pub mod auth_failures;
pub mod backup;
pub mod client;
pub mod clock;
pub mod cluster;
pub mod config;
pub mod disk;
pub mod error_counts;
pub mod evict;
mod hexadecimal;
#[cfg(feature = "http")]
pub mod http;
pub mod hub;
pub mod launcher;
pub mod memory;
pub mod net;
pub mod observe;
pub mod peers;
mod private;
pub mod readiness;
mod replace;
mod restart;
pub mod runtime;
pub mod server;
#[cfg(feature = "service-manager")]
pub mod service_manager;
pub mod session;
pub mod shared;
pub mod skips;
pub mod stats;
pub mod tls;
mod warnings;
mod watch;
