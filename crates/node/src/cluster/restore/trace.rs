//! One transaction of the order, with what it read and wrote, while the order is executed again.
//!
//! The engines final-commit everything before the transaction, in each of its partitions, and nothing behind
//! that. A snapshot of these partitions is then the database that the transaction found. Its procedure runs
//! there once by itself ([`certify::run_at`]), in the context that the engines give it, over an access that
//! notes what it looks at. So the procedures are the ordinary ones, and nothing is known here of commands.
//!
//! Afterwards the engines go on. Their outcome, and what they have left of each key that either execution
//! has written, are held against those of the run at the snapshot: a trace that differs says so. Which keys
//! only the engines have written their outcome tells, if procedures tell what they do
//! (`redis_surface::telling::want`).
//!
//! Where another node executes the transaction, or its session sends it again, the engines have not executed
//! it, and there is nothing to hold against each other.

use super::changes::{Ordered, Removal, serial_order, written_keys};
use super::{Replay, ReplayError};
use bytes::Bytes;
use certify::{Answer, LocalSnapshot, Look, run_at};
use execute::siblings::reader_of;
use execute::{Committed, Engine, unite};
use order::moves::SlotMove;
use order::skip::name_of;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use store::Snapshot;
use txn::tx::{Read, TxContext};
use txn::{
    Entry, Epoch, Key, Outcome, PartitionId, Position, Reply, Request, RequestName, ScanRange, Space, Stop,
};

/// The transaction of an epoch that is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// The request of this name.
    Request(RequestName),
    /// The one at this position of a partition.
    Position(PartitionId, Position),
}

/// A transaction that the engines have executed.
#[derive(Clone, Debug)]
pub struct Execution {
    /// The name of its request.
    pub name: RequestName,
    /// Its request.
    pub request: Arc<Request>,
    /// Its position in each of its partitions.
    pub positions: BTreeMap<PartitionId, Position>,
    /// Its outcome. That of [`Request::elsewhere`] is nobody's.
    pub outcome: Outcome,
}

/// What a transaction looked at, in the order in which it did. What it had written itself it does not look
/// at, and a key is looked at once.
#[derive(Clone, Debug, PartialEq)]
pub enum Looked {
    /// A record: with its version, and an entry that may have expired.
    Record(Key, Read),
    /// A part of a space, and the keys that were found there.
    Scan(ScanRange, Vec<Key>),
    /// The number of the user's entries.
    Count(u64),
}

/// A key before and behind a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// Its entry before; it may have expired.
    pub before: Option<Entry>,
    /// Its entry behind the transaction; `None` if it was deleted.
    pub after: Option<Entry>,
}

/// A transaction that was shown.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The transaction, as the engines have executed it.
    pub execution: Execution,
    /// Its outcome at the snapshot.
    pub outcome: Outcome,
    /// What it looked at.
    pub looked: Vec<Looked>,
    /// It removed all user keys before it wrote the keys below.
    pub clears: bool,
    /// The keys that it wrote, in the order of the keys.
    pub writes: Vec<Write>,
    /// The engines have executed it, too, so that the two executions were compared.
    pub is_compared: bool,
    /// How the engines' execution differs from the run at the snapshot: a bug, if it does.
    pub difference: Option<String>,
}

/// An epoch that was executed.
#[derive(Clone, Debug)]
pub struct TracedEpoch {
    /// Its transactions, in one order that agrees with those of all partitions.
    pub transactions: Vec<Execution>,
    /// The one that was wanted, if the epoch has it.
    pub trace: Option<Trace>,
}

/// The wanted transaction, before the engines have executed it.
struct Found {
    request: Arc<Request>,
    positions: BTreeMap<PartitionId, Position>,
}

impl Found {
    /// Finds it among what the partitions get in an epoch.
    fn among(
        requests: &[(PartitionId, Position, Arc<Request>)],
        epoch: Epoch,
        wanted: Wanted,
    ) -> Option<Found> {
        let is_wanted = |partition: PartitionId, position: Position, request: &Request| match wanted {
            Wanted::Request(name) => name_of(epoch, request) == name,
            Wanted::Position(of, at) => (of, at) == (partition, position),
        };
        let (_, _, request) = requests
            .iter()
            .find(|(partition, position, request)| is_wanted(*partition, *position, request))?;
        // All partitions have the same request in one place of memory.
        let all = requests.iter().filter(|(_, _, other)| Arc::ptr_eq(request, other));
        let positions = all.map(|(partition, position, _)| (*partition, *position)).collect();
        Some(Found { request: request.clone(), positions })
    }
}

/// The outcome of the run at the snapshot.
struct Run {
    found: Found,
    past: Past,
    outcome: Outcome,
    clears: bool,
    writes: Vec<Write>,
}

/// The partitions of a transaction as it found them.
struct Past {
    request: Arc<Request>,
    parts: BTreeMap<PartitionId, (Arc<dyn Engine>, Option<Snapshot>)>,
    looked: Mutex<Vec<Looked>>,
}

impl Drop for Past {
    fn drop(&mut self) {
        for (engine, snapshot) in self.parts.values_mut() {
            if let Some(snapshot) = snapshot.take() {
                engine.view().close(snapshot);
            }
        }
    }
}

impl Past {
    fn each<'a, R: 'a>(
        &'a self,
        look: impl Fn(&dyn Engine, &Snapshot) -> R + 'a,
    ) -> impl Iterator<Item = R> + 'a {
        let parts = self.parts.values();
        parts.filter_map(move |(engine, snapshot)| Some(look(&**engine, snapshot.as_ref()?)))
    }

    /// A record, of the partition that reads it for all; `None` if the transaction is not executed there.
    fn read(&self, key: &Key) -> Option<Read> {
        let route = &self.request.route;
        let (engine, snapshot) = self.parts.get(&reader_of(&route.partitions, key, &route.slots))?;
        Some(engine.view().read_at(snapshot.as_ref()?, key))
    }
}

impl LocalSnapshot for Past {
    fn look(&self, look: &Look) -> Answer {
        let (looked, answer) = match look {
            Look::Key(key) => {
                let Some(read) = self.read(key) else {
                    return Answer::Refused(
                        "ERR the key is of a partition where this is not executed".into(),
                    );
                };
                (Looked::Record(key.clone(), read.clone()), Answer::Value(read))
            }
            Look::Scan(range) => {
                let mut pages: Vec<_> =
                    self.each(|engine, snapshot| engine.view().scan_at(snapshot, *range)).collect();
                // Each partition has the system's space for itself, and the first one's is what counts.
                if range.space == Space::System {
                    pages.truncate(1);
                }
                let page = unite(pages);
                let keys = page.entries.iter().map(|(key, _)| key.clone()).collect();
                (Looked::Scan(*range, keys), Answer::Page(page))
            }
            Look::Count => {
                let count = self.each(|engine, snapshot| engine.view().count_at(snapshot)).sum();
                (Looked::Count(count), Answer::Count(count))
            }
        };
        self.looked.lock().push(looked);
        answer
    }
}

impl Replay {
    /// Executes the next epoch as [`Replay::execute`] does, lists its transactions, and shows the one that is
    /// wanted.
    ///
    /// # Errors
    /// The batches are not the next ones, or this build cannot read them; or the transaction cannot be shown.
    pub fn execute_and_trace(
        &mut self,
        batches: &[Bytes],
        wanted: Option<Wanted>,
    ) -> Result<TracedEpoch, ReplayError> {
        let mut requests = Vec::new();
        let epoch = self.deliver(batches, &mut |partition, batch| {
            let positions = (batch.first.0..).map(Position);
            let all = positions.zip(&batch.requests);
            requests.extend(all.map(|(position, request)| (partition, position, request.clone())));
        })?;
        let mut commits = vec![Vec::new(); self.engines.len()];
        let run = match wanted.and_then(|wanted| Found::among(&requests, epoch, wanted)) {
            Some(found) => Some(self.run_before_its_turn(epoch, found, &mut commits)?),
            None => None,
        };
        self.confirm_upto(&self.end().next);
        self.step_to_end(epoch, Some(&mut commits))?;
        let order = serial_order(commits).ok_or(ReplayError::NoOrder(epoch))?;
        let partition_of = |place: usize| self.engines[place].0;
        let execution = |Ordered { committed, positions }| Execution {
            name: name_of(epoch, &committed.request),
            request: committed.request,
            positions: positions.into_iter().map(|(place, at)| (partition_of(place), at)).collect(),
            outcome: committed.outcome,
        };
        let transactions: Vec<Execution> = order.into_iter().map(execution).collect();
        let trace = run.and_then(|run| {
            let is_it = |execution: &&Execution| Arc::ptr_eq(&execution.request, &run.found.request);
            let execution = transactions.iter().find(is_it)?.clone();
            Some(run.compared(execution, self.end().time_ms))
        });
        self.end_epoch(epoch);
        Ok(TracedEpoch { transactions, trace })
    }

    /// Has the engines final-commit what is before a transaction, and runs the transaction there by itself.
    fn run_before_its_turn(
        &self,
        epoch: Epoch,
        found: Found,
        commits: &mut [Vec<Committed>],
    ) -> Result<Run, ReplayError> {
        if SlotMove::of(&found.request).is_some() {
            return Err(ReplayError::NotShown(name_of(epoch, &found.request)));
        }
        let ends = self.engines.iter().zip(&self.end().next);
        let next = ends.map(|((partition, _), end)| found.positions.get(partition).copied().unwrap_or(*end));
        self.confirm_upto(&next.collect::<Vec<Position>>());
        self.step_until_idle(Some(commits));
        let mut parts = BTreeMap::new();
        for (partition, engine) in &self.engines {
            let Some(position) = found.positions.get(partition) else { continue };
            if engine.view().final_position() != position.prev() {
                return Err(ReplayError::Stuck(epoch));
            }
            parts.insert(*partition, (engine.clone(), Some(engine.view().open())));
        }
        // The run here counts, also where another node executes the transaction.
        let request = Arc::new(Request { elsewhere: false, ..(*found.request).clone() });
        let past = Arc::new(Past { request: request.clone(), parts, looked: Mutex::default() });
        let position = found.positions.values().next().copied().unwrap_or(Position::NONE);
        let context = TxContext::of(&request, position, self.end().time_ms).in_epoch(epoch);
        let (outcome, writes) = run_at(past.clone(), &request, context);
        let write = |(key, after): (Key, Option<Entry>)| {
            let before = past.read(&key).and_then(|read| read.entry);
            Write { key, before, after }
        };
        let clears = writes.clears;
        let writes = writes.records.into_iter().map(write).collect();
        let past = Arc::into_inner(past).ok_or(ReplayError::Stuck(epoch))?;
        Ok(Run { found, past, outcome, clears, writes })
    }
}

impl Run {
    /// The run, with what the engines have made of the transaction since.
    fn compared(mut self, execution: Execution, time_ms: u64) -> Trace {
        // The entry that each key must hold now, if either execution has written the key.
        let mut wanted: Vec<(Key, Option<Entry>)> =
            self.writes.iter().map(|write| (write.key.clone(), write.after.clone())).collect();
        let (engine_clears, told) = told_writes(&execution.outcome);
        for (key, _) in told {
            if self.writes.iter().all(|write| write.key != key) {
                let before = self.past.read(&key).and_then(|read| read.entry);
                wanted.push((key, before.filter(|_| !self.clears)));
            }
        }
        for (partition, (_, snapshot)) in &mut self.past.parts {
            if let (Some(snapshot), Some(&position)) = (snapshot, self.found.positions.get(partition)) {
                snapshot.advance(position, time_ms);
            }
        }
        // A transaction that strayed is sent again by its session: at the snapshot it would have gone on.
        let strayed = matches!(execution.outcome, Err(Stop::Undeclared(_)));
        let is_compared = !execution.request.elsewhere && !strayed;
        let left = |key: &Key| self.past.read(key).map(|read| read.entry);
        let difference = match () {
            () if !is_compared => None,
            () if !is_same(&self.outcome, &execution.outcome) => Some("the reply".to_owned()),
            () if told_writes(&self.outcome).0 != engine_clears => {
                Some("whether it removed all keys".to_owned())
            }
            () => {
                let mut differ = wanted.iter().filter(|(key, entry)| left(key) != Some(entry.clone()));
                differ.next().map(|(key, _)| format!("what is left of {key:?}"))
            }
        };
        let looked = std::mem::take(&mut *self.past.looked.lock());
        let Run { outcome, clears, writes, .. } = self;
        Trace { execution, outcome, looked, clears, writes, is_compared, difference }
    }
}

/// Whether an execution has removed all keys, and the keys that it has written behind that, as far as it
/// tells.
fn told_writes(outcome: &Outcome) -> (bool, Vec<(Key, Removal)>) {
    match outcome {
        Ok(Reply::Told(told)) => written_keys(told.events.clone()),
        _ => (false, Vec::new()),
    }
}

/// Whether two executions have ended in the same way, whatever others are told of them.
fn is_same(one: &Outcome, other: &Outcome) -> bool {
    let plain = |outcome: &Outcome| match outcome {
        Ok(Reply::Told(told)) => Ok(told.reply.clone()),
        other => other.clone(),
    };
    let (one, other) = (plain(one), plain(other));
    // A number that is none differs from itself, but not in words.
    one == other || format!("{one:?}") == format!("{other:?}")
}
