//! Entries that go at `maxmemory`.

#![allow(clippy::disallowed_methods, reason = "clocks belong to the server's tests, too")]

mod support;

use ordo_server::memory::Counting;
use std::alloc::System;
use std::time::{Duration, Instant};
use support::{Client, TestServer};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// Lets so many bytes be used beside what is used now.
fn limit(client: &mut Client, more: u64) -> u64 {
    let limit = client.info_number("used_memory") + more;
    assert_eq!(client.line(&format!("CONFIG SET maxmemory {limit}")), "OK");
    limit
}

/// Waits until no more than this is used.
fn wait_until_below(client: &mut Client, bytes: u64) {
    let start = Instant::now();
    while client.info_number("used_memory") > bytes {
        let waited = start.elapsed();
        assert!(waited < PATIENCE, "more than {bytes} bytes are used");
    }
}

/// Lets half a second go by, in which whatever goes of itself has gone.
fn settle(client: &mut Client) {
    let settled = Instant::now() + Duration::from_millis(500);
    while Instant::now() < settled {
        client.line("PING");
    }
}

const MB: u64 = 1 << 20;
/// Tombstones make room when they are collected, and a busy machine collects late.
const PATIENCE: Duration = Duration::from_secs(400);

// One test, because what is used is that of the process.
#[test]
fn what_there_is_no_room_for_goes() {
    let (server, _dir) = TestServer::start(&[("maxmemory-policy", "allkeys-lru")]);
    let mut client = server.client();
    let value = "v".repeat(10_000);

    // Least recently used: what is read stays, what is not goes, and no write is refused.
    let full = limit(&mut client, 20 * MB);
    for number in 0..100 {
        assert_eq!(client.line(&format!("SET hot:{number} {value}")), "OK");
    }
    for number in 0..10_000 {
        let reply = client.line(&format!("SET cold:{number} {value}"));
        assert_eq!(reply, "OK", "write {number}");
        if number % 20 == 0 {
            for hot in 0..100 {
                client.line(&format!("GET hot:{hot}"));
            }
        }
    }
    // Ten thousand tombstones stay for a while.
    wait_until_below(&mut client, full + 4 * MB);
    let stayed = (0..100).filter(|hot| client.line(&format!("EXISTS hot:{hot}")) == "1").count();
    // One in five would have stayed by chance.
    assert!(stayed >= 90, "{stayed} of 100 keys in use are there");
    let keys: usize = client.line("DBSIZE").parse().expect("a number");
    assert!((1000..2100).contains(&keys), "{keys} keys");
    // They are counted a moment after they have gone.
    let start = Instant::now();
    while client.info_number("evicted_keys") < 10_100 - keys as u64 {
        assert!(start.elapsed() < PATIENCE, "{keys} left, more counted");
    }

    // What has no time to live stays under a volatile policy; when nothing else is left, writes are refused
    // until there is room.
    client.line("FLUSHALL");
    client.line("CONFIG SET maxmemory-policy volatile-ttl");
    for number in 0..500 {
        // What was flushed goes within a moment.
        client.wait_until(&format!("SET kept:{number} {value}"), |reply| reply == "OK");
    }
    let mut refused = 0;
    for number in 0..8000 {
        let word = ["", " EX 1000", " EX 2000"][number % 3];
        let reply = client.line(&format!("SET some:{number} {value}{word}"));
        refused += usize::from(reply.starts_with("-OOM"));
    }
    assert!(refused > 1000, "{refused} refused");
    assert_eq!(client.line("EXISTS some:0 kept:0 kept:499"), "3");
    assert_eq!(client.line("EXISTS some:1"), "0", "it had a time to live");
    assert_eq!(client.line("DEL some:0"), "1", "deletes are taken");
    client.line("FLUSHALL");
    client.wait_until("SET x y", |reply| reply == "OK");

    // Many at once, small ones. Their tombstones stay for a while, and do not count: not everything goes.
    client.line("CONFIG SET maxmemory 0 maxmemory-policy allkeys-random notify-keyspace-events Ee");
    client.line("FLUSHALL");
    for number in 0..20_000 {
        client.send(&["SET", &format!("small:{number}"), "x"]);
    }
    for _ in 0..20_000 {
        client.read();
    }
    settle(&mut client);
    let before = client.info_number("evicted_keys");
    // Buffers that the writes have left behind may go later than this, and make room, too: then there is less
    // room once more.
    let mut asked = u64::MAX;
    let start = Instant::now();
    loop {
        let used = client.info_number("used_memory");
        if used <= asked {
            asked = used - MB;
            client.line(&format!("CONFIG SET maxmemory {asked}"));
        }
        let left: u64 = client.line("DBSIZE").parse().expect("a number");
        if left < 15_000 {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{left} keys are left");
    }
    settle(&mut client);
    // They are counted a moment after they have gone.
    let start = Instant::now();
    let left = loop {
        let left: u64 = client.line("DBSIZE").parse().expect("a number");
        let evicted = client.info_number("evicted_keys") - before;
        if evicted == 20_000 - left {
            break left;
        }
        assert!(start.elapsed() < PATIENCE, "{left} left, {evicted} evicted");
    };
    assert!((2_000..15_000).contains(&left), "{left} left");

    // Where writes were refused, they wait for room as soon as the policy makes some.
    client.line("CONFIG SET maxmemory 0 maxmemory-policy noeviction");
    for number in 0..2_000 {
        assert_eq!(client.line(&format!("SET old:{number} {value}")), "OK");
    }
    for policy in ["allkeys-lru", "allkeys-lfu", "allkeys-random"] {
        // Buffers that earlier writes have left behind may go behind any look at what is used.
        let start = Instant::now();
        loop {
            limit(&mut client, 0);
            if client.line(&format!("SET more {value}")).starts_with("-OOM") {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "there is always room");
        }
        client.line(&format!("CONFIG SET maxmemory-policy {policy}"));
        for number in 0..300 {
            let reply = client.line(&format!("SET new:{number} {value}"));
            assert_eq!(reply, "OK", "write {number} under {policy}");
        }
        client.line("CONFIG SET maxmemory-policy noeviction");
    }
    client.line("CONFIG SET maxmemory-policy allkeys-random");

    // Who listens is told of each.
    let mut listener = server.client();
    listener.line("SUBSCRIBE __keyevent@0__:evicted");
    client.line(&format!("CONFIG SET maxmemory {}", asked - MB));
    let told = support::show(&listener.read());
    assert!(told.contains("__keyevent@0__:evicted"), "{told}");
}
