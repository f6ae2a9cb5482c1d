//! The reader of segments is total.

use crate::virtual_disk::VirtualDisk;
use crate::{Source, State, open, read, segments};
use log::fuzz_log_reader;
use proptest::prelude::*;
use txn::Position;

/// The bytes of a sound segment with 20 records.
fn segment() -> Vec<u8> {
    let disk = VirtualDisk::new(2);
    let mut journal = open(&disk, 40_000, 7).unwrap().journal;
    let mut source = Source::new(2);
    let mut state = State::new();
    while journal.status().last < Position(20) {
        let round = source.round(&state);
        round.append(&mut journal).unwrap();
        state = round.apply(&state);
    }
    assert_eq!(journal.status().segments, 1);
    read(&disk, &segments(&disk)[0])
}

#[test]
fn sound_segments_are_read_to_their_ends() {
    // Once as it is, and once more with its checksums made anew.
    assert_eq!(fuzz_log_reader(&segment()), 2 * 20);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..6_000)) {
        fuzz_log_reader(&bytes);
    }

    #[test]
    fn mutated_segments_are_read_without_a_panic(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 1..20usize), 0..6),
        len in any::<proptest::sample::Index>(),
        moved in any::<Option<(proptest::sample::Index, proptest::sample::Index, u8)>>(),
    ) {
        let mut bytes = segment();
        for (at, byte, count) in edits {
            let at = at.index(bytes.len());
            let end = (at + count).min(bytes.len());
            bytes[at..end].fill(byte);
        }
        if let Some((from, to, count)) = moved {
            let (from, count) = (from.index(bytes.len()), usize::from(count));
            let to = to.index(bytes.len());
            let count = count.min(bytes.len() - from.max(to));
            bytes.copy_within(from..from + count, to);
        }
        bytes.truncate(len.index(bytes.len() + 1));
        fuzz_log_reader(&bytes);
    }
}
