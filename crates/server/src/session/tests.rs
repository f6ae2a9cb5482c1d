//! Sessions of a node that is part of a cluster, without sockets.

use super::desk::REPLICATED_BYTES_MAX;
use super::*;
use crate::cluster::{ChangeAnswer, ChangeTicket, ClusterChange, ClusterView, tests::view};
use crate::config::Config;
use crate::hub::{Listener, TrackingOptions};
use crate::net::clients::Arrival;
use crate::net::mailbox::Mailbox;
use crate::observe::Tally;
use crate::runtime::Port;
use crate::runtime::{Membership, NewsItem, NewsListener, Runtime, RuntimeOptions};
use crate::shared::Origin;
use crate::shared::ThreadCounters;
use parking_lot::Mutex;
use redis_surface::codec::inline;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use store::View;
use tempfile::TempDir;
use txn::{Blob, Event, Key, Message, PartitionId, Position};

/// A cluster that stays as it is, and keeps what it is asked to change.
#[derive(Default)]
struct Members {
    asked: Mutex<Vec<(ClusterChange, ChangeAnswer)>>,
}

impl Membership for Members {
    fn view(&self) -> Arc<ClusterView> {
        Arc::new(view())
    }
    fn change(&self, change: ClusterChange) -> Result<ChangeTicket, String> {
        let (ticket, answer) = ChangeTicket::open();
        self.asked.lock().push((change, answer));
        Ok(ticket)
    }
    fn slot_keys(&self) -> ChangeTicket {
        let (ticket, answer) = ChangeTicket::open();
        answer.answer(Ok("{}".to_owned()));
        ticket
    }
    fn store_of_slot(&self, _: u16) -> Option<&dyn View> {
        None
    }
}

/// A node with one connection.
struct Room {
    shared: Arc<Shared>,
    port: Port,
    config: Config,
    commands: Commands,
    counters: Arc<ThreadCounters>,
    tally: Tally,
    submissions: Submissions,
    strays: Strays,
    session: Session,
    now_ms: u64,
    _poll: mio::Poll,
    _dir: TempDir,
}

impl Room {
    fn new(members: Option<Arc<Members>>) -> Room {
        let dir = tempfile::tempdir().expect("a directory");
        let mut registry = txn::Registry::new();
        redis_surface::register(&mut registry).expect("different names");
        let (runtime, _) = Runtime::start(RuntimeOptions::new(dir.path()), &registry).expect("a node");
        if let Some(members) = members {
            assert!(runtime.join(members.clone()));
            assert!(!runtime.join(members), "once only");
        }
        let config = Config::default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 6379));
        let origin = Origin {
            auth_failures: Arc::default(),
            tls: Arc::new(crate::tls::Tls::new(&config).expect("none")),
            started_ms: 0,
            run_id: "run".to_owned(),
            address,
            io_threads: 1,
        };
        let shared = Arc::new(Shared::new(runtime.clone(), config.clone(), origin));
        let poll = mio::Poll::new().expect("a poll");
        let waker = mio::Waker::new(poll.registry(), mio::Token(0)).expect("a waker");
        let arrival = Arrival { address, local_address: address, now_ms: 0 };
        let client = shared
            .clients
            .connect(arrival, node::session::compose(1, 0, 1), Arc::new(Mailbox::new(waker)), 1)
            .expect("room for one");
        let port = runtime.port(Box::new(|| {})).expect("a port");
        Room {
            counters: shared.counters(0),
            tally: Tally::default(),
            session: Session::new(client, &shared),
            shared,
            port,
            config,
            commands: Commands::default(),
            submissions: Submissions::default(),
            strays: Strays::default(),
            now_ms: 0,
            _poll: poll,
            _dir: dir,
        }
    }

    fn with(&mut self, act: impl FnOnce(&mut Session, &mut Desk<'_>)) {
        let mut desk = Desk {
            shared: &self.shared,
            port: &self.port,
            config: &self.config,
            commands: &self.commands,
            counters: &self.counters,
            tally: &self.tally,
            submissions: &mut self.submissions,
            strays: &mut self.strays,
            now_ms: self.now_ms,
        };
        act(&mut self.session, &mut desk);
    }

    /// Takes the bytes that may be sent.
    fn sent(&mut self) -> String {
        let replies = self.session.replies();
        let text = String::from_utf8_lossy(replies.ready()).into_owned();
        let count = replies.ready().len();
        replies.sent(count);
        text
    }

    /// Sends a command and takes what is answered at once.
    fn call(&mut self, line: &str) -> String {
        let argv = inline::split(line.as_bytes()).expect("balanced quotes");
        self.with(|session, desk| session.command(desk, argv));
        self.sent()
    }

    /// Sends a command that goes through the order, and takes what is answered.
    fn order(&mut self, line: &str) -> String {
        let argv = inline::split(line.as_bytes()).expect("balanced quotes");
        self.with(|session, desk| session.command(desk, argv));
        self.settle();
        self.sent()
    }

    /// Lets what was submitted end, and what that leads to.
    fn settle(&mut self) {
        while !self.submissions.requests.is_empty() {
            let requests = std::mem::take(&mut self.submissions).requests;
            let answers = self.shared.runtime.ask(&self.port, requests, || false);
            for (id, outcome) in answers.expect("room for a few") {
                self.with(|session, desk| session.arrived(desk, id, outcome));
            }
        }
    }

    /// Publishes a message, which waits in the mailbox.
    fn publish(&self, channel: &str, is_sharded: bool) {
        let message = Message { channel: Blob::from(channel), payload: Blob::from("hello"), is_sharded };
        let id = RequestId { session: SessionId(0), sequence: 0, attempt: 0 };
        let events = vec![Event::Message(message)];
        let at = (PartitionId(0), Position(0));
        self.shared.hub.told(NewsItem { id, at, events });
    }

    /// Somebody else has written a key, at a place that this node has not committed yet.
    fn write(&self, key: &str) {
        let event = Event::Key { key: Key::from(key), class: b'$', name: "set".into() };
        let id = RequestId { session: SessionId(0), sequence: 0, attempt: 0 };
        let (at, events) = ((PartitionId(0), Position(u64::MAX)), vec![event]);
        self.shared.hub.told(NewsItem { id, at, events });
    }

    /// Takes what lies in the mailbox.
    fn look_into_mailbox(&mut self) -> String {
        for (_, delivery) in self.session.client().mailbox.take_deliveries() {
            self.with(|session, desk| session.delivered(desk, delivery));
        }
        self.sent()
    }

    fn flags(&mut self) -> String {
        let info = self.call("CLIENT INFO");
        let flags = info.split(' ').find_map(|word| word.strip_prefix("flags="));
        flags.expect("flags").to_owned()
    }
}

#[test]
fn a_node_by_itself_has_clusters_disabled() {
    let mut room = Room::new(None);
    for line in [
        "CLUSTER INFO",
        "CLUSTER KEYSLOT a",
        "CLUSTER HELP",
        "CLUSTER MEET 10.0.0.1 6379",
        "READONLY",
        "READWRITE",
        "ASKING",
    ] {
        assert_eq!(room.call(line), "-ERR This instance has cluster support disabled\r\n", "{line}");
    }
    assert_eq!(room.flags(), "N");
    for line in ["ORDO.CLUSTER STATUS", "ORDO.CLUSTER REMOVENODE 1"] {
        assert_eq!(
            room.call(line),
            "-ERR this node runs by itself: ORDO.CLUSTER is for the nodes of a cluster\r\n"
        );
    }
    assert!(room.call("INFO cluster").contains("cluster_enabled:0\r\n"));
    assert!(!room.call("INFO").contains("Ordo_cluster"));
    assert!(room.call("HELLO").contains("standalone"));
    assert_eq!(
        room.shared
            .runtime
            .cluster_change(ClusterChange::RemoveNode { node: txn::NodeId(1) })
            .expect_err("nothing to change"),
        "this node is not part of a cluster, so it can't be that node 1 leaves"
    );
}

#[test]
fn a_member_tells_of_its_cluster() {
    let mut room = Room::new(Some(Arc::default()));
    assert_eq!(room.call("CLUSTER KEYSLOT a"), ":15495\r\n");
    assert!(room.call("CLUSTER SLOTS").starts_with("*3\r\n"));
    assert_eq!(room.call("CLUSTER COUNTKEYSINSLOT 1"), ":0\r\n");
    assert!(room.call("ORDO.CLUSTER STATUS").contains("{\"cluster\":\"test\""));
    assert!(room.call("INFO cluster").contains("cluster_enabled:1\r\n"));
    assert!(room.call("INFO").contains("# Ordo_cluster\r\ncluster:test\r\n"));
    assert!(room.call("INFO server").contains("redis_mode:cluster\r\n"));
    assert!(room.call("HELLO").contains("cluster"));
    assert_eq!(room.call("ASKING"), "+OK\r\n");
    // In a block, too.
    room.call("MULTI");
    assert_eq!(room.call("CLUSTER KEYSLOT a"), "+QUEUED\r\n");
    assert_eq!(room.call("ORDO.CLUSTER REMOVENODE 4"), "-ERR Command not allowed inside a transaction\r\n");
}

#[test]
fn a_node_that_asks_for_the_map_by_its_name_is_seen_to_wait() {
    let mut room = Room::new(Some(Arc::default()));
    assert!(!room.shared.joiners.waits("d", 0));
    room.call("ORDO.CLUSTER MAP");
    room.call("ORDO.CLUSTER MAP d");
    room.call("ORDO.CLUSTER MAP stranger");
    let joiners = &room.shared.joiners;
    assert!(joiners.waits("d", 0) && joiners.waits("d", 14_999));
    assert!(!joiners.waits("d", 15_000), "it asks no more");
    assert!(!joiners.waits("a", 0) && !joiners.waits("stranger", 0));
}

#[test]
fn a_connection_is_readonly_until_it_says_otherwise() {
    let mut room = Room::new(Some(Arc::default()));
    assert_eq!(room.flags(), "N");
    assert_eq!(room.call("READONLY"), "+OK\r\n");
    assert!(room.session.readonly);
    assert_eq!(room.flags(), "r");
    room.call("MULTI");
    assert!(room.session.client().line(0).contains(" flags=xr "));
    room.call("DISCARD");
    assert_eq!(room.call("READWRITE"), "+OK\r\n");
    assert!(!room.session.readonly);
    assert_eq!(room.flags(), "N");
    room.call("READONLY");
    assert_eq!(room.call("RESET"), "+RESET\r\n");
    assert!(!room.session.readonly);
    assert_eq!(room.flags(), "N");
}

#[test]
fn a_change_is_answered_when_it_ends_and_holds_what_is_behind_it() {
    let members = Arc::new(Members::default());
    let mut room = Room::new(Some(members.clone()));
    for (line, outcome, reply) in [
        ("ORDO.CLUSTER REMOVENODE 4", Some(Ok("OK")), "+OK\r\n"),
        ("ORDO.CLUSTER TRANSFER 0 2", Some(Err("node 2 lags behind")), "-ERR node 2 lags behind\r\n"),
        (
            "ORDO.CLUSTER ADDNODE e x e:7001 e:6379",
            None,
            "-ERR nobody knows how the change ended, because the node stopped working on it: look at 'ordo \
             admin status', and ask again if it is missing there\r\n",
        ),
    ] {
        assert_eq!(room.call(line), "", "{line} takes its time");
        assert!(room.session.waits_for_time() && !room.session.takes_commands());
        room.with(|session, desk| session.resume(desk));
        assert_eq!(room.sent(), "");
        let (_, answer) = members.asked.lock().pop().expect("it was asked");
        match outcome {
            Some(outcome) => answer.answer(outcome.map(str::to_owned).map_err(str::to_owned)),
            None => drop(answer),
        }
        room.with(|session, desk| session.resume(desk));
        assert_eq!(room.sent(), reply);
        assert!(room.session.takes_commands());
    }
}

#[test]
fn a_request_that_cannot_travel_is_refused_with_its_length() {
    let words = |bytes: usize| -> Args {
        let word = vec![b'x'; bytes / 2];
        [word.as_slice(), word.as_slice()].into_iter().collect()
    };
    assert_eq!(too_long(&words(REPLICATED_BYTES_MAX), true), None);
    let refused = format!("{:?}", too_long(&words(REPLICATED_BYTES_MAX + 2), true));
    for part in ["33554434 bytes", "at most 33554432", "split the value"] {
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn a_member_refuses_a_request_that_cannot_travel() {
    let mut room = Room::new(Some(Arc::default()));
    let long = "x".repeat(REPLICATED_BYTES_MAX);
    let refused = room.call(&format!("SET k {long}"));
    assert!(refused.starts_with("-ERR this command, or"), "{refused}");
    room.call("MULTI");
    room.call(&format!("SET k {}", &long[..REPLICATED_BYTES_MAX / 2]));
    room.call(&format!("SET l {}", &long[..REPLICATED_BYTES_MAX / 2]));
    let refused = room.call("EXEC");
    assert!(refused.starts_with("-ERR this command, or"), "{refused}");
}

#[test]
fn a_readonly_connection_is_told_that_its_node_is_behind() {
    let down = "CLUSTERDOWN no majority answered in time: nothing was read; try again";
    let told = |text: &str| told_of_age(Err(Stop::abort(text.to_owned())), 500);
    let error = told(down).expect_err("an error stays one").to_string();
    assert!(error.starts_with(down), "{error}");
    assert!(error.contains("staleness_ms_max, 500 ms"), "{error}");
    assert_eq!(told("ERR other"), Err(Stop::abort("ERR other".to_owned())));
    assert_eq!(told_of_age(Ok(Reply::OK), 500), Ok(Reply::OK));
}

#[test]
fn a_message_behind_the_end_of_its_subscription_is_dropped() {
    let mut room = Room::new(None);
    for (begin, end, is_sharded) in [
        ("SUBSCRIBE c", "UNSUBSCRIBE c", false),
        ("SUBSCRIBE c", "UNSUBSCRIBE", false),
        ("PSUBSCRIBE c* d", "PUNSUBSCRIBE c* d", false),
        ("SSUBSCRIBE c", "SUNSUBSCRIBE c", true),
        ("SUBSCRIBE c", "RESET", false),
    ] {
        room.call(begin);
        room.publish("c", is_sharded);
        room.call(end);
        assert_eq!(room.look_into_mailbox(), "", "behind {end}");
        assert_eq!(room.call("ECHO reply"), "$5\r\nreply\r\n");
        // Who subscribes again misses nothing.
        room.call(begin);
        room.publish("c", is_sharded);
        let told = room.look_into_mailbox();
        assert!(told.contains("message\r\n"), "behind {begin}: {told}");
        room.call(end);
    }
    // One name in several ways.
    for line in ["SUBSCRIBE c", "PSUBSCRIBE c", "SSUBSCRIBE c"] {
        room.call(line);
    }
    room.publish("c", false);
    room.publish("c", true);
    room.call("PUNSUBSCRIBE c");
    room.call("SUNSUBSCRIBE c");
    assert_eq!(room.look_into_mailbox(), "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$5\r\nhello\r\n");
}

#[test]
fn a_wait_is_not_ended_by_what_was_meant_for_the_one_before() {
    let mut room = Room::new(None);
    let client = room.session.client().clone();
    let waits = || client.blocked.load(Ordering::SeqCst);
    let number = || client.waits.load(Ordering::SeqCst);
    let unblock = |wait, with_error| Delivery::Unblock { wait, with_error };
    assert_eq!(room.order("BLPOP k 0"), "");
    assert!(waits());
    let first = number();
    room.with(|session, desk| session.delivered(desk, unblock(first, true)));
    assert_eq!(room.sent(), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    // The next command is being tried.
    assert_eq!(room.call("BLPOP k 0"), "");
    room.with(|session, desk| session.delivered(desk, unblock(first, true)));
    room.settle();
    assert!(waits(), "it waits");
    room.with(|session, desk| session.delivered(desk, unblock(first, true)));
    assert_eq!(room.sent(), "");
    assert!(waits(), "it waits on");
    let second = number();
    room.with(|session, desk| session.delivered(desk, unblock(second, false)));
    assert_eq!(room.sent(), "*-1\r\n");
    assert!(!waits());
}

#[test]
fn an_age_is_measured_up_to_now() {
    let mut room = Room::new(None);
    room.now_ms = 10_500;
    assert!(room.call("CLIENT LIST MAXAGE 10").contains("id=1 "));
    assert_eq!(room.call("CLIENT LIST MAXAGE 11"), "$0\r\n\r\n");
    assert_eq!(room.call("CLIENT KILL MAXAGE 10 SKIPME no"), ":1\r\n");
}

#[test]
fn who_is_not_told_of_all_keys_cannot_ask_for_all() {
    let mut room = Room::new(None);
    room.call("HELLO 3");
    room.shared.runtime.seem_spread();
    let refused = room.call("CLIENT TRACKING on BCAST PREFIX a");
    assert!(refused.starts_with("-ERR BCAST needs a node"), "{refused}");
    assert_eq!(room.flags(), "N");
    assert_eq!(room.order("CLIENT TRACKING on"), "+OK\r\n");
}

#[test]
fn who_begins_to_track_anew_is_told_of_what_it_reads_then() {
    let mut room = Room::new(None);
    let client = room.session.client().clone();
    let other =
        Listener { session: SessionId(99), mailbox: client.mailbox.clone(), pushes: client.pushes.clone() };
    // Where nobody tracked any more, all would be forgotten.
    room.shared.hub.track(&other, &TrackingOptions::default());
    let begin = |room: &mut Room| {
        room.call("HELLO 3");
        assert_eq!(room.order("CLIENT TRACKING on"), "+OK\r\n");
    };
    begin(&mut room);
    // Behind a write that is under way, what is read is under way, too.
    assert_eq!(room.call("SET x 1"), "");
    assert_eq!(room.call("GET k"), "");
    assert_eq!(room.call("RESET"), "");
    room.settle();
    assert_eq!(room.sent(), "+OK\r\n_\r\n+RESET\r\n");
    begin(&mut room);
    assert_eq!(room.order("GET k"), "_\r\n");
    room.write("k");
    let told = room.look_into_mailbox();
    assert!(told.contains("invalidate"), "{told}");
}

#[test]
fn who_begins_to_wait_looks_once_behind_all_that_is_under_way() {
    let mut room = Room::new(None);
    for line in ["XREAD BLOCK 0 STREAMS s 0", "BLPOP k 0"] {
        assert_eq!(room.call(line), "");
        while room.submissions.requests.is_empty() || !room.session.client().blocked.load(Ordering::SeqCst) {
            assert!(!room.submissions.requests.is_empty(), "{line}: it has looked at a snapshot only");
            let first = std::mem::take(&mut room.submissions).requests;
            let answers = room.shared.runtime.ask(&room.port, first, || false);
            for (id, outcome) in answers.expect("room for a few") {
                room.with(|session, desk| session.arrived(desk, id, outcome));
            }
        }
        assert!(!room.submissions.requests[0].footprint.read_only, "{line}");
        room.settle();
        let wait = room.session.client().waits.load(Ordering::SeqCst);
        let unblock = Delivery::Unblock { wait, with_error: false };
        room.with(|session, desk| session.delivered(desk, unblock));
        assert_eq!(room.sent(), "*-1\r\n");
    }
}
