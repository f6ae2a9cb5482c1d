//! Replicas that compare what they hold.

use crate::rig::Rig;
use ordo_node::Refused;
use ordo_node::cluster::{COMPARED_EVERY, Condition, Frame};
use store::Digests;
use txn::{NodeId, PartitionId, Position};

const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);

fn digests(rig: &Rig, node: NodeId, partition: PartitionId) -> &Digests {
    let mut engines = rig.node(node).engines();
    let (_, engine) = engines.find(|&(found, _)| found == partition).expect("it keeps the partition");
    engine.view().digests()
}

/// Adds to all partitions, until somebody has compared an epoch of another stretch.
fn go_on(rig: &mut Rig, nodes: &[NodeId]) {
    let before: Vec<u64> = nodes.iter().map(|&node| rig.node(node).status().compared.epoch.0).collect();
    for _ in 0..20 * COMPARED_EVERY {
        let running: Vec<NodeId> = nodes.iter().copied().filter(|&node| rig.is_running(node)).collect();
        let has_compared = |(&node, &before): (&NodeId, &u64)| {
            !rig.is_running(node) || rig.node(node).status().compared.epoch.0 >= before + 2 * COMPARED_EVERY
        };
        if nodes.iter().zip(&before).all(has_compared) {
            return;
        }
        for partition in rig.map().expect("a map").partition_ids().collect::<Vec<_>>() {
            for &node in &running {
                rig.add(node, partition);
            }
        }
        rig.round();
    }
    panic!("nothing was compared\n{}", rig.describe());
}

/// Has a node's replica report something else from now on.
fn diverge(rig: &mut Rig, node: NodeId, partition: PartitionId, by: u64) {
    let position = rig.node(node).engines().find(|&(found, _)| found == partition);
    let position =
        position.map(|(_, engine)| engine.view().final_position()).expect("it keeps the partition");
    let known = digests(rig, node, partition).note_at(position).digest().expect("it is known");
    digests(rig, node, partition).load(position, Some(known.wrapping_add(by)));
}

fn nodes(count: u16) -> Vec<NodeId> {
    (1..=count).map(NodeId).collect()
}

#[test]
fn replicas_that_hold_the_same_say_so_and_go_on_also_behind_a_restart() {
    for is_parallel in [false, true] {
        let mut rig = Rig::new(&["x", "y", "z"], 2);
        rig.is_parallel = is_parallel;
        rig.start_all();
        go_on(&mut rig, &nodes(3));
        rig.crash(NodeId(2));
        rig.start(NodeId(2));
        rig.until("it serves again", |rig| rig.has_booted(NodeId(2)));
        go_on(&mut rig, &nodes(3));
        rig.check();
        let positions = nodes(3).into_iter().map(|node| {
            let engines = rig.node(node).engines();
            let of = |(partition, engine): (PartitionId, &std::sync::Arc<dyn execute::Engine>)| {
                let position = engine.view().final_position();
                (partition, position, engine.view().digests().note_at(position).digest())
            };
            engines.map(of).collect::<Vec<(PartitionId, Position, Option<u64>)>>()
        });
        let mut all: Vec<_> = positions.collect();
        assert!(all[0].iter().all(|(_, _, digest)| digest.is_some_and(|digest| digest != 0)), "{all:?}");
        all.dedup();
        assert_eq!(all.len(), 1, "{all:?}");
        for node in nodes(3) {
            let compared = rig.node(node).status().compared;
            assert!(compared.digests > 0 && compared.differences == 0, "{compared:?}");
            assert!(rig.warnings(node).iter().all(|text| !text.contains("state digest")));
        }
    }
}

#[test]
fn a_replica_whose_digest_differs_from_that_of_both_others_halts_its_node() {
    let mut rig = Rig::running(&["x", "y", "z"], 2);
    let victim = rig.leader(P1).expect("a leader");
    go_on(&mut rig, &nodes(3));
    diverge(&mut rig, victim, P1, 5);
    rig.read(victim, P1);
    go_on(&mut rig, &nodes(3));
    assert!(!rig.is_running(victim), "{}", rig.describe());
    let text = rig.ended(victim).expect("it says why");
    for want in
        ["of partition 1 has diverged", "the end of epoch ", "state digest is", "remove the directory"]
    {
        assert!(text.contains(want), "{want}: {text}");
    }
    let others: Vec<NodeId> = nodes(3).into_iter().filter(|&node| node != victim).collect();
    for &node in &others {
        assert!(rig.is_running(node));
        match rig.node(node).condition(victim) {
            Condition::Out(cause) => assert!(cause.contains("has diverged"), "{cause}"),
            condition => panic!("{node} takes {victim} for {condition:?}"),
        }
    }
    // Those that are left go on.
    rig.until("somebody leads both", |rig| {
        let leaders = [P0, P1].map(|partition| rig.leader(partition));
        leaders.iter().all(|leader| leader.is_some_and(|leader| rig.is_running(leader)))
    });
    go_on(&mut rig, &others);
    rig.check();
}

#[test]
fn a_node_that_halts_takes_nothing_any_more() {
    let mut rig = Rig::running(&["x", "y", "z"], 1);
    go_on(&mut rig, &nodes(3));
    rig.keeps_ended = true;
    diverge(&mut rig, NodeId(2), P0, 5);
    go_on(&mut rig, &[NodeId(1), NodeId(3)]);
    let status = rig.node(NodeId(2)).status();
    assert!(status.is_over && status.stopped.is_some_and(|text| text.contains("has diverged")));
    assert!(matches!(rig.node(NodeId(2)).admission(), Err(Refused::ReadOnly(_))));
    let refused = rig.refused(NodeId(2)).len();
    rig.read(NodeId(2), P0);
    assert_eq!(rig.refused(NodeId(2)).len(), refused + 1, "a read is refused at once");
}

#[test]
fn of_two_replicas_that_differ_neither_halts_and_both_warn_once() {
    let mut rig = Rig::running(&["x", "y"], 1);
    go_on(&mut rig, &nodes(2));
    diverge(&mut rig, NodeId(1), P0, 1);
    go_on(&mut rig, &nodes(2));
    go_on(&mut rig, &nodes(2));
    for node in nodes(2) {
        let told: Vec<_> =
            rig.warnings(node).iter().filter(|text| text.contains("the replicas of ")).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("No majority says which one is wrong"), "{told:?}");
        let compared = rig.node(node).status().compared;
        assert!(compared.differences >= 2 && compared.digests > compared.differences, "{compared:?}");
    }
}

#[test]
fn nodes_of_an_older_build_are_told_nothing_and_the_sum_begins_where_the_behaviour_does() {
    let mut rig = Rig::new(&["x", "y", "z"], 1);
    rig.levels.insert(NodeId(3), ordo_node::cluster::levels::COMPARES_STATES - 1);
    rig.start_all();
    let registry = rig.registry.clone();
    rig.tap = Some(Box::new(move |_, bytes, _| {
        let (_, frame) = Frame::decode(&bytes.to_vec().into(), &registry).expect("a frame");
        assert!(!matches!(frame, Frame::States(_)), "nobody may say that yet");
        Vec::new()
    }));
    for _ in 0..3 * COMPARED_EVERY {
        rig.add(NodeId(1), P0);
        rig.round();
    }
    assert!(rig.node(NodeId(1)).confirmed().epoch.0 > 2 * COMPARED_EVERY);
    rig.tap = None;
    rig.crash(NodeId(3));
    rig.levels.clear();
    rig.start(NodeId(3));
    rig.until("it serves again", |rig| rig.has_booted(NodeId(3)));
    go_on(&mut rig, &nodes(3));
    // This one begins with the log's first entry.
    rig.crash(NodeId(1));
    rig.start(NodeId(1));
    rig.until("it serves again", |rig| rig.has_booted(NodeId(1)));
    go_on(&mut rig, &nodes(3));
    for node in nodes(3) {
        assert_eq!(rig.node(node).status().compared.differences, 0);
    }
}
