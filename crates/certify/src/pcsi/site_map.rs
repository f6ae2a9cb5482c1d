//! The sites of each partition, and the sites' regions: the same at all sites of a system.

use std::collections::{BTreeMap, BTreeSet};
use txn::{Key, NodeId, PartitionId, Space};

/// How a site's transactions use partitions that the site does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteAccess {
    /// They do not.
    #[default]
    Refused,
    /// They read at other sites. Their updates have numbers of their own site there, as if the site had a
    /// replica without data (section III-D).
    Ghosts,
    /// They read at other sites. A site that has the partition numbers their updates there (`grant.rs`).
    Grants,
}

/// The sites of each partition.
#[derive(Clone, Debug)]
pub struct SiteMap {
    replicas: Vec<Vec<NodeId>>,
    /// The sites that resolve conflicts in each partition: some of those that have it.
    resolvers: Vec<Vec<NodeId>>,
    /// Whether the last partition is that of what the store itself keeps.
    has_system: bool,
    /// The region of each site, by its number. Sites that are not here are in one region.
    regions: BTreeMap<NodeId, u16>,
    remote_access: RemoteAccess,
    /// Updates follow nothing that their transactions have seen.
    pub(super) ignores_causality: bool,
}

impl SiteMap {
    /// The sites of each partition, by its number; `None` unless there are partitions, and each has a site.
    pub fn new(replicas: Vec<Vec<NodeId>>) -> Option<SiteMap> {
        let has_sites = !replicas.is_empty() && replicas.iter().all(|sites| !sites.is_empty());
        has_sites.then(|| SiteMap {
            resolvers: replicas.clone(),
            replicas,
            has_system: false,
            regions: BTreeMap::new(),
            remote_access: RemoteAccess::Refused,
            ignores_causality: false,
        })
    }

    /// The same without dependency views, to measure what these cost: snapshots are not causally closed, and
    /// an update may be applied before what its transaction has seen. No configuration of a store gives this.
    pub fn without_causality(self) -> SiteMap {
        SiteMap { ignores_causality: true, ..self }
    }

    /// The same, where transactions may use all partitions at each site that has one.
    pub fn with_remote_access(self, remote_access: RemoteAccess) -> SiteMap {
        SiteMap { remote_access, ..self }
    }

    /// Whether transactions read and write partitions that their sites do not have.
    pub fn has_remote_access(&self) -> bool {
        self.remote_access != RemoteAccess::Refused
    }

    /// The same, with the number of each site's region.
    pub fn in_regions(self, regions: BTreeMap<NodeId, u16>) -> SiteMap {
        SiteMap { regions, ..self }
    }

    /// Whether two sites are in one region.
    pub(super) fn are_near(&self, one: NodeId, other: NodeId) -> bool {
        self.regions.get(&one) == self.regions.get(&other)
    }

    /// The number of regions in which some sites are.
    pub(super) fn count_regions(&self, sites: &BTreeSet<NodeId>) -> usize {
        sites.iter().map(|site| self.regions.get(site)).collect::<BTreeSet<_>>().len()
    }

    /// The same, where only these sites resolve conflicts in a partition; `None` unless they have it.
    pub fn resolved_by(mut self, partition: PartitionId, sites: Vec<NodeId>) -> Option<SiteMap> {
        let place = usize::from(partition.0);
        let having = self.replicas.get(place)?;
        let have_it = !sites.is_empty() && sites.iter().all(|site| having.contains(site));
        have_it.then(|| {
            self.resolvers[place] = sites;
            self
        })
    }

    /// The same, with a further partition that all sites have. It has what the store itself keeps, such as
    /// scripts.
    pub fn with_system(mut replicas: Vec<Vec<NodeId>>) -> Option<SiteMap> {
        let all: BTreeSet<NodeId> = replicas.iter().flatten().copied().collect();
        replicas.push(all.into_iter().collect());
        SiteMap::new(replicas).map(|sites| SiteMap { has_system: true, ..sites })
    }

    /// Whether there is such a partition.
    pub fn has(&self, partition: PartitionId) -> bool {
        usize::from(partition.0) < self.replicas.len()
    }

    /// The sites that have a partition.
    pub fn sites(&self, partition: PartitionId) -> &[NodeId] {
        &self.replicas[usize::from(partition.0)]
    }

    /// The partition of a key.
    pub fn partition_of(&self, key: &Key) -> PartitionId {
        let partitions = self.replicas.len() as u16;
        match self.has_system {
            false => txn::key::partition_of_slot(key.slot(), partitions),
            true if key.space() == Space::System => PartitionId(partitions - 1),
            true => txn::key::partition_of_slot(key.slot(), partitions - 1),
        }
    }

    /// The site that resolves the conflicts of a key.
    pub fn resolver_of(&self, key: &Key) -> NodeId {
        let sites = &self.resolvers[usize::from(self.partition_of(key).0)];
        sites[(key.hash64() % sites.len() as u64) as usize]
    }

    /// The other sites that may get updates of this site.
    pub fn peers_of(&self, site: NodeId) -> BTreeSet<NodeId> {
        let own = self.partitions_of(site).flat_map(|partition| self.sites(partition));
        let own: BTreeSet<NodeId> = own.copied().collect();
        let all = if self.has_remote_access() && !own.is_empty() { self.all_sites() } else { own };
        all.into_iter().filter(|&peer| peer != site).collect()
    }

    /// Whether all sites that have a partition have this one.
    pub(super) fn is_everywhere(&self, partition: PartitionId) -> bool {
        let having: BTreeSet<NodeId> = self.sites(partition).iter().copied().collect();
        self.all_sites() == having
    }

    /// Whether sites number updates of others.
    pub(super) fn has_grants(&self) -> bool {
        self.remote_access == RemoteAccess::Grants
    }

    /// Whether a site numbers its own updates of a partition.
    pub(super) fn may_number(&self, site: NodeId, partition: PartitionId) -> bool {
        self.remote_access == RemoteAccess::Ghosts || self.sites(partition).contains(&site)
    }

    /// All sites that have a partition.
    pub fn all_sites(&self) -> BTreeSet<NodeId> {
        self.replicas.iter().flatten().copied().collect()
    }

    /// All partitions.
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> {
        (0..self.replicas.len() as u16).map(PartitionId)
    }

    /// The partitions of a site.
    pub(super) fn partitions_of(&self, site: NodeId) -> impl Iterator<Item = PartitionId> {
        let has_site = move |&partition: &PartitionId| self.sites(partition).contains(&site);
        self.partitions().filter(has_site)
    }
}
