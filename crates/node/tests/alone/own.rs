//! Whether a journal is that of a node that stands alone.

use crate::rig::{Rig, RigHost, SEGMENT_BYTES, StartRefused, files, options, registry};
use execute::Serial;
use log::{Disk, Journal};
use order::{Described, PartitionMap};
use ordo_node::FsyncPolicy;
use ordo_node::cluster::{
    ClusterEffects, ClusterEvent, ClusterNode, ClusterOptions, ClusterStart, Frame, Standing, joined_record,
    stands_alone,
};
use ordo_node::host::{HostEvent, drive};
use sim::disk::VirtualDisk;
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{BootId, Epoch, NodeId, PartitionId};

fn start_error(disk: &Arc<VirtualDisk>) -> StartRefused {
    Rig::recover(disk, options(FsyncPolicy::No)).err().expect("the start is refused")
}

/// Opens a journal.
fn open(disk: &Arc<VirtualDisk>, boot_id: u64) -> (Journal<VirtualDisk>, log::GroupImages) {
    let (journal, images, _) = Journal::open(disk.clone(), SEGMENT_BYTES, boot_id).unwrap();
    (journal, images)
}

/// The journal of the first of three founders, once it has heard the others or before.
fn founder(has_heard: bool) -> Arc<VirtualDisk> {
    let described = ["a", "b", "c"].map(|name| Described {
        name: name.to_owned(),
        zone: name.to_owned(),
        peer_address: format!("{name}:7001"),
        client_address: format!("{name}:6379"),
    });
    let map = PartitionMap::new("three", &described, 1).expect("a map");
    let disk = Arc::new(VirtualDisk::new(1));
    let (journal, images) = open(&disk, 1);
    let engine: Arc<dyn execute::Engine> = Arc::new(Serial::new());
    let start = ClusterStart {
        known: Arc::new(map.clone()),
        map,
        images,
        engines: BTreeMap::from([(PartitionId(0), engine)]),
        checkpoint_bytes: 0,
        unusable: false,
        nonce: 7,
    };
    let mut node = ClusterNode::recover(ClusterOptions::new(NodeId(1)), registry(), start).unwrap();
    let mut effects = ClusterEffects::default();
    let mut hands = RigHost::new(disk.clone(), journal);
    let mut handle = |event| {
        let mut told = Some(event);
        while let Some(event) = told {
            node.handle(event, 1_000, &mut effects);
            drive(&mut node, &mut effects, 1_000, &mut hands);
            told = hands.end_sync();
        }
    };
    handle(HostEvent::Tick { wall_ms: 1_000 });
    for other in [2, 3] {
        let frame = Frame::Clock {
            standing: Some(Standing::Bootstrapping { nonce: u64::from(other) }),
            checkpoint: Epoch(0),
            hears_all: false,
            map_version: 1,
        };
        if has_heard {
            handle(HostEvent::Frame { from: NodeId(other), bytes: frame.encode(1_000).into() });
        }
    }
    disk
}

#[test]
fn a_journal_of_a_cluster_is_refused() {
    let disk = founder(true);
    let names = disk.list().unwrap();
    let refused = start_error(&disk);
    assert!(matches!(refused, StartRefused::OfCluster), "{refused}");
    assert_eq!(disk.list().unwrap(), names, "nothing was made");
    // A founder that has heard of nobody has nothing that anybody could miss.
    let (_, images) = open(&founder(false), 2);
    assert!(stands_alone(&images));
}

#[test]
fn a_journal_of_a_node_that_joined_is_refused() {
    let disk = Arc::new(VirtualDisk::new(1));
    let (mut journal, _) = open(&disk, 1);
    journal.append(&[joined_record()]).unwrap();
    journal.sync().unwrap();
    let refused = start_error(&disk);
    assert!(matches!(refused, StartRefused::OfCluster), "{refused}");
}

/// What a loss of power leaves is a journal that its own node takes.
fn check_own(rig: &Rig, when: &str) {
    let disk = Arc::new(rig.disk.copy_of_durable(9));
    let (_, images) = open(&disk, u64::MAX);
    assert!(stands_alone(&images), "{when}");
}

#[test]
fn ones_own_journal_is_taken_at_each_point_of_its_life() {
    let disk = Arc::new(VirtualDisk::new(1));
    let mut rig = Rig::load(&disk, options(FsyncPolicy::Always), 1_000, 0).unwrap();
    check_own(&rig, "before the first record");
    rig.tick(0);
    while rig.node.boot() == BootId(0) {
        rig.end_sync();
        check_own(&rig, "while it begins");
    }
    rig.begin_session();
    for round in 0..4 {
        rig.submit("a", 40).unwrap();
        rig.end_syncs();
        check_own(&rig, "with entries");
        rig.handle(ClusterEvent::CheckpointWanted);
        while rig.end_sync() {
            check_own(&rig, "when a checkpoint is ordered");
        }
        rig.write_checkpoint();
        while rig.end_sync() {
            check_own(&rig, "when a checkpoint is recorded");
        }
        let status = rig.node.status();
        assert_eq!(status.log_begin > Epoch(0), round > 0, "{status:?}");
        drop(rig);
        disk.crash();
        rig = Rig::recover(&disk, options(FsyncPolicy::Always)).unwrap();
        check_own(&rig, "after a restart");
        assert_eq!(rig.value("a"), 40 * (round + 1));
    }
    for name in files(&disk, "log-") {
        disk.remove(&name).unwrap();
    }
    rig.hands.records.journal.leave_removed().unwrap();
    rig.handle(ClusterEvent::LogLost);
    rig.finish_checkpoint();
    check_own(&rig, "when its files were removed");
}
