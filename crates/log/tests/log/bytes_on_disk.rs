//! What a journal of format version 1 looks like on a disk, byte by byte, as `docs/log-format.md` has it. A
//! change of these bytes is a new format version: the journals that exist must stay readable.

use crate::virtual_disk::VirtualDisk;
use crate::{Round, State, base, contents, entry, hard_state, open};
use log::{Base, Disk, DiskFile, Entry, EntryKind, Kept, Members};
use txn::{NodeId, PartitionId};

const SEGMENT_BYTES: u64 = 4_568;

/// The offset of a row of eight bytes, and these bytes as they are read from left to right. All rows that are
/// not here hold zeros.
type Rows = &'static [(usize, u64)];

/// Magic, version and checksum, boot id, length.
const HEADER: Rows = &[
    (0, 0x4f52_444f_4a4e_4c00),
    (8, 0x0100_0000_a43a_4d67),
    (16, 0x0700_0000_0000_0000),
    (24, 0xd811_0000_0000_0000),
];

/// The opening marker, two records and a marker.
const FIRST: Rows = &[
    (4096, 0x7098_22f8_4800_0000),
    (4104, 0x0000_0000_0200_0000),
    (4128, 0x0100_0000_0000_0000),
    (4144, 0x0100_0000_0000_0000),
    (4152, 0x0010_0000_0000_0000),
    // Record 1.
    (4168, 0x887c_a2df_8000_0000),
    (4176, 0xa80f_ad7a_0300_0000),
    (4184, 0x0100_0000_0000_0000),
    (4192, 0x0100_0000_0000_0000),
    (4200, 0x0100_0000_0000_0000),
    (4216, 0x0100_0000_0000_0000),
    (4224, 0x4810_0000_0000_0000),
    (4232, 0xa918_ad02_f73b_2ba9),
    (4240, 0x0101_0203_070a_0102),
    (4248, 0x0102_0001_ac02_0000),
    (4256, 0x0b73_7461_7465_2061),
    (4264, 0x7420_3130_020b_0200),
    (4272, 0x0665_6c65_7665_6e02),
    (4280, 0x0100_0202_0b00_0001),
    (4288, 0x0101_0003_6f6e_6500),
    // Record 2.
    (4296, 0x5a53_aa4d_5800_0000),
    (4304, 0x7938_5461_0300_0000),
    (4312, 0x0100_0000_0000_0000),
    (4320, 0x0200_0000_0000_0000),
    (4328, 0x0200_0000_0000_0000),
    (4344, 0x0100_0000_0000_0000),
    (4352, 0xc810_0000_0000_0000),
    (4360, 0xd77f_3c72_d4f9_06df),
    (4368, 0x0101_0100_0400_0502),
    (4376, 0x0100_0000_0000_0000),
    // The marker.
    (4384, 0x8620_c14d_4800_0000),
    (4392, 0x0000_0000_0200_0000),
    (4408, 0x0200_0000_0000_0000),
    (4416, 0x0300_0000_0000_0000),
    (4432, 0x0100_0000_0000_0000),
    (4440, 0x2011_0000_0000_0000),
    (4448, 0xd77f_3c72_d4f9_06df),
];

/// The opening marker, and record 3.
const SECOND: Rows = &[
    (4096, 0xff8a_fbfa_4800_0000),
    (4104, 0x0000_0000_0200_0000),
    (4120, 0x0200_0000_0000_0000),
    (4128, 0x0300_0000_0000_0000),
    (4144, 0x0100_0000_0000_0000),
    (4152, 0x2011_0000_0000_0000),
    (4160, 0xd77f_3c72_d4f9_06df),
    (4168, 0x2258_bf3f_b800_0000),
    (4176, 0xba97_ab34_0300_0000),
    (4184, 0x0100_0000_0000_0000),
    (4192, 0x0300_0000_0000_0000),
    (4200, 0x0300_0000_0000_0000),
    (4216, 0x0100_0000_0000_0000),
    (4224, 0x2011_0000_0000_0000),
    (4232, 0xb204_469e_1f77_fe40),
    (4240, 0x0101_0103_0001_0d02),
    (4248, 0x0064_abab_abab_abab),
    (4256, 0xabab_abab_abab_abab),
    (4264, 0xabab_abab_abab_abab),
    (4272, 0xabab_abab_abab_abab),
    (4280, 0xabab_abab_abab_abab),
    (4288, 0xabab_abab_abab_abab),
    (4296, 0xabab_abab_abab_abab),
    (4304, 0xabab_abab_abab_abab),
    (4312, 0xabab_abab_abab_abab),
    (4320, 0xabab_abab_abab_abab),
    (4328, 0xabab_abab_abab_abab),
    (4336, 0xabab_abab_abab_abab),
    (4344, 0xabab_abab_abab_0000),
];

fn segment(rows: Rows) -> Vec<u8> {
    let mut bytes = vec![0; SEGMENT_BYTES as usize];
    for &(offset, row) in HEADER.iter().chain(rows) {
        bytes[offset..offset + 8].copy_from_slice(&row.to_be_bytes());
    }
    bytes
}

fn rounds() -> [Round; 3] {
    let members =
        Members { voters: vec![NodeId(1), NodeId(2)], learners: vec![NodeId(300)], ..Members::default() };
    let whole = Kept {
        base: Some(Base { members, ..base(10) }),
        reset: true,
        entries: vec![entry(11, 2, b"eleven"), Entry { kind: EntryKind::Membership, ..entry(12, 2, b"") }],
        hard_state: Some(hard_state(2, 11)),
        ..Kept::nothing(PartitionId(3))
    };
    let entries = Kept { entries: vec![entry(1, 1, b"one")], ..Kept::nothing(PartitionId(0)) };
    let vote = Kept { hard_state: Some(hard_state(5, 1)), ..Kept::nothing(PartitionId(0)) };
    let long = Kept { entries: vec![entry(13, 2, &[0xab; 100])], ..Kept::nothing(PartitionId(3)) };
    [Round(vec![whole, entries]), Round(vec![vote]), Round(vec![long])]
}

fn files() -> [(String, Vec<u8>); 2] {
    let names = ["log-00000000000000000001.ordo", "log-00000000000000000003.ordo"];
    let [first, second] = names.map(str::to_owned);
    [(first, segment(FIRST)), (second, segment(SECOND))]
}

#[test]
fn a_journal_is_written_as_before() {
    let disk = VirtualDisk::new(1);
    let mut journal = open(&disk, SEGMENT_BYTES, 7).unwrap().journal;
    let [first, second, third] = rounds();
    for round in [first, second] {
        round.append(&mut journal).unwrap();
        journal.sync().unwrap();
    }
    assert!(journal.write_marker().unwrap());
    assert!(third.append(&mut journal).unwrap().rotated);
    for ((name, bytes), (expected_name, expected)) in contents(&disk).into_iter().zip(files()) {
        assert_eq!((&name, bytes.len()), (&expected_name, expected.len()));
        for (index, (row, expected)) in bytes.chunks(8).zip(expected.chunks(8)).enumerate() {
            assert_eq!(row, expected, "byte {} of {name}", index * 8);
        }
    }
    assert_eq!(journal.segment_names(), files().map(|(name, _)| name));
}

#[test]
fn a_journal_that_was_written_before_is_read() {
    let disk = VirtualDisk::new(2);
    for (name, bytes) in files() {
        let file = disk.create(&name, SEGMENT_BYTES).unwrap();
        file.write_at(0, &bytes).unwrap();
        file.sync().unwrap();
    }
    let opened = open(&disk, SEGMENT_BYTES, 8).unwrap();
    let state = rounds().iter().fold(State::new(), |state, round| round.apply(&state));
    assert_eq!(opened.state, state);
    assert_eq!(opened.report.cut, None);
}
