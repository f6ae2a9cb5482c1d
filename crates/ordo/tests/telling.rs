//! In a cluster it does not matter at which node somebody waits, listens, or keeps copies, and at which one somebody else writes.
#![allow(
    clippy::disallowed_methods,
    reason = "what watches processes has a clock"
)]

use bench::faults::processes::{Processes, Setting};
use server::client::{Answer, Client, put_command};
use std::path::Path;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Keys of all partitions.
const KEYS: usize = 12;

/// A cluster of four partitions.
fn cluster(nodes: usize, zones: usize, directory: &Path) -> (Processes, Vec<String>) {
    let setting = Setting {
        ordo: env!("CARGO_BIN_EXE_ordo").into(),
        nodes,
        zones,
        partitions: 4,
        appendfsync: "no".to_owned(),
        directory: directory.to_owned(),
    };
    let mut processes = Processes::new(setting, None).expect("prepared");
    for node in 0..nodes {
        processes.start(node).expect("started");
    }
    processes.wait_until_up(PATIENCE).expect("up");
    let addresses = processes
        .addresses()
        .into_iter()
        .map(|address| address.to_string());
    let addresses = addresses.collect();
    (processes, addresses)
}

fn open(address: &str) -> Client {
    Client::open(address, PATIENCE).expect("a connection")
}

fn send(client: &mut Client, words: &[&str]) {
    let mut bytes = Vec::new();
    put_command(&mut bytes, words);
    client.send(&bytes).expect("sent");
}

fn texts(answer: Answer) -> Vec<String> {
    let Answer::List(list) = answer else {
        panic!("not a list: {answer:?}");
    };
    let text = |answer| match answer {
        Answer::Text(text) => text,
        other => format!("{other:?}"),
    };
    list.into_iter().map(text).collect()
}

fn wait_for_waiters(client: &mut Client, count: usize) {
    let start = Instant::now();
    let line = format!("blocked_clients:{count}");
    loop {
        let info = client.call(&["INFO", "clients"]).expect("a reply");
        let info = info.text("INFO").expect("a text");
        if info.lines().any(|found| found == line) {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "not {line}:\n{info}");
    }
}

/// Everything, at clusters whose nodes keep all partitions, and at such whose nodes keep two of four.
fn everything_reaches_every_node(nodes: usize, zones: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut processes, addresses) = cluster(nodes, zones, directory.path());
    let mut clients: Vec<Client> = addresses.iter().map(|address| open(address)).collect();
    let mut others: Vec<Client> = addresses.iter().map(|address| open(address)).collect();

    // Messages.
    for client in &mut clients {
        let answer = client.call(&["SUBSCRIBE", "news"]).expect("a reply");
        assert_eq!(texts(answer), ["subscribe", "news", "1"]);
    }
    for (place, other) in others.iter_mut().enumerate() {
        let text = format!("from {place}");
        let answer = other.call(&["PUBLISH", "news", &text]).expect("a reply");
        assert_eq!(
            answer,
            Answer::Text("1".to_owned()),
            "as many as listen at that node"
        );
        for client in &mut clients {
            assert_eq!(
                texts(client.answer().expect("a message")),
                ["message", "news", &text]
            );
        }
    }
    let mut block = open(&addresses[0]);
    for words in [
        &["MULTI"][..],
        &["SET", "block", "1"],
        &["PUBLISH", "news", "block"],
    ] {
        block.call(words).expect("a reply");
    }
    assert_eq!(texts(block.call(&["EXEC"]).expect("a reply")), ["OK", "1"]);
    for client in &mut clients {
        assert_eq!(
            texts(client.answer().expect("a message")),
            ["message", "news", "block"]
        );
        client.call(&["RESET"]).expect("a reply");
    }

    // Elements.
    for number in 0..KEYS {
        let key = format!("queue:{number}");
        let (waits, fills) = (number % nodes, (number + 1) % nodes);
        send(&mut clients[waits], &["BLPOP", &key, "0"]);
        wait_for_waiters(&mut others[waits], 1);
        let filled = others[fills]
            .call(&["RPUSH", &key, "job"])
            .expect("a reply");
        assert_eq!(filled, Answer::Text("1".to_owned()));
        assert_eq!(
            texts(clients[waits].answer().expect("an element")),
            [key.as_str(), "job"]
        );
    }

    // Copies.
    for number in 0..KEYS {
        let key = format!("copy:{number}");
        let (reads, writes) = (number % nodes, (number + 1) % nodes);
        let mut ear = open(&addresses[reads]);
        let Answer::Text(id) = ear.call(&["CLIENT", "ID"]).expect("a reply") else {
            panic!("CLIENT ID is a number");
        };
        ear.call(&["SUBSCRIBE", "__redis__:invalidate"])
            .expect("a reply");
        let reader = &mut clients[reads];
        let tracking = ["CLIENT", "TRACKING", "ON", "REDIRECT", &id];
        assert_eq!(
            reader.call(&tracking).expect("a reply"),
            Answer::Text("OK".to_owned())
        );
        assert_eq!(reader.call(&["GET", &key]).expect("a reply"), Answer::Nil);
        others[writes].call(&["SET", &key, "v"]).expect("a reply");
        let Answer::List(told) = ear.answer().expect("an invalidation") else {
            panic!("a message is a list");
        };
        assert_eq!(told.last(), Some(&Answer::List(vec![Answer::Text(key)])));
    }

    // Who waits at a node that is gone takes nothing.
    send(&mut clients[nodes - 1], &["BLPOP", "left", "0"]);
    wait_for_waiters(&mut others[nodes - 1], 1);
    processes.kill(&[nodes - 1]).expect("killed");
    let mut client = open(&addresses[0]);
    let start = Instant::now();
    // A request whose node died with a group's leader is refused or lost while another one is elected.
    while !matches!(
        client.call(&["RPUSH", "left", "job"]),
        Ok(Answer::Text(count)) if count == "1"
    ) {
        assert!(start.elapsed() < PATIENCE, "no write is taken");
        client.call(&["DEL", "left"]).expect("a reply");
    }
    let taken = client.call(&["BLPOP", "left", "5"]).expect("a reply");
    assert_eq!(texts(taken), ["left", "job"]);
}

#[test]
fn everything_reaches_every_node_that_keeps_all_partitions() {
    everything_reaches_every_node(3, 3);
}

#[test]
fn everything_reaches_every_node_that_keeps_some_partitions() {
    everything_reaches_every_node(6, 3);
}
