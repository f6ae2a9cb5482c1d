//! Execution queues: published in the order of their planners' priorities, and emptied by one executor for
//! each range, who finds what each fragment depends on.

use super::execution::Work;
use super::slots::Waiter;
use super::split::{Part, Share, Split, Written};
use super::{Mode, RANGES_PER_WORKER, Shared};
use crate::engine::WorkerId;
use crate::exclusive::Exclusive;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::sync::atomic::{AtomicU64, Ordering};
use store::sync::{Mutex, MutexGuard};
use store::{Partition, View};
use txn::mutant::{Mutant, is_active};
use txn::{Position, Weight};

/// What stands in an execution queue.
pub(super) enum Fragment {
    /// What a transaction that is executed as a whole does to one of its records.
    Whole { hash: u64, position: Position, writes: bool },
    /// Fragments of a split transaction.
    Part(Part),
}

/// What a planner has made of its transactions.
#[derive(Default)]
pub(super) struct Slice {
    /// For each range, in the order of positions.
    pub(super) queues: Vec<Vec<Fragment>>,
    /// Transactions that touch no record here.
    pub(super) without_fragments: Vec<Position>,
    /// The slice's only transaction, if that one declares no keys.
    pub(super) barrier: Option<Position>,
}

impl Slice {
    pub(super) fn new(ranges: usize) -> Slice {
        Slice { queues: (0..ranges).map(|_| Vec::new()).collect(), ..Slice::default() }
    }
}

/// What stands between planners and executors.
#[derive(Default)]
pub(super) struct Publisher {
    /// The priority of the next slice to be published.
    next: u64,
    /// Slices whose predecessors are still being planned, or wait for a barrier.
    early: BTreeMap<u64, Slice>,
    /// A barrier was published and has not ended.
    is_blocked: bool,
}

/// A part of the hash space.
pub(super) struct Range {
    /// Published and not yet taken by the executor.
    published: Mutex<VecDeque<Fragment>>,
    /// Fragments that are published and were not looked at.
    pending: AtomicU64,
    executor: Exclusive<Executor>,
}

/// What only the executor of a range sees.
struct Executor {
    /// The execution queue.
    queue: VecDeque<Fragment>,
    /// The last transaction that writes a key of each bucket, in the order of the queue; none where all
    /// before have executed. A position that is not below the looking transaction's is left from what was
    /// retracted: all before that had executed. So is one that was planned again, and then waiting for it
    /// does no harm.
    last_writers: Box<[LastWriter]>,
    /// The buckets of the fragments that write, and have not done so, of the part that is being executed.
    /// They get their last writer at its end: another fragment of it may have the same bucket, and then waits
    /// for the same transaction. With each, whether the write is there, and unsettled.
    waiting: Vec<(usize, bool)>,
}

/// The last transaction that writes a key of a bucket, and whether what it writes there is there already,
/// although the transaction is unsettled.
#[derive(Clone, Copy)]
struct LastWriter(u64);

impl LastWriter {
    const NONE: LastWriter = LastWriter(0);

    fn new(position: Position, is_there: bool) -> LastWriter {
        LastWriter(position.0 << 1 | u64::from(is_there))
    }

    fn is_there(self) -> bool {
        self.0 & 1 == 1
    }

    /// Its position, if it is before another one.
    fn before(self, position: Position) -> Option<Position> {
        let own = Position(self.0 >> 1);
        (own != Position::NONE && own < position).then_some(own)
    }
}

/// Whether a fragment can be executed, as far as the last writer before it is concerned.
enum Ahead {
    /// Nothing that the fragment waits for.
    Nothing,
    /// A writer that is unsettled: the fragment is executed, and registered with this transaction.
    Unsettled(Arc<Split>),
    /// A writer for which the fragment waits.
    Writer,
}

impl Executor {
    /// Has the records of the next fragments loaded.
    fn warm(&self, partition: &Partition<()>, count: usize) {
        let mut hashes: SmallVec<[u64; FRAGMENTS_AT_ONCE]> = SmallVec::new();
        for fragment in self.queue.iter().take(count) {
            match fragment {
                Fragment::Whole { hash, .. } => hashes.push(*hash),
                Fragment::Part(Part { split, from, to }) => {
                    hashes.extend((*from..*to).map(|index| split.fragment(index).hash()));
                }
            }
        }
        if hashes.len() > 1 {
            partition.warm(&hashes);
        }
    }

    /// Where the last transaction stands that writes a key with a hash.
    fn bucket(&self, hash: u64) -> usize {
        hash as usize & (self.last_writers.len() - 1)
    }
}

/// Fragments that an executor looks at before it executes what has become ready.
const FRAGMENTS_AT_ONCE: usize = 16;

impl Range {
    pub(super) fn new(buckets: usize) -> Range {
        let last_writers = vec![LastWriter::NONE; buckets].into();
        Range {
            published: Mutex::default(),
            pending: AtomicU64::new(0),
            executor: Exclusive::new(Executor { queue: VecDeque::new(), last_writers, waiting: Vec::new() }),
        }
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending.load(Ordering::SeqCst)
    }

    fn publish(&self, queue: &mut Vec<Fragment>) {
        let count = queue.len() as u64;
        let mut published = self.published.lock();
        published.extend(queue.drain(..));
        self.pending.fetch_add(count, Ordering::SeqCst);
    }
}

impl Shared {
    pub(super) fn range_of(&self, hash: u64) -> usize {
        // Its first bits, as the store's index has it: a range is some of its shards.
        ((hash >> 32) as usize * self.options.ranges) >> 32
    }

    /// Hands a slice over to the executors, when all before it were.
    pub(super) fn publish(&self, priority: u64, slice: &mut Slice) {
        let mut publisher = self.publisher.lock();
        if publisher.is_blocked || priority != publisher.next && !is_active(Mutant::IgnorePriority) {
            let ranges = slice.queues.len();
            let slice = std::mem::replace(slice, Slice::new(ranges));
            publisher.early.insert(priority, slice);
            return;
        }
        self.hand_over(&mut publisher, slice);
        self.publish_early(&mut publisher);
    }

    fn publish_early(&self, publisher: &mut Publisher) {
        while !publisher.is_blocked
            && let Some(first) = publisher.early.first_entry()
            && (*first.key() == publisher.next || is_active(Mutant::IgnorePriority))
        {
            let mut slice = first.remove();
            self.hand_over(publisher, &mut slice);
        }
    }

    fn hand_over(&self, publisher: &mut Publisher, slice: &mut Slice) {
        publisher.next += 1;
        for (range, queue) in self.ranges.iter().zip(&mut slice.queues) {
            if !queue.is_empty() {
                range.publish(queue);
            }
        }
        for position in slice.without_fragments.drain(..) {
            self.ready.push(Work::Ready(position), self.slots.weight(position));
        }
        if let Some(barrier) = slice.barrier.take() {
            publisher.is_blocked = true;
            self.barrier.store(barrier.0, Ordering::SeqCst);
        }
    }

    /// Whether the barrier can begin: everything before it is final, and so is it; or it is void, and only
    /// has to end.
    pub(super) fn is_barrier_due(&self) -> bool {
        let barrier = Position(self.barrier.load(Ordering::SeqCst));
        let is_next =
            || self.partition.published().position.next() == barrier && self.order.is_confirmed(barrier);
        barrier != Position::NONE
            && (is_next() || self.order.is_void(barrier) || is_active(Mutant::PassBarrier))
    }

    /// Makes the barrier ready, if it can begin; whether it did.
    pub(super) fn begin_barrier(&self) -> bool {
        if !self.is_barrier_due() {
            return false;
        }
        // Nobody begins it meanwhile, and none takes its place.
        let _publisher = self.publisher.lock();
        if !self.is_barrier_due() {
            return false;
        }
        let barrier = Position(self.barrier.swap(0, Ordering::SeqCst));
        self.ready.push(Work::Ready(barrier), self.slots.weight(barrier));
        true
    }

    /// The barrier has ended: what is planned behind it is published.
    pub(super) fn end_barrier(&self) {
        let mut publisher = self.publisher.lock();
        publisher.is_blocked = false;
        self.publish_early(&mut publisher);
    }

    /// Looks at some fragments of a range in which no other worker is, and gives what can go on to `found`;
    /// whether there was anything to do.
    pub(super) fn resolve_some(
        &self,
        worker: WorkerId,
        left: &mut u32,
        mut found: impl FnMut(Found),
    ) -> bool {
        // Each worker begins with ranges of its own.
        let first = worker.0 * RANGES_PER_WORKER % self.ranges.len();
        let ranges = self.ranges[first..].iter().chain(&self.ranges[..first]);
        for range in ranges.filter(|range| range.pending() > 0) {
            let worked = range.executor.step(|executor| {
                if executor.queue.is_empty() {
                    std::mem::swap(&mut executor.queue, &mut *range.published.lock());
                }
                let before = executor.queue.len();
                executor.warm(&self.partition, FRAGMENTS_AT_ONCE.min(*left as usize));
                let mut looked_at = 0;
                while *left > 0
                    && looked_at < FRAGMENTS_AT_ONCE
                    && let Some(fragment) = executor.queue.pop_front()
                {
                    match fragment {
                        Fragment::Whole { hash, position, writes } => {
                            *left -= 1;
                            self.resolve(executor, hash, position, writes, &mut found);
                        }
                        Fragment::Part(part) => self.execute_part(worker, executor, part, left, &mut found),
                    }
                    looked_at += 1;
                }
                // A part that the budget has cut is still there.
                let gone = before - executor.queue.len();
                range.pending.fetch_sub(gone as u64, Ordering::SeqCst);
                looked_at > 0
            });
            if worked {
                return true;
            }
        }
        false
    }

    /// Finds what a fragment of a whole transaction depends on.
    fn resolve(
        &self,
        executor: &mut Executor,
        hash: u64,
        position: Position,
        writes: bool,
        found: &mut impl FnMut(Found),
    ) {
        let bucket = executor.bucket(hash);
        let before = executor.last_writers[bucket].before(position);
        if writes && !is_active(Mutant::ForgetWriter) {
            executor.last_writers[bucket] = LastWriter::new(position, false);
        }
        if before.is_some_and(|before| self.wait_settled(before, || Waiter::Whole(position))) {
            self.suspensions.fetch_add(1, Ordering::Relaxed);
            return;
        }
        match self.slots.resolve(position) {
            Some(Weight::Light) => found(Found::Ready(position)),
            Some(Weight::Heavy) => self.ready.push(Work::Ready(position), Weight::Heavy),
            None => {}
        }
    }

    /// Has something wait until an earlier transaction has executed and is settled. False if it is.
    fn wait_settled(&self, before: Position, waiter: impl Fn() -> Waiter) -> bool {
        self.slots.wait(before, &waiter)
            || self.options.mode == Mode::Speculative
                && self.unsettled(before).is_some()
                && self.frontier.wait(before, waiter()).is_none()
    }

    /// The transaction at a position, if others may read what it has written, and it is unsettled.
    pub(super) fn unsettled(&self, position: Position) -> Option<Arc<Split>> {
        match self.options.mode == Mode::Conservative || self.frontier.has_settled(position) {
            true => None,
            false => self.slots.unsettled(position),
        }
    }

    /// Tells a fragment of a split transaction its last writer, and may note the fragment there.
    fn ahead(&self, split: &Arc<Split>, index: u16, last: LastWriter) -> Ahead {
        let Some(before) = last.before(split.position()) else {
            return Ahead::Nothing;
        };
        let waiter = || Waiter::Fragment(split.clone(), index);
        let waits = match split.member() {
            Some(_) => self.wait_settled(before, waiter),
            None => !last.is_there() && self.slots.wait(before, waiter),
        };
        match waits {
            true => Ahead::Writer,
            false => self.unsettled(before).map_or(Ahead::Nothing, Ahead::Unsettled),
        }
    }

    /// Executes fragments of a split transaction, but for those that must wait for an earlier transaction.
    fn execute_part(
        &self,
        worker: WorkerId,
        executor: &mut Executor,
        part: Part,
        left: &mut u32,
        found: &mut impl FnMut(Found),
    ) {
        let Part { split, from, to } = part;
        let position = split.position();
        let mut share = Share::default();
        let mut next = from;
        let gate = self.enter_gate(worker);
        while next < to && *left > 0 {
            *left -= 1;
            let (index, fragment) = (next, split.fragment(next));
            next += 1;
            let bucket = executor.bucket(fragment.hash());
            let behind = match self.ahead(&split, index, executor.last_writers[bucket]) {
                Ahead::Nothing => None,
                Ahead::Unsettled(behind) => Some(behind),
                Ahead::Writer => {
                    self.suspensions.fetch_add(1, Ordering::Relaxed);
                    if fragment.kind.writes() && !is_active(Mutant::ForgetWriter) {
                        executor.waiting.push((bucket, false));
                    }
                    continue;
                }
            };
            let written = self.execute_fragment(&split, index, behind, &mut share);
            match written {
                _ if !fragment.kind.writes() => {}
                Written::Yes => executor.last_writers[bucket] = LastWriter::NONE,
                Written::Unsettled => executor.waiting.push((bucket, true)),
                Written::NotYet => executor.waiting.push((bucket, false)),
            }
        }
        drop(gate);
        if executor.waiting.iter().any(|&(_, is_there)| is_there) {
            self.slots.show_unsettled(&split);
        }
        self.repair_if_due(&split, &mut share, left);
        if self.add_share(&split, share) {
            found(Found::Ended(split.clone()));
        }
        if next < to {
            executor.queue.push_front(Fragment::Part(Part { split, from: next, to }));
            return;
        }
        // Of two fragments in one bucket, one that has not written counts.
        executor.waiting.sort_unstable_by_key(|&(_, is_there)| !is_there);
        for (bucket, is_there) in executor.waiting.drain(..) {
            executor.last_writers[bucket] = LastWriter::new(position, is_there);
        }
    }

    /// The gate in which a worker executes fragments, if there may be repairs.
    pub(super) fn enter_gate(&self, worker: WorkerId) -> Option<MutexGuard<'_, ()>> {
        (self.options.mode == Mode::Speculative).then(|| self.gates.enter(worker.0))
    }

    /// Repairs what an abort asks for, and charges the worker's budget for it. To be called in no gate.
    pub(super) fn repair_if_due(&self, split: &Arc<Split>, share: &mut Share, left: &mut u32) {
        if std::mem::take(&mut share.must_repair) {
            *left = left.saturating_sub(self.repair(split));
        }
    }
}

/// What an executor finds in its queue.
pub(super) enum Found {
    /// A light transaction whose fragments are resolved.
    Ready(Position),
    /// A split transaction, every fragment of which was executed here.
    Ended(Arc<Split>),
}
