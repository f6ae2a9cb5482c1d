//! Changes of the map: what they ask for, what they do, and how they are written.

use super::{NodeEntry, PartitionMap, joined, slots_of, take, take_text, without};
use crate::moves::SlotMove;
use std::collections::BTreeMap;
use std::fmt;
use txn::NODES_MAX;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::{BootId, Epoch, NodeId, PartitionId, SlotRange, ZoneId};

/// A change of the map, in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A process of a node has started, and wants a boot id. Ends the boot before. Changes nothing if the
    /// process knows less than what is in force, or if another process of the node has started since: what a
    /// process wanted may be on its way longer than the process lives.
    Boot {
        /// Whose.
        node: NodeId,
        /// The boot that it ends; 0 if it is the node's first.
        after: BootId,
        /// A number that no other process has.
        nonce: u64,
        /// Where other nodes reach it now.
        peer_address: String,
        /// Where clients reach it now.
        client_address: String,
        /// The newest behaviour that it knows.
        level: u32,
    },
    /// A node joins. It gets the next number.
    AddNode {
        /// The version of the map that this was decided on: it changes nothing behind another.
        version: u32,
        /// Its name.
        name: String,
        /// Its zone.
        zone: ZoneId,
        /// Where other nodes will reach it.
        peer_address: String,
        /// Where clients will reach it.
        client_address: String,
    },
    /// Partitions' replicas move to other nodes of their zones, at once. Changes nothing if one of them
    /// cannot, or if a node that keeps something would keep nothing of it any more: a node leaves by
    /// [`Control::Drain`].
    ///
    /// All at once, because who gives away a replica, or gets one, starts anew. Behind the checkpoint that
    /// this orders as well: where all nodes have kept all partitions until now, what was read for those of
    /// another one before is known to nobody.
    PlaceReplicas {
        /// The version of the map that this was decided on.
        version: u32,
        /// Which partition's, and to whom: the node's zone says in which. At least one.
        places: Vec<(PartitionId, NodeId)>,
    },
    /// A node is to leave: all that it keeps moves, at once, to the other nodes of its zone, to those that
    /// keep the fewest. Changes nothing if there is nobody to take it.
    ///
    /// All at once, because a node executes an epoch only with the batches of all groups: two nodes that
    /// share what one had kept would both stand still until the rest has moved.
    Drain {
        /// The version of the map that this was decided on.
        version: u32,
        /// Which.
        node: NodeId,
    },
    /// A node leaves. It must have no replica.
    RemoveNode {
        /// The version of the map that this was decided on.
        version: u32,
        /// Which.
        node: NodeId,
    },
    /// Slots that one partition has become another one's, with their records: see [`crate::moves`].
    MoveSlots {
        /// The version of the map that this was decided on.
        version: u32,
        /// Which: all of one partition.
        slots: SlotRange,
        /// To whom.
        to: PartitionId,
    },
    /// Every node takes a checkpoint at the end of the epoch that carries this. Placing replicas orders one,
    /// too.
    Checkpoint {
        /// The one before: it may be asked for more than once.
        after: Epoch,
    },
    /// A behaviour comes into force that all nodes know, apart from those that are to leave.
    RaiseLevel {
        /// The version of the map that this was decided on.
        version: u32,
        /// The behaviour.
        level: u32,
    },
    /// What the time of day is at the epochs behind this one: see [`txn::clock`]. Needs behaviour 2.
    CorrectClock {
        /// The offset that this was decided on: it changes nothing behind another.
        before_ms: i64,
        /// The offset from here on.
        offset_ms: i64,
    },
}

/// Why replicas cannot be placed as somebody wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// There is nothing to place.
    #[error("no replica is named")]
    Nothing,
    /// There is no such node.
    #[error("there is no {0}")]
    NoNode(NodeId),
    /// The node leaves.
    #[error("{0} is about to leave, and gets nothing any more")]
    Leaves(NodeId),
    /// There is no such partition, or it has no replica in the node's zone.
    #[error("there is no {0}")]
    NoPartition(PartitionId),
    /// The node has the replica, or the partition is named twice for its zone.
    #[error("{1} keeps {0} already, or {0} is named twice for one zone")]
    Twice(PartitionId, NodeId),
    /// A node would keep nothing of what it keeps.
    #[error(
        "{0} would keep nothing of what it keeps: leave it a partition, or take it out with 'ordo admin \
         remove-node'"
    )]
    Empties(NodeId),
}

/// What a [`Control`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Nothing: it was decided on another version, or asks for what cannot be.
    Nothing,
    /// The map has a new version.
    Map,
    /// Slots become another partition's at the end of this epoch. The map has a new version.
    Slots(SlotMove),
    /// A checkpoint is taken at the end of this epoch.
    Checkpoint,
    /// The time of day is another one behind this epoch, unless the offset was not what the change was
    /// decided on: a transaction at every partition looks.
    Clock {
        /// What the offset should be until here.
        before_ms: i64,
        /// What it is then from here on.
        offset_ms: i64,
    },
    /// Replicas are to be with other nodes. The map has a new version, and a checkpoint is taken at the end
    /// of this epoch.
    Placed,
    /// A process got its boot id.
    Boot {
        /// Whose process.
        node: NodeId,
        /// What it named itself.
        nonce: u64,
        /// Its boot id.
        boot: BootId,
        /// The boot that it ends: 0 if it is the node's first.
        ended: BootId,
    },
}

impl PartitionMap {
    /// Takes a change of the order, which an epoch carries.
    pub fn apply(&mut self, control: &Control, epoch: Epoch) -> Changed {
        match control {
            Control::Boot { node, after, nonce, peer_address, client_address, level } => {
                let next = BootId(self.last_boot.0 + 1);
                let Some(entry) = self.nodes.get_mut(node) else {
                    return Changed::Nothing;
                };
                if entry.boot != *after || *level < self.level {
                    return Changed::Nothing;
                }
                let ended = entry.boot;
                let moved = entry.peer_address != *peer_address
                    || entry.client_address != *client_address
                    || entry.level != *level;
                entry.boot = next;
                entry.nonce = *nonce;
                entry.level = *level;
                entry.peer_address.clone_from(peer_address);
                entry.client_address.clone_from(client_address);
                self.last_boot = next;
                self.version += u32::from(moved);
                Changed::Boot { node: *node, nonce: *nonce, boot: next, ended }
            }
            Control::AddNode { version, name, zone, peer_address, client_address } => {
                let taken = self
                    .nodes
                    .values()
                    .any(|entry| entry.name == *name || entry.peer_address == *peer_address);
                let known = self.zones.contains_key(zone);
                if *version != self.version || taken || !known || self.last_node.0 >= NODES_MAX {
                    return Changed::Nothing;
                }
                self.last_node.0 += 1;
                let entry = NodeEntry {
                    name: name.clone(),
                    zone: *zone,
                    peer_address: peer_address.clone(),
                    client_address: client_address.clone(),
                    boot: BootId(0),
                    nonce: 0,
                    level: self.level,
                    leaving: false,
                };
                self.nodes.insert(self.last_node, entry);
                self.changed()
            }
            Control::PlaceReplicas { version, places } => {
                if *version != self.version || self.cannot_place(places).is_some() {
                    return Changed::Nothing;
                }
                for &(partition, to) in places {
                    let zone = self.nodes[&to].zone;
                    let entry = &mut self.partitions[usize::from(partition.0)];
                    entry.replicas.insert(zone, to);
                }
                self.version += 1;
                self.checkpoint = epoch;
                Changed::Placed
            }
            Control::Drain { version, node } => {
                let Some(heirs) = self.heirs(*node).filter(|_| *version == self.version) else {
                    return Changed::Nothing;
                };
                let Some(entry) = self.nodes.get_mut(node).filter(|entry| !entry.leaving) else {
                    return Changed::Nothing;
                };
                entry.leaving = true;
                let zone = entry.zone;
                for (partition, heir) in heirs {
                    let entry = &mut self.partitions[usize::from(partition.0)];
                    entry.replicas.insert(zone, heir);
                }
                self.changed()
            }
            Control::RemoveNode { version, node } => {
                let idle = self.kept_by(*node).next().is_none();
                if *version != self.version || !idle || self.nodes.remove(node).is_none() {
                    return Changed::Nothing;
                }
                self.changed()
            }
            Control::Checkpoint { after } => {
                if *after != self.checkpoint {
                    return Changed::Nothing;
                }
                self.checkpoint = epoch;
                Changed::Checkpoint
            }
            Control::MoveSlots { version, slots, to } => {
                let is_known = usize::from(to.0) < self.partitions.len();
                let holder = self.holder(*slots).filter(|holder| holder != to);
                let Some(from) = holder.filter(|_| is_known && *version == self.version) else {
                    return Changed::Nothing;
                };
                self.version += 1;
                self.slots_version = self.version;
                let giver = &mut self.partitions[usize::from(from.0)];
                giver.slots = without(&giver.slots, *slots);
                giver.slots_version = self.version;
                let taker = &mut self.partitions[usize::from(to.0)];
                taker.slots.push((slots.first, slots.last));
                taker.slots = joined(std::mem::take(&mut taker.slots));
                taker.slots_version = self.version;
                self.slots = slots_of(&self.partitions);
                Changed::Slots(SlotMove { slots: *slots, from, to: *to, version: self.version })
            }
            Control::RaiseLevel { version, level } => {
                let known = self.level_known().is_some_and(|known| known >= *level);
                if *version != self.version || !known || *level <= self.level {
                    return Changed::Nothing;
                }
                self.level = *level;
                self.changed()
            }
            &Control::CorrectClock { before_ms, offset_ms } => Changed::Clock { before_ms, offset_ms },
        }
    }

    /// Who would take over what a node keeps, each time the node of its zone that has the fewest then. `None`
    /// if there is no such node, or nobody to take it.
    pub fn heirs(&self, node: NodeId) -> Option<BTreeMap<PartitionId, NodeId>> {
        let zone = self.nodes.get(&node)?.zone;
        let mut heirs = BTreeMap::new();
        let others = self.nodes_of(zone);
        let mut kept: BTreeMap<NodeId, usize> = others
            .filter(|other| *other != node && !self.nodes[other].leaving)
            .map(|other| (other, self.kept_by(other).count()))
            .collect();
        for partition in self.kept_by(node) {
            let (&heir, count) = kept.iter_mut().min_by_key(|(_, count)| **count)?;
            *count += 1;
            heirs.insert(partition, heir);
        }
        Some(heirs)
    }

    /// Why replicas can't be placed so, if they can't.
    pub fn cannot_place(&self, places: &[(PartitionId, NodeId)]) -> Option<PlaceError> {
        let mut givers = BTreeMap::new();
        for &(partition, to) in places {
            let Some(entry) = self.nodes.get(&to) else {
                return Some(PlaceError::NoNode(to));
            };
            if entry.leaving {
                return Some(PlaceError::Leaves(to));
            }
            let partitions = usize::from(partition.0);
            let Some(&from) =
                (self.partitions.get(partitions)).and_then(|partition| partition.replicas.get(&entry.zone))
            else {
                return Some(PlaceError::NoPartition(partition));
            };
            if from == to || givers.insert((partition, entry.zone), from).is_some() {
                return Some(PlaceError::Twice(partition, to));
            }
        }
        let gives = |node, partition| {
            let mut givers = givers.iter();
            givers.any(|(&(given, _), &from)| (given, from) == (partition, node))
        };
        let mut nodes: Vec<NodeId> = givers.values().copied().collect();
        nodes.dedup();
        nodes
            .into_iter()
            .find(|&node| self.kept_by(node).all(|kept| gives(node, kept)))
            .map(PlaceError::Empties)
            .or(places.is_empty().then_some(PlaceError::Nothing))
    }

    fn changed(&mut self) -> Changed {
        self.version += 1;
        Changed::Map
    }
}

const TAG_BOOT: u8 = 1;
const TAG_ADD_NODE: u8 = 2;
const TAG_PLACE_REPLICAS: u8 = 3;
const TAG_REMOVE_NODE: u8 = 4;
const TAG_RAISE_LEVEL: u8 = 5;
const TAG_CHECKPOINT: u8 = 6;
const TAG_DRAIN: u8 = 7;
const TAG_MOVE_SLOTS: u8 = 8;
const TAG_CORRECT_CLOCK: u8 = 12;

impl Control {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Control::Boot { node, after, nonce, peer_address, client_address, level } => {
                out.push(TAG_BOOT);
                put_varint(out, u64::from(node.0));
                put_varint(out, u64::from(after.0));
                put_varint(out, *nonce);
                put_bytes(out, peer_address.as_bytes());
                put_bytes(out, client_address.as_bytes());
                put_varint(out, u64::from(*level));
            }
            Control::AddNode { version, name, zone, peer_address, client_address } => {
                out.push(TAG_ADD_NODE);
                put_varint(out, u64::from(*version));
                put_bytes(out, name.as_bytes());
                put_varint(out, u64::from(zone.0));
                put_bytes(out, peer_address.as_bytes());
                put_bytes(out, client_address.as_bytes());
            }
            Control::PlaceReplicas { version, places } => {
                out.push(TAG_PLACE_REPLICAS);
                put_varint(out, u64::from(*version));
                put_varint(out, places.len() as u64);
                for (partition, to) in places {
                    put_varint(out, u64::from(partition.0));
                    put_varint(out, u64::from(to.0));
                }
            }
            Control::Drain { version, node } => {
                out.push(TAG_DRAIN);
                put_varint(out, u64::from(*version));
                put_varint(out, u64::from(node.0));
            }
            Control::RemoveNode { version, node } => {
                out.push(TAG_REMOVE_NODE);
                put_varint(out, u64::from(*version));
                put_varint(out, u64::from(node.0));
            }
            Control::Checkpoint { after } => {
                out.push(TAG_CHECKPOINT);
                put_varint(out, after.0);
            }
            Control::MoveSlots { version, slots, to } => {
                out.push(TAG_MOVE_SLOTS);
                put_varint(out, u64::from(*version));
                put_varint(out, u64::from(slots.first));
                put_varint(out, u64::from(slots.last));
                put_varint(out, u64::from(to.0));
            }
            Control::RaiseLevel { version, level } => {
                out.push(TAG_RAISE_LEVEL);
                put_varint(out, u64::from(*version));
                put_varint(out, u64::from(*level));
            }
            Control::CorrectClock { before_ms, offset_ms } => {
                out.push(TAG_CORRECT_CLOCK);
                put_varint(out, before_ms.cast_unsigned());
                put_varint(out, offset_ms.cast_unsigned());
            }
        }
    }

    /// Reads a record.
    pub fn decode(reader: &mut Reader<'_>) -> Option<Control> {
        Some(match reader.u8()? {
            TAG_BOOT => Control::Boot {
                node: NodeId(take(reader)?),
                after: BootId(take(reader)?),
                nonce: reader.varint()?,
                peer_address: take_text(reader)?,
                client_address: take_text(reader)?,
                level: take(reader)?,
            },
            TAG_ADD_NODE => Control::AddNode {
                version: take(reader)?,
                name: take_text(reader)?,
                zone: ZoneId(take(reader)?),
                peer_address: take_text(reader)?,
                client_address: take_text(reader)?,
            },
            TAG_PLACE_REPLICAS => {
                let version = take(reader)?;
                let mut places = Vec::new();
                for _ in 0..reader.varint()? {
                    places.push((PartitionId(take(reader)?), NodeId(take(reader)?)));
                }
                Control::PlaceReplicas { version, places }
            }
            TAG_DRAIN => Control::Drain { version: take(reader)?, node: NodeId(take(reader)?) },
            TAG_REMOVE_NODE => Control::RemoveNode { version: take(reader)?, node: NodeId(take(reader)?) },
            TAG_CHECKPOINT => Control::Checkpoint { after: Epoch(reader.varint()?) },
            TAG_MOVE_SLOTS => Control::MoveSlots {
                version: take(reader)?,
                slots: SlotRange { first: take(reader)?, last: take(reader)? },
                to: PartitionId(take(reader)?),
            },
            TAG_RAISE_LEVEL => Control::RaiseLevel { version: take(reader)?, level: take(reader)? },
            TAG_CORRECT_CLOCK => Control::CorrectClock {
                before_ms: reader.varint()?.cast_signed(),
                offset_ms: reader.varint()?.cast_signed(),
            },
            _ => return None,
        })
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Control::Boot { node, .. } => write!(f, "{node} has started"),
            Control::AddNode { name, zone, .. } => write!(f, "node '{name}' joins {zone}"),
            Control::PlaceReplicas { places, .. } => {
                let mut between = "";
                for (partition, to) in places {
                    write!(f, "{between}{partition} moves to {to} in its zone")?;
                    between = ", ";
                }
                Ok(())
            }
            Control::Drain { node, .. } => write!(f, "{node} hands over what it keeps, to leave"),
            Control::RemoveNode { node, .. } => write!(f, "{node} leaves"),
            Control::Checkpoint { .. } => write!(f, "a checkpoint is taken"),
            Control::MoveSlots { slots, to, .. } => {
                write!(f, "the slots {} to {} move to {to}", slots.first, slots.last)
            }
            Control::RaiseLevel { level, .. } => write!(f, "behaviour {level} comes into force"),
            Control::CorrectClock { offset_ms, .. } => {
                write!(f, "the time of day is the order's time less {offset_ms} ms from here on")
            }
        }
    }
}
