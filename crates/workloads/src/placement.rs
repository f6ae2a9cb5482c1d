//! Where records are, if there are several partitions.
//!
//! Redis Cluster's slots say which partition a key is of, and a hash tag in the key says the slot. So a
//! number that names records (a warehouse's, a key's of the synthetic benchmark) is *placed*: its upper bits
//! hold a tag that falls into its partition, and its keys begin with that tag. Procedures need not know of
//! partitions: they name records by the numbers that their arguments and other records give them. Where there
//! is one partition the tag is 0 and keys have none.

use txn::key::partition_of_slot;
use txn::{Key, PartitionId, PartitionRoute, Partitions, Slots};

/// Bits of a placed number that count; those above are the tag.
const COUNT_BITS: u32 = 20;
/// Bits of a tag. The two highest bits of a placed number are 0, and may mark it.
const TAG_BITS: u32 = 10;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;
/// The largest number of a record.
pub const COUNT_MAX: u32 = COUNT_MASK;
/// The most partitions that a workload is spread over.
pub const PARTITIONS_MAX: u16 = 64;

/// The tags of so many partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By partition, in their place in a number.
    tags: Vec<u32>,
}

fn tag_bytes(placed: u32) -> [u8; 2] {
    ((placed >> COUNT_BITS) as u16).to_be_bytes()
}

impl Placement {
    /// For `of` partitions, from 1 to [`PARTITIONS_MAX`].
    pub fn new(of: u16) -> Placement {
        let of = of.clamp(1, PARTITIONS_MAX);
        if of == 1 {
            return Placement { tags: vec![0] };
        }
        let mut tags = vec![0; usize::from(of)];
        for tag in 1..1 << TAG_BITS {
            let placed = tag << COUNT_BITS;
            // A brace in it would end the tag.
            if tag_bytes(placed).iter().any(|byte| b"{}".contains(byte)) {
                continue;
            }
            let partition = partition_of_slot(key(b'p', placed, []).slot(), of);
            let place = &mut tags[usize::from(partition.0)];
            if *place == 0 {
                *place = placed;
            }
        }
        Placement { tags }
    }

    /// How many partitions there are.
    pub fn of(&self) -> u16 {
        self.tags.len() as u16
    }

    /// The name of record `count` of a partition, which is at most [`COUNT_MAX`].
    pub fn place(&self, partition: u16, count: u32) -> u32 {
        debug_assert!(count <= COUNT_MAX, "{count} would change the tag");
        self.tags[usize::from(partition)] | count
    }

    /// The way of a call of a client at `home` that touches records of these partitions.
    pub fn route(&self, home: u16, touched: impl IntoIterator<Item = u16>) -> PartitionRoute {
        let mut partitions: Partitions = touched.into_iter().map(PartitionId).collect();
        partitions.sort_unstable();
        partitions.dedup();
        PartitionRoute { home: PartitionId(home), partitions, slots: Slots::even(self.of()) }
    }
}

/// What is left of a placed number without its tag.
pub fn count_of(placed: u32) -> u32 {
    placed & COUNT_MASK
}

/// Record `count` beside a placed one, in its partition.
pub fn beside(placed: u32, count: u32) -> u32 {
    (placed & !COUNT_MASK) | count
}

/// Whether two placed numbers are of one partition.
pub fn are_together(first: u32, second: u32) -> bool {
    first >> COUNT_BITS == second >> COUNT_BITS
}

/// A key: the tag, a table's letter, the number, and what else is in the name.
pub fn key<const N: usize>(table: u8, placed: u32, rest: [&[u8]; N]) -> Key {
    let mut name = [0; txn::blob::INLINE_BYTES_MAX];
    let mut length = 0;
    let mut put = |bytes: &[u8]| {
        name[length..length + bytes.len()].copy_from_slice(bytes);
        length += bytes.len();
    };
    if placed >> COUNT_BITS != 0 {
        put(b"{");
        put(&tag_bytes(placed));
        put(b"}");
    }
    put(&[table]);
    put(&count_of(placed).to_be_bytes());
    for part in rest {
        put(part);
    }
    Key::new(&name[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_falls_into_its_partition() {
        for of in 2..=PARTITIONS_MAX {
            let placement = Placement::new(of);
            assert_eq!(placement.of(), of);
            for partition in 0..of {
                // 123 and 125 are braces.
                for count in [0, 1, 123, 125, 31_488, 0x7b7d, COUNT_MAX] {
                    let placed = placement.place(partition, count);
                    assert_eq!(count_of(placed), count);
                    let key = key(b'x', placed, [b"}{}".as_slice(), &count.to_be_bytes()]);
                    let found = partition_of_slot(key.slot(), of);
                    assert_eq!(found, PartitionId(partition), "{key:?} of {of}");
                }
            }
        }
    }

    #[test]
    fn one_partition_has_no_tags() {
        let placement = Placement::new(1);
        assert_eq!(placement.place(0, 7), 7);
        assert_eq!(key(b'x', 7, [b"y".as_slice()]), Key::new(b"x\0\0\0\x07y"));
        assert_eq!(count_of(beside(placement.place(0, 9), 7)), 7);
    }

    #[test]
    fn a_route_names_each_partition_once() {
        let placement = Placement::new(4);
        let route = placement.route(3, [3, 1, 3]);
        assert_eq!(route.home, PartitionId(3));
        assert_eq!(route.partitions[..], [PartitionId(1), PartitionId(3)]);
        assert_eq!(route.of(), 4);
    }
}
