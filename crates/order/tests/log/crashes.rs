//! Random histories of appends, syncs, failures, crashes and restarts, against a model that remembers
//! everything.

use crate::{Opened, Seen, Source, open, options, seeds};
use order::{Log, LogOptions, SyncTicket, Tail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use txn::Position;

use crate::virtual_disk::VirtualDisk;

/// What may and must be found after a restart.
#[derive(Default)]
struct Model {
    /// What is in the log, from some position on.
    batches: Vec<Seen>,
    /// How many of these must survive.
    durable: usize,
    /// Groups whose append failed since the last success: a crash may bring parts of one back.
    failed: Vec<Vec<Seen>>,
    /// A durable checkpoint.
    checkpoint: Tail,
}

impl Model {
    fn tail(&self) -> Tail {
        self.batches.last().map_or(self.checkpoint, Seen::tail)
    }

    fn last_durable(&self) -> Position {
        let last = self.durable.checked_sub(1).map(|index| self.batches[index].tail().last());
        last.unwrap_or(Position::NONE)
    }

    /// Takes over what a restart found. Everything synced must be there, in order and with equal content.
    fn reconcile(&mut self, opened: &Opened) {
        let Opened { log, report, replayed } = opened;
        if let Some(last) = report.ended_before_checkpoint {
            assert!(last < self.checkpoint.last() && self.last_durable() <= last);
            assert_eq!(log.tail().next, self.checkpoint.next);
            self.batches.clear();
            self.durable = 0;
            self.checkpoint = log.tail();
            return;
        }
        // What the checkpoint covers is not replayed; empty batches at its end may be.
        let covered = |seen: &&Seen| seen.next() <= self.checkpoint.next;
        let behind = match replayed.first() {
            Some(first) => self.batches.iter().take_while(|seen| seen.epoch < first.epoch).count(),
            None => self.batches.iter().take_while(covered).count(),
        };
        assert!(self.batches[..behind].iter().all(|seen| covered(&seen)));
        assert!(replayed.iter().all(|seen| !covered(&seen) || seen.requests.is_empty()));
        let expected = &self.batches[behind..];
        let kept = replayed.len().min(expected.len());
        assert_eq!(replayed[..kept], expected[..kept]);
        assert!(
            behind + kept >= self.durable,
            "{} batches were durable, {} survive",
            self.durable,
            behind + kept
        );
        let more = &replayed[kept..];
        assert!(
            more.is_empty() || self.failed.iter().any(|failed| failed.starts_with(more)),
            "nobody appended {more:?}"
        );
        self.batches.truncate(behind + kept);
        self.batches.extend_from_slice(more);
        // An empty batch that a checkpoint covers has no position, so it can be lost unnoticed; its time
        // cannot.
        while self.batches.len() > self.durable
            && self.batches.last().is_some_and(|seen| seen.epoch > log.tail().epoch)
        {
            let lost = self.batches.pop().unwrap();
            assert!(lost.requests.is_empty() && lost.next() == self.checkpoint.next);
        }
        let time_ms = self.tail().time_ms.max(self.checkpoint.time_ms);
        assert_eq!(log.tail(), Tail { time_ms, ..self.tail() });
        self.durable = self.batches.len();
        self.failed.clear();
    }
}

struct Run {
    rng: Xoshiro256PlusPlus,
    disk: VirtualDisk,
    options: LogOptions,
    model: Model,
    log: Option<Log<VirtualDisk>>,
    source: Source,
    /// Tickets that are out, with how many batches of the model each covers.
    tickets: Vec<(SyncTicket<VirtualDisk>, usize)>,
    crashed: u64,
    cuts: u64,
    rotations: u64,
    reborn: u64,
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let segment_bytes = [4_096, 6_000, 10_000, 40_000][rng.random_range(0..4)];
        let mut run = Run {
            rng,
            disk: VirtualDisk::new(seed),
            options: options(segment_bytes),
            model: Model::default(),
            log: None,
            source: Source::new(seed, Tail::ORIGIN),
            tickets: Vec::new(),
            crashed: 0,
            cuts: 0,
            rotations: 0,
            reborn: 0,
        };
        run.reopen();
        run
    }

    fn reopen(&mut self) {
        self.log = None;
        self.tickets.clear();
        self.options.boot_id = self.rng.random();
        self.options.checkpoint = self.model.checkpoint;
        if self.rng.random_bool(0.2) {
            // A crash in the middle of a recovery: the disk stops obeying there, and the machine is started
            // once more.
            self.disk.fill_up_after(self.rng.random_range(0..20_000));
            self.disk.fail_sync_after(self.rng.random_range(0..4));
            drop(open(&self.disk, self.options));
            self.disk.crash();
        }
        self.disk.obey();
        let opened = open(&self.disk, self.options).unwrap_or_else(|error| panic!("{error}"));
        self.model.reconcile(&opened);
        self.cuts += u64::from(opened.report.cut.is_some());
        self.reborn += u64::from(opened.report.ended_before_checkpoint.is_some());
        drop(opened.log);

        // Once more: nothing is left to be cut, and the same comes out.
        self.options.checkpoint = self.model.checkpoint;
        let again = open(&self.disk, self.options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again.report.cut, None);
        self.model.reconcile(&again);
        assert_eq!(again.log.status().durable, again.log.tail().last());
        self.source.sequencer = order::Sequencer::new(again.log.tail());
        self.log = Some(again.log);
    }

    fn append(&mut self) {
        let log = self.log.as_mut().unwrap();
        let mut records = Vec::new();
        let group: Vec<Seen> =
            (0..self.rng.random_range(1..4)).map(|_| self.source.batch(&mut records)).collect();
        loop {
            match log.append(&mut records) {
                Ok(appended) => {
                    assert_eq!(appended.position, log.tail().last());
                    self.rotations += u64::from(appended.rotated);
                    self.model.batches.extend(group);
                    self.model.failed.clear();
                    return;
                }
                Err(error) => {
                    self.model.failed.push(group.clone());
                    if error.kind() == std::io::ErrorKind::StorageFull && self.rng.random_bool(0.5) {
                        self.disk.make_space();
                        continue;
                    }
                    // Give the batches up: others take their place.
                    self.source.sequencer = order::Sequencer::new(log.tail());
                    return;
                }
            }
        }
    }

    fn step(&mut self) {
        let log = self.log.as_mut().unwrap();
        match self.rng.random_range(0..100) {
            0..50 => self.append(),
            50..65 => {
                let covers = self.model.batches.len();
                self.tickets.extend(log.sync_ticket().map(|ticket| (ticket, covers)));
            }
            65..80 if !self.tickets.is_empty() => {
                let (ticket, covers) = self.tickets.swap_remove(self.rng.random_range(0..self.tickets.len()));
                if let Ok(synced) = ticket.sync() {
                    log.synced(synced);
                    self.model.durable = self.model.durable.max(covers);
                    assert!(log.status().durable >= self.model.last_durable());
                }
            }
            80..84 => drop(log.write_marker()),
            84..87 => drop(log.preparer().prepare_next()),
            87..90 => {
                // With syncs of its own behind it, a checkpoint may be ahead of what the log made durable.
                let ahead = self.rng.random_bool(0.3);
                let upto = if ahead { self.model.batches.len() } else { self.model.durable };
                if let Some(seen) = self.model.batches[..upto].last()
                    && seen.epoch > self.model.checkpoint.epoch
                {
                    self.model.checkpoint = seen.tail();
                }
            }
            90..92 => drop(log.truncate_before(self.model.checkpoint.next)),
            92 => self.disk.fill_up_after(self.rng.random_range(0..5_000)),
            93 => self.disk.fail_write_after(self.rng.random_range(0..500)),
            94 => self.disk.fail_sync_after(self.rng.random_range(0..5)),
            95..97 => {
                self.disk.crash();
                self.crashed += 1;
                self.reopen();
            }
            97 => self.reopen(), // the process was killed, the machine stays up
            _ => self.disk.make_space(),
        }
    }
}

#[test]
fn what_was_synced_survives_any_history() {
    let mut totals = [0; 4];
    for seed in seeds(400) {
        println!("ORDO_SEED={seed}");
        let mut run = Run::new(seed);
        for _ in 0..300 {
            run.step();
        }
        for (total, count) in totals.iter_mut().zip([run.crashed, run.cuts, run.rotations, run.reborn]) {
            *total += count;
        }
    }
    println!("crashes, cuts, rotations, logs begun anew: {totals:?}");
    assert!(
        std::env::var("ORDO_SEED").is_ok() || totals.iter().all(|&total| total > 20),
        "a history that never happens"
    );
}
