//! Clients that work while nodes fail, and remember exactly what they were told.
//!
//! Each is a closed loop on one connection. A client whose connection breaks, or that waits longer than
//! [`PATIENCE`] for a reply, takes its command's end for unknown and goes to the next node, where it is
//! another client to the judge: what it sent before may still take effect.
//!
//! | work | what must hold |
//! |---|---|
//! | INCR of shared counters | no reply twice; acknowledged <= value <= acknowledged + unknown |
//! | ORDO.IDEMPOTENT INCR, tried at node after node until it is acknowledged | the same, and nothing is unknown |
//! | APPEND and GET, alone and several in MULTI/EXEC | strict serializability, by `sim::history` |
//! | a script that moves money, MGET of all accounts | the total is the same at all times |
//! | pipelines of SET to one key | the value is the last acknowledged one, or an unknown one |

use super::resume::Resume;
use super::worker::Worker;
use server::client::Answer;
use sim::history::Operation;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A client that waits longer goes elsewhere.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Shared counters of each kind.
pub const COUNTERS: u64 = 4;
/// Accounts, each opened with [`OPENING_BALANCE`].
pub const ACCOUNTS: u64 = 10;
/// What every account starts with.
pub const OPENING_BALANCE: i64 = 1_000;
/// Lists that are appended to at the same time.
pub(super) const LISTS: u64 = 8;
/// Appends after which the clients turn to new lists, which keeps reads short.
pub(super) const GENERATION: u64 = 512;
/// Keys that the pipelines of SET share.
pub(super) const REGISTERS: u64 = 16;

/// The key of a shared counter.
pub fn counter_key(counter: u64) -> String {
    format!("counter:{counter}")
}
/// The key of a counter that only idempotent commands raise.
pub fn exact_key(counter: u64) -> String {
    format!("exact:{counter}")
}
/// The key of an account. They are in many slots: a transfer is a transaction over several partitions, if
/// there are.
pub fn account_key(account: u64) -> String {
    format!("account:{account}")
}
/// The key of a list.
pub fn list_key(list: u64) -> String {
    format!("list:{list}")
}
/// The key of a register.
pub fn register_key(register: u64) -> String {
    format!("register:{register}")
}

/// What an APPEND adds for a value.
pub(super) fn item(value: u64) -> String {
    format!("{value},")
}
/// The values of a list as GET shows it; an error if it is not one.
pub fn items(answer: &Answer) -> Result<Vec<u64>, String> {
    match answer {
        Answer::Nil => Ok(Vec::new()),
        Answer::Text(text) => {
            let whole =
                text.strip_suffix(',').ok_or_else(|| format!("a list ends in the middle: {text:?}"))?;
            let values = whole.split(',').map(str::parse).collect::<Result<_, _>>();
            values.map_err(|_| format!("this is no list: {text:?}"))
        }
        other => Err(format!("this is no list: {other:?}")),
    }
}

/// What the clients of all rounds share.
pub struct Load {
    seed: u64,
    addresses: Vec<SocketAddr>,
    origin: Instant,
    /// Numbers values: none is written twice, in any round.
    values: AtomicU64,
    /// Numbers connections.
    connections: AtomicU32,
    /// Whether the server knows ORDO.IDEMPOTENT.
    pub idempotent: AtomicBool,
    stop: AtomicBool,
    /// Acknowledged writes, by node, of all rounds.
    acknowledged: Vec<AtomicU64>,
}

/// What is known of one counter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Raised {
    /// The replies.
    pub replies: Vec<u64>,
    /// How many were sent whose end is unknown.
    pub unknown: u64,
}

/// What is known of one register.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Values that were acknowledged, with the moments of sending and acknowledgement.
    pub acknowledged: Vec<(u64, u64, u64)>,
    /// Values whose end is unknown.
    pub unknown: Vec<u64>,
}

/// What one client saw in a round.
#[derive(Debug, Default)]
pub struct Seen {
    /// What it did with lists.
    pub operations: Vec<Operation>,
    /// By counter.
    pub counters: BTreeMap<u64, Raised>,
    /// By counter that only idempotent commands raise.
    pub exact: BTreeMap<u64, Raised>,
    /// By register.
    pub registers: BTreeMap<u64, Written>,
    /// When writes were acknowledged.
    pub acknowledged_ns: Vec<u64>,
    /// Commands that were acknowledged, reads too.
    pub answered: u64,
    /// Commands whose end is unknown.
    pub unknown: u64,
    /// Commands that a node refused.
    pub refused: u64,
    /// What must not be.
    pub violations: Vec<String>,
}

impl Load {
    /// Clients of these nodes. What they do comes from the seed, but for the machine's timing.
    pub fn new(seed: u64, addresses: Vec<SocketAddr>) -> Load {
        Load {
            seed,
            acknowledged: addresses.iter().map(|_| AtomicU64::new(0)).collect(),
            addresses,
            origin: Instant::now(),
            values: AtomicU64::new(1),
            connections: AtomicU32::new(0),
            idempotent: AtomicBool::new(true),
            stop: AtomicBool::new(false),
        }
    }

    /// The run's seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }
    /// Nanoseconds since the run began.
    pub fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
    /// Where the nodes are.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
    /// A client's number that was not used before.
    pub fn next_client(&self) -> u32 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }
    /// Writes that a node has acknowledged so far.
    pub fn acknowledged_by(&self, node: usize) -> u64 {
        self.acknowledged[node].load(Ordering::Relaxed)
    }
    /// Writes that were acknowledged so far.
    pub fn acknowledged(&self) -> u64 {
        (0..self.addresses.len()).map(|node| self.acknowledged_by(node)).sum()
    }
    /// Lets the clients of a round work, on lists that no earlier round has used.
    pub fn begin(&self) {
        let value = self.values.load(Ordering::Relaxed);
        self.values.store((value / GENERATION + 1) * GENERATION, Ordering::Relaxed);
        self.stop.store(false, Ordering::SeqCst);
    }
    /// Lets the clients end once they have their replies.
    pub fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Works as client `me` of a round until [`Load::end`].
    pub fn work(&self, round: u64, me: u64, resume: &Resume) -> Seen {
        // Every node has clients: a fault that spares one node must find somebody who writes there.
        let node = (round + me) as usize % self.addresses.len();
        let mut worker = Worker::new(self, resume, self.seed ^ txn::hash::mix((round << 16) + me + 1), node);
        while !self.is_over() {
            worker.work();
        }
        worker.seen
    }
    /// Whether the clients are to end.
    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
    /// The first of `count` values that were not written before.
    pub(super) fn next_values(&self, count: u64) -> u64 {
        self.values.fetch_add(count, Ordering::Relaxed)
    }
    /// A node has acknowledged a write.
    pub(super) fn count(&self, node: usize) {
        self.acknowledged[node].fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether all accounts together have what they began with.
pub fn check_total(answer: &Answer) -> Result<(), String> {
    let Answer::List(balances) = answer else {
        return Err(format!("MGET of the accounts answered {answer:?}"));
    };
    let balance = |answer: &Answer| match answer {
        Answer::Text(text) => text.parse::<i64>().ok(),
        _ => None,
    };
    let total = balances.iter().map(balance).sum::<Option<i64>>();
    if total != Some(ACCOUNTS as i64 * OPENING_BALANCE) {
        return Err(format!("the accounts have {total:?} together: {balances:?}"));
    }
    Ok(())
}
