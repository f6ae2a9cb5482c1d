//! Nodes join, take over, and leave.

use crate::rig::Rig;
use order::{Changed, Control};
use ordo_node::cluster::ClusterEvent;
use txn::hash::mix;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);

fn settled(rig: &Rig, voters: &[u16]) -> bool {
    let map = rig.map().expect("a map");
    map.partition_ids().all(|partition| rig.voters(partition).as_deref() == Some(voters))
}

/// Some additions to every partition, through every node that takes them.
fn add(rig: &mut Rig) {
    let map = rig.map().expect("a map");
    for &node in map.nodes.keys() {
        for partition in map.partition_ids() {
            rig.add(node, partition);
        }
    }
}

#[test]
fn a_node_that_joins_takes_over_from_one_that_leaves() {
    for partitions in [1, 3] {
        let mut rig = Rig::running(&["x", "y", "z"], partitions);
        add(&mut rig);
        rig.check();
        let new = rig.add_node(NodeId(2), "d", 0);
        assert_eq!(new, NodeId(4));
        for _ in 0..40 {
            rig.round();
        }
        assert!(settled(&rig, &[1, 2, 3]), "nothing moves by itself");
        rig.drain(NodeId(3), NodeId(1));
        // The new one does not run: nobody lets the old one go.
        for _ in 0..40 {
            rig.round();
        }
        for partition in 0..partitions {
            let leader = rig.leader(PartitionId(partition)).expect("a leader");
            let members = rig.node(leader).group_status(PartitionId(partition)).expect("kept").members;
            assert_eq!(members.voters, [NodeId(1), NodeId(2), NodeId(3)]);
            assert_eq!(members.learners, [NodeId(4)]);
        }
        add(&mut rig);
        rig.start(new);
        rig.until("the groups follow", |rig| settled(rig, &[2, 3, 4]));
        rig.until("the old one ends", |rig| !rig.is_running(NodeId(1)));
        assert!(rig.ended(NodeId(1)).is_some_and(|text| text.contains("has left the cluster")));
        rig.until("it is out of the map", |rig| {
            !rig.map().is_some_and(|map| map.nodes.contains_key(&NodeId(1)))
        });
        rig.until("the new one serves", |rig| rig.has_booted(new));
        add(&mut rig);
        rig.check();
        // What the new one has counts: it makes a majority with one of the others.
        rig.crash(NodeId(2));
        rig.until("two of three go on", |rig| {
            (0..partitions)
                .all(|partition| rig.leader(PartitionId(partition)).is_some_and(|leader| leader != NodeId(2)))
        });
        add(&mut rig);
        rig.check();
    }
}

#[test]
fn a_dead_node_is_replaced() {
    let mut rig = Rig::running(&["x", "y", "z"], 2);
    add(&mut rig);
    rig.check();
    rig.crash(NodeId(1));
    rig.until("others lead", |rig| {
        [0, 1]
            .iter()
            .all(|&partition| rig.leader(PartitionId(partition)).is_some_and(|leader| leader != NodeId(1)))
    });
    let new = rig.add_node(NodeId(2), "d", 0);
    rig.drain(NodeId(2), NodeId(1));
    rig.start(new);
    rig.until("the groups follow", |rig| settled(rig, &[2, 3, 4]));
    rig.until("the old one is out of the map", |rig| {
        !rig.map().is_some_and(|map| map.nodes.contains_key(&NodeId(1)))
    });
    add(&mut rig);
    rig.check();
}

#[test]
fn the_only_voter_hands_over_to_its_successor() {
    let mut rig = Rig::running(&["x"], 2);
    add(&mut rig);
    rig.check();
    let new = rig.add_node(NodeId(1), "d", 0);
    rig.drain(NodeId(1), NodeId(1));
    rig.start(new);
    rig.until("it has taken over", |rig| settled(rig, &[2]));
    rig.until("the old one is gone", |rig| {
        !rig.is_running(NodeId(1)) && rig.map().is_some_and(|map| map.nodes.len() == 1)
    });
    add(&mut rig);
    rig.check();
}

#[test]
fn a_leader_that_leaves_hands_over_first() {
    for leaver in 1..=3 {
        let mut rig = Rig::running(&["x", "y", "z"], 1);
        rig.until("somebody leads", |rig| rig.leader(P0).is_some());
        let leader = rig.leader(P0).expect("a leader");
        let to = NodeId(leaver);
        rig.handle(leader, ClusterEvent::TransferWanted { partition: P0, to });
        rig.until("the leaver leads", |rig| rig.leader(P0) == Some(NodeId(leaver)));
        let new = rig.add_node(NodeId(leaver), "d", leaver - 1);
        rig.drain(NodeId(leaver), NodeId(leaver));
        rig.start(new);
        let stay: Vec<u16> = (1..=4).filter(|&node| node != leaver).collect();
        rig.until("the group follows", |rig| settled(rig, &stay));
        rig.until("the leaver is gone", |rig| !rig.is_running(NodeId(leaver)));
        add(&mut rig);
        rig.check();
    }
}

#[test]
fn a_change_that_was_decided_on_an_older_map_is_refused() {
    let mut rig = Rig::running(&["x", "y", "z"], 1);
    rig.add_node(NodeId(1), "d", 0);
    let late = Control::Drain { version: 1, node: NodeId(1) };
    rig.change(NodeId(2), late.clone());
    rig.until("it is ordered", |rig| rig.changed(NodeId(2), &late).is_some());
    assert_eq!(rig.changed(NodeId(2), &late), Some(Changed::Nothing));
}

/// A replacement with a crash of one node, at any moment of it, for a while.
#[test]
fn a_crash_in_the_middle_of_a_replacement_delays_it_and_loses_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("ORDO_SEED").unwrap_or(1);
    let count = number("ORDO_SEEDS").unwrap_or(60);
    for seed in first..first + count {
        println!("ORDO_SEED={seed} ORDO_SEEDS=1");
        let draw = |what: u64, below: u64| mix(mix(seed) ^ what) % below;
        let partitions = 1 + draw(1, 3) as u16;
        let mut rig = Rig::running(&["x", "y", "z"], partitions);
        add(&mut rig);
        let leaver = NodeId(1 + draw(2, 3) as u16);
        let new = rig.add_node(NodeId(2), "d", leaver.0 - 1);
        rig.drain(NodeId(2), leaver);
        rig.start(new);
        let victim = NodeId(1 + draw(3, 4) as u16);
        let at = draw(4, 60);
        let back = at + 1 + draw(5, 80);
        for round in 0..220 {
            rig.round();
            if round % 5 == 0 {
                add(&mut rig);
            }
            if round == at && rig.is_running(victim) {
                rig.crash(victim);
            }
            if round == back && !rig.is_running(victim) && rig.ended(victim).is_none() {
                rig.start(victim);
            }
        }
        let stay: Vec<u16> = (1..=4).filter(|&node| NodeId(node) != leaver).collect();
        rig.until("the groups follow", |rig| settled(rig, &stay));
        rig.until("the leaver is out of the map", |rig| {
            !rig.map().is_some_and(|map| map.nodes.contains_key(&leaver))
        });
        if rig.is_running(leaver) {
            // It came back when nobody knew it any more: it takes no part, and nothing reaches it.
            rig.crash(leaver);
        }
        add(&mut rig);
        rig.check();
        assert!(rig.answered.values().sum::<i64>() > 0, "seed {seed}: nothing was answered");
    }
}
