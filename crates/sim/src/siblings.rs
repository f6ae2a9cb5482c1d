//! Several partitions on one thread: engines whose transactions have siblings, and a network between them that delays,
//! reorders and repeats what they say.
//!
//! One order of epochs is made for all; each partition is told of its part, arranged as [`order::arrange`] says, when the draw
//! likes: one may have final-committed an epoch that another has not heard of. Epochs are retracted before they are
//! confirmed, and then come with other transactions, or with the same. In the end everything must have final-committed, and each
//! sub-transaction must have answered what the serial execution of the one order says, at each of its partitions, and left its
//! state.

use crate::draw::{Draw, tracing};
use crate::oracle::{Expected, Oracle};
use execute::siblings::Message;
use execute::{Batch, Budget, Committed, Engine, Progress, WorkerId};
use order::arrange::{Placed, arrange, places};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use txn::hash::{hash_bytes, mix};
use txn::key::partition_of_slot;
use txn::{
    Args, Call, Epoch, FnProcedure, Intent, Key, Outcome, PartitionId, PartitionRoute, Position,
    Procedure, Reply, Request, RequestId, ScanRange, SessionId, Space, Stop, Tx,
};

/// Makes the engine of a partition for a number of workers.
pub type Factory<'a> = &'a dyn Fn(PartitionId, usize, &mut Draw) -> Arc<dyn Engine>;

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sub-transactions that were final-committed.
    pub committed: u64,
    /// Those that have siblings.
    pub shared: u64,
    /// Those that rolled back by their own logic.
    pub rolled_back: u64,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Epochs that were retracted.
    pub retractions: u64,
    /// Messages that were delivered.
    pub messages: u64,
    /// Steps of all workers.
    pub steps: u64,
    /// The hash of all events.
    pub digest: u64,
}

impl Report {
    /// Adds another run's.
    pub fn add(&mut self, other: &Report) {
        self.committed += other.committed;
        self.shared += other.shared;
        self.rolled_back += other.rolled_back;
        self.restarts += other.restarts;
        self.retractions += other.retractions;
        self.messages += other.messages;
        self.steps += other.steps;
        self.digest = mix(self.digest ^ other.digest);
    }
}

/// How many keys a partition has.
const KEYS: u64 = 4;

/// The keys of each partition.
fn keys(partitions: u16) -> Vec<Vec<Key>> {
    let mut keys = vec![Vec::new(); usize::from(partitions)];
    for number in 0.. {
        let key = Key::new(format!("key{number}").as_bytes());
        let place = &mut keys[usize::from(partition_of_slot(key.slot(), partitions).0)];
        if place.len() < KEYS as usize {
            place.push(key);
        }
        if keys.iter().all(|keys| keys.len() == KEYS as usize) {
            return keys;
        }
    }
    keys
}

/// A random transaction, which its seed decides: it reads and writes keys of its partitions, some of which depend on what
/// it has read, and answers with a digest of everything that it saw.
async fn wander(mut tx: Tx, call: Call) -> Outcome {
    let seed = u64::from_le_bytes(call[0].as_ref().try_into().unwrap_or_default());
    let mut draw = Draw::new(seed);
    let all = keys(call.request().route.of);
    let partitions = call.request().route.partitions.clone();
    let is_everywhere = partitions.len() == usize::from(call.request().route.of);
    // The places of a transaction differ from partition to partition; its seed must not, if it has siblings.
    let mut seen = match partitions.len() {
        1 => seed,
        _ => mix(seed ^ tx.seed()),
    };
    for _ in 0..draw.between(1, 6) {
        let at = &all[usize::from(partitions[draw.below(partitions.len() as u64) as usize].0)];
        let depends = if draw.percent(40) { seen } else { draw.bits() };
        let key = &at[(depends % KEYS) as usize];
        match draw.below(if is_everywhere { 40 } else { 32 }) {
            0..8 => {
                let value = tx.get(key).await?;
                seen = mix(seen ^ hash_bytes(format!("{value:?}").as_bytes()));
            }
            8..22 => {
                let intent = draw.pick(&[Intent::Read, Intent::Update, Intent::Update]);
                let entry = tx.read(key, intent).await?.entry;
                seen = mix(seen ^ hash_bytes(format!("{entry:?}").as_bytes()));
                tx.put(key, seen.to_string().as_bytes()).await?;
            }
            22..26 => tx.put(key, seen.to_string().as_bytes()).await?,
            26..29 => tx.delete(key).await?,
            29..32 => {
                if seen % 5 == 0 {
                    return Err(Stop::abort(format!("enough: {seen}")));
                }
            }
            32..35 => seen = mix(seen ^ tx.count().await?),
            35..38 => {
                let range = ScanRange {
                    space: Space::User,
                    from_hash: seen,
                    limit: draw.between(1, 9) as usize,
                };
                // Pages end where a partition's does; what there is in all of them does not depend on it.
                let mut next = Some(range.from_hash);
                while let Some(from_hash) = next {
                    let page = tx.scan(ScanRange { from_hash, ..range }).await?;
                    for (key, entry) in &page.entries {
                        let text = format!("{key:?} {:?}", entry.value);
                        seen = mix(seen ^ hash_bytes(text.as_bytes()));
                    }
                    next = page.next_hash;
                }
            }
            _ => tx.clear().await?,
        }
    }
    Ok(Reply::bulk(seen.to_string().as_bytes()))
}

/// What a partition is to be told, in order.
#[derive(Clone, Debug)]
enum Told {
    Deliver(usize, u64),
    Confirm(usize),
    Retract(usize),
}

/// One epoch of the order.
struct Planned {
    requests: Vec<Placed>,
    digest: u64,
    time_ms: u64,
}

/// A partition.
struct Partition {
    engine: Arc<dyn Engine>,
    workers: usize,
    /// What it has not been told yet.
    inbox: VecDeque<Told>,
    /// What it was delivered, by epoch, as it is now: the position after it.
    ends: BTreeMap<usize, Position>,
    requests: BTreeMap<Position, Arc<Request>>,
    outcomes: BTreeMap<Position, Outcome>,
}

impl Partition {
    fn next(&self) -> Position {
        self.ends
            .values()
            .last()
            .map_or(Position::FIRST, |end| *end)
    }
}

struct Run {
    draw: Draw,
    count: u16,
    partitions: Vec<Partition>,
    plan: Vec<Planned>,
    confirmed: usize,
    epochs: usize,
    sequence: u64,
    network: Vec<(usize, PartitionId, Message)>,
    /// Messages of 100 that are delivered twice.
    repeat_percent: u32,
    procedure: Arc<dyn Procedure>,
    report: Report,
}

impl Run {
    fn note(&mut self, what: u64, event: impl FnOnce() -> String) {
        self.report.digest = mix(self.report.digest ^ what);
        if tracing() {
            eprintln!("{}", event());
        }
    }

    /// Makes an epoch.
    fn make(&mut self) -> Planned {
        let of = self.count;
        let mut requests = Vec::new();
        for _ in 0..self.draw.below(10) {
            self.sequence += 1;
            let id = RequestId {
                session: SessionId(1 + self.draw.below(20)),
                sequence: self.sequence,
                attempt: 0,
            };
            let seed = self.draw.bits();
            let args = Args::one(&seed.to_le_bytes()[..]);
            let mut request = Request::new(id, self.procedure.clone(), args);
            let mut partitions = BTreeSet::new();
            let wanted = match self.draw.below(10) {
                0..4 => 1,
                4..9 => 2,
                _ => usize::from(of),
            };
            while partitions.len() < wanted.min(usize::from(of)) {
                partitions.insert(PartitionId(self.draw.below(u64::from(of)) as u16));
            }
            let home = PartitionId(self.draw.below(u64::from(of)) as u16);
            request.route = PartitionRoute {
                home,
                partitions: partitions.into_iter().collect(),
                of,
            };
            requests.push(Arc::new(request));
        }
        let before = self.plan.last();
        let time_ms = before.map_or(1_000, |epoch| epoch.time_ms) + self.draw.below(5);
        let places = places(requests.iter().map(|request| &**request));
        let placed = requests.into_iter().zip(places);
        let placed: Vec<Placed> = placed
            .map(|(request, place)| Placed { request, place })
            .collect();
        let digest = placed
            .iter()
            .fold(before.map_or(1, |epoch| epoch.digest), |digest, placed| {
                mix(digest ^ placed.request.id.sequence)
            });
        Planned {
            requests: placed,
            digest,
            time_ms,
        }
    }

    fn tell(&mut self, told: Told) {
        for partition in &mut self.partitions {
            partition.inbox.push_back(told.clone());
        }
    }

    /// Something happens to the order.
    fn order(&mut self) {
        let open = self.plan.len() - self.confirmed;
        match self.draw.below(10) {
            0..6 if self.plan.len() < self.epochs && open < 5 => {
                let planned = self.make();
                let digest = planned.digest;
                self.plan.push(planned);
                self.tell(Told::Deliver(self.plan.len() - 1, digest));
            }
            6..9 if open > 0 => {
                self.tell(Told::Confirm(self.confirmed));
                self.confirmed += 1;
            }
            9 if open > 0 => {
                let from = self.confirmed + self.draw.below(open as u64) as usize;
                self.report.retractions += 1;
                self.tell(Told::Retract(from));
                // Sometimes what was taken back comes again as it was.
                let again = self.draw.percent(40);
                let old = self.plan.split_off(from);
                for planned in old.into_iter().take_while(|_| again) {
                    let digest = planned.digest;
                    self.plan.push(planned);
                    self.tell(Told::Deliver(self.plan.len() - 1, digest));
                }
            }
            _ => {}
        }
    }

    /// A partition is told the next thing.
    fn told(&mut self, at: usize) {
        let Some(told) = self.partitions[at].inbox.front().cloned() else {
            return;
        };
        let me = PartitionId(at as u16);
        self.note(at as u64, || format!("{me}: {told:?}"));
        match told {
            Told::Deliver(epoch, digest) => {
                // It may have been taken back and planned anew since: then this one is retracted at once, unseen.
                let is_current = |planned: &&Planned| planned.digest == digest;
                let planned = self.plan.get(epoch).filter(is_current);
                let Some(planned) = planned else {
                    self.partitions[at].inbox.pop_front();
                    self.partitions[at].skip(epoch);
                    return;
                };
                let mine = planned.requests.iter().filter(|placed| {
                    let partitions = &placed.request.route.partitions;
                    partitions.contains(&me)
                });
                let arranged = arrange(mine.cloned().collect());
                let time_ms = planned.time_ms;
                let partition = &mut self.partitions[at];
                let first = partition.next();
                for (place, request) in arranged.requests.iter().enumerate() {
                    let position = first.advanced(place as u64);
                    partition.requests.insert(position, request.clone());
                }
                let end = first.advanced(arranged.requests.len() as u64);
                partition.ends.insert(epoch, end);
                partition.engine.deliver(Batch {
                    epoch: Epoch(epoch as u64 + 1),
                    time_ms,
                    first,
                    requests: arranged.requests,
                    groups: arranged.groups,
                    digest,
                });
            }
            Told::Confirm(epoch) => {
                let end = self.partitions[at].ends[&epoch];
                self.partitions[at].engine.confirm(end.prev());
            }
            Told::Retract(from) => {
                let partition = &mut self.partitions[at];
                partition.ends.split_off(&from);
                let first = partition.next();
                partition.requests.split_off(&first);
                partition.engine.retract(first);
                let behind = Epoch(0);
                // What came for the retracted epochs is lost, and they may come again as they were.
                for other in (0..self.partitions.len()).filter(|&other| other != at) {
                    let heard = self.partitions[at].engine.heard(PartitionId(other as u16));
                    self.partitions[other].engine.tell_again(me, behind, heard);
                    self.collect(other);
                }
            }
        }
        self.partitions[at].inbox.pop_front();
        self.collect(at);
    }

    /// Takes what a partition has to say into the network.
    fn collect(&mut self, at: usize) {
        for (to, message) in self.partitions[at].engine.messages() {
            self.network.push((at, to, message));
        }
    }

    fn carry(&mut self) {
        if self.network.is_empty() {
            return;
        }
        let place = self.draw.below(self.network.len() as u64) as usize;
        let (from, to, message) = match self.draw.percent(self.repeat_percent) {
            true => self.network[place].clone(),
            false => self.network.swap_remove(place),
        };
        self.report.messages += 1;
        self.note(place as u64, || format!("{from} to {to}: {message:?}"));
        let engine = &self.partitions[usize::from(to.0)].engine;
        engine.receive(PartitionId(from as u16), message);
        self.collect(usize::from(to.0));
    }

    fn step(&mut self) -> bool {
        let at = self.draw.below(self.partitions.len() as u64) as usize;
        let worker = self.draw.below(self.partitions[at].workers as u64) as usize;
        let operations = self.draw.pick(&[1, 1, 1, 3, 50]);
        let budget = Budget {
            operations,
            heavy: true,
        };
        let mut committed: Vec<Committed> = Vec::new();
        let engine = &self.partitions[at].engine;
        let progress = engine.step(WorkerId(worker), budget, &mut committed);
        self.report.steps += 1;
        for Committed {
            position,
            outcome,
            request,
        } in committed
        {
            self.note(position.0, || {
                format!("{at} {position}: {request:?}: {outcome:?}")
            });
            let again = self.partitions[at].outcomes.insert(position, outcome);
            assert!(again.is_none(), "{at} final-committed {position} twice");
        }
        self.collect(at);
        progress == Progress::Worked
    }

    fn is_over(&self) -> bool {
        let planned = self.confirmed == self.epochs;
        let mut partitions = self.partitions.iter();
        planned
            && partitions.all(|partition| {
                let status = partition.engine.status();
                partition.inbox.is_empty() && status.final_committed == partition.next().prev()
            })
    }

    fn check(&mut self) -> Result<(), String> {
        let mut oracle = Oracle::new();
        let mut expected: BTreeMap<u64, Expected> = BTreeMap::new();
        let mut next = vec![Position::FIRST; self.partitions.len()];
        for (epoch, planned) in self.plan.iter().enumerate() {
            // Any sequence that all partitions' orders allow.
            loop {
                let heads: Vec<_> = self
                    .partitions
                    .iter()
                    .zip(&next)
                    .map(|(partition, next)| {
                        let is_left = *next < partition.ends[&epoch];
                        partition.requests.get(next).filter(|_| is_left)
                    })
                    .collect();
                let is_first = |request: &&Arc<Request>| {
                    let mut partitions = request.route.partitions.iter();
                    partitions.all(|at| {
                        let head = heads[usize::from(at.0)];
                        head.is_some_and(|head| head.id == request.id)
                    })
                };
                let Some(request) = heads.iter().flatten().copied().find(is_first).cloned() else {
                    if heads.iter().any(Option::is_some) {
                        return Err(format!(
                            "the orders of epoch {epoch} are a circle: {heads:?}"
                        ));
                    }
                    break;
                };
                for at in &request.route.partitions {
                    let next = &mut next[usize::from(at.0)];
                    *next = next.next();
                }
                oracle.run(&request, planned.time_ms);
                let ends = oracle.expected(oracle.last()).cloned();
                expected.extend(ends.map(|ends| (request.id.sequence, ends)));
            }
        }
        for (at, partition) in self.partitions.iter().enumerate() {
            for (position, request) in &partition.requests {
                let outcome = partition.outcomes.get(position);
                let wanted = expected.get(&request.id.sequence);
                let admits =
                    |wanted: &Expected| outcome.is_some_and(|outcome| wanted.admits(outcome));
                if !wanted.is_some_and(admits) {
                    return Err(format!(
                        "partition {at}, {position}: {request:?} of {:?} ended with {outcome:?}, and should have with {wanted:?}",
                        request.route.partitions
                    ));
                }
                self.report.committed += 1;
                self.report.shared += u64::from(request.route.partitions.len() > 1);
                self.report.rolled_back += u64::from(outcome.is_some_and(Result::is_err));
            }
            self.report.restarts += partition.engine.status().restarts;
        }
        for (at, keys) in keys(self.count).iter().enumerate() {
            let view = self.partitions[at].engine.view();
            let snapshot = view.open();
            for key in keys {
                let found = view.read_at(&snapshot, key).entry;
                let wanted = oracle.read_at(key, oracle.last()).entry;
                if found != wanted {
                    return Err(format!("{key:?} is {found:?} and should be {wanted:?}"));
                }
            }
            view.close(snapshot);
        }
        Ok(())
    }
}

impl Partition {
    /// An epoch that was taken back before it was heard of: nothing of it.
    fn skip(&mut self, epoch: usize) {
        let end = self.next();
        self.ends.insert(epoch, end);
    }
}

/// Runs a seed.
///
/// # Errors
/// What is wrong, with the seed.
pub fn run(make: Factory<'_>, seed: u64, epochs: usize) -> Result<Report, String> {
    let mut draw = Draw::new(seed);
    let count = draw.between(2, 4) as u16;
    let partitions = (0..count).map(|at| {
        let workers = draw.between(1, 3) as usize;
        Partition {
            engine: make(PartitionId(at), workers, &mut draw),
            workers,
            inbox: VecDeque::new(),
            ends: BTreeMap::new(),
            requests: BTreeMap::new(),
            outcomes: BTreeMap::new(),
        }
    });
    let partitions = partitions.collect();
    let order_permille = draw.pick(&[5, 20, 100]);
    let told_permille = draw.pick(&[10, 50, 200]);
    let network_permille = draw.pick(&[10, 100, 400]);
    let mut run = Run {
        repeat_percent: draw.pick(&[0, 0, 20]),
        draw,
        count,
        partitions,
        plan: Vec::new(),
        confirmed: 0,
        epochs,
        sequence: 0,
        network: Vec::new(),
        procedure: Arc::new(FnProcedure::new("wander", wander)),
        report: Report::default(),
    };
    let bound = 40_000 * epochs as u64;
    for _ in 0..bound {
        if run.is_over() {
            return run
                .check()
                .map(|()| run.report)
                .map_err(|wrong| format!("seed {seed}: {wrong}"));
        }
        let dice = run.draw.below(1000);
        if dice < order_permille {
            run.order();
        } else if dice < order_permille + told_permille {
            let at = run.draw.below(u64::from(count)) as usize;
            run.told(at);
        } else if dice < order_permille + told_permille + network_permille {
            run.carry();
        } else {
            run.step();
        }
    }
    let heads = run.partitions.iter().map(|partition| {
        let head = partition.engine.status().final_committed.next();
        let request = partition.requests.get(&head);
        let told = partition.inbox.len();
        format!(
            "{head}: {request:?} of {:?}, {told} words of the order not heard",
            request.map(|request| &request.route.partitions)
        )
    });
    let heads: Vec<_> = heads.collect();
    let left = run.network.len();
    Err(format!(
        "seed {seed}: not over after {bound} turns, with {left} messages under way: {heads:#?}"
    ))
}
