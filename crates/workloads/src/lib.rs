//! Benchmark workloads: procedures, generators of their calls, and checks of what they leave behind.
//!
//! A [`Workload`] brings everything that a driver needs and knows nothing of engines, threads or clocks:
//!
//! 1. `load` gives the initial records, in parts that may be loaded in parallel;
//! 2. each client thread owns a [`Generator`], which draws one [`Draw`] (a procedure with its arguments)
//!    after the other;
//! 3. the driver adds every outcome to a [`Tally`];
//! 4. `check` reads the final state and says whether any serial order could have led there with this tally.
//!
//! | workload | from | what it stresses |
//! |---|---|---|
//! | [`bank`] | Archie's evaluation | short conflicting transfers that roll back, and audits that see torn snapshots |
//! | [`synthetic`] | Sparkle §5.2 | keys that are known only while running |
//! | [`tpcc`] | the TPC-C specification, with Sparkle's mixes | long and short transactions that meet at hot rows |
//! | [`vacation`] | STAMP, as Archie's evaluation uses it | longer transactions that query much and write little; records that appear and vanish |
//! | [`ycsb`] | Q-Store's evaluation | skew: how hot the hottest records are |
//!
//! [`synthetic`] and [`tpcc`] may be spread over several partitions ([`placement`]): client `i` is at
//! partition `i` modulo their number, and [`Draw::route`] says whom a call touches.
//!
//! Everything is a function of its seed: the same seed gives the same records and the same stream of calls.
//! Generators run on the measured threads, so they draw from xoshiro and encode arguments into one
//! [`txn::Blob`]. Rows are binary with fixed offsets, and keys fit into a [`Key`] without an allocation.

pub mod bank;
pub mod dice;
pub mod placement;
pub mod synthetic;
#[cfg(test)]
mod testing;
pub mod tpcc;
pub mod vacation;
pub mod ycsb;

pub use bank::Bank;
pub use synthetic::Synthetic;
pub use tpcc::Tpcc;
pub use vacation::Vacation;
pub use ycsb::Ycsb;

use std::sync::Arc;
use txn::fragments::{self, Done};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentCode, FragmentKind, Fragments, Key, Outcome,
    PartitionRoute, Procedure, ProcedureFuture, Reply, Request, RequestId, Stop, Tx, Value,
};

/// A benchmark: its initial records, its procedures, the stream of calls of each client, and what must hold
/// at the end.
pub trait Workload: Send + Sync {
    /// The name, as `--workload` takes it.
    fn name(&self) -> &'static str;
    /// The procedures that generators call: what a registry needs to read them back from a log.
    fn procedures(&self) -> Vec<Arc<dyn Procedure>>;
    /// How many parts the initial records have.
    fn parts(&self) -> usize {
        1
    }
    /// Gives the records of one part. Parts share no keys, and may be loaded in any order and in parallel.
    fn load(&self, seed: u64, part: usize, sink: &mut dyn FnMut(Key, Entry));
    /// The stream of calls of one client.
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator>;
    /// Whether the final state is one that a serial execution of the tallied calls could have left behind.
    /// The error says which condition failed, where, and the two values that should agree.
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String>;
}

/// One of the clients that issue calls at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// Its number, from 0.
    pub index: usize,
    /// How many there are.
    pub count: usize,
}

impl Client {
    /// The only client.
    pub const ONLY: Client = Client { index: 0, count: 1 };
}

/// Draws calls.
pub trait Generator: Send {
    /// The next call.
    fn next(&mut self) -> Draw;
}

/// A call that a generator drew.
#[derive(Clone)]
pub struct Draw {
    /// What to do. Each generator has its own instance, so that clients do not share a reference count.
    pub procedure: Arc<dyn Procedure>,
    /// With what.
    pub args: Args,
    /// It writes nothing: what its footprint says too, without building one.
    pub read_only: bool,
    /// Which partitions it touches.
    pub route: PartitionRoute,
}

impl Draw {
    /// The request, with the key sets that the arguments tell if `declare_keys`. Engines that find keys while
    /// running need no sets, and building them costs as much as drawing the call.
    pub fn into_request(self, id: RequestId, declare_keys: bool) -> Request {
        if declare_keys {
            return Request { route: self.route, ..Request::new(id, self.procedure, self.args) };
        }
        let footprint = Footprint { read_only: self.read_only, ..Footprint::default() };
        Request {
            id,
            slots_version: 0,
            procedure: self.procedure,
            args: self.args,
            footprint,
            route: self.route,
            elsewhere: false,
        }
    }
}

/// The final state, as checks read it.
pub trait State {
    /// What a key holds.
    fn get(&mut self, key: &Key) -> Option<Entry>;
    /// The number of keys that hold something.
    fn count(&mut self) -> u64;
}

/// What came back from all calls of a run. A driver keeps one per thread and merges them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls that took effect.
    pub committed: u64,
    /// Calls that rolled back by their own logic.
    pub aborted_by_logic: u64,
    /// Calls that ended with a reply or a reason that says: the procedure saw what no serial execution shows.
    pub wrong_replies: u64,
    /// The sum of all integer replies. Procedures of workloads that count updates reply with their number.
    pub replies_sum: i64,
}

impl Tally {
    /// Adds an outcome.
    #[inline]
    pub fn add(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(reply) => {
                self.committed += 1;
                match reply {
                    Reply::Integer(value) => self.replies_sum += value,
                    Reply::Error(_) => self.wrong_replies += 1,
                    _ => {}
                }
            }
            Err(Stop::Abort(reason)) if reason.starts_with(WRONG) => self.wrong_replies += 1,
            Err(_) => self.aborted_by_logic += 1,
        }
    }
    /// Adds another thread's tally.
    pub fn merge(&mut self, other: &Tally) {
        self.committed += other.committed;
        self.aborted_by_logic += other.aborted_by_logic;
        self.wrong_replies += other.wrong_replies;
        self.replies_sum += other.replies_sum;
    }
    fn nothing_rolled_back(&self) -> Result<(), String> {
        if self.aborted_by_logic == 0 {
            return Ok(());
        }
        Err(format!("{} calls rolled back, though none has a reason to", self.aborted_by_logic))
    }
    fn no_wrong_replies(&self) -> Result<(), String> {
        if self.wrong_replies == 0 {
            return Ok(());
        }
        Err(format!(
            "{} calls ({} committed) saw a state that no serial execution shows",
            self.wrong_replies, self.committed
        ))
    }
}

/// A procedure that is a function of its arguments alone.
struct Native {
    name: &'static str,
    footprint: fn(&Args) -> Footprint,
    /// The call as fragments, which do what `run` does where every row is there that they name, as the
    /// generators' are: `testing` compares the two.
    fragments: fn(&Request) -> Option<Fragments>,
    run: fn(Tx, Call) -> ProcedureFuture,
}

impl Native {
    fn shared(self) -> Arc<dyn Procedure> {
        Arc::new(self)
    }
}

impl Procedure for Native {
    fn name(&self) -> &str {
        self.name
    }
    fn footprint(&self, args: &Args) -> Footprint {
        (self.footprint)(args)
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        (self.fragments)(request)
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        (self.run)(tx, call)
    }
}

/// A procedure that does something to each of its records by itself, and whose arguments tell the keys.
struct PerRecord {
    name: &'static str,
    kind: FragmentKind,
    keys: fn(&[Blob]) -> Result<Vec<Key>, Stop>,
    code: FragmentCode,
}

impl PerRecord {
    fn shared(self) -> Arc<dyn Procedure> {
        Arc::new(self)
    }
}

impl Procedure for PerRecord {
    fn name(&self) -> &str {
        self.name
    }
    fn footprint(&self, args: &Args) -> Footprint {
        match ((self.keys)(args), self.kind.writes()) {
            (Ok(keys), true) => Footprint::of_keys(vec![], keys),
            (Ok(keys), false) => Footprint::of_keys(keys, vec![]),
            (Err(_), true) => Footprint::unknown(),
            (Err(_), false) => Footprint::read_only(),
        }
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        let keys = (self.keys)(&request.args).ok()?.into_iter();
        Fragments::new(keys.map(|key| Fragment::independent(key, self.kind)).collect(), self.code)
    }
    fn run(&self, mut tx: Tx, call: Call) -> ProcedureFuture {
        let PerRecord { kind, keys, code, .. } = *self;
        Box::pin(async move {
            let keys = tx.expecting(keys(&call)?.into_iter());
            fragments::run_in_order(&mut tx, &call, code, kind, keys, &[]).await
        })
    }
}

/// How a reply or a reason begins that only a broken engine (or a foreign caller) can provoke.
const WRONG: &str = "WRONG ";

/// Arguments that no generator of this crate encodes.
fn malformed() -> Stop {
    Stop::abort("WRONG the arguments are not what this procedure's generator encodes")
}

const MISSING: &str =
    "WRONG a row is absent, or not of the workload's making: load the workload's records first";

/// A row that must exist at this point of every serial execution.
fn missing() -> Stop {
    Stop::abort(MISSING)
}

/// The value of a fragment whose record must exist and does not: the reply is an error then, too.
fn missing_value() -> Done {
    Done::read(Reply::error(MISSING))
}

/// The row of a record that must exist.
fn row(value: Option<Value>) -> Result<Blob, Stop> {
    match value {
        Some(Value::String(row)) => Ok(row),
        _ => Err(missing()),
    }
}

/// The `N` bytes of a fixed-size row (or argument) from `offset` on.
fn bytes_at<const N: usize>(row: &[u8], offset: usize) -> Result<[u8; N], Stop> {
    row.get(offset..offset + N).and_then(|bytes| bytes.try_into().ok()).ok_or_else(missing)
}
