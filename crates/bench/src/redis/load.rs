//! The load: many connections in a closed loop, driven by one thread.
//!
//! Client and server share a small machine, so the client must be the cheaper of the two: requests are
//! prebuilt ([`super::template`]), replies are only counted ([`super::replies`]), and a connection costs one
//! read and one write per pipeline. Each connection sends its next pipeline when the last one is answered
//! whole.

use super::replies::{Scanner, Tally};
use super::template::Template;
use crate::etcd::process_seconds;
use crate::report::Latencies;
use anyhow::{Context, Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

/// A server that answers nothing for this long is taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Where to connect.
#[derive(Clone, Debug)]
pub struct Target {
    /// A host name or address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The password, if the server asks for one.
    pub password: Option<String>,
    /// The server's process, if the processor time that it takes is wanted.
    pub process: Option<u32>,
}

impl From<SocketAddr> for Target {
    fn from(address: SocketAddr) -> Target {
        Target { host: address.ip().to_string(), port: address.port(), password: None, process: None }
    }
}

/// Processor time of the targets' processes.
fn processor_seconds(targets: &[Target]) -> f64 {
    targets.iter().filter_map(|target| target.process).map(process_seconds).sum()
}

/// Connections that do the same and share a histogram.
pub struct Class {
    /// One template for each connection.
    pub templates: Vec<Template>,
    /// Commands in a template.
    pub pipeline: u64,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Until {
    /// After this time, of which the warm-up is no part.
    Elapsed(Duration),
    /// After this many replies over all classes, none of them warm-up.
    Replies(u64),
}

/// What a class measured.
#[derive(Clone, Default)]
pub struct Measured {
    /// Replies and errors.
    pub tally: Tally,
    /// Latency of replies.
    pub latencies: Latencies,
    /// The measured time.
    pub elapsed: Duration,
    /// Processor time that the servers took in that time, for all classes, if their processes are known.
    pub processor_seconds: Option<f64>,
    /// The first error text.
    pub error: Option<String>,
}

struct Connection {
    stream: TcpStream,
    class: usize,
    template: Template,
    written: usize,
    awaited: u64,
    sent_at: Instant,
    input: Vec<u8>,
    filled: usize,
    scanner: Scanner,
}

/// Runs the classes and measures each. Connections are dealt out to the targets in turn.
pub fn run(
    targets: &[Target],
    classes: Vec<Class>,
    warm_up: Duration,
    until: Until,
) -> Result<Vec<Measured>> {
    let mut poll = Poll::new()?;
    let mut measured: Vec<Measured> = classes.iter().map(|_| Measured::default()).collect();
    let pipelines: Vec<u64> = classes.iter().map(|class| class.pipeline).collect();
    let mut connections = connect(targets, classes, &poll)?;
    let mut events = Events::with_capacity(1024);

    let started = Instant::now();
    let warm_until = started + if matches!(until, Until::Replies(_)) { Duration::ZERO } else { warm_up };
    let mut measuring_since = (warm_until <= started).then_some(started);
    let mut processor_before = processor_seconds(targets);
    let mut draining = false;
    let mut quiet_since = started;
    let mut idle = 0;
    for connection in &mut connections {
        connection.begin(pipelines[connection.class], started)?;
    }
    loop {
        match poll.poll(&mut events, Some(Duration::from_millis(200))) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("waiting for the server failed"),
        }
        let mut now = Instant::now();
        for event in &events {
            let connection = &mut connections[event.token().0];
            let class = &mut measured[connection.class];
            if connection.awaited == 0 {
                continue;
            }
            connection.write()?;
            let tally = connection.read(&mut class.error)?;
            if tally.replies == 0 {
                continue;
            }
            now = Instant::now();
            quiet_since = now;
            if measuring_since.is_some() && !draining {
                class.latencies.record(now - connection.sent_at, tally.replies);
                class.tally.replies += tally.replies;
                class.tally.zeros += tally.zeros;
            }
            class.tally.errors += tally.errors;
            if connection.awaited == 0 {
                if draining {
                    idle += 1;
                } else {
                    connection.begin(pipelines[connection.class], now)?;
                }
            }
        }
        if now - quiet_since > SILENCE_MAX {
            bail!("the server answered nothing for {} s", SILENCE_MAX.as_secs());
        }
        if draining {
            if idle == connections.len() {
                return Ok(measured);
            }
            continue;
        }
        let Some(since) = measuring_since else {
            if now >= warm_until {
                measuring_since = Some(now);
                processor_before = processor_seconds(targets);
            }
            continue;
        };
        draining = match until {
            Until::Elapsed(limit) => now - since >= limit,
            Until::Replies(limit) => measured.iter().map(|class| class.tally.replies).sum::<u64>() >= limit,
        };
        if draining {
            let are_known = targets.iter().all(|target| target.process.is_some());
            let taken = processor_seconds(targets) - processor_before;
            for class in &mut measured {
                class.elapsed = now - since;
                class.processor_seconds = are_known.then_some(taken);
            }
        }
    }
}

fn connect(targets: &[Target], classes: Vec<Class>, poll: &Poll) -> Result<Vec<Connection>> {
    let mut addresses = Vec::new();
    for target in targets {
        let Target { host, port, .. } = target;
        let address = (host.as_str(), *port)
            .to_socket_addrs()
            .with_context(|| format!("{host}:{port} is no address"))?
            .next()
            .with_context(|| format!("{host}:{port} is no address"))?;
        addresses.push((target, address));
    }
    if addresses.is_empty() {
        bail!("there is no server to connect to");
    }
    let mut connections = Vec::new();
    for (class, members) in classes.into_iter().enumerate() {
        for template in members.templates {
            let (target, address) = addresses[connections.len() % addresses.len()];
            let mut stream = std::net::TcpStream::connect(address).with_context(|| {
                let Target { host, port, .. } = target;
                format!("could not connect to {host}:{port}: is a server running there?")
            })?;
            stream.set_nodelay(true)?;
            if let Some(password) = &target.password {
                stream.write_all(
                    format!("*2\r\n$4\r\nAUTH\r\n${}\r\n{password}\r\n", password.len()).as_bytes(),
                )?;
                let mut reply = [0; 256];
                let length = stream.read(&mut reply)?;
                if !reply.starts_with(b"+OK") {
                    bail!("AUTH was refused: {}", String::from_utf8_lossy(&reply[..length]).trim_end());
                }
            }
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let token = Token(connections.len());
            poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
            connections.push(Connection {
                stream,
                class,
                template,
                written: 0,
                awaited: 0,
                sent_at: Instant::now(),
                input: vec![0; 1 << 14],
                filled: 0,
                scanner: Scanner::default(),
            });
        }
    }
    Ok(connections)
}

impl Connection {
    /// Sends the next pipeline.
    fn begin(&mut self, pipeline: u64, now: Instant) -> Result<()> {
        self.template.refill();
        self.written = 0;
        self.awaited = pipeline;
        self.sent_at = now;
        self.write()
    }

    fn write(&mut self) -> Result<()> {
        while self.written < self.template.bytes().len() {
            match self.stream.write(&self.template.bytes()[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the server closed a connection"),
            }
        }
        Ok(())
    }

    fn read(&mut self, error: &mut Option<String>) -> Result<Tally> {
        let mut total = Tally::default();
        loop {
            if self.filled == self.input.len() {
                self.input.resize(self.input.len() * 2, 0);
            }
            let room = self.input.len() - self.filled;
            let length = match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(total),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("the server closed a connection"),
            };
            self.filled += length;
            let (used, tally) = self.scanner.scan(&self.input[..self.filled], error)?;
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
            if tally.replies > self.awaited {
                bail!("the server sent more replies than it got requests");
            }
            self.awaited -= tally.replies;
            total.replies += tally.replies;
            total.errors += tally.errors;
            total.zeros += tally.zeros;
            // A short read drained the socket: what comes later raises a new event.
            if length < room {
                return Ok(total);
            }
        }
    }
}
