//! What Sparkle keeps per record: the timestamped lock, who waits for it, and who read.

use super::status::{LOCKS, READS, RESERVED, Ticket};
use store::Meta;
#[cfg(not(feature = "shuttle"))]
use store::Record;
use txn::Position;

/// A parked transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) ticket: Ticket,
    /// It wants to update the record: the lock is handed to it.
    pub(super) for_update: bool,
}

/// Lock, waiters and readers of a record.
///
/// Which version a reader has read needs no place. It is the newest one before the reader, because whoever
/// changes which one that is dooms the reader, and drops it here. (A delete that is forgotten behind the
/// watermark reads as none at all, so it changes nothing.)
///
/// A record that one transaction at a time reads or updates, which most are, needs no memory of its own for
/// that.
///
/// Invariants: nobody waits while nobody holds the lock; every waiter is later than the holder.
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The holder of the lock, or, while there is none, a reader; marked by what it is, or both.
    one: Ticket,
    crowd: Option<Box<Crowd>>,
}

// The model checker's latches are larger.
#[cfg(not(feature = "shuttle"))]
const _: () = assert!(size_of::<Record<KeyState>>() == 72, "80 bytes with its count: docs/memory.md");

/// The waiters, and the readers for whom there is no room in the record.
#[derive(Debug, Default)]
struct Crowd {
    waiters: Vec<Waiter>,
    readers: Vec<Ticket>,
}

impl KeyState {
    /// The holder of the lock.
    #[inline]
    pub(super) fn holder(&self) -> Ticket {
        if self.one.has(LOCKS) { self.one } else { Ticket::NONE }
    }
    /// The holder, if it is earlier than `position`.
    #[inline]
    pub(super) fn held_before(&self, position: Position) -> bool {
        self.one.has(LOCKS) && self.one.position() < position
    }
    #[inline]
    pub(super) fn held_by(&self, position: Position) -> bool {
        self.one.has(LOCKS) && self.one.position() == position
    }
    /// Gives the lock to a transaction. The caller has doomed the transaction that held it, unless that had
    /// reserved it only. `head`: everything before it is final.
    #[inline]
    pub(super) fn lock(&mut self, new: Ticket, head: Position) {
        let old = self.one;
        self.one = new.marked(LOCKS);
        if !old.has(READS) {
            return;
        }
        // The reads of a doomed transaction, and of an earlier incarnation, are void.
        let is_doomed = old.has(LOCKS) && !old.is_reserved();
        if old.unmarked() == new.unmarked() {
            self.one = self.one.marked(READS);
        } else if !is_doomed && old.position() != new.position() {
            self.register_in_crowd(old.unmarked(), head);
        }
    }
    /// Registers a read. `head`: everything before it is final.
    #[inline]
    pub(super) fn register(&mut self, reader: Ticket, head: Position) {
        let one = self.one;
        if one.unmarked() == reader {
            self.one = one.marked(READS);
        } else if !one.has(LOCKS)
            && (one.is_none() || one.position() < head || one.position() == reader.position())
        {
            self.one = reader.marked(READS);
        } else {
            self.register_in_crowd(reader, head);
        }
    }
    fn register_in_crowd(&mut self, reader: Ticket, head: Position) {
        if reader.position() < head {
            return;
        }
        let readers = &mut self.crowd.get_or_insert_default().readers;
        if readers.last() == Some(&reader) {
            return;
        }
        if readers.len() == readers.capacity() {
            readers.retain(|other| other.position() >= head);
        }
        readers.push(reader);
    }
    /// Dooms the readers for whom the newest version before them has changed, and drops them and the ones
    /// that are final: those behind `changed`, up to the writer of the next later version, which has not read
    /// its own.
    #[inline]
    pub(super) fn doom_readers(
        &mut self,
        head: Position,
        changed: Position,
        above: Option<Position>,
        mut doom: impl FnMut(Ticket),
    ) {
        let mut keep = |reader: Ticket| {
            let position = reader.position();
            if position < head {
                return false;
            }
            let missed = position > changed && above.is_none_or(|above| position <= above);
            if missed {
                doom(reader);
            }
            !missed
        };
        if self.one.has(READS) && !keep(self.one.unmarked()) {
            self.one = self.one.without(READS);
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.readers.retain(|reader| keep(*reader));
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
    ///
    /// `head`: everything before it is final.
    pub(super) fn release(&mut self, head: Position, mut wake: impl FnMut(Ticket)) {
        self.one = self.one.without(LOCKS | RESERVED);
        let Some(crowd) = &mut self.crowd else { return };
        crowd.waiters.sort_unstable_by_key(|waiter| waiter.ticket);
        let mut woken = 0;
        let mut new = None;
        for waiter in &crowd.waiters {
            woken += 1;
            wake(waiter.ticket);
            if waiter.for_update {
                new = Some(waiter.ticket);
                break;
            }
        }
        crowd.waiters.drain(..woken);
        if let Some(new) = new {
            self.lock(new, head);
        }
    }
}

impl Meta for KeyState {
    fn collect(&mut self, final_position: Position) -> bool {
        if self.one.position() <= final_position {
            self.one = self.one.without(READS);
        }
        if let Some(crowd) = &mut self.crowd {
            crowd.readers.retain(|reader| reader.position() > final_position);
            if crowd.readers.is_empty() && crowd.waiters.is_empty() {
                self.crowd = None;
            }
        }
        self.one.is_none() && self.crowd.is_none()
    }
    fn weight(&self) -> u64 {
        let crowd = self.crowd.as_ref();
        let crowd = crowd.map_or(0, |crowd| crowd.waiters.len() + crowd.readers.len());
        u64::from(self.one.has(LOCKS)) + u64::from(self.one.has(READS)) + crowd as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(position: u64, incarnation: u16) -> Ticket {
        Ticket::new(Position(position), incarnation)
    }

    /// Which readers a change at a position dooms, if the next later version is at `above`.
    fn doomed(state: &mut KeyState, head: u64, changed: u64, above: Option<u64>) -> Vec<Ticket> {
        let mut found = Vec::new();
        let (changed, above) = (Position(changed), above.map(Position));
        state.doom_readers(Position(head), changed, above, |reader| found.push(reader));
        found
    }

    #[test]
    fn a_change_concerns_the_readers_up_to_the_writer_of_the_next_version() {
        for others in [&[][..], &[4, 6, 30]] {
            let mut state = KeyState::default();
            state.register(ticket(20, 0), Position(1));
            for other in others {
                state.register(ticket(*other, 0), Position(1));
            }
            let later = others.iter().filter(|other| **other > 20).map(|other| ticket(*other, 0));
            assert_eq!(doomed(&mut state, 1, 20, None), later.collect::<Vec<_>>());
            assert_eq!(doomed(&mut state, 1, 10, Some(19)), []);
            assert_eq!(doomed(&mut state, 1, 10, Some(20)), [ticket(20, 0)], "it has read below its own");
            assert_eq!(doomed(&mut state, 1, 10, None), [], "it is dropped");
        }
    }

    #[test]
    fn one_transaction_needs_no_memory_and_others_do() {
        let mut state = KeyState::default();
        let head = Position(1);
        state.lock(ticket(5, 0), head);
        state.register(ticket(5, 0), head);
        assert!(state.crowd.is_none() && state.held_by(Position(5)) && state.weight() == 2);
        // Undone: the next incarnation keeps the lock, and has read nothing yet.
        state.lock(ticket(5, 1).reserved(), head);
        assert_eq!((state.weight(), doomed(&mut state, 1, 4, None)), (1, vec![]));
        state.lock(ticket(5, 1), head);
        state.register(ticket(5, 1), head);
        state.release(Position(1), |_| unreachable!("nobody waits"));
        assert_eq!((state.holder(), state.weight()), (Ticket::NONE, 1));
        state.lock(ticket(7, 0), Position(6));
        assert!(state.crowd.is_none() && state.weight() == 1, "the reader is final");
        state.register(ticket(7, 0), Position(6));
        state.release(Position(1), |_| unreachable!("nobody waits"));
        state.lock(ticket(9, 0), Position(6));
        assert_eq!((state.crowd.is_some(), state.weight()), (true, 2));
        assert_eq!(doomed(&mut state, 6, 6, None), [ticket(7, 0)]);
        assert!(!state.collect(Position(8)) && state.crowd.is_none() && state.held_by(Position(9)));
        state.release(Position(1), |_| unreachable!("nobody waits"));
        assert!(state.collect(Position(8)));
    }

    #[test]
    fn a_lock_that_is_reserved_is_taken_over_and_its_transaction_has_read_what_it_has_read() {
        for (is_reserved, doomed_then) in [(true, vec![ticket(5, 1)]), (false, vec![])] {
            let mut state = KeyState::default();
            let head = Position(1);
            let holder = if is_reserved { ticket(5, 1).reserved() } else { ticket(5, 1) };
            state.lock(holder, head);
            state.register(ticket(5, 1), head);
            assert_eq!(state.holder().is_reserved(), is_reserved);
            state.lock(ticket(3, 0), head);
            assert!(state.held_by(Position(3)));
            assert_eq!(doomed(&mut state, 1, 3, None), doomed_then, "one that is doomed needs no more");
        }
    }

    #[test]
    fn the_earliest_waiters_are_woken_up_to_the_first_that_updates() {
        let mut state = KeyState::default();
        state.lock(ticket(1, 0), Position(1));
        state.register(ticket(1, 0), Position(1));
        for (position, for_update) in [(4, true), (2, false), (9, false), (3, true)] {
            state.wait(Waiter { ticket: ticket(position, 0), for_update });
        }
        let mut woken = Vec::new();
        state.release(Position(1), |waiter| woken.push(waiter));
        assert_eq!((woken, state.holder().position()), (vec![ticket(2, 0), ticket(3, 0)], Position(3)));
        assert_eq!(state.weight(), 4, "two wait, and who let go has read");
        state.leave(Position(9));
        let mut woken = Vec::new();
        state.release(Position(1), |waiter| woken.push(waiter));
        assert_eq!((woken, state.holder().position()), (vec![ticket(4, 0)], Position(4)));
    }
}
