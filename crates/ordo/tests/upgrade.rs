//! A rolling restart of real nodes to another build, under load.
//!
//! One binary acts as both builds (`--behaviour-level`). To try two true ones, name the older binary:
//! `ORDO_OTHER_BUILD=path cargo test -p ordo --test all upgrade:: -- --nocapture`.
#![allow(clippy::disallowed_methods, reason = "what watches processes has threads, a clock and pauses")]

use crate::nodes::{Build, CLIENTS, Cluster, NAMES, PAUSE_MAX, Writer, wait_for_steps};
use server::client::Answer;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The build that the cluster is founded with, and the one that it is brought to.
fn builds() -> (Build, Build) {
    if let Some(other) = std::env::var_os("ORDO_OTHER_BUILD") {
        return (Build { program: other.into(), words: Vec::new() }, Build::own(&[]));
    }
    (Build::own(&["--behaviour-level", "1"]), Build::own(&["--behaviour-level", "2"]))
}

#[test]
fn nodes_are_restarted_one_after_the_other_with_another_build_and_nobody_notices() {
    let (old, new) = builds();
    let acts = !old.words.is_empty();
    let mut cluster = Cluster::start(old.clone());
    let founded = cluster.status(0);
    if acts {
        assert_eq!(founded.level, 1, "in force from the beginning");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<Writer> =
        (0..CLIENTS).map(|number| Writer::start(number, cluster.addresses(), stop.clone())).collect();
    for (place, name) in NAMES.iter().enumerate() {
        wait_for_steps(&cluster, &writers);
        let status = cluster.status(place);
        let leads = |found: &&server::cluster::PartitionStatus| found.leader == Some(status.me);
        let led = status.partitions.iter().filter(leads).count();
        let took = cluster.stop(place);
        cluster.run_as(place, &new);
        let started = Instant::now();
        let status = cluster.status(place);
        println!(
            "{name}: led {led} of 3 partitions, ended after {took:?}, served again {:?} later",
            started.elapsed()
        );
        let known: Vec<u32> = status.nodes.iter().map(|node| node.level).collect();
        let is_last = place + 1 == NAMES.len();
        if acts && !is_last {
            assert_eq!(status.level, 1, "the nodes know {known:?}");
        }
    }
    let level = cluster.until(0, "the behaviour that all know is in force", || {
        let status = cluster.status(0);
        let known = status.nodes.iter().map(|node| node.level).min();
        (Some(status.level) == known).then_some(status.level)
    });
    println!("behaviour {} before, {level} afterwards", founded.level);
    if acts {
        assert_eq!(level, 2);
    }
    wait_for_steps(&cluster, &writers);
    stop.store(true, Ordering::Relaxed);
    let mut steps = Vec::new();
    for writer in writers {
        let written = writer.thread.join().expect("no wrong reply");
        let done = writer.done.load(Ordering::Relaxed);
        println!(
            "a client: {done} pairs of writes, longest pause {:?}, {} times to another node",
            written.pause, written.moves
        );
        assert!(written.pause < PAUSE_MAX, "{:?}", written.pause);
        steps.push(done);
    }

    if acts {
        // The old build is refused from now on, and leaves the data as it is.
        cluster.stop(1);
        cluster.run_as(1, &old);
        let status = cluster.ended(1);
        let said = cluster.said(1);
        assert_eq!(status.code(), Some(78), "{said}");
        for want in
            ["behaviour 2 is in force", "knows behaviours up to 1", "Start this node with the version"]
        {
            assert!(said.contains(want), "no '{want}' in {said}");
        }
        cluster.run_as(1, &new);
    }
    // Every node has everything.
    for place in 0..NAMES.len() {
        cluster.call(place, &["PING"]);
        let mut client = cluster.open(place);
        let mut get = |key: &str| client.call(&["GET", key]).expect("a reply");
        for (number, &done) in steps.iter().enumerate() {
            let sum = get(&format!("counter:{number}"));
            assert_eq!(sum, Answer::Text(done.to_string()));
            // Reading takes longer than writing did: each node is asked for another share of it.
            for step in (1..=done).filter(|step| step % 3 == place as u64) {
                let key = format!("key:{number}:{step}");
                assert_eq!(get(&key), Answer::Text(key));
            }
        }
        let said = std::fs::read_to_string(cluster.log(place)).expect("a log");
        assert!(said.contains("partitions 0, 1, 2: no checkpoint, "), "{said}");
        assert!(!acts || !said.contains("\u{1b}"), "a file has no colours: {said}");
        assert!(!said.contains(" ERROR ") || place == 1, "{said}");
    }
}

#[test]
fn a_build_that_knows_too_little_is_refused_before_it_touches_anything() {
    let mut cluster = Cluster::start(Build::own(&["--behaviour-level", "0"]));
    // As if the cluster had gone on without it, and the node had learned that with a checkpoint.
    cluster.stop(2);
    let mut identity =
        server::cluster::identity::Identity::load(&cluster.file("c")).expect("readable").expect("it has run");
    identity.map.level = 1_000;
    identity.save(&cluster.file("c")).expect("written");
    let before = std::fs::metadata(cluster.file("c")).and_then(|dir| dir.modified());
    cluster.run(2);
    let status = cluster.ended(2);
    let said = cluster.said(2);
    assert_eq!(status.code(), Some(78), "{said}");
    assert!(said.contains("behaviour 1000 is in force"), "{said}");
    let after = std::fs::metadata(cluster.file("c")).and_then(|dir| dir.modified());
    assert_eq!(before.expect("a time"), after.expect("a time"));
}
