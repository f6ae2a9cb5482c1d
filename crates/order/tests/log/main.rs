//! The log on a disk that loses, tears and flips: what was synced survives, what was damaged is refused.
//!
//! The virtual disk is the simulator's own source file rather than its crate, which needs every other crate
//! of the house.

extern crate ordo_order as order;

#[path = "../../../sim/src/disk.rs"]
#[allow(dead_code, reason = "the simulator uses the rest")]
mod virtual_disk;

mod crashes;
mod damage;
mod faults;
mod journal;
mod reader;

use order::{Batch, Log, LogOptions, OpenError, Report, Sequencer, Tail};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;
use txn::{Args, Epoch, FnProcedure, Position, Registry, Reply, Request, RequestId, SessionId};
use virtual_disk::VirtualDisk;

/// A batch as tests compare it.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    epoch: Epoch,
    time_ms: u64,
    first: Position,
    digest: u64,
    requests: Vec<(RequestId, u32, Args)>,
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Seen { epoch, first, digest, requests, .. } = self;
        write!(f, "{}:{first:?}+{}/{digest:x}", epoch.0, requests.len())
    }
}

impl Seen {
    fn of(batch: &Batch) -> Seen {
        let requests =
            batch.requests.iter().map(|request| (request.id, request.slots_version, request.args.clone()));
        Seen {
            epoch: batch.epoch,
            time_ms: batch.time_ms,
            first: batch.first,
            digest: batch.digest,
            requests: requests.collect(),
        }
    }

    fn next(&self) -> Position {
        self.first.advanced(self.requests.len() as u64)
    }

    fn tail(&self) -> Tail {
        Tail { epoch: self.epoch, next: self.next(), time_ms: self.time_ms, digest: self.digest }
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    let procedure = FnProcedure::new("note", |_tx, _call| async { Ok(Reply::OK) });
    registry.register(Arc::new(procedure)).unwrap();
    registry
}

/// What a log was opened with, and what it gave.
struct Opened {
    log: Log<VirtualDisk>,
    report: Report,
    replayed: Vec<Seen>,
}

fn open(disk: &VirtualDisk, options: LogOptions) -> Result<Opened, OpenError> {
    let mut replayed = Vec::new();
    let disk = Arc::new(disk.clone());
    let (log, report) = Log::open(disk, options, &registry(), &mut |batch| replayed.push(Seen::of(&batch)))?;
    assert_eq!(report.tail, log.tail());
    assert_eq!(report.batches, replayed.len() as u64);
    Ok(Opened { log, report, replayed })
}

fn options(segment_bytes: u64) -> LogOptions {
    LogOptions { segment_bytes, boot_id: 7, checkpoint: Tail::ORIGIN }
}

/// Makes random batches.
struct Source {
    rng: Xoshiro256PlusPlus,
    registry: Registry,
    sequencer: Sequencer,
    sequence: u64,
    now_ms: u64,
}

impl Source {
    fn new(seed: u64, tail: Tail) -> Source {
        Source {
            rng: Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x5eed),
            registry: registry(),
            sequencer: Sequencer::new(tail),
            sequence: 0,
            now_ms: 1_000,
        }
    }

    /// A request with `len` random bytes.
    fn request(&mut self, len: usize) -> Arc<Request> {
        let bytes: Vec<u8> = (0..len).map(|_| self.rng.random()).collect();
        self.request_with([&bytes[..len / 2], &bytes[len / 2..]])
    }

    fn request_with<const N: usize>(&mut self, args: [&[u8]; N]) -> Arc<Request> {
        self.sequence += 1;
        let session = SessionId(self.rng.random_range(0..1_000_000));
        let id = RequestId { session, sequence: self.sequence, attempt: self.rng.random_range(0..3) };
        let procedure = self.registry.by_name("note").unwrap().clone();
        let mut request = Request::new(id, procedure, Args::from_iter(args));
        request.slots_version = self.rng.random_range(0..5);
        Arc::new(request)
    }

    /// Appends a random batch's record to `records`.
    fn batch(&mut self, records: &mut Vec<u8>) -> Seen {
        let count = [0, 1, 1, 2, 5][self.rng.random_range(0..5)];
        let requests = (0..count)
            .map(|_| {
                let len = match self.rng.random_range(0..20) {
                    0 => self.rng.random_range(0..9_000),
                    _ => self.rng.random_range(0..120),
                };
                self.request(len)
            })
            .collect();
        // Clocks go back now and then.
        self.now_ms = self.now_ms.saturating_add_signed(self.rng.random_range(-3..10));
        Seen::of(&self.sequencer.sequence(requests, self.now_ms, records).unwrap())
    }
}

/// The seeds of a randomized test: the one in ORDO_SEED; else ORDO_SEEDS of them, or `count`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("ORDO_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..number("ORDO_SEEDS").unwrap_or(count) + 1,
    }
}
