//! Certified protocols: a transaction executes at one site, on a snapshot, and is certified afterwards.
//!
//! The other family (crate `order`) fixes the order of requests first and executes them afterwards. Here a
//! client's site runs the transaction at once: [`Certifier::begin`] gives it a snapshot, [`Certifier::look`]
//! reads there, and [`Certifier::commit`] hands what it has read and written over to be certified. A
//! transaction that conflicts with others has no effect, and is run again: [`CertifiedCall`] does all of this
//! for an ordinary procedure. An [`OpenTransaction`] runs several procedures for a client that commits by
//! itself.
//!
//! A protocol is a [`Certifier`]: one site's part, without threads, files, clocks or sockets. What it needs
//! from others it wants in [`Effects`], and the substrate (`node::site::Site`) performs:
//!
//! * [`Effects::send`]: a message for another site, which may be lost, come twice, or overtake others.
//! * [`Effects::propose`]: an entry for a group of sites to agree on. Every site of the group is given the
//!   agreed entries in one order ([`Certifier::decided`]), each once in the life of its state, also after
//!   a crash. A proposal may get lost, or be agreed on twice: protocols propose again, and know what they
//!   had.
//! * [`Effects::ask`]: a transaction waits until this site has been given every entry of a group that was
//!   agreed on before the question ([`Certifier::reached`]).
//! * [`Effects::answer`]: what the transaction's client is told.
//!
//! What must survive a crash is an entry of a group. From time to time the substrate has the state behind
//! some entry encoded ([`Certifier::snapshot`]), and begins with it after a crash, or where a site lacks
//! entries that the others have forgotten ([`Certifier::restore`]).
//!
//! `docs/adding-a-protocol.md` takes [`register`], the smallest protocol, through all of it. [`dur`] is the
//! first one that users could want. [`two_phase`] has four baselines whose transactions span partitions, and
//! [`hierarchy`] decides on those in a tree of validators. [`pcsi`] is for sites that commit alone and tell
//! each other later: it needs no groups, and is no [`Certifier`] but a core of its own, which
//! `node::geo::GeoSite` runs.

mod access;
pub mod call;
mod codec;
mod counts;
pub mod dur;
pub mod hierarchy;
pub mod open;
pub mod pcsi;
mod prepare;
mod proposals;
mod recent;
pub mod register;
mod sessions;
mod times;
pub mod two_phase;
mod workers;

pub use access::record_bytes;
pub use call::{CallEnd, CertifiedCall, Wish, run_at};
pub use counts::KeyCounts;
pub use open::{OpenTransaction, Progress};
pub use proposals::OPEN_MAX;
pub use sessions::{SESSION_HORIZON, session_opened};
pub use workers::{Alone, Job, Threads, Workers};

use bytes::Bytes;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, ScanPage, ScanRange};

/// One site's part of a protocol.
///
/// A transaction is named by its client's session, its number within the session, and the attempt: a session
/// has one transaction at a time, and runs it with a higher attempt until it is committed. An attempt that is
/// followed by a higher one is void here, but its commit may still be on its way.
pub trait Certifier: Send {
    /// A transaction begins. The answer is [`Answer::Begun`], or what a commit may be answered. If the
    /// transaction is said to be read-only, it ends without writes. A transaction begins at a site only if
    /// its session has no higher attempt open there: a late request gets [`Conflict::Superseded`], and the
    /// higher attempt goes on.
    fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut Effects);

    /// A transaction that has begun looks at its snapshot. The answer is [`Answer::Value`],
    /// [`Answer::Page`] or [`Answer::Count`], whichever was asked for; [`Answer::Refused`] if the protocol
    /// cannot certify such a look; or [`Answer::Conflict`] if the snapshot is gone.
    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects);

    /// The snapshot of a transaction that has begun, if this site has all the data: then whoever runs the
    /// transaction reads there at once, on any thread, and never calls [`Certifier::look`].
    fn snapshot_of(&self, _id: RequestId) -> Option<Arc<dyn LocalSnapshot>> {
        None
    }

    /// A transaction ends. The answer is [`Answer::Committed`], [`Answer::CommittedBefore`],
    /// [`Answer::Conflict`] or [`Answer::Unknown`].
    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects);

    /// A group has another leader: what was proposed and is not decided may be lost. Called for leaders that
    /// this site hears of, each at least once.
    fn has_new_leader(&mut self, _group: PartitionId, _leader: NodeId) {}

    /// A client has gone, or has rolled its transaction back: nobody waits for an answer.
    fn forget(&mut self, id: RequestId);

    /// Another site's [`Effects::send`].
    ///
    /// # Errors
    /// No site of this protocol sends this: its sender loses its link.
    fn receive(&mut self, from: NodeId, message: &[u8], effects: &mut Effects) -> Result<(), Malformed>;

    /// Looks at an entry that another site wants a group to agree on. What is refused here, this site neither
    /// proposes nor promises; what is not, [`Certifier::decided`] must know.
    ///
    /// # Errors
    /// This build does not know what the entry means: its sender loses its link.
    fn check(&self, group: PartitionId, entry: &[u8]) -> Result<(), Malformed>;

    /// The next entry that a group has agreed on. Deterministic: all sites of the group do the same.
    ///
    /// # Errors
    /// This build does not know what the entry means: the site ends, and its data stays as it is.
    fn decided(&mut self, group: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed>;

    /// The next entries that a group has agreed on. The state behind them is that of [`Certifier::decided`]
    /// for each of them in turn, whichever entries come together, and whatever threads share the work.
    ///
    /// # Errors
    /// This build does not know what the entry at this index means. Those before it are decided.
    fn decided_all(
        &mut self,
        group: PartitionId,
        entries: &[&[u8]],
        _workers: &dyn Workers,
        effects: &mut Effects,
    ) -> Result<(), usize> {
        let mut decided = entries.iter().map(|entry| self.decided(group, entry, effects));
        decided.position(|decided| decided.is_err()).map_or(Ok(()), Err)
    }

    /// What a transaction has asked for ([`Effects::ask`]).
    fn reached(&mut self, id: RequestId, effects: &mut Effects);

    /// Time passes.
    fn tick(&mut self, effects: &mut Effects);

    /// The state behind the last decided entry of a group: equal at all its sites.
    fn snapshot(&self, group: PartitionId) -> Vec<u8>;

    /// Begins behind the entry at which another site, or this one's earlier process, encoded its state.
    ///
    /// # Errors
    /// This build does not know what the state means, and has changed nothing: another site that sent it
    /// loses its link, and a process that has it in its journal does not start.
    fn restore(&mut self, group: PartitionId, state: &[u8]) -> Result<(), Malformed>;
}

/// Bytes that mean nothing to this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What a transaction looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// A record.
    Key(Key),
    /// A part of a space.
    Scan(ScanRange),
    /// The number of the user's entries.
    Count,
}

/// A snapshot at a site that has all the data.
pub trait LocalSnapshot: Send + Sync {
    /// The answer, as [`Certifier::look`] gives it.
    fn look(&self, look: &Look) -> Answer;
}

/// What a transaction has read, beside what it had written itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSet {
    /// Records with their versions.
    pub keys: BTreeMap<Key, Position>,
    /// Listings.
    pub scans: Vec<Listing>,
    /// The number of the user's entries.
    pub count: Option<u64>,
    /// What it has read of keys that nobody else may write meanwhile, and that it does not write itself
    /// ([`txn::Access::hold`]). They are among `keys`.
    pub held: BTreeMap<Key, Option<Entry>>,
}

/// What a scan has found: the keys are not kept, because a page of as many unchanged entries that ends at the
/// same hash has the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Where it looked.
    pub range: ScanRange,
    /// How many entries it found.
    pub entries: u64,
    /// Where the next page starts.
    pub next_hash: Option<u64>,
}

/// What a transaction writes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteSet {
    /// It first removes every entry of the user's space.
    pub clears: bool,
    /// What it leaves of each key; `None` deletes.
    pub records: BTreeMap<Key, Option<Entry>>,
}

impl WriteSet {
    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        !self.clears && self.records.is_empty()
    }
}

/// What a transaction's client is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It may look.
    Begun,
    /// A record at its snapshot.
    Value(Read),
    /// A part of a space at its snapshot.
    Page(ScanPage),
    /// The number of the user's entries at its snapshot.
    Count(u64),
    /// The protocol does not do this, and the text says so.
    Refused(Cow<'static, str>),
    /// Its writes have taken effect, and it has read what was there.
    Committed,
    /// An earlier attempt of it has committed, and this one has no effect. What this one has read says
    /// nothing: the other one may have read something else.
    CommittedBefore,
    /// This attempt has no effect. It may be run again. (An earlier attempt at another site may still
    /// commit.)
    Conflict(Conflict),
    /// Nobody knows whether this attempt, or an earlier one, has had an effect. Either its session may have
    /// been forgotten, and then no attempt has an effect from here on; or its site has waited for the
    /// decision for too long, and then the transaction may yet commit. The transaction must not be run again
    /// under another name, unless it may take effect twice; its client goes on in a new session
    /// ([`session_opened`]).
    Unknown,
    /// This attempt has no effect, because its site takes nothing now: it cannot write, must be started
    /// again, or has waited for others in vain before the commit. The transaction may be run at another one.
    Unavailable,
}

/// Why a transaction has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another transaction has written this key, which it had read.
    Key(Key),
    /// Another transaction of this site is about to write this key.
    Locked {
        /// What both write.
        key: Key,
        /// The site of the other transaction.
        holder: NodeId,
    },
    /// A listing, or the number of entries, is not what it was.
    Listing,
    /// Its snapshot is so old that nobody knows what was overwritten since.
    Snapshot,
    /// No timestamp is behind all that it must follow, and before all that it must precede.
    Timestamp,
    /// A later attempt, or a later transaction of its session, has begun or has been certified.
    Superseded,
}

/// What a protocol wants done.
#[derive(Debug, Default)]
pub struct Effects {
    /// Messages for other sites.
    pub messages: Vec<(NodeId, Bytes)>,
    /// Entries that groups are to agree on.
    pub proposals: Vec<(PartitionId, Bytes)>,
    /// Transactions that wait until this site is as far as a group.
    pub questions: Vec<(PartitionId, RequestId)>,
    /// Answers for clients of this site.
    pub answers: Vec<(RequestId, Answer)>,
}

impl Effects {
    /// Sends a message to another site.
    pub fn send(&mut self, to: NodeId, message: impl Into<Bytes>) {
        self.messages.push((to, message.into()));
    }

    /// Wants a group to agree on an entry, which must not be empty.
    pub fn propose(&mut self, group: PartitionId, entry: impl Into<Bytes>) {
        self.proposals.push((group, entry.into()));
    }

    /// Has a transaction wait until this site has all that a group had agreed on by now.
    pub fn ask(&mut self, group: PartitionId, id: RequestId) {
        self.questions.push((group, id));
    }

    /// Answers a transaction's client.
    pub fn answer(&mut self, id: RequestId, answer: Answer) {
        self.answers.push((id, answer));
    }
}
