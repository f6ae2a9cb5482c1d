//! Hashing that is the same in every process and on every machine, and maps by it.
//!
//! The standard library's maps iterate in an order that differs per process, which would reach replies, so
//! they are banned (see `clippy.toml`). Where the order of a map can be seen, use a `BTreeMap`; where it
//! can't, use these.
//!
//! The hash functions are published, so a client can make keys with one hash, and a [`FixedMap`] compares
//! all keys with one hash one by one. A map of keys that clients choose, and may have many of, is a
//! [`SecretMap`].

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};
use std::borrow::Borrow;
use std::collections::hash_map;
use std::fmt::{self, Debug};
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::sync::LazyLock;

/// A hasher over rapidhash with its published default secret: portable and without a per-process seed.
#[derive(Default, Clone)]
pub struct FixedHasher {
    state: u64,
}

impl Hasher for FixedHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.state = self.state.rotate_left(23) ^ hash_bytes(bytes);
    }
    #[inline]
    fn write_u64(&mut self, value: u64) {
        // One multiply-mix round: enough for integer keys, and a tenth of the cost of hashing eight bytes.
        self.state = mix(self.state ^ value);
    }
    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

/// Builds [`FixedHasher`]s.
pub type FixedState = BuildHasherDefault<FixedHasher>;
/// A hash map whose behaviour is the same in every process. Do not let its order be seen.
#[allow(clippy::disallowed_types, reason = "this is the replacement: the hasher is fixed")]
pub type FixedMap<K, V> = std::collections::HashMap<K, V, FixedState>;
/// A hash set whose behaviour is the same in every process. Do not let its order be seen.
#[allow(clippy::disallowed_types, reason = "this is the replacement: the hasher is fixed")]
pub type FixedSet<K> = std::collections::HashSet<K, FixedState>;

/// A secret of this process, drawn from the operating system. No hash that is made with it leaves the
/// process, and none reaches a reply.
static SECRETS: LazyLock<RapidSecrets> = LazyLock::new(|| RapidSecrets::seed(RandomState::new().hash_one(0)));

/// A hasher over rapidhash with secrets of this process.
struct SecretHasher {
    secrets: &'static RapidSecrets,
    state: u64,
}

impl Hasher for SecretHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.state
    }
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let hash = rapidhash_v3_inline::<true, false, true>(bytes, self.secrets);
        self.state = self.state.rotate_left(23) ^ hash;
    }
    #[inline]
    fn write_u64(&mut self, value: u64) {
        self.state = mix(self.state ^ value);
    }
    #[inline]
    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_u32(&mut self, value: u32) {
        self.write_u64(u64::from(value));
    }
    #[inline]
    fn write_usize(&mut self, value: usize) {
        self.write_u64(value as u64);
    }
}

#[derive(Clone, Copy, Default)]
struct SecretState;

impl BuildHasher for SecretState {
    type Hasher = SecretHasher;
    #[inline]
    fn build_hasher(&self) -> SecretHasher {
        let secrets = &*SECRETS;
        SecretHasher { secrets, state: secrets.seed }
    }
}

#[allow(clippy::disallowed_types, reason = "SecretMap hides the order")]
type SecretlyHashed<K, V> = std::collections::HashMap<K, V, SecretState>;

/// A hash map of keys that clients choose: they cannot know which of them have one hash. Its order differs
/// from process to process, so it has no iterators but those that say so.
#[derive(Clone)]
pub struct SecretMap<K, V>(SecretlyHashed<K, V>);

impl<K, V> Default for SecretMap<K, V> {
    fn default() -> SecretMap<K, V> {
        SecretMap(SecretlyHashed::default())
    }
}

impl<K: Debug, V: Debug> Debug for SecretMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<K, V> SecretMap<K, V> {
    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// For how many keys there is room.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }
    /// Removes all keys, and keeps their room.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Removes the keys that `keep` says no to.
    pub fn retain(&mut self, keep: impl FnMut(&K, &mut V) -> bool) {
        self.0.retain(keep);
    }
    /// All keys and values, in an order that differs from process to process: sort what comes of it.
    pub fn iter_in_any_order(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter()
    }
    /// The same, taken out.
    pub fn into_iter_in_any_order(self) -> impl Iterator<Item = (K, V)> {
        self.0.into_iter()
    }
}

impl<K: Eq + Hash, V> SecretMap<K, V> {
    /// The value of a key.
    #[inline]
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.0.get(key)
    }
    /// Gives a key a value, and returns the one that it had.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        self.0.insert(key, value)
    }
    /// The place of a key.
    #[inline]
    pub fn entry(&mut self, key: K) -> hash_map::Entry<'_, K, V> {
        self.0.entry(key)
    }
}

impl<K: Eq + Hash, V> Extend<(K, V)> for SecretMap<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        self.0.extend(entries);
    }
}
impl<K: Eq + Hash, V> FromIterator<(K, V)> for SecretMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> SecretMap<K, V> {
        SecretMap(entries.into_iter().collect())
    }
}

/// The 64-bit hash of a byte string.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// A full-avalanche mix of 64 bits (the finalizer of SplitMix64).
#[inline]
pub fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use std::collections::BTreeSet;

    #[test]
    fn the_hash_never_changes() {
        // SCAN cursors and checkpoints outlive a process: a changed hash would be a changed format.
        assert_eq!(hash_bytes(b""), 232_177_599_295_442_350);
        assert_eq!(hash_bytes(b"key:000000000001"), hash_bytes(b"key:000000000001"));
    }

    #[test]
    fn keys_that_have_one_published_hash_have_others_in_a_secret_map() {
        let end: [u8; 8] = [0xc6, 0xbf, 0x8f, 0x7d, 0x56, 0x65, 0x27, 0x42];
        let keys: Vec<Key> = (0..10_000_u64).map(|n| Key::new(&[n.to_le_bytes(), end].concat())).collect();
        assert!(keys.iter().all(|key| key.hash64() == keys[0].hash64()));
        let hashes: BTreeSet<u64> = keys.iter().map(|key| SecretState.hash_one(key)).collect();
        assert!(hashes.len() > keys.len() - 10, "{} hashes of {} keys", hashes.len(), keys.len());
        let blobs = keys.iter().map(|key| SecretState.hash_one(key.to_blob()));
        assert!(blobs.collect::<BTreeSet<u64>>().len() > keys.len() - 10);

        let mut map: SecretMap<Key, usize> = keys.iter().cloned().zip(0..).collect();
        map.retain(|_, place| place.is_multiple_of(2));
        assert_eq!(map.get(&keys[4]), Some(&4));
        assert_eq!(map.get(&keys[5]), None);
        assert_eq!(map.get(&Key::system(keys[4].as_bytes())), None);
        assert_eq!(map.iter_in_any_order().count(), keys.len() / 2);
        let places: BTreeSet<usize> = map.into_iter_in_any_order().map(|(_, place)| place).collect();
        assert!(places.into_iter().eq((0..keys.len()).step_by(2)));
    }
}
