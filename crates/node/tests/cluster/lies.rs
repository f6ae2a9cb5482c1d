//! What a proven peer can do to a node by frames that no honest node sends: nothing but lose its link.
//!
//! A small cluster works, and on every link frames that were really sent come once more, changed: numbers in
//! their places, whole parts left out, doubled or taken from other frames, bytes turned. The group's
//! messages, batches, maps and records inside of frames are changed in the same way. A peer can lie about the
//! order itself, which this cannot notice; but no frame may end a process, by a panic or otherwise, have it
//! speak without end, or fill its memory.
//!
//! `ORDO_SEED=n` replays a case, `ORDO_SEEDS=n` runs as many. A case is 400 lies: a million are
//! `ORDO_SEEDS=2500`.

use crate::rig::{Rig, Tap};
use bytes::Bytes;
use execute::siblings::{Message, Note};
use order::{Control, GroupBatch, PartitionMap};
use ordo_node::cluster::{Answered, ClusterNode, Condition, Frame, Item, Part, Piece, Standing, describe};
use ordo_node::host::HostEvent;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::hash::mix;
use txn::{Epoch, NodeId, PartitionId, Registry, RequestId, SessionId, Stop};

const PARTITIONS: u16 = 3;
const LIES_OF_A_CASE: u64 = 400;
const CASES: u64 = 40;

/// Chance, from a seed.
#[derive(Clone)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % below.max(1)
    }
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
    /// Another number in the place of one.
    fn number(&mut self, from: u64) -> u64 {
        const EDGES: [u64; 22] = [
            0,
            1,
            2,
            3,
            4,
            7,
            100,
            127,
            128,
            255,
            256,
            1024,
            16_383,
            16_384,
            u16::MAX as u64,
            1 << 16,
            u32::MAX as u64,
            1 << 32,
            1 << 61,
            i64::MAX as u64,
            u64::MAX - 1,
            u64::MAX,
        ];
        match self.below(8) {
            0 => from.wrapping_add(1),
            1 => from.wrapping_sub(1),
            2 => from.wrapping_add(self.below(10)),
            3 => from.wrapping_sub(self.below(10)),
            4 => from.wrapping_mul(2),
            _ => EDGES[self.below(EDGES.len() as u64) as usize],
        }
    }
    fn change(&mut self, number: &mut u64) {
        *number = self.number(*number);
    }
    fn change_partition(&mut self, partition: &mut PartitionId) {
        partition.0 = match self.once_in(2) {
            true => self.below(u64::from(PARTITIONS) + 1) as u16,
            false => self.number(u64::from(partition.0)) as u16,
        };
    }
    /// Leaves out, doubles or moves something of a list.
    fn shuffle<T: Clone>(&mut self, list: &mut Vec<T>) {
        if list.is_empty() {
            return;
        }
        let place = self.below(list.len() as u64) as usize;
        match self.below(4) {
            0 => _ = list.remove(place),
            1 => list.insert(place, list[place].clone()),
            2 => list.reverse(),
            _ => {
                let other = self.below(list.len() as u64) as usize;
                list.swap(place, other);
            }
        }
    }
    /// Other bytes in the place of these: with another number somewhere, cut, doubled, or turned.
    fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..1 + self.below(2) {
            let place = self.below(out.len() as u64 + 1) as usize;
            match self.below(8) {
                0 => out.truncate(place),
                1 => out.insert(place, self.below(256) as u8),
                2 if place < out.len() => out[place] = self.below(256) as u8,
                3 if place < out.len() => out[place] ^= 1 << self.below(8),
                4 => {
                    let end = (place + 1 + self.below(16) as usize).min(out.len());
                    let part = out[place..end].to_vec();
                    out.splice(place..place, part);
                }
                _ => {
                    let mut reader = Reader::new(&out[place..]);
                    if let Some(number) = reader.varint() {
                        let end = out.len() - reader.rest().len();
                        let mut other = Vec::new();
                        put_varint(&mut other, self.number(number));
                        out.splice(place..end, other);
                    }
                }
            }
        }
        out
    }
}

/// A message of a group, as crate `agree` writes it.
#[derive(Clone)]
struct Consensus {
    kind: u8,
    parts: u8,
    /// To, from, term, log term, index, commit, commit term, snapshot; and the hint, if there is one.
    numbers: Vec<u64>,
    context: Option<Vec<u8>>,
    /// Kind, term, index, data.
    entries: Vec<(u8, u64, u64, Vec<u8>)>,
}

impl Consensus {
    fn read(bytes: &[u8]) -> Option<Consensus> {
        let mut reader = Reader::new(bytes);
        let (kind, parts) = (reader.u8()?, reader.u8()?);
        let count = 8 + usize::from(parts & 1 != 0);
        let numbers = (0..count).map(|_| reader.varint()).collect::<Option<_>>()?;
        let context = match parts & 2 != 0 {
            true => Some(reader.bytes()?.to_vec()),
            false => None,
        };
        let mut entries = Vec::new();
        for _ in 0..reader.varint()? {
            entries.push((reader.u8()?, reader.varint()?, reader.varint()?, reader.bytes()?.to_vec()));
        }
        Some(Consensus { kind, parts, numbers, context, entries })
    }

    fn write(&self) -> Vec<u8> {
        let mut out = vec![self.kind, self.parts];
        self.numbers.iter().for_each(|&number| put_varint(&mut out, number));
        if let Some(context) = &self.context {
            put_bytes(&mut out, context);
        }
        put_varint(&mut out, self.entries.len() as u64);
        for (kind, term, index, data) in &self.entries {
            out.push(*kind);
            put_varint(&mut out, *term);
            put_varint(&mut out, *index);
            put_bytes(&mut out, data);
        }
        out
    }

    fn change(&mut self, dice: &mut Dice, registry: &Registry, node: &ClusterNode, group: PartitionId) {
        match dice.below(10) {
            0 => self.kind = dice.below(24) as u8,
            1 => {
                // What the receiver has, so that what the message says of its log is nearly right.
                let status = node.group_status(group);
                let known = status
                    .map_or([0; 4], |status| [status.term, status.last, status.committed, status.persisted]);
                let place = 2 + dice.below(5) as usize;
                let near = dice.below(3);
                self.numbers[place] = known[dice.below(4) as usize].wrapping_add(near).wrapping_sub(1);
            }
            2 => dice.shuffle(&mut self.entries),
            3 => self.context = self.context.take().map(|context| dice.bytes(&context)),
            4..=6 if !self.entries.is_empty() => {
                let place = dice.below(self.entries.len() as u64) as usize;
                let entry = &mut self.entries[place];
                match dice.below(6) {
                    0 => entry.0 = dice.below(4) as u8,
                    1 => dice.change(&mut entry.1),
                    2 => dice.change(&mut entry.2),
                    3 => entry.3 = dice.bytes(&entry.3),
                    _ => {
                        if let Ok(mut batch) = GroupBatch::decode(&entry.3, registry) {
                            change_batch(&mut batch, dice);
                            entry.3 = batch.encode();
                        }
                    }
                }
            }
            _ => {
                let place = dice.below(self.numbers.len() as u64) as usize;
                dice.change(&mut self.numbers[place]);
            }
        }
    }
}

fn change_batch(batch: &mut GroupBatch, dice: &mut Dice) {
    match dice.below(5) {
        0 => dice.change(&mut batch.epoch.0),
        1 => dice.change(&mut batch.time_ms),
        2 => dice.shuffle(&mut batch.submissions),
        3 => {
            let control = any_control(dice);
            batch.controls.push(control);
        }
        _ => {
            if let Some(submission) = batch.submissions.first_mut() {
                change_submission(submission, dice);
            }
        }
    }
}

fn change_submission(submission: &mut order::Submission, dice: &mut Dice) {
    let mut request = (*submission.request).clone();
    match dice.below(9) {
        0 => submission.boot.0 = dice.number(u64::from(submission.boot.0)) as u32,
        1 => dice.change(&mut submission.sequence),
        2 => submission.place.section = dice.number(1) as u32,
        3 => submission.place.bound ^= true,
        4 => request.slots_version = dice.number(u64::from(request.slots_version)) as u32,
        5 => dice.change(&mut request.id.session.0),
        6 => dice.change(&mut request.id.sequence),
        _ => {
            let mut partitions = request.route.partitions.to_vec();
            match dice.below(4) {
                0 => partitions.clear(),
                1 => partitions.push(PartitionId(dice.number(0) as u16)),
                2 => dice.shuffle(&mut partitions),
                _ => partitions.iter_mut().for_each(|partition| dice.change_partition(partition)),
            }
            request.route.partitions = partitions.into_iter().collect();
            if dice.once_in(3) {
                request.route.slots = txn::Slots::even(dice.number(u64::from(PARTITIONS)) as u16);
            }
        }
    }
    submission.request = request.into();
}

fn any_control(dice: &mut Dice) -> Control {
    let version = dice.number(1) as u32;
    match dice.below(6) {
        0 => Control::Checkpoint { after: Epoch(dice.number(0)) },
        1 => Control::RaiseLevel { version, level: dice.number(1) as u32 },
        2 => Control::MoveSlots {
            version,
            slots: txn::SlotRange { first: dice.number(0) as u16, last: dice.number(100) as u16 },
            to: PartitionId(dice.number(1) as u16),
        },
        3 => Control::PlaceReplicas {
            version,
            places: vec![(PartitionId(dice.number(7) as u16), NodeId(dice.number(1) as u16))],
        },
        4 => Control::AddNode {
            version,
            name: "x".repeat(dice.below(2_000) as usize),
            zone: txn::ZoneId(dice.number(0) as u16),
            peer_address: String::new(),
            client_address: String::new(),
        },
        _ => Control::Boot {
            node: NodeId(1 + dice.below(5) as u16),
            after: txn::BootId(dice.number(1) as u32),
            nonce: 7,
            peer_address: "x".repeat(dice.below(2_000) as usize),
            client_address: String::new(),
            level: dice.number(1) as u32,
        },
    }
}

fn change_siblings(message: &mut Message, dice: &mut Dice) {
    if dice.once_in(4) {
        return dice.shuffle(&mut message.groups);
    }
    let place = dice.below(message.groups.len() as u64) as usize;
    let Some((id, notes)) = message.groups.get_mut(place) else {
        return;
    };
    match dice.below(6) {
        0 => dice.change(&mut id.epoch.0),
        1 => dice.change(&mut id.digest),
        2 => id.part = dice.number(u64::from(id.part)) as u32,
        3 => dice.shuffle(notes),
        _ => {
            let place = dice.below(notes.len() as u64) as usize;
            match notes.get_mut(place) {
                Some(Note::Read { member, number, .. }) => {
                    *member = dice.number(u64::from(*member)) as u32;
                    dice.change(&mut number.era);
                }
                Some(Note::Anchor { member, number, raised }) => {
                    *member = dice.number(u64::from(*member)) as u32;
                    raised.push((dice.number(0) as u32, *number));
                    number.count = dice.number(u64::from(number.count)) as u32;
                }
                Some(Note::Confirmation { member, basis, .. }) => {
                    *member = dice.number(u64::from(*member)) as u32;
                    basis.iter_mut().for_each(|(partition, _)| dice.change_partition(partition));
                }
                Some(Note::Final { member, values }) => {
                    *member = dice.number(u64::from(*member)) as u32;
                    dice.shuffle(values);
                }
                Some(Note::Fragments { member, results }) => {
                    *member = dice.number(u64::from(*member)) as u32;
                    dice.shuffle(&mut results.values);
                    for (place, _) in &mut results.values {
                        *place = dice.number(u64::from(*place)) as u16;
                    }
                }
                None => {}
            }
        }
    }
}

fn change_piece(piece: &mut Piece, dice: &mut Dice) {
    match dice.below(3) {
        0 => dice.change_partition(&mut piece.partition),
        1 => dice.change(&mut piece.epoch.0),
        _ => dice.change(&mut piece.offset),
    }
}

fn any_wait(dice: &mut Dice) -> RequestId {
    RequestId { session: SessionId(dice.number(1)), sequence: dice.number(1), attempt: 0 }
}

/// Changes a frame in one place.
fn change(frame: &mut Frame, dice: &mut Dice, registry: &Registry, node: &ClusterNode) {
    let has_partition = dice.once_in(6);
    match frame {
        Frame::Consensus { partition, message } => {
            if has_partition {
                return dice.change_partition(partition);
            }
            if let Some(mut read) = Consensus::read(message).filter(|_| !dice.once_in(8)) {
                read.change(dice, registry, node, *partition);
                *message = read.write().into();
            } else {
                *message = dice.bytes(message).into();
            }
        }
        Frame::Submit { partition, submissions } => match submissions.first_mut() {
            Some(first) if !has_partition => change_submission(first, dice),
            _ => dice.change_partition(partition),
        },
        Frame::Expect { partition, boot, sequence } => match dice.below(3) {
            0 => dice.change_partition(partition),
            1 => boot.0 = dice.number(u64::from(boot.0)) as u32,
            _ => dice.change(sequence),
        },
        Frame::Elsewhere { partition, leader } => match dice.below(2) {
            0 => dice.change_partition(partition),
            _ => *leader = Some(NodeId(dice.number(1) as u16)),
        },
        Frame::Begun(epoch) | Frame::Newest(epoch) => dice.change(&mut epoch.0),
        Frame::Change(control) => *control = any_control(dice),
        Frame::Behind { partition, epoch } => match dice.below(2) {
            0 => dice.change_partition(partition),
            _ => dice.change(&mut epoch.0),
        },
        Frame::Fetch(piece) => change_piece(piece, dice),
        Frame::Piece { piece, total, base, bytes } => match dice.below(4) {
            0 => change_piece(piece, dice),
            1 => dice.change(total),
            2 => *base = dice.bytes(base).into(),
            _ => *bytes = dice.bytes(bytes).into(),
        },
        Frame::Follow { partition, subscription, after, waits, kept, settled, heard, .. } => {
            match dice.below(8) {
                0 => dice.change_partition(partition),
                1 => dice.change(subscription),
                2 => dice.change(&mut after.0),
                3 => waits.push(any_wait(dice)),
                4 => dice.shuffle(kept),
                5 => kept.push(PartitionId(dice.number(0) as u16)),
                6 => dice.change(&mut settled.0),
                _ => dice.change(&mut heard.0),
            }
        }
        Frame::Unfollow { partition, subscription } => match dice.below(2) {
            0 => dice.change_partition(partition),
            _ => dice.change(subscription),
        },
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
        } => match dice.below(14) {
            0 => dice.change_partition(partition),
            1 => dice.change(subscription),
            2 => dice.change(number),
            3 => dice.change(&mut held.0),
            4 => dice.change(agreed),
            5 => *leader = Some((NodeId(dice.number(1) as u16), dice.number(1))),
            6 => dice.shuffle(batches),
            7 | 8 => {
                let place = dice.below(batches.len() as u64) as usize;
                if let Some(fed) = batches.get_mut(place) {
                    let part = GroupBatch::decode(&fed.part, registry);
                    match dice.below(7) {
                        0 => dice.change(&mut fed.epoch.0),
                        1 => dice.change(&mut fed.index),
                        2 => dice.change(&mut fed.term),
                        3 => dice.change(&mut fed.bytes),
                        4 => dice.change(&mut fed.noted),
                        5 => fed.part = dice.bytes(&fed.part).into(),
                        _ => {
                            if let Ok(mut batch) = part {
                                change_batch(&mut batch, dice);
                                fed.part = batch.encode().into();
                            }
                        }
                    }
                }
            }
            9 => match answers.first_mut() {
                Some(answered) => match dice.below(4) {
                    0 => dice.change_partition(&mut answered.partition),
                    1 => dice.change(&mut answered.position.0),
                    2 => {
                        let missing = PartitionId(dice.number(0) as u16);
                        answered.outcome = Err(Stop::Undeclared(Some(missing)));
                    }
                    _ => answered.id = any_wait(dice),
                },
                None => dice.change(number),
            },
            10 | 11 => match messages.first_mut() {
                Some((to, message)) => match (dice.below(4), Message::decode(message)) {
                    (0, _) => dice.change_partition(to),
                    (1, _) | (_, None) => *message = dice.bytes(message).into(),
                    (_, Some(mut read)) => {
                        change_siblings(&mut read, dice);
                        *message = read.encode().into();
                    }
                },
                None => messages.push((PartitionId(dice.number(0) as u16), Bytes::from_static(&[1, 0]))),
            },
            12 => {
                *part = Some(Part {
                    item: match dice.below(2) {
                        0 => Item::Answer,
                        _ => Item::Message(PartitionId(dice.number(0) as u16)),
                    },
                    number: dice.number(9),
                    total: dice.number(40),
                    offset: dice.number(0),
                    bytes: vec![1; dice.below(64) as usize].into(),
                });
            }
            _ => *asks ^= true,
        },
        Frame::Heard { partition, subscription, number, is_full } => match dice.below(4) {
            0 => dice.change_partition(partition),
            1 => dice.change(subscription),
            2 => *is_full ^= true,
            _ => dice.change(number),
        },
        Frame::Clock { standing, checkpoint, hears_all, map_version } => match dice.below(4) {
            0 => dice.change(&mut checkpoint.0),
            1 => *hears_all ^= true,
            2 => *map_version = dice.number(u64::from(*map_version)) as u32,
            _ => {
                let mut bytes = Vec::new();
                if let Some(standing) = &standing {
                    standing.encode(&mut bytes);
                }
                *standing = Standing::decode(&mut Reader::new(&dice.bytes(&bytes)));
            }
        },
        Frame::Time(epoch_ms) => *epoch_ms = Some(dice.number(epoch_ms.unwrap_or(0))),
        Frame::MapWanted => *frame = Frame::Map(Box::new((**node.map()).clone())),
        Frame::Map(map) => {
            let mut bytes = Vec::new();
            map.version += 1;
            map.encode(&mut bytes);
            let other = PartitionMap::decode(&mut Reader::new(&dice.bytes(&bytes)));
            if let Some(other) = other {
                **map = other;
            }
        }
        Frame::Followed { partition, version } | Frame::Left { partition, version } => match dice.below(2) {
            0 => dice.change_partition(partition),
            _ => *version = dice.number(u64::from(*version)) as u32,
        },
        Frame::Belongs { partition } => dice.change_partition(partition),
        Frame::Condition(condition) => {
            *condition = match dice.below(3) {
                0 => Condition::Well,
                1 => Condition::Ending,
                _ => Condition::Out("x".repeat(dice.below(2_000) as usize)),
            }
        }
        Frame::States(reports) => match dice.below(4) {
            0 => dice.shuffle(reports),
            field => {
                if let Some(report) = reports.first_mut() {
                    match field {
                        1 => dice.change_partition(&mut report.partition),
                        2 => dice.change(&mut report.epoch.0),
                        _ => dice.change(&mut report.digest),
                    }
                }
            }
        },
        Frame::Wish { partition, to, left_ms } => match dice.below(3) {
            0 => dice.change_partition(partition),
            1 => to.0 = dice.number(u64::from(to.0)) as u16,
            _ => dice.change(left_ms),
        },
    }
}

/// A frame of a kind that a small cluster seldom sends, made up.
fn made_up(dice: &mut Dice, node: &ClusterNode) -> Frame {
    let partition = PartitionId(dice.below(u64::from(PARTITIONS)) as u16);
    let epoch = Epoch(node.confirmed().epoch.0.wrapping_add(dice.below(4)));
    let version = node.map().version;
    let piece = Piece { partition, epoch, offset: 0 };
    match dice.below(12) {
        0 => Frame::Behind { partition, epoch },
        1 => Frame::Fetch(piece),
        2 => Frame::Piece {
            piece,
            total: 10,
            base: Bytes::from_static(b"base"),
            bytes: Bytes::from_static(b"0123456789"),
        },
        3 => Frame::Newest(epoch),
        4 => Frame::Left { partition, version: version + dice.below(2) as u32 },
        5 => Frame::Followed { partition, version },
        6 => Frame::Belongs { partition },
        7 => Frame::Wish { partition, to: NodeId(1), left_ms: 100 },
        8 => Frame::Change(any_control(dice)),
        9 => Frame::MapWanted,
        10 => Frame::Condition(Condition::Ending),
        _ => Frame::Begun(epoch),
    }
}

/// Makes lies out of what is sent.
struct Liar {
    dice: Dice,
    registry: Registry,
    /// Frames of late: parts of one may come as another's.
    recent: VecDeque<(u64, Frame)>,
    lies: Rc<Cell<u64>>,
    last: Rc<RefCell<Vec<u8>>>,
}

impl Liar {
    fn lie(&mut self, bytes: &[u8], node: &ClusterNode) -> Vec<u8> {
        let bytes = Bytes::copy_from_slice(bytes);
        let Ok((clock_ms, frame)) = Frame::decode(&bytes, &self.registry) else {
            return self.dice.bytes(&bytes);
        };
        self.recent.push_back((clock_ms, frame.clone()));
        if self.recent.len() > 64 {
            self.recent.pop_front();
        }
        let (mut clock_ms, mut frame) = match self.dice.below(8) {
            0 => self.recent[self.dice.below(self.recent.len() as u64) as usize].clone(),
            1 => (clock_ms, made_up(&mut self.dice, node)),
            _ => (clock_ms, frame),
        };
        if self.dice.once_in(16) {
            return self.dice.bytes(&frame.encode(clock_ms));
        }
        for _ in 0..1 + self.dice.below(2) {
            change(&mut frame, &mut self.dice, &self.registry, node);
        }
        if self.dice.once_in(32) {
            self.dice.change(&mut clock_ms);
        }
        frame.encode(clock_ms)
    }

    fn tap(mut self) -> Tap {
        Box::new(move |(from, _), bytes, node| {
            let mut lies = Vec::new();
            while self.lies.get() < LIES_OF_A_CASE && !self.dice.once_in(3) {
                self.lies.set(self.lies.get() + 1);
                let lie = self.lie(bytes, node);
                self.last.replace(lie.clone());
                lies.push((from, lie));
            }
            lies
        })
    }
}

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// One case: as many lies as it has, on all links of a cluster that works. How many of them cost their
/// senders a link.
fn case(seed: u64, lies: &Rc<Cell<u64>>, last: &Rc<RefCell<Vec<u8>>>) -> u64 {
    let zones: &[&str] = match seed % 2 {
        0 => &["x", "y", "z"],
        _ => &["x", "y", "z", "x"],
    };
    let mut rig = Rig::new(zones, PARTITIONS);
    rig.is_parallel = true;
    rig.start_all();
    lies.set(0);
    let liar = Liar {
        dice: Dice(mix(seed)),
        registry: rig.registry.clone(),
        recent: VecDeque::new(),
        lies: lies.clone(),
        last: last.clone(),
    };
    rig.tap = Some(liar.tap());
    let nodes: Vec<NodeId> = (1..=zones.len() as u16).map(NodeId).collect();
    let mut dice = Dice(mix(seed ^ 1));
    for round in 0.. {
        if lies.get() >= LIES_OF_A_CASE || round > 400 {
            break;
        }
        let at = nodes[dice.below(nodes.len() as u64) as usize];
        let partition = |dice: &mut Dice| PartitionId(dice.below(u64::from(PARTITIONS)) as u16);
        let first = partition(&mut dice);
        rig.add(at, first);
        let second = partition(&mut dice);
        rig.add_pair(at, &[first, second]);
        rig.round();
        for &node in &nodes {
            assert_eq!(rig.ended(node), None, "{node} has ended");
            let restarted = rig.restarted.contains(&node);
            assert!(rig.is_running(node), "{node} does not run (restarts: {restarted})");
            assert_eq!(rig.node(node).status().stopped, None, "{node} has stopped");
        }
    }
    rig.severed.len() as u64
}

#[test]
fn no_frame_of_a_peer_ends_a_node() {
    let first = number_of("ORDO_SEED");
    let cases = number_of("ORDO_SEEDS").unwrap_or(match first {
        Some(_) => 1,
        None => CASES,
    });
    let first = first.unwrap_or(1);
    let (lies, last) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let (mut told, mut refused) = (0, 0);
    for seed in first..first + cases {
        let run = AssertUnwindSafe(|| case(seed, &lies, &last));
        let panic = match catch_unwind(run) {
            Ok(severed) => {
                told += lies.get();
                refused += severed;
                continue;
            }
            Err(panic) => panic,
        };
        let frame = Bytes::from(last.borrow().clone());
        println!(
            "ORDO_SEED={seed}, lie {} of {LIES_OF_A_CASE}: {}\n{frame:02x?}",
            lies.get(),
            describe(&frame)
        );
        resume_unwind(panic);
    }
    println!("{told} lies were told, and {refused} links lost by them");
    // Otherwise the lies are no frames at all, or none.
    assert!(refused > told / 20 && refused < told * 19 / 20);
}

/// Frames that no node of a cluster of so many partitions sends.
fn nonsense(node: &ClusterNode) -> Vec<(&'static str, Frame)> {
    let partition = PartitionId(PARTITIONS);
    let epoch = node.confirmed().epoch;
    let piece = Piece { partition, epoch, offset: 0 };
    let version = node.map().version;
    let submission = |partitions: &[u16]| {
        let id = any_wait(&mut Dice(1));
        let procedure = std::sync::Arc::new(txn::FnProcedure::new("add", nothing));
        let mut request = txn::Request::new(id, procedure, Default::default());
        request.route.partitions = partitions.iter().map(|&partition| PartitionId(partition)).collect();
        request.route.slots = txn::Slots::even(PARTITIONS);
        order::Submission {
            boot: txn::BootId(1),
            sequence: 1,
            request: request.into(),
            place: Default::default(),
        }
    };
    let submit = |partitions: &[u16]| Frame::Submit {
        partition: PartitionId(0),
        submissions: vec![submission(partitions)],
    };
    let mut strange = node.map().as_ref().clone();
    strange.cluster += 1;
    let follow = |kept: Vec<PartitionId>| Frame::Follow {
        partition: PartitionId(0),
        subscription: 1,
        boot: txn::BootId(1),
        after: epoch,
        waits: Vec::new(),
        kept,
        settled: epoch,
        heard: epoch,
    };
    let answer = |partition, missing| Frame::Feed {
        partition: PartitionId(0),
        subscription: 1,
        number: 1,
        batches: Vec::new(),
        held: epoch,
        agreed: 0,
        leader: None,
        answers: vec![Answered {
            id: any_wait(&mut Dice(1)),
            partition: PartitionId(partition),
            position: txn::Position(1),
            outcome: Err(Stop::Undeclared(Some(PartitionId(missing)))),
        }],
        messages: Vec::new(),
        part: None,
        asks: false,
    };
    let message = |change: fn(&mut Consensus)| {
        let mut message = Consensus {
            kind: 8,
            parts: 0,
            numbers: vec![1, 2, 1, 0, 0, 0, 0, 0],
            context: None,
            entries: Vec::new(),
        };
        change(&mut message);
        Frame::Consensus { partition: PartitionId(0), message: message.write().into() }
    };
    vec![
        ("a partition", Frame::Behind { partition, epoch }),
        ("a partition", Frame::Fetch(piece)),
        ("a partition", Frame::Elsewhere { partition, leader: None }),
        ("a partition", Frame::Followed { partition, version }),
        ("a partition", Frame::Left { partition, version }),
        ("a partition", Frame::Belongs { partition }),
        ("a partition", Frame::Unfollow { partition, subscription: 1 }),
        ("a partition", Frame::Heard { partition, subscription: 1, number: 1, is_full: false }),
        ("a request of no partition", submit(&[])),
        ("a request of a partition", submit(&[PARTITIONS])),
        ("a request twice of one", submit(&[1, 1])),
        ("an epoch", Frame::Begun(Epoch(u64::MAX))),
        ("partitions twice", follow(vec![PartitionId(1), PartitionId(1)])),
        ("a partition that is kept", follow(vec![partition])),
        ("a partition that has executed", answer(PARTITIONS, 0)),
        ("a partition that is missing", answer(0, PARTITIONS)),
        ("a map", Frame::Map(Box::new(strange))),
        ("a sender", message(|message| message.numbers[1] = 3)),
        ("a receiver", message(|message| message.numbers[0] = 3)),
        ("no term", message(|message| message.numbers[2] = 0)),
        ("a term", message(|message| message.numbers[2] = 1 << 40)),
        ("a commit", message(|message| message.numbers[5] = u64::MAX)),
        ("a snapshot", message(|message| message.numbers[7] = 1)),
        ("a kind", message(|message| message.kind = 2)),
        ("entries", message(|message| message.entries.push((0, 1, 1, Vec::new())))),
        (
            "gaps",
            message(|message| {
                message.kind = 3;
                message.entries.push((0, 1, 9, Vec::new()));
            }),
        ),
    ]
}

async fn nothing(_: txn::Tx, _: txn::Call) -> txn::Outcome {
    Ok(txn::Reply::OK)
}

#[test]
fn a_frame_that_cannot_be_costs_the_link_and_nothing_else() {
    let (here, peer) = (NodeId(1), NodeId(2));
    let mut rig = Rig::running(&["x", "y", "z"], PARTITIONS);
    for partition in 0..PARTITIONS {
        assert!(rig.add(here, PartitionId(partition)));
    }
    rig.check();
    for (what, frame) in nonsense(rig.node(here)) {
        let before = rig.severed.len();
        let bytes = frame.encode(1_000_000).into();
        rig.handle(here, HostEvent::Frame { from: peer, bytes });
        let severed = &rig.severed[before..];
        assert!(
            matches!(severed, [(at, from, _)] if (*at, *from) == (here, peer)),
            "{what}: {frame:?}: {severed:?}"
        );
        assert!(rig.add(here, PartitionId(0)));
    }
    let lens = [0, 1, 7, 300];
    for (len, byte) in lens.into_iter().flat_map(|len| [0, 1, 0x7f, 0xff].map(|byte| (len, byte))) {
        let before = rig.severed.len();
        let bytes = vec![byte; len].into();
        rig.handle(here, HostEvent::Frame { from: peer, bytes });
        assert_eq!(rig.severed.len(), before + 1, "{len} times {byte}");
    }
    rig.check();
}
