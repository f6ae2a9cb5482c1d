//! What groups keep: the vocabulary of the journal, and of those who agree.

use bytes::Bytes;
use txn::codec::{Reader, put_bytes, put_varint};
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
    /// What the group's users agree on. The first entry of a leader's term is empty.
    Data,
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

impl Base {
    /// Appends the base.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.index);
        put_varint(out, self.term);
        let members = &self.members;
        for nodes in [&members.voters, &members.voters_outgoing, &members.learners, &members.learners_next] {
            put_varint(out, nodes.len() as u64);
            for node in nodes {
                put_varint(out, u64::from(node.0));
            }
        }
        out.push(u8::from(members.auto_leave));
        put_bytes(out, &self.state);
    }

    /// Reads a base. `None` on anything that was not written as above.
    pub fn take(reader: &mut Reader<'_>) -> Option<Base> {
        let index = reader.varint()?;
        // There is always a next entry.
        index.checked_add(1)?;
        let term = reader.varint()?;
        let mut nodes = || -> Option<Vec<NodeId>> {
            let mut nodes = Vec::new();
            for _ in 0..reader.varint()? {
                nodes.push(NodeId(u16::try_from(reader.varint()?).ok()?));
            }
            Some(nodes)
        };
        let (voters, voters_outgoing) = (nodes()?, nodes()?);
        let (learners, learners_next) = (nodes()?, nodes()?);
        Some(Base {
            index,
            term,
            members: Members {
                voters,
                voters_outgoing,
                learners,
                learners_next,
                auto_leave: match reader.u8()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
            },
            state: Bytes::copy_from_slice(reader.bytes()?),
        })
    }
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
        Kept { partition, base: None, reset: false, entries: Vec::new(), hard_state: None }
    }

    /// Whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.base.is_none() && self.entries.is_empty() && self.hard_state.is_none()
    }
}
