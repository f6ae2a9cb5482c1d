//! The conflict resolver of some items (section III-B).

use super::{CommitStamp, Pcsi, SiteMap, TransactionName, VectorClock};
use crate::Conflict;
use std::collections::{BTreeMap, BTreeSet};
use txn::mutant::{Mutant, is_active};
use txn::{Key, NodeId, PartitionId};

/// The transaction that may write some items.
#[derive(Debug)]
struct Lock {
    keys: Vec<Key>,
    since_tick: u64,
}

/// A key of `locked` has a lock of `locks`, and all keys of those are in `locked`.
#[derive(Debug, Default)]
pub(super) struct Resolver {
    locked: BTreeMap<Key, TransactionName>,
    locks: BTreeMap<TransactionName, Lock>,
    /// The committed versions of each item that this site has not applied yet. The replica knows the others.
    /// Each has its transaction's site. No map is empty. A snapshot that contains the newest version contains
    /// all of them.
    unapplied: BTreeMap<Key, BTreeMap<CommitStamp, NodeId>>,
}

impl Resolver {
    /// Locks keys that are free.
    pub fn lock(&mut self, name: TransactionName, keys: &[Key], now: u64) {
        self.locked.extend(keys.iter().map(|key| (key.clone(), name)));
        self.locks.entry(name).or_insert(Lock { keys: keys.to_vec(), since_tick: now });
    }

    /// Whether a transaction has locks.
    pub fn has_lock(&self, name: TransactionName) -> bool {
        self.locks.contains_key(&name)
    }

    /// Releases a transaction's locks: it has committed with these stamps, or never will. Returns whether it
    /// had locks.
    pub fn release(
        &mut self,
        name: TransactionName,
        stamps: Option<&BTreeMap<PartitionId, CommitStamp>>,
        sites: &SiteMap,
    ) -> bool {
        let Some(lock) = self.locks.remove(&name) else { return false };
        for key in lock.keys {
            self.locked.remove(&key);
            if let Some(&stamp) = stamps.and_then(|stamps| stamps.get(&sites.partition_of(&key))) {
                self.unapplied.entry(key).or_default().insert(stamp, name.origin);
            }
        }
        true
    }

    /// A site is fenced. Its transactions have committed with these stamps; its others never will.
    pub fn release_site(
        &mut self,
        site: NodeId,
        stamps: &BTreeMap<TransactionName, &BTreeMap<PartitionId, CommitStamp>>,
        sites: &SiteMap,
    ) {
        let names: Vec<TransactionName> =
            self.locks.keys().filter(|name| name.origin == site).copied().collect();
        for name in names {
            self.release(name, stamps.get(&name).copied(), sites);
        }
    }

    /// No version of a site is still to come, except those that are named later.
    pub fn forget_unapplied(&mut self, site: NodeId) {
        self.unapplied.retain(|_, stamps| {
            stamps.retain(|_, origin| *origin != site);
            !stamps.is_empty()
        });
    }

    /// A committed version of a site that this site has yet to apply.
    pub fn expect(&mut self, key: &Key, stamp: CommitStamp, origin: NodeId) {
        self.unapplied.entry(key.clone()).or_default().insert(stamp, origin);
    }

    /// This site has applied a version.
    pub fn applied(&mut self, key: &Key, stamp: CommitStamp) {
        let Some(stamps) = self.unapplied.get_mut(key) else { return };
        stamps.remove(&stamp);
        if stamps.is_empty() {
            self.unapplied.remove(key);
        }
    }

    /// The transactions that hold locks since then, or for longer.
    pub fn waiting_since(&self, tick: u64) -> BTreeSet<TransactionName> {
        let waiting = self.locks.iter().filter(|(_, lock)| lock.since_tick <= tick);
        waiting.map(|(&name, _)| name).collect()
    }

    /// Whether there are no locks.
    pub fn is_free(&self) -> bool {
        self.locks.is_empty()
    }

    /// The number of versions that this site has not applied yet.
    pub fn unapplied_len(&self) -> usize {
        self.unapplied.values().map(BTreeMap::len).sum()
    }
}

impl Pcsi {
    /// The conflict that keeps a transaction with these views from writing these keys.
    pub(super) fn refuses(
        &self,
        name: TransactionName,
        keys: &[Key],
        views: &BTreeMap<PartitionId, VectorClock>,
    ) -> Option<Conflict> {
        keys.iter().find_map(|key| {
            if let Some(holder) = self.resolver.locked.get(key).filter(|holder| **holder != name) {
                return Some(Conflict::Locked { key: key.clone(), holder: holder.origin });
            }
            let partition = self.options.sites.partition_of(key);
            let (replica, view) = (self.replicas.get(&partition)?, views.get(&partition)?);
            // A view that counts an update as lost need not contain what the update followed. The resolver
            // may not have heard of the fence yet, so it asks for the replica's newest version, too.
            let sees_newest = match replica.newest(key) {
                Some(stamp) => view.sees(stamp),
                None => view.covers(&replica.forgotten) || is_active(Mutant::ForgetTombstones),
            };
            let mut unapplied = self.resolver.unapplied.get(key).into_iter().flat_map(BTreeMap::keys);
            let is_seen = sees_newest && unapplied.all(|&stamp| view.sees(stamp));
            (!is_seen && !is_active(Mutant::SkipConflictCheck)).then(|| Conflict::Key(key.clone()))
        })
    }
}
