//! Finding a command by its name: one hash and one comparison of words, without allocation, whatever the
//! case.
//!
//! Most names have at most eight bytes, all of them letters. Such a name is one 64-bit word, and the bit that
//! tells a small letter from a capital one is set in all of its bytes: then two names are the same, whatever
//! their case, exactly if their words and lengths are equal, because no other byte becomes a small letter by
//! that bit. Other names are compared byte by byte.

use super::entries::COMMANDS;

const BUCKETS: usize = 512;

const _: () = assert!(COMMANDS.len() * 2 < BUCKETS, "the index must stay sparse: double BUCKETS");
const _: () = assert!(BUCKETS.is_power_of_two(), "a bucket is the upper bits of a product");

/// In each byte, the bit by which small letters differ from capital ones.
const SMALL: u64 = 0x2020_2020_2020_2020;

/// A command in the index.
#[derive(Clone, Copy)]
struct Entry {
    /// See [`small_word`].
    word: u64,
    /// The name's length, 0 where no command is.
    len: u8,
    /// The word and the length tell the name from all others.
    is_told_by_word: bool,
    /// The command's place in [`COMMANDS`].
    place: u16,
}

/// Open addressing from the hash of a name to its command, built by the compiler.
static INDEX: [Entry; BUCKETS] = {
    let mut index = [Entry { word: 0, len: 0, is_told_by_word: false, place: 0 }; BUCKETS];
    let mut place = 0;
    while place < COMMANDS.len() {
        let name = COMMANDS[place].name.as_bytes();
        let word = small_word(name);
        let mut bucket = bucket_of(word, name.len());
        while index[bucket].len != 0 {
            bucket = (bucket + 1) % BUCKETS;
        }
        let is_told_by_word = name.len() <= size_of::<u64>() && is_of_letters(name);
        index[bucket] = Entry { word, len: name.len() as u8, is_told_by_word, place: place as u16 };
        place += 1;
    }
    index
};

const fn is_of_letters(name: &[u8]) -> bool {
    let mut at = 0;
    while at < name.len() {
        if !name[at].is_ascii_alphabetic() {
            return false;
        }
        at += 1;
    }
    true
}

const fn four(name: &[u8], at: usize) -> u64 {
    u32::from_le_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]]) as u64
}

/// The bytes of a name in one word, in small letters: all of them if there are at most eight, else the first
/// and the last four. The name is not empty.
#[inline]
const fn small_word(name: &[u8]) -> u64 {
    let len = name.len();
    let word = if len > 8 {
        four(name, 0) | four(name, len - 4) << 32
    } else if len >= 4 {
        // The two halves may overlap, where they are the same.
        four(name, 0) | four(name, len - 4) << (8 * (len - 4))
    } else {
        let middle = len / 2;
        let last = len - 1;
        name[0] as u64 | (name[middle] as u64) << (8 * middle) | (name[last] as u64) << (8 * last)
    };
    word | SMALL
}

#[inline]
const fn bucket_of(word: u64, len: usize) -> usize {
    let hash = (word ^ (len as u64) << 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (64 - BUCKETS.ilog2())) as usize
}

/// The place of a command in [`COMMANDS`], whatever the case of its name.
#[inline]
pub fn place_of(name: &[u8]) -> Option<usize> {
    const NAME_BYTES_MAX: usize = 32;
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        return None;
    }
    let word = small_word(name);
    let mut bucket = bucket_of(word, name.len());
    loop {
        let entry = INDEX[bucket];
        if entry.len == 0 {
            return None;
        }
        let place = usize::from(entry.place);
        if entry.word == word
            && usize::from(entry.len) == name.len()
            && (entry.is_told_by_word || COMMANDS[place].name.as_bytes().eq_ignore_ascii_case(name))
        {
            return Some(place);
        }
        bucket = (bucket + 1) % BUCKETS;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a search through all names.
    fn check(name: &[u8]) {
        let searched = COMMANDS.iter().position(|command| command.name.as_bytes().eq_ignore_ascii_case(name));
        assert_eq!(place_of(name), searched, "{}", name.escape_ascii());
    }

    #[test]
    fn every_command_is_found_in_any_case_and_nothing_else_is() {
        for (place, command) in COMMANDS.iter().enumerate() {
            let name = command.name.as_bytes();
            assert_eq!(place_of(name), Some(place), "{}", command.name);
            assert_eq!(place_of(&name.to_ascii_uppercase()), Some(place), "{}", command.name);
            // A changed bit makes the name of another command, or of none, or another case.
            for (at, bit) in (0..name.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut other = name.to_vec();
                other[at] ^= 1 << bit;
                check(&other);
            }
            check(&[name, b"x"].concat());
            check(&name[..name.len() - 1]);
        }
        assert_eq!(place_of(b""), None);
        assert_eq!(place_of(&[b'x'; 33]), None);
    }
}
