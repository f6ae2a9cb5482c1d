//! A reader that follows a journal gets what was appended, in order, once, and is told when that is gone.

use crate::virtual_disk::VirtualDisk;
use crate::{Source, State, open, seeds};
use log::{Journal, Kept, ReadError, ReadFrom, read_records};
use rand::RngExt;
use txn::Position;

/// What matters to whoever follows: a commit index may be raised on its way into the journal.
fn without_hard_state(kept: Kept) -> Kept {
    Kept { hard_state: None, ..kept }
}

fn read(
    disk: &VirtualDisk,
    from: Option<ReadFrom>,
    until: Position,
    bytes_max: u64,
    found: &mut Vec<Kept>,
) -> Result<(ReadFrom, bool), ReadError> {
    let (next, reached) = read_records(disk, from, until, bytes_max, &mut |kept| {
        found.push(without_hard_state(kept));
    })?;
    // As it comes back from whoever was told.
    let again: ReadFrom = next.to_string().parse().expect("a place");
    assert_eq!(again, next);
    Ok((again, reached))
}

#[test]
fn what_was_appended_is_read_in_parts_of_any_size_also_behind_a_restart() {
    for seed in seeds(40) {
        let mut source = Source::new(seed);
        let disk = VirtualDisk::new(seed);
        let mut state = State::new();
        let mut journal = open(&disk, 6_000, 1).expect("a journal").journal;
        let (mut appended, mut found) = (Vec::new(), Vec::new());
        let mut from = None;
        for round in 0..120 {
            let next = source.round(&state);
            next.append(&mut journal).expect("appended");
            state = next.apply(&state);
            appended.extend(next.0.into_iter().filter(|kept| !kept.is_empty()).map(without_hard_state));
            if round == 60 {
                journal.sync().expect("durable");
                journal = open(&disk, 6_000, 2).expect("a journal").journal;
            }
            let until = journal.status().last;
            let bytes_max = source.rng.random_range(1..9_000);
            let (next, _) = read(&disk, from, until, bytes_max, &mut found).expect("it is there");
            from = Some(next);
            assert!(appended.starts_with(&found), "seed {seed}, round {round}");
        }
        let until = journal.status().last;
        while found.len() < appended.len() {
            let (next, reached) = read(&disk, from, until, 500, &mut found).expect("it is there");
            from = Some(next);
            assert_eq!(reached, found.len() == appended.len(), "seed {seed}");
        }
        assert!(found == appended, "seed {seed}");
    }
}

#[test]
fn what_was_removed_is_gone_and_what_never_was_a_place_is_refused() {
    let disk = VirtualDisk::new(1);
    let mut journal = open(&disk, 6_000, 1).expect("a journal").journal;
    let until = |journal: &Journal<VirtualDisk>| journal.status().last;
    let news = |index| Kept {
        entries: vec![crate::entry(index, 1, &[7; 900])],
        ..Kept::nothing(crate::PartitionId(1))
    };
    for index in 1..=20 {
        journal.append(&[news(index)]).expect("appended");
    }
    let mut found = Vec::new();
    let (first, reached) = read(&disk, None, until(&journal), 1, &mut found).expect("it is there");
    assert!(!reached && found.len() <= 1);
    let base = Kept {
        base: Some(crate::base(20)),
        reset: true,
        hard_state: Some(crate::hard_state(1, 20)),
        ..Kept::nothing(crate::PartitionId(1))
    };
    journal.append(&[base]).expect("appended");
    journal.sync().expect("durable");
    let truncated = journal.truncation().expect("older ones").run().expect("removed");
    journal.truncated(truncated);
    let gone = read(&disk, Some(first), until(&journal), 1 << 20, &mut found);
    assert!(matches!(gone, Err(ReadError::Gone(_))), "{gone:?}");
    let (last, reached) = read(&disk, None, until(&journal), 1 << 20, &mut found).expect("what is left");
    assert!(reached);
    journal.append(&[news(21)]).expect("appended");
    // Another digest: such a place never was.
    let text = last.to_string();
    let (place, _) = text.rsplit_once(':').expect("parts");
    let false_place: ReadFrom = format!("{place}:1").parse().expect("a place");
    let refused = read(&disk, Some(false_place), until(&journal), 1 << 20, &mut found);
    assert!(matches!(refused, Err(ReadError::NoRecord { .. })), "{refused:?}");
}
