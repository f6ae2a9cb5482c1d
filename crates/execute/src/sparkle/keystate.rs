//! What Sparkle keeps per record: the timestamped lock, who waits for it, and who read.

use super::status::Ticket;
use store::Meta;
use thin_vec::ThinVec;
use txn::Position;

/// A read that must be doomed if a version arrives between what it saw and the reader, or if what it saw vanishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dependency {
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
/// Invariant: nobody waits while nobody holds the lock; every waiter is later than the holder.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    pub(super) lock: Ticket,
    pub(super) waiters: ThinVec<Waiter>,
    pub(super) readers: ThinVec<Dependency>,
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
        if self.readers.last() == Some(&dependency) {
            return;
        }
        if self.readers.len() == self.readers.capacity() {
            self.readers.retain(|other| other.reader.position() >= head);
        }
        self.readers.push(dependency);
    }
    /// Dooms the readers that `missed` tells, and drops them and the ones that are final.
    #[inline]
    pub(super) fn doom_readers(
        &mut self,
        head: Position,
        missed: impl Fn(&Dependency) -> bool,
        mut doom: impl FnMut(Ticket),
    ) {
        if self.readers.is_empty() {
            return;
        }
        self.readers.retain(|dependency| {
            if dependency.reader.position() < head {
                return false;
            }
            let doomed = missed(dependency);
            if doomed {
                doom(dependency.reader);
            }
            !doomed
        });
    }
    /// Adds a waiter (or changes what it waits for).
    pub(super) fn wait(&mut self, waiter: Waiter) {
        self.leave(waiter.ticket.position());
        self.waiters.push(waiter);
    }
    /// Takes a transaction from the waiters.
    pub(super) fn leave(&mut self, position: Position) {
        self.waiters
            .retain(|waiter| waiter.ticket.position() != position);
    }
    /// The holder lets go: the earliest waiters are woken, up to and including the first that wants to update, who gets
    /// the lock. The others would only run into that lock.
    pub(super) fn release(&mut self, mut wake: impl FnMut(Ticket)) {
        self.lock = Ticket::NONE;
        if self.waiters.is_empty() {
            return;
        }
        self.waiters.sort_unstable_by_key(|waiter| waiter.ticket);
        let mut woken = 0;
        for waiter in &self.waiters {
            woken += 1;
            wake(waiter.ticket);
            if waiter.for_update {
                self.lock = waiter.ticket;
                break;
            }
        }
        self.waiters.drain(..woken);
    }
}

impl Meta for KeyState {
    fn collect(&mut self, final_position: Position) -> bool {
        self.readers
            .retain(|dependency| dependency.reader.position() > final_position);
        if self.readers.is_empty() && self.readers.capacity() > 0 {
            self.readers = ThinVec::new();
        }
        if self.waiters.is_empty() && self.waiters.capacity() > 0 {
            self.waiters = ThinVec::new();
        }
        self.lock.is_none() && self.waiters.is_empty() && self.readers.is_empty()
    }
    fn weight(&self) -> u64 {
        u64::from(!self.lock.is_none()) + (self.waiters.len() + self.readers.len()) as u64
    }
}
