//! From keys to records.

use crate::record::{Meta, Record, RecordRef};
use crate::sync::RwLock;
use hashbrown::HashTable;
use std::array;
use std::hint::black_box;
use triomphe::Arc;
use txn::{Key, Space};

/// A model checker counts each look at a shard as a step, and is to see threads meet in one.
const SHARD_BITS: u32 = if cfg!(feature = "shuttle") { 2 } else { 10 };
/// The number of shards of a partition's index. A shard holds the keys whose hashes share their first bits,
/// so shards in order are hashes in order.
pub const SHARDS: usize = 1 << SHARD_BITS;

/// Keys that are looked up together. (The model checker's lock is not made for a thread that reads behind it
/// twice at the same time, which two keys of one shard would be: it stays locked for ever.)
const WARMED_AT_ONCE: usize = if cfg!(feature = "shuttle") { 1 } else { 16 };

type Shard<M> = RwLock<HashTable<RecordRef<M>>>;

/// A hash table in shards, each behind its own read-write lock. Those of the system's space are apart: to
/// look through its few records must not mean to look at all of the users'.
#[derive(Debug)]
pub(crate) struct Index<M> {
    users: Box<[Shard<M>]>,
    systems: Box<[Shard<M>]>,
}

/// The table's hash: its control bytes come from the first bits, which all keys of a shard share, so they are
/// moved away.
#[inline]
fn table_hash(hash: u64) -> u64 {
    hash.rotate_left(SHARD_BITS + 16)
}

pub(crate) fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

impl<M: Meta> Index<M> {
    pub(crate) fn new() -> Index<M> {
        let shards = || (0..SHARDS).map(|_| RwLock::new(HashTable::new())).collect();
        Index { users: shards(), systems: shards() }
    }

    #[inline]
    fn of_space(&self, space: Space, shard: usize) -> &Shard<M> {
        match space {
            Space::User => &self.users[shard],
            Space::System => &self.systems[shard],
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: &Key, hash: u64) -> Option<RecordRef<M>> {
        let shard = self.of_space(key.space(), shard_of(hash)).read();
        shard.find(table_hash(hash), |record| record.is_of(key)).cloned()
    }

    /// Loads what looking up and reading users' keys with these hashes will need into the processor's caches,
    /// as far as nobody changes it now.
    ///
    /// One look-up waits for several loads, each of which says where the next one is. Here those of several
    /// keys are on their way at the same time: first come all shards' locks, then all places in the tables
    /// and all records, then all latches, and then all values.
    pub(crate) fn warm(&self, hashes: &[u64]) {
        for hashes in hashes.chunks(WARMED_AT_ONCE) {
            // No lock and no latch is waited for here, so that it does no harm to hold many.
            let shards: [_; WARMED_AT_ONCE] =
                array::from_fn(|place| self.users[shard_of(*hashes.get(place)?)].try_read());
            // Keys whose hashes look alike in the table are rare: what is loaded in vain does no harm.
            let records: [_; WARMED_AT_ONCE] = array::from_fn(|place| {
                let shard = shards[place].as_ref()?;
                shard.find(table_hash(hashes[place]), |_| true)
            });
            let keys = records.iter().flatten().map(|record| usize::from(record.space() == Space::User));
            black_box(keys.sum::<usize>());
            let cells = records.map(|record| record?.try_latch());
            let values = cells.iter().flatten().map(|cell| cell.newest_bytes());
            black_box(
                values
                    .flat_map(|bytes| [bytes.first(), bytes.last()])
                    .flatten()
                    .fold(0, |all, byte| all ^ byte),
            );
        }
    }

    pub(crate) fn get_or_insert(&self, key: &Key, hash: u64) -> RecordRef<M> {
        if let Some(record) = self.get(key, hash) {
            return record;
        }
        let mut shard = self.of_space(key.space(), shard_of(hash)).write();
        shard
            .entry(table_hash(hash), |record| record.is_of(key), |record| table_hash(record.key().hash64()))
            .or_insert_with(|| Arc::new(Record::new(key)))
            .get()
            .clone()
    }

    /// Removes the records of a shard for which `forget` says so, under their latches; returns how many were
    /// looked at.
    pub(crate) fn retain(&self, shard: usize, mut forget: impl FnMut(&RecordRef<M>) -> bool) -> usize {
        // Most shards have nothing to remove, and looking must not stop their readers.
        let candidates = self.shard(shard);
        let looked_at = candidates.len();
        for record in candidates {
            if !forget(&record) {
                continue;
            }
            self.remove(&record);
        }
        looked_at
    }

    /// Removes a record, if it is there.
    pub(crate) fn remove(&self, record: &RecordRef<M>) {
        let hash = record.key().hash64();
        let mut shard = self.of_space(record.space(), shard_of(hash)).write();
        if let Ok(found) = shard.find_entry(table_hash(hash), |other| Arc::ptr_eq(other, record)) {
            found.remove();
        }
        if shard.len() * 4 < shard.capacity() {
            shard.shrink_to_fit(|record| table_hash(record.key().hash64()));
        }
    }

    /// Copies up to so many users' records of a shard, of those behind a number of others: what is behind
    /// changes with the table.
    pub(crate) fn some_of(&self, shard: usize, behind: usize, limit: usize) -> Vec<RecordRef<M>> {
        let shard = self.users[shard].read();
        let behind = behind % shard.len().max(1);
        let records = shard.iter().skip(behind).chain(shard.iter().take(behind));
        records.take(limit).cloned().collect()
    }

    /// Copies a space's records of a shard that are `wanted` and have at least this hash: all, or, if there
    /// are more than `count`, so many of the least hashes and those that share the last one's. In order. Says
    /// whether there are more behind them.
    pub(crate) fn first_of(
        &self,
        space: Space,
        shard: usize,
        from_hash: u64,
        count: usize,
        wanted: impl Fn(&Key) -> bool,
    ) -> (Vec<(u64, RecordRef<M>)>, bool) {
        let shard = self.of_space(space, shard).read();
        let records = shard.iter().map(|record| (record.key().hash64(), record));
        let mut found: Vec<(u64, &RecordRef<M>)> =
            records.filter(|(hash, record)| *hash >= from_hash && wanted(&record.key())).collect();
        let all = found.len();
        if all > count {
            let (_, &mut (last, _), _) =
                found.select_nth_unstable_by_key(count.max(1) - 1, |(hash, _)| *hash);
            found.retain(|(hash, _)| *hash <= last);
        }
        found.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.key().cmp(&b.1.key())));
        let has_more = found.len() < all;
        (found.into_iter().map(|(hash, record)| (hash, record.clone())).collect(), has_more)
    }

    /// Copies the records of a shard.
    pub(crate) fn shard(&self, shard: usize) -> Vec<RecordRef<M>> {
        let mut records: Vec<RecordRef<M>> = self.users[shard].read().iter().cloned().collect();
        records.extend(self.systems[shard].read().iter().cloned());
        records
    }
}
