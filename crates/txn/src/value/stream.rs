//! Redis streams as persistent values.
//!
//! The entries stand in a [`Sequence`] in order of their ids. So do a group's pending entries, and what each
//! consumer has of them; consumers and groups stand in order of their names. Whatever a command changes costs
//! O(log n), and every older version stays readable.
//!
//! Invariants: ids ascend strictly, and none is above `last_id`; what a group has pending is what its
//! consumers have, each entry once; `heap_bytes` is the sum over entries and groups.

use crate::blob::Blob;
use crate::sequence::{Item, Iter, Sequence};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The id of a stream's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId {
    /// Milliseconds since 1970, if the stream made it.
    pub ms: u64,
    /// Which one of that millisecond.
    pub sequence: u64,
}

impl StreamId {
    /// Before every entry's.
    pub const MIN: StreamId = StreamId { ms: 0, sequence: 0 };
    /// The last that there is.
    pub const MAX: StreamId = StreamId { ms: u64::MAX, sequence: u64::MAX };

    /// The next one, if there is any.
    pub fn next(self) -> Option<StreamId> {
        match self.sequence.checked_add(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, sequence: 0 }),
        }
    }
    /// The one before, if there is any.
    pub fn previous(self) -> Option<StreamId> {
        match self.sequence.checked_sub(1) {
            Some(sequence) => Some(StreamId { sequence, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, sequence: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.sequence)
    }
}

/// An entry of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEntry {
    /// Its id.
    pub id: StreamId,
    /// Fields and values in turn.
    pub fields: Arc<[Blob]>,
}

impl StreamEntry {
    fn heap_bytes(&self) -> usize {
        let fields = self.fields.iter();
        let fields: usize = fields.map(|field| size_of::<Blob>() + field.heap_bytes()).sum();
        size_of::<StreamEntry>() + 16 + fields
    }
}

/// A stream with its consumer groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamValue {
    entries: Sequence<StreamEntry>,
    /// The last id that it gave, or was told to have given.
    pub last_id: StreamId,
    /// The largest id of an entry that was deleted, but for those at the front that were trimmed.
    pub max_deleted_id: StreamId,
    /// How many entries were ever added.
    pub entries_added: u64,
    groups: Sequence<(Blob, StreamGroup)>,
    heap_bytes: usize,
}

impl Item for StreamId {
    type Key = StreamId;
    fn key(&self) -> StreamId {
        *self
    }
}
impl Item for StreamEntry {
    type Key = StreamId;
    fn key(&self) -> StreamId {
        self.id
    }
}
impl Item for Pending {
    type Key = StreamId;
    fn key(&self) -> StreamId {
        self.id
    }
}
// Groups, and consumers of one, are few.
impl Item for (Blob, StreamGroup) {
    type Key = ();
    fn key(&self) {}
}
impl Item for Consumer {
    type Key = ();
    fn key(&self) {}
}

/// Finds a name, or where it would stand.
fn search<T: Item>(items: &Sequence<T>, name: &[u8], name_of: impl Fn(&T) -> &Blob) -> Result<usize, usize> {
    let place = items.partition_point(|item| name_of(item).as_bytes() < name);
    match items.get(place) {
        Some(item) if name_of(item).as_bytes() == name => Ok(place),
        _ => Err(place),
    }
}

impl StreamValue {
    /// An empty stream.
    pub fn new() -> StreamValue {
        StreamValue::default()
    }
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }
    /// Whether there is no entry. (An empty stream is still a stream.)
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
    /// The first entry.
    pub fn first(&self) -> Option<&StreamEntry> {
        self.entries.first()
    }
    /// The last entry that is there.
    pub fn last(&self) -> Option<&StreamEntry> {
        self.entries.last()
    }
    /// How many entries have an id before this one.
    pub fn count_before(&self, id: StreamId) -> usize {
        self.entries.partition_point_by(|key| key.cmp(&id), |entry| entry.id < id)
    }
    fn place_of(&self, id: StreamId) -> Option<usize> {
        let place = self.count_before(id);
        let found = self.entries.get(place)?;
        (found.id == id).then_some(place)
    }
    /// The entry with an id.
    pub fn get(&self, id: StreamId) -> Option<&StreamEntry> {
        self.entries.get(self.place_of(id)?)
    }
    /// The entries with these ids.
    pub fn range(&self, ids: RangeInclusive<StreamId>) -> Iter<'_, StreamEntry> {
        let end = match ids.end().next() {
            Some(after) => self.count_before(after),
            None => self.len(),
        };
        self.entries.range(self.count_before(*ids.start())..end)
    }
    /// All entries.
    pub fn iter(&self) -> Iter<'_, StreamEntry> {
        self.entries.iter()
    }
    /// Adds an entry at the end.
    ///
    /// # Panics
    /// If its id is not after the last one.
    pub fn append(&mut self, entry: StreamEntry) {
        assert!(entry.id > self.last_id, "ids ascend");
        self.last_id = entry.id;
        self.entries_added += 1;
        self.restore(entry);
    }
    /// Adds an entry that was there before, behind all others.
    fn restore(&mut self, entry: StreamEntry) {
        self.heap_bytes += entry.heap_bytes();
        self.entries.push_back(entry);
    }
    /// Deletes an entry; whether it was there.
    pub fn delete(&mut self, id: StreamId) -> bool {
        let Some(entry) = self.place_of(id).and_then(|place| self.entries.remove(place)) else {
            return false;
        };
        self.heap_bytes -= entry.heap_bytes();
        self.max_deleted_id = self.max_deleted_id.max(id);
        true
    }
    /// Removes the first entries.
    pub fn trim(&mut self, count: usize) {
        let trimmed = self.entries.range(0..count);
        self.heap_bytes -= trimmed.map(StreamEntry::heap_bytes).sum::<usize>();
        self.entries.remove_range(0..count);
    }
    /// The groups by name.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = (&Blob, &StreamGroup)> {
        self.groups.iter().map(|(name, group)| (name, group))
    }
    /// A group.
    pub fn group(&self, name: &[u8]) -> Option<&StreamGroup> {
        let place = search(&self.groups, name, |(name, _)| name).ok()?;
        self.groups.get(place).map(|(_, group)| group)
    }
    /// Adds a group; whether there was none of that name.
    pub fn add_group(&mut self, name: Blob, group: StreamGroup) -> bool {
        let Err(place) = search(&self.groups, &name, |(name, _)| name) else {
            return false;
        };
        self.heap_bytes += group.heap_bytes() + size_of::<Blob>() + name.heap_bytes();
        self.groups.insert(place, (name, group));
        true
    }
    /// Removes a group; whether it was there.
    pub fn remove_group(&mut self, name: &[u8]) -> bool {
        let place = search(&self.groups, name, |(name, _)| name);
        let Some((name, group)) = place.ok().and_then(|place| self.groups.remove(place)) else {
            return false;
        };
        self.heap_bytes -= group.heap_bytes() + size_of::<Blob>() + name.heap_bytes();
        true
    }
    /// Changes a group.
    pub fn update_group<R>(&mut self, name: &[u8], change: impl FnOnce(&mut StreamGroup) -> R) -> Option<R> {
        let place = search(&self.groups, name, |(name, _)| name).ok()?;
        let heap_bytes = &mut self.heap_bytes;
        self.groups.update(place, |(_, group)| {
            let before = group.heap_bytes();
            let result = change(group);
            *heap_bytes = *heap_bytes + group.heap_bytes() - before;
            result
        })
    }
    /// An estimate of the heap bytes that this stream keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamGroup {
    /// The last entry that was delivered to any consumer.
    pub last_id: StreamId,
    /// How many entries up to that one the stream ever had, if that is known.
    pub entries_read: Option<u64>,
    pending: Sequence<Pending>,
    consumers: Sequence<Consumer>,
}

/// An entry that was delivered and not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Which.
    pub id: StreamId,
    /// To whom.
    pub consumer: Blob,
    /// When, in milliseconds since 1970.
    pub delivered_ms: u64,
    /// How often.
    pub deliveries: u64,
}

/// A consumer of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// Its name.
    pub name: Blob,
    /// When it last asked for anything, in milliseconds since 1970.
    pub seen_ms: u64,
    /// When it last got anything.
    pub active_ms: Option<u64>,
    pending: Sequence<StreamId>,
}

impl Consumer {
    /// The ids of what it has pending.
    pub fn pending(&self) -> &Sequence<StreamId> {
        &self.pending
    }
    fn place_of(&self, id: StreamId) -> usize {
        self.pending.partition_point_by(|key| key.cmp(&id), |other| *other < id)
    }
}

impl StreamGroup {
    /// A group that has delivered everything up to an id.
    pub fn new(last_id: StreamId, entries_read: Option<u64>) -> StreamGroup {
        StreamGroup { last_id, entries_read, ..StreamGroup::default() }
    }
    /// What is pending, by id.
    pub fn pending(&self) -> &Sequence<Pending> {
        &self.pending
    }
    /// How much is pending before an id.
    pub fn count_pending_before(&self, id: StreamId) -> usize {
        self.pending.partition_point_by(|key| key.cmp(&id), |pending| pending.id < id)
    }
    /// What is pending of an entry.
    pub fn pending_of(&self, id: StreamId) -> Option<&Pending> {
        let found = self.pending.get(self.count_pending_before(id));
        found.filter(|pending| pending.id == id)
    }
    /// The consumers, by name.
    pub fn consumers(&self) -> &Sequence<Consumer> {
        &self.consumers
    }
    fn place_of_consumer(&self, name: &[u8]) -> Result<usize, usize> {
        search(&self.consumers, name, |consumer| &consumer.name)
    }
    /// A consumer.
    pub fn consumer(&self, name: &[u8]) -> Option<&Consumer> {
        self.consumers.get(self.place_of_consumer(name).ok()?)
    }
    /// Notes that a consumer asks for something, now; whether it is a new one.
    pub fn see(&mut self, name: &Blob, now_ms: u64) -> bool {
        let place = self.place_of_consumer(name);
        match place {
            Ok(place) => {
                self.consumers.update(place, |consumer| consumer.seen_ms = now_ms);
            }
            Err(place) => self.consumers.insert(
                place,
                Consumer { name: name.clone(), seen_ms: now_ms, active_ms: None, pending: Sequence::new() },
            ),
        }
        place.is_err()
    }
    fn update_consumer<R>(&mut self, name: &[u8], change: impl FnOnce(&mut Consumer) -> R) -> Option<R> {
        let place = self.place_of_consumer(name).ok()?;
        self.consumers.update(place, change)
    }
    /// Notes that a consumer gets something, now.
    pub fn activate(&mut self, name: &[u8], now_ms: u64) {
        self.update_consumer(name, |consumer| consumer.active_ms = Some(now_ms));
    }
    /// Removes a consumer with all that it has pending; how much that was.
    pub fn remove_consumer(&mut self, name: &[u8]) -> usize {
        let place = self.place_of_consumer(name).ok();
        let Some(consumer) = place.and_then(|place| self.consumers.remove(place)) else {
            return 0;
        };
        for &id in &consumer.pending {
            self.pending.remove(self.count_pending_before(id));
        }
        consumer.pending.len()
    }
    /// Makes an entry pending at a consumer that was seen, whoever had it before.
    pub fn give(&mut self, pending: Pending) {
        let (id, name) = (pending.id, pending.consumer.clone());
        let place = self.count_pending_before(id);
        let is_there = self.pending.get(place).is_some_and(|old| old.id == id);
        let old = if is_there {
            self.pending.update(place, |slot| std::mem::replace(slot, pending))
        } else {
            self.pending.insert(place, pending);
            None
        };
        if let Some(old) = old {
            if old.consumer == name {
                return;
            }
            self.forget(&old.consumer, id);
        }
        self.update_consumer(&name, |consumer| {
            let place = consumer.place_of(id);
            consumer.pending.insert(place, id);
        });
    }
    /// An entry is pending no more; who had it.
    pub fn acknowledge(&mut self, id: StreamId) -> Option<Pending> {
        let place = self.count_pending_before(id);
        self.pending.get(place).filter(|pending| pending.id == id)?;
        let pending = self.pending.remove(place)?;
        self.forget(&pending.consumer, id);
        Some(pending)
    }
    fn forget(&mut self, consumer: &[u8], id: StreamId) {
        self.update_consumer(consumer, |consumer| {
            let place = consumer.place_of(id);
            if consumer.pending.get(place) == Some(&id) {
                consumer.pending.remove(place);
            }
        });
    }
    /// Names are counted once, wherever they stand.
    fn heap_bytes(&self) -> usize {
        size_of::<StreamGroup>()
            + self.pending.len() * (size_of::<Pending>() + size_of::<StreamId>())
            + self.consumers.len() * size_of::<Consumer>()
    }
}

/// A stream as it was, piece by piece: what a checkpoint reads.
#[derive(Debug, Default)]
pub struct StreamBuilder {
    stream: StreamValue,
}

impl StreamBuilder {
    /// Begins with what is known of the whole.
    pub fn new(last_id: StreamId, max_deleted_id: StreamId, entries_added: u64) -> StreamBuilder {
        StreamBuilder {
            stream: StreamValue { last_id, max_deleted_id, entries_added, ..StreamValue::default() },
        }
    }
    /// The next entry; `None` if it is out of order.
    pub fn entry(&mut self, entry: StreamEntry) -> Option<()> {
        let last = self.stream.last().map(|last| last.id);
        let fits = last.is_none_or(|last| last < entry.id) && entry.id <= self.stream.last_id;
        fits.then(|| self.stream.restore(entry))
    }
    /// A group with its consumers, and then with what these have pending; `None` if that makes no sense.
    pub fn group(
        &mut self,
        name: Blob,
        mut group: StreamGroup,
        consumers: Vec<(Blob, u64, Option<u64>)>,
        pending: Vec<Pending>,
    ) -> Option<()> {
        for (consumer, seen_ms, active_ms) in consumers {
            if !group.see(&consumer, seen_ms) {
                return None;
            }
            group.update_consumer(&consumer, |consumer| consumer.active_ms = active_ms);
        }
        for pending in pending {
            let is_next = group.pending.last().is_none_or(|last| last.id < pending.id);
            if !is_next || group.consumer(&pending.consumer).is_none() {
                return None;
            }
            group.give(pending);
        }
        self.stream.add_group(name, group).then_some(())
    }
    /// What there is of the stream.
    pub fn so_far(&self) -> &StreamValue {
        &self.stream
    }
    /// The stream.
    pub fn build(self) -> StreamValue {
        self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn id(ms: u64) -> StreamId {
        StreamId { ms, sequence: 0 }
    }

    fn entry(ms: u64) -> StreamEntry {
        let fields = [Blob::from("f"), Blob::from("v".repeat(ms as usize % 50))];
        StreamEntry { id: id(ms), fields: Arc::from(fields) }
    }

    #[test]
    fn ids_have_neighbours() {
        let edge = StreamId { ms: 5, sequence: u64::MAX };
        assert_eq!(edge.next(), Some(id(6)));
        assert_eq!(id(6).previous(), Some(edge));
        assert_eq!(id(6).next().unwrap().to_string(), "6-1");
        assert_eq!((StreamId::MAX.next(), StreamId::MIN.previous()), (None, None));
    }

    #[test]
    fn a_stream_keeps_its_entries_in_order_and_counts_their_bytes() {
        let mut stream = StreamValue::new();
        (1..=300).for_each(|ms| stream.append(entry(ms)));
        let before = stream.clone();
        assert!(stream.delete(id(100)) && !stream.delete(id(100)));
        stream.trim(50);
        assert_eq!((stream.len(), stream.entries_added), (249, 300));
        assert_eq!(stream.max_deleted_id, id(100));
        assert_eq!(stream.first().map(|entry| entry.id), Some(id(51)));
        let found: Vec<u64> = stream.range(id(98)..=id(102)).map(|entry| entry.id.ms).collect();
        assert_eq!(found, [98, 99, 101, 102]);
        assert_eq!(before.range(StreamId::MIN..=StreamId::MAX).len(), 300);
        let mut rebuilt = StreamValue::new();
        stream.iter().for_each(|entry| rebuilt.append(entry.clone()));
        assert_eq!(rebuilt.heap_bytes(), stream.heap_bytes());
    }

    /// What is pending against two maps, for random deliveries, claims and acknowledgements.
    #[test]
    fn what_a_group_has_pending_is_what_its_consumers_have() {
        let seed = std::env::var("ORDO_SEED").ok();
        let mut state = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("ORDO_SEED={state}");
        let mut draw = |bound: u64| {
            state = crate::hash::mix(state);
            state % bound
        };
        let mut group = StreamGroup::default();
        let mut model: BTreeMap<StreamId, Blob> = BTreeMap::new();
        for step in 0..5_000 {
            let entry = id(draw(300));
            let name = Blob::from(format!("consumer {}", draw(7)));
            match draw(20) {
                0 => {
                    let had = model.values().filter(|owner| **owner == name).count();
                    model.retain(|_, owner| *owner != name);
                    assert_eq!(group.remove_consumer(&name), had);
                }
                1..=8 => {
                    let owner = group.acknowledge(entry).map(|pending| pending.consumer);
                    assert_eq!(owner, model.remove(&entry));
                }
                _ => {
                    group.see(&name, step);
                    group.give(Pending {
                        id: entry,
                        consumer: name.clone(),
                        delivered_ms: step,
                        deliveries: 1,
                    });
                    model.insert(entry, name);
                }
            }
            let pending = group.pending().iter();
            let pending = pending.map(|pending| (pending.id, pending.consumer.clone()));
            assert!(pending.eq(model.iter().map(|(id, name)| (*id, name.clone()))));
            for consumer in group.consumers() {
                let owned = model.iter().filter(|(_, owner)| **owner == consumer.name);
                assert!(consumer.pending().iter().eq(owned.map(|(id, _)| id)));
            }
        }
    }
}
