//! The metrics of a node of a cluster. A server that stands alone lists them without values, but
//! `ordo_cluster_enabled`.

use super::{Writer, seconds};
use crate::cluster::{ClusterCounters, ClusterView};
use crate::peers::PeerStat;
use prometheus_client::registry::Unit;
use std::fmt;
use txn::NodeId;

/// A metric without labels, as [`Writer::gauges`] takes it.
fn single<V>(value: Option<V>) -> impl Iterator<Item = ([(&'static str, &'static str); 0], V)> {
    value.into_iter().map(|value| ([], value))
}

pub fn encode(view: Option<&ClusterView>, out: &mut Writer<'_>) -> fmt::Result {
    out.gauge(
        "ordo_cluster_enabled",
        "1 if this is a node of a cluster, 0 if it stands alone.",
        u32::from(view.is_some()),
    )?;
    for (name, help, value) in GAUGES {
        out.gauges(name, None, help, single(view.map(value)))?;
    }
    out.gauges(
        "ordo_cluster_staleness",
        Some(Unit::Seconds),
        "How long ago this node last knew to have executed everything that was agreed.",
        single(view.map(|view| seconds(view.staleness_ms))),
    )?;
    let counters = view.map(|view| &view.counters);
    for (name, help, value) in COUNTERS {
        out.counters(name, None, help, single(counters.map(value)))?;
    }
    out.counters(
        "ordo_cluster_overlap",
        Some(Unit::Seconds),
        "For how long epochs were executed before they were agreed on, in sum.",
        single(counters.map(|counters| seconds(counters.overlap_ms))),
    )?;
    out.gauges(
        "ordo_cluster_backlog",
        Some(Unit::Bytes),
        "Batches that wait to be given to the engines.",
        single(counters.map(|counters| counters.backlog_bytes)),
    )?;
    replicas(view, out)?;
    peers(view, out)
}

type Gauge = (&'static str, &'static str, fn(&ClusterView) -> u64);

const GAUGES: [Gauge; 13] = [
    ("ordo_cluster_nodes", "Nodes of the cluster.", |view| view.map.nodes.len() as u64),
    ("ordo_cluster_nodes_unreachable", "Nodes from which nothing was heard for a while.", |view| {
        view.unreachable.len() as u64
    }),
    ("ordo_cluster_nodes_out", "Nodes that take no part in the cluster, as they have said.", |view| {
        view.status.nodes.iter().filter(|node| node.out.is_some()).count() as u64
    }),
    ("ordo_cluster_out", "1 if this node takes no part in the cluster, else 0.", |view| {
        let own = view.status.nodes.iter().find(|node| node.id == view.me.0);
        u64::from(own.is_some_and(|own| own.out.is_some()))
    }),
    ("ordo_cluster_partitions", "Partitions of the cluster.", |view| view.map.partitions.len() as u64),
    ("ordo_cluster_partitions_kept", "Partitions of which this node keeps a replica.", |view| {
        view.map.kept_by(view.me).count() as u64
    }),
    ("ordo_cluster_partitions_led", "Partitions that this node leads.", |view| {
        view.leaders.values().filter(|&&leader| leader == view.me).count() as u64
    }),
    ("ordo_cluster_partitions_without_leader", "Partitions of which this node knows no leader.", |view| {
        view.map.partition_ids().filter(|partition| !view.leaders.contains_key(partition)).count() as u64
    }),
    ("ordo_cluster_map_version", "The version of the partition map.", |view| view.map.version.into()),
    ("ordo_cluster_level", "The behaviour that is in force.", |view| view.map.level.into()),
    ("ordo_cluster_epoch", "The last epoch that this node has confirmed.", |view| view.epoch),
    ("ordo_cluster_epoch_delivered", "The last epoch that this node's engines were given.", |view| {
        view.epoch_delivered
    }),
    ("ordo_cluster_states_epoch", "The newest epoch of which state digests were compared.", |view| {
        view.counters.states_epoch
    }),
];

type Counter = (&'static str, &'static str, fn(&ClusterCounters) -> u64);

const COUNTERS: [Counter; 12] = [
    ("ordo_cluster_epochs_retracted", "Times that epochs were taken back.", |counters| counters.retracted),
    ("ordo_cluster_batches_ahead", "Batches that came ahead of their group's log.", |counters| {
        counters.opt_batches
    }),
    ("ordo_cluster_reorders", "How often batches ahead of a log became void.", |counters| counters.reorders),
    ("ordo_cluster_epochs_ahead", "Epochs that were delivered before they were agreed on.", |counters| {
        counters.epochs_ahead
    }),
    ("ordo_cluster_transactions", "Transactions that final-committed here.", |counters| {
        counters.transactions
    }),
    (
        "ordo_cluster_sibling_rounds",
        "Rounds in which a partition told siblings at another node.",
        |counters| counters.sibling_rounds,
    ),
    ("ordo_cluster_sibling_messages", "Messages to siblings at other nodes.", |counters| {
        counters.sibling_frames
    }),
    ("ordo_cluster_feeds_lapsed", "How often another node was told no more of a group.", |counters| {
        counters.feeds_lapsed
    }),
    ("ordo_cluster_backlog_full", "How often no more was taken from others for a while.", |counters| {
        counters.backlog_full
    }),
    ("ordo_cluster_states_compared", "State digests of other replicas that were compared.", |counters| {
        counters.states_compared
    }),
    ("ordo_cluster_states_differing", "State digests of other replicas that differed.", |counters| {
        counters.states_differing
    }),
    ("ordo_cluster_messages_sent", "Messages that were sent to other nodes.", |counters| {
        counters.messages_sent
    }),
];

fn replicas(view: Option<&ClusterView>, out: &mut Writer<'_>) -> fmt::Result {
    let partitions = || view.into_iter().flat_map(|view| &view.status.partitions);
    out.gauges(
        "ordo_partition_term",
        None,
        "The term of a partition's leader. 0: this node does not know it.",
        partitions().map(|partition| ([("partition", partition.id)], partition.term)),
    )?;
    let lags = view.into_iter().flat_map(|view| {
        view.status.partitions.iter().flat_map(move |partition| {
            let lags = partition.replicas.iter().filter_map(|replica| Some((replica.node, replica.lag?)));
            lags.map(move |(node, lag)| {
                let labels = (
                    [("partition", partition.id.to_string())],
                    [("node", name_of(view, NodeId(node)).to_owned())],
                );
                (labels, lag)
            })
        })
    });
    out.gauges(
        "ordo_replica_lag_entries",
        None,
        "Entries of a group's log that a replica does not have, as its leader, this node, knows: nothing \
         while the replica has not answered this leader.",
        lags,
    )
}

/// A metric of the link to another node.
type OfPeer = (&'static str, &'static str, fn(&PeerStat) -> u64);

const PEER_COUNTERS: [OfPeer; 4] = [
    ("ordo_peer_sent", "What was sent to the other node.", |peer| peer.sent_bytes),
    ("ordo_peer_received", "What came from the other node.", |peer| peer.received_bytes),
    ("ordo_peer_dropped", "What was not sent, because the link was down or broke.", |peer| {
        peer.dropped_bytes
    }),
    ("ordo_peer_links", "How often the link to the other node came up.", |peer| peer.links),
];

fn peers(view: Option<&ClusterView>, out: &mut Writer<'_>) -> fmt::Result {
    let all = || {
        view.into_iter().flat_map(|view| {
            view.peers.peers.iter().map(move |(&node, peer)| ([("node", name_of(view, node))], peer))
        })
    };
    out.gauges(
        "ordo_peer_up",
        None,
        "1 if the links to the other node and from it are up, else 0.",
        all().map(|(node, peer)| (node, u32::from(peer.protocol.is_some() && peer.accepted))),
    )?;
    out.gauges(
        "ordo_peer_queued",
        Some(Unit::Bytes),
        "What waits for the other node to take it.",
        all().map(|(node, peer)| (node, peer.queued_bytes)),
    )?;
    for (name, help, value) in PEER_COUNTERS {
        let unit = (!name.ends_with("links")).then_some(Unit::Bytes);
        out.counters(name, unit, help, all().map(|(node, peer)| (node, value(peer))))?;
    }
    out.counters(
        "ordo_peer_connections_refused",
        None,
        "Connections to the port for other nodes that were refused.",
        single(view.map(|view| view.peers.refused)),
    )?;
    let clocks = view.into_iter().flat_map(|view| &view.status.nodes);
    out.gauges(
        "ordo_node_clock_ahead",
        Some(Unit::Seconds),
        "How far a node's clock is ahead of the time of day that this node goes by, if that is more than \
         clock_ahead_ms_max, else 0.",
        clocks.map(|node| ([("node", node.name.as_str())], node.clock_ahead_ms as f64 / 1000.0)),
    )
}

/// A node's name, or nothing where the map does not know the node.
fn name_of(view: &ClusterView, node: NodeId) -> &str {
    view.map.nodes.get(&node).map_or("", |entry| entry.name.as_str())
}
