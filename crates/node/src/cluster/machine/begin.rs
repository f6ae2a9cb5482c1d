//! Founds the cluster, and tells the others of this node ([`crate::cluster::bootstrap`]).

use super::{CLOCK_TICKS, ClusterEffects, ClusterNode, Then};
use crate::cluster::bootstrap::{Heard, Standing};
use crate::cluster::frames::Frame;
use crate::cluster::peers::Condition;
use crate::cluster::shape::BadFrame;
use txn::NodeId;

impl ClusterNode {
    /// Keeps what this node's disk must know of itself, and forms the cluster once that is possible.
    pub(super) fn begin(&mut self, effects: &mut ClusterEffects) {
        let formed = self.bootstrap.form(self.groups.synced_record());
        self.formed(formed, effects);
        let record = self.groups.records() + u64::from(effects.host.kept.is_empty());
        if let Some(kept) = self.bootstrap.take_unkept(record) {
            self.record(kept, effects);
            self.groups.wait_for(Then::Nothing);
        }
    }

    /// Another node tells how far it is.
    pub(super) fn heard(
        &mut self,
        from: NodeId,
        standing: Standing,
        effects: &mut ClusterEffects,
    ) -> Result<(), BadFrame> {
        if let Standing::Formed(nonces) = &standing
            && !nonces.is_empty()
            && !nonces.keys().eq(self.first_map().nodes.keys())
        {
            return Err("it says that others have founded the cluster".into());
        }
        let heard = self.bootstrap.hear(from, standing, self.groups.synced_record());
        self.formed(heard, effects);
        Ok(())
    }

    fn formed(&mut self, heard: Heard, effects: &mut ClusterEffects) {
        match heard {
            Heard::Nothing => {}
            Heard::Formed => self.groups.wake_all(),
            Heard::Lost(text) => self.end(text, effects),
        }
    }

    /// Tells the others this node's clock, without which groups that have no traffic between two nodes would
    /// know nothing of it, and how far it is with the cluster's beginning.
    pub(super) fn tell_clock(&self, effects: &mut ClusterEffects) {
        let standing = self.bootstrap.standing(self.groups.synced_record());
        let frame = Frame::Clock {
            standing,
            checkpoint: self.checkpoints.newest(),
            hears_all: self.would_lead(),
            map_version: self.map().version,
        };
        if !self.bootstrap.takes_part() {
            for node in self.bootstrap.others() {
                self.send(node, &frame, effects);
                self.tell_time(node, effects);
            }
        } else if self.ticks.is_multiple_of(CLOCK_TICKS) {
            let map = self.map().clone();
            for &node in map.nodes.keys().filter(|&&node| node != self.options.me) {
                self.send(node, &frame, effects);
                self.tell_time(node, effects);
            }
            if self.own_condition() != Condition::Well {
                self.tell_condition(effects);
            }
        }
    }
}
