//! Read-only transactions at a final snapshot: they bypass the order and register no reads.
//!
//! A snapshot is opened at the newest final position, so it contains every write that was acknowledged before
//! the read began, and nothing that could still be retracted: the read is strictly serializable at no cost to
//! the order.
//!
//! Time is the one thing that a snapshot lacks. The read runs as if an empty batch were ordered now: its
//! clock is the caller's `now_ms` (never less than the snapshot's). That is sound while nothing that the read
//! meets expires between the two times, since every later epoch then agrees with what it saw. If something
//! does, two readers with different clocks could disagree about it, so the read is given back
//! ([`ReadOutcome::MustOrder`]) and its place is decided by the order.
//!
//! A read of the past ([`SnapshotReader::run_at`]) has no such doubt: its clock is the time that it asks for,
//! and the order has gone past that. It cannot be ordered, so an [`Interrupt`] also ends its walks over keys.

use crate::engine::Engine;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use store::{NoPast, SHARDS, Snapshot, View};
use txn::fragments::Operation;
use txn::mutant::{Mutant, is_active};
use txn::tx::{self, Read, WRITE_REFUSED};
use txn::{
    Access, Call, Entry, Intent, Key, Outcome, Position, Request, ScanPage, ScanRange, Space, Stop, Tx,
    TxContext, slots,
};

/// How a read at a snapshot ended.
#[derive(Debug)]
pub enum ReadOutcome {
    /// It has its outcome.
    Done(Outcome),
    /// It met an entry that expires between the snapshot's time and now: submit the request to the order
    /// instead.
    MustOrder,
    /// Somebody used its [`Interrupt`].
    Interrupted,
}

/// Stops a long computation of a [`SnapshotReader`] from another thread.
///
/// Only a read outside the order can be stopped so: an ordered transaction ends in the same way at every
/// replica and in every replay. A run counts as a long computation once it has asked whether it is doomed,
/// and one in the past also once it walks over keys.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicU8>);

/// Nothing runs that could be stopped.
const CALM: u8 = 0;
/// A long computation runs.
const COMPUTING: u8 = 1;
/// It is to stop.
const INTERRUPTED: u8 = 2;

impl Interrupt {
    /// Asks the computation that runs now to stop. False if there is none.
    pub fn interrupt(&self) -> bool {
        match self.0.compare_exchange(COMPUTING, INTERRUPTED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => true,
            Err(state) => state == INTERRUPTED,
        }
    }

    /// For the computation: whether to stop.
    fn asked(&self) -> bool {
        match self.0.load(Ordering::Relaxed) {
            // Only this thread leaves this state.
            CALM => {
                self.0.store(COMPUTING, Ordering::SeqCst);
                false
            }
            state => state == INTERRUPTED,
        }
    }

    /// The run has ended: whether it was asked to stop.
    fn end(&self) -> bool {
        self.0.swap(CALM, Ordering::SeqCst) == INTERRUPTED
    }
}

/// How many of the users' records a reader's runs looked for: those that were there (hits), and those that
/// were not (misses). The reader's thread counts, and any thread may look.
#[derive(Debug, Default)]
pub struct Lookups {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Lookups {
    fn add(&self, hits: u64, misses: u64) {
        // Only the reader's thread writes them.
        let add = |count: &AtomicU64, more: u64| {
            count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        };
        add(&self.hits, hits);
        add(&self.misses, misses);
    }

    /// Hits and misses so far.
    pub fn get(&self) -> (u64, u64) {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.hits), get(&self.misses))
    }
}

/// Called by a long computation every now and then, on its thread: it may hold that up.
pub type Pause = Arc<dyn Fn() + Send + Sync>;

/// Runs read-only requests for one thread.
///
/// Keeps its side of the transaction between runs, so that a read allocates nothing but its procedure's
/// future; and a call that reads one record has no future.
pub struct SnapshotReader {
    engine: Arc<dyn Engine>,
    access: Option<Box<SnapshotAccess>>,
    interrupt: Interrupt,
    pause: Option<Pause>,
    looks: u64,
    lookups: Arc<Lookups>,
}

impl SnapshotReader {
    /// A reader of an engine's records.
    pub fn new(engine: Arc<dyn Engine>) -> SnapshotReader {
        SnapshotReader {
            engine,
            access: None,
            interrupt: Interrupt::default(),
            pause: None,
            looks: 0,
            lookups: Arc::default(),
        }
    }

    /// The same, whose long computations pause so.
    pub fn pausing(self, pause: Pause) -> SnapshotReader {
        SnapshotReader { pause: Some(pause), ..self }
    }

    /// How many records, pages and counts the last run asked for: what it cost.
    pub fn looks(&self) -> u64 {
        self.looks
    }

    /// What this reader's runs looked for, as long as it lives.
    pub fn lookups(&self) -> Arc<Lookups> {
        self.lookups.clone()
    }

    /// Has users' records that are about to be read, by the hashes of their keys, loaded into the processor's
    /// caches.
    pub fn expect(&self, hashes: &[u64]) {
        self.engine.view().warm(hashes);
    }

    /// What stops this reader's long computations.
    pub fn interrupt(&self) -> Interrupt {
        self.interrupt.clone()
    }

    /// Runs a request at the newest final snapshot. `now_ms` is the caller's clock, in milliseconds since
    /// 1970.
    pub fn run(&mut self, request: &Arc<Request>, now_ms: u64) -> ReadOutcome {
        self.run_where(request, None, now_ms)
    }

    /// The same in a cluster of several partitions, for a request that was routed to this one when it had the
    /// slots that it got or gave under a version, 0 if it has those that it began with. At a snapshot where
    /// it has others the outcome is
    /// [`Stop::Undeclared`]: the request may belong elsewhere.
    pub fn run_where(
        &mut self,
        request: &Arc<Request>,
        slots_version: Option<u32>,
        now_ms: u64,
    ) -> ReadOutcome {
        if let Some((key, operation)) = request.procedure.one_read(&request.args)
            && request.route.holds(&key)
        {
            return self.read_one(&key, operation, slots_version, now_ms);
        }
        match self.open(slots_version, now_ms) {
            Ok((access, now_ms)) => self.run_in(access, request, now_ms),
            Err(stop) => ReadOutcome::Done(Err(stop)),
        }
    }

    /// Runs a request at a moment of the past, in milliseconds since 1970: with the entries that were there,
    /// and had not expired, when that time was over.
    ///
    /// # Errors
    /// The versions of that time are not kept.
    pub fn run_at(&mut self, request: &Arc<Request>, time_ms: u64) -> Result<ReadOutcome, NoPast> {
        let snapshot = self.engine.view().open_at(time_ms)?;
        let mut access = self.access_at(snapshot, time_ms);
        access.is_past = true;
        Ok(self.run_in(access, request, time_ms))
    }

    fn run_in(
        &mut self,
        mut access: Box<SnapshotAccess>,
        request: &Arc<Request>,
        now_ms: u64,
    ) -> ReadOutcome {
        let position = access.snapshot.as_ref().map_or(Position::NONE, |snapshot| snapshot.position);
        let (lent, polled) = tx::lend_to_procedure(access, || {
            // A panic must not escape: the snapshot would stay open, and the thread serves other clients.
            catch_unwind(AssertUnwindSafe(|| {
                let call = Call::new(request.clone());
                let context = TxContext::of(request, position, now_ms);
                let mut future = request.procedure.run(Tx::of(context, request), call);
                future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            }))
        });
        access = lent.into_any().downcast().expect("whoever polls gets back the access that it lent");
        let (must_order, hits, misses) = self.close(access);
        if self.interrupt.end() {
            return ReadOutcome::Interrupted;
        }
        if must_order {
            return ReadOutcome::MustOrder;
        }
        self.lookups.add(hits, misses);
        ReadOutcome::Done(match polled {
            Ok(Poll::Ready(outcome)) => outcome,
            Ok(Poll::Pending) => Err(Stop::abort(format!(
                "ERR procedure '{}' awaited something other than its transaction: await only its Tx",
                request.procedure.name()
            ))),
            Err(panic) => Err(Stop::abort(format!(
                "ERR procedure '{}' panicked: {}",
                request.procedure.name(),
                panic_text(&*panic)
            ))),
        })
    }
}

impl SnapshotReader {
    /// [`SnapshotReader::run_where`] for a call that reads one record of this partition and does this with it
    /// ([`txn::Procedure::one_read`]).
    pub fn read_one(
        &mut self,
        key: &Key,
        operation: Operation<'_>,
        slots_version: Option<u32>,
        now_ms: u64,
    ) -> ReadOutcome {
        let (mut access, now_ms) = match self.open(slots_version, now_ms) {
            Ok(opened) => opened,
            Err(stop) => return ReadOutcome::Done(Err(stop)),
        };
        let read = catch_unwind(AssertUnwindSafe(|| access.read(key, Intent::Read)));
        let (must_order, hits, misses) = self.close(access);
        if must_order {
            return ReadOutcome::MustOrder;
        }
        self.lookups.add(hits, misses);
        ReadOutcome::Done(match read {
            Ok(Poll::Ready(read)) => read.map(|read| {
                let found = read.entry.as_ref().filter(|entry| !entry.expired(now_ms));
                operation.read(found, now_ms)
            }),
            Ok(Poll::Pending) => Err(Stop::abort("ERR a read at a snapshot waited")),
            Err(panic) => Err(Stop::abort(format!("ERR a read panicked: {}", panic_text(&*panic)))),
        })
    }

    /// Opens a snapshot, if its slots are those of a version, for a run that lasts until
    /// [`SnapshotReader::close`]. Gives the run's time, too.
    fn open(&mut self, slots_version: Option<u32>, now_ms: u64) -> Result<(Box<SnapshotAccess>, u64), Stop> {
        let view = self.engine.view();
        let snapshot = match &mut self.access {
            Some(access) if is_active(Mutant::StaleSnapshot) => access.snapshot.take(),
            _ => None,
        };
        let snapshot = snapshot.unwrap_or_else(|| view.open());
        if let Some(wanted) = slots_version {
            let read = view.read_at(&snapshot, &slots::version_key());
            if slots::version_of(read.entry.as_ref()) != wanted {
                view.close(snapshot);
                return Err(Stop::Undeclared(None));
            }
        }
        let now_ms = now_ms.max(snapshot.time_ms);
        Ok((self.access_at(snapshot, now_ms), now_ms))
    }

    /// The access through which a run reads a snapshot.
    fn access_at(&mut self, snapshot: Snapshot, now_ms: u64) -> Box<SnapshotAccess> {
        let mut access = match self.access.take() {
            Some(access) => access,
            None => {
                Box::new(SnapshotAccess::new(self.engine.clone(), self.interrupt.clone(), self.pause.clone()))
            }
        };
        access.snapshot = Some(snapshot);
        access.now_ms = now_ms;
        access.is_past = false;
        access.must_order = false;
        (access.looks, access.hits, access.misses) = (0, 0, 0);
        access
    }

    /// Closes the snapshot of a run. Gives whether the order must decide, and the hits and misses.
    fn close(&mut self, mut access: Box<SnapshotAccess>) -> (bool, u64, u64) {
        if !is_active(Mutant::StaleSnapshot)
            && let Some(snapshot) = access.snapshot.take()
        {
            self.engine.view().close(snapshot);
        }
        self.looks = access.looks;
        let ended = (access.must_order, access.hits, access.misses);
        self.access = Some(access);
        ended
    }
}

/// Runs one read-only request at the newest final snapshot of `engine`. See [`SnapshotReader`] to run many.
pub fn run_read_only(engine: &Arc<dyn Engine>, request: &Arc<Request>, now_ms: u64) -> ReadOutcome {
    SnapshotReader::new(engine.clone()).run(request, now_ms)
}

/// The message of a panic, as far as it has one.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    if let Some(text) = panic.downcast_ref::<&'static str>() {
        text
    } else if let Some(text) = panic.downcast_ref::<String>() {
        text
    } else {
        "(no message)"
    }
}

struct SnapshotAccess {
    engine: Arc<dyn Engine>,
    /// Open while a request runs.
    snapshot: Option<Snapshot>,
    now_ms: u64,
    is_past: bool,
    must_order: bool,
    looks: u64,
    hits: u64,
    misses: u64,
    interrupt: Interrupt,
    pause: Option<Pause>,
}

impl SnapshotAccess {
    fn new(engine: Arc<dyn Engine>, interrupt: Interrupt, pause: Option<Pause>) -> SnapshotAccess {
        SnapshotAccess {
            engine,
            interrupt,
            pause,
            snapshot: None,
            now_ms: 0,
            is_past: false,
            must_order: false,
            looks: 0,
            hits: 0,
            misses: 0,
        }
    }

    fn at<R>(&mut self, look: impl FnOnce(&dyn View, &Snapshot) -> R) -> Result<R, Stop> {
        self.looks += 1;
        match &self.snapshot {
            Some(snapshot) if !self.must_order => Ok(look(self.engine.view(), snapshot)),
            _ => Err(Stop::Restart),
        }
    }

    /// A step of a walk over keys. In the past it ends a run that is asked to stop, and gives others their
    /// turn.
    fn step<R>(&mut self, look: impl FnOnce(&dyn View, &Snapshot) -> R) -> Result<R, Stop> {
        if self.is_past && self.doomed() {
            return Err(Stop::Restart);
        }
        self.at(look)
    }

    /// Whether the entry's expiry lies after the snapshot and not after now: the order must say on which side
    /// it falls.
    fn expiry_undecided(&self, entry: &Entry) -> bool {
        let snapshot_ms = self.snapshot.as_ref().map_or(0, |snapshot| snapshot.time_ms);
        entry.expired(self.now_ms) && !entry.expired(snapshot_ms) && !is_active(Mutant::DecideExpiryAlone)
    }
}

impl Access for SnapshotAccess {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        let read = self.at(|view, snapshot| view.read_at(snapshot, key))?;
        if read.entry.as_ref().is_some_and(|entry| self.expiry_undecided(entry)) {
            self.must_order = true;
            return Poll::Ready(Err(Stop::Restart));
        }
        if key.space() == Space::User {
            let is_there = |entry: &Entry| !entry.expired(self.now_ms);
            match read.entry.as_ref().is_some_and(is_there) {
                true => self.hits += 1,
                false => self.misses += 1,
            }
        }
        Poll::Ready(Ok(read))
    }
    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Err(WRITE_REFUSED))
    }
    fn write(&mut self, _: &Key, _: Option<Entry>) -> Result<(), Stop> {
        Err(WRITE_REFUSED)
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let page = self.step(|view, snapshot| view.scan_at(snapshot, range))?;
        if page.entries.iter().any(|(_, entry)| self.expiry_undecided(entry)) {
            self.must_order = true;
            return Poll::Ready(Err(Stop::Restart));
        }
        Poll::Ready(Ok(page))
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        if !self.is_past {
            return Poll::Ready(self.at(|view, snapshot| view.count_at(snapshot)));
        }
        let of_shards = (0..SHARDS).map(|shard| self.step(|view, at| view.count_of_shard_at(at, shard)));
        Poll::Ready(of_shards.sum())
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        Poll::Ready(Err(WRITE_REFUSED))
    }
    fn expect(&mut self, hashes: &[u64]) {
        self.engine.view().warm(hashes);
    }
    fn doomed(&self) -> bool {
        if self.must_order || self.interrupt.asked() {
            return true;
        }
        match &self.pause {
            None => false,
            Some(pause) => {
                pause();
                self.interrupt.asked()
            }
        }
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
