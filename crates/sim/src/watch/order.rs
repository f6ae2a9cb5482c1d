//! One host's order, and the oracles over it: the serial specification, durability, sessions, and recovery.
//!
//! The order is read off the engine's own input: a recorder between node and engine keeps what was delivered,
//! confirmed and retracted. The specification runs what is confirmed. Then:
//!
//! 1. *serial*: a transaction final-commits once, after its confirmation, and ends as in the serial
//!    execution; a read at a snapshot answers what the specification says there.
//! 2. *durability*: under `always` nothing is acknowledged that a power cut could take. After a kill
//!    everything that was written is there; after a power cut, everything that was synced.
//! 3. *sessions*: what a process orders has session ids that no process before it used.
//! 4. *recovery*: what is there is a prefix of the order, the same requests at the same positions with the
//!    same times; only batches whose write or sync was the last and failed may come back behind it. Replay
//!    leads to the specification's state, versions included.

use super::recorder::{Recorder, Told};
use super::{expiry, optimistic};
use crate::judge::{Fault, check_images, check_snapshot, images};
use crate::oracle::Oracle;
use crate::world::{End, Violation};
use execute::{Committed, Engine};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use txn::{Outcome, Position, Request, SessionId};

const SERIAL: &str = "serial";
const DURABILITY: &str = "durability";
const SESSIONS: &str = "sessions";
const OPTIMISTIC: &str = "optimistic";
const EXPIRY: &str = "expiry";
const RECOVERY: &str = "recovery";

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

/// What is known of one host's order. See the module's head.
pub struct OrderWatch {
    /// The order as the running process has it; position 1 first.
    history: Vec<Ordered>,
    /// Which of its positions have final-committed in this process.
    committed: Vec<bool>,
    /// Batches that were taken back because their write or their sync failed, and that no later write has
    /// covered: the next start may find them.
    ghosts: BTreeMap<Position, Vec<Ordered>>,
    oracle: Oracle,
    /// What a power cut must leave.
    synced: Position,
    /// What the records of the log say of it, by the last position of each: of a damage, only these prove
    /// that it is none of a crash's.
    claims: BTreeMap<Position, Position>,
    /// What the next start must find.
    floor: Position,
    /// Acknowledged means synced.
    always: bool,
    /// The specification's state is compared with the store's after each recovery.
    states: bool,
    /// The largest session id that was in the log when the process started.
    sessions_before: SessionId,
    /// The last failed write was cleared off the disk: it must not come back.
    cleared: bool,
}

impl OrderWatch {
    /// The watch over a host that has never run. `always`: acknowledged means synced. `states`: compare whole
    /// states after recoveries (which costs time where there are many records).
    pub fn new(always: bool, states: bool) -> OrderWatch {
        OrderWatch {
            history: Vec::new(),
            committed: Vec::new(),
            ghosts: BTreeMap::new(),
            oracle: Oracle::new(),
            synced: Position::NONE,
            claims: BTreeMap::new(),
            floor: Position::NONE,
            always,
            states,
            sessions_before: SessionId::INTERNAL,
            cleared: false,
        }
    }

    /// The specification's state.
    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }
    /// The last position of the order.
    pub fn last(&self) -> Position {
        Position(self.history.len() as u64)
    }
    /// A log write succeeded, up to this position: it covers what a failed one left.
    pub fn written(&mut self, last: Position) {
        self.ghosts.clear();
        self.claims.insert(last, self.synced);
        // The one before may be all that a power cut leaves.
        while self.claims.keys().nth(1).is_some_and(|&second| second <= self.synced) {
            self.claims.pop_first();
        }
    }
    /// A log write failed. `cleared`: nothing of it is left on the disk.
    pub fn write_failed(&mut self, cleared: bool) {
        self.cleared = cleared;
    }
    /// Everything up to here is on the disk.
    pub fn synced(&mut self, position: Position) {
        self.synced = self.synced.max(position);
    }

    /// Follows what the node told its engine. Returns a line for the trace for each.
    pub fn listen(
        &mut self,
        recorder: &Recorder,
        mut note: impl FnMut(&dyn Fn() -> String),
    ) -> Result<(), Violation> {
        let cleared = std::mem::take(&mut self.cleared);
        for told in recorder.take() {
            match told {
                Told::Deliver(batch) => {
                    note(&|| {
                        let requests: Vec<String> = batch.requests.iter().map(|r| format!("{r:?}")).collect();
                        format!(
                            "delivers epoch {:?} from position {}: {}",
                            batch.epoch,
                            batch.first,
                            requests.join(", ")
                        )
                    });
                    if batch.first.prev() != self.last() {
                        return Err(Violation::new(
                            SERIAL,
                            format!("{:?} is delivered behind {}", batch.first, self.last()),
                        ));
                    }
                    for request in &batch.requests {
                        let session = request.id.session;
                        if session != SessionId::INTERNAL && session <= self.sessions_before {
                            return Err(Violation::new(
                                SESSIONS,
                                format!("{request:?} has a session id of a process before this one"),
                            ));
                        }
                    }
                    let time_ms = batch.time_ms;
                    self.committed.resize(self.committed.len() + batch.requests.len(), false);
                    let requests = batch.requests.into_iter();
                    self.history.extend(requests.map(|request| Ordered { request, time_ms }));
                }
                Told::Confirm(upto) => {
                    note(&|| format!("confirms up to position {upto}"));
                    while self.oracle.last() < upto {
                        let next = &self.history[self.oracle.last().0 as usize];
                        self.oracle.run(&next.request, next.time_ms);
                    }
                }
                Told::Retract(from) => {
                    note(&|| format!("retracts from position {from} on"));
                    if from <= self.oracle.last() {
                        return Err(Violation::new(
                            SERIAL,
                            format!("{from:?} is retracted although it was confirmed"),
                        ));
                    }
                    let taken_back = self.history.split_off(from.prev().0 as usize);
                    self.committed.truncate(self.history.len());
                    if cleared {
                        continue;
                    }
                    for (offset, ordered) in taken_back.into_iter().enumerate() {
                        let position = from.advanced(offset as u64);
                        self.ghosts.entry(position).or_default().push(ordered);
                    }
                }
            }
        }
        Ok(())
    }

    /// Judges a final commit.
    pub fn judge(&mut self, committed: &Committed) -> Result<(), Violation> {
        let Committed { position, request, outcome, .. } = committed;
        let serial = |text: String| Err(Violation::new(SERIAL, text));
        let Some(expected) = self.oracle.expected(*position) else {
            return serial(format!("{position:?} final-committed before it was confirmed: {outcome:?}"));
        };
        let place = position.prev().0 as usize;
        if !Arc::ptr_eq(request, &self.history[place].request) {
            return serial(format!("{position:?} final-committed {request:?}, which is not ordered there"));
        }
        if !expected.admits(outcome) {
            return serial(format!("{position:?} ({request:?}) ended {outcome:?} and must end {expected:?}"));
        }
        let time_ms = self.history[place].time_ms;
        optimistic::check(&self.oracle, request, position.prev(), time_ms, outcome)
            .map_err(|text| Violation::new(OPTIMISTIC, text))?;
        expiry::check_removal(&self.oracle, request, *position, time_ms)
            .map_err(|text| Violation::new(EXPIRY, text))?;
        if std::mem::replace(&mut self.committed[place], true) {
            return serial(format!("{position:?} final-committed twice"));
        }
        if self.always && *position > self.synced {
            return Err(Violation::new(
                DURABILITY,
                format!("{position:?} is acknowledged, and only {} is on the disk", self.synced),
            ));
        }
        Ok(())
    }

    /// Judges a read at the newest final snapshot, whose time is `snapshot_ms`.
    pub fn judge_read(
        &self,
        request: &Arc<Request>,
        position: Position,
        snapshot_ms: u64,
        now_ms: u64,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        expiry::check_read(&self.oracle, request, position, snapshot_ms, now_ms)
            .map_err(|text| Violation::new(EXPIRY, text))?;
        let expected = self.oracle.read_only(request, position, now_ms);
        if expected.admits(outcome) {
            return optimistic::check(&self.oracle, request, position, now_ms, outcome)
                .map_err(|text| Violation::new(OPTIMISTIC, text));
        }
        Err(Violation::new(
            SERIAL,
            format!(
                "{request:?} at the snapshot of {position:?} ended {outcome:?} and must end {expected:?}"
            ),
        ))
    }

    /// The process ended; `written` is the last position in its log.
    pub fn ended(&mut self, end: End, written: Option<Position>) {
        let written = written.unwrap_or(self.floor);
        self.floor = match end {
            End::Killed => written,
            End::PowerLost => self.synced,
            End::DiskLost => Position::NONE,
        };
        if end == End::DiskLost {
            *self = OrderWatch::new(self.always, self.states);
        }
    }

    /// A process has recovered. `flipped`: a bit of its files had flipped, so what no record claims to be
    /// durable may be taken for a torn tail.
    pub fn recovered(&mut self, recorder: &Recorder, flipped: bool) -> Result<(), Violation> {
        let last = recorder.view().final_position();
        let mut floor = self.floor;
        if flipped {
            let there = self.claims.range(..=self.floor).next_back();
            floor = floor.min(there.map_or(Position::NONE, |(_, &claim)| claim));
        }
        if last < floor {
            return Err(Violation::new(
                DURABILITY,
                format!("{floor:?} must have survived, and recovery ends at {last:?}"),
            ));
        }
        self.adopt(recorder, last).map_err(|text| Violation::new(RECOVERY, text))
    }

    fn adopt(&mut self, recorder: &Recorder, last: Position) -> Result<(), Fault> {
        let mut replayed = BTreeMap::new();
        for told in recorder.take() {
            match told {
                Told::Deliver(batch) => {
                    for (offset, request) in batch.requests.into_iter().enumerate() {
                        let ordered = Ordered { request, time_ms: batch.time_ms };
                        replayed.insert(batch.first.advanced(offset as u64), ordered);
                    }
                }
                Told::Confirm(_) => {}
                Told::Retract(from) => {
                    return Err(format!("replay retracts {from:?}"));
                }
            }
        }
        self.history.truncate(last.0 as usize);
        for (position, found) in replayed {
            let place = position.prev().0 as usize;
            match self.history.get(place) {
                Some(there) if there.same(&found) => self.history[place] = found,
                Some(there) => {
                    return Err(format!("{position:?} was {there:?} and came back as {found:?}"));
                }
                None => {
                    let ghosts = self.ghosts.get(&position);
                    let ghost = ghosts.is_some_and(|ghosts| ghosts.iter().any(|ghost| ghost.same(&found)));
                    if !ghost || place != self.history.len() {
                        return Err(format!(
                            "{position:?} came back as {found:?}, which was never written there"
                        ));
                    }
                    self.history.push(found);
                }
            }
        }
        if self.last() != last {
            return Err(format!("recovery ends at {last:?}, and the order only has {}", self.last()));
        }
        let sessions = self.history.iter().map(|there| there.request.id.session);
        self.sessions_before = sessions.max().unwrap_or(SessionId::INTERNAL);
        self.ghosts.clear();
        self.committed = vec![true; self.history.len()];
        if self.oracle.last() > last || self.states {
            self.oracle = Oracle::new();
        }
        for ordered in &self.history[self.oracle.last().0 as usize..] {
            self.oracle.run(&ordered.request, ordered.time_ms);
        }
        // What a client can read after the restart must not vanish at the next one.
        (self.synced, self.floor) = (last, last);
        self.claims = BTreeMap::from([(last, last)]);
        if !self.states {
            return Ok(());
        }
        let view = recorder.view();
        let snapshot = view.open();
        let checked = check_snapshot(view, &snapshot, &self.oracle)
            .and_then(|()| check_images(&images(view, &snapshot, 100), last, &self.oracle));
        view.close(snapshot);
        checked
    }
}
