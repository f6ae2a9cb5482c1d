//! What the workers share.

use super::keystate::KeyState;
use super::siblings::{Member, Siblings};
use super::slot::{Body, Slot};
use super::status::{COMMITTED, DELIVERED, EMPTY, Effect, HEAVY, MULTI, Ticket, Word};
use super::{Mutant, Options, Variant};
use crate::conflicts::{Cause, Sample};
use crate::engine::{Status, Waiting};
use crate::ready::ReadySet;
use crate::window::{Controller, ROUND, Window};
use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::{Final, Partition, View};
use txn::tx::EXPECTED_MAX;
use txn::{Batch, Key, PartitionId, Position, Request, TxContext, Weight};

/// Started transactions beyond which committing comes before starting more.
const COMMIT_LAG_MAX: u64 = 32;

/// The engine without its workers.
///
/// Invariants: `head <= started`, `head <= filled <= head + capacity`; outside a retraction also
/// `started <= filled`, but for a worker that read its limit before one (see `fill_from`).
pub(super) struct Shared {
    pub(super) partition: Partition<KeyState>,
    slots: Box<[CachePadded<Slot>]>,
    mask: u64,
    /// The earliest position that has not final-committed (Sparkle's `to_commit_tx`).
    head: CachePadded<AtomicU64>,
    /// The next position to start.
    started: CachePadded<AtomicU64>,
    /// The next position to fill into a slot.
    filled: CachePadded<AtomicU64>,
    /// The last confirmed position.
    pub(super) confirmed: CachePadded<AtomicU64>,
    pub(super) window: Window,
    ready_light: ReadySet,
    ready_heavy: ReadySet,
    backlog: Mutex<Backlog>,
    /// What the backlog says: slots are to be emptied.
    retracting: AtomicBool,
    backlog_length: AtomicU64,
    pub(super) committer: Mutex<Committer>,
    pub(super) counters: Counters,
    pub(super) conflicts: Sample,
    /// The partition, and how its siblings confirm each other.
    pub(super) me: PartitionId,
    pub(super) variant: Variant,
    pub(super) siblings: Siblings,
    mutant: Option<Mutant>,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) restarts: AtomicU64,
    pub(super) suspensions: AtomicU64,
    pub(super) speculated: AtomicU64,
    pub(super) parked: AtomicU64,
}

/// What the committer's latch protects.
#[derive(Default)]
pub(super) struct Committer {
    /// The final position, with its time and the number of live entries there.
    pub(super) at: Final,
    pub(super) controller: Controller,
}

/// A delivered transaction that found no slot yet.
struct Queued {
    context: TxContext,
    request: Arc<Request>,
    member: Option<Member>,
}

/// Delivered transactions that found no slot yet.
#[derive(Default)]
struct Backlog {
    queue: VecDeque<Queued>,
    delivered: Position,
    /// Positions whose slots must be empty before anything is filled again.
    retracting: Option<(Position, Position)>,
    #[allow(clippy::vec_box, reason = "bodies move between slots as pointers")]
    spare: Vec<Box<Body>>,
}

impl Shared {
    pub(super) fn new(options: Options) -> Shared {
        let capacity = options.capacity;
        Shared {
            partition: Partition::new(),
            slots: (0..capacity).map(|_| CachePadded::default()).collect(),
            mask: capacity as u64 - 1,
            head: CachePadded::new(AtomicU64::new(Position::FIRST.0)),
            started: CachePadded::new(AtomicU64::new(Position::FIRST.0)),
            filled: CachePadded::new(AtomicU64::new(Position::FIRST.0)),
            confirmed: CachePadded::new(AtomicU64::new(0)),
            window: Window::new(options.at_once, options.window_min, capacity),
            ready_light: ReadySet::new(capacity),
            ready_heavy: ReadySet::new(capacity),
            backlog: Mutex::default(),
            retracting: AtomicBool::new(false),
            backlog_length: AtomicU64::new(0),
            committer: Mutex::default(),
            counters: Counters::default(),
            conflicts: Sample::default(),
            me: options.partition,
            variant: options.variant,
            siblings: Siblings::new(options.era),
            mutant: options.mutant,
        }
    }

    /// Whether a deliberate defect is wanted.
    #[inline]
    pub(super) fn has(&self, mutant: Mutant) -> bool {
        cfg!(feature = "mutants") && self.mutant == Some(mutant)
    }
    #[inline]
    pub(super) fn slot(&self, position: Position) -> &Slot {
        &self.slots[(position.0 & self.mask) as usize]
    }
    #[inline]
    pub(super) fn head(&self) -> Position {
        Position(self.head.load(Ordering::SeqCst))
    }
    pub(super) fn confirmed(&self) -> Position {
        Position(self.confirmed.load(Ordering::SeqCst))
    }

    /// Everything up to a position is final. Counts what has speculatively committed by then: before the
    /// committer may take it away, and not what is doomed, or what commits without ever being confirmed.
    pub(super) fn confirm(&self, upto: Position) {
        let filled = self.filled.load(Ordering::SeqCst);
        let speculated = (self.confirmed().0 + 1..filled.min(upto.0 + 1)).map(Position).filter(|&position| {
            let word = self.slot(position).status.load();
            word.is_at(position) && word.state() == COMMITTED
        });
        (self.counters.speculated).fetch_add(speculated.count() as u64, Ordering::Relaxed);
        self.confirmed.fetch_max(upto.0, Ordering::SeqCst);
    }

    // Wishes of one transaction to another.

    pub(super) fn doom(&self, by: Position, ticket: Ticket) {
        let word = self.slot(ticket.position()).status.load();
        if word.has(MULTI) && word.is_of(ticket) {
            let effect = self.doom_member(by, ticket);
            return self.effect(ticket.position(), effect);
        }
        if self.has(Mutant::DoomMissesCommitted)
            && self.slot(ticket.position()).status.load().state() == COMMITTED
        {
            return;
        }
        self.effect(ticket.position(), self.slot(ticket.position()).status.doom(ticket));
    }
    /// Dooms a later transaction over a key.
    #[inline]
    pub(super) fn doom_over(
        &self,
        key: impl FnOnce() -> Key,
        cause: Cause,
        by: (Position, Option<&Request>),
        ticket: Ticket,
    ) {
        let (position, request) = by;
        // Noted before, because the victim may start over at once.
        if self.conflicts.has(ticket.position())
            && self.slot(ticket.position()).status.load().is_doomable(ticket)
        {
            let name = request.map(|request| request.procedure.name());
            self.conflicts.doomed((ticket.position(), ticket.incarnation()), Some(&key()), cause, name);
        }
        self.doom(position, ticket);
    }
    pub(super) fn wake(&self, ticket: Ticket) {
        let lose = self.has(Mutant::LoseWakeUp);
        self.effect(ticket.position(), self.slot(ticket.position()).status.wake(ticket, lose));
    }
    pub(super) fn wake_head(&self, position: Position) {
        self.effect(position, self.slot(position).status.wake_head(position));
    }
    /// Dooms every transaction after `position` that has begun, because that one clears the database
    /// ([`Cause::Cleared`]), or takes that back ([`Cause::Withdrawn`]).
    pub(super) fn doom_all_after(&self, position: Position, cause: Cause) {
        // The whole ring, not only up to `filled`: what is being filled may have been started already.
        for later in position.0 + 1..position.0 + self.slots.len() as u64 {
            let later = Position(later);
            let word = self.slot(later).status.load();
            if word.is_at(later) {
                let ticket = Ticket::new(later, word.incarnation());
                if self.conflicts.has(later) && word.is_doomable(ticket) {
                    self.conflicts.doomed((later, word.incarnation()), None, cause, None);
                }
                self.doom(position, ticket);
            }
        }
    }
    pub(super) fn effect(&self, position: Position, effect: Effect) {
        if let Effect::MadeReady { parked } = effect {
            if parked {
                self.counters.parked.fetch_sub(1, Ordering::Relaxed);
            }
            self.make_ready(position);
        }
    }
    /// Puts a transaction whose slot says READY into the ready set.
    pub(super) fn make_ready(&self, position: Position) {
        let heavy = self.slot(position).status.load().has(HEAVY);
        if heavy { self.ready_heavy.insert(position) } else { self.ready_light.insert(position) }
    }

    // Choosing work.

    /// Takes the earliest ready transaction out of its slot, if the window allows.
    pub(super) fn resume(&self, heavy: bool) -> Option<(Box<Body>, Word)> {
        loop {
            let head = self.head();
            let limit = self.ready_end(head);
            // The earliest of both: a later one may run without end on a state that an earlier one would
            // correct.
            let first_heavy = match heavy {
                true => self.ready_heavy.first_before(head, limit),
                false => None,
            };
            let light_end = first_heavy.unwrap_or(limit);
            let place = match self.ready_light.take_before(head, light_end) {
                Some(place) => place,
                None => match first_heavy {
                    Some(_) => match self.ready_heavy.take_before(head, limit) {
                        Some(place) => place,
                        // Another worker was faster.
                        None => continue,
                    },
                    None => return None,
                },
            };
            let slot = &self.slots[place as usize];
            if let Some(word) = slot.status.resume()
                && let Some(body) = slot.body.lock().take()
            {
                return Some((body, word));
            }
        }
    }
    /// Whether a transaction waits for a worker that stands before one that runs.
    pub(super) fn has_ready_before(&self, position: Position) -> bool {
        let head = self.head();
        self.ready_light.has_before(head, position) || self.ready_heavy.has_before(head, position)
    }
    /// Starts the next transaction in order, if the window allows.
    pub(super) fn start(&self, heavy: bool) -> Option<Box<Body>> {
        loop {
            let next = self.started.load(Ordering::SeqCst);
            if next >= self.start_limit() {
                return None;
            }
            if self.started.compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            let position = Position(next);
            let slot = self.slot(position);
            if !heavy && slot.status.load().has(HEAVY) {
                if slot.status.leave_heavy(position) {
                    self.make_ready(position);
                }
                continue;
            }
            // It may have been retracted meanwhile.
            if slot.status.start(position).is_some()
                && let Some(body) = slot.body.lock().take()
            {
                return Some(body);
            }
        }
    }
    fn start_limit(&self) -> u64 {
        self.filled.load(Ordering::SeqCst).min(self.window_end())
    }
    /// Transactions from here on have to wait, though they are ready: they were begun before the window
    /// shrank.
    fn ready_end(&self, head: Position) -> Position {
        // What is retracted has to be undone wherever it stands: the head may get no further before.
        match self.retracting.load(Ordering::SeqCst) {
            true => Position(head.0 + self.slots.len() as u64),
            false => Position(self.window_end()),
        }
    }
    fn window_end(&self) -> u64 {
        self.head.load(Ordering::SeqCst) + self.window.size()
    }
    /// An incarnation is thrown away.
    pub(super) fn count_restart(&self, body: &Body) {
        if self.conflicts.has(body.position())
            && let Some(request) = &body.request
        {
            let victim = (body.position(), body.ticket.incarnation());
            self.conflicts.restarted(victim, request.procedure.name(), body.member.is_some());
        }
        let restarts = 1 + self.counters.restarts.fetch_add(1, Ordering::Relaxed);
        if restarts.is_multiple_of(ROUND)
            && !self.waits_for_order()
            && let Some(mut committer) = self.committer.try_lock()
        {
            // Read behind the latch: whoever had it before may have seen more of them.
            let restarts = self.counters.restarts.load(Ordering::Relaxed);
            self.window.committed(&mut committer.controller, 0, restarts);
        }
    }
    /// Whether nothing commits only because the order has not confirmed it: that says nothing of what
    /// speculation is worth.
    fn waits_for_order(&self) -> bool {
        let head = self.head();
        let word = self.slot(head).status.load();
        word.is_at(head) && word.state() == COMMITTED && head > self.confirmed()
    }
    /// Whether the head can final-commit.
    #[inline]
    pub(super) fn committable(&self) -> bool {
        let head = self.head();
        let word = self.slot(head).status.load();
        word.is_at(head)
            && word.state() == COMMITTED
            && (head <= self.confirmed() || self.has(Mutant::IgnoreConfirmation))
            && (!word.has(MULTI) || self.is_settled(head))
    }
    /// Whether final commits should not wait until there is nothing else to do. They are made in runs,
    /// because each run moves the head, the final position and their cache lines from worker to worker.
    pub(super) fn commit_is_due(&self) -> bool {
        let ahead = self.started.load(Ordering::Relaxed);
        let ahead = ahead.saturating_sub(self.head.load(Ordering::Relaxed));
        ahead >= COMMIT_LAG_MAX.min(self.window.size() / 2) && self.committable()
    }
    /// The committer moves the head on.
    pub(super) fn advance_head(&self, position: Position) {
        self.head.store(position.0, Ordering::SeqCst);
        self.wake_head(position);
        self.say_anchor(position);
    }

    // Delivery and retraction.

    pub(super) fn deliver(&self, batch: Batch) {
        let mut backlog = self.backlog.lock();
        let filled = self.filled.load(Ordering::SeqCst);
        if backlog.queue.is_empty()
            && backlog.retracting.is_none()
            && filled == self.head.load(Ordering::SeqCst)
        {
            // Nothing is under way: the order may begin (after a checkpoint was loaded) where it likes.
            for counter in [&self.head, &self.started, &self.filled] {
                counter.store(batch.first.0, Ordering::SeqCst);
            }
            self.confirmed.fetch_max(batch.first.prev().0, Ordering::SeqCst);
            // Read behind the latch: a committer that has moved the head may not have published yet.
            let mut committer = self.committer.lock();
            committer.at = self.partition.published();
        }
        debug_assert!(
            backlog.delivered == Position::NONE
                || backlog.delivered.next() == batch.first
                || backlog.queue.is_empty(),
            "batches are delivered without gaps"
        );
        backlog.delivered = batch.end().prev();
        let mut members = self.open_groups(&batch);
        let mut next_member = members.pop_front();
        for (offset, request) in batch.requests.into_iter().enumerate() {
            let position = batch.first.advanced(offset as u64);
            let is_member = |member: &Member| member.position() == position;
            let member = match next_member.as_ref().is_some_and(is_member) {
                true => std::mem::replace(&mut next_member, members.pop_front()),
                false => None,
            };
            backlog.queue.push_back(Queued {
                context: TxContext::of(&request, position, batch.time_ms).in_epoch(batch.epoch),
                request,
                member,
            });
        }
        self.fill_from(&mut backlog);
    }
    /// Fills free slots from the backlog; whether any was.
    pub(super) fn fill(&self) -> bool {
        if self.backlog_length.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.fill_from(&mut self.backlog.lock())
    }
    fn fill_from(&self, backlog: &mut Backlog) -> bool {
        // Before looking at the slots: whoever empties one afterwards sees that there is something to fill it
        // with.
        self.backlog_length.store(backlog.queue.len() as u64, Ordering::SeqCst);
        if let Some((from, end)) = backlog.retracting {
            let emptied = (from.0..end.0).map(Position).all(|position| {
                let word = self.slot(position).status.load();
                word.state() == EMPTY || !word.is_at(position)
            });
            if !emptied {
                return false;
            }
            backlog.retracting = None;
            self.retracting.store(false, Ordering::SeqCst);
        }
        let mut next = self.filled.load(Ordering::SeqCst);
        let first = next;
        let mut touched: SmallVec<[u64; EXPECTED_MAX]> = SmallVec::new();
        let limit = self.head.load(Ordering::SeqCst) + self.slots.len() as u64;
        while next < limit {
            let position = Position(next);
            let slot = self.slot(position);
            if slot.status.load().state() != EMPTY {
                break;
            }
            let Some(Queued { context, request, member }) = backlog.queue.pop_front() else {
                break;
            };
            debug_assert_eq!(context.position, position);
            if touched.len() < EXPECTED_MAX {
                touched.extend(request.procedure.first_touched(&request.args));
            }
            let heavy = if request.footprint.weight == Weight::Heavy { HEAVY } else { 0 };
            let multi = if member.is_some() { MULTI } else { 0 };
            // Where something was retracted the numbers of incarnations go on: nothing that names one of its
            // may reach this one.
            let before = slot.status.load();
            let first = match before.is_at(position) {
                true => before.incarnation() + 1,
                false => 0,
            };
            let ticket = Ticket::new(position, first);
            if member.is_some() {
                *slot.member.lock() = member.clone();
            }
            {
                let mut place = slot.body.lock();
                let body = place.get_or_insert_with(|| backlog.spare.pop().unwrap_or_default());
                body.context = context;
                body.ticket = ticket;
                body.request = Some(request);
                body.member = member;
            }
            let word = Word::new(ticket, DELIVERED).with(heavy | multi);
            slot.status.store(word);
            next += 1;
        }
        // Those of one transaction alone are loaded by who executes it.
        if touched.len() > 1 {
            self.partition.warm(&touched);
        }
        // Beyond what is filled only after a retraction, or because a worker that read its limit before the
        // retraction went past slots that were still empty. Only now, with the slots filled, does such a
        // worker start what it goes past.
        if self.started.load(Ordering::SeqCst) > first {
            self.started.fetch_min(first, Ordering::SeqCst);
        }
        self.filled.store(next, Ordering::SeqCst);
        self.backlog_length.store(backlog.queue.len() as u64, Ordering::SeqCst);
        // The head may have come to a slot before it was filled.
        let head = self.head();
        if (first..next).contains(&head.0) {
            self.say_anchor(head);
        }
        next != first
    }
    /// Takes back the bodies of final-committed transactions.
    #[allow(clippy::vec_box, reason = "bodies move between slots as pointers")]
    pub(super) fn recycle(&self, bodies: &mut Vec<Box<Body>>) {
        let mut backlog = self.backlog.lock();
        backlog.spare.append(bodies);
    }

    pub(super) fn retract(&self, from: Position) {
        let mut backlog = self.backlog.lock();
        backlog.delivered = backlog.delivered.min(from.prev());
        let filled = self.filled.load(Ordering::SeqCst);
        backlog.queue.retain(|queued| queued.context.position < from);
        self.siblings.retract(from);
        self.conflicts.retract(from);
        self.backlog_length.store(backlog.queue.len() as u64, Ordering::SeqCst);
        if from.0 >= filled {
            return;
        }
        debug_assert!(from > self.confirmed(), "what is confirmed is never retracted");
        self.filled.store(from.0, Ordering::SeqCst);
        let end = backlog.retracting.map_or(filled, |(_, end)| end.0.max(filled));
        backlog.retracting = Some((from, Position(end)));
        self.retracting.store(true, Ordering::SeqCst);
        for position in (from.0..filled).map(Position) {
            let member = self.member(position);
            let effect = {
                let _book = member.as_ref().map(|member| member.book().lock());
                self.slot(position).status.retract(position)
            };
            self.effect(position, effect);
        }
    }

    // Looking in.

    pub(super) fn waiting(&self) -> Waiting {
        let head = self.head();
        let limit = self.ready_end(head);
        let startable = self.start_limit().saturating_sub(self.started.load(Ordering::SeqCst));
        Waiting {
            light: startable + self.ready_light.count_before(head, limit) + u64::from(self.committable()),
            heavy: self.ready_heavy.count_before(head, limit),
        }
    }
    pub(super) fn status(&self) -> Status {
        let backlog = self.backlog.lock();
        // Before the first delivery the head does not know what was loaded.
        let final_committed = self.head().prev().max(self.partition.published().position);
        let delivered = backlog.delivered.max(final_committed);
        Status {
            delivered,
            confirmed: self.confirmed().min(delivered).max(final_committed),
            final_committed,
            restarts: self.counters.restarts.load(Ordering::Relaxed),
            suspensions: self.counters.suspensions.load(Ordering::Relaxed),
            speculated_before_confirmation: self.counters.speculated.load(Ordering::Relaxed),
            window: self.window.size(),
            parked: self.counters.parked.load(Ordering::Relaxed),
            ready: self.ready_light.len() + self.ready_heavy.len(),
            split: 0,
        }
    }
}
