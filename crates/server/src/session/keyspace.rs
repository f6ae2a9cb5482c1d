//! How many keys there are, and how many of them have a time to live.
//!
//! Engines count entries as part of what they commit, so that is known at any time. Leaf validators also
//! count times to live. Engines do not; theirs are told from a sample, which is everything where there is
//! little: a walk over all keys would be too much for a command that monitors send every second.

use crate::runtime::Runtime;
use certify::KeyCounts;
use store::{SHARDS, View};

/// In a partition of at most so many keys all of them are looked at; in a larger one as many.
const SAMPLE: usize = 8192;
/// Of a larger partition's shards at most so many records each: the sample is from several.
const SAMPLE_OF_SHARD: usize = 128;

/// What INFO tells of the keys that a node keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyspace {
    /// How many there are.
    pub keys: u64,
    /// How many of them have a time to live: counted up to [`SAMPLE`] keys of a partition, estimated beyond.
    pub expires: u64,
    /// How long these still have, on average over those that were looked at, in milliseconds; 0 without any.
    pub ttl_ms_average: u64,
}

/// How many keys a node has.
pub fn keys(runtime: &Runtime) -> u64 {
    match runtime.certified_key_counts() {
        Some(counts) => counts.keys,
        None => runtime.kept().map(count).sum(),
    }
}

fn count(partition: &dyn View) -> u64 {
    let snapshot = partition.open();
    let keys = partition.count_at(&snapshot);
    partition.close(snapshot);
    keys
}

impl Keyspace {
    /// Looks at a node.
    pub fn at(runtime: &Runtime) -> Keyspace {
        match runtime.certified_key_counts() {
            Some(counts) => Keyspace::counted(counts, runtime.clock().with_wall_ms().1),
            None => Keyspace::of(runtime.kept(), runtime.epoch_ms()),
        }
    }

    /// What leaf validators have counted.
    fn counted(counts: KeyCounts, now_ms: u64) -> Keyspace {
        let KeyCounts { keys, expiring, expires_at_ms_sum } = counts;
        let expires_at_ms = expires_at_ms_sum.checked_div(u128::from(expiring)).unwrap_or(0) as u64;
        Keyspace { keys, expires: expiring, ttl_ms_average: expires_at_ms.saturating_sub(now_ms) }
    }

    /// Looks at these partitions, at a time.
    pub fn of<'a>(partitions: impl Iterator<Item = &'a dyn View>, now_ms: u64) -> Keyspace {
        let mut found = Keyspace::default();
        // Of all times to live that were seen.
        let (mut left_ms, mut with_ttl) = (0_u128, 0_u128);
        for partition in partitions {
            let keys = count(partition);
            let of_shard = match keys <= SAMPLE as u64 {
                true => SAMPLE,
                false => SAMPLE_OF_SHARD,
            };
            let (mut seen, mut expire) = (0_u64, 0_u64);
            for shard in 0..SHARDS {
                for candidate in partition.candidates(shard, 0, of_shard) {
                    seen += 1;
                    let expires_at_ms = candidate.expires_at_ms;
                    if expires_at_ms != 0 {
                        expire += 1;
                        left_ms += u128::from(expires_at_ms.saturating_sub(now_ms));
                    }
                }
                if seen >= SAMPLE as u64 {
                    break;
                }
            }
            with_ttl += u128::from(expire);
            found.keys += keys;
            let share = u128::from(keys) * u128::from(expire) / u128::from(seen.max(1));
            // Keys come and go between the two looks.
            found.expires += (share as u64).clamp(expire.min(keys), keys);
        }
        found.ttl_ms_average = left_ms.checked_div(with_ttl).unwrap_or(0) as u64;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{Final, Image, Partition};
    use txn::{Entry, Key, Position};

    /// A partition with so many keys, each fourth of which has a second to live at time 0.
    fn partition(keys: u64) -> Partition<()> {
        let partition = Partition::new();
        for number in 0..keys {
            let mut entry = Entry::new("x");
            if number % 4 == 0 {
                entry.expires_at_ms = 1_000;
            }
            partition.load(Image {
                key: Key::from(format!("key:{number}").as_str()),
                version: Position(1),
                entry: Some(entry),
            });
        }
        partition.publish(Final { position: Position(1), time_ms: 0, live: keys.cast_signed() });
        partition
    }

    fn of(partitions: &[Partition<()>], now_ms: u64) -> Keyspace {
        let views = partitions.iter().map(|partition| partition as &dyn View);
        Keyspace::of(views, now_ms)
    }

    #[test]
    fn few_keys_are_counted_in_all_partitions() {
        let found = of(&[partition(400), partition(80), partition(0)], 400);
        let wanted = Keyspace { keys: 480, expires: 120, ttl_ms_average: 600 };
        assert_eq!(found, wanted);
        assert_eq!(of(&[partition(8)], 5_000).ttl_ms_average, 0, "all are late");
        assert_eq!(of(&[], 0), Keyspace::default());
    }

    #[test]
    fn what_leaves_have_counted_is_told_as_it_is() {
        let counts = KeyCounts { keys: 5, expiring: 2, expires_at_ms_sum: 3_000 };
        let wanted = Keyspace { keys: 5, expires: 2, ttl_ms_average: 500 };
        assert_eq!(Keyspace::counted(counts, 1_000), wanted);
        assert_eq!(Keyspace::counted(counts, 2_000).ttl_ms_average, 0, "all are late");
        assert_eq!(Keyspace::counted(KeyCounts::default(), 0), Keyspace::default());
    }

    #[test]
    fn of_many_keys_the_share_with_a_time_to_live_is_estimated() {
        let found = of(&[partition(100_000)], 0);
        assert_eq!((found.keys, found.ttl_ms_average), (100_000, 1_000));
        assert!((23_000..27_000).contains(&found.expires), "{found:?}");
    }
}
