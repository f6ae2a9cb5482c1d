//! How a cluster begins, and what happens to a founder whose disk is gone.

use crate::rig::Rig;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);

#[test]
fn a_cluster_is_formed_once_all_founders_are_there() {
    let mut rig = Rig::new(&["x", "y", "z"], 1);
    rig.start(NodeId(1));
    rig.start(NodeId(2));
    for _ in 0..100 {
        rig.round();
        assert_eq!(rig.leader(P0), None, "two of three know nothing of the third's disk");
    }
    // Those who were heard count, whether they run now or not; when they come back they are the same.
    rig.crash(NodeId(2));
    rig.start(NodeId(3));
    rig.until("two of three go on", |rig| rig.has_booted(NodeId(1)) && rig.has_booted(NodeId(3)));
    rig.start(NodeId(2));
    rig.until("all have started", |rig| rig.has_booted(NodeId(2)));
    assert!(rig.add(NodeId(1), P0));
    rig.check();
}

#[test]
fn a_founder_that_ends_while_the_cluster_is_formed_belongs_to_it() {
    // After each number of rounds, and so also between the others' forming and its own.
    for rounds in 0..12 {
        let mut rig = Rig::new(&["x", "y", "z"], 1);
        (1..=3).for_each(|node| rig.start(NodeId(node)));
        if rounds % 2 == 0 {
            rig.cut = vec![(NodeId(1), NodeId(3))];
        }
        for _ in 0..rounds / 2 {
            rig.round();
        }
        rig.crash(NodeId(3));
        rig.cut.clear();
        rig.start(NodeId(3));
        rig.until("all have started", |rig| (1..=3).all(|node| rig.has_booted(NodeId(node))));
    }
}

#[test]
fn a_formed_cluster_starts_again_with_a_majority() {
    let mut rig = Rig::running(&["x", "y", "z"], 1);
    assert!(rig.add(NodeId(1), P0));
    rig.check();
    (1..=3).for_each(|node| rig.crash(NodeId(node)));
    rig.start(NodeId(2));
    rig.start(NodeId(3));
    rig.until("a majority goes on", |rig| rig.has_booted(NodeId(2)) && rig.has_booted(NodeId(3)));
    assert!(rig.add(NodeId(2), P0));
    rig.check();
}

#[test]
fn a_founder_without_its_disk_ends_and_votes_for_nobody() {
    let mut rig = Rig::running(&["x", "y", "z"], 1);
    assert!(rig.add(NodeId(1), P0));
    rig.check();
    rig.crash(NodeId(2));
    rig.crash(NodeId(3));
    rig.wipe(NodeId(3));
    rig.start(NodeId(3));
    rig.until("it ends", |rig| !rig.is_running(NodeId(3)));
    let text = rig.ended(NodeId(3)).expect("it says why");
    assert!(text.contains("its disk was lost") && text.contains("add-node"), "{text}");
    // Nobody leads: with the forgetful one there would be two of three.
    let before = rig.node(NodeId(1)).status().confirmed;
    for _ in 0..100 {
        rig.round();
    }
    assert_eq!(rig.node(NodeId(1)).status().confirmed, before);
    rig.start(NodeId(2));
    rig.until("a majority goes on", |rig| rig.has_booted(NodeId(2)));
    rig.check();
}
