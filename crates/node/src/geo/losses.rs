//! The losses by a fence, for the operator.

use super::GeoSite;
use certify::pcsi::{FenceLoss, Pcsi};
use std::collections::BTreeSet;
use txn::{NodeId, PartitionId};

impl GeoSite {
    /// A partition whose sites are all fenced, or being fenced, if this site is fenced, too.
    pub(super) fn emptied_by_fence(&self, site: NodeId) -> Option<PartitionId> {
        let peers = self.protocol().map(Pcsi::peers).unwrap_or_default();
        let away = peers.iter().filter(|peer| peer.is_fenced || peer.is_fencing).map(|peer| peer.site);
        let away: BTreeSet<NodeId> = away.chain([site]).collect();
        let sites = &self.options.protocol.sites;
        let is_emptied = |&partition: &PartitionId| {
            let having = sites.sites(partition);
            having.contains(&site) && having.iter().all(|one| away.contains(one))
        };
        sites.partitions().find(is_emptied)
    }

    /// The text for the operator when another site is fenced.
    pub(super) fn fence_notice(&self, loss: &FenceLoss) -> String {
        let FenceLoss { site, incarnation, remaining, lost } = *loss;
        let name = self.options.names.get(&site).cloned().unwrap_or_default();
        format!(
            "'{name}' is fenced, and its next incarnation is {}. Of its updates, {remaining} remain that a \
             site may have lacked; {lost} are lost of those that '{name}' had told this site of, or do not \
             concern this site. What '{name}' had told no other site is lost, too: its own log has the \
             number, if it hears of the fence",
            incarnation.0
        )
    }

    /// The updates that this site loses by a fence of itself, as far as it knows.
    pub(super) fn own_loss(&self) -> String {
        match self.protocol().and_then(Pcsi::unacknowledged) {
            None => "Other sites have acknowledged all of its updates".to_owned(),
            Some((count, first, last)) => format!(
                "No other site has acknowledged {count} of its updates, of the commits {first} to {last}: \
                 they are lost, but for those that have arrived all the same"
            ),
        }
    }
}
