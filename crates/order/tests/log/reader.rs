//! The reader of segments is total.

use crate::virtual_disk::VirtualDisk;
use crate::{Source, open, options};
use order::{Disk, DiskFile, Tail, fuzz_log_reader};
use proptest::prelude::*;

/// The bytes of a sound segment.
fn segment() -> Vec<u8> {
    let disk = VirtualDisk::new(1);
    let mut log = open(&disk, options(20_000)).unwrap().log;
    let mut source = Source::new(1, Tail::ORIGIN);
    let mut records = Vec::new();
    for _ in 0..20 {
        source.batch(&mut records);
    }
    log.append(&mut records).unwrap();
    let file = disk.open(&disk.list().unwrap()[0]).unwrap();
    let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

#[test]
fn sound_segments_are_read_to_their_ends() {
    // Once as it is, and once more with its checksums made anew.
    assert_eq!(fuzz_log_reader(&segment()), 2 * 20);
    assert_eq!(fuzz_log_reader(&crate::journal::segment()), 2 * 20);
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
        journal in any::<bool>(),
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>(), 1..20usize), 0..6),
        len in any::<proptest::sample::Index>(),
        moved in any::<Option<(proptest::sample::Index, proptest::sample::Index, u8)>>(),
    ) {
        let mut bytes = if journal { crate::journal::segment() } else { segment() };
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
