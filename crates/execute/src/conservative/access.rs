//! A transaction's side of an engine that runs it on final reads: nothing but a step's budget and its
//! siblings ever suspend it.

use super::commit::{Installed, LiveChange};
use super::order::Job;
use super::siblings::{Awaited, Finals, Member};
use crate::siblings::parts::{self, Parts};
use crate::siblings::{Asked, GroupId, Told};
use std::any::Any;
use std::sync::Arc;
use std::task::{Poll, ready};
use store::{Partition, View};
use txn::hash::SecretMap;
use txn::mutant::{Mutant, is_active};
use txn::tx::Read;
use txn::{
    Access, Entry, Intent, Key, KeySets, Outcome, PartitionId, Position, ScanPage, ScanRange, Slots, Space,
    Stop,
};

/// The keys that a transaction may touch, at all of its partitions.
struct Declared {
    sets: Arc<KeySets>,
    reads: Cursor,
    writes: Cursor,
}

impl Declared {
    fn new(sets: Arc<KeySets>) -> Declared {
        Declared { sets, reads: Cursor::default(), writes: Cursor::default() }
    }
    fn may_write(&mut self, key: &Key) -> bool {
        self.writes.finds(&self.sets.writes, key)
            || self.sets.covers_inserts && !self.reads.finds(&self.sets.reads, key)
    }
    fn may_read(&mut self, key: &Key) -> bool {
        self.reads.finds(&self.sets.reads, key) || self.writes.finds(&self.sets.writes, key)
    }
}

/// Up to so many keys are looked through.
const LOOKED_THROUGH_MAX: usize = 64;

/// Looks for keys in a list, always the same one.
#[derive(Default)]
struct Cursor {
    /// Where the next key is expected: procedures touch keys much in the order in which they were named.
    next: usize,
    /// The places of the list, in the order of their keys: once a long list was looked through.
    sorted: Vec<u32>,
}

impl Cursor {
    /// Whether `keys` has `key`, looked for where it is most likely first.
    fn finds(&mut self, keys: &[Key], key: &Key) -> bool {
        if keys.get(self.next) == Some(key) {
            self.next += 1;
            return true;
        }
        if self.next > 0 && keys.get(self.next - 1) == Some(key) {
            return true;
        }
        let place = match keys.len() <= LOOKED_THROUGH_MAX {
            true => keys.iter().position(|other| other == key),
            false => self.search(keys, key),
        };
        self.next = place.map_or(self.next, |place| place + 1);
        place.is_some()
    }

    fn search(&mut self, keys: &[Key], key: &Key) -> Option<usize> {
        if self.sorted.is_empty() {
            self.sorted.extend(0..keys.len() as u32);
            self.sorted.sort_unstable_by_key(|&place| &keys[place as usize]);
        }
        let found = self.sorted.binary_search_by_key(&key, |&place| &keys[place as usize]);
        found.ok().map(|index| self.sorted[index] as usize)
    }
}

/// Why a poll of a procedure came back pending.
pub(super) enum Pause {
    /// The step's budget is spent.
    Budget,
    /// It waits for what a sibling reads.
    Sibling(Member, Awaited),
}

/// What a transaction reads and writes through. Used again by the next one.
pub(crate) struct FinalAccess {
    partition: Arc<Partition<()>>,
    finals: Arc<Finals>,
    position: Position,
    /// Its book, if it has siblings; and whose the slots are.
    member: Option<Member>,
    slots: Slots,
    /// `None`: it may touch any key of its partitions.
    declared: Option<Declared>,
    /// It touched what it had not declared: whatever it returns, it leaves nothing behind.
    undeclared: Option<Option<PartitionId>>,
    /// That was a read of this key.
    strayed_to: Option<Key>,
    /// At all partitions.
    pub(super) writes: Vec<(Key, Option<Entry>)>,
    /// Where the writes are, if there are more than [`LOOKED_THROUGH_MAX`].
    places: SecretMap<Key, usize>,
    pub(super) cleared: bool,
    /// The records of what is installed are noted.
    pub(super) notes_installed: bool,
    pub(super) installed: Installed<()>,
    /// How many of the declared keys were looked at, and what was read of this partition's, to be told.
    fetched: usize,
    to_tell: Vec<(Asked, Told)>,
    pub(super) left: u32,
    pub(super) pause: Option<Pause>,
}

impl FinalAccess {
    pub(crate) fn new(partition: Arc<Partition<()>>, finals: Arc<Finals>) -> FinalAccess {
        FinalAccess {
            partition,
            finals,
            position: Position::NONE,
            member: None,
            slots: Slots::even(1),
            declared: None,
            undeclared: None,
            strayed_to: None,
            writes: Vec::new(),
            places: SecretMap::default(),
            cleared: false,
            notes_installed: false,
            installed: Installed::new(),
            fetched: 0,
            to_tell: Vec::new(),
            left: 0,
            pause: None,
        }
    }

    /// Begins a transaction, which may touch only the keys of `declared`, if there are such.
    pub(super) fn begin(&mut self, job: &Job, declared: Option<Arc<KeySets>>) {
        self.position = job.context.position;
        self.member = job.member.clone();
        self.slots = job.request.route.slots.clone();
        self.declared = declared.map(Declared::new);
        self.undeclared = None;
        self.strayed_to = None;
        self.writes.clear();
        self.places.clear();
        self.cleared = false;
        self.notes_installed = false;
        self.fetched = 0;
        self.to_tell.clear();
        self.pause = None;
    }

    /// The undeclared key that it read, if that was the first thing that it should not have touched.
    pub(crate) fn strayed_to(&mut self) -> Option<Key> {
        self.strayed_to.take()
    }

    pub(super) fn partition(&self) -> &Partition<()> {
        &self.partition
    }

    /// Reads, for the siblings, one of the declared keys of this partition. False when there is none left:
    /// then the siblings were told of all.
    pub(super) fn fetch(&mut self) -> bool {
        let (Some(declared), Some(member)) = (&self.declared, &self.member) else {
            return false;
        };
        let sets = declared.sets.clone();
        let keys = sets.reads.iter().chain(&sets.writes).skip(self.fetched);
        for key in keys {
            self.fetched += 1;
            if self.elsewhere(key).is_none() {
                let told = Told::Record(self.partition.read(self.upto(), key));
                self.to_tell.push((Asked::Key(key.clone()), told));
                return true;
            }
        }
        self.finals.tell(member, std::mem::take(&mut self.to_tell));
        false
    }

    /// What the transaction's end is, and what it does to the number of entries before its writes.
    pub(super) fn judged(&mut self, outcome: Outcome) -> (Outcome, LiveChange) {
        let outcome = match self.strayed().and(outcome) {
            Err(Stop::Restart) => {
                Err(Stop::abort("ERR the procedure asked for a restart that nobody wanted"))
            }
            outcome => outcome,
        };
        if outcome.is_ok() && self.cleared {
            self.partition.clears().insert(self.position);
            return (outcome, LiveChange::To(0));
        }
        (outcome, LiveChange::By(0))
    }

    /// Pays for one operation.
    fn pay(&mut self) -> Poll<()> {
        if self.left == 0 {
            self.pause = Some(Pause::Budget);
            return Poll::Pending;
        }
        self.left -= 1;
        Poll::Ready(())
    }

    fn permit(&mut self, allowed: impl FnOnce(&mut Declared) -> bool) -> Result<(), Stop> {
        if let Some(declared) = &mut self.declared
            && self.undeclared.is_none()
            && !allowed(declared)
        {
            self.undeclared = Some(None);
        }
        self.strayed()
    }

    /// Whether it may touch a key, which is another partition's or one of this.
    fn reach(
        &mut self,
        elsewhere: Option<PartitionId>,
        allowed: impl FnOnce(&mut Declared) -> bool,
    ) -> Result<(), Stop> {
        if let (Some(partition), Some(member)) = (elsewhere, &self.member) {
            let missing = (!member.has(partition)).then_some(Some(partition));
            self.undeclared = self.undeclared.or(missing);
        }
        if elsewhere.is_none() || !is_active(Mutant::JudgeOwnKeysOnly) {
            self.permit(allowed)?;
        }
        self.strayed()
    }

    /// Whether it has touched what it may not.
    fn strayed(&self) -> Result<(), Stop> {
        self.undeclared.map_or(Ok(()), |missing| Err(Stop::Undeclared(missing)))
    }

    /// For what looks at a whole space.
    fn enter_whole(&mut self, space: Space) -> Poll<Result<(), Stop>> {
        ready!(self.pay());
        if !self.has_all_of(space) {
            self.undeclared.get_or_insert(None);
        }
        Poll::Ready(self.permit_all())
    }

    fn permit_all(&mut self) -> Result<(), Stop> {
        self.permit(|_| false)
    }

    fn written(&self, key: &Key) -> Option<usize> {
        match self.writes.len() <= LOOKED_THROUGH_MAX {
            true => self.writes.iter().rposition(|(written, _)| written == key),
            false => self.places.get(key).copied(),
        }
    }

    /// A new write, of a key that was not written before.
    fn add_write(&mut self, key: &Key, entry: Option<Entry>) {
        self.writes.push((key.clone(), entry));
        match self.writes.len() {
            0..=LOOKED_THROUGH_MAX => {}
            count if count == LOOKED_THROUGH_MAX + 1 => self.note_places(),
            count => drop(self.places.insert(key.clone(), count - 1)),
        }
    }

    /// Notes where many writes are.
    fn note_places(&mut self) {
        self.places.clear();
        if self.writes.len() > LOOKED_THROUGH_MAX {
            let written = self.writes.iter().enumerate();
            self.places.extend(written.map(|(place, (key, _))| (key.clone(), place)));
        }
    }

    fn upto(&self) -> Position {
        self.position.prev()
    }
}

impl Parts for FinalAccess {
    fn me(&self) -> PartitionId {
        self.finals.me
    }
    fn group(&self) -> Option<&GroupId> {
        self.member.as_ref().map(|member| &member.group.id)
    }
    fn slots(&self) -> &Slots {
        &self.slots
    }
    fn has_cleared(&self) -> bool {
        self.cleared
    }
    fn own(&self, visit: &mut dyn FnMut(&Key, Option<&Entry>)) {
        let writes = self.writes.iter();
        writes.for_each(|(key, entry)| visit(key, entry.as_ref()));
    }
    fn here(&mut self, asked: &Asked) -> Result<Told, Stop> {
        let told = match asked {
            Asked::Key(key) => Told::Record(self.partition.read(self.upto(), key)),
            Asked::Page(range) => Told::Page(self.partition.scan(self.upto(), *range)),
            // Whoever counts runs alone, so everything before it has final-committed.
            Asked::Count => Told::Count(self.partition.published().live),
        };
        if let Some(member) = &self.member {
            self.finals.tell(member, vec![(asked.clone(), told.clone())]);
        }
        Ok(told)
    }
    fn there(&mut self, from: PartitionId, asked: &Asked) -> Poll<Result<Told, Stop>> {
        let Some(member) = &self.member else {
            return Poll::Ready(Err(Stop::Undeclared(None)));
        };
        match self.finals.take(member, from, asked) {
            Some(told) => Poll::Ready(Ok(told)),
            None => {
                let awaited = Awaited::Read { from, asked: asked.clone() };
                self.pause = Some(Pause::Sibling(member.clone(), awaited));
                Poll::Pending
            }
        }
    }
}

impl Access for FinalAccess {
    fn read(&mut self, key: &Key, _: Intent) -> Poll<Result<Read, Stop>> {
        let elsewhere = self.elsewhere(key);
        // What was fetched for the siblings has been paid for.
        let was_fetched = elsewhere.is_none() && self.member.is_some() && self.declared.is_some();
        if !was_fetched && self.pay().is_pending() {
            return Poll::Pending;
        }
        if self.undeclared.is_none()
            && let Err(stop) = self.reach(elsewhere, |declared| declared.may_read(key))
        {
            self.strayed_to = Some(key.clone());
            return Poll::Ready(Err(stop));
        }
        self.strayed()?;
        if let Some(index) = self.written(key) {
            return Poll::Ready(Ok(Read { entry: self.writes[index].1.clone(), version: Position::NONE }));
        }
        if self.cleared && key.space() == Space::User {
            return Poll::Ready(Ok(Read::default()));
        }
        match elsewhere {
            Some(from) => self.there(from, &Asked::Key(key.clone())).map_ok(Told::into_record),
            None if self.member.is_none() || was_fetched => {
                Poll::Ready(Ok(self.partition.read(self.upto(), key)))
            }
            None => Poll::Ready(self.here(&Asked::Key(key.clone())).map(Told::into_record)),
        }
    }
    fn admit_write(&mut self, key: &Key) -> Poll<Result<(), Stop>> {
        let elsewhere = self.elsewhere(key);
        Poll::Ready(self.reach(elsewhere, |declared| declared.may_write(key)))
    }
    fn write(&mut self, key: &Key, entry: Option<Entry>) -> Result<(), Stop> {
        // Admitted, and so permitted; but a procedure may go on although it was refused.
        self.reach(self.elsewhere(key), |declared| declared.may_write(key))?;
        match self.written(key) {
            Some(index) => self.writes[index].1 = entry,
            None => self.add_write(key, entry),
        }
        Ok(())
    }
    fn scan(&mut self, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        ready!(self.enter_whole(range.space))?;
        parts::scan(self, range)
    }
    fn scan_at(&mut self, partition: PartitionId, range: ScanRange) -> Poll<Result<ScanPage, Stop>> {
        ready!(self.pay());
        self.permit_all()?;
        parts::scan_at(self, partition, range)
    }
    fn count(&mut self) -> Poll<Result<u64, Stop>> {
        ready!(self.enter_whole(Space::User))?;
        parts::count(self)
    }
    fn clear(&mut self) -> Poll<Result<(), Stop>> {
        ready!(self.enter_whole(Space::User))?;
        self.writes.retain(|(key, _)| key.space() != Space::User);
        self.note_places();
        self.cleared = true;
        Poll::Ready(Ok(()))
    }
    fn overdraw(&mut self) -> bool {
        let is_spent = matches!(self.pause, Some(Pause::Budget));
        if is_spent {
            self.pause = None;
            self.left = 1;
        }
        is_spent
    }
    fn expect(&mut self, hashes: &[u64]) {
        self.partition.warm(hashes);
    }
    fn doomed(&self) -> bool {
        false
    }
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_short_and_long_lists() {
        for count in [3, LOOKED_THROUGH_MAX, LOOKED_THROUGH_MAX + 1, 500] {
            let keys: Vec<Key> = (0..count).map(|number| Key::from(format!("{number}").as_str())).collect();
            let mut cursor = Cursor::default();
            assert!(keys.iter().all(|key| cursor.finds(&keys, key)), "in their order");
            assert!(keys.iter().rev().all(|key| cursor.finds(&keys, key)), "backwards");
            let other = Key::from("other");
            assert!(keys.iter().all(|key| !cursor.finds(&keys, &other) && cursor.finds(&keys, key)));
        }
    }

    #[test]
    fn writes_are_found_among_few_and_many() {
        let finals = Arc::new(Finals::new(PartitionId(0)));
        let mut access = FinalAccess::new(Arc::new(Partition::new()), finals);
        let keys: Vec<Key> = (0..500).map(|number| Key::from(format!("{number}").as_str())).collect();
        for (place, key) in keys.iter().enumerate() {
            assert_eq!(access.written(key), None);
            access.write(key, None).expect("it may write what it likes");
            assert_eq!((access.written(key), access.written(&keys[0])), (Some(place), Some(0)));
        }
        access.write(&keys[7], Some(Entry::new("again"))).expect("it may write what it likes");
        assert_eq!((access.writes.len(), access.written(&keys[499])), (500, Some(499)));
        access.left = 1;
        assert!(access.clear().is_ready() && access.written(&keys[499]).is_none());
    }
}
