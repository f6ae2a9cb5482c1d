//! The opt-batches that a replica holds, by their names.
//!
//! A batch is *pinned* once for each place where it stands, in the log or ahead of it. A batch without a pin
//! is *loose*: the oldest loose ones go when room is needed.

use super::message::BatchName;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Held {
    batches: BTreeMap<BatchName, Batch>,
    /// The loose ones, oldest first.
    loose: BTreeMap<u64, BatchName>,
    loose_bytes: u64,
    /// Numbers loose batches.
    number: u64,
}

#[derive(Debug)]
struct Batch {
    data: Bytes,
    /// The newest term whose leader has sent it as an opt-batch; 0 if none did.
    term: u64,
    pins: usize,
    /// Its number among the loose ones, where it has no pins.
    loose: u64,
}

impl Held {
    /// Takes a batch; loose, if it is new.
    pub fn hold(&mut self, data: Bytes) -> BatchName {
        let name = BatchName::of(&data);
        if let Entry::Vacant(unknown) = self.batches.entry(name) {
            unknown.insert(Batch { data, term: 0, pins: 0, loose: 0 });
            self.loosen(name);
        }
        name
    }

    fn loosen(&mut self, name: BatchName) {
        self.number += 1;
        if let Some(batch) = self.batches.get_mut(&name) {
            batch.loose = self.number;
            self.loose.insert(self.number, name);
            self.loose_bytes += u64::from(name.len);
        }
    }

    /// A leader of this term has sent a batch.
    pub fn note_term(&mut self, name: BatchName, term: u64) {
        if let Some(batch) = self.batches.get_mut(&name) {
            batch.term = batch.term.max(term);
        }
    }

    /// The newest term whose leader has sent a batch; 0 if none is known.
    pub fn term_of(&self, name: BatchName) -> u64 {
        self.batches.get(&name).map_or(0, |batch| batch.term)
    }

    pub fn find(&self, name: BatchName) -> Option<Bytes> {
        self.batches.get(&name).map(|batch| batch.data.clone())
    }

    /// A batch that is held has another place.
    pub fn pin(&mut self, name: BatchName) {
        if let Some(batch) = self.batches.get_mut(&name) {
            batch.pins += 1;
            if batch.pins == 1 && self.loose.remove(&batch.loose).is_some() {
                self.loose_bytes -= u64::from(name.len);
            }
        }
    }

    /// A batch has lost a place.
    pub fn unpin(&mut self, name: BatchName) {
        if let Some(batch) = self.batches.get_mut(&name) {
            batch.pins -= 1;
            if batch.pins == 0 {
                self.loosen(name);
            }
        }
    }

    /// A batch has lost a place, and nobody may ask for it any more if it was the last one.
    pub fn forget(&mut self, name: BatchName) {
        self.unpin(name);
        if let Some(batch) = self.batches.get(&name).filter(|batch| batch.pins == 0) {
            self.remove_loose(batch.loose);
        }
    }

    fn remove_loose(&mut self, number: u64) {
        if let Some(name) = self.loose.remove(&number) {
            self.loose_bytes -= u64::from(name.len);
            self.batches.remove(&name);
        }
    }

    /// Drops the oldest loose batches, but not the newest, until the loose ones have at most so many bytes.
    pub fn drop_loose(&mut self, bytes_max: u64) {
        while self.loose_bytes > bytes_max
            && self.loose.len() > 1
            && let Some((&oldest, _)) = self.loose.first_key_value()
        {
            self.remove_loose(oldest);
        }
    }

    /// The pins of all batches.
    pub fn pins(&self) -> usize {
        self.batches.values().map(|batch| batch.pins).sum()
    }

    /// A batch is loose exactly where it has no pins, and the sum of the loose ones' bytes is right.
    pub fn check_invariants(&self) {
        let loose = self.batches.iter().filter(|(_, batch)| batch.pins == 0);
        assert_eq!(self.loose_bytes, loose.clone().map(|(name, _)| u64::from(name.len)).sum::<u64>());
        assert!(loose.clone().all(|(name, batch)| self.loose.get(&batch.loose) == Some(name)));
        assert_eq!(loose.count(), self.loose.len());
    }
}
