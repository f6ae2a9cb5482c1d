//! The specification: one confirmed transaction at a time, in the order of their positions.
//!
//! Whatever another engine does in parallel, its replies, aborts and final state must be the ones that this
//! engine produces on the same order. So it is kept as small and plain as can be: it speculates on nothing
//! (an unconfirmed transaction has simply not run, which makes a retraction the removal of queue entries),
//! suspends nothing, and keeps the writes of the running transaction in a map until they are applied.

use crate::engine::{Budget, Committed, Effects, Engine, Progress, Status, Waiting, WorkerId};
use crate::exclusive::Exclusive;
use crate::kind::EngineKind;
use crate::running;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;
use store::sync::Mutex;
use store::{Partition, View};
use txn::tx::Read;
use txn::{
    Access, Batch, Entry, Intent, Key, Outcome, Position, Request, ScanPage, ScanRange, Space, Stop,
    TxContext, Weight,
};

/// The serial engine.
pub struct Serial {
    partition: Arc<Partition<()>>,
    queue: Mutex<Queue>,
    /// Held while transactions run: the queue's latch is not, so that nobody who delivers waits for them.
    running: Exclusive<()>,
}

struct Queue {
    waiting: VecDeque<(TxContext, Arc<Request>)>,
    delivered: Position,
    confirmed: Position,
}

/// Transactions that a step runs at most.
const STEP_MAX: usize = 64;

impl Queue {
    fn confirmed_ones(&self) -> impl Iterator<Item = &Arc<Request>> {
        let confirmed = self.waiting.iter().take_while(|(context, _)| context.position <= self.confirmed);
        confirmed.map(|(_, request)| request)
    }

    /// Takes out the next transaction, if it is confirmed and light, or may be heavy.
    fn take(&mut self, may_be_heavy: bool) -> Option<(TxContext, Arc<Request>)> {
        let next = self.confirmed_ones().next()?;
        match next.footprint.weight {
            Weight::Heavy if !may_be_heavy => None,
            _ => self.waiting.pop_front(),
        }
    }
}

impl Default for Serial {
    fn default() -> Serial {
        Serial::new()
    }
}

impl Serial {
    /// An engine over an empty store.
    pub fn new() -> Serial {
        let queue = Queue { waiting: VecDeque::new(), delivered: Position::NONE, confirmed: Position::NONE };
        Serial {
            partition: Arc::new(Partition::new()),
            queue: Mutex::new(queue),
            running: Exclusive::new(()),
        }
    }

    /// The outcome, how many records were written, and what they add to the state digest.
    fn execute(&self, context: TxContext, request: &Arc<Request>, live: &mut i64) -> (Outcome, usize, u64) {
        let position = context.position;
        let access = Box::new(SerialAccess {
            partition: self.partition.clone(),
            upto: position.prev(),
            writes: BTreeMap::new(),
            cleared: false,
        });
        let mut future = match running::start(request, context) {
            Ok(future) => future,
            Err(stop) => return (Err(stop), 0, 0),
        };
        let (access, polled) = running::poll(access, &mut future);
        let Poll::Ready(outcome) = polled else {
            let text = "ERR the procedure waited for something other than its transaction";
            return (Err(Stop::abort(text)), 0, 0);
        };
        let outcome = outcome.map_err(|stop| match stop {
            Stop::Restart => Stop::abort("ERR the procedure asked for a restart that nobody wanted"),
            other => other,
        });
        let (mut writes, mut terms) = (0, 0);
        if outcome.is_ok() {
            writes = usize::from(access.cleared) + access.writes.len();
            terms = self.partition.install(position, access.cleared, access.writes, live);
        }
        (outcome, writes, terms)
    }
}

impl Engine for Serial {
    fn kind(&self) -> EngineKind {
        EngineKind::Serial
    }

    fn deliver(&self, batch: Batch) {
        let mut queue = self.queue.lock();
        queue.delivered = batch.end().prev();
        for (offset, request) in batch.requests.into_iter().enumerate() {
            let context = TxContext::of(&request, batch.first.advanced(offset as u64), batch.time_ms)
                .in_epoch(batch.epoch);
            queue.waiting.push_back((context, request));
        }
    }

    fn confirm(&self, upto: Position) {
        let mut queue = self.queue.lock();
        queue.confirmed = queue.confirmed.max(upto);
    }

    fn retract(&self, from: Position) {
        let mut queue = self.queue.lock();
        queue.waiting.retain(|(context, _)| context.position < from);
        queue.delivered = queue.delivered.min(from.prev());
    }

    fn step(&self, _worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        // One transaction at a time, whichever worker steps.
        let mut done = Vec::new();
        // Returns without the latch: nobody who delivers waits for a transaction.
        let next = || self.queue.lock().take(budget.heavy);
        let worked = self.running.step(|()| {
            while done.len() < STEP_MAX.min(budget.operations as usize)
                && let Some((context, request)) = next()
            {
                let mut live = self.partition.published().live;
                let (outcome, writes, terms) = self.execute(context, &request, &mut live);
                let position = context.position;
                let terms = terms.wrapping_add(running::outcome_term(&request, position, &outcome));
                self.partition.digests().run().add(position, terms);
                self.partition.publish(store::Final {
                    position: context.position,
                    time_ms: context.now_ms,
                    live,
                });
                done.push(Committed {
                    position: context.position,
                    request,
                    outcome,
                    writes,
                    is_split: false,
                });
            }
            if let Some(last) = done.last() {
                self.partition.snapshots().raise(last.position);
            }
            !done.is_empty()
        });
        for committed in done {
            effects.committed(committed);
        }
        if worked { Progress::Worked } else { Progress::Idle }
    }

    fn waiting(&self) -> Waiting {
        let queue = self.queue.lock();
        let is_light = |request: &&Arc<Request>| request.footprint.weight == Weight::Light;
        let light = queue.confirmed_ones().take(STEP_MAX).take_while(is_light).count() as u64;
        // Requests behind a heavy one wait for it.
        let heavy = u64::from(light == 0 && queue.confirmed_ones().next().is_some());
        Waiting { light, heavy }
    }

    fn status(&self) -> Status {
        let queue = self.queue.lock();
        let final_committed = self.partition.final_position();
        // A loaded store starts with everything delivered, confirmed and committed.
        let delivered = queue.delivered.max(final_committed);
        Status {
            delivered,
            confirmed: queue.confirmed.min(delivered).max(final_committed),
            final_committed,
            ..Status::default()
        }
    }

    fn workers(&self) -> usize {
        1
    }
    fn view(&self) -> &dyn View {
        &*self.partition
    }
}

struct SerialAccess {
    partition: Arc<Partition<()>>,
    upto: Position,
    writes: BTreeMap<Key, Option<Entry>>,
    cleared: bool,
}

impl Access for SerialAccess {
    fn read(&mut self, key: &Key, _intent: Intent) -> Poll<Result<Read, Stop>> {
        let read = match self.writes.get(key) {
            Some(entry) => Read { entry: entry.clone(), version: Position::NONE },
            None if self.cleared && key.space() == Space::User => Read::default(),
            None => self.partition.read(self.upto, key),
        };
        Poll::Ready(Ok(read))
    }
    fn admit_write(&mut self, _key: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.writes.insert(key.clone(), entry);
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let cleared = self.cleared && range.space == Space::User;
        Poll::Ready(Ok(crate::scan::merge(&*self.partition, self.upto, range, cleared, |visit| {
            self.writes.iter().for_each(|(key, entry)| visit(key, entry.as_ref()));
        })))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        let before = if self.cleared { 0 } else { self.partition.published().live };
        let change: i64 = self
            .writes
            .iter()
            .filter(|(key, _)| key.space() == Space::User)
            .map(|(key, entry)| {
                let was = !self.cleared && self.partition.read(self.upto, key).entry.is_some();
                i64::from(entry.is_some()) - i64::from(was)
            })
            .sum();
        Poll::Ready(Ok((before + change).max(0) as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.writes.retain(|key, _| key.space() != Space::User);
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
