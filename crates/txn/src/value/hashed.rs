//! Large maps from names to payloads, in order of the names' hashes.

use crate::blob::{self, Blob};
use crate::hash::hash_bytes;
use crate::sequence::{self, Item, Sequence};
use std::cmp::Ordering;
use std::fmt::Debug;

/// The payload of a name.
pub trait Payload: Clone + Debug + PartialEq {
    /// An estimate of the heap bytes that it keeps alive.
    fn heap_bytes(&self) -> usize;
}

impl Payload for Blob {
    fn heap_bytes(&self) -> usize {
        Blob::heap_bytes(self)
    }
}
impl Payload for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}
impl Payload for f64 {
    fn heap_bytes(&self) -> usize {
        0
    }
}

/// A map in order of the names' 64-bit hashes, and of the names where these are equal. A clone shares all but
/// the path that an update changes; the order gives cursors that survive updates, and random names in O(log
/// n).
///
/// Invariant: `heap_bytes` is the sum over the names, kept up to date, because a store asks for it at every
/// version.
#[derive(Clone, Debug)]
pub(super) struct Hashed<P: Payload> {
    fields: Sequence<Field<P>>,
    heap_bytes: usize,
}

/// A name with what it has.
#[derive(Clone, Debug)]
pub(super) struct Field<P> {
    hash: u64,
    pub name: Blob,
    pub payload: P,
}

impl<P: Payload> Field<P> {
    fn cmp(&self, hash: u64, name: &[u8]) -> Ordering {
        self.hash.cmp(&hash).then_with(|| self.name.as_bytes().cmp(name))
    }
    fn bytes(&self) -> usize {
        bytes_of(&self.name, &self.payload)
    }
}

impl<P: Payload> Item for Field<P> {
    type Key = u64;
    fn key(&self) -> u64 {
        self.hash
    }
}

/// The bytes of a name and its payload, beside a hash.
pub(super) fn bytes_of<P: Payload>(name: &[u8], payload: &P) -> usize {
    // The name's own allocation, as a blob of its length would make.
    let name_bytes = match name.len() {
        len if len > blob::INLINE_BYTES_MAX => len + Blob::SHARED_BYTES,
        _ => 0,
    };
    size_of::<(Blob, P)>() + name_bytes + payload.heap_bytes()
}

impl<P: Payload> Hashed<P> {
    pub fn len(&self) -> usize {
        self.fields.len()
    }
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
    /// Where a name is, or else where it would be.
    fn search(&self, hash: u64, name: &[u8]) -> (usize, bool) {
        let place = self
            .fields
            .partition_point_by(|other| other.cmp(&hash), |field| field.cmp(hash, name) == Ordering::Less);
        let found = self.fields.get(place);
        (place, found.is_some_and(|field| &*field.name == name))
    }
    pub fn get(&self, name: &[u8]) -> Option<&P> {
        let (place, is_there) = self.search(hash_bytes(name), name);
        let found = self.fields.get(place).filter(|_| is_there);
        found.map(|found| &found.payload)
    }
    /// Gives a name a payload, and returns the one that it had.
    pub fn insert(&mut self, name: Blob, payload: P) -> Option<P> {
        let hash = hash_bytes(&name);
        self.heap_bytes += bytes_of(&name, &payload);
        match self.search(hash, &name) {
            (place, true) => {
                let old = self.fields.update(place, |found| std::mem::replace(&mut found.payload, payload));
                self.heap_bytes -= old.as_ref().map_or(0, |old| bytes_of(&name, old));
                old
            }
            (place, false) => {
                self.fields.insert(place, Field { hash, name, payload });
                None
            }
        }
    }
    /// Removes a name and returns what it had.
    pub fn remove(&mut self, name: &[u8]) -> Option<P> {
        let (place, true) = self.search(hash_bytes(name), name) else {
            return None;
        };
        let removed = self.fields.remove(place)?;
        self.heap_bytes -= removed.bytes();
        Some(removed.payload)
    }
    /// The field at a place in the order of iteration.
    pub fn at(&self, place: usize) -> Option<&Field<P>> {
        self.fields.get(place)
    }
    pub fn iter(&self) -> sequence::Iter<'_, Field<P>> {
        self.fields.iter()
    }
    /// At least `limit` fields (or all, if there are fewer) from the hash `from_hash` on, and where to go on;
    /// `None` after the last.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<&Field<P>>, Option<u64>) {
        let first =
            self.fields.partition_point_by(|hash| hash.cmp(&from_hash), |field| field.hash < from_hash);
        let mut page: Vec<&Field<P>> = Vec::new();
        for field in self.fields.range(first..usize::MAX) {
            // Names of equal hash stay together.
            if page.len() >= limit.max(1) && page.last().is_some_and(|last| last.hash != field.hash) {
                return (page, Some(field.hash));
            }
            page.push(field);
        }
        (page, None)
    }
}

/// The names are distinct.
impl<P: Payload> FromIterator<(Blob, P)> for Hashed<P> {
    fn from_iter<I: IntoIterator<Item = (Blob, P)>>(fields: I) -> Hashed<P> {
        let fields = fields.into_iter();
        let fields = fields.map(|(name, payload)| Field { hash: hash_bytes(&name), name, payload });
        let mut fields: Vec<Field<P>> = fields.collect();
        fields.sort_unstable_by(|a, b| a.cmp(b.hash, &b.name));
        let heap_bytes = fields.iter().map(Field::bytes).sum();
        Hashed { fields: fields.into_iter().collect(), heap_bytes }
    }
}
