//! What the commands on hashes, lists, sets, sorted sets and streams have in common: a key has a collection
//! or is absent, and none but a stream is ever empty.

use crate::errors;
use std::sync::Arc;
use txn::fragments::Done;
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue, StreamValue};
use txn::{Blob, Entry, FragmentContext, Intent, Key, Outcome, Reply, Stop, Tx, Value};

/// A value with members: cheap to clone, and changed as a clone.
pub(super) trait Collection: Clone + Default + Into<Value> {
    /// The value, if it is of this type.
    fn of(value: Value) -> Option<Arc<Self>>;
    /// The number of members.
    fn len(&self) -> usize;
    /// Whether there is no member.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

macro_rules! collection {
    ($variant:ident, $type:ty) => {
        impl Collection for $type {
            fn of(value: Value) -> Option<Arc<$type>> {
                match value {
                    Value::$variant(collection) => Some(collection),
                    _ => None,
                }
            }
            fn len(&self) -> usize {
                <$type>::len(self)
            }
        }
    };
}
collection!(Hash, HashValue);
collection!(List, ListValue);
collection!(Set, SetValue);
collection!(SortedSet, SortedSetValue);

/// A stream stays when its last entry goes.
impl Collection for StreamValue {
    fn of(value: Value) -> Option<Arc<StreamValue>> {
        match value {
            Value::Stream(stream) => Some(stream),
            _ => None,
        }
    }
    fn len(&self) -> usize {
        StreamValue::len(self)
    }
    fn is_empty(&self) -> bool {
        false
    }
}

/// A collection with the time at which it expires (0: never).
pub(super) type Found<C> = (Arc<C>, u64);

/// The collection at a key. The inner error is the reply to a value of another type.
pub(super) async fn find<C: Collection>(
    tx: &mut Tx,
    key: &Key,
    intent: Intent,
) -> Result<Result<Option<Found<C>>, Reply>, Stop> {
    let Some(entry) = tx.read(key, intent).await?.entry else {
        return Ok(Ok(None));
    };
    let expires_at_ms = entry.expires_at_ms;
    let found = C::of(entry.value).map(|collection| Some((collection, expires_at_ms)));
    Ok(found.ok_or(errors::WRONG_TYPE))
}

/// The collection in a record. The error is the reply to a value of another type.
pub(super) fn found_in<C: Collection>(context: &FragmentContext<'_>) -> Result<Option<Found<C>>, Reply> {
    let Some(entry) = context.found else {
        return Ok(None);
    };
    let collection = C::of(entry.value.clone()).ok_or(errors::WRONG_TYPE)?;
    Ok(Some((collection, entry.expires_at_ms)))
}

/// Puts a changed collection into its record with the expiry that it had.
pub(super) fn stored<C: Collection>(collection: C, expires_at_ms: u64, reply: Reply) -> Done {
    match collection.is_empty() {
        true => Done::delete(reply),
        false => Done::put(Entry { value: collection.into(), expires_at_ms }, reply),
    }
}

/// A collection to change: a clone of the one that was found, or an empty one.
pub(super) fn to_change<C: Collection>(found: Option<Found<C>>) -> (C, u64) {
    found.map_or_else(Default::default, |(collection, expires_at_ms)| (C::clone(&collection), expires_at_ms))
}

/// Puts a changed collection at its key with the expiry that it had.
pub(super) async fn put<C: Collection>(
    tx: &mut Tx,
    key: &Key,
    collection: C,
    expires_at_ms: u64,
) -> Result<(), Stop> {
    if collection.is_empty() {
        return tx.delete(key).await;
    }
    let value = collection.into();
    tx.put_entry(key, Entry { value, expires_at_ms }).await
}

/// Why a command that puts its result at a destination reads one of its sources.
pub(super) fn source_intent(source: &Blob, destination: Option<&Blob>) -> Intent {
    match destination {
        Some(destination) if destination == source => Intent::Update,
        _ => Intent::Read,
    }
}

/// Puts a result in the place of whatever a key holds, and replies how many members it has. An empty one
/// deletes the key.
pub(super) async fn store<C: Collection>(tx: &mut Tx, destination: &Blob, result: C) -> Outcome {
    let key = Key::from(destination);
    let members = result.len() as i64;
    if !result.is_empty() {
        tx.put(&key, result).await?;
    } else if tx.entry_for_update(&key).await?.is_some() {
        tx.delete(&key).await?;
    }
    Ok(Reply::Integer(members))
}

/// Gives the collection of a type at the key in the first argument, to read it; or replies what an absent one
/// gives.
macro_rules! collection_or {
    ($type:ty, $tx:expr, $args:expr, $absent:expr) => {
        match found!(find::<$type>($tx, &Key::from(&$args[0]), Intent::Read)) {
            Some((collection, _)) => collection,
            None => return Ok($absent),
        }
    };
}
pub(super) use collection_or;

/// Gives the collection of a type in a record, to read it; or replies what an absent one gives.
macro_rules! collection_in {
    ($type:ty, $context:expr, $absent:expr) => {
        match found_in::<$type>($context)? {
            Some((collection, _)) => collection,
            None => return Ok(Done::read($absent)),
        }
    };
}
pub(super) use collection_in;
