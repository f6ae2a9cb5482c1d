//! The lock table: one queue of requests per key.

use smallvec::SmallVec;
use std::collections::hash_map::Entry;
use txn::hash::SecretMap;
use txn::mutant::{Mutant, is_active};
use txn::{Key, Position};

/// A transaction's request for the lock of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LockRequest {
    position: Position,
    exclusive: bool,
}

/// The requests for one key, in the order of positions. Never empty.
#[derive(Debug, Default)]
struct LockQueue(SmallVec<[LockRequest; 2]>);

impl LockQueue {
    /// How many requests, from the front on, are granted: one exclusive, or all shared ones up to the first
    /// exclusive.
    fn granted(&self) -> usize {
        match self.0.first() {
            Some(first) if first.exclusive => 1,
            _ => self.0.iter().take_while(|request| !request.exclusive).count(),
        }
    }
}

/// The locks of a partition.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    queues: SecretMap<Key, LockQueue>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// It has the lock.
    Granted,
    /// It waits for earlier transactions.
    Waits,
    /// The same transaction requested the key before, at least as strongly: nothing was added.
    Repeated,
}

impl LockTable {
    /// Requests a key for a transaction. Transactions come in the order of positions, each with its exclusive
    /// keys first.
    pub(super) fn request(&mut self, key: &Key, position: Position, exclusive: bool) -> Request {
        let exclusive = exclusive && !is_active(Mutant::ShareWriteLocks);
        let queue = self.queues.entry(key.clone()).or_default();
        if queue.0.last().is_some_and(|last| last.position == position) {
            return Request::Repeated;
        }
        let granted = match queue.0.first() {
            None => true,
            Some(_) => !exclusive && queue.granted() == queue.0.len() && !queue.0[0].exclusive,
        };
        queue.0.push(LockRequest { position, exclusive });
        if granted { Request::Granted } else { Request::Waits }
    }

    /// Takes a granted request back, and calls `grant` for every transaction that has the lock because of it.
    /// Does nothing if the transaction requested nothing there (any more).
    pub(super) fn release(&mut self, key: &Key, position: Position, mut grant: impl FnMut(Position)) {
        let Entry::Occupied(mut entry) = self.queues.entry(key.clone()) else {
            return;
        };
        let queue = entry.get_mut();
        let before = queue.granted();
        let Some(index) = queue.0[..before].iter().position(|request| request.position == position) else {
            return;
        };
        queue.0.remove(index);
        if queue.0.is_empty() {
            entry.remove();
            return;
        }
        for request in &queue.0[before - 1..queue.granted().max(before - 1)] {
            grant(request.position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Script(LockTable);

    impl Script {
        fn request(&mut self, position: u64, exclusive: bool) -> Request {
            self.0.request(&Key::from("k"), Position(position), exclusive)
        }
        fn release(&mut self, position: u64) -> Vec<u64> {
            let mut granted = Vec::new();
            self.0.release(&Key::from("k"), Position(position), |position| granted.push(position.0));
            granted
        }
    }

    #[test]
    fn locks_are_granted_in_order_and_shared_by_neighbours() {
        let mut locks = Script(LockTable::default());
        assert_eq!(locks.request(1, false), Request::Granted);
        assert_eq!(locks.request(2, false), Request::Granted);
        assert_eq!(locks.request(3, true), Request::Waits);
        assert_eq!(locks.request(3, false), Request::Repeated);
        assert_eq!(locks.request(4, false), Request::Waits, "a reader must not overtake a writer");
        assert_eq!(locks.request(5, false), Request::Waits);
        assert_eq!(locks.request(6, true), Request::Waits);
        assert_eq!(locks.release(2), []);
        assert_eq!(locks.release(1), [3]);
        assert_eq!(locks.release(3), [4, 5]);
        assert_eq!(locks.release(4), []);
        assert_eq!(locks.release(4), [], "a repeated key is released once");
        assert_eq!(locks.release(5), [6]);
        assert_eq!(locks.release(6), []);
        assert!(locks.0.queues.is_empty());
    }
}
