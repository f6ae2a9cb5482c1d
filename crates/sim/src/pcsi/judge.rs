//! Judges a history of PCSI by what clients read and what logs recorded, without any vector of the protocol.
//!
//! Each writer reads what it overwrites, and writes its own number. So the versions of a key form a chain.

use super::ledger::{ClientAttempt, KnownOutcome, Ledger, attempts_of, number, update_in};
use crate::world::Violation;
use certify::pcsi::{CommitStamp, Incarnation, Pcsi, Record, TransactionName, Update};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{NodeId, PartitionId, SessionId};

/// A key's number, and the attempt that wrote it; 0 where nothing was there.
type Versions = BTreeMap<(usize, u64), usize>;

/// All that there is at the end.
pub(super) struct FinalSites<'a> {
    pub ledger: &'a Ledger,
    pub sites: Vec<&'a Pcsi>,
}

impl std::ops::Deref for FinalSites<'_> {
    type Target = Ledger;

    fn deref(&self) -> &Ledger {
        self.ledger
    }
}

impl FinalSites<'_> {
    /// What each site with a replica has of a key.
    fn values(&self, key: usize) -> Vec<(usize, u64)> {
        let partition = self.ledger.sites.partition_of(&self.keys[key]);
        let with_replica = self.sites.iter().enumerate().filter(|(_, site)| site.view(partition).is_some());
        with_replica.map(|(host, site)| (host, number(site.newest(&self.keys[key]).entry.as_ref()))).collect()
    }

    /// What a site keeps, and the number of keys that it has.
    fn kept(&self, host: usize) -> ((usize, usize), usize) {
        let site = self.sites[host];
        (site.kept(), self.keys.iter().filter(|key| site.newest(key).entry.is_some()).count())
    }
}

/// # Errors
/// What the history breaks.
pub(super) fn judge(end: &FinalSites<'_>) -> Result<(), Violation> {
    let found = |oracle| move |text: String| Violation::new(oracle, text);
    let committed = committed(end).map_err(found("commits"))?;
    let versions = chains(end, &committed).map_err(found("lost updates"))?;
    snapshots(end, &committed, &versions).map_err(found("snapshots"))?;
    views(end).map_err(found("views"))?;
    replicas(end, &versions).map_err(found("replica states"))?;
    deletes(end, &committed).map_err(found("deletes"))
}

/// The attempts whose updates were in the logs of lost disks only.
fn lost(end: &FinalSites<'_>) -> BTreeSet<u64> {
    let updates = end.updates();
    let lost = updates.values().filter(|update| end.lost.contains(&update.name));
    lost.flat_map(|update| attempts_of(update)).collect()
}

/// The attempts that have committed and are not lost: of each transaction of a session at most one. Each
/// stamp belongs to one transaction. Each site concerned has all that some site has, and none twice.
fn committed(end: &FinalSites<'_>) -> Result<BTreeSet<u64>, String> {
    let mut transactions: BTreeSet<(usize, SessionId, u64)> = BTreeSet::new();
    let mut owners: BTreeMap<(PartitionId, CommitStamp), TransactionName> = BTreeMap::new();
    for (site, records) in end.all_logs() {
        for record in records {
            if let Record::Committed { id, .. } = record
                && !transactions.insert((site, id.session, id.sequence))
            {
                return Err(format!("two attempts of a transaction have committed, one of them {id:?}"));
            }
            let Some(update) = update_in(record) else { continue };
            for (&partition, &stamp) in &update.stamps {
                // The granter has filled the number of an update that is lost.
                if stamp.is_granted() && end.lost.contains(&update.name) {
                    continue;
                }
                if *owners.entry((partition, stamp)).or_insert(update.name) != update.name {
                    return Err(format!("two transactions have {stamp:?} of {partition:?}"));
                }
            }
        }
    }
    let updates = end.updates();
    let (mut attempts, mut counts) = (BTreeSet::new(), BTreeMap::new());
    for record in end.logs().enumerate().flat_map(|(site, log)| log.iter().map(move |record| (site, record)))
    {
        if let (site, Some(update)) = (record.0, update_in(record.1)) {
            *counts.entry((site, update.name)).or_insert(0) += 1;
        }
    }
    if let Some(((site, name), _)) = counts.iter().find(|(_, count)| **count > 1) {
        return Err(format!("site {site} has applied {name:?} twice"));
    }
    for update in updates.values().filter(|update| !end.lost.contains(&update.name)) {
        attempts.extend(attempts_of(update));
        for (&partition, stamp) in &update.stamps {
            let mut sites = (0..end.logs().count()).filter(|&site| end.has(site as u16, partition));
            if let Some(site) = sites.find(|&site| !end.has_update(site, update)) {
                return Err(format!(
                    "site {site} lacks numbers of {:?} in {partition:?}: {}",
                    stamp.site, stamp.sequence
                ));
            }
        }
    }
    // The numbers of a site's incarnation have no hole, except those that it granted and could not fill.
    let mut newest: BTreeMap<(PartitionId, NodeId, bool, Incarnation), u64> = BTreeMap::new();
    for &(partition, stamp) in owners.keys() {
        let (incarnation, is_granted) = (stamp.incarnation(), stamp.is_granted());
        let is_over = end.sites[usize::from(stamp.site.0)].incarnation() != incarnation;
        if is_granted && is_over {
            continue;
        }
        let first = if is_granted { CommitStamp::granted_base(incarnation) } else { incarnation.base() };
        let last = newest.entry((partition, stamp.site, is_granted, incarnation)).or_insert(first);
        *last += 1;
        if stamp.sequence != *last {
            return Err(format!("{:?} has no number {last} in {partition:?}", stamp.site));
        }
    }
    let lost = lost(end);
    let is_lost = |attempt: &&ClientAttempt| {
        let is_known = attempts.contains(&attempt.number) || lost.contains(&attempt.number);
        attempt.is_acknowledged() && attempt.writes && !is_known
    };
    if let Some(attempt) = end.attempts.iter().find(is_lost) {
        return Err(format!("attempt {} was acknowledged and is lost", attempt.number));
    }
    let denied = end.attempts.iter().filter(|attempt| attempt.told == KnownOutcome::NoEffect);
    match denied.map(|attempt| attempt.number).find(|number| attempts.contains(number)) {
        Some(number) => Err(format!("attempt {number} has committed, and its client heard that it has not")),
        None => Ok(attempts),
    }
}

/// The newest version at or before the one that was read that is not lost.
fn remaining(end: &FinalSites<'_>, lost: &BTreeSet<u64>, key: usize, mut read: u64) -> u64 {
    while lost.contains(&read) {
        let before = end.attempts.get(read as usize - 1).and_then(|attempt| attempt.reads.get(&key));
        read = before.copied().unwrap_or(0);
    }
    read
}

/// The place of each version in its key's chain. Of two writers that read the same version, one loses.
fn chains(end: &FinalSites<'_>, committed: &BTreeSet<u64>) -> Result<Versions, String> {
    let lost = lost(end);
    let mut next: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for attempt in writers(end, committed) {
        for (&key, &read) in &attempt.reads {
            let read = remaining(end, &lost, key, read);
            if read == 0 && end.is_deleted(key) {
                continue;
            }
            if let Some(other) = next.insert((key, read), attempt.number) {
                return Err(format!(
                    "attempts {other} and {} both overwrote {read} of key {key}",
                    attempt.number
                ));
            }
        }
    }
    let mut places = Versions::new();
    for key in (0..end.keys.len()).filter(|&key| !end.is_deleted(key)) {
        let (mut version, mut place) = (0, 0);
        places.insert((key, version), place);
        while let Some(&later) = next.get(&(key, version)) {
            (version, place) = (later, place + 1);
            places.insert((key, version), place);
        }
    }
    Ok(places)
}

fn writers<'a>(
    end: &'a FinalSites<'_>,
    committed: &'a BTreeSet<u64>,
) -> impl Iterator<Item = &'a ClientAttempt> {
    end.attempts.iter().filter(|attempt| attempt.writes && committed.contains(&attempt.number))
}

/// What a transaction read contains all that it causally follows: its session's earlier transactions, those
/// that it read from, and what they follow.
fn snapshots(end: &FinalSites<'_>, committed: &BTreeSet<u64>, versions: &Versions) -> Result<(), String> {
    let by_number: BTreeMap<u64, &ClientAttempt> =
        end.attempts.iter().map(|attempt| (attempt.number, attempt)).collect();
    let lost = lost(end);
    // Others may have read what a crash then took back, and no client was told.
    let is_seen = |attempt: &&ClientAttempt| attempt.is_acknowledged() || committed.contains(&attempt.number);
    for attempt in end.attempts.iter().filter(is_seen) {
        let mut past = BTreeSet::new();
        let mut found: Vec<u64> = attempt.reads.values().copied().chain(attempt.previous).collect();
        while let Some(number) = found.pop() {
            if number == 0 || !past.insert(number) {
                continue;
            }
            let Some(earlier) = by_number.get(&number) else { return Err(format!("nobody wrote {number}")) };
            found.extend(earlier.reads.values().copied().chain(earlier.previous));
        }
        for earlier in past.iter().map(|number| by_number[number]) {
            let has_written = earlier.writes && committed.contains(&earlier.number);
            for (&key, &read) in attempt.reads.iter().filter(|&(&key, _)| !end.is_deleted(key)) {
                // A session's read is a lower bound, too; its writes are a higher one.
                let lower = match has_written && earlier.reads.contains_key(&key) {
                    true => Some(earlier.number),
                    false => earlier.reads.get(&key).copied(),
                };
                let Some(lower) = lower else { continue };
                let (read, lower) = (remaining(end, &lost, key, read), remaining(end, &lost, key, lower));
                let places = (versions.get(&(key, read)), versions.get(&(key, lower)));
                let (Some(read_place), Some(lower_place)) = places else {
                    return Err(format!("attempt {} read {read}, which is in no chain", attempt.number));
                };
                if read_place < lower_place {
                    return Err(format!(
                        "attempt {} read {read} of key {key}, but follows {}, which has {lower}",
                        attempt.number, earlier.number
                    ));
                }
            }
        }
    }
    Ok(())
}

/// All replicas of a partition count the same numbers: each is applied or void at all of them.
fn views(end: &FinalSites<'_>) -> Result<(), String> {
    for partition in end.ledger.sites.partitions() {
        let mut views = end.sites.iter().enumerate().filter_map(|(host, site)| {
            let view = site.view(partition)?;
            Some((host, view))
        });
        let Some((first, view)) = views.next() else { continue };
        if let Some((host, other)) = views.find(|(_, other)| *other != view) {
            return Err(format!("sites {first} and {host} count {view:?} and {other:?} of {partition:?}"));
        }
    }
    Ok(())
}

/// All replicas have the end of each key's chain.
fn replicas(end: &FinalSites<'_>, versions: &Versions) -> Result<(), String> {
    for key in (0..end.keys.len()).filter(|&key| !end.is_deleted(key)) {
        let chain = versions.iter().filter(|((of, _), _)| *of == key);
        let newest = chain.max_by_key(|(_, place)| **place).map_or(0, |((_, number), _)| *number);
        for (site, has) in end.values(key) {
            if has != newest {
                return Err(format!("site {site} has {has} of key {key}, not {newest}"));
            }
        }
    }
    Ok(())
}

/// Each insert of a key that clients delete needs that nothing is there, and each delete that something is.
/// So the inserts are as many as the deletes, and one more if the key is there at the end.
fn inserts_and_deletes(end: &FinalSites<'_>, committed: &BTreeSet<u64>) -> Result<(), String> {
    let (lost, updates) = (lost(end), end.updates());
    for key in (0..end.keys.len()).filter(|&key| end.is_deleted(key)) {
        // What follows a lost insert or delete may remain.
        let is_touched = |number: &u64| end.attempts[*number as usize - 1].reads.contains_key(&key);
        if lost.iter().any(is_touched) {
            continue;
        }
        let is_delete = |update: &&Arc<Update>| {
            let is_delete = update.writes.get(&end.keys[key]).is_some_and(Option::is_none);
            is_delete && !end.lost.contains(&update.name)
        };
        let inserts = writers(end, committed).filter(|attempt| attempt.reads.get(&key) == Some(&0)).count();
        let deletes = updates.values().filter(is_delete).count();
        let live = usize::from(end.values(key).first().is_some_and(|&(_, value)| value > 0));
        if inserts != deletes + live {
            return Err(format!("key {key} has {inserts} inserts, {deletes} deletes and {live} entries"));
        }
    }
    Ok(())
}

/// All replicas have the same of a key that clients delete, and no tombstones of it.
fn deletes(end: &FinalSites<'_>, committed: &BTreeSet<u64>) -> Result<(), String> {
    for key in (0..end.keys.len()).filter(|&key| end.is_deleted(key)) {
        let values = end.values(key);
        let Some(&(_, newest)) = values.first() else { continue };
        if values.iter().any(|&(_, value)| value != newest) {
            return Err(format!("sites have {values:?} of key {key}"));
        }
        if writers(end, committed).any(|attempt| newest > 0 && attempt.reads.get(&key) == Some(&newest)) {
            return Err(format!("{newest} of key {key} was overwritten, and is there"));
        }
    }
    inserts_and_deletes(end, committed)?;
    for site in 0..end.logs().count() {
        let ((versions, unapplied), live) = end.kept(site);
        if versions != live || unapplied != 0 {
            return Err(format!(
                "site {site} keeps {versions} versions and {unapplied} stamps for {live} keys"
            ));
        }
    }
    Ok(())
}
