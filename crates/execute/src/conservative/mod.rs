//! What those engines share that run a transaction only when nothing can change what it reads:
//! [`crate::calvin`], [`crate::ssmr`] and [`crate::qstore`].
//!
//! Only confirmed transactions run ([`order`]), one by one or with all their locks, so there is one
//! incarnation of each: what it reads is final, it is never undone, and its outcome waits only until all
//! before it have ended ([`commit`]). (Q-Store also executes transactions that are not confirmed, if they are
//! of one partition or split, and undoes what is retracted: [`crate::tentative`].) They differ in *when* a
//! transaction may run, and in who runs it; how it runs is told here ([`execution`], [`access`]).
//!
//! # Transactions over several partitions
//! Most run whole at each of their partitions, as siblings ([`crate::siblings`]). What one reads of its own
//! partition it tells the others, as it was before the transaction; what it reads of another's it waits for;
//! what it writes there is that one's work. All that is told is final when it is told, so it is told as
//! [`crate::siblings::Note::Final`], the book of a sub-transaction is an [`crate::siblings::Exchange`] in
//! which every number is the last one, and there is nothing to confirm ([`siblings`]).
//!
//! Of a transaction that Q-Store splits, each partition executes its own fragments, and tells what they came
//! to ([`crate::siblings::Note::Fragments`]); only the outcome waits for the others.
//!
//! Scans, counts and clears of the whole key space are transactions over all partitions, in which each tells
//! what it has ([`crate::siblings::parts`]). A transaction that touches a partition in which it has no part
//! ends with [`txn::Stop::Undeclared`], at all of its partitions, whatever its procedure makes of that: all
//! run the same on the same values.
//!
//! # Retraction, repetition, restart
//! A transaction that is not confirmed has told nothing, and its book is open: a retraction forgets the book,
//! and what siblings had said in it. Whoever retracts, or starts anew, has all others say it again.
//!
//! # Waiting
//! A sub-transaction waits for transactions before it at its own partition, and for its siblings' reads.
//! These wait for transactions before them at their partitions, and so on. The partitions' orders are parts
//! of one order (`order::arrange`), so there is a first unfinished transaction of all; it waits for nobody.

mod access;
mod commit;
mod execution;
mod order;
mod siblings;

pub(crate) use access::FinalAccess;
pub(crate) use commit::{Committer, Ended, Installed, LiveChange, final_commit};
pub(crate) use execution::{Advanced, Execution};
pub(crate) use order::{Job, Known, Order};
pub(crate) use siblings::{Awaited, Finals, Heard, Member};
