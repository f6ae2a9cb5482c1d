//! Users in a cluster: who is made at one node is a user at all of them, and all replicas decide alike what a
//! user's script may do.

use crate::processes;
use crate::processes::{PATIENCE, until};
use server::client::{Answer, Client};

const NODES: usize = 3;
/// It is allowed the first command, and not the second, which shows only while it runs.
const SCRIPT: &str = "redis.call('incr', 'app:n') return redis.call('incr', 'other')";

fn open(address: &str) -> Client {
    Client::open(address, PATIENCE).expect("a connection")
}

fn text(client: &mut Client, words: &[&str]) -> String {
    let answer = client.call(words).expect("a reply");
    answer.text(words[0]).expect("a text")
}

fn refusal(client: &mut Client, words: &[&str]) -> String {
    match client.call(words).expect("a reply") {
        Answer::Error(error) => error,
        other => panic!("{words:?} was not refused: {other:?}"),
    }
}

/// A connection of alice, whom the node knows soon: users come to it with what is final.
fn alice(address: &str) -> Client {
    let mut client = open(address);
    until(&format!("a user at {address}"), || {
        let answer = client.call(&["AUTH", "alice", "secret"]).expect("a reply");
        (answer == Answer::Text("OK".into())).then_some(())
    });
    client
}

/// Alice is held to her rights at every node, alike.
fn holds_everywhere(addresses: &[String], nodes: &[usize], runs: &mut i64) {
    for &node in nodes {
        let mut client = alice(&addresses[node]);
        assert_eq!(text(&mut client, &["ACL", "WHOAMI"]), "alice");
        for words in [&["SET", "other", "1"][..], &["FLUSHALL"]] {
            let error = refusal(&mut client, words);
            assert!(error.starts_with("NOPERM"), "node {node}: {error}");
        }
        let error = refusal(&mut client, &["EVAL", SCRIPT, "0"]);
        assert!(error.contains("can't access at least one"), "node {node}: {error}");
        *runs += 1;
        // As in Redis, what it did before stays: every replica has run it, and has stopped at the same
        // command.
        for &other in nodes {
            let mut reader = open(&addresses[other]);
            assert_eq!(text(&mut reader, &["GET", "app:n"]), runs.to_string());
            assert_eq!(reader.call(&["GET", "other"]).expect("a reply"), Answer::Nil);
        }
    }
}

#[test]
fn a_user_is_one_at_every_node_and_survives_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut processes = processes::started(NODES, NODES, 2, directory.path());
    let addresses = processes.addresses();
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let mut runs = 0;
    let rules = ["ACL", "SETUSER", "alice", "on", ">secret", "~app:*", "+@all", "-@dangerous"];
    assert_eq!(text(&mut open(&addresses[0]), &rules), "OK");
    holds_everywhere(&addresses, &[0, 1, 2], &mut runs);

    // One that is gone meanwhile knows the change when it is back.
    let gone = NODES - 1;
    processes.kill(&[gone]).expect("killed");
    let mut client = open(&addresses[0]);
    until("changing a user", || {
        let answer = client.call(&["ACL", "SETUSER", "alice", "-get"]).ok();
        (answer == Some(Answer::Text("OK".into()))).then_some(())
    });
    processes.start(gone).expect("started");
    processes.wait_until_up(PATIENCE).expect("up");
    holds_everywhere(&addresses, &[0, 1, 2], &mut runs);
    for address in &addresses {
        let mut client = alice(address);
        // A replica that has just come back follows as fast as it can.
        until(&format!("told of the change, at {address}"), || {
            let answer = client.call(&["GET", "app:n"]).expect("a reply");
            matches!(answer, Answer::Error(error) if error.starts_with("NOPERM")).then_some(())
        });
    }

    // All of them at once: users are data.
    processes.kill(&[0, 1, 2]).expect("killed");
    for node in 0..NODES {
        processes.start(node).expect("started");
    }
    processes.wait_until_up(PATIENCE).expect("up");
    holds_everywhere(&addresses, &[0, 1, 2], &mut runs);
}
