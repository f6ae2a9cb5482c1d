//! Streams in Redis's form: listpacks of entries, what is known of the whole, the groups.
//!
//! ```text
//! parts  { key: the first id (16, big endian)  listpack }  entries  last id
//!        [ first id  largest deleted id  entries ever added ]                                    7.0 and later
//! groups { name  last id  [ entries read ]  pending { id (16)  delivered at (8)  deliveries }
//!          consumers { name  seen at (8)  [ active at (8) ]  pending { id (16) } } }      active: 7.2 and later
//! ```
//!
//! A listpack has a head, and its entries' ids relative to the part's key. An entry with the head's fields
//! has values only:
//!
//! ```text
//! entries  deleted  fields  { field }  0  { flags  ms  sequence  [ fields ]  { [ field ]  value }  elements before }
//! ```

use super::packed::{self, Listpack};
use super::read::{Reader, kind};
use super::write::{put_len, put_string};
use crate::commands::streams::place_ever;
use crate::parse;
use std::collections::BTreeMap;
use txn::value::{Pending, StreamBuilder, StreamEntry, StreamGroup, StreamId, StreamValue};
use txn::{Blob, Value};

const DELETED: i64 = 1;
const SAME_FIELDS: i64 = 2;
/// How many entries and bytes Redis puts into one listpack.
const PART_ENTRIES_MAX: usize = 100;
const PART_BYTES_MAX: usize = 4096;

fn id_bytes(id: StreamId) -> [u8; 16] {
    (u128::from(id.ms) << 64 | u128::from(id.sequence)).to_be_bytes()
}

fn id_of(bytes: [u8; 16]) -> StreamId {
    let id = u128::from_be_bytes(bytes);
    StreamId { ms: (id >> 64) as u64, sequence: id as u64 }
}

fn field_names(entry: &StreamEntry) -> impl ExactSizeIterator<Item = &Blob> {
    entry.fields.iter().step_by(2)
}

/// The first of some entries in one listpack, as many as fit; the others.
fn put_part<'a>(out: &mut Vec<u8>, entries: &'a [&'a StreamEntry]) -> &'a [&'a StreamEntry] {
    let Some(head) = entries.first() else {
        return entries;
    };
    let bytes_of = |entry: &&StreamEntry| -> usize { entry.fields.iter().map(|f| f.len()).sum() };
    let mut bytes = 0;
    let count = (entries.iter().take(PART_ENTRIES_MAX))
        .take_while(|entry| {
            bytes += bytes_of(entry);
            bytes <= PART_BYTES_MAX
        })
        .count()
        .max(1);
    let (part, rest) = entries.split_at(count);
    let mut pack = Listpack::default();
    pack.push_integer(count as i64);
    pack.push_integer(0);
    pack.push_integer(field_names(head).len() as i64);
    field_names(head).for_each(|name| pack.push(name));
    pack.push_integer(0);
    for entry in part {
        let is_same = field_names(entry).eq(field_names(head));
        pack.push_integer(if is_same { SAME_FIELDS } else { 0 });
        pack.push_integer(entry.id.ms.wrapping_sub(head.id.ms).cast_signed());
        let sequence = entry.id.sequence.wrapping_sub(head.id.sequence);
        pack.push_integer(sequence.cast_signed());
        let elements = if is_same {
            let values = entry.fields.iter().skip(1).step_by(2);
            values.for_each(|value| pack.push(value));
            entry.fields.len() / 2 + 3
        } else {
            pack.push_integer(field_names(entry).len() as i64);
            entry.fields.iter().for_each(|word| pack.push(word));
            entry.fields.len() + 4
        };
        pack.push_integer(elements as i64);
    }
    put_string(out, &id_bytes(head.id));
    put_string(out, &pack.finish());
    rest
}

fn put_number(out: &mut Vec<u8>, number: u64) {
    put_len(out, number as usize);
}

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_number(out, id.ms);
    put_number(out, id.sequence);
}

/// The type and the stream: in the form of Redis 7.0, unless that would not tell when a consumer last got
/// something.
pub(super) fn put(out: &mut Vec<u8>, stream: &StreamValue) {
    let mut consumers = stream.groups().flat_map(|(_, group)| group.consumers());
    let kind = match consumers.all(|consumer| consumer.active_ms == Some(consumer.seen_ms)) {
        true => kind::STREAM_2,
        false => kind::STREAM_3,
    };
    out.push(kind);
    let entries: Vec<&StreamEntry> = stream.iter().collect();
    let mut parts = Vec::new();
    let (mut rest, mut count) = (entries.as_slice(), 0);
    while !rest.is_empty() {
        rest = put_part(&mut parts, rest);
        count += 1;
    }
    put_len(out, count);
    out.append(&mut parts);
    put_len(out, stream.len());
    put_id(out, stream.last_id);
    put_id(out, stream.first().map(|first| first.id).unwrap_or_default());
    put_id(out, stream.max_deleted_id);
    put_number(out, stream.entries_added);
    put_len(out, stream.groups().len());
    for (name, group) in stream.groups() {
        put_string(out, name);
        put_id(out, group.last_id);
        put_number(out, group.entries_read.unwrap_or(u64::MAX));
        put_len(out, group.pending().len());
        for pending in group.pending() {
            out.extend(id_bytes(pending.id));
            out.extend(pending.delivered_ms.to_le_bytes());
            put_number(out, pending.deliveries);
        }
        put_len(out, group.consumers().len());
        for consumer in group.consumers() {
            put_string(out, &consumer.name);
            out.extend(consumer.seen_ms.to_le_bytes());
            if kind == kind::STREAM_3 {
                let active_ms = consumer.active_ms.map_or(-1, u64::cast_signed);
                out.extend(active_ms.to_le_bytes());
            }
            put_len(out, consumer.pending().len());
            for &id in consumer.pending() {
                out.extend(id_bytes(id));
            }
        }
    }
}

/// What is left of a listpack's elements.
struct Elements(std::vec::IntoIter<Blob>);

impl Elements {
    fn integer(&mut self) -> Option<i64> {
        parse::integer(&self.0.next()?)
    }
    /// The next elements, if there are so many.
    fn take(&mut self, count: usize) -> Option<Vec<Blob>> {
        (count <= self.0.len()).then(|| self.0.by_ref().take(count).collect())
    }
    fn size(&mut self) -> Option<usize> {
        usize::try_from(self.integer()?).ok()
    }
}

/// Adds the entries of a listpack whose key is `first`.
fn entries(entries: &mut Vec<StreamEntry>, first: StreamId, pack: &[u8]) -> Option<()> {
    let mut rest = Elements(packed::listpack(pack)?.into_iter());
    let (_live, _deleted) = (rest.size()?, rest.size()?);
    let count = rest.size()?;
    let names = rest.take(count)?;
    if rest.integer()? != 0 {
        return None;
    }
    while !rest.0.as_slice().is_empty() {
        let (flags, ms, sequence) = (rest.integer()?, rest.integer()?, rest.integer()?);
        let fields: Vec<Blob> = if flags & SAME_FIELDS != 0 {
            let values = rest.take(names.len())?;
            let pairs = names.iter().cloned().zip(values);
            pairs.flat_map(|(name, value)| [name, value]).collect()
        } else {
            let words = rest.size()?.checked_mul(2)?;
            rest.take(words)?
        };
        // What is read backwards begins with it.
        let _elements = rest.size()?;
        if fields.is_empty() {
            return None;
        }
        if flags & DELETED == 0 {
            entries.push(StreamEntry {
                id: StreamId {
                    ms: first.ms.wrapping_add_signed(ms),
                    sequence: first.sequence.wrapping_add_signed(sequence),
                },
                fields: fields.into(),
            });
        }
    }
    Some(())
}

impl Reader<'_> {
    fn number(&mut self) -> Option<u64> {
        self.count().map(|count| count as u64)
    }

    fn id(&mut self) -> Option<StreamId> {
        let (ms, sequence) = (self.number()?, self.number()?);
        Some(StreamId { ms, sequence })
    }

    /// Milliseconds since 1970.
    fn time_ms(&mut self) -> Option<i64> {
        self.rest.signed(8)
    }

    fn group(&mut self, kind: u8, stream: &StreamValue) -> Option<Group> {
        let name = self.string()?;
        let last_id = self.id()?;
        let entries_read = match kind {
            kind::STREAM => place_ever(stream, last_id),
            _ => self.number().map(|read| i64::try_from(read).ok().map(i64::unsigned_abs))?,
        };
        let mut unowned = BTreeMap::new();
        for _ in 0..self.count()? {
            let id = id_of(self.rest.array()?);
            let delivered_ms = u64::try_from(self.time_ms()?).ok()?;
            if unowned.insert(id, (delivered_ms, self.number()?)).is_some() {
                return None;
            }
        }
        let (mut consumers, mut pending) = (Vec::new(), Vec::new());
        for _ in 0..self.count()? {
            let name = self.string()?;
            let seen_ms = u64::try_from(self.time_ms()?).ok()?;
            let active_ms = match kind {
                kind::STREAM_3 => u64::try_from(self.time_ms()?).ok(),
                _ => Some(seen_ms),
            };
            consumers.push((name.clone(), seen_ms, active_ms));
            for _ in 0..self.count()? {
                let id = id_of(self.rest.array()?);
                let (delivered_ms, deliveries) = unowned.remove(&id)?;
                pending.push(Pending { id, consumer: name.clone(), delivered_ms, deliveries });
            }
        }
        pending.sort_unstable_by_key(|pending| pending.id);
        let group = StreamGroup::new(last_id, entries_read);
        unowned.is_empty().then_some(Group { name, group, consumers, pending })
    }

    /// A stream behind its type.
    pub(super) fn stream(&mut self, kind: u8) -> Option<Value> {
        let mut all = Vec::new();
        for _ in 0..self.count()? {
            let first = self.string()?.as_bytes().try_into().ok()?;
            entries(&mut all, id_of(first), &self.string()?)?;
        }
        if self.count()? != all.len() {
            return None;
        }
        let last_id = self.id()?;
        let (max_deleted_id, entries_added) = match kind {
            kind::STREAM => (StreamId::MIN, all.len() as u64),
            _ => {
                let _first = self.id()?;
                (self.id()?, self.number()?)
            }
        };
        // What counts upwards from here must not run over.
        i64::try_from(entries_added).ok()?;
        let mut builder = StreamBuilder::new(last_id, max_deleted_id, entries_added);
        for entry in all {
            builder.entry(entry)?;
        }
        for _ in 0..self.count()? {
            let group = self.group(kind, builder.so_far())?;
            builder.group(group.name, group.group, group.consumers, group.pending)?;
        }
        Some(Value::from(builder.build()))
    }
}

/// A group as it is read.
struct Group {
    name: Blob,
    group: StreamGroup,
    consumers: Vec<(Blob, u64, Option<u64>)>,
    pending: Vec<Pending>,
}
