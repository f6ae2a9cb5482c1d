//! Sockets: who listens, who is connected, and the threads that serve them.
//!
//! Every I/O thread has its own poll and its own connections; the first one also accepts, and deals
//! connections out in turn. A round of a thread is: wait for events → read every ready socket once → decode
//! all whole commands → answer reads at a snapshot, and collect everything else of the round into *one*
//! submission to the order → help the engine → take the replies that have arrived → write once to each
//! connection that has any. Nothing in a round is locked for a command, and a thread is woken through its
//! poll only if it sleeps there.
//!
//! Back-pressure: a connection with too much unfinished work is not read, and when the order takes nothing
//! more ([`crate::runtime::Refused::Busy`]) no connection is. A connection whose client does not read its
//! replies executes nothing more until it does; the server reads some more of its commands and keeps them. A
//! turn of a connection is bounded in time and in bytes of replies, and what others push to connections is
//! bounded when it is queued ([`crate::hub::PushQueue`]). Sockets are registered once, edge-triggered; a
//! connection remembers that its socket may hold more.
//!
//! Before there is anything to serve, [`starting`] answers, and then hands listeners and connections over.

#![deny(clippy::too_many_lines)]

pub mod clients;
pub(crate) mod connection;
pub(crate) mod intake;
mod io_thread;
pub mod listen;
pub(crate) mod mailbox;
mod output;
pub(crate) mod starting;

pub use io_thread::{IoThread, Parts, WAKER};
pub use mailbox::{Incoming, Mailbox};
pub use output::Output;
