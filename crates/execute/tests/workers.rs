//! Every engine that may serve leaves heavy requests to the threads of a server that may run them, and gives
//! the other requests to any thread that steps it.

use ordo_execute::{Assignment, Budget, Committed, Engine, EngineKind, Progress, WorkerId};
use parking_lot::Mutex;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use txn::{
    Args, Batch, Epoch, FnProcedure, Key, Position, Procedure, Reply, Request, RequestId, SessionId, Stop,
    Weight,
};

const LIGHT: Budget = Budget { operations: 4096, heavy: false };
const ANY: Budget = Budget { heavy: true, ..LIGHT };
/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(30);
/// As in a server: more threads may step than run at the same time.
const WORKERS: usize = 4;

fn engine(kind: EngineKind) -> Arc<dyn Engine> {
    kind.make(Assignment { workers: WORKERS, ..Assignment::alone(1) })
}

/// Delivers and confirms an epoch of transactions with these weights, which all write one key.
fn order(engine: &dyn Engine, epoch: u64, first: Position, weights: &[Weight]) {
    let write = FnProcedure::new("write", |mut tx, _| async move {
        tx.put(&Key::from("k"), "v").await?;
        Ok(Reply::OK)
    });
    order_calls(engine, epoch, first, &Arc::new(write), weights);
}

fn order_calls(
    engine: &dyn Engine,
    epoch: u64,
    first: Position,
    procedure: &Arc<impl Procedure + 'static>,
    weights: &[Weight],
) {
    let request = |(number, &weight): (usize, &Weight)| {
        let sequence = first.0 + number as u64;
        let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
        let mut request = Request::new(id, procedure.clone(), Args::default());
        request.footprint.weight = weight;
        Arc::new(request)
    };
    let requests: Vec<_> = weights.iter().enumerate().map(request).collect();
    let last = first.advanced(requests.len() as u64).prev();
    engine.deliver(Batch { epoch: Epoch(epoch), time_ms: 1, first, requests, groups: Vec::new(), digest: 0 });
    engine.confirm(last);
}

/// Steps until there is nothing to do. How many transactions final-committed.
fn run(engine: &dyn Engine, worker: usize, budget: Budget) -> usize {
    let mut committed: Vec<Committed> = Vec::new();
    while engine.step(WorkerId(worker), budget, &mut committed) == Progress::Worked {}
    committed.len()
}

#[test]
fn heavy_requests_are_left_to_the_threads_that_may_run_them() {
    for kind in EngineKind::all_correct() {
        let engine = engine(kind);
        order(&*engine, 1, Position(1), &[Weight::Light, Weight::Heavy, Weight::Light]);
        assert_eq!(run(&*engine, 3, LIGHT), 1, "{kind}: the first one");
        assert_eq!(engine.waiting().heavy, 1, "{kind}: somebody is to be woken");
        assert_eq!(run(&*engine, 0, ANY), 2, "{kind}: the others");
        assert_eq!(engine.waiting().heavy, 0, "{kind}");
    }
}

#[test]
fn whichever_thread_comes_does_what_is_to_be_done() {
    for kind in EngineKind::all_correct() {
        let engine = engine(kind);
        for worker in 0..WORKERS {
            let first = Position(1 + 2 * worker as u64);
            order(&*engine, 1 + worker as u64, first, &[Weight::Light, Weight::Light]);
            assert_eq!(run(&*engine, worker, LIGHT), 2, "{kind}: worker {worker}");
        }
    }
}

#[test]
fn nothing_is_overlooked_when_threads_come_and_go() {
    const ROUNDS: u64 = 3_000;
    for kind in EngineKind::all_correct() {
        let engine = engine(kind);
        let next = Mutex::new(1);
        // Each thread orders something and steps until there is nothing to do. The other one may be about to
        // leave at that moment.
        let done: usize = std::thread::scope(|scope| {
            let thread = |worker: usize| {
                let (engine, next) = (&*engine, &next);
                move || {
                    let mut done = 0;
                    for _ in 0..ROUNDS {
                        let mut next = next.lock();
                        order(engine, *next, Position(*next), &[Weight::Light]);
                        *next += 1;
                        drop(next);
                        done += run(engine, worker, ANY);
                    }
                    done
                }
            };
            let threads = [1, 2].map(|worker| scope.spawn(thread(worker)));
            threads.map(|thread| thread.join().expect("no panic")).iter().sum()
        });
        assert_eq!(done as u64, 2 * ROUNDS, "{kind}");
    }
}

#[test]
fn nobody_who_delivers_waits_for_a_transaction_that_runs() {
    for kind in EngineKind::all_correct() {
        let engine = engine(kind);
        let (runs, running) = mpsc::channel();
        let (delivered, go_on) = mpsc::channel();
        let go_on = Mutex::new(go_on);
        let wait = FnProcedure::new("wait", move |_, _| {
            runs.send(()).expect("the test waits");
            let heard = go_on.lock().recv_timeout(PATIENCE);
            std::future::ready(heard.map(|()| Reply::OK).map_err(|_| Stop::abort("ERR nothing came")))
        });
        order_calls(&*engine, 1, Position(1), &Arc::new(wait), &[Weight::Heavy]);
        let committed = std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let mut committed: Vec<Committed> = Vec::new();
                while engine.step(WorkerId(1), ANY, &mut committed) == Progress::Worked {}
                committed
            });
            running.recv_timeout(PATIENCE).expect("it runs");
            order(&*engine, 2, Position(2), &[Weight::Light]);
            assert_eq!(engine.status().delivered, Position(2));
            engine.waiting();
            delivered.send(()).expect("it waits");
            worker.join().expect("no panic")
        });
        assert_eq!(committed[0].outcome, Ok(Reply::OK), "{kind}");
    }
}
