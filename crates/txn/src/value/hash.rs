//! Redis hashes as persistent values.

use crate::blob::Blob;
use crate::hash::FixedState;

/// The largest hash that is kept as a plain vector and copied on update.
pub const SMALL_FIELDS_MAX: usize = 64;

/// A map from field to value, with structural sharing once it is large: an update of a clone costs O(log n) and leaves
/// the original readable.
#[derive(Clone, Debug)]
pub struct HashValue(Repr);

#[derive(Clone, Debug)]
enum Repr {
    /// In order of insertion.
    Small(Vec<(Blob, Blob)>),
    Large(imbl::GenericHashMap<Blob, Blob, FixedState, imbl::shared_ptr::DefaultSharedPtr>),
}

impl Default for HashValue {
    fn default() -> HashValue {
        HashValue(Repr::Small(Vec::new()))
    }
}

impl HashValue {
    /// An empty hash.
    pub fn new() -> HashValue {
        HashValue::default()
    }
    /// The number of fields.
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Small(fields) => fields.len(),
            Repr::Large(fields) => fields.len(),
        }
    }
    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The value of a field.
    pub fn get(&self, field: &[u8]) -> Option<&Blob> {
        match &self.0 {
            Repr::Small(fields) => fields
                .iter()
                .find(|(name, _)| name.as_bytes() == field)
                .map(|(_, value)| value),
            Repr::Large(fields) => fields.get(field),
        }
    }
    /// Sets a field and returns the value that it had.
    pub fn insert(&mut self, field: Blob, value: Blob) -> Option<Blob> {
        match &mut self.0 {
            Repr::Small(fields) => {
                if let Some((_, old)) = fields.iter_mut().find(|(name, _)| *name == field) {
                    return Some(std::mem::replace(old, value));
                }
                fields.push((field, value));
                if fields.len() > SMALL_FIELDS_MAX {
                    self.0 = Repr::Large(std::mem::take(fields).into_iter().collect());
                }
                None
            }
            Repr::Large(fields) => fields.insert(field, value),
        }
    }
    /// Removes a field and returns the value that it had.
    pub fn remove(&mut self, field: &[u8]) -> Option<Blob> {
        match &mut self.0 {
            Repr::Small(fields) => {
                let index = fields
                    .iter()
                    .position(|(name, _)| name.as_bytes() == field)?;
                Some(fields.remove(index).1)
            }
            Repr::Large(fields) => fields.remove(field),
        }
    }
    /// All fields, in an order that depends only on the operations that built the hash.
    pub fn iter(&self) -> Box<dyn Iterator<Item = (&Blob, &Blob)> + '_> {
        match &self.0 {
            Repr::Small(fields) => Box::new(fields.iter().map(|(field, value)| (field, value))),
            Repr::Large(fields) => Box::new(fields.iter()),
        }
    }
    /// An estimate of the heap bytes that this hash keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.iter()
            .map(|(field, value)| 48 + field.heap_bytes() + value.heap_bytes())
            .sum()
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
