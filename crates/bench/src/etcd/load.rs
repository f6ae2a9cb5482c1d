//! Clients of etcd in a closed loop, driven by one thread, as `redis::load` drives those of a Redis server.

use super::http2::{Channel, Ended, put_bytes_field};
use crate::redis::load::Measured;
use crate::redis::template::SplitMix;
use anyhow::{Context, Result, bail};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const PUT: &str = "/etcdserverpb.KV/Put";
/// Members that answer nothing for this long are taken for dead.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Digits of a key behind its `key:`, and bytes of a value: both have 16 bytes, as for Redis.
const DIGITS: usize = 12;
const VALUE: &[u8] = b"0123456789abcdef";

/// What to do.
pub struct Puts<'a> {
    /// The members; connections are dealt out to them in turn.
    pub members: &'a [SocketAddr],
    /// Calls that are under way at all times.
    pub clients: usize,
    /// Connections that they share.
    pub connections: usize,
    /// Keys are drawn from so many.
    pub keys: u64,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// The measured time.
    pub duration: Duration,
    /// The seed of the keys.
    pub seed: u64,
}

struct Connection {
    stream: TcpStream,
    channel: Channel,
    written: usize,
    input: Vec<u8>,
    filled: usize,
    /// Calls under way, and when they were sent.
    calls: Vec<(u32, Instant)>,
    /// Calls that wait for the server's window.
    waiting: usize,
}

/// Runs the load and measures it.
pub fn run(puts: &Puts<'_>) -> Result<Measured> {
    if puts.members.is_empty() || puts.connections == 0 || puts.clients < puts.connections {
        bail!("every connection needs a client, and a member");
    }
    let mut poll = Poll::new()?;
    let mut connections = Vec::new();
    for index in 0..puts.connections {
        let address = puts.members[index % puts.members.len()];
        connections.push(connect(address, Token(index), &poll)?);
    }
    let mut message = message();
    let mut random = SplitMix::new(puts.seed);
    let mut events = Events::with_capacity(1024);
    let mut measured = Measured::default();
    let mut ended: Vec<Ended> = Vec::new();
    let started = Instant::now();
    for index in 0..puts.clients {
        let connection = &mut connections[index % puts.connections];
        connection.waiting += 1;
    }
    for connection in &mut connections {
        connection.go_on(started, &mut message, &mut random, puts.keys)?;
    }
    let mut quiet_since = started;
    loop {
        match poll.poll(&mut events, Some(Duration::from_millis(200))) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).context("waiting for etcd failed"),
        }
        let mut now = Instant::now();
        let draining = now - started >= puts.warm_up + puts.duration;
        for event in &events {
            let connection = &mut connections[event.token().0];
            connection.read(&mut ended)?;
            if !ended.is_empty() {
                now = Instant::now();
                quiet_since = now;
            }
            for Ended { stream, succeeded } in ended.drain(..) {
                let call = connection.calls.iter().position(|&(call, _)| call == stream);
                let call = call.with_context(|| format!("etcd ended call {stream}, which nobody made"))?;
                let (_, sent_at) = connection.calls.swap_remove(call);
                if !succeeded {
                    bail!("etcd refused a put; the output of its members may tell why");
                }
                if now - started >= puts.warm_up && !draining {
                    measured.latencies.record(now - sent_at, 1);
                    measured.tally.replies += 1;
                }
                connection.waiting += usize::from(!draining);
            }
            connection.go_on(now, &mut message, &mut random, puts.keys)?;
        }
        if now - quiet_since > SILENCE_MAX {
            bail!("etcd answered nothing for {} s", SILENCE_MAX.as_secs());
        }
        if draining {
            measured.elapsed = puts.duration;
            return Ok(measured);
        }
    }
}

fn connect(address: SocketAddr, token: Token, poll: &Poll) -> Result<Connection> {
    let stream = std::net::TcpStream::connect(address)
        .with_context(|| format!("could not connect to etcd at {address}"))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let mut stream = TcpStream::from_std(stream);
    poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
    Ok(Connection {
        stream,
        channel: Channel::new(PUT, &address.to_string()),
        written: 0,
        input: vec![0; 1 << 15],
        filled: 0,
        calls: Vec::new(),
        waiting: 0,
    })
}

/// A `PutRequest` (key is field 1, value is field 2) whose key's digits are patched.
fn message() -> Vec<u8> {
    let mut message = Vec::new();
    put_bytes_field(&mut message, 1, format!("key:{:0DIGITS$}", 0).as_bytes());
    put_bytes_field(&mut message, 2, VALUE);
    message
}

fn patch(message: &mut [u8], mut number: u64) {
    // Behind the field's two bytes and `key:`.
    for digit in message[6..6 + DIGITS].iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl Connection {
    /// Sends what is due.
    fn go_on(&mut self, now: Instant, message: &mut [u8], random: &mut SplitMix, keys: u64) -> Result<()> {
        while self.waiting > 0 {
            patch(message, random.below(keys));
            let Some(stream) = self.channel.call(message)? else {
                break;
            };
            self.calls.push((stream, now));
            self.waiting -= 1;
        }
        while self.written < self.channel.output.len() {
            match self.stream.write(&self.channel.output[self.written..]) {
                Ok(written) => self.written += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("etcd closed a connection"),
            }
        }
        self.channel.output.clear();
        self.written = 0;
        Ok(())
    }

    fn read(&mut self, ended: &mut Vec<Ended>) -> Result<()> {
        loop {
            let room = self.input.len() - self.filled;
            let length = match self.stream.read(&mut self.input[self.filled..]) {
                Ok(0) => bail!("etcd closed a connection"),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("etcd closed a connection"),
            };
            self.filled += length;
            let used = self.channel.receive(&self.input[..self.filled], ended)?;
            self.input.copy_within(used..self.filled, 0);
            self.filled -= used;
            // A short read drained the socket: what comes later raises a new event.
            if length < room {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_a_key_and_a_value_of_sixteen_bytes() {
        let mut message = message();
        patch(&mut message, 1_234);
        assert_eq!(message, b"\x0a\x10key:000000001234\x12\x100123456789abcdef");
    }
}
