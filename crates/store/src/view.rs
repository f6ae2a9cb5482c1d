//! The records as seen from outside an engine: at final snapshots.

use crate::digest::Digests;
use crate::history::NoPast;
use crate::usage::Keeping;
use txn::tx::Read;
use txn::{Entry, Key, Position, ScanPage, ScanRange};

/// A final position with its epoch time, which a reader holds so that the versions it needs are not
/// collected.
///
/// Guarantees: (1) every transaction up to `position` had final-committed when the snapshot was opened, so
/// what it reads never changes; (2) until it is closed, no version that it can see is collected; (3)
/// `time_ms` is the epoch time of `position`, read atomically with it, or, in a snapshot of the past, later.
#[derive(Debug)]
pub struct Snapshot {
    /// The snapshot's place in the final order.
    pub position: Position,
    /// The epoch time of that place; of a snapshot of the past, the time that was asked for.
    pub time_ms: u64,
    /// The number of live user entries there, as far as it was known when the snapshot was opened: counting
    /// takes a walk.
    pub(crate) live: Option<i64>,
    pub(crate) slot: usize,
    /// From where on versions are kept for it.
    pub(crate) pinned: Position,
}

impl Snapshot {
    /// Moves the snapshot to a later position, up to which everything has final-committed, with its time.
    /// What it protects stays what it was: all versions from where it was opened.
    pub fn advance(&mut self, position: Position, time_ms: u64) {
        assert!(position >= self.position, "a snapshot never goes back");
        (self.position, self.time_ms, self.live) = (position, time_ms, None);
    }
}

/// A record as it is loaded from a checkpoint, or written to one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The key.
    pub key: Key,
    /// The position of the last write.
    pub version: Position,
    /// What it holds; `None` for a tombstone within the horizon.
    pub entry: Option<Entry>,
}

/// Sizes of a partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Entries of the user's space at the final position.
    pub live: u64,
    /// Records in the index: entries, tombstones and placeholders.
    pub records: u64,
    /// Versions, tombstones included, that are kept for snapshots, for the horizon, or because nobody
    /// collected them yet.
    pub versions: u64,
    /// Locks, waiters and read dependencies that the engine keeps in the records, dead ones that nobody
    /// collected yet included.
    pub held: u64,
}

/// An entry that may be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its key.
    pub key: Key,
    /// The position of its last write.
    pub version: Position,
    /// When it expires, in milliseconds since 1970; 0: never.
    pub expires_at_ms: u64,
    /// The heap bytes of its value.
    pub value_bytes: usize,
    /// Of two, the one that has more was used less: see [`Keeping`].
    pub idleness: u64,
}

/// Access to the records of a partition at final snapshots, whatever the engine.
pub trait View: Send + Sync {
    /// Opens a snapshot at the newest final position.
    fn open(&self) -> Snapshot;
    /// Keeps the versions that readers since a time need (in milliseconds since 1970, by the epochs' times),
    /// from now on; none, without a time. To be called again while time goes by, by one thread.
    fn keep_history(&self, since_ms: Option<u64>);
    /// Forgets the older half of the past that is kept, for its memory; all of it, where it is shorter than a
    /// second. Gives how many milliseconds of it are left.
    fn shorten_history(&self) -> u64;
    /// The time of the oldest moment that can be read ([`View::open_at`]); `None` if no past is kept.
    fn oldest_past_ms(&self) -> Option<u64>;
    /// Opens a snapshot of the past: behind all transactions of epochs whose time is not later than this.
    /// Where that is not over yet, behind those that have final-committed.
    fn open_at(&self, time_ms: u64) -> Result<Snapshot, NoPast>;
    /// Closes a snapshot.
    fn close(&self, snapshot: Snapshot);
    /// Loads what looking up users' keys with these hashes will need into the processor's caches: worth while
    /// for several that are about to be looked up.
    fn warm(&self, hashes: &[u64]);
    /// Reads a record at a snapshot.
    fn read_at(&self, snapshot: &Snapshot, key: &Key) -> Read;
    /// Lists a part of a space at a snapshot.
    fn scan_at(&self, snapshot: &Snapshot, range: ScanRange) -> ScanPage;
    /// The same, but a page ends before its limit when it has met many records that were deleted and are not
    /// collected yet. Where it ends differs between replicas.
    fn scan_some(&self, snapshot: &Snapshot, range: ScanRange) -> ScanPage;
    /// The number of entries of the user's space at a snapshot. O(1) if nothing committed since it was
    /// opened.
    fn count_at(&self, snapshot: &Snapshot) -> u64;
    /// The part of that number that a shard has, below [`crate::SHARDS`].
    fn count_of_shard_at(&self, snapshot: &Snapshot, shard: usize) -> u64;
    /// Copies a part of all records at a snapshot (tombstones within the horizon included), for a checkpoint:
    /// shard by shard, from `shard` on until at least `limit` images are out. Returns the next shard, `None`
    /// after the last.
    fn images_at(
        &self,
        snapshot: &Snapshot,
        shard: usize,
        limit: usize,
        out: &mut Vec<Image>,
    ) -> Option<usize>;
    /// Loads a record into an empty partition that nobody reads yet.
    fn load(&self, image: Image);
    /// Ends loading: the partition is at `position` with epoch time `time_ms` and these range tombstones, and
    /// its state digest is unknown.
    fn loaded(&self, position: Position, time_ms: u64, clears: &[Position]);
    /// The state digest.
    fn digests(&self) -> &Digests;
    /// The range tombstones at a snapshot, for a checkpoint.
    fn clears_at(&self, snapshot: &Snapshot) -> Vec<Position>;
    /// The newest final position.
    fn final_position(&self) -> Position;
    /// The epoch time of the newest final position.
    fn final_time_ms(&self) -> u64;
    /// Collects versions, tombstones and placeholders that nobody needs any more, at most `records` of them.
    /// Returns how many it has looked at: if there were fewer, it has looked at all. Call it when there is
    /// nothing better to do.
    fn collect(&self, records: usize) -> usize;
    /// How many shards [`View::collect`] has looked through so far: [`crate::SHARDS`] of them have all
    /// records.
    fn swept(&self) -> usize;
    /// The position up to which nobody needs other versions than the newest of each key.
    fn watermark(&self) -> Position;
    /// Collects what nobody needs any more of these keys, at once: for whoever knows that there is something.
    fn collect_keys(&self, keys: &mut dyn Iterator<Item = Key>);
    /// Says what is kept from now on of how records are used, and the time. To be called again while time
    /// goes by.
    fn keep_usage(&self, keeping: Keeping, now_ms: u64);
    /// How little a key is used, as [`Candidate::idleness`]; `None` if it has no record. Asking is no use.
    fn idleness(&self, key: &Key) -> Option<u64>;
    /// Some entries of the user's space at the newest final position: of up to `limit` records of a shard
    /// (the same for all numbers that are equal modulo [`crate::SHARDS`]), of those behind the number
    /// `behind` of others.
    fn candidates(&self, shard: usize, behind: usize, limit: usize) -> Vec<Candidate>;
    /// Counts everything. Walks the index: for tests and reports.
    fn census(&self) -> Census;
}
