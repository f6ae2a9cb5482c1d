//! What the log says of who leads, and of who takes no part.

use crate::cluster::called;
use node::cluster::Condition;
use order::PartitionMap;
use std::collections::{BTreeMap, BTreeSet};
use txn::{NodeId, PartitionId};

/// Between two lines, at least: while leaders change all the time, each line tells what has come of it.
const PAUSE_MS: u64 = 1_000;
/// A partition that had a leader is lost when it has none for so long: elections take less.
const LOST_MS: u64 = 2_000;
/// Partitions that a line names, at most.
const NAMED_MAX: usize = 16;

/// Which leaders the log was told of.
#[derive(Debug, Default)]
pub(super) struct LeadersTold {
    leaders: BTreeMap<PartitionId, NodeId>,
    at_ms: Option<u64>,
    /// Something may have changed since.
    changed: bool,
    /// Partitions without a leader that had one, since when, and whether the log was told.
    lost: BTreeMap<PartitionId, (u64, bool)>,
}

impl LeadersTold {
    /// What the log is to be told now: which partitions have another leader than the one that it was told of
    /// last. `look` says who leads a partition, and in which term; it is called only if something changed,
    /// and not too often.
    pub fn news(
        &mut self,
        map: &PartitionMap,
        changed: bool,
        now_ms: u64,
        look: impl Fn(PartitionId) -> Option<(NodeId, u64)>,
    ) -> Option<String> {
        self.changed |= changed;
        let is_due = self.at_ms.is_none_or(|at_ms| now_ms >= at_ms + PAUSE_MS);
        if !self.changed || !is_due {
            return None;
        }
        self.changed = false;
        let mut news = Vec::new();
        for partition in map.partition_ids() {
            // While nobody is known to lead, there is nothing to be told but who led last.
            let Some((leader, term)) = look(partition) else {
                continue;
            };
            let before = self.leaders.insert(partition, leader);
            if before == Some(leader) {
                continue;
            }
            let mut text = format!("{} leads {partition}", called(map, leader));
            if term > 0 {
                text += &format!(" in term {term}");
            }
            if let Some(before) = before {
                text += &format!(", as {} did before", called(map, before));
            }
            news.push(text);
        }
        if news.is_empty() {
            return None;
        }
        self.at_ms = Some(now_ms);
        let more = news.len().saturating_sub(NAMED_MAX);
        news.truncate(NAMED_MAX);
        let mut text = news.join("; ");
        if more > 0 {
            text += &format!("; and {more} more partitions have other leaders");
        }
        Some(text)
    }
}

impl LeadersTold {
    /// Tells the log which partitions have lost their majority, and when they have it again. `unheard` says
    /// of which nodes nothing is heard, or that they take no part.
    pub fn look_for_lost(
        &mut self,
        map: &PartitionMap,
        now_ms: u64,
        look: impl Fn(PartitionId) -> Option<(NodeId, u64)>,
        unheard: impl Fn(NodeId) -> bool,
    ) {
        let (lost, back) = self.lost_and_back(map, now_ms, look);
        if !lost.is_empty() {
            tracing::error!("{}", lost_text(map, &lost, unheard));
        }
        for (partition, lost_ms) in back {
            tracing::info!("{partition} has a leader again, after {lost_ms} ms");
        }
    }

    /// Which partitions are lost now, and which are back, after how long.
    fn lost_and_back(
        &mut self,
        map: &PartitionMap,
        now_ms: u64,
        look: impl Fn(PartitionId) -> Option<(NodeId, u64)>,
    ) -> (Vec<PartitionId>, Vec<(PartitionId, u64)>) {
        let (mut lost, mut back) = (Vec::new(), Vec::new());
        for partition in map.partition_ids() {
            if look(partition).is_some() {
                if let Some((since_ms, true)) = self.lost.remove(&partition) {
                    back.push((partition, now_ms.saturating_sub(since_ms)));
                }
            } else if self.leaders.contains_key(&partition) {
                let (since_ms, told) = self.lost.entry(partition).or_insert((now_ms, false));
                if now_ms >= *since_ms + LOST_MS && !std::mem::replace(told, true) {
                    lost.push(partition);
                }
            }
        }
        (lost, back)
    }
}

fn lost_text(map: &PartitionMap, lost: &[PartitionId], unheard: impl Fn(NodeId) -> bool) -> String {
    let replicas = lost.iter().flat_map(|&partition| map.partition(partition).replicas.values().copied());
    let silent: BTreeSet<NodeId> = replicas.filter(|&node| unheard(node)).collect();
    let silent: Vec<String> = silent.into_iter().map(|node| called(map, node)).collect();
    let mut named: Vec<String> = lost.iter().map(ToString::to_string).collect();
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    let mut text = named.join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text += " has no leader: nothing is written, and nothing is read but by READONLY connections, until a \
             majority of its replicas can talk to each other and write their logs";
    match silent.is_empty() {
        true => text += ". All of them are heard",
        false => text += &format!(". Not heard, or out: {}", silent.join(", ")),
    }
    text
}

/// Which nodes the log was told to be out.
#[derive(Debug, Default)]
pub(super) struct NodesTold(BTreeSet<NodeId>);

impl NodesTold {
    /// Tells the log which other nodes take no part, and when they do again.
    pub fn look(&mut self, map: &PartitionMap, condition: impl Fn(NodeId) -> Condition) {
        for &node in map.nodes.keys() {
            match condition(node) {
                Condition::Out(cause) => {
                    if self.0.insert(node) {
                        tracing::warn!("{} takes no part in the cluster: {cause}", called(map, node));
                    }
                }
                Condition::Well | Condition::Ending => {
                    if self.0.remove(&node) {
                        tracing::info!("{} takes part in the cluster again", called(map, node));
                    }
                }
            }
        }
        self.0.retain(|node| map.nodes.contains_key(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::tests::map;

    #[test]
    fn each_change_of_a_leader_is_told_once_and_not_too_often() {
        let map = map();
        let mut told = LeadersTold::default();
        let first = |partition: PartitionId| (partition.0 < 2).then_some((NodeId(1), 3));
        assert_eq!(told.news(&map, false, 0, first), None, "nothing changed");
        assert_eq!(
            told.news(&map, true, 0, first).as_deref(),
            Some("'a' (node 1) leads partition 0 in term 3; 'a' (node 1) leads partition 1 in term 3")
        );
        let nobody = |_: PartitionId| None;
        assert_eq!(told.news(&map, true, 2_000, nobody), None);
        assert_eq!(told.news(&map, true, 2_000, first), None, "the same again");
        let second = |partition: PartitionId| match partition.0 {
            0 => Some((NodeId(2), 0)),
            _ => first(partition),
        };
        let text = "'b' (node 2) leads partition 0, as 'a' (node 1) did before";
        assert_eq!(told.news(&map, true, 2_000, second).as_deref(), Some(text));
        assert_eq!(told.news(&map, true, 2_999, first), None, "too soon");
        let text = "'a' (node 1) leads partition 0 in term 3, as 'b' (node 2) did before";
        assert_eq!(told.news(&map, false, 3_000, first).as_deref(), Some(text));
    }

    #[test]
    fn a_lost_majority_is_told_once_and_when_it_is_back() {
        let map = map();
        let mut told = LeadersTold::default();
        let all = |_: PartitionId| Some((NodeId(1), 3));
        let first_lost = |partition: PartitionId| (partition.0 > 0).then_some((NodeId(1), 3));
        let nobody = |_: PartitionId| None;
        let nothing = (Vec::new(), Vec::new());
        assert_eq!(told.lost_and_back(&map, 0, nobody), nothing, "it starts");
        told.news(&map, true, 0, all);
        assert_eq!(told.lost_and_back(&map, 1_000, first_lost), nothing);
        assert_eq!(told.lost_and_back(&map, 2_999, first_lost), nothing, "an election");
        let lost = (vec![PartitionId(0)], Vec::new());
        assert_eq!(told.lost_and_back(&map, 3_000, first_lost), lost);
        assert_eq!(told.lost_and_back(&map, 9_000, first_lost), nothing, "once");
        let back = (Vec::new(), vec![(PartitionId(0), 9_000)]);
        assert_eq!(told.lost_and_back(&map, 10_000, all), back);
        let text = lost_text(&map, &[PartitionId(0)], |node| node == NodeId(2));
        assert!(text.starts_with("partition 0 has no leader: nothing is written"), "{text}");
        assert!(text.ends_with("Not heard, or out: 'b' (node 2)"), "{text}");
    }
}
