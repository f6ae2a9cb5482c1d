//! The node as a state machine: fsync policies, grouping, back-pressure, and a disk that fails.

use crate::rig::{Rig, options};
use ordo_node::cluster::ClusterEvent;
use ordo_node::{FsyncPolicy, Limits, Refused};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::Position;

const POLICIES: [FsyncPolicy; 3] = [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No];

fn rig(fsync: FsyncPolicy) -> Rig {
    Rig::recover(&Arc::new(VirtualDisk::new(1)), options(fsync)).unwrap()
}

/// Where the engine stands: the last position that was delivered, and the last one that is final.
fn places(rig: &Rig) -> (Position, Position) {
    (rig.engine.status().delivered, rig.last())
}

#[test]
fn always_answers_after_the_sync_and_not_before() {
    let mut rig = rig(FsyncPolicy::Always);
    rig.submit("a", 3).unwrap();
    assert_eq!((places(&rig), rig.acknowledged()), ((Position(3), Position(0)), 0));
    assert!(rig.node.status().confirmed < rig.node.status().delivered);
    assert_eq!(rig.node.status().waiting, 3);
    assert!(rig.end_sync());
    assert_eq!((places(&rig), rig.acknowledged()), ((Position(3), Position(3)), 3));
    assert_eq!(rig.node.status().confirmed, rig.node.status().delivered);
    assert_eq!(rig.node.status().waiting, 0);
    assert!(!rig.end_sync(), "nothing is left to sync");
}

#[test]
fn what_is_written_during_a_sync_shares_the_next_one() {
    let mut rig = rig(FsyncPolicy::Always);
    for _ in 0..10 {
        rig.submit("a", 2).unwrap();
    }
    assert_eq!(rig.hands.syncs_asked, 1, "one sync is on its way at a time");
    rig.end_sync();
    assert_eq!(rig.acknowledged(), 2, "the first sync began before the other batches were written");
    assert_eq!(rig.hands.syncs_asked, 2);
    rig.end_sync();
    assert_eq!((rig.acknowledged(), rig.hands.syncs_asked), (20, 2));
}

#[test]
fn everysec_and_no_answer_after_the_write() {
    for (fsync, syncs) in [(FsyncPolicy::Everysec, 1), (FsyncPolicy::No, 0)] {
        let mut rig = rig(fsync);
        rig.wait_ms(1_000);
        rig.end_syncs();
        rig.wait_ms(1_000);
        let before = rig.hands.syncs_asked;
        rig.submit("a", 3).unwrap();
        assert_eq!(rig.acknowledged(), 3, "{fsync}");
        rig.wait_ms(1_000);
        assert_eq!(rig.hands.syncs_asked - before, syncs, "{fsync}");
        rig.end_syncs();
        assert_eq!(
            rig.hands.records.journal.status().durable == rig.hands.records.journal.status().last,
            syncs > 0,
            "{fsync}"
        );
    }
}

#[test]
fn everysec_syncs_within_a_second_and_not_more_often() {
    let mut rig = rig(FsyncPolicy::Everysec);
    rig.wait_ms(1_000);
    rig.end_syncs();
    let before = rig.hands.syncs_asked;
    for round in 1..=50 {
        rig.submit("a", 1).unwrap();
        rig.wait_ms(100);
        rig.end_syncs();
        let wanted = round / 10;
        assert!((wanted..=wanted + 1).contains(&(rig.hands.syncs_asked - before)), "{round}");
    }
    rig.wait_ms(1_000);
    rig.end_syncs();
    let disk = Arc::new(rig.disk.copy_of_durable(2));
    drop(rig);
    let rig = Rig::recover(&disk, options(FsyncPolicy::Everysec)).unwrap();
    assert_eq!(rig.value("a"), 50, "what was acknowledged a second ago survives the loss of power");
}

#[test]
fn an_idle_node_syncs_nothing() {
    for fsync in POLICIES {
        let mut rig = rig(fsync);
        rig.wait_ms(1_000);
        rig.end_syncs();
        let before = rig.disk.counters();
        for _ in 0..50 {
            rig.wait_ms(1_000);
            rig.end_syncs();
        }
        assert_eq!(rig.disk.counters(), before, "{fsync}");
    }
}

#[test]
fn more_than_the_limits_allow_stays_with_the_caller() {
    let mut opts = options(FsyncPolicy::Always);
    opts.limits = Limits { in_flight_requests_max: 10, in_flight_bytes_max: 1 << 30 };
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), opts.clone()).unwrap();
    rig.submit("a", 9).unwrap();
    rig.submit("a", 5).unwrap();
    let mut requests = vec![rig.add("a")];
    assert_eq!(rig.node.submit(&mut requests, rig.now_ms, &mut rig.effects), Err(Refused::Busy));
    assert_eq!(requests.len(), 1);
    rig.end_sync();
    rig.submit("a", 1).expect("the first batch has made room");

    opts.limits = Limits { in_flight_requests_max: u64::MAX, in_flight_bytes_max: 80 };
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), opts).unwrap();
    rig.submit("a", 1).unwrap();
    let bytes_of_one = rig.node.status().waiting_bytes;
    assert!((40..80).contains(&bytes_of_one), "{bytes_of_one}");
    rig.submit("a", 1).unwrap();
    assert_eq!(rig.submit("a", 1), Err(Refused::Busy), "bytes are bounded too");
    rig.end_syncs();
    assert_eq!(rig.node.status().waiting_bytes, 0);
    rig.submit("a", 1).unwrap();
    assert_eq!(rig.node.status().waiting_bytes, bytes_of_one);
}

/// Whether a request is refused because the log takes nothing.
fn is_read_only(rig: &mut Rig) -> bool {
    match rig.submit("a", 1) {
        Err(Refused::ReadOnly(text)) => text.starts_with("MISCONF"),
        _ => false,
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_and_loses_nothing_that_waits() {
    for fsync in POLICIES {
        let mut rig = rig(fsync);
        rig.submit("a", 5).unwrap();
        rig.end_syncs();
        rig.disk.fill_up_after(0);
        rig.submit("a", 4).unwrap();
        assert_eq!(rig.node.status().write_failures, 1, "{fsync}");
        assert!(is_read_only(&mut rig), "{fsync}: at once");
        assert!(rig.node.out().is_some() && !rig.node.status().is_over, "{fsync}");
        assert_eq!(rig.value("a"), 5, "{fsync}: reads go on, and see nothing of it");
        rig.wait_ms(400);
        assert_eq!(rig.refusals().len(), 0, "{fsync}: there may be space soon");
        rig.wait_ms(100);
        let refusals = rig.refusals();
        assert_eq!(refusals.len(), 4, "{fsync}");
        assert!(refusals[0].starts_with("ORDOUNKNOWN"), "{}", refusals[0]);
        assert!(refusals[0].contains("takes effect once there is space"), "{}", refusals[0]);
        rig.wait_ms(3_000);
        assert!(is_read_only(&mut rig), "{fsync}: the tries fail as well");
        assert_eq!((rig.value("a"), rig.refusals().len()), (5, 4), "{fsync}");

        rig.disk.make_space();
        assert!(is_read_only(&mut rig), "{fsync}: nobody has tried yet");
        rig.wait_ms(1_000);
        rig.end_syncs();
        assert!(std::mem::take(&mut rig.effects.recovered), "{fsync}: clients are told");
        assert_eq!(rig.value("a"), 9, "{fsync}: what waited took effect");
        rig.submit("a", 2).unwrap_or_else(|refused| panic!("{fsync}: {refused}"));
        rig.end_syncs();
        assert_eq!((rig.value("a"), rig.acknowledged(), rig.last()), (11, 7, Position(11)), "{fsync}");
        assert_eq!((rig.node.status().stopped, rig.node.out()), (None, None), "{fsync}");
        assert_eq!((rig.news.len(), rig.warnings.len()), (1, 0), "{fsync}: {:?}", rig.news);

        rig.hands.records.journal.sync().unwrap();
        rig.disk.crash();
        let rig = Rig::recover(&rig.disk.clone(), options(fsync)).unwrap();
        assert_eq!((rig.value("a"), rig.last()), (11, Position(11)), "{fsync}: each of them once");
    }
}

#[test]
fn what_waits_for_space_is_written_first_also_where_clients_were_told_nothing() {
    let mut rig = rig(FsyncPolicy::Always);
    rig.submit("a", 5).unwrap();
    // The first batch is written, and the next one finds no room.
    rig.disk.fill_up_after(100);
    rig.submit("a", 4).unwrap();
    rig.submit("a", 3).unwrap_err();
    rig.end_sync();
    assert_eq!((rig.value("a"), rig.acknowledged()), (5, 5), "what was written is confirmed meanwhile");
    rig.disk.make_space();
    rig.hands.wants_room = true;
    rig.make_room();
    rig.end_syncs();
    rig.submit("a", 1).expect("the node is back");
    rig.end_syncs();
    assert_eq!((rig.value("a"), rig.acknowledged(), rig.refusals().len()), (10, 10, 0));
}

#[test]
fn a_restart_on_a_full_disk_takes_what_was_written_and_nothing_half() {
    for fsync in POLICIES {
        let mut rig = rig(fsync);
        rig.submit("a", 5).unwrap();
        rig.end_syncs();
        rig.disk.fill_up_after(60);
        rig.submit("a", 4).unwrap();
        rig.wait_ms(3_000);
        assert!(is_read_only(&mut rig), "{fsync}");
        let disk = rig.disk.clone();
        drop(rig);
        disk.make_space();
        let rig = Rig::recover(&disk, options(fsync)).unwrap();
        assert_eq!((rig.value("a"), rig.last()), (5, Position(5)), "{fsync}");
    }
}

#[test]
fn a_failed_sync_acknowledges_nothing_more_and_says_that_it_does_not_know() {
    let mut rig = rig(FsyncPolicy::Always);
    rig.submit("a", 5).unwrap();
    rig.end_sync();
    rig.submit("a", 2).unwrap();
    rig.submit("a", 3).unwrap();
    rig.disk.fail_sync_after(0);
    rig.end_sync();
    assert!(is_read_only(&mut rig), "at once");
    assert_eq!(rig.node.status().sync_failures, 1);
    rig.wait_ms(500);
    let refusals = rig.refusals();
    assert_eq!(refusals.len(), 5, "all that was not confirmed");
    assert!(refusals[0].starts_with("ORDOUNKNOWN"), "{}", refusals[0]);
    assert!(refusals[0].contains("outcome of this write is unknown"), "{}", refusals[0]);
    assert_eq!((rig.value("a"), rig.acknowledged()), (5, 5), "reads of final state go on");
    for _ in 0..5 {
        rig.wait_ms(1_000);
        rig.end_syncs();
        assert!(is_read_only(&mut rig));
    }
    assert!(!rig.hands.wants_room, "no room helps");
    assert_eq!((rig.value("a"), rig.acknowledged(), rig.refusals().len()), (5, 5, 5));
    let status = rig.node.status();
    assert!(status.confirmed < status.delivered, "{status:?}");
    rig.disk.crash();
    let mut rig = Rig::recover(&rig.disk.clone(), options(FsyncPolicy::Always)).unwrap();
    assert!((5..=10).contains(&rig.value("a")), "what was acknowledged is there");
    rig.submit("a", 1).expect("a restart helps");
}

#[test]
fn a_failed_sync_under_everysec_keeps_what_was_acknowledged_and_refuses_the_rest() {
    let mut rig = rig(FsyncPolicy::Everysec);
    rig.wait_ms(1_000);
    rig.end_syncs();
    rig.submit("a", 5).unwrap();
    rig.disk.fail_sync_after(0);
    rig.wait_ms(1_000);
    assert!(rig.end_sync());
    rig.wait_ms(1_000);
    assert_eq!((rig.value("a"), rig.acknowledged(), rig.refusals().len()), (5, 5, 0));
    assert!(is_read_only(&mut rig));
}

#[test]
fn a_stopping_node_takes_nothing_and_finishes_what_it_has() {
    for fsync in POLICIES {
        let mut rig = rig(fsync);
        rig.submit("a", 2).unwrap();
        rig.submit("a", 2).unwrap();
        rig.handle(ClusterEvent::Stop);
        assert_eq!(rig.submit("a", 1), Err(Refused::ShuttingDown));
        assert_eq!(rig.node.is_idle(), fsync != FsyncPolicy::Always, "{fsync}");
        rig.end_syncs();
        assert!(rig.node.is_idle(), "{fsync}");
        assert_eq!(rig.acknowledged(), 4);
    }
}
