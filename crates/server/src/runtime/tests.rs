mod member;

use super::*;
use crate::disk::RealDisk;
use execute::{Effects, EngineKind, Serial, Status, Waiting};
use std::path::Path;
use std::sync::atomic::AtomicU64;
use store::View;
use txn::Registry;
use txn::{
    Args, Batch, Call, Entry, FnProcedure, Footprint, Intent, Key, Outcome, Procedure, ProcedureFuture,
    Reply, RequestId, Stop, Tx, Value, Weight,
};

/// `add key n`: adds to a number and returns the sum.
async fn add(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::from(&call[0]);
    let by = number(&call[1]);
    let sum =
        tx.get_for_update(&key).await?.map_or(0, |value| value.as_string().map_or(0, |text| number(&text)))
            + by;
    tx.put(&key, Value::from(sum.to_string().as_str())).await?;
    Ok(Reply::Integer(sum))
}

/// `get key`
async fn get(mut tx: Tx, call: Call) -> Outcome {
    let value = tx.get(&Key::from(&call[0])).await?;
    Ok(value.and_then(|value| value.as_string()).map_or(Reply::Nil, Reply::Bulk))
}

/// `put key value expires_at_ms`
async fn put(mut tx: Tx, call: Call) -> Outcome {
    let entry = Entry { value: Value::from(call[1].clone()), expires_at_ms: number(&call[2]) as u64 };
    tx.put_entry(&Key::from(&call[0]), entry).await?;
    Ok(Reply::OK)
}

/// `dwell key reads`: reads a key so many times before it writes it.
async fn dwell(mut tx: Tx, call: Call) -> Outcome {
    let key = Key::from(&call[0]);
    for _ in 0..number(&call[1]) {
        tx.get(&key).await?;
    }
    tx.put(&key, Value::from("v")).await?;
    Ok(Reply::OK)
}

/// `expire key...`: what active expiry calls.
async fn expire(mut tx: Tx, call: Call) -> Outcome {
    let mut removed = 0;
    for key in call.iter().map(Key::from) {
        let now_ms = tx.now_ms();
        let read = tx.read(&key, Intent::Update).await?;
        // An expired entry reads as absent; deleting an absent key costs nothing but a version.
        if read.entry.is_none_or(|entry| entry.expired(now_ms)) {
            tx.delete(&key).await?;
            removed += 1;
        }
    }
    Ok(Reply::Integer(removed))
}

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).unwrap().parse().unwrap()
}

/// A procedure with the footprint of a test's choice.
struct Shaped<P>(P, Footprint);

impl<P: Procedure> Procedure for Shaped<P> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn footprint(&self, _: &Args) -> Footprint {
        self.1.clone()
    }
    fn run(&self, tx: Tx, call: Call) -> ProcedureFuture {
        self.0.run(tx, call)
    }
}

fn registry() -> Registry {
    let heavy = Footprint { weight: Weight::Heavy, ..Footprint::unknown() };
    let mut registry = Registry::new();
    let procedures: [Arc<dyn Procedure>; 7] = [
        Arc::new(FnProcedure::new("add", add)),
        Arc::new(FnProcedure::new("put", put)),
        Arc::new(FnProcedure::new("dwell", dwell)),
        Arc::new(FnProcedure::new("expire", expire)),
        Arc::new(Shaped(FnProcedure::new("get", get), Footprint::read_only())),
        Arc::new(Shaped(FnProcedure::new("sneaky", add), Footprint::read_only())),
        Arc::new(Shaped(FnProcedure::new("heavy-add", add), heavy)),
    ];
    for procedure in procedures {
        registry.register(procedure).unwrap();
    }
    registry
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Serial,
    Sparkle,
}

fn options(dir: &Path, kind: Kind, fsync: FsyncPolicy) -> RuntimeOptions {
    let mut options = RuntimeOptions::new(dir);
    options.fsync = fsync;
    options.workers = 2;
    options.ports = 4;
    options.segment_bytes = 64 * 1024;
    if let Kind::Serial = kind {
        options.engine = EngineKind::Serial;
    }
    options
}

/// A caller with a port and a session, which waits as an I/O thread does.
struct Client {
    runtime: Arc<Runtime>,
    registry: Registry,
    port: Port,
    session: txn::SessionId,
    sequence: u64,
    bell: Arc<(Mutex<bool>, Condvar)>,
}

impl Client {
    fn new(runtime: &Arc<Runtime>) -> Client {
        let bell: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let ring = bell.clone();
        let wake = Box::new(move || {
            *ring.0.lock() = true;
            ring.1.notify_one();
        });
        let port = runtime.port(wake).unwrap();
        let session = port.session();
        Client { runtime: runtime.clone(), registry: registry(), port, session, sequence: 0, bell }
    }

    fn request(&mut self, procedure: &str, args: &[&str]) -> Arc<Request> {
        self.sequence += 1;
        let id = RequestId { session: self.session, sequence: self.sequence, attempt: 0 };
        let procedure = self.registry.by_name(procedure).unwrap().clone();
        Arc::new(Request::new(id, procedure, args.iter().copied().collect()))
    }

    fn wait(&self) {
        let mut rung = self.bell.0.lock();
        while !*rung {
            self.bell.1.wait(&mut rung);
        }
        *rung = false;
    }

    /// Waits for so many replies.
    fn await_answers(&self, count: usize) -> Vec<Answer> {
        let mut replies = Vec::new();
        loop {
            self.runtime.help(&self.port);
            self.port.drain(&mut replies);
            assert!(replies.len() <= count);
            if replies.len() == count {
                break;
            }
            self.wait();
        }
        replies
    }

    /// Submits requests as one batch and waits for all replies, in the order of the requests.
    fn run(&mut self, mut requests: Vec<Arc<Request>>) -> Vec<Outcome> {
        let first = requests[0].id.sequence;
        let count = requests.len();
        while let Err(refused) = self.runtime.submit(&self.port, &mut requests) {
            assert_eq!(refused, Refused::Busy);
            self.runtime.help(&self.port);
            self.wait();
        }
        let mut replies = self.await_answers(count);
        replies.sort_by_key(|(id, _)| id.sequence);
        assert!(replies.iter().enumerate().all(|(i, (id, _))| id.sequence == first + i as u64));
        replies.into_iter().map(|(_, outcome)| outcome).collect()
    }

    fn call(&mut self, procedure: &str, args: &[&str]) -> Outcome {
        let request = self.request(procedure, args);
        self.run(vec![request]).remove(0)
    }

    fn get(&mut self, key: &str) -> Reply {
        let request = self.request("get", &[key]);
        match self.runtime.read(&self.port, &request) {
            ReadOutcome::Done(outcome) => outcome.unwrap(),
            other => panic!("nothing expires here and nobody interrupts: {other:?}"),
        }
    }
}

fn start(options: RuntimeOptions) -> (Arc<Runtime>, RecoveryReport) {
    Runtime::start(options, &registry()).unwrap()
}

const COMBINATIONS: [(Kind, FsyncPolicy); 4] = [
    (Kind::Serial, FsyncPolicy::Always),
    (Kind::Serial, FsyncPolicy::Everysec),
    (Kind::Sparkle, FsyncPolicy::Always),
    (Kind::Sparkle, FsyncPolicy::No),
];

#[test]
fn what_was_answered_is_there_after_a_restart() {
    for (kind, fsync) in COMBINATIONS {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, report) = start(options(dir.path(), kind, fsync));
        assert_eq!((report.entries, report.checkpoint), (0, Epoch(0)));
        let mut client = Client::new(&runtime);
        assert_eq!(client.call("add", &["a", "5"]), Ok(Reply::Integer(5)));
        let batch = (1..=100).map(|_| client.request("add", &["a", "1"])).collect();
        let sums: Vec<Outcome> = (6..=105).map(|sum| Ok(Reply::Integer(sum))).collect();
        assert_eq!(client.run(batch), sums);
        assert_eq!(client.get("a"), Reply::bulk("105"));
        let session = client.session;
        drop(client);
        drop(runtime);

        let (runtime, report) = start(options(dir.path(), kind, fsync));
        assert_eq!(report.checkpoint, Epoch(0), "{kind:?} {fsync}");
        assert!(report.entries >= 2, "{kind:?} {fsync}: {report}");
        let mut client = Client::new(&runtime);
        assert!(client.session > session, "session ids never repeat");
        assert_eq!(client.get("a"), Reply::bulk("105"));
        assert_eq!(client.call("add", &["a", "1"]), Ok(Reply::Integer(106)));
    }
}

#[test]
fn a_second_process_cannot_use_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (_runtime, _) = start(options(dir.path(), Kind::Serial, FsyncPolicy::No));
    let second = Runtime::start(options(dir.path(), Kind::Serial, FsyncPolicy::No), &registry());
    assert!(matches!(second, Err(StartError::Directory(_))));
}

#[test]
fn many_callers_lose_no_update_and_no_reply() {
    for (kind, fsync) in COMBINATIONS {
        const ROUNDS: i64 = 50;
        const BATCH: i64 = 10;
        let dir = tempfile::tempdir().unwrap();
        let (runtime, _) = start(options(dir.path(), kind, fsync));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let runtime = runtime.clone();
                std::thread::spawn(move || {
                    let mut client = Client::new(&runtime);
                    for round in 0..ROUNDS {
                        let own = format!("own-{number}");
                        let batch = (0..BATCH)
                            .map(|i| {
                                let procedure = if (round + i) % 5 == 0 { "heavy-add" } else { "add" };
                                client.request(procedure, &[if i % 2 == 0 { "shared" } else { &own }, "1"])
                            })
                            .collect();
                        client.run(batch);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        let mut client = Client::new(&runtime);
        assert_eq!(
            client.get("shared"),
            Reply::bulk((3 * ROUNDS * BATCH / 2).to_string()),
            "{kind:?} {fsync}"
        );
        assert_eq!(client.get("own-2"), Reply::bulk((ROUNDS * BATCH / 2).to_string()));
    }
}

#[test]
fn little_room_makes_callers_wait_and_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options(dir.path(), Kind::Sparkle, FsyncPolicy::Always);
    options.limits = Limits { in_flight_requests_max: 1, in_flight_bytes_max: 1 << 20 };
    let (runtime, _) = start(options);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                let mut client = Client::new(&runtime);
                for _ in 0..30 {
                    client.call("add", &["a", "1"]).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(Client::new(&runtime).get("a"), Reply::bulk("120"));
}

#[test]
fn a_checkpoint_replaces_the_log_before_it() {
    for kind in [Kind::Serial, Kind::Sparkle] {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, _) = start(options(dir.path(), kind, FsyncPolicy::No));
        let mut client = Client::new(&runtime);
        let filler = "x".repeat(1000);
        let mut segments_before = 0;
        for round in 0..3 {
            for i in 0..200 {
                client.call("put", &[&format!("key-{round}-{i}"), &filler, "0"]).unwrap();
            }
            segments_before = runtime.status().log.segments;
            let epoch = runtime.checkpoint().unwrap();
            assert_eq!(epoch, runtime.status().node.checkpoint);
        }
        client.call("add", &["last", "1"]).unwrap();
        drop(client);
        runtime.shutdown(false);
        let status = runtime.status();
        assert_eq!(status.node.checkpoints, 3);
        assert!(status.log.segments < segments_before, "{} of {segments_before} left", status.log.segments);
        drop(runtime);

        let (runtime, report) = start(options(dir.path(), kind, FsyncPolicy::No));
        assert_eq!((report.checkpoint, report.records), (status.node.checkpoint, 600), "{kind:?}");
        let mut client = Client::new(&runtime);
        assert_eq!(client.get("key-0-0"), Reply::bulk(filler.as_str()));
        assert_eq!(client.call("add", &["last", "1"]), Ok(Reply::Integer(2)));
    }
}

#[test]
fn one_sync_answers_all_who_asked_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Serial, FsyncPolicy::No));
    let mut client = Client::new(&runtime);
    client.call("add", &["a", "1"]).unwrap();
    let log = runtime.status().log;
    assert!(log.durable < log.last, "nobody has synced yet");
    let (ask, asked) = mpsc::channel();
    let tickets: Vec<ChangeTicket> = (0..100)
        .map(|_| {
            let (ticket, answer) = ChangeTicket::open();
            ask.send(answer).unwrap();
            ticket
        })
        .collect();
    assert!(threads::sync_for_all(&runtime.inner, &asked));
    for ticket in tickets {
        assert_eq!(ticket.try_take(), Some(Ok(String::new())));
    }
    let log = runtime.status().log;
    assert_eq!(log.durable, log.last);
    assert!(runtime.sync_log().is_none(), "nothing is left to sync");
    drop(ask);
    assert!(!threads::sync_for_all(&runtime.inner, &asked));
    // Whoever asks too late is told so.
    client.call("add", &["a", "1"]).unwrap();
    runtime.inner.core.lock().hands = None;
    let late = runtime.sync_log().expect("there is something to sync");
    assert_eq!(late.try_take(), Some(Err("the node is shutting down".to_owned())));
}

#[test]
fn checkpoints_are_taken_while_writers_go_on_and_miss_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut opts = options(dir.path(), Kind::Sparkle, FsyncPolicy::Everysec);
    opts.checkpoint_bytes = 20_000;
    let (runtime, _) = start(opts);
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let runtime = runtime.clone();
            std::thread::spawn(move || {
                let mut client = Client::new(&runtime);
                let mut rounds = 0;
                while runtime.status().node.checkpoints < 3 {
                    let key = format!("k{}", (rounds * 7 + number) % 50);
                    let batch = (0..7).map(|_| client.request("add", &[&key, "1"])).collect();
                    client.run(batch);
                    rounds += 1;
                }
                rounds
            })
        })
        .collect();
    let rounds: i64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let sum = |runtime: &Arc<Runtime>| -> i64 {
        let mut client = Client::new(runtime);
        (0..50)
            .map(|i| if let Reply::Bulk(text) = client.get(&format!("k{i}")) { number(&text) } else { 0 })
            .sum()
    };
    assert_eq!(sum(&runtime), rounds * 7);
    runtime.shutdown(false);
    drop(runtime);
    let (runtime, report) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::Everysec));
    assert!(report.checkpoint > Epoch(0));
    assert_eq!(sum(&runtime), rounds * 7, "{report:?}");
}

#[test]
fn a_thread_that_stops_in_the_middle_of_a_transaction_holds_nobody_up() {
    type Leave = fn(&Client);
    let leaves: [(&str, Leave); 2] = [
        ("a peer's thread", |client| {
            let inner = &client.runtime.inner;
            let mut replies = inner.peer_worker.lock();
            inner.step_as_peer(&mut replies);
        }),
        ("a caller", |client| client.runtime.help(&client.port)),
    ];
    for (who, leave) in leaves {
        let dir = tempfile::tempdir().unwrap();
        let (runtime, _) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::No));
        let mut first = Client::new(&runtime);
        // More than a thread does before it looks after something else.
        let reads = u64::from(HELP_STEPS_MAX) * u64::from(HELP.operations) + 1;
        let mut requests = vec![first.request("dwell", &["a", &reads.to_string()])];
        runtime.submit(&first.port, &mut requests).unwrap();
        leave(&first);
        // That thread does not come back.
        let mut second = Client::new(&runtime);
        let mut requests = vec![second.request("add", &["b", "1"])];
        runtime.submit(&second.port, &mut requests).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        while second.port.outstanding() > 0 {
            assert!(Instant::now() < deadline, "{who}: {:?}", runtime.status());
            runtime.help(&second.port);
            std::thread::yield_now();
        }
        assert_eq!(first.port.outstanding(), 0, "{who}");
    }
}

#[test]
fn a_caller_that_leaves_wakes_somebody_for_what_others_sleep_over() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::No));
    let (mut helper, mut sleeper) = (Client::new(&runtime), Client::new(&runtime));
    let reads = u64::from(HELP_STEPS_MAX) * u64::from(HELP.operations) + 1;
    let mut requests = vec![sleeper.request("dwell", &["a", &reads.to_string()])];
    runtime.submit(&sleeper.port, &mut requests).unwrap();
    let mut requests = vec![helper.request("add", &["b", "1"])];
    runtime.submit(&helper.port, &mut requests).unwrap();
    // Begins the other's, and does not come back.
    runtime.help(&helper.port);
    let deadline = Instant::now() + Duration::from_secs(30);
    while sleeper.port.outstanding() > 0 {
        assert!(Instant::now() < deadline, "{:?}", runtime.status());
        std::thread::yield_now();
    }
}

#[test]
fn a_shutdown_with_a_checkpoint_leaves_nothing_to_replay() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::Everysec));
    let mut client = Client::new(&runtime);
    client.call("add", &["a", "1"]).unwrap();
    runtime.shutdown(true);
    let mut requests = vec![client.request("add", &["a", "1"])];
    assert_eq!(runtime.submit(&client.port, &mut requests), Err(Refused::ShuttingDown));
    assert_eq!(requests.len(), 1, "refused requests stay with the caller");
    assert_eq!(client.get("a"), Reply::bulk("1"), "reads go on");
    drop(client);
    drop(runtime);
    let (_runtime, report) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::Everysec));
    assert_eq!((report.checkpoint > Epoch(0), report.records), (true, 1));
}

#[test]
fn reads_at_a_snapshot_refuse_to_write_and_leave_expiries_to_the_order() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Sparkle, FsyncPolicy::No));
    let mut client = Client::new(&runtime);
    let request = client.request("sneaky", &["a", "1"]);
    match runtime.read(&client.port, &request) {
        ReadOutcome::Done(Err(Stop::Abort(text))) => assert!(text.contains("read-only"), "{text}"),
        other => panic!("{other:?}"),
    }
    // The write's epoch must be before the expiry, however slow the machine is; then wait until the clock is
    // behind it.
    let mut expires_at_ms = 0;
    while runtime.engine().view().final_time_ms() >= expires_at_ms {
        expires_at_ms = runtime.epoch_ms() + 30;
        client.call("put", &["a", "v", &expires_at_ms.to_string()]).unwrap();
    }
    let request = client.request("get", &["a"]);
    while runtime.epoch_ms() < expires_at_ms {
        std::thread::yield_now();
    }
    assert!(matches!(runtime.read(&client.port, &request), ReadOutcome::MustOrder));
    assert!(runtime.read_aside(&client.port, request.clone()));
    let id = request.id;
    assert_eq!(client.await_answers(1), [(id, Err(Stop::Restart))]);
    assert_eq!(client.run(vec![request.clone()]), [Ok(Reply::Nil)]);
    assert_eq!(client.get("a"), Reply::Nil, "the order has decided");
    assert!(runtime.read_aside(&client.port, request.clone()));
    assert_eq!(client.await_answers(1), [(id, Ok(Reply::Nil))]);
    runtime.shutdown(false);
    assert!(!runtime.read_aside(&client.port, request), "nobody would answer");
}

/// Holds [`held_put`] up.
static GATE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());

fn pass_gate() {
    let mut is_open = GATE.0.lock();
    while !*is_open {
        GATE.1.wait(&mut is_open);
    }
}

/// Writes `key value` once the gate is open.
async fn held_put(mut tx: Tx, call: Call) -> Outcome {
    pass_gate();
    tx.put(&Key::from(&call[0]), Value::from(call[1].clone())).await?;
    Ok(Reply::OK)
}

#[test]
fn a_read_of_the_past_waits_for_transactions_of_that_time() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Serial, FsyncPolicy::No));
    runtime.set_history_ms(600_000);
    while runtime.oldest_past_ms().is_none() {
        std::thread::yield_now();
    }
    let (mut writer, mut reader) = (Client::new(&runtime), Client::new(&runtime));
    writer.call("put", &["a", "before", "0"]).unwrap();
    let delivered = || runtime.inner.engines.first().status().delivered;
    let before = delivered();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let id = RequestId { session: writer.session, sequence: 1_000, attempt: 0 };
            let procedure = Arc::new(FnProcedure::new("held-put", held_put));
            let request = Request::new(id, procedure, ["a", "behind"].into_iter().collect());
            assert_eq!(writer.run(vec![Arc::new(request)]), [Ok(Reply::OK)]);
        });
        while delivered() == before {
            std::thread::yield_now();
        }
        // The time of the transaction is over, and the transaction is not.
        let ordered_ms = runtime.epoch_ms();
        while runtime.epoch_ms() <= ordered_ms {
            std::thread::yield_now();
        }
        reader.sequence += 1;
        let id = RequestId { session: reader.session, sequence: reader.sequence, attempt: 0 };
        let args = [ordered_ms.to_string(), "get".to_owned(), "a".to_owned()];
        let past = Arc::new(redis_surface::PastProcedure);
        let request = Request::new(id, past, args.iter().map(String::as_str).collect());
        assert!(runtime.read_aside(&reader.port, Arc::new(request)));
        let mut answers = Vec::new();
        while answers.is_empty() && !runtime.inner.strict_waiting.load(Ordering::SeqCst) {
            reader.port.drain(&mut answers);
            std::thread::yield_now();
        }
        *GATE.0.lock() = true;
        GATE.1.notify_all();
        assert!(answers.is_empty(), "{answers:?}");
        assert_eq!(reader.await_answers(1), [(id, Ok(Reply::bulk("behind")))]);
    });
}

#[test]
fn expired_entries_are_removed_without_a_reader() {
    let dir = tempfile::tempdir().unwrap();
    let mut opts = options(dir.path(), Kind::Sparkle, FsyncPolicy::Everysec);
    opts.expire = registry().by_name("expire").cloned();
    let (runtime, _) = start(opts);
    let mut client = Client::new(&runtime);
    let soon = (runtime.epoch_ms() + 10).to_string();
    for i in 0..500 {
        client.call("put", &[&format!("gone-{i}"), "v", &soon]).unwrap();
        client.call("put", &[&format!("kept-{i}"), "v", "0"]).unwrap();
    }
    let view = runtime.engine().view();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let snapshot = view.open();
        let count = view.count_at(&snapshot);
        view.close(snapshot);
        // Counted when the removal is answered, which is after its commit.
        let expired = runtime.expired_keys();
        if (count, expired) == (500, 500) {
            break;
        }
        assert!(
            Instant::now() < deadline && expired <= 500,
            "{count} entries are left, {expired} were counted"
        );
        std::thread::yield_now();
    }
    assert_eq!(client.get("kept-7"), Reply::bulk("v"));
}

/// An engine with a bug.
struct Panics(Serial, AtomicU64);

impl Engine for Panics {
    fn kind(&self) -> EngineKind {
        self.0.kind()
    }
    fn deliver(&self, batch: Batch) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.deliver(batch);
    }
    fn confirm(&self, upto: Position) {
        self.0.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.0.retract(from);
    }
    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        assert!(self.1.load(Ordering::SeqCst) < 3, "a planted bug");
        self.0.step(worker, budget, effects)
    }
    fn waiting(&self) -> Waiting {
        self.0.waiting()
    }
    fn status(&self) -> Status {
        self.0.status()
    }
    fn workers(&self) -> usize {
        self.0.workers()
    }
    fn view(&self) -> &dyn View {
        self.0.view()
    }
}

#[test]
fn a_bug_in_the_engine_halts_the_node_instead_of_hanging_it() {
    let dir = tempfile::tempdir().unwrap();
    let halts = Arc::new(AtomicU64::new(0));
    let mut opts = options(dir.path(), Kind::Serial, FsyncPolicy::No);
    opts.make_engine = Box::new(|_, _| Arc::new(Panics(Serial::new(), AtomicU64::new(0))));
    let seen = halts.clone();
    opts.on_halt = Some(Box::new(move |_| _ = seen.fetch_add(1, Ordering::SeqCst)));
    let (runtime, _) = start(opts);
    let mut client = Client::new(&runtime);
    client.call("add", &["a", "1"]).unwrap();
    client.call("add", &["a", "1"]).unwrap();
    let mut requests = vec![client.request("add", &["a", "1"])];
    runtime.submit(&client.port, &mut requests).unwrap();
    runtime.help(&client.port);
    assert!(runtime.halted().unwrap().contains("a planted bug"));
    assert_eq!(halts.load(Ordering::SeqCst), 1);
    let mut requests = vec![client.request("add", &["a", "1"])];
    assert!(matches!(runtime.submit(&client.port, &mut requests), Err(Refused::ReadOnly(_))));
    drop(client);
    drop(runtime);
    let (runtime, _) = start(options(dir.path(), Kind::Serial, FsyncPolicy::No));
    assert_eq!(
        Client::new(&runtime).get("a"),
        Reply::bulk("3"),
        "what was logged is there after the restart"
    );
}

#[test]
fn a_damaged_directory_refuses_to_start_and_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (runtime, _) = start(options(dir.path(), Kind::Serial, FsyncPolicy::Always));
    let mut client = Client::new(&runtime);
    for _ in 0..10 {
        client.call("add", &["a", "1"]).unwrap();
    }
    drop(client);
    drop(runtime);
    let log = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
    let log =
        log.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("log-")).min().unwrap();
    let mut bytes = std::fs::read(&log).unwrap();
    bytes[4096 + 72 + 100] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    let Err(error) = Runtime::start(options(dir.path(), Kind::Serial, FsyncPolicy::Always), &registry())
    else {
        panic!("started over corruption")
    };
    assert!(error.to_string().contains("damaged at byte"), "{error}");
    RealDisk::open(dir.path()).expect("a start that failed lets the directory go");
}
