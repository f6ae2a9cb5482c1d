//! Transactions that are executed fragment by fragment, each where its record's turn comes.

use super::Shared;
use crate::conservative::{Ended, Job, LiveChange};
use crate::engine::Committed;
use crate::running;
use smallvec::SmallVec;
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use store::{Version, digest};
use txn::fragments::{Done, Fragment, Fragments};
use txn::{Entry, Position, Reply, Space};

/// A transaction whose fragments depend on nothing but their records.
pub(super) struct Split {
    job: Job,
    fragments: Fragments,
    /// The places of the fragments, those of one range behind each other.
    by_range: SmallVec<[u16; 16]>,
    /// Fragments that have not been executed.
    remaining: AtomicU32,
    /// What the fragments did to the number of live entries, in how many records, and to the state digest.
    live: AtomicI64,
    writes: AtomicU32,
    terms: AtomicU64,
    /// The values that are not nil, with their fragments' places.
    values: Mutex<Vec<(u16, Reply)>>,
}

/// Fragments of a split transaction that are in one range: these places in [`Split::by_range`].
pub(super) struct Part {
    pub(super) split: Arc<Split>,
    pub(super) from: u16,
    pub(super) to: u16,
}

impl Split {
    /// Splits a transaction that has fragments; `range_of` says in which range a hash is.
    pub(super) fn new(job: Job, fragments: Fragments, range_of: impl Fn(u64) -> usize) -> Split {
        let count = fragments.list().len();
        let mut by_range: SmallVec<[u16; 16]> = (0..count as u16).collect();
        by_range.sort_by_key(|&place| range_of(fragments.list()[usize::from(place)].hash));
        Split {
            job,
            fragments,
            by_range,
            remaining: AtomicU32::new(count as u32),
            live: AtomicI64::new(0),
            writes: AtomicU32::new(0),
            terms: AtomicU64::new(0),
            values: Mutex::default(),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.job.context.position
    }

    pub(super) fn count(&self) -> u16 {
        self.by_range.len() as u16
    }

    /// The fragment at a place of `by_range`.
    pub(super) fn fragment(&self, index: u16) -> &Fragment {
        &self.fragments.list()[usize::from(self.by_range[usize::from(index)])]
    }

    /// The outcome, once every fragment was executed.
    fn end(&self, is_retractable: bool) -> Ended {
        let Job { context, request, .. } = &self.job;
        let mut all = vec![Reply::Nil; self.by_range.len()];
        for (place, value) in self.values.lock().drain(..) {
            all[usize::from(place)] = value;
        }
        let written = self.fragments.list().iter().filter(|fragment| is_retractable && fragment.writes);
        Ended {
            committed: Committed {
                position: context.position,
                request: request.clone(),
                outcome: Ok(self.fragments.reply(&request.args, &all)),
                writes: self.writes.load(Ordering::Relaxed) as usize,
            },
            now_ms: context.now_ms,
            live: LiveChange::By(self.live.load(Ordering::Relaxed)),
            terms: self.terms.load(Ordering::Relaxed),
            member: None,
            installed: written.map(|fragment| fragment.key.clone()).collect(),
        }
    }
}

impl Shared {
    /// Executes one fragment, whose record's last writer has executed. The transaction's outcome, if it was
    /// the last one.
    pub(super) fn execute_fragment(&self, split: &Split, index: u16) -> Option<Ended> {
        let position = split.position();
        if !self.is_void(position) {
            self.execute_on_record(split, index);
        }
        // Whoever executes the last one sees what the others did.
        let was_last = split.remaining.fetch_sub(1, Ordering::AcqRel) == 1;
        was_last.then(|| split.end(!self.is_confirmed(position)))
    }

    fn execute_on_record(&self, split: &Split, index: u16) {
        let place = split.by_range[usize::from(index)];
        let Fragment { key, writes, .. } = &split.fragments.list()[usize::from(place)];
        let (position, now_ms) = (split.position(), split.job.context.now_ms);
        let args = &split.job.request.args;
        let record = match writes {
            true => Some(self.partition.get_or_insert(key)),
            false => self.partition.get(key),
        };
        let execute = |found: Option<&Entry>| {
            let execute = || split.fragments.execute(args, usize::from(place), found, &[]);
            let done = running::see(&split.job.request, &split.job.context, execute);
            done.unwrap_or_else(|stop| Done { write: None, value: Reply::error_owned(stop.to_string()) })
        };
        let value = match record {
            None => execute(None).value,
            Some(mut record) => self.partition.with(&mut record, |cell| {
                let found = cell.versions.entry(position.prev(), self.partition.clears_of(key));
                let was_live = found.is_some();
                let Done { write, value } = execute(found.filter(|entry| !entry.expired(now_ms)));
                if let Some(entry) = write {
                    let term = digest::of_write(key, position, entry.as_ref());
                    split.terms.fetch_add(term, Ordering::Relaxed);
                    split.writes.fetch_add(1, Ordering::Relaxed);
                    let change = i64::from(entry.is_some()) - i64::from(was_live);
                    if change != 0 && key.space() == Space::User {
                        split.live.fetch_add(change, Ordering::Relaxed);
                    }
                    cell.versions.prune(self.partition.snapshots().watermark());
                    cell.versions.insert(Version { position, entry });
                }
                value
            }),
        };
        if value != Reply::Nil {
            split.values.lock().push((place, value));
        }
    }
}
