//! The runtime's own threads.
//!
//! | thread | waits for | does |
//! |---|---|---|
//! | executor, one for each worker | a permit | steps the engine, heavy requests included |
//! | read, 16, or one for each worker | requests, its turn | reads at snapshots that take long, scripts mostly: see `turns` |
//! | sync | tickets | makes the log durable; under `always` that confirms |
//! | sync-aside | WAITAOF | makes the log durable for who asks, all of them at once |
//! | files | log rotations, checkpoints | prepares the next segment, removes old ones, misses those that others removed |
//! | checkpoint | jobs | writes a snapshot to a file |
//! | tick | 100 ms, or a tick of the cluster | the node's clock: everysec, expiry, retries; collects old versions |
//!
//! A panic in one of them (a bug) halts the node with a clear text rather than leave its clients waiting.

use super::core::FileWork;
use super::port::Replies;
use super::removed::{LOOK_EVERY, RemovedSegments};
use super::turns::Taker;
use super::{Inner, LongRead};
use crate::cluster::ChangeAnswer;
use crate::disk::RealDisk;
use crate::observe::{CHECKPOINT, FSYNC, FSYNC_ALWAYS};
use execute::snapshot::panic_text;
use execute::{Budget, Engine, Progress, ReadOutcome, SnapshotReader, WorkerId};
use log::{Preparer, SyncTicket};
use node::FsyncPolicy;
use node::cluster::{ClusterCheckpoint, Written};

use node::host::{HostEvent, serve_piece, store_piece};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use store::SHARDS;
use txn::{Position, Stop};

/// Operations between two looks at the flags, and between two deliveries of replies.
pub(super) const STEP: Budget = Budget { operations: 4096, heavy: true };
/// How long a tick may collect old versions.
const COLLECT_MAX: Duration = Duration::from_millis(2);
/// Records that wait to be looked at, at most: a sweep of everything, and then some.
const COLLECT_BACKLOG_MAX: u64 = 1 << 22;
/// Records that one collection step looks at.
const COLLECT_RECORDS: usize = 1024;

/// Starts a thread whose panics halt the node.
pub(super) fn start(
    inner: &Arc<Inner>,
    name: &str,
    body: impl FnOnce(&Arc<Inner>) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let inner = inner.clone();
    let thread_name = name.to_owned();
    std::thread::Builder::new().name(format!("ordo-{name}")).spawn(move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&inner))) {
            inner.halt(&format!("thread {thread_name} panicked: {}", panic_text(&*panic)));
        }
    })
}

pub(super) fn executor(inner: &Arc<Inner>, worker: WorkerId) {
    let mut replies = Replies::default();
    let mut step = || {
        let progress = inner.engines.step(worker, STEP, &mut replies);
        inner.after_step(&mut replies, None);
        progress == Progress::Worked
    };
    loop {
        while step() {}
        if !inner.parking.sleep(&mut step) || inner.halted.get().is_some() {
            return;
        }
    }
}

pub(super) fn reader(
    inner: &Arc<Inner>,
    jobs: &Mutex<Receiver<LongRead>>,
    mut readers: Vec<SnapshotReader>,
    taker: &Taker,
) {
    let mut replies = Replies::default();
    loop {
        // One reader waits for the next job, the others for the lock.
        let job = jobs.lock().recv();
        let Ok(job) = job else { return };
        let turn = taker.take();
        let request = &job.request;
        let partition = request.route.partitions.first().copied();
        let place = partition.and_then(|partition| inner.engines.place(partition));
        let read = match place {
            Some(place) => inner.read_long(&mut readers[place], &job),
            None => Some(ReadOutcome::MustOrder),
        };
        let Some(read) = read else { continue };
        let outcome = match read {
            ReadOutcome::Done(outcome) => outcome,
            ReadOutcome::MustOrder => Err(Stop::Restart),
            ReadOutcome::Interrupted => Err(super::KILLED),
        };
        drop(turn);
        replies.push(request.id, outcome);
        inner.ports.put(&mut replies, None);
    }
}

pub(super) fn sync(inner: &Arc<Inner>, tickets: &Receiver<SyncTicket<RealDisk>>) {
    while let Ok(ticket) = tickets.recv() {
        let began = Instant::now();
        let synced = ticket.sync();
        inner.log_syncs.add(began.elapsed());
        let event = match inner.fsync {
            FsyncPolicy::Always => FSYNC_ALWAYS,
            _ => FSYNC,
        };
        inner.note_latency(event, began);
        let outcome = inner.core.lock().synced(synced, inner.now_ms());
        inner.follow(outcome, None);
        inner.progress.notify_all();
    }
}

pub(super) fn sync_aside(inner: &Arc<Inner>, asked: &Receiver<ChangeAnswer>) {
    while sync_for_all(inner, asked) {}
}

/// Waits for somebody who asks for a sync, and answers with it all who have asked before it begins. False
/// once nobody can ask any more.
pub(super) fn sync_for_all(inner: &Arc<Inner>, asked: &Receiver<ChangeAnswer>) -> bool {
    let Ok(first) = asked.recv() else {
        return false;
    };
    let answers: Vec<ChangeAnswer> = std::iter::once(first).chain(asked.try_iter()).collect();
    let outcome = match sync_log(inner) {
        Ok(()) => Ok(String::new()),
        Err(error) => Err(format!("the log cannot be synced: {error}")),
    };
    for answer in answers {
        answer.answer(outcome.clone());
    }
    true
}

pub(super) fn files(inner: &Arc<Inner>, work: &Receiver<FileWork>, preparer: &Preparer<RealDisk>) {
    let mut removed = RemovedSegments::default();
    let mut looked = Instant::now();
    loop {
        let work = match work.recv_timeout(LOOK_EVERY) {
            Ok(work) => Some(work),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            removed.look(inner);
        }
        let Some(work) = work else { continue };
        match work {
            FileWork::Prepare => {
                if let Err(error) = preparer.prepare_next() {
                    tracing::warn!("{error}; the log tries again when it needs the segment");
                }
            }
            FileWork::MakeRoom => {
                // It asks again, and its operator knows.
                if preparer.prepare_next().is_ok() {
                    pass(inner, HostEvent::RoomMade);
                }
            }
            FileWork::Prune(needed) => {
                if let Err(error) = node::cluster::checkpoint::prune(&*inner.disk, &needed) {
                    tracing::warn!("old checkpoints could not be removed: {error}");
                }
                let truncation = inner.core.lock().truncation();
                match truncation.map(|truncation| truncation.run()) {
                    Some(Ok(truncated)) => inner.core.lock().truncated(truncated),
                    Some(Err(error)) => {
                        tracing::warn!("{error}; it is tried again after the next checkpoint");
                    }
                    None => {}
                }
            }
            FileWork::Read(to, piece) => match serve_piece(&*inner.disk, to, piece) {
                Ok(event) => pass(inner, event),
                Err(error) => {
                    tracing::warn!("a checkpoint that {to} wants cannot be read: {error}");
                }
            },
            FileWork::Write(piece, bytes, whole) => {
                pass(inner, store_piece(&*inner.disk, piece, &bytes, whole));
            }
        }
    }
}

/// Passes an event to the node.
fn pass(inner: &Arc<Inner>, event: HostEvent) {
    let outcome = inner.core.lock().handle(event, inner.now_ms());
    inner.follow(outcome, None);
}

pub(super) fn checkpoint(inner: &Arc<Inner>, jobs: &Receiver<ClusterCheckpoint>) {
    while let Ok(job) = jobs.recv() {
        let started = Instant::now();
        let changes = inner.engines.changes();
        let epoch = job.epoch();
        let written = job.write(&*inner.disk);
        inner.note_latency(CHECKPOINT, started);
        let event = match written {
            Ok(Written { records, bytes }) => {
                let elapsed_ms = started.elapsed().as_millis();
                tracing::info!(
                    "wrote a checkpoint of epoch {}: {records} records, {bytes} bytes, {elapsed_ms} ms",
                    epoch.0
                );
                inner.engines.checkpoint_written(changes);
                HostEvent::CheckpointWritten { epoch, bytes }
            }
            Err(error) => HostEvent::CheckpointFailed(error.to_string()),
        };
        pass(inner, event);
        inner.progress.notify_all();
    }
}

/// Makes the log durable on this thread. The node learns of it when its own next sync finds nothing to do; of
/// a failure at once.
fn sync_log(inner: &Arc<Inner>) -> io::Result<()> {
    let ticket = inner.core.lock().sync_ticket();
    let Some(ticket) = ticket else { return Ok(()) };
    match ticket.sync() {
        Ok(synced) => {
            inner.core.lock().note_synced(synced);
            Ok(())
        }
        Err(error) => {
            let failed = io::Error::new(error.kind(), error.to_string());
            let outcome = inner.core.lock().synced(Err(failed), inner.now_ms());
            inner.follow(outcome, None);
            Err(error)
        }
    }
}

pub(super) fn tick(inner: &Arc<Inner>, every: Duration) {
    let mut collectors: Vec<Collector> =
        inner.engines.iter().map(|engine| Collector::new(engine.clone())).collect();
    loop {
        {
            let mut stopping = inner.stopping.lock();
            if !*stopping {
                inner.stop_asked.wait_for(&mut stopping, every);
            }
            if *stopping {
                return;
            }
        }
        let outcome = inner.tick();
        inner.ticks.fetch_add(1, Ordering::Relaxed);
        inner.follow(outcome, None);
        inner.give_up_strict_reads();
        inner.look_at_map();
        inner.look_at_replay();
        inner.keep_history();
        inner.progress.notify_all();
        let keeps_past = inner.keeps_past();
        for collector in &mut collectors {
            if collector.collect(keeps_past) {
                // Workers keep lists of what they made garbage, and those that sleep do not look at them.
                inner.parking.wake(inner.workers);
            }
        }
    }
}

/// Collects one engine's old versions. Collection keeps pace with the watermark: every transaction that it
/// passes leaves about one version behind, and a sweep also looks at records that have nothing to collect.
///
/// While a past is kept, the watermark is far behind the commits, and passes their versions when nobody may
/// write any more: then nothing but a sweep of all records finds the versions.
struct Collector {
    engine: Arc<dyn Engine>,
    /// The watermark when it collected last.
    at: Position,
    /// Records that it should still look at.
    owed: u64,
    /// Whether a past was kept when it collected last.
    keeps_past: bool,
    /// It looks at records until the view has swept so many shards.
    sweeps_upto: usize,
}

impl Collector {
    fn new(engine: Arc<dyn Engine>) -> Collector {
        let (at, sweeps_upto) = (engine.view().watermark(), engine.view().swept());
        Collector { engine, at, owed: 0, keeps_past: false, sweeps_upto }
    }

    /// Collects for a while. Says whether the watermark has passed versions of a past.
    fn collect(&mut self, keeps_past: bool) -> bool {
        let view = self.engine.view();
        let watermark = view.watermark();
        let passed = watermark.0 - self.at.0;
        self.owed = (self.owed + 2 * passed).min(COLLECT_BACKLOG_MAX);
        self.at = watermark;
        // The last of a past goes after it has ended.
        let is_past = passed > 0 && (keeps_past || self.keeps_past);
        self.keeps_past = keeps_past;
        if is_past {
            self.sweeps_upto = view.swept() + SHARDS;
        }
        let started = Instant::now();
        while (self.owed > 0 || view.swept() < self.sweeps_upto) && started.elapsed() < COLLECT_MAX {
            let looked_at = view.collect(COLLECT_RECORDS) as u64;
            let has_seen_all = looked_at < COLLECT_RECORDS as u64;
            self.owed = if has_seen_all { 0 } else { self.owed.saturating_sub(looked_at) };
        }
        is_past
    }
}
