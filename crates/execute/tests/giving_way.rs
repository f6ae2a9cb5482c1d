//! A transaction may loop over a state that never was for as long as no earlier one corrects it. Whoever runs
//! it makes way.

use ordo_execute::{Assignment, Budget, Committed, Engine, EngineKind, WorkerId};
use std::sync::Arc;
use txn::{
    Args, Batch, Epoch, FnProcedure, Key, Position, Procedure, Reply, Request, RequestId, SessionId, Weight,
};

/// The engines whose transactions may see what never was.
const KINDS: [EngineKind; 2] = [EngineKind::Sparkle, EngineKind::ParSpec];
const LIGHT: Budget = Budget { operations: 100, heavy: false };
const ANY: Budget = Budget { heavy: true, ..LIGHT };

fn request(procedure: Arc<dyn Procedure>, weight: Weight) -> Arc<Request> {
    let id = RequestId { session: SessionId(1), sequence: 1, attempt: 0 };
    let mut request = Request::new(id, procedure, Args::default());
    request.footprint.weight = weight;
    Arc::new(request)
}

/// A heavy transaction that writes, and behind it a light one that reads until it finds that.
fn deliver(engine: &dyn Engine) {
    let write = FnProcedure::new("write", |mut tx, _| async move {
        tx.put(&Key::from("k"), "v").await?;
        Ok(Reply::Nil)
    });
    let look = FnProcedure::new("look", |mut tx, _| async move {
        while tx.get(&Key::from("k")).await?.is_none() {}
        Ok(Reply::OK)
    });
    engine.deliver(Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position(1),
        requests: vec![request(Arc::new(write), Weight::Heavy), request(Arc::new(look), Weight::Light)],
        groups: Vec::new(),
        digest: 0,
    });
    engine.confirm(Position(2));
}

#[test]
fn an_earlier_heavy_transaction_goes_before_a_later_light_one() {
    for kind in KINDS {
        let engine = kind.make(Assignment::alone(1));
        deliver(&*engine);
        let mut committed: Vec<Committed> = Vec::new();
        // Leaves the heavy one, and begins the light one.
        engine.step(WorkerId(0), LIGHT, &mut committed);
        for _ in 0..10 {
            engine.step(WorkerId(0), ANY, &mut committed);
        }
        let outcomes: Vec<_> = committed.into_iter().map(|done| done.outcome).collect();
        assert_eq!(outcomes, [Ok(Reply::Nil), Ok(Reply::OK)], "{kind}");
    }
}

#[test]
fn a_worker_that_leaves_hands_over_what_does_not_end() {
    for kind in KINDS {
        let engine = kind.make(Assignment::alone(2));
        deliver(&*engine);
        let mut committed: Vec<Committed> = Vec::new();
        engine.step(WorkerId(0), LIGHT, &mut committed);
        // Comes back, although nobody has run the first one yet.
        engine.finish(WorkerId(0), &mut committed);
        for _ in 0..10 {
            engine.step(WorkerId(1), ANY, &mut committed);
        }
        assert_eq!(engine.status().final_committed, Position(2), "{kind}");
    }
}
