//! The messages between sites, and the records of a site's log.

#![allow(missing_docs, reason = "a field's name says what it is; each variant says what the fields are for")]

use super::fence::{Ballot, Candidate, Decision, Incarnation};
use super::grant::GrantedNumbers;
use super::join::{Installed, ReplicaState};
use super::remote::{Fit, RemoteRead};
use super::{CommitStamp, VectorClock};
use crate::Conflict;
use crate::access::record_bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{BootId, Entry, Key, NodeId, PartitionId, RequestId};

/// An attempt to commit. No two have the same name: a site's boot is durable before a name of it leaves, and
/// boots are counted within an incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionName {
    pub origin: NodeId,
    pub incarnation: Incarnation,
    pub boot: BootId,
    pub number: u64,
}

/// A committed transaction. It has these guarantees:
///
/// 1. Each stamp is of the transaction's origin or granted. Its site has a replica of the stamp's partition,
///    or sites have ghosts ([`super::RemoteAccess`]).
/// 2. There is a stamp for the partition of each key that is written.
/// 3. Its number, and the sequences of its stamps that are not granted, are among the numbers of its name's
///    incarnation.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub name: TransactionName,
    /// Counts the commits of its site from 1.
    pub number: u64,
    /// The commit timestamp vector: a stamp for each partition written.
    pub stamps: BTreeMap<PartitionId, CommitStamp>,
    /// The transaction dependency view: what must be applied before, by partition.
    pub depends: BTreeMap<PartitionId, VectorClock>,
    /// The new value of each key; `None` deletes it.
    pub writes: BTreeMap<Key, Option<Entry>>,
}

impl Update {
    /// About how many bytes of memory the update takes.
    pub(super) fn bytes(&self) -> usize {
        let bytes = |(key, entry): (&Key, &Option<Entry>)| record_bytes(key, entry.as_ref());
        UPDATE_BYTES + self.writes.iter().map(bytes).sum::<usize>()
    }
}

/// About how many bytes an update takes beside its writes.
const UPDATE_BYTES: usize = 256;

/// A message with the incarnations of its sender and, as far as the sender knows it, of its receiver.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    pub from: Incarnation,
    /// `None` where the message concerns any incarnation.
    pub to: Option<Incarnation>,
    pub message: Message,
}

/// A message from one site to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// To a resolver: may this transaction write these keys, with this snapshot? If it may, the resolver
    /// gives it numbers in the partitions `grant`.
    Prepare {
        name: TransactionName,
        keys: Vec<Key>,
        views: BTreeMap<PartitionId, VectorClock>,
        grant: BTreeSet<PartitionId>,
    },
    /// The resolver refuses, or has locked all keys and granted these numbers.
    Vote { name: TransactionName, refused: Option<Conflict>, numbers: BTreeMap<PartitionId, u64> },
    /// To a resolver: the transaction has committed with these stamps, or never will.
    Outcome { name: TransactionName, stamps: Option<BTreeMap<PartitionId, CommitStamp>> },
    /// The resolver knows that the transaction has committed.
    Acknowledged(TransactionName),
    /// From a resolver that waits: what became of the transaction?
    Ask(TransactionName),
    /// All updates of the sender in `sent + 1..=through` that concern the receiver, which was sent those up
    /// to `sent` before, and has acknowledged those up to `after`. Some other site lacks those acknowledged
    /// ones that are in the runs `retained`, which grow: the first and the last number of each. The sender's
    /// newest update is `last`.
    Updates {
        after: u64,
        sent: u64,
        through: u64,
        last: u64,
        retained: Vec<(u64, u64)>,
        updates: Vec<Arc<Update>>,
    },
    /// The sender has applied all that concerns it of the receiver's updates in `1..=through`.
    Applied { through: u64 },
    /// The sender asks for updates of a third site that it may apply to replicas with these views.
    Want { origin: NodeId, views: BTreeMap<PartitionId, VectorClock> },
    /// Updates of a third site that the receiver asked for. It may apply them in this order.
    Relayed { origin: NodeId, updates: Vec<Arc<Update>> },
    /// A transaction of the sender looks at a key of the receiver, in a state that fits.
    Look { id: RequestId, key: Key, fit: Fit },
    /// The answer; without a state if none fits. The receiver may ask again if the sender is behind.
    Looked { id: RequestId, key: Key, read: Option<Arc<RemoteRead>>, is_behind: bool },
    /// The sender asks for the view of the receiver's replica of a partition.
    AskView(PartitionId),
    /// The view of the sender's replica. All that it counts is durable there.
    View { partition: PartitionId, view: VectorClock },
    /// See [`Fencing`].
    Fencing(Fencing),
}

impl Message {
    /// About how many bytes of memory the updates in it take, or the entry that another site has read.
    pub fn update_bytes(&self) -> usize {
        match self {
            Message::Looked { key, read: Some(read), .. } => record_bytes(key, read.entry()),
            Message::Updates { updates, .. } | Message::Relayed { updates, .. } => {
                updates.iter().map(|update| update.bytes()).sum()
            }
            _ => 0,
        }
    }
}

/// A message about fences, and about sites that begin without a log (`fence.rs`, `join.rs`).
#[derive(Clone, Debug, PartialEq)]
pub enum Fencing {
    /// The sender has no log, and would be this incarnation. Answers have the number of its inquiry.
    Join { candidate: Candidate, inquiry: u64 },
    /// Another process of the site was given this incarnation, or a higher one.
    Refused { candidate: Candidate, used: Incarnation },
    /// The receiver is this incarnation. The sender retains its updates for it, and its newest one is `last`.
    /// The sender has excluded some sites, and knows these decisions.
    Admitted {
        candidate: Candidate,
        inquiry: u64,
        last: u64,
        decisions: BTreeMap<NodeId, Decision>,
        excluded: BTreeSet<NodeId>,
    },
    /// The sender needs a partition.
    Fetch { candidate: Candidate, inquiry: u64, partition: PartitionId },
    /// A partition. The sender has begun without a log, too, if there is no state.
    Fetched { candidate: Candidate, inquiry: u64, partition: PartitionId, state: Option<Arc<ReplicaState>> },
    /// The sender wants to decide on these fences. The receiver shall take no more messages of these sites.
    Promise { ballot: Ballot, targets: BTreeMap<NodeId, Candidate> },
    /// The sender takes no more messages of the sites that it has frozen. It has these updates of them, and
    /// updates with these numbers that they have granted. It is no voter if it joins.
    Report {
        ballot: Ballot,
        frozen: BTreeMap<NodeId, Candidate>,
        decisions: BTreeMap<NodeId, Decision>,
        updates: BTreeMap<NodeId, Vec<Arc<Update>>>,
        granted: BTreeMap<NodeId, GrantedNumbers>,
        is_joining: bool,
    },
    /// The sender has promised a higher ballot.
    Outdated { promised: Ballot },
    /// Fences are decided.
    Decided { decisions: BTreeMap<NodeId, Decision> },
    /// All incarnations of the receiver before this one are fenced.
    Fenced { incarnation: Incarnation },
    /// The sender takes no messages of the receiver's incarnations before this one: a fence is under way.
    UnderWay { incarnation: Incarnation },
}

/// A record of a site's log, which the site reads after a crash.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// The operator has set the site up. This is the first record of the log of an incarnation 0.
    Founded,
    /// The site began without a log, and has got its state. The first record of another incarnation's log.
    Installed(Arc<Installed>),
    /// The site has all that its partitions had when the others admitted it.
    Opened,
    /// The site takes no more messages of these sites, and helps no lower ballot.
    Promised { ballot: Ballot, targets: BTreeMap<NodeId, Candidate> },
    /// Fences are decided.
    Decided { decisions: BTreeMap<NodeId, Decision> },
    /// A new incarnation of a fenced site counts as a site again.
    Admitted(NodeId),
    /// A process of the site has started.
    Started(BootId),
    /// Its resolver has locked keys, and granted numbers.
    Locked { name: TransactionName, keys: Vec<Key>, numbers: BTreeMap<PartitionId, u64> },
    /// Its resolver knows an outcome.
    Released { name: TransactionName, stamps: Option<BTreeMap<PartitionId, CommitStamp>> },
    /// A transaction of its own has committed.
    Committed { id: RequestId, name: TransactionName, resolvers: BTreeSet<NodeId>, update: Arc<Update> },
    /// It has applied a transaction of another site.
    Applied { update: Arc<Update> },
    /// All resolvers know that its transaction has committed.
    Settled(TransactionName),
    /// Other sites have applied all that concerns them of its updates up to these numbers, and all sites
    /// concerned have these updates of other sites.
    Progress { acknowledged: BTreeMap<NodeId, u64>, stable: BTreeMap<NodeId, BTreeSet<u64>> },
    /// A transaction that only reads has read this in partitions of other sites, or a client's token counts
    /// it.
    Followed { clocks: BTreeMap<PartitionId, VectorClock> },
    /// A number that the site has granted belongs to no transaction.
    Nulled { update: Arc<Update> },
}
