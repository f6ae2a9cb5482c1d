//! The node, its log or journal, and the hands that do what the node wants.

use super::member::Member;
use super::port::Answer;
use crate::cluster::ChangeAnswer;
use crate::disk::RealDisk;
use bytes::Bytes;
use execute::siblings::Sent;
use node::cluster::checkpoint::Needed;
use node::cluster::{Answered, ClusterCheckpoint, ClusterEvent, Piece, Whole};
use node::{CheckpointJob, Effects, Event, Node, Refused};
use order::{Log, LogStatus, PartitionMap, SyncTicket, Synced, Truncated, Truncation};
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
    pub checkpoint: Sender<Job>,
}

/// A checkpoint that is to be written.
pub(super) enum Job {
    /// Of a node by itself.
    Alone(CheckpointJob),
    /// Of all partitions of a cluster's node.
    Member(ClusterCheckpoint),
}

/// Work on the log's files.
pub(super) enum FileWork {
    /// Make the next segment.
    Prepare,
    /// The same, for a cluster's node that is out until there is one.
    MakeRoom,
    /// Remove what checkpoints cover.
    Truncate(Position),
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

/// The state machine with its log. Whoever holds the lock drives it; appends happen under it, waiting does
/// not.
pub(super) struct Core {
    pub machine: Machine,
    pub hands: Option<Hands>,
    /// A turn of a cluster's node has begun and not ended. Seen by nobody, unless a panic cut the turn short.
    broken: bool,
}

/// What is driven: a node by itself, or one of a cluster.
pub(super) enum Machine {
    Alone(Box<Alone>),
    Member(Box<Member>),
}

/// What is told of a cluster's node whose turn a panic cut short, to who comes before that is told
/// everywhere.
const BROKEN: &str = "MISCONF this node stopped because of a bug: restart it, and please report this";

/// A node by itself.
pub(super) struct Alone {
    pub node: Node,
    pub log: Log<RealDisk>,
    effects: Effects,
}

impl Alone {
    pub fn new(node: Node, log: Log<RealDisk>) -> Alone {
        Alone { node, log, effects: Effects::default() }
    }
}

impl Core {
    pub fn new(machine: Machine, hands: Hands) -> Mutex<Core> {
        Mutex::new(Core { machine, hands: Some(hands), broken: false })
    }

    /// Lets a cluster's node take a turn; none for a node by itself, and once a panic has cut a turn short:
    /// its state may be wrong then, and nothing of that may get into the journal or to the other nodes,
    /// whoever comes next.
    pub fn turn<R>(&mut self, turn: impl FnOnce(&mut Member, Option<&Hands>) -> R) -> Option<R> {
        let Machine::Member(member) = &mut self.machine else {
            return None;
        };
        if std::mem::replace(&mut self.broken, true) {
            return None;
        }
        let result = turn(member, self.hands.as_ref());
        self.broken = false;
        Some(result)
    }

    pub fn submit(
        &mut self,
        requests: &mut Vec<Arc<Request>>,
        boot: u32,
        now_ms: u64,
    ) -> Result<Outcome, Refused> {
        if let Machine::Alone(alone) = &mut self.machine {
            alone.node.raise_boot(boot);
            alone.node.submit(requests, now_ms, &mut alone.effects)?;
            return Ok(alone.drive(self.hands.as_ref(), now_ms));
        }
        self.turn(|member, hands| member.submit(requests, hands, now_ms))
            .unwrap_or_else(|| Err(Refused::ReadOnly(BROKEN.into())))
    }

    /// Time passes, and the machine's clock shows this.
    pub fn tick(&mut self, now_ms: u64, wall_ms: u64) -> Outcome {
        match &mut self.machine {
            Machine::Alone(_) => self.alone(Event::Tick { wall_ms }, now_ms),
            Machine::Member(_) => self.member(ClusterEvent::Tick { wall_ms }, now_ms),
        }
    }

    /// The epoch time, less the steady time.
    pub fn epoch_lead_ms(&self) -> i64 {
        match &self.machine {
            Machine::Alone(alone) => alone.node.epoch_lead_ms(),
            Machine::Member(member) => member.node.epoch_lead_ms(),
        }
    }

    /// Admits nothing more.
    pub fn stop(&mut self, now_ms: u64) -> Outcome {
        match &mut self.machine {
            Machine::Alone(_) => self.alone(Event::Stop, now_ms),
            Machine::Member(_) => self.member(ClusterEvent::Stop, now_ms),
        }
    }

    /// The process ends soon: a cluster's node hands over what it leads, while its clients are still served.
    pub fn begin_to_end(&mut self, now_ms: u64) -> Outcome {
        self.member(ClusterEvent::Ending, now_ms)
    }

    /// A sync has ended.
    pub fn synced(&mut self, synced: io::Result<Synced>, now_ms: u64) -> Outcome {
        match &mut self.machine {
            Machine::Alone(alone) => {
                let event = match synced {
                    Ok(synced) => {
                        alone.log.synced(synced);
                        Event::LogSynced(synced.position)
                    }
                    Err(error) => Event::LogSyncFailed(error.to_string()),
                };
                self.alone(event, now_ms)
            }
            Machine::Member(_) => {
                self.turn(|member, hands| member.synced(synced, hands, now_ms)).unwrap_or_default()
            }
        }
    }

    /// An event of a node by itself; a cluster's knows it not.
    pub fn alone(&mut self, event: Event, now_ms: u64) -> Outcome {
        match &mut self.machine {
            Machine::Alone(alone) => {
                alone.node.handle(event, now_ms, &mut alone.effects);
                alone.drive(self.hands.as_ref(), now_ms)
            }
            Machine::Member(_) => Outcome::default(),
        }
    }

    /// An event of a cluster's node; one by itself knows it not.
    pub fn member(&mut self, event: ClusterEvent, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.handle(event, hands, now_ms)).unwrap_or_default()
    }

    /// Requests of other nodes' clients have final-committed.
    pub fn executed(&mut self, answered: Vec<Answered>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.executed(answered, hands, now_ms)).unwrap_or_default()
    }

    /// Partitions have something to say to those of other nodes.
    pub fn say(&mut self, sent: Vec<Sent>, now_ms: u64) -> Outcome {
        self.turn(|member, hands| member.say(sent, hands, now_ms)).unwrap_or_default()
    }

    /// Asks for a checkpoint.
    pub fn want_checkpoint(&mut self, now_ms: u64) -> Outcome {
        match &self.machine {
            Machine::Alone(_) => self.alone(Event::CheckpointWanted, now_ms),
            Machine::Member(_) => self.member(ClusterEvent::CheckpointWanted, now_ms),
        }
    }

    /// What must be synced, if anything must.
    pub fn sync_ticket(&self) -> Option<SyncTicket<RealDisk>> {
        match &self.machine {
            Machine::Alone(alone) => alone.log.sync_ticket(),
            Machine::Member(member) => member.journal.sync_ticket(),
        }
    }

    /// What can be removed of the log before a position.
    pub fn truncation(&self, position: Position) -> Option<Truncation<RealDisk>> {
        match &self.machine {
            Machine::Alone(alone) => alone.log.truncation(position),
            Machine::Member(member) => member.journal.truncation(),
        }
    }

    /// Notes what was removed.
    pub fn truncated(&mut self, truncated: Truncated) {
        match &mut self.machine {
            Machine::Alone(alone) => alone.log.truncated(truncated),
            Machine::Member(member) => member.journal.truncated(truncated),
        }
    }

    /// Notes that the log is durable, without telling the node.
    pub fn note_synced(&mut self, synced: Synced) {
        match &mut self.machine {
            Machine::Alone(alone) => alone.log.synced(synced),
            Machine::Member(member) => member.journal.synced(synced),
        }
    }

    /// Brings everything to the disk at the end.
    pub fn close(&mut self) -> io::Result<()> {
        match &mut self.machine {
            Machine::Alone(alone) => {
                alone.log.sync()?;
                alone.log.write_marker()?;
                alone.log.sync()?;
            }
            // What is in the journal may be as wrong as what is in memory: the next start judges.
            Machine::Member(_) if self.broken => {}
            // That was told when it failed.
            Machine::Member(member) if member.journal.is_closed() => {}
            Machine::Member(member) => {
                member.journal.sync()?;
                member.journal.write_marker()?;
                member.journal.sync()?;
            }
        }
        Ok(())
    }

    /// Whether everything that was taken has ended, given how many requests the clients still wait for.
    pub fn is_drained(&self, outstanding: u64) -> bool {
        match &self.machine {
            Machine::Alone(alone) => alone.node.is_drained(),
            // What is agreed may be executed only later, or at another node. What only others wait for goes
            // on without this one.
            Machine::Member(member) => {
                member.node.waits_in_vain() || member.node.is_drained() && outstanding == 0
            }
        }
    }

    /// Counters and places.
    pub fn status(&self) -> (node::Status, LogStatus) {
        match &self.machine {
            Machine::Alone(alone) => (alone.node.status(), alone.log.status()),
            Machine::Member(member) => (member.status(), member.journal.status()),
        }
    }
}

impl Alone {
    /// Does what the node wants, until it wants nothing more.
    fn drive(&mut self, hands: Option<&Hands>, now_ms: u64) -> Outcome {
        let effects = &mut self.effects;
        if !effects.records.is_empty() {
            let event = match self.log.append(&mut effects.records) {
                Ok(appended) => {
                    if let (true, Some(hands)) = (appended.rotated, hands) {
                        // A thread that is gone prepares nothing: the log then makes its segments when it
                        // needs them.
                        let _ = hands.files.send(FileWork::Prepare);
                    }
                    Event::LogWritten
                }
                Err(error) => Event::LogWriteFailed(error.to_string()),
            };
            effects.records.clear();
            // A large batch should not pin its buffer for ever.
            effects.records.shrink_to(1 << 20);
            self.node.handle(event, now_ms, effects);
        }
        if std::mem::take(&mut effects.marker)
            && let Err(error) = self.log.write_marker()
        {
            self.node.handle(Event::LogWriteFailed(error.to_string()), now_ms, effects);
        }
        while std::mem::take(&mut effects.sync) {
            match (self.log.sync_ticket(), hands) {
                (Some(ticket), Some(hands)) => {
                    if hands.sync.send(ticket).is_err() {
                        let event = Event::LogSyncFailed("the sync thread is gone".to_owned());
                        self.node.handle(event, now_ms, effects);
                    }
                }
                (None, _) => {
                    let synced = Event::LogSynced(self.log.status().durable);
                    self.node.handle(synced, now_ms, effects);
                }
                // Shut down: the last sync is done by hand.
                (Some(_), None) => {}
            }
        }
        if let Some(job) = effects.checkpoint.take()
            && let Some(hands) = hands
        {
            // A thread that is gone writes no checkpoint; the log stays long.
            let _ = hands.checkpoint.send(Job::Alone(job));
        }
        if let (Some(position), Some(hands)) = (effects.truncate.take(), hands) {
            let _ = hands.files.send(FileWork::Truncate(position));
        }
        for warning in effects.warnings.drain(..) {
            tracing::warn!("{warning}");
        }
        let confirmed = std::mem::take(&mut effects.confirmed);
        let delivered = std::mem::take(&mut effects.delivered);
        Outcome {
            step: confirmed || delivered,
            notify_all: std::mem::take(&mut effects.recovered),
            refused: std::mem::take(&mut effects.refused),
            ..Outcome::default()
        }
    }
}
