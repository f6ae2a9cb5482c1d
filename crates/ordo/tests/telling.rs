//! In a cluster it does not matter at which node somebody waits, listens, or keeps copies, and at which one
//! somebody else writes.

use crate::processes;
use crate::processes::{PATIENCE, until};
use server::client::{Answer, Client, put_command};

/// Keys of all partitions.
const KEYS: usize = 12;
const PARTITIONS: u16 = 4;
const SLOTS: u16 = 16_384;

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
    let line = format!("blocked_clients:{count}");
    until(&line, || {
        let info = client.call(&["INFO", "clients"]).expect("a reply");
        let info = info.text("INFO").expect("a text");
        info.lines().any(|found| found == line).then_some(())
    });
}

/// A connection whose reads are tracked, and one that hears of them.
fn tracked(address: &str) -> (Client, Client) {
    let (mut reader, mut ear) = (open(address), open(address));
    let Answer::Text(id) = ear.call(&["CLIENT", "ID"]).expect("a reply") else {
        panic!("CLIENT ID is a number");
    };
    ear.call(&["SUBSCRIBE", "__redis__:invalidate"]).expect("a reply");
    let tracking = ["CLIENT", "TRACKING", "ON", "REDIRECT", &id];
    let answer = reader.call(&tracking).expect("a reply");
    assert_eq!(answer, Answer::Text("OK".to_owned()));
    (reader, ear)
}

/// The next invalidation is of this key.
fn hears_of(ear: &mut Client, key: &str) {
    let Answer::List(told) = ear.answer().expect("an invalidation") else {
        panic!("a message is a list");
    };
    let key = Answer::Text(key.to_owned());
    assert_eq!(told.last(), Some(&Answer::List(vec![key])));
}

/// Who waits for a key, and who keeps a copy of it, loses nothing when its slot becomes another partition's.
fn slots_take_along_who_waits(addresses: &[String]) {
    let nodes = addresses.len();
    let mut others: Vec<Client> = addresses.iter().map(|address| open(address)).collect();
    let mut waiters = Vec::new();
    let mut copies = Vec::new();
    for number in 0..KEYS {
        let address = &addresses[number % nodes];
        let (queue, copy) = (format!("waits:{number}"), format!("read:{number}"));
        let mut waiter = open(address);
        send(&mut waiter, &["BLPOP", &queue, "0"]);
        waiters.push((queue, waiter));
        let (mut reader, ear) = tracked(address);
        assert_eq!(reader.call(&["GET", &copy]).expect("a reply"), Answer::Nil);
        copies.push((copy, reader, ear));
    }
    for (place, other) in others.iter_mut().enumerate() {
        let here = (0..KEYS).filter(|number| number % nodes == place);
        wait_for_waiters(other, here.count());
    }
    let each = SLOTS / PARTITIONS;
    for partition in 1..PARTITIONS {
        let (first, last) = (partition * each, partition * each + each - 1);
        let [first, last] = [first, last].map(|slot| slot.to_string());
        let words = ["ORDO.CLUSTER", "MOVESLOTS", &first, &last, "0"];
        let moved = others[0].call(&words).expect("a reply");
        let is_done = matches!(&moved, Answer::Text(text) if text.starts_with("OK"));
        assert!(is_done, "{moved:?}");
    }
    for (number, (queue, waiter)) in waiters.iter_mut().enumerate() {
        let other = &mut others[(number + 1) % nodes];
        let filled = other.call(&["RPUSH", queue, "job"]).expect("a reply");
        assert_eq!(filled, Answer::Text("1".to_owned()));
        assert_eq!(texts(waiter.answer().expect("an element")), [queue.as_str(), "job"]);
    }
    for (number, (copy, _, ear)) in copies.iter_mut().enumerate() {
        let other = &mut others[(number + 1) % nodes];
        other.call(&["SET", copy, "v"]).expect("a reply");
        // At the latest by then: who does not hear of it any more is told when the slots have moved.
        hears_of(ear, copy);
    }
}

/// Everything, at clusters whose nodes keep all partitions, and at such whose nodes keep two of four.
fn everything_reaches_every_node(nodes: usize, zones: usize) {
    let directory = tempfile::tempdir().expect("a directory");
    let mut processes = processes::started(nodes, zones, PARTITIONS, directory.path());
    let addresses = processes.addresses();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
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
        assert_eq!(answer, Answer::Text("1".to_owned()), "as many as listen at that node");
        for client in &mut clients {
            assert_eq!(texts(client.answer().expect("a message")), ["message", "news", &text]);
        }
    }
    let mut block = open(&addresses[0]);
    for words in [&["MULTI"][..], &["SET", "block", "1"], &["PUBLISH", "news", "block"]] {
        block.call(words).expect("a reply");
    }
    assert_eq!(texts(block.call(&["EXEC"]).expect("a reply")), ["OK", "1"]);
    for client in &mut clients {
        assert_eq!(texts(client.answer().expect("a message")), ["message", "news", "block"]);
        client.call(&["RESET"]).expect("a reply");
    }

    // Elements.
    for number in 0..KEYS {
        let key = format!("queue:{number}");
        let (waits, fills) = (number % nodes, (number + 1) % nodes);
        send(&mut clients[waits], &["BLPOP", &key, "0"]);
        wait_for_waiters(&mut others[waits], 1);
        let filled = others[fills].call(&["RPUSH", &key, "job"]).expect("a reply");
        assert_eq!(filled, Answer::Text("1".to_owned()));
        assert_eq!(texts(clients[waits].answer().expect("an element")), [key.as_str(), "job"]);
    }

    // Copies.
    for number in 0..KEYS {
        let key = format!("copy:{number}");
        let (reads, writes) = (number % nodes, (number + 1) % nodes);
        let (mut reader, mut ear) = tracked(&addresses[reads]);
        assert_eq!(reader.call(&["GET", &key]).expect("a reply"), Answer::Nil);
        others[writes].call(&["SET", &key, "v"]).expect("a reply");
        hears_of(&mut ear, &key);
    }

    slots_take_along_who_waits(&addresses);

    // Who waits at a node that is gone takes nothing.
    send(&mut clients[nodes - 1], &["BLPOP", "left", "0"]);
    wait_for_waiters(&mut others[nodes - 1], 1);
    processes.kill(&[nodes - 1]).expect("killed");
    let mut client = open(&addresses[0]);
    // A request whose node died with a group's leader is refused or lost while another one is elected.
    until("taking a write", || match client.call(&["RPUSH", "left", "job"]) {
        Ok(Answer::Text(count)) if count == "1" => Some(()),
        _ => {
            client.call(&["DEL", "left"]).expect("a reply");
            None
        }
    });
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
