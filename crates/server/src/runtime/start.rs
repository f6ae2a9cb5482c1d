//! How a runtime begins: alone, or as a node of a cluster.

use super::certified::{Certified, CertifiedOptions};
use super::core::{Core, Hands};
use super::engines::Engines;
use super::executors::Parking;
use super::member::{FromPeers, Member, Outside, PROTOCOL};
use super::options::{MemberOptions, RecoveryReport, RuntimeOptions, StartError};
use super::port::{Ports, Replies};
use super::replaying::Replaying;
use super::routing::SharedRouting;
use super::threads;
use super::turns::{Taker, Turns};
use super::{ASK_OTHERS, ASK_OTHERS_FIRST, Inner, Runtime, TELL_EVERY};
use crate::clock::SteadyClock;
use crate::cluster::identity::{self, Identity};
use crate::disk::RealDisk;
use crate::observe::Durations;
use crate::peers::{PeerOptions, Peers};
use crate::skips;
use execute::snapshot::panic_text;
use execute::{Assignment, Pause, Progress, SnapshotReader, WorkerId};
use log::{Base, Disk, GroupImages, Journal, OpenError, Report};
use node::cluster::levels::check_level;
use node::cluster::{
    ClusterNode, ClusterOptions, ClusterRecoverError, ClusterStart, IDENTITY, LoadedEngines, checkpoint,
    is_group_of_alone, joined_record, load_engines,
};
use order::{PartitionMap, Skips};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::{PartitionId, Registry};

impl Runtime {
    /// Recovers the node in a directory, which stands alone, and starts its threads. Returns once it has
    /// executed its log, and tells what was in the directory.
    pub fn start(
        options: RuntimeOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        if Certified::was_in(&options.dir) {
            return Err(StartError::OfCluster(options.dir.display().to_string()));
        }
        Runtime::start_alone(options, registry)
    }

    fn start_alone(
        options: RuntimeOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let started = Instant::now();
        check(&options, 1)?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        if options.dir.join(identity::FILE).exists() {
            return Err(StartError::OfCluster(identity::FILE.to_owned()));
        }
        // Before anything is made: the journal would be an empty one.
        let has_checkpoints = checkpoint::is_any(&*disk).map_err(StartError::Journal)?;
        if has_checkpoints && !has_log(&disk).map_err(StartError::Journal)? {
            return Err(StartError::LogLost(options.dir.display().to_string()));
        }
        let (journal, images, found) =
            open_journal(&disk, &options, &is_group_of_alone, StartError::OfCluster)?;
        let map = PartitionMap::alone();
        let node = ClusterOptions {
            fsync: options.fsync,
            limits: options.limits,
            checkpoint_bytes: options.checkpoint_bytes,
            expire: options.expire.clone(),
            expire_system: options.expire_system.clone(),
            ..ClusterOptions::alone()
        };
        let beginning = Beginning {
            started,
            disk,
            journal,
            images,
            found,
            identity: Identity { node: node.me, first: map.clone(), map },
            name: String::new(),
            staleness_ms_max: u64::MAX,
        };
        let (runtime, report) = Runtime::begin(options, node, beginning, registry)?;
        runtime.wait_for_boot(&|_| None)?;
        runtime.inner.log_was_delivered();
        runtime.execute_log()?;
        runtime.inner.prepare_segment();
        Ok((runtime, RecoveryReport { partitions: Vec::new(), ..report }))
    }

    /// Recovers a node of a cluster and starts its threads and its connections to the others. Returns once
    /// the order has given this process its boot id, which takes a majority of partition 0's replicas, and
    /// tells what was in the directory.
    pub fn start_member(
        options: RuntimeOptions,
        cluster: MemberOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let started = Instant::now();
        let MemberOptions { name, identity, has_run, node, peers, staleness_ms_max, is_gone } = cluster;
        check(&options, identity.map.partitions.len())?;
        // Before anything is touched.
        check_level(&identity.map, node.level).map_err(|old| StartError::Cluster(old.into()))?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        if !has_run && checkpoint::is_any(&*disk).map_err(StartError::Journal)? {
            return Err(StartError::OfAlone(options.dir.display().to_string()));
        }
        // A founder with an empty journal is the cluster's business (`node::cluster`); one that joined is
        // ours.
        let has_joined = !identity.first.nodes.contains_key(&identity.node);
        let is_ours = |partition, _: &Base| has_run || has_joined && partition == IDENTITY;
        let (mut journal, images, found) = open_journal(&disk, &options, &is_ours, StartError::OfAlone)?;
        if !has_run {
            if has_joined {
                let mark = journal.append(&[joined_record()]);
                mark.and_then(|_| journal.sync()).map_err(StartError::Journal)?;
            }
            identity.save(&options.dir)?;
        } else if has_joined && journal.status().last.0 == 0 {
            return Err(StartError::JournalLost(options.dir.display().to_string()));
        }
        let beginning = Beginning { started, disk, journal, images, found, identity, name, staleness_ms_max };
        let engine = options.engine;
        let (runtime, report) = Runtime::begin(options, node, beginning, registry)?;
        let inner = &runtime.inner;
        let events = Arc::new(FromPeers(inner.clone()));
        let peers = Peers::start(
            PeerOptions { protocols: PROTOCOL..=PROTOCOL, skips: inner.skips.digest(), engine, ..peers },
            events,
        )?;
        let _ = inner.outside.peers.set(peers);
        runtime.join(inner.clone());
        inner.look_at_map();
        runtime.wait_for_boot(&*is_gone)?;
        inner.log_was_delivered();
        // Not before: after a power loss all nodes of a cluster have their disks filled, and wait for them.
        inner.prepare_segment();
        Ok((runtime, report))
    }

    /// Recovers a node whose transactions are certified, and starts its threads and its connections to the
    /// others.
    pub fn start_certified(
        options: RuntimeOptions,
        certified: CertifiedOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let (dir, segment_bytes, fsync) = (options.dir.clone(), options.segment_bytes, options.fsync);
        let workers = options.workers;
        if !RealDisk::is_new(&dir) && !Certified::was_in(&dir) {
            return Err(StartError::OfAlone(dir.display().to_string()));
        }
        // First of all: it shows whose the directory is.
        let disk = Arc::new(RealDisk::open(Certified::directory(&dir))?);
        let (runtime, report) = Runtime::start_alone(options, registry)?;
        let boot = runtime.inner.core.lock().member.node.boot();
        let ports = runtime.inner.ports.clone();
        let certified = Certified::start(disk, segment_bytes, fsync, boot, ports, workers, certified)?;
        let _ = runtime.certified.set(certified);
        Ok((runtime, report))
    }

    /// Makes the node of what its files hold, and starts its threads.
    fn begin(
        options: RuntimeOptions,
        mut node_options: ClusterOptions,
        beginning: Beginning,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let Beginning { started, disk, journal, images, found, identity, name, staleness_ms_max } = beginning;
        let me = identity.node;
        let mut warnings = Vec::new();
        if found.cut.is_some() {
            warnings.push(found.to_string());
        }
        let skips = Arc::new(skips::begin(disk.path(), &options.skip)?);
        node_options.skips = skips.clone();
        let replaying = Replaying::begin(disk.path());
        let known = Arc::new(identity.map);
        let nonce = log_boot_id();
        let of = known.partitions.len() as u16;
        // One more for the thread that shuts down, and one for the peers' threads.
        let worker_ids = options.workers + options.ports + 2;
        let make_engine = |partition| {
            let made_for =
                Assignment { workers: worker_ids, at_once: options.workers, partition, of, era: nonce << 16 };
            (options.make_engine)(options.engine, made_for)
        };
        let kept = known.kept_by(me).collect();
        let mut told = started;
        let tell = &mut |records| {
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                tracing::info!("loading: {records} records of the checkpoint so far");
            }
        };
        let loaded = load_engines(&*disk, kept, &images, node_options.alone, &make_engine, tell)?;
        let LoadedEngines { engines, checkpoint_bytes, unusable, newer } = loaded;
        if let Some(unusable) = &unusable {
            warnings.push(format!(
                "the newest checkpoint cannot be used, and was put aside as damaged-*: {unusable}. The one \
                 before it and the log behind that are enough: nothing is lost"
            ));
        }
        if let Some((newest, end)) = newer {
            warnings.push(format!(
                "the log ends with epoch {}, before the checkpoint of epoch {}, which was put aside as \
                 newer-*: what was executed in between is not in this database. A loss of power may take \
                 that much where appendfsync is not 'always'; if files of the log are missing, stop, put \
                 them back, and rename the checkpoint back",
                end.0, newest.0
            ));
        }
        for warning in &warnings {
            tracing::warn!("{warning}");
        }
        let entries = images.values().map(|image| image.entries.len() as u64).sum();
        let start = ClusterStart {
            map: identity.first,
            known: known.clone(),
            images,
            engines: engines.clone(),
            checkpoint_bytes,
            unusable: unusable.is_some(),
            nonce,
        };
        let node = ClusterNode::recover(node_options.clone(), registry.clone(), start);
        if let Err(ClusterRecoverError::SkipsTooLate(_)) = &node {
            skips::take_back(disk.path(), Skips::clone(&skips))?;
        }
        let node = node.map_err(StartError::Cluster)?;
        skips::enforce(disk.path(), Skips::clone(&skips))?;
        let report = RecoveryReport {
            partitions: engines.keys().copied().collect(),
            checkpoint: node.confirmed().epoch,
            entries,
            records: engines.values().map(|engine| engine.view().census().live).sum(),
            elapsed_ms: started.elapsed().as_millis() as u64,
            warnings,
        };
        let outside = Outside {
            peers: Arc::default(),
            fresh_ms: Arc::default(),
            is_out: Arc::default(),
            routing: Arc::new(SharedRouting::new(node.map().clone())),
        };
        let parts = Parts {
            disk,
            engines: Engines::new(engines.into_iter().collect(), node.twins().clone()),
            tick: Duration::from_millis(node_options.tick_ms),
            partitions_count: node.map().partitions.len(),
            member: Member::new(node, journal, me, name, outside.clone(), known),
            outside,
            skips,
            replaying,
            staleness_ms_max,
            request_timeout: Duration::from_millis(node_options.request_timeout_ms),
        };
        Ok((Runtime::launch(options, parts)?, report))
    }

    /// Executes what is left of the log: reads at a node that stands alone ask nobody whether they miss
    /// anything.
    fn execute_log(&self) -> Result<(), StartError> {
        let inner = &*self.inner;
        let worker = WorkerId(inner.workers + inner.ports.count());
        let mut replies = Replies::default();
        let mut told = Instant::now();
        loop {
            let step = AssertUnwindSafe(|| {
                while inner.engines.step(worker, threads::STEP, &mut replies) == Progress::Worked {
                    inner.after_step(&mut replies, None);
                }
                inner.after_step(&mut replies, None);
            });
            if let Err(panic) = catch_unwind(step) {
                inner.halt(&format!("a step panicked: {}", panic_text(&*panic)));
            }
            if let Some(text) = inner.halted.get() {
                return Err(StartError::ended(text));
            }
            inner.look_at_replay();
            if inner.replaying.lock().is_none() {
                return Ok(());
            }
            let mut core = inner.core.lock();
            if let Some(stopped) = stopped(&core.member.node) {
                return Err(stopped);
            }
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                tracing::info!("loading: the last transactions of the log");
            }
            // Another worker has the rest at hand, whose commit does not signal.
            inner.progress.wait_for(&mut core, Duration::from_millis(2));
        }
    }

    /// Waits until the order has given this process its boot id.
    fn wait_for_boot(&self, is_gone: &dyn Fn(&PartitionMap) -> Option<String>) -> Result<(), StartError> {
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
            let member = &core.member;
            let boot = member.node.boot();
            if boot != txn::BootId(0) {
                inner.ports.begin(boot.0);
                return Ok(());
            }
            let alone = member.node.is_alone();
            if let Some(stopped) = stopped(&member.node).filter(|_| alone) {
                return Err(stopped);
            }
            if told.elapsed() > TELL_EVERY {
                let executed_now = executed();
                if executed_now > executed_then {
                    tracing::info!("loading: {} transactions of the log so far", executed_now - began);
                } else if alone && member.node.out().is_some() {
                    tracing::info!("waiting for room on the disk: the log takes nothing");
                } else if alone {
                    tracing::info!("loading: a transaction of the log that takes long");
                } else {
                    tracing::info!(
                        "waiting for the other nodes: clients are served once a majority of them is there, \
                         those of a new cluster once all of them are"
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
            inner.progress.wait_for(&mut core, Duration::from_millis(200));
        }
        // A node of a cluster ends its process by itself.
        match inner.halted.get() {
            Some(text) if core.member.node.is_alone() => Err(StartError::ended(text)),
            _ => Ok(()),
        }
    }

    /// Starts the threads that every kind of node has.
    fn launch(options: RuntimeOptions, parts: Parts) -> Result<Arc<Runtime>, StartError> {
        let Parts {
            disk,
            engines,
            member,
            tick,
            partitions_count,
            outside,
            skips,
            replaying,
            staleness_ms_max,
            request_timeout,
        } = parts;
        let (sync, tickets) = mpsc::channel();
        let (sync_aside, asked) = mpsc::channel();
        let (files, file_work) = mpsc::channel();
        let (checkpoint, jobs) = mpsc::channel();
        let (reads, read_jobs) = mpsc::channel();
        let turns = Turns::new(options.workers);
        let readers: Vec<_> = (0..options.workers.max(READERS_MIN))
            .map(|_| {
                let taker = Taker::new(&turns);
                let pauses = taker.clone();
                let pause: Pause = Arc::new(move || pauses.pause());
                let pausing = |engine| SnapshotReader::new(engine).pausing(pause.clone());
                let readers: Vec<_> = engines.iter().cloned().map(pausing).collect();
                (taker, readers)
            })
            .collect();
        let preparer = member.records.journal.preparer();
        let ports = Arc::new(Ports::new(options.ports));
        // Before the first thread: what is executed from here on may be waited for at other nodes.
        ports.set_spread(member.node.is_spread());
        let inner = Arc::new(Inner {
            clock: SteadyClock::start(),
            epoch_lead_ms: AtomicI64::new(0),
            history_ms: AtomicU64::new(0),
            engines,
            peer_worker: Mutex::default(),
            strict: Mutex::default(),
            strict_waiting: AtomicBool::new(false),
            partitions_count,
            outside,
            skips,
            replaying: Mutex::new(Some((replaying, None))),
            staleness_ms_max,
            request_timeout,
            core: Core::new(member, Hands { sync, sync_aside, files, checkpoint }),
            ports,
            parking: Parking::default(),
            lookups: readers.iter().flat_map(|(_, readers)| readers).map(SnapshotReader::lookups).collect(),
            interrupts: readers
                .iter()
                .flat_map(|(_, readers)| readers)
                .map(SnapshotReader::interrupt)
                .collect(),
            reads: Mutex::new(Some(reads)),
            disk,
            workers: options.workers,
            fsync: options.fsync,
            latency: Arc::default(),
            log_syncs: Durations::default(),
            starved: AtomicBool::new(false),
            waits_for_room: AtomicBool::new(false),
            room_requests: options.limits.in_flight_requests_max / 2,
            halted: OnceLock::new(),
            on_halt: options.on_halt,
            on_restart: options.on_restart,
            on_end: options.on_end,
            ticks: AtomicU64::new(0),
            tick,
            stopping: Mutex::new(false),
            stop_asked: Condvar::new(),
            progress: Condvar::new(),
        });
        // It orders nothing before it knows the time.
        let outcome = inner.tick();
        inner.follow(outcome, None);
        let runtime = Arc::new(Runtime {
            inner: inner.clone(),
            threads: Mutex::default(),
            membership: OnceLock::new(),
            certified: OnceLock::new(),
        });
        let add = |thread: std::io::Result<JoinHandle<()>>| -> Result<(), StartError> {
            runtime.threads.lock().push(thread.map_err(StartError::Thread)?);
            Ok(())
        };
        for worker in 0..options.workers {
            let id = WorkerId(worker);
            add(threads::start(&inner, &format!("exec-{worker}"), move |inner| {
                threads::executor(inner, id)
            }))?;
        }
        let read_jobs = Arc::new(Mutex::new(read_jobs));
        for (number, (taker, readers)) in readers.into_iter().enumerate() {
            let jobs = read_jobs.clone();
            add(threads::start(&inner, &format!("read-{number}"), move |inner| {
                threads::reader(inner, &jobs, readers, &taker)
            }))?;
        }
        add(threads::start(&inner, "sync", move |inner| threads::sync(inner, &tickets)))?;
        add(threads::start(&inner, "sync-aside", move |inner| threads::sync_aside(inner, &asked)))?;
        add(threads::start(&inner, "files", move |inner| threads::files(inner, &file_work, &preparer)))?;
        add(threads::start(&inner, "checkpoint", move |inner| threads::checkpoint(inner, &jobs)))?;
        add(threads::start(&inner, "tick", move |inner| threads::tick(inner, tick)))?;
        Ok(runtime)
    }
}

/// So many long reads take turns at least; further ones wait until one of these has ended.
const READERS_MIN: usize = 16;

/// What a start has found before it makes the node.
struct Beginning {
    started: Instant,
    disk: Arc<RealDisk>,
    journal: Journal<RealDisk>,
    images: GroupImages,
    found: Report,
    identity: Identity,
    /// The cluster's name.
    name: String,
    staleness_ms_max: u64,
}

fn open_journal(
    disk: &Arc<RealDisk>,
    options: &RuntimeOptions,
    accepts: &dyn Fn(PartitionId, &Base) -> bool,
    refused: fn(String) -> StartError,
) -> Result<(Journal<RealDisk>, GroupImages, Report), StartError> {
    Journal::open_if(disk.clone(), options.segment_bytes, log_boot_id(), accepts).map_err(|error| match error
    {
        OpenError::NotAccepted { .. } => refused(options.dir.display().to_string()),
        error => StartError::Log(error),
    })
}

/// Why a node's log takes nothing more, if it does not.
fn stopped(node: &ClusterNode) -> Option<StartError> {
    let cause = node.out().filter(|_| node.is_closed())?;
    Some(StartError::Ended(cause.into()))
}

/// Whether a directory has files of a log.
fn has_log(disk: &RealDisk) -> std::io::Result<bool> {
    Ok(disk.list()?.iter().any(|name| name.starts_with("log-")))
}

/// What a node is made of when its threads start.
struct Parts {
    disk: Arc<RealDisk>,
    engines: Engines,
    member: Member,
    tick: Duration,
    partitions_count: usize,
    outside: Outside,
    skips: Arc<Skips>,
    /// The log is executed once the node runs.
    replaying: Replaying,
    staleness_ms_max: u64,
    request_timeout: Duration,
}

fn check(options: &RuntimeOptions, partitions: usize) -> Result<(), StartError> {
    options.engine.check(partitions as u16)?;
    if options.ports == 0 || options.ports > node::session::PORTS_MAX {
        return Err(StartError::Ports(options.ports));
    }
    if options.workers == 0 {
        return Err(StartError::Workers);
    }
    Ok(())
}

/// A number that clients cannot guess and that differs at every start: the kernel's, or one of the clock's
/// and this process's numbers where there is none.
pub(super) fn log_boot_id() -> u64 {
    use std::io::Read;
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    match read {
        Ok(()) => u64::from_le_bytes(bytes),
        Err(_) => {
            let nanos =
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
            txn::hash::mix(nanos ^ txn::hash::mix(u64::from(std::process::id())))
        }
    }
}
