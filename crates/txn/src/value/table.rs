//! Persistent maps from names to payloads: Redis's hashes, its sets, and the scores of sorted sets.
//!
//! A table of at most [`SMALL_FIELDS_MAX`] names is a vector in order of insertion, copied on update. A
//! larger one is a [`Sequence`] in order of the names' 64-bit hashes: a clone shares all but the path that an
//! update changes, and the order by hash gives cursors that survive updates, and random names in O(log n).
//!
//! Invariants: (1) the form follows from the number of names alone, in both directions, and a large table is
//! ordered by content; so a table that was written name by name in its order of iteration and read again (a
//! checkpoint) is the same in every later reply. (2) `heap_bytes` is the sum over the names, kept up to date,
//! because a store asks for it at every version.

use crate::blob::{self, Blob};
use crate::hash::hash_bytes;
use crate::sequence::{self, Item, Sequence};
use std::cmp::Ordering;
use std::fmt::Debug;

/// The largest table that is kept as a plain vector and copied on update.
pub const SMALL_FIELDS_MAX: usize = 64;

/// What a table has for each name.
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

/// A Redis hash: values by field.
pub type HashValue = Table<Blob>;
/// A Redis set.
pub type SetValue = Table<()>;

/// A map from names to payloads, with structural sharing once it is large: an update of a clone costs O(log
/// n) and leaves the original readable.
#[derive(Clone, Debug)]
pub struct Table<P: Payload> {
    fields: Fields<P>,
    heap_bytes: usize,
}

/// A name with what it has.
type Field<P> = (Blob, P);

#[derive(Clone, Debug)]
enum Fields<P: Payload> {
    /// In order of insertion.
    Small(Vec<Field<P>>),
    /// In order of the names' hashes; those of equal hash in order of their bytes.
    Large(Sequence<Hashed<P>>),
}

#[derive(Clone, Debug)]
struct Hashed<P> {
    hash: u64,
    field: Field<P>,
}

impl<P> Hashed<P> {
    fn cmp(&self, hash: u64, name: &[u8]) -> Ordering {
        self.hash.cmp(&hash).then_with(|| self.field.0.as_bytes().cmp(name))
    }
}

impl<P: Payload> Item for Hashed<P> {
    type Key = u64;
    fn key(&self) -> u64 {
        self.hash
    }
}

impl<P: Payload> Default for Table<P> {
    fn default() -> Table<P> {
        Table { fields: Fields::Small(Vec::new()), heap_bytes: 0 }
    }
}

/// What a name and its payload cost.
fn bytes_of<P: Payload>(name: &[u8], payload: &P) -> usize {
    // The name's own allocation, as a blob of its length would make.
    let name_bytes = match name.len() {
        len if len > blob::INLINE_BYTES_MAX => len + 16,
        _ => 0,
    };
    size_of::<Field<P>>() + name_bytes + payload.heap_bytes()
}

/// Where a name is, or else where it would be.
fn search<P: Payload>(fields: &Sequence<Hashed<P>>, hash: u64, name: &[u8]) -> (usize, bool) {
    let place =
        fields.partition_point_by(|other| other.cmp(&hash), |field| field.cmp(hash, name) == Ordering::Less);
    let found = fields.get(place);
    (place, found.is_some_and(|field| &*field.field.0 == name))
}

impl<P: Payload> Table<P> {
    /// An empty table.
    pub fn new() -> Table<P> {
        Table::default()
    }
    /// The number of names.
    pub fn len(&self) -> usize {
        match &self.fields {
            Fields::Small(fields) => fields.len(),
            Fields::Large(fields) => fields.len(),
        }
    }
    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What a name has.
    pub fn get(&self, name: &[u8]) -> Option<&P> {
        match &self.fields {
            Fields::Small(fields) => {
                let mut fields = fields.iter();
                let found = fields.find(|(other, _)| other.as_bytes() == name);
                found.map(|(_, payload)| payload)
            }
            Fields::Large(fields) => {
                let (place, is_there) = search(fields, hash_bytes(name), name);
                let found = fields.get(place).filter(|_| is_there);
                found.map(|found| &found.field.1)
            }
        }
    }
    /// Whether a name is there.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }
    /// Gives a name a payload, and returns the one that it had.
    pub fn insert(&mut self, name: Blob, payload: P) -> Option<P> {
        let new_bytes = bytes_of(&name, &payload);
        let old = match &mut self.fields {
            Fields::Small(fields) => match fields.iter_mut().find(|(other, _)| *other == name) {
                Some((_, slot)) => Some(std::mem::replace(slot, payload)),
                None => {
                    // No more than it needs: small tables are many, and whole copies most of the time.
                    fields.reserve_exact(1);
                    fields.push((name.clone(), payload));
                    if fields.len() > SMALL_FIELDS_MAX {
                        self.fields = Fields::large(std::mem::take(fields));
                    }
                    None
                }
            },
            Fields::Large(fields) => {
                let hash = hash_bytes(&name);
                match search(fields, hash, &name) {
                    (place, true) => {
                        fields.update(place, |found| std::mem::replace(&mut found.field.1, payload))
                    }
                    (place, false) => {
                        let field = (name.clone(), payload);
                        fields.insert(place, Hashed { hash, field });
                        None
                    }
                }
            }
        };
        self.heap_bytes += new_bytes;
        if let Some(old) = &old {
            self.heap_bytes -= bytes_of(&name, old);
        }
        old
    }
    /// Removes a name and returns what it had.
    pub fn remove(&mut self, name: &[u8]) -> Option<P> {
        let payload = match &mut self.fields {
            Fields::Small(fields) => {
                let place = fields.iter().position(|(other, _)| other.as_bytes() == name)?;
                fields.remove(place).1
            }
            Fields::Large(fields) => {
                let (place, true) = search(fields, hash_bytes(name), name) else {
                    return None;
                };
                let removed = fields.remove(place)?.field.1;
                if fields.len() <= SMALL_FIELDS_MAX {
                    let few = fields.iter().map(|field| field.field.clone()).collect();
                    self.fields = Fields::Small(few);
                }
                removed
            }
        };
        self.heap_bytes -= bytes_of(name, &payload);
        Some(payload)
    }
    /// The field at a place in the order of iteration: what a random number below [`Table::len`] picks
    /// evenly.
    pub fn at(&self, place: usize) -> Option<(&Blob, &P)> {
        let field = match &self.fields {
            Fields::Small(fields) => fields.get(place)?,
            Fields::Large(fields) => &fields.get(place)?.field,
        };
        Some((&field.0, &field.1))
    }
    /// All names with what they have, in an order that depends only on the operations that built the table.
    pub fn iter(&self) -> Iter<'_, P> {
        Iter(match &self.fields {
            Fields::Small(fields) => Slices::Small(fields.iter()),
            Fields::Large(fields) => Slices::Large(fields.iter()),
        })
    }
    /// All names, in the same order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &Blob> {
        self.iter().map(|(name, _)| name)
    }
    /// At least `limit` names (if there are so many) from the hash `from_hash` on, and where to go on; `None`
    /// after the last. Names that are there all the while are met by whoever follows the cursors from 0,
    /// whatever is inserted and removed meanwhile. A small table is one page.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<(&Blob, &P)>, Option<u64>) {
        match &self.fields {
            Fields::Small(fields) => (fields.iter().map(|(name, had)| (name, had)).collect(), None),
            Fields::Large(fields) => {
                let first =
                    fields.partition_point_by(|hash| hash.cmp(&from_hash), |field| field.hash < from_hash);
                let mut page = Vec::new();
                let mut last = None;
                for Hashed { hash, field } in fields.range(first..usize::MAX) {
                    // Names of equal hash stay together.
                    if page.len() >= limit.max(1) && last != Some(*hash) {
                        return (page, Some(*hash));
                    }
                    last = Some(*hash);
                    page.push((&field.0, &field.1));
                }
                (page, None)
            }
        }
    }
    /// An estimate of the heap bytes that this table keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

impl<P: Payload> Fields<P> {
    fn large(fields: Vec<Field<P>>) -> Fields<P> {
        let hashed = fields.into_iter().map(|field| Hashed { hash: hash_bytes(&field.0), field });
        let mut hashed: Vec<Hashed<P>> = hashed.collect();
        hashed.sort_unstable_by(|a, b| a.cmp(b.hash, &b.field.0));
        Fields::Large(hashed.into_iter().collect())
    }
}

/// The names of a [`Table`] with what they have.
pub struct Iter<'a, P: Payload>(Slices<'a, P>);

enum Slices<'a, P: Payload> {
    Small(std::slice::Iter<'a, Field<P>>),
    Large(sequence::Iter<'a, Hashed<P>>),
}

impl<'a, P: Payload> Iterator for Iter<'a, P> {
    type Item = (&'a Blob, &'a P);
    fn next(&mut self) -> Option<(&'a Blob, &'a P)> {
        let (name, payload) = match &mut self.0 {
            Slices::Small(fields) => fields.next()?,
            Slices::Large(fields) => &fields.next()?.field,
        };
        Some((name, payload))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Slices::Small(fields) => fields.size_hint(),
            Slices::Large(fields) => fields.size_hint(),
        }
    }
}
impl<P: Payload> ExactSizeIterator for Iter<'_, P> {}

impl<P: Payload> FromIterator<(Blob, P)> for Table<P> {
    fn from_iter<I: IntoIterator<Item = (Blob, P)>>(iter: I) -> Table<P> {
        let mut table = Table::new();
        for (name, payload) in iter {
            table.insert(name, payload);
        }
        table
    }
}

impl SetValue {
    /// Adds a member, and tells whether it is new. One that is there costs no copy.
    pub fn add(&mut self, member: &Blob) -> bool {
        let is_new = !self.contains(member);
        if is_new {
            self.insert(member.clone(), ());
        }
        is_new
    }
}

impl FromIterator<Blob> for SetValue {
    fn from_iter<I: IntoIterator<Item = Blob>>(iter: I) -> SetValue {
        iter.into_iter().map(|name| (name, ())).collect()
    }
}

/// Equal tables give equal replies, so the order counts: a transaction that was told one of two tables and
/// validated against the other must run again if the two differ in it.
impl<P: Payload> PartialEq for Table<P> {
    fn eq(&self, other: &Table<P>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
impl<P: Payload + Eq> Eq for Table<P> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every property against a `BTreeMap`, for a random program around the border between the two forms.
    #[test]
    fn a_hash_is_a_map_that_old_versions_survive() {
        let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("ORDO_SEED={seed}");
        let mut state = seed;
        let mut draw = |bound: u64| {
            state = crate::hash::mix(state);
            state % bound
        };
        for fields in [3, 70, 130, 2_000] {
            let (mut hash, mut model) = (HashValue::new(), BTreeMap::new());
            let mut old: Vec<(HashValue, BTreeMap<Blob, Blob>)> = Vec::new();
            for step in 0..3_000 {
                let field = Blob::from(format!(
                    "{:0width$}",
                    draw(fields),
                    width = if step % 2 == 0 { 4 } else { 30 }
                ));
                // Grows and shrinks in turn, so that the form changes both ways.
                if draw(10) < if step / 300 % 2 == 0 { 8 } else { 2 } {
                    let value = Blob::from("v".repeat(draw(40) as usize));
                    assert_eq!(hash.insert(field.clone(), value.clone()), model.insert(field, value));
                } else {
                    assert_eq!(hash.remove(&field), model.remove(&field));
                }
                if step % 100 == 0 {
                    old.push((hash.clone(), model.clone()));
                }
            }
            old.push((hash, model));
            for (hash, model) in &old {
                assert_eq!(hash.len(), model.len());
                assert_eq!(
                    hash.iter().map(|(f, v)| (f.clone(), v.clone())).collect::<BTreeMap<_, _>>(),
                    *model
                );
                assert!(model.iter().all(|(field, value)| hash.get(field) == Some(value)));
                let bytes: usize = model
                    .iter()
                    .map(|(f, v)| size_of::<(Blob, Blob)>() + f.heap_bytes() + v.heap_bytes())
                    .sum();
                assert_eq!(hash.heap_bytes(), bytes);
                let mut reversed: Vec<_> = hash.iter().map(|(f, v)| (f.clone(), v.clone())).collect();
                reversed.reverse();
                let reversed = HashValue::from_iter(reversed);
                let is_ordered_by_content = hash.len() > SMALL_FIELDS_MAX || hash.len() < 2;
                assert_eq!(reversed == *hash, is_ordered_by_content);
                let rebuilt: HashValue = hash.iter().map(|(f, v)| (f.clone(), v.clone())).collect();
                let (mut restored, mut kept) = (rebuilt, hash.clone());
                for extra in ["x", "y", "z"].map(Blob::from) {
                    assert!(
                        restored.iter().eq(kept.iter()),
                        "a checkpoint must keep the order, also of later inserts"
                    );
                    restored.insert(extra.clone(), Blob::EMPTY);
                    kept.insert(extra, Blob::EMPTY);
                }
                let (mut pages, mut cursor) = (Vec::new(), Some(0));
                while let Some(from) = cursor {
                    let (page, next) = hash.page(from, 7);
                    pages.extend(page);
                    cursor = next;
                }
                assert!(pages.into_iter().eq(hash.iter()));
                let places: Vec<_> = (0..=hash.len()).map_while(|place| hash.at(place)).collect();
                assert!(places.into_iter().eq(hash.iter()));
            }
        }
    }
}
