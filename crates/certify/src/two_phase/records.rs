//! A partition's records: the versions of each key, and when they were written and read.

use super::rule::Rule;
use super::{ONLY_READ_MAX, is_clearable};
use crate::codec::{put_value, take_value};
use crate::times::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use txn::codec::{Reader, put_key, put_varint, take_key};
use txn::mutant::{Mutant, is_active};
use txn::{Entry, Key, Position};

/// What a key has held, and when.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Version {
    /// Where the entry stands in the partition's log that wrote it; [`Position::NONE`] if none did.
    pub position: Position,
    /// What the key held; `None` if nothing, or if no transaction of the rule reads it any more.
    pub entry: Option<Entry>,
    /// The timestamp of the transaction that wrote it.
    pub written: Timestamp,
    /// The greatest timestamp of a committed transaction that has read it.
    pub read: Timestamp,
}

/// What a key has of which nothing is known.
static INITIAL: [Version; 1] =
    [Version { position: Position::NONE, entry: None, written: Timestamp::NONE, read: Timestamp::NONE }];

/// The versions of all keys.
///
/// Invariants:
/// 1. Of the versions of a key, `written` grows. If a version was read, `read` is greater than its `written`,
///    and at most the next version's `written`: equal if a transaction has replaced what it had read.
/// 2. A key without versions has never been written, and nobody has read it behind `forgotten`.
#[derive(Debug, PartialEq)]
pub(super) struct Records {
    rule: Rule,
    /// Oldest first. The last one may be a delete: it stays, as what others have read.
    keys: BTreeMap<Key, Vec<Version>>,
    /// The keys that were read and never written, by `read`: a function of `keys`.
    only_read: BTreeSet<(Timestamp, Key)>,
    forgotten: Timestamp,
    /// When all clearable keys were last cleared.
    cleared: Timestamp,
}

impl Records {
    pub fn of(rule: Rule) -> Records {
        Records {
            rule,
            keys: BTreeMap::new(),
            only_read: BTreeSet::new(),
            forgotten: Timestamp::NONE,
            cleared: Timestamp::NONE,
        }
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys()
    }

    /// The versions of a key, oldest first: at least one.
    pub fn versions(&self, key: &Key) -> &[Version] {
        self.keys.get(key).map_or(&INITIAL, Vec::as_slice)
    }

    /// What a key has of which nothing is known.
    pub fn initial(&self) -> &[Version] {
        &INITIAL
    }

    /// A write of a key comes behind this, whatever the key's versions say.
    pub fn write_floor(&self, key: &Key) -> Timestamp {
        if is_clearable(key) { self.clear_floor() } else { self.forgotten }
    }

    /// A clear comes behind this, whatever the versions say.
    pub fn clear_floor(&self) -> Timestamp {
        self.forgotten.max(self.cleared)
    }

    /// A committed transaction has read a version. One that is not kept any more needs no note: writes come
    /// behind those that are.
    pub fn raise(&mut self, key: &Key, position: Position, at: Timestamp) {
        if at == Timestamp::NONE || is_active(Mutant::ForgetReadTimes) {
            return;
        }
        if position == Position::NONE && !self.keys.contains_key(key) {
            self.keys.insert(key.clone(), INITIAL.to_vec());
        }
        let Some(versions) = self.keys.get_mut(key) else { return };
        let is_only_read = is_only_read(versions);
        let Some(version) = versions.iter_mut().find(|version| version.position == position) else { return };
        let before = version.read;
        version.read = before.max(at);
        if is_only_read {
            self.only_read.remove(&(before, key.clone()));
            self.only_read.insert((before.max(at), key.clone()));
        }
        if self.only_read.len() > ONLY_READ_MAX
            && let Some((read, key)) = self.only_read.pop_first()
        {
            self.forgotten = self.forgotten.max(read);
            self.keys.remove(&key);
        }
    }

    /// A transaction commits a write. If a later one has come first, this version stands before its.
    pub fn write(&mut self, key: Key, entry: Option<Entry>, position: Position, at: Timestamp) {
        let versions = self.keys.entry(key.clone()).or_insert_with(|| INITIAL.to_vec());
        if is_only_read(versions) {
            self.only_read.remove(&(versions[0].read, key));
        }
        let place = versions.partition_point(|version| version.written <= at);
        versions.insert(place, Version { position, entry, written: at, read: Timestamp::NONE });
        versions.drain(..versions.len().saturating_sub(self.rule.versions_max()));
        if !self.rule.reads_replaced()
            && let Some((_, replaced)) = versions.split_last_mut()
        {
            replaced.iter_mut().for_each(|version| version.entry = None);
        }
    }

    /// A transaction commits a clear. Nothing of a key that was never written is removed.
    pub fn clear(&mut self, position: Position, at: Timestamp) {
        self.cleared = self.cleared.max(at);
        let is_cleared =
            |(key, versions): &(&Key, &Vec<Version>)| is_clearable(key) && !is_only_read(versions);
        let cleared: Vec<Key> = self.keys.iter().filter(is_cleared).map(|(key, _)| key.clone()).collect();
        cleared.into_iter().for_each(|key| self.write(key, None, position, at));
    }

    /// What contradicts an invariant of this type.
    pub fn flaw(&self) -> Option<String> {
        for (key, versions) in &self.keys {
            let is_ordered =
                |pair: &[Version]| pair[0].written < pair[1].written && pair[0].read <= pair[1].written;
            let is_early =
                |version: &Version| version.read != Timestamp::NONE && version.read <= version.written;
            if versions.is_empty()
                || versions.iter().any(is_early)
                || versions.len() > self.rule.versions_max()
                || !versions.windows(2).all(is_ordered)
                || versions[1..].iter().any(|version| version.position == Position::NONE)
            {
                return Some(format!("{key:?} has the versions {versions:?}"));
            }
        }
        let only_read = self.keys.iter().filter(|(_, versions)| is_only_read(versions));
        let only_read: BTreeSet<_> =
            only_read.map(|(key, versions)| (versions[0].read, key.clone())).collect();
        (only_read != self.only_read).then(|| "the keys that were only read are others".to_owned())
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        debug_assert_eq!(self.flaw(), None);
        self.forgotten.put(out);
        self.cleared.put(out);
        put_varint(out, self.keys.len() as u64);
        for (key, versions) in &self.keys {
            put_key(out, key);
            put_varint(out, versions.len() as u64);
            for Version { position, entry, written, read } in versions {
                put_varint(out, position.0);
                written.put(out);
                read.put(out);
                put_value(out, entry.as_ref());
            }
        }
    }

    /// Records of which no version is newer than `last`, of keys that `in_group` says.
    pub fn take(
        reader: &mut Reader<'_>,
        rule: Rule,
        last: Position,
        in_group: impl Fn(&Key) -> bool,
    ) -> Option<Records> {
        let mut records = Records::of(rule);
        records.forgotten = Timestamp::take(reader)?;
        records.cleared = Timestamp::take(reader)?;
        for _ in 0..reader.varint()? {
            let key = take_key(reader).filter(|key| in_group(key))?;
            let mut versions = Vec::new();
            for _ in 0..reader.varint()? {
                let position = Position(reader.varint()?);
                (position <= last).then_some(())?;
                let (written, read) = (Timestamp::take(reader)?, Timestamp::take(reader)?);
                versions.push(Version { position, entry: take_value(reader)?, written, read });
            }
            if is_only_read(&versions) {
                records.only_read.insert((versions[0].read, key.clone()));
            }
            records.keys.insert(key, versions).is_none().then_some(())?;
        }
        records.flaw().is_none().then_some(records)
    }
}

fn is_only_read(versions: &[Version]) -> bool {
    matches!(versions, [version] if version.position == Position::NONE)
}
