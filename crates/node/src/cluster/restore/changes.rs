//! The changes that the transactions of an epoch have made, while the order is executed again.
//!
//! The engines execute the epoch as ever. Its transactions tell which user keys they wrote and whether they
//! removed all keys ([`txn::told`]), and a snapshot that was opened before the epoch keeps each version that
//! they wrote: the value of a key behind a transaction is read at the transaction's position. So nothing is
//! known here of commands, and a script, a block and a command by itself are the same.
//!
//! # One order
//!
//! Each partition has an order of its own, and a transaction over several partitions has a position in each
//! of theirs. These orders do not contradict each other. [`serial_order`] gives one order that agrees with
//! all of them: always the first transaction of the lowest partition that has nothing before it anywhere. It
//! follows from the orders alone, so whoever executes the epoch again gets the same.

use super::{Replay, ReplayError};
use bytes::Bytes;
use execute::Committed;
use order::PartitionMap;
use order::skip::name_of;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use store::Snapshot;
use txn::{Entry, Epoch, Event, Key, Position, Reply, Request, RequestName};

/// A transaction that has changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedTransaction {
    /// The name of its request.
    pub request: RequestName,
    /// The name of its procedure.
    pub procedure: String,
    /// It removed all user keys, before it wrote those below.
    pub clears: bool,
    /// The keys that it wrote, each once, in the order in which they were first written.
    pub keys: Vec<ChangedKey>,
}

/// A key behind a transaction that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedKey {
    /// The key.
    pub key: Key,
    /// The entry; the reason why there is none.
    pub entry: Result<Entry, Removal>,
}

/// Why a key is no longer there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// A client's command removed it.
    Deleted,
    /// Its time to live was over.
    Expired,
    /// It made room, because of `maxmemory`.
    Evicted,
}

/// A transaction with its position in each of its partitions.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    pub committed: Committed,
    /// By the places of the partitions' engines.
    pub positions: BTreeMap<usize, Position>,
}

impl Replay {
    /// Executes the next epoch as [`Replay::execute`] does, and gives the transactions that changed user
    /// keys, in their order. Procedures must tell what they do, which is up to the caller
    /// (`redis_surface::telling::want`).
    ///
    /// # Errors
    /// The batches are not the next ones, or this build cannot read them.
    pub fn execute_for_changes(
        &mut self,
        batches: &[Bytes],
    ) -> Result<Vec<ReplayedTransaction>, ReplayError> {
        // Slots that move with the epoch do so behind its transactions.
        let map = self.end().map.clone();
        let mut snapshots: Vec<Snapshot> =
            self.engines.iter().map(|(_, engine)| engine.view().open()).collect();
        let changes = self.changes_of(batches, &map, &mut snapshots);
        for ((_, engine), snapshot) in self.engines.iter().zip(snapshots) {
            engine.view().close(snapshot);
        }
        let (epoch, changes) = changes?;
        self.end_epoch(epoch);
        Ok(changes)
    }

    fn changes_of(
        &mut self,
        batches: &[Bytes],
        map: &PartitionMap,
        snapshots: &mut [Snapshot],
    ) -> Result<(Epoch, Vec<ReplayedTransaction>), ReplayError> {
        let epoch = self.begin_epoch(batches)?;
        let mut commits = vec![Vec::new(); self.engines.len()];
        self.step_to_end(epoch, Some(&mut commits))?;
        let order = serial_order(commits).ok_or(ReplayError::NoOrder(epoch))?;
        let time_ms = self.end().time_ms;
        let mut changes = Vec::new();
        for Ordered { committed, positions } in order {
            for (&place, &position) in &positions {
                snapshots[place].advance(position, time_ms);
            }
            let Ok(Reply::Told(told)) = committed.outcome else { continue };
            let (clears, written) = written_keys(told.events);
            let mut keys = Vec::new();
            for (key, removal) in written {
                let place = usize::from(map.partition_of_slot(key.slot()).0);
                let engine = self.engines.get(place).filter(|_| positions.contains_key(&place));
                // A change that is left out would be a gap that nobody notices.
                let (_, engine) =
                    engine.ok_or_else(|| ReplayError::Misplaced(name_of(epoch, &committed.request)))?;
                let entry = engine.view().read_at(&snapshots[place], &key).entry;
                keys.push(ChangedKey { key, entry: entry.ok_or(removal) });
            }
            if clears || !keys.is_empty() {
                changes.push(ReplayedTransaction {
                    request: name_of(epoch, &committed.request),
                    procedure: committed.request.procedure.name().to_owned(),
                    clears,
                    keys,
                });
            }
        }
        Ok((epoch, changes))
    }

    /// Hands over all user keys that exist, partition by partition.
    ///
    /// # Errors
    /// `take` failed.
    pub fn each_user_entry(
        &self,
        take: &mut dyn FnMut(&Key, &Entry) -> std::io::Result<()>,
    ) -> std::io::Result<()> {
        let now_ms = self.end().time_ms;
        for (_, engine) in &self.engines {
            super::each_image(engine.view(), &mut |image| match &image.entry {
                Some(entry) if image.key.space() == txn::Space::User && !entry.expired(now_ms) => {
                    take(&image.key, entry)
                }
                _ => Ok(()),
            })?;
        }
        Ok(())
    }
}

/// The keys that a transaction wrote behind its last removal of all keys, and whether it had one. Each key
/// comes with the reason of its removal, should it turn out to be removed.
pub(super) fn written_keys(events: Vec<Event>) -> (bool, Vec<(Key, Removal)>) {
    let mut clears = false;
    let mut keys: Vec<(Key, Removal)> = Vec::new();
    let mut places: BTreeMap<Key, usize> = BTreeMap::new();
    for event in events {
        match event {
            Event::Cleared => {
                (clears, keys) = (true, Vec::new());
                places.clear();
            }
            Event::Key { key, class, name } => {
                let removal = match (class, &*name) {
                    (b'x', "expired") => Removal::Expired,
                    (b'e', "evicted") => Removal::Evicted,
                    _ => Removal::Deleted,
                };
                match places.get(&key) {
                    Some(&place) => keys[place].1 = removal,
                    None => {
                        places.insert(key.clone(), keys.len());
                        keys.push((key, removal));
                    }
                }
            }
            Event::Message(_) | Event::ReadNothing => {}
        }
    }
    (clears, keys)
}

/// One order of what the partitions have committed, which agrees with the order of each. `None` if they
/// contradict each other.
pub(super) fn serial_order(commits: Vec<Vec<Committed>>) -> Option<Vec<Ordered>> {
    let mut queues: Vec<VecDeque<Committed>> = commits
        .into_iter()
        .map(|mut commits| {
            commits.sort_by_key(|committed| committed.position);
            commits.into()
        })
        .collect();
    // All partitions have the same request in one place of memory.
    let identity = |request: &Arc<Request>| Arc::as_ptr(request);
    let mut partitions: BTreeMap<*const Request, Vec<usize>> = BTreeMap::new();
    for (place, queue) in queues.iter().enumerate() {
        for committed in queue {
            partitions.entry(identity(&committed.request)).or_default().push(place);
        }
    }
    let mut order = Vec::new();
    while queues.iter().any(|queue| !queue.is_empty()) {
        let is_first = |place: &usize, of: *const Request| {
            queues[*place].front().is_some_and(|first| identity(&first.request) == of)
        };
        let ready = queues.iter().find_map(|queue| {
            let of = identity(&queue.front()?.request);
            let at = partitions.get(&of)?;
            at.iter().all(|place| is_first(place, of)).then(|| at.clone())
        })?;
        let mut positions = BTreeMap::new();
        let mut first = None;
        for place in ready {
            let committed = queues[place].pop_front()?;
            positions.insert(place, committed.position);
            first.get_or_insert(committed);
        }
        order.push(Ordered { committed: first?, positions });
    }
    Some(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use txn::{Args, FnProcedure, Outcome, RequestId, SessionId};

    async fn nothing(_: txn::Tx, _: txn::Call) -> Outcome {
        Ok(Reply::OK)
    }

    fn request(sequence: u64) -> Arc<Request> {
        let id = RequestId { session: SessionId(1), sequence, attempt: 0 };
        Arc::new(Request::new(id, Arc::new(FnProcedure::new("nothing", nothing)), Args::new()))
    }

    fn committed(position: u64, request: &Arc<Request>) -> Committed {
        Committed {
            position: Position(position),
            request: request.clone(),
            outcome: Ok(Reply::OK),
            writes: 1,
            is_split: false,
        }
    }

    /// The order of requests in partitions, by their numbers.
    fn order_of(partitions: &[&[usize]]) -> Option<Vec<u64>> {
        let requests: Vec<Arc<Request>> = (0..10).map(request).collect();
        let commits = partitions.iter().map(|numbers| {
            let mut commits: Vec<Committed> = (1..)
                .zip(*numbers)
                .map(|(position, &number)| committed(position, &requests[number]))
                .collect();
            // An engine tells of them in any order.
            commits.reverse();
            commits
        });
        let order = serial_order(commits.collect())?;
        Some(order.iter().map(|ordered| ordered.committed.request.id.sequence).collect())
    }

    #[test]
    fn one_order_agrees_with_those_of_all_partitions() {
        assert_eq!(order_of(&[&[1, 2, 3]]), Some(vec![1, 2, 3]));
        assert_eq!(order_of(&[&[1, 5, 2], &[3, 4, 5, 6]]), Some(vec![1, 3, 4, 5, 2, 6]));
        assert_eq!(order_of(&[&[7, 8], &[9, 8, 1], &[1, 2, 7]]), None, "7 < 8 < 1 < 7");
        assert_eq!(order_of(&[&[8], &[9, 8, 1], &[1, 2]]), Some(vec![9, 8, 1, 2]));
    }

    #[test]
    fn what_was_written_before_all_keys_were_removed_is_not_told_and_the_last_reason_counts() {
        let event = |key: &str, class: u8, name: &'static str| Event::Key {
            key: Key::from(key),
            class,
            name: name.into(),
        };
        let (clears, keys) = written_keys(vec![
            event("before", b'$', "set"),
            Event::Cleared,
            event("b", b'x', "expired"),
            event("a", b'$', "set"),
            event("b", b'g', "del"),
            event("c", b'e', "evicted"),
        ]);
        let expected = [("b", Removal::Deleted), ("a", Removal::Deleted), ("c", Removal::Evicted)];
        assert!(clears);
        assert_eq!(keys, expected.map(|(key, removal)| (Key::from(key), removal)));
    }
}
