//! What keys hold.

mod hashed;
mod list;
mod long_string;
mod packed;
mod sorted_set;
mod stream;
mod table;

pub use list::ListValue;
pub use long_string::LongString;
pub use sorted_set::{Scored, ScoredRef, SortedSetValue};
pub use stream::{Consumer, Pending, StreamBuilder, StreamEntry, StreamGroup, StreamId, StreamValue};
pub use table::{HashValue, SetValue, Table};

use crate::blob::Blob;
use std::sync::Arc;

/// A value: immutable, cheap to clone. Updating means building a new one, so that old versions stay readable.
///
/// How a byte string is kept says nothing: those with the same bytes are equal, and are encoded in the same
/// way.
#[derive(Clone, Debug)]
pub enum Value {
    /// A byte string: a Redis string, or a row that a native procedure encodes.
    String(Blob),
    /// A byte string of which parts were written.
    LongString(Arc<LongString>),
    /// A Redis hash.
    Hash(HashValue),
    /// A Redis list.
    List(ListValue),
    /// A Redis set.
    Set(SetValue),
    /// A Redis sorted set.
    SortedSet(SortedSetValue),
    /// A Redis stream.
    Stream(Arc<StreamValue>),
}

impl Value {
    /// The byte string, if this is one: shared, or copied together if parts of it were written.
    pub fn as_string(&self) -> Option<Blob> {
        match self {
            Value::String(blob) => Some(blob.clone()),
            Value::LongString(string) => Some(Blob::from(&**string)),
            _ => None,
        }
    }
    /// The length of the byte string, if this is one.
    pub fn string_len(&self) -> Option<usize> {
        match self {
            Value::String(text) => Some(text.len()),
            Value::LongString(text) => Some(text.len()),
            _ => None,
        }
    }
    /// Redis's name of the type.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::String(_) | Value::LongString(_) => "string",
            Value::Hash(_) => "hash",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::SortedSet(_) => "zset",
            Value::Stream(_) => "stream",
        }
    }
    /// An estimate of the heap bytes that this value keeps alive.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Value::String(blob) => blob.heap_bytes(),
            Value::LongString(string) => string.heap_bytes(),
            Value::Hash(hash) => hash.heap_bytes(),
            Value::List(list) => list.heap_bytes(),
            Value::Set(set) => set.heap_bytes(),
            Value::SortedSet(set) => set.heap_bytes(),
            Value::Stream(stream) => stream.heap_bytes(),
        }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::String(a), Value::String(b)) => a == b,
            (Value::LongString(a), Value::LongString(b)) => a == b,
            (Value::LongString(long), Value::String(blob))
            | (Value::String(blob), Value::LongString(long)) => **long == **blob,
            (Value::Hash(a), Value::Hash(b)) => a == b,
            (Value::List(a), Value::List(b)) => a == b,
            (Value::Set(a), Value::Set(b)) => a == b,
            (Value::SortedSet(a), Value::SortedSet(b)) => a == b,
            (Value::Stream(a), Value::Stream(b)) => a == b,
            _ => false,
        }
    }
}
impl Eq for Value {}

impl From<Blob> for Value {
    fn from(blob: Blob) -> Value {
        Value::String(blob)
    }
}
impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Value {
        Value::String(Blob::new(bytes))
    }
}
impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Value {
        Value::String(Blob::from(bytes))
    }
}
impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::String(Blob::from(text))
    }
}
impl From<LongString> for Value {
    fn from(string: LongString) -> Value {
        Value::LongString(Arc::new(string))
    }
}
impl From<HashValue> for Value {
    fn from(hash: HashValue) -> Value {
        Value::Hash(hash.settle())
    }
}
impl From<ListValue> for Value {
    fn from(list: ListValue) -> Value {
        Value::List(list.settle())
    }
}
impl From<SetValue> for Value {
    fn from(set: SetValue) -> Value {
        Value::Set(set.settle())
    }
}
impl From<SortedSetValue> for Value {
    fn from(set: SortedSetValue) -> Value {
        Value::SortedSet(set.settle())
    }
}
impl From<StreamValue> for Value {
    fn from(stream: StreamValue) -> Value {
        Value::from(Arc::new(stream))
    }
}
impl From<Arc<StreamValue>> for Value {
    fn from(stream: Arc<StreamValue>) -> Value {
        Value::Stream(stream)
    }
}

/// A value with its time to live: what one version of a record holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The value.
    pub value: Value,
    /// The epoch time in milliseconds since 1970 from which the entry reads as absent; 0 means never.
    pub expires_at_ms: u64,
}

const _: () = assert!(size_of::<Option<Entry>>() == 32, "a version is laid out around a 32-byte entry");

impl Entry {
    /// An entry that never expires.
    pub fn new(value: impl Into<Value>) -> Entry {
        Entry { value: value.into(), expires_at_ms: 0 }
    }
    /// Whether the entry reads as absent at `now_ms`.
    #[inline]
    pub fn expired(&self, now_ms: u64) -> bool {
        self.expires_at_ms != 0 && self.expires_at_ms <= now_ms
    }
}
