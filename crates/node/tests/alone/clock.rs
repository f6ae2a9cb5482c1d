//! A node that stands alone whose clock is set, or wrong when it starts.

use crate::rig::Rig;
use ordo_node::FsyncPolicy;
use ordo_node::clock::CORRECT_AFTER_MS;
use ordo_node::cluster::ClusterOptions;
use redis_surface::IdempotentProcedure;
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::Reply;

const HOUR_MS: i64 = 3_600_000;
const BEGAN_MS: u64 = 1_700_000_000_000;

fn start(disk: &Arc<VirtualDisk>, now_ms: u64, set_ms: i64) -> Rig {
    let options = ClusterOptions { fsync: FsyncPolicy::No, ..ClusterOptions::alone() };
    Rig::recover_at(disk, options, now_ms, set_ms).expect("files that can be used")
}

/// The time of a batch that is made now.
fn epoch_ms(rig: &mut Rig) -> u64 {
    rig.submit("a", 1).expect("it takes requests");
    rig.engine.view().final_time_ms()
}

#[test]
fn a_step_moves_no_stamp_and_later_the_date() {
    for step_ms in [HOUR_MS, -HOUR_MS, 3_000] {
        let mut rig = start(&Arc::new(VirtualDisk::new(1)), BEGAN_MS, 0);
        assert_eq!(epoch_ms(&mut rig), BEGAN_MS);
        rig.set_ms = step_ms;
        rig.wait_ms(CORRECT_AFTER_MS);
        assert_eq!(epoch_ms(&mut rig), BEGAN_MS + CORRECT_AFTER_MS);
        assert_eq!(rig.node.clock().offset_ms, 0, "it may be set right yet");
        assert_eq!(rig.warnings.len(), 1, "{:?}", rig.warnings);
        rig.wait_ms(1_000);
        assert_eq!(rig.node.clock().offset_ms, -step_ms);
        assert!(!rig.node.clock().is_wrong);
        assert_eq!(epoch_ms(&mut rig), BEGAN_MS + CORRECT_AFTER_MS + 1_000);
    }
}

#[test]
fn a_clock_that_is_a_little_off_is_followed_slowly() {
    let mut rig = start(&Arc::new(VirtualDisk::new(1)), BEGAN_MS, 0);
    rig.set_ms = -300;
    rig.wait_ms(100_000);
    assert_eq!(epoch_ms(&mut rig), BEGAN_MS + 100_000 - 100);
    rig.wait_ms(300_000);
    assert_eq!(epoch_ms(&mut rig), BEGAN_MS + 400_000 - 300);
    assert_eq!((rig.node.clock().offset_ms, rig.warnings.len()), (0, 0));
}

#[test]
fn downtime_counts_and_a_clock_before_the_logs_end_does_not() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut rig = start(&disk, BEGAN_MS, 0);
    epoch_ms(&mut rig);
    let later_ms = BEGAN_MS + HOUR_MS.cast_unsigned();
    let mut rig = start(&disk, later_ms, 0);
    assert_eq!(epoch_ms(&mut rig), later_ms);
    assert_eq!(rig.warnings.len(), 0, "{:?}", rig.warnings);

    let mut rig = start(&disk, later_ms + 60_000, -HOUR_MS);
    assert_eq!(rig.warnings.len(), 1, "{:?}", rig.warnings);
    assert!(rig.warnings[0].contains("59 min before the end of the log"), "{:?}", rig.warnings);
    assert_eq!(epoch_ms(&mut rig), later_ms, "nobody knows of the minute");
    rig.wait_ms(CORRECT_AFTER_MS + 1_000);
    assert_eq!(epoch_ms(&mut rig), later_ms + CORRECT_AFTER_MS + 1_000, "time goes on");
    assert_eq!(rig.node.clock().offset_ms, HOUR_MS - 60_000);

    // The offset is part of the state: the next start counts the time that has passed.
    let mut rig = start(&disk, later_ms + 180_000, -HOUR_MS);
    assert_eq!(epoch_ms(&mut rig), later_ms + 120_000);
}

#[test]
fn a_start_knows_the_offset_wherever_it_is() {
    // Whether a checkpoint has the offset, or the log behind one, or there is no checkpoint.
    for (before, behind) in [(false, true), (true, false), (false, false)] {
        let disk = Arc::new(VirtualDisk::new(1));
        let mut rig = start(&disk, BEGAN_MS, -HOUR_MS);
        epoch_ms(&mut rig);
        if before {
            rig.checkpoint();
        }
        // The clock is set right.
        rig.set_ms = 0;
        rig.wait_ms(CORRECT_AFTER_MS + 1_000);
        assert_eq!(rig.node.clock().offset_ms, -HOUR_MS);
        if behind {
            rig.checkpoint();
        }
        let then_ms = epoch_ms(&mut rig);
        let now_ms = rig.now_ms;
        drop(rig);
        let mut rig = start(&disk, now_ms + 60_000, 0);
        assert_eq!(rig.warnings, Vec::<String>::new());
        assert_eq!(epoch_ms(&mut rig), then_ms + 60_000, "a leap would end times to live");
        assert!(!rig.node.clock().is_wrong);
    }
}

/// Behind a checkpoint or not, the node has executed its log again when it looks at the clock.
#[track_caller]
fn check_told_at_start(has_checkpoint: bool) {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut rig = start(&disk, BEGAN_MS, 0);
    epoch_ms(&mut rig);
    if has_checkpoint {
        rig.checkpoint();
    }
    drop(rig);
    let rig = start(&disk, BEGAN_MS + 60_000, -HOUR_MS);
    assert!(rig.warnings[0].contains("before the end of the log"), "{:?}", rig.warnings);
    drop(rig);
    let year_ms = 365 * 24 * HOUR_MS;
    let rig = start(&disk, BEGAN_MS + 120_000, year_ms);
    assert!(rig.warnings[0].contains("after the end of the log"), "{:?}", rig.warnings);
}

#[test]
fn a_start_behind_a_checkpoint_tells_how_far_the_clock_is_from_the_logs_end() {
    check_told_at_start(true);
}

#[test]
fn a_start_without_a_checkpoint_tells_how_far_the_clock_is_from_the_logs_end() {
    check_told_at_start(false);
}

/// Runs a command of Redis. Each is one of its own.
fn run(rig: &mut Rig, command: &str) -> Reply {
    let id = rig.now_ms;
    rig.tick(1);
    rig.call(Arc::new(IdempotentProcedure), &format!("{id} {command}"))
}

fn integer(rig: &mut Rig, command: &str) -> i64 {
    match run(rig, command) {
        Reply::Integer(integer) => integer,
        other => panic!("{command}: {other:?}"),
    }
}

#[test]
fn dates_follow_the_correction_and_times_to_live_do_not() {
    let mut rig = start(&Arc::new(VirtualDisk::new(1)), BEGAN_MS, HOUR_MS);
    let date_s = |ms: u64| (BEGAN_MS + ms) / 1_000;
    run(&mut rig, "set relative v ex 600");
    run(&mut rig, &format!("set absolute v exat {}", date_s(2 * HOUR_MS.cast_unsigned())));
    // The clock is set right, and with it the date.
    rig.set_ms = 0;
    rig.wait_ms(CORRECT_AFTER_MS + 1_000);
    assert_eq!(rig.node.clock().offset_ms, HOUR_MS);
    let now_s = i64::try_from(date_s(11_000)).expect("a date");

    let Reply::Array(time) = run(&mut rig, "time") else { panic!() };
    assert_eq!(time[0], Reply::bulk(now_s.to_string()));
    assert_eq!(integer(&mut rig, "ttl relative"), 589);
    assert_eq!(integer(&mut rig, "ttl absolute"), 3_589, "as much as it had when the command came");
    assert_eq!(integer(&mut rig, "expiretime relative"), now_s + 589);
    assert_eq!(integer(&mut rig, "expiretime absolute"), now_s + 3_589);

    // What is said from now on goes by the date of now.
    run(&mut rig, &format!("expireat absolute {}", now_s + 100));
    assert_eq!(integer(&mut rig, "ttl absolute"), 100);
    assert_eq!(integer(&mut rig, "pexpiretime absolute"), (now_s + 100) * 1_000);
    run(&mut rig, &format!("set other v pxat {}", (now_s + 50) * 1_000));
    assert_eq!(integer(&mut rig, "ttl other"), 50);
    run(&mut rig, &format!("getex other exat {}", now_s + 70));
    assert_eq!(integer(&mut rig, "ttl other"), 70);
    let Reply::Bulk(id) = run(&mut rig, "xadd stream * f v") else { panic!() };
    let id = String::from_utf8(id.as_bytes().to_vec()).expect("an id");
    assert!(id.starts_with(&now_s.to_string()), "{id}");
    assert_eq!(integer(&mut rig, &format!("expireat relative {}", now_s - 1)), 1);
    assert_eq!(run(&mut rig, "get relative"), Reply::Nil);
    run(&mut rig, "set early v pxat 1");
    assert_eq!(run(&mut rig, "get early"), Reply::Nil);
}
