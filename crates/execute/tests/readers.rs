//! Requests that only read. One that writes although its footprint says that it only reads is refused alike
//! by every engine. One that reads one record needs no future at a snapshot ([`Procedure::one_read`]).

use ordo_execute::{Assignment, Budget, Committed, Engine, EngineKind, Progress, WorkerId};
use ordo_execute::{ReadOutcome, SnapshotReader};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::fragments::{Done, Operation};
use txn::tx::WRITE_REFUSED;
use txn::{
    Args, Batch, Blob, Call, Entry, Epoch, FnProcedure, FragmentCode, FragmentContext, FragmentKind, Key,
    Outcome, PartitionId, Position, Procedure, ProcedureFuture, Reply, Request, RequestId, ScanRange,
    SessionId, Space, Stop, Tx, slots,
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

/// Reads the key that its argument names: as one record, where that is done.
struct ReadOne;

impl Procedure for ReadOne {
    fn name(&self) -> &str {
        "read-one"
    }
    fn one_read<'a>(&self, args: &'a [Blob]) -> Option<(Key, Operation<'a>)> {
        let execute = |_: &[Blob], context: FragmentContext<'_>| {
            let found = context.found.and_then(|entry| entry.value.as_string());
            Ok(Done::read(Reply::Bulk(found.unwrap_or(Blob::new(b"nothing")))))
        };
        let code = FragmentCode { execute, reply: None };
        let operation = Operation { code, args, kind: FragmentKind::Read, place: 0, takes_own: false };
        Some((Key::from(&args[0]), operation))
    }
    fn run(&self, _: Tx, _: Call) -> ProcedureFuture {
        unreachable!("a reader at a snapshot needs no future for one record")
    }
}

/// Writes records at the time 1,000 ms: `lasts` without an expiry, `expires` until 1,500 ms, and its argument
/// as the version of the slots.
async fn prepare(mut tx: Tx, call: Call) -> Outcome {
    tx.put(&Key::from("lasts"), "here").await?;
    let entry = Entry { expires_at_ms: 1_500, ..Entry::new("for now") };
    tx.put_entry(&Key::from("expires"), entry).await?;
    let version = call[0].as_bytes()[0];
    tx.put(&slots::version_key(), slots::version_value(version.into())).await?;
    Ok(Reply::OK)
}

#[test]
fn a_read_of_one_record_at_a_snapshot_leaves_to_the_order_what_only_the_order_can_say() {
    let engine = EngineKind::Serial.make(Assignment { partition: PartitionId(0), ..Assignment::alone(1) });
    let procedure: Arc<dyn Procedure> = Arc::new(FnProcedure::new("prepare", prepare));
    let request = Request::new(RequestId::default(), procedure, Args::one(Blob::new(&[7])));
    let (first, requests) = (engine.status().delivered.next(), vec![Arc::new(request)]);
    let (epoch, groups) = (Epoch(1), Vec::new());
    engine.deliver(Batch { epoch, time_ms: 1_000, first, requests, groups, digest: 0 });
    engine.confirm(first);
    let mut committed: Vec<Committed> = Vec::new();
    while engine.step(WorkerId(0), Budget::UNBOUNDED, &mut committed) == Progress::Worked {}
    assert_eq!(committed.pop().map(|committed| committed.outcome), Some(Ok(Reply::OK)));

    let mut reader = SnapshotReader::new(engine);
    let lookups = reader.lookups();
    let mut read = |key: &str, slots_version: Option<u32>, now_ms: u64| {
        let id = RequestId::default();
        let request = Arc::new(Request::new(id, Arc::new(ReadOne), Args::one(Blob::new(key.as_bytes()))));
        match reader.run_where(&request, slots_version, now_ms) {
            ReadOutcome::Done(Ok(Reply::Bulk(text))) => String::from_utf8_lossy(&text).into_owned(),
            ReadOutcome::Done(outcome) => format!("{outcome:?}"),
            ReadOutcome::MustOrder => "the order decides".to_owned(),
            ReadOutcome::Interrupted => "interrupted".to_owned(),
        }
    };
    assert_eq!(read("lasts", None, 2_000), "here");
    assert_eq!(read("expires", None, 1_499), "for now");
    assert_eq!(read("nothing", None, 1_499), "nothing");
    assert_eq!(lookups.get(), (2, 1));
    // It expires between the snapshot's time and now.
    for now_ms in [1_500, 2_000] {
        assert_eq!(read("expires", None, now_ms), "the order decides", "at {now_ms} ms");
    }
    assert_eq!(lookups.get(), (2, 1), "a read that the order takes over is counted there");
    assert_eq!(read("lasts", Some(7), 2_000), "here");
    let elsewhere = format!("{:?}", Outcome::Err(Stop::Undeclared(None)));
    assert_eq!(read("lasts", Some(6), 2_000), elsewhere, "the key may be in another partition");
    assert_eq!(lookups.get(), (3, 1));
}

/// Walks over all keys, page by page, or counts them, as its argument says.
async fn walk(mut tx: Tx, call: Call) -> Outcome {
    if &*call[0] == b"count" {
        return Ok(Reply::Integer(tx.count().await? as i64));
    }
    let (mut count, mut from_hash) = (0, Some(0));
    while let Some(hash) = from_hash {
        let page = tx.scan(ScanRange::of(Space::User, hash, 1)).await?;
        count += page.entries.len() as i64;
        from_hash = page.next_hash;
    }
    Ok(Reply::Integer(count))
}

#[test]
fn walks_over_the_keys_of_the_past_can_be_stopped() {
    let engine = EngineKind::Serial.make(Assignment { partition: PartitionId(0), ..Assignment::alone(1) });
    engine.view().keep_history(Some(0));
    assert_eq!(outcomes(&*engine, 1, &["put"], false), [(Ok(Reply::OK), 1)]);
    let reader = SnapshotReader::new(engine);
    let (interrupt, pauses) = (reader.interrupt(), Arc::new(AtomicU64::new(0)));
    // Somebody asks the computation to stop in its second pause.
    let pause = {
        let (interrupt, pauses) = (interrupt.clone(), pauses.clone());
        move || {
            if pauses.fetch_add(1, Ordering::SeqCst) == 1 {
                assert!(interrupt.interrupt());
            }
        }
    };
    let mut reader = reader.pausing(Arc::new(pause));
    let procedure: Arc<dyn Procedure> = Arc::new(FnProcedure::new("walk", walk));
    for way in ["walk", "count"] {
        let args = Args::one(Blob::new(way.as_bytes()));
        let request = Arc::new(Request::new(RequestId::default(), procedure.clone(), args));
        // In the present the order would take it: nobody stops it there.
        let present = reader.run(&request, 1);
        assert!(matches!(present, ReadOutcome::Done(Ok(Reply::Integer(1)))), "{way}: {present:?}");
        assert!(!interrupt.interrupt() && pauses.swap(0, Ordering::SeqCst) == 0, "{way}");
        pauses.store(2, Ordering::SeqCst);
        let past = reader.run_at(&request, 1).expect("it is kept");
        assert!(matches!(past, ReadOutcome::Done(Ok(Reply::Integer(1)))), "{way}: {past:?}");
        pauses.store(1, Ordering::SeqCst);
        let past = reader.run_at(&request, 1).expect("it is kept");
        assert!(matches!(past, ReadOutcome::Interrupted), "{way}: {past:?}");
        pauses.store(0, Ordering::SeqCst);
    }
}
