//! The messages between sites, and the records of a site's log.

#![allow(missing_docs, reason = "a field's name says what it is; each variant says what the fields are for")]

use super::{CommitStamp, VectorClock};
use crate::Conflict;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{BootId, Entry, Key, NodeId, PartitionId, RequestId};

/// An attempt to commit. No two have the same name: a site's boot is durable before a name of it leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TransactionName {
    pub origin: NodeId,
    pub boot: BootId,
    pub number: u64,
}

/// A committed transaction.
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

/// A message from one site to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// To a resolver: may this transaction write these keys, with this snapshot?
    Prepare { name: TransactionName, keys: Vec<Key>, views: BTreeMap<PartitionId, VectorClock> },
    /// The resolver refuses, or has locked all keys.
    Vote { name: TransactionName, refused: Option<Conflict> },
    /// To a resolver: the transaction has committed with these stamps, or never will.
    Outcome { name: TransactionName, stamps: Option<BTreeMap<PartitionId, CommitStamp>> },
    /// The resolver knows that the transaction has committed.
    Acknowledged(TransactionName),
    /// From a resolver that waits: what became of the transaction?
    Ask(TransactionName),
    /// All updates of the sender in `after + 1..=through` that concern the receiver, which has acknowledged
    /// those up to `after`. Of those, some other site lacks `retained`. The sender's newest update is `last`.
    Updates { after: u64, through: u64, last: u64, retained: Vec<u64>, updates: Vec<Arc<Update>> },
    /// The sender has applied all that concerns it of the receiver's updates in `1..=through`.
    Applied { through: u64 },
    /// The sender asks for updates of a third site that it may apply to replicas with these views.
    Want { origin: NodeId, views: BTreeMap<PartitionId, VectorClock> },
    /// Updates of a third site that the receiver asked for. It may apply them in this order.
    Relayed { origin: NodeId, updates: Vec<Arc<Update>> },
}

/// A record of a site's log, which the site reads after a crash.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A process of the site has started.
    Started(BootId),
    /// Its resolver has locked keys.
    Locked { name: TransactionName, keys: Vec<Key> },
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
}
