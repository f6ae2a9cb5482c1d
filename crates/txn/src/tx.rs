//! The handle through which a procedure reads and writes.

use crate::Outcome;
use crate::fragments::{Done, FragmentKind, FragmentValue};
use crate::hash::mix;
use crate::ids::{Epoch, PartitionId, Position, RequestName};
use crate::key::{Key, Space};
use crate::mutant::{self, Mutant, is_active};
use crate::reply::Stop;
use crate::request::Request;
use crate::slots::SlotRange;
use crate::told::{self, Note};
use crate::value::{Entry, Value};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::iter::Fuse;
use std::sync::Arc;
use std::task::Poll;

/// Why a record is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Intent {
    /// To know it.
    Read,
    /// To write it afterwards. An engine may take its lock now, which spares restarts at hot keys.
    Update,
}

/// What a transaction knows of itself before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TxContext {
    /// Its place in the final order, or the snapshot's if it runs read-only at one. [`Position::NONE`] if it
    /// runs at a snapshot and may write.
    pub position: Position,
    /// Its epoch's time: milliseconds since 1970.
    pub now_ms: u64,
    /// What its randomness comes from, if its position does not tell: it has several, or none yet.
    pub shared_seed: Option<u64>,
    /// What people call it. Epoch 0 if it is not in the order, but runs at a snapshot.
    pub name: RequestName,
    /// A write of what all sites have is expensive: see [`Tx::spares_system_writes`].
    pub spares_system_writes: bool,
}

impl TxContext {
    /// What a request knows that stands at this place.
    pub fn of(request: &Request, position: Position, now_ms: u64) -> TxContext {
        let is_shared = request.route.partitions.len() > 1;
        TxContext {
            position,
            now_ms,
            shared_seed: is_shared.then(|| request.id.seed()),
            name: RequestName { epoch: Epoch(0), session: request.id.session, sequence: request.id.sequence },
            spares_system_writes: false,
        }
    }

    /// What a request knows that runs at a snapshot, and has its place in an order only when it ends.
    pub fn unordered(request: &Request, now_ms: u64) -> TxContext {
        TxContext { shared_seed: Some(request.id.seed()), ..TxContext::of(request, Position::NONE, now_ms) }
    }

    /// The same in the order.
    pub fn in_epoch(mut self, epoch: Epoch) -> TxContext {
        self.name.epoch = epoch;
        self
    }
}

/// A record as a transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Read {
    /// What it holds; `None` if absent. May have expired: [`Tx`] looks.
    pub entry: Option<Entry>,
    /// The position of the last write (or delete) that the reader sees; [`Position::NONE`] if there was none,
    /// if the delete is older than the tombstone horizon, or if the reader wrote the key itself.
    pub version: Position,
}

/// A part of a space, in the order of [`Key::hash64`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScanRange {
    /// Which keys.
    pub space: Space,
    /// Only keys of these slots.
    pub slots: SlotRange,
    /// Only keys with at least this hash.
    pub from_hash: u64,
    /// Stop after about this many keys (keys with equal hashes stay together).
    pub limit: usize,
}

impl ScanRange {
    /// Up to about so many keys of a space, from a hash on.
    pub fn of(space: Space, from_hash: u64, limit: usize) -> ScanRange {
        ScanRange { space, slots: SlotRange::ALL, from_hash, limit }
    }

    /// All keys of a space that have these slots.
    pub fn of_slots(space: Space, slots: SlotRange) -> ScanRange {
        ScanRange { slots, ..ScanRange::of(space, 0, usize::MAX) }
    }

    /// Whether a key lies in it, wherever it ends.
    #[inline]
    pub fn has(&self, key: &Key) -> bool {
        key.space() == self.space && self.slots.has(key)
    }
}

/// A page of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScanPage {
    /// Keys with their entries (expired ones included), ordered by hash.
    pub entries: Vec<(Key, Entry)>,
    /// Where the next page starts; `None` after the last.
    pub next_hash: Option<u64>,
}

impl ScanPage {
    /// The page of a transaction that sees its own writes (in any order; `None` entries are deletes).
    pub fn with_own(
        mut self,
        range: ScanRange,
        own: impl FnOnce(&mut dyn FnMut(&Key, Option<&Entry>)),
    ) -> ScanPage {
        let mut writes: Vec<(Key, Option<Entry>)> = Vec::new();
        let end = self.next_hash.unwrap_or(u64::MAX);
        own(&mut |key, entry| {
            let hash = key.hash64();
            if range.has(key) && hash >= range.from_hash && (hash < end || self.next_hash.is_none()) {
                writes.push((key.clone(), entry.cloned()));
            }
        });
        if writes.is_empty() {
            return self;
        }
        let place = |key: &Key| (key.hash64(), key.clone());
        writes.sort_by_cached_key(|(key, _)| place(key));
        self.entries
            .retain(|(key, _)| writes.binary_search_by_key(&place(key), |(key, _)| place(key)).is_err());
        self.entries.extend(writes.into_iter().filter_map(|(key, entry)| Some((key, entry?))));
        self.entries.sort_by_cached_key(|(key, _)| place(key));
        self
    }
}

/// The engine's side of a running transaction.
///
/// `Poll::Pending` means that the engine wants the procedure parked; it asks for the same operation again
/// when it is resumed. `Err(Stop::Restart)` means that the incarnation is doomed; every later operation then
/// says the same.
pub trait Access: Send {
    /// Reads a record: the newest version before the transaction's position, or its own write.
    fn read(&mut self, key: &Key, intent: Intent) -> Poll<Result<Read, Stop>>;
    /// Asks to go on with a write. Separate from [`Access::write`] so that a parked procedure keeps what it
    /// writes.
    fn admit_write(&mut self, key: &Key) -> Poll<Result<(), Stop>>;
    /// Writes (`Some`) or deletes (`None`) a record. Buffered until the procedure returns.
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop>;
    /// Has the transaction take effect only if nobody else writes a key between its reads and its commit,
    /// although it may not write the key itself. Where all reads are validated there is nothing to do.
    fn hold(&mut self, _: &Key) {}
    /// Lists a part of a space.
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>>;
    /// Lists a part of a space as one of the transaction's partitions has it, without the transaction's own
    /// writes. An engine that has one partition only has it all.
    fn scan_at(&mut self, _: PartitionId, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        self.scan(range)
    }
    /// The number of entries of the user's space, expired ones that were not yet removed included.
    fn count(&mut self) -> Poll<Result<u64, Stop>>;
    /// Removes every entry of the user's space.
    fn clear(&mut self) -> Poll<Result<(), Stop>>;
    /// The procedure is about to touch the users' records that have these hashes: an engine may load them
    /// into the processor's caches together. Nothing depends on it.
    fn expect(&mut self, _hashes: &[u64]) {}
    /// Whether the incarnation is doomed: long computations between operations look here.
    fn doomed(&self) -> bool;
    /// If the last operation was pending only because the worker's budget is spent: lets it go on all the
    /// same, and says true. For procedures whose suspension costs as much as all that they have done so far.
    fn overdraw(&mut self) -> bool {
        false
    }
    /// Gives the engine its own type back after [`lend`].
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

#[cfg(feature = "shuttle")]
shuttle::thread_local! {
    static LENT: RefCell<Option<Box<dyn Access>>> = RefCell::new(None);
    static REFUSED: Cell<Option<Stop>> = Cell::new(None);
}
#[cfg(not(feature = "shuttle"))]
thread_local! {
    static LENT: RefCell<Option<Box<dyn Access>>> = const { RefCell::new(None) };
    /// Why an operation of the present poll was first refused: what it touches is not where the transaction
    /// runs, or the transaction writes although its request only reads.
    static REFUSED: Cell<Option<Stop>> = const { Cell::new(None) };
}

/// Runs `poll` (one poll of a procedure's future) with `access` behind every [`Tx`] on this thread, and gives
/// it back.
///
/// # Panics
/// Re-raises a panic of `poll` only if the access was lost; engines catch panics inside `poll`.
pub fn lend<R>(access: Box<dyn Access>, poll: impl FnOnce() -> R) -> (Box<dyn Access>, R) {
    let outer = LENT.with(|lent| lent.borrow_mut().replace(access));
    let result = poll();
    let access = LENT.with(|lent| std::mem::replace(&mut *lent.borrow_mut(), outer));
    (access.expect("a poll gives back what it was lent"), result)
}

/// How a request ends that only reads, as its footprint says, and whose procedure writes.
pub const WRITE_REFUSED: Stop = Stop::Abort(std::borrow::Cow::Borrowed(
    "ERR a transaction that was declared read-only tried to write: submit it as one that may write",
));

/// Runs one poll of a procedure in the same way. A procedure that strays ends there ([`Stop::Undeclared`]),
/// whatever it makes of the refusal: it would take for absent what is elsewhere. So does one that writes
/// although its request only reads ([`WRITE_REFUSED`]).
pub fn lend_to_procedure<E>(
    access: Box<dyn Access>,
    poll: impl FnOnce() -> Result<Poll<Outcome>, E>,
) -> (Box<dyn Access>, Result<Poll<Outcome>, E>) {
    let outer = REFUSED.with(|refused| refused.replace(None));
    let (access, result) = lend(access, poll);
    let refused = REFUSED.with(|refused| refused.replace(outer));
    let result = result.map(|polled| match refused {
        Some(stop) => Poll::Ready(Err(stop)),
        None => polled,
    });
    (access, result)
}

/// Notes a refusal: see [`lend_to_procedure`].
fn noted<T>(result: Result<T, Stop>) -> Result<T, Stop> {
    if let Err(stop @ Stop::Undeclared(_)) = &result {
        refuse(stop.clone());
    }
    result
}

#[cold]
fn refuse(stop: Stop) {
    REFUSED.with(|refused| {
        let first = refused.take();
        refused.set(first.or(Some(stop)));
    });
}

/// How many records [`Tx::expect`] has loaded together: all of them are in the nearest cache at once.
pub const EXPECTED_MAX: usize = 32;

/// What a procedure does next, and the record that it touches by that.
pub trait Touches {
    /// The hash of the users' key that it touches, if it touches one.
    fn hash(&self) -> Option<u64>;
}

impl Touches for Key {
    fn hash(&self) -> Option<u64> {
        (self.space() == Space::User).then(|| self.hash64())
    }
}

impl<T: Touches> Touches for Option<T> {
    fn hash(&self) -> Option<u64> {
        self.as_ref().and_then(Touches::hash)
    }
}

/// See [`Tx::expecting`].
#[derive(Debug)]
pub struct Expecting<I: Iterator> {
    tx: Tx,
    items: Fuse<I>,
    /// Those that the engine was told of.
    ahead: VecDeque<I::Item>,
}

impl<I: Iterator<Item: Touches>> Iterator for Expecting<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        if let Some(item) = self.ahead.pop_front() {
            return Some(item);
        }
        let first = self.items.next()?;
        let Some(second) = self.items.next() else { return Some(first) };
        self.ahead.push_back(second);
        self.ahead.extend(self.items.by_ref().take(EXPECTED_MAX - 2));
        self.tx.expect(std::iter::once(&first).chain(&self.ahead).filter_map(Touches::hash));
        Some(first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.items.size_hint();
        let ahead = self.ahead.len();
        (least.saturating_add(ahead), most.and_then(|most| most.checked_add(ahead)))
    }
}

/// The handle through which a procedure reads and writes. It works only inside the procedure that it was
/// given to.
#[derive(Clone, Debug)]
pub struct Tx {
    context: TxContext,
    /// Says which keys are where it runs, unless all are.
    request: Option<Arc<Request>>,
    /// Its request may write.
    may_write: bool,
}

impl Tx {
    /// For engines: the handle of the transaction that a request asks for. Its operations reach the
    /// [`Access`] lent to the polling thread.
    pub fn of(context: TxContext, request: &Arc<Request>) -> Tx {
        Tx {
            request: request.route.part().map(|_| request.clone()),
            may_write: !request.footprint.read_only,
            ..Tx::new(context)
        }
    }

    /// The handle of a transaction that may touch all keys.
    pub fn new(mut context: TxContext) -> Tx {
        if is_active(Mutant::LocalClock)
            && let Some(now_ms) = mutant::local_clock_ms()
        {
            context.now_ms = now_ms;
        }
        Tx { context, request: None, may_write: true }
    }

    fn with<R>(&self, operation: impl FnOnce(&mut dyn Access) -> R) -> R {
        LENT.with(|lent| match &mut *lent.borrow_mut() {
            Some(access) => operation(&mut **access),
            None => panic!("a Tx was used outside the procedure that it was given to: await it only there"),
        })
    }

    /// The transaction's place in the final order of its partition. A transaction over several partitions has
    /// another one at each: what keys it reads and writes, and what it replies, must not depend on it.
    pub fn position(&self) -> Position {
        self.context.position
    }
    /// What people call the transaction's request, if it is in the order. For messages only: the requests of
    /// a log that is replayed have the names that they had.
    pub fn name(&self) -> Option<RequestName> {
        (self.context.name.epoch > Epoch(0)).then_some(self.context.name)
    }
    /// The time of the transaction's epoch, in milliseconds since 1970. The only clock that a procedure has.
    pub fn now_ms(&self) -> u64 {
        self.context.now_ms
    }
    /// Stops a transaction at a key that is not where it runs: it comes again, at the partitions that have it
    /// all. (The cluster could not know before it ran.)
    #[inline]
    fn stays_at(&self, key: &Key) -> Result<(), Stop> {
        match &self.request {
            Some(request) if !request.route.holds(key) => {
                let missing = request.route.slots.partition_of_key(key);
                noted(Err(Stop::Undeclared(Some(missing))))
            }
            _ => Ok(()),
        }
    }

    /// The same for what is at no partition alone.
    fn stays_in(&self, space: Space) -> Result<(), Stop> {
        match self.request.is_some() && space == Space::User {
            true => noted(Err(Stop::Undeclared(None))),
            false => Ok(()),
        }
    }
    /// Stops a transaction that writes although its request only reads: a defect of the procedure's
    /// footprint, which would leave the write at some replicas only.
    #[inline]
    fn may_write(&self) -> Result<(), Stop> {
        if self.may_write {
            return Ok(());
        }
        refuse(WRITE_REFUSED);
        Err(WRITE_REFUSED)
    }
    /// Whether the transaction should write no record of the store's own that its client has not asked for: a
    /// site of another region may have to agree to the write.
    pub fn spares_system_writes(&self) -> bool {
        self.context.spares_system_writes
    }
    /// A seed for randomness that is the same at every replica and in every incarnation.
    pub fn seed(&self) -> u64 {
        if is_active(Mutant::LocalChance) {
            return mix(mutant::whim() as u64);
        }
        let seed = self.context.shared_seed.unwrap_or(self.context.position.0);
        mix(seed ^ self.context.now_ms.rotate_left(32))
    }
    /// Whether this incarnation is doomed: a long computation polls this and stops with [`Stop::Restart`].
    pub fn doomed(&self) -> bool {
        self.with(|access| access.doomed())
    }
    /// Has the engine load the records of several users' keys together that the procedure is about to touch,
    /// by the hashes of the keys. Those beyond the first [`EXPECTED_MAX`] are left out.
    pub fn expect(&self, hashes: impl IntoIterator<Item = u64>) {
        let mut expected = [0; EXPECTED_MAX];
        let places = expected.iter_mut().zip(hashes);
        let count = places.map(|(place, hash)| *place = hash).count();
        // One record alone is loaded by who touches it.
        if count > 1 {
            self.with(|access| access.expect(&expected[..count]));
        }
    }
    /// The same for items that come one by one: [`Tx::expect`] is told of some ahead of their turn.
    pub fn expecting<I: Iterator<Item: Touches>>(&self, items: I) -> Expecting<I> {
        Expecting { tx: self.clone(), items: items.fuse(), ahead: VecDeque::new() }
    }
    /// See [`Access::overdraw`].
    pub fn overdraw(&self) -> bool {
        self.with(|access| access.overdraw())
    }

    /// Reads a record with its version. Expired entries read as absent.
    pub async fn read(&mut self, key: &Key, intent: Intent) -> Result<Read, Stop> {
        let (read, has_expired) = self.read_unnoted(key, intent).await?;
        if has_expired {
            told::note_expired(key);
        }
        Ok(read)
    }
    /// The same, and whether it found an entry that has expired.
    async fn read_unnoted(&mut self, key: &Key, intent: Intent) -> Result<(Read, bool), Stop> {
        self.stays_at(key)?;
        let read = poll_fn(|_| self.with(|access| access.read(key, intent))).await;
        let mut read = noted(read)?;
        let has_expired = read.entry.take_if(|entry| entry.expired(self.context.now_ms)).is_some();
        Ok((read, has_expired))
    }
    /// See [`Access::hold`]. The key has been read.
    pub fn hold(&mut self, key: &Key) {
        self.with(|access| access.hold(key));
    }
    /// The entry of a key: its value and its time to live.
    pub async fn entry(&mut self, key: &Key) -> Result<Option<Entry>, Stop> {
        Ok(self.read(key, Intent::Read).await?.entry)
    }
    /// The entry of a key that is about to be written.
    pub async fn entry_for_update(&mut self, key: &Key) -> Result<Option<Entry>, Stop> {
        Ok(self.read(key, Intent::Update).await?.entry)
    }
    /// The value of a key.
    pub async fn get(&mut self, key: &Key) -> Result<Option<Value>, Stop> {
        Ok(self.entry(key).await?.map(|entry| entry.value))
    }
    /// The value of a key that is about to be written: spares a restart where others write it too.
    pub async fn get_for_update(&mut self, key: &Key) -> Result<Option<Value>, Stop> {
        Ok(self.entry_for_update(key).await?.map(|entry| entry.value))
    }
    /// Sets a key to a value that never expires.
    pub async fn put(&mut self, key: &Key, value: impl Into<Value>) -> Result<(), Stop> {
        self.put_entry(key, Entry::new(value)).await
    }
    /// Sets a key to an entry.
    pub async fn put_entry(&mut self, key: &Key, entry: Entry) -> Result<(), Stop> {
        self.write(key, Some(entry)).await
    }
    /// Deletes a key, whether it exists or not.
    pub async fn delete(&mut self, key: &Key) -> Result<(), Stop> {
        self.write(key, None).await
    }
    /// Writes (`Some`) or deletes (`None`) a record.
    pub(crate) async fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.admit_write(key).await?;
        told::note_write(key, entry.as_ref());
        noted(self.with(|access| access.write(key, entry)))
    }
    async fn admit_write(&mut self, key: &Key) -> Result<(), Stop> {
        self.may_write()?;
        self.stays_at(key)?;
        noted(poll_fn(|_| self.with(|access| access.admit_write(key))).await)
    }
    /// What a fragment of a kind finds in its record.
    pub(crate) async fn find(&mut self, key: &Key, kind: FragmentKind) -> Result<Option<Entry>, Stop> {
        let (entry, has_expired) = self.find_unnoted(key, kind).await?;
        if has_expired {
            told::note_expired(key);
        }
        Ok(entry)
    }
    /// The same for [`crate::fragments::InTurn`], which notes whether an operation finds an entry that has
    /// expired: that there is one is the second value.
    ///
    /// # Errors
    /// The engine stops the transaction.
    pub async fn find_unnoted(
        &mut self,
        key: &Key,
        kind: FragmentKind,
    ) -> Result<(Option<Entry>, bool), Stop> {
        let intent = match kind {
            FragmentKind::Put => return Ok((None, false)),
            FragmentKind::Read => Intent::Read,
            FragmentKind::Update => Intent::Update,
        };
        let (read, has_expired) = self.read_unnoted(key, intent).await?;
        Ok((read.entry, has_expired))
    }
    /// Does what [`crate::fragments::InTurn`] has done to a record, which has noted its writes.
    pub async fn write_done(&mut self, key: &Key, done: Done) -> Result<FragmentValue, Stop> {
        if let Some(entry) = done.write {
            self.admit_write(key).await?;
            noted(self.with(|access| access.write(key, entry)))?;
        }
        Ok(done.value)
    }

    /// Takes a note of what the procedure does, if anybody wants to be told.
    #[inline]
    pub fn note(&self, note: impl FnOnce() -> Note) {
        told::note(note);
    }
    /// Lists a part of a space in hash order, without expired entries.
    pub async fn scan(&mut self, range: ScanRange) -> Result<ScanPage, Stop> {
        self.stays_in(range.space)?;
        let page = poll_fn(|_| self.with(|access| access.scan(range))).await;
        let mut page = noted(page)?;
        page.entries.retain(|(_, entry)| !entry.expired(self.context.now_ms));
        Ok(page)
    }
    /// Lists a part of a space as one of the transaction's partitions had it before the transaction, with the
    /// entries that have expired and were not yet removed.
    pub async fn scan_at(&mut self, partition: PartitionId, range: ScanRange) -> Result<ScanPage, Stop> {
        noted(poll_fn(|_| self.with(|access| access.scan_at(partition, range))).await)
    }
    /// The number of user entries (as DBSIZE counts: entries that expired and were not yet removed are
    /// counted).
    pub async fn count(&mut self) -> Result<u64, Stop> {
        self.stays_in(Space::User)?;
        noted(poll_fn(|_| self.with(|access| access.count())).await)
    }
    /// Removes every user entry (FLUSHALL).
    pub async fn clear(&mut self) -> Result<(), Stop> {
        self.may_write()?;
        self.stays_in(Space::User)?;
        noted(poll_fn(|_| self.with(|access| access.clear())).await)?;
        told::note(|| Note::Cleared);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// Notes what it is told to expect.
    struct Noting(Arc<Mutex<Vec<Vec<u64>>>>);

    impl Access for Noting {
        fn read(&mut self, _: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
            Poll::Pending
        }
        fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
            Poll::Pending
        }
        fn write(&mut self, _: &Key, _: Option<Entry>) -> Result<(), Stop> {
            Ok(())
        }
        fn scan(&mut self, _: ScanRange) -> Poll<Result<ScanPage, Stop>> {
            Poll::Pending
        }
        fn count(&mut self) -> Poll<Result<u64, Stop>> {
            Poll::Pending
        }
        fn clear(&mut self) -> Poll<Result<(), Stop>> {
            Poll::Pending
        }
        fn expect(&mut self, hashes: &[u64]) {
            self.0.lock().unwrap().push(hashes.to_vec());
        }
        fn doomed(&self) -> bool {
            false
        }
        fn into_any(self: Box<Self>) -> Box<dyn Any> {
            self
        }
    }

    /// What the engine is told of items, by the numbers of their keys, and at which item.
    fn told_of(items: Vec<Option<Key>>) -> Vec<(usize, Vec<u64>)> {
        let notes = Arc::new(Mutex::new(Vec::new()));
        let mut told = Vec::new();
        lend(Box::new(Noting(notes.clone())), || {
            let tx = Tx::new(TxContext::default());
            let mut given = Vec::new();
            for (place, item) in tx.expecting(items.iter().cloned()).enumerate() {
                given.push(item);
                told.extend(notes.lock().unwrap().drain(..).map(|hashes| (place, hashes)));
            }
            assert_eq!(given, items, "nothing is lost, and the order stays");
        });
        told
    }

    #[test]
    fn the_engine_is_told_of_records_before_their_turn() {
        let key = |number: usize| Key::from(number.to_string().as_str());
        let hashes = |numbers: std::ops::Range<usize>| numbers.map(|number| key(number).hash64()).collect();
        assert_eq!(told_of(vec![]), []);
        assert_eq!(told_of(vec![Some(key(0))]), [], "one alone is loaded by who touches it");
        assert_eq!(told_of((0..3).map(|number| Some(key(number))).collect()), [(0, hashes(0..3))]);
        let many = EXPECTED_MAX + 2;
        assert_eq!(
            told_of((0..many).map(|number| Some(key(number))).collect()),
            [(0, hashes(0..EXPECTED_MAX)), (EXPECTED_MAX, hashes(EXPECTED_MAX..many))]
        );
        let others = vec![Some(key(0)), None, Some(Key::system(b"s")), Some(key(1)), None];
        assert_eq!(told_of(others), [(0, hashes(0..2))], "what touches no users' key is passed over");
    }
}
