//! A host's process: a node of the cluster, its engines with virtual workers, and its clients' connections.
//!
//! What arrives while the last round is still being worked on is taken in together. Every worker steps the
//! engines in turn with a budget of one single-key operation and is busy for what the operation costs. A sync
//! takes its own time, beside everything else ([`host`](super::host)).

mod serve;
mod work;

use super::alone;
use super::host::VirtualHost;
use super::site::Post;
use super::watch::{PartitionWatch, ReplicaWatch, SnapshotRead, advance};
use super::{Cluster, Frame, Timer};
use crate::judge;
use crate::keeper::Keeper;
use crate::leak;
use crate::tally::Tally;
use crate::traffic::Draft;
use crate::watch::invariant;
use crate::watch::real_time::Place;
use crate::watch::recorder::Recorder;
use crate::world::{Address, Core, EPOCH_MS, Input, Start, Violation};
use execute::siblings::exchange;
use execute::sparkle::{Mutant as SparkleMutant, Options as SparkleOptions, Sparkle};
use execute::{
    Assignment, Budget, Committed, Engine, EngineKind, Progress, ReadOutcome, SnapshotReader, WorkerId,
};
use node::cluster::{
    Answered, ClusterCheckpoint, ClusterEffects, ClusterEvent, ClusterNode, ClusterOptions, ClusterStart,
    LoadedEngines, load_engines,
};
use node::flights::{Flight, Flights, Reach};
use node::host::{HostEvent, drive};
use node::{Refused, Route, session};
use order::{Changed, Control, PartitionMap};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::Snapshot;
use txn::mutant::set_local_clock_ms;
use txn::{
    BootId, Epoch, NodeId, Outcome, PartitionId, PartitionRoute, Position, Request, RequestId, SessionId,
    Slots, Stop,
};

/// A command of a connection that has no reply yet.
struct Unanswered {
    number: u64,
    /// What its client gets once everything before it is answered.
    answer: Option<(Outcome, (PartitionId, Place))>,
}

/// A client's connection.
struct Connection {
    /// The client's number of it.
    number: u32,
    session: SessionId,
    /// Requests that were made.
    sequence: u64,
    unanswered: VecDeque<Unanswered>,
    /// Which command each unfinished request is.
    requests: BTreeMap<u64, u64>,
    /// Through which group its unfinished requests go.
    home: PartitionId,
    /// A strict read that waits.
    reading: Option<(u64, Flight<Reached>)>,
    /// Its unfinished requests in the order, if partitions share a key space, and the map by which they were
    /// routed.
    flights: Flights<Reached>,
    map: Arc<PartitionMap>,
    /// Something comes again, or may: nothing is submitted before everything is answered.
    holds: bool,
    /// The commands that wait for either of them.
    behind: VecDeque<(u64, PartitionId, Arc<Draft>)>,
}

impl Connection {
    /// Whether the next command may be taken.
    fn takes_commands(&mut self) -> bool {
        self.holds &= !self.requests.is_empty();
        self.reading.is_none() && !self.holds
    }
}

/// What a command reaches.
#[derive(Clone)]
struct Reached(Arc<Draft>);

impl Reach for Reached {
    fn route(&self, slots: &Slots) -> PartitionRoute {
        self.0.route(slots)
    }
    fn may_stray(&self) -> bool {
        self.0.strays
    }
    fn compares_versions(&self) -> bool {
        // The specification compares the same ones, wherever they were seen.
        false
    }
}

/// A virtual worker.
#[derive(Clone, Copy)]
struct Worker {
    busy_until_ns: u64,
    idle: bool,
}

/// A local partition.
struct Lane {
    engine: Arc<Recorder>,
    shared: Arc<dyn Engine>,
    reader: SnapshotReader,
    watch: ReplicaWatch,
    /// What the engine had confirmed, and speculated before, when the process was taken in: most of it was a
    /// replay.
    replayed: Option<(Position, u64)>,
    /// Open for a while, and then compared with the specification.
    snapshot: RefCell<Option<Snapshot>>,
}

/// A running process.
pub struct Process {
    me: NodeId,
    /// The map by which it started.
    known: Arc<PartitionMap>,
    node: ClusterNode,
    effects: ClusterEffects,
    lanes: BTreeMap<PartitionId, Lane>,
    /// Their engines.
    engines: Vec<(PartitionId, Arc<dyn Engine>)>,
    /// Which of them is stepped next.
    turn: usize,
    pub(super) keeper: Keeper,
    /// The last epoch that its node has confirmed.
    confirmed: Epoch,
    connections: BTreeMap<u16, Connection>,
    by_session: BTreeMap<SessionId, u16>,
    sessions: u32,
    pub(super) ticks: u64,
    inbox: Vec<(Address, Frame)>,
    round_due: bool,
    backlog: Vec<Arc<Request>>,
    /// What its node has taken, and no engine has final-committed.
    taken: BTreeSet<RequestId>,
    /// Strict reads that wait for a final commit.
    readable: Vec<(RequestId, PartitionId, Position)>,
    workers: Vec<Worker>,
    /// Until the log has been executed that a node by itself began with: up to which positions that is.
    replaying: Option<Vec<Position>>,
    /// A checkpoint that is being written.
    pub(super) checkpoint: Option<ClusterCheckpoint>,
}

/// A snapshot stays open for half of this time, on average.
const LOOK_NS: u64 = 40_000_000;
/// Operations that a worker does before the queue is asked again, at most.
const STEPS_AT_ONCE: u32 = 256;
/// The collector looks every so many ticks,
const COLLECT_TICKS: u64 = 32;
/// at so many records.
const COLLECTED: usize = 200;

impl Process {
    /// Behind which a start begins, whatever ends this process.
    pub(super) fn newest_checkpoint(&self) -> Epoch {
        self.node.status().newest_checkpoint
    }

    /// Starts a process from what its host's disk holds.
    pub(super) fn start(
        system: &mut Cluster,
        host: u16,
        core: &mut Core<Cluster>,
    ) -> Result<Start<Process>, Violation> {
        let Some((identity, has_run)) = system.identify(host) else {
            return Ok(Start::Idle);
        };
        let plan = &system.plan;
        let (mut keeper, images) = match Keeper::open(core, host, plan.segment_bytes) {
            Ok(opened) => opened,
            Err(_) if core.host(host).process_disk().is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        // As `ordo serve` does: a founder with an empty journal is the cluster's business, one that joined is
        // its own.
        let me = identity.node;
        let has_joined = !identity.first.nodes.contains_key(&me);
        if has_joined && has_run && keeper.is_empty() {
            return Ok(Start::Refused(format!("the journal of {me} is lost")));
        }
        if !has_run {
            if has_joined && let Err(error) = keeper.mark_joined() {
                return Ok(match core.host(host).process_disk().is_dead() {
                    true => Start::Died,
                    false => Start::Refused(error.to_string()),
                });
            }
            system.sites[usize::from(host)].identity = Some(identity.clone());
        }
        let workers = usize::from(plan.workers);
        let made: RefCell<Vec<Arc<Recorder>>> = RefCell::default();
        let nonce = system.processes;
        let make = |partition| -> Arc<dyn Engine> {
            let made_for = Assignment {
                workers,
                at_once: workers,
                partition,
                of: if plan.across { plan.partitions } else { 1 },
                era: nonce << 16,
            };
            let engine: Arc<dyn Engine> = match plan.engine {
                EngineKind::Sparkle => Arc::new(Sparkle::new(SparkleOptions {
                    capacity: plan.capacity,
                    mutant: plan.mutant_at(host),
                    window_min: plan.window_min,
                    ..SparkleOptions::of(made_for)
                })),
                // As a server's: no thread can be relied on to come.
                kind => kind.make(Assignment { at_once: 1, ..made_for }),
            };
            let engine = Arc::new(Recorder::new(engine));
            made.borrow_mut().push(engine.clone());
            engine
        };
        let disk = core.host(host).process_disk();
        let kept = identity.map.kept_by(me).collect();
        let loaded = load_engines(&*disk, kept, &images, plan.alone, &make, &mut |_| {});
        let LoadedEngines { engines, checkpoint_bytes, unusable, .. } = match loaded {
            Ok(loaded) => loaded,
            Err(_) if disk.is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let mut made = made.into_inner();
        if unusable.is_some() {
            // Those that a damaged checkpoint was loaded into.
            made.drain(..made.len() - engines.len());
        }
        let in_log = images.get(&PartitionId(0)).and_then(|image| alone::last_epoch_of(&image.entries));
        let mut lanes = BTreeMap::new();
        for (&partition, engine) in engines.keys().zip(made) {
            let position = engine.view().final_position();
            system.tally.recovered_from_checkpoint += u64::from(position > Position::NONE);
            let shared: Arc<dyn Engine> = engine.clone();
            lanes.insert(
                partition,
                Lane {
                    reader: SnapshotReader::new(shared.clone()),
                    watch: ReplicaWatch::new(position),
                    replayed: None,
                    engine,
                    shared,
                    snapshot: RefCell::new(None),
                },
            );
        }
        system.processes += 1;
        let plan = &system.plan;
        let options = ClusterOptions {
            seed: plan.seed,
            delivery: plan.delivery,
            fsync: plan.fsync,
            limits: plan.limits,
            tick_ms: (plan.tick_ns / 1_000_000).max(1),
            epochs_in_flight_max: plan.epochs_in_flight_max,
            checkpoint_bytes: plan.checkpoint_bytes,
            trail_bytes_max: plan.trail_bytes_max,
            speculate: plan.speculate,
            feed_part_bytes: plan.feed_part_bytes,
            // Little enough to make its bounds felt, and more than a slow network needs to get on.
            backlog_bytes_max: plan.backlog_bytes_max,
            feed_window_bytes: plan.feed_window_bytes,
            request_timeout_ms: plan.request_timeout_ms,
            expire: Some(Arc::new(redis_surface::ExpireProcedure)),
            expire_system: Some(Arc::new(redis_surface::ExpireSystemProcedure)),
            ..match plan.alone {
                true => ClusterOptions::alone(),
                false => ClusterOptions::new(me),
            }
        };
        let start = ClusterStart {
            map: (*identity.first).clone(),
            known: identity.map.clone(),
            images,
            engines,
            checkpoint_bytes,
            unusable: unusable.is_some(),
            nonce,
        };
        let node = match ClusterNode::recover(options, system.registry.clone(), start) {
            Ok(node) => node,
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let began = node.confirmed().epoch;
        system.begins_alone(host, began, in_log.unwrap_or_default().max(began), core)?;
        let judged = lanes.iter().filter(|_| system.plan.is_judged_at(host));
        for (&partition, lane) in judged {
            system.partitions[usize::from(partition.0)].check_loaded(&lane.engine)?;
        }
        let plan = &system.plan;
        let threads = if plan.engine.needs().one_worker { 1 } else { plan.workers };
        let mut process = Process {
            me,
            known: identity.map,
            node,
            effects: ClusterEffects::default(),
            engines: lanes
                .iter()
                .map(|(&partition, lane): (_, &Lane)| (partition, lane.shared.clone()))
                .collect(),
            turn: 0,
            lanes,
            keeper,
            replaying: None,
            checkpoint: None,
            confirmed: Epoch(0),
            connections: BTreeMap::new(),
            by_session: BTreeMap::new(),
            sessions: 0,
            ticks: 0,
            inbox: Vec::new(),
            round_due: false,
            backlog: Vec::new(),
            taken: BTreeSet::new(),
            readable: Vec::new(),
            workers: vec![Worker { busy_until_ns: 0, idle: true }; usize::from(threads)],
        };
        let first_tick_ns = 1 + core.draw.below(plan.tick_ns);
        core.set_timer(Address::Host(host), first_tick_ns, Timer::Tick);
        if plan.is_judged_at(host) {
            core.set_timer(Address::Host(host), LOOK_NS, Timer::Look);
        }
        let mut turn = Turn { system, process: &mut process, core, host };
        turn.prepare_soon();
        turn.perform()?;
        turn.wake();
        system.sites[usize::from(host)].runs = true;
        Ok(Start::Running(process))
    }

    pub(super) fn close_snapshots(&self) {
        for lane in self.lanes.values() {
            if let Some(snapshot) = lane.snapshot.take() {
                lane.engine.view().close(snapshot);
            }
        }
    }

    /// Adds what its node and its engines have counted.
    pub(super) fn count(&self, tally: &mut Tally) {
        tally.compared += self.node.compared().digests;
        for lane in self.lanes.values() {
            let status = lane.engine.status();
            tally.restarts += status.restarts;
            tally.suspensions += status.suspensions;
            if let Some((confirmed, speculated)) = lane.replayed {
                tally.executed += status.confirmed.0 - confirmed.0;
                tally.speculated += status.speculated_before_confirmation - speculated;
            }
        }
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.node.status().stopped.is_some()
    }

    /// Whether it accepts clients: a node accepts nobody before the order has given it a boot id, and one
    /// that stands alone nobody before it has executed its log.
    fn serves(&self) -> bool {
        self.has_booted() && !self.is_stopped() && self.replaying.is_none()
    }

    pub(super) fn has_booted(&self) -> bool {
        self.node.boot() != BootId(0)
    }

    /// The newest map that it knows: where the others are.
    pub(super) fn newest_map(&self) -> Arc<PartitionMap> {
        let own = self.node.map();
        match self.known.version > own.version {
            true => self.known.clone(),
            false => own.clone(),
        }
    }

    /// Whether only a new process goes on. One that waits for room on its disk does so by itself.
    pub(super) fn needs_restart(&self) -> bool {
        self.node.status().is_over || self.keeper.is_closed()
    }

    /// Whether nothing is on its way. The clock goes on.
    pub(super) fn is_idle(&self) -> bool {
        self.workers.iter().all(|worker| worker.idle)
            && self.node.is_idle()
            && self.inbox.is_empty()
            && self.backlog.is_empty()
            && self.readable.is_empty()
    }

    /// How far each local partition has come.
    pub(super) fn positions(&self) -> impl Iterator<Item = (PartitionId, Position)> + '_ {
        self.lanes.iter().map(|(&partition, lane)| (partition, lane.engine.view().final_position()))
    }

    /// Every local partition ends as the specification says, and nothing is left over.
    pub(super) fn check_end(&mut self, partitions: &[PartitionWatch]) -> Result<(), Violation> {
        self.settle()?;
        // Of what others executed a client may never hear: nobody remembers the outcome of a request that
        // every replica has restarted behind.
        let is_ordered = |id| partitions.iter().any(|watch| watch.has_ordered(id));
        if let Some(id) = self.taken.iter().find(|&id| !is_ordered(id)) {
            let text = format!(
                "{id:?}, which a node took, has no place in the order, although the node has lived since"
            );
            return Err(Violation::new("taken", text));
        }
        for (partition, lane) in &self.lanes {
            let watch = &partitions[usize::from(partition.0)];
            watch.check_commits(&lane.watch)?;
            let view = lane.engine.view();
            let snapshot = view.open();
            let checked = judge::check_snapshot(view, &snapshot, watch.oracle())
                .map_err(|text| Violation::new("serial", text));
            view.close(snapshot);
            checked?;
            leak::check(&*lane.engine, watch.oracle(), watch.last(), lane.engine.last_delivered())
                .map_err(|text| Violation::new("leak", text))?;
        }
        Ok(())
    }

    /// Steps every worker until it has nothing to do: each keeps a little garbage until its next turn.
    fn settle(&mut self) -> Result<(), Violation> {
        let mut committed: Vec<Committed> = Vec::new();
        let mut left = 100_000;
        for lane in self.lanes.values() {
            let mut worked = true;
            while std::mem::take(&mut worked) {
                for worker in 0..self.workers.len() {
                    while lane.shared.step(WorkerId(worker), Budget::ONE, &mut committed) == Progress::Worked
                    {
                        worked = true;
                        left -= 1;
                        if left == 0 || !committed.is_empty() {
                            return Err(Violation::new(
                                "liveness",
                                format!("worker {worker} is not idle at the end, {committed:?}"),
                            ));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn describe(&self) -> String {
        let reading: Vec<_> = self
            .connections
            .iter()
            .map(|(client, connection)| {
                format!(
                    "{client}: {:?} reading {:?}",
                    connection.requests,
                    connection.reading.as_ref().map(|(number, _)| number)
                )
            })
            .collect();
        let mut text = format!(
            "{reading:?} {:?}, {} frames to take in, {} requests without room, {} reads",
            self.node.status(),
            self.inbox.len(),
            self.backlog.len(),
            self.readable.len()
        );
        for (partition, lane) in &self.lanes {
            text.push_str(&format!("; {partition}: {:?}", self.node.group_status(*partition)));
            text.push_str(&format!(" {:?}", lane.engine.status()));
        }
        text
    }
}

/// A process's turn: something has reached it.
pub(super) struct Turn<'a> {
    pub system: &'a mut Cluster,
    pub process: &'a mut Process,
    pub core: &'a mut Core<Cluster>,
    pub host: u16,
}

impl Turn<'_> {
    /// The node, its effects, and who performs them.
    fn with_host(&mut self) -> (&mut ClusterNode, &mut ClusterEffects, VirtualHost<'_>) {
        let map = self.process.newest_map();
        let process = &mut *self.process;
        let performer = VirtualHost {
            system: self.system,
            core: self.core,
            keeper: &mut process.keeper,
            checkpoint: &mut process.checkpoint,
            host: self.host,
            me: process.me,
            now_tick: process.ticks,
            map,
            violation: None,
        };
        (&mut process.node, &mut process.effects, performer)
    }

    fn prepare_soon(&mut self) {
        self.with_host().2.prepare_soon();
    }

    pub(super) fn me(&self) -> Address {
        Address::Host(self.host)
    }
    fn now_ms(&self) -> u64 {
        self.core.steady_ms(self.host)
    }

    /// Tells the oracle of time what all clocks show, and who knows the time.
    fn look_at_clocks(&mut self) {
        let true_ms = EPOCH_MS + self.core.now_ns() / 1_000_000;
        let hosts = 0..self.system.sites.len() as u16;
        let ahead_ms = |host| self.core.clock_ms(host).cast_signed() - true_ms.cast_signed();
        let clocks_ahead_ms = hosts.map(ahead_ms).collect();
        let sites = self.system.sites.iter();
        let unset = sites.filter(|site| site.runs && !site.knows_time).count();
        self.system.epochs.looked(true_ms, clocks_ahead_ms, unset);
    }

    /// What something that usually costs `ns` costs now.
    fn cost_ns(&mut self, ns: u64) -> u64 {
        let factor = self.core.cpu_factor(self.host);
        let jitter =
            if self.system.plan.jitter { self.core.draw.pick(&[1, 1, 1, 1, 2, 2, 5, 20]) } else { 1 };
        ns * factor * jitter
    }

    pub(super) fn take(&mut self, input: Input<Frame, Timer>) -> Result<(), Violation> {
        set_local_clock_ms(self.core.clock_ms(self.host));
        match input {
            Input::Frame { from, frame } => {
                self.process.inbox.push((from, frame));
                self.schedule_round();
            }
            Input::Timer(Timer::Worker(worker)) => return self.step(worker),
            Input::Timer(Timer::Round) => {
                self.process.round_due = false;
                self.round()?;
            }
            Input::Timer(Timer::Tick) => {
                self.core.set_timer(self.me(), self.system.plan.tick_ns, Timer::Tick);
                let wall_ms = self.core.clock_ms(self.host);
                self.look_at_clocks();
                self.handle(HostEvent::Tick { wall_ms })?;
                let knows_time = self.process.node.clock().is_set;
                self.system.sites[usize::from(self.host)].knows_time = knows_time;
                self.process.ticks += 1;
                if self.process.ticks.is_multiple_of(COLLECT_TICKS) {
                    for lane in self.process.lanes.values() {
                        lane.engine.view().collect(COLLECTED);
                    }
                    self.mark()?;
                }
                self.check_everysec()?;
                self.check_compared()?;
                self.resubmit()?;
            }
            Input::Timer(Timer::Look) => self.look()?,
            Input::Timer(Timer::Synced) => self.synced()?,
            Input::Timer(Timer::Checkpointed) => self.checkpointed()?,
            Input::Timer(Timer::Prepared) => self.prepared()?,
            Input::Timer(Timer::Read { client, id }) => self.read_aside(client, id)?,
            Input::Timer(Timer::Go | Timer::Operate | Timer::Timeout { .. }) => {}
        }
        Ok(())
    }

    /// No replica's state differs from another's.
    fn check_compared(&self) -> Result<(), Violation> {
        let compared = self.process.node.compared();
        let may_differ = self.system.plan.mutant == Some(SparkleMutant::LoseWrite);
        if compared.differences == 0 || may_differ {
            return Ok(());
        }
        let text = format!("{} sees state digests that differ: {compared:?}", self.process.me);
        Err(Violation::new("states", text))
    }

    /// Opens snapshots, or looks at those that were opened a while ago.
    fn look(&mut self) -> Result<(), Violation> {
        for (partition, lane) in &self.process.lanes {
            let view = lane.engine.view();
            let Some(snapshot) = lane.snapshot.take() else {
                lane.snapshot.replace(Some(view.open()));
                continue;
            };
            let watch = &self.system.partitions[usize::from(partition.0)];
            let workload = self.system.population.workload();
            // No invariant holds of one partition out of several, and a workload's records are many.
            let is_across = self.system.plan.across;
            let checked = match workload.filter(|_| !is_across) {
                None if workload.is_some() && !self.core.draw.percent(10) => Ok(()),
                None => watch.check_snapshot(view, &snapshot).map_err(|text| Violation::new("serial", text)),
                Some(workload) => watch.first().map_or(Ok(()), |first| {
                    invariant::check(&**workload, view, &snapshot, watch.oracle(), first)
                        .map_err(|text| Violation::new("invariant", text))
                }),
            };
            view.close(snapshot);
            checked?;
        }
        let every_ns = match self.system.population.workload() {
            Some(_) => LOOK_NS * 20,
            None => LOOK_NS * 5,
        };
        let after_ns = self.core.draw.below(every_ns);
        self.core.set_timer(self.me(), after_ns, Timer::Look);
        Ok(())
    }

    fn schedule_round(&mut self) {
        if !std::mem::replace(&mut self.process.round_due, true) {
            let now_ns = self.core.now_ns();
            let free = self.process.workers.iter().map(|worker| worker.busy_until_ns);
            let after_ns = free.min().unwrap_or(0).saturating_sub(now_ns);
            self.core.set_timer(self.me(), after_ns, Timer::Round);
        }
    }

    /// Takes in what has arrived.
    fn round(&mut self) -> Result<(), Violation> {
        let arrived = std::mem::take(&mut self.process.inbox);
        let mut requests = std::mem::take(&mut self.process.backlog);
        let mut spent_ns = 0;
        for (from, frame) in arrived {
            spent_ns += self.system.plan.costs.command_ns;
            match (from, frame) {
                (Address::Host(_), Frame::Peer { from, to, bytes }) => {
                    // What is meant for another, or comes from somebody whom the map does not know, has no
                    // connection.
                    let is_known = self.process.newest_map().nodes.contains_key(&from);
                    if to == self.process.me && is_known {
                        self.handle(HostEvent::Frame { from, bytes })?;
                    }
                }
                (operator, Frame::Ask) if self.process.serves() => {
                    let map = self.process.newest_map();
                    self.core.send(self.me(), operator, Frame::Told { map });
                }
                (_, Frame::Order { control }) if self.process.serves() => {
                    self.handle(ClusterEvent::ChangeWanted(control))?;
                }
                (Address::Client(client), Frame::Command { connection, number, partition, draft })
                    if self.open(client, connection, number) =>
                {
                    spent_ns += self.command(client, number, partition, draft, &mut requests)?;
                }
                _ => {}
            }
        }
        self.submit(requests)?;
        let spent_ns = self.cost_ns(spent_ns);
        let now_ns = self.core.now_ns();
        let workers = self.process.workers.iter_mut();
        if let Some(worker) = workers.min_by_key(|worker| worker.busy_until_ns) {
            worker.busy_until_ns = worker.busy_until_ns.max(now_ns) + spent_ns;
        }
        Ok(())
    }

    pub(super) fn handle(&mut self, event: impl Into<ClusterEvent>) -> Result<(), Violation> {
        let now_ms = self.now_ms();
        let process = &mut *self.process;
        process.node.handle(event, now_ms, &mut process.effects);
        self.perform()
    }

    /// Does what the node wants done.
    fn perform(&mut self) -> Result<(), Violation> {
        let now_ms = self.now_ms();
        let (node, effects, mut performer) = self.with_host();
        drive(node, effects, now_ms, &mut performer);
        let violation = performer.violation;
        let process = &mut *self.process;
        let effects = &mut process.effects;
        for text in effects.warnings.drain(..).chain(effects.news.drain(..)) {
            self.core.note(Address::Host(self.host), || text);
        }
        if let Some(violation) = violation {
            return Err(violation);
        }
        effects.recovered = false;
        if std::mem::take(&mut effects.restart) {
            self.core.note(Address::Host(self.host), || "starts anew".to_owned());
            self.system.tally.installed += 1;
            let map = process.newest_map();
            self.system.sites[usize::from(self.host)].remember(&map);
            self.core.exit(self.host);
        }
        let effects = &mut process.effects;
        if let Some(known) = effects.known.take() {
            process.known = known;
        }
        let changed = std::mem::take(&mut effects.changed);
        if let Some(text) = effects.ended.take() {
            self.ended(&text)?;
        }
        self.tell_operator(&changed);
        let process = &mut *self.process;
        let effects = &mut process.effects;
        if let Some(boot) = effects.boot.take() {
            self.system.sites[usize::from(self.host)].booted(boot)?;
            if self.system.plan.alone {
                let delivered = process.lanes.values().map(|lane| lane.engine.status().delivered);
                process.replaying = Some(delivered.collect());
            } else {
                self.system.open[usize::from(self.host)] = true;
            }
            for lane in process.lanes.values_mut() {
                let status = lane.engine.status();
                lane.replayed = Some((status.confirmed, status.speculated_before_confirmation));
            }
            self.core.note(Address::Host(self.host), || format!("is {boot}"));
        }
        let refused = std::mem::take(&mut effects.refused);
        process.readable.append(&mut effects.readable);
        let has_work = effects.confirmed || effects.delivered;
        (effects.confirmed, effects.delivered) = Default::default();
        if has_work {
            self.wake();
        }
        for (id, outcome) in refused {
            self.refuse(id, outcome);
        }
        for answered in std::mem::take(&mut self.process.effects.answered) {
            self.process.taken.remove(&answered.id);
            let place = Place::At(answered.position);
            self.arrived(answered.id, answered.outcome, (answered.partition, place))?;
        }
        self.look_at_replay();
        self.listen()?;
        if !self.process.readable.is_empty() {
            self.run_reads()?;
        }
        Ok(())
    }

    /// Looks whether a node that stands alone has executed the log that it began with.
    pub(super) fn look_at_replay(&mut self) {
        let process = &mut *self.process;
        let Some(upto) = &process.replaying else { return };
        let mut both = process.lanes.values().zip(upto);
        if both.all(|(lane, upto)| lane.engine.view().final_position() >= *upto) {
            process.replaying = None;
            self.system.open[usize::from(self.host)] = true;
        }
    }

    /// What became of the changes that the operator wanted.
    fn tell_operator(&mut self, changes: &[(Control, Changed)]) {
        let Some(operator) = self.system.operator.me else {
            return;
        };
        for (control, changed) in changes {
            self.system.tally.placed += u64::from(*changed == Changed::Placed);
            if matches!(control, Control::AddNode { .. } | Control::Drain { .. }) {
                let frame = Frame::Ordered { changed: *changed };
                self.core.send(self.me(), Address::Client(operator), frame);
            }
        }
    }

    /// The node ends by itself.
    fn ended(&mut self, text: &str) -> Result<(), Violation> {
        let me = self.process.me;
        self.core.note(self.me(), || text.to_owned());
        let is_replaced = self.system.operator.replaces(me);
        let place = &mut self.system.sites[usize::from(self.host)];
        if text.contains("has left the cluster") && is_replaced {
            self.system.tally.left += 1;
            place.post = Post::Vacant;
            place.identity = None;
        } else if text.contains("disk was lost") && place.lost_disk {
            self.system.tally.disks_refused += 1;
            // Somebody may start it again, in vain.
            place.rests = self.core.draw.percent(60);
            self.system.replace(self.host, self.core);
        } else {
            let oracle = if text.contains("has diverged") { "states" } else { "members" };
            let text = format!("{me} ends, and has no reason to: {text}");
            return Err(Violation::new(oracle, text));
        }
        self.core.exit(self.host);
        Ok(())
    }
}
