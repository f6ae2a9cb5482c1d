//! One partition's order, and the oracles over it, whichever replicas tell of it.
//!
//! 1. *agreement*: what one replica has confirmed at a position every replica confirms there: the same
//!    request, in the same epoch, at the same time. Nothing that was confirmed is ever retracted.
//! 2. *once*: no request has two positions.
//! 3. *serial*: every replica final-commits each transaction once per life, as the specification says. Where
//!    partitions share a key space, the specification runs a transaction over several of them at all of them
//!    at once, when it is the next one of each ([`advance`]): so their orders must fit together. A node that
//!    has confirmed an epoch may be the first one, also of those that keep the other partitions: what it
//!    commits or reads is judged as soon as the specification has come as far.
//! 4. *taken*: what a node that lives to the end has taken is in the order in the end, whatever its client
//!    was told.
//! 5. *real time* and *connection order*: see [`crate::watch::real_time`].
//!
//! There is no oracle for *durability*, because these imply it. A client is told of a position that its node
//! has confirmed. If every replica forgot it, then either something else is confirmed there, and replicas do
//! not agree; or nothing is, and the replicas never come as far as the order did, which is part of what a run
//! must reach in the end.

use super::epochs::Epochs;
use crate::oracle::{Expected, Oracle, run_together};
use crate::traffic::LOAD;
use crate::watch::real_time::Place;
use crate::watch::recorder::{Recorder, Told};
use crate::watch::{expiry, optimistic};
use crate::world::Violation;
use execute::{Committed, Engine};
use order::moves::{SlotMove, is_misrouted};
use std::collections::BTreeSet;
use std::sync::Arc;
use store::{Snapshot, View};
use txn::{Epoch, Key, Outcome, PartitionId, Position, Request, RequestId, SessionId, Stop};

/// A transaction of the order.
#[derive(Clone)]
struct Ordered {
    epoch: Epoch,
    request: Arc<Request>,
    time_ms: u64,
}

impl Ordered {
    /// A request that was read back from a frame or a journal is another object.
    fn same(&self, other: &Ordered) -> bool {
        (self.epoch, self.time_ms) == (other.epoch, other.time_ms)
            && self.request.id == other.request.id
            && self.request.args == other.request.args
            && self.request.procedure.name() == other.request.procedure.name()
    }
}

/// What is known of a partition's order.
pub(super) struct PartitionWatch {
    partition: PartitionId,
    oracle: Oracle,
    confirmed: Vec<Ordered>,
    requests: BTreeSet<RequestId>,
    /// What was committed or read beyond what the specification has run.
    pending: Vec<Pending>,
    /// The largest position of what was answered.
    reached: Position,
    /// Where the initial records end.
    pub loaded: Position,
    /// The last call that has loaded any.
    last_load: Position,
}

/// What waits to be judged.
enum Pending {
    Committed(Committed),
    Read(SnapshotRead),
}

impl Pending {
    fn position(&self) -> Position {
        match self {
            Pending::Committed(committed) => committed.position,
            Pending::Read(read) => read.position,
        }
    }
}

/// A read at a replica's snapshot.
pub(super) struct SnapshotRead {
    pub request: Arc<Request>,
    pub position: Position,
    pub snapshot_ms: u64,
    pub now_ms: u64,
    pub outcome: Outcome,
}

/// One replica's part: what its engine was told, beyond what is confirmed.
#[derive(Default)]
pub(super) struct ReplicaWatch {
    delivered: Vec<Ordered>,
    /// Positions before that of the first of `delivered`.
    confirmed: u64,
    committed: u64,
}

fn violation<T>(oracle: &'static str, text: String) -> Result<T, Violation> {
    Err(Violation::new(oracle, text))
}

impl ReplicaWatch {
    /// A replica whose engine is at this position.
    pub fn new(position: Position) -> ReplicaWatch {
        ReplicaWatch { delivered: Vec::new(), confirmed: position.0, committed: position.0 }
    }
}

impl PartitionWatch {
    pub fn new(partition: PartitionId) -> PartitionWatch {
        PartitionWatch {
            partition,
            oracle: Oracle::new(),
            confirmed: Vec::new(),
            requests: BTreeSet::new(),
            pending: Vec::new(),
            reached: Position::NONE,
            loaded: Position::NONE,
            last_load: Position::NONE,
        }
    }

    pub fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// The position of the workload's first call, once its initial records are complete. `None` also if a
    /// call was late that loads some, of a connection that had been given up: it has put back what the
    /// workload had changed.
    pub fn first(&self) -> Option<Position> {
        let is_complete = self.loaded != Position::NONE && self.last_load <= self.loaded;
        is_complete.then(|| self.loaded.next())
    }

    /// Whether any replica has confirmed this request.
    pub fn has_ordered(&self, id: &RequestId) -> bool {
        self.requests.contains(id)
    }

    /// The last position that any replica has confirmed.
    pub fn last(&self) -> Position {
        Position(self.confirmed.len() as u64)
    }

    /// Compares what a replica has loaded from a checkpoint with the specification.
    pub fn check_loaded(&self, engine: &Recorder) -> Result<(), Violation> {
        let view = engine.view();
        let snapshot = view.open();
        let checked = if snapshot.position > self.last() {
            Err(format!(
                "a checkpoint is of {:?}, and only {:?} are confirmed",
                snapshot.position,
                self.last()
            ))
        } else {
            self.check_snapshot(view, &snapshot)
        };
        view.close(snapshot);
        checked.map_err(|text| Violation::new("recovery", text))
    }

    /// Compares a snapshot with the specification, if that has come as far.
    pub fn check_snapshot(&self, view: &dyn View, snapshot: &Snapshot) -> Result<(), String> {
        match snapshot.position > self.oracle.last() {
            true => Ok(()),
            false => crate::judge::check_snapshot(view, snapshot, &self.oracle),
        }
    }

    /// How often it gave or took slots.
    pub fn moves(&self) -> u64 {
        let moves = self.confirmed.iter();
        let moves = moves.filter(|ordered| SlotMove::of(&ordered.request).is_some());
        moves.count() as u64
    }

    /// The epoch of a position that somebody has confirmed.
    pub fn epoch_of(&self, position: Position) -> Epoch {
        let ordered = self.confirmed.get(position.prev().0 as usize);
        ordered.map_or(Epoch(0), |ordered| ordered.epoch)
    }

    /// The last position of an epoch or of one before it.
    pub fn end_of(&self, epoch: Epoch) -> Position {
        let end = self.confirmed.partition_point(|ordered| ordered.epoch <= epoch);
        Position(end as u64)
    }

    /// Forgets what lies behind an epoch: nobody has it any more. Whether something of it was answered.
    pub fn void_behind(&mut self, epoch: Epoch) -> bool {
        let end = self.end_of(epoch);
        for ordered in self.confirmed.drain(end.0 as usize..) {
            self.requests.remove(&ordered.request.id);
        }
        self.pending.retain(|pending| pending.position() <= end);
        if self.oracle.last() > end {
            self.oracle = Oracle::new();
        }
        if self.loaded > end {
            // A workload knows nothing of a state without all of its initial records.
            self.loaded = Position::NONE;
        }
        let is_answered = self.reached > end;
        self.reached = self.reached.min(end);
        is_answered
    }

    /// Follows what a node told a replica's engine.
    pub fn listen(
        &mut self,
        partition: PartitionId,
        replica: &mut ReplicaWatch,
        recorder: &Recorder,
        epochs: &mut Epochs,
        mut note: impl FnMut(&dyn Fn() -> String),
    ) -> Result<(), Violation> {
        for told in recorder.take() {
            match told {
                Told::Deliver(batch) => {
                    note(&|| {
                        let requests: Vec<String> = batch.requests.iter().map(|r| format!("{r:?}")).collect();
                        format!(
                            "delivers epoch {} from position {}: {}",
                            batch.epoch.0,
                            batch.first,
                            requests.join(", ")
                        )
                    });
                    let next = replica.confirmed + replica.delivered.len() as u64 + 1;
                    if batch.first.0 != next {
                        let text = format!("{:?} is delivered in the place of {next}", batch.first);
                        return violation("agreement", text);
                    }
                    let (epoch, time_ms) = (batch.epoch, batch.time_ms);
                    let ordered =
                        batch.requests.into_iter().map(|request| Ordered { epoch, request, time_ms });
                    replica.delivered.extend(ordered);
                }
                Told::Confirm(upto) => {
                    note(&|| format!("confirms up to position {upto}"));
                    for ordered in replica.delivered.drain(..(upto.0 - replica.confirmed) as usize) {
                        replica.confirmed += 1;
                        let position = Position(replica.confirmed);
                        let (id, epoch) = (ordered.request.id, ordered.epoch);
                        let has_effect = !is_misrouted(&ordered.request);
                        if self.confirm(position, ordered)? && has_effect {
                            epochs.ordered(id, (epoch, partition, position))?;
                        }
                    }
                }
                Told::Retract(from) => {
                    note(&|| format!("retracts from position {from} on"));
                    if from.0 <= replica.confirmed {
                        let text = format!("{from:?} is retracted although it was confirmed");
                        return violation("agreement", text);
                    }
                    let kept = (from.0 - replica.confirmed - 1) as usize;
                    replica.delivered.truncate(kept);
                }
            }
        }
        Ok(())
    }

    /// Whether nobody has confirmed it before.
    fn confirm(&mut self, position: Position, ordered: Ordered) -> Result<bool, Violation> {
        if let Some(first) = self.confirmed.get(position.prev().0 as usize) {
            if first.same(&ordered) {
                return Ok(false);
            }
            let text = format!(
                "{position:?} is {:?} in {:?} at {} ms for one replica and {:?} in {:?} at {} ms for another",
                first.request, first.epoch, first.time_ms, ordered.request, ordered.epoch, ordered.time_ms
            );
            return violation("agreement", text);
        }
        let id = ordered.request.id;
        if id.session != SessionId::INTERNAL && !self.requests.insert(id) {
            let text = format!("{position:?} has {:?}, which is in the order before", ordered.request);
            return violation("once", text);
        }
        if ordered.request.procedure.name() == LOAD {
            self.last_load = position;
        }
        self.confirmed.push(ordered);
        Ok(true)
    }

    /// The first transaction that the specification has not run.
    fn next(&self) -> Option<&Ordered> {
        self.confirmed.get(self.oracle.last().0 as usize)
    }

    /// Judges a final commit at a replica.
    pub fn judge(&mut self, replica: &mut ReplicaWatch, committed: Committed) -> Result<(), Violation> {
        let position = committed.position;
        if position.0 > replica.confirmed {
            let outcome = &committed.outcome;
            let text = format!("{position:?} final-committed before it was confirmed: {outcome:?}");
            return violation("serial", text);
        }
        replica.committed += 1;
        self.judge_when_known(Pending::Committed(committed))
    }

    /// Judges a read at a replica's snapshot.
    pub fn judge_read(&mut self, read: SnapshotRead) -> Result<(), Violation> {
        self.judge_when_known(Pending::Read(read))
    }

    fn judge_when_known(&mut self, pending: Pending) -> Result<(), Violation> {
        if pending.position() <= self.oracle.last() {
            return self.judge_one(&pending);
        }
        self.pending.push(pending);
        Ok(())
    }

    fn judge_one(&self, pending: &Pending) -> Result<(), Violation> {
        match pending {
            Pending::Committed(committed) => self.check_commit(committed),
            Pending::Read(read) => self.check_read(read),
        }
    }

    fn check_commit(&self, committed: &Committed) -> Result<(), Violation> {
        let Committed { position, request, outcome, is_split, .. } = committed;
        let ordered = &self.confirmed[position.prev().0 as usize];
        if ordered.request.id != request.id {
            let text = format!(
                "{position:?} final-committed {request:?}, and the order has {:?} there",
                ordered.request
            );
            return violation("serial", text);
        }
        let is_answered_elsewhere = *is_split && request.route.partitions.first() != Some(&self.partition);
        if request.elsewhere || is_answered_elsewhere {
            return Ok(());
        }
        let expected = self.oracle.expected(*position);
        if !expected.is_some_and(|expected| expected.admits(outcome)) {
            let text = format!("{position:?} ({request:?}) ended {outcome:?} and must end {expected:?}");
            return violation("serial", text);
        }
        // Of what runs at several partitions, no single one knows the state.
        if request.route.partitions.len() == 1 {
            let before = position.prev();
            optimistic::check(&self.oracle, request, before, ordered.time_ms, outcome)
                .map_err(|text| Violation::new("optimistic", text))?;
        }
        expiry::check_removal(&self.oracle, request, *position, ordered.time_ms)
            .map_err(|text| Violation::new("expiry", text))
    }

    fn check_read(&self, read: &SnapshotRead) -> Result<(), Violation> {
        let SnapshotRead { request, position, snapshot_ms, now_ms, outcome } = read;
        expiry::check_read(&self.oracle, request, *position, *snapshot_ms, *now_ms)
            .map_err(|text| Violation::new("expiry", text))?;
        let expected = self.oracle.read_only(request, *position, *now_ms);
        if expected.admits(outcome) {
            return optimistic::check(&self.oracle, request, *position, *now_ms, outcome)
                .map_err(|text| Violation::new("optimistic", text));
        }
        let text = format!(
            "{request:?} at the snapshot of {position:?} ended {outcome:?} and must end {expected:?}"
        );
        violation("serial", text)
    }

    /// What the specification says of each transaction that this partition answers, but for those that only
    /// loaded records and those that come again, from the first one after a position on.
    pub fn answers(&self, me: PartitionId, from: Position) -> impl Iterator<Item = &Outcome> {
        let ordered = self.confirmed.iter().enumerate().skip(from.0 as usize);
        ordered.filter_map(move |(place, ordered)| {
            let request = &ordered.request;
            if request.route.partitions.first() != Some(&me) || request.procedure.name() == LOAD {
                return None;
            }
            match self.oracle.expected(Position(place as u64 + 1))? {
                Expected::Outcome(outcome) if !matches!(outcome, Err(Stop::Undeclared(_))) => Some(outcome),
                _ => None,
            }
        })
    }

    /// Whether a replica has final-committed what it confirmed, each once.
    pub fn check_commits(&self, replica: &ReplicaWatch) -> Result<(), Violation> {
        if replica.committed == self.last().0 {
            return Ok(());
        }
        let text = format!(
            "a replica has final-committed {} transactions, and the order has {}",
            replica.committed,
            self.last()
        );
        violation("serial", text)
    }

    /// What a command that is sent now must at least see.
    pub fn invoked(&self) -> Position {
        self.reached
    }

    /// A command that was sent when `floor` was reached is answered.
    pub fn answered(&mut self, floor: Position, place: Place) -> Result<(), Violation> {
        let (right, reached) = match place {
            Place::At(position) => (position > floor, position),
            Place::Snapshot(position) => (position >= floor, position),
            Place::Nowhere => return Ok(()),
        };
        if !right {
            let text = format!(
                "a command was decided at {place:?}, but {floor:?} had been answered before it was sent"
            );
            return violation("real time", text);
        }
        self.reached = self.reached.max(reached);
        Ok(())
    }
}

/// Runs the specification as far as the orders of all partitions are known.
pub(super) fn advance(partitions: &mut [PartitionWatch]) -> Result<(), Violation> {
    let mut goes_on = true;
    while std::mem::take(&mut goes_on) {
        for at in 0..partitions.len() {
            while let Some(ordered) = partitions[at].next().cloned() {
                let (request, time_ms) = (&ordered.request, ordered.time_ms);
                if request.route.partitions.len() == 1 {
                    partitions[at].oracle.run(request, time_ms);
                } else if is_next_everywhere(partitions, &ordered)? {
                    run_everywhere(partitions, &ordered)?;
                } else {
                    break;
                }
                goes_on = true;
            }
        }
    }
    for watch in partitions.iter_mut() {
        let last = watch.oracle.last();
        let known = watch.pending.extract_if(.., |pending| pending.position() <= last);
        let known: Vec<Pending> = known.collect();
        for pending in &known {
            watch.judge_one(pending)?;
        }
    }
    Ok(())
}

/// Whether a transaction over several partitions is the next one at each of them.
fn is_next_everywhere(partitions: &[PartitionWatch], ordered: &Ordered) -> Result<bool, Violation> {
    for at in &ordered.request.route.partitions {
        let Some(next) = partitions[usize::from(at.0)].next() else {
            return Ok(false);
        };
        let (id, route) = (next.request.id, &next.request.route);
        // What nodes order themselves is told apart by its number at one partition only: one's expiry may
        // have that of a move.
        let is_another =
            id.session == SessionId::INTERNAL && route.partitions != ordered.request.route.partitions;
        if id != ordered.request.id || is_another {
            return Ok(false);
        }
        if !next.same(ordered) {
            let text = format!(
                "{:?} is in {:?} at {} ms at one of its partitions, and at {at} it is {:?} in {:?} at {} ms",
                ordered.request, ordered.epoch, ordered.time_ms, next.request, next.epoch, next.time_ms
            );
            return violation("agreement", text);
        }
    }
    Ok(true)
}

fn run_everywhere(partitions: &mut [PartitionWatch], ordered: &Ordered) -> Result<(), Violation> {
    let (request, time_ms) = (&ordered.request, ordered.time_ms);
    let route = &request.route;
    let numbered = partitions.iter_mut().enumerate();
    let numbered = numbered.map(|(at, watch)| (PartitionId(at as u16), &mut watch.oracle));
    let mut oracles: Vec<_> = numbered.filter(|(at, _)| route.partitions.contains(at)).collect();
    run_together(&mut oracles, request, time_ms);
    let first = route.partitions.first().copied().unwrap_or_default();
    let oracle = &partitions[usize::from(first.0)].oracle;
    let Some(Expected::Outcome(outcome)) = oracle.expected(oracle.last()) else {
        return Ok(());
    };
    let read = |key: &Key| {
        let keeper = route.slots.partition_of_key(key);
        let oracle = &partitions[usize::from(keeper.0)].oracle;
        oracle.read_at(key, oracle.last().prev())
    };
    optimistic::check_by(read, request, time_ms, outcome)
        .map_err(|text| Violation::new("optimistic", format!("{request:?}: {text}")))
}

/// Whether the specification could run everything: if not, the partitions' orders contradict each other.
pub(super) fn check_orders(partitions: &[PartitionWatch]) -> Result<(), Violation> {
    let next = partitions.iter().map(PartitionWatch::next);
    let stuck: Vec<_> = next.map(|next| next.map(|ordered| &ordered.request)).collect();
    if stuck.iter().all(Option::is_none) {
        return Ok(());
    }
    let text = format!("no transaction is the next one at all of its partitions: {stuck:?}");
    violation("agreement", text)
}
