//! Damage to what was durable is refused, and so is the directory of a log with another content.

use super::{Source, State, open};
use crate::virtual_disk::VirtualDisk;
use crate::{Source as Batches, options};
use order::{Content, Disk, DiskFile, Journal, OpenError, Tail};
use std::sync::Arc;

const SEGMENT_BYTES: u64 = 6_000;

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
    journal.sync().unwrap();
    (disk, state)
}

fn segments(disk: &VirtualDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names.sort();
    names
}

fn contents(disk: &VirtualDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.sort();
    let read = |name: String| {
        let file = disk.open(&name).unwrap();
        let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
        assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
        (name, bytes)
    };
    names.into_iter().map(read).collect()
}

#[test]
fn every_flipped_bit_of_a_journal_is_refused() {
    let (disk, state) = filled(3);
    let files = contents(&disk);
    let mut tried = 0;
    for (index, (name, bytes)) in files.iter().enumerate() {
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
        // The last record is the marker: whose loss loses nothing.
        let marker = if index + 1 == files.len() { 72 } else { 0 };
        let data = (0..64).chain(4096..used.next_multiple_of(8) - marker);
        for offset in data {
            let bit = (offset % 8) as u8;
            disk.flip_bit(name, offset, bit);
            let error = open(&disk, SEGMENT_BYTES, 1).err();
            let error = error.unwrap_or_else(|| panic!("bit {bit} of byte {offset} of {name}"));
            assert!(
                matches!(error, OpenError::Corrupt { content: Content::Groups, .. }),
                "bit {bit} of byte {offset} of {name}: {error}"
            );
            let text = error.to_string();
            assert!(text.contains("replace this node") && text.contains("(record "), "{text}");
            disk.flip_bit(name, offset, bit);
            tried += 1;
        }
    }
    assert!(tried > 3_000);
    assert_eq!(open(&disk, SEGMENT_BYTES, 1).unwrap().state, state);
}

#[test]
fn missing_segments_of_a_journal_are_refused() {
    let (disk, _) = filled(4);
    let names = segments(&disk);
    for missing in [&names[..1], &names[1..2], &names[..3]] {
        let copy = disk.copy_of_durable(1);
        for name in missing {
            copy.remove(name).unwrap();
        }
        let before = contents(&copy);
        let error = open(&copy, SEGMENT_BYTES, 1).err().unwrap();
        assert!(error.to_string().contains("replace this node"), "{missing:?}: {error}");
        assert!(contents(&copy) == before);
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
        let accepts = |partition, _: &order::consensus::Base| partition != refused;
        let error = Journal::open_if(Arc::new(disk.clone()), 1 << 20, 8, &accepts).err().unwrap();
        assert!(matches!(error, OpenError::NotAccepted { partition } if partition == refused), "{error}");
        assert!(contents(&disk) == before);
    }
    let accepts = |partition, base: &order::consensus::Base| state[&partition].base == *base;
    let (_, found, report) =
        Journal::open_if(Arc::new(disk.clone()), 1 << 20, 8, &accepts).expect("it is accepted");
    assert!(found == state && report.cut.is_some() && !groups.is_empty(), "{report:?}");
}

#[test]
fn a_log_of_batches_and_a_journal_are_not_taken_for_each_other() {
    let (journal, _) = filled(5);
    // A truncated one as well, which lacks the first positions.
    let truncated = journal.copy_of_durable(1);
    truncated.remove(&segments(&truncated)[0]).unwrap();
    for disk in [journal, truncated] {
        disk.create("prepared-00000000000000000007.ordo", 10).unwrap();
        let before = contents(&disk);
        let error = crate::open(&disk, options(SEGMENT_BYTES)).err().unwrap();
        assert!(matches!(error, OpenError::Content { .. }), "{error}");
        assert!(
            error.to_string().contains("belongs to a node's journal, and this start needs an older version"),
            "{error}"
        );
        assert!(contents(&disk) == before);
    }

    let disk = VirtualDisk::new(6);
    let mut log = crate::open(&disk, options(SEGMENT_BYTES)).unwrap().log;
    let mut records = Vec::new();
    Batches::new(6, Tail::ORIGIN).batch(&mut records);
    log.append(&mut records).unwrap();
    let before = contents(&disk);
    let error = open(&disk, SEGMENT_BYTES, 1).err().unwrap();
    assert!(matches!(error, OpenError::Content { .. }), "{error}");
    assert!(contents(&disk) == before);
}

#[test]
fn a_segment_with_another_content_in_between_is_refused() {
    let (disk, _) = filled(7);
    let names = segments(&disk);
    let other = VirtualDisk::new(7);
    drop(crate::open(&other, options(SEGMENT_BYTES)).unwrap());
    let (_, bytes) = contents(&other).remove(0);
    let file = disk.open(&names[2]).unwrap();
    file.write_at(0, &bytes).unwrap();
    let error = open(&disk, SEGMENT_BYTES, 1).err().unwrap();
    assert!(matches!(&error, OpenError::Content { name, .. } if *name == names[2]), "{error}");
}

#[test]
fn a_journal_that_vanished_is_reported_as_new() {
    let disk = VirtualDisk::new(8);
    let opened = open(&disk, SEGMENT_BYTES, 1).unwrap();
    assert!(opened.report.created && opened.state.is_empty());
    assert_eq!(opened.report.to_string(), "began a new log at record 1");
    drop(opened);
    let opened = open(&disk, SEGMENT_BYTES, 1).unwrap();
    assert!(!opened.report.created && opened.state.is_empty());
    assert_eq!(
        opened.report.to_string(),
        "replayed 0 records from 1 journal segments; the journal ends at record 0"
    );
}
