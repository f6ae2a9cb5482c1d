//! Tables of a cluster's status.

use comfy_table::{CellAlignment, Table, presets};
use server::cluster::{ClusterStatus, NodeStatus, PartitionStatus, ReplicaStatus};

/// The name of a node, or its number if it has left.
pub fn name(status: &ClusterStatus, id: u16) -> String {
    let node = status.nodes.iter().find(|node| node.id == id);
    node.map_or_else(|| format!("node {id}"), |node| node.name.clone())
}

/// The whole status, for people.
pub fn status(status: &ClusterStatus) -> String {
    let mut text = format!(
        "Cluster {}, as {} sees it: map version {}, behaviour {}, executed up to epoch {}\n\n{}\n\n{}\n",
        status.cluster,
        name(status, status.me),
        status.map_version,
        status.level,
        status.epoch,
        nodes(status),
        partitions(status),
    );
    for problem in problems(status) {
        text.push_str(&format!("\n{problem}"));
    }
    if !text.ends_with('\n') || text.ends_with("\n\n") {
        text.push('\n');
    }
    text
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>, right: &[usize]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header(header);
    for row in rows {
        table.add_row(row);
    }
    for &index in right {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn nodes(status: &ClusterStatus) -> Table {
    let row = |node: &NodeStatus| {
        let partitions = status.partitions.iter();
        let leads = partitions.clone().filter(|found| found.leader == Some(node.id));
        let keeps = partitions.filter(|found| {
            let mut replicas = found.replicas.iter();
            replicas.any(|replica| replica.node == node.id)
        });
        vec![
            node.id.to_string(),
            node.name.clone(),
            node.zone.clone(),
            node.client_address.clone(),
            node.peer_address.clone(),
            match node.boot {
                0 if node.waiting => "waits".to_owned(),
                0 => "never started".to_owned(),
                boot => boot.to_string(),
            },
            node.level.to_string(),
            match node.reachable || node.waiting {
                true if node.out.is_some() => "OUT",
                true => "yes",
                false => "NO",
            }
            .to_owned(),
            leads.count().to_string(),
            keeps.count().to_string(),
        ]
    };
    let header =
        ["id", "node", "zone", "clients", "peers", "boot", "behaviour", "reachable", "leads", "replicas"];
    table(&header, status.nodes.iter().map(row), &[0, 5, 6, 8, 9])
}

fn partitions(status: &ClusterStatus) -> Table {
    let replica = |replica: &ReplicaStatus| {
        let lag = match replica.lag {
            Some(0) => ", up to date".to_owned(),
            Some(entries) => format!(", {entries} behind"),
            None => String::new(),
        };
        format!("{} ({}{lag})", name(status, replica.node), replica.role)
    };
    let row = |found: &PartitionStatus| {
        let slots: Vec<String> = found.slots.iter().map(|(first, last)| format!("{first}-{last}")).collect();
        let replicas: Vec<String> = found.replicas.iter().map(replica).collect();
        vec![
            found.id.to_string(),
            slots.join(" "),
            found.leader.map_or_else(|| "NOT KNOWN".to_owned(), |leader| name(status, leader)),
            match found.term {
                0 => "-".to_owned(),
                term => term.to_string(),
            },
            replicas.join("\n"),
        ]
    };
    let header = ["partition", "slots", "leader", "term", "replicas"];
    table(&header, status.partitions.iter().map(row), &[0, 3])
}

/// What a node that runs and has not joined yet waits for.
fn waits(status: &ClusterStatus, node: &NodeStatus) -> String {
    let name = &node.name;
    let mut replicas = status.partitions.iter().flat_map(|found| &found.replicas);
    if replicas.any(|replica| replica.node == node.id) {
        return format!("Node {name} runs, and is about to join: it has something to keep.");
    }
    let others = status
        .nodes
        .iter()
        .filter(|other| other.zone == node.zone && other.id != node.id && other.boot != 0 && !other.leaving);
    let others: Vec<&str> = others.map(|other| other.name.as_str()).collect();
    format!(
        "Node {name} runs, and waits for something to keep: it takes over from another node of zone {} \
         ({}) once you take that one out, with `ordo admin remove-node`.",
        node.zone,
        others.join(", ")
    )
}

/// What an operator must look at.
fn problems(status: &ClusterStatus) -> Vec<String> {
    let mut problems = Vec::new();
    for node in status.nodes.iter().filter(|node| node.leaving) {
        problems.push(format!(
            "Node {} is leaving: it is gone once nobody has it as a replica any more and its process has \
             ended.",
            node.name
        ));
    }
    for node in &status.nodes {
        if let Some(cause) = &node.out {
            problems.push(format!(
                "Node {} takes no part in the cluster: {cause}. Its own log tells whether it comes \
                 back by itself, must be restarted (look at its disk first), or must be replaced.",
                node.name
            ));
        }
    }
    for node in status.nodes.iter().filter(|node| !node.reachable && !node.leaving) {
        problems.push(match node.boot {
            0 if node.waiting => waits(status, node),
            0 => format!(
                "Node {} has never started: start it with `ordo serve --cluster cluster.toml --node {}`.",
                node.name, node.name
            ),
            _ => format!(
                "Node {} is not heard of: start it if it does not run, read its log if it does, or replace \
                 it (docs/cluster.md) if it is gone for good.",
                node.name
            ),
        });
    }
    for node in status.nodes.iter().filter(|node| node.clock_ahead_ms != 0) {
        let word = if node.clock_ahead_ms < 0 { "behind" } else { "ahead of" };
        problems.push(format!(
            "The clock of node {} is {:.1} s {word} the cluster's time of day: set it right. No time to \
             live depends on it.",
            node.name,
            node.clock_ahead_ms.unsigned_abs() as f64 / 1_000.0
        ));
    }
    let staying = status.nodes.iter().filter(|node| !node.leaving);
    let newest = staying.clone().map(|node| node.level).max().unwrap_or(0);
    if newest > status.level {
        let older = staying.filter(|node| node.level < newest);
        let older: Vec<&str> = older.map(|node| node.name.as_str()).collect();
        if !older.is_empty() {
            problems.push(format!(
                "Behaviour {newest} comes into force once all nodes know it: {} must be restarted with the \
                 newer version.",
                older.join(", ")
            ));
        }
    }
    let headless: Vec<String> = status
        .partitions
        .iter()
        .filter(|found| found.leader.is_none())
        .map(|found| found.id.to_string())
        .collect();
    if !headless.is_empty() {
        problems.push(format!(
            "Nobody is known to lead partition {}: writes wait. Another leader is there within a second or \
             so; if this stays, no majority of the replicas can talk to each other.",
            headless.join(", ")
        ));
    }
    problems
}
