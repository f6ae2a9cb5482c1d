//! What a node whose transactions are certified tells of itself.

use super::gateway::{Counts, Rates};
use crate::cluster::geo::{GeoClusterStatus, GeoReport, PCSI, PairStatus, SiteEntry};
use crate::cluster::hierarchy::{
    HIERARCHY, HierarchyNode, HierarchyStatus, NodeReport, TransactionCounts, ValidatorStatus,
};
use crate::cluster::{ClusterNode, Problem, Sites, Validator, Validators};
use certify::KeyCounts;
use certify::hierarchy::BatchCounts;
use node::geo::GeoStatus;
use node::site::SiteStatus;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use txn::{NodeId, PartitionId};

/// The cluster that a node is of, as its cluster.toml describes it.
#[derive(Debug)]
pub struct Described {
    /// The cluster's name.
    pub cluster: String,
    /// The node.
    pub me: NodeId,
    /// The nodes.
    pub nodes: BTreeMap<NodeId, ClusterNode>,
}

impl Described {
    fn name(&self, node: NodeId) -> String {
        self.nodes.get(&node).map_or_else(|| format!("node {}", node.0), |node| node.name.clone())
    }
}

/// A validator as a node sees it.
#[derive(Clone, Copy, Debug)]
pub struct GroupStatus {
    /// The leader of its group, as far as this node knows.
    pub leader: Option<NodeId>,
    /// Its last decided entry.
    pub decided: u64,
    /// What this node has sent for it.
    pub batches: BatchCounts,
}

/// A node's part in a hierarchy.
#[derive(Clone, Debug)]
pub struct TreePart {
    /// The validators.
    pub validators: Arc<Validators>,
    /// Each validator.
    pub groups: Vec<GroupStatus>,
    /// The journal, and what the node lacks.
    pub site: SiteStatus,
}

impl TreePart {
    /// The validators that a node hosts, and those that it leads.
    pub fn hosted_and_led(&self, me: NodeId) -> (usize, usize) {
        let hosted = self.validators.list.iter().filter(|validator| validator.nodes.contains(&me));
        let led = self.groups.iter().filter(|group| group.leader == Some(me));
        (hosted.count(), led.count())
    }

    fn trouble(&self) -> Option<String> {
        let names = |groups: &BTreeSet<PartitionId>| {
            let list = &self.validators.list;
            let validators = groups.iter().filter_map(|group| list.get(usize::from(group.0)));
            validators.map(|validator| validator.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let SiteStatus { silence, without_leader, lagging, .. } = &self.site;
        if let Some(why) = silence {
            return Some((*why).to_owned());
        }
        if !without_leader.is_empty() {
            return Some(format!(
                "this node reaches no leader of the validators {}: a majority of their nodes may be missing",
                names(without_leader)
            ));
        }
        (!lagging.is_empty())
            .then(|| format!("behind: this node catches up with the validators {}", names(lagging)))
    }
}

/// A site that commits alone, and what it knows of the others.
#[derive(Clone, Debug)]
pub struct GeoPart {
    /// Which of the partitions each site has.
    pub sites: Arc<Sites>,
    /// The site.
    pub site: GeoStatus,
    /// How long a tick is.
    pub tick_ms: u64,
}

/// A node's part in its cluster.
#[derive(Clone, Debug)]
pub enum Part {
    /// In a tree of validators.
    Hierarchy(TreePart),
    /// Among sites that commit alone.
    Geo(GeoPart),
}

/// What a site tells of itself.
#[derive(Clone, Debug)]
pub struct CertifiedStatus {
    /// The cluster.
    pub described: Arc<Described>,
    /// What has ended.
    pub counts: Counts,
    /// What ended within the last seconds.
    pub rates: Rates,
    /// Connections that are in a transaction.
    pub open_transactions: usize,
    /// How many keys of users the node has.
    pub keys: KeyCounts,
    /// What its protocol tells.
    pub part: Part,
}

/// What ORDO.CLUSTER STATUS replies.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Told {
    /// In a hierarchy.
    Hierarchy(HierarchyStatus),
    /// Among sites that commit alone.
    Geo(GeoClusterStatus),
}

impl Told {
    /// What an operator should know, as one node sees it, which has not asked the others.
    pub fn own_problems(&self) -> Vec<Problem> {
        match self {
            Told::Hierarchy(status) => status.own_problems(),
            Told::Geo(status) => status.own_problems(),
        }
    }
}

impl CertifiedStatus {
    /// Why clients may not be sent here, in one line, if they may not.
    pub fn trouble(&self) -> Option<String> {
        match &self.part {
            Part::Hierarchy(part) => part.trouble(),
            Part::Geo(part) => part.site.trouble.map(str::to_owned),
        }
    }

    /// The node's part, if it is of a hierarchy.
    pub fn tree_part(&self) -> Option<&TreePart> {
        match &self.part {
            Part::Hierarchy(part) => Some(part),
            Part::Geo(_) => None,
        }
    }

    /// What ORDO.CLUSTER STATUS replies.
    pub fn told(&self) -> Told {
        match &self.part {
            Part::Hierarchy(part) => Told::Hierarchy(self.tree_told(part)),
            Part::Geo(part) => Told::Geo(self.geo_told(part)),
        }
    }

    fn transactions(&self) -> TransactionCounts {
        let [aborted_at_keys, aborted_of_old_snapshots, aborted_of_timestamps] = self.counts.conflicts;
        TransactionCounts {
            committed: self.counts.committed,
            committed_per_s: self.rates.committed,
            aborted_at_keys,
            aborted_of_old_snapshots,
            aborted_of_timestamps,
            given_up: self.counts.given_up,
            open: self.open_transactions as u64,
            forgotten: self.counts.forgotten,
        }
    }

    fn geo_told(&self, part: &GeoPart) -> GeoClusterStatus {
        let Described { cluster, me, nodes } = &*self.described;
        let GeoPart { sites, site, tick_ms } = part;
        let numbers = |lists: &[Vec<NodeId>], id: NodeId| -> Vec<u16> {
            (0..).zip(lists).filter(|(_, sites)| sites.contains(&id)).map(|(of, _)| of).collect()
        };
        let pair = |peer: &certify::pcsi::PeerStatus| PairStatus {
            to: self.described.name(peer.site),
            is_linked: !site.unlinked.contains(&peer.site),
            is_fenced: peer.is_fenced,
            is_fencing: peer.is_fencing,
            queue: peer.queue,
            lag_ms: peer.lag_ticks * tick_ms,
            waiting: peer.waiting,
            lost: peer.lost,
            silent_ms: peer.silent_ticks * tick_ms,
        };
        let report = || GeoReport {
            trouble: site.trouble.map(str::to_owned),
            incarnation: site.incarnation.map(|incarnation| incarnation.0),
            commits: site.commits,
            retained: site.retained,
            remote_reads: site.remote.reads,
            numbers_out: site.remote.numbers_out,
            nulls: site.remote.nulls,
            log_bytes: site.log_bytes,
            transactions: self.transactions(),
            fence_awaits: site.fence.awaited.iter().map(|&site| self.described.name(site)).collect(),
            fence_lacks_majority: site.fence.lacks_majority,
            pairs: site.peers.iter().map(pair).collect(),
        };
        let entry = |(id, node): (&NodeId, &ClusterNode)| SiteEntry {
            id: id.0,
            name: node.name.clone(),
            region: node.zone.clone(),
            peer_address: node.peer_address.clone(),
            client_address: node.client_address.clone(),
            partitions: numbers(&sites.partitions, *id),
            resolves: numbers(&sites.resolvers, *id),
            reachable: !site.unlinked.contains(id),
            report: (id == me).then(report),
        };
        GeoClusterStatus {
            protocol: PCSI.to_owned(),
            cluster: cluster.clone(),
            me: me.0,
            sites_to_write_min: sites.sites_to_write_min as u64,
            regions_to_write_min: sites.regions_to_write_min as u64,
            retained_updates_max: sites.retained_updates_max as u64,
            sites: nodes.iter().map(entry).collect(),
        }
    }

    fn tree_told(&self, part: &TreePart) -> HierarchyStatus {
        let Described { cluster, me, nodes } = &*self.described;
        let TreePart { validators, groups, site } = part;
        let SiteStatus { silence, without_leader, lagging, too_large, unlinked, .. } = site;
        let report = || NodeReport {
            silence: silence.map(str::to_owned),
            behind: lagging.iter().map(|group| group.0).collect(),
            transactions: self.transactions(),
        };
        let node = |(id, node): (&NodeId, &ClusterNode)| HierarchyNode {
            id: id.0,
            name: node.name.clone(),
            zone: node.zone.clone(),
            peer_address: node.peer_address.clone(),
            client_address: node.client_address.clone(),
            reachable: !unlinked.contains(id),
            report: (id == me).then(report),
        };
        let validator = |(id, (group, validator)): (PartitionId, (&GroupStatus, &Validator))| {
            let place = usize::from(id.0);
            ValidatorStatus {
                id: id.0,
                name: validator.name.clone(),
                parent: validators.tree.parent(id).map(|parent| parent.0),
                height: validators.tree.height(id) as u64,
                hosts: validator.nodes.iter().map(|node| node.0).collect(),
                leader: group.leader.filter(|_| !without_leader.contains(&id)).map(|node| node.0),
                entries: group.decided,
                decided: self.counts.decided_by.get(place).copied().unwrap_or(0),
                decided_per_s: self.rates.decided_by.get(place).copied().unwrap_or(0.0),
                batches: group.batches.batches,
                batched: group.batches.transactions,
                too_large_bytes: too_large.get(&id).copied(),
            }
        };
        let groups = groups.iter().zip(&validators.list);
        HierarchyStatus {
            protocol: HIERARCHY.to_owned(),
            cluster: cluster.clone(),
            control: format!("{:?}", validators.control).to_lowercase(),
            me: me.0,
            nodes: nodes.iter().map(node).collect(),
            validators: (0..).map(PartitionId).zip(groups).map(validator).collect(),
        }
    }
}
