//! Real nodes that join a cluster, take over from others, and come back without their data.
#![allow(
    clippy::disallowed_methods,
    reason = "what asks processes until they have come so far has a clock and pauses"
)]

use crate::nodes::{Build, Cluster, PATIENCE, ZONES};
use server::client::{Answer, Client};
use server::cluster::ClusterStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A node in each of these zones, named a, b, and so on.
fn start(zones: &[&str], partitions: u16) -> Cluster {
    let mut cluster = Cluster::prepare(zones, partitions, Build::own(&[]));
    cluster.run_all();
    for place in 0..zones.len() {
        cluster.status(place);
    }
    cluster
}

/// Deletes a node's entry from the description.
fn forget(cluster: &Cluster, place: usize) {
    let text = std::fs::read_to_string(cluster.file("cluster.toml")).expect("a file");
    let name = format!("name = \"{}\"\n", cluster.nodes[place].name);
    let entries: Vec<&str> = text.split("[[node]]\n").collect();
    let left = entries.iter().filter(|entry| !entry.starts_with(&name));
    let left: Vec<&str> = left.copied().collect();
    assert_eq!(left.len() + 1, entries.len());
    std::fs::write(cluster.file("cluster.toml"), left.join("[[node]]\n")).expect("written");
}

/// The number that a node answers, once it does.
fn number(cluster: &Cluster, place: usize, words: &[&str]) -> i64 {
    cluster.until(place, "answered with a number", || {
        let mut client = Client::open(&cluster.nodes[place].client, PATIENCE).ok()?;
        match client.call(words) {
            Ok(Answer::Text(number)) => number.parse().ok(),
            _ => None,
        }
    })
}

/// Tells the cluster of a node that was described.
fn admit(cluster: &Cluster, at: usize, place: usize) -> (bool, String) {
    let node = &cluster.nodes[place];
    let addresses = ["--peer-address", &node.peer, "--client-address", &node.client];
    let known = ["add-node", &node.name, "--zone", &node.zone];
    cluster.try_admin(at, &[&known[..], &addresses].concat())
}

#[test]
fn a_new_node_takes_the_place_of_one_that_leaves() {
    let mut cluster = start(&ZONES, 1);
    for key in 0..20 {
        let set = cluster.call(key % 3, &["SET", &format!("k{key}"), &key.to_string()]);
        assert_eq!(set, "OK");
    }
    cluster.describe("d", "zone-a", true);
    cluster.run(3);
    cluster.until(3, "it waits for the operator", || cluster.said(3).contains("add-node d").then_some(()));
    let peer = cluster.nodes[3].peer.clone();
    let client = cluster.nodes[3].client.clone();
    let join = ["add-node", "d", "--zone", "zone-a", "--peer-address", &peer, "--client-address", &client];
    cluster.admin(1, &join);
    cluster.until(3, "it waits for something to keep", || {
        cluster.said(3).contains("keeps nothing yet").then_some(())
    });
    let said = cluster.admin(1, &["remove-node", "a"]);
    assert!(said.contains("ordo admin status"), "{said}");
    let status = cluster.ended(0);
    assert_eq!(status.code(), Some(78), "{}", cluster.said(0));
    assert!(cluster.said(0).contains("has left the cluster"), "{}", cluster.said(0));
    let status = cluster.until(1, "the old one is out of the map", || {
        Some(cluster.status(1)).filter(|status| status.nodes.iter().all(|node| node.name != "a"))
    });
    assert_eq!(status.nodes.len(), 3);
    for partition in &status.partitions {
        let nodes: Vec<u16> = partition.replicas.iter().map(|replica| replica.node).collect();
        assert_eq!(nodes, [4, 2, 3], "one in each zone");
    }
    // The new one has everything, and counts.
    for key in 0..20 {
        assert_eq!(cluster.call(3, &["GET", &format!("k{key}")]), key.to_string());
    }
    cluster.kill(2);
    assert_eq!(cluster.call(1, &["SET", "k0", "again"]), "OK");
    assert_eq!(cluster.call(3, &["GET", "k0"]), "again");
    // It starts again as itself, whoever is there to ask.
    cluster.kill(3);
    cluster.kill(1);
    cluster.run(3);
    cluster.run(1);
    assert_eq!(cluster.call(3, &["GET", "k0"]), "again");
}

/// How many blocks have taken effect, and how many more may have: on a busy machine a majority may answer
/// later than the cluster waits for it, and the client is told that the outcome is unknown.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    done: u64,
    unknown: u64,
}

/// A client that counts up in turn two keys of a hundred, in one block. It gives how often, when it is told
/// to stop.
fn count_up(address: String, seed: u64, stop: Arc<AtomicBool>) -> JoinHandle<Blocks> {
    std::thread::spawn(move || {
        let mut client = Client::open(&address, PATIENCE).expect("a connection");
        let (mut count, mut blocks) = (0, Blocks::default());
        while !stop.load(Ordering::Relaxed) {
            let (first, second) = ((count + seed) % 100, (count * 7 + seed + 1) % 100);
            let key = |number: u64| format!("counter:{number}");
            let mut call = |words: &[&str]| client.call(words).expect("a reply");
            assert_eq!(call(&["MULTI"]), Answer::Text("OK".to_owned()));
            for number in [first, second] {
                let answer = call(&["INCR", &key(number)]);
                assert_eq!(answer, Answer::Text("QUEUED".to_owned()));
            }
            match call(&["EXEC"]) {
                Answer::List(replies) => {
                    assert_eq!(replies.len(), 2);
                    blocks.done += 1;
                }
                Answer::Error(text) if text.starts_with("ORDOUNKNOWN") => blocks.unknown += 1,
                other => panic!("{other:?}"),
            }
            count += 1;
        }
        blocks
    })
}

#[test]
fn a_new_node_gets_its_share_of_its_zone_under_load() {
    let mut cluster = start(&ZONES, 4);
    assert_eq!(cluster.call(1, &["SET", "k", "v"]), "OK");
    cluster.describe("d", "zone-a", true);
    cluster.run(3);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<JoinHandle<Blocks>> = (0..4)
        .map(|number| {
            let address = cluster.nodes[1 + number % 2].client.clone();
            count_up(address, number as u64 * 25, stop.clone())
        })
        .collect();
    let (done, said) = admit(&cluster, 1, 3);
    assert!(done, "{said}");
    cluster.until(1, "the newcomer is seen to wait", || {
        let (_, said) = cluster.try_admin(1, &["status"]);
        said.contains("Node d runs, and waits").then_some(())
    });
    let said = cluster.admin(1, &["rebalance", "--dry-run"]);
    assert!(said.contains("at a moves to d"), "{said}");
    let said = cluster.admin(1, &["rebalance"]);
    assert_eq!(said.matches("at a moves to d").count(), 2, "{said}");
    assert!(said.ends_with("done\n"), "{said}");
    stop.store(true, Ordering::Relaxed);
    let counts = clients.into_iter().map(|client| client.join());
    let counts: Vec<Blocks> = counts.map(|blocks| blocks.expect("no error")).collect();
    assert!(counts.iter().all(|blocks| blocks.done > 0), "{counts:?}");
    let done: u64 = counts.iter().map(|blocks| blocks.done).sum();
    let may_be = done..=done + counts.iter().map(|blocks| blocks.unknown).sum::<u64>();
    let total = |cluster: &Cluster, at: usize| -> u64 {
        let values = (0..100).map(|number| cluster.call(at, &["GET", &format!("counter:{number}")]));
        values.map(|value| value.parse::<u64>().expect("a number")).sum()
    };
    let kept = |status: &ClusterStatus, node: u16| {
        let replicas = status.partitions.iter().flat_map(|found| &found.replicas);
        replicas.filter(|replica| replica.node == node).count()
    };
    let status = cluster.status(1);
    assert_eq!([1, 2, 3, 4].map(|node| kept(&status, node)), [2, 4, 4, 2]);
    // All nodes have the same, and no half of a block.
    let sum = total(&cluster, 1);
    assert!(sum.is_multiple_of(2) && may_be.contains(&(sum / 2)), "{sum} of {counts:?}");
    for at in 0..4 {
        assert_eq!(total(&cluster, at), sum, "at {at}");
    }
    let said = cluster.admin(2, &["rebalance", "--dry-run"]);
    assert!(!said.contains("the replica of"), "{said}");
    // Both count, and start again as what they are now.
    cluster.kill(2);
    assert_eq!(cluster.call(0, &["SET", "k", "again"]), "OK");
    for place in [0, 1, 3] {
        cluster.kill(place);
    }
    for place in [0, 1, 3] {
        cluster.run(place);
    }
    assert_eq!(cluster.call(3, &["GET", "k"]), "again");
    assert_eq!(total(&cluster, 0), sum);
    // What has moved away can come back.
    cluster.run(2);
    cluster.until(1, "all are there", || {
        let status = cluster.status(1);
        status.nodes.iter().all(|node| node.reachable).then_some(())
    });
    cluster.admin(1, &["remove-node", "d"]);
    let ended = cluster.ended(3);
    assert_eq!(ended.code(), Some(78), "{}", cluster.said(3));
    cluster.until(1, "the one that leaves is out of the map", || {
        (cluster.status(1).nodes.len() == 3).then_some(())
    });
    assert_eq!(kept(&cluster.status(1), 1), 4);
    cluster.kill(1);
    assert_eq!(cluster.call(0, &["SET", "k", "third"]), "OK");
    assert_eq!(total(&cluster, 0), sum);
}

#[test]
fn a_node_that_was_removed_while_it_was_down_is_told_so_when_it_starts() {
    let mut cluster = start(&ZONES, 1);
    assert_eq!(cluster.call(1, &["SET", "k", "v"]), "OK");
    cluster.until(1, "it says who leads", || cluster.said(1).contains("leads partition 0").then_some(()));
    cluster.kill(0);
    cluster.describe("d", "zone-a", true);
    let (done, said) =
        cluster.until(1, "the others agree", || Some(admit(&cluster, 1, 3)).filter(|(done, _)| *done));
    assert!(done && said.contains("ordo admin remove-node"), "{said}");
    cluster.run(3);
    cluster.until(1, "the newcomer is seen to wait", || {
        let (_, said) = cluster.try_admin(1, &["status"]);
        said.contains("Node d runs, and waits").then_some(())
    });
    cluster.admin(1, &["remove-node", "a"]);
    cluster.until(1, "the old one is out of the map", || {
        let status = cluster.status(1);
        status.nodes.iter().all(|node| node.name != "a").then_some(())
    });
    assert_eq!(cluster.call(3, &["GET", "k"]), "v");
    // It knows of nothing, and nobody at a peer port talks to it.
    cluster.run(0);
    let status = cluster.ended(0);
    assert_eq!(status.code(), Some(78), "{}", cluster.said(0));
    let said = cluster.said(0);
    assert!(said.contains("'a' (node 1) has left the cluster"), "{said}");
    assert!(!said.contains("no link to"), "{said}");
    // Its entry may go, though no other founder was in its zone: the others start again with what is left.
    forget(&cluster, 0);
    for place in [1, 2, 3] {
        cluster.kill(place);
    }
    for place in [1, 2, 3] {
        cluster.run(place);
    }
    assert_eq!(cluster.call(3, &["GET", "k"]), "v");
    // Without a majority, nobody is kept waiting for long.
    cluster.kill(1);
    cluster.kill(2);
    let begun = Instant::now();
    cluster.describe("e", "zone-b", true);
    let (done, said) = admit(&cluster, 3, 4);
    assert!(!done && begun.elapsed() < Duration::from_secs(20), "{said}");
    assert!(said.contains("has no leader") || said.contains("no majority"), "{said}");
}

#[test]
fn a_founder_that_comes_back_without_its_data_ends() {
    let mut cluster = start(&ZONES, 1);
    assert_eq!(cluster.call(2, &["SET", "k", "v"]), "OK");
    cluster.kill(2);
    std::fs::remove_dir_all(cluster.data(2)).expect("removed");
    cluster.run(2);
    let status = cluster.ended(2);
    assert_eq!(status.code(), Some(78), "{}", cluster.said(2));
    let said = cluster.said(2);
    for want in ["its disk was lost", "ordo admin add-node", "remove-node"] {
        assert!(said.contains(want), "{said}");
    }
    assert_eq!(cluster.call(0, &["GET", "k"]), "v");
}

#[test]
fn nodes_of_a_zone_share_its_partitions_until_one_takes_over_from_the_other() {
    let mut cluster = start(&["zone-a", "zone-b", "zone-c", "zone-a"], 2);
    let name = |key: usize| format!("k{key}");
    for key in 0..24 {
        let set = cluster.call(key % 4, &["SET", &name(key), "one"]);
        assert_eq!(set, "OK");
    }
    for key in 0..24 {
        assert_eq!(cluster.call((key + 1) % 4, &["GET", &name(key)]), "one");
    }
    // While a neighbour is gone, another zone executes for a node what it does not keep.
    cluster.kill(3);
    for key in 0..24 {
        assert_eq!(cluster.call(0, &["SET", &name(key), "two"]), "OK");
        assert_eq!(cluster.call(0, &["GET", &name(key)]), "two");
    }
    cluster.run(3);
    // Its logs begin behind a checkpoint, so what a node takes over it must fetch.
    assert_eq!(cluster.call(1, &["SET", "k0", "three"]), "OK");
    cluster.call(1, &["BGSAVE"]);
    let has_checkpoint = |place: usize| {
        let files = std::fs::read_dir(cluster.data(place)).ok()?;
        let mut names = files.filter_map(|file| file.ok()?.file_name().into_string().ok());
        names.any(|name| name.starts_with("checkpoint-")).then_some(())
    };
    for place in 0..4 {
        cluster.until(place, "it has a checkpoint", || has_checkpoint(place));
    }
    cluster.admin(1, &["remove-node", "d"]);
    let status = cluster.ended(3);
    assert_eq!(status.code(), Some(78), "{}", cluster.said(3));
    cluster.until(1, "the one that leaves is out of the map", || {
        let status = cluster.status(1);
        status.nodes.iter().all(|node| node.name != "d").then_some(())
    });
    // With one zone gone, the one that took over is needed for every agreement.
    cluster.kill(2);
    for key in 0..24 {
        let before = if key == 0 { "three" } else { "two" };
        assert_eq!(cluster.call(0, &["GET", &name(key)]), before);
        assert_eq!(cluster.call(1, &["SET", &name(key), "four"]), "OK");
        assert_eq!(cluster.call(0, &["GET", &name(key)]), "four");
    }
}

#[test]
fn what_is_larger_than_a_frame_travels_between_nodes() {
    const PART: usize = 24 << 20;
    let mut cluster = Cluster::prepare(&["zone-a", "zone-b", "zone-c", "zone-a"], 2, Build::own(&[]));
    // On a busy machine such values travel for longer than requests may usually take. Whoever gave up and
    // asked again would have them travel once more, and soon nothing else would: docs/cluster.md.
    let file = cluster.file("cluster.toml");
    let text = std::fs::read_to_string(&file).expect("a file");
    let patient = format!("request_timeout_ms = 80000\nelection_timeout_ms = 5000\n{text}");
    std::fs::write(file, patient).expect("written");
    cluster.run_all();
    // `large` and `small` are keys of different partitions, of which neither a nor d keeps both.
    let keeper = |key: &str| {
        let slot = number(&cluster, 0, &["CLUSTER", "KEYSLOT", key]);
        let partitions = cluster.status(0).partitions;
        let found = partitions.iter().find(|partition| {
            let mut ranges = partition.slots.iter();
            ranges.any(|&(first, last)| (i64::from(first)..=i64::from(last)).contains(&slot))
        });
        found.expect("a partition").id
    };
    let of = |partition: u16| {
        let mut names = (0..).map(|number| format!("key{number}"));
        names.find(|name| keeper(name) == partition).expect("endless")
    };
    let (large, small) = (of(0), of(1));
    // What is said here may be said twice: nodes that have to carry so much may be late with their answers.
    let piece = "x".repeat(PART);
    for length in 1..=3 {
        let at = ((length - 1) * PART).to_string();
        let grown = number(&cluster, 1, &["SETRANGE", &large, &at, &piece]);
        assert_eq!(grown, (length * PART) as i64);
    }
    assert_eq!(cluster.call(1, &["SET", &small, "v"]), "OK");
    // To the others nothing would travel.
    for place in [0, 3] {
        let values = cluster.until(place, "it answers with two values", || {
            let mut client = Client::open(&cluster.nodes[place].client, PATIENCE).ok()?;
            match client.call(&["MGET", &large, &small]) {
                Ok(Answer::List(values)) => Some(values),
                _ => None,
            }
        });
        match &values[..] {
            [Answer::Text(all), Answer::Text(other)] => {
                assert_eq!((all.len(), other.as_str()), (3 * PART, "v"), "at {place}");
            }
            _ => panic!("at {place}: not two values"),
        }
        // As a transaction, too: both partitions need both values.
        let copy = "redis.call('SET', KEYS[2], redis.call('STRLEN', KEYS[1])) return 'done'";
        let answer = cluster.call(place, &["EVAL", copy, "2", &large, &small]);
        assert_eq!(answer, "done");
        assert_eq!(cluster.call(1, &["GET", &small]), (3 * PART).to_string());
        assert_eq!(cluster.call(1, &["SET", &small, "v"]), "OK");
    }
    // And it moves with its slot, whoever is asked for it.
    let slot = number(&cluster, 0, &["CLUSTER", "KEYSLOT", &large]).to_string();
    for (place, to) in [(0, "1"), (3, "0")] {
        let moved = cluster.call(place, &["ORDO.CLUSTER", "MOVESLOTS", &slot, &slot, to]);
        assert!(moved.starts_with("OK"), "asked at {place}: {moved}");
        // Whoever missed the answer asks again, perhaps another node.
        let again = cluster.call(3, &["ORDO.CLUSTER", "MOVESLOTS", &slot, &slot, to]);
        let done = format!("OK: partition {to} has the slots {slot} to {slot} already");
        assert_eq!(again, done, "after {moved}");
        for place in 0..4 {
            let length = number(&cluster, place, &["STRLEN", &large]);
            assert_eq!(length, (3 * PART) as i64, "at {place}, in partition {to}");
        }
    }
}
