//! One node of a cluster as a state machine: a replica of some partitions, and a gateway to all of them.
//!
//! [`ClusterNode`] owns no thread, no file, no clock and no socket. Frames of other nodes, requests of
//! clients, the journal's completions and the clock's ticks come in ([`ClusterEvent`]); frames, records for
//! the journal and answers go out ([`ClusterEffects`]). A [`Host`](crate::host::Host) performs them, in one
//! loop ([`drive`](crate::host::drive)).
//!
//! # Parts and the round
//!
//! [`gateway`], [`lead`], [`backlog`], [`leaders`], [`reads`], [`checkpoints`], [`transfer`], [`members`],
//! [`compare`], [`out`], [`bootstrap`] and [`peers`] are parts: each keeps the state of one protocol to
//! itself, takes inputs, and gives wishes. None names another, or the machine. [`machine`] is the round that
//! carries wishes from part to part until nothing more has become possible; what it does for one of them is
//! in the file of the same name below it.
//!
//! # The life of a request
//!
//! 1. The node that accepted it is its *gateway*: it gives it a number in the stream of its home group and
//!    passes it to that group's leader ([`gateway`]), again and again until the group has it.
//! 2. The *leader* puts it into the batch of the next epoch ([`lead`]). A leader makes a batch when it has
//!    requests, and also, were it empty, when it hears that another group has begun an epoch: all groups go
//!    in lock-step.
//! 3. Every replica of the group appends the batch to its log. When a node holds the batches of all groups
//!    for an epoch, it *delivers* the epoch to its engines, which execute it at once, while agreement is
//!    under way.
//! 4. When all groups have agreed on their batches the epoch is *confirmed*, and the engines final-commit. If
//!    a leader fell and a batch was replaced, everything from that epoch on is *retracted* first.
//! 5. The gateway's own replica answers its clients: every node executes every transaction of its partitions.
//!    What it does not keep a neighbour executes for it ([`feeds`]), which also tells it of the groups that
//!    it has no part in.
//!
//! # Order of a connection
//!
//! All requests of a connection that are on their way at the same time have the same home, so they keep their
//! order whatever partitions they involve ([`txn::PartitionRoute`]).
//!
//! # Exactly once
//!
//! Streams have no gaps: a group's log is itself the record of what it has ([`order::Streams`]). A new leader
//! reads it there, so a request that is passed to it again gets no second place.
//!
//! # What is promised, and when
//!
//! All groups share one journal. What a turn of a group wants kept goes into one record with what the others
//! want, and what the turn promises (a vote, "I have this entry") leaves when the record is durable: always
//! for votes, and for entries under `always`; under `everysec` and `no` a written entry counts, as
//! `appendfsync` means it, and under `everysec` it is on its way to the disk within a second. What promises
//! nothing (an answer to a heartbeat, a question for a read index) leaves at once, unless its term is not
//! durable yet.
//!
//! # Checkpoints
//!
//! The order says at the end of which epochs they are taken ([`checkpoints`]). A replica whose leader no
//! longer has the entries that it lacks fetches one, and starts anew behind it ([`transfer`]).
//!
//! # Members
//!
//! The map, which is part of the order, says who should keep a replica of what. Each leader leads its group's
//! members there ([`members`]); a node of which nothing is left ends, and one that keeps something remembers
//! what it had promised elsewhere ([`retired`]). How a cluster begins, and why a founder without its data is
//! refused, is in [`bootstrap`].
//!
//! # Builds of several versions
//!
//! What the order means to a replica changes with a record of the order, once all nodes know the new meaning
//! ([`levels`]).
//!
//! # Failures
//!
//! * A node whose journal cannot be written or synced is out ([`out`]): it promises nothing, hands over what
//!   it leads, and tells the others. It comes back by itself once a write goes well again; a failed sync
//!   needs a restart.
//! * A frame that no node of the cluster can have sent is not used, and its sender loses its link
//!   ([`Host::sever`](crate::host::Host::sever)): see [`shape`]. Within the protocol peers are believed.
//! * A replica whose state digest differs from that of a majority of its partition's replicas ends its node
//!   ([`compare`]).
//! * A wall clock that is set, or wrong, moves no stamp: see [`crate::clock`].
//!
//! # Invariants
//!
//! 1. `final-committed <= confirmed <= delivered` at every engine; what is confirmed is agreed in all groups.
//! 2. A request of a live gateway is in its group's log at most once, and in the order of its stream.
//! 3. What another node needs is decided by what that node says of itself: maps differ while they change.
//! 4. What waits is bounded: requests by [`Limits`](crate::Limits), epochs by
//!    [`ClusterOptions::epochs_in_flight_max`], what is not executed by
//!    [`ClusterOptions::backlog_bytes_max`], and what followers are told by
//!    [`ClusterOptions::feed_window_bytes`].

mod backlog;
mod base;
mod bootstrap;
pub(crate) mod candidates;
pub mod checkpoint;
mod checkpoints;
mod compare;
mod feeds;
mod frames;
mod gateway;

mod lead;
mod leaders;
pub mod levels;
mod machine;
mod members;
mod numbers;
mod options;
mod out;
mod peers;
pub(crate) mod pieces;
mod reads;
mod recover;
pub mod restore;
mod retired;
mod shape;
mod status;
pub mod survivor;
mod transfer;

pub use base::{BadBase, CANDIDATES, IDENTITY};
pub use bootstrap::{Nonces, Standing, is_group_of_alone, joined_record, stands_alone};
pub use checkpoint::{ClusterCheckpoint, LoadError, Written};
pub use compare::{COMPARED_EVERY, Compared, StateReport};
pub use feeds::{Answered, Fed, Item, Part, Said};
pub use frames::{Frame, FrameError, describe};
pub use leaders::TRANSFER_KEPT_MS;
pub use levels::{LEVEL, TooOld};
pub use machine::{ClusterEffects, ClusterEvent, ClusterNode};
pub use options::ClusterOptions;
pub use peers::Condition;
pub use pieces::{Piece, Whole, read_piece_of};
pub use recover::{ClusterRecoverError, ClusterStart, LoadedEngines, load_engines};
pub use status::ClusterStatus;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod script;
