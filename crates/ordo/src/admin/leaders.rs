//! What only the leaders of the partitions know and can do: how far behind their followers are, and to hand
//! over.

use super::Node;
use anyhow::{Result, anyhow};
use serde_json::Value;
use server::client::Access;
use server::cluster::ClusterStatus;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long a leader may take that is only asked how its followers are.
const PATIENCE: Duration = Duration::from_secs(2);

/// A node's status, with what it does not know itself: of partitions that other nodes lead, the terms and how
/// far behind their followers are. What a leader that does not answer knows stays out.
pub fn completed(json: &str, status: &ClusterStatus, access: &Access) -> Result<Value> {
    let elsewhere: BTreeSet<u16> = status
        .partitions
        .iter()
        .filter_map(|partition| partition.leader)
        .filter(|&leader| leader != status.me)
        .collect();
    let mut others = BTreeMap::new();
    for leader in elsewhere {
        let found = status.nodes.iter().find(|node| node.id == leader);
        let Some(address) = found.filter(|node| node.reachable) else {
            continue;
        };
        if let Ok(other) = Node::ask_within(&address.client_address, access, PATIENCE) {
            others.insert(leader, other.status);
        }
    }
    // As values: a newer node may say more than this build knows, and tools get that, too.
    let mut whole: Value = serde_json::from_str(json)?;
    let partitions = whole.get_mut("partitions").and_then(Value::as_array_mut);
    for (entry, own) in partitions.into_iter().flatten().zip(&status.partitions) {
        let Some(leader) = own.leader else { continue };
        let known = others.get(&leader).and_then(|other| {
            let mut partitions = other.partitions.iter();
            partitions.find(|found| found.id == own.id && found.leader == Some(leader))
        });
        let Some(known) = known else { continue };
        let Ok(known) = serde_json::to_value(known) else {
            continue;
        };
        // Roles, too: who follows the log from afar knows no learners.
        for key in ["term", "replicas"] {
            if let (Some(place), Some(value)) = (entry.get_mut(key), known.get(key)) {
                *place = value.clone();
            }
        }
    }
    Ok(whole)
}

/// From a node to the one that leads a partition, as far as those who are asked on the way know. Without a
/// leader, the last of them says so itself.
pub fn leader_of(mut node: Node, partition: u16, access: &Access) -> Result<Node> {
    // A leader may change while it is looked for; one that changes more often is none.
    for _ in 0..3 {
        let status = &node.status;
        let found = status.partitions.iter().find(|found| found.id == partition);
        let leader = found.and_then(|found| found.leader);
        let leader = leader.filter(|&leader| leader != status.me);
        let mut nodes = status.nodes.iter();
        let Some(entry) = nodes.find(|entry| Some(entry.id) == leader) else {
            break;
        };
        let address = &entry.client_address;
        node = Node::ask(address, access).map_err(|problem| {
            anyhow!(
                "{} leads partition {partition}, and only it can hand it over, but at {address}: {problem}",
                entry.name
            )
        })?;
    }
    Ok(node)
}
