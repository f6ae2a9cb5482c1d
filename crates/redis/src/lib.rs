//! The Redis surface, pure: codec, command table, commands and scripts as procedures.
//!
//! A server feeds a connection's bytes to a [`codec::RequestDecoder`] and gets the words of commands. A
//! [`CommandTable`] turns the words into an [`Action`]: a transaction (a procedure with its arguments), a
//! reply at once, or something that the connection does itself (MULTI, AUTH, CLIENT, CONFIG, ...). The reply
//! of a transaction goes back through [`codec::encode`]. Nothing here has a socket, a clock or a thread.
//!
//! # One table
//!
//! [`table::COMMANDS`] has a line for each command; arity, read-only property, keys, ACL categories,
//! COMMAND's replies and the procedures derive from it. Its functions ([`commands`]) are functions of one
//! record ([`table::per_key`]), or async functions over [`txn::Tx`].
//!
//! # Commands within transactions
//!
//! A command by itself is the procedure `redis.<name>`. A MULTI/EXEC block is one procedure ([`block`]), a
//! script is one, and so is a command that may be sent twice ([`idempotent`]), or that met a node short of
//! memory ([`short`]); all run their commands by [`execute`] inside their own transaction, so that a command
//! has one implementation.
//!
//! Users and what they may do are [`acl`]; a transaction whose outcome depends on that carries its user's
//! name.
//!
//! # Rules that commands keep
//!
//! 1. An error is a reply, not a stop: what the transaction wrote before stays, as in Redis.
//! 2. A key that is about to be written is read with the intent to update it, and what needs no read makes
//!    none.
//! 3. The time is the transaction's, and so is the seed of every random choice.
//! 4. Every number of a client is checked before it sizes anything.

#![cfg_attr(not(test), deny(clippy::too_many_lines))]

/// The version of Redis that clients and scripts are told: what they may expect follows from it.
pub const REDIS_VERSION: &str = "7.2.0";
/// The same as scripts compare it: a byte each for major, minor and patch.
pub const REDIS_VERSION_NUM: u32 = 0x0007_0200;

pub mod acl;
pub mod arguments;
pub mod block;
pub mod certified;
pub mod chance;
pub mod codec;
pub mod commands;
pub mod compatibility;
pub mod described;
pub mod errors;
pub mod execute;
pub mod idempotent;
pub mod introspect;
pub mod involved;
pub mod parse;
pub mod past;
pub mod pattern;
pub mod prepare;
pub mod procedures;
pub mod rdb;
pub mod script;
pub mod short;
pub mod table;
pub mod telling;
pub mod waiting;
mod work;

pub use arguments::Arguments;
pub use block::{Block, BlockProcedure, Watched};
pub use commands::keys::RECORD_BYTES;
pub use execute::{Caller, Memory, Terms, execute};
pub use idempotent::IdempotentProcedure;
pub use involved::{Involved, involved, straying};
pub use past::PastProcedure;
pub use prepare::{Action, CommandTable, Prepared};
pub use procedures::{
    EvictProcedure, ExpireProcedure, ExpireSystemProcedure, StreamEndsProcedure, WatchProcedure,
};
pub use script::Kept;
pub use short::ShortProcedure;

use std::sync::Arc;
use txn::Registry;
use txn::procedure::NameTaken;

/// Registers every procedure of this crate: what a node needs to run, and to replay, what clients of Redis
/// ask for.
pub fn register(registry: &mut Registry) -> Result<(), NameTaken> {
    for procedure in procedures::of_commands() {
        registry.register(procedure)?;
    }
    registry.register(Arc::new(acl::ActingProcedure))?;
    registry.register(Arc::new(acl::ReadUsersProcedure))?;
    registry.register(Arc::new(BlockProcedure))?;
    registry.register(Arc::new(ShortProcedure))?;
    registry.register(Arc::new(EvictProcedure))?;
    registry.register(Arc::new(ExpireProcedure))?;
    registry.register(Arc::new(ExpireSystemProcedure))?;
    registry.register(Arc::new(StreamEndsProcedure))?;
    registry.register(Arc::new(waiting::RetryProcedure))?;
    registry.register(Arc::new(waiting::BehindProcedure))?;
    registry.register(Arc::new(WatchProcedure))
}
