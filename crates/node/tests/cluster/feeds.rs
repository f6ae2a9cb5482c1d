//! Who gets the outcomes of its clients' requests from another node, and must get them all.

use crate::rig::Rig;
use std::collections::BTreeMap;
use txn::{NodeId, PartitionId};

const P0: PartitionId = PartitionId(0);

/// The node that keeps no replica of group 0, and its neighbour, which does.
const GATEWAY: NodeId = NodeId(4);
const NEIGHBOUR: NodeId = NodeId(1);

/// A cluster with a node of which clients want what its neighbour executes.
fn spread() -> Rig {
    let rig = Rig::running(&["x", "y", "z", "x"], 2);
    let kept: Vec<PartitionId> = rig.node(GATEWAY).map().kept_by(GATEWAY).collect();
    assert_eq!(kept, [PartitionId(1)]);
    rig
}

fn answered(rig: &Rig) -> i64 {
    rig.answered.get(&P0).copied().unwrap_or(0)
}

/// Whoever is followed remembers what it has told, because it may be lost: but most of it was not.
#[test]
fn a_follower_that_comes_anew_gets_what_it_lacks_and_no_more() {
    let mut rig = spread();
    for _ in 0..200 {
        assert!(rig.add(GATEWAY, P0));
        rig.round();
    }
    rig.until("all is answered", |rig| answered(rig) == 200);
    let before = rig.wire.answers;
    rig.wire.feeds_lost.push((NEIGHBOUR, GATEWAY));
    for _ in 0..3 {
        assert!(rig.add(GATEWAY, P0));
    }
    rig.until("what was lost is answered", |rig| answered(rig) == 203);
    let told = rig.wire.answers - before;
    assert!((3..=9).contains(&told), "3 outcomes were missing, and by those who were asked {told} were told");
}

/// A node wants to follow another, and while its wish is on the way it takes a request, which is executed
/// before that.
#[test]
fn what_is_executed_before_a_wish_comes_is_told() {
    let mut rig = spread();
    rig.wire.follow_ticks = 3;
    rig.wire.feeds_lost.push((NEIGHBOUR, GATEWAY));
    for _ in 0..60 {
        assert!(rig.add(GATEWAY, P0));
        rig.round();
    }
    rig.until("all is answered", |rig| answered(rig) == 60);
}

/// A node has heard that a request is in the order, and not how it ended.
#[test]
fn an_outcome_that_was_lost_is_told_again() {
    let mut rig = spread();
    rig.wire.answers_lost = 1;
    assert!(rig.add(GATEWAY, P0));
    rig.round();
    assert_eq!((rig.wire.answers, answered(&rig)), (1, 0));
    rig.until("it is answered", |rig| answered(rig) == 1);
}

/// Whoever is followed has begun behind a checkpoint that has what was wanted: others know how it ended.
#[test]
fn an_outcome_that_the_neighbour_never_knew_is_told_by_others() {
    let mut rig = spread();
    rig.forgetful = Some(NEIGHBOUR);
    assert!(rig.add(GATEWAY, P0));
    for _ in 0..10 {
        rig.round();
    }
    assert_eq!(answered(&rig), 0);
    rig.until("it is answered", |rig| answered(rig) == 1);
    rig.forgetful = None;
    for _ in 0..200 {
        rig.round();
    }
    // It is back with its neighbour, and nobody else tells it anything.
    let before = rig.wire.answers;
    assert!(rig.add(GATEWAY, P0));
    rig.round();
    assert_eq!((rig.wire.answers - before, answered(&rig)), (1, 2));
    assert_eq!(told_by(&mut rig), [NEIGHBOUR]);
}

/// Who tells the gateway of the group, within some time.
fn told_by(rig: &mut Rig) -> Vec<NodeId> {
    let before = rig.wire.feeds.clone();
    for _ in 0..10 {
        rig.round();
    }
    let of = |feeds: &BTreeMap<(NodeId, NodeId), u64>, node| feeds.get(&(node, GATEWAY)).copied();
    let nodes = [1, 2, 3].map(NodeId).into_iter();
    nodes.filter(|&node| of(&rig.wire.feeds, node) > of(&before, node)).collect()
}

/// A node misses a frame of whom it follows, and follows its neighbour instead, which has come back: one is
/// enough.
#[test]
fn whoever_is_not_followed_any_more_is_told_so() {
    let mut rig = spread();
    rig.crash(NEIGHBOUR);
    for _ in 0..60 {
        rig.round();
    }
    let away = told_by(&mut rig);
    assert!(away.len() == 1 && away[0] != NEIGHBOUR, "{away:?}");
    rig.wire.answers_lost = 1;
    assert!(rig.add(GATEWAY, P0));
    while rig.wire.answers_lost == 1 {
        rig.round();
    }
    rig.start(NEIGHBOUR);
    rig.until("it is answered", |rig| answered(rig) == 1);
    for _ in 0..60 {
        rig.round();
    }
    assert_eq!(told_by(&mut rig), [NEIGHBOUR]);
}

/// A frame was lost, and nobody else is followed yet: what is on its way from whom it followed is still of
/// use, and more of it.
#[test]
fn whoever_was_followed_goes_on_until_another_is() {
    let mut rig = spread();
    for _ in 0..10 {
        rig.round();
    }
    // Wishes to follow take their time.
    rig.wire.follow_ticks = 8;
    rig.wire.unfollows = 0;
    rig.wire.answers_lost = 1;
    for _ in 0..8 {
        assert!(rig.add(GATEWAY, P0));
        rig.round();
    }
    assert_eq!((rig.wire.answers_lost, rig.wire.unfollows), (0, 0));
    rig.until("all is answered", |rig| answered(rig) == 8);
}

/// What many clients wait for takes longer than a node waits until it follows another one.
#[test]
fn what_is_told_too_late_is_of_use() {
    let mut rig = spread();
    rig.wire.feeds_lost.push((NEIGHBOUR, GATEWAY));
    for _ in 0..200 {
        assert!(rig.add(GATEWAY, P0));
    }
    rig.wire.feed_bytes_per_tick = 200;
    rig.until("all is answered", |rig| answered(rig) == 200);
    rig.check();
}

/// Outcomes that wait for a follower may be more than a frame can carry.
#[test]
fn many_outcomes_go_into_several_frames() {
    let mut rig = spread();
    rig.outcome_bytes = 200 << 10;
    rig.wire.feeds_lost.push((NEIGHBOUR, GATEWAY));
    for _ in 0..20 {
        assert!(rig.add(GATEWAY, P0));
    }
    rig.until("all is answered", |rig| answered(rig) == 20);
    let longest = rig.wire.feed_bytes;
    assert!(
        (1 << 20..2 << 20).contains(&longest),
        "20 outcomes of 200 KiB, and the longest frame has {longest} bytes"
    );
}

/// And so may one.
#[test]
fn a_large_outcome_goes_in_parts() {
    let mut rig = spread();
    rig.outcome_bytes = 30 << 20;
    for _ in 0..3 {
        assert!(rig.add(GATEWAY, P0));
    }
    rig.until("all is answered", |rig| answered(rig) == 3);
    let longest = rig.wire.feed_bytes;
    assert!(
        (256 << 10..300 << 10).contains(&longest),
        "3 outcomes of 30 MiB, and the longest frame has {longest} bytes"
    );
}
