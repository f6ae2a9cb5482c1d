//! A replica of a partition: its view, its dependency view, and versions of items.

use super::{CommitStamp, Pcsi, Update, VectorClock, clock};
use std::collections::BTreeMap;
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, PartitionId};

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    pub(super) view: VectorClock,
    /// What `view` depends on in the other partitions.
    pub(super) depends: BTreeMap<PartitionId, VectorClock>,
    /// The deletes whose tombstones are removed. Whoever writes an item without versions must have seen them.
    pub(super) forgotten: VectorClock,
    /// The oldest first. A version follows one that its writer had in its snapshot.
    versions: BTreeMap<Key, Vec<(CommitStamp, Option<Entry>)>>,
}

impl Replica {
    /// What a key has in a view.
    pub(super) fn read(&self, key: &Key, view: &VectorClock) -> Option<Entry> {
        let versions = self.versions.get(key)?;
        versions.iter().rev().find(|(stamp, _)| view.sees(*stamp))?.1.clone()
    }

    /// A key's newest version.
    pub(super) fn newest(&self, key: &Key) -> Option<CommitStamp> {
        self.versions.get(key)?.last().map(|(stamp, _)| *stamp)
    }

    /// The number of keys with versions.
    pub(super) fn len(&self) -> usize {
        self.versions.len()
    }

    /// A key's next version. Those that none of the views sees any more are removed.
    fn write(&mut self, key: Key, stamp: CommitStamp, entry: Option<Entry>, views: &[&VectorClock]) {
        let versions = self.versions.entry(key).or_default();
        let is_seen = |place: &usize| {
            let hides = |view: &&&VectorClock| {
                view.sees(versions[*place].0)
                    && !versions[place + 1..].iter().any(|(later, _)| view.sees(*later))
            };
            views.iter().any(|view| hides(&view))
        };
        let seen: Vec<usize> = (0..versions.len()).filter(is_seen).collect();
        let mut place = 0;
        versions.retain(|_| {
            place += 1;
            seen.contains(&(place - 1))
        });
        versions.push((stamp, entry));
    }

    /// Removes a key that a delete has left, unless a view does not see the delete. Returns whether the
    /// tombstone of this delete is no more.
    fn bury(&mut self, key: &Key, stamp: CommitStamp, views: &[&VectorClock]) -> bool {
        if self.newest(key) != Some(stamp) {
            return true;
        }
        let is_everywhere = views.iter().all(|view| view.sees(stamp));
        if is_everywhere {
            self.versions.remove(key);
            self.forgotten.count(stamp);
        }
        is_everywhere
    }
}

impl Update {
    /// Whether the update has its place among what replicas with these views have applied: equation (1), and
    /// causality. A partition without a view asks for nothing.
    pub(super) fn may_follow<'a>(&self, view: impl Fn(PartitionId) -> Option<&'a VectorClock>) -> bool {
        let is_next = |(&of, stamp): (&PartitionId, &CommitStamp)| {
            view(of).is_none_or(|view| view.at(stamp.site) + 1 == stamp.sequence)
        };
        let is_covered =
            |(&of, clock): (&PartitionId, &VectorClock)| view(of).is_none_or(|view| view.covers(clock));
        (self.stamps.iter().all(is_next) || is_active(Mutant::SkipNumberCheck))
            && (self.depends.iter().all(is_covered) || is_active(Mutant::SkipDependencyCheck))
    }

    /// Whether these views count the update in all its partitions. A partition without a view asks for
    /// nothing.
    pub(super) fn is_counted<'a>(&self, view: impl Fn(PartitionId) -> Option<&'a VectorClock>) -> bool {
        self.stamps.iter().all(|(&of, &stamp)| view(of).is_none_or(|view| view.sees(stamp)))
    }
}

impl Pcsi {
    /// Whether this site may apply an update now.
    pub(super) fn may_apply(&self, update: &Update) -> bool {
        update.may_follow(|of| self.view(of))
    }

    /// Whether an update is applied here.
    pub(super) fn has_applied(&self, update: &Update) -> bool {
        update.is_counted(|of| self.view(of))
    }

    /// Applies all of an update that concerns this site, in one step. A resolver has the outcome by that.
    pub(super) fn apply(&mut self, update: &Update) {
        self.resolver.release(update.name, Some(&update.stamps), &self.options.sites);
        for (partition, stamp) in &update.stamps {
            let Some(replica) = self.replicas.get_mut(partition) else { continue };
            replica.view.count(*stamp);
            let others = update.depends.iter().filter(|(of, _)| *of != partition);
            others.for_each(|(&of, clock)| clock::merge_into(&mut replica.depends, of, clock));
            for (&of, &stamp) in update.stamps.iter().filter(|(of, _)| *of != partition) {
                replica.depends.entry(of).or_default().count(stamp);
            }
            // The views of open transactions; a transaction that waits for votes reads no more.
            let views: Vec<&VectorClock> =
                self.open.values().filter_map(|open| open.views.get(partition)).collect();
            for (key, entry) in &update.writes {
                if self.options.sites.partition_of(key) == *partition {
                    replica.write(key.clone(), *stamp, entry.clone(), &views);
                    self.resolver.applied(key, *stamp);
                }
            }
            if is_active(Mutant::ApplyOnePartition) && stamp.site != self.options.me {
                break;
            }
        }
    }

    /// All sites concerned have applied an update: the tombstones of its deletes may go.
    pub(super) fn mark_stable(&mut self, update: &Update) {
        for (key, entry) in &update.writes {
            let partition = self.options.sites.partition_of(key);
            if entry.is_none() && self.replicas.contains_key(&partition) {
                self.tombstones.insert((partition, key.clone(), update.stamps[&partition]));
            }
        }
    }

    /// Removes the tombstones that no open transaction needs.
    pub(super) fn bury(&mut self) {
        let open = &self.open;
        let replicas = &mut self.replicas;
        self.tombstones.retain(|(partition, key, stamp)| {
            let views: Vec<&VectorClock> =
                open.values().filter_map(|open| open.views.get(partition)).collect();
            replicas.get_mut(partition).is_some_and(|replica| !replica.bury(key, *stamp, &views))
        });
    }
}
