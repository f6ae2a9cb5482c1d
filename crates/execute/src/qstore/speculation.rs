//! The speculative mode (Q-Store, sections 2.2, 4.2 and 5): fragments read what a transaction has written
//! that may still abort.
//!
//! A transaction is *unsettled* while its effects may still change: its fragments depend on each other, and
//! not all were executed, so that it may abort; or it has read what an unsettled transaction had written. An
//! executor that finds an unsettled transaction as the last writer of a bucket executes the fragment behind
//! it all the same, and *registers* the fragment with that writer: this is the paper's speculation
//! dependency. A writer is registered with the writer before it, too, so that the unsettled writers of a
//! bucket form a chain.
//!
//! # Logic aborts
//! A transaction that aborts takes back what it has written at once. If fragments are registered with it, the
//! worker *repairs*: it stops the executors ([`Gates`]), collects what is registered, directly or through
//! others, takes back what those fragments have written, from the last position to the first, and executes
//! them again, from the first position to the last. The paper aborts these transactions; here each of them
//! comes to what the serial execution gives it. A transaction whose fragments depend on each other is
//! executed again as far as it was executed; of another one only the fragments that were registered.
//!
//! A repair may end an abort, too: an abortable fragment may have read what is taken back. Therefore the
//! fragments behind an aborted transaction are registered with it as long as it is unsettled.
//!
//! # The end of speculation
//! Transactions final-commit in the order. When one is next, all that it is registered with have
//! final-committed, so that nothing can change it any more; only then is its outcome made. (The paper commits
//! a batch at its end.) The *frontier* is the last position up to which all transactions have been executed:
//! those up to there are settled, confirmed or not. Transactions that cannot be executed again (whole ones,
//! and those with siblings, who tell others what they read) wait until the last writers of their records are
//! settled.
//!
//! # Invariants
//! - A fragment that has read what an unsettled transaction has written is registered with that one, or with
//!   an unsettled one between the two.
//! - A transaction counts as executed after the repair that its abort asks for.
//! - While a repair goes on, no other worker executes a fragment of a split transaction. Whole transactions,
//!   commits and collection go on meanwhile: a whole transaction waits until the last writers of its records
//!   are settled, a commit takes only transactions that nothing can change any more, and a collection leaves
//!   the versions above the final position alone.
//! - Above a version that a repair takes back, the record has no version that stays.

use super::Shared;
use super::slots::Waiter;
use super::split::{Share, Split};
use crossbeam_utils::CachePadded;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use store::Partition;
use store::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use store::sync::{Mutex, MutexGuard};
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// A transaction's part in speculation.
#[derive(Default)]
pub(super) struct Speculation {
    /// The transaction has read what was unsettled.
    has_speculated: AtomicBool,
    notes: Mutex<Notes>,
}

#[derive(Default)]
struct Notes {
    /// Fragments that were executed behind this transaction, by their places.
    readers: Vec<(Weak<Split>, u16)>,
    /// Of a transaction whose fragments are independent: what those have done that are registered.
    shares: Vec<(u16, Share)>,
}

impl Speculation {
    pub(super) fn has_speculated(&self) -> bool {
        self.has_speculated.load(Ordering::SeqCst)
    }

    /// Keeps what a registered fragment has done.
    pub(super) fn keep(&self, place: u16, share: Share) {
        self.notes.lock().shares.push((place, share));
    }

    /// Takes the effects of the registered fragments, once nothing can change these.
    pub(super) fn take_shares(&self) -> Vec<(u16, Share)> {
        match self.has_speculated() {
            true => std::mem::take(&mut self.notes.lock().shares),
            false => Vec::new(),
        }
    }

    /// Calls `take_back` unless a fragment is registered, and lets none register meanwhile. Whether it did.
    pub(super) fn unless_read(&self, take_back: impl FnOnce()) -> bool {
        let notes = self.notes.lock();
        let is_unread = notes.readers.is_empty();
        if is_unread {
            take_back();
        }
        is_unread
    }

    fn readers(&self) -> Vec<(Arc<Split>, u16)> {
        let notes = self.notes.lock();
        let readers = notes.readers.iter();
        readers.filter_map(|(reader, place)| Some((reader.upgrade()?, *place))).collect()
    }
}

impl Split {
    /// Whether its effects may still change, as far as the transaction itself knows.
    pub(super) fn is_unsettled(&self) -> bool {
        // In this order. A fragment is registered before it counts as executed, which it does under the latch
        // that `is_open` takes: who finds the transaction closed finds the flag as well. Asked the other way
        // round, a transaction that speculates and closes between the two questions would pass for settled.
        self.dependent().is_some_and(|dependent| dependent.is_open()) || self.speculation().has_speculated()
    }

    /// Registers a fragment that is going to be executed behind this transaction. False if it is settled.
    pub(super) fn register(&self, reader: &Arc<Split>, place: u16) -> bool {
        if !self.is_unsettled() {
            return false;
        }
        reader.speculation().has_speculated.store(true, Ordering::SeqCst);
        self.speculation().notes.lock().readers.push((Arc::downgrade(reader), place));
        true
    }
}

/// The gates by which a repair stops the executors: each worker is in its gate while it executes fragments.
///
/// A worker takes the latch `repair` in no gate, and the gates behind it, by their numbers. Inside its gate
/// it takes the latches of transactions, slots and records, but neither `repair` nor another gate.
pub(super) struct Gates {
    repair: Mutex<()>,
    /// A repair waits for gates, or has them. Latches are not fair: without this flag, a worker that leaves
    /// its gate and enters it again could keep a repair waiting for long, while it executes more and more
    /// behind the transaction that has aborted.
    is_closing: AtomicBool,
    of_workers: Box<[CachePadded<Mutex<()>>]>,
}

impl Gates {
    pub(super) fn new(workers: usize) -> Gates {
        Gates {
            repair: Mutex::default(),
            is_closing: AtomicBool::new(false),
            of_workers: (0..workers).map(|_| CachePadded::default()).collect(),
        }
    }

    /// A worker executes fragments until it drops what this returns. It must not repair meanwhile. The worker
    /// waits while a repair goes on.
    pub(super) fn enter(&self, worker: usize) -> MutexGuard<'_, ()> {
        loop {
            if let Some(gate) = self.try_enter(worker) {
                return gate;
            }
            drop(self.repair.lock());
        }
    }

    /// Enters a gate, unless a repair waits for the gates.
    fn try_enter(&self, worker: usize) -> Option<MutexGuard<'_, ()>> {
        let gate = self.of_workers[worker].lock();
        // Asked inside the gate: a repair that raises the flag later waits for this gate.
        (!self.is_closing.load(Ordering::SeqCst)).then_some(gate)
    }

    /// Waits until no worker executes a fragment, and lets none begin.
    fn close(&self) -> Closed<'_> {
        let repair = self.repair.lock();
        self.is_closing.store(true, Ordering::SeqCst);
        let of_workers = self.of_workers.iter().map(|gate| gate.lock()).collect();
        Closed { is_closing: &self.is_closing, _of_workers: of_workers, _repair: repair }
    }
}

/// No worker executes a fragment while this lives.
struct Closed<'a> {
    is_closing: &'a AtomicBool,
    _of_workers: Vec<MutexGuard<'a, ()>>,
    /// Let go last: a worker that has waited for it finds the flag lowered and its gate free.
    _repair: MutexGuard<'a, ()>,
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.is_closing.store(false, Ordering::SeqCst);
    }
}

/// The last position up to which all transactions have been executed, and what waits for that.
#[derive(Default)]
pub(super) struct Frontier {
    executed_upto: CachePadded<AtomicU64>,
    waiters: Mutex<BTreeMap<Position, Vec<Waiter>>>,
}

impl Frontier {
    pub(super) fn has_settled(&self, position: Position) -> bool {
        position.0 <= self.executed_upto.load(Ordering::SeqCst)
    }

    /// Has something wait until a position is settled. Gives it back if the position is.
    pub(super) fn wait(&self, position: Position, waiter: Waiter) -> Option<Waiter> {
        let mut waiters = self.waiters.lock();
        if self.has_settled(position) {
            return Some(waiter);
        }
        waiters.entry(position).or_default().push(waiter);
        None
    }

    /// A position was executed: moves the frontier, and takes out what has waited for that. `is_executed`
    /// tells of other positions, and all up to `last_final` have been.
    pub(super) fn advance(
        &self,
        executed: Position,
        last_final: Position,
        is_executed: impl Fn(Position) -> bool,
    ) -> Vec<(Position, Waiter)> {
        // Of two that come at the same time, the later one sees what the earlier one has stored.
        if executed.0 > self.executed_upto.load(Ordering::SeqCst).max(last_final.0) + 1 {
            return Vec::new();
        }
        let mut waiters = self.waiters.lock();
        // Stored also where the loop moves nothing: the position may have final-committed already, and then
        // nothing would wake a waiter that comes for it after this call.
        let stored = self.executed_upto.fetch_max(last_final.0, Ordering::SeqCst);
        let mut executed_upto = Position(stored).max(last_final);
        while is_executed(executed_upto.next()) {
            executed_upto = executed_upto.next();
            self.executed_upto.store(executed_upto.0, Ordering::SeqCst);
        }
        if waiters.is_empty() {
            return Vec::new();
        }
        let later = waiters.split_off(&executed_upto.next());
        let released = std::mem::replace(&mut *waiters, later).into_iter();
        released.flat_map(|(at, waiters)| waiters.into_iter().map(move |waiter| (at, waiter))).collect()
    }

    /// All positions behind this one were undone.
    pub(super) fn lower(&self, last: Position) {
        let _waiters = self.waiters.lock();
        self.executed_upto.fetch_min(last.0, Ordering::SeqCst);
    }
}

/// Transactions that a repair executes again, with the places of the fragments that were registered.
type Dependents = BTreeMap<Position, (Arc<Split>, Vec<u16>)>;

impl Shared {
    /// Takes back what a transaction has written that has aborted, and executes again what is registered with
    /// it, directly or through others. Counts the versions and the fragments. To be called by a worker that
    /// is in no gate.
    pub(super) fn repair(&self, split: &Arc<Split>) -> u32 {
        let Some(dependent) = split.dependent() else { return 0 };
        let _gates = self.gates.close();
        if !dependent.begin_repair() {
            // Another repair has executed it again meanwhile.
            return 0;
        }
        let mut operations = 0;
        let dependents = match is_active(Mutant::AbortWithoutCascade) || self.order.is_void(split.position())
        {
            true => Dependents::new(),
            false => dependents_of(split),
        };
        for (split, places) in dependents.values().rev() {
            operations += split.take_back(&self.partition, places);
        }
        operations += dependent.take_back(&self.partition, split.position());
        for (split, places) in dependents.values() {
            // The retraction undoes a void transaction as a whole.
            if !self.order.is_void(split.position()) {
                operations += self.execute_again(split, places);
                self.cascaded.fetch_add(1, Ordering::Relaxed);
            }
        }
        operations
    }

    /// Executes again what was taken back of a transaction, and counts the fragments.
    fn execute_again(&self, split: &Split, places: &[u16]) -> u32 {
        if let Some(dependent) = split.dependent() {
            return self.execute_dependent_again(split, dependent);
        }
        let mut notes = split.speculation().notes.lock();
        let mut executed = 0;
        for (place, share) in &mut notes.shares {
            if places.contains(place) {
                *share = Share::default();
                self.execute_independent(split, *place, share);
                executed += 1;
            }
        }
        executed
    }
}

/// What is registered with a transaction, directly or through others.
fn dependents_of(split: &Arc<Split>) -> Dependents {
    let mut found = Dependents::new();
    let mut unseen = split.speculation().readers();
    while let Some((reader, place)) = unseen.pop() {
        let (_, places) = found.entry(reader.position()).or_insert_with(|| {
            unseen.extend(reader.speculation().readers());
            (reader, Vec::new())
        });
        places.push(place);
    }
    found
}

impl Split {
    /// Takes back what it has written, and counts the versions: fragments at these places, if its fragments
    /// are independent.
    fn take_back(&self, partition: &Partition<()>, places: &[u16]) -> u32 {
        if let Some(dependent) = self.dependent() {
            return dependent.take_back(partition, self.position());
        }
        let shares = &mut self.speculation().notes.lock().shares;
        let registered = shares.iter_mut().filter(|(place, _)| places.contains(place));
        registered.map(|(_, share)| share.take_back(partition, self.position())).sum()
    }
}

#[cfg(test)]
mod tests;
