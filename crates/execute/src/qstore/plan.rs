//! The planners: turn slices of the order into fragments in execution queues.

use super::Shared;
use super::queues::{Fragment, Slice};
use super::split::{Part, Split};
use crate::conservative::{Job, Known};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use store::View;
use store::sync::atomic::Ordering;
use txn::{Position, Weight, fragments};

/// Whose turn it is to be planned.
#[derive(Default)]
pub(super) struct Planning {
    /// The priority of the next slice.
    next_priority: u64,
    /// What was taken from the first transaction on that is planned by a guess and has not final-committed:
    /// its guess may be wrong.
    kept: VecDeque<Job>,
}

impl Planning {
    /// A slice is taken, when all up to `committed` has final-committed. Its priority.
    fn take(&mut self, slice: &VecDeque<Job>, committed: Position) -> u64 {
        let is_over = |job: &Job| job.context.position <= committed || !matches!(job.known, Known::Guess(_));
        while self.kept.pop_front_if(|job| is_over(job)).is_some() {}
        let first = slice.front().map_or(Position::NONE, |job| job.context.position);
        // The rest was retracted.
        while self.kept.pop_back_if(|job| job.context.position >= first).is_some() {}
        for job in slice {
            if !self.kept.is_empty() || matches!(job.known, Known::Guess(_)) {
                self.kept.push_back(job.clone());
            }
        }
        let priority = self.next_priority;
        self.next_priority += 1;
        priority
    }

    /// What was taken in a range, the first of which was planned by a wrong guess.
    pub(super) fn take_back(&mut self, range: Range<Position>) -> VecDeque<Job> {
        let from = self.kept.partition_point(|job| job.context.position < range.start);
        let mut jobs = self.kept.split_off(from);
        jobs.retain(|job| job.context.position < range.end);
        if let Some(first) = jobs.front_mut() {
            first.known = Known::Nothing;
        }
        jobs
    }
}

/// A worker's part of planning.
pub(super) struct Planner {
    jobs: VecDeque<Job>,
    slice: Slice,
    /// The slice's priority, if it is planned and not published: the budget was spent.
    unpublished: Option<u64>,
}

impl Planner {
    pub(super) fn new(ranges: usize) -> Planner {
        Planner { jobs: VecDeque::new(), slice: Slice::new(ranges), unpublished: None }
    }

    /// Publishes the slice that the last step has planned; whether there was one.
    pub(super) fn publish(&mut self, shared: &Shared) -> bool {
        let Some(priority) = self.unpublished.take() else {
            return false;
        };
        shared.publish(priority, &mut self.slice);
        true
    }

    /// Plans a slice, and publishes it if the budget allows; whether there was one. May overdraw the budget
    /// by what one slice has more: planning touches nothing that others touch.
    pub(super) fn step(&mut self, shared: &Shared, left: &mut u32) -> bool {
        let Some(priority) = shared.take_slice(*left as usize, &mut self.jobs) else {
            return false;
        };
        let mut split = 0;
        while let Some(job) = self.jobs.pop_front() {
            let fragments = self.plan(shared, job, &mut split);
            *left = left.saturating_sub(fragments + 1);
        }
        shared.split.fetch_add(split, Ordering::Relaxed);
        self.unpublished = Some(priority);
        if *left > 0 {
            self.publish(shared);
        }
        true
    }

    /// Appends the fragments of a transaction to the queues. How many there are.
    fn plan(&mut self, shared: &Shared, job: Job, split: &mut u64) -> u32 {
        // Siblings must decide alike, and whether a request is heavy is not part of the order.
        if (job.member.is_some() || job.request.footprint.weight == Weight::Light)
            && let Some(fragments) = fragments::apart(&job.request)
            && !fragments.list().is_empty()
        {
            *split += 1;
            let me = shared.options.partition;
            return self.plan_split(shared, Split::new(job, fragments, me, |hash| shared.range_of(hash)));
        }
        let position = job.context.position;
        let mut fragments = 0;
        match job.declared() {
            None => self.slice.barrier = Some(position),
            Some(keys) => {
                let writes = keys.writes.iter().map(|key| (key, true));
                let reads = keys.reads.iter().map(|key| (key, false));
                let me = shared.options.partition;
                for (key, writes) in writes.chain(reads).filter(|&(key, writes)| job.has(me, key, writes)) {
                    let hash = key.hash64();
                    let queue = &mut self.slice.queues[shared.range_of(hash)];
                    queue.push(Fragment::Whole { hash, position, writes });
                    fragments += 1;
                }
                if fragments == 0 {
                    self.slice.without_fragments.push(position);
                }
            }
        }
        shared.slots.prepare(job, fragments);
        fragments
    }

    fn plan_split(&mut self, shared: &Shared, split: Split) -> u32 {
        let count = split.count();
        let split = Arc::new(split);
        let range_of = |index| shared.range_of(split.fragment(index).hash());
        let mut from = 0;
        while from < count {
            let range = range_of(from);
            let to = (from..count).find(|&index| range_of(index) != range).unwrap_or(count);
            let part = Part { split: split.clone(), from, to };
            self.slice.queues[range].push(Fragment::Part(part));
            from = to;
        }
        u32::from(count)
    }
}

impl Shared {
    /// How many delivered transactions can be planned now.
    pub(super) fn plannable(&self) -> u64 {
        self.order.takeable(self.room())
    }

    fn room(&self) -> Position {
        self.partition.final_position().advanced(self.options.capacity as u64)
    }

    /// Takes the next slice: up to `count` transactions that declare their keys, or one that does not. Its
    /// priority.
    fn take_slice(&self, count: usize, jobs: &mut VecDeque<Job>) -> Option<u64> {
        // All planners get something.
        let share = |plannable: u64| (plannable as usize).div_ceil(self.options.workers).max(SLICE_MIN);
        let count = |plannable| count.min(share(plannable)).min(self.options.slice_max);
        let mut has_barrier = false;
        let fits = |taken, job: &mut Job| {
            self.strays.judge(job);
            let is_barrier = job.known == Known::Nothing;
            let fits = !has_barrier && (taken == 0 || !is_barrier);
            has_barrier |= is_barrier;
            fits
        };
        let decide = |planning: &mut Planning, slice: &VecDeque<Job>| {
            planning.take(slice, self.partition.final_position())
        };
        self.order.take(jobs, || self.room(), count, fits, decide)
    }
}

/// Fewer transactions are not worth a second planner.
const SLICE_MIN: usize = 16;
