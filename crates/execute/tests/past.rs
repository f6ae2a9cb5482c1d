//! Reads of the past, at every engine: transactions of several epochs that an engine commits together have
//! a moment each.

use ordo_execute::{Assignment, Budget, Committed, Engine, EngineKind, Progress, WorkerId};
use std::sync::Arc;
use store::NoPast;
use txn::{
    Args, Batch, Blob, Call, Entry, Epoch, FnProcedure, Key, Outcome, PartitionId, Procedure, Reply, Request,
    RequestId, SessionId, Tx,
};

/// Writes the time of its epoch.
async fn write(mut tx: Tx, _: Call) -> Outcome {
    let time = tx.now_ms().to_string();
    tx.put(&Key::from("key"), Blob::new(time.as_bytes())).await?;
    Ok(Reply::OK)
}

/// Delivers epochs of these times with a transaction each, confirms all of them together, and lets the engine
/// end them.
fn order(engine: &dyn Engine, times: &[u64]) {
    let procedure: Arc<dyn Procedure> = Arc::new(FnProcedure::new("write", write));
    let mut last = engine.status().delivered;
    for &time_ms in times {
        last = last.next();
        let id = RequestId { session: SessionId(1), sequence: last.0, attempt: 0 };
        let requests = vec![Arc::new(Request::new(id, procedure.clone(), Args::new()))];
        let (epoch, groups) = (Epoch(last.0), Vec::new());
        engine.deliver(Batch { epoch, time_ms, first: last, requests, groups, digest: 0 });
    }
    engine.confirm(last);
    let mut committed: Vec<Committed> = Vec::new();
    while (0..engine.workers())
        .any(|worker| engine.step(WorkerId(worker), Budget::UNBOUNDED, &mut committed) == Progress::Worked)
    {
    }
    assert_eq!(committed.len(), times.len());
}

fn held(engine: &dyn Engine, time_ms: u64) -> Result<Option<Entry>, NoPast> {
    let view = engine.view();
    let snapshot = view.open_at(time_ms)?;
    let read = view.read_at(&snapshot, &Key::from("key"));
    view.close(snapshot);
    Ok(read.entry)
}

#[test]
fn each_epoch_of_those_that_are_committed_together_has_its_moment() {
    for kind in EngineKind::all_correct() {
        let engine = kind.make(Assignment { partition: PartitionId(0), ..Assignment::alone(2) });
        order(&*engine, &[990]);
        engine.view().keep_history(Some(0));
        order(&*engine, &[995, 998, 998, 1_002]);
        order(&*engine, &[1_010]);
        engine.view().collect(usize::MAX);
        for (time_ms, want) in [
            (990, "990"),
            (994, "990"),
            (995, "995"),
            (997, "995"),
            (998, "998"),
            (1_001, "998"),
            (1_002, "1002"),
            (1_009, "1002"),
            (1_010, "1010"),
        ] {
            assert_eq!(held(&*engine, time_ms), Ok(Some(Entry::new(want))), "{kind}: {time_ms}");
        }
        assert_eq!(held(&*engine, 989), Err(NoPast::Before(990)), "{kind}");
    }
}
