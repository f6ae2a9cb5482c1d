//! Persistent maps from names to payloads: Redis's hashes and its sets.
//!
//! A table of at most [`SMALL_ITEMS_MAX`] names is in order of insertion: [`Packed`] while its strings are
//! short, and otherwise a vector, which an update of a clone copies without the strings. A table of more
//! names is [`Hashed`]: a clone shares all but the path that an update changes, and the order by hash gives
//! cursors that survive updates, and random names in O(log n).
//!
//! Invariants: (1) the order follows from the number of names, in both directions, and a table of many names
//! is ordered by content; so a table that was written name by name in its order of iteration and read again
//! (a checkpoint) is the same in every later reply. (2) A [`Value`](super::Value) has a table in the form
//! that its fields tell ([`fits`]). While commands change a table, it may stay in a larger form than that: it
//! is packed at the end ([`Table::settle`]), and not at each field.

use super::hashed::{self, Field, Hashed, Payload};
use super::packed::{self, Packed, Packing, SMALL_ITEMS_MAX, Unpack, fits, string_bytes};
use crate::blob::{Blob, BlobRef};
use crate::sequence;
use std::fmt::Debug;
use std::sync::Arc;

/// A payload that a packed table has as strings behind the name.
pub trait TablePayload: Payload {
    /// The payload in a table.
    type Ref<'a>: Copy + Debug + PartialEq + Unpack<'a>;
    /// A name and its payload, as they are packed.
    type Strings<'a>: AsRef<[&'a [u8]]>;
    /// The payload of a large table.
    fn borrow(&self) -> Self::Ref<'_>;
    /// The payload by itself.
    fn to_owned(payload: Self::Ref<'_>) -> Self;
    /// The strings of a name with this payload.
    fn strings<'a>(name: &'a [u8], payload: Self::Ref<'a>) -> Self::Strings<'a>;
}

impl TablePayload for Blob {
    type Ref<'a> = BlobRef<'a>;
    type Strings<'a> = [&'a [u8]; 2];
    fn borrow(&self) -> BlobRef<'_> {
        BlobRef::Blob(self)
    }
    fn to_owned(payload: BlobRef<'_>) -> Blob {
        payload.to_blob()
    }
    fn strings<'a>(name: &'a [u8], payload: BlobRef<'a>) -> [&'a [u8]; 2] {
        [name, payload.as_bytes()]
    }
}
impl TablePayload for () {
    type Ref<'a> = ();
    type Strings<'a> = [&'a [u8]; 1];
    fn borrow(&self) {}
    fn to_owned((): ()) {}
    fn strings(name: &[u8], (): ()) -> [&[u8]; 1] {
        [name]
    }
}

/// A Redis hash: values by field.
pub type HashValue = Table<Blob>;
/// A Redis set.
pub type SetValue = Table<()>;

/// A map from names to payloads: cheap to clone, and an update of a clone leaves the original readable. It
/// costs O(log n) once the table is large.
#[derive(Clone, Debug)]
pub struct Table<P: TablePayload>(Form<P>);

#[derive(Clone, Debug)]
enum Form<P: TablePayload> {
    Packed(Packed),
    Apart(Arc<Apart<P>>),
}

/// A table whose fields are apart.
#[derive(Clone, Debug)]
struct Apart<P: TablePayload> {
    fields: Fields<P>,
    /// The bytes of the fields, if they were packed.
    packed_bytes: usize,
}

#[derive(Clone, Debug)]
enum Fields<P: TablePayload> {
    /// At most [`SMALL_ITEMS_MAX`], in order of insertion.
    Few(Vec<(Blob, P)>),
    Many(Hashed<P>),
}

const _: () = assert!(size_of::<HashValue>() == 16, "a value has room for 16 bytes beside its type");

impl<P: TablePayload> Default for Table<P> {
    fn default() -> Table<P> {
        Table(Form::Packed(Packed::default()))
    }
}

/// The bytes of a name and its payload, if they were packed.
fn packed_bytes<'a, P: TablePayload>(name: &'a [u8], payload: P::Ref<'a>) -> usize {
    let strings = P::strings(name, payload);
    strings.as_ref().iter().map(|string| string_bytes(string.len())).sum()
}

fn borrowed<P: TablePayload>((name, payload): &(Blob, P)) -> (BlobRef<'_>, P::Ref<'_>) {
    (BlobRef::Blob(name), payload.borrow())
}
fn of_field<P: TablePayload>(field: &Field<P>) -> (BlobRef<'_>, P::Ref<'_>) {
    (BlobRef::Blob(&field.name), field.payload.borrow())
}

impl<P: TablePayload> Fields<P> {
    fn len(&self) -> usize {
        match self {
            Fields::Few(fields) => fields.len(),
            Fields::Many(fields) => fields.len(),
        }
    }
    fn get(&self, name: &[u8]) -> Option<&P> {
        match self {
            Fields::Few(fields) => {
                let found = fields.iter().find(|(other, _)| other.as_bytes() == name);
                found.map(|(_, payload)| payload)
            }
            Fields::Many(fields) => fields.get(name),
        }
    }
    fn insert(&mut self, name: Blob, payload: P) -> Option<P> {
        match self {
            Fields::Few(fields) => {
                if let Some((_, slot)) = fields.iter_mut().find(|(other, _)| *other == name) {
                    return Some(std::mem::replace(slot, payload));
                }
                fields.push((name, payload));
                if fields.len() > SMALL_ITEMS_MAX {
                    *self = Fields::Many(std::mem::take(fields).into_iter().collect());
                }
                None
            }
            Fields::Many(fields) => fields.insert(name, payload),
        }
    }
    fn remove(&mut self, name: &[u8]) -> Option<P> {
        match self {
            Fields::Few(fields) => {
                let place = fields.iter().position(|(other, _)| other.as_bytes() == name)?;
                Some(fields.remove(place).1)
            }
            Fields::Many(fields) => {
                let removed = fields.remove(name)?;
                if fields.len() <= SMALL_ITEMS_MAX {
                    let few = fields.iter().map(|field| (field.name.clone(), field.payload.clone()));
                    *self = Fields::Few(few.collect());
                }
                Some(removed)
            }
        }
    }
    fn iter(&self) -> Items<'_, P> {
        match self {
            Fields::Few(fields) => Items::Few(fields.iter()),
            Fields::Many(fields) => Items::Many(fields.iter()),
        }
    }
    fn heap_bytes(&self) -> usize {
        match self {
            Fields::Few(fields) => fields.iter().map(|(name, payload)| hashed::bytes_of(name, payload)).sum(),
            Fields::Many(fields) => fields.heap_bytes(),
        }
    }
}

impl<P: TablePayload> Apart<P> {
    fn insert(&mut self, name: Blob, payload: P) -> bool {
        self.packed_bytes += packed_bytes::<P>(&name, payload.borrow());
        let old = self.fields.insert(name.clone(), payload);
        self.packed_bytes -= old.as_ref().map_or(0, |old| packed_bytes::<P>(&name, old.borrow()));
        old.is_none()
    }
}

impl<P: TablePayload> Table<P> {
    /// An empty table.
    pub fn new() -> Table<P> {
        Table::default()
    }
    /// The number of names.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(fields) => fields.len(),
            Form::Apart(apart) => apart.fields.len(),
        }
    }
    /// Whether there is no name.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// What a name has.
    pub fn get(&self, name: &[u8]) -> Option<P::Ref<'_>> {
        match &self.0 {
            Form::Packed(fields) => {
                let mut fields = fields.iter::<(&[u8], P::Ref<'_>)>();
                fields.find(|(other, _)| *other == name).map(|(_, payload)| payload)
            }
            Form::Apart(apart) => apart.fields.get(name).map(P::borrow),
        }
    }
    /// The payload of each of some names, by itself: a name that comes often is copied once.
    pub fn get_each<'a>(&'a self, names: impl Iterator<Item = &'a [u8]>) -> impl Iterator<Item = Option<P>> {
        let mut packed: Vec<(&[u8], P::Ref<'_>, Option<P>)> = match &self.0 {
            Form::Packed(fields) => fields.iter().map(|(name, payload)| (name, payload, None)).collect(),
            Form::Apart(_) => Vec::new(),
        };
        names.map(move |name| match &self.0 {
            Form::Packed(_) => {
                let (_, payload, copy) = packed.iter_mut().find(|(other, ..)| *other == name)?;
                Some(copy.get_or_insert_with(|| P::to_owned(*payload)).clone())
            }
            Form::Apart(apart) => apart.fields.get(name).cloned(),
        })
    }
    /// Whether a name is there.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.get(name).is_some()
    }
    /// Gives a name a payload, and tells whether the name is new.
    pub fn insert(&mut self, name: Blob, payload: P) -> bool {
        if let Form::Packed(fields) = &mut self.0 {
            let found = fields.find::<(&[u8], P::Ref<'_>)>(|(other, _)| *other == &*name);
            let place = found.map_or(fields.end()..fields.end(), |(place, _)| place);
            let len = fields.len() + usize::from(place.is_empty());
            let added = packed_bytes::<P>(&name, payload.borrow());
            if fits(len, fields.strings_bytes() - place.len() + added) {
                let strings = P::strings(&name, payload.borrow());
                fields.change(place.clone(), place.start, strings.as_ref(), len);
                return place.is_empty();
            }
        }
        self.apart().insert(name, payload)
    }
    /// Removes a name, and tells whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        match &mut self.0 {
            Form::Packed(fields) => {
                let Some((place, _)) = fields.find::<(&[u8], P::Ref<'_>)>(|(other, _)| *other == name) else {
                    return false;
                };
                fields.change(place.clone(), place.start, &[], fields.len() - 1);
                true
            }
            // A name that is not there must not copy anything.
            Form::Apart(apart) if apart.fields.get(name).is_none() => false,
            Form::Apart(apart) => {
                let apart = Arc::make_mut(apart);
                let removed = apart.fields.remove(name);
                apart.packed_bytes -= removed.map_or(0, |removed| packed_bytes::<P>(name, removed.borrow()));
                true
            }
        }
    }
    /// The table with its fields apart, to change it.
    fn apart(&mut self) -> &mut Apart<P> {
        if let Form::Packed(fields) = &self.0 {
            let all = fields.iter::<(BlobRef<'_>, P::Ref<'_>)>();
            let all = all.map(|(name, payload)| (name.to_blob(), P::to_owned(payload)));
            let apart = Apart { fields: Fields::Few(all.collect()), packed_bytes: fields.strings_bytes() };
            self.0 = Form::Apart(Arc::new(apart));
        }
        match &mut self.0 {
            Form::Apart(apart) => Arc::make_mut(apart),
            Form::Packed(_) => unreachable!("its fields were taken apart"),
        }
    }
    /// The table in the form of a value: packed, if that fits.
    pub(super) fn settle(mut self) -> Table<P> {
        if let Form::Apart(apart) = &self.0
            && fits(apart.fields.len(), apart.packed_bytes)
        {
            let mut packing = Packing::new();
            for (name, payload) in Iter(apart.fields.iter()) {
                packing.push(P::strings(name.as_bytes(), payload).as_ref());
            }
            self.0 = Form::Packed(packing.done());
        }
        self
    }
    /// The field at a place in the order of iteration: what a random number below [`Table::len`] picks
    /// evenly.
    pub fn at(&self, place: usize) -> Option<(BlobRef<'_>, P::Ref<'_>)> {
        match &self.0 {
            Form::Packed(fields) => fields.get(place),
            Form::Apart(apart) => match &apart.fields {
                Fields::Few(fields) => fields.get(place).map(borrowed),
                Fields::Many(fields) => fields.at(place).map(of_field),
            },
        }
    }
    /// The fields at some places, by themselves: a field that comes often is copied once.
    pub fn at_each(&self, places: impl Iterator<Item = usize>) -> impl Iterator<Item = (Blob, P)> {
        let by_itself = |(name, payload): (BlobRef<'_>, P::Ref<'_>)| (name.to_blob(), P::to_owned(payload));
        let packed: Vec<(Blob, P)> = match &self.0 {
            Form::Packed(fields) => fields.iter().map(by_itself).collect(),
            Form::Apart(_) => Vec::new(),
        };
        places.filter_map(move |place| match &self.0 {
            Form::Packed(_) => packed.get(place).cloned(),
            Form::Apart(_) => self.at(place).map(by_itself),
        })
    }
    /// All names with what they have, in an order that depends only on the operations that built the table.
    pub fn iter(&self) -> Iter<'_, P> {
        Iter(match &self.0 {
            Form::Packed(fields) => Items::Packed(fields.iter()),
            Form::Apart(apart) => apart.fields.iter(),
        })
    }
    /// All names, in the same order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = BlobRef<'_>> {
        self.iter().map(|(name, _)| name)
    }
    /// At least `limit` names (or all, if there are fewer) from the hash `from_hash` on, and where to go on;
    /// `None` after the last. A client that follows the cursors from 0 meets each name that is there all the
    /// while, whatever is inserted and removed meanwhile. A table of few names is one page.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<(BlobRef<'_>, P::Ref<'_>)>, Option<u64>) {
        if let Form::Apart(apart) = &self.0
            && let Fields::Many(fields) = &apart.fields
        {
            let (page, next) = fields.page(from_hash, limit);
            return (page.into_iter().map(of_field).collect(), next);
        }
        (self.iter().collect(), None)
    }
    /// An estimate of the heap bytes that this table keeps alive.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(fields) => fields.heap_bytes(),
            Form::Apart(apart) => apart.fields.heap_bytes(),
        }
    }
}

/// The names of a [`Table`] with what they have.
#[derive(Clone)]
pub struct Iter<'a, P: TablePayload>(Items<'a, P>);

#[derive(Clone)]
enum Items<'a, P: TablePayload> {
    Packed(packed::Iter<'a, (BlobRef<'a>, P::Ref<'a>)>),
    Few(std::slice::Iter<'a, (Blob, P)>),
    Many(sequence::Iter<'a, Field<P>>),
}

impl<'a, P: TablePayload> Iterator for Iter<'a, P> {
    type Item = (BlobRef<'a>, P::Ref<'a>);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Items::Packed(fields) => fields.next(),
            Items::Few(fields) => fields.next().map(borrowed),
            Items::Many(fields) => fields.next().map(of_field),
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Items::Packed(fields) => fields.size_hint(),
            Items::Few(fields) => fields.size_hint(),
            Items::Many(fields) => fields.size_hint(),
        }
    }
}
impl<P: TablePayload> ExactSizeIterator for Iter<'_, P> {}

impl<P: TablePayload> FromIterator<(Blob, P)> for Table<P> {
    fn from_iter<I: IntoIterator<Item = (Blob, P)>>(fields: I) -> Table<P> {
        let mut fields = fields.into_iter();
        let mut packing = Packing::new();
        // A name that comes twice, or one field too many, ends the packing.
        let next = fields.by_ref().find(|(name, payload)| {
            let is_new = packing.iter::<(&[u8], P::Ref<'_>)>().all(|(other, _)| other != &**name);
            !is_new || !packing.push(P::strings(name, payload.borrow()).as_ref())
        });
        let mut table = Table(Form::Packed(packing.done()));
        for (name, payload) in next.into_iter().chain(fields) {
            table.insert(name, payload);
        }
        table
    }
}

impl SetValue {
    /// Adds a member, and tells whether it is new. One that is there costs no copy.
    pub fn add(&mut self, member: BlobRef<'_>) -> bool {
        !self.contains(&member) && self.insert(member.to_blob(), ())
    }
}

impl FromIterator<Blob> for SetValue {
    fn from_iter<I: IntoIterator<Item = Blob>>(iter: I) -> SetValue {
        iter.into_iter().map(|name| (name, ())).collect()
    }
}

/// Equal tables give equal replies, so the order counts: a transaction that was told one of two tables and
/// validated against the other must run again if the two differ in it.
impl<P: TablePayload> PartialEq for Table<P> {
    fn eq(&self, other: &Table<P>) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
impl<P: TablePayload + Eq> Eq for Table<P> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn owned(hash: &HashValue) -> impl Iterator<Item = (Blob, Blob)> {
        hash.iter().map(|(name, value)| (name.to_blob(), value.to_blob()))
    }

    /// Every property against a `BTreeMap`, for a random program around the borders between the two forms.
    #[test]
    fn a_hash_is_a_map_that_old_versions_survive() {
        let seed = std::env::var("ORDO_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("ORDO_SEED={seed}");
        let mut state = seed;
        let mut draw = |bound: u64| {
            state = crate::hash::mix(state);
            state % bound
        };
        let mut forms = [0; 2];
        for (fields, value_bytes) in [(3, 40), (20, 20), (16, 300), (6, 2_000), (2_000, 40)] {
            let (mut hash, mut model) = (HashValue::new(), BTreeMap::new());
            let mut old: Vec<(HashValue, BTreeMap<Blob, Blob>)> = Vec::new();
            for step in 0..3_000 {
                let width = [1, 4, 30, 200][draw(4) as usize];
                let field = Blob::from(format!("{:0width$}", draw(fields)));
                // Grows and shrinks in turn, so that the form changes both ways.
                if draw(10) < if step / 300 % 2 == 0 { 8 } else { 2 } {
                    let value = Blob::from("v".repeat(draw(value_bytes) as usize));
                    let is_new = model.insert(field.clone(), value.clone()).is_none();
                    assert_eq!(hash.insert(field, value), is_new);
                } else {
                    assert_eq!(hash.remove(&field), model.remove(&field).is_some());
                }
                if step % 100 == 0 {
                    old.push((hash.clone(), model.clone()));
                }
            }
            old.push((hash, model));
            for (hash, model) in &old {
                let settled = hash.clone().settle();
                assert!(settled == *hash && settled.iter().eq(hash.iter()));
                let hash = &settled;
                assert_eq!(hash.len(), model.len());
                assert_eq!(
                    hash.iter().map(|(f, v)| (f.to_blob(), v.to_blob())).collect::<BTreeMap<_, _>>(),
                    *model
                );
                assert!(model.iter().all(|(field, value)| hash.get(field) == Some(value.into())));
                let strings = model.iter().flat_map(|(field, value)| [field, value]);
                let packed: usize = strings.map(|string| string_bytes(string.len())).sum();
                let bytes: usize = model
                    .iter()
                    .map(|(f, v)| size_of::<(Blob, Blob)>() + f.heap_bytes() + v.heap_bytes())
                    .sum();
                let is_packed = matches!(hash.0, Form::Packed(_));
                forms[usize::from(is_packed)] += 1;
                assert_eq!(is_packed, fits(model.len(), packed), "the form follows from the fields");
                assert_eq!(
                    hash.heap_bytes(),
                    match is_packed {
                        true if model.is_empty() => 0,
                        true => Blob::SHARED_BYTES + 1 + packed,
                        false => bytes,
                    }
                );
                let mut reversed: Vec<_> = owned(hash).collect();
                reversed.reverse();
                let reversed = HashValue::from_iter(reversed);
                let is_ordered_by_content = hash.len() > SMALL_ITEMS_MAX || hash.len() < 2;
                assert_eq!(reversed == *hash, is_ordered_by_content);
                let rebuilt: HashValue = owned(hash).collect();
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
                assert!(hash.at_each(0..hash.len() + 1).eq(owned(hash)));
                assert!(places.into_iter().eq(hash.iter()));
            }
        }
        assert!(forms.iter().all(|&seen| seen > 20), "both forms are common: {forms:?}");
    }

    #[test]
    fn few_fields_of_short_strings_are_packed_and_few_keep_the_order_of_insertion() {
        let name = |number: usize| Blob::from(format!("{number:03}"));
        // A field takes 2 and 3 bytes, and its value; the first byte is the number of fields.
        for (fields, value_bytes, is_packed) in
            [(64, 58, true), (64, 59, false), (65, 1, false), (1, 4089, true), (1, 4090, false)]
        {
            let value = Blob::from("v".repeat(value_bytes));
            let hash: HashValue = (0..fields).rev().map(|number| (name(number), value.clone())).collect();
            let hash = hash.settle();
            assert_eq!(
                matches!(hash.0, Form::Packed(_)),
                is_packed,
                "{fields} fields of {value_bytes} bytes"
            );
            let is_in_order =
                hash.names().eq((0..fields).rev().map(name).collect::<Vec<_>>().iter().map(BlobRef::from));
            assert_eq!(is_in_order, fields <= 64);
            let (before, mut changed) = (hash.clone(), hash.clone());
            assert!(!changed.insert(name(0), Blob::from("w".repeat(value_bytes))));
            assert!(changed != before && before == hash, "a clone does not see the change");
        }
        for bytes in [0, 1, 127, 128, 255, 256, 4000] {
            let value = Blob::from("v".repeat(bytes));
            let mut hash = HashValue::from_iter([(name(1), value.clone()), (value.clone(), name(2))]);
            assert_eq!(hash.get(&value), Some(BlobRef::from(&name(2))));
            assert!(hash.insert(name(3), Blob::EMPTY) && hash.remove(&value));
            let left = [(name(1), value), (name(3), Blob::EMPTY)];
            assert!(hash.iter().eq(left.iter().map(borrowed)), "{bytes} bytes");
        }
    }

    #[test]
    fn many_looks_at_a_packed_field_copy_it_once() {
        let value = Blob::from("v".repeat(1_000));
        let hash = HashValue::from_iter([(Blob::from("f"), value.clone())]);
        let names = [&b"f"[..], b"f", b"g", b"f"];
        let found: Vec<Option<Blob>> = hash.get_each(names.into_iter()).collect();
        assert_eq!(found, [Some(value.clone()), Some(value.clone()), None, Some(value.clone())]);
        let picked: Vec<(Blob, Blob)> = hash.at_each([0, 0, 1, 0].into_iter()).collect();
        assert_eq!(picked.len(), 3);
        let places = found.iter().flatten().map(|value| value.as_ptr()).collect::<Vec<_>>();
        assert!(places.iter().all(|place| *place == places[0]));
        assert!(picked.iter().all(|(_, value)| value.as_ptr() == picked[0].1.as_ptr()));
    }

    #[test]
    fn a_name_that_comes_twice_has_what_came_last() {
        for fields in [2, 500] {
            let names = (0..fields).chain(0..fields).map(|name| Blob::from(name.to_string()));
            let pairs: Vec<_> =
                names.enumerate().map(|(at, name)| (name, Blob::from(at.to_string()))).collect();
            let hash: HashValue = pairs.iter().cloned().collect();
            assert_eq!(hash.len(), fields);
            assert!(pairs[fields..].iter().all(|(name, last)| hash.get(name) == Some(last.into())));
        }
    }
}
