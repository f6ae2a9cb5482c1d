//! Real nodes whose disks take nothing for a while, and processes that are told to end.
//!
//! A file that may not grow beyond a limit is a full disk to the process that writes it, and takes no
//! privileges.

#![allow(
    clippy::disallowed_methods,
    reason = "what asks processes until they have come so far has a clock and pauses"
)]

use crate::nodes::{Build, Cluster, NAMES};
use crate::processes;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use server::client::{Answer, Client};
use std::time::Duration;

/// The process's files end here.
const LIMIT_BYTES: u64 = 64 << 10;
/// As much, and more, is in each journal before.
const VALUE_BYTES: usize = 300 << 10;
/// No bar, but less than a node that waits for what does not come used to take.
const END_MAX: Duration = Duration::from_secs(6);

fn limit_files(process: Pid, bytes: Option<u64>) {
    let limit = Rlimit { current: bytes, maximum: None };
    prlimit(Some(process), Resource::Fsize, limit).expect("one's own process can be limited");
}

/// What a node answers to a command at once, be it an error.
fn answer(client: &mut Client, words: &[&str]) -> Answer {
    client.call(words).expect("it answers")
}

fn misconf(answer: Answer) -> String {
    match answer {
        Answer::Error(text) if text.starts_with("MISCONF this node takes no part") => text,
        other => panic!("not refused: {other:?}"),
    }
}

/// Waits until a node says that it is out.
fn wait_until_out(cluster: &Cluster, place: usize) {
    cluster.until(place, "it is out", || match answer(&mut cluster.open(place), &["PING"]) {
        Answer::Error(text) => Some(misconf(Answer::Error(text))),
        _ => None,
    });
}

#[test]
fn a_node_with_a_full_disk_says_so_and_comes_back_by_itself() {
    let cluster = Cluster::start(Build::own(&[]));
    let value = "v".repeat(VALUE_BYTES);
    // In every journal: each node leads a partition, and keeps all of them.
    for key in 0..6 {
        cluster.call(0, &["SET", &format!("key:{key}"), &value]);
    }
    let victim = 1;
    let mut old = cluster.open(victim);
    let mut reader = cluster.open(victim);
    assert_eq!(answer(&mut reader, &["READONLY"]), Answer::Text("OK".to_owned()));
    limit_files(cluster.process(victim), Some(LIMIT_BYTES));
    // Writes of the others find it out, and go on.
    assert_eq!(cluster.call(0, &["SET", "after", "1"]), "OK");
    wait_until_out(&cluster, victim);
    for _ in 0..2 {
        let text = misconf(answer(&mut old, &["GET", "key:0"]));
        assert!(text.contains("connect to another node"), "{text}");
        misconf(answer(&mut old, &["SET", "after", "2"]));
        misconf(answer(&mut cluster.open(victim), &["GET", "after"]));
    }
    // What a READONLY connection reads may be as old as INFO says.
    let old_enough = answer(&mut reader, &["GET", "key:0"]);
    assert!(
        matches!(&old_enough, Answer::Text(text) if *text == value)
            || matches!(&old_enough, Answer::Error(text) if text.starts_with("MISCONF")),
        "{old_enough:?}"
    );
    let text = |words: &[&str]| match answer(&mut cluster.open(victim), words) {
        Answer::Text(text) => text,
        other => panic!("{other:?}"),
    };
    assert!(text(&["CLUSTER", "INFO"]).contains("cluster_state:fail"));
    let info = text(&["INFO", "everything"]);
    assert!(info.contains("aof_last_write_status:err"), "{info}");
    assert!(info.contains("out:its log cannot be written ("), "{info}");
    // All know it and why, and lead in its place.
    for place in 0..NAMES.len() {
        cluster.until(place, "it knows who is out", || {
            let status = cluster.status(place);
            let node = status.nodes.iter().find(|node| node.name == NAMES[victim])?;
            let leads = |leader| leader == Some(node.id);
            let led = status.partitions.iter().any(|found| leads(found.leader));
            let cause = node.out.as_ref()?;
            (cause.contains("its log cannot be written") && !led).then_some(())
        });
        let level = if place == victim { "ERROR" } else { " WARN" };
        cluster.until(place, "it has told its operator", || {
            let said = cluster.said(place);
            let mut lines = said.lines();
            lines.any(|line| line.contains(level) && line.contains("its log cannot be written")).then_some(())
        });
    }
    assert_eq!(cluster.call(2, &["SET", "after", "3"]), "OK");
    limit_files(cluster.process(victim), None);
    cluster.until(victim, "it is back", || {
        (answer(&mut cluster.open(victim), &["PING"]) == Answer::Text("PONG".to_owned())).then_some(())
    });
    assert_eq!(cluster.call(victim, &["GET", "after"]), "3");
    assert_eq!(answer(&mut old, &["GET", "after"]), Answer::Text("3".to_owned()));
    assert_eq!(cluster.call(victim, &["SET", "after", "4"]), "OK");
    assert!(cluster.said(victim).contains("takes part in its cluster again"));
    cluster.until(0, "it has told that the other is back", || {
        cluster.said(0).contains("takes part in the cluster again").then_some(())
    });
}

#[test]
fn a_cluster_whose_disks_are_all_full_comes_back_and_its_nodes_end_soon() {
    let mut cluster = Cluster::start(Build::own(&[]));
    let value = "v".repeat(VALUE_BYTES);
    for key in 0..6 {
        cluster.call(0, &["SET", &format!("key:{key}"), &value]);
    }
    for place in 0..NAMES.len() {
        limit_files(cluster.process(place), Some(LIMIT_BYTES));
    }
    let refused = answer(&mut cluster.open(0), &["SET", "after", "1"]);
    assert!(matches!(refused, Answer::Error(_)), "{refused:?}");
    for place in 0..NAMES.len() {
        wait_until_out(&cluster, place);
    }
    // A node that is out keeps nobody waiting who wants it to end.
    let took = cluster.stop(2);
    assert!(took < END_MAX, "{took:?}");
    for place in 0..2 {
        limit_files(cluster.process(place), None);
    }
    assert_eq!(cluster.call(1, &["SET", "after", "2"]), "OK");
    assert_eq!(cluster.call(0, &["GET", "key:5"]), value);
}

#[test]
fn six_nodes_that_are_told_to_end_do_so_soon() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut cluster = processes::started(6, 3, 3, directory.path());
    let took = cluster.stop(&[0, 1, 2, 3, 4, 5]).expect("they end well");
    assert!(took < END_MAX, "{took:?}");
}

#[test]
fn signals_that_have_no_meaning_here_end_nothing() {
    let cluster = Cluster::start(Build::own(&[]));
    for (signal, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        kill_process(cluster.process(0), signal).expect("it runs");
        cluster.until(0, "it has told of the signal", || cluster.said(0).contains(name).then_some(()));
    }
    assert_eq!(cluster.call(0, &["PING"]), "PONG");
}

#[test]
fn the_loss_of_the_majority_is_told_and_its_return() {
    let mut cluster = Cluster::start(Build::own(&[]));
    cluster.kill(1);
    cluster.kill(2);
    cluster.until(0, "it has told of the loss", || {
        let said = cluster.said(0);
        let mut lines = said.lines();
        lines
            .any(|line| line.contains("ERROR") && line.contains("has no leader") && line.contains("'b'"))
            .then_some(())
    });
    let began = std::time::Instant::now();
    cluster.run(1);
    cluster.until(0, "it has told of the return", || {
        cluster.said(0).contains("has a leader again").then_some(())
    });
    println!("back after {:?}", began.elapsed());
    // And alone again: nothing that comes no more keeps it from ending.
    cluster.kill(1);
    cluster.until(0, "its leaders are lost", || {
        let mut client = cluster.open(0);
        match answer(&mut client, &["CLUSTER", "INFO"]) {
            Answer::Text(text) if text.contains("cluster_slots_fail:16384") => Some(()),
            _ => None,
        }
    });
    let took = cluster.stop(0);
    assert!(took < END_MAX, "{took:?}");
}
