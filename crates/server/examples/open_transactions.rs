//! How many transactions a second clients get done that hold them open, or that send scripts instead:
//! `cargo run --release -p ordo-server --example open_transactions -- KIND SECONDS CLIENTS ADDRESS...`
//! The kind is `open` or `script`.
//!
//! Each transaction reads two of 10,000 accounts and writes both. `open` sends its four commands between
//! ORDO.BEGIN and ORDO.COMMIT, each of the six when the one before it is answered; `script` sends one EVAL
//! that calls the four.

#![allow(clippy::disallowed_methods, reason = "it measures time, and for how long")]

use ordo_server::client::{Answer, Client, ClientError};
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const ACCOUNTS: u64 = 10_000;
const PATIENCE: Duration = Duration::from_secs(60);
const ATTEMPTS: u32 = 100;
const SCRIPT: &str = "local a, b = redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]) \
     redis.call('SET', KEYS[1], a - 1) redis.call('SET', KEYS[2], b + 1) return 1";

fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Two different accounts.
fn accounts(random: &mut u64) -> [String; 2] {
    let from = draw(random) % ACCOUNTS;
    let to = (from + 1 + draw(random) % (ACCOUNTS - 1)) % ACCOUNTS;
    [from, to].map(|account| format!("account:{account}"))
}

fn number(answer: &Answer) -> i64 {
    match answer {
        Answer::Text(text) => text.parse().unwrap_or(0),
        _ => 0,
    }
}

fn transfer(client: &mut Client, is_open: bool, [from, to]: &[String; 2]) -> Result<(), ClientError> {
    if !is_open {
        return client.call(&["EVAL", SCRIPT, "2", from, to])?.text("EVAL").map(|_| ());
    }
    client.transact(ATTEMPTS, |transaction| {
        let a = number(&transaction.call(&["GET", from])?);
        let b = number(&transaction.call(&["GET", to])?);
        transaction.call(&["SET", from, &(a - 1).to_string()])?;
        transaction.call(&["SET", to, &(b + 1).to_string()])?;
        Ok(())
    })
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, seconds, clients, addresses @ ..] = &words[..] else {
        return Err("open|script SECONDS CLIENTS ADDRESS...".into());
    };
    let (is_open, seconds, clients) = (kind == "open", seconds.parse()?, clients.parse::<usize>()?);
    let first = addresses.first().ok_or("an address, as in 127.0.0.1:6379")?;
    let mut client = Client::open(first, PATIENCE)?;
    let set = |account| ["SET".to_owned(), format!("account:{account}"), "1000".to_owned()].to_vec();
    client.pipeline::<ClientError>((0..ACCOUNTS).map(set), 100, |answer| answer.text("SET").map(|_| ()))?;
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let work = |me: usize| -> Result<(), ClientError> {
        let mut client = Client::open(&addresses[me % addresses.len()], PATIENCE)?;
        let mut random = me as u64;
        while !stop.load(Ordering::Relaxed) {
            transfer(&mut client, is_open, &accounts(&mut random))?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    };
    let began = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|me| {
                let work = &work;
                scope.spawn(move || work(me))
            })
            .collect();
        std::thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let per_second = done.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    println!("{kind}: {per_second:.0} transactions a second by {clients} clients");
    Ok(())
}
