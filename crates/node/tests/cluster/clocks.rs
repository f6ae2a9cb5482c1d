//! Clocks that are set, or wrong from the start: epoch time does not follow them, and dates follow a
//! majority.

use crate::rig::Rig;
use ordo_node::clock::{CORRECT_AFTER_MS, GRACE_MS};
use txn::{NodeId, PartitionId};

const HOUR_MS: i64 = 3_600_000;
const GROUP: PartitionId = PartitionId(0);

fn running() -> Rig {
    let mut rig = Rig::running(&["a", "b", "c"], 2);
    // Behind the record that lets nodes correct clocks.
    rig.until("the newest behaviour is in force", |rig| {
        rig.map().is_some_and(|map| map.level == ordo_node::cluster::LEVEL)
    });
    // And behind the moves of leaders that spread them.
    for _ in 0..100 {
        rig.round();
    }
    rig
}

fn others(of: NodeId) -> impl Iterator<Item = NodeId> {
    (1..=3).map(NodeId).filter(move |&node| node != of)
}

/// How far the last epoch's time is ahead of true time, once something was added through a node.
fn ahead_ms(rig: &mut Rig, at: NodeId) -> i64 {
    let before = rig.node(at).confirmed().epoch;
    rig.until("something is added", |rig| rig.node(at).leader(GROUP).is_some());
    assert!(rig.add(at, GROUP));
    rig.until("an epoch is confirmed", |rig| rig.node(at).confirmed().epoch > before);
    rig.node(at).confirmed().time_ms.cast_signed() - rig.now_ms().cast_signed()
}

#[track_caller]
fn assert_right(rig: &mut Rig, at: NodeId) {
    let ahead_ms = ahead_ms(rig, at);
    assert!((-60..=10).contains(&ahead_ms), "epoch time is {ahead_ms} ms ahead");
}

#[test]
fn a_leaders_clock_that_steps_moves_no_stamp() {
    for step_ms in [HOUR_MS, -HOUR_MS, 3_000, -3_000, 400] {
        let mut rig = running();
        let leader = rig.leader(GROUP).expect("a leader");
        rig.set_ms.insert(leader, step_ms);
        for round in 0..400 {
            rig.round();
            if round % 40 == 0 {
                assert_right(&mut rig, leader);
            }
        }
        assert_eq!(rig.leader(GROUP), Some(leader), "a wrong clock is no reason to hand over");
        assert_eq!(rig.node(leader).clock().offset_ms, 0);
        assert_eq!(rig.node(leader).clock().is_wrong, step_ms.abs() > 500, "{step_ms}");
        rig.check();
    }
}

#[test]
fn with_one_node_down_a_step_moves_neither_stamps_nor_dates() {
    for step_ms in [HOUR_MS, -HOUR_MS] {
        for steps_at_leader in [true, false] {
            let mut rig = running();
            let leader = rig.leader(GROUP).expect("a leader");
            let [other, down] = others(leader).collect::<Vec<_>>()[..] else { panic!() };
            rig.crash(down);
            let wrong = if steps_at_leader { leader } else { other };
            rig.set_ms.insert(wrong, step_ms);
            for _ in 0..400 {
                rig.round();
            }
            assert_right(&mut rig, leader);
            assert_eq!(rig.node(leader).clock().offset_ms, 0);
            let warned = |node| rig.warnings(node).iter().any(|text| text.contains("is wrong"));
            let told = [leader, other].map(|node| rig.warnings(node));
            assert!(warned(leader) && warned(other), "{told:?}");
            rig.set_ms.clear();
            for _ in 0..100 {
                rig.round();
            }
            let right = |node| rig.warnings(node).iter().any(|text| text.contains("right again"));
            assert!(right(leader) && right(other));
        }
    }
}

#[test]
fn a_majority_that_steps_changes_the_date_and_no_stamp() {
    let mut rig = running();
    let leader = rig.leader(GROUP).expect("a leader");
    for node in others(leader) {
        rig.set_ms.insert(node, HOUR_MS);
    }
    let rounds = CORRECT_AFTER_MS / 50;
    for _ in 0..rounds - 5 {
        rig.round();
    }
    assert_eq!(rig.node(leader).clock().offset_ms, 0, "it may be set right yet");
    rig.until("the date is corrected", |rig| rig.node(leader).clock().offset_ms != 0);
    for node in (1..=3).map(NodeId) {
        rig.until("it is corrected everywhere", |rig| {
            (-HOUR_MS - 100..-HOUR_MS + 100).contains(&rig.node(node).clock().offset_ms)
        });
    }
    assert_right(&mut rig, leader);
    assert!(rig.node(leader).clock().is_wrong, "the only clock that is right is now wrong");
    rig.set_ms.clear();
    rig.until("the date is right again", |rig| rig.node(leader).clock().offset_ms.abs() < 100);
    assert_right(&mut rig, leader);
    rig.check();
}

#[test]
fn a_node_that_starts_with_a_wrong_clock_takes_the_time_from_those_that_know_it() {
    for step_ms in [HOUR_MS, -HOUR_MS] {
        let mut rig = running();
        let leader = rig.leader(GROUP).expect("a leader");
        rig.crash(leader);
        for node in (1..=3).map(NodeId) {
            // Also where the others' clocks are set while it is down: they know how much time has passed.
            rig.set_ms.insert(node, step_ms);
        }
        for _ in 0..40 {
            rig.round();
        }
        rig.start(leader);
        rig.until("it takes part", |rig| rig.has_booted(leader));
        assert_right(&mut rig, leader);
        rig.check();
    }
}

#[test]
fn when_all_start_a_minority_of_clocks_that_are_ahead_changes_nothing() {
    let mut rig = running();
    for _ in 0..20 {
        rig.round();
    }
    for node in (1..=3).map(NodeId) {
        rig.crash(node);
    }
    // Half an hour of downtime: that is what clocks are asked for.
    rig.wait_ms(HOUR_MS.cast_unsigned() / 2);
    rig.set_ms.insert(NodeId(2), HOUR_MS);
    rig.start(NodeId(1));
    rig.start(NodeId(2));
    rig.until("two nodes take part", |rig| rig.has_booted(NodeId(1)) && rig.has_booted(NodeId(2)));
    for node in [1, 2].map(NodeId) {
        assert_right(&mut rig, node);
    }
    rig.start(NodeId(3));
    rig.until("the third one does", |rig| rig.has_booted(NodeId(3)));
    assert_right(&mut rig, NodeId(3));
    rig.check();
}

#[test]
fn when_all_start_behind_a_correction_time_goes_on_by_the_corrected_date() {
    for step_ms in [HOUR_MS, -HOUR_MS] {
        let mut rig = running();
        for node in (1..=3).map(NodeId) {
            rig.set_ms.insert(node, step_ms);
        }
        rig.until("the date is corrected everywhere", |rig| {
            (1..=3).all(|node| rig.node(NodeId(node)).clock().offset_ms != 0)
        });
        for node in (1..=3).map(NodeId) {
            rig.crash(node);
        }
        rig.wait_ms(60_000);
        for node in (1..=3).map(NodeId) {
            rig.start(node);
        }
        rig.until("all take part", |rig| (1..=3).all(|node| rig.has_booted(NodeId(node))));
        assert_right(&mut rig, NodeId(1));
        rig.check();
    }
}

#[test]
fn nothing_is_stamped_before_the_time_is_known() {
    let mut rig = running();
    for node in (1..=3).map(NodeId) {
        rig.crash(node);
    }
    rig.wait_ms(HOUR_MS.cast_unsigned());
    let epoch = |rig: &Rig| rig.node(NodeId(1)).status().delivered;
    rig.start(NodeId(1));
    for _ in 0..100 {
        rig.round();
    }
    assert!(!rig.node(NodeId(1)).clock().is_set, "one of three knows nothing");
    rig.start(NodeId(2));
    let before = epoch(&rig);
    for _ in 0..GRACE_MS / 50 - 2 {
        rig.round();
        assert_eq!(epoch(&rig), before, "the third one may know the time");
    }
    rig.until("it goes on", |rig| epoch(rig) > before);
    assert_right(&mut rig, NodeId(1));
}

#[test]
fn epoch_time_that_is_ahead_of_all_clocks_goes_on_and_the_date_comes_back() {
    // As an older build has left it, or a majority that was wrong.
    let mut rig = Rig::new(&["a", "b", "c"], 2);
    for node in (1..=3).map(NodeId) {
        rig.set_ms.insert(node, HOUR_MS);
    }
    rig.start_all();
    let leader = rig.leader(GROUP).expect("a leader");
    let far_ms = ahead_ms(&mut rig, leader);
    assert!((far_ms - HOUR_MS).abs() < 100, "{far_ms}");
    for node in (1..=3).map(NodeId) {
        rig.crash(node);
    }
    rig.set_ms.clear();
    for node in (1..=3).map(NodeId) {
        rig.start(node);
    }
    rig.until("all take part", |rig| (1..=3).all(|node| rig.has_booted(NodeId(node))));
    let first_ms = ahead_ms(&mut rig, NodeId(1));
    assert!((far_ms - 5_000..=far_ms).contains(&first_ms), "{first_ms} after {far_ms}");
    rig.until("the date is corrected", |rig| {
        (HOUR_MS - 5_000..=HOUR_MS + 100).contains(&rig.node(NodeId(1)).clock().offset_ms)
    });
    for _ in 0..100 {
        rig.round();
    }
    let later_ms = ahead_ms(&mut rig, NodeId(1));
    assert!((later_ms - first_ms).abs() < 100, "time goes on: {first_ms}, then {later_ms}");
    assert!(!rig.node(NodeId(1)).clock().is_wrong);
    rig.check();
}
