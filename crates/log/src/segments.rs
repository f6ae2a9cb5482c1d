//! The journal's files: appending records to them, and making these durable.

use crate::disk::{Disk, DiskFile};
use crate::record::{Address, Draft, HEAD_BYTES, Head, Place, Tail};
use crate::segment::{HEADER_BYTES, Header, prepared_name, segment_name};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use txn::Position;
use txn::mutant::{Mutant, is_active};

/// The size of a segment, unless told otherwise. A start reads whole segments, and only whole ones are
/// removed.
pub const SEGMENT_BYTES_DEFAULT: u64 = 16 << 20;

/// The files of a journal that is open for appending. One owner; [`SyncTicket`]s, [`Preparer`]s and
/// [`Truncation`]s work on other threads.
///
/// Invariants: `claimed <= durable <= end`; every file that holds anything between `durable` and the end is
/// the current one or in `unsynced`.
pub(crate) struct Log<D: Disk> {
    pub(crate) shared: Arc<Shared<D>>,
    /// Where the next record continues.
    pub(crate) tail: Tail,
    pub(crate) current: Segment<D::File>,
    /// The first records of the segments before the current one, oldest first.
    pub(crate) older: Vec<Position>,
    /// Segments before the current one that may not be durable yet.
    pub(crate) unsynced: Vec<(Position, Arc<D::File>)>,
    /// Everything before is on the disk, and so is the log up to `durable_last`.
    pub(crate) durable: Address,
    pub(crate) durable_last: Position,
    /// The newest segment whose name is on the disk.
    pub(crate) durable_name: Position,
    /// The largest durability claim that a record of the log makes.
    pub(crate) claimed: Address,
    /// The end of the last record that is no marker: what a claim is worth writing for.
    pub(crate) last_record_end: Address,
}

/// The segment that is written.
pub(crate) struct Segment<F> {
    pub first: Position,
    pub file: Arc<F>,
    pub boot_id: u64,
    /// Where the next record goes.
    pub offset: u64,
    /// A failed write may have left bytes up to here: at most `offset` if not.
    pub dirty_until: u64,
    /// The length that was filled with zeros ahead of use.
    pub len_bytes: u64,
}

/// What the log, its tickets and its preparers share.
pub(crate) struct Shared<D: Disk> {
    pub disk: Arc<D>,
    pub boot_id: u64,
    pub segment_bytes: u64,
    /// Set once, by the first sync that failed.
    poison: OnceLock<String>,
    /// Held during a sync. The kernel reports a failure to one of the threads that sync a file at the same
    /// time, so the others must not start before it is known.
    syncing: Mutex<()>,
    prepared: Mutex<Prepared<D::File>>,
}

struct Prepared<F> {
    slot: Slot<F>,
    /// How many segments this process began to prepare: their names differ.
    begun: u64,
}

/// ```text
///          prepare_next             prepare_next
///   Empty ──────────────► Preparing ─────────────► Ready      a failure leads from Preparing back to Empty
///     ▲                                              │
///     └────────────── rotation takes it ◄────────────┘
/// ```
enum Slot<F> {
    Empty,
    Preparing,
    Ready(Fresh<F>),
}

/// A file with a header and nothing behind it, under a prepared segment's name.
pub(crate) struct Fresh<F> {
    pub name: String,
    pub file: F,
}

/// What an append achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The last record in the journal. Not durable yet.
    pub position: Position,
    /// Whether a new segment was begun: time to call [`Preparer::prepare_next`].
    pub rotated: bool,
}

/// What a sync achieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synced {
    /// Everything up to this record is on the disk.
    pub position: Position,
    end: Address,
}

/// Sizes and places of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStatus {
    /// Segments on the disk, prepared ones left out.
    pub segments: u64,
    /// The first record of the oldest segment.
    pub first: Position,
    /// The last record.
    pub last: Position,
    /// The last record that is known to be on the disk.
    pub durable: Position,
    /// The write offset in the current segment.
    pub current_bytes: u64,
    /// Whether a failed write may have left something behind the end, which the disk did not let us clear:
    /// until the next append, a crash may bring it back.
    pub remains: bool,
}

impl<D: Disk> Shared<D> {
    pub fn new(disk: Arc<D>, segment_bytes: u64, boot_id: u64) -> Shared<D> {
        let prepared = Mutex::new(Prepared { slot: Slot::Empty, begun: 0 });
        Shared {
            disk,
            boot_id,
            segment_bytes: segment_bytes.max((HEADER_BYTES + HEAD_BYTES) as u64),
            poison: OnceLock::new(),
            syncing: Mutex::new(()),
            prepared,
        }
    }

    fn prepared(&self) -> MutexGuard<'_, Prepared<D::File>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> io::Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(reason) => Err(io::Error::other(format!(
                "the log is closed for writing, because a sync failed earlier ({reason}) and nobody can \
                 know what the disk still has: repair or replace the disk, then restart; what was \
                 acknowledged before is recovered"
            ))),
        }
    }

    /// Runs a sync. The first failure ends the log for good: the kernel may have dropped what it could not
    /// write, and a later sync would succeed without it.
    fn sync(&self, what: &str, sync: impl Fn() -> io::Result<()>) -> io::Result<()> {
        let _syncing = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        self.check()?;
        let mut result = sync();
        if result.is_err() && is_active(Mutant::RetryFailedSync) {
            result = sync();
        }
        result.map_err(|error| {
            // Whoever comes later is told what it means.
            let reason = self.poison.get_or_init(|| format!("{what}: {error}"));
            io::Error::new(error.kind(), reason.as_str())
        })
    }

    /// Makes the file of a future segment. The header is durable when this returns.
    pub fn create_fresh(&self) -> io::Result<Fresh<D::File>> {
        let number = {
            let mut prepared = self.prepared();
            prepared.begun += 1;
            prepared.begun
        };
        let name = prepared_name(number);
        let context = |error: io::Error| {
            let text =
                format!("the next log segment ({} bytes) could not be prepared: {error}", self.segment_bytes);
            io::Error::new(error.kind(), text)
        };
        let file = self.disk.create(&name, self.segment_bytes).map_err(context)?;
        let header = Header { boot_id: self.boot_id, len_bytes: self.segment_bytes }.encode();
        match file.write_at(0, &header).and_then(|()| file.sync()) {
            Ok(()) => Ok(Fresh { name, file }),
            Err(error) => {
                // Nobody needs the file: where even its removal fails, the next start removes it.
                let _ = self.disk.remove(&name);
                Err(context(error))
            }
        }
    }
}

/// Prepares segments ahead of need, on any thread and without blocking appends.
pub struct Preparer<D: Disk>(Arc<Shared<D>>);

impl<D: Disk> Clone for Preparer<D> {
    fn clone(&self) -> Preparer<D> {
        Preparer(self.0.clone())
    }
}

impl<D: Disk> Preparer<D> {
    /// Makes the next segment's file, filled with zeros and durable, unless there is one or another thread is
    /// at it. Returns whether it made one. After an error (a full disk) call it again later; until then the
    /// log goes on in the current segment, and tries for itself when that is full.
    pub fn prepare_next(&self) -> io::Result<bool> {
        self.0.check()?;
        {
            let mut prepared = self.0.prepared();
            if !matches!(prepared.slot, Slot::Empty) {
                return Ok(false);
            }
            prepared.slot = Slot::Preparing;
        }
        let fresh = self.0.create_fresh();
        let (slot, result) = match fresh {
            Ok(fresh) => (Slot::Ready(fresh), Ok(true)),
            Err(error) => (Slot::Empty, Err(error)),
        };
        self.0.prepared().slot = slot;
        result
    }
}

impl<D: Disk> Log<D> {
    /// Whether a sync has failed: nothing can be written before the log is opened again.
    pub fn is_closed(&self) -> bool {
        self.shared.poison.get().is_some()
    }

    /// Sizes and places.
    pub fn status(&self) -> LogStatus {
        LogStatus {
            segments: self.older.len() as u64 + 1,
            first: self.older.first().copied().unwrap_or(self.current.first),
            last: self.tail.last(),
            durable: self.durable_last,
            current_bytes: self.current.offset,
            remains: self.current.dirty_until > self.current.offset,
        }
    }

    /// The names of the files that a start reads, oldest first; the last one is written.
    pub fn segment_names(&self) -> Vec<String> {
        let older = self.older.iter().chain([&self.current.first]);
        older.map(|&first| segment_name(first)).collect()
    }

    /// Goes on in a new segment, because somebody has removed the file of the current one. A failure leaves
    /// the log in the removed file.
    pub fn leave_removed(&mut self) -> io::Result<()> {
        self.shared.check()?;
        self.rotate()
    }

    /// A handle that prepares segments on another thread.
    pub fn preparer(&self) -> Preparer<D> {
        Preparer(self.shared.clone())
    }

    /// Writes a record, with one write. After an error it is not in the log; the log is usable, and the same
    /// can be appended again. Only if the disk also refuses to overwrite what it had taken of the record, a
    /// crash before the next append may bring it back.
    pub fn append(&mut self, draft: Draft<'_>) -> io::Result<Appended> {
        self.shared.check()?;
        self.clear_remains()?;
        // A segment whose name would be taken by the next one is extended instead.
        let full = self.current.offset + draft.len_bytes() as u64 > self.current.len_bytes;
        let rotated = full && self.current.first != self.tail.next;
        if rotated {
            self.rotate()?;
        }
        let claim = if is_active(Mutant::ClaimBeforeSync) { self.current.end() } else { self.durable };
        let (record, tail) = draft.finish(self.tail, self.current.place(), claim);
        self.write(record)?;
        self.claimed = self.durable;
        self.last_record_end = self.current.end();
        self.tail = tail;
        Ok(Appended { position: tail.last(), rotated })
    }

    /// Writes a marker if the disk has records that no record claims to be durable: then a later damage to
    /// them is known for what it is, even if nothing else is ever appended. For idle times and shutdown;
    /// returns whether it wrote one (which takes effect with the next sync).
    pub fn write_marker(&mut self) -> io::Result<bool> {
        self.shared.check()?;
        if self.claimed >= self.durable || self.claimed >= self.last_record_end {
            return Ok(false);
        }
        self.clear_remains()?;
        let marker = Head::marker(self.tail, self.durable).sealed(self.current.place());
        self.write(&marker)?;
        self.claimed = self.durable;
        Ok(true)
    }

    /// What must be synced so that everything appended so far is durable; `None` if it is.
    pub fn sync_ticket(&self) -> Option<SyncTicket<D>> {
        let synced = Synced { position: self.tail.last(), end: self.current.end() };
        (self.durable < synced.end).then(|| SyncTicket {
            shared: self.shared.clone(),
            older: self
                .unsynced
                .iter()
                .map(|(_, file)| file.clone())
                .filter(|_| !is_active(Mutant::SkipSyncOfRotated))
                .collect(),
            current: self.current.file.clone(),
            names: self.durable_name < self.current.first && !is_active(Mutant::SkipSyncOfNames),
            synced,
        })
    }

    /// Notes what a ticket made durable. Tickets may come back in any order.
    pub fn synced(&mut self, synced: Synced) {
        if synced.end > self.durable {
            self.durable = synced.end;
            self.durable_last = synced.position;
            self.durable_name = synced.end.segment;
            // The ticket's own segment stays if it was left meanwhile: what was written to it after the sync
            // had begun is not known to be durable.
            let left = is_active(Mutant::ForgetSegmentLeftDuringSync);
            self.unsynced
                .retain(|(first, _)| *first > synced.end.segment || *first == synced.end.segment && !left);
        }
    }

    /// Syncs on this thread.
    pub fn sync(&mut self) -> io::Result<Position> {
        self.shared.check()?;
        if let Some(ticket) = self.sync_ticket() {
            let synced = ticket.sync()?;
            self.synced(synced);
        }
        Ok(self.durable_last)
    }

    /// What can be removed if nothing before the record `position` is needed: whole segments, behind one that
    /// is durable. `None` if there is nothing.
    pub fn truncation(&self, position: Position) -> Option<Truncation<D>> {
        let until = position.min(self.durable.segment);
        let starts_of_next = self.older.iter().skip(1).chain([&self.current.first]);
        let spans = self.older.iter().zip(starts_of_next);
        let count = spans.take_while(|&(_, &next)| next <= until).count();
        (count > 0)
            .then(|| Truncation { shared: self.shared.clone(), segments: self.older[..count].to_vec() })
    }

    /// Notes what a truncation removed.
    pub fn truncated(&mut self, truncated: Truncated) {
        self.older.retain(|&first| first > truncated.last);
    }

    /// Goes on in a new segment. A failure leaves the log in the old one.
    fn rotate(&mut self) -> io::Result<()> {
        let taken = {
            let mut prepared = self.shared.prepared();
            match std::mem::replace(&mut prepared.slot, Slot::Empty) {
                Slot::Ready(fresh) => Some(fresh),
                other => {
                    prepared.slot = other;
                    None
                }
            }
        };
        match taken.map(|fresh| self.rotate_into(fresh)) {
            // Somebody has removed the file that was prepared.
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => {}
            Some(done) => return done,
            None => {}
        }
        let fresh = self.shared.create_fresh()?;
        self.rotate_into(fresh)
    }

    fn rotate_into(&mut self, fresh: Fresh<D::File>) -> io::Result<()> {
        let first = self.tail.next;
        let place = Place {
            boot_id: self.shared.boot_id,
            address: Address { segment: first, offset: HEADER_BYTES as u64 },
        };
        let opening = Head::marker(self.tail, self.durable).sealed(place);
        let name = segment_name(first);
        let begun = fresh.file.write_at(place.address.offset, &opening).and_then(|()| {
            // The name becomes durable with the first sync: nothing in the segment is acknowledged before.
            self.shared.disk.rename(&fresh.name, &name)
        });
        if let Err(error) = begun {
            if error.kind() != io::ErrorKind::NotFound {
                self.put_back(fresh);
            }
            return Err(io::Error::new(
                error.kind(),
                format!("log segment {name} could not be begun: {error}"),
            ));
        }
        let next = Segment::after_opening(first, fresh.file, self.shared.boot_id, self.shared.segment_bytes);
        let old = std::mem::replace(&mut self.current, next);
        if old.first == first {
            // A removed segment without a record: the new one has its name, which must reach the disk once
            // more.
            self.durable_name = Position::NONE;
            return Ok(());
        }
        self.older.push(old.first);
        self.unsynced.push((old.first, old.file));
        Ok(())
    }

    fn put_back(&self, fresh: Fresh<D::File>) {
        let mut prepared = self.shared.prepared();
        if matches!(prepared.slot, Slot::Empty) {
            prepared.slot = Slot::Ready(fresh);
        } else {
            // Nobody needs a second one: where its removal fails, the next start removes it.
            let _ = self.shared.disk.remove(&fresh.name);
        }
    }

    /// Overwrites what a failed write may have left behind the end. It is synced at once: otherwise a crash
    /// could bring remains back behind a record that is written now, and they would look like records that do
    /// not follow it.
    fn clear_remains(&mut self) -> io::Result<()> {
        let (offset, until) = (self.current.offset, self.current.dirty_until);
        if until > offset {
            let file = self.current.file.clone();
            write_zeros(&*file, offset, until).map_err(|error| self.write_error(error))?;
            self.shared.sync("fdatasync of a log segment", || file.sync())?;
            self.current.dirty_until = offset;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let end = self.current.offset + bytes.len() as u64;
        if let Err(error) = self.current.file.write_at(self.current.offset, bytes) {
            let error = self.write_error(error);
            self.current.dirty_until = end;
            // Whoever asked is told that nothing remains, so do it now if the disk lets us; else the next
            // append does it.
            let _ = self.clear_remains();
            return Err(error);
        }
        self.current.offset = end;
        self.current.len_bytes = self.current.len_bytes.max(end);
        Ok(())
    }

    fn write_error(&self, error: io::Error) -> io::Error {
        let Segment { first, offset, .. } = &self.current;
        let text = format!("{} could not be written at byte {offset}: {error}", segment_name(*first));
        io::Error::new(error.kind(), text)
    }
}

impl<F> Segment<F> {
    /// A segment that holds its header and its opening record.
    pub fn after_opening(first: Position, file: F, boot_id: u64, len_bytes: u64) -> Segment<F> {
        let offset = (HEADER_BYTES + HEAD_BYTES) as u64;
        Segment { first, file: Arc::new(file), boot_id, offset, dirty_until: offset, len_bytes }
    }

    /// Where the next record goes.
    pub fn end(&self) -> Address {
        Address { segment: self.first, offset: self.offset }
    }

    fn place(&self) -> Place {
        Place { boot_id: self.boot_id, address: self.end() }
    }
}

/// Fills a range of a file with zeros.
pub(crate) fn write_zeros(file: &impl DiskFile, mut offset: u64, until: u64) -> io::Result<()> {
    const ZEROS: [u8; 16 << 10] = [0; 16 << 10];
    while offset < until {
        let count = (until - offset).min(ZEROS.len() as u64);
        file.write_at(offset, &ZEROS[..count as usize])?;
        offset += count;
    }
    Ok(())
}

/// What must be synced: made under the log's lock, used without it.
pub struct SyncTicket<D: Disk> {
    shared: Arc<Shared<D>>,
    older: Vec<Arc<D::File>>,
    current: Arc<D::File>,
    /// Whether the current segment's name may not be durable yet.
    names: bool,
    synced: Synced,
}

impl<D: Disk> SyncTicket<D> {
    /// Makes everything durable that had been appended when the ticket was made. Blocks as long as the disk
    /// takes. Hand the result to [`crate::Journal::synced`]. An error is final for the journal: every later
    /// append and sync fails.
    pub fn sync(self) -> io::Result<Synced> {
        for file in self.older.iter().chain([&self.current]) {
            self.shared.sync("fdatasync of a log segment", || file.sync())?;
        }
        if self.names {
            self.shared.sync("fsync of the log's directory", || self.shared.disk.sync_dir())?;
        }
        Ok(self.synced)
    }
}

/// Segments that nobody needs any more: found under the log's lock, removed without it.
pub struct Truncation<D: Disk> {
    shared: Arc<Shared<D>>,
    segments: Vec<Position>,
}

/// What a truncation removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated {
    /// How many segments.
    pub segments: usize,
    last: Position,
}

impl<D: Disk> Truncation<D> {
    /// Removes the files, oldest first. Hand the result to [`crate::Journal::truncated`]. After an error try
    /// again later.
    pub fn run(self) -> io::Result<Truncated> {
        for &first in &self.segments {
            let name = segment_name(first);
            match self.shared.disk.remove(&name) {
                // An earlier attempt came as far.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result.map_err(|error| {
                    let text = format!("{name}, which nobody needs any more, could not be removed: {error}");
                    io::Error::new(error.kind(), text)
                })?,
            }
            // A crash may undo removals in any order. A start reads from the oldest segment on, so what is
            // left must have no gap.
            self.shared.disk.sync_dir()?;
        }
        let last = self.segments.last().copied().unwrap_or(Position::NONE);
        Ok(Truncated { segments: self.segments.len(), last })
    }
}
