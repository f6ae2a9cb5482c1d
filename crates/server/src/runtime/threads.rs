//! The runtime's own threads.
//!
//! | thread | waits for | does |
//! |---|---|---|
//! | executor, one for each worker | a permit | steps the engine, heavy requests included |
//! | read, one for each worker | requests | reads at snapshots that take long, scripts mostly |
//! | sync | tickets | makes the log durable; under `always` that confirms |
//! | files | log rotations, checkpoints | prepares the next segment, removes old ones |
//! | checkpoint | jobs | writes a snapshot to a file |
//! | tick | 100 ms | the node's clock: everysec, expiry, retries; collects old versions |
//!
//! A panic in one of them (a bug) halts the node with a clear text rather than leave its clients waiting.

use super::Inner;
use super::core::FileWork;
use super::port::Replies;
use crate::disk::RealDisk;
use execute::snapshot::panic_text;
use execute::{Budget, Progress, ReadOutcome, SnapshotReader, WorkerId};
use node::{CheckpointJob, Event};
use order::{Preparer, SyncTicket};
use parking_lot::Mutex;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::{Request, Stop};

const TICK: Duration = Duration::from_millis(100);
/// Operations between two looks at the flags, and between two deliveries of replies.
pub(super) const STEP: Budget = Budget {
    operations: 4096,
    heavy: true,
};
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
    std::thread::Builder::new()
        .name(format!("ordo-{name}"))
        .spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&inner))) {
                inner.halt(&format!(
                    "thread {thread_name} panicked: {}",
                    panic_text(&*panic)
                ));
            }
        })
}

pub(super) fn executor(inner: &Arc<Inner>, worker: WorkerId) {
    let mut replies = Replies::default();
    let mut step = || {
        let progress = inner.engine.step(worker, STEP, &mut replies);
        inner.after_step(&mut replies, None);
        progress == Progress::Worked
    };
    loop {
        while step() {}
        if !inner.bed.sleep(&mut step) || inner.halted.get().is_some() {
            return;
        }
    }
}

pub(super) fn reader(
    inner: &Arc<Inner>,
    jobs: &Mutex<Receiver<Arc<Request>>>,
    mut reader: SnapshotReader,
) {
    let mut replies = Replies::default();
    loop {
        // One reader waits for the next job, the others for the lock.
        let job = jobs.lock().recv();
        let Ok(request) = job else { return };
        let outcome = match reader.run(&request, inner.now_ms()) {
            ReadOutcome::Done(outcome) => outcome,
            ReadOutcome::MustOrder => Err(Stop::Restart),
            ReadOutcome::Interrupted => Err(super::KILLED),
        };
        replies.push(request.id, outcome);
        inner.ports.put(&mut replies, None);
    }
}

pub(super) fn sync(inner: &Arc<Inner>, tickets: &Receiver<SyncTicket<RealDisk>>) {
    while let Ok(ticket) = tickets.recv() {
        let synced = ticket.sync();
        let outcome = {
            let mut core = inner.core.lock();
            let event = match synced {
                Ok(synced) => {
                    core.log.synced(synced);
                    Event::LogSynced(synced.position)
                }
                Err(error) => Event::LogSyncFailed(error.to_string()),
            };
            core.handle(event, inner.now_ms())
        };
        inner.follow(outcome, None);
        inner.progress.notify_all();
    }
}

pub(super) fn files(inner: &Arc<Inner>, work: &Receiver<FileWork>, preparer: &Preparer<RealDisk>) {
    while let Ok(work) = work.recv() {
        match work {
            FileWork::Prepare => {
                if let Err(error) = preparer.prepare_next() {
                    tracing::warn!("{error}; the log tries again when it needs the segment");
                }
            }
            FileWork::Truncate(position) => {
                let truncation = inner.core.lock().log.truncation(position);
                match truncation.map(|truncation| truncation.run()) {
                    Some(Ok(truncated)) => inner.core.lock().log.truncated(truncated),
                    Some(Err(error)) => {
                        tracing::warn!("{error}; it is tried again after the next checkpoint");
                    }
                    None => {}
                }
            }
        }
    }
}

pub(super) fn checkpoint(inner: &Arc<Inner>, jobs: &Receiver<CheckpointJob>) {
    while let Ok(job) = jobs.recv() {
        let started = Instant::now();
        let result = job.write(&*inner.disk, || sync_log(inner));
        let event = match result {
            Ok(written) => {
                let elapsed_ms = started.elapsed().as_millis();
                tracing::info!(
                    "wrote a checkpoint at position {}: {} records, {} bytes, {elapsed_ms} ms",
                    written.position,
                    written.records,
                    written.bytes
                );
                Event::CheckpointWritten(written)
            }
            Err(failed) => Event::CheckpointFailed(failed),
        };
        let outcome = inner.core.lock().handle(event, inner.now_ms());
        inner.follow(outcome, None);
        inner.progress.notify_all();
    }
}

/// Makes the log durable on this thread. The node learns of it when its own next sync finds nothing to do; of a failure
/// at once.
fn sync_log(inner: &Arc<Inner>) -> io::Result<()> {
    let ticket = inner.core.lock().log.sync_ticket();
    let Some(ticket) = ticket else { return Ok(()) };
    match ticket.sync() {
        Ok(synced) => {
            inner.core.lock().log.synced(synced);
            Ok(())
        }
        Err(error) => {
            let event = Event::LogSyncFailed(error.to_string());
            let outcome = inner.core.lock().handle(event, inner.now_ms());
            inner.follow(outcome, None);
            Err(error)
        }
    }
}

pub(super) fn tick(inner: &Arc<Inner>) {
    let mut collected_at = inner.engine.view().final_position();
    let mut to_collect = 0;
    loop {
        {
            let mut stopping = inner.stopping.lock();
            if !*stopping {
                inner.stop_asked.wait_for(&mut stopping, TICK);
            }
            if *stopping {
                return;
            }
        }
        loop {
            let outcome = inner.core.lock().handle(Event::Tick, inner.now_ms());
            let again = outcome.tick_again;
            inner.follow(outcome, None);
            if !again {
                break;
            }
        }
        // Collection keeps pace with the commits: every commit leaves about one version behind, and a sweep also
        // looks at records that have nothing to collect.
        let view = inner.engine.view();
        let position = view.final_position();
        to_collect = (to_collect + 2 * (position.0 - collected_at.0)).min(COLLECT_BACKLOG_MAX);
        collected_at = position;
        let started = Instant::now();
        while to_collect > 0 && started.elapsed() < COLLECT_MAX {
            let looked_at = view.collect(COLLECT_RECORDS) as u64;
            to_collect = if looked_at == 0 {
                0
            } else {
                to_collect.saturating_sub(looked_at)
            };
        }
    }
}
