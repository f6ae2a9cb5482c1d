//! The journal on a disk that loses, tears and flips, against models that remember the state after every
//! record: what was synced survives, what was damaged is refused.
//!
//! The virtual disk is the simulator's own source file rather than its crate, which needs every other crate
//! of the house.

extern crate ordo_log as log;

#[path = "../../../sim/src/disk.rs"]
#[allow(dead_code, reason = "the simulator uses the rest")]
mod virtual_disk;

mod bytes_on_disk;
mod crashes;
mod cuts;
mod damage;
mod faults;
mod following;
mod reader;
mod refused;
mod truncation;

use bytes::Bytes;
use log::{
    Base, Disk, DiskFile, Entry, EntryKind, GroupImage, HardState, Journal, Kept, Members, OpenError, Report,
};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use txn::{NodeId, PartitionId};
use virtual_disk::VirtualDisk;

/// What the groups have.
type State = log::GroupImages;

struct Opened<D: Disk = VirtualDisk> {
    journal: Journal<D>,
    state: State,
    report: Report,
}

fn open<D: Disk + Clone>(disk: &D, segment_bytes: u64, boot_id: u64) -> Result<Opened<D>, OpenError> {
    let (journal, state, report) = Journal::open(Arc::new(disk.clone()), segment_bytes, boot_id)?;
    assert_eq!(report.last, journal.status().last);
    Ok(Opened { journal, state, report })
}

/// What a round writes.
#[derive(Clone, Debug)]
struct Round(Vec<Kept>);

impl Round {
    fn append<D: Disk>(&self, journal: &mut Journal<D>) -> std::io::Result<log::Appended> {
        journal.append(&self.0)
    }

    /// The state behind this round, worked out entry by entry.
    fn apply(&self, state: &State) -> State {
        let mut state = state.clone();
        for kept in self.0.iter().filter(|kept| !kept.is_empty()) {
            let image = state.entry(kept.partition).or_default();
            if let Some(base) = &kept.base {
                let index = base.index;
                image.base = base.clone();
                image.entries.retain(|entry| entry.index > index && !kept.reset);
            }
            for entry in &kept.entries {
                image.entries.retain(|old| old.index < entry.index);
                image.entries.push(entry.clone());
            }
            image.hard_state = kept.hard_state.unwrap_or(image.hard_state);
            image.hard_state.commit = image.hard_state.commit.max(image.base.index);
        }
        state
    }
}

fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    Entry { index, term, kind: EntryKind::Data, data: Bytes::copy_from_slice(data) }
}

fn base(index: u64) -> Base {
    Base { index, term: 1, members: Members::default(), state: Bytes::from(format!("state at {index}")) }
}

fn hard_state(term: u64, commit: u64) -> HardState {
    HardState { term, vote: term % 3, commit }
}

/// Makes random rounds that follow a state.
struct Source {
    rng: Xoshiro256PlusPlus,
    groups: u16,
    /// How likely a group takes a base in a round.
    base_chance: f64,
}

impl Source {
    fn new(seed: u64) -> Source {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed);
        Source { groups: rng.random_range(1..5), base_chance: [0.02, 0.1, 0.3][rng.random_range(0..3)], rng }
    }

    fn round(&mut self, state: &State) -> Round {
        let mut kept = Vec::new();
        for partition in 0..self.groups {
            if self.rng.random_bool(0.7) {
                let partition = PartitionId(partition);
                let image = state.get(&partition).cloned().unwrap_or_default();
                kept.push(self.kept(partition, &image));
                if self.rng.random_bool(0.2) {
                    // It had another turn before the round was written.
                    let after = Round(kept.clone()).apply(state);
                    let image = after.get(&partition).cloned().unwrap_or_default();
                    kept.push(self.kept(partition, &image));
                }
            }
        }
        Round(kept)
    }

    fn kept(&mut self, partition: PartitionId, image: &GroupImage) -> Kept {
        let mut kept = Kept::nothing(partition);
        let mut last = image.base.index + image.entries.len() as u64;
        let mut agreed = image.hard_state.commit;
        if self.rng.random_bool(self.base_chance) {
            kept.reset = self.rng.random_bool(0.2);
            // A leader's checkpoint may end among entries that are not agreed, and then they are wrong.
            let until = if kept.reset { last + 5 } else { agreed };
            let from = if kept.reset { agreed } else { image.base.index };
            let index = self.rng.random_range(from..=until);
            kept.base = Some(self.base(index));
            last = if kept.reset { index } else { last.max(index) };
            agreed = agreed.max(index);
        }
        if self.rng.random_bool(0.8) {
            let replaces = self.rng.random_bool(0.2);
            let first = if replaces { self.rng.random_range(agreed + 1..=last + 1) } else { last + 1 };
            let term = image.hard_state.term + u64::from(replaces);
            let count = self.rng.random_range(1..4);
            kept.entries = (first..first + count).map(|index| self.entry(index, term)).collect();
            last = first + count - 1;
        }
        if self.rng.random_bool(0.5) {
            kept.hard_state = Some(HardState {
                term: image.hard_state.term + self.rng.random_range(0..2),
                vote: self.rng.random_range(0..4),
                commit: self.rng.random_range(agreed..=last),
            });
        }
        kept
    }

    fn entry(&mut self, index: u64, term: u64) -> Entry {
        let len = match self.rng.random_range(0..30) {
            0 => self.rng.random_range(0..9_000),
            1..10 => 0,
            _ => self.rng.random_range(0..120),
        };
        let data: Vec<u8> = (0..len).map(|_| self.rng.random()).collect();
        let kind = match self.rng.random_range(0..10) {
            0 => EntryKind::Membership,
            _ => EntryKind::Data,
        };
        Entry { kind, ..entry(index, term, &data) }
    }

    fn base(&mut self, index: u64) -> Base {
        let mut nodes = || {
            let count = self.rng.random_range(0..4);
            (0..count).map(|_| NodeId(self.rng.random())).collect::<Vec<_>>()
        };
        let members = Members {
            voters: nodes(),
            voters_outgoing: nodes(),
            learners: nodes(),
            learners_next: nodes(),
            auto_leave: self.rng.random(),
        };
        Base { members, term: self.rng.random(), ..base(index) }
    }
}

/// The segments on a disk, in order.
fn segments(disk: &VirtualDisk) -> Vec<String> {
    let mut names = disk.list().unwrap();
    names.retain(|name| name.starts_with("log-"));
    names.sort();
    names
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

/// All files of a disk with their bytes.
fn contents(disk: &VirtualDisk) -> Vec<(String, Vec<u8>)> {
    let mut names = disk.list().unwrap();
    names.sort();
    names.into_iter().map(|name| (name.clone(), read(disk, &name))).collect()
}

/// The seeds of a randomized test: the one in ORDO_SEED; else ORDO_SEEDS of them, or `count`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("ORDO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("ORDO_SEEDS").unwrap_or(count) + 1,
    }
}
