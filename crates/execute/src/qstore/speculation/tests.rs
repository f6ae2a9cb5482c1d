//! The parts of speculation one by one.

use super::*;
use crate::conservative::{Job, Known};
use crate::engine::{Assignment, Budget, Committed, Engine, Progress, WorkerId};
use crate::qstore::Mode;
use crate::qstore::{Options, QStore};
use std::sync::atomic::AtomicU32;
use txn::fragments::{Done, FragmentOutcome, FragmentValues};
use txn::{
    Args, Batch, Blob, Call, Entry, Epoch, Footprint, Fragment, FragmentCode, FragmentContext, FragmentKind,
    FragmentValue, Fragments, Key, PartitionId, Procedure, ProcedureFuture, Reply, Request, RequestId,
    SessionId, Stop, Tx, TxContext,
};

/// The ranges of the tests' engines.
const RANGES: usize = 2;

/// How often an outcome was made.
static REPLIES: AtomicU32 = AtomicU32::new(0);

/// A call whose arguments are fragments: `+` and a key writes the record, `?` and a key aborts the call.
struct Writes;

fn fragment(arg: &[u8]) -> Fragment {
    let aborts = arg[0] == b'?';
    let kind = if aborts { FragmentKind::Read } else { FragmentKind::Update };
    let mut fragment = Fragment::independent(Key::new(&arg[1..]), kind);
    fragment.abortable = aborts;
    fragment
}

fn execute(args: &[Blob], context: FragmentContext<'_>) -> FragmentOutcome {
    match args[context.place][0] {
        b'?' => Err(Stop::abort("always")),
        _ => Ok(Done::put(Entry::new("written"), FragmentValue::NIL)),
    }
}

fn count_reply(_: &[Blob], _: FragmentValues) -> Reply {
    REPLIES.fetch_add(1, Ordering::SeqCst);
    Reply::Nil
}

impl Procedure for Writes {
    fn name(&self) -> &str {
        "test.writes"
    }
    fn footprint(&self, args: &Args) -> Footprint {
        Footprint::of_keys(Vec::new(), args.iter().map(|arg| Key::new(&arg[1..])).collect())
    }
    fn fragments(&self, request: &Request) -> Option<Fragments> {
        let list = request.args.iter().map(|arg| fragment(arg)).collect();
        Fragments::new(list, FragmentCode { execute, reply: Some(count_reply) })
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        Box::pin(txn::fragments::run(tx, call))
    }
}

fn request(args: &[&str]) -> Arc<Request> {
    let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
    let args = args.iter().map(|arg| arg.as_bytes().to_vec()).collect();
    Arc::new(Request::new(id, Arc::new(Writes), args))
}

fn split(position: u64, args: &[&str]) -> Arc<Split> {
    let request = request(args);
    let fragments = Writes.fragments(&request).expect("a list of fragments");
    let context = TxContext::of(&request, Position(position), 1);
    let job = Job { context, request, member: None, known: Known::Keys };
    Arc::new(Split::new(job, fragments, PartitionId(0), |_| 0))
}

/// A key of a range, as an argument that writes.
fn key_in(range: usize) -> String {
    let range_of = |arg: &str| ((fragment(arg.as_bytes()).hash() >> 32) as usize * RANGES) >> 32;
    (0..).map(|number| format!("+key{number}")).find(|arg| range_of(arg) == range).expect("some key")
}

#[test]
fn a_final_position_is_settled_although_the_next_one_was_not_executed() {
    let frontier = Frontier::default();
    let released = frontier.advance(Position(5), Position(5), |position| position.0 <= 5);
    assert!(released.is_empty());
    assert!(frontier.has_settled(Position(5)), "who waits for it now waits for ever");
    assert!(frontier.wait(Position(5), Waiter::Whole(Position(6))).is_some());
    assert!(!frontier.has_settled(Position(6)));
}

#[test]
fn the_frontier_releases_what_waits_for_positions_up_to_it() {
    let frontier = Frontier::default();
    for (writer, waiter) in [(1, 7), (2, 8), (3, 9)] {
        assert!(frontier.wait(Position(writer), Waiter::Whole(Position(waiter))).is_none());
    }
    // The second one was executed first: nothing is released before the first one was.
    assert!(frontier.advance(Position(2), Position::NONE, |position| position.0 == 2).is_empty());
    let released = frontier.advance(Position(1), Position::NONE, |position| position.0 <= 2);
    let released = released.into_iter().map(|(at, waiter)| match waiter {
        Waiter::Whole(waiter) => (at.0, waiter.0),
        Waiter::Fragment(..) => unreachable!("only whole transactions wait here"),
    });
    assert_eq!(released.collect::<Vec<_>>(), [(1, 7), (2, 8)]);
    assert!(frontier.has_settled(Position(2)) && !frontier.has_settled(Position(3)));
    frontier.lower(Position(1));
    assert!(frontier.has_settled(Position(1)) && !frontier.has_settled(Position(2)));
}

#[test]
fn dependents_are_found_through_others_and_once() {
    let first = split(1, &["+a", "?b"]);
    let others = [split(2, &["+a", "+c"]), split(3, &["+a", "+c"]), split(4, &["+d"])];
    let [second, third, fourth] = &others;
    // Nothing settled has dependents.
    assert!(!second.register(third, 0) && !fourth.register(third, 0));
    assert!(dependents_of(&first).is_empty());
    assert!(first.register(second, 0));
    // Two fragments of the third one are registered with the second one, and one of these with the first one.
    assert!(second.register(third, 0) && second.register(third, 1) && first.register(third, 0));
    let found = dependents_of(&first);
    let places = |at: u64| {
        let mut places = found[&Position(at)].1.clone();
        places.sort_unstable();
        places.dedup();
        places
    };
    assert_eq!(found.keys().map(|at| at.0).collect::<Vec<_>>(), [2, 3]);
    assert_eq!((places(2), places(3)), (vec![0], vec![0, 1]));
}

#[test]
fn no_outcome_is_made_of_an_unsettled_transaction_that_is_undone() {
    let (a, c) = (key_in(0), key_in(1).replace('+', "?"));
    let options = Options { ranges: RANGES, mode: Mode::Speculative, ..Options::of(Assignment::alone(1)) };
    let engine = QStore::new(options);
    engine.deliver(Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position(1),
        // The first one has written its record when the second one reads that, and aborts later.
        requests: vec![request(&[&a, &c]), request(&[&a])],
        groups: Vec::new(),
        digest: 0,
    });
    let work = || {
        let (budget, mut done) = (Budget { operations: 100, heavy: true }, Vec::<Committed>::new());
        while engine.step(WorkerId(0), budget, &mut done) == Progress::Worked {}
        assert!(done.is_empty(), "nothing is confirmed");
    };
    work();
    let second = engine.shared.slots.unsettled(Position(2));
    assert!(second.is_some(), "the second one has read nothing unsettled");
    engine.retract(Position(1));
    work();
    assert!(engine.shared.slots.unsettled(Position(2)).is_none(), "the second one was not undone");
    assert_eq!(REPLIES.load(Ordering::SeqCst), 0, "an outcome was made of values that were taken back");
}

#[test]
fn no_worker_enters_its_gate_while_a_repair_waits_for_another_one() {
    let gates = Gates::new(2);
    std::thread::scope(|scope| {
        let first = gates.enter(0);
        let repair = scope.spawn(|| drop(gates.close()));
        while !gates.is_closing.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        // The repair waits for the first gate, and has not come to the second one.
        assert!(gates.try_enter(1).is_none());
        drop(first);
        repair.join().expect("the repair has had the gates");
    });
    drop((gates.enter(0), gates.enter(1)));
}
