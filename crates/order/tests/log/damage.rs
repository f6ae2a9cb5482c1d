//! Damage to what was durable is refused, whatever and wherever it is.

use crate::virtual_disk::{SECTOR_BYTES, VirtualDisk};
use crate::{Seen, Source, open, options};
use order::{Disk, DiskFile, OpenError, Problem, Tail};

const SEGMENT_BYTES: u64 = 6_000;

/// A log of several segments, all durable, that ends with a durable marker.
fn filled(seed: u64) -> (VirtualDisk, Vec<Seen>) {
    let disk = VirtualDisk::new(seed);
    let mut log = open(&disk, options(SEGMENT_BYTES)).unwrap().log;
    let mut source = Source::new(seed, Tail::ORIGIN);
    let mut batches = Vec::new();
    while log.status().segments < 4 {
        let mut records = Vec::new();
        batches.push(source.batch(&mut records));
        log.append(&mut records).unwrap();
        log.sync().unwrap();
    }
    assert!(log.write_marker().unwrap());
    assert!(!log.write_marker().unwrap(), "there is nothing new to claim");
    log.sync().unwrap();
    assert!(!log.write_marker().unwrap(), "a marker is no reason for a marker");
    (disk, batches)
}

fn names(disk: &VirtualDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.sort();
    names
}

fn len_bytes(disk: &VirtualDisk, name: &str) -> u64 {
    disk.open(name).unwrap().len_bytes().unwrap()
}

fn read(disk: &VirtualDisk, name: &str) -> Vec<u8> {
    let file = disk.open(name).unwrap();
    let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn overwrite(disk: &VirtualDisk, name: &str, offset: u64, bytes: &[u8]) {
    let file = disk.open(name).unwrap();
    file.write_at(offset, bytes).unwrap();
    file.sync().unwrap();
}

/// Opening must fail with a text that tells what to do, and must change nothing.
fn refuse(disk: &VirtualDisk, damage: &str) -> OpenError {
    let before: Vec<(String, Vec<u8>)> =
        names(disk).into_iter().map(|name| (name.clone(), read(disk, &name))).collect();
    let error = match open(disk, options(SEGMENT_BYTES)) {
        Err(error) => error,
        Ok(opened) => panic!("{damage} was not noticed: {}", opened.report),
    };
    for (name, bytes) in before {
        assert!(read(disk, &name) == bytes, "{damage}: the refusal changed {name}");
    }
    let text = error.to_string();
    assert!(text.contains("log-") && text.contains("Restore"), "{damage}: {text}");
    error
}

#[test]
fn every_flipped_bit_is_refused() {
    let (disk, batches) = filled(3);
    let names = names(&disk);
    let mut tried = 0;
    for (index, name) in names.iter().enumerate() {
        let bytes = read(&disk, name);
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64 + 1;
        // The last record is the marker: whose loss loses nothing.
        let last = index + 1 == names.len();
        let data = if last { used.next_multiple_of(8) - 72 } else { used };
        for offset in 0..data {
            // The header's padding is a long row of zeros, all under one checksum.
            let bits = if (64..4096).contains(&offset) { 0..u8::from(offset % 16 == 0) } else { 0..8 };
            for bit in bits {
                disk.flip_bit(name, offset, bit);
                let error = match open(&disk, options(SEGMENT_BYTES)) {
                    Err(error) => error,
                    Ok(opened) => panic!("bit {bit} of byte {offset} of {name}: {}", opened.report),
                };
                assert!(
                    matches!(error, OpenError::Corrupt { .. }),
                    "bit {bit} of byte {offset} of {name}: {error}"
                );
                disk.flip_bit(name, offset, bit);
                tried += 1;
            }
        }
        for offset in data..if last { bytes.len() as u64 } else { 0 } {
            let copy = disk.copy_of_durable(1);
            copy.flip_bit(name, offset, 5);
            let opened = open(&copy, options(SEGMENT_BYTES)).unwrap();
            assert_eq!(opened.replayed, batches, "byte {offset} of {name}, behind the data");
        }
    }
    assert!(tried > 10_000);
    assert_eq!(open(&disk, options(SEGMENT_BYTES)).unwrap().replayed, batches);
}

#[test]
fn a_durable_sector_that_reads_as_zeros_is_refused() {
    let (disk, _) = filled(4);
    let names = names(&disk);
    for (index, name) in names.iter().enumerate() {
        let bytes = read(&disk, name);
        let used = bytes.iter().rposition(|&byte| byte != 0).unwrap() + 1;
        // The last sector of all holds the marker.
        let sectors = used.div_ceil(SECTOR_BYTES) - usize::from(index + 1 == names.len());
        for sector in 0..sectors {
            let start = sector * SECTOR_BYTES;
            let end = (start + SECTOR_BYTES).min(bytes.len());
            if bytes[start..end].iter().all(|&byte| byte == 0) {
                continue;
            }
            let copy = disk.copy_of_durable(1);
            overwrite(&copy, name, start as u64, &[0; SECTOR_BYTES][..end - start]);
            refuse(&copy, &format!("a lost sector at byte {start} of {name}"));
        }
    }
}

#[test]
fn missing_swapped_and_shortened_segments_are_refused() {
    let (disk, _) = filled(5);
    let names = names(&disk);

    let copy = disk.copy_of_durable(1);
    copy.remove(&names[1]).unwrap();
    let error = refuse(&copy, "a missing middle segment");
    assert!(matches!(error, OpenError::Corrupt { problem: Problem::Missing, .. }), "{error}");

    let copy = disk.copy_of_durable(1);
    copy.remove(&names[0]).unwrap();
    let error = refuse(&copy, "a missing first segment");
    assert!(matches!(error, OpenError::BeginsTooLate { .. }), "{error}");

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
fn a_segment_of_another_log_is_refused() {
    let (disk, _) = filled(6);
    let (other, _) = filled(7);
    let first = names(&disk)[0].clone();
    assert_eq!(first, names(&other)[0]);
    let copy = disk.copy_of_durable(1);
    let mut bytes = read(&other, &first);
    bytes.resize(len_bytes(&copy, &first) as usize, 0);
    overwrite(&copy, &first, 0, &bytes);
    refuse(&copy, "another log's segment");
}

#[test]
fn the_advice_against_corruption_works() {
    let (disk, batches) = filled(8);
    let names = names(&disk);
    disk.flip_bit(&names[2], 4_500, 1);
    let error = refuse(&disk, "a flipped bit");
    let OpenError::Corrupt { address, position, .. } = error else { panic!("{error}") };
    assert!(position >= address.segment);
    for name in &names[2..] {
        disk.remove(name).unwrap();
    }
    let opened = open(&disk, options(SEGMENT_BYTES)).unwrap();
    assert_eq!(opened.report.cut, None);
    assert_eq!(opened.log.tail().next, address.segment);
    assert_eq!(opened.replayed, batches[..opened.replayed.len()]);
}

#[test]
fn a_later_format_is_named_and_not_touched() {
    let (disk, _) = filled(9);
    let name = names(&disk)[0].clone();
    let mut header = read(&disk, &name)[..4096].to_vec();
    header[8] = 9;
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..12]);
    crc.update(&header[16..]);
    header[12..16].copy_from_slice(&crc.finalize().to_le_bytes());
    overwrite(&disk, &name, 0, &header);
    let error = open(&disk, options(SEGMENT_BYTES)).err().unwrap();
    assert!(error.to_string().contains("format version 9"), "{error}");
}

#[test]
fn a_procedure_that_nobody_registered_is_named() {
    let (disk, _) = filled(10);
    let opened =
        order::Log::open(disk.clone().into(), options(SEGMENT_BYTES), &txn::Registry::new(), &mut |_| {});
    let error = opened.err().unwrap();
    assert!(matches!(error, OpenError::Request { .. }), "{error}");
    assert!(error.to_string().contains("is not registered"), "{error}");
}

#[test]
fn a_restart_claims_what_it_found() {
    let disk = VirtualDisk::new(11);
    let mut log = open(&disk, options(SEGMENT_BYTES)).unwrap().log;
    let mut records = Vec::new();
    let mut source = Source::new(11, Tail::ORIGIN);
    let request = source.request(50);
    source.sequencer.sequence(vec![request], 5, &mut records).unwrap();
    log.append(&mut records).unwrap();
    log.sync().unwrap();
    drop(log);
    open(&disk, options(SEGMENT_BYTES)).unwrap();
    disk.crash();
    disk.flip_bit(&names(&disk)[0], 4096 + 72 + 30, 1);
    refuse(&disk, "a flipped bit in the last batch before a restart");
}

/// Clients choose what records hold: a payload full of copies of real records, durability claims included,
/// must not turn a torn tail into corruption.
#[test]
fn bytes_that_clients_choose_prove_nothing() {
    let (disk, _) = filled(12);
    let mut copies = Vec::new();
    for name in names(&disk) {
        copies.extend_from_slice(&read(&disk, &name)[4096..]);
    }
    for shift in 0..8 {
        let disk = VirtualDisk::new(shift);
        let mut log = open(&disk, options(100_000)).unwrap().log;
        let mut source = Source::new(shift, Tail::ORIGIN);
        let mut records = Vec::new();
        source.batch(&mut records);
        let torn_at = 4096 + 72 + records.len() as u64;
        let request = source.request_with([&copies[shift as usize..]]);
        source.sequencer.sequence(vec![request], 5, &mut records).unwrap();
        log.append(&mut records).unwrap();
        drop(log);
        overwrite(&disk, &names(&disk)[0], torn_at, &[0; 16]);
        let opened = open(&disk, options(100_000)).unwrap();
        assert_eq!(opened.replayed.len(), 1);
        assert_eq!(opened.report.cut.unwrap().address.offset, torn_at);
    }
}
