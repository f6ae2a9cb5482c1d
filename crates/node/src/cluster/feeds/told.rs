//! What nodes tell each other of groups.

use super::parts::Part;
use crate::cluster::numbers::{take_number, take_partition};
use bytes::Bytes;
use txn::codec::{Reader, put_bytes, put_reply, put_varint, take_reply};
use txn::{BootId, Epoch, NodeId, Outcome, PartitionId, Position, RequestId, SessionId, Stop};

/// How an outcome begins.
const REPLIED: u8 = 0;
const ABORTED: u8 = 1;
const RESTARTED: u8 = 2;
const UNDECLARED: u8 = 3;
const UNDECLARED_AT: u8 = 4;

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
    pub(super) fn bytes(&self) -> usize {
        64 + self.outcome.as_ref().map_or(0, txn::Reply::bytes)
    }

    /// Appends it.
    pub(in crate::cluster) fn put(&self, out: &mut Vec<u8>) {
        let id = self.id;
        for number in [id.session.0, id.sequence, u64::from(id.attempt)] {
            put_varint(out, number);
        }
        put_varint(out, u64::from(self.partition.0));
        put_varint(out, self.position.0);
        match &self.outcome {
            Ok(reply) => {
                out.push(REPLIED);
                put_reply(out, reply);
            }
            Err(Stop::Abort(reason)) => {
                out.push(ABORTED);
                put_bytes(out, reason.as_bytes());
            }
            Err(Stop::Restart) => out.push(RESTARTED),
            Err(Stop::Undeclared(None)) => out.push(UNDECLARED),
            Err(Stop::Undeclared(Some(missing))) => {
                out.push(UNDECLARED_AT);
                put_varint(out, u64::from(missing.0));
            }
        }
    }

    /// Reads what [`Answered::put`] wrote, and nothing else.
    pub(in crate::cluster) fn decode(bytes: &[u8]) -> Option<Answered> {
        let mut reader = Reader::new(bytes);
        Answered::take(&mut reader).filter(|_| reader.is_empty())
    }

    /// Reads what [`Answered::put`] wrote.
    pub(in crate::cluster) fn take(reader: &mut Reader<'_>) -> Option<Answered> {
        Some(Answered {
            id: RequestId {
                session: SessionId(reader.varint()?),
                sequence: reader.varint()?,
                attempt: reader.varint()?.try_into().ok()?,
            },
            partition: take_partition(reader)?,
            position: Position(take_number(reader)?),
            outcome: match reader.u8()? {
                REPLIED => Ok(take_reply(reader)?),
                ABORTED => Err(Stop::abort(String::from_utf8(reader.bytes()?.to_vec()).ok()?)),
                RESTARTED => Err(Stop::Restart),
                UNDECLARED => Err(Stop::Undeclared(None)),
                UNDECLARED_AT => Err(Stop::Undeclared(Some(take_partition(reader)?))),
                _ => return None,
            },
        })
    }
}

/// How a node wants to follow a group.
pub(in crate::cluster) struct Wish {
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
pub(in crate::cluster) struct News {
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
    /// Subscriptions that have lapsed, because more waited for the follower than there is room for.
    pub lapsed: u64,
}
