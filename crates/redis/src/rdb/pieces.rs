//! Commands that make a value piece by piece, where it is too large for one RESTORE.

use crate::parse;
use txn::value::{StreamGroup, StreamId, StreamValue};
use txn::{Blob, BlobRef, Value};

/// How many words a command has at most: fields, members or elements, beside its name and its key.
const WORDS_MAX: usize = 1024;

/// Takes the words of a command.
pub type Emit<'a> = dyn FnMut(&[&[u8]]) + 'a;

/// Gives `emit` the commands that make `value` under `key`, which must not exist. Those for collections have
/// about `bytes_max` bytes each, or one element that is longer.
pub fn in_pieces(key: &Blob, value: &Value, bytes_max: usize, emit: &mut Emit<'_>) {
    let mut pieces = Pieces { key, bytes_max, emit, name: b"", words: Vec::new(), bytes: 0 };
    match value {
        Value::String(_) | Value::LongString(_) => {
            let bytes = value.as_string().unwrap_or_default();
            // An empty string has no piece, and is no large value.
            for piece in bytes.chunks(bytes_max) {
                (pieces.emit)(&[b"APPEND", key, piece]);
            }
        }
        Value::Hash(hash) => hash.iter().for_each(|(field, value)| pieces.push(b"HSET", &[field, value])),
        Value::List(list) => list.iter().for_each(|element| pieces.push(b"RPUSH", &[element])),
        Value::Set(set) => set.names().for_each(|member| pieces.push(b"SADD", &[member])),
        Value::SortedSet(set) => set.iter().for_each(|scored| {
            let score = Blob::from(parse::float_text(scored.score));
            pieces.push(b"ZADD", &[BlobRef::from(&score), scored.member]);
        }),
        Value::Stream(stream) => pieces.stream(stream),
    }
    pieces.flush();
}

struct Pieces<'a, 'b> {
    key: &'a Blob,
    bytes_max: usize,
    emit: &'a mut Emit<'b>,
    name: &'static [u8],
    words: Vec<Blob>,
    bytes: usize,
}

impl Pieces<'_, '_> {
    /// Adds what belongs together to the command at hand.
    fn push(&mut self, name: &'static [u8], words: &[BlobRef<'_>]) {
        self.name = name;
        self.bytes += words.iter().map(|word| word.len()).sum::<usize>();
        self.words.extend(words.iter().map(|word| word.to_blob()));
        if self.bytes >= self.bytes_max || self.words.len() >= WORDS_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        if !self.words.is_empty() {
            let words = [self.name, self.key].into_iter().chain(self.words.iter().map(Blob::as_bytes));
            (self.emit)(&words.collect::<Vec<_>>());
        }
        self.words.clear();
        self.bytes = 0;
    }

    fn stream(&mut self, stream: &StreamValue) {
        let key = self.key.as_bytes();
        if stream.is_empty() {
            // Only a group makes an empty stream; the first one below is made again.
            (self.emit)(&[b"XGROUP", b"CREATE", key, b"ordo", b"0", b"MKSTREAM"]);
            (self.emit)(&[b"XGROUP", b"DESTROY", key, b"ordo"]);
        }
        for entry in stream.iter() {
            let id = id_text(entry.id);
            let words = [b"XADD", key, id.as_bytes()].into_iter();
            let words = words.chain(entry.fields.iter().map(Blob::as_bytes));
            (self.emit)(&words.collect::<Vec<_>>());
        }
        let (last, deleted) = (id_text(stream.last_id), id_text(stream.max_deleted_id));
        let added = stream.entries_added.to_string();
        (self.emit)(&[
            b"XSETID",
            key,
            last.as_bytes(),
            b"ENTRIESADDED",
            added.as_bytes(),
            b"MAXDELETEDID",
            deleted.as_bytes(),
        ]);
        for (name, group) in stream.groups() {
            self.group(name, group);
        }
    }

    fn group(&mut self, name: &Blob, group: &StreamGroup) {
        let key = self.key.as_bytes();
        let last = id_text(group.last_id);
        let read = group.entries_read.map_or("-1".to_owned(), |read| read.to_string());
        (self.emit)(&[b"XGROUP", b"CREATE", key, name, last.as_bytes(), b"ENTRIESREAD", read.as_bytes()]);
        for consumer in group.consumers().iter() {
            (self.emit)(&[b"XGROUP", b"CREATECONSUMER", key, name, &consumer.name]);
        }
        for pending in group.pending().iter() {
            let (id, time) = (id_text(pending.id), pending.delivered_ms.to_string());
            let deliveries = pending.deliveries.to_string();
            (self.emit)(&[
                b"XCLAIM",
                key,
                name,
                &pending.consumer,
                b"0",
                id.as_bytes(),
                b"TIME",
                time.as_bytes(),
                b"RETRYCOUNT",
                deliveries.as_bytes(),
                b"FORCE",
                b"JUSTID",
            ]);
        }
    }
}

fn id_text(id: StreamId) -> String {
    format!("{}-{}", id.ms, id.sequence)
}
