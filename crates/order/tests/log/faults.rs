//! Full disks, failing syncs, and threads.

use crate::virtual_disk::VirtualDisk;
use crate::{Seen, Source, open, options};
use order::{Disk, Log, LogOptions, Tail};
use std::io::ErrorKind;
use txn::Position;

const SEGMENT_BYTES: u64 = 6_000;

struct Setup {
    disk: VirtualDisk,
    log: Log<VirtualDisk>,
    source: Source,
    batches: Vec<Seen>,
}

impl Setup {
    fn new(seed: u64, segment_bytes: u64) -> Setup {
        let disk = VirtualDisk::new(seed);
        let log = open(&disk, options(segment_bytes)).unwrap().log;
        Setup { disk, log, source: Source::new(seed, Tail::ORIGIN), batches: Vec::new() }
    }

    /// Appends one batch with a request of `len` bytes.
    fn append(&mut self, len: usize) -> std::io::Result<bool> {
        let request = self.source.request(len);
        let mut records = Vec::new();
        let before = self.source.sequencer.tail();
        let batch = self.source.sequencer.sequence(vec![request], 5, &mut records).unwrap();
        match self.log.append(&mut records) {
            Ok(appended) => {
                self.batches.push(Seen::of(&batch));
                Ok(appended.rotated)
            }
            Err(error) => {
                self.source.sequencer = order::Sequencer::new(before);
                Err(error)
            }
        }
    }
}

#[test]
fn a_log_goes_on_where_a_checkpoint_covers_its_removed_files() {
    for (before, files, prepared) in
        [(0, 1, false), (3, 1, false), (3, 1, true), (40, 1, true), (40, 2, false)]
    {
        let mut setup = Setup::new(7, SEGMENT_BYTES);
        for _ in 0..before {
            setup.append(400).unwrap();
        }
        setup.log.sync().unwrap();
        let names = setup.log.segment_names();
        for name in names.iter().rev().take(files) {
            setup.disk.remove(name).unwrap();
        }
        if prepared {
            assert!(setup.log.preparer().prepare_next().unwrap());
            let mut names = setup.disk.list().unwrap();
            names.retain(|name| name.starts_with("prepared-"));
            assert_eq!(names.len(), 1);
            setup.disk.remove(&names[0]).unwrap();
        }
        setup.log.leave_removed().unwrap();
        let covered = setup.log.tail();
        let behind = setup.batches.len();
        for _ in 0..30 {
            setup.append(400).unwrap();
        }
        setup.log.sync().unwrap();
        let disk = setup.disk.copy_of_durable(1);
        let checkpoint = LogOptions { checkpoint: covered, ..options(SEGMENT_BYTES) };
        let opened = open(&disk, checkpoint).unwrap();
        assert_eq!(opened.replayed, setup.batches[behind..], "{before} {files} {prepared}");
        if before > 0 {
            assert!(
                open(&disk, options(SEGMENT_BYTES)).is_err(),
                "without the checkpoint something is missing"
            );
        }
    }
}

#[test]
fn a_full_disk_fails_the_append_and_nothing_else() {
    for written in [0, 1, 71, 72, 80, 150] {
        let mut setup = Setup::new(1, SEGMENT_BYTES);
        setup.append(100).unwrap();
        setup.log.sync().unwrap();
        setup.disk.fill_up_after(written);
        let error = setup.append(200).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("log-00000000000000000001.ordo could not be written"), "{error}");
        assert_eq!(setup.append(50).unwrap_err().kind(), ErrorKind::StorageFull);
        setup.disk.make_space();
        // As long as the failed one, so that what it left behind would look like the next record.
        setup.append(20).unwrap();
        setup.log.sync().unwrap();
        setup.disk.crash();
        let opened = open(&setup.disk, options(SEGMENT_BYTES)).unwrap();
        assert_eq!(opened.replayed, setup.batches);
        assert_eq!(opened.report.cut, None);
    }
}

#[test]
fn remains_of_a_failed_group_never_come_back_behind_its_replacement() {
    for seed in 1..200 {
        let mut setup = Setup::new(seed, SEGMENT_BYTES);
        setup.append(100).unwrap();
        setup.log.sync().unwrap();
        let (first, second) = (setup.source.request(40), setup.source.request(40));
        let mut records = Vec::new();
        let before = setup.source.sequencer.tail();
        setup.source.sequencer.sequence(vec![first], 5, &mut records).unwrap();
        let first_bytes = records.len() as u64;
        setup.source.sequencer.sequence(vec![second], 5, &mut records).unwrap();
        // The first two batches are written whole; the third is not.
        let third = setup.source.request(40);
        setup.source.sequencer.sequence(vec![third], 5, &mut records).unwrap();
        setup.disk.fill_up_after(first_bytes * 2 + 10);
        setup.log.append(&mut records).unwrap_err();
        setup.source.sequencer = order::Sequencer::new(before);
        setup.disk.make_space();
        setup.append(40).unwrap();
        let durable = seed % 2 == 0;
        if durable {
            setup.log.sync().unwrap();
        }
        setup.disk.crash();
        let opened =
            open(&setup.disk, options(SEGMENT_BYTES)).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(setup.batches.starts_with(&opened.replayed), "seed {seed}");
        assert!(!durable || opened.replayed == setup.batches, "seed {seed}");
    }
}

#[test]
fn a_full_disk_stops_preparing_and_rotating_until_there_is_space() {
    let mut setup = Setup::new(2, SEGMENT_BYTES);
    let preparer = setup.log.preparer();
    setup.disk.fill_up_after(5_000);
    let error = preparer.prepare_next().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("the next log segment (6000 bytes) could not be prepared"), "{error}");
    // Segments are filled ahead, so there is room for records in the current one.
    while setup.append(300).is_ok() {}
    assert_eq!(setup.append(3_000).unwrap_err().kind(), ErrorKind::StorageFull);
    setup.log.sync().unwrap();
    setup.disk.make_space();
    assert!(preparer.prepare_next().unwrap());
    assert!(!preparer.prepare_next().unwrap(), "one is enough");
    let created = setup.disk.counters().creates;
    assert!(setup.append(3_000).unwrap(), "the prepared segment is taken");
    assert_eq!(setup.disk.counters().creates, created);
    setup.log.sync().unwrap();
    setup.disk.crash();
    assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed, setup.batches);
}

#[test]
fn a_failed_sync_ends_the_log_until_a_restart() {
    let mut setup = Setup::new(3, SEGMENT_BYTES);
    setup.append(100).unwrap();
    assert_eq!(setup.log.sync().unwrap(), Position(1));
    setup.append(100).unwrap();
    let (early, late) = (setup.log.sync_ticket().unwrap(), setup.log.sync_ticket().unwrap());
    setup.disk.fail_sync_after(0);
    let error = early.sync().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("fdatasync of a log segment: "), "{text}");
    // The disk would obey again, and yet it may have forgotten what it was given.
    let errors = [
        late.sync().unwrap_err(),
        setup.append(100).unwrap_err(),
        setup.log.write_marker().unwrap_err(),
        setup.log.sync().unwrap_err(),
        setup.log.preparer().prepare_next().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("a sync failed earlier"), "{error}");
    }
    assert_eq!(setup.log.status().durable, Position(1));
    setup.disk.crash();
    let opened = open(&setup.disk, options(SEGMENT_BYTES)).unwrap();
    assert!(!opened.replayed.is_empty() && setup.batches.starts_with(&opened.replayed));
}

#[test]
fn records_that_do_not_continue_the_log_are_refused() {
    let mut setup = Setup::new(4, SEGMENT_BYTES);
    let mut records = Vec::new();
    setup.source.batch(&mut records);
    setup.log.append(&mut records).unwrap();
    let error = setup.log.append(&mut records).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(setup.log.append(&mut [1, 2, 3]).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_group_larger_than_a_segment_extends_its_file() {
    let mut setup = Setup::new(5, SEGMENT_BYTES);
    for len in [20_000, 10, 50_000, 50_000, 10] {
        setup.append(len).unwrap();
        setup.log.sync().unwrap();
    }
    setup.disk.crash();
    let opened = open(&setup.disk, options(SEGMENT_BYTES)).unwrap();
    assert_eq!(opened.replayed, setup.batches);
    assert_eq!(opened.log.status().segments, 5);
}

#[test]
fn truncation_keeps_what_a_checkpoint_does_not_cover() {
    let mut setup = Setup::new(6, SEGMENT_BYTES);
    while setup.log.status().segments < 6 {
        setup.append(500).unwrap();
    }
    let checkpoint = setup.batches[setup.batches.len() / 2].tail();
    assert_eq!(setup.log.truncate_before(checkpoint.next).unwrap(), 0, "nothing is durable yet");
    setup.log.sync().unwrap();
    let removed = setup.log.truncate_before(checkpoint.next).unwrap();
    assert!(removed > 0 && setup.log.status().first <= checkpoint.next);
    assert_eq!(setup.log.truncate_before(checkpoint.next).unwrap(), 0);
    setup.disk.crash();

    let covered = LogOptions { checkpoint, ..options(SEGMENT_BYTES) };
    let opened = open(&setup.disk, covered).unwrap();
    let after = setup.batches.iter().filter(|seen| seen.first >= checkpoint.next).cloned();
    assert_eq!(opened.replayed, after.collect::<Vec<_>>());
    assert_eq!(opened.log.tail(), setup.batches.last().unwrap().tail());

    let error = open(&setup.disk, options(SEGMENT_BYTES)).err().unwrap();
    assert!(error.to_string().contains("the newest usable checkpoint ends before position 1"), "{error}");
}

#[test]
fn prepared_segments_are_never_read() {
    let mut setup = Setup::new(7, SEGMENT_BYTES);
    setup.append(100).unwrap();
    setup.log.sync().unwrap();
    assert!(setup.log.preparer().prepare_next().unwrap());
    setup.disk.crash();
    assert!(setup.disk.list().unwrap().iter().any(|name| name.starts_with("prepared-")));
    assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed, setup.batches);
    assert!(!setup.disk.list().unwrap().iter().any(|name| name.starts_with("prepared-")));
}

#[test]
fn syncs_and_preparations_run_beside_appends() {
    let mut setup = Setup::new(8, SEGMENT_BYTES);
    let preparer = setup.log.preparer();
    let (tickets, waiting) = std::sync::mpsc::channel::<order::SyncTicket<VirtualDisk>>();
    let (done, results) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for ticket in waiting {
                preparer.prepare_next().unwrap();
                done.send(ticket.sync().unwrap()).unwrap();
            }
        });
        for _ in 0..500 {
            setup.append(200).unwrap();
            if let Some(ticket) = setup.log.sync_ticket() {
                tickets.send(ticket).unwrap();
            }
            while let Ok(synced) = results.try_recv() {
                setup.log.synced(synced);
            }
        }
        drop(tickets);
        for synced in results {
            setup.log.synced(synced);
        }
    });
    assert_eq!(setup.log.status().durable, Position(500));
    setup.disk.crash();
    assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed, setup.batches);
}

#[test]
fn time_does_not_go_back_behind_a_checkpoint() {
    let mut setup = Setup::new(9, SEGMENT_BYTES);
    setup.append(100).unwrap();
    setup.log.sync().unwrap();
    let last = setup.log.tail();
    // An empty batch that was never synced, and that the checkpoint has seen.
    let checkpoint = Tail { epoch: txn::Epoch(last.epoch.0 + 1), time_ms: last.time_ms + 1_000, ..last };
    let opened = open(&setup.disk, LogOptions { checkpoint, ..options(SEGMENT_BYTES) }).unwrap();
    assert_eq!(opened.log.tail().time_ms, checkpoint.time_ms);
    let mut log = opened.log;
    let mut source = Source::new(9, log.tail());
    let mut records = Vec::new();
    let batch = source.batch(&mut records);
    assert!(batch.time_ms >= checkpoint.time_ms);
    log.append(&mut records).unwrap();
    log.sync().unwrap();
    setup.disk.crash();
    assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed.last(), Some(&batch));
}

#[test]
fn nothing_remains_of_a_failed_append_if_the_disk_obeys_again() {
    for written in [0, 72, 200, 328, 1_000] {
        let mut setup = Setup::new(10, SEGMENT_BYTES);
        setup.append(100).unwrap();
        setup.log.sync().unwrap();
        let mut records = Vec::new();
        for _ in 0..2 {
            let request = setup.source.request(200);
            setup.source.sequencer.sequence(vec![request], 5, &mut records).unwrap();
        }
        setup.disk.fail_write_after(written);
        let error = setup.log.append(&mut records).unwrap_err();
        assert!(error.to_string().contains("could not be written"), "{error}");
        drop(setup.log);
        assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed, setup.batches);
        setup.disk.crash();
        assert_eq!(open(&setup.disk, options(SEGMENT_BYTES)).unwrap().replayed, setup.batches);
    }
}

#[test]
fn a_segment_that_is_left_while_it_is_synced_is_synced_again() {
    let mut setup = Setup::new(11, 6_000);
    assert!(!setup.append(100).unwrap());
    // The sync is done before the rest of the segment is written, and reported after.
    let ticket = setup.log.sync_ticket().unwrap();
    let synced = ticket.sync().unwrap();
    while !setup.append(300).unwrap() {}
    setup.log.synced(synced);
    setup.append(100).unwrap();
    let last = setup.log.sync().unwrap();

    // All that a power cut leaves for certain.
    let opened = open(&setup.disk.copy_of_durable(1), options(6_000)).unwrap();
    assert_eq!(opened.log.status().last, last);
}
