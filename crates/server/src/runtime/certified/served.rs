//! The site of a node, whichever protocol it runs.

use crate::cluster::{Sites, Validators};
use certify::hierarchy::Hierarchy;
use certify::{KeyCounts, Wish};
use node::geo::GeoSite;
use node::host::{HostEvent, Machine};
use node::site::{Site, SiteCounts, SiteEffects};
use std::sync::Arc;
use txn::tx::Read;
use txn::{Entry, Key, NodeId, PartitionId, Position, RequestId};

/// See the module's head.
#[expect(clippy::large_enum_variant, reason = "there is one in a process")]
pub(super) enum Served {
    Hierarchy(Site<Hierarchy>, Arc<Validators>),
    Geo(GeoSite, Arc<Sites>),
}

/// How far a site is, in the terms of every server.
pub(super) struct Place {
    pub counts: SiteCounts,
    pub position: u64,
    pub log_bytes: u64,
}

impl Served {
    pub fn begin(&mut self, id: RequestId, how: super::gateway::Manner, effects: &mut SiteEffects) {
        match self {
            Served::Hierarchy(site, _) => site.begin(id, how.is_read_only, effects),
            Served::Geo(site, _) => site.begin(id, how.is_held_open, effects),
        }
    }

    pub fn ask(&mut self, id: RequestId, wish: Wish, effects: &mut SiteEffects) {
        match (self, wish) {
            (Served::Hierarchy(site, _), Wish::Look(look)) => site.look(id, &look, effects),
            (Served::Hierarchy(site, _), Wish::Commit(reads, writes)) => {
                site.commit(id, reads, writes, effects);
            }
            (Served::Geo(site, _), Wish::Look(look)) => site.look(id, &look, effects),
            (Served::Geo(site, _), Wish::Commit(reads, writes)) => site.commit(id, reads, writes, effects),
            (_, Wish::Begin | Wish::Wait { .. } | Wish::End(_)) => {}
        }
    }

    /// The site, if it commits alone.
    pub fn geo(&mut self) -> Option<&mut GeoSite> {
        match self {
            Served::Hierarchy(..) => None,
            Served::Geo(site, _) => Some(site),
        }
    }

    pub fn forget(&mut self, id: RequestId) {
        match self {
            Served::Hierarchy(site, _) => site.forget(id),
            Served::Geo(site, _) => site.forget(id),
        }
    }

    /// Behind which entry or commit a session is opened.
    pub fn position(&self, home: PartitionId) -> Position {
        match self {
            Served::Hierarchy(site, _) => site.protocol().position(home),
            Served::Geo(site, _) => site.last_commit(),
        }
    }

    pub fn newest(&self, key: &Key) -> Read {
        match self {
            Served::Hierarchy(site, _) => site.protocol().newest(key),
            Served::Geo(site, _) => site.newest(key),
        }
    }

    pub fn key_counts(&self) -> KeyCounts {
        match self {
            Served::Hierarchy(site, _) => site.protocol().key_counts(),
            Served::Geo(site, _) => site.key_counts(),
        }
    }

    pub fn for_each_system_record(&self, records_max: usize, visit: impl FnMut((&Key, &Entry))) {
        match self {
            Served::Hierarchy(site, _) => site.protocol().system_records().take(records_max).for_each(visit),
            Served::Geo(site, _) => site.system_records().take(records_max).for_each(visit),
        }
    }

    /// Keys that have expired at a leaf, if this node is the one that has them removed.
    pub fn expired(&self, leaf: PartitionId, me: NodeId, now_ms: u64, keys_max: usize) -> Vec<Key> {
        match self {
            Served::Hierarchy(site, _) => {
                let leader = site.group(leaf).and_then(|group| group.leader());
                match leader.is_some_and(|(node, _)| node == me) {
                    true => site.protocol().expired(leaf, now_ms, keys_max),
                    false => Vec::new(),
                }
            }
            Served::Geo(site, _) => site.expired(now_ms, keys_max),
        }
    }

    pub fn silence(&self) -> Option<&'static str> {
        match self {
            Served::Hierarchy(site, _) => site.silence(),
            Served::Geo(site, _) => site.silence(),
        }
    }

    /// Whether clients may be served for the first time.
    pub fn has_caught_up(&self) -> bool {
        match self {
            Served::Hierarchy(site, _) => site.has_caught_up(),
            Served::Geo(site, _) => site.is_open(),
        }
    }

    /// Whether the node knows that it lacks what others have.
    pub fn is_behind(&self) -> bool {
        match self {
            Served::Hierarchy(site, _) => !site.status().lagging.is_empty(),
            Served::Geo(..) => false,
        }
    }

    /// Whether a site that commits alone has restarted, and has heard no other one since.
    pub fn waits_to_hear(&self) -> bool {
        match self {
            Served::Hierarchy(..) => false,
            Served::Geo(site, _) => site.waits_to_hear(),
        }
    }

    pub fn place(&self) -> Place {
        match self {
            Served::Hierarchy(site, _) => {
                let status = site.status();
                Place { counts: status.counts, position: status.decided, log_bytes: status.log_bytes }
            }
            Served::Geo(site, _) => {
                let (counts, position, log_bytes) = site.place();
                Place { counts, position, log_bytes }
            }
        }
    }
}

impl Machine for Served {
    type Effects = SiteEffects;

    fn react(&mut self, event: HostEvent, now_ms: u64, effects: &mut SiteEffects) {
        match self {
            Served::Hierarchy(site, _) => site.react(event, now_ms, effects),
            Served::Geo(site, _) => site.react(event, now_ms, effects),
        }
    }
}
