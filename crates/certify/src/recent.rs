//! Values that a partition knows for as many entries as its sessions.

use std::collections::{BTreeMap, BTreeSet};
use txn::Position;
use txn::codec::{Reader, put_varint};

/// Values by key, each with the position of its entry.
#[derive(Debug, PartialEq)]
pub(crate) struct Recent<K, V> {
    /// For how many entries a value is known.
    horizon: u64,
    values: BTreeMap<K, (Position, V)>,
    by_age: BTreeSet<(Position, K)>,
}

impl<K: Copy + Ord, V> Recent<K, V> {
    pub fn known_for(horizon: u64) -> Recent<K, V> {
        Recent { horizon, values: BTreeMap::new(), by_age: BTreeSet::new() }
    }

    pub fn get(&self, key: K) -> Option<&V> {
        self.values.get(&key).map(|(_, value)| value)
    }

    /// The value, if it is known at a position. That does not depend on how long ago others were put in.
    pub fn known(&self, key: K, now: Position) -> Option<&V> {
        let (at, value) = self.values.get(&key)?;
        (at.0.saturating_add(self.horizon) > now.0).then_some(value)
    }

    /// All keys.
    pub fn keys(&self) -> impl Iterator<Item = K> {
        self.values.keys().copied()
    }

    /// Puts in the value of the entry at `at`. Gives what is too old from here on.
    pub fn insert(&mut self, key: K, value: V, at: Position) -> Vec<V> {
        if let Some((before, _)) = self.values.insert(key, (at, value)) {
            self.by_age.remove(&(before, key));
        }
        self.by_age.insert((at, key));
        let mut forgotten = Vec::new();
        while let Some(&(oldest, key)) = self.by_age.first()
            && oldest.0.saturating_add(self.horizon) <= at.0
        {
            self.by_age.pop_first();
            forgotten.extend(self.values.remove(&key).map(|(_, value)| value));
        }
        forgotten
    }

    /// The key and the value are put by `put`.
    pub fn put(&self, out: &mut Vec<u8>, put: impl Fn(&mut Vec<u8>, K, &V)) {
        put_varint(out, self.values.len() as u64);
        for (&key, (at, value)) in &self.values {
            put_varint(out, at.0);
            put(out, key, value);
        }
    }

    /// Values that are known for so many entries, none of them newer than `last`.
    pub fn take(
        reader: &mut Reader<'_>,
        horizon: u64,
        last: Position,
        take: impl Fn(&mut Reader<'_>) -> Option<(K, V)>,
    ) -> Option<Recent<K, V>> {
        let mut recent = Recent::known_for(horizon);
        for _ in 0..reader.varint()? {
            let at = Position(reader.varint()?);
            let (key, value) = take(reader)?;
            (at != Position::NONE && at <= last).then_some(())?;
            recent.values.insert(key, (at, value)).is_none().then_some(())?;
            recent.by_age.insert((at, key));
        }
        Some(recent)
    }
}
