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

use order::{LEVEL_FIRST, PartitionMap};

/// The newest behaviour that this build knows: it knows all before it, too.
///
/// 1. What clusters begin with.
/// 2. [`order::Control::CorrectClock`], and [`super::Frame::Time`].
/// 3. State digests are summed and compared: [`super::Frame::States`], and a digest in the bases of groups.
/// 4. Nodes tell each other more: an outcome names the partition that was missing
///    ([`txn::Stop::Undeclared`]), and a node that follows a group says when it has no room for batches
///    ([`super::Frame::Heard`]).
pub const LEVEL: u32 = TELLS_MORE;

/// The behaviour that corrects clocks.
pub const CORRECTS_CLOCK: u32 = LEVEL_FIRST + 1;
/// The behaviour that compares the replicas' states.
pub const COMPARES_STATES: u32 = CORRECTS_CLOCK + 1;
/// The behaviour in which nodes tell each other what is missing, and whether they have room.
pub const TELLS_MORE: u32 = COMPARES_STATES + 1;

/// The cluster goes by something that this build does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "behaviour {in_force} is in force in this cluster, and this build of Ordo knows behaviours up to \
     {known}: it would make something else of the same requests than the other nodes, so it takes no part. \
     Start this node with the version of Ordo that the other nodes run, or a newer one; its data is untouched"
)]
pub struct TooOld {
    /// In the cluster.
    pub in_force: u32,
    /// Here.
    pub known: u32,
}

/// Whether a build may take part in a cluster with this map. The error says which build may.
pub fn check_level(map: &PartitionMap, known: u32) -> Result<(), TooOld> {
    if map.level <= known {
        return Ok(());
    }
    Err(TooOld { in_force: map.level, known })
}
