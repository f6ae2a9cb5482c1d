//! The engine's side of a running transaction: reads, locks, announced writes (Algorithm 1, lines 4-30;
//! Algorithm 2, lines 1-19).

use super::Mutant;
use super::keystate::{KeyState, Waiter};
use super::shared::Shared;
use super::siblings::{Member, NoValue};
use super::slot::{Body, Write};
use super::status::DOOMED;
use crate::conflicts::Cause;
use crate::siblings::parts::{self, Parts};
use crate::siblings::{Asked, GroupId, Told};
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::{RecordCell, View};
use txn::tx::Read;
use txn::{Access, Entry, Intent, Key, PartitionId, Position, ScanPage, ScanRange, Slots, Space, Stop};

/// Why a poll of a procedure came back pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The step's budget is spent: the worker keeps the transaction, unless an earlier one waits for a
    /// worker.
    Budget,
    /// It waits for the lock of a record.
    Lock,
    /// It waits until everything before it has final-committed.
    Head,
    /// It waits for what a sibling reads.
    Sibling,
}

/// A worker's access, lent to the thread while the worker polls.
pub(super) struct Execution {
    pub(super) shared: Arc<Shared>,
    pub(super) body: Box<Body>,
    /// The head when the poll began. Only ever too low, which costs a needless dependency; read once a poll
    /// because its cache line moves with every commit.
    pub(super) head: Position,
    /// Operations left in this step.
    pub(super) budget: u32,
    pub(super) pause: Option<Pause>,
}

/// What a read under the latch came to.
enum Found {
    Seen(Read),
    Locked(Read),
    Wait,
}

impl Execution {
    pub(super) fn new(shared: Arc<Shared>) -> Execution {
        Execution { shared, body: Box::default(), head: Position::NONE, budget: 0, pause: None }
    }

    fn pause<T>(&mut self, pause: Pause) -> Poll<Result<T, Stop>> {
        self.pause = Some(pause);
        Poll::Pending
    }
    /// Takes one operation from the budget; false if none is left.
    #[inline]
    pub(super) fn spend(&mut self) -> bool {
        if self.budget == 0 {
            return false;
        }
        self.budget -= 1;
        true
    }
    #[inline]
    fn at_head(&self) -> bool {
        self.shared.head() == self.body.position()
    }
    /// For what looks at a whole space: waits for the head.
    fn enter_whole(&mut self, space: Space) -> Option<Poll<Stop>> {
        let waits = self.enter_head();
        waits.or_else(|| (!self.has_all_of(space)).then_some(Poll::Ready(Stop::Undeclared(None))))
    }
    /// For what looks at much: waits for the head.
    fn enter_head(&mut self) -> Option<Poll<Stop>> {
        if self.doomed() {
            return Some(Poll::Ready(Stop::Restart));
        }
        if !self.at_head() && !self.shared.has(Mutant::ScanTooEarly) {
            self.pause = Some(Pause::Head);
            return Some(Poll::Pending);
        }
        if !self.spend() {
            self.pause = Some(Pause::Budget);
            return Some(Poll::Pending);
        }
        None
    }
    fn own_read(&self, place: usize) -> Read {
        Read { entry: self.body.writes.list[place].entry.clone(), version: Position::NONE }
    }
}

/// Gives the record's lock to `body`, whose later holder is doomed.
#[inline]
fn lock(shared: &Shared, body: &Body, cell: &mut RecordCell<KeyState>, key: &Key, head: Position) {
    let me = body.position();
    let holder = cell.meta.holder();
    if holder.position() == me && !holder.is_reserved() {
        return;
    }
    let is_silent = body.cleared && shared.has(Mutant::LockInSilence);
    if !holder.is_none() && holder.position() != me && !holder.is_reserved() && !is_silent {
        shared.doom_over(|| key.clone(), Cause::Preempted, (me, body.request.as_deref()), holder);
    }
    cell.meta.lock(body.ticket, head);
}

/// Reads a record under its latch on behalf of `body`.
#[inline]
fn read_latched(
    shared: &Shared,
    body: &Body,
    cell: &mut RecordCell<KeyState>,
    key: &Key,
    intent: Intent,
    head: Position,
) -> Found {
    let me = body.position();
    if cell.meta.held_before(me) {
        cell.meta.wait(Waiter { ticket: body.ticket, for_update: intent == Intent::Update });
        return Found::Wait;
    }
    if intent == Intent::Update {
        lock(shared, body, cell, key, head);
    }
    let upto = me.prev();
    if head != me && !shared.has(Mutant::SkipReadDependency) {
        let is_absent = || cell.position_at(upto) == Position::NONE;
        if !shared.has(Mutant::SkipAbsentReadDependency) || !is_absent() {
            cell.meta.register(body.ticket, head);
        }
    }
    let read = cell.read(upto, shared.partition.clears_of(key));
    if intent == Intent::Update { Found::Locked(read) } else { Found::Seen(read) }
}

/// What a transaction does that has siblings.
impl Execution {
    /// Tells the siblings what was read here, before the transaction wrote anything.
    fn tell(&mut self, member: &Member, asked: Asked, told: &Told) -> Result<(), Stop> {
        let me = self.body.position();
        let told = self.shared.tell(member, me, asked, told);
        told.map_err(|_| Stop::Restart)
    }

    /// What a sibling has read.
    fn take_from(&mut self, member: &Member, from: PartitionId, asked: &Asked) -> Poll<Result<Told, Stop>> {
        let me = self.body.position();
        match self.shared.take_from(member, me, from, asked) {
            Ok(told) => Poll::Ready(Ok(told)),
            Err(NoValue::Doomed) => Poll::Ready(Err(Stop::Restart)),
            Err(NoValue::NotTold) => self.pause(Pause::Sibling),
        }
    }

    /// Reads a record of another partition.
    fn read_elsewhere(&mut self, key: &Key, from: PartitionId) -> Poll<Result<Read, Stop>> {
        if self.doomed() {
            return Poll::Ready(Err(Stop::Restart));
        }
        if let Some(entry) = self.body.elsewhere.get(key) {
            return Poll::Ready(Ok(Read { entry: entry.clone(), version: Position::NONE }));
        }
        if self.body.cleared && key.space() == Space::User {
            return Poll::Ready(Ok(Read::default()));
        }
        let Some(member) = self.body.member.clone().filter(|member| member.has(from)) else {
            return Poll::Ready(Err(Stop::Undeclared(Some(from))));
        };
        self.take_from(&member, from, &Asked::Key(key.clone())).map_ok(Told::into_record)
    }

    /// Writes a record of another partition, which is that one's work: only this transaction's own reads want
    /// to know.
    fn write_elsewhere(&mut self, key: &Key, at: PartitionId, entry: Option<Entry>) -> Result<(), Stop> {
        let body = &mut *self.body;
        if !body.member.as_ref().is_some_and(|member| member.has(at)) {
            return Err(Stop::Undeclared(Some(at)));
        }
        body.elsewhere.insert(key.clone(), entry);
        Ok(())
    }

    /// Reads a record of this partition on behalf of all siblings.
    fn read_for_all(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
        let is_own = |place: usize| self.body.writes.list[place].written;
        let record = || self.shared.partition.get(key);
        let place = self.body.writes.find_key(key, record);
        let written = place.is_some_and(is_own);
        let cleared = self.body.cleared && key.space() == Space::User;
        let read = self.read_here(key, intent);
        let (Poll::Ready(Ok(found)), Some(member), false) =
            (&read, self.body.member.clone(), written || cleared)
        else {
            return read;
        };
        let told = Told::Record(found.clone());
        match self.tell(&member, Asked::Key(key.clone()), &told) {
            Ok(()) => read,
            Err(stop) => Poll::Ready(Err(stop)),
        }
    }
}

impl Parts for Execution {
    fn me(&self) -> PartitionId {
        self.shared.me
    }
    fn group(&self) -> Option<&GroupId> {
        self.body.member.as_ref().map(|member| &member.group.id)
    }
    fn slots(&self) -> &Slots {
        const ONE: &Slots = &Slots::even(1);
        let request = self.body.request.as_ref();
        request.map_or(ONE, |request| &request.route.slots)
    }
    fn has_cleared(&self) -> bool {
        self.body.cleared
    }
    fn own(&self, visit: &mut dyn FnMut(&Key, Option<&Entry>)) {
        for write in self.body.writes.list.iter().filter(|write| write.written) {
            visit(&write.record.key(), write.entry.as_ref());
        }
        // What it wrote to the system's space is among the others too.
        let others = self.body.elsewhere.iter_in_any_order();
        for (key, entry) in others.filter(|(key, _)| key.space() == Space::User) {
            visit(key, entry.as_ref());
        }
    }
    fn here(&mut self, asked: &Asked) -> Result<Told, Stop> {
        let upto = self.body.position().prev();
        let partition = &self.shared.partition;
        let told = match asked {
            Asked::Key(key) => Told::Record(partition.read(upto, key)),
            Asked::Page(range) => Told::Page(partition.scan(upto, *range)),
            // Behind the latch: the committer moves the head before it publishes what is final there.
            Asked::Count => Told::Count(self.shared.committer.lock().at.live),
        };
        if let Some(member) = self.body.member.clone() {
            self.tell(&member, asked.clone(), &told)?;
        }
        Ok(told)
    }
    fn there(&mut self, from: PartitionId, asked: &Asked) -> Poll<Result<Told, Stop>> {
        match self.body.member.clone() {
            Some(member) => self.take_from(&member, from, asked),
            None => Poll::Ready(Err(Stop::Undeclared(None))),
        }
    }
}

impl Execution {
    /// Reads a record of this partition.
    #[inline]
    fn read_here(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
        if !self.spend() {
            return self.pause(Pause::Budget);
        }
        if self.doomed() {
            return Poll::Ready(Err(Stop::Restart));
        }
        let head = self.head;
        let me = self.body.position();
        let shared = &*self.shared;
        let record = if head == me && intent == Intent::Read {
            // Nothing before this transaction can change any more: no dependency, and so no placeholder.
            shared.partition.get(key)
        } else {
            Some(shared.partition.get_or_insert(key))
        };
        let Some(mut record) = record else {
            if self.body.cleared && key.space() == Space::User {
                return Poll::Ready(Ok(Read::default()));
            }
            let version = shared.partition.clears_of(key).tombstone(Position::NONE, me.prev());
            return Poll::Ready(Ok(Read { entry: None, version }));
        };
        let body = &mut *self.body;
        if let Some(place) = body.writes.find(&record)
            && body.writes.list[place].written
        {
            return Poll::Ready(Ok(self.own_read(place)));
        }
        let found = shared.partition.with(&mut record, |cell| {
            if body.cleared && key.space() == Space::User {
                return match intent {
                    Intent::Update => {
                        lock(shared, body, cell, key, head);
                        Found::Locked(Read::default())
                    }
                    Intent::Read => Found::Seen(Read::default()),
                };
            }
            read_latched(shared, body, cell, key, intent, head)
        });
        match found {
            Found::Seen(read) => {
                body.waited_on(&record);
                Poll::Ready(Ok(read))
            }
            Found::Locked(read) => {
                body.waited_on(&record);
                match body.writes.find(&record) {
                    Some(place) => {
                        let write = &mut body.writes.list[place];
                        write.locked = true;
                        write.reserved = false;
                    }
                    None => {
                        body.writes.push(Write::locked(record));
                    }
                }
                Poll::Ready(Ok(read))
            }
            Found::Wait => {
                if shared.conflicts.has(me)
                    && let Some(request) = &body.request
                {
                    shared.conflicts.waits(key, request.procedure.name());
                }
                body.waits_on(record);
                self.pause(Pause::Lock)
            }
        }
    }
}

impl Access for Execution {
    fn read(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
        if self.body.member.is_none() {
            return self.read_here(key, intent);
        }
        match self.elsewhere(key) {
            Some(from) if self.spend() => self.read_elsewhere(key, from),
            Some(_) => self.pause(Pause::Budget),
            None => self.read_for_all(key, intent),
        }
    }

    fn admit_write(&mut self, _key: &Key) -> Poll<Result<(), Stop>> {
        if !self.spend() {
            return self.pause(Pause::Budget);
        }
        Poll::Ready(if self.doomed() { Err(Stop::Restart) } else { Ok(()) })
    }

    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        if let Some(at) = self.elsewhere(key) {
            self.write_elsewhere(key, at, entry.clone())?;
            if key.space() == Space::User {
                return Ok(());
            }
        }
        let body = &mut *self.body;
        let place = body.writes.find_recent(key).unwrap_or_else(|| {
            let mut record = self.shared.partition.get_or_insert(key);
            body.writes.find(&record).unwrap_or_else(|| {
                // Makes sure of a record that is alive; from here on this transaction's share keeps it so.
                self.shared.partition.with(&mut record, |_| ());
                body.writes.push(Write::blind(record))
            })
        });
        let write = &mut body.writes.list[place];
        write.entry = entry;
        write.written = true;
        Ok(())
    }

    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        if let Some(stopped) = self.enter_whole(range.space) {
            return stopped.map(Err);
        }
        if self.body.member.is_some() {
            return parts::scan(self, range);
        }
        let cleared = self.body.cleared && range.space == Space::User;
        let upto = self.body.position().prev();
        Poll::Ready(Ok(crate::scan::merge(&self.shared.partition, upto, range, cleared, |visit| {
            for write in self.body.writes.list.iter().filter(|write| write.written) {
                visit(&write.record.key(), write.entry.as_ref());
            }
        })))
    }

    fn scan_at(&mut self, partition: PartitionId, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        match self.enter_head() {
            Some(stopped) => stopped.map(Err),
            None => parts::scan_at(self, partition, range),
        }
    }

    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        if let Some(stopped) = self.enter_whole(Space::User) {
            return stopped.map(Err);
        }
        if self.body.member.is_some() {
            return parts::count(self);
        }
        let partition = &self.shared.partition;
        let cleared = self.body.cleared;
        let upto = self.body.position().prev();
        let before = if cleared {
            0
        } else {
            // Behind the latch: the committer moves the head before it publishes what is final there.
            self.shared.committer.lock().at.live
        };
        let change: i64 = self
            .body
            .writes
            .list
            .iter()
            .filter(|write| write.written && write.record.space() == Space::User)
            .map(|write| {
                let was = !cleared && partition.read(upto, &write.record.key()).entry.is_some();
                i64::from(write.entry.is_some()) - i64::from(was)
            })
            .sum();
        Poll::Ready(Ok((before + change).max(0) as u64))
    }

    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        if let Some(stopped) = self.enter_whole(Space::User) {
            return stopped.map(Err);
        }
        self.body.cleared = true;
        self.body.elsewhere.retain(|key, _| key.space() != Space::User);
        for write in &mut self.body.writes.list {
            if write.record.space() == Space::User {
                write.written = false;
                write.entry = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn overdraw(&mut self) -> bool {
        let is_spent = matches!(self.pause, Some(Pause::Budget));
        if is_spent {
            self.pause = None;
            self.budget = 1;
        }
        is_spent
    }

    fn expect(&mut self, hashes: &[u64]) {
        self.shared.partition.warm(hashes);
    }
    #[inline]
    fn doomed(&self) -> bool {
        self.shared.slot(self.body.position()).status.load().has(DOOMED)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
