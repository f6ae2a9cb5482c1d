//! The vocabulary that every other crate of Ordo speaks.
//!
//! A client's command, block or script is a [`Request`]: a [`Procedure`], its [`Args`] and a [`Footprint`].
//! The order gives it a [`Position`]; an engine runs the procedure as a *transaction* and produces
//! an [`Outcome`]: a [`Reply`], or the reason why it rolled back. Running all requests one at a time in the
//! order of their positions is the specification of every engine (the serial specification); parallel engines
//! only get there faster.
//!
//! # How a procedure meets an engine
//!
//! A procedure is an `async fn` over a [`Tx`]. Each operation of `Tx` asks the engine that is running the
//! transaction; the engine may answer, may suspend the procedure there (the future is parked, no thread is
//! held), or may tell it to stop because what it has read so far turned out to be stale ([`Stop::Restart`]).
//! The engine *lends* its side of the transaction, an [`Access`], to the current thread for the length of one
//! poll ([`tx::lend`]); `Tx` itself owns nothing, so that a parked future has no tie to a thread, to a lock
//! or to the engine's memory.
//!
//! # Rules that procedures keep
//!
//! 1. Deterministic: the same arguments and the same reads give the same writes and the same reply. Time and
//!    chance come from [`Tx::now_ms`] and [`Tx::seed`] only.
//! 2. Every `Err` of a `Tx` operation is passed on with `?`. An engine does not rely on it: it looks at its
//!    own abort flag after the procedure returns, whatever it returned.
//! 3. A procedure awaits nothing but its `Tx`.
//!
//! This crate depends on none of ours and has no clock, no thread, no file and no socket.

pub mod batch;
pub mod blob;
pub mod clock;
pub mod codec;
pub mod fragments;
pub mod hash;
pub mod ids;
pub mod key;
pub mod mutant;
pub mod procedure;
pub mod reply;
pub mod request;
pub mod running;
pub mod sequence;
pub mod slots;
pub mod told;
pub mod tx;
pub mod value;

pub use batch::Batch;
pub use blob::{Blob, BlobRef};
pub use fragments::{Fragment, FragmentCode, FragmentContext, FragmentKind, FragmentValue, Fragments};
pub use ids::{BootId, Epoch, NODES_MAX, NodeId, PartitionId, Position, RequestName, SessionId, ZoneId};
pub use key::{Key, Space};
pub use procedure::{Call, FnProcedure, Procedure, ProcedureFuture, ProcedureId, Registry};
pub use reply::{Outcome, Reply, Stop};
pub use request::{Args, Footprint, Group, KeySets, PartitionRoute, Partitions, Request, RequestId, Weight};
pub use slots::{SlotRange, Slots};
pub use told::{Event, Message, Note, Told};
pub use tx::{Access, Intent, ScanPage, ScanRange, Tx, TxContext};
pub use value::{Entry, Value};
