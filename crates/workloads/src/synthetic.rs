//! The synthetic benchmark of Sparkle, §5.2: transactions whose keys may be known only while they run.
//!
//! The keys of a partition are index keys (50,000 at low contention, 1,000 at medium contention) and normal
//! keys (the rest of a million). Every transaction reads and updates five random index keys. A
//! *non-dependent* transaction then reads and updates five random normal keys. A *dependent* one reads five
//! normal keys that the five index values name.
//!
//! A *multi-partition* transaction shares its accesses between its client's partition, which has three index
//! and three normal keys, and another one, which has two of each. It ends with the first partition before it
//! begins with the second one: where siblings tell each other what they read, each of them waits once.
//!
//! A value is a counter and a pointer, 16 bytes. An update adds one to the counter; an update of an index key
//! also moves its pointer to a normal key that the arguments choose, so that what a reconnaissance found goes
//! stale (with pointers that never move, Calvin would never have to execute again). Calls reply with the
//! number of updates they made, which the check compares with the sum of all counters: a lost or doubled
//! update shows.

use crate::dice::Dice;
use crate::placement::{self, Placement, are_together, count_of};
use crate::{
    Client, Draw, Generator, MISSING, Native, PerRecord, State, Tally, Workload, bytes_at, malformed, row,
};
use std::sync::Arc;
use txn::fragments::{Done, FragmentOutcome, FragmentValues};
use txn::hash::mix;
use txn::{
    Args, Blob, Call, Entry, Footprint, FragmentCode, FragmentContext, FragmentKind, FragmentValue, Key,
    Outcome, Procedure, Reply, Stop, Tx, Value,
};

const KEYS_EACH: usize = 5;
/// How many of them the first of two partitions has.
const KEYS_FIRST: usize = 3;

/// The workload's options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// How many keys a partition has, index keys included: at most [`placement::COUNT_MAX`].
    pub keys: u32,
    /// How many of them are index keys: the fewer, the more contention.
    pub index_keys: u32,
    /// How many calls in 100 are dependent.
    pub dependent_percent: u32,
    /// How many partitions there are.
    pub partitions: u16,
    /// How many calls in 100 touch two partitions; none if there is only one.
    pub multi_partition_percent: u32,
}

/// The paper's contention levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contention {
    /// 50,000 index keys.
    Low,
    /// 1,000 index keys.
    Medium,
}

impl Synthetic {
    /// The paper's sizes.
    pub fn new(contention: Contention, dependent_percent: u32) -> Synthetic {
        let index_keys = match contention {
            Contention::Low => 50_000,
            Contention::Medium => 1_000,
        };
        Synthetic {
            keys: 1_000_000,
            index_keys,
            dependent_percent,
            partitions: 1,
            multi_partition_percent: 0,
        }
    }
    fn normal_keys(&self) -> u32 {
        self.keys - self.index_keys
    }
}

fn index_key(placed: u32) -> Key {
    placement::key(b'i', placed, [])
}
fn normal_key(placed: u32) -> Key {
    placement::key(b'n', placed, [])
}

/// What every key holds.
#[derive(Clone, Copy)]
struct Cell {
    counter: u64,
    pointer: u32,
}

impl Cell {
    fn decode(value: Option<Value>) -> Result<Cell, Stop> {
        let row = row(value)?;
        Ok(Cell {
            counter: u64::from_le_bytes(bytes_at(&row, 0)?),
            pointer: u32::from_le_bytes(bytes_at(&row, 8)?),
        })
    }
    fn encode(self) -> Blob {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.counter.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.pointer.to_le_bytes());
        Blob::new(&bytes)
    }
}

/// Five index keys, and five normal keys of the same partitions: to update, or for the pointers to move to.
/// Placed numbers.
#[derive(Clone, Copy)]
struct Arguments([u32; 2 * KEYS_EACH]);

impl Arguments {
    fn encode(self) -> Args {
        let mut bytes = [0; 8 * KEYS_EACH];
        for (chunk, number) in bytes.chunks_exact_mut(4).zip(self.0) {
            chunk.copy_from_slice(&number.to_le_bytes());
        }
        Args::one(&bytes)
    }
    fn decode(args: &[Blob]) -> Result<Arguments, Stop> {
        let bytes: &[u8; 8 * KEYS_EACH] =
            args.first().and_then(|blob| blob.as_bytes().try_into().ok()).ok_or_else(malformed)?;
        let mut numbers = [0; 2 * KEYS_EACH];
        for (position, number) in numbers.iter_mut().enumerate() {
            *number = u32::from_le_bytes(bytes_at(bytes, 4 * position)?);
        }
        Ok(Arguments(numbers))
    }
    fn index(&self) -> &[u32] {
        &self.0[..KEYS_EACH]
    }
    fn normal(&self) -> &[u32] {
        &self.0[KEYS_EACH..]
    }
    /// The index keys of each partition, with the normal keys.
    fn parts(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let index = self.index().chunk_by(|a, b| are_together(*a, *b));
        index.scan(self.normal(), |normal, index| {
            let (here, rest) = normal.split_at_checked(index.len())?;
            *normal = rest;
            Some((index, here))
        })
    }
    /// What a call that is not dependent does: the index keys of each partition, and then its normal keys.
    fn updates(&self) -> impl Iterator<Item = Update> {
        self.parts().flat_map(|(index, normal)| {
            let moves = index.iter().zip(normal);
            let moves = moves.map(|(&number, &pointer)| Update::Index { number, pointer });
            moves.chain(normal.iter().map(|&number| Update::Normal { number }))
        })
    }
}

/// An update of a key, by its number.
enum Update {
    /// Counts, and moves the pointer.
    Index { number: u32, pointer: u32 },
    /// Counts.
    Normal { number: u32 },
}

/// Reads an index key, counts, and moves the pointer. Returns where it pointed to.
async fn update_index(tx: &mut Tx, number: u32, pointer: u32) -> Result<u32, Stop> {
    let key = index_key(number);
    let cell = Cell::decode(tx.get_for_update(&key).await?)?;
    let counter = cell.counter + 1;
    tx.put(&key, Cell { counter, pointer }.encode()).await?;
    Ok(cell.pointer)
}

/// The keys of a call that is not dependent, in the order in which it updates them.
fn non_dependent_keys(args: &[Blob]) -> Result<Vec<Key>, Stop> {
    let arguments = Arguments::decode(args)?;
    let updates = arguments.updates();
    Ok(updates
        .map(|update| match update {
            Update::Index { number, .. } => index_key(number),
            Update::Normal { number } => normal_key(number),
        })
        .collect())
}

/// Counts at one key, and moves the pointer of an index key.
fn update(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let arguments = Arguments::decode(args)?;
    let update = arguments.updates().nth(context.place).ok_or_else(malformed)?;
    let Ok(cell) = Cell::decode(context.found.map(|entry| entry.value.clone())) else {
        return Ok(Done::read(Reply::error(MISSING)));
    };
    let pointer = match update {
        Update::Index { pointer, .. } => pointer,
        Update::Normal { .. } => cell.pointer,
    };
    let cell = Cell { counter: cell.counter + 1, pointer };
    Ok(Done::put(Entry::new(cell.encode()), FragmentValue::NIL))
}

fn updated_all(_: &[Blob], values: FragmentValues) -> Reply {
    let wrong = values.into_iter().find(FragmentValue::is_error);
    wrong.map_or(Reply::Integer(2 * KEYS_EACH as i64), FragmentValue::into_reply)
}

async fn dependent(mut tx: Tx, call: Call) -> Outcome {
    let arguments = Arguments::decode(&call)?;
    for (index, normal) in arguments.parts() {
        let mut found = [0; KEYS_EACH];
        for (place, (&number, &pointer)) in found.iter_mut().zip(index.iter().zip(normal)) {
            *place = update_index(&mut tx, number, pointer).await?;
        }
        for &number in &found[..index.len()] {
            Cell::decode(tx.get(&normal_key(number)).await?)?;
        }
    }
    Ok(Reply::Integer(KEYS_EACH as i64))
}

const NON_DEPENDENT: PerRecord = PerRecord {
    name: "synthetic.non_dependent",
    kind: FragmentKind::Update,
    keys: non_dependent_keys,
    code: FragmentCode { execute: update, reply: Some(updated_all) },
};

const DEPENDENT: Native = Native {
    name: "synthetic.dependent",
    footprint: |_| Footprint::unknown(),
    fragments: |_| None,
    run: |tx, call| Box::pin(dependent(tx, call)),
};

struct SyntheticGenerator {
    options: Synthetic,
    placement: Placement,
    /// The client's partition.
    home: u16,
    dice: Dice,
    non_dependent: Arc<dyn Procedure>,
    dependent: Arc<dyn Procedure>,
}

impl SyntheticGenerator {
    /// The partition that the call touches beside its client's, if it touches another one.
    fn second(&mut self) -> Option<u16> {
        let others = u64::from(self.placement.of() - 1);
        if others == 0 || !self.dice.percent(self.options.multi_partition_percent) {
            return None;
        }
        let other = self.dice.below(others) as u16;
        Some(other + u16::from(other >= self.home))
    }
}

impl Generator for SyntheticGenerator {
    fn next(&mut self) -> Draw {
        let dependent = self.dice.percent(self.options.dependent_percent);
        let second = self.second();
        let mut numbers = [0; 2 * KEYS_EACH];
        self.dice.distinct(u64::from(self.options.index_keys), &mut numbers[..KEYS_EACH]);
        self.dice.distinct(u64::from(self.options.normal_keys()), &mut numbers[KEYS_EACH..]);
        for numbers in numbers.chunks_mut(KEYS_EACH) {
            for (place, number) in numbers.iter_mut().enumerate() {
                let is_first = place < KEYS_FIRST;
                let at = second.filter(|_| !is_first).unwrap_or(self.home);
                *number = self.placement.place(at, *number);
            }
        }
        let procedure = if dependent { &self.dependent } else { &self.non_dependent };
        let touched = [self.home, second.unwrap_or(self.home)];
        Draw {
            procedure: procedure.clone(),
            args: Arguments(numbers).encode(),
            read_only: false,
            route: self.placement.route(self.home, touched),
        }
    }
}

impl Workload for Synthetic {
    fn name(&self) -> &'static str {
        "synthetic"
    }
    fn procedures(&self) -> Vec<Arc<dyn Procedure>> {
        vec![NON_DEPENDENT.shared(), DEPENDENT.shared()]
    }
    /// The partitions.
    fn parts(&self) -> usize {
        usize::from(self.partitions)
    }
    fn load(&self, seed: u64, part: usize, sink: &mut dyn FnMut(Key, Entry)) {
        let placement = Placement::new(self.partitions);
        let place = |number| placement.place(part as u16, number);
        let normal_keys = u64::from(self.normal_keys());
        for number in (0..self.index_keys).map(place) {
            let pointer = (mix(seed ^ mix(u64::from(number))) % normal_keys) as u32;
            let cell = Cell { counter: 0, pointer: place(pointer) };
            sink(index_key(number), Entry::new(cell.encode()));
        }
        for number in (0..self.normal_keys()).map(place) {
            let cell = Cell { counter: 0, pointer: 0 };
            sink(normal_key(number), Entry::new(cell.encode()));
        }
    }
    fn generator(&self, seed: u64, client: Client) -> Box<dyn Generator> {
        Box::new(SyntheticGenerator {
            options: *self,
            placement: Placement::new(self.partitions),
            home: (client.index % usize::from(self.partitions.max(1))) as u16,
            dice: Dice::new(seed, client.index as u64),
            non_dependent: NON_DEPENDENT.shared(),
            dependent: DEPENDENT.shared(),
        })
    }
    fn check(&self, state: &mut dyn State, tally: &Tally) -> Result<(), String> {
        tally.no_wrong_replies()?;
        tally.nothing_rolled_back()?;
        let placement = Placement::new(self.partitions);
        let mut updates = 0;
        for partition in 0..self.partitions {
            let place = |number| placement.place(partition, number);
            let index = (0..self.index_keys).map(|number| (index_key(place(number)), true));
            let normal = (0..self.normal_keys()).map(|number| (normal_key(place(number)), false));
            for (key, is_index) in index.chain(normal) {
                let value = state.get(&key).map(|entry| entry.value);
                let cell = Cell::decode(value).map_err(|_| format!("{key:?} is absent"))?;
                let to = cell.pointer;
                if is_index && (to != place(count_of(to)) || count_of(to) >= self.normal_keys()) {
                    return Err(format!("{key:?} points to normal key {to}, which does not exist there"));
                }
                updates += cell.counter as i64;
            }
        }
        if updates != tally.replies_sum {
            return Err(format!(
                "the counters sum to {updates}, but the calls updated {} times",
                tally.replies_sum
            ));
        }
        let (count, expected) = (state.count(), u64::from(self.keys) * u64::from(self.partitions));
        if count != expected {
            return Err(format!("there are {count} records, not {expected}"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Serial, assert_seeded, seed};
    use txn::key::partition_of_slot;

    const SMALL: Synthetic = Synthetic {
        keys: 1_000,
        index_keys: 100,
        dependent_percent: 50,
        partitions: 1,
        multi_partition_percent: 0,
    };

    #[test]
    fn every_update_is_counted_once() {
        let seed = seed(1);
        let mut state = Serial::loaded(&SMALL, seed);
        let tally = state.drive(&SMALL, seed, 2, 1_000);
        SMALL.check(&mut state, &tally).unwrap();
        assert!((2_000 * 5 + 1..2_000 * 10).contains(&tally.replies_sum), "both kinds ran");
    }

    #[test]
    fn a_lost_update_fails_the_check() {
        let mut state = Serial::loaded(&SMALL, 1);
        let tally = state.drive(&SMALL, 1, 2, 1_000);
        let (lost, entry) = state
            .records
            .iter()
            .find(|(_, entry)| Cell::decode(Some(entry.value.clone())).unwrap().counter > 0)
            .unwrap();
        let (lost, cell) = (lost.clone(), Cell::decode(Some(entry.value.clone())).unwrap());
        state.records.insert(lost, Entry::new(Cell { counter: cell.counter - 1, ..cell }.encode()));
        assert!(SMALL.check(&mut state, &tally).unwrap_err().contains("counters"));
    }

    #[test]
    fn dependent_calls_read_what_moving_pointers_name() {
        let all = Synthetic { dependent_percent: 100, ..SMALL };
        let mut state = Serial::loaded(&all, 3);
        let mut generator = all.generator(3, Client::ONLY);
        let mut moved = 0;
        for _ in 0..100 {
            let draw = generator.next();
            let arguments = Arguments::decode(&draw.args).unwrap();
            let pointers: Vec<Key> = arguments
                .index()
                .iter()
                .map(|&n| {
                    normal_key(Cell::decode(state.get(&index_key(n)).map(|e| e.value)).unwrap().pointer)
                })
                .collect();
            let request = draw.into_request(Default::default(), true);
            assert!(request.footprint.keys.is_none(), "the arguments do not tell the keys");
            let (_, touched) = state.run(request);
            assert_eq!(touched.reads[5..], pointers);
            moved +=
                usize::from(arguments.normal().iter().zip(&pointers).any(|(&n, old)| normal_key(n) != *old));
        }
        assert!(moved > 90, "reconnaissance goes stale");
    }

    #[test]
    fn calls_are_a_function_of_the_seed() {
        assert_seeded(&SMALL);
    }

    #[test]
    fn calls_over_two_partitions_touch_three_and_two_keys_of_each_kind() {
        let spread = Synthetic { partitions: 4, multi_partition_percent: 30, ..SMALL };
        let seed = seed(5);
        let mut state = Serial::loaded(&spread, seed);
        let tally = state.drive(&spread, seed, 4, 500);
        spread.check(&mut state, &tally).unwrap();
        let client = Client { index: 2, count: 4 };
        let mut generator = spread.generator(seed, client);
        let mut multi = 0;
        for _ in 0..1_000 {
            let request = generator.next().into_request(Default::default(), false);
            let route = request.route.clone();
            let (_, touched) = state.run(request);
            let mut at = [0; 4];
            for key in &touched.reads {
                at[usize::from(partition_of_slot(key.slot(), 4).0)] += 1;
            }
            let (home, others) = (at[2], at.iter().filter(|&&count| count > 0).count());
            assert_eq!(others, route.partitions.len());
            assert!(route.partitions.iter().all(|p| at[usize::from(p.0)] > 0));
            assert_eq!((route.home.0, route.of()), (2, 4));
            multi += others - 1;
            assert_eq!(home, if others == 1 { 10 } else { 6 });
        }
        assert!((250..350).contains(&multi), "{multi}");
    }
}
