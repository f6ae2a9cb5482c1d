//! The replies of CLUSTER, in the forms of Redis 7.0.

use super::topology::{Topology, split_address};
use crate::cluster::ClusterView;
use std::fmt::Write;
use std::net::IpAddr;
use txn::key::SLOTS;
use txn::{Blob, NodeId, PartitionId, Reply};

fn number(value: impl Into<u64>) -> Reply {
    Reply::Integer(value.into().cast_signed())
}

fn text(text: String) -> Reply {
    Reply::Verbatim("txt", Blob::from(text))
}

/// CLUSTER SLOTS: `[first, last, [host, port, name, metadata], ...]` for each range, the primary first.
/// Replicas that can't serve are left out, as Redis does.
pub(super) fn slots(view: &ClusterView) -> Reply {
    let topology = Topology::of(view);
    let endpoint = |node: NodeId| {
        let entry = view.map.nodes.get(&node)?;
        let (host, port) = split_address(&entry.client_address);
        Some(Reply::Array(vec![
            Reply::bulk(host),
            number(port),
            Reply::bulk(view.map.node_name(node)),
            // Redis tells other names of the node here. An array in RESP2, a map in RESP3.
            Reply::Map(Vec::new()),
        ]))
    };
    let mut ranges: Vec<((u16, u16), PartitionId)> = Vec::new();
    for partition in view.map.partition_ids() {
        let slots = &view.map.partition(partition).slots;
        ranges.extend(slots.iter().map(|&range| (range, partition)));
    }
    ranges.sort_unstable();
    let rows = ranges.into_iter().filter_map(|((first, last), partition)| {
        let primary = endpoint(topology.primary(partition)?)?;
        let replicas = topology.replicas(partition).filter(|&node| topology.serves(partition, node));
        let mut row = vec![number(first), number(last), primary];
        row.extend(replicas.filter_map(endpoint));
        Some(Reply::Array(row))
    });
    Reply::Array(rows.collect())
}

/// CLUSTER SHARDS: a map of `slots` and `nodes` for each partition.
pub(super) fn shards(view: &ClusterView) -> Reply {
    let topology = Topology::of(view);
    let shard = |partition: PartitionId| {
        let slots = &view.map.partition(partition).slots;
        let bounds = slots.iter().flat_map(|&(first, last)| [first, last]);
        let primary = topology.primary(partition);
        let nodes = primary.into_iter().chain(topology.replicas(partition));
        Reply::Map(vec![
            (Reply::bulk("slots"), Reply::Array(bounds.map(number).collect())),
            (
                Reply::bulk("nodes"),
                Reply::Array(nodes.filter_map(|node| shard_node(&topology, partition, node)).collect()),
            ),
        ])
    };
    Reply::Array(topology.partitions().into_iter().map(shard).collect())
}

fn shard_node(topology: &Topology<'_>, partition: PartitionId, node: NodeId) -> Option<Reply> {
    let view = topology.view;
    let (host, port) = split_address(&view.map.nodes.get(&node)?.client_address);
    let role = if topology.primary(partition) == Some(node) { "master" } else { "replica" };
    let health = if !topology.reachable(node) {
        "fail"
    } else if topology.serves(partition, node) {
        "online"
    } else {
        "loading"
    };
    // Clients compare it to find the replica that has most: epochs that this node has executed, less what the
    // other lacks.
    let lag = topology.replica_status(partition, node).and_then(|replica| replica.lag);
    let offset = view.epoch.saturating_sub(lag.unwrap_or(0));
    let mut pairs = vec![
        ("id", Reply::bulk(view.map.node_name(node))),
        ("port", number(port)),
        ("ip", Reply::bulk(host)),
        ("endpoint", Reply::bulk(host)),
    ];
    if host.parse::<IpAddr>().is_err() {
        pairs.push(("hostname", Reply::bulk(host)));
    }
    pairs.extend([
        ("role", Reply::bulk(role)),
        ("replication-offset", number(offset)),
        ("health", Reply::bulk(health)),
    ]);
    let named = |(name, value)| (Reply::bulk(name), value);
    Some(Reply::Map(pairs.into_iter().map(named).collect()))
}

/// A node's line in CLUSTER NODES, without its end: `name host:port@peer-port flags primary ping pong epoch
/// link slots`. The times of pings are 0: nodes of Ordo send none of Redis's kind.
fn line(topology: &Topology<'_>, node: NodeId) -> Option<String> {
    let view = topology.view;
    let entry = view.map.nodes.get(&node)?;
    let (host, port) = split_address(&entry.client_address);
    let (_, peer_port) = split_address(&entry.peer_address);
    let primary = topology.primary_of(node);
    let mut flags = Vec::new();
    if node == view.me {
        flags.push("myself");
    }
    flags.push(if primary.is_some() { "slave" } else { "master" });
    let reachable = topology.reachable(node);
    // Who should lead what nobody is known to lead is shown as its primary, but not as one that works.
    let leads_in_vain = topology.led_by(node).next().is_some()
        && (topology.led_by(node)).all(|partition| !view.leaders.contains_key(&partition));
    if !reachable || leads_in_vain {
        flags.push("fail?");
    }
    let mut line = format!(
        "{} {host}:{port}@{peer_port} {} {} 0 0 {} {}",
        view.map.node_name(node),
        flags.join(","),
        primary.map_or("-".to_owned(), |primary| view.map.node_name(primary)),
        topology.config_epoch(node),
        if reachable { "connected" } else { "disconnected" },
    );
    for (first, last) in topology.slots_of(node) {
        let _ = if first == last { write!(line, " {first}") } else { write!(line, " {first}-{last}") };
    }
    Some(line)
}

/// CLUSTER NODES.
pub(super) fn nodes(view: &ClusterView) -> Reply {
    let topology = Topology::of(view);
    let lines = topology.nodes().filter_map(|(node, _)| line(&topology, node));
    text(lines.map(|line| line + "\n").collect())
}

/// CLUSTER REPLICAS: the lines of a node's replicas.
pub(super) fn replicas(view: &ClusterView, name: &[u8]) -> Reply {
    let topology = Topology::of(view);
    let Some(primary) = topology.node_named(name) else {
        return unknown_node(name);
    };
    if topology.primary_of(primary).is_some() {
        return Reply::error("ERR The specified node is not a master");
    }
    let lines = topology
        .nodes()
        .filter(|&(node, _)| topology.primary_of(node) == Some(primary))
        .filter_map(|(node, _)| line(&topology, node));
    Reply::Array(lines.map(Reply::bulk).collect())
}

/// CLUSTER COUNT-FAILURE-REPORTS: nobody but this node reports to it.
pub(super) fn failure_reports(view: &ClusterView, name: &[u8]) -> Reply {
    let topology = Topology::of(view);
    match topology.node_named(name) {
        Some(node) => number(u64::from(!topology.reachable(node))),
        None => unknown_node(name),
    }
}

fn unknown_node(name: &[u8]) -> Reply {
    Reply::error_owned(format!("ERR Unknown node {}", String::from_utf8_lossy(name)))
}

/// CLUSTER INFO. A slot fails while nobody is known to lead it, and perhaps fails (`pfail`) while this node
/// does not hear from its leader. Messages are those between nodes.
pub(super) fn info(view: &ClusterView) -> Reply {
    let topology = Topology::of(view);
    let (mut ok, mut doubtful, mut failed) = (0, 0, 0);
    for partition in view.map.partition_ids() {
        let slots = &view.map.partition(partition).slots;
        let count: u32 = slots.iter().map(|&(first, last)| u32::from(last - first) + 1).sum();
        match view.leaders.get(&partition) {
            Some(&leader) if topology.reachable(leader) => ok += count,
            Some(_) => doubtful += count,
            None => failed += count,
        }
    }
    let primaries = topology.nodes().filter(|&(node, _)| topology.led_by(node).next().is_some());
    let fields = [
        ("cluster_slots_assigned", u64::from(SLOTS)),
        ("cluster_slots_ok", u64::from(ok)),
        ("cluster_slots_pfail", u64::from(doubtful)),
        ("cluster_slots_fail", u64::from(failed)),
        ("cluster_known_nodes", view.map.nodes.len() as u64),
        ("cluster_size", primaries.count() as u64),
        ("cluster_current_epoch", topology.current_epoch()),
        ("cluster_my_epoch", topology.config_epoch(view.me)),
        ("cluster_stats_messages_sent", view.counters.messages_sent),
        ("cluster_stats_messages_received", view.counters.messages_received),
        ("total_cluster_links_buffer_limit_exceeded", 0),
    ];
    // A node that takes no part does not hear itself.
    let serves = failed == 0 && topology.reachable(view.me);
    let state = if serves { "ok" } else { "fail" };
    let mut out = format!("cluster_state:{state}\r\n");
    for (name, value) in fields {
        let _ = write!(out, "{name}:{value}\r\n");
    }
    text(out)
}

/// CLUSTER MYID.
pub(super) fn my_id(view: &ClusterView) -> Reply {
    Reply::bulk(view.map.node_name(view.me))
}

/// CLUSTER MYSHARDID.
pub(super) fn my_shard_id(view: &ClusterView) -> Reply {
    Reply::bulk(Topology::of(view).shard_name(view.me))
}
