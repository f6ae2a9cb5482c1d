//! The records of a leaf, each with its versions and the tentative transactions that use it.
//!
//! Validation looks at the keys that a transaction names, and at nothing else of a leaf but its clock. So
//! transactions on disjoint keys are validated independently of each other.

use super::Control;
use crate::Conflict;
use crate::codec::{put_value, take_value};
use crate::counts::{KeyCounts, expires};
use crate::prepare::{Prepare, Used};
use crate::times::{Range, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{Entry, Key, Position, RequestId};

/// The parts of a leaf's keys. A key is in one of them, so several threads can change them.
pub(super) const SHARDS: usize = 64;

/// The shard of a key with this hash.
pub(super) fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Versions of a key that are kept. A transaction whose snapshot is older runs again.
pub(super) const VERSIONS_MAX: usize = 8;

/// What a key has held.
#[derive(Clone, Debug, PartialEq)]
struct Version {
    /// Where the entry stands in the leaf's log that wrote it.
    position: Position,
    written: Timestamp,
    entry: Option<Entry>,
}

/// How a tentative transaction uses a key.
#[derive(Clone, Debug, PartialEq)]
struct Use {
    /// The timestamps at which the leaf lets the transaction commit.
    range: Range,
    /// The tentative version: what the key is to hold, if the transaction writes it.
    write: Option<Option<Entry>>,
}

/// A key's versions and users.
#[derive(Clone, Debug, Default, PartialEq)]
struct KeyState {
    /// By `written`, oldest first, at most [`VERSIONS_MAX`].
    versions: Vec<Version>,
    /// Whether older versions were dropped.
    is_cut: bool,
    users: BTreeMap<RequestId, Use>,
}

impl KeyState {
    fn newest(&self) -> Position {
        self.versions.last().map_or(Position::NONE, |version| version.position)
    }

    /// What the key holds.
    fn entry(&self) -> Option<&Entry> {
        self.versions.last().and_then(|version| version.entry.as_ref())
    }

    /// Tentative writers, but for one transaction.
    fn writers(&self) -> impl Iterator<Item = &Use> {
        self.users.values().filter(|user| user.write.is_some())
    }
}

/// What a reply does to a key.
#[derive(Debug)]
pub(super) enum KeyChange {
    /// The transaction commits this.
    Write(Option<Entry>),
    /// The transaction is tentative, and this is its tentative version if it writes the key.
    Use(Option<Option<Entry>>),
}

/// Some of the keys.
///
/// Invariants:
/// 1. Of the versions of a key, `written` grows.
/// 2. `counts` is what a walk over all keys would count.
/// 3. `expiring` has the keys with a time to live, the store's own among them, by the times when they expire.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Shard {
    states: BTreeMap<Key, KeyState>,
    counts: KeyCounts,
    expiring: BTreeSet<(u64, Key)>,
}

impl Shard {
    /// A transaction that the leaf lets commit at `range`, by its entry at `position`, changes a key.
    pub fn change(&mut self, key: Key, change: KeyChange, id: RequestId, position: Position, range: Range) {
        match change {
            KeyChange::Write(entry) => self.write(key, entry, position, range.lower),
            KeyChange::Use(_) if is_active(Mutant::UnlockAtVote) => {}
            KeyChange::Use(write) => {
                self.states.entry(key).or_default().users.insert(id, Use { range, write });
            }
        }
    }

    /// A transaction commits a write. If one with a higher timestamp has come first, this version stands
    /// before it.
    fn write(&mut self, key: Key, entry: Option<Entry>, position: Position, at: Timestamp) {
        let Shard { states, counts, expiring } = self;
        let state = states.entry(key.clone()).or_default();
        counts.remove(&key, state.entry());
        if let Some(expires) = expires(&key, state.entry()) {
            expiring.remove(&expires);
        }
        let place = state.versions.partition_point(|version| version.written <= at);
        state.versions.insert(place, Version { position, written: at, entry });
        counts.add(&key, state.entry());
        expiring.extend(expires(&key, state.entry()));
        if state.versions.len() > VERSIONS_MAX {
            state.versions.remove(0);
            state.is_cut = true;
        }
    }
}

/// All keys that were ever written, or that a tentative transaction uses.
#[derive(Debug, PartialEq)]
pub(super) struct Keys {
    /// [`SHARDS`] of them.
    pub shards: Vec<Shard>,
}

impl Default for Keys {
    fn default() -> Keys {
        Keys { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Keys {
    fn state(&self, key: &Key) -> Option<&KeyState> {
        self.shards[shard_of(key.hash64())].states.get(key)
    }

    fn shard_mut(&mut self, key: &Key) -> &mut Shard {
        &mut self.shards[shard_of(key.hash64())]
    }

    fn states(&self) -> impl Iterator<Item = (&Key, &KeyState)> + Clone {
        self.shards.iter().flat_map(|shard| &shard.states)
    }

    /// What a key holds, tentative versions aside.
    pub fn newest(&self, key: &Key) -> Read {
        let version = self.state(key).and_then(|state| state.versions.last());
        version.map_or_else(Read::default, read_of)
    }

    /// What a transaction with this snapshot reads of a key. `Ok(None)`: the outcome of a tentative version
    /// has to be waited for.
    ///
    /// # Errors
    /// The key was written behind the snapshot, and `is_validated` says that the transaction would be refused
    /// for that; or the version is not kept any more.
    pub fn read(&self, key: &Key, snapshot: Timestamp, is_validated: bool) -> Result<Option<Read>, Conflict> {
        let Some(state) = self.state(key) else { return Ok(Some(Read::default())) };
        let mut early = state.writers().filter(|writer| writer.range.lower <= snapshot);
        if let Some(writer) = early.next() {
            if is_active(Mutant::ReadTentative) {
                let version = state.newest();
                return Ok(Some(Read { entry: writer.write.clone().flatten(), version }));
            }
            if !is_active(Mutant::PassTentative) {
                return Ok(None);
            }
        }
        let seen = state.versions.iter().rev().find(|version| version.written <= snapshot);
        let newest = state.versions.last();
        match seen {
            _ if is_validated && newest.is_some_and(|newest| newest.written > snapshot) => {
                Err(Conflict::Key(key.clone()))
            }
            None if state.is_cut => Err(Conflict::Snapshot),
            seen => Ok(Some(seen.map_or_else(Read::default, read_of))),
        }
    }

    /// Validates what a transaction has read and writes. Gives the timestamp that its commit must be above,
    /// because of tentative transactions that must come before it.
    ///
    /// # Errors
    /// A key is not what the transaction has read, or a tentative transaction is in its way.
    pub fn validate(&self, used: &Used, control: Control) -> Result<Timestamp, Conflict> {
        let conflict = |key: &Key| Err(Conflict::Key(key.clone()));
        for (key, &version) in &used.reads {
            let state = self.state(key);
            let newest = state.map_or(Position::NONE, KeyState::newest);
            // A tentative version counts as one that will be committed.
            let is_written = state.is_some_and(|state| state.writers().next().is_some());
            let is_written = is_written && !is_active(Mutant::ReadBesideTentative);
            if is_written || newest != version && !is_active(Mutant::CertifyNothing) {
                return conflict(key);
            }
        }
        let mut above = Timestamp::NONE;
        for key in used.writes.records.keys() {
            let Some(state) = self.state(key) else { continue };
            match control {
                Control::Locks if !state.users.is_empty() => return conflict(key),
                Control::Locks => {}
                Control::Timestamps if is_active(Mutant::WriteBesideTentative) => {}
                Control::Timestamps => {
                    let ends = state.users.values().map(|user| Timestamp(user.range.upper.0 - 1));
                    above = ends.fold(above, Timestamp::max);
                }
            }
        }
        Ok(above)
    }

    /// Whether a transaction could be tentative beside those that are: of two that use the same key, and of
    /// which one writes it, one has all its timestamps before the other. With locks there are no such two.
    pub fn lets_in(&self, prepare: &Prepare, range: Range, control: Control) -> bool {
        prepare.used.keys().all(|key| {
            let writes = prepare.used.writes.records.contains_key(key);
            let users = self.state(key).into_iter().flat_map(|state| state.users.values());
            let mut met = users.filter(|user| writes || user.write.is_some());
            let lets_all = is_active(Mutant::ReadBesideTentative) || is_active(Mutant::WriteBesideTentative);
            met.all(|user| control == Control::Timestamps && !user.range.overlaps(range) || lets_all)
        })
    }

    /// A transaction is tentative: others meet it at its keys.
    pub fn enter(&mut self, prepare: &Prepare, range: Range) {
        for key in prepare.used.keys() {
            let write = prepare.used.writes.records.get(key).cloned();
            let (key, change) = (key.clone(), KeyChange::Use(write));
            self.shard_mut(&key).change(key, change, prepare.id, prepare.behind, range);
        }
    }

    /// A transaction is tentative no longer.
    pub fn leave(&mut self, prepare: &Prepare) {
        for key in prepare.used.keys() {
            let states = &mut self.shard_mut(key).states;
            if let Some(state) = states.get_mut(key) {
                state.users.remove(&prepare.id);
                if state.users.is_empty() && state.versions.is_empty() {
                    states.remove(key);
                }
            }
        }
    }

    /// A transaction commits a write.
    pub fn write(&mut self, key: Key, entry: Option<Entry>, position: Position, at: Timestamp) {
        self.shard_mut(&key).write(key, entry, position, at);
    }

    /// All keys that were written, with their newest versions.
    #[cfg(test)]
    pub fn versions(&self) -> Vec<(Key, Position)> {
        let written = self.states().filter(|(_, state)| !state.versions.is_empty());
        written.map(|(key, state)| (key.clone(), state.newest())).collect()
    }

    /// The greatest timestamp of a version.
    pub fn greatest(&self) -> Timestamp {
        let newest = self.states().filter_map(|(_, state)| state.versions.last());
        newest.map(|version| version.written).fold(Timestamp::NONE, Timestamp::max)
    }

    /// How many keys of users hold something.
    pub fn counts(&self) -> KeyCounts {
        let mut all = KeyCounts::default();
        self.shards.iter().for_each(|shard| all += shard.counts);
        all
    }

    /// Keys that have expired, tentative versions aside, at most `keys_max`.
    pub fn expired(&self, now_ms: u64, keys_max: usize) -> Vec<Key> {
        let expired = |shard: &Shard| -> Vec<Key> {
            let due = shard.expiring.iter().take_while(|(expires_at_ms, _)| *expires_at_ms <= now_ms);
            due.take(keys_max).map(|(_, key)| key.clone()).collect()
        };
        self.shards.iter().flat_map(expired).take(keys_max).collect()
    }

    /// What the store itself keeps, tentative versions aside.
    pub fn system_records(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        let states = self.shards.iter().flat_map(|shard| shard.states.range(Key::system(b"")..));
        states.filter_map(|(key, state)| Some((key, state.entry()?)))
    }

    /// What contradicts an invariant of this type.
    pub fn flaw(&self) -> Option<String> {
        let mut counted = KeyCounts::default();
        self.states().for_each(|(key, state)| counted.add(key, state.entry()));
        if counted != self.counts() {
            return Some(format!("there are {counted:?}, and {:?} were counted", self.counts()));
        }
        let expiring: BTreeSet<(u64, Key)> =
            self.states().filter_map(|(key, state)| expires(key, state.entry())).collect();
        if !expiring.iter().eq(self.shards.iter().flat_map(|shard| &shard.expiring).collect::<BTreeSet<_>>())
        {
            return Some(format!("{expiring:?} expire, and {:?} are known to", self.shards));
        }
        let is_ordered =
            |pair: &[Version]| pair[0].written < pair[1].written || is_active(Mutant::ReuseTimestamp);
        let is_bad = |state: &KeyState| {
            state.versions.len() > VERSIONS_MAX || !state.versions.windows(2).all(is_ordered)
        };
        let bad = self.states().find(|(_, state)| is_bad(state));
        bad.map(|(key, state)| format!("{key:?} has the versions {:?}", state.versions))
    }

    /// The versions. Who uses the keys follows from what is tentative.
    pub fn put(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.flaw(), None);
        let written = self.states().filter(|(_, state)| !state.versions.is_empty());
        put_varint(out, written.clone().count() as u64);
        for (key, state) in written {
            put_key(out, key);
            crate::codec::put_bool(out, state.is_cut);
            put_varint(out, state.versions.len() as u64);
            for Version { position, written, entry } in &state.versions {
                put_varint(out, position.0);
                written.put(out);
                put_value(out, entry.as_ref());
            }
        }
    }

    /// Keys of which no version is newer than `last`, and which `in_group` says.
    pub fn take(reader: &mut Reader<'_>, last: Position, in_group: impl Fn(&Key) -> bool) -> Option<Keys> {
        let mut keys = Keys::default();
        let mut shards_from = 0;
        for _ in 0..reader.varint()? {
            let key = take_key(reader).filter(|key| in_group(key))?;
            let mut state = KeyState { is_cut: crate::codec::take_bool(reader)?, ..KeyState::default() };
            for _ in 0..reader.varint()? {
                let position = Position(reader.varint()?);
                (position != Position::NONE && position <= last).then_some(())?;
                let written = Timestamp::take(reader)?;
                state.versions.push(Version { position, written, entry: take_value(reader)? });
            }
            (!state.versions.is_empty()).then_some(())?;
            let shard = shard_of(key.hash64());
            (shards_from <= shard).then_some(())?;
            shards_from = shard;
            let Shard { states, counts, expiring } = &mut keys.shards[shard];
            counts.add(&key, state.entry());
            expiring.extend(expires(&key, state.entry()));
            states.insert(key, state).is_none().then_some(())?;
        }
        keys.flaw().is_none().then_some(keys)
    }
}

fn read_of(version: &Version) -> Read {
    Read { entry: version.entry.clone(), version: version.position }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(expires_at_ms: u64) -> Option<Entry> {
        Some(Entry { expires_at_ms, ..Entry::new("v") })
    }

    /// Writes a key so many times, and gives what is counted behind the last one.
    fn counts(keys: &mut Keys, key: &Key, writes: &[(u64, Option<Entry>)]) -> (u64, u64, u128) {
        for &(at, ref entry) in writes {
            keys.write(key.clone(), entry.clone(), Position(at), Timestamp(at));
            assert_eq!(keys.flaw(), None);
        }
        let KeyCounts { keys, expiring, expires_at_ms_sum } = keys.counts();
        (keys, expiring, expires_at_ms_sum)
    }

    #[test]
    fn keys_are_counted_as_their_newest_versions_are() {
        let keys = &mut Keys::default();
        let (first, second) = (Key::new(b"first"), Key::new(b"second"));
        assert_eq!(counts(keys, &first, &[(1, entry(0))]), (1, 0, 0));
        assert_eq!(counts(keys, &second, &[(2, entry(700))]), (2, 1, 700));
        assert_eq!(counts(keys, &second, &[(3, entry(900))]), (2, 1, 900), "the older time counts no more");
        // A write that comes late stands before the newest one, and counts for nothing.
        assert_eq!(counts(keys, &second, &[(5, None)]), (1, 0, 0));
        assert_eq!(counts(keys, &second, &[(4, entry(800))]), (1, 0, 0));
        assert_eq!(counts(keys, &second, &[(6, entry(100))]), (2, 1, 100));
        // More writes than versions are kept.
        let many: Vec<_> = (10..30).map(|at| (at, entry(at))).collect();
        assert_eq!(counts(keys, &first, &many), (2, 2, 129));
        // The store's own keys, and tentative versions, count for nothing.
        assert_eq!(counts(keys, &Key::system(b"script"), &[(40, entry(50))]), (2, 2, 129));
        let mut out = Vec::new();
        keys.put(&mut out);
        let taken = Keys::take(&mut Reader::new(&out), Position(40), |_| true);
        assert_eq!(taken.as_ref(), Some(&*keys));
        let mut all = keys.counts();
        all += keys.counts();
        assert_eq!(all, KeyCounts { keys: 4, expiring: 4, expires_at_ms_sum: 258 });
    }

    #[test]
    fn keys_that_have_expired_are_found_until_they_are_written() {
        let keys = &mut Keys::default();
        let name = |number: u64| Key::new(format!("key:{number}").as_bytes());
        for number in 0..20 {
            keys.write(name(number), entry(100 + number), Position(1), Timestamp(1));
        }
        keys.write(name(50), entry(0), Position(1), Timestamp(1));
        let expired =
            |keys: &Keys, now_ms| keys.expired(now_ms, usize::MAX).into_iter().collect::<BTreeSet<_>>();
        assert_eq!(expired(keys, 99), BTreeSet::new());
        assert_eq!(expired(keys, 104), (0..5).map(name).collect());
        assert_eq!((keys.expired(1_000, 7).len(), keys.expired(1_000, 100).len()), (7, 20));
        keys.write(name(1), None, Position(2), Timestamp(2));
        keys.write(name(2), entry(0), Position(2), Timestamp(2));
        keys.write(name(3), entry(105), Position(2), Timestamp(2));
        assert_eq!(expired(keys, 104), [0, 4].map(name).into());
        // So are the store's own records, such as the replies that ORDO.IDEMPOTENT keeps.
        let record = Key::system(b"idempotent:1");
        keys.write(record.clone(), entry(90), Position(3), Timestamp(3));
        assert_eq!((expired(keys, 99), keys.counts().keys), ([record].into(), 20));
        assert_eq!(keys.flaw(), None);
    }
}
