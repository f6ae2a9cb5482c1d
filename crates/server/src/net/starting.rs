//! Where clients wait while a server loads its data, or waits for the other nodes of its cluster.
//!
//! One thread accepts connections and answers what can be answered without data: AUTH, HELLO, CLIENT's
//! labels, INFO (with `loading:1`), ECHO, SELECT 0, QUIT. Everything else is told -LOADING, as in Redis, so
//! that no client hangs. When the server can serve, this thread ends: listeners and connections go to the I/O
//! threads, each connection with what it has said of itself and with the bytes that came and were not yet a
//! command. Nobody is disconnected.

use super::connection::Connection;
use super::io_thread::{DENIED, admits};
use super::listen::Listener;
use crate::auth_failures::AuthFailures;
use crate::config::Config;
use crate::net::clients::Labels;
use crate::session::{NO_AUTH, NO_PASSWORD_SET, WRONG_PASSWORD, checked_name, is_word};
use crate::tls::{Complaint, HANDSHAKE_MAX, Stream, Tls};
use mio::{Events, Interest, Poll, Token, Waker};
use redis_surface::REDIS_VERSION;
use redis_surface::acl::PasswordHash;
use redis_surface::codec::{Limits, Protocol, RequestDecoder, encode};
use redis_surface::errors;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use txn::{Args, Blob, Reply};

/// The token of the waker that ends the thread.
const CLOSING: Token = Token(usize::MAX);
/// Listeners have the tokens from here on; connections those below.
const FIRST_LISTENER: usize = usize::MAX / 2;
const SCRATCH_BYTES: usize = 16 << 10;
/// A client that leaves so many bytes of replies unread is not read.
const OUTPUT_BYTES_MAX: usize = 64 << 10;
/// Accepting is tried again so often when it failed, most likely for want of descriptors.
const RETRY: Duration = Duration::from_millis(100);

/// A connection that came before the server could serve it.
pub struct Early {
    /// Its socket, registered nowhere.
    pub stream: Stream,
    /// What it has said of itself.
    pub greeting: Greeting,
    /// The decoder, in the middle of a command perhaps.
    pub decoder: RequestDecoder,
    /// What was received and not yet decoded.
    pub input: Vec<u8>,
}

/// What a connection has said of itself.
#[derive(Default)]
pub struct Greeting {
    /// Of the password that it has given, which is that of the settings. Users may be otherwise once they are
    /// known.
    pub password: Option<PasswordHash>,
    /// The protocol that it speaks.
    pub protocol: Protocol,
    /// Its name and library.
    pub labels: Labels,
}

/// The thread that answers while the server starts.
pub struct StartingServer {
    waker: Arc<Waker>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<Left>>,
}

/// What the thread leaves to the I/O threads.
pub type Left = (Vec<Listener>, Vec<Early>);

impl StartingServer {
    /// Takes the listeners and starts to answer, for a server that stands alone or for a member of a cluster.
    pub fn open(
        listeners: Vec<Listener>,
        config: &Config,
        tls: Arc<Tls>,
        auth_failures: Arc<AuthFailures>,
        is_member: bool,
    ) -> io::Result<StartingServer> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), CLOSING)?);
        let closing = Arc::new(AtomicBool::new(false));
        let mut thread_state = StartingThread {
            poll,
            listeners,
            config: config.clone(),
            tls,
            auth_failures,
            is_member,
            closing: closing.clone(),
            guests: BTreeMap::new(),
            next: 0,
            since_s: now_s(),
        };
        for place in 0..thread_state.listeners.len() {
            let token = Token(FIRST_LISTENER + place);
            let listener = &mut thread_state.listeners[place].socket;
            (thread_state.poll.registry()).register(listener, token, Interest::READABLE)?;
        }
        let thread =
            std::thread::Builder::new().name("ordo-starting".to_owned()).spawn(move || thread_state.run())?;
        Ok(StartingServer { waker, closing, thread: Some(thread) })
    }

    /// Stops answering, and gives back the listeners and all connections.
    pub fn close(mut self) -> Left {
        self.end().unwrap_or_default()
    }

    fn end(&mut self) -> Option<Left> {
        let thread = self.thread.take()?;
        self.closing.store(true, Ordering::SeqCst);
        if let Err(error) = self.waker.wake() {
            tracing::debug!("the starting server looks by itself: {error}");
        }
        thread.join().ok()
    }
}

impl Drop for StartingServer {
    fn drop(&mut self) {
        // The server did not start: its clients are disconnected.
        self.end();
    }
}

/// The thread that answers meanwhile.
struct StartingThread {
    poll: Poll,
    listeners: Vec<Listener>,
    config: Config,
    tls: Arc<Tls>,
    auth_failures: Arc<AuthFailures>,
    is_member: bool,
    closing: Arc<AtomicBool>,
    guests: BTreeMap<usize, Guest>,
    next: usize,
    since_s: u64,
}

/// A connection to a server that starts.
struct Guest {
    early: Early,
    from: SocketAddr,
    output: Vec<u8>,
    /// Nothing more is taken: it is closed once its replies are sent.
    leaving: bool,
    /// Until when its handshake must be over.
    handshake_until: Instant,
}

impl StartingThread {
    fn run(mut self) -> Left {
        let mut events = Events::with_capacity(256);
        let mut retry = false;
        while !self.closing.load(Ordering::SeqCst) {
            let timeout = match () {
                () if retry => Some(RETRY),
                () => self.show_out(Instant::now()),
            };
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                tracing::error!("waiting for sockets failed: {error}");
                events.clear();
            }
            let mut accepts = retry;
            for event in events.iter() {
                match event.token() {
                    CLOSING => {}
                    Token(token) if token >= FIRST_LISTENER => accepts = true,
                    Token(token) => self.attend(token),
                }
            }
            retry = accepts && !self.accept();
        }
        self.leave()
    }

    /// Accepts what waits. Returns whether nothing is left.
    fn accept(&mut self) -> bool {
        let mut all = true;
        for place in 0..self.listeners.len() {
            loop {
                let listener = &self.listeners[place];
                match listener.socket.accept() {
                    Ok((socket, from)) => {
                        let stream = match listener.is_tls {
                            false => Ok(Stream::Plain(socket)),
                            true => self.tls.accept_client(socket),
                        };
                        let stream = match stream {
                            Ok(stream) => stream,
                            Err(error) => {
                                tracing::warn!("a client at tls-port could not be served: {error}");
                                continue;
                            }
                        };
                        let full = self.guests.len() as u64 >= self.config.maxclients;
                        if !admits(self.config.protected_mode, !self.config.requirepass.is_none(), from.ip())
                        {
                            Connection::turn_away(stream, &DENIED, &self.tls);
                        } else if full {
                            let error = Reply::error("ERR max number of clients reached");
                            Connection::turn_away(stream, &error, &self.tls);
                        } else {
                            self.admit(stream, from);
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => {
                        tracing::warn!("a connection could not be accepted: {error}");
                        all = false;
                        break;
                    }
                }
            }
        }
        all
    }

    /// Closes the connections whose handshake takes too long. Returns when to look again.
    fn show_out(&mut self, now: Instant) -> Option<Duration> {
        let mut next: Option<Instant> = None;
        let tls = &self.tls;
        self.guests.retain(|_, guest| {
            let stream = &guest.early.stream;
            if !stream.is_handshaking() {
                return true;
            }
            let is_over = guest.handshake_until <= now;
            if is_over && let Ok(address) = stream.socket().peer_addr() {
                tls.complain(Complaint::Slow, address, "");
            }
            let until = guest.handshake_until;
            next = Some(next.map_or(until, |next| next.min(until)));
            !is_over
        });
        next.map(|next| next.saturating_duration_since(now))
    }

    fn admit(&mut self, mut stream: Stream, from: SocketAddr) {
        let token = self.next;
        self.next += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let registry = self.poll.registry();
        if let Err(error) = registry.register(stream.socket_mut(), Token(token), interest) {
            tracing::warn!("a client could not be served: {error}");
            return;
        }
        let early = Early {
            stream,
            greeting: Greeting::default(),
            decoder: RequestDecoder::default(),
            input: Vec::new(),
        };
        self.guests.insert(
            token,
            Guest {
                early,
                from,
                output: Vec::new(),
                leaving: false,
                handshake_until: Instant::now() + HANDSHAKE_MAX,
            },
        );
        self.attend(token);
    }

    /// Reads, answers and sends for a connection, as far as it goes.
    fn attend(&mut self, token: usize) {
        let Some(mut guest) = self.guests.remove(&token) else {
            return;
        };
        let mut scratch = [0; SCRATCH_BYTES];
        loop {
            if !guest.send() {
                return;
            }
            if guest.leaving && !guest.wants_to_send() {
                return guest.early.stream.farewell();
            }
            if guest.leaving || guest.output.len() > OUTPUT_BYTES_MAX {
                break;
            }
            match guest.early.stream.read(&mut scratch) {
                Ok(0) => guest.leaving = true,
                Ok(count) => {
                    guest.early.input.extend_from_slice(&scratch[..count]);
                    self.answer_all(&mut guest);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    if let Ok(address) = guest.early.stream.socket().peer_addr() {
                        self.tls.note_failure(address, &error);
                    }
                    return;
                }
            }
        }
        self.guests.insert(token, guest);
    }

    fn answer_all(&self, guest: &mut Guest) {
        let input = std::mem::take(&mut guest.early.input);
        let mut rest = &input[..];
        while !guest.leaving {
            guest.early.decoder.limits = Limits {
                bulk_bytes_max: self.config.proto_max_bulk_len,
                unauthenticated: self.stranger(&guest.early.greeting),
            };
            match guest.early.decoder.next(&mut rest) {
                Ok(Some(argv)) => {
                    let reply = self.answer(guest, &argv);
                    encode(&reply, guest.early.greeting.protocol, &mut guest.output);
                }
                Ok(None) => break,
                Err(error) => {
                    let protocol = guest.early.greeting.protocol;
                    encode(&error.reply(), protocol, &mut guest.output);
                    guest.leaving = true;
                }
            }
        }
        let held_bytes = rest.len() + guest.early.decoder.held_bytes();
        guest.leaving |= held_bytes as u64 > self.config.client_query_buffer_limit;
        guest.early.input = rest.to_vec();
    }

    fn stranger(&self, greeting: &Greeting) -> bool {
        greeting.password.is_none() && !self.config.requirepass.is_none()
    }

    fn authenticate(
        &self,
        greeting: &mut Greeting,
        from: SocketAddr,
        user: &[u8],
        password: &[u8],
    ) -> Result<(), Reply> {
        if user != b"default" {
            // Who that is, is known when the data is.
            return Err(self.loading());
        }
        let now = Instant::now();
        let delay_max = Duration::from_millis(self.config.auth_delay_max_ms);
        let attempt = self.auth_failures.begin(from.ip(), now, delay_max);
        if !attempt.delay.is_zero() {
            // Nothing waits here: its client comes again.
            return Err(self.loading());
        }
        let password = PasswordHash::of(password);
        let wanted = self.config.requirepass.hash();
        if wanted.is_some_and(|wanted| wanted != password) {
            self.auth_failures.note(from, user, now);
            return Err(WRONG_PASSWORD);
        }
        greeting.password = Some(password);
        Ok(())
    }

    fn loading(&self) -> Reply {
        Reply::error(if self.is_member {
            "LOADING this node is loading its data, or waits for the other nodes of its cluster"
        } else {
            "LOADING Ordo is loading the dataset in memory"
        })
    }

    fn answer(&self, guest: &mut Guest, argv: &Args) -> Reply {
        let words: Vec<&[u8]> = argv.iter().map(|word| word.as_bytes()).collect();
        let Some((&name, rest)) = words.split_first() else {
            return self.loading();
        };
        let from = guest.from;
        let greeting = &mut guest.early.greeting;
        if is_word(name, "quit") {
            guest.leaving = true;
            return Reply::OK;
        }
        if is_word(name, "hello") {
            return match self.greet(greeting, from, rest) {
                Ok(()) => self.introduction(greeting),
                Err(error) => error,
            };
        }
        if is_word(name, "auth") {
            let result = match rest {
                [_] if self.config.requirepass.is_none() => Err(NO_PASSWORD_SET),
                [password] => self.authenticate(greeting, from, b"default", password),
                [user, password] => self.authenticate(greeting, from, user, password),
                _ => Err(errors::SYNTAX),
            };
            return result.err().unwrap_or(Reply::OK);
        }
        if self.stranger(greeting) {
            return NO_AUTH;
        }
        match rest {
            _ if is_word(name, "info") => self.info(),
            [text] if is_word(name, "echo") => Reply::bulk(*text),
            [b"0"] if is_word(name, "select") => Reply::OK,
            [word, label] if is_word(name, "client") && is_word(word, "setname") => {
                set(&mut greeting.labels.name, label)
            }
            [word, attribute, value] if is_word(name, "client") && is_word(word, "setinfo") => {
                if is_word(attribute, "lib-name") {
                    set(&mut greeting.labels.library, value)
                } else if is_word(attribute, "lib-ver") {
                    set(&mut greeting.labels.library_version, value)
                } else {
                    self.loading()
                }
            }
            _ => self.loading(),
        }
    }

    /// Takes HELLO's arguments.
    fn greet(&self, greeting: &mut Greeting, from: SocketAddr, words: &[&[u8]]) -> Result<(), Reply> {
        let mut words = words.iter();
        let mut protocol = greeting.protocol;
        let mut name = None;
        if let Some(version) = words.next() {
            protocol = match *version {
                b"2" => Protocol::Resp2,
                b"3" => Protocol::Resp3,
                _ => return Err(Reply::error("NOPROTO unsupported protocol version")),
            };
        }
        while let Some(option) = words.next() {
            let first = words.next();
            match first {
                Some(user) if is_word(option, "auth") => {
                    let password = words.next().ok_or(errors::SYNTAX)?;
                    self.authenticate(greeting, from, user, password)?;
                }
                Some(word) if is_word(option, "setname") => name = Some(checked_name(word)?),
                _ => return Err(errors::SYNTAX),
            }
        }
        if self.stranger(greeting) {
            return Err(NO_AUTH);
        }
        greeting.protocol = protocol;
        if let Some(name) = name {
            greeting.labels.name = name;
        }
        Ok(())
    }

    fn introduction(&self, greeting: &Greeting) -> Reply {
        let proto = if greeting.protocol == Protocol::Resp3 { 3 } else { 2 };
        Reply::Map(vec![
            (Reply::bulk("server"), Reply::bulk("redis")),
            (Reply::bulk("version"), Reply::bulk(REDIS_VERSION)),
            (Reply::bulk("proto"), Reply::Integer(proto)),
            // Its number comes when it is served.
            (Reply::bulk("id"), Reply::Integer(0)),
            (Reply::bulk("mode"), Reply::bulk(self.mode())),
            (Reply::bulk("role"), Reply::bulk("master")),
            (Reply::bulk("modules"), Reply::Array(Vec::new())),
        ])
    }

    fn mode(&self) -> &'static str {
        if self.is_member { "cluster" } else { "standalone" }
    }

    fn info(&self) -> Reply {
        let text = format!(
            "# Server\r\nredis_version:{REDIS_VERSION}\r\nserver_name:ordo\r\nordo_version:{}\r\n\
             redis_mode:{}\r\nprocess_id:{}\r\n\r\n\
             # Clients\r\nconnected_clients:{}\r\n\r\n\
             # Persistence\r\nloading:1\r\nasync_loading:0\r\nloading_start_time:{}\r\n",
            env!("CARGO_PKG_VERSION"),
            self.mode(),
            std::process::id(),
            self.guests.len() + 1,
            self.since_s,
        );
        Reply::Verbatim("txt", Blob::from(text))
    }

    /// Gives everything away.
    fn leave(mut self) -> Left {
        let registry = self.poll.registry();
        for listener in &mut self.listeners {
            if let Err(error) = registry.deregister(&mut listener.socket) {
                tracing::warn!("a listener could not be handed over: {error}");
            }
        }
        let mut stay = Vec::new();
        for (_, mut guest) in self.guests {
            // One whose replies do not go out by now reads nothing: it is closed.
            let over = !guest.send() || !guest.output.is_empty() || guest.leaving;
            if !over && registry.deregister(guest.early.stream.socket_mut()).is_ok() {
                stay.push(guest.early);
            }
        }
        (self.listeners, stay)
    }
}

impl Guest {
    fn wants_to_send(&self) -> bool {
        !self.output.is_empty() || self.early.stream.pends()
    }

    /// Sends what can be sent. Returns whether the connection is alive.
    fn send(&mut self) -> bool {
        while self.wants_to_send() {
            match self.early.stream.send(&self.output) {
                Ok(sent) => {
                    self.output.drain(..sent.bytes);
                    if sent.full {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        true
    }
}

fn set(label: &mut String, word: &[u8]) -> Reply {
    match checked_name(word) {
        Ok(text) => {
            *label = text;
            Reply::OK
        }
        Err(error) => error,
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "clients of a test are sockets")]
mod tests {
    use super::*;
    use crate::tls::ClientTls;
    use crate::tls::authority::{Authority, text};
    use redis_surface::codec::decode_reply;
    use std::io::Write;

    fn open(settings: &[(&str, &str)], is_member: bool) -> (StartingServer, SocketAddr) {
        let mut config = Config::default();
        for (name, value) in [("port", "0"), ("bind", "127.0.0.1")].iter().chain(settings) {
            let setting = Config::setting(name).expect("exists");
            (setting.set)(&mut config, value).expect("valid");
        }
        let listeners = super::super::listen::listen(&config).expect("a port");
        let address = listeners[0].socket.local_addr().expect("bound");
        let tls = Arc::new(Tls::new(&config).expect("none"));
        let starting =
            StartingServer::open(listeners, &config, tls, Arc::default(), is_member).expect("a thread");
        (starting, address)
    }

    struct Client(std::net::TcpStream);

    impl Client {
        fn to(address: SocketAddr) -> Client {
            let stream = std::net::TcpStream::connect(address).expect("it accepts");
            let patience = Some(Duration::from_secs(20));
            stream.set_read_timeout(patience).expect("a socket");
            Client(stream)
        }
        fn send(&mut self, bytes: &str) {
            self.0.write_all(bytes.as_bytes()).expect("sent");
        }
        fn read(&mut self) -> Option<Reply> {
            let mut bytes = Vec::new();
            let mut byte = [0];
            while self.0.read(&mut byte).expect("in time") > 0 {
                bytes.push(byte[0]);
                if let Some((reply, _)) = decode_reply(&bytes).expect("RESP") {
                    return Some(reply);
                }
            }
            None
        }
        fn call(&mut self, line: &str) -> String {
            self.send(&format!("{line}\r\n"));
            match self.read() {
                Some(Reply::Error(text)) => format!("-{text}"),
                Some(Reply::Status(text)) => text.into_owned(),
                Some(Reply::Bulk(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
                other => format!("{other:?}"),
            }
        }
    }

    const LOADING: &str = "-LOADING Ordo is loading the dataset in memory";

    #[test]
    fn what_needs_data_is_told_that_it_loads() {
        let (_lobby, address) = open(&[], false);
        let mut client = Client::to(address);
        for line in ["PING", "GET k", "SET k v", "NONSENSE", "MULTI", "SELECT 1"] {
            assert_eq!(client.call(line), LOADING, "{line}");
        }
        for (line, want) in [
            ("ECHO hi", "hi"),
            ("SELECT 0", "OK"),
            ("CLIENT SETNAME me", "OK"),
            ("CLIENT SETINFO LIB-NAME x", "OK"),
        ] {
            assert_eq!(client.call(line), want, "{line}");
        }
        let info = client.call("INFO persistence");
        assert!(info.contains("\r\nloading:1\r\n"), "{info}");
        assert!(client.call("HELLO 2").contains("redis"));
        assert_eq!(client.call("QUIT"), "OK");
        assert!(client.read().is_none(), "QUIT closes the connection");
        let (_lobby, address) = open(&[], true);
        let said = Client::to(address).call("PING");
        assert!(said.starts_with("-LOADING this node"), "{said}");
    }

    #[test]
    fn strangers_learn_nothing() {
        let (_lobby, address) = open(&[("requirepass", "secret")], false);
        let mut client = Client::to(address);
        for line in ["PING", "INFO", "ECHO hi", "HELLO 3"] {
            assert_eq!(client.call(line), "-NOAUTH Authentication required.");
        }
        assert!(client.call("AUTH wrong").starts_with("-WRONGPASS"));
        assert_eq!(client.call("PING"), "-NOAUTH Authentication required.");
        assert_eq!(client.call("AUTH secret"), "OK");
        assert_eq!(client.call("PING"), LOADING);
        let mut client = Client::to(address);
        let hello = client.call("HELLO 2 AUTH default secret SETNAME me");
        assert!(hello.contains("redis"), "{hello}");
        assert_eq!(client.call("PING"), LOADING);
        // Who guesses too often is not heard for a while, be it right or wrong.
        while client.call("AUTH wrong").starts_with("-WRONGPASS") {}
        assert_eq!(client.call("AUTH secret"), LOADING);
        assert_eq!(client.call("HELLO 3 AUTH default secret"), LOADING);
    }

    #[test]
    fn bytes_that_are_no_command_close_the_connection() {
        let (_lobby, address) = open(&[], false);
        let mut client = Client::to(address);
        client.send("*x\r\n");
        assert!(matches!(client.read(), Some(Reply::Error(_))));
        assert!(client.read().is_none());
    }

    #[test]
    fn clients_with_tls_wait_as_well_as_others() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let authority = Authority::new(dir.path(), "ca");
        let own = authority.sign(dir.path(), "own");
        let port = crate::launcher::free_port().expect("a port").to_string();
        let settings = [
            ("tls-port", port.as_str()),
            ("tls-cert-file", text(&own.cert)),
            ("tls-key-file", text(&own.key)),
            ("tls-ca-cert-file", text(&authority.file)),
        ];
        let (starting, address) = open(&settings, false);
        let shows = (own.cert.as_path(), own.key.as_path());
        let tls = ClientTls::from_files(&authority.file, Some(shows)).expect("files");
        let socket = std::net::TcpStream::connect(address).expect("it accepts");
        let mut client = tls.over(socket).expect("it believes the server");
        let mut say = |bytes: &[u8]| {
            client.write_all(bytes).expect("sent");
            client.flush().expect("sent");
        };
        // A whole command, and a part of the next.
        say(b"PING\r\nGET ke");
        let mut said = vec![0; LOADING.len() + 2];
        client.read_exact(&mut said).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&said), format!("{LOADING}\r\n"));
        // One that says nothing, and is on its way, too.
        let _silent = std::net::TcpStream::connect(address).expect("it accepts");
        let mut plain = std::net::TcpStream::connect(address).expect("it accepts");
        plain.write_all(b"PING\r\n").expect("sent");
        let mut said = Vec::new();
        plain.read_to_end(&mut said).expect("it is closed");
        assert_eq!(said.first(), Some(&21), "an alert");
        let (_, early) = starting.close();
        let early = early.into_iter();
        let [mut early] = early
            .filter(|early| !early.stream.is_handshaking())
            .collect::<Vec<_>>()
            .try_into()
            .ok()
            .expect("one has ended its handshake");
        assert_eq!(early.input, b"GET ke");
        early.stream.write_all(b"+OK\r\n").expect("sent");
        let mut said = [0; 5];
        client.read_exact(&mut said).expect("a reply");
        assert_eq!(&said, b"+OK\r\n");
    }

    #[test]
    fn who_stays_goes_on_where_it_was() {
        let (starting, address) = open(&[("requirepass", "secret")], false);
        let mut first = Client::to(address);
        assert!(first.call("HELLO 3 AUTH default secret SETNAME me").contains("Map"));
        let mut gone = Client::to(address);
        assert_eq!(gone.call("QUIT"), "OK");
        // A whole command, and a part of the next.
        first.send("PING\r\nGET ke");
        assert_eq!(first.read(), Some(Reply::error(&LOADING[1..])));
        let (listeners, early) = starting.close();
        assert_eq!(listeners.len(), 1);
        let [mut early] = <[Early; 1]>::try_from(early).ok().expect("one stays");
        assert_eq!(early.greeting.password, Some(PasswordHash::of(b"secret")));
        assert_eq!(early.greeting.protocol, Protocol::Resp3);
        assert_eq!(early.greeting.labels.name, "me");
        let mut bytes = std::mem::take(&mut early.input);
        bytes.extend_from_slice(b"y\r\n");
        let argv = early.decoder.next(&mut &bytes[..]).expect("RESP");
        let words: Vec<Vec<u8>> = (argv.expect("whole").iter()).map(|word| word.to_vec()).collect();
        assert_eq!(words, [b"GET".to_vec(), b"key".to_vec()]);
        // They can be registered elsewhere.
        let poll = Poll::new().expect("a poll");
        let mut listeners = listeners;
        for source in &mut listeners {
            let registered = poll.registry().register(&mut source.socket, Token(1), Interest::READABLE);
            registered.expect("a listener");
        }
        (poll.registry())
            .register(early.stream.socket_mut(), Token(2), Interest::READABLE)
            .expect("a connection");
    }
}
