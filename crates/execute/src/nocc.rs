//! No concurrency control: the bound.
//!
//! Workers take transactions in order and run them in parallel, reading whatever is there and writing at
//! their end. Each transaction is still all or nothing as to its own aborts, and is acknowledged only once it
//! is confirmed, but nothing orders conflicting ones: under conflicts updates are lost. It exists to be
//! measured against: what another engine takes longer on a workload without conflicts is the price of its
//! concurrency control (Sparkle, section 5.3).
//!
//! A key has one version, always tagged [`Position::FIRST`], so that readers at any snapshot see what is
//! there.

use crate::engine::{Budget, Committed, Effects, Engine, Progress, Status, Waiting, WorkerId};
use crate::kind::EngineKind;
use crate::running;
use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Poll;
use store::sync::Mutex;
use store::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use store::{Final, Partition, RecordRef, Version, View};
use txn::tx::Read;
use txn::{
    Access, Batch, Entry, Intent, Key, Outcome, Position, Request, ScanPage, ScanRange, Space, Stop,
    TxContext,
};

/// The engine without concurrency control.
pub struct NoCc {
    partition: Arc<Partition<()>>,
    /// Delivered transactions that nobody took yet.
    queue: Mutex<VecDeque<(TxContext, Arc<Request>)>>,
    delivered: AtomicU64,
    confirmed: AtomicU64,
    committed: AtomicU64,
    live: AtomicI64,
    workers: Vec<Mutex<Worker>>,
}

#[derive(Default)]
struct Worker {
    /// Taken from the queue together, to lock it less often.
    taken: VecDeque<(TxContext, Arc<Request>)>,
    access: Option<Box<NoCcAccess>>,
}

/// Transactions that a worker takes from the queue at once.
const TAKEN_MAX: usize = 8;

impl NoCc {
    /// An engine over an empty store, for `workers` workers.
    pub fn new(workers: usize) -> NoCc {
        NoCc {
            partition: Arc::new(Partition::new()),
            queue: Mutex::new(VecDeque::new()),
            delivered: AtomicU64::new(0),
            confirmed: AtomicU64::new(0),
            committed: AtomicU64::new(0),
            live: AtomicI64::new(0),
            workers: (0..workers).map(|_| Mutex::default()).collect(),
        }
    }

    fn take(&self, taken: &mut VecDeque<(TxContext, Arc<Request>)>, count: usize) {
        let confirmed = Position(self.confirmed.load(Ordering::Acquire));
        let mut queue = self.queue.lock();
        while taken.len() < count && queue.front().is_some_and(|(context, _)| context.position <= confirmed) {
            taken.extend(queue.pop_front());
        }
    }

    fn execute(&self, worker: &mut Worker, context: TxContext, request: &Arc<Request>) -> (Outcome, usize) {
        let mut future = match running::start(request, context) {
            Ok(future) => future,
            Err(stop) => return (Err(stop), 0),
        };
        let access = worker.access.take().unwrap_or_else(|| {
            Box::new(NoCcAccess { partition: self.partition.clone(), writes: Vec::new(), cleared: false })
        });
        let (mut access, polled) = running::poll(access, &mut future);
        let outcome = match polled {
            Poll::Ready(Err(Stop::Restart)) | Poll::Pending => {
                Err(Stop::abort("ERR the procedure waited for something other than its transaction"))
            }
            Poll::Ready(outcome) => outcome,
        };
        let mut writes = 0;
        if outcome.is_ok() {
            writes = usize::from(access.cleared) + access.writes.len();
            self.apply(&mut access);
        }
        access.writes.clear();
        access.cleared = false;
        worker.access = Some(access);
        (outcome, writes)
    }

    fn apply(&self, access: &mut NoCcAccess) {
        if access.cleared {
            let mut images = Vec::new();
            let snapshot = self.partition.open();
            let _ = self.partition.images_at(&snapshot, 0, usize::MAX, &mut images);
            self.partition.close(snapshot);
            for image in images.into_iter().filter(|image| image.key.space() == Space::User) {
                let mut record = self.partition.get_or_insert(&image.key);
                self.partition.with(&mut record, |cell| {
                    cell.replace(Version { position: Position::FIRST, entry: None });
                });
            }
            self.live.store(0, Ordering::Relaxed);
        }
        for (mut record, entry) in access.writes.drain(..) {
            let Some(entry) = entry else { continue };
            let user = record.space() == Space::User;
            let now = entry.is_some();
            let before = self.partition.with(&mut record, |cell| {
                let before = cell.is_present();
                cell.replace(Version { position: Position::FIRST, entry });
                before
            });
            if user && before != now {
                self.live.fetch_add(i64::from(now) - i64::from(before), Ordering::Relaxed);
            }
        }
    }
}

impl Engine for NoCc {
    fn kind(&self) -> EngineKind {
        EngineKind::NoCc
    }

    fn deliver(&self, batch: Batch) {
        let mut queue = self.queue.lock();
        if self.delivered.load(Ordering::Relaxed) == 0 {
            let at = self.partition.published();
            self.live.store(at.live, Ordering::Relaxed);
            self.committed.store(batch.first.prev().0, Ordering::Relaxed);
        }
        let end = batch.end().prev();
        for (offset, request) in batch.requests.into_iter().enumerate() {
            let context = TxContext::of(&request, batch.first.advanced(offset as u64), batch.time_ms)
                .in_epoch(batch.epoch);
            queue.push_back((context, request));
        }
        self.delivered.store(end.0, Ordering::Release);
        // Readers see what is there: any position will do, and none is ever final.
        self.partition.publish(Final {
            position: end,
            time_ms: batch.time_ms,
            live: self.live.load(Ordering::Relaxed),
        });
    }

    fn confirm(&self, upto: Position) {
        self.confirmed.fetch_max(upto.0, Ordering::Release);
    }

    fn retract(&self, from: Position) {
        let mut queue = self.queue.lock();
        queue.retain(|(context, _)| context.position < from);
        self.delivered.fetch_min(from.prev().0, Ordering::Release);
    }

    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        let Some(mut worker) = self.workers[worker.0].try_lock() else {
            return Progress::Idle;
        };
        let worker = &mut *worker;
        let mut taken = std::mem::take(&mut worker.taken);
        if taken.is_empty() {
            self.take(&mut taken, TAKEN_MAX.min(budget.operations as usize));
        }
        let progress = if taken.is_empty() { Progress::Idle } else { Progress::Worked };
        let count = taken.len() as u64;
        for (context, request) in taken.drain(..) {
            let (outcome, writes) = self.execute(worker, context, &request);
            effects.committed(Committed {
                position: context.position,
                request,
                outcome,
                writes,
                is_split: false,
            });
        }
        self.committed.fetch_add(count, Ordering::Release);
        worker.taken = taken;
        progress
    }

    fn waiting(&self) -> Waiting {
        Waiting { light: self.queue.lock().len() as u64, heavy: 0 }
    }

    fn status(&self) -> Status {
        let delivered = Position(self.delivered.load(Ordering::Acquire));
        Status {
            delivered,
            confirmed: delivered.min(Position(self.confirmed.load(Ordering::Acquire))),
            final_committed: Position(self.committed.load(Ordering::Acquire)),
            ..Status::default()
        }
    }

    fn workers(&self) -> usize {
        self.workers.len()
    }
    fn view(&self) -> &dyn View {
        &*self.partition
    }
}

struct NoCcAccess {
    partition: Arc<Partition<()>>,
    /// Records that were written (`Some`), or looked up to be (`None`: saves the second look-up).
    writes: Vec<(RecordRef<()>, Option<Option<Entry>>)>,
    cleared: bool,
}

impl NoCcAccess {
    fn find(&self, key: &Key) -> Option<usize> {
        self.writes.iter().rposition(|(record, _)| record.is_of(key))
    }
}

impl Access for NoCcAccess {
    fn read(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>> {
        if !self.writes.is_empty()
            && let Some(index) = self.find(key)
            && let Some(entry) = &self.writes[index].1
        {
            return Poll::Ready(Ok(Read { entry: entry.clone(), version: Position::NONE }));
        }
        if self.cleared && key.space() == Space::User {
            return Poll::Ready(Ok(Read::default()));
        }
        let record = match intent {
            Intent::Read => self.partition.get(key),
            Intent::Update => Some(self.partition.get_or_insert(key)),
        };
        let Some(mut record) = record else {
            return Poll::Ready(Ok(Read::default()));
        };
        let read = self.partition.with(&mut record, |cell| match cell.newest() {
            Some(version) => Read { entry: version.entry, version: version.position },
            None => Read::default(),
        });
        if intent == Intent::Update {
            self.writes.push((record, None));
        }
        Poll::Ready(Ok(read))
    }
    fn admit_write(&mut self, _key: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        match self.find(key) {
            Some(index) => self.writes[index].1 = Some(entry),
            None => self.writes.push((self.partition.get_or_insert(key), Some(entry))),
        }
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let cleared = self.cleared && range.space == Space::User;
        Poll::Ready(Ok(crate::scan::merge(
            &*self.partition,
            Position(u64::MAX - 1),
            range,
            cleared,
            |visit| {
                for (record, entry) in &self.writes {
                    if let Some(entry) = entry {
                        visit(&record.key(), entry.as_ref());
                    }
                }
            },
        )))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        let range = ScanRange::of(Space::User, 0, usize::MAX);
        match self.scan(range) {
            Poll::Ready(Ok(page)) => Poll::Ready(Ok(page.entries.len() as u64)),
            Poll::Ready(Err(stop)) => Poll::Ready(Err(stop)),
            Poll::Pending => Poll::Pending,
        }
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.writes.retain(|(record, _)| record.space() != Space::User);
        self.cleared = true;
        Poll::Ready(Ok(()))
    }
    fn expect(&mut self, hashes: &[u64]) {
        self.partition.warm(hashes);
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
