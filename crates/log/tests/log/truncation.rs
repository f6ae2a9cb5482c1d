//! What truncation removes, and what it must leave.

use crate::seeds;
use crate::virtual_disk::VirtualDisk;
use crate::{Source, State, base, entry, hard_state, open};
use log::{Disk, Journal, Kept, OpenError};
use txn::{PartitionId, Position};

const SEGMENT_BYTES: u64 = 5_000;

fn truncate(journal: &mut Journal<VirtualDisk>) -> usize {
    let Some(truncation) = journal.truncation() else {
        return 0;
    };
    let truncated = truncation.run().unwrap();
    journal.truncated(truncated);
    truncated.segments
}

/// Entries from `first` on, three of 400 bytes, agreed so far as they had been there.
fn news(partition: u16, first: u64) -> Kept {
    Kept {
        entries: (first..first + 3).map(|index| entry(index, 1, &[7; 400])).collect(),
        hard_state: Some(hard_state(1, first - 1)),
        ..Kept::nothing(PartitionId(partition))
    }
}

fn base_of(partition: u16, index: u64) -> Kept {
    Kept { base: Some(base(index)), ..Kept::nothing(PartitionId(partition)) }
}

/// A journal with one group that had a word in its first record only, and another that goes on.
fn with_an_idle_group() -> (VirtualDisk, Journal<VirtualDisk>) {
    let disk = VirtualDisk::new(1);
    let mut journal = open(&disk, SEGMENT_BYTES, 1).unwrap().journal;
    let idle = Kept { hard_state: Some(hard_state(5, 0)), ..base_of(9, 0) };
    journal.append(&[idle]).unwrap();
    for round in 0..20 {
        journal.append(&[news(1, round * 3 + 1)]).unwrap();
    }
    journal.append(&[base_of(1, 57)]).unwrap();
    journal.sync().unwrap();
    assert!(journal.status().segments > 4);
    (disk, journal)
}

fn state_of(disk: &VirtualDisk) -> State {
    open(disk, SEGMENT_BYTES, 2).unwrap().state
}

#[test]
fn an_idle_group_pins_the_journal_until_its_next_base() {
    let (disk, mut journal) = with_an_idle_group();
    assert_eq!(journal.pinned_by(), Some(PartitionId(9)));
    assert_eq!(truncate(&mut journal), 0);
    // No hard state beside it, and none is lost.
    journal.append(&[base_of(9, 0)]).unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.pinned_by(), Some(PartitionId(1)));
    let before = state_of(&disk.copy_of_durable(1));
    assert!(truncate(&mut journal) > 3);
    assert_eq!(truncate(&mut journal), 0);
    disk.crash();
    let after = state_of(&disk);
    assert_eq!(after, before);
    assert_eq!(after[&PartitionId(9)].hard_state, hard_state(5, 0));
    assert_eq!(after[&PartitionId(1)].hard_state, hard_state(1, 57));
    assert_eq!(after[&PartitionId(1)].entries.len(), 3);
}

#[test]
fn a_checkpoint_that_was_installed_lets_go_of_what_it_replaces() {
    let disk = VirtualDisk::new(3);
    let mut journal = open(&disk, SEGMENT_BYTES, 1).unwrap().journal;
    for round in 0..20 {
        let kept = Kept { hard_state: None, ..news(1, round * 3 + 1) };
        journal.append(&[kept]).unwrap();
    }
    let installed = Kept { reset: true, ..base_of(1, 10) };
    let last = journal.append(&[installed]).unwrap().position;
    assert_eq!(state_of(&disk)[&PartitionId(1)].entries, []);
    // Nor do the entries come back as a reason to keep anything.
    journal.append(&[news(2, 1)]).unwrap();
    journal.sync().unwrap();
    assert!(truncate(&mut journal) > 3);
    let status = journal.status();
    assert!(status.first <= last && status.segments <= 2, "{status:?}");
    let state = state_of(&disk.copy_of_durable(1));
    assert_eq!(state[&PartitionId(1)].entries, []);
    assert_eq!(state[&PartitionId(1)].hard_state.commit, 10);
    journal.append(&[news(1, 11)]).unwrap();
    assert_eq!(state_of(&disk)[&PartitionId(1)].entries, news(1, 11).entries);
}

#[test]
fn a_base_that_is_not_durable_frees_nothing() {
    let disk = VirtualDisk::new(2);
    let mut journal = open(&disk, SEGMENT_BYTES, 1).unwrap().journal;
    for round in 0..20 {
        journal.append(&[news(1, round * 3 + 1)]).unwrap();
    }
    journal.sync().unwrap();
    let durable = state_of(&disk.copy_of_durable(1));
    journal.append(&[base_of(1, 57)]).unwrap();
    let ticket = journal.sync_ticket().unwrap();
    assert_eq!(truncate(&mut journal), 0);
    // All that a power cut leaves for certain.
    assert_eq!(state_of(&disk.copy_of_durable(1)), durable);
    journal.synced(ticket.sync().unwrap());
    assert!(truncate(&mut journal) > 3);
    assert_eq!(state_of(&disk.copy_of_durable(1))[&PartitionId(1)].entries.len(), 3);
}

#[test]
fn truncation_loses_nothing_and_leaves_no_segment_too_many() {
    let (mut removed, mut refused) = (0, 0);
    for seed in seeds(60) {
        println!("ORDO_SEED={seed}");
        let disk = VirtualDisk::new(seed);
        let mut source = Source::new(seed);
        let mut journal = open(&disk, SEGMENT_BYTES, seed).unwrap().journal;
        let mut state = State::new();
        for _ in 0..60 {
            let round = source.round(&state);
            round.append(&mut journal).unwrap();
            state = round.apply(&state);
            journal.sync().unwrap();
            removed += truncate(&mut journal);
        }
        let copy = disk.copy_of_durable(seed);
        assert_eq!(state_of(&copy), state);

        // One more would be too many. Somebody removes it nevertheless.
        if journal.status().segments > 1 {
            let copy = disk.copy_of_durable(seed);
            let mut names = copy.list().unwrap();
            names.retain(|name| name.starts_with("log-"));
            names.sort();
            copy.remove(&names[0]).unwrap();
            let error = open(&copy, SEGMENT_BYTES, 2).err().unwrap();
            assert!(matches!(error, OpenError::BeginsTooLate { .. }), "{error}");
            refused += 1;
        }
    }
    println!("{removed} segments removed, {refused} refused");
    assert!(std::env::var("ORDO_SEED").is_ok() || removed > 100 && refused > 20);
}

#[test]
fn a_journal_without_its_beginning_is_refused() {
    let (disk, journal) = with_an_idle_group();
    drop(journal);
    let mut names = disk.list().unwrap();
    names.sort();
    disk.remove(&names[0]).unwrap();
    let error = open(&disk, SEGMENT_BYTES, 2).err().unwrap();
    let OpenError::BeginsTooLate { wanted, found } = &error else { panic!("{error}") };
    assert!(*wanted == Position::FIRST && *found > *wanted);
    assert!(error.to_string().contains("replace this node"), "{error}");
}
