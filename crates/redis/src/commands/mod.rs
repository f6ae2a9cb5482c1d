//! The commands, by the type of value they work on. A command that does something to each of its keys by
//! itself is a function of one record ([`crate::table::per_key`]). Every other command is an async function
//! over a transaction.
//!
//! Each takes the arguments after its name, whose number the table has checked. What is wrong with a command
//! is an error *reply*: writes that the transaction made before it stay, as in Redis. A key that is about to
//! be written is read with the intent to update it; what needs no read (SET) makes none.

pub mod bitfield;
pub mod bits;
pub mod blocking;
mod collections;
mod compact;
pub mod counters;
pub mod dump;
pub mod expiry;
pub mod geo;
pub mod hash_fields;
pub mod hashes;
pub mod hyperloglog;
pub mod keys;
pub mod lcs;
pub mod list_elements;
pub mod listing;
pub mod lists;
pub mod messages;
pub mod options;
pub mod pure;
pub mod set_algebra;
pub mod sets;
pub mod sites;
pub mod sort;
pub mod sorted_sets;
pub mod streams;
pub mod strings;
pub mod transactions;
