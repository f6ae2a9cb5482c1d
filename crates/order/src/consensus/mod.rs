//! Consensus groups: how the replicas of a partition agree on a sequence of entries.
//!
//! A [`Group`] is one replica's part in one group: a state machine without threads, files or clocks. Ticks, messages and
//! proposals come in; [`Group::turn`] says what is to be done: messages that may leave at once, a record to keep, and
//! messages that promise something and leave only once the record is kept ([`Group::kept`]).
//!
//! The agreement itself is a library's work (Raft). What it needs of us is [`raft::RaftGroup`]; nobody else names it.
//!
//! Invariants:
//! 1. What [`Kept`] says of a term and a vote is durable before a message that tells of it leaves.
//! 2. [`Group::committed`] never goes back, and an entry up to it is never replaced.
//! 3. Terms and indices grow along the log; an entry may be replaced only by one of a later term.

use bytes::Bytes;
use txn::{NodeId, PartitionId};

/// What a group never forgets: its term, whom it voted for in it, and how far entries are agreed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HardState {
    /// The newest term that it has seen.
    pub term: u64,
    /// Whom it voted for in that term: a node's number, or 0.
    pub vote: u64,
    /// Up to here entries are agreed. May lag behind; never wrong.
    pub commit: u64,
}

/// What an entry is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A batch, or nothing: the first entry of a leader's term is empty.
    Batch,
    /// A change of the group's members, in the library's own bytes.
    Membership,
}

/// An entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place, from 1, without gaps.
    pub index: u64,
    /// The term of the leader that proposed it.
    pub term: u64,
    /// What it is for.
    pub kind: EntryKind,
    /// What it says.
    pub data: Bytes,
}

/// Who belongs to a group. During a change there are two sets of voters, and each must agree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Those whose majority decides.
    pub voters: Vec<NodeId>,
    /// Those whose majority had decided before a change that is under way.
    pub voters_outgoing: Vec<NodeId>,
    /// Those who get the entries and have no vote.
    pub learners: Vec<NodeId>,
    /// Voters that become learners when the change is done.
    pub learners_next: Vec<NodeId>,
    /// Whether a change under way ends by itself.
    pub auto_leave: bool,
}

/// Where a group's log begins: everything up to there is covered by a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// The last entry that is covered.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The members as of that entry.
    pub members: Members,
    /// What the node must know of the state there beside the checkpoint's records. Opaque here.
    pub state: Bytes,
}

/// What a group wants kept, in this order: a new base, entries, and the hard state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Whose it is.
    pub partition: PartitionId,
    /// The log begins here now. Entries up to it are forgotten; those behind it stay, unless `reset`.
    pub base: Option<Base>,
    /// With a base: the entries behind it are forgotten too, because a leader's checkpoint was installed.
    pub reset: bool,
    /// Entries. They replace those at their indices and all later ones.
    pub entries: Vec<Entry>,
    /// The hard state.
    pub hard_state: Option<HardState>,
}

impl Kept {
    /// Nothing to keep.
    pub fn nothing(partition: PartitionId) -> Kept {
        Kept {
            partition,
            base: None,
            reset: false,
            entries: Vec::new(),
            hard_state: None,
        }
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.entries.is_empty() && self.hard_state.is_none()
    }
}
