//! Full disks, failing syncs, removed files, and threads.

use crate::virtual_disk::VirtualDisk;
use crate::{Opened, Round, State, base, entry, open, segments};
use log::{Disk, Entry, Journal, Kept};
use std::io::ErrorKind;
use txn::{PartitionId, Position};

const SEGMENT_BYTES: u64 = 6_000;
const PARTITION: PartitionId = PartitionId(1);

/// A journal in which one group keeps entries.
struct Setup {
    disk: VirtualDisk,
    journal: Journal<VirtualDisk>,
    state: State,
}

fn entries(state: &State) -> &[Entry] {
    state.get(&PARTITION).map_or(&[], |image| &image.entries)
}

impl Setup {
    fn new(seed: u64) -> Setup {
        let disk = VirtualDisk::new(seed);
        let journal = open(&disk, SEGMENT_BYTES, 1).unwrap().journal;
        Setup { disk, journal, state: State::new() }
    }

    /// The index of the last entry.
    fn last(&self) -> u64 {
        self.state.get(&PARTITION).map_or(0, |image| image.base.index + image.entries.len() as u64)
    }

    fn append_round(&mut self, kept: Kept) -> std::io::Result<bool> {
        let round = Round(vec![kept]);
        let appended = round.append(&mut self.journal)?;
        self.state = round.apply(&self.state);
        Ok(appended.rotated)
    }

    /// Appends a record with an entry of `len` bytes. Returns whether it began a segment.
    fn append(&mut self, len: usize) -> std::io::Result<bool> {
        let index = self.last() + 1;
        let entries = vec![entry(index, 1, &vec![index as u8; len])];
        self.append_round(Kept { entries, ..Kept::nothing(PARTITION) })
    }

    fn open(&self) -> Opened {
        open(&self.disk, SEGMENT_BYTES, 2).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
fn a_journal_goes_on_where_a_base_covers_its_removed_files() {
    for (before, files, prepared) in
        [(0, 1, false), (3, 1, false), (3, 1, true), (40, 1, true), (40, 2, false)]
    {
        let mut setup = Setup::new(7);
        for _ in 0..before {
            setup.append(400).unwrap();
        }
        setup.journal.sync().unwrap();
        let names = setup.journal.segment_names();
        for name in names.iter().rev().take(files) {
            setup.disk.remove(name).unwrap();
        }
        if prepared {
            assert!(setup.journal.preparer().prepare_next().unwrap());
            let mut names = setup.disk.list().unwrap();
            names.retain(|name| name.starts_with("prepared-"));
            assert_eq!(names.len(), 1);
            setup.disk.remove(&names[0]).unwrap();
        }
        setup.journal.leave_removed().unwrap();
        setup.append(400).unwrap();
        setup.journal.sync().unwrap();
        if before > 0 {
            let copy = setup.disk.copy_of_durable(1);
            assert!(open(&copy, SEGMENT_BYTES, 2).is_err(), "without the base something is missing");
        }
        setup.append_round(Kept { base: Some(base(setup.last())), ..Kept::nothing(PARTITION) }).unwrap();
        for _ in 0..30 {
            setup.append(400).unwrap();
        }
        setup.journal.sync().unwrap();
        if let Some(truncation) = setup.journal.truncation() {
            setup.journal.truncated(truncation.run().unwrap());
        }
        assert_eq!(segments(&setup.disk), setup.journal.segment_names());
        let copy = setup.disk.copy_of_durable(1);
        let opened = open(&copy, SEGMENT_BYTES, 2).unwrap();
        assert_eq!(opened.state, setup.state, "{before} {files} {prepared}");
        assert_eq!(entries(&opened.state).len(), 30);
    }
}

#[test]
fn a_full_disk_fails_the_append_and_nothing_else() {
    for written in [0, 1, 71, 72, 80, 150] {
        let mut setup = Setup::new(1);
        setup.append(100).unwrap();
        setup.journal.sync().unwrap();
        setup.disk.fill_up_after(written);
        let error = setup.append(200).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("log-00000000000000000001.ordo could not be written"), "{error}");
        assert!(setup.journal.takes_again(&error));
        assert_eq!(setup.append(50).unwrap_err().kind(), ErrorKind::StorageFull);
        setup.disk.make_space();
        setup.append(20).unwrap();
        setup.journal.sync().unwrap();
        setup.disk.crash();
        let opened = setup.open();
        assert_eq!(opened.state, setup.state);
        assert_eq!(opened.report.cut, None);
    }
}

#[test]
fn remains_of_a_failed_record_never_come_back_behind_its_replacement() {
    for seed in 1..200 {
        let mut setup = Setup::new(seed);
        setup.append(100).unwrap();
        setup.journal.sync().unwrap();
        // The first sectors are written whole; the last one is not.
        setup.disk.fill_up_after(1_000 + seed);
        setup.append(1_300).unwrap_err();
        setup.disk.make_space();
        setup.append(40).unwrap();
        let durable = seed % 2 == 0;
        if durable {
            setup.journal.sync().unwrap();
        }
        setup.disk.crash();
        let opened = setup.open();
        assert!(entries(&setup.state).starts_with(entries(&opened.state)), "seed {seed}");
        assert!(!durable || opened.state == setup.state, "seed {seed}");
        assert!(!durable || opened.report.cut.is_none(), "seed {seed}");
    }
}

#[test]
fn a_full_disk_stops_preparing_and_rotating_until_there_is_space() {
    let mut setup = Setup::new(2);
    let preparer = setup.journal.preparer();
    setup.disk.fill_up_after(5_000);
    let error = preparer.prepare_next().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert!(error.to_string().contains("the next log segment (6000 bytes) could not be prepared"), "{error}");
    // Segments are filled ahead, so there is room for records in the current one.
    while setup.append(300).is_ok() {}
    assert_eq!(setup.append(3_000).unwrap_err().kind(), ErrorKind::StorageFull);
    setup.journal.sync().unwrap();
    setup.disk.make_space();
    assert!(preparer.prepare_next().unwrap());
    assert!(!preparer.prepare_next().unwrap(), "one is enough");
    let created = setup.disk.counters().creates;
    assert!(setup.append(3_000).unwrap(), "the prepared segment is taken");
    assert_eq!(setup.disk.counters().creates, created);
    setup.journal.sync().unwrap();
    setup.disk.crash();
    assert_eq!(setup.open().state, setup.state);
}

#[test]
fn a_failed_sync_ends_the_journal_until_a_restart() {
    let mut setup = Setup::new(3);
    setup.append(100).unwrap();
    assert_eq!(setup.journal.sync().unwrap(), Position(1));
    setup.append(100).unwrap();
    let (early, late) = (setup.journal.sync_ticket().unwrap(), setup.journal.sync_ticket().unwrap());
    setup.disk.fail_sync_after(0);
    let error = early.sync().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("fdatasync of a log segment: "), "{text}");
    assert!(setup.journal.is_closed() && !setup.journal.takes_again(&error));
    // The disk would obey again, and yet it may have forgotten what it was given.
    let errors = [
        late.sync().unwrap_err(),
        setup.append(100).unwrap_err(),
        setup.journal.write_marker().unwrap_err(),
        setup.journal.sync().unwrap_err(),
        setup.journal.preparer().prepare_next().unwrap_err(),
        setup.journal.leave_removed().unwrap_err(),
    ];
    for error in errors {
        assert!(error.to_string().contains("a sync failed earlier"), "{error}");
    }
    assert_eq!(setup.journal.status().durable, Position(1));
    setup.disk.crash();
    let opened = setup.open();
    assert!(!opened.state.is_empty() && entries(&setup.state).starts_with(entries(&opened.state)));
}

#[test]
fn a_record_larger_than_a_segment_extends_its_file() {
    let mut setup = Setup::new(5);
    for len in [20_000, 10, 50_000, 50_000, 10] {
        setup.append(len).unwrap();
        setup.journal.sync().unwrap();
    }
    setup.disk.crash();
    let opened = setup.open();
    assert_eq!(opened.state, setup.state);
    assert_eq!(opened.journal.status().segments, 5);
}

#[test]
fn prepared_segments_are_never_read() {
    let mut setup = Setup::new(7);
    setup.append(100).unwrap();
    setup.journal.sync().unwrap();
    assert!(setup.journal.preparer().prepare_next().unwrap());
    setup.disk.crash();
    assert!(setup.disk.list().unwrap().iter().any(|name| name.starts_with("prepared-")));
    assert_eq!(setup.open().state, setup.state);
    assert!(!setup.disk.list().unwrap().iter().any(|name| name.starts_with("prepared-")));
}

#[test]
fn syncs_and_preparations_run_beside_appends() {
    let mut setup = Setup::new(8);
    let preparer = setup.journal.preparer();
    let (tickets, waiting) = std::sync::mpsc::channel::<log::SyncTicket<VirtualDisk>>();
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
            if let Some(ticket) = setup.journal.sync_ticket() {
                tickets.send(ticket).unwrap();
            }
            while let Ok(synced) = results.try_recv() {
                setup.journal.synced(synced);
            }
        }
        drop(tickets);
        for synced in results {
            setup.journal.synced(synced);
        }
    });
    assert_eq!(setup.journal.status().durable, Position(500));
    setup.disk.crash();
    assert_eq!(setup.open().state, setup.state);
}

#[test]
fn nothing_remains_of_a_failed_append_if_the_disk_obeys_again() {
    for written in [0, 72, 200, 328, 1_000] {
        let mut setup = Setup::new(10);
        setup.append(100).unwrap();
        setup.journal.sync().unwrap();
        setup.disk.fail_write_after(written);
        let error = setup.append(400).unwrap_err();
        assert!(error.to_string().contains("could not be written"), "{error}");
        assert!(!setup.journal.status().remains);
        assert_eq!(setup.open().state, setup.state);
        setup.disk.crash();
        assert_eq!(setup.open().state, setup.state);
    }
}

#[test]
fn a_segment_that_is_left_while_it_is_synced_is_synced_again() {
    let mut setup = Setup::new(11);
    assert!(!setup.append(100).unwrap());
    // The sync is done before the rest of the segment is written, and reported after.
    let ticket = setup.journal.sync_ticket().unwrap();
    let synced = ticket.sync().unwrap();
    while !setup.append(300).unwrap() {}
    setup.journal.synced(synced);
    setup.append(100).unwrap();
    let last = setup.journal.sync().unwrap();

    // All that a power cut leaves for certain.
    let opened = open(&setup.disk.copy_of_durable(1), SEGMENT_BYTES, 2).unwrap();
    assert_eq!(opened.journal.status().last, last);
}
