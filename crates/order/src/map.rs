//! The partition map: which slots are whose, and who keeps a replica of what.
//!
//! The map is part of the replicated state. It starts as the cluster's description (the same at every node) and changes
//! only by [`Control`] records, which travel in the batches of partition 0 and take effect, at every partition alike,
//! behind the epoch that carries them. So all nodes go through the same versions at the same places of the order.

use crate::moves::SlotMove;
use std::collections::BTreeMap;
use std::fmt;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::hash::{hash_bytes, mix};
use txn::key::{SLOTS, first_slot};
use txn::mutant::{Mutant, is_active};
use txn::{BootId, Epoch, Key, NodeId, PartitionId, Request, SlotRange, Slots, Stop, ZoneId};

/// The most nodes that a cluster can ever name.
pub const NODES_MAX: u16 = 1024;
/// The most partitions of a cluster.
pub const PARTITIONS_MAX: u16 = 256;
/// The behaviour that is in force when a cluster begins, whatever its founders know. It stays as it is: all founders make the
/// same first map, of whatever builds they are.
pub const LEVEL_FIRST: u32 = 1;

/// A node as the map knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its name, for people.
    pub name: String,
    /// Its zone.
    pub zone: ZoneId,
    /// Where other nodes reach it: host and port.
    pub peer_address: String,
    /// Where clients reach it: host and port.
    pub client_address: String,
    /// Its newest process, [`BootId`] 0 if it has never started.
    pub boot: BootId,
    /// What that process named itself when it asked for its boot id.
    pub nonce: u64,
    /// The newest behaviour that its process knows: see [`PartitionMap::level`]. Before its first process, at most what is in
    /// force.
    pub level: u32,
    /// Whether it is about to leave: it keeps no replica any more, and gets none.
    pub leaving: bool,
}

/// A partition as the map knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionEntry {
    /// Its slots: first and last of each range, in order.
    pub slots: Vec<(u16, u16)>,
    /// The version at which it last got or gave slots; 0 if it has those that it began with.
    pub slots_version: u32,
    /// Who keeps its replica in each zone. What the consensus group's membership is being led to.
    pub replicas: BTreeMap<ZoneId, NodeId>,
}

/// The partition map. See the module's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMap {
    /// Counts the changes, from 1.
    pub version: u32,
    /// The version at which slots last changed hands, 0 if none have: requests that were routed by an older one are routed
    /// again.
    pub slots_version: u32,
    /// Whose each slot is, as the partitions' entries say.
    slots: Slots,
    /// Names the cluster: nodes of different clusters refuse each other.
    pub cluster: u64,
    /// The zones' names.
    pub zones: BTreeMap<ZoneId, String>,
    /// The nodes. One that was removed is not here any more; its number is not given out again.
    pub nodes: BTreeMap<NodeId, NodeEntry>,
    /// The largest number that a node ever had.
    pub last_node: NodeId,
    /// The partitions, by their numbers, which are dense.
    pub partitions: Vec<PartitionEntry>,
    /// The last boot id that was given out.
    pub last_boot: BootId,
    /// The behaviour that is in force: what a build may do that an older one would do in another way starts with an
    /// ordered record, once every node knows it. A process that knows less gets no boot id. Never falls.
    pub level: u32,
    /// The epoch at whose end the newest checkpoint is taken.
    pub checkpoint: Epoch,
}

/// Why a description is no cluster's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// It has no node.
    #[error("a cluster needs at least one node")]
    NoNodes,
    /// It has too many, or none, of something.
    #[error("{what} must be between 1 and {max}, not {found}")]
    Count {
        /// Of what.
        what: &'static str,
        /// At most.
        max: u16,
        /// How many there are.
        found: usize,
    },
    /// Some node would have nothing to keep.
    #[error(
        "zone '{zone}' has {nodes} nodes, and the cluster {partitions} partitions: some node would keep nothing; give it more \
         partitions, or fewer nodes (others can be added later)"
    )]
    Idle {
        /// Where.
        zone: String,
        /// Its nodes.
        nodes: usize,
        /// The cluster's partitions.
        partitions: u16,
    },
}

/// A change of the map, in the order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A process of a node has started, and wants a boot id. Ends the boot before. Changes nothing if the process knows less
    /// than what is in force, or if another process of the node has started since: what a process wanted may be on
    /// its way longer than the process lives.
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
    /// Partitions' replicas move to other nodes of their zones, at once. Changes nothing if one of them cannot, or if
    /// a node that keeps something would keep nothing of it any more: a node leaves by [`Control::Drain`].
    ///
    /// All at once, because who gives away a replica, or gets one, starts anew. Behind the checkpoint that this orders as well: where
    /// all nodes have kept all partitions until now, what was read for those of another one before is known to nobody.
    PlaceReplicas {
        /// The version of the map that this was decided on.
        version: u32,
        /// Which partition's, and to whom: the node's zone says in which. At least one.
        places: Vec<(PartitionId, NodeId)>,
    },
    /// A node is to leave: all that it keeps moves, at once, to the other nodes of its zone, to those that keep the fewest.
    /// Changes nothing if there is nobody to take it.
    ///
    /// All at once, because a node executes an epoch only with the batches of all groups: two nodes that share what one
    /// had kept would both stand still until the rest has moved.
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
    /// Every node takes a checkpoint at the end of the epoch that carries this. Placing replicas orders one, too.
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
        "{0} would keep nothing of what it keeps: leave it a partition, or take it out with 'ordo admin remove-node'"
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
    /// Replicas are to be with other nodes. The map has a new version, and a checkpoint is taken at the end of this epoch.
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

/// Who a described node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: String,
    /// Its zone's name.
    pub zone: String,
    /// Where other nodes reach it.
    pub peer_address: String,
    /// Where clients reach it.
    pub client_address: String,
}

impl PartitionMap {
    /// The first map of a cluster. Nodes are numbered from 1 in their order, zones from 0 in the order in which they are
    /// first named; slots are dealt evenly, and the partitions of a zone in turn to its nodes.
    pub fn new(
        cluster: &str,
        nodes: &[Described],
        partitions: u16,
    ) -> Result<PartitionMap, MapError> {
        if nodes.is_empty() {
            return Err(MapError::NoNodes);
        }
        let count = |what, max, found| {
            if (1..=usize::from(max)).contains(&found) {
                Ok(())
            } else {
                Err(MapError::Count { what, max, found })
            }
        };
        count("the number of nodes", NODES_MAX, nodes.len())?;
        count(
            "the number of partitions",
            PARTITIONS_MAX,
            usize::from(partitions),
        )?;
        let mut names: Vec<&str> = Vec::new();
        let mut map = PartitionMap {
            version: 1,
            slots_version: 0,
            slots: Slots::even(partitions),
            cluster: hash_bytes(cluster.as_bytes()),
            zones: BTreeMap::new(),
            nodes: BTreeMap::new(),
            last_node: NodeId(nodes.len() as u16),
            partitions: Vec::new(),
            last_boot: BootId(0),
            level: LEVEL_FIRST,
            checkpoint: Epoch(0),
        };
        for (number, node) in nodes.iter().enumerate() {
            let zone = names.iter().position(|&name| name == node.zone);
            let zone = zone.unwrap_or_else(|| {
                names.push(&node.zone);
                names.len() - 1
            });
            let entry = NodeEntry {
                name: node.name.clone(),
                zone: ZoneId(zone as u16),
                peer_address: node.peer_address.clone(),
                client_address: node.client_address.clone(),
                boot: BootId(0),
                nonce: 0,
                level: 0,
                leaving: false,
            };
            map.nodes.insert(NodeId(number as u16 + 1), entry);
        }
        map.zones = (0..)
            .map(ZoneId)
            .zip(names.iter().map(|name| name.to_string()))
            .collect();
        for (&zone, name) in &map.zones {
            let own = map.nodes_of(zone).count();
            if own > usize::from(partitions) {
                return Err(MapError::Idle {
                    zone: name.clone(),
                    nodes: own,
                    partitions,
                });
            }
        }
        let share = |partition: u16| match partition == partitions {
            true => SLOTS,
            false => first_slot(partition, partitions),
        };
        for partition in 0..partitions {
            let replicas = map.zones.keys().map(|&zone| {
                let own: Vec<NodeId> = map.nodes_of(zone).collect();
                (zone, own[usize::from(partition) % own.len()])
            });
            let entry = PartitionEntry {
                slots: vec![(share(partition), share(partition + 1) - 1)],
                slots_version: 0,
                replicas: replicas.collect(),
            };
            map.partitions.push(entry);
        }
        Ok(map)
    }

    /// The map of a node by itself: one partition, one replica.
    pub fn alone() -> PartitionMap {
        let node = Described {
            name: String::new(),
            zone: String::new(),
            peer_address: String::new(),
            client_address: String::new(),
        };
        PartitionMap::new("", &[node], 1).expect("one node and one partition are a cluster")
    }

    /// The nodes of a zone.
    pub fn nodes_of(&self, zone: ZoneId) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes
            .iter()
            .filter(move |(_, entry)| entry.zone == zone)
            .map(|(&node, _)| node)
    }

    /// All partitions.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions.len() as u16).map(PartitionId)
    }

    /// A partition's entry.
    pub fn partition(&self, partition: PartitionId) -> &PartitionEntry {
        &self.partitions[usize::from(partition.0)]
    }

    /// The partitions that a node keeps a replica of.
    pub fn kept_by(&self, node: NodeId) -> impl Iterator<Item = PartitionId> + '_ {
        self.partition_ids().filter(move |&partition| {
            self.partition(partition)
                .replicas
                .values()
                .any(|&replica| replica == node)
        })
    }

    /// Whether some node keeps no replica of some partition: then outcomes travel.
    pub fn is_spread(&self) -> bool {
        let all = self.partitions.len();
        self.nodes
            .keys()
            .any(|&node| self.kept_by(node).count() < all)
    }

    /// Who keeps a partition's replica in a zone.
    pub fn replica(&self, partition: PartitionId, zone: ZoneId) -> Option<NodeId> {
        self.partition(partition).replicas.get(&zone).copied()
    }

    /// Whose each slot is.
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Whose a slot is.
    pub fn partition_of_slot(&self, slot: u16) -> PartitionId {
        self.slots.partition_of(slot)
    }

    /// Whose a key is.
    pub fn partition_of_key(&self, key: &Key) -> PartitionId {
        self.slots.partition_of_key(key)
    }

    /// What a snapshot of a request's partition must say of its slots ([`txn::slots::version_key`]), so that the request is
    /// right there; `None` if that does not matter.
    ///
    /// # Errors
    /// The request was routed by other slots than these.
    pub fn slots_wanted(&self, request: &Request) -> Result<Option<u32>, Stop> {
        if self.slots.of() <= 1 || request.route.of() <= 1 || is_active(Mutant::ReadWithoutSlots) {
            return Ok(None);
        }
        let partition = request.route.partitions.first().copied();
        let entry = self.partition(partition.unwrap_or_default());
        match request.slots_version == self.slots_version {
            true => Ok(Some(entry.slots_version)),
            false => Err(Stop::Undeclared),
        }
    }

    /// The partition that has all of these slots, if one has.
    pub fn holder(&self, slots: SlotRange) -> Option<PartitionId> {
        let is_within = |&&(first, last): &&(u16, u16)| first <= slots.first && slots.last <= last;
        let has_all = |entry: &PartitionEntry| entry.slots.iter().find(is_within).is_some();
        let found = self.partitions.iter().position(has_all)?;
        (slots.first <= slots.last).then_some(PartitionId(found as u16))
    }

    /// Who should lead a partition, of those who can: leaders are spread over the zones.
    pub fn preferred_leader(&self, partition: PartitionId) -> Option<NodeId> {
        let replicas = &self.partition(partition).replicas;
        let place = usize::from(partition.0) % replicas.len().max(1);
        replicas.values().nth(place).copied()
    }

    /// The node whose process has a boot id, if it is its newest.
    pub fn node_of_boot(&self, boot: BootId) -> Option<NodeId> {
        let found = self.nodes.iter().find(|(_, entry)| entry.boot == boot);
        found.map(|(&node, _)| node)
    }

    /// Forty hexadecimal digits that name a node, as Redis Cluster does.
    pub fn node_name(&self, node: NodeId) -> String {
        let mut seed = mix(self.cluster ^ mix(u64::from(node.0)));
        let mut name = String::new();
        for _ in 0..5 {
            seed = mix(seed);
            name.push_str(&format!("{:08x}", seed as u32));
        }
        name
    }

    /// The newest behaviour that the processes of all nodes know, apart from those that are to leave: what may come into force.
    /// Not more than what is in force as long as one of them has never started; `None` if all leave.
    pub fn level_known(&self) -> Option<u32> {
        let staying = self.nodes.values().filter(|entry| !entry.leaving);
        staying.map(|entry| entry.level).min()
    }

    /// Takes a change of the order, which an epoch carries.
    pub fn apply(&mut self, control: &Control, epoch: Epoch) -> Changed {
        match control {
            Control::Boot {
                node,
                after,
                nonce,
                peer_address,
                client_address,
                level,
            } => {
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
                Changed::Boot {
                    node: *node,
                    nonce: *nonce,
                    boot: next,
                    ended,
                }
            }
            Control::AddNode {
                version,
                name,
                zone,
                peer_address,
                client_address,
            } => {
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
                Changed::Slots(SlotMove {
                    slots: *slots,
                    from,
                    to: *to,
                    version: self.version,
                })
            }
            Control::RaiseLevel { version, level } => {
                let known = self.level_known().is_some_and(|known| known >= *level);
                if *version != self.version || !known || *level <= self.level {
                    return Changed::Nothing;
                }
                self.level = *level;
                self.changed()
            }
        }
    }

    /// Who would take over what a node keeps, each time the node of its zone that has the fewest then. `None` if there is no
    /// such node, or nobody to take it.
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
            let Some(&from) = (self.partitions.get(partitions))
                .and_then(|partition| partition.replicas.get(&entry.zone))
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

    /// Appends the map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [
            self.version,
            self.slots_version,
            self.level,
            self.last_boot.0,
        ] {
            put_varint(out, u64::from(number));
        }
        put_varint(out, self.checkpoint.0);
        put_varint(out, self.cluster);
        put_varint(out, u64::from(self.last_node.0));
        put_varint(out, self.zones.len() as u64);
        for (zone, name) in &self.zones {
            put_varint(out, u64::from(zone.0));
            put_bytes(out, name.as_bytes());
        }
        put_varint(out, self.nodes.len() as u64);
        for (node, entry) in &self.nodes {
            put_varint(out, u64::from(node.0));
            put_varint(out, u64::from(entry.zone.0));
            put_varint(out, u64::from(entry.boot.0));
            put_varint(out, entry.nonce);
            put_varint(out, u64::from(entry.level));
            put_varint(out, u64::from(entry.leaving));
            for text in [&entry.name, &entry.peer_address, &entry.client_address] {
                put_bytes(out, text.as_bytes());
            }
        }
        put_varint(out, self.partitions.len() as u64);
        for entry in &self.partitions {
            put_varint(out, entry.slots.len() as u64);
            for &(first, last) in &entry.slots {
                put_varint(out, u64::from(first));
                put_varint(out, u64::from(last));
            }
            put_varint(out, u64::from(entry.slots_version));
            put_varint(out, entry.replicas.len() as u64);
            for (zone, node) in &entry.replicas {
                put_varint(out, u64::from(zone.0));
                put_varint(out, u64::from(node.0));
            }
        }
    }

    /// Reads a map.
    pub fn decode(reader: &mut Reader<'_>) -> Option<PartitionMap> {
        let version = take(reader)?;
        let slots_version = take(reader)?;
        let level = take(reader)?;
        let last_boot = BootId(take(reader)?);
        let checkpoint = Epoch(reader.varint()?);
        let cluster = reader.varint()?;
        let last_node = NodeId(take(reader)?);
        let mut zones = BTreeMap::new();
        for _ in 0..reader.varint()? {
            zones.insert(ZoneId(take(reader)?), take_text(reader)?);
        }
        let mut nodes = BTreeMap::new();
        for _ in 0..reader.varint()? {
            let node = NodeId(take(reader)?);
            let entry = NodeEntry {
                zone: ZoneId(take(reader)?),
                boot: BootId(take(reader)?),
                nonce: reader.varint()?,
                level: take(reader)?,
                leaving: match reader.varint()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                name: take_text(reader)?,
                peer_address: take_text(reader)?,
                client_address: take_text(reader)?,
            };
            nodes.insert(node, entry);
        }
        let mut partitions = Vec::new();
        for _ in 0..reader.varint()? {
            let mut slots = Vec::new();
            for _ in 0..reader.varint()? {
                slots.push((take(reader)?, take(reader)?));
            }
            let slots_version = take(reader)?;
            let mut replicas = BTreeMap::new();
            for _ in 0..reader.varint()? {
                replicas.insert(ZoneId(take(reader)?), NodeId(take(reader)?));
            }
            partitions.push(PartitionEntry {
                slots,
                slots_version,
                replicas,
            });
        }
        if partitions.is_empty() {
            return None;
        }
        Some(PartitionMap {
            version,
            slots_version,
            slots: slots_of(&partitions),
            cluster,
            zones,
            nodes,
            last_node,
            partitions,
            last_boot,
            level,
            checkpoint,
        })
    }
}

/// Whose each slot is, as the partitions' entries say.
fn slots_of(partitions: &[PartitionEntry]) -> Slots {
    let numbered = (0..).map(PartitionId).zip(partitions);
    let ranges = numbered.flat_map(|(partition, entry)| {
        let ranges = entry.slots.iter();
        ranges.map(move |&(first, last)| (partition, first, last))
    });
    Slots::of_ranges(partitions.len() as u16, ranges)
}

/// Puts ranges in order, and those together that follow each other.
fn joined(mut ranges: Vec<(u16, u16)>) -> Vec<(u16, u16)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u16, u16)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if *end + 1 == first => *end = last,
            _ => joined.push((first, last)),
        }
    }
    joined
}

/// Ranges without the slots of one that lies within one of them.
fn without(ranges: &[(u16, u16)], gone: SlotRange) -> Vec<(u16, u16)> {
    let mut left = Vec::new();
    for &(first, last) in ranges {
        if !(first..=last).contains(&gone.first) {
            left.push((first, last));
            continue;
        }
        if first < gone.first {
            left.push((first, gone.first - 1));
        }
        if gone.last < last {
            left.push((gone.last + 1, last));
        }
    }
    left
}

fn take<T: TryFrom<u64>>(reader: &mut Reader<'_>) -> Option<T> {
    T::try_from(reader.varint()?).ok()
}

fn take_text(reader: &mut Reader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

const TAG_BOOT: u8 = 1;
const TAG_ADD_NODE: u8 = 2;
const TAG_PLACE_REPLICAS: u8 = 3;
const TAG_REMOVE_NODE: u8 = 4;
const TAG_RAISE_LEVEL: u8 = 5;
const TAG_CHECKPOINT: u8 = 6;
const TAG_DRAIN: u8 = 7;
const TAG_MOVE_SLOTS: u8 = 8;

impl Control {
    /// Appends the record.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Control::Boot {
                node,
                after,
                nonce,
                peer_address,
                client_address,
                level,
            } => {
                out.push(TAG_BOOT);
                put_varint(out, u64::from(node.0));
                put_varint(out, u64::from(after.0));
                put_varint(out, *nonce);
                put_bytes(out, peer_address.as_bytes());
                put_bytes(out, client_address.as_bytes());
                put_varint(out, u64::from(*level));
            }
            Control::AddNode {
                version,
                name,
                zone,
                peer_address,
                client_address,
            } => {
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
            TAG_DRAIN => Control::Drain {
                version: take(reader)?,
                node: NodeId(take(reader)?),
            },
            TAG_REMOVE_NODE => Control::RemoveNode {
                version: take(reader)?,
                node: NodeId(take(reader)?),
            },
            TAG_CHECKPOINT => Control::Checkpoint {
                after: Epoch(reader.varint()?),
            },
            TAG_MOVE_SLOTS => Control::MoveSlots {
                version: take(reader)?,
                slots: SlotRange {
                    first: take(reader)?,
                    last: take(reader)?,
                },
                to: PartitionId(take(reader)?),
            },
            TAG_RAISE_LEVEL => Control::RaiseLevel {
                version: take(reader)?,
                level: take(reader)?,
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
                write!(
                    f,
                    "the slots {} to {} move to {to}",
                    slots.first, slots.last
                )
            }
            Control::RaiseLevel { level, .. } => write!(f, "behaviour {level} comes into force"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(nodes: &[(&str, &str)]) -> Vec<Described> {
        nodes
            .iter()
            .map(|(name, zone)| Described {
                name: name.to_string(),
                zone: zone.to_string(),
                peer_address: format!("{name}:7001"),
                client_address: format!("{name}:6379"),
            })
            .collect()
    }

    fn three() -> PartitionMap {
        let nodes = described(&[("a", "x"), ("b", "y"), ("c", "z"), ("d", "x")]);
        PartitionMap::new("test", &nodes, 3).expect("a map")
    }

    #[test]
    fn every_slot_has_one_partition_and_every_zone_a_replica_of_each() {
        let map = three();
        let mut slots = 0;
        for partition in map.partition_ids() {
            for &(first, last) in &map.partition(partition).slots {
                slots += u32::from(last - first) + 1;
                assert_eq!(map.partition_of_slot(first), partition);
                assert_eq!(map.partition_of_slot(last), partition);
            }
            assert_eq!(map.partition(partition).replicas.len(), 3);
        }
        assert_eq!(slots, u32::from(SLOTS));
        let kept: Vec<usize> = (1..=4)
            .map(|node| map.kept_by(NodeId(node)).count())
            .collect();
        assert_eq!(kept, [2, 3, 3, 1]);
        let leaders: Vec<_> = map
            .partition_ids()
            .map(|p| map.preferred_leader(p))
            .collect();
        assert_eq!(leaders, [Some(NodeId(1)), Some(NodeId(2)), Some(NodeId(3))]);
    }

    #[test]
    fn slots_move_from_one_partition_to_another_and_back() {
        let mut map = three();
        let before = map.clone();
        let change = |version, first, last, to| Control::MoveSlots {
            version,
            slots: SlotRange { first, last },
            to: PartitionId(to),
        };
        for (what, control) in [
            ("another version", change(2, 0, 9, 1)),
            ("slots of two partitions", change(1, 5_000, 6_000, 2)),
            ("to whom they belong", change(1, 0, 9, 0)),
            ("to nobody", change(1, 0, 9, 3)),
            ("backwards", change(1, 9, 8, 1)),
            ("beyond the last slot", change(1, 16_000, SLOTS, 0)),
        ] {
            assert_eq!(map.apply(&control, Epoch(1)), Changed::Nothing, "{what}");
        }
        assert_eq!(map, before);

        let moved = map.apply(&change(1, 100, 199, 2), Epoch(2));
        let expected = SlotMove {
            slots: SlotRange {
                first: 100,
                last: 199,
            },
            from: PartitionId(0),
            to: PartitionId(2),
            version: 2,
        };
        assert_eq!(moved, Changed::Slots(expected));
        assert_eq!((map.version, map.slots_version), (2, 2));
        let slots = |map: &PartitionMap, at| map.partition(PartitionId(at)).slots.clone();
        assert_eq!(slots(&map, 0), [(0, 99), (200, 5_460)]);
        assert_eq!(slots(&map, 2), [(100, 199), (10_922, 16_383)]);
        assert_eq!(map.partition_of_slot(99), PartitionId(0));
        assert_eq!(map.partition_of_slot(150), PartitionId(2));
        let versions = map.partitions.iter().map(|entry| entry.slots_version);
        assert_eq!(versions.collect::<Vec<_>>(), [2, 0, 2]);
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        let decoded = PartitionMap::decode(&mut Reader::new(&bytes)).expect("readable");
        assert_eq!(decoded, map);
        let mut bytes = Vec::new();
        change(7, 100, 199, 2).encode(&mut bytes);
        let decoded = Control::decode(&mut Reader::new(&bytes));
        assert_eq!(decoded, Some(change(7, 100, 199, 2)));

        assert!(matches!(
            map.apply(&change(2, 100, 199, 0), Epoch(3)),
            Changed::Slots(_)
        ));
        assert_eq!(slots(&map, 0), [(0, 5_460)]);
        assert!(map.slots().is_even() && map.slots_version == 3);
    }

    #[test]
    fn a_change_that_was_decided_on_another_version_changes_nothing() {
        let mut map = three();
        let join = Control::AddNode {
            version: 1,
            name: "e".to_owned(),
            zone: ZoneId(2),
            peer_address: "e:7001".to_owned(),
            client_address: "e:6379".to_owned(),
        };
        assert_eq!(map.apply(&join, Epoch(1)), Changed::Map);
        assert_eq!(map.last_node, NodeId(5));
        assert_eq!(map.apply(&join, Epoch(1)), Changed::Nothing);
        let place = |version, partitions: &[u16], to| Control::PlaceReplicas {
            version,
            places: (partitions.iter())
                .map(|&partition| (PartitionId(partition), NodeId(to)))
                .collect(),
        };
        assert_eq!(map.apply(&place(2, &[1], 5), Epoch(4)), Changed::Placed);
        assert_eq!(map.checkpoint, Epoch(4));
        assert_eq!(map.replica(PartitionId(1), ZoneId(2)), Some(NodeId(5)));
        for (why, refused) in [
            ("of another version", place(map.version - 1, &[0], 5)),
            ("nobody", place(map.version, &[0], 9)),
            ("no such partition", place(map.version, &[3], 5)),
            ("it has it", place(map.version, &[1], 5)),
            ("twice", place(map.version, &[0, 0], 5)),
            ("nothing", place(map.version, &[], 5)),
            ("one is left with nothing", place(map.version, &[0, 2], 5)),
        ] {
            assert_eq!(map.apply(&refused, Epoch(1)), Changed::Nothing, "{why}");
        }
        let leave = |version, node| Control::RemoveNode {
            version,
            node: NodeId(node),
        };
        assert_eq!(
            map.apply(&leave(3, 5), Epoch(1)),
            Changed::Nothing,
            "it keeps a replica"
        );
        let drain = Control::Drain {
            version: map.version,
            node: NodeId(3),
        };
        assert_eq!(map.apply(&drain, Epoch(1)), Changed::Map);
        assert_eq!(map.apply(&leave(map.version, 3), Epoch(1)), Changed::Map);
        assert_eq!(
            map.last_node,
            NodeId(5),
            "its number is not given out again"
        );
    }

    #[test]
    fn a_node_that_is_to_leave_hands_everything_over_at_once_to_those_of_its_zone() {
        let mut map = three();
        let drain = |map: &PartitionMap, node| Control::Drain {
            version: map.version,
            node: NodeId(node),
        };
        let kept = |map: &PartitionMap, node| -> Vec<u16> {
            map.kept_by(NodeId(node))
                .map(|partition| partition.0)
                .collect()
        };
        let before = map.clone();
        let alone = drain(&map, 2);
        assert_eq!(
            map.apply(&alone, Epoch(1)),
            Changed::Nothing,
            "nobody to take over"
        );
        assert_eq!(map, before);
        let join = Control::AddNode {
            version: 1,
            name: "e".to_owned(),
            zone: ZoneId(0),
            peer_address: "e:7001".to_owned(),
            client_address: "e:6379".to_owned(),
        };
        assert_eq!(map.apply(&join, Epoch(1)), Changed::Map);
        let drained = drain(&map, 1);
        assert_eq!(map.apply(&drained, Epoch(1)), Changed::Map);
        assert!(map.nodes[&NodeId(1)].leaving);
        assert_eq!((kept(&map, 1), kept(&map, 4)), (vec![], vec![1, 2]));
        assert_eq!(kept(&map, 5), [0], "it had the fewest");
        let again = drain(&map, 1);
        assert_eq!(map.apply(&again, Epoch(1)), Changed::Nothing);
        let back = Control::PlaceReplicas {
            version: map.version,
            places: vec![(PartitionId(0), NodeId(1))],
        };
        assert_eq!(map.apply(&back, Epoch(1)), Changed::Nothing, "it leaves");
        // Who leaves takes over from nobody.
        let next = drain(&map, 5);
        assert_eq!(map.apply(&next, Epoch(1)), Changed::Map);
        assert_eq!(kept(&map, 4), [0, 1, 2]);
        let last = drain(&map, 4);
        assert_eq!(map.apply(&last, Epoch(1)), Changed::Nothing);
        let leave = Control::RemoveNode {
            version: map.version,
            node: NodeId(1),
        };
        assert_eq!(map.apply(&leave, Epoch(1)), Changed::Map);
    }

    #[test]
    fn boots_are_numbered_across_nodes_and_end_the_one_before() {
        let mut map = three();
        let start = |node, after, nonce| Control::Boot {
            node: NodeId(node),
            after: BootId(after),
            nonce,
            peer_address: format!("{node}:7001"),
            client_address: format!("{node}:6379"),
            level: LEVEL_FIRST,
        };
        for (node, nonce, boot, ended) in [(2, 7, 1, 0), (3, 8, 2, 0), (2, 9, 3, 1)] {
            let expected = Changed::Boot {
                node: NodeId(node),
                nonce,
                boot: BootId(boot),
                ended: BootId(ended),
            };
            assert_eq!(map.apply(&start(node, ended, nonce), Epoch(1)), expected);
        }
        for (after, nonce, which) in [(1, 9, "asked twice"), (0, 7, "late"), (1, 6, "late")] {
            let again = start(2, after, nonce);
            assert_eq!(map.apply(&again, Epoch(1)), Changed::Nothing, "{which}");
        }
        assert_eq!(map.node_of_boot(BootId(3)), Some(NodeId(2)));
        assert_eq!(map.node_of_boot(BootId(1)), None);
    }

    #[test]
    fn a_behaviour_comes_into_force_once_all_who_stay_know_it_and_shuts_out_who_does_not() {
        let mut map = three();
        assert_eq!(map.level, LEVEL_FIRST);
        let start = |map: &PartitionMap, node: u16, level| Control::Boot {
            node: NodeId(node),
            after: map.nodes[&NodeId(node)].boot,
            nonce: 1,
            peer_address: format!("{node}:7001"),
            client_address: format!("{node}:6379"),
            level,
        };
        let raise = |map: &PartitionMap, level| Control::RaiseLevel {
            version: map.version,
            level,
        };
        for node in 1..=3 {
            let control = start(&map, node, 3);
            map.apply(&control, Epoch(1));
        }
        assert_eq!(map.level_known(), Some(0), "one has never started");
        let early = raise(&map, 2);
        assert_eq!(map.apply(&early, Epoch(1)), Changed::Nothing);
        let control = start(&map, 4, 2);
        map.apply(&control, Epoch(1));
        assert_eq!(map.level_known(), Some(2));
        let stale = raise(&map, 2);
        // A process that starts with what is in force now is a change of the map: what was decided before is void.
        let control = start(&map, 4, 1);
        map.apply(&control, Epoch(1));
        assert_eq!(map.apply(&stale, Epoch(1)), Changed::Nothing);
        let all_but_one = raise(&map, 2);
        assert_eq!(map.apply(&all_but_one, Epoch(1)), Changed::Nothing);
        let control = start(&map, 4, 2);
        map.apply(&control, Epoch(1));
        for (level, changed) in [
            (3, Changed::Nothing),
            (2, Changed::Map),
            (2, Changed::Nothing),
        ] {
            let control = raise(&map, level);
            assert_eq!(map.apply(&control, Epoch(1)), changed, "{level}");
        }
        assert_eq!(map.level, 2);
        // From now on who knows less is not let in, and is no process of the cluster.
        let before = map.clone();
        assert_eq!(map.apply(&start(&before, 4, 1), Epoch(1)), Changed::Nothing);
        assert_eq!(map, before);
        // Who leaves is not waited for.
        let drain = Control::Drain {
            version: map.version,
            node: NodeId(4),
        };
        assert_eq!(map.apply(&drain, Epoch(1)), Changed::Map);
        let last = raise(&map, 3);
        assert_eq!(map.apply(&last, Epoch(1)), Changed::Map);
    }

    #[test]
    fn maps_and_records_round_trip_and_truncations_are_refused() {
        let mut map = three();
        let control = Control::Boot {
            node: NodeId(2),
            after: BootId(0),
            nonce: 9,
            peer_address: "p".to_owned(),
            client_address: "c".to_owned(),
            level: 4,
        };
        map.apply(&control, Epoch(1));
        let mut bytes = Vec::new();
        map.encode(&mut bytes);
        assert_eq!(PartitionMap::decode(&mut Reader::new(&bytes)), Some(map));
        for len in 0..bytes.len() {
            assert_eq!(PartitionMap::decode(&mut Reader::new(&bytes[..len])), None);
        }
        let drain = Control::Drain {
            version: 1,
            node: NodeId(4),
        };
        for control in [control, drain] {
            let mut bytes = Vec::new();
            control.encode(&mut bytes);
            assert_eq!(Control::decode(&mut Reader::new(&bytes)), Some(control));
        }
    }
}
