//! How a cluster goes on with one node, where a majority of it is gone for good
//! (`ordo admin recover --from-survivor`).
//!
//! An operator decides this while the process of the node that is left, the *survivor*, is stopped. What it
//! has is kept: its checkpoints, and behind them all that its logs have, whether it was known to be agreed
//! or not. In the journal, one record makes the survivor the only voter of every group
//! ([`agree::sole_member`]), and changes the number of the cluster in the bases, where maps are.
//! Nothing else of the map changes: the lost nodes are in it until new ones take their places, by the same
//! commands as in any cluster.
//!
//! The new number is what keeps the lost nodes away. A lost node that comes back says the old one, and is
//! refused by every node of the new cluster before it has said anything else.
//!
//! Invariants:
//! 1. Nothing that the survivor has appended is lost: any of it may have been acknowledged.
//! 2. A survivor whose journal does not have this record has no majority under the new number, nor under the
//!    old one without the lost nodes. So it does not matter where this is interrupted: it is done again.

use super::base::{BadBase, BaseState, CANDIDATES, IDENTITY, read_base};
use super::candidates::{candidate_with, newest_bases};
use super::checkpoint::{self, LoadError};
use super::levels::{LEVEL, check_level};
use super::recover::ClusterRecoverError;
use agree::sole_member;
use log::{Base, Disk, GroupImages, Kept};
use order::{GroupBatch, PartitionMap};
use std::collections::BTreeSet;
use txn::{Epoch, NodeId, PartitionId};

/// Why a cluster cannot go on with a node.
#[derive(Debug, thiserror::Error)]
pub enum SurvivorError {
    /// Its journal is empty.
    #[error(
        "this node has nothing of its cluster's order: its journal is missing, or it has never taken part. \
         Nothing was changed. Recover from another node, or begin a new cluster with an empty directory"
    )]
    Nothing,
    /// It does not keep everything.
    #[error(
        "this node keeps no usable replica of {}, so a cluster made of it would lack all that is in there. \
         Nothing was changed. Recover from a node that keeps all partitions; if there is none, the data of \
         the lost partitions is only in a backup", list(.0)
    )]
    Missing(Vec<PartitionId>),
    /// Its checkpoints cannot be used.
    #[error(transparent)]
    Checkpoint(#[from] LoadError),
    /// A build of another version, or a log that cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterRecoverError),
}

fn list(partitions: &[PartitionId]) -> String {
    let all: Vec<String> = partitions.iter().map(PartitionId::to_string).collect();
    all.join(", ")
}

/// How far a survivor's log of a partition goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Of which.
    pub partition: PartitionId,
    /// Up to this epoch the survivor knows it to be agreed.
    pub agreed: Epoch,
    /// Up to this epoch the survivor has it.
    pub last: Epoch,
    /// That epoch's time, in milliseconds since 1970; 0 if it has no batch.
    pub time_ms: u64,
}

/// What a survivor has, and what makes a cluster of it.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The newest checkpoint.
    pub checkpoint: Epoch,
    /// The map at the end of the logs, with the number that the cluster has had.
    pub map: PartitionMap,
    /// The log of each partition.
    pub extents: Vec<Extent>,
    /// One record for the journal. Empty if this node is the only voter of all groups already.
    pub kept: Vec<Kept>,
}

/// Looks at what a stopped node has. `cluster` is the number that the cluster is to have.
///
/// # Errors
/// It says why no cluster can be made of it.
pub fn survey<D: Disk>(
    disk: &D,
    images: &GroupImages,
    me: NodeId,
    first: &PartitionMap,
    known: &PartitionMap,
    cluster: u64,
) -> Result<Survey, SurvivorError> {
    check_level(known, LEVEL).map_err(ClusterRecoverError::from)?;
    let mut groups = images.iter().filter(|(id, _)| **id < CANDIDATES);
    if !groups.any(|(_, image)| image.base.index > 0 || !image.entries.is_empty()) {
        return Err(SurvivorError::Nothing);
    }
    let begin = newest_bases(images)?;
    let kept_by_map: BTreeSet<PartitionId> = known.kept_by(me).collect();
    let nothing = log::GroupImage::default();
    let image_of = |partition| images.get(&partition).unwrap_or(&nothing);
    let is_usable = |partition: &PartitionId| {
        let image = image_of(*partition);
        let last = image.base.index + image.entries.len() as u64;
        let covered = begin.bases.get(partition).map_or(0, |base| base.index);
        let is_kept = kept_by_map.contains(partition) || images.contains_key(partition);
        is_kept && begin.has(*partition) && last >= covered
    };
    let missing: Vec<PartitionId> = known.partition_ids().filter(|id| !is_usable(id)).collect();
    if !missing.is_empty() {
        return Err(SurvivorError::Missing(missing));
    }
    for (&partition, base) in &begin.bases {
        checkpoint::read(disk, partition, base, |_| {})?;
    }
    let mut survey =
        Survey { checkpoint: begin.epoch, map: known.clone(), extents: Vec::new(), kept: Vec::new() };
    let mut is_sole = true;
    for partition in known.partition_ids() {
        let image = image_of(partition);
        let (base, state) =
            read_base(first, partition, Some(&image.base)).map_err(ClusterRecoverError::from)?;
        check_level(&state.map, LEVEL).map_err(ClusterRecoverError::from)?;
        // Only one group's batches change the map: its map is the newest one.
        let mut map = state.map;
        let mut extent = Extent { partition, agreed: state.epoch, last: state.epoch, time_ms: state.time_ms };
        for entry in &image.entries {
            // What is no batch has no epoch.
            let Some(batch) = GroupBatch::start_of(&entry.data) else {
                continue;
            };
            (extent.last, extent.time_ms) = (batch.epoch, batch.time_ms);
            if entry.index <= image.hard_state.commit {
                extent.agreed = batch.epoch;
            }
            for control in &batch.controls {
                map.apply(control, batch.epoch);
            }
        }
        survey.extents.push(extent);
        if partition == PartitionId(0) {
            survey.map = map;
        }
        let sole = sole_member(me, partition, &base, &image.entries, image.hard_state);
        let sole = sole.map_err(ClusterRecoverError::Group)?;
        is_sole &= sole.is_none();
        let mut kept = sole.unwrap_or_else(|| Kept::nothing(partition));
        if image.base.index > 0 {
            kept.base = Some(base_of(cluster, partition, &image.base)?);
        }
        survey.kept.push(kept);
    }
    let candidate = candidate_with(images, |partition, base| base_of(cluster, partition, base));
    survey.kept.extend(candidate?);
    if is_sole {
        survey.kept.clear();
    }
    debug_assert!(survey.kept.iter().all(|kept| kept.partition < IDENTITY));
    Ok(survey)
}

/// A base with the number of another cluster.
fn base_of(cluster: u64, partition: PartitionId, base: &Base) -> Result<Base, LoadError> {
    let state = BaseState::decode(&base.state).ok_or(BadBase(partition))?;
    let mut map = state.map.clone();
    map.cluster = cluster;
    Ok(Base { state: BaseState { map, ..state }.encode().into(), ..base.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::candidates::candidate;
    use crate::cluster::fixtures::{ME, images, map, taken, write};
    use log::{Entry, EntryKind, GroupImage, Journal};
    use sim::disk::VirtualDisk;
    use std::sync::Arc;

    const ALL: [PartitionId; 4] = [PartitionId(0), PartitionId(1), PartitionId(2), PartitionId(3)];
    const NEW: u64 = 4711;

    fn batch(epoch: u64) -> Entry {
        let batch = GroupBatch {
            epoch: Epoch(epoch),
            time_ms: 1_000 * epoch,
            submissions: Vec::new(),
            controls: Vec::new(),
        };
        Entry { index: epoch, term: 1, kind: EntryKind::Data, data: batch.encode().into() }
    }

    fn look(disk: &VirtualDisk, images: &GroupImages) -> Result<Survey, SurvivorError> {
        let map = map(&ALL);
        survey(disk, images, ME, &map, &map, NEW)
    }

    #[test]
    fn a_survivor_is_the_only_voter_of_a_cluster_with_another_number_and_all_that_it_had() {
        let disk = VirtualDisk::new(1);
        write(&disk, 5, &ALL);
        write(&disk, 9, &ALL);
        let mut images = images(5, &ALL, taken(9, &ALL));
        for (&partition, image) in images.iter_mut().filter(|(id, _)| **id < CANDIDATES) {
            // One group is an epoch ahead of the others, and nobody knows that any of it is agreed.
            let epochs = 6..=11 + u64::from(partition == ALL[2]);
            image.entries = epochs.map(batch).collect();
            image.hard_state.commit = 7;
        }
        let found = look(&disk, &images).expect("a survivor");
        let extents: Vec<(u64, u64, u64)> =
            found.extents.iter().map(|extent| (extent.agreed.0, extent.last.0, extent.time_ms)).collect();
        let [three, one] = [(7, 11, 11_000), (7, 12, 12_000)];
        assert_eq!(extents, [three, three, one, three]);
        // As a journal takes it.
        let disk = Arc::new(disk);
        let (mut journal, ..) = Journal::open(disk.clone(), 1 << 20, 1).expect("a journal");
        let before = images.iter().map(|(&partition, image)| Kept {
            base: Some(image.base.clone()),
            reset: true,
            entries: image.entries.clone(),
            hard_state: Some(image.hard_state),
            ..Kept::nothing(partition)
        });
        journal.append(&before.collect::<Vec<_>>()).expect("kept");
        journal.append(&found.kept).expect("it follows");
        journal.sync().expect("durable");
        drop(journal);
        let (_, after, _) = Journal::open(disk.clone(), 1 << 20, 2).expect("a journal");
        for (partition, image) in after.iter().filter(|(id, _)| **id < CANDIDATES) {
            let entries = &images[partition].entries;
            assert_eq!(image.entries[..entries.len()], *entries);
            assert_eq!(image.hard_state.commit, 5 + image.entries.len() as u64);
            let state = BaseState::decode(&image.base.state).expect("a state");
            let mut map = map(&ALL);
            map.cluster = NEW;
            assert_eq!(state.map, map);
        }
        let candidate = candidate(&after).expect("a candidate");
        assert_eq!(candidate.0, Epoch(9));
        for base in candidate.1.values() {
            let state = BaseState::decode(&base.state).expect("a state");
            assert_eq!(state.map.cluster, NEW);
        }
        assert!(look(&disk, &after).expect("a survivor").kept.is_empty());
    }

    #[test]
    fn a_node_that_lacks_something_is_no_survivor() {
        let disk = VirtualDisk::new(1);
        let refusal =
            |disk: &VirtualDisk, images: &GroupImages| look(disk, images).expect_err("refused").to_string();
        let text = refusal(&disk, &GroupImages::default());
        assert!(text.contains("nothing of its cluster's order"), "{text}");
        let some = &ALL[..2];
        write(&disk, 9, some);
        let text = refusal(&disk, &images(9, some, taken(9, some)));
        let named = format!("{}, {}", ALL[2], ALL[3]);
        assert!(text.contains(&named) && !text.contains("1,"), "{text}");
        // A checkpoint's bases without the logs, and its file.
        let mut all = images(9, &ALL, taken(9, &ALL));
        let text = refusal(&disk, &all);
        assert!(text.contains("checkpoint-00002"), "{text}");
        all.insert(ALL[3], GroupImage::default());
        let text = refusal(&disk, &all);
        assert!(text.contains(&ALL[3].to_string()), "{text}");
    }
}
