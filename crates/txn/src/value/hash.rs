//! Redis hashes as persistent values.
//!
//! A hash of at most [`SMALL_FIELDS_MAX`] fields is a vector in order of insertion, copied on update. A larger one is a
//! persistent B-tree from the 64-bit hash of a field to the fields with that hash: a clone shares all but the path that
//! an update changes, and the order by hash gives cursors that survive updates, and random fields in O(log n).
//!
//! Invariants: (1) the form follows from the number of fields alone, in both directions, and a large hash is ordered by
//! content; so a hash that was written field by field in its order of iteration and read again (a checkpoint) is the
//! same in every later reply. (2) `heap_bytes` is the sum over the fields, kept up to date, because a store asks for it
//! at every version.

use crate::blob::Blob;
use crate::hash::hash_bytes;
use smallvec::SmallVec;
use std::ops::Bound;

/// The largest hash that is kept as a plain vector and copied on update.
pub const SMALL_FIELDS_MAX: usize = 64;

/// An estimate of what a field costs beside its bytes.
const FIELD_OVERHEAD_BYTES: usize = 2 * size_of::<Blob>();

/// A map from field to value, with structural sharing once it is large: an update of a clone costs O(log n) and leaves
/// the original readable.
#[derive(Clone, Debug, Default)]
pub struct HashValue {
    fields: Fields,
    heap_bytes: usize,
}

type Field = (Blob, Blob);
/// The fields that share a hash: one, unless somebody searched for collisions.
type Bucket = SmallVec<[Field; 1]>;

#[derive(Clone, Debug)]
enum Fields {
    /// In order of insertion.
    Small(Vec<Field>),
    /// In order of the fields' hashes; those of equal hash in order of their bytes.
    Large {
        buckets: imbl::OrdMap<u64, Bucket>,
        len: usize,
    },
}

impl Default for Fields {
    fn default() -> Fields {
        Fields::Small(Vec::new())
    }
}

fn field_bytes(field: &[u8], value: &Blob) -> usize {
    // The field's own allocation, as a blob of its length would make.
    let name_bytes = if field.len() > crate::blob::INLINE_BYTES_MAX {
        field.len() + 16
    } else {
        0
    };
    FIELD_OVERHEAD_BYTES + name_bytes + value.heap_bytes()
}

impl HashValue {
    /// An empty hash.
    pub fn new() -> HashValue {
        HashValue::default()
    }
    /// The number of fields.
    pub fn len(&self) -> usize {
        match &self.fields {
            Fields::Small(fields) => fields.len(),
            Fields::Large { len, .. } => *len,
        }
    }
    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&Blob> {
        let fields = match &self.fields {
            Fields::Small(fields) => &fields[..],
            Fields::Large { buckets, .. } => buckets.get(&hash_bytes(field))?,
        };
        fields
            .iter()
            .find(|(name, _)| name.as_bytes() == field)
            .map(|(_, value)| value)
    }
    /// Sets a field and returns the value that it had.
    pub fn insert(&mut self, field: Blob, value: Blob) -> Option<Blob> {
        let (name_len_bytes, new_bytes) = (
            field_bytes(&field, &Blob::EMPTY),
            field_bytes(&field, &value),
        );
        let old = match &mut self.fields {
            Fields::Small(fields) => {
                if let Some((_, slot)) = fields.iter_mut().find(|(name, _)| *name == field) {
                    Some(std::mem::replace(slot, value))
                } else {
                    fields.push((field, value));
                    if fields.len() > SMALL_FIELDS_MAX {
                        self.fields = Fields::large(std::mem::take(fields));
                    }
                    None
                }
            }
            Fields::Large { buckets, len } => {
                let old = insert_into(buckets, field, value);
                *len += usize::from(old.is_none());
                old
            }
        };
        if let Some(old) = &old {
            self.heap_bytes -= name_len_bytes + old.heap_bytes();
        }
        self.heap_bytes += new_bytes;
        old
    }
    /// Removes a field and returns the value that it had.
    pub fn remove(&mut self, field: &[u8]) -> Option<Blob> {
        let value = match &mut self.fields {
            Fields::Small(fields) => {
                let index = fields
                    .iter()
                    .position(|(name, _)| name.as_bytes() == field)?;
                fields.remove(index).1
            }
            Fields::Large { buckets, len } => {
                let hash = hash_bytes(field);
                let bucket = buckets.get_mut(&hash)?;
                let index = bucket
                    .iter()
                    .position(|(name, _)| name.as_bytes() == field)?;
                let (_, value) = bucket.remove(index);
                if bucket.is_empty() {
                    buckets.remove(&hash);
                }
                *len -= 1;
                if *len <= SMALL_FIELDS_MAX {
                    let fields = buckets.values().flatten().cloned().collect();
                    self.fields = Fields::Small(fields);
                }
                value
            }
        };
        self.heap_bytes -= field_bytes(field, &value);
        Some(value)
    }
    /// All fields, in an order that depends only on the operations that built the hash.
    pub fn iter(&self) -> Iter<'_> {
        Iter(match &self.fields {
            Fields::Small(fields) => Slices::Small(fields.iter()),
            Fields::Large { buckets, .. } => Slices::Large {
                buckets: buckets.values(),
                bucket: [].iter(),
            },
        })
    }
    /// At least `limit` fields (if there are so many) from the hash `from_hash` on, and where to go on; `None` after the
    /// last. Fields that are there all the while are met by whoever follows the cursors from 0, whatever is inserted
    /// and removed meanwhile. A small hash is one page.
    pub fn page(&self, from_hash: u64, limit: usize) -> (Vec<(&Blob, &Blob)>, Option<u64>) {
        match &self.fields {
            Fields::Small(fields) => (
                fields.iter().map(|(field, value)| (field, value)).collect(),
                None,
            ),
            Fields::Large { buckets, .. } => {
                let mut page = Vec::new();
                for (&hash, bucket) in buckets.range(from_hash..) {
                    if page.len() >= limit.max(1) {
                        return (page, Some(hash));
                    }
                    page.extend(bucket.iter().map(|(field, value)| (field, value)));
                }
                (page, None)
            }
        }
    }
    /// A field picked by a random number: evenly from a small hash, by its distance to the next hash from a large one.
    pub fn pick(&self, random: u64) -> Option<(&Blob, &Blob)> {
        let fields = match &self.fields {
            Fields::Small(fields) => &fields[..],
            Fields::Large { buckets, .. } => {
                let next = buckets
                    .range((Bound::Included(random), Bound::Unbounded))
                    .next();
                let (_, bucket) =
                    next.or_else(|| buckets.get_min().map(|(hash, bucket)| (hash, bucket)))?;
                bucket
            }
        };
        let index = random.checked_rem(fields.len() as u64)?;
        fields
            .get(index as usize)
            .map(|(field, value)| (field, value))
    }
    /// An estimate of the heap bytes that this hash keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

impl Fields {
    fn large(fields: Vec<Field>) -> Fields {
        let len = fields.len();
        let mut buckets = imbl::OrdMap::new();
        for (field, value) in fields {
            insert_into(&mut buckets, field, value);
        }
        Fields::Large { buckets, len }
    }
}

fn insert_into(buckets: &mut imbl::OrdMap<u64, Bucket>, field: Blob, value: Blob) -> Option<Blob> {
    let hash = hash_bytes(&field);
    let Some(bucket) = buckets.get_mut(&hash) else {
        buckets.insert(hash, Bucket::from_iter([(field, value)]));
        return None;
    };
    match bucket.binary_search_by(|(name, _)| name.cmp(&field)) {
        Ok(index) => Some(std::mem::replace(&mut bucket[index].1, value)),
        Err(index) => {
            bucket.insert(index, (field, value));
            None
        }
    }
}

/// The fields of a [`HashValue`] with their values.
pub struct Iter<'a>(Slices<'a>);

enum Slices<'a> {
    Small(std::slice::Iter<'a, Field>),
    Large {
        buckets: imbl::ordmap::Values<'a, u64, Bucket, imbl::shared_ptr::DefaultSharedPtr>,
        bucket: std::slice::Iter<'a, Field>,
    },
}

impl<'a> Iterator for Iter<'a> {
    type Item = (&'a Blob, &'a Blob);
    fn next(&mut self) -> Option<(&'a Blob, &'a Blob)> {
        let (field, value) = match &mut self.0 {
            Slices::Small(fields) => fields.next()?,
            Slices::Large { buckets, bucket } => loop {
                match bucket.next() {
                    Some(field) => break field,
                    None => *bucket = buckets.next()?.iter(),
                }
            },
        };
        Some((field, value))
    }
}

impl FromIterator<(Blob, Blob)> for HashValue {
    fn from_iter<I: IntoIterator<Item = (Blob, Blob)>>(iter: I) -> HashValue {
        let mut hash = HashValue::new();
        for (field, value) in iter {
            hash.insert(field, value);
        }
        hash
    }
}

impl PartialEq for HashValue {
    fn eq(&self, other: &HashValue) -> bool {
        self.len() == other.len()
            && self
                .iter()
                .all(|(field, value)| other.get(field) == Some(value))
    }
}
impl Eq for HashValue {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Every property against a `BTreeMap`, for a random program around the border between the two forms.
    #[test]
    fn a_hash_is_a_map_that_old_versions_survive() {
        let seed = std::env::var("ORDO_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok())
            .unwrap_or(7_u64);
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
                    assert_eq!(
                        hash.insert(field.clone(), value.clone()),
                        model.insert(field, value)
                    );
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
                    hash.iter()
                        .map(|(f, v)| (f.clone(), v.clone()))
                        .collect::<BTreeMap<_, _>>(),
                    *model
                );
                assert!(
                    model
                        .iter()
                        .all(|(field, value)| hash.get(field) == Some(value))
                );
                let bytes: usize = model
                    .iter()
                    .map(|(f, v)| FIELD_OVERHEAD_BYTES + f.heap_bytes() + v.heap_bytes())
                    .sum();
                assert_eq!(hash.heap_bytes(), bytes);
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
                assert_eq!(hash.pick(draw(u64::MAX)).is_some(), !model.is_empty());
            }
        }
    }
}
