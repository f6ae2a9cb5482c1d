//! A serial executor over an ordered map: the smallest thing that runs procedures, for this crate's tests.

use crate::{Client, State, Tally, Workload};
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use txn::fragments;
use txn::tx::{Read, lend};
use txn::{
    Access, Call, Entry, Footprint, FragmentValue, Intent, Key, Outcome, Position, Request, RequestId,
    ScanPage, ScanRange, SessionId, Stop, Tx, TxContext,
};

/// The records, and the next position.
#[derive(Clone, Default)]
pub struct Serial {
    pub records: BTreeMap<Key, Entry>,
    position: u64,
    /// Requests that were executed in fragments as well, several of them each.
    pub in_fragments: u64,
    /// A write to lose, for tests of the checks.
    pub sabotage: Option<Sabotage>,
}

/// Loses write number `dropped` (from 0) of those to keys that begin with `table`.
#[derive(Clone, Copy)]
pub struct Sabotage {
    pub table: u8,
    pub dropped: usize,
    pub seen: usize,
}

struct Running {
    records: BTreeMap<Key, Entry>,
    written: BTreeMap<Key, Option<Entry>>,
    touched: Touched,
    sabotage: Option<Sabotage>,
}

/// What a transaction asked for: the keys it read and the keys it wrote.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    pub reads: Vec<Key>,
    pub writes: Vec<Key>,
}

impl Access for Running {
    fn read(&mut self, key: &Key, _intent: Intent) -> Poll<Result<Read, Stop>> {
        self.touched.reads.push(key.clone());
        let entry = match self.written.get(key) {
            Some(own) => own.clone(),
            None => self.records.get(key).cloned(),
        };
        Poll::Ready(Ok(Read { entry, version: Position::NONE }))
    }
    fn admit_write(&mut self, _key: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.touched.writes.push(key.clone());
        if let Some(sabotage) = &mut self.sabotage
            && key.as_bytes()[0] == sabotage.table
        {
            sabotage.seen += 1;
            if sabotage.seen == sabotage.dropped.wrapping_add(1) {
                return Ok(());
            }
        }
        self.written.insert(key.clone(), entry);
        Ok(())
    }
    fn scan(&mut self, _range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        unreachable!("no workload scans")
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        unreachable!("no workload counts")
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        unreachable!("no workload clears")
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Serial {
    /// A workload's initial records.
    pub fn loaded(workload: &dyn Workload, seed: u64) -> Serial {
        let mut records = BTreeMap::new();
        for part in 0..workload.parts() {
            workload.load(seed, part, &mut |key, entry| {
                assert!(key.as_bytes().len() <= txn::blob::INLINE_BYTES_MAX, "{key:?} needs an allocation");
                let old = records.insert(key.clone(), entry);
                assert!(old.is_none(), "{key:?} was loaded twice");
            });
        }
        Serial { records, position: 0, in_fragments: 0, sabotage: None }
    }

    /// Runs one request, and tells what it touched.
    pub fn run(&mut self, request: Request) -> (Outcome, Touched) {
        self.position += 1;
        let context = TxContext {
            position: Position(self.position),
            now_ms: 1_700_000_000_000 + self.position,
            ..TxContext::default()
        };
        let request = Arc::new(request);
        let read_only = request.footprint.read_only;
        let mut future = request.procedure.run(Tx::new(context), Call::new(request.clone()));
        let running = Box::new(Running {
            records: std::mem::take(&mut self.records),
            written: BTreeMap::new(),
            touched: Touched::default(),
            sabotage: self.sabotage,
        });
        let (access, poll) = lend(running, || future.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        let running: Box<Running> = access.into_any().downcast().expect("what was lent");
        let mut running = running;
        self.records = std::mem::take(&mut running.records);
        let Poll::Ready(outcome) = poll else { panic!("a procedure awaited something that is not its Tx") };
        assert!(!read_only || running.written.is_empty(), "a read-only procedure wrote");
        self.assert_same_in_fragments(&request, context.now_ms, &outcome, &running);
        // What rolled back lost nothing: only a write that should take effect counts.
        if outcome.is_ok() {
            self.sabotage = running.sabotage;
            for (key, entry) in running.written {
                match entry {
                    Some(entry) => self.records.insert(key, entry),
                    None => self.records.remove(&key),
                };
            }
        }
        (outcome, running.touched)
    }

    /// Asserts that a request's fragments, if it has some, do by themselves what its procedure did. A request
    /// that declares no keys has those that were touched.
    fn assert_same_in_fragments(
        &mut self,
        request: &Request,
        now_ms: u64,
        outcome: &Outcome,
        running: &Running,
    ) {
        let mut request = request.clone();
        if request.footprint.keys.is_none() {
            let Touched { reads, writes } = running.touched.clone();
            request.footprint.keys = Footprint::of_keys(reads, writes).keys;
        }
        let Some((in_fragments, written)) = self.execute_in_fragments(&request, now_ms) else {
            return;
        };
        let fragments = fragments::apart(&request);
        self.in_fragments += u64::from(fragments.is_some_and(|fragments| fragments.list().len() > 1));
        assert_eq!(*outcome, in_fragments, "{request:?} in fragments");
        // A lost write is lost there only.
        if self.sabotage.is_none() && outcome.is_ok() {
            assert_eq!(running.written, written, "{request:?} in fragments");
        }
    }

    /// What a request's fragments come to, and what they write, if it declares some.
    pub fn execute_in_fragments(
        &self,
        request: &Request,
        now_ms: u64,
    ) -> Option<(Outcome, BTreeMap<Key, Option<Entry>>)> {
        let fragments = fragments::apart(request)?;
        let mut values: Vec<FragmentValue> = Vec::new();
        let mut written = BTreeMap::new();
        for (place, fragment) in fragments.list().iter().enumerate() {
            let inputs: Vec<FragmentValue> =
                fragment.inputs.iter().map(|&input| values[usize::from(input)].clone()).collect();
            let found = self.records.get(&fragment.key);
            let done = fragments.execute_apart(request, place, found, &inputs, now_ms, &mut Vec::new());
            match done {
                Ok(done) => {
                    written.extend(done.write.map(|entry| (fragment.key.clone(), entry)));
                    written.extend(done.inserts.into_iter().map(|(key, entry)| (key, Some(entry))));
                    values.push(done.value);
                }
                Err(stop) => return Some((Err(stop), BTreeMap::new())),
            }
        }
        Some((Ok(fragments.reply(&request.args, values.into(), Vec::new())), written))
    }

    /// Runs `calls` calls of each of `clients` clients, interleaved, and asserts that every declared key set
    /// covers what was touched.
    pub fn drive(&mut self, workload: &dyn Workload, seed: u64, clients: usize, calls: usize) -> Tally {
        let mut generators: Vec<_> =
            (0..clients).map(|index| workload.generator(seed, Client { index, count: clients })).collect();
        let mut tally = Tally::default();
        for call in 0..calls {
            for (index, generator) in generators.iter_mut().enumerate() {
                let draw = generator.next();
                let read_only = draw.read_only;
                let id =
                    RequestId { session: SessionId(index as u64 + 1), sequence: call as u64 + 1, attempt: 0 };
                let request = draw.into_request(id, true);
                assert_eq!(
                    read_only, request.footprint.read_only,
                    "{request:?}: a draw knows as much as the footprint"
                );
                let keys = request.footprint.keys.clone();
                let (outcome, touched) = self.run(request);
                if let Some(keys) = keys {
                    for key in &touched.reads {
                        assert!(
                            keys.reads.contains(key) || keys.writes.contains(key),
                            "{key:?} is read, not declared"
                        );
                    }
                    for key in &touched.writes {
                        assert!(
                            keys.writes.contains(key) || keys.covers_inserts && !touched.reads.contains(key),
                            "{key:?} is written, not declared"
                        );
                    }
                }
                tally.add(&outcome);
            }
        }
        tally
    }
}

impl State for Serial {
    fn get(&mut self, key: &Key) -> Option<Entry> {
        self.records.get(key).cloned()
    }
    fn count(&mut self) -> u64 {
        self.records.len() as u64
    }
}

/// The seed of a randomized test: `ORDO_SEED`, or `default`. Printed, so that a failure can be replayed.
pub fn seed(default: u64) -> u64 {
    let seed = std::env::var("ORDO_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    println!("seed {seed}: replay with ORDO_SEED={seed}");
    seed
}

/// Asserts that equal seeds give equal records and calls, and that other seeds and other clients give other
/// calls.
pub fn assert_seeded(workload: &dyn Workload) {
    let draws = |seed: u64, index: usize| -> Vec<(String, Vec<u8>)> {
        let mut generator = workload.generator(seed, Client { index, count: 2 });
        (0..200)
            .map(|_| {
                let draw = generator.next();
                (draw.procedure.name().to_owned(), draw.args.concat())
            })
            .collect()
    };
    assert_eq!(draws(5, 0), draws(5, 0));
    assert_ne!(draws(5, 0), draws(6, 0));
    assert_ne!(draws(5, 0), draws(5, 1));
    assert!(
        Serial::loaded(workload, 5).records == Serial::loaded(workload, 5).records,
        "equal seeds load equal records"
    );
}
