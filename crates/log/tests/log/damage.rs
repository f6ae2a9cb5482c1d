//! Damage to what was durable is refused, whatever and wherever it is, and so is what an older version wrote.

use crate::virtual_disk::{SECTOR_BYTES, VirtualDisk};
use crate::{Round, Source, State, contents, entry, open, overwrite, read, segments};
use log::{Disk, DiskFile, Journal, Kept, OpenError, Problem};
use std::sync::Arc;
use txn::PartitionId;

const SEGMENT_BYTES: u64 = 6_000;
/// A marker's length.
const MARKER_BYTES: usize = 72;

/// A journal of several segments, all durable, that ends with a durable marker.
fn filled(seed: u64) -> (VirtualDisk, State) {
    let disk = VirtualDisk::new(seed);
    let mut journal = open(&disk, SEGMENT_BYTES, seed).unwrap().journal;
    let mut source = Source::new(seed);
    let mut state = State::new();
    while journal.status().segments < 4 {
        let round = source.round(&state);
        round.append(&mut journal).unwrap();
        state = round.apply(&state);
        journal.sync().unwrap();
    }
    assert!(journal.write_marker().unwrap());
    assert!(!journal.write_marker().unwrap(), "there is nothing new to claim");
    journal.sync().unwrap();
    assert!(!journal.write_marker().unwrap(), "a marker is no reason for a marker");
    (disk, state)
}

/// How many bytes of a segment hold something that must not be lost: all up to its last record, without the
/// marker at the journal's end.
fn data_bytes(bytes: &[u8], is_last: bool) -> usize {
    let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    if is_last { used.next_multiple_of(8) - MARKER_BYTES } else { used }
}

/// Opening must fail with a text that tells what to do.
fn open_error(disk: &VirtualDisk, damage: &str) -> OpenError {
    let error = match open(disk, SEGMENT_BYTES, 1) {
        Err(error) => error,
        Ok(opened) => panic!("{damage} was not noticed: {}", opened.report),
    };
    let text = error.to_string();
    assert!(text.contains("log-") && text.contains("replace this node"), "{damage}: {text}");
    error
}

/// As [`open_error`], and it must change nothing.
fn refuse(disk: &VirtualDisk, damage: &str) -> OpenError {
    let before = contents(disk);
    let error = open_error(disk, damage);
    assert!(contents(disk) == before, "{damage}: the refusal changed something");
    error
}

#[test]
fn every_flipped_bit_is_refused() {
    let (disk, state) = filled(3);
    let files = contents(&disk);
    let mut tried = 0;
    for (index, (name, bytes)) in files.iter().enumerate() {
        let is_last = index + 1 == files.len();
        let data = data_bytes(bytes, is_last);
        for offset in 0..data {
            // The header's padding is a long row of zeros, all under one checksum.
            let bits = if (64..4096).contains(&offset) { 0..u8::from(offset % 16 == 0) } else { 0..8 };
            for bit in bits {
                disk.flip_bit(name, offset as u64, bit);
                let error = open_error(&disk, &format!("bit {bit} of byte {offset} of {name}"));
                let is_corrupt = matches!(error, OpenError::Corrupt { .. });
                assert!(is_corrupt, "bit {bit} of byte {offset} of {name}: {error}");
                disk.flip_bit(name, offset as u64, bit);
                tried += 1;
            }
        }
        for offset in data..if is_last { bytes.len() } else { 0 } {
            let copy = disk.copy_of_durable(1);
            copy.flip_bit(name, offset as u64, 5);
            let opened = open(&copy, SEGMENT_BYTES, 1).unwrap();
            assert_eq!(opened.state, state, "byte {offset} of {name}, behind the data");
        }
    }
    assert!(tried > 10_000);
    assert_eq!(open(&disk, SEGMENT_BYTES, 1).unwrap().state, state);
}

#[test]
fn a_durable_sector_that_reads_as_zeros_is_refused() {
    let (disk, _) = filled(4);
    let names = segments(&disk);
    for (index, name) in names.iter().enumerate() {
        let bytes = read(&disk, name);
        let data = data_bytes(&bytes, index + 1 == names.len());
        for start in (0..data).step_by(SECTOR_BYTES) {
            let end = (start + SECTOR_BYTES).min(bytes.len());
            if bytes[start..end].iter().all(|&byte| byte == 0) {
                continue;
            }
            let copy = disk.copy_of_durable(1);
            // The marker stays, which claims the rest.
            overwrite(&copy, name, start as u64, &[0; SECTOR_BYTES][..end.min(data) - start]);
            refuse(&copy, &format!("a lost sector at byte {start} of {name}"));
        }
    }
}

#[test]
fn missing_swapped_and_shortened_segments_are_refused() {
    let (disk, _) = filled(5);
    let names = segments(&disk);

    for (missing, expected) in [
        (&names[1..2], Some(Problem::Missing)),
        (&names[1..3], Some(Problem::Missing)),
        (&names[..1], None),
        (&names[..3], None),
    ] {
        let copy = disk.copy_of_durable(1);
        for name in missing {
            copy.remove(name).unwrap();
        }
        match (refuse(&copy, "a missing segment"), expected) {
            (OpenError::Corrupt { problem, .. }, Some(expected)) if problem == expected => {}
            // Entries that follow on nothing are seen before the end is.
            (OpenError::BeginsTooLate { .. } | OpenError::Corrupt { .. }, None) => {}
            (error, _) => panic!("{missing:?}: {error}"),
        }
    }

    let copy = disk.copy_of_durable(1);
    copy.rename(&names[1], "aside").unwrap();
    copy.rename(&names[2], &names[1]).unwrap();
    copy.rename("aside", &names[2]).unwrap();
    refuse(&copy, "two swapped segments");

    // The newest one too, wherever it is cut: a crash never shortens a file, so this is no torn tail.
    for (name, len_bytes) in
        names.iter().flat_map(|name| [4096, 4168, 4200, SEGMENT_BYTES - 1].map(|len| (name, len)))
    {
        let copy = disk.copy_of_durable(1);
        let bytes = read(&copy, name);
        copy.remove(name).unwrap();
        let file = copy.create(name, 0).unwrap();
        file.write_at(0, &bytes[..len_bytes as usize]).unwrap();
        file.sync().unwrap();
        let error = refuse(&copy, "a shortened segment");
        let shortened = matches!(
            &error,
            OpenError::Corrupt { problem: Problem::Shortened, address, .. } if address.offset == len_bytes
        );
        assert!(shortened, "{name} cut to {len_bytes} bytes: {error}");
    }

    let copy = disk.copy_of_durable(1);
    copy.remove(&names[1]).unwrap();
    copy.create(&names[1], 0).unwrap();
    refuse(&copy, "an empty segment");
}

#[test]
fn a_segment_of_another_journal_is_refused() {
    let (disk, _) = filled(6);
    let (other, _) = filled(7);
    let first = &segments(&disk)[0];
    assert_eq!(*first, segments(&other)[0]);
    let mut bytes = read(&other, first);
    bytes.resize(read(&disk, first).len(), 0);
    overwrite(&disk, first, 0, &bytes);
    refuse(&disk, "another journal's segment");
}

#[test]
fn an_error_tells_the_first_record_that_cannot_be_read() {
    let (disk, _) = filled(8);
    let name = &segments(&disk)[2];
    disk.flip_bit(name, 4_200, 1);
    let error = refuse(&disk, "a flipped bit");
    let OpenError::Corrupt { address, record, .. } = &error else { panic!("{error}") };
    assert_eq!((address.offset, *record), (4_168, address.segment));
    assert_eq!(*name, format!("log-{:020}.ordo", record.0));
    let text = error.to_string();
    assert!(text.contains(&format!("{name} is damaged at byte 4168 (record {record}): ")), "{text}");
}

/// The header that a version of Ordo writes into a segment.
fn header(magic: &[u8; 8], version: u32) -> Vec<u8> {
    let mut header = vec![0; 4096];
    header[..8].copy_from_slice(magic);
    header[8..12].copy_from_slice(&version.to_le_bytes());
    header[16] = 7;
    header[24..32].copy_from_slice(&SEGMENT_BYTES.to_le_bytes());
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..12]);
    crc.update(&header[16..]);
    header[12..16].copy_from_slice(&crc.finalize().to_le_bytes());
    header
}

#[test]
fn a_later_format_is_named_and_not_touched() {
    let (disk, _) = filled(9);
    overwrite(&disk, &segments(&disk)[0], 0, &header(b"ORDOJNL\0", 9));
    let before = contents(&disk);
    let error = open(&disk, SEGMENT_BYTES, 1).err().unwrap();
    assert!(error.to_string().contains("format version 9"), "{error}");
    assert!(contents(&disk) == before);
}

/// A server that stands alone once kept a log of another kind in files of these names. It is told from a
/// damaged journal, wherever such a file is, also where older ones were removed.
#[test]
fn what_an_older_version_wrote_is_named_and_not_touched() {
    let (disk, _) = filled(10);
    let names = segments(&disk);
    let older = |disk: &VirtualDisk, name: &str| overwrite(disk, name, 0, &header(b"ORDOLOG\0", 1));
    let whole = disk.copy_of_durable(1);
    names.iter().for_each(|name| older(&whole, name));
    let truncated = whole.copy_of_durable(1);
    truncated.remove(&names[0]).unwrap();
    let between = disk.copy_of_durable(1);
    older(&between, &names[2]);
    for (disk, name) in [(&whole, &names[0]), (&truncated, &names[1]), (&between, &names[2])] {
        disk.create("prepared-00000000000000000007.ordo", 10).unwrap();
        let before = contents(disk);
        let error = open(disk, SEGMENT_BYTES, 1).err().unwrap();
        assert!(matches!(&error, OpenError::Older { name: found } if found == name), "{error}");
        let text = error.to_string();
        assert!(text.contains(&format!("{name} belongs to an older version of Ordo")), "{text}");
        assert!(text.contains("with the version of Ordo that wrote it"), "{text}");
        assert!(contents(disk) == before);
    }
    // Such a header that is damaged says nothing.
    whole.flip_bit(&names[0], 30, 1);
    let error = refuse(&whole, "a damaged header");
    assert!(matches!(error, OpenError::Corrupt { problem: Problem::Header, .. }), "{error}");
}

#[test]
fn a_journal_that_vanished_is_reported_as_new() {
    let disk = VirtualDisk::new(8);
    let opened = open(&disk, SEGMENT_BYTES, 1).unwrap();
    assert!(opened.report.created && opened.state.is_empty());
    assert_eq!(opened.report.to_string(), "began a new journal at record 1");
    drop(opened);
    let opened = open(&disk, SEGMENT_BYTES, 1).unwrap();
    assert!(!opened.report.created && opened.state.is_empty());
    assert_eq!(
        opened.report.to_string(),
        "replayed 0 records from 1 journal segments; the journal ends at record 0"
    );
}

/// A round with one entry.
fn one_entry(index: u64, data: &[u8]) -> Round {
    Round(vec![Kept { entries: vec![entry(index, 1, data)], ..Kept::nothing(PartitionId(1)) }])
}

#[test]
fn a_restart_claims_what_it_found() {
    let disk = VirtualDisk::new(11);
    let mut journal = open(&disk, SEGMENT_BYTES, 1).unwrap().journal;
    one_entry(1, &[7; 100]).append(&mut journal).unwrap();
    journal.sync().unwrap();
    drop(journal);
    open(&disk, SEGMENT_BYTES, 2).unwrap();
    disk.crash();
    disk.flip_bit(&segments(&disk)[0], 4096 + 72 + 30, 1);
    refuse(&disk, "a flipped bit in the last record before a restart");
}

/// Clients choose what records hold: a payload full of copies of real records, durability claims included,
/// must not turn a torn tail into corruption.
#[test]
fn bytes_that_clients_choose_prove_nothing() {
    let (disk, _) = filled(12);
    let mut copies = Vec::new();
    for name in segments(&disk) {
        copies.extend_from_slice(&read(&disk, &name)[4096..]);
    }
    for shift in 0..8 {
        let disk = VirtualDisk::new(shift);
        let mut journal = open(&disk, 100_000, 1).unwrap().journal;
        let first = one_entry(1, b"first");
        first.append(&mut journal).unwrap();
        let torn_at = journal.status().current_bytes;
        one_entry(2, &copies[shift as usize..]).append(&mut journal).unwrap();
        drop(journal);
        overwrite(&disk, &segments(&disk)[0], torn_at, &[0; 16]);
        let opened = open(&disk, 100_000, 2).unwrap();
        assert_eq!(opened.state, first.apply(&State::new()));
        let cut = opened.report.cut.unwrap();
        assert_eq!((cut.address.offset, cut.record.0), (torn_at, 2));
    }
}

#[test]
fn a_journal_that_is_not_accepted_stays_as_it_is_with_its_torn_tail() {
    let disk = VirtualDisk::new(7);
    let mut journal = open(&disk, 1 << 20, 7).unwrap().journal;
    let mut source = Source::new(7);
    let round = source.round(&State::new());
    round.append(&mut journal).unwrap();
    journal.sync().unwrap();
    let state = round.apply(&State::new());
    let end = journal.status().current_bytes;
    source.round(&state).append(&mut journal).unwrap();
    drop(journal);
    disk.open(&segments(&disk)[0]).unwrap().write_at(end, &[7; 8]).unwrap();
    disk.create("prepared-00000000000000000007.ordo", 10).unwrap();

    let before = contents(&disk);
    let groups: Vec<_> = state.keys().copied().collect();
    for &refused in &groups {
        let accepts = |partition, _: &log::Base| partition != refused;
        let error = Journal::open_if(Arc::new(disk.clone()), 1 << 20, 8, &accepts).err().unwrap();
        assert!(matches!(error, OpenError::NotAccepted { partition } if partition == refused), "{error}");
        assert!(contents(&disk) == before);
    }
    // A reader that may not repair it is told the same, and changes nothing, either.
    let (found, told) = Journal::read(&disk).expect("it is whole");
    assert!(found == state && told.cut.is_some() && contents(&disk) == before, "{told:?}");
    let accepts = |partition, base: &log::Base| state[&partition].base == *base;
    let (_, found, report) =
        Journal::open_if(Arc::new(disk.clone()), 1 << 20, 8, &accepts).expect("it is accepted");
    assert!(found == state && report == told && !groups.is_empty(), "{report:?}");
}

#[test]
fn reading_refuses_what_opening_refuses_and_makes_no_journal() {
    let (disk, state) = filled(5);
    assert_eq!(Journal::read(&disk).expect("it is whole").0, state);
    let name = &segments(&disk)[1];
    overwrite(&disk, name, 4096 + 100, &[0xff; 8]);
    let before = contents(&disk);
    assert!(matches!(Journal::read(&disk), Err(OpenError::Corrupt { .. })));
    assert!(contents(&disk) == before);
    let disk = VirtualDisk::new(6);
    let (found, report) = Journal::read(&disk).expect("there is none");
    assert!(found.is_empty() && report.created && contents(&disk).is_empty());
}
