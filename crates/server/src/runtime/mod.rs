//! Runs one node for real: files, a clock and threads. No sockets: whoever has requests submits them here.
//!
//! # Who does what
//!
//! The thread that has requests does as much as it can for them by itself: [`Runtime::submit`] orders them,
//! delivers them to the engine and appends them to the log; [`Runtime::help`] runs them; the replies are in
//! its [`Port`] then. So a lone command is parsed, ordered, executed and answered on one thread, with one
//! lock taken, one write and no hand-off. Other threads come in where waiting would stop the caller:
//!
//! * *Executors* run heavy requests (scripts), and light ones when there are more than callers get through.
//! * Under `always` the *sync* thread makes the log durable, and then wakes the ports that wait; their owners
//!   final-commit and answer.
//! * Segments, checkpoints and the clock's ticks have a thread each.
//!
//! # Waking
//!
//! Nobody spins and nobody is forgotten. Work appears by a delivery, a confirmation, or another worker's
//! step. Who delivers or confirms either steps the engine next or wakes somebody who does (`Inner::follow`);
//! who stops stepping without running heavy requests wakes an executor if there are any left. Who stops
//! before there is nothing left to do first ends the transaction that it has at hand: no other thread can,
//! and all later ones wait for it.
//!
//! # Reads
//!
//! [`Runtime::read`] runs a read-only request at the newest final snapshot on the calling thread, without the
//! order; [`Runtime::read_aside`] leaves a heavy one to a *reader* thread, where it holds up neither its
//! caller nor a writer; readers take turns. [`Runtime::interrupt_reads`] stops what takes long there.

mod backup;
mod certified;
mod cluster;
mod core;
mod engines;
mod executors;
mod history;
mod host;
mod inner;
mod leaders;
mod member;
mod news;
mod options;
mod port;
mod removed;
mod replaying;
mod routing;
mod start;
mod status;
#[cfg(test)]
mod tests;
mod threads;
mod turns;

pub use backup::BackupRead;
pub use certified::{
    CertifiedOptions, CertifiedStatus, GeoPart, GroupStatus, Part, Patience, SiteIdentity, Told, TreePart,
};
pub use cluster::Membership;
pub use execute::ReadOutcome;
pub use history::NO_PAST_OF_CLUSTERS;
pub use news::{NewsItem, NewsListener};
pub use node::{FsyncPolicy, Limits, Refused};
pub use options::{
    EngineFactory, HaltHook, MemberOptions, RecoveryReport, RestartHook, RuntimeOptions, StartError,
};
pub use port::{Answer, Port};
pub use routing::Routing;
pub use status::{MemberStatus, RuntimeStatus};

use self::certified::Certified;
use self::core::Core;
use self::engines::Engines;
use self::member::{Awaited, Outside};
use crate::clock::SteadyClock;
use crate::cluster::ChangeTicket;
use crate::disk::RealDisk;
use crate::observe::{Durations, LatencyEvents};
use execute::snapshot::panic_text;
use execute::{Budget, Engine, Interrupt, Lookups, Needs, Progress, SnapshotReader, WorkerId};
use executors::Parking;
use node::cluster::ClusterEvent;
use order::Skips;
use parking_lot::{Condvar, Mutex};
use port::{Ports, Replies};
use replaying::Replaying;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use txn::fragments::Operation;
use txn::{Entry, Epoch, Key, PartitionId, Position, Request, RequestId, ScanRange, SessionId, Space, Stop};

/// What a caller runs at a time on behalf of light requests.
const HELP: Budget = Budget { operations: 4096, heavy: false };
/// What the client of an interrupted read gets.
pub const KILLED: Stop =
    Stop::Abort(std::borrow::Cow::Borrowed("ERR Script killed by user with SCRIPT KILL."));
/// After so many steps a helper looks at its sockets again.
const HELP_STEPS_MAX: u32 = 64;
/// An executor is woken for light requests beyond so many: fewer are done before it is awake.
const LIGHT_SURPLUS: u64 = 1024;
/// How long the order may take to come to a checkpoint that somebody waits for.
const CHECKPOINT_ORDER_MAX: Duration = Duration::from_secs(30);
/// A node with which nobody agrees for so long asks the others whether it still belongs to the cluster: in
/// one that is well, it does not take as long.
const ASK_OTHERS_FIRST: Duration = Duration::from_secs(2);
/// And then again, after this time.
const ASK_OTHERS: Duration = Duration::from_secs(10);
/// How long a thread that asks looks away, unless it is woken.
const ASK_LOOKS: Duration = Duration::from_millis(100);
/// How often a start that takes long says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How long a shutdown waits for transactions to end. What does not is in the log, and is replayed at the
/// next start.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// A running node. Dropping it stops its threads.
pub struct Runtime {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    membership: OnceLock<Arc<dyn Membership>>,
    /// Where requests go that are certified rather than ordered.
    certified: OnceLock<Arc<Certified>>,
}

/// What the runtime's threads share.
struct Inner {
    clock: SteadyClock,
    /// The epoch time, less the steady time.
    epoch_lead_ms: AtomicI64,
    /// How long old versions are kept, in milliseconds.
    history_ms: AtomicU64,
    engines: Engines,
    core: Mutex<Core>,
    /// The replies of a peer's thread that steps the engines: one at a time.
    peer_worker: Mutex<Replies>,
    /// Reads that wait for a final commit, and whether there are any.
    strict: Mutex<Vec<StrictRead>>,
    strict_waiting: AtomicBool,
    /// How many partitions the cluster has.
    partitions_count: usize,
    outside: Outside,
    /// What is not executed.
    skips: Arc<Skips>,
    /// Until the log has been executed: up to which positions that is, once they are known.
    replaying: Mutex<Option<(Replaying, Option<Vec<Position>>)>>,
    /// How old the data may be that a READONLY connection reads.
    staleness_ms_max: u64,
    /// When a strict read is told that nobody knows.
    request_timeout: Duration,
    ports: Arc<Ports>,
    parking: Parking,
    /// Stops what the reader threads run.
    interrupts: Vec<Interrupt>,
    /// What the readers' runs looked for.
    lookups: Vec<Arc<Lookups>>,
    /// What they are to run; `None` once they are to end.
    reads: Mutex<Option<mpsc::Sender<LongRead>>>,
    disk: Arc<RealDisk>,
    workers: usize,
    fsync: FsyncPolicy,
    /// Events that took long.
    latency: Arc<LatencyEvents>,
    /// How long syncs of the log took.
    log_syncs: Durations,
    /// Somebody was told to come back when there is room.
    starved: AtomicBool,
    /// A node of a cluster has more for the engines than they may have at a time.
    waits_for_room: AtomicBool,
    /// It gets on when no engine has more than this before it.
    room_requests: u64,
    /// Why the node stopped for good, if a bug made it.
    halted: OnceLock<Arc<str>>,
    on_halt: Option<HaltHook>,
    on_restart: Option<RestartHook>,
    on_end: Option<HaltHook>,
    /// Ticks of the node's clock since the start, and the time between two of them.
    ticks: AtomicU64,
    tick: Duration,
    /// Ends the tick thread.
    stopping: Mutex<bool>,
    stop_asked: Condvar,
    /// Signalled after syncs and checkpoints, with `core`.
    progress: Condvar,
}

/// A read that may run once its partition has final-committed up to the position.
struct StrictRead {
    id: RequestId,
    partition: PartitionId,
    position: Position,
    since: Instant,
    /// A reader's thread runs it then. Without this its owner gets [`Stop::Restart`].
    long: Option<LongRead>,
}

/// A read for the readers' threads.
struct LongRead {
    request: Arc<Request>,
    /// The time of the past that it reads, once all transactions up to then are final.
    settled_ms: Option<u64>,
}

impl Runtime {
    /// A place where replies arrive, for a thread that calls [`Runtime::help`] and [`Port::drain`] whenever
    /// it is woken. `None` if all ports are taken. `wake` is called by other threads; it must neither block
    /// nor call the runtime.
    pub fn port(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<Port> {
        let engines = self.inner.engines.iter();
        let readers = engines.cloned().map(SnapshotReader::new).collect();
        self.inner.ports.open(wake, self.inner.workers, readers)
    }

    /// Submits requests, which become one batch in this order, and empties `requests`; on `Err` they stay
    /// there. Each is answered through the port, in any order. The owner of a port calls [`Runtime::help`]
    /// next.
    pub fn submit(&self, port: &Port, requests: &mut Vec<Arc<Request>>) -> Result<(), Refused> {
        let inner = &*self.inner;
        let count = requests.len();
        if count == 0 {
            return Ok(());
        }
        if let Some(text) = inner.halted.get() {
            return Err(Refused::ReadOnly(text.clone()));
        }
        if let Some(certified) = self.certified.get() {
            certified.submit(port, requests);
            return Ok(());
        }
        // Before the lock: a reply may arrive before this returns.
        port.shared.add_outstanding(count);
        let submit = |requests: &mut Vec<Arc<Request>>| {
            let ordered = AssertUnwindSafe(|| {
                let mut core = inner.core.lock();
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
            // Room may have been made between the refusal and the flag: look again now that it is set. The
            // owner may have been woken before and not have looked at its port since; what comes from now on
            // must wake it again.
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

    /// Brings to disk what is in the log: `None` if it is there. The ticket tells when it is.
    pub fn sync_log(&self) -> Option<ChangeTicket> {
        let core = self.inner.core.lock();
        core.sync_ticket()?;
        let (ticket, answer) = ChangeTicket::open();
        let unsent = match &core.hands {
            Some(hands) => hands.sync_aside.send(answer).err().map(|unsent| unsent.0),
            None => Some(answer),
        };
        if let Some(answer) = unsent {
            answer.answer(Err("the node is shutting down".to_owned()));
        }
        Some(ticket)
    }

    /// Submits requests and waits until all are answered, or until there is no use in it any more: for
    /// threads that do nothing else, whose port unparks them.
    pub fn ask(
        &self,
        port: &Port,
        mut requests: Vec<Arc<Request>>,
        is_over: impl Fn() -> bool,
    ) -> Result<Vec<Answer>, Refused> {
        let wanted = requests.len();
        let mut answers = Vec::new();
        while answers.len() < wanted && !is_over() {
            match self.submit(port, &mut requests) {
                Ok(()) | Err(Refused::Busy) => {}
                Err(refused) => return Err(refused),
            }
            self.help(port);
            port.drain(&mut answers);
            if answers.len() < wanted {
                std::thread::park_timeout(ASK_LOOKS);
            }
        }
        Ok(answers)
    }

    /// Has somebody told of what final-commits from now on.
    pub fn listen(&self, listener: Arc<dyn NewsListener>) {
        let engines = &self.inner.engines;
        engines.news().begin(listener, || {
            let all = engines.with_partitions();
            all.map(|(partition, engine)| (partition, engine.view().final_position())).collect()
        });
    }

    /// Ends that.
    pub fn listen_no_more(&self) {
        self.inner.engines.news().end();
    }

    /// Runs light requests on the calling thread until there is nothing to do (or for so long that the port
    /// is woken to go on): the caller's own are answered without a hand-off. Their replies are in the port
    /// when this returns.
    pub fn help(&self, port: &Port) {
        let inner = &*self.inner;
        if inner.halted.get().is_some() {
            return;
        }
        let mut replies = port.replies.borrow_mut();
        port.shared.look();
        for _ in 0..HELP_STEPS_MAX {
            let step = AssertUnwindSafe(|| inner.engines.step(port.worker, HELP, &mut replies));
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
            inner.wake_for_heavy();
        }
        // The caller may have what it wants, and not come back soon: others can go on with what is at hand
        // only now.
        let finish = AssertUnwindSafe(|| inner.engines.finish(port.worker, &mut replies));
        if let Err(panic) = catch_unwind(finish) {
            inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
            return;
        }
        inner.after_step(&mut replies, Some(&port.shared));
        inner.wake_executors();
        // And whoever waits for it may be another caller, who sleeps.
        inner.parking.wake(1);
        port.shared.notify();
    }

    /// Runs a read-only request at the newest final snapshot on the calling thread. It sees every write that
    /// was answered before; a session that waits for the answer of its own write waits, or submits its read
    /// instead.
    pub fn read(&self, port: &Port, request: &Arc<Request>) -> ReadOutcome {
        if let Some(certified) = self.certified.get() {
            return certified.read(request);
        }
        let partition = request.route.partitions.first().copied();
        let Some(place) = partition.and_then(|partition| self.inner.engines.place(partition)) else {
            return ReadOutcome::MustOrder;
        };
        let reader = &mut port.readers.borrow_mut()[place];
        self.inner.read(reader, request)
    }

    /// [`Runtime::read`] for a call that reads one record, where there is one partition and transactions are
    /// ordered. `now_ms` is what [`Runtime::now_ms`] has said lately: an entry is taken for expired when the
    /// order has reached its time, or decides.
    #[inline]
    pub fn read_one(&self, port: &Port, key: &Key, operation: Operation<'_>, now_ms: u64) -> ReadOutcome {
        debug_assert!(self.inner.partitions_count == 1 && !self.is_certified());
        port.readers.borrow_mut()[0].read_one(key, operation, None, self.inner.epoch_at(now_ms))
    }

    /// Has the records that commands are about to read, by the hashes of their keys, loaded into the
    /// processor's caches. Does nothing but where [`Runtime::read_one`] may be called.
    pub fn expect(&self, port: &Port, hashes: &[u64]) {
        if self.inner.partitions_count == 1 && !self.is_certified() {
            port.readers.borrow()[0].expect(hashes);
        }
    }

    /// Whether transactions are certified rather than ordered: then each request goes to
    /// [`Runtime::submit`].
    pub fn is_certified(&self) -> bool {
        self.certified.get().is_some()
    }

    /// The protocol that certifies transactions, as a `cluster.toml` calls it, if one does.
    pub fn certified_protocol(&self) -> Option<&'static str> {
        self.certified.get().map(|certified| certified.protocol())
    }

    /// The keys of users that the node has, if transactions are certified.
    pub fn certified_key_counts(&self) -> Option<certify::KeyCounts> {
        self.certified.get().map(|certified| certified.key_counts())
    }

    /// Whether transactions are certified, and the node knows that it lacks what others have.
    pub fn certified_is_behind(&self) -> bool {
        self.certified.get().is_some_and(|certified| certified.is_behind())
    }

    /// An operator has the other sites fence one, by its name. With force, the operator says that the sites
    /// which this one does not hear are gone for good.
    ///
    /// # Errors
    /// What is wrong: nothing is fenced.
    pub fn fence(&self, name: &str, is_forced: bool) -> Result<(), String> {
        match self.certified.get() {
            Some(certified) => certified.fence(name, is_forced),
            None => Err("there are no sites to fence".to_owned()),
        }
    }

    /// What the node's site tells of itself, if transactions are certified.
    pub fn certified_status(&self) -> Option<CertifiedStatus> {
        self.certified.get().map(|certified| certified.status())
    }

    /// A client has gone: an open transaction of it is rolled back.
    pub fn forget(&self, session: SessionId) {
        if let Some(certified) = self.certified.get() {
            certified.forget(session, false);
        }
    }

    /// A client has reset its connection: an open transaction of it is rolled back.
    pub fn reset(&self, session: SessionId) {
        if let Some(certified) = self.certified.get() {
            certified.forget(session, true);
        }
    }

    /// Whether reads must ask the cluster how far they have to go: see [`Runtime::read_strictly`].
    pub fn is_member(&self) -> bool {
        self.membership.get().is_some()
    }

    /// Asks when reads of replicated partitions may run, and empties `reads`: the port gets [`Stop::Restart`]
    /// for each then, and [`Runtime::read`] sees everything that was acknowledged anywhere before this call;
    /// an error if nobody knows.
    pub fn read_strictly(&self, port: &Port, reads: &mut Vec<(RequestId, PartitionId)>) {
        if reads.is_empty() {
            return;
        }
        let inner = &*self.inner;
        port.shared.add_outstanding(reads.len());
        let outcome = {
            let mut core = inner.core.lock();
            core.turn(|member, hands| member.read(reads, hands, inner.now_ms())).unwrap_or_default()
        };
        inner.follow(outcome, Some(&port.shared));
    }

    /// Runs a read-only request at the newest final snapshot on another thread: for reads that take long. It
    /// is answered through the port; with [`txn::Stop::Restart`] if it must be ordered after all. Its session
    /// submits nothing before that, so that the read sees nothing that was sent behind it. False if the node
    /// is shutting down: submit it instead.
    pub fn read_aside(&self, port: &Port, request: Arc<Request>) -> bool {
        let reads = self.inner.reads.lock();
        let Some(reads) = &*reads else { return false };
        port.shared.add_outstanding(1);
        let taken = reads.send(LongRead { request, settled_ms: None }).is_ok();
        if !taken {
            port.shared.remove_outstanding(1);
        }
        taken
    }

    /// Stops the long computations that run at snapshots. Returns whether there was any. Those in the order
    /// can't be stopped: they must end in the same way everywhere.
    pub fn interrupt_reads(&self) -> bool {
        let inner = &*self.inner;
        let stopped = inner.interrupts.iter().filter(|read| read.interrupt()).count();
        inner.ports.interrupt() || stopped > 0
    }

    /// Has a checkpoint taken, and waits until this node's part of it is on the disk. Returns its epoch, or
    /// why there is none. The order takes it like any other change, in a cluster at the same epoch for all
    /// nodes: that takes as long as the order does, and for ever without a majority.
    pub fn checkpoint(&self) -> Result<Epoch, String> {
        self.checkpoint_within(CHECKPOINT_ORDER_MAX)
    }

    fn checkpoint_within(&self, order_max: Duration) -> Result<Epoch, String> {
        let inner = &*self.inner;
        let wish = inner.core.lock().turn(|member, _| member.wish());
        let Some(mut wish) = wish else {
            return Err("this node stopped because of a bug".to_owned());
        };
        self.start_checkpoint();
        let until = Instant::now() + order_max;
        let mut core = inner.core.lock();
        loop {
            if let Some(text) = inner.halted.get() {
                return Err(text.to_string());
            }
            match core.turn(|member, _| member.awaited(&mut wish)) {
                Some(Awaited::Written(epoch)) => return Ok(epoch),
                Some(Awaited::Failed(error)) => return Err(error),
                Some(Awaited::Early) => {
                    drop(core);
                    self.start_checkpoint();
                    core = inner.core.lock();
                }
                Some(Awaited::Writing) => inner.progress.wait(&mut core),
                Some(Awaited::Ordered) if core.hands.is_none() => {
                    return Err("this node is shutting down".to_owned());
                }
                Some(Awaited::Ordered) if Instant::now() < until => {
                    inner.progress.wait_until(&mut core, until);
                }
                Some(Awaited::Ordered) => {
                    let majority = match self.is_member() {
                        true => ". 'ordo admin status' shows whether a majority of every partition is there",
                        false => "",
                    };
                    return Err(format!(
                        "the order has not come to the checkpoint within {} s: it is written as soon as it \
                         has, and LASTSAVE tells{majority}",
                        order_max.as_secs()
                    ));
                }
                None => return Err("this node stopped because of a bug".to_owned()),
            }
        }
    }

    /// Starts a checkpoint, unless one is being written.
    pub fn start_checkpoint(&self) {
        let outcome = self.inner.core.lock().handle(ClusterEvent::CheckpointWanted, self.inner.now_ms());
        self.inner.follow(outcome, None);
    }

    /// Waits until no checkpoint is being written, or the node halts.
    fn wait_for_checkpoint(&self) {
        let inner = &*self.inner;
        let mut core = inner.core.lock();
        while core.status().0.checkpoint_in_progress && inner.halted.get().is_none() {
            inner.progress.wait(&mut core);
        }
    }

    /// Hands over what this node leads, while its clients are still served: it ends soon.
    pub fn begin_to_end(&self) {
        let inner = &*self.inner;
        let outcome = inner.core.lock().handle(ClusterEvent::Ending, inner.now_ms());
        inner.follow(outcome, None);
    }

    /// Ends the node in good order: admits nothing more, lets what is on its way end, makes the log durable,
    /// writes a checkpoint if asked for, and joins the threads. Reads go on being served.
    pub fn shutdown(&self, checkpoint: bool) {
        let inner = &*self.inner;
        let handles = std::mem::take(&mut *self.threads.lock());
        if handles.is_empty() {
            return;
        }
        if let Some(certified) = self.certified.get() {
            certified.shutdown();
        }
        let until = Instant::now() + DRAIN_MAX;
        let outcome = inner.core.lock().handle(ClusterEvent::Stop, inner.now_ms());
        inner.follow(outcome, None);
        // Whoever waits for room learns that there will be none.
        inner.ports.notify_all();
        self.drain(until);
        if checkpoint
            && inner.halted.get().is_none()
            && let Err(error) = self.checkpoint_within(DRAIN_MAX)
        {
            tracing::warn!("no checkpoint was written at the end: {error}");
        }
        self.wait_for_checkpoint();

        *inner.stopping.lock() = true;
        inner.stop_asked.notify_all();
        inner.parking.stop();
        *inner.reads.lock() = None;
        // The threads at the other ends go through what they were sent, and end.
        inner.core.lock().hands = None;
        for handle in handles {
            // Their panics were caught and reported.
            let _ = handle.join();
        }
        if let Some(peers) = inner.outside.peers.get() {
            peers.stop();
        }
        let closed = inner.core.lock().close();
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
            inner.parking.wake(inner.workers);
            let step = AssertUnwindSafe(|| {
                while inner.engines.step(worker, HELP, &mut replies) == Progress::Worked {
                    inner.after_step(&mut replies, None);
                }
                inner.after_step(&mut replies, None);
            });
            if let Err(panic) = catch_unwind(step) {
                inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
            }
            let mut core = inner.core.lock();
            if core.is_drained(inner.ports.outstanding()) || inner.halted.get().is_some() {
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

    /// The time between two ticks of the node's clock, or of its site's clock if that is longer.
    pub fn clock_pause(&self) -> Duration {
        let site = self.certified.get().map(|certified| certified.tick_pause());
        self.inner.tick.max(site.unwrap_or_default())
    }

    /// The ticks that the node's clock has made, and those of its site's clock if transactions are certified.
    pub fn clock_ticks(&self) -> Vec<u64> {
        let site = self.certified.get().map(|certified| certified.ticks());
        std::iter::once(self.inner.ticks.load(Ordering::Relaxed)).chain(site).collect()
    }

    /// The steady time, in milliseconds: nobody can set it. It began with the date at which the process
    /// started.
    pub fn now_ms(&self) -> u64 {
        self.inner.now_ms()
    }

    /// The clock that shows this time.
    pub fn clock(&self) -> SteadyClock {
        self.inner.clock
    }

    /// The requests of the order that this node does not execute.
    pub fn skips(&self) -> &Skips {
        &self.inner.skips
    }

    /// The epoch time, by which entries expire.
    pub fn epoch_ms(&self) -> u64 {
        self.inner.epoch_ms()
    }

    /// What the engines need from requests: all of a node are of one kind.
    pub fn engine_needs(&self) -> Needs {
        self.engine().needs()
    }

    /// Whether commands that follow each other may be ordered together: the order takes one request's place
    /// for all, and no engine plans each by itself.
    pub fn gathers_commands(&self) -> bool {
        !self.is_certified() && !self.engine_needs().declared_keys
    }

    /// The engine, of the first partition if there are several.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        self.inner.engines.first()
    }

    /// Why the node stopped for good, if a bug made it: an error reply. Nothing is answered any more then.
    pub fn halted(&self) -> Option<&Arc<str>> {
        self.inner.halted.get()
    }

    /// Events that took long: of this node, and of whoever serves its clients.
    pub fn latency(&self) -> &Arc<LatencyEvents> {
        &self.inner.latency
    }

    /// How many entries were removed since the start because they had expired.
    pub fn expired_keys(&self) -> u64 {
        self.inner.ports.internal_sum()
    }

    /// How many of the users' records reads at snapshots looked for since the start: those that were there,
    /// and those that were not.
    pub fn lookups(&self) -> (u64, u64) {
        let aside = self.inner.lookups.iter().map(|lookups| lookups.get());
        let all = aside.chain(self.inner.ports.lookups());
        all.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    /// Counters and places.
    pub fn status(&self) -> RuntimeStatus {
        let (node, log) = self.inner.core.lock().status();
        let mut status = RuntimeStatus {
            node,
            log,
            engine: self.inner.engines.first().status(),
            engines: (self.inner.engines.with_partitions())
                .map(|(partition, engine)| (partition, engine.status()))
                .collect(),
            log_syncs: self.inner.log_syncs.counts(),
            fsync: self.inner.fsync,
            engine_name: self.inner.engines.first().name(),
            workers: self.inner.workers,
            changes_since_checkpoint: self.inner.engines.changes_since_checkpoint(),
        };
        if let Some(certified) = self.certified.get() {
            certified.tell_instead(&mut status);
        }
        status
    }

    /// Looks at records of the store itself, such as scripts, at most so many: at those of the first
    /// partition that the node keeps, because each partition has them all, or at those of all leaves of a
    /// hierarchy.
    pub fn for_each_system_record(&self, records_max: usize, mut visit: impl FnMut((&Key, &Entry))) {
        if let Some(certified) = self.certified.get() {
            return certified.for_each_system_record(records_max, visit);
        }
        if let Some(view) = self.kept().next() {
            let snapshot = view.open();
            let page = view.scan_at(&snapshot, ScanRange::of(Space::System, 0, records_max));
            view.close(snapshot);
            page.entries.iter().for_each(|(key, entry)| visit((key, entry)));
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shutdown(false);
    }
}
