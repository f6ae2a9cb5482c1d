//! Brings behaviours into force ([`crate::cluster::levels`]).

use super::{ClusterEffects, ClusterNode};
use crate::cluster::levels::check_level;
use order::Control;
use txn::PartitionId;

impl ClusterNode {
    /// Orders that the newest behaviour comes into force which all nodes know, if this node leads
    /// partition 0.
    pub(super) fn lead_level(&mut self) {
        let map = self.map().clone();
        let known = map.level_known().unwrap_or(0).min(self.options.level);
        if known <= map.level {
            return;
        }
        // The order does not wait for those who leave, because one of them may be gone for good. One that
        // runs would end at once, in the middle of handing over what it keeps.
        let hands_over =
            map.nodes.iter().any(|(&node, entry)| entry.leaving && entry.level < known && self.is_live(node));
        if hands_over {
            return;
        }
        if let Some(lead) = self.leads.get_mut(&PartitionId(0)) {
            lead.change(Control::RaiseLevel { version: map.version, level: known });
        }
    }

    /// Ends this node if something is in force that it does not know.
    pub(super) fn look_at_level(&mut self, effects: &mut ClusterEffects) {
        if let Err(error) = check_level(self.map(), self.options.level) {
            self.end(error.to_string(), effects);
        }
    }
}
