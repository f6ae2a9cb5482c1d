//! What connections hear of others behind real sockets and threads. What they are told, and when, is in
//! `src/session/tests/transcripts`.

#![allow(clippy::disallowed_methods, reason = "clocks belong to the server's tests, too")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Client, TestServer, show};

/// Reads what comes next, shown on a line.
fn next(client: &mut Client) -> String {
    show(&client.read())
}

fn send(client: &mut Client, line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    client.send(&words);
}

#[test]
fn consumers_of_a_group_wait_behind_each_other_and_order_nothing_meanwhile() {
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    other.talk(&[("XGROUP CREATE s g $ MKSTREAM", "OK"), ("XGROUP CREATE s h $", "OK")]);
    let mut waiters: Vec<Client> = Vec::new();
    for (place, group) in ["g", "g", "h"].iter().enumerate() {
        let mut waiter = server.client();
        let line = format!("XREADGROUP GROUP {group} c{place} COUNT 1 BLOCK 0 STREAMS s >");
        send(&mut waiter, &line);
        other.wait_for_info(&format!("blocked_clients:{}", place + 1));
        waiters.push(waiter);
    }
    // Their attempts come to an end: what they look at is not theirs to write.
    let mut position = || {
        let info = other.info();
        let field = info.lines().find(|line| line.starts_with("delivered_position:"));
        let position = field.map(ToOwned::to_owned);
        (0..300).for_each(|_| assert_eq!(other.line("PING"), "PONG"));
        position.expect("a field of INFO")
    };
    let is_still = (0..100).any(|_| position() == position());
    assert!(is_still, "somebody who waits orders something all the time");
    other.line("XADD s 1-1 f 1");
    assert!(next(&mut waiters[0]).contains("1-1"));
    assert!(next(&mut waiters[2]).contains("1-1"));
    other.line("XADD s 1-2 f 2");
    assert!(next(&mut waiters[1]).contains("1-2"));
}

#[test]
fn a_client_that_is_gone_takes_nothing() {
    let (server, _dir) = TestServer::start(&[]);
    let mut other = server.client();
    for ending in ["close", "half"] {
        let mut waiter = server.client();
        send(&mut waiter, "BLPOP q 0");
        other.wait_for_info("blocked_clients:1");
        match ending {
            "close" => drop(waiter),
            _ => {
                waiter.end();
                assert_eq!(waiter.try_read(), None);
            }
        }
        other.wait_for_info("blocked_clients:0");
        other.talk(&[("RPUSH q x", "1"), ("LPOP q", "\"x\"")]);
    }
}

#[test]
fn a_publisher_is_heard_in_its_order() {
    const MESSAGES: usize = 5000;
    let (server, _dir) = TestServer::start(&[]);
    let mut listener = server.client();
    listener.line("SUBSCRIBE c");
    let mut publisher = server.client();
    let mut bytes = Vec::new();
    for number in 0..MESSAGES {
        let number = number.to_string();
        redis_surface::codec::encode_command(&["PUBLISH", "c", &number], &mut bytes);
    }
    publisher.send_raw(&bytes);
    for number in 0..MESSAGES {
        assert_eq!(next(&mut publisher), "1");
        assert_eq!(next(&mut listener), format!("[\"message\" \"c\" \"{number}\"]"));
    }
}

/// A writer and a reader with copies, on all threads: a copy of which nobody was told is never old.
#[test]
fn a_copy_is_never_older_than_what_was_told() {
    const COPIES: usize = 300;
    let (server, _dir) = TestServer::start(&[]);
    let address = server.address;
    // The reader says when it ends, however seldom a busy machine lets either of them run.
    let has_read_enough = Arc::new(AtomicBool::new(false));
    let is_over = has_read_enough.clone();
    let writer = std::thread::spawn(move || {
        let mut writer = Client::connect(address);
        for number in 0.. {
            writer.line(&format!("SET k {number}"));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
        writer.line("SET k done");
    });
    let mut reader = server.client();
    reader.line("HELLO 3");
    reader.talk(&[("CLIENT TRACKING ON", "OK")]);
    for copies in 1.. {
        // An invalidation of an earlier read may come before the reply.
        send(&mut reader, "GET k");
        let value = loop {
            let reply = next(&mut reader);
            if !reply.starts_with('>') {
                break reply;
            }
        };
        if value == "\"done\"" {
            assert!(copies > COPIES, "the writer ended by itself after {copies} copies");
            break;
        }
        if copies == COPIES {
            has_read_enough.store(true, Ordering::Relaxed);
        }
        // So this one must be told of: the key is written once more.
        assert_eq!(next(&mut reader), ">[\"invalidate\" [\"k\"]]", "after {value}");
    }
    writer.join().expect("the writer writes");
}
