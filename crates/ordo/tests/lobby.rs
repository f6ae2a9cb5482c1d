//! Clients that come before a server can serve: they are told so, and served once it can.

use crate::nodes::{Build, Cluster, PATIENCE, ZONES, ordo, word};
use server::client::{Answer, Client};

#[test]
fn a_client_of_a_node_that_waits_is_told_so_and_then_served() {
    let mut cluster = Cluster::prepare(&ZONES, 1, Build::own(&[]));
    cluster.run(0);
    let listens = || Client::open(&cluster.nodes[0].client, PATIENCE).ok();
    let mut client = cluster.until(0, "listening", listens);
    let loading = |answer: &Answer| matches!(answer, Answer::Error(text) if text.starts_with("LOADING "));
    assert!(loading(&client.call(&["PING"]).expect("an answer")));
    assert!(loading(&client.call(&["SET", "k", "v"]).expect("an answer")));
    let info = client.call(&["INFO"]).and_then(|answer| answer.text("INFO")).expect("a text");
    assert!(info.contains("\r\nloading:1\r\n"), "{info}");
    let named = client.call(&["CLIENT", "SETNAME", "early"]);
    assert_eq!(named.expect("an answer"), Answer::Text("OK".to_owned()));

    // A new cluster begins when all of its founders have been there.
    cluster.run(1);
    cluster.run(2);
    // On the same connection.
    cluster.until(0, "serving", || {
        let answer = client.call(&["SET", "k", "v"]).expect("an answer");
        assert!(answer == Answer::Text("OK".to_owned()) || loading(&answer), "{answer:?}");
        (!loading(&answer)).then_some(())
    });
    let name = client.call(&["CLIENT", "GETNAME"]).expect("an answer");
    assert_eq!(name, Answer::Text("early".to_owned()));
    let info = client.call(&["INFO"]).and_then(|answer| answer.text("INFO")).expect("a text");
    assert!(info.contains("\r\nloading:0\r\n"), "{info}");

    // A node that runs is not told to choose another port.
    let (description, data) = (cluster.file("cluster.toml"), cluster.data(0));
    let again = ordo(&["serve", "--node", "a", "--cluster", word(&description), "--dir", word(&data)]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success());
    assert!(said.contains("is in use by another process"), "{said}");
    assert!(!said.contains("--port"), "{said}");
}

#[test]
fn a_signal_before_clients_are_served_says_so() {
    let mut cluster = Cluster::prepare(&ZONES, 1, Build::own(&[]));
    cluster.run(0);
    cluster.until(0, "listening", || Client::open(&cluster.nodes[0].client, PATIENCE).ok());
    cluster.stop(0);
    let said = cluster.said(0);
    assert!(said.contains("SIGTERM: stopped before clients were served"), "{said}");
}
