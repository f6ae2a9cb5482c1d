//! What nodes say to each other.
//!
//! Every frame begins with the sender's clock: who leads compares it with its own.

use super::bootstrap::Standing;
use bytes::Bytes;
use order::{Control, Submission, put_submission, take_submission};

use txn::codec::{Reader, put_bytes, put_varint};
use txn::{BootId, Epoch, NodeId, PartitionId, Registry};

/// A frame.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A message of a consensus group.
    Consensus {
        /// Whose.
        partition: PartitionId,
        /// What [`order::consensus::Turn`] gave.
        message: Bytes,
    },
    /// Requests that the sender accepted, for the group's leader: consecutive numbers of one process.
    Submit {
        /// The group.
        partition: PartitionId,
        /// The requests.
        submissions: Vec<Submission>,
    },
    /// The group's leader expects this number next of a process: what came was not the next, or could not be taken.
    Expect {
        /// The group.
        partition: PartitionId,
        /// The process.
        boot: BootId,
        /// The number.
        sequence: u64,
    },
    /// The receiver does not lead the group; perhaps this node does.
    Elsewhere {
        /// The group.
        partition: PartitionId,
        /// Who may lead it.
        leader: Option<NodeId>,
    },
    /// This epoch was begun: leaders make a batch for it, were it empty.
    Begun(Epoch),
    /// A change of the map, for the leader of partition 0.
    Change(Control),
    /// Nothing but the clock, and how far the sender is with the cluster's beginning, once it may tell.
    Clock(Option<Standing>),
    /// The members of a group are as the map of a version wants them: its leader tells the leader of partition 0.
    Followed {
        /// The group.
        partition: PartitionId,
        /// The map's version.
        version: u32,
    },
    /// The receiver is no member of a group any more, nor does the map of a version want it to be.
    Left {
        /// The group.
        partition: PartitionId,
        /// The map's version.
        version: u32,
    },
}

const CONSENSUS: u8 = 1;
const SUBMIT: u8 = 2;
const EXPECT: u8 = 3;
const ELSEWHERE: u8 = 4;
const BEGUN: u8 = 5;
const CHANGE: u8 = 6;
const CLOCK: u8 = 7;
const FOLLOWED: u8 = 8;
const LEFT: u8 = 9;

impl Frame {
    /// The frame's bytes.
    pub fn encode(&self, clock_ms: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        put_varint(&mut out, clock_ms);
        match self {
            Frame::Consensus { partition, message } => {
                out.push(CONSENSUS);
                put_varint(&mut out, u64::from(partition.0));
                put_bytes(&mut out, message);
            }
            Frame::Submit {
                partition,
                submissions,
            } => {
                out.push(SUBMIT);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, submissions.len() as u64);
                for submission in submissions {
                    put_submission(&mut out, submission);
                }
            }
            Frame::Expect {
                partition,
                boot,
                sequence,
            } => {
                out.push(EXPECT);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, u64::from(boot.0));
                put_varint(&mut out, *sequence);
            }
            Frame::Elsewhere { partition, leader } => {
                out.push(ELSEWHERE);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, leader.map_or(0, |node| u64::from(node.0)));
            }
            Frame::Begun(epoch) => {
                out.push(BEGUN);
                put_varint(&mut out, epoch.0);
            }
            Frame::Change(control) => {
                out.push(CHANGE);
                control.encode(&mut out);
            }
            Frame::Clock(standing) => {
                out.push(CLOCK);
                if let Some(standing) = standing {
                    standing.encode(&mut out);
                }
            }
            Frame::Followed { partition, version } => {
                out.push(FOLLOWED);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, u64::from(*version));
            }
            Frame::Left { partition, version } => {
                out.push(LEFT);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, u64::from(*version));
            }
        }
        out
    }

    /// Reads a frame: the sender's clock, and what it says.
    ///
    /// # Errors
    /// The bytes are no frame of this protocol, or name a procedure that the registry does not have.
    pub fn decode(bytes: &Bytes, registry: &Registry) -> Result<(u64, Frame), FrameError> {
        let mut reader = Reader::new(bytes);
        let clock_ms = reader.varint().ok_or(FrameError::Malformed)?;
        let frame = if reader.rest().first() == Some(&SUBMIT) {
            reader.u8();
            take_submit(&mut reader, registry)?
        } else {
            take_plain(&mut reader, bytes).ok_or(FrameError::Malformed)?
        };
        if reader.is_empty() {
            Ok((clock_ms, frame))
        } else {
            Err(FrameError::Malformed)
        }
    }
}

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not of this protocol.
    #[error("a peer sent a frame that this version does not know: update this node")]
    Malformed,
    /// A procedure that the registry does not have.
    #[error(
        "a peer sent a request for procedure {0:#010x}, which this node does not have: update this node"
    )]
    UnknownProcedure(u32),
}

fn take_submit(reader: &mut Reader<'_>, registry: &Registry) -> Result<Frame, FrameError> {
    let partition = take_partition(reader).ok_or(FrameError::Malformed)?;
    let count = reader.varint().ok_or(FrameError::Malformed)?;
    let mut submissions = Vec::new();
    for _ in 0..count {
        let submission = take_submission(reader, registry).map_err(|error| match error {
            txn::codec::RequestError::Malformed => FrameError::Malformed,
            txn::codec::RequestError::UnknownProcedure(id) => FrameError::UnknownProcedure(id),
        })?;
        submissions.push(submission);
    }
    Ok(Frame::Submit {
        partition,
        submissions,
    })
}

fn take_partition(reader: &mut Reader<'_>) -> Option<PartitionId> {
    Some(PartitionId(u16::try_from(reader.varint()?).ok()?))
}

fn take_plain(reader: &mut Reader<'_>, bytes: &Bytes) -> Option<Frame> {
    Some(match reader.u8()? {
        CONSENSUS => Frame::Consensus {
            partition: take_partition(reader)?,
            message: bytes.slice_ref(reader.bytes()?),
        },
        EXPECT => Frame::Expect {
            partition: take_partition(reader)?,
            boot: BootId(u32::try_from(reader.varint()?).ok()?),
            sequence: reader.varint()?,
        },
        ELSEWHERE => Frame::Elsewhere {
            partition: take_partition(reader)?,
            leader: match u16::try_from(reader.varint()?).ok()? {
                0 => None,
                node => Some(NodeId(node)),
            },
        },
        BEGUN => Frame::Begun(Epoch(reader.varint()?)),
        CHANGE => Frame::Change(Control::decode(reader)?),
        CLOCK if reader.is_empty() => Frame::Clock(None),
        CLOCK => Frame::Clock(Some(Standing::decode(reader)?)),
        FOLLOWED => Frame::Followed {
            partition: take_partition(reader)?,
            version: u32::try_from(reader.varint()?).ok()?,
        },
        LEFT => Frame::Left {
            partition: take_partition(reader)?,
            version: u32::try_from(reader.varint()?).ok()?,
        },
        _ => return None,
    })
}
