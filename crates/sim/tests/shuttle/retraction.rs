//! What a replica has promised of a group must hold, whatever a retraction cuts through.

use execute::siblings::{AbortNumber, Asked, Basis, GroupId, Message, Note, Told};
use execute::sparkle::{Options, Sparkle};
use execute::{Budget, Committed, Engine, Progress, Siblings, WorkerId};
use ordo_sim::draw::seeds;
use shuttle::scheduler::PctScheduler;
use shuttle::sync::atomic::{AtomicBool, Ordering};
use shuttle::thread;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::key::partition_of_slot;
use txn::tx::Read;
use txn::{
    Args, Batch, Call, Entry, Epoch, FnProcedure, Group, Key, PartitionId, PartitionRoute, Position,
    Procedure, Reply, Request, RequestId, SessionId, Tx,
};

fn key_of(partition: u16) -> Key {
    let keys = (0..).map(|number: u64| Key::new(format!("key{number}").as_bytes()));
    let mut keys = keys.filter(|key| partition_of_slot(key.slot(), 2).0 == partition);
    keys.next().unwrap()
}

fn request(sequence: u64, procedure: Arc<dyn Procedure>) -> Arc<Request> {
    let id = RequestId { session: SessionId(sequence), sequence, attempt: 0 };
    let mut request = Request::new(id, procedure, Args::new());
    request.route = PartitionRoute {
        home: PartitionId(0),
        partitions: [0, 1].into_iter().map(PartitionId).collect(),
        slots: txn::Slots::even(2),
    };
    Arc::new(request)
}

/// The first writes a constant (after a look at the other partition, if wanted); the second reads that.
fn batch(looks: bool) -> Batch {
    let (here, there) = (key_of(0), key_of(1));
    let write = FnProcedure::new("write", move |mut tx: Tx, _: Call| {
        let (here, there) = (here.clone(), there.clone());
        async move {
            if looks {
                tx.get(&there).await?;
            }
            tx.put(&here, &b"written"[..]).await?;
            Ok(Reply::OK)
        }
    });
    let here = key_of(0);
    let read = FnProcedure::new("read", move |mut tx: Tx, _: Call| {
        let here = here.clone();
        async move {
            tx.get(&here).await?;
            Ok(Reply::OK)
        }
    });
    Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position::FIRST,
        requests: vec![request(1, Arc::new(write)), request(2, Arc::new(read))],
        groups: vec![Group { first: 0, members: 2, part: 1 }],
        digest: 7,
    }
}

type Words = Vec<Note>;

fn hear(engine: &Sparkle, words: &mut Words) {
    for (_, message) in engine.messages() {
        words.extend(message.groups.into_iter().flat_map(|(_, notes)| notes));
    }
}

fn raised_of(member: u32, raised: &[(u32, AbortNumber)]) -> Option<AbortNumber> {
    let mut raised = raised.iter().filter(|(named, _)| *named == member);
    raised.next().map(|(_, number)| *number)
}

/// What a sibling that heard all these words, in any order, takes as final must be right. `basis`: what the
/// first transaction's last execution is based on, beside its own number.
fn check(words: &Words, others: &Basis) {
    let mut anchors: BTreeMap<u64, (AbortNumber, AbortNumber)> = BTreeMap::new();
    for note in words {
        if let Note::Anchor { member: 0, number, raised } = note {
            let later = raised_of(1, raised).unwrap_or(AbortNumber::first(number.era));
            anchors.insert(number.era, (*number, later));
        }
    }
    for (era, (number, later)) in anchors {
        let mut wanted = Basis::from_slice(&[(PartitionId(0), number)]);
        wanted.extend(others.iter().copied());
        let mut last = None;
        for note in words {
            if let Note::Confirmation { member: 0, basis, raised } = note
                && *basis == wanted
            {
                let named = raised_of(1, raised).unwrap_or(later).max(later);
                last = last.max(Some(named));
            }
        }
        let Some(last) = last else { continue };
        for note in words {
            if let Note::Read { member: 1, number, told: Told::Record(read), .. } = note
                && number.era == era
                && *number >= last
            {
                assert!(
                    read.entry.is_some(),
                    "the second transaction's number {last:?} was promised to be its last one, and under \
                     {number:?} it told what was before the first one: {words:#?}"
                );
            }
        }
    }
}

fn settle(engine: &Sparkle, worker: usize, words: &mut Words) {
    let mut done: Vec<Committed> = Vec::new();
    while engine.step(WorkerId(worker), Budget::UNBOUNDED, &mut done) == Progress::Worked {}
    hear(engine, words);
}

fn engine() -> Arc<Sparkle> {
    Arc::new(Sparkle::new(Options { capacity: 32, partition: PartitionId(0), ..Options::new(2) }))
}

/// A worker goes on while the epoch is retracted; it comes again as it was.
fn retraction() {
    let engine = engine();
    let mut words = Words::new();
    engine.deliver(batch(false));
    settle(&engine, 0, &mut words);
    let stop = Arc::new(AtomicBool::new(false));
    let worker = {
        let (engine, stop) = (engine.clone(), stop.clone());
        thread::spawn(move || {
            let mut done: Vec<Committed> = Vec::new();
            loop {
                let stops = stop.load(Ordering::SeqCst);
                let progress = engine.step(WorkerId(1), Budget::UNBOUNDED, &mut done);
                if progress == Progress::Idle {
                    if stops {
                        return;
                    }
                    thread::yield_now();
                }
            }
        })
    };
    engine.retract(Position::FIRST);
    engine.deliver(batch(false));
    stop.store(true, Ordering::SeqCst);
    worker.join().unwrap();
    settle(&engine, 0, &mut words);
    check(&words, &Basis::new());
}

fn said(count: u32, value: &str) -> Message {
    let id = GroupId {
        epoch: Epoch(1),
        digest: 7,
        part: 1,
        partitions: [0, 1].into_iter().map(PartitionId).collect(),
    };
    let note = Note::Read {
        member: 0,
        number: AbortNumber { era: 1, count },
        asked: Asked::Key(key_of(1)),
        told: Told::Record(Read { entry: Some(Entry::new(value.as_bytes())), version: Position::NONE }),
    };
    Message { groups: vec![(id, vec![note])] }
}

/// A message is on its way into the book of a transaction while that is retracted and comes again.
fn late_message() {
    let engine = engine();
    let mut words = Words::new();
    let other = PartitionId(1);
    engine.deliver(batch(true));
    engine.receive(other, said(0, "5"));
    settle(&engine, 0, &mut words);
    let receiver = {
        let engine = engine.clone();
        thread::spawn(move || engine.receive(other, said(1, "7")))
    };
    engine.retract(Position::FIRST);
    settle(&engine, 0, &mut words);
    engine.deliver(batch(true));
    engine.receive(other, said(1, "7"));
    settle(&engine, 0, &mut words);
    receiver.join().unwrap();
    settle(&engine, 0, &mut words);
    let last = (other, AbortNumber { era: 1, count: 1 });
    check(&words, &Basis::from_slice(&[last]));
}

fn explore(model: fn()) {
    for seed in seeds(20) {
        println!("seed {seed}");
        for depth in [1, 2, 3] {
            let mut config = shuttle::Config::new();
            config.stack_size = 1 << 20;
            config.max_steps = shuttle::MaxSteps::FailAfter(100_000);
            config.silence_warnings = true;
            let scheduler = PctScheduler::new_from_seed(seed, depth, 2_000);
            shuttle::Runner::new(scheduler, config).run(model);
        }
    }
}

#[test]
fn what_was_promised_holds_when_an_epoch_is_retracted() {
    explore(retraction);
}

#[test]
fn what_was_promised_holds_when_a_message_is_late() {
    explore(late_message);
}
