//! Deferred update replication (PaxosSTM's scheme): every site has all the data, and one group orders the
//! updates.
//!
//! # A transaction's way
//!
//! 1. It executes at its client's site, optimistically, on a *snapshot*: the versions behind some decided
//!    entry. No other site hears of it.
//! 2. If it writes, its site proposes one entry: its name, its snapshot's position, what it has read, what it
//!    writes.
//! 3. Where that entry stands in the group's order, every site *certifies* the transaction: it commits if
//!    nothing that it has read was overwritten behind its snapshot. Then its writes become the versions at
//!    the entry's position. All sites decide the same, because all have the same newest versions there.
//!    (A transaction that conflicts with what its site has already is not proposed: it would conflict there,
//!    too, except for a listing that is right again.)
//! 4. A transaction that conflicts has no effect, and its site runs it again ([`crate::call`]).
//!
//! A *position* is the number of a decided entry. The data are `store`'s multi-version records at these
//! positions: a snapshot costs nothing, is read by any thread without asking the protocol, and holds back the
//! collection of what it sees.
//!
//! # What was overwritten
//!
//! * A record that was read is overwritten if its newest version lies behind the snapshot; a record that was
//!   absent has the version of its delete, or none.
//! * A listing is certified by listing again: it still holds if the page has as many entries, none with a
//!   version behind the snapshot, and ends at the same hash. Such a page has the same keys (an entry that is
//!   there now and not newer than the snapshot was there then). So there are no phantoms, and no history of
//!   writes has to be kept.
//! * The number of entries is certified by its value.
//!
//! # Transactions without writes
//!
//! They are not ordered. One that is declared read-only asks the group how far it is when it begins
//! ([`Effects::ask`]), so that its snapshot has all that was acknowledged to anybody before; it commits on
//! that snapshot, whatever was written since. Others begin at once, on what their site has: the certification
//! finds whatever that lacked. If one of these ends without writes all the same, it asks then, and its site
//! certifies it where the answer finds it. A later attempt of such a transaction is ordered, although it
//! writes nothing ([`crate::sessions`] says why).
//!
//! So all transactions are *strictly* serializable: those that are ordered at their entries, the others
//! behind their snapshot, or behind the entry where they were certified. Whatever was acknowledged before a
//! transaction began lies before that place.
//!
//! # Bounds
//!
//! * Versions are kept for this site's open snapshots. A snapshot that is [`Horizons::history`] entries old
//!   is taken from its transaction, which conflicts then, and so is every snapshot of a state that another
//!   site's state replaces. (A thread that is executing at it keeps it until it has finished.)
//! * A site has at most 65,536 transactions open, and answers the next ones [`Answer::Unavailable`]. Each of
//!   them has at most one entry under way.
//! * A site offers at least as many records for collection as it has written: a record has at most as many
//!   versions that nobody needs as it got while the site looked at all others.
//! * Certification needs the newest version of each key only. `store` forgets a deleted key at a position
//!   that is the same at all sites; a transaction with an older snapshot conflicts at all of them.
//! * Each transaction takes effect once, however often it is proposed and run. [`crate::sessions`] says how
//!   long a session is known, and what becomes of its transactions afterwards.
//!
//! What it leaves out: a common time. An entry expires by the clock of the site whose client looks at it.
//!
//! Invariants:
//! 1. The newest version of each key, the newest clear and the sessions are a function of the decided
//!    entries. Older versions are not: they depend on who reads at this site.
//! 2. `snapshot < position` for each transaction that is certified.

use crate::codec::{put_id, put_value, put_writes, take_id, take_last, take_value, take_writes};
use crate::proposals::{Proposals, make_room};
use crate::sessions::{SESSION_HORIZON, Sessions, is_unordered};
use crate::{
    Answer, Certifier, Conflict, Effects, Listing, LocalSnapshot, Look, Malformed, ReadSet, WriteSet,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use store::{Final, Image, Partition, Snapshot, TOMBSTONE_HORIZON, View};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId, ScanRange, SlotRange, Space};

/// The one group.
pub const GROUP: PartitionId = PartitionId(0);
/// Records that a site offers for collection at each tick, at least.
const COLLECTED_AT_ONCE: usize = 256;

/// How long a group remembers what, in entries. The same at all sites, and for good: certification depends
/// on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Horizons {
    /// A transaction commits if fewer entries than this were decided between its snapshot and its own entry.
    /// At most [`TOMBSTONE_HORIZON`]: the store forgets a deleted key after so many, and with it the version
    /// of the delete.
    pub history: u64,
    /// A session is known for so many entries after its newest one.
    pub session: u64,
}

impl Default for Horizons {
    fn default() -> Horizons {
        Horizons { history: TOMBSTONE_HORIZON, session: SESSION_HORIZON }
    }
}

/// One site's part. See the module's head.
pub struct Dur {
    horizons: Horizons,
    partition: Arc<Partition<()>>,
    /// Records that were written since the last tick.
    written: usize,
    sessions: Sessions,
    /// Transactions of this site's clients: not part of the replicated state.
    open: BTreeMap<RequestId, Open>,
    proposals: Proposals,
}

/// A transaction that has begun.
struct Open {
    is_read_only: bool,
    stage: Stage,
}

/// ```text
///  Asking ──► Reading ──► Proposed
///               │  └────► Ending
///               └───────► Expired
/// ```
enum Stage {
    /// It begins when its site is as far as the group is.
    Asking,
    Reading(Arc<SiteSnapshot>),
    /// Its snapshot was taken from it.
    Expired,
    /// It is certified where its entry is decided.
    Proposed,
    /// It is certified here, when its site is as far as the group is.
    Ending(Reads),
}

/// What an entry says.
struct Commit {
    id: RequestId,
    reads: Reads,
    writes: WriteSet,
}

/// What a transaction has read. The versions are those at the snapshot.
struct Reads {
    snapshot: Position,
    keys: Vec<Key>,
    scans: Vec<Listing>,
    count: Option<u64>,
}

/// A snapshot that is open until nobody reads there any more.
struct SiteSnapshot {
    partition: Arc<Partition<()>>,
    /// There until it is dropped.
    snapshot: Option<Snapshot>,
    position: Position,
}

impl SiteSnapshot {
    fn open(partition: &Arc<Partition<()>>) -> SiteSnapshot {
        let snapshot = partition.open();
        let position = snapshot.position;
        let mut open = SiteSnapshot { partition: partition.clone(), snapshot: Some(snapshot), position };
        if is_active(Mutant::CollectOpenSnapshots)
            && let Some(snapshot) = open.snapshot.take()
        {
            partition.close(snapshot);
        }
        open
    }
}

impl Drop for SiteSnapshot {
    fn drop(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.partition.close(snapshot);
        }
    }
}

impl LocalSnapshot for SiteSnapshot {
    fn look(&self, look: &Look) -> Answer {
        let upto = match is_active(Mutant::ReadBeyondSnapshot) {
            true => self.partition.final_position(),
            false => self.position,
        };
        match (look, &self.snapshot) {
            (Look::Key(key), _) => Answer::Value(self.partition.read(upto, key)),
            (Look::Scan(range), _) => Answer::Page(self.partition.scan(upto, *range)),
            (Look::Count, Some(snapshot)) => Answer::Count(self.partition.count_at(snapshot)),
            (Look::Count, None) => Answer::Count(self.partition.count(upto)),
        }
    }
}

impl Default for Dur {
    fn default() -> Dur {
        Dur::over(Arc::new(Partition::new()), Horizons::default())
    }
}

impl Dur {
    /// A site whose data and horizons are these, the same at all sites.
    ///
    /// # Panics
    /// The history is empty, or longer than the store remembers deletes.
    pub fn over(partition: Arc<Partition<()>>, horizons: Horizons) -> Dur {
        assert!((1..=TOMBSTONE_HORIZON).contains(&horizons.history), "a history of {}", horizons.history);
        Dur {
            horizons,
            partition,
            written: 0,
            sessions: Sessions::known_for(horizons.session),
            open: BTreeMap::new(),
            proposals: Proposals::to(GROUP),
        }
    }

    /// The last decided entry.
    pub fn position(&self) -> Position {
        self.partition.final_position()
    }

    /// The data.
    pub fn view(&self) -> &dyn View {
        &*self.partition
    }

    /// What a key has, behind the last decided entry.
    pub fn value(&self, key: &Key) -> Option<Entry> {
        self.partition.read(self.partition.final_position(), key).entry
    }

    /// Why a transaction that is certified behind the last decided entry does not commit.
    fn conflict(&self, reads: &Reads, writes: &WriteSet) -> Option<Conflict> {
        if is_active(Mutant::CertifyNothing) {
            return None;
        }
        let last = self.partition.final_position();
        // The entry itself counts: it is the next one.
        if reads.snapshot > last || last.0 - reads.snapshot.0 >= self.horizons.history {
            return Some(Conflict::Snapshot);
        }
        let is_looked_at =
            |key: &&Key| !is_active(Mutant::CertifyOverwritesOnly) || writes.records.contains_key(key);
        let is_newer = |key: &Key| {
            let newest = self.partition.read(last, key);
            let is_overlooked = newest.entry.is_none() && is_active(Mutant::OverlookDeletes);
            newest.version > reads.snapshot && !is_overlooked
        };
        if let Some(key) = reads.keys.iter().filter(is_looked_at).find(|key| is_newer(key)) {
            return Some(Conflict::Key(key.clone()));
        }
        let is_same = |listing: &Listing| {
            if is_active(Mutant::MissPhantoms) {
                return true;
            }
            let page = self.partition.scan(last, listing.range);
            (page.entries.len() as u64, page.next_hash) == (listing.entries, listing.next_hash)
                && !page.entries.iter().any(|(key, _)| is_newer(key))
        };
        let counts = |count: u64| count == self.partition.published().live.max(0) as u64;
        match reads.scans.iter().all(is_same) && reads.count.is_none_or(counts) {
            true => None,
            false => Some(Conflict::Listing),
        }
    }

    /// Certifies a commit where it stands in the order, at the next position.
    fn certify(&mut self, commit: Commit) -> Answer {
        let at = self.partition.final_position().next();
        let mut live = self.partition.published().live;
        let answer = match self.sessions.settled(commit.id, at) {
            Some(answer) => answer,
            None => {
                let conflict = self.conflict(&commit.reads, &commit.writes);
                self.sessions.certified(commit.id, conflict.is_none(), at);
                match conflict {
                    Some(conflict) => Answer::Conflict(conflict),
                    None => {
                        let WriteSet { clears, records } = commit.writes;
                        self.written += records.len();
                        self.partition.install(at, clears, records, &mut live);
                        Answer::Committed
                    }
                }
            }
        };
        self.partition.publish(Final { position: at, time_ms: 0, live });
        self.partition.snapshots().raise(at);
        answer
    }

    fn finish(&mut self, id: RequestId, answer: Answer, effects: &mut Effects) {
        self.proposals.forget(id);
        if self.open.remove(&id).is_some() {
            effects.answer(id, answer);
        }
    }

    /// A transaction begins on what this site has.
    fn begin_here(&mut self, id: RequestId, effects: &mut Effects) {
        if self.sessions.committed(id).is_some() {
            return self.finish(id, Answer::CommittedBefore, effects);
        }
        if let Some(open) = self.open.get_mut(&id) {
            if !open.is_read_only && self.sessions.is_forgotten(id.session, self.partition.final_position()) {
                return self.finish(id, Answer::Unknown, effects);
            }
            open.stage = Stage::Reading(Arc::new(SiteSnapshot::open(&self.partition)));
            effects.answer(id, Answer::Begun);
        }
    }
}

impl Certifier for Dur {
    fn begin(&mut self, id: RequestId, is_read_only: bool, effects: &mut Effects) {
        if let Err(answer) = make_room(&mut self.open, id) {
            return effects.answer(id, answer);
        }
        self.proposals.forget_session(id.session);
        self.open.insert(id, Open { is_read_only, stage: Stage::Asking });
        match is_read_only && !is_active(Mutant::ReadWithoutAsking) {
            true => effects.ask(GROUP, id),
            false => self.begin_here(id, effects),
        }
    }

    fn reached(&mut self, id: RequestId, effects: &mut Effects) {
        let answer = match self.open.get(&id).map(|open| &open.stage) {
            Some(Stage::Asking) => return self.begin_here(id, effects),
            Some(Stage::Ending(reads)) => {
                let now = || self.conflict(reads, &WriteSet::default());
                let certified = || now().map_or(Answer::Committed, Answer::Conflict);
                self.sessions.committed(id).unwrap_or_else(certified)
            }
            _ => return,
        };
        self.finish(id, answer, effects);
    }

    fn look(&mut self, id: RequestId, look: &Look, effects: &mut Effects) {
        match self.open.get(&id).map(|open| &open.stage) {
            Some(Stage::Reading(snapshot)) => effects.answer(id, snapshot.look(look)),
            Some(Stage::Expired) => self.finish(id, Answer::Conflict(Conflict::Snapshot), effects),
            None => effects.answer(id, Answer::Conflict(Conflict::Superseded)),
            _ => {}
        }
    }

    fn snapshot_of(&self, id: RequestId) -> Option<Arc<dyn LocalSnapshot>> {
        match &self.open.get(&id)?.stage {
            Stage::Reading(snapshot) => Some(snapshot.clone()),
            _ => None,
        }
    }

    fn commit(&mut self, id: RequestId, reads: ReadSet, writes: WriteSet, effects: &mut Effects) {
        let Some(open) = self.open.get(&id) else {
            return effects.answer(id, Answer::Conflict(Conflict::Superseded));
        };
        let only_reads = writes.is_empty() && open.is_read_only;
        let snapshot = match &open.stage {
            // All that it read was there at one snapshot, however old that is now.
            Stage::Reading(_) | Stage::Expired if only_reads => {
                return self.finish(id, Answer::Committed, effects);
            }
            Stage::Reading(snapshot) => snapshot.position,
            Stage::Expired => return self.finish(id, Answer::Conflict(Conflict::Snapshot), effects),
            _ => return,
        };
        let keys = reads.keys.into_keys().collect();
        let reads = Reads { snapshot, keys, scans: reads.scans, count: reads.count };
        let is_unordered = is_unordered(id, open.is_read_only, &writes);
        let conflict = self.conflict(&reads, &writes);
        let Some(open) = self.open.get_mut(&id) else { return };
        match conflict {
            Some(conflict) => return self.finish(id, Answer::Conflict(conflict), effects),
            None if is_unordered => {
                open.stage = Stage::Ending(reads);
                return effects.ask(GROUP, id);
            }
            None => open.stage = Stage::Proposed,
        }
        self.proposals.propose(id, put_commit(&Commit { id, reads, writes }), effects);
    }

    fn has_new_leader(&mut self, _: PartitionId, _: NodeId) {
        self.proposals.propose_in_turn();
    }

    fn forget(&mut self, id: RequestId) {
        self.open.remove(&id);
        self.proposals.forget(id);
    }

    fn receive(&mut self, _: NodeId, _: &[u8], _: &mut Effects) -> Result<(), Malformed> {
        // Sites have nothing to say to each other beside what they agree on.
        Err(Malformed)
    }

    fn check(&self, _: PartitionId, entry: &[u8]) -> Result<(), Malformed> {
        take_commit(entry).map(drop).ok_or(Malformed)
    }

    fn decided(&mut self, _: PartitionId, entry: &[u8], effects: &mut Effects) -> Result<(), Malformed> {
        let commit = take_commit(entry).ok_or(Malformed)?;
        let id = commit.id;
        let answer = self.certify(commit);
        self.finish(id, answer, effects);
        Ok(())
    }

    fn tick(&mut self, effects: &mut Effects) {
        self.proposals.tick(effects);
        let last = self.partition.final_position();
        let is_old = |at: Position| last.0.saturating_sub(at.0) >= self.horizons.history;
        for open in self.open.values_mut() {
            if matches!(&open.stage, Stage::Reading(snapshot) if is_old(snapshot.position)) {
                open.stage = Stage::Expired;
            }
        }
        self.partition.collect(COLLECTED_AT_ONCE.max(2 * std::mem::take(&mut self.written)));
    }

    fn snapshot(&self, _: PartitionId) -> Vec<u8> {
        let snapshot = self.partition.open();
        let last = snapshot.position;
        let (mut out, mut images) = (Vec::new(), Vec::new());
        self.partition.images_at(&snapshot, 0, usize::MAX, &mut images);
        self.partition.close(snapshot);
        put_varint(&mut out, last.0);
        put_varint(&mut out, self.partition.clears().newest_upto(last).0);
        put_varint(&mut out, images.len() as u64);
        for Image { key, version, entry } in &images {
            put_key(&mut out, key);
            put_varint(&mut out, version.0);
            put_value(&mut out, entry.as_ref());
        }
        self.sessions.put(&mut out);
        out
    }

    fn restore(&mut self, _: PartitionId, state: &[u8]) -> Result<(), Malformed> {
        let reader = &mut Reader::new(state);
        (self.partition, self.sessions) = take_state(reader, self.horizons.session).ok_or(Malformed)?;
        // A transaction that is open at a snapshot of the old data must not keep all of them. Those that have
        // read what they need go on: positions mean the same.
        for open in self.open.values_mut().filter(|open| matches!(open.stage, Stage::Reading(_))) {
            open.stage = Stage::Expired;
        }
        Ok(())
    }
}

fn put_commit(commit: &Commit) -> Vec<u8> {
    let Reads { snapshot, keys, scans, count } = &commit.reads;
    let mut out = Vec::new();
    put_id(&mut out, commit.id);
    put_varint(&mut out, snapshot.0);
    put_varint(&mut out, keys.len() as u64);
    keys.iter().for_each(|key| put_key(&mut out, key));
    put_varint(&mut out, scans.len() as u64);
    for Listing { range, entries, next_hash } in scans {
        out.push(range.space as u8);
        for part in [
            u64::from(range.slots.first),
            u64::from(range.slots.last),
            range.from_hash,
            range.limit as u64,
            *entries,
        ] {
            put_varint(&mut out, part);
        }
        put_number(&mut out, *next_hash);
    }
    put_number(&mut out, *count);
    put_writes(&mut out, &commit.writes);
    out
}

fn take_commit(entry: &[u8]) -> Option<Commit> {
    let reader = &mut Reader::new(entry);
    let (id, snapshot) = (take_id(reader)?, Position(reader.varint()?));
    let keys = (0..reader.varint()?).map(|_| take_key(reader)).collect::<Option<_>>()?;
    let scans = (0..reader.varint()?).map(|_| take_listing(reader)).collect::<Option<_>>()?;
    let reads = Reads { snapshot, keys, scans, count: take_number(reader)? };
    let writes = take_writes(reader)?;
    reader.is_empty().then_some(Commit { id, reads, writes })
}

fn take_listing(reader: &mut Reader<'_>) -> Option<Listing> {
    let space = match reader.u8()? {
        0 => Space::User,
        1 => Space::System,
        _ => return None,
    };
    let slot = |reader: &mut Reader<'_>| u16::try_from(reader.varint()?).ok();
    let slots = SlotRange { first: slot(reader)?, last: slot(reader)? };
    let (from_hash, limit) = (reader.varint()?, usize::try_from(reader.varint()?).ok()?);
    let range = ScanRange { space, slots, from_hash, limit };
    Some(Listing { range, entries: reader.varint()?, next_hash: take_number(reader)? })
}

/// A number, if there is one.
fn put_number(out: &mut Vec<u8>, number: Option<u64>) {
    put_varint(out, u64::from(number.is_some()));
    number.into_iter().for_each(|number| put_varint(out, number));
}

fn take_number(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    match reader.varint()? {
        0 => Some(None),
        1 => reader.varint().map(Some),
        _ => None,
    }
}

fn take_state(reader: &mut Reader<'_>, session_horizon: u64) -> Option<(Arc<Partition<()>>, Sessions)> {
    let partition = Partition::new();
    let (last, clear) = (take_last(reader)?, Position(reader.varint()?));
    for _ in 0..reader.varint()? {
        let (key, version) = (take_key(reader)?, Position(reader.varint()?));
        let entry = take_value(reader)?;
        if version == Position::NONE || version > last || partition.get(&key).is_some() {
            return None;
        }
        partition.load(Image { key, version, entry });
    }
    let sessions = Sessions::take(reader, session_horizon, last)?;
    if clear > last || !reader.is_empty() {
        return None;
    }
    let clears = [clear];
    partition.loaded(last, 0, &clears[usize::from(clear == Position::NONE)..]);
    Some((Arc::new(partition), sessions))
}

#[cfg(test)]
mod tests;
