//! The node with its journal, and the hands that do what the node wants.

use super::member::Member;
use super::port::Answer;
use super::status::MemberStatus;
use crate::cluster::ChangeAnswer;
use crate::disk::RealDisk;
use bytes::Bytes;
use execute::siblings::Sent;
use log::{LogStatus, SyncTicket, Synced, Truncated, Truncation};
use node::Refused;
use node::cluster::checkpoint::Needed;
use node::cluster::{Answered, ClusterCheckpoint, ClusterEvent, Piece, Whole};
use order::PartitionMap;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use txn::{NodeId, PartitionId, Position, Request, RequestId};

/// Where the core hands over what may wait for the disk. Dropped to end the threads at the other ends.
pub(super) struct Hands {
    pub sync: Sender<SyncTicket<RealDisk>>,
    /// Who asks for a sync that the node does not want.
    pub sync_aside: Sender<ChangeAnswer>,
    pub files: Sender<FileWork>,
    pub checkpoint: Sender<ClusterCheckpoint>,
}

/// Work on the log's files.
pub(super) enum FileWork {
    /// Make the next segment.
    Prepare,
    /// The same, for a node that is out until there is one.
    MakeRoom,
    /// Remove the checkpoints that are not needed, and what the others cover of the journal.
    Prune(Needed),
    /// Read a piece of a checkpoint for another node.
    Read(NodeId, Piece),
    /// Write a piece of a checkpoint that another node gave: its bytes, and what the file must be if it is
    /// the last.
    Write(Piece, Bytes, Option<Whole>),
}

/// What one pass through the core made possible. Acted on after the lock is released.
#[derive(Default)]
pub(super) struct Outcome {
    /// Somebody should step the engines.
    pub step: bool,
    /// Every port should look: writes are taken again.
    pub notify_all: bool,
    /// More can be delivered once the engines have got on.
    pub waits_for_room: bool,
    /// Error replies of requests that had been taken.
    pub refused: Vec<Answer>,
    /// Replies of requests that were executed by other nodes.
    pub answered: Vec<Answered>,
    /// Whether other nodes' clients may wait for what is executed here; `None` if that is as it was.
    pub is_spread: Option<bool>,
    /// Strict reads that may run once the partition has final-committed up to the position.
    pub readable: Vec<(RequestId, PartitionId, Position)>,
    /// The node is no part of its cluster any more: what to tell its operator.
    pub ended: Option<String>,
    /// The process is to start again, and keeps what this map says.
    pub restart: Option<Arc<PartitionMap>>,
}

impl Outcome {
    /// Adds what a later pass made possible.
    pub fn add(&mut self, mut later: Outcome) {
        self.step |= later.step;
        self.notify_all |= later.notify_all;
        self.waits_for_room |= later.waits_for_room;
        self.refused.append(&mut later.refused);
        self.answered.append(&mut later.answered);
        self.is_spread = later.is_spread.or(self.is_spread);
        self.readable.append(&mut later.readable);
        self.ended = self.ended.take().or(later.ended);
        self.restart = later.restart.or(self.restart.take());
    }
}

/// The state machine with its journal. Whoever holds the lock drives it; appends happen under it, waiting
/// does not.
pub(super) struct Core {
    pub member: Box<Member>,
    pub hands: Option<Hands>,
    /// A turn of the node has begun and not ended. Seen by nobody, unless a panic cut the turn short.
    broken: bool,
}

/// What is told of a node whose turn a panic cut short, to who comes before that is told everywhere.
const BROKEN: &str = "MISCONF this node stopped because of a bug: restart it, and please report this";

impl Core {
    pub fn new(member: Member, hands: Hands) -> Mutex<Core> {
        Mutex::new(Core { member: Box::new(member), hands: Some(hands), broken: false })
    }

    /// Lets the node take a turn; none once a panic has cut a turn short: its state may be wrong then, and
    /// nothing of that may get into the journal or to other nodes, whoever comes next.
    pub fn turn<R>(&mut self, turn: impl FnOnce(&mut Member, Option<&Hands>) -> R) -> Option<R> {
        if std::mem::replace(&mut self.broken, true) {
            return None;
        }
        let result = turn(&mut self.member, self.hands.as_ref());
        self.broken = false;
        Some(result)
    }

    pub fn submit(&mut self, requests: &mut Vec<Arc<Request>>, now_ms: u64) -> Result<Outcome, Refused> {
        self.turn(|member, hands| member.submit(requests, hands, now_ms))
            .unwrap_or_else(|| Err(Refused::ReadOnly(BROKEN.into())))
    }

    /// Something happens to the node.
    pub fn handle(&mut self, event: impl Into<ClusterEvent>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.handle(event, hands, now_ms)).unwrap_or_default()
    }

    /// A sync has ended.
    pub fn synced(&mut self, synced: io::Result<Synced>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.synced(synced, hands, now_ms)).unwrap_or_default()
    }

    /// Requests of other nodes' clients have final-committed.
    pub fn executed(&mut self, answered: Vec<Answered>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.executed(answered, hands, now_ms)).unwrap_or_default()
    }

    /// Partitions have something to say to those of other nodes.
    pub fn say(&mut self, sent: Vec<Sent>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.say(sent, hands, now_ms)).unwrap_or_default()
    }

    /// What must be synced, if anything must.
    pub fn sync_ticket(&self) -> Option<SyncTicket<RealDisk>> {
        self.member.records.journal.sync_ticket()
    }

    /// What can be removed of the journal.
    pub fn truncation(&self) -> Option<Truncation<RealDisk>> {
        self.member.records.journal.truncation()
    }

    /// Notes what was removed.
    pub fn truncated(&mut self, truncated: Truncated) {
        self.member.records.journal.truncated(truncated);
    }

    /// Notes that the journal is durable, without telling the node.
    pub fn note_synced(&mut self, synced: Synced) {
        self.member.records.journal.synced(synced);
    }

    /// Brings everything to the disk at the end.
    pub fn close(&mut self) -> io::Result<()> {
        let journal = &mut self.member.records.journal;
        // What is in the journal may be as wrong as what is in memory: the next start judges. A sync that
        // failed was told when it did.
        if !self.broken && !journal.is_closed() {
            journal.sync()?;
            journal.write_marker()?;
            journal.sync()?;
        }
        Ok(())
    }

    /// Whether everything that was taken has ended, given how many requests the clients still wait for.
    pub fn is_drained(&self, outstanding: u64) -> bool {
        let node = &self.member.node;
        // What is agreed may be executed only later, or at another node. What only others wait for goes on
        // without this one.
        node.waits_in_vain() || node.is_drained() && outstanding == 0
    }

    /// Counters and places.
    pub fn status(&self) -> (MemberStatus, LogStatus) {
        (self.member.status(), self.member.records.journal.status())
    }
}
