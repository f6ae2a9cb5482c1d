//! From keys to records.

use crate::record::{Meta, Record, RecordRef};
use crate::shard::{Met, Shard, Sought, Tag};
use crate::sync::RwLock;
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

/// A table in shards, each behind its own read-write lock and in the order of hashes ([`crate::shard`]). The
/// system's space has shards of its own: a scan of its few records must not look at all of the users'.
#[derive(Debug)]
pub(crate) struct Index<M> {
    users: Box<[RwLock<Shard<M>>]>,
    systems: Box<[RwLock<Shard<M>>]>,
}

/// The part of a hash that tells a shard's keys apart.
#[inline]
fn tag_of(hash: u64) -> Tag {
    Tag::of(hash, SHARD_BITS)
}

/// The first hash of a shard's keys, if there is such a shard.
pub(crate) fn first_hash_of(shard: usize) -> Option<u64> {
    (shard < SHARDS).then_some((shard as u64) << (64 - SHARD_BITS))
}

#[inline]
fn sought(key: &Key, hash: u64) -> Sought<'_> {
    Sought { tag: tag_of(hash), hash, key }
}

pub(crate) fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

impl<M: Meta> Index<M> {
    pub(crate) fn new() -> Index<M> {
        let shards = || (0..SHARDS).map(|_| RwLock::new(Shard::new())).collect();
        Index { users: shards(), systems: shards() }
    }

    #[inline]
    fn of_space(&self, space: Space, shard: usize) -> &RwLock<Shard<M>> {
        match space {
            Space::User => &self.users[shard],
            Space::System => &self.systems[shard],
        }
    }

    #[inline]
    pub(crate) fn get(&self, key: &Key, hash: u64) -> Option<RecordRef<M>> {
        let shard = self.of_space(key.space(), shard_of(hash)).read();
        shard.find(sought(key, hash)).cloned()
    }

    /// Loads what looking up and reading users' keys with these hashes will need into the processor's caches,
    /// as far as nobody changes it now.
    ///
    /// One look-up waits for several loads, each of which says where the next one is. Here those of several
    /// keys are on their way at the same time: first come all shards' locks, then all lines of the index,
    /// then all records, then all latches, and then all values.
    pub(crate) fn warm(&self, hashes: &[u64]) {
        for hashes in hashes.chunks(WARMED_AT_ONCE) {
            // No lock and no latch is waited for here, so that it does no harm to hold many.
            let shards: [_; WARMED_AT_ONCE] =
                array::from_fn(|place| self.users[shard_of(*hashes.get(place)?)].try_read());
            let lines: [_; WARMED_AT_ONCE] =
                array::from_fn(|place| shards[place].as_ref()?.expected(tag_of(hashes[place])));
            black_box(lines.iter().flatten().fold(0, |all, line| all ^ line.load()));
            // Keys with the same tag are rare: what is loaded in vain does no harm.
            let records: [_; WARMED_AT_ONCE] =
                array::from_fn(|place| shards[place].as_ref()?.likely(tag_of(hashes[place])));
            let keys = records.iter().flatten().map(|record| usize::from(record.space() == Space::User));
            black_box(keys.sum::<usize>());
            let cells = records.map(|record| record?.try_latch());
            black_box(cells.iter().flatten().fold(0, |all, cell| all ^ cell.load()));
        }
    }

    pub(crate) fn get_or_insert(&self, key: &Key, hash: u64) -> RecordRef<M> {
        if let Some(record) = self.get(key, hash) {
            return record;
        }
        let mut shard = self.of_space(key.space(), shard_of(hash)).write();
        if let Some(record) = shard.find(sought(key, hash)) {
            return record.clone();
        }
        let record = Arc::new(Record::new(key));
        shard.insert(sought(key, hash), record.clone());
        record
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
        let key = record.key();
        let hash = key.hash64();
        let mut shard = self.of_space(key.space(), shard_of(hash)).write();
        // The caller holds the record as well, so it is not freed under the lock.
        shard.remove(sought(&key, hash), record);
    }

    /// Copies up to so many users' records of a shard, of those behind a number of others: what is behind
    /// changes with the table.
    pub(crate) fn some_of(&self, shard: usize, behind: usize, limit: usize) -> Vec<RecordRef<M>> {
        let shard = self.users[shard].read();
        let behind = behind % shard.len().max(1);
        let records = shard.iter_behind(behind).chain(shard.iter().take(behind));
        records.take(limit).cloned().collect()
    }

    /// Copies records of a space and of the shard with this number, in the order of their hashes: those that
    /// are `wanted` and whose hash is at least `from_hash`. If there are more than `count`, the copy ends
    /// behind the last one with the `count`-th hash. Says whether there are more behind them.
    ///
    /// Records with equal hashes come together, since a hash is all that a cursor has: a page has more than
    /// `count` records by the number of those that share the last one's hash, and it looks at no more than
    /// those and `count` of a tree, or a segment of lines.
    pub(crate) fn first_of(
        &self,
        space: Space,
        number: usize,
        from_hash: u64,
        count: usize,
        wanted: impl Fn(&Key) -> bool,
    ) -> (Vec<(u64, RecordRef<M>)>, bool) {
        let shard = self.of_space(space, number).read();
        let mut found: Vec<(u64, &RecordRef<M>)> = Vec::new();
        let mut last_found = None;
        let from_tag = if shard_of(from_hash) < number { Tag::FIRST } else { tag_of(from_hash) };
        for Met { tag, record, is_in_order } in shard.iter_from(from_tag, from_hash) {
            let key = record.key();
            let hash = key.hash64();
            if hash < from_hash || !wanted(&key) {
                continue;
            }
            found.push((hash, record));
            // Lines have records with the same tag in no order: there the loop ends behind a tag.
            if last_found.is_some_and(|last| last < if is_in_order { (tag, hash) } else { (tag, 0) }) {
                break;
            }
            if found.len() >= count.max(1) {
                last_found = Some((tag, if is_in_order { hash } else { 0 }));
            }
        }
        let in_order = |a: &(u64, &RecordRef<M>), b: &(u64, &RecordRef<M>)| {
            a.0.cmp(&b.0).then_with(|| a.1.key().cmp(&b.1.key()))
        };
        // (Those of a tree are one run, which takes as many comparisons as there are records.)
        found.sort_by(in_order);
        let all = found.len();
        if let Some(&(last, _)) = found.get(count.max(1) - 1) {
            found.truncate(found.partition_point(|(hash, _)| *hash <= last));
        }
        let has_more = found.len() < all;
        (found.into_iter().map(|(hash, record)| (hash, record.clone())).collect(), has_more)
    }

    /// Copies the records of a shard.
    pub(crate) fn shard(&self, shard: usize) -> Vec<RecordRef<M>> {
        let (users, systems) = (self.users[shard].read(), self.systems[shard].read());
        let all: Vec<&RecordRef<M>> = users.iter().chain(systems.iter()).collect();
        let mut records = Vec::with_capacity(all.len());
        for some in all.chunks(WARMED_AT_ONCE) {
            // A record's count is changed atomically, which waits for its line by itself. Here the lines of
            // several are on their way at the same time.
            black_box(some.iter().filter(|record| record.space() == Space::User).count());
            records.extend(some.iter().copied().cloned());
        }
        records
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Keys of two shards, of both spaces, that are enough for some splits.
    fn keys() -> Vec<Key> {
        let names = (0..600_000_u32).map(|number| number.to_le_bytes());
        let keys = names.flat_map(|name| [Key::new(&name), Key::system(&name)]);
        keys.filter(|key| shard_of(key.hash64()) < 2).collect()
    }

    /// Random operations on an index, against an ordered map.
    fn check(seed: u64, keys: &[Key]) {
        let mut state = seed;
        let mut below = move |bound: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) as usize % bound
        };
        let index: Index<()> = Index::new();
        let mut model: BTreeMap<(u64, Key), RecordRef<()>> = BTreeMap::new();
        for step in 0..20_000 {
            let key = &keys[below(keys.len())];
            let place = (key.hash64(), key.clone());
            let shard = shard_of(place.0);
            let grows = step / 4_000 % 2 == 0;
            match below(100) {
                0 => {
                    // Most have `forget` say no.
                    let keep = |record: &RecordRef<()>| record.key().as_bytes()[0] % 8 != 1;
                    let all = model.keys().filter(|(hash, _)| shard_of(*hash) == shard).count();
                    assert_eq!(index.retain(shard, |record| !grows && !keep(record)), all);
                    model.retain(|(hash, _), record| grows || shard_of(*hash) != shard || keep(record));
                }
                1..5 => {
                    let (space, count) = (key.space(), below(40));
                    let wanted = |key: &Key| !key.as_bytes()[1].is_multiple_of(4);
                    let (found, has_more) = index.first_of(space, shard, place.0, count, wanted);
                    let all = model.range((place.0, Key::new(b""))..).filter(|((hash, key), _)| {
                        shard_of(*hash) == shard && *hash >= place.0 && key.space() == space && wanted(key)
                    });
                    let mut all: Vec<(u64, Key)> = all.map(|(place, _)| place.clone()).collect();
                    assert_eq!(has_more, all.len() > count.max(1));
                    all.truncate(count.max(1));
                    let found: Vec<_> = found.iter().map(|(hash, found)| (*hash, found.key())).collect();
                    assert_eq!(found, all, "no two of these keys have the same hash");
                }
                5..7 => {
                    let of_users =
                        |(hash, key): &&(u64, Key)| shard_of(*hash) == shard && key.space() == Space::User;
                    let all: Vec<&Key> = model.keys().filter(of_users).map(|(_, key)| key).collect();
                    let (behind, limit) = (below(5_000), below(5_000));
                    let some = index.some_of(shard, behind, limit);
                    assert_eq!(some.len(), all.len().min(limit));
                    if limit >= all.len() {
                        let mut some: Vec<Key> = some.iter().map(|record| record.key()).collect();
                        some.sort_by_key(Key::hash64);
                        assert!(some.iter().eq(all));
                    }
                }
                _ => {
                    index.warm(&[place.0, place.0.rotate_left(11), 0]);
                    let found = index.get(key, place.0);
                    assert_eq!(found.is_some(), model.contains_key(&place));
                    if below(8) < (if grows { 7 } else { 1 }) {
                        let record = index.get_or_insert(key, place.0);
                        assert!(record.is_of(key));
                        let known = model.entry(place).or_insert_with(|| record.clone());
                        assert!(Arc::ptr_eq(known, &record));
                    } else if let Some(record) = model.remove(&place) {
                        index.remove(&record);
                        // The second time there is nothing to remove.
                        index.remove(&record);
                    }
                }
            }
        }
        for shard in 0..2 {
            let of_shard = model.keys().filter(|(hash, _)| shard_of(*hash) == shard).count();
            assert_eq!(index.shard(shard).len(), of_shard);
        }
    }

    #[test]
    fn an_index_does_what_an_ordered_map_does() {
        let number = |name| std::env::var(name).ok().and_then(|number: String| number.parse().ok());
        let first: u64 = number("ORDO_SEED").unwrap_or(1);
        let keys = keys();
        for seed in first..first + number("ORDO_SEEDS").unwrap_or(4) {
            println!("ORDO_SEED={seed} ORDO_SEEDS=1");
            check(seed, &keys);
        }
    }

    #[test]
    fn a_page_of_a_later_shard_begins_with_its_first_key() {
        let index: Index<()> = Index::new();
        let key = Key::new(b"key");
        let shard = shard_of(key.hash64());
        index.get_or_insert(&key, key.hash64());
        for from_shard in 0..=shard {
            let from_hash = ((from_shard as u64 + 1) << (64 - SHARD_BITS)) - 1;
            let from_hash = if from_shard == shard { key.hash64() } else { from_hash };
            let (found, has_more) = index.first_of(Space::User, shard, from_hash, 1, |_| true);
            assert_eq!((found.len(), has_more), (1, false));
        }
    }

    #[test]
    fn keys_with_one_hash_are_on_one_page_in_their_order() {
        // rapidhash's last multiplication has a factor of 0 for each of these, as long as its secret is the
        // published one.
        let end: [u8; 8] = [0xc6, 0xbf, 0x8f, 0x7d, 0x56, 0x65, 0x27, 0x42];
        let chosen = |number: u64| Key::new(&[number.to_be_bytes(), end].concat());
        let hash = chosen(0).hash64();
        let shard = shard_of(hash);
        let others: Vec<Key> = (0..60_000_u32).map(|number| Key::new(&number.to_le_bytes())).collect();
        // In lines, and in a tree.
        for count in [20, 5_000] {
            let index: Index<()> = Index::new();
            let keys: Vec<Key> = (0..count).map(chosen).collect();
            for key in keys.iter().rev().chain(&others) {
                index.get_or_insert(key, key.hash64());
            }
            let page = |from_hash, count| index.first_of(Space::User, shard, from_hash, count, |_| true);
            let (found, has_more) = page(hash, 3);
            assert!(found.iter().map(|(_, record)| record.key()).eq(keys.iter().cloned()), "{count}");
            assert!(has_more);
            // A page that ends before them has none of them, and the next one has all.
            let (behind, _) = page(hash + 1, 1);
            let (before, has_more) = page(0, 2);
            assert!(before.iter().all(|(found, _)| *found < hash) && before.len() == 2 && has_more);
            let all = page(0, usize::MAX).0;
            let of_shard = others.iter().filter(|key| shard_of(key.hash64()) == shard).count();
            assert_eq!(all.len(), keys.len() + of_shard);
            assert!(all.is_sorted_by_key(|(hash, record)| (*hash, record.key())));
            let place = all.iter().position(|(other, _)| *other > hash).expect("a key behind them");
            assert!(Arc::ptr_eq(&all[place].1, &behind[0].1));
        }
    }
}
