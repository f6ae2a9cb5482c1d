//! The order of a stopped node, executed again: each transaction is shown as it was executed.

use crate::rig::{Rig, add_procedure, options, registry};
use log::Journal;
use order::{PartitionMap, Skips};
use ordo_node::FsyncPolicy;
use ordo_node::cluster::ClusterOptions;
use ordo_node::cluster::restore::{KeptOrder, Looked, Replay, Trace, TracedEpoch, Wanted};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use txn::{
    Call, Entry, Epoch, Event, FnProcedure, Key, Outcome, PartitionId, Position, Procedure, Reply,
    RequestName, Told, Tx,
};

/// A node whose only checkpoints are those that a test wants, and its disk.
fn begin() -> (Arc<VirtualDisk>, Rig) {
    let disk = Arc::new(VirtualDisk::new(1));
    let wishes = ClusterOptions { checkpoint_bytes: 0, ..options(FsyncPolicy::No) };
    let rig = Rig::recover(&disk, wishes).unwrap();
    (disk, rig)
}

fn kept(disk: &VirtualDisk) -> KeptOrder {
    let (images, _) = Journal::read(disk).unwrap();
    KeptOrder::of(&images, &PartitionMap::alone()).unwrap()
}

/// Executes the order behind the newest checkpoint that is older than an epoch, up to that epoch.
fn up_to(disk: &VirtualDisk, epoch: Epoch, wanted: Option<Wanted>) -> (Replay, TracedEpoch) {
    let kept = kept(disk);
    let older = kept.checkpoints().map(|states| states[0].epoch).filter(|&older| older < epoch);
    let from = older.max().expect("a checkpoint");
    let mut replay = kept.begin(disk, from, registry(), Arc::new(Skips::default())).unwrap();
    for batches in kept.behind(from) {
        if replay.end().epoch.0 + 1 == epoch.0 {
            let traced = replay.execute_and_trace(batches, wanted).unwrap();
            return (replay, traced);
        }
        replay.execute(batches).unwrap();
    }
    panic!("the order ends before epoch {}", epoch.0);
}

/// What a transaction that adds to a number has looked at, written and replied.
fn addition(trace: &Trace) -> (Option<i64>, i64, i64) {
    let number = |entry: &Entry| -> i64 {
        let text = entry.value.as_string().unwrap();
        std::str::from_utf8(&text).unwrap().parse().unwrap()
    };
    let [Looked::Record(key, read)] = &trace.looked[..] else { panic!("{:?}", trace.looked) };
    let [write] = &trace.writes[..] else { panic!("{:?}", trace.writes) };
    assert_eq!((key, &write.before), (&write.key, &read.entry));
    let Ok(Reply::Integer(reply)) = trace.outcome else { panic!("{:?}", trace.outcome) };
    assert_eq!((&trace.execution.outcome, &trace.difference), (&trace.outcome, &None));
    (read.entry.as_ref().map(number), number(write.after.as_ref().unwrap()), reply)
}

#[test]
fn a_transaction_in_the_middle_of_a_batch_is_shown_at_the_state_that_it_found() {
    let (disk, mut rig) = begin();
    rig.submit("a", 3).unwrap();
    let epoch = rig.node.confirmed().epoch;
    rig.submit("a", 1).unwrap();
    let session = rig.session();
    for sequence in 1..=3 {
        let name = RequestName { epoch, session, sequence };
        let (replay, traced) = up_to(&disk, epoch, Some(Wanted::Request(name)));
        let trace = traced.trace.unwrap();
        let sum = sequence as i64;
        assert_eq!(addition(&trace), ((sum > 1).then_some(sum - 1), sum, sum));
        assert_eq!(trace.execution.name, name);
        assert_eq!(trace.execution.request.procedure.name(), add_procedure().name());
        // The others of the epoch are executed, too.
        let replies: Vec<_> = traced.transactions.iter().map(|each| each.outcome.clone()).collect();
        assert_eq!(replies, [1, 2, 3].map(|sum| Ok(Reply::Integer(sum))));
        assert_eq!(replay.end().next, [Position(4)]);
        let position = Position(sequence);
        let (_, traced) = up_to(&disk, epoch, Some(Wanted::Position(PartitionId(0), position)));
        assert_eq!(traced.trace.unwrap().execution.name, name);
    }
    let name = RequestName { epoch, session, sequence: 4 };
    assert!(up_to(&disk, epoch, Some(Wanted::Request(name))).1.trace.is_none(), "it is of the next epoch");
    assert!(up_to(&disk, epoch, None).1.trace.is_none());
}

#[test]
fn an_order_is_executed_from_each_checkpoint_and_comes_to_the_state_of_the_next() {
    let (disk, mut rig) = begin();
    rig.submit("a", 5).unwrap();
    let first = rig.checkpoint();
    rig.submit("a", 5).unwrap();
    let between = rig.node.confirmed().epoch;
    let second = rig.checkpoint();
    rig.submit("b", 2).unwrap();
    let behind = rig.node.confirmed().epoch;
    let kept = kept(&disk);
    let checkpoints: Vec<_> = kept.checkpoints().map(|states| states[0].clone()).collect();
    assert_eq!(checkpoints.iter().map(|state| state.epoch).collect::<Vec<_>>(), [first, second]);
    assert_eq!(kept.unagreed(), 0);
    let (_, traced) = up_to(&disk, between, Some(Wanted::Position(PartitionId(0), Position(6))));
    assert_eq!(addition(&traced.trace.unwrap()), (Some(5), 6, 6));
    let (_, traced) = up_to(&disk, behind, Some(Wanted::Position(PartitionId(0), Position(12))));
    assert_eq!(addition(&traced.trace.unwrap()), (Some(1), 2, 2));

    let mut replay = kept.begin(&*disk, first, registry(), Arc::default()).unwrap();
    for batches in kept.behind(first) {
        replay.execute(batches).unwrap();
        if replay.end().epoch == second {
            assert_eq!(replay.end().digest, checkpoints[1].digest);
            let loaded = kept.begin(&*disk, second, registry(), Arc::default()).unwrap();
            assert_eq!(replay.content_digest(), loaded.content_digest());
        }
    }
    assert!(replay.end().epoch >= behind);
    assert!(kept.begin(&*disk, between, registry(), Arc::default()).is_err(), "there is no checkpoint");
}

#[test]
fn expired_entries_and_whole_spaces_are_shown_as_the_transaction_met_them() {
    let (disk, mut rig) = begin();
    let registry = registry();
    let procedure = |name: &str| registry.by_name(name).unwrap().clone();
    rig.call(procedure("redis.set"), "a 1 px 100");
    rig.call(procedure("redis.set"), "b 2");
    rig.now_ms += 1_000;
    rig.call(procedure("redis.append"), "a x");
    let append = rig.node.confirmed().epoch;
    rig.call(procedure("redis.flushall"), "sync");
    let flush = rig.node.confirmed().epoch;
    let position = |position| Some(Wanted::Position(PartitionId(0), Position(position)));

    let trace = up_to(&disk, append, position(3)).1.trace.unwrap();
    let held = Entry { expires_at_ms: 1_000_100, ..Entry::new("1") };
    let [Looked::Record(key, read), ..] = &trace.looked[..] else { panic!("{:?}", trace.looked) };
    assert_eq!((key, read.entry.as_ref()), (&Key::from("a"), Some(&held)));
    assert_eq!((&trace.writes[0].before, &trace.writes[0].after), (&Some(held), &Some(Entry::new("x"))));
    assert_eq!(trace.outcome, Ok(Reply::Integer(1)));

    let trace = up_to(&disk, flush, position(4)).1.trace.unwrap();
    assert!(trace.clears && trace.writes.is_empty(), "{trace:?}");
    assert_eq!(trace.difference, None);
}

/// How often [`fickle`] has run.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// Replies the same with every run, and writes with the first one only.
async fn fickle(mut tx: Tx, _: Call) -> Outcome {
    if RUNS.fetch_add(1, Ordering::SeqCst) > 0 {
        return Ok(Reply::OK);
    }
    tx.put(&Key::from("b"), "x").await?;
    let events = vec![Event::Key { key: Key::from("b"), class: b'$', name: "set".into() }];
    Ok(Reply::Told(Box::new(Told { reply: Reply::OK, events })))
}

#[test]
fn a_key_that_only_the_engine_has_written_is_a_difference() {
    let (disk, mut rig) = begin();
    let procedure: Arc<dyn Procedure> = Arc::new(FnProcedure::new("fickle", fickle));
    rig.submit("a", 1).unwrap();
    rig.call(procedure.clone(), "x");
    let kept = kept(&disk);
    let from = kept.checkpoints().next().unwrap()[0].epoch;
    let mut registry = registry();
    registry.register(procedure).unwrap();
    let mut replay = kept.begin(&*disk, from, registry, Arc::default()).unwrap();
    let wanted = Wanted::Position(PartitionId(0), Position(2));
    let mut traces = Vec::new();
    for batches in kept.behind(from) {
        // The engine's run is the first one, and that at the snapshot is the second.
        RUNS.store(0, Ordering::SeqCst);
        traces.extend(replay.execute_and_trace(batches, Some(wanted)).unwrap().trace);
    }
    let [trace] = &traces[..] else { panic!("{traces:?}") };
    assert!(trace.is_compared && trace.writes.is_empty(), "{trace:?}");
    assert_eq!(trace.difference.as_deref(), Some("what is left of \"b\""));
}
