//! Clients that come before a server can serve: they are told so, and served once it can.
#![allow(clippy::disallowed_methods, reason = "a test's patience is a time, and its nodes are processes")]

use server::client::{Answer, Client};
use server::cluster::local::free_port;
use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["n1", "n2", "n3"];

fn free_address() -> String {
    format!("127.0.0.1:{}", free_port().expect("a port"))
}

/// A process that is killed when it is dropped.
struct Node(Child);

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn describe(dir: &Path) -> Vec<String> {
    let clients: Vec<String> = NAMES.iter().map(|_| free_address()).collect();
    let mut text = "name = \"lobby\"\nsecret = \"a secret that only this test knows\"\n".to_owned();
    for (name, client) in NAMES.iter().zip(&clients) {
        text.push_str(&format!(
            "[[node]]\nname = \"{name}\"\nzone = \"zone-{name}\"\npeer_address = \"{}\"\nclient_address = \
             \"{client}\"\n",
            free_address()
        ));
    }
    std::fs::write(dir.join("cluster.toml"), text).expect("written");
    clients
}

fn start(dir: &Path, name: &str) -> Node {
    let log = File::create(dir.join(format!("{name}.log"))).expect("a file");
    let child = Command::new(env!("CARGO_BIN_EXE_ordo"))
        .args(["serve", "--node", name, "--cluster"])
        .arg(dir.join("cluster.toml"))
        .arg("--dir")
        .arg(dir.join(name))
        .stderr(log)
        .spawn();
    Node(child.expect("it starts"))
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_client_of_a_node_that_waits_is_told_so_and_then_served() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clients = describe(dir.path());
    let _first = start(dir.path(), NAMES[0]);
    let mut client = until("it listens", || Client::open(&clients[0], PATIENCE).ok());
    let loading = |answer: &Answer| matches!(answer, Answer::Error(text) if text.starts_with("LOADING "));
    assert!(loading(&client.call(&["PING"]).expect("an answer")));
    assert!(loading(&client.call(&["SET", "k", "v"]).expect("an answer")));
    let info = client.call(&["INFO"]).and_then(|answer| answer.text("INFO")).expect("a text");
    assert!(info.contains("\r\nloading:1\r\n"), "{info}");
    let named = client.call(&["CLIENT", "SETNAME", "early"]);
    assert_eq!(named.expect("an answer"), Answer::Text("OK".to_owned()));

    // A new cluster begins when all of its founders have been there.
    let _others = [start(dir.path(), NAMES[1]), start(dir.path(), NAMES[2])];
    // On the same connection.
    until("it is served", || {
        let answer = client.call(&["SET", "k", "v"]).expect("an answer");
        assert!(answer == Answer::Text("OK".to_owned()) || loading(&answer), "{answer:?}");
        (!loading(&answer)).then_some(())
    });
    let name = client.call(&["CLIENT", "GETNAME"]).expect("an answer");
    assert_eq!(name, Answer::Text("early".to_owned()));
    let info = client.call(&["INFO"]).and_then(|answer| answer.text("INFO")).expect("a text");
    assert!(info.contains("\r\nloading:0\r\n"), "{info}");

    // A node that runs is not told to choose another port.
    let again = Command::new(env!("CARGO_BIN_EXE_ordo"))
        .args(["serve", "--node", NAMES[0], "--cluster"])
        .arg(dir.path().join("cluster.toml"))
        .arg("--dir")
        .arg(dir.path().join(NAMES[0]))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&again.stderr);
    assert!(!again.status.success());
    assert!(said.contains("is in use by another process"), "{said}");
    assert!(!said.contains("--port"), "{said}");
}

#[test]
fn a_signal_before_clients_are_served_says_so() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let clients = describe(dir.path());
    let mut node = start(dir.path(), NAMES[0]);
    until("it listens", || Client::open(&clients[0], PATIENCE).ok());
    let status = Command::new("kill").arg(node.0.id().to_string()).status();
    assert!(status.expect("kill runs").success());
    let status = node.0.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
    let log = dir.path().join(format!("{}.log", NAMES[0]));
    let said = std::fs::read_to_string(log).expect("its log");
    assert!(said.contains("SIGTERM: stopped before clients were served"), "{said}");
}
