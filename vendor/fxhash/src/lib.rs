//! A fast hash function with a fixed start, for maps whose keys nobody chooses: the same in every process.
//! See `vendor/README.md`.

use std::hash::Hasher;

const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

/// The hasher.
#[derive(Clone, Copy, Debug, Default)]
pub struct FxHasher(u64);

impl FxHasher {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }
}

impl Hasher for FxHasher {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }
    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }
    fn write_u32(&mut self, number: u32) {
        self.add(u64::from(number));
    }
    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }
    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
    fn finish(&self) -> u64 {
        self.0
    }
}
