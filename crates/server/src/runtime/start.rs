//! How a runtime begins: alone, or as a node of a cluster.

use super::core::{Alone, Core, Hands, Machine};
use super::engines::Engines;
use super::executors::Bed;
use super::member::{FromPeers, Member, Outside, PROTOCOL};
use super::options::{MemberOptions, MemberReport, RuntimeOptions, StartError};
use super::port::Ports;
use super::replaying::Replaying;
use super::routing::SharedRouting;
use super::threads;
use super::turns::{Taker, Turns};
use super::{ASK_OTHERS, ASK_OTHERS_FIRST, Inner, Runtime, TELL_EVERY};
use crate::clock::SteadyClock;
use crate::cluster::identity;
use crate::disk::RealDisk;
use crate::peers::{PeerOptions, Peers};
use crate::skips;
use execute::siblings::Twins;
use execute::{Assignment, Pause, SnapshotReader, WorkerId};
use node::cluster::checkpoint::refuse_alone;
use node::cluster::levels::check_level;
use node::cluster::{ClusterNode, ClusterRecoverError, ClusterStart, LoadedEngines, joined_record};
use node::{RecoverError, Recovered, RecoveryReport};
use order::{Journal, PartitionMap, Preparer, Skips};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicI64};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::{PartitionId, Registry};

impl Runtime {
    /// Recovers the node in a directory and starts its threads.
    pub fn start(
        options: RuntimeOptions,
        registry: &Registry,
    ) -> Result<(Arc<Runtime>, RecoveryReport), StartError> {
        let started = Instant::now();
        check(&options)?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        if options.dir.join(identity::FILE).exists() {
            let name = identity::FILE.to_owned();
            return Err(RecoverError::OfCluster { name }.into());
        }
        // One more for the thread that shuts down, and one for the peers' threads.
        let worker_ids = options.workers + options.ports + 2;
        let assignment = Assignment { at_once: options.workers, ..Assignment::alone(worker_ids) };
        let make_engine = &options.engine;
        let mut told = started;
        let skips = Arc::new(skips::begin(disk.path(), &options.skip)?);
        let replaying = Replaying::begin(disk.path());
        let recovered = node::recover(
            &disk,
            node::NodeOptions {
                fsync: options.fsync,
                limits: options.limits,
                checkpoint_bytes: options.checkpoint_bytes,
                expire: options.expire.clone(),
                expire_system: options.expire_system.clone(),
                skips: skips.clone(),
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
        );
        drop(replaying);
        if let Err(RecoverError::SkipsTooLate(_)) = &recovered {
            skips::take_back(disk.path(), Skips::clone(&skips))?;
        }
        let Recovered { node, engine, log, report } = recovered?;
        skips::enforce(disk.path(), Skips::clone(&skips))?;
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
                is_out: Arc::default(),
                routing: Arc::new(SharedRouting::new(Arc::new(PartitionMap::alone()))),
            },
            skips,
            replaying: None,
            staleness_ms_max: u64::MAX,
            request_timeout: Duration::MAX,
        };
        let runtime = Runtime::launch(options, parts)?;
        runtime.inner.ports.begin(boot);
        runtime.inner.prepare_segment();
        let elapsed_ms = started.elapsed().as_millis() as u64;
        Ok((runtime, RecoveryReport { elapsed_ms, ..report }))
    }

    /// Recovers a node of a cluster and starts its threads and its connections to the others. Returns once
    /// the order has given this process its boot id, which takes a majority of partition 0's replicas, and
    /// tells what was in the directory.
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
            node: mut node_options,
            peers: peer_options,
            staleness_ms_max,
            is_gone,
        } = cluster;
        check(&options)?;
        // Before anything is touched.
        check_level(&identity.map, node_options.level).map_err(StartError::Cluster)?;
        let disk = Arc::new(RealDisk::open(&options.dir)?);
        refuse_alone(&*disk)?;
        let worker_ids = options.workers + options.ports + 2;
        let (mut journal, images, report) =
            Journal::open(disk.clone(), options.segment_bytes, log_boot_id()).map_err(RecoverError::Log)?;
        if report.cut.is_some() {
            tracing::warn!("{report}");
        }
        // A founder with an empty journal is the cluster's business (`node::cluster`); one that joined is
        // ours.
        let has_joined = !identity.first.nodes.contains_key(&identity.node);
        if !has_run {
            if has_joined {
                let mark = journal.append(&[joined_record()]);
                mark.and_then(|_| journal.sync()).map_err(StartError::Journal)?;
            }
            identity.save(&options.dir)?;
        } else if has_joined && journal.status().last.0 == 0 {
            return Err(StartError::JournalLost(options.dir.display().to_string()));
        }
        let skips = Arc::new(skips::begin(disk.path(), &options.skip)?);
        node_options.skips = skips.clone();
        let replaying = Replaying::begin(disk.path());
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
        let LoadedEngines { engines, checkpoint_bytes } =
            node::cluster::load_engines(&*disk, kept, &images, &make_engine)?;
        let entries = images.values().map(|image| image.entries.len() as u64).sum();
        let start = ClusterStart {
            map: identity.first,
            known: known.clone(),
            images,
            engines: engines.clone(),
            checkpoint_bytes,
            nonce,
        };
        let node = ClusterNode::recover(node_options.clone(), registry.clone(), start);
        if let Err(ClusterRecoverError::SkipsTooLate(_)) = &node {
            skips::take_back(disk.path(), Skips::clone(&skips))?;
        }
        let node = node.map_err(StartError::Cluster)?;
        skips::enforce(disk.path(), Skips::clone(&skips))?;
        let report = MemberReport {
            partitions: engines.keys().copied().collect(),
            checkpoint: node.confirmed().epoch,
            entries,
            records: engines.values().map(|engine| engine.view().census().live).sum(),
            elapsed_ms: started.elapsed().as_millis() as u64,
        };
        let preparer = journal.preparer();
        let partitions_count = node.map().partitions.len();
        let outside = Outside {
            peers: Arc::default(),
            fresh_ms: Arc::default(),
            is_out: Arc::default(),
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
            skips: skips.clone(),
            replaying: Some(replaying),
            staleness_ms_max,
            request_timeout: Duration::from_millis(node_options.request_timeout_ms),
        };
        let runtime = Runtime::launch(options, parts)?;
        let events = Arc::new(FromPeers(runtime.inner.clone()));
        let started = Peers::start(
            PeerOptions { protocols: PROTOCOL..=PROTOCOL, skips: skips.digest(), ..peer_options },
            events,
        )?;
        let _ = outside.peers.set(started);
        runtime.join(runtime.inner.clone());
        runtime.inner.look_at_map();
        runtime.wait_for_boot(&*is_gone);
        runtime.inner.log_was_delivered();
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
                    tracing::info!("loading: {} transactions of the log so far", executed_now - began);
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
        let ports = Arc::new(Ports::new(options.ports));
        if let Machine::Member(member) = &machine {
            // Before the first thread: what is executed from here on may be waited for at other nodes.
            ports.set_spread(member.node.is_spread());
        }
        let inner = Arc::new(Inner {
            clock: SteadyClock::start(),
            epoch_lead_ms: AtomicI64::new(0),
            engines,
            peer_worker: Mutex::default(),
            strict: Mutex::default(),
            strict_waiting: AtomicBool::new(false),
            partitions_count,
            outside,
            skips,
            replaying: Mutex::new(replaying.map(|replaying| (replaying, None))),
            staleness_ms_max,
            request_timeout,
            core: Core::new(machine, Hands { sync, sync_aside, files, checkpoint }),
            ports,
            bed: Bed::default(),
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
        // A node by itself takes nothing before it knows the time.
        let outcome = inner.tick();
        inner.follow(outcome, None);
        let runtime = Arc::new(Runtime {
            inner: inner.clone(),
            threads: Mutex::default(),
            membership: OnceLock::new(),
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

/// What a node is made of when its threads start.
struct Parts {
    disk: Arc<RealDisk>,
    engines: Engines,
    machine: Machine,
    preparer: Preparer<RealDisk>,
    tick: Duration,
    partitions_count: usize,
    outside: Outside,
    skips: Arc<Skips>,
    /// The log of a cluster's node is executed once it runs.
    replaying: Option<Replaying>,
    staleness_ms_max: u64,
    request_timeout: Duration,
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

/// A number that clients cannot guess and that differs at every start: the kernel's, or one of the clock's
/// and this process's numbers where there is none.
fn log_boot_id() -> u64 {
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
