//! The engine's side of a running transaction: reads, locks, announced writes (Algorithm 1, lines 4-30; Algorithm 2, lines 1-19).

use super::Mutant;
use super::keystate::{KeyState, Waiter};
use super::shared::Shared;
use super::slot::{Body, Write};
use super::status::DOOMED;
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::RecordCell;
use txn::tx::Read;
use txn::{Access, Entry, Intent, Key, Position, ScanPage, ScanRange, Space, Stop};

/// Why a poll of a procedure came back pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// The step's budget is spent: the worker keeps the transaction.
    Budget,
    /// It waits for the lock of a record.
    Lock,
    /// It waits until everything before it has final-committed.
    Head,
}

/// A worker's access, lent to the thread while the worker polls.
pub(super) struct Execution {
    pub(super) shared: Arc<Shared>,
    pub(super) body: Box<Body>,
    /// The head when the poll began. Only ever too low, which costs a needless dependency; read once a poll because its
    /// cache line moves with every commit.
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
        Execution {
            shared,
            body: Box::default(),
            head: Position::NONE,
            budget: 0,
            pause: None,
        }
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
    /// For what looks at the whole space: waits for the head.
    fn enter_whole(&mut self) -> Option<Poll<Stop>> {
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
        Read {
            entry: self.body.writes.list[place].entry.clone(),
            version: Position::NONE,
        }
    }
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
        cell.meta.wait(Waiter {
            ticket: body.ticket,
            for_update: intent == Intent::Update,
        });
        return Found::Wait;
    }
    if intent == Intent::Update && (!cell.meta.held_by(me) || cell.meta.lock.is_reserved()) {
        let holder = cell.meta.lock;
        if !holder.is_none() && holder.position() != me && !holder.is_reserved() {
            shared.doom(holder);
        }
        cell.meta.lock = body.ticket;
    }
    let upto = me.prev();
    if head != me && !shared.has(Mutant::SkipReadDependency) {
        let version = cell
            .versions
            .at(upto)
            .map_or(Position::NONE, |version| version.position);
        if version != Position::NONE || !shared.has(Mutant::SkipAbsentReadDependency) {
            cell.meta.register(body.ticket, version, head);
        }
    }
    let read = cell.versions.read(upto, shared.partition.clears_of(key));
    if intent == Intent::Update {
        Found::Locked(read)
    } else {
        Found::Seen(read)
    }
}

impl Access for Execution {
    fn read(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
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
            let version = shared
                .partition
                .clears_of(key)
                .tombstone(Position::NONE, me.prev());
            return Poll::Ready(Ok(Read {
                entry: None,
                version,
            }));
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
                    // At the head, so nobody else matters.
                    Intent::Update => {
                        cell.meta.lock = body.ticket;
                        Found::Locked(Read::default())
                    }
                    Intent::Read => Found::Seen(Read::default()),
                };
            }
            read_latched(shared, body, cell, key, intent, head)
        });
        match found {
            Found::Seen(read) => {
                body.waiting_on = None;
                Poll::Ready(Ok(read))
            }
            Found::Locked(read) => {
                body.waiting_on = None;
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
                body.waiting_on = Some(record);
                self.pause(Pause::Lock)
            }
        }
    }

    fn admit_write(&mut self, _key: &Key) -> Poll<Result<(), Stop>> {
        if !self.spend() {
            return self.pause(Pause::Budget);
        }
        Poll::Ready(if self.doomed() {
            Err(Stop::Restart)
        } else {
            Ok(())
        })
    }

    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
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
        if let Some(stopped) = self.enter_whole() {
            return stopped.map(Err);
        }
        let cleared = self.body.cleared && range.space == Space::User;
        let upto = self.body.position().prev();
        Poll::Ready(Ok(crate::scan::merge(
            &self.shared.partition,
            upto,
            range,
            cleared,
            |visit| {
                for write in self.body.writes.list.iter().filter(|write| write.written) {
                    visit(write.record.key(), write.entry.as_ref());
                }
            },
        )))
    }

    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        if let Some(stopped) = self.enter_whole() {
            return stopped.map(Err);
        }
        let partition = &self.shared.partition;
        let cleared = self.body.cleared;
        let upto = self.body.position().prev();
        let before = if cleared {
            0
        } else {
            // Behind the latch: the committer moves the head before it publishes what is final there.
            self.shared.committer.lock().live
        };
        let change: i64 = self
            .body
            .writes
            .list
            .iter()
            .filter(|write| write.written && write.record.key().space() == Space::User)
            .map(|write| {
                let was = !cleared && partition.read(upto, write.record.key()).entry.is_some();
                i64::from(write.entry.is_some()) - i64::from(was)
            })
            .sum();
        Poll::Ready(Ok((before + change).max(0) as u64))
    }

    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        if let Some(stopped) = self.enter_whole() {
            return stopped.map(Err);
        }
        self.body.cleared = true;
        for write in &mut self.body.writes.list {
            if write.record.key().space() == Space::User {
                write.written = false;
                write.entry = None;
            }
        }
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn doomed(&self) -> bool {
        self.shared
            .slot(self.body.position())
            .status
            .load()
            .has(DOOMED)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
