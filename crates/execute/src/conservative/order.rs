//! The order that is waiting to be executed.

use super::siblings::{Finals, Member};
use crate::engine::Status;
use crate::siblings::parts::reader_of;
use std::collections::VecDeque;
use std::sync::Arc;
use store::sync::Mutex;
use store::{Meta, Partition, View};
use txn::mutant::{Mutant, is_active};
use txn::{Batch, Key, KeySets, PartitionId, Position, Request, Space, TxContext};

/// A transaction with its place in the order.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) context: TxContext,
    pub(crate) request: Arc<Request>,
    /// Its book, if it has siblings.
    pub(crate) member: Option<Member>,
    pub(crate) known: Known,
}

/// What is known, before it runs, of the keys that a transaction touches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// All: those of its footprint.
    Keys,
    /// Some, and there may be others: only an engine that can take a transaction back goes by them.
    Guess(Arc<KeySets>),
    /// It may touch any.
    Nothing,
}

impl Known {
    fn of(request: &Request) -> Known {
        match &request.footprint.keys {
            None => Known::Nothing,
            Some(keys) if keys.may_stray.is_none() => Known::Keys,
            // What was told to siblings is not taken back.
            Some(_) if request.route.of() > 1 => Known::Nothing,
            Some(keys) => Known::Guess(keys.clone()),
        }
    }
}

impl Job {
    /// The keys that it may touch, unless these are all.
    pub(crate) fn declared(&self) -> Option<&Arc<KeySets>> {
        match &self.known {
            Known::Keys => self.request.footprint.keys.as_ref(),
            Known::Guess(keys) => Some(keys),
            Known::Nothing => None,
        }
    }

    /// Whether one of its keys concerns a partition: its siblings read and write those that do not. Each
    /// partition keeps what is written of the system's space.
    pub(crate) fn has(&self, me: PartitionId, key: &Key, is_written: bool) -> bool {
        let Some(member) = &self.member else {
            return true;
        };
        is_written && key.space() == Space::System
            || reader_of(&member.group.id.partitions, key, &self.request.route.slots) == me
    }
}

/// Delivered transactions that nobody took yet.
#[derive(Default)]
pub(crate) struct Order(Mutex<Incoming>);

#[derive(Default)]
struct Incoming {
    queue: VecDeque<Job>,
    delivered: Position,
    confirmed: Position,
}

impl Order {
    /// Takes a batch, and opens the books of its groups.
    pub(crate) fn deliver(&self, batch: Batch, finals: &Finals) {
        let mut members = finals.open(&batch).into_iter().peekable();
        let mut incoming = self.0.lock();
        incoming.delivered = batch.end().prev();
        for (offset, request) in batch.requests.into_iter().enumerate() {
            let position = batch.first.advanced(offset as u64);
            incoming.queue.push_back(Job {
                context: TxContext::of(&request, position, batch.time_ms).in_epoch(batch.epoch),
                known: Known::of(&request),
                request,
                member: members.next_if(|member| member.position() == position),
            });
        }
    }

    /// All positions up to this one are final.
    pub(crate) fn confirm(&self, upto: Position) {
        let mut incoming = self.0.lock();
        incoming.confirmed = incoming.confirmed.max(upto);
    }

    /// All positions from this one on are void.
    pub(crate) fn retract(&self, from: Position, finals: &Finals) {
        let mut incoming = self.0.lock();
        incoming.queue.retain(|job| job.context.position < from);
        incoming.delivered = incoming.delivered.min(from.prev());
        finals.retract(from);
    }

    /// Moves confirmed transactions, in order, until `taken` has `count` of them.
    pub(crate) fn take_confirmed(&self, count: usize, taken: &mut VecDeque<Job>) {
        let mut incoming = self.0.lock();
        let confirmed =
            if is_active(Mutant::RunUnconfirmed) { incoming.delivered } else { incoming.confirmed };
        while taken.len() < count
            && incoming.queue.front().is_some_and(|job| job.context.position <= confirmed)
            && let Some(job) = incoming.queue.pop_front()
        {
            taken.push_back(job);
        }
    }

    /// Moves up to `count` delivered transactions, in order, until `fits` refuses one. `fits` is told how
    /// many were moved before.
    pub(crate) fn take_delivered(
        &self,
        count: usize,
        taken: &mut VecDeque<Job>,
        mut fits: impl FnMut(usize, &mut Job) -> bool,
    ) {
        let mut incoming = self.0.lock();
        while taken.len() < count
            && incoming.queue.front_mut().is_some_and(|job| fits(taken.len(), job))
            && let Some(job) = incoming.queue.pop_front()
        {
            taken.push_back(job);
        }
    }

    /// Takes transactions back that were taken last, to be taken again.
    pub(crate) fn put_back(&self, mut jobs: VecDeque<Job>) {
        let mut incoming = self.0.lock();
        jobs.append(&mut incoming.queue);
        incoming.queue = jobs;
    }

    /// How many confirmed transactions nobody took yet.
    pub(crate) fn confirmed(&self) -> u64 {
        let incoming = self.0.lock();
        let confirmed = incoming.confirmed.next().0;
        let front = incoming.queue.front();
        let confirmed = front.map_or(0, |job| confirmed.saturating_sub(job.context.position.0));
        confirmed.min(incoming.queue.len() as u64)
    }

    /// How far the order has come.
    pub(crate) fn status(&self, partition: &Partition<impl Meta>) -> Status {
        let incoming = self.0.lock();
        let final_committed = partition.final_position();
        // A loaded store starts with everything delivered, confirmed and committed.
        let delivered = incoming.delivered.max(final_committed);
        Status {
            delivered,
            confirmed: incoming.confirmed.min(delivered).max(final_committed),
            final_committed,
            ..Status::default()
        }
    }
}
