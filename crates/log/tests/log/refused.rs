//! What does not follow is refused, and changes nothing.

use crate::virtual_disk::VirtualDisk;
use crate::{base, entry, hard_state, open};
use log::{Entry, Kept};
use std::io::ErrorKind;
use txn::{PartitionId, Position};

const PARTITION: PartitionId = PartitionId(3);

fn entries(indices: &[u64]) -> Vec<Entry> {
    indices.iter().map(|&index| entry(index, 2, b"x")).collect()
}

/// A base at 10, entries up to 15, agreed up to 12.
fn start() -> Kept {
    Kept {
        base: Some(base(10)),
        reset: true,
        entries: entries(&[11, 12, 13, 14, 15]),
        hard_state: Some(hard_state(2, 12)),
        ..Kept::nothing(PARTITION)
    }
}

#[test]
fn what_does_not_follow_is_refused() {
    let disk = VirtualDisk::new(1);
    let mut journal = open(&disk, 20_000, 1).unwrap().journal;
    journal.append(&[start()]).unwrap();
    let nothing = Kept::nothing(PARTITION);
    let refused = [
        ("a gap", Kept { entries: entries(&[17]), ..nothing.clone() }),
        ("a gap inside", Kept { entries: entries(&[16, 18]), ..nothing.clone() }),
        ("agreed ones replaced", Kept { entries: entries(&[12, 13]), ..nothing.clone() }),
        ("covered ones replaced", Kept { entries: entries(&[10]), ..nothing.clone() }),
        ("agreed and not there", Kept { hard_state: Some(hard_state(2, 16)), ..nothing.clone() }),
        (
            "agreed and cut off",
            Kept { entries: entries(&[13]), hard_state: Some(hard_state(2, 14)), ..nothing.clone() },
        ),
        ("an earlier base", Kept { base: Some(base(9)), ..nothing.clone() }),
        ("a gap behind a base", Kept { base: Some(base(20)), entries: entries(&[22]), ..nothing.clone() }),
        ("a reset to nothing", Kept { reset: true, ..nothing.clone() }),
        (
            "a reset that forgets what is agreed",
            Kept { base: Some(base(11)), reset: true, ..nothing.clone() },
        ),
    ];
    for (what, kept) in refused {
        let error = journal.append(&[kept]).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{what}");
        assert!(error.to_string().contains("partition 3"), "{what}: {error}");
    }
    let vote = Kept { hard_state: Some(hard_state(3, 12)), ..nothing };
    assert_eq!(journal.status().last, Position(1));

    // Nor does one group's mistake let another's in.
    let other = Kept { entries: entries(&[2]), ..Kept::nothing(PartitionId(4)) };
    journal.append(&[vote, other]).unwrap_err();
    drop(journal);
    let state = open(&disk, 20_000, 2).unwrap().state;
    assert_eq!(state.len(), 1);
    assert_eq!(state[&PARTITION].hard_state, hard_state(2, 12));
    assert_eq!(state[&PARTITION].entries, start().entries);
}

#[test]
fn nothing_to_keep_writes_nothing() {
    let disk = VirtualDisk::new(2);
    let mut journal = open(&disk, 20_000, 1).unwrap().journal;
    let nothing = [Kept::nothing(PARTITION), Kept::nothing(PartitionId(4))];
    assert_eq!(journal.append(&nothing).unwrap().position, Position::NONE);
    assert_eq!(journal.append(&[]).unwrap().position, Position::NONE);
    assert!(journal.sync_ticket().is_none());
}

#[test]
fn a_commit_index_is_never_below_the_base() {
    let disk = VirtualDisk::new(3);
    let mut journal = open(&disk, 20_000, 1).unwrap().journal;
    journal.append(&[start()]).unwrap();
    let mut expect = |kept: Kept, term, commit| {
        journal.append(&[kept]).unwrap();
        let state = open(&disk, 20_000, 2).unwrap().state;
        assert_eq!(state[&PARTITION].hard_state, hard_state(term, commit));
    };
    let nothing = Kept::nothing(PARTITION);
    expect(Kept { base: Some(base(14)), ..nothing.clone() }, 2, 14);
    expect(Kept { hard_state: Some(hard_state(3, 12)), ..nothing.clone() }, 3, 14);
    // A leader's checkpoint, installed over a log that was behind.
    expect(Kept { base: Some(base(30)), reset: true, ..nothing.clone() }, 3, 30);
    expect(Kept { entries: entries(&[31]), ..nothing }, 3, 30);
}
