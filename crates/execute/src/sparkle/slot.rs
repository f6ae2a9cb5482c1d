//! Slots, and what a transaction carries through its life.

use super::keystate::KeyState;
use super::siblings::Member;
use super::status::{StatusWord, Ticket};
use std::sync::Arc;
use store::RecordRef;
use store::sync::Mutex;
use store::sync::atomic::AtomicI64;
use txn::hash::{FixedMap, SecretMap};
use txn::{Entry, Key, Outcome, Position, ProcedureFuture, Request, TxContext};

/// A place in the ring of transactions: position modulo capacity.
#[derive(Default)]
pub(super) struct Slot {
    pub(super) status: StatusWord,
    /// By how much the transaction's installed versions change the number of live entries, given what is
    /// below them. Changed only under the latch of the record concerned (by whoever installs or removes a
    /// version beneath one of them, too).
    pub(super) live: AtomicI64,
    /// The transaction, unless a worker is running it.
    pub(super) body: Mutex<Option<Box<Body>>>,
    /// Its book, if it has siblings.
    pub(super) member: Mutex<Option<Member>>,
}

/// A transaction. Recycled from one to the next.
#[derive(Default)]
pub(super) struct Body {
    pub(super) context: TxContext,
    /// Names the incarnation that runs.
    pub(super) ticket: Ticket,
    pub(super) request: Option<Arc<Request>>,
    pub(super) future: Option<ProcedureFuture>,
    pub(super) writes: WriteSet,
    pub(super) outcome: Option<Outcome>,
    /// The records among whose waiters the transaction is, or whose locks were handed to it there: one,
    /// unless its procedure asks for something else while it waits.
    pub(super) waiting_on: Vec<RecordRef<KeyState>>,
    /// It clears the user's space.
    pub(super) cleared: bool,
    /// What its installed writes add to the state digest.
    pub(super) terms: u64,
    /// Its book, if it has siblings.
    pub(super) member: Option<Member>,
    /// What it writes at other partitions: only to be read by itself.
    pub(super) elsewhere: SecretMap<Key, Option<Entry>>,
}

impl Body {
    #[inline]
    pub(super) fn position(&self) -> Position {
        self.context.position
    }
    /// Is among the waiters of a record.
    pub(super) fn waits_on(&mut self, record: RecordRef<KeyState>) {
        if !self.waiting_on.iter().any(|other| RecordRef::ptr_eq(other, &record)) {
            self.waiting_on.push(record);
        }
    }
    /// Has what it waited for of a record.
    #[inline]
    pub(super) fn waited_on(&mut self, record: &RecordRef<KeyState>) {
        if !self.waiting_on.is_empty() {
            self.waiting_on.retain(|other| !RecordRef::ptr_eq(other, record));
        }
    }
    /// Leaves all waiters. A lock that was handed over meanwhile is kept as one that was taken, to be let go
    /// with the others.
    pub(super) fn stop_waiting(&mut self) {
        let position = self.position();
        while let Some(record) = self.waiting_on.pop() {
            let handed = {
                let mut cell = record.latch_held();
                cell.meta.leave(position);
                cell.meta.held_by(position)
            };
            if handed {
                match self.writes.find(&record) {
                    Some(place) => self.writes.list[place].locked = true,
                    None => {
                        self.writes.push(Write::locked(record));
                    }
                }
            }
        }
    }
    /// Is empty for the next transaction, without the room that a large one took: bodies go from hand to
    /// hand, and in time all of them would have it.
    pub(super) fn clear(&mut self) {
        self.request = None;
        self.future = None;
        self.outcome = None;
        self.member = None;
        self.cleared = false;
        self.terms = 0;
        self.waiting_on.clear();
        self.writes.clear();
        match self.elsewhere.capacity() > ROOM_KEPT {
            true => self.elsewhere = SecretMap::default(),
            false => self.elsewhere.clear(),
        }
    }
}

/// Records for which a body keeps room.
const ROOM_KEPT: usize = 256;

/// A record that the transaction writes, or has locked to write.
pub(super) struct Write {
    pub(super) record: RecordRef<KeyState>,
    /// What it writes.
    pub(super) entry: Option<Entry>,
    /// It took the record's timestamped lock in this incarnation (may have been preempted since: the record
    /// knows).
    pub(super) locked: bool,
    /// The lock was kept for it when its last incarnation was undone; it has not asked for it again.
    pub(super) reserved: bool,
    /// The procedure has written, not only announced to.
    pub(super) written: bool,
    /// Its version is in the record.
    pub(super) installed: bool,
    /// There were older versions when it was installed: collect them once this one is final.
    pub(super) superseding: bool,
}

impl Write {
    pub(super) fn locked(record: RecordRef<KeyState>) -> Write {
        Write {
            record,
            entry: None,
            locked: true,
            reserved: false,
            written: false,
            installed: false,
            superseding: false,
        }
    }
    pub(super) fn blind(record: RecordRef<KeyState>) -> Write {
        Write { locked: false, ..Write::locked(record) }
    }
}

/// The records that a transaction writes, in the order of its first touches.
#[derive(Default)]
pub(super) struct WriteSet {
    pub(super) list: Vec<Write>,
    /// A bit for each record in the list, by address: most look-ups are for records that are not there.
    filter: u64,
    /// Address of the record to place in the list; only once the list is long. Never iterated.
    places: FixedMap<usize, usize>,
}

/// Lists up to this long are searched one by one: some tens of pointers are compared faster than one is
/// hashed.
const LINEAR_MAX: usize = 48;

impl WriteSet {
    fn address(record: &RecordRef<KeyState>) -> usize {
        record.as_ptr() as usize
    }
    #[inline]
    fn bit(record: &RecordRef<KeyState>) -> u64 {
        // Records are some 80 bytes apart.
        1 << ((WriteSet::address(record) >> 6) % 64)
    }
    /// The write of a record.
    #[inline]
    pub(super) fn find(&self, record: &RecordRef<KeyState>) -> Option<usize> {
        if self.filter & WriteSet::bit(record) == 0 {
            return None;
        }
        if self.list.len() > LINEAR_MAX {
            return self.places.get(&WriteSet::address(record)).copied();
        }
        self.list.iter().rposition(|write| RecordRef::ptr_eq(&write.record, record))
    }
    /// The write of a key, whose record `look_up` finds.
    pub(super) fn find_key(
        &self,
        key: &Key,
        look_up: impl FnOnce() -> Option<RecordRef<KeyState>>,
    ) -> Option<usize> {
        if self.list.len() > LINEAR_MAX {
            return look_up().and_then(|record| self.find(&record));
        }
        let mut list = self.list.iter();
        list.rposition(|write| write.record.is_of(key))
    }
    /// The write of a key, if it is among the last few: spares a look-up where a read for update is followed
    /// by its write.
    #[inline]
    pub(super) fn find_recent(&self, key: &Key) -> Option<usize> {
        let from = self.list.len().saturating_sub(4);
        self.list[from..].iter().rposition(|write| write.record.is_of(key)).map(|index| from + index)
    }
    pub(super) fn push(&mut self, write: Write) -> usize {
        let place = self.list.len();
        self.filter |= WriteSet::bit(&write.record);
        self.list.push(write);
        if self.list.len() == LINEAR_MAX + 1 {
            self.reindex();
        } else if self.list.len() > LINEAR_MAX {
            self.places.insert(WriteSet::address(&self.list[place].record), place);
        }
        place
    }
    /// Forgets all, and gives back much room.
    pub(super) fn clear(&mut self) {
        if self.list.capacity() > ROOM_KEPT {
            *self = WriteSet::default();
        } else {
            self.list.clear();
            self.reindex();
        }
    }
    /// To be called after the list was changed otherwise than by [`WriteSet::push`].
    pub(super) fn reindex(&mut self) {
        self.filter = self.list.iter().fold(0, |filter, write| filter | WriteSet::bit(&write.record));
        self.places.clear();
        if self.list.len() > LINEAR_MAX {
            self.places.extend(
                self.list.iter().enumerate().map(|(place, write)| (WriteSet::address(&write.record), place)),
            );
        }
    }
}
