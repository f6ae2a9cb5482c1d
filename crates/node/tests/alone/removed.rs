//! Log files that somebody removes while the node uses them.

use crate::rig::{Rig, StartRefused, files, options};
use log::{Disk, OpenError};
use ordo_node::FsyncPolicy;
use ordo_node::cluster::ClusterEvent;
use sim::disk::VirtualDisk;
use std::sync::Arc;

/// Writes several segments, after some checkpoints.
fn write(rig: &mut Rig, checkpoints: usize) -> i64 {
    for _ in 0..checkpoints {
        for _ in 0..30 {
            rig.submit("a", 5).unwrap();
            rig.end_syncs();
        }
        rig.checkpoint();
    }
    for _ in 0..60 {
        rig.submit("a", 5).unwrap();
        rig.end_syncs();
    }
    assert!(files(&rig.disk, "log-").len() > 1, "several segments");
    rig.value("a")
}

/// Removes log files of a node as somebody would, and tells the node as the server does.
fn remove(rig: &mut Rig, names: &[String]) {
    for name in names {
        rig.disk.remove(name).unwrap();
    }
    rig.disk.sync_dir().unwrap();
    let current = rig.hands.records.journal.segment_names().pop().unwrap();
    if names.contains(&current) {
        rig.hands.records.journal.leave_removed().unwrap();
    }
    rig.handle(ClusterEvent::LogLost);
}

#[test]
fn what_removed_files_held_is_in_a_checkpoint_that_comes_by_itself() {
    for fsync in [FsyncPolicy::Always, FsyncPolicy::Everysec, FsyncPolicy::No] {
        for checkpoints in [0, 1, 3] {
            let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), options(fsync)).unwrap();
            let written = write(&mut rig, checkpoints);
            let names = files(&rig.disk, "log-");
            remove(&mut rig, &names);
            assert!(rig.node.status().has_lost_log, "{fsync}, {checkpoints}");
            rig.submit("a", 3).expect("clients are served meanwhile");
            rig.end_syncs();
            let epoch = rig.finish_checkpoint();
            let status = rig.node.status();
            assert!(!status.has_lost_log, "{fsync}, {checkpoints}");
            assert_eq!(
                (status.newest_checkpoint, status.log_begin),
                (epoch, epoch),
                "{fsync}, {checkpoints}"
            );
            let news = rig.news.join("\n");
            assert!(news.contains("what the removed log files held"), "{news}");
            rig.submit("a", 2).unwrap();
            rig.hands.records.journal.sync().unwrap();
            let disk = Arc::new(rig.disk.copy_of_durable(2));
            drop(rig);
            let mut again = Rig::recover(&disk, options(fsync)).unwrap();
            assert_eq!(again.value("a"), written + 5, "{fsync}, {checkpoints}");
            assert!(again.unusable.is_none());
            again.checkpoint();
            again.checkpoint();
            drop(again);
            let again = Rig::recover(&disk, options(fsync)).unwrap();
            assert_eq!(again.value("a"), written + 5, "{fsync}, {checkpoints}");
        }
    }
}

#[test]
fn a_checkpoint_that_was_on_its_way_is_not_enough() {
    let fsync = FsyncPolicy::No;
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), options(fsync)).unwrap();
    let written = write(&mut rig, 1);
    rig.handle(ClusterEvent::CheckpointWanted);
    rig.submit("a", 5).unwrap();
    let names = files(&rig.disk, "log-");
    remove(&mut rig, &names);
    rig.finish_checkpoint();
    assert!(rig.node.status().has_lost_log, "the last five additions are in no checkpoint");
    rig.wait_ms(2_000);
    rig.finish_checkpoint();
    assert!(!rig.node.status().has_lost_log);
    rig.hands.records.journal.sync().unwrap();
    let disk = Arc::new(rig.disk.copy_of_durable(2));
    let again = Rig::recover(&disk, options(fsync)).unwrap();
    assert_eq!(again.value("a"), written + 5);
}

#[test]
fn a_checkpoint_that_fails_is_tried_again() {
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), options(FsyncPolicy::No)).unwrap();
    write(&mut rig, 0);
    let names = files(&rig.disk, "log-");
    remove(&mut rig, &names);
    rig.disk.fail_write_after(0);
    rig.end_syncs();
    rig.write_checkpoint();
    assert_eq!(rig.warnings.len(), 1, "{:?}", rig.warnings);
    assert!(rig.node.status().has_lost_log);
    rig.wait_ms(2_000);
    rig.finish_checkpoint();
    assert!(!rig.node.status().has_lost_log);
}

#[test]
fn older_files_may_be_the_ones_that_are_missing() {
    let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), options(FsyncPolicy::Everysec)).unwrap();
    let written = write(&mut rig, 0);
    let oldest = files(&rig.disk, "log-").remove(0);
    remove(&mut rig, &[oldest]);
    rig.finish_checkpoint();
    assert!(!rig.node.status().has_lost_log);
    rig.hands.records.journal.sync().unwrap();
    let disk = Arc::new(rig.disk.copy_of_durable(2));
    let again = Rig::recover(&disk, options(FsyncPolicy::Everysec)).unwrap();
    assert_eq!(again.value("a"), written);
}

#[test]
fn a_start_before_the_checkpoint_is_refused_and_finds_no_half() {
    for checkpoints in [0, 3] {
        let mut rig = Rig::recover(&Arc::new(VirtualDisk::new(1)), options(FsyncPolicy::No)).unwrap();
        write(&mut rig, checkpoints);
        let names = files(&rig.disk, "log-");
        remove(&mut rig, &names);
        rig.submit("a", 1).unwrap();
        rig.hands.records.journal.sync().unwrap();
        let disk = Arc::new(rig.disk.copy_of_durable(2));
        let refused = Rig::recover(&disk, options(FsyncPolicy::No)).err().expect("a refusal");
        let is_known = matches!(refused, StartRefused::Journal(OpenError::BeginsTooLate { .. }));
        assert!(is_known, "{checkpoints}: {refused}");
    }
}

#[test]
fn a_checkpoint_that_is_newer_than_the_log_is_put_aside() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut rig = Rig::recover(&disk, options(FsyncPolicy::Always)).unwrap();
    let written = write(&mut rig, 0);
    let epoch = rig.checkpoint();
    drop(rig);
    let newest = files(&disk, "log-").pop().unwrap();
    disk.remove(&newest).unwrap();
    let again = Rig::recover(&disk, options(FsyncPolicy::Always)).unwrap();
    let (newer, end) = again.newer.expect("a checkpoint that the log does not reach");
    assert!(newer == epoch && end < epoch, "{newer:?} {end:?}");
    assert_eq!(files(&disk, "newer-checkpoint-").len(), 1);
    assert!(again.value("a") < written);
    drop(again);
    let third = Rig::recover(&disk, options(FsyncPolicy::Always)).unwrap();
    assert_eq!(third.newer, None, "it is told once");
}
