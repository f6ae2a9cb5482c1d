//! One site of `protocol = "pcsi"` as a state machine: the substrate under [`Pcsi`].
//!
//! A [`GeoSite`] owns no thread, no file, no clock and no socket. It has the protocol's records written and
//! synced by a [`Host`](crate::host::Host), carries the protocol's letters, and begins after a crash where
//! its journal ends. It needs no groups: each site's log is its own.
//!
//! # What waits for the disk
//!
//! A letter leaves when all that the site had recorded before it is durable, under every
//! [`FsyncPolicy`]: another site must not hear of a number that this one gives out again after a loss of
//! power. An answer to a client waits as the policy says. What a transaction reads may not be durable yet, so
//! its end waits, too; a transaction that its client holds open is shown what it reads, and so waits at its
//! beginning instead. A session's token leaves when all that it counts is durable, as a letter does: its
//! client takes it to another site.
//!
//! # The first start
//!
//! A site that has lost its disk must not come back as itself: it would give numbers out again
//! ([`certify::pcsi`]). So a process that finds no log asks the others. It draws a number for its *directory*
//! first, and records it.
//!
//! 1. If no site has a log, and all have said so, the system is *founded*: the site records the directories
//!    of all sites, and begins.
//! 2. If some site was founded with this very directory, this site is founded in the same way.
//! 3. Otherwise the site has lost its disk, and joins as a new incarnation.
//!
//! # Failures
//!
//! A site whose journal takes no record is silent, as if frozen, until the record can be written. After a
//! sync that failed it is silent for good, and also when the others have fenced it: its process must be
//! started again, then without its directory. The log says that it is fenced before it ends, so that a
//! process which finds the directory does not begin.
//!
//! Invariants:
//! 1. `synced <= written <= begun`.
//! 2. No letter leaves before the records behind it are durable.

mod forms;
mod losses;
#[cfg(test)]
mod tests;
mod tokens;

use crate::FsyncPolicy;
use crate::host::{HostEvent, Machine};
use crate::site::{SiteCounts, SiteEffects};
use bytes::Bytes;
use certify::pcsi::{
    self, Demand, FenceAnswer, FenceStatus, Incarnation, Letter, Message, Pcsi, PeerStatus, Record,
    RemoteStatus, Written,
};
use certify::{Answer, KeyCounts, Look, ReadSet, WriteSet, record_bytes};
use forms::{Frame, Hello, LogEntry};
use log::{EntryKind, GroupImages, Kept};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::mem;
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, SessionId};

/// The journal's only group.
const GROUP: PartitionId = PartitionId(0);
/// A record that could not be written is tried again after this number of ticks.
const RETRY_TICKS: u64 = 20;
/// A site without a log asks the others each time after this number of ticks.
const HELLO_TICKS: u64 = 10;
/// Records for which neither a letter nor an answer waits are synced after this time.
const SYNC_MS: u64 = 1_000;
/// While a sync takes longer, clients whose answers do not wait for syncs begin nothing.
const SYNC_HANGS_MS: u64 = 5_000;
/// The most letters that wait for the disk, and the most bytes of updates in them. Letters of other kinds are
/// dropped only beyond twice this number: an origin sends its updates again by itself.
const LETTERS_MAX: usize = 1 << 14;
const LETTERS_BYTES_MAX: usize = 256 << 20;
/// A longer letter goes in parts: each link carries other letters, too.
const PART_BYTES_MAX: usize = 1 << 20;
/// No site has a letter of more bytes.
const LETTER_BYTES_MAX: usize = log::RECORD_BYTES_MAX;
/// The most bytes that a transaction may write, as [`record_bytes`] counts them: its update is one letter,
/// and one record of each site.
const WRITES_BYTES_MAX: usize = 16 << 20;

/// The settings of a site at its start.
#[derive(Clone, Debug)]
pub struct GeoOptions {
    /// The protocol's settings.
    pub protocol: pcsi::SiteOptions,
    /// The sites' names, for errors.
    pub names: BTreeMap<NodeId, String>,
    /// When a client is told.
    pub fsync: FsyncPolicy,
    /// How long a tick is.
    pub tick_ms: u64,
    /// A number that no other process has: it names a new directory, and a process that joins.
    pub nonce: u64,
}

/// The status that a site gives of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GeoStatus {
    /// Its counts. It has no bases.
    pub counts: SiteCounts,
    /// Commits of its own clients, and its records.
    pub commits: u64,
    /// Entries of its log.
    pub records: u64,
    /// Bytes of its log that this process has read or written.
    pub log_bytes: u64,
    /// How often the site has begun without its log; `None` before it knows.
    pub incarnation: Option<Incarnation>,
    /// Why it takes no transactions, if it takes none.
    pub trouble: Option<&'static str>,
    /// Its updates that are kept for other sites.
    pub retained: u64,
    /// Its use of partitions that it does not have.
    pub remote: RemoteStatus,
    /// The fences that are under way.
    pub fence: FenceStatus,
    /// The other sites.
    pub peers: Vec<PeerStatus>,
    /// Sites to which this one has no link.
    pub unlinked: BTreeSet<NodeId>,
}

/// How far the site is.
enum Stage {
    /// It has no log, and has heard so much of the others.
    Arriving(BTreeMap<NodeId, Hello>),
    Running(Box<Pcsi>),
}

/// Why nothing is said at present.
enum Silence {
    /// This record could not be written.
    Unwritten { kept: Vec<Kept>, since_tick: u64 },
    /// For good.
    Ended,
}

/// The parts of a letter that have come.
#[derive(Default)]
struct Parts {
    number: u64,
    bytes: Vec<u8>,
}

/// See the module's head.
pub struct GeoSite {
    options: GeoOptions,
    directory: u64,
    founders: BTreeMap<NodeId, u64>,
    stage: Stage,
    /// The last entry of the log.
    entries: u64,
    /// Entries that are in no record of the journal yet.
    pending: Vec<Bytes>,
    /// The last record of the journal that was begun, the last one written, and the last one durable.
    begun: u64,
    written: u64,
    synced: u64,
    is_syncing: bool,
    sync_tick: u64,
    /// The letters and answers that wait for records, each with the last of them.
    letters: VecDeque<(u64, NodeId, Letter)>,
    /// The bytes of updates in them.
    letters_bytes: usize,
    answers: VecDeque<(u64, RequestId, Answer)>,
    /// Answers that wait until the records are durable under every policy.
    durable_answers: VecDeque<(u64, RequestId, Answer)>,
    /// Letters in parts that this process has sent.
    letters_in_parts: u64,
    parts: BTreeMap<NodeId, Parts>,
    silence: Option<Silence>,
    linked: BTreeSet<NodeId>,
    counts: SiteCounts,
    log_bytes: u64,
    ticks: u64,
    /// Texts for the operator.
    notices: Vec<String>,
    /// The record of the journal that says that the others have fenced this site. It ends behind that.
    fence_record: Option<u64>,
}

impl GeoSite {
    /// A site that goes on where its journal ends.
    ///
    /// # Errors
    /// The text says what is wrong with the journal.
    pub fn recover(options: GeoOptions, mut images: GroupImages) -> Result<GeoSite, String> {
        let entries = images.remove(&GROUP).unwrap_or_default().entries;
        if let Some((group, _)) = images.first_key_value() {
            return Err(format!(
                "the journal has entries of {group}, and a site of this protocol has none: start it with the \
                 configuration that it had"
            ));
        }
        let mut site = GeoSite {
            directory: options.nonce,
            founders: BTreeMap::new(),
            stage: Stage::Arriving(BTreeMap::new()),
            entries: entries.len() as u64,
            pending: Vec::new(),
            begun: 0,
            written: 0,
            synced: 0,
            is_syncing: false,
            sync_tick: 0,
            letters: VecDeque::new(),
            letters_bytes: 0,
            answers: VecDeque::new(),
            durable_answers: VecDeque::new(),
            letters_in_parts: 0,
            parts: BTreeMap::new(),
            silence: None,
            linked: BTreeSet::new(),
            counts: SiteCounts::default(),
            log_bytes: entries.iter().map(|entry| entry.data.len() as u64).sum(),
            ticks: 0,
            notices: Vec::new(),
            fence_record: None,
            options,
        };
        let is_new = entries.is_empty();
        let (mut directory, mut founders, mut error) = (site.directory, BTreeMap::new(), None);
        let map = site.options.protocol.sites.clone();
        // The log may be larger than the data: each record is given to the protocol, and forgotten.
        let records = entries.into_iter().map_while(|entry| {
            match LogEntry::decode(&entry.data, &map) {
                Some(LogEntry::Directory(number)) => directory = number,
                Some(LogEntry::Founders(known)) => founders = known,
                Some(LogEntry::Record(record)) => return Some(Some(record)),
                Some(LogEntry::Fenced) => error = Some(FENCED.to_owned()),
                None => error = Some(unread(entry.index)),
            }
            error.is_none().then_some(None)
        });
        let mut records = records.flatten().peekable();
        match records.peek().is_some() {
            true => site.run(records),
            false => drop(records),
        }
        if let Some(error) = error {
            return Err(error);
        }
        (site.directory, site.founders) = (directory, founders);
        if is_new {
            site.keep(&LogEntry::Directory(site.directory));
        }
        Ok(site)
    }

    /// The protocol begins with these records.
    fn run(&mut self, records: impl IntoIterator<Item = Record>) {
        let mut effects = pcsi::SiteEffects::default();
        let GeoOptions { protocol, nonce, .. } = &self.options;
        let protocol = Pcsi::start(protocol.clone(), records, *nonce, &mut effects);
        self.stage = Stage::Running(Box::new(protocol));
        self.take(effects);
    }

    /// The protocol, once the site knows whether it is a new one.
    pub fn protocol(&self) -> Option<&Pcsi> {
        match &self.stage {
            Stage::Arriving(_) => None,
            Stage::Running(protocol) => Some(protocol),
        }
    }

    /// Whether the site takes transactions, as far as the protocol goes.
    pub fn is_open(&self) -> bool {
        self.protocol().is_some_and(Pcsi::is_open)
    }

    /// Whether this site is silent for good.
    pub fn has_ended(&self) -> bool {
        matches!(self.silence, Some(Silence::Ended))
    }

    /// Why this site is silent, if it is.
    pub fn silence(&self) -> Option<&'static str> {
        self.silence.as_ref().map(|silence| match silence {
            Silence::Unwritten { .. } => "the journal takes no record: check the disk and its space",
            Silence::Ended => "the site has ended: start the node again",
        })
    }

    fn trouble(&self) -> Option<&'static str> {
        self.silence().or(match &self.stage {
            Stage::Arriving(_) => Some("the site has no data, and waits for the other sites to tell it why"),
            Stage::Running(protocol) if protocol.is_about_to_be_fenced() => Some(FENCE_UNDER_WAY),
            Stage::Running(protocol) if protocol.waits_to_hear() => Some(WAITS_TO_HEAR),
            Stage::Running(protocol) if protocol.has_used_up_incarnations() => Some(USED_UP),
            Stage::Running(protocol) if !protocol.is_open() => {
                Some("the site has lost its data, and fetches what the other sites have")
            }
            Stage::Running(_) if self.sync_hangs() => {
                Some("the disk has not ended a sync for seconds: check the disk")
            }
            Stage::Running(_) => None,
        })
    }

    /// Whether what clients were told is on no disk for long. Where their answers wait for syncs, they need
    /// no other sign.
    fn sync_hangs(&self) -> bool {
        let hangs_ticks = SYNC_HANGS_MS.div_ceil(self.options.tick_ms.max(1));
        self.options.fsync == FsyncPolicy::Everysec
            && self.is_syncing
            && self.ticks >= self.sync_tick + hangs_ticks
    }

    /// Whether the site has restarted, and has heard no other one since.
    pub fn waits_to_hear(&self) -> bool {
        self.protocol().is_some_and(Pcsi::waits_to_hear)
    }

    /// Its counts, the number of entries of its log, and their bytes.
    pub fn place(&self) -> (SiteCounts, u64, u64) {
        (self.counts, self.entries, self.log_bytes)
    }

    /// The site's counts, and what it knows of the others.
    pub fn status(&self) -> GeoStatus {
        let protocol = self.protocol();
        let sites = self.options.protocol.sites.all_sites();
        GeoStatus {
            counts: self.counts,
            commits: self.last_commit().0,
            records: self.entries,
            log_bytes: self.log_bytes,
            incarnation: protocol.map(Pcsi::incarnation),
            trouble: self.trouble(),
            retained: protocol.map_or(0, Pcsi::retained) as u64,
            remote: protocol.map(Pcsi::remote_status).unwrap_or_default(),
            fence: protocol.map(Pcsi::fence_status).unwrap_or_default(),
            peers: protocol.map(Pcsi::peers).unwrap_or_default(),
            unlinked: sites.into_iter().filter(|site| !self.has_link(*site)).collect(),
        }
    }

    fn has_link(&self, site: NodeId) -> bool {
        site == self.options.protocol.me || self.linked.contains(&site)
    }

    /// The number of the site's last commit.
    pub fn last_commit(&self) -> Position {
        self.protocol().map_or(Position::NONE, Pcsi::last_commit)
    }

    /// The value of a key at this site, whatever others have committed.
    pub fn newest(&self, key: &Key) -> Read {
        self.protocol().map_or_else(Read::default, |protocol| protocol.newest(key))
    }

    /// How many keys of users the site has.
    pub fn key_counts(&self) -> KeyCounts {
        self.protocol().map_or_else(KeyCounts::default, Pcsi::key_counts)
    }

    /// Keys that have expired, and that this site should have a transaction remove.
    pub fn expired(&self, now_ms: u64, keys_max: usize) -> Vec<Key> {
        self.protocol().map(|protocol| protocol.expired(now_ms, keys_max)).unwrap_or_default()
    }

    /// The store's own records, such as scripts.
    pub fn system_records(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        self.protocol().into_iter().flat_map(Pcsi::system_records)
    }

    /// A client's transaction begins. One that its client holds open is shown what it reads before it ends.
    pub fn begin(&mut self, id: RequestId, is_held_open: bool, effects: &mut SiteEffects) {
        if self.sync_hangs() {
            return effects.answers.push((id, Answer::Unavailable));
        }
        let begun = self.answers.len();
        self.client(id, effects, |protocol, effects| protocol.begin(id, effects));
        if !is_held_open {
            self.answer_at_once(begun, id, effects);
        }
        self.round(effects);
    }

    /// A client's transaction looks at its snapshot. A key of a partition that only other sites have is
    /// answered when one of them has told it.
    pub fn look(&mut self, id: RequestId, look: &Look, effects: &mut SiteEffects) {
        if let Look::Key(key) = look
            && self.elsewhere(key).is_none()
            && self.protocol().is_some_and(|protocol| !protocol.has_partition_of(key))
        {
            self.client(id, effects, |protocol, effects| protocol.look_remote(id, key.clone(), effects));
            return self.round(effects);
        }
        let answer = match (look, &mut self.stage) {
            (_, Stage::Arriving(_)) => Answer::Unavailable,
            (Look::Scan(_), _) => Answer::Refused(LISTS.into()),
            // The number at this site now: no other site certifies it.
            (Look::Count, Stage::Running(protocol)) => Answer::Count(protocol.key_counts().keys),
            (Look::Key(key), Stage::Running(protocol)) if protocol.has_partition_of(key) => {
                protocol.look(id, key).map_or_else(|answer| answer, Answer::Value)
            }
            (Look::Key(key), _) => Answer::Refused(self.elsewhere(key).unwrap_or_default().into()),
        };
        effects.answers.push((id, answer));
    }

    /// A client's transaction ends.
    pub fn commit(&mut self, id: RequestId, reads: ReadSet, mut writes: WriteSet, effects: &mut SiteEffects) {
        // Only writes are certified: a key that nobody else may write is written as it was.
        if !writes.is_empty() {
            writes.records.extend(reads.held);
        }
        let bytes_of = |(key, entry): (&Key, &Option<Entry>)| record_bytes(key, entry.as_ref());
        let refused = if writes.clears {
            Some(LISTS.to_owned())
        } else if writes.records.iter().map(bytes_of).sum::<usize>() > WRITES_BYTES_MAX {
            Some("ERR the transaction writes more than 16 MiB: use several".to_owned())
        } else {
            writes.records.keys().find_map(|key| self.elsewhere(key))
        };
        if let Some(text) = refused {
            self.forget(id);
            return effects.answers.push((id, Answer::Refused(text.into())));
        }
        self.client(id, effects, |protocol, effects| protocol.commit(id, writes, effects));
        self.round(effects);
    }

    /// A client has gone, or rolled its transaction back.
    pub fn forget(&mut self, id: RequestId) {
        if let Stage::Running(protocol) = &mut self.stage {
            protocol.forget(id);
        }
    }

    /// A client waits until other sites have what it has written; 0 stands for the longest wait. The answers
    /// are those of [`Pcsi::wait_for_sites`].
    pub fn wait_for_sites(
        &mut self,
        id: RequestId,
        wanted: (Written, Demand),
        timeout_ms: u64,
        effects: &mut SiteEffects,
    ) {
        let ticks = match timeout_ms {
            0 => u64::MAX,
            timeout_ms => timeout_ms.div_ceil(self.options.tick_ms.max(1)),
        };
        self.client(id, effects, |protocol, effects| protocol.wait_for_sites(id, wanted, ticks, effects));
        self.round(effects);
    }

    /// See [`Pcsi::take_first_read`].
    pub fn take_first_read(&mut self, session: SessionId) -> Option<Key> {
        match &mut self.stage {
            Stage::Arriving(_) => None,
            Stage::Running(protocol) => protocol.take_first_read(session),
        }
    }

    /// See [`Pcsi::read_first`].
    pub fn read_first(&mut self, session: SessionId, key: Key) {
        if let Stage::Running(protocol) = &mut self.stage {
            protocol.read_first(session, key);
        }
    }

    /// The writes of a client's transaction, if it has committed.
    pub fn written(&self, id: RequestId) -> Option<Written> {
        self.protocol().and_then(|protocol| protocol.written(id))
    }

    /// An operator fences another site, which is away.
    ///
    /// # Errors
    /// The text says why the sites are not to fence it.
    pub fn fence(&mut self, site: NodeId, is_forced: bool, effects: &mut SiteEffects) -> Result<(), String> {
        let name = self.options.names.get(&site).cloned().unwrap_or_default();
        let is_ready = self.is_open() || is_forced && self.waits_to_hear();
        if self.silence.is_some() || !is_ready {
            return Err(self.trouble().unwrap_or("the site is about to begin").to_owned());
        }
        if self.linked.contains(&site) && !is_forced {
            return Err(format!(
                "this site has a link to '{name}', so it is not away: end its process first, or force the \
                 fence"
            ));
        }
        if let Some(partition) = self.emptied_by_fence(site).filter(|_| !is_forced) {
            return Err(format!(
                "'{name}' is the last site with partition {}, and the fence would take all of its keys: \
                 start '{name}' again, or force the fence if its disk is lost",
                partition.0
            ));
        }
        let mut answer = FenceAnswer::UnderWay;
        self.act(|protocol, effects| answer = protocol.fence(site, is_forced, effects));
        self.round(effects);
        match answer {
            FenceAnswer::Begun => Ok(()),
            FenceAnswer::UnderWay => {
                Err(format!("'{name}' is fenced already, or a fence of it is under way"))
            }
            FenceAnswer::NoMajority { voters, members } => Err(format!(
                "without '{name}' and the sites that are being fenced, {voters} of {members} sites remain, \
                 and the others may be fencing these: ask a site on the other side, or force the fence if \
                 all others are gone for good"
            )),
        }
    }

    fn client(
        &mut self,
        id: RequestId,
        effects: &mut SiteEffects,
        call: impl FnOnce(&mut Pcsi, &mut pcsi::SiteEffects),
    ) {
        if self.silence.is_some() || self.protocol().is_none() {
            // Its client goes to another site, and nothing of it may stay here.
            self.forget(id);
            return effects.answers.push((id, Answer::Unavailable));
        }
        self.act(call);
    }

    /// Answers to this client behind the first `behind` ones wait for nothing.
    fn answer_at_once(&mut self, behind: usize, id: RequestId, effects: &mut SiteEffects) {
        for (record, to, answer) in self.answers.split_off(behind) {
            match to == id {
                true => effects.answers.push((to, answer)),
                false => self.answers.push_back((record, to, answer)),
            }
        }
    }

    /// The text for a client that uses a key which this site does not have, and reads nowhere else.
    fn elsewhere(&self, key: &Key) -> Option<String> {
        let sites = &self.options.protocol.sites;
        let partition = sites.partition_of(key);
        let having = sites.sites(partition);
        let is_refused = !having.contains(&self.options.protocol.me) && !sites.has_remote_access();
        is_refused.then(|| {
            let names: Vec<&str> =
                having.iter().filter_map(|site| self.options.names.get(site)).map(String::as_str).collect();
            format!(
                "ERR key '{}' is of partition {}, which this site does not have: ask one of the sites {}",
                String::from_utf8_lossy(&key.to_blob()),
                partition.0,
                names.join(", ")
            )
        })
    }

    fn act(&mut self, act: impl FnOnce(&mut Pcsi, &mut pcsi::SiteEffects)) {
        let Stage::Running(protocol) = &mut self.stage else { return };
        let mut effects = pcsi::SiteEffects::default();
        act(protocol, &mut effects);
        if cfg!(debug_assertions) {
            protocol.check_invariants();
        }
        self.take(effects);
    }

    /// Takes over what the protocol wants.
    fn take(&mut self, effects: pcsi::SiteEffects) {
        let fences = effects.fenced.iter().map(|loss| self.fence_notice(loss));
        self.notices.extend(fences.collect::<Vec<_>>());
        effects.records.into_iter().for_each(|record| self.keep(&LogEntry::Record(record)));
        let behind = self.last_record();
        // A letter may be lost, and a disk that hangs must not fill the memory.
        for (to, letter) in effects.messages {
            let bytes = letter.message.update_bytes();
            let is_sent_again = matches!(
                letter.message,
                Message::Updates { .. } | Message::Relayed { .. } | Message::Looked { .. }
            );
            let has_room = match is_sent_again {
                true => self.letters.len() < LETTERS_MAX && self.letters_bytes + bytes <= LETTERS_BYTES_MAX,
                false => self.letters.len() < 2 * LETTERS_MAX,
            };
            if has_room {
                self.letters_bytes += bytes;
                self.letters.push_back((behind, to, letter));
            }
        }
        self.answers.extend(effects.answers.into_iter().map(|(id, answer)| (behind, id, answer)));
        for (id, outcome) in effects.followed {
            let answer = outcome.map_or_else(|refusal| self.token_refused(&refusal), |()| Answer::Committed);
            self.answers.push_back((behind, id, answer));
        }
    }

    /// The record of the journal that has, or will have, all that the site has recorded so far. A record that
    /// has begun and is not written yet takes further entries.
    fn last_record(&self) -> u64 {
        self.begun.max(self.written + u64::from(!self.pending.is_empty()))
    }

    fn keep(&mut self, entry: &LogEntry) {
        let bytes = entry.encode();
        self.log_bytes += bytes.len() as u64;
        self.pending.push(bytes.into());
    }

    /// Does what has become possible.
    fn round(&mut self, effects: &mut SiteEffects) {
        if self.silence.is_some() {
            return;
        }
        effects.notices.append(&mut self.notices);
        let is_fenced = self.protocol().is_some_and(Pcsi::is_fenced);
        if is_fenced && self.fence_record.is_none() {
            self.say_nothing_more();
            self.keep(&LogEntry::Fenced);
        }
        self.record(effects);
        if is_fenced {
            let record = *self.fence_record.get_or_insert(self.begun);
            if self.synced >= record {
                return self.end(format!("{FENCED}. {}", self.own_loss()), effects);
            }
        }
        let is_told = match self.options.fsync {
            FsyncPolicy::Always => self.synced,
            FsyncPolicy::Everysec | FsyncPolicy::No => self.written,
        };
        while let Some((_, id, answer)) = self.answers.pop_front_if(|(behind, ..)| *behind <= is_told) {
            effects.answers.push((id, answer));
        }
        let synced = self.synced;
        while let Some((_, id, answer)) = self.durable_answers.pop_front_if(|(behind, ..)| *behind <= synced)
        {
            effects.answers.push((id, answer));
        }
        while let Some((_, to, letter)) = self.letters.pop_front_if(|(behind, ..)| *behind <= synced) {
            self.letters_bytes -= letter.message.update_bytes();
            self.send(to, &letter, effects);
        }
        let somebody_waits = !self.letters.is_empty()
            || !self.durable_answers.is_empty()
            || self.protocol().is_none()
            || is_fenced
            || !self.answers.is_empty() && self.options.fsync == FsyncPolicy::Always;
        let sync_ticks = SYNC_MS.div_ceil(self.options.tick_ms.max(1));
        let is_due = self.options.fsync != FsyncPolicy::No && self.ticks >= self.sync_tick + sync_ticks;
        let is_written = effects.host.kept.is_empty() && self.written == self.begun;
        if is_written && self.synced < self.written && !self.is_syncing && (somebody_waits || is_due) {
            (self.is_syncing, self.sync_tick) = (true, self.ticks);
            effects.host.sync = true;
        }
        debug_assert!(self.synced <= self.written && self.written <= self.begun);
    }

    /// Has entries that are pending written, with what the journal is about to get.
    fn record(&mut self, effects: &mut SiteEffects) {
        if self.pending.is_empty() {
            return;
        }
        let pending = mem::take(&mut self.pending);
        let entry = |(index, data): (u64, Bytes)| log::Entry { index, term: 1, kind: EntryKind::Data, data };
        let before = self.entries;
        self.entries += pending.len() as u64;
        let entries = (before + 1..).zip(pending).map(entry);
        match effects.host.kept.first_mut() {
            Some(kept) => kept.entries.extend(entries),
            None => {
                debug_assert!(self.written == self.begun, "a record that has begun is written first");
                self.begun += 1;
                effects.host.kept.push(Kept { entries: entries.collect(), ..Kept::nothing(GROUP) });
            }
        }
    }

    fn send(&mut self, to: NodeId, letter: &Letter, effects: &mut SiteEffects) {
        if !self.linked.contains(&to) {
            return;
        }
        let bytes = Bytes::from(letter.encode());
        if bytes.len() <= PART_BYTES_MAX {
            return effects.host.frames.push((to, Frame::Letter(bytes).encode()));
        }
        self.letters_in_parts += 1;
        let number = self.letters_in_parts;
        for offset in (0..bytes.len()).step_by(PART_BYTES_MAX) {
            let part = bytes.slice(offset..bytes.len().min(offset + PART_BYTES_MAX));
            let frame = Frame::Part { number, offset: offset as u64, bytes: part };
            effects.host.frames.push((to, frame.encode()));
        }
        // An empty part ends the letter.
        let frame = Frame::Part { number, offset: bytes.len() as u64, bytes: Bytes::new() };
        effects.host.frames.push((to, frame.encode()));
    }

    fn frame(&mut self, from: NodeId, bytes: &[u8], effects: &mut SiteEffects) -> Result<(), String> {
        match Frame::decode(bytes).ok_or("a frame that does not read back")? {
            Frame::Hello(hello) => self.hear(from, hello, effects),
            Frame::Letter(bytes) => self.letter(from, &bytes)?,
            Frame::Part { number, offset, bytes } => {
                let parts = self.parts.entry(from).or_default();
                if offset == 0 {
                    *parts = Parts { number, bytes: Vec::new() };
                }
                // A part before this one was lost.
                if (parts.number, parts.bytes.len() as u64) != (number, offset) {
                    return Ok(());
                }
                if parts.bytes.len() + bytes.len() > LETTER_BYTES_MAX {
                    return Err("a letter that is too long".to_owned());
                }
                parts.bytes.extend_from_slice(&bytes);
                if bytes.is_empty() {
                    let whole = self.parts.remove(&from).unwrap_or_default().bytes;
                    self.letter(from, &whole)?;
                }
            }
        }
        Ok(())
    }

    fn letter(&mut self, from: NodeId, bytes: &[u8]) -> Result<(), String> {
        let letter = Letter::decode(bytes, &self.options.protocol.sites);
        let letter = letter.ok_or("a letter that means nothing to this build of Ordo")?;
        self.act(|protocol, effects| protocol.receive(from, letter, effects));
        Ok(())
    }

    /// Another site tells of its directory.
    fn hear(&mut self, from: NodeId, hello: Hello, effects: &mut SiteEffects) {
        let Stage::Arriving(heard) = &mut self.stage else {
            // The others tell each other nothing.
            if !hello.has_log {
                self.say_hello(from, effects);
            }
            return;
        };
        heard.insert(from, hello);
        let me = self.options.protocol.me;
        let with_log = || heard.values().filter(|hello| hello.has_log);
        let mut foundings = with_log().map(|hello| &hello.founders).filter(|founders| !founders.is_empty());
        let first = foundings.next();
        if first.is_some_and(|first| foundings.any(|other| other != first)) {
            return self.end(TWO_FOUNDINGS.to_owned(), effects);
        }
        let founders = with_log().find(|hello| hello.founders.get(&me) == Some(&self.directory));
        let is_refused =
            with_log().any(|hello| hello.founders.get(&me).is_some_and(|other| *other != self.directory));
        let sites = self.options.protocol.sites.all_sites();
        let are_all_new =
            with_log().next().is_none() && sites.iter().all(|site| *site == me || heard.contains_key(site));
        let founders = match founders {
            Some(hello) if !is_refused => hello.founders.clone(),
            None if are_all_new => {
                let others = heard.iter().map(|(&site, hello)| (site, hello.directory));
                others.chain([(me, self.directory)]).collect()
            }
            _ if with_log().next().is_some() => {
                // It joins the system, whose tokens it will take.
                if let Some(founders) = first.cloned() {
                    self.keep(&LogEntry::Founders(founders.clone()));
                    self.founders = founders;
                }
                return self.run([]);
            }
            _ => return,
        };
        self.founders = founders.clone();
        self.keep(&LogEntry::Founders(founders));
        self.keep(&LogEntry::Record(Record::Founded));
        self.run([Record::Founded]);
    }

    fn say_hello(&self, to: NodeId, effects: &mut SiteEffects) {
        // The directory's number is durable before another site hears of it.
        if self.protocol().is_none() && (self.synced < self.begun || !self.pending.is_empty()) {
            return;
        }
        let hello = Hello {
            directory: self.directory,
            has_log: self.protocol().is_some(),
            founders: self.founders.clone(),
        };
        effects.host.frames.push((to, Frame::Hello(hello).encode()));
    }

    fn tick(&mut self, effects: &mut SiteEffects) {
        self.ticks += 1;
        match &self.silence {
            Some(Silence::Ended) => return,
            Some(Silence::Unwritten { since_tick, .. }) => {
                effects.host.make_room |= (self.ticks - since_tick).is_multiple_of(RETRY_TICKS);
                return;
            }
            None => {}
        }
        if matches!(self.stage, Stage::Arriving(_)) && self.ticks.is_multiple_of(HELLO_TICKS) {
            self.linked.iter().for_each(|&to| self.say_hello(to, effects));
        }
        self.act(Pcsi::tick);
    }

    fn count(&mut self, event: &HostEvent) {
        match event {
            HostEvent::Connected(node) => drop(self.linked.insert(*node)),
            HostEvent::Disconnected(node) => drop(self.linked.remove(node)),
            HostEvent::Synced(_) => self.counts.syncs += 1,
            HostEvent::JournalUnwritten(_) => self.counts.write_failures += 1,
            HostEvent::JournalFailed(_) => self.counts.sync_failures += 1,
            _ => {}
        }
    }

    /// Nothing that waits for the disk is said any more.
    fn say_nothing_more(&mut self) {
        (self.letters, self.letters_bytes) = (VecDeque::new(), 0);
        (self.answers, self.durable_answers) = (VecDeque::new(), VecDeque::new());
    }

    fn end(&mut self, text: String, effects: &mut SiteEffects) {
        self.silence = Some(Silence::Ended);
        self.say_nothing_more();
        effects.host = crate::host::HostEffects::default();
        effects.ended = Some(text);
    }
}

impl Machine for GeoSite {
    type Effects = SiteEffects;

    fn react(&mut self, event: HostEvent, _now_ms: u64, effects: &mut SiteEffects) {
        self.count(&event);
        match event {
            HostEvent::Frame { .. } if self.silence.is_some() => {}
            HostEvent::Frame { from, bytes } => {
                if let Err(why) = self.frame(from, &bytes, effects) {
                    effects.host.severed.push((from, why));
                }
            }
            HostEvent::Connected(node) => {
                if let Stage::Running(protocol) = &mut self.stage {
                    protocol.reconnected(node);
                }
            }
            HostEvent::Disconnected(node) => {
                self.parts.remove(&node);
                // A process of that site which finds another directory says so on a new link.
                if let Stage::Arriving(heard) = &mut self.stage {
                    heard.remove(&node);
                }
            }
            HostEvent::Tick { .. } => self.tick(effects),
            HostEvent::Written(record) => {
                self.written = record;
                if !self.has_ended() {
                    self.silence = None;
                }
            }
            HostEvent::Synced(record) => {
                self.is_syncing = false;
                self.synced = self.synced.max(record.min(self.written));
            }
            HostEvent::JournalUnwritten(_) => {
                let kept = mem::take(&mut effects.host.kept);
                self.silence = Some(Silence::Unwritten { kept, since_tick: self.ticks });
            }
            HostEvent::JournalFailed(error) => {
                self.end(
                    format!("the journal could not be written or synced ({error}): check the disk"),
                    effects,
                );
            }
            HostEvent::RoomMade => {
                if let Some(Silence::Unwritten { kept, .. }) = &mut self.silence {
                    // Nothing may come between this and the write.
                    effects.host.kept = mem::take(kept);
                    return;
                }
            }
            // A site has no checkpoints.
            HostEvent::CheckpointWritten { .. }
            | HostEvent::CheckpointFailed(_)
            | HostEvent::PieceRead { .. }
            | HostEvent::PieceWritten { .. }
            | HostEvent::PieceSpoilt { .. }
            | HostEvent::PieceUnwritten { .. } => {}
        }
        self.round(effects);
    }
}

/// Whether a site that ends with this text, or does not start, has no part in its cluster any more: starting
/// it again, as it is, is of no use.
pub fn is_out(text: &str) -> bool {
    [FENCED, TWO_FOUNDINGS].iter().any(|reason| text.starts_with(reason))
}

const FENCED: &str = "the other sites have fenced this one, and go on without it: what it had not told them \
                      is lost. Move its directory aside, and start it again: it fetches what they have";

const FENCE_UNDER_WAY: &str = "the other sites are about to fence this site, and take nothing of it any \
                               more. See `ordo admin status` there, and docs/geo.md";

const WAITS_TO_HEAR: &str = "the site has restarted, and waits to hear another site: the others may have \
                             fenced it while it was down. If all others are gone for good, force a fence of \
                             one of them here (`ordo admin fence SITE --yes --force`, docs/geo.md)";

const USED_UP: &str = "the site has begun without its directory for 255 times, and there is no further \
                       incarnation: a site with another number must take its place, in a cluster that is set \
                       up anew";

const TWO_FOUNDINGS: &str = "the other sites were founded with different directories, so they are of two \
                             clusters with the same name: check the addresses in cluster.toml";

const LISTS: &str = "ERR a site reads and writes single keys, and lists and clears none";

fn unread(index: u64) -> String {
    format!(
        "entry {index} of the site's log means nothing to this build of Ordo: start the version that wrote \
         it, or a newer one, with the description that the cluster had; the data is untouched"
    )
}
