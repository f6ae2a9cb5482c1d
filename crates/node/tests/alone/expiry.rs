//! What has expired leaves memory, in the users' space and in the system's.

use crate::rig::Rig;
use ordo_node::FsyncPolicy;
use ordo_node::cluster::ClusterOptions;
use redis_surface::idempotent::RECORD_TTL_MS;
use redis_surface::{ExpireProcedure, ExpireSystemProcedure, IdempotentProcedure};
use sim::disk::VirtualDisk;
use std::sync::Arc;
use txn::{Procedure, Reply, ScanRange, Space};

fn rig() -> Rig {
    let options = ClusterOptions {
        fsync: FsyncPolicy::No,
        expire: Some(Arc::new(ExpireProcedure)),
        expire_system: Some(Arc::new(ExpireSystemProcedure)),
        ..ClusterOptions::alone()
    };
    Rig::recover(&Arc::new(VirtualDisk::new(1)), options).expect("an empty disk")
}

/// How many entries a space holds, expired ones included.
fn held(rig: &Rig, space: Space) -> usize {
    let view = rig.engine.view();
    let snapshot = view.open();
    let range = ScanRange::of(space, 0, usize::MAX);
    let page = view.scan_at(&snapshot, range);
    view.close(snapshot);
    page.entries.len()
}

/// Enough ticks for the scan to look at everything twice, also while it thinks that nothing has a time to
/// live.
fn tick_through(rig: &mut Rig) {
    for _ in 0..200 {
        rig.tick(1);
    }
}

#[test]
fn short_times_to_live_are_noticed_soon_after_a_quiet_time() {
    for quiet in 0..20 {
        let mut rig = rig();
        for _ in 0..200 + quiet {
            rig.tick(1);
        }
        let idempotent: Arc<dyn Procedure> = Arc::new(IdempotentProcedure);
        assert_eq!(rig.call(idempotent, "1 psetex key 500 v"), Reply::OK);
        rig.now_ms += 500;
        for _ in 0..12 {
            rig.tick(1);
        }
        assert_eq!(held(&rig, Space::User), 0, "after {quiet} more ticks");
    }
}

/// A second has ten ticks.
#[test]
fn what_expires_at_once_is_gone_within_a_second() {
    let mut rig = rig();
    // The scan has been through both spaces, also the system's, where the replies will be, and begins again
    // with the users'.
    rig.tick(1);
    rig.tick(1);
    let idempotent: Arc<dyn Procedure> = Arc::new(IdempotentProcedure);
    for id in 0..6000 {
        let args = format!("{id} psetex key:{id} 500 v");
        assert_eq!(rig.call(idempotent.clone(), &args), Reply::OK);
    }
    rig.now_ms += 500;
    for _ in 0..10 {
        rig.tick(1);
    }
    assert_eq!(held(&rig, Space::User), 0);
}

#[test]
fn replies_of_an_hour_ago_leave_memory_like_users_keys() {
    let mut rig = rig();
    let idempotent: Arc<dyn Procedure> = Arc::new(IdempotentProcedure);
    // A round that meets nothing to expire makes the scan rare; it must still notice what comes.
    tick_through(&mut rig);
    for id in 0..300 {
        let args = format!("{id} psetex key:{id} {} v", RECORD_TTL_MS / 2);
        assert_eq!(rig.call(idempotent.clone(), &args), Reply::OK);
    }
    let spaces = |rig: &Rig| (held(rig, Space::User), held(rig, Space::System));
    assert_eq!(spaces(&rig), (300, 300));
    tick_through(&mut rig);
    assert_eq!(spaces(&rig), (300, 300), "nothing has expired");
    rig.now_ms += RECORD_TTL_MS / 2;
    tick_through(&mut rig);
    assert_eq!(spaces(&rig), (0, 300), "records live longer");
    assert_eq!(rig.call(idempotent.clone(), &format!("7 psetex key:7 {} v", RECORD_TTL_MS / 2)), Reply::OK,);
    assert_eq!(spaces(&rig), (0, 300), "a retry applies nothing");
    rig.now_ms += RECORD_TTL_MS / 2;
    tick_through(&mut rig);
    assert_eq!(spaces(&rig), (0, 0));
}
