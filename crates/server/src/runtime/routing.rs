//! Whose the slots are, as sessions route by it: looked at for every transaction, and changed hardly ever.

use order::PartitionMap;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use txn::Slots;

/// Whose the slots are under one version of them.
#[derive(Clone, Debug)]
pub struct Routing {
    /// The version: see [`PartitionMap::slots_version`].
    pub version: u32,
    /// Whose each slot is.
    pub slots: Slots,
}

impl Routing {
    /// Where there is one partition.
    pub fn alone() -> Routing {
        Routing { version: 0, slots: Slots::even(1) }
    }
}

/// The newest map that this node has confirmed, as far as it concerns slots.
#[derive(Debug)]
pub(super) struct SharedRouting {
    version: AtomicU32,
    newest: RwLock<Arc<PartitionMap>>,
}

impl SharedRouting {
    pub fn new(map: Arc<PartitionMap>) -> SharedRouting {
        SharedRouting { version: AtomicU32::new(map.slots_version), newest: RwLock::new(map) }
    }

    /// Another map is in force, perhaps.
    pub fn follow(&self, map: &Arc<PartitionMap>) {
        if map.slots_version != self.version.load(Ordering::Relaxed) {
            *self.newest.write() = map.clone();
            self.version.store(map.slots_version, Ordering::Release);
        }
    }

    /// Looks at it, for a moment.
    pub fn with<R>(&self, look: impl FnOnce(&PartitionMap) -> R) -> R {
        look(&self.newest.read())
    }

    /// Brings a copy up to date.
    pub fn refresh(&self, copy: &mut Routing) {
        let is_other_cluster = |map: &PartitionMap| map.slots().of() != copy.slots.of();
        if self.version.load(Ordering::Acquire) != copy.version || self.with(is_other_cluster) {
            *copy = self.with(|map| Routing { version: map.slots_version, slots: map.slots().clone() });
        }
    }
}
