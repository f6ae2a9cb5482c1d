//! A cluster of three of which one node is left: real processes.

use crate::nodes::{
    Build, Cluster, NAMES, PATIENCE, PROGRAM, Server, address, described, description, try_ordo, word,
};
use server::client::Answer;
use server::launcher::ServerProcess;
use std::path::Path;
use std::process::Command;
use txn::hash::hash_bytes;

/// What `ordo admin recover` says of a directory, and whether it has succeeded.
fn recover(dir: &Path, words: &[&str]) -> (bool, String) {
    try_ordo(&[&["admin", "recover", "--from-survivor", "--dir", word(dir)], words].concat())
}

fn refused(dir: &Path, words: &[&str], why: &str) {
    let (done, said) = recover(dir, words);
    assert!(!done && said.contains(why), "{said}");
}

/// The files of a directory, each with a hash of what it has.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let mut all: Vec<(String, u64)> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("a name");
            (name, hash_bytes(&std::fs::read(entry.path()).expect("a file")))
        })
        .collect();
    all.sort();
    all
}

fn has_checkpoint(dir: &Path) -> Option<()> {
    let is_one = |(name, _): &(String, u64)| name.starts_with("checkpoint-");
    files(dir).iter().any(is_one).then_some(())
}

/// Starts a node with its output in a file, whose end is told.
fn serve(cluster: &Path, node: &str, dir: &Path, log: &Path) -> ServerProcess {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", "--node", node, "--cluster", word(cluster), "--dir", word(dir)]);
    ServerProcess::start(node, &mut command, log).unwrap_or_else(|error| panic!("{error}"))
}

/// A new node takes the place of a lost one. Gives its process and where it answers.
fn replace(cluster: &Cluster, lost: &str, new: &str) -> (ServerProcess, String) {
    let (peer, client) = (address(), address());
    let zone = format!("zone-{lost}");
    let survivor = &cluster.nodes[0];
    let text = format!(
        "{}{}{}joins = true\n",
        description(3),
        described(&survivor.name, &survivor.zone, &survivor.peer, &survivor.client),
        described(new, &zone, &peer, &client)
    );
    let file = cluster.file(&format!("{new}.toml"));
    std::fs::write(&file, text).expect("written");
    let addresses = ["--peer-address", &peer, "--client-address", &client];
    let known = ["add-node", new, "--zone", &zone];
    cluster.admin(0, &[&known[..], &addresses].concat());
    let process = serve(&file, new, &cluster.file(new), &cluster.file(&format!("{new}.log")));
    cluster.admin(0, &["remove-node", lost]);
    (process, client)
}

#[test]
fn a_cluster_goes_on_with_the_one_node_that_is_left_of_three() {
    let mut cluster = Cluster::start(Build::own(&[]));
    let key = |number: usize| format!("k{number}");
    let value = |number: usize| format!("v{number}");
    for number in 0..30 {
        let set = cluster.call(number % 3, &["SET", &key(number), &value(number)]);
        assert_eq!(set, "OK");
    }
    assert_eq!(cluster.call(1, &["SET", "long", "1", "EX", "1000"]), "OK");
    // Some of it is in checkpoints, and the rest only in logs.
    cluster.call(0, &["BGSAVE"]);
    for (place, name) in NAMES.iter().enumerate() {
        cluster.until(place, "it has a checkpoint", || has_checkpoint(&cluster.file(name)));
    }
    // From here on, what is acknowledged is on the disk of the one that will be left.
    cluster.kill(2);
    for number in 30..60 {
        let set = cluster.call(number % 2, &["SET", &key(number), &value(number)]);
        assert_eq!(set, "OK");
    }
    let set = cluster.call(1, &["MSET", "x", "1", "y", "2", "z", "3"]);
    assert_eq!(set, "OK");
    assert_eq!(cluster.call(1, &["SET", "short", "1", "PX", "500"]), "OK");
    let dir = cluster.file("a");
    refused(&dir, &["--yes"], "in use by another process");
    cluster.kill(1);
    cluster.kill(0);
    std::fs::remove_dir_all(cluster.file("c")).expect("removed");

    // It says what it means, and wants to be told twice.
    // Whoever opens the journal leaves a note in it.
    let beside_log = || -> Vec<_> {
        let is_log = |name: &str| name.starts_with("log-") || name.starts_with("prepared-");
        files(&dir).into_iter().filter(|(name, _)| !is_log(name)).collect()
    };
    let before = beside_log();
    refused(&dir, &[], "nothing was changed: add --yes");
    let (_, said) = recover(&dir, &[]);
    for text in [
        "the node a of a cluster with the other nodes b, c",
        "partition 2: kept up to epoch",
        "lost for good",
        "It cannot be taken back",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert_eq!(beside_log(), before);
    let (done, said) = recover(&dir, &["--yes"]);
    assert!(done && said.contains("of a new cluster now"), "{said}");
    let (done, said) = recover(&dir, &["--yes"]);
    assert!(done && said.contains("done already"), "{said}");

    cluster.run(0);
    for number in 0..60 {
        assert_eq!(cluster.call(0, &["GET", &key(number)]), value(number));
    }
    let values: Vec<String> = ["x", "y", "z"].iter().map(|key| cluster.call(0, &["GET", key])).collect();
    assert_eq!(values, ["1", "2", "3"]);
    let left: u64 = cluster.call(0, &["TTL", "long"]).parse().expect("seconds");
    assert!((1..=1000).contains(&left), "{left}");
    cluster.until(0, "what has expired is gone", || {
        (cluster.call(0, &["EXISTS", "short"]) == "0").then_some(())
    });
    assert_eq!(cluster.call(0, &["MSET", "x", "4", "k0", "again"]), "OK");
    assert_eq!(cluster.call(0, &["WAIT", "1", "100"]), "0", "nobody else has it");

    // A lost node comes back with its data: both say so, and nothing comes of it.
    cluster.run(1);
    for place in [0, 1] {
        cluster.until(place, "it refuses, or is refused", || {
            let said = cluster.said(place);
            (said.contains("belongs to another cluster") && said.contains("was recovered from")).then_some(())
        });
    }
    assert_eq!(cluster.call(0, &["SET", "k1", "again"]), "OK");
    cluster.kill(1);
    // And so does one that takes itself for a new one, under its old name.
    std::fs::remove_dir_all(cluster.file("b")).expect("removed");
    cluster.run(1);
    let refusals = |place: usize| cluster.said(place).matches("was recovered from").count();
    let before = refusals(1);
    cluster.until(1, "it is refused again", || (refusals(1) > before).then_some(()));
    cluster.kill(1);

    let (_d, at_d) = replace(&cluster, "b", "d");
    // The first one to come counts, before the others are there.
    cluster.until(0, "d has a vote", || {
        let status = cluster.status(0);
        let d = status.nodes.iter().find(|node| node.name == "d")?.id;
        let votes = |found: &server::cluster::PartitionStatus| {
            let mut replicas = found.replicas.iter();
            replicas.any(|replica| replica.node == d && replica.role == "follower")
        };
        status.partitions.iter().all(votes).then_some(())
    });
    let (_e, at_e) = replace(&cluster, "c", "e");
    cluster.until(0, "the lost ones are out of the map", || {
        let status = cluster.status(0);
        let names: Vec<&str> = status.nodes.iter().map(|node| &*node.name).collect();
        (names == ["a", "d", "e"]).then_some(())
    });
    cluster.kill(0);
    for address in [&at_d, &at_e] {
        assert_eq!(cluster.call_at(0, address, &["GET", "x"]), "4");
        assert_eq!(cluster.call_at(0, address, &["GET", "k0"]), "again");
        assert_eq!(cluster.call_at(0, address, &["GET", "k1"]), "again");
        for number in 2..60 {
            assert_eq!(cluster.call_at(0, address, &["GET", &key(number)]), value(number));
        }
        assert_eq!(cluster.call_at(0, address, &["SET", "k2", &value(2)]), "OK");
    }
    cluster.run(0);
    assert_eq!(cluster.call(0, &["GET", "k59"]), value(59));
    cluster.kill(0);
    let (done, said) = recover(&dir, &[]);
    assert!(!done && said.contains("the other nodes d, e"), "{said}");
}

#[test]
fn a_server_by_itself_and_a_node_of_a_cluster_do_not_take_each_others_directories() {
    let parent = tempfile::tempdir().expect("a directory");
    let mut alone = Server::new();
    let dir = alone.data();
    refused(&dir, &["--yes"], "not the data directory of a node of a cluster");
    assert!(!dir.exists(), "a mistyped name");
    alone.start(&[]);
    for words in [&["SET", "k", "v"][..], &["SAVE"]] {
        assert_eq!(alone.call(words), Answer::Text("OK".to_owned()));
    }
    alone.kill();
    refused(&dir, &["--yes"], "not the data directory of a node of a cluster");

    let text = description(2) + &described("a", "zone-a", &address(), &address());
    let file = parent.path().join("cluster.toml");
    std::fs::write(&file, text).expect("written");
    let log = parent.path().join("member.log");
    let refuses = |why: &str| {
        let before = files(&dir);
        let mut node = serve(&file, "a", &dir, &log);
        let status = node.wait(PATIENCE).expect("it ends");
        let said = node.said();
        assert!(!status.success() && said.contains(why), "{said}");
        assert_eq!(files(&dir), before, "{why}");
    };
    refuses("is of a server that stands alone");
    let remove = |prefix: &str| {
        let names = files(&dir).into_iter().map(|(name, _)| name);
        for name in names.filter(|name| name.starts_with(prefix)) {
            std::fs::remove_file(dir.join(name)).expect("removed");
        }
    };
    let kept = parent.path().join("kept");
    // What a power loss may leave: a tail that was not synced, and a segment that nobody had taken yet.
    let log_name = files(&dir).into_iter().map(|(name, _)| name).find(|name| name.starts_with("log-"));
    let log_path = dir.join(log_name.expect("a log"));
    let mut log_bytes = std::fs::read(&log_path).expect("read");
    let used = log_bytes.iter().rposition(|&byte| byte != 0).expect("records") + 1;
    log_bytes[used.next_multiple_of(8)..][..16].fill(7);
    std::fs::write(&log_path, log_bytes).expect("written");
    std::fs::write(dir.join("prepared-00000000000000000009.ordo"), [0; 64]).expect("written");
    let (name, _) =
        files(&dir).into_iter().find(|(name, _)| name.starts_with("checkpoint-")).expect("a checkpoint");
    std::fs::rename(dir.join(&name), &kept).expect("moved");
    refuses("is of a server that stands alone");
    // Without the log, a checkpoint is enough to say whose the directory is.
    std::fs::rename(&kept, dir.join(&name)).expect("moved");
    remove("log-");
    refuses("is of a server that stands alone");
}
