//! Random histories of rounds, syncs, truncations, failures, crashes and restarts.

use crate::seeds;
use crate::virtual_disk::VirtualDisk;
use crate::{Opened, Source, State, open};
use log::{Journal, Kept, SyncTicket, Truncation};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::ErrorKind;

/// What may and must be found after a restart.
struct Model {
    /// The state after each record, from before the first one on.
    states: Vec<State>,
    /// The last record that must survive.
    durable: usize,
    /// The states after records whose write failed since the last success: a crash may bring one back.
    failed: Vec<State>,
}

impl Model {
    fn last(&self) -> usize {
        self.states.len() - 1
    }

    /// Takes over what a restart found: the state after some record, none before the last durable one; and
    /// after a kill none before the last one.
    fn reconcile(&mut self, opened: &Opened, killed: bool) {
        let found = opened.journal.status().last.0 as usize;
        let least = if killed { self.last() } else { self.durable };
        assert!(found >= least, "record {least} must be there, {found} is the last one");
        match self.states.get(found) {
            Some(state) => assert_eq!(opened.state, *state, "after record {found}"),
            None => {
                assert_eq!(found, self.last() + 1);
                assert!(self.failed.contains(&opened.state), "nobody appended {:?}", opened.state);
                self.states.push(opened.state.clone());
            }
        }
        self.states.truncate(found + 1);
        self.durable = found;
        self.failed.clear();
    }
}

struct Run {
    rng: Xoshiro256PlusPlus,
    disk: VirtualDisk,
    segment_bytes: u64,
    model: Model,
    journal: Option<Journal<VirtualDisk>>,
    source: Source,
    /// Tickets that are out, with the last record that each covers.
    tickets: Vec<(SyncTicket<VirtualDisk>, usize)>,
    /// A truncation that was asked for and not begun.
    truncation: Option<Truncation<VirtualDisk>>,
    crashed: u64,
    cuts: u64,
    rotations: u64,
    removed: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let segment_bytes = [4_096, 6_000, 10_000, 40_000][rng.random_range(0..4)];
        let mut run = Run {
            rng,
            disk: VirtualDisk::new(seed),
            segment_bytes,
            model: Model { states: vec![State::new()], durable: 0, failed: Vec::new() },
            journal: None,
            source: Source::new(seed),
            tickets: Vec::new(),
            truncation: None,
            crashed: 0,
            cuts: 0,
            rotations: 0,
            removed: 0,
        };
        run.reopen(false);
        run
    }

    fn open(&mut self) -> Opened {
        let boot_id = self.rng.random();
        open(&self.disk, self.segment_bytes, boot_id).unwrap_or_else(|error| panic!("{error}"))
    }

    fn reopen(&mut self, mut killed: bool) {
        self.journal = None;
        self.tickets.clear();
        self.truncation = None;
        if self.rng.random_bool(0.2) {
            // A crash in the middle of a recovery.
            self.disk.fill_up_after(self.rng.random_range(0..20_000));
            self.disk.fail_sync_after(self.rng.random_range(0..4));
            drop(open(&self.disk, self.segment_bytes, 1));
            self.disk.crash();
            killed = false;
        }
        self.disk.obey();
        let opened = self.open();
        self.model.reconcile(&opened, killed);
        self.cuts += u64::from(opened.report.cut.is_some());
        drop(opened);

        // Once more: nothing is left to be cut, and the same comes out.
        let again = self.open();
        assert_eq!(again.report.cut, None);
        self.model.reconcile(&again, true);
        assert_eq!(again.journal.status().durable, again.journal.status().last);
        self.journal = Some(again.journal);
    }

    fn append(&mut self) {
        let journal = self.journal.as_mut().unwrap();
        let last = self.model.states.last().unwrap();
        let round = self.source.round(last);
        if round.0.iter().all(Kept::is_empty) {
            let appended = round.append(journal).unwrap();
            assert_eq!(appended.position.0 as usize, self.model.last());
            return;
        }
        let state = round.apply(last);
        loop {
            match round.append(journal) {
                Ok(appended) => {
                    self.model.states.push(state);
                    self.model.failed.clear();
                    assert_eq!(appended.position.0 as usize, self.model.last());
                    self.rotations += u64::from(appended.rotated);
                    return;
                }
                Err(error) => {
                    assert_ne!(error.kind(), ErrorKind::InvalidInput, "{error}");
                    self.model.failed.push(state.clone());
                    if error.kind() == ErrorKind::StorageFull && self.rng.random_bool(0.5) {
                        self.disk.make_space();
                        continue;
                    }
                    return;
                }
            }
        }
    }

    fn step(&mut self) {
        let journal = self.journal.as_mut().unwrap();
        match self.rng.random_range(0..100) {
            0..50 => self.append(),
            50..63 => {
                let covers = self.model.last();
                self.tickets.extend(journal.sync_ticket().map(|ticket| (ticket, covers)));
            }
            63..76 if !self.tickets.is_empty() => {
                let (ticket, covers) = self.tickets.swap_remove(self.rng.random_range(0..self.tickets.len()));
                if let Ok(synced) = ticket.sync() {
                    journal.synced(synced);
                    self.model.durable = self.model.durable.max(covers);
                    assert!(journal.status().durable.0 as usize >= self.model.durable);
                }
            }
            76..79 => drop(journal.write_marker()),
            79..82 => drop(journal.preparer().prepare_next()),
            82..87 => self.truncation = journal.truncation(),
            87..92 => {
                // It was asked for earlier, perhaps, and is run on another thread.
                if let Some(truncation) = self.truncation.take()
                    && let Ok(truncated) = truncation.run()
                {
                    self.removed += truncated.segments as u64;
                    journal.truncated(truncated);
                }
            }
            92 => self.disk.fill_up_after(self.rng.random_range(0..5_000)),
            93 => self.disk.fail_write_after(self.rng.random_range(0..500)),
            94 => self.disk.fail_sync_after(self.rng.random_range(0..5)),
            95..97 => {
                if let Some(truncation) = self.truncation.take()
                    && self.rng.random_bool(0.5)
                {
                    // The power goes in the middle of it.
                    self.disk.fail_sync_after(self.rng.random_range(0..3));
                    drop(truncation.run());
                }
                self.disk.crash();
                self.crashed += 1;
                self.reopen(false);
            }
            97 => self.reopen(true), // the process was killed, the machine stays up
            _ => self.disk.make_space(),
        }
    }
}

#[test]
fn what_groups_kept_survives_any_history() {
    let mut totals = [0; 4];
    for seed in seeds(300) {
        println!("ORDO_SEED={seed}");
        let mut run = Run::new(seed);
        for _ in 0..300 {
            run.step();
        }
        let counts = [run.crashed, run.cuts, run.rotations, run.removed];
        for (total, count) in totals.iter_mut().zip(counts) {
            *total += count;
        }
    }
    println!("crashes, cuts, rotations, segments removed: {totals:?}");
    assert!(
        std::env::var("ORDO_SEED").is_ok() || totals.iter().all(|&total| total > 20),
        "a history that never happens: {totals:?}"
    );
}
