//! Small collections as one byte string.
//!
//! A [`Packed`] has the number of its items in the first byte, and then the strings of the items in turn: of
//! a list's element its bytes, of a hash's field the name and the value, of a sorted set's member the score
//! and the name. A string is preceded by its length: one byte below 128, or two with the first bit set. So a
//! collection costs an allocation of about its content, and a reader passes over adjacent bytes. A writer
//! copies the whole; it writes in place if no other clone exists and the length stays.
//!
//! Whether a value is packed follows from its items alone ([`fits`]): a replica that reads it from a
//! checkpoint has the form that the others have, and so tells the same size.

use crate::blob::{Blob, BlobRef};
use std::iter::{FusedIterator, repeat_n};
use std::ops::Range;
use std::sync::Arc;

/// The most items of a packed collection.
pub const SMALL_ITEMS_MAX: usize = 64;
/// The most bytes of a packed collection: a change copies at most these.
const PACKED_BYTES_MAX: usize = 4096;

/// Where the first string begins, behind the number of items.
const HEAD_BYTES: usize = 1;
/// Longer strings have their length in two bytes.
const SHORT_LENGTH_MAX: usize = 0x7f;

const _: () = assert!(SMALL_ITEMS_MAX <= u8::MAX as usize && PACKED_BYTES_MAX <= 0x7fff);

/// Whether a collection is packed, by the number of its items and the bytes that its strings take packed
/// ([`string_bytes`]).
pub(super) fn fits(items: usize, bytes: usize) -> bool {
    items <= SMALL_ITEMS_MAX && HEAD_BYTES + bytes <= PACKED_BYTES_MAX
}

/// The bytes of a string in a packed collection.
pub(super) fn string_bytes(len: usize) -> usize {
    len + if len <= SHORT_LENGTH_MAX { 1 } else { 2 }
}

/// The bytes of several strings in a packed collection.
fn strings_bytes(strings: &[&[u8]]) -> usize {
    strings.iter().map(|string| string_bytes(string.len())).sum()
}

/// An item, as it is read from a packed collection.
pub trait Unpack<'a>: Sized {
    /// Takes an item off the front of what is left.
    fn unpack(rest: &mut &'a [u8]) -> Self;
}

impl<'a> Unpack<'a> for &'a [u8] {
    fn unpack(rest: &mut &'a [u8]) -> &'a [u8] {
        let (length, strings) = match **rest {
            [length, ref strings @ ..] if length & 0x80 == 0 => (usize::from(length), strings),
            [high, low, ref strings @ ..] => (usize::from(high & 0x7f) << 8 | usize::from(low), strings),
            _ => (0, *rest),
        };
        let (string, behind) = strings.split_at(length);
        *rest = behind;
        string
    }
}
impl<'a> Unpack<'a> for BlobRef<'a> {
    fn unpack(rest: &mut &'a [u8]) -> BlobRef<'a> {
        BlobRef::Packed(<&[u8]>::unpack(rest))
    }
}
impl<'a> Unpack<'a> for () {
    fn unpack(_: &mut &'a [u8]) {}
}
impl<'a, A: Unpack<'a>, B: Unpack<'a>> Unpack<'a> for (A, B) {
    fn unpack(rest: &mut &'a [u8]) -> (A, B) {
        let first = A::unpack(rest);
        (first, B::unpack(rest))
    }
}

/// A small collection. Two of the same items in the same order are the same bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packed(Arc<[u8]>);

impl Default for Packed {
    /// An allocation of its own: all threads would count the holders of a shared one.
    fn default() -> Packed {
        Packed(Arc::new([]))
    }
}

impl Packed {
    /// The number of items.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.first().map_or(0, |&items| usize::from(items))
    }
    /// The heap bytes that the collection keeps alive.
    pub fn heap_bytes(&self) -> usize {
        match self.0.len() {
            0 => 0,
            len => Blob::SHARED_BYTES + len,
        }
    }
    /// The bytes of all strings.
    pub fn strings_bytes(&self) -> usize {
        self.0.len().saturating_sub(HEAD_BYTES)
    }
    /// The items in order.
    #[inline]
    pub fn iter<'a, T: Unpack<'a>>(&'a self) -> Iter<'a, T> {
        Iter { rest: self.0.get(HEAD_BYTES..).unwrap_or_default(), left: self.len(), from_end: None }
    }
    /// The items at these places, as far as there are any.
    pub fn range<'a, T: Unpack<'a>>(&'a self, places: Range<usize>) -> Iter<'a, T> {
        let mut iter = self.iter();
        let start = places.start.min(iter.left);
        (0..start).for_each(|_| drop(T::unpack(&mut iter.rest)));
        iter.left = places.end.clamp(start, iter.left) - start;
        iter
    }
    /// The item at a place.
    pub fn get<'a, T: Unpack<'a>>(&'a self, place: usize) -> Option<T> {
        self.range(place..place.saturating_add(1)).next()
    }
    /// The first item that is wanted, with the places of its bytes.
    #[inline]
    pub fn find<'a, T: Unpack<'a>>(&'a self, wanted: impl Fn(&T) -> bool) -> Option<(Range<usize>, T)> {
        let mut iter = self.iter();
        loop {
            let start = self.end() - iter.rest.len();
            let item = iter.next()?;
            if wanted(&item) {
                return Some((start..self.end() - iter.rest.len(), item));
            }
        }
    }
    /// The places of the bytes of items, as far as there are any.
    pub fn bytes_of<'a, T: Unpack<'a>>(&'a self, places: Range<usize>) -> Range<usize> {
        let mut items = self.range::<T>(places);
        let start = self.end() - items.rest.len();
        items.by_ref().for_each(drop);
        start..self.end() - items.rest.len()
    }
    /// The place behind the last byte.
    pub fn end(&self) -> usize {
        self.0.len().max(HEAD_BYTES)
    }
    /// Takes out the bytes at `removed`, and puts strings before the byte that is now at `at`, outside of
    /// those. `items` is the number of items afterwards.
    pub fn change(&mut self, removed: Range<usize>, at: usize, strings: &[&[u8]], items: usize) {
        debug_assert!(at <= removed.start || at >= removed.end, "the byte stays");
        if items == 0 {
            *self = Packed::default();
            return;
        }
        let added = strings_bytes(strings);
        if at == removed.start
            && added == removed.len()
            && let Some(bytes) = Arc::get_mut(&mut self.0)
        {
            Room(&mut bytes[removed]).put_strings(strings);
            bytes[0] = items as u8;
            return;
        }
        let old: &[u8] = if self.0.is_empty() { &[0] } else { &self.0 };
        let mut new: Arc<[u8]> = repeat_n(0, old.len() - removed.len() + added).collect();
        let mut room = Room(Arc::make_mut(&mut new));
        match at <= removed.start {
            true => {
                room.put(&old[..at]);
                room.put_strings(strings);
                room.put(&old[at..removed.start]);
                room.put(&old[removed.end..]);
            }
            false => {
                room.put(&old[..removed.start]);
                room.put(&old[removed.end..at]);
                room.put_strings(strings);
                room.put(&old[at..]);
            }
        }
        Arc::make_mut(&mut new)[0] = items as u8;
        self.0 = new;
    }
}

/// The room of a collection that is not written yet.
struct Room<'a>(&'a mut [u8]);

impl Room<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let (place, behind) = std::mem::take(&mut self.0).split_at_mut(bytes.len());
        place.copy_from_slice(bytes);
        self.0 = behind;
    }
    fn put_strings(&mut self, strings: &[&[u8]]) {
        for string in strings {
            match string.len() {
                len if len <= SHORT_LENGTH_MAX => self.put(&[len as u8]),
                len => self.put(&[0x80 | (len >> 8) as u8, len as u8]),
            }
            self.put(string);
        }
    }
}

/// A collection that is packed item by item, as long as it fits.
pub(super) struct Packing {
    bytes: Vec<u8>,
}

impl Packing {
    pub fn new() -> Packing {
        Packing { bytes: vec![0; HEAD_BYTES] }
    }
    /// Adds an item of these strings; whether it fits.
    pub fn push(&mut self, strings: &[&[u8]]) -> bool {
        let (start, added) = (self.bytes.len(), strings_bytes(strings));
        let fits = fits(usize::from(self.bytes[0]) + 1, start - HEAD_BYTES + added);
        if fits {
            self.bytes.resize(start + added, 0);
            Room(&mut self.bytes[start..]).put_strings(strings);
            self.bytes[0] += 1;
        }
        fits
    }
    /// The items so far.
    pub fn iter<'a, T: Unpack<'a>>(&'a self) -> Iter<'a, T> {
        Iter { rest: &self.bytes[HEAD_BYTES..], left: usize::from(self.bytes[0]), from_end: None }
    }
    pub fn done(self) -> Packed {
        match self.bytes[0] {
            0 => Packed::default(),
            _ => Packed(Arc::from(self.bytes)),
        }
    }
}

/// Items of a packed collection.
#[derive(Clone, Debug)]
pub struct Iter<'a, T> {
    rest: &'a [u8],
    left: usize,
    /// All that are left, once a caller has asked for the last one: strings tell only where the next one
    /// begins.
    from_end: Option<std::vec::IntoIter<T>>,
}

impl<'a, T: Unpack<'a>> Iterator for Iter<'a, T> {
    type Item = T;
    #[inline]
    fn next(&mut self) -> Option<T> {
        if let Some(items) = &mut self.from_end {
            return items.next();
        }
        self.left = self.left.checked_sub(1)?;
        Some(T::unpack(&mut self.rest))
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.from_end.as_ref().map_or(self.left, ExactSizeIterator::len);
        (left, Some(left))
    }
}
impl<'a, T: Unpack<'a>> DoubleEndedIterator for Iter<'a, T> {
    fn next_back(&mut self) -> Option<T> {
        if self.from_end.is_none() {
            let items: Vec<T> = self.by_ref().collect();
            self.from_end = Some(items.into_iter());
        }
        self.from_end.as_mut().and_then(DoubleEndedIterator::next_back)
    }
}
impl<'a, T: Unpack<'a>> ExactSizeIterator for Iter<'a, T> {}
impl<'a, T: Unpack<'a>> FusedIterator for Iter<'a, T> {}
