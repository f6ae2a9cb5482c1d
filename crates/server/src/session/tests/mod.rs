//! Sessions without sockets: what transcripts cannot say, because it depends on what is under way.

mod node;
mod received;
mod transcripts;

use super::thread_context::REPLICATED_BYTES_MAX;
use super::*;
use crate::cluster::{ChangeAnswer, ChangeTicket, ClusterChange, ClusterView, tests::view};
use crate::hub::{Listener, TrackingOptions};
use crate::runtime::{Membership, NewsItem, NewsListener};
use node::TestNode;
use parking_lot::Mutex;
use redis_surface::codec::inline;
use std::sync::atomic::Ordering;
use store::View;
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

/// What tests of one connection do.
impl TestNode {
    fn alone() -> TestNode {
        TestNode::with_one_connection(None)
    }

    fn of_cluster() -> TestNode {
        TestNode::with_one_connection(Some(Arc::<Members>::default()))
    }

    fn with_one_connection(members: Option<Arc<dyn Membership>>) -> TestNode {
        let mut node = TestNode::start(&[], members);
        node.connect();
        node
    }

    fn session(&mut self) -> &mut Session {
        &mut self.connections[0].session
    }

    fn act(&mut self, act: impl FnOnce(&mut Session, &mut ThreadContext<'_>)) {
        self.with(0, |session, _, thread| act(session, thread));
    }

    fn sent(&mut self) -> String {
        String::from_utf8_lossy(&self.take_sent(0)).into_owned()
    }

    /// Sends a command and takes what is answered at once.
    fn call(&mut self, line: &str) -> String {
        let argv = inline::split(line.as_bytes()).expect("balanced quotes");
        self.act(|session, thread| session.command(thread, argv));
        self.sent()
    }

    /// Sends a command that goes through the order, and takes what is answered.
    fn order(&mut self, line: &str) -> String {
        self.call(line) + &self.answered()
    }

    /// Lets what was submitted end, and what that leads to.
    fn answered(&mut self) -> String {
        while self.take_answers() {}
        self.sent()
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
        for (_, delivery) in self.session().client().mailbox.take_deliveries() {
            self.act(|session, thread| session.delivered(thread, delivery));
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
fn a_node_that_asks_for_the_map_by_its_name_is_seen_to_wait() {
    let mut room = TestNode::of_cluster();
    assert!(!room.shared.joiners.waits("d", 0));
    room.call("ORDO.CLUSTER MAP");
    room.call("ORDO.CLUSTER MAP d");
    room.call("ORDO.CLUSTER MAP stranger");
    let joiners = &room.shared.joiners;
    let waits = |name: &str, after_ms| joiners.waits(name, room.now_ms + after_ms);
    assert!(waits("d", 0) && waits("d", 14_999));
    assert!(!waits("d", 15_000), "it asks no more");
    assert!(!waits("a", 0) && !waits("stranger", 0));
}

#[test]
fn a_change_is_answered_when_it_ends_and_holds_what_is_behind_it() {
    let members = Arc::new(Members::default());
    let mut room = TestNode::with_one_connection(Some(members.clone()));
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
        assert!(room.session().waits_for_time() && !room.session().takes_commands());
        room.act(|session, thread| session.resume(thread));
        assert_eq!(room.sent(), "");
        let (_, answer) = members.asked.lock().pop().expect("it was asked");
        match outcome {
            Some(outcome) => answer.answer(outcome.map(str::to_owned).map_err(str::to_owned)),
            None => drop(answer),
        }
        room.act(|session, thread| session.resume(thread));
        assert_eq!(room.sent(), reply);
        assert!(room.session().takes_commands());
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
    let mut room = TestNode::of_cluster();
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
fn strict_reads_of_a_pipeline_run_in_the_order_sent() {
    let mut room = TestNode::of_cluster();
    assert_eq!(room.order("SET a 1"), "+OK\r\n");
    for line in ["GET a", "GET a", "GET a"] {
        assert_eq!(room.call(line), "");
    }
    let asked: Vec<RequestId> = room.submissions.strict.drain(..).map(|(id, _)| id).collect();
    let may_run = || Err(Stop::Restart);
    room.act(|session, thread| session.arrived(thread, asked[1], may_run()));
    let other = room.connect();
    room.send(other, b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n2\r\n");
    room.take_answers();
    assert_eq!(room.take_sent(other), b"+OK\r\n");
    assert_eq!(room.sent(), "");
    room.act(|session, thread| session.arrived(thread, asked[0], may_run()));
    assert_eq!(room.sent(), "$1\r\n2\r\n$1\r\n2\r\n");
    let stop = Stop::abort("CLUSTERDOWN nobody knows");
    room.act(|session, thread| session.arrived(thread, asked[2], Err(stop)));
    assert_eq!(room.sent(), "-CLUSTERDOWN nobody knows\r\n");
}

#[test]
fn a_message_behind_the_end_of_its_subscription_is_dropped() {
    let mut room = TestNode::alone();
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
    let mut room = TestNode::alone();
    let client = room.session().client().clone();
    let waits = || client.blocked.load(Ordering::SeqCst);
    let number = || client.waits.load(Ordering::SeqCst);
    let unblock = |wait, with_error| Delivery::Unblock { wait, with_error };
    assert_eq!(room.order("BLPOP k 0"), "");
    assert!(waits());
    let first = number();
    room.act(|session, thread| session.delivered(thread, unblock(first, true)));
    assert_eq!(room.sent(), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    // The next command is being tried.
    assert_eq!(room.call("BLPOP k 0"), "");
    room.act(|session, thread| session.delivered(thread, unblock(first, true)));
    room.answered();
    assert!(waits(), "it waits");
    room.act(|session, thread| session.delivered(thread, unblock(first, true)));
    assert_eq!(room.sent(), "");
    assert!(waits(), "it waits on");
    let second = number();
    room.act(|session, thread| session.delivered(thread, unblock(second, false)));
    assert_eq!(room.sent(), "*-1\r\n");
    assert!(!waits());
}

#[test]
fn who_is_not_told_of_all_keys_cannot_ask_for_all() {
    let mut room = TestNode::alone();
    room.call("HELLO 3");
    room.shared.runtime.seem_spread();
    let refused = room.call("CLIENT TRACKING on BCAST PREFIX a");
    assert!(refused.starts_with("-ERR BCAST needs a node"), "{refused}");
    assert_eq!(room.flags(), "N");
    assert_eq!(room.order("CLIENT TRACKING on"), "+OK\r\n");
}

#[test]
fn who_begins_to_track_anew_is_told_of_what_it_reads_then() {
    let mut room = TestNode::alone();
    let client = room.session().client().clone();
    let other =
        Listener { session: SessionId(99), mailbox: client.mailbox.clone(), pushes: client.pushes.clone() };
    // Where nobody tracked any more, all would be forgotten.
    room.shared.hub.track(&other, &TrackingOptions::default());
    let begin = |room: &mut TestNode| {
        room.call("HELLO 3");
        assert_eq!(room.order("CLIENT TRACKING on"), "+OK\r\n");
    };
    begin(&mut room);
    // Behind a write that is under way, what is read is under way, too.
    assert_eq!(room.call("SET x 1"), "");
    assert_eq!(room.call("GET k"), "");
    assert_eq!(room.call("RESET"), "");
    assert_eq!(room.answered(), "+OK\r\n_\r\n+RESET\r\n");
    begin(&mut room);
    assert_eq!(room.order("GET k"), "_\r\n");
    room.write("k");
    let told = room.look_into_mailbox();
    assert!(told.contains("invalidate"), "{told}");
}

#[test]
fn who_begins_to_wait_looks_once_behind_all_that_is_under_way() {
    let mut room = TestNode::alone();
    for line in ["XREAD BLOCK 0 STREAMS s 0", "BLPOP k 0"] {
        assert_eq!(room.call(line), "");
        while room.submissions.requests.is_empty() || !room.session().client().blocked.load(Ordering::SeqCst)
        {
            assert!(!room.submissions.requests.is_empty(), "{line}: it has looked at a snapshot only");
            let first = std::mem::take(&mut room.submissions).requests;
            let answers = room.shared.runtime.ask(&room.port, first, || false);
            for (id, outcome) in answers.expect("room for a few") {
                room.act(|session, thread| session.arrived(thread, id, outcome));
            }
        }
        assert!(!room.submissions.requests[0].footprint.read_only, "{line}");
        room.answered();
        let wait = room.session().client().waits.load(Ordering::SeqCst);
        let unblock = Delivery::Unblock { wait, with_error: false };
        room.act(|session, thread| session.delivered(thread, unblock));
        assert_eq!(room.sent(), "*-1\r\n");
    }
}

/// What the connection has submitted: for each request the name of its procedure.
fn submitted(node: &mut TestNode) -> Vec<String> {
    node.submissions.end_gathering();
    node.submissions.requests.iter().map(|request| request.procedure.name().to_owned()).collect()
}

/// How many commands like this one a connection has under way before it is not read any more.
fn under_way(line: &str) -> usize {
    let mut node = TestNode::alone();
    let argv = inline::split(line.as_bytes()).expect("balanced quotes");
    let mut count = 0;
    while node.session().takes_commands() {
        let argv = argv.clone();
        node.act(|session, thread| session.command(thread, argv));
        count += 1;
        assert!(count <= UNFINISHED_WORK_MAX, "{line}: nothing holds the connection up");
    }
    count
}

#[test]
fn a_connection_has_less_under_way_of_what_takes_longer() {
    assert_eq!(under_way("SET key value"), UNFINISHED_WORK_MAX);
    assert_eq!(under_way("ZUNIONSTORE to 2 one two"), UNFINISHED_WORK_MAX.div_ceil(LONG_WORK + 1));
    assert!(under_way("EVAL 'return 1' 0") <= UNFINISHED_WORK_MAX / BULKY_WORK);
    let words = "x ".repeat(400);
    assert!(under_way(&format!("MSET {words}")) <= UNFINISHED_WORK_MAX / (400 / WORDS_OF_WORK));
}

#[test]
fn commands_that_follow_each_other_are_one_request() {
    let mut node = TestNode::alone();
    let lines = ["SET a 1", "INCR a", "LPUSH a x", "GET a", "HSET h f v", "SETEX a 0 x", "APPEND a 3"];
    for line in lines {
        assert_eq!(node.call(line), "");
    }
    assert_eq!(submitted(&mut node), ["redis.block"]);
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let wrong_time = "-ERR invalid expire time in 'setex' command\r\n";
    assert_eq!(node.answered(), format!("+OK\r\n:2\r\n{wrong_type}$1\r\n2\r\n:1\r\n{wrong_time}:2\r\n"));
    assert_eq!(node.call("GET a"), "$2\r\n23\r\n");
    for (name, calls) in [("append", "calls=1"), ("lpush", "calls=1"), ("setex", "calls=1"), ("exec", "")] {
        let stats = node.call("INFO commandstats");
        let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:"))).unwrap_or("");
        assert!(line.contains(calls) && line.is_empty() == calls.is_empty(), "{name}: {line}");
    }
}

#[test]
fn a_gathering_ends_where_anything_else_begins() {
    let mut node = TestNode::alone();
    node.connect();
    let of = |node: &mut TestNode, place: usize, line: &str| {
        let argv = inline::split(line.as_bytes()).expect("balanced quotes");
        node.with(place, |session, _, thread| session.command(thread, argv));
    };
    // Another connection's commands.
    for (place, line) in [(0, "SET a 1"), (0, "SET b 1"), (1, "SET c 1"), (0, "SET d 1"), (0, "SET e 1")] {
        of(&mut node, place, line);
    }
    assert_eq!(submitted(&mut node), ["redis.block", "redis.set", "redis.block"]);
    node.answered();
    // What takes long, or does more than its keys say, is by itself.
    for line in ["SET a 1", "PUBLISH c m", "SET b 1", "EVAL 'return 1' 0", "SET c 1", "DEL a b c", "SET d 1"]
    {
        of(&mut node, 0, line);
    }
    let alone = ["set", "publish", "set", "eval", "set", "del", "set"].map(|name| format!("redis.{name}"));
    assert_eq!(submitted(&mut node), alone);
    node.answered();
    for line in
        ["SET a 1", "LPOP l 1000", "SET b 1", "XADD s MAXLEN 1 * f v", "XADD s * f v", "SETRANGE a 9 x"]
    {
        of(&mut node, 0, line);
    }
    let alone = ["set", "lpop", "set", "xadd", "xadd", "setrange"].map(|name| format!("redis.{name}"));
    assert_eq!(submitted(&mut node), alone);
    node.answered();
    // There is a most, and long words count.
    for number in 0..70 {
        of(&mut node, 0, &format!("SET k{number} 1"));
    }
    of(&mut node, 0, &format!("SET long {}", "x".repeat(20_000)));
    of(&mut node, 0, "SET short 1");
    assert_eq!(submitted(&mut node), ["redis.block", "redis.block", "redis.block", "redis.set", "redis.set"]);
    assert_eq!(node.answered(), "+OK\r\n".repeat(72));
}

#[test]
fn the_slow_log_shows_the_words_of_each_command_of_a_gathering() {
    let mut node = TestNode::alone();
    assert_eq!(node.call("CONFIG SET slowlog-log-slower-than 0"), "+OK\r\n");
    for line in ["SET a 1", "incr a", "HSET h f v", "GET a"] {
        assert_eq!(node.call(line), "");
    }
    assert_eq!(submitted(&mut node), ["redis.block"]);
    node.answered();
    assert_eq!(node.call("GET a"), "$1\r\n2\r\n");
    let log = node.call("SLOWLOG GET 20");
    let words = ["*3 SET a 1", "*2 incr a", "*4 HSET h f v", "*2 GET a"];
    for (line, times) in words.into_iter().zip([1, 1, 1, 2]) {
        let (count, words) = line.split_once(' ').expect("a number and words");
        let bulk = |word: &str| format!("${}\r\n{word}\r\n", word.len());
        let shown = format!("{count}\r\n{}", words.split(' ').map(bulk).collect::<String>());
        assert_eq!(log.matches(&shown).count(), times, "{line}: {log}");
    }
}

#[test]
fn what_rides_is_silent_or_between_others_as_it_would_be_alone() {
    let mut node = TestNode::alone();
    for line in ["SET a 1", "PING", "INCR a", "CLIENT REPLY SKIP", "INCR a", "INCR a", "ECHO x", "GET a"] {
        node.call(line);
    }
    assert_eq!(submitted(&mut node), ["redis.block"]);
    assert_eq!(node.answered(), "+OK\r\n+PONG\r\n:2\r\n:4\r\n$1\r\nx\r\n$1\r\n4\r\n");
}
