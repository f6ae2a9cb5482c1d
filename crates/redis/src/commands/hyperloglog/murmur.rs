//! MurmurHash64A, Austin Appleby's hash function (public domain): the one whose values Redis's sketches hold.

const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
const SHIFT: u32 = 47;

/// The hash of a byte string, the same on every machine.
pub(super) fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        let word = (word ^ (word >> SHIFT)).wrapping_mul(FACTOR);
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> SHIFT)).wrapping_mul(FACTOR);
    hash ^ (hash >> SHIFT)
}
