//! The messages.

#![allow(missing_docs, reason = "the library's documentation tells what they mean")]
#![allow(clippy::wrong_self_convention, reason = "the library knows them by these names")]

use bytes::Bytes;

/// A kind of something, by its number.
macro_rules! kind {
    ($name:ident { $first:ident, $($other:ident),* $(,)? }) => {
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            #[default]
            $first,
            $($other),*
        }
    };
}

/// A message: its fields, and the names by which they are read and set. Numbers are given as they are, the
/// rest by reference.
macro_rules! message {
    ($name:ident {
        $($kind:ident $get:ident $set:ident $mut:ident $take:ident $field:ident: $type:ty),* $(,)?
    }) => {
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $(pub $field: $type),*
        }
        impl $name {
            $(
                message!($kind $get $field: $type);
                pub fn $set(&mut self, value: $type) {
                    self.$field = value;
                }
                pub fn $mut(&mut self) -> &mut $type {
                    &mut self.$field
                }
                pub fn $take(&mut self) -> $type {
                    std::mem::take(&mut self.$field)
                }
            )*
        }
    };
    (number $get:ident $field:ident: $type:ty) => {
        pub fn $get(&self) -> $type {
            self.$field
        }
    };
    (part $get:ident $field:ident: $type:ty) => {
        pub fn $get(&self) -> &$type {
            &self.$field
        }
    };
}

kind!(EntryType { EntryNormal, EntryConfChange, EntryConfChangeV2 });

kind!(MessageType {
    MsgHup,
    MsgBeat,
    MsgPropose,
    MsgAppend,
    MsgAppendResponse,
    MsgRequestVote,
    MsgRequestVoteResponse,
    MsgSnapshot,
    MsgHeartbeat,
    MsgHeartbeatResponse,
    MsgUnreachable,
    MsgSnapStatus,
    MsgCheckQuorum,
    MsgTransferLeader,
    MsgTimeoutNow,
    MsgReadIndex,
    MsgReadIndexResp,
    MsgRequestPreVote,
    MsgRequestPreVoteResponse,
});

kind!(ConfChangeTransition { Auto, Implicit, Explicit });

kind!(ConfChangeType { AddNode, RemoveNode, AddLearnerNode });

message!(Entry {
    number get_entry_type set_entry_type mut_entry_type take_entry_type entry_type: EntryType,
    number get_term set_term mut_term take_term term: u64,
    number get_index set_index mut_index take_index index: u64,
    part get_data set_data mut_data take_data data: Bytes,
    part get_context set_context mut_context take_context context: Bytes,
});

message!(SnapshotMetadata {
    part get_conf_state set_conf_state mut_conf_state take_conf_state conf_state: ConfState,
    number get_index set_index mut_index take_index index: u64,
    number get_term set_term mut_term take_term term: u64,
});

message!(Snapshot {
    part get_data set_data mut_data take_data data: Bytes,
    part get_metadata set_metadata mut_metadata take_metadata metadata: SnapshotMetadata,
});

message!(Message {
    number get_msg_type set_msg_type mut_msg_type take_msg_type msg_type: MessageType,
    number get_to set_to mut_to take_to to: u64,
    number get_from set_from mut_from take_from from: u64,
    number get_term set_term mut_term take_term term: u64,
    number get_log_term set_log_term mut_log_term take_log_term log_term: u64,
    number get_index set_index mut_index take_index index: u64,
    part get_entries set_entries mut_entries take_entries entries: Vec<Entry>,
    number get_commit set_commit mut_commit take_commit commit: u64,
    number get_commit_term set_commit_term mut_commit_term take_commit_term commit_term: u64,
    part get_snapshot set_snapshot mut_snapshot take_snapshot snapshot: Snapshot,
    number get_request_snapshot set_request_snapshot
        mut_request_snapshot take_request_snapshot request_snapshot: u64,
    number get_reject set_reject mut_reject take_reject reject: bool,
    number get_reject_hint set_reject_hint mut_reject_hint take_reject_hint reject_hint: u64,
    part get_context set_context mut_context take_context context: Bytes,
    number get_deprecated_priority set_deprecated_priority
        mut_deprecated_priority take_deprecated_priority deprecated_priority: u64,
    number get_priority set_priority mut_priority take_priority priority: i64,
});

message!(HardState {
    number get_term set_term mut_term take_term term: u64,
    number get_vote set_vote mut_vote take_vote vote: u64,
    number get_commit set_commit mut_commit take_commit commit: u64,
});

message!(ConfState {
    part get_voters set_voters mut_voters take_voters voters: Vec<u64>,
    part get_learners set_learners mut_learners take_learners learners: Vec<u64>,
    part get_voters_outgoing set_voters_outgoing
        mut_voters_outgoing take_voters_outgoing voters_outgoing: Vec<u64>,
    part get_learners_next set_learners_next mut_learners_next take_learners_next learners_next: Vec<u64>,
    number get_auto_leave set_auto_leave mut_auto_leave take_auto_leave auto_leave: bool,
});

message!(ConfChange {
    number get_id set_id mut_id take_id id: u64,
    number get_change_type set_change_type mut_change_type take_change_type change_type: ConfChangeType,
    number get_node_id set_node_id mut_node_id take_node_id node_id: u64,
    part get_context set_context mut_context take_context context: Bytes,
});

message!(ConfChangeSingle {
    number get_change_type set_change_type mut_change_type take_change_type change_type: ConfChangeType,
    number get_node_id set_node_id mut_node_id take_node_id node_id: u64,
});

message!(ConfChangeV2 {
    number get_transition set_transition mut_transition take_transition transition: ConfChangeTransition,
    part get_changes set_changes mut_changes take_changes changes: Vec<ConfChangeSingle>,
    part get_context set_context mut_context take_context context: Bytes,
});

impl Snapshot {
    /// Whether it is of nothing.
    pub fn is_empty(&self) -> bool {
        self.metadata.index == 0
    }
}

impl ConfChangeV2 {
    /// Whether the change goes through a joint configuration, and whether that ends by itself.
    pub fn enter_joint(&self) -> Option<bool> {
        match self.transition {
            ConfChangeTransition::Auto if self.changes.len() <= 1 => None,
            ConfChangeTransition::Auto | ConfChangeTransition::Implicit => Some(true),
            ConfChangeTransition::Explicit => Some(false),
        }
    }

    /// Whether it ends a joint configuration.
    pub fn leave_joint(&self) -> bool {
        self.transition == ConfChangeTransition::Auto && self.changes.is_empty()
    }
}

impl From<(Vec<u64>, Vec<u64>)> for ConfState {
    fn from((voters, learners): (Vec<u64>, Vec<u64>)) -> ConfState {
        ConfState { voters, learners, ..ConfState::default() }
    }
}

/// About what a number and its tag take.
const FIELD_BYTES: usize = 6;

impl protobuf::Message for Entry {
    fn compute_size(&self) -> u32 {
        let bytes = self.data.len() + self.context.len() + 5 * FIELD_BYTES;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

impl protobuf::Message for ConfChange {
    fn compute_size(&self) -> u32 {
        u32::try_from(self.context.len() + 4 * FIELD_BYTES).unwrap_or(u32::MAX)
    }
}
