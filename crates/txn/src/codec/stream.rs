//! The byte form of streams.
//!
//! The last id, the largest deleted id and the number of entries that were ever added; the entries, each an
//! id and its fields; the groups, each a name, its last id, how many entries it has read, its consumers, and
//! what these have pending.

use super::{Reader, put_bytes, put_varint};
use crate::blob::Blob;
use crate::value::{Pending, StreamBuilder, StreamEntry, StreamGroup, StreamId, StreamValue};

fn put_id(out: &mut Vec<u8>, id: StreamId) {
    put_varint(out, id.ms);
    put_varint(out, id.sequence);
}

fn take_id(reader: &mut Reader<'_>) -> Option<StreamId> {
    Some(StreamId { ms: reader.varint()?, sequence: reader.varint()? })
}

fn put_optional(out: &mut Vec<u8>, number: Option<u64>) {
    out.push(u8::from(number.is_some()));
    if let Some(number) = number {
        put_varint(out, number);
    }
}

fn take_optional(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    match reader.u8()? {
        0 => Some(None),
        1 => reader.varint().map(Some),
        _ => None,
    }
}

pub(super) fn put(out: &mut Vec<u8>, stream: &StreamValue) {
    put_id(out, stream.last_id);
    put_id(out, stream.max_deleted_id);
    put_varint(out, stream.entries_added);
    put_varint(out, stream.len() as u64);
    for StreamEntry { id, fields } in stream.iter() {
        put_id(out, *id);
        put_varint(out, fields.len() as u64);
        fields.iter().for_each(|field| put_bytes(out, field));
    }
    put_varint(out, stream.groups().len() as u64);
    for (name, group) in stream.groups() {
        put_bytes(out, name);
        put_id(out, group.last_id);
        put_optional(out, group.entries_read);
        put_varint(out, group.consumers().len() as u64);
        for consumer in group.consumers() {
            put_bytes(out, &consumer.name);
            put_varint(out, consumer.seen_ms);
            put_optional(out, consumer.active_ms);
        }
        put_varint(out, group.pending().len() as u64);
        for pending in group.pending() {
            put_id(out, pending.id);
            put_bytes(out, &pending.consumer);
            put_varint(out, pending.delivered_ms);
            put_varint(out, pending.deliveries);
        }
    }
}

pub(super) fn take(reader: &mut Reader<'_>) -> Option<StreamValue> {
    let (last_id, max_deleted_id) = (take_id(reader)?, take_id(reader)?);
    let mut stream = StreamBuilder::new(last_id, max_deleted_id, reader.varint()?);
    for _ in 0..reader.varint()? {
        let id = take_id(reader)?;
        let count = reader.varint()?;
        let fields: Option<Vec<Blob>> = (0..count).map(|_| reader.blob()).collect();
        stream.entry(StreamEntry { id, fields: fields?.into() })?;
    }
    for _ in 0..reader.varint()? {
        let name = reader.blob()?;
        let group = StreamGroup::new(take_id(reader)?, take_optional(reader)?);
        let mut consumers = Vec::new();
        for _ in 0..reader.varint()? {
            consumers.push((reader.blob()?, reader.varint()?, take_optional(reader)?));
        }
        let mut pending = Vec::new();
        for _ in 0..reader.varint()? {
            pending.push(Pending {
                id: take_id(reader)?,
                consumer: reader.blob()?,
                delivered_ms: reader.varint()?,
                deliveries: reader.varint()?,
            });
        }
        stream.group(name, group, consumers, pending)?;
    }
    Some(stream.build())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn streams_round_trip_with_their_groups_and_nonsense_is_refused() {
        let id = |ms| StreamId { ms, sequence: 3 };
        let mut stream = StreamValue::new();
        for ms in 1..100 {
            let fields = vec![Blob::from("field"), Blob::from(format!("{ms}"))];
            stream.append(StreamEntry { id: id(ms), fields: Arc::from(fields) });
        }
        stream.delete(id(50));
        stream.trim(3);
        for name in ["a", "b"] {
            let mut group = StreamGroup::new(id(20), (name == "a").then_some(20));
            for ms in 1..=20 {
                let consumer = Blob::from(format!("consumer {}", ms % 3));
                group.see(&consumer, ms);
                group.give(Pending {
                    id: id(ms),
                    consumer: consumer.clone(),
                    delivered_ms: 7,
                    deliveries: ms,
                });
                group.activate(&consumer, 9);
            }
            group.see(&Blob::from("idle"), 1);
            assert!(stream.add_group(Blob::from(name), group));
        }
        let mut bytes = Vec::new();
        put(&mut bytes, &stream);
        let read = take(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(read, stream);
        assert_eq!(read.heap_bytes(), stream.heap_bytes());
        for len in 0..bytes.len() {
            assert_eq!(take(&mut Reader::new(&bytes[..len])), None, "{len}");
        }
        // An id above the last one.
        let mut wrong = stream.clone();
        wrong.last_id = id(10);
        let mut bytes = Vec::new();
        put(&mut bytes, &wrong);
        assert_eq!(take(&mut Reader::new(&bytes)), None);
    }
}
