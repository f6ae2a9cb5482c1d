//! What the commands on hashes, lists, sets, sorted sets and streams have in common: a key has a collection
//! or is absent, and none but a stream is ever empty.

use crate::errors;
use std::sync::Arc;
use txn::fragments::{Done, OwnEntry};
use txn::value::{HashValue, ListValue, SetValue, SortedSetValue, StreamValue};
use txn::{Blob, Entry, FragmentContext, Intent, Key, Outcome, Reply, Stop, Tx, Value};

/// A value with members: cheap to clone. A change of a clone leaves the others as they are.
pub(super) trait Collection: Clone + Default + Into<Value> {
    /// The value, if it is of this type.
    fn of(value: Value) -> Option<Self>;
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
            fn of(value: Value) -> Option<$type> {
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
impl Collection for Arc<StreamValue> {
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
pub(super) type Found<C> = (C, u64);

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

/// The collection in a record, as [`found_in`] gives it.
pub(super) struct FoundIn<'a, C: Collection> {
    /// Until it is taken.
    collection: Option<C>,
    pub expires_at_ms: u64,
    /// Where it is nobody else's, and goes back to unless it is taken.
    home: Option<&'a OwnEntry>,
}

impl<C: Collection> FoundIn<'_, C> {
    /// The collection, to change it: the first change copies it if the store sees it, too. The command must
    /// then write the record, or put the collection back ([`kept`]), or else all that was done to the record
    /// in this transaction is done again ([`OwnEntry`]).
    pub(super) fn take(mut self) -> C {
        self.collection.take().unwrap_or_default()
    }
    /// The collection, to keep and read it.
    pub(super) fn shared(&self) -> C {
        self.collection.clone().unwrap_or_default()
    }
    /// The collection, to look at it.
    pub(super) fn look(&self) -> Option<&C> {
        self.collection.as_ref()
    }
}

impl<C: Collection> Drop for FoundIn<'_, C> {
    fn drop(&mut self) {
        if let (Some(home), Some(collection)) = (self.home, self.collection.take()) {
            home.put_back(Entry { value: collection.into(), expires_at_ms: self.expires_at_ms });
        }
    }
}

/// The collection in a record. The error is the reply to a value of another type.
pub(super) fn found_in<'a, C: Collection>(
    context: &FragmentContext<'a>,
) -> Result<Option<FoundIn<'a, C>>, Reply> {
    let entry = match context.own {
        None => context.found.cloned(),
        Some(own) => own.take(),
    };
    let Some(Entry { value, expires_at_ms }) = entry else {
        return Ok(None);
    };
    match (C::of(value.clone()), context.own) {
        (None, home) => {
            if let Some(home) = home {
                home.put_back(Entry { value, expires_at_ms });
            }
            Err(errors::WRONG_TYPE)
        }
        (collection, home) => {
            drop(value);
            Ok(Some(FoundIn { collection, expires_at_ms, home }))
        }
    }
}

/// A collection to change that was found in a record, or an empty one.
pub(super) fn taken<C: Collection>(found: Option<FoundIn<'_, C>>) -> (C, u64) {
    found.map_or_else(Default::default, |found| {
        let expires_at_ms = found.expires_at_ms;
        (found.take(), expires_at_ms)
    })
}

/// A collection that was taken, and stays as it was.
pub(super) fn kept<C: Collection>(
    context: &FragmentContext<'_>,
    collection: C,
    expires_at_ms: u64,
    reply: Reply,
) -> Done {
    if let Some(home) = context.own {
        home.put_back(Entry { value: collection.into(), expires_at_ms });
    }
    Done::read(reply)
}

/// Puts a changed collection into its record with the expiry that it had.
pub(super) fn stored<C: Collection>(collection: C, expires_at_ms: u64, reply: Reply) -> Done {
    match collection.is_empty() {
        true => Done::delete(reply),
        false => Done::put(Entry { value: collection.into(), expires_at_ms }, reply),
    }
}

/// A collection to change, which is copied then: the one that was found, or an empty one.
pub(super) fn to_change<C: Collection>(found: Option<Found<C>>) -> (C, u64) {
    found.unwrap_or_default()
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
            Some(found) => found.shared(),
            None => return Ok(Done::read($absent)),
        }
    };
}
pub(super) use collection_in;
