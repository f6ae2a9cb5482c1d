//! YCSB as transactions: a number of reads and read-modify-writes of random records (as in Q-Store's
//! evaluation: 16 operations, half of them updates, `theta` from 0 to 0.99 and beyond).
//!
//! The records of a call are all different; their popularity follows a Zipf distribution, record 0 being the
//! hottest (the index hashes keys, so nothing is gained by scattering them). A row is a counter and a
//! payload. An update adds one to the counter and changes the payload; the check compares the sum of the
//! counters with what the calls say they updated.
//!
//! Where there are several partitions each has so many records, and a call's are of its client's partition.
//! Those of a *multi-partition* call are of several, the client's first, each with as many of the operations
//! as the others, or one more.
//!
//! Calls may be *checked*: then each call's last operation may abort the call, and so many in 100 do. The
//! others write what must not stay if it does.

use crate::dice::{Dice, Skew};
use crate::placement::{self, COUNT_MAX, PARTITIONS_MAX, Placement};
use crate::{Client, Draw, Generator, MISSING, State, Tally, Workload, bytes_at, malformed, row};
use std::sync::Arc;
use txn::fragments::{self, Done, FragmentList, FragmentOutcome, FragmentValues};
use txn::{
    Args, Blob, Call, Entry, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind, FragmentValue,
    Fragments, Key, Procedure, ProcedureFuture, Reply, Request, Stop, Tx, Value,
};

/// Marks an operation as an update.
const UPDATE: u32 = 1 << 31;
/// Marks the number of a record as placed. Numbers that are not stay below it.
const PLACED: u32 = 1 << 30;
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
    placement: Placement,
    multi_partition_percent: u32,
    partitions_each: u16,
    abort_percent: Option<u32>,
}

/// What the caller may choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// How many records a partition has: at most [`COUNT_MAX`] if there are several.
    pub keys: u32,
    /// How many records a call reads or updates: at most [`Fragments::COUNT_MAX`].
    pub operations: usize,
    /// How many operations in 100 only read.
    pub read_percent: u32,
    /// The skew: 0 is uniform, 0.99 is YCSB's own default.
    pub theta: f64,
    /// The size of a record's payload, at most 1,000.
    pub payload_bytes: usize,
    /// How many partitions there are: at most [`PARTITIONS_MAX`].
    pub partitions: u16,
    /// How many calls in 100 are multi-partition calls; none if there is only one partition.
    pub multi_partition_percent: u32,
    /// How many partitions these touch: from 2 to as many as there are, and as there are operations.
    pub partitions_each: u16,
    /// Calls are checked, and so many in 100 abort.
    pub abort_percent: Option<u32>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            keys: 1_000_000,
            operations: 16,
            read_percent: 50,
            theta: 0.0,
            payload_bytes: 100,
            partitions: 1,
            multi_partition_percent: 0,
            partitions_each: 2,
            abort_percent: None,
        }
    }
}

impl Ycsb {
    /// The workload with these options; an error says which of them is impossible.
    pub fn new(options: Options) -> Result<Ycsb, String> {
        let Options { keys, operations, read_percent, theta, payload_bytes, partitions, .. } = options;
        let Options { multi_partition_percent, partitions_each, abort_percent, .. } = options;
        if partitions == 0 || partitions > PARTITIONS_MAX {
            return Err(format!("{partitions} partitions: choose from 1 to {PARTITIONS_MAX}"));
        }
        let keys_max = if partitions == 1 { PLACED - 1 } else { COUNT_MAX };
        if keys == 0 || keys > keys_max {
            return Err(format!("{keys} keys: choose from 1 to {keys_max}"));
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
        if multi_partition_percent > 100 {
            return Err(format!("{multi_partition_percent} percent multi-partition: choose from 0 to 100"));
        }
        if abort_percent.is_some_and(|percent| percent > 100) {
            return Err(format!("{} percent aborts: choose from 0 to 100", abort_percent.unwrap_or(0)));
        }
        let each_max = operations.min(usize::from(partitions));
        let has_multi = partitions > 1 && multi_partition_percent > 0;
        if has_multi && !(2..=each_max).contains(&usize::from(partitions_each)) {
            return Err(format!(
                "{partitions_each} partitions for each call: {operations} operations over {partitions} \
                 partitions touch from 2 to {each_max}"
            ));
        }
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(format!("a payload of {payload_bytes} bytes: choose at most {PAYLOAD_BYTES_MAX}"));
        }
        let skew = Skew::new(u64::from(keys), theta).ok_or_else(|| {
            format!("theta {theta}: choose a number that is not negative, 0.99 for example")
        })?;
        let placement = Placement::new(partitions);
        Ok(Ycsb {
            keys,
            operations,
            read_percent,
            payload_bytes,
            skew,
            placement,
            multi_partition_percent: if has_multi { multi_partition_percent } else { 0 },
            partitions_each,
            abort_percent,
        })
    }

    /// What a partition's records are called in arguments.
    fn name(&self, partition: u16, number: u32) -> u32 {
        match self.placement.of() {
            1 => number,
            _ => self.placement.place(partition, number) | PLACED,
        }
    }

    /// What all records are called in arguments.
    fn names(&self) -> impl Iterator<Item = u32> {
        let partitions = 0..self.placement.of();
        partitions.flat_map(move |partition| (0..self.keys).map(move |number| self.name(partition, number)))
    }
}

fn record(name: u32) -> Key {
    if name & PLACED != 0 {
        return placement::key(b'u', name & !PLACED, []);
    }
    let [a, b, c, d] = name.to_be_bytes();
    Key::new(&[b'u', a, b, c, d])
}

/// The operations of a call: what each one's record is called, with [`UPDATE`] in it or not.
fn operations(args: &[Blob]) -> Result<impl Iterator<Item = u32> + '_, Stop> {
    let bytes = args.first().ok_or_else(malformed)?;
    let (numbers, []) = bytes.as_chunks::<4>() else {
        return Err(malformed());
    };
    Ok(numbers.iter().map(|bytes| u32::from_le_bytes(*bytes)))
}

/// Whether the last operation of a call refuses, if the call is checked.
fn refuses(args: &[Blob]) -> Option<bool> {
    args.get(1).map(|check| check.first() == Some(&1))
}

/// The reason of a checked call that aborts.
const REFUSED: &str = "refused";

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
    if refuses(args) == Some(true) && context.place + 1 == operations(args)?.count() {
        return Err(Stop::abort(REFUSED));
    }
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
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        let fragment = |operation: u32| {
            let kind = if operation & UPDATE == 0 { FragmentKind::Read } else { FragmentKind::Update };
            Fragment::independent(record(operation & !UPDATE), kind)
        };
        let mut list: FragmentList = operations(&request.args).ok()?.map(fragment).collect();
        if let Some(last) = list.last_mut().filter(|_| refuses(&request.args).is_some()) {
            last.abortable = true;
        }
        Fragments::new(list, FragmentCode { execute, reply: Some(reply) })
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(fragments::run(tx, call))
    }
}

struct YcsbGenerator {
    ycsb: Ycsb,
    home: u16,
    dice: Dice,
    access: Arc<dyn Procedure>,
    /// Partitions of the call, and what its records are called.
    touched: Vec<u16>,
    names: Vec<u32>,
    bytes: Vec<u8>,
}

impl YcsbGenerator {
    /// The partitions of the next call.
    fn draw_partitions(&mut self) {
        self.touched.clear();
        self.touched.push(self.home);
        let percent = self.ycsb.multi_partition_percent;
        if percent == 0 || !self.dice.percent(percent) {
            return;
        }
        while self.touched.len() < usize::from(self.ycsb.partitions_each) {
            let partition = self.dice.below(u64::from(self.ycsb.placement.of())) as u16;
            if !self.touched.contains(&partition) {
                self.touched.push(partition);
            }
        }
    }

    /// A record of a partition that the call does not have yet. Where the skew leaves few to choose from, the
    /// next free one is taken.
    fn draw_record(&mut self, partition: u16) -> u32 {
        const TRIES: u32 = 8;
        let mut number = 0;
        for _ in 0..TRIES {
            number = self.ycsb.skew.draw(&mut self.dice) as u32;
            let name = self.ycsb.name(partition, number);
            if !self.names.contains(&name) {
                return name;
            }
        }
        while self.names.contains(&self.ycsb.name(partition, number)) {
            number = (number + 1) % self.ycsb.keys;
        }
        self.ycsb.name(partition, number)
    }
}

impl Generator for YcsbGenerator {
    fn next(&mut self) -> Draw {
        self.draw_partitions();
        self.names.clear();
        self.bytes.clear();
        let mut read_only = true;
        for place in 0..self.ycsb.operations {
            // One partition after the other: whoever waits for values of another one waits once.
            let partition = self.touched[place * self.touched.len() / self.ycsb.operations];
            let name = self.draw_record(partition);
            self.names.push(name);
            let update = !self.dice.percent(self.ycsb.read_percent);
            read_only &= !update;
            let operation = if update { name | UPDATE } else { name };
            self.bytes.extend_from_slice(&operation.to_le_bytes());
        }
        Draw {
            procedure: self.access.clone(),
            args: match self.ycsb.abort_percent {
                None => Args::one(&self.bytes[..]),
                Some(percent) => {
                    let refuses = u8::from(self.dice.percent(percent));
                    [&self.bytes[..], &[refuses]].into_iter().collect()
                }
            },
            read_only,
            route: self.ycsb.placement.route(self.home, self.touched.iter().copied()),
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
    /// The partitions.
    fn parts(&self) -> usize {
        usize::from(self.placement.of())
    }
    fn load(&self, seed: u64, part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        let mut dice = Dice::new(!seed, part as u64);
        let mut bytes = [0; COUNTER_BYTES + PAYLOAD_BYTES_MAX];
        let bytes = &mut bytes[..COUNTER_BYTES + self.payload_bytes];
        for number in 0..self.keys {
            for chunk in bytes[COUNTER_BYTES..].chunks_mut(8) {
                chunk.copy_from_slice(&dice.bits().to_le_bytes()[..chunk.len()]);
            }
            sink(record(self.name(part as u16, number)), Entry::new(&bytes[..]));
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(YcsbGenerator {
            ycsb: self.clone(),
            home: (client.index % usize::from(self.placement.of())) as u16,
            dice: Dice::new(seed, client.index as u64),
            access: Arc::new(AccessRecords),
            touched: Vec::new(),
            names: Vec::with_capacity(self.operations),
            bytes: Vec::with_capacity(4 * self.operations),
        })
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        if self.abort_percent.is_none_or(|percent| percent == 0) {
            tally.nothing_rolled_back()?;
        }
        let mut updates = 0;
        for key in self.names().map(record) {
            let row = row(state.get(&key).map(|entry| entry.value));
            let row = row.ok().filter(|row| row.len() == COUNTER_BYTES + self.payload_bytes);
            let Some(row) = row else {
                return Err(format!("record {key:?} is absent, or its size has changed"));
            };
            updates += bytes_at(&row, 0).map_or(0, i64::from_le_bytes);
        }
        if updates != tally.replies_sum {
            return Err(format!(
                "the counters sum to {updates}, but the calls updated {} times",
                tally.replies_sum
            ));
        }
        let (count, wanted) = (state.count(), u64::from(self.keys) * u64::from(self.placement.of()));
        if count != wanted {
            return Err(format!("there are {count} records, not {wanted}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Serial, assert_seeded, seed};
    use txn::PartitionId;
    use txn::key::partition_of_slot;

    fn small(theta: f64, read_percent: u32) -> Ycsb {
        Ycsb::new(Options { keys: 500, theta, read_percent, payload_bytes: 30, ..Options::default() })
            .unwrap()
    }

    #[test]
    fn checked_calls_abort_as_often_as_they_are_told_and_leave_nothing() {
        let seed = seed(5);
        for percent in [0, 30] {
            let options = Options { keys: 500, abort_percent: Some(percent), ..Options::default() };
            let ycsb = Ycsb::new(options).unwrap();
            let mut state = Serial::loaded(&ycsb, seed);
            let tally = state.drive(&ycsb, seed, 2, 1_000);
            ycsb.check(&mut state, &tally).unwrap();
            let aborted = tally.aborted_by_logic;
            assert!(
                (20 * u64::from(percent) * 9 / 10..=20 * u64::from(percent) * 11 / 10).contains(&aborted)
            );
            assert_eq!(state.in_fragments, 2_000);
        }
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
    fn calls_touch_as_many_partitions_as_they_are_told() {
        let options = Options {
            keys: 300,
            theta: 0.9,
            payload_bytes: 30,
            partitions: 4,
            multi_partition_percent: 40,
            partitions_each: 3,
            ..Options::default()
        };
        let ycsb = Ycsb::new(options).unwrap();
        let client = Client { index: 6, count: 8 };
        let mut generator = ycsb.generator(seed(1), client);
        let mut multi_partition = 0;
        for _ in 0..500 {
            let draw = generator.next();
            let keys: Vec<Key> = operations(&draw.args).unwrap().map(|name| record(name & !UPDATE)).collect();
            let of = |key: &Key| partition_of_slot(key.slot(), 4);
            assert_eq!((keys.len(), of(&keys[0])), (16, PartitionId(2)), "the client's partition is first");
            let each: Vec<usize> = keys.chunk_by(|a, b| of(a) == of(b)).map(<[Key]>::len).collect();
            let mut touched: Vec<PartitionId> = keys.iter().map(of).collect();
            touched.sort_unstable();
            touched.dedup();
            assert_eq!(draw.route.partitions[..], touched[..]);
            match touched.len() {
                1 => assert_eq!(each, [16]),
                _ => assert_eq!(each, [6, 5, 5]),
            }
            multi_partition += usize::from(touched.len() > 1);
        }
        assert!((150..250).contains(&multi_partition), "40 % of 500 are 200: {multi_partition}");
        let mut state = Serial::loaded(&ycsb, 1);
        let tally = state.drive(&ycsb, 1, 4, 200);
        ycsb.check(&mut state, &tally).unwrap();
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
        refused(Options { partitions: 65, ..Options::default() }, "65 partitions");
        let spread = Options { partitions: 4, multi_partition_percent: 50, ..Options::default() };
        refused(Options { multi_partition_percent: 101, ..spread }, "101 percent");
        refused(Options { partitions_each: 1, ..spread }, "from 2 to 4");
        refused(Options { partitions_each: 5, ..spread }, "from 2 to 4");
        refused(Options { operations: 3, partitions_each: 4, ..spread }, "from 2 to 3");
        refused(Options { keys: COUNT_MAX + 1, ..spread }, "1048576 keys");
        refused(Options { payload_bytes: 1_001, ..Options::default() }, "1001 bytes");
    }

    #[test]
    fn calls_are_a_function_of_the_seed() {
        assert_seeded(&small(0.9, 50));
    }
}
