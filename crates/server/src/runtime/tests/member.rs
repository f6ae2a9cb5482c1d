//! A cluster of one node, which agrees with itself.

use super::*;
use crate::cluster::identity::Identity;
use crate::peers::PeerEvents;
use crate::peers::PeerOptions;
use crate::runtime::member::{FromPeers, PROTOCOL};
use node::cluster::ClusterOptions;
use order::{Described, PartitionMap};
use txn::NodeId;

const ME: NodeId = NodeId(1);

/// An engine that a thread of a given name cannot look into, and that does nothing for its first steps.
struct Traps(Serial, &'static str, Arc<AtomicU64>);

impl Engine for Traps {
    fn kind(&self) -> EngineKind {
        self.0.kind()
    }
    fn deliver(&self, batch: Batch) {
        self.0.deliver(batch);
    }
    fn confirm(&self, upto: Position) {
        self.0.confirm(upto);
    }
    fn retract(&self, from: Position) {
        self.0.retract(from);
    }
    fn step(&self, worker: WorkerId, budget: Budget, effects: &mut dyn Effects) -> Progress {
        let idle = |left: u64| left.checked_sub(1);
        let (before, after) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.2.fetch_update(before, after, idle) {
            Ok(_) => Progress::Idle,
            Err(_) => self.0.step(worker, budget, effects),
        }
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
        assert_ne!(std::thread::current().name(), Some(self.1), "a planted bug");
        self.0.view()
    }
}

fn start_alone(options: RuntimeOptions) -> Arc<Runtime> {
    let described = Described {
        name: "a".to_owned(),
        zone: "x".to_owned(),
        peer_address: "127.0.0.1:1".to_owned(),
        client_address: "127.0.0.1:2".to_owned(),
    };
    let map = PartitionMap::new("test", &[described], 1).unwrap();
    let member = MemberOptions {
        name: "test".to_owned(),
        has_run: false,
        is_gone: Box::new(|_| None),
        peers: PeerOptions {
            me: ME,
            cluster: map.cluster,
            secret: b"a secret of sixteen characters".as_slice().into(),
            listen: "127.0.0.1:0".to_owned(),
            protocols: PROTOCOL..=PROTOCOL,
            skips: 0,
            engine: EngineKind::Serial,
            delivery: agree::Delivery::Raft,
            queue_bytes_max: 1 << 20,
            tls: None,
            plain_on_loopback: false,
        },
        node: ClusterOptions { fsync: options.fsync, tick_ms: 5, ..ClusterOptions::new(ME) },
        identity: Identity { node: ME, first: map.clone(), map },
        staleness_ms_max: u64::MAX,
    };
    Runtime::start_member(options, member, &registry()).unwrap().0
}

#[test]
fn a_panic_in_a_peers_thread_halts_the_node() {
    const PEER: &str = "peer-that-panics";
    let dir = tempfile::tempdir().unwrap();
    let mut opts = options(dir.path(), Kind::Serial, FsyncPolicy::No);
    opts.make_engine = Box::new(|_, _| Arc::new(Traps(Serial::new(), PEER, Arc::default())));
    let runtime = start_alone(opts);
    let mut client = Client::new(&runtime);
    assert_eq!(client.call("add", &["a", "5"]), Ok(Reply::Integer(5)));
    let events = FromPeers(runtime.inner.clone());
    let peer = std::thread::Builder::new().name(PEER.to_owned());
    let peer = peer.spawn(move || events.disconnected(NodeId(2))).unwrap();
    peer.join().expect("the panic is caught");
    assert!(runtime.halted().unwrap().contains("a planted bug"));
    // Whoever comes first behind the panic may not yet know of it.
    let mut core = runtime.inner.core.lock();
    assert!(core.turn(|_, _| ()).is_none(), "no turn follows");
    let mut requests = vec![client.request("add", &["a", "1"])];
    let refused = core.submit(&mut requests, 0).err();
    assert!(matches!(refused, Some(Refused::ReadOnly(_))), "{refused:?}");
    assert_eq!(requests.len(), 1);
}

#[test]
fn a_node_whose_journal_somebody_removes_says_so_and_stops() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = start_alone(options(dir.path(), Kind::Serial, FsyncPolicy::Always));
    let mut client = Client::new(&runtime);
    client.call("add", &["a", "1"]).unwrap();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().as_encoded_bytes().starts_with(b"log-") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let began = Instant::now();
    let refused = loop {
        let mut requests = vec![client.request("add", &["a", "1"])];
        match runtime.submit(&client.port, &mut requests) {
            Ok(()) => drop(client.await_answers(1)),
            Err(Refused::Busy) => runtime.help(&client.port),
            Err(refused) => break refused.to_string(),
        }
        assert!(began.elapsed() < Duration::from_secs(60), "nobody has noticed");
    };
    assert!(refused.contains("somebody removed files of its journal: log-"), "{refused}");
    runtime.shutdown(false);
}

#[test]
fn a_shutdown_answers_what_was_taken() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::No] {
        let dir = tempfile::tempdir().unwrap();
        let mut opts = options(dir.path(), Kind::Serial, fsync);
        // All is agreed long before anything is executed.
        opts.make_engine = Box::new(|_, _| Arc::new(Traps(Serial::new(), "nobody", Arc::new(300.into()))));
        let runtime = start_alone(opts);
        let mut client = Client::new(&runtime);
        let mut requests: Vec<_> = (0..500).map(|_| client.request("add", &["a", "1"])).collect();
        runtime.submit(&client.port, &mut requests).unwrap();
        // The owner of the port does nothing for them.
        runtime.shutdown(false);
        let mut answers = Vec::new();
        client.port.drain(&mut answers);
        answers.sort_by_key(|(id, _)| id.sequence);
        let sums = answers.into_iter().map(|(_, outcome)| outcome);
        let wanted: Vec<Outcome> = (1..=500).map(|sum| Ok(Reply::Integer(sum))).collect();
        assert_eq!(sums.collect::<Vec<_>>(), wanted, "{fsync}");
    }
}

#[test]
fn whoever_saves_waits_until_the_cluster_has_come_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = start_alone(options(dir.path(), Kind::Sparkle, FsyncPolicy::No));
    let mut client = Client::new(&runtime);
    client.call("add", &["a", "1"]).unwrap();
    let position = runtime.checkpoint().unwrap();
    let status = runtime.status().node;
    assert_eq!((status.checkpoints, status.checkpoint), (1, position));
}

#[test]
fn a_shutdown_with_a_checkpoint_waits_until_the_cluster_has_come_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = start_alone(options(dir.path(), Kind::Sparkle, FsyncPolicy::No));
    Client::new(&runtime).call("add", &["a", "1"]).unwrap();
    runtime.shutdown(true);
    let status = runtime.status().node;
    assert_eq!((status.checkpoints, status.checkpoint_error), (1, None));
}

#[test]
fn whoever_saves_learns_that_the_cluster_has_not_come_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let idle = Arc::new(AtomicU64::new(u64::MAX));
    let mut opts = options(dir.path(), Kind::Serial, FsyncPolicy::No);
    let held = idle.clone();
    opts.make_engine = Box::new(move |_, _| Arc::new(Traps(Serial::new(), "nobody", held.clone())));
    let runtime = start_alone(opts);
    let mut client = Client::new(&runtime);
    // A checkpoint is of what is executed, and this is not.
    let mut requests = vec![client.request("add", &["a", "1"])];
    runtime.submit(&client.port, &mut requests).unwrap();
    let error = runtime.checkpoint_within(Duration::from_millis(20)).unwrap_err();
    assert!(error.contains("LASTSAVE"), "{error}");
    assert_eq!(runtime.status().node.checkpoints, 0);
    idle.store(0, Ordering::SeqCst);
    client.await_answers(1);
    runtime.shutdown(false);
    let error = runtime.checkpoint().unwrap_err();
    assert!(error.contains("shutting down"), "{error}");
}

#[test]
fn a_change_is_judged_by_the_map_that_a_strict_read_finds() {
    use crate::cluster::ClusterChange;
    use txn::SlotRange;
    let dir = tempfile::tempdir().unwrap();
    let runtime = start_alone(options(dir.path(), Kind::Serial, FsyncPolicy::Always));
    let outcome = |change: ClusterChange| {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            // A node that has just started has no leader yet.
            if let Ok(ticket) = runtime.cluster_change(change.clone()) {
                while Instant::now() < deadline {
                    if let Some(outcome) = ticket.try_take() {
                        return outcome;
                    }
                    std::thread::yield_now();
                }
            }
            assert!(Instant::now() < deadline, "{change} is not answered");
            std::thread::yield_now();
        }
    };
    let stranger = ClusterChange::RemoveNode { node: NodeId(9) };
    let error = outcome(stranger).unwrap_err();
    assert!(error.starts_with("there is no node 9"), "{error}");
    let slots = SlotRange { first: 0, last: 7 };
    let to = PartitionId(0);
    let again = ClusterChange::MoveSlots { slots, to };
    let done = "OK: partition 0 has the slots 0 to 7 already";
    assert_eq!(outcome(again).as_deref(), Ok(done));
    runtime.shutdown(false);
}
