//! Consensus groups: how the replicas of a partition agree on a sequence of entries.
//!
//! What an entry says is its users' business: the ordered family agrees on batches of requests (crate
//! `order`), a certified protocol on what it must not forget (crate `certify`).
//!
//! A [`Group`] is one replica's part in one group: a state machine without threads, files or clocks. Ticks,
//! messages and proposals come in; [`Group::turn`] says what is to be done: messages that may leave at once,
//! a record to keep, and messages that promise something and leave only once the record is kept
//! ([`Group::kept`]). A follower's answer to a heartbeat and its question for a read index promise nothing,
//! so they leave at once, unless their term is not durable yet.
//!
//! The agreement itself is a library's work (Raft, [`RaftGroup`]), behind this trait; nobody outside of this
//! crate names the library. [`MimoxGroup`] sends data ahead, and has the library agree on the data's names. A
//! replica that stands alone, and always will, agrees with nobody ([`SoloGroup`]).
//!
//! Invariants:
//! 1. What [`Kept`] says of a term and a vote is durable before a message that tells of it leaves.
//! 2. [`Turn::committed`] never goes back, and an entry up to it is never replaced.
//! 3. Terms and indices grow along the log; an entry may be replaced only by one of a later term.
//! 4. A read index that is told was confirmed by a majority after it was asked for.

mod examine;
mod message;
mod mimox;
mod raft_group;
mod solo;
mod storage;
mod survivor;

pub use mimox::{MimoxGroup, OPT_BATCHES_MAX, describe};
pub use raft_group::{ELECTION_TICKS, RaftGroup};
pub use solo::SoloGroup;
pub use survivor::sole_member;

use bytes::Bytes;
use log::{Base, Entry, HardState, Kept, Members};
use std::fmt;
use std::str::FromStr;
use txn::{NodeId, PartitionId};

/// What happens to a group's replica.
#[derive(Clone, Debug)]
pub enum Input {
    /// A tick of the clock that elections and heartbeats count.
    Tick,
    /// A message of another replica, as [`Turn::messages`] gave it there.
    Message(Bytes),
    /// An entry is proposed. Only a leader takes it.
    Propose(Bytes),
    /// An index is wanted up to which everything was agreed when the question was asked. The answer comes in
    /// [`Turn::indices`], or never.
    AskIndex {
        /// Names the question; no two of a process have the same name.
        question: u64,
    },
    /// The leader should hand over.
    TransferLeader(NodeId),
    /// This replica should try to lead, if it knows no leader: it asks first whether a majority would vote
    /// for it.
    Campaign,
    /// The leader should take the next step of a change of members.
    ChangeMembers(MemberChange),
    /// A replica of [`Turn::behind`] has had time to fetch a checkpoint: whether it has shows when it gets
    /// entries again.
    TryAgain(NodeId),
    /// Nothing reaches this replica at present.
    Unreachable(NodeId),
}

/// A step of a change of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// This node gets entries from now on, and has no vote yet.
    AddLearner(NodeId),
    /// The learners among these become voters, and these voters leave, at once.
    Replace {
        /// Who comes.
        voters: Vec<NodeId>,
        /// Who goes.
        leavers: Vec<NodeId>,
    },
    /// A change that is under way ends: the old voters' majority counts no more.
    Finish,
}

/// Why an input was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Only the leader can, and this is none.
    #[error("this replica does not lead its group")]
    NotLeader,
    /// Bytes that are no message.
    #[error("a message of a consensus group does not read back")]
    Malformed,
    /// The library refused: an earlier change is under way, or the message is too late.
    #[error("the group cannot do this now")]
    NotNow,
}

/// A message says what no replica could say to this one: whoever sent it is not to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of a consensus group is refused: {0}")]
pub struct Contradiction(pub &'static str);

/// What a message of another replica is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Examined {
    /// It asks for a vote.
    pub asks_for_vote: bool,
    /// It has entries that this log lacks.
    pub is_append: bool,
    /// The entries that this log would get now.
    pub appends: Vec<Entry>,
    /// So many of the first batches among them are the next ones ahead of the log: [`Turn::known`].
    pub known: usize,
    /// The batches that the next turn would tell ahead of the log.
    pub ahead: Option<Ahead>,
    /// Batches that have no place yet: they are held until entries name them.
    pub loose: Vec<Bytes>,
}

/// Batches ahead of the log: its leader will propose them next, if it stays the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// So many of the batches that are ahead stay; the others are void.
    pub stays: usize,
    /// The batches that follow those.
    pub batches: Vec<Bytes>,
}

/// What is to be done, in this order: take the batches ahead, send the messages, keep the record, and, once
/// it is kept, say so and send the promises.
#[derive(Clone, Debug)]
pub struct Turn {
    /// Counts turns from 1; 0 in a turn without anything to keep or to promise.
    pub number: u64,
    /// Further batches ahead of the log.
    pub ahead: Option<Ahead>,
    /// So many of the first batches in [`Turn::kept`] are the next ones ahead of the log, which now have
    /// their places in it.
    pub known: usize,
    /// All other batches ahead are void.
    pub voids_ahead: bool,
    /// Messages of these nodes that had to wait: they come in again now, to be examined and handled.
    pub again: Vec<(NodeId, Bytes)>,
    /// Messages that leave at once.
    pub messages: Vec<(NodeId, Bytes)>,
    /// What is to be kept. Entries in it replace those at their indices and all later ones, from now on and
    /// not only on the disk.
    pub kept: Kept,
    /// Whether it must be durable before it counts as kept.
    pub must_sync: bool,
    /// Whether a term or a vote is in it: then it must be durable even where entries need not be.
    pub is_promise: bool,
    /// Messages that leave once the record is kept.
    pub promises: Vec<(NodeId, Bytes)>,
    /// Replicas that are so far behind that the log has not what they need: they must fetch a checkpoint.
    pub behind: Vec<NodeId>,
    /// Up to here entries are agreed.
    pub committed: u64,
    /// Answers to questions: the question, and the index.
    pub indices: Vec<(u64, u64)>,
    /// The members, if they changed.
    pub members: Option<Members>,
}

impl Turn {
    fn nothing(partition: PartitionId, committed: u64) -> Turn {
        Turn {
            number: 0,
            ahead: None,
            known: 0,
            voids_ahead: false,
            again: Vec::new(),
            messages: Vec::new(),
            kept: Kept::nothing(partition),
            must_sync: false,
            is_promise: false,
            promises: Vec::new(),
            behind: Vec::new(),
            committed,
            indices: Vec::new(),
            members: None,
        }
    }
}

/// A replica's part in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It proposes.
    Leader,
    /// It follows, or waits for somebody to follow.
    Follower,
    /// It asks for votes.
    Candidate,
}

/// Where a replica stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its part.
    pub role: Role,
    /// Its term.
    pub term: u64,
    /// The leader, if it knows one.
    pub leader: Option<NodeId>,
    /// The last entry that it has.
    pub last: u64,
    /// The last entry that is agreed, as far as it knows.
    pub committed: u64,
    /// The last entry that it has kept.
    pub persisted: u64,
    /// The last agreed entry whose change of members, if it is one, has taken effect.
    pub applied: u64,
    /// The members.
    pub members: Members,
    /// What each replica has, if this one leads: 0 for one that has said nothing to this leader yet.
    pub matched: Vec<(NodeId, u64)>,
}

/// Who lacks no more entries than that has nearly all: it can lead, or vote, at once.
const ENTRIES_BEHIND_MAX: u64 = 8;

impl GroupStatus {
    /// Whether a replica is known to have nearly all entries of this one, which leads.
    pub fn has_nearly_all(&self, node: NodeId) -> bool {
        self.matched
            .iter()
            .any(|&(other, matched)| other == node && matched + ENTRIES_BEHIND_MAX >= self.last)
    }

    /// How many entries a replica lacks. `None` unless this one leads and has heard so: a new leader knows
    /// nothing of the others until they answer.
    pub fn lag(&self, node: NodeId) -> Option<u64> {
        let (_, matched) = self.matched.iter().find(|(other, _)| *other == node)?;
        (*matched > 0).then(|| self.last.saturating_sub(*matched))
    }
}

/// How the replicas of a group agree: one for all groups of a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// [`RaftGroup`].
    #[default]
    Raft,
    /// [`MimoxGroup`].
    Mimox,
}

impl Delivery {
    /// All of them.
    pub const ALL: [Delivery; 2] = [Delivery::Raft, Delivery::Mimox];

    /// Its name, in options and texts.
    pub fn name(self) -> &'static str {
        match self {
            Delivery::Raft => "raft",
            Delivery::Mimox => "mimox",
        }
    }

    /// A group's replica of `me`, from what it had kept: see [`RaftGroup::new`]. The journal is the same.
    ///
    /// # Errors
    /// As [`RaftGroup::new`].
    #[allow(clippy::too_many_arguments, reason = "they are those of the groups")]
    pub fn group(
        self,
        me: NodeId,
        partition: PartitionId,
        base: Base,
        entries: Vec<Entry>,
        hard_state: HardState,
        seed: u64,
        trail_bytes_max: u64,
    ) -> Result<Box<dyn Group>, String> {
        Ok(match self {
            Delivery::Raft => {
                let new = RaftGroup::new;
                Box::new(new(me, partition, base, entries, hard_state, seed, trail_bytes_max)?)
            }
            Delivery::Mimox => {
                let new = MimoxGroup::new;
                Box::new(new(me, partition, base, entries, hard_state, seed, trail_bytes_max)?)
            }
        })
    }
}

impl fmt::Display for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Delivery {
    type Err = String;

    fn from_str(name: &str) -> Result<Delivery, String> {
        let known = Delivery::ALL.into_iter().find(|delivery| delivery.name() == name);
        known.ok_or_else(|| format!("'{name}' is no way to deliver: use raft or mimox"))
    }
}

/// One replica's part in a consensus group.
pub trait Group: Send {
    /// Looks at a message that a node has sent, before it is handled: one that cannot be is refused, and is
    /// not to be handled.
    ///
    /// # Errors
    /// The message contradicts itself, or what this replica knows for certain.
    fn examine(&self, from: NodeId, message: &Bytes) -> Result<Examined, Contradiction>;
    /// Takes an input.
    fn handle(&mut self, input: Input) -> Result<(), Refusal>;
    /// What is to be done; `None` if nothing. Call it until then after every input and after [`Group::kept`].
    fn turn(&mut self) -> Option<Turn>;
    /// What this turn and all before it wanted kept is kept.
    fn kept(&mut self, number: u64);
    /// A checkpoint covers entries up to a new base, which must be agreed. The log may now begin there; the
    /// driver keeps the base on its own. Some entries before it stay for those who are a little behind.
    fn rebase(&mut self, base: Base);
    /// Where the log's base is.
    fn base(&self) -> &Base;
    /// The members now.
    fn members(&self) -> Members;
    /// The members as of an entry behind the base, [`GroupStatus::applied`] at most.
    fn members_at(&self, index: u64) -> Members;
    /// An entry that the log has.
    fn entry(&self, index: u64) -> Option<Entry>;
    /// Whether it leads, in which term.
    fn leads(&self) -> Option<u64>;
    /// Who leads, and in which term, if it knows: what its status says, for those who ask often.
    fn leader(&self) -> Option<(NodeId, u64)>;
    /// Where it stands.
    fn status(&self) -> GroupStatus;
    /// How many batches are ahead of its log, as its turns have told.
    fn ahead(&self) -> usize {
        0
    }
}
