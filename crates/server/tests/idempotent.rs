//! ORDO.IDEMPOTENT through connections that come and go.

#![allow(clippy::disallowed_methods, reason = "threads belong to the server's tests, too")]

use crate::support::{Dice, TestServer, show};
use std::sync::Barrier;

#[test]
fn a_retry_through_another_connection_or_process_applies_once() {
    let (server, dir) = TestServer::start(&[]);
    let mut first = server.client();
    // The reply is lost with the connection, which nobody told the server to wait for.
    first.send(&["ORDO.IDEMPOTENT", "pay-1", "INCRBY", "account", "30"]);
    drop(first);
    let mut second = server.client();
    second.talk(&[
        ("ORDO.IDEMPOTENT pay-1 INCRBY account 30", "30"),
        ("ORDO.IDEMPOTENT pay-2 INCRBY account 5", "35"),
        ("ORDO.IDEMPOTENT pay-1 INCRBY account 30", "30"),
        ("GET account", "\"35\""),
        (
            "ORDO.IDEMPOTENT pay-1 INCRBY account 31",
            "-ERR this id was used for another command within the last hour: a retry must send the same \
             words, and a new command a new id",
        ),
        ("DBSIZE", "1"),
    ]);
    server.stop();
    let server = TestServer::start_in(dir.path(), &[]);
    let mut third = server.client();
    third.talk(&[("ORDO.IDEMPOTENT pay-1 INCRBY account 30", "30"), ("SAVE", "OK")]);
    server.stop();
    // From the checkpoint now.
    let server = TestServer::start_in(dir.path(), &[]);
    server.client().talk(&[("ORDO.IDEMPOTENT pay-2 INCRBY account 5", "35"), ("GET account", "\"35\"")]);
}

#[test]
fn what_is_refused_for_memory_is_no_reply_to_keep() {
    let (server, _dir) = TestServer::start(&[("maxmemory", "1")]);
    let mut client = server.client();
    let out_of_memory = "-OOM command not allowed when used memory > 'maxmemory'.";
    // The first look at the memory may come after the first command.
    let mut tries = 0;
    while client.line("ORDO.IDEMPOTENT i APPEND k x") != out_of_memory {
        tries += 1;
        assert!(tries < 1_000_000, "memory is short");
    }
    assert_eq!(client.line("ORDO.IDEMPOTENT j INCR n"), out_of_memory);
    client.talk(&[("CONFIG SET maxmemory 0", "OK")]);
    tries = 0;
    while client.line("SET unrelated x") == out_of_memory {
        tries += 1;
        assert!(tries < 1_000_000, "memory is not short any more");
    }
    client.talk(&[("ORDO.IDEMPOTENT j INCR n", "1"), ("ORDO.IDEMPOTENT j INCR n", "1")]);
}

/// Connections that send the same commands with the same ids at the same time, some of them twice.
#[test]
fn racing_retries_apply_once_and_agree() {
    const CONNECTIONS: usize = 4;
    const IDS: usize = 200;
    let (server, _dir) = TestServer::start(&[]);
    let mut dice = Dice::new();
    let plans: Vec<Vec<usize>> = (0..CONNECTIONS)
        .map(|_| {
            let repeats = (0..IDS / 2).map(|_| dice.below(IDS));
            let mut ids: Vec<usize> = (0..IDS).chain(repeats).collect();
            for place in (1..ids.len()).rev() {
                ids.swap(place, dice.below(place + 1));
            }
            ids
        })
        .collect();
    let start = Barrier::new(CONNECTIONS);
    let answers: Vec<Vec<(usize, String)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = plans
            .iter()
            .map(|plan| {
                let (server, start) = (&server, &start);
                scope.spawn(move || {
                    let mut client = server.client();
                    start.wait();
                    for id in plan {
                        client.send(&["ORDO.IDEMPOTENT", &format!("id-{id}"), "INCR", "counter"]);
                    }
                    let replies = plan.iter().map(|&id| (id, show(&client.read())));
                    replies.collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let mut of_id = vec![None; IDS];
    for (id, answer) in answers.into_iter().flatten() {
        let agreed = of_id[id].get_or_insert_with(|| answer.clone());
        assert_eq!(*agreed, answer, "id {id}");
    }
    let mut values: Vec<usize> = of_id
        .into_iter()
        .map(|answer| answer.expect("every id was sent").parse().expect("a number"))
        .collect();
    values.sort_unstable();
    assert!(values.into_iter().eq(1..=IDS), "each applied once");
    assert_eq!(server.client().line("GET counter"), format!("\"{IDS}\""));
}
