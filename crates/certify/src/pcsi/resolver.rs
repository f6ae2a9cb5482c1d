//! The conflict resolver of some items (section III-B).

use super::{CommitStamp, SiteMap, TransactionName, VectorClock};
use std::collections::{BTreeMap, BTreeSet};
use txn::mutant::{Mutant, is_active};
use txn::{Key, PartitionId};

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
    /// The newest committed version of each item.
    newest: BTreeMap<Key, CommitStamp>,
}

impl Resolver {
    /// The key that keeps a transaction with these views from committing.
    pub fn refuses<'a>(
        &self,
        name: TransactionName,
        keys: &'a [Key],
        views: &BTreeMap<PartitionId, VectorClock>,
        sites: &SiteMap,
    ) -> Option<&'a Key> {
        let is_free = |key: &Key| self.locked.get(key).is_none_or(|holder| *holder == name);
        let is_seen = |key: &Key| {
            let Some(&newest) = self.newest.get(key) else { return true };
            views.get(&sites.partition_of(key)).is_some_and(|view| view.sees(newest))
        };
        keys.iter().find(|key| !is_free(key) || !(is_seen(key) || is_active(Mutant::SkipConflictCheck)))
    }

    /// Locks keys that are free.
    pub fn lock(&mut self, name: TransactionName, keys: &[Key], now: u64) {
        self.locked.extend(keys.iter().map(|key| (key.clone(), name)));
        self.locks.entry(name).or_insert(Lock { keys: keys.to_vec(), since_tick: now });
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
                self.newest.insert(key, stamp);
            }
        }
        true
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
}
