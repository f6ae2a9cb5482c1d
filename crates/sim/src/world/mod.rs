//! One node over a virtual disk, in virtual time, with crashes at any disk operation.
//!
//! The world submits random programs, steps the engine's virtual workers, lets syncs and checkpoints take their time, fills
//! the disk up, fails syncs, kills the process and cuts the power; then it recovers the node from its files and goes on.
//! What must hold:
//!
//! 1. *Nothing acknowledged is lost.* After a kill everything that was written is there; after a power cut, everything
//!    that was synced (under `always` that includes all that was acknowledged).
//! 2. *What is there is a prefix of the order*: the same requests at the same positions with the same times. Only
//!    batches whose write or sync was the last and failed may come back behind it.
//! 3. *Replay leads to the same state*: the recovered records, versions included, equal the oracle's after that prefix.
//! 4. *Replies are the oracle's*, each request gets at most one, and exactly one if nothing happens to the process.
//!
//! The order is read off the engine's own input: a recorder between node and engine keeps what was delivered, confirmed
//! and retracted.

mod mortal;
mod recorder;

use crate::disk::VirtualDisk;
use crate::draw::{Draw, tracing};
use crate::judge::{Fault, check_images, check_snapshot, images};
use crate::oracle::Oracle;
use crate::program::{Programs, Shape};
use execute::sparkle::{Options as SparkleOptions, Sparkle};
use execute::{Budget, Committed, Engine, WorkerId};
use mortal::MortalDisk;
use node::{CheckpointJob, Event, FsyncPolicy, Limits, Node, NodeOptions, Refused, session};
use order::{Log, SyncTicket};
use recorder::{Recorder, Told};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use txn::{
    Call, FnProcedure, Intent, Key, Position, Procedure, Registry, Reply, Request, RequestId, Tx,
};

const WORKERS: usize = 3;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// `kill -9`: what was written is there.
    Kill,
    /// What was synced is there; the rest is chance.
    PowerCut,
}

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorldReport {
    /// Requests that were answered after their final commit.
    pub committed: u64,
    /// Requests that were refused, or told that their outcome is unknown.
    pub refused: u64,
    /// Processes that were killed or lost their power.
    pub ends: u64,
    /// Of those, ends in the middle of a disk operation's row.
    pub ends_inside: u64,
    /// Checkpoints that were written.
    pub checkpoints: u64,
    /// Recoveries that started from a checkpoint.
    pub recovered_from_checkpoint: u64,
    /// Transactions that came back although their write or sync had failed.
    pub ghosts: u64,
    /// Transactions that were written but not synced, and that a power cut took.
    pub lost_unsynced: u64,
}

impl WorldReport {
    /// Adds another run's.
    pub fn add(&mut self, other: &WorldReport) {
        self.committed += other.committed;
        self.refused += other.refused;
        self.ends += other.ends;
        self.ends_inside += other.ends_inside;
        self.checkpoints += other.checkpoints;
        self.recovered_from_checkpoint += other.recovered_from_checkpoint;
        self.ghosts += other.ghosts;
        self.lost_unsynced += other.lost_unsynced;
    }
}

/// A transaction of the order, with its epoch's time.
#[derive(Clone)]
struct Ordered {
    request: Arc<Request>,
    time_ms: u64,
}

impl Ordered {
    /// A request that was read back from the log is another object.
    fn same(&self, other: &Ordered) -> bool {
        self.time_ms == other.time_ms
            && self.request.id == other.request.id
            && self.request.args == other.request.args
            && self.request.procedure.name() == other.request.procedure.name()
    }
}

impl fmt::Debug for Ordered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.request, self.time_ms)
    }
}

/// A running process.
struct Process {
    node: Node,
    log: Log<MortalDisk>,
    disk: Arc<MortalDisk>,
    engine: Arc<Recorder>,
    /// On its way to the disk.
    sync: Option<SyncTicket<MortalDisk>>,
    checkpoint: Option<CheckpointJob>,
    effects: node::Effects,
    committed: BTreeSet<Position>,
    /// Requests that wait for an answer.
    waiting: BTreeSet<RequestId>,
    sequence: u64,
}

struct World {
    draw: Draw,
    disk: VirtualDisk,
    options: NodeOptions,
    segment_bytes: u64,
    registry: Registry,
    programs: Arc<Programs>,
    now_ms: u64,
    /// The order as the running process has it; position 1 first.
    history: Vec<Ordered>,
    /// Batches that were taken back because their write or their sync failed, and that no later write has covered: the
    /// next start may find them.
    ghosts: BTreeMap<Position, Vec<Ordered>>,
    oracle: Oracle,
    /// What a power cut must leave.
    synced: Position,
    report: WorldReport,
    /// Accidents happen until the end game.
    accidents: bool,
}

/// Removes the keys that are its arguments if they read as absent.
fn expire() -> Arc<dyn Procedure> {
    Arc::new(FnProcedure::new(
        "sim.expire",
        |mut tx: Tx, call: Call| async move {
            for arg in call.iter() {
                let key = Key::from(arg);
                if tx.read(&key, Intent::Update).await?.entry.is_none() {
                    tx.delete(&key).await?;
                }
            }
            Ok(Reply::OK)
        },
    ))
}

/// Runs one seed of about `ticks` events.
pub fn run(seed: u64, ticks: u64) -> Result<WorldReport, Box<crate::workers::Failure>> {
    let mut draw = Draw::new(seed);
    let shape = Shape::draw(&mut draw);
    let options = NodeOptions {
        fsync: draw.pick(&[
            FsyncPolicy::Always,
            FsyncPolicy::Always,
            FsyncPolicy::Everysec,
            FsyncPolicy::No,
        ]),
        limits: Limits {
            in_flight_requests_max: draw.pick(&[5, 50]),
            in_flight_bytes_max: draw.pick(&[1_000, 100_000]),
        },
        checkpoint_bytes: draw.pick(&[0, 2_000, 20_000]),
        expire: draw.percent(70).then(expire),
    };
    let segment_bytes = draw.pick(&[4_096, 16_384, 65_536]);
    let drawn = format!(
        "fsync {}, {:?}, checkpoints of {} bytes, segments of {segment_bytes}, {shape:?}",
        options.fsync, options.limits, options.checkpoint_bytes
    );
    if tracing() {
        eprintln!("seed {seed}: {drawn}");
    }
    let programs = Programs::new(shape);
    let mut registry = Registry::new();
    for procedure in [programs.clone() as Arc<dyn Procedure>, expire()] {
        registry.register(procedure).expect("two names, two ids");
    }
    let mut world = World {
        disk: VirtualDisk::new(draw.bits()),
        options,
        segment_bytes,
        registry,
        programs,
        now_ms: 1_000_000,
        history: Vec::new(),
        ghosts: BTreeMap::new(),
        oracle: Oracle::new(),
        synced: Position::NONE,
        report: WorldReport::default(),
        accidents: true,
        draw,
    };
    let mut tick = 0;
    world.live(ticks, &mut tick).map_err(|fault| {
        Box::new(crate::workers::Failure {
            seed,
            drawn,
            fault,
            tick,
        })
    })?;
    Ok(world.report)
}

macro_rules! trace {
    ($($part:tt)*) => {
        if tracing() {
            eprintln!($($part)*);
        }
    };
}

impl World {
    fn live(&mut self, ticks: u64, tick: &mut u64) -> Result<(), Fault> {
        let mut process = self.start(Position::NONE)?;
        while *tick < ticks {
            *tick += 1;
            let end = if process.disk.is_dead() {
                self.report.ends_inside += 1;
                true
            } else {
                self.draw.permille(4)
            };
            if end {
                process = self.end(process)?;
                continue;
            }
            self.tick(&mut process)?;
        }
        // No more accidents: everything that was taken is answered, and one more power cut loses nothing at all.
        self.accidents = false;
        process.disk.immortal();
        self.disk.make_space();
        let mut left = 100_000;
        while !process.waiting.is_empty() {
            left -= 1;
            if left == 0 {
                return Err(format!(
                    "no end: {:?} wait for an answer; {:?}",
                    process.waiting,
                    process.node.status()
                ));
            }
            self.tick(&mut process)?;
        }
        drop(self.end(process)?);
        Ok(())
    }

    /// One event of the world.
    fn tick(&mut self, process: &mut Process) -> Result<(), Fault> {
        self.now_ms += self.draw.below(40);
        match self.draw.below(100) {
            0..=9 if self.accidents => self.submit(process),
            10..=17 => self.handle(process, Event::Tick),
            18..=25 => self.finish_sync(process),
            26..=28 => self.finish_checkpoint(process),
            29 if self.accidents && self.draw.percent(20) => {
                self.handle(process, Event::CheckpointWanted)
            }
            30 if self.accidents && self.draw.percent(10) => {
                self.disk.fill_up_after(self.draw.below(2_000))
            }
            31..=32 => self.disk.make_space(),
            33 if self.accidents && self.draw.percent(3) => {
                self.disk.fail_sync_after(self.draw.below(3))
            }
            34 => {
                // Ahead of need, on a thread of its own; a failure shows when the file is needed.
                let _ = process.log.preparer().prepare_next();
            }
            35 => {
                process.engine.view().collect(20);
            }
            36 => {
                let snapshot = process.engine.view().open();
                let checked = check_snapshot(process.engine.view(), &snapshot, &self.oracle);
                process.engine.view().close(snapshot);
                checked?;
            }
            _ => return self.step(process),
        }
        self.listen(process)
    }

    fn submit(&mut self, process: &mut Process) {
        let mut requests = Vec::new();
        for _ in 0..self.draw.between(1, 5) {
            process.sequence += 1;
            let mut request =
                Request::clone(&self.programs.request(process.sequence, self.draw.bits()));
            request.id.session =
                session::compose(process.node.boot(), 0, 1 + process.sequence as u32 % 5);
            requests.push(Arc::new(request));
        }
        let ids: Vec<RequestId> = requests.iter().map(|request| request.id).collect();
        match process
            .node
            .submit(&mut requests, self.now_ms, &mut process.effects)
        {
            Ok(()) => process.waiting.extend(ids),
            Err(Refused::Busy | Refused::ReadOnly(_) | Refused::ShuttingDown) => {}
        }
        self.perform(process);
    }

    fn handle(&mut self, process: &mut Process, event: Event) {
        process
            .node
            .handle(event, self.now_ms, &mut process.effects);
        self.perform(process);
    }

    /// Does what the node wants done.
    fn perform(&mut self, process: &mut Process) {
        loop {
            let effects = &mut process.effects;
            for (id, _) in effects.refused.drain(..) {
                self.report.refused += 1;
                process.waiting.remove(&id);
            }
            for warning in effects.warnings.drain(..) {
                trace!("  warning: {warning}");
            }
            if !effects.records.is_empty() {
                let event = match process.log.append(&mut effects.records) {
                    Ok(_) => {
                        // A write goes over what a failed one left.
                        self.ghosts.clear();
                        Event::LogWritten
                    }
                    Err(error) => Event::LogWriteFailed(error.to_string()),
                };
                effects.records.clear();
                process.node.handle(event, self.now_ms, effects);
            } else if std::mem::take(&mut effects.marker) {
                if let Err(error) = process.log.write_marker() {
                    process.node.handle(
                        Event::LogWriteFailed(error.to_string()),
                        self.now_ms,
                        effects,
                    );
                }
            } else if let Some(position) = effects.truncate.take() {
                // What can't be removed now is removed after the next checkpoint.
                let _ = process.log.truncate_before(position);
            } else if std::mem::take(&mut effects.sync) {
                match process.log.sync_ticket() {
                    Some(ticket) => process.sync = Some(ticket),
                    None => {
                        let durable = process.log.status().durable;
                        process
                            .node
                            .handle(Event::LogSynced(durable), self.now_ms, effects);
                    }
                }
            } else if let Some(job) = effects.checkpoint.take() {
                process.checkpoint = Some(job);
            } else {
                (
                    effects.confirmed,
                    effects.delivered,
                    effects.recovered,
                    effects.tick_again,
                ) = Default::default();
                return;
            }
        }
    }

    fn finish_sync(&mut self, process: &mut Process) {
        let Some(ticket) = process.sync.take() else {
            return;
        };
        let event = match ticket.sync() {
            Ok(synced) => {
                process.log.synced(synced);
                self.synced = self.synced.max(synced.position);
                Event::LogSynced(synced.position)
            }
            Err(error) => Event::LogSyncFailed(error.to_string()),
        };
        trace!("  sync: {event:?}");
        self.handle(process, event);
    }

    fn finish_checkpoint(&mut self, process: &mut Process) {
        let Some(job) = process.checkpoint.take() else {
            return;
        };
        let ticket = process.log.sync_ticket();
        let mut synced = None;
        let result = job.write(&*process.disk, || {
            synced = ticket.map(SyncTicket::sync).transpose()?;
            Ok(())
        });
        if let Some(synced) = synced {
            process.log.synced(synced);
            self.synced = self.synced.max(synced.position);
        }
        trace!("  checkpoint: {result:?}");
        self.report.checkpoints += u64::from(result.is_ok());
        self.handle(
            process,
            match result {
                Ok(written) => Event::CheckpointWritten(written),
                Err(failed) => Event::CheckpointFailed(failed),
            },
        );
    }

    /// Follows what the node told its engine.
    fn listen(&mut self, process: &mut Process) -> Result<(), Fault> {
        for told in process.engine.take() {
            match told {
                Told::Deliver(batch) => {
                    trace!(
                        "  deliver {:?} at {}: {:?}",
                        batch.first, batch.time_ms, batch.requests
                    );
                    if batch.first.prev().0 != self.history.len() as u64 {
                        return Err(format!(
                            "{:?} is delivered behind {}",
                            batch.first,
                            self.history.len()
                        ));
                    }
                    let time_ms = batch.time_ms;
                    self.history.extend(
                        batch
                            .requests
                            .into_iter()
                            .map(|request| Ordered { request, time_ms }),
                    );
                }
                Told::Confirm(upto) => {
                    trace!("  confirm {upto:?}");
                    while self.oracle.last() < upto {
                        let next = &self.history[self.oracle.last().0 as usize];
                        self.oracle.run(&next.request, next.time_ms);
                    }
                }
                Told::Retract(from) => {
                    trace!("  retract {from:?}");
                    if from <= self.oracle.last() {
                        return Err(format!("{from:?} is retracted although it was confirmed"));
                    }
                    let taken_back = self.history.split_off(from.prev().0 as usize);
                    for (offset, ordered) in taken_back.into_iter().enumerate() {
                        self.ghosts
                            .entry(from.advanced(offset as u64))
                            .or_default()
                            .push(ordered);
                    }
                }
            }
        }
        Ok(())
    }

    fn step(&mut self, process: &mut Process) -> Result<(), Fault> {
        for _ in 0..self.draw.between(1, 20) {
            let worker = WorkerId(self.draw.below(WORKERS as u64) as usize);
            let mut committed = Vec::new();
            process.engine.step(worker, Budget::ONE, &mut committed);
            for committed in committed {
                self.answer(process, committed)?;
            }
        }
        Ok(())
    }

    /// Judges a reply that leaves.
    fn answer(&mut self, process: &mut Process, committed: Committed) -> Result<(), Fault> {
        let Committed {
            position,
            request,
            outcome,
        } = committed;
        let Some(expected) = self.oracle.expected(position) else {
            return Err(format!(
                "{position:?} final-committed before it was confirmed: {outcome:?}"
            ));
        };
        if !Arc::ptr_eq(&request, &self.history[position.prev().0 as usize].request) {
            return Err(format!(
                "{position:?} final-committed {request:?}, which is not ordered there"
            ));
        }
        if !expected.admits(&outcome) {
            return Err(format!(
                "{position:?} ended {outcome:?} and must end {expected:?}"
            ));
        }
        if !process.committed.insert(position) {
            return Err(format!("{position:?} final-committed twice"));
        }
        if self.options.fsync == FsyncPolicy::Always && position > self.synced {
            return Err(format!(
                "{position:?} is acknowledged, and only {:?} is on the disk",
                self.synced
            ));
        }
        self.report.committed += 1;
        let internal = request.id.session == txn::SessionId::INTERNAL;
        if !process.waiting.remove(&request.id) && !internal {
            return Err(format!("{request:?} is answered twice: {outcome:?}"));
        }
        Ok(())
    }

    /// Ends a process one way or the other, and starts the next.
    fn end(&mut self, process: Process) -> Result<Process, Fault> {
        self.report.ends += 1;
        let written = process.node.status().written;
        drop(process);
        let floor = self.end_once(written);
        self.start(floor)
    }

    /// Starts processes until one survives its recovery.
    fn start(&mut self, mut floor: Position) -> Result<Process, Fault> {
        loop {
            match self.start_once(floor) {
                Ok(Some(process)) => return Ok(process),
                Ok(None) => {
                    // Nothing was acknowledged meanwhile.
                    self.report.ends_inside += 1;
                    floor = floor.min(self.end_once(floor));
                }
                Err(fault) => return Err(fault),
            }
        }
    }

    /// Returns what must be there afterwards.
    fn end_once(&mut self, written: Position) -> Position {
        let end = if self.draw.percent(50) {
            End::Kill
        } else {
            End::PowerCut
        };
        // Whoever restarts a server after a disk's trouble has seen to the disk.
        self.disk.make_space();
        self.disk.fail_sync_after(u64::MAX);
        trace!(
            "  {end:?}: {written:?} is written and {:?} synced",
            self.synced
        );
        match end {
            End::Kill => written,
            End::PowerCut => {
                self.disk.crash();
                self.synced
            }
        }
    }

    /// Recovers a process from the disk, and checks what it found; `floor` must be there. `None` if it died meanwhile.
    fn start_once(&mut self, floor: Position) -> Result<Option<Process>, Fault> {
        let left = if self.accidents && self.draw.percent(40) {
            self.draw.below(400)
        } else {
            u64::MAX
        };
        let disk = Arc::new(MortalDisk::new(self.disk.clone(), left));
        let made: RefCell<Option<Arc<Recorder>>> = RefCell::new(None);
        let make = || -> Arc<dyn Engine> {
            let options = SparkleOptions {
                capacity: 64,
                ..SparkleOptions::new(WORKERS)
            };
            let recorder = Arc::new(Recorder::new(Sparkle::new(options)));
            *made.borrow_mut() = Some(recorder.clone());
            recorder
        };
        let boot_id = self.draw.bits();
        let recovered = match node::recover(
            &disk,
            self.options.clone(),
            self.segment_bytes,
            boot_id,
            &self.registry,
            &make,
        ) {
            Ok(recovered) => recovered,
            Err(_) if disk.is_dead() => return Ok(None),
            Err(error) => return Err(format!("the node does not start: {error}")),
        };
        let Some(engine) = made.into_inner() else {
            return Err("recovery made no engine".to_owned());
        };
        trace!(
            "  recovered: {}; {:?}",
            recovered.report, recovered.report.warnings
        );
        self.check_recovery(&engine, recovered.report.checkpoint, floor)?;
        Ok(Some(Process {
            node: recovered.node,
            log: recovered.log,
            disk,
            engine,
            sync: None,
            checkpoint: None,
            effects: node::Effects::default(),
            committed: BTreeSet::new(),
            waiting: BTreeSet::new(),
            sequence: 0,
        }))
    }

    fn check_recovery(
        &mut self,
        engine: &Recorder,
        checkpoint: Position,
        floor: Position,
    ) -> Result<(), Fault> {
        self.report.recovered_from_checkpoint += u64::from(checkpoint > Position::NONE);
        let last = engine.view().final_position();
        if last < floor {
            return Err(format!(
                "{floor:?} must have survived, and recovery ends at {last:?}"
            ));
        }
        let mut replayed = BTreeMap::new();
        for told in engine.take() {
            if let Told::Deliver(batch) = told {
                let time_ms = batch.time_ms;
                for (offset, request) in batch.requests.into_iter().enumerate() {
                    replayed.insert(
                        batch.first.advanced(offset as u64),
                        Ordered { request, time_ms },
                    );
                }
            }
        }
        self.report.lost_unsynced += (self.history.len() as u64).saturating_sub(last.0);
        self.history.truncate(last.0 as usize);
        for (position, found) in replayed {
            let place = position.prev().0 as usize;
            match self.history.get(place) {
                Some(ordered) if ordered.same(&found) => {}
                Some(ordered) => {
                    return Err(format!(
                        "{position:?} was {ordered:?} and came back as {found:?}"
                    ));
                }
                None => {
                    let ghost = self
                        .ghosts
                        .get(&position)
                        .is_some_and(|ghosts| ghosts.iter().any(|ghost| ghost.same(&found)));
                    if !ghost || place != self.history.len() {
                        return Err(format!(
                            "{position:?} came back as {found:?}, which was never written there"
                        ));
                    }
                    self.report.ghosts += 1;
                    self.history.push(found);
                }
            }
        }
        if self.history.len() as u64 != last.0 {
            return Err(format!(
                "recovery ends at {last:?}, and the order only has {}",
                self.history.len()
            ));
        }
        self.ghosts.clear();
        self.oracle = Oracle::new();
        for ordered in &self.history {
            self.oracle.run(&ordered.request, ordered.time_ms);
        }
        // What a client can read after the restart must not vanish at the next one.
        self.synced = last;
        let view = engine.view();
        let snapshot = view.open();
        let checked = check_snapshot(view, &snapshot, &self.oracle)
            .and_then(|()| check_images(&images(view, &snapshot, 100), last, &self.oracle));
        view.close(snapshot);
        checked.map_err(|fault| format!("after recovery: {fault}"))
    }
}
