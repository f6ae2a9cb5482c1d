//! Finding a command by its name: one hash and one comparison, without allocation, whatever the case.

use super::command::Command;
use super::entries::COMMANDS;

const BUCKETS: usize = 512;
const EMPTY: u16 = u16::MAX;

const _: () = assert!(COMMANDS.len() * 2 < BUCKETS, "the index must stay sparse: double BUCKETS");

/// Open addressing from the hash of a lower-case name to its place in [`COMMANDS`], built by the compiler.
static INDEX: [u16; BUCKETS] = {
    let mut index = [EMPTY; BUCKETS];
    let mut place = 0;
    while place < COMMANDS.len() {
        let mut bucket = bucket_of(COMMANDS[place].name.as_bytes());
        while index[bucket] != EMPTY {
            bucket = (bucket + 1) % BUCKETS;
        }
        index[bucket] = place as u16;
        place += 1;
    }
    index
};

/// FNV-1a over the lower-case bytes.
const fn bucket_of(name: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < name.len() {
        hash = (hash ^ name[at].to_ascii_lowercase() as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    (hash ^ (hash >> 32)) as usize % BUCKETS
}

/// The place of a command in [`COMMANDS`], whatever the case of its name.
pub fn place_of(name: &[u8]) -> Option<usize> {
    const NAME_BYTES_MAX: usize = 32;
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let mut bucket = bucket_of(name);
    loop {
        let place = usize::from(INDEX[bucket]);
        let command: &Command = COMMANDS.get(place)?;
        if command.name.as_bytes().eq_ignore_ascii_case(name) {
            return Some(place);
        }
        bucket = (bucket + 1) % BUCKETS;
    }
}
