//! The executors: run transactions that have all their locks.

use super::commit::{Ended, LiveChange};
use super::{Job, Shared};
use crate::engine::{Committed, Effects};
use crate::running;
use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use store::sync::atomic::Ordering;
use store::{Partition, Version};
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{
    Access, Entry, Intent, Key, KeySets, Outcome, Position, ProcedureFuture, ScanPage, ScanRange,
    Space, Stop,
};

/// A worker's execution.
pub(super) struct Executor {
    shared: Arc<Shared>,
    current: Option<Execution>,
    access: Option<Box<CalvinAccess>>,
    committed: Vec<Committed>,
}

struct Execution {
    job: Job,
    stage: Stage,
}

enum Stage {
    /// The procedure runs, or is parked because a step's budget ended.
    Running(ProcedureFuture),
    /// The procedure has returned a reply; its writes are being installed.
    Installing { outcome: Outcome, live: LiveChange },
}

/// What an executor may begin in a step.
#[derive(Clone, Copy)]
pub(super) struct Takes {
    pub(super) light: bool,
    pub(super) heavy: bool,
}

enum Taken {
    Job(Job),
    /// There is only heavy work, which this step may not do: made known to those who may.
    Declined,
    Nothing,
}

impl Executor {
    pub(super) fn new(shared: Arc<Shared>) -> Executor {
        Executor {
            shared,
            current: None,
            access: None,
            committed: Vec::new(),
        }
    }

    /// Executes for up to `left` operations; whether it did anything.
    pub(super) fn step(&mut self, left: &mut u32, takes: Takes, effects: &mut dyn Effects) -> bool {
        let mut worked = false;
        while *left > 0 {
            let execution = match self.current.take() {
                Some(execution) => execution,
                None => match self.take(takes) {
                    Taken::Job(job) => self.begin(job),
                    Taken::Declined => {
                        // Somebody else has something to do now.
                        worked = true;
                        break;
                    }
                    Taken::Nothing => break,
                },
            };
            worked = true;
            self.advance(execution, left);
        }
        for committed in self.committed.drain(..) {
            effects.committed(committed);
        }
        worked
    }

    /// Goes on with the transaction at hand until it has ended.
    pub(super) fn finish(&mut self, effects: &mut dyn Effects) {
        while let Some(execution) = self.current.take() {
            let mut left = u32::MAX;
            self.advance(execution, &mut left);
        }
        for committed in self.committed.drain(..) {
            effects.committed(committed);
        }
    }

    fn take(&self, takes: Takes) -> Taken {
        if !takes.light && !takes.heavy {
            return Taken::Nothing;
        }
        let mut ready = self.shared.ready.lock();
        if takes.light
            && let Some(job) = ready.light.pop_front()
        {
            return Taken::Job(job);
        }
        if !takes.heavy {
            let declined =
                !ready.heavy.is_empty() && !self.shared.heavy_declined.swap(true, Ordering::SeqCst);
            return if declined {
                Taken::Declined
            } else {
                Taken::Nothing
            };
        }
        let job = ready.heavy.pop_front();
        if ready.heavy.is_empty() {
            self.shared.heavy_declined.store(false, Ordering::SeqCst);
        }
        job.map_or(Taken::Nothing, Taken::Job)
    }

    fn begin(&mut self, job: Job) -> Execution {
        let mut access = self
            .access
            .take()
            .unwrap_or_else(|| Box::new(CalvinAccess::new(self.shared.partition.clone())));
        access.begin(&job);
        self.access = Some(access);
        let stage = match running::start(&job.request, job.context) {
            Ok(future) => Stage::Running(future),
            Err(stop) => Stage::Installing {
                outcome: Err(stop),
                live: LiveChange::By(0),
            },
        };
        Execution { job, stage }
    }

    /// Goes on until the execution has ended or the budget has.
    fn advance(&mut self, execution: Execution, left: &mut u32) {
        let Execution { job, stage } = execution;
        let Some(mut access) = self.access.take() else {
            return;
        };
        let (outcome, mut live) = match stage {
            Stage::Running(mut future) => {
                access.left = *left;
                access.out_of_budget = false;
                let (back, polled) = running::poll(access, &mut future);
                access = back;
                *left = access.left;
                match polled {
                    Poll::Pending if access.out_of_budget => {
                        self.access = Some(access);
                        self.current = Some(Execution {
                            job,
                            stage: Stage::Running(future),
                        });
                        return;
                    }
                    Poll::Pending => {
                        let text =
                            "ERR the procedure waited for something other than its transaction";
                        (Err(Stop::abort(text)), LiveChange::By(0))
                    }
                    Poll::Ready(outcome) => {
                        if is_active(Mutant::ReleaseLocksEarly) {
                            self.shared.executed.lock().push(job.context.position);
                        }
                        access.judged(outcome)
                    }
                }
            }
            Stage::Installing { outcome, live } => (outcome, live),
        };
        if outcome.is_ok() {
            while let Some((key, entry)) = access.writes.pop() {
                if *left == 0 {
                    access.writes.push((key, entry));
                    self.access = Some(access);
                    self.current = Some(Execution {
                        job,
                        stage: Stage::Installing { outcome, live },
                    });
                    return;
                }
                *left -= 1;
                install(
                    &self.shared.partition,
                    job.context.position,
                    access.cleared,
                    key,
                    entry,
                    &mut live,
                );
            }
        }
        *left = left.saturating_sub(1);
        access.writes.clear();
        self.access = Some(access);
        let position = job.context.position;
        let committed = Committed {
            position,
            request: job.request,
            outcome,
        };
        self.shared.end(
            Ended {
                committed,
                now_ms: job.context.now_ms,
                live,
            },
            &mut self.committed,
        );
        if !is_active(Mutant::ReleaseLocksEarly) {
            self.shared.executed.lock().push(position);
        }
    }
}

fn install(
    partition: &Partition<()>,
    position: Position,
    cleared: bool,
    key: Key,
    entry: Option<Entry>,
    live: &mut LiveChange,
) {
    let mut record = partition.get_or_insert(&key);
    let watermark = partition.snapshots().watermark();
    partition.with(&mut record, |cell| {
        if key.space() == Space::User {
            let before = !cleared && cell.versions.live(position.prev(), partition.clears());
            let change = i64::from(entry.is_some()) - i64::from(before);
            match live {
                LiveChange::By(count) | LiveChange::To(count) => *count += change,
            }
        }
        cell.versions.prune(watermark);
        cell.versions.insert(Version { position, entry });
    });
}

/// The keys that a transaction may touch.
struct Declared {
    sets: Arc<KeySets>,
    /// Where the next read-only key is expected: procedures touch keys much in the order in which they were named.
    next_read: usize,
    next_write: usize,
}

impl Declared {
    fn may_write(&mut self, key: &Key) -> bool {
        found(&self.sets.writes, &mut self.next_write, key)
            || self.sets.covers_inserts && !found(&self.sets.reads, &mut self.next_read, key)
    }
    fn may_read(&mut self, key: &Key) -> bool {
        found(&self.sets.reads, &mut self.next_read, key)
            || found(&self.sets.writes, &mut self.next_write, key)
    }
}

/// Whether `keys` has `key`, looked for where it is most likely first.
fn found(keys: &[Key], next: &mut usize, key: &Key) -> bool {
    if keys.get(*next) == Some(key) {
        *next += 1;
        return true;
    }
    if *next > 0 && keys.get(*next - 1) == Some(key) {
        return true;
    }
    match keys.iter().position(|other| other == key) {
        Some(index) => {
            *next = index + 1;
            true
        }
        None => false,
    }
}

/// A transaction's side of the engine. It has all its locks, so nothing but a step's budget ever suspends it.
struct CalvinAccess {
    partition: Arc<Partition<()>>,
    position: Position,
    declared: Option<Declared>,
    /// It touched what it had not declared: whatever it returns, it leaves nothing behind.
    undeclared: bool,
    writes: Vec<(Key, Option<Entry>)>,
    cleared: bool,
    left: u32,
    out_of_budget: bool,
}

impl CalvinAccess {
    fn new(partition: Arc<Partition<()>>) -> CalvinAccess {
        CalvinAccess {
            partition,
            position: Position::NONE,
            declared: None,
            undeclared: false,
            writes: Vec::new(),
            cleared: false,
            left: 0,
            out_of_budget: false,
        }
    }

    fn begin(&mut self, job: &Job) {
        self.position = job.context.position;
        let keys = job.request.footprint.keys.clone();
        self.declared = keys.map(|sets| Declared {
            sets,
            next_read: 0,
            next_write: 0,
        });
        self.undeclared = false;
        self.writes.clear();
        self.cleared = false;
    }

    /// What the transaction's end is, and what it does to the number of entries before its writes.
    fn judged(&mut self, outcome: Outcome) -> (Outcome, LiveChange) {
        let outcome = match outcome {
            _ if self.undeclared => Err(Stop::Undeclared),
            Err(Stop::Restart) => Err(Stop::abort(
                "ERR the procedure asked for a restart that nobody wanted",
            )),
            outcome => outcome,
        };
        if outcome.is_ok() && self.cleared {
            self.partition.clears().insert(self.position);
            return (outcome, LiveChange::To(0));
        }
        (outcome, LiveChange::By(0))
    }

    /// Pays for one operation.
    fn pay(&mut self) -> Poll<()> {
        if self.left == 0 {
            self.out_of_budget = true;
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(())
    }

    fn permit(&mut self, allowed: impl FnOnce(&mut Declared) -> bool) -> Result<(), Stop> {
        if let Some(declared) = &mut self.declared
            && !self.undeclared
        {
            self.undeclared = !allowed(declared);
        }
        if self.undeclared {
            Err(Stop::Undeclared)
        } else {
            Ok(())
        }
    }

    fn own(&self, key: &Key) -> Option<usize> {
        self.writes.iter().rposition(|(written, _)| written == key)
    }

    fn upto(&self) -> Position {
        self.position.prev()
    }
}

impl Access for CalvinAccess {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        if self.pay().is_pending() {
            return Poll::Pending;
        }
        self.permit(|declared| declared.may_read(key))?;
        let read = match self.own(key) {
            Some(index) => Read {
                entry: self.writes[index].1.clone(),
                version: Position::NONE,
            },
            None if self.cleared && key.space() == Space::User => Read::default(),
            None => self.partition.read(self.upto(), key),
        };
        Poll::Ready(Ok(read))
    }
    fn admit_write(&mut self, key: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(self.permit(|declared| declared.may_write(key)))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.permit(|declared| declared.may_write(key))?;
        match self.own(key) {
            Some(index) => self.writes[index].1 = entry,
            None => self.writes.push((key.clone(), entry)),
        }
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        if self.pay().is_pending() {
            return Poll::Pending;
        }
        self.permit(|_| false)?;
        let cleared = self.cleared && range.space == Space::User;
        Poll::Ready(Ok(crate::scan::merge(
            &*self.partition,
            self.upto(),
            range,
            cleared,
            |visit| {
                self.writes
                    .iter()
                    .for_each(|(key, entry)| visit(key, entry.as_ref()));
            },
        )))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        if self.pay().is_pending() {
            return Poll::Pending;
        }
        self.permit(|_| false)?;
        // With the whole partition locked, everything before has final-committed.
        let before = if self.cleared {
            0
        } else {
            self.partition.published().live
        };
        let change: i64 = self
            .writes
            .iter()
            .filter(|(key, _)| key.space() == Space::User)
            .map(|(key, entry)| {
                let was = !self.cleared && self.partition.read(self.upto(), key).entry.is_some();
                i64::from(entry.is_some()) - i64::from(was)
            })
            .sum();
        Poll::Ready(Ok((before + change).max(0) as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        if self.pay().is_pending() {
            return Poll::Pending;
        }
        self.permit(|_| false)?;
        self.writes.retain(|(key, _)| key.space() != Space::User);
        self.cleared = true;
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
