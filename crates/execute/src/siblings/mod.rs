//! How the siblings of a multi-partition transaction agree on what it read (Sparkle, section 4.2.1 and
//! Algorithm 3).
//!
//! A transaction over several partitions runs whole at each of them (but for those that Q-Store splits), as
//! a *sub-transaction*; the others are its *siblings*. Each reads its own partition's keys, tells its
//! siblings what it read, takes from them what they read, and so all compute the same. They do not wait
//! until what they read is final. This module is the book that a sub-transaction keeps of that: no thread,
//! no store, no network. The engine keeps one [`Exchange`] for each sub-transaction behind a latch; the
//! model (`tests/confirmation/`) searches every schedule of the same code.
//!
//! # The question
//!
//! When is what a sibling told final? Its value of a key is a function of *its own partition's* transactions
//! before it, and of nothing else: where the procedure went, and so *which* keys it read, may have depended
//! on wrong values of third parties; the values themselves did not. So one number per sub-transaction is
//! enough: its [`AbortNumber`] (the paper's `local_abort_number`) counts how often an earlier transaction of
//! its partition aborted it after it had told something. What was told under the last of its numbers is
//! right.
//!
//! For that, values told under one number must be consistent: a sub-transaction that starts over because *a
//! sibling's* value was wrong keeps its number **and its read dependencies**: an earlier writer that meets
//! one of them aborts it, and raises the number, also if the reader was an earlier run. Then a key has one
//! value under one number, and what was told under it stays told.
//!
//! (The paper raises a second number, `remote_abort_number`, whenever a sub-transaction aborts after it has
//! told something, and starts all siblings over, whatever they used. It must, because there a value is taken
//! to depend on everything that its sender had seen. Here nobody starts over who did not use a value that
//! turned out to be wrong, aborts do not echo between siblings, and there is no second number.)
//!
//! # When a number is the last one
//!
//! A sub-transaction is aborted by earlier transactions of its partition only. Its sibling at X cannot be
//! aborted any more
//! 1. when all transactions before it at X are final-committed. X says so with an *anchor*, for each
//!    multi-partition transaction that comes to its head, together with the numbers of the later ones of the
//!    same group: the **conservative confirmation**;
//! 2. or when an anchor was said for an earlier transaction of its group, and all between that one and itself
//!    have been *executed for the last time* at X, aborting whomever they abort. X says that a transaction is
//!    executed (speculatively committed) as soon as it is, with the numbers of all whom any of its runs has
//!    aborted: the **speculative confirmation**. The transactions of a *group* involve the same partitions
//!    and follow each other at all of them, so that all siblings hear it.
//!
//! Whether an execution at X was the last one is seen from what it was based on, which the confirmation
//! names: its own number, and the numbers under which it had the values that it used ([`Basis`]). It was the
//! last if all these are last numbers; and those are known, by induction, when the transaction itself
//! final-commits here.
//!
//! # Final commit
//!
//! A sub-transaction may final-commit when its engine would (all before it have, and its order is confirmed),
//! all its siblings' numbers are last ones ([`Exchange::is_settled`]) and every value that it used was told
//! under them. A value that does not fit is no abort: either the same value comes again under the last
//! number, or another one does, and that one starts it over.
//!
//! # Siblings that fail
//!
//! A number is qualified by the *era* of its replica (its process and what was retracted there), which is
//! like no other one. Once a transaction has heard of one era of a sibling it takes from another one only
//! what is final: what was told under an anchored number, or the reads of a final-committed sibling
//! ([`Exchange::learn_final`]), which a replica in another zone may give too. If what was used was final
//! these are the same; and if they are not, nobody has built on what they replace. (To take whatever the new
//! era tells would start over what others count on already. To take only the reads of the final-committed
//! would be a circle where each needs a value of the other.)
//!
//! Messages may arrive in any order and more than once: what they say is only ever raised.
//!
//! # Engines that do not speculate
//!
//! Calvin, S-SMR and Q-Store read nothing that can still change when they tell it, so all that they tell is
//! told as by a final-committed sibling ([`Note::Final`], [`Exchange::learn_final`]), and the rest of the
//! protocol is not needed. Of a transaction whose fragments were executed each by itself, Q-Store tells what
//! they came to instead ([`Note::Fragments`]). The partitions of a cluster have the same engine.

mod codec;
mod exchange;
pub(crate) mod groups;
mod message;
pub(crate) mod parts;
mod round;
mod values;

pub use exchange::{AbortNumber, Basis, Exchange, Heard};
pub use message::{Asked, FragmentResults, GroupId, Message, Note, Told};
pub use parts::reader_of;
pub use round::{Sent, Twins, exchange};
