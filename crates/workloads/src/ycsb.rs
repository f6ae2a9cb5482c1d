//! YCSB as transactions: a number of reads and read-modify-writes of random records (as in Q-Store's
//! evaluation: 16 operations, half of them updates, `theta` from 0 to 0.99 and beyond).
//!
//! The records of a call are all different; their popularity follows a Zipf distribution, record 0 being the
//! hottest (the index hashes keys, so nothing is gained by scattering them). A row is a counter and a
//! payload. An update adds one to the counter and changes the payload; the check compares the sum of the
//! counters with what the calls say they updated.

use crate::dice::{Dice, Skew};
use crate::{Client, Draw, Generator, MISSING, State, Tally, Workload, bytes_at, malformed, row};
use std::sync::Arc;
use txn::fragments::{self, Done, FragmentOutcome, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind, FragmentValue,
    Fragments, Key, PartitionRoute, Procedure, ProcedureFuture, Reply, Stop, Tx, Value,
};

/// Marks an operation as an update. Numbers of records stay below it.
const UPDATE: u32 = 1 << 31;
const COUNTER_BYTES: usize = 8;
const PAYLOAD_BYTES_MAX: usize = 1_000;

/// The workload.
#[derive(Clone, Debug)]
pub struct Ycsb {
    keys: u32,
    operations: usize,
    read_percent: u32,
    payload_bytes: usize,
    skew: Skew,
}

/// What the caller may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How many records there are.
    pub keys: u32,
    /// How many records a call reads or updates: at most [`Fragments::COUNT_MAX`].
    pub operations: usize,
    /// How many operations in 100 only read.
    pub read_percent: u32,
    /// The skew: 0 is uniform, 0.99 is YCSB's own default.
    pub theta: f64,
    /// The size of a record's payload, at most 1,000.
    pub payload_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { keys: 1_000_000, operations: 16, read_percent: 50, theta: 0.0, payload_bytes: 100 }
    }
}

impl Ycsb {
    /// The workload with these options; an error says which of them is impossible.
    pub fn new(options: Options) -> Result<Ycsb, String> {
        let Options { keys, operations, read_percent, theta, payload_bytes } = options;
        if keys == 0 || keys >= UPDATE {
            return Err(format!("{keys} keys: choose from 1 to {}", UPDATE - 1));
        }
        let operations_max = Fragments::COUNT_MAX.min(keys as usize);
        if operations == 0 || operations > operations_max {
            return Err(format!(
                "{operations} operations of different records out of {keys}: choose from 1 to \
                 {operations_max}"
            ));
        }
        if read_percent > 100 {
            return Err(format!("{read_percent} percent reads: choose from 0 to 100"));
        }
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(format!("a payload of {payload_bytes} bytes: choose at most {PAYLOAD_BYTES_MAX}"));
        }
        let skew = Skew::new(u64::from(keys), theta).ok_or_else(|| {
            format!("theta {theta}: choose a number that is not negative, 0.99 for example")
        })?;
        Ok(Ycsb { keys, operations, read_percent, payload_bytes, skew })
    }
}

fn record(number: u32) -> Key {
    let [a, b, c, d] = number.to_be_bytes();
    Key::new(&[b'u', a, b, c, d])
}

/// The operations of a call: a number each, the record's, with [`UPDATE`] in it or not.
fn operations(args: &[Blob]) -> Result<impl Iterator<Item = u32> + '_, Stop> {
    let bytes = args.first().ok_or_else(malformed)?;
    let (numbers, []) = bytes.as_chunks::<4>() else {
        return Err(malformed());
    };
    Ok(numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)))
}

fn updated(old: &Blob) -> Result<Blob, Stop> {
    let mut bytes = [0; COUNTER_BYTES + PAYLOAD_BYTES_MAX];
    let bytes = bytes.get_mut(..old.len()).ok_or_else(malformed)?;
    bytes.copy_from_slice(old);
    let counter = u64::from_le_bytes(bytes_at(bytes, 0)?) + 1;
    bytes[..COUNTER_BYTES].copy_from_slice(&counter.to_le_bytes());
    let payload = &mut bytes[COUNTER_BYTES..];
    let width = payload.len().min(COUNTER_BYTES);
    payload[..width].copy_from_slice(&counter.to_be_bytes()[COUNTER_BYTES - width..]);
    Ok(Blob::new(bytes))
}

/// Each operation is a fragment.
fn execute(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let is_update = operations(args)?.nth(context.place).is_some_and(|operation| operation & UPDATE != 0);
    let old = match context.found.map(|entry| &entry.value) {
        Some(Value::String(old)) => old,
        _ => return Ok(Done::read(Reply::error(MISSING))),
    };
    Ok(match is_update {
        true => Done::put(Entry::new(updated(old)?), FragmentValue::NIL),
        false => Done::read(FragmentValue::NIL),
    })
}

/// The number of updates, unless a row was not what it should be.
fn reply(args: &[Blob], values: FragmentValues) -> Reply {
    let wrong = values.into_iter().find(FragmentValue::is_error);
    wrong.map(FragmentValue::into_reply).unwrap_or_else(|| {
        let updates =
            operations(args).map_or(0, |all| all.filter(|operation| operation & UPDATE != 0).count());
        Reply::Integer(updates as i64)
    })
}

/// The only procedure.
struct AccessRecords;

impl Procedure for AccessRecords {
    fn name(&self) -> &str {
        "ycsb.access"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        let Ok(operations) = operations(args) else {
            return Footprint::unknown();
        };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for operation in operations {
            let set = if operation & UPDATE == 0 { &mut reads } else { &mut writes };
            set.push(record(operation & !UPDATE));
        }
        Footprint::of_keys(reads, writes)
    }
    fn fragments(&self, args: &Args) -> Option<Fragments> {
        let fragment = |operation: u32| {
            let kind = if operation & UPDATE == 0 { FragmentKind::Read } else { FragmentKind::Update };
            Fragment::independent(record(operation & !UPDATE), kind)
        };
        let list = operations(args).ok()?.map(fragment).collect();
        Fragments::new(list, FragmentCode { execute, reply: Some(reply) })
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(fragments::run(tx, call))
    }
}

struct YcsbGenerator {
    ycsb: Ycsb,
    dice: Dice,
    access: Arc<dyn Procedure>,
    numbers: Vec<u32>,
    bytes: Vec<u8>,
}

impl YcsbGenerator {
    /// A record that the call does not have yet. Where the skew leaves few to choose from, the next free one
    /// is taken.
    fn draw_record(&mut self) -> u32 {
        const TRIES: u32 = 8;
        let mut number = 0;
        for _ in 0..TRIES {
            number = self.ycsb.skew.draw(&mut self.dice) as u32;
            if !self.numbers.contains(&number) {
                return number;
            }
        }
        while self.numbers.contains(&number) {
            number = (number + 1) % self.ycsb.keys;
        }
        number
    }
}

impl Generator for YcsbGenerator {
    fn next(&mut self) -> Draw {
        self.numbers.clear();
        self.bytes.clear();
        let mut read_only = true;
        for _ in 0..self.ycsb.operations {
            let number = self.draw_record();
            self.numbers.push(number);
            let update = !self.dice.percent(self.ycsb.read_percent);
            read_only &= !update;
            let operation = if update { number | UPDATE } else { number };
            self.bytes.extend_from_slice(&operation.to_le_bytes());
        }
        Draw {
            procedure: self.access.clone(),
            args: Args::one(&self.bytes[..]),
            read_only,
            route: PartitionRoute::default(),
        }
    }
}

impl Workload for Ycsb {
    fn name(&self) -> &'static str {
        "ycsb"
    }
    fn procedures(&self) -> Vec<Arc<dyn Procedure>> {
        vec![Arc::new(AccessRecords)]
    }
    fn load(&self, seed: u64, _part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        let mut dice = Dice::new(!seed, 0);
        let mut bytes = [0; COUNTER_BYTES + PAYLOAD_BYTES_MAX];
        let bytes = &mut bytes[..COUNTER_BYTES + self.payload_bytes];
        for number in 0..self.keys {
            for chunk in bytes[COUNTER_BYTES..].chunks_mut(8) {
                chunk.copy_from_slice(&dice.bits().to_le_bytes()[..chunk.len()]);
            }
            sink(record(number), Entry::new(&bytes[..]));
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(YcsbGenerator {
            ycsb: self.clone(),
            dice: Dice::new(seed, client.index as u64),
            access: Arc::new(AccessRecords),
            numbers: Vec::with_capacity(self.operations),
            bytes: Vec::with_capacity(4 * self.operations),
        })
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        tally.nothing_rolled_back()?;
        let mut updates = 0;
        for number in 0..self.keys {
            let row = row(state.get(&record(number)).map(|entry| entry.value));
            let row = row.ok().filter(|row| row.len() == COUNTER_BYTES + self.payload_bytes);
            let Some(row) = row else {
                return Err(format!("record {number} is absent, or its size has changed"));
            };
            updates += bytes_at(&row, 0).map_or(0, i64::from_le_bytes);
        }
        if updates != tally.replies_sum {
            return Err(format!(
                "the counters sum to {updates}, but the calls updated {} times",
                tally.replies_sum
            ));
        }
        let count = state.count();
        if count != u64::from(self.keys) {
            return Err(format!("there are {count} records, not {}", self.keys));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Serial, assert_seeded, seed};

    fn small(theta: f64, read_percent: u32) -> Ycsb {
        Ycsb::new(Options { keys: 500, theta, read_percent, payload_bytes: 30, ..Options::default() })
            .unwrap()
    }

    #[test]
    fn every_update_is_counted_once() {
        let seed = seed(1);
        for (theta, read_percent) in [(0.0, 50), (0.99, 50), (3.0, 10)] {
            let ycsb = small(theta, read_percent);
            let mut state = Serial::loaded(&ycsb, seed);
            let tally = state.drive(&ycsb, seed, 2, 500);
            ycsb.check(&mut state, &tally).unwrap();
            let share = 100.0 * tally.replies_sum as f64 / (1_000.0 * 16.0);
            assert!((share - f64::from(100 - read_percent)).abs() < 2.0, "{share} % updates");
        }
    }

    #[test]
    fn a_lost_update_fails_the_check() {
        let ycsb = small(0.5, 50);
        let mut state = Serial::loaded(&ycsb, 1);
        let old = state.records[&record(0)].clone();
        let tally = state.drive(&ycsb, 1, 1, 100);
        assert_ne!(state.records[&record(0)], old, "the hottest record is updated");
        state.records.insert(record(0), old);
        assert!(ycsb.check(&mut state, &tally).unwrap_err().contains("counters"));
    }

    #[test]
    fn calls_are_of_different_records_and_know_if_they_only_read() {
        for theta in [0.0, 0.99, 5.0] {
            let mut generator = small(theta, 95).generator(1, Client::ONLY);
            let mut read_only = 0;
            for _ in 0..300 {
                let draw = generator.next();
                let mut numbers: Vec<u32> = operations(&draw.args).unwrap().map(|n| n & !UPDATE).collect();
                numbers.sort_unstable();
                numbers.dedup();
                assert_eq!(numbers.len(), 16);
                assert_eq!(draw.read_only, operations(&draw.args).unwrap().all(|n| n & UPDATE == 0));
                read_only += usize::from(draw.read_only);
            }
            assert!((60..200).contains(&read_only), "0.95^16 of 300 is 132: {read_only}");
        }
    }

    #[test]
    fn impossible_options_are_refused_with_the_reason() {
        let refused = |options, text: &str| assert!(Ycsb::new(options).unwrap_err().contains(text));
        refused(Options { keys: 0, ..Options::default() }, "0 keys");
        refused(Options { keys: 5, ..Options::default() }, "16 operations");
        refused(Options { theta: -0.5, ..Options::default() }, "theta -0.5");
        refused(Options { theta: f64::NAN, ..Options::default() }, "theta NaN");
        refused(Options { read_percent: 101, ..Options::default() }, "101 percent");
        refused(Options { payload_bytes: 1_001, ..Options::default() }, "1001 bytes");
    }

    #[test]
    fn calls_are_a_function_of_the_seed() {
        assert_seeded(&small(0.9, 50));
    }
}
