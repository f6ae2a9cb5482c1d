//! What hostile clients send.

use super::PATIENCE;
use super::words::Words;
use crate::redis::template::SplitMix;
use anyhow::{Context, Result};
use server::client::{Answer, Client, put_command};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A server that takes nothing for so long waits for its client to read.
const FULL_AFTER: Duration = Duration::from_millis(200);
/// Connections that an attacker leaves open and does not read.
const UNREAD_MAX: usize = 25;
/// Problems of one attacker that are kept.
const PROBLEMS_MAX: usize = 10;

/// A command that the server knows.
pub(super) struct Known {
    pub(super) name: String,
    pub(super) arity: i64,
    pub(super) first_key: i64,
}

/// What all attackers share.
pub(super) struct Shared {
    pub(super) known: Vec<Known>,
    addresses: Vec<SocketAddr>,
    commands_max: u64,
    commands: AtomicU64,
    connections: AtomicU64,
    unread: AtomicU64,
    sent_bytes: AtomicU64,
    received_bytes: AtomicU64,
}

/// What was sent.
pub(super) struct Counts {
    pub(super) commands: u64,
    pub(super) connections: u64,
    pub(super) unread: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

/// Commands that end the run, or that no bound of time can hold for: they stop the server, its clients or its
/// cluster on purpose.
const LEFT_OUT: &[&str] = &[
    "shutdown",
    "ordo.cluster",
    "failover",
    "debug",
    "wait",
    "waitaof",
    "auth",
    "hello",
    // They wait as long as they say: short waits are among the well-formed commands.
    "blpop",
    "brpop",
    "blmove",
    "brpoplpush",
    "blmpop",
    "bzpopmin",
    "bzpopmax",
    "bzmpop",
];

impl Shared {
    /// Asks a server what commands it knows.
    pub(super) fn new(commands_max: u64, addresses: &[SocketAddr]) -> Result<Shared> {
        let address = addresses.first().context("there is a node")?;
        let mut client = Client::open(&address.to_string(), PATIENCE)?;
        let Answer::List(all) = client.call(&["COMMAND"])? else {
            anyhow::bail!("COMMAND did not answer with a list");
        };
        let known = all.into_iter().filter_map(|command| {
            let Answer::List(fields) = command else {
                return None;
            };
            let number = |place: usize| match fields.get(place) {
                Some(Answer::Text(text)) => text.parse::<i64>().ok(),
                _ => None,
            };
            let Some(Answer::Text(name)) = fields.first() else {
                return None;
            };
            let known = Known { name: name.clone(), arity: number(1)?, first_key: number(3)? };
            (!LEFT_OUT.contains(&known.name.as_str())).then_some(known)
        });
        let known: Vec<Known> = known.collect();
        anyhow::ensure!(known.len() > 100, "COMMAND told of {} commands only", known.len());
        Ok(Shared {
            known,
            addresses: addresses.to_vec(),
            commands_max,
            commands: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
        })
    }

    pub(super) fn counts(&self) -> Counts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            commands: load(&self.commands),
            connections: load(&self.connections),
            unread: load(&self.unread),
            sent_bytes: load(&self.sent_bytes),
            received_bytes: load(&self.received_bytes),
        }
    }
}

/// What a connection does with its replies.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It reads them all.
    Reads,
    /// It is left open, and reads nothing.
    Leaves,
    /// It ends at once.
    Drops,
}

/// A hostile client: makes one connection after the other.
pub(super) struct Attacker<'a> {
    shared: &'a Shared,
    words: Words<'a>,
    random: SplitMix,
    unread: VecDeque<TcpStream>,
    problems: Vec<String>,
}

impl<'a> Attacker<'a> {
    pub(super) fn new(shared: &'a Shared, seed: u64, number: u64) -> Attacker<'a> {
        let mut random = SplitMix::new(seed ^ txn::hash::mix(number + 1));
        Attacker {
            shared,
            words: Words::new(&shared.known, random.next()),
            random,
            unread: VecDeque::new(),
            problems: Vec::new(),
        }
    }

    /// Attacks until all commands are sent. Returns what must not be.
    pub(super) fn run(mut self, over: &AtomicBool) -> Vec<String> {
        while !over.load(Ordering::Relaxed)
            && self.problems.len() < PROBLEMS_MAX
            && self.shared.commands.load(Ordering::Relaxed) < self.shared.commands_max
        {
            let (bytes, commands, manner) = self.draw();
            self.shared.commands.fetch_add(commands, Ordering::Relaxed);
            if let Err(problem) = self.connect(&bytes, manner) {
                let head = &bytes[..bytes.len().min(300)];
                let head = head.escape_ascii();
                self.problems.push(format!("a hostile client: {problem}, after {head}"));
            }
        }
        self.problems
    }

    /// What the next connection sends, how many commands that are, and what it does then.
    fn draw(&mut self) -> (Vec<u8>, u64, Manner) {
        let mut bytes = Vec::new();
        let mut commands = 0;
        let mut manner = match self.random.below(20) {
            0 => Manner::Leaves,
            1 => Manner::Drops,
            _ => Manner::Reads,
        };
        match self.random.below(20) {
            // The same long reply, thousands of times.
            0 => {
                let command = self.words.long_reply();
                commands = 10 + self.random.below(2000);
                for _ in 0..commands {
                    put(&mut bytes, &command);
                }
                if self.random.below(2) == 0 {
                    manner = Manner::Leaves;
                }
            }
            // Listeners that do not read.
            1 => {
                for _ in 0..1 + self.random.below(3) {
                    let command = self.words.listen();
                    put(&mut bytes, &command);
                    commands += 1;
                }
                manner = Manner::Leaves;
            }
            // What is not finished, or is no protocol at all.
            2 => {
                for _ in 0..self.random.below(20) {
                    let command = self.words.command();
                    put(&mut bytes, &command);
                    commands += 1;
                }
                bytes.extend(self.words.fragment());
                commands += 1;
            }
            // Blocks.
            3..=5 => {
                for _ in 0..1 + self.random.below(10) {
                    put(&mut bytes, &["MULTI".to_owned()]);
                    for _ in 0..self.random.below(50) {
                        let command = self.words.any();
                        put(&mut bytes, &command);
                        commands += 1;
                    }
                    let end = ["EXEC", "EXEC", "EXEC", "DISCARD", "MULTI"];
                    let end = end[self.random.below(5) as usize];
                    put(&mut bytes, &[end.to_owned()]);
                    commands += 2;
                }
            }
            _ => {
                for _ in 0..1 + self.random.below(500) {
                    let command = self.words.any();
                    put(&mut bytes, &command);
                    commands += 1;
                }
            }
        }
        (bytes, commands, manner)
    }

    /// Sends these bytes over a connection of their own.
    fn connect(&mut self, bytes: &[u8], manner: Manner) -> Result<(), String> {
        let place = self.random.below(self.shared.addresses.len() as u64);
        let address = self.shared.addresses[place as usize];
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)
            .map_err(|error| format!("it could not connect: {error}"))?;
        let timeouts =
            stream.set_write_timeout(Some(FULL_AFTER)).and_then(|()| stream.set_read_timeout(Some(PATIENCE)));
        timeouts.map_err(|error| format!("a timeout: {error}"))?;
        self.shared.connections.fetch_add(1, Ordering::Relaxed);
        let mut rest = bytes;
        let sent_since = Instant::now();
        while !rest.is_empty() {
            // Now and then in pieces that no frame knows of.
            let piece = match self.random.below(4) {
                0 => 1 + self.random.below(5000) as usize,
                _ => rest.len(),
            };
            match stream.write(&rest[..piece.min(rest.len())]) {
                Ok(count) => {
                    self.shared.sent_bytes.fetch_add(count as u64, Ordering::Relaxed);
                    rest = &rest[count..];
                }
                Err(error) if is_timeout(&error) && manner == Manner::Reads => {
                    let got = self.read_some(&mut stream);
                    if got.map_err(|error| format!("it was cut off: {error}"))? == 0 {
                        return Ok(());
                    }
                }
                // The server waits for this client, or has closed the connection.
                Err(_) => break,
            }
            if sent_since.elapsed() > 3 * PATIENCE {
                return Err("the server took its commands for a minute".to_owned());
            }
        }
        match manner {
            Manner::Drops => {}
            Manner::Leaves => {
                self.shared.unread.fetch_add(1, Ordering::Relaxed);
                self.unread.push_back(stream);
                if self.unread.len() > UNREAD_MAX {
                    self.unread.pop_front();
                }
            }
            Manner::Reads => {
                // The server answers what came, and closes.
                if stream.shutdown(Shutdown::Write).is_err() {
                    return Ok(());
                }
                loop {
                    match self.read_some(&mut stream) {
                        Ok(0) => break,
                        Ok(_) => {}
                        Err(error) if is_timeout(&error) => {
                            let line = line_of(address, &stream);
                            return Err(format!("it was neither answered nor closed: {line}"));
                        }
                        Err(_) => break,
                    }
                }
            }
        }
        Ok(())
    }

    fn read_some(&self, stream: &mut TcpStream) -> std::io::Result<usize> {
        let mut room = [0; 64 << 10];
        let count = stream.read(&mut room)?;
        self.shared.received_bytes.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// What the server says of a connection.
fn line_of(address: SocketAddr, stream: &TcpStream) -> String {
    let listed =
        Client::open(&address.to_string(), PATIENCE).and_then(|mut client| client.call(&["CLIENT", "LIST"]));
    let (Ok(Answer::Text(lines)), Ok(local)) = (listed, stream.local_addr()) else {
        return "CLIENT LIST was not answered either".to_owned();
    };
    let is_it = format!(" addr={local} ");
    let line = lines.lines().find(|line| line.contains(&is_it));
    line.unwrap_or("CLIENT LIST does not know it").to_owned()
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn put(bytes: &mut Vec<u8>, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    put_command(bytes, &words);
}
