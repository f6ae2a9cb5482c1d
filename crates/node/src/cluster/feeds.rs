//! What a node gets of groups of which it keeps no replica, and who executes for its clients there: dispatch
//! inside a zone.
//!
//! A zone has one replica of every partition, spread over its nodes, and the order is made of the batches of
//! all groups. So a node follows each group that it has no part in through a node that has one: its neighbour
//! in the zone, or, while that is gone, one of another zone. The one that is followed sends each batch as
//! soon as its own log has it, cut down to what the follower executes, and how far the group has agreed. What
//! is told before it is agreed may be replaced later, exactly as in a log; the merge treats both alike.
//!
//! Whoever is followed also answers: it sends the follower the outcomes of its clients' requests that were
//! executed here. A follower that comes anew names the requests that it waits for and gets their outcomes
//! again. Whoever is followed may have stopped executing, or begun behind a checkpoint that has them: a
//! follower that waits for long comes to the other replicas, too, less and less often. So an outcome is lost
//! only if all that its replicas remembered is gone; the client is then told that nobody knows.
//!
//! And it is the way by which the partitions that the follower keeps hear from the group's partition of
//! transactions that they share ([`execute::siblings`]): one frame for each follower and round has all of it.
//! A follower that comes anew is told again what its partitions have not final-committed. Whoever has
//! forgotten some of that tells it to fetch a checkpoint instead.
//!
//! A frame may not be of any size, and a link not hold any number of them. So what is too large for one frame
//! goes in parts, which may come in any order (a follower that would have to remember too many of them gives
//! up the oldest, and its subscription with them); and a follower that has not said to have heard what it was
//! sent is told little more than that there is something.
//!
//! A subscription numbers its frames. One that comes too early waits for those before it, a little while:
//! then they are lost, and that ends the subscription. The follower begins another behind what is confirmed.
//! One that has not begun in time is not waited for, but is taken if it begins before a later one: over a
//! slow link, what is told may take longer than anybody's patience.
//!
//! Invariants:
//! 1. A follower is never told that something is agreed before it was sent the batch, under the same
//!    subscription.
//! 2. A follower is sent all that it executes, whichever map either of the two has.
//! 3. A follower never confirms what its group has not agreed on, whomever it follows, and however often that
//!    changes.

mod listen;
mod parts;
mod tell;

pub use parts::{Item, Part};

use super::machine::DOUBT_TICKS;
use bytes::Bytes;
use execute::siblings::Twins;
use listen::Followed;
use parts::Assemblies;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use tell::Follower;
use txn::{BootId, Epoch, NodeId, Outcome, PartitionId, Position, RequestId};

/// So many outcomes are remembered for those who come anew, of at most so many bytes in all.
const RECENT_MAX: usize = 16 << 10;
const RECENT_BYTES_MAX: usize = 8 << 20;

/// A batch on its way to a follower.
#[derive(Clone, Debug)]
pub struct Fed {
    /// Its epoch.
    pub epoch: Epoch,
    /// The entry's index in the group's log.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// The digest of its bytes.
    pub digest: u64,
    /// The bytes that it has there.
    pub bytes: u64,
    /// The last number that the whole batch has of the follower; 0 if none.
    pub noted: u64,
    /// What the follower needs of it, as bytes.
    pub part: Bytes,
}

/// The outcome of a request that was executed for another node's client.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Which request.
    pub id: RequestId,
    /// Who executed it.
    pub partition: PartitionId,
    /// At which position.
    pub position: Position,
    /// How it ended.
    pub outcome: Outcome,
}

impl Answered {
    /// About what it takes to remember it.
    fn bytes(&self) -> usize {
        64 + self.outcome.as_ref().map_or(0, txn::Reply::bytes)
    }
}

/// An outcome that may be asked for again.
#[derive(Clone, Debug)]
struct Recent {
    /// Whose client waits.
    node: NodeId,
    /// An epoch that was confirmed when the request was executed: not before the request's own.
    confirmed: Epoch,
    answered: Answered,
}

/// How a node wants to follow a group.
pub(super) struct Wish {
    pub subscription: u64,
    pub boot: BootId,
    pub after: Epoch,
    pub waits: Vec<RequestId>,
    pub kept: Vec<PartitionId>,
    pub settled: Epoch,
    pub heard: Epoch,
}

/// News of a group.
#[derive(Clone, Debug)]
pub(super) struct News {
    pub batches: Vec<Fed>,
    pub held: Epoch,
    pub agreed: u64,
    pub leader: Option<(NodeId, u64)>,
    pub answers: Vec<Answered>,
    pub messages: Vec<(PartitionId, Bytes)>,
    pub part: Option<Part>,
}

/// What siblings of this node have said to siblings of others since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Rounds in which a partition had something to say to a node, counted for each partition and node.
    pub rounds: u64,
    /// Frames that took it there: one for each round, fewer when a node has not heard what is on its way,
    /// more for what is too large for one.
    pub frames: u64,
    /// What was said: reads, anchors, confirmations.
    pub notes: u64,
}

/// Both sides of dispatch. See the module's head.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    followers: BTreeMap<(PartitionId, NodeId), Follower>,
    followed: BTreeMap<PartitionId, Followed>,
    subscriptions: u64,
    /// Outcomes for nodes that do not execute what their clients ask for.
    recent: VecDeque<Recent>,
    recent_bytes: usize,
    /// Requests of this process's clients that other nodes execute: where, and since when.
    unanswered: BTreeMap<RequestId, (PartitionId, u64)>,
    /// Whether a follower keeps a partition that this node keeps too.
    twins: Twins,
    /// What was said to partitions of other nodes.
    said: Said,
    /// The last number of what was sent in parts.
    large: u64,
    /// What comes in parts.
    assemblies: Assemblies,
}

impl Feeds {
    /// Nothing yet. The names of subscriptions differ from those of processes with another nonce.
    pub fn new(nonce: u64) -> Feeds {
        Feeds {
            subscriptions: (nonce & 0xff_ffff_ffff) << 20,
            large: (nonce & 0xff_ffff_ffff) << 20,
            ..Feeds::default()
        }
    }

    /// A group's log has other batches behind this epoch than it had.
    pub fn rewind(&mut self, group: PartitionId, to: Epoch) {
        for (_, follower) in self.of_group(group) {
            follower.rewind(to);
        }
    }

    fn of_group(
        &mut self,
        group: PartitionId,
    ) -> impl Iterator<Item = (&(PartitionId, NodeId), &mut Follower)> {
        self.followers.range_mut((group, NodeId(0))..=(group, NodeId(u16::MAX)))
    }

    /// What was sent to a node may be lost, and what it sent.
    pub fn lost(&mut self, node: NodeId) {
        self.followers.retain(|&(_, follower), _| follower != node);
        for followed in self.followed.values_mut() {
            followed.lost(node);
        }
    }

    /// A follower has heard a frame.
    pub fn heard(&mut self, group: PartitionId, node: NodeId, subscription: u64, number: u64) {
        if let Some(follower) = self.followers.get_mut(&(group, node)) {
            follower.heard(subscription, number);
        }
    }

    /// Epochs were taken back here, and with them what was said of their transactions.
    pub fn retell(&mut self) {
        self.followed.values_mut().for_each(Followed::retell);
    }

    /// Who asks groups of other nodes has another name now: they are asked anew.
    pub fn renew(&mut self) {
        for followed in self.followed.values_mut() {
            *followed = Followed::after(self.subscriptions);
        }
    }

    /// What was said to partitions of other nodes.
    pub fn said(&self) -> Said {
        self.said
    }

    /// How many requests of this process's clients other nodes execute.
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// What this process's clients wait for that is executed by a group's replicas.
    fn waiting(&self, group: PartitionId) -> Vec<RequestId> {
        let waiting = self.unanswered.iter();
        let of_group = waiting.filter(|(_, (partition, _))| *partition == group);
        of_group.map(|(&id, _)| id).collect()
    }

    /// The groups of which this process's clients have waited for so long that others of their replicas are
    /// to be asked, and how often that was so before.
    fn doubtful(&self, now_tick: u64) -> BTreeMap<PartitionId, u32> {
        let mut oldest: BTreeMap<PartitionId, u64> = BTreeMap::new();
        for &(partition, since) in self.unanswered.values() {
            let oldest = oldest.entry(partition).or_insert(since);
            *oldest = since.min(*oldest);
        }
        let doubts = |(partition, since): (PartitionId, u64)| {
            let age = now_tick - since;
            let times = age / DOUBT_TICKS;
            let is_due = age.is_multiple_of(DOUBT_TICKS) && times.is_power_of_two();
            is_due.then_some((partition, times.trailing_zeros()))
        };
        oldest.into_iter().filter_map(doubts).collect()
    }

    /// A client's request is executed elsewhere.
    pub fn expect(&mut self, id: RequestId, partition: PartitionId, now_tick: u64) {
        self.unanswered.insert(id, (partition, now_tick));
    }

    /// The client of a request was told something else.
    pub fn forget(&mut self, id: RequestId) {
        self.unanswered.remove(&id);
    }

    /// Requests that wait since before `older_than_tick`, which are not waited for any more.
    pub fn give_up(&mut self, older_than_tick: u64) -> Vec<RequestId> {
        let late = |(_, since): &(PartitionId, u64)| *since < older_than_tick;
        let found = self.unanswered.iter().filter(|(_, waits)| late(waits));
        let given_up: Vec<RequestId> = found.map(|(&id, _)| id).collect();
        for id in &given_up {
            self.unanswered.remove(id);
        }
        given_up
    }

    fn remember(&mut self, recent: Recent) {
        self.recent_bytes += recent.answered.bytes();
        self.recent.push_back(recent);
        while self.recent.len() > RECENT_MAX || self.recent_bytes > RECENT_BYTES_MAX {
            let oldest = self.recent.pop_front();
            self.recent_bytes -= oldest.map_or(0, |oldest| oldest.answered.bytes());
        }
    }

    /// The outcomes that a node lacks which waited for these requests when it had confirmed an epoch. What it
    /// was asked for later is in a later epoch, and may have been executed before its wish came.
    fn lacking(&self, node: NodeId, group: PartitionId, waits: &[RequestId], after: Epoch) -> Vec<Answered> {
        let waits: BTreeSet<&RequestId> = waits.iter().collect();
        let of_node = self.recent.iter().filter(|recent| {
            recent.node == node
                && recent.answered.partition == group
                && (recent.confirmed > after || waits.contains(&recent.answered.id))
        });
        of_node.map(|recent| recent.answered.clone()).collect()
    }
}
