//! How a node that joins learns who it is: from those who are there.
//!
//! A node with `joins = true` and an empty data directory asks the other nodes of the description, at their
//! client addresses, for the map (ORDO.CLUSTER MAP), until the map names it and gives it something to keep.
//! Until then it is nobody: it has no number, keeps nothing and serves nobody.
//!
//! A node that has run before asks the same way ([`is_gone`]) when nobody agrees with it for a while: it may
//! have been taken out of the cluster while it was down, and then the others refuse it at their peer ports,
//! without a word about why.

use super::config::ClusterConfig;
use super::identity::{Identity, Maps};
use crate::client::Access;
use order::PartitionMap;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use txn::{BootId, NodeId, RequestName};

/// How long a peer may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two rounds of questions.
const PAUSE: Duration = Duration::from_millis(500);
/// Between two lines in the log that say the same of why it waits: twice as long each time, from this
const REMIND_MIN: Duration = Duration::from_secs(30);
/// up to this.
const REMIND_MAX: Duration = Duration::from_secs(600);

/// What a node of the cluster tells.
struct Told {
    /// The first map.
    first: PartitionMap,
    /// The newest that it has.
    map: PartitionMap,
    /// The requests that it does not execute.
    skips: Vec<RequestName>,
}

/// What a map says of a node that wants to join.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// It may start.
    Start(NodeId),
    /// It must wait: why, and what to do.
    Wait(String),
    /// It must not start: why, and what to do.
    Refuse(String),
}

/// Waits until the cluster has something for a node to keep. The error says why it never will.
///
/// Gives the requests, too, that the cluster does not execute.
pub fn learn(
    cluster: &ClusterConfig,
    name: &str,
    access: &Access,
) -> Result<(Identity, Vec<RequestName>), String> {
    let mut told: Option<(Instant, String)> = None;
    let mut remind = REMIND_MIN;
    loop {
        let wait = match newest(cluster, name, access) {
            Err(problems) => {
                let hint = match cluster.founders().next() {
                    None => {
                        ". Every [[node]] of the description joins: for nodes that a new cluster begins \
                         with, leave `joins` out"
                    }
                    Some(_) => "",
                };
                format!("no node of the cluster tells the map: {problems}{hint}")
            }
            Ok(Told { first, map, skips }) => match verdict(&map, name) {
                Verdict::Start(node) => {
                    if let Some(warning) = other_zone(cluster, &map, node) {
                        tracing::warn!("{warning}");
                    }
                    return Ok((Identity { node, first, map }, skips));
                }
                Verdict::Wait(wait) => wait,
                Verdict::Refuse(why) => return Err(why),
            },
        };
        let same = told.as_ref().filter(|(_, what)| *what == wait);
        if same.is_none_or(|(when, _)| when.elapsed() > remind) {
            remind = match same {
                Some(_) => (remind * 2).min(REMIND_MAX),
                None => REMIND_MIN,
            };
            tracing::info!("waiting: {wait}");
            told = Some((Instant::now(), wait));
        }
        std::thread::sleep(PAUSE);
    }
}

/// What to say of a node whose zone is another one in its description than in the map, which counts.
fn other_zone(cluster: &ClusterConfig, map: &PartitionMap, node: NodeId) -> Option<String> {
    let entry = map.nodes.get(&node)?;
    let zone = map.zones.get(&entry.zone)?;
    let described = cluster.node(&entry.name)?;
    (described.zone != *zone).then(|| {
        format!(
            "cluster.toml says that '{}' is in zone '{}', but it was added to zone '{zone}', and is there",
            entry.name, described.zone
        )
    })
}

fn verdict(map: &PartitionMap, name: &str) -> Verdict {
    let Some((&node, entry)) = map.nodes.iter().find(|(_, entry)| entry.name == name) else {
        return Verdict::Wait(format!(
            "the cluster does not know '{name}' yet: tell it with 'ordo admin add-node {name} ...'"
        ));
    };
    if entry.boot != BootId(0) {
        return Verdict::Refuse(format!(
            "the cluster knows '{name}' ({node}), which has run before, and this data directory is new: if \
             the old one exists, start with it (--dir). If its disk was lost, then so was what it had \
             promised to the others, and it must not come back as itself: add a node of another name to \
             its zone ('ordo admin add-node'), start that one, and then take this one out ('ordo admin \
             remove-node {name}')"
        ));
    }
    if entry.leaving {
        return Verdict::Refuse(format!(
            "'{name}' ({node}) is about to leave the cluster: add a node of another name instead"
        ));
    }
    if map.kept_by(node).next().is_none() {
        return Verdict::Wait(format!(
            "'{name}' is {node} of the cluster, and keeps nothing yet: 'ordo admin rebalance' gives it its \
             share of what the nodes of its zone keep, and 'ordo admin remove-node' of one of them all of \
             that one's"
        ));
    }
    Verdict::Start(node)
}

/// Asks the others whether the cluster still has a node that starts again with a map of its own. If it has
/// not: what to tell its operator. None if it has, or if nobody can tell.
pub fn is_gone(cluster: &ClusterConfig, map: &PartitionMap, me: NodeId, access: &Access) -> Option<String> {
    let described = cluster.nodes.iter().map(|node| &node.client_address);
    let known = map.nodes.values().map(|entry| &entry.client_address);
    let own = map.nodes.get(&me).map(|entry| &entry.client_address);
    let others: BTreeSet<&String> = described.chain(known).filter(|address| Some(*address) != own).collect();
    let answers = others.into_iter().map(|address| ask(address, None, access));
    answers.flatten().find_map(|told| has_left(map, &told.map, me))
}

/// What to tell the operator of a node that a newer map has no more.
fn has_left(map: &PartitionMap, newer: &PartitionMap, me: NodeId) -> Option<String> {
    if newer.cluster != map.cluster || newer.version <= map.version || newer.nodes.contains_key(&me) {
        return None;
    }
    let entry = map.nodes.get(&me);
    let name = entry.map_or("this node", |entry| entry.name.as_str());
    Some(format!(
        "'{name}' ({me}) has left the cluster: the others have a newer map, without it. Its directory is \
         not needed any more, and must not be started again; its [[node]] may be deleted from cluster.toml"
    ))
}

/// The first map, and the newest that anybody has. The error says who answered what.
fn newest(cluster: &ClusterConfig, name: &str, access: &Access) -> Result<Told, String> {
    let mut found: Option<Told> = None;
    let mut problems = Vec::new();
    for peer in cluster.nodes.iter().filter(|node| node.name != name) {
        match ask(&peer.client_address, Some(name), access) {
            Ok(told) => {
                let is_newer = |known: &Told| told.map.version > known.map.version;
                if found.as_ref().is_none_or(is_newer) {
                    found = Some(told);
                }
            }
            Err(problem) => problems.push(format!("{}: {problem}", peer.name)),
        }
    }
    found.ok_or_else(|| problems.join("; "))
}

/// Asks a node for the first map and its newest. A `name` tells it who waits for that; a version that does
/// not expect one is asked without.
fn ask(address: &str, name: Option<&str>, access: &Access) -> Result<Told, String> {
    let mut client = (access.open(address, PATIENCE)).map_err(|error| error.to_string())?;
    let mut call = |words: &[&str]| -> Result<String, String> {
        let answer = client.call(words).map_err(|error| error.to_string())?;
        answer.text(words[0]).map_err(|error| error.to_string())
    };
    if let Some(password) = &access.password {
        call(&["AUTH", password])?;
    }
    let plain = ["ORDO.CLUSTER", "MAP"];
    let text = match name.map(|name| call(&[plain[0], plain[1], name])) {
        Some(Ok(text)) => text,
        _ => call(&plain)?,
    };
    serde_json::from_str::<Maps>(&text)
        .ok()
        .and_then(|maps| {
            let (first, map) = maps.read()?;
            let skips = maps.skips()?;
            Some(Told { first, map, skips })
        })
        .ok_or_else(|| "its map is of another version of Ordo: start that version here".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::map;
    use order::{Changed, Control};
    use txn::ZoneId;

    #[test]
    fn a_node_has_left_if_a_newer_map_of_its_cluster_lacks_it() {
        let own = map();
        let mut newer = map();
        newer.nodes.remove(&NodeId(2));
        assert_eq!(has_left(&own, &newer, NodeId(2)), None, "not newer");
        newer.version += 1;
        let text = has_left(&own, &newer, NodeId(2)).expect("it has left");
        assert!(text.contains("'b' (node 2) has left the cluster"), "{text}");
        assert_eq!(has_left(&own, &newer, NodeId(1)), None, "it has not");
        newer.cluster += 1;
        assert_eq!(has_left(&own, &newer, NodeId(2)), None, "another cluster");
    }

    #[test]
    fn a_node_waits_until_the_map_gives_it_something_to_keep() {
        let mut map = map();
        let waits = |map: &PartitionMap, hint: &str| match verdict(map, "e") {
            Verdict::Wait(text) => assert!(text.contains(hint), "{text}"),
            other => panic!("{other:?}"),
        };
        waits(&map, "add-node e");
        let join = Control::AddNode {
            version: map.version,
            name: "e".to_owned(),
            zone: ZoneId(1),
            peer_address: "e:7001".to_owned(),
            client_address: "e:6379".to_owned(),
        };
        assert_eq!(map.apply(&join, txn::Epoch(1)), Changed::Map);
        waits(&map, "remove-node");
        let drain = Control::Drain { version: map.version, node: NodeId(2) };
        assert_eq!(map.apply(&drain, txn::Epoch(1)), Changed::Map);
        assert_eq!(verdict(&map, "e"), Verdict::Start(NodeId(5)));
        // Once it has run, an empty directory is not its own.
        let start = Control::Boot {
            node: NodeId(5),
            after: BootId(0),
            nonce: 1,
            peer_address: "e:7001".to_owned(),
            client_address: "e:6379".to_owned(),
            level: order::LEVEL_FIRST,
        };
        map.apply(&start, txn::Epoch(1));
        let Verdict::Refuse(text) = verdict(&map, "e") else {
            panic!("it starts");
        };
        assert!(text.contains("disk was lost") && text.contains("remove-node e"), "{text}");
        assert!(matches!(verdict(&map, "b"), Verdict::Refuse(_)));
    }
}
