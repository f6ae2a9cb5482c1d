//! Changes of the cluster that an operator asks for, and how their outcome comes back.
//!
//! A change is ordered, and some move data before they are done, so nobody waits for one on an I/O thread.
//! Whoever takes a [`ClusterChange`] gives a [`ChangeTicket`] for it and keeps the [`ChangeAnswer`]; the
//! connection that asked looks at its ticket now and then.

use order::{PartitionEntry, PartitionMap};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use txn::key::SLOTS;
use txn::{NodeId, PartitionId, SlotRange};

/// A change that an operator asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// A node joins, in a zone that the cluster has.
    AddNode {
        /// Its name.
        name: String,
        /// Its zone's name.
        zone: String,
        /// Where other nodes will reach it: host and port.
        peer_address: String,
        /// Where clients will reach it: host and port.
        client_address: String,
    },
    /// A node leaves for good. What it keeps moves to the other nodes of its zone first.
    RemoveNode {
        /// Which.
        node: NodeId,
    },
    /// Slots of one partition become another one's, with their keys.
    MoveSlots {
        /// Which slots.
        slots: SlotRange,
        /// To which partition.
        to: PartitionId,
    },
    /// Partitions' replicas move to other nodes of their zones.
    PlaceReplicas {
        /// Which partition's, and to whom.
        places: Vec<(PartitionId, NodeId)>,
    },
    /// Another node leads a partition.
    TransferLeader {
        /// Which partition.
        partition: PartitionId,
        /// Who: it keeps a replica of the partition.
        to: NodeId,
    },
}

impl ClusterChange {
    /// What to answer if a cluster with this map is as the change would have it, so that whoever missed the
    /// answer can ask again.
    pub fn done_already(&self, map: &PartitionMap) -> Option<String> {
        match self {
            ClusterChange::MoveSlots { slots, to } if map.holder(*slots) == Some(*to) => {
                let SlotRange { first, last } = *slots;
                Some(format!("OK: {to} has the slots {first} to {last} already"))
            }
            _ => None,
        }
    }

    /// Why the change can't be made to a cluster with this map, if it can't. That it may, here, is no
    /// promise: the order decides, perhaps on a newer map.
    pub fn check(&self, map: &PartitionMap) -> Result<(), String> {
        let known = |node: &NodeId| match map.nodes.get(node) {
            Some(entry) => Ok(entry),
            None => Err(format!("there is no {node}: the cluster has {}", all_of(map, map.nodes.keys()))),
        };
        let called = |node: &NodeId| called(map, *node);
        match self {
            ClusterChange::AddNode { name, zone, peer_address, client_address } => {
                if peer_address == client_address {
                    return Err(format!(
                        "{peer_address} cannot be both the peer address and the client address: give the \
                         node two ports"
                    ));
                }
                if !map.zones.values().any(|known| known == zone) {
                    let zones: Vec<String> = map.zones.values().map(|zone| format!("'{zone}'")).collect();
                    return Err(format!("there is no zone '{zone}': the cluster has {}", zones.join(", ")));
                }
                for (node, entry) in &map.nodes {
                    if entry.name == *name {
                        return Err(format!(
                            "{node} has the name '{name}': choose another, or remove that node first"
                        ));
                    }
                    let taken = [&entry.peer_address, &entry.client_address];
                    for (what, address) in [("peer", peer_address), ("client", client_address)] {
                        if taken.contains(&address) {
                            return Err(format!(
                                "{} has the address {address}: every node needs a {what} address of its own",
                                called(node)
                            ));
                        }
                    }
                }
                Ok(())
            }
            ClusterChange::RemoveNode { node } => {
                let entry = known(node)?;
                if entry.leaving {
                    return Err(format!(
                        "{} is leaving already: 'ordo admin status' tells how far that is",
                        called(node)
                    ));
                }
                if map.heirs(*node).is_none() {
                    let zone = map.zones.get(&entry.zone).map_or("", String::as_str);
                    return Err(format!(
                        "{} is the only one of zone '{zone}' that stays, so nobody could take over what it \
                         keeps: add another node to that zone first",
                        called(node)
                    ));
                }
                Ok(())
            }
            ClusterChange::MoveSlots { slots, to } => {
                known_partition(map, *to)?;
                let SlotRange { first, last } = *slots;
                if first > last || last >= SLOTS {
                    return Err(format!(
                        "{first} to {last} is no range of slots: they are numbered from 0 to {}, and a \
                         range's first is not behind its last",
                        SLOTS - 1
                    ));
                }
                match map.holder(*slots) {
                    None => Err(format!(
                        "the slots {first} to {last} are not all of one partition: move those of each by \
                         themselves ('ordo admin status' shows whose they are)"
                    )),
                    Some(holder) if holder == *to => {
                        Err(format!("{to} has the slots {first} to {last} already"))
                    }
                    Some(_) => Ok(()),
                }
            }
            ClusterChange::PlaceReplicas { places } => {
                for (partition, node) in places {
                    known_partition(map, *partition)?;
                    known(node)?;
                }
                let problem = map.cannot_place(places);
                problem.map_or(Ok(()), |problem| Err(problem.to_string()))
            }
            ClusterChange::TransferLeader { partition, to } => {
                let entry = known_partition(map, *partition)?;
                known(to)?;
                if !entry.replicas.values().any(|replica| replica == to) {
                    return Err(format!(
                        "{} keeps no replica of {partition}: {} do",
                        called(to),
                        all_of(map, entry.replicas.values())
                    ));
                }
                Ok(())
            }
        }
    }
}

fn known_partition(map: &PartitionMap, partition: PartitionId) -> Result<&PartitionEntry, String> {
    map.partitions.get(usize::from(partition.0)).ok_or_else(|| {
        format!("there is no {partition}: the cluster has 0 to {}", map.partitions.len().saturating_sub(1))
    })
}

/// A node as people call it: by its name, and by its number, which logs of before may have.
pub(crate) fn called(map: &PartitionMap, node: NodeId) -> String {
    match map.nodes.get(&node) {
        Some(entry) => format!("'{}' ({node})", entry.name),
        None => node.to_string(),
    }
}

fn all_of<'a>(map: &PartitionMap, nodes: impl Iterator<Item = &'a NodeId>) -> String {
    let nodes: Vec<String> = nodes.map(|&node| called(map, node)).collect();
    nodes.join(", ")
}

impl fmt::Display for ClusterChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClusterChange::AddNode { name, zone, .. } => {
                write!(f, "node '{name}' joins zone '{zone}'")
            }
            ClusterChange::RemoveNode { node } => write!(f, "{node} leaves"),
            ClusterChange::MoveSlots { slots, to } => {
                write!(f, "the slots {} to {} move to {to}", slots.first, slots.last)
            }
            ClusterChange::PlaceReplicas { places } => {
                write!(f, "{} replicas move to other nodes", places.len())
            }
            ClusterChange::TransferLeader { partition, to } => {
                write!(f, "{to} leads {partition}")
            }
        }
    }
}

/// How a change ended: what was done, or why it was not, both for people.
pub type ChangeOutcome = Result<String, String>;

/// What a connection keeps while its change is on its way.
pub type ChangeTicket = Ticket<String>;

/// What whoever makes a change keeps.
pub type ChangeAnswer = TicketAnswer<String>;

type Cell<T> = Arc<Mutex<Option<Result<T, String>>>>;

/// What a connection keeps while what it asked for is on its way.
#[derive(Debug)]
pub struct Ticket<T>(Cell<T>);

/// What whoever works on it keeps. Dropped without an answer, it says that the outcome is unknown.
#[derive(Debug)]
pub struct TicketAnswer<T>(Option<Cell<T>>);

impl<T> Ticket<T> {
    /// A ticket and the means to answer it.
    pub fn open() -> (Ticket<T>, TicketAnswer<T>) {
        let cell = Cell::default();
        (Ticket(cell.clone()), TicketAnswer(Some(cell)))
    }
    /// How it ended, once it has; `None` before that, and after it was taken.
    pub fn try_take(&self) -> Option<Result<T, String>> {
        self.0.lock().take()
    }
}

impl<T> TicketAnswer<T> {
    /// Answers.
    pub fn answer(mut self, outcome: Result<T, String>) {
        if let Some(cell) = self.0.take() {
            *cell.lock() = Some(outcome);
        }
    }
}

impl<T> Drop for TicketAnswer<T> {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            let lost = "nobody knows how the change ended, because the node stopped working on it: look at \
                        'ordo admin status', and ask again if it is missing there";
            *cell.lock() = Some(Err(lost.to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::map;

    fn add(name: &str, zone: &str, peer_address: &str) -> ClusterChange {
        ClusterChange::AddNode {
            name: name.to_owned(),
            zone: zone.to_owned(),
            peer_address: peer_address.to_owned(),
            client_address: "e:6379".to_owned(),
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_could() {
        let map = map();
        let remove = |node| ClusterChange::RemoveNode { node: NodeId(node) };
        let transfer = |partition, to| ClusterChange::TransferLeader {
            partition: PartitionId(partition),
            to: NodeId(to),
        };
        let place = |partition, to| ClusterChange::PlaceReplicas {
            places: vec![(PartitionId(partition), NodeId(to))],
        };
        let moved = |first, last, to| ClusterChange::MoveSlots {
            slots: SlotRange { first, last },
            to: PartitionId(to),
        };
        for (change, error) in [
            (add("e", "x", "e:7001"), ""),
            (add("e", "w", "e:7001"), "there is no zone 'w': the cluster has 'x', 'y', 'z'"),
            (add("b", "x", "e:7001"), "node 2 has the name 'b': choose another, or remove that node first"),
            (
                add("e", "x", "b:7002"),
                "'b' (node 2) has the address b:7002: every node needs a peer address of its own",
            ),
            (
                add("e", "x", "10.0.0.2:6380"),
                "'b' (node 2) has the address 10.0.0.2:6380: every node needs a peer address of its own",
            ),
            (
                add("e", "x", "e:6379"),
                "e:6379 cannot be both the peer address and the client address: give the node two ports",
            ),
            (remove(4), ""),
            (
                remove(9),
                "there is no node 9: the cluster has 'a' (node 1), 'b' (node 2), 'c' (node 3), 'd' (node 4)",
            ),
            (
                remove(2),
                "'b' (node 2) is the only one of zone 'y' that stays, so nobody could take over what it \
                 keeps: add another node to that zone first",
            ),
            (moved(0, 5_000, 1), ""),
            (
                place(0, 9),
                "there is no node 9: the cluster has 'a' (node 1), 'b' (node 2), 'c' (node 3), 'd' (node 4)",
            ),
            (place(7, 4), "there is no partition 7: the cluster has 0 to 2"),
            (place(2, 4), ""),
            (place(1, 4), "node 4 keeps partition 1 already, or partition 1 is named twice for one zone"),
            (
                place(1, 1),
                "node 4 would keep nothing of what it keeps: leave it a partition, or take it out with \
                 'ordo admin remove-node'",
            ),
            (
                moved(0, 5_461, 1),
                "the slots 0 to 5461 are not all of one partition: move those of each by themselves ('ordo \
                 admin status' shows whose they are)",
            ),
            (
                moved(9, 8, 1),
                "9 to 8 is no range of slots: they are numbered from 0 to 16383, and a range's first is \
                 not behind its last",
            ),
            (
                moved(0, 16_384, 1),
                "0 to 16384 is no range of slots: they are numbered from 0 to 16383, and a range's first \
                 is not behind its last",
            ),
            (moved(0, 8, 0), "partition 0 has the slots 0 to 8 already"),
            (moved(0, 8, 3), "there is no partition 3: the cluster has 0 to 2"),
            (transfer(0, 3), ""),
            (transfer(3, 1), "there is no partition 3: the cluster has 0 to 2"),
            (
                transfer(0, 9),
                "there is no node 9: the cluster has 'a' (node 1), 'b' (node 2), 'c' (node 3), 'd' (node 4)",
            ),
            (
                transfer(0, 4),
                "'d' (node 4) keeps no replica of partition 0: 'a' (node 1), 'b' (node 2), 'c' (node 3) do",
            ),
        ] {
            assert_eq!(change.check(&map).err().unwrap_or_default(), error, "{change}");
        }
    }

    #[test]
    fn a_ticket_gives_its_answer_once_and_an_answer_that_is_lost_says_so() {
        let (ticket, answer) = ChangeTicket::open();
        assert_eq!(ticket.try_take(), None);
        answer.answer(Ok("done".to_owned()));
        assert_eq!(ticket.try_take(), Some(Ok("done".to_owned())));
        let (ticket, answer) = ChangeTicket::open();
        drop(answer);
        let lost = ticket.try_take().expect("an answer").expect_err("no success");
        assert!(lost.starts_with("nobody knows how"), "{lost}");
        assert_eq!(ticket.try_take(), None);
    }
}
