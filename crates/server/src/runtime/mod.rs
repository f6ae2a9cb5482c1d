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
//! without running heavy requests wakes an executor if there are any left. Who stops before there is nothing left to do
//! first ends the transaction that it has at hand: no other thread can, and all later ones wait for it.
//!
//! # Reads
//!
//! [`Runtime::read`] runs a read-only request at the newest final snapshot on the calling thread, without the order;
//! [`Runtime::read_aside`] leaves a heavy one to a *reader* thread, where it holds up neither its caller nor a writer.
//! [`Runtime::interrupt_reads`] stops what takes long there.

mod cluster;
mod core;
mod engines;
mod executors;
mod leaders;
mod member;
mod news;
mod options;
mod port;
mod routing;
mod status;
#[cfg(test)]
mod tests;
mod threads;

pub use cluster::Membership;
pub use execute::ReadOutcome;
pub use news::{NewsItem, NewsListener};
pub use node::{FsyncPolicy, Limits, RecoverError, RecoveryReport, Refused};
pub use options::{
    EngineFactory, HaltHook, MemberOptions, MemberReport, RestartHook, RuntimeOptions, StartError,
};
pub use port::{Answer, Port};
pub use routing::Routing;
pub use status::RuntimeStatus;

use self::core::{Alone, Core, FileWork, Hands, Machine};
use self::engines::Engines;
use self::member::{Awaited, FromPeers, Member, Outside, PROTOCOL};
use self::routing::SharedRouting;
use crate::cluster::ChangeTicket;
use crate::cluster::identity::Identity;
use crate::disk::RealDisk;
use crate::observe::LatencyEvents;
use crate::peers::{PeerOptions, Peers};
use execute::siblings::Twins;
use execute::snapshot::panic_text;
use execute::{Assignment, Budget, Engine, Interrupt, Progress, SnapshotReader, WorkerId};
use executors::Bed;
use node::Recovered;
use node::cluster::levels::check_level;
use node::cluster::{ClusterEvent, ClusterNode, ClusterStart, LoadedEngines, joined_record};
use order::{Journal, PartitionMap, Preparer};
use parking_lot::{Condvar, Mutex, MutexGuard};
use port::{PortShared, Ports, Replies};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::{PartitionId, Position, Registry, Request, RequestId, Stop};

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
/// How long the order may take to come to a checkpoint that somebody waits for.
const CHECKPOINT_ORDER_MAX: Duration = Duration::from_secs(30);
/// A node with which nobody agrees for so long asks the others whether it still belongs to the cluster: in one that is well, it
/// does not take as long.
const ASK_OTHERS_FIRST: Duration = Duration::from_secs(2);
/// And then again, after this time.
const ASK_OTHERS: Duration = Duration::from_secs(10);
/// How long a thread that asks looks away, unless it is woken.
const ASK_LOOKS: Duration = Duration::from_millis(100);
/// How often a start that takes long says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);
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
    engines: Engines,
    core: Mutex<Core>,
    /// The replies of a peer's thread that steps the engines: one at a time.
    peer_worker: Mutex<Replies>,
    /// Strict reads that wait for a final commit, and the least position that any of them waits for.
    strict: Mutex<Vec<StrictRead>>,
    strict_waiting: AtomicBool,
    /// How many partitions the cluster has.
    partitions_count: usize,
    outside: Outside,
    /// How old the data may be that a READONLY connection reads.
    staleness_ms_max: u64,
    ports: Arc<Ports>,
    bed: Bed,
    /// Stops what the reader threads run.
    interrupts: Vec<Interrupt>,
    /// What they are to run; `None` once they are to end.
    reads: Mutex<Option<mpsc::Sender<Arc<Request>>>>,
    disk: Arc<RealDisk>,
    workers: usize,
    fsync: FsyncPolicy,
    /// Events that took long.
    latency: Arc<LatencyEvents>,
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
    /// Ends the tick thread.
    stopping: Mutex<bool>,
    stop_asked: Condvar,
    /// Signalled after syncs and checkpoints, with `core`.
    progress: Condvar,
}

/// A read that may run once its partition has final-committed up to the position.
struct StrictRead((RequestId, PartitionId, Position));

impl Inner {
    /// Runs a read at the newest final snapshot of its partition.
    fn read(&self, reader: &mut SnapshotReader, request: &Arc<Request>) -> ReadOutcome {
        if self.partitions_count == 1 {
            return reader.run(request, self.now_ms());
        }
        match self.outside.routing.with(|map| map.slots_wanted(request)) {
            Ok(wanted) => reader.run_where(request, wanted, self.now_ms()),
            Err(stop) => ReadOutcome::Done(Err(stop)),
        }
    }

    fn now_ms(&self) -> u64 {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64)
    }

    /// An event of a kind has ended that began then.
    fn note_latency(&self, event: &'static str, began: Instant) {
        self.latency
            .note(event, began.elapsed(), self.now_ms() / 1000);
    }

    /// Delivers replies, and tells those who wait for room or for a final commit.
    fn after_step(&self, replies: &mut Replies, own: Option<&PortShared>) {
        let foreign = self.ports.put(replies, own);
        if !foreign.is_empty() {
            let outcome = self.core.lock().executed(foreign, self.now_ms());
            self.follow(outcome, own);
        }
        let sent = self.engines.take_sent();
        if !sent.is_empty() {
            let outcome = self.core.lock().say(sent, self.now_ms());
            self.follow(outcome, own);
        }
        if self.strict_waiting.load(Ordering::SeqCst) {
            self.release_strict_reads(own);
        }
        if self.starved.load(Ordering::SeqCst) && self.starved.swap(false, Ordering::SeqCst) {
            self.ports.notify_all();
        }
        if self.waits_for_room.load(Ordering::SeqCst)
            && self.has_room()
            && self.waits_for_room.swap(false, Ordering::SeqCst)
        {
            let outcome = self.core.lock().member(ClusterEvent::Room, self.now_ms());
            self.follow(outcome, own);
        }
    }

    /// Whether the engines can be given more.
    fn has_room(&self) -> bool {
        self.engines.iter().all(|engine| {
            let status = engine.status();
            status.delivered.0 - status.final_committed.0 <= self.room_requests
        })
    }

    /// Sees to what an event made possible. `own` is the port of a caller that steps the engine next.
    fn follow(&self, outcome: core::Outcome, own: Option<&PortShared>) {
        if let Some(is_spread) = outcome.is_spread {
            self.ports.set_spread(is_spread);
        }
        let answered = outcome.answered.into_iter();
        let answered = answered.map(|answered| (answered.id, answered.outcome));
        let mut replies = Replies::default();
        for (id, answer) in outcome.refused.into_iter().chain(answered) {
            replies.push(id, answer);
        }
        self.ports.put(&mut replies, own);
        if !outcome.readable.is_empty() {
            self.strict
                .lock()
                .extend(outcome.readable.into_iter().map(StrictRead));
            self.strict_waiting.store(true, Ordering::SeqCst);
            self.release_strict_reads(own);
        }
        if let Some(map) = outcome.restart {
            self.restart(map);
        }
        if let Some(text) = outcome.ended {
            self.end(&text);
        }
        if outcome.notify_all {
            self.ports.notify_all();
            self.progress.notify_all();
        }
        if outcome.waits_for_room {
            self.waits_for_room.store(true, Ordering::SeqCst);
        }
        if outcome.step && own.is_none() && !self.ports.notify_waiting() {
            self.bed.wake(1);
        }
    }

    /// Lets strict reads run whose partition has come far enough: their owners get [`Stop::Restart`].
    fn release_strict_reads(&self, own: Option<&PortShared>) {
        let mut replies = Replies::default();
        {
            let mut strict = self.strict.lock();
            strict.retain(|StrictRead((id, partition, position))| {
                let engine = self.engines.of(*partition);
                let waits = engine.is_some_and(|engine| engine.view().final_position() < *position);
                if !waits {
                    replies.push(*id, Err(Stop::Restart));
                }
                waits
            });
            if strict.is_empty() {
                self.strict_waiting.store(false, Ordering::SeqCst);
            }
        }
        self.ports.put(&mut replies, own);
    }

    /// Wakes executors for heavy work, which who does only light work has left to them: others may wait for it, while the caller goes on.
    fn wake_for_heavy(&self) {
        let heavy = self.engines.waiting().heavy;
        if heavy > 0 {
            self.bed.wake(heavy.min(self.workers as u64) as usize);
        }
    }

    /// Wakes executors for what callers leave to them.
    fn wake_executors(&self) {
        let waiting = self.engines.waiting();
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

    /// Stops for good because the node is no part of its cluster any more.
    fn end(&self, text: &str) {
        if self
            .halted
            .set(format!("CLUSTERDOWN {text}").into())
            .is_err()
        {
            return;
        }
        tracing::error!("{text}");
        if let Some(on_end) = &self.on_end {
            on_end(text);
        }
        self.bed.stop();
        self.ports.notify_all();
        self.progress.notify_all();
    }

    /// Starts the process anew, with what the map says that it keeps.
    fn restart(&self, map: Arc<PartitionMap>) {
        let dir = self.disk.path();
        let saved = Identity::load(dir).and_then(|identity| match identity {
            Some(identity) if identity.map.version < map.version => Identity {
                map: (*map).clone(),
                ..identity
            }
            .save(dir),
            _ => Ok(()),
        });
        if let Err(error) = saved {
            tracing::error!("{error}");
        }
        if let Some(on_restart) = &self.on_restart {
            on_restart();
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
        check(&options)?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        // One more for the thread that shuts down, and one for the peers' threads.
        let worker_ids = options.workers + options.ports + 2;
        let assignment = Assignment {
            at_once: options.workers,
            ..Assignment::alone(worker_ids)
        };
        let make_engine = &options.engine;
        let mut told = started;
        let Recovered {
            node,
            engine,
            log,
            report,
        } = node::recover(
            &disk,
            node::NodeOptions {
                fsync: options.fsync,
                limits: options.limits,
                checkpoint_bytes: options.checkpoint_bytes,
                expire: options.expire.clone(),
                expire_system: options.expire_system.clone(),
            },
            options.segment_bytes,
            log_boot_id(),
            registry,
            &|| make_engine(assignment),
            &mut |progress| {
                if told.elapsed() > TELL_EVERY {
                    told = Instant::now();
                    tracing::info!("loading: {progress}");
                }
            },
        )?;
        let boot = node.boot();
        let preparer = log.preparer();
        let engines = Engines::new(vec![(PartitionId(0), engine)], Twins::default());
        let machine = Machine::Alone(Box::new(Alone::new(node, log)));
        let parts = Parts {
            disk,
            engines,
            machine,
            preparer,
            tick: threads::TICK,
            partitions_count: 1,
            outside: Outside {
                peers: Arc::default(),
                fresh_ms: Arc::default(),
                routing: Arc::new(SharedRouting::new(Arc::new(PartitionMap::alone()))),
            },
            staleness_ms_max: u64::MAX,
        };
        let runtime = Runtime::launch(options, parts)?;
        runtime.inner.ports.begin(boot);
        runtime.inner.prepare_segment();
        let elapsed_ms = started.elapsed().as_millis() as u64;
        Ok((
            runtime,
            RecoveryReport {
                elapsed_ms,
                ..report
            },
        ))
    }

    /// Recovers a node of a cluster and starts its threads and its connections to the others. Returns once the order has
    /// given this process its boot id, which takes a majority of partition 0's replicas, and tells what was in the directory.
    pub fn start_member(
        options: RuntimeOptions,
        cluster: MemberOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, MemberReport), StartError> {
        let started = Instant::now();
        let MemberOptions {
            name,
            identity,
            has_run,
            node: node_options,
            peers: peer_options,
            staleness_ms_max,
            is_gone,
        } = cluster;
        check(&options)?;
        // Before anything is touched.
        check_level(&identity.map, node_options.level).map_err(StartError::Cluster)?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        let worker_ids = options.workers + options.ports + 2;
        let (mut journal, images, report) =
            Journal::open(disk.clone(), options.segment_bytes, log_boot_id())
                .map_err(RecoverError::Log)?;
        if report.cut.is_some() {
            tracing::warn!("{report}");
        }
        // A founder with an empty journal is the cluster's business (`node::cluster`); one that joined is ours.
        let has_joined = !identity.first.nodes.contains_key(&identity.node);
        if !has_run {
            if has_joined {
                let mark = journal.append(&[joined_record()]);
                mark.and_then(|_| journal.sync())
                    .map_err(StartError::Journal)?;
            }
            identity.save(&options.dir)?;
        } else if has_joined && journal.status().last.0 == 0 {
            return Err(StartError::JournalLost(options.dir.display().to_string()));
        }
        let me = identity.node;
        let known = Arc::new(identity.map);
        let nonce = log_boot_id();
        let of = known.partitions.len() as u16;
        let make_engine = |partition| {
            (options.engine)(Assignment {
                workers: worker_ids,
                at_once: options.workers,
                partition,
                of,
                era: nonce << 16,
            })
        };
        let kept = known.kept_by(me).collect();
        let LoadedEngines {
            engines,
            checkpoint_bytes,
        } = node::cluster::load_engines(&*disk, kept, &images, &make_engine)?;
        let entries = images
            .values()
            .map(|image| image.entries.len() as u64)
            .sum();
        let start = ClusterStart {
            map: identity.first,
            known: known.clone(),
            images,
            engines: engines.clone(),
            checkpoint_bytes,
            nonce,
        };
        let node = ClusterNode::recover(node_options.clone(), registry.clone(), start)
            .map_err(StartError::Cluster)?;
        let report = MemberReport {
            partitions: engines.keys().copied().collect(),
            checkpoint: node.confirmed().epoch,
            entries,
            records: engines
                .values()
                .map(|engine| engine.view().census().live)
                .sum(),
            elapsed_ms: started.elapsed().as_millis() as u64,
        };
        let preparer = journal.preparer();
        let partitions_count = node.map().partitions.len();
        let outside = Outside {
            peers: Arc::default(),
            fresh_ms: Arc::default(),
            routing: Arc::new(SharedRouting::new(node.map().clone())),
        };
        let twins = node.twins().clone();
        let member = Member::new(node, journal, me, name, outside.clone(), known);
        let parts = Parts {
            disk,
            engines: Engines::new(engines.into_iter().collect(), twins),
            machine: Machine::Member(Box::new(member)),
            preparer,
            tick: Duration::from_millis(node_options.tick_ms),
            partitions_count,
            outside: outside.clone(),
            staleness_ms_max,
        };
        let runtime = Runtime::launch(options, parts)?;
        let events = Arc::new(FromPeers(runtime.inner.clone()));
        let started = Peers::start(
            PeerOptions {
                protocols: PROTOCOL..=PROTOCOL,
                ..peer_options
            },
            events,
        )?;
        let _ = outside.peers.set(started);
        runtime.join(runtime.inner.clone());
        runtime.inner.look_at_map();
        runtime.wait_for_boot(&*is_gone);
        // Not before: after a power loss all nodes of a cluster have their disks filled, and wait for them.
        runtime.inner.prepare_segment();
        Ok((runtime, report))
    }

    /// Waits until the order has given this process its boot id.
    fn wait_for_boot(&self, is_gone: &dyn Fn(&PartitionMap) -> Option<String>) {
        let inner = &*self.inner;
        let executed = || -> u64 {
            let engines = inner.engines.iter();
            engines.map(|engine| engine.view().final_position().0).sum()
        };
        let began = executed();
        let (mut told, mut executed_then) = (Instant::now(), began);
        let mut ask = Instant::now() + ASK_OTHERS_FIRST;
        let mut core = inner.core.lock();
        while inner.halted.get().is_none() {
            let Machine::Member(member) = &core.machine else {
                return;
            };
            let boot = member.node.boot();
            if boot != txn::BootId(0) {
                inner.ports.begin(boot.0);
                return;
            }
            if told.elapsed() > TELL_EVERY {
                let executed_now = executed();
                if executed_now > executed_then {
                    tracing::info!(
                        "loading: {} transactions of the log so far",
                        executed_now - began
                    );
                } else {
                    tracing::info!(
                        "waiting for the other nodes: clients are served once a majority of them is there, those of a new cluster \
                         once all of them are"
                    );
                }
                (told, executed_then) = (Instant::now(), executed_now);
            }
            if Instant::now() >= ask {
                let map = member.newest_map().clone();
                MutexGuard::unlocked(&mut core, || {
                    if let Some(text) = is_gone(&map) {
                        inner.end(&text);
                    }
                });
                ask = Instant::now() + ASK_OTHERS;
                continue;
            }
            inner
                .progress
                .wait_for(&mut core, Duration::from_millis(200));
        }
    }

    /// Starts the threads that every kind of node has.
    fn launch(options: RuntimeOptions, parts: Parts) -> Result<Arc<Runtime>, StartError> {
        let Parts {
            disk,
            engines,
            machine,
            preparer,
            tick,
            partitions_count,
            outside,
            staleness_ms_max,
        } = parts;
        let (sync, tickets) = mpsc::channel();
        let (sync_aside, asked) = mpsc::channel();
        let (files, file_work) = mpsc::channel();
        let (checkpoint, jobs) = mpsc::channel();
        let (reads, read_jobs) = mpsc::channel();
        let readers: Vec<_> = (0..options.workers)
            .map(|_| {
                engines
                    .iter()
                    .cloned()
                    .map(SnapshotReader::new)
                    .collect::<Vec<_>>()
            })
            .collect();
        let ports = Arc::new(Ports::new(options.ports));
        if let Machine::Member(member) = &machine {
            // Before the first thread: what is executed from here on may be waited for at other nodes.
            ports.set_spread(member.node.is_spread());
        }
        let inner = Arc::new(Inner {
            engines,
            peer_worker: Mutex::default(),
            strict: Mutex::default(),
            strict_waiting: AtomicBool::new(false),
            partitions_count,
            outside,
            staleness_ms_max,
            core: Core::new(
                machine,
                Hands {
                    sync,
                    sync_aside,
                    files,
                    checkpoint,
                },
            ),
            ports,
            bed: Bed::default(),
            interrupts: readers
                .iter()
                .flatten()
                .map(SnapshotReader::interrupt)
                .collect(),
            reads: Mutex::new(Some(reads)),
            disk,
            workers: options.workers,
            fsync: options.fsync,
            latency: Arc::default(),
            starved: AtomicBool::new(false),
            waits_for_room: AtomicBool::new(false),
            room_requests: options.limits.in_flight_requests_max / 2,
            halted: OnceLock::new(),
            on_halt: options.on_halt,
            on_restart: options.on_restart,
            on_end: options.on_end,
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
        add(threads::start(&inner, "sync-aside", move |inner| {
            threads::sync_aside(inner, &asked)
        }))?;
        add(threads::start(&inner, "files", move |inner| {
            threads::files(inner, &file_work, &preparer)
        }))?;
        add(threads::start(&inner, "checkpoint", move |inner| {
            threads::checkpoint(inner, &jobs)
        }))?;
        add(threads::start(&inner, "tick", move |inner| {
            threads::tick(inner, tick)
        }))?;
        Ok(runtime)
    }

    /// A place where replies arrive, for a thread that calls [`Runtime::help`] and [`Port::drain`] whenever it is woken.
    /// `None` if all ports are taken. `wake` is called by other threads; it must neither block nor call the runtime.
    pub fn port(&self, wake: Box<dyn Fn() + Send + Sync>) -> Option<Port> {
        let engines = self.inner.engines.iter();
        let readers = engines.cloned().map(SnapshotReader::new).collect();
        self.inner.ports.open(wake, self.inner.workers, readers)
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
                core.submit(requests, inner.ports.boot_last(), inner.now_ms())
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

    /// Submits requests and waits until all are answered, or until there is no use in it any more: for threads that do nothing else, whose
    /// port unparks them.
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
            all.map(|(partition, engine)| (partition, engine.view().final_position()))
                .collect()
        });
    }

    /// Ends that.
    pub fn listen_no_more(&self) {
        self.inner.engines.news().end();
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
        // The caller may have what it wants, and not come back soon: others can go on with what is at hand only now.
        let finish = AssertUnwindSafe(|| inner.engines.finish(port.worker, &mut replies));
        if let Err(panic) = catch_unwind(finish) {
            inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
            return;
        }
        inner.after_step(&mut replies, Some(&port.shared));
        inner.wake_executors();
        // And whoever waits for it may be another caller, who sleeps.
        inner.bed.wake(1);
        port.shared.notify();
    }

    /// Runs a read-only request at the newest final snapshot on the calling thread. It sees every write that was
    /// answered before; a session that waits for the answer of its own write waits, or submits its read instead.
    pub fn read(&self, port: &Port, request: &Arc<Request>) -> ReadOutcome {
        let partition = request.route.partitions.first().copied();
        let Some(place) = partition.and_then(|partition| self.inner.engines.place(partition))
        else {
            return ReadOutcome::MustOrder;
        };
        let reader = &mut port.readers.borrow_mut()[place];
        self.inner.read(reader, request)
    }

    /// Whether reads must ask the cluster how far they have to go: see [`Runtime::read_strictly`].
    pub fn is_member(&self) -> bool {
        self.membership.get().is_some()
    }

    /// Asks when reads of replicated partitions may run, and empties `reads`: the port gets [`Stop::Restart`] for each then,
    /// and [`Runtime::read`] sees everything that was acknowledged anywhere before this call; an error if nobody knows.
    pub fn read_strictly(&self, port: &Port, reads: &mut Vec<(RequestId, PartitionId)>) {
        if reads.is_empty() {
            return;
        }
        let inner = &*self.inner;
        port.shared.add_outstanding(reads.len());
        let outcome = {
            let mut core = inner.core.lock();
            match &core.machine {
                Machine::Member(_) => core
                    .turn(|member, hands| member.read(reads, hands, inner.now_ms()))
                    .unwrap_or_default(),
                Machine::Alone(_) => {
                    let now = reads.drain(..);
                    let readable = now.map(|(id, partition)| (id, partition, Position::NONE));
                    self::core::Outcome {
                        readable: readable.collect(),
                        ..Default::default()
                    }
                }
            }
        };
        inner.follow(outcome, Some(&port.shared));
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

    /// Writes a checkpoint and waits until it is on the disk. Returns its position (that of a cluster's node is its epoch), or
    /// why there is none.
    pub fn checkpoint(&self) -> Result<Position, String> {
        if self.is_member() {
            return self.member_checkpoint(CHECKPOINT_ORDER_MAX);
        }
        let inner = &*self.inner;
        let before = inner.core.lock().status().0;
        // One that is being written began before the call: what the caller wants in it may be missing there.
        if before.checkpoint_in_progress {
            self.wait_for(None, |status| !status.checkpoint_in_progress);
        }
        let written_before = inner.core.lock().status().0.checkpoints;
        self.start_checkpoint();
        self.wait_for(None, |status| !status.checkpoint_in_progress);
        let status = inner.core.lock().status().0;
        match (status.checkpoints > written_before, inner.halted.get(), status.checkpoint_error) {
            (true, ..) => Ok(status.last_checkpoint),
            (_, Some(text), _) => Err(text.to_string()),
            (.., Some(error)) => Err(error),
            _ => Err("the node takes no checkpoints any more: the log's disk failed, or it is shutting down".to_owned()),
        }
    }

    /// Asks the cluster for a checkpoint, and waits until this node's part of it is on the disk. The order takes it like any
    /// other change, at an epoch for all nodes: that takes as long as the order does, and for ever without a majority.
    fn member_checkpoint(&self, order_max: Duration) -> Result<Position, String> {
        let inner = &*self.inner;
        let wish = inner.core.lock().turn(|member, _| member.wish());
        let Some(mut wish) = wish else {
            return Err("this node takes no part in a cluster any more".to_owned());
        };
        self.start_checkpoint();
        let until = Instant::now() + order_max;
        let mut core = inner.core.lock();
        loop {
            if let Some(text) = inner.halted.get() {
                return Err(text.to_string());
            }
            match core.turn(|member, _| member.awaited(&mut wish)) {
                Some(Awaited::Written(position)) => return Ok(position),
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
                    return Err(format!(
                        "the cluster has not come to the checkpoint within {} s: it is written as soon as it has, and \
                         LASTSAVE tells. 'ordo admin status' shows whether a majority of every partition is there",
                        order_max.as_secs()
                    ));
                }
                None => return Err("this node stopped because of a bug".to_owned()),
            }
        }
    }

    /// Starts a checkpoint, unless one is being written.
    pub fn start_checkpoint(&self) {
        let outcome = self.inner.core.lock().want_checkpoint(self.inner.now_ms());
        self.inner.follow(outcome, None);
    }

    /// Waits until the node's status satisfies `done`, the node halts, or the time is over.
    fn wait_for(&self, until: Option<Instant>, done: impl Fn(&node::Status) -> bool) {
        let inner = &*self.inner;
        let mut core = inner.core.lock();
        while !done(&core.status().0) && inner.halted.get().is_none() {
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
        let outcome = inner.core.lock().stop(inner.now_ms());
        inner.follow(outcome, None);
        // Whoever waits for room learns that there will be none.
        inner.ports.notify_all();
        self.drain(until);
        if checkpoint && inner.halted.get().is_none() {
            if !self.is_member() {
                self.start_checkpoint();
            } else if let Err(error) = self.member_checkpoint(DRAIN_MAX) {
                tracing::warn!("no checkpoint was written at the end: {error}");
            }
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
            inner.bed.wake(inner.workers);
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

    /// The wall clock, in milliseconds since 1970.
    pub fn now_ms(&self) -> u64 {
        self.inner.now_ms()
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

    /// Counters and places.
    pub fn status(&self) -> RuntimeStatus {
        let (node, log) = self.inner.core.lock().status();
        RuntimeStatus {
            node,
            log,
            engine: self.inner.engines.first().status(),
            fsync: self.inner.fsync,
            engine_name: self.inner.engines.first().name(),
            workers: self.inner.workers,
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shutdown(false);
    }
}

/// What a node is made of when its threads start.
struct Parts {
    disk: Arc<RealDisk>,
    engines: Engines,
    machine: Machine,
    preparer: Preparer<RealDisk>,
    tick: Duration,
    partitions_count: usize,
    outside: Outside,
    staleness_ms_max: u64,
}

fn check(options: &RuntimeOptions) -> Result<(), StartError> {
    if options.ports == 0 || options.ports > node::session::PORTS_MAX {
        return Err(StartError::Ports(options.ports));
    }
    if options.workers == 0 {
        return Err(StartError::Workers);
    }
    Ok(())
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

impl Inner {
    /// Has the log's next segment made while the first is filled.
    fn prepare_segment(&self) {
        if let Some(hands) = &self.core.lock().hands {
            // A thread that is gone prepares nothing: the log then makes its segments when it needs them.
            let _ = hands.files.send(FileWork::Prepare);
        }
    }

    /// Tells the transport who the peers are, when the map has changed.
    fn look_at_map(&self) {
        let Some(peers) = self.outside.peers.get() else {
            return;
        };
        let map = {
            let mut core = self.core.lock();
            let Machine::Member(member) = &mut core.machine else {
                return;
            };
            let map = member.newest_map().clone();
            if member.peers_of == map.version {
                return;
            }
            member.peers_of = map.version;
            member.tell_level();
            (map, member.me)
        };
        let (map, me) = map;
        let names = map.nodes.iter();
        peers.set_names(
            names
                .map(|(&node, entry)| (node, entry.name.clone()))
                .collect(),
        );
        let others = map.nodes.iter().filter(|&(&node, _)| node != me);
        let addresses = others
            .map(|(&node, entry)| (node, entry.peer_address.clone()))
            .collect();
        if let Err(error) = peers.set_peers(&addresses) {
            tracing::error!("{error}");
        }
    }
}
