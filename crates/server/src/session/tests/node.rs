//! A node with connections that have neither sockets nor threads: a test hands over the bytes that clients
//! send, and takes the bytes that they get. The clocks of sessions show what the test sets.

use crate::clock::Clocks;
use crate::config::Config;
use crate::hub::Delivery;
use crate::net::clients::Arrival;
use crate::net::intake::Intake;
use crate::net::mailbox::Mailbox;
use crate::observe::Tally;
use crate::runtime::{Membership, Port, Runtime, RuntimeOptions};
use crate::session::{Commands, Session, Strays, Submissions, ThreadContext};
use crate::shared::{Origin, Shared, ThreadCounters};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// What the clocks show when a node starts.
pub(super) const START_MS: u64 = 1_000_000;
/// Longer than any test: turns end by their bytes.
const TURN_NS: u64 = 1 << 50;
/// How often a test looks for answers that other threads of the node make (its journal's).
const LOOK: Duration = Duration::from_millis(1);
/// How long a test waits for the node's other threads.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct TestNode {
    pub(super) shared: Arc<Shared>,
    pub(super) port: Port,
    pub(super) submissions: Submissions,
    pub(super) connections: Vec<TestConnection>,
    pub(super) now_ms: u64,
    commands: Commands,
    counters: Arc<ThreadCounters>,
    tally: Tally,
    strays: Strays,
    mailbox: Arc<Mailbox>,
    origin: Instant,
    _dir: TempDir,
}

pub(super) struct TestConnection {
    pub(super) session: Session,
    intake: Intake,
    pub(super) is_open: bool,
}

impl TestNode {
    /// A node with these settings, of a cluster if it has `members`.
    pub(super) fn start(settings: &[(&str, &str)], members: Option<Arc<dyn Membership>>) -> TestNode {
        let dir = tempfile::tempdir().expect("a directory");
        let mut config = Config::default();
        for (name, value) in [("appendfsync", "no"), ("auth-delay-max-ms", "0")].iter().chain(settings) {
            let setting = Config::setting(name).unwrap_or_else(|| panic!("there is no setting '{name}'"));
            (setting.set)(&mut config, value).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        }
        let mut registry = txn::Registry::new();
        redis_surface::register(&mut registry).expect("different names");
        let options = RuntimeOptions {
            fsync: config.appendfsync,
            workers: 1,
            expire: Some(Arc::new(redis_surface::ExpireProcedure)),
            ..RuntimeOptions::new(dir.path())
        };
        let (runtime, _) = Runtime::start(options, &registry).expect("a node");
        if let Some(members) = members {
            assert!(runtime.join(members.clone()));
            assert!(!runtime.join(members), "once only");
        }
        let origin = Origin {
            auth_failures: Arc::default(),
            tls: Arc::new(crate::tls::Tls::new(&config).expect("none")),
            started_ms: START_MS,
            run_id: "run".to_owned(),
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 6379)),
            io_threads: 1,
        };
        let first = crate::server::first_users(&config, false).expect("users");
        config.requirepass.take_plain();
        let requirepass = config.requirepass.clone();
        let shared = Arc::new(Shared::new(runtime, config, origin));
        crate::acl::start(&shared.acl, &shared.runtime, first, &requirepass).expect("users");
        let thread = std::thread::current();
        let port = shared.runtime.port(Box::new(move || thread.unpark())).expect("a port");
        TestNode {
            counters: shared.counters(0),
            port,
            shared,
            submissions: Submissions::default(),
            connections: Vec::new(),
            now_ms: START_MS,
            commands: Commands::default(),
            tally: Tally::default(),
            strays: Strays::default(),
            mailbox: Arc::new(Mailbox::new(|| Ok(()))),
            origin: Instant::now(),
            _dir: dir,
        }
    }

    /// The session of a client that has come.
    pub(super) fn new_session(&mut self) -> Session {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 40_001 + self.connections.len() as u16));
        let arrival = Arrival { address, local_address: self.shared.address, now_ms: self.now_ms };
        let session = self.port.session();
        let client = self.shared.clients.connect(arrival, session, self.mailbox.clone(), usize::MAX);
        Session::new(client.expect("room"), &self.shared)
    }

    /// Opens a connection, and gives its place.
    pub(super) fn connect(&mut self) -> usize {
        let place = self.connections.len();
        let session = self.new_session();
        self.connections.push(TestConnection { session, intake: Intake::default(), is_open: true });
        place
    }

    /// Does something with a connection, as its thread would.
    pub(super) fn with<R>(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut Session, &mut Intake, &mut ThreadContext<'_>) -> R,
    ) -> R {
        let config = self.shared.settings.now();
        let mut thread = ThreadContext {
            shared: &self.shared,
            port: &self.port,
            config: &config,
            commands: &self.commands,
            counters: &self.counters,
            tally: &self.tally,
            submissions: &mut self.submissions,
            strays: &mut self.strays,
            clocks: &Clocks::Set { origin: self.origin, now_ms: self.now_ms },
            now_ms: self.now_ms,
        };
        let connection = &mut self.connections[place];
        let done = act(&mut connection.session, &mut connection.intake, &mut thread);
        thread.settle();
        done
    }

    /// Hands over bytes that a client has sent.
    pub(super) fn send(&mut self, place: usize, bytes: &[u8]) {
        self.with(place, |session, intake, thread| {
            intake.go_on(session, thread, TURN_NS, usize::MAX);
            intake.take(session, thread, bytes);
        });
    }

    /// Takes the bytes that a connection's client gets.
    pub(super) fn take_sent(&mut self, place: usize) -> Vec<u8> {
        let replies = self.connections[place].session.replies();
        let mut bytes = Vec::new();
        while !replies.ready().is_empty() {
            let count = replies.ready().len();
            bytes.extend_from_slice(replies.ready());
            replies.sent(count);
        }
        bytes
    }

    /// Closes a connection.
    pub(super) fn close(&mut self, place: usize) {
        let connection = &mut self.connections[place];
        if std::mem::replace(&mut connection.is_open, false) {
            connection.session.ended_for_good(&self.shared);
            self.shared.clients.disconnect(connection.session.client());
        }
    }

    /// Goes on until every connection waits for its client, for another one, or for a time.
    pub(super) fn settle(&mut self) {
        while self.turn() {}
    }

    /// Settles until a connection has something to send.
    pub(super) fn wait_for_replies(&mut self, place: usize) {
        let began = Instant::now();
        loop {
            self.settle();
            if !self.connections[place].session.replies().ready().is_empty() {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "connection {place} gets nothing");
            std::thread::park_timeout(LOOK);
        }
    }

    /// One round of what an I/O thread does. Whether there was anything to do.
    fn turn(&mut self) -> bool {
        let mut is_busy = false;
        for place in 0..self.connections.len() {
            is_busy |= self.go_on(place);
        }
        is_busy |= self.take_answers();
        for (session, delivery) in self.mailbox.take_deliveries() {
            let is_it =
                |connection: &TestConnection| connection.is_open && connection.session.id() == session;
            if let Some(place) = self.connections.iter().position(is_it) {
                is_busy = true;
                let pushes = &self.connections[place].session.client().pushes;
                pushes.taken(delivery.pushed_bytes(), delivery.is_shared());
                self.with(place, |session, _, thread| session.delivered(thread, delivery));
            }
        }
        is_busy
    }

    /// Has a connection go on if there is reason to, or close if it is over.
    fn go_on(&mut self, place: usize) -> bool {
        let now_ms = self.now_ms;
        let TestConnection { session, intake, is_open } = &mut self.connections[place];
        if !*is_open {
            return false;
        }
        let is_killed = session.client().killed.load(Ordering::Relaxed);
        if is_killed || session.closing() && session.idle() && session.replies().ready().is_empty() {
            self.close(place);
            return true;
        }
        if session.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= now_ms) {
            self.with(place, |session, _, thread| session.delivered(thread, Delivery::Look));
            return true;
        }
        let was_held = session.waits_for_time();
        let is_ready = session.resumable() || session.takes_commands() && intake.has_backlog();
        if is_ready || was_held {
            self.with(place, |session, intake, thread| intake.go_on(session, thread, TURN_NS, usize::MAX));
        }
        is_ready || was_held && !self.connections[place].session.waits_for_time()
    }

    /// Submits what sessions have left, waits for all answers, and hands them over.
    pub(super) fn take_answers(&mut self) -> bool {
        let runtime = self.shared.runtime.clone();
        runtime.read_strictly(&self.port, &mut self.submissions.strict);
        self.submissions.end_gathering();
        let mut requests = std::mem::take(&mut self.submissions.requests);
        runtime.submit(&self.port, &mut requests).expect("the node takes a few requests");
        let mut answers = Vec::new();
        loop {
            runtime.help(&self.port);
            let is_last = self.port.outstanding() == 0;
            self.port.drain(&mut answers);
            if is_last {
                break;
            }
            std::thread::park_timeout(LOOK);
        }
        let is_busy = !answers.is_empty();
        for (id, outcome) in answers {
            let is_it = |connection: &TestConnection| connection.session.id() == id.session;
            if let Some(place) = self.connections.iter().position(is_it)
                && self.connections[place].is_open
            {
                self.with(place, |session, _, thread| session.arrived(thread, id, outcome));
            }
        }
        is_busy
    }
}
