//! What Sparkle keeps per record: the timestamped lock, who waits for it, and who read.

use super::status::Ticket;
use store::Meta;
use txn::Position;

/// A read that must be doomed if a version arrives between what it saw and the reader, or if what it saw
/// vanishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Dependency {
    /// [`Ticket::NONE`]: there is no dependency here.
    pub(super) reader: Ticket,
    /// The version that was read; [`Position::NONE`] if there was none.
    pub(super) version: Position,
}

/// A parked transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    /// It wants to update the record: the lock is handed to it.
    pub(super) for_update: bool,
}

/// Lock, waiters and read dependencies of a record.
///
/// One transaction at a time that reads or updates the record needs no further memory.
///
/// Invariant: nobody waits while nobody holds the lock; every waiter is later than the holder.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) lock: Ticket,
    reader: Dependency,
    crowd: Option<Box<Crowd>>,
}

/// Those for whom there is no room in the record.
#[derive(Debug, Default)]
struct Crowd {
    waiters: Vec<Waiter>,
    readers: Vec<Dependency>,
}

impl KeyState {
    /// The holder, if it is earlier than `position`.
    #[inline]
    pub(super) fn held_before(&self, position: Position) -> bool {
        !self.lock.is_none() && self.lock.position() < position
    }
    #[inline]
    pub(super) fn held_by(&self, position: Position) -> bool {
        self.lock.position() == position
    }
    /// Registers a read. `head`: everything before it is final.
    #[inline]
    pub(super) fn register(&mut self, reader: Ticket, version: Position, head: Position) {
        let dependency = Dependency { reader, version };
        if self.reader.reader.position() < head || self.reader == dependency {
            self.reader = dependency;
            return;
        }
        let readers = &mut self.crowd.get_or_insert_default().readers;
        if readers.last() == Some(&dependency) {
            return;
        }
        if readers.len() == readers.capacity() {
            readers.retain(|other| other.reader.position() >= head);
        }
        readers.push(dependency);
    }
    /// Dooms the readers that `missed` tells, and drops them and the ones that are final.
    #[inline]
    pub(super) fn doom_readers(
        &mut self,
        head: Position,
        missed: impl Fn(&Dependency) -> bool,
        mut doom: impl FnMut(Ticket),
    ) {
        let mut keep = |dependency: &Dependency| {
            if dependency.reader.position() < head {
                return false;
            }
            let doomed = missed(dependency);
            if doomed {
                doom(dependency.reader);
            }
            !doomed
        };
        if !keep(&self.reader) {
            self.reader = Dependency::default();
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.readers.retain(keep);
        }
    }
    /// Adds a waiter (or changes what it waits for).
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.leave(waiter.ticket.position());
        self.crowd.get_or_insert_default().waiters.push(waiter);
    }
    /// Takes a transaction from the waiters.
    pub(super) fn leave(&mut self, position: Position) {
        if let Some(crowd) = &mut self.crowd {
            crowd.waiters.retain(|waiter| waiter.ticket.position() != position);
        }
    }
    /// The holder lets go: the earliest waiters are woken, up to and including the first that wants to
    /// update, who gets the lock. The others would only run into that lock.
    pub(super) fn release(&mut self, mut wake: impl FnMut(Ticket)) {
        self.lock = Ticket::NONE;
        let Some(crowd) = &mut self.crowd else { return };
        crowd.waiters.sort_unstable_by_key(|waiter| waiter.ticket);
        let mut woken = 0;
        for waiter in &crowd.waiters {
            woken += 1;
            wake(waiter.ticket);
            if waiter.for_update {
                self.lock = waiter.ticket;
                break;
            }
        }
        crowd.waiters.drain(..woken);
    }
}

impl Meta for KeyState {
    fn collect(&mut self, final_position: Position) -> bool {
        if self.reader.reader.position() <= final_position {
            self.reader = Dependency::default();
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.readers.retain(|dependency| dependency.reader.position() > final_position);
            if crowd.readers.is_empty() && crowd.waiters.is_empty() {
                self.crowd = None;
            }
        }
        self.lock.is_none() && self.reader.reader.is_none() && self.crowd.is_none()
    }
    fn weight(&self) -> u64 {
        let crowd = self.crowd.as_ref();
        let crowd = crowd.map_or(0, |crowd| crowd.waiters.len() + crowd.readers.len());
        u64::from(!self.lock.is_none()) + u64::from(!self.reader.reader.is_none()) + crowd as u64
    }
}
