//! A procedure that asks for a record and does not wait for the answer breaks the rule that it awaits its
//! `Tx`. It gets what it deserves; those behind it must not wait for ever.

use ordo_execute::{Assignment, Budget, Committed, EngineKind, WorkerId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use txn::{Args, Batch, Epoch, FnProcedure, Key, Position, Procedure, Reply, Request, RequestId, SessionId};

fn request(procedure: Arc<dyn Procedure>) -> Arc<Request> {
    let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
    Arc::new(Request::new(id, procedure, Args::default()))
}

fn update() -> Arc<Request> {
    request(Arc::new(FnProcedure::new("update", |mut tx, _| async move {
        tx.get_for_update(&Key::from("k")).await?;
        tx.put(&Key::from("k"), "v").await?;
        Ok(Reply::Nil)
    })))
}

/// Asks for a record, does not wait for it, and reads another one, or not.
fn give_up(reads: bool) -> Arc<Request> {
    request(Arc::new(FnProcedure::new("give-up", move |mut tx, _| async move {
        let key = Key::from("k");
        {
            let mut read = pin!(tx.get_for_update(&key));
            poll_fn(|context| {
                let _ = read.as_mut().poll(context);
                Poll::Ready(())
            })
            .await;
        }
        if reads {
            tx.get(&Key::from("x")).await?;
        }
        Ok(Reply::Nil)
    })))
}

#[test]
fn a_wait_that_was_given_up_holds_nobody_up() {
    run(EngineKind::Sparkle, false);
    run(EngineKind::ParSpec, false);
}

#[test]
fn a_wait_that_was_given_up_for_another_record_holds_nobody_up() {
    run(EngineKind::Sparkle, true);
    run(EngineKind::ParSpec, true);
}

fn run(kind: EngineKind, reads: bool) {
    let engine = kind.make(Assignment::alone(2));
    engine.deliver(Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position(1),
        requests: vec![update(), give_up(reads), update()],
        groups: Vec::new(),
        digest: 0,
    });
    engine.confirm(Position(3));
    let mut committed: Vec<Committed> = Vec::new();
    // The first has the lock, the second goes on without it, the third waits for it.
    for (worker, steps) in [(0, 2), (1, 8)] {
        for _ in 0..steps {
            engine.step(WorkerId(worker), Budget::ONE, &mut committed);
        }
    }
    assert_eq!(engine.status().parked, 1, "{kind}");
    for _ in 0..100 {
        engine.step(WorkerId(0), Budget::ONE, &mut committed);
        engine.step(WorkerId(1), Budget::ONE, &mut committed);
    }
    assert_eq!(engine.status().final_committed, Position(3), "{kind}");
    engine.view().collect(usize::MAX);
    assert_eq!(engine.view().census().held, 0, "{kind}");
}
