//! The specification: the final order, run serially, one transaction at a time.
//!
//! Deliberately naive. It keeps every version of every key for ever in a sorted map and answers each question
//! by looking at all that it has; it shares nothing with the engines and the store but the vocabulary of
//! `txn`, so that a mistake would have to be made twice to go unnoticed.
//!
//! Partitions that share a key space have an oracle each, and a transaction over several of them is run at
//! all at once ([`run_together`]), when it is the next one of each.

use order::moves::SlotMove;
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use txn::tx::{self, Read};
use txn::{
    Access, Call, Entry, Intent, Key, Outcome, PartitionId, Position, Reply, Request, ScanPage, ScanRange,
    Slots, Space, Stop, Tx, TxContext, slots,
};

/// A delete is reported as an absent key's version to readers less than this many positions later. Written
/// down a second time on purpose: the store's constant is part of what clients see (WATCH), so changing it is
/// a change of behaviour.
pub const TOMBSTONE_HORIZON: u64 = 65_536;

/// What the specification says of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// It ends like this.
    Outcome(Outcome),
    /// Its procedure panics with this text, and nothing of it remains.
    Panic(String),
}

impl Expected {
    /// Whether an engine's outcome is the expected one. How a panic is worded is the engine's choice, but it
    /// rolls back and names the panic's own text.
    pub fn admits(&self, actual: &Outcome) -> bool {
        match (self, actual) {
            (Expected::Outcome(expected), actual) => expected == actual,
            (Expected::Panic(text), Err(Stop::Abort(reason))) => reason.contains(text.as_str()),
            (Expected::Panic(_), _) => false,
        }
    }
}

/// All versions of all keys, and all range tombstones.
#[derive(Clone, Debug, Default)]
struct History {
    versions: BTreeMap<Key, BTreeMap<Position, Option<Entry>>>,
    clears: Vec<Position>,
}

impl History {
    fn last_clear(&self, before: Position) -> Position {
        self.clears.iter().copied().filter(|&clear| clear < before).max().unwrap_or_default()
    }
    /// What a transaction at `reader` sees of `key`.
    fn read(&self, key: &Key, reader: Position) -> Read {
        let newest = self.versions.get(key).and_then(|versions| versions.range(..reader).next_back());
        let clear = if key.space() == Space::User { self.last_clear(reader) } else { Position::NONE };
        match newest {
            Some((&version, Some(entry))) if version >= clear => Read { entry: Some(entry.clone()), version },
            _ => {
                let removed = newest.map_or(Position::NONE, |(&version, _)| version).max(clear);
                let remembered = removed != Position::NONE && reader.0 - removed.0 < TOMBSTONE_HORIZON;
                Read { entry: None, version: if remembered { removed } else { Position::NONE } }
            }
        }
    }
    /// All that a transaction at `reader` sees in a space, in scan order.
    fn list(&self, space: Space, reader: Position) -> Vec<(Key, Entry)> {
        let keys = self.versions.keys().filter(|key| key.space() == space);
        let mut all: Vec<_> =
            keys.filter_map(|key| Some((key.clone(), self.read(key, reader).entry?))).collect();
        all.sort_by_key(|(key, _)| (key.hash64(), key.clone()));
        all
    }
}

/// What a transaction touches when its turn comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Keys that it reads.
    pub reads: BTreeSet<Key>,
    /// Keys that it writes.
    pub writes: BTreeSet<Key>,
    /// It scans, counts or clears.
    pub everything: bool,
}

/// The naive executor. See the module's head.
#[derive(Debug, Default)]
pub struct Oracle {
    history: Arc<History>,
    /// The expected outcome of each position that was run.
    outcomes: BTreeMap<Position, Expected>,
    /// The epoch time of each position.
    times: BTreeMap<Position, u64>,
    last: Position,
    last_time_ms: u64,
}

impl Oracle {
    /// An empty store before its first transaction.
    pub fn new() -> Oracle {
        Oracle::default()
    }
    /// Puts a version in place before anything runs.
    pub fn load(&mut self, key: Key, version: Position, entry: Option<Entry>) {
        Arc::make_mut(&mut self.history).versions.entry(key).or_default().insert(version, entry);
    }
    /// Ends loading: the next transaction is the one after `position`.
    pub fn loaded(&mut self, position: Position, time_ms: u64, clears: &[Position]) {
        Arc::make_mut(&mut self.history).clears.extend(clears);
        (self.last, self.last_time_ms) = (position, time_ms);
        self.times.insert(position, time_ms);
    }
    /// The state digest of all that ran behind a position.
    pub fn digest_behind(&self, from: Position) -> u64 {
        let mut digest = 0_u64;
        for (key, versions) in &self.history.versions {
            for (&position, entry) in versions.range(from.next()..) {
                digest = digest.wrapping_add(store::digest::of_write(key, position, entry.as_ref()));
            }
        }
        for &clear in self.history.clears.iter().filter(|&&clear| clear > from) {
            digest = digest.wrapping_add(store::digest::of_clear(clear));
        }
        for (&position, outcome) in self.outcomes.range(from.next()..) {
            if !matches!(outcome, Expected::Outcome(Ok(_))) {
                digest = digest.wrapping_add(store::digest::of_error(position));
            }
        }
        digest
    }
    /// The last position that was run.
    pub fn last(&self) -> Position {
        self.last
    }
    /// Runs the next transaction of the final order.
    pub fn run(&mut self, request: &Arc<Request>, time_ms: u64) {
        let position = self.last.next();
        assert!(time_ms >= self.last_time_ms, "an order's time never goes back");
        let (outcome, mut turn) = self.execute(request, position, time_ms, false);
        // Nobody reads them any more: what `end` adds to would be copied first.
        turn.parts.clear();
        self.end(outcome, &turn, |_| true, time_ms);
    }
    /// The next transaction has ended like this, and left what it wrote to the keys that are kept here.
    fn end(&mut self, outcome: Expected, turn: &Turn, is_kept: impl Fn(&Key) -> bool, time_ms: u64) {
        let position = self.last.next();
        if matches!(outcome, Expected::Outcome(Ok(_))) {
            let history = Arc::make_mut(&mut self.history);
            if turn.writes.cleared {
                history.clears.push(position);
            }
            for (key, entry) in turn.writes.entries.iter().filter(|(key, _)| is_kept(key)) {
                history.versions.entry(key.clone()).or_default().insert(position, entry.clone());
            }
        }
        self.outcomes.insert(position, outcome);
        self.times.insert(position, time_ms);
        (self.last, self.last_time_ms) = (position, time_ms);
    }
    /// What a request would touch if it were the next transaction of the final order.
    pub fn touched(&self, request: &Arc<Request>, time_ms: u64) -> Touched {
        let position = self.last.next();
        self.execute(request, position, time_ms, false).1.touched
    }
    /// The next transaction of the final order ends like this, and leaves nothing behind.
    pub fn refuse(&mut self, stop: Stop, time_ms: u64) {
        let position = self.last.next();
        self.outcomes.insert(position, Expected::Outcome(Err(stop)));
        self.times.insert(position, time_ms);
        (self.last, self.last_time_ms) = (position, time_ms);
    }
    /// What the transaction at `position` must have ended with.
    pub fn expected(&self, position: Position) -> Option<&Expected> {
        self.outcomes.get(&position)
    }
    /// The epoch time of a position.
    pub fn time_ms(&self, position: Position) -> Option<u64> {
        self.times.get(&position).copied()
    }
    /// What a read-only request answers at a snapshot of `position`.
    pub fn read_only(&self, request: &Arc<Request>, position: Position, now_ms: u64) -> Expected {
        // A snapshot's reader sees what the next transaction would see.
        self.execute(request, position, now_ms, true).0
    }
    /// When the entries expire, as far as they do, that a read-only request meets at a snapshot of
    /// `position`.
    pub fn expiries_met(&self, request: &Arc<Request>, position: Position, now_ms: u64) -> Vec<u64> {
        self.execute(request, position, now_ms, true).1.expiries
    }
    /// What a reader at a snapshot of `position` sees of a key, expired entries included.
    pub fn read_at(&self, key: &Key, position: Position) -> Read {
        self.history.read(key, position.next())
    }
    /// All that is visible at a snapshot of `position` in a space, in scan order, expired entries included.
    pub fn list_at(&self, space: Space, position: Position) -> Vec<(Key, Entry)> {
        self.history.list(space, position.next())
    }
    /// Every key that was ever written.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.history.versions.keys()
    }
    /// Whether a store must still have a record of a key at a snapshot of `position`: it holds an entry, or
    /// it was deleted within the horizon and neither cleared with it nor since.
    pub fn is_remembered(&self, key: &Key, position: Position) -> bool {
        let read = self.history.read(key, position.next());
        let newest =
            self.history.versions.get(key).and_then(|versions| versions.range(..=position).next_back());
        let cleared = match key.space() {
            Space::User => self.history.last_clear(position.next()),
            _ => Position::NONE,
        };
        read.entry.is_some()
            || newest.is_some_and(|(&version, _)| version == read.version && version != cleared)
    }
    /// How many transactions that were run ended in a reply, and how many rolled back.
    pub fn tally(&self) -> (usize, usize) {
        let replied =
            self.outcomes.values().filter(|outcome| matches!(outcome, Expected::Outcome(Ok(_)))).count();
        (replied, self.outcomes.len() - replied)
    }

    fn execute(
        &self,
        request: &Arc<Request>,
        position: Position,
        now_ms: u64,
        at_snapshot: bool,
    ) -> (Expected, Turn) {
        let reader = if at_snapshot { position.next() } else { position };
        let part = Part { partition: PartitionId(0), history: self.history.clone(), reader };
        Turn::new(vec![part], Slots::even(1)).run(request, position, now_ms)
    }
}

/// Runs a transaction that is the next one at several partitions of one key space, at all of them. Each
/// user's key is kept by the partition of its slot; each key of the system by all, and the first one's is
/// read.
pub fn run_together(oracles: &mut [(PartitionId, &mut Oracle)], request: &Arc<Request>, time_ms: u64) {
    if let Some(change) = SlotMove::of(request) {
        return move_slots(oracles, change, time_ms);
    }
    let slots = &request.route.slots;
    let part = |(partition, oracle): &(PartitionId, &mut Oracle)| Part {
        partition: *partition,
        history: oracle.history.clone(),
        reader: oracle.last.next(),
    };
    let parts: Vec<Part> = oracles.iter().map(part).collect();
    let first = parts.first().map_or(Position::FIRST, |part| part.reader);
    let (outcome, mut turn) = Turn::new(parts, slots.clone()).run(request, first, time_ms);
    // Nobody reads them any more.
    turn.parts.clear();
    for (partition, oracle) in oracles {
        let is_kept = |key: &Key| key.space() == Space::System || slots.partition_of_key(key) == *partition;
        oracle.end(outcome.clone(), &turn, is_kept, time_ms);
    }
}

/// Moves the records of some slots from one partition to another: as if each had been deleted and written by
/// a transaction that is the next one of both.
fn move_slots(oracles: &mut [(PartitionId, &mut Oracle)], change: SlotMove, time_ms: u64) {
    let giver = oracles.iter().find(|(at, _)| *at == change.from);
    let mut moved = Vec::new();
    if let Some((_, giver)) = giver {
        let reader = giver.last.next();
        let users = giver.history.list(Space::User, reader).into_iter();
        moved.extend(users.filter(|(key, _)| change.slots.has(key)));
        let system = giver.history.list(Space::System, reader).into_iter();
        let kept = |key: &Key, entry: &Entry| change.slots.has(key) && !entry.expired(time_ms);
        moved.extend(system.filter(|(key, entry)| kept(key, entry)));
    }
    let version_key = slots::version_key();
    for (at, oracle) in oracles {
        let position = oracle.last.next();
        let history = Arc::make_mut(&mut oracle.history);
        let mut write = |key: &Key, entry: Option<Entry>| {
            let versions = history.versions.entry(key.clone()).or_default();
            versions.insert(position, entry);
        };
        for (key, entry) in &moved {
            match *at == change.to {
                true => write(key, Some(entry.clone())),
                false if key.space() == Space::User => write(key, None),
                false => {}
            }
        }
        let version = slots::version_value(change.version);
        write(&version_key, Some(Entry::new(version)));
        let outcome = Expected::Outcome(Ok(Reply::OK));
        oracle.outcomes.insert(position, outcome);
        oracle.times.insert(position, time_ms);
        (oracle.last, oracle.last_time_ms) = (position, time_ms);
    }
}

impl Turn {
    fn new(parts: Vec<Part>, slots: Slots) -> Turn {
        Turn { parts, slots, writes: Writes::default(), expiries: Vec::new(), touched: Touched::default() }
    }

    fn run(self, request: &Arc<Request>, position: Position, now_ms: u64) -> (Expected, Turn) {
        let (turn, polled) = tx::lend(Box::new(self), || {
            catch_unwind(AssertUnwindSafe(|| {
                let tx = Tx::of(TxContext::of(request, position, now_ms), request);
                let mut future = request.procedure.run(tx, Call::new(request.clone()));
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            }))
        });
        let turn = turn.into_any().downcast::<Turn>().expect("the oracle gets back what it lent");
        let outcome = match polled {
            Ok(Poll::Ready(outcome)) => Expected::Outcome(outcome),
            Ok(Poll::Pending) => {
                panic!("{request:?} waits for something that is not its transaction")
            }
            Err(panic) => Expected::Panic(execute::snapshot::panic_text(&*panic).to_owned()),
        };
        (outcome, *turn)
    }
}

/// What a transaction wrote so far.
#[derive(Clone, Debug, Default)]
struct Writes {
    cleared: bool,
    entries: BTreeMap<Key, Option<Entry>>,
}

/// What a transaction sees of a partition.
struct Part {
    partition: PartitionId,
    history: Arc<History>,
    reader: Position,
}

impl Part {
    /// A page of what was there before the transaction, and where the next one begins.
    fn page(&self, range: ScanRange) -> (Vec<(Key, Entry)>, Option<u64>) {
        let mut page: Vec<(Key, Entry)> = Vec::new();
        for (key, entry) in self.history.list(range.space, self.reader) {
            let hash = key.hash64();
            if hash < range.from_hash {
                continue;
            }
            let last = page.last().map(|(key, _)| key.hash64());
            if page.len() >= range.limit && last != Some(hash) {
                return (page, Some(hash));
            }
            page.push((key, entry));
        }
        (page, None)
    }
}

/// A transaction's turn: nothing else happens meanwhile, so nothing ever waits.
struct Turn {
    /// The partitions at which it runs, by number.
    parts: Vec<Part>,
    /// Whose the slots are.
    slots: Slots,
    writes: Writes,
    /// When what it has read expires.
    expiries: Vec<u64>,
    touched: Touched,
}

impl Turn {
    fn cleared(&self, space: Space) -> bool {
        self.writes.cleared && space == Space::User
    }
    /// Own writes over what was there before.
    fn merge(&self, space: Space, before: Vec<(Key, Entry)>) -> Vec<(Key, Entry)> {
        let place = |key: &Key| (key.hash64(), key.clone());
        let mut all: BTreeMap<(u64, Key), Entry> =
            before.into_iter().map(|(key, entry)| (place(&key), entry)).collect();
        for (key, entry) in self.writes.entries.iter().filter(|(key, _)| key.space() == space) {
            match entry {
                Some(entry) => all.insert(place(key), entry.clone()),
                None => all.remove(&place(key)),
            };
        }
        all.into_iter().map(|((_, key), entry)| (key, entry)).collect()
    }
    fn meet(&mut self, entry: &Entry) {
        if entry.expires_at_ms != 0 {
            self.expiries.push(entry.expires_at_ms);
        }
    }
    /// Who reads a key, if it is one of the transaction's partitions.
    fn part_of(&self, key: &Key) -> Option<&Part> {
        match (&self.parts[..], key.space()) {
            ([part], _) => Some(part),
            (parts, Space::System) => {
                let keeper = slots::of_system_key(key).map(|slot| self.slots.partition_of(slot));
                let keeper = parts.iter().find(|part| Some(part.partition) == keeper);
                keeper.or(parts.first())
            }
            (parts, Space::User) => {
                let keeper = self.slots.partition_of_key(key);
                parts.iter().find(|part| part.partition == keeper)
            }
        }
    }
    /// A key is of a partition that the transaction does not run at.
    fn strayed_to(&self, key: &Key) -> Stop {
        Stop::Undeclared(Some(self.slots.partition_of_key(key)))
    }
    /// Those that a space is read from as a whole, which must be all that there are.
    fn parts_of(&self, space: Space) -> Result<&[Part], Stop> {
        match (self.parts.len(), space) {
            (_, Space::System) => Ok(&self.parts[..1]),
            (count, _) if count == 1 || count == usize::from(self.slots.of()) => Ok(&self.parts),
            _ => Err(Stop::Undeclared(None)),
        }
    }
}

impl Access for Turn {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        self.touched.reads.insert(key.clone());
        let own = self.writes.entries.get(key);
        let read = match own {
            Some(entry) => Read { entry: entry.clone(), version: Position::NONE },
            None if self.cleared(key.space()) => Read::default(),
            None => match self.part_of(key) {
                Some(part) => part.history.read(key, part.reader),
                None => return Poll::Ready(Err(self.strayed_to(key))),
            },
        };
        read.entry.iter().for_each(|entry| self.meet(entry));
        Poll::Ready(Ok(read))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.touched.writes.insert(key.clone());
        if self.part_of(key).is_none() {
            return Err(self.strayed_to(key));
        }
        self.writes.entries.insert(key.clone(), entry);
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        self.touched.everything = true;
        let parts = match self.parts_of(range.space) {
            Ok(parts) => parts,
            Err(stop) => return Poll::Ready(Err(stop)),
        };
        // Where a page ends is decided by what was there before the transaction; its own writes join the page
        // then.
        let (mut before, mut next_hash) = (Vec::new(), None::<u64>);
        if !self.cleared(range.space) {
            for (page, next) in parts.iter().map(|part| part.page(range)) {
                before.extend(page);
                next_hash = next_hash.into_iter().chain(next).min();
            }
        }
        // A page of one partition may go on where another one's ends.
        before.retain(|(key, _)| next_hash.is_none_or(|next| key.hash64() < next));
        let mut entries = self.merge(range.space, before);
        entries.retain(|(key, _)| {
            key.hash64() >= range.from_hash && next_hash.is_none_or(|next| key.hash64() < next)
        });
        entries.iter().for_each(|(_, entry)| self.meet(entry));
        Poll::Ready(Ok(ScanPage { entries, next_hash }))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        self.touched.everything = true;
        let parts = match self.parts_of(Space::User) {
            Ok(parts) => parts,
            Err(stop) => return Poll::Ready(Err(stop)),
        };
        let mut before = Vec::new();
        if !self.cleared(Space::User) {
            for part in parts {
                before.extend(part.history.list(Space::User, part.reader));
            }
        }
        Poll::Ready(Ok(self.merge(Space::User, before).len() as u64))
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        self.touched.everything = true;
        if let Err(stop) = self.parts_of(Space::User) {
            return Poll::Ready(Err(stop));
        }
        self.writes.cleared = true;
        self.writes.entries.retain(|key, _| key.space() != Space::User);
        Poll::Ready(Ok(()))
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
