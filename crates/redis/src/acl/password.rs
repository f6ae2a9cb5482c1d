//! Hashes of passwords, which are all that is kept of them.

use sha2::{Digest, Sha256};
use std::fmt;

/// The SHA-256 of a password, in lower-case hexadecimal digits. Two are the same in a time that does not tell
/// where they differ.
#[derive(Clone, Copy)]
pub struct PasswordHash([u8; 64]);

impl PasswordHash {
    /// Hashes a password.
    pub fn of(password: &[u8]) -> PasswordHash {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hash = [0; 64];
        for (pair, byte) in hash.chunks_exact_mut(2).zip(Sha256::digest(password)) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        PasswordHash(hash)
    }

    /// Reads the digits of a hash.
    pub fn from_digits(word: &[u8]) -> Option<PasswordHash> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let hash = word.try_into().ok()?;
        word.iter().all(is_digit).then_some(PasswordHash(hash))
    }

    /// Its digits.
    pub fn digits(&self) -> &[u8] {
        &self.0
    }

    /// The digits behind a letter that says what becomes of the hash: `#` adds it, `!` removes it.
    pub fn behind(&self, sign: u8) -> Vec<u8> {
        [&[sign], self.digits()].concat()
    }
}

impl PartialEq for PasswordHash {
    fn eq(&self, other: &PasswordHash) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

impl Eq for PasswordHash {}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}
