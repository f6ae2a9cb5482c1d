//! Transactions over several partitions, one at a time: what they see, whom they hear, and in which order
//! they stand.

use execute::siblings::{AbortNumber, GroupId, Message, Note};
use execute::sparkle::{Options, Sparkle};
use execute::{Assignment, Budget, Committed, Engine, EngineKind, Progress, Siblings, WorkerId};
use order::arrange::{Placed, arrange, places};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::key::partition_of_slot;
use txn::{
    Args, Batch, Blob, Call, Epoch, FnProcedure, Key, KeySets, Outcome, PartitionId, PartitionRoute,
    Position, Procedure, ProcedureId, Registry, Reply, Request, RequestId, ScanRange, SessionId, Space, Stop,
    Tx,
};

/// Runs a test, with the model checker's latches too.
fn alone(test: fn()) {
    #[cfg(feature = "shuttle")]
    {
        let mut config = shuttle::Config::new();
        config.stack_size = 1 << 21;
        config.max_steps = shuttle::MaxSteps::None;
        let scheduler = shuttle::scheduler::RandomScheduler::new_from_seed(1, 1);
        shuttle::Runner::new(scheduler, config).run(test);
    }
    #[cfg(not(feature = "shuttle"))]
    test();
}

fn keys_of(partition: u16, of: u16, system: bool) -> impl Iterator<Item = Key> {
    let key = move |number: u64| match system {
        true => Key::system(format!("key{number}").as_bytes()),
        false => Key::new(format!("key{number}").as_bytes()),
    };
    (0..).map(key).filter(move |key| partition_of_slot(key.slot(), of).0 == partition)
}

fn key_of(partition: u16, of: u16) -> Key {
    keys_of(partition, of, false).next().unwrap()
}

/// The engines of which a world can be made.
fn all() -> impl Iterator<Item = EngineKind> {
    EngineKind::ALL.into_iter().filter(|kind| kind.needs().spans_partitions)
}

fn sparkle(partition: PartitionId, era: u64) -> Arc<dyn Engine> {
    Arc::new(Sparkle::new(Options { partition, era, ..Options::new(1) }))
}

/// Engines of all partitions, and the order.
struct World {
    engines: Vec<Arc<dyn Engine>>,
    next: Vec<Position>,
    epoch: u64,
    sequence: u64,
    outcomes: BTreeMap<(u16, u64), Outcome>,
    /// Epochs are confirmed at once.
    confirm: bool,
}

impl World {
    fn new(kind: EngineKind, of: u16) -> World {
        let engine = |partition| kind.make(Assignment { partition, ..Assignment::alone(1) });
        World {
            engines: (0..of).map(PartitionId).map(engine).collect(),
            next: vec![Position::FIRST; usize::from(of)],
            epoch: 0,
            sequence: 0,
            outcomes: BTreeMap::new(),
            confirm: true,
        }
    }

    fn request(
        &mut self,
        procedure: Arc<dyn Procedure>,
        partitions: &[u16],
        read_only: bool,
    ) -> Arc<Request> {
        self.sequence += 1;
        let id = RequestId { session: SessionId(self.sequence), sequence: self.sequence, attempt: 0 };
        let mut request = Request::new(id, procedure, Args::new());
        request.footprint.read_only = read_only;
        request.route = PartitionRoute {
            home: PartitionId(0),
            partitions: partitions.iter().copied().map(PartitionId).collect(),
            slots: txn::Slots::even(self.engines.len() as u16),
        };
        Arc::new(request)
    }

    /// Orders an epoch and executes it; what every partition answered the last request.
    fn epoch(&mut self, requests: Vec<Arc<Request>>) {
        self.epoch += 1;
        let placed = places(requests.iter().map(|request| &**request));
        let taken: Vec<Placed> =
            requests.into_iter().zip(placed).map(|(request, place)| Placed { request, place }).collect();
        for (at, engine) in self.engines.iter().enumerate() {
            let me = PartitionId(at as u16);
            let mine = taken.iter().filter(|placed| {
                let partitions = &placed.request.route.partitions;
                partitions.contains(&me)
            });
            let arranged = arrange(mine.cloned().collect());
            let first = self.next[at];
            self.next[at] = first.advanced(arranged.requests.len() as u64);
            engine.deliver(Batch {
                epoch: Epoch(self.epoch),
                time_ms: 1,
                first,
                requests: arranged.requests,
                groups: arranged.groups,
                digest: self.epoch,
            });
            if self.confirm {
                engine.confirm(self.next[at].prev());
            }
        }
        self.run();
    }

    fn run(&mut self) {
        let mut works = true;
        while works {
            works = false;
            for at in 0..self.engines.len() {
                let mut done: Vec<Committed> = Vec::new();
                let progress = self.engines[at].step(WorkerId(0), Budget::UNBOUNDED, &mut done);
                works |= progress == Progress::Worked;
                for done in done {
                    let key = (at as u16, done.request.id.sequence);
                    self.outcomes.insert(key, done.outcome);
                }
                for (to, message) in siblings_of(&self.engines[at]).messages() {
                    works = true;
                    siblings_of(&self.engines[usize::from(to.0)]).receive(PartitionId(at as u16), message);
                }
            }
        }
    }

    fn put(&mut self, key: &Key, at: u16) {
        let key = key.clone();
        let procedure = FnProcedure::new("put", move |mut tx: Tx, _: Call| {
            let key = key.clone();
            async move {
                tx.put(&key, &b"here"[..]).await?;
                Ok(Reply::OK)
            }
        });
        let request = self.request(Arc::new(procedure), &[at], false);
        self.epoch(vec![request]);
    }

    fn ask(&mut self, procedure: Arc<dyn Procedure>, on: &[u16], read_only: bool) -> Vec<Outcome> {
        let request = self.request(procedure, on, read_only);
        let sequence = request.id.sequence;
        self.epoch(vec![request]);
        let answer = |at: &u16| self.outcomes.get(&(*at, sequence)).cloned();
        on.iter().map(|at| answer(at).expect("it final-commits")).collect()
    }
}

fn get_all(keys: Vec<Key>) -> Arc<dyn Procedure> {
    Arc::new(FnProcedure::new("get-all", move |mut tx: Tx, _: Call| {
        let keys = keys.clone();
        async move {
            let mut found = 0;
            for key in &keys {
                found += i64::from(tx.get(key).await?.is_some());
            }
            Ok(Reply::Integer(found))
        }
    }))
}

#[test]
fn a_read_only_transaction_over_two_partitions_reads_both() {
    alone(|| {
        for kind in all() {
            let mut world = World::new(kind, 2);
            let keys: Vec<_> = (0..2).map(|at| key_of(at, 2)).collect();
            world.put(&keys[0], 0);
            world.put(&keys[1], 1);
            for read_only in [false, true] {
                let answers = world.ask(get_all(keys.clone()), &[0, 1], read_only);
                for answer in answers {
                    assert_eq!(answer, Ok(Reply::Integer(2)), "{kind:?}, read only: {read_only}");
                }
            }
        }
    });
}

#[test]
fn a_count_over_two_of_three_partitions_is_not_answered() {
    alone(|| {
        for kind in all() {
            let mut world = World::new(kind, 3);
            for at in 0..3 {
                world.put(&key_of(at, 3), at);
            }
            let count = FnProcedure::new("count", |mut tx: Tx, _: Call| async move {
                Ok(Reply::Integer(tx.count().await? as i64))
            });
            let count: Arc<dyn Procedure> = Arc::new(count);
            assert_eq!(world.ask(count.clone(), &[0, 1, 2], false)[0], Ok(Reply::Integer(3)));
            assert_eq!(world.ask(count, &[0, 1], false)[0], Err(Stop::Undeclared(None)));
        }
    });
}

#[test]
fn a_clear_over_two_of_three_partitions_does_nothing() {
    alone(|| {
        for kind in all() {
            let mut world = World::new(kind, 3);
            for at in 0..3 {
                world.put(&key_of(at, 3), at);
            }
            let clear = FnProcedure::new("clear", |mut tx: Tx, _: Call| async move {
                tx.clear().await?;
                Ok(Reply::OK)
            });
            assert_eq!(world.ask(Arc::new(clear), &[0, 1], false)[0], Err(Stop::Undeclared(None)));
        }
    });
}

/// What each of three partitions answers to calls of Redis's commands over all of them: with what others are
/// told, if anybody wants to know.
fn answers_of_commands(kind: EngineKind) -> Vec<Vec<Outcome>> {
    let mut registry = Registry::new();
    redis_surface::register(&mut registry).expect("their names differ");
    let mut world = World::new(kind, 3);
    let keys: Vec<Key> = (0..3).map(|at| key_of(at, 3)).collect();
    let [a, b, c] = &keys[..] else { panic!("three keys") };
    let name = |key: &Key| Blob::new(key.as_bytes());
    let word = |text: &str| Blob::from(text);
    let mut answers = Vec::new();
    for (command, words) in [
        ("redis.mset", vec![name(c), word("1"), name(a), word("2"), name(b), word("3")]),
        ("redis.mget", vec![name(b), name(c), name(a)]),
        ("redis.exists", vec![name(a), name(b), name(c)]),
        ("redis.del", vec![name(c), name(b), name(a)]),
        ("redis.del", vec![name(c), name(b), name(a)]),
    ] {
        let procedure = registry.by_id(ProcedureId::of(command)).expect("a command").clone();
        let request = world.request(procedure.clone(), &[0, 1, 2], false);
        let args: Args = words.into_iter().collect();
        let footprint = procedure.footprint(&args);
        let request = Arc::new(Request { args, footprint, ..(*request).clone() });
        let sequence = request.id.sequence;
        world.epoch(vec![request]);
        answers.push((0..3).map(|at| world.outcomes[&(at, sequence)].clone()).collect());
    }
    let split = world.engines.iter().map(|engine| engine.status().split).sum::<u64>();
    assert_eq!(split > 0, kind == EngineKind::QStore, "{kind}");
    answers
}

#[test]
fn what_a_command_over_partitions_does_is_told_at_each_of_them() {
    alone(|| {
        let calvin = answers_of_commands(EngineKind::Calvin);
        assert_eq!(calvin[3], vec![Ok(Reply::Integer(3)); 3], "{calvin:?}");
        let wanted = redis_surface::telling::want();
        let calvin_told = answers_of_commands(EngineKind::Calvin);
        assert!(
            calvin_told[0].iter().all(|outcome| matches!(outcome, Ok(Reply::Told(_)))),
            "{calvin_told:?}"
        );
        assert_eq!(answers_of_commands(EngineKind::QStore), calvin_told);
        drop(wanted);
        assert_eq!(answers_of_commands(EngineKind::QStore), calvin);
    });
}

/// A key that is elsewhere is not absent: who takes it for that leaves nothing behind either.
#[test]
fn whoever_strays_comes_again_whatever_it_makes_of_the_refusal() {
    alone(|| {
        for kind in all() {
            for partitions in [&[0][..], &[0, 1][..]] {
                let mut world = World::new(kind, 3);
                let (here, elsewhere) = (key_of(0, 3), key_of(2, 3));
                world.put(&elsewhere, 2);
                let stray = {
                    let (here, elsewhere) = (here.clone(), elsewhere.clone());
                    FnProcedure::new("stray", move |mut tx: Tx, _: Call| {
                        let (here, elsewhere) = (here.clone(), elsewhere.clone());
                        async move {
                            if tx.get(&elsewhere).await.unwrap_or(None).is_none() {
                                tx.put(&here, &b"absent"[..]).await?;
                            }
                            Ok(Reply::OK)
                        }
                    })
                };
                for answer in world.ask(Arc::new(stray), partitions, false) {
                    assert_eq!(
                        answer,
                        Err(Stop::Undeclared(Some(PartitionId(2)))),
                        "{kind:?} at {partitions:?}"
                    );
                }
                let found = world.ask(get_all(vec![here]), &[0], false);
                assert_eq!(found[0], Ok(Reply::Integer(0)), "{kind:?} at {partitions:?}");
            }
        }
    });
}

#[test]
fn what_is_written_to_the_system_space_everywhere_is_everywhere() {
    alone(|| {
        for kind in all() {
            let mut world = World::new(kind, 2);
            let key = keys_of(1, 2, true).next().unwrap();
            let written = key.clone();
            let load = FnProcedure::new("load", move |mut tx: Tx, _: Call| {
                let key = written.clone();
                async move {
                    tx.put(&key, &b"body"[..]).await?;
                    Ok(Reply::OK)
                }
            });
            world.ask(Arc::new(load), &[0, 1], false);
            for at in [1, 0] {
                let answer = world.ask(get_all(vec![key.clone()]), &[at], false);
                assert_eq!(answer[0], Ok(Reply::Integer(1)), "{kind:?} at {at}");
            }
        }
    });
}

#[test]
fn the_first_partition_reads_the_system_space_for_all() {
    alone(|| {
        for kind in all() {
            for (at, found) in [(0, 1), (1, 0)] {
                let mut world = World::new(kind, 2);
                // Of another slot than the partition's that has it.
                let key = keys_of(1 - at, 2, true).next().unwrap();
                world.put(&key, at);
                let scanned = key.clone();
                let look = FnProcedure::new("look", move |mut tx: Tx, _: Call| {
                    let key = scanned.clone();
                    async move {
                        let range = ScanRange::of(Space::System, 0, 10);
                        let is_there = tx.get(&key).await?.is_some();
                        let before = tx.scan(range).await?.entries.len();
                        tx.put(&key, &b"again"[..]).await?;
                        let behind = tx.scan(range).await?.entries.len();
                        let seen = [usize::from(is_there), before, behind];
                        let seen = seen.into_iter().fold(0, |all, one| 10 * all + one);
                        Ok(Reply::Integer(seen as i64))
                    }
                });
                let look: Arc<dyn Procedure> = Arc::new(look);
                let wanted = Ok(Reply::Integer(100 * found + 10 * found + 1));
                for answer in world.ask(look, &[0, 1], false) {
                    assert_eq!(answer, wanted, "{kind:?}, kept at {at}");
                }
                for at in [0, 1] {
                    let answer = world.ask(get_all(vec![key.clone()]), &[at], false);
                    assert_eq!(answer[0], Ok(Reply::Integer(1)), "{kind:?} at {at}");
                }
            }
        }
    });
}

#[test]
fn calvin_locks_what_is_named_of_the_system_space() {
    alone(|| {
        let mut world = World::new(EngineKind::Calvin, 2);
        let key = keys_of(1, 2, true).next().unwrap();
        let written = key.clone();
        let count = FnProcedure::new("count", move |mut tx: Tx, _: Call| {
            let key = written.clone();
            async move {
                let before = tx.get(&key).await?;
                let before = before.map_or(0, |entry| format!("{entry:?}").len() as i64);
                tx.put(&key, &b"more"[..]).await?;
                Ok(Reply::Integer(before.min(1)))
            }
        });
        let count: Arc<dyn Procedure> = Arc::new(count);
        for round in 0..3 {
            let request = world.request(count.clone(), &[0, 1], false);
            let mut request = (*request).clone();
            request.footprint.keys =
                Some(Arc::new(KeySets { writes: vec![key.clone()], ..KeySets::default() }));
            let sequence = request.id.sequence;
            world.epoch(vec![Arc::new(request)]);
            for at in [0, 1] {
                let answer = world.outcomes.get(&(at, sequence));
                assert_eq!(answer, Some(&Ok(Reply::Integer(round.min(1)))), "at {at}");
            }
        }
    });
}

#[test]
fn a_malformed_anchor_is_ignored() {
    alone(|| {
        let mut world = World::new(EngineKind::Sparkle, 2);
        world.confirm = false;
        let keys: Vec<_> = (0..2).map(|at| key_of(at, 2)).collect();
        let request = world.request(get_all(keys), &[0, 1], false);
        world.epoch(vec![request]);
        let id = GroupId {
            epoch: Epoch(1),
            digest: 1,
            part: 1,
            partitions: [0, 1].into_iter().map(PartitionId).collect(),
        };
        let note = Note::Anchor { member: u32::MAX, number: AbortNumber::first(1), raised: Vec::new() };
        let message = Message { groups: vec![(id, vec![note])] };
        let bytes = message.encode();
        let message = Message::decode(&bytes).unwrap();
        siblings_of(&world.engines[0]).receive(PartitionId(1), message);
    });
}

fn siblings_of(engine: &Arc<dyn Engine>) -> &dyn Siblings {
    engine.siblings().expect("it spans partitions")
}

/// A transaction whose values go to and fro twice; the process of partition 0 ends in the middle, and the
/// next one has this era.
fn restart_with(era: u64) -> Option<Outcome> {
    let keys: Vec<_> = (0..2).map(|at| keys_of(at, 2, false).take(2).collect::<Vec<_>>()).collect();
    let order = [&keys[0][0], &keys[1][0], &keys[0][1], &keys[1][1]];
    let mut world = World::new(EngineKind::Sparkle, 2);
    world.confirm = false;
    let request = world.request(get_all(order.into_iter().cloned().collect()), &[0, 1], false);
    let batch = Batch {
        epoch: Epoch(1),
        time_ms: 1,
        first: Position::FIRST,
        requests: vec![request],
        groups: vec![txn::Group { first: 0, members: 1, part: 1 }],
        digest: 1,
    };
    let step = |engine: &Arc<dyn Engine>, done: &mut Vec<Committed>| {
        while engine.step(WorkerId(0), Budget::UNBOUNDED, done) == Progress::Worked {}
    };
    let mut done = Vec::new();
    for engine in &world.engines {
        engine.deliver(batch.clone());
        step(engine, &mut done);
    }
    for (_, message) in siblings_of(&world.engines[0]).messages() {
        siblings_of(&world.engines[1]).receive(PartitionId(0), message);
    }
    step(&world.engines[1], &mut done);
    siblings_of(&world.engines[1]).messages();
    world.engines[0] = sparkle(PartitionId(0), era << 16);
    world.engines[0].deliver(batch);
    let [zero, one] = [0, 1].map(|at| siblings_of(&world.engines[at]));
    one.tell_again(PartitionId(0), Epoch(0), zero.heard(PartitionId(1)));
    zero.tell_again(PartitionId(1), Epoch(0), one.heard(PartitionId(0)));
    for engine in &world.engines {
        engine.confirm(Position::FIRST);
    }
    world.run();
    world.outcomes.get(&(1, 1)).cloned()
}

#[test]
fn a_process_whose_era_is_smaller_is_heard_too() {
    alone(|| {
        assert_eq!(restart_with(2), Some(Ok(Reply::Integer(0))), "a greater era");
        assert_eq!(restart_with(0), Some(Ok(Reply::Integer(0))), "a smaller era");
    });
}

/// The batches of some groups for one epoch: a connection and its partitions, for each request. Those whose
/// orders, at partitions and at connections, are a circle.
fn circle(batches: &[&[(u64, &[u16])]], of: u16) -> Vec<u64> {
    let procedure = get_all(Vec::new());
    let mut sequence = 0;
    let mut placed = Vec::new();
    for batch in batches {
        let mut requests = Vec::new();
        for &(session, on) in *batch {
            sequence += 1;
            let id = RequestId { session: SessionId(session), sequence, attempt: 0 };
            let mut request = Request::new(id, procedure.clone(), Args::new());
            request.footprint.read_only = false;
            request.route = PartitionRoute {
                home: PartitionId(0),
                partitions: on.iter().copied().map(PartitionId).collect(),
                slots: txn::Slots::even(of),
            };
            requests.push(Arc::new(request));
        }
        let of_batch = places(requests.iter().map(|request| &**request));
        let both = requests.into_iter().zip(of_batch);
        placed.extend(both.map(|(request, place)| Placed { request, place }));
    }
    let mut before = Vec::new();
    let mut follow = |order: Vec<u64>| {
        before.extend(order.windows(2).map(|pair| (pair[0], pair[1])));
    };
    for at in 0..of {
        let mine = placed.iter().filter(|placed| {
            let partitions = &placed.request.route.partitions;
            partitions.contains(&PartitionId(at))
        });
        let requests = arrange(mine.cloned().collect()).requests;
        follow(requests.iter().map(|request| request.id.sequence).collect());
    }
    for session in 0..10 {
        let own = placed.iter().map(|placed| placed.request.id);
        let own = own.filter(|id| id.session.0 == session);
        follow(own.map(|id| id.sequence).collect());
    }
    let mut left: Vec<u64> = (1..=sequence).collect();
    while let Some(place) =
        left.iter().position(|one| !before.iter().any(|(a, b)| b == one && left.contains(a)))
    {
        left.remove(place);
    }
    left
}

#[test]
fn sections_hold_where_no_transaction_has_siblings() {
    let batch: &[(u64, &[u16])] = &[(1, &[1]), (1, &[1, 3]), (1, &[0]), (2, &[0]), (2, &[1, 2])];
    assert_eq!(circle(&[batch], 4), Vec::<u64>::new());
}

#[test]
fn a_connection_keeps_its_order_among_the_groups_of_others() {
    let batches: [&[(u64, &[u16])]; 2] = [&[(1, &[0]), (1, &[2])], &[(2, &[2]), (3, &[1, 2]), (3, &[0, 2])]];
    assert_eq!(circle(&batches, 3), Vec::<u64>::new());
}
