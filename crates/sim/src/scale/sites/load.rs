//! Where items are, and the transactions that use them.

use crate::draw::Draw;
use certify::WriteSet;
use certify::pcsi::SiteMap;
use serde::Serialize;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use txn::{Entry, Key, NodeId, PartitionId};

/// The work of transactions (Table I of the paper). Of each partition that a transaction uses it draws
/// `read_items` items. It reads those of the partitions that it reads, and writes the first `write_items` of
/// those that it writes. It reads and writes partitions of its own site, but for `remote_partitions` of those
/// that it writes: there it first looks at one of the items that it writes, because a site needs a state of
/// each partition that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// Partitions that it reads.
    pub read_partitions: usize,
    /// Partitions that it writes.
    pub write_partitions: usize,
    /// Those of them that its site does not have, in the transactions that have such ones.
    pub remote_partitions: usize,
    /// The percentage of the transactions that do.
    pub remote_percent: u32,
    /// Items of a partition that it draws.
    pub read_items: usize,
    /// Items of a partition that it writes.
    pub write_items: usize,
    /// Items of a partition.
    pub items: u64,
    /// Bytes of an item.
    pub item_bytes: usize,
}

impl Load {
    /// Whether sites with three partitions can run it.
    pub(super) fn is_possible(&self) -> bool {
        let Load { read_partitions, write_partitions, remote_partitions, .. } = *self;
        (1..=super::REPLICAS).contains(&read_partitions)
            && (1..=super::REPLICAS).contains(&write_partitions)
            && remote_partitions <= write_partitions
            && (1..=self.read_items).contains(&self.write_items)
            && self.items >= self.read_items as u64
            && self.remote_percent <= 100
    }
}

/// The keys of partitions.
pub(super) struct Places {
    /// A hash tag of each partition.
    tags: Vec<String>,
    of_sites: Vec<Vec<PartitionId>>,
    value: Entry,
}

impl Places {
    pub fn new(map: &SiteMap, load: &Load) -> Places {
        let partitions = map.partitions().count();
        let mut tags = vec![String::new(); partitions];
        let mut left = partitions;
        for number in 0_u64.. {
            let tag = number.to_string();
            let of = map.partition_of(&Key::from(tag.as_str()));
            let place = &mut tags[usize::from(of.0)];
            if place.is_empty() {
                *place = tag;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        let having = |site| {
            let has_it = move |of: &PartitionId| map.sites(*of).contains(&NodeId(site));
            map.partitions().filter(has_it).collect()
        };
        Places {
            tags,
            of_sites: (0..partitions as u16).map(having).collect(),
            value: Entry::new(vec![b'x'; load.item_bytes]),
        }
    }

    fn key(&self, of: PartitionId, item: u64) -> Key {
        Key::from(format!("{{{}}}{item}", self.tags[usize::from(of.0)]).as_str())
    }
}

/// A transaction.
pub(super) struct Transaction {
    pub reads: Vec<Key>,
    pub writes: WriteSet,
    /// A key of each remote partition that is written.
    pub remote: Vec<Key>,
}

/// The transactions of a site.
pub(super) struct Generator {
    places: Arc<Places>,
    load: Load,
    own: Vec<PartitionId>,
    others: Vec<PartitionId>,
    /// Remote partitions that the first transactions write.
    first: VecDeque<PartitionId>,
    draw: Draw,
}

impl Generator {
    pub fn new(places: Arc<Places>, load: Load, site: NodeId, mut draw: Draw) -> Generator {
        let own = places.of_sites[usize::from(site.0)].clone();
        let all = (0..places.tags.len() as u16).map(PartitionId);
        let others: Vec<PartitionId> = all.filter(|of| !own.contains(of)).collect();
        let mut first = others.clone();
        shuffle(&mut first, &mut draw);
        first.retain(|_| load.remote_percent > 0 && load.remote_partitions > 0);
        Generator { places, load, own, others, first: first.into(), draw }
    }

    pub fn next(&mut self) -> Transaction {
        let Load { read_partitions, write_partitions, remote_partitions, remote_percent, .. } = self.load;
        let first = self.first.pop_front();
        let is_remote = (self.draw.percent(remote_percent) || first.is_some()) && remote_partitions > 0;
        let mut remote: BTreeSet<PartitionId> = first.into_iter().collect();
        while is_remote && remote.len() < remote_partitions {
            remote.insert(self.draw.pick(&self.others));
        }
        let mut own = self.own.clone();
        shuffle(&mut own, &mut self.draw);
        let written = write_partitions - remote.len();
        let (mut reads, mut writes) = (Vec::new(), WriteSet::default());
        for (place, of) in own.into_iter().enumerate().take(read_partitions.max(written)) {
            let keys = self.items(of);
            self.write(keys.iter().filter(|_| place < written), &mut writes);
            reads.extend(keys.into_iter().filter(|_| place < read_partitions));
        }
        let mut looked = Vec::new();
        for of in remote {
            let keys = self.items(of);
            self.write(keys.iter(), &mut writes);
            looked.extend(keys.into_iter().take(1));
        }
        Transaction { reads, writes, remote: looked }
    }

    fn write<'a>(&self, keys: impl Iterator<Item = &'a Key>, writes: &mut WriteSet) {
        let value = Some(self.places.value.clone());
        writes.records.extend(keys.take(self.load.write_items).map(|key| (key.clone(), value.clone())));
    }

    fn items(&mut self, of: PartitionId) -> Vec<Key> {
        let mut items: Vec<u64> = Vec::new();
        while items.len() < self.load.read_items {
            let item = self.draw.below(self.load.items);
            if !items.contains(&item) {
                items.push(item);
            }
        }
        items.into_iter().map(|item| self.places.key(of, item)).collect()
    }
}

fn shuffle(partitions: &mut [PartitionId], draw: &mut Draw) {
    for place in (1..partitions.len()).rev() {
        partitions.swap(place, draw.below(place as u64 + 1) as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_read_and_write_what_the_paper_says() {
        let replicas = (0..8).map(|of| super::super::replicas(of, 8)).collect();
        let map = SiteMap::new(replicas).expect("sites");
        for (write_partitions, remote_partitions, remote_percent) in
            [(1, 1, 5), (2, 1, 5), (3, 2, 5), (3, 2, 0), (1, 1, 100)]
        {
            let load = Load {
                read_partitions: 2,
                write_partitions,
                remote_partitions,
                remote_percent,
                read_items: 4,
                write_items: 2,
                items: 100,
                item_bytes: 10,
            };
            let places = Arc::new(Places::new(&map, &load));
            let mut generator = Generator::new(places, load, NodeId(3), Draw::new(1));
            let mut updated = BTreeSet::new();
            let mut remote = 0;
            for number in 0..2_000 {
                let Transaction { reads, writes, remote: looked } = generator.next();
                let is_remote = !looked.is_empty();
                let is_own = |key: &Key| map.sites(map.partition_of(key)).contains(&NodeId(3));
                assert_eq!((reads.len(), writes.records.len()), (8, 2 * write_partitions));
                assert!(reads.iter().all(is_own));
                let written: BTreeSet<PartitionId> =
                    writes.records.keys().map(|key| map.partition_of(key)).collect();
                assert_eq!(written.len(), write_partitions);
                let away: BTreeSet<PartitionId> =
                    written.into_iter().filter(|of| !map.sites(*of).contains(&NodeId(3))).collect();
                assert_eq!(away.len(), if is_remote { remote_partitions } else { 0 });
                let looked: BTreeSet<PartitionId> = looked.iter().map(|key| map.partition_of(key)).collect();
                assert_eq!(looked, away);
                remote += u64::from(is_remote);
                if number < 5 {
                    updated.extend(away);
                }
            }
            assert!(remote.abs_diff(20 * u64::from(remote_percent)) < 60, "{remote} of 2,000 are remote");
            assert!(remote_percent == 0 || updated.len() == 5, "the first ones write all remote partitions");
        }
    }
}
