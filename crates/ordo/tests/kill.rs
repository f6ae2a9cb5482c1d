//! `kill -9` at random instants under load: nothing that was acknowledged is lost, nothing is applied twice,
//! and no transaction is half there. A killed process loses nothing that it has written, so every
//! `appendfsync` must hold.
//!
//! `ORDO_ROUNDS` sets the number of rounds, `ORDO_SEED` replays the instants and the load (not the machine's
//! timing).

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const CLIENTS: usize = 4;
const ACCOUNTS: u64 = 8;
const MONEY: i64 = 1_000;

/// Moves money between two accounts, and notes it in a third record.
const TRANSFER: &str = "local from = tonumber(redis.call('GET', KEYS[1])) local amount = tonumber(ARGV[1]) \
     if from < amount then return redis.error_reply('POOR') end \
     redis.call('DECRBY', KEYS[1], amount) redis.call('INCRBY', KEYS[2], amount) return redis.call('INCR', \
     KEYS[3])";

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// Starts a server and waits until it says that it serves. Nobody reads what it says later: it must not
    /// mind.
    fn start(dir: &Path, appendfsync: &str) -> Server {
        let mut child = Command::new(env!("CARGO_BIN_EXE_ordo"))
            .args(["serve", "--port", "0", "--bind", "127.0.0.1", "--appendfsync", appendfsync, "--dir"])
            .arg(dir)
            .env("NO_COLOR", "1")
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut said = String::new();
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        for line in &mut lines {
            let line = line.expect("text");
            said.push_str(&line);
            said.push('\n');
            if let Some((_, rest)) = line.split_once("serving 127.0.0.1:") {
                let digits = rest.split(',').next().unwrap_or_default();
                if let Ok(port) = digits.parse() {
                    return Server { child, port };
                }
            }
        }
        let _ = child.kill();
        let _ = child.wait();
        panic!("the server did not start:\n{said}");
    }
    fn kill(mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("it is gone");
    }
}

/// A connection that speaks just enough RESP2.
struct Client {
    reader: BufReader<TcpStream>,
}

impl Client {
    fn connect(port: u16) -> std::io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Client { reader: BufReader::new(stream) })
    }
    fn send(&mut self, words: &[&str]) -> std::io::Result<()> {
        let mut frame = format!("*{}\r\n", words.len());
        for word in words {
            frame.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.reader.get_mut().write_all(frame.as_bytes())
    }
    /// The first line of a reply; the bytes of a bulk string; `(nil)`.
    fn reply(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.trim_start_matches([':', '+']).to_owned());
        };
        let Ok(length) = length.parse::<usize>() else {
            return Ok("(nil)".to_owned());
        };
        let mut bytes = vec![0; length + 2];
        self.reader.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
    fn call(&mut self, words: &[&str]) -> std::io::Result<String> {
        self.send(words)?;
        self.reply()
    }
}

/// What one client knows was acknowledged.
#[derive(Default)]
struct Known {
    /// The counter's last acknowledged value.
    counter: u64,
    /// How many increments were sent and not answered when the server died: each may be there or not.
    unanswered: u64,
}

/// Counts a client's end, a panic included.
struct Ended<'a>(&'a AtomicU64);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// SplitMix64.
fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut value = *state;
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Works until the connection breaks.
fn work(
    port: u16,
    me: usize,
    mut random: u64,
    known: &mut Known,
    answered: &AtomicU64,
) -> std::io::Result<()> {
    let mut client = Client::connect(port)?;
    let counter = format!("counter:{me}");
    loop {
        match draw(&mut random) % 8 {
            0 => {
                let (from, to) = (draw(&mut random) % ACCOUNTS, draw(&mut random) % ACCOUNTS);
                let (from, to) = (format!("account:{from}"), format!("account:{to}"));
                let amount = (draw(&mut random) % 50).to_string();
                client.call(&["EVAL", TRANSFER, "3", &from, &to, "transfers", &amount])?;
            }
            1 if draw(&mut random).is_multiple_of(16) => {
                client.call(&["BGSAVE"])?;
            }
            _ => {
                // A pipeline of blocks: each raises the counter and writes a record with the same number.
                let first = known.counter + 1;
                let count = 1 + draw(&mut random) % 4;
                known.unanswered = count;
                for number in first..first + count {
                    let record = format!("record:{me}:{}", number % 64);
                    client.send(&["MULTI"])?;
                    client.send(&["INCR", &counter])?;
                    client.send(&["SET", &record, &number.to_string()])?;
                    client.send(&["EXEC"])?;
                }
                for number in first..first + count {
                    for expected in ["OK", "QUEUED", "QUEUED", "*2"] {
                        assert_eq!(client.reply()?, expected);
                    }
                    assert_eq!(client.reply()?, number.to_string(), "{counter}");
                    assert_eq!(client.reply()?, "OK");
                    known.counter = number;
                    known.unanswered -= 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Checks what a restarted server holds, and brings what is known up to date.
fn check(port: u16, known: &mut [Known]) -> std::io::Result<()> {
    let mut client = Client::connect(port)?;
    for (me, known) in known.iter_mut().enumerate() {
        let found = client.call(&["GET", &format!("counter:{me}")])?;
        let found: u64 = found.parse().unwrap_or(0);
        assert!(
            (known.counter..=known.counter + known.unanswered).contains(&found),
            "counter {me} is {found}: {} was acknowledged, {} more were sent",
            known.counter,
            known.unanswered
        );
        *known = Known { counter: found, unanswered: 0 };
        for number in found.saturating_sub(63).max(1)..=found {
            let record = client.call(&["GET", &format!("record:{me}:{}", number % 64)])?;
            assert_eq!(
                record,
                number.to_string(),
                "record {number} of client {me}: a block is whole or not there"
            );
        }
    }
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let money = client.call(&["GET", &format!("account:{account}")])?;
        total += money.parse::<i64>().expect("money");
    }
    assert_eq!(total, ACCOUNTS as i64 * MONEY, "a transfer is whole or not there");
    Ok(())
}

#[test]
fn a_killed_server_has_everything_that_it_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let rounds = number("ORDO_ROUNDS").unwrap_or(8);
    let seed = number("ORDO_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("replay with ORDO_SEED={seed} ORDO_ROUNDS={rounds}");
    let directory = tempfile::tempdir().expect("a directory");
    let mut random = seed;
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();

    let server = Server::start(directory.path(), "always");
    let mut client = Client::connect(server.port).expect("a connection");
    for account in 0..ACCOUNTS {
        let reply = client.call(&["SET", &format!("account:{account}"), &MONEY.to_string()]);
        assert_eq!(reply.expect("a reply"), "OK");
    }
    server.kill();

    let mut acknowledged = 0;
    for round in 0..rounds {
        let server = Server::start(directory.path(), ["always", "everysec", "no"][round as usize % 3]);
        check(server.port, &mut known).unwrap_or_else(|error| panic!("round {round}: {error}"));
        // The instant: after so many acknowledgements, wherever the others are then.
        let until = draw(&mut random) % 200;
        let answered = AtomicU64::new(0);
        let alive = AtomicU64::new(CLIENTS as u64);
        std::thread::scope(|scope| {
            for (me, known) in known.iter_mut().enumerate() {
                let (port, answered, alive) = (server.port, &answered, &alive);
                let random = draw(&mut random);
                scope.spawn(move || {
                    let ended = Ended(alive);
                    work(port, me, random, known, answered).expect_err("the server dies");
                    drop(ended);
                });
            }
            while answered.load(Ordering::Relaxed) < until && alive.load(Ordering::Relaxed) > 0 {
                std::thread::yield_now();
            }
            server.kill();
        });
        acknowledged += answered.into_inner();
    }
    let server = Server::start(directory.path(), "always");
    check(server.port, &mut known).expect("the last check");
    server.kill();
    assert!(acknowledged > 0, "nothing was acknowledged, so nothing was tested");
    println!("{rounds} kills, {acknowledged} acknowledged blocks");
}
