//! The sites of each partition where the description lists none.

use std::collections::BTreeMap;
use txn::NodeId;

/// A partition's sites, and those of them that resolve its conflicts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Dealt {
    /// In the order of their numbers.
    pub sites: Vec<NodeId>,
    /// The sites of the partition's home region.
    pub resolvers: Vec<NodeId>,
}

/// Deals partitions to the sites of some regions. Each partition has this number of sites, or all if there
/// are fewer. The regions are home to the partitions in turn: half of a partition's sites, rounded up, are
/// in its home region, as far as that region has so many, and resolve the conflicts. The sites with the
/// fewest partitions come first.
pub(super) fn deal(regions: &[Vec<NodeId>], partitions: u16, replicas: usize) -> Vec<Dealt> {
    let mut loads: BTreeMap<NodeId, usize> = regions.iter().flatten().map(|&site| (site, 0)).collect();
    let mut take = |mut from: Vec<NodeId>, count: usize| {
        from.sort_by_key(|site| (loads[site], *site));
        from.truncate(count);
        from.iter().for_each(|site| *loads.entry(*site).or_default() += 1);
        from
    };
    let mut deal = |partition: u16| {
        let home = &regions[usize::from(partition) % regions.len()];
        let mut resolvers = take(home.clone(), replicas.div_ceil(2));
        let abroad = regions.iter().filter(|region| *region != home).flatten().copied().collect();
        let mut others = take(abroad, replicas - resolvers.len());
        // Too few sites are abroad.
        let rest = home.iter().copied().filter(|site| !resolvers.contains(site)).collect();
        resolvers.extend(take(rest, replicas - resolvers.len() - others.len()));
        others.extend(&resolvers);
        others.sort_unstable();
        resolvers.sort_unstable();
        Dealt { sites: others, resolvers }
    };
    (0..partitions).map(&mut deal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(numbers: impl IntoIterator<Item = u16>) -> Vec<NodeId> {
        numbers.into_iter().map(NodeId).collect()
    }

    fn count(of: &[NodeId], within: &[NodeId]) -> usize {
        of.iter().filter(|site| within.contains(site)).count()
    }

    #[test]
    fn half_of_a_partitions_sites_are_in_its_home_region_and_all_sites_have_as_many_partitions() {
        let regions = [nodes([1, 2, 3]), nodes([4, 5, 6])];
        let dealt = deal(&regions, 6, 3);
        for (partition, Dealt { sites, resolvers }) in dealt.iter().enumerate() {
            let home = &regions[partition % 2];
            assert_eq!((sites.len(), count(sites, home)), (3, 2), "{partition}: {sites:?}");
            assert!(sites.is_sorted() && resolvers.iter().all(|site| home.contains(site)), "{resolvers:?}");
        }
        for site in regions.iter().flatten() {
            assert_eq!(dealt.iter().filter(|dealt| dealt.sites.contains(site)).count(), 3, "{site:?}");
        }
    }

    #[test]
    fn a_partition_has_as_many_sites_as_there_are_if_these_are_few() {
        for (regions, replicas) in [
            (vec![nodes([1])], 1),
            (vec![nodes([1, 2])], 2),
            (vec![nodes([1]), nodes([2])], 2),
            (vec![nodes([1, 2, 3, 4, 5]), nodes([6])], 5),
            (vec![nodes([1]), nodes([2]), nodes([3]), nodes([4])], 3),
        ] {
            for Dealt { sites, resolvers } in deal(&regions, 4, replicas) {
                assert_eq!(sites.len(), replicas, "{regions:?}: {sites:?}");
                let mut unique = sites.clone();
                unique.dedup();
                assert_eq!(unique, sites);
                assert!(!resolvers.is_empty() && resolvers.iter().all(|site| sites.contains(site)));
            }
        }
    }
}
