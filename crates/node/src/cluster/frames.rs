//! What nodes say to each other.
//!
//! Every frame begins with the sender's clock: who leads compares it with its own.

use super::bootstrap::Standing;
use super::compare::StateReport;
use super::feeds::{Answered, Fed, Item, Part};
use super::numbers::{take_number, take_partition};
use super::peers::Condition;
use super::pieces::Piece;
use bytes::Bytes;
use order::{Control, PartitionMap, Submission, TIME_MS_END, put_submission, take_submission};
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{BootId, Epoch, NodeId, PartitionId, Registry, RequestId, SessionId};

/// A frame.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A message of a consensus group.
    Consensus {
        /// Whose.
        partition: PartitionId,
        /// What [`agree::Turn`] gave.
        message: Bytes,
    },
    /// Requests that the sender accepted, for the group's leader: consecutive numbers of one process.
    Submit {
        /// The group.
        partition: PartitionId,
        /// The requests.
        submissions: Vec<Submission>,
    },
    /// The group's leader expects this number next of a process: what came was not the next, or could not be
    /// taken.
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
    /// The receiver lacks entries of a group that the sender, its leader, no longer has: it must fetch a
    /// checkpoint.
    Behind {
        /// The group.
        partition: PartitionId,
        /// The sender has a checkpoint of this epoch.
        epoch: Epoch,
    },
    /// A piece of a checkpoint is wanted.
    Fetch(Piece),
    /// A piece of a checkpoint.
    Piece {
        /// Which.
        piece: Piece,
        /// The size of the whole file.
        total: u64,
        /// The group's base at the checkpoint: with the first piece only.
        base: Bytes,
        /// What the file has there.
        bytes: Bytes,
    },
    /// The sender has no such checkpoint, but one of this epoch.
    Newest(Epoch),
    /// The sender wants to follow a group through the receiver: see the head of `feeds`.
    Follow {
        /// The group.
        partition: PartitionId,
        /// Its name for what it wants: larger than those before.
        subscription: u64,
        /// The sender's boot id.
        boot: BootId,
        /// It knows what the group has up to this epoch.
        after: Epoch,
        /// What its clients wait for, in order: outcomes that it may have missed.
        waits: Vec<RequestId>,
        /// The partitions that it executes: what it needs of a batch.
        kept: Vec<PartitionId>,
        /// They have final-committed everything up to this epoch.
        settled: Epoch,
        /// They have heard from the group's partition of transactions up to this epoch.
        heard: Epoch,
    },
    /// It does not follow the group through the receiver any more.
    Unfollow {
        /// The group.
        partition: PartitionId,
        /// Under this name: another one may be on its way.
        subscription: u64,
    },
    /// News of a group that the receiver follows.
    Feed {
        /// The group.
        partition: PartitionId,
        /// Under which name.
        subscription: u64,
        /// Counts the frames of the subscription from 1.
        number: u64,
        /// Batches behind those that were sent before, or in their place.
        batches: Vec<Fed>,
        /// The last epoch that the sender has of it.
        held: Epoch,
        /// The group has agreed on its log up to here.
        agreed: u64,
        /// Who leads it, in which term.
        leader: Option<(NodeId, u64)>,
        /// How requests of the receiver's clients ended.
        answers: Vec<Answered>,
        /// What the group's partition tells the receiver's of transactions that they share.
        messages: Vec<(PartitionId, Bytes)>,
        /// The next part of an answer or a message that is too large for one frame.
        part: Option<Part>,
        /// Whether the sender wants to know that this came.
        asks: bool,
    },
    /// A frame of a subscription came.
    Heard {
        /// The group.
        partition: PartitionId,
        /// Under which name.
        subscription: u64,
        /// The frame's number.
        number: u64,
        /// The sender takes no further batches of the group for now, because too much waits to be executed.
        is_full: bool,
    },
    /// Nothing but the clock, and where the sender stands.
    Clock {
        /// How far it is with the cluster's beginning, once it may tell.
        standing: Option<Standing>,
        /// The epoch of its newest checkpoint.
        checkpoint: Epoch,
        /// Whether it hears the leaders of all groups, and would lead others.
        hears_all: bool,
        /// The version of its map.
        map_version: u32,
    },
    /// What the epoch time is ([`crate::clock`]), if the sender knows it.
    Time(Option<u64>),
    /// The sender wants the receiver's map: it has heard that it is newer than its own.
    MapWanted,
    /// The sender's map. The receiver needs it to know where the others are; what else it says, the order
    /// tells.
    Map(Box<PartitionMap>),
    /// The members of a group are as the map of a version wants them: its leader tells the leader of
    /// partition 0.
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
    /// Asks one who is a member of a group whether the sender still is: then there is no answer, and else
    /// [`Frame::Left`].
    Belongs {
        /// The group.
        partition: PartitionId,
    },
    /// How the sender is: out or about to end. It says so again with every [`Frame::Clock`], which else says
    /// that it is well.
    Condition(Condition),
    /// An operator wants a node to lead a group, for a while.
    Wish {
        /// The group.
        partition: PartitionId,
        /// Who is to lead it.
        to: NodeId,
        /// For how long yet, in milliseconds.
        left_ms: u64,
    },
    /// What the sender's replicas hold at the ends of some epochs, of the partitions that the receiver keeps,
    /// too: see the head of `compare`.
    States(Vec<StateReport>),
}

const CONSENSUS: u8 = 1;
const SUBMIT: u8 = 2;
const EXPECT: u8 = 3;
const ELSEWHERE: u8 = 4;
const BEGUN: u8 = 5;
const CHANGE: u8 = 6;
const CLOCK: u8 = 7;
const BEHIND: u8 = 8;
const FETCH: u8 = 9;
const PIECE: u8 = 10;
const NEWEST: u8 = 11;
const FOLLOWED: u8 = 12;
const LEFT: u8 = 13;
const FOLLOW: u8 = 14;
const UNFOLLOW: u8 = 15;
const FEED: u8 = 16;
const MAP_WANTED: u8 = 17;
const MAP: u8 = 18;
const WISH: u8 = 19;
const HEARD: u8 = 20;
const BELONGS: u8 = 21;
const CONDITION: u8 = 22;
const TIME: u8 = 24;
const STATES: u8 = 25;
const HEARD_FULL: u8 = 26;

/// How a condition begins.
const WELL: u8 = 0;
const ENDING: u8 = 1;
const OUT: u8 = 2;

fn put_piece(out: &mut Vec<u8>, piece: &Piece) {
    put_varint(out, u64::from(piece.partition.0));
    put_varint(out, piece.epoch.0);
    put_varint(out, piece.offset);
}

fn take_piece(reader: &mut Reader<'_>) -> Option<Piece> {
    Some(Piece {
        partition: take_partition(reader)?,
        epoch: take_epoch(reader)?,
        offset: take_number(reader)?,
    })
}

fn put_fed(out: &mut Vec<u8>, fed: &Fed) {
    let numbers = [fed.epoch.0, fed.index, fed.term, fed.digest, fed.bytes, fed.noted];
    for number in numbers {
        put_varint(out, number);
    }
    put_bytes(out, &fed.part);
}

fn take_fed(reader: &mut Reader<'_>, bytes: &Bytes) -> Option<Fed> {
    Some(Fed {
        epoch: take_epoch(reader)?,
        index: take_number(reader)?,
        term: take_number(reader)?,
        digest: reader.varint()?,
        bytes: take_number(reader)?,
        noted: take_number(reader)?,
        part: bytes.slice_ref(reader.bytes()?),
    })
}

/// Requests in order: many are of few sessions, whose ids are large, so each says how far its session is from
/// the one before.
fn put_waits(out: &mut Vec<u8>, waits: &[RequestId]) {
    put_varint(out, waits.len() as u64);
    let mut session = 0;
    for id in waits {
        let step = id.session.0.wrapping_sub(session);
        session = id.session.0;
        for number in [step, id.sequence, u64::from(id.attempt)] {
            put_varint(out, number);
        }
    }
}

fn take_waits(reader: &mut Reader<'_>) -> Option<Vec<RequestId>> {
    let mut waits = Vec::new();
    let mut session: u64 = 0;
    for _ in 0..reader.varint()? {
        session = session.wrapping_add(reader.varint()?);
        waits.push(RequestId {
            session: SessionId(session),
            sequence: reader.varint()?,
            attempt: reader.varint()?.try_into().ok()?,
        });
    }
    Some(waits)
}

impl Frame {
    /// The frame's bytes.
    pub fn encode(&self, wall_ms: u64) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        put_varint(&mut out, wall_ms);
        match self {
            Frame::Consensus { partition, message } => {
                out.push(CONSENSUS);
                put_varint(&mut out, u64::from(partition.0));
                put_bytes(&mut out, message);
            }
            Frame::Submit { partition, submissions } => {
                out.push(SUBMIT);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, submissions.len() as u64);
                for submission in submissions {
                    put_submission(&mut out, submission);
                }
            }
            Frame::Expect { partition, boot, sequence } => {
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
            Frame::Behind { partition, epoch } => {
                out.push(BEHIND);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, epoch.0);
            }
            Frame::Fetch(piece) => {
                out.push(FETCH);
                put_piece(&mut out, piece);
            }
            Frame::Piece { piece, total, base, bytes } => {
                out.push(PIECE);
                put_piece(&mut out, piece);
                put_varint(&mut out, *total);
                put_bytes(&mut out, base);
                put_bytes(&mut out, bytes);
            }
            Frame::Newest(epoch) => {
                out.push(NEWEST);
                put_varint(&mut out, epoch.0);
            }
            Frame::Follow { partition, subscription, boot, after, waits, kept, settled, heard } => {
                out.push(FOLLOW);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, *subscription);
                put_varint(&mut out, u64::from(boot.0));
                put_varint(&mut out, after.0);
                put_varint(&mut out, settled.0);
                put_varint(&mut out, heard.0);
                put_waits(&mut out, waits);
                put_varint(&mut out, kept.len() as u64);
                for partition in kept {
                    put_varint(&mut out, u64::from(partition.0));
                }
            }
            Frame::Unfollow { partition, subscription } => {
                out.push(UNFOLLOW);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, *subscription);
            }
            Frame::Feed {
                partition,
                subscription,
                number,
                batches,
                held,
                agreed,
                leader,
                answers,
                messages,
                part,
                asks,
            } => {
                out.push(FEED);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, *subscription);
                put_varint(&mut out, *number);
                put_varint(&mut out, held.0);
                put_varint(&mut out, *agreed);
                let (node, term) = leader.unwrap_or_default();
                put_varint(&mut out, u64::from(node.0));
                put_varint(&mut out, term);
                put_varint(&mut out, batches.len() as u64);
                for fed in batches {
                    put_fed(&mut out, fed);
                }
                put_varint(&mut out, answers.len() as u64);
                for answered in answers {
                    answered.put(&mut out);
                }
                put_varint(&mut out, messages.len() as u64);
                for (to, message) in messages {
                    put_varint(&mut out, u64::from(to.0));
                    put_bytes(&mut out, message);
                }
                out.push(u8::from(*asks));
                if let Some(part) = part {
                    let item = match part.item {
                        Item::Answer => 0,
                        Item::Message(to) => u64::from(to.0) + 1,
                    };
                    for number in [item, part.number, part.total, part.offset] {
                        put_varint(&mut out, number);
                    }
                    put_bytes(&mut out, &part.bytes);
                }
            }
            Frame::Heard { partition, subscription, number, is_full } => {
                out.push(if *is_full { HEARD_FULL } else { HEARD });
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, *subscription);
                put_varint(&mut out, *number);
            }
            Frame::Clock { standing, checkpoint, hears_all, map_version } => {
                out.push(CLOCK);
                put_varint(&mut out, checkpoint.0);
                out.push(u8::from(*hears_all));
                put_varint(&mut out, u64::from(*map_version));
                if let Some(standing) = standing {
                    standing.encode(&mut out);
                }
            }
            Frame::Time(epoch_ms) => {
                out.push(TIME);
                // No epoch has the time 0.
                put_varint(&mut out, epoch_ms.unwrap_or(0));
            }
            Frame::MapWanted => out.push(MAP_WANTED),
            Frame::Map(map) => {
                out.push(MAP);
                map.encode(&mut out);
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
            Frame::Belongs { partition } => {
                out.push(BELONGS);
                put_varint(&mut out, u64::from(partition.0));
            }
            Frame::Condition(condition) => {
                out.push(CONDITION);
                match condition {
                    Condition::Well => out.push(WELL),
                    Condition::Ending => out.push(ENDING),
                    Condition::Out(cause) => {
                        out.push(OUT);
                        put_bytes(&mut out, cause.as_bytes());
                    }
                }
            }
            Frame::Wish { partition, to, left_ms } => {
                out.push(WISH);
                put_varint(&mut out, u64::from(partition.0));
                put_varint(&mut out, u64::from(to.0));
                put_varint(&mut out, *left_ms);
            }
            Frame::States(reports) => {
                out.push(STATES);
                put_varint(&mut out, reports.len() as u64);
                for StateReport { partition, epoch, digest } in reports {
                    put_varint(&mut out, u64::from(partition.0));
                    put_varint(&mut out, epoch.0);
                    out.extend_from_slice(&digest.to_le_bytes());
                }
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
        let clock_ms = reader.varint().filter(|&clock_ms| clock_ms < TIME_MS_END);
        let clock_ms = clock_ms.ok_or(FrameError::Malformed)?;
        let frame = if reader.rest().first() == Some(&SUBMIT) {
            reader.u8();
            take_submit(&mut reader, registry)?
        } else {
            take_plain(&mut reader, bytes).ok_or(FrameError::Malformed)?
        };
        if reader.is_empty() { Ok((clock_ms, frame)) } else { Err(FrameError::Malformed) }
    }
}

/// What a frame says, for a reader of traces. Needs no registry, so it does not look at requests.
pub fn describe(bytes: &Bytes) -> String {
    describe_frame(bytes).unwrap_or_else(|| "no frame of this protocol".to_owned())
}

fn describe_frame(bytes: &Bytes) -> Option<String> {
    let mut reader = Reader::new(bytes);
    let clock_ms = reader.varint()?;
    if reader.rest().first() == Some(&SUBMIT) {
        reader.u8();
        let partition = take_partition(&mut reader)?;
        let count = reader.varint()?;
        let (boot, sequence) = (reader.varint()?, reader.varint()?);
        return Some(format!("{partition}: {count} requests of boot {boot}, from {sequence} on"));
    }
    Some(match take_plain(&mut reader, bytes)? {
        Frame::Consensus { partition, message } => {
            format!("{partition} {}", agree::describe(&message))
        }
        Frame::Submit { .. } => return None,
        Frame::Expect { partition, boot, sequence } => format!("{partition}: expects {sequence} of {boot}"),
        Frame::Elsewhere { partition, leader: Some(leader) } => {
            format!("{partition}: perhaps {leader} leads")
        }
        Frame::Elsewhere { partition, .. } => format!("{partition}: somebody else leads"),
        Frame::Begun(epoch) => format!("epoch {} is begun", epoch.0),
        Frame::Change(control) => format!("wants {control:?}"),
        Frame::Behind { partition, epoch } => {
            format!("{partition}: lacks what only the checkpoint of epoch {} has", epoch.0)
        }
        Frame::Fetch(piece) => format!(
            "{}: wants the checkpoint of epoch {} from byte {} on",
            piece.partition, piece.epoch.0, piece.offset
        ),
        Frame::Piece { piece, bytes, .. } => format!(
            "{}: {} bytes of the checkpoint of epoch {} from byte {} on",
            piece.partition,
            bytes.len(),
            piece.epoch.0,
            piece.offset
        ),
        Frame::Newest(epoch) => format!("has the checkpoint of epoch {} only", epoch.0),
        Frame::Follow { partition, subscription, after, waits, settled, heard, .. } => format!(
            "{partition}: tell me what follows epoch {}, {} answers, and what was read since {}, as final \
             up to {} ({subscription})",
            after.0,
            waits.len(),
            settled.0,
            heard.0
        ),
        Frame::Unfollow { partition, subscription } => {
            format!("{partition}: tell me no more ({subscription})")
        }
        Frame::Feed { partition, subscription, number, batches, agreed, answers, messages, part, .. } => {
            let epochs: Vec<u64> = batches.iter().map(|fed| fed.epoch.0).collect();
            let answers = answers.len();
            let messages = messages.len();
            let part = part.as_ref().map_or(String::new(), |part| {
                format!(" and number {} from {} on, of {}", part.number, part.offset, part.total)
            });
            format!(
                "{partition}: epochs {epochs:?}, agreed up to {agreed}, {answers} answers, {messages} \
                 messages{part} ({subscription}.{number})"
            )
        }
        Frame::Heard { partition, subscription, number, is_full } => {
            let full = if is_full { ", and is full" } else { "" };
            format!("{partition}: has heard {subscription}.{number}{full}")
        }
        Frame::Clock { standing, .. } => match standing {
            Some(Standing::Bootstrapping { nonce }) => format!("clock {clock_ms}, new {nonce:x}"),
            _ => format!("clock {clock_ms}"),
        },
        Frame::MapWanted => "wants the map".to_owned(),
        Frame::Map(map) => format!("map {}", map.version),
        Frame::Followed { partition, version } => format!("{partition} has followed map {version}"),
        Frame::Left { partition, version } => {
            format!("{partition} goes on without you (map {version})")
        }
        Frame::Belongs { partition } => format!("{partition}: do I belong to it"),
        Frame::Condition(Condition::Well) => "is well".to_owned(),
        Frame::Condition(Condition::Ending) => "is about to end".to_owned(),
        Frame::Condition(Condition::Out(cause)) => format!("is out: {cause}"),
        Frame::Time(Some(epoch_ms)) => format!("the epoch time is {epoch_ms}"),
        Frame::Time(None) => "the epoch time is not known".to_owned(),
        Frame::States(reports) => {
            let report = |report: &StateReport| {
                let StateReport { partition, epoch, digest } = report;
                format!("{partition} has {digest:016x} at epoch {}", epoch.0)
            };
            reports.iter().map(report).collect::<Vec<_>>().join(", ")
        }
        Frame::Wish { partition, to, left_ms } => {
            format!("{partition}: an operator wants {to} to lead it for {left_ms} ms")
        }
    })
}

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not of this protocol.
    #[error("a peer sent a frame that this version does not know: update this node")]
    Malformed,
    /// A procedure that the registry does not have.
    #[error("a peer sent a request for procedure {0:#010x}, which this node does not have: update this node")]
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
    Ok(Frame::Submit { partition, submissions })
}

fn take_epoch(reader: &mut Reader<'_>) -> Option<Epoch> {
    take_number(reader).map(Epoch)
}

fn take_plain(reader: &mut Reader<'_>, bytes: &Bytes) -> Option<Frame> {
    Some(match reader.u8()? {
        CONSENSUS => {
            Frame::Consensus { partition: take_partition(reader)?, message: bytes.slice_ref(reader.bytes()?) }
        }
        EXPECT => Frame::Expect {
            partition: take_partition(reader)?,
            boot: BootId(u32::try_from(reader.varint()?).ok()?),
            sequence: take_number(reader)?,
        },
        ELSEWHERE => Frame::Elsewhere {
            partition: take_partition(reader)?,
            leader: match u16::try_from(reader.varint()?).ok()? {
                0 => None,
                node => Some(NodeId(node)),
            },
        },
        BEGUN => Frame::Begun(take_epoch(reader)?),
        CHANGE => Frame::Change(Control::decode(reader)?),
        BEHIND => Frame::Behind { partition: take_partition(reader)?, epoch: take_epoch(reader)? },
        FETCH => Frame::Fetch(take_piece(reader)?),
        PIECE => Frame::Piece {
            piece: take_piece(reader)?,
            total: take_number(reader)?,
            base: bytes.slice_ref(reader.bytes()?),
            bytes: bytes.slice_ref(reader.bytes()?),
        },
        NEWEST => Frame::Newest(take_epoch(reader)?),
        FOLLOW => Frame::Follow {
            partition: take_partition(reader)?,
            subscription: take_number(reader)?,
            boot: BootId(u32::try_from(reader.varint()?).ok()?),
            after: take_epoch(reader)?,
            settled: take_epoch(reader)?,
            heard: take_epoch(reader)?,
            waits: take_waits(reader)?,
            kept: (0..reader.varint()?).map(|_| take_partition(reader)).collect::<Option<_>>()?,
        },
        UNFOLLOW => {
            Frame::Unfollow { partition: take_partition(reader)?, subscription: take_number(reader)? }
        }
        FEED => {
            let partition = take_partition(reader)?;
            let subscription = take_number(reader)?;
            let number = take_number(reader)?;
            let held = take_epoch(reader)?;
            let agreed = take_number(reader)?;
            let node = NodeId(u16::try_from(reader.varint()?).ok()?);
            let term = take_number(reader)?;
            let mut batches = Vec::new();
            for _ in 0..reader.varint()? {
                batches.push(take_fed(reader, bytes)?);
            }
            let mut answers = Vec::new();
            for _ in 0..reader.varint()? {
                answers.push(Answered::take(reader)?);
            }
            let mut messages = Vec::new();
            for _ in 0..reader.varint()? {
                let to = take_partition(reader)?;
                messages.push((to, bytes.slice_ref(reader.bytes()?)));
            }
            let asks = match reader.u8()? {
                0 => false,
                1 => true,
                _ => return None,
            };
            let part = match reader.is_empty() {
                true => None,
                false => Some(Part {
                    item: match u16::try_from(reader.varint()?).ok()?.checked_sub(1) {
                        None => Item::Answer,
                        Some(to) => Item::Message(PartitionId(to)),
                    },
                    number: take_number(reader)?,
                    total: take_number(reader)?,
                    offset: take_number(reader)?,
                    bytes: bytes.slice_ref(reader.bytes()?),
                }),
            };
            Frame::Feed {
                partition,
                subscription,
                number,
                batches,
                held,
                agreed,
                leader: (node != NodeId(0)).then_some((node, term)),
                answers,
                messages,
                part,
                asks,
            }
        }
        tag @ (HEARD | HEARD_FULL) => Frame::Heard {
            partition: take_partition(reader)?,
            subscription: take_number(reader)?,
            number: take_number(reader)?,
            is_full: tag == HEARD_FULL,
        },
        CLOCK => Frame::Clock {
            checkpoint: take_epoch(reader)?,
            hears_all: reader.u8()? == 1,
            map_version: u32::try_from(reader.varint()?).ok()?,
            standing: match reader.is_empty() {
                true => None,
                false => Some(Standing::decode(reader)?),
            },
        },
        MAP_WANTED => Frame::MapWanted,
        MAP => Frame::Map(Box::new(PartitionMap::decode(reader)?)),
        FOLLOWED => Frame::Followed {
            partition: take_partition(reader)?,
            version: u32::try_from(reader.varint()?).ok()?,
        },
        LEFT => {
            Frame::Left { partition: take_partition(reader)?, version: u32::try_from(reader.varint()?).ok()? }
        }
        BELONGS => Frame::Belongs { partition: take_partition(reader)? },
        CONDITION => Frame::Condition(match reader.u8()? {
            WELL => Condition::Well,
            ENDING => Condition::Ending,
            OUT => Condition::Out(String::from_utf8_lossy(reader.bytes()?).into_owned()),
            _ => return None,
        }),
        WISH => Frame::Wish {
            partition: take_partition(reader)?,
            to: NodeId(u16::try_from(reader.varint()?).ok()?),
            left_ms: take_number(reader)?,
        },
        STATES => {
            let mut reports = Vec::new();
            for _ in 0..reader.varint()? {
                let partition = take_partition(reader)?;
                let epoch = take_epoch(reader)?;
                let digest = reader.u64()?;
                reports.push(StateReport { partition, epoch, digest });
            }
            Frame::States(reports)
        }
        TIME => {
            let epoch_ms = reader.varint().filter(|&epoch_ms| epoch_ms < TIME_MS_END)?;
            Frame::Time(Some(epoch_ms).filter(|&epoch_ms| epoch_ms > 0))
        }
        _ => return None,
    })
}
