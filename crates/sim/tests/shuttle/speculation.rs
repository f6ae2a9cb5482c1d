//! Q-Store's speculative mode: a transaction that speculates between two questions of its reader.

use crate::engines::run;
use execute::{Assignment, Budget, Committed, Engine, QStore, WorkerId, qstore};
use ordo_sim::draw::seeds;
use shuttle::scheduler::PctScheduler;
use shuttle::thread;
use std::sync::Arc;
use txn::fragments::{self, Done, FragmentOutcome};
use txn::{
    Args, Batch, Call, Entry, Epoch, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind,
    FragmentValue, Fragments, Key, Position, Procedure, ProcedureFuture, Request, RequestId, SessionId, Stop,
    Tx,
};

/// Ranges of the engine. One worker looks at the ranges 0, 1, 2, 3 in this order, and the other one at 2, 3,
/// 0, 1.
const RANGES: usize = 4;

/// A call whose arguments are fragments: `+` and a key adds the call's mark to the record, `?` and a key
/// aborts the call where the record is missing.
struct Marks;

fn fragment(arg: &[u8]) -> Fragment {
    let key = Key::new(&arg[1..]);
    let aborts = arg[0] == b'?';
    let kind = if aborts { FragmentKind::Read } else { FragmentKind::Update };
    let mut fragment = Fragment::independent(key, kind);
    fragment.abortable = aborts;
    fragment
}

fn execute(args: &[txn::Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    let found = context.found.and_then(|entry| entry.value.as_string());
    let mut done = Done::read(FragmentValue::NIL);
    match (args[context.place][0], found) {
        (b'?', None) => return Err(Stop::abort("missing")),
        (b'?', Some(_)) => {}
        (_, found) => {
            let mut marks = found.map_or(Vec::new(), |marks| marks.to_vec());
            marks.push(b'0' + args.len() as u8);
            done.write = Some(Some(Entry::new(marks)));
        }
    }
    Ok(done)
}

impl Procedure for Marks {
    fn name(&self) -> &str {
        "test.marks"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), args.iter().map(|arg| Key::new(&arg[1..])).collect())
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        let list = request.args.iter().map(|arg| fragment(arg)).collect();
        Fragments::new(list, FragmentCode { execute, reply: Some(fragments::all) })
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(fragments::run(tx, call))
    }
}

/// A key of a range.
fn key_in(range: usize) -> String {
    let range_of = |key: &str| ((fragment(key.as_bytes()).hash() >> 32) as usize * RANGES) >> 32;
    let names = (0..).map(|number| format!("+key{number}"));
    names.into_iter().find(|key| range_of(key) == range).expect("some key")[1..].to_owned()
}

/// Three transactions. In some schedules the second one goes from "open, and has read nothing unsettled" to
/// "closed, and has read what is unsettled" while the executor of the third one asks whether the second one
/// is settled.
fn closing_model() {
    let [a, c, b] = [0, 1, 2].map(key_in);
    let calls = [
        // Marks `a`, and aborts, which is found late.
        vec![format!("+{a}"), format!("?{c}")],
        // Marks `b`, and aborts in the end, because `a` is missing. Behind the first one it does not abort.
        vec![format!("+{b}"), format!("?{a}")],
        vec![format!("+{b}")],
    ];
    let last = Position(calls.len() as u64);
    let request = |(sequence, args): (usize, Vec<String>)| {
        let sequence = sequence as u64;
        let id = RequestId { session: SessionId(sequence), sequence, attempt: 0 };
        let args = args.into_iter().map(String::into_bytes).collect();
        Arc::new(Request::new(id, Arc::new(Marks), args))
    };
    let options = qstore::Options {
        capacity: 8,
        ranges: RANGES,
        buckets: 4,
        mode: qstore::Mode::Speculative,
        ..qstore::Options::of(Assignment::alone(2))
    };
    let engine = Arc::new(QStore::new(options));
    engine.deliver(Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position(1),
        requests: calls.into_iter().enumerate().map(request).collect(),
        groups: Vec::new(),
        digest: 0,
    });
    engine.confirm(last);
    let work = move |engine: &QStore, worker| {
        while engine.status().final_committed < last {
            let mut done: Vec<Committed> = Vec::new();
            engine.step(WorkerId(worker), Budget { operations: u32::MAX, heavy: true }, &mut done);
            thread::yield_now();
        }
    };
    let other = {
        let engine = engine.clone();
        thread::spawn(move || work(&engine, 1))
    };
    work(&engine, 0);
    other.join().unwrap();
    let snapshot = engine.view().open();
    let read = |key: &str| engine.view().read_at(&snapshot, &Key::from(key)).entry;
    assert_eq!(read(&a), None, "the first one has aborted");
    assert_eq!(read(&b), Some(Entry::new(&b"1"[..])), "the second one has aborted, the third one has not");
    engine.view().close(snapshot);
}

#[test]
fn a_transaction_that_closes_while_it_is_asked_is_no_settled_one() {
    for seed in seeds(4) {
        println!("seed {seed}");
        run(PctScheduler::new_from_seed(seed, 2, 2_000), closing_model);
    }
}
