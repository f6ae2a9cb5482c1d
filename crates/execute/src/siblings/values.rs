//! What was read under which key, in the order in which it was read.

use std::hash::{Hash, Hasher};
use txn::hash::SecretMap;

/// Lists up to this long are searched one by one.
const LINEAR_MAX: usize = 24;

/// A list of keys with values, each key once. Most have a few keys; some have thousands.
#[derive(Clone, Debug)]
pub(super) struct Values<K, V> {
    list: Vec<(K, V)>,
    /// The place of each key in the list, once that is long. Never iterated.
    places: SecretMap<K, usize>,
}

impl<K, V> Default for Values<K, V> {
    fn default() -> Values<K, V> {
        Values { list: Vec::new(), places: SecretMap::default() }
    }
}

impl<K: Clone + Eq + Hash, V> Values<K, V> {
    /// The value of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        if self.list.len() > LINEAR_MAX {
            return self.places.get(key).map(|&place| &self.list[place].1);
        }
        let mut values = self.list.iter();
        Some(&values.find(|(known, _)| known == key)?.1)
    }

    /// Adds a key that is not there.
    pub fn push(&mut self, key: K, value: V) {
        self.list.push((key, value));
        match self.list.len() {
            0..=LINEAR_MAX => {}
            length if length == LINEAR_MAX + 1 => {
                let keys = self.list.iter().enumerate();
                self.places = keys.map(|(place, (key, _))| (key.clone(), place)).collect();
            }
            length => {
                self.places.insert(self.list[length - 1].0.clone(), length - 1);
            }
        }
    }
}

impl<K, V> Values<K, V> {
    /// All of them, in order.
    pub fn as_slice(&self) -> &[(K, V)] {
        &self.list
    }
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = &(K, V)> {
        self.list.iter()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
    /// Removes all.
    pub fn clear(&mut self) {
        self.list.clear();
        self.places.clear();
    }
    /// Takes all out.
    pub fn take(&mut self) -> Vec<(K, V)> {
        self.places.clear();
        std::mem::take(&mut self.list)
    }
}

impl<K: Clone + Eq + Hash, V> FromIterator<(K, V)> for Values<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> Values<K, V> {
        let mut all = Values::default();
        for (key, value) in values {
            all.push(key, value);
        }
        all
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for Values<K, V> {
    fn eq(&self, other: &Values<K, V>) -> bool {
        self.list == other.list
    }
}
impl<K: Eq, V: Eq> Eq for Values<K, V> {}
impl<K: Hash, V: Hash> Hash for Values<K, V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_short_lists_and_in_long_ones() {
        for length in [0, 1, LINEAR_MAX, LINEAR_MAX + 1, 1_000] {
            let mut values: Values<usize, usize> = (0..length).map(|n| (n, n * 7)).collect();
            for key in 0..length {
                assert_eq!(values.get(&key), Some(&(key * 7)), "of {length}");
            }
            assert_eq!(values.get(&length), None);
            assert_eq!(values.as_slice().len(), length);
            let taken = values.take();
            assert!(taken.iter().map(|(key, _)| *key).eq(0..length));
            assert!(values.is_empty() && values.get(&0).is_none());
            values.push(3, 4);
            assert_eq!(values.get(&3), Some(&4));
        }
    }
}
