//! The engine's side of a running transaction: reads, announced writes (Archie, sections 4.1 and 4.2).

use super::Shared;
use super::object::Object;
use crate::conservative::{Installed, Job, LiveChange};
use crate::running;
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::{RecordCell, RecordRef, View, digest};
use txn::hash::SecretMap;
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{
    Access, Entry, Intent, Key, Outcome, Position, ProcedureFuture, ScanPage, ScanRange, Space, Stop, Weight,
};

/// A transaction from its start to its x-commit.
pub(super) struct Execution {
    pub(super) job: Job,
    /// None once the procedure has returned.
    future: Option<ProcedureFuture>,
    pub(super) outcome: Option<Outcome>,
    /// An incarnation was started.
    pub(super) was_started: bool,
    pub(super) access: Box<Speculation>,
}

/// How far an execution has come.
pub(super) enum Advanced {
    /// The budget is spent.
    Spent(Execution),
    /// An earlier transaction is going to write what it wants to read or write.
    WaitsFor(Execution, Position),
    /// It wants to scan: everything before it must have x-committed.
    WaitsForTurn(Execution),
    /// It wants to count or to clear: everything before it must have final-committed.
    WaitsForAll(Execution),
    /// Its procedure has returned.
    Returned(Execution),
}

impl Execution {
    pub(super) fn new(job: Job, access: Box<Speculation>) -> Execution {
        Execution { job, future: None, outcome: None, was_started: false, access }
    }

    pub(super) fn position(&self) -> Position {
        self.job.context.position
    }
    pub(super) fn weight(&self) -> Weight {
        self.job.request.footprint.weight
    }

    /// Starts the next incarnation.
    pub(super) fn start(&mut self) {
        self.was_started = true;
        self.access.begin(self.job.context.position);
        (self.future, self.outcome) = match running::start(&self.job.request, self.job.context) {
            Ok(future) => (Some(future), None),
            Err(stop) => (None, Some(Err(stop))),
        };
    }

    /// Ends the incarnation.
    pub(super) fn stop(&mut self) {
        (self.future, self.outcome) = (None, None);
    }

    /// Whether an incarnation is under way.
    pub(super) fn is_under_way(&self) -> bool {
        self.future.is_some() || self.outcome.is_some()
    }

    /// Whether it leaves its writes.
    pub(super) fn is_successful(&self) -> bool {
        matches!(self.outcome, Some(Ok(_)))
    }

    /// Polls the procedure until it has returned, the transaction must wait, or the budget is spent.
    pub(super) fn advance(mut self, left: &mut u32) -> Advanced {
        let Some(mut future) = self.future.take() else {
            return Advanced::Returned(self);
        };
        let mut access = self.access;
        access.left = *left;
        access.pause = None;
        access.is_next = access.shared.x_committed().next() == access.position;
        let (back, polled) = running::poll(access, &mut future);
        self.access = back;
        *left = self.access.left;
        let pause = self.access.pause.take();
        if let (Poll::Pending, Some(pause)) = (&polled, pause) {
            self.future = Some(future);
            return match pause {
                Pause::Budget => Advanced::Spent(self),
                Pause::Writer(writer) => Advanced::WaitsFor(self, writer),
                Pause::Turn => Advanced::WaitsForTurn(self),
                Pause::All => Advanced::WaitsForAll(self),
            };
        }
        self.outcome = Some(match polled {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => {
                Err(Stop::abort("ERR the procedure waited for something other than its transaction"))
            }
        });
        Advanced::Returned(self)
    }

    /// The outcome of an incarnation that is not doomed, and what its writes will add to the state digest. To
    /// be told before it is its turn to x-commit.
    pub(super) fn conclude(&mut self) {
        let position = self.position();
        let outcome = match self.outcome.take() {
            Some(Err(Stop::Restart)) | None => {
                Err(Stop::abort("ERR the procedure asked for a restart that nobody wanted"))
            }
            Some(outcome) => outcome,
        };
        let mut terms = running::outcome_term(&self.job.request, position, &outcome);
        if outcome.is_ok() {
            if self.access.cleared {
                terms = terms.wrapping_add(digest::of_clear(position));
            }
            for write in self.access.writes.list.iter().filter(|write| write.is_written) {
                let term = digest::of_write(&write.record.key(), position, write.entry.as_ref());
                terms = terms.wrapping_add(term);
            }
        }
        self.access.terms = terms;
        self.outcome = Some(outcome);
    }

    /// The number of live entries before its writes.
    pub(super) fn live_before(&self) -> LiveChange {
        if self.access.cleared && self.is_successful() { LiveChange::To(0) } else { LiveChange::By(0) }
    }
}

/// Why a poll of a procedure came back pending.
enum Pause {
    /// The step's budget is spent.
    Budget,
    /// An earlier transaction holds the wait-flag.
    Writer(Position),
    /// It waits until everything before it has x-committed.
    Turn,
    /// It waits until everything before it has final-committed.
    All,
}

/// A record that the transaction writes, or has announced to write: it holds the record's wait-flag, unless
/// an earlier transaction has taken it.
pub(super) struct Write {
    pub(super) record: RecordRef<Object>,
    pub(super) entry: Option<Entry>,
    pub(super) is_written: bool,
    /// This incarnation has announced it: it has the wait-flag, or is doomed.
    is_announced: bool,
}

/// The records that a transaction writes, in the order of its first touches.
#[derive(Default)]
pub(super) struct WriteSet {
    pub(super) list: Vec<Write>,
    /// The place of each key in the list, once the list is long.
    places: SecretMap<Key, usize>,
}

/// A write set with room for more records than this gives the room back when its transaction ends.
const ROOM_KEPT: usize = 256;
/// Lists up to this long are searched one by one.
const LINEAR_MAX: usize = 32;

impl WriteSet {
    fn find(&self, key: &Key) -> Option<usize> {
        match self.list.len() > LINEAR_MAX {
            true => self.places.get(key).copied(),
            false => self.list.iter().rposition(|write| write.record.is_of(key)),
        }
    }
    fn push(&mut self, record: RecordRef<Object>, is_announced: bool) -> usize {
        self.list.push(Write { record, entry: None, is_written: false, is_announced });
        let place = self.list.len() - 1;
        let unplaced = match self.list.len() {
            LINEAR_MAX.. if self.places.is_empty() => 0..=place,
            LINEAR_MAX.. => place..=place,
            _ => return place,
        };
        self.places.extend(unplaced.map(|place| (self.list[place].record.key(), place)));
        place
    }
    fn clear(&mut self) {
        self.list.clear();
        self.places.clear();
    }
}

/// The access of a transaction: it reads and writes through it. A worker uses it again for another
/// transaction.
pub(super) struct Speculation {
    shared: Arc<Shared>,
    position: Position,
    pub(super) writes: WriteSet,
    /// It removes every entry of the user's space.
    pub(super) cleared: bool,
    /// The terms that the transaction adds to the state digest.
    pub(super) terms: u64,
    /// Everything before it has x-committed, so nobody can doom it.
    is_next: bool,
    left: u32,
    pause: Option<Pause>,
}

impl Speculation {
    pub(super) fn new(shared: Arc<Shared>) -> Speculation {
        Speculation {
            shared,
            position: Position::NONE,
            writes: WriteSet::default(),
            cleared: false,
            terms: 0,
            is_next: false,
            left: 0,
            pause: None,
        }
    }

    /// Begins an incarnation. It keeps the wait-flags of the last one: most likely it writes the same.
    fn begin(&mut self, position: Position) {
        self.position = position;
        self.cleared = false;
        self.terms = 0;
        for write in &mut self.writes.list {
            (write.entry, write.is_written, write.is_announced) = (None, false, false);
        }
    }

    /// The records that it has written, if it has left anything. It is empty for the next transaction.
    pub(super) fn take_installed(&mut self, leaves_writes: bool) -> Installed<Object> {
        let written = self.writes.list.drain(..).filter(|write| leaves_writes && write.is_written);
        let installed = written.map(|write| write.record).collect();
        if self.writes.list.capacity() > ROOM_KEPT {
            self.writes = WriteSet::default();
        }
        self.writes.clear();
        installed
    }

    fn wait<T>(&mut self, pause: Pause) -> Poll<Result<T, Stop>> {
        self.pause = Some(pause);
        Poll::Pending
    }

    /// Pays for one operation. Stops it if the budget is spent or the transaction is doomed.
    fn enter(&mut self) -> Option<Poll<Stop>> {
        if self.left == 0 {
            self.pause = Some(Pause::Budget);
            return Some(Poll::Pending);
        }
        self.left -= 1;
        self.doomed().then_some(Poll::Ready(Stop::Restart))
    }

    /// For what looks at the whole key space: waits until everything before it is there, or even final.
    fn enter_whole(&mut self, must_be_final: bool) -> Option<Poll<Stop>> {
        if let Some(stopped) = self.enter() {
            return Some(stopped);
        }
        if must_be_final && !self.shared.may_see_all(self.position) {
            self.pause = Some(Pause::All);
            return Some(Poll::Pending);
        }
        if self.shared.x_committed().next() != self.position {
            self.pause = Some(Pause::Turn);
            return Some(Poll::Pending);
        }
        None
    }

    /// Takes the wait-flag of a record; the earlier transaction that holds it, if one does. Later ones that
    /// have read the record, or hold its flag, are doomed.
    fn announce(&self, cell: &mut RecordCell<Object>) -> Result<(), Position> {
        let me = self.position;
        if let Some(writer) = cell.meta.writer_before(me) {
            return Err(writer);
        }
        if cell.meta.writer > me {
            self.shared.doom(cell.meta.writer);
        }
        cell.meta.writer = me;
        cell.meta.take_readers_behind(me, |reader| self.shared.doom(reader));
        Ok(())
    }

    /// It has announced to write a record, which may have a place among its writes.
    fn announced(&mut self, place: Option<usize>, record: RecordRef<Object>) {
        match place {
            Some(place) => self.writes.list[place].is_announced = true,
            None => {
                self.writes.push(record, true);
            }
        }
    }

    /// Reads a record under its latch; or the earlier transaction that is going to write it.
    fn look(&self, cell: &mut RecordCell<Object>, key: &Key, intent: Intent) -> Result<Read, Position> {
        match intent {
            Intent::Update => self.announce(cell)?,
            Intent::Read => {
                if let Some(writer) = cell.meta.writer_before(self.position)
                    && !is_active(Mutant::PassWaitFlag)
                {
                    return Err(writer);
                }
                if !self.is_next {
                    cell.meta.read_by(self.position);
                }
            }
        }
        // Transactions x-commit in order, so the newest version is the paper's spec-version.
        Ok(cell.read(self.position.prev(), self.shared.partition.clears_of(key)))
    }
}

impl Access for Speculation {
    fn read(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
        if let Some(stopped) = self.enter() {
            return stopped.map(Err);
        }
        let place = self.writes.find(key);
        if let Some(write) = place.map(|place| &self.writes.list[place])
            && write.is_written
        {
            return Poll::Ready(Ok(Read { entry: write.entry.clone(), version: Position::NONE }));
        }
        let partition = &self.shared.partition;
        if self.cleared && key.space() == Space::User {
            return Poll::Ready(Ok(Read::default()));
        }
        let mut record = match place {
            Some(place) => self.writes.list[place].record.clone(),
            // Nothing before it can change any more: no note, and so no placeholder.
            None if self.is_next && intent == Intent::Read => match partition.get(key) {
                Some(record) => record,
                None => {
                    let version = partition.clears_of(key).tombstone(Position::NONE, self.position.prev());
                    return Poll::Ready(Ok(Read { entry: None, version }));
                }
            },
            None => partition.get_or_insert(key),
        };
        let found = partition.with(&mut record, |cell| self.look(cell, key, intent));
        let read = match found {
            Ok(read) => read,
            Err(writer) => return self.wait(Pause::Writer(writer)),
        };
        if intent == Intent::Update {
            self.announced(place, record);
        }
        // As in the paper, an operation looks at its end: what it has read may be newer than what it read
        // before.
        Poll::Ready(if self.doomed() { Err(Stop::Restart) } else { Ok(read) })
    }

    fn admit_write(&mut self, key: &Key) -> Poll<Result<(), Stop>> {
        if let Some(stopped) = self.enter() {
            return stopped.map(Err);
        }
        let place = self.writes.find(key);
        let mut record = match place.map(|place| &self.writes.list[place]) {
            Some(write) if write.is_announced => return Poll::Ready(Ok(())),
            Some(write) => write.record.clone(),
            None => self.shared.partition.get_or_insert(key),
        };
        if let Err(writer) = self.shared.partition.with(&mut record, |cell| self.announce(cell)) {
            return self.wait(Pause::Writer(writer));
        }
        self.announced(place, record);
        Poll::Ready(Ok(()))
    }

    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        let place = self.writes.find(key).unwrap_or_else(|| {
            // It goes on although it was refused: it is doomed, and this leads to nothing.
            self.writes.push(self.shared.partition.get_or_insert(key), false)
        });
        let write = &mut self.writes.list[place];
        (write.entry, write.is_written) = (entry, true);
        Ok(())
    }

    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        if let Some(stopped) = self.enter_whole(false) {
            return stopped.map(Err);
        }
        let cleared = self.cleared && range.space == Space::User;
        let upto = self.position.prev();
        Poll::Ready(Ok(crate::scan::merge(&self.shared.partition, upto, range, cleared, |visit| {
            for write in self.writes.list.iter().filter(|write| write.is_written) {
                visit(&write.record.key(), write.entry.as_ref());
            }
        })))
    }

    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        if let Some(stopped) = self.enter_whole(true) {
            return stopped.map(Err);
        }
        let partition = &self.shared.partition;
        let before = if self.cleared { 0 } else { partition.published().live };
        let is_counted = |write: &&Write| write.is_written && write.record.space() == Space::User;
        let change = |write: &Write| {
            let read = || partition.read(self.position.prev(), &write.record.key());
            let was = !self.cleared && read().entry.is_some();
            i64::from(write.entry.is_some()) - i64::from(was)
        };
        let changes: i64 = self.writes.list.iter().filter(is_counted).map(change).sum();
        Poll::Ready(Ok((before + changes).max(0) as u64))
    }

    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        if let Some(stopped) = self.enter_whole(true) {
            return stopped.map(Err);
        }
        for write in &mut self.writes.list {
            if write.record.space() == Space::User {
                (write.entry, write.is_written) = (None, false);
            }
        }
        self.cleared = true;
        Poll::Ready(Ok(()))
    }

    fn overdraw(&mut self) -> bool {
        let is_spent = matches!(self.pause, Some(Pause::Budget));
        if is_spent {
            self.pause = None;
            self.left = 1;
        }
        is_spent
    }

    fn expect(&mut self, hashes: &[u64]) {
        self.shared.partition.warm(hashes);
    }
    fn doomed(&self) -> bool {
        self.shared.is_doomed(self.position)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
