//! The model: partitions that run sub-transactions, and a network between them.
//!
//! What is real here is [`Exchange`]; the concurrency control of a partition is reduced to what matters to
//! it. Each step is one read, one speculative commit, one final commit, the delivery of one message, or a
//! crash. A transaction reads the newest version before its place; whoever installs a version aborts those
//! after it who missed it, and whoever is undone aborts those who had read its versions. Messages are a set:
//! they may be delivered in any order.

use ordo_execute::siblings::{AbortNumber, Basis, Exchange, Heard};
use stateright::{Model, Property};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::PartitionId;
use txn::mutant::{self, Mutant, is_active};

/// The era in which all replicas begin.
const ERA: u64 = 5;

/// A transaction's number in the scenario: its place in the order of all.
pub type Number = usize;
/// A key: its partition, and which one there.
pub type Key = (u16, u8);

/// A key that a program names.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// This one.
    Fixed(u16, u8),
    /// Of this partition, the one that the last value says: there are two.
    Dependent(u16),
}

/// What a transaction does: it reads, and then writes something that depends on all that it has read.
#[derive(Clone, Debug)]
pub struct Program {
    pub partitions: Vec<u16>,
    pub reads: Vec<Named>,
    pub writes: Vec<Named>,
}

fn resolve(named: Named, read: &[u8]) -> Key {
    match named {
        Named::Fixed(partition, key) => (partition, key),
        Named::Dependent(partition) => (partition, read.last().copied().unwrap_or(0) % 2),
    }
}

impl Program {
    fn written(&self, number: Number, read: &[u8]) -> Vec<(Key, u8)> {
        let mix = |mixed: u8, value: &u8| mixed.wrapping_mul(7).wrapping_add(*value) ^ 0x15;
        let value = read.iter().fold(number as u8 + 1, mix);
        let keys = self.writes.iter().map(|&named| resolve(named, read));
        keys.map(|key| (key, value)).collect()
    }
}

/// What may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Failure {
    #[default]
    Nothing,
    /// This partition's replica may crash at any time, once; a new process replays everything.
    Crash(u16),
    /// It may crash for good; its siblings get its final reads from another zone.
    Loss(u16),
}

/// What is searched.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub programs: Vec<Program>,
    /// Whether speculative commits are confirmed (else only anchors are said).
    pub speculative: bool,
    /// Whether messages from one partition to another arrive in the order in which they were sent.
    pub in_order: bool,
    pub failure: Failure,
    pub mutant: Option<Mutant>,
    serial: Vec<Run>,
}

/// What a transaction reads and writes.
type Run = (Vec<u8>, Vec<(Key, u8)>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Running,
    Executed,
    Final,
}

/// A sub-transaction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sub {
    state: State,
    /// What this run has read, siblings' values included.
    read: Vec<u8>,
    /// What it wrote, all partitions.
    written: Vec<(Key, u8)>,
    /// Which version it read of which local key (a transaction's number plus one; 0 is what was there first).
    dependencies: BTreeSet<(Key, usize)>,
    exchange: Exchange<Key, u8>,
    /// The later ones of its group that runs of it aborted.
    raised: BTreeSet<Number>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Replica {
    /// `None` where the transaction has no part. By number.
    subs: Vec<Option<Arc<Sub>>>,
    /// Nothing before this number is missing a final commit.
    head: Number,
    era: u64,
    lost: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Words {
    Read(AbortNumber, Vec<(Key, u8)>),
    Anchor(Vec<(Number, AbortNumber)>),
    Confirmation(Basis, Vec<(Number, AbortNumber)>),
    Final(Vec<(Key, u8)>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    from: u16,
    to: u16,
    about: Number,
    words: Words,
}

impl Message {
    fn channel(&self) -> (u16, u16) {
        (self.from, self.to)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    replicas: Vec<Replica>,
    /// Sorted by sender and receiver, and then as they were sent or, if that does not matter, wholly.
    network: Vec<Message>,
    crashed: bool,
    /// A final-committed transaction was aborted.
    broken: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Step(u16, Number),
    FinalCommit(u16),
    /// The message at this place of the network.
    Deliver(usize),
    Crash(u16),
}

/// The name of what some schedule must come to.
pub const GOAL: &str = "all final-commit";

/// More aborts of one sub-transaction than any schedule needs.
const ABORTS_MAX: u32 = 12;

impl Scenario {
    fn replicas(&self) -> u16 {
        let partitions = self.programs.iter().flat_map(|program| &program.partitions);
        partitions.max().map_or(0, |last| last + 1)
    }

    fn new_subs(&self, partition: u16, era: u64) -> Vec<Option<Arc<Sub>>> {
        let sub = |program: &Program| {
            let involved: Vec<_> = program.partitions.iter().copied().map(PartitionId).collect();
            let has_part = program.partitions.contains(&partition);
            has_part.then(|| {
                Arc::new(Sub {
                    state: State::Running,
                    read: Vec::new(),
                    written: Vec::new(),
                    dependencies: BTreeSet::new(),
                    exchange: Exchange::new(PartitionId(partition), &involved, era),
                    raised: BTreeSet::new(),
                })
            })
        };
        self.programs.iter().map(sub).collect()
    }

    pub fn new(programs: Vec<Program>) -> Scenario {
        Scenario {
            serial: serial(&programs),
            programs,
            speculative: true,
            in_order: false,
            failure: Failure::Nothing,
            mutant: None,
        }
    }

    /// The transaction before this one in its group at every one of its partitions.
    fn previous(&self, partition: u16, number: Number) -> Option<Number> {
        let mine = &self.programs[number].partitions;
        let mut before = (0..number).rev();
        let last = before.find(|&other| self.programs[other].partitions.contains(&partition))?;
        let same = |other: &Number| self.programs[*other].partitions == *mine && mine.len() > 1;
        // Groups are the same at all partitions: nothing of another group is in between anywhere.
        let alone = |other: Number| {
            (other + 1..number).all(|between| {
                let partitions = &self.programs[between].partitions;
                !partitions.iter().any(|partition| mine.contains(partition))
            })
        };
        Some(last).filter(same).filter(|&other| alone(other))
    }

    /// The later members of a transaction's group.
    fn followers(&self, partition: u16, number: Number) -> Vec<Number> {
        let mut followers = vec![number];
        for later in number + 1..self.programs.len() {
            let mine = self.programs[later].partitions.contains(&partition);
            if mine && self.previous(partition, later) == followers.last().copied() {
                followers.push(later);
            }
        }
        followers.split_off(1)
    }

    fn siblings(&self, partition: u16, number: Number) -> impl Iterator<Item = u16> {
        let partitions = self.programs[number].partitions.iter().copied();
        partitions.filter(move |&other| other != partition)
    }
}

/// What every transaction reads and writes if they run one after the other.
fn serial(programs: &[Program]) -> Vec<Run> {
    let mut store = BTreeMap::new();
    let run = |(number, program): (Number, &Program)| {
        let mut read = Vec::new();
        for &named in &program.reads {
            let key = resolve(named, &read);
            read.push(store.get(&key).copied().unwrap_or(0));
        }
        let written = program.written(number, &read);
        store.extend(written.iter().copied());
        (read, written)
    };
    programs.iter().enumerate().map(run).collect()
}

/// A state in the making.
struct Change<'a> {
    scenario: &'a Scenario,
    world: World,
}

impl Change<'_> {
    fn sub(&mut self, at: u16, number: Number) -> &mut Sub {
        let sub = &mut self.world.replicas[usize::from(at)].subs[number];
        Arc::make_mut(sub.as_mut().expect("the transaction has a part here"))
    }

    fn say(&mut self, from: u16, about: Number, words: Words) {
        let scenario = self.scenario;
        for to in scenario.siblings(from, about) {
            self.send(Message { from, to, about, words: words.clone() });
        }
    }

    fn send(&mut self, message: Message) {
        let lost = |at: u16| self.world.replicas[usize::from(at)].lost;
        if !lost(message.to) && !lost(message.from) {
            self.enter(message);
        }
    }

    fn enter(&mut self, message: Message) {
        let network = &mut self.world.network;
        let place = match self.scenario.in_order {
            true => network.partition_point(|sent| sent.channel() <= message.channel()),
            false => match network.binary_search(&message) {
                Ok(_) => return,
                Err(place) => place,
            },
        };
        network.insert(place, message);
    }

    /// Removes what would change nothing any more, whenever it arrived.
    fn purge(&mut self) {
        let scenario = self.scenario;
        let replicas = &self.world.replicas;
        self.world.network.retain(|message| {
            let sub = |number: Number| replicas[usize::from(message.to)].subs[number].as_ref();
            let is_final = |number: Number| sub(number).is_some_and(|sub| sub.state == State::Final);
            let known = sub(message.about).and_then(|sub| sub.exchange.number_of(PartitionId(message.from)));
            match &message.words {
                Words::Read(number, _) => {
                    let void = known.is_some_and(|known| known.era == number.era && known > *number);
                    !is_final(message.about) && !void
                }
                Words::Final(_) => !is_final(message.about),
                Words::Anchor(members) => !members.iter().all(|(member, _)| is_final(*member)),
                Words::Confirmation(..) => {
                    let mut followers = scenario.followers(message.to, message.about).into_iter();
                    !followers.all(is_final)
                }
            }
        });
    }

    /// `aborter` aborts `number`, and undoes what it wrote.
    fn abort(&mut self, at: u16, aborter: Number, number: Number, forget: bool) {
        if self.sub(at, number).state == State::Final {
            self.world.broken = true;
            return;
        }
        let sub = self.sub(at, number);
        if sub.exchange.abort().is_some() {
            if sub.exchange.number().count > ABORTS_MAX {
                self.world.broken = true;
                return;
            }
            if self.scenario.followers(at, aborter).contains(&number) && !forget {
                self.sub(at, aborter).raised.insert(number);
            }
        }
        self.sub(at, number).dependencies.clear();
        self.undo(at, number);
    }

    /// Takes back what a run wrote, and aborts who has read it.
    fn undo(&mut self, at: u16, number: Number) {
        let sub = self.sub(at, number);
        sub.state = State::Running;
        sub.read.clear();
        let written = std::mem::take(&mut sub.written);
        for (key, _) in written {
            let forget = is_active(Mutant::ForgetCascade);
            self.abort_readers(at, number, forget, |(read, version)| read == key && version == number + 1);
        }
    }

    fn abort_readers(
        &mut self,
        at: u16,
        aborter: Number,
        forget: bool,
        missed: impl Fn((Key, usize)) -> bool,
    ) {
        for later in aborter + 1..self.scenario.programs.len() {
            let sub = &self.world.replicas[usize::from(at)].subs[later];
            let hit = |sub: &Arc<Sub>| sub.dependencies.iter().any(|&dependency| missed(dependency));
            if sub.as_ref().is_some_and(hit) {
                self.abort(at, aborter, later, forget);
            }
        }
    }

    /// The newest version of a key before a transaction: its value, and by whom.
    fn version(&self, at: u16, number: Number, key: Key) -> (u8, usize) {
        let subs = &self.world.replicas[usize::from(at)].subs;
        let written = |earlier: Number| {
            let sub = subs[earlier].as_ref()?;
            let installed = matches!(sub.state, State::Executed | State::Final);
            let mut written = sub.written.iter().filter(|_| installed);
            let (_, value) = written.rfind(|(written, _)| *written == key)?;
            Some((*value, earlier + 1))
        };
        (0..number).rev().find_map(written).unwrap_or((0, 0))
    }

    /// Goes on with a sub-transaction.
    fn step(&mut self, at: u16, number: Number) {
        let program = &self.scenario.programs[number];
        let sub = self.sub(at, number);
        if let Some(&named) = program.reads.get(sub.read.len()) {
            let key = resolve(named, &sub.read);
            if key.0 != at {
                let taken = sub.exchange.take(PartitionId(key.0), &key);
                sub.read.extend(taken);
                return;
            }
            let (value, version) = self.version(at, number, key);
            let sub = self.sub(at, number);
            sub.read.push(value);
            sub.dependencies.insert((key, version));
            if sub.exchange.read(key, value) {
                let words = Words::Read(sub.exchange.number(), vec![(key, value)]);
                self.say(at, number, words);
            }
            return;
        }
        sub.state = State::Executed;
        sub.written = program.written(number, &sub.read);
        let here = sub.written.iter().map(|(key, _)| *key);
        let here: Vec<Key> = here.filter(|key| key.0 == at).collect();
        for key in here {
            self.abort_readers(at, number, false, |(read, version)| read == key && version < number + 1);
        }
        let basis = self.sub(at, number).exchange.execute();
        self.confirm(at, number, basis);
    }

    fn confirm(&mut self, at: u16, number: Number, basis: Option<Basis>) {
        let Some(basis) = basis.filter(|_| self.scenario.speculative) else {
            return;
        };
        if self.scenario.followers(at, number).is_empty() {
            return;
        }
        let raised = self.sub(at, number).raised.clone();
        let raised = raised.into_iter().filter(|_| !is_active(Mutant::ForgetRaised));
        let raised = raised.collect::<Vec<_>>().into_iter();
        let raised = raised.map(|later| (later, self.sub(at, later).exchange.number()));
        let words = Words::Confirmation(basis, raised.collect());
        self.say(at, number, words);
    }

    fn anchor(&mut self, at: u16, number: Number) -> Words {
        let mut members = vec![number];
        if !is_active(Mutant::AnchorOnlyFirst) {
            members.extend(self.scenario.followers(at, number));
        }
        let members = members.into_iter();
        Words::Anchor(members.map(|member| (member, self.sub(at, member).exchange.number())).collect())
    }

    /// The head has moved: says so.
    fn arrive(&mut self, at: u16) {
        let replica = &mut self.world.replicas[usize::from(at)];
        while replica.head < replica.subs.len()
            && replica.subs[replica.head].as_ref().is_none_or(|sub| sub.state == State::Final)
        {
            replica.head += 1;
        }
        let head = replica.head;
        if head < self.scenario.programs.len() {
            let words = self.anchor(at, head);
            self.say(at, head, words);
            if is_active(Mutant::AnchorTooEarly) && self.has(at, head + 1) {
                let words = self.anchor(at, head + 1);
                self.say(at, head + 1, words);
            }
        }
    }

    fn has(&self, at: u16, number: Number) -> bool {
        let subs = &self.world.replicas[usize::from(at)].subs;
        subs.get(number).is_some_and(Option::is_some)
    }

    fn final_commit(&mut self, at: u16) {
        let number = self.world.replicas[usize::from(at)].head;
        let sub = self.sub(at, number);
        sub.state = State::Final;
        sub.dependencies.clear();
        sub.exchange.settle();
        self.arrive(at);
    }

    fn deliver(&mut self, message: Message) {
        let Message { from, to, about, words } = message;
        let sender = PartitionId(from);
        let heard = match words {
            Words::Read(number, values) => self.sub(to, about).exchange.learn(sender, number, &values),
            Words::Final(values) => self.sub(to, about).exchange.learn_final(sender, &values),
            Words::Anchor(numbers) => {
                for &(member, number) in &numbers[1..] {
                    self.sub(to, member).exchange.learn_number(sender, number);
                }
                self.sub(to, about).exchange.learn_anchor(sender, numbers[0].1)
            }
            Words::Confirmation(basis, raised) => {
                for (later, number) in raised {
                    let exchange = &mut self.sub(to, later).exchange;
                    exchange.learn_number(sender, number);
                }
                self.sub(to, about).exchange.learn_confirmation(sender, &basis);
                Heard::default()
            }
        };
        if heard.restart {
            let sub = self.sub(to, about);
            sub.exchange.start_over();
            if is_active(Mutant::RaiseOnStartOver) {
                sub.exchange.abort();
            }
            if is_active(Mutant::VoidDependencies) {
                sub.dependencies.clear();
            }
            self.undo(to, about);
        }
        self.confirm(to, about, heard.confirm);
        if self.sub(to, about).exchange.number().count > ABORTS_MAX {
            self.world.broken = true;
        }
    }

    fn crash(&mut self, at: u16) {
        let lost = matches!(self.scenario.failure, Failure::Loss(_));
        self.world.crashed = true;
        self.world.network.retain(|message| message.to != at);
        // Eras are in no order: each second process has a smaller one than the one before.
        let era = match at % 2 {
            0 => ERA - 1,
            _ => ERA + 1,
        };
        self.world.replicas[usize::from(at)] =
            Replica { subs: self.scenario.new_subs(at, era), head: 0, era, lost };
        if lost {
            for (number, (read, _)) in self.scenario.serial.iter().enumerate() {
                self.tell_from_elsewhere(at, number, read);
            }
            return;
        }
        self.arrive(at);
        // The others tell the new process what they have told the old one.
        for from in 0..self.scenario.replicas() {
            for about in 0..self.scenario.programs.len() {
                let partitions = &self.scenario.programs[about].partitions;
                if from == at || !partitions.contains(&from) || !partitions.contains(&at) {
                    continue;
                }
                let replica = &self.world.replicas[usize::from(from)];
                let is_head = replica.head == about;
                let Some(sub) = replica.subs[about].clone() else {
                    continue;
                };
                let mut all = Vec::new();
                let told = sub.exchange.told().to_vec();
                if sub.state == State::Final {
                    all.push(Words::Final(told));
                } else {
                    all.push(Words::Read(sub.exchange.number(), told));
                    if is_head {
                        all.push(self.anchor(from, about));
                    }
                    if let Some(basis) = sub.exchange.confirmed().cloned() {
                        let raised = sub.raised.iter();
                        let raised = raised.map(|&later| (later, self.sub(from, later).exchange.number()));
                        let raised = raised.collect();
                        all.push(Words::Confirmation(basis, raised));
                    }
                }
                for words in all {
                    self.send(Message { from, to: at, about, words });
                }
            }
        }
    }

    /// The replica of another zone tells what a lost one would have read.
    fn tell_from_elsewhere(&mut self, lost: u16, number: Number, read: &[u8]) {
        let program = &self.scenario.programs[number];
        let mut told: Vec<(Key, u8)> = Vec::new();
        for (place, &named) in program.reads.iter().enumerate() {
            let key = resolve(named, &read[..place]);
            if key.0 == lost && !told.iter().any(|(known, _)| *known == key) {
                told.push((key, read[place]));
            }
        }
        if program.partitions.contains(&lost) {
            for to in self.scenario.siblings(lost, number) {
                self.enter(Message { from: lost, to, about: number, words: Words::Final(told.clone()) });
            }
        }
    }
}

impl Scenario {
    fn next(&self, world: &World, action: &Action) -> World {
        let mut change = Change { scenario: self, world: world.clone() };
        match action {
            Action::Step(at, number) => change.step(*at, *number),
            Action::FinalCommit(at) => change.final_commit(*at),
            Action::Deliver(place) => {
                let message = change.world.network.remove(*place);
                change.deliver(message);
            }
            Action::Crash(at) => change.crash(*at),
        }
        change.purge();
        change.world
    }

    fn possible(&self, world: &World, actions: &mut Vec<Action>) {
        if world.broken {
            return;
        }
        for (at, replica) in world.replicas.iter().enumerate() {
            if replica.lost {
                continue;
            }
            let at = at as u16;
            let numbers = 0..self.programs.len();
            let steps = numbers.filter(|&number| self.can_step(replica, at, number));
            actions.extend(steps.map(|number| Action::Step(at, number)));
            if self.can_final_commit(replica, at) {
                actions.push(Action::FinalCommit(at));
            }
        }
        for (place, message) in world.network.iter().enumerate() {
            let before = place.checked_sub(1).map(|before| &world.network[before]);
            let is_next = before.is_none_or(|before| before.channel() != message.channel());
            if is_next || !self.in_order {
                actions.push(Action::Deliver(place));
            }
        }
        if let Failure::Crash(at) | Failure::Loss(at) = self.failure
            && !world.crashed
        {
            actions.push(Action::Crash(at));
        }
    }

    fn with_mutant<R>(&self, run: impl FnOnce() -> R) -> R {
        match self.mutant {
            Some(mutant) => mutant::with(mutant, run),
            None => run(),
        }
    }

    fn is_right(&self, world: &World) -> bool {
        !world.broken
            && world.replicas.iter().all(|replica| {
                replica.subs.iter().zip(&self.serial).all(|(sub, (read, written))| {
                    let finals = sub.iter().filter(|sub| sub.state == State::Final);
                    finals.into_iter().all(|sub| sub.read == *read && sub.written == *written)
                })
            })
    }

    fn is_over(&self, world: &World) -> bool {
        let mut present = world.replicas.iter().filter(|replica| !replica.lost);
        present.all(|replica| {
            let mut subs = replica.subs.iter().flatten();
            subs.all(|sub| sub.state == State::Final)
        })
    }

    fn can_go_on(&self, world: &World) -> bool {
        let mut actions = Vec::new();
        self.with_mutant(|| self.possible(world, &mut actions));
        !actions.is_empty()
    }

    /// Whether a sub-transaction has something to do that it need not wait for.
    fn can_step(&self, replica: &Replica, at: u16, number: Number) -> bool {
        let Some(sub) = &replica.subs[number] else {
            return false;
        };
        let next = self.programs[number].reads.get(sub.read.len());
        let waits = next.is_some_and(|&named| {
            let key = resolve(named, &sub.read);
            key.0 != at && sub.exchange.value(PartitionId(key.0), &key).is_none()
        });
        sub.state == State::Running && !waits
    }

    fn can_final_commit(&self, replica: &Replica, at: u16) -> bool {
        let book = |number: Number| replica.subs[number].as_ref().map(|sub| &sub.exchange);
        let Some(Some(sub)) = replica.subs.get(replica.head) else {
            return false;
        };
        let previous = self.previous(at, replica.head).and_then(book);
        let settled = sub.exchange.is_settled(previous);
        sub.state == State::Executed && (settled || is_active(Mutant::CommitUnsettled))
    }
}

impl Model for Scenario {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let replica = |at: u16| Replica { subs: self.new_subs(at, ERA), head: 0, era: ERA, lost: false };
        let world = World {
            replicas: (0..self.replicas()).map(replica).collect(),
            network: Vec::new(),
            crashed: false,
            broken: false,
        };
        let mut change = Change { scenario: self, world };
        self.with_mutant(|| (0..self.replicas()).for_each(|at| change.arrive(at)));
        vec![change.world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        self.with_mutant(|| self.possible(world, actions));
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        Some(self.with_mutant(|| self.next(world, &action)))
    }

    fn properties(&self) -> Vec<Property<Scenario>> {
        vec![
            Property::always("what is final is what the order says", Scenario::is_right),
            Property::always("nobody waits for ever", |scenario: &Scenario, world: &World| {
                world.broken || scenario.is_over(world) || scenario.can_go_on(world)
            }),
            Property::sometimes(GOAL, Scenario::is_over),
        ]
    }
}
