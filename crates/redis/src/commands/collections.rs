//! What the commands on hashes, lists, sets and streams have in common: a key has a collection or is absent, and a collection
//! is never empty.

use crate::errors;
use std::sync::Arc;
use txn::value::{HashValue, ListValue, SetValue, StreamValue};
use txn::{Entry, Intent, Key, Reply, Stop, Tx, Value};

/// A value with members: cheap to clone, and changed as a clone.
pub(super) trait Collection: Clone + Default + Into<Value> {
    /// The value, if it is of this type.
    fn of(value: Value) -> Option<Arc<Self>>;
    /// Whether there is no member.
    fn is_empty(&self) -> bool;
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
            fn is_empty(&self) -> bool {
                <$type>::is_empty(self)
            }
        }
    };
}
collection!(Hash, HashValue);
collection!(List, ListValue);
collection!(Set, SetValue);

/// A stream stays when its last entry goes.
impl Collection for StreamValue {
    fn of(value: Value) -> Option<Arc<StreamValue>> {
        match value {
            Value::Stream(stream) => Some(stream),
            _ => None,
        }
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

/// A collection to change: a clone of the one that was found, or an empty one.
pub(super) fn to_change<C: Collection>(found: Option<Found<C>>) -> (C, u64) {
    let (collection, expires_at_ms) = found.unwrap_or_default();
    (C::clone(&collection), expires_at_ms)
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
    tx.put_entry(
        key,
        Entry {
            value,
            expires_at_ms,
        },
    )
    .await
}

/// Gives the collection of a type at the key in the first argument, to read it; or replies what an absent one gives.
macro_rules! collection_or {
    ($type:ty, $tx:expr, $args:expr, $absent:expr) => {
        match found!(find::<$type>($tx, &Key::from(&$args[0]), Intent::Read)) {
            Some((collection, _)) => collection,
            None => return Ok($absent),
        }
    };
}
pub(super) use collection_or;
