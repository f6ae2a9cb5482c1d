//! Several entries of a leaf at a time: parallel validation.
//!
//! The paper's leaf validates one transaction after the other, on one thread, and that cost it its gain
//! (IV-C, IV-D). Here the threads of a site ([`Workers`]) share the work on the entries that a leaf's group
//! has agreed on. Whatever threads there are, and whichever entries come together, the leaf's state is that
//! of [`Certifier::decided`](crate::Certifier::decided) for each entry in turn.
//!
//! 1. *Look* (all threads). Each thread has a part of the entries. It decodes each one and validates it
//!    against the leaf as it was before the first of them ([`Leaf::look`]). What a request would change it
//!    deals to the threads of step 3, by the shard of the key.
//! 2. *Decide* (one thread, in the order of the entries). What step 1 has found counts, unless an entry
//!    before this one, of those that came together, is of the same session, or uses one of the same keys and
//!    one of the two writes it. For [`Leaf::look`] asks for nothing else. The leaf's clock gives each
//!    transaction its timestamps here, so these are in the order of the entries ([`Leaf::decide`]): a few
//!    comparisons each.
//! 3. *Change* (all threads). Each thread has some shards of the leaf's keys, and some parts of what the leaf
//!    knows of attempts. It makes there the changes of the transactions that were let in, in the order of the
//!    entries.
//! 4. *Tell* (one thread, in the order of the entries). Clients are answered, and the leaf's speaker tells
//!    the parent.
//!
//! An entry for which step 1 does not count, and any that is no request, is decided alone, between two rounds
//! of the steps 3 and 4. So it sees all that was before it, and what comes behind it is compared with it like
//! with any other entry.

use super::attempts::{Note, PARTS, part_of};
use super::entry::LogEntry;
use super::keys::{KeyChange, SHARDS, shard_of};
use super::leaf::{Found, Leaf, Reply, Tentative};
use super::{Hierarchy, Prepare};
use crate::times::Range;
use crate::workers::{Alone, Job, Workers};
use crate::{Certifier, Effects, Malformed};
use std::collections::{BTreeSet, VecDeque};
use txn::hash::{FixedMap, FixedSet};
use txn::{Key, PartitionId, Position, RequestId, SessionId};

/// What step 1 makes of an entry.
enum Looked {
    Request(Asked),
    Other(LogEntry),
    Malformed,
}

/// A request whose changes are dealt to threads.
struct Asked {
    id: RequestId,
    participants: BTreeSet<PartitionId>,
    is_home: bool,
    found: Found,
    /// The hashes of its keys, and whether it writes them.
    keys: Vec<(u64, bool)>,
    /// What stays at the leaf if the transaction becomes tentative.
    prepare: Option<Prepare>,
}

/// A change that is made if the request at `index` is let in.
struct Change {
    index: usize,
    shard: usize,
    key: Key,
    change: KeyChange,
}

/// What a thread has found in its part of the entries.
struct Slice {
    looked: Vec<Looked>,
    /// How many keys the requests use.
    keys: usize,
    /// For each thread of step 3, in the order of the entries.
    changes: Vec<VecDeque<Change>>,
}

/// A request that was decided in step 2.
struct Decided {
    id: RequestId,
    participants: BTreeSet<PartitionId>,
    reply: Reply,
    note: Option<Note>,
    /// Where the request stands in the log.
    at: Position,
    /// The timestamps of a transaction that is let in: none if it is not.
    range: Range,
}

impl Hierarchy {
    /// The next entries of a leaf's group.
    ///
    /// # Errors
    /// The entry at this index means nothing; those before it are decided.
    pub(super) fn decide_together(
        &mut self,
        group: PartitionId,
        entries: &[&[u8]],
        workers: &dyn Workers,
        effects: &mut Effects,
    ) -> Result<(), usize> {
        let slices = self.look_at(group, entries, workers);
        let mut round = Round::new(group, self.position(group), workers);
        round.keys.reserve(slices.iter().map(|slice| slice.keys).sum());
        for Slice { looked, changes, .. } in slices {
            round.changes.iter_mut().zip(changes).for_each(|(all, new)| all.push(new));
            for looked in looked {
                let index = round.count;
                match looked {
                    Looked::Request(asked) if round.is_independent(&asked) => round.decide(self, asked),
                    Looked::Request(asked) => {
                        round.end(self, effects);
                        round.note_use(asked.id.session, asked.keys);
                        self.decided(group, entries[index], effects).map_err(|Malformed| index)?;
                    }
                    Looked::Other(entry) => {
                        round.end(self, effects);
                        round.note_use_of(self, &entry);
                        self.apply(group, entry, effects);
                    }
                    Looked::Malformed => {
                        round.end(self, effects);
                        return Err(index);
                    }
                }
                round.count += 1;
            }
        }
        round.end(self, effects);
        Ok(())
    }

    /// Step 1.
    fn look_at(&self, group: PartitionId, entries: &[&[u8]], workers: &dyn Workers) -> Vec<Slice> {
        let length = entries.len().div_ceil(workers.count()).max(1);
        let mut slices: Vec<Option<Slice>> = entries.chunks(length).map(|_| None).collect();
        let look = |(number, (slice, entries))| -> Job<'_> {
            let (slice, entries): (&mut Option<Slice>, &[&[u8]]) = (slice, entries);
            Box::new(move || {
                *slice = Some(self.look_at_slice(group, number * length, entries, workers.count()))
            })
        };
        workers.run(slices.iter_mut().zip(entries.chunks(length)).enumerate().map(look).collect());
        slices.into_iter().flatten().collect()
    }

    /// The entries from the one at `first` on.
    fn look_at_slice(&self, group: PartitionId, first: usize, entries: &[&[u8]], threads: usize) -> Slice {
        let shards_each = SHARDS.div_ceil(threads);
        let mut slice = Slice { looked: Vec::with_capacity(entries.len()), keys: 0, changes: Vec::new() };
        slice.changes.resize_with(threads, VecDeque::new);
        for (index, entry) in (first..).zip(entries) {
            let looked = match (self.checked(group, entry), self.leaves.get(&group)) {
                (Ok(LogEntry::Request(prepare)), Some(leaf)) => {
                    let at = Position(leaf.decided.0 + index as u64 + 1);
                    let is_home = self.home_of(prepare.id) == group;
                    let (asked, changes) = look_at_request(leaf, prepare, is_home, at);
                    for (hash, key, change) in changes {
                        let shard = shard_of(hash);
                        slice.changes[shard / shards_each].push_back(Change { index, shard, key, change });
                    }
                    slice.keys += asked.keys.len();
                    Looked::Request(asked)
                }
                (Ok(entry), _) => Looked::Other(entry),
                (Err(Malformed), _) => Looked::Malformed,
            };
            slice.looked.push(looked);
        }
        slice
    }
}

/// A request, and what it changes at each of its keys if it is let in.
fn look_at_request(
    leaf: &Leaf,
    prepare: Prepare,
    is_home: bool,
    at: Position,
) -> (Asked, Vec<(u64, Key, KeyChange)>) {
    let found = leaf.look(&prepare, is_home, at);
    let (id, participants) = (prepare.id, prepare.participants.clone());
    let used = &prepare.used;
    let only_read = used.reads.keys().filter(|key| !used.writes.records.contains_key(*key));
    let mut keys: Vec<(u64, bool)> = only_read.clone().map(|key| (key.hash64(), false)).collect();
    let written_from = keys.len();
    keys.extend(used.writes.records.keys().map(|key| (key.hash64(), true)));
    let mut changes = Vec::new();
    let mut kept = None;
    match found {
        Found::Valid(_) if participants.len() == 1 => {
            let writes = prepare.used.writes.records.into_iter().zip(&keys[written_from..]);
            changes.extend(writes.map(|((key, entry), &(hash, _))| (hash, key, KeyChange::Write(entry))));
        }
        Found::Valid(_) => {
            for (key, &(hash, _)) in only_read.chain(used.writes.records.keys()).zip(&keys) {
                let write = used.writes.records.get(key).cloned();
                changes.push((hash, key.clone(), KeyChange::Use(write)));
            }
            kept = Some(prepare);
        }
        Found::Known(_) | Found::Refused(_) => {}
    }
    (Asked { id, participants, is_home, found, keys, prepare: kept }, changes)
}

/// The requests that were decided in step 2, and whose changes are not made yet.
struct Round<'a> {
    group: PartitionId,
    workers: &'a dyn Workers,
    /// The leaf's last entry before all that came together.
    base: Position,
    /// Entries that are decided.
    count: usize,
    /// The last ones of these.
    pending: Vec<Decided>,
    /// For each thread, of each slice: changes that are not made.
    changes: Vec<Vec<VecDeque<Change>>>,
    /// The hashes of all keys that entries from the first one on have used, and whether one of these has
    /// written the key.
    keys: FixedMap<u64, bool>,
    /// The sessions of these entries.
    sessions: FixedSet<SessionId>,
}

impl<'a> Round<'a> {
    /// Nothing is decided behind `base`.
    fn new(group: PartitionId, base: Position, workers: &'a dyn Workers) -> Round<'a> {
        Round {
            group,
            workers,
            base,
            count: 0,
            pending: Vec::new(),
            changes: (0..workers.count()).map(|_| Vec::new()).collect(),
            keys: FixedMap::default(),
            sessions: FixedSet::default(),
        }
    }

    /// Whether what a request has found counts.
    fn is_independent(&self, asked: &Asked) -> bool {
        let is_beside = |&(hash, writes): &(u64, bool)| {
            self.keys.get(&hash).is_none_or(|&is_written| !is_written && !writes)
        };
        !self.sessions.contains(&asked.id.session) && asked.keys.iter().all(is_beside)
    }

    fn note_use(&mut self, session: SessionId, keys: Vec<(u64, bool)>) {
        self.sessions.insert(session);
        for (hash, writes) in keys {
            *self.keys.entry(hash).or_default() |= writes;
        }
    }

    /// What an entry uses that is no request: the keys of the transactions that it ends.
    fn note_use_of(&mut self, site: &Hierarchy, entry: &LogEntry) {
        let LogEntry::Verdicts { verdicts, .. } = entry else { return };
        for verdict in verdicts {
            let tentative = site.leaves.get(&self.group).and_then(|leaf| leaf.tentative.get(&verdict.id));
            let keys = tentative.into_iter().flat_map(|tentative| tentative.prepare.used.keys());
            self.note_use(verdict.id.session, keys.map(|key| (key.hash64(), true)).collect());
        }
    }

    /// Step 2.
    fn decide(&mut self, site: &mut Hierarchy, asked: Asked) {
        let Some(leaf) = site.leaves.get_mut(&self.group) else { return };
        let Asked { id, participants, is_home, found, keys, prepare } = asked;
        self.note_use(id.session, keys);
        let at = Position(self.base.0 + self.count as u64 + 1);
        let (reply, note, range) = leaf.decide(id, found, is_home, participants.len() == 1, at);
        if let (Reply::Yes, Some(prepare)) = (&reply, prepare) {
            leaf.tentative.insert(id, Tentative { prepare, vote: at, range });
        }
        self.pending.push(Decided { id, participants, reply, note, at, range });
    }

    /// Steps 3 and 4.
    fn end(&mut self, site: &mut Hierarchy, effects: &mut Effects) {
        let Some(leaf) = site.leaves.get_mut(&self.group).filter(|_| !self.pending.is_empty()) else {
            return;
        };
        let (count, first) = (self.count, self.count - self.pending.len());
        leaf.decided = Position(self.base.0 + count as u64);
        let (shards_each, parts_each) =
            (SHARDS.div_ceil(self.changes.len()), PARTS.div_ceil(self.changes.len()));
        let mut shards = leaf.keys.shards.chunks_mut(shards_each);
        let mut parts = leaf.attempts.parts.chunks_mut(parts_each);
        let pending = &self.pending;
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for (thread, slices) in self.changes.iter_mut().enumerate() {
            let (shards, parts) = (shards.next().unwrap_or_default(), parts.next().unwrap_or_default());
            jobs.push(Box::new(move || {
                for changes in slices {
                    while let Some(Change { index, shard, key, change }) =
                        changes.pop_front_if(|change| change.index < count)
                    {
                        // An earlier one is of a request that was decided alone.
                        let request = index.checked_sub(first).map(|place| &pending[place]);
                        if let Some(request) = request.filter(|request| !request.range.is_empty()) {
                            let shard = &mut shards[shard - thread * shards_each];
                            shard.change(key, change, request.id, request.at, request.range);
                        }
                    }
                }
                for note in pending.iter().filter_map(|request| request.note) {
                    let place = part_of(note.id.session).checked_sub(thread * parts_each);
                    if let Some(part) = place.and_then(|place| parts.get_mut(place)) {
                        part.note(note);
                    }
                }
            }));
        }
        match pending.len() < self.workers.entries_min() {
            true => Alone.run(jobs),
            false => self.workers.run(jobs),
        }
        for Decided { id, participants, reply, .. } in std::mem::take(&mut self.pending) {
            site.has_replied(self.group, id, &participants, reply, effects);
        }
        site.has_decided(self.group, effects);
    }
}
