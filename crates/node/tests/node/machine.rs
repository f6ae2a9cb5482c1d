//! The node as a state machine: fsync policies, grouping, back-pressure, and a disk that fails.

use crate::rig::Rig;
use ordo_node::{Event, FsyncPolicy, Limits, NodeOptions, Refused};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::Position;

fn options(fsync: FsyncPolicy) -> NodeOptions {
    NodeOptions { fsync, ..NodeOptions::default() }
}

fn rig(fsync: FsyncPolicy) -> Rig {
    Rig::recover(&Arc::new(VirtualDisk::new(1)), options(fsync)).unwrap()
}

#[test]
fn always_answers_after_the_sync_and_not_before() {
    let mut rig = rig(FsyncPolicy::Always);
    rig.submit("a", 3).unwrap();
    let status = rig.node.status();
    assert_eq!((status.delivered, status.written, status.synced), (Position(3), Position(3), Position(0)));
    assert_eq!((status.confirmed, rig.acknowledged()), (Position(0), 0));
    assert!(rig.end_sync());
    assert_eq!((rig.node.status().confirmed, rig.acknowledged()), (Position(3), 3));
    assert!(!rig.end_sync(), "nothing is left to sync");
}

#[test]
fn what_is_written_during_a_sync_shares_the_next_one() {
    let mut rig = rig(FsyncPolicy::Always);
    for _ in 0..10 {
        rig.submit("a", 2).unwrap();
    }
    assert_eq!(rig.syncs_asked, 1, "one sync is on its way at a time");
    rig.end_sync();
    assert_eq!(rig.acknowledged(), 2, "the first sync began before the other batches were written");
    assert_eq!(rig.syncs_asked, 2);
    rig.end_sync();
    assert_eq!((rig.acknowledged(), rig.syncs_asked), (20, 2));
}

#[test]
fn everysec_and_no_answer_after_the_write() {
    for (fsync, syncs) in [(FsyncPolicy::Everysec, 1), (FsyncPolicy::No, 0)] {
        let mut rig = rig(fsync);
        rig.tick(0);
        rig.submit("a", 3).unwrap();
        assert_eq!((rig.acknowledged(), rig.syncs_asked), (3, 0), "{fsync}");
        rig.tick(1000);
        assert_eq!(rig.syncs_asked, syncs, "{fsync}");
        rig.end_sync();
        rig.tick(500);
        rig.submit("a", 1).unwrap();
        rig.tick(400);
        assert_eq!(rig.syncs_asked, syncs, "{fsync}: a second is not over");
    }
}

#[test]
fn an_idle_node_syncs_nothing() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        let mut rig = rig(fsync);
        let before = rig.disk.counters();
        for _ in 0..50 {
            rig.tick(1000);
            rig.end_sync();
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
    assert_eq!(rig.node.submit(&mut requests, 0, &mut rig.effects), Err(Refused::Busy));
    assert_eq!(requests.len(), 1);
    rig.end_sync();
    rig.submit("a", 1).expect("the first batch has made room");

    opts.limits = Limits { in_flight_requests_max: u64::MAX, in_flight_bytes_max: 100 };
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), opts).unwrap();
    rig.submit("a", 1).unwrap();
    rig.submit("a", 1).unwrap();
    assert_eq!(rig.submit("a", 1), Err(Refused::Busy), "bytes are bounded too");
    rig.end_sync();
    rig.end_sync();
    rig.submit("a", 1).unwrap();
    assert_eq!(rig.node.status().in_flight_bytes, rig.effects_bytes_of_one());
}

impl Rig {
    /// The log bytes of a batch with one addition, measured on a node of its own.
    fn effects_bytes_of_one(&self) -> u64 {
        let mut other = rig(FsyncPolicy::Always);
        other.submit("a", 1).unwrap();
        other.node.status().in_flight_bytes
    }
}

#[test]
fn a_full_disk_refuses_writes_until_there_is_space_and_corrupts_nothing() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        let mut rig = rig(fsync);
        rig.submit("a", 5).unwrap();
        rig.end_sync();
        rig.disk.fill_up_after(0);
        rig.submit("a", 4).unwrap();
        let refusals = rig.refusals();
        assert_eq!(refusals.len(), 4, "{fsync}");
        assert!(refusals[0].starts_with("MISCONF") && refusals[0].contains("rolled back"), "{}", refusals[0]);
        assert_eq!(rig.value("a"), 5, "{fsync}: reads go on, and see nothing of it");
        assert!(matches!(rig.submit("a", 1), Err(Refused::ReadOnly(_))), "{fsync}");
        rig.tick(1000);
        rig.tick(1000);
        assert!(matches!(rig.submit("a", 1), Err(Refused::ReadOnly(_))), "{fsync}: the probes fail as well");

        rig.disk.make_space();
        assert!(matches!(rig.submit("a", 1), Err(Refused::ReadOnly(_))), "{fsync}: nobody has tried yet");
        rig.tick(1000);
        rig.end_sync();
        rig.submit("a", 2).unwrap_or_else(|refused| panic!("{fsync}: {refused}"));
        while rig.end_sync() {}
        assert_eq!((rig.value("a"), rig.acknowledged(), rig.last()), (7, 7, Position(7)), "{fsync}");
        assert_eq!(rig.node.status().refused, None);
        assert_eq!(
            rig.warnings.len(),
            2,
            "{fsync}: one when it began, one when it ended: {:?}",
            rig.warnings
        );

        rig.log.sync().unwrap();
        rig.disk.crash();
        let rig = Rig::recover(&rig.disk.clone(), options(fsync)).unwrap();
        assert_eq!(
            (rig.value("a"), rig.last()),
            (7, Position(7)),
            "{fsync}: the retracted batch is not in the log"
        );
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
    let refusals = rig.refusals();
    assert_eq!(refusals.len(), 5, "all that was not confirmed");
    assert!(refusals[0].starts_with("MISCONF") && refusals[0].contains("outcome of this write is unknown"));
    assert_eq!((rig.value("a"), rig.acknowledged()), (5, 5), "reads of final state go on");
    for _ in 0..5 {
        rig.tick(1000);
        assert!(matches!(rig.submit("a", 1), Err(Refused::ReadOnly(_))));
    }
    assert!(rig.node.is_drained(), "nothing to wait for at a shutdown");
    let status = rig.node.status();
    assert!(status.confirmed <= status.written && status.written <= status.delivered, "{status:?}");
    rig.disk.crash();
    let rig = Rig::recover(&rig.disk.clone(), options(FsyncPolicy::Always)).unwrap();
    assert!(rig.value("a") >= 5, "what was acknowledged is there");
}

#[test]
fn a_failed_sync_under_everysec_keeps_what_was_acknowledged_and_refuses_the_rest() {
    let mut rig = rig(FsyncPolicy::Everysec);
    rig.submit("a", 5).unwrap();
    rig.disk.fail_sync_after(0);
    rig.tick(1000);
    rig.end_sync();
    assert_eq!((rig.value("a"), rig.acknowledged(), rig.refusals().len()), (5, 5, 0));
    assert!(matches!(rig.submit("a", 1), Err(Refused::ReadOnly(_))));
}

#[test]
fn a_stopping_node_takes_nothing_and_syncs_what_it_has() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        let mut rig = rig(fsync);
        rig.submit("a", 2).unwrap();
        rig.submit("a", 2).unwrap();
        rig.handle(Event::Stop);
        assert_eq!(rig.submit("a", 1), Err(Refused::ShuttingDown));
        assert!(!rig.node.is_drained(), "{fsync}");
        while rig.end_sync() {}
        assert!(rig.node.is_drained(), "{fsync}");
        assert_eq!(rig.acknowledged(), 4);
    }
}
