//! Nodes that execute more slowly than the others order.

use crate::rig::Rig;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);
/// What may wait; and what a message of a leader brings beside it, or what is on its way from a node that is
/// followed.
const BACKLOG_BYTES_MAX: u64 = 1_000;
const MORE_BYTES: u64 = 500;

/// What is ordered while a node executes nothing.
fn order_without(rig: &mut Rig, frozen: NodeId, at: NodeId, partitions: u16) {
    order_beside(rig, frozen, at, partitions, (400, 1), u16::MAX);
    assert!(rig.node(frozen).status().backlog_full > 0);
}

/// What is ordered in some rounds, with so many requests in each, while the engines of a node do one step
/// `every` so many of them. In how many rounds it leads a group.
fn order_beside(
    rig: &mut Rig,
    frozen: NodeId,
    at: NodeId,
    partitions: u16,
    (rounds, requests): (u16, u16),
    every: u16,
) -> usize {
    rig.frozen = Some(frozen);
    let mut leads = 0;
    for round in 0..rounds {
        leads += usize::from((0..partitions).any(|group| rig.leader(PartitionId(group)) == Some(frozen)));
        rig.frozen_steps = u64::from(round % every == every - 1);
        for request in 0..requests {
            let partition = PartitionId((round + request) % partitions);
            assert!(rig.add(at, partition), "{}", rig.describe());
        }
        rig.round();
        let waits = rig.node(frozen).status().backlog_bytes;
        let more = u64::from(partitions) * MORE_BYTES;
        assert!(waits <= BACKLOG_BYTES_MAX + more, "{waits} bytes in round {round}");
    }
    leads
}

#[test]
fn a_follower_that_executes_nothing_holds_no_more_than_its_bound_and_catches_up() {
    let mut rig = Rig::new(&["x", "y", "z"], 1);
    rig.backlog_bytes_max = BACKLOG_BYTES_MAX;
    rig.start_all();
    rig.until("a leader is known", |rig| rig.leader(P0).is_some());
    let leader = rig.leader(P0).expect("a leader");
    let slow = (1..=3).map(NodeId).find(|&node| node != leader).expect("a follower");
    order_without(&mut rig, slow, leader, 1);
    rig.until("the others have answered everything", |rig| rig.answered.get(&P0) == rig.sent.get(&P0));
    let behind = rig.node(leader).confirmed().epoch.0 - rig.node(slow).confirmed().epoch.0;
    assert!(behind > 100, "{behind} epochs: it has taken what it can't hold");
    assert_eq!(rig.node(slow).status().backlog_full, 1);
    let said = rig.warnings(slow).iter().filter(|text| text.contains("executes more slowly")).count();
    assert_eq!(said, 1, "{:?}", rig.warnings(slow));
    rig.frozen = None;
    rig.until("it has caught up", |rig| {
        rig.node(slow).confirmed().epoch == rig.node(leader).confirmed().epoch
    });
    rig.check();
}

#[test]
fn a_leader_that_executes_slowly_hands_over_and_holds_no_more_than_its_bound() {
    let mut rig = Rig::new(&["x", "y", "z"], 2);
    rig.backlog_bytes_max = BACKLOG_BYTES_MAX;
    rig.start_all();
    let groups = || [P0, PartitionId(1)].into_iter();
    rig.until("leaders are known", |rig| groups().all(|group| rig.leader(group).is_some()));
    let slow = rig.leader(P0).expect("a leader");
    let other = (1..=3).map(NodeId).find(|&node| node != slow).expect("another one");
    let leads = order_beside(&mut rig, slow, other, 2, (100, 8), 4);
    assert!(rig.node(slow).status().backlog_full > 0);
    assert!(leads < 50, "it leads in {leads} rounds");
    rig.until("the others have answered everything", |rig| {
        groups().all(|group| rig.answered.get(&group) == rig.sent.get(&group))
    });
    rig.frozen = None;
    rig.until("it has caught up", |rig| {
        rig.node(slow).confirmed().epoch == rig.node(other).confirmed().epoch
    });
    rig.check();
}

#[test]
fn a_node_that_executes_nothing_is_told_no_more_of_groups_that_it_follows_than_it_can_hold() {
    // Each zone has two nodes, and each of those keeps one of two partitions.
    let mut rig = Rig::new(&["x", "x", "y", "y", "z", "z"], 2);
    rig.backlog_bytes_max = BACKLOG_BYTES_MAX;
    rig.feed_window_bytes = 2 * MORE_BYTES;
    rig.start_all();
    let groups = || [P0, PartitionId(1)].into_iter();
    rig.until("leaders are known", |rig| groups().all(|group| rig.leader(group).is_some()));
    let leaders: Vec<NodeId> = groups().map(|group| rig.leader(group).expect("a leader")).collect();
    let slow = (1..=6).map(NodeId).find(|node| !leaders.contains(node)).expect("a follower");
    order_without(&mut rig, slow, leaders[0], 2);
    rig.until("the others have answered everything", |rig| {
        groups().all(|group| rig.answered.get(&group) == rig.sent.get(&group))
    });
    rig.frozen = None;
    rig.until("it has caught up", |rig| {
        rig.node(slow).confirmed().epoch == rig.node(leaders[0]).confirmed().epoch
    });
    rig.check();
}
