//! What the log says of who leads.

use crate::cluster::called;
use order::PartitionMap;
use std::collections::BTreeMap;
use txn::{NodeId, PartitionId};

/// Between two lines, at least: while leaders change all the time, each line tells what has come of it.
const PAUSE_MS: u64 = 1_000;
/// Partitions that a line names, at most.
const NAMED_MAX: usize = 16;

/// Which leaders the log was told of.
#[derive(Debug, Default)]
pub(super) struct LeadersTold {
    leaders: BTreeMap<PartitionId, NodeId>,
    at_ms: Option<u64>,
    /// Something may have changed since.
    changed: bool,
}

impl LeadersTold {
    /// What the log is to be told now: which partitions have another leader than the one that it was told of last. `look` says
    /// who leads a partition, and in which term; it is called only if something changed, and not too often.
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
            Some(
                "'a' (node 1) leads partition 0 in term 3; 'a' (node 1) leads partition 1 in term 3"
            )
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
}
