//! Nodes whose journals take nothing.

use crate::rig::Rig;
use ordo_node::Refused;
use ordo_node::cluster::Condition;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);
const ZONES: [&str; 3] = ["x", "y", "z"];

/// A cluster with a leader of partition 0 that has answered something.
fn led() -> (Rig, NodeId) {
    let mut rig = Rig::running(&ZONES, 1);
    rig.until("a leader is known", |rig| rig.leader(P0).is_some());
    let leader = rig.leader(P0).expect("a leader");
    assert!(rig.add(leader, P0));
    rig.until("it is answered", |rig| rig.answered.get(&P0) == Some(&1));
    (rig, leader)
}

fn others(node: NodeId) -> impl Iterator<Item = NodeId> {
    (1..=3).map(NodeId).filter(move |&other| other != node)
}

/// Whether all others know that a node is out, and why.
fn is_known_out(rig: &Rig, node: NodeId, cause: &str) -> bool {
    others(node).all(|other| match rig.node(other).condition(node) {
        Condition::Out(text) => text.contains(cause),
        Condition::Well | Condition::Ending => false,
    })
}

/// How many rounds it takes until something is so.
fn rounds(rig: &mut Rig, is_so: impl Fn(&Rig) -> bool) -> u32 {
    for rounds in 0..100 {
        if is_so(rig) {
            return rounds;
        }
        rig.round();
    }
    panic!("not within 100 rounds\n{}", rig.describe());
}

#[test]
fn a_leader_with_a_full_disk_hands_over_at_once_and_comes_back_by_itself() {
    let (mut rig, leader) = led();
    rig.fill(leader, true);
    assert!(rig.add(leader, P0), "nobody knows yet");
    // What was on its way is answered by its successor's order; no silence has to be noticed first.
    let handed = rounds(&mut rig, |rig| {
        let now = rig.leader(P0);
        now.is_some_and(|now| now != leader) && rig.answered.get(&P0) == Some(&2)
    });
    assert!(handed <= 3, "{handed} rounds");
    assert!(is_known_out(&rig, leader, "no room"), "{}", rig.describe());
    let text = rig.node(leader).status().stopped.expect("it is out");
    assert!(text.starts_with("MISCONF ") && text.contains("no room"), "{text}");
    assert!(!rig.add(leader, P0), "it refuses what is new");
    for node in others(leader) {
        assert!(rig.add(node, P0));
    }
    rig.until("the others go on", |rig| rig.answered.get(&P0) == Some(&4));
    for _ in 0..100 {
        rig.round();
        assert!(rig.node(leader).out().is_some(), "nobody has made room");
    }
    rig.fill(leader, false);
    let back = rounds(&mut rig, |rig| rig.node(leader).out().is_none());
    assert!(back <= 21, "{back} rounds");
    rig.until("all know that it is back", |rig| {
        others(leader).all(|other| rig.node(other).condition(leader) == Condition::Well)
    });
    assert!(rig.add(leader, P0));
    rig.until("it serves", |rig| rig.answered.get(&P0) == Some(&5));
    rig.check();
}

#[test]
fn what_a_follower_with_a_full_disk_had_taken_is_answered() {
    let (mut rig, leader) = led();
    let follower = others(leader).next().expect("two");
    rig.fill(follower, true);
    assert!(rig.add(follower, P0), "nobody knows yet");
    let answered = rounds(&mut rig, |rig| rig.answered.get(&P0) == Some(&2));
    assert!(answered <= 3, "{answered} rounds");
    assert!(is_known_out(&rig, follower, "no room"));
    assert_eq!(rig.refused(follower), Vec::<String>::new());
    rig.fill(follower, false);
    rig.until("it is back", |rig| rig.node(follower).is_current());
    rig.check();
}

#[test]
fn reads_of_a_node_that_is_out_fail_at_once() {
    let (mut rig, leader) = led();
    // Waiting for an answer when the disk is found to be full.
    rig.cut = others(leader).map(|other| (leader, other)).collect();
    rig.read(leader, P0);
    assert_eq!(rig.refused(leader), Vec::<String>::new());
    rig.fill(leader, true);
    assert!(rig.add(leader, P0));
    let refused = rig.refused(leader);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].starts_with("MISCONF ") && refused[0].contains("connect to another node"));
    // And afterwards.
    rig.read(leader, P0);
    assert_eq!(rig.refused(leader).len(), 2);
    assert!(!rig.node(leader).is_current(), "what it has gets old");
    // Who cannot hand over keeps nobody waiting, either.
    let given_up = rounds(&mut rig, |rig| rig.refused(leader).len() == 3);
    assert!(given_up <= 10, "{given_up} rounds");
    let unknown = rig.refused(leader).pop().expect("three");
    assert!(unknown.starts_with("ORDOUNKNOWN "), "{unknown}");
    assert!(matches!(rig.node(leader).admission(), Err(Refused::ReadOnly(_))));
    rig.cut.clear();
    rig.fill(leader, false);
    rig.until("it is back", |rig| rig.node(leader).is_current());
    let readable = rig.readable(leader);
    rig.read(leader, P0);
    rig.until("it reads", |rig| rig.readable(leader) > readable);
    rig.check();
}

#[test]
fn a_failed_sync_is_final_and_hands_over_at_once() {
    let (mut rig, leader) = led();
    rig.break_sync(leader);
    assert!(rig.add(leader, P0));
    let handed = rounds(&mut rig, |rig| {
        let now = rig.leader(P0);
        now.is_some_and(|now| now != leader) && rig.answered.get(&P0) == Some(&2)
    });
    assert!(handed <= 3, "{handed} rounds");
    assert!(is_known_out(&rig, leader, "no sync"), "{}", rig.describe());
    for _ in 0..100 {
        rig.round();
    }
    assert!(rig.node(leader).out().is_some(), "it does not come back by itself");
    assert!(!rig.add(leader, P0));
    rig.crash(leader);
    rig.start(leader);
    rig.until("it is back", |rig| rig.node(leader).is_current());
    rig.check();
}

#[test]
fn a_cluster_whose_disks_are_all_full_comes_back_when_they_have_room() {
    let (mut rig, leader) = led();
    for node in (1..=3).map(NodeId) {
        rig.fill(node, true);
    }
    assert!(rig.add(leader, P0));
    rig.until("all are out", |rig| (1..=3).all(|node| rig.node(NodeId(node)).out().is_some()));
    for _ in 0..200 {
        rig.round();
    }
    for node in (1..=3).map(NodeId) {
        rig.fill(node, false);
    }
    rig.until("all are back", |rig| {
        (1..=3).all(|node| rig.node(NodeId(node)).is_current()) && rig.leader(P0).is_some()
    });
    for node in (1..=3).map(NodeId) {
        assert!(rig.add(node, P0));
    }
    rig.until("all serve", |rig| rig.answered.get(&P0) >= Some(&4));
    rig.check();
}

#[test]
fn nodes_that_end_at_the_same_time_do_not_hand_over_to_each_other() {
    let zones = ["x", "y", "z", "x", "y", "z"];
    let mut rig = Rig::running(&zones, 3);
    rig.until("all groups are led", |rig| {
        (0..3).all(|partition| rig.leader(PartitionId(partition)).is_some())
    });
    for node in (1..=6).map(NodeId) {
        rig.handle(node, ordo_node::cluster::ClusterEvent::Stop);
    }
    let ended = rounds(&mut rig, |rig| (1..=6).all(|node| rig.node(NodeId(node)).is_drained()));
    assert!(ended <= 3, "{ended} rounds");
}
