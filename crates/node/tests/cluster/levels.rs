//! Builds of several versions in one cluster, and what comes into force when.

use crate::rig::Rig;
use order::{Changed, Control, LEVEL_FIRST};
use ordo_node::cluster::ClusterEvent;
use txn::hash::mix;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);
const OLD: u32 = LEVEL_FIRST;
const NEW: u32 = OLD + 1;

/// A cluster of three that all run the old build.
fn old(partitions: u16) -> Rig {
    let mut rig = Rig::new(&["x", "y", "z"], partitions);
    for node in 1..=3 {
        rig.levels.insert(NodeId(node), OLD);
    }
    rig.start_all();
    rig
}

fn in_force(rig: &Rig) -> u32 {
    rig.map().expect("a map").level
}

/// What all running nodes go by.
fn agreed(rig: &Rig) -> Option<u32> {
    let running = (1..=4).map(NodeId).filter(|&node| rig.is_running(node));
    let levels: Vec<u32> = running.map(|node| rig.node(node).map().level).collect();
    let &first = levels.first()?;
    levels.iter().all(|&level| level == first).then_some(first)
}

/// Ends a process and starts one of another build; waits until it serves.
fn restart(rig: &mut Rig, node: u16, level: u32) {
    let node = NodeId(node);
    rig.crash(node);
    rig.levels.insert(node, level);
    rig.start(node);
    rig.until("it serves again", |rig| rig.has_booted(node));
}

fn add(rig: &mut Rig) {
    // There are no partitions without a node that has a map.
    let map = rig.map();
    let partitions = map.iter().flat_map(|map| map.partition_ids());
    for partition in partitions.collect::<Vec<_>>() {
        for node in 1..=4 {
            rig.add(NodeId(node), partition);
        }
    }
}

fn rounds(rig: &mut Rig, count: usize) {
    for _ in 0..count {
        rig.round();
    }
}

#[test]
fn a_behaviour_comes_into_force_when_the_last_node_was_restarted_and_not_before() {
    for partitions in [1, 3] {
        let mut rig = old(partitions);
        assert_eq!(in_force(&rig), OLD, "from the first map on");
        for node in 1..=3 {
            // Of the two builds some run the one and some the other, for as long as anybody likes.
            add(&mut rig);
            rounds(&mut rig, 40);
            rig.check();
            assert_eq!(in_force(&rig), OLD, "{node} runs the old build");
            restart(&mut rig, node, NEW);
        }
        rig.until("the new behaviour is in force everywhere", |rig| agreed(rig) == Some(NEW));
        let version = rig.map().expect("a map").version;
        add(&mut rig);
        rounds(&mut rig, 40);
        rig.check();
        assert_eq!(rig.map().expect("a map").version, version, "it was raised once");
    }
}

#[test]
fn a_node_can_go_back_as_long_as_another_runs_the_old_build() {
    let mut rig = old(1);
    restart(&mut rig, 1, NEW);
    restart(&mut rig, 2, NEW);
    restart(&mut rig, 1, OLD);
    restart(&mut rig, 3, NEW);
    add(&mut rig);
    rounds(&mut rig, 60);
    assert_eq!(in_force(&rig), OLD);
    restart(&mut rig, 1, NEW);
    rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
    rig.check();
}

#[test]
fn what_is_raised_is_what_all_know() {
    let mut rig = old(1);
    for (node, level) in [(1, 5), (2, 3), (3, 4)] {
        restart(&mut rig, node, level);
    }
    rig.until("it is raised", |rig| agreed(rig) == Some(3));
    rounds(&mut rig, 60);
    assert_eq!(in_force(&rig), 3);
}

#[test]
fn an_old_build_is_refused_once_the_new_behaviour_is_in_force() {
    for victim in 1..=3 {
        let mut rig = old(2);
        (1..=3).for_each(|node| restart(&mut rig, node, NEW));
        rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
        add(&mut rig);
        rig.check();
        let victim = NodeId(victim);
        let boot = rig.map().expect("a map").nodes[&victim].boot;
        rig.crash(victim);
        rig.levels.insert(victim, OLD);
        rig.start(victim);
        rig.until("it ends", |rig| !rig.is_running(victim));
        let said = rig.ended(victim).expect("it says why").to_owned();
        for want in ["behaviour 2 is in force", "up to 1", "the version of Ordo that the other nodes run"] {
            assert!(said.contains(want), "'{said}' lacks '{want}'");
        }
        // Whoever asks for it, and however late.
        let entry = rig.map().expect("a map").nodes[&victim].clone();
        assert_eq!(entry.boot, boot);
        let other = NodeId(victim.0 % 3 + 1);
        let start = Control::Boot {
            node: victim,
            after: boot,
            nonce: 4_711,
            peer_address: entry.peer_address,
            client_address: entry.client_address,
            level: OLD,
        };
        rig.change(other, start.clone());
        rig.until("it is ordered", |rig| rig.changed(other, &start).is_some());
        assert_eq!(rig.changed(other, &start), Some(Changed::Nothing));
        // The others go on, and the right build goes on from what the wrong one left.
        rig.until("others lead", |rig| {
            [0, 1].iter().all(|&partition| {
                let leader = rig.leader(PartitionId(partition));
                leader.is_some_and(|leader| leader != victim)
            })
        });
        add(&mut rig);
        restart_after_end(&mut rig, victim);
        add(&mut rig);
        rig.check();
        assert_eq!(in_force(&rig), NEW);
    }
}

fn restart_after_end(rig: &mut Rig, node: NodeId) {
    rig.levels.insert(node, NEW);
    rig.start(node);
    rig.until("it serves again", |rig| rig.has_booted(node));
}

/// An old build that was cut off follows the log to the record, and no further: what is behind it may mean
/// something else.
#[test]
fn nothing_behind_the_record_becomes_final_at_an_old_build() {
    let mut rig = old(1);
    restart(&mut rig, 1, NEW);
    restart(&mut rig, 2, NEW);
    // The last one starts with the new build, and again with the old one before it could serve.
    restart(&mut rig, 3, NEW);
    rig.crash(NodeId(3));
    rig.until("it is raised without it", |rig| agreed(rig) == Some(NEW));
    let at = rig.node(NodeId(1)).status().confirmed;
    add(&mut rig);
    rig.check();
    assert!(rig.node(NodeId(1)).status().confirmed > at);
    rig.levels.insert(NodeId(3), OLD);
    rig.start(NodeId(3));
    let mut last = rig.node(NodeId(3)).status().confirmed;
    for _ in 0..200 {
        rig.round();
        if !rig.is_running(NodeId(3)) {
            break;
        }
        last = rig.node(NodeId(3)).status().confirmed;
    }
    assert!(rig.ended(NodeId(3)).is_some(), "{}", rig.describe());
    assert!(last <= at, "{last:?} is behind {at:?}");
}

#[test]
fn who_has_never_started_is_waited_for_and_who_leaves_is_not() {
    let mut rig = old(1);
    let new = rig.add_node(NodeId(2), "d", 0);
    (1..=3).for_each(|node| restart(&mut rig, node, NEW));
    rounds(&mut rig, 60);
    assert_eq!(in_force(&rig), OLD, "nobody knows what d is");
    // One of the old build that is to leave, and is gone: its successor has started.
    restart(&mut rig, 1, OLD);
    rig.crash(NodeId(1));
    rig.drain(NodeId(2), NodeId(1));
    rig.levels.insert(new, NEW);
    rig.start(new);
    rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
    rig.until("the old one is out of the map", |rig| {
        !rig.map().is_some_and(|map| map.nodes.contains_key(&NodeId(1)))
    });
    add(&mut rig);
    rig.check();
}

/// A node that leaves hands over in peace, though it knows nothing of what the others are waiting for.
#[test]
fn an_old_build_that_leaves_hands_over_before_the_behaviour_is_raised() {
    let mut rig = old(2);
    let new = rig.add_node(NodeId(2), "d", 0);
    restart(&mut rig, 2, NEW);
    restart(&mut rig, 3, NEW);
    rig.levels.insert(new, NEW);
    rig.drain(NodeId(2), NodeId(1));
    rig.start(new);
    rig.until("the old one is gone", |rig| !rig.is_running(NodeId(1)));
    let said = rig.ended(NodeId(1)).expect("it says why");
    assert!(said.contains("has left the cluster"), "{said}");
    rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
    add(&mut rig);
    rig.check();
}

#[test]
fn a_change_that_was_decided_before_an_old_build_started_is_void() {
    let mut rig = old(1);
    (1..=3).for_each(|node| restart(&mut rig, node, NEW));
    rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
    let late = Control::RaiseLevel { version: rig.map().expect("a map").version, level: NEW + 1 };
    rig.change(NodeId(2), late.clone());
    rig.until("it is ordered", |rig| rig.changed(NodeId(2), &late).is_some());
    assert_eq!(rig.changed(NodeId(2), &late), Some(Changed::Nothing));
    assert_eq!(in_force(&rig), NEW, "nobody knows it");
}

/// Restarts with builds of either kind, and crashes, at any moment: what is in force never falls, everybody
/// who runs knows it, and nothing is lost.
#[test]
fn rolling_restarts_with_crashes_at_any_moment_lose_nothing() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("ORDO_SEED").unwrap_or(1);
    let count = number("ORDO_SEEDS").unwrap_or(40);
    for seed in first..first + count {
        println!("ORDO_SEED={seed} ORDO_SEEDS=1");
        let draw = |what: u64, below: u64| mix(mix(seed) ^ what) % below;
        let mut rig = old(1 + draw(1, 3) as u16);
        for round in 0..240 {
            if draw(1000 + round, 9) == 0 {
                let node = NodeId(1 + draw(2000 + round, 3) as u16);
                if rig.is_running(node) {
                    rig.crash(node);
                }
                let level = OLD + draw(3000 + round, 3).min(1) as u32;
                rig.levels.insert(node, level);
                rig.start(node);
            }
            rig.round();
            add(&mut rig);
            for node in (1..=3).map(NodeId).filter(|&node| rig.is_running(node)) {
                let level = rig.node(node).map().level;
                assert!(level <= rig.levels[&node], "seed {seed}: {node} goes by what it does not know");
            }
        }
        for node in 1..=3 {
            if rig.is_running(NodeId(node)) {
                rig.crash(NodeId(node));
            }
            rig.levels.insert(NodeId(node), NEW);
            rig.start(NodeId(node));
        }
        rig.until("all serve", |rig| (1..=3).all(|node| rig.has_booted(NodeId(node))));
        rig.until("it is raised", |rig| agreed(rig) == Some(NEW));
        add(&mut rig);
        rig.check();
        assert!(rig.answered.values().sum::<i64>() > 0, "seed {seed}: nothing was answered");
    }
}

/// Who stops in good order hands over what it leads first.
#[test]
fn a_node_that_stops_hands_over_and_says_when_it_has() {
    let mut rig = old(3);
    rig.until("all groups have leaders", |rig| {
        (0..3).all(|partition| rig.leader(PartitionId(partition)).is_some())
    });
    for partition in 0..3 {
        let leader = rig.leader(P0).expect("a leader");
        let to = leader;
        let partition = PartitionId(partition);
        if let Some(other) = rig.leader(partition).filter(|&other| other != leader) {
            rig.handle(other, ClusterEvent::TransferWanted { partition, to });
        }
    }
    let leader = rig.leader(P0).expect("a leader");
    rig.until("it leads all", |rig| {
        (0..3).all(|partition| rig.leader(PartitionId(partition)) == Some(leader))
    });
    assert!(!rig.node(leader).has_handed_over());
    rig.handle(leader, ClusterEvent::Stop);
    assert!(!rig.node(leader).has_handed_over(), "nobody has answered");
    rig.round();
    assert!(rig.node(leader).has_handed_over(), "{}", rig.describe());
    for partition in 0..3 {
        let other = rig.leader(PartitionId(partition)).expect("a leader");
        assert_ne!(other, leader);
    }
    // The last one has nobody to hand over to, and does not wait for anybody.
    let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|&node| node != leader).collect();
    others.iter().for_each(|&node| rig.crash(node));
    rounds(&mut rig, 20);
    assert!(rig.node(leader).has_handed_over());
}
