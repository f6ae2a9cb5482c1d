//! `kill -9` at random instants under load: nothing that was acknowledged is lost, nothing is applied twice,
//! and no transaction is half there. A killed process loses nothing that it has written, so every
//! `appendfsync` must hold.
//!
//! `ORDO_ROUNDS` sets the number of rounds, `ORDO_SEED` replays the instants and the load (not the machine's
//! timing).

use crate::nodes::{PATIENCE, Server};
use server::client::{Answer, Client, ClientError, put_command};
use std::sync::atomic::{AtomicU64, Ordering};

const CLIENTS: usize = 4;
const ACCOUNTS: u64 = 8;
const MONEY: i64 = 1_000;

/// Moves money between two accounts, and notes it in a third record.
const TRANSFER: &str = "local from = tonumber(redis.call('GET', KEYS[1])) local amount = tonumber(ARGV[1]) \
     if from < amount then return redis.error_reply('POOR') end \
     redis.call('DECRBY', KEYS[1], amount) redis.call('INCRBY', KEYS[2], amount) return redis.call('INCR', \
     KEYS[3])";

fn text(text: &str) -> Answer {
    Answer::Text(text.to_owned())
}

/// The text at a key, or what else is answered.
fn get(client: &mut Client, key: &str) -> Result<String, ClientError> {
    Ok(match client.call(&["GET", key])? {
        Answer::Text(text) => text,
        other => format!("{other:?}"),
    })
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
    address: &str,
    me: usize,
    mut random: u64,
    known: &mut Known,
    answered: &AtomicU64,
) -> Result<(), ClientError> {
    let mut client = Client::open(address, PATIENCE)?;
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
                    let number = number.to_string();
                    let mut bytes = Vec::new();
                    for words in [&["MULTI"][..], &["INCR", &counter], &["SET", &record, &number], &["EXEC"]]
                    {
                        put_command(&mut bytes, words);
                    }
                    client.send(&bytes)?;
                }
                for number in first..first + count {
                    for expected in ["OK", "QUEUED", "QUEUED"] {
                        assert_eq!(client.answer()?, text(expected));
                    }
                    let expected = Answer::List(vec![text(&number.to_string()), text("OK")]);
                    assert_eq!(client.answer()?, expected, "{counter}");
                    known.counter = number;
                    known.unanswered -= 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Checks what a restarted server holds, and brings what is known up to date.
fn check(server: &Server, known: &mut [Known]) -> Result<(), ClientError> {
    let mut client = server.client();
    for (me, known) in known.iter_mut().enumerate() {
        let found = get(&mut client, &format!("counter:{me}"))?;
        let found: u64 = found.parse().unwrap_or(0);
        assert!(
            (known.counter..=known.counter + known.unanswered).contains(&found),
            "counter {me} is {found}: {} was acknowledged, {} more were sent",
            known.counter,
            known.unanswered
        );
        *known = Known { counter: found, unanswered: 0 };
        for number in found.saturating_sub(63).max(1)..=found {
            let record = get(&mut client, &format!("record:{me}:{}", number % 64))?;
            assert_eq!(
                record,
                number.to_string(),
                "record {number} of client {me}: a block is whole or not there"
            );
        }
    }
    let mut total = 0;
    for account in 0..ACCOUNTS {
        let money = get(&mut client, &format!("account:{account}"))?;
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
    let mut random = seed;
    let mut known: Vec<Known> = (0..CLIENTS).map(|_| Known::default()).collect();

    let mut server = Server::new();
    server.start(&["--appendfsync", "always"]);
    let mut client = server.client();
    for account in 0..ACCOUNTS {
        let reply = client.call(&["SET", &format!("account:{account}"), &MONEY.to_string()]);
        assert_eq!(reply.expect("a reply"), text("OK"));
    }
    server.kill();

    let mut acknowledged = 0;
    for round in 0..rounds {
        server.start(&["--appendfsync", ["always", "everysec", "no"][round as usize % 3]]);
        check(&server, &mut known).unwrap_or_else(|error| panic!("round {round}: {error}"));
        // The instant: after so many acknowledgements, wherever the others are then.
        let until = draw(&mut random) % 200;
        let answered = AtomicU64::new(0);
        let alive = AtomicU64::new(CLIENTS as u64);
        let address = server.address.clone();
        std::thread::scope(|scope| {
            for (me, known) in known.iter_mut().enumerate() {
                let (address, answered, alive) = (&address, &answered, &alive);
                let random = draw(&mut random);
                scope.spawn(move || {
                    let ended = Ended(alive);
                    work(address, me, random, known, answered).expect_err("the server dies");
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
    server.start(&["--appendfsync", "always"]);
    check(&server, &mut known).expect("the last check");
    server.kill();
    assert!(acknowledged > 0, "nothing was acknowledged, so nothing was tested");
    println!("{rounds} kills, {acknowledged} acknowledged blocks");
}
