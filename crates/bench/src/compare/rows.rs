//! The rows of the comparison, each with the bar that Ordo is held to.

use crate::redis::{Collections, Filling, Kind, Workload};

/// Commands that a pipelining client sends at once.
const PIPELINE: usize = 16;

/// A workload that all servers of a group run in turn.
#[derive(Clone, Copy)]
pub(super) struct Test {
    pub name: &'static str,
    pub workload: Workload,
    pub pipeline: usize,
    /// The least ratio of throughput to the best rival.
    pub throughput: Option<f64>,
    /// The largest ratio of processor time for a request.
    pub processor: Option<f64>,
    /// The largest ratio of the 99th percentile.
    pub p99: Option<f64>,
}

impl Test {
    const fn new(name: &'static str, workload: Workload, throughput: Option<f64>) -> Test {
        Test { name, workload, pipeline: 1, throughput, processor: None, p99: None }
    }
    /// All clients at one collection, or at one of many, with one command.
    const fn of(name: &'static str, kind: Kind, collections: Collections, throughput: Option<f64>) -> Test {
        Test::new(name, Workload::Command(kind, collections), throughput)
    }
    const fn pipelined(self) -> Test {
        Test { pipeline: PIPELINE, ..self }
    }
    const fn processor(self, bar: f64) -> Test {
        Test { processor: Some(bar), ..self }
    }
    const fn p99(self, bar: f64) -> Test {
        Test { p99: Some(bar), ..self }
    }
}

use Collections::{Many, One};
use Kind::{Hset, Incr, Lpush, Lrange, Mset, Sadd, Xadd, Zadd};

pub(super) const TESTS: [Test; 26] = [
    Test::new("get", Workload::Get, Some(1.05)).processor(0.9),
    Test::new("set", Workload::Set, Some(1.05)).processor(0.9),
    Test::new("get-pipelined", Workload::Get, Some(1.0)).pipelined().processor(0.9).p99(1.2),
    Test::new("set-pipelined", Workload::Set, Some(1.0)).pipelined().processor(0.9).p99(1.2),
    Test::of("incr", Incr, Many, None),
    Test::of("incr-pipelined", Incr, Many, None).pipelined(),
    Test::of("incr-hot-pipelined", Incr, One, Some(1.0)).pipelined(),
    Test::of("lpush", Lpush, One, Some(1.0)),
    Test::of("sadd", Sadd, One, Some(1.0)),
    Test::of("hset", Hset, One, Some(1.0)),
    Test::of("zadd", Zadd, One, Some(1.0)),
    Test::of("xadd", Xadd, One, Some(1.0)),
    Test::of("lpush-pipelined", Lpush, One, Some(0.9)).pipelined(),
    Test::of("sadd-pipelined", Sadd, One, Some(0.9)).pipelined(),
    Test::of("hset-pipelined", Hset, One, Some(0.9)).pipelined(),
    Test::of("zadd-pipelined", Zadd, One, Some(0.9)).pipelined(),
    Test::of("xadd-pipelined", Xadd, One, Some(0.9)).pipelined(),
    Test::of("lpush-many", Lpush, Many, Some(1.1)).pipelined(),
    Test::of("sadd-many", Sadd, Many, Some(1.1)).pipelined(),
    Test::of("hset-many", Hset, Many, Some(1.1)).pipelined(),
    Test::of("zadd-many", Zadd, Many, Some(1.1)).pipelined(),
    Test::of("xadd-many", Xadd, Many, Some(1.1)).pipelined(),
    Test::of("lrange", Lrange, One, None),
    Test::of("mset", Mset, One, None),
    Test::new("transfer", Workload::Transfer, Some(1.3)),
    Test::new("script50us", Workload::Script50us, Some(1.8)),
];

/// The latency of others' GET and SET, which is compared instead of throughput.
pub(super) const LONG_SCRIPT: Test = Test::new("longscript", Workload::LongScript, None).p99(0.05);

/// Each write waits for the disk.
pub(super) const ALWAYS: [Test; 2] = [
    Test::new("set-always", Workload::Set, Some(1.3)),
    Test::new("transfer-always", Workload::Transfer, Some(1.3)),
];

/// A filling that shows how much memory a server takes for a key.
pub(super) struct Memory {
    pub name: &'static str,
    pub workload: Workload,
    pub bar: Option<Bar>,
}

/// A bar for the median of a row.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bar {
    /// The ratio to the best rival, above which Ordo must be where more is better, and below where less is.
    RatioToBest(f64),
    /// The figure itself.
    Figure(f64),
}

const fn filled(name: &'static str, filling: Filling, bar: Option<f64>) -> Memory {
    let bar = match bar {
        Some(bar) => Some(Bar::RatioToBest(bar)),
        None => None,
    };
    Memory { name, workload: Workload::FillWith(filling), bar }
}

pub(super) const MEMORY: [Memory; 7] = [
    Memory { name: "memory-strings", workload: Workload::Fill, bar: Some(Bar::Figure(80.0)) },
    filled("memory-hashes", Filling::Hashes, Some(1.0)),
    filled("memory-sets", Filling::Sets, Some(1.0)),
    filled("memory-zsets", Filling::SortedSets, Some(1.0)),
    filled("memory-lists", Filling::Lists, Some(1.0)),
    filled("memory-streams", Filling::Streams, None),
    filled("memory-large-zset", Filling::LargeSortedSet, Some(1.3)),
];

/// The names of all rows, as `--only` takes them.
pub fn names() -> impl Iterator<Item = &'static str> {
    let tests = TESTS.iter().chain([&LONG_SCRIPT]).chain(&ALWAYS).map(|test| test.name);
    tests.chain(MEMORY.iter().map(|memory| memory.name))
}
