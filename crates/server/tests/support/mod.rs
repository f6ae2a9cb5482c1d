//! A server in this process on a free loopback port, and a small client.
#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::disallowed_methods, reason = "threads belong to the server's tests, too")]

use ordo_server::config::Config;
use ordo_server::server::{Server, Stopper};
use redis_surface::codec::{decode_reply, encode_command};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;
use txn::Reply;

/// How long a test waits for a reply before it fails.
const PATIENCE: Duration = Duration::from_secs(120);

/// The settings of a test server in `dir`.
pub fn config(dir: &Path, settings: &[(&str, &str)]) -> Config {
    let mut config = Config::default();
    let dir = dir.to_str().expect("temporary directories have UTF-8 names");
    let base = [
        ("port", "0"),
        ("bind", "127.0.0.1"),
        ("dir", dir),
        ("io-threads", "2"),
        ("appendfsync", "no"),
        // Tests of users give many wrong passwords from one address.
        ("auth-delay-max-ms", "0"),
    ];
    for (name, value) in base.iter().chain(settings) {
        let setting = Config::setting(name).unwrap_or_else(|| panic!("there is no setting '{name}'"));
        (setting.set)(&mut config, value).unwrap_or_else(|problem| panic!("{name}: {problem}"));
    }
    config
}

/// A running server. Stops when dropped.
pub struct TestServer {
    pub address: SocketAddr,
    stopper: Stopper,
    waiter: Option<JoinHandle<()>>,
}

impl TestServer {
    /// Starts a server on a directory.
    pub fn start_in(dir: &Path, settings: &[(&str, &str)]) -> TestServer {
        TestServer::start_with(config(dir, settings))
    }

    /// Starts a server with these settings.
    pub fn start_with(config: Config) -> TestServer {
        let server = Server::start(config).expect("the server starts");
        let address = server.addresses()[0];
        let stopper = server.stopper();
        TestServer { address, stopper, waiter: Some(std::thread::spawn(move || server.wait())) }
    }

    /// Starts a server on an empty directory.
    pub fn start(settings: &[(&str, &str)]) -> (TestServer, TempDir) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        (TestServer::start_in(dir.path(), settings), dir)
    }

    /// Connects a client.
    pub fn client(&self) -> Client {
        Client::connect(self.address)
    }

    /// Stops the server and waits until it has.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits until the server stops by itself.
    pub fn wait(mut self) {
        if let Some(waiter) = self.waiter.take() {
            waiter.join().expect("the server does not panic");
        }
    }

    fn end(&mut self) {
        self.stopper.stop();
        if let Some(waiter) = self.waiter.take()
            && waiter.join().is_err()
            && !std::thread::panicking()
        {
            panic!("the server panicked");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.end();
    }
}

/// A blocking client.
pub struct Client {
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Client { stream, buffer: Vec::new() }
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server takes bytes");
    }

    /// Sends a command without waiting.
    pub fn send(&mut self, words: &[&str]) {
        let mut bytes = Vec::new();
        encode_command(words, &mut bytes);
        self.send_raw(&bytes);
    }

    /// The next reply; `None` if the connection is closed.
    pub fn try_read(&mut self) -> Option<Reply> {
        loop {
            if let Some((reply, used)) = decode_reply(&self.buffer).expect("the server speaks RESP") {
                self.buffer.drain(..used);
                return Some(reply);
            }
            let mut chunk = [0; 16384];
            match self.stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(count) => self.buffer.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no reply: {error}"),
            }
        }
    }

    /// The next reply.
    pub fn read(&mut self) -> Reply {
        self.try_read().expect("the connection is open")
    }

    /// Sends a command and reads its reply.
    pub fn call(&mut self, words: &[&str]) -> Reply {
        self.send(words);
        self.read()
    }

    /// Sends one line of words and shows its reply as redis-cli would on one line.
    pub fn line(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        show(&self.call(&words))
    }

    /// Checks a conversation: lines of a command and its reply.
    pub fn talk(&mut self, lines: &[(&str, &str)]) {
        for (command, want) in lines {
            assert_eq!(self.line(command), *want, "{command}");
        }
    }

    /// What INFO says.
    pub fn info(&mut self) -> String {
        let (Reply::Verbatim(_, text) | Reply::Bulk(text)) = self.call(&["INFO"]) else {
            panic!("INFO replies a text");
        };
        String::from_utf8_lossy(&text).into_owned()
    }

    /// A number that INFO tells.
    pub fn info_number(&mut self, field: &str) -> u64 {
        let text = self.info();
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = value.and_then(|value| value.parse().ok());
        number.unwrap_or_else(|| panic!("INFO tells no number {field}"))
    }

    /// Asks INFO again and again until it has this line.
    pub fn wait_for_info(&mut self, line: &str) {
        let start = std::time::Instant::now();
        while !self.info().lines().any(|found| found == line) {
            assert!(start.elapsed() < PATIENCE, "INFO never says {line}");
        }
    }

    /// Sends a command again and again until its reply is as it should be.
    pub fn wait_until(&mut self, command: &str, is_right: impl Fn(&str) -> bool) {
        let start = std::time::Instant::now();
        loop {
            let reply = self.line(command);
            if is_right(&reply) {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{command} still gives {reply}");
        }
    }

    /// Tells the server that nothing more comes.
    pub fn end(&mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a half-closed connection");
    }
}

/// A reply on one line.
pub fn show(reply: &Reply) -> String {
    let list = |items: &[Reply]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match reply {
        Reply::Nil => "nil".to_owned(),
        Reply::NilArray => "nil-array".to_owned(),
        Reply::Status(text) => text.to_string(),
        Reply::Error(text) => format!("-{text}"),
        Reply::Integer(value) => value.to_string(),
        Reply::Double(value) | Reply::Decimal(value) => format!(",{value}"),
        Reply::Boolean(value) => format!("#{value}"),
        Reply::BigNumber(digits) => String::from_utf8_lossy(digits).into_owned(),
        Reply::Bulk(bytes) | Reply::Verbatim(_, bytes) => {
            format!("\"{}\"", String::from_utf8_lossy(bytes))
        }
        Reply::Array(items) => format!("[{}]", list(items)),
        Reply::Set(items) => format!("~[{}]", list(items)),
        Reply::Push(items) => format!(">[{}]", list(items)),
        Reply::Pairs(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("({}, {})", show(key), show(value))).collect();
            format!("[{}]", pairs.join(", "))
        }
        Reply::Told(told) => show(&told.reply),
        Reply::Map(pairs) | Reply::PairMap(pairs) => {
            let pairs: Vec<String> =
                pairs.iter().map(|(key, value)| format!("{}: {}", show(key), show(value))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
    }
}

/// A generator for tests: SplitMix64 from ORDO_SEED, or from a fixed seed. The seed is printed.
pub struct Dice(u64);

impl Dice {
    pub fn new() -> Dice {
        let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_121);
        println!("ORDO_SEED={seed}");
        Dice(seed)
    }
    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (txn::hash::mix(self.0) % bound as u64) as usize
    }
}
