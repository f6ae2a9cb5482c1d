//! Which replicas move, so that the nodes of each zone keep about as many.
//!
//! A node that gives a replica away, or gets one, starts anew, so no more of them move than must, and none
//! that would only be evened out by one. A node that is not up gets nothing, and what moves already is left
//! to itself.

use server::cluster::{ClusterStatus, NodeStatus};
use std::collections::BTreeMap;

/// A replica's move within its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Of which partition.
    pub partition: u16,
    /// Who keeps it.
    pub from: u16,
    /// Who is to keep it.
    pub to: u16,
}

/// The moves that leave no node of a zone with two replicas more than another one of it, and the zones in
/// which some move already.
pub fn plan(status: &ClusterStatus) -> (Vec<Place>, Vec<&str>) {
    let mut zones: Vec<&str> = status.nodes.iter().map(|node| node.zone.as_str()).collect();
    zones.sort_unstable();
    zones.dedup();
    let mut places = Vec::new();
    let mut busy = Vec::new();
    for zone in zones {
        match plan_zone(status, zone) {
            Some(found) => places.extend(found),
            None => busy.push(zone),
        }
    }
    (places, busy)
}

/// The moves within a zone; `None` if replicas move there already.
fn plan_zone(status: &ClusterStatus, zone: &str) -> Option<Vec<Place>> {
    let nodes = || status.nodes.iter().filter(|node| node.zone == zone);
    let can_get =
        |node: &&NodeStatus| !node.leaving && node.out.is_none() && (node.reachable || node.waiting);
    // What each keeps; last what it leads, which it gives away last.
    let mut kept: BTreeMap<u16, Vec<u16>> = nodes().map(|node| (node.id, Vec::new())).collect();
    for is_led in [true, false] {
        for partition in &status.partitions {
            for replica in &partition.replicas {
                let Some(kept) = kept.get_mut(&replica.node) else {
                    continue;
                };
                if !["leader", "follower"].contains(&&*replica.role) {
                    return None;
                }
                if is_led == (replica.role == "leader") {
                    kept.push(partition.id);
                }
            }
        }
    }
    let mut places = Vec::new();
    loop {
        let count = |node: &u16| kept[node].len();
        let from = kept.keys().copied().max_by_key(count)?;
        let able = nodes().filter(can_get).map(|node| node.id);
        let to = able.filter(|&node| node != from).min_by_key(count);
        let Some(to) = to.filter(|to| count(to) + 2 <= count(&from)) else {
            return Some(places);
        };
        // Not what it has just got: it has two more than somebody else, which none that got some has.
        let partition = kept.get_mut(&from)?.pop()?;
        kept.get_mut(&to)?.insert(0, partition);
        places.push(Place { partition, from, to });
    }
}

/// Whether a move is done: who was to get the replica has it, and who gave it away has none.
pub fn is_done(status: &ClusterStatus, place: &Place) -> bool {
    let mut partitions = status.partitions.iter();
    let Some(found) = partitions.find(|found| found.id == place.partition) else {
        return false;
    };
    let role = |node| {
        let mut replicas = found.replicas.iter();
        let replica = replicas.find(|replica| replica.node == node);
        replica.map_or("", |replica| replica.role.as_str())
    };
    ["leader", "follower"].contains(&role(place.to)) && role(place.from).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use server::cluster::{PartitionStatus, ReplicaStatus};

    /// Nodes of a zone (number, zone, whether it is up), and who keeps each partition, its leader first.
    fn cluster(nodes: &[(u16, &str, bool)], kept: &[&[u16]]) -> ClusterStatus {
        let node = |&(id, zone, reachable): &(u16, &str, bool)| NodeStatus {
            id,
            name: format!("n{id}"),
            zone: zone.to_owned(),
            peer_address: String::new(),
            client_address: String::new(),
            boot: 1,
            level: 1,
            reachable,
            out: None,
            waiting: false,
            leaving: false,
            clock_ahead_ms: 0,
        };
        let partition = |(id, nodes): (usize, &&[u16])| PartitionStatus {
            id: id as u16,
            slots: Vec::new(),
            leader: nodes.first().copied(),
            term: 1,
            replicas: nodes
                .iter()
                .enumerate()
                .map(|(at, &node)| ReplicaStatus {
                    node,
                    role: if at == 0 { "leader" } else { "follower" }.to_owned(),
                    lag: None,
                })
                .collect(),
        };
        ClusterStatus {
            cluster: "shop".to_owned(),
            map_version: 4,
            level: 1,
            epoch: 1,
            me: 1,
            nodes: nodes.iter().map(node).collect(),
            partitions: kept.iter().enumerate().map(partition).collect(),
        }
    }

    fn place(partition: u16, from: u16, to: u16) -> Place {
        Place { partition, from, to }
    }

    #[test]
    fn a_new_node_gets_its_share_in_its_own_zone_and_no_leader_if_there_is_another() {
        const NODES: &[(u16, &str, bool)] = &[(1, "x", true), (2, "y", true), (3, "x", true)];
        let four = cluster(NODES, &[&[1, 2], &[2, 1], &[1, 2], &[2, 1]]);
        assert_eq!(plan(&four).0, [place(3, 1, 3), place(1, 1, 3)]);
        let two = cluster(NODES, &[&[1, 2], &[1, 2]]);
        assert_eq!(plan(&two).0, [place(1, 1, 3)]);
        let one = cluster(NODES, &[&[1, 2]]);
        assert_eq!(plan(&one).0, [], "there is nothing to share");
    }

    #[test]
    fn who_is_down_or_leaves_gets_nothing_and_a_zone_where_replicas_move_is_left_alone() {
        let kept: &[&[u16]] = &[&[1, 2], &[2, 1], &[1, 2]];
        let mut status = cluster(&[(1, "x", true), (2, "y", true), (3, "x", false)], kept);
        assert_eq!(plan(&status), (vec![], vec![]));
        status.nodes[2].waiting = true;
        assert_eq!(plan(&status).0, [place(1, 1, 3)]);
        status.nodes[2].leaving = true;
        assert_eq!(plan(&status).0, []);
        status.nodes[2].leaving = false;
        status.partitions[0].replicas.push(ReplicaStatus {
            node: 3,
            role: "learner".to_owned(),
            lag: Some(5),
        });
        assert_eq!(plan(&status), (vec![], vec!["x"]));
    }

    #[test]
    fn any_placement_is_evened_out() {
        for case in 0..500_u64 {
            let draw = |what: u64, below: u64| txn::hash::mix(txn::hash::mix(case) ^ what) % below;
            let nodes: Vec<(u16, &str, bool)> =
                (1..=2 + draw(1, 4) as u16).map(|id| (id, "x", true)).collect();
            let kept: Vec<Vec<u16>> =
                (0..1 + draw(2, 12)).map(|at| vec![1 + draw(100 + at, nodes.len() as u64) as u16]).collect();
            let kept: Vec<&[u16]> = kept.iter().map(Vec::as_slice).collect();
            let mut status = cluster(&nodes, &kept);
            let (places, _) = plan(&status);
            for place in &places {
                let replica = &mut status.partitions[usize::from(place.partition)].replicas[0];
                assert_eq!(replica.node, place.from, "case {case}: {places:?}");
                replica.node = place.to;
                assert!(is_done(&status, place));
            }
            let counts = nodes.iter().map(|&(id, ..)| {
                let mut partitions = status.partitions.iter();
                partitions.by_ref().filter(|found| found.replicas[0].node == id).count()
            });
            let (least, most) = (counts.clone().min(), counts.max());
            assert!(most <= least.map(|least| least + 1), "case {case}");
            let mut moved: Vec<u16> = places.iter().map(|place| place.partition).collect();
            moved.sort_unstable();
            moved.dedup();
            assert_eq!(moved.len(), places.len(), "case {case}: something moves twice");
        }
    }
}
