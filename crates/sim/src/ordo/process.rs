//! A host's process: a node, its log, its engine with virtual workers, and its clients' connections.
//!
//! Commands that arrive while the last round is still being worked on are taken in together, as a busy server
//! groups them; an idle one takes each at once. Every worker steps the engine with a budget of one single-key
//! operation and is busy for what the operation costs. A sync, a checkpoint and a long read take their own
//! time, beside everything else.

use super::{EngineKind, Frame, Ordo, Timer};
use crate::traffic::Draft;
use crate::watch::real_time::Place;
use crate::watch::recorder::Recorder;
use crate::world::{Address, Core, Input, MortalDisk, Start, Violation};
use execute::sparkle::{Options as SparkleOptions, Sparkle};
use execute::{Budget, Calvin, Committed, Engine, Progress, ReadOutcome, Serial, SnapshotReader, WorkerId};
use node::{CheckpointJob, Event, Node, NodeOptions, Refused, Route, session};
use order::{Log, SyncTicket, Synced};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use store::Snapshot;
use txn::mutant::set_local_clock_ms;
use txn::{Outcome, Position, Request, RequestId, SessionId};

/// A command of a connection that has no reply yet.
struct Unanswered {
    number: u64,
    /// What its client gets once everything before it is answered.
    answer: Option<(Outcome, Place)>,
}

/// A client's connection.
struct Connection {
    /// The client's number of it.
    number: u32,
    session: SessionId,
    /// Requests that were made for the order.
    sequence: u64,
    /// In the order of the commands.
    unanswered: VecDeque<Unanswered>,
    /// Which command each unfinished request is.
    requests: BTreeMap<u64, u64>,
    /// A read that runs aside, and the commands that wait for it.
    aside: Option<(u64, Arc<Request>)>,
    behind: VecDeque<(u64, Arc<Draft>)>,
}

impl Connection {
    fn answer(&mut self, number: u64, outcome: Outcome, place: Place) {
        if let Some(unanswered) = self.unanswered.iter_mut().find(|unanswered| unanswered.number == number) {
            unanswered.answer = Some((outcome, place));
        }
    }
}

/// A virtual worker.
#[derive(Clone, Copy)]
struct Worker {
    busy_until_ns: u64,
    /// It found nothing to do at its last step, and nothing has happened since.
    idle: bool,
}

/// A sync: the disk may do it when it is asked to, or only just before it says so. What is written meanwhile
/// is covered by chance only.
enum Syncing {
    Asked(SyncTicket<MortalDisk>),
    Done(io::Result<Synced>),
}

/// A running process.
pub struct Process {
    node: Node,
    log: Log<MortalDisk>,
    disk: Arc<MortalDisk>,
    engine: Arc<Recorder>,
    shared: Arc<dyn Engine>,
    reader: SnapshotReader,
    effects: node::Effects,
    /// On its way to the disk.
    sync: Option<Syncing>,
    checkpoint: Option<CheckpointJob>,
    connections: BTreeMap<u16, Connection>,
    by_session: BTreeMap<SessionId, u16>,
    sessions: u32,
    /// Commands that have arrived and were not taken in.
    inbox: Vec<(u16, u32, u64, Arc<Draft>)>,
    round_due: bool,
    /// Requests that the node had no room for.
    backlog: Vec<Arc<Request>>,
    workers: Vec<Worker>,
    /// Open for a while, and then compared with the specification.
    snapshot: RefCell<Option<Snapshot>>,
}

impl Process {
    /// Recovers a process from its host's disk.
    pub(super) fn start(
        system: &mut Ordo,
        host: u16,
        core: &mut Core<Ordo>,
    ) -> Result<Start<Process>, Violation> {
        let plan = &system.plan;
        let disk = core.host(host).process_disk();
        let made: RefCell<Option<Arc<Recorder>>> = RefCell::new(None);
        let workers = usize::from(plan.workers);
        let make = || -> Arc<dyn Engine> {
            let engine: Box<dyn Engine> = match plan.engine {
                EngineKind::Sparkle => Box::new(Sparkle::new(SparkleOptions {
                    capacity: plan.capacity,
                    mutant: plan.mutant,
                    ..SparkleOptions::new(workers)
                })),
                EngineKind::Calvin => Box::new(Calvin::new(workers)),
                EngineKind::Serial => Box::new(Serial::new()),
            };
            let recorder = Arc::new(Recorder::new(engine));
            *made.borrow_mut() = Some(recorder.clone());
            recorder
        };
        let options = NodeOptions {
            fsync: plan.fsync,
            limits: plan.limits,
            checkpoint_bytes: plan.checkpoint_bytes,
            expire: Some(Arc::new(redis_surface::ExpireProcedure)),
            expire_system: Some(Arc::new(redis_surface::ExpireSystemProcedure)),
            skips: Arc::default(),
        };
        let boot_id = core.draw.bits();
        set_local_clock_ms(core.clock_ms(host));
        let recovered =
            node::recover(&disk, options, plan.segment_bytes, boot_id, &system.registry, &make, &mut |_| {});
        let recovered = match recovered {
            Ok(recovered) => recovered,
            Err(_) if disk.is_dead() => return Ok(Start::Died),
            Err(error) => return Ok(Start::Refused(error.to_string())),
        };
        let engine =
            made.into_inner().ok_or_else(|| Violation::new("recovery", "recovery made no engine"))?;
        core.note(Address::Host(host), || {
            let warnings = recovered.report.warnings.join("; ");
            format!("{} {warnings}", recovered.report)
        });
        let flipped = core.host(host).has_flipped_bit();
        let judged = system.plan.judged;
        system.tally.recovered_from_checkpoint += u64::from(recovered.report.checkpoint > Position::NONE);
        let watched = system.watch(host);
        if judged {
            watched.order.recovered(&engine, flipped)?;
        } else {
            engine.take();
        }
        let last = engine.view().final_position();
        let lost = watched.time.recovered(last, core.host(host).incarnation());
        // What vanished cannot be explained by a serial order of everything that was seen.
        system.checkable &= !lost;
        let loaded = &mut system.loaded[usize::from(host)];
        if last < *loaded {
            // A flipped bit has taken initial records: the workload knows nothing of such a state.
            *loaded = Position::NONE;
        }
        let plan = &system.plan;
        let shared: Arc<dyn Engine> = engine.clone();
        // The serial engine's steps exclude each other.
        let lanes = match plan.engine {
            EngineKind::Serial => 1,
            _ => plan.workers,
        };
        let process = Process {
            node: recovered.node,
            log: recovered.log,
            disk,
            reader: SnapshotReader::new(shared.clone()),
            engine,
            shared,
            effects: node::Effects::default(),
            sync: None,
            checkpoint: None,
            connections: BTreeMap::new(),
            by_session: BTreeMap::new(),
            sessions: 0,
            inbox: Vec::new(),
            round_due: false,
            backlog: Vec::new(),
            workers: vec![Worker { busy_until_ns: 0, idle: false }; usize::from(lanes)],
            snapshot: RefCell::new(None),
        };
        core.set_timer(Address::Host(host), 0, Timer::Tick);
        core.set_timer(Address::Host(host), PREPARE_NS, Timer::Prepared);
        if judged {
            core.set_timer(Address::Host(host), PREPARE_NS, Timer::Look);
        }
        // A replay may leave work that nobody waits for.
        for worker in 0..lanes {
            core.set_timer(Address::Host(host), 0, Timer::Worker(worker));
        }
        Ok(Start::Running(process))
    }

    /// The engine.
    pub(super) fn engine(&self) -> &Arc<Recorder> {
        &self.engine
    }
    /// Lets go of the snapshot that is open.
    pub(super) fn close_snapshot(&self) {
        if let Some(snapshot) = self.snapshot.take() {
            self.engine.view().close(snapshot);
        }
    }
    /// The last position in the log.
    pub(super) fn written(&self) -> Position {
        self.node.status().written
    }
    /// A sync of its log failed: it takes no writes until a restart.
    pub(super) fn is_poisoned(&self) -> bool {
        self.log.is_closed()
    }
    /// Whether nothing is on its way. The clock goes on.
    pub(super) fn is_idle(&mut self) -> bool {
        let status = self.node.status();
        self.workers.iter().all(|worker| worker.idle)
            && status.final_committed == status.delivered
            && self.inbox.is_empty()
            && self.backlog.is_empty()
            && self.checkpoint.is_none()
    }
    /// Steps every worker until it has nothing to do: each keeps a little garbage until its next turn.
    pub(super) fn settle(&mut self) -> Result<(), Violation> {
        let mut committed: Vec<Committed> = Vec::new();
        let mut left = 100_000;
        // What one does may be work for another.
        let mut worked = true;
        while std::mem::take(&mut worked) {
            for worker in 0..self.workers.len() {
                while self.shared.step(WorkerId(worker), Budget::ONE, &mut committed) == Progress::Worked {
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
        Ok(())
    }
    pub(super) fn describe(&self) -> String {
        format!(
            "{:?}, {:?}, {} commands to take in, {} requests without room",
            self.node.status(),
            self.engine.status(),
            self.inbox.len(),
            self.backlog.len()
        )
    }
}

const TICK_NS: u64 = 100_000_000;
/// A segment is made ahead of need, and again when it was used.
const PREPARE_NS: u64 = 3_000_000;
/// A snapshot stays open for half of this time, on average.
const LOOK_NS: u64 = 40_000_000;
/// Operations that a worker does before the queue is asked again, at most.
const STEPS_AT_ONCE: u32 = 256;
/// Records that the collector looks at with every tick.
const COLLECTED: usize = 200;

/// A process's turn: something has reached it.
pub(super) struct Turn<'a> {
    pub system: &'a mut Ordo,
    pub process: &'a mut Process,
    pub core: &'a mut Core<Ordo>,
    pub host: u16,
}

impl Turn<'_> {
    fn me(&self) -> Address {
        Address::Host(self.host)
    }
    fn now_ms(&self) -> u64 {
        self.core.steady_ms(self.host)
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
            Input::Frame {
                from: Address::Client(client),
                frame: Frame::Command { connection, number, draft },
            } => {
                self.process.inbox.push((client, connection, number, draft));
                self.schedule_round();
            }
            Input::Frame { .. } => {}
            Input::Timer(Timer::Worker(worker)) => return self.step(worker),
            Input::Timer(Timer::Round) => {
                self.process.round_due = false;
                self.round()?;
            }
            Input::Timer(Timer::Tick) => {
                self.core.set_timer(self.me(), TICK_NS, Timer::Tick);
                let wall_ms = self.core.clock_ms(self.host);
                self.handle(Event::Tick { wall_ms })?;
                self.process.engine.view().collect(COLLECTED);
                self.resubmit()?;
            }
            Input::Timer(Timer::Prepared) => {
                // Ahead of need, on a thread of its own; a failure shows when the file is needed.
                let _ = self.process.log.preparer().prepare_next();
                self.core.set_timer(self.me(), PREPARE_NS, Timer::Prepared);
            }
            Input::Timer(Timer::Look) => self.look()?,
            Input::Timer(Timer::Synced) => self.synced()?,
            Input::Timer(Timer::Checkpointed) => self.checkpointed()?,
            Input::Timer(Timer::Read(client)) => self.read_aside(client)?,
            Input::Timer(Timer::Go | Timer::Timeout { .. }) => {}
        }
        Ok(())
    }

    /// Opens a snapshot, or looks at the one that was opened a while ago.
    fn look(&mut self) -> Result<(), Violation> {
        let view = self.process.engine.view();
        let opened = self.process.snapshot.take();
        let checked = match opened {
            Some(snapshot) => {
                let checked = self.system.check_snapshot(usize::from(self.host), view, &snapshot);
                view.close(snapshot);
                checked
            }
            None => {
                self.process.snapshot.replace(Some(view.open()));
                Ok(())
            }
        };
        // Large states are looked at less often.
        let every_ns = match self.system.population.workload() {
            Some(_) => LOOK_NS * 10,
            None => LOOK_NS,
        };
        let after_ns = self.core.draw.below(every_ns);
        self.core.set_timer(self.me(), after_ns, Timer::Look);
        checked
    }

    /// Commands are taken in as soon as a worker has time for them.
    fn schedule_round(&mut self) {
        if !std::mem::replace(&mut self.process.round_due, true) {
            let now_ns = self.core.now_ns();
            let free_ns = self.process.workers.iter().map(|worker| worker.busy_until_ns).min().unwrap_or(0);
            let after_ns = free_ns.saturating_sub(now_ns);
            self.core.set_timer(self.me(), after_ns, Timer::Round);
        }
    }

    /// Takes in what has arrived.
    fn round(&mut self) -> Result<(), Violation> {
        let arrived = std::mem::take(&mut self.process.inbox);
        let mut requests = std::mem::take(&mut self.process.backlog);
        let mut spent_ns = 0;
        for (client, connection, number, draft) in arrived {
            spent_ns += self.system.plan.costs.command_ns;
            if self.open(client, connection, number) {
                spent_ns += self.command(client, number, draft, &mut requests)?;
            }
        }
        spent_ns += self.submit(requests)?;
        let spent_ns = self.cost_ns(spent_ns);
        let now_ns = self.core.now_ns();
        if let Some(worker) = self.process.workers.iter_mut().min_by_key(|worker| worker.busy_until_ns) {
            worker.busy_until_ns = worker.busy_until_ns.max(now_ns) + spent_ns;
        }
        self.wake();
        Ok(())
    }

    /// Finds or opens the connection of a command. False if the connection is gone.
    fn open(&mut self, client: u16, number: u32, command: u64) -> bool {
        let known = self.process.connections.get(&client).map_or(0, |connection| connection.number);
        if number == known {
            return true;
        }
        // A connection begins with its first command: a later one belongs to a process before this one.
        if number < known || command != 1 {
            let frame = Frame::Closed { connection: number };
            self.core.send(self.me(), Address::Client(client), frame);
            return false;
        }
        self.process.sessions += 1;
        let session = session::compose(self.process.node.boot(), 0, self.process.sessions);
        let connection = Connection {
            number,
            session,
            sequence: 0,
            unanswered: VecDeque::new(),
            requests: BTreeMap::new(),
            aside: None,
            behind: VecDeque::new(),
        };
        if let Some(old) = self.process.connections.insert(client, connection) {
            self.process.by_session.remove(&old.session);
        }
        self.process.by_session.insert(session, client);
        true
    }

    /// Takes in a command. Returns what it costs at once.
    fn command(
        &mut self,
        client: u16,
        number: u64,
        draft: Arc<Draft>,
        requests: &mut Vec<Arc<Request>>,
    ) -> Result<u64, Violation> {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return Ok(0);
        };
        if connection.aside.is_some() {
            connection.behind.push_back((number, draft));
            return Ok(0);
        }
        let unfinished = !connection.unanswered.is_empty();
        connection.unanswered.push_back(Unanswered { number, answer: None });
        let request = Arc::new(Request {
            id: RequestId { session: connection.session, sequence: connection.sequence + 1, attempt: 0 },
            slots_version: 0,
            procedure: draft.procedure.clone(),
            args: draft.args.clone(),
            footprint: draft.footprint.clone(),
            route: txn::PartitionRoute::default(),
            elsewhere: false,
        });
        let asker = node::Asker { unfinished, readonly: false };
        match node::route(&request.footprint, asker) {
            Route::Order => {}
            Route::Snapshot => {
                if let Some((outcome, position)) = self.read(&request)? {
                    let place = Place::Snapshot(position);
                    self.answer(client, number, outcome, place);
                    return Ok(self.system.plan.costs.read_ns);
                }
            }
            Route::Aside => {
                connection.aside = Some((number, request));
                let after_ns = if self.system.plan.jitter {
                    self.core.draw.below(3_000_000)
                } else {
                    self.system.plan.costs.read_ns
                };
                self.core.set_timer(self.me(), after_ns, Timer::Read(client));
                return Ok(0);
            }
        }
        self.order(client, number, request, requests);
        Ok(self.system.plan.costs.request_ns)
    }

    /// Makes a request of the order of a connection's command.
    fn order(&mut self, client: u16, number: u64, request: Arc<Request>, requests: &mut Vec<Arc<Request>>) {
        if let Some(connection) = self.process.connections.get_mut(&client) {
            connection.sequence = request.id.sequence;
            connection.requests.insert(request.id.sequence, number);
            requests.push(request);
        }
    }

    /// Reads at the newest final snapshot. `None` if the order must decide.
    fn read(&mut self, request: &Arc<Request>) -> Result<Option<(Outcome, Position)>, Violation> {
        let view = self.process.engine.view();
        let position = view.final_position();
        let snapshot_ms = view.final_time_ms();
        let lead_ms = self.process.node.epoch_lead_ms();
        let now_ms = self.now_ms().saturating_add_signed(lead_ms);
        let now_ms = now_ms.max(snapshot_ms);
        match self.process.reader.run(request, now_ms) {
            ReadOutcome::Done(outcome) => {
                if self.system.plan.judged {
                    self.system.watch(self.host).order.judge_read(
                        request,
                        position,
                        snapshot_ms,
                        now_ms,
                        &outcome,
                    )?;
                }
                Ok(Some((outcome, position)))
            }
            ReadOutcome::MustOrder => Ok(None),
            ReadOutcome::Interrupted => {
                Err(Violation::new("serial", format!("{request:?} was interrupted by nobody")))
            }
        }
    }

    /// A long read is done: what its client sent behind it goes on.
    fn read_aside(&mut self, client: u16) -> Result<(), Violation> {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return Ok(());
        };
        let Some((number, request)) = connection.aside.take() else {
            return Ok(());
        };
        // What has waited for room goes first.
        let mut requests = std::mem::take(&mut self.process.backlog);
        match self.read(&request)? {
            Some((outcome, position)) => {
                self.answer(client, number, outcome, Place::Snapshot(position));
            }
            None => self.order(client, number, request, &mut requests),
        }
        while let Some(connection) = self.process.connections.get_mut(&client)
            && connection.aside.is_none()
            && let Some((number, draft)) = connection.behind.pop_front()
        {
            self.command(client, number, draft, &mut requests)?;
        }
        self.submit(requests)?;
        self.wake();
        Ok(())
    }

    /// Submits requests as one batch. Returns what it costs.
    fn submit(&mut self, mut requests: Vec<Arc<Request>>) -> Result<u64, Violation> {
        if requests.is_empty() {
            return Ok(0);
        }
        let now_ms = self.now_ms();
        let process = &mut *self.process;
        match process.node.submit(&mut requests, now_ms, &mut process.effects) {
            Ok(()) => {
                self.perform()?;
                Ok(self.system.plan.costs.batch_ns)
            }
            Err(Refused::Busy) => {
                self.process.backlog = requests;
                Ok(0)
            }
            Err(refused) => {
                for request in requests {
                    self.refuse(request.id, Ok(refused.reply()));
                }
                Ok(0)
            }
        }
    }

    /// Submits again what there was no room for.
    fn resubmit(&mut self) -> Result<(), Violation> {
        if !self.process.backlog.is_empty() {
            let requests = std::mem::take(&mut self.process.backlog);
            if self.submit(requests)? > 0 {
                self.wake();
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        let now_ms = self.now_ms();
        let process = &mut *self.process;
        process.node.handle(event, now_ms, &mut process.effects);
        self.perform()?;
        self.wake();
        Ok(())
    }

    /// Does what the node wants done.
    fn perform(&mut self) -> Result<(), Violation> {
        let now_ms = self.now_ms();
        loop {
            let process = &mut *self.process;
            let effects = &mut process.effects;
            let mut refused = std::mem::take(&mut effects.refused);
            for (id, outcome) in refused.drain(..) {
                self.refuse(id, outcome);
            }
            let process = &mut *self.process;
            let effects = &mut process.effects;
            effects.refused = refused;
            for warning in effects.warnings.drain(..) {
                self.core.note(Address::Host(self.host), || warning);
            }
            if !effects.records.is_empty() {
                let event = match process.log.append(&mut effects.records) {
                    Ok(_) => Event::LogWritten,
                    Err(error) => {
                        let cleared = !process.log.status().remains;
                        let watched = &mut self.system.watched[usize::from(self.host)];
                        watched.order.write_failed(cleared);
                        Event::LogWriteFailed(error.to_string())
                    }
                };
                let written = matches!(event, Event::LogWritten);
                effects.records.clear();
                process.node.handle(event, now_ms, effects);
                if written {
                    let last = process.node.status().written;
                    let order = &mut self.system.watched[usize::from(self.host)].order;
                    order.written(last);
                }
            } else if std::mem::take(&mut effects.marker) {
                if let Err(error) = process.log.write_marker() {
                    let event = Event::LogWriteFailed(error.to_string());
                    process.node.handle(event, now_ms, effects);
                }
            } else if let Some(position) = effects.truncate.take() {
                // What can't be removed now is removed after the next checkpoint.
                let _ = process.log.truncate_before(position);
            } else if std::mem::take(&mut effects.sync) {
                match process.log.sync_ticket() {
                    Some(ticket) => {
                        process.sync = Some(if self.core.draw.percent(50) {
                            Syncing::Asked(ticket)
                        } else {
                            Syncing::Done(ticket.sync())
                        });
                        let after_ns = self.disk_time(self.system.plan.costs.sync_ns);
                        self.core.set_timer(self.me(), after_ns, Timer::Synced);
                    }
                    None => {
                        let durable = Event::LogSynced(process.log.status().durable);
                        process.node.handle(durable, now_ms, effects);
                    }
                }
            } else if let Some(job) = effects.checkpoint.take() {
                process.checkpoint = Some(job);
                let records = process.engine.view().final_position().0.min(10_000);
                let costs = self.system.plan.costs;
                let after_ns = self.disk_time(costs.sync_ns * 3 + records * costs.checkpoint_record_ns);
                self.core.set_timer(self.me(), after_ns, Timer::Checkpointed);
            } else {
                (effects.confirmed, effects.delivered, effects.recovered) = Default::default();
                break;
            }
        }
        self.listen()
    }

    /// What a disk operation that usually takes `ns` takes now.
    fn disk_time(&mut self, ns: u64) -> u64 {
        let factor = self.core.disk_factor(self.host);
        let jitter = if self.system.plan.jitter { self.core.draw.pick(&[1, 1, 2, 10]) } else { 1 };
        ns * factor * jitter
    }

    /// Follows what the node told its engine.
    fn listen(&mut self) -> Result<(), Violation> {
        if !self.system.plan.judged {
            self.process.engine.take();
            return Ok(());
        }
        let me = Address::Host(self.host);
        let core = &mut *self.core;
        self.system.watched[usize::from(self.host)]
            .order
            .listen(&self.process.engine, |text| core.note(me, text))
    }

    fn synced(&mut self) -> Result<(), Violation> {
        let synced = match self.process.sync.take() {
            None => return Ok(()),
            Some(Syncing::Asked(ticket)) => ticket.sync(),
            Some(Syncing::Done(synced)) => synced,
        };
        let event = match synced {
            Ok(synced) => {
                self.process.log.synced(synced);
                let position = synced.position;
                self.system.watch(self.host).order.synced(position);
                self.core.note(Address::Host(self.host), || format!("has synced up to position {position}"));
                Event::LogSynced(position)
            }
            Err(error) => Event::LogSyncFailed(error.to_string()),
        };
        self.handle(event)
    }

    fn checkpointed(&mut self) -> Result<(), Violation> {
        let Some(job) = self.process.checkpoint.take() else {
            return Ok(());
        };
        let ticket = self.process.log.sync_ticket();
        let mut synced = None;
        let mut failed = false;
        let result = job.write(&*self.process.disk, || {
            synced = ticket.map(SyncTicket::sync).transpose().inspect_err(|_| failed = true)?;
            Ok(())
        });
        if let Some(synced) = synced {
            self.process.log.synced(synced);
            self.system.watch(self.host).order.synced(synced.position);
        }
        if failed && !self.process.disk.is_dead() {
            self.handle(Event::LogSyncFailed("the log's sync failed".to_owned()))?;
        }
        self.core.note(Address::Host(self.host), || format!("has written a checkpoint: {result:?}"));
        self.system.tally.checkpoints += u64::from(result.is_ok());
        self.handle(match result {
            Ok(written) => Event::CheckpointWritten(written),
            Err(failed) => Event::CheckpointFailed(failed),
        })
    }

    /// Wakes idle workers: there may be something for them.
    fn wake(&mut self) {
        let now_ns = self.core.now_ns();
        for number in 0..self.process.workers.len() {
            self.wake_worker(number, now_ns);
        }
    }

    fn wake_worker(&mut self, number: usize, now_ns: u64) {
        let worker = &mut self.process.workers[number];
        if std::mem::take(&mut worker.idle) {
            let after_ns = worker.busy_until_ns.saturating_sub(now_ns);
            let jitter_ns = if self.system.plan.jitter { self.core.draw.below(3_000) } else { 0 };
            self.core.set_timer(Address::Host(self.host), after_ns + jitter_ns, Timer::Worker(number as u16));
        }
    }

    /// A worker steps until something else is due.
    fn step(&mut self, number: u16) -> Result<(), Violation> {
        let place = usize::from(number);
        let me = self.me();
        let operation_ns = match self.system.plan.engine {
            EngineKind::Sparkle => self.system.plan.costs.sparkle_operation_ns,
            EngineKind::Calvin => self.system.plan.costs.calvin_operation_ns,
            EngineKind::Serial => self.system.plan.costs.serial_operation_ns,
        };
        let busy_ns = self.process.workers[place].busy_until_ns.saturating_sub(self.core.now_ns());
        if busy_ns > 0 {
            self.core.set_timer(me, busy_ns, Timer::Worker(number));
            return Ok(());
        }
        let mut committed: Vec<Committed> = Vec::new();
        for turn in 1.. {
            let progress = self.process.shared.step(WorkerId(place), Budget::ONE, &mut committed);
            self.system.tally.operations += 1;
            for committed in committed.drain(..) {
                self.committed(committed)?;
            }
            if progress == Progress::Idle {
                self.process.workers[place].idle = true;
                // What it did last may have made work for another.
                if turn > 1 {
                    self.wake_another(place);
                }
                break;
            }
            let cost_ns = self.cost_ns(operation_ns);
            let now_ns = self.core.now_ns();
            self.process.workers[place].busy_until_ns = now_ns + cost_ns;
            self.wake_another(place);
            if turn >= STEPS_AT_ONCE || !self.core.advance(self.host, cost_ns) {
                self.core.set_timer(me, cost_ns, Timer::Worker(number));
                break;
            }
        }
        self.resubmit()
    }

    /// What a worker did may have made work for an idle one.
    fn wake_another(&mut self, me: usize) {
        let workers = &self.process.workers;
        let Some(idle) = (0..workers.len()).find(|&other| other != me && workers[other].idle) else {
            return;
        };
        let waiting = self.process.engine.waiting();
        if waiting.light + waiting.heavy > 0 {
            self.wake_worker(idle, self.core.now_ns());
        }
    }

    /// A transaction has final-committed.
    fn committed(&mut self, committed: Committed) -> Result<(), Violation> {
        if self.system.plan.judged {
            self.system.watch(self.host).order.judge(&committed)?;
        }
        let id = committed.request.id;
        if id.session == SessionId::INTERNAL {
            return Ok(());
        }
        self.arrived(id, committed.outcome, Place::At(committed.position));
        Ok(())
    }

    fn refuse(&mut self, id: RequestId, outcome: Outcome) {
        self.arrived(id, outcome, Place::Nowhere);
    }

    fn arrived(&mut self, id: RequestId, outcome: Outcome, place: Place) {
        let Some(&client) = self.process.by_session.get(&id.session) else {
            return;
        };
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return;
        };
        if let Some(number) = connection.requests.remove(&id.sequence) {
            self.answer(client, number, outcome, place);
        }
    }

    /// Answers a command as soon as those before it are answered.
    fn answer(&mut self, client: u16, number: u64, outcome: Outcome, place: Place) {
        let Some(connection) = self.process.connections.get_mut(&client) else {
            return;
        };
        connection.answer(number, outcome, place);
        while let Some(Unanswered { answer: Some(_), .. }) = connection.unanswered.front() {
            let Some(Unanswered { number, answer: Some((outcome, place)) }) =
                connection.unanswered.pop_front()
            else {
                break;
            };
            let frame = Frame::Reply {
                connection: connection.number,
                number,
                outcome,
                place,
                process: self.core.host(self.host).incarnation(),
            };
            self.core.send(Address::Host(self.host), Address::Client(client), frame);
        }
    }
}
