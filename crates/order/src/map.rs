//! The partition map: which slots are whose, and who keeps a replica of what.
//!
//! The map is part of the replicated state. It starts as the cluster's description (the same at every node)
//! and changes only by [`Control`] records, which travel in the batches of partition 0 and take effect, at
//! every partition alike, behind the epoch that carries them. So all nodes go through the same versions at
//! the same places of the order.

mod control;
#[cfg(test)]
mod tests;

pub use control::{Changed, Control, PlaceError};

use std::collections::BTreeMap;
use txn::codec::{Reader, put_bytes, put_varint};
use txn::hash::{hash_bytes, mix};
use txn::key::{SLOTS, first_slot};
use txn::mutant::{Mutant, is_active};
use txn::{BootId, Epoch, Key, NODES_MAX, NodeId, PartitionId, Request, SlotRange, Slots, Stop, ZoneId};

/// The most partitions of a cluster.
pub const PARTITIONS_MAX: u16 = 256;
/// The behaviour that is in force when a cluster begins, whatever its founders know. It stays as it is: all
/// founders make the same first map, of whatever builds they are.
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
    /// The newest behaviour that its process knows: see [`PartitionMap::level`]. Before its first process, at
    /// most what is in force.
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
    /// The version at which slots last changed hands, 0 if none have: requests that were routed by an older
    /// one are routed again.
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
    /// The behaviour that is in force: what a build may do that an older one would do in another way starts
    /// with an ordered record, once every node knows it. A process that knows less gets no boot id. Never
    /// falls.
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
        "zone '{zone}' has {nodes} nodes, and the cluster {partitions} partitions: some node would keep \
         nothing; give it more partitions, or fewer nodes (others can be added later)"
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
    /// The first map of a cluster. Nodes are numbered from 1 in their order, zones from 0 in the order in
    /// which they are first named; slots are dealt evenly, and the partitions of a zone in turn to its nodes.
    pub fn new(cluster: &str, nodes: &[Described], partitions: u16) -> Result<PartitionMap, MapError> {
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
        count("the number of partitions", PARTITIONS_MAX, usize::from(partitions))?;
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
        map.zones = (0..).map(ZoneId).zip(names.iter().map(|name| name.to_string())).collect();
        for (&zone, name) in &map.zones {
            let own = map.nodes_of(zone).count();
            if own > usize::from(partitions) {
                return Err(MapError::Idle { zone: name.clone(), nodes: own, partitions });
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
        self.nodes.iter().filter(move |(_, entry)| entry.zone == zone).map(|(&node, _)| node)
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
            self.partition(partition).replicas.values().any(|&replica| replica == node)
        })
    }

    /// Whether some node keeps no replica of some partition: then outcomes travel.
    pub fn is_spread(&self) -> bool {
        let all = self.partitions.len();
        self.nodes.keys().any(|&node| self.kept_by(node).count() < all)
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

    /// What a snapshot of a request's partition must say of its slots ([`txn::slots::version_key`]), so that
    /// the request is right there; `None` if that does not matter.
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
            false => Err(Stop::Undeclared(None)),
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

    /// The newest behaviour that the processes of all nodes know, apart from those that are to leave: what
    /// may come into force. Not more than what is in force as long as one of them has never started; `None`
    /// if all leave.
    pub fn level_known(&self) -> Option<u32> {
        let staying = self.nodes.values().filter(|entry| !entry.leaving);
        staying.map(|entry| entry.level).min()
    }

    /// Appends the map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.version, self.slots_version, self.level, self.last_boot.0] {
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

    /// Whether it is a map that clusters come to: every slot has one partition, every replica a node of its
    /// zone, and what counts has room to go on.
    fn is_sound(&self) -> bool {
        const COUNTS_END: u32 = u32::MAX / 2;
        let counts = [self.version, self.slots_version, self.level, self.last_boot.0];
        let is_node = |(node, entry): (&NodeId, &NodeEntry)| {
            (1..=self.last_node.0).contains(&node.0)
                && self.zones.contains_key(&entry.zone)
                && entry.boot <= self.last_boot
        };
        let is_replica = |(zone, node): (&ZoneId, &NodeId)| {
            let entry = self.nodes.get(node);
            entry.is_some_and(|entry| entry.zone == *zone)
        };
        let is_partition = |entry: &PartitionEntry| {
            entry.slots_version <= self.slots_version
                && !entry.replicas.is_empty()
                && entry.replicas.iter().all(is_replica)
        };
        let mut slots: Vec<(u16, u16)> = Vec::new();
        for entry in &self.partitions {
            slots.extend(&entry.slots);
        }
        slots.sort_unstable();
        let mut next = 0;
        let follows = |&(first, last): &(u16, u16)| {
            let is_next = first == next && first <= last && last < SLOTS;
            next = last.wrapping_add(1);
            is_next
        };
        let has_all_slots = slots.iter().all(follows) && next == SLOTS;
        (1..=usize::from(PARTITIONS_MAX)).contains(&self.partitions.len())
            && counts.into_iter().all(|count| count < COUNTS_END)
            && self.last_node.0 <= NODES_MAX
            && self.nodes.iter().all(is_node)
            && self.partitions.iter().all(is_partition)
            && has_all_slots
    }

    /// Reads a map. `None` on anything that is none.
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
            partitions.push(PartitionEntry { slots, slots_version, replicas });
        }
        if !(1..=usize::from(PARTITIONS_MAX)).contains(&partitions.len()) {
            return None;
        }
        let map = PartitionMap {
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
        };
        map.is_sound().then_some(map)
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
