//! The order's side of the engine under the model checker: deliveries and retractions against workers that
//! start transactions, and the head's advance against those who look at the whole space.

use execute::sparkle::{Options, Sparkle};
use execute::{Budget, Committed, Engine, Progress, WorkerId};
use ordo_sim::draw::seeds;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::sync::{Arc as ShuttleArc, Mutex};
use shuttle::thread;
use std::sync::Arc;
use txn::{
    Args, Batch, Epoch, FnProcedure, Intent, Key, Position, Procedure, Reply, Request, RequestId, SessionId,
};

/// Runs `model` under random and under priority schedules of each seed.
fn explore(default_seeds: u64, iterations: usize, model: fn()) {
    fn run<S: Scheduler + 'static>(scheduler: S, model: fn()) {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 20;
        config.max_steps = shuttle::MaxSteps::FailAfter(30_000);
        config.silence_warnings = true;
        shuttle::Runner::new(scheduler, config).run(model);
    }
    for seed in seeds(default_seeds) {
        println!("seed {seed}");
        run(RandomScheduler::new_from_seed(seed, iterations), model);
        run(PctScheduler::new_from_seed(seed, 3, iterations), model);
    }
}

fn batch(first: u64, requests: Vec<Arc<Request>>) -> Batch {
    Batch {
        epoch: Epoch(first),
        time_ms: first,
        first: Position(first),
        requests,
        groups: Vec::new(),
        digest: 0,
    }
}

fn request(procedure: Arc<dyn Procedure>) -> Arc<Request> {
    let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
    Arc::new(Request::new(id, procedure, Args::default()))
}

/// Writes a key of its own.
fn put(name: &'static str) -> Arc<Request> {
    request(Arc::new(FnProcedure::new("put", move |mut tx, _| async move {
        tx.put(&Key::from(name), "v").await?;
        Ok(Reply::Nil)
    })))
}

/// Counts one key up; replies what it was.
fn increment() -> Arc<Request> {
    request(Arc::new(FnProcedure::new("increment", |mut tx, _| async move {
        let key = Key::from("counter");
        let before = tx.read(&key, Intent::Update).await?.entry.is_some();
        tx.put(&key, "v").await?;
        Ok(Reply::Boolean(before))
    })))
}

/// Counts the keys.
fn count() -> Arc<Request> {
    request(Arc::new(FnProcedure::new("count", |mut tx, _| async move {
        Ok(Reply::Integer(tx.count().await? as i64))
    })))
}

/// Runs an engine's workers on threads of their own while `order` drives them up to `end`; what was
/// committed, in order.
fn drive(engine: Sparkle, end: u64, order: impl FnOnce(&Sparkle) + Send + 'static) -> Vec<Committed> {
    const WORKERS: usize = 2;
    let engine = Arc::new(engine);
    let committed = ShuttleArc::new(Mutex::new(Vec::new()));
    let stop = ShuttleArc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let (engine, committed, stop) = (engine.clone(), committed.clone(), stop.clone());
            thread::spawn(move || {
                loop {
                    let stopping = stop.load(Ordering::SeqCst);
                    let mut done = Vec::new();
                    let progress = engine.step(WorkerId(worker), Budget::UNBOUNDED, &mut done);
                    committed.lock().unwrap().append(&mut done);
                    if progress == Progress::Idle {
                        if stopping {
                            return;
                        }
                        thread::yield_now();
                    }
                }
            })
        })
        .collect();
    order(&engine);
    while engine.status().final_committed < Position(end) {
        thread::yield_now();
    }
    stop.store(true, Ordering::SeqCst);
    for worker in workers {
        worker.join().unwrap();
    }
    let mut committed = std::mem::take(&mut *committed.lock().unwrap());
    committed.sort_by_key(|committed| committed.position);
    committed
}

fn sparkle() -> Sparkle {
    Sparkle::new(Options { capacity: 8, ..Options::new(2) })
}

#[test]
fn a_count_at_the_head_sees_all_commits_before_it() {
    explore(3, 300, || {
        let committed = drive(sparkle(), 3, |engine| {
            engine.deliver(batch(1, vec![put("a"), put("b"), count()]));
            engine.confirm(Position(3));
        });
        assert_eq!(committed[2].outcome, Ok(Reply::Integer(2)));
    });
}

#[test]
fn what_is_delivered_again_while_workers_look_for_work_is_started() {
    explore(10, 1000, || {
        let committed = drive(sparkle(), 3, |engine| {
            engine.deliver(batch(1, vec![increment(), put("a")]));
            engine.retract(Position(1));
            engine.deliver(batch(1, vec![increment(), increment()]));
            engine.confirm(Position(2));
            engine.deliver(batch(3, vec![increment()]));
            engine.confirm(Position(3));
        });
        let outcomes: Vec<_> = committed.into_iter().map(|committed| committed.outcome).collect();
        let expected = [false, true, true].map(|found| Ok(Reply::Boolean(found)));
        assert_eq!(outcomes, expected);
    });
}
