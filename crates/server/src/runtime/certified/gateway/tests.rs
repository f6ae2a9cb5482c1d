//! Clients of a gateway whose site a test answers for.

use super::super::seal::TokenSeal;
use super::*;
use certify::{ReadSet, WriteSet};
use redis_surface::commands::sites;
use txn::{Args, Blob, BootId, FnProcedure, NodeId, PartitionRoute, Tx};

/// What the gateway has asked for, in order.
#[derive(Default)]
struct Site {
    begun: Vec<RequestId>,
    committed: Vec<(RequestId, ReadSet, WriteSet)>,
    forgotten: Vec<RequestId>,
    waits: Vec<(Written, Demand, u64)>,
    first_reads: BTreeMap<SessionId, Key>,
}

impl Asked for Site {
    fn position(&self, _: PartitionId) -> Position {
        Position(9)
    }
    fn begin(&mut self, id: RequestId, _: Manner) {
        self.begun.push(id);
    }
    fn ask(&mut self, id: RequestId, wish: Wish) {
        match wish {
            Wish::Commit(reads, writes) => self.committed.push((id, reads, writes)),
            other => panic!("{other:?}"),
        }
    }
    fn forget(&mut self, id: RequestId) {
        self.forgotten.push(id);
    }
    fn give_token(&mut self, id: RequestId) -> Option<Vec<u8>> {
        self.begun.push(id);
        Some(b"all that the site has".to_vec())
    }
    fn follow_token(&mut self, id: RequestId, token: &[u8]) {
        assert_eq!(token, b"all that the site has");
        self.begun.push(id);
    }
    fn take_first_read(&mut self, session: SessionId) -> Option<Key> {
        self.first_reads.remove(&session)
    }
    fn read_first(&mut self, session: SessionId, key: Key) {
        self.first_reads.insert(session, key);
    }
    fn wait_for_sites(&mut self, id: RequestId, (written, demand): (Written, Demand), timeout_ms: u64) {
        self.begun.push(id);
        self.waits.push((written, demand, timeout_ms));
    }
    fn written(&self, id: RequestId) -> Option<Written> {
        let place = self.committed.iter().position(|(committed, ..)| *committed == id);
        let place = place.expect("it has been asked to commit");
        Some(Written::new(Position(10 + place as u64), BTreeSet::from([PartitionId(place as u16)])))
    }
}

struct Rig {
    gateway: Gateway,
    site: Site,
    now_ms: u64,
    sequence: u64,
}

const ME: SessionId = SessionId(1);

impl Rig {
    fn new() -> Rig {
        let tree = Tree::new(2, &[2, 2]).expect("a tree");
        let patience = Patience { request_ms: 100, held_open: HeldOpen { timeout_ms: 1_000, keys_max: 9 } };
        let sessions = Sessions::new(&tree, 0, 1, BootId(1), 0);
        let words = Words {
            asked: "the validators",
            unavailable: "this node takes nothing",
            spares_system_writes: false,
        };
        let seal = TokenSeal::new(3, b"secret".as_slice().into());
        let sites = [(NodeId(1), "west"), (NodeId(2), "west"), (NodeId(3), "east")];
        let site_commands = Some(SiteCommands::new(seal, sites.into_iter()));
        let gateway = Gateway::new(sessions, tree, patience, words, site_commands);
        Rig { gateway, site: Site::default(), now_ms: 10, sequence: 0 }
    }

    /// Each home has one session.
    fn with_few_sessions() -> Rig {
        let mut rig = Rig::new();
        rig.gateway.sessions = Sessions::new(&rig.gateway.tree, 0, 1 << 16, BootId(1), 0);
        rig
    }

    /// A client sends a request of this name, which writes the key `a`.
    fn send(&mut self, name: &str, args: &[&str]) {
        self.send_of(ME, name, args);
    }

    fn send_of(&mut self, session: SessionId, name: &str, args: &[&str]) {
        self.sequence += 1;
        let procedure = FnProcedure::new(name, |mut tx: Tx, _| async move {
            tx.put(&Key::new(b"a"), "1").await?;
            Ok(Reply::OK)
        });
        let id = RequestId { session, sequence: self.sequence, attempt: 0 };
        let args = Args(args.iter().map(|word| Blob::from(*word)).collect());
        let mut request = Request::new(id, Arc::new(procedure), args);
        request.route = PartitionRoute::single(PartitionId(1));
        self.gateway.take(Arc::new(request), self.now_ms, &mut self.site);
        self.run();
    }

    fn run(&mut self) {
        while let Some((mut running, next)) = self.gateway.ready.pop() {
            let progress = running.go_on(next);
            self.gateway.grant(running, progress, self.now_ms, &mut self.site);
        }
    }

    /// The site answers the last one that has asked.
    fn answer(&mut self, answer: SiteAnswer) {
        let begun = *self.site.begun.last().expect("one has begun");
        self.gateway.answered(begun, answer);
        self.run();
    }

    fn tick(&mut self, after_ms: u64) {
        self.now_ms += after_ms;
        self.gateway.end_pauses(self.now_ms);
        self.gateway.give_up(self.now_ms, &mut self.site);
        self.run();
    }

    /// What clients were answered since the last look: the numbers of their requests, and texts.
    fn answered(&mut self) -> Vec<(u64, String)> {
        let text = |outcome: Outcome| match outcome {
            Ok(Reply::Status(text) | Reply::Error(text)) => text.into_owned(),
            Ok(other) => format!("{other:?}"),
            Err(stop) => stop.to_string(),
        };
        self.gateway.answers.drain(..).map(|(id, outcome)| (id.sequence, text(outcome))).collect()
    }

    fn one_answer(&mut self, sequence: u64, starts_with: &str) {
        let answered = self.answered();
        let is_it = |(number, text): &(u64, String)| *number == sequence && text.starts_with(starts_with);
        assert!(matches!(&answered[..], [one] if is_it(one)), "{sequence} {starts_with}: {answered:?}");
    }
}

#[test]
fn requests_of_a_connection_run_one_after_the_other() {
    let mut rig = Rig::new();
    rig.send("set", &[]);
    rig.send("set", &[]);
    assert_eq!((rig.site.begun.len(), rig.site.committed.len()), (1, 0));
    rig.answer(SiteAnswer::Begun);
    assert_eq!((rig.site.begun.len(), rig.site.committed.len()), (1, 1));
    rig.answer(SiteAnswer::Committed);
    rig.one_answer(1, "OK");
    assert_eq!(rig.site.begun.len(), 2);
    // A conflict of the second one: it begins again under a higher attempt, and nobody is told.
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Conflict(Conflict::Timestamp));
    rig.tick(50);
    assert_eq!(rig.site.begun.len(), 3);
    assert!(rig.site.begun[2].attempt > rig.site.begun[1].attempt);
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.one_answer(2, "OK");
    assert!(rig.gateway.connections.is_empty() && rig.gateway.asked.is_empty());
}

#[test]
fn clients_transactions_are_counted_by_their_deciders_and_a_second() {
    let mut rig = Rig::new();
    assert_eq!(rig.gateway.rates(rig.now_ms), Rates::default());
    rig.gateway.sample(rig.now_ms);
    let decide = |rig: &mut Rig, session| {
        rig.send_of(session, "set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.answer(SiteAnswer::Committed);
        assert!(rig.gateway.is_at_rest(session));
    };
    // The key `a` is at the first leaf, and the request's session is at home at the second one, unless
    // the leaf of the key is its home.
    let leaf = partition_of_slot(Key::new(b"a").slot(), 2);
    let decider = if leaf == PartitionId(1) { 1 } else { 2 };
    for _ in 0..4 {
        decide(&mut rig, ME);
    }
    decide(&mut rig, SessionId::INTERNAL);
    let Counts { committed, decided_by, .. } = rig.gateway.counts.clone();
    assert_eq!((committed, decided_by[decider], decided_by.iter().sum::<u64>()), (4, 4, 4));
    assert!(rig.gateway.rates(rig.now_ms + 2_000).committed == 2.0);
    assert!(rig.gateway.rates(rig.now_ms + 2_000).decided_by[decider] == 2.0);
    // What is long ago counts no more.
    for second in 1..=2 * SAMPLES_MAX as u64 {
        rig.gateway.sample(rig.now_ms + second * SAMPLE_MS);
    }
    assert_eq!(rig.gateway.samples.len(), SAMPLES_MAX);
    assert!(rig.gateway.rates(rig.now_ms + 30_000).committed == 0.0);
}

#[test]
fn a_request_that_takes_too_long_says_whether_it_may_have_had_an_effect() {
    for (commits, text) in [(false, "CLUSTERDOWN"), (true, "ORDOUNKNOWN")] {
        let mut rig = Rig::new();
        rig.send("set", &[]);
        if commits {
            rig.answer(SiteAnswer::Begun);
        }
        rig.tick(99);
        assert!(rig.answered().is_empty());
        rig.tick(1);
        rig.one_answer(1, text);
        assert_eq!(rig.site.forgotten, rig.site.begun);
        // The answer comes all the same, and is nobody's.
        rig.answer(SiteAnswer::Committed);
        assert!(rig.answered().is_empty());
    }
}

#[test]
fn a_transaction_that_has_failed_stays_failed_until_its_client_ends_it() {
    for ends in [transactions::COMMIT, transactions::ROLLBACK] {
        let mut rig = Rig::new();
        rig.send(transactions::BEGIN, &[]);
        rig.one_answer(1, "OK");
        rig.send("set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.one_answer(2, "OK");
        rig.tick(999);
        rig.send("set", &[]);
        rig.one_answer(3, "OK");
        assert!(rig.site.committed.is_empty() && rig.site.forgotten.is_empty());
        rig.tick(1_000);
        assert_eq!(rig.site.forgotten, rig.site.begun);
        rig.send("set", &[]);
        rig.one_answer(4, "TIMEOUT");
        rig.send(ends, &[]);
        rig.one_answer(5, if ends == transactions::COMMIT { "TIMEOUT" } else { "OK" });
        assert_eq!(rig.gateway.open_transactions(), 0);
        rig.send("set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.answer(SiteAnswer::Committed);
        rig.one_answer(6, "OK");
    }
}

#[test]
fn a_request_waits_for_a_session_and_not_for_ever() {
    let mut rig = Rig::with_few_sessions();
    let (second, third) = (SessionId(2), SessionId(3));
    rig.send("set", &[]);
    rig.send_of(second, "set", &[]);
    rig.tick(50);
    rig.send_of(third, "set", &[]);
    rig.answer(SiteAnswer::Begun);
    assert_eq!(rig.site.begun.len(), 1);
    // The first one is answered, so the second one has the session.
    rig.tick(20);
    rig.answer(SiteAnswer::Committed);
    rig.one_answer(1, "OK");
    assert_eq!(rig.site.begun.len(), 2);
    // The third one has waited too long. The second one still has the session.
    rig.tick(79);
    assert!(rig.answered().is_empty());
    rig.tick(1);
    rig.one_answer(3, "CLUSTERDOWN");
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.one_answer(2, "OK");
    assert!(rig.gateway.connections.is_empty() && rig.gateway.sessions.waiting().next().is_none());
    // A client that waits, and goes.
    rig.send("set", &[]);
    rig.send_of(second, "set", &[]);
    rig.gateway.forget(second, rig.now_ms, &mut rig.site);
    assert!(rig.gateway.sessions.waiting().next().is_none());
}

#[test]
fn a_conflict_takes_back_that_there_may_have_been_an_effect() {
    let mut rig = Rig::new();
    rig.send("set", &[]);
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Conflict(Conflict::Timestamp));
    rig.tick(50);
    assert_eq!((rig.site.begun.len(), rig.site.committed.len()), (2, 1));
    rig.tick(50);
    rig.one_answer(1, "CLUSTERDOWN");
}

#[test]
fn each_request_of_a_client_that_goes_is_answered_once() {
    let mut rig = Rig::new();
    rig.send("set", &[]);
    rig.send("set", &[]);
    // A thread runs the first one when the client goes, and when another client has the same name.
    rig.gateway.answered(rig.site.begun[0], SiteAnswer::Begun);
    let (mut running, next) = rig.gateway.ready.pop().expect("it has begun");
    let progress = running.go_on(next);
    rig.gateway.forget(ME, rig.now_ms, &mut rig.site);
    rig.one_answer(2, "ERR the client has gone");
    rig.send("set", &[]);
    rig.gateway.grant(running, progress, rig.now_ms, &mut rig.site);
    rig.one_answer(1, "ERR the client has gone");
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.one_answer(3, "OK");
    assert!(rig.gateway.connections.is_empty() && rig.gateway.asked.is_empty());
}

#[test]
fn an_open_transaction_is_committed_as_a_whole_or_gone_with_its_client() {
    for is_gone in [false, true] {
        let mut rig = Rig::new();
        rig.send(transactions::BEGIN, &[]);
        rig.send("set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.answered();
        if is_gone {
            rig.gateway.forget(ME, rig.now_ms, &mut rig.site);
            assert_eq!(rig.site.forgotten, rig.site.begun);
        } else {
            rig.send(transactions::COMMIT, &[]);
            assert_eq!(rig.site.committed.len(), 1);
            rig.answer(SiteAnswer::Conflict(Conflict::Key(Key::new(b"a"))));
            rig.one_answer(3, "CONFLICT key 'a' has changed: run the transaction again");
        }
        assert_eq!(rig.gateway.open_transactions(), 0);
        assert!(rig.gateway.connections.is_empty() && rig.gateway.asked.is_empty());
    }
}

#[test]
fn a_token_that_a_site_has_given_is_followed_at_another_one_and_nothing_else_is() {
    let mut rig = Rig::new();
    rig.send(sites::SESSION, &[]);
    assert!(rig.answered().is_empty(), "it is not durable yet");
    rig.answer(SiteAnswer::Committed);
    let [(id, Ok(Reply::Bulk(token)))] = &rig.gateway.answers[..] else { panic!("no token") };
    let token = String::from_utf8(token.to_vec()).expect("it is printable");
    assert_eq!(id.sequence, 1);
    rig.answered();
    for (answer, text) in [
        (SiteAnswer::Committed, "OK"),
        (SiteAnswer::Refused("ERR it lacks something".into()), "ERR it lacks something"),
        (SiteAnswer::Unavailable, "CLUSTERDOWN"),
    ] {
        rig.send(sites::SESSION, &[&token]);
        assert!(rig.answered().is_empty());
        rig.answer(answer);
        rig.one_answer(rig.sequence, text);
    }
    let begun = rig.site.begun.len();
    for (args, text) in [
        (&[token.to_uppercase().as_str()][..], "ERR the token is damaged"),
        (&["0"], "ERR the token is damaged"),
        (&[&token.replacen("0000000000000003", "0000000000000004", 1)], "ERR the token is of another"),
        (&[&token, &token], "ERR syntax error"),
    ] {
        rig.send(sites::SESSION, args);
        rig.one_answer(rig.sequence, text);
    }
    // A transaction that is open has its snapshot.
    rig.send(transactions::BEGIN, &[]);
    rig.answered();
    rig.send(sites::SESSION, &[&token]);
    rig.one_answer(rig.sequence, "ERR ORDO.SESSION and ORDO.WAIT have no effect within");
    assert_eq!(rig.site.begun.len(), begun);
    assert_eq!(rig.gateway.counts.committed, 0, "they are no transactions");
}

#[test]
fn a_connection_waits_for_sites_with_what_it_has_written() {
    let mut rig = Rig::new();
    rig.send(sites::WAIT, &["REGION", "north", "1", "50"]);
    rig.one_answer(1, "ERR there is no region 'north': the regions are east, west");
    rig.send("set", &[]);
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.send("set", &[]);
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.answered();
    let all = Written::new(Position(11), BTreeSet::from([0, 1].map(PartitionId)));
    let groups = [BTreeSet::from([NodeId(3)]), BTreeSet::from([NodeId(1), NodeId(2)])];
    for (args, groups, answer, text) in [
        (&["REGION", "west", "2", "50"][..], &groups[1..], SiteAnswer::Committed, "OK"),
        (&["REGIONS", "1", "50"], &groups[..], SiteAnswer::Unknown, "ORDOUNKNOWN fewer than 1 sites of each"),
    ] {
        rig.send(sites::WAIT, args);
        let (written, demand, timeout_ms) = rig.site.waits.pop().expect("it waits");
        assert_eq!(written, all, "the wait is for both of its writes");
        assert_eq!((&demand.groups[..], timeout_ms), (groups, 50));
        rig.answer(answer);
        rig.one_answer(rig.sequence, text);
    }
    // A connection that is reset goes on, and what it has written may still be lost.
    rig.gateway.reset(ME, rig.now_ms, &mut rig.site);
    assert!(rig.gateway.written.contains_key(&ME));
    rig.gateway.forget(ME, rig.now_ms, &mut rig.site);
    assert!(rig.gateway.written.is_empty());
}

/// A client that is told that nothing was changed would write again.
#[test]
fn a_wait_that_has_no_answer_takes_no_write_back() {
    for answers in [true, false] {
        let mut rig = Rig::new();
        rig.send("set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.answer(SiteAnswer::Committed);
        rig.answered();
        rig.send(sites::WAIT, &["REGIONS", "1", "50"]);
        match answers {
            true => rig.answer(SiteAnswer::Unavailable),
            false => rig.tick(100),
        }
        rig.one_answer(2, "ORDOUNKNOWN this site cannot tell now which sites have what this connection");
    }
}

/// All connections share the sessions of the site.
#[test]
fn the_read_that_a_transaction_lacked_is_the_first_one_of_its_connections_next_transaction() {
    let mut rig = Rig::with_few_sessions();
    let (other, key) = (SessionId(2), Key::new(b"far"));
    let conflict = |rig: &mut Rig| {
        rig.send(transactions::BEGIN, &[]);
        rig.send("set", &[]);
        rig.answer(SiteAnswer::Begun);
        rig.send(transactions::COMMIT, &[]);
        let session = rig.site.begun.last().expect("one has begun").session;
        rig.site.first_reads.insert(session, key.clone());
        rig.answer(SiteAnswer::Conflict(Conflict::Snapshot));
        assert!(rig.site.first_reads.is_empty(), "no other connection is to read it");
    };
    conflict(&mut rig);
    rig.send_of(other, "set", &[]);
    assert!(rig.site.first_reads.is_empty());
    rig.answer(SiteAnswer::Begun);
    rig.answer(SiteAnswer::Committed);
    rig.send(transactions::BEGIN, &[]);
    rig.send("set", &[]);
    let session = rig.site.begun.last().expect("one has begun").session;
    assert_eq!(rig.site.first_reads.get(&session), Some(&key));
    rig.answer(SiteAnswer::Begun);
    rig.send(transactions::ROLLBACK, &[]);
    assert!(rig.site.first_reads.is_empty() && rig.gateway.first_reads.is_empty());
    conflict(&mut rig);
    rig.gateway.forget(ME, rig.now_ms, &mut rig.site);
    assert!(rig.gateway.first_reads.is_empty());
}
