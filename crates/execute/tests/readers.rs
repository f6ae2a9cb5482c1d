//! A request that only reads, as its footprint says, and writes: every engine refuses it alike.

use ordo_execute::{Assignment, Budget, Committed, Engine, EngineKind, Progress, WorkerId};
use std::sync::Arc;
use txn::tx::WRITE_REFUSED;
use txn::{
    Args, Batch, Blob, Call, Epoch, FnProcedure, Key, Outcome, PartitionId, Position, Procedure, Reply,
    Request, RequestId, SessionId, Tx,
};

/// Writes in the way that its argument says, and makes nothing of what comes of it.
async fn write(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::new(b"key");
    let before = tx.get(&key).await?;
    let written = match &*call[0] {
        b"put" => tx.put(&key, "new").await,
        b"delete" => tx.delete(&key).await,
        b"system" => tx.put(&Key::system(b"key"), "new").await,
        b"clear" => tx.clear().await,
        _ => Ok(()),
    };
    drop((written, before));
    Ok(Reply::OK)
}

/// How the requests of one epoch end.
fn outcomes(engine: &dyn Engine, epoch: u64, ways: &[&str], read_only: bool) -> Vec<(Outcome, usize)> {
    let procedure: Arc<dyn Procedure> = Arc::new(FnProcedure::new("write", write));
    let first = engine.status().delivered.next();
    let request = |(number, way): (usize, &&str)| {
        let sequence = first.0 + number as u64;
        let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
        let mut request = Request::new(id, procedure.clone(), Args::one(Blob::new(way.as_bytes())));
        request.footprint.read_only = read_only;
        Arc::new(request)
    };
    let requests: Vec<_> = ways.iter().enumerate().map(request).collect();
    let last = first.advanced(requests.len() as u64).prev();
    engine.deliver(Batch { epoch: Epoch(epoch), time_ms: 1, first, requests, groups: Vec::new(), digest: 0 });
    engine.confirm(last);
    let mut committed: Vec<Committed> = Vec::new();
    while (0..engine.workers())
        .any(|worker| engine.step(WorkerId(worker), Budget::UNBOUNDED, &mut committed) == Progress::Worked)
    {
    }
    committed.sort_by_key(|committed| committed.position);
    committed.into_iter().map(|committed| (committed.outcome, committed.writes)).collect()
}

#[test]
fn a_write_of_a_request_that_only_reads_ends_it_without_effect_at_every_engine() {
    for kind in EngineKind::ALL {
        let assignment = Assignment { partition: PartitionId(0), ..Assignment::alone(2) };
        let engine = kind.make(assignment);
        assert_eq!(
            outcomes(&*engine, 1, &["put", "system"], false),
            [(Ok(Reply::OK), 1), (Ok(Reply::OK), 1)]
        );
        let ways = ["put", "delete", "system", "clear"];
        let refused = vec![(Err(WRITE_REFUSED), 0); ways.len()];
        assert_eq!(outcomes(&*engine, 2, &ways, true), refused, "{kind}");
        assert_eq!(outcomes(&*engine, 3, &["nothing"], true), [(Ok(Reply::OK), 0)], "{kind}");
        let view = engine.view();
        let snapshot = view.open();
        let left = [Key::new(b"key"), Key::system(b"key")].map(|key| view.read_at(&snapshot, &key));
        assert!(left.iter().all(|read| read.entry.is_some()), "{kind}: {left:?}");
        if kind != EngineKind::NoCc {
            assert_eq!(left.map(|read| read.version), [Position(1), Position(2)], "{kind}");
        }
        assert_eq!(view.count_at(&snapshot), 1, "{kind}");
        view.close(snapshot);
    }
}
