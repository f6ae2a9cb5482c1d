//! The concurrent core under a model checker: the very code that ships, with `shuttle`'s latches and atomics.
//!
//! Every operation on a latch or an atomic is an interleaving point here, so these tests reach interleavings
//! that the virtual workers (whose steps are whole single-key operations) can't reach.
//!
//! `cargo test -p ordo-sim --no-default-features --features shuttle --test shuttle`; `ORDO_SEED` and
//! `ORDO_SEEDS` as everywhere.
#![cfg(feature = "shuttle")]

mod engines;
mod order;
mod retraction;
mod speculation;
