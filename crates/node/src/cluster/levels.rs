//! Behaviour: what all replicas must do in the same way, whatever builds they are.
//!
//! Replicas execute the order each by itself, so a request must mean the same to all of them. A build that
//! gives something in the order another meaning, or puts something new there, numbers that as a *behaviour*,
//! and goes on as before until it is in force. Each process says with its boot record what it knows
//! ([`Control::Boot`]). Once the processes of all nodes know more than what is in force, the leader of
//! partition 0 orders that it comes into force ([`Control::RaiseLevel`]); so all replicas change over behind
//! the same epoch, the restart of the last node is what triggers it, and until then every node can go back to
//! the older build.
//!
//! # How a change of a command's meaning uses it
//!
//! [`LEVEL`] grows by one, with a line that says what is new. The changed procedure is registered under a new
//! name, beside the old one, which stays as it is. Whoever makes the request takes the new one if
//! [`PartitionMap::level`] of its confirmed map is high enough, and the old one otherwise. A request in the
//! log names its procedure, so it means the same to all who execute it, now and whenever the log is replayed:
//! no replica looks at the level while it executes. The same holds for new records and frames: they are sent
//! when the level allows it, and read always. What is left of an old behaviour may go when no log can hold it
//! any more.
//!
//! # Invariants
//!
//! 1. The level in force is a function of the order, and never falls.
//! 2. Nothing that follows the record which brings a behaviour into force becomes final at a node that does
//!    not know it: such a node ends there. It gets no boot id either, so it has no clients.

use super::machine::{ClusterEffects, ClusterNode};
use super::recover::ClusterRecoverError;
use order::{Control, LEVEL_FIRST, PartitionMap};
use txn::PartitionId;

/// The newest behaviour that this build knows: it knows all before it, too.
///
/// 1. What clusters begin with.
/// 2. [`order::Control::CorrectClock`], and [`super::Frame::Time`].
/// 3. State digests are summed and compared: [`super::Frame::States`], and a digest in the bases of groups.
pub const LEVEL: u32 = COMPARES_STATES;

/// The behaviour that corrects clocks.
pub const CORRECTS_CLOCK: u32 = LEVEL_FIRST + 1;
/// The behaviour that compares the replicas' states.
pub const COMPARES_STATES: u32 = CORRECTS_CLOCK + 1;

/// Whether a build may take part in a cluster with this map. The error says which build may.
pub fn check_level(map: &PartitionMap, known: u32) -> Result<(), ClusterRecoverError> {
    if map.level <= known {
        return Ok(());
    }
    Err(ClusterRecoverError::Level { in_force: map.level, known })
}

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
