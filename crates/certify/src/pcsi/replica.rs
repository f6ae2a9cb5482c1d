//! A replica of a partition: its view, its dependency view, and versions of items.

use super::codec::{Form, Input};
use super::remote::RemoteReads;
use super::{CommitStamp, Open, Pcsi, SiteMap, Update, VectorClock, clock};
use crate::counts::{KeyCounts, expires};
use std::collections::{BTreeMap, BTreeSet};
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, PartitionId, RequestId};

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Replica {
    pub(super) view: VectorClock,
    /// The updates of the other partitions on which `view` depends.
    pub(super) depends: BTreeMap<PartitionId, VectorClock>,
    /// The deletes whose tombstones are removed. Whoever writes an item without versions must have seen them.
    pub(super) forgotten: VectorClock,
    /// The oldest first. A version follows one that its writer had in its snapshot.
    versions: BTreeMap<Key, Versions>,
    /// The keys that may have more than one version.
    with_earlier: BTreeSet<Key>,
    /// The counts of the newest versions.
    counts: KeyCounts,
    /// The keys that expire and that this site resolves, by the times when they expire. A replica on its way
    /// to another site has none.
    expiring: BTreeSet<(u64, Key)>,
}

type Versions = Vec<(CommitStamp, Option<Entry>)>;

/// Removes the versions of a key that none of the views reads, except the newest one. Returns whether one is
/// left.
fn prune(versions: &mut Versions, views: &[&VectorClock]) -> bool {
    let read = |view: &&VectorClock| versions.iter().rposition(|(stamp, _)| view.sees(*stamp));
    let mut kept: BTreeSet<usize> = views.iter().filter_map(read).collect();
    kept.insert(versions.len().saturating_sub(1));
    let mut place = 0..;
    versions.retain(|_| place.next().is_some_and(|place| kept.contains(&place)));
    versions.len() <= 1
}

impl Replica {
    /// A replica without versions.
    pub(super) fn empty(view: VectorClock) -> Replica {
        Replica { view, ..Replica::default() }
    }

    /// A key's version in a view.
    pub(super) fn version(&self, key: &Key, view: &VectorClock) -> Option<&(CommitStamp, Option<Entry>)> {
        self.versions.get(key)?.iter().rev().find(|(stamp, _)| view.sees(*stamp))
    }

    /// A key's version in a view that the replica's own view covers, if the replica knows it. It may have
    /// removed earlier versions unless the view is among those for which it keeps them.
    pub(super) fn version_in(
        &self,
        key: &Key,
        view: &VectorClock,
        is_kept: bool,
    ) -> Option<Option<&(CommitStamp, Option<Entry>)>> {
        let is_known = is_kept
            || match self.newest(key) {
                Some(stamp) => view.sees(stamp),
                None => view.covers(&self.forgotten),
            };
        is_known.then(|| self.version(key, view))
    }

    /// A key's newest version.
    pub(super) fn newest(&self, key: &Key) -> Option<CommitStamp> {
        self.versions.get(key)?.last().map(|(stamp, _)| *stamp)
    }

    /// The counts of the newest versions.
    pub(super) fn counts(&self) -> KeyCounts {
        self.counts
    }

    /// The keys that have expired and that this site resolves.
    pub(super) fn expired(&self, now_ms: u64) -> impl Iterator<Item = &Key> {
        let due = self.expiring.iter().take_while(move |(expires_at_ms, _)| *expires_at_ms <= now_ms);
        due.map(|(_, key)| key)
    }

    /// The newest versions of what the store itself keeps.
    pub(super) fn system_records(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        let records = self.versions.range(Key::system(b"")..);
        records.filter_map(|(key, versions)| Some((key, versions.last()?.1.as_ref()?)))
    }

    /// The number of versions.
    pub(super) fn len(&self) -> usize {
        self.versions.values().map(Vec::len).sum()
    }

    /// A key's next version. Those before it that none of the views reads are removed.
    fn write(
        &mut self,
        key: Key,
        (stamp, entry): (CommitStamp, Option<Entry>),
        is_own: bool,
        views: &[&VectorClock],
    ) {
        let Replica { versions, counts, expiring, .. } = self;
        let versions = versions.entry(key.clone()).or_default();
        let before = versions.last().and_then(|(_, before)| before.as_ref());
        counts.remove(&key, before);
        if let Some(expires) = expires(&key, before) {
            expiring.remove(&expires);
        }
        counts.add(&key, entry.as_ref());
        expiring.extend(expires(&key, entry.as_ref()).filter(|_| is_own));
        versions.push((stamp, entry));
        if !prune(versions, views) {
            self.with_earlier.insert(key);
        }
    }

    /// Removes the versions that none of the views reads, except each key's newest one.
    fn prune(&mut self, views: &[&VectorClock]) {
        let versions = &mut self.versions;
        self.with_earlier.retain(|key| versions.get_mut(key).is_some_and(|versions| !prune(versions, views)));
    }

    /// The newest version of each key, for a site that has lost its disk.
    pub(super) fn without_earlier(&self) -> Replica {
        let mut replica = self.clone();
        replica.prune(&[]);
        replica.expiring.clear();
        replica
    }

    /// The site has got the replica from another one, and resolves these of its keys.
    pub(super) fn keep_deadlines(&mut self, is_own: impl Fn(&Key) -> bool) {
        let newest = self.versions.iter().filter_map(|(key, versions)| {
            let (_, entry) = versions.last()?;
            expires(key, entry.as_ref())
        });
        self.expiring = newest.filter(|(_, key)| is_own(key)).collect();
    }

    /// Whether each key has only one version.
    pub(super) fn is_pruned(&self) -> bool {
        self.with_earlier.is_empty()
    }

    /// Removes a key that a delete has left, unless a view does not see the delete. Returns whether the
    /// tombstone of this delete is no more.
    fn bury(&mut self, key: &Key, stamp: CommitStamp, views: &[&VectorClock]) -> bool {
        if self.newest(key) != Some(stamp) {
            return true;
        }
        let is_everywhere =
            views.iter().all(|view| view.sees(stamp)) || is_active(Mutant::BuryUnderSnapshots);
        if is_everywhere {
            self.versions.remove(key);
            self.forgotten.count_among(stamp, &self.view);
        }
        is_everywhere
    }
}

impl Form for Replica {
    fn put(&self, out: &mut Vec<u8>) {
        self.view.put(out);
        self.depends.put(out);
        self.forgotten.put(out);
        self.versions.put(out);
    }

    fn take(input: &mut Input<'_>) -> Option<Replica> {
        let (view, depends, forgotten) = (Form::take(input)?, Form::take(input)?, Form::take(input)?);
        let versions: BTreeMap<Key, Versions> = Form::take(input)?;
        versions.values().all(|versions| !versions.is_empty()).then_some(())?;
        let mut replica = Replica { view, depends, forgotten, versions, ..Replica::default() };
        for (key, versions) in &replica.versions {
            let newest = versions.last().and_then(|(_, entry)| entry.as_ref());
            replica.counts.add(key, newest);
            if versions.len() > 1 {
                replica.with_earlier.insert(key.clone());
            }
        }
        Some(replica)
    }
}

impl Update {
    /// See the guarantees of the type.
    pub(super) fn keeps_guarantees(&self, sites: &SiteMap) -> bool {
        let Update { name, number, stamps, writes, .. } = self;
        let is_own = |(&of, stamp): (&PartitionId, &CommitStamp)| {
            if stamp.is_granted() {
                return sites.has_grants() && sites.sites(of).contains(&stamp.site) && stamp.is_of_a_grant();
            }
            stamp.site == name.origin
                && sites.may_number(stamp.site, of)
                && name.incarnation.has(stamp.sequence)
        };
        name.incarnation.has(*number)
            && stamps.iter().all(is_own)
            && writes.keys().all(|key| stamps.contains_key(&sites.partition_of(key)))
    }

    /// Whether the update has its place among what replicas with these views have applied: equation (1), and
    /// causality. A partition without a view asks for nothing. A site that has got its partitions from
    /// several others may have applied the update in some of them.
    pub(super) fn may_follow<'a>(&self, view: impl Fn(PartitionId) -> Option<&'a VectorClock>) -> bool {
        let is_next = |(&of, stamp): (&PartitionId, &CommitStamp)| {
            stamp.is_granted() || view(of).is_none_or(|view| view.at(stamp.site) + 1 >= stamp.sequence)
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

/// The views in which transactions read a partition: those of this site's open transactions, and the states
/// that other sites may read. A transaction that waits for votes reads no more.
fn read_views<'a>(
    open: &'a BTreeMap<RequestId, Open>,
    remote: &'a RemoteReads,
    partition: PartitionId,
) -> Vec<&'a VectorClock> {
    let own = open.values().filter_map(|open| open.views.get(&partition));
    own.chain(remote.views(partition)).collect()
}

impl Pcsi {
    /// Whether this site may apply an update now.
    pub fn may_apply(&self, update: &Update) -> bool {
        update.may_follow(|of| self.view(of))
    }

    /// Whether an update is applied here.
    pub fn has_applied(&self, update: &Update) -> bool {
        update.is_counted(|of| self.view(of))
    }

    /// Applies all of an update that concerns this site, in one step. A resolver has the outcome by that.
    pub(super) fn apply(&mut self, update: &Update) {
        self.resolver.release(update.name, Some(&update.stamps), &self.options.sites);
        let mut applied = 0;
        for (partition, stamp) in &update.stamps {
            let Some(replica) = self.replicas.get_mut(partition) else { continue };
            if replica.view.sees(*stamp) {
                continue;
            }
            applied += 1;
            replica.view.count(*stamp);
            if stamp.site == self.options.me {
                self.grants.applied(*partition, *stamp);
            }
            let others = update.depends.iter().filter(|(of, _)| *of != partition);
            others.for_each(|(&of, clock)| clock::merge_into(&mut replica.depends, of, clock));
            let is_tracked = |of: &PartitionId| of != partition && !self.options.sites.ignores_causality;
            for (&of, &stamp) in update.stamps.iter().filter(|(of, _)| is_tracked(of)) {
                replica.depends.entry(of).or_default().count(stamp);
            }
            let views = read_views(&self.open, &self.remote, *partition);
            if is_active(Mutant::ApplyOnePartition) && stamp.site != self.options.me && applied > 1 {
                continue;
            }
            for (key, entry) in &update.writes {
                if self.options.sites.partition_of(key) == *partition {
                    let is_own = self.options.sites.resolver_of(key) == self.options.me;
                    replica.write(key.clone(), (*stamp, entry.clone()), is_own, &views);
                    self.resolver.applied(key, *stamp);
                }
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

    /// Removes the versions that no open transaction reads and no resolver needs, and such tombstones.
    pub(super) fn bury(&mut self) {
        let (open, remote) = (&self.open, &self.remote);
        for (partition, replica) in &mut self.replicas {
            replica.prune(&read_views(open, remote, *partition));
        }
        let replicas = &mut self.replicas;
        // Tombstones are in the order of their partitions, and each partition's views are the same for all.
        let mut views: (Option<PartitionId>, Vec<&VectorClock>) = (None, Vec::new());
        self.tombstones.retain(|(partition, key, stamp)| {
            if views.0 != Some(*partition) {
                views = (Some(*partition), read_views(open, remote, *partition));
            }
            replicas.get_mut(partition).is_some_and(|replica| !replica.bury(key, *stamp, &views.1))
        });
    }
}
