//! What the sites' logs had, what clients were told, and which updates are lost: the judge's evidence.

use super::Plan;
use crate::world::Violation;
use certify::Answer;
use certify::pcsi::{
    Fencing, Incarnation, Installed, Letter, Message, Pcsi, Record, ReplicaState, SiteMap, TransactionName,
    Update,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{Entry, Key, NodeId, PartitionId, RequestId};

/// What became of an attempt, as far as its client knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownOutcome {
    Nothing,
    Committed,
    NoEffect,
}

/// A transaction of a client. It reads keys, and writes its number to all of them, or none, but deletes some.
#[derive(Debug)]
pub(super) struct ClientAttempt {
    /// From 1.
    pub number: u64,
    /// The host of its site.
    pub host: u16,
    /// The logs that the host had lost before the attempt.
    pub losses: usize,
    pub reads: BTreeMap<usize, u64>,
    pub writes: bool,
    /// The session's last acknowledged one, all of them at one site.
    pub previous: Option<u64>,
    pub told: KnownOutcome,
}

impl ClientAttempt {
    /// Whether a client of a host does not know the outcome yet.
    pub fn is_under_way(&self, host: u16) -> bool {
        self.host == host && self.told == KnownOutcome::Nothing
    }

    pub fn is_acknowledged(&self) -> bool {
        self.told == KnownOutcome::Committed
    }
}

/// The log of a host.
#[derive(Debug, Default)]
struct Log {
    /// The records that a process has written, in order.
    records: Vec<Record>,
    /// The first ones of them, which are on the disk.
    durable: usize,
    /// The logs that the host has lost, or that a fence made void, and what the host had fetched before each.
    old: Vec<(Vec<Record>, BTreeSet<TransactionName>)>,
    /// The updates in the partitions that the host got from others when it began without a log.
    fetched: BTreeSet<TransactionName>,
    /// The host's incarnation when it last lost its disk, or an operator fenced it; until the next one is
    /// open.
    out: Option<Incarnation>,
}

impl Log {
    fn durable(&self) -> &[Record] {
        &self.records[..self.durable]
    }
}

/// The update in a record, if the record says that a site has committed or applied one.
pub(super) fn update_in(record: &Record) -> Option<&Arc<Update>> {
    match record {
        Record::Committed { update, .. } | Record::Applied { update } | Record::Nulled { update } => {
            Some(update)
        }
        _ => None,
    }
}

fn has_in(records: &[Record], fetched: &BTreeSet<TransactionName>, update: &Update) -> bool {
    let mut updates = records.iter().filter_map(update_in);
    fetched.contains(&update.name) || updates.any(|other| other.name == update.name)
}

/// The incarnation that has written a log.
fn incarnation_of(records: &[Record]) -> Incarnation {
    let installed = records.iter().rev().find_map(|record| match record {
        Record::Installed(installed) => Some(installed.incarnation()),
        _ => None,
    });
    installed.unwrap_or_default()
}

/// The update of a client's transaction.
fn update_of(records: &[Record], id: RequestId) -> Option<&Arc<Update>> {
    records.iter().rev().find_map(|record| match record {
        Record::Committed { id: of, update, .. }
            if (of.session, of.sequence) == (id.session, id.sequence) =>
        {
            Some(update)
        }
        _ => None,
    })
}

/// The attempts that wrote an update: one, but for a defect.
pub(super) fn attempts_of(update: &Update) -> impl Iterator<Item = u64> {
    update.writes.values().map(|entry| number(entry.as_ref())).filter(|&number| number > 0)
}

/// See the module's head.
pub(super) struct Ledger {
    pub sites: Arc<SiteMap>,
    /// The keys that clients only overwrite, then the keys that clients also delete.
    pub keys: Vec<Key>,
    overwritten: usize,
    logs: Vec<Log>,
    pub attempts: Vec<ClientAttempt>,
    /// The partitions that sites have sent to sites without a log, each with the updates that it contains.
    given: Vec<(PartitionId, Arc<ReplicaState>, BTreeSet<TransactionName>)>,
    /// The updates that enough sites had when their origin heard of a fence.
    witnessed: BTreeSet<TransactionName>,
    /// The updates that were in the logs of lost disks only.
    pub lost: BTreeSet<TransactionName>,
}

/// The attempt that wrote an entry.
pub(super) fn number(entry: Option<&Entry>) -> u64 {
    let text = entry.and_then(|entry| entry.value.as_string());
    let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

impl Ledger {
    pub fn new(plan: &Plan) -> Ledger {
        let overwritten = (0..plan.overwritten).map(|key| Key::new(format!("k{key}").as_bytes()));
        let deleted = (0..2).map(|key| Key::new(format!("d{key}").as_bytes()));
        Ledger {
            sites: Arc::clone(&plan.options.sites),
            keys: overwritten.chain(deleted).collect(),
            overwritten: plan.overwritten,
            logs: (0..plan.hosts).map(|_| Log::default()).collect(),
            attempts: Vec::new(),
            given: Vec::new(),
            witnessed: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    /// Whether a host has, or had, a log.
    pub fn is_founded(&self, host: u16) -> bool {
        let log = &self.logs[usize::from(host)];
        log.durable > 0 || !log.old.is_empty()
    }

    /// A process writes records.
    pub fn written(&mut self, host: u16, records: &[Record]) {
        self.logs[usize::from(host)].records.extend_from_slice(records);
    }

    /// The first records of a host's log are on its disk.
    ///
    /// # Errors
    /// The site has opened without an update of its own that another site has.
    pub fn synced(&mut self, host: u16, durable: usize) -> Result<(), Violation> {
        let log = &mut self.logs[usize::from(host)];
        let from = log.durable;
        log.durable = from.max(durable);
        let installed = |record: &Record| match record {
            Record::Installed(installed) => Some(Arc::clone(installed)),
            _ => None,
        };
        let installed = log.records[from..log.durable].iter().rev().find_map(installed);
        if let Some(installed) = installed {
            self.logs[usize::from(host)].fetched = self.fetched(&installed);
        }
        let log = &self.logs[usize::from(host)];
        match log.records[from..log.durable].contains(&Record::Opened) {
            true => self.check_opened(host),
            false => Ok(()),
        }
    }

    /// A site that opens again has all that remains of its earlier incarnations.
    fn check_opened(&self, host: u16) -> Result<(), Violation> {
        let others = self.logs.iter().filter(|log| log.out.is_none());
        let mut updates = others.flat_map(|log| log.durable().iter().filter_map(update_in));
        let is_lacked = |update: &&Arc<Update>| {
            let is_concerned = update.stamps.keys().any(|&of| self.has(host, of));
            update.name.origin.0 == host && is_concerned && !self.has_update(usize::from(host), update)
        };
        updates.find(is_lacked).map_or(Ok(()), |update| {
            let text = format!("host {host} has opened without {:?}, which another site has", update.name);
            Err(Violation::new("commits", text))
        })
    }

    /// A site tells a client of a transaction.
    ///
    /// # Errors
    /// The transaction has not committed, or too few sites have it. A site counts if it has, or had, the
    /// update on its disk, unless the site that tells knows that it was fenced since.
    pub fn check_told(
        &self,
        host: u16,
        id: RequestId,
        answer: &Answer,
        sites_min: usize,
    ) -> Result<(), Violation> {
        if !matches!(answer, Answer::Committed | Answer::CommittedBefore) {
            return Ok(());
        }
        let Some(update) = update_of(&self.logs[usize::from(host)].records, id) else {
            return match answer {
                // A transaction that only reads has no record.
                Answer::Committed => Ok(()),
                _ => Err(Violation::new("commits", format!("no attempt of {id:?} has committed"))),
            };
        };
        let sites = self.sites_with(host, update);
        // One site is the site that tells, also where it lacks the partition.
        match sites >= sites_min || sites_min <= 1 || self.witnessed.contains(&update.name) {
            true => Ok(()),
            false => {
                let text = format!("{:?} is told, and {sites} of {sites_min} sites had it", update.name);
                Err(Violation::new("min sites to write", text))
            }
        }
    }

    /// A host is about to write that a site is fenced. Its clients may hear of each update that had enough
    /// sites before.
    pub fn note_decided(&mut self, host: u16, sites_min: usize) {
        let committed = |record: &Record| match record {
            Record::Committed { update, .. } if self.sites_with(host, update) >= sites_min => {
                Some(update.name)
            }
            _ => None,
        };
        let witnessed: Vec<_> = self.logs[usize::from(host)].records.iter().filter_map(committed).collect();
        self.witnessed.extend(witnessed);
    }

    /// The number of sites that have an update of a host, in the partition that the fewest sites have.
    fn sites_with(&self, host: u16, update: &Update) -> usize {
        let has_it = |site: &&NodeId| site.0 == host || self.is_witness(host, **site, update);
        let sites = |of: &PartitionId| self.sites.sites(*of).iter().filter(has_it).count();
        update.stamps.keys().map(sites).min().unwrap_or_default()
    }

    /// Whether a site had an update in an incarnation that has not been fenced as far as a host knows.
    fn is_witness(&self, host: u16, site: NodeId, update: &Update) -> bool {
        let decided = |record: &Record| match record {
            Record::Decided { decisions } => decisions.get(&site).map(|known| known.candidate.incarnation),
            _ => None,
        };
        let known = self.logs[usize::from(host)].records.iter().filter_map(decided).max();
        let log = &self.logs[usize::from(site.0)];
        let old = log.old.iter().map(|(records, fetched)| (&records[..], fetched));
        let mut logs = old.chain([(log.durable(), &log.fetched)]);
        logs.any(|(records, fetched)| {
            known.is_none_or(|known| incarnation_of(records) >= known) && has_in(records, fetched, update)
        })
    }

    /// The attempt of a client's transaction that a host has committed.
    pub fn committed_attempt(&self, host: u16, id: RequestId) -> Option<u64> {
        let log = &self.logs[usize::from(host)];
        let mut logs = log.old.iter().map(|(records, _)| records).chain([&log.records]);
        logs.find_map(|records| attempts_of(update_of(records, id)?).next())
    }

    /// The updates that are in all partitions that they concern, as other sites have given them.
    fn fetched(&self, installed: &Installed) -> BTreeSet<TransactionName> {
        let names = |of: &PartitionId| {
            let is_it = |(given, state, _): &&(PartitionId, Arc<ReplicaState>, _)| {
                given == of && installed.has(*of, state)
            };
            self.given.iter().rev().find(is_it).map(|(.., names)| names)
        };
        let is_fetched = |update: &&Arc<Update>| {
            let mut own = update.stamps.keys().filter_map(names).peekable();
            own.peek().is_some() && own.all(|names| names.contains(&update.name))
        };
        self.updates().values().filter(is_fetched).map(|update| update.name).collect()
    }

    /// A process has read its log.
    ///
    /// # Errors
    /// It has lost what was durable, or has read something else than was written.
    pub fn recovered(&mut self, host: u16, records: &[Record]) -> Result<(), Violation> {
        let log = &mut self.logs[usize::from(host)];
        if records.len() < log.durable {
            let text = format!("host {host} has {} of {} durable records", records.len(), log.durable);
            return Err(Violation::new("durability", text));
        }
        if log.records.get(..records.len()) != Some(records) {
            return Err(Violation::new("durability", format!("host {host} reads what it has not written")));
        }
        log.records.truncate(records.len());
        Ok(())
    }

    /// A partition leaves for a site without a log. What the partition contains is durable at its sender.
    pub fn note_given(&mut self, host: u16, letter: &Letter) {
        let Message::Fencing(Fencing::Fetched { partition, state: Some(state), .. }) = &letter.message else {
            return;
        };
        let log = &self.logs[usize::from(host)];
        let mut names = log.fetched.clone();
        let updates = log.durable().iter().filter_map(update_in);
        let is_in = |update: &&Arc<Update>| {
            update.stamps.get(partition).is_some_and(|&stamp| state.view().sees(stamp))
        };
        names.extend(updates.filter(is_in).map(|update| update.name));
        self.given.push((*partition, Arc::clone(state), names));
    }

    /// Whether an update is in a host's log, or in the partitions that the host got from others.
    pub fn has_update(&self, host: usize, update: &Update) -> bool {
        let log = &self.logs[host];
        has_in(log.durable(), &log.fetched, update)
    }

    /// All updates that any log has or had.
    pub fn updates(&self) -> BTreeMap<TransactionName, Arc<Update>> {
        let updates = self.all_logs().flat_map(|(_, log)| log.iter().filter_map(update_in));
        updates.map(|update| (update.name, Arc::clone(update))).collect()
    }

    /// Lost are the updates that no host has any more. An update that waited at a host when the other hosts
    /// were lost may remain.
    pub fn find_lost(&mut self) {
        let remaining = self.logs().flat_map(|log| log.iter().filter_map(update_in));
        let mut remaining: BTreeSet<TransactionName> = remaining.map(|update| update.name).collect();
        remaining.extend(self.logs.iter().flat_map(|log| &log.fetched));
        let names = self.updates().into_keys();
        self.lost = names.filter(|name| !remaining.contains(name)).collect();
    }

    /// A host has lost its disk, or a fence has made its log void.
    pub fn lose_disk(&mut self, host: u16) {
        let incarnation = self.incarnation_in_log(host);
        let log = &mut self.logs[usize::from(host)];
        log.records.truncate(log.durable);
        let records = std::mem::take(&mut log.records);
        let fetched = std::mem::take(&mut log.fetched);
        if !records.is_empty() {
            log.old.push((records, fetched));
        }
        log.durable = 0;
        log.out.get_or_insert(incarnation);
    }

    fn incarnation_in_log(&self, host: u16) -> Incarnation {
        incarnation_of(self.logs[usize::from(host)].durable())
    }

    /// Whether each partition of a host remains somewhere if the host loses what it has.
    pub fn may_lose(&self, host: u16) -> bool {
        let is_in = |other: &NodeId| other.0 != host && self.logs[usize::from(other.0)].out.is_none();
        let mut own = self.sites.partitions().filter(|&of| self.has(host, of)).peekable();
        let has_own = own.peek().is_some();
        let remains = own.all(|of| self.sites.sites(of).iter().any(is_in));
        has_own && remains && self.logs[usize::from(host)].out.is_none()
    }

    /// An operator fences a host's site.
    pub fn fence(&mut self, host: u16) {
        let incarnation = self.incarnation_in_log(host);
        self.logs[usize::from(host)].out = Some(incarnation);
    }

    /// A site that is open again counts.
    pub fn follow(&mut self, host: u16, site: &Pcsi) {
        let out = &mut self.logs[usize::from(host)].out;
        if site.is_open() && out.is_some_and(|out| out < site.incarnation()) {
            *out = None;
        }
    }

    /// The logs that a host has lost.
    pub fn losses(&self, host: u16) -> usize {
        self.logs[usize::from(host)].old.len()
    }

    /// Whether a disk was lost or a site fenced.
    pub fn has_lost(&self) -> bool {
        self.logs.iter().any(|log| log.out.is_some() || !log.old.is_empty())
    }

    /// Whether no running site may apply an update that another running site has and it has not.
    pub fn has_all_applicable(&self, sites: &[Option<&Pcsi>]) -> bool {
        let running = || sites.iter().flatten();
        let is_applicable = |record: &Record| {
            let Some(update) = update_in(record) else { return false };
            running().any(|site| !site.has_applied(update) && site.may_apply(update))
        };
        let logs = self.logs.iter().zip(sites).filter(|(_, site)| site.is_some());
        logs.into_iter().all(|(log, _)| !log.records.iter().rev().any(is_applicable))
    }

    /// The durable records of each site.
    pub fn logs(&self) -> impl Iterator<Item = &[Record]> {
        self.logs.iter().map(Log::durable)
    }

    /// The durable records of each site, also those of logs that are lost.
    pub fn all_logs(&self) -> impl Iterator<Item = (usize, &[Record])> {
        let logs = self.logs.iter().map(|log| log.old.iter().map(|(old, _)| &old[..]).chain([log.durable()]));
        logs.enumerate().flat_map(|(host, logs)| logs.map(move |log| (host, log)))
    }

    /// The number of lost logs, and of updates in partitions that sites got from others.
    pub fn figures(&self) -> (usize, usize) {
        let old = self.logs.iter().map(|log| log.old.len()).sum();
        (old, self.logs.iter().map(|log| log.fetched.len()).sum())
    }

    /// The numbers of acknowledged transactions that have read partitions which their sites do not have, and
    /// of updates of such partitions.
    pub fn remote_figures(&self) -> (usize, usize) {
        let is_remote = |attempt: &&ClientAttempt| {
            attempt.is_acknowledged() && attempt.reads.keys().any(|&key| !self.has_key(attempt.host, key))
        };
        let updates = self.updates();
        let is_elsewhere =
            |update: &&Arc<Update>| update.stamps.keys().any(|&of| !self.has(update.name.origin.0, of));
        (self.attempts.iter().filter(is_remote).count(), updates.values().filter(is_elsewhere).count())
    }

    /// The number of null updates.
    pub fn nulls(&self) -> usize {
        self.updates().values().filter(|update| update.writes.is_empty()).count()
    }

    /// Whether a host has a replica of a key's partition.
    pub fn has_key(&self, host: u16, key: usize) -> bool {
        self.has(host, self.sites.partition_of(&self.keys[key]))
    }

    /// Whether clients delete a key.
    pub fn is_deleted(&self, key: usize) -> bool {
        key >= self.overwritten
    }

    pub fn has(&self, host: u16, partition: PartitionId) -> bool {
        self.sites.sites(partition).contains(&NodeId(host))
    }
}
