//! Several partitions on one thread: engines whose transactions have siblings, and a network between them
//! that delays, reorders and repeats what they say.
//!
//! One order of epochs is made for all; each partition is told of its part, arranged as [`order::arrange`]
//! says, when the draw likes: one may have final-committed an epoch that another has not heard of. Epochs are
//! retracted before they are confirmed, and then come with other transactions, or with the same. A
//! partition's process ends, and its successor executes again what is behind its checkpoint. In the end
//! everything must have final-committed, and each sub-transaction must have answered what the serial
//! execution of the one order says, at each of its partitions, and left its state.
//!
//! Some transactions touch a partition that they have not named, or (where engines want to know the keys
//! before) keys that reconnaissance did not find. They must end with `Undeclared` at all of their partitions,
//! leave nothing, and come again.

mod program;
mod threads;

pub use threads::run_on_threads;

use crate::draw::{Draw, tracing};
use crate::fragments::{self, Mix};
use crate::oracle::{Expected, Oracle};
use execute::calvin::reconnoitre;
use execute::siblings::Message;
use execute::{Budget, Committed, Engine, Progress, Siblings, WorkerId};
use order::arrange::{Arranged, Placed, Scheduling, arrange_all, places};
use program::{is_declared, keys, wander, wanted};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use store::{Image, View};
use txn::hash::mix;
use txn::{
    Args, Batch, Epoch, FnProcedure, Key, Outcome, PartitionId, PartitionRoute, Position, Procedure, Request,
    RequestId, SessionId, Slots, Space, Stop, Weight,
};

/// Where an engine is to work.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its partition.
    pub partition: PartitionId,
    /// Its workers.
    pub workers: usize,
    /// Counts the partition's processes from 0.
    pub boot: u64,
}

/// Makes an engine.
pub type Factory<'a> = &'a dyn Fn(Place, &mut Draw) -> Arc<dyn Engine>;

/// Which engines a run is about.
#[derive(Clone, Copy)]
pub struct World<'a> {
    /// Makes them.
    pub make: Factory<'a>,
    /// They lock what requests name: most requests name what reconnaissance finds, and are judged by it.
    pub names_keys: bool,
    /// Processes end, and others take their places.
    pub crashes: bool,
}

/// What a run was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Sub-transactions that were final-committed.
    pub committed: u64,
    /// Those that have siblings.
    pub shared: u64,
    /// Those of which a partition executed nothing but its own fragments.
    pub split: u64,
    /// Those that rolled back by their own logic.
    pub rolled_back: u64,
    /// Incarnations that were thrown away.
    pub restarts: u64,
    /// Epochs that were retracted.
    pub retractions: u64,
    /// Transactions that touched what they had not named.
    pub undeclared: u64,
    /// Processes that ended.
    pub crashes: u64,
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
        self.split += other.split;
        self.rolled_back += other.rolled_back;
        self.restarts += other.restarts;
        self.retractions += other.retractions;
        self.undeclared += other.undeclared;
        self.crashes += other.crashes;
        self.messages += other.messages;
        self.steps += other.steps;
        self.digest = mix(self.digest ^ other.digest);
    }
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
    /// By partition.
    arranged: Vec<Arranged>,
    digest: u64,
    time_ms: u64,
}

/// A partition.
struct Partition {
    engine: Arc<dyn Engine>,
    place: Place,
    /// What it has not been told yet.
    inbox: VecDeque<Told>,
    /// What it was delivered, by epoch, as it is now: the position after it.
    ends: BTreeMap<usize, Position>,
    /// The same, as far as it is behind all checkpoints: what the next process executes again.
    batches: BTreeMap<usize, Batch>,
    /// How many epochs it knows to be confirmed.
    confirmed: usize,
    checkpoints: BTreeMap<usize, Checkpoint>,
    requests: BTreeMap<Position, Arc<Request>>,
    outcomes: BTreeMap<Position, Outcome>,
    /// What it has no outcome of: it executed its own fragments only.
    parts: BTreeSet<Position>,
    /// What this process has final-committed.
    ended: BTreeSet<Position>,
    /// Incarnations that earlier processes threw away.
    restarts: u64,
}

/// A partition's state behind an epoch.
struct Checkpoint {
    position: Position,
    time_ms: u64,
    images: Vec<Image>,
    clears: Vec<Position>,
}

impl Checkpoint {
    fn of(view: &dyn View) -> Checkpoint {
        let snapshot = view.open();
        let mut images = Vec::new();
        let _ = view.images_at(&snapshot, 0, usize::MAX, &mut images);
        let clears = view.clears_at(&snapshot);
        let (position, time_ms) = (snapshot.position, snapshot.time_ms);
        view.close(snapshot);
        Checkpoint { position, time_ms, images, clears }
    }
}

/// The number of the epoch at this place of the plan.
fn epoch_of(place: usize) -> Epoch {
    Epoch(place as u64 + 1)
}

impl Partition {
    fn next(&self) -> Position {
        self.ends.values().last().map_or(Position::FIRST, |end| *end)
    }
}

struct Run<'a> {
    world: World<'a>,
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
    /// Requests of 100 that are declared as fragments.
    fragments_percent: u32,
    procedure: Arc<dyn Procedure>,
    /// Transactions that are to come again.
    again: Vec<Request>,
    scheduling: Scheduling,
    report: Report,
}

impl<'a> Run<'a> {
    fn new(world: World<'a>, seed: u64, epochs: usize) -> Run<'a> {
        let mut draw = Draw::new(seed);
        let count = draw.between(2, 4) as u16;
        let partitions = (0..count).map(|at| {
            let place = Place { partition: PartitionId(at), workers: draw.between(1, 3) as usize, boot: 0 };
            Partition {
                engine: (world.make)(place, &mut draw),
                place,
                inbox: VecDeque::new(),
                ends: BTreeMap::new(),
                batches: BTreeMap::new(),
                confirmed: 0,
                checkpoints: BTreeMap::new(),
                requests: BTreeMap::new(),
                outcomes: BTreeMap::new(),
                parts: BTreeSet::new(),
                ended: BTreeSet::new(),
                restarts: 0,
            }
        });
        let partitions = partitions.collect();
        let scheduling = match draw.percent(30) {
            true => Scheduling::Merged,
            false => Scheduling::Grouped,
        };
        Run {
            world,
            repeat_percent: draw.pick(&[0, 0, 20]),
            fragments_percent: draw.pick(&[0, 20, 60]),
            draw,
            count,
            partitions,
            plan: Vec::new(),
            confirmed: 0,
            epochs,
            sequence: 0,
            network: Vec::new(),
            procedure: Arc::new(FnProcedure::new("wander", wander)),
            again: Vec::new(),
            scheduling,
            report: Report::default(),
        }
    }

    fn note(&mut self, what: u64, event: impl FnOnce() -> String) {
        self.report.digest = mix(self.report.digest ^ what);
        if tracing() {
            eprintln!("{}", event());
        }
    }

    /// Makes an epoch.
    fn make(&mut self) -> Planned {
        let of = self.count;
        let before = self.plan.last();
        let time_ms = before.map_or(1_000, |epoch| epoch.time_ms) + self.draw.below(5);
        let mut requests = Vec::new();
        for mut request in std::mem::take(&mut self.again) {
            request.id.attempt += 1;
            request.route.partitions = PartitionRoute::everywhere(&Slots::even(of)).partitions;
            self.scout(&mut request, time_ms);
            requests.push(Arc::new(request));
        }
        for _ in 0..self.draw.below(10) {
            self.sequence += 1;
            let id = RequestId {
                session: SessionId(1 + self.draw.below(20)),
                sequence: self.sequence,
                attempt: 0,
            };
            let seed = self.draw.bits();
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
            let are_fragments = self.draw.percent(self.fragments_percent);
            let (procedure, args) = if are_fragments {
                self.fragments(&partitions)
            } else {
                let numbers = partitions.iter().flat_map(|at| at.0.to_le_bytes());
                let numbers: Vec<u8> = numbers.collect();
                let args = [&seed.to_le_bytes()[..], &numbers].into_iter().collect();
                (self.procedure.clone(), args)
            };
            let mut request = Request::new(id, procedure, args);
            request.route =
                PartitionRoute { home, partitions: partitions.into_iter().collect(), slots: Slots::even(of) };
            if !are_fragments {
                self.scout(&mut request, time_ms);
            }
            requests.push(Arc::new(request));
        }
        let before = self.plan.last();
        let places = places(requests.iter().map(|request| &**request));
        let placed = requests.into_iter().zip(places);
        let placed: Vec<Placed> = placed.map(|(request, place)| Placed { request, place }).collect();
        let digest = placed.iter().fold(before.map_or(1, |epoch| epoch.digest), |digest, placed| {
            let id = placed.request.id;
            mix(digest ^ id.sequence ^ u64::from(id.attempt).rotate_left(32))
        });
        Planned { arranged: arrange_all(&placed, of, self.scheduling), digest, time_ms }
    }

    /// A call of fragments over some keys of each partition; rarely of all but one.
    fn fragments(&mut self, partitions: &BTreeSet<PartitionId>) -> (Arc<dyn Procedure>, Args) {
        let all = keys(self.count);
        let mut chosen: Vec<&Key> = Vec::new();
        for at in partitions.iter().skip(usize::from(self.draw.percent(5))) {
            for key in &all[usize::from(at.0)] {
                if chosen.is_empty() || self.draw.percent(40) {
                    chosen.push(key);
                }
            }
        }
        let mix = if self.draw.percent(80) { Mix::Independent } else { Mix::Named };
        fragments::call(chosen, mix, &mut self.draw)
    }

    /// Most requests name what reconnaissance finds now, where engines want to know.
    fn scout(&mut self, request: &mut Request, time_ms: u64) {
        if !self.world.names_keys || self.draw.percent(25) {
            return;
        }
        let partitions = self.partitions.iter();
        let engines: Vec<_> = partitions.map(|partition| partition.engine.clone()).collect();
        let found = reconnoitre(&engines, &Arc::new(request.clone()), time_ms);
        request.footprint = found.footprint;
        // What it says of itself stays the same: whether it has siblings decides what it draws its keys from.
        let wanted = wanted(&request.args);
        let mut all: BTreeSet<_> = found.partitions.iter().copied().collect();
        if all.len().min(2) != wanted.len().min(2) || self.draw.percent(50) {
            all.extend(wanted);
        }
        request.route.partitions = all.into_iter().collect();
    }

    /// The process of a partition ends. The next one loads a checkpoint, is told again what was behind it,
    /// and asks the others what they have said; and they ask it.
    fn crash(&mut self, at: usize) {
        let common = self.common();
        let partition = &mut self.partitions[at];
        partition.restarts += partition.engine.status().restarts;
        partition.place.boot += 1;
        partition.engine = (self.world.make)(partition.place, &mut self.draw);
        partition.ended.clear();
        let mut behind = Epoch(0);
        if let Some(common) = common
            && let Some(checkpoint) = partition.checkpoints.get(&common)
        {
            let view = partition.engine.view();
            checkpoint.images.iter().for_each(|image| view.load(image.clone()));
            view.loaded(checkpoint.position, checkpoint.time_ms, &checkpoint.clears);
            behind = epoch_of(common);
        }
        for batch in partition.batches.values() {
            partition.engine.deliver(batch.clone());
        }
        if let Some(last) = partition.confirmed.checked_sub(1) {
            partition.engine.confirm(partition.ends[&last].prev());
        }
        self.report.crashes += 1;
        self.note(at as u64, || format!("{at} starts again behind {behind:?}"));
        self.say_again(at, behind);
        for other in (0..self.partitions.len()).filter(|&other| other != at) {
            self.say_again_to(other, at, Epoch(0));
        }
    }

    /// All others say again what a partition may have lost.
    fn say_again(&mut self, at: usize, behind: Epoch) {
        for other in (0..self.partitions.len()).filter(|&other| other != at) {
            self.say_again_to(at, other, behind);
        }
    }

    /// One partition says again what another one may have lost, or has from another process.
    fn say_again_to(&mut self, to: usize, from: usize, behind: Epoch) {
        let heard = siblings_of(&*self.partitions[to].engine).heard(PartitionId(from as u16));
        siblings_of(&*self.partitions[from].engine).tell_again(PartitionId(to as u16), behind, heard);
        self.collect(from);
    }

    /// A partition writes a checkpoint, if it stands behind an epoch. What is before the newest one that all
    /// have is forgotten: whoever starts again starts there, because all others must still know what was read
    /// since.
    fn save(&mut self, at: usize) {
        let partition = &mut self.partitions[at];
        let next = partition.engine.status().final_committed.next();
        let confirmed = partition.confirmed;
        let ends = partition.ends.iter();
        let is_behind = |(epoch, end): &(&usize, &Position)| **end == next && **epoch < confirmed;
        // Behind several, where the later ones have nothing for this partition.
        for (&epoch, _) in ends.filter(is_behind) {
            let engine = &partition.engine;
            let saved = partition.checkpoints.entry(epoch);
            saved.or_insert_with(|| Checkpoint::of(engine.view()));
        }
        let Some(common) = self.common() else { return };
        for partition in &mut self.partitions {
            siblings_of(&*partition.engine).forget(epoch_of(common));
            partition.batches.retain(|epoch, _| *epoch > common);
            partition.checkpoints.retain(|epoch, _| *epoch >= common);
        }
    }

    /// The newest epoch of which all have a checkpoint.
    fn common(&self) -> Option<usize> {
        let (first, others) = self.partitions.split_first()?;
        let mut epochs = first.checkpoints.keys().rev().copied();
        epochs.find(|epoch| {
            let mut others = others.iter();
            others.all(|other| other.checkpoints.contains_key(epoch))
        })
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
                // It may have been taken back and planned anew since: then this one is retracted at once,
                // unseen.
                let is_current = |planned: &&Planned| planned.digest == digest;
                let planned = self.plan.get(epoch).filter(is_current);
                let Some(planned) = planned else {
                    self.partitions[at].inbox.pop_front();
                    self.partitions[at].skip(epoch);
                    return;
                };
                let mut arranged = planned.arranged[at].clone();
                let time_ms = planned.time_ms;
                // How heavy a request is, each process finds out for itself.
                for request in &mut arranged.requests {
                    if self.draw.percent(10) {
                        Arc::make_mut(request).footprint.weight = Weight::Heavy;
                    }
                }
                let partition = &mut self.partitions[at];
                let first = partition.next();
                for (place, request) in arranged.requests.iter().enumerate() {
                    let position = first.advanced(place as u64);
                    partition.requests.insert(position, request.clone());
                }
                let end = first.advanced(arranged.requests.len() as u64);
                partition.ends.insert(epoch, end);
                let batch = Batch {
                    epoch: epoch_of(epoch),
                    time_ms,
                    first,
                    requests: arranged.requests,
                    groups: arranged.groups,
                    digest,
                };
                partition.batches.insert(epoch, batch.clone());
                partition.engine.deliver(batch);
            }
            Told::Confirm(epoch) => {
                let partition = &mut self.partitions[at];
                partition.confirmed = epoch + 1;
                partition.engine.confirm(partition.ends[&epoch].prev());
            }
            Told::Retract(from) => {
                let partition = &mut self.partitions[at];
                partition.ends.split_off(&from);
                partition.batches.split_off(&from);
                let first = partition.next();
                partition.requests.split_off(&first);
                partition.engine.retract(first);
                // What came for the retracted epochs is lost, and they may come again as they were.
                self.say_again(at, Epoch(0));
            }
        }
        self.partitions[at].inbox.pop_front();
        self.collect(at);
    }

    /// Takes what a partition has to say into the network.
    fn collect(&mut self, at: usize) {
        for (to, message) in siblings_of(&*self.partitions[at].engine).messages() {
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
        siblings_of(&*self.partitions[usize::from(to.0)].engine).receive(PartitionId(from as u16), message);
        self.collect(usize::from(to.0));
    }

    fn step(&mut self) -> bool {
        let at = self.draw.below(self.partitions.len() as u64) as usize;
        let worker = self.draw.below(self.partitions[at].place.workers as u64) as usize;
        let operations = self.draw.pick(&[1, 1, 1, 3, 50]);
        let budget = Budget { operations, heavy: true };
        let mut committed: Vec<Committed> = Vec::new();
        let engine = &self.partitions[at].engine;
        let progress = engine.step(WorkerId(worker), budget, &mut committed);
        self.report.steps += 1;
        self.ended(at, committed);
        if self.world.crashes {
            self.save(at);
        }
        self.collect(at);
        progress == Progress::Worked
    }

    /// A partition has final-committed something.
    fn ended(&mut self, at: usize, committed: Vec<Committed>) {
        for Committed { position, outcome, request, is_split, .. } in committed {
            self.note(position.0, || format!("{at} {position}: {request:?}: {outcome:?}"));
            let is_undeclared = matches!(outcome, Err(Stop::Undeclared(_)));
            let partition = &mut self.partitions[at];
            let is_new = partition.ended.insert(position);
            assert!(is_new, "{at} final-committed {position} twice");
            if is_split && request.route.partitions.first() != Some(&PartitionId(at as u16)) {
                partition.parts.insert(position);
                continue;
            }
            let before = partition.outcomes.insert(position, outcome.clone());
            let is_first = before.is_none();
            assert!(
                before.is_none_or(|before| before == outcome),
                "{at} ended {position} otherwise when it executed it again"
            );
            if is_undeclared && is_first && at == usize::from(request.route.partitions[0].0) {
                self.again.push((*request).clone());
            }
        }
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
        let mut expected: BTreeMap<RequestId, Expected> = BTreeMap::new();
        for (epoch, planned) in self.plan.iter().enumerate() {
            let parts = planned.arranged.iter().map(|part| &part.requests[..]);
            let parts: Vec<_> = parts.collect();
            let serial = serialized(&parts).map_err(|wrong| format!("epoch {epoch}: {wrong}"))?;
            for request in serial {
                let touched = oracle.touched(&request, planned.time_ms);
                if is_declared(&request, &touched) {
                    oracle.run(&request, planned.time_ms);
                } else {
                    oracle.refuse(Stop::Undeclared(None), planned.time_ms);
                    self.report.undeclared += 1;
                }
                let ends = oracle.expected(oracle.last()).cloned();
                expected.extend(ends.map(|ends| (request.id, ends)));
            }
        }
        let mut strays: BTreeMap<RequestId, &Outcome> = BTreeMap::new();
        for (at, partition) in self.partitions.iter().enumerate() {
            for (position, request) in &partition.requests {
                if partition.parts.contains(position) {
                    self.report.split += 1;
                    continue;
                }
                let outcome = partition.outcomes.get(position);
                let wanted = expected.get(&request.id);
                // What was missing the specification does not say: all that execute it must say the same.
                let strayed = outcome.filter(|outcome| matches!(outcome, Err(Stop::Undeclared(_))));
                let told = strayed.map(|strayed| strays.entry(request.id).or_insert(strayed));
                let wanted = match wanted {
                    Some(Expected::Outcome(Err(Stop::Undeclared(_)))) => {
                        told.map(|told| Expected::Outcome((*told).clone()))
                    }
                    wanted => wanted.cloned(),
                };
                let admits = |wanted: &Expected| outcome.is_some_and(|outcome| wanted.admits(outcome));
                if !wanted.as_ref().is_some_and(admits) {
                    return Err(format!(
                        "partition {at}, {position}: {request:?} of {:?} ended with {outcome:?}, and \
                         should have with {wanted:?}",
                        request.route.partitions
                    ));
                }
                self.report.committed += 1;
                self.report.shared += u64::from(request.route.partitions.len() > 1);
                self.report.rolled_back += u64::from(outcome.is_some_and(Result::is_err));
            }
            let restarts = partition.engine.status().restarts;
            self.report.restarts += partition.restarts + restarts;
        }
        let mut entries = 0;
        for (at, keys) in keys(self.count).iter().enumerate() {
            let view = self.partitions[at].engine.view();
            let snapshot = view.open();
            entries += view.count_at(&snapshot);
            for key in keys {
                let found = view.read_at(&snapshot, key).entry;
                let wanted = oracle.read_at(key, oracle.last()).entry;
                if found != wanted {
                    return Err(format!("{key:?} is {found:?} and should be {wanted:?}"));
                }
            }
            view.close(snapshot);
        }
        let listed = oracle.list_at(Space::User, oracle.last()).len() as u64;
        match entries == listed {
            true => Ok(()),
            false => Err(format!("{entries} entries are counted, and there are {listed}")),
        }
    }
}

impl Partition {
    /// An epoch that was taken back before it was heard of: nothing of it.
    fn skip(&mut self, epoch: usize) {
        let end = self.next();
        self.ends.insert(epoch, end);
    }
}

/// A sequence that all partitions' orders of an epoch allow, each given by its requests.
///
/// # Errors
/// The orders are a circle.
pub fn serialized(parts: &[&[Arc<Request>]]) -> Result<Vec<Arc<Request>>, String> {
    let mut next = vec![0; parts.len()];
    let mut serial = Vec::new();
    loop {
        let head = |at: usize| parts[at].get(next[at]);
        let is_first = |request: &&Arc<Request>| {
            let mut partitions = request.route.partitions.iter();
            partitions.all(|at| head(usize::from(at.0)).is_some_and(|head| head.id == request.id))
        };
        let mut heads = (0..parts.len()).filter_map(head);
        let Some(request) = heads.find(is_first).cloned() else {
            let heads: Vec<_> = (0..parts.len()).filter_map(head).collect();
            return match heads.is_empty() {
                true => Ok(serial),
                false => Err(format!("the orders are a circle: {heads:?}")),
            };
        };
        for at in &request.route.partitions {
            next[usize::from(at.0)] += 1;
        }
        serial.push(request);
    }
}

/// Runs a seed.
///
/// # Errors
/// What is wrong, with the seed.
pub fn run(world: World<'_>, seed: u64, epochs: usize) -> Result<Report, String> {
    let mut run = Run::new(world, seed, epochs);
    let count = u64::from(run.count);
    let order_permille = run.draw.pick(&[5, 20, 100]);
    let told_permille = run.draw.pick(&[10, 50, 200]);
    let network_permille = run.draw.pick(&[10, 100, 400]);
    // Each run has no crashes, or a few.
    let mut crashes_left = match world.crashes {
        true => run.draw.pick(&[0, 1, 3]),
        false => 0,
    };
    let bound = 40_000 * epochs as u64;
    for _ in 0..bound {
        if run.is_over() {
            return run.check().map(|()| run.report).map_err(|wrong| format!("seed {seed}: {wrong}"));
        }
        let dice = run.draw.below(1000);
        if dice < order_permille {
            run.order();
        } else if dice < order_permille + told_permille {
            let at = run.draw.below(count) as usize;
            if crashes_left > 0 && run.draw.percent(2) {
                crashes_left -= 1;
                run.crash(at);
            }
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
    Err(format!("seed {seed}: not over after {bound} turns, with {left} messages under way: {heads:#?}"))
}

fn siblings_of(engine: &dyn Engine) -> &dyn Siblings {
    engine.siblings().expect("it spans partitions")
}
