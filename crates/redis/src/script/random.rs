//! `math.random`, deterministic: POSIX's 48-bit linear congruential generator, as Redis uses it.

const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const INCREMENT: u64 = 0xB;
const SEED_LOW: u64 = 0x330E;
const MASK: u64 = (1 << 48) - 1;

/// The generator that POSIX calls `lrand48`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lrand48(u64);

impl Lrand48 {
    /// What `srand48(seed)` starts.
    pub fn new(seed: i32) -> Lrand48 {
        Lrand48((u64::from(seed as u32) << 16) | SEED_LOW)
    }
    /// The generator that a script starts with: all 48 bits come from the transaction's seed.
    pub fn of_transaction(seed: u64) -> Lrand48 {
        Lrand48(seed & MASK)
    }
    /// 31 random bits.
    pub fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT) & MASK;
        (self.0 >> 17) as u32
    }
    /// A number from 0 (included) to 1 (excluded), as Redis derives it.
    pub fn unit(&mut self) -> f64 {
        let max = i32::MAX as u32;
        f64::from(self.next() % max) / f64::from(max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_posix_and_redis() {
        // lrand48 after srand48(0), as the C library gives it.
        let mut generator = Lrand48::new(0);
        assert_eq!(
            [generator.next(), generator.next(), generator.next()],
            [366_850_414, 1_610_402_240, 206_956_554]
        );
    }
}
