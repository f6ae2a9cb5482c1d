//! The loop of an I/O thread. See the module's head for what a round is.

use super::clients::Arrival;
use super::connection::{Connection, Fate};
use super::listen::Listener;
use super::mailbox::{Incoming, Mailbox};
use super::starting::Early;
use crate::clock::Clocks;
use crate::config::Config;
use crate::hub::Delivery;
use crate::observe::{Books, Tally};
use crate::runtime::{Answer, Port, Refused};
use crate::session::{Commands, Session, Strays, Submissions, ThreadContext};
use crate::shared::{Shared, ThreadCounters};
use crate::tls::{Complaint, Stream};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use redis_surface::codec::reads_ahead;
use socket2::{SockRef, TcpKeepalive};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use txn::hash::FixedMap;
use txn::tx::EXPECTED_MAX;
use txn::{Reply, SessionId};

/// The token of a thread's waker.
pub const WAKER: Token = Token(usize::MAX);
/// Listeners have the tokens from here on; connections those below.
const FIRST_LISTENER: usize = usize::MAX / 2;

/// How long a thread sleeps at most.
const TICK: Duration = Duration::from_millis(100);
/// The same while a connection waits for a time.
const SHORT_TICK: Duration = Duration::from_millis(10);
/// How much is read from a socket at once.
const SCRATCH_BYTES: usize = 64 << 10;
/// So many connections that are served one after the other have what they have sent received first, and so
/// many bytes of each: the records that they read are loaded together.
const AHEAD_CONNECTIONS: usize = EXPECTED_MAX;
const AHEAD_BYTES: usize = 4 << 10;
/// So long the connections that want it are served one after the other before replies are sent.
const ROUND_NS: u64 = 10_000_000;
/// And so long each of them, at least and at most.
const TURN_NS: (u64, u64) = (100_000, 2_000_000);
/// Every so many ticks, idle connections and slow readers are looked for.
const TICKS_PER_SWEEP: u32 = 10;

/// An I/O thread.
pub struct IoThread {
    poll: Poll,
    shared: Arc<Shared>,
    commands: Commands,
    counters: Arc<ThreadCounters>,
    tally: Tally,
    port: Port,
    /// Only the first thread's.
    listeners: Vec<Listener>,
    /// A listener may have more connections.
    accepts: bool,
    /// All threads, this one first, in the order in which they get connections.
    mailboxes: Vec<Arc<Mailbox>>,
    next_mailbox: usize,
    config: Arc<Config>,
    config_generation: u64,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<usize>,
    by_session: FixedMap<SessionId, usize>,
    /// Connections to read or to go on with.
    attention: Vec<usize>,
    /// Connections with replies to send.
    dirty: Vec<usize>,
    /// Connections that wait for a time.
    timed: Vec<usize>,
    /// When connections that wait for something else give it up, in milliseconds since 1970.
    deadlines: BTreeSet<(u64, SessionId)>,
    submissions: Submissions,
    strays: Strays,
    /// The order took nothing more: no connection is read until it does.
    stalled: bool,
    answers: Vec<Answer>,
    scratch: Vec<u8>,
    /// Rooms for what is received ahead from several connections.
    ahead: Vec<u8>,
    clocks: Clocks,
    now_ms: u64,
    ticked: Instant,
    ticks: u32,
}

/// What an I/O thread is made of.
pub struct Parts {
    /// Its poll, with the waker of its mailbox registered as [`WAKER`].
    pub poll: Poll,
    /// Its port.
    pub port: Port,
    /// Its number.
    pub index: usize,
    /// The listeners, if it accepts.
    pub listeners: Vec<Listener>,
    /// The mailboxes of all threads, its own first.
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// What all threads share.
    pub shared: Arc<Shared>,
}

/// What the thread lends its sessions. No method, so that a connection may be borrowed beside it.
macro_rules! thread {
    ($thread:ident) => {
        ThreadContext {
            shared: &$thread.shared,
            port: &$thread.port,
            config: &$thread.config,
            commands: &$thread.commands,
            counters: &$thread.counters,
            tally: &$thread.tally,
            submissions: &mut $thread.submissions,
            strays: &mut $thread.strays,
            clocks: &$thread.clocks,
            now_ms: $thread.now_ms,
        }
    };
}

impl IoThread {
    /// Puts a thread together and registers its listeners.
    pub fn new(parts: Parts) -> io::Result<IoThread> {
        let Parts { poll, port, index, mut listeners, mailboxes, shared } = parts;
        for (place, listener) in listeners.iter_mut().enumerate() {
            poll.registry().register(
                &mut listener.socket,
                Token(FIRST_LISTENER + place),
                Interest::READABLE,
            )?;
        }
        Ok(IoThread {
            poll,
            commands: Commands::default(),
            counters: shared.counters(index),
            tally: Tally::default(),
            port,
            accepts: !listeners.is_empty(),
            listeners,
            mailboxes,
            next_mailbox: 0,
            config_generation: shared.settings.generation(),
            config: shared.settings.now(),
            connections: Vec::new(),
            free: Vec::new(),
            by_session: FixedMap::default(),
            attention: Vec::new(),
            dirty: Vec::new(),
            timed: Vec::new(),
            deadlines: BTreeSet::new(),
            submissions: Submissions::default(),
            strays: Strays::default(),
            stalled: false,
            answers: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            ahead: vec![0; AHEAD_CONNECTIONS * AHEAD_BYTES],
            clocks: Clocks::Machine(shared.runtime.clock()),
            now_ms: shared.runtime.now_ms(),
            ticked: Instant::now(),
            ticks: 0,
            shared,
        })
    }

    /// Serves until the server stops, and then until what is in flight is answered.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(1024);
        while !self.shared.stopping() {
            self.wait(&mut events);
            self.take_events(&events);
            if !self.stalled {
                self.serve_all();
            }
            self.submit();
            self.take_answers();
            self.take_deliveries();
            self.flush_all();
            self.tick();
        }
        self.wind_down(&mut events);
    }

    /// Takes nothing new, and answers what was taken, for as long as the settings allow.
    fn wind_down(&mut self, events: &mut Events) {
        self.listeners.clear();
        for connection in self.connections.iter_mut().flatten() {
            connection.session().close_after_replies();
        }
        self.dirty = (0..self.connections.len()).collect();
        let deadline = Instant::now() + Duration::from_secs(self.config.shutdown_timeout);
        loop {
            self.submit();
            self.take_answers();
            self.flush_all();
            let open = self.connections.iter().any(Option::is_some);
            let left = deadline.saturating_duration_since(Instant::now());
            if !open || left.is_zero() {
                return;
            }
            self.sleep(events, left.min(TICK));
            for event in events.iter() {
                if let Some(Some(connection)) = self.connections.get_mut(event.token().0) {
                    connection.became_writable();
                    self.dirty.push(event.token().0);
                }
            }
        }
    }

    fn wait(&mut self, events: &mut Events) {
        let work = !self.attention.is_empty() || !self.submissions.is_empty() || self.accepts;
        let busy = !self.stalled && work;
        let timeout = match () {
            () if busy => Duration::ZERO,
            () if self.timed.is_empty() => TICK,
            () => SHORT_TICK,
        };
        let next = self.deadlines.first().map(|(deadline_ms, _)| {
            Duration::from_millis(deadline_ms.saturating_sub(self.shared.runtime.now_ms()))
        });
        let timeout = next.map_or(timeout, |next| next.min(timeout));
        self.sleep(events, timeout);
        self.now_ms = self.shared.runtime.now_ms();
        self.tally.tick();
        self.look_at_settings();
    }

    /// Goes by the newest settings from here on.
    fn look_at_settings(&mut self) {
        let generation = self.shared.settings.generation();
        if generation != self.config_generation {
            self.config_generation = generation;
            self.config = self.shared.settings.now();
        }
    }

    /// Polls. Whoever has something for this thread either sees it asleep and wakes it, or is seen by its
    /// last look.
    fn sleep(&mut self, events: &mut Events, timeout: Duration) {
        let mut timeout = timeout;
        if !timeout.is_zero() {
            self.mailboxes[0].falls_asleep();
            self.shared.runtime.help(&self.port);
            self.port.drain(&mut self.answers);
            if !self.answers.is_empty() || self.mailboxes[0].has_deliveries() {
                timeout = Duration::ZERO;
            }
        }
        if let Err(error) = self.poll.poll(events, Some(timeout))
            && error.kind() != ErrorKind::Interrupted
        {
            tracing::error!("waiting for sockets failed: {error}");
            events.clear();
        }
        self.mailboxes[0].is_awake();
    }

    fn take_events(&mut self, events: &Events) {
        for event in events.iter() {
            match event.token() {
                WAKER => {
                    for incoming in self.mailboxes[0].take_accepted() {
                        self.adopt(incoming);
                    }
                    if self.mailboxes[0].take_kills() {
                        self.sweep();
                    }
                }
                Token(token) if token >= FIRST_LISTENER => self.accepts = true,
                Token(token) => {
                    let Some(Some(connection)) = self.connections.get_mut(token) else {
                        continue;
                    };
                    if event.is_writable() {
                        // Told once only, perhaps together with the end of what the client sends.
                        connection.became_writable();
                        if connection.wants_to_send() {
                            list(&mut self.dirty, &mut connection.dirty, token);
                        }
                    }
                    let ended = event.is_read_closed() || event.is_error();
                    if ended && connection.session().is_waiting() {
                        // It is not read meanwhile, and must not take what others wait for. But what an
                        // attempt takes is to be sent.
                        if connection.session().tries() {
                            connection.session().close_after_replies();
                        } else {
                            self.close(token);
                        }
                        continue;
                    }
                    if event.is_readable() || ended {
                        connection.became_readable(ended);
                        list(&mut self.attention, &mut connection.listed, token);
                    }
                }
            }
        }
        if self.accepts {
            self.accept();
        }
    }

    /// Accepts what waits, a few at a time.
    fn accept(&mut self) {
        const ACCEPTED_PER_ROUND: usize = 256;
        // A handshake takes up to a millisecond of the thread, in which it serves nobody else.
        const SECURED_PER_ROUND: usize = 8;
        self.accepts = false;
        for place in 0..self.listeners.len() {
            let max = match self.listeners[place].is_tls {
                true => SECURED_PER_ROUND,
                false => ACCEPTED_PER_ROUND,
            };
            for turn in 0..=max {
                if turn == max {
                    self.accepts = true;
                    break;
                }
                let listener = &self.listeners[place];
                match listener.socket.accept() {
                    Ok((socket, _)) => {
                        let is_tls = listener.is_tls;
                        let incoming = Incoming::New { socket, is_tls };
                        self.next_mailbox = (self.next_mailbox + 1) % self.mailboxes.len();
                        match self.next_mailbox {
                            0 => self.adopt(incoming),
                            other => self.mailboxes[other].hand_over(incoming),
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        // Out of descriptors, most likely: what waits is tried again at the next tick.
                        tracing::warn!("a connection could not be accepted: {error}");
                        break;
                    }
                }
            }
        }
    }

    /// Makes a connection of an accepted socket, unless it is turned away.
    fn adopt(&mut self, incoming: Incoming) {
        let (mut stream, waited) = match incoming {
            Incoming::New { socket, is_tls: false } => (Stream::Plain(socket), None),
            Incoming::New { socket, is_tls: true } => match self.shared.tls.accept_client(socket) {
                Ok(stream) => (stream, None),
                Err(error) => {
                    tracing::warn!("a client at tls-port could not be served: {error}");
                    return;
                }
            },
            Incoming::Early(early) => {
                let Early { stream, greeting, decoder, input } = *early;
                (stream, Some((greeting, decoder, input)))
            }
        };
        let socket = stream.socket();
        let (Ok(address), Ok(local_address)) = (socket.peer_addr(), socket.local_addr()) else {
            return;
        };
        // Whoever connects after CONFIG SET was answered is treated by it.
        self.look_at_settings();
        let has_password = !self.shared.acl.default_needs_no_password();
        if !admits(self.config.protected_mode, has_password, address.ip()) {
            self.counters.rejected.add(1);
            return Connection::turn_away(stream, &DENIED, &self.shared.tls);
        }
        let arrival = Arrival { address, local_address, now_ms: self.now_ms };
        let count_max = self.config.maxclients as usize;
        let Some(client) =
            self.shared.clients.connect(arrival, self.port.session(), self.mailboxes[0].clone(), count_max)
        else {
            self.counters.rejected.add(1);
            return Connection::turn_away(
                stream,
                &Reply::error("ERR max number of clients reached"),
                &self.shared.tls,
            );
        };
        let token = self.free.pop().unwrap_or(self.connections.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        if let Err(error) = tune(stream.socket(), &self.config)
            .and_then(|()| self.poll.registry().register(stream.socket_mut(), Token(token), interest))
        {
            tracing::warn!("client {address} could not be served: {error}");
            self.shared.clients.disconnect(&client);
            self.free.push(token);
            return;
        }
        self.counters.connections.add(1);
        let mut session = Session::new(client, &self.shared);
        self.by_session.insert(session.id(), token);
        let mut connection = Box::new(match waited {
            None => Connection::new(stream, session),
            Some((greeting, decoder, input)) => {
                session.introduced(&self.shared, greeting);
                Connection::with_input(stream, session, decoder, input)
            }
        });
        list(&mut self.attention, &mut connection.listed, token);
        if token == self.connections.len() {
            self.connections.push(Some(connection));
        } else {
            self.connections[token] = Some(connection);
        }
    }

    fn close(&mut self, token: usize) {
        let Some(mut connection) = self.connections.get_mut(token).and_then(Option::take) else {
            return;
        };
        let session = connection.session().id();
        self.by_session.remove(&session);
        if let Some(deadline_ms) = connection.deadline_ms {
            self.deadlines.remove(&(deadline_ms, session));
        }
        if self.shared.runtime.is_certified() {
            // What comes behind the end of a session would begin it anew.
            self.submit();
        }
        connection.session().ended_for_good(&self.shared);
        self.shared.clients.disconnect(connection.session().client());
        connection.stream().farewell();
        let socket = connection.stream().socket_mut();
        if let Err(error) = self.poll.registry().deregister(socket) {
            tracing::debug!("a closed socket was not registered: {error}");
        }
        self.free.push(token);
    }

    /// Serves the connections that want it.
    fn serve_all(&mut self) {
        let mut attention = std::mem::take(&mut self.attention);
        attention.append(&mut self.timed);
        let mut served = 0;
        let turn_ns = (ROUND_NS / attention.len().max(1) as u64).clamp(TURN_NS.0, TURN_NS.1);
        while let Some(&token) = attention.get(served) {
            let place = served % AHEAD_CONNECTIONS;
            if place == 0 {
                let next = &attention[served..];
                self.receive_ahead(&next[..next.len().min(AHEAD_CONNECTIONS)]);
            }
            if self.submissions.is_large() {
                self.submit();
                if self.stalled {
                    self.keep_received(place, &attention[served..]);
                    break;
                }
            }
            served += 1;
            let Some(Some(connection)) = self.connections.get_mut(token) else {
                continue;
            };
            connection.listed = false;
            let mut thread = thread!(self);
            let ahead = &self.ahead[place * AHEAD_BYTES..][..AHEAD_BYTES];
            if connection.serve(&mut thread, (ahead, &mut self.scratch), turn_ns) == Fate::Over {
                self.close(token);
                continue;
            }
            list(&mut self.dirty, &mut connection.dirty, token);
            note_deadline(&mut self.deadlines, connection);
            if connection.session().waits_for_time() {
                list(&mut self.timed, &mut connection.listed, token);
            } else if connection.wants_attention() {
                list(&mut self.attention, &mut connection.listed, token);
            }
        }
        attention.drain(..served);
        attention.append(&mut self.attention);
        self.attention = attention;
    }

    /// Receives from connections that are served next, and has the records that they read loaded together.
    fn receive_ahead(&mut self, tokens: &[usize]) {
        if tokens.len() < 2 {
            return;
        }
        let mut hashes = [0; EXPECTED_MAX];
        let mut count = 0;
        for (&token, room) in tokens.iter().zip(self.ahead.chunks_mut(AHEAD_BYTES)) {
            if let Some(Some(connection)) = self.connections.get_mut(token) {
                // Where there are several, the session looks ahead by itself.
                let mut reads = [0; 2];
                if reads_ahead(connection.receive_ahead(room), &mut reads) == 1 {
                    hashes[count] = reads[0];
                    count += 1;
                }
            }
        }
        if count > 1 {
            self.shared.runtime.expect(&self.port, &hashes[..count]);
        }
    }

    /// The connections whose turn does not come keep what was received: the first of them has its bytes in
    /// the room with this number.
    fn keep_received(&mut self, place: usize, tokens: &[usize]) {
        for (&token, room) in tokens.iter().zip(self.ahead.chunks(AHEAD_BYTES).skip(place)) {
            if let Some(Some(connection)) = self.connections.get_mut(token) {
                connection.keep_received(room);
            }
        }
    }

    /// Submits what the round has collected, or what an earlier one could not.
    fn submit(&mut self) {
        self.shared.runtime.read_strictly(&self.port, &mut self.submissions.strict);
        self.submissions.end_gathering();
        let was_stalled = std::mem::take(&mut self.stalled);
        if self.submissions.requests.is_empty() {
            return;
        }
        match self.shared.runtime.submit(&self.port, &mut self.submissions.requests) {
            Ok(()) => {}
            Err(Refused::Busy) => {
                self.stalled = true;
                if !was_stalled {
                    self.counters.stalls.add(1);
                }
                return;
            }
            Err(refused) => {
                let text = match &refused {
                    Refused::ReadOnly(text) => text.to_string(),
                    other => format!("ERR {other}"),
                };
                for request in std::mem::take(&mut self.submissions.requests) {
                    self.answers.push((request.id, Ok(Reply::error_owned(text.clone()))));
                }
            }
        }
        self.submissions.bytes = 0;
    }

    /// Helps the engine, and gives the replies that have arrived to their connections.
    fn take_answers(&mut self) {
        self.shared.runtime.help(&self.port);
        let mut answers = std::mem::take(&mut self.answers);
        self.port.drain(&mut answers);
        for (id, outcome) in answers.drain(..) {
            // Connections that were closed meanwhile have no use for their replies.
            let Some(&token) = self.by_session.get(&id.session) else {
                continue;
            };
            self.with_connection(token, |connection, thread| {
                connection.session().arrived(thread, id, outcome);
            });
        }
        self.answers = answers;
        self.settle();
    }

    /// Counts the calls that have ended.
    fn settle(&self) {
        self.tally.settle(&Books {
            counts: &self.counters.calls,
            shared: &self.shared,
            config: &self.config,
        });
    }

    /// Gives connections what others have for them, and wakes those whose time is up.
    fn take_deliveries(&mut self) {
        let mut deliveries = self.mailboxes[0].take_deliveries();
        while let Some(&(deadline_ms, session)) = self.deadlines.first()
            && deadline_ms <= self.now_ms
        {
            self.deadlines.pop_first();
            if let Some(&token) = self.by_session.get(&session)
                && let Some(Some(connection)) = self.connections.get_mut(token)
            {
                connection.deadline_ms = None;
            }
            deliveries.push((session, Delivery::Look));
        }
        for (session, delivery) in deliveries {
            let Some(&token) = self.by_session.get(&session) else {
                continue;
            };
            self.with_connection(token, |connection, thread| {
                let pushed_bytes = delivery.pushed_bytes();
                let pushes = &connection.session().client().pushes;
                pushes.taken(pushed_bytes, delivery.is_shared());
                // Messages count as they come, not when all of them are there.
                if pushed_bytes == 0 || connection.check_output_limit(thread) == Fate::Open {
                    connection.session().delivered(thread, delivery);
                }
            });
        }
        self.settle();
    }

    /// Does something with a connection, and then sees what it wants.
    fn with_connection(&mut self, token: usize, act: impl FnOnce(&mut Connection, &mut ThreadContext<'_>)) {
        let Some(Some(connection)) = self.connections.get_mut(token) else {
            return;
        };
        let mut thread = thread!(self);
        act(connection, &mut thread);
        list(&mut self.dirty, &mut connection.dirty, token);
        if connection.wants_attention() {
            list(&mut self.attention, &mut connection.listed, token);
        }
        note_deadline(&mut self.deadlines, connection);
    }

    fn flush_all(&mut self) {
        let mut dirty = std::mem::take(&mut self.dirty);
        for token in dirty.drain(..) {
            let Some(Some(connection)) = self.connections.get_mut(token) else {
                continue;
            };
            connection.dirty = false;
            let thread = thread!(self);
            if connection.flush(&thread) == Fate::Over {
                self.close(token);
            } else if connection.wants_attention() {
                // Its commands have waited until its client read.
                list(&mut self.attention, &mut connection.listed, token);
            }
        }
        self.dirty = dirty;
        let limit = self.config.maxmemory_clients.bytes(self.config.maxmemory);
        self.shared.clients.evict(limit);
    }

    /// What is done ten times a second.
    fn tick(&mut self) {
        if self.ticked.elapsed() < TICK {
            return;
        }
        self.ticked = Instant::now();
        self.ticks = self.ticks.wrapping_add(1);
        self.counters.ticks.add(1);
        self.accepts = !self.listeners.is_empty();
        if self.ticks.is_multiple_of(TICKS_PER_SWEEP) {
            self.sweep();
        }
        if !self.listeners.is_empty() {
            self.shared.refresh_users(&self.port, None);
            self.shared.look_at_memory();
            if self.ticks.is_multiple_of(TICKS_PER_SWEEP) {
                self.shared.sample(self.now_ms);
                self.shared.hub.rest(&self.shared.runtime);
                self.shared.hub.follow_routing(&self.shared.runtime);
            }
        }
    }

    /// Closes connections that were killed, that are idle for too long, or that do not read.
    fn sweep(&mut self) {
        let timeout_ms = self.config.timeout * 1000;
        for token in 0..self.connections.len() {
            let Some(Some(connection)) = self.connections.get_mut(token) else {
                continue;
            };
            let thread = thread!(self);
            if connection.is_overdue(self.now_ms) {
                let address = connection.session().client().address;
                self.shared.tls.complain(Complaint::Slow, address, "");
                self.close(token);
                continue;
            }
            if connection.expired(self.now_ms, timeout_ms)
                || connection.check_output_limit(&thread) == Fate::Over
            {
                self.close(token);
            }
        }
    }
}

pub(super) const DENIED: Reply = Reply::error(
    "DENIED This server runs in protected mode and has no password, so it serves clients of its own \
     machine only. To serve others, set a password (CONFIG SET requirepass, or --requirepass-file), or \
     insist with CONFIG SET protected-mode no (or --protected-mode no).",
);

/// Whether clients from an address are served: see [`Config::protected_mode`].
pub(super) fn admits(is_protected: bool, has_password: bool, from: IpAddr) -> bool {
    !is_protected || has_password || from.to_canonical().is_loopback()
}

/// Has a connection looked at when it gives up waiting.
fn note_deadline(deadlines: &mut BTreeSet<(u64, SessionId)>, connection: &mut Connection) {
    let (deadline_ms, session) = (connection.session().deadline_ms(), connection.session().id());
    if connection.deadline_ms == deadline_ms {
        return;
    }
    if let Some(before_ms) = std::mem::replace(&mut connection.deadline_ms, deadline_ms) {
        deadlines.remove(&(before_ms, session));
    }
    deadlines.extend(deadline_ms.map(|deadline_ms| (deadline_ms, session)));
}

/// Puts a token into a list unless it is there.
fn list(tokens: &mut Vec<usize>, listed: &mut bool, token: usize) {
    if !std::mem::replace(listed, true) {
        tokens.push(token);
    }
}

fn tune(stream: &TcpStream, config: &Config) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if config.tcp_keepalive > 0 {
        let time = Duration::from_secs(config.tcp_keepalive);
        let keepalive = TcpKeepalive::new()
            .with_time(time)
            .with_interval((time / 3).max(Duration::from_secs(1)))
            .with_retries(3);
        SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protected_mode_admits_this_machine_only() {
        let admitted = |is_protected, has_password, from: &str| {
            admits(is_protected, has_password, from.parse().expect("an address"))
        };
        for (from, want) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(admitted(true, false, from), want, "{from}");
        }
        assert!(admitted(true, true, "10.0.0.1"));
        assert!(admitted(false, false, "10.0.0.1"));
    }
}
