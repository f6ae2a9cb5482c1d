//! The messages of `raft` as plain structs, with the names that the library knows them by. See
//! `vendor/README.md`.

mod change;
pub mod eraftpb;

use eraftpb::{ConfChange, ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};
use std::borrow::Cow;

pub mod prelude {
    //! All of them.
    pub use crate::eraftpb::{
        ConfChange, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState, Entry,
        EntryType, HardState, Message, MessageType, Snapshot, SnapshotMetadata,
    };
}

/// A change of one member.
pub fn new_conf_change_single(node_id: u64, kind: ConfChangeType) -> ConfChangeSingle {
    ConfChangeSingle { change_type: kind, node_id }
}

/// A change of members in either of its forms.
pub trait ConfChangeI {
    /// As the newer one.
    fn into_v2(self) -> ConfChangeV2;
    /// As the newer one.
    fn as_v2(&self) -> Cow<'_, ConfChangeV2>;
    /// The older one, if it is that.
    fn as_v1(&self) -> Option<&ConfChange>;
}

impl ConfChangeI for ConfChange {
    fn into_v2(self) -> ConfChangeV2 {
        ConfChangeV2 {
            changes: vec![new_conf_change_single(self.node_id, self.change_type)],
            context: self.context,
            ..ConfChangeV2::default()
        }
    }
    fn as_v2(&self) -> Cow<'_, ConfChangeV2> {
        Cow::Owned(self.clone().into_v2())
    }
    fn as_v1(&self) -> Option<&ConfChange> {
        Some(self)
    }
}

impl ConfChangeI for ConfChangeV2 {
    fn into_v2(self) -> ConfChangeV2 {
        self
    }
    fn as_v2(&self) -> Cow<'_, ConfChangeV2> {
        Cow::Borrowed(self)
    }
    fn as_v1(&self) -> Option<&ConfChange> {
        None
    }
}

/// Whether both are of the same members, whatever their order.
pub fn conf_state_eq(one: &ConfState, other: &ConfState) -> bool {
    let same = |one: &[u64], other: &[u64]| {
        let (mut one, mut other) = (one.to_vec(), other.to_vec());
        one.sort_unstable();
        other.sort_unstable();
        one == other
    };
    same(&one.voters, &other.voters)
        && same(&one.learners, &other.learners)
        && same(&one.voters_outgoing, &other.voters_outgoing)
        && same(&one.learners_next, &other.learners_next)
        && one.auto_leave == other.auto_leave
}
