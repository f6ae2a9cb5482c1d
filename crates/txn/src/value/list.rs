//! Redis lists as persistent values.

use super::packed::{self, Packed, Packing, fits, string_bytes};
use crate::blob::{Blob, BlobRef};
use crate::sequence::{self, Sequence};
use std::ops::Range;
use std::sync::Arc;

/// A list of byte strings: packed while it is small, and then O(log n) at any place, with structural sharing.
///
/// Invariant: a [`Value`](super::Value) has a list in the form that its elements tell ([`fits`]). While
/// commands change a list, it may stay in the large form ([`ListValue::settle`]).
#[derive(Clone, Debug)]
pub struct ListValue(Form);

#[derive(Clone, Debug)]
enum Form {
    Packed(Packed),
    Large(Arc<Large>),
}

/// Invariant: the numbers are sums over the elements.
#[derive(Clone, Debug)]
struct Large {
    elements: Sequence<Blob>,
    heap_bytes: usize,
    /// The bytes of the elements, if they were packed.
    packed_bytes: usize,
}

const _: () = assert!(size_of::<ListValue>() == 16, "a value has room for 16 bytes beside its type");

fn heap_bytes_of(element: &Blob) -> usize {
    size_of::<Blob>() + element.heap_bytes()
}
fn packed_bytes_of(element: &Blob) -> usize {
    string_bytes(element.len())
}

impl Large {
    fn of(elements: Sequence<Blob>) -> Large {
        let heap_bytes = elements.iter().map(heap_bytes_of).sum();
        let packed_bytes = elements.iter().map(packed_bytes_of).sum();
        Large { elements, heap_bytes, packed_bytes }
    }
    fn count(&mut self, element: &Blob) {
        self.heap_bytes += heap_bytes_of(element);
        self.packed_bytes += packed_bytes_of(element);
    }
    fn discount(&mut self, element: &Blob) {
        self.heap_bytes -= heap_bytes_of(element);
        self.packed_bytes -= packed_bytes_of(element);
    }
}

impl Default for ListValue {
    fn default() -> ListValue {
        ListValue(Form::Packed(Packed::default()))
    }
}

impl ListValue {
    /// An empty list.
    pub fn new() -> ListValue {
        ListValue::default()
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Form::Packed(elements) => elements.len(),
            Form::Large(large) => large.elements.len(),
        }
    }
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The element at a place, counted from 0.
    pub fn get(&self, place: usize) -> Option<BlobRef<'_>> {
        match &self.0 {
            Form::Packed(elements) => elements.get(place),
            Form::Large(large) => large.elements.get(place).map(BlobRef::Blob),
        }
    }
    /// The elements at these places, as far as there are any.
    pub fn range(&self, places: Range<usize>) -> Iter<'_> {
        Iter(match &self.0 {
            Form::Packed(elements) => Items::Packed(elements.range(places)),
            Form::Large(large) => Items::Large(large.elements.range(places)),
        })
    }
    /// All elements.
    pub fn iter(&self) -> Iter<'_> {
        self.range(0..usize::MAX)
    }
    /// Adds an element at the front.
    pub fn push_front(&mut self, element: Blob) {
        self.insert(0, element);
    }
    /// Adds an element at the end.
    pub fn push_back(&mut self, element: Blob) {
        self.insert(self.len(), element);
    }
    /// Removes the first element.
    pub fn pop_front(&mut self) -> Option<Blob> {
        self.remove(0)
    }
    /// Removes the last element.
    pub fn pop_back(&mut self) -> Option<Blob> {
        self.remove(self.len().checked_sub(1)?)
    }
    /// Inserts an element before the one at `place`, or at the end.
    ///
    /// # Panics
    /// If the list has fewer than `place` elements.
    pub fn insert(&mut self, place: usize, element: Blob) {
        assert!(place <= self.len(), "an element has a place in the list");
        if let Form::Packed(elements) = &mut self.0 {
            let len = elements.len() + 1;
            if fits(len, elements.strings_bytes() + string_bytes(element.len())) {
                let at = match place == elements.len() {
                    true => elements.end(),
                    false => elements.bytes_of::<&[u8]>(place..place).start,
                };
                return elements.change(at..at, at, &[&element], len);
            }
        }
        let large = self.large();
        large.count(&element);
        large.elements.insert(place, element);
    }
    /// Puts an element in the place of another, if there is one; whether there is.
    pub fn replace(&mut self, place: usize, element: Blob) -> bool {
        if place >= self.len() {
            return false;
        }
        if let Form::Packed(elements) = &mut self.0 {
            let old = elements.bytes_of::<&[u8]>(place..place + 1);
            let len = elements.len();
            if fits(len, elements.strings_bytes() - old.len() + string_bytes(element.len())) {
                elements.change(old.clone(), old.start, &[&element], len);
                return true;
            }
        }
        let large = self.large();
        large.count(&element);
        if let Some(old) = large.elements.update(place, |slot| std::mem::replace(slot, element)) {
            large.discount(&old);
        }
        true
    }
    /// Removes the element at a place.
    pub fn remove(&mut self, place: usize) -> Option<Blob> {
        match &mut self.0 {
            Form::Packed(elements) => {
                let removed = elements.get::<BlobRef<'_>>(place)?.to_blob();
                self.remove_range(place..place + 1);
                Some(removed)
            }
            Form::Large(large) if place < large.elements.len() => {
                let large = Arc::make_mut(large);
                let removed = large.elements.remove(place)?;
                large.discount(&removed);
                Some(removed)
            }
            Form::Large(_) => None,
        }
    }
    /// Removes the elements at these places, as far as there are any.
    pub fn remove_range(&mut self, places: Range<usize>) {
        let places = places.start..places.end.min(self.len());
        // Nothing to remove must not copy anything.
        if places.is_empty() {
            return;
        }
        match &mut self.0 {
            Form::Packed(elements) => {
                let removed = elements.bytes_of::<&[u8]>(places.clone());
                elements.change(removed.clone(), removed.start, &[], elements.len() - places.len());
            }
            Form::Large(large) => {
                let large = Arc::make_mut(large);
                let removed = large.elements.range(places.clone());
                large.heap_bytes -= removed.clone().map(heap_bytes_of).sum::<usize>();
                large.packed_bytes -= removed.map(packed_bytes_of).sum::<usize>();
                large.elements.remove_range(places);
            }
        }
    }
    /// Removes the elements at some places, given in ascending order: O(log n) for each, but never more than
    /// making a new list of those that stay.
    pub fn remove_places(&mut self, places: &[usize]) {
        let kept = self.len().saturating_sub(places.len());
        if kept < places.len().saturating_mul(4) {
            let mut removed = places.iter().copied().peekable();
            let all = self.iter().enumerate();
            let kept = all.filter(|(place, _)| removed.next_if_eq(place).is_none());
            *self = kept.map(|(_, element)| element.to_blob()).collect();
        } else {
            for &place in places.iter().rev() {
                self.remove(place);
            }
        }
    }
    /// Removes all elements but those at these places: at the cost of the fewer of the removed and the kept
    /// ones.
    pub fn keep(&mut self, places: Range<usize>) {
        let kept = self.range(places.clone());
        if kept.len() < self.len() / 2 {
            *self = kept.map(BlobRef::to_blob).collect();
        } else {
            self.remove_range(places.end..self.len());
            self.remove_range(0..places.start);
        }
    }
    /// An estimate of the heap bytes that this list keeps alive.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            Form::Packed(elements) => elements.heap_bytes(),
            Form::Large(large) => large.heap_bytes,
        }
    }

    /// The list in its large form, to change it.
    fn large(&mut self) -> &mut Large {
        if let Form::Packed(elements) = &self.0 {
            let elements = elements.iter().map(BlobRef::to_blob);
            self.0 = Form::Large(Arc::new(Large::of(elements.collect())));
        }
        match &mut self.0 {
            Form::Large(large) => Arc::make_mut(large),
            Form::Packed(_) => unreachable!("it was unpacked"),
        }
    }
    /// The list in the form of a value: packed, if that fits.
    pub(super) fn settle(mut self) -> ListValue {
        if let Form::Large(large) = &self.0
            && fits(large.elements.len(), large.packed_bytes)
        {
            let mut packing = Packing::new();
            for element in &large.elements {
                packing.push(&[element]);
            }
            self.0 = Form::Packed(packing.done());
        }
        self
    }
}

impl PartialEq for ListValue {
    fn eq(&self, other: &ListValue) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
impl Eq for ListValue {}

/// Elements of a [`ListValue`], from both ends.
#[derive(Clone)]
pub struct Iter<'a>(Items<'a>);

#[derive(Clone)]
enum Items<'a> {
    Packed(packed::Iter<'a, BlobRef<'a>>),
    Large(sequence::Iter<'a, Blob>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = BlobRef<'a>;
    #[inline]
    fn next(&mut self) -> Option<BlobRef<'a>> {
        match &mut self.0 {
            Items::Packed(elements) => elements.next(),
            Items::Large(elements) => elements.next().map(BlobRef::Blob),
        }
    }
    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Items::Packed(elements) => elements.size_hint(),
            Items::Large(elements) => elements.size_hint(),
        }
    }
}
impl DoubleEndedIterator for Iter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Items::Packed(elements) => elements.next_back(),
            Items::Large(elements) => elements.next_back().map(BlobRef::Blob),
        }
    }
}
impl ExactSizeIterator for Iter<'_> {}

impl FromIterator<Blob> for ListValue {
    fn from_iter<I: IntoIterator<Item = Blob>>(elements: I) -> ListValue {
        let mut elements = elements.into_iter();
        let mut packing = Packing::new();
        let Some(next) = elements.by_ref().find(|element| !packing.push(&[element])) else {
            return ListValue(Form::Packed(packing.done()));
        };
        let packed = packing.done();
        let packed = packed.iter().map(BlobRef::to_blob);
        let all = packed.chain([next]).chain(elements).collect();
        ListValue(Form::Large(Arc::new(Large::of(all))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every property against a vector, for a random program around the borders between the two forms.
    #[test]
    fn a_list_is_a_vector_that_old_versions_survive() {
        let seed = std::env::var("ORDO_SEED").ok();
        let mut state = seed.and_then(|seed| seed.parse().ok()).unwrap_or(7_u64);
        println!("ORDO_SEED={state}");
        let mut draw = |bound: usize| {
            state = crate::hash::mix(state);
            (state % bound as u64) as usize
        };
        let mut forms = [0; 2];
        for (elements, bytes) in [(5, 30), (75, 10), (50, 180), (8, 2_000), (1_000, 30)] {
            let (mut list, mut model) = (ListValue::new(), Vec::new());
            let mut old: Vec<(ListValue, Vec<Blob>)> = Vec::new();
            for step in 0..2_000 {
                let element = Blob::from("x".repeat(draw(bytes)));
                let place = draw(model.len() + 2);
                match draw(10) {
                    0 => {
                        let is_there = model.get_mut(place).map(|slot| *slot = element.clone()).is_some();
                        assert_eq!(list.replace(place, element), is_there);
                    }
                    1..3 => {
                        let removed = (place < model.len()).then(|| model.remove(place));
                        assert_eq!(list.remove(place), removed);
                    }
                    3 => {
                        let end = place.min(model.len()) + draw(1 + model.len().saturating_sub(elements / 2));
                        model.drain(place.min(model.len())..end.min(model.len()));
                        list.remove_range(place..end);
                    }
                    4 => assert_eq!(list.pop_front(), (!model.is_empty()).then(|| model.remove(0))),
                    5 => assert_eq!(list.pop_back(), model.pop()),
                    _ if model.len() > elements => {}
                    6 => {
                        list.push_front(element.clone());
                        model.insert(0, element);
                    }
                    7 => {
                        list.push_back(element.clone());
                        model.push(element);
                    }
                    _ => {
                        let place = place.min(model.len());
                        list.insert(place, element.clone());
                        model.insert(place, element);
                    }
                }
                if step % 50 == 0 {
                    old.push((list.clone(), model.clone()));
                }
            }
            for (list, model) in &old {
                let settled = list.clone().settle();
                assert!(settled == *list);
                let list = &settled;
                assert!(list.iter().eq(model.iter().map(BlobRef::from)));
                assert!(list.iter().rev().eq(model.iter().rev().map(BlobRef::from)));
                assert!((0..=list.len()).map_while(|place| list.get(place)).eq(list.iter()));
                let rebuilt: ListValue = model.iter().cloned().collect();
                assert_eq!((&rebuilt, rebuilt.heap_bytes()), (list, list.heap_bytes()));
                let is_packed = matches!(list.0, Form::Packed(_));
                forms[usize::from(is_packed)] += 1;
                let packed = model.iter().map(packed_bytes_of).sum();
                assert_eq!(is_packed, fits(model.len(), packed), "the form follows from the elements");
            }
        }
        assert!(forms.iter().all(|&seen| seen > 20), "both forms are common: {forms:?}");
    }

    #[test]
    fn few_short_elements_are_packed() {
        for (elements, bytes, is_packed) in
            [(64, 62, true), (64, 63, false), (65, 0, false), (1, 4093, true), (1, 4094, false)]
        {
            let list: ListValue = (0..elements).map(|_| Blob::from("x".repeat(bytes))).collect();
            assert_eq!(matches!(list.settle().0, Form::Packed(_)), is_packed, "{elements} of {bytes} bytes");
        }
    }

    #[test]
    fn elements_are_removed_wherever_they_are() {
        let mut state = 7_u64;
        let mut draw = |bound: usize| {
            state = crate::hash::mix(state);
            (state % bound as u64) as usize
        };
        for kinds in [1, 2, 40] {
            for len in [0, 1, 30, 500] {
                let model: Vec<Blob> = (0..len).map(|_| Blob::from(draw(kinds).to_string())).collect();
                let list: ListValue = model.iter().cloned().collect();
                let (start, end) = (draw(len + 2), draw(len + 2));
                let within = |place: &usize| (start..end).contains(place);
                let is_it = |place: &usize| model[*place].as_bytes() == b"0";
                let wanted: Vec<usize> = (0..len).filter(within).filter(is_it).collect();
                let is_left = |(place, _): &(usize, &Blob)| !wanted.contains(place);
                let left = model.iter().enumerate().filter(is_left);
                let left: ListValue = left.map(|(_, element)| element.clone()).collect();
                let mut removed = list.clone();
                removed.remove_places(&wanted);
                assert_eq!(removed, left);

                let mut kept = list.clone();
                kept.keep(start..end);
                assert_eq!(kept, list.range(start..end).map(BlobRef::to_blob).collect());
                assert!(list.iter().eq(model.iter().map(BlobRef::from)), "the original stays");
            }
        }
    }
}
