//! Transactions that are executed fragment by fragment, each where its record's turn comes.

use super::Shared;
use super::dependent::Dependent;
use super::speculation::Speculation;
use crate::conservative::{Ended, Heard, Installed, Job, LiveChange, Member};
use crate::engine::Committed;
use crate::running;
use crate::siblings::FragmentResults;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;
use store::sync::Mutex;
use store::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use store::{Partition, RecordRef, Version, digest};
use txn::fragments::{Done, FragmentOutcome, FragmentValues};
use txn::{
    Entry, Fragment, FragmentKind, FragmentValue, Fragments, Key, Note, Outcome, PartitionId, Position,
    Reply, Space, Stop,
};

/// A transaction that is executed fragment by fragment.
pub(super) struct Split {
    job: Job,
    fragments: Fragments,
    /// What the fragments share, if they depend on each other.
    dependent: Option<Box<Dependent>>,
    /// The places of this partition's fragments, those of one range behind each other.
    by_range: SmallVec<[u16; 16]>,
    /// Fragments that have not been executed.
    remaining: AtomicU32,
    /// What the fragments did to the number of live entries, in how many records, and to the state digest.
    live: AtomicI64,
    writes: AtomicU32,
    terms: AtomicU64,
    gathered: Mutex<Gathered>,
    speculation: Speculation,
    /// It has ended before it was confirmed: for a transaction whose outcome is made later.
    pub(super) was_early: AtomicBool,
}

/// What fragments have noted, with their places.
pub(super) type FragmentNotes = Vec<(u16, Vec<Note>)>;

#[derive(Clone, Default)]
struct Gathered {
    /// The values that are not nil, with their fragments' places. (Fragments that depend on each other have
    /// their values and notes in [`Dependent`].)
    values: SmallVec<[(u16, FragmentValue); 1]>,
    notes: FragmentNotes,
    /// The records in which versions were installed.
    installed: Installed<()>,
}

impl Gathered {
    fn is_empty(&self) -> bool {
        self.values.is_empty() && self.notes.is_empty() && self.installed.is_empty()
    }
}

/// Fragments of a split transaction that are in one range: these places in [`Split::by_range`].
pub(super) struct Part {
    pub(super) split: Arc<Split>,
    pub(super) from: u16,
    pub(super) to: u16,
}

/// Where the outcome of a split transaction is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnsweredAt {
    /// It has no siblings.
    Alone,
    /// At each of its partitions.
    Everywhere,
    /// At one of them.
    One(PartitionId),
}

impl Split {
    /// Splits a transaction that has fragments at `me`; `range_of` says in which range a hash is.
    pub(super) fn new(
        job: Job,
        fragments: Fragments,
        me: PartitionId,
        range_of: impl Fn(u64) -> usize,
    ) -> Split {
        let fragments = if job.member.is_some() { fragments.noted() } else { fragments };
        let list = fragments.list();
        let slots = &job.request.route.slots;
        let is_here =
            |fragment: &Fragment| job.member.is_none() || slots.partition_of_key(&fragment.key) == me;
        let here = list.iter().enumerate().filter(|(_, fragment)| is_here(fragment));
        let mut by_range: SmallVec<[u16; 16]> = here.map(|(place, _)| place as u16).collect();
        by_range.sort_by_key(|&place| range_of(list[usize::from(place)].hash()));
        Split {
            remaining: AtomicU32::new(by_range.len() as u32),
            job,
            dependent: Dependent::of(&fragments),
            fragments,
            by_range,
            live: AtomicI64::new(0),
            writes: AtomicU32::new(0),
            terms: AtomicU64::new(0),
            gathered: Mutex::default(),
            speculation: Speculation::default(),
            was_early: AtomicBool::new(false),
        }
    }

    pub(super) fn position(&self) -> Position {
        self.job.context.position
    }

    /// What its fragments share, if they depend on each other.
    pub(super) fn dependent(&self) -> Option<&Dependent> {
        self.dependent.as_deref()
    }

    pub(super) fn speculation(&self) -> &Speculation {
        &self.speculation
    }

    /// Where its outcome is made.
    pub(super) fn answered_at(&self) -> AnsweredAt {
        match &self.job.member {
            None => AnsweredAt::Alone,
            Some(_) if self.fragments.may_be_told() => AnsweredAt::Everywhere,
            Some(member) => AnsweredAt::One(member.group.id.partitions[0]),
        }
    }

    /// Its book, if it has fragments at other partitions.
    pub(super) fn member(&self) -> Option<&Member> {
        self.job.member.as_ref()
    }

    pub(super) fn count(&self) -> u16 {
        self.by_range.len() as u16
    }

    /// All fragments, also those at other partitions.
    pub(super) fn fragments(&self) -> &[Fragment] {
        self.fragments.list()
    }

    /// The fragment at a place of `by_range`.
    pub(super) fn fragment(&self, index: u16) -> &Fragment {
        &self.fragments.list()[usize::from(self.by_range[usize::from(index)])]
    }

    /// What this partition's fragments came to, once each was executed.
    pub(super) fn results(&self) -> FragmentResults {
        let gathered = self.gathered.lock();
        FragmentResults { values: gathered.values.to_vec(), notes: gathered.notes.clone() }
    }

    /// The outcome, once every fragment was executed: `of_siblings` is what the other partitions have told.
    /// What a sibling tells of other partitions' fragments is not believed.
    pub(super) fn outcome(&self, of_siblings: Heard) -> Outcome {
        let Job { context, request, .. } = &self.job;
        let mut gathered = match self.answered_at() {
            // The siblings may be told after this.
            AnsweredAt::Everywhere => self.gathered.lock().clone(),
            AnsweredAt::Alone | AnsweredAt::One(_) => std::mem::take(&mut *self.gathered.lock()),
        };
        let partition_of = |place: u16| {
            let fragment = self.fragments.list().get(usize::from(place))?;
            Some(request.route.slots.partition_of_key(&fragment.key))
        };
        for (from, FragmentResults { values, notes }) in of_siblings {
            let is_its_own = |place: u16| partition_of(place) == Some(from);
            gathered.values.extend(values.into_iter().filter(|&(place, _)| is_its_own(place)));
            gathered.notes.extend(notes.into_iter().filter(|&(place, _)| is_its_own(place)));
        }
        running::see(request, context, || self.reply(&mut gathered))
    }

    /// The outcome, from the values of all fragments.
    fn reply(&self, gathered: &mut Gathered) -> Outcome {
        let (values, mut notes) = match &self.dependent {
            Some(dependent) => dependent.take()?,
            None => {
                let mut values: FragmentValues = smallvec![FragmentValue::NIL; self.fragments.list().len()];
                for (place, value) in gathered.values.drain(..) {
                    values[usize::from(place)] = value;
                }
                (values, std::mem::take(&mut gathered.notes))
            }
        };
        notes.sort_unstable_by_key(|&(place, _)| place);
        Ok(self.fragments.reply(&self.job.request.args, values, notes))
    }

    /// What is left to be committed, once every fragment was executed. A void transaction's outcome is never
    /// told (some of its fragments may have been left out), and one with siblings has none yet.
    pub(super) fn end(&self, is_void: bool) -> Ended {
        let Job { context, request, member, .. } = &self.job;
        let early = self.dependent.as_ref().map(|dependent| dependent.take_share());
        let early =
            early.into_iter().chain(self.speculation.take_shares().into_iter().map(|(_, share)| share));
        early.for_each(|share| self.add(share));
        let installed = std::mem::take(&mut self.gathered.lock().installed);
        let outcome = match is_void || member.is_some() {
            true => Ok(Reply::Nil),
            false => self.outcome(Heard::new()),
        };
        let end = running::outcome_term(request, context.position, &outcome);
        Ended {
            committed: Committed {
                position: context.position,
                request: request.clone(),
                outcome,
                writes: self.writes.load(Ordering::Relaxed) as usize,
                is_split: matches!(self.answered_at(), AnsweredAt::One(_)),
            },
            now_ms: context.now_ms,
            live: LiveChange::By(self.live.load(Ordering::Relaxed)),
            terms: self.terms.load(Ordering::Relaxed).wrapping_add(end),
            member: member.clone(),
            installed,
            was_early: self.was_early.load(Ordering::Relaxed),
        }
    }
}

impl Split {
    /// Adds what was done for it.
    fn add(&self, share: Share) {
        let Share { live, writes, terms, gathered, .. } = share;
        if writes > 0 {
            self.live.fetch_add(live, Ordering::Relaxed);
            self.writes.fetch_add(writes, Ordering::Relaxed);
            self.terms.fetch_add(terms, Ordering::Relaxed);
        }
        if !gathered.is_empty() {
            let mut all = self.gathered.lock();
            all.values.extend(gathered.values);
            all.notes.extend(gathered.notes);
            all.installed.extend(gathered.installed);
        }
    }
}

/// What a worker has done for a split transaction, and not made known.
#[derive(Default)]
pub(super) struct Share {
    pub(super) executed: u32,
    /// A fragment has aborted the transaction: the worker must repair before it makes this known.
    pub(super) must_repair: bool,
    live: i64,
    writes: u32,
    terms: u64,
    gathered: Gathered,
}

impl Share {
    pub(super) fn notes(&mut self) -> &mut FragmentNotes {
        &mut self.gathered.notes
    }

    /// Whether there is a version to be taken back.
    pub(super) fn has_installed(&self) -> bool {
        !self.gathered.installed.is_empty()
    }

    /// Removes the versions that the transaction at a position has installed, and counts them.
    pub(super) fn take_back(&mut self, partition: &Partition<()>, position: Position) -> u32 {
        let count = self.gathered.installed.len() as u32;
        for mut record in self.gathered.installed.drain(..) {
            partition.with(&mut record, |cell| cell.remove(position));
        }
        (self.live, self.writes, self.terms) = (0, 0, 0);
        count
    }
}

/// Whether what a fragment has written is there for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// It is, and stays.
    Yes,
    /// It is, and its transaction is unsettled ([`super::speculation`]).
    Unsettled,
    /// Not before the transaction's end.
    NotYet,
}

impl Shared {
    /// Executes one fragment. The last writer of the fragment's record has executed, or has written what the
    /// fragment reads. `behind` is this writer, if it was unsettled.
    pub(super) fn execute_fragment(
        &self,
        split: &Arc<Split>,
        index: u16,
        behind: Option<Arc<Split>>,
        share: &mut Share,
    ) -> Written {
        let place = split.by_range[usize::from(index)];
        let is_registered = behind.is_some_and(|behind| behind.register(split, place));
        if let Some(dependent) = &split.dependent {
            return self.execute_dependent(split, dependent, place, share);
        }
        share.executed += 1;
        if !is_registered {
            self.execute_independent(split, place, share);
            return Written::Yes;
        }
        let mut own = Share::default();
        self.execute_independent(split, place, &mut own);
        split.speculation.keep(place, own);
        Written::Unsettled
    }

    /// Executes a fragment of a transaction whose fragments depend on nothing.
    pub(super) fn execute_independent(&self, split: &Split, place: u16, share: &mut Share) {
        if self.order.is_void(split.position()) {
            return;
        }
        let (record, outcome) = self.execute_on_record(split, place, &[], share);
        let failed = |stop: Stop| Done::read(Reply::error_owned(stop.to_string()));
        let mut done = outcome.unwrap_or_else(failed);
        let value = std::mem::replace(&mut done.value, FragmentValue::NIL);
        self.install_done(split, place, record, done, share);
        if value != FragmentValue::NIL {
            share.gathered.values.push((place, value));
        }
    }

    /// Makes known what was done for a split transaction. Whether no fragment is left to be executed here.
    pub(super) fn add_share(&self, split: &Split, share: Share) -> bool {
        debug_assert!(!share.must_repair, "{} has aborted, and nobody has repaired", split.position());
        let executed = share.executed;
        if executed == 0 {
            return false;
        }
        split.add(share);
        // Whoever adds the last share sees what the others have added.
        split.remaining.fetch_sub(executed, Ordering::AcqRel) == executed
    }

    /// Executes a fragment on what its record holds. The record comes with it, if it was looked up.
    pub(super) fn execute_on_record(
        &self,
        split: &Split,
        place: u16,
        inputs: &[FragmentValue],
        share: &mut Share,
    ) -> (Option<RecordRef<()>>, FragmentOutcome) {
        let Job { context, request, .. } = &split.job;
        // The witness first: whole transactions latch records while it sees them.
        running::see(request, context, || {
            let Fragment { key, kind, .. } = &split.fragments.list()[usize::from(place)];
            // A placeholder for what is only looked at would stay until the store's collection comes there.
            let mut record = match kind {
                FragmentKind::Put => None,
                FragmentKind::Read | FragmentKind::Update => self.partition.get(key),
            };
            let before = context.position.prev();
            let clears = self.partition.clears_of(key);
            let found = record
                .as_mut()
                .and_then(|record| self.partition.with(record, |cell| cell.read(before, clears).entry));
            // Not under the record's latch: readers at a snapshot would wait for it. No other transaction
            // writes the record meanwhile, because its turn is this fragment's.
            let mut notes = Vec::new();
            let (found, now_ms) = (found.as_ref(), context.now_ms);
            let outcome =
                split.fragments.execute_apart(request, place.into(), found, inputs, now_ms, &mut notes);
            if !notes.is_empty() {
                share.gathered.notes.push((place, notes));
            }
            (record, outcome)
        })
    }

    /// Puts what a fragment has written into the records.
    pub(super) fn install_done(
        &self,
        split: &Split,
        place: u16,
        record: Option<RecordRef<()>>,
        done: Done,
        share: &mut Share,
    ) {
        if let Some(entry) = done.write {
            let key = &split.fragments.list()[usize::from(place)].key;
            self.install(split.position(), key, record, entry, share);
        }
        for (key, entry) in done.inserts {
            self.install(split.position(), &key, None, Some(entry), share);
        }
    }

    fn install(
        &self,
        position: Position,
        key: &Key,
        record: Option<RecordRef<()>>,
        entry: Option<Entry>,
        share: &mut Share,
    ) {
        share.writes += 1;
        share.terms = share.terms.wrapping_add(digest::of_write(key, position, entry.as_ref()));
        let mut record = record.unwrap_or_else(|| self.partition.get_or_insert(key));
        let clears = self.partition.clears_of(key);
        self.partition.with(&mut record, |cell| {
            if key.space() == Space::User {
                let was_live = cell.live(position.prev(), clears);
                share.live += i64::from(entry.is_some()) - i64::from(was_live);
            }
            cell.supersede(Version { position, entry }, self.partition.snapshots().watermark());
        });
        share.gathered.installed.push(record);
    }
}
