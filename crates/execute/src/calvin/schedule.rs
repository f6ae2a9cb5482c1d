//! The scheduler: requests locks in the final order, and releases them.

use super::Shared;
use super::execution::Work;
use super::locks::{LockTable, Request};
use crate::conservative::Job;
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::atomic::Ordering;
use txn::mutant::{Mutant, is_active};
use txn::{Key, KeySets, PartitionId, Position};

/// Confirmed transactions that are taken from the queue at once.
const TAKEN_MAX: usize = 32;

/// The state that only the scheduling worker sees.
#[derive(Default)]
pub(super) struct Scheduler {
    locks: LockTable,
    /// Taken from the queue, not yet scheduled.
    taken: VecDeque<Job>,
    /// Scheduled transactions by position, from `base` on; `None` once all locks are released.
    scheduled: VecDeque<Option<Scheduled>>,
    base: Position,
    /// How many of them are there.
    unfinished: usize,
    /// The transaction whose locks are being requested.
    requesting: Option<Locking>,
    /// A transaction that has the whole partition is scheduled.
    whole: bool,
    /// Executed transactions whose locks are to be released.
    executed: VecDeque<Position>,
    /// The transaction whose locks are being released.
    releasing: Option<Locking>,
    /// Made ready in this step.
    ready: Vec<Job>,
    parked: u64,
}

struct Scheduled {
    /// Requests that were not granted, plus one while they are being made.
    missing: u32,
    /// Leaves when it is ready.
    job: Option<Job>,
    /// What it locks here; `None` if it has the whole partition.
    keys: Option<Arc<KeySets>>,
}

/// A transaction in the middle of its keys.
struct Locking {
    position: Position,
    keys: Arc<KeySets>,
    next: usize,
}

/// A transaction's keys in the order in which they are requested: exclusive ones first, so that a key in both
/// sets is requested exclusively.
fn key_at(keys: &KeySets, index: usize) -> Option<(&Key, bool)> {
    match keys.writes.get(index) {
        Some(key) => Some((key, true)),
        None => keys.reads.get(index - keys.writes.len()).map(|key| (key, false)),
    }
}

/// The keys that a transaction locks at this partition: of those that it names at all of its partitions.
fn locked_here(job: &Job, me: PartitionId) -> Option<Arc<KeySets>> {
    let all = job.request.footprint.certain_keys()?;
    if job.member.is_none() {
        return Some(all.clone());
    }
    let reads = all.reads.iter().filter(|key| job.has(me, key, false));
    let writes = all.writes.iter().filter(|key| job.has(me, key, true));
    Some(Arc::new(KeySets {
        reads: reads.cloned().collect(),
        writes: writes.cloned().collect(),
        covers_inserts: all.covers_inserts,
        may_stray: None,
    }))
}

impl Scheduler {
    /// Does up to `left` lock operations; whether there was anything to do.
    pub(super) fn step(&mut self, shared: &Shared, left: &mut u32) -> bool {
        let mut worked = false;
        if self.releasing.is_none() && self.executed.is_empty() {
            self.executed.extend(shared.executed.lock().drain(..));
        }
        // Releasing first: it lets earlier transactions run.
        while *left > 0 && self.release_one() {
            *left -= 1;
            worked = true;
        }
        while *left > 0 && self.request_one(shared) {
            *left -= 1;
            worked = true;
        }
        if worked {
            shared.lockless.store(self.parked, Ordering::Relaxed);
        }
        shared.make_ready(self.ready.drain(..).map(Work::Locked));
        worked
    }

    fn scheduled(&mut self, position: Position) -> Option<&mut Scheduled> {
        self.scheduled.get_mut((position.0 - self.base.0) as usize)?.as_mut()
    }

    /// Releases one lock (or the whole partition).
    fn release_one(&mut self) -> bool {
        if let Some(releasing) = &mut self.releasing {
            let position = releasing.position;
            let Some((key, _)) = key_at(&releasing.keys, releasing.next) else {
                self.releasing = None;
                self.forget(position);
                return true;
            };
            releasing.next += 1;
            let mut granted = Vec::new();
            self.locks.release(key, position, |position| granted.push(position));
            for position in granted {
                self.grant(position);
            }
            return true;
        }
        let Some(position) = self.executed.pop_front() else {
            return false;
        };
        match self.scheduled(position).and_then(|scheduled| scheduled.keys.take()) {
            Some(keys) => self.releasing = Some(Locking { position, keys, next: 0 }),
            None => {
                self.whole = false;
                self.forget(position);
            }
        }
        true
    }

    /// A transaction has released all that it had.
    fn forget(&mut self, position: Position) {
        self.scheduled[(position.0 - self.base.0) as usize] = None;
        self.unfinished -= 1;
        while let Some(None) = self.scheduled.front() {
            self.scheduled.pop_front();
            self.base = self.base.next();
        }
    }

    /// One request that a transaction waited for is granted.
    fn grant(&mut self, position: Position) {
        let mut job = None;
        if let Some(scheduled) = self.scheduled(position) {
            scheduled.missing -= 1;
            if scheduled.missing == 0 {
                job = scheduled.job.take();
            }
        }
        if let Some(job) = job {
            self.parked -= 1;
            self.ready.push(job);
        }
    }

    /// Requests one lock of the transaction whose turn it is.
    fn request_one(&mut self, shared: &Shared) -> bool {
        if let Some(requesting) = &mut self.requesting {
            if let Some((key, exclusive)) = key_at(&requesting.keys, requesting.next) {
                requesting.next += 1;
                let position = requesting.position;
                if self.locks.request(key, position, exclusive) == Request::Waits
                    && let Some(scheduled) = self.scheduled(position)
                {
                    scheduled.missing += 1;
                }
                return true;
            }
            let position = requesting.position;
            self.requesting = None;
            if self.scheduled(position).is_some_and(|scheduled| scheduled.missing > 1) {
                shared.suspensions.fetch_add(1, Ordering::Relaxed);
            }
            self.grant(position);
            return true;
        }
        if self.taken.is_empty() {
            shared.order.take_confirmed(TAKEN_MAX, &mut self.taken);
        }
        let Some(job) = self.taken.front() else {
            return false;
        };
        let keys = locked_here(job, shared.finals.me);
        // The whole partition: only when nothing else is scheduled, and nothing is scheduled beside it.
        if self.unfinished > 0 && (self.whole || keys.is_none()) {
            return false;
        }
        self.whole = keys.is_none();
        let Some(job) = self.taken.pop_front() else {
            return false;
        };
        let position = job.context.position;
        if self.scheduled.is_empty() {
            self.base = position;
        }
        if is_active(Mutant::TellBeforeLocked) {
            shared.tell_unlocked(&job, keys.as_deref());
        }
        self.unfinished += 1;
        self.parked += 1;
        self.scheduled.push_back(Some(Scheduled { missing: 1, job: Some(job), keys: keys.clone() }));
        match keys {
            Some(keys) => self.requesting = Some(Locking { position, keys, next: 0 }),
            None => self.grant(position),
        }
        true
    }
}
