//! A partition: index, clears, snapshots and the published final position.

use crate::clears::Clears;
use crate::digest::{self, Digests};
use crate::history::{History, NoPast};
use crate::index::{Index, SHARDS, first_hash_of, shard_of};
use crate::publish::{Final, Published};
use crate::record::{Meta, Record, RecordCell, RecordRef};
use crate::snapshots::Snapshots;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::usage::{Clock, Keeping};
use crate::versions::Version;
use crate::view::{Candidate, Census, Image, Snapshot, View};
use txn::tx::Read;
use txn::{Entry, Key, Position, ScanPage, ScanRange, Space};

/// A page of [`View::scan_some`] ends when so many times as many records were looked at as it may have
/// entries.
const LOOKS_PER_ENTRY: usize = 16;

/// The records of one partition, with an engine's `M` in each.
#[derive(Debug)]
pub struct Partition<M> {
    index: Index<M>,
    clears: Clears,
    /// Stays empty: the system space is never cleared.
    no_clears: Clears,
    snapshots: Snapshots,
    published: Published,
    history: History,
    digests: Digests,
    usage_clock: Clock,
    /// How many shards [`View::collect`] has looked at, which go round.
    sweep: AtomicUsize,
}

impl<M: Meta> Default for Partition<M> {
    fn default() -> Partition<M> {
        Partition::new()
    }
}

impl<M: Meta> Partition<M> {
    /// An empty partition at [`Position::NONE`].
    pub fn new() -> Partition<M> {
        Partition {
            index: Index::new(),
            clears: Clears::default(),
            no_clears: Clears::default(),
            snapshots: Snapshots::default(),
            published: Published::default(),
            history: History::default(),
            digests: Digests::default(),
            usage_clock: Clock::default(),
            sweep: AtomicUsize::new(0),
        }
    }

    /// The record of a key, if there is one.
    #[inline]
    pub fn get(&self, key: &Key) -> Option<RecordRef<M>> {
        let record = self.index.get(key, key.hash64())?;
        self.usage_clock.touch(record.usage());
        Some(record)
    }
    /// The record of a key; a placeholder if there was none.
    #[inline]
    pub fn get_or_insert(&self, key: &Key) -> RecordRef<M> {
        let record = self.index.get_or_insert(key, key.hash64());
        self.usage_clock.touch(record.usage());
        record
    }
    /// Works on a record under its latch, looking it up again (into `record`) if it was removed meanwhile.
    #[inline]
    pub fn with<R>(&self, record: &mut RecordRef<M>, work: impl FnOnce(&mut RecordCell<M>) -> R) -> R {
        self.with_record(record, |_, cell| work(cell))
    }
    /// The same, for work that wants to know the record.
    #[inline]
    pub fn with_record<R>(
        &self,
        record: &mut RecordRef<M>,
        work: impl FnOnce(&Record<M>, &mut RecordCell<M>) -> R,
    ) -> R {
        loop {
            {
                let mut cell = record.latch_any();
                if !cell.is_dead() {
                    return work(record, &mut cell);
                }
            }
            // Whoever killed it is about to remove it, and may not come to that for long.
            self.index.remove(record);
            let key = record.key();
            *record = self.get_or_insert(&key);
        }
    }

    /// The range tombstones.
    pub fn clears(&self) -> &Clears {
        &self.clears
    }
    /// The range tombstones that concern a key: none outside the user space.
    #[inline]
    pub fn clears_of(&self, key: &Key) -> &Clears {
        if key.space() == Space::User { &self.clears } else { &self.no_clears }
    }
    /// The registered readers and the watermark.
    pub fn snapshots(&self) -> &Snapshots {
        &self.snapshots
    }
    /// What is true at the newest final position.
    pub fn published(&self) -> Final {
        self.published.read()
    }
    /// For a caller that commits several transactions before it publishes the last of them: it has come to
    /// `ended`, and the next transaction is of the time `next_ms`. Told of all of them, the published state
    /// included, a history has the moments between them.
    #[inline]
    pub fn note_past(&self, ended: Final, next_ms: u64) {
        self.history.note(ended, next_ms);
    }
    /// Makes a new final position known. One caller at a time.
    pub fn publish(&self, new: Final) {
        if self.history.is_kept() {
            self.history.note(self.published.read(), new.time_ms);
        }
        self.published.write(new);
    }

    /// Installs what a transaction has written at the next final position, for callers that commit one
    /// transaction at a time; `live` is the number of live user entries, before and afterwards. Returns what
    /// the writes add to the state digest.
    pub fn install(
        &self,
        position: Position,
        clears: bool,
        writes: impl IntoIterator<Item = (Key, Option<Entry>)>,
        live: &mut i64,
    ) -> u64 {
        let mut terms = 0_u64;
        if clears {
            terms = digest::of_clear(position);
            self.clears.insert(position);
            *live = 0;
        }
        let watermark = self.snapshots.watermark();
        for (key, entry) in writes {
            terms = terms.wrapping_add(digest::of_write(&key, position, entry.as_ref()));
            let mut record = self.get_or_insert(&key);
            self.with(&mut record, |cell| {
                if key.space() == Space::User {
                    let before = !clears && cell.live(position.prev(), &self.clears);
                    *live += i64::from(entry.is_some()) - i64::from(before);
                }
                cell.supersede(Version { position, entry }, watermark);
            });
        }
        terms
    }

    /// The visible entries of a part of a space, for a reader that sees versions up to `upto`.
    pub fn scan(&self, upto: Position, range: ScanRange) -> ScanPage {
        self.scan_within(upto, range, usize::MAX)
    }

    /// The same. A page ends before its limit once so many records were looked at, visible or not.
    fn scan_within(&self, upto: Position, range: ScanRange, looks_max: usize) -> ScanPage {
        let mut page = ScanPage::default();
        let mut looked_at = 0;
        for shard in shard_of(range.from_hash)..SHARDS {
            let mut from_hash = range.from_hash;
            // One more tells where the next page starts.
            let mut count = range.limit.saturating_sub(page.entries.len()).saturating_add(1);
            let mut last = None;
            loop {
                let (found, has_more) =
                    self.index.first_of(range.space, shard, from_hash, count, |key| range.slots.has(key));
                looked_at += found.len();
                for (hash, record) in found {
                    from_hash = hash.saturating_add(1);
                    // Records without a visible entry leave no trace: whether there are any is a matter of
                    // collection.
                    let read = record.latch_any().read(upto, self.clears_of(&record.key()));
                    let Some(entry) = read.entry else { continue };
                    if page.entries.len() >= range.limit && last != Some(hash) {
                        page.next_hash = Some(hash);
                        return page;
                    }
                    page.entries.push((record.key(), entry));
                    last = Some(hash);
                }
                if looked_at >= looks_max {
                    // Where the next shard begins, if there is one.
                    let next_hash = if has_more { Some(from_hash) } else { first_hash_of(shard + 1) };
                    return ScanPage { next_hash, ..page };
                }
                if !has_more {
                    break;
                }
                // Many that are not visible must not cost a walk for each few.
                count = count.saturating_mul(4);
            }
        }
        page
    }

    /// The number of user entries that a reader at `upto` sees. Walks the index.
    pub fn count(&self, upto: Position) -> u64 {
        (0..SHARDS).map(|shard| self.count_of_shard(upto, shard)).sum()
    }

    fn count_of_shard(&self, upto: Position, shard: usize) -> u64 {
        let records = self.index.shard(shard);
        let is_live = |record: &&RecordRef<M>| {
            record.space() == Space::User && record.latch_any().live(upto, &self.clears)
        };
        records.iter().filter(is_live).count() as u64
    }

    /// Reads a record at a final position.
    #[inline]
    pub fn read(&self, upto: Position, key: &Key) -> Read {
        match self.get(key) {
            // A dead record was forgettable: it reads as never written, like none at all.
            Some(record) => record.latch_any().read(upto, self.clears_of(key)),
            None => Read { entry: None, version: self.clears_of(key).tombstone(Position::NONE, upto) },
        }
    }

    /// Drops what nobody needs any more of a record that the caller and the index own. Whether it is to be
    /// removed: then it is dead.
    fn collect_record(&self, record: &RecordRef<M>, watermark: Position, final_position: Position) -> bool {
        let mut cell = record.latch_any();
        cell.prune(watermark);
        let idle = cell.meta.collect(final_position);
        let clears = if record.space() == Space::User { &self.clears } else { &self.no_clears };
        if cell.is_dead() || !cell.is_forgettable(watermark, clears) {
            return false;
        }
        // Two owners: the index and the caller. A third is a transaction that means to write here.
        let unused = idle && RecordRef::strong_count(record) <= 2;
        if unused {
            cell.kill();
        } else {
            // Whoever is still here needs the record, but not what it says: a key that is read all the time
            // would keep a value that was cleared, and so would one whose readers were retracted.
            cell.forget();
        }
        unused
    }

    /// Locks, waiters and read dependencies of all records: for leak checks.
    pub fn meta_weight(&self) -> u64 {
        (0..SHARDS)
            .flat_map(|shard| self.index.shard(shard))
            .map(|record| {
                let mut cell = record.latch_any();
                cell.meta.collect(self.published.position());
                cell.meta.weight()
            })
            .sum()
    }
}

impl<M: Meta> View for Partition<M> {
    fn open(&self) -> Snapshot {
        let (slot, at) = self.snapshots.open(|| self.published.read(), |at| at.position);
        Snapshot {
            position: at.position,
            time_ms: at.time_ms,
            live: Some(at.live),
            slot,
            pinned: at.position,
        }
    }
    fn close(&self, snapshot: Snapshot) {
        self.snapshots.close(snapshot.slot, snapshot.pinned);
    }
    fn keep_history(&self, since_ms: Option<u64>) {
        match since_ms {
            None if self.history.is_kept() => self.history.end(&self.snapshots),
            None => {}
            Some(since_ms) => {
                if !self.history.is_kept() {
                    self.history.begin(&self.snapshots, || self.open(), |snapshot| self.close(snapshot));
                }
                self.history.forget_before(since_ms, &self.snapshots, || self.published.read());
            }
        }
    }
    fn shorten_history(&self) -> u64 {
        self.history.forget_half(&self.snapshots, || self.published.read())
    }
    fn oldest_past_ms(&self) -> Option<u64> {
        self.history.oldest_ms(|| self.published.read())
    }
    fn open_at(&self, time_ms: u64) -> Result<Snapshot, NoPast> {
        let position = self.history.position_at(time_ms, || self.published.read())?;
        match self.snapshots.open_at(position) {
            Some(slot) => Ok(Snapshot { position, time_ms, live: None, slot, pinned: position }),
            // It was forgotten meanwhile.
            None => Err(self.oldest_past_ms().map_or(NoPast::NotKept, NoPast::Before)),
        }
    }
    fn warm(&self, hashes: &[u64]) {
        self.index.warm(hashes);
    }
    fn read_at(&self, snapshot: &Snapshot, key: &Key) -> Read {
        self.read(snapshot.position, key)
    }
    fn scan_at(&self, snapshot: &Snapshot, range: ScanRange) -> ScanPage {
        self.scan(snapshot.position, range)
    }
    fn scan_some(&self, snapshot: &Snapshot, range: ScanRange) -> ScanPage {
        self.scan_within(snapshot.position, range, range.limit.saturating_mul(LOOKS_PER_ENTRY))
    }
    fn count_at(&self, snapshot: &Snapshot) -> u64 {
        match snapshot.live {
            Some(live) => live.max(0) as u64,
            None => self.count(snapshot.position),
        }
    }
    fn count_of_shard_at(&self, snapshot: &Snapshot, shard: usize) -> u64 {
        self.count_of_shard(snapshot.position, shard)
    }
    fn images_at(
        &self,
        snapshot: &Snapshot,
        shard: usize,
        limit: usize,
        out: &mut Vec<Image>,
    ) -> Option<usize> {
        let upto = snapshot.position;
        for shard in shard..SHARDS {
            if out.len() >= limit {
                return Some(shard);
            }
            let mut records = self.index.shard(shard);
            // They nearly are in this order, which is the same at all replicas.
            records.sort_by_cached_key(|record| {
                let key = record.key();
                (key.hash64(), key)
            });
            for record in records {
                let clears = self.clears_of(&record.key());
                let read = record.latch_any().read(upto, clears);
                // What a clear removed is told by the clear.
                if read.version != Position::NONE
                    && (read.entry.is_some() || read.version > clears.newest_upto(upto))
                {
                    out.push(Image { key: record.key(), version: read.version, entry: read.entry });
                }
            }
        }
        None
    }
    fn load(&self, image: Image) {
        let record = self.get_or_insert(&image.key);
        record.latch_any().replace(Version { position: image.version, entry: image.entry });
    }
    fn loaded(&self, position: Position, time_ms: u64, clears: &[Position]) {
        for &clear in clears {
            self.clears.insert(clear);
        }
        let live = self.count(position) as i64;
        self.publish(Final { position, time_ms, live });
        self.digests.load(position, None);
    }
    fn digests(&self) -> &Digests {
        &self.digests
    }
    fn clears_at(&self, snapshot: &Snapshot) -> Vec<Position> {
        self.clears.all_upto(snapshot.position)
    }
    fn final_position(&self) -> Position {
        self.published.position()
    }
    fn final_time_ms(&self) -> u64 {
        self.published.read().time_ms
    }
    fn collect(&self, records: usize) -> usize {
        let final_position = self.published.position();
        let watermark = self.snapshots.raise(final_position);
        self.clears.prune(watermark);
        let mut looked_at = 0;
        for _ in 0..SHARDS {
            if looked_at >= records {
                break;
            }
            let shard = self.sweep.fetch_add(1, Ordering::Relaxed) % SHARDS;
            looked_at +=
                self.index.retain(shard, |record| self.collect_record(record, watermark, final_position));
        }
        looked_at
    }
    fn swept(&self) -> usize {
        self.sweep.load(Ordering::Relaxed)
    }
    fn watermark(&self) -> Position {
        self.snapshots.raise(self.published.position())
    }
    fn collect_keys(&self, keys: &mut dyn Iterator<Item = Key>) {
        let final_position = self.published.position();
        let watermark = self.snapshots.raise(final_position);
        for key in keys {
            if let Some(record) = self.index.get(&key, key.hash64())
                && self.collect_record(&record, watermark, final_position)
            {
                self.index.remove(&record);
            }
        }
    }
    fn keep_usage(&self, keeping: Keeping, now_ms: u64) {
        self.usage_clock.set(keeping, now_ms);
    }
    fn idleness(&self, key: &Key) -> Option<u64> {
        let record = self.index.get(key, key.hash64())?;
        Some(self.usage_clock.idleness(record.usage()))
    }
    fn candidates(&self, shard: usize, behind: usize, limit: usize) -> Vec<Candidate> {
        let upto = self.published.position();
        let records = self.index.some_of(shard % SHARDS, behind, limit);
        let candidate = |record: RecordRef<M>| {
            let (version, expires_at_ms, value_bytes) = record.latch_any().outline(upto, &self.clears)?;
            let idleness = self.usage_clock.idleness(record.usage());
            Some(Candidate { key: record.key(), version, expires_at_ms, value_bytes, idleness })
        };
        records.into_iter().filter_map(candidate).collect()
    }
    fn census(&self) -> Census {
        let mut census = Census::default();
        let upto = self.published.position();
        for shard in 0..SHARDS {
            for record in self.index.shard(shard) {
                let cell = record.latch_any();
                census.records += 1;
                census.versions += cell.len() as u64;
                census.held += cell.meta.weight();
                census.live += u64::from(record.space() == Space::User && cell.live(upto, &self.clears));
            }
        }
        census
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an engine keeps of a key's readers: the latest one.
    #[derive(Debug, Default)]
    struct LatestReader(Position);

    impl Meta for LatestReader {
        fn collect(&mut self, final_position: Position) -> bool {
            if self.0 <= final_position {
                self.0 = Position::NONE;
            }
            self.0 == Position::NONE
        }
        fn weight(&self) -> u64 {
            u64::from(self.0 != Position::NONE)
        }
    }

    fn publish(partition: &Partition<LatestReader>, position: u64) {
        partition.publish(Final { position: Position(position), time_ms: 0, live: 0 });
    }
    fn census_after_collection(partition: &Partition<LatestReader>) -> (u64, u64, u64) {
        partition.collect(usize::MAX);
        let Census { records, versions, held, .. } = partition.census();
        (records, versions, held)
    }

    /// A partition whose only key was written at 3, cleared at 5, and read by a transaction at 9.
    fn cleared(key: &Key) -> (Partition<LatestReader>, RecordRef<LatestReader>) {
        let partition: Partition<LatestReader> = Partition::new();
        let record = partition.get_or_insert(key);
        {
            let mut cell = record.latch_held();
            cell.insert(Version { position: Position(3), entry: Some(Entry::new("x")) });
            cell.meta.0 = Position(9);
        }
        partition.clears().insert(Position(5));
        (partition, record)
    }

    #[test]
    fn a_page_of_some_ends_among_many_that_are_deleted_and_nothing_is_left_out() {
        let partition: Partition<LatestReader> = Partition::new();
        let key = |number: u32| Key::new(format!("key{number}").as_bytes());
        for number in 0..5_000 {
            let record = partition.get_or_insert(&key(number));
            record.latch_held().insert(Version {
                position: Position(u64::from(number) + 1),
                entry: number.is_multiple_of(1_000).then(|| Entry::new("x")),
            });
        }
        publish(&partition, 5_000);
        let snapshot = partition.open();
        let all = partition.scan_at(&snapshot, ScanRange::of(Space::User, 0, usize::MAX));
        let (mut some, mut pages, mut next) = (Vec::new(), 0, Some(0));
        while let Some(from_hash) = next {
            let page = partition.scan_some(&snapshot, ScanRange::of(Space::User, from_hash, 4));
            some.extend(page.entries);
            pages += 1;
            next = page.next_hash;
        }
        assert_eq!((all.entries.len(), some), (5, all.entries));
        assert!((5_000 / (2 * 4 * LOOKS_PER_ENTRY)..5_000 / 4).contains(&pages), "{pages} pages");
        partition.close(snapshot);
    }

    #[test]
    fn candidates_are_what_there_is_and_tell_how_little_it_is_used() {
        let partition: Partition<LatestReader> = Partition::new();
        partition.keep_usage(Keeping::Recency, 1_000_000);
        let key = |number: u32| Key::new(format!("key{number}").as_bytes());
        for number in 0..100 {
            let record = partition.get_or_insert(&key(number));
            record.latch_held().insert(Version {
                position: Position(u64::from(number) + 1),
                entry: (number % 10 != 0).then(|| Entry::new("x")),
            });
        }
        partition.get_or_insert(&Key::system(b"reply"));
        publish(&partition, 100);
        partition.keep_usage(Keeping::Recency, 1_060_000);
        partition.get(&key(7));
        partition.idleness(&key(8));
        let of_shards = |behind, limit| -> Vec<Candidate> {
            let of_shard = |shard| partition.candidates(shard, behind, limit);
            (0..SHARDS).flat_map(of_shard).collect()
        };
        for behind in [0, 1, usize::MAX] {
            let mut all = of_shards(behind, 100);
            all.sort_by_key(|candidate| candidate.version);
            all.dedup();
            assert_eq!(all.len(), 90);
            let used = |candidate: &&Candidate| candidate.idleness < 50_000;
            let used: Vec<&Key> = all.iter().filter(used).map(|found| &found.key).collect();
            assert_eq!(used, [&key(7)]);
            assert!(all.iter().all(|found| found.version.0 % 10 != 1));
        }
        assert!(of_shards(0, 1).len() <= 90 && of_shards(0, 0).is_empty());
        assert_eq!(partition.idleness(&key(1000)), None);
    }

    #[test]
    fn pages_hold_what_is_visible_in_the_order_of_hashes_however_long_they_are() {
        let partition: Partition<LatestReader> = Partition::new();
        let mut wanted = Vec::new();
        for number in 0..30_000_u32 {
            let key = Key::new(format!("key{number}").as_bytes());
            // Of some shards little is left: a page needs several looks there.
            let is_deleted = number % 3 != 0 || shard_of(key.hash64()).is_multiple_of(2) && number % 30 != 0;
            let entry = (!is_deleted).then(|| Entry::new("x"));
            let version = Version { position: Position(1), entry: entry.clone() };
            partition.get_or_insert(&key).latch_held().insert(version);
            wanted.extend(entry.map(|entry| (key, entry)));
        }
        wanted.sort_by_key(|(key, _)| key.hash64());
        for limit in [1, 2, 7, 100, 4_000, usize::MAX] {
            let mut from_hash = Some(0);
            let mut found = Vec::new();
            while let Some(hash) = from_hash {
                let page = partition.scan(Position(1), ScanRange::of(Space::User, hash, limit));
                assert!(page.entries.len() <= limit, "no two of these keys have the same hash");
                found.extend(page.entries);
                let next = wanted.get(found.len()).map(|(key, _)| key.hash64());
                assert_eq!(page.next_hash, next, "limit {limit}, behind {}", found.len());
                from_hash = page.next_hash;
            }
            assert!(found == wanted, "limit {limit}");
        }
        let reply = Key::system(b"key3");
        let version = Version { position: Position(1), entry: Some(Entry::new("x")) };
        partition.get_or_insert(&reply).latch_held().insert(version);
        let page = partition.scan(Position(1), ScanRange::of(Space::System, 0, 100));
        assert_eq!((page.entries.len(), &page.entries[0].0, page.next_hash), (1, &reply, None));
        assert_eq!(partition.count(Position(1)), wanted.len() as u64, "the system's are not counted");
    }

    #[test]
    fn what_was_cleared_goes_although_a_later_reader_holds_its_record() {
        let key = Key::new(b"key");
        let (partition, record) = cleared(&key);
        drop(record);
        publish(&partition, 5);
        let before = partition.read(Position(5), &key);
        // The reader at 9 may still run, or have been retracted: the record stays for it, empty.
        assert_eq!(census_after_collection(&partition), (1, 0, 1));
        assert_eq!(partition.read(Position(5), &key), before);
        assert_eq!(before.version, Position(5), "the clear tells of the key");
        publish(&partition, 9);
        assert_eq!(census_after_collection(&partition), (0, 0, 0));
        assert_eq!(partition.read(Position(9), &key), before);
    }

    #[test]
    fn a_key_is_collected_by_name_when_its_tombstone_is_behind_the_horizon() {
        let key = Key::new(b"key");
        let partition: Partition<LatestReader> = Partition::new();
        let record = partition.get_or_insert(&key);
        record.latch_held().insert(Version { position: Position(3), entry: None });
        let collect = |at: u64, keys: [&Key; 2]| {
            publish(&partition, at);
            partition.collect_keys(&mut keys.into_iter().cloned());
            partition.census().records
        };
        let other = Key::new(b"other");
        drop(record);
        assert_eq!(collect(10, [&key, &other]), 1);
        assert_eq!(collect(3 + crate::TOMBSTONE_HORIZON, [&other, &other]), 1);
        assert_eq!(collect(3 + crate::TOMBSTONE_HORIZON, [&other, &key]), 0);
    }

    #[test]
    fn what_was_cleared_goes_although_a_writer_shares_its_record() {
        let key = Key::new(b"key");
        let (partition, record) = cleared(&key);
        publish(&partition, 9);
        assert_eq!(census_after_collection(&partition), (1, 0, 0));
        record.latch_held().insert(Version { position: Position(10), entry: Some(Entry::new("y")) });
        drop(record);
        publish(&partition, 10);
        assert_eq!(census_after_collection(&partition), (1, 1, 0));
        assert_eq!(partition.read(Position(10), &key).entry, Some(Entry::new("y")));
    }

    #[test]
    fn what_was_cleared_stays_while_a_snapshot_sees_it() {
        let key = Key::new(b"key");
        let (partition, record) = cleared(&key);
        drop(record);
        publish(&partition, 4);
        let snapshot = partition.open();
        publish(&partition, 5);
        assert_eq!(census_after_collection(&partition), (1, 1, 1));
        assert_eq!(partition.read_at(&snapshot, &key).entry, Some(Entry::new("x")));
        partition.close(snapshot);
        assert_eq!(census_after_collection(&partition), (1, 0, 1));
    }

    #[test]
    fn a_snapshot_knows_its_count_also_when_others_have_written() {
        let partition: Partition<LatestReader> = Partition::new();
        let publish = |position, live| {
            partition.publish(Final { position: Position(position), time_ms: 0, live });
        };
        publish(3, 7);
        let mut snapshot = partition.open();
        publish(4, 8);
        // The index has no record: whoever walked it would count none.
        assert_eq!(partition.count_at(&snapshot), 7);
        // Nobody knows how many there are where a snapshot is moved to.
        snapshot.advance(Position(4), 0);
        assert_eq!(partition.count_at(&snapshot), 0);
        partition.close(snapshot);
    }
}
