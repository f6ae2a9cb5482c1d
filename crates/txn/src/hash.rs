//! Hashing that is the same in every process and on every machine.
//!
//! The standard library's maps iterate in an order that differs per process, which would reach replies, so
//! they are banned (see `clippy.toml`). Where the order of a map can be seen, use a `BTreeMap`; where it
//! can't, use these.

use std::hash::{BuildHasherDefault, Hasher};

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

    #[test]
    fn the_hash_never_changes() {
        // SCAN cursors and checkpoints outlive a process: a changed hash would be a changed format.
        assert_eq!(hash_bytes(b""), 232_177_599_295_442_350);
        assert_eq!(hash_bytes(b"key:000000000001"), hash_bytes(b"key:000000000001"));
    }
}
