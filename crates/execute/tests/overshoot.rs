//! Whoever catches up with a long log delivers and confirms far more at once than an engine has room for.

use ordo_execute::{Budget, Committed, Engine, Progress, Sparkle, WorkerId, sparkle};
use std::sync::Arc;
use txn::{Args, Batch, Epoch, FnProcedure, Key, Position, Procedure, Reply, Request, RequestId, SessionId};

fn writes() -> Arc<dyn Procedure> {
    Arc::new(FnProcedure::new("write", |mut tx, _| async move {
        let key = Key::from((tx.position().0 % 7).to_string().as_str());
        tx.get_for_update(&key).await?;
        tx.put(&key, "v").await?;
        tx.put(&Key::from(tx.position().0.to_string().as_str()), "v").await?;
        Ok(Reply::Nil)
    }))
}

fn deliver(engine: &Sparkle, procedure: &Arc<dyn Procedure>, first: u64, count: u64) {
    let request = |sequence| {
        let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
        Arc::new(Request::new(id, procedure.clone(), Args::default()))
    };
    engine.deliver(Batch {
        epoch: Epoch(first),
        time_ms: 1,
        first: Position(first),
        requests: (first..first + count).map(request).collect(),
        groups: Vec::new(),
        digest: 0,
    });
}

/// Delivers and confirms batches of a size until there are so many positions, then steps the workers in turn.
fn commits_all(options: sparkle::Options, positions: u64, batch: u64, budget: Budget) {
    let engine = Sparkle::new(options);
    let procedure = writes();
    let mut first = 1;
    while first <= positions {
        let count = batch.min(positions + 1 - first);
        deliver(&engine, &procedure, first, count);
        engine.confirm(Position(first + count - 1));
        first += count;
    }
    let mut committed: Vec<Committed> = Vec::new();
    let workers: Vec<WorkerId> = (0..options.workers).map(WorkerId).collect();
    // Each of them: one that finds nothing does not speak for the others.
    while workers
        .iter()
        .filter(|&&worker| engine.step(worker, budget, &mut committed) == Progress::Worked)
        .count()
        > 0
    {}
    let status = engine.status();
    assert_eq!(status.final_committed, Position(positions), "{status:?}");
    assert_eq!(committed.len() as u64, positions);
}

#[test]
fn all_of_what_is_confirmed_beyond_the_room_is_committed() {
    let small = |workers| sparkle::Options { capacity: 8, ..sparkle::Options::new(workers) };
    for positions in [7, 8, 9, 16, 17, 1000] {
        for batch in [1, 3, 8, 9, 1000] {
            for workers in [1, 3] {
                commits_all(small(workers), positions, batch, Budget::ONE);
                commits_all(small(workers), positions, batch, Budget::UNBOUNDED);
            }
        }
    }
}

#[test]
fn all_of_what_is_confirmed_beyond_the_usual_room_is_committed() {
    let options = sparkle::Options::new(3);
    let capacity = options.capacity as u64;
    for positions in [capacity + 1, 65_537] {
        commits_all(options, positions, positions, Budget::UNBOUNDED);
    }
}

#[test]
fn a_worker_that_finishes_lets_others_go_on() {
    for operations in 1..8 {
        let engine = Sparkle::new(sparkle::Options::new(2));
        deliver(&engine, &writes(), 1, 20);
        engine.confirm(Position(20));
        let mut committed: Vec<Committed> = Vec::new();
        let short = Budget { operations, heavy: true };
        engine.step(WorkerId(0), short, &mut committed);
        engine.finish(WorkerId(0), &mut committed);
        while engine.step(WorkerId(1), Budget::UNBOUNDED, &mut committed) == Progress::Worked {}
        assert_eq!(engine.status().final_committed, Position(20), "{operations}");
    }
}
