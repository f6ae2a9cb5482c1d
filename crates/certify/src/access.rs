//! A transaction's side of its snapshot: what it has read there, and what it writes.

use crate::{Answer, Conflict, Listing, LocalSnapshot, Look, ReadSet, WriteSet};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::task::{Poll, ready};
use txn::tx::Read;
use txn::{Access, Entry, Event, Intent, Key, Outcome, Reply, ScanPage, ScanRange, Space, Stop};

/// The [`Access`] behind a procedure that runs at a snapshot.
///
/// It reads at once where the site has all the data. Elsewhere a look that the snapshot has not answered yet
/// is *wanted*: the procedure is parked until the answer is put in.
///
/// Invariants:
/// 1. A key is looked at once: whatever the procedure asks again has the same answer.
/// 2. What the transaction has written itself is not in its read set, unless it had read it before.
#[derive(Default)]
pub(crate) struct Workspace {
    local: Option<Arc<dyn LocalSnapshot>>,
    seen: BTreeMap<Key, Read>,
    listings: Vec<Listing>,
    count: Option<u64>,
    held: BTreeSet<Key>,
    writes: WriteSet,
    /// The bytes of `seen` and `writes`, about.
    bytes: usize,
    /// What the procedure is parked for.
    wanted: Option<Look>,
    /// What was looked for, and the answer.
    asked: Option<Look>,
    found: Option<Answer>,
    /// What the protocol or this access does not do: the procedure ends so, whatever it makes of it.
    refused: Option<Stop>,
    /// The snapshot is gone.
    conflict: Option<Conflict>,
    /// What the writes were when they were saved, as far as they have changed since.
    saved: Option<Saved>,
}

/// What a record takes in memory beside its key and its value, about.
const RECORD_BYTES: usize = 64;

/// The bytes of memory that a record is counted with.
pub fn record_bytes(key: &Key, entry: Option<&Entry>) -> usize {
    RECORD_BYTES + key.heap_bytes() + entry.map_or(0, |entry| entry.value.heap_bytes())
}

/// The outcome of a procedure. One that has published a message stops instead: sites tell each other of no
/// messages, and a message that is lost must not look as if it had been sent.
pub(crate) fn without_messages(outcome: Outcome) -> Outcome {
    match &outcome {
        Ok(Reply::Told(told)) if told.events.iter().any(|event| matches!(event, Event::Message(_))) => {
            let text = "ERR a message was published, and certified transactions deliver none: nothing was \
                        changed";
            Err(Stop::abort(text))
        }
        _ => outcome,
    }
}

/// What a write set held before it was changed.
#[derive(Default)]
struct Saved {
    clears: bool,
    records: BTreeMap<Key, Option<Option<Entry>>>,
}

impl Workspace {
    pub(crate) fn at(local: Option<Arc<dyn LocalSnapshot>>) -> Workspace {
        Workspace { local, ..Workspace::default() }
    }

    /// What the procedure is parked for.
    pub(crate) fn take_wanted(&mut self) -> Option<Look> {
        self.asked = self.wanted.take();
        self.asked.clone()
    }

    /// The answer to what was wanted.
    pub(crate) fn put_found(&mut self, answer: Answer) {
        self.found = Some(answer);
    }

    pub(crate) fn take_refused(&mut self) -> Option<Stop> {
        self.refused.take()
    }

    pub(crate) fn take_conflict(&mut self) -> Option<Conflict> {
        self.conflict.take()
    }

    /// How many keys it writes.
    pub(crate) fn written_keys(&self) -> usize {
        self.writes.records.len()
    }

    /// The bytes of what it has read and of what it writes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Has the transaction write this to a key, or nothing.
    fn set(&mut self, key: Key, record: Option<Option<Entry>>) {
        let bytes = |key: &Key, record: &Option<Option<Entry>>| {
            record.as_ref().map_or(0, |entry| record_bytes(key, entry.as_ref()))
        };
        self.bytes += bytes(&key, &record);
        let before = match record {
            Some(entry) => self.writes.records.insert(key.clone(), entry),
            None => self.writes.records.remove(&key),
        };
        self.bytes -= bytes(&key, &before);
    }

    /// Notes what it writes now, for [`Workspace::restore`].
    pub(crate) fn save(&mut self) {
        self.saved = Some(Saved { clears: self.writes.clears, records: BTreeMap::new() });
    }

    /// Takes back what was written since [`Workspace::save`].
    pub(crate) fn restore(&mut self) {
        let Some(saved) = self.saved.take() else { return };
        self.writes.clears = saved.clears;
        for (key, before) in saved.records {
            self.set(key, before);
        }
    }

    /// A key's write is about to change.
    fn note_before(&mut self, key: &Key) {
        if let Some(saved) = &mut self.saved {
            let before = self.writes.records.get(key);
            saved.records.entry(key.clone()).or_insert_with(|| before.cloned());
        }
    }

    pub(crate) fn into_sets(self) -> (ReadSet, WriteSet) {
        let unwritten = self.held.into_iter().filter(|key| !self.writes.records.contains_key(key));
        let held = unwritten.filter_map(|key| {
            let entry = self.seen.get(&key)?.entry.clone();
            Some((key, entry))
        });
        let held = held.collect();
        let keys = self.seen.into_iter().map(|(key, read)| (key, read.version)).collect();
        (ReadSet { keys, scans: self.listings, count: self.count, held }, self.writes)
    }

    fn look(&mut self, look: Look) -> Poll<Result<Answer, Stop>> {
        let answer = match &self.local {
            Some(local) => local.look(&look),
            // A procedure that polls several looks by turns must not get the answer of one for another.
            None => match self.found.take_if(|_| self.asked.as_ref() == Some(&look)) {
                Some(answer) => answer,
                None => {
                    self.wanted = Some(look);
                    return Poll::Pending;
                }
            },
        };
        Poll::Ready(match answer {
            Answer::Refused(text) => Err(self.refuse(Stop::Abort(text))),
            Answer::Conflict(conflict) => {
                self.conflict = Some(conflict);
                Err(Stop::Restart)
            }
            answer => Ok(answer),
        })
    }

    /// An answer to another question: the protocol is wrong.
    fn stray(&mut self) -> Stop {
        self.refuse(Stop::abort("ERR the certified protocol answered another question than it was asked"))
    }

    fn refuse(&mut self, stop: Stop) -> Stop {
        self.refused.get_or_insert(stop).clone()
    }

    /// A record at the snapshot.
    fn snapshot_read(&mut self, key: &Key) -> Poll<Result<Read, Stop>> {
        if let Some(read) = self.seen.get(key) {
            return Poll::Ready(Ok(read.clone()));
        }
        let Answer::Value(read) = ready!(self.look(Look::Key(key.clone())))? else {
            return Poll::Ready(Err(self.stray()));
        };
        self.bytes += record_bytes(key, read.entry.as_ref());
        self.seen.insert(key.clone(), read.clone());
        Poll::Ready(Ok(read))
    }

    fn has_cleared(&self, space: Space) -> bool {
        self.writes.clears && space == Space::User
    }
}

impl Access for Workspace {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        if let Some(entry) = self.writes.records.get(key) {
            return Poll::Ready(Ok(Read { entry: entry.clone(), ..Read::default() }));
        }
        match self.has_cleared(key.space()) {
            true => Poll::Ready(Ok(Read::default())),
            false => self.snapshot_read(key),
        }
    }

    fn admit_write(&mut self, _: &Key) -> Poll<Result<(), Stop>> {
        Poll::Ready(Ok(()))
    }

    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        self.note_before(key);
        self.set(key.clone(), Some(entry));
        Ok(())
    }

    fn hold(&mut self, key: &Key) {
        self.held.insert(key.clone());
    }

    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        let mut page = ScanPage::default();
        if !self.has_cleared(range.space) {
            let Answer::Page(found) = ready!(self.look(Look::Scan(range)))? else {
                return Poll::Ready(Err(self.stray()));
            };
            let (entries, next_hash) = (found.entries.len() as u64, found.next_hash);
            self.listings.push(Listing { range, entries, next_hash });
            page = found;
        }
        let own = self.writes.records.iter();
        Poll::Ready(Ok(page.with_own(range, |visit| own.for_each(|(key, entry)| visit(key, entry.as_ref())))))
    }

    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        let own = self.writes.records.iter().filter(|(key, _)| key.space() == Space::User);
        let own: Vec<(Key, bool)> = own.map(|(key, entry)| (key.clone(), entry.is_some())).collect();
        let mut change = 0;
        for (key, is_there) in own {
            let was = !self.writes.clears && ready!(self.snapshot_read(&key))?.entry.is_some();
            change += i64::from(is_there) - i64::from(was);
        }
        let before = match self.count {
            _ if self.writes.clears => 0,
            Some(count) => count,
            None => {
                let Answer::Count(count) = ready!(self.look(Look::Count))? else {
                    return Poll::Ready(Err(self.stray()));
                };
                *self.count.insert(count)
            }
        };
        Poll::Ready(Ok(before.saturating_add_signed(change)))
    }

    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        let of_users = self.writes.records.keys().filter(|key| key.space() == Space::User);
        for key in of_users.cloned().collect::<Vec<Key>>() {
            self.note_before(&key);
            self.set(key, None);
        }
        self.writes.clears = true;
        Poll::Ready(Ok(()))
    }

    fn doomed(&self) -> bool {
        self.conflict.is_some()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_since_the_last_save_are_taken_back() {
        let key = |name: &str| Key::new(name.as_bytes());
        let mut space = Workspace::default();
        let put = |space: &mut Workspace, name: &str, entry: Option<&'static str>| {
            space.write(&key(name), entry.map(Entry::new)).expect("written");
        };
        put(&mut space, "a", Some("1"));
        put(&mut space, "b", None);
        let (before, bytes) = (space.writes.clone(), space.bytes());
        space.save();
        put(&mut space, "a", Some("2"));
        put(&mut space, "a", None);
        put(&mut space, "c", Some("2"));
        assert!(space.clear().is_ready());
        put(&mut space, "b", Some("2"));
        space.restore();
        assert_eq!((space.writes.clone(), space.bytes()), (before, bytes));
    }

    #[test]
    fn an_answer_serves_its_own_question_only() {
        let mut space = Workspace::default();
        let range = |limit| ScanRange::of(Space::User, 0, limit);
        let key = |name: &str| Key::new(name.as_bytes());
        assert!(space.scan(range(1)).is_pending());
        assert_eq!(space.take_wanted(), Some(Look::Scan(range(1))));
        space.put_found(Answer::Page(ScanPage::default()));
        // The procedure goes on with another look, and comes back to the first one.
        assert!(space.scan(range(2)).is_pending() && space.read(&key("a"), Intent::Read).is_pending());
        assert!(space.listings.is_empty() && space.seen.is_empty());
        assert_eq!(space.take_wanted(), Some(Look::Key(key("a"))));
        space.put_found(Answer::Value(Read::default()));
        assert!(space.read(&key("a"), Intent::Read).is_ready());
        assert!(space.scan(range(1)).is_pending(), "the question is asked anew");
        assert!(space.refused.is_none());
    }
}
