//! Random transactional programs.
//!
//! A program is a short list of operations over a small hot key set and a larger cold one, derived from a
//! seed and a [`Shape`]; the seed is the request's only argument, so that programs survive a log. Two
//! properties make programs good witnesses:
//!
//! - **Values carry their history.** A program folds all that it reads into a running hash, and every value
//!   that it writes is that hash mixed with its own seed, which no other one has. One stale read therefore
//!   changes every later value that depends on it, and the reply, which lists all that was read.
//! - **Impossible states are fatal.** Pairs of keys are always written together; a program that sees the
//!   halves differ panics. No serial execution can, so the panic may happen in a doomed incarnation only,
//!   where it must not count.
//!
//! Some programs also swallow an engine's [`Stop`] and go on as if nothing had happened: an engine must not
//! rely on procedures to hand it back.

use crate::draw::Draw;
use std::sync::Arc;
use txn::codec::put_entry;
use txn::hash::{hash_bytes, mix};
use txn::tx::Read;
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue};
use txn::{
    Args, Blob, Call, Entry, Footprint, Intent, Key, KeySets, Outcome, PartitionId, PartitionRoute, Position,
    Procedure, ProcedureFuture, Reply, Request, RequestId, ScanRange, SessionId, Slots, Space, Stop, Tx,
    Value, Weight,
};

/// What the programs of a run look like. Drawn per run, so that different runs stress different mixes.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Keys that get most of the traffic.
    pub hot_keys: u64,
    /// Keys that get the rest.
    pub cold_keys: u64,
    /// Pairs of keys that are always written together.
    pub pairs: u64,
    /// How much of the traffic goes to the hot keys.
    pub hot_percent: u32,
    /// The longest ordinary program, in operations.
    pub operations_max: u64,
    /// How many programs have 50 operations and more.
    pub big_permille: u32,
    /// How many programs declare their keys.
    pub declared_percent: u32,
    /// How many of the others name some of their keys all the same.
    pub guess_percent: u32,
    /// How many programs only read, and say so.
    pub read_only_percent: u32,
    /// How many programs ask for a heavy worker.
    pub heavy_percent: u32,
    /// Whether programs look at versions too, which an engine without concurrency control does not keep.
    pub versions: bool,
    /// How often each kind of operation appears, by [`Kind`].
    pub weights: [u32; Kind::ALL.len()],
}

/// The kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is explained where `Operation` names it")]
pub enum Kind {
    Read,
    ReadForUpdate,
    Write,
    Modify,
    ReadThenWrite,
    Delete,
    DeleteAndInsert,
    WriteExpiring,
    FollowRead,
    FollowWrite,
    PairWrite,
    PairCheck,
    AbortIf,
    ErrorIf,
    PanicIf,
    Swallow,
    Count,
    Scan,
    Clear,
}

impl Kind {
    /// All kinds, in the order of [`Shape::weights`].
    pub const ALL: [Kind; 19] = [
        Kind::Read,
        Kind::ReadForUpdate,
        Kind::Write,
        Kind::Modify,
        Kind::ReadThenWrite,
        Kind::Delete,
        Kind::DeleteAndInsert,
        Kind::WriteExpiring,
        Kind::FollowRead,
        Kind::FollowWrite,
        Kind::PairWrite,
        Kind::PairCheck,
        Kind::AbortIf,
        Kind::ErrorIf,
        Kind::PanicIf,
        Kind::Swallow,
        Kind::Count,
        Kind::Scan,
        Kind::Clear,
    ];

    /// The usual weight of the kind; a shape drops or multiplies it.
    fn usual_weight(self) -> u32 {
        match self {
            Kind::Read | Kind::Modify => 30,
            Kind::ReadThenWrite | Kind::Write | Kind::FollowRead | Kind::FollowWrite => 15,
            Kind::ReadForUpdate
            | Kind::Delete
            | Kind::DeleteAndInsert
            | Kind::PairWrite
            | Kind::PairCheck => 8,
            Kind::WriteExpiring | Kind::AbortIf => 5,
            Kind::ErrorIf | Kind::PanicIf | Kind::Swallow => 2,
            Kind::Count | Kind::Scan => 2,
            Kind::Clear => 1,
        }
    }

    /// Whether the keys of the operation are known before it runs.
    fn static_keys(self) -> bool {
        !matches!(self, Kind::FollowRead | Kind::FollowWrite | Kind::Count | Kind::Scan | Kind::Clear)
    }

    /// Whether the operation writes nothing.
    fn reads_only(self) -> bool {
        matches!(
            self,
            Kind::Read
                | Kind::FollowRead
                | Kind::PairCheck
                | Kind::AbortIf
                | Kind::ErrorIf
                | Kind::Count
                | Kind::Scan
        )
    }
}

impl Shape {
    /// Draws a shape.
    pub fn draw(draw: &mut Draw) -> Shape {
        let mut weights = Kind::ALL.map(Kind::usual_weight);
        for (weight, kind) in weights.iter_mut().zip(Kind::ALL) {
            *weight *= match draw.below(10) {
                0 | 1 if kind != Kind::Read => 0,
                2 => 4,
                _ => 1,
            };
        }
        Shape {
            hot_keys: draw.pick(&[1, 2, 3, 5, 8]),
            cold_keys: draw.pick(&[5, 20, 100, 500]),
            pairs: draw.pick(&[1, 2, 4]),
            hot_percent: draw.pick(&[10, 40, 70, 95]),
            operations_max: draw.pick(&[1, 2, 4, 8, 16]),
            big_permille: draw.pick(&[0, 0, 10, 50]),
            declared_percent: draw.pick(&[0, 20, 50, 90]),
            read_only_percent: draw.pick(&[0, 10, 40]),
            heavy_percent: draw.pick(&[0, 10, 50]),
            guess_percent: draw.pick(&[0, 30, 80]),
            versions: true,
            weights,
        }
    }

    fn key(&self, draw: &mut Draw) -> Key {
        if draw.percent(self.hot_percent) {
            self.hot_key(draw.bits())
        } else if draw.percent(5) {
            Key::system(format!("s{}", draw.below(3)).as_bytes())
        } else {
            // Some names are longer than what a key holds in place.
            let index = draw.below(self.cold_keys);
            Key::from(
                if index.is_multiple_of(7) {
                    format!("cold:with-a-long-name:{index:012}")
                } else {
                    format!("c{index}")
                }
                .as_str(),
            )
        }
    }

    fn hot_key(&self, bits: u64) -> Key {
        Key::from(format!("h{}", bits % self.hot_keys).as_str())
    }

    /// The keys of all programs that are found without following values: what a preloaded store may hold.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = (0..self.hot_keys).map(|index| self.hot_key(index)).collect();
        keys.extend((0..self.cold_keys).map(|index| Key::from(format!("c{index}").as_str())));
        keys
    }

    fn draw_operation(&self, draw: &mut Draw, allowed: impl Fn(Kind) -> bool) -> Operation {
        let weights = Kind::ALL.into_iter().zip(self.weights);
        let any = weights.clone().any(|(kind, weight)| allowed(kind) && weight > 0);
        let kind = if any {
            Kind::ALL[draw.weighted(weights.map(|(kind, weight)| if allowed(kind) { weight } else { 0 }))]
        } else {
            Kind::Read
        };
        let key = match kind {
            Kind::PairWrite | Kind::PairCheck => {
                Key::from(format!("pair{}", draw.below(self.pairs)).as_str())
            }
            _ => self.key(draw),
        };
        Operation { kind, key, number: draw.bits() }
    }
}

/// One step of a program.
#[derive(Clone, Debug)]
struct Operation {
    kind: Kind,
    key: Key,
    /// Chance for whatever the kind needs: moduli, scan ranges, lifetimes.
    number: u64,
}

impl Operation {
    /// The second half of a pair.
    fn other_half(&self) -> Key {
        Key::from([self.key.as_bytes(), b"'"].concat().as_slice())
    }
}

/// A program.
#[derive(Clone, Debug)]
struct Program {
    operations: Vec<Operation>,
    declared: bool,
    /// The keys that it names are a guess, and this decides which they are.
    guess: Option<u64>,
    read_only: bool,
    heavy: bool,
}

impl Program {
    fn derive(shape: &Shape, seed: u64) -> Program {
        let mut draw = Draw::new(seed);
        let read_only = draw.percent(shape.read_only_percent);
        let declared = draw.percent(shape.declared_percent);
        let heavy = draw.percent(shape.heavy_percent);
        let count = if draw.permille(shape.big_permille) {
            draw.between(50, 80)
        } else {
            draw.between(1, shape.operations_max)
        };
        let allowed = |kind: Kind| (!read_only || kind.reads_only()) && (!declared || kind.static_keys());
        let operations = (0..count).map(|_| shape.draw_operation(&mut draw, allowed)).collect();
        let guess = (!declared && draw.percent(shape.guess_percent)).then(|| draw.bits());
        Program { operations, declared, guess, read_only, heavy }
    }

    fn footprint(&self) -> Footprint {
        let mut footprint = Footprint::unknown();
        if self.declared || self.guess.is_some() {
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            for (place, operation) in self.operations.iter().enumerate() {
                // Some programs guess all of their keys.
                if self.guess.is_some_and(|bits| bits % 4 > 0 && bits >> (place % 60 + 4) & 1 == 1) {
                    continue;
                }
                let list = if operation.kind.reads_only() || operation.kind == Kind::PanicIf {
                    &mut reads
                } else {
                    &mut writes
                };
                list.push(operation.key.clone());
                if matches!(operation.kind, Kind::PairWrite | Kind::PairCheck) {
                    list.push(operation.other_half());
                }
            }
            writes.sort();
            writes.dedup();
            reads.retain(|key| writes.binary_search(key).is_err());
            reads.sort();
            reads.dedup();
            let may_stray = self.guess.map(|bits| bits % 3);
            footprint.keys = Some(Arc::new(KeySets { reads, writes, may_stray, ..KeySets::default() }));
        }
        footprint.read_only = self.read_only;
        footprint.weight = if self.heavy { Weight::Heavy } else { Weight::Light };
        footprint
    }
}

/// The procedure that runs the programs of a shape: its argument is a program's seed.
pub struct Programs {
    shape: Shape,
}

impl Programs {
    /// The programs of `shape`.
    pub fn new(shape: Shape) -> Arc<Programs> {
        Arc::new(Programs { shape })
    }

    /// A request that runs the program of `seed`.
    pub fn request(self: &Arc<Self>, sequence: u64, seed: u64) -> Arc<Request> {
        let id = RequestId { session: SessionId(1 + sequence % 5), sequence, attempt: 0 };
        Arc::new(Request::new(id, self.clone(), Args::one(&seed.to_le_bytes())))
    }

    /// The same, for a program that only reads: for snapshots.
    pub fn read_only_request(self: &Arc<Self>, sequence: u64, draw: &mut Draw) -> Arc<Request> {
        let shape = Shape { read_only_percent: 100, ..self.shape.clone() };
        Programs::new(shape).request(sequence, draw.bits())
    }

    /// Where a program runs, out of so many partitions, and whether it may stray from there: one that finds
    /// keys on its way names all partitions, or those that it knows of, and then at least two: where there is
    /// only one, nobody looks.
    pub fn route(&self, args: &Args, of: u16, draw: &mut Draw) -> (PartitionRoute, bool) {
        let program = self.derive(args);
        let operations = program.operations.iter();
        let keys = operations.flat_map(|operation| [operation.key.clone(), operation.other_half()]);
        let mut route = route_of_keys(keys, of);
        if program.operations.iter().all(|operation| operation.kind.static_keys()) {
            return (route, false);
        }
        if draw.percent(50) {
            return (PartitionRoute::everywhere(&Slots::even(of)), true);
        }
        if let [only] = route.partitions[..] {
            let other = PartitionId((only.0 + 1 + draw.below(u64::from(of) - 1) as u16) % of);
            route = PartitionRoute::over([only, other], &Slots::even(of));
        }
        (route, true)
    }

    fn derive(&self, args: &Args) -> Program {
        let seed = args.first().and_then(|arg| arg.as_bytes().try_into().ok()).map_or(0, u64::from_le_bytes);
        Program::derive(&self.shape, seed)
    }
}

impl Procedure for Programs {
    fn name(&self) -> &str {
        "sim.program"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        self.derive(args).footprint()
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        let versions = self.shape.versions;
        let run = Run { seen: mix(tx.seed()), replies: Vec::new(), written: 0, versions, tx };
        Box::pin(run.all(self.derive(&call), self.shape.clone()))
    }
}

/// The words with which a program panics on its own account, as a serial execution would too.
pub const PANIC_ON_PURPOSE: &str = "a program panicked on purpose";

/// One incarnation of a program.
struct Run {
    tx: Tx,
    /// The hash of everything read so far.
    seen: u64,
    replies: Vec<Reply>,
    written: u64,
    versions: bool,
}

impl Run {
    async fn all(mut self, program: Program, shape: Shape) -> Outcome {
        for operation in &program.operations {
            if let Some(reply) = self.one(operation, &shape).await? {
                return Ok(reply);
            }
        }
        self.replies.push(Reply::Integer(self.seen as i64));
        Ok(Reply::Array(self.replies))
    }

    /// Runs an operation; a reply ends the program early (its writes stay).
    async fn one(&mut self, operation: &Operation, shape: &Shape) -> Result<Option<Reply>, Stop> {
        let key = &operation.key;
        match operation.kind {
            Kind::Read => {
                self.read(key, Intent::Read).await?;
            }
            Kind::ReadForUpdate => {
                self.read(key, Intent::Update).await?;
            }
            Kind::Write => self.write(key, operation.number).await?,
            Kind::Modify => {
                self.read(key, Intent::Update).await?;
                self.write(key, operation.number).await?;
            }
            Kind::ReadThenWrite => {
                self.read(key, Intent::Read).await?;
                self.write(key, operation.number).await?;
            }
            Kind::Delete => self.tx.delete(key).await?,
            Kind::DeleteAndInsert => {
                self.tx.delete(key).await?;
                self.read(key, Intent::Read).await?;
                self.write(key, operation.number).await?;
            }
            Kind::WriteExpiring => {
                let entry = Entry {
                    value: self.value(operation.number),
                    expires_at_ms: self.tx.now_ms() + operation.number % 50,
                };
                self.tx.put_entry(key, entry).await?;
            }
            Kind::FollowRead => {
                let target = self.follow(key, shape).await?;
                self.read(&target, Intent::Read).await?;
            }
            Kind::FollowWrite => {
                let target = self.follow(key, shape).await?;
                match operation.number % 4 {
                    0 => self.tx.delete(&target).await?,
                    1 => self.write(&target, operation.number).await?,
                    _ => {
                        self.read(&target, Intent::Update).await?;
                        self.write(&target, operation.number).await?;
                    }
                }
            }
            Kind::PairWrite => {
                let value = self.value(operation.number);
                for half in [key, &operation.other_half()] {
                    if operation.number.is_multiple_of(5) {
                        self.tx.delete(half).await?;
                    } else {
                        self.tx.put(half, value.clone()).await?;
                    }
                }
            }
            Kind::PairCheck => {
                let left = self.read(key, Intent::Read).await?;
                let right = self.read(&operation.other_half(), Intent::Read).await?;
                if left.entry != right.entry {
                    // Not `panic!`: the hook would print every doomed incarnation's.
                    std::panic::resume_unwind(Box::new(format!("impossible: the halves of {key:?} differ")));
                }
            }
            Kind::AbortIf => {
                let read = self.read(key, Intent::Read).await?;
                if hash_of(&read).wrapping_add(operation.number).is_multiple_of(3) {
                    return Err(Stop::abort(format!("refused after seeing {:x}", self.seen)));
                }
            }
            Kind::ErrorIf => {
                let read = self.read(key, Intent::Read).await?;
                if hash_of(&read).wrapping_add(operation.number).is_multiple_of(2) {
                    return Ok(Some(Reply::error_owned(format!("ERR stopped after seeing {:x}", self.seen))));
                }
            }
            Kind::PanicIf => {
                let read = self.read(key, Intent::Read).await?;
                if hash_of(&read).wrapping_add(operation.number).is_multiple_of(4) {
                    std::panic::resume_unwind(Box::new(PANIC_ON_PURPOSE.to_owned()));
                }
            }
            Kind::Swallow => {
                // Breaks rule 2 of procedures: an engine must notice on its own.
                if self.tx.read(key, Intent::Read).await.is_err() {
                    let _ = self.tx.put(key, Value::from("swallowed")).await;
                    return Ok(Some(Reply::bulk("swallowed")));
                }
            }
            Kind::Count => {
                let count = self.tx.count().await?;
                self.note(count);
                self.replies.push(Reply::Integer(count as i64));
            }
            Kind::Scan => self.scan(operation.number).await?,
            Kind::Clear => self.tx.clear().await?,
        }
        Ok(None)
    }

    fn note(&mut self, what: u64) {
        self.seen = mix(self.seen.rotate_left(7) ^ what);
    }

    async fn read(&mut self, key: &Key, intent: Intent) -> Result<Read, Stop> {
        let mut read = self.tx.read(key, intent).await?;
        if !self.versions {
            read.version = Position::NONE;
        }
        self.note(hash_of(&read));
        self.replies.push(Reply::Array(vec![
            Reply::Bulk(key.to_blob()),
            Reply::Integer(read.version.0 as i64),
            read.entry.as_ref().map_or(Reply::Nil, |entry| Reply::Bulk(bytes_of(&entry.value))),
        ]));
        Ok(read)
    }

    /// The key that the value of `key` points at.
    async fn follow(&mut self, key: &Key, shape: &Shape) -> Result<Key, Stop> {
        let read = self.read(key, Intent::Read).await?;
        let mut draw = Draw::new(hash_of(&read));
        Ok(shape.key(&mut draw))
    }

    fn value(&mut self, number: u64) -> Value {
        self.written += 1;
        let hash = mix(self.seen ^ mix(self.tx.seed() ^ self.written));
        // Short, long, and structured values.
        match number % 8 {
            0 => Value::from(hash.to_le_bytes().repeat(5)),
            1 => Value::from(HashValue::from_iter([(Blob::from("f"), Blob::from(&hash.to_le_bytes()))])),
            2 => Value::from(ListValue::from_iter([Blob::from(&hash.to_le_bytes())])),
            3 => Value::from(SetValue::from_iter([Blob::from(&hash.to_le_bytes())])),
            4 => Value::from(SortedSetValue::from_iter([(Blob::from(&hash.to_le_bytes()), hash as f64)])),
            _ => Value::from(hash.to_le_bytes().to_vec()),
        }
    }

    async fn write(&mut self, key: &Key, number: u64) -> Result<(), Stop> {
        let value = self.value(number);
        self.tx.put(key, value).await
    }

    /// Lists a space page by page, from somewhere on.
    async fn scan(&mut self, number: u64) -> Result<(), Stop> {
        let space = match number.is_multiple_of(8) {
            true => Space::System,
            false => Space::User,
        };
        let from_hash = match number.is_multiple_of(3) {
            true => 0,
            false => mix(number),
        };
        let limit = [1, 3, 10, 1000][number as usize % 4];
        let mut range = ScanRange::of(space, from_hash, limit);
        for _ in 0..=number % 3 {
            let page = self.tx.scan(range).await?;
            for (key, entry) in &page.entries {
                self.note(hash_bytes(key.as_bytes()) ^ hash_bytes(&bytes_of(&entry.value)));
                self.replies.push(Reply::Bulk(key.to_blob()));
            }
            self.note(page.next_hash.unwrap_or(1));
            self.replies.push(page.next_hash.map_or(Reply::Nil, |hash| Reply::Integer(hash as i64)));
            let Some(next) = page.next_hash else { break };
            range.from_hash = next;
        }
        Ok(())
    }
}

fn hash_of(read: &Read) -> u64 {
    let entry =
        read.entry.as_ref().map_or(0, |entry| hash_bytes(&bytes_of(&entry.value)) ^ entry.expires_at_ms);
    mix(entry ^ mix(read.version.0))
}

fn bytes_of(value: &Value) -> Blob {
    value.as_string().unwrap_or_else(|| {
        let mut out = Vec::new();
        put_entry(&mut out, &Entry::new(value.clone()));
        Blob::from(out)
    })
}

/// The entry that a preloaded store holds under the `index`th key.
pub fn preloaded_entry(index: u64, version: Position) -> Entry {
    Entry::new(mix(index ^ version.0 << 32).to_le_bytes().to_vec())
}

/// The way of a transaction that touches these keys out of so many partitions.
pub(crate) fn route_of_keys(keys: impl Iterator<Item = Key>, of: u16) -> PartitionRoute {
    let keys: Vec<Key> = keys.collect();
    PartitionRoute::of_keys(&keys, &Slots::even(of))
}
