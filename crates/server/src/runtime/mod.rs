//! Runs one node for real: files, a clock and threads. No sockets: whoever has requests submits them here.
//!
//! # Who does what
//!
//! The thread that has requests does as much as it can for them by itself: [`Runtime::submit`] orders them, delivers them
//! to the engine and appends them to the log; [`Runtime::help`] runs them; the replies are in its [`Port`] then. So a lone
//! command is parsed, ordered, executed and answered on one thread, with one lock taken, one write and no hand-off. Other
//! threads come in where waiting would stop the caller:
//!
//! * *Executors* run heavy requests (scripts), and light ones when there are more than callers get through.
//! * Under `always` the *sync* thread makes the log durable, and then wakes the ports that wait; their owners final-commit
//!   and answer.
//! * Segments, checkpoints and the clock's ticks have a thread each.
//!
//! # Waking
//!
//! Nobody spins and nobody is forgotten. Work appears by a delivery, a confirmation, or another worker's step. Who
//! delivers or confirms either steps the engine next or wakes somebody who does (`Inner::follow`); who stops stepping
//! without running heavy requests wakes an executor if there are any left.
//!
//! # Reads
//!
//! [`Runtime::read`] runs a read-only request at the newest final snapshot on the calling thread, without the order;
//! [`Runtime::read_aside`] leaves a heavy one to a *reader* thread, where it holds up neither its caller nor a writer.
//! [`Runtime::interrupt_reads`] stops what takes long there.

mod cluster;
mod core;
mod executors;
mod options;
mod port;
mod status;
#[cfg(test)]
mod tests;
mod threads;

pub use cluster::Membership;
pub use execute::ReadOutcome;
pub use node::{FsyncPolicy, Limits, RecoverError, RecoveryReport, Refused};
pub use options::{EngineFactory, HaltHook, RuntimeOptions, StartError};
pub use port::{Answer, Port};
pub use status::RuntimeStatus;

use self::core::{Core, FileWork, Hands};
use crate::disk::RealDisk;
use execute::snapshot::panic_text;
use execute::{Budget, Engine, Interrupt, Progress, SnapshotReader, WorkerId};
use executors::Bed;
use node::{Event, Recovered};
use parking_lot::{Condvar, Mutex};
use port::{PortShared, Ports, Replies};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::{Position, Registry, Request, Stop};

/// What a caller runs at a time on behalf of light requests.
const HELP: Budget = Budget {
    operations: 4096,
    heavy: false,
};
/// What the client of an interrupted read gets.
pub const KILLED: Stop = Stop::Abort(std::borrow::Cow::Borrowed(
    "ERR Script killed by user with SCRIPT KILL.",
));
/// After so many steps a helper looks at its sockets again.
const HELP_STEPS_MAX: u32 = 64;
/// An executor is woken for light requests beyond so many: fewer are done before it is awake.
const LIGHT_SURPLUS: u64 = 1024;
/// How long a shutdown waits for transactions to end. What does not is in the log, and is replayed at the next start.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// A running node. Dropping it stops its threads.
pub struct Runtime {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    membership: OnceLock<Arc<dyn Membership>>,
}

/// What the runtime's threads share.
struct Inner {
    engine: Arc<dyn Engine>,
    core: Mutex<Core>,
    ports: Arc<Ports>,
    bed: Bed,
    /// Stops what the reader threads run.
    interrupts: Vec<Interrupt>,
    /// What they are to run; `None` once they are to end.
    reads: Mutex<Option<mpsc::Sender<Arc<Request>>>>,
    disk: Arc<RealDisk>,
    workers: usize,
    fsync: FsyncPolicy,
    /// Somebody was told to come back when there is room.
    starved: AtomicBool,
    /// Why the node stopped for good, if a bug made it.
    halted: OnceLock<Arc<str>>,
    on_halt: Option<HaltHook>,
    /// Ends the tick thread.
    stopping: Mutex<bool>,
    stop_asked: Condvar,
    /// Signalled after syncs and checkpoints, with `core`.
    progress: Condvar,
}

impl Inner {
    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64)
    }

    /// Delivers replies, and tells those who wait for room that there may be some.
    fn after_step(&self, replies: &mut Replies, own: Option<&PortShared>) {
        self.ports.put(replies, own);
        if self.starved.load(Ordering::SeqCst) && self.starved.swap(false, Ordering::SeqCst) {
            self.ports.notify_all();
        }
    }

    /// Sees to what an event made possible. `own` is the port of a caller that steps the engine next.
    fn follow(&self, outcome: core::Outcome, own: Option<&PortShared>) {
        if !outcome.refused.is_empty() {
            let mut replies = Replies::default();
            for (id, answer) in outcome.refused {
                replies.push(id, answer);
            }
            self.ports.put(&mut replies, own);
        }
        if outcome.notify_all {
            self.ports.notify_all();
        }
        if outcome.step && own.is_none() && !self.ports.notify_waiting() {
            self.bed.wake(1);
        }
    }

    /// Wakes executors for what callers leave to them.
    fn wake_executors(&self) {
        let waiting = self.engine.waiting();
        let light = if waiting.light > LIGHT_SURPLUS {
            waiting.light / LIGHT_SURPLUS
        } else {
            0
        };
        let count = waiting.heavy.saturating_add(light).min(self.workers as u64);
        if count > 0 {
            self.bed.wake(count as usize);
        }
    }

    /// Stops for good after a bug: in-memory state may be wrong, the files are not touched any more.
    /// Returns what clients are told.
    fn halt(&self, what: &str) -> Arc<str> {
        let text = format!(
            "MISCONF the server stopped because of a bug ({what}): restart it, nothing that was acknowledged is lost; and \
             please report this"
        );
        if self.halted.set(text.as_str().into()).is_ok() {
            tracing::error!("{text}");
            if let Some(on_halt) = &self.on_halt {
                on_halt(&text);
            }
        }
        self.bed.stop();
        self.ports.notify_all();
        self.progress.notify_all();
        self.halted.get().cloned().unwrap_or_else(|| text.into())
    }
}

impl Runtime {
    /// Recovers the node in a directory and starts its threads.
    pub fn start(
        options: RuntimeOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let started = Instant::now();
        if options.ports == 0 || options.ports > node::session::PORTS_MAX {
            return Err(StartError::Ports(options.ports));
        }
        if options.workers == 0 {
            return Err(StartError::Workers);
        }
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        // One more for the thread that shuts down.
        let worker_ids = options.workers + options.ports + 1;
        let make_engine = options.engine;
        let Recovered {
            node,
            engine,
            log,
            mut report,
        } = node::recover(
            &disk,
            node::NodeOptions {
                fsync: options.fsync,
                limits: options.limits,
                checkpoint_bytes: options.checkpoint_bytes,
                expire: options.expire,
                expire_system: options.expire_system,
            },
            options.segment_bytes,
            log_boot_id(),
            registry,
            &|| make_engine(worker_ids),
        )?;

        let preparer = log.preparer();
        let (sync, tickets) = mpsc::channel();
        let (files, file_work) = mpsc::channel();
        let (checkpoint, jobs) = mpsc::channel();
        let (reads, read_jobs) = mpsc::channel();
        let readers: Vec<_> = (0..options.workers)
            .map(|_| SnapshotReader::new(engine.clone()))
            .collect();
        // The next segment is made while the first is filled.
        let _ = files.send(FileWork::Prepare);
        let ports = Arc::new(Ports::new(options.ports, node.boot()));
        let inner = Arc::new(Inner {
            engine,
            core: Core::new(
                node,
                log,
                Hands {
                    sync,
                    files,
                    checkpoint,
                },
            ),
            ports,
            bed: Bed::default(),
            interrupts: readers.iter().map(SnapshotReader::interrupt).collect(),
            reads: Mutex::new(Some(reads)),
            disk,
            workers: options.workers,
            fsync: options.fsync,
            starved: AtomicBool::new(false),
            halted: OnceLock::new(),
            on_halt: options.on_halt,
            stopping: Mutex::new(false),
            stop_asked: Condvar::new(),
            progress: Condvar::new(),
        });
        let runtime = Arc::new(Runtime {
            inner: inner.clone(),
            threads: Mutex::default(),
            membership: OnceLock::new(),
        });
        let add = |thread: std::io::Result<JoinHandle<()>>| -> Result<(), StartError> {
            runtime
                .threads
                .lock()
                .push(thread.map_err(StartError::Thread)?);
            Ok(())
        };
        for worker in 0..options.workers {
            let id = WorkerId(worker);
            add(threads::start(
                &inner,
                &format!("exec-{worker}"),
                move |inner| threads::executor(inner, id),
            ))?;
        }
        let read_jobs = Arc::new(Mutex::new(read_jobs));
        for (number, reader) in readers.into_iter().enumerate() {
            let jobs = read_jobs.clone();
            add(threads::start(
                &inner,
                &format!("read-{number}"),
                move |inner| threads::reader(inner, &jobs, reader),
            ))?;
        }
        add(threads::start(&inner, "sync", move |inner| {
            threads::sync(inner, &tickets)
        }))?;
        add(threads::start(&inner, "files", move |inner| {
            threads::files(inner, &file_work, &preparer)
        }))?;
        add(threads::start(&inner, "checkpoint", move |inner| {
            threads::checkpoint(inner, &jobs)
        }))?;
        add(threads::start(&inner, "tick", threads::tick))?;
        report.elapsed_ms = started.elapsed().as_millis() as u64;
        Ok((runtime, report))
    }

    /// A place where replies arrive, for a thread that calls [`Runtime::help`] and [`Port::drain`] whenever it is woken.
    /// `None` if all ports are taken. `wake` is called by other threads; it must neither block nor call the runtime.
    pub fn port(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<Port> {
        let reader = SnapshotReader::new(self.inner.engine.clone());
        self.inner.ports.open(wake, self.inner.workers, reader)
    }

    /// Submits requests, which become one batch in this order, and empties `requests`; on `Err` they stay there. Each is
    /// answered through the port, in any order. The owner of a port calls [`Runtime::help`] next.
    pub fn submit(&self, port: &Port, requests: &mut Vec<Arc<Request>>) -> Result<(), Refused> {
        let inner = &*self.inner;
        let count = requests.len();
        if count == 0 {
            return Ok(());
        }
        if let Some(text) = inner.halted.get() {
            return Err(Refused::ReadOnly(text.clone()));
        }
        // Before the lock: a reply may arrive before this returns.
        port.shared.add_outstanding(count);
        let submit = |requests: &mut Vec<Arc<Request>>| {
            let ordered = AssertUnwindSafe(|| {
                let mut core = inner.core.lock();
                core.node.raise_boot(inner.ports.boot_last());
                core.submit(requests, inner.now_ms())
            });
            catch_unwind(ordered).unwrap_or_else(|panic| {
                let text = inner.halt(&format!("ordering panicked: {}", panic_text(&*panic)));
                Err(Refused::ReadOnly(text))
            })
        };
        let outcome = submit(requests).or_else(|refused| {
            if refused != Refused::Busy {
                return Err(refused);
            }
            // Room may have been made between the refusal and the flag: look again now that it is set. The owner may have
            // been woken before and not have looked at its port since; what comes from now on must wake it again.
            port.shared.look();
            inner.starved.store(true, Ordering::SeqCst);
            submit(requests)
        });
        match outcome {
            Ok(outcome) => {
                inner.follow(outcome, Some(&port.shared));
                inner.wake_executors();
                Ok(())
            }
            Err(refused) => {
                port.shared.remove_outstanding(count);
                port.shared.remind();
                Err(refused)
            }
        }
    }

    /// Runs light requests on the calling thread until there is nothing to do (or for so long that the port is woken to
    /// go on): the caller's own are answered without a hand-off. Their replies are in the port when this returns.
    pub fn help(&self, port: &Port) {
        let inner = &*self.inner;
        if inner.halted.get().is_some() {
            return;
        }
        let mut replies = port.replies.borrow_mut();
        port.shared.look();
        for _ in 0..HELP_STEPS_MAX {
            let step = AssertUnwindSafe(|| inner.engine.step(port.worker, HELP, &mut *replies));
            let progress = match catch_unwind(step) {
                Ok(progress) => progress,
                Err(panic) => {
                    inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
                    return;
                }
            };
            inner.after_step(&mut replies, Some(&port.shared));
            if progress == Progress::Idle {
                inner.wake_executors();
                return;
            }
        }
        inner.wake_executors();
        port.shared.notify();
    }

    /// Runs a read-only request at the newest final snapshot on the calling thread. It sees every write that was
    /// answered before; a session that waits for the answer of its own write waits, or submits its read instead.
    pub fn read(&self, port: &Port, request: &Arc<Request>) -> ReadOutcome {
        port.reader.borrow_mut().run(request, self.inner.now_ms())
    }

    /// Runs a read-only request at the newest final snapshot on another thread: for reads that take long. It is answered
    /// through the port; with [`txn::Stop::Restart`] if it must be ordered after all. Its session submits nothing before
    /// that, so that the read sees nothing that was sent behind it. False if the node is shutting down: submit it instead.
    pub fn read_aside(&self, port: &Port, request: Arc<Request>) -> bool {
        let reads = self.inner.reads.lock();
        let Some(reads) = &*reads else { return false };
        port.shared.add_outstanding(1);
        let taken = reads.send(request).is_ok();
        if !taken {
            port.shared.remove_outstanding(1);
        }
        taken
    }

    /// Stops the long computations that run at snapshots. Returns whether there was any. Those in the order can't be
    /// stopped: they must end in the same way everywhere.
    pub fn interrupt_reads(&self) -> bool {
        let inner = &*self.inner;
        let stopped = inner
            .interrupts
            .iter()
            .filter(|read| read.interrupt())
            .count();
        inner.ports.interrupt() || stopped > 0
    }

    /// Writes a checkpoint and waits until it is on the disk. Returns its position, or why there is none.
    pub fn checkpoint(&self) -> Result<Position, String> {
        let inner = &*self.inner;
        let before = inner.core.lock().node.status();
        // One that is being written began before the call: what the caller wants in it may be missing there.
        if before.checkpoint_in_progress {
            self.wait_for(None, |status| !status.checkpoint_in_progress);
        }
        let written_before = inner.core.lock().node.status().checkpoints;
        self.start_checkpoint();
        self.wait_for(None, |status| !status.checkpoint_in_progress);
        let status = inner.core.lock().node.status();
        match (status.checkpoints > written_before, inner.halted.get(), status.checkpoint_error) {
            (true, ..) => Ok(status.last_checkpoint),
            (_, Some(text), _) => Err(text.to_string()),
            (.., Some(error)) => Err(error),
            _ => Err("the node takes no checkpoints any more: the log's disk failed, or it is shutting down".to_owned()),
        }
    }

    /// Starts a checkpoint, unless one is being written.
    pub fn start_checkpoint(&self) {
        let outcome = self
            .inner
            .core
            .lock()
            .handle(Event::CheckpointWanted, self.inner.now_ms());
        self.inner.follow(outcome, None);
    }

    /// Waits until the node's status satisfies `done`, the node halts, or the time is over.
    fn wait_for(&self, until: Option<Instant>, done: impl Fn(&node::Status) -> bool) {
        let inner = &*self.inner;
        let mut core = inner.core.lock();
        while !done(&core.node.status()) && inner.halted.get().is_none() {
            match until {
                None => inner.progress.wait(&mut core),
                Some(until) => {
                    if inner.progress.wait_until(&mut core, until).timed_out() {
                        return;
                    }
                }
            }
        }
    }

    /// Ends the node in good order: admits nothing more, lets what is on its way end, makes the log durable, writes a
    /// checkpoint if asked for, and joins the threads. Reads go on being served.
    pub fn shutdown(&self, checkpoint: bool) {
        let inner = &*self.inner;
        let handles = std::mem::take(&mut *self.threads.lock());
        if handles.is_empty() {
            return;
        }
        let until = Instant::now() + DRAIN_MAX;
        let outcome = inner.core.lock().handle(Event::Stop, inner.now_ms());
        inner.follow(outcome, None);
        // Whoever waits for room learns that there will be none.
        inner.ports.notify_all();
        self.drain(until);
        if checkpoint && inner.halted.get().is_none() {
            self.start_checkpoint();
        }
        self.wait_for(None, |status| !status.checkpoint_in_progress);

        *inner.stopping.lock() = true;
        inner.stop_asked.notify_all();
        inner.bed.stop();
        *inner.reads.lock() = None;
        // The threads at the other ends go through what they were sent, and end.
        inner.core.lock().hands = None;
        for handle in handles {
            // Their panics were caught and reported.
            let _ = handle.join();
        }
        let mut core = inner.core.lock();
        let closed = core
            .log
            .sync()
            .and_then(|_| core.log.write_marker())
            .and_then(|_| core.log.sync());
        if let Err(error) = closed {
            tracing::warn!("the log could not be synced at the shutdown: {error}");
        }
    }

    /// Steps the engine until everything has final-committed and is synced.
    fn drain(&self, until: Instant) {
        let inner = &*self.inner;
        let worker = WorkerId(inner.workers + inner.ports.count());
        let mut replies = Replies::default();
        loop {
            inner.bed.wake(inner.workers);
            let step = AssertUnwindSafe(|| {
                while inner.engine.step(worker, HELP, &mut replies) == Progress::Worked {
                    inner.after_step(&mut replies, None);
                }
                inner.after_step(&mut replies, None);
            });
            if let Err(panic) = catch_unwind(step) {
                inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
            }
            let mut core = inner.core.lock();
            if core.node.is_drained() || inner.halted.get().is_some() {
                return;
            }
            // Another worker's commit does not signal: look again soon.
            let soon = Instant::now() + Duration::from_millis(5);
            inner.progress.wait_until(&mut core, soon.min(until));
            if Instant::now() >= until {
                tracing::warn!(
                    "some transactions did not end in time: they are in the log, the next start runs them"
                );
                return;
            }
        }
    }

    /// The wall clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// Why the node stopped for good, if a bug made it: an error reply. Nothing is answered any more then.
    pub fn halted(&self) -> Option<&Arc<str>> {
        self.inner.halted.get()
    }

    /// How many entries were removed since the start because they had expired.
    pub fn expired_keys(&self) -> u64 {
        self.inner.ports.internal_sum()
    }

    /// Counters and places.
    pub fn status(&self) -> RuntimeStatus {
        let core = self.inner.core.lock();
        RuntimeStatus {
            node: core.node.status(),
            log: core.log.status(),
            engine: self.inner.engine.status(),
            fsync: self.inner.fsync,
            engine_name: self.inner.engine.name(),
            workers: self.inner.workers,
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shutdown(false);
    }
}

/// A number that clients cannot guess and that differs at every start: the kernel's, or one of the clock's and this
/// process's numbers where there is none.
fn log_boot_id() -> u64 {
    use std::io::Read;
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => {
            let nanos = SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64);
            txn::hash::mix(nanos ^ txn::hash::mix(u64::from(std::process::id())))
        }
    }
}
