//! The status that a site gives of itself and of the others.

use super::replica::Replica;
use super::{Incarnation, Pcsi};
use crate::KeyCounts;
use txn::{Entry, Key, NodeId, Space};

/// Another site that has a partition of this one, as this one sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerStatus {
    /// The other site.
    pub site: NodeId,
    /// Its incarnation, as far as this site knows.
    pub incarnation: Incarnation,
    /// Its incarnation before this one is fenced, and this one does not count as a site here yet.
    pub is_fenced: bool,
    /// A fence of it is under way: this site takes nothing of it until that is decided.
    pub is_fencing: bool,
    /// Updates of this site that the other one has not acknowledged; in a long queue, also those among them
    /// that do not concern it.
    pub queue: u64,
    /// The ticks since the oldest of these was committed, or since this process read it from its log.
    pub lag_ticks: u64,
    /// Updates of the other site that wait here for what they depend on.
    pub waiting: u64,
    /// Updates that the other site had told this process of when the site was fenced, and that have not come
    /// from any site. Updates that do not concern this site are among them.
    pub lost: u64,
    /// The ticks since the other site has last let this one apply an update, or shown that there is none.
    pub silent_ticks: u64,
}

/// The use that a site's transactions make of partitions which the site does not have, and the numbers that
/// it grants to those of other sites.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStatus {
    /// Answers of other sites to reads of this site's transactions, since this process began.
    pub reads: u64,
    /// Numbers that this site has granted, and that its replicas do not count yet.
    pub numbers_out: u64,
    /// Those of them whose transactions never commit.
    pub numbers_void: u64,
    /// Null updates that this process has made for such numbers.
    pub nulls: u64,
}

impl Pcsi {
    /// The counts of remote reads and of granted numbers.
    pub fn remote_status(&self) -> RemoteStatus {
        let (out, void) = self.grants();
        let (numbers_out, numbers_void) = (out as u64, void as u64);
        RemoteStatus { reads: self.remote.answered, numbers_out, numbers_void, nulls: self.nulls }
    }

    /// The other sites that have a partition of this one.
    pub fn peers(&self) -> Vec<PeerStatus> {
        let sites = &self.options.sites;
        let fencing = self.fences.open_targets();
        let status = |site| {
            let (queue, since_tick) = self.outgoing.queue_of(site, sites);
            let incoming = self.incoming.get(&site);
            let heard_tick = incoming.map_or(0, super::Incoming::heard_tick);
            PeerStatus {
                site,
                incarnation: self.fences.incarnation_of(site),
                is_fenced: self.fences.excluded.contains(&site),
                is_fencing: fencing.contains_key(&site),
                queue,
                lag_ticks: since_tick.map_or(0, |since| self.ticks - since),
                waiting: incoming.map_or(0, super::Incoming::waiting_len) as u64,
                lost: self.lost.get(&site).copied().unwrap_or(0),
                silent_ticks: self.ticks - heard_tick,
            }
        };
        sites.peers_of(self.options.me).into_iter().map(status).collect()
    }

    /// The updates of this site that no other one has acknowledged: how many, and the numbers of the first
    /// and the last one. If the site is fenced, they are lost, except for those that have arrived all the
    /// same.
    pub fn unacknowledged(&self) -> Option<(u64, u64, u64)> {
        self.outgoing.unacknowledged(&self.options.sites)
    }

    /// The updates of this site that are kept for others.
    pub fn retained(&self) -> usize {
        self.outgoing.len()
    }

    /// How many keys of users this site's replicas have.
    pub fn key_counts(&self) -> KeyCounts {
        let mut all = KeyCounts::default();
        self.replicas.values().for_each(|replica| all += replica.counts());
        all
    }

    /// Keys that have expired, and whose conflicts this site resolves, at most `keys_max`. A transaction may
    /// remove them: they are read as absent, and take memory.
    pub fn expired(&self, now_ms: u64, keys_max: usize) -> Vec<Key> {
        let expired = self.replicas.values().flat_map(|replica| replica.expired(now_ms));
        expired.take(keys_max).cloned().collect()
    }

    /// The store's own records, such as scripts, partition by partition.
    pub fn system_records(&self) -> impl Iterator<Item = (&Key, &Entry)> {
        let records = self.replicas.values().flat_map(Replica::system_records);
        records.filter(|(key, _)| key.space() == Space::System)
    }
}
