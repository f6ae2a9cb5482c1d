//! Redis lists as persistent values.

use crate::blob::Blob;
use crate::sequence::{Iter, Sequence};
use std::ops::Range;

/// A list of byte strings: O(log n) at any place, with structural sharing.
///
/// Invariant: `heap_bytes` is the sum over the elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListValue {
    elements: Sequence<Blob>,
    heap_bytes: usize,
}

fn bytes_of(element: &Blob) -> usize {
    size_of::<Blob>() + element.heap_bytes()
}

impl ListValue {
    /// An empty list.
    pub fn new() -> ListValue {
        ListValue::default()
    }
    /// The number of elements.
    pub fn len(&self) -> usize {
        self.elements.len()
    }
    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }
    /// The element at a place, counted from 0.
    pub fn get(&self, place: usize) -> Option<&Blob> {
        self.elements.get(place)
    }
    /// The elements at these places, as far as there are any.
    pub fn range(&self, places: Range<usize>) -> Iter<'_, Blob> {
        self.elements.range(places)
    }
    /// All elements.
    pub fn iter(&self) -> Iter<'_, Blob> {
        self.elements.iter()
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
        self.heap_bytes += bytes_of(&element);
        self.elements.insert(place, element);
    }
    /// Puts an element in the place of another, and gives that.
    pub fn replace(&mut self, place: usize, element: Blob) -> Option<Blob> {
        let new_bytes = bytes_of(&element);
        let old = self.elements.update(place, |slot| std::mem::replace(slot, element))?;
        self.heap_bytes = self.heap_bytes + new_bytes - bytes_of(&old);
        Some(old)
    }
    /// Removes the element at a place.
    pub fn remove(&mut self, place: usize) -> Option<Blob> {
        let element = self.elements.remove(place)?;
        self.heap_bytes -= bytes_of(&element);
        Some(element)
    }
    /// Removes the elements at these places, as far as there are any.
    pub fn remove_range(&mut self, places: Range<usize>) {
        let removed = self.elements.range(places.clone());
        self.heap_bytes -= removed.map(bytes_of).sum::<usize>();
        self.elements.remove_range(places);
    }
    /// Removes the elements at some places, given in ascending order: O(log n) for each, but never more than
    /// making a new list of those that stay.
    pub fn remove_places(&mut self, places: &[usize]) {
        let kept = self.len().saturating_sub(places.len());
        if kept < places.len().saturating_mul(4) {
            let mut removed = places.iter().copied().peekable();
            let all = self.iter().enumerate();
            let kept = all.filter(|(place, _)| removed.next_if_eq(place).is_none());
            *self = kept.map(|(_, element)| element.clone()).collect();
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
            *self = kept.cloned().collect();
        } else {
            self.remove_range(places.end..self.len());
            self.remove_range(0..places.start);
        }
    }
    /// An estimate of the heap bytes that this list keeps alive.
    pub fn heap_bytes(&self) -> usize {
        self.heap_bytes
    }
}

impl FromIterator<Blob> for ListValue {
    fn from_iter<I: IntoIterator<Item = Blob>>(iter: I) -> ListValue {
        let elements: Sequence<Blob> = iter.into_iter().collect();
        let heap_bytes = elements.iter().map(bytes_of).sum();
        ListValue { elements, heap_bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_elements() {
        let long = |len: usize| Blob::from("x".repeat(len));
        let mut list: ListValue = (0..100).map(long).collect();
        list.push_front(long(500));
        list.insert(50, long(70));
        assert_eq!(list.replace(10, long(300)), Some(long(9)));
        assert_eq!(list.remove(60), Some(long(58)));
        list.remove_range(20..40);
        assert_eq!(list.pop_back(), Some(long(99)));
        let rebuilt: ListValue = list.iter().cloned().collect();
        assert_eq!(list.heap_bytes(), rebuilt.heap_bytes());
        list.remove_range(0..list.len());
        assert_eq!((list.len(), list.heap_bytes()), (0, 0));
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
                assert_eq!(kept, list.range(start..end).cloned().collect());
                assert!(list.iter().eq(&model), "the original stays");
            }
        }
    }
}
