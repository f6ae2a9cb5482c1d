//! A cluster to test with, made by hand: three partitions over zones `x` (nodes 1 and 4), `y` (2) and `z`
//! (3).

use super::{ClusterCounters, ClusterStatus, ClusterView, PartitionStatus, ReplicaStatus};
use crate::peers::PeerStats;
use order::{Described, PartitionMap};
use std::collections::BTreeMap;
use std::sync::Arc;
use txn::{NodeId, PartitionId};

/// Its first map. Node 4 is called by an address of IPv6.
pub(crate) fn map() -> PartitionMap {
    let node = |name: &str, zone: &str, number: u16, host: &str| Described {
        name: name.to_owned(),
        zone: zone.to_owned(),
        peer_address: format!("{name}:700{number}"),
        client_address: format!("{host}:{}", 6378 + number),
    };
    let nodes = [
        node("a", "x", 1, "10.0.0.1"),
        node("b", "y", 2, "10.0.0.2"),
        node("c", "z", 3, "cache.example"),
        node("d", "x", 4, "[::1]"),
    ];
    PartitionMap::new("test", &nodes, 3).expect("a map")
}

/// What node 1 sees: it leads partition 0 in term 7, node 2 leads partition 1 in term 5, and who leads
/// partition 2 is not known.
pub(crate) fn view() -> ClusterView {
    let map = map();
    let partitions = map.partition_ids().map(|partition| {
        let entry = map.partition(partition);
        let replica = |node: &NodeId| ReplicaStatus {
            node: node.0,
            role: "follower".to_owned(),
            lag: (partition.0 == 0).then_some(2),
        };
        PartitionStatus {
            id: partition.0,
            slots: entry.slots.clone(),
            leader: [Some(1), Some(2), None][usize::from(partition.0)],
            term: [7, 5, 0][usize::from(partition.0)],
            replicas: entry.replicas.values().map(replica).collect(),
        }
    });
    let status = ClusterStatus {
        cluster: "test".to_owned(),
        map_version: map.version,
        level: map.level,
        epoch: 100,
        me: 1,
        nodes: Vec::new(),
        partitions: partitions.collect(),
    };
    ClusterView {
        first_map: Arc::new(map.clone()),
        map: Arc::new(map),
        me: NodeId(1),
        leaders: BTreeMap::from([(PartitionId(0), NodeId(1)), (PartitionId(1), NodeId(2))]),
        unreachable: Vec::new(),
        epoch: 100,
        epoch_delivered: 103,
        staleness_ms: 12,
        peers: PeerStats::default(),
        counters: ClusterCounters {
            epochs: 90,
            retracted: 1,
            delivery: agree::Delivery::Mimox,
            opt_batches: 70,
            reorders: 2,
            epochs_ahead: 60,
            overlap_ms: 180,
            transactions: 4_000,
            speculated_before_confirmation: 3_000,
            restarts: 5,
            sibling_rounds: 50,
            sibling_frames: 40,
            sibling_notes: 900,
            feeds_lapsed: 6,
            backlog_bytes: 512,
            backlog_full: 3,
            states_compared: 80,
            states_differing: 2,
            states_epoch: 64,
            messages_sent: 700,
            message_bytes_sent: 80_000,
            messages_received: 600,
            message_bytes_received: 70_000,
        },
        status: Arc::new(status),
    }
}
